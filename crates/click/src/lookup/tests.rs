//! The lookup elements in a graph, packet by packet: all classes, handlers, table files.
//!
//! One expectation tests them all. Everything is written for IPv4; for a class of the other family [`Embedding`]
//! translates configurations, commands and what is expected of them.

use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use fib::{Kind, Linear, NextHopIndex, Table};
use graph::Class;
use graph::testing::{Bench, configure};
use ipnet::Ipv4Net;
use packet::Packet;
use proptest::prelude::*;

use super::CLASSES;
use crate::registry;

/// How the addresses of a test stand in the address space of a class: as they are, or in 2001:db8::/96.
#[derive(Clone, Copy, PartialEq)]
struct Embedding {
    is_ipv6: bool,
}

impl Embedding {
    const NETWORK: u128 = 0x2001_0db8 << 96;

    fn of(class: &Class) -> Self {
        Self { is_ipv6: class.name == "LookupIP6Route" }
    }

    fn address(self, address: u32) -> String {
        if self.is_ipv6 {
            Ipv6Addr::from(Self::NETWORK | u128::from(address)).to_string()
        } else {
            Ipv4Addr::from(address).to_string()
        }
    }

    /// The text with all addresses and prefixes in it translated: words of digits and dots with a dot or a slash.
    fn text(self, text: &str) -> String {
        if !self.is_ipv6 {
            return text.to_owned();
        }
        let is_part = |c: char| c.is_ascii_digit() || c == '.' || c == '/';
        let mut translated = String::new();
        let mut rest = text;
        while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
            let (before, from) = rest.split_at(start);
            let (word, after) = from.split_at(from.find(|c| !is_part(c)).unwrap_or(from.len()));
            translated.push_str(before);
            translated.push_str(&if word.contains(['.', '/']) { self.word(word) } else { word.to_owned() });
            rest = after;
        }
        translated + rest
    }

    fn word(self, word: &str) -> String {
        let (address, mask) =
            word.split_once('/').map_or((word, None), |(address, mask)| (address, Some(mask)));
        let mut octets = [0u8; 4];
        address.split('.').zip(&mut octets).for_each(|(part, octet)| *octet = part.parse().unwrap());
        let address = self.address(u32::from_be_bytes(octets));
        match mask.map(|mask| (mask, mask.parse::<u32>())) {
            None => address,
            Some((_, Ok(length))) => format!("{address}/{}", length + 96),
            Some((mask, Err(_))) => {
                let mask: u32 = mask.parse::<Ipv4Addr>().unwrap().into();
                format!("{address}/{}", Ipv6Addr::from(u128::MAX << 32 | u128::from(mask)))
            }
        }
    }

    /// A test bench with an element of this class and configuration.
    fn bench(self, class: &Class, config: &str, outputs: usize) -> Bench {
        Bench::element(&registry(), &format!("{}({})", class.name, self.text(config)), 1, outputs)
    }

    /// What is read from a handler; the columns of tables are apart by one space.
    fn read(self, bench: &mut Bench, path: &str) -> String {
        let text = bench.read(&self.text(path));
        let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// A packet to `destination`, whose data says so, too.
    fn packet(self, bench: &mut Bench, destination: u32) -> Packet {
        let mut packet = bench.packet(&destination.to_be_bytes());
        let annotations = packet.annotations_mut();
        if self.is_ipv6 {
            annotations.set_destination_ip6(Self::NETWORK | u128::from(destination));
        } else {
            annotations.set_destination_ip(destination);
        }
        packet
    }

    /// Pushes packets to these destinations and returns what came out by each output: destination and annotation.
    fn route(self, bench: &mut Bench, destinations: &[u32], outputs: usize) -> Vec<Vec<(u32, u32)>> {
        let packets = destinations.iter().map(|&destination| self.packet(bench, destination)).collect();
        bench.push_packets("in0", packets);
        let seen = |packet: &Packet| {
            let destination = u32::from_be_bytes(*packet.data().first_chunk().unwrap());
            let annotations = packet.annotations();
            if self.is_ipv6 {
                let address = annotations.destination_ip6();
                assert_eq!(address & !u128::from(u32::MAX), Self::NETWORK, "the whole address is set");
                return (destination, address as u32);
            }
            (destination, annotations.destination_ip())
        };
        (0..outputs)
            .map(|output| bench.taken_packets(&format!("out{output}")).iter().map(seen).collect())
            .collect()
    }
}

/// The tables of a class's family, by name.
fn tables(class: &Class) -> Vec<&'static str> {
    match Embedding::of(class).is_ipv6 {
        true => Kind::<u128>::all().map(|kind| kind.name()).collect(),
        false => Kind::<u32>::all().map(|kind| kind.name()).collect(),
    }
}

/// All classes, and those among them whose routes handlers change.
fn all() -> impl Iterator<Item = (&'static Class, Embedding)> {
    CLASSES.iter().copied().map(|class| (class, Embedding::of(class)))
}

fn dynamic() -> impl Iterator<Item = (&'static Class, Embedding)> {
    all().filter(|(class, _)| class.name != "StaticIPLookup")
}

/// Both copies of the table are what the routes say. One class of each family is enough: a check walks the whole table.
fn assert_checked(bench: &mut Bench, class: &Class, routes: usize) {
    if !["RadixIPLookup", "LookupIP6Route"].contains(&class.name) {
        return;
    }
    let text = bench.read("e.check");
    assert_eq!(text.lines().count(), 2, "{text}");
    assert!(text.lines().all(|line| line.ends_with(", ok")), "{text}");
    assert!(text.lines().all(|line| line.contains(&format!(": routes {routes}, "))), "{routes}: {text}");
}

/// Destinations of the packets that are looked up, what `lookup` says of each, and the annotation behind it. The
/// routes are those of `ROUTES`.
const EXPECTATIONS: &[(&str, &str, &str)] = &[
    ("18.26.4.24", "0", "18.26.4.24"),
    ("18.26.4.255", "0", "18.26.4.255"),
    ("18.26.4.1", "1", "18.26.4.1"),
    ("18.26.5.0", "2 18.26.4.1", "18.26.4.1"),
    ("18.26.3.255", "2 18.26.4.1", "18.26.4.1"),
    ("10.255.255.255", "3 192.0.2.7", "192.0.2.7"),
    ("10.1.0.0", "1 192.0.2.8", "192.0.2.8"),
    ("10.1.0.1", "1 192.0.2.8", "192.0.2.8"),
    ("10.1.0.2", "3", "10.1.0.2"),
    ("10.1.0.3", "3 192.0.2.7", "192.0.2.7"),
    ("0.0.0.0", "2 18.26.4.1", "18.26.4.1"),
    ("127.255.255.255", "2 18.26.4.1", "18.26.4.1"),
    ("128.0.0.0", "-1", ""),
    ("255.255.255.254", "-1", ""),
    ("255.255.255.255", "0", "255.255.255.255"),
];

const ROUTES: &str = "18.26.4.24/32 0, 18.26.4.255 0, 18.26.4/24 1, 0/1 18.26.4.1 2, 10.9.9.9/8 192.0.2.7 3, \
                      10.1.0.1/31 192.0.2.8 1, 10.1.0.2/32 - 3, 255.255.255.255/255.255.255.255 0";

fn address(text: &str) -> u32 {
    text.parse::<Ipv4Addr>().unwrap().into()
}

#[test]
fn the_embedding_translates_addresses_and_nothing_else() {
    let ipv6 = Embedding { is_ipv6: true };
    assert_eq!(ipv6.text("e.lookup 10.1.2.3"), "e.lookup 2001:db8::a01:203");
    assert_eq!(
        ipv6.text("'0/0 192.0.2.1 2', 10.1/16 - 3"),
        "'2001:db8::/96 2001:db8::c000:201 2', 2001:db8::a01:0/112 - 3"
    );
    assert_eq!(ipv6.text("1.0.0.0/255.0.0.0 0"), "2001:db8::100:0/ffff:ffff:ffff:ffff:ffff:ffff:ff00:0 0");
}

#[test]
fn all_classes_route_the_same_way() {
    for (class, family) in all() {
        let mut bench = family.bench(class, ROUTES, 4);
        let destinations: Vec<u32> = EXPECTATIONS.iter().map(|row| address(row.0)).collect();
        let outputs = family.route(&mut bench, &destinations, 4);
        let mut dropped = 0;
        for (destination, lookup, annotation) in EXPECTATIONS {
            let found = family.read(&mut bench, &format!("e.lookup {destination}"));
            assert_eq!(found, family.text(lookup), "{} {destination}", class.name);
            match lookup.split(' ').next().unwrap().parse::<usize>() {
                Ok(output) => {
                    let expected = (address(destination), address(annotation));
                    assert!(
                        outputs[output].contains(&expected),
                        "{} {destination}: {outputs:x?}",
                        class.name
                    );
                }
                Err(_) => dropped += 1,
            }
        }
        assert_eq!(bench.drops("e", "no route"), dropped);
        assert_eq!(outputs.iter().map(Vec::len).sum::<usize>() as u64 + dropped, EXPECTATIONS.len() as u64);
        let expected = "0.0.0.0/1 18.26.4.1 2\n10.0.0.0/8 192.0.2.7 3\n10.1.0.0/31 192.0.2.8 1\n\
                        10.1.0.2/32 - 3\n18.26.4.0/24 - 1\n18.26.4.24/32 - 0\n\
                        18.26.4.255/32 - 0\n255.255.255.255/32 - 0";
        assert_eq!(family.read(&mut bench, "e.table"), family.text(expected), "{}", class.name);
        assert_checked(&mut bench, class, 8);
        assert!(bench.read("e.memory").parse::<usize>().unwrap() > 8 * 8);
    }
}

#[test]
fn a_batch_that_goes_one_way_stays_together_also_without_routes() {
    for (class, family) in all() {
        let mut bench = family.bench(class, "10/8 1, 11/8 192.0.2.1 0", 2);
        let out = family.route(&mut bench, &[0x0a00_0001; 100], 2);
        assert_eq!((out[0].len(), out[1].len()), (0, 100));
        let out = family.route(&mut bench, &[0x0b00_0001; 256], 2);
        assert_eq!(out[0], [(0x0b00_0001, 0xc000_0201); 256]);
        let out = family.route(&mut bench, &[0x0c00_0001; 31], 2);
        assert_eq!((out[0].len(), out[1].len()), (0, 0));
        assert_eq!(bench.drops("e", "no route"), 31);
        let mut none = family.bench(class, "", 1);
        family.route(&mut none, &[1], 1);
        assert_eq!(none.drops("e", "no route"), 1);
        assert_checked(&mut none, class, 0);
    }
}

#[test]
fn configuration_mistakes() {
    for (class, family) in all() {
        assert!(configure(class, "").is_ok());
        let text = family.text("10/8 0, 10.0.0.0/33 0, 11/8 1, 12/8 192.0.2.1");
        let errors = configure(class, &format!("{text}, FOO bar")).unwrap_err();
        // A word in capitals may be the name of a network.
        assert_eq!(errors.len(), 4);
        assert!(errors[3].starts_with("argument 5 should be") && errors[3].contains("'FOO'"), "{errors:?}");
        let errors = configure(class, &text).unwrap_err();
        assert_eq!(errors.len(), 3);
        let bad = family.text("argument 2 should be 'ADDR/MASK [GATEWAY] OUTPUT': '10.0.0.0/33' is");
        assert!(errors[0].starts_with(&bad), "{errors:?}");
        assert_eq!(
            errors[1],
            "argument 3 should be 'ADDR/MASK [GATEWAY] OUTPUT': there is no output 1; the element has 0 to 0"
        );
        assert!(errors[2].starts_with("argument 4 should be"), "{}", errors[2]);
    }
}

#[test]
fn the_table_is_that_of_the_argument_or_the_usual_one() {
    for (class, family) in all() {
        let usual = if family.is_ipv6 { "range_tree" } else { "byte24" };
        for (argument, expected) in [("", usual), (", TABLE linear", "linear"), (", TABLE", usual)] {
            let mut bench = family.bench(class, &format!("10/8 0{argument}"), 1);
            let check = bench.read("e.check");
            assert!(check.starts_with(&format!("active {expected}: routes 1, ")), "{}: {check}", class.name);
        }
    }
    let expected = |class, text: &str| assert_eq!(configure(class, "TABLE radix").unwrap_err(), [text]);
    let radix = &super::classes::RADIX;
    expected(radix, "TABLE: 'radix' is not an IPv4 table; expected byte24, rank, dir24_8 or linear");
    expected(&super::classes::IP6, "TABLE: 'radix' is not an IPv6 table; expected range_tree or linear");
    assert!(configure(&super::classes::IP6, "TABLE rank").is_err());
}

/// Also with changes by handlers, which each table takes in its own way.
#[test]
fn all_tables_follow_changes() {
    for class in [&super::classes::RADIX, &super::classes::IP6] {
        let family = Embedding::of(class);
        for table in tables(class) {
            let mut bench = family.bench(class, &format!("0/0 0, 10/8 1, TABLE {table}"), 3);
            let changes = "set 10.1/16 192.0.2.1 2\nremove 0/0\nadd 10.1.2.3/32 1\nadd 10.1.2.128/25 0";
            bench.write("e.ctrl", &family.text(changes)).unwrap();
            bench.write("e.remove", &family.text("10/8")).unwrap();
            let (a, b, c) = (0x0a01_0001, 0x0a01_0203, 0x0a01_02ff);
            let out = family.route(&mut bench, &[0x0a00_0001, a, b, c], 3);
            assert_eq!(out, [vec![(c, c)], vec![(b, b)], vec![(a, 0xc000_0201)]], "{table}");
            assert_eq!(bench.drops("e", "no route"), 1);
            assert_checked(&mut bench, class, 3);
        }
    }
}

#[test]
fn of_two_routes_for_a_prefix_the_first_counts() {
    for (class, family) in all() {
        let mut bench = family.bench(class, "10/8 0, 10.1/8 1, 10/8 0", 2);
        assert_eq!(family.read(&mut bench, "e.lookup 10.1.1.1"), "0");
        let note = "e: argument 2: 10.0.0.0/8 has a route already; '10.0.0.0/8 - 1' is left out";
        assert_eq!(bench.messages(), [family.text(note)]);
        assert_checked(&mut bench, class, 1);
    }
}

#[test]
fn handlers_change_routes() {
    for (class, family) in dynamic() {
        let mut bench = family.bench(class, "0/0 0", 3);
        let write = |bench: &mut Bench, path: &str, value: &str| bench.write(path, &family.text(value));
        write(&mut bench, "e.add", "10.0.0.0/8 192.0.2.1 1").unwrap();
        assert_eq!(family.read(&mut bench, "e.lookup 10.0.0.1"), family.text("1 192.0.2.1"));
        assert_eq!(family.route(&mut bench, &[0x0a00_0001], 3)[1], [(0x0a00_0001, 0xc000_0201)]);
        for (handler, value, error) in [
            ("e.add", "10.0.0.0/8 2", "conflict with existing route '10.0.0.0/8 192.0.2.1 1'"),
            ("e.remove", "10.0.0.0/8 192.0.2.2 1", "route '10.0.0.0/8 192.0.2.2 1' not found"),
            ("e.remove", "10.0.0.0/8 192.0.2.1 2", "route '10.0.0.0/8 192.0.2.1 2' not found"),
            ("e.remove", "10.0.0.0/9", "route '10.0.0.0/9' not found"),
        ] {
            assert_eq!(write(&mut bench, handler, value).unwrap_err(), family.text(error), "{}", class.name);
            assert_checked(&mut bench, class, 2);
        }
        write(&mut bench, "e.set", "10.0.0.0/8 2").unwrap();
        assert_eq!(family.read(&mut bench, "e.lookup 10.0.0.1"), "2");
        write(&mut bench, "e.remove", "10.0.0.0/8 - 2").unwrap();
        assert_eq!(family.route(&mut bench, &[0x0a00_0001], 3)[0], [(0x0a00_0001, 0x0a00_0001)]);
        write(&mut bench, "e.set", "10.0.0.0/8 1").unwrap();
        write(&mut bench, "e.remove", "10.0.0.0/8").unwrap();
        assert_eq!(family.read(&mut bench, "e.lookup 10.0.0.1"), "0");
        assert_checked(&mut bench, class, 1);
        write(&mut bench, "e.flush", "").unwrap();
        assert_eq!(bench.read("e.table"), "");
        assert_eq!(family.read(&mut bench, "e.lookup 10.0.0.1"), "-1");
        assert_checked(&mut bench, class, 0);
        write(&mut bench, "e.add", "0/0 2").unwrap();
        assert_eq!(family.read(&mut bench, "e.lookup 10.0.0.1"), "2");
        let error = "expected 'ADDR/MASK [GATEWAY] OUTPUT', got '10/8 7': there is no output 7; the element has 0 to 2";
        assert_eq!(write(&mut bench, "e.add", "10/8 7").unwrap_err(), family.text(error));
    }
}

#[test]
fn static_routes_have_no_handlers_to_change_them() {
    let mut bench = Bench::element(&registry(), "StaticIPLookup(0/0 0)", 1, 1);
    for handler in ["add", "set", "remove", "ctrl", "flush"] {
        assert!(bench.write(&format!("e.{handler}"), "10/8 0").is_err(), "{handler}");
    }
    assert_eq!(bench.read("e.table"), "0.0.0.0/0\t\t-\t\t0\n");
}

#[test]
fn a_transaction_does_all_or_nothing() {
    for (class, family) in dynamic() {
        let mut bench = family.bench(class, "0/0 0, 10/8 1", 3);
        let all = "set 10/8 2\n\nremove 0/0   // comment\nadd 10.1/16 192.0.2.1 1\nset 10.1/16 192.0.2.2 1\n";
        bench.write("e.ctrl", &family.text(all)).unwrap();
        let after = family.text("10.0.0.0/8 - 2\n10.1.0.0/16 192.0.2.2 1");
        assert_eq!(family.read(&mut bench, "e.table"), after);
        for (lines, expected) in [
            (
                "set 10/8 0\nremove 10.1/16\nadd 11/8 1\nremove 12/8",
                "command 4: route '12.0.0.0/8' not found",
            ),
            ("add 11/8 1\nadd 11/8 1", "command 2: conflict with existing route '11.0.0.0/8 - 1'"),
            ("add 11/8 1\ndrop 11/8", "line 2: bad command 'drop'; expected add, set or remove"),
        ] {
            assert_eq!(bench.write("e.ctrl", &family.text(lines)).unwrap_err(), family.text(expected));
            assert_eq!(family.read(&mut bench, "e.table"), after, "{lines}");
            assert_eq!(family.read(&mut bench, "e.lookup 10.1.1.1"), family.text("1 192.0.2.2"));
            assert_checked(&mut bench, class, 2);
        }
        let error = bench.write("e.ctrl", &family.text("add 11/8 1\nadd 12/8")).unwrap_err();
        let expected = family.text("line 2: expected 'ADDR/MASK [GATEWAY] OUTPUT', got '12/8': there is no");
        assert!(error.starts_with(&expected), "{error}");
        bench.write("e.ctrl", "\n// nothing\n").unwrap();
        assert_eq!(family.read(&mut bench, "e.table"), after);
    }
}

#[test]
fn the_lookup_handler_wants_an_address() {
    for (text, expected) in [
        ("RadixIPLookup(0/0 0)", "expected IP address, got '10/8'"),
        ("LookupIP6Route(::/0 0)", "expected IPv6 address, got '10/8'"),
    ] {
        let mut bench = Bench::element(&registry(), text, 1, 1);
        let index = bench.graph().find("e").unwrap();
        assert_eq!(bench.graph().read(index, "lookup", "10/8").unwrap().unwrap_err(), expected);
    }
}

#[test]
fn ipv6_routes_of_all_lengths_lead_to_the_longest() {
    let text = "LookupIP6Route(::/0 fe80::1 0, 2001:db8::/32 1, 2001:db8:0:1::/64 fe80::2 2, 2001:db8:0:1::7 3, \
                2001:db8:0:1::/127 - 0, ::/128 3)";
    let mut bench = Bench::element(&registry(), text, 1, 4);
    for (address, expected) in [
        ("::", "3"),
        ("::1", "0 fe80::1"),
        ("2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", "1"),
        ("2001:db9::", "0 fe80::1"),
        ("2001:db8:0:1::7", "3"),
        ("2001:db8:0:1::8", "2 fe80::2"),
        ("2001:db8:0:1::1", "0"),
        ("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "0 fe80::1"),
    ] {
        assert_eq!(bench.read(&format!("e.lookup {address}")), expected, "{address}");
    }
    let mut bench = Bench::new(
        &registry(),
        "in :: TestInput -> GetIP6Address(24) -> rt :: LookupIP6Route(2001:db8::/32 0, ::/0 fe80::1 1);
         rt[0] -> near :: TestOutput; rt[1] -> far :: TestOutput;",
    );
    let to = |first: u8| [vec![0; 24], vec![first, 1, 0x0d, 0xb8], vec![0; 12]].concat();
    bench.push("in", &[&to(0x20), &to(0x21)]);
    assert_eq!(bench.taken_packets("near").len(), 1);
    let far = bench.taken_packets("far");
    assert_eq!(far[0].annotations().destination_ip6(), 0xfe80 << 112 | 1);
}

/// A file that is gone when the test ends.
struct TestFile(PathBuf);

impl TestFile {
    fn new(name: &str, bytes: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("brickway-lookup-{}-{name}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        Self(path)
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn routes_from_a_file_go_by_way_of_their_origin() {
    let mut rows = String::from("# PREFIX ORIGIN\n");
    let origin = |number: u32| number % 37;
    for number in 0..2000u32 {
        rows.push_str(&format!("20.{}.{}.0/24 {}\n", number / 256, number % 256, origin(number)));
    }
    let via = ["192.0.2.1 1", "192.0.2.2 2", "3"];
    for (class, family) in all() {
        let rows = family.text(&rows);
        for (kind, bytes) in [("plain", rows.clone().into_bytes()), ("gzip", gzip(&rows))] {
            let file = TestFile::new(&format!("{kind}-{}", class.name), &bytes);
            let routes = format!("0/0 0, 20.0.7/24 192.0.2.9 1, VIA \"{}\"", via.join(", "));
            let text = format!("{}({}, FILE {})", class.name, family.text(&routes), file.path().display());
            let mut bench = Bench::element(&registry(), &text, 1, 4);
            assert_eq!(bench.messages(), [""; 0]);
            assert_eq!(bench.read("e.table").lines().count(), 2001);
            let mut used = [0; 3];
            for number in 0..2000u32 {
                let choice = fib::synthesize::next_hop_of_origin(origin(number), 3).index() - 1;
                used[choice] += 1;
                let expected = match number {
                    7 => "1 192.0.2.9",
                    _ => ["1 192.0.2.1", "2 192.0.2.2", "3"][choice],
                };
                let path = format!("e.lookup 20.{}.{}.77", number / 256, number % 256);
                assert_eq!(family.read(&mut bench, &path), family.text(expected), "{} {path}", class.name);
            }
            assert!(used.iter().all(|&count| count > 100), "{used:?}");
            assert_eq!(family.read(&mut bench, "e.lookup 21.0.0.0"), "0");
            assert_checked(&mut bench, class, 2001);
        }
    }
}

#[test]
fn bad_rows_are_counted_shown_and_left_out() {
    for (class, family) in all() {
        let other = if family.is_ipv6 { "10.0.0.0/8 1" } else { "::/0 1" };
        let rows = "10.0.0.0/8 1\n10.0.0.1/8 1\nhello\n11.0.0.0/40 1\n12.0.0.0/8 2\n10.0.0.0/8 9\n";
        let rows = format!("{}{other}\n", family.text(rows));
        let file = TestFile::new(&format!("bad-{}", class.name), rows.as_bytes());
        let path = file.path().display().to_string();
        let text = format!("{}(FILE {path}, VIA \"0\")", class.name);
        let mut bench = Bench::element(&registry(), &text, 1, 1);
        let messages = bench.messages();
        assert_eq!(messages.len(), 4, "{messages:?}");
        assert_eq!(messages[0], format!("e: {path}: 5 of 7 rows are bad and were left out:"));
        let first = family.text("'10.0.0.1/8' has host bits set");
        assert!(messages[1].starts_with(&format!("e: {path}: line 2: {first}")), "{messages:?}");
        assert_eq!(family.read(&mut bench, "e.table"), family.text("10.0.0.0/8 - 0\n12.0.0.0/8 - 0"));
        let empty = TestFile::new(&format!("empty-{}", class.name), b"");
        let text = format!("{}(FILE {}, VIA \"0\")", class.name, empty.path().display());
        let messages = Bench::element(&registry(), &text, 1, 1).messages();
        assert!(messages[0].ends_with("there are no routes in it"), "{messages:?}");
    }
}

#[test]
fn a_file_that_is_missing_or_has_no_next_hops_is_a_mistake() {
    let class = &super::classes::RADIX;
    let errors = configure(class, "FILE /nowhere/rib.txt, VIA \"0\"").unwrap_err();
    assert!(errors[0].starts_with("FILE: cannot read '/nowhere/rib.txt': "), "{errors:?}");
    let errors = configure(class, "FILE /nowhere/rib.txt").unwrap_err();
    assert!(errors[0].starts_with("FILE needs VIA"), "{errors:?}");
    let errors = configure(class, "FILE \"\", VIA \"5\"").unwrap_err();
    assert!(errors[0].starts_with("VIA: next hop 1 should be '[GATEWAY] OUTPUT': there is no output 5"));
    for none in ["FILE \"\"", "FILE", "FILE , VIA \"0\"", "10/8 0, FILE \"\", VIA \"192.0.2.1 0\""] {
        assert_eq!(configure(class, none), Ok(()), "{none}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn packets_leave_where_a_linear_scan_says(
        routes in prop::collection::vec((any::<u32>(), 0u8..=32, 0u32..3, 0usize..4), 0..40),
        random in prop::collection::vec(any::<u32>(), 0..100),
        class in prop::sample::select(CLASSES),
        table in any::<prop::sample::Index>(),
    ) {
        let family = Embedding::of(class);
        let mut reference = Linear::<u32>::default();
        let mut next_hops = vec![(0, usize::MAX)];
        let mut arguments = Vec::new();
        let mut destinations = random;
        for &(bits, length, gateway, output) in &routes {
            let prefix = Ipv4Net::new(bits.into(), length).unwrap();
            let network = prefix.trunc();
            if reference.routes().any(|(known, _)| known == network) {
                continue;
            }
            reference.set(network, NextHopIndex::new(next_hops.len() as u16).unwrap());
            next_hops.push((gateway, output));
            let gateway = if gateway == 0 { "-".to_owned() } else { Ipv4Addr::from(gateway).to_string() };
            arguments.push(format!("{prefix} {gateway} {output}"));
            let (first, last) = (u32::from(network.network()), u32::from(network.broadcast()));
            destinations.extend([first, last, first.wrapping_sub(1), last.wrapping_add(1)]);
        }
        arguments.push(format!("TABLE {}", table.get(&tables(class))));
        let mut bench = family.bench(class, &arguments.join(", "), 4);
        let mut expected = vec![Vec::new(); 4];
        for &destination in &destinations {
            let (gateway, output) = next_hops[reference.lookup(destination).index()];
            if output != usize::MAX {
                expected[output].push((destination, if gateway == 0 { destination } else { gateway }));
            }
        }
        let dropped = destinations.len() - expected.iter().map(Vec::len).sum::<usize>();
        prop_assert_eq!(family.route(&mut bench, &destinations, 4), expected);
        prop_assert_eq!(bench.drops("e", "no route"), dropped as u64);
    }
}
