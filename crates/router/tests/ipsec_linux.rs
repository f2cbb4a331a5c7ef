//! IPsec gateways beside Linux's own and strongSwan. The tests need a kernel with ESP: `make test-linux-esp` runs them in a virtual
//! machine that has it.

#![allow(clippy::unwrap_used, reason = "a test")]

mod netns;

use netns::cluster::{Cluster, Plan, StorePlan};
use netns::eventually;
use netns::ipsec::{BOTH, Bed, Gateway, Ip, SUITES, StrongSwan, Tunnel, spi, xfrm_errors};
use netns::router::PROGRAM;
use testbed::has_esp;

/// Every remainder of a cipher's block, and some longer ones up to what fits into a packet in the tunnel.
fn sizes() -> impl Iterator<Item = usize> {
    (0..=66).chain((67..1300).step_by(101)).chain([1300])
}

fn is_answered(bed: &Bed, from: &str, to: &str) {
    assert!(eventually(|| bed.pings(from, to)), "{from}: no answer from {to}");
}

#[test]
fn tunnels_of_every_suite_carry_packets_of_every_size() {
    if !has_esp() {
        return;
    }
    let bed = Bed::new(Gateway::Linux);
    for (number, suite) in SUITES.into_iter().enumerate() {
        for outer in BOTH {
            // A window is kept in 32 bits or, if it is larger or the numbers are extended, as a bit map.
            let esn = (number + outer as usize).is_multiple_of(2);
            let replay_window = [32, 64, 1024][number % 3];
            let tunnel = Tunnel { suite, outer, esn, replay_window, ..Tunnel::DEFAULT };
            bed.install(&tunnel);
            let watch = bed.watch();
            let mut count = 0;
            for inner in BOTH {
                is_answered(&bed, "h1", &inner.host(2));
                bed.echo(inner, sizes());
                count += 1 + sizes().count() as u64;
            }
            for gateway in ["g1", "g2"] {
                let packets = bed.packets_by_spi(gateway);
                assert!(packets[&spi(1)] >= count && packets[&spi(2)] >= count, "{tunnel:?}: {packets:?}");
                assert_eq!(bed.errors(gateway), [""; 0], "{tunnel:?}");
            }
            let is_seen =
                eventually(|| [1, 2].iter().all(|&side| watch.seen().0.get(&spi(side)) >= Some(&count)));
            let (packets, others) = watch.seen();
            assert!(is_seen && packets.len() == 2, "{tunnel:?}: {packets:?}");
            assert_eq!(others, [""; 0], "{tunnel:?}");
        }
    }
}

/// A router that has associations and policies from a file, with Linux at the other end.
#[test]
fn our_esp_and_linuxs_understand_each_other() {
    if !has_esp() {
        return;
    }
    let bed = Bed::new(Gateway::Linux);
    let _ports = bed.open_udp_ports();
    for (number, suite) in SUITES.into_iter().enumerate() {
        for outer in BOTH {
            let esn = (number + outer as usize).is_multiple_of(2);
            let (replay_window, in_udp) = ([32, 64, 1024][number % 3], number % 3 == 1);
            let tunnel = Tunnel { suite, outer, esn, replay_window, in_udp, ..Tunnel::DEFAULT };
            let _router = bed.start_with_file(&tunnel);
            let mut count = 0;
            for inner in BOTH {
                is_answered(&bed, "h1", &inner.host(2));
                bed.echo(inner, sizes().step_by(3));
                count += 1 + sizes().step_by(3).count() as u64;
            }
            let packets = bed.packets_by_spi("g2");
            assert!(packets[&spi(1)] >= count && packets[&spi(2)] >= count, "{tunnel:?}: {packets:?}");
            assert_eq!(bed.errors("g2"), [""; 0], "{tunnel:?}");
        }
    }
}

/// `brickway run eth1 eth2` beside associations and policies of the kernel: the fast path does the work, without an option.
#[test]
fn a_router_works_by_linuxs_associations_and_policies() {
    if !has_esp() {
        return;
    }
    let bed = Bed::new(Gateway::Brickway);
    let _ports = bed.open_udp_ports();
    for (number, suite) in SUITES.into_iter().enumerate() {
        let outer = BOTH[number % 2];
        let (replay_window, in_udp) = ([32, 64, 1024][number % 3], number % 3 == 1);
        let tunnel = Tunnel { suite, outer, esn: number % 4 < 2, replay_window, in_udp, ..Tunnel::DEFAULT };
        bed.install(&tunnel);
        assert!(eventually(|| bed.packets_of_router().len() == 2), "the router has other associations");
        let watch = bed.watch();
        let mut count = 0;
        for inner in BOTH {
            is_answered(&bed, "h1", &inner.host(2));
            bed.echo(inner, sizes().step_by(3));
            count += 1 + sizes().step_by(3).count() as u64;
        }
        // What the gateway itself sends and receives is Linux's, under the same numbers.
        for inner in BOTH {
            let [near, far] = [inner.router(1), inner.host(2)];
            is_answered(&bed, "g1", &format!("-I {near} {far}"));
            is_answered(&bed, "h2", &near);
            // Too long for the way, and fragmented.
            is_answered(&bed, "h1", &format!("-M dont -s 1472 {far}"));
            is_answered(&bed, "h1", &format!("-M dont -s 4000 {far}"));
            bed.echo(inner, [100; 50]);
        }
        // Most were of the fast path: the first ones may have been there before it knew the associations.
        let ours = bed.packets_of_router();
        assert!(
            ours[&spi(1)] + 4 >= count && ours[&spi(2)] + 4 >= count,
            "{tunnel:?}: {ours:?}, not {count}"
        );
        assert_eq!(bed.errors("g2"), [""; 0], "{tunnel:?}");
        assert_eq!(bed.errors("g1"), [""; 0], "{tunnel:?}");
        let is_seen =
            eventually(|| [1, 2].iter().all(|&side| watch.seen().0.get(&spi(side)) >= Some(&count)));
        assert!(is_seen, "{tunnel:?}: {:?}", watch.seen());
        assert_eq!(watch.seen().1, [""; 0], "{tunnel:?}");
        // The kernel hears of it.
        let is_told = eventually(|| bed.packets_by_spi("g1")[&spi(1)] >= count);
        assert!(is_told, "{tunnel:?}: {:?}, not {count}", bed.packets_by_spi("g1"));
    }
}

/// While a module is loaded by which ESP bypasses the router's hooks, Linux goes on with the router's associations.
#[test]
fn linux_goes_on_while_esp_bypasses_the_hooks() {
    if !has_esp() {
        return;
    }
    let bed = Bed::new(Gateway::Brickway);
    let inner = BOTH[0];
    bed.install(&Tunnel::DEFAULT);
    let show = |what: &str| bed.network.run("g1", &format!("{PROGRAM} show {what}")).1;
    let is_ours = || !show("ipsec").contains("Linux: its ESP is not caught");
    assert!(eventually(|| bed.packets_of_router().len() == 2 && is_ours()), "{}", show("ipsec"));
    is_answered(&bed, "h1", &inner.host(2));
    bed.echo(inner, [100; 50]);
    let modprobe = |words: &str| {
        let (is_done, said) = bed.network.run("g1", &format!("modprobe {words}"));
        assert!(is_done, "{said}");
    };
    modprobe("esp4_offload");
    assert!(eventually(|| !is_ours()), "{}", show("ipsec"));
    assert!(show("problems").contains("esp4_offload"), "{}", show("problems"));
    is_answered(&bed, "h1", &inner.host(2));
    bed.echo(inner, [100; 50]);
    modprobe("-r esp4_offload");
    assert!(eventually(is_ours), "{}", show("ipsec"));
    is_answered(&bed, "h1", &inner.host(2));
    let before = bed.packets_of_router()[&spi(1)];
    bed.echo(inner, [100; 50]);
    assert!(bed.packets_of_router()[&spi(1)] >= before + 50, "{}", show("ipsec"));
    // No number was used twice, and none was received that is left out.
    for gateway in ["g1", "g2"] {
        assert_eq!(bed.errors(gateway), [""; 0], "{gateway}");
    }
}

/// Packets that do not fit into the tunnel are fragmented where they may be, and else the host learns the size.
#[test]
fn packets_that_do_not_fit_arrive_too() {
    if !has_esp() {
        return;
    }
    let bed = Bed::new(Gateway::Linux);
    for outer in BOTH {
        bed.install(&Tunnel { outer, ..Tunnel::DEFAULT });
        for inner in BOTH {
            let to = inner.host(2);
            for options in ["-M dont -s 1472", "-s 1472", "-s 4000"] {
                let is_answered = eventually(|| bed.network.answers("h1", &format!("{options} {to}")) == 10);
                assert!(is_answered, "{options} {to} in {outer:?}");
            }
        }
    }
}

#[test]
fn transport_mode_protects_what_gateways_send_themselves() {
    if !has_esp() {
        return;
    }
    for gateway in [Gateway::Linux, Gateway::Brickway] {
        let bed = Bed::new(gateway);
        for (number, suite) in SUITES.into_iter().enumerate() {
            let outer = BOTH[number % 2];
            bed.install(&Tunnel { suite, outer, is_tunnel: false, ..Tunnel::DEFAULT });
            let watch = bed.watch();
            for options in ["", "-s 0", "-s 1300"] {
                is_answered(&bed, "g1", &format!("{options} {}", outer.gateway(2)));
            }
            let is_seen =
                eventually(|| [1, 2].iter().all(|&side| watch.seen().0.get(&spi(side)) >= Some(&3)));
            assert!(is_seen, "{gateway:?}, {suite:?}: {:?}", watch.seen());
            assert_eq!(watch.seen().1, [""; 0], "{gateway:?}, {suite:?}");
        }
    }
}

#[test]
fn nat_traversal_carries_esp_in_udp() {
    if !has_esp() {
        return;
    }
    let bed = Bed::new(Gateway::Linux);
    let _ports = bed.open_udp_ports();
    for outer in BOTH {
        bed.install(&Tunnel { outer, in_udp: true, ..Tunnel::DEFAULT });
        let watch = bed.watch();
        for inner in BOTH {
            is_answered(&bed, "h1", &inner.host(2));
            bed.echo(inner, sizes().step_by(5));
        }
        assert!(eventually(|| watch.seen().0.len() == 2));
        assert_eq!(watch.seen().1, [""; 0]);
        assert!(watch.printed().contains("UDP-encap"), "{}", watch.printed());
    }
}

/// Half of the number is not sent: both ends count its carry.
#[test]
fn extended_sequence_numbers_go_past_32_bits() {
    if !has_esp() {
        return;
    }
    let bed = Bed::new(Gateway::Linux);
    for suite in SUITES {
        let tunnel =
            Tunnel { suite, esn: true, replay_window: 64, last_number: u32::MAX - 20, ..Tunnel::DEFAULT };
        bed.install(&tunnel);
        bed.echo(Ip::V4, 0..60);
        assert!(bed.packets_by_spi("g2")[&spi(1)] >= 60);
        assert_eq!(bed.errors("g2"), [""; 0], "{suite:?}");
    }
}

/// The bed notices a gateway that does not decrypt.
#[test]
fn another_key_lets_nothing_pass() {
    if !has_esp() {
        return;
    }
    let bed = Bed::new(Gateway::Linux);
    bed.install_with_seeds(&Tunnel::DEFAULT, [7, 8]);
    for inner in BOTH {
        assert!(!bed.pings("h1", &inner.host(2)));
    }
    assert_eq!(bed.errors("g2"), ["XfrmInStateProtoError 2"]);
    // Without a policy at `g1` the packets leave it as they are, and the middle has no route for them.
    bed.network.ip("g1", "xfrm policy flush");
    let watch = bed.watch();
    assert!(!bed.pings("h1", &Ip::V4.host(2)));
    assert!(eventually(|| watch.seen().1.iter().any(|line| line.contains("10.0.1.2 > 10.0.2.2: ICMP echo"))));
}

fn rekeys_of_strongswan_lose_nothing(gateway: Gateway, in_udp: bool) {
    if !has_esp() {
        return;
    }
    let bed = Bed::new(gateway);
    let _daemons = StrongSwan::start(&bed, in_udp);
    for inner in BOTH {
        is_answered(&bed, "h1", &inner.host(2));
    }
    let watch = bed.watch();
    let (sent, wrong) = bed.stream_during(Ip::V4, || {
        // Two associations each way make four; they are five or six with the keys that come after those.
        assert!(eventually(|| watch.seen().0.len() >= 5), "{:?}", watch.seen());
    });
    let errors = ["g1", "g2"].map(|gateway| bed.errors(gateway));
    let (_, drops) = bed.network.run("g1", &format!("{PROGRAM} show drops"));
    assert!(wrong.is_empty(), "of {sent} arrived 0 times or more than once: {wrong:?}\n{errors:?}\n{drops}");
    if gateway == Gateway::Brickway {
        // The fast path did it.
        assert_eq!(bed.network.run("g1", &format!("{PROGRAM} show problems")).1.lines().count(), 1);
        assert!(eventually(|| bed.packets_of_router().values().any(|&packets| packets > 0)));
    }
    assert!(eventually(|| watch.seen().0.values().sum::<u64>() >= sent), "{sent}: {:?}", watch.seen());
    assert_eq!(watch.seen().1, [""; 0]);
    assert_eq!(watch.printed().contains("UDP-encap"), in_udp);
}

#[test]
fn rekeys_of_strongswan_in_esp_lose_nothing() {
    rekeys_of_strongswan_lose_nothing(Gateway::Linux, false);
}

#[test]
fn rekeys_of_strongswan_in_udp_lose_nothing() {
    rekeys_of_strongswan_lose_nothing(Gateway::Linux, true);
}

#[test]
fn rekeys_of_strongswan_beside_a_router_lose_nothing() {
    rekeys_of_strongswan_lose_nothing(Gateway::Brickway, false);
}

#[test]
fn rekeys_of_strongswan_in_udp_beside_a_router_lose_nothing() {
    rekeys_of_strongswan_lose_nothing(Gateway::Brickway, true);
}

/// The network that is behind the other gateway of a cluster, as that of a host of this number.
const BEHIND: u8 = 9;

/// Gives the leader of a cluster and host `gateway`, which is a gateway then, a tunnel between the networks of host `inside` and
/// [`BEHIND`].
fn tunnel_of_cluster(cluster: &Cluster, leader: &str, gateway: u8, inside: u8) {
    let host = format!("h{gateway}");
    let [ours, theirs] = [Ip::V4.router(gateway), Ip::V4.host(gateway)];
    let key = |digit: &str| format!("0x{}", digit.repeat(40));
    for (label, sends) in [(leader, true), (&host[..], false)] {
        let mut lines = vec!["xfrm state flush".to_owned(), "xfrm policy flush".to_owned()];
        for (from, to, number, digit) in [(&ours, &theirs, 1, "a"), (&theirs, &ours, 2, "b")] {
            lines.push(format!(
                "xfrm state add src {from} dst {to} proto esp spi {:#x} reqid 1 mode tunnel replay-window 32 flag af-unspec \
                 aead rfc4106(gcm(aes)) {} 128",
                spi(number),
                key(digit)
            ));
        }
        for ip in BOTH {
            let [inner, behind] = [inside, BEHIND].map(|side| ip.network(side));
            for (source, destination, from, to, is_out) in
                [(&inner, &behind, &ours, &theirs, sends), (&behind, &inner, &theirs, &ours, !sends)]
            {
                for direction in if is_out { &["out"][..] } else { &["fwd", "in"] } {
                    lines.push(format!(
                        "xfrm policy add src {source} dst {destination} dir {direction} \
                         tmpl src {from} dst {to} proto esp reqid 1 mode tunnel"
                    ));
                }
            }
            let (network, via) = if sends {
                (ip.network(BEHIND), ip.host(gateway))
            } else {
                (ip.network(inside), ip.router(gateway))
            };
            lines.push(format!("route replace {network} via {via}"));
            if !sends {
                let bits = if ip == Ip::V4 { 32 } else { 128 };
                lines.push(format!("addr replace {}/{bits} dev lo", ip.host(BEHIND)));
            }
        }
        cluster.network.ip_batch(label, &lines);
    }
}

/// What an association of a cluster's leader has done, by SPI.
fn packets_of_cluster(cluster: &Cluster, leader: &str) -> std::collections::BTreeMap<u32, u64> {
    let text = cluster.shown(leader, "ipsec --json");
    let rows = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let of_row = |row: serde_json::Value| {
        let spi = row["what"].as_str()?.strip_prefix("esp 0x")?;
        Some((u32::from_str_radix(spi, 16).unwrap(), row["packets"].as_u64()?))
    };
    rows.filter_map(of_row).collect()
}

/// Datagrams of all sizes from a host to the other gateway's network, and back.
fn echo_over_cluster(cluster: &Cluster, ip: Ip, inside: u8, gateway: u8) -> u64 {
    let socket = |host: u8, address: &str| {
        let socket = cluster.network.udp_socket(&format!("h{host}"), address);
        socket.set_read_timeout(Some(testbed::DEADLINE)).unwrap();
        socket
    };
    let near = socket(inside, if ip == Ip::V4 { "0.0.0.0:0" } else { "[::]:0" });
    let behind = ip.host(BEHIND);
    let far = socket(gateway, &if ip == Ip::V4 { format!("{behind}:0") } else { format!("[{behind}]:0") });
    let to = (behind, far.local_addr().unwrap().port());
    let mut count = 0;
    for size in sizes().step_by(3) {
        let sent: Vec<u8> = (0..size).map(|at| (at * 31 + size) as u8).collect();
        cluster
            .network
            .namespace(&format!("h{inside}"))
            .enter(|| near.send_to(&sent, (&to.0[..], to.1)))
            .unwrap();
        let mut bytes = [0; 2048];
        let (length, from) = far.recv_from(&mut bytes).unwrap();
        assert_eq!(bytes[..length], sent[..], "{ip:?}, {size} bytes");
        far.send_to(&sent, from).unwrap();
        let length = near.recv(&mut bytes).unwrap();
        assert_eq!(bytes[..length], sent[..], "{ip:?}, {size} bytes back");
        count += 1;
    }
    count
}

/// Node 'a' leads and hosts the store. In turn the other gateway is behind its port, and behind that of the other node.
#[test]
fn a_cluster_does_esp_at_its_leader_by_whatever_port_packets_come() {
    if !has_esp() {
        return;
    }
    let mut cluster = Cluster::new(Plan {
        topology: "mesh(2)",
        settings: "hello = \"500ms\"\n",
        store: StorePlan::Hosted,
        ..Plan::default()
    });
    // For what is too long; Linux 6.12 knows it only for all interfaces.
    cluster.network.set("a", "net.ipv6.conf.all.forwarding=1");
    cluster.start("a");
    assert_eq!(cluster.next_leader(""), "a");
    cluster.start("b");
    cluster.all_reach_all(&[1, 2]);
    for (inside, gateway) in [(2, 1), (1, 2)] {
        tunnel_of_cluster(&cluster, "a", gateway, inside);
        let (host, other) = (format!("h{inside}"), format!("h{gateway}"));
        let has_both = || packets_of_cluster(&cluster, "a").len() == 2;
        assert!(eventually(has_both), "{}", cluster.shown("a", "ipsec"));
        assert!(
            eventually(|| cluster.shown("b", "ipsec").contains("reqid 1")),
            "{}",
            cluster.shown("b", "ipsec")
        );
        let watch = cluster.network.start(&other, "tcpdump -n -l -i eth0");
        watch.wait_until("tcpdump", || watch.printed().contains("listening on"));
        let pings = |from: &str, words: &str| {
            let is_answered = || cluster.network.run(from, &format!("ping -n -c 1 -W 5 {words}")).0;
            assert!(
                eventually(is_answered),
                "{from}: no answer from {words}\n{}",
                cluster.shown("a", "ipsec")
            );
        };
        let mut count = 0;
        for ip in BOTH {
            pings(&host, &ip.host(BEHIND));
            count += echo_over_cluster(&cluster, ip, inside, gateway);
        }
        let packets = packets_of_cluster(&cluster, "a");
        assert!([1, 2].iter().all(|&number| packets[&spi(number)] >= count), "{count}: {packets:?}");
        // What Linux has to see too: packets to the router itself, and those that are too long.
        for ip in BOTH {
            pings(&other, &format!("-I {} {}", ip.host(BEHIND), ip.router(inside)));
            pings(&host, &format!("-M dont -s 1472 {}", ip.host(BEHIND)));
        }
        // Both ends refuse what comes in clear.
        assert_eq!(xfrm_errors(&cluster.network, &other), [""; 0]);
        assert_eq!(xfrm_errors(&cluster.network, "a"), [""; 0]);
        let text = watch.printed();
        assert!(text.contains("ESP(spi=0x00001001") && text.contains("ESP(spi=0x00001002"), "{text}");
        // Nobody forwards the way of the first round in the second.
        let mut lines = vec!["xfrm state flush".to_owned(), "xfrm policy flush".to_owned()];
        lines.extend(BOTH.map(|ip| format!("addr flush dev lo to {}", ip.host(BEHIND))));
        cluster.network.ip_batch(&other, &lines);
    }
}
