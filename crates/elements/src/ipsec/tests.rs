//! Packets through the elements, in memory: two gateways in one configuration.

use std::sync::Arc;

use graph::setup::Shared;
use graph::testing::Bench;
use ipsec::Backend;
use ipsec::association::Age;
use packet::checksum;

use super::activation::Activation;
use super::database::{Contents, Database};
use super::parse::{parse, read};
use super::policy::{Direction, PolicyAction, Selector};

const GCM: &str = "aes128-gcm key 0x0102030405060708090a0b0c0d0e0f1011121314";

/// One gateway: packets of hosts come in by `hosts`, those of the other gateway by `line`.
const GATEWAY: &str = "\
    policy :: IpsecPolicy;
    hosts :: TestInput -> CheckIPHeader -> policy;
    line :: TestInput -> CheckIPHeader -> policy;
    hosts6 :: TestInput -> CheckIP6Header -> policy;
    policy[0] -> clear :: TestOutput;
    policy[1] -> decap :: EspDecap;
    decap[0] -> CheckIPHeader -> policy;
    decap[1] -> six :: TestOutput;
    decap[2] -> not_ours :: TestOutput;
    policy[2] -> DecIPTTL -> encap :: EspEncap;
    encap[0] -> sealed :: TestOutput;
    encap[1] -> sealed6 :: TestOutput;
    policy[3] -> linux :: TestOutput;";

struct Gateway {
    bench: Bench,
    database: Arc<Database>,
}

impl Gateway {
    fn new(text: &str) -> Self {
        let shared = Shared::default();
        let bench =
            Bench::try_new(&crate::registry(), GATEWAY, 32, &shared).unwrap_or_else(|text| panic!("{text}"));
        let database = Database::of(&shared).unwrap();
        let mut gateway = Self { bench, database };
        gateway.set(text);
        gateway
    }

    fn set(&mut self, text: &str) {
        let contents = parse(text, Backend::best()).unwrap();
        self.replace(contents);
    }

    fn replace(&mut self, contents: Contents) {
        self.database.replace(contents);
    }

    /// What comes out where, by the names of outputs.
    fn push(&mut self, input: &str, packets: &[Vec<u8>]) -> Vec<(&'static str, Vec<u8>)> {
        let packets: Vec<&[u8]> = packets.iter().map(Vec::as_slice).collect();
        self.bench.push(input, &packets);
        let mut all = Vec::new();
        for name in ["clear", "six", "not_ours", "sealed", "sealed6", "linux"] {
            all.extend(self.bench.taken(name).into_iter().map(|packet| (name, packet)));
        }
        all
    }

    fn drops(&mut self, reason: &str) -> u64 {
        ["policy", "decap", "encap"].iter().map(|name| self.bench.drops(name, reason)).sum()
    }
}

fn udp(from: [u8; 4], to: [u8; 4], port: u16, ttl: u8) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 32, 0, 0, 0, 0, ttl, 17, 0, 0];
    packet.extend(from);
    packet.extend(to);
    let check = checksum::ipv4_header_compute(&packet);
    packet[10..12].copy_from_slice(&check.to_be_bytes());
    packet.extend([0, 53]);
    packet.extend(port.to_be_bytes());
    packet.extend([0, 12, 0, 0, 1, 2, 3, 4]);
    packet
}

const A: [u8; 4] = [10, 1, 0, 9];
const B: [u8; 4] = [10, 2, 0, 9];

/// Contents that are not of a file: their associations are those that they are.
fn contents(text: &str) -> Contents {
    let mut contents = parse(text, Backend::best()).unwrap();
    contents.associations.iter_mut().for_each(|entry| entry.text = None);
    contents
}

fn names(all: &[(&'static str, Vec<u8>)]) -> Vec<&'static str> {
    all.iter().map(|(name, _)| *name).collect()
}

fn left() -> String {
    format!(
        "policy out any 10.1.0.0/16 10.2.0.0/16 protect 192.0.2.1 192.0.2.2 request 7
         policy fwd any 10.2.0.0/16 10.1.0.0/16 protect 192.0.2.2 192.0.2.1 request 7
         association 0x1000 192.0.2.1 192.0.2.2 {GCM} request 7
         association 0x2000 192.0.2.2 192.0.2.1 {GCM} request 7"
    )
}

fn right() -> String {
    format!(
        "policy out any 10.2.0.0/16 10.1.0.0/16 protect 192.0.2.2 192.0.2.1
         policy fwd any 10.1.0.0/16 10.2.0.0/16 protect 192.0.2.1 192.0.2.2
         association 0x1000 192.0.2.1 192.0.2.2 {GCM}
         association 0x2000 192.0.2.2 192.0.2.1 {GCM}"
    )
}

#[test]
fn packets_pass_between_two_gateways() {
    let (mut left, mut right) = (Gateway::new(&left()), Gateway::new(&right()));
    let packets: Vec<Vec<u8>> = (0..50).map(|port| udp(A, B, port, 64)).collect();
    let sealed = left.push("hosts", &packets);
    assert_eq!(names(&sealed), ["sealed"; 50]);
    let sealed: Vec<Vec<u8>> = sealed.into_iter().map(|(_, packet)| packet).collect();
    assert!(
        sealed.iter().all(|packet| packet[9] == 50
            && packet[8] == 65
            && packet[12..20] == [192, 0, 2, 1, 192, 0, 2, 2])
    );
    let opened = right.push("line", &sealed);
    let expected: Vec<_> = (0..50).map(|port| ("clear", udp(A, B, port, 63))).collect();
    assert_eq!(opened, expected);
    // Again: nothing.
    assert_eq!(right.push("line", &sealed), []);
    assert_eq!(right.drops("ESP: replayed"), 50);
    let policies = right.database.policies();
    assert_eq!(policies.iter().map(|policy| policy.packets).collect::<Vec<_>>(), [0, 50]);
    // Packets that no policy is for pass.
    assert_eq!(names(&left.push("hosts", &[udp(A, [10, 3, 0, 1], 1, 9)])), ["clear"]);
}

#[test]
fn what_came_without_its_protection_is_dropped() {
    let mut right = Gateway::new(&right());
    assert_eq!(right.push("line", &[udp(A, B, 1, 64)]), []);
    assert_eq!(right.drops("IPsec required"), 1);
    // Protected by an association that the policy does not name.
    let other = format!("association 0x3000 192.0.2.9 192.0.2.2 {GCM}");
    let contents = parse(&format!("{}\n{other}", self::right()), Backend::best()).unwrap();
    right.replace(contents);
    let mut stranger = Gateway::new(&format!(
        "policy out any 0.0.0.0/0 0.0.0.0/0 protect 192.0.2.9 192.0.2.2
         association 0x3000 192.0.2.9 192.0.2.2 {GCM}"
    ));
    let sealed: Vec<Vec<u8>> = [udp(A, B, 1, 64), udp([10, 7, 0, 1], [10, 8, 0, 1], 1, 64)]
        .iter()
        .flat_map(|packet| stranger.push("hosts", std::slice::from_ref(packet)))
        .map(|(_, packet)| packet)
        .collect();
    assert_eq!(right.push("line", &sealed), []);
    assert_eq!((right.drops("IPsec: wrong association"), right.drops("IPsec: no policy")), (1, 1));
}

#[test]
fn bypass_and_discard_come_in_order_and_by_port() {
    let text = format!(
        "policy out udp 10.1.0.0/16 10.2.0.0/16 port 5000-5010 bypass
         policy out udp 10.1.0.0/16 10.2.0.0/16 port 6000 discard
         {}",
        left()
    );
    let mut left = Gateway::new(&text);
    let all = [5000, 5010, 6000, 6001].map(|port| udp(A, B, port, 64));
    assert_eq!(names(&left.push("hosts", &all)), ["clear", "clear", "sealed"]);
    assert_eq!(left.drops("discarded by IPsec policy"), 1);
}

#[test]
fn linux_gets_what_nobody_here_can_do() {
    let mut left = Gateway::new("policy out any 10.1.0.0/16 10.2.0.0/16 protect 192.0.2.1 192.0.2.2");
    // A daemon has yet to negotiate an association.
    assert_eq!(names(&left.push("hosts", &[udp(A, B, 1, 64)])), ["linux"]);
    left.set(&self::left());
    assert_eq!(names(&left.push("hosts", &[udp(A, B, 1, 64)])), ["sealed"]);
    // The way to the other gateway takes 32 bytes of the packet and 60 around them.
    let overhead = {
        let contents = contents(&self::left());
        let association = contents.associations[0].association.clone();
        left.replace(contents);
        association.set_path_mtu(32 + association.overhead(32) as u32 - 1);
        association
    };
    assert_eq!(left.push("hosts", &[udp(A, B, 1, 64)]), [("linux", udp(A, B, 1, 64))]);
    overhead.set_path_mtu(32 + overhead.overhead(32) as u32);
    assert_eq!(names(&left.push("hosts", &[udp(A, B, 1, 64)])), ["sealed"]);
    // Expired: until there is another one.
    overhead.grow(Age::Expired);
    assert_eq!(left.push("hosts", &[udp(A, B, 1, 64)]), []);
    assert_eq!(left.drops("ESP: association expired"), 1);
    // ESP to one of our addresses of which nobody knows the SPI.
    left.database.set_own(vec![[192, 0, 2, 1].into()]);
    let mut esp = udp([192, 0, 2, 2], [192, 0, 2, 1], 1, 64);
    esp[9] = 50;
    esp[10..12].fill(0);
    let check = checksum::ipv4_header_compute(&esp[..20]);
    esp[10..12].copy_from_slice(&check.to_be_bytes());
    assert_eq!(left.push("line", &[esp.clone()]), [("not_ours", esp.clone())]);
    assert_eq!(left.bench.read("decap.unknown"), "1");
    // Where others have the associations, nobody here knows an SPI.
    left.replace(Contents::default());
    assert_eq!(left.push("line", &[esp.clone()]), [("clear", esp.clone())]);
    left.replace(Contents { takes_esp: true, ..Contents::default() });
    assert_eq!(left.push("line", &[esp.clone()]), [("not_ours", esp.clone())]);
    // ESP between others is a packet like any other.
    left.database.set_own(Vec::new());
    assert_eq!(left.push("line", &[esp.clone()]), [("clear", esp)]);
}

#[test]
fn what_policies_leave_to_linux_is_known_as_checked() {
    let mut left = Gateway::new("policy out any 10.1.0.0/16 10.2.0.0/16 protect 192.0.2.1 192.0.2.2");
    let is_checked = |left: &mut Gateway, output: &str, packet: Vec<u8>| {
        left.bench.push("hosts", &[&packet]);
        super::is_checked(&left.bench.taken_packets(output)[0])
    };
    assert!(is_checked(&mut left, "linux", udp(A, B, 1, 64)));
    assert!(!is_checked(&mut left, "clear", udp(B, A, 1, 64)));
}

#[test]
fn an_expired_association_makes_place_for_a_new_one_under_traffic() {
    let mut left = Gateway::new(&left());
    let old = contents(&self::left());
    left.replace(old.clone());
    let first = left.push("hosts", &[udp(A, B, 1, 64)]);
    assert_eq!(first[0].1[20..24], [0, 0, 0x10, 0]);
    // The old ones stay for packets on the way; the new one is used.
    let mut both = old.clone();
    let new =
        parse(&format!("association 0x1001 192.0.2.1 192.0.2.2 {GCM} request 7"), Backend::best()).unwrap();
    both.associations.extend(new.associations);
    left.replace(both.clone());
    let second = left.push("hosts", &[udp(A, B, 1, 64)]);
    assert_eq!(second[0].1[20..24], [0, 0, 0x10, 1]);
    // The first goes on counting: it was not made anew.
    assert_eq!(old.associations[0].association.used().packets, 1);
    both.associations.pop();
    left.replace(both);
    let third = left.push("hosts", &[udp(A, B, 1, 64)]);
    assert_eq!((&third[0].1[20..24], third[0].1[27]), (&[0, 0, 0x10, 0][..], 2));
    assert_eq!(left.database.policies()[0].packets, 3);
}

#[test]
fn nothing_is_judged_while_there_is_nothing_to_judge_by() {
    let mut gateway = Gateway::new("");
    assert_eq!(names(&gateway.push("hosts", &[udp(A, B, 1, 64)])), ["clear"]);
    gateway.set("policy out any 10.1.0.0/16 10.2.0.0/16 discard");
    assert_eq!(gateway.push("hosts", &[udp(A, B, 1, 64)]), []);
    gateway.set("");
    assert_eq!(names(&gateway.push("hosts", &[udp(A, B, 1, 64)])), ["clear"]);
}

#[test]
fn mistakes_in_a_file_are_named_without_keys() {
    let text = "\
polizy out
policy up any 10.0.0.0/8 10.0.0.0/8 bypass
policy out any 10.0.0.0/8 port 5 10.0.0.0/8 bypass
policy out any 10.0.0.0/8 2001:db8::/32 bypass
policy out any 10.0.0.0/8 10.0.0.0/8 protect 192.0.2.1 2001:db8::1
policy out any 10.0.0.0/8 10.0.0.0/8 bypass it
association 5 192.0.2.1 192.0.2.2 aes128-gcm key 0x00
association 0x100 192.0.2.1 192.0.2.2 des key 0x00
association 0x100 192.0.2.1 192.0.2.2 aes128-gcm key 0x5ec4e7
association 0x100 192.0.2.1 192.0.2.2 aes128-gcm key 0x5ec4e
association 0x100 192.0.2.1 192.0.2.2 aes128-cbc-sha1 key 0x0102030405060708090a0b0c0d0e0f10
association 0x100 192.0.2.1 192.0.2.2 aes128-gcm key 0x0102030405060708090a0b0c0d0e0f1011121314 window 5000
# a comment";
    let mistakes = parse(text, Backend::best()).unwrap_err();
    let expected = [
        "line 1: 'polizy'; expected policy or association",
        "line 2: 'up'; expected out or fwd",
        "line 3: 'any 10.0.0.0/8 port 5 10.0.0.0/8' matches nothing; expected prefixes of one family, and ports with",
        "line 4: 'any 10.0.0.0/8 2001:db8::/32' matches nothing",
        "line 5: 192.0.2.1 and 2001:db8::1 are of different families; expected two of one",
        "line 6: 'it'; expected the end of the line",
        "line 7: '5'; expected a security parameters index of 256 or more",
        "line 8: 'des'; expected a suite: aes128-gcm, aes256-gcm, chacha20-poly1305, aes128-cbc-sha1",
        "line 9: aes128-gcm: cipher key of 3 bytes; expected 20",
        "line 10: the key is not a number of bytes in hexadecimal digits; expected 0x0123..",
        "line 11: aes128-cbc-sha1: authentication key of 0 bytes; expected 1 to 64",
        "line 12: '5000'; expected a window of at most 4096",
    ];
    assert_eq!(mistakes.len(), expected.len(), "{mistakes:#?}");
    for (mistake, expected) in mistakes.iter().zip(expected) {
        assert!(mistake.starts_with(expected), "{mistake}");
        assert!(!mistake.contains("5ec4e"), "{mistake}");
    }
}

#[test]
fn a_file_of_keys_that_others_may_read_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let folder = testbed::Folder::new();
    let path = folder.path().join("keys");
    std::fs::write(&path, left()).unwrap();
    let name = path.to_str().unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    let mistakes = read(name, Backend::best()).unwrap_err();
    assert_eq!(
        mistakes,
        [format!(
            "FILE: '{name}' has keys, and cannot be used: its mode 0640 lets other users in; expected mode 0600: chmod 0600 {name}"
        )]
    );
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(read(name, Backend::best()).unwrap().associations.len(), 2);
    assert!(read("/nowhere", Backend::best()).unwrap_err()[0].contains("'/nowhere'"));
}

#[test]
fn a_process_with_keys_leaves_no_core_dump() {
    Gateway::new(&left());
    assert_eq!(rustix::process::dumpable_behavior().unwrap(), rustix::process::DumpableBehavior::NotDumpable);
}

/// Policies of addresses alone are compared one by one, all others by the compiled list.
#[test]
fn few_policies_and_many_say_the_same() {
    let few = "policy out any 10.1.0.0/24 10.2.0.0/16 discard
        policy out any 10.1.0.0/16 10.2.0.0/24 bypass
        policy out any 0.0.0.0/0 10.2.0.0/16 discard
        policy out any 10.9.0.0/16 0.0.0.0/0 discard";
    let many = format!("{few}\n{}", "policy out tcp 10.250.0.0/16 port 9 10.250.0.0/16 discard\n".repeat(9));
    let [mut few, mut many] = [few, &many].map(Gateway::new);
    for source in [[10, 1, 0, 1], [10, 1, 1, 1], [10, 9, 0, 1], [10, 3, 0, 1]] {
        for destination in [[10, 2, 0, 1], [10, 2, 1, 1], [10, 3, 0, 1]] {
            let packet = [udp(source, destination, 1, 64)];
            assert_eq!(few.push("hosts", &packet), many.push("hosts", &packet), "{source:?} {destination:?}");
        }
    }
    let counts = |gateway: &Gateway| -> Vec<u64> {
        gateway.database.policies().iter().take(4).map(|policy| policy.packets).collect()
    };
    assert_eq!(counts(&few), [2, 1, 5, 1]);
    assert_eq!(counts(&few), counts(&many));
}

#[test]
fn fragments_are_not_left_to_linux_where_policies_ask_for_ports() {
    let text = format!("policy out udp 10.1.0.0/16 10.3.0.0/16 port 5000 discard\n{}", left());
    let mut contents = parse(&text, Backend::best()).unwrap();
    let mut forward = contents.policies[2].clone();
    assert_eq!(forward.direction, Direction::Forward);
    forward.action = PolicyAction::Linux("an interface".to_owned());
    forward.selector = Selector::between("10.1.0.0/16".parse().unwrap(), "0.0.0.0/0".parse().unwrap());
    contents.policies.insert(0, forward);
    let mut gateway = Gateway::new("");
    gateway.replace(contents);
    let whole = udp(A, [10, 3, 0, 1], 5000, 64);
    assert_eq!(names(&gateway.push("hosts", std::slice::from_ref(&whole))), ["linux"]);
    for flags in [[0x20, 0], [0, 1]] {
        let mut fragment = whole.clone();
        fragment[6..8].copy_from_slice(&flags);
        fragment[10..12].fill(0);
        let check = checksum::ipv4_header_compute(&fragment[..20]);
        fragment[10..12].copy_from_slice(&check.to_be_bytes());
        assert_eq!(gateway.push("hosts", &[fragment]), []);
    }
    assert_eq!(gateway.drops("IPsec: cannot be judged"), 2);
}

/// Batches whose packets are alike take shorter ways.
#[test]
fn packets_together_are_judged_as_alone() {
    let text = format!(
        "policy out any 10.1.0.0/16 10.4.0.0/16 discard
         policy out any 2001:db8:1::/48 2001:db8:2::/48 discard
         policy fwd any 10.5.0.0/16 10.1.0.0/16 protect 192.0.2.9 192.0.2.1
         {}",
        left()
    );
    let mut right = Gateway::new(&right());
    let esp: Vec<Vec<u8>> =
        right.push("hosts", &vec![udp(B, A, 1, 64); 9]).into_iter().map(|(_, packet)| packet).collect();
    let unknown = {
        let mut packet = esp[0].clone();
        packet[20..24].copy_from_slice(&[0, 0, 0x30, 0]);
        packet
    };
    let mut kinds = vec![
        udp(A, B, 1, 64),
        udp(A, B, 1, 1),
        udp(A, [10, 4, 0, 1], 1, 64),
        udp(A, [10, 6, 0, 1], 1, 64),
        udp([10, 5, 0, 1], A, 1, 64),
        unknown,
    ];
    // Only ways are compared: numbers in packets differ.
    let ways = |all: Vec<(&'static str, Vec<u8>)>| {
        let mut ways = names(&all);
        ways.sort_unstable();
        ways
    };
    for round in 0..6 {
        let [mut together, mut alone] = [&text, &text].map(|text| Gateway::new(text));
        let input = ["hosts", "line"][round % 2];
        let mut packets: Vec<Vec<u8>> = kinds.iter().flat_map(|kind| [kind.clone(), kind.clone()]).collect();
        packets.insert(round.min(packets.len()), esp[round].clone());
        let expected: Vec<_> =
            packets.iter().flat_map(|packet| alone.push(input, std::slice::from_ref(packet))).collect();
        assert_eq!(ways(together.push(input, &packets)), ways(expected), "round {round}");
        let counts = |gateway: &Gateway| -> Vec<_> {
            gateway.database.policies().iter().map(|policy| (policy.packets, policy.bytes)).collect()
        };
        assert_eq!(counts(&together), counts(&alone), "round {round}");
        kinds.pop();
    }
    let mut six = vec![0x60, 0, 0, 0, 0, 8, 17, 64];
    six.extend([0x20, 1, 0x0d, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
    six.extend([0x20, 1, 0x0d, 0xb8, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
    six.extend([0, 53, 0, 53, 0, 8, 0, 0]);
    let mut gateway = Gateway::new(&text);
    assert_eq!(gateway.push("hosts6", &[six.clone(), six]), []);
    assert_eq!(gateway.drops("discarded by IPsec policy"), 2);
    assert_eq!(gateway.database.policies()[1].packets, 2);
}

#[test]
fn an_association_whose_line_stays_goes_on() {
    let mut gateway = Gateway::new(&left());
    let number = |sealed: &[(&str, Vec<u8>)]| sealed[0].1[27];
    assert_eq!(number(&gateway.push("hosts", &[udp(A, B, 1, 64)])), 1);
    // Read again, with another association before it.
    gateway.set(&format!("association 0x4000 192.0.2.9 192.0.2.2 {GCM}\n{}", left()));
    assert_eq!(number(&gateway.push("hosts", &[udp(A, B, 1, 64)])), 2);
}

#[test]
fn what_is_reflected_is_not_opened() {
    let mut gateway = Gateway::new(&left());
    let sealed = gateway.push("hosts", &[udp(A, B, 1, 64)]).remove(0).1;
    // Our own packet, on its way to the other gateway: a packet like any other.
    assert_eq!(names(&gateway.push("line", &[sealed])), ["clear"]);
}

#[test]
fn fragments_that_a_policy_of_ports_cannot_judge_are_dropped() {
    let text = format!("policy out udp 10.1.0.0/16 10.2.0.0/16 port 9 bypass\n{}", left());
    let mut ports = Gateway::new(&text);
    let mut fragment = udp(A, B, 1, 64);
    fragment[7] = 9;
    fragment[10..12].fill(0);
    let check = checksum::ipv4_header_compute(&fragment[..20]);
    fragment[10..12].copy_from_slice(&check.to_be_bytes());
    assert_eq!(ports.push("hosts", &[fragment.clone()]), []);
    assert_eq!(ports.drops("IPsec: cannot be judged"), 1);
    // Policies of addresses are for whole packets and fragments alike.
    assert_eq!(names(&Gateway::new(&left()).push("hosts", &[fragment])), ["sealed"]);
}

#[test]
fn packets_to_this_host_are_not_judged() {
    let mut gateway = Gateway::new(&format!("policy fwd any 0.0.0.0/0 0.0.0.0/0 discard\n{}", left()));
    let to_us = udp(A, [10, 1, 0, 1], 500, 64);
    assert_eq!(gateway.push("hosts", std::slice::from_ref(&to_us)), []);
    gateway.database.set_own(vec![[10, 1, 0, 1].into()]);
    assert_eq!(names(&gateway.push("hosts", &[to_us])), ["clear"]);
}

#[test]
fn parts_of_keys_are_not_in_messages() {
    for line in [
        "association 0x100 192.0.2.1 192.0.2.2 aes128-gcm 0x5ec4e7",
        "association 0x100 192.0.2.1 192.0.2.2 aes128-gcm key 0102030405060708090a0b0c0d0e0f1011121314 5ec4e7",
        "association 0x100 192.0.2.1 192.0.2.2 aes128-gcm key 5ec4e7+1",
        "association 0x100 192.0.2.1 192.0.2.2 aes128-gcm key 0102030405060708090a0b0c0d0e0f1011121314 extended window 0",
    ] {
        let mistakes = parse(line, Backend::best()).unwrap_err();
        assert!(mistakes.len() == 1 && !mistakes[0].contains("5ec4e7"), "{mistakes:?}");
    }
}

/// The way to Linux behind a gateway.
const TO_LINUX: &str = "\
    line :: TestInput -> CheckIPHeader -> esp :: EspToHost -> others :: TestOutput;
    esp[1] -> decap :: EspDecap -> reseal :: EspReseal -> clear :: TestOutput;
    reseal[1] -> sealed :: TestOutput;  reseal[2] -> sealed6 :: TestOutput;
    clear_in :: TestInput -> reseal;";

#[test]
fn opened_packets_are_sealed_again_as_they_came_for_linux() {
    for suite in [
        GCM,
        "aes128-gcm key 0x0102030405060708090a0b0c0d0e0f1011121314 extended",
        "aes256-cbc-sha256 key 0x000102030405060708090a0b0c0d0e0f000102030405060708090a0b0c0d0e0f \
         auth 0x000102030405060708090a0b0c0d0e0f000102030405060708090a0b0c0d0e0f",
        "aes128-gcm key 0x0102030405060708090a0b0c0d0e0f1011121314 udp 4500 4500",
    ] {
        let (sends, receives) = (left().replace(GCM, suite), right().replace(GCM, suite));
        let mut sender = Gateway::new(&sends);
        let packets: Vec<Vec<u8>> = (0..40).map(|port| udp(A, B, port, 64)).collect();
        let sent: Vec<Vec<u8>> =
            sender.push("hosts", &packets).into_iter().map(|(_, packet)| packet).collect();
        let shared = Shared::default();
        let mut gateway = Bench::try_new(&crate::registry(), TO_LINUX, 32, &shared).unwrap();
        let contents = parse(&receives, Backend::best()).unwrap();
        Database::of(&shared).unwrap().replace(contents);
        let inputs: Vec<&[u8]> = sent.iter().map(Vec::as_slice).collect();
        gateway.push("line", &inputs);
        let again = gateway.taken("sealed");
        assert_eq!(again.len(), 40, "{suite}");
        // The same numbers; another gateway opens them, once.
        let number = |packet: &Vec<u8>| packet[24 + 8 * usize::from(packet[9] == 17)..][..4].to_vec();
        assert!(again.iter().map(number).eq(sent.iter().map(number)), "{suite}");
        let mut linux = Gateway::new(&receives);
        let opened = linux.push("line", &again);
        let expected: Vec<_> = (0..40).map(|port| ("clear", udp(A, B, port, 63))).collect();
        assert_eq!(opened, expected, "{suite}");
        assert_eq!(linux.push("line", &sent), [], "{suite}");
        // What was never sealed passes as it is.
        gateway.push("line", &[&packets[0]]);
        assert_eq!(gateway.taken("others"), [packets[0].clone()]);
        gateway.push("clear_in", &[&packets[1]]);
        assert_eq!(gateway.taken("clear"), [packets[1].clone()]);
    }
}

#[test]
fn packets_that_have_lived_too_long_are_not_sealed() {
    let mut left = Gateway::new(&left());
    assert_eq!(names(&left.push("hosts", &[udp(A, B, 1, 1), udp(A, B, 1, 2)])), ["sealed", "linux"]);
}

#[test]
fn a_policy_of_one_spi_takes_no_other_association() {
    let mut left = Gateway::new("");
    let mut contents =
        contents(&format!("{}\nassociation 0x1001 192.0.2.1 192.0.2.2 {GCM} request 7", self::left()));
    let spi = |packet: &(&str, Vec<u8>)| u32::from_be_bytes(*packet.1[20..].first_chunk().unwrap());
    left.replace(contents.clone());
    assert_eq!(spi(&left.push("hosts", &[udp(A, B, 1, 9)])[0]), 0x1001);
    for (asked, expected) in [(0x1000, Some(0x1000)), (0x1001, Some(0x1001)), (0x1002, None)] {
        let PolicyAction::Protect(template) = &mut contents.policies[0].action else { panic!() };
        template.spi = asked;
        left.replace(contents.clone());
        let out = left.push("hosts", &[udp(A, B, 1, 9)]);
        match expected {
            Some(expected) => assert_eq!(spi(&out[0]), expected),
            None => assert_eq!(names(&out), ["linux"]),
        }
    }
    // The policy counts on.
    assert_eq!(left.database.policies()[0].packets, 4);
}

#[test]
fn elements_leave_their_run_before_policies_count() {
    const GRAPH: &str =
        "in :: TestInput -> CheckIPHeader -> esp :: EspToHost -> policy :: IpsecPolicy -> out :: TestOutput;
        esp[1] -> lost :: TestOutput;  policy[1] -> lost;  policy[2] -> lost;  policy[3] -> lost;";
    let shared = Shared::default();
    let activation = Activation::take(&shared);
    let mut first = Bench::try_new(&crate::registry(), GRAPH, 32, &shared).unwrap();
    activation.has_started();
    // Made for a configuration that is to take the place of the first.
    let mut second = Bench::try_new(&crate::registry(), GRAPH, 32, &shared).unwrap();
    let database = Database::of(&shared).unwrap();
    let passes = |bench: &mut Bench| {
        bench.push("in", &[&udp(A, B, 1, 64)]);
        bench.taken("out").len() == 1
    };
    assert!(passes(&mut first) && passes(&mut second));
    database.replace(contents("policy fwd any 10.1.0.0/16 10.2.0.0/16 discard"));
    // So the owner of the contents has to write to the elements first.
    assert!(passes(&mut first), "the elements are part of no run");
    assert!(!passes(&mut second));
    activation.set_active(true);
    for element in ["esp", "policy"] {
        first.write(&format!("{element}.refresh"), "").unwrap();
    }
    assert!(!passes(&mut first));
    database.replace(Contents::default());
    assert!(passes(&mut first) && passes(&mut second));
}

#[test]
fn fragments_do_not_go_to_linux_for_a_policy_of_ports() {
    let mut left = Gateway::new("policy out udp 10.1.0.0/16 10.2.0.0/16 port 9 protect 192.0.2.1 192.0.2.2");
    let mut first = udp(A, B, 9, 64);
    first[6] = 0x20;
    first[10..12].fill(0);
    let check = checksum::ipv4_header_compute(&first[..20]);
    first[10..12].copy_from_slice(&check.to_be_bytes());
    assert_eq!(names(&left.push("hosts", &[udp(A, B, 9, 64), first])), ["linux"]);
    assert_eq!(left.drops("IPsec: cannot be judged"), 1);
}

#[test]
fn esp_in_udp_is_opened_only_where_it_was_agreed_upon() {
    let mut right = Gateway::new(&right());
    let in_udp = |ports: &str| {
        let mut left = Gateway::new(&left().replace(GCM, &format!("{GCM} {ports}")));
        left.push("hosts", &[udp(A, B, 1, 64)]).remove(0).1
    };
    assert_eq!(names(&right.push("line", &[in_udp("udp 4500 4500")])), ["not_ours"]);
    assert_eq!(names(&right.push("line", &[in_udp("")])), ["clear"]);
    // Nobody looks for ESP at another port: what comes to 4500 must not open it a second time.
    right.set(&self::right().replace(GCM, &format!("{GCM} udp 4501 4501")));
    assert_eq!(names(&right.push("line", &[in_udp("udp 4500 4500")])), ["not_ours"]);
}

#[test]
fn packets_under_way_find_an_association_that_has_gone() {
    let mut left = Gateway::new(&left());
    let marked = {
        left.bench.push("hosts", &[&udp(A, B, 1, 64)]);
        left.bench.taken("sealed").len()
    };
    assert_eq!(marked, 1);
    let entry = contents(&self::left()).associations.remove(0);
    let database = left.database.clone();
    database.replace(Contents { associations: vec![entry.clone()], ..Contents::default() });
    let mut reader = database.reader();
    let id = reader.enter().places.iter().flatten().next().unwrap().id;
    database.replace(Contents::default());
    assert!(reader.enter().place(id).is_some() && !reader.enter().has_inbound());
    let weak = Arc::downgrade(&entry.association);
    drop(entry);
    let is_gone = testbed::eventually(|| {
        database.forget_gone();
        weak.upgrade().is_none()
    });
    assert!(is_gone, "the association and its keys stay");
    assert!(reader.enter().place(id).is_none());
}
