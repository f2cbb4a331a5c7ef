//! The router's side of `brickway monitor`: a follower reads the ring, at its own pace.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use control::api::{EventRow, LogQuery, LogRow, Rows, Unanswered};

use super::{Event, LOG, Log, MOST, MOST_DEEDS};
use crate::moment;

/// Followers at a time: the control socket has eight connections, and others need some.
const MOST_FOLLOWERS: usize = 4;

/// Events that are sent at once.
const PAGE: usize = 32;

/// How often a follower that has read all looks again.
const PERIOD: Duration = Duration::from_millis(50);

/// How often one that gets nothing hears that the router is there.
const ALIVE_PERIOD: Duration = Duration::from_secs(10);

/// How long a client may take nothing.
const LONGEST_STOP: Duration = Duration::from_secs(60);

/// How many there are.
static FOLLOWERS: AtomicUsize = AtomicUsize::new(0);

/// Waits until no follower is left, but not for longer than `limit`.
pub(super) fn wait(limit: Duration) {
    let deadline = Instant::now() + limit;
    while FOLLOWERS.load(Ordering::SeqCst) > 0 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// One of the followers.
struct Follower;

impl Follower {
    fn begin() -> Result<Follower, String> {
        let room = |others: usize| (others < MOST_FOLLOWERS).then_some(others + 1);
        match FOLLOWERS.fetch_update(Ordering::SeqCst, Ordering::SeqCst, room) {
            Ok(_) => Ok(Follower),
            Err(_) => Err(format!("log: {MOST_FOLLOWERS} clients follow already; end one of them first")),
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        FOLLOWERS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Sends what happened, and what happens while the client stays.
pub(crate) fn answer(query: &LogQuery, rows: &mut Rows<'_>) -> Result<(), Unanswered> {
    answer_from(LOG.get().ok_or("this program has no log")?, query, rows)
}

fn answer_from(log: &Log, query: &LogQuery, rows: &mut Rows<'_>) -> Result<(), Unanswered> {
    let _follower = query.follow.then(Follower::begin).transpose()?;
    let is_wanted = |event: &Event| {
        let time = moment::microseconds(event.time);
        query.level.is_none_or(|level| event.level <= level)
            && query.since_us.is_none_or(|since| since <= time)
            && query.until_us.is_none_or(|until| time <= until)
    };
    let end = log.end();
    let mut next = begin(log, query, end, &is_wanted);
    let (mut heard, mut took) = (Instant::now(), Instant::now());
    loop {
        // Read before the ring is: nothing comes behind it.
        let has_ended = log.has_ended.load(Ordering::SeqCst);
        // While the client takes nothing the ring goes on, which loses events for it.
        if !rows.wait_for_room(ALIVE_PERIOD)? {
            if took.elapsed() >= LONGEST_STOP {
                return Err(Unanswered::ClientGone);
            }
            continue;
        }
        took = Instant::now();
        let page = log.from(next, PAGE);
        let is_all = page.is_empty();
        for (number, event) in page {
            // What was overwritten before the client came it does not miss.
            if number > next && next >= end {
                rows.send(LogRow::Lost { lost: number - next })?;
            }
            next = number + 1;
            if is_wanted(&event) {
                heard = Instant::now();
                rows.send(row(&event))?;
            }
        }
        let is_over = if query.follow { is_all && has_ended } else { is_all || next >= end };
        if is_over {
            return rows.flush();
        }
        if heard.elapsed() >= ALIVE_PERIOD {
            heard = Instant::now();
            rows.send(LogRow::Alive { is_alive: true })?;
        }
        if is_all {
            rows.flush()?;
            rows.wait(PERIOD)?;
        }
    }
}

/// The number of the first event that is sent: the oldest, or the first of the last ones that are wanted.
fn begin(log: &Log, query: &LogQuery, end: u64, is_wanted: &impl Fn(&Event) -> bool) -> u64 {
    let all = log.from(0, MOST + MOST_DEEDS);
    match query.last {
        Some(0) => end,
        Some(last) => {
            let wanted = all.iter().rev().filter(|(_, event)| is_wanted(event));
            wanted.take(last as usize).last().map_or(end, |(number, _)| *number)
        }
        None => all.first().map_or(end, |(number, _)| *number),
    }
}

fn row(event: &Arc<Event>) -> LogRow {
    let Event { time, level, text, fields } = &**event;
    let time = moment::rfc3339(moment::microseconds(*time));
    LogRow::Event(EventRow { time, level: *level, text: text.clone(), fields: fields.clone() })
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};

    use control::api::{Level, Request, Show};
    use packet::sync::lock;

    use super::*;

    fn put(log: &Log, level: Level, text: &str) {
        let event = Event {
            time: std::time::SystemTime::now(),
            level,
            text: text.to_owned(),
            fields: Default::default(),
        };
        lock(&log.state).ring.put(event);
    }

    /// A client, and what happens while it takes its first row.
    struct Client<'a> {
        bytes: Vec<u8>,
        meanwhile: Option<Box<dyn FnOnce() + 'a>>,
    }

    impl Write for Client<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.meanwhile.take().into_iter().for_each(|act| act());
            self.bytes.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The texts of the events that such a query is answered with, and numbers of lost ones.
    fn answered<'a>(log: &Log, query: LogQuery, meanwhile: impl FnOnce() + 'a) -> Vec<String> {
        let mut client = Client { bytes: Vec::new(), meanwhile: Some(Box::new(meanwhile)) };
        let request = Request::Show(Show::Log(query.clone()));
        answer_from(log, &query, &mut Rows::bare(&request, &mut client)).unwrap();
        let text = String::from_utf8(client.bytes).unwrap();
        let texts = text.lines().map(|line| match serde_json::from_str(line).unwrap() {
            LogRow::Event(event) => event.text,
            LogRow::Lost { lost } => format!("lost {lost}"),
            LogRow::Alive { .. } => String::new(),
        });
        texts.collect()
    }

    #[test]
    fn readers_get_what_they_ask_for() {
        let log = Log::new(Level::Debug, None, false);
        put(&log, Level::Warn, "first");
        let since_us = Some(moment::microseconds(std::time::SystemTime::now()));
        std::thread::sleep(Duration::from_millis(2));
        for (level, text) in [(Level::Error, "second"), (Level::Debug, "third"), (Level::Warn, "fourth")] {
            put(&log, level, text);
        }
        let all = LogQuery::default();
        let texts = |query| answered(&log, query, || ());
        assert_eq!(texts(all.clone()), ["first", "second", "third", "fourth"]);
        assert_eq!(texts(LogQuery { last: Some(2), ..all.clone() }), ["third", "fourth"]);
        // The last ones of those that matter.
        let warnings = LogQuery { level: Some(Level::Warn), ..all.clone() };
        assert_eq!(texts(LogQuery { last: Some(2), ..warnings.clone() }), ["second", "fourth"]);
        assert_eq!(texts(LogQuery { since_us, ..warnings }), ["second", "fourth"]);
        assert_eq!(texts(LogQuery { until_us: since_us, ..all.clone() }), ["first"]);
        assert!(texts(LogQuery { last: Some(0), ..all }).is_empty());
    }

    #[test]
    fn a_follower_that_is_too_slow_hears_how_many_it_lost() {
        let log = Log::new(Level::Info, None, false);
        put(&log, Level::Info, "first");
        let query = LogQuery { follow: true, ..LogQuery::default() };
        let lines = answered(&log, query, || {
            (0..MOST + 10).for_each(|number| put(&log, Level::Info, &number.to_string()));
            log.has_ended.store(true, Ordering::SeqCst);
        });
        assert_eq!(lines[..3], ["first", "lost 10", "10"]);
        assert_eq!((lines.len(), lines.last().unwrap().as_str()), (MOST + 2, "8201"));
    }
}
