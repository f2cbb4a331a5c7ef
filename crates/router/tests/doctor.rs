//! `brickway doctor` with real interfaces, in network namespaces.

#![allow(clippy::unwrap_used, reason = "a test")]

mod netns;

use netns::Network;

/// Runs the doctor in a namespace: exit code, and what it found as JSON.
fn doctor(network: &Network, words: &str) -> (i32, Vec<serde_json::Value>) {
    let command = format!("{} doctor --json {words}", env!("CARGO_BIN_EXE_brickway"));
    let output = network.on("router", &command).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let found = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (output.status.code().unwrap_or(-1), found)
}

/// What is wrong: `SUBJECT: WHAT`, of this verdict.
fn told(found: &[serde_json::Value], verdict: &str) -> Vec<String> {
    let of_verdict = found.iter().filter(|finding| finding["verdict"] == verdict);
    of_verdict
        .map(|finding| {
            format!("{}: {}", finding["subject"].as_str().unwrap(), finding["what"].as_str().unwrap())
        })
        .collect()
}

#[test]
fn vlans_are_looked_at_as_linux_has_them() {
    if !netns::is_root() {
        return;
    }
    let network = Network::new(&["router"]);
    network.ip("router", "link add left type veth peer name right");
    network.ip("router", "link set left up");
    // Not every kernel has VLAN interfaces; this one stands for one.
    network.ip("router", "link add left.7 type veth peer name right.7");
    network.set("router", "net.ipv4.conf.left/7.rp_filter=1");
    // Packets that Linux has merged nobody forwards where it has no interface for the VLAN.
    let (on, said) = network.run("router", "ethtool -K left gro on");
    assert!(on, "{said}");
    let (_, found) = doctor(&network, "af_packet:left left.7 left.8");
    let bad = told(&found, "bad");
    assert!(bad.contains(&"left.7: it is down".to_owned()), "{bad:#?}");
    assert!(bad.contains(&"left.8: left gets received packets merged by Linux (GRO)".to_owned()), "{bad:#?}");
    let warned = told(&found, "warn");
    let strict = "left.7: Linux checks source addresses strictly (rp_filter)".to_owned();
    assert!(warned.contains(&strict), "{warned:#?}");
    let fine = told(&found, "ok");
    let made = "left.8: Linux has no such interface: the router makes a TAP interface".to_owned();
    assert!(fine.contains(&made), "{fine:#?}");
}

#[test]
fn a_sick_router_is_made_well() {
    if !netns::is_root() {
        return;
    }
    let network = Network::new(&["router", "host"]);
    network.ip("router", "link add left type veth peer name right");
    network.ip("router", "link set right up mtu 1500");
    network.ip("router", "link set left mtu 40000");
    for setting in
        ["net.ipv4.ip_forward=0", "net.ipv6.conf.all.forwarding=0", "net.ipv4.conf.left.rp_filter=1"]
    {
        let (ok, said) = network.run("router", &format!("sysctl -qw {setting}"));
        assert!(ok, "{said}");
    }

    let (code, found) = doctor(&network, "left gone --workers 2");
    assert_eq!(code, 1);
    let bad = told(&found, "bad");
    for expected in [
        "forwarding: Linux does not forward IPv4",
        "forwarding: Linux does not forward IPv6",
        "left: it is down",
        "left: MTU 40000 of left: a frame of 32064 bytes holds 31918 at most; expected `ip link set left mtu 31918`",
        "left: its other end, right, leaves VLAN tags to a card",
        "gone: there is no such interface; expected one of right, left",
    ] {
        assert!(bad.iter().any(|told| told == expected), "no '{expected}' in {bad:#?}");
    }
    let warned = told(&found, "warn");
    assert!(
        warned.contains(&"left: Linux checks source addresses strictly (rp_filter)".to_owned()),
        "{warned:#?}"
    );
    assert!(warned.contains(&"left: 1 receive queue for 2 workers".to_owned()), "{warned:#?}");

    // What it may change it changes, and says so; the rest stays bad.
    let (code, found) = doctor(&network, "left --fix");
    assert_eq!(code, 1);
    for finding in &found {
        let can = finding["can_fix"] == true && finding["verdict"] != "ok";
        assert_eq!(finding["fixed"], if can { true.into() } else { serde_json::Value::Null }, "{finding}");
    }
    network.ip("router", "link set left mtu 1500");
    let (code, found) = doctor(&network, "left");
    assert_eq!((code, told(&found, "bad")), (0, Vec::new()));
    assert!(told(&found, "ok").contains(&"left: no offload is in the way".to_owned()));
}

#[test]
fn the_way_of_transit_is_foretold() {
    if !netns::is_root() {
        return;
    }
    let network = Network::new(&["router"]);
    network.ip("router", "link add left numrxqueues 1 type veth peer name right numtxqueues 2");
    network.ip("router", "link set left up");
    network.ip("router", "link set right up");
    let deaf = "left: plain transit to it goes by the workers: its other end does not poll (NAPI)".to_owned();
    let ways = |found: &[serde_json::Value]| {
        let [mut ok, warn] = ["ok", "warn"].map(|verdict| told(found, verdict));
        ok.extend(warn);
        ok.retain(|told| told.contains("plain transit"));
        ok
    };
    let kernel = "left: plain transit goes in the kernel (native XDP, which copies each packet of a host at the other end \
                  of the veth and has it send no long frames; driver = \"auto\" takes tc)"
        .to_owned();
    // What leaves the segmentation of hosts at a veth's other end alone is the default where Linux forwards.
    let gentle = "left: plain transit goes in the kernel (tc, which forwards the long frames of hosts whole; driver = \
                  \"xdp\" takes native XDP)";
    network.forward("router");
    let (_, found) = doctor(&network, "left left.7");
    assert_eq!(ways(&found), [gentle], "{found:#?}");
    let (_, found) = doctor(&network, "xdp:left left.7");
    assert_eq!(ways(&found), [kernel.clone(), deaf.clone()], "{found:#?}");
    // The kernel's program follows policy rules.
    network.ip("router", "rule add fwmark 1 lookup 100");
    network.ip("router", "rule add from 10.0.1.2 lookup 100");
    let (_, found) = doctor(&network, "xdp:left");
    assert_eq!(ways(&found), [kernel.clone(), deaf.clone()], "{found:#?}");
    let (_, found) = doctor(&network, "xdp:left --fix");
    let fixed = found.iter().find(|finding| deaf.ends_with(finding["what"].as_str().unwrap())).unwrap();
    assert_eq!((&fixed["fix"], &fixed["fixed"]), (&"ethtool -K right gro on".into(), &true.into()));
    let (_, found) = doctor(&network, "xdp:left");
    assert_eq!(ways(&found), [kernel]);
    // The other end may send by more queues than this one receives by: then it has no native XDP.
    let (done, said) = network.run("router", "ethtool -L right tx 2");
    assert!(done, "{said}");
    let (_, found) = doctor(&network, "xdp:left");
    assert_eq!(ways(&found), [gentle]);
}

#[test]
fn linuxs_ipsec_is_looked_at() {
    if !netns::is_root() {
        return;
    }
    let network = Network::new(&["router"]);
    network.ip("router", "link add left type veth peer name right");
    network.ip("router", "link set left up");
    network.forward("router");
    let of_ipsec = |found: &[serde_json::Value], verdict| {
        let mut told = told(found, verdict);
        told.retain(|told| told.starts_with("ipsec: "));
        told
    };
    let (_, found) = doctor(&network, "xdp:left");
    assert_eq!(of_ipsec(&found, "ok"), ["ipsec: Linux has no policies and no associations"], "{found:#?}");
    let way = |found: &[serde_json::Value]| {
        let told = ["ok", "warn"].map(|verdict| told(found, verdict)).concat();
        told.into_iter().find(|told| told.contains("plain transit goes ")).unwrap()
    };
    assert!(way(&found).contains("in the kernel"), "{found:#?}");
    let policy = |more: &str| {
        network.ip("router", &format!("xfrm policy add src 10.0.1.0/24 dst 10.0.2.0/24 {more}"));
    };
    policy("dir in action block");
    let (_, found) = doctor(&network, "xdp:left");
    assert!(way(&found).contains("in the kernel"), "{found:#?}");
    policy("dir out tmpl src 10.1.1.1 dst 10.1.2.1 proto esp mode tunnel");
    policy("dir fwd tmpl src 10.1.2.1 dst 10.1.1.1 proto ah mode tunnel");
    let (_, found) = doctor(&network, "xdp:left");
    let count = "ipsec: Linux has 3 policies and 0 associations".to_owned();
    assert!(of_ipsec(&found, "ok").contains(&count), "{found:#?}");
    let left = ["ipsec: policy fwd 10.0.1.0/24 > 10.0.2.0/24: left to Linux: ah"];
    assert_eq!(of_ipsec(&found, "warn"), left, "{found:#?}");
    assert!(way(&found).contains("by AF_XDP sockets, which copy: IPsec policies"), "{found:#?}");
    // Who ignores them has them bypassed.
    let settings = "[[port]]\nname = \"left\"\ndriver = \"xdp\"\n[beside_linux]\nignore = [\"ipsec\"]\n";
    let file = network.folder.write("brickway.toml", settings);
    let (_, found) = doctor(&network, &format!("--config {file}"));
    let ignored = of_ipsec(&found, "warn");
    assert!(ignored.len() == 2 && ignored[0].ends_with("ignored as 'ipsec'"), "{found:#?}");
    assert!(way(&found).contains("in the kernel"), "{found:#?}");
}

#[test]
fn who_has_an_interface_is_known() {
    if !netns::is_root() {
        return;
    }
    let network = Network::new(&["router", "host"]);
    network.link(("router", "left", "02:00:00:00:00:01"), ("host", "right", "02:00:00:00:00:02"));
    let program = env!("CARGO_BIN_EXE_brickway");
    let configuration = network.folder.write("doctor.click", "FromDevice(left) -> Discard;");
    let run = format!("{program} run {configuration} --port left=af_xdp:left");
    let router = network.start("router", &run);
    let is_taken = || {
        let (_, found) = doctor(&network, "left");
        let ok = told(&found, "ok");
        ok.iter().any(|told| told.starts_with("left: process ") && told.ends_with(" of Brickway has it"))
    };
    assert!(netns::eventually(is_taken), "{}", router.printed());
    let (_, found) = doctor(&network, "left");
    let far =
        "left: its other end is in another network namespace, where its offloads cannot be seen".to_owned();
    assert!(told(&found, "warn").contains(&far), "{found:#?}");
    assert!(!told(&found, "bad").iter().any(|told| told.contains("XDP")), "{found:#?}");
    // It has the interface before it runs; until then a shell may have it ignore Ctrl-C.
    assert!(netns::eventually(|| router.printed().contains("Ctrl-C stops it")), "{}", router.printed());
    router.interrupt();
}

#[test]
fn a_report_of_cards_has_their_ways_and_no_addresses() {
    if !netns::is_root() {
        return;
    }
    let network = netns::router::between_hosts();
    let report = || network.run("r", &format!("{} doctor --report eth1 eth2", netns::router::PROGRAM)).1;
    let before = report();
    for part in [
        "Brickway ",
        "a router runs: no",
        "\neth1\n",
        "driver: veth",
        "XDP: native",
        "foretold: plain transit",
    ] {
        assert!(before.contains(part), "no '{part}':\n{before}");
    }
    let router = netns::router::start(&network, "eth1 eth2");
    let runs = report();
    assert!(runs.contains("a router runs: yes") && runs.matches("  runs: af_xdp").count() == 2, "{runs}");
    assert!(!runs.contains("02:00:00") && !runs.contains("10.0."), "{runs}");
    assert_eq!(router.interrupt(), 0);
}
