//! `examples/lua/router.lua` beside the elements whose steps it uses.

#![allow(clippy::unwrap_used, reason = "tests")]

use elements::lookup::{Asker, ForwardingTables};
use fib::publish::pair;
use fib::{Adjacency, Fib, MAIN, NextHop, Policy};
use graph::setup::Shared;
use graph::testing::Bench;
use proptest::prelude::*;
use testbed::ipv4::{any_packet, ipv4, refresh};
use testbed::ipv6::ipv6;

const TO_A: [u8; 14] = [2, 0, 0, 0, 0, 0xa, 2, 0, 0, 0, 1, 0, 8, 0];
const TO_B: [u8; 14] = [2, 0, 0, 0, 0, 0xb, 2, 0, 0, 0, 1, 1, 8, 0];

/// The same header for IPv6.
fn for_ipv6(mut header: [u8; 14]) -> [u8; 14] {
    header[12..].copy_from_slice(&[0x86, 0xdd]);
    header
}

/// 10.1/16 by port 0, 10.2/16 by port 1, 10.3/16 by both, 10.4/16 of this host, 10.8/16 dropped, 10.12/16 to be resolved; 2001:db8:1::/48
/// and so on likewise.
fn fib() -> Fib<Adjacency> {
    let mut fib = Fib::new().unwrap();
    let next_hops = fib.next_hops_mut();
    let a = next_hops.add(NextHop::Forward(Adjacency::new(0, &TO_A).unwrap())).unwrap();
    let b = next_hops.add(NextHop::Forward(Adjacency::new(1, &TO_B).unwrap())).unwrap();
    let both = next_hops.add_group(&[(a, 1), (b, 1)]).unwrap();
    let a6 = next_hops.add(NextHop::Forward(Adjacency::new(0, &for_ipv6(TO_A)).unwrap())).unwrap();
    let b6 = next_hops.add(NextHop::Forward(Adjacency::new(1, &for_ipv6(TO_B)).unwrap())).unwrap();
    let both6 = next_hops.add_group(&[(a6, 1), (b6, 1)]).unwrap();
    let ends = [NextHop::Local, NextHop::Blackhole, NextHop::Resolve(0)];
    let [local, blackhole, resolve] = ends.map(|next_hop| fib.next_hops_mut().add(next_hop).unwrap());
    for (prefix, number) in [
        ("10.1.0.0/16", a),
        ("10.2.0.0/16", b),
        ("10.3.0.0/16", both),
        ("10.4.0.0/16", local),
        ("10.8.0.0/16", blackhole),
        ("10.12.0.0/16", resolve),
        ("2001:db8:1::/48", a6),
        ("2001:db8:2::/48", b6),
        ("2001:db8:3::/48", both6),
        ("2001:db8:4::/48", local),
        ("2001:db8:8::/48", blackhole),
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
    let tables = ForwardingTables {
        ports,
        readers: fib.readers().clone(),
        policies,
        paths: Default::default(),
        ask: Asker::default(),
    };
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
const ELEMENTS: &str = "in :: TestInput -> MarkMACHeader(0) -> kind :: Classifier(12/0800, 12/86dd, -)
        -> Strip(14) -> check :: CheckIPHeader(MARTIANS true) -> rt :: FIBLookup(eth1, eth2);
    kind[1] -> Strip(14) -> check6 :: CheckIP6Header(MARTIANS true) -> rt6 :: FIBLookup6(eth1, eth2);
    kind[2] -> linux :: TestOutput; frames :: UnstripToMACHeader -> linux;
    rt[0] -> CheckLength(1500) -> ttl0 :: DecIPTTL -> UnstripToMACHeader -> out0 :: TestOutput; ttl0[1] -> TestOutput;
    rt[1] -> CheckLength(1500) -> ttl1 :: DecIPTTL -> UnstripToMACHeader -> out1 :: TestOutput; ttl1[1] -> TestOutput;
    rt6[0] -> CheckLength(1500) -> limit0 :: DecIP6HLIM -> UnstripToMACHeader -> out0; limit0[1] -> TestOutput;
    rt6[1] -> CheckLength(1500) -> limit1 :: DecIP6HLIM -> UnstripToMACHeader -> out1; limit1[1] -> TestOutput;
    rt[2], rt[3], rt[4], rt[5], rt[6] => frames, frames, frames, frames, frames;
    rt6[2], rt6[3], rt6[4], rt6[5], rt6[6] => frames, frames, frames, frames, frames;";

fn frame(packet: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 1, 0, 2, 0, 0, 0, 0, 9, 8, 0][..], packet].concat()
}

fn frame6(packet: &[u8]) -> Vec<u8> {
    [&for_ipv6([2, 0, 0, 0, 1, 0, 2, 0, 0, 0, 0, 9, 8, 0]), packet].concat()
}

fn to6(destination: &str, hop_limit: u8) -> Vec<u8> {
    let mut packet = ipv6("2001:db8:99::1".parse().unwrap(), destination.parse().unwrap(), 17, &[0; 20]);
    packet[7] = hop_limit;
    frame6(&packet)
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
fn ipv6_is_forwarded_in_one_batch_with_ipv4() {
    let fib = fib();
    let (mut bench, _policy) = lua_router(&fib, 3);
    let (a, b) = (to6("2001:db8:1::1", 64), to6("2001:db8:2::1", 64));
    let linux = [to6("2001:db8:4::1", 64), to6("2001:db8:77::1", 64), to6("2001:db8:1::1", 1)];
    let mut martian = to6("2001:db8:1::1", 64);
    // ::ffff:0:0/96.
    martian[14 + 8..14 + 20].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]);
    let dropped = [to6("2001:db8:8::1", 64), martian];
    let all = [vec![a.clone(), to([10, 1, 0, 1], 64), b.clone()], linux.to_vec(), dropped.to_vec()].concat();
    bench.push("in", &all.iter().map(Vec::as_slice).collect::<Vec<_>>());
    assert_eq!(bench.messages(), Vec::<String>::new());
    assert_eq!(bench.taken("linux"), linux);
    let (out0, out1) = (bench.taken("out0"), bench.taken("out1"));
    assert_eq!((out0.len(), out1.len()), (2, 1));
    // A source address that reads as the EtherType of IPv6 where that of a frame would be.
    let mut packet = ipv4([0x86, 0xdd, 0, 1], [10, 1, 0, 1], 17, &[0; 40]);
    refresh(&mut packet);
    bench.push("in", &[&frame(&packet)]);
    assert_eq!((bench.taken("out0").len(), bench.taken("linux").len()), (1, 0));
    for (taken, sent, header) in [(&out0[0], &a, TO_A), (&out1[0], &b, TO_B)] {
        assert_eq!((&taken[..14], taken[14 + 7]), (&for_ipv6(header)[..], 63));
        assert_eq!((&taken[14..21], &taken[22..]), (&sent[14..21], &sent[22..]));
    }
    assert_eq!((bench.drops("e", "blackhole"), bench.drops("e", "martian source")), (1, 1));
}

#[test]
fn what_a_script_dropped_stays_dropped_where_routes_lead() {
    let fib = fib();
    let script = "for batch in brickway.batches() do
        local ip = batch:check_ip()
        for _, p in ip:each() do p:drop('denied') end
        batch:apply_routes(batch:decrement_ttl(batch:check_mtu(batch:lookup(ip))))
        batch:punt()
    end";
    let folder = testbed::Folder::new();
    let file = folder.write("denies.lua", script);
    let config = format!(
        "in :: TestInput -> MarkMACHeader(0) -> Paint(3) -> [0] e :: LuaRouter(eth1, eth2, FILE {file}); Idle -> [1] e;
         e[0] -> out0 :: TestOutput; e[1] -> out1 :: TestOutput; e[2] -> linux :: TestOutput;"
    );
    let (mut bench, _policy) = bench(&config, &fib);
    bench.push("in", &[&to([10, 1, 0, 1], 64), &to([10, 4, 0, 1], 64)]);
    assert_eq!(bench.messages(), Vec::<String>::new());
    assert_eq!(["out0", "out1", "linux"].map(|output| bench.taken(output).len()), [0; 3]);
    assert_eq!(bench.drops("e", "denied"), 2);
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
    bench.write("e.mtu4_1", "39").unwrap();
    bench.write("e.own_1", "192.0.2.1 192.0.2.255").unwrap();
    bench.write("e.reload", "").unwrap();
    assert_eq!(
        (bench.read("e.mtu4_1"), bench.read("e.own_1")),
        ("39".into(), "192.0.2.1 192.0.2.255".into())
    );
    assert!(bench.write("e.mtu4_3", "1500").is_err() && bench.write("e.mtu4_0", "1500").is_err());
    bench.push("in", &[&to([10, 1, 0, 1], 64)]);
    assert_eq!(bench.drops("e", "martian source"), 1);
    bench.write("e.own_1", "").unwrap();
    bench.push("in", &[&to([10, 1, 0, 1], 64), &to([10, 2, 0, 1], 64)]);
    assert_eq!((bench.taken("linux").len(), bench.taken("out1").len()), (1, 1));
}

#[test]
fn a_script_s_own_table_names_gateways_that_the_lookup_finds() {
    let fib = fib();
    let script = "local gateway_of = { [brickway.ip('203.0.113.7')] = brickway.ip('10.2.0.1') }
        for batch in brickway.batches() do
          local ip = batch:check_ip()
          for _, p in ip:each() do p.destination = gateway_of[p.destination] or p.destination end
          batch:apply_routes(batch:decrement_ttl(batch:lookup(ip)))
          batch:punt()
        end";
    let file = std::env::temp_dir().join(format!("brickway-own-table-{}.lua", std::process::id()));
    std::fs::write(&file, script).unwrap();
    let config = format!(
        "in :: TestInput -> MarkMACHeader(0) -> Paint(3) -> [0] e :: LuaRouter(eth1, eth2, FILE {}); Idle -> [1] e;
         e[0] -> out0 :: TestOutput; e[1] -> out1 :: TestOutput; e[2] -> linux :: TestOutput;",
        file.display()
    );
    let (mut bench, _policy) = bench(&config, &fib);
    std::fs::remove_file(&file).unwrap();
    bench.push("in", &[&to([203, 0, 113, 7], 64), &to([203, 0, 113, 8], 64), &to([10, 1, 0, 1], 64)]);
    assert_eq!(bench.messages(), Vec::<String>::new());
    let out1 = bench.taken("out1");
    assert_eq!((out1.len(), &out1[0][..14], &out1[0][30..34]), (1, &TO_B[..], &[203, 0, 113, 7][..]));
    assert_eq!((bench.taken("out0").len(), bench.taken("linux").len()), (1, 1));
}

proptest! {
    #[test]
    fn it_forwards_what_the_elements_forward(
        packets in prop::collection::vec((any_packet(), 0..9_u8, any::<[u8; 2]>(), any::<bool>()), 1..64),
        packets6 in prop::collection::vec((testbed::ipv6::any_packet(), 0..9_u8, 0..4_u8), 0..32),
    ) {
        let fib = fib();
        let (mut ours, _policy) = lua_router(&fib, 3);
        let (mut theirs, _policy) = bench(ELEMENTS, &fib);
        let mut frames: Vec<Vec<u8>> = packets.into_iter().map(|(mut packet, net, host, is_right)| {
            if packet.len() >= 20 {
                packet[16..20].copy_from_slice(&[10, net, host[0], host[1]]);
                if is_right {
                    refresh(&mut packet);
                }
            }
            frame(&packet)
        }).collect();
        // The two families by turns.
        for (place, (mut packet, net, limit)) in packets6.into_iter().enumerate() {
            if packet.len() >= 40 {
                packet[24..30].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8, 0, net]);
                packet[7] = limit;
            }
            frames.insert((2 * place).min(frames.len()), frame6(&packet));
        }
        let borrowed: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
        ours.push("in", &borrowed);
        theirs.push("in", &borrowed);
        prop_assert_eq!(ours.messages(), Vec::<String>::new());
        for output in ["out0", "out1"] {
            // The elements take batches apart: the two families, and extension headers of IPv6 from the rest of it.
            let [by_us, by_them] = [ours.taken(output), theirs.taken(output)].map(|mut frames| {
                frames.sort_by_key(|frame| (frame[12] == 0x86).then(|| frame.clone()));
                frames
            });
            prop_assert_eq!(by_us, by_them);
        }
        let dropped = |bench: &mut Bench, names: &[&str]| -> u64 {
            names.iter().map(|name| bench.stats(name).dropped()).sum()
        };
        prop_assert_eq!(dropped(&mut ours, &["e"]), dropped(&mut theirs, &["check", "check6", "rt", "rt6"]));
    }
}
