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
//! come through; then one says how many more there were.

mod follow;
mod journal;
pub(crate) mod monitor;

use std::collections::VecDeque;
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

pub(crate) use follow::answer;
use journal::Journal;

/// Events that the ring keeps.
const MOST: usize = 8_192;

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
        if state.alike.admits(&(event.level, event.text.clone())) {
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
        for ((level, text), more) in state.alike.end() {
            let text = format!("{text} ({more} more)");
            state.put(Event { time: SystemTime::now(), level, text, fields: Map::new() });
        }
    }

    /// Returns events from the one of this number on, as many as asked for, and the number of the first of them.
    fn from(&self, number: u64, most: usize) -> (u64, Vec<Arc<Event>>) {
        lock(&self.state).ring.from(number, most)
    }

    /// Returns the number of the next event.
    fn end(&self) -> u64 {
        lock(&self.state).ring.end()
    }
}

/// The last events, each with the number that it came as.
#[derive(Default)]
struct Ring {
    events: VecDeque<Arc<Event>>,
    /// The number of the oldest.
    first: u64,
}

impl Ring {
    fn put(&mut self, event: Event) {
        if self.events.len() == MOST {
            self.events.pop_front();
            self.first += 1;
        }
        self.events.push_back(Arc::new(event));
    }

    fn from(&self, number: u64, most: usize) -> (u64, Vec<Arc<Event>>) {
        let first = number.max(self.first);
        let skipped = (first - self.first) as usize;
        (first, self.events.iter().skip(skipped).take(most).cloned().collect())
    }

    fn end(&self) -> u64 {
        self.first + self.events.len() as u64
    }
}

impl State {
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
    let tamed: String = text[..end]
        .chars()
        .map(|char| if char.is_control() && char != '\n' { char::REPLACEMENT_CHARACTER } else { char })
        .collect();
    // A line behind the first could look like another event.
    let tamed = tamed.replace('\n', "\n  ");
    if end < text.len() { tamed + "..." } else { tamed }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log at this level, and what `report` does while it is the log of this thread.
    pub(super) fn log_of(level: Level, report: impl FnOnce()) -> Arc<Log> {
        let log = Arc::new(Log::new(level, None, false));
        tracing::subscriber::with_default(Collector(log.clone()), report);
        log
    }

    fn event(level: Level, text: &str) -> Event {
        Event { time: SystemTime::now(), level, text: text.to_owned(), fields: Map::new() }
    }

    fn texts(log: &Log) -> Vec<String> {
        log.from(0, usize::MAX).1.iter().map(|event| event.text.clone()).collect()
    }

    #[test]
    fn an_event_has_its_level_its_text_and_its_fields() {
        let log = log_of(Level::Info, || {
            let port = "eth1";
            tracing::warn!(event = "link", port, table = 254_u32, mac = %"02:00", "{port}: link down");
            tracing::debug!("too much");
            tracing::error!(target: "h2::client", "of another crate");
        });
        let (first, events) = log.from(0, 10);
        assert_eq!((first, events.len()), (0, 1));
        let event = &events[0];
        assert_eq!((event.level, event.text.as_str()), (Level::Warn, "eth1: link down"));
        let fields = serde_json::json!({"event": "link", "port": "eth1", "table": 254, "mac": "02:00"});
        assert_eq!(Value::Object(event.fields.clone()), fields);
    }

    #[test]
    fn the_level_changes_while_the_router_runs() {
        let log = Arc::new(Log::new(Level::Info, None, false));
        tracing::subscriber::with_default(Collector(log.clone()), || {
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
        let (first, events) = ring.from(0, 2);
        assert_eq!((first, events[0].text.as_str(), events.len()), (5, "5", 2));
        assert_eq!(ring.end(), MOST as u64 + 5);
        assert_eq!(ring.from(ring.end(), 2).1.len(), 0);
    }

    #[test]
    fn texts_of_others_are_short_and_do_nothing_to_terminals() {
        assert_eq!(tame("a\x1b[31m\nb"), "a\u{fffd}[31m\n  b");
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
