//! =c
//! ICMPPingSource(SRC, DST [, I<keywords> INTERVAL, IDENTIFIER, LIMIT, DATA, ACTIVE, STOP, VERBOSE])
//!
//! =s icmp
//! sends pings
//!
//! =d
//! Emits an ICMP echo request from SRC to DST every INTERVAL (a second by default), the first after one INTERVAL.
//! Where the output is pull, every pull gives one. Sequence number and IP identification count up from 1 and
//! leave 0 out; the time to live is 200.
//!
//! Replies may be given to input 0. It then prints a line for each and keeps statistics, as ping(8) does. A reply
//! counts when its identifier is ours; the round-trip time is from the request's making to the reply's
//! timestamp, or to now when it has none.
//!
//! =item IDENTIFIER
//! ICMP identifier, 0 by default; sent in network byte order.
//!
//! =item LIMIT
//! how many requests to send; negative, as by default, is not a limit.
//!
//! =item DATA
//! data of the requests, none by default.
//!
//! =item ACTIVE
//! whether anything is sent; true by default.
//!
//! =item STOP
//! whether the router is stopped one INTERVAL after the last request of LIMIT; false by default.
//!
//! =item VERBOSE
//! whether a line is printed for each reply; true by default.
//!
//! =back
//!
//! With several workers one of them sends; the counts are common to all. MIRROR is not supported, and no summary
//! is printed at the end: read it.
//!
//! Drop reasons: not a reply to these pings.
//!
//! =e
//!   ping :: ICMPPingSource(10.0.0.1, 10.0.0.2, INTERVAL 100ms) -> EtherEncap(...) -> ...
//!   ... -> IPClassifier(icmp type echo-reply) -> ping;
//!
//! =a ICMPPingEncap, ICMPPingResponder

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use graph::arguments::{Interval, Raw};
use graph::lang::unquote_bytes;
use graph::{Class, Combine, ConfigError, Context, Element, FromArgument, Get, Handler, Put, Setup};
use packet::wire::IpProtocol;
use packet::wire::icmp::{Icmp, IcmpType};
use packet::wire::ipv4::Ipv4;
use packet::{Batch, Packet};

use super::icmp_ping_encap::Request;

pub(crate) static CLASS: Class = Class {
    name: "ICMPPingSource",
    ports: "0-1/1",
    processing: "h/a",
    handlers: HANDLERS,
    manual: graph::manual!("icmp_ping_source.rs"),
    make,
    ..Class::DEFAULT
};

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let arguments = &mut setup.arguments;
    let source = arguments.required("SRC")?;
    let destination = arguments.required("DST")?;
    let Interval { ns: interval_ns } = arguments.keyword_or("INTERVAL", Interval { ns: 1_000_000_000 })?;
    let identifier = arguments.keyword_or("IDENTIFIER", 0)?;
    let limit = arguments.keyword_or("LIMIT", -1i64)?;
    let data = arguments.keyword_or("DATA", Raw(String::new()))?;
    let active = arguments.keyword_or("ACTIVE", true)?;
    let stop = arguments.keyword_or("STOP", false)?;
    let verbose = arguments.keyword_or("VERBOSE", true)?;
    arguments.finish()?;
    let data = unquote_bytes(&data.0);
    if data.len() > MOST_DATA {
        return Err(format!("DATA: expected at most {MOST_DATA} bytes, got {}", data.len()).into());
    }
    let has_input = setup.inputs() > 0;
    let counts = setup.shared_by_copies(|| Ok::<_, ConfigError>(Counts::new(has_input)))?;
    Ok(Box::new(ICMPPingSource {
        declaration: format!("{} :: ICMPPingSource", setup.name()),
        request: Request::echo(source, destination, identifier, 200),
        interval_ns,
        limit: u64::try_from(limit).ok(),
        data,
        active,
        stop,
        verbose,
        is_push: !setup.output_is_pull(0),
        sends: !counts.is_taken.swap(true, Relaxed),
        has_input,
        is_scheduled: false,
        next_ns: 0,
        counts,
    }))
}

/// Bytes of data that fit any frame beside the headers.
const MOST_DATA: usize = 1472;

/// Marks the time of a request that was answered.
const ANSWERED: u64 = 1 << 63;

/// What all copies count together.
struct Counts {
    /// Whether a copy sends already.
    is_taken: AtomicBool,
    sent: AtomicU64,
    received: AtomicU64,
    duplicates: AtomicU64,
    min_us: AtomicU64,
    max_us: AtomicU64,
    sum_us: AtomicU64,
    sum_of_squares: AtomicU64,
    /// When the request of each sequence number was sent, in nanoseconds since 1970; 0 for never.
    times: Box<[AtomicU64]>,
}

impl Counts {
    fn new(with_times: bool) -> Self {
        let count = || AtomicU64::new(0);
        Self {
            is_taken: AtomicBool::new(false),
            sent: count(),
            received: count(),
            duplicates: count(),
            min_us: AtomicU64::new(u64::MAX),
            max_us: count(),
            sum_us: count(),
            sum_of_squares: count(),
            times: (0..if with_times { 1 << 16 } else { 0 }).map(|_| count()).collect(),
        }
    }

    fn reset(&self) {
        for count in
            [&self.sent, &self.received, &self.duplicates, &self.max_us, &self.sum_us, &self.sum_of_squares]
                .into_iter()
                .chain(&self.times)
        {
            count.store(0, Relaxed);
        }
        self.min_us.store(u64::MAX, Relaxed);
    }

    /// A reply came; the round-trip time in microseconds, or `None` when there was no such request.
    fn answer(&self, sequence: u16, at_ns: u64) -> Option<u64> {
        let sent = self.times.get(usize::from(sequence))?.fetch_or(ANSWERED, Relaxed);
        if sent & !ANSWERED == 0 {
            return None;
        }
        if sent & ANSWERED != 0 {
            self.duplicates.fetch_add(1, Relaxed);
        }
        let us = at_ns.saturating_sub(sent & !ANSWERED) / 1000;
        self.received.fetch_add(1, Relaxed);
        self.min_us.fetch_min(us, Relaxed);
        self.max_us.fetch_max(us, Relaxed);
        self.sum_us.fetch_add(us, Relaxed);
        self.sum_of_squares.fetch_add(us.saturating_mul(us), Relaxed);
        Some(us)
    }

    fn mean_us(&self) -> u64 {
        self.sum_us.load(Relaxed) / self.received.load(Relaxed).max(1)
    }

    fn min_us(&self) -> u64 {
        if self.received.load(Relaxed) == 0 { 0 } else { self.min_us.load(Relaxed) }
    }

    fn summary(&self) -> String {
        let (sent, received) = (self.sent.load(Relaxed), self.received.load(Relaxed));
        let duplicates = self.duplicates.load(Relaxed);
        let first_replies = received.saturating_sub(duplicates);
        let mut text = format!("{sent} packets transmitted, {first_replies} received");
        if duplicates > 0 {
            text.push_str(&format!(", +{duplicates} duplicates"));
        }
        if let Some(loss) = (sent.saturating_sub(first_replies) * 100).checked_div(sent) {
            text.push_str(&format!(", {loss}% packet loss\n"));
        }
        if let Some(mean_of_squares) = self.sum_of_squares.load(Relaxed).checked_div(received) {
            let mean = self.mean_us();
            let deviation = mean_of_squares.saturating_sub(mean * mean).isqrt();
            let [min, mean, max, deviation] =
                [self.min_us(), mean, self.max_us.load(Relaxed), deviation].map(milliseconds);
            text.push_str(&format!("rtt min/avg/max/mdev = {min}/{mean}/{max}/{deviation}\n"));
        }
        text
    }
}

fn milliseconds(us: u64) -> String {
    format!("{}.{:03}", us / 1000, us % 1000)
}

/// Microseconds as seconds, without zeros at the end, as Click prints them.
fn seconds(us: u64) -> String {
    let text = format!("{}.{:06}", us / 1_000_000, us % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

const HANDLERS: &[Handler] = &[
    Handler::read_write(
        "active",
        Combine::First,
        "The ACTIVE argument.",
        &Get(|e: &mut ICMPPingSource| e.active.to_string()),
        &Put(|e: &mut ICMPPingSource, cx, value| e.set_active(cx, value)),
    ),
    Handler::read(
        "count",
        Combine::First,
        "Requests sent so far.",
        &Get(|e: &mut ICMPPingSource| e.counts.sent.load(Relaxed).to_string()),
    ),
    Handler::write(
        "limit",
        "Sets the LIMIT argument.",
        &Put(|e: &mut ICMPPingSource, cx, value| {
            e.limit = u64::try_from(read::<i64>("limit", value)?).ok();
            e.resume(cx, e.interval_ns);
            Ok(())
        }),
    ),
    Handler::write(
        "interval",
        "Sets the INTERVAL argument.",
        &Put(|e: &mut ICMPPingSource, _, value| {
            e.interval_ns = read::<Interval>("interval", value)?.ns;
            Ok(())
        }),
    ),
    Handler::write(
        "reset_counts",
        "Sets all counts to zero.",
        &Put(|e: &mut ICMPPingSource, cx, _| {
            e.counts.reset();
            e.resume(cx, e.interval_ns);
            Ok(())
        }),
    ),
    Handler::read_write(
        "src",
        Combine::First,
        "The SRC argument.",
        &Get(|e: &mut ICMPPingSource| e.request.source.to_string()),
        &Put(|e: &mut ICMPPingSource, _, value| e.request.set_source(value)),
    ),
    Handler::read_write(
        "dst",
        Combine::First,
        "The DST argument.",
        &Get(|e: &mut ICMPPingSource| e.request.destination.to_string()),
        &Put(|e: &mut ICMPPingSource, _, value| e.request.set_destination(value)),
    ),
    Handler::read(
        "summary",
        Combine::First,
        "What was sent, received and lost, and the round-trip times. Only with an input.",
        &Get(|e: &mut ICMPPingSource| e.counts.summary()),
    ),
    Handler::read(
        "rtt_min",
        Combine::First,
        "The shortest round-trip time in seconds, 0 without any. Only with an input.",
        &Get(|e: &mut ICMPPingSource| seconds(e.counts.min_us())),
    ),
    Handler::read(
        "rtt_avg",
        Combine::First,
        "The mean round-trip time. Only with an input.",
        &Get(|e: &mut ICMPPingSource| seconds(e.counts.mean_us())),
    ),
    Handler::read(
        "rtt_max",
        Combine::First,
        "The longest round-trip time. Only with an input.",
        &Get(|e: &mut ICMPPingSource| seconds(e.counts.max_us.load(Relaxed))),
    ),
];

/// Reads what was written to the handler `name`.
fn read<T: FromArgument>(name: &str, text: &str) -> Result<T, String> {
    T::from_argument(text.trim()).ok_or_else(|| format!("{name}: expected {}, got '{text}'", T::EXPECTED))
}

struct ICMPPingSource {
    declaration: String,
    request: Request,
    interval_ns: u64,
    limit: Option<u64>,
    data: Vec<u8>,
    active: bool,
    stop: bool,
    verbose: bool,
    is_push: bool,
    /// Whether it is this copy that sends.
    sends: bool,
    has_input: bool,
    is_scheduled: bool,
    next_ns: u64,
    counts: Arc<Counts>,
}

impl ICMPPingSource {
    fn is_done(&self) -> bool {
        self.limit.is_some_and(|limit| self.counts.sent.load(Relaxed) >= limit)
    }

    fn schedule(&mut self, cx: &mut Context, at_ns: u64) {
        if self.is_push && self.sends && self.active {
            // Never now: a timer that is due at once would run forever in one turn.
            self.next_ns = at_ns.max(cx.now_ns() + 1);
            self.is_scheduled = true;
            cx.set_timer(0, self.next_ns);
        }
    }

    /// The next request; `None` when there is no frame for it.
    fn make(&mut self, cx: &mut Context) -> Option<Packet> {
        let mut packet = cx.allocate()?;
        let count = self.counts.sent.load(Relaxed);
        let sequence = (count % 0xffff) as u16 + 1;
        if !packet.set_data(&self.data) || self.request.encapsulate(&mut packet, sequence).is_none() {
            // The data was measured when the element was made.
            cx.pool().free_packet(packet);
            return None;
        }
        self.counts.sent.fetch_add(1, Relaxed);
        packet.set_timestamp_ns(cx.now_ns());
        if let Some(time) = self.counts.times.get(usize::from(sequence)) {
            time.store(cx.now_ns() & !ANSWERED, Relaxed);
        }
        Some(packet)
    }

    /// Takes a reply; false when it is none of ours.
    fn receive(&self, cx: &Context, packet: &Packet) -> Option<()> {
        let header = Ipv4::new_unchecked(packet.network()?.first_chunk::<20>()?);
        let message = Icmp::new_checked(packet.transport()?).ok()?;
        if header.protocol() != IpProtocol::ICMP
            || message.icmp_type() != IcmpType::ECHO_REPLY
            || message.identifier() != self.request.identifier
        {
            return None;
        }
        let sequence = message.sequence();
        let at_ns = if packet.timestamp_ns() == 0 { cx.now_ns() } else { packet.timestamp_ns() };
        let us = self.counts.answer(sequence, at_ns)?;
        if self.verbose {
            cx.message(&format!(
                "{}: {} bytes from {}: icmp_seq={sequence} ttl={} time={} ms",
                self.declaration,
                message.bytes().len() - 8,
                header.source(),
                header.ttl(),
                milliseconds(us)
            ));
        }
        Some(())
    }

    /// Writes the handler `active`.
    fn set_active(&mut self, cx: &mut Context, value: &str) -> Result<(), String> {
        self.active = read("active", value)?;
        if !self.active {
            cx.clear_timer(0);
            self.is_scheduled = false;
        }
        self.resume(cx, 0);
        Ok(())
    }

    /// Goes on after `wait_ns` if it has stopped and there is more to send.
    fn resume(&mut self, cx: &mut Context, wait_ns: u64) {
        if !self.is_scheduled && !self.is_done() {
            self.schedule(cx, cx.now_ns() + wait_ns);
        }
    }
}

impl Element for ICMPPingSource {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        if self.limit != Some(0) {
            let first = cx.now_ns() + self.interval_ns;
            self.schedule(cx, first);
        }
        Ok(())
    }

    fn timer(&mut self, cx: &mut Context, _key: u32) {
        self.is_scheduled = false;
        if !self.active {
            return;
        }
        if self.is_done() {
            if self.stop {
                cx.stop();
            }
            return;
        }
        if let Some(packet) = self.make(cx) {
            cx.emit(0, packet);
        }
        self.schedule(cx, self.next_ns + self.interval_ns);
    }

    fn pull(&mut self, cx: &mut Context, _output: usize, batch: &mut Batch, max: usize) {
        while self.active && batch.len() < max {
            if self.is_done() {
                if std::mem::take(&mut self.stop) {
                    cx.stop();
                }
                return;
            }
            match self.make(cx) {
                Some(packet) => batch.push(packet),
                None => return,
            }
        }
    }

    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        for packet in batch.drain() {
            match self.receive(cx, &packet) {
                Some(()) => cx.pool().free_packet(packet),
                None => cx.drop(packet, "not a reply to these pings"),
            }
        }
    }

    fn has_handler(&self, name: &str) -> bool {
        self.has_input || !matches!(name, "summary" | "rtt_min" | "rtt_avg" | "rtt_max")
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::{Bench, configure};
    use packet::checksum;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn one_every_interval() {
        let text = "ICMPPingSource(1.0.0.1, 2.0.0.2, INTERVAL 100ms, IDENTIFIER 7, LIMIT 3, DATA \"abc\")";
        let mut bench = Bench::element(&crate::registry(), text, 0, 1);
        bench.advance_ns(SECOND / 10 - 1);
        assert_eq!(bench.taken("out0").len(), 0);
        bench.advance_ns(1);
        let packets = bench.taken_packets("out0");
        assert_eq!(packets.len(), 1);
        let data = packets[0].data();
        assert_eq!(data[..10], [0x45, 0, 0, 31, 0, 1, 0, 0, 200, 1]);
        assert_eq!(data[12..22], [1, 0, 0, 1, 2, 0, 0, 2, 8, 0]);
        assert_eq!(data[24..], [0, 7, 0, 1, b'a', b'b', b'c']);
        assert!(checksum::ipv4_header_valid(&data[..20]) && checksum::is_valid(&data[20..]));
        assert_eq!(packets[0].annotations().destination_ip(), 0x0200_0002);
        bench.advance_ns(5 * SECOND);
        assert_eq!(bench.taken("out0").len(), 2);
        assert_eq!(bench.read("e.count"), "3");
        bench.write("e.limit", "4").unwrap();
        bench.advance_ns(SECOND);
        assert_eq!(bench.taken("out0").len(), 1);
    }

    #[test]
    fn replies_and_statistics() {
        let config = "e :: ICMPPingSource(1.0.0.1, 2.0.0.2, INTERVAL 1) -> out :: TestOutput;
            in :: TestInput -> MarkIPHeader -> ICMPPingResponder -> delayed :: TestOutput;
            back :: TestInput -> MarkIPHeader -> e;";
        let mut bench = Bench::new(&crate::registry(), config);
        assert_eq!(bench.read("e.rtt_min"), "0");
        // Each reply comes so long after its request, and the requests a second after each other.
        let mut passed_ms = 0;
        for delay_ms in [10, 20] {
            bench.advance_ns(SECOND - passed_ms * 1_000_000);
            passed_ms = delay_ms;
            let request = bench.taken("out").pop().unwrap();
            bench.push("in", &[&request]);
            let reply = bench.taken("delayed").pop().unwrap();
            bench.advance_ns(delay_ms * 1_000_000);
            bench.push("back", &[&reply]);
        }
        let messages = bench.messages();
        assert_eq!(
            messages,
            [
                "e :: ICMPPingSource: 0 bytes from 2.0.0.2: icmp_seq=1 ttl=255 time=10.000 ms",
                "e :: ICMPPingSource: 0 bytes from 2.0.0.2: icmp_seq=2 ttl=255 time=20.000 ms"
            ]
        );
        bench.advance_ns(SECOND);
        assert_eq!(
            bench.read("e.summary"),
            "3 packets transmitted, 2 received, 33% packet loss\n\
             rtt min/avg/max/mdev = 10.000/15.000/20.000/5.000\n"
        );
        assert_eq!(
            [bench.read("e.rtt_min"), bench.read("e.rtt_avg"), bench.read("e.rtt_max")],
            ["0.01", "0.015", "0.02"]
        );
        bench.write("e.reset_counts", "").unwrap();
        assert_eq!(bench.read("e.count"), "0");
    }

    #[test]
    fn doublets_and_strangers() {
        let config =
            "e :: ICMPPingSource(1.0.0.1, 2.0.0.2, VERBOSE false, IDENTIFIER 9) -> out :: TestOutput;
            in :: TestInput -> MarkIPHeader -> ICMPPingResponder -> e;
            back :: TestInput -> MarkIPHeader -> e;";
        let config = config.replace("ICMPPingResponder -> e", "ICMPPingResponder -> replies :: TestOutput");
        let mut bench = Bench::new(&crate::registry(), &config);
        bench.advance_ns(SECOND);
        let request = bench.taken("out").pop().unwrap();
        bench.push("in", &[&request]);
        let reply = bench.taken("replies").pop().unwrap();
        let mut other_identifier = reply.clone();
        other_identifier[25] = 8;
        let mut never_sent = reply.clone();
        never_sent[27] = 77;
        bench.push("back", &[&reply, &reply, &request, &other_identifier, &never_sent, b"x"]);
        assert_eq!(bench.drops("e", "not a reply to these pings"), 4);
        assert!(
            bench
                .read("e.summary")
                .starts_with("1 packets transmitted, 1 received, +1 duplicates, 0% packet loss\n")
        );
        assert_eq!(bench.messages().len(), 0);
    }

    #[test]
    fn pulled_and_switched() {
        // Where the output is pull, nothing is sent unless somebody pulls, and then at once.
        for (active, count) in [(false, 0), (true, 5)] {
            let config = format!(
                "e :: ICMPPingSource(1.0.0.1, 2.0.0.2, LIMIT 5) -> Unqueue(ACTIVE {active}) -> out :: TestOutput;"
            );
            let mut bench = Bench::new(&crate::registry(), &config);
            bench.run(20);
            assert_eq!(bench.taken("out").len(), count);
            bench.advance_ns(10 * SECOND);
            assert_eq!(bench.taken("out").len(), 0);
        }
        let text = "ICMPPingSource(1.0.0.1, 2.0.0.2, ACTIVE false, INTERVAL 0)";
        let mut bench = Bench::element(&crate::registry(), text, 0, 1);
        bench.advance_ns(SECOND);
        assert_eq!(bench.read("e.count"), "0");
        bench.write("e.interval", "1").unwrap();
        bench.write("e.active", "true").unwrap();
        bench.advance_ns(SECOND);
        let count = bench.taken("out0").len();
        assert!((1..=2).contains(&count), "{count} requests");
        bench.write("e.active", "false").unwrap();
        bench.advance_ns(SECOND * 5);
        assert_eq!(bench.taken("out0").len(), 0);
    }

    #[test]
    fn configuration_mistakes() {
        assert!(configure(&CLASS, "1.0.0.1").is_err());
        assert!(configure(&CLASS, "1.0.0.1, 2.0.0.2, MIRROR true").is_err());
        assert!(configure(&CLASS, "1.0.0.1, 2.0.0.2, INTERVAL -1").is_err());
    }
}
