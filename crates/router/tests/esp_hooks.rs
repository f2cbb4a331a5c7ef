//! ESP that Linux makes and opens, in the hands of a caller of `control::esp_hooks`. The test needs a kernel with ESP: `make
//! test-linux-esp` runs it in a virtual machine that has one.

#![allow(clippy::unwrap_used, reason = "a test")]

mod netns;

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use control::esp_hooks::{EspHooks, EspHooksError, Hook, Verdict};
use netns::ipsec::{BOTH, Bed, Gateway, Ip, Tunnel, spi};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use testbed::{has_esp, wait_until};

const MARK: u32 = 0x1000_0000;

/// Judges all packets while `act` runs on a thread of its own.
fn judged<T: Send>(
    hooks: &mut EspHooks,
    judge: &mut dyn FnMut(Hook, &[u8]) -> Verdict,
    act: impl FnOnce() -> T + Send,
) -> T {
    std::thread::scope(|scope| {
        let acting = scope.spawn(act);
        let a_moment = Timespec::try_from(Duration::from_millis(20)).unwrap();
        while !acting.is_finished() {
            let mut queues = hooks.fds().map(|queue| PollFd::from_borrowed_fd(queue, PollFlags::IN));
            poll(&mut queues, Some(&a_moment)).unwrap();
            hooks.receive(judge).unwrap();
        }
        acting.join().unwrap()
    })
}

/// Where ESP begins in a packet that has no options.
fn esp_at(packet: &[u8]) -> Option<usize> {
    let (protocol, at) = if packet[0] >> 4 == 4 { (packet[9], 20) } else { (packet[6], 40) };
    match protocol {
        50 => Some(at),
        17 => Some(at + 8),
        _ => None,
    }
}

/// What was seen: the hook, the SPI, and the length of the packet.
type Seen = Vec<(Hook, u32, usize)>;

fn note(seen: &mut Seen, hook: Hook, packet: &[u8]) {
    let at = esp_at(packet).unwrap_or_else(|| panic!("neither ESP nor UDP: {packet:x?}"));
    let spi = u32::from_be_bytes(packet[at..at + 4].try_into().unwrap());
    seen.push((hook, spi, packet.len()));
}

/// The same packet with a later sequence number, which the sender has not authenticated.
fn renumbered(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    let at = esp_at(&packet).unwrap() + 4;
    let number = u32::from_be_bytes(packet[at..at + 4].try_into().unwrap()) + 1000;
    packet[at..at + 4].copy_from_slice(&number.to_be_bytes());
    packet
}

/// How many packets a gateway dropped whose integrity check failed.
fn failed_checks(bed: &Bed, gateway: &str) -> u64 {
    let errors = bed.errors(gateway);
    let count = errors.iter().find_map(|line| line.strip_prefix("XfrmInStateProtoError "));
    count.map_or(0, |count| count.parse().unwrap())
}

/// The hooks in g1, and what they lead to.
struct Hooked {
    bed: Bed,
    hooks: EspHooks,
}

impl Hooked {
    fn ping(&mut self, from: &str, to: &str, judge: &mut dyn FnMut(Hook, &[u8]) -> Verdict) -> bool {
        judged(&mut self.hooks, judge, || self.bed.pings(from, to))
    }

    /// Pings until there is an answer. Returns what the hooks saw of it.
    fn seen_of_answer(&mut self, from: &str, to: &str) -> Seen {
        let mut seen = Seen::new();
        let mut accept = |hook, packet: &[u8]| {
            note(&mut seen, hook, packet);
            Verdict::Accept
        };
        assert!((0..10).any(|_| self.ping(from, to, &mut accept)), "{from}: no answer from {to}");
        seen
    }

    fn pings_pass_and_both_directions_are_seen(&mut self, from: &str, to: &str) {
        let seen = self.seen_of_answer(from, to);
        for expected in [(Hook::Output, spi(1)), (Hook::Input, spi(2))] {
            assert!(seen.iter().any(|(hook, spi, _)| (*hook, *spi) == expected), "{expected:x?}: {seen:x?}");
        }
        assert!(seen.iter().all(|(hook, spi_seen, _)| (*hook == Hook::Output) == (*spi_seen == spi(1))));
    }
}

#[test]
fn esp_of_linux_is_judged_before_it_leaves_and_before_it_is_opened() {
    if !has_esp() {
        return;
    }
    let bed = Bed::new(Gateway::Linux);
    let hooks = bed.network.namespace("g1").enter(|| EspHooks::raise(MARK, None)).unwrap();
    let mut hooked = Hooked { bed, hooks };
    for outer in BOTH {
        passed_dropped_and_replaced(&mut hooked, outer);
        fragments_are_judged_as_one_packet(&mut hooked, outer);
    }
    let _ports = hooked.bed.open_udp_ports();
    for outer in BOTH {
        in_udp(&mut hooked, outer);
    }
    let counters = hooked.hooks.counters();
    assert_eq!([counters.lost, counters.expired, counters.unreadable, counters.unencrypted], [0; 4]);
    // Other tests of a machine that stays would suffer from it.
    if std::env::var("BRICKWAY_ESP").is_ok_and(|value| value == "1") {
        what_linux_segments_and_encrypts_later_is_dropped(&mut hooked);
    }
    let Hooked { bed, hooks } = hooked;
    let tables = || bed.network.run("g1", "nft list tables").1;
    assert!(tables().contains("brickway_ipsec"), "{}", tables());
    // Without a reader nothing passes, and without hooks everything.
    assert!(!bed.pings("h1", &Ip::V4.host(2)));
    drop(hooks);
    assert_eq!(tables(), "");
    assert!(netns::eventually(|| bed.pings("h1", &Ip::V4.host(2))));
}

fn passed_dropped_and_replaced(hooked: &mut Hooked, outer: Ip) {
    hooked.bed.install(&Tunnel { outer, ..Tunnel::DEFAULT });
    for inner in BOTH {
        hooked.pings_pass_and_both_directions_are_seen("h1", &inner.host(2));
    }
    let to = outer.host(2);
    for dropping in [Hook::Output, Hook::Input] {
        let before = hooked.hooks.counters();
        let mut judge = |hook, _: &[u8]| if hook == dropping { Verdict::Drop } else { Verdict::Accept };
        assert!(!hooked.ping("h1", &to, &mut judge), "{dropping:?}");
        let after = hooked.hooks.counters();
        let drops =
            [after.output.dropped - before.output.dropped, after.input.dropped - before.input.dropped];
        let is_expected = if dropping == Hook::Output { drops[0] > 0 && drops[1] == 0 } else { drops[1] > 0 };
        assert!(is_expected, "{dropping:?}: {drops:?}");
    }
    for (replacing, opener) in [(Hook::Output, "g2"), (Hook::Input, "g1")] {
        let (failures, counters) = (failed_checks(&hooked.bed, opener), hooked.hooks.counters());
        let mut judge = |hook, packet: &[u8]| {
            if hook == replacing { Verdict::Replace(renumbered(packet)) } else { Verdict::Accept }
        };
        assert!(!hooked.ping("h1", &to, &mut judge), "{replacing:?}");
        assert!(failed_checks(&hooked.bed, opener) > failures, "{replacing:?}");
        let after = hooked.hooks.counters();
        let replaced = [
            after.output.replaced - counters.output.replaced,
            after.input.replaced - counters.input.replaced,
        ];
        assert_eq!(replaced.map(|count| count > 0), [replacing == Hook::Output, replacing == Hook::Input]);
    }
}

/// In transport mode ESP itself is fragmented.
fn fragments_are_judged_as_one_packet(hooked: &mut Hooked, outer: Ip) {
    hooked.bed.install(&Tunnel { outer, is_tunnel: false, ..Tunnel::DEFAULT });
    hooked.pings_pass_and_both_directions_are_seen("g1", &outer.gateway(2));
    let watch = hooked.bed.watch();
    let seen = hooked.seen_of_answer("g1", &format!("-s 4000 {}", outer.gateway(2)));
    assert!(seen.iter().all(|(.., length)| *length > 4000), "{outer:?}: {seen:x?}");
    for expected in [Hook::Output, Hook::Input] {
        assert!(seen.iter().any(|(hook, ..)| *hook == expected), "{outer:?}: {seen:x?}");
    }
    wait_until("fragments", || {
        let printed = watch.printed();
        ["frag", "ip-proto-50"].iter().any(|word| printed.contains(word))
    });
}

fn in_udp(hooked: &mut Hooked, outer: Ip) {
    hooked.bed.install(&Tunnel { outer, in_udp: true, ..Tunnel::DEFAULT });
    let to = outer.host(2);
    hooked.hooks.set_udp_ports(&[]).unwrap();
    assert_eq!(hooked.seen_of_answer("h1", &to), []);
    hooked.hooks.set_udp_ports(&[4500]).unwrap();
    hooked.pings_pass_and_both_directions_are_seen("h1", &to);
    // IKE first, a keepalive, and then ESP of an association that nobody knows.
    let any = if outer == Ip::V4 { "0.0.0.0:0" } else { "[::]:0" };
    let socket = hooked.bed.network.udp_socket("m", any);
    let gateway = outer.gateway(1);
    let mut seen = Seen::new();
    let mut judge = |hook, packet: &[u8]| {
        note(&mut seen, hook, packet);
        Verdict::Drop
    };
    for datagram in [&[0; 40][..], &[0xff], &[9; 40]] {
        socket.send_to(datagram, (&gateway[..], 4500)).unwrap();
    }
    let before = hooked.hooks.counters().input.dropped;
    wait_until("a datagram of ESP", || {
        hooked.hooks.receive(&mut judge).unwrap();
        hooked.hooks.counters().input.dropped > before
    });
    assert_eq!(seen.len(), 1, "{seen:x?}");
    assert_eq!(seen[0].1, 0x0909_0909);
}

/// Loads the modules of ESP's offload, which nobody is to have loaded before.
fn what_linux_segments_and_encrypts_later_is_dropped(hooked: &mut Hooked) {
    let network = &hooked.bed.network;
    let (is_loaded, text) = network.run("g1", "modprobe -a esp4_offload esp6_offload");
    assert!(is_loaded, "{text}");
    let raised = network.namespace("h1").enter(|| EspHooks::raise(MARK, None));
    assert!(matches!(raised, Err(EspHooksError::Offload("esp4_offload"))), "{raised:?}");
    let (is_set, text) = network.run("g1", "ethtool -K eth2 tx on tso on gso on");
    assert!(is_set, "{text}");
    for outer in BOTH {
        hooked.bed.install(&Tunnel { outer, is_tunnel: false, ..Tunnel::DEFAULT });
        let address = (outer.gateway(2), 0);
        let namespace = |label| hooked.bed.network.namespace(label);
        let listener = namespace("g2").enter(|| TcpListener::bind(address)).unwrap();
        let to = listener.local_addr().unwrap();
        let before = hooked.hooks.counters().unencrypted;
        // The first packets are not large.
        let mut accept = |_, _: &[u8]| Verdict::Accept;
        let connect = || namespace("g1").enter(|| TcpStream::connect(to)).unwrap();
        let mut stream = judged(&mut hooked.hooks, &mut accept, connect);
        stream.set_nonblocking(true).unwrap();
        wait_until("a large packet", || {
            // As much as there is room for.
            let _ = stream.write(&[0; 1 << 16]);
            hooked.hooks.receive(&mut accept).unwrap();
            hooked.hooks.counters().unencrypted > before
        });
    }
    hooked.bed.install(&Tunnel::DEFAULT);
}
