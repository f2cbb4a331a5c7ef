//! Rows of `ip route` as iproute2 prints them, good and bad.

#![allow(clippy::unwrap_used, reason = "a test")]

use super::*;
use proptest::prelude::*;

fn read(text: &str) -> Vec<Result<(u64, IpRoute), IpRouteError>> {
    IpRoutes::new(text.as_bytes()).collect()
}

/// What is read, each as it prints itself behind its line's number; errors as they are.
fn shown(text: &str) -> Vec<String> {
    let show = |route: Result<(u64, IpRoute), IpRouteError>| match route {
        Ok((line, route)) => format!("{line}: {route}"),
        Err(error) => error.to_string(),
    };
    read(text).into_iter().map(show).collect()
}

/// As printed by iproute2 6.1 on a Debian 12 with two uplinks and a routing daemon.
#[test]
fn ipv4_of_a_router() {
    let text = "default via 192.0.2.1 dev eth0 proto dhcp src 192.0.2.7 metric 100 onlink
default proto bird metric 32
\tnexthop via 192.0.2.2 dev eth0 weight 1
\tnexthop via 198.51.100.1 dev eth1 weight 3 linkdown
10.0.0.0/8 via 192.0.2.9 dev eth0 mtu lock 1400 rto_min lock 40ms
10.9.0.1 dev eth2 scope link
10.10.0.0/16 nhid 12 via inet6 fe80::1 dev eth1 proto static
192.0.2.0/24 dev eth0 proto kernel scope link src 192.0.2.7
blackhole 198.51.100.0/24 proto static
unreachable default metric 4278198272
throw 203.0.113.0/24
local 192.0.2.7 dev eth0 table local proto kernel scope host src 192.0.2.7
broadcast 192.0.2.255 dev eth0 table local proto kernel scope link src 192.0.2.7
";
    assert_eq!(
        shown(text),
        [
            "1: 0.0.0.0/0 via 192.0.2.1 dev eth0 proto dhcp metric 100",
            "2: 0.0.0.0/0 proto bird metric 32 nexthop via 192.0.2.2 dev eth0 weight 1 \
             nexthop via 198.51.100.1 dev eth1 weight 3",
            "5: 10.0.0.0/8 via 192.0.2.9 dev eth0",
            "6: 10.9.0.1/32 dev eth2",
            "7: 10.10.0.0/16 via inet6 fe80::1 dev eth1 proto static",
            "8: 192.0.2.0/24 dev eth0 proto kernel",
            "9: blackhole 198.51.100.0/24 proto static",
            "10: unreachable 0.0.0.0/0 metric 4278198272",
            "11: throw 203.0.113.0/24",
            "12: local 192.0.2.7/32 dev eth0 table local proto kernel",
            "13: broadcast 192.0.2.255/32 dev eth0 table local proto kernel",
        ]
    );
}

#[test]
fn ipv6_and_one_line_rows() {
    let text = r"::1 dev lo proto kernel metric 256 pref medium
2001:db8::/32 via fe80::1 dev eth0 proto ra metric 1024 expires 1794sec hoplimit 64 pref medium
unreachable 2001:db8:9::/48 dev lo metric 1024 error -113 pref medium
fe80::/64 dev eth0 proto kernel metric 256 pref medium
default proto ra metric 1024 \	nexthop via fe80::1 dev eth0 weight 1 \	nexthop via fe80::2 dev eth1 weight 1 pref medium
default dev tun0 metric 2048 pref medium
";
    assert_eq!(
        shown(text),
        [
            "1: ::1/128 dev lo proto kernel metric 256",
            "2: 2001:db8::/32 via fe80::1 dev eth0 proto ra metric 1024",
            "3: unreachable 2001:db8:9::/48 dev lo metric 1024",
            "4: fe80::/64 dev eth0 proto kernel metric 256",
            "5: ::/0 proto ra metric 1024 nexthop via fe80::1 dev eth0 weight 1 nexthop via fe80::2 dev eth1 weight 1",
            "6: ::/0 dev tun0 metric 2048",
        ]
    );
}

/// The share of a hop counts beside others only.
#[test]
fn the_only_hop_has_no_weight() {
    let of = |text: &str| IpRoutes::new(text.as_bytes()).next().unwrap().unwrap().1;
    let route = of("203.0.113.0/24 proto bird\n\tnexthop via 192.0.2.9 dev eth1 weight 2\n");
    assert_eq!(route, of(&route.to_string()));
    assert_eq!(route.hops[0].weight, 1);
}

/// `default` is of the family that the row shows, else of the row before, else IPv4.
#[test]
fn the_family_of_default() {
    let text = "default dev a\ndefault via fe80::1 dev a\ndefault dev b\n10.0.0.0/8 dev c\ndefault dev d\n\
                default via inet6 fe80::1 dev e\ndefault dev f pref high\n";
    let families: Vec<bool> =
        read(text).into_iter().map(|route| route.unwrap().1.prefix.addr().is_ipv6()).collect();
    assert_eq!(families, [false, true, true, false, false, false, true]);
}

#[test]
fn a_bad_row_says_where_what_and_what_would_be_right() {
    let cases = [
        ("10.0.0.1/8 dev a", "line 2: '10.0.0.1/8' has host bits set; the network is 10.0.0.0/8"),
        (
            "10.0.0.0/33 dev a",
            "line 2: '10.0.0.0/33' has the length '33'; an IPv4 prefix length is a number of 0 to 32",
        ),
        (
            "10.0.0.0/8",
            "line 2: '10.0.0.0/8' has no next hop; a route has 'via ADDRESS', 'dev INTERFACE', 'nexthop ...' \
             or a type such as 'blackhole'",
        ),
        (
            "10.0.0.0/8 proto static\n  nexthop weight 2",
            "line 2: '10.0.0.0/8 proto static' has no next hop; a route has 'via ADDRESS', 'dev INTERFACE', \
             'nexthop ...' or a type such as 'blackhole'",
        ),
        (
            "10.0.0.0/8 via eth0",
            "line 2: 'via eth0' is not a gateway; expected an address such as '192.0.2.1' or '2001:db8::1'",
        ),
        (
            "10.0.0.0/8 via fe80::1 dev a",
            "line 2: 10.0.0.0/8 goes 'via fe80::1' of the other family; that is written 'via inet6 fe80::1'",
        ),
        ("10.0.0.0/8 via", "line 2: 'via' needs a value behind it"),
        ("blackhole", "line 2: 'blackhole' needs a value behind it"),
        ("10.0.0.0/8 dev a metric x", "line 2: 'metric x': not a number; expected 0 to 4294967295"),
        ("10.0.0.0/8 dev a dve b", "line 2: 'dve' is not a word of 'ip route'"),
        (
            "default from 2001:db8::/48 via fe80::1 dev a",
            "line 2: 'from' makes the route more than a prefix and its next hops, which a table here cannot hold",
        ),
        (
            "hello world",
            "line 2: 'hello' is not a prefix; expected an address and a length: '192.0.2.0/24' or \
             '2001:db8::/32'",
        ),
        // Only the first mistake of a route is told, and what goes on with it is not a mistake of its own.
        (
            "10.0.0.0/8 dev a\n\tnexthop via x dev b\n\tnexthop via y dev b",
            "line 3: 'via x' is not a gateway; expected an address such as '192.0.2.1' or '2001:db8::1'",
        ),
        (
            "x\n\tnexthop via 10.0.0.1",
            "line 2: 'x' is not a prefix; expected an address and a length: '192.0.2.0/24' or '2001:db8::/32'",
        ),
    ];
    for (rows, error) in cases {
        let lines = rows.lines().count() + 2;
        let expected =
            ["1: 1.0.0.0/8 dev a".to_owned(), error.to_owned(), format!("{lines}: 2.0.0.0/8 dev b")];
        assert_eq!(shown(&format!("1.0.0.0/8 dev a\n{rows}\n2.0.0.0/8 dev b\n")), expected, "{rows}");
    }
    assert_eq!(
        shown("\tnexthop via 10.0.0.1\n"),
        ["line 1: 'nexthop via 10.0.0.1' goes on with a route, but there is none before it"]
    );
    let long = format!("1.0.0.0/8 dev a\n{}\n2.0.0.0/8 dev b", "x".repeat(1 << 20));
    let shown = shown(&long);
    assert!(shown.len() == 3 && shown[1].starts_with("line 2: 'xxx") && shown[1].len() < 200, "{shown:?}");
}

fn hop() -> impl Strategy<Value = Hop> {
    let via = prop::option::of(any::<std::net::IpAddr>());
    let device = prop::option::of("[a-z][a-z0-9.-]{0,14}");
    (via, device, 1u32..300).prop_filter_map("leads somewhere", |(via, device, weight)| {
        (via.is_some() || device.is_some()).then_some(Hop { via, device, weight })
    })
}

fn route() -> impl Strategy<Value = IpRoute> {
    let prefix = (any::<std::net::IpAddr>(), 0u8..=128).prop_map(|(address, length)| {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        IpNet::new(address, length % (bits + 1)).unwrap().trunc()
    });
    let kind = prop::sample::select(RouteKind::ALL.map(|(_, kind)| kind).to_vec());
    let word = || prop::option::of("[a-z0-9]{1,8}");
    (prefix, kind, prop::collection::vec(hop(), 0..4), word(), any::<u32>(), word()).prop_filter_map(
        "leads somewhere",
        |(prefix, kind, mut hops, table, metric, protocol)| {
            if let [hop] = &mut hops[..] {
                hop.weight = 1;
            }
            let route = IpRoute { prefix, kind, hops, table, metric, protocol };
            (kind != RouteKind::Unicast || !route.hops.is_empty()).then_some(route)
        },
    )
}

proptest! {
    #[test]
    fn any_text_is_routes_or_errors(text in r"([ \t]?(default|nexthop|via|dev|10.0.0.0/8|::/0|inet6|metric|1|lock|mtu|\PC)[ \n]){0,40}") {
        prop_assert!(read(&text).len() <= text.lines().count());
    }

    #[test]
    fn what_is_printed_is_read(routes in prop::collection::vec(route(), 0..10)) {
        let text: String = routes.iter().map(|route| format!("{route}\n")).collect();
        let again: Vec<IpRoute> = read(&text).into_iter().map(|route| route.unwrap().1).collect();
        prop_assert_eq!(again, routes);
    }
}
