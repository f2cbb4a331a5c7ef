//! With a real kernel, in network namespaces.

use packet::IpVersion;
use std::net::IpAddr;

use crate::change::{Hops, NeighbourState, ObjectKind, OnlyLinux, Part, Path, Route, RouteKind, RuleAction};
use crate::netlink::testing::{Follower, ip_batch};
use crate::netlink::{KernelOptions, schedule};
use testbed::{in_namespace, ip, run, veth_pair};

fn path(index: u32, gateway: &str, weight: u16) -> Path {
    let gateway = (!gateway.is_empty()).then(|| gateway.parse().unwrap());
    Path { index, gateway, weight, is_down: false, has_encapsulation: false }
}

/// Two veth pairs, `left0`-`right0` and `left1`-`right1`, with addresses on the left.
fn two_links() {
    for number in 0..2 {
        veth_pair(&format!("left{number}"), &format!("right{number}"), 1);
        ip(&format!("addr add 10.0.{number}.1/24 dev left{number}"));
        ip(&format!("addr add 2001:db8:{number}::1/64 dev left{number} nodad"));
    }
}

/// A fresh follower finds what this one has.
fn is_like_a_fresh_one(follower: &mut Follower) {
    follower.settle();
    let fresh = Follower::synchronised();
    let (old, new) = (follower.routes_and_objects(), fresh.routes_and_objects());
    assert_eq!(old.1, new.1);
    let wrong: Vec<_> = old.0.iter().filter(|route| !new.0.contains(route)).collect();
    let missing: Vec<_> = new.0.iter().filter(|route| !old.0.contains(route)).collect();
    assert!(
        wrong.is_empty() && missing.is_empty(),
        "wrong: {wrong:#?}\nmissing: {missing:#?}\n{:?}",
        follower.kernel.counters()
    );
}

#[test]
fn the_first_dumps_come_in_order_and_tell_all() {
    in_namespace(|| {
        two_links();
        ip("link add bridge0 type bridge");
        ip("link set dev right1 master bridge0");
        ip("neigh add 10.0.0.9 lladdr 02:00:00:00:00:09 dev left0 nud permanent");
        ip("neigh add proxy 10.0.0.10 dev left0");
        ip("rule add from 10.1.0.0/16 to 10.2.0.0/16 iif left1 fwmark 0x10/0xf0 table 1000 priority 500");
        ip("rule add not from 10.3.0.0/16 blackhole priority 501");
        ip("rule add ipproto udp dport 53 table 7 priority 502");
        ip("-6 rule add table 254 suppress_prefixlength 0 priority 503");
        let follower = Follower::synchronised();
        assert_eq!(follower.ended, schedule::PARTS);

        let [left, right] = ["left0", "right0"].map(|name| follower.index(name));
        let (_, link) = &follower.links[&left];
        assert!(link.is_up && link.has_carrier && link.mac.is_some());
        assert_eq!((link.kind.as_str(), link.mtu, link.below), ("veth", 1500, Some(right)));
        let (_, port) = &follower.links[&follower.index("right1")];
        assert_eq!(port.master, Some(follower.index("bridge0")));
        assert_eq!(follower.links[&1].1.mac, None, "lo has no Ethernet address");

        let addresses: Vec<(IpAddr, u8)> =
            follower.addresses.keys().map(|address| (address.address, address.prefix_length)).collect();
        for (address, length) in [("10.0.1.1", 24), ("2001:db8:1::1", 64), ("127.0.0.1", 8), ("::1", 128)] {
            assert!(addresses.contains(&(address.parse().unwrap(), length)), "{address}");
        }
        let neighbour = follower.neighbours[&(left, "10.0.0.9".parse().unwrap())].1;
        assert_eq!((neighbour.mac, neighbour.state), (Some([2, 0, 0, 0, 0, 9]), NeighbourState::Permanent));
        assert!(!follower.neighbours.contains_key(&(left, "10.0.0.10".parse().unwrap())), "proxy");

        let rule = |priority| {
            let rule = follower.rules.iter().find(|(_, rule)| rule.priority == priority);
            rule.unwrap_or_else(|| panic!("rule {priority}")).1.clone()
        };
        let (first, inverted, other, ipv6) = (rule(500), rule(501), rule(502), rule(503));
        assert_eq!(first.from, Some("10.1.0.0/16".parse().unwrap()));
        assert_eq!(first.to, Some("10.2.0.0/16".parse().unwrap()));
        assert_eq!((first.input.as_deref(), first.mark), (Some("left1"), Some((0x10, 0xf0))));
        assert_eq!((first.action, first.has_other_selectors), (RuleAction::Table(1000), false));
        assert_eq!((inverted.action, inverted.is_inverted), (RuleAction::Blackhole, true));
        assert!(other.has_other_selectors);
        assert_eq!((ipv6.version, ipv6.suppress_prefix_length), (IpVersion::V6, Some(0)));
        assert_eq!(follower.kernel.counters().errors.total(), 0);
        assert_eq!(follower.kernel.counters().dumps_failed, 0);
    });
}

#[test]
fn routes_of_all_kinds_come_by_notification_and_by_dump() {
    in_namespace(|| {
        two_links();
        let mut follower = Follower::synchronised();
        let [zero, one] = ["left0", "left1"].map(|name| follower.index(name));
        for kind in ["blackhole", "unreachable", "prohibit", "throw"] {
            ip(&format!("route add {kind} 10.{}.0.0/16 metric 7", kind.len()));
            ip(&format!("-6 route add {kind} 2001:db8:{}::/48 metric 7", kind.len()));
        }
        ip("route add 10.20.0.0/16 via 10.0.0.2 mtu 1400 src 10.0.1.1 table 70000 proto 186 metric 9 \
             tos 0x10");
        ip("route add 10.21.0.0/16 nexthop via 10.0.0.2 weight 3 nexthop via 10.0.1.2 weight 256");
        ip("route add 10.22.0.0/16 via inet6 2001:db8:0::2 dev left0");
        ip("route add 10.23.0.0/16 dev left1");
        ip("-6 route add 2001:db8:23::/48 nexthop via 2001:db8:0::2 nexthop via fe80::2 dev left1 weight 2");
        ip("nexthop add id 1 via 10.0.0.2 dev left0");
        ip("nexthop add id 2 via 2001:db8:1::2 dev left1");
        ip("nexthop add id 3 group 1,5/2,10");
        ip("nexthop add id 4 blackhole");
        ip("route add 10.24.0.0/16 nhid 3");
        ip("route add 10.25.0.0/16 nhid 4");
        ip("-6 route add 2001:db8:25::/48 nhid 2");

        follower.until("the last route", |follower| follower.route("2001:db8:25::/48").is_some());
        is_like_a_fresh_one(&mut follower);

        let find = |prefix: &str| follower.route(prefix).unwrap_or_else(|| panic!("{prefix}")).clone();
        for (name, kind) in [
            ("blackhole", RouteKind::Blackhole),
            ("unreachable", RouteKind::Unreachable),
            ("prohibit", RouteKind::Prohibit),
            ("throw", RouteKind::Throw),
        ] {
            for prefix in [format!("10.{}.0.0/16", name.len()), format!("2001:db8:{}::/48", name.len())] {
                // Blackhole and unreachable, prohibit and throw have names of different lengths.
                let route = find(&prefix);
                assert_eq!((route.kind, route.key.metric, &route.hops), (kind, 7, &Hops::None));
            }
        }
        let (_, detailed) = follower.routes.iter().find(|(key, _)| key.table == 70000).unwrap().1;
        assert_eq!((detailed.key.metric, detailed.key.tos, detailed.protocol), (9, 0x10, 186));
        assert_eq!(
            (detailed.mtu, detailed.preferred_source),
            (Some(1400), Some("10.0.1.1".parse().unwrap()))
        );
        let paths = |prefix: &str| match find(prefix).hops {
            Hops::Paths(paths) => paths,
            other => panic!("{prefix}: {other:?}"),
        };
        assert_eq!(paths("10.21.0.0/16"), [path(zero, "10.0.0.2", 3), path(one, "10.0.1.2", 256)]);
        assert_eq!(paths("10.22.0.0/16"), [path(zero, "2001:db8::2", 1)]);
        assert_eq!(paths("10.23.0.0/16"), [path(one, "", 1)]);
        assert_eq!(paths("2001:db8:23::/48"), [path(zero, "2001:db8::2", 1), path(one, "fe80::2", 2)]);
        for (prefix, id) in [("10.24.0.0/16", 3), ("10.25.0.0/16", 4), ("2001:db8:25::/48", 2)] {
            let route = find(prefix);
            assert_eq!((route.kind, route.hops), (RouteKind::Unicast, Hops::Object(id)), "{prefix}");
        }
        assert_eq!(follower.objects[&1].1, ObjectKind::Path(path(zero, "10.0.0.2", 1)));
        assert_eq!(follower.objects[&3].1, ObjectKind::Group(vec![(1, 5), (2, 10)]));
        assert_eq!(follower.objects[&4].1, ObjectKind::Blackhole);

        // One object gone takes its route with it; one replaced does not.
        ip("nexthop del id 4");
        ip("nexthop replace id 1 via 10.0.1.3 dev left1");
        follower.until("the object's route goes", |follower| follower.route("10.25.0.0/16").is_none());
        let moved = ObjectKind::Path(path(one, "10.0.1.3", 1));
        follower.until("the object moves", |follower| follower.objects[&1].1 == moved);
        is_like_a_fresh_one(&mut follower);
        assert_eq!(follower.kernel.counters().errors.total(), 0);
    });
}

#[test]
fn what_vanishes_without_a_word_is_found_out() {
    in_namespace(|| {
        two_links();
        ip("route add 10.30.0.0/16 via 10.0.0.2");
        ip("route add 10.31.0.0/16 nexthop via 10.0.0.2 nexthop via 10.0.1.2");
        ip("-6 route add 2001:db8:31::/48 nexthop via 2001:db8:0::2 nexthop via 2001:db8:1::2");
        ip("nexthop add id 1 via 10.0.0.2 dev left0");
        ip("nexthop add id 2 via 10.0.1.2 dev left1");
        ip("nexthop add id 3 group 1/2");
        ip("route add 10.32.0.0/16 nhid 1");
        ip("route add 10.33.0.0/16 nhid 3");
        ip("-6 route add 2001:db8:34::/48 via 2001:db8:0::2");
        let mut follower = Follower::synchronised();
        let down = |route: Option<&Route>| match route.map(|route| &route.hops) {
            Some(Hops::Paths(paths)) => paths.iter().map(|path| path.is_down).collect(),
            _ => Vec::new(),
        };
        ip("-6 route add 2001:db8:36::/48 via 2001:db8:1::2 mtu 1400");
        let mtu = |follower: &Follower| follower.route("2001:db8:36::/48").and_then(|route| route.mtu);
        follower.until("a route has an MTU", |follower| mtu(follower) == Some(1_400));
        ip("link set dev left1 mtu 1300");
        follower.until("it has that of its link", |follower| mtu(follower) == Some(1_300));
        is_like_a_fresh_one(&mut follower);

        ip("link set dev left0 down");
        follower.until("a route goes with its link", |follower| follower.route("10.30.0.0/16").is_none());
        follower.until("an object goes with its link", |follower| !follower.objects.contains_key(&1));
        follower
            .until("a group shrinks", |follower| follower.objects[&3].1 == ObjectKind::Group(vec![(2, 1)]));
        for prefix in ["10.31.0.0/16", "2001:db8:31::/48"] {
            follower.until("a path is dead", |follower| down(follower.route(prefix)) == [true, false]);
        }
        is_like_a_fresh_one(&mut follower);
        assert_eq!(follower.route("10.32.0.0/16"), None);
        assert_eq!(follower.route("2001:db8:34::/48"), None);

        ip("link set dev left0 up");
        for prefix in ["10.31.0.0/16", "2001:db8:31::/48"] {
            follower.until("a path lives", |follower| down(follower.route(prefix)) == [false, false]);
        }
        // The other end goes down: no carrier here.
        ip("link set dev right1 down");
        follower.until("a group goes without carrier", |follower| follower.objects.is_empty());
        is_like_a_fresh_one(&mut follower);
        ip("link set dev right1 up");

        ip("route add 10.35.0.0/16 via 10.0.1.2");
        follower.until("a route comes", |follower| follower.route("10.35.0.0/16").is_some());
        ip("addr del 10.0.1.1/24 dev left1");
        follower.until("a route goes with an address", |follower| follower.route("10.35.0.0/16").is_none());
        is_like_a_fresh_one(&mut follower);
        ip("route add 10.36.0.0/16 dev right1");
        follower.until("a route comes", |follower| follower.route("10.36.0.0/16").is_some());
        ip("link del dev left1");
        follower.until("a route goes with a link", |follower| follower.route("10.36.0.0/16").is_none());
        is_like_a_fresh_one(&mut follower);
    });
}

#[test]
fn routes_of_one_key_and_paths_that_go_one_by_one() {
    in_namespace(|| {
        two_links();
        let mut follower = Follower::synchronised();
        let [zero, one] = ["left0", "left1"].map(|name| follower.index(name));
        ip("route add 10.40.0.0/16 via 10.0.0.2");
        ip("route append 10.40.0.0/16 via 10.0.1.2");
        ip("route append 10.40.0.0/16 via 10.0.1.3");
        follower.until("a route comes", |follower| follower.route("10.40.0.0/16").is_some());
        is_like_a_fresh_one(&mut follower);
        let only = |follower: &Follower, prefix| match follower.route(prefix).map(|route| route.hops.clone())
        {
            Some(Hops::Paths(paths)) => paths,
            _ => Vec::new(),
        };
        assert_eq!(only(&follower, "10.40.0.0/16"), [path(zero, "10.0.0.2", 1)]);
        let dumps = follower.kernel.counters().dumps;
        ip("route del 10.40.0.0/16 via 10.0.0.2");
        follower.until("the next takes over", |follower| {
            only(follower, "10.40.0.0/16") == [path(one, "10.0.1.2", 1)]
        });
        assert_eq!(follower.kernel.counters().dumps, dumps, "none of that needs a dump");

        ip("-6 route add 2001:db8:40::/48 via 2001:db8:0::2");
        for router in ["2001:db8:1::2", "2001:db8:1::3", "2001:db8:0::3"] {
            ip(&format!("-6 route append 2001:db8:40::/48 via {router}"));
        }
        ip("-6 route append 2001:db8:40::/48 nexthop via 2001:db8:0::4 nexthop via 2001:db8:1::4");
        follower.until("six paths", |follower| only(follower, "2001:db8:40::/48").len() == 6);
        // What is appended tells of attributes of its own.
        follower.settle();
        let dumps = follower.kernel.counters().dumps;
        ip("-6 route del 2001:db8:40::/48 via 2001:db8:1::3");
        follower.until("five paths", |follower| only(follower, "2001:db8:40::/48").len() == 5);
        assert!(!only(&follower, "2001:db8:40::/48").contains(&path(one, "2001:db8:1::3", 1)));
        follower.settle();
        assert_eq!(follower.kernel.counters().dumps, dumps, "none of that needs a dump");
        // One that cannot be a path of the others: the kernel says neither that nor where it is.
        ip("-6 route append 2001:db8:40::/48 dev left1");
        follower.until("a dump", |follower| follower.kernel.counters().dumps > dumps);
        ip("-6 route del 2001:db8:40::/48");
        is_like_a_fresh_one(&mut follower);
        ip("-6 route del 2001:db8:40::/48");
        ip("route replace 10.40.0.0/16 via 10.0.0.9");
        ip("route prepend 10.40.0.0/16 via 10.0.0.8");
        is_like_a_fresh_one(&mut follower);
        // The first of two is put before the one that is alone, and goes again.
        ip("route add 10.41.0.0/16 via 10.0.0.9");
        is_like_a_fresh_one(&mut follower);
        ip("route prepend 10.41.0.0/16 via 10.0.1.8");
        is_like_a_fresh_one(&mut follower);
        ip("route del 10.41.0.0/16 via 10.0.1.8");
        follower.until("the first one is back", |follower| {
            only(follower, "10.41.0.0/16") == [path(zero, "10.0.0.9", 1)]
        });
        is_like_a_fresh_one(&mut follower);
        ip("route del 10.40.0.0/16");
        ip("addr add 10.0.0.7/24 dev right0");
        ip("addr add 10.0.0.8/24 dev left1");
        is_like_a_fresh_one(&mut follower);
        ip("addr del 10.0.0.1/24 dev left0");
        is_like_a_fresh_one(&mut follower);
    });
}

#[test]
fn a_route_that_no_dump_tells_makes_those_beside_it_linuxs() {
    in_namespace(|| {
        two_links();
        let only_linux = |follower: &Follower, prefix: &str| follower.route(prefix).unwrap().only_linux;
        // Between the paths of the first, and before those of the second.
        ip("-6 route add 2001:db8:40::/48 via 2001:db8:0::2");
        ip("-6 route append 2001:db8:40::/48 dev left1");
        ip("-6 route append 2001:db8:40::/48 via 2001:db8:1::2");
        ip("-6 route add 2001:db8:41::/48 nexthop via 2001:db8:0::2 nexthop via 2001:db8:1::2");
        // Lines of another table are no hidden routes.
        ip("-6 route add 2001:db8:41::/48 via 2001:db8:0::2 table 7");
        let mut follower = Follower::synchronised();
        follower.until("what is not hidden", |follower| only_linux(follower, "2001:db8:41::/48").is_none());
        follower.settle();
        assert_eq!(only_linux(&follower, "2001:db8:40::/48"), Some(OnlyLinux::Choice));
        assert_eq!(only_linux(&follower, "2001:db8:41::/48"), None);
        ip("-6 route del 2001:db8:40::/48 dev left1");
        follower.until("nothing hidden", |follower| only_linux(follower, "2001:db8:40::/48").is_none());
        is_like_a_fresh_one(&mut follower);
        ip("-6 route del 2001:db8:40::/48 via 2001:db8:1::2");
        ip("-6 route append 2001:db8:40::/48 dev left1");
        ip("-6 route append 2001:db8:40::/48 via 2001:db8:1::2");
        follower.until("one hidden while it runs", |follower| {
            only_linux(follower, "2001:db8:40::/48") == Some(OnlyLinux::Choice)
        });
        // What takes the place of the paths leaves the hidden one where it is.
        ip("-6 route change 2001:db8:40::/48 via 2001:db8:0::9");
        follower.until("the hidden one", |follower| {
            only_linux(follower, "2001:db8:40::/48") == Some(OnlyLinux::Choice)
        });
        follower.settle();
        is_like_a_fresh_one(&mut follower);
    });
}

#[test]
fn a_neighbour_that_is_asked_for_is_looked_for() {
    in_namespace(|| {
        two_links();
        let mut follower = Follower::synchronised();
        let index = follower.index("left0");
        let unknown: IpAddr = "10.0.0.50".parse().unwrap();
        for family in ["ipv4", "ipv6"] {
            std::fs::write(format!("/proc/sys/net/{family}/neigh/left0/retrans_time_ms"), "50").unwrap();
        }
        let state =
            |follower: &Follower, address| follower.neighbours.get(&(index, address)).map(|row| row.1.state);
        for address in [unknown, "2001:db8::50".parse().unwrap()] {
            follower.kernel.ask_neighbour(index, address).unwrap();
            // Nobody answers; an entry is there because the kernel asked. It tells of it when it gives up.
            follower.until("it asks", |follower| state(follower, address).is_some());
        }
        follower.until("nobody answers", |follower| state(follower, unknown) == Some(NeighbourState::Failed));

        let stale: IpAddr = "10.0.0.51".parse().unwrap();
        ip("neigh add 10.0.0.51 lladdr 02:00:00:00:00:51 dev left0 nud stale");
        follower.until("stale", |follower| state(follower, stale) == Some(NeighbourState::Stale));
        follower.kernel.ask_neighbour(index, stale).unwrap();
        // Its delay is told by a dump only; the kernel notifies of what comes after it, some five seconds
        // later.
        assert!(run("ip", "neigh show 10.0.0.51").contains("DELAY"));
        follower.kernel.request_resync().unwrap();
        follower.until("delay", |follower| state(follower, stale) == Some(NeighbourState::Delay));

        // A link that is not there: refused, and nothing else happens.
        follower.kernel.ask_neighbour(9999, stale).unwrap();
        follower.until("refused", |follower| follower.kernel.counters().refused == 1);
        ip("neigh del 10.0.0.51 dev left0");
        follower.until("gone", |follower| !follower.neighbours.contains_key(&(index, stale)));
    });
}

#[test]
fn lost_notifications_are_made_up_for() {
    in_namespace(|| {
        two_links();
        let mut follower = Follower::new(&KernelOptions { receive_buffer: 4096 });
        follower.until("first dumps", |follower| follower.kernel.is_synchronised());
        let lines = |verb: &str| {
            (0..2000)
                .map(|n| format!("route {verb} 10.{}.{}.0/24 via 10.0.0.2\n", 50 + n / 256, n % 256))
                .collect::<String>()
        };
        ip_batch(&lines("add"));
        follower.until("an overrun", |follower| follower.kernel.counters().overruns > 0);
        follower.until("everything", |follower| follower.kernel.is_synchronised());
        is_like_a_fresh_one(&mut follower);
        assert!(follower.routes.len() > 2000);
        ip_batch(&lines("del"));
        is_like_a_fresh_one(&mut follower);
        assert!(follower.routes.len() < 100);
    });
}

#[test]
fn a_piece_of_a_dump_that_is_older_than_a_notification_does_not_outlive_it() {
    in_namespace(|| {
        two_links();
        ip("route add 10.50.0.0/16 via 10.0.0.2");
        ip("-6 route add 2001:db8:50::/48 via 2001:db8:0::2");
        let mut follower = Follower::synchronised();
        for (part, prefix) in [(Part::Routes4, "10.50.0.0/16"), (Part::Routes6, "2001:db8:50::/48")] {
            follower.kernel.request_resync().unwrap();
            // The kernel wrote the first piece when it was asked, and we have not read it.
            follower.until("a dump begins", |follower| follower.begun.contains_key(&part));
            ip(&format!("route del {prefix}"));
            follower.until("it ends", |follower| follower.kernel.is_synchronised());
            follower.settle();
            assert_eq!(follower.route(prefix), None);
        }
    });
}

#[test]
fn changes_while_dumps_run_are_never_lost() {
    in_namespace(|| {
        two_links();
        let lines: String = (0..6000)
            .flat_map(|n| {
                let (high, low) = (n / 256, n % 256);
                [
                    format!("route add 10.{}.{low}.0/24 via 10.0.0.2\n", 50 + high),
                    format!("route add 2001:db8:{n:x}:1::/64 via 2001:db8:0::2\n"),
                ]
            })
            .collect();
        ip_batch(&lines);
        let mut follower = Follower::synchronised();
        // One thread changes routes and flaps a link, the other follows and starts over all the time.
        let script = "for n in $(seq 40); do
            ip route replace 10.60.$n.0/24 via 10.0.1.2; ip -6 route del 2001:db8:$n:1::/64
            ip route del 10.61.$n.0/24; ip -6 route add 2001:db8:ffff:$n::/64 via 2001:db8:1::2
            [ $((n % 10)) = 0 ] && ip link set dev right1 down && ip link set dev right1 up; done; sleep 1";
        let mut changes = std::process::Command::new("bash").args(["-c", script]).spawn().unwrap();
        let mut turns = 0;
        while changes.try_wait().unwrap().is_none() {
            follower.turn();
            turns += 1;
            if turns % 50 == 0 {
                follower.kernel.request_resync().unwrap();
            }
        }
        is_like_a_fresh_one(&mut follower);
        assert_eq!(follower.kernel.counters().errors.total(), 0);
        assert!(follower.ended.contains(&Part::Routes6));
    });
}

/// `cargo test --release -p brickway-control -- --ignored --nocapture million`: how long a million routes
/// take.
#[test]
#[ignore = "a measurement"]
fn a_million_routes() {
    in_namespace(|| {
        two_links();
        let lines: String = (0..1_000_000u32)
            .map(|n| format!("route add {}.{}.{}.0/24 via 10.0.0.2\n", 20 + (n >> 16), n >> 8 & 255, n & 255))
            .collect();
        ip_batch(&lines);
        let mut kernel = crate::netlink::Kernel::open(&KernelOptions::default()).unwrap();
        let (begin, mut changes) = (std::time::Instant::now(), 0);
        while !kernel.is_synchronised() {
            kernel.receive(&mut |_| changes += 1).unwrap();
        }
        println!("{changes} events in {:?}: {:?}", begin.elapsed(), kernel.counters());
    });
}

#[test]
fn attributes_that_ip_writes_are_known_and_those_that_decide_are_read() {
    in_namespace(|| {
        two_links();
        for line in [
            "route add 10.50.1.0/24 via 10.0.0.2 onlink dev left0 scope site realm 4/5",
            "route add 10.50.2.0/24 via 10.0.0.2 hoplimit 9 advmss 1000 window 9 rtt 9 cwnd 9 initcwnd 9 initrwnd 9",
            "route add 10.50.3.0/24 via 10.0.0.2 quickack 1 rto_min 9 features ecn congctl lock cubic reordering 9",
            "route add 10.50.4.0/24 nexthop via 10.0.0.2 onlink dev left0 realm 3 nexthop via 10.0.1.2 weight 9",
            "route add 10.50.5.0/24 dev left0 scope host",
            "-6 route add 2001:db8:51::/48 via 2001:db8:0::2 hoplimit 9 pref high",
            "-6 route add 2001:db8:52::/48 via fe80::2 onlink dev left0 pref low src 2001:db8:0::1",
        ] {
            ip(line);
        }
        let mut follower = Follower::synchronised();
        let odd: Vec<&Route> = follower
            .routes
            .values()
            .map(|(_, route)| route)
            .filter(|route| route.only_linux.is_some())
            .collect();
        assert!(odd.is_empty(), "{odd:#?}");
        assert!(follower.route("2001:db8:51::/48").unwrap().preference > Route::MEDIUM);
        assert!(follower.route("2001:db8:52::/48").unwrap().preference < Route::MEDIUM);

        ip("route add 10.50.6.0/24 via 10.0.0.2 mtu lock 1400");
        ip("-6 route add 2001:db8:53::/48 from fd77:b::/64 via 2001:db8:0::2");
        ip("-6 route add 2001:db8:53::/48 from fd77:c::/64 via 2001:db8:0::2");
        follower.until("three routes", |follower| {
            let of_some = follower.routes.keys().filter(|key| key.from.is_some()).count();
            let locked = follower.route("10.50.6.0/24").map(|route| route.only_linux);
            (of_some, locked) == (2, Some(Some(OnlyLinux::LockedMtu)))
        });
        ip("-6 route del 2001:db8:53::/48 from fd77:b::/64");
        follower.until("one goes", |follower| {
            let mut all = follower.routes.keys().filter_map(|key| key.from);
            (all.next(), all.next()) == (Some("fd77:c::/64".parse().unwrap()), None)
        });
        ip("nexthop add id 1 via 10.0.0.2 dev left0");
        ip("nexthop add id 2 group 1 type resilient buckets 32");
        let resilient = ObjectKind::OnlyLinux(OnlyLinux::GroupKind(1));
        follower.until("a resilient group", |follower| {
            follower.objects.get(&2).map(|it| &it.1) == Some(&resilient)
        });
        is_like_a_fresh_one(&mut follower);
        assert_eq!(follower.kernel.counters().errors.total(), 0);
    });
}

#[test]
fn a_route_goes_when_its_lifetime_ends() {
    in_namespace(|| {
        two_links();
        let mut follower = Follower::synchronised();
        ip("-6 route add 2001:db8:60::/48 via 2001:db8:0::2 expires 2");
        follower.until("a route comes", |follower| follower.route("2001:db8:60::/48").is_some());
        follower.until("it expires", |follower| follower.route("2001:db8:60::/48").is_none());
        assert!(run("ip", "-6 route show 2001:db8:60::/48").contains("expires"), "Linux has it still");
        is_like_a_fresh_one(&mut follower);
        ip("-6 route add 2001:db8:61::/48 from 2001:db8:b::/48 via 2001:db8:0::2 expires 1");
        ip("-6 route add 2001:db8:62::/48 via 2001:db8:0::2 expires 2");
        follower.until("others come", |follower| follower.route("2001:db8:62::/48").is_some());
        follower.until("one expires", |follower| follower.route("2001:db8:62::/48").is_none());
        assert!(follower.route("2001:db8:61::/48").is_some(), "Linux minds one with sources still");
        let again = ["-6", "route", "append", "2001:db8:62::/48", "via", "2001:db8:0::2"];
        let refused = std::process::Command::new("ip").args(again).output().unwrap();
        assert!(
            String::from_utf8_lossy(&refused.stderr).contains("File exists"),
            "Linux says no, and does it"
        );
        follower.until("it is revived", |follower| follower.route("2001:db8:62::/48").is_some());
        ip("-6 route replace 2001:db8:60::/48 via 2001:db8:0::2 expires 1000");
        follower.until("it is there again", |follower| follower.route("2001:db8:60::/48").is_some());
        is_like_a_fresh_one(&mut follower);
    });
}

/// Sends a router advertisement out of `interface`, for a default route of this preference (0 medium, 8 high) and
/// lifetime in seconds.
fn advertise(interface: &str, preference: u8, lifetime: u16) {
    use socket2::{Domain, Protocol, Socket, Type};
    let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6)).unwrap();
    socket.bind_device(Some(interface.as_bytes())).unwrap();
    socket.set_multicast_hops_v6(255).unwrap();
    let mut message = vec![134, 0, 0, 0, 64, preference];
    message.extend(lifetime.to_be_bytes());
    message.extend([0; 8]);
    let all_nodes = std::net::SocketAddrV6::new("ff02::1".parse().unwrap(), 0, 0, 0);
    socket.send_to(&message, &std::net::SocketAddr::from(all_nodes).into()).unwrap();
}

#[test]
fn advertisements_that_change_routes_without_a_message_are_noticed() {
    in_namespace(|| {
        for number in 0..2 {
            let (left, right) = (format!("left{number}"), format!("right{number}"));
            veth_pair(&left, &right, 1);
            for setting in ["accept_ra=2", "accept_ra_rtr_pref=1", "accept_ra_min_lft=0"] {
                run("sysctl", &format!("-qw net.ipv6.conf.{left}.{setting}"));
            }
            ip(&format!("link set {right} addrgenmode none"));
            ip(&format!("addr add fe80::{number}:2/64 dev {right} nodad"));
        }
        let mut follower = Follower::synchronised();
        let [zero, one] = ["left0", "left1"].map(|name| follower.index(name));
        let way = |follower: &Follower| match follower.route("::/0").map(|route| &route.hops) {
            Some(Hops::Paths(paths)) => paths.first().map(|path| path.index),
            _ => None,
        };
        advertise("right0", 0, 1800);
        follower.until("the first router", |follower| way(follower) == Some(zero));
        advertise("right1", 8, 1800);
        follower.until("the preferred one", |follower| way(follower) == Some(one));
        advertise("right0", 8, 1800);
        follower.until("both are preferred, and the first counts", |follower| way(follower) == Some(zero));
        advertise("right0", 0, 1800);
        follower.until("it is not any more", |follower| way(follower) == Some(one));
        advertise("right1", 8, 1);
        follower.until("its lifetime ends", |follower| way(follower) == Some(zero));
        advertise("right0", 0, 0);
        follower.until("the other one withdraws", |follower| way(follower).is_none());
    });
}
