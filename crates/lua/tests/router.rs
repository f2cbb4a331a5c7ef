//! `examples/lua/router.lua` beside the elements whose steps it uses.

#![allow(clippy::unwrap_used, reason = "tests")]

use elements::lookup::{Asker, ForwardingTables};
use fib::publish::pair;
use fib::{Adjacency, Fib, MAIN, NextHop, Policy};
use graph::setup::Shared;
use graph::testing::Bench;
use proptest::prelude::*;
use testbed::ipv4::{any_packet, ipv4, refresh};

const TO_A: [u8; 14] = [2, 0, 0, 0, 0, 0xa, 2, 0, 0, 0, 1, 0, 8, 0];
const TO_B: [u8; 14] = [2, 0, 0, 0, 0, 0xb, 2, 0, 0, 0, 1, 1, 8, 0];

/// 10.1/16 by port 0, 10.2/16 by port 1, 10.3/16 by both, 10.4/16 of this host, 10.8/16 dropped, 10.12/16 to be resolved.
fn fib() -> Fib<Adjacency> {
    let mut fib = Fib::new().unwrap();
    let next_hops = fib.next_hops_mut();
    let a = next_hops.add(NextHop::Forward(Adjacency::new(0, &TO_A).unwrap())).unwrap();
    let b = next_hops.add(NextHop::Forward(Adjacency::new(1, &TO_B).unwrap())).unwrap();
    let both = next_hops.add_group(&[(a, 1), (b, 1)]).unwrap();
    let ends = [NextHop::Local, NextHop::Blackhole, NextHop::Resolve(0)];
    let [local, blackhole, resolve] = ends.map(|next_hop| fib.next_hops_mut().add(next_hop).unwrap());
    for (prefix, number) in [
        ("10.1.0.0/16", a),
        ("10.2.0.0/16", b),
        ("10.3.0.0/16", both),
        ("10.4.0.0/16", local),
        ("10.8.0.0/16", blackhole),
        ("10.12.0.0/16", resolve),
    ] {
        fib.insert(MAIN, prefix.parse().unwrap(), number).unwrap();
    }
    fib.publish();
    fib
}

/// A bench whose lookups use these tables. The policy's writer has to outlive it.
fn bench(config: &str, fib: &Fib<Adjacency>) -> (Bench, fib::publish::Writer<Policy>) {
    let mut registry = elements::registry();
    registry.add(lua::CLASSES);
    let shared = Shared::default();
    let (writer, policies) = pair(Policy::default(), Policy::default());
    let ports = vec!["eth1".into(), "eth2".into()];
    let tables = ForwardingTables { ports, readers: fib.readers().clone(), policies, ask: Asker::default() };
    shared.get_or_make(ForwardingTables::KEY, || Ok::<_, String>(tables)).unwrap();
    (Bench::try_new(&registry, config, 32, &shared).unwrap(), writer)
}

fn lua_router(fib: &Fib<Adjacency>, paint: u8) -> (Bench, fib::publish::Writer<Policy>) {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/lua/router.lua");
    let config = format!(
        "in :: TestInput -> MarkMACHeader(0) -> Paint({paint}) -> [0] e :: LuaRouter(eth1, eth2, FILE {file}); Idle -> [1] e;
         e[0] -> out0 :: TestOutput; e[1] -> out1 :: TestOutput; e[2] -> linux :: TestOutput;"
    );
    bench(&config, fib)
}

/// The same of elements.
const ELEMENTS: &str = "in :: TestInput -> MarkMACHeader(0) -> kind :: Classifier(12/0800, -)
        -> Strip(14) -> check :: CheckIPHeader(MARTIANS true) -> rt :: FIBLookup(eth1, eth2);
    kind[1] -> linux :: TestOutput; frames :: UnstripToMACHeader -> linux;
    rt[0] -> CheckLength(1500) -> ttl0 :: DecIPTTL -> UnstripToMACHeader -> out0 :: TestOutput; ttl0[1] -> TestOutput;
    rt[1] -> CheckLength(1500) -> ttl1 :: DecIPTTL -> UnstripToMACHeader -> out1 :: TestOutput; ttl1[1] -> TestOutput;
    rt[2], rt[3], rt[4], rt[5], rt[6] => frames, frames, frames, frames, frames;";

fn frame(packet: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 1, 0, 2, 0, 0, 0, 0, 9, 8, 0][..], packet].concat()
}

fn to(destination: [u8; 4], ttl: u8) -> Vec<u8> {
    let mut packet = ipv4([192, 0, 2, 1], destination, 17, &[0; 20]);
    packet[8] = ttl;
    refresh(&mut packet);
    frame(&packet)
}

#[test]
fn each_packet_goes_where_its_route_leads_and_the_rest_to_linux_as_it_came() {
    let fib = fib();
    let (mut bench, _policy) = lua_router(&fib, 3);
    let (a, b) = (to([10, 1, 0, 1], 64), to([10, 2, 0, 1], 64));
    let linux = [
        to([10, 4, 0, 1], 64),
        to([10, 12, 0, 1], 64),
        to([10, 99, 0, 1], 64),
        to([10, 1, 0, 1], 1),
        vec![0xff; 60],
    ];
    let mut wrong = to([10, 1, 0, 1], 64);
    wrong[14 + 10] ^= 1;
    let dropped = [to([10, 8, 0, 1], 64), wrong];
    let all = [vec![a.clone(), b.clone()], linux.to_vec(), dropped.to_vec()].concat();
    bench.push("in", &all.iter().map(Vec::as_slice).collect::<Vec<_>>());
    assert_eq!(bench.messages(), Vec::<String>::new());
    assert_eq!(bench.taken("linux"), linux);
    for (output, sent, header) in [("out0", &a, TO_A), ("out1", &b, TO_B)] {
        let taken = bench.taken(output);
        assert_eq!((taken.len(), &taken[0][..14], taken[0][14 + 8]), (1, &header[..], 63), "{output}");
        assert_eq!((&taken[0][14..22], &taken[0][26..]), (&sent[14..22], &sent[26..]));
    }
    assert_eq!((bench.drops("e", "blackhole"), bench.drops("e", "bad IP checksum")), (1, 1));
    assert_eq!((bench.read("e.forwarded"), bench.read("e.punted")), ("2".into(), "5".into()));
}

#[test]
fn what_leaves_by_the_port_it_came_by_is_linux_s_which_sends_redirects() {
    let fib = fib();
    let (mut bench, _policy) = lua_router(&fib, 1);
    bench.push("in", &[&to([10, 1, 0, 1], 64), &to([10, 2, 0, 1], 64)]);
    assert_eq!((bench.taken("linux").len(), bench.taken("out1").len(), bench.taken("out0").len()), (1, 1, 0));
}

#[test]
fn mtus_and_own_addresses_follow_linux_and_outlive_a_reload() {
    let fib = fib();
    let (mut bench, _policy) = lua_router(&fib, 3);
    bench.write("e.mtu1", "39").unwrap();
    bench.write("e.own", "192.0.2.1 192.0.2.255").unwrap();
    bench.write("e.reload", "").unwrap();
    assert_eq!((bench.read("e.mtu1"), bench.read("e.own")), ("39".into(), "192.0.2.1 192.0.2.255".into()));
    assert!(bench.write("e.mtu3", "1500").is_err() && bench.write("e.mtu0", "1500").is_err());
    bench.push("in", &[&to([10, 1, 0, 1], 64)]);
    assert_eq!(bench.drops("e", "martian source"), 1);
    bench.write("e.own", "").unwrap();
    bench.push("in", &[&to([10, 1, 0, 1], 64), &to([10, 2, 0, 1], 64)]);
    assert_eq!((bench.taken("linux").len(), bench.taken("out1").len()), (1, 1));
}

proptest! {
    #[test]
    fn it_forwards_what_the_elements_forward(
        packets in prop::collection::vec((any_packet(), 0..9_u8, any::<[u8; 2]>(), any::<bool>()), 1..64),
    ) {
        let fib = fib();
        let (mut ours, _policy) = lua_router(&fib, 3);
        let (mut theirs, _policy) = bench(ELEMENTS, &fib);
        let frames: Vec<Vec<u8>> = packets.into_iter().map(|(mut packet, net, host, is_right)| {
            if packet.len() >= 20 {
                packet[16..20].copy_from_slice(&[10, net, host[0], host[1]]);
                if is_right {
                    refresh(&mut packet);
                }
            }
            frame(&packet)
        }).collect();
        let borrowed: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
        ours.push("in", &borrowed);
        theirs.push("in", &borrowed);
        prop_assert_eq!(ours.messages(), Vec::<String>::new());
        for output in ["out0", "out1"] {
            prop_assert_eq!(ours.taken(output), theirs.taken(output));
        }
        let dropped = |bench: &mut Bench, names: &[&str]| -> u64 {
            names.iter().map(|name| bench.stats(name).dropped()).sum()
        };
        prop_assert_eq!(dropped(&mut ours, &["e"]), dropped(&mut theirs, &["check", "rt"]));
    }
}
