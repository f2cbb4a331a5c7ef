//! The program in the kernel says of random packets what the lists say, or leaves them to the graph; and counts.

use std::net::Ipv4Addr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use fib::{Adjacency, Fib, MAIN, NextHop, Region};
use packet::IpVersion;
use packet::flow::FlowKey;
use ports::{KernelForwarding, KernelPort, Sources, XdpMode};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use testbed::is_root;

use super::super::list::AccessList;
use super::super::parse::lines;
use super::super::rule::{Action, Inputs, Rule};
use super::naive::{Outcome, judge};
use super::random::{list, packet, text};
use super::{A, B, ports, tcp};
use testbed::ipv4::{ipv4, refresh};

const REDIRECTED: u32 = 4;
const PASSED: u32 = 2;

/// The program, with a way out for everybody, and two lists by which it judges.
struct Kernel {
    forwarding: KernelForwarding,
    /// The program reads its tables.
    _fib: Fib<Adjacency>,
    lists: [AccessList; 2],
}

impl Kernel {
    fn new() -> Self {
        let mut forwarding = KernelForwarding::load(0, FlowKey::from_seed(7), true).unwrap();
        let mut fib = Fib::new().unwrap();
        let adjacency = Adjacency::ethernet(1, [1; 6], [7; 6], [8, 0]);
        let next_hop = fib.next_hops_mut().add(NextHop::Forward(adjacency)).unwrap();
        for prefix in ["0.0.0.0/0", "::/0"] {
            fib.insert(MAIN, prefix.parse().unwrap(), next_hop).unwrap();
        }
        let region = Region::new(forwarding.take_tables().unwrap());
        fib.share(Some((&region, KernelForwarding::slots())), || ()).unwrap();
        let list = || AccessList::new(Vec::new(), Some(Action::Deny), Inputs::default(), 1);
        let mut kernel = Self { forwarding, _fib: fib, lists: [list(), list()] };
        kernel.set_port(0, 0);
        kernel.set_port(1, 0);
        kernel
    }

    fn set_port(&mut self, number: u16, paint: u8) {
        let port = KernelPort {
            is_vlan: false,
            interface: 1,
            mtu: 1500,
            longest: [u32::MAX; 2],
            receives: (number == 0).then_some(XdpMode::Native),
            sends: number == 1,
            sends_native: true,
            sends_native_fragments: true,
            sources: [Sources::All; 2],
            paint,
        };
        self.forwarding.set_port(number, port).unwrap();
    }

    fn judge_in_kernel(&mut self) {
        for (list, version) in self.lists.iter().zip([IpVersion::V4, IpVersion::V6]) {
            list.judge_in_kernel(self.forwarding.take_list(version).unwrap());
        }
    }

    fn set(&self, text: &str) {
        self.lists.iter().for_each(|list| list.replace(text).unwrap());
    }

    /// Whether the program forwards a packet.
    fn forwards(&mut self, packet: &[u8]) -> bool {
        let mut packet = packet.to_vec();
        let kind = if packet[0] >> 4 == 4 { [8, 0] } else { [0x86, 0xdd] };
        if kind == [8, 0] {
            refresh(&mut packet);
        }
        let frame = [&[2; 12][..], &kind, &packet].concat();
        let (said, _) = self.forwarding.test_run(&frame).unwrap();
        assert!(said == REDIRECTED || said == PASSED, "{said}");
        said == REDIRECTED
    }

    /// Compares with the plain reading of the rules: what is forwarded, and what is counted. Returns how many packets were forwarded.
    fn compare(&mut self, rules: &[Rule], default: Action, packets: &[(Vec<u8>, u8)]) -> usize {
        for list in &self.lists {
            list.replace_with_default(lines(&text(rules)), Some(default == Action::Permit)).unwrap();
        }
        let mut counts = vec![(0, 0); rules.len() + 1];
        let mut forwarded = 0;
        for (bytes, paint) in packets {
            self.set_port(0, *paint);
            let outcome = judge(rules, default, bytes, *paint);
            let forwards = self.forwards(bytes);
            match outcome {
                Outcome::Decided(place, Action::Permit) => {
                    assert_eq!(forwards, is_plain(bytes), "{bytes:02x?} {rules:?}");
                    if forwards {
                        counts[place].0 += 1;
                        counts[place].1 += bytes.len();
                        forwarded += 1;
                    }
                }
                _ => assert!(!forwards, "{outcome:?} {bytes:02x?} {paint}"),
            }
        }
        let mut counted = vec![(0, 0); rules.len() + 1];
        for list in &self.lists {
            let text = list.text() + &list.default_text();
            for (sum, line) in counted.iter_mut().zip(text.lines()) {
                let (_, note) = line.split_once(" # ").unwrap();
                let numbers: Vec<usize> = note.split(' ').filter_map(|word| word.parse().ok()).collect();
                *sum = (sum.0 + numbers[0], sum.1 + numbers[1]);
            }
        }
        assert_eq!(counted, counts, "{}", text(rules));
        self.lists.iter().for_each(AccessList::reset_counts);
        forwarded
    }
}

/// Whether a packet is one that the program forwards if a list permits it.
fn is_plain(bytes: &[u8]) -> bool {
    let (protocol, transport) = match bytes[0] >> 4 {
        4 => {
            let is_far = |head: u8| head != 0 && head < 224;
            let fragment = u16::from_be_bytes([bytes[6], bytes[7]]) & 0x3fff;
            if bytes[0] != 0x45
                || fragment != 0
                || !is_far(bytes[12])
                || bytes[12] == 127
                || !is_far(bytes[16])
            {
                return false;
            }
            (bytes[9], bytes.len() - 20)
        }
        _ => {
            let is_far = |head: &[u8]| {
                let head = u16::from_be_bytes([head[0], head[1]]);
                head != 0 && head < 0xff00 && head & 0xffc0 != 0xfe80
            };
            if [0, 43, 44, 51, 60, 135, 139, 140].contains(&bytes[6])
                || !is_far(&bytes[8..])
                || !is_far(&bytes[24..])
            {
                return false;
            }
            (bytes[6], bytes.len() - 40)
        }
    };
    transport >= if protocol == 6 { 16 } else { 4 }
}

#[test]
fn the_program_forwards_what_the_list_permits_and_counts_it() {
    if !is_root() {
        return;
    }
    let mut kernel = Kernel::new();
    kernel.judge_in_kernel();
    let mut runner = TestRunner::deterministic();
    let mut forwarded = 0;
    for (rules, packets, rounds) in [(0..12, 60, 200), (10..120, 300, 60), (300..1000, 600, 8)] {
        for round in 0..rounds {
            let rules = list(rules.clone()).new_tree(&mut runner).unwrap().current();
            let packets = prop::collection::vec(packet(), packets).new_tree(&mut runner).unwrap().current();
            let default = [Action::Permit, Action::Deny][round % 2];
            forwarded += kernel.compare(&rules, default, &packets);
        }
    }
    assert!(forwarded > 2_000, "{forwarded}");
}

#[test]
fn nothing_is_forwarded_without_a_list_or_by_one_that_is_too_long() {
    if !is_root() {
        return;
    }
    let mut kernel = Kernel::new();
    let web = tcp(A, B, 80);
    kernel.set("permit any any any");
    assert!(!kernel.forwards(&web));
    kernel.judge_in_kernel();
    assert!(kernel.forwards(&web));
    // More answers than the program has counts for.
    let rule = |number: u32| format!("permit tcp any {} port 80\n", Ipv4Addr::from(0xc633_6400 + number));
    let rules = |count| (0..count).map(rule).collect::<String>();
    for (count, fits) in [(1023, true), (1024, false), (100, true)] {
        kernel.set(&rules(count));
        assert_eq!(kernel.lists[0].fits_kernel(IpVersion::V4), fits, "{count}");
        assert_eq!(kernel.forwards(&web), fits, "{count}");
        assert!(!kernel.forwards(&tcp(A, B, 81)));
    }
    // A rule keeps its counts when its list changes, those of the kernel too.
    assert!(
        kernel.lists[0].text().contains("20 permit tcp any 198.51.100.1/32 port 80 # 2 packets, 80 bytes\n")
    );
}

/// While rules change as fast as they can, a packet that all of them deny is never forwarded, and one that all permit always;
/// when a change has returned, it holds.
#[test]
fn a_packet_is_judged_by_one_list_as_a_whole() {
    if !is_root() {
        return;
    }
    let mut kernel = Kernel::new();
    kernel.set("permit any any any");
    kernel.judge_in_kernel();
    let (permitted, denied, other) = (tcp(A, B, 80), tcp(B, A, 80), ipv4(A, B, 17, &ports(1, 53)));
    // Classes and answers of one are wrong for the other.
    let rules = |swapped: bool| -> String {
        let many = (0..100).map(|number| format!("deny tcp any 10.0.{number}.0/24 port {number}\n"));
        let head = if swapped { "deny udp any any port 53\n" } else { "permit udp any any port 53\n" };
        let tail = "permit tcp 192.0.2.0/24 any port 80\ndeny tcp any any\n";
        if swapped { [head, tail].concat() } else { many.collect::<String>() + head + tail }
    };
    let done = AtomicBool::new(false);
    let [list, _] = &kernel.lists;
    let forwarding = Mutex::new(&mut kernel.forwarding);
    let forwards = |packet: &[u8]| {
        let frame = [&[2; 12][..], &[8, 0], packet].concat();
        packet::sync::lock(&forwarding).test_run(&frame).unwrap().0 == REDIRECTED
    };
    list.replace(&rules(false)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                assert!(forwards(&permitted));
                assert!(!forwards(&denied));
            }
        });
        for round in 0..200 {
            let swapped = round % 2 == 0;
            list.replace(&rules(swapped)).unwrap();
            assert_eq!(forwards(&other), !swapped, "{round}");
        }
        done.store(true, Ordering::Relaxed);
    });
}
