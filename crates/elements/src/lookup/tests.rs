//! The lookup elements in a graph: all classes, packets, handlers, several workers, table files.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fib::{Linear, NextHopIndex, Table4};
use graph::graph::{GraphOptions, Registry};
use graph::lang::{self, Options, Source};
use graph::router::{Control, Router, RouterOptions};
use graph::setup::Shared;
use graph::testing::{Bench, configure};
use graph::{Class, Context, Element, TaskStatus};
use ipnet::Ipv4Net;
use packet::{Packet, PoolOptions};
use proptest::prelude::*;

use super::CLASSES;
use crate::registry;

/// Destinations of the packets that are looked up, what `lookup` says of each, and the annotation behind it. The
/// routes are those of `ROUTES`.
const EXPECTATIONS: &[(&str, &str, &str)] = &[
    ("18.26.4.24", "0", "18.26.4.24"),
    ("18.26.4.255", "0", "18.26.4.255"),
    ("18.26.4.1", "1", "18.26.4.1"),
    ("18.26.5.0", "2 18.26.4.1", "18.26.4.1"),
    ("18.26.3.255", "2 18.26.4.1", "18.26.4.1"),
    ("10.255.255.255", "3 192.0.2.7", "192.0.2.7"),
    ("10.1.0.0", "1 192.0.2.8", "192.0.2.8"),
    ("10.1.0.1", "1 192.0.2.8", "192.0.2.8"),
    ("10.1.0.2", "3", "10.1.0.2"),
    ("10.1.0.3", "3 192.0.2.7", "192.0.2.7"),
    ("0.0.0.0", "2 18.26.4.1", "18.26.4.1"),
    ("127.255.255.255", "2 18.26.4.1", "18.26.4.1"),
    ("128.0.0.0", "-1", ""),
    ("255.255.255.254", "-1", ""),
    ("255.255.255.255", "0", "255.255.255.255"),
];

const ROUTES: &str = "18.26.4.24/32 0, 18.26.4.255 0, 18.26.4/24 1, 0/1 18.26.4.1 2, 10.9.9.9/8 192.0.2.7 3, \
                      10.1.0.1/31 192.0.2.8 1, 10.1.0.2/32 - 3, 255.255.255.255/255.255.255.255 0";

fn address(text: &str) -> u32 {
    text.parse::<std::net::Ipv4Addr>().unwrap().into()
}

/// A packet to `destination` whose data says so.
fn packet_to(bench: &mut Bench, destination: u32) -> Packet {
    let mut packet = bench.packet(&destination.to_be_bytes());
    packet.annotations_mut().set_destination_ip(destination);
    packet
}

/// Pushes packets to these destinations and returns what came out by each output: destination and annotation.
fn route_packets(bench: &mut Bench, destinations: &[u32], outputs: usize) -> Vec<Vec<(u32, u32)>> {
    let packets = destinations.iter().map(|&destination| packet_to(bench, destination)).collect();
    bench.push_packets("in0", packets);
    let seen = |packet: &Packet| {
        let destination = u32::from_be_bytes(*packet.data().first_chunk().unwrap());
        (destination, packet.annotations().destination_ip())
    };
    (0..outputs)
        .map(|output| bench.taken_packets(&format!("out{output}")).iter().map(seen).collect())
        .collect()
}

#[test]
fn all_classes_route_the_same_way() {
    for class in CLASSES {
        let mut bench = Bench::element(&registry(), &format!("{}({ROUTES})", class.name), 1, 4);
        let destinations: Vec<u32> = EXPECTATIONS.iter().map(|row| address(row.0)).collect();
        let outputs = route_packets(&mut bench, &destinations, 4);
        let mut dropped = 0;
        for (destination, lookup, annotation) in EXPECTATIONS {
            assert_eq!(
                bench.read(&format!("e.lookup {destination}")),
                *lookup,
                "{} {destination}",
                class.name
            );
            match lookup.split(' ').next().unwrap().parse::<usize>() {
                Ok(output) => {
                    let expected = (address(destination), address(annotation));
                    assert!(
                        outputs[output].contains(&expected),
                        "{} {destination}: {outputs:x?}",
                        class.name
                    );
                }
                Err(_) => dropped += 1,
            }
        }
        assert_eq!(bench.drops("e", "no route"), dropped);
        assert_eq!(outputs.iter().map(Vec::len).sum::<usize>() as u64 + dropped, EXPECTATIONS.len() as u64);
        let expected = "0.0.0.0/1\t\t18.26.4.1\t2\n10.0.0.0/8\t\t192.0.2.7\t3\n10.1.0.0/31\t\t192.0.2.8\t1\n\
                        10.1.0.2/32\t\t-\t\t3\n18.26.4.0/24\t\t-\t\t1\n18.26.4.24/32\t\t-\t\t0\n\
                        18.26.4.255/32\t\t-\t\t0\n255.255.255.255/32\t-\t\t0\n";
        assert_eq!(bench.read("e.table"), expected, "{}", class.name);
    }
}

#[test]
fn a_batch_that_goes_one_way_stays_together_also_without_routes() {
    let mut bench = Bench::element(&registry(), "RadixIPLookup(10/8 1, 11/8 192.0.2.1 0)", 1, 2);
    let out = route_packets(&mut bench, &[0x0a00_0001; 100], 2);
    assert_eq!((out[0].len(), out[1].len()), (0, 100));
    let out = route_packets(&mut bench, &[0x0b00_0001; 256], 2);
    assert_eq!(out[0], [(0x0b00_0001, 0xc000_0201); 256]);
    let out = route_packets(&mut bench, &[0x0c00_0001; 31], 2);
    assert_eq!((out[0].len(), out[1].len()), (0, 0));
    assert_eq!(bench.drops("e", "no route"), 31);
    let mut none = Bench::element(&registry(), "RadixIPLookup", 1, 1);
    route_packets(&mut none, &[1], 1);
    assert_eq!(none.drops("e", "no route"), 1);
}

#[test]
fn configuration_mistakes() {
    for class in CLASSES {
        assert!(configure(class, "").is_ok());
        let errors = configure(class, "10/8 0, 10.0.0.0/33 0, 11/8 1, 12/8 192.0.2.1, FOO bar").unwrap_err();
        assert_eq!(errors[0], "unsupported argument 'FOO'; it takes FILE, VIA");
        let errors = configure(class, "10/8 0, 10.0.0.0/33 0, 11/8 1, 12/8 192.0.2.1").unwrap_err();
        assert_eq!(errors.len(), 3);
        assert!(errors[0].starts_with("argument 2 should be 'ADDR/MASK [GATEWAY] OUTPUT': '10.0.0.0/33' is"));
        assert_eq!(
            errors[1],
            "argument 3 should be 'ADDR/MASK [GATEWAY] OUTPUT': there is no output 1; the element has 0 to 0"
        );
        assert!(errors[2].starts_with("argument 4 should be"), "{}", errors[2]);
    }
}

#[test]
fn of_two_routes_for_a_prefix_the_first_counts() {
    let mut bench = Bench::element(&registry(), "LinearIPLookup(10/8 0, 10.1/8 1, 10/8 0)", 1, 2);
    assert_eq!(bench.read("e.lookup 10.1.1.1"), "0");
    assert_eq!(bench.messages(), ["e: argument 2: 10.0.0.0/8 has a route already; '10.1/8 1' is left out"]);
}

#[test]
fn handlers_change_routes() {
    for class in CLASSES.iter().filter(|class| class.name != "StaticIPLookup") {
        let mut bench = Bench::element(&registry(), &format!("{}(0/0 0)", class.name), 1, 3);
        bench.write("e.add", "10.0.0.0/8 192.0.2.1 1").unwrap();
        assert_eq!(bench.read("e.lookup 10.0.0.1"), "1 192.0.2.1");
        assert_eq!(route_packets(&mut bench, &[0x0a00_0001], 3)[1], [(0x0a00_0001, 0xc000_0201)]);
        assert_eq!(
            bench.write("e.add", "10.0.0.0/8 2").unwrap_err(),
            "conflict with existing route '10.0.0.0/8 192.0.2.1 1'"
        );
        bench.write("e.set", "10.0.0.0/8 2").unwrap();
        assert_eq!(bench.read("e.lookup 10.0.0.1"), "2");
        assert_eq!(
            bench.write("e.remove", "10.0.0.0/8 192.0.2.1 1").unwrap_err(),
            "route '10.0.0.0/8 192.0.2.1 1' not found"
        );
        assert_eq!(bench.write("e.remove", "10.0.0.0/9").unwrap_err(), "route '10.0.0.0/9' not found");
        bench.write("e.remove", "10.0.0.0/8 - 2").unwrap();
        assert_eq!(route_packets(&mut bench, &[0x0a00_0001], 3)[0], [(0x0a00_0001, 0x0a00_0001)]);
        bench.write("e.set", "10.0.0.0/8 1").unwrap();
        bench.write("e.remove", "10.0.0.0/8").unwrap();
        assert_eq!(bench.read("e.lookup 10.0.0.1"), "0");
        bench.write("e.flush", "").unwrap();
        assert_eq!(bench.read("e.table"), "");
        assert_eq!(bench.read("e.lookup 10.0.0.1"), "-1");
        bench.write("e.add", "0/0 2").unwrap();
        assert_eq!(bench.read("e.lookup 10.0.0.1"), "2");
        let error = bench.write("e.add", "10/8 7").unwrap_err();
        assert_eq!(
            error,
            "expected 'ADDR/MASK [GATEWAY] OUTPUT', got '10/8 7': there is no output 7; the element has 0 to 2"
        );
    }
}

#[test]
fn static_routes_have_no_handlers_to_change_them() {
    let mut bench = Bench::element(&registry(), "StaticIPLookup(0/0 0)", 1, 1);
    for handler in ["add", "set", "remove", "ctrl", "flush"] {
        assert!(bench.write(&format!("e.{handler}"), "10/8 0").is_err(), "{handler}");
    }
    assert_eq!(bench.read("e.table"), "0.0.0.0/0\t\t-\t\t0\n");
}

#[test]
fn a_transaction_does_all_or_nothing() {
    let mut bench = Bench::element(&registry(), "RadixIPLookup(0/0 0, 10/8 1)", 1, 3);
    let all = "set 10/8 2\n\nremove 0/0   // comment\nadd 10.1/16 192.0.2.1 1\nset 10.1/16 192.0.2.2 1\n";
    bench.write("e.ctrl", all).unwrap();
    let after = bench.read("e.table");
    assert_eq!(after, "10.0.0.0/8\t\t-\t\t2\n10.1.0.0/16\t\t192.0.2.2\t1\n");
    for (lines, expected) in [
        ("set 10/8 0\nremove 10.1/16\nadd 11/8 1\nremove 12/8", "command 4: route '12.0.0.0/8' not found"),
        ("add 11/8 1\nadd 11/8 1", "command 2: conflict with existing route '11.0.0.0/8 - 1'"),
        ("add 11/8 1\ndrop 11/8", "line 2: bad command 'drop'; right would be add, set or remove"),
    ] {
        assert_eq!(bench.write("e.ctrl", lines).unwrap_err(), expected);
        assert_eq!(bench.read("e.table"), after, "{lines}");
        assert_eq!(bench.read("e.lookup 10.1.1.1"), "1 192.0.2.2");
    }
    let error = bench.write("e.ctrl", "add 11/8 1\nadd 12/8").unwrap_err();
    assert!(
        error.starts_with("line 2: expected 'ADDR/MASK [GATEWAY] OUTPUT', got '12/8': there is no"),
        "{error}"
    );
    bench.write("e.ctrl", "\n// nothing\n").unwrap();
    assert_eq!(bench.read("e.table"), after);
}

#[test]
fn the_lookup_handler_wants_an_address() {
    let mut bench = Bench::element(&registry(), "RadixIPLookup(0/0 0)", 1, 1);
    let index = bench.graph().find("e").unwrap();
    let error = bench.graph().read(index, "lookup", "here").unwrap().unwrap_err();
    assert_eq!(error, "expected IP address, got 'here'");
}

/// A file that is gone when the test ends.
struct TestFile(PathBuf);

impl TestFile {
    fn new(name: &str, bytes: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("brickway-lookup-{}-{name}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        Self(path)
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn routes_from_a_file_go_by_way_of_their_origin() {
    let mut rows = String::from("# PREFIX ORIGIN\n");
    let origin = |number: u32| number % 37;
    for number in 0..2000u32 {
        rows.push_str(&format!("20.{}.{}.0/24 {}\n", number / 256, number % 256, origin(number)));
    }
    let via = ["192.0.2.1 1", "192.0.2.2 2", "3"];
    for (name, bytes) in [("plain", rows.clone().into_bytes()), ("gzip", gzip(&rows))] {
        let file = TestFile::new(name, &bytes);
        let text = format!(
            "RadixIPLookup(0/0 0, 20.0.7/24 192.0.2.9 1, FILE {}, VIA \"{}\")",
            file.path().display(),
            via.join(", ")
        );
        let mut bench = Bench::element(&registry(), &text, 1, 4);
        assert_eq!(bench.messages(), [""; 0]);
        assert_eq!(bench.read("e.table").lines().count(), 2001);
        let mut used = [0; 3];
        for number in 0..2000u32 {
            let choice = fib::synthesize::next_hop_of_origin(origin(number), 3).index() - 1;
            used[choice] += 1;
            let expected = match number {
                7 => "1 192.0.2.9",
                _ => ["1 192.0.2.1", "2 192.0.2.2", "3"][choice],
            };
            let path = format!("e.lookup 20.{}.{}.77", number / 256, number % 256);
            assert_eq!(bench.read(&path), expected, "{path}");
        }
        assert!(used.iter().all(|&count| count > 100), "{used:?}");
        assert_eq!(bench.read("e.lookup 21.0.0.0"), "0");
    }
}

#[test]
fn bad_rows_are_counted_shown_and_left_out() {
    let rows = "10.0.0.0/8 1\n10.0.0.1/8 1\nhello\n11.0.0.0/40 1\n::/0 1\n12.0.0.0/8 2\n10.0.0.0/8 9\n";
    let file = TestFile::new("bad", rows.as_bytes());
    let path = file.path().display().to_string();
    let text = format!("DirectIPLookup(FILE {path}, VIA \"0\")");
    let mut bench = Bench::element(&registry(), &text, 1, 1);
    let messages = bench.messages();
    assert_eq!(messages.len(), 4, "{messages:?}");
    assert_eq!(messages[0], format!("e: {path}: 4 of 7 rows are bad and were left out:"));
    assert!(messages[1].starts_with(&format!("e: {path}: line 2: '10.0.0.1/8' has host bits set")));
    assert_eq!(bench.read("e.table"), "10.0.0.0/8\t\t-\t\t0\n12.0.0.0/8\t\t-\t\t0\n");
    let empty = TestFile::new("empty", b"");
    let text = format!("DirectIPLookup(FILE {}, VIA \"0\")", empty.path().display());
    let messages = Bench::element(&registry(), &text, 1, 1).messages();
    assert!(messages[0].ends_with("there are no routes in it"), "{messages:?}");
}

#[test]
fn a_file_that_is_missing_or_has_no_next_hops_is_a_mistake() {
    let class = super::radix_ip_lookup::CLASS.name;
    let class: &'static Class = CLASSES.iter().find(|known| known.name == class).unwrap();
    let errors = configure(class, "FILE /nowhere/rib.txt, VIA \"0\"").unwrap_err();
    assert!(errors[0].starts_with("FILE: cannot read '/nowhere/rib.txt': "), "{errors:?}");
    let errors = configure(class, "FILE /nowhere/rib.txt").unwrap_err();
    assert!(errors[0].starts_with("FILE needs VIA"), "{errors:?}");
    let errors = configure(class, "FILE \"\", VIA \"5\"").unwrap_err();
    assert!(errors[0].starts_with("VIA: next hop 1 should be '[GATEWAY] OUTPUT': there is no output 5"));
    for none in ["FILE \"\"", "FILE", "FILE , VIA \"0\"", "10/8 0, FILE \"\", VIA \"192.0.2.1 0\""] {
        assert_eq!(configure(class, none), Ok(()), "{none}");
    }
}

/// Lets the packets of a test run on several threads: one packet a turn to the address it was told.
static SOURCE: Class = Class {
    name: "TestSource",
    ports: "0/1",
    processing: Class::PUSH,
    flow: Class::COMPLETE_FLOW,
    manual: "",
    make: |_| Ok(Box::new(TestSource)),
};

struct TestSource;

impl Element for TestSource {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        cx.wake();
        Ok(())
    }

    fn task(&mut self, cx: &mut Context) -> TaskStatus {
        if let Some(mut packet) = cx.allocate() {
            packet.annotations_mut().set_destination_ip(0x0a00_0001);
            cx.emit(0, packet);
        }
        TaskStatus::Busy
    }
}

static SINK: Class = Class {
    name: "TestSink",
    ports: "1/0",
    processing: Class::PUSH,
    flow: Class::COMPLETE_FLOW,
    manual: "",
    make: |_| Ok(Box::new(TestSink)),
};

struct TestSink;

impl Element for TestSink {
    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut packet::Batch) {
        cx.free(batch);
    }
}

fn router(text: &str, workers: usize) -> Router {
    let mut registry: Registry = registry();
    registry.add(&[&SOURCE, &SINK]);
    let source = Source { name: "test.click".into(), text: text.into() };
    let (flat, diagnostics) = lang::compile(&source, &Options::default(), &registry);
    let flat = flat.unwrap_or_else(|| panic!("{}", diagnostics.render(false)));
    let pool = PoolOptions { frames: 256, ..PoolOptions::default() };
    let graph = GraphOptions { pool, ..GraphOptions::default() };
    let options = RouterOptions { workers, graph, slow_pool: pool, pin: false };
    let control = Control::new(|_: &str| {});
    let mut router = Router::build(Arc::new(flat), &registry, &Shared::default(), &options, control).unwrap();
    router.start().unwrap();
    router
}

#[test]
fn several_workers_see_one_table_and_each_change_happens_once() {
    let plain = "TestSource -> rt :: RadixIPLookup(0/0 0) -> TestSink; rt[1] -> TestSink;";
    // The table also on the slow thread, only there, and only on the workers while there is a slow thread.
    let both = "TestSource -> rt :: RadixIPLookup(0/0 0) -> TestSink; rt[1] -> Punt -> [0]rt;";
    let slow = "TestSource -> Punt -> rt :: RadixIPLookup(0/0 0) -> TestSink; rt[1] -> TestSink;";
    let fast = "TestSource -> rt :: RadixIPLookup(0/0 0) -> Punt -> TestSink; rt[1] -> TestSink;";
    for config in [plain, both, slow, fast] {
        for workers in 1..=3 {
            let mut router = router(config, workers);
            for number in 0..20 {
                // Were it made twice, the second would be a conflict.
                router.write("rt.add", &format!("11.{number}/16 1")).unwrap();
                assert_eq!(router.read(&format!("rt.lookup 11.{number}.0.1")).unwrap(), "1");
                assert!(router.write("rt.add", "11.0/16 1").is_err(), "{config} {workers}");
            }
            assert_eq!(router.read("rt.table").unwrap().lines().count(), 21);
            router.write("rt.ctrl", "remove 11.0/16\nremove 0/0").unwrap();
            assert_eq!(router.read("rt.table").unwrap().lines().count(), 19);
            let drops = |router: &mut Router| router.read("rt.drops").unwrap() != "0";
            let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
            while !drops(&mut router) && std::time::Instant::now() < end {
                std::thread::yield_now();
            }
            assert!(drops(&mut router), "packets see that their route is gone: {config} {workers}");
            assert!(router.stop().is_empty());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn packets_leave_where_a_linear_scan_says(
        routes in prop::collection::vec((any::<u32>(), 0u8..=32, 0u32..3, 0usize..4), 0..40),
        random in prop::collection::vec(any::<u32>(), 0..100),
        class in 0..CLASSES.len(),
    ) {
        let mut reference = Linear::new();
        let mut next_hops = vec![(0, usize::MAX)];
        let mut arguments = Vec::new();
        let mut destinations = random;
        for &(bits, length, gateway, output) in &routes {
            let prefix = Ipv4Net::new(bits.into(), length).unwrap();
            let network = prefix.trunc();
            if reference.routes().iter().any(|route| route.prefix == network) {
                continue;
            }
            reference.set(network, NextHopIndex::new(next_hops.len() as u16).unwrap());
            next_hops.push((gateway, output));
            arguments.push(format!("{prefix} {} {output}", std::net::Ipv4Addr::from(gateway)));
            let (first, last) = (u32::from(network.network()), u32::from(network.broadcast()));
            destinations.extend([first, last, first.wrapping_sub(1), last.wrapping_add(1)]);
        }
        let text = format!("{}({})", CLASSES[class].name, arguments.join(", "));
        let mut bench = Bench::element(&registry(), &text, 1, 4);
        let mut expected = vec![Vec::new(); 4];
        for &destination in &destinations {
            let (gateway, output) = next_hops[reference.lookup(destination).index()];
            if output != usize::MAX {
                expected[output].push((destination, if gateway == 0 { destination } else { gateway }));
            }
        }
        let dropped = destinations.len() - expected.iter().map(Vec::len).sum::<usize>();
        prop_assert_eq!(route_packets(&mut bench, &destinations, 4), expected);
        prop_assert_eq!(bench.drops("e", "no route"), dropped as u64);
    }
}
