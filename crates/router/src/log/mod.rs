//! The log of a router that runs: what happened, with fields for machines. All crates report by the macros of `tracing`; packets'
//! way reports nothing.
//!
//! | file | what lives there |
//! | --- | --- |
//! | this one | [`Log`]: from `tracing` to standard error, the journal, and the ring of the last events |
//! | `journal` | the journal of systemd |
//! | `follow` | the router's side of `brickway monitor` |
//! | `monitor` | `brickway monitor` |
//!
//! An event goes where people look: to the journal with its fields where standard error is the journal, else to standard error as
//! text. None of these can stop who reports: standard error has the bounded queue of `graph::messages`, the journal a socket that does
//! not wait, and followers read the ring, which overwrites what they leave too long. Of events with the same text ten a second
//! come through, and of what happens for one cause (a neighbour's changes on a port, say) five, whatever the texts. Then one says
//! how many more there were. One cause has an eighth of the ring at most.

mod follow;
mod journal;
pub(crate) mod monitor;

use std::collections::{HashMap, VecDeque};
use std::fmt::{Debug, Write};
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use control::api::Level;
use graph::messages::{self, Alike, PERIOD};
use packet::sync::lock;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event as Reported, Metadata, Subscriber};

use graph::messages::printable_lines;

pub(crate) use follow::answer;
use journal::Journal;

/// Events that the ring keeps of what happens, and of what people had the router do: a flood of the first does not take the
/// place of the second.
const MOST: usize = 8_192;
const MOST_DEEDS: usize = 1_024;

/// Events of a cause that are taken in a [`PERIOD`], whatever their texts: hosts on a link can cause some, each with another text.
const MOST_OF_A_CAUSE: u64 = 5;
/// The same of what people do, who may be asked about it.
const MOST_OF_A_USER: u64 = 100;
/// Events of one cause that the ring keeps.
const MOST_KEPT_OF_A_CAUSE: usize = MOST / 8;
/// Causes that are counted in a period; events of others are left out.
const MOST_CAUSES: usize = 1_024;

/// Events of the router itself: each of its lines counts.
const OWN: [&str; 5] = ["balance", "end", "fault", "reload", "start"];

/// Bytes of a text or a field that are kept: a client of the control socket may send a mebibyte.
const LONGEST: usize = 1_024;

/// How long followers may take to read the last events.
const LONGEST_END: Duration = Duration::from_secs(1);

/// The crates whose events are the router's. Others have events too: those of HTTP/2, for example.
const CRATES: [&str; 11] =
    ["brickway", "click", "control", "elements", "fabric", "fib", "graph", "ipsec", "lua", "ports", "router"];

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Event {
    pub(crate) time: SystemTime,
    pub(crate) level: Level,
    pub(crate) text: String,
    pub(crate) fields: Map<String, Value>,
}

/// Where events go.
pub(crate) struct Log {
    /// A number of [`Level::ALL`].
    level: AtomicUsize,
    /// Whether the router ends, and no more comes.
    has_ended: AtomicBool,
    state: Mutex<State>,
}

struct State {
    journal: Option<Journal>,
    has_colours: bool,
    alike: Alike<(Level, String)>,
    /// Events of this period by level and cause, those that were left out among them, and how many are taken. Debugging takes no
    /// place of the rest.
    causes: HashMap<(Level, String), (u64, u64)>,
    period_ends: Instant,
    ring: Ring,
}

/// The log of this process, once it has one.
static LOG: OnceLock<Arc<Log>> = OnceLock::new();

/// Has events of this process logged from now on. A later call sets the level alone.
pub(crate) fn begin(level: Level) {
    let log = LOG.get_or_init(|| {
        let log = Arc::new(Log::new(level, Journal::of_standard_error(), std::io::stderr().is_terminal()));
        // A program around this library may have one of its own, which then has all events.
        let _ = tracing::subscriber::set_global_default(Collector(log.clone()));
        log
    });
    log.set_level(level);
}

/// Keeps the log at this level, and reports what was left out of a flood. To be called several times a second.
pub(crate) fn look(level: Level) {
    if let Some(log) = LOG.get() {
        log.set_level(level);
        log.end_period_if_due();
    }
}

/// Reports what was left out, and lets followers read what there is, for a moment: the router ends.
pub(crate) fn end() {
    if let Some(log) = LOG.get() {
        lock(&log.state).period_ends = Instant::now();
        log.end_period_if_due();
        log.has_ended.store(true, Ordering::SeqCst);
        follow::wait(LONGEST_END);
    }
}

impl Log {
    fn new(level: Level, journal: Option<Journal>, has_colours: bool) -> Self {
        let state = State {
            journal,
            has_colours,
            alike: Alike::default(),
            causes: HashMap::new(),
            period_ends: Instant::now() + PERIOD,
            ring: Ring::default(),
        };
        Self {
            level: AtomicUsize::new(level as usize),
            has_ended: AtomicBool::new(false),
            state: Mutex::new(state),
        }
    }

    fn level(&self) -> Level {
        Level::ALL[self.level.load(Ordering::Relaxed)]
    }

    fn set_level(&self, level: Level) {
        if self.level.swap(level as usize, Ordering::Relaxed) != level as usize {
            // Places that report remember whether anybody wants to hear of it.
            tracing::callsite::rebuild_interest_cache();
        }
    }

    fn take(&self, event: Event) {
        self.end_period_if_due();
        let mut state = lock(&self.state);
        if state.admits_cause(&event) && state.alike.admits(&(event.level, event.text.clone())) {
            state.put(event);
        }
    }

    fn end_period_if_due(&self) {
        let mut state = lock(&self.state);
        let now = Instant::now();
        if now < state.period_ends {
            return;
        }
        state.period_ends = now + PERIOD;
        let (alike, causes) = (state.alike.end(), std::mem::take(&mut state.causes));
        // A cause of their own, so that they push out no others.
        let fields = Map::from_iter([("event".to_owned(), Value::from("more"))]);
        let mut add = |level, text| {
            state.put(Event { time: SystemTime::now(), level, text, fields: fields.clone() });
        };
        for ((level, text), more) in alike {
            add(level, format!("{text} ({more} more)"));
        }
        for ((_, cause), (count, most)) in causes.into_iter().filter(|(_, (count, most))| count > most) {
            add(Level::Warn, format!("{cause}: {} more events in a second", count - most));
        }
    }

    /// Returns events from the one of this number on, as many as asked for, with their numbers.
    fn from(&self, number: u64, most: usize) -> Vec<Numbered> {
        lock(&self.state).ring.from(number, most)
    }

    /// Returns the number of the next event.
    fn end(&self) -> u64 {
        lock(&self.state).ring.end()
    }
}

/// An event with the number that it came as.
type Numbered = (u64, Arc<Event>);

/// The last events.
#[derive(Default)]
struct Ring {
    events: VecDeque<Numbered>,
    /// Of these, how many there are of each cause.
    causes: HashMap<String, usize>,
    deeds: VecDeque<Numbered>,
    /// The number of the next one.
    next: u64,
}

impl Ring {
    fn put(&mut self, event: Event) {
        let number = self.next;
        self.next += 1;
        if event.is_deed() {
            if self.deeds.len() == MOST_DEEDS {
                self.deeds.pop_front();
            }
            self.deeds.push_back((number, Arc::new(event)));
            return;
        }
        let cause = event.cause();
        let kept = self.causes.get(&cause).copied().unwrap_or_default();
        if !cause.is_empty() && kept >= MOST_KEPT_OF_A_CAUSE {
            // It takes no place of others.
            let oldest = self.events.iter().position(|(_, event)| event.cause() == cause);
            if let Some((_, gone)) = oldest.and_then(|oldest| self.events.remove(oldest)) {
                self.forget(&gone.cause());
            }
        } else if self.events.len() == MOST
            && let Some((_, gone)) = self.events.pop_front()
        {
            self.forget(&gone.cause());
        }
        *self.causes.entry(cause).or_default() += 1;
        self.events.push_back((number, Arc::new(event)));
    }

    fn forget(&mut self, cause: &str) {
        if let Some(count) = self.causes.get_mut(cause) {
            *count -= 1;
            if *count == 0 {
                self.causes.remove(cause);
            }
        }
    }

    fn from(&self, number: u64, most: usize) -> Vec<Numbered> {
        let behind = |ring: &VecDeque<Numbered>| -> Vec<Numbered> {
            let first = ring.partition_point(|(known, _)| *known < number);
            ring.range(first..).take(most).cloned().collect()
        };
        let mut all = [behind(&self.events), behind(&self.deeds)].concat();
        all.sort_unstable_by_key(|(number, _)| *number);
        all.truncate(most);
        all
    }

    fn end(&self) -> u64 {
        self.next
    }
}

impl Event {
    /// Whether somebody who may had the router do something. What was refused is not, for anybody can be refused.
    fn is_deed(&self) -> bool {
        self.level == Level::Info && self.fields.contains_key("user")
    }

    /// What it is of, by whom, and on which port or link of the fabric.
    fn cause(&self) -> String {
        let words = ["event", "user", "port", "link"].into_iter().filter_map(|name| {
            Some(match self.fields.get(name)? {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            })
        });
        words.collect::<Vec<_>>().join(" ")
    }

    /// How many of its cause are taken in a [`PERIOD`].
    fn most_of_cause(&self) -> u64 {
        let is_own =
            self.fields.get("event").and_then(Value::as_str).is_some_and(|event| OWN.contains(&event));
        if is_own || self.fields.contains_key("user") { MOST_OF_A_USER } else { MOST_OF_A_CAUSE }
    }
}

impl State {
    /// Counts an event, and returns whether there is room for more of its cause. Those that have no cause are the router's own.
    fn admits_cause(&mut self, event: &Event) -> bool {
        let cause = (event.level, event.cause());
        if cause.1.is_empty() {
            return true;
        }
        if self.causes.len() >= MOST_CAUSES && !self.causes.contains_key(&cause) {
            return false;
        }
        let (count, most) = self.causes.entry(cause).or_insert((0, event.most_of_cause()));
        *count += 1;
        *count <= *most
    }

    fn put(&mut self, event: Event) {
        // The journal's reader may be gone; standard error leads to the journal too.
        if self.journal.as_ref().is_none_or(|journal| journal.send(&event).is_err()) {
            messages::print(&self.line(&event));
        }
        self.ring.put(event);
    }

    /// An event for people, as standard error has it.
    fn line(&self, event: &Event) -> String {
        let (word, colour) = match event.level {
            Level::Error => ("error: ", "\x1b[1;31m"),
            Level::Warn => ("warning: ", "\x1b[1;33m"),
            Level::Info => ("", ""),
            Level::Debug => ("debug: ", ""),
        };
        let (colour, plain) =
            if self.has_colours && !colour.is_empty() { (colour, "\x1b[0m") } else { ("", "") };
        format!("brickway: {colour}{word}{plain}{}", event.text)
    }
}

/// What `tracing` hands events to.
struct Collector(Arc<Log>);

impl Collector {
    fn is_ours(metadata: &Metadata<'_>) -> bool {
        let of = metadata.target().split("::").next().unwrap_or_default();
        metadata.is_event() && CRATES.contains(&of)
    }
}

impl Subscriber for Collector {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if Self::is_ours(metadata) { Interest::sometimes() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        Self::is_ours(metadata) && level_of(*metadata.level()) <= self.0.level()
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(match self.0.level() {
            Level::Error => LevelFilter::ERROR,
            Level::Warn => LevelFilter::WARN,
            Level::Info => LevelFilter::INFO,
            Level::Debug => LevelFilter::DEBUG,
        })
    }

    fn event(&self, event: &Reported<'_>) {
        let mut said = Said::default();
        event.record(&mut said);
        let level = level_of(*event.metadata().level());
        self.0.take(Event { time: SystemTime::now(), level, text: said.text, fields: said.fields });
    }

    // The router has no spans.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn level_of(level: tracing::Level) -> Level {
    match level {
        tracing::Level::ERROR => Level::Error,
        tracing::Level::WARN => Level::Warn,
        tracing::Level::INFO => Level::Info,
        _ => Level::Debug,
    }
}

/// What an event says.
#[derive(Default)]
struct Said {
    text: String,
    fields: Map<String, Value>,
}

impl Said {
    fn put(&mut self, field: &Field, value: Value) {
        self.fields.insert(field.name().to_owned(), value);
    }
}

impl Visit for Said {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, tame(value).into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = write!(text, "{value:?}");
        match field.name() {
            "message" => self.text = tame(&text),
            _ => self.put(field, tame(&text).into()),
        }
    }
}

/// A text that is not too long and does nothing to terminals: some of it comes from clients and other nodes.
fn tame(text: &str) -> String {
    let mut end = text.len().min(LONGEST);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    // A line behind the first could look like another event.
    let tamed = printable_lines(&text[..end]).replace('\n', "\n  ");
    if end < text.len() { tamed + "..." } else { tamed }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log at this level, and what `report` does while it is the log of this thread.
    pub(super) fn log_of(level: Level, report: impl FnOnce()) -> Arc<Log> {
        let log = Arc::new(Log::new(level, None, false));
        testbed::while_heard(Collector(log.clone()), report);
        log
    }

    fn event(level: Level, text: &str) -> Event {
        Event { time: SystemTime::now(), level, text: text.to_owned(), fields: Map::new() }
    }

    fn texts(log: &Log) -> Vec<String> {
        log.from(0, usize::MAX).iter().map(|(_, event)| event.text.clone()).collect()
    }

    #[test]
    fn an_event_has_its_level_its_text_and_its_fields() {
        let log = log_of(Level::Info, || {
            let port = "eth1";
            tracing::warn!(event = "link", port, table = 254_u32, mac = %"02:00", "{port}: link down");
            tracing::debug!("too much");
            tracing::error!(target: "h2::client", "of another crate");
        });
        let events = log.from(0, 10);
        assert_eq!((events.len(), events[0].0), (1, 0));
        let event = &events[0].1;
        assert_eq!((event.level, event.text.as_str()), (Level::Warn, "eth1: link down"));
        let fields = serde_json::json!({"event": "link", "port": "eth1", "table": 254, "mac": "02:00"});
        assert_eq!(Value::Object(event.fields.clone()), fields);
    }

    #[test]
    fn the_level_changes_while_the_router_runs() {
        let log = Arc::new(Log::new(Level::Info, None, false));
        testbed::while_heard(Collector(log.clone()), || {
            for level in [Level::Debug, Level::Error] {
                log.set_level(level);
                tracing::debug!("detail");
                tracing::info!("news");
                tracing::error!("fault");
            }
        });
        assert_eq!(texts(&log), ["detail", "news", "fault", "fault"]);
    }

    #[test]
    fn of_a_flood_ten_come_through_and_the_rest_is_counted() {
        let log = log_of(Level::Info, || {
            for _ in 0..35 {
                tracing::info!("flaps");
            }
            tracing::info!("another");
        });
        lock(&log.state).period_ends = Instant::now();
        log.end_period_if_due();
        let texts = texts(&log);
        // A second may have begun amid the flood.
        let flaps = texts.iter().filter(|text| *text == "flaps").count() as u64;
        let more = texts
            .iter()
            .filter_map(|text| text.strip_prefix("flaps (")?.strip_suffix(" more)")?.parse::<u64>().ok());
        assert_eq!(flaps + more.sum::<u64>(), 35, "{texts:?}");
        assert!(flaps <= 20 && texts.contains(&"another".to_owned()), "{texts:?}");
    }

    #[test]
    fn the_oldest_events_are_overwritten() {
        let mut ring = Ring::default();
        for number in 0..MOST + 5 {
            ring.put(event(Level::Info, &number.to_string()));
        }
        let events = ring.from(0, 2);
        assert_eq!((events[0].0, events[0].1.text.as_str(), events.len()), (5, "5", 2));
        assert_eq!(ring.end(), MOST as u64 + 5);
        assert_eq!(ring.from(ring.end(), 2).len(), 0);
    }

    #[test]
    fn a_flood_of_different_texts_is_cut_and_does_not_take_the_place_of_what_people_did() {
        let log = log_of(Level::Info, || {
            tracing::info!(event = "set", user = "root", "set by root");
            for number in 0..3 * MOST {
                tracing::info!(event = "neighbour", "address {number}");
                tracing::warn!(event = "set", user = "nobody", "set, by nobody {number}");
            }
            tracing::info!("of no kind");
        });
        lock(&log.state).period_ends = Instant::now();
        log.end_period_if_due();
        let all = texts(&log);
        assert!(all.contains(&"set by root".to_owned()) && all.contains(&"of no kind".to_owned()), "{all:?}");
        let of = |begin: &str| all.iter().filter(|text| text.starts_with(begin)).count();
        // Seconds may have begun amid the flood.
        assert!(of("address ") < MOST && of("set, by nobody") < MOST, "{}", all.len());
        assert!(of("neighbour: ") > 0 && of("set nobody: ") > 0, "{all:?}");
        let mut ring = Ring::default();
        let deed = |text: &str| {
            let fields = Map::from_iter([("user".to_owned(), "root".into())]);
            Event { fields, ..event(Level::Info, text) }
        };
        ring.put(deed("deed"));
        (0..2 * MOST).for_each(|number| ring.put(event(Level::Info, &number.to_string())));
        assert_eq!(ring.from(0, 1)[0].1.text, "deed");
        assert_eq!(ring.from(0, 2)[1].0, MOST as u64 + 1);
    }

    #[test]
    fn a_cause_makes_a_few_lines_a_second_and_takes_no_place_of_others() {
        let log = log_of(Level::Info, || {
            for number in 0..200 {
                tracing::warn!(event = "neighbour", port = "eth1", "neighbour {number} on eth1");
            }
            tracing::warn!(event = "neighbour", port = "eth2", "neighbour on eth2");
        });
        let of = |begin: &str| texts(&log).iter().filter(|text| text.starts_with(begin)).count();
        // Seconds may have begun amid the flood.
        assert!((5..40).contains(&of("neighbour ")) && of("neighbour on eth2") == 1, "{:?}", texts(&log));
        // That there was more takes no place of others either.
        lock(&log.state).period_ends = Instant::now();
        log.end_period_if_due();
        let all = log.from(0, usize::MAX);
        let (_, more) = all.iter().find(|(_, event)| event.text.contains("more events in a second")).unwrap();
        assert_eq!(more.cause(), "more");
        let mut ring = Ring::default();
        ring.put(event(Level::Info, "another"));
        let fields =
            Map::from_iter([("event".to_owned(), "neighbour".into()), ("port".to_owned(), "eth1".into())]);
        for number in 0..3 * MOST {
            ring.put(Event { fields: fields.clone(), ..event(Level::Warn, &number.to_string()) });
        }
        let kept = ring.from(0, usize::MAX);
        assert_eq!((kept.len(), kept[0].1.text.as_str()), (1 + MOST_KEPT_OF_A_CAUSE, "another"));
        assert_eq!(kept.last().map(|(number, _)| *number), Some(3 * MOST as u64));
    }

    #[test]
    fn texts_of_others_are_short_and_do_nothing_to_terminals() {
        assert_eq!(tame("a\x1b[31m\nb\u{202e}"), "a\u{fffd}[31m\n  b\u{fffd}");
        let long = tame(&"ä".repeat(LONGEST));
        assert!(long.ends_with("ä...") && long.len() <= LONGEST + 3, "{}", long.len());
    }

    #[test]
    fn people_read_the_level_of_what_is_more_than_news() {
        let line = |has_colours, level| {
            lock(&Log::new(Level::Info, None, has_colours).state).line(&event(level, "x"))
        };
        let expected = ["brickway: error: x", "brickway: warning: x", "brickway: x", "brickway: debug: x"];
        assert_eq!(Level::ALL.map(|level| line(false, level)), expected);
        assert_eq!(line(true, Level::Warn), "brickway: \x1b[1;33mwarning: \x1b[0mx");
    }
}
