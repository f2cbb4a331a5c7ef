//! A real kernel, in network namespaces.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, UdpSocket};
use std::process::Command;
use std::time::Instant;

use packet::random::SplitMix64;
use rustix::event::{PollFd, PollFlags, poll};
use testbed::{DEADLINE, in_namespace, ip, veth_pair};

use super::*;

/// What a follower of [`Watch`] knows.
struct Follower {
    watch: Watch,
    sas: BTreeMap<SaId, Sa>,
    policies: BTreeMap<PolicyIndex, (Rank, Policy)>,
    defaults: Option<Defaults>,
    events: Vec<Event>,
}

impl Follower {
    fn new(options: &WatchOptions) -> Follower {
        let watch = Watch::open(options).unwrap().expect("this kernel has IPsec policies");
        let none = (BTreeMap::new(), BTreeMap::new());
        Follower { watch, sas: none.0, policies: none.1, defaults: None, events: Vec::new() }
    }

    fn synchronised() -> Follower {
        let mut follower = Follower::new(&WatchOptions::default());
        follower.until("the first dump", |follower| follower.events.contains(&Event::Synchronised));
        assert!(follower.watch.is_synchronised());
        follower
    }

    /// Follows until it is so.
    fn until(&mut self, what: &str, is_so: impl Fn(&Follower) -> bool) {
        let end = Instant::now() + DEADLINE;
        while !is_so(self) {
            assert!(Instant::now() < end, "{what}; events: {:#?}", self.events);
            self.turn();
        }
    }

    fn turn(&mut self) {
        let timeout = rustix::time::Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
        let mut new = Vec::new();
        if poll(&mut [PollFd::new(&self.watch.fd(), PollFlags::IN)], Some(&timeout)).unwrap() > 0 {
            self.watch.receive(&mut |event| new.push(event)).unwrap();
        }
        assert!(self.watch.buffer_is_zero(), "keys are left in the buffer");
        for event in &new {
            match event.clone() {
                Event::Sa(sa) => drop(self.sas.insert(sa.id, *sa)),
                Event::SaGone(id) => drop(self.sas.remove(&id)),
                Event::Policy(policy, rank) => drop(self.policies.insert(policy.index, (rank, *policy))),
                Event::PolicyGone(index) => drop(self.policies.remove(&index)),
                Event::Defaults(defaults) => self.defaults = Some(defaults),
                Event::SaExpired(..) | Event::PolicyExpired(..) | Event::Synchronised => {}
            }
        }
        self.events.append(&mut new);
    }

    /// The policies in their order.
    fn ordered(&self) -> Vec<&Policy> {
        let mut all: Vec<_> = self.policies.values().collect();
        all.sort_by_key(|(rank, _)| *rank);
        all.into_iter().map(|(_, policy)| policy).collect()
    }

    fn destinations(&self) -> Vec<String> {
        self.ordered().iter().map(|policy| policy.selector.destination.to_string()).collect()
    }

    fn expired(&self, expiry: Expiry) -> bool {
        self.events.iter().any(|event| match event {
            Event::SaExpired(_, its) | Event::PolicyExpired(_, its) => *its == expiry,
            _ => false,
        })
    }
}

/// Adds a policy for packets that leave.
fn block(destination: &str, more: &str) {
    ip(&format!("xfrm policy add dir out src 0.0.0.0/0 dst {destination} {more}"));
}

#[test]
fn policies_are_followed_from_the_first_to_the_last() {
    in_namespace(|| {
        block("10.1.0.0/16", "priority 10 action block");
        block("10.2.0.0/16", "priority 5");
        block("10.3.0.0/16", "priority 10 action block");
        let mut follower = Follower::synchronised();
        assert_eq!(follower.destinations(), ["10.2.0.0/16", "10.1.0.0/16", "10.3.0.0/16"]);
        assert_eq!(follower.defaults, Some(Defaults::ALLOW));

        block("10.4.0.0/16", "priority 10 action block");
        ip("xfrm policy update dir out src 0.0.0.0/0 dst 10.1.0.0/16 priority 7 action allow");
        ip("xfrm policy delete dir out src 0.0.0.0/0 dst 10.3.0.0/16");
        let expected = ["10.2.0.0/16", "10.1.0.0/16", "10.4.0.0/16"];
        follower.until("changes", |follower| follower.destinations() == expected);
        assert_eq!(follower.ordered()[1].action, Action::Allow);
        let listed: Vec<_> =
            policies().unwrap().iter().map(|policy| policy.selector.destination.to_string()).collect();
        assert_eq!(listed, expected);

        let index = follower.ordered()[0].index;
        ip(&format!("xfrm policy delete dir out index {index}"));
        follower.until("one gone by its number", |follower| follower.policies.len() == 2);
        ip("xfrm policy setdefault fwd block");
        follower
            .until("defaults", |follower| follower.defaults.is_some_and(|its| its.forward == Action::Block));
        assert_eq!(Requests::open().unwrap().unwrap().defaults().unwrap(), follower.defaults.unwrap());
        ip("xfrm policy flush");
        follower.until("all gone", |follower| follower.policies.is_empty());

        block("10.5.0.0/16", "limit time-hard 1");
        follower.until("it expires", |follower| follower.expired(Expiry::Hard));
        assert!(follower.policies.is_empty(), "what has expired is gone");
    });
}

#[test]
fn lost_messages_lead_to_a_dump_with_all_that_changed() {
    in_namespace(|| {
        for prefix in ["10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16"] {
            block(prefix, "priority 9");
        }
        let mut follower = Follower::new(&WatchOptions { receive_buffer: 4096 });
        follower.until("the first dump", |follower| follower.watch.is_synchronised());
        follower.events.clear();
        ip("xfrm policy delete dir out src 0.0.0.0/0 dst 10.2.0.0/16");
        let many: String = (1..=99)
            .map(|number| format!("xfrm policy add dir in src 10.9.{number}.0/24 dst 10.0.0.0/8\n"))
            .collect();
        crate::netlink::testing::ip_batch(&many);
        ip("xfrm policy delete dir out src 0.0.0.0/0 dst 10.1.0.0/16");
        block("10.4.0.0/16", "priority 9");
        follower.until("everything again", |follower| follower.events.contains(&Event::Synchronised));
        assert!(follower.watch.counters().overruns > 0, "{:?}", follower.watch.counters());
        assert_eq!(follower.policies.len(), 101);
        let out = follower.ordered().into_iter().filter(|policy| policy.direction == Direction::Out);
        let out: Vec<_> = out.map(|policy| policy.selector.destination.to_string()).collect();
        assert_eq!(out, ["10.3.0.0/16", "10.4.0.0/16"]);
    });
}

/// What the kernel does with a packet of UDP to this port, by the first policy that is for it.
fn decided(policies: &[&Policy], destination: Ipv4Addr, port: u16) -> bool {
    let packet = (destination.into(), Ipv4Addr::new(10, 9, 0, 1).into());
    let decides = |policy: &&&Policy| {
        let selector = &policy.selector;
        let is_udp = matches!(selector.protocol, 0 | 17);
        let prefixes: [(&ipnet::IpNet, std::net::IpAddr); 2] =
            [(&selector.destination, packet.0), (&selector.source, packet.1)];
        prefixes.iter().all(|(prefix, address)| prefix.contains(address))
            && is_udp
            && selector.destination_port.matches(port)
    };
    policies.iter().find(decides).is_none_or(|policy| policy.action == Action::Allow)
}

#[test]
fn the_order_is_the_one_by_which_the_kernel_decides() {
    in_namespace(|| {
        veth_pair("left0", "right0", 1);
        ip("addr add 10.9.0.1/16 dev left0");
        let mut random = SplitMix64::new(7);
        let mut follower = Follower::synchronised();
        let (destinations, ports) = ([Ipv4Addr::new(10, 9, 1, 1), Ipv4Addr::new(10, 9, 2, 1)], [7, 9]);
        let mut added = std::collections::HashSet::new();
        let mut verdicts = [0, 0];
        while added.len() < 60 {
            let mut choose = |choices: &[&'static str]| *random.choice(choices).unwrap();
            let destination = choose(&[
                "10.9.0.0/16",
                "10.9.1.0/24",
                "10.9.1.1/32",
                "10.9.2.1/32",
                "10.8.0.0/15",
                "0.0.0.0/0",
            ]);
            let source = choose(&["0.0.0.0/0", "10.9.0.0/16", "10.9.0.1/32", "10.7.0.0/16"]);
            let upper = choose(&["", "proto udp", "proto udp dport 7", "proto udp dport 9", "proto tcp"]);
            let selector = format!("dir out src {source} dst {destination} {upper}");
            if !added.insert(selector.clone()) {
                continue;
            }
            let (priority, action) = (choose(&["1", "2", "3"]), choose(&["allow", "block"]));
            ip(&format!("xfrm policy add {selector} priority {priority} action {action}"));
            follower.until("it is there", |follower| follower.policies.len() == added.len());
            // One that was dumped and one that was followed agree.
            let dumped: Vec<PolicyIndex> = policies().unwrap().iter().map(|policy| policy.index).collect();
            assert_eq!(follower.ordered().iter().map(|policy| policy.index).collect::<Vec<_>>(), dumped);
            for (destination, port) in destinations.into_iter().flat_map(|to| ports.map(|port| (to, port))) {
                let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
                let passes = socket.connect((destination, port)).is_ok();
                verdicts[usize::from(passes)] += 1;
                let expected = decided(&follower.ordered(), destination, port);
                assert_eq!(passes, expected, "{destination}:{port} {:#?}", follower.ordered());
            }
        }
        assert!(verdicts.iter().all(|&count| count > 20), "both happen: {verdicts:?}");
    });
}

/// Adds an SA. Returns `false`, and prints why, where the kernel has no ESP.
fn add_sa(words: &str) -> bool {
    let output =
        Command::new("ip").args(["xfrm", "state", "add"]).args(words.split_whitespace()).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    if error.contains("Protocol not supported") || error.contains("algorithm not found") {
        eprintln!("left out: this kernel has no ESP, or no AES-GCM");
        return false;
    }
    assert!(output.status.success(), "{words}: {error}");
    true
}

const GCM: &str = "mode tunnel reqid 7 aead rfc4106(gcm(aes)) 0x000102030405060708090a0b0c0d0e0f10111213 128";

#[test]
fn sas_are_followed_and_get_their_counters() {
    in_namespace(|| {
        let mut follower = Follower::synchronised();
        if !add_sa(&format!("src 10.0.0.1 dst 10.0.0.2 proto esp spi 1 {GCM} replay-window 32")) {
            return;
        }
        let esn = format!("src 10.0.0.1 dst 10.0.0.2 proto esp spi 2 {GCM} flag esn replay-window 128");
        assert!(add_sa(&format!("{esn} mark 0x10 mask 0xff")));
        follower.until("two SAs", |follower| follower.sas.len() == 2);
        let mut requests = Requests::open().unwrap().unwrap();
        let all: Vec<Sa> = follower.sas.values().cloned().collect();
        for sa in &all {
            assert_eq!(requests.ask(&sa.id).unwrap().as_ref(), Some(sa));
        }

        // Counters and sequence numbers.
        let progress: Vec<Progress> = all
            .iter()
            .map(|sa| Progress {
                id: sa.id,
                usage: Some(Usage { bytes: 1000, packets: 10, used_at: Some(sa.usage.added_at), ..sa.usage }),
                replay: Some(sa.replay.advanced(5, (7 << 30) + 100, |number| number % 3 == 0)),
            })
            .collect();
        assert!(requests.report(&progress).is_empty());
        for progress in &progress {
            let sa = requests.ask(&progress.id).unwrap().unwrap();
            assert_eq!(Some(sa.usage), progress.usage);
            let (is, told) = (&sa.replay, progress.replay.as_ref().unwrap());
            assert_eq!(is.bytes(), told.bytes());
            let short = is.form == ReplayForm::Short;
            assert_eq!(
                (is.sent, is.received),
                (5, if short { told.received as u32 as u64 } else { told.received })
            );
        }
        // What fails is named, and what stands beside it is done.
        let absent = SaId { spi: 99, ..all[0].id };
        let mut wrong =
            vec![progress[1].clone(), Progress { id: absent, ..progress[0].clone() }, progress[0].clone()];
        wrong[0].replay = Some(Replay::long_for_test(64));
        wrong[2].usage = Some(Usage { packets: 11, ..progress[0].usage.unwrap() });
        let failed = requests.report(&wrong);
        assert!(
            matches!(failed[..], [(0, RequestError::Invalid(_)), (1, RequestError::Gone(id))] if id == absent),
            "{failed:?}"
        );
        assert_eq!(failed[1].1.to_string(), "SA esp spi 0x00000063 to 10.0.0.2: not in the kernel");
        assert_eq!(requests.ask(&progress[0].id).unwrap().unwrap().usage.packets, 11);
        assert_eq!(requests.ask(&absent).unwrap(), None);

        // Of an update the kernel takes limits, and the keys stay.
        let other_key = GCM.replace("0001", "ffff");
        ip(&format!(
            "xfrm state update src 10.0.0.1 dst 10.0.0.2 proto esp spi 1 {other_key} limit packet-soft 3"
        ));
        follower.until("an update", |follower| {
            follower.sas.get(&all[0].id).is_some_and(|sa| sa.limits.packets.soft == Some(3))
        });
        let updated = &follower.sas[&all[0].id];
        assert_eq!((&updated.aead, updated.usage.packets), (&all[0].aead, 11));

        // Expiry.
        assert!(requests.expire(&[(all[0].id, Expiry::Soft)]).is_empty());
        follower.until("a soft limit", |follower| follower.expired(Expiry::Soft));
        assert_eq!(follower.sas.len(), 2);
        assert!(requests.expire(&[(all[1].id, Expiry::Hard)]).is_empty());
        follower.until("a hard limit", |follower| follower.sas.len() == 1);
        assert!(follower.expired(Expiry::Hard));
        let failed = requests.expire(&[(all[1].id, Expiry::Hard)]);
        assert!(matches!(failed[..], [(0, RequestError::Gone(_))]), "{failed:?}");

        ip("xfrm state delete dst 10.0.0.2 proto esp spi 1");
        follower.until("deletion", |follower| follower.sas.is_empty());
        // What waits for an IKE daemon is not an SA yet.
        let allocate = |spi: u32| {
            ip(&format!(
                "xfrm state allocspi src 10.0.0.1 dst 10.0.0.2 proto esp mode tunnel reqid {spi} min {spi} max {spi}"
            ))
        };
        allocate(256);
        allocate(257);
        // strongSwan makes SAs that receive by an update.
        ip(&format!("xfrm state update src 10.0.0.1 dst 10.0.0.2 proto esp spi 257 {GCM}"));
        let made = SaId { spi: 257, ..absent };
        follower.until("an SA", |follower| follower.sas.keys().eq([&made]));
        assert_eq!(follower.sas[&made].aead, all[0].aead);
        ip("xfrm state delete dst 10.0.0.2 proto esp spi 257");
        follower.until("it goes", |follower| follower.sas.is_empty());
        assert!(add_sa(&format!("src 10.0.0.1 dst 10.0.0.2 proto esp spi 3 {GCM} limit time-hard 1")));
        follower.until("the kernel's expiry", |follower| {
            follower.events.ends_with(&[Event::SaGone(SaId { spi: 3, ..absent })])
        });
        assert!(Follower::synchronised().sas.is_empty());
    });
}

#[test]
fn windows_are_read_as_the_kernel_writes_them() {
    if !testbed::is_root() {
        return;
    }
    let network = testbed::Network::new(&["left", "right"]);
    let [left, right] = ["left", "right"].map(|label| network.namespace(label));
    left.link("port0", (right, "port0")).unwrap();
    left.ip("addr add 10.9.0.1/24 dev port0").unwrap();
    right.ip("addr add 10.9.0.2/24 dev port0").unwrap();
    left.ip("xfrm policy add dir out src 10.9.0.1 dst 10.9.0.2 tmpl proto esp mode transport").unwrap();
    let id =
        SaId { destination: [10, 9, 0, 2].into(), spi: 1, protocol: Protocol::Esp, mark: Mark::default() };
    let key = GCM.replace("mode tunnel reqid 7", "mode transport");
    for window in ["replay-window 32", "replay-window 64", "flag esn replay-window 128"] {
        let sa = format!("src 10.9.0.1 dst 10.9.0.2 proto esp spi 1 {key} {window}");
        if ![left, right].into_iter().all(|namespace| namespace.enter(|| add_sa(&sa))) {
            return;
        }
        let receives = right.enter(|| UdpSocket::bind("10.9.0.2:7000").unwrap());
        receives.set_read_timeout(Some(DEADLINE)).unwrap();
        let send = |count: u8| {
            let sends = left.enter(|| UdpSocket::bind("10.9.0.1:0").unwrap());
            for number in 0..count {
                sends.send_to(&[number], "10.9.0.2:7000").unwrap();
                receives.recv(&mut [0]).unwrap();
            }
        };
        let ask = |namespace: &testbed::Namespace| {
            namespace.enter(|| Requests::open().unwrap().unwrap().ask(&id).unwrap().unwrap())
        };
        send(70);
        let sender = ask(left).replay;
        assert_eq!((sender.sent, ask(right).replay.received), (70, 70));
        // The sender leaves out ten numbers.
        let replay = Some(sender.advanced(80, 0, |_| false));
        let progress = Progress { id, usage: None, replay };
        assert!(left.enter(|| Requests::open().unwrap().unwrap().report(&[progress]).is_empty()));
        send(5);
        let replay = ask(right).replay;
        assert_eq!(replay.received, 85);
        for number in 1..=85 {
            assert_eq!(replay.was_received(number), !(71..=80).contains(&number), "{number} {replay:?}");
        }
        // What we would tell the kernel of it is what it has.
        assert_eq!(replay.advanced(0, 85, |number| replay.was_received(number)), replay);
        for namespace in [left, right] {
            namespace.ip("xfrm state flush").unwrap();
        }
    }
}

#[test]
fn many_sas_survive_lost_messages() {
    in_namespace(|| {
        if !add_sa(&format!("src 10.0.0.1 dst 10.0.0.2 proto esp spi 1000 {GCM}")) {
            return;
        }
        let mut follower = Follower::new(&WatchOptions { receive_buffer: 4096 });
        follower.until("the first dump", |follower| follower.watch.is_synchronised());
        follower.events.clear();
        let many: String = (1..=300)
            .map(|number| format!("xfrm state add src 10.0.0.1 dst 10.0.0.2 proto esp spi {number} {GCM}\n"))
            .collect();
        crate::netlink::testing::ip_batch(&many);
        ip("xfrm state delete dst 10.0.0.2 proto esp spi 1000");
        follower.until("everything again", |follower| follower.events.contains(&Event::Synchronised));
        assert!(follower.watch.counters().overruns > 0, "{:?}", follower.watch.counters());
        assert_eq!(follower.sas.len(), 300);
        assert!(follower.events.iter().any(|event| matches!(event, Event::SaGone(id) if id.spi == 1000)));

        let progress: Vec<Progress> = follower
            .sas
            .values()
            .map(|sa| Progress {
                id: sa.id,
                usage: Some(Usage { packets: sa.id.spi.into(), ..sa.usage }),
                replay: None,
            })
            .collect();
        let mut requests = Requests::open().unwrap().unwrap();
        let begin = Instant::now();
        let failed = requests.report(&progress);
        println!("{} SAs reported in {:?}", progress.len(), begin.elapsed());
        assert!(failed.is_empty(), "{failed:?}");
        for progress in &progress {
            assert_eq!(
                requests.ask(&progress.id).unwrap().unwrap().usage.packets,
                u64::from(progress.id.spi)
            );
        }
        ip("xfrm state flush");
        follower.until("all gone", |follower| follower.sas.is_empty());
    });
}
