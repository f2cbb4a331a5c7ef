//! `brickway-lab plan`, `brickway-lab model` and `brickway-lab sim` as people meet them.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::process::Command;

use serde_json::Value;
use testbed::Folder;

/// Exit code, standard output, standard error.
fn lab(arguments: &[&str]) -> (i32, String, String) {
    said_by(env!("CARGO_BIN_EXE_brickway-lab"), arguments)
}

fn said_by(program: &str, arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(program).current_dir("../..").args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

fn rows(out: &str) -> Vec<Value> {
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn the_model_of_a_configuration_names_its_elements_and_a_limit() {
    let folder = Folder::new();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let router = file(
        "router.click",
        "define($OUT b); FromDevice(a) -> Strip(14) -> check :: CheckIPHeader -> half :: RoundRobinSwitch;
         half[0] -> UnstripToMACHeader -> ToDevice($OUT); half[1] -> Discard;",
    );
    let (code, out, err) =
        lab(&["model", "--config", &router, "OUT=c", "--size", "64,128", "--seconds", "0.02", "--json"]);
    assert_eq!(code, 0, "{err}");
    let rows = rows(&out);
    let of = |class: &str| rows.iter().find(|row| row["class"] == class).unwrap();
    let share = |class: &str| of(class)["packets_per_received"].as_f64().unwrap();
    assert!(
        (0.99..1.01).contains(&share("CheckIPHeader")) && (0.45..0.55).contains(&share("ToDevice")),
        "{out}"
    );
    assert!(of("CheckIPHeader")["cycles_per_packet"].as_f64().unwrap() > 0.0);
    let totals: Vec<_> = rows.iter().filter(|row| row["limit"].is_string()).collect();
    assert_eq!((totals.len(), &totals[1]["bytes"]), (2, &128.into()));
    assert!(totals.iter().all(|row| row["measured_cycles_per_packet"].as_f64().unwrap() > 0.0));
    let nowhere = file(
        "nowhere.click",
        "FromDevice(a) -> Strip(14) -> CheckIPHeader -> f :: IPFilter(deny all) -> ToDevice(b);",
    );
    let idle = file("idle.click", "Idle -> ToDevice(b);");
    for (config, problem) in [
        (&nowhere, "nothing of the traffic left by a ToDevice"),
        (&idle, "no FromDevice; expected one"),
        (&"missing.click".to_owned(), "missing.click"),
    ] {
        let (code, _, err) = lab(&["model", "--config", config, "--size", "64", "--seconds", "0.02"]);
        assert!(code == 1 && err.contains(problem), "{config}: {err}");
    }
}

#[test]
fn a_bench_and_a_server_make_a_prediction() {
    let folder = Folder::new();
    let row = |metric: &str, value: u32| {
        format!("{{\"bench\":\"forward\",\"case\":\"dests=1\",\"metric\":\"{metric}\",\"value\":{value}}}\n")
    };
    let bench = folder.file("bench.json");
    let setting = "{\"bench\":\"forward\",\"setting\":{\"cpu\":\"AMD EPYC\",\"runs\":5}}\n".to_owned();
    std::fs::write(&bench, setting + &row("mpps", 10) + &row("cycles_per_packet", 200)).unwrap();
    let here = folder.file("here.toml");
    let (code, server, _) = lab(&["model", "--measure"]);
    assert_eq!(code, 0);
    std::fs::write(&here, &server).unwrap();
    for (server, size) in [("nehalem", "64"), (here.as_str(), "1518")] {
        let (code, out, err) =
            lab(&["model", "--server", server, "--cycles-from", &bench, "--size", size, "--json"]);
        assert_eq!((code, err.as_str()), (0, ""));
        let [row] = &rows(&out)[..] else { panic!("{out}") };
        assert_eq!(row["application"], "forward dests=1");
        assert!(row["packets_per_second"].as_f64().unwrap() > 0.0);
        if server == "nehalem" {
            // Two cards of 12.3 Gb/s, before 8 x 2.8 GHz / 200.
            assert_eq!((&row["limit"], &row["nominal_limit"]), (&"card".into(), &"PCIe".into()));
            assert_eq!(row["bits_per_second"].as_f64().unwrap().round(), 24.6e9);
        }
    }
    let (code, _, err) = lab(&["model", "--server", "nehalem", "--cycles-from", &here]);
    assert_eq!(code, 1);
    assert!(err.contains("here.toml:1: no row of `brickway-lab bench ... --json`"), "{err}");
    for (arguments, explained) in [
        (&["model"][..], "--cycles-from takes"),
        (&["model", "--cycles", "0"], "takes more than 0"),
        (&["model", "--cycles", "9", "--server", "current"], "has no [machine]"),
        (&["model", "--cycles", "9+-1"], "a byte 0 or more"),
        (&["model", "--cycles", "9", "--size", "9"], "64 to 9216"),
        (&["model", "--cycles", "9", "--size", "64", "1518"], "several sizes are --size 64,1518"),
    ] {
        let (code, _, err) = lab(arguments);
        assert_eq!(code, 1);
        assert!(err.contains(explained), "{err}");
    }
    assert!(lab(&["model", "--cycles", "9+x"]).2.contains("as in 150 or 120+0.8"));
    // 32 x 2.5 GHz / (100 + 1000 x 0.5).
    let (_, out, _) = lab(&["model", "--cycles", "100+0.5", "--size", "1000", "--json"]);
    let cpu = &rows(&out)[0]["parts"][0];
    assert_eq!(cpu["packets_per_second"].as_f64().unwrap().round(), (80e9_f64 / 600.0).round());
}

#[test]
fn a_plan_becomes_a_cluster_without_mistakes() {
    let folder = Folder::new();
    let (_, server, _) = lab(&["plan", "--show-server", "faster"]);
    std::fs::write(folder.file("server.toml"), server.replace("ports = 2\nslots", "ports = 1\nslots"))
        .unwrap();
    let (server, out) = (folder.file("server.toml"), folder.file("rb4"));
    let (code, text, err) = lab(&["plan", "--ports", "4", "--server", &server, "--emit", &out]);
    assert_eq!(code, 0, "{text}{err}");
    assert!(text.contains("mesh(4), 6 cables"), "{text}");
    // What is there may have been completed by hand.
    let (code, _, err) = lab(&["plan", "--ports", "4", "--server", &server, "--emit", &out]);
    assert!(code != 0 && err.contains("rb4/cluster.toml' is there already"), "{err}");
    let (code, text, err) =
        said_by(&testbed::program("brickway"), &["cluster", "check", &folder.file("rb4/cluster.toml")]);
    assert_eq!(code, 0, "{text}{err}");
    assert!(text.contains("4 nodes, 4 ports, no mistakes"), "{text}");
    // What the plan asks to be filled in is missing, and nothing else.
    let warnings: Vec<&str> = text.lines().filter(|line| line.starts_with("warning: ")).collect();
    let is_asked_for =
        |line: &&str| line.starts_with("warning: [store] ") || line.contains(": no addresses; ");
    assert!(warnings.len() == 3 + 4 && warnings.iter().all(is_asked_for), "{text}");
    let toml = std::fs::read_to_string(folder.file("rb4/cluster.toml")).unwrap();
    let key = toml.lines().find_map(|line| line.strip_prefix("key_file = \"")?.strip_suffix('"')).unwrap();
    let key = std::path::Path::new(&folder.file("rb4")).join(key);
    std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let (_, text, _) =
        said_by(&testbed::program("brickway"), &["cluster", "check", &folder.file("rb4/cluster.toml")]);
    assert!(text.contains("no node starts on this machine with it") && text.contains("chmod 0600"), "{text}");
}

#[test]
fn the_first_row_of_a_plan_is_one_that_a_clusters_file_can_name() {
    let (code, out, _) = lab(&["plan", "--ports", "32", "--json"]);
    assert_eq!(code, 0, "{out}");
    let plans = rows(&out);
    let possible = plans.iter().filter(|plan| plan["problem"].is_null() && !plan["topology"].is_null());
    let cheapest = possible.map(|plan| plan["price"].as_f64().unwrap()).fold(f64::MAX, f64::min);
    assert_eq!(plans[0]["price"].as_f64().unwrap(), cheapest, "{out}");
    assert_eq!(plans[0]["topology"], "star(32)", "{out}");
}

#[test]
fn impossible_plans_say_what_would_be_possible() {
    let folder = Folder::new();
    for (arguments, right) in [
        (&["plan", "--ports", "5", "--server", "faster"][..], "possible are 4 and 6"),
        (&["plan", "--ports", "4", "--rate", "800G"], "the fastest has 200G"),
        (&["plan", "--ports", "4", "--rate", "10"], "expected a unit, as in 10G"),
        (&["plan", "--ports", "4", "--server", "mine"], "known by name are current, more-nics"),
        (&["plan", "--ports", "2048", "--server", "more-nics", "--emit", &folder.file("x")], "a butterfly"),
        (&["plan", "--ports", "300", "--server", "more-nics", "--emit", &folder.file("x")], "at most 255"),
        (
            &["sim", "--topology", "mesh(4)", "--mode", "fast"],
            "direct-vlb, direct-vlb-others, classic-vlb, single-path",
        ),
        (&["sim", "--fail", "node 9"], "as in 'node 2, 30ms, 60ms'"),
        (&["sim", "--topology", "torus(4, 4)", "--fail", "link 0-5, 1ms"], "no link of their own"),
    ] {
        let (code, _, err) = lab(arguments);
        assert!(code == 1 && err.contains(right), "{arguments:?}: {code} {err}");
    }
    // Input 1 asks for more than its port brings.
    std::fs::write(folder.file("matrix"), "0 .5 .5\n.6 .6 0\n0 0 0\n").unwrap();
    let (code, _, err) = lab(&["sim", "--topology", "mesh(3)", "--matrix", &folder.file("matrix")]);
    assert!(code == 1 && err.contains("input node 1 for 1.200 of R"), "{err}");
}

#[test]
fn interconnects_are_compared_with_what_simulation_shows() {
    let (code, out, _) = lab(&["plan", "--ports", "8", "--compare", "--json"]);
    assert_eq!(code, 0);
    let rows = rows(&out);
    let row = |name: &str| rows.iter().find(|row| row["network"] == name).unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["network"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "mesh",
            "compact(2)",
            "compact(3)",
            "embedded butterfly",
            "2-torus",
            "3-torus",
            "de Bruijn",
            "butterfly"
        ]
    );
    let mesh = row("mesh");
    assert_eq!((&mesh["published"]["link"], &mesh["published"]["links"]), (&0.25.into(), &8.into()));
    assert_eq!((&mesh["ours"]["link"], &mesh["ours"]["links"]), (&0.25.into(), &7.into()));
    assert_eq!(
        (&row("compact(3)")["topology"], &row("compact(3)")["ports"]),
        (&"groups(3)".into(), &12.into())
    );
    assert!(row("butterfly")["sends_simulated"].is_null() && row("butterfly")["ours"]["link"] == 0.5);
    let cube = row("embedded butterfly");
    let sends = cube["sends_simulated"].as_f64().unwrap();
    assert!(cube["sends"] == 3.0 && (2.95..3.6).contains(&sends), "{sends}");
}

#[test]
fn sweeps_are_drawn() {
    let folder = Folder::new();
    let sweep = folder.file("sweep.svg");
    let (code, out, err) = lab(&[
        "sim",
        "--matrix",
        "examples/matrices/one-output.txt,uniform",
        "--delta",
        "0,100",
        "--warm",
        "1",
        "--ms",
        "2",
        "--plot",
        &sweep,
    ]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("  one-output  "), "{out}");
    let drawn = std::fs::read_to_string(&sweep).unwrap();
    for word in ["one-output", "uniform", "delta, ms", "busiest link"] {
        assert!(drawn.contains(word), "{word}");
    }
}

#[test]
fn lengths_of_packets_come_from_a_capture() {
    let folder = Folder::new();
    // A header of little-endian microseconds, and packets of 60, 1,514 and 1,514 bytes of which one is kept.
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
    let mut file = words(&[0xa1b2_c3d4, 2 | 4 << 16, 0, 0, 65_535, 1]);
    for length in [60, 1514, 1514] {
        file.extend(words(&[1, 0, 1, length]));
        file.push(0);
    }
    let path = folder.file("sizes.pcap");
    std::fs::write(&path, file).unwrap();
    let run = |size: &str| {
        lab(&["sim", "--matrix", "uniform", "--size", size, "--warm", "1", "--ms", "5", "--json"])
    };
    let (code, out, err) = run(&path);
    assert_eq!((code, err.contains("error")), (0, false), "{err}");
    let row = &rows(&out)[0];
    // 4 x 10 Gb/s for 6 ms, in packets of 1,029 bytes on average.
    let entered = row["packets"]["entered"].as_f64().unwrap();
    let expected = 4.0 * 10e9 * 6e-3 / 8.0 / ((60.0 + 2.0 * 1514.0) / 3.0);
    assert!((entered / expected - 1.0).abs() < 0.05, "{entered} {expected}");
    let (code, _, err) = run("crates/router/Cargo.toml");
    assert!(code == 1 && err.contains("is not a pcap file"), "{err}");
    assert!(run("long").2.contains("imix, 1 to 65535 bytes, or a pcap file"));
}

#[test]
fn a_permutation_needs_the_second_phase() {
    let (code, out, err) = lab(&[
        "sim",
        "--topology",
        "mesh(8)",
        "--matrix",
        "permutation",
        "--mode",
        "direct-vlb,single-path",
        "--flows",
        "50",
        "--ms",
        "10",
        "--json",
    ]);
    assert_eq!(code, 0, "{err}");
    let delivered: Vec<f64> =
        rows(&out).iter().map(|row| row["delivered_percent"].as_f64().unwrap()).collect();
    assert!(delivered[0] > 95.0, "{delivered:?}");
    // 2R/8 and a twentieth directly, but for those that send to themselves.
    assert!(delivered[1] < 55.0, "{delivered:?}");
    let (_, text, _) =
        lab(&["sim", "--topology", "mesh(4)", "--matrix", "uniform", "--ms", "5", "--fail", "node 1, 21ms"]);
    assert!(text.contains("delivered, %") && text.contains("what broke at 21 ms cost"), "{text}");
}
