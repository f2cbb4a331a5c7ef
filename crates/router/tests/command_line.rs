//! The command line as a person meets it: what the program prints, and its exit codes (0 done, 1 the
//! configuration or the machine does not allow it, 2 wrong usage).

#![allow(clippy::unwrap_used, reason = "a test")]

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Exit code, standard output, standard error.
struct Said {
    code: i32,
    out: String,
    err: String,
}

/// Runs the program with `input` at its standard input.
fn brickway_with(arguments: &[&str], input: &str) -> Said {
    let mut child = Command::new(env!("CARGO_BIN_EXE_brickway"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A program that fails early does not read its input; that is its right.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    Said {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

fn brickway(arguments: &[&str]) -> Said {
    brickway_with(arguments, "")
}

fn example(name: &str) -> String {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../../examples", name].iter().collect();
    path.to_str().unwrap().to_owned()
}

#[test]
fn five_mistakes_give_five_good_errors() {
    let text = "from :: FromDevice(eth0) -> Stripe(14) -> check :: CheckIPHeader;
check -> ttl :: DecIPTTL
    -> [1] lookup :: RadixIPLookup(0.0.0.0/0 0)
    -> Queue(many)
    -> ToDevice(eth1);
ttl[1] -> undeclared;
Idle -> Queue -> Classifier(-) -> Discard;
";
    let said = brickway_with(&["check", "-"], text);
    assert_eq!(said.code, 1, "{}", said.err);
    assert_eq!(said.out, "");
    // Where; what is wrong; the thing itself; what would be right.
    let expected = [
        (1, "unknown element class 'Stripe'", "Stripe(14)", "did you mean 'Strip'?"),
        (3, "'lookup :: RadixIPLookup' has no input 1", "[1] lookup", "it takes 1 input, numbered 0"),
        (4, "While configuring", "Queue(many)", "expected non-negative integer, got 'many'"),
        (6, "undeclared element 'undeclared'", "ttl[1] -> undeclared;", "declare it first"),
        (7, "pull output 0", "Queue -> Classifier", "put an Unqueue between them"),
    ];
    let mut stories: Vec<String> = Vec::new();
    for line in said.err.lines() {
        if line.starts_with("<stdin>:") {
            stories.push(String::new());
        }
        let story = stories.last_mut().unwrap_or_else(|| panic!("it begins with an error:\n{}", said.err));
        *story += line;
        *story += "\n";
    }
    assert_eq!(stories.len(), expected.len(), "{}", said.err);
    for (story, (line, what, thing, right)) in stories.iter().zip(expected) {
        assert!(story.starts_with(&format!("<stdin>:{line}:")), "line {line}: {story}");
        for part in [what, thing, right] {
            assert!(story.contains(part), "no '{part}' in {story}");
        }
    }
}

#[test]
fn a_mistake_has_its_line_and_what_would_be_right() {
    for (text, line, parts) in [
        ("a -> Discard;", 1, vec!["undeclared element 'a'", "declare it first"]),
        ("Idle -> Stripe(1) -> Discard;", 1, vec!["unknown element class 'Stripe'", "did you mean 'Strip'?"]),
        ("\nIdle -> [1] Strip(1) -> Discard;", 2, vec!["has no input 1", "it takes 1 input"]),
        ("Idle -> Queue -> Strip(1) -> Queue -> Discard;", 1, vec!["pull", "push"]),
        ("Idle -> Discard", 0, vec![]),
    ] {
        let said = brickway_with(&["check", "-"], text);
        assert_eq!(said.code, i32::from(line > 0), "{text}: {}", said.err);
        if line > 0 {
            assert!(said.err.starts_with(&format!("<stdin>:{line}:")), "{text}: {}", said.err);
        }
        for part in parts {
            assert!(said.err.contains(part), "{text}: no '{part}' in {}", said.err);
        }
    }
}

#[test]
fn files_that_are_not_there() {
    let said = brickway(&["check", "/no/such/router.click"]);
    assert_eq!(said.code, 1);
    assert!(
        said.err.contains("'/no/such/router.click'") && said.err.contains("No such file"),
        "{}",
        said.err
    );
    let said = brickway(&["run", "/no/such/router.click"]);
    assert_eq!(said.code, 1);
    assert!(said.err.contains("No such file"), "{}", said.err);
    // A folder, and bytes that are not text.
    assert_eq!(brickway(&["check", "/tmp"]).code, 1);
    let said = brickway(&["check", "/bin/true"]);
    assert_eq!(said.code, 1);
    assert!(said.err.contains("not UTF-8"), "{}", said.err);
}

#[test]
fn a_port_that_is_not_there() {
    let said = brickway_with(&["run", "-", "--for", "1"], "FromDevice(no-such0) -> Discard;");
    assert_eq!(said.code, 1);
    // Where, what, and which there are.
    for part in ["<stdin>:1:", "FromDevice@1", "no interface `no-such0`", "there are", "lo"] {
        assert!(said.err.contains(part), "no '{part}' in {}", said.err);
    }
}

#[test]
fn times_that_cannot_be() {
    for (flag, value, right) in [
        ("--for", "-1", "a number of seconds, such as 10"),
        ("--for", "soon", "a number of seconds, such as 10"),
        ("--for", "nan", "a number of seconds, such as 10"),
        ("--stats", "1e-9", "from 0.1 to 86400, or 0 for none"),
        ("--stats", "-1", "from 0.1 to 86400, or 0 for none"),
    ] {
        let said = brickway(&["run", "-", flag, value]);
        assert_eq!(said.code, 2, "{flag} {value}: {}", said.err);
        assert!(said.err.contains(value) && said.err.contains(right), "{flag} {value}: {}", said.err);
    }
}

#[test]
fn wrong_usage() {
    for arguments in
        [&["run"][..], &["no-such-command"], &["check", "x.click", "--no-such-option"], &["bench"]]
    {
        let said = brickway(arguments);
        assert_eq!(said.code, 2, "{arguments:?}: {}", said.err);
        assert!(said.err.contains("error:"), "{arguments:?}: {}", said.err);
    }
    let said = brickway_with(&["check", "-", "NOT-A-PARAMETER"], "");
    assert_eq!(said.code, 2);
    assert!(said.err.contains("NAME=VALUE"), "{}", said.err);
}

#[test]
fn the_manual() {
    let said = brickway(&["help", "DecIPTTL"]);
    assert_eq!(said.code, 0);
    for part in
        ["SYNOPSIS", "DecIPTTL(", "DESCRIPTION", "Drop reasons", "HANDLERS", "SEE ALSO", "ICMPError", "PORTS"]
    {
        assert!(said.out.contains(part), "no '{part}' in {}", said.out);
    }
    assert_eq!(brickway(&["help", "decipttl"]).out, said.out);
    // An alias has the page of its class, behind what sets Click's two apart.
    let said = brickway(&["help", "ThreadSafeQueue"]).out;
    assert!(said.starts_with("ThreadSafeQueue is another name of Queue. In Click "), "{said}");
    assert!(said.ends_with(&brickway(&["help", "Queue"]).out), "{said}");
    // A part of a name leads to those that have it.
    let said = brickway(&["help", "IPTTL"]);
    assert_eq!(said.code, 1);
    assert!(said.err.contains("did you mean DecIPTTL?"), "{}", said.err);
    let said = brickway(&["help", "Nonsense"]);
    assert_eq!(said.code, 1);
    assert!(said.err.contains("'Nonsense'") && said.err.contains("brickway elements"), "{}", said.err);
    let said = brickway(&["help", "run"]);
    assert_eq!(said.code, 0);
    assert!(said.out.contains("--workers"), "{}", said.out);
    let said = brickway(&["help", "show", "ports"]);
    assert!(said.code == 0 && said.out.contains("Usage: brickway show ports"), "{}", said.out);
    let said = brickway(&["help", "show", "prots"]);
    assert!(said.code == 1 && said.err.contains("'brickway show' has no subcommand 'prots'"), "{}", said.err);
}

#[test]
fn mistakes_are_reported_in_words_of_who_made_them() {
    let cluster = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/cluster.toml");
    for words in [&["check", cluster][..], &["run", "--config", cluster]] {
        let said = brickway(words);
        assert_eq!(said.code, 1);
        assert!(said.err.contains("this is a cluster's file; run 'brickway cluster check "), "{}", said.err);
        assert_eq!(said.err.trim().lines().count(), 1, "{}", said.err);
    }
    let router = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/ip-router.click");
    for command in ["check", "run"] {
        let said = brickway(&[command, router, "PROT0=eth1"]);
        assert_eq!(said.code, 1);
        assert!(said.err.contains("has no variable 'PROT0'; expected one of "), "{}", said.err);
    }
}

#[test]
fn a_variable_without_a_value_is_named_where_it_is_a_mistake() {
    let folder = testbed::Folder::new();
    let file = folder.write("x.click", "Idle -> Queue($capacity) -> Discard;\n");
    let said = brickway(&["check", &file]);
    assert!(said.code == 1 && said.err.contains("help: undefined variable '$capacity'"), "{}", said.err);
    let said = brickway(&["check", &file, "capacity=7"]);
    assert!(said.code == 0, "{}", said.err);
}

#[test]
fn files_of_rules_are_checked_and_pipes_are_not_waited_for() {
    let folder = testbed::Folder::new();
    let settings = folder.write("brickway.toml", "[[port]]\nname = \"eth1\"\n[acl]\nfile = \"rules\"\n");
    folder.write("rules", "permit tcp any any\n");
    let said = brickway(&["check", &settings]);
    let warnings = ["denies IPv4's 'fragmentation needed'", "denies IPv6's 'packet too big'"];
    assert!(said.code == 0 && warnings.iter().all(|text| said.out.contains(text)), "{}", said.out);
    let all = folder
        .write("all.toml", "[[port]]\nname = \"eth1\"\n[acl]\nfile = \"rules\"\ndefault = \"permit\"\n");
    let said = brickway(&["check", &all]);
    assert!(said.code == 0 && said.out.contains("warning: the access list denies nothing"), "{}", said.out);
    folder.write("rules", "deny tcp any any\n");
    assert!(!brickway(&["check", &settings]).out.contains("warning"));
    folder.write("rules", "deny tcp any \u{1b}[2J\n".repeat(30));
    let said = brickway(&["check", &settings]);
    assert!(
        said.code == 1 && said.err.contains("rules:1: word 4 is '") && !said.err.contains('\u{1b}'),
        "{}",
        said.err
    );
    assert!(said.err.contains("\n10 more mistakes"), "{}", said.err);
    std::fs::remove_file(folder.file("rules")).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(folder.file("rules")).status().unwrap().success());
    let said = brickway(&["check", &settings]);
    assert!(said.code == 1 && said.err.contains("not a regular file; expected one"), "{}", said.err);
    let pipe = folder.file("pipe.toml");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for words in [&["check", &pipe][..], &["run", "--config", &pipe]] {
        let said = brickway(words);
        assert!(said.code == 1 && said.err.contains("not a regular file; expected one"), "{}", said.err);
    }
}

#[test]
fn the_list_of_elements() {
    let said = brickway(&["elements"]);
    assert_eq!(said.code, 0);
    for class in
        ["ARPQuerier", "CheckIPHeader", "Classifier", "DecIPTTL", "FromDevice", "Punt", "Queue", "Tee"]
    {
        let listed = said.out.lines().any(|line| line.split_whitespace().next() == Some(class));
        assert!(listed, "{class} is not listed:\n{}", said.out);
    }
    let said = brickway(&["elements", "TTL", "--json"]);
    let object: serde_json::Value = serde_json::from_str(said.out.lines().next().unwrap()).unwrap();
    assert_eq!(object["class"], "DecIPTTL");
    assert_eq!(object["ports"], "1/1-2");
    assert_eq!(brickway(&["elements", "no-such-thing"]).code, 1);
    let said = brickway(&["elements", "nat"]);
    assert!(said.out.starts_with("nat:") && said.out.contains("IPRewriter"), "{}", said.out);
    assert!(!said.out.contains("GetIPAddress"), "{}", said.out);
}

/// What `check --flat` prints is a configuration of the same elements and connections.
#[test]
fn flat_text_is_a_configuration() {
    for name in ["ip-router.click", "paper-router.click"] {
        let first = brickway(&["check", &example(name), "--flat"]);
        assert_eq!((first.code, first.err.as_str()), (0, ""), "{name}");
        assert!(!first.out.contains("elementclass"));
        let second = brickway_with(&["check", "-", "--flat"], &first.out);
        assert_eq!(second.code, 0, "{name}: {}", second.err);
        assert_eq!(first.out, second.out, "{name}");
    }
}

#[test]
fn graphviz() {
    let said = brickway(&["check", &example("paper-router.click"), "--dot"]);
    assert_eq!(said.code, 0);
    assert!(said.out.starts_with("digraph") && said.out.trim_end().ends_with('}'), "{}", said.out);
    let listed = brickway(&["check", &example("paper-router.click"), "--json"]);
    // A box for each element, and an arrow for each connection.
    let boxes = said.out.lines().filter(|line| line.contains("[label=")).count();
    assert_eq!(boxes, listed.out.lines().count());
    assert!(said.out.lines().filter(|line| line.contains("->")).count() > boxes);
    // Push is a full arrow head, pull an empty one: from the queues to the ports.
    assert_eq!(said.out.matches("arrowhead=empty").count(), 2);
}

#[test]
fn variables() {
    let said = brickway(&["check", &example("ip-router.click"), "MTU=1234", "PORT2=swp7", "--flat"]);
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.out.contains("IPFragmenter(1234)") && said.out.contains("FromDevice(swp7)"), "{}", said.out);
}

/// A configuration runs without privilege on packets of its own, and says at its end what it did.
#[test]
fn a_run_and_its_summary() {
    let text = r"InfiniteSource(DATA \<45>, LIMIT 5, STOP true) -> c :: CheckIPHeader -> Discard;";
    let said = brickway_with(&["run", "-", "--read", "c.drops"], text);
    assert_eq!(said.code, 0, "{}", said.err);
    let mut lines = said.out.lines();
    assert_eq!((lines.next(), lines.next()), (Some("c.drops:"), Some("5")), "{}", said.out);
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert!(said.out.lines().any(|line| words(line).starts_with(&[
        "c".into(),
        "CheckIPHeader".into(),
        "5".into()
    ])));
    assert!(said.out.lines().any(|line| words(line) == ["5", "c", "tiny", "packet"]), "{}", said.out);
    let said = brickway_with(&["run", "-", "--json"], text);
    let objects: Vec<serde_json::Value> =
        said.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(objects.iter().any(|object| object["drops"]["tiny packet"] == 5), "{}", said.out);
    // Wrong arguments of elements stop it before it begins.
    let said = brickway_with(&["run", "-"], "Idle -> Strip(x) -> Queue(y) -> Discard;");
    assert_eq!(said.code, 1);
    assert!(said.err.contains("got 'x'") && said.err.contains("got 'y'"), "{}", said.err);
}

/// Several workers: who has which queue, and what cannot be.
#[test]
fn workers_and_their_queues() {
    let config = "FromDevice(memory:wk) -> ToDevice(null:wk);";
    let said = brickway_with(&["run", "-", "--workers", "2", "--for", "0.1"], config);
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.out.contains("processed by") && said.out.contains("FromDevice@1 1"), "{}", said.out);
    let said = brickway_with(&["run", "-", "--workers", "2", "--for", "0.1", "--json", "--balance"], config);
    let objects: Vec<serde_json::Value> =
        said.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(objects.iter().any(|object| object["queue"] == 1 && object["worker"] == 1), "{}", said.out);
    for (arguments, text) in [
        (
            &["--workers", "4", "--mode", "pipeline"][..],
            "pipeline takes 2 workers, or a multiple of 3, not 4",
        ),
        (&["--workers", "2", "--balance", "--min-workers", "3"], "--min-workers: at least 3 of 2 workers"),
        (&["--workers", "2", "--balance", "--mode", "pipeline"], "leave out --mode pipeline"),
    ] {
        let said = brickway_with(&[&["run", "-"][..], arguments].concat(), config);
        assert_eq!(said.code, 1, "{arguments:?}");
        assert!(said.err.contains(text), "{arguments:?}: {}", said.err);
    }
    for (arguments, text) in [
        (["--mode", "chain"], "parallel, pipeline or serial"),
        (["--workers", "0"], "expected a whole number from 1 to 256"),
    ] {
        let said = brickway_with(&[&["run", "-"][..], &arguments].concat(), config);
        assert_eq!(said.code, 2);
        assert!(said.err.contains(text), "{}", said.err);
    }
}

/// A file goes through whole, whoever handles its packets, before STOP ends the router; and a port that holds its
/// receivers back does not hold back the one that empties it.
#[test]
fn nothing_of_a_file_is_lost_between_workers() {
    let folder = std::env::temp_dir().join(format!("brickway-files-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (input, output) = (folder.join("in.pcap"), folder.join("out.pcap"));
    let mut writer = ports::PcapWriter::create(&input, ports::Precision::Microseconds).unwrap();
    for number in 0..20_000u32 {
        let mut frame = [0u8; 60];
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[14] = 0x45;
        frame[26..30].copy_from_slice(&(number % 64).to_be_bytes());
        writer.write(0, 60, &frame).unwrap();
    }
    writer.flush().unwrap();
    drop(writer);
    let ports = format!("io=pcap:{}?out={}", input.display(), output.display());
    // Writing a file is slower than reading one; nothing is as fast as null.
    for to in ["ToDevice(null:x)", "ToDevice(io, BLOCKING true)"] {
        let config = format!("from :: FromDevice(io, STOP true) -> to :: {to};");
        for workers in
            [&["--workers", "1"][..], &["--workers", "3"], &["--workers", "2", "--mode", "pipeline"]]
        {
            let arguments = ["run", "-", "--quiet", "--port", &ports, "--read", "to.count", "--for", "30"];
            let said = brickway_with(&[&arguments[..], workers].concat(), &config);
            assert_eq!(said.out.trim(), "to.count:\n20000", "{workers:?} {to}: {}", said.err);
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
    let config = "InfiniteSource(LIMIT 5000, DATA \\<0102030405060708090a0b0c0d0e0f>) -> Queue(8000)
            -> to :: ToDevice(memory:ring?end=1, BLOCKING true);
        FromDevice(memory:ring) -> c :: Counter -> ToDevice(null:x, BLOCKING true);";
    let said = brickway_with(&["run", "-", "--quiet", "--read", "c.count", "--for", "1"], config);
    assert_eq!(said.out.trim(), "c.count:\n5000", "{}", said.err);
}

/// No reader of its messages ends a router or stops a worker: not one that went away, a full disk, or one that reads nothing.
#[test]
fn nobody_reads_the_messages() {
    // Each line is another one, so that none is left out because it is like others.
    let config = "InfiniteSource(DATA \\<45>, LIMIT 50000, STOP true) -> Print(x, TIMESTAMP true)
        -> c :: CheckIPHeader(VERBOSE true) -> Discard;";
    for reader in ["went away", "full disk", "reads nothing"] {
        let (kept, stderr) = match reader {
            "full disk" => (None, Stdio::from(std::fs::File::create("/dev/full").unwrap())),
            _ => {
                let (read, write) = std::io::pipe().unwrap();
                (Some(read).filter(|_| reader == "reads nothing"), Stdio::from(write))
            }
        };
        let mut child = Command::new(env!("CARGO_BIN_EXE_brickway"))
            .args(["run", "-", "--read", "c.drops"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(config.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let out = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0), "{reader}: {out}");
        assert!(out.starts_with("c.drops:\n50000\n"), "{reader}: {out}");
        if reader == "reads nothing" {
            assert!(out.contains(" messages were lost: they came faster than they were read"), "{out}");
        }
        drop(kept);
    }
}

/// What a router prints on standard output does not stop it either.
#[test]
fn nobody_reads_what_a_script_prints() {
    let (kept, stdout) = std::io::pipe().unwrap();
    let config =
        "Idle -> Discard; Script(set n 0, label again, print \"a line that nobody reads, number $n\",
        set n $(add $n 1), goto rest $(eq $(mod $n 500) 0), goto again, label rest, wait 1ms,
        goto again $(lt $n 5000), write stop);";
    let mut child = Command::new(env!("CARGO_BIN_EXE_brickway"))
        .args(["run", "-", "--quiet"])
        .stdin(Stdio::piped())
        .stdout(stdout)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(config.as_bytes()).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    drop(kept);
}

/// A thread that hangs ends the router, which names it: here a worker that writes to a pipe from which nobody reads.
#[test]
fn a_thread_that_hangs_ends_the_router() {
    use std::os::unix::fs::OpenOptionsExt;

    let pipe = std::env::temp_dir().join(format!("brickway-hang-{}", std::process::id()));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let reader = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(&pipe).unwrap();
    let config = format!("InfiniteSource(LENGTH 100) -> ToIPSummaryDump({});", pipe.display());
    let said = brickway_with(&["run", "-", "--for", "120"], &config);
    std::fs::remove_file(&pipe).unwrap();
    drop(reader);
    assert_eq!(said.code, 1, "{}", said.err);
    let fault = "brickway: error: the thread 'worker 0' has not answered for 1.5 s; the router ends";
    assert!(said.err.lines().any(|line| line == fault), "{}", said.err);
}

/// The balancer moves queues of a router at work: with little to do, one worker gets them all and the other rests.
#[test]
fn balancing_moves_queues_while_packets_flow() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_brickway"))
        .args(["run", "-", "--workers", "2", "--balance", "--min-workers", "1", "--for", "120", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let config = "RatedSource(RATE 200) -> ToDevice(memory:balance?end=1);
        from :: FromDevice(memory:balance) -> ToDevice(null:balance);";
    child.stdin.take().unwrap().write_all(config.as_bytes()).unwrap();
    let mut err = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("brickway: balance: ") {
        line.clear();
        assert_ne!(err.read_line(&mut line).unwrap(), 0, "it ended without having moved anything");
    }
    assert_eq!(line, "brickway: balance: from: queue 1 goes to worker 0\n");
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT)
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let out = String::from_utf8(output.stdout).unwrap();
    let objects: Vec<serde_json::Value> =
        out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let queues = objects.iter().filter(|object| object["queue"].is_number());
    let workers: Vec<_> = queues.map(|object| (object["queue"].clone(), object["worker"].clone())).collect();
    assert_eq!(workers, [(0.into(), 0.into()), (1.into(), 0.into())], "{out}");
}

#[test]
fn a_driver_that_no_port_of_a_configuration_takes_is_refused() {
    let said = brickway_with(&["run", "-", "--driver", "xdp"], "FromDevice(null:x) -> Discard;");
    assert_eq!(said.code, 1, "{}", said.err);
    assert!(
        said.err.contains("--driver xdp: no port of - takes it")
            && said.err.contains("FromDevice(af_xdp:eth1)"),
        "{}",
        said.err
    );
    let said = brickway_with(&["run", "-"], "FromDevice(xdp:eth1) -> Discard;");
    assert!(said.err.contains("it is a way of `brickway run PORT...`"), "{}", said.err);
}

#[test]
fn files_of_other_kinds_are_not_taken_for_configurations() {
    let folder = testbed::Folder::new();
    let script = folder.write("mark.lua", "local seen = 0\nfunction process(batch) end\n");
    let list = folder.write("rules.txt", "# of the office\n\n10 deny udp any any port 7\n");
    let broken = folder.write("broken.click", "Idle -> Lua(\"local seen = 0\") -> Discard;");
    for (arguments, expected) in [
        (["check", &script], "is a script in Lua, not a configuration: 'brickway lua "),
        (["run", &script], "is a script in Lua, not a configuration: 'brickway lua "),
        (["check", &list], "has the rules of an access list, not a configuration"),
        (["run", &list], "takes it"),
        (["check", &broken], "no function process(batch), and no loop over brickway.batches()"),
    ] {
        let output =
            std::process::Command::new(env!("CARGO_BIN_EXE_brickway")).args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(expected), "{arguments:?}: {said}");
        assert!(said.trim().lines().count() < 10, "{said}");
    }
}
