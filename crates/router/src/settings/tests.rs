//! Settings from text and command line, and what people read when they are wrong.

use proptest::prelude::*;

use super::*;
use crate::features::acl;
use crate::features::reverse_path::ReversePath;
use crate::features::slow_path::SlowPath;

fn mistakes(text: &str) -> String {
    parse("brickway.toml", text).unwrap_err().render(false)
}

#[test]
fn the_least_file_gives_the_defaults() {
    let settings = parse("x", "[[port]]\nname = \"eth1\"\n").unwrap();
    let expected = Settings { ports: vec![PortSettings::new("eth1")], ..Settings::default() };
    assert_eq!(settings, expected);
    assert_eq!(settings, Settings::of_ports(["eth1"], Driver::Auto).unwrap());
    assert_eq!(settings.ports[0].spec(), "af_xdp:eth1?steer=transit");
}

#[test]
fn every_option_is_read() {
    let text = r#"
        fail = "closed"
        [[port]]
        name = "eth1"
        driver = "af_packet"
        options = "ring=512"
        [[port]]
        name = "up0"
        driver = "dpdk"
        device = "0000:03:00.0"
        [[port]]
        name = "eth2"
        options = "queues=2&steer=all"
        host = "none"
        [workers]
        count = 4
        burst = 0x40
        balance = true
        min = 2
        pin = false
        [tables]
        ipv4 = "rank"
        ipv6 = "linear"
        [slow_path]
        mode = "native"
        [acl]
        file = "/etc/brickway/rules"
        rules = ["deny any 192.0.2.0/24 any", "permit any any any # \"x\""]
        default = "deny"
        [reverse_path]
        mode = "strict"
        [fpm]
        listen = "[::1]:2620"
        users = ["frr", "7"]
        insecure = true
        [beside_linux]
        ignore = ["nat", "firewall"]
        [control]
        socket = "/run/other.sock"
        read_group = "netops"
        write_group = "netadmin"
        [log]
        stats_seconds = 2.5
        [metrics]
        listen = "127.0.0.1:9779"
        [web]
        listen = "0.0.0.0:8779"
        token_file = "/t"
        certificate = "/c"
        key = "/k"
        [sflow]
        collectors = ["192.0.2.1:6343", "[2001:db8::1]:6343"]
        rate = 400
        agent = "2001:db8::2"
        drops = 0
        [ipfix]
        collectors = ["192.0.2.1:4739"]
        idle_seconds = 5
    "#;
    let settings = parse("x", text).unwrap();
    let specs: Vec<String> = settings.ports.iter().map(PortSettings::spec).collect();
    let expected =
        ["af_packet:eth1?steer=transit&ring=512", "dpdk:0000:03:00.0", "af_xdp:eth2?queues=2&steer=all"];
    assert_eq!(specs, expected);
    assert_eq!(settings.ports[1].host, Host::Tap);
    let workers = WorkerSettings { count: 4, burst: 64, balance: true, min: Some(2), pin: false };
    assert_eq!(settings.workers, workers);
    assert_eq!((settings.tables.ipv4.name(), settings.tables.ipv6.name()), ("rank", "linear"));
    let features = &settings.features;
    assert_eq!(
        (features.slow_path.mode, features.reverse_path.mode),
        (SlowPath::Native, ReversePath::Strict)
    );
    assert_eq!((features.acl.rules.len(), features.acl.default), (2, Some(acl::Action::Deny)));
    assert_eq!(settings.general.fail, Fail::Closed);
    let users = Some(vec!["frr".to_owned(), "7".to_owned()]);
    assert_eq!(settings.fpm, FpmSettings { listen: "[::1]:2620".parse().ok(), users, insecure: true });
    assert_eq!(settings.beside_linux.ignore, [Bypass::Nat, Bypass::Firewall]);
    let groups = (settings.control.read_group.as_deref(), settings.control.write_group.as_deref());
    assert_eq!(groups, (Some("netops"), Some("netadmin")));
    assert_eq!(settings.log.stats_seconds, Some(Period(2.5)));
    let [metrics, web] = [settings.metrics.door(), settings.web.door()].map(Option::unwrap);
    assert_eq!((metrics.listen.port(), metrics.token_file, metrics.tls), (9779, None, None));
    assert_eq!((web.token_file, web.tls), (Some("/t".into()), Some(("/c".into(), "/k".into()))));
    // What is printed is read as the same.
    assert_eq!(parse("x", &settings.to_toml()).unwrap(), settings);
    let summary = "\
port  driver                                 Linux sees
eth1  af_packet:eth1?steer=transit&ring=512  the interface itself
up0   dpdk:0000:03:00.0                      a TAP interface up0
eth2  af_xdp:eth2?queues=2&steer=all         nothing

no router     nothing is forwarded between the ports (fail = \"closed\")
workers       4 (balanced, on any CPU, bursts of 64)
tables        IPv4 rank, IPv6 linear
slow path     native
access list   2 rules and those of /etc/brickway/rules, then deny
reverse path  strict
FPM           at [::1]:2620, for everybody
bypasses      nat, firewall
control       /run/other.sock
metrics       at 127.0.0.1:9779
web           at 0.0.0.0:8779
sFlow         one packet of 400 to 192.0.2.1:6343, [2001:db8::1]:6343
IPFIX         one packet of 1000 to 192.0.2.1:4739
";
    assert_eq!(settings.summary(), summary);
}

#[test]
fn the_example_is_made_of_the_options() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/brickway.toml");
    // Set it to write the file again.
    if std::env::var_os("BRICKWAY_UPDATE").is_some() {
        std::fs::write(path, super::example()).unwrap();
    }
    let example = std::fs::read_to_string(path).unwrap();
    assert_eq!(example, super::example(), "BRICKWAY_UPDATE=1 writes it again");
    let plain = parse("examples/brickway.toml", &example).unwrap();
    let defaults = Settings { ports: plain.ports.clone(), ..Settings::default() };
    assert_eq!(plain, defaults, "what is not commented out are the ports");
    // With every `#option = value` uncommented it is a file still.
    let is_option = |line: &&str| line.starts_with('#') && !line.starts_with("# ");
    let all: String = example
        .lines()
        .map(|line| if is_option(&line) { &line[1..] } else { line }.to_owned() + "\n")
        .collect();
    parse("examples/brickway.toml", &all).unwrap_or_else(|mistakes| panic!("{}", mistakes.render(false)));
}

#[test]
fn the_example_shows_each_default() {
    for section in Settings::default().sections() {
        for (option, value) in section.options().iter().zip(section.values()) {
            assert!(value.is_none_or(|value| value == option.example), "{}", option.name());
        }
    }
}

#[test]
fn all_mistakes_are_told_at_once_with_what_would_be_right() {
    let text = "\
[[port]]
name = \"eth1\"
drivr = \"af_xdp\"

[[port]]
name = \"eth1\"
driver = \"xpd\"

[[port]]
name = \"eth2\"
options = \"queus=2\"

[workers]
count = \"four\"
burst = 1000
colour = \"red\"

[reverse_path]
mode = \"loos\"

[fpm]
listen = \"localhost\"

[sloth_path]
";
    let expected = "\
brickway.toml:3: [[port]] has no 'drivr'
    drivr = \"af_xdp\"
    ^^^^^
    help: did you mean 'driver'?
brickway.toml:6: port 'eth1' is there twice
    name = \"eth1\"
           ^^^^^^
    help: each port has a name of its own
brickway.toml:7: driver = \"xpd\": invalid value
    driver = \"xpd\"
             ^^^^^
    help: expected one of \"auto\", \"xdp\", \"af_xdp\", \"af_packet\", \"dpdk\", \"tap\", \"vlan\"
brickway.toml:11: port `af_xdp:eth2?steer=transit&queus=2`: driver `af_xdp` has no option `queus`; did you mean `queues`?
    options = \"queus=2\"
              ^^^^^^^^^
brickway.toml:14: count = \"four\": invalid value
    count = \"four\"
            ^^^^^^
    help: expected a whole number from 1 to 256
brickway.toml:15: burst = 1000: invalid value
    burst = 1000
            ^^^^
    help: expected a whole number from 1 to 256
brickway.toml:16: [workers] has no 'colour'
    colour = \"red\"
    ^^^^^^
    help: expected count, burst, balance, min, pin
brickway.toml:19: mode = \"loos\": invalid value
    mode = \"loos\"
           ^^^^^^
    help: expected one of \"linux\", \"off\", \"loose\", \"strict\"
brickway.toml:22: listen = \"localhost\": invalid value
    listen = \"localhost\"
             ^^^^^^^^^^^
    help: expected an address and a port, as in \"127.0.0.1:2620\"
brickway.toml:24: a settings file has no 'sloth_path'
    [sloth_path]
     ^^^^^^^^^^
    help: did you mean 'slow_path'?
";
    assert_eq!(mistakes(text), expected);
}

#[test]
fn mistakes_of_all_kinds_have_a_line() {
    for (text, parts) in [
        ("", ["brickway.toml:1: there are no ports", "[[port]]"]),
        ("[workers]\ncount = # four\n", ["brickway.toml:2: 'count' has no value", "expected one, as in"]),
        ("[[port]]\nname = 'a'\n[workers\n", ["brickway.toml:3:", "[workers"]),
        ("[port]\nname = 'a'", ["brickway.toml:1: 'port' is not a list", "expected [[port]]"]),
        (
            "workers = 4\n[[port]]\nname = 'a'",
            ["brickway.toml:1: 'workers' is not a section", "expected [workers]"],
        ),
        ("[[port]]\ndriver = 'tap'", ["brickway.toml:1: a port without a name", "name = \"eth1\""]),
        ("[[port]]\nname = 7", ["brickway.toml:2: name = 7: invalid value", "a text in quotes"]),
        ("[[port]]\nname = 'a/b'", ["brickway.toml:2: 'a/b' cannot be an interface's name", "15 characters"]),
        (
            "[[port]]\nname = 'a'\ndriver = 'tap'\nhost = 'interface'",
            ["brickway.toml:4: a port of tap", "\"none\""],
        ),
        ("[[port]]\nname = 'a'\n[workers]\nmin = 2", ["brickway.toml:4: at least 2 of 1", "at most count"]),
        ("[[port]]\nname = 'a'\n[workers]\nbalance = false\nmin = 1", ["brickway.toml:5:", "balance = true"]),
        ("[[port]]\nname = 'a'\n[log]\nstats_seconds = nan", ["brickway.toml:4:", "from 0.1 to 86400"]),
        ("[[port]]\nname = 'a'\n[acl]\nrules = ['a', 1]", ["brickway.toml:4:", "a list of texts"]),
        (
            "[[port]]\nname = 'a'\n[[port]]\nname = 'b'\n[acl]\nrules = [\n'deny any any any in b',\n'deny any any any in c']",
            ["brickway.toml:8: rule 2: no port 'c'", "expected a or b"],
        ),
        (
            "[[port]]\nname = 'a'\n[acl]\nrules = ['5 deny any any any',\n'5 deny tcp any any']",
            ["brickway.toml:5: rule 2: number 5 is that of rule 1 already", "expected a number of its own"],
        ),
        (
            "[[port]]\nname = 'a'\n[beside_linux]\nignore = ['fire']",
            ["brickway.toml:4:", "expected a list of \"firewall\", \"nat\", \"ipsec\""],
        ),
        (
            "[[port]]\nname = 'a'\n[fpm]\nlisten = '192.0.2.1:2620'",
            ["brickway.toml:4: 192.0.2.1:2620 can be reached from other hosts", "insecure = true"],
        ),
        ("[[port]]\nname = 'a'\n[fpm]\nusers = ['frr']", ["brickway.toml:4:", "expected listen"]),
        (
            "[[port]]\nname = 'a'\n[web]\nlisten = '192.0.2.1:80'\ntoken_file = '/t'",
            [
                "brickway.toml:4: 192.0.2.1:80 can be reached from other hosts",
                "token_file, certificate and key",
            ],
        ),
        (
            "[[port]]\nname = 'a'\n[metrics]\nlisten = '127.0.0.1:80'\nkey = '/k'",
            ["brickway.toml:5: key without certificate", "add certificate"],
        ),
        ("[[port]]\nname = 'a'\n[web]\ntoken_file = '/t'", ["brickway.toml:4:", "expected listen"]),
        (
            "[[port]]\nname = 'a'\n[sflow]\ncollectors = ['192.0.2.1:0']",
            ["brickway.toml:4: 192.0.2.1:0 has no port", "as 192.0.2.1:6343"],
        ),
        (
            "[[port]]\nname = 'a'\n[ipfix]\ncollectors = ['collector']",
            ["brickway.toml:4: collectors", "a list of addresses with their ports"],
        ),
    ] {
        for part in parts {
            assert!(mistakes(text).contains(part), "{text}: no '{part}' in {}", mistakes(text));
        }
    }
}

#[test]
fn tables_are_named_or_those_there_are_listed() {
    let with = |driver: &str, tables: &str| {
        format!("[[port]]\nname = \"eth1\"\ndriver = \"{driver}\"\n[tables]\n{tables}\n")
    };
    let text = mistakes(&with("auto", "ipv4 = \"radix\"\nipv6 = \"rank\""));
    for expected in [
        "brickway.toml:5: ipv4 = \"radix\": invalid value",
        "expected one of \"byte24\", \"rank\", \"dir24_8\", \"linear\"",
        "brickway.toml:6: ipv6 = \"rank\": invalid value",
        "expected one of \"range_tree\", \"linear\"",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    // The program in the kernel knows some of them.
    for (tables, name) in [("ipv4 = \"dir24_8\"", "dir24_8"), ("ipv6 = \"linear\"", "linear")] {
        let text = mistakes(&with("xdp", tables));
        let message = format!("brickway.toml:3: driver = \"xdp\": the kernel cannot read the table {name}");
        assert!(text.contains(&message), "{text}");
        let right =
            "expected tables \"byte24\", \"rank\" for IPv4, \"range_tree\" for IPv6, or another driver";
        assert!(text.contains(right), "{text}");
        assert!(
            ["auto", "af_xdp", "af_packet"].iter().all(|driver| parse("x", &with(driver, tables)).is_ok())
        );
    }
    assert!(parse("x", &with("xdp", "ipv4 = \"rank\"")).is_ok());
    let given = flags(&["--ipv4-table", "dir24_8"]).unwrap();
    let mut settings = Settings::of_ports(["eth1"], Driver::Auto).unwrap();
    settings.apply(&given).unwrap();
    assert!(
        settings.summary().contains("tables        IPv4 dir24_8, IPv6 range_tree\n"),
        "{}",
        settings.summary()
    );
    assert!(flags(&["--ipv6-table", "rank"]).unwrap_err().contains("\"range_tree\", \"linear\""));
}

#[test]
fn ports_of_the_command_line() {
    let names = ["eth1", "af_packet:eth2.5?ring=64", "dpdk:0000:03:00.0", "lan=tap:vm0"];
    let ports = Settings::of_ports(names, Driver::AfXdp).unwrap().ports;
    let specs: Vec<String> = ports.iter().map(PortSettings::spec).collect();
    let expected = [
        "af_xdp:eth1?steer=transit&mode=xdp",
        "af_packet:eth2.5?steer=transit&ring=64",
        "dpdk:0000:03:00.0",
        "tap:vm0",
    ];
    assert_eq!(specs, expected);
    assert_eq!(
        (ports[2].name.as_str(), ports[2].host, ports[3].host),
        ("0000-03-00-0", Host::Tap, Host::Tap)
    );
    for (name, part) in [
        ("xpd:eth1", "expected one of auto, xdp, af_xdp, af_packet, dpdk, tap"),
        ("eth1?rin=3", "did you mean `ring`?"),
        ("tap:vm0", "expected another name than its device"),
        ("wan=eth1", "goes by its own name, not 'wan'"),
        ("", "cannot be an interface's name; expected 1 to 15 characters"),
    ] {
        let error = Settings::of_ports([name], Driver::AfXdp).unwrap_err();
        assert!(error.contains(part), "{error}");
    }
    assert!(
        Settings::of_ports(["eth1", "af_packet:eth1"], Driver::AfXdp).unwrap_err().contains("named twice")
    );
}

fn flags(words: &[&str]) -> Result<Flags, String> {
    let command = <Flags as clap::Args>::augment_args(clap::Command::new("x")).no_binary_name(true);
    let matches = command.try_get_matches_from(words).map_err(|error| error.to_string())?;
    <Flags as clap::FromArgMatches>::from_arg_matches(&matches).map_err(|error| error.to_string())
}

#[test]
fn the_command_line_is_above_the_file() {
    let file = "[[port]]\nname = 'a'\n[workers]\ncount = 4\nmin = 3\n[fpm]\nlisten = '127.0.0.1:1'\n[beside_linux]\nignore = ['nat']";
    let mut settings = parse("x", file).unwrap();
    settings.apply(&flags(&[]).unwrap()).unwrap();
    assert_eq!(settings, parse("x", file).unwrap());
    let given =
        ["--workers", "2", "--no-pin", "--socket", "/s", "--ignore", "ipsec,firewall", "--stats", "0"];
    settings.apply(&flags(&given).unwrap()).unwrap();
    assert_eq!(
        settings.workers,
        WorkerSettings { count: 2, min: Some(2), pin: false, ..WorkerSettings::default() }
    );
    assert_eq!((settings.control.socket.clone(), settings.fpm.listen.is_some()), (Some("/s".into()), true));
    // A list has what the file says too.
    assert_eq!(settings.beside_linux.ignore, [Bypass::Nat, Bypass::Ipsec, Bypass::Firewall]);
    assert_eq!(settings.log.stats_seconds, Some(Period(0.0)));
    for (given, expected) in [
        (["--min-workers", "3"], "--min-workers: at least 3 of 2 workers; expected min to be at most count"),
        (
            ["--fpm", "0.0.0.0:2620"],
            "--fpm: 0.0.0.0:2620 can be reached from other hosts, whose users nobody knows; expected an address of this \
             host alone, as 127.0.0.1, or insecure = true in [fpm]",
        ),
    ] {
        assert_eq!(settings.clone().apply(&flags(&given).unwrap()).unwrap_err(), expected);
    }
    for (given, expected) in [
        (["--workers", "0"], "expected a whole number from 1 to 256"),
        (["--stats", "0.01"], "expected a number of seconds from 0.1 to 86400, or 0 for none"),
        (["--burst", "257"], "expected a whole number from 1 to 256"),
        (["--stats", "-1"], "or 0 for none"),
        (["--fpm", "localhost"], "expected an address and a port, as in \"127.0.0.1:2620\""),
        (["--slow-path", "nativ"], "expected one of \"linux\", \"native\""),
        (["--ignore", "nat,x"], "expected a list of \"firewall\", \"nat\", \"ipsec\""),
    ] {
        let error = flags(&given).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn many_ports_and_many_mistakes_end_soon() {
    // Each is compared with no other, and no text is counted anew for each mistake.
    let text = (0..100_000).map(|number| format!("[[port]]\nname = \"eth{number}\"\n")).collect::<String>();
    let mistakes = parse("x", &text).unwrap_err().render(false);
    assert!(mistakes.contains("100000 ports") && mistakes.contains("a router has 250 at most"), "{mistakes}");
    let text = (0..5_000).map(|number| format!("option{number} = 1\n")).collect::<String>();
    let mistakes = parse("x", &text).unwrap_err().render(false);
    assert!(mistakes.matches("a settings file has no 'option").count() <= 1_000);
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "(\\[\\[?(port|acl|x)\\]\\]?\n|(name|rules|count) = (\"é|7|\\[|true)\n?|\\PC){0,12}") {
        let _ = parse("x", &text);
    }
}
