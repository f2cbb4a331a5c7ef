//! `brickway-lab rib` as a person meets it: files of each kind, bad rows, exit codes (0 good, 1 an error or with --strict
//! any bad row, 2 wrong usage; those of diff(1) for `rib diff`).

#![allow(clippy::unwrap_used, reason = "a test")]

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;
use testbed::Folder;

/// Exit code, standard output, standard error.
struct Said {
    code: i32,
    out: String,
    err: String,
}

/// Runs `brickway-lab rib` with `input` at its standard input.
fn rib(arguments: &[&str], input: &[u8]) -> Said {
    let mut child = Command::new(env!("CARGO_BIN_EXE_brickway-lab"))
        .arg("rib")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A program that fails early does not read its input; that is its right.
    let _ = child.stdin.take().unwrap().write_all(input);
    let output = child.wait_with_output().unwrap();
    Said {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A file that is removed at the end.
struct TestFile {
    path: String,
    _folder: Folder,
}

impl TestFile {
    fn new(name: &str, bytes: &[u8]) -> Self {
        let folder = Folder::new();
        Self { path: folder.write(name, bytes), _folder: folder }
    }

    fn path(&self) -> &str {
        &self.path
    }
}

const TABLE: &str = "10.0.0.0/8 64500\n10.9.0.0/16 64501\n10.9.1.0/24 64502\n192.0.2.0/24 64503\n";

fn objects(said: &Said) -> Vec<Value> {
    said.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn show_all_one_or_those_around() {
    let said = rib(&["show", "-"], TABLE.as_bytes());
    assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (0, TABLE, ""));
    let said = rib(&["show", "-", "10.9.1.77"], TABLE.as_bytes());
    assert_eq!((said.code, said.out.as_str()), (0, "10.9.1.0/24 64502\n"));
    let said = rib(&["show", "-", "10.9.0.0/16"], TABLE.as_bytes());
    assert_eq!(
        said.out,
        "relation  route\n\
         covers    10.0.0.0/8 64500\n\
         exact     10.9.0.0/16 64501\n\
         inside    10.9.1.0/24 64502\n"
    );
    let said = rib(&["show", "-", "10.9.0.0/16", "--json"], TABLE.as_bytes());
    let objects = objects(&said);
    assert_eq!(objects.len(), 3);
    assert_eq!((&objects[2]["relation"], &objects[2]["origin"]), (&"inside".into(), &64502.into()));
    for query in ["11.0.0.1", "11.0.0.0/8", "2001:db8::1"] {
        let said = rib(&["show", "-", query], TABLE.as_bytes());
        assert_eq!((said.code, said.out.as_str()), (1, ""), "{query}");
        assert!(said.err.contains("no route"), "{}", said.err);
    }
    let said = rib(&["show", "-", "10.0.0.1/8"], b"");
    assert_eq!(said.code, 2);
    assert!(said.err.contains("the network is 10.0.0.0/8"), "{}", said.err);
}

/// Good rows are used, bad ones are told with their lines and counted; --strict refuses all.
#[test]
fn bad_rows_in_every_subcommand() {
    let bad = format!("{TABLE}10.0.0.1/8 1\n11.0.0.0/33 1\n2001:db8::/32 1\n10.0.0.0/8 7\ngarbage\n");
    let file = TestFile::new("bad", bad.as_bytes());
    let good = TestFile::new("good", TABLE.as_bytes());
    let strict_codes: [(&[&str], i32); 5] = [
        (&["show", file.path()], 1),
        (&["stats", file.path()], 1),
        (&["check", file.path()], 1),
        (&["synth", file.path(), "--routes", "2"], 1),
        (&["diff", good.path(), file.path()], 2),
    ];
    for (arguments, strict_code) in strict_codes {
        let said = rib(arguments, b"");
        assert_eq!(said.code, 0, "{arguments:?}: {}", said.err);
        let lines: Vec<&str> = said.err.lines().collect();
        assert_eq!(lines.len(), 6, "{}", said.err);
        for (line, number, what) in [
            (lines[0], 5, "has host bits set; the network is 10.0.0.0/8"),
            (lines[1], 6, "an IPv4 prefix length is a number of 0 to 32"),
            (lines[2], 7, "is IPv6; this table is for IPv4"),
            (lines[3], 8, "10.0.0.0/8 comes twice: origin 7 here, 64500 in line 1"),
            (lines[4], 9, "'garbage' is not an IPv4 prefix"),
        ] {
            assert!(line.starts_with(&format!("{}: line {number}: ", file.path())), "{line}");
            assert!(line.contains(what), "{line}");
        }
        assert_eq!(lines[5], format!("{}: 5 bad rows, 4 good routes", file.path()));
        let said = rib(&[arguments, &["--strict"]].concat(), b"");
        assert_eq!((said.code, said.out.as_str()), (strict_code, ""), "{arguments:?}");
        assert!(said.err.contains("--strict refuses it"), "{}", said.err);
    }
    let said = rib(&["show", "-"], b"garbage\n");
    assert_eq!(said.code, 1);
    assert!(said.err.contains("'<stdin>' has no good route"), "{}", said.err);
    let said = rib(&["stats", "/no/such/table"], b"");
    assert_eq!(said.code, 1);
    assert!(said.err.contains("cannot open '/no/such/table'"), "{}", said.err);
    for wrong in [
        &["show"][..],
        &["synth", "-"],
        &["stats", "-", "-4", "-6"],
        &["check", "-", "--changes", "few"],
        &["convert", "-"],
    ] {
        assert_eq!(rib(wrong, b"").code, 2, "{wrong:?}");
    }
}

#[test]
fn what_ip_route_prints() {
    let text = "default via 192.0.2.1 dev eth0 proto dhcp metric 100
10.0.0.0/8 proto bird metric 32
\tnexthop via 192.0.2.2 dev eth0 weight 1
\tnexthop via 192.0.2.3 dev eth1 weight 2
192.0.2.0/24 dev eth0 proto kernel scope link src 192.0.2.7
blackhole 198.51.100.0/24
10.0.0.0/8 via nowhere
203.0.113.0/24 proto static
";
    let said = rib(&["show", "-"], text.as_bytes());
    assert_eq!(said.code, 0);
    let expected = "0.0.0.0/0 via 192.0.2.1 dev eth0 proto dhcp metric 100
10.0.0.0/8 proto bird metric 32 nexthop via 192.0.2.2 dev eth0 weight 1 nexthop via 192.0.2.3 dev eth1 weight 2
192.0.2.0/24 dev eth0 proto kernel
blackhole 198.51.100.0/24
";
    assert_eq!(said.out, expected);
    assert!(said.err.contains("line 7: 'via nowhere' is not a gateway"), "{}", said.err);
    assert!(said.err.contains("line 8: '203.0.113.0/24 proto static' has no next hop"), "{}", said.err);
    assert!(said.err.ends_with("<stdin>: 2 bad rows, 4 good routes\n"), "{}", said.err);
    // What is printed is read as the same.
    assert_eq!(rib(&["show", "-"], said.out.as_bytes()).out, expected);
    let said = rib(&["show", "-", "10.1.2.3", "--json"], text.as_bytes());
    let object = &objects(&said)[0];
    assert_eq!((&object["prefix"], &object["kind"]), (&"10.0.0.0/8".into(), &"unicast".into()));
    assert_eq!(object["next_hops"][1]["via"], "192.0.2.3");
    assert_eq!(object["next_hops"][1]["weight"], 2);
    let said = rib(&["stats", "-"], text.as_bytes());
    for line in ["routes         4", "default route  yes", "next hops      4"] {
        assert!(said.out.lines().any(|known| known == line), "no '{line}' in {}", said.out);
    }
    let said = rib(&["synth", "-", "--routes", "9"], text.as_bytes());
    assert_eq!(said.code, 1);
    assert!(said.err.contains("has next hops and no origins"), "{}", said.err);
    // With a format that it is not, every row is bad.
    assert_eq!(rib(&["show", "-", "--format", "text"], text.as_bytes()).code, 1);
}

/// What the compiled tables cost is told with the counts, and by what next hops.
#[test]
fn stats_compile_the_routes() {
    let said = rib(&["stats", "-"], TABLE.as_bytes());
    // None, 10/8, 10.9/16, 10.9.1/24, 10.9/16, 10/8, none, 192.0.2/24, none; each origin has another next hop.
    let line = "compiled to 64 next hops, drawn by a hash of the origin: 9 ranges of addresses";
    assert!(said.out.lines().any(|known| known == line), "{}", said.out);
    let rows = said.out.lines().skip_while(|known| *known != line).skip(1);
    let names: Vec<&str> = rows.map(|row| row.split("  ").next().unwrap().trim()).collect();
    assert_eq!((names.first(), names.last()), (Some(&"table"), Some(&"routes")), "{}", said.out);
    assert!(["byte24", "rank", "dir24_8"].iter().all(|table| names.contains(table)), "{}", said.out);
    let said = rib(&["stats", "-", "--json"], &DUMP);
    let object = &objects(&said)[0];
    let tables = |family: usize| object["families"][family]["compiled"]["tables"].as_array().unwrap();
    assert!(tables(0).len() >= 3 && !tables(1).is_empty(), "{object}");
    for table in tables(0).iter().chain(tables(1)) {
        assert_eq!(table["both_bytes"], 2 * table["bytes"].as_u64().unwrap());
        assert!(table["compile_ms"].as_f64().unwrap() > 0.0, "{table}");
    }
    let said =
        rib(&["stats", "-"], b"default via 192.0.2.1 dev eth0\n10.0.0.0/8 dev eth1\nblackhole 10.1.0.0/16\n");
    assert!(said.out.contains("compiled to 3 next hops of the file: 5 ranges of addresses"), "{}", said.out);
}

/// Both copies of both families' tables say what the routes say, before, after and without random changes.
#[test]
fn check_compares_the_tables_with_the_routes() {
    let said = rib(&["check", "-", "--json"], &DUMP);
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{}", said.out);
    let object = &objects(&said)[0];
    assert_eq!(
        (&object["good"], &object["routes"], &object["changes"]),
        (&true.into(), &2.into(), &Value::Null)
    );
    let found: Vec<String> = object["tables"]
        .as_array()
        .unwrap()
        .iter()
        .map(|table| format!("{} {} {} {}", table["family"], table["copy"], table["routes"], table["ranges"]))
        .collect();
    let expected = ["IPv4", "IPv6", "IPv4", "IPv6"].iter().zip(["active", "active", "passive", "passive"]);
    let expected: Vec<String> =
        expected.map(|(family, copy)| format!("\"{family}\" \"{copy}\" 1 3")).collect();
    assert_eq!(found, expected);
    let digest = |object: &Value, place: usize| object["tables"][place]["digest"].clone();
    assert_eq!(digest(object, 0), digest(object, 2));
    assert_ne!(digest(object, 0), digest(object, 1));
    // -4 is for IPv4 only; the digest depends on nothing else.
    let only = &objects(&rib(&["check", "-", "--json", "-4"], &DUMP))[0];
    assert_eq!((only["tables"].as_array().unwrap().len(), digest(only, 0)), (2, digest(object, 0)));

    let said = rib(&["check", "-"], TABLE.as_bytes());
    assert!(
        said.out.starts_with("4 routes to 64 next hops, drawn by a hash of the origin, loaded"),
        "{}",
        said.out
    );
    assert_eq!(said.out.lines().filter(|line| line.ends_with("  ok")).count(), 2, "{}", said.out);
    let said = rib(&["check", "-"], b"");
    assert_eq!((said.code, said.out.as_str()), (0, "there are no routes in '-'\n"));
    let said = rib(&["check", "-"], b"10.0.0.0/8 via 192.0.2.1 dev eth0\n2001:db8::/32 dev eth0\n");
    assert!(said.out.starts_with("2 routes to 2 next hops of the file"), "{}", said.out);
}

#[test]
fn check_changes_the_table_and_takes_it_back() {
    let check = |seed: &str| {
        let said = rib(&["check", "-", "--changes", "3000", "--seed", seed, "--json"], TABLE.as_bytes());
        assert_eq!(said.code, 0, "{}{}", said.out, said.err);
        objects(&said).remove(0)
    };
    let object = check("1");
    let tables = object["tables"].as_array().unwrap();
    let stages: Vec<&str> = tables.iter().map(|table| table["stage"].as_str().unwrap()).collect();
    assert_eq!(stages, ["loaded", "loaded", "changed", "changed", "taken back", "taken back"]);
    let digest = |place: usize| tables[place]["digest"].as_str().unwrap();
    assert_eq!((digest(0), digest(2)), (digest(4), digest(3)));
    assert_ne!(digest(0), digest(2));
    let changes = &object["changes"];
    let number = |key: &str| changes[key].as_u64().unwrap();
    assert!(number("withdrawn") > 0 && number("announced") > 0 && number("changed") > 0, "{changes}");
    assert_eq!(number("refused"), 0);
    // The same seed makes the same changes, another one others.
    assert_eq!(check("1")["tables"], object["tables"]);
    assert_ne!(check("2")["tables"][2]["digest"], object["tables"][2]["digest"]);
    let said = rib(&["check", "-", "--changes", "100"], TABLE.as_bytes());
    assert!(said.out.contains(" changes (") && said.out.contains("\ntaken back in "), "{}", said.out);
}

/// A dump of one peer (AS 64496), one IPv4 and one IPv6 route; RFC 6396.
#[rustfmt::skip]
const DUMP: [u8; 135] = [
    // Header: time, TABLE_DUMP_V2, PEER_INDEX_TABLE, length 21.
    0x65, 0x53, 0xf1, 0, 0, 13, 0, 1, 0, 0, 0, 21,
    192, 0, 2, 255, 0, 0, 0, 1, 2, 192, 0, 2, 1, 192, 0, 2, 1, 0, 0, 0xfb, 0xf0,
    // RIB_IPV4_UNICAST, length 42: 192.0.2.0/24, one entry: ORIGIN, AS_PATH 64496 64500, NEXT_HOP.
    0x65, 0x53, 0xf1, 0, 0, 13, 0, 2, 0, 0, 0, 42,
    0, 0, 0, 0, 24, 192, 0, 2, 0, 1, 0, 0, 0x65, 0x53, 0xf0, 0, 0, 24,
    0x40, 1, 1, 0, 0x40, 2, 10, 2, 2, 0, 0, 0xfb, 0xf0, 0, 0, 0xfb, 0xf4, 0x40, 3, 4, 192, 0, 2, 1,
    // RIB_IPV6_UNICAST, length 36: 2001:db8::/32, one entry: ORIGIN, AS_PATH 64496 64501.
    0x65, 0x53, 0xf1, 0, 0, 13, 0, 4, 0, 0, 0, 36,
    0, 0, 0, 1, 32, 0x20, 1, 0x0d, 0xb8, 0, 1, 0, 0, 0x65, 0x53, 0xf0, 0, 0, 17,
    0x40, 1, 1, 0, 0x40, 2, 10, 2, 2, 0, 0, 0xfb, 0xf0, 0, 0, 0xfb, 0xf5,
];

#[test]
fn an_mrt_dump_becomes_a_table_of_text() {
    let said = rib(&["show", "-"], &DUMP);
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{}", said.out);
    assert_eq!(said.out, "192.0.2.0/24 64500\n2001:db8::/32 64501\n");
    let file = TestFile::new("dump", &DUMP);
    let text = TestFile::new("text", rib(&["show", file.path(), "-6"], b"").out.as_bytes());
    assert_eq!(rib(&["diff", file.path(), text.path(), "-6"], b"").code, 0);
    // Broken off.
    let said = rib(&["show", "-"], &DUMP[..DUMP.len() - 1]);
    assert_eq!((said.code, said.out.as_str()), (0, "192.0.2.0/24 64500\n"));
    assert_eq!(
        said.err,
        "<stdin>: record 3 at byte 87: the file ends 47 bytes into it; it has 48 or more\n\
         <stdin>: 1 bad record, 1 good route\n"
    );
    let said = rib(&["show", "-", "--strict"], &DUMP[..DUMP.len() - 1]);
    assert_eq!((said.code, said.out.as_str()), (1, ""));
}

#[test]
fn diff_says_what_changed() {
    let (old, new) = (TestFile::new("old", TABLE.as_bytes()), TABLE.replace("64501", "65000"));
    let new = format!("{}172.16.0.0/12 1\n", new.replace("192.0.2.0/24 64503\n", ""));
    let said = rib(&["diff", old.path(), "-"], new.as_bytes());
    assert_eq!(said.code, 1, "{}", said.err);
    assert_eq!(
        said.out,
        "~ 10.9.0.0/16 64501 -> 65000\n+ 172.16.0.0/12 1\n- 192.0.2.0/24 64503\n\
         1 added, 1 removed, 1 changed, 2 the same\n"
    );
    let said = rib(&["diff", old.path(), "-", "--json"], new.as_bytes());
    let objects = objects(&said);
    assert_eq!(objects.len(), 4);
    assert_eq!((&objects[0]["change"], &objects[0]["new"]["origin"]), (&"changed".into(), &65000.into()));
    assert_eq!((&objects[3]["added"], &objects[3]["same"]), (&1.into(), &2.into()));
    let said = rib(&["diff", old.path(), "-"], TABLE.as_bytes());
    assert_eq!((said.code, said.out.as_str()), (0, "0 added, 0 removed, 0 changed, 4 the same\n"));
    let said = rib(&["diff", "-", old.path()], b"10.0.0.0/8 via 192.0.2.1 dev eth0\n");
    assert_eq!((said.code, said.out.as_str()), (2, ""));
    assert!(said.err.contains("nothing to compare"), "{}", said.err);
    for trouble in [["-", "-"], [old.path(), "/no/such/file"]] {
        assert_eq!(rib(&["diff", trouble[0], trouble[1]], b"").code, 2);
    }
    let was = TestFile::new("was", b"default via 192.0.2.1 dev eth0 proto static\n10.0.0.0/8 dev eth1\n");
    let said = rib(
        &["diff", was.path(), "-"],
        b"default via 192.0.2.1 dev eth0 proto dhcp\n10.0.0.0/8 dev eth2 metric 5\n",
    );
    assert_eq!(
        said.out,
        "~ 10.0.0.0/8 dev eth1 -> dev eth2 metric 5\n0 added, 0 removed, 1 changed, 1 the same\n"
    );
}

#[test]
fn synth_grows_and_samples() {
    let output = TestFile::new("grown.gz", b"");
    let said = rib(&["synth", "-", "--routes", "1000", "--output", output.path()], TABLE.as_bytes());
    assert_eq!((said.code, said.out.as_str()), (0, ""), "{}", said.err);
    let said = rib(&["stats", output.path(), "--json"], b"");
    let object = &objects(&said)[0];
    assert_eq!((&object["routes"], &object["bad"]), (&1000.into(), &0.into()));
    assert_eq!(object["families"][0]["lengths"]["24"], 998);
    // Inside 10.0.0.0/8 and at times 10.9.0.0/16.
    assert_eq!(object["families"][0]["depth"], 2);
    let once = rib(&["synth", "-", "--routes", "3", "--seed", "5"], TABLE.as_bytes());
    assert_eq!(once.out.lines().count(), 3);
    assert_eq!(once.out, rib(&["synth", "-", "--routes", "3", "--seed", "5"], TABLE.as_bytes()).out);
    let said = rib(&["synth", "-", "--routes", "9"], b"2001:db8::/32 1\n");
    assert_eq!(said.out.lines().filter(|line| line.contains("/48 ")).count(), 8);
    let said = rib(&["synth", "-", "--routes", "9"], b"10.0.0.0/22 1\n");
    assert_eq!((said.code, said.out.as_str()), (1, ""));
    assert!(said.err.contains("room for 5 routes"), "{}", said.err);
    assert_eq!(rib(&["synth", "-", "--routes", "9"], &DUMP).code, 1);
    assert_eq!(rib(&["synth", "-", "--routes", "9", "-4"], &DUMP).code, 1);
}

/// The tables that come with the project, whole.
#[test]
fn the_tables_of_the_project() {
    let data = |name: &str| {
        let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../../data", name].iter().collect();
        path.to_str().unwrap().to_owned()
    };
    let said = rib(&["stats", &data("rib-v4.txt.gz"), "--json"], b"");
    let object = &objects(&said)[0];
    assert_eq!((&object["routes"], &object["bad"]), (&564_579.into(), &1.into()));
    assert!(said.err.contains("line 543742: 215.0.0.0/16 comes twice"), "{}", said.err);
    let said = rib(&["stats", &data("rib-v6.txt.gz"), "--json", "--strict"], b"");
    let object = &objects(&said)[0];
    assert_eq!((&object["routes"], &object["families"][0]["family"]), (&166_385.into(), &"IPv6".into()));
    assert_eq!(
        rib(&["show", &data("rib-v6.txt.gz"), "2001:4860:4860::8888"], b"").out,
        "2001:4860:4840::/42 15169\n"
    );
    let said = rib(&["check", &data("rib-v6.txt.gz"), "--changes", "5000", "--json"], b"");
    let object = &objects(&said)[0];
    assert_eq!((said.code, &object["good"]), (0, &true.into()), "{object}");
    assert!(object["tables"][0]["lookups"].as_u64().unwrap() > 500_000, "{object}");
}
