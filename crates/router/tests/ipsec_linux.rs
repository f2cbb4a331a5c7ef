//! IPsec gateways beside Linux's own and strongSwan. The tests need a kernel with ESP: `make test-linux-esp` runs them in a virtual
//! machine that has it.

#![allow(clippy::unwrap_used, reason = "a test")]

mod netns;

use netns::eventually;
use netns::ipsec::{BOTH, Bed, Gateway, Ip, SUITES, StrongSwan, Tunnel, spi};
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
        assert_eq!(bed.network.run("g1", &format!("{PROGRAM} show problems")).1.trim(), "");
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
