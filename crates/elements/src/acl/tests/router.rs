//! Lists that change while workers send packets through them.

use std::sync::Arc;

use graph::graph::GraphOptions;
use graph::lang::{self, Options, Source};
use graph::router::{Control, Router, RouterOptions};
use graph::setup::Shared;
use graph::{Class, Combine, Context, Element, Get, Handler, Put, TaskStatus};
use packet::{Batch, PoolOptions};

use crate::acl::AccessList;
use crate::registry;
use testbed::ipv4::ipv4;

/// Packets of a batch: a quarter each to 10.0.0.0 to 10.0.0.3.
const BATCH: usize = 32;

static SOURCE: Class = Class {
    name: "TestSource",
    ports: "0/1",
    processing: Class::PUSH,
    handlers: &[
        Handler::read("sent", Combine::Sum, "Packets sent.", &Get(|e: &mut TestSource| e.sent.to_string())),
        Handler::write(
            "stop",
            "Sends no more.",
            &Put(|e: &mut TestSource, _, _| {
                e.is_stopped = true;
                Ok(())
            }),
        ),
    ],
    make: |_| Ok(Box::new(TestSource { sent: 0, is_stopped: false })),
    ..Class::DEFAULT
};

struct TestSource {
    sent: u64,
    is_stopped: bool,
}

impl Element for TestSource {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        cx.wake();
        Ok(())
    }

    fn task(&mut self, cx: &mut Context) -> TaskStatus {
        if self.is_stopped {
            return TaskStatus::Asleep;
        }
        for number in 0..BATCH {
            let bytes = ipv4([192, 0, 2, 1], [10, 0, 0, number as u8 % 4], 17, &[0; 8]);
            // Frames that the slow thread has are not here.
            let Some(mut packet) = cx.allocate() else { return TaskStatus::Busy };
            assert!(packet.set_data(&bytes));
            packet.set_network_header(0);
            cx.emit(0, packet);
            self.sent += 1;
        }
        TaskStatus::Busy
    }
}

/// Counts packets, and batches that are not whole.
static SINK: Class = Class {
    name: "TestSink",
    ports: "1/0",
    processing: Class::PUSH,
    handlers: &[
        Handler::read(
            "packets",
            Combine::Sum,
            "Packets so far.",
            &Get(|e: &mut TestSink| e.packets.to_string()),
        ),
        Handler::read(
            "parts",
            Combine::Sum,
            "Batches that were not whole.",
            &Get(|e: &mut TestSink| e.parts.to_string()),
        ),
    ],
    make: |_| Ok(Box::new(TestSink { packets: 0, parts: 0 })),
    ..Class::DEFAULT
};

struct TestSink {
    packets: u64,
    parts: u64,
}

impl Element for TestSink {
    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        self.packets += batch.len() as u64;
        self.parts += u64::from(batch.len() != BATCH);
        cx.free(batch);
    }
}

fn router(text: &str, workers: usize, shared: &Shared) -> Router {
    let mut registry = registry();
    registry.add(&[&SOURCE, &SINK]);
    let source = Source { name: "test.click".into(), text: text.into() };
    let (flat, diagnostics) = lang::compile(&source, &Options::default(), &registry);
    let flat = flat.unwrap_or_else(|| panic!("{}", diagnostics.render(false)));
    let pool = PoolOptions { frames: 256, ..PoolOptions::default() };
    let graph = GraphOptions { pool, ..GraphOptions::default() };
    let options = RouterOptions { workers, graph, slow_pool: pool, ..RouterOptions::default() };
    let control = Control::new(|_: &str| {});
    let mut router = Router::build(Arc::new(flat), &registry, shared, &options, control).unwrap();
    router.start().unwrap();
    router
}

fn number(router: &mut Router, path: &str) -> u64 {
    router.read(path).unwrap().parse().unwrap()
}

/// Packets that met each rule, and the default at the end.
fn hits(router: &mut Router) -> Vec<u64> {
    let text = router.read("acl.rules").unwrap() + &router.read("acl.default").unwrap();
    let counted = text.lines().map(|line| line.split_once(" # ").unwrap().1);
    counted.map(|text| text.split_once(' ').unwrap().0.parse().unwrap()).collect()
}

/// Waits until packets have come to a sink: the workers' threads may be slow to begin.
fn wait_for(router: &mut Router, sink: &str) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while number(router, &format!("{sink}.packets")) == 0 {
        assert!(std::time::Instant::now() < deadline, "no packet came to {sink}");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// Four rules change together, again and again, while two workers send packets for each of them: a batch is
/// permitted as a whole or denied as a whole, and no packet is lost.
#[test]
fn while_packets_flow_a_change_is_seen_as_a_whole() {
    let list =
        |action: &str| -> String { (0..4).map(|last| format!("{action} udp any 10.0.0.{last}\n")).collect() };
    let config = "source :: TestSource -> acl :: ACL(DEFAULT permit) -> permitted :: TestSink;
                  acl[1] -> denied :: TestSink;";
    let shared = Shared::default();
    let mut router = router(config, 2, &shared);
    let access_list = shared.get::<AccessList>(&AccessList::key("acl")).unwrap();
    for change in 0..100 {
        // By this thread, as the program does it, and by a worker.
        let text = list(if change % 2 == 0 { "permit" } else { "deny" });
        match change % 4 {
            0 | 1 => access_list.replace(&text).unwrap(),
            _ => router.write("acl.set", &text).unwrap(),
        }
        match change {
            0 => wait_for(&mut router, "permitted"),
            1 => wait_for(&mut router, "denied"),
            _ => {}
        }
        // What is refused half-way is not seen at all.
        assert!(router.write("acl.set", "permit udp any 10.0.0.0\ndeny udp any 10.0.0.1\nnothing").is_err());
    }
    router.write("source.stop", "").unwrap();
    let [permitted, denied] =
        ["permitted", "denied"].map(|sink| number(&mut router, &format!("{sink}.packets")));
    assert!(permitted > 0 && denied > 0, "{permitted} {denied}");
    assert_eq!(permitted + denied, number(&mut router, "source.sent"));
    assert_eq!((number(&mut router, "permitted.parts"), number(&mut router, "denied.parts")), (0, 0));
    assert_eq!(router.read("acl.drops").unwrap(), "0");
    assert!(router.stop().is_empty());
}

/// Rules come and go around one that stays: its count, and that of the default, miss no packet.
#[test]
fn counts_go_on_over_changes() {
    let config = "source :: TestSource -> acl :: ACL(10 permit udp any 10.0.0.0, DEFAULT deny)
                  -> permitted :: TestSink; acl[1] -> Punt -> TestSink;";
    for workers in [1, 2] {
        let mut router = router(config, workers, &Shared::default());
        wait_for(&mut router, "permitted");
        for number in 0..25 {
            router
                .write("acl.add", &format!("{} permit tcp any any port {number}", 5 + number % 2 * 10))
                .unwrap();
            router.write("acl.remove", &(5 + number % 2 * 10).to_string()).unwrap();
        }
        router.write("source.stop", "").unwrap();
        let sent = number(&mut router, "source.sent");
        let permitted = number(&mut router, "permitted.packets");
        assert_eq!(hits(&mut router), [permitted, sent - permitted]);
        router.write("acl.reset_counts", "").unwrap();
        assert_eq!(hits(&mut router), [0, 0]);
        assert_eq!(router.read("acl.count").unwrap(), "1");
        assert!(router.stop().is_empty());
    }
}

/// What no rule matches is permitted, then denied, while packets flow.
#[test]
fn the_default_changes_while_packets_flow() {
    let config =
        "source :: TestSource -> acl :: ACL(permit tcp any any, DEFAULT permit) -> permitted :: TestSink;
                  acl[1] -> denied :: TestSink;";
    let shared = Shared::default();
    let mut router = router(config, 1, &shared);
    wait_for(&mut router, "permitted");
    let list = shared.get::<AccessList>(&AccessList::key("acl")).unwrap();
    assert!(list.permits_the_rest());
    let place = || "line 7".to_owned();
    let mistake = list.replace_with_default([(place(), "no rule")].into_iter(), Some(false)).unwrap_err();
    assert!(mistake.starts_with("line 7: "), "{mistake}");
    assert!(router.read("acl.default").unwrap().starts_with("permit "));
    list.replace_with_default([(place(), "permit tcp any any")].into_iter(), Some(false)).unwrap();
    assert!(!list.permits_the_rest());
    wait_for(&mut router, "denied");
    assert!(router.read("acl.default").unwrap().starts_with("deny "));
    // Rules alone leave it as it is.
    list.replace("").unwrap();
    assert!(router.read("acl.default").unwrap().starts_with("deny "));
    assert!(router.stop().is_empty());
}

/// Nobody says what becomes of the rest: rules that are given as a whole decide, those that come and go one by one do not.
#[test]
fn what_no_rule_matches_is_denied_but_behind_denials_alone() {
    let shared = Shared::default();
    let config = "Idle -> acl :: ACL(deny tcp any any) -> Discard;";
    let mut router = router(config, 1, &shared);
    let list = shared.get::<AccessList>(&AccessList::key("acl")).unwrap();
    let mut default = || router.read("acl.default").unwrap().split(' ').next().unwrap().to_owned();
    assert_eq!(default(), "permit");
    list.add("permit udp any any").unwrap();
    assert_eq!(default(), "permit");
    for (rules, expected) in [
        ("permit udp any any", "deny"),
        ("deny udp any any", "permit"),
        ("deny udp any any\npermit tcp any any", "deny"),
        ("", "deny"),
    ] {
        list.replace(rules).unwrap();
        assert_eq!(default(), expected, "{rules}");
    }
    list.add("deny udp any any").unwrap();
    assert_eq!(default(), "deny");
    assert!(router.stop().is_empty());
}
