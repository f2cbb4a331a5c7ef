//! Benches of workers and of whole clusters as a person meets them: which figures they print, and that these add up.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::process::Command;

/// Exit code, standard output, standard error.
struct Said {
    code: i32,
    out: String,
    err: String,
}

/// Runs the program in the project's folder.
fn lab(arguments: &[&str]) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_brickway-lab"));
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let output = command.args(arguments).output().unwrap();
    Said {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

#[test]
fn wrong_usage() {
    for arguments in [&["no-such-command"][..], &["bench"], &["demo", "--seconds", "0"]] {
        let said = lab(arguments);
        assert_eq!(said.code, 2, "{arguments:?}: {}", said.err);
    }
}

/// What more workers bring, in a figure for each case.
#[test]
fn scaling_prints_its_figures() {
    let arguments = "bench scaling --workload minimal --workers 1,2 --ports 1,2 --runs 1 --seconds 0.05 --dests 64 --json";
    let said = lab(&arguments.split(' ').collect::<Vec<_>>());
    assert_eq!(said.code, 0, "{}", said.err);
    let objects: Vec<serde_json::Value> =
        said.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let value = |case: &str, metric: &str| {
        let found = objects.iter().find(|object| object["case"] == case && object["metric"] == metric);
        found
            .and_then(|object| object["value"].as_f64())
            .unwrap_or_else(|| panic!("{case} {metric}: {}", said.out))
    };
    for case in [
        "parallel/workers=1",
        "parallel/workers=2",
        "parallel/workers=2/ports=2",
        "pipeline/workers=2",
        "serial/workers=1",
        "serial/workers=2",
    ] {
        assert!(value(case, "mpps") > 0.0 && value(case, "share_of_ideal") > 0.0, "{}", said.out);
    }
    let said = lab(&["bench", "scaling", "--workers", "0"]);
    assert_eq!(said.code, 1);
    assert!(said.err.contains("1 to 256"), "{}", said.err);
    let said = lab(&["bench", "scaling", "--ports", "0"]);
    assert!(said.code == 1 && said.err.contains("--ports 0 is out of range"), "{}", said.err);
}

/// The figures of a bench that printed JSON, by case and metric.
fn figures(arguments: &str) -> std::collections::BTreeMap<(String, String), f64> {
    let said = lab(&arguments.split(' ').collect::<Vec<_>>());
    assert_eq!(said.code, 0, "{}", said.err);
    let figure = |line: &str| {
        let object: serde_json::Value = serde_json::from_str(line).unwrap();
        let text = |key: &str| object[key].as_str().unwrap().to_owned();
        ((text("case"), text("metric")), object["value"].as_f64().unwrap())
    };
    // The first line says what the figures are of.
    assert!(
        said.out.starts_with("{\"bench\":") && !said.out.lines().next().unwrap().contains("metric"),
        "{}",
        said.out
    );
    said.out.lines().skip(1).map(figure).collect()
}

/// Each kind of packet and each mixture has its figures. The bench fails where a router does otherwise than the routes say.
#[test]
fn mixed_traffic_is_measured_beside_its_parts() {
    let folder = std::env::temp_dir().join(format!("brickway-mixed-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let (table, table6) = (folder.join("4.txt"), folder.join("6.txt"));
    std::fs::write(&table, "198.51.0.0/16 1\n198.51.100.0/24 2\n203.0.113.0/24 3\n").unwrap();
    std::fs::write(&table6, "2001:db8::/32 1\n2001:db8:7::/48 2\n").unwrap();
    let arguments = format!(
        "bench mixed --dests 200 --runs 1 --seconds 0.02 --json --table {} --table6 {}",
        table.display(),
        table6.display()
    );
    let figures = figures(&arguments);
    std::fs::remove_dir_all(&folder).unwrap();
    for case in ["ipv4", "ipv6", "options", "expired", "tagged", "options=1%", "tagged=50%", "all"] {
        for metric in ["mpps", "cycles_per_packet", "of_its_parts"] {
            let key = (case.to_owned(), metric.to_owned());
            assert!(figures.get(&key).is_some_and(|value| *value > 0.0), "{key:?}: {figures:?}");
        }
    }
}

/// Nodes of a cluster lose nothing, and their packets pass as many nodes as their ways have.
#[test]
fn a_cluster_of_four_on_one_cpu_adds_up() {
    let table = std::env::temp_dir().join(format!("brickway-cluster-{}.txt", std::process::id()));
    let rows: String = (0..200).map(|number| format!("{}.0.0.0/8 {number}\n", 11 + number % 100)).collect();
    std::fs::write(&table, rows).unwrap();
    let arguments = format!(
        "bench cluster --nodes 4 --cpus 1 --dests 300 --runs 1 --seconds 0.05 --json --table {}",
        table.display()
    );
    let figures = figures(&arguments);
    std::fs::remove_file(&table).unwrap();
    let value = |case: &str, metric: &str| {
        let key = (format!("nodes=4/{case}"), metric.to_owned());
        *figures.get(&key).unwrap_or_else(|| panic!("{key:?}: {figures:?}"))
    };
    assert_eq!((value("apart", "local"), value("apart", "passes_per_packet")), (100.0, 1.0));
    for traffic in ["uniform", "neighbour"] {
        for mode in ["direct-vlb", "classic-vlb", "single-path"] {
            let case = format!("{traffic}/{mode}");
            assert_eq!(value(&case, "lost"), 0.0, "{case}");
            let [local, direct, relayed] = ["local", "direct", "relayed"].map(|way| value(&case, way));
            assert!((local + direct + relayed - 100.0).abs() < 0.1, "{case}");
            let passes = (local + 2.0 * direct + 3.0 * relayed) / 100.0;
            // Packets on their way when counting begins and ends are few.
            assert!((passes - value(&case, "passes_per_packet")).abs() < 0.3, "{case}: {figures:?}");
            assert!(value(&case, "mpps") > 0.0 && value(&case, "speedup") > 0.0, "{case}");
        }
    }
    assert_eq!(value("neighbour/single-path", "direct"), 100.0);
    assert_eq!(value("neighbour/classic-vlb", "relayed"), 100.0);
    for (arguments, text) in
        [("--nodes 0", "1 to 32"), ("--modes fast", "direct-vlb, direct-vlb-others, classic-vlb")]
    {
        let said = lab(&format!("bench cluster {arguments}").split(' ').collect::<Vec<_>>());
        assert_eq!(said.code, 2);
        assert!(said.err.contains(text), "{}", said.err);
    }
}

/// The graph around a script is that of the router, which has to run in the bench too.
#[test]
fn scripts_are_measured_beside_elements() {
    let figures = figures("bench lua --burst 64 --runs 1 --seconds 0.01 --json");
    for way in ["elements", "lua"] {
        let cycles = figures.get(&(format!("router/1-1/{way}"), "cycles_per_packet".to_owned()));
        assert!(cycles.is_some_and(|cycles| *cycles > 1.0), "{figures:?}");
    }
}
