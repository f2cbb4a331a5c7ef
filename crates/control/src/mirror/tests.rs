//! The mirror, rule by rule. What random changes do is in `model_tests.rs`.

use super::hops::PUNT;
use super::*;
use crate::change::{Hops, *};
use crate::switches::NOT_OF_HOST;
use fib::{Decision, NextHop, NextHopIndex};
use packet::IpVersion;
use std::net::IpAddr;

const KERNEL: Source = Source::Netlink;

/// A router with ports eth0, eth1 and eth2, which are interfaces 1, 2 and 3; interface 9 is wg0.
fn router() -> Mirror {
    let mut mirror = Mirror::new((0..3).map(|port| (format!("eth{port}"), port))).unwrap();
    for index in 1..4 {
        mirror.apply(KERNEL, Change::Link(link(index, &format!("eth{}", index - 1))));
    }
    mirror.apply(KERNEL, Change::Link(link(9, "wg0")));
    mirror
}

fn link(index: InterfaceIndex, name: &str) -> Link {
    Link {
        index,
        name: name.into(),
        mac: Some([2, 0, 0, 0, 0, index as u8]),
        mtu: 1500,
        is_up: true,
        has_carrier: true,
        master: None,
        below: None,
        kind: String::new(),
        vlan: None,
        has_priorities: false,
        vrf_table: None,
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn key(table: u32, prefix: &str, metric: u32) -> RouteKey {
    RouteKey { table, prefix: prefix.parse().unwrap(), metric, tos: 0, from: None }
}

fn path(gateway: &str, index: InterfaceIndex) -> Path {
    let gateway = if gateway.is_empty() { None } else { Some(ip(gateway)) };
    Path { index, gateway, weight: 1, is_down: false, has_encapsulation: false }
}

fn route(key: RouteKey, kind: RouteKind, hops: Hops) -> Route {
    let (preference, only_linux) = (Route::MEDIUM, None);
    Route { key, kind, protocol: 4, preferred_source: None, mtu: None, preference, only_linux, hops }
}

/// A route in the main table; no gateway if that is empty.
fn via(prefix: &str, gateway: &str, index: InterfaceIndex) -> Route {
    route(key(MAIN, prefix, 0), RouteKind::Unicast, Hops::Paths(vec![path(gateway, index)]))
}

fn of_kind(table: u32, prefix: &str, kind: RouteKind) -> Route {
    route(key(table, prefix, 0), kind, Hops::None)
}

fn neighbour(address: &str, index: InterfaceIndex, mac: u8) -> Change {
    let mac = Some([2, 1, 0, 0, 0, mac]);
    Change::Neighbour(Neighbour { index, address: ip(address), mac, state: NeighbourState::Reachable })
}

fn forward(port: u16, mac: u8, ethertype: [u8; 2]) -> NextHop<Adjacency> {
    let source = [2, 0, 0, 0, 0, port as u8 + 1];
    NextHop::Forward(Adjacency::ethernet(port, [2, 1, 0, 0, 0, mac], source, ethertype))
}

const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];

impl Mirror {
    /// A source tells that it has nothing.
    pub(super) fn forget(&mut self, source: Source) {
        let parts = [
            Part::Routes4,
            Part::Routes6,
            Part::Objects,
            Part::Rules,
            Part::Neighbours,
            Part::Addresses,
            Part::Links,
        ];
        for part in parts {
            self.dump_begins(source, part);
            self.dump_ends(source, part);
        }
    }

    fn tell(&mut self, route: Route) {
        self.apply(KERNEL, Change::Route(route));
    }

    /// What workers do with a packet, by the main table.
    fn main(&mut self, address: &str) -> NextHop<Adjacency> {
        self.flow(address, 7)
    }

    fn flow(&mut self, address: &str, flow: u32) -> NextHop<Adjacency> {
        self.publish();
        match ip(address) {
            IpAddr::V4(address) => *self.fib.state().lookup4(0, address.into(), flow),
            IpAddr::V6(address) => *self.fib.state().lookup6(0, address.into(), flow),
        }
    }

    fn number(&self, address: &str) -> NextHopIndex {
        self.route_for(MAIN, ip(address)).unwrap().next_hop
    }

    fn counted(&self, what: Count) -> u64 {
        self.counters.counts[what as usize]
    }

    /// What the rules say of an IPv4 packet.
    fn decide(&mut self, port: u16, from: &str, to: &str) -> NextHop<Adjacency> {
        self.publish();
        let (IpAddr::V4(from), IpAddr::V4(to)) = (ip(from), ip(to)) else { panic!("IPv4 only") };
        let state = self.fib.state();
        let lookup = |vrf: usize| state.ipv4(vrf).unwrap().lookup(to.into());
        match self.policy().ipv4.evaluate(port, from.into(), to.into(), lookup) {
            Decision::Route(index) => *state.next_hops().resolve(index, 0),
            Decision::NoRoute => NextHop::NoRoute,
            Decision::Blackhole => NextHop::Blackhole,
            Decision::Unreachable => NextHop::Unreachable,
            Decision::Prohibit => NextHop::Prohibit,
            Decision::Punt => NextHop::Punt,
        }
    }
}

#[test]
fn a_gateway_with_a_known_address_is_forwarded_to_and_others_are_asked() {
    let mut mirror = router();
    mirror.tell(via("192.0.2.0/24", "10.0.0.1", 1));
    mirror.tell(via("2001:db8::/32", "2001:db9::1", 2));
    // IPv4 through an IPv6 gateway, RFC 8950.
    mirror.tell(via("198.51.100.0/24", "2001:db9::1", 2));
    assert_eq!(mirror.main("192.0.2.1"), NextHop::Resolve(0));
    assert_eq!(mirror.take_neighbours_to_ask(), [(1, ip("10.0.0.1")), (2, ip("2001:db9::1"))]);
    assert!(mirror.take_neighbours_to_ask().is_empty());
    mirror.apply(KERNEL, neighbour("10.0.0.1", 1, 7));
    mirror.apply(KERNEL, neighbour("2001:db9::1", 2, 8));
    assert_eq!(mirror.main("192.0.2.1"), forward(0, 7, IPV4));
    assert_eq!(mirror.main("2001:db8::1"), forward(1, 8, IPV6));
    assert_eq!(mirror.main("198.51.100.1"), forward(1, 8, IPV4));
    // Another address is one edit behind the same number, and none of a route.
    let number = mirror.number("192.0.2.1");
    let changes = mirror.counted(Count::NextHopChanges);
    mirror.apply(KERNEL, neighbour("10.0.0.1", 1, 9));
    assert_eq!(mirror.counted(Count::NextHopChanges), changes + 1);
    assert_eq!((mirror.number("192.0.2.1"), mirror.main("192.0.2.1")), (number, forward(0, 9, IPV4)));
    // One that fails is asked for every now and then, while it is needed; one that is forgotten is asked for at once.
    let state = NeighbourState::Failed;
    mirror
        .apply(KERNEL, Change::Neighbour(Neighbour { index: 1, address: ip("10.0.0.1"), mac: None, state }));
    assert_eq!(mirror.main("192.0.2.1"), NextHop::Resolve(0));
    assert!(mirror.take_neighbours_to_ask().is_empty());
    let unneeded = Neighbour { index: 1, address: ip("10.0.0.99"), mac: None, state };
    mirror.apply(KERNEL, Change::Neighbour(unneeded));
    assert_eq!(mirror.neighbours_to_ask_again().collect::<Vec<_>>(), [(1, ip("10.0.0.1"))]);
    mirror.apply(KERNEL, Change::NeighbourGone(1, ip("10.0.0.1")));
    assert_eq!(mirror.take_neighbours_to_ask(), [(1, ip("10.0.0.1"))]);
    assert!(mirror.neighbours_to_ask_again().next().is_none());
    assert!(!mirror.publish());
}

#[test]
fn a_group_goes_on_without_a_link_that_fails_and_takes_it_back() {
    let mut mirror = router();
    let paths = vec![path("10.0.0.1", 1), Path { weight: 3, ..path("10.0.1.1", 2) }];
    mirror.tell(route(key(MAIN, "0.0.0.0/0", 0), RouteKind::Unicast, Hops::Paths(paths)));
    mirror.apply(KERNEL, neighbour("10.0.0.1", 1, 1));
    mirror.apply(KERNEL, neighbour("10.0.1.1", 2, 2));
    let all = |mirror: &mut Mirror| (0..256).map(|flow| mirror.flow("8.8.8.8", flow)).collect::<Vec<_>>();
    let of_first = |flows: &[_]| flows.iter().filter(|it| **it == forward(0, 1, IPV4)).count();
    let share = of_first(&all(&mut mirror));
    assert!((40..90).contains(&share), "{share} of 256 flows for a quarter of the weight");
    for down in [Link { has_carrier: false, ..link(1, "eth0") }, Link { is_up: false, ..link(1, "eth0") }] {
        mirror.apply(KERNEL, Change::Link(down));
        assert!(all(&mut mirror).iter().all(|it| *it == forward(1, 2, IPV4)));
        mirror.apply(KERNEL, Change::Link(link(1, "eth0")));
        assert!(of_first(&all(&mut mirror)).abs_diff(share) < 20);
    }
    mirror.apply(KERNEL, Change::LinkGone(1));
    mirror.apply(KERNEL, Change::LinkGone(2));
    assert_eq!(mirror.main("8.8.8.8"), NextHop::Punt);
    // The interface is made again, with another number.
    mirror.apply(KERNEL, Change::Link(link(11, "eth0")));
    mirror.tell(via("0.0.0.0/0", "10.0.0.1", 11));
    mirror.apply(KERNEL, neighbour("10.0.0.1", 11, 1));
    let expected = Adjacency::ethernet(0, [2, 1, 0, 0, 0, 1], [2, 0, 0, 0, 0, 11], IPV4);
    assert_eq!(mirror.main("8.8.8.8"), NextHop::Forward(expected));
    assert!(mirror.check().is_good());
}

#[test]
fn what_the_fast_path_cannot_do_is_punted() {
    let mut mirror = router();
    mirror.apply(KERNEL, neighbour("10.0.0.1", 1, 1));
    mirror.apply(KERNEL, neighbour("10.0.0.1", 9, 1));
    mirror.tell(via("192.0.2.0/24", "10.0.0.1", 9));
    mirror.tell(via("192.0.3.0/24", "10.0.0.1", 9));
    let encapsulated = Path { has_encapsulation: true, ..path("10.0.0.1", 1) };
    mirror.tell(route(key(MAIN, "192.0.4.0/24", 0), RouteKind::Unicast, Hops::Paths(vec![encapsulated])));
    mirror.tell(Route { mtu: Some(1280), ..via("192.0.5.0/24", "10.0.0.1", 1) });
    mirror.tell(of_kind(MAIN, "192.0.6.0/24", RouteKind::Unicast));
    mirror.tell(via("192.0.7.0/24", "10.0.0.1", 1));
    let with_tos = RouteKey { tos: 8, metric: 9, ..key(MAIN, "192.0.7.0/24", 0) };
    mirror.tell(route(with_tos, RouteKind::Unicast, Hops::Paths(vec![path("10.0.0.1", 1)])));
    for third in 2..8 {
        assert_eq!(mirror.main(&format!("192.0.{third}.1")), NextHop::Punt, "{third}");
    }
    assert_eq!(mirror.counted(Count::RoutesWithoutPath), 1);
    let through_wg0 = mirror.next_hops().find(|it| it.what == "via 10.0.0.1 dev wg0").unwrap();
    assert_eq!((through_wg0.routes, through_wg0.next_hop), (2, Some(NextHop::Punt)));
    mirror.apply(KERNEL, Change::RouteGone(with_tos));
    assert_eq!(mirror.main("192.0.7.1"), forward(0, 1, IPV4));
}

#[test]
fn a_prefix_with_a_route_that_only_linux_obeys_is_linuxs() {
    let mut mirror = router();
    mirror.apply(KERNEL, neighbour("fe80::1", 1, 1));
    let forwarded = forward(0, 1, IPV6);
    let plain = |prefix: &str| via(prefix, "fe80::1", 1);
    mirror.tell(plain("::/0"));
    mirror.tell(plain("2001:db8::/32"));
    mirror.tell(plain("2001:db8:1::/48"));
    let from = |from: &str, metric| RouteKey {
        from: Some(from.parse().unwrap()),
        ..key(MAIN, "2001:db8::/32", metric)
    };
    let of_some = [("fd77:a::/48", 0), ("fd77:b::/48", 0), ("fd77:b::/48", 900)]
        .map(|(net, metric)| Route { key: from(net, metric), ..plain("2001:db8::/32") });
    for (number, route) in of_some.iter().enumerate() {
        mirror.tell(route.clone());
        assert_eq!(mirror.main("2001:db8::1"), NextHop::Punt, "{number}");
        assert_eq!(mirror.main("2001:db8:1::1"), forwarded, "longer prefixes say it themselves");
        assert_eq!(mirror.main("2001:db9::1"), forwarded);
    }
    let problems: Vec<String> = mirror.route_problems().iter().map(ToString::to_string).collect();
    assert_eq!(
        problems,
        ["2001:db8::/32: a route is for some sources only (from fd77:a::/48), so packets to it go to Linux"]
    );
    // All routes to the prefix are Linux's, and the plain one is in force there.
    let of_prefix = mirror.routes().filter(|route| route.key.prefix.to_string() == "2001:db8::/32");
    let shown: Vec<_> = of_prefix.map(|route| (route.is_in_force, route.next_hop == PUNT)).collect();
    assert!(
        shown.iter().all(|(_, is_linuxs)| *is_linuxs) && shown.iter().any(|(rules, _)| *rules),
        "{shown:?}"
    );
    let shown: Vec<String> = mirror.routes().map(|route| route.to_string()).collect();
    assert!(
        shown.iter().any(|route| route.starts_with("2001:db8::/32 from fd77:b::/48 via fe80::1")),
        "{shown:?}"
    );
    for route in &of_some {
        assert_eq!(mirror.main("2001:db8::1"), NextHop::Punt);
        mirror.apply(KERNEL, Change::RouteGone(route.key));
    }
    assert_eq!(mirror.main("2001:db8::1"), forwarded);
    // Without a plain route packets of other sources fall back to a shorter prefix, which is Linux's to do.
    mirror.apply(KERNEL, Change::RouteGone(key(MAIN, "2001:db8::/32", 0)));
    mirror.tell(of_some[0].clone());
    assert_eq!(mirror.main("2001:db8::1"), NextHop::Punt);
    mirror.apply(KERNEL, Change::RouteGone(of_some[0].key));
    assert!(mirror.route_problems().is_empty());

    // Something unknown, of a route that would wait behind the best one.
    let unknown = Route {
        key: key(MAIN, "2001:db8:1::/48", 9),
        only_linux: Some(OnlyLinux::Attribute(99)),
        ..plain("2001:db8:1::/48")
    };
    mirror.tell(unknown.clone());
    assert_eq!(mirror.main("2001:db8:1::1"), NextHop::Punt);
    assert!(mirror.route_problems()[0].reason.starts_with("a route has the unknown attribute 99, so"));
    // It becomes an ordinary one, and back, and the best one changes meanwhile.
    mirror.tell(Route { only_linux: None, ..unknown.clone() });
    assert_eq!(mirror.main("2001:db8:1::1"), forwarded);
    mirror.tell(unknown.clone());
    mirror.tell(Route { mtu: Some(1300), ..plain("2001:db8:1::/48") });
    mirror.apply(KERNEL, Change::RouteGone(unknown.key));
    let problems: Vec<String> = mirror.route_problems().iter().map(ToString::to_string).collect();
    assert_eq!(problems, ["2001:db8:1::/48: its route has an MTU (1300), so packets to it go to Linux"]);
    // Not while it waits behind another.
    let first = Route { key: key(MAIN, "2001:db8:1::/48", 0), ..plain("2001:db8:1::/48") };
    mirror.tell(Route { mtu: Some(1300), key: key(MAIN, "2001:db8:1::/48", 9), ..first.clone() });
    mirror.tell(first);
    assert!(mirror.route_problems().is_empty());
    mirror.apply(KERNEL, Change::RouteGone(key(MAIN, "2001:db8:1::/48", 9)));
    mirror.tell(unknown.clone());
    assert_eq!(mirror.main("2001:db8:1::1"), NextHop::Punt);
    mirror.apply(KERNEL, Change::RouteGone(unknown.key));
    assert_eq!(mirror.main("2001:db8:1::1"), forwarded);
    assert!(mirror.route_problems().is_empty() && mirror.check().is_good());
}

#[test]
fn an_object_that_only_linux_obeys_is_punted_and_so_are_groups_of_it() {
    let mut mirror = router();
    mirror.apply(KERNEL, neighbour("10.0.0.1", 1, 1));
    let object = |id, kind| Change::Object(Object { id, kind });
    mirror.apply(KERNEL, object(1, ObjectKind::Path(path("10.0.0.1", 1))));
    mirror.apply(KERNEL, object(2, ObjectKind::Path(path("10.0.0.1", 1))));
    mirror.apply(KERNEL, object(3, ObjectKind::Group(vec![(1, 1), (2, 1)])));
    mirror.tell(route(key(MAIN, "192.0.2.0/24", 0), RouteKind::Unicast, Hops::Object(3)));
    assert_eq!(mirror.main("192.0.2.1"), forward(0, 1, IPV4));
    mirror.apply(KERNEL, object(2, ObjectKind::OnlyLinux(OnlyLinux::ObjectAttribute(99))));
    assert_eq!(mirror.main("192.0.2.1"), NextHop::Punt);
    mirror.apply(KERNEL, object(2, ObjectKind::Blackhole));
    mirror.apply(KERNEL, object(3, ObjectKind::OnlyLinux(OnlyLinux::GroupKind(1))));
    assert_eq!(mirror.main("192.0.2.1"), NextHop::Punt);
    let problems: Vec<String> = mirror.route_problems().iter().map(ToString::to_string).collect();
    assert_eq!(
        problems,
        ["next-hop object 3: it is a resilient group, so packets of its routes go to Linux"]
    );
    mirror.apply(KERNEL, object(3, ObjectKind::Group(vec![(1, 1)])));
    assert_eq!(mirror.main("192.0.2.1"), forward(0, 1, IPV4));
}

#[test]
fn kinds_and_tables_are_what_they_are_in_linux() {
    let mut mirror = router();
    mirror.tell(of_kind(MAIN, "0.0.0.0/0", RouteKind::Blackhole));
    mirror.tell(of_kind(MAIN, "10.1.0.0/16", RouteKind::Unreachable));
    mirror.tell(of_kind(MAIN, "10.2.0.0/16", RouteKind::Prohibit));
    mirror.tell(of_kind(MAIN, "10.3.0.0/16", RouteKind::Throw));
    mirror.tell(of_kind(255, "10.4.0.1/32", RouteKind::Local));
    mirror.tell(of_kind(255, "10.4.0.255/32", RouteKind::Broadcast));
    mirror.tell(of_kind(255, "2001:db8::/128", RouteKind::Anycast));
    mirror.tell(via("10.4.0.1/32", "", 1));
    assert_eq!(mirror.main("10.0.0.1"), NextHop::Blackhole);
    assert_eq!(mirror.main("10.1.0.1"), NextHop::Unreachable);
    assert_eq!(mirror.main("10.2.0.1"), NextHop::Prohibit);
    assert_eq!(mirror.main("10.3.0.1"), NextHop::NoRoute);
    assert_eq!(mirror.main("10.4.0.1"), NextHop::Local);
    assert_eq!(mirror.main("10.4.0.255"), NextHop::Broadcast);
    assert_eq!(mirror.main("2001:db8::"), NextHop::Local);
    mirror.apply(KERNEL, Change::RouteGone(key(255, "10.4.0.1/32", 0)));
    assert_eq!(mirror.main("10.4.0.1"), NextHop::Resolve(0));
}

#[test]
fn no_route_changes_loopback_multicast_and_link_local() {
    let mut mirror = router();
    mirror.apply(KERNEL, neighbour("10.0.0.1", 1, 1));
    mirror.apply(KERNEL, neighbour("fe80::7", 1, 1));
    for prefix in ["0.0.0.0/0", "224.0.0.0/4", "239.0.0.0/8", "127.0.0.1/32", "255.255.255.255/32"] {
        mirror.tell(via(prefix, "10.0.0.1", 1));
    }
    for prefix in ["::/0", "fe80::/64", "ff02::/16", "::1/128"] {
        mirror.tell(via(prefix, "", 1));
    }
    mirror.tell(of_kind(255, "fe80::1/128", RouteKind::Local));
    mirror.tell(via("203.0.113.0/24", "fe80::7", 1));
    assert_eq!(mirror.main("8.8.8.8"), forward(0, 1, IPV4));
    assert_eq!(mirror.main("239.1.1.1"), NextHop::Punt);
    assert_eq!(mirror.main("127.0.0.1"), NextHop::Blackhole);
    assert_eq!(mirror.main("0.1.2.3"), NextHop::Blackhole);
    assert_eq!(mirror.main("255.255.255.255"), NextHop::Broadcast);
    assert_eq!(mirror.main("::1"), NextHop::Blackhole);
    assert_eq!(mirror.main("ff02::1"), NextHop::Punt);
    assert_eq!(mirror.main("fe80::1"), NextHop::Local);
    // Not even to a known neighbour; but a gateway may have such an address.
    assert_eq!(mirror.main("fe80::7"), NextHop::Punt);
    assert_eq!(mirror.main("203.0.113.1"), forward(0, 1, IPV4));
}

#[test]
fn whoever_forwards_has_neighbours_asked_for_by_the_number_of_their_next_hop() {
    let mut mirror = router();
    mirror.apply(KERNEL, neighbour("10.0.0.3", 1, 3));
    mirror.tell(via("10.0.0.0/24", "", 1));
    mirror.tell(via("10.9.0.0/24", "", 9));
    let paths = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(|gateway| path(gateway, 1));
    mirror.tell(route(key(MAIN, "192.0.2.0/24", 0), RouteKind::Unicast, Hops::Paths(paths.into())));
    let state = NeighbourState::Failed;
    for address in ["10.0.0.1", "10.0.0.2"] {
        mirror
            .apply(KERNEL, Change::Neighbour(Neighbour { index: 1, address: ip(address), mac: None, state }));
    }
    mirror.take_neighbours_to_ask();
    for (destination, expected) in [
        // The host itself, through an interface that is not a port, and all gateways that are not known.
        ("10.0.0.77", vec![(1, ip("10.0.0.77"))]),
        ("10.9.0.1", vec![]),
        ("192.0.2.1", vec![(1, ip("10.0.0.1")), (1, ip("10.0.0.2"))]),
    ] {
        let number = mirror.number(destination);
        mirror.ask_about(number, ip(destination));
        assert_eq!(mirror.take_neighbours_to_ask(), expected, "{destination}");
    }
}

#[test]
fn neighbours_on_connected_networks_get_host_routes() {
    let mut mirror = router();
    mirror.apply(KERNEL, neighbour("10.0.0.7", 1, 7));
    mirror.apply(KERNEL, neighbour("10.0.0.8", 2, 8));
    mirror.apply(KERNEL, neighbour("10.9.0.1", 1, 9));
    assert_eq!(mirror.main("10.0.0.7"), NextHop::NoRoute);
    mirror.tell(via("10.0.0.0/24", "", 1));
    assert_eq!(mirror.main("10.0.0.7"), forward(0, 7, IPV4));
    assert_eq!(mirror.main("10.0.0.1"), NextHop::Resolve(0));
    // Found on another link, and on no connected network.
    assert_eq!(mirror.main("10.0.0.8"), NextHop::Resolve(0));
    assert_eq!(mirror.main("10.9.0.1"), NextHop::NoRoute);
    // The longest match leads elsewhere.
    mirror.tell(of_kind(MAIN, "10.0.0.0/29", RouteKind::Blackhole));
    assert_eq!(mirror.main("10.0.0.7"), NextHop::Blackhole);
    mirror.apply(KERNEL, Change::RouteGone(key(MAIN, "10.0.0.0/29", 0)));
    assert_eq!(mirror.main("10.0.0.7"), forward(0, 7, IPV4));
    mirror.tell(of_kind(MAIN, "10.0.0.7/32", RouteKind::Prohibit));
    assert_eq!(mirror.main("10.0.0.7"), NextHop::Prohibit);
    mirror.apply(KERNEL, Change::RouteGone(key(MAIN, "10.0.0.7/32", 0)));
    // A neighbour that fails, and the end of the network.
    let state = NeighbourState::Failed;
    let failed = Neighbour { index: 1, address: ip("10.0.0.7"), mac: None, state };
    mirror.apply(KERNEL, Change::Neighbour(failed));
    assert_eq!(mirror.main("10.0.0.7"), NextHop::Resolve(0));
    mirror.apply(KERNEL, neighbour("10.0.0.7", 1, 7));
    mirror.apply(KERNEL, Change::RouteGone(key(MAIN, "10.0.0.0/24", 0)));
    assert_eq!(mirror.main("10.0.0.7"), NextHop::NoRoute);
    // Peers of point-to-point links.
    mirror.tell(via("10.9.0.0/31", "", 1));
    assert_eq!(mirror.main("10.9.0.1"), forward(0, 9, IPV4));
    mirror.tell(via("10.0.0.8/32", "", 2));
    assert_eq!(mirror.main("10.0.0.8"), forward(1, 8, IPV4));
    // The interface is not a port any more.
    mirror.apply(KERNEL, Change::LinkGone(2));
    mirror.apply(KERNEL, Change::Link(link(2, "lan")));
    assert_eq!(mirror.main("10.0.0.8"), NextHop::Punt);
}

#[test]
fn the_lowest_metric_is_in_force_and_sources_are_apart() {
    let mut mirror = router();
    (1..4).for_each(|it| mirror.apply(KERNEL, neighbour(&format!("10.0.0.{it}"), 1, it)));
    let with_metric =
        |metric, gateway| Route { key: key(MAIN, "192.0.2.0/24", metric), ..via("192.0.2.0/24", gateway, 1) };
    mirror.tell(with_metric(20, "10.0.0.1"));
    mirror.apply(Source::Fpm, Change::Route(with_metric(20, "10.0.0.2")));
    mirror.tell(with_metric(30, "10.0.0.3"));
    assert_eq!(mirror.main("192.0.2.1"), forward(0, 1, IPV4));
    assert_eq!(mirror.routes().filter(|it| it.is_in_force).count(), 1);
    mirror.apply(KERNEL, Change::RouteGone(key(MAIN, "192.0.2.0/24", 20)));
    assert_eq!(mirror.main("192.0.2.1"), forward(0, 2, IPV4));
    mirror.forget(Source::Fpm);
    assert_eq!(mirror.main("192.0.2.1"), forward(0, 3, IPV4));
    mirror.tell(with_metric(5, "10.0.0.2"));
    assert_eq!(mirror.main("192.0.2.1"), forward(0, 2, IPV4));
}

#[test]
fn an_object_keeps_its_number_and_a_route_may_come_before_it() {
    let mut mirror = router();
    (1..4).for_each(|it| mirror.apply(KERNEL, neighbour(&format!("10.0.0.{it}"), 1, it)));
    let object = |id, kind| Change::Object(Object { id, kind });
    let by_object = route(key(MAIN, "192.0.2.0/24", 0), RouteKind::Unicast, Hops::Object(10));
    for source in [KERNEL, Source::Fpm] {
        mirror.apply(source, Change::Route(by_object.clone()));
        let waiting = |mirror: &Mirror| {
            mirror.counters().into_iter().find(|(what, _)| what.contains("wait")).unwrap().1
        };
        assert_eq!((mirror.main("192.0.2.1"), waiting(&mirror)), (NextHop::Punt, 1));
        let number = mirror.number("192.0.2.1");
        mirror.apply(source, object(10, ObjectKind::Group(vec![(1, 1), (2, 2)])));
        mirror.apply(source, object(1, ObjectKind::Path(path("10.0.0.1", 1))));
        mirror.apply(source, object(2, ObjectKind::Path(path("10.0.0.2", 1))));
        let all =
            |mirror: &mut Mirror| (0..256).map(|flow| mirror.flow("192.0.2.1", flow)).collect::<Vec<_>>();
        let before = all(&mut mirror);
        assert!(before.contains(&forward(0, 1, IPV4)) && before.contains(&forward(0, 2, IPV4)));
        assert_eq!((before.contains(&NextHop::Punt), waiting(&mirror)), (false, 0));
        // A third member takes flows of the others; no other flow moves.
        mirror.apply(source, object(3, ObjectKind::Path(path("10.0.0.3", 1))));
        mirror.apply(source, object(10, ObjectKind::Group(vec![(1, 1), (2, 2), (3, 1)])));
        let after = all(&mut mirror);
        let is_same_or_third = |(before, after)| before == after || after == &forward(0, 3, IPV4);
        assert!(before.iter().zip(&after).all(is_same_or_third) && before != after);
        mirror.apply(source, object(10, ObjectKind::Blackhole));
        assert_eq!((mirror.main("192.0.2.1"), mirror.number("192.0.2.1")), (NextHop::Blackhole, number));
        mirror.apply(source, Change::ObjectGone(10));
        // The kernel has flushed the route; zebra will say so itself.
        let expected = if source == KERNEL { NextHop::NoRoute } else { NextHop::Punt };
        assert_eq!(mirror.main("192.0.2.1"), expected);
    }
}

#[test]
fn a_dump_removes_what_it_does_not_name_and_nothing_before_it_ends() {
    let mut mirror = router();
    mirror.apply(KERNEL, neighbour("10.0.0.1", 1, 1));
    mirror.tell(via("192.0.2.0/24", "10.0.0.1", 1));
    mirror.tell(via("192.0.3.0/24", "10.0.0.1", 1));
    mirror.tell(via("2001:db8::/32", "fe80::1", 1));
    mirror.apply(Source::Fpm, Change::Route(via("192.0.4.0/24", "10.0.0.1", 1)));
    // A dump that was broken off, and another one.
    mirror.dump_begins(KERNEL, Part::Routes4);
    mirror.tell(via("192.0.3.0/24", "10.0.0.1", 1));
    mirror.dump_begins(KERNEL, Part::Routes4);
    mirror.tell(via("192.0.2.0/24", "10.0.0.1", 1));
    assert_eq!(mirror.main("192.0.3.1"), forward(0, 1, IPV4));
    mirror.dump_ends(KERNEL, Part::Routes4);
    let left: Vec<String> = mirror.routes().map(|it| it.key.prefix.to_string()).collect();
    assert_eq!(left, ["192.0.2.0/24", "192.0.4.0/24", "2001:db8::/32"]);
    assert_eq!(mirror.counted(Count::Swept), 1);
    mirror.apply(KERNEL, Change::Address(Address { index: 1, address: ip("10.0.0.9"), prefix_length: 24 }));
    let generation = mirror.local_address_generation();
    for part in [Part::Neighbours, Part::Addresses, Part::Links] {
        mirror.dump_begins(KERNEL, part);
        mirror.dump_ends(KERNEL, part);
    }
    assert_eq!((mirror.local_addresses().count(), mirror.neighbours().count()), (0, 0));
    assert!(
        mirror.local_address_generation() != generation && mirror.ports().all(|port| port.link.is_none())
    );
    assert_eq!(mirror.main("192.0.2.1"), NextHop::Punt);
}

#[test]
fn a_table_is_a_vrf_and_there_is_room_for_so_many() {
    let mut mirror = router();
    mirror.tables.most_fib_tables = 5;
    mirror.apply(KERNEL, neighbour("10.0.0.1", 1, 1));
    let in_table = |table| Route { key: key(table, "192.0.2.0/24", 0), ..via("192.0.2.0/24", "10.0.0.1", 1) };
    (1000..1010).for_each(|table| mirror.tell(in_table(table)));
    mirror.publish();
    assert_eq!(mirror.fib.tables().count(), 5);
    assert_eq!(mirror.counted(Count::TablesRefused), 6);
    assert_eq!(mirror.routes().filter(|it| !it.is_in_force).count(), 6);
    let vrf = mirror.fib.vrf_index(1000).unwrap();
    assert_eq!(mirror.fib.state().lookup4(vrf, 0xc000_0201, 0), &forward(0, 1, IPV4));
    assert_eq!(mirror.main("192.0.2.1"), NextHop::NoRoute);
    // A rule that leads to a table without room leaves packets to the kernel.
    mirror.apply(KERNEL, Change::Rule(rule(1, RuleAction::Table(1009))));
    assert_eq!(mirror.decide(0, "10.1.0.1", "192.0.2.1"), NextHop::Punt);
    let problems: Vec<String> = mirror.rule_problems().iter().map(ToString::to_string).collect();
    assert_eq!(problems.len(), 1);
    assert!(
        problems[0].starts_with("IPv4 rule 1: from all lookup 1009: the router has no room"),
        "{problems:?}"
    );
    // Empty tables go, and make room.
    (1000..1007).for_each(|table| mirror.apply(KERNEL, Change::RouteGone(key(table, "192.0.2.0/24", 0))));
    (0..3).for_each(|_| {
        mirror.publish();
    });
    assert_eq!(mirror.fib.tables().collect::<Vec<_>>(), [MAIN, 1007, 1008, 1009]);
    assert!(mirror.routes().all(|it| it.is_in_force));
    assert_eq!(mirror.decide(0, "10.1.0.1", "192.0.2.1"), forward(0, 1, IPV4));
}

#[test]
fn sources_in_local_networks_are_not_believed() {
    let mut mirror = router();
    let switches = Switches {
        forwards: [true; 2],
        rp_filter: 0,
        accepts_own: false,
        longest: [None; 2],
        is_in_vrf: false,
    };
    mirror.set_switches(1, switches);
    let check = |mirror: &Mirror| mirror.ports().next().unwrap().switches.unwrap().rp_filter;
    let kernels = |prefix, kind| Route { protocol: 2, ..of_kind(255, prefix, kind) };
    mirror.tell(kernels("10.0.0.100/32", RouteKind::Local));
    mirror.tell(kernels("10.0.0.255/32", RouteKind::Broadcast));
    mirror.tell(kernels("127.0.0.0/8", RouteKind::Local));
    mirror.tell(kernels("2001:db8::/64", RouteKind::Local));
    assert_eq!(check(&mirror), 0);
    for route in [
        kernels("192.0.2.0/24", RouteKind::Local),
        of_kind(255, "192.0.2.1/32", RouteKind::Local),
        of_kind(MAIN, "192.0.2.0/24", RouteKind::Broadcast),
        of_kind(MAIN, "192.0.2.0/24", RouteKind::Multicast),
    ] {
        let before = mirror.link_generations();
        mirror.tell(route.clone());
        mirror.tell(route.clone());
        assert!(check(&mirror) == NOT_OF_HOST && mirror.link_generations() != before, "{route:?}");
        mirror.apply(KERNEL, Change::RouteGone(route.key));
        assert_eq!(check(&mirror), 0, "{route:?}");
    }
    // With accept_local Linux asks no table.
    mirror.set_switches(1, Switches { accepts_own: true, ..switches });
    let route = of_kind(255, "192.0.2.0/24", RouteKind::Local);
    mirror.tell(route.clone());
    assert_eq!(check(&mirror), 0);
    mirror.set_switches(1, switches);
    assert_eq!(check(&mirror), NOT_OF_HOST);
    mirror.apply(KERNEL, Change::RouteGone(route.key));
    // Without an IPv4 address "loose" is strict, but in a VRF.
    let has_address = |mirror: &mut Mirror, is_there| {
        let address = Address { index: 1, address: ip("10.0.0.100"), prefix_length: 24 };
        mirror.apply(KERNEL, if is_there { Change::Address(address) } else { Change::AddressGone(address) });
    };
    for (is_in_vrf, is_there, expected) in [(false, false, 1), (false, true, 2), (true, false, 2)] {
        mirror.set_switches(1, Switches { rp_filter: 2, is_in_vrf, ..switches });
        has_address(&mut mirror, is_there);
        assert_eq!(check(&mirror), expected, "{is_in_vrf} {is_there}");
    }
}

#[test]
fn networks_in_table_local_hide_the_main_table_over_ipv6() {
    let mut mirror = router_with_rules();
    for (priority, table) in [(0, 255), (32766, MAIN)] {
        let rule = Rule { version: IpVersion::V6, ..rule(priority, RuleAction::Table(table)) };
        mirror.apply(KERNEL, Change::Rule(rule));
    }
    mirror.apply(KERNEL, neighbour("fe80::1", 1, 1));
    let decided = |mirror: &mut Mirror| {
        mirror.publish();
        let ruled = mirror.route_by_rules(Some(0), Some(ip("2001:db8::1")), ip("2001:db8:1::1")).unwrap();
        let Decision::Route(number) = ruled.decision else { panic!("{ruled:?}") };
        mirror.fib().next_hops().get(number).unwrap()
    };
    mirror.tell(via("2001:db8:1::/64", "fe80::1", 1));
    mirror.tell(of_kind(255, "2001:db8::7/128", RouteKind::Local));
    assert_eq!(decided(&mut mirror), forward(0, 1, IPV6));
    assert!(mirror.policy().ipv6.is_main_only());
    let network = of_kind(255, "2001:db8::/32", RouteKind::Blackhole);
    mirror.tell(network.clone());
    assert_eq!(decided(&mut mirror), NextHop::Blackhole);
    assert!(mirror.policy().ipv4.is_main_only());
    mirror.apply(KERNEL, Change::RouteGone(network.key));
    assert_eq!(decided(&mut mirror), forward(0, 1, IPV6));
}

#[test]
fn networks_in_table_local_hide_the_main_table_over_ipv4_once_there_is_a_rule() {
    let mut mirror = router_with_rules();
    let decided = |mirror: &mut Mirror| {
        mirror.publish();
        mirror.route_by_rules(Some(0), Some(ip("10.1.0.1")), ip("8.8.8.8")).unwrap().decision
    };
    mirror.apply(KERNEL, Change::RuleGone(Rule { is_l3mdev: true, ..rule(1000, RuleAction::Table(0)) }));
    let before = decided(&mut mirror);
    // Of what is not a port.
    let of_other = Rule { input: Some("br0".into()), ..rule(101, RuleAction::Table(100)) };
    for kind in [RouteKind::Broadcast, RouteKind::Blackhole] {
        let network = of_kind(255, "8.0.0.0/8", kind);
        mirror.tell(via("8.8.8.0/24", "10.0.0.2", 1));
        mirror.tell(network.clone());
        let by_prefix = decided(&mut mirror);
        assert!(by_prefix != before && mirror.policy().ipv4.is_main_only());
        mirror.apply(KERNEL, Change::Rule(of_other.clone()));
        assert_ne!(decided(&mut mirror), by_prefix, "{kind:?}");
        mirror.apply(KERNEL, Change::RouteGone(network.key));
        assert_eq!(decided(&mut mirror), by_prefix, "{kind:?}");
        mirror.apply(KERNEL, Change::RuleGone(of_other.clone()));
        // So it is where one of the kernel's own is gone.
        mirror.tell(network.clone());
        let default = rule(32767, RuleAction::Table(253));
        mirror.apply(KERNEL, Change::RuleGone(default.clone()));
        assert_ne!(decided(&mut mirror), by_prefix, "{kind:?}");
        mirror.apply(KERNEL, Change::Rule(default));
        assert_eq!(decided(&mut mirror), by_prefix, "{kind:?}");
        mirror.apply(KERNEL, Change::RouteGone(network.key));
    }
}

fn rule(priority: u32, action: RuleAction) -> Rule {
    Rule {
        version: IpVersion::V4,
        priority,
        action,
        from: None,
        to: None,
        input: None,
        suppress_prefix_length: None,
        is_inverted: false,
        is_l3mdev: false,
        mark: None,
        has_other_selectors: false,
    }
}

/// A router with the kernel's own rules, a default route, and one to everywhere in table 100.
fn router_with_rules() -> Mirror {
    let mut mirror = router();
    (1..3).for_each(|it| mirror.apply(KERNEL, neighbour(&format!("10.0.0.{it}"), 1, it)));
    for (priority, table) in [(0, 255), (32766, MAIN), (32767, 253)] {
        mirror.apply(KERNEL, Change::Rule(rule(priority, RuleAction::Table(table))));
    }
    mirror.apply(KERNEL, Change::Rule(Rule { is_l3mdev: true, ..rule(1000, RuleAction::Table(0)) }));
    mirror.tell(of_kind(255, "10.0.0.100/32", RouteKind::Local));
    mirror.tell(via("0.0.0.0/0", "10.0.0.1", 1));
    mirror.tell(Route { key: key(100, "0.0.0.0/0", 0), ..via("0.0.0.0/0", "10.0.0.2", 1) });
    mirror.publish();
    assert!(mirror.policy().ipv4.is_main_only() && mirror.policy().ipv6.is_main_only());
    mirror
}

#[test]
fn rules_decide_which_table_is_asked() {
    let mut mirror = router_with_rules();
    let (first, second) = (forward(0, 1, IPV4), forward(0, 2, IPV4));
    let by_source = Rule { from: Some("10.1.0.0/16".parse().unwrap()), ..rule(100, RuleAction::Table(100)) };
    mirror.apply(KERNEL, Change::Rule(by_source.clone()));
    assert_eq!(mirror.decide(0, "10.1.0.1", "8.8.8.8"), second);
    assert_eq!(mirror.decide(0, "10.2.0.1", "8.8.8.8"), first);
    assert_eq!(mirror.decide(0, "10.1.0.1", "10.0.0.100"), NextHop::Local);
    assert!(!mirror.policy().ipv4.is_main_only() && mirror.policy().ipv6.is_main_only());
    mirror.apply(KERNEL, Change::RuleGone(by_source));
    assert_eq!(mirror.decide(0, "10.1.0.1", "8.8.8.8"), first);
    assert!(mirror.policy().ipv4.is_main_only());
    mirror.publish();
    assert_eq!(mirror.fib.tables().collect::<Vec<_>>(), [100, MAIN]);

    // By port, and with a jump over a rule that would drop.
    let by_port = Rule { input: Some("eth1".into()), ..rule(10, RuleAction::Goto(30)) };
    mirror.apply(KERNEL, Change::Rule(by_port));
    mirror.apply(KERNEL, Change::Rule(rule(20, RuleAction::Prohibit)));
    mirror.apply(KERNEL, Change::Rule(rule(30, RuleAction::Nop)));
    assert_eq!(mirror.decide(0, "10.1.0.1", "8.8.8.8"), NextHop::Prohibit);
    assert_eq!(mirror.decide(1, "10.1.0.1", "8.8.8.8"), first);
    // Of an interface that is not a port.
    mirror.apply(KERNEL, Change::Rule(Rule { input: Some("wg0".into()), ..rule(5, RuleAction::Blackhole) }));
    assert_eq!(mirror.decide(0, "10.1.0.1", "8.8.8.8"), NextHop::Prohibit);
}

#[test]
fn the_rules_of_a_tunnel_with_a_mark_are_obeyed() {
    // As wg-quick makes them: table 100 for all packets that are not the tunnel's own, but main's routes first, if they
    // are more than the default route.
    let mut mirror = router_with_rules();
    mirror.tell(via("10.7.0.0/16", "10.0.0.1", 1));
    let suppress = Rule { suppress_prefix_length: Some(0), ..rule(90, RuleAction::Table(MAIN)) };
    let unmarked =
        Rule { mark: Some((0xca6c, u32::MAX)), is_inverted: true, ..rule(100, RuleAction::Table(100)) };
    mirror.apply(KERNEL, Change::Rule(suppress));
    mirror.apply(KERNEL, Change::Rule(unmarked));
    assert_eq!(mirror.decide(0, "10.1.0.1", "8.8.8.8"), forward(0, 2, IPV4));
    assert_eq!(mirror.decide(0, "10.1.0.1", "10.7.0.1"), forward(0, 1, IPV4));
    assert_eq!(mirror.decide(0, "10.1.0.1", "10.0.0.100"), NextHop::Local);
    // What may be selected by something unknown is the kernel's.
    let unknown = Rule { has_other_selectors: true, ..rule(80, RuleAction::Table(100)) };
    mirror.apply(KERNEL, Change::Rule(unknown));
    assert_eq!(mirror.decide(0, "10.1.0.1", "8.8.8.8"), NextHop::Punt);
    let problems = mirror.rule_problems();
    assert_eq!(problems.len(), 1);
    assert!(problems[0].reason.starts_with("IPv4 rule 80: from all lookup 100: it selects by more than"));
}

#[test]
fn what_a_rule_by_marks_may_select_is_linuxs_while_marks_may_be_set() {
    let mut mirror = router_with_rules();
    let by_mark = Rule {
        mark: Some((0x100, 0x3f00)),
        from: Some("10.1.0.0/16".parse().unwrap()),
        ..rule(100, RuleAction::Table(100))
    };
    mirror.apply(KERNEL, Change::Rule(by_mark));
    let first = forward(0, 1, IPV4);
    assert_eq!(mirror.decide(0, "10.1.0.1", "8.8.8.8"), first, "nothing sets marks");
    assert!(mirror.rule_problems().is_empty());
    assert!(mirror.set_marks(true));
    assert!(!mirror.set_marks(true), "that is no news");
    assert_eq!(mirror.decide(0, "10.1.0.1", "8.8.8.8"), NextHop::Punt);
    assert_eq!(mirror.decide(0, "10.2.0.1", "8.8.8.8"), first, "it cannot select these");
    assert_eq!(mirror.decide(0, "10.1.0.1", "10.0.0.100"), NextHop::Local, "decided before");
    let problems: Vec<String> = mirror.rule_problems().iter().map(ToString::to_string).collect();
    let expected = "IPv4 rule 100: from 10.1.0.0/16 fwmark 0x100/0x3f00 lookup 100: Linux's rules may mark packets, so what it may \
                    select goes to Linux";
    assert_eq!(problems, [expected]);
    // One that selects what has no mark, and one that selects what has another one.
    for (mark, is_inverted) in [((0, 0xff), false), ((7, u32::MAX), true)] {
        let other = Rule { mark: Some(mark), is_inverted, ..rule(50, RuleAction::Table(100)) };
        mirror.apply(KERNEL, Change::Rule(other.clone()));
        assert_eq!(mirror.decide(0, "10.2.0.1", "8.8.8.8"), NextHop::Punt);
        mirror.apply(KERNEL, Change::RuleGone(other));
    }
    assert!(mirror.set_marks(false));
    assert_eq!(mirror.decide(0, "10.1.0.1", "8.8.8.8"), first);
}

#[test]
fn what_a_rule_with_an_unknown_action_selects_is_linuxs() {
    let mut mirror = router_with_rules();
    let unknown = Rule { to: Some("8.0.0.0/8".parse().unwrap()), ..rule(100, RuleAction::Unknown(4)) };
    mirror.apply(KERNEL, Change::Rule(unknown));
    assert_eq!(mirror.decide(0, "10.1.0.1", "8.8.8.8"), NextHop::Punt);
    assert_eq!(mirror.decide(0, "10.1.0.1", "9.9.9.9"), forward(0, 1, IPV4));
    assert!(
        mirror.rule_problems()[0].reason.ends_with("its action is unknown, so what it selects goes to Linux")
    );
}

#[test]
fn the_rules_that_every_kernel_has_are_no_problem() {
    let mut mirror = router_with_rules();
    for local_or_main in [rule(0, RuleAction::Table(255)), rule(32_766, RuleAction::Table(MAIN))] {
        mirror.apply(KERNEL, Change::Rule(Rule { version: IpVersion::V6, ..local_or_main.clone() }));
        mirror.apply(KERNEL, Change::Rule(local_or_main));
    }
    mirror.publish();
    let problems: Vec<String> = mirror.rule_problems().iter().map(ToString::to_string).collect();
    assert_eq!(problems, Vec::<String>::new());
}

#[test]
fn people_ask_what_the_rules_say() {
    let mut mirror = router_with_rules();
    let by_source = Rule { from: Some("10.1.0.0/16".parse().unwrap()), ..rule(100, RuleAction::Table(100)) };
    let by_port = Rule { input: Some("eth1".into()), ..rule(90, RuleAction::Prohibit) };
    mirror.apply(KERNEL, Change::Rule(by_source));
    mirror.apply(KERNEL, Change::Rule(by_port));
    mirror.publish();
    let ask = |port, from: &str, to: &str| {
        let ruled = mirror.route_by_rules(port, Some(from).filter(|it| !it.is_empty()).map(ip), ip(to));
        let ruled = ruled.unwrap();
        (ruled.decision, ruled.found.map(|(table, found)| (table, found.prefix.to_string())))
    };
    let route = |(decision, found): (Decision, Option<(u32, String)>)| {
        assert!(matches!(decision, Decision::Route(_)));
        found.unwrap()
    };
    assert_eq!(route(ask(None, "", "8.8.8.8")), (MAIN, "0.0.0.0/0".into()));
    assert_eq!(route(ask(Some(0), "10.1.2.3", "8.8.8.8")), (100, "0.0.0.0/0".into()));
    // Table local is asked for first; its part of the FIB has a number of its own.
    assert_eq!(route(ask(Some(0), "10.1.2.3", "10.0.0.100")), (MAIN, "10.0.0.100/32".into()));
    assert_eq!(ask(Some(1), "", "8.8.8.8"), (Decision::Prohibit, None));
    assert_eq!(ask(Some(1), "::1", "2001:db8::1"), (Decision::NoRoute, None));
    assert!(mirror.route_by_rules(None, Some(ip("::1")), ip("8.8.8.8")).is_none());
    assert!(mirror.rule_problems().is_empty());
}

#[test]
fn ports_in_a_vrf_are_routed_by_its_table() {
    let mut mirror = router_with_rules();
    mirror.apply(KERNEL, Change::Link(Link { vrf_table: Some(100), ..link(20, "red") }));
    mirror.apply(KERNEL, Change::Link(Link { master: Some(20), ..link(2, "eth1") }));
    assert_eq!(mirror.decide(1, "10.1.0.1", "8.8.8.8"), forward(0, 2, IPV4));
    assert_eq!(mirror.decide(0, "10.1.0.1", "8.8.8.8"), forward(0, 1, IPV4));
    assert!(mirror.asks_local_first(IpVersion::V4) && !mirror.asks_local_first(IpVersion::V6));
    let moved = rule(0, RuleAction::Table(255));
    mirror.apply(KERNEL, Change::Rule(Rule { priority: 32_765, ..moved.clone() }));
    mirror.apply(KERNEL, Change::RuleGone(moved));
    assert!(!mirror.asks_local_first(IpVersion::V4));
    // Without a route there the next rules are asked, as in Linux.
    mirror.apply(KERNEL, Change::RouteGone(key(100, "0.0.0.0/0", 0)));
    assert_eq!(mirror.decide(1, "10.1.0.1", "8.8.8.8"), forward(0, 1, IPV4));
    assert!(mirror.fib.vrf_index(100).is_some(), "a VRF keeps its table");
    // Its packets come in by the VRF, and so rules name that.
    assert_eq!((mirror.links.ports_of_input("eth1"), mirror.links.ports_of_input("red")), (vec![], vec![1]));
    assert_eq!((mirror.vrf_name(2), mirror.vrf_name(1), mirror.vrf_name(20)), (Some("red"), None, None));
    mirror.apply(KERNEL, Change::Link(link(2, "eth1")));
    mirror.publish();
    assert!(mirror.policy().ipv4.is_main_only());
    assert_eq!(mirror.links.ports_of_input("eth1"), [1]);
}

#[test]
fn more_next_hops_than_there_are_numbers_are_punted_and_said() {
    let mut mirror = router();
    let object = |kind| Change::Object(Object { id: 7, kind });
    mirror.apply(KERNEL, object(ObjectKind::Blackhole));
    mirror.tell(route(key(MAIN, "12.0.0.0/8", 0), RouteKind::Unicast, Hops::Object(7)));
    for number in 0..33_000u32 {
        let gateway = IpAddr::from([10, (number >> 16) as u8, (number >> 8) as u8, number as u8]);
        let prefix = IpAddr::from([11, (number >> 16) as u8, (number >> 8) as u8, number as u8]);
        let paths = Hops::Paths(vec![Path { gateway: Some(gateway), ..path("", 1) }]);
        mirror.tell(route(key(MAIN, &format!("{prefix}/32"), 0), RouteKind::Unicast, paths));
    }
    mirror.apply(KERNEL, neighbour("10.0.128.200", 1, 3));
    assert_eq!(mirror.main("11.0.128.200"), NextHop::Punt);
    assert!(mirror.counted(Count::NextHopsRefused) > 200);
    assert!(mirror.problems().last().unwrap().to_string().contains("next-hop numbers are in use"));
    assert_eq!(mirror.problems().count(), 1);
    // An object that has a number finds none for its path.
    mirror.apply(KERNEL, object(ObjectKind::Path(path("10.9.0.1", 1))));
    mirror.apply(KERNEL, neighbour("10.9.0.1", 1, 4));
    assert_eq!(mirror.main("12.0.0.1"), NextHop::Punt);
    assert!(!mirror.has_room_again());
    // With room again, a route that is told again gets its own.
    for number in 0..1_100u32 {
        let [_, _, high, low] = number.to_be_bytes();
        mirror.apply(KERNEL, Change::RouteGone(key(MAIN, &format!("11.0.{high}.{low}/32"), 0)));
    }
    assert!(mirror.has_room_again() && !mirror.has_room_again());
    assert_eq!(mirror.problems().count(), 0);
    assert_eq!(mirror.main("12.0.0.1"), forward(0, 4, IPV4), "that of an object does so at once");
    mirror.tell(via("11.0.128.200/32", "10.0.128.200", 1));
    assert_eq!(mirror.main("11.0.128.200"), forward(0, 3, IPV4));
    mirror.forget(KERNEL);
    mirror.publish();
    assert_eq!(mirror.fib.next_hops().len(), 6);
}

#[test]
fn nonsense_is_counted_and_disturbs_nothing() {
    let mut mirror = router();
    mirror.apply(KERNEL, neighbour("10.0.0.1", 1, 1));
    mirror.tell(via("192.0.2.77/24", "10.0.0.1", 1));
    assert_eq!((mirror.main("192.0.2.1"), mirror.counted(Count::HostBits)), (forward(0, 1, IPV4), 1));
    mirror.apply(Source::Fpm, Change::LinkGone(1));
    mirror.apply(Source::Fpm, neighbour("10.0.0.1", 1, 5));
    assert_eq!((mirror.main("192.0.2.1"), mirror.counted(Count::NotForSource)), (forward(0, 1, IPV4), 2));
    mirror.apply(KERNEL, Change::LinkGone(77));
    mirror.apply(KERNEL, Change::ObjectGone(77));
    mirror.apply(KERNEL, Change::NeighbourGone(77, ip("10.0.0.1")));
    mirror.apply(KERNEL, Change::RouteGone(key(77, "10.0.0.0/8", 0)));
    mirror.apply(KERNEL, Change::RuleGone(rule(77, RuleAction::Nop)));
    assert_eq!(mirror.counted(Count::GoneUnknown), 5);
    let members = (0..600).map(|id| (id, 1)).collect();
    for id in 0..600 {
        let gateway = ip(&format!("10.1.{}.{}", id / 256, id % 256));
        let kind = ObjectKind::Path(Path { gateway: Some(gateway), ..path("", 1) });
        mirror.apply(KERNEL, Change::Object(Object { id, kind }));
    }
    mirror.apply(KERNEL, Change::Object(Object { id: 1000, kind: ObjectKind::Group(members) }));
    mirror.tell(route(key(MAIN, "192.0.3.0/24", 0), RouteKind::Unicast, Hops::Object(1000)));
    assert_eq!(mirror.main("192.0.3.1"), NextHop::Punt);
    assert!(mirror.problems().last().unwrap().reason.contains("600 members are too many"));
}

#[test]
fn drift_names_the_routes_that_differ() {
    let mut mirror = router();
    let dump = |source, routes: &[Route]| {
        let mut told = Told::by(source);
        routes.iter().rev().cloned().for_each(|route| told.apply(Change::Route(route)));
        told
    };
    let told = [
        via("192.0.2.0/24", "10.0.0.1", 1),
        via("192.0.3.0/24", "10.0.0.1", 1),
        via("2001:db8::/32", "fe80::1", 1),
    ];
    told.iter().for_each(|route| mirror.tell(route.clone()));
    assert_eq!(mirror.digests(), dump(KERNEL, &told).digests());
    let parts = [Part::Routes4, Part::Routes6];
    let none = Drift { compared: 3, differing: 0, differences: Vec::new() };
    assert_eq!(mirror.drift(&parts, dump(KERNEL, &told), 10), none);
    assert_eq!(mirror.drift(&parts, dump(Source::Fpm, &[]), 10).compared, 0);
    let mut other = dump(
        KERNEL,
        &[via("192.0.2.0/24", "10.0.0.9", 1), via("192.0.4.0/24", "10.0.0.1", 1), told[1].clone()],
    );
    other.apply(Change::RouteGone(told[1].key));
    let drift = mirror.drift(&parts[..1], other.clone(), 10);
    let lines: Vec<String> = drift.differences.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "192.0.2.0/24 table 254 metric 0: the mirror has another target",
            "192.0.3.0/24 table 254 metric 0: only the mirror has it",
            "192.0.4.0/24 table 254 metric 0: the mirror has it not",
        ]
    );
    let drift = mirror.drift(&parts, other, 1);
    assert_eq!((drift.compared, drift.differing, drift.differences.len()), (4, 4, 1));

    // What makes a route Linux's, and for which sources it is, count; so does a message that could not be read.
    let unknown = Route { only_linux: Some(OnlyLinux::Attribute(99)), ..told[0].clone() };
    let from = Some("fd77::/64".parse().unwrap());
    let of_some = Route { key: RouteKey { from, ..told[2].key }, ..told[2].clone() };
    let drift = mirror.drift(&parts, dump(KERNEL, &[unknown, told[1].clone(), told[2].clone(), of_some]), 10);
    assert_eq!(
        drift.differences,
        [Difference::Other(told[0].key), Difference::OnlyAtSource(RouteKey { from, ..told[2].key })]
    );
    let mut unread = dump(KERNEL, &told);
    unread.set_unread(1);
    assert_eq!(mirror.drift(&parts, unread, 10).differing, 1);
}

#[test]
fn people_read_what_ip_prints() {
    let mut mirror = router();
    mirror.apply(KERNEL, neighbour("10.0.0.7", 1, 7));
    mirror.tell(via("10.0.0.0/24", "", 1));
    let paths = vec![path("10.0.0.1", 1), Path { weight: 3, ..path("10.0.0.2", 9) }];
    mirror.tell(route(key(MAIN, "192.0.2.0/24", 20), RouteKind::Unicast, Hops::Paths(paths)));
    mirror.tell(of_kind(100, "0.0.0.0/0", RouteKind::Blackhole));
    let lines: Vec<String> = mirror.routes().map(|it| it.to_string()).collect();
    assert_eq!(
        lines,
        [
            "blackhole 0.0.0.0/0 table 100 proto 4 source netlink",
            "10.0.0.0/24 dev eth0 proto 4 source netlink",
            "192.0.2.0/24 nexthop via 10.0.0.1 dev eth0 weight 1 nexthop via 10.0.0.2 dev wg0 weight 3 proto 4 metric 20 \
         source netlink",
        ]
    );
    let found = |address: &str| mirror.route_for(MAIN, ip(address)).unwrap();
    assert!(matches!(found("10.0.0.7").by, FoundBy::Neighbour(interface) if interface == "eth0"));
    assert!(matches!(found("10.0.0.8").by, FoundBy::Route(route) if route.paths == ["dev eth0"]));
    assert!(matches!(found("224.0.0.1").by, FoundBy::Fixed));
    assert!(mirror.route_for(MAIN, ip("8.8.8.8")).is_none());
    let port = mirror.ports().next().unwrap();
    assert_eq!((port.port, &*port.name, port.link.unwrap().mtu), (0, "eth0", 1500));
    let neighbour = mirror.neighbours().next().unwrap();
    assert!(neighbour.is_used && neighbour.interface == "eth0");
    let group = mirror.next_hops().find(|it| it.what == "group").unwrap();
    assert_eq!((group.members.len(), group.routes, group.next_hop), (2, 1, None));
}

#[test]
fn a_vlan_leaves_by_the_port_below_it_with_a_tag() {
    let ports = [("eth0", 0), ("eth0.100", 1), ("eth1", 2)].map(|(name, port)| (name.to_owned(), port));
    let mut mirror = Mirror::new(ports).unwrap();
    mirror.set_vlan(VlanPort { port: 1, parent: 0, vlan: 100 });
    let vlan =
        |is_up| Link { kind: "vlan".into(), vlan: Some(100), below: Some(1), is_up, ..link(5, "eth0.100") };
    mirror.apply(KERNEL, Change::Link(link(1, "eth0")));
    mirror.apply(KERNEL, Change::Link(vlan(true)));
    mirror.tell(via("10.0.0.0/24", "10.9.0.2", 5));
    mirror.tell(via("2001:db8::/32", "2001:db8:9::2", 5));
    mirror.apply(KERNEL, neighbour("10.9.0.2", 5, 7));
    mirror.apply(KERNEL, neighbour("2001:db8:9::2", 5, 7));
    let tagged = |ethertype| {
        NextHop::Forward(Adjacency::tagged(1, [2, 1, 0, 0, 0, 7], [2, 0, 0, 0, 0, 5], 100, ethertype))
    };
    assert_eq!(mirror.main("10.0.0.1"), tagged(IPV4));
    assert_eq!(mirror.main("2001:db8::1"), tagged(IPV6));
    // Priorities in its tags are Linux's to write.
    for (has_priorities, expected) in [(true, NextHop::Punt), (false, tagged(IPV4))] {
        mirror.apply(KERNEL, Change::Link(Link { has_priorities, ..vlan(true) }));
        assert_eq!(mirror.main("10.0.0.1"), expected);
    }
    // The rule `iif eth0.100` means it and not the port below.
    assert_eq!(mirror.links.ports_of_input("eth0.100"), [1]);

    // Without the port below Linux is asked, whatever the VLAN's own interface says.
    mirror.apply(KERNEL, Change::Link(Link { has_carrier: false, ..link(1, "eth0") }));
    assert_eq!(mirror.main("10.0.0.1"), NextHop::Punt);
    mirror.apply(KERNEL, Change::Link(link(1, "eth0")));
    assert_eq!(mirror.main("10.0.0.1"), tagged(IPV4));
    mirror.apply(KERNEL, Change::LinkGone(1));
    assert_eq!(mirror.main("10.0.0.1"), NextHop::Punt);
    mirror.apply(KERNEL, Change::Link(link(1, "eth0")));
    mirror.apply(KERNEL, Change::Link(vlan(false)));
    assert_eq!(mirror.main("10.0.0.1"), NextHop::Punt);
}

#[test]
fn a_renamed_interface_is_the_port_and_another_of_its_old_name_is_not() {
    let mut mirror = router();
    let named = |index, name: &str| Change::Link(link(index, name));
    let goes_by = |mirror: &mut Mirror| match mirror.main("10.9.0.1") {
        NextHop::Forward(adjacency) => Some(adjacency.port()),
        _ => None,
    };
    mirror.apply(KERNEL, named(2, "eth1"));
    mirror.tell(via("10.9.0.0/16", "10.1.0.2", 2));
    mirror.apply(KERNEL, neighbour("10.1.0.2", 2, 7));
    assert_eq!(goes_by(&mut mirror), Some(1));
    mirror.apply(KERNEL, named(2, "wan0"));
    assert_eq!(goes_by(&mut mirror), Some(1));
    assert_eq!(mirror.crossed_ports().count(), 0);
    // As in Linux, a rule means the interface that has the name now.
    assert_eq!((mirror.links.ports_of_input("wan0"), mirror.links.ports_of_input("eth1")), (vec![1], vec![]));

    // Another one with the old name is the kernel's.
    mirror.apply(KERNEL, named(9, "eth1"));
    assert!(mirror.links.ports_of_input("eth1").is_empty());
    mirror.tell(via("10.9.0.0/16", "10.1.0.2", 9));
    assert_eq!(mirror.main("10.9.0.1"), NextHop::Punt);
    assert_eq!(Vec::from_iter(mirror.crossed_ports()), [("eth1".to_owned(), "wan0".to_owned())]);

    // Until the port's own is gone.
    mirror.apply(KERNEL, Change::LinkGone(2));
    assert_eq!(mirror.links.ports_of_input("eth1"), [1]);
    mirror.apply(KERNEL, neighbour("10.1.0.2", 9, 7));
    assert_eq!(goes_by(&mut mirror), Some(1));
}

#[test]
fn a_rename_that_only_a_dump_tells_is_followed() {
    let mut mirror = router();
    for (index, name) in [(1, "eth0"), (2, "eth1")] {
        mirror.apply(KERNEL, Change::Link(link(index, name)));
    }
    // Two have swapped their names.
    mirror.dump_begins(KERNEL, Part::Links);
    for (index, name) in [(1, "eth1"), (2, "eth0"), (3, "eth2")] {
        mirror.apply(KERNEL, Change::Link(link(index, name)));
    }
    mirror.dump_ends(KERNEL, Part::Links);
    assert_eq!([1, 2, 3].map(|index| mirror.links.port(index)), [Some(0), Some(1), Some(2)]);
    // One is gone, and one that was there before the dump ended has its name.
    mirror.dump_begins(KERNEL, Part::Links);
    for (index, name) in [(4, "eth1"), (2, "eth0")] {
        mirror.apply(KERNEL, Change::Link(link(index, name)));
    }
    assert_eq!(mirror.links.port(4), None);
    mirror.dump_ends(KERNEL, Part::Links);
    assert_eq!([4, 2].map(|index| mirror.links.port(index)), [Some(0), Some(1)]);
}
