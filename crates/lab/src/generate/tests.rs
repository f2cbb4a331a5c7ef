//! Generator and sink together, over cables in memory: what the sink counts against what the cable did.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use clap::Parser;
use packet::{Batch, Pool};
use ports::{ETHERNET, Event, Precision, QueueStats, RxQueue};

use super::stations::{Station, Stations};
use super::trace::tests::{LIMITS, frame, surveyed, written};
use super::traffic::{Kind, Traffic, TrafficOptions};
use super::trial::{Outcome, TrialOptions, run};
use super::values::{FrameSize, Rate};
use super::*;

const PACKETS: u64 = 20_000;
const GENERATOR: u16 = 0x1234;

/// Counts the frames whose link addresses are not as they were sent: the damage that only the FCS would show.
struct AddressWatch {
    inner: Box<dyn RxQueue>,
    addresses: [u8; 12],
    damaged: Arc<AtomicU64>,
}

impl RxQueue for AddressWatch {
    fn receive(&mut self, pool: &mut Pool, batch: &mut Batch, max: usize) -> usize {
        let before = batch.len();
        let count = self.inner.receive(pool, batch, max);
        for packet in &batch.packets()[before..] {
            if packet.data().first_chunk() != Some(&self.addresses) {
                self.damaged.fetch_add(1, Ordering::Relaxed);
            }
        }
        count
    }

    fn due_in_ns(&self) -> Option<u64> {
        self.inner.due_in_ns()
    }

    fn stats(&self) -> QueueStats {
        self.inner.stats()
    }
}

fn imix() -> FrameSize {
    "imix".parse().unwrap()
}

/// A trial over a cable whose sending end has these faults: outcome, what the sender's port counted, and how many
/// frames came with damaged link addresses.
fn over_a_cable(cable: &str, faults: &str, flows: u32, size: FrameSize) -> (Outcome, QueueStats, u64) {
    let sender = Station::open(&format!("memory:{cable}?fault=tx{faults}")).unwrap();
    let receiver = Station::open(&format!("memory:{cable}?end=1")).unwrap();
    let options = TrafficOptions { size, ..TrafficOptions::for_tests(Kind::UDP, flows) };
    let damaged = Arc::new(AtomicU64::new(0));
    let addresses = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    let watch =
        |inner| Box::new(AddressWatch { inner, addresses, damaged: damaged.clone() }) as Box<dyn RxQueue>;
    let mut stations = Stations::new(sender, Some(receiver.wrap_rx(watch)), false, 1_518).unwrap();
    let trial = TrialOptions {
        rate: Rate::Max,
        burst: 32,
        count: Some(PACKETS),
        duration_ns: None,
        catches_up: false,
        settle_ns: 50_000_000,
    };
    let interrupted = AtomicBool::new(false);
    let mut traffic = Traffic::new(&options, GENERATOR);
    let outcome = run(&mut stations, &mut traffic, &trial, &interrupted, &mut |_| {}).unwrap();
    assert_eq!(outcome.sent, PACKETS);
    (outcome, stations.sender().tx_stats(), damaged.load(Ordering::Relaxed))
}

#[test]
fn a_good_cable_is_found_good() {
    for (flows, size) in [(1, FrameSize::Fixed(64)), (100, imix()), (3_000, FrameSize::Range(64, 1_518))] {
        let (outcome, _, _) = over_a_cable("gen-good", "", flows, size);
        let counts = outcome.counts;
        assert_eq!((counts.received, counts.distinct, counts.bytes), (PACKETS, PACKETS, outcome.sent_bytes));
        assert_eq!((counts.reordered, counts.foreign, counts.faults_percent(PACKETS)), (0, 0, 0.0));
    }
}

#[test]
fn packets_that_the_port_did_not_take_are_sent_again_under_their_numbers() {
    // A ring shorter than the burst is full in every round.
    let (outcome, _, _) = over_a_cable("gen-full", "&ring=20", 3, imix());
    let counts = outcome.counts;
    assert_eq!((counts.distinct, counts.bytes, counts.reordered), (PACKETS, outcome.sent_bytes, 0));
    assert_eq!(counts.faults_percent(PACKETS), 0.0);
}

#[test]
fn drops_are_counted_exactly() {
    for seed in 1..4 {
        let (outcome, cable, _) =
            over_a_cable("gen-drop", &format!("&drop=3%&seed={seed}"), 7, FrameSize::Fixed(64));
        assert!(cable.count(Event::FaultDrop) > 100);
        assert_eq!(outcome.lost(), cable.count(Event::FaultDrop));
        assert_eq!(outcome.counts.faults_percent(PACKETS), outcome.lost() as f64 / PACKETS as f64 * 100.0);
        assert_eq!(
            (outcome.counts.reordered, outcome.counts.duplicates, outcome.counts.corrupted),
            (0, 0, 0)
        );
    }
}

#[test]
fn duplicates_are_counted_exactly() {
    for seed in 1..4 {
        let (outcome, cable, _) =
            over_a_cable("gen-double", &format!("&duplicate=3%&seed={seed}"), 7, imix());
        assert!(cable.count(Event::FaultDuplicate) > 100);
        assert_eq!(outcome.counts.duplicates, cable.count(Event::FaultDuplicate));
        assert_eq!((outcome.lost(), outcome.counts.distinct, outcome.counts.reordered), (0, PACKETS, 0));
    }
}

#[test]
fn corruption_is_counted_exactly() {
    for (seed, size) in [(1, FrameSize::Fixed(64)), (2, imix()), (3, FrameSize::Range(64, 200))] {
        let (outcome, cable, addresses) =
            over_a_cable("gen-corrupt", &format!("&corrupt=5%&seed={seed}"), 7, size);
        let injected = cable.count(Event::FaultCorrupt);
        assert!(injected > 100 && addresses < injected);
        assert_eq!(outcome.counts.corrupted, injected - addresses);
        assert_eq!(outcome.counts.received, PACKETS - outcome.counts.corrupted);
        assert_eq!((outcome.lost(), outcome.counts.duplicates, outcome.counts.foreign), (0, 0, 0));
    }
}

#[test]
fn reordering_is_counted_exactly() {
    for seed in 1..4 {
        let (outcome, cable, _) =
            over_a_cable("gen-reorder", &format!("&reorder=3%&seed={seed}"), 1, FrameSize::Fixed(64));
        let injected = cable.count(Event::FaultReorder);
        assert!(injected > 100);
        assert_eq!(outcome.counts.reordered, injected);
        assert_eq!((outcome.lost(), outcome.counts.distinct, outcome.counts.duplicates), (0, PACKETS, 0));
    }
}

#[test]
fn many_faults_at_once_leave_no_packet_unexplained() {
    for seed in 1..4 {
        let faults = format!("&drop=2%&duplicate=2%&corrupt=2%&reorder=2%&seed={seed}");
        let (outcome, cable, _) = over_a_cable("gen-all", &faults, 5, imix());
        let arrived = PACKETS - cable.count(Event::FaultDrop) + cable.count(Event::FaultDuplicate);
        assert_eq!(outcome.counts.received + outcome.counts.corrupted, arrived);
        assert_eq!(outcome.counts.received, outcome.counts.distinct + outcome.counts.duplicates);
        assert_eq!(outcome.counts.foreign, 0);
    }
}

#[derive(Parser)]
struct CommandLine {
    #[command(flatten)]
    arguments: GenerateArguments,
}

/// Runs a command line of `gen`; what it exits with, or why it does not run.
fn command(words: &[&str]) -> Result<ExitCode, String> {
    let words = std::iter::once("gen").chain(words.iter().copied());
    let line = CommandLine::try_parse_from(words).map_err(|error| error.to_string())?;
    check(&line.arguments)?;
    super::run(&line.arguments, &AtomicBool::new(false)).map_err(|error| format!("{error:#}"))
}

#[test]
fn mistakes_have_clear_messages() {
    let cases: &[(&[&str], &str)] = &[
        (&[], "--tx <PORT>"),
        (&["--tx", "memory:a"], "the link address to send to is not known; expected --gateway IP"),
        (&["--tx", "memory:a", "--rx", "memory:a"], "the link address to send to is not known"),
        (&["--tx", "memory:a", "--rx", "none"], "the link address to send to is not known"),
        (&["--tx", "null:", "--rx", "null:b", "--rate", "fast"], "'fast' is not a rate; expected"),
        (&["--tx", "null:", "--rx", "null:b", "--size", "60"], "64 to 9018, FCS counted"),
        (&["--tx", "null:", "--rx", "null:b", "--protocol", "tcp", "--size", "64"], "the smallest is 76"),
        (&["--tx", "null:", "--rx", "null:b", "--count", "0"], "--count 0 sends nothing"),
        (&["--tx", "null:", "--rx", "null:b", "--flows", "0"], "0 is not in 1..=1048576"),
        (&["--tx", "null:", "--rx", "null:b", "--dst", "10.0.0.1/8"], "expected 10.0.0.0/8"),
        (&["--tx", "null:", "--dst", "10.0.0.1", "--dst-file", "x"], "cannot be used with"),
        (&["--tx", "null:", "--gateway", "10.0.0.1"], "--address <IP>"),
        (&["--tx", "null:", "--rx", "null:b", "--dst-mac", "12:34"], "invalid value '12:34'"),
        (&["--tx", "null:", "--rx", "null:b", "--trial", "3"], "--rfc2544"),
        (&["--tx", "null:", "--rx", "none", "--dst-mac", "2:0:0:0:0:2", "--rfc2544"], "--rx cannot be none"),
        (&["--tx", "null:", "--rx", "null:b", "--size", "9000"], "its MTU of 1500 allows 1518"),
        (&["--tx", "null:", "--rx", "null:b", "--dst-file", "/none/x"], "cannot read the table '/none/x'"),
        (
            &["--tx", "null:", "--rx", "null:b", "--dst", "::1", "--src", "10.0.0.1"],
            "--src is IPv4 and --dst is IPv6; expected one family in a run",
        ),
        (
            &["--tx", "null:", "--address", "::1", "--gateway", "10.0.0.1"],
            "--address is IPv6 and --gateway is IPv4; expected",
        ),
        (&["--tx", "null:", "--rx", "null:b", "--dst", "::1", "--size", "64"], "the smallest is 84"),
        (&["--tx", "null:", "--rx", "null:b", "--dst", "::1/8"], "expected ::/8"),
        (&["--tx", "null:", "--rx", "null:b", "--size", "64:7,x"], "'x' has no weight; expected SIZE:WEIGHT"),
        (&["--tx", "null:", "--rx", "null:b", "--rfc2544", "--sizes", "64:7,128:1"], "expected sizes alone"),
        (&["--tx", "null:", "--rx", "pcap:"], "nothing can come back on port `pcap:`"),
        (&["--tx", "null:", "--rx", "null:b", "--replay", "/none/x"], "cannot read `/none/x`: No such file"),
        (&["--tx", "null:", "--rx", "null:b", "--replay", "x", "--flows", "2"], "cannot be used with"),
        (&["--tx", "null:", "--rx", "null:b", "--replay", "x", "--speed", "0"], "expected more than 0"),
        (
            &["--tx", "null:", "--rx", "null:b", "--replay", "x", "--speed", "2", "--rate", "1"],
            "cannot be used with",
        ),
        (&["--tx", "null:", "--rx", "null:b", "--replay", "x", "--loop", "0"], "0 is not in 1.."),
        (&["--tx", "null:", "--rx", "null:b", "--speed", "2"], "--replay <FILE>"),
        (&["--tx", "brickbat:x", "--rx", "null:b"], "there is no driver `brickbat`"),
    ];
    for (words, expected) in cases {
        let error = command(words).unwrap_err();
        assert!(error.contains(expected), "{words:?}: {error}");
    }
}

#[test]
fn exit_codes_tell_loss() {
    let quick = ["--count", "100", "--rate", "max", "--settle", "0.01", "--json"];
    let with = |words: &[&'static str]| command(&[words, &quick].concat()).map(|code| format!("{code:?}"));
    let (success, loss, usage) = (ExitCode::SUCCESS, ExitCode::from(LOSS), ExitCode::from(USAGE));
    let good = with(&["--tx", "memory:gen-exit", "--rx", "memory:gen-exit?end=1"]);
    assert_eq!(good, Ok(format!("{success:?}")));
    assert_eq!(with(&["--tx", "null:", "--rx", "null:b"]), Ok(format!("{loss:?}")));
    assert_eq!(with(&["--tx", "null:", "--rx", "null:b", "--allow-loss", "100"]), Ok(format!("{success:?}")));
    let nowhere = with(&["--tx", "null:", "--rx", "none", "--dst-mac", "2:0:0:0:0:2"]);
    assert_eq!(nowhere, Ok(format!("{success:?}")));
    let few = with(&["--tx", "null:", "--rx", "null:b", "--flows", "2", "--sport", "1"]);
    assert_eq!(few, Ok(format!("{usage:?}")));
}

#[test]
fn both_families_go_through_a_router_that_is_found() {
    for (cable, own, gateway, protocol) in [
        ("gen-family-4", "10.0.0.1", "10.0.0.2", "udp"),
        ("gen-family-6", "2001:db8::1", "2001:db8::2", "udp"),
        ("gen-family-icmp6", "2001:db8::1", "2001:db8::2", "icmp"),
    ] {
        let (tx, rx) = (format!("memory:{cable}"), format!("memory:{cable}?end=1"));
        let words =
            ["--tx", &tx, "--rx", &rx, "--address", own, "--gateway", gateway, "--rx-address", gateway];
        let traffic =
            ["--protocol", protocol, "--count", "1000", "--rate", "max", "--size", "64:2,1518:1", "--json"];
        let code = command(&[&words[..], &traffic].concat()).map(|code| format!("{code:?}"));
        assert_eq!(code, Ok(format!("{:?}", ExitCode::SUCCESS)), "{own}");
    }
}

#[test]
fn destinations_of_a_table_have_its_family() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rib.txt");
    std::fs::write(&path, "2001:db8:1::/48 1\n2001:db8:2::/48 2\n10.0.0.0/8 3\n").unwrap();
    let six = draw(&path, None, 50, 1).unwrap();
    assert!(six.len() == 50 && six.iter().all(IpAddr::is_ipv6), "{six:?}");
    assert_eq!(draw(&path, Some(IpVersion::V6), 50, 1).unwrap(), six);
    assert!(draw(&path, Some(IpVersion::V4), 50, 1).unwrap().iter().all(IpAddr::is_ipv4));
    std::fs::write(&path, "10.0.0.0/8 3\n").unwrap();
    let text = path.to_str().unwrap();
    let words = ["--tx", "null:", "--rx", "null:b", "--dst-file", text, "--src", "2001:db8::1"];
    let error = command(&words).unwrap_err();
    assert!(error.contains("has no IPv6 prefix; expected a PREFIX ORIGIN"), "{error}");
}

#[test]
fn a_throughput_search_finds_a_rate() {
    let words = [
        "--tx",
        "memory:gen-2544",
        "--rx",
        "memory:gen-2544?end=1",
        "--rfc2544",
        "--sizes",
        "64,imix",
        "--trial",
        "0.02",
        "--settle",
        "0.01",
        "--rate",
        "10k",
        "--quiet",
        "--address",
        "10.0.0.1",
        "--gateway",
        "10.0.0.2",
        "--rx-address",
        "10.0.0.2",
        "--allow-loss",
        "100",
    ];
    assert_eq!(format!("{:?}", command(&words)), format!("{:?}", Ok::<_, String>(ExitCode::SUCCESS)));
}

/// A replay of 200 frames of all kinds and of 50 that are too short to be judged, so many times over a cable with these faults: what
/// came of it, and what the sender's port counted.
fn replayed(cable: &str, faults: &str, passes: u64) -> (Outcome, QueueStats) {
    let whole = |time_ns, bytes: Vec<u8>| (time_ns, bytes.len(), bytes);
    let records: Vec<_> = (0..250)
        .map(|number| match number % 5 {
            0 => whole(number * 1_000, vec![number as u8; 60]),
            _ => {
                let kind = Kind::ALL[number as usize % 6];
                whole(number * 1_000, frame(kind, 7, number, 100 + 5 * number as u16))
            }
        })
        .collect();
    let file = written(Precision::Nanoseconds, ETHERNET, &records);
    let sender = Station::open(&format!("memory:{cable}?fault=tx{faults}")).unwrap();
    let receiver = Station::open(&format!("memory:{cable}?end=1")).unwrap();
    let mut stations = Stations::new(sender, Some(receiver), false, 1_518).unwrap();
    let trace = surveyed(file.path(), LIMITS).unwrap();
    assert_eq!((trace.tally.frames, trace.judged), (250, 200));
    let options = ReplayOptions { passes, speed: Some(1.0), source_mac: None, destination_mac: None };
    let mut source = Replay::new(&trace, options, GENERATOR).unwrap();
    let trial = TrialOptions {
        rate: Rate::Max,
        burst: 32,
        count: None,
        duration_ns: None,
        catches_up: true,
        settle_ns: 50_000_000,
    };
    let interrupted = AtomicBool::new(false);
    let outcome = run(&mut stations, &mut source, &trial, &interrupted, &mut |_| {}).unwrap();
    assert_eq!((outcome.sent, outcome.judged), (passes * 250, passes * 200));
    // Not before its time, which is a microsecond for each frame.
    assert!(outcome.sending_ns >= (passes * 250 - 1) * 1_000, "{}", outcome.sending_ns);
    (outcome, stations.sender().tx_stats())
}

#[test]
fn a_trace_over_a_good_cable_comes_back_whole() {
    // A ring shorter than the burst is full in every round.
    for (cable, faults) in [("gen-replay", ""), ("gen-replay-full", "&ring=20")] {
        let (outcome, _) = replayed(cable, faults, 4);
        let counts = outcome.counts;
        assert_eq!((counts.received, counts.distinct, outcome.lost()), (800, 800, 0));
        assert_eq!((counts.reordered, counts.duplicates, counts.corrupted, counts.foreign), (0, 0, 0, 200));
        assert_eq!(outcome.faults_percent(), 0.0);
        assert_eq!(outcome.sent_bytes, counts.bytes + 200 * 64);
        assert!(outcome.latency.min().is_some());
    }
}

#[test]
fn drops_duplicates_and_late_frames_of_a_trace_are_counted() {
    let (outcome, cable) = replayed("gen-replay-bad", "&drop=3%&duplicate=3%", 40);
    let (drops, doubles) = (cable.count(Event::FaultDrop), cable.count(Event::FaultDuplicate));
    let counts = outcome.counts;
    assert!(drops > 100 && doubles > 100);
    assert_eq!(counts.received + counts.foreign, 10_000 - drops + doubles);
    assert_eq!(counts.received, outcome.judged - outcome.lost() + counts.duplicates);
    // Of five frames four are judged.
    assert!(outcome.lost() < drops && counts.duplicates < doubles);
    assert!(outcome.lost() * 10 > drops * 6 && counts.duplicates * 10 > doubles * 6);
    let (outcome, cable) = replayed("gen-replay-late", "&reorder=3%", 40);
    // Those that changed places with a frame of another flow are not late.
    assert!(outcome.counts.reordered <= cable.count(Event::FaultReorder) && outcome.lost() == 0);
}

#[test]
fn a_command_line_replays_a_trace() {
    let bytes = frame(Kind::UDP, 1, 0, 200);
    let file = written(Precision::Microseconds, ETHERNET, &[(1_000, bytes.len(), bytes)]);
    let path = file.path().to_str().unwrap();
    let words = ["--tx", "memory:gen-replay-cli", "--rx", "memory:gen-replay-cli?end=1", "--replay", path];
    let network = ["--address", "2001:db8::1", "--gateway", "2001:db8::2", "--rx-address", "2001:db8::2"];
    for more in [&["--loop", "5", "--json"][..], &["--rate", "10k", "--loop", "20"], &["--speed", "0.5"]] {
        let code = command(&[&words[..], &network, more].concat()).map(|code| format!("{code:?}"));
        assert_eq!(code, Ok(format!("{:?}", ExitCode::SUCCESS)), "{more:?}");
    }
    let nowhere = ["--tx", "null:", "--rx", "null:b", "--replay", path, "--settle", "0.01"];
    assert_eq!(format!("{:?}", command(&nowhere).unwrap()), format!("{:?}", ExitCode::from(LOSS)));
}

#[test]
fn linux_finds_us_and_is_found_by_neighbour_discovery() {
    testbed::in_namespace(|| {
        testbed::veth_pair("left", "right", 1);
        testbed::ip("addr add 2001:db8::1/64 dev right nodad");
        let words = ["--tx", "left", "--protocol", "icmp", "--address", "2001:db8::2", "--settle", "20"];
        let router =
            ["--gateway", "2001:db8::1", "--dst", "2001:db8::1", "--count", "100", "--size", "84-1518"];
        let code = command(&[&words[..], &router].concat()).map(|code| format!("{code:?}"));
        assert_eq!(code, Ok(format!("{:?}", ExitCode::SUCCESS)));
    });
}

#[test]
fn frames_that_the_kernel_makes_are_sent_at_their_rate_and_counted() {
    testbed::in_namespace(|| {
        testbed::veth_pair("left", "right", 1);
        let open = |name| Station::open(name).unwrap();
        let mut stations = Stations::new(open("left"), Some(open("right")), false, 1_518).unwrap();
        let mut kernel = InKernel::open("left", Some("right"), 5, true).unwrap();
        let mut trial = TrialOptions {
            rate: Rate::Packets(20_000.0),
            burst: 32,
            count: Some(1_000),
            duration_ns: None,
            catches_up: true,
            settle_ns: 20_000_000_000,
        };
        let interrupted = AtomicBool::new(false);
        let mut run = |kind, generator, trial: &TrialOptions, interrupted| {
            let options = TrafficOptions { size: imix(), ..TrafficOptions::for_tests(kind, 5) };
            kernel.run(&mut stations, &options, generator, trial, interrupted, &mut |_| {}).unwrap()
        };
        for (generator, kind) in (GENERATOR..).zip(Kind::ALL) {
            let outcome = run(kind, generator, &trial, &interrupted);
            let counts = outcome.counts;
            assert_eq!((outcome.sent, counts.received, counts.bytes), (1_000, 1_000, outcome.sent_bytes));
            // Seven in twelve are short, four have 594 bytes, one has 1,518, FCS counted.
            assert!((300_000..450_000).contains(&counts.bytes), "{}", counts.bytes);
            // No faster than ordered: 50 us each.
            assert!(outcome.sending_ns >= 45_000_000, "{}", outcome.sending_ns);
            assert!(!outcome.is_judged && outcome.latency.min().is_none());
        }
        trial.count = None;
        interrupted.store(true, Ordering::Relaxed);
        let outcome = run(Kind::UDP, GENERATOR, &trial, &interrupted);
        assert_eq!(outcome.counts.lost(outcome.sent), 0);
    });
}
