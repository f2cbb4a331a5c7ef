//! Linux's policies of IPsec beside a router, as far as a kernel without ESP has them. `ipsec_linux` has the rest.

#![allow(clippy::unwrap_used, reason = "a test")]

mod netns;

use netns::cluster::{Cluster, Plan, host_addresses};
use netns::eventually;
use netns::ipsec::{Bed, Gateway};
use netns::router::{self, PROGRAM};

/// What `brickway show problems` prints where there are none.
const NO_PROBLEMS: &str = "no problems";

/// The router in the middle, which h1 reaches through g1.
const MIDDLE: &str = "10.1.1.254";

#[test]
fn policies_of_linux_count_from_the_first_to_the_last() {
    if !netns::is_root() {
        return;
    }
    let bed = Bed::new(Gateway::Brickway);
    let xfrm = |words: &str| bed.network.ip("g1", &format!("xfrm policy {words}"));
    let show = |words: &str| bed.network.run("g1", &format!("{PROGRAM} show {words}")).1;
    let is_answered = || eventually(|| bed.network.answers("h1", MIDDLE) == 10);
    let is_silent = || eventually(|| bed.network.answers("h1", MIDDLE) == 0);
    bed.network.ip("m", "route add 10.0.1.0/24 via 10.1.1.1");
    assert!(is_answered(), "nothing passes without policies");
    assert!(!show("ports").contains("IPsec"), "{}", show("ports"));
    assert_eq!(show("ipsec"), "Linux has no IPsec policies and no associations.\n");
    assert_eq!(show("ipsec --json"), "");

    xfrm("add src 10.0.1.0/24 dst 10.1.1.0/24 dir fwd action block");
    assert!(is_silent(), "packets pass a policy that blocks them\n{}", show("ipsec"));
    assert!(show("ipsec").contains("block"), "{}", show("ipsec"));
    assert!(show("drops").contains("discarded by IPsec policy"), "{}", show("drops"));
    assert!(show("ports").contains("workers: IPsec policies"), "{}", show("ports"));
    // A policy before it, and then none of them.
    xfrm("add src 10.0.1.2/32 dst 10.1.1.254/32 dir fwd priority 0 action allow");
    xfrm("update src 10.0.1.0/24 dst 10.1.1.0/24 dir fwd priority 9 action block");
    assert!(is_answered(), "{}", show("ipsec"));
    xfrm("flush");
    assert!(is_answered(), "{}", show("ipsec"));

    // Nothing leaves unprotected while there is no association.
    xfrm("add src 10.0.1.0/24 dst 10.1.1.0/24 dir out tmpl src 10.1.1.1 dst 10.1.2.1 proto esp mode tunnel");
    assert!(eventually(|| show("ipsec").contains("10.1.1.1 > 10.1.2.1")), "{}", show("ipsec"));
    let watch = bed.watch();
    assert_eq!(bed.network.answers("h1", MIDDLE), 0);
    assert!(!watch.printed().contains("10.0.1.2"), "{}", watch.printed());
    xfrm("flush");
    assert!(is_answered(), "{}", show("ipsec"));

    // What happens to packets that no policy matches.
    xfrm("setdefault fwd block");
    assert!(is_silent(), "packets pass though Linux forwards none");
    assert!(show("ipsec").contains("default fwd"), "{}", show("ipsec"));
    xfrm("setdefault fwd accept");
    assert!(is_answered());
    // A while after the last policy all is as before the first.
    assert!(eventually(|| !show("ports").contains("IPsec")), "{}", show("ports"));
    assert!(is_answered());
    assert_eq!(show("problems").trim(), NO_PROBLEMS, "{}", show("problems"));
}

#[test]
fn policies_that_are_there_before_the_router_count_from_its_first_packet() {
    if !netns::is_root() {
        return;
    }
    let bed = Bed::new(Gateway::Linux);
    bed.network.ip("m", "route add 10.0.1.0/24 via 10.1.1.1");
    let ping = bed.network.start("h1", &format!("ping -n -i 0.01 -W 1 {MIDDLE}"));
    ping.wait_until("ping", || ping.printed().contains("icmp_seq="));
    bed.network.ip("g1", "xfrm policy add src 10.0.1.0/24 dst 10.1.1.0/24 dir out action block");
    assert!(eventually(|| bed.network.answers("h1", MIDDLE) == 0), "Linux lets packets pass");
    let watch = bed.watch();
    for _ in 0..3 {
        let _router = router::start_in(&bed.network, "g1", "eth1 eth2");
        let show = || bed.network.run("g1", &format!("{PROGRAM} show ipsec")).1;
        assert!(show().contains("block"), "{}", show());
        assert_eq!(bed.network.answers("h1", MIDDLE), 0);
    }
    assert!(!watch.printed().contains("10.0.1.2 >"), "{}", watch.printed());
}

/// A veth leaves checksums of TCP and UDP to the card, and the router may leave such packets to Linux. Not where policies judge.
#[test]
fn packets_with_unfinished_checksums_are_judged_too() {
    if !netns::is_root() {
        return;
    }
    let bed = Bed::new(Gateway::Linux);
    bed.network
        .ip("g1", "xfrm policy add src 10.0.1.0/24 dst 10.1.1.0/24 proto udp dport 9 dir out action allow");
    let _router = router::start_in(&bed.network, "g1", "eth1 eth2");
    let counted = || {
        let shown = bed.network.run("g1", &format!("{PROGRAM} show ipsec --json")).1;
        let rows: Vec<serde_json::Value> = serde_json::from_str(&shown)
            .unwrap_or_else(|_| shown.lines().filter_map(|line| serde_json::from_str(line).ok()).collect());
        rows.iter()
            .find(|row| row["what"] == "policy out")
            .and_then(|row| row["packets"].as_u64())
            .unwrap_or(0)
    };
    let begin = counted();
    assert!(bed.network.run("h1", "ethtool -K eth0 tx on").0);
    let socket = bed.network.udp_socket("h1", "0.0.0.0:0");
    assert!(
        eventually(|| {
            // Refused by a host without such a port: that is an answer, too.
            (0..5).for_each(|_| _ = socket.send_to(&[7], (MIDDLE, 9)));
            counted() >= begin + 5
        }),
        "{}",
        bed.network.run("g1", &format!("{PROGRAM} show ipsec")).1
    );
}

#[test]
fn policies_that_are_ignored_are_warned_of() {
    if !netns::is_root() {
        return;
    }
    let bed = Bed::new(Gateway::Linux);
    let policy =
        "src 10.0.1.0/24 dst 10.1.1.0/24 dir out tmpl src 10.1.1.1 dst 10.1.2.1 proto esp mode tunnel";
    bed.network.ip("g1", &format!("xfrm policy add {policy}"));
    let router = router::start_in(&bed.network, "g1", "eth1 eth2 --ignore ipsec");
    let warning = "ipsec: the router ignores a policy of Linux, and forwards packets unprotected";
    assert_eq!(router.printed().matches(warning).count(), 1, "{}", router.printed());
    let problems = || bed.network.run("g1", &format!("{PROGRAM} show problems")).1;
    assert!(problems().contains(warning), "{}", problems());
    bed.network.ip("g1", "xfrm policy flush");
    assert_eq!(problems().trim(), NO_PROBLEMS, "{}", problems());
}

/// A cluster of three nodes, of which 'a' leads, and its hosts reach each other.
fn cluster() -> Cluster {
    let mut cluster = Cluster::new(Plan { topology: "mesh(3)", ..Plan::default() });
    cluster.start("a");
    assert_eq!(cluster.next_leader(""), "a");
    cluster.start_all(&["b".to_owned(), "c".to_owned()]);
    cluster.all_reach_all(&[1, 2, 3]);
    cluster
}

/// Whether a host hears packets of h2 from now on.
fn watch_for_h2(cluster: &Cluster, host: &str) -> netns::Running {
    let watch = cluster.network.start(host, "tcpdump -n -l -i eth0 src host 10.0.2.2");
    watch.wait_until("tcpdump", || watch.printed().contains("listening on"));
    watch
}

const H3: &str = "10.0.3.2";

#[test]
fn policies_of_the_leaders_linux_count_on_all_nodes_of_a_cluster() {
    if !netns::is_root() {
        return;
    }
    let mut cluster = cluster();
    let xfrm = |cluster: &Cluster, words: &str| cluster.network.ip("a", &format!("xfrm policy {words}"));
    let is_answered = |cluster: &Cluster| eventually(|| cluster.network.answers("h2", H3) == 10);
    let is_silent = |cluster: &Cluster| eventually(|| cluster.network.answers("h2", H3) == 0);

    // What is discarded is gone at the node where it comes in.
    xfrm(&cluster, "add src 10.0.2.0/24 dst 10.0.3.0/24 dir fwd action block");
    assert!(is_silent(&cluster), "{}", cluster.shown("b", "ipsec"));
    assert!(cluster.shown("b", "ipsec").contains("block"), "{}", cluster.shown("b", "ipsec"));
    assert!(cluster.dropped("b", "discarded by IPsec policy") > 0);
    assert_eq!(cluster.dropped("a", "discarded by IPsec policy"), 0);
    xfrm(&cluster, "add src 10.0.2.2/32 dst 10.0.3.2/32 dir fwd priority 0 action allow");
    xfrm(&cluster, "update src 10.0.2.0/24 dst 10.0.3.0/24 dir fwd priority 9 action block");
    assert!(is_answered(&cluster), "{}", cluster.shown("b", "ipsec"));
    assert_eq!(cluster.handler("b", "toleader.packets"), 0);
    // So is what came in clear, and had to be protected.
    xfrm(&cluster, "flush");
    assert!(is_answered(&cluster));
    let tunnel = "tmpl src 192.0.2.1 dst 198.51.100.1 proto esp mode tunnel";
    xfrm(&cluster, &format!("add src 10.0.2.0/24 dst 10.0.3.0/24 dir fwd {tunnel}"));
    assert!(is_silent(&cluster) && cluster.dropped("b", "IPsec required") > 0);

    // What is to be protected goes to the leader, whose Linux has no association yet, and to nobody else.
    xfrm(&cluster, "flush");
    assert!(is_answered(&cluster));
    assert_eq!(cluster.shown("b", "problems").trim(), NO_PROBLEMS);
    let tunnel = tunnel.replace("198.51.100.1", "10.0.1.2");
    xfrm(&cluster, &format!("add src 10.0.2.0/24 dst 10.0.3.0/24 dir out {tunnel}"));
    assert!(is_silent(&cluster));
    let watch = watch_for_h2(&cluster, "h3");
    let (before, given) =
        (cluster.handler("b", "toleader.packets"), cluster.handler("a", "toleader.packets"));
    assert_eq!(cluster.network.answers("h2", H3), 0);
    assert!(cluster.handler("b", "toleader.packets") >= before + 10);
    assert!(cluster.handler("a", "toleader.packets") >= given + 10);
    assert!(eventually(|| cluster.agrees(&cluster.names)), "{:#?}", cluster.show());

    // A node that comes later knows it from its first packet.
    let ping = cluster.network.start("h2", &format!("ping -n -i 0.01 {H3}"));
    let [_, h3_by_ipv6] = host_addresses(3);
    for _ in 0..2 {
        cluster.kill("b");
        cluster.start("b");
        assert!(eventually(|| cluster.network.answers("h2", &h3_by_ipv6) == 10));
    }
    assert!(cluster.shown("b", "ipsec").contains("10.0.1.2"), "{}", cluster.shown("b", "ipsec"));

    // Without the leader, and with one whose Linux has no policies, nothing of it passes in clear.
    cluster.kill("a");
    let next = cluster.next_leader("a");
    assert!(eventually(|| cluster.network.answers("h2", &h3_by_ipv6) == 10));
    assert!(
        eventually(|| cluster.dropped(&next, "discarded by IPsec policy") > 0),
        "{}",
        cluster.said(&next)
    );
    assert!(ping.ended().is_none(), "{}", ping.printed());
    assert!(!watch.printed().contains("10.0.2.2 >"), "{}", watch.printed());
    // The new leader's own policies count.
    let bypass = "xfrm policy add src 10.0.2.0/24 dst 10.0.3.0/24 dir out action allow";
    cluster.network.ip(&next, bypass);
    assert!(is_answered(&cluster), "{}", cluster.shown("b", "ipsec"));
}

/// Where the nodes with ports leave routing to others, these judge, also for a leader that does not route.
#[test]
fn a_routing_node_judges_for_those_with_ports_and_carries_to_their_leader() {
    if !netns::is_root() {
        return;
    }
    let role = |number| ["edge", "edge", "route"][number];
    let mut cluster = Cluster::new(Plan { topology: "mesh(3)", role, ..Plan::default() });
    cluster.start("a");
    assert_eq!(cluster.next_leader(""), "a");
    cluster.start_all(&["b".to_owned(), "c".to_owned()]);
    cluster.all_reach_all(&[1, 2]);
    let xfrm = |words: &str| cluster.network.ip("a", &format!("xfrm policy {words}"));
    let [h1, _] = host_addresses(1);
    xfrm("add src 10.0.2.0/24 dst 10.0.1.0/24 dir fwd action block");
    assert!(eventually(|| cluster.network.answers("h2", &h1) == 0), "{}", cluster.shown("c", "ipsec"));
    assert!(cluster.dropped("c", "discarded by IPsec policy") > 0);
    xfrm("flush");
    assert!(eventually(|| cluster.network.answers("h2", &h1) == 10), "{}", cluster.shown("c", "ipsec"));
    xfrm("add src 10.0.2.0/24 dst 10.0.1.0/24 dir out tmpl src 10.0.1.1 dst 10.0.1.9 proto esp mode tunnel");
    assert!(eventually(|| cluster.network.answers("h2", &h1) == 0), "{}", cluster.shown("c", "ipsec"));
    let watch = watch_for_h2(&cluster, "h1");
    let counts = || (cluster.handler("c", "toleader.packets"), cluster.handler("a", "others.packets"));
    let before = counts();
    assert_eq!(cluster.network.answers("h2", &h1), 0);
    let after = counts();
    assert!(after.0 >= before.0 + 10 && after.1 >= before.1 + 10, "{before:?}, then {after:?}");
    assert!(!watch.printed().contains("10.0.2.2 >"), "{}", watch.printed());
}
