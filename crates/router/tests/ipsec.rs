//! Linux's policies of IPsec beside a router, as far as a kernel without ESP has them. `ipsec_linux` has the rest.

#![allow(clippy::unwrap_used, reason = "a test")]

mod netns;

use netns::eventually;
use netns::ipsec::{Bed, Gateway};
use netns::router::{self, PROGRAM};

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
    assert!(show("ports").contains("sockets: IPsec policies"), "{}", show("ports"));
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
    assert_eq!(show("problems").trim(), "", "{}", show("problems"));
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
    assert_eq!(problems().trim(), "", "{}", problems());
}
