//! `brickway-lab bench io` and `brickway-lab bench batching` as a person meets them: which figures they print, what they say when
//! something is missing, and that they leave nothing behind. No figure is judged.
//!
//! Cases on veth links need root, testpmd's need dpdk-dev and two CPUs; where that is missing the tests see that it is
//! said.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use packet::{Pool, PoolOptions};
use testbed::Folder;

/// An empty folder for the program's temporary files.
struct Place(Folder);

impl Place {
    fn new() -> Self {
        Self(Folder::new())
    }

    fn bench(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_brickway-lab"));
        command.arg("bench").args(arguments.split_whitespace()).env("TMPDIR", self.0.path());
        command
    }

    /// Files that the program left.
    fn left(&self) -> Vec<PathBuf> {
        fs::read_dir(self.0.path()).unwrap().map(|entry| entry.unwrap().path()).collect()
    }
}

/// Exit code, standard output, standard error.
fn said(command: &mut Command) -> (i32, String, String) {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

/// The first line says what the figures are of.
fn assert_is_setting(out: &str) {
    let first: serde_json::Value = serde_json::from_str(out.lines().next().unwrap()).unwrap();
    assert!(first["setting"]["cpu"].is_string() && first["setting"]["runs"].is_u64(), "{out}");
}

/// Case and metric of every figure. Rates, costs and times are positive, shares are shares.
fn figures(bench: &str, out: &str) -> BTreeSet<(String, String)> {
    let figure = |line: &str| {
        let object: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(object["bench"], bench, "{line}");
        let (value, unit) = (object["value"].as_f64().unwrap(), object["unit"].as_str().unwrap());
        let is_right = if unit == "%" { (0.0..=100.0).contains(&value) } else { value > 0.0 };
        assert!(is_right, "{line}");
        (object["case"].as_str().unwrap().to_owned(), object["metric"].as_str().unwrap().to_owned())
    };
    assert_is_setting(out);
    out.lines().skip(1).map(figure).collect()
}

fn expected(cases: &[&str], metrics: &[&str]) -> BTreeSet<(String, String)> {
    let pair = |case: &&str| metrics.iter().map(|metric| (case.to_string(), metric.to_string())).collect();
    cases.iter().flat_map(|case| -> Vec<(String, String)> { pair(case) }).collect()
}

const RATE: [&str; 2] = ["mpps", "cycles_per_packet"];

const ON_VETH: [&str; 5] =
    ["mpps", "cycles_per_packet", "cpu_ns_per_packet", "softirq_percent", "loss_percent"];

/// Benches that move frames run one at a time: each goes as fast as it can, and our pools take free huge
/// pages, also those that another bench has reserved for DPDK.
static MACHINE: Mutex<()> = Mutex::new(());

#[test]
fn memory() {
    let _turn = MACHINE.lock();
    let place = Place::new();
    let bench = "io --only memory/minimal/,memory/route-1-1 --runs 1 --seconds 0.02";
    let (code, out, err) = said(&mut place.bench(&format!("{bench} --json")));
    assert_eq!(code, 0, "{err}");
    assert_eq!(
        figures("io", &out),
        expected(&["memory/minimal/brickway", "memory/route-1-1/brickway"], &RATE)
    );
    let (code, out, err) = said(&mut place.bench(bench));
    assert_eq!(code, 0, "{err}");
    for text in ["64-byte frames", "Mpps", "cycles/packet", "memory/route-1-1/brickway"] {
        assert!(out.contains(text), "no '{text}' in\n{out}");
    }
    assert!(place.left().is_empty(), "{:?}", place.left());
}

#[test]
fn the_form_of_hot_loops_can_be_chosen() {
    let _turn = MACHINE.lock();
    let place = Place::new();
    let bench = "io --only memory/route-1-1 --runs 1 --seconds 0.02";
    let (code, out, err) = said(place.bench(bench).env("BRICKWAY_CPU", "scalar"));
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("(scalar)"), "{out}");
    let (code, _, err) = said(place.bench(bench).env("BRICKWAY_CPU", "sse9"));
    assert_eq!(code, 1);
    assert!(err.contains("BRICKWAY_CPU: expected scalar") && err.contains("'sse9'"), "{err}");
}

#[test]
fn a_grown_table() {
    let _turn = MACHINE.lock();
    let place = Place::new();
    let table = place.0.path().join("table.txt");
    let rows: String =
        (0..2000).map(|row| format!("{}.{}.0.0/16 {row}\n", 11 + row / 250, row % 250)).collect();
    fs::write(&table, rows).unwrap();
    let bench =
        "io --only memory/minimal-256k-4096,memory/route-256k-4096 --runs 1 --seconds 0.02 --json --table";
    let (code, out, err) = said(place.bench(bench).arg(&table));
    assert_eq!(code, 0, "{err}");
    let cases = ["memory/minimal-256k-4096/brickway", "memory/route-256k-4096/brickway"];
    assert_eq!(figures("io", &out), expected(&cases, &RATE));
    let (code, _, err) = said(place.bench(bench).arg("/no/such"));
    assert_eq!(code, 1);
    assert!(err.contains("cannot read the table '/no/such'"), "{err}");
}

#[test]
fn testpmd() {
    let _turn = (MACHINE.lock(), testbed::turn("/sys/kernel/mm/hugepages"));
    let place = Place::new();
    let bench = "io --only minimal/testpmd --runs 1 --seconds 0.05 --json";
    let (code, out, err) = said(&mut place.bench(bench));
    if err.contains("left out") {
        assert!(err.contains("apt-get install dpdk-dev") || err.contains("two CPUs"), "{err}");
        return;
    }
    assert_eq!(code, 0, "{err}");
    let cases = ["net_pcap/minimal/testpmd", "net_null/minimal/testpmd"];
    assert_eq!(figures("io", &out), expected(&cases, &RATE));
    assert!(place.left().is_empty(), "{:?}", place.left());
}

/// Free huge pages that nobody was promised.
fn free_pages() -> u64 {
    let count = |name: &str| -> u64 {
        let path = format!("/sys/kernel/mm/hugepages/hugepages-2048kB/{name}");
        fs::read_to_string(path).unwrap().trim().parse().unwrap()
    };
    count("free_hugepages").saturating_sub(count("resv_hugepages"))
}

/// A router that starts beside a bench takes pages that this has reserved for DPDK.
#[test]
fn pages_that_others_take_are_reserved_again() {
    let _turn = (MACHINE.lock(), testbed::turn("/sys/kernel/mm/hugepages"));
    let place = Place::new();
    let has_ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let others = scope.spawn(|| {
            let mut pools = Vec::new();
            while !has_ended.load(Ordering::Relaxed) {
                if pools.len() < 3 && free_pages() >= 100 {
                    pools.extend(Pool::new(PoolOptions { frames: 80_000, ..PoolOptions::default() }));
                }
                std::thread::sleep(Duration::from_millis(2));
            }
            pools.iter().filter(|pool| pool.memory().is_huge()).count()
        });
        let bench = "io --only net_null/minimal/testpmd --runs 1 --seconds 0.05 --json";
        let (code, _, err) = said(&mut place.bench(bench));
        has_ended.store(true, Ordering::Relaxed);
        let taken = others.join().unwrap();
        if err.contains("left out") || err.contains("slows it down") {
            println!("skipped: DPDK has no huge pages here: {err}");
            return;
        }
        assert_eq!(code, 0, "{taken} pools of others: {err}");
        assert!(taken > 0, "nobody took pages: {err}");
    });
}

#[test]
fn l3fwd() {
    let _turn = (MACHINE.lock(), testbed::turn("/sys/kernel/mm/hugepages"));
    let place = Place::new();
    let bench = "io --only route-1-1/l3fwd-fib --runs 1 --seconds 0.05 --json";
    let (code, out, err) = said(&mut place.bench(bench));
    if err.contains("left out") {
        assert!(err.contains("make bench-peers") || err.contains("two CPUs"), "{err}");
        return;
    }
    assert_eq!(code, 0, "{err}");
    assert_eq!(figures("io", &out), expected(&["net_pcap/route-1-1/l3fwd-fib"], &RATE));
    assert!(place.left().is_empty(), "{:?}", place.left());
}

#[test]
fn what_is_missing_is_said() {
    let _turn = MACHINE.lock();
    let place = Place::new();
    let mut bench = place.bench("io --only minimal/testpmd,memory/minimal/ --runs 1 --seconds 0.02 --json");
    let (code, out, err) = said(bench.env("PATH", place.0.path()));
    assert_eq!(code, 0, "{err}");
    assert_eq!(figures("io", &out), expected(&["memory/minimal/brickway"], &RATE));
    let reason =
        "left out: net_pcap/minimal/testpmd, net_null/minimal/testpmd\n  dpdk-testpmd is not installed";
    assert!(err.contains(reason) && err.contains("apt-get install dpdk-dev"), "{err}");
    let (code, out, err) = said(place.bench("io --only minimal/testpmd").env("PATH", place.0.path()));
    assert_eq!(code, 1, "{out}");
    assert!(err.contains("none of the cases can be measured here"), "{err}");
    let (code, _, err) = said(place.bench("io --only veth --runs 1").env("PATH", place.0.path()));
    assert_eq!(code, 1);
    assert!(err.contains("is not installed") || err.contains("root"), "{err}");
    assert!(place.left().is_empty(), "{:?}", place.left());
}

#[test]
fn veth() {
    if !testbed::is_root() {
        return;
    }
    let _turn = MACHINE.lock();
    let place = Place::new();
    let bench = "io --only veth/forward-1-1/kernel,veth/redirect-1-1,af_packet --runs 1 --seconds 0.2 --json";
    let (code, out, err) = said(&mut place.bench(bench));
    if err.contains("need a CPU each") {
        return;
    }
    assert_eq!(code, 0, "{err}");
    let cases = [
        "af_packet/minimal/brickway",
        "af_packet/route-1-1/brickway",
        "veth/forward-1-1/kernel",
        "veth/redirect-1-1/kernel-xdp",
    ];
    let mut wanted = expected(&cases, &ON_VETH);
    // The kernel has no process.
    wanted.extend(expected(&cases[..2], &["engine_ns_per_packet"]));
    assert_eq!(figures("io", &out), wanted);
    assert!(place.left().is_empty(), "{:?}", place.left());
}

/// Tables of 2,000 routes in the place of the real ones: all engines read them from Linux, in both families.
#[test]
fn by_linux_routes() {
    if !testbed::is_root() {
        return;
    }
    let _turn = MACHINE.lock();
    let place = Place::new();
    let table = |name: &str, row: &dyn Fn(u32) -> String| {
        let path = place.0.path().join(name);
        fs::write(&path, (0..2000).map(row).collect::<String>()).unwrap();
        path
    };
    let ipv4 = table("ipv4", &|row| format!("{}.{}.0.0/16 {row}\n", 11 + row / 250, row % 250));
    let ipv6 = table("ipv6", &|row| format!("2400:{row:x}::/32 {row}\n"));
    let mut cases = vec![
        "veth/forward-full-4096/kernel",
        "veth/forward6-full-4096/kernel",
        "veth/redirect6-full-4096/kernel-xdp",
        "veth/forward-full-4096/xdp-forward",
        "af_xdp/forward6-full-4096/brickway",
        "xdp-generic/forward-full-4096/brickway",
        "xdp/listed-full-4096/brickway",
        "xdp/listed6-full-4096/brickway",
    ];
    let bench = format!("io --only {} --runs 1 --seconds 0.2 --json", cases.join(","));
    let (code, out, err) = said(place.bench(&bench).arg("--table").arg(&ipv4).arg("--table6").arg(&ipv6));
    if err.contains("need a CPU each") {
        return;
    }
    assert_eq!(code, 0, "{err}");
    cases.retain(|case| !err.lines().any(|line| line.contains("left out") && line.contains(case)));
    assert!(cases.len() >= 3, "{err}");
    let mut figures = figures("io", &out);
    // A router that forwards in the kernel may take no time itself.
    figures.retain(|(_, metric)| metric != "engine_ns_per_packet");
    assert_eq!(figures, expected(&cases, &ON_VETH));
    let mut left = place.left();
    left.retain(|path| *path != ipv4 && *path != ipv6);
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn an_interrupted_bench_leaves_nothing() {
    if !testbed::is_root() {
        return;
    }
    let _turn = MACHINE.lock();
    let place = Place::new();
    let mut child = place
        .bench("io --only veth/ --runs 1000")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mine = format!("brickway-{}-", child.id());
    let has_network = || testbed::namespaces().iter().any(|name| name.starts_with(&mine));
    let begin = Instant::now();
    while testbed::namespaces().iter().filter(|name| name.starts_with(&mine)).count() < 3 {
        if child.try_wait().unwrap().is_some() || begin.elapsed() > Duration::from_secs(60) {
            let _ = child.kill();
            let err = String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap();
            assert!(err.contains("need a CPU each"), "{err}");
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(500));
    let id = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains("interrupted"), "{err}");
    assert!(!has_network());
    assert!(place.left().is_empty(), "{:?}", place.left());
}

#[test]
fn batching() {
    let _turn = MACHINE.lock();
    let place = Place::new();
    let bench = "batching --drivers memory --rx 1,32 --tx 8,256 --runs 1 --seconds 0.01";
    let (code, out, err) = said(&mut place.bench(&format!("{bench} --json")));
    assert_eq!(code, 0, "{err}");
    let cases = ["memory/rx=1/tx=8", "memory/rx=1/tx=256", "memory/rx=32/tx=8", "memory/rx=32/tx=256"];
    let metrics = ["mpps", "latency_median_ns", "latency_p99_ns"];
    assert_eq!(figures("batching", &out), expected(&cases, &metrics));
    let (code, out, err) = said(&mut place.bench(bench));
    assert_eq!(code, 0, "{err}");
    for text in ["memory: Mpps", "memory: latency in ns, median / 99th percentile", "tx 256", "receive burst"]
    {
        assert!(out.contains(text), "no '{text}' in\n{out}");
    }
    assert!(place.left().is_empty(), "{:?}", place.left());
}

#[test]
fn mistakes() {
    let place = Place::new();
    for (arguments, texts) in [
        ("io --only quux", ["--only quux", "net_pcap/route-1m-65536/brickway"]),
        ("io --burst 257", ["--burst 257", "1 to 256"]),
        ("io --size 20", ["--size 20", "60 to 1514"]),
        ("io --runs 0", ["--runs 0", "1 to 1000"]),
        ("io --seconds 0", ["--seconds 0", "0.01 to 60"]),
        ("batching --rx 0", ["--rx 0", "1 to 256"]),
        ("batching --tx 1,300", ["--tx 300", "1 to 256"]),
        ("batching --size 2000", ["--size 2000", "60 to 1514"]),
        ("batching --runs 0", ["--runs 0", "1 to 1000"]),
        ("batching --seconds 61", ["--seconds 61", "0.001 to 60"]),
    ] {
        let (code, out, err) = said(&mut place.bench(arguments));
        assert_eq!((code, out.as_str()), (1, ""), "{arguments}: {err}");
        assert!(texts.iter().all(|text| err.contains(text)), "{arguments}: {err}");
    }
    let (code, _, err) = said(&mut place.bench("batching --drivers floppy"));
    assert_eq!(code, 2);
    assert!(err.contains("floppy") && err.contains("net_pcap"), "{err}");
}
