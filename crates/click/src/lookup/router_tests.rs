//! Lookup elements in a router that runs: several workers, a slow thread, handlers that change routes meanwhile.

use std::sync::Arc;

use graph::graph::{GraphOptions, Registry};
use graph::lang::{self, Options, Source};
use graph::router::{Control, Router, RouterOptions};
use graph::setup::Shared;
use graph::{Class, Combine, ConfigError, Context, Element, Get, Handler, Setup, TaskStatus};
use packet::{Annotations, Batch, PoolOptions};

use crate::registry;

/// Packets for the lookups of a test, on every thread, turn by turn: `BURST` of them, half to 10.0.0.1 and half to
/// 11.0.0.1, or (`BURST 1`) to the first only. For IPv6 the addresses stand in the first four bytes.
static SOURCE: Class = Class {
    name: "TestSource",
    ports: "0/1",
    processing: Class::PUSH,
    make: |setup| {
        let burst = setup.arguments.optional("BURST")?.unwrap_or(1);
        setup.arguments.finish()?;
        Ok(Box::new(TestSource { burst }))
    },
    ..Class::DEFAULT
};

struct TestSource {
    burst: u32,
}

impl Element for TestSource {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        cx.wake();
        Ok(())
    }

    fn task(&mut self, cx: &mut Context) -> TaskStatus {
        for number in 0..self.burst {
            if let Some(mut packet) = cx.allocate() {
                packet.annotations_mut().set_destination_ip(0x0a00_0001 + ((number % 2) << 24));
                cx.emit(0, packet);
            }
        }
        TaskStatus::Busy
    }
}

/// Frees packets and looks at their annotations. The gateways of a test count up: all packets of a batch must have the
/// same one, none may be older than one seen before, and it must fit the output (`PARITY`).
static SINK: Class = Class {
    name: "TestSink",
    ports: "1/0",
    processing: Class::PUSH,
    handlers: &[
        Handler::read(
            "misled",
            Combine::Sum,
            "Packets with a gateway of the other output.",
            &Get(|e: &mut TestSink| e.misled.to_string()),
        ),
        Handler::read(
            "mixed",
            Combine::Sum,
            "Packets with another gateway than the first of their batch.",
            &Get(|e: &mut TestSink| e.mixed.to_string()),
        ),
        Handler::read(
            "older",
            Combine::Sum,
            "Packets with a gateway older than one before.",
            &Get(|e: &mut TestSink| e.older.to_string()),
        ),
        Handler::read(
            "packets",
            Combine::Sum,
            "Packets so far.",
            &Get(|e: &mut TestSink| e.packets.to_string()),
        ),
    ],
    make: make_sink,
    ..Class::DEFAULT
};

fn make_sink(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let parity = setup.arguments.optional("PARITY")?;
    setup.arguments.finish()?;
    Ok(Box::new(TestSink { parity, newest: 0, packets: 0, mixed: 0, older: 0, misled: 0 }))
}

struct TestSink {
    parity: Option<u32>,
    newest: u32,
    packets: u64,
    mixed: u64,
    older: u64,
    misled: u64,
}

/// The number of the gateway: the last four bytes of an IPv6 address, and of an IPv4 one all there are.
fn gateway(annotations: &Annotations) -> u32 {
    let address = annotations.destination_ip6();
    if address as u32 != 0 { address as u32 } else { annotations.destination_ip() }
}

impl Element for TestSink {
    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        if let Some(parity) = self.parity {
            let first = batch.packets().first().map_or(0, |packet| gateway(packet.annotations()));
            for packet in batch.packets() {
                let gateway = gateway(packet.annotations());
                self.mixed += u64::from(gateway != first);
                self.older += u64::from(gateway < self.newest);
                self.misled += u64::from(gateway % 2 != parity);
                self.newest = self.newest.max(gateway);
            }
            self.packets += batch.len() as u64;
        }
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
    let options = RouterOptions { workers, graph, slow_pool: pool, ..RouterOptions::default() };
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
            let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
            while !drops(&mut router) && std::time::Instant::now() < end {
                std::thread::yield_now();
            }
            assert!(drops(&mut router), "packets see that their route is gone: {config} {workers}");
            assert!(router.stop().is_empty());
        }
    }
}

/// Two routes, for the two destinations of [`SOURCE`], change together, again and again, while two workers forward.
/// That is checked by [`SINK`]: a batch is looked up before a change or after it, never half and half.
#[test]
fn while_workers_forward_a_change_is_seen_as_a_whole() {
    const CHANGES: u32 = 400;
    for (class, networks, prefix) in
        [("RadixIPLookup", ["10/8", "11/8"], ""), ("LookupIP6Route", ["a00::/8", "b00::/8"], "::ffff:")]
    {
        let address = |number: u32| format!("{prefix}{}", std::net::Ipv4Addr::from(number));
        let first = networks.map(|network| format!("{network} {} 0", address(2))).join(", ");
        let config = format!(
            "TestSource(32) -> rt :: {class}({first}) -> even :: TestSink(0); rt[1] -> odd :: TestSink(1);"
        );
        let mut router = router(&config, 2);
        for number in 3..3 + CHANGES {
            let (gateway, output) = (address(number), number % 2);
            let change = networks.map(|network| format!("set {network} {gateway} {output}\n")).concat();
            router.write("rt.ctrl", &change).unwrap();
            // A change that is refused half-way is not seen at all.
            let refused = format!("set {} {} 1\nremove {}\n", networks[0], address(9999), address(1));
            assert!(router.write("rt.ctrl", &refused).is_err());
        }
        let mut sum = |name: &str| {
            let read = |sink: &str| router.read(&format!("{sink}.{name}")).unwrap().parse::<u64>().unwrap();
            ["even", "odd"].map(read)
        };
        assert_eq!((sum("mixed"), sum("older"), sum("misled")), ([0, 0], [0, 0], [0, 0]), "{class}");
        assert!(sum("packets").iter().all(|&packets| packets > 0), "{class}: {:?}", sum("packets"));
        assert_eq!(router.read("rt.drops").unwrap(), "0");
        let check = router.read("rt.check").unwrap();
        assert_eq!(check.matches(", ok\n").count(), 2, "{check}");
        assert!(router.stop().is_empty());
    }
}
