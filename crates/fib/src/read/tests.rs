//! Tables in both families, good and bad; gzip, whole and damaged; prefixes that come twice.

#![allow(clippy::unwrap_used, reason = "a test")]

use super::*;
use flate2::Compression;
use flate2::write::GzEncoder;
use ipnet::{Ipv4Net, Ipv6Net};
use proptest::prelude::*;
use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

fn read(text: &[u8]) -> Table {
    super::read(text)
}

#[test]
fn good_rows_comments_and_empty_lines() {
    let table =
        read(b"# table\n\n1.0.0.0/24 13335\r\n0.0.0.0/0 AS0 # default\n  255.255.255.255/32\t4294967295");
    let rows: Vec<String> = table.rows.iter().map(|row| format!("{} {}", row.prefix, row.origin)).collect();
    assert_eq!(rows, ["1.0.0.0/24 13335", "0.0.0.0/0 0", "255.255.255.255/32 4294967295"]);
    assert_eq!(table.bad, 0, "{:?}", table.errors);
}

#[test]
fn a_bad_row_says_where_what_and_what_would_be_right() {
    let right_prefix = "expected four numbers of 0 to 255 and a length: '192.0.2.0/24'";
    let cases = [
        ("10.0.0.1/8 1", "'10.0.0.1/8' has host bits set; the network is 10.0.0.0/8".into()),
        (
            "10.0.0.0/33 1",
            "'10.0.0.0/33' has the length '33'; an IPv4 prefix length is a number of 0 to 32".into(),
        ),
        (
            "10.0.0.0/+8 1",
            "'10.0.0.0/+8' has the length '+8'; an IPv4 prefix length is a number of 0 to 32".into(),
        ),
        ("10.0.0.0/ 1", "'10.0.0.0/' has the length ''; an IPv4 prefix length is a number of 0 to 32".into()),
        (
            "2001:db8::/32 1",
            "'2001:db8::/32' is IPv6; this table is for IPv4 prefixes such as '192.0.2.0/24'".into(),
        ),
        ("10.0.0/8 1", format!("'10.0.0/8' is not an IPv4 prefix; {right_prefix}")),
        ("default 1", format!("'default' is not an IPv4 prefix; {right_prefix}")),
        ("10.0.0.1 1", "'10.0.0.1' has no prefix length; a single address is '10.0.0.1/32'".into()),
        (
            "10.0.0.0/8",
            "'10.0.0.0/8' has no origin; a row is PREFIX ORIGIN, such as '192.0.2.0/24 64496'".into(),
        ),
        ("10.0.0.0/8 x1", "'x1' is not an origin; expected an AS number of 0 to 4294967295".into()),
        (
            "10.0.0.0/8 4294967296",
            "'4294967296' is not an origin; expected an AS number of 0 to 4294967295".into(),
        ),
        ("10.0.0.0/8 1 2", "'2' follows the origin; a row is PREFIX ORIGIN and nothing more".into()),
    ];
    for (row, problem) in cases {
        let table = read(format!("1.0.0.0/24 1\n{row}\n2.0.0.0/24 2\n").as_bytes());
        assert_eq!(table.rows.len(), 2, "{row}: the rows around it are kept");
        assert_eq!(table.bad, 1);
        assert_eq!(table.errors[0].to_string(), format!("line 2: {problem}"));
    }
}

#[test]
fn a_line_without_end_costs_no_memory_and_one_error() {
    let mut text = b"1.0.0.0/24 1\n".to_vec();
    text.resize(1 << 20, b'x');
    text.extend(b"\n2.0.0.0/24 2\n");
    let table = read(&text);
    assert_eq!((table.rows.len(), table.bad), (2, 1));
    assert!(table.errors[0].to_string().starts_with("line 2: 'xxx"));
    assert!(table.errors[0].to_string().len() < 200);
}

#[test]
fn all_bad_rows_are_counted_and_few_errors_kept() {
    let table = read("nonsense\n".repeat(1000).as_bytes());
    assert_eq!((table.rows.len(), table.bad, table.errors.len()), (0, 1000, 20));
}

#[test]
fn gzip_is_recognised_and_a_damaged_one_keeps_what_was_good() {
    let folder = std::env::temp_dir().join(format!("brickway-fib-read-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (plain, gzip, damaged) = (folder.join("plain"), folder.join("gzip"), folder.join("damaged"));
    let text: String = (0..50_000u32).map(|i| format!("{}/24 {i}\n", Ipv4Addr::from(i << 8))).collect();
    std::fs::write(&plain, &text).unwrap();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    let bytes = encoder.finish().unwrap();
    std::fs::write(&gzip, &bytes).unwrap();
    std::fs::write(&damaged, &bytes[..bytes.len() / 2]).unwrap();

    let rows = load::<u32>(&plain).unwrap().rows;
    assert_eq!(rows.len(), 50_000);
    let table = load::<u32>(&gzip).unwrap();
    assert_eq!((table.bad, table.rows == rows), (0, true));
    let table = load::<u32>(&damaged).unwrap();
    assert_eq!(table.bad, 1);
    assert!(matches!(table.errors[0].problem, RowProblem::Io(_)));
    assert!(table.rows.len() > 1000 && rows.starts_with(&table.rows));
    assert!(load::<u32>(&folder.join("missing")).is_err());
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn ipv6_rows() {
    let table: Table<u128> = super::read(&b"2001:db8::/32 AS64496\n::/0 1\n2001:DB8:0::1/128 2\n"[..]);
    let rows: Vec<String> = table.rows.iter().map(|row| format!("{} {}", row.prefix, row.origin)).collect();
    assert_eq!(rows, ["2001:db8::/32 64496", "::/0 1", "2001:db8::1/128 2"]);
    let cases = [
        ("2001:db8::1/32 1", "'2001:db8::1/32' has host bits set; the network is 2001:db8::/32"),
        (
            "2001:db8::/129 1",
            "'2001:db8::/129' has the length '129'; an IPv6 prefix length is a number of 0 to 128",
        ),
        ("10.0.0.0/8 1", "'10.0.0.0/8' is IPv4; this table is for IPv6 prefixes such as '2001:db8::/32'"),
        ("10.0.0.1/33 1", "'10.0.0.1/33' is IPv4; this table is for IPv6 prefixes such as '2001:db8::/32'"),
        (
            "2001:db8/32 1",
            "'2001:db8/32' is not an IPv6 prefix; expected an address and a length: '2001:db8::/32'",
        ),
        ("2001:db8::1 1", "'2001:db8::1' has no prefix length; a single address is '2001:db8::1/128'"),
    ];
    for (row, problem) in cases {
        let table: Table<u128> = super::read(format!("::/0 1\n{row}\n1::/16 2\n").as_bytes());
        assert_eq!((table.rows.len(), table.bad), (2, 1), "{row}");
        assert_eq!(table.errors[0].to_string(), format!("line 2: {problem}"));
    }
}

#[test]
fn the_first_of_several_rows_for_a_prefix_counts() {
    let table = read(b"10.0.0.0/8 1\nx\n10.0.0.0/16 2\n10.0.0.0/8 3\n9.0.0.0/8 4\n10.0.0.0/8 1\n");
    let rows: Vec<String> = table.rows.iter().map(|row| format!("{} {}", row.prefix, row.origin)).collect();
    assert_eq!(rows, ["10.0.0.0/8 1", "10.0.0.0/16 2", "9.0.0.0/8 4"]);
    assert_eq!(table.bad, 3);
    let lines: Vec<u64> = table.errors.iter().map(|error| error.line).collect();
    assert_eq!(lines, [2, 4, 6]);
    assert_eq!(
        table.errors[1].to_string(),
        "line 4: 10.0.0.0/8 comes twice: origin 3 here, 1 in line 1, which counts; a prefix has one row"
    );
    // Of a great many, the first errors of all kinds are kept, in the order of lines.
    let mut text = "10.0.0.0/8 1\n".repeat(1000);
    text.insert_str(13 * 5, "nonsense\n");
    let table = read(text.as_bytes());
    assert_eq!((table.rows.len(), table.bad, table.errors.len()), (1, 1000, 20));
    let lines: Vec<u64> = table.errors.iter().map(|error| error.line).collect();
    assert_eq!(lines, (2..22).collect::<Vec<u64>>());
    assert!(table.errors[4].to_string().contains("nonsense"));
}

#[test]
fn the_first_good_row_gives_the_family() {
    let AnyTable::Ipv6(table) = read_any(&b"# x\n10.0.0.1/8 1\n::/0 7\n10.0.0.0/8 2\n::/0 8\n"[..]) else {
        panic!("the first good row is IPv6");
    };
    assert_eq!((table.rows.len(), table.bad), (1, 3));
    let errors: Vec<String> = table.errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        errors,
        [
            "line 2: '10.0.0.1/8' has host bits set; the network is 10.0.0.0/8",
            "line 4: '10.0.0.0/8' is IPv4; this table is for IPv6 prefixes such as '2001:db8::/32'",
            "line 5: ::/0 comes twice: origin 8 here, 7 in line 3, which counts; a prefix has one row",
        ]
    );
    let AnyTable::Ipv4(table) = read_any(&b"nonsense 1\n10.0.0.0/8 2"[..]) else { panic!("it is IPv4") };
    assert_eq!((table.rows.len(), table.bad), (1, 1));
    assert_eq!(
        table.errors[0].to_string(),
        "line 1: 'nonsense' is not a prefix; expected an address and a length: '192.0.2.0/24' or \
         '2001:db8::/32'"
    );
    assert!(matches!(read_any(&b""[..]), AnyTable::Ipv4(table) if table.rows.is_empty() && table.bad == 0));
}

proptest! {
    #[test]
    fn any_bytes_are_rows_or_errors(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let table = read(&bytes);
        prop_assert!(table.rows.len() as u64 + table.bad <= bytes.len() as u64 + 1);
    }

    #[test]
    fn what_is_written_is_read(rows in proptest::collection::vec((any::<u32>(), 0u8..=32, 0u32..3), 0..50)) {
        let rows: Vec<Row> = rows.into_iter().map(|(address, length, origin)| {
            Row { prefix: Ipv4Net::new(address.into(), length).unwrap().trunc(), origin }
        }).collect();
        let text: String = rows.iter().map(|row| format!("{} {}\n", row.prefix, row.origin)).collect();
        let table = read(text.as_bytes());
        let mut seen = std::collections::BTreeSet::new();
        let first: Vec<Row> = rows.iter().copied().filter(|row| seen.insert(row.prefix)).collect();
        prop_assert_eq!(table.bad, (rows.len() - first.len()) as u64);
        prop_assert_eq!(table.rows, first);
    }

    #[test]
    fn what_is_written_in_ipv6_is_read(rows in proptest::collection::vec((any::<u128>(), 0u8..=128, any::<u32>()), 1..50)) {
        let mut rows: Vec<Row<u128>> = rows.into_iter().map(|(address, length, origin)| {
            Row { prefix: Ipv6Net::new(Ipv6Addr::from(address), length).unwrap().trunc(), origin }
        }).collect();
        rows.sort();
        rows.dedup_by_key(|row| row.prefix);
        let text: String = rows.iter().map(|row| format!("{} {}\n", row.prefix, row.origin)).collect();
        let AnyTable::Ipv6(table) = read_any(text.as_bytes()) else { panic!("all rows are IPv6") };
        prop_assert_eq!(table.bad, 0);
        prop_assert_eq!(table.rows, rows);
    }
}
