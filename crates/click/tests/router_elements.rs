//! Elements of the router together with classes of the Click library: queues before them, sources, reassembly.

#![allow(clippy::unwrap_used, reason = "a test")]

use graph::setup::Shared;
use graph::testing::Bench;
use proptest::prelude::*;
use testbed::ipv4::with_options;
use testbed::ipv6::{FAR, HOST, ipv6};

#[test]
fn pulled_packets_leave_and_the_task_sleeps_then() {
    let config = "in :: TestInput -> Queue(10) -> to :: ToDevice(null:x)";
    let mut bench = Bench::try_new(&click::registry(), config, 32, &Shared::default()).unwrap();
    bench.push("in", &[&[0; 60], &[1; 60], &[2; 60]]);
    bench.run(10);
    assert_eq!(bench.read("to.count"), "3");
    assert!(!bench.graph().context().has_awake_tasks());
}

#[test]
fn pulled_packets_are_counted() {
    let config = "in :: TestInput -> Queue(10) -> to :: ToDevice(null:x)";
    let mut bench = Bench::try_new(&click::registry(), config, 32, &Shared::default()).unwrap();
    bench.push("in", &[&[0; 60], &[1; 60]]);
    bench.run(10);
    assert_eq!(bench.stats("to").packets, 2);
}

#[test]
fn a_pulled_port_that_is_full_lets_the_worker_rest() {
    let config = "in :: TestInput -> Queue(100) -> to :: ToDevice(memory:stuck)";
    let mut bench = Bench::try_new(&click::registry(), config, 32, &Shared::default()).unwrap();
    let frame = [0u8; 60];
    let mut worked = true;
    for _ in 0..100 {
        bench.push("in", &[&frame[..]; 90]);
        bench.run(10);
        worked = bench.graph().context().turn();
    }
    assert!(!worked, "a turn that cannot send is not work");
}

#[test]
fn discard_pulls_bursts() {
    let config = "InfiniteSource(LIMIT 100) -> PullNull -> e :: Discard(BURST 3, ACTIVE false)";
    let mut bench = Bench::new(&click::registry(), config);
    bench.run(3);
    assert_eq!(bench.read("e.count"), "0");
    bench.write("e.active", "true").unwrap();
    bench.run(1);
    assert_eq!(bench.read("e.count"), "3");
    bench.run(100);
    assert_eq!(bench.read("e.count"), "100");
    assert!(!bench.graph().context().has_awake_tasks());
}

#[test]
fn discard_is_active_where_it_is_pushed() {
    let config = "InfiniteSource -> Null -> Queue -> Unqueue -> Discard(ACTIVE false)";
    let error = Bench::try_new(&click::registry(), config, 1, &Default::default()).unwrap_err();
    assert!(error.contains("ACTIVE is meaningless in push context"), "{error}");
}

#[test]
fn nothing_comes_out_of_idle() {
    let config = "in :: TestInput -> e :: Idle -> out :: TestOutput; e[1] -> Unqueue -> pulled :: TestOutput";
    let mut bench = Bench::new(&click::registry(), config);
    bench.push("in", &[b"x", b"y"]);
    bench.run(10);
    assert!(!bench.graph().context().has_awake_tasks());
    assert_eq!(bench.taken("out").len() + bench.taken("pulled").len(), 0);
    assert_eq!(bench.graph().pool_stats().free, 4096);
}

#[test]
fn outputs_of_tee_come_in_order() {
    let config = "in :: TestInput -> t :: Tee -> Print(0) -> Discard; t[1] -> Print(1) -> Discard; t[2] -> Print(2) -> Discard";
    for burst in [1, 32] {
        let mut bench = Bench::with_burst(&click::registry(), config, burst);
        bench.push("in", &[b"x"]);
        assert_eq!(bench.messages(), ["0:    1 | 78", "1:    1 | 78", "2:    1 | 78"]);
    }
}

#[test]
fn strip_ip_header_follows() {
    let config = "in :: TestInput -> MarkIP6Header -> StripIPHeader -> out :: TestOutput";
    let mut bench = Bench::new(&click::registry(), config);
    bench.push("in", &[&ipv6(HOST, FAR, 17, b"data")]);
    assert_eq!(bench.taken("out"), [b"data"]);
}

proptest! {
    /// Whatever is fragmented comes out of the reassembler as it was.
    #[test]
    fn reassembly_undoes_fragmentation(
        payload in proptest::collection::vec(any::<u8>(), 0..1400),
        mtu in 68usize..1500,
        options in 0usize..4,
        second_mtu in 68usize..200,
        shuffle: u64,
    ) {
        let options = [0x94u8, 4, 0, 0].repeat(options);
        let packet = with_options([1, 2, 3, 4], [5, 6, 7, 8], 17, &options, &payload);
        let config = format!(
            "in :: TestInput -> MarkIPHeader -> IPFragmenter({mtu}) -> IPFragmenter({second_mtu})
                -> fragments :: TestOutput;
             back :: TestInput -> CheckIPHeader -> r :: IPReassembler -> out :: TestOutput;"
        );
        let mut bench = Bench::new(&click::registry(), &config);
        bench.push("in", &[&packet]);
        let mut fragments = bench.taken("fragments");
        prop_assert!(fragments.iter().all(|fragment| fragment.len() <= mtu.min(second_mtu)));
        let mut seed = shuffle;
        for last in (1..fragments.len()).rev() {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            fragments.swap(last, (seed >> 33) as usize % (last + 1));
        }
        for fragment in &fragments {
            bench.push("back", &[fragment]);
        }
        prop_assert_eq!(bench.taken("out"), [packet]);
    }
}
