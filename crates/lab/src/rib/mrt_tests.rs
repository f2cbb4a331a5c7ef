//! Dumps written byte by byte as RFC 6396 draws them: whole, cut, damaged.

#![allow(clippy::unwrap_used, reason = "a test")]

use super::*;
use proptest::prelude::*;

/// A record of TABLE_DUMP_V2 (RFC 6396, 2): timestamp, type 13, subtype, length, message.
fn record(subtype: u16, message: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x65, 0x53, 0xf1, 0x00, 0, 13];
    bytes.extend(subtype.to_be_bytes());
    bytes.extend((message.len() as u32).to_be_bytes());
    bytes.extend(message);
    bytes
}

/// PEER_INDEX_TABLE (4.3.1): collector 192.0.2.255, view "rib", a peer with a 2-byte AS and one with IPv6 and 4 bytes.
fn peers() -> Vec<u8> {
    #[rustfmt::skip]
    let message = [
        192, 0, 2, 255, 0, 3, b'r', b'i', b'b', 0, 2,
        0, 10, 0, 0, 1, 192, 0, 2, 1, 0xfb, 0xf0,
        3, 10, 0, 0, 2, 0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1, 0, 1,
    ];
    record(1, &message)
}

/// An AS_SEQUENCE of 4-byte numbers as an AS_PATH attribute, behind ORIGIN.
fn sequence(path: &[u32]) -> Vec<u8> {
    let mut segments = vec![2, path.len() as u8];
    segments.extend(path.iter().flat_map(|number| number.to_be_bytes()));
    attributes(if path.is_empty() { &[] } else { &segments })
}

fn attributes(segments: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x40, 1, 1, 0, 0x40, 2, segments.len() as u8];
    bytes.extend(segments);
    bytes
}

/// A RIB record (4.3.2): sequence number, prefix, entries of a peer and its attributes.
fn rib(subtype: u16, prefix: &[u8], entries: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut message = vec![0, 0, 0, 7];
    message.extend(prefix);
    message.extend((entries.len() as u16).to_be_bytes());
    for (peer, attributes) in entries {
        message.extend(peer.to_be_bytes());
        message.extend([0x65, 0x53, 0xf0, 0]);
        message.extend((attributes.len() as u16).to_be_bytes());
        message.extend(attributes);
    }
    record(subtype, &message)
}

fn read(bytes: &[u8]) -> Vec<String> {
    let show = |route: Result<(u64, IpNet, u32), MrtError>| match route {
        Ok((record, prefix, origin)) => format!("{record}: {prefix} {origin}"),
        Err(error) => error.to_string(),
    };
    MrtRoutes::new(bytes).map(show).collect()
}

/// A dump with a record of each kind that is read.
fn golden() -> Vec<Vec<u8>> {
    vec![
        peers(),
        rib(2, &[24, 192, 0, 2], &[(0, sequence(&[64496, 64500]))]),
        // Most peers say 64502; of two that are equal, the lower one.
        rib(
            2,
            &[9, 10, 0x80],
            &[
                (0, sequence(&[64496, 64501])),
                (1, sequence(&[65537, 64502])),
                (1, sequence(&[65537, 64999, 64502])),
            ],
        ),
        rib(2, &[0], &[(0, sequence(&[64496, 64510])), (1, sequence(&[65537, 64509]))]),
        // The path ends in a set; is empty; ends in a confederation.
        rib(2, &[8, 20], &[(0, attributes(&[2, 1, 0, 0, 0xfb, 0xf0, 1, 2, 0, 0, 0, 9, 0, 0, 0, 5]))]),
        rib(4, &[32, 0x20, 1, 0x0d, 0xb8], &[(1, sequence(&[]))]),
        rib(4, &[33, 0x20, 1, 0x0d, 0xb8, 0xff], &[(1, attributes(&[2, 1, 0, 1, 0, 1, 3, 1, 0, 0, 0, 9]))]),
    ]
}

const GOLDEN: [&str; 6] = [
    "2: 192.0.2.0/24 64500",
    "3: 10.128.0.0/9 64502",
    "4: 0.0.0.0/0 64509",
    "5: 20.0.0.0/8 5",
    "6: 2001:db8::/32 65537",
    // Bits behind the length are of no relevance (4.3.2).
    "7: 2001:db8:8000::/33 65537",
];

#[test]
fn a_dump_of_both_families() {
    assert!(is_mrt(&golden()[0]));
    assert_eq!(read(&golden().concat()), GOLDEN);
}

/// Cut anywhere, it gives the routes of all whole records and says where it ends.
#[test]
fn a_cut_dump_keeps_what_was_good() {
    let records = golden();
    let whole = records.concat();
    let mut ends = vec![0];
    for record in &records {
        ends.push(ends.last().unwrap() + record.len());
    }
    for length in 0..whole.len() {
        let complete = ends.iter().filter(|&&end| end <= length).count() - 1;
        let mut expected: Vec<String> =
            GOLDEN[..complete.saturating_sub(1)].iter().map(ToString::to_string).collect();
        let rest = length - ends[complete];
        if rest > 0 {
            let size = if rest < HEADER { HEADER } else { records[complete].len() };
            expected.push(format!(
                "record {} at byte {}: the file ends {rest} bytes into it; it has {size} or more",
                complete + 1,
                ends[complete]
            ));
        }
        assert_eq!(read(&whole[..length]), expected, "cut to {length} bytes");
    }
}

#[test]
fn a_bad_record_is_told_and_costs_no_other() {
    let good = || rib(2, &[24, 192, 0, 2], &[(0, sequence(&[64500]))]);
    let mut short_count = rib(2, &[8, 10], &[(0, sequence(&[64501]))]);
    short_count[HEADER + 7] = 2;
    let mut long_attributes = rib(2, &[8, 10], &[(0, sequence(&[64501]))]);
    long_attributes[HEADER + 8 + 7] = 200;
    let mut other_type = rib(2, &[8, 10], &[(0, sequence(&[64501]))]);
    other_type[5] = 99;
    let mut update = record(4, &[0; 40]);
    update[5] = 16;
    // Route, and what is said of the record.
    let cases: [(Vec<u8>, Option<&str>, &str); 11] = [
        (short_count, Some("10.0.0.0/8 64501"), "10.0.0.0/8: it breaks off after 1 of 2 entries"),
        (long_attributes, None, "10.0.0.0/8: it breaks off after 0 of 1 entries"),
        (rib(2, &[33, 10, 0, 0, 0, 0], &[(0, sequence(&[1]))]), None, "Invalid prefix length: 33"),
        (rib(2, &[8, 10], &[]), None, "10.0.0.0/8: it has no entries"),
        (
            rib(2, &[8, 10], &[(0, vec![0x40, 1, 1, 0])]),
            None,
            "10.0.0.0/8: entry 1: its AS path is not there",
        ),
        (
            rib(2, &[8, 10], &[(0, attributes(&[2, 9, 0, 0]))]),
            None,
            "10.0.0.0/8: entry 1: its AS path is damaged",
        ),
        (
            rib(2, &[8, 10], &[(7, sequence(&[])), (0, sequence(&[64502]))]),
            Some("10.0.0.0/8 64502"),
            "10.0.0.0/8: entry 1: its AS path is empty and its peer 7 is not in the peer table",
        ),
        (
            rib(3, &[8, 224], &[(0, sequence(&[1]))]),
            None,
            "it is a multicast route; only unicast routes are read",
        ),
        (rib(6, &[8, 10], &[]), None, "RibGeneric is not currently supported"),
        (other_type, None, "it is of type 99; a routing table is of type 13, TABLE_DUMP_V2"),
        (update, None, ""),
    ];
    for (bad, route, problem) in cases {
        let bytes = [peers(), good(), bad, good()].concat();
        let shown = read(&bytes);
        let mut expected = vec!["2: 192.0.2.0/24 64500".to_owned()];
        expected.extend(route.map(|route| format!("3: {route}")));
        assert_eq!(shown[..expected.len()], expected, "{problem}");
        let error = &shown[expected.len()];
        let place = format!("record 3 at byte {}: ", peers().len() + good().len());
        assert!(error.starts_with(&place) && error.contains(problem), "'{problem}' in {shown:?}");
        assert_eq!(shown[expected.len() + 1..], ["4: 192.0.2.0/24 64500"], "{problem}");
    }
}

#[test]
fn a_length_beyond_all_reason_ends_the_dump() {
    let mut bytes = golden().concat();
    let at = bytes.len();
    bytes.extend(record(2, &[]));
    bytes[at + 8] = 0x7f;
    let shown = read(&bytes);
    assert_eq!(shown.len(), GOLDEN.len() + 1);
    assert!(shown[GOLDEN.len()].contains("too large"), "{shown:?}");
}

#[test]
fn text_is_no_dump() {
    assert!(!is_mrt(b"10.0.0.0/8 64500\n") && !is_mrt(b"") && !is_mrt(&peers()[..5]));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// Any bytes of a dump may be any others: an error or another route, never a panic and never a hang.
    #[test]
    fn any_damage_is_survived(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let mut bytes = golden().concat();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        prop_assert!(read(&bytes).len() <= bytes.len());
        prop_assert!(!read(&bytes).iter().any(|line| line.contains("the parser cannot take it apart")));
    }

    /// Any attribute of any bytes.
    #[test]
    fn any_attribute_is_survived(
        kind in 0u8..=255, subtype in prop::sample::select(vec![2u16, 4, 8, 10]),
        value in prop::collection::vec(prop_oneof![3 => 0u8..8, 1 => any::<u8>()], 0..60),
    ) {
        let mut bytes = sequence(&[64500]);
        bytes.extend([0xc0, kind, value.len() as u8]);
        bytes.extend(value);
        let mut record = rib(subtype, &[8, 10], &[(0, bytes.clone())]);
        if subtype >= 8 {
            // With a path identifier (RFC 8050) in front of the attributes.
            let mut message = vec![0, 0, 0, 7, 8, 10, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
            message.extend((bytes.len() as u16).to_be_bytes());
            message.extend(&bytes);
            record = super::tests::record(subtype, &message);
        }
        let shown = read(&[peers(), record].concat());
        prop_assert!(!shown.iter().any(|line| line.contains("the parser cannot take it apart")), "{shown:?}");
        prop_assert!(shown[0].starts_with("2: "), "{shown:?}");
    }
}
