//! `brickway capture`, `flows`, `trace` and `extcap` on a drop-in router between two hosts whose links forward in the kernel.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod netns;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use netns::router::{PROGRAM, between_hosts, start, warm_up};
use netns::{Network, Running, eventually};
use rustix::process::Signal;
use serde_json::Value;

/// A router, and those who ask it.
struct Bed {
    network: Network,
    socket: String,
    router: Running,
}

impl Bed {
    fn new(options: &str) -> Self {
        let network = between_hosts();
        let socket = network.folder.file("socket");
        let router = start(&network, &format!("{options} --socket {socket}"));
        warm_up(&network, "a", &["10.0.2.2"]);
        Self { network, socket, router }
    }

    /// Starts a command and waits until it has begun.
    fn begin(&self, words: &str) -> Running {
        let running = self.network.start("r", &format!("{PROGRAM} {words} --socket {}", self.socket));
        running.wait_until(words, || running.printed().contains("Ctrl-C ends it"));
        running
    }

    fn ask(&self, words: &str) -> (bool, String) {
        self.network.run("r", &format!("{PROGRAM} {words} --socket {}", self.socket))
    }

    fn ping(&self, words: &str) {
        self.network.run("a", &format!("ping -n -c 3 -i 0.02 -W 1 {words}"));
    }

    fn path(&self, port: &str) -> String {
        let (_, text) = self.ask(&format!("show ports {port} --json"));
        serde_json::from_str::<Value>(text.trim()).unwrap()["path"].as_str().unwrap().to_owned()
    }
}

/// Lines that a program printed, but for messages.
fn lines(running: &Running) -> Vec<String> {
    let text = running.printed();
    text.lines().filter(|line| !line.starts_with("brickway: ")).map(str::to_owned).collect()
}

/// Waits until so many lines are there, ends the program, and returns them.
fn finish(running: &Running, count: usize) -> Vec<String> {
    assert!(eventually(|| lines(running).len() >= count), "{}", running.printed());
    assert_eq!(running.interrupt(), 0, "{}", running.printed());
    lines(running)
}

/// A host that leaves checksums and segments to a card that is not there.
fn leaves_work_to_a_card(bed: &Bed) {
    bed.network.run("a", "ethtool -K eth0 tx on tso on gso on");
}

#[test]
fn what_linux_forwards_is_captured_too() {
    if !netns::is_root() {
        return;
    }
    // A program of XDP does not see such packets whole.
    let bed = Bed::new("eth1?mode=generic eth2?mode=generic");
    leaves_work_to_a_card(&bed);
    let capture = bed.begin("capture eth1 tcp dst port 5201");
    let server = bed.network.start("b", "iperf3 -s");
    let mut sent = String::new();
    let is_done = eventually(|| {
        // The server may not listen yet.
        let (is_done, text) = bed.network.run("a", "timeout 20 iperf3 -c 10.0.2.2 -n 20M --json");
        sent = text;
        is_done && sent.contains("sum_received")
    });
    assert!(is_done, "{sent}{}", server.printed());
    // Who sends breaks off what is on its way at the end.
    let received =
        serde_json::from_str::<Value>(&sent).unwrap()["end"]["sum_received"]["bytes"].as_u64().unwrap();
    assert!(received > 10 << 20, "{sent}");
    let bytes = || -> u64 {
        let lines = lines(&capture);
        let length = |line: &String| line.rsplit_once(" bytes")?.0.rsplit_once(", ")?.1.parse::<u64>().ok();
        lines.iter().filter(|line| line.contains(" eth1 in ")).filter_map(length).sum()
    };
    // Merged frames have one header for many packets.
    let is_whole = eventually(|| bytes() >= received);
    capture.interrupt();
    let messages = || {
        capture.printed().lines().filter(|line| line.starts_with("brickway: ")).collect::<Vec<_>>().join("\n")
    };
    assert!(is_whole, "{} of {received} bytes\n{}", bytes(), messages());
    assert!(lines(&capture).iter().any(|line| line.ends_with(" bytes left to Linux")));
    let said = capture.printed();
    assert!(said.contains(", 0 lost") && !said.contains("not captured"), "{said}");
}

#[test]
fn a_packet_that_a_worker_hands_to_linux_is_captured_once() {
    if !netns::is_root() {
        return;
    }
    for options in ["eth1 eth2", "eth1 eth2 --driver xdp", "eth1 eth2 --driver af_xdp"] {
        let bed = Bed::new(options);
        let capture = bed.begin("capture eth1 icmp");
        // A TTL that runs out in the router, and packets to the router.
        bed.ping("-t 1 10.0.2.2");
        bed.ping("10.0.1.1");
        let mut seen: Vec<String> = Vec::new();
        for line in finish(&capture, 12) {
            let what = ["echo request", "echo reply", "time exceeded"];
            let what = what.iter().find(|what| line.contains(*what)).unwrap_or_else(|| panic!("{line}"));
            let direction = if line.contains(" eth1 in ") { "in" } else { "out" };
            let by = line.split_once(" bytes").unwrap().1;
            seen.push(format!("{direction} {what}{by}"));
        }
        seen.sort();
        let expected = [
            "in echo request",
            "in echo request left to Linux",
            "out echo reply sent by Linux",
            "out time exceeded sent by Linux",
        ];
        let expected: Vec<_> = expected.iter().flat_map(|line| [*line; 3]).collect();
        assert_eq!(seen, expected, "{options}");
    }
}

#[test]
fn of_many_packets_that_workers_hand_to_linux_none_is_captured_twice() {
    const COUNT: u32 = 6_000;
    if !netns::is_root() {
        return;
    }
    let bed = Bed::new("eth1 eth2 --driver xdp");
    let capture = bed.begin("capture eth1 udp port 5555 --json -s 64");
    let socket = bed.network.udp_socket("a", "10.0.1.2:0");
    socket.set_ttl(1).unwrap();
    for number in 0..COUNT {
        // An answer of the router's, that the TTL has run out, is an error of the next call.
        let _ = socket.send_to(&number.to_be_bytes(), "10.0.2.2:5555");
        if number % 32 == 0 {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    let seen = || -> Vec<Value> {
        let lines = lines(&capture);
        let rows = lines.iter().map(|line| serde_json::from_str::<Value>(line).unwrap());
        rows.filter(|row| row["kind"] == "packet" && row["direction"] == "in").collect()
    };
    let sent = |rows: &[Value]| -> BTreeSet<String> {
        rows.iter().map(|row| row["data"].as_str().unwrap()[84..92].to_owned()).collect()
    };
    // Of some the call failed instead.
    assert!(eventually(|| seen().len() as u32 > COUNT / 3), "{}", seen().len());
    assert_eq!(capture.interrupt(), 0);
    let rows = seen();
    let twice = rows.len() - sent(&rows).len();
    assert_eq!(twice, 0, "of {}", rows.len());
    for pair in rows.windows(2) {
        assert!(pair[0]["time_ns"].as_u64() <= pair[1]["time_ns"].as_u64(), "in the order of time: {pair:?}");
    }
}

#[test]
fn what_a_capture_cannot_see_is_said() {
    if !netns::is_root() {
        return;
    }
    let bed = Bed::new("eth1 eth2 --driver af_packet");
    leaves_work_to_a_card(&bed);
    let mut said = String::new();
    let is_said = eventually(|| {
        let capture = bed.begin("capture eth1 tcp");
        let _server = bed.network.start("b", "iperf3 -s -1");
        // Counts come to the client some times a second; what the last ones lack another capture has.
        bed.network.run("a", "timeout 5 iperf3 -c 10.0.2.2 -t 2");
        assert_eq!(capture.interrupt(), 0, "{}", capture.printed());
        said = capture.printed();
        said.contains("eth1: not captured, as Linux has them: ")
            && said.contains("packets that came in meanwhile (longer than MTU or frame), ")
            && said.contains("`tcpdump -i eth1` sees such packets")
    });
    assert!(is_said, "{said}");
}

#[test]
fn a_ping_is_seen_on_both_ports_in_both_directions_although_the_kernel_forwards() {
    if !netns::is_root() {
        return;
    }
    let bed = Bed::new("eth1 eth2");
    let before = bed.path("eth1");
    assert!(before.starts_with("kernel"), "{before}");
    let capture = bed.begin("capture all icmp");
    assert_eq!(bed.path("eth1"), "workers: its packets are captured");
    bed.ping("10.0.2.2");
    let lines = finish(&capture, 12);
    assert_eq!(lines.len(), 12, "{lines:#?}");
    for (place, what, ttl) in [
        ("eth1 in ", "10.0.1.2 > 10.0.2.2 ICMP echo request", 64),
        ("eth2 out", "10.0.1.2 > 10.0.2.2 ICMP echo request", 63),
        ("eth2 in ", "10.0.2.2 > 10.0.1.2 ICMP echo reply", 64),
        ("eth1 out", "10.0.2.2 > 10.0.1.2 ICMP echo reply", 63),
    ] {
        let of_kind = |line: &&String| {
            line.contains(place) && line.contains(what) && line.contains(&format!("ttl {ttl}, 98 bytes"))
        };
        assert_eq!(lines.iter().filter(of_kind).count(), 3, "{place} {what}: {lines:#?}");
    }
    assert!(capture.printed().contains("12 packets captured, 0 lost"), "{}", capture.printed());
    assert!(eventually(|| bed.path("eth1") == before), "{}", bed.path("eth1"));
    assert_eq!(bed.router.interrupt(), 0, "{}", bed.router.printed());
}

#[test]
fn a_filter_selects_a_count_ends_it_and_a_port_alone_leaves_the_kernel() {
    if !netns::is_root() {
        return;
    }
    let bed = Bed::new("eth1 eth2");
    let capture = bed.begin("capture eth1 icmp[0] == 8 and dst host 10.0.2.2 -c 2 --json");
    assert!(bed.path("eth2").starts_with("kernel"), "{}", bed.path("eth2"));
    assert_eq!(bed.path("eth1"), "workers: its packets are captured");
    bed.ping("10.0.2.2");
    assert_eq!(capture.wait(testbed::DEADLINE), Some(0), "{}", capture.printed());
    let rows: Vec<Value> = lines(&capture).iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), 3, "{rows:#?}");
    for row in &rows[..2] {
        assert_eq!((row["interface"].as_str(), row["direction"].as_str()), (Some("eth1"), Some("in")));
        // The first bytes are the router's address.
        assert!(row["data"].as_str().unwrap().starts_with("020000000101020000000102"), "{row}");
    }
    assert_eq!(rows[2]["kind"], "counts");
    for (words, problem) in [
        ("capture eth9", "no port and no element 'eth9'"),
        ("capture all port eighty", "filter 'port eighty'"),
        ("trace 1 --from eth9", "no port 'eth9'"),
    ] {
        let (is_done, text) = bed.ask(words);
        assert!(!is_done && text.contains(problem), "{words}: {text}");
    }
    let others: Vec<Running> = (0..4).map(|_| bed.begin("capture drops")).collect();
    let (_, text) = bed.ask("capture");
    assert!(text.contains("4 captures and traces run already"), "{text}");
    drop(others);
    // Those whose clients were killed end too.
    let capture = eventually(|| {
        let words = format!("{PROGRAM} capture all icmp -c 1 --socket {}", bed.socket);
        let capture = bed.network.start("r", &words);
        eventually(|| capture.printed().contains("Ctrl-C ends it") || capture.ended().is_some());
        bed.ping("10.0.2.2");
        capture.wait(testbed::DEADLINE) == Some(0)
    });
    assert!(capture, "the four still run");
}

#[test]
fn drops_have_their_element_and_reason_and_a_reload_ends_captures() {
    if !netns::is_root() {
        return;
    }
    let network = between_hosts();
    let socket = network.folder.file("socket");
    let text = format!(
        "[[port]]\nname = \"eth1\"\n[[port]]\nname = \"eth2\"\n[reverse_path]\nmode = \"strict\"\n[control]\nsocket = \"{socket}\"\n"
    );
    let settings = network.folder.write("brickway.toml", text);
    let router = start(&network, &format!("--config {settings}"));
    warm_up(&network, "a", &["10.0.2.2"]);
    let bed = Bed { network, socket, router };
    let capture = bed.begin("capture drops icmp");
    bed.network.ip("a", "addr add 10.9.9.9/32 dev eth0");
    bed.ping("-I 10.9.9.9 10.0.2.2");
    bed.ping("10.0.2.2");
    let lines = finish(&capture, 3);
    assert_eq!(lines.len(), 3, "{lines:#?}");
    for line in &lines {
        assert!(line.contains(" drops ") && line.contains("10.9.9.9 > 10.0.2.2 ICMP echo request"), "{line}");
        assert!(line.contains("dropped by ") && line.contains("no route back"), "{line}");
    }
    let capture = bed.begin("capture all icmp");
    let trace = bed.begin("trace 5 icmp");
    let (_, text) = bed.ask("reload");
    for running in [&capture, &trace] {
        assert_eq!(running.wait(testbed::DEADLINE), Some(1), "reload {text}: {}", running.printed());
        let printed = running.printed();
        assert!(printed.contains("has read its settings or its configuration again"), "{printed}");
    }
    warm_up(&bed.network, "a", &["10.0.2.2"]);
}

#[test]
fn a_file_is_read_by_tcpdump_and_has_interfaces_directions_and_losses_of_a_slow_reader() {
    if !netns::is_root() {
        return;
    }
    let bed = Bed::new("eth1 eth2");
    let file = bed.network.folder.file("capture.pcapng");
    let capture = bed.begin(&format!("capture all icmp -w {file}"));
    capture.signal(Signal::STOP);
    let (_, text) = bed.network.run("a", "ping -n -q -f -c 8000 10.0.2.2");
    assert!(text.contains("8000 received"), "a slow reader costs no packet: {text}");
    capture.signal(Signal::CONT);
    let mut text = String::new();
    // All that the rings held has come when the counts stand still, which the file does not say; two looks will do.
    let is_read = eventually(|| {
        let before = std::mem::replace(&mut text, bed.network.run("r", &format!("tcpdump -nr {file}")).1);
        text.lines().count() > 1_000 && text.lines().count() == before.lines().count()
    });
    assert!(is_read, "{text}");
    assert_eq!(capture.interrupt(), 0);
    let printed = capture.printed();
    let number = |before: &str| {
        let words: Vec<&str> = printed.split_whitespace().collect();
        let at = words.windows(2).position(|pair| pair[1].trim_end_matches(',') == before).unwrap();
        words[at].parse::<u64>().unwrap()
    };
    let (packets, lost) = (number("packets"), number("lost"));
    assert!(packets > 0 && lost > 0 && packets + lost <= 4 * 8_000, "{printed}");
    let (_, text) = bed.network.run("r", &format!("tcpdump -nr {file} icmp"));
    let read = text.lines().filter(|line| line.contains("ICMP echo")).count() as u64;
    assert_eq!(read, packets, "{text}");
    if !Path::new("/usr/bin/tshark").exists() {
        println!("left out: the fields of the file; 'apt-get install tshark' has what reads them");
        return;
    }
    let fields =
        "-T fields -e frame.interface_name -e frame.packet_flags_direction -e frame.comment -e ip.ttl";
    let (_, text) = bed.network.run("r", &format!("tshark -r {file} -c 8 {fields}"));
    let lines: BTreeSet<Vec<&str>> =
        text.lines().filter(|line| line.starts_with("eth")).map(|line| line.split('\t').collect()).collect();
    for (port, direction, ttl, verdict) in [
        ("eth1", "1", "64", "passed"),
        ("eth2", "2", "63", "sent"),
        ("eth2", "1", "64", "passed"),
        ("eth1", "2", "63", "sent"),
    ] {
        let is_one = |line: &&Vec<&str>| {
            let has_direction = line[1].trim_start_matches("0x").trim_start_matches('0') == direction;
            line[0] == port && has_direction && line[2].contains(verdict) && line[3] == ttl
        };
        assert!(lines.iter().any(|line| is_one(&line)), "{port} {direction} {ttl}: {text}");
    }
}

#[test]
fn a_trace_says_what_each_element_did_and_where_the_packet_ended() {
    if !netns::is_root() {
        return;
    }
    let bed = Bed::new("eth1 eth2");
    let trace = bed.begin("trace 1 icmp --from eth1");
    bed.ping("10.0.2.2");
    assert_eq!(trace.wait(testbed::DEADLINE), Some(0), "{}", trace.printed());
    let text = trace.printed();
    for part in [
        "packet 1: 10.0.1.2 > 10.0.2.2 ICMP echo request",
        ":: FromDevice [0]",
        "paint 1",
        "14 bytes stripped",
        "TTL 64 -> 63",
        "14 bytes put in front, to 02:00:00:00:02:02, from 02:00:00:00:02:01",
        "sent by eth2",
    ] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    // To the slow thread and to Linux, which answers.
    let trace = bed.begin("trace 1 icmp --json");
    bed.ping("-t 1 10.0.2.2");
    assert_eq!(trace.wait(testbed::DEADLINE), Some(0), "{}", trace.printed());
    let rows: Vec<Value> = lines(&trace).iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let has = |key: &str, value: &str| rows.iter().any(|row| row[key] == value);
    assert!(has("verdict", "punted") && has("verdict", "sent") && has("class", "Punt"), "{rows:#?}");
    let steps: Vec<u64> = rows.iter().map(|row| row["step"].as_u64().unwrap()).collect();
    assert_eq!(steps, (0..rows.len() as u64).collect::<Vec<_>>());
    // What leaves the fast path, on its own.
    let capture = bed.begin("capture punts icmp -c 3");
    bed.ping("-t 1 10.0.2.2");
    assert_eq!(capture.wait(testbed::DEADLINE), Some(0), "{}", capture.printed());
    assert!(lines(&capture).iter().all(|line| line.contains("punted by")), "{}", capture.printed());
}

#[test]
fn wireshark_lists_the_ports_and_captures_by_them() {
    if !netns::is_root() {
        return;
    }
    let bed = Bed::new("eth1 eth2");
    let (_, text) = bed.ask("extcap --extcap-interfaces --extcap-version=4.0");
    for part in
        ["extcap {version=", "{value=brickway-eth1}", "{value=brickway-eth2}", "{value=brickway-drops}"]
    {
        assert!(text.contains(part), "no {part} in {text}");
    }
    assert!(
        bed.ask("extcap --extcap-dlts --extcap-interface brickway-eth1")
            .1
            .contains("{number=1}{name=EN10MB}")
    );
    assert!(
        bed.ask("extcap --extcap-config --extcap-interface brickway-eth1").1.contains("{call=--snaplen}")
    );
    let (_, text) = bed.ask("extcap --extcap-interface brickway-eth1 --extcap-capture-filter nonsense");
    assert!(text.contains("filter 'nonsense'"), "{text}");
    if !Path::new("/usr/bin/tshark").exists() {
        println!("left out: Wireshark's own part; 'apt-get install tshark' has it");
        return;
    }
    // A folder of Wireshark's with the link that the help describes, to a router at the usual socket.
    assert_eq!(bed.router.interrupt(), 0);
    let router = start(&bed.network, "eth1 eth2");
    warm_up(&bed.network, "a", &["10.0.2.2"]);
    let folder = bed.network.folder.path().join("extcap");
    // To root Wireshark has one folder only, in the place of which this one stands for its own eyes.
    let (_, text) = bed.network.run("r", "tshark -G folders");
    // Wireshark 4.4 has "Global Extcap path" beside "Personal Extcap path"; older ones have one.
    let path = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let theirs =
        path("Global Extcap path:").or_else(|| path("Extcap path:")).unwrap_or_else(|| panic!("{text}"));
    let script = format!("mount --bind {} {theirs}\nexec tshark \"$@\"\n", folder.display());
    let script = bed.network.folder.write("tshark.sh", script);
    let tshark = |words: &str| format!("unshare -m sh -e {script} {words}");
    std::fs::create_dir_all(&folder).unwrap();
    std::os::unix::fs::symlink(PROGRAM, folder.join("brickway-extcap")).unwrap();
    let (_, text) = bed.network.run("r", &tshark("-D"));
    assert!(text.contains("brickway-eth1 (Brickway: eth1)"), "{text}");
    let capture = bed.network.start("r", &tshark("-l -n -i brickway-eth2 -f icmp -c 4"));
    // Wireshark says that it captures before its program does.
    let has_pinged = eventually(|| {
        bed.ping("10.0.2.2");
        capture.ended().is_some()
    });
    assert!(has_pinged, "{}", capture.printed());
    assert!(capture.printed().contains("Echo (ping) request"), "{}", capture.printed());
    drop(router);
}

#[test]
fn the_flow_that_fills_a_link_comes_first_with_its_share_and_an_idle_port_says_so() {
    if !netns::is_root() {
        return;
    }
    let bed = Bed::new("eth1 eth2");
    bed.network.ip("a", "addr add 10.0.1.3/24 dev eth0");
    warm_up(&bed.network, "a", &["10.0.2.2"]);
    let path = bed.path("eth1");
    assert!(path.starts_with("kernel"), "{path}");
    let (is_done, text) = bed.ask("flows eth1 udp port 9 --for 1s");
    assert!(is_done && text.contains("port eth1: no packet passed in 1."), "{text}");
    let (is_done, text) = bed.ask("flows eth9");
    assert!(!is_done && text.contains("flows: no port 'eth9'; expected one of eth1, eth2"), "{text}");
    // Frames of 1,042 and of 142 bytes, as many of each, and as many replies.
    let small = bed.network.start("a", "ping -n -q -i 0.01 -s 100 10.0.2.2");
    let large = bed.network.start("a", "ping -n -q -i 0.01 -s 1000 -I 10.0.1.3 10.0.2.2");
    let (is_done, text) = bed.ask("flows eth1 icmp --for 3s --json");
    // The kernel forwards on while somebody looks.
    let look = bed.network.start("r", &format!("{PROGRAM} flows eth1 --for 60s --socket {}", bed.socket));
    look.wait_until("a look", || look.printed().contains("sampling for"));
    assert_eq!(bed.path("eth1"), path);
    assert_eq!(look.interrupt(), 0, "{}", look.printed());
    assert!(look.printed().contains("eth1 in"), "{}", look.printed());
    assert!(is_done, "{text}");
    let rows: Vec<Value> = (text.lines().filter(|line| line.starts_with('{')))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of_way =
        |direction: &str| rows.iter().filter(|row| row["direction"] == direction).collect::<Vec<_>>();
    for (direction, key) in [("in", "source"), ("out", "destination")] {
        let flows = of_way(direction);
        assert_eq!(flows.len(), 2, "{text}");
        assert_eq!((&flows[0][key], &flows[1][key]), (&"10.0.1.3".into(), &"10.0.1.2".into()), "{text}");
        let number = |row: &Value, key: &str| row[key].as_f64().unwrap();
        let sum = number(flows[0], "share") + number(flows[1], "share");
        // Beside them there is ARP at most.
        assert!((0.95..=1.0 + 1e-9).contains(&sum) && number(flows[0], "share") > 0.7, "{text}");
        // The length that was counted is the frame's.
        let bytes = number(flows[0], "bits_per_second") / number(flows[0], "packets_per_second") / 8.0;
        assert!((bytes - 1_042.0).abs() < 1e-6, "{text}");
    }
    assert_eq!((&rows[rows.len() - 1]["one_in"], &rows[rows.len() - 1]["lost"]), (&1.into(), &0.into()));
    // What a filter leaves out counts for the share.
    let (_, text) = bed.ask("flows eth1 src host 10.0.1.2 --for 1s -n 5");
    let line = text.lines().find(|line| line.contains("eth1 in")).unwrap_or_else(|| panic!("{text}"));
    assert!(line.contains("ICMP 10.0.1.2 > 10.0.2.2"), "{text}");
    let share: f64 = line.split('%').next().unwrap().trim().parse().unwrap();
    assert!(share < 30.0 && !text.contains("10.0.1.3"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    drop((small, large));
}
