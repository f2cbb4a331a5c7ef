//! What a file is recognised as, and how it is read whatever it is wrapped in.

#![allow(clippy::unwrap_used, reason = "a test")]

use super::*;
use bzip2::write::BzEncoder;
use flate2::write::GzEncoder;
use std::io::Write;

fn arguments() -> InputArguments {
    InputArguments { format: None, strict: false, ipv4: false, ipv6: false, table: "main".into() }
}

fn rows(bytes: &[u8], arguments: &InputArguments) -> Vec<String> {
    let loaded = read(io::Cursor::new(bytes.to_vec()), arguments).unwrap();
    loaded.routes.iter().map(ToString::to_string).chain(loaded.errors).collect()
}

#[test]
fn files_are_recognised() {
    for (text, format) in [
        ("", Format::Text),
        ("# a table\n\n10.0.0.0/8 1\n", Format::Text),
        ("hello\n2001:db8::/32 AS1\n", Format::Text),
        ("default via 192.0.2.1 dev eth0\n", Format::IpRoute),
        ("garbage\n10.0.0.0/8\n10.0.0.0/8 dev eth0\n", Format::IpRoute),
        ("10.0.0.1 dev eth0 scope link\n", Format::IpRoute),
        ("blackhole 10.0.0.0/8\n", Format::IpRoute),
        ("10.0.0.0/8 \u{fffd}\n", Format::Text),
    ] {
        assert_eq!(recognise(text.as_bytes()), format, "{text}");
    }
    assert_eq!(recognise(&[0, 0, 0, 1, 0, 13, 0, 1, 0, 0, 0, 0]), Format::Mrt);
}

/// Gives one byte at a time, as a slow pipe may.
struct Slow(io::Cursor<Vec<u8>>);

impl Read for Slow {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = buffer.len().min(1);
        self.0.read(&mut buffer[..length])
    }
}

#[test]
fn compressed_or_not_slow_or_not() {
    let text = "2001:db8::/32 2\n::/0 1\n".to_owned();
    let mut gzip = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(text.as_bytes()).unwrap();
    let mut bzip2 = BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    bzip2.write_all(text.as_bytes()).unwrap();
    for bytes in [text.into_bytes(), gzip.finish().unwrap(), bzip2.finish().unwrap()] {
        assert_eq!(rows(&bytes, &arguments()), ["::/0 1", "2001:db8::/32 2"]);
        let slow = BufReader::new(Slow(io::Cursor::new(bytes)));
        assert_eq!(read(slow, &arguments()).unwrap().routes.len(), 2);
    }
}

#[test]
fn a_broken_file_keeps_what_was_good_and_says_so() {
    let text: String = (0..50_000u32).map(|i| format!("{}/32 {i}\n", std::net::Ipv4Addr::from(i))).collect();
    let mut gzip = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(text.as_bytes()).unwrap();
    let gzip = gzip.finish().unwrap();
    let mut bzip2 = BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    bzip2.write_all(text.as_bytes()).unwrap();
    let bzip2 = bzip2.finish().unwrap();
    for bytes in [&gzip[..gzip.len() / 2], &gzip[..gzip.len() / 20], &bzip2[..bzip2.len() * 9 / 10]] {
        let loaded = read(io::Cursor::new(bytes.to_vec()), &arguments()).unwrap();
        assert_eq!((loaded.routes.len() > 1000, loaded.bad), (true, 1), "{:?}", loaded.errors);
        assert!(loaded.errors[0].contains("the file cannot be read further"), "{:?}", loaded.errors);
    }
}

/// Fails once and is at its end then.
struct FailsOnce(bool);

impl Read for FailsOnce {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        if std::mem::replace(&mut self.0, false) { Err(io::Error::other("no more")) } else { Ok(0) }
    }
}

#[test]
fn an_error_in_the_first_bytes_is_not_lost() {
    let input = BufReader::new(io::Cursor::new("10.0.0.0/8 1\n").chain(FailsOnce(true)));
    let loaded = read(input, &arguments()).unwrap();
    assert_eq!((loaded.routes.len(), loaded.bad), (1, 1));
    assert_eq!(loaded.errors, ["line 2: the file cannot be read further: no more"]);
}

#[test]
fn one_route_for_a_prefix_of_ip_route() {
    let text = "10.0.0.0/8 via 192.0.2.1 dev a metric 200
10.0.0.0/8 via 192.0.2.2 dev b metric 100
10.0.0.0/8 via 192.0.2.3 dev b metric 100
fe80::/64 dev a metric 256
fe80::/64 dev b metric 256
local 10.9.9.9 dev lo table local
11.0.0.0/8 dev c table 100
";
    let loaded = read(io::Cursor::new(text), &arguments()).unwrap();
    let shown: Vec<String> = loaded.routes.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["10.0.0.0/8 via 192.0.2.2 dev b metric 100", "fe80::/64 dev a metric 256"]);
    assert_eq!(loaded.errors, ["line 3: 10.0.0.0/8 with metric 100 is in line 2 already, which counts"]);
    assert_eq!((loaded.bad, loaded.second_choices), (1, 2));
    assert_eq!(loaded.other_tables, BTreeMap::from([("local".into(), 1), ("100".into(), 1)]));
    let only = |ipv4, ipv6, table: &str| {
        let arguments = InputArguments { ipv4, ipv6, table: table.into(), ..arguments() };
        read(io::Cursor::new(text), &arguments).unwrap().routes.len()
    };
    assert_eq!([only(true, false, "main"), only(false, true, "main"), only(false, false, "100")], [1, 1, 1]);
}

#[test]
fn a_family_that_is_asked_for() {
    let text = b"10.0.0.0/8 1\n2001:db8::/32 2\n";
    assert_eq!(rows(text, &InputArguments { ipv6: true, ..arguments() })[0], "2001:db8::/32 2");
    assert_eq!(rows(text, &InputArguments { ipv4: true, ..arguments() })[0], "10.0.0.0/8 1");
    assert_eq!(
        rows(text, &arguments()),
        [
            "10.0.0.0/8 1",
            "line 2: '2001:db8::/32' is IPv6; this table is for IPv4 prefixes such as '192.0.2.0/24'"
        ]
    );
}
