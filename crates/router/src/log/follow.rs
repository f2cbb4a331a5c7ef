//! The router's side of `brickway monitor`: a follower reads the ring, at its own pace.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use control::api::{EventRow, LogQuery, LogRow, Rows, Unanswered};

use super::{Event, LOG, Log, MOST};
use crate::moment;

/// Followers at a time: the control socket has eight connections, and others need some.
const MOST_FOLLOWERS: usize = 4;

/// Events that are sent at once.
const PAGE: usize = 32;

/// How often a follower that has read all looks again.
const PERIOD: Duration = Duration::from_millis(50);

/// How often one that gets nothing hears that the router is there.
const ALIVE_PERIOD: Duration = Duration::from_secs(10);

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
    let log = LOG.get().ok_or("this program has no log")?;
    let _follower = query.follow.then(Follower::begin).transpose()?;
    let is_wanted = |event: &Event| {
        let time = moment::microseconds(event.time);
        query.level.is_none_or(|level| event.level <= level)
            && query.since_us.is_none_or(|since| since <= time)
            && query.until_us.is_none_or(|until| time <= until)
    };
    let end = log.end();
    let mut next = begin(log, query, end, &is_wanted);
    let mut heard = Instant::now();
    loop {
        // Read before the ring is: nothing comes behind it.
        let has_ended = log.has_ended.load(Ordering::SeqCst);
        // While the client takes nothing the ring goes on, which loses events for it.
        if !rows.wait_for_room(ALIVE_PERIOD)? {
            continue;
        }
        let (first, page) = log.from(next, PAGE);
        if first > next {
            rows.send(LogRow::Lost { lost: first - next })?;
        }
        next = first + page.len() as u64;
        let is_all = page.is_empty();
        for event in page.into_iter().filter(|event| is_wanted(event)) {
            heard = Instant::now();
            rows.send(row(&event))?;
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
    let (first, all) = log.from(0, MOST);
    match query.last {
        Some(0) => end,
        Some(last) => {
            let wanted = all.iter().enumerate().rev().filter(|(_, event)| is_wanted(event));
            wanted.take(last as usize).last().map_or(end, |(place, _)| first + place as u64)
        }
        None => first,
    }
}

fn row(event: &Arc<Event>) -> LogRow {
    let Event { time, level, text, fields } = &**event;
    let time = moment::rfc3339(moment::microseconds(*time));
    LogRow::Event(EventRow { time, level: *level, text: text.clone(), fields: fields.clone() })
}
