//! `brickway-lab bench fib` as a person meets it: which figures it prints, what it says when DPDK is not there, and that
//! it leaves nothing behind. The tables are small ones of the test's own; no figure is judged.
//!
//! Where libdpdk is installed its tables are measured, too, and must agree with ours. Where it is not, that part of
//! the test has nothing to do.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use testbed::Folder;

/// A folder with the two tables, and an empty one for the program's temporary files.
struct Place(Folder);

impl Place {
    fn new() -> Self {
        let folder = Folder::new();
        let path = folder.path();
        fs::create_dir_all(path.join("data")).unwrap();
        fs::create_dir_all(path.join("tmp")).unwrap();
        let mut ipv4 = String::from("0.0.0.0/1 1\n255.255.255.255/32 2\n");
        let mut ipv6 = String::from("2000::/3 1\n");
        for number in 0..200 {
            ipv4 += &format!("10.{number}.0.0/16 {number}\n10.{number}.7.64/26 {}\n", number + 1000);
            ipv6 +=
                &format!("2001:db8:{number:x}::/48 {number}\n2001:db8:{number:x}:7::/64 {}\n", number + 1000);
        }
        fs::write(path.join("data/rib-v4.txt.gz"), ipv4).unwrap();
        fs::write(path.join("data/rib-v6.txt.gz"), ipv6).unwrap();
        Self(folder)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_brickway-lab"));
        command.args(["bench", "fib", "--data"]).arg(self.0.path().join("data")).args(arguments);
        command.env("TMPDIR", self.0.path().join("tmp"));
        command
    }

    /// Files that the program left.
    fn left(&self) -> Vec<PathBuf> {
        fs::read_dir(self.0.path().join("tmp")).unwrap().map(|entry| entry.unwrap().path()).collect()
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

/// Case and metric of every figure; each is positive.
fn figures(out: &str) -> BTreeSet<(String, String)> {
    let figure = |line: &str| {
        let object: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(object["bench"], "fib", "{line}");
        assert!(object["value"].as_f64().unwrap() >= 0.0 && object["unit"].is_string(), "{line}");
        (object["case"].as_str().unwrap().to_owned(), object["metric"].as_str().unwrap().to_owned())
    };
    assert_is_setting(out);
    out.lines().skip(1).map(figure).collect()
}

fn has_dpdk() -> bool {
    let found = Command::new("pkg-config").args(["--exists", "libdpdk"]).status();
    found.is_ok_and(|status| status.success()) && Command::new("cc").arg("--version").output().is_ok()
}

/// What there must be of an engine.
fn expect_engine(found: &BTreeSet<(String, String)>, table: &str, addresses: &str, engine: &str) {
    let looked_up = format!("{table}/{addresses}/{engine}");
    let loaded = format!("{table}/{engine}");
    for (case, metric) in [
        (&looked_up, "mlps"),
        (&looked_up, "single_mlps"),
        (&loaded, "load_s"),
        (&loaded, "memory_mb"),
        (&loaded, "heap_mb"),
        (&loaded, "idle_updates_per_s"),
    ] {
        assert!(found.contains(&(case.clone(), metric.to_owned())), "no {metric} of {case} in {found:?}");
    }
}

/// What there must be of an engine of ours beside that.
fn expect_worker(found: &BTreeSet<(String, String)>, case: &str) {
    for metric in [
        "memory_both_mb",
        "updates_per_s",
        "loaded_mlps",
        "unloaded_mlps",
        "loaded_ratio",
        "paced_updates_per_s",
        "paced_ratio",
        "lost",
        "failover_us",
        "failover_worst_us",
        "failover_published_us",
        "failover_groups_us",
        "failover_groups_worst_us",
        "failover_groups_published_us",
    ] {
        assert!(found.contains(&(case.to_owned(), metric.to_owned())), "no {metric} of {case} in {found:?}");
    }
}

#[test]
fn ours_alone() {
    let place = Place::new();
    let (code, out, err) = said(&mut place.command(&[
        "--tables=v4-real,v6-real",
        "--addresses=hot",
        "--engines=brickway,brickway-xdp",
        "--runs=1",
        "--json",
    ]));
    assert_eq!(code, 0, "{err}");
    let found = figures(&out);
    // The kernel's map takes root.
    let mut engines = vec!["brickway", "brickway-xdp"];
    engines.retain(|engine| testbed::is_root() || *engine == "brickway");
    for (table, engine) in
        ["v4-real", "v6-real"].iter().flat_map(|table| engines.iter().map(move |engine| (table, engine)))
    {
        expect_engine(&found, table, "hot", engine);
        expect_worker(&found, &format!("{table}/{engine}"));
    }
    assert_eq!(err.contains("brickway-xdp is left out"), !testbed::is_root(), "{err}");
    let lost = |line: &&str| line.contains("\"lost\"");
    assert!(out.lines().filter(lost).all(|line| line.contains("\"value\":0.0")), "{out}");
    assert!(
        found.iter().all(|(case, _)| engines.iter().any(|engine| case.ends_with(&format!("/{engine}")))),
        "{out}"
    );
    assert!(place.left().is_empty());
}

#[test]
fn without_dpdk_ours_are_measured_and_one_line_says_how_to_get_it() {
    let place = Place::new();
    let arguments =
        ["--tables=v4-real", "--addresses=inside", "--engines=brickway,rte_fib", "--runs=1", "--json"];
    let (code, out, err) = said(place.command(&arguments).env("PATH", place.0.path().join("tmp")));
    assert_eq!(code, 0, "{err}");
    let told: Vec<&str> = err.lines().filter(|line| line.starts_with("brickway-lab:")).collect();
    assert_eq!(told.len(), 1, "{err}");
    for part in ["pkg-config is not installed", "apt-get install libdpdk-dev pkg-config gcc"] {
        assert!(told[0].contains(part), "no '{part}' in {err}");
    }
    expect_engine(&figures(&out), "v4-real", "inside", "brickway");
    assert!(!out.contains("rte_fib") && place.left().is_empty());
}

/// All that DPDK has gives the next hops of the routes, or the bench would fail; and what it took it gives back.
#[test]
fn beside_dpdk() {
    if !has_dpdk() {
        eprintln!("libdpdk is not installed: nothing to test");
        return;
    }
    let _turn = testbed::turn("/sys/kernel/mm/hugepages");
    let pages = || {
        let count = |name| {
            let text =
                fs::read_to_string(format!("/sys/kernel/mm/hugepages/hugepages-2048kB/{name}")).unwrap();
            text.trim().parse::<u64>().unwrap()
        };
        // Those beyond the total go with the process that still has them.
        count("nr_hugepages").saturating_sub(count("surplus_hugepages"))
    };
    let pages_before = pages();
    let place = Place::new();
    let arguments =
        ["--tables=v4-real,v6-real", "--addresses=inside", "--engines=brickway,rte_fib,rte_lpm", "--runs=1"];
    let (code, out, err) = said(place.command(&arguments).arg("--json"));
    assert_eq!(code, 0, "{err}");
    let found = figures(&out);
    for engine in ["brickway", "rte_fib", "rte_lpm"] {
        expect_engine(&found, "v4-real", "inside", engine);
    }
    for engine in ["brickway", "rte_fib6", "rte_lpm6"] {
        expect_engine(&found, "v6-real", "inside", engine);
    }
    assert!(place.left().is_empty(), "{:?}", place.left());
    assert_eq!(pages(), pages_before, "the number of huge pages is as it was");
    // For people: a line an engine, and columns that end together.
    let (code, out, err) = said(&mut place.command(&arguments));
    assert_eq!(code, 0, "{err}");
    let heading = out.lines().find(|line| line.trim_end().ends_with("ours/best other"));
    let heading = heading.unwrap_or_else(|| panic!("no heading in {out}"));
    let speed = out.lines().find(|line| line.starts_with("inside  mlps")).unwrap();
    assert_eq!(heading.chars().count(), speed.chars().count(), "{out}");
    assert!(out.contains("v4-real: 402 routes") && out.contains("v6-real: 401 routes"), "{out}");
}

/// Processes whose program lies below the folder.
fn processes_of(folder: &Path) -> usize {
    let executables =
        fs::read_dir("/proc").unwrap().filter_map(|entry| fs::read_link(entry.ok()?.path().join("exe")).ok());
    executables.filter(|executable| executable.starts_with(folder)).count()
}

fn wait_until(child: &mut Child, what: &str, mut done: impl FnMut(&mut Child) -> bool) {
    let start = Instant::now();
    while !done(child) {
        if start.elapsed() > Duration::from_secs(60) {
            let _ = child.kill();
            panic!("waited in vain until {what}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn an_interrupted_bench_leaves_nothing() {
    if !has_dpdk() {
        eprintln!("libdpdk is not installed: nothing to test");
        return;
    }
    let _turn = testbed::turn("/sys/kernel/mm/hugepages");
    let place = Place::new();
    let mut child = place
        .command(&["--tables=v4-real", "--addresses=hot", "--engines=rte_fib", "--runs=1000", "--json"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until(&mut child, "the table's process runs", |_| processes_of(place.0.path()) > 0);
    let id = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    wait_until(&mut child, "it ends", |child| child.try_wait().unwrap().is_some());
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains("interrupted"), "{err}");
    assert_eq!(processes_of(place.0.path()), 0);
    assert!(place.left().is_empty(), "{:?}", place.left());
}

#[test]
fn mistakes() {
    let place = Place::new();
    let (code, _, err) = said(&mut place.command(&["--tables=v5-real"]));
    assert_eq!(code, 2);
    assert!(err.contains("v5-real") && err.contains("v4-1m"), "{err}");
    let (code, _, err) = said(&mut place.command(&["--runs=0"]));
    assert_eq!(code, 1);
    assert!(err.contains("--runs 0") && err.contains("1 to 1000"), "{err}");
    let (code, _, err) = said(&mut place.command(&["--batch=0"]));
    assert_eq!(code, 1);
    assert!(err.contains("--batch 0") && err.contains("1 to 1000000"), "{err}");
    let (code, _, err) =
        said(place.command(&["--engines=brickway", "--tables=v4-real"]).args(["--data", "/no/such"]));
    assert_eq!(code, 2, "an option that is given twice: {err}");
    fs::write(place.0.path().join("data/rib-v4.txt.gz"), "nonsense\n").unwrap();
    let (code, _, err) = said(&mut place.command(&["--engines=brickway", "--tables=v4-real"]));
    assert_eq!(code, 1);
    assert!(err.contains("rib-v4.txt.gz") && err.contains("no good row"), "{err}");
    fs::remove_file(place.0.path().join("data/rib-v4.txt.gz")).unwrap();
    let (code, _, err) = said(&mut place.command(&["--engines=brickway", "--tables=v4-real"]));
    assert_eq!(code, 1);
    assert!(err.contains("cannot read") && err.contains("--data"), "{err}");
}
