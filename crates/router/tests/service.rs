//! A router as a service of a machine: what it refuses to run beside, its control sockets, signals and reloads.

#![allow(clippy::unwrap_used, reason = "a test")]

mod netns;

use netns::router::{PROGRAM, start};
use netns::{Network, eventually};
use rustix::process::Signal;

/// A router with two ports that nobody is behind, and another namespace.
fn network() -> Network {
    let network = Network::new(&["r", "x"]);
    network.link(("r", "eth1", "02:00:00:00:01:01"), ("x", "one", "02:00:00:00:01:02"));
    network.link(("r", "eth2", "02:00:00:00:02:01"), ("x", "two", "02:00:00:00:02:02"));
    network.forward("r");
    network
}

/// Runs a script in the router's namespace, which must succeed.
fn script(network: &Network, script: &str) {
    let (done, text) = network.script("r", script);
    assert!(done, "{script}: {text}");
}

#[test]
fn a_router_does_not_start_beside_rules_that_it_would_bypass() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    let run = |flags: &str| network.run("r", &format!("{PROGRAM} run eth1 eth2 --quiet --for 0.1 {flags}"));
    let doctor = |flags: &str| network.run("r", &format!("{PROGRAM} doctor {flags}")).1;
    // What concerns the host's own packets, is empty, or is a router's of ours.
    script(
        &network,
        "nft 'add table inet t; add chain inet t i { type filter hook input priority 0; policy drop; }'
         nft 'add chain inet t f { type filter hook forward priority 0; }'
         nft 'add table inet brickway-eth9; add chain inet brickway-eth9 f { type filter hook forward priority 0; policy drop; }'
         nft 'add table netdev n; add chain netdev n g { type filter hook ingress device lo priority 0; policy drop; }'
         iptables-legacy -P FORWARD ACCEPT; iptables-legacy -A INPUT -p tcp --dport 1 -j DROP
         ip xfrm policy add src 10.1.0.0/24 dst 10.2.0.0/24 dir in action block",
    );
    let (started, text) = run("");
    assert!(started, "{text}");
    let text = doctor("eth1 eth2");
    assert!(text.contains("Linux has no rules for forwarded packets"), "{text}");

    script(
        &network,
        "nft add rule inet t f tcp dport 25 drop
         nft 'add table ip6 u; add chain ip6 u p { type filter hook prerouting priority 0; policy drop; }'
         nft 'add table ip v; add chain ip v n { type nat hook postrouting priority 100; }; add rule ip v n masquerade'
         nft 'add chain netdev n h { type filter hook ingress device eth2 priority 0; policy drop; }'
         iptables-legacy -P FORWARD DROP; ip6tables-legacy -A FORWARD -p udp -j DROP
         iptables-legacy -t nat -A POSTROUTING -j MASQUERADE
         ip xfrm policy add src 10.1.0.0/24 dst 10.2.0.0/24 dir fwd action block
         ip xfrm policy add src 10.1.0.0/24 dst 10.3.0.0/24 dir out tmpl src 1.1.1.1 dst 2.2.2.2 proto esp mode tunnel",
    );
    let without_ports = doctor("");
    assert!(without_ports.contains("chain 'f'") && !without_ports.contains("chain 'h'"), "{without_ports}");
    let (started, text) = run("");
    assert!(!started, "{text}");
    for expected in [
        "nftables: chain 'f' of table 'inet t' (hook forward, 1 rule) (firewall)\n    shown by: nft list chain inet t f\n",
        "nftables: chain 'p' of table 'ip6 u' (hook prerouting, 0 rules, policy drop) (firewall)\n",
        "nftables: chain 'n' of table 'ip v' (hook postrouting, 1 rule) (nat)\n",
        "nftables: chain 'h' of table 'netdev n' (hook ingress, 0 rules, policy drop) (firewall)\n",
        "iptables-legacy: chain 'FORWARD' of table 'filter' (firewall)\n",
        "iptables-legacy: chain 'POSTROUTING' of table 'nat' (nat)\n",
        "ip6tables-legacy: chain 'FORWARD' of table 'filter' (firewall)\n",
        "[beside_linux] ignore = [\"firewall\", \"nat\"]",
    ] {
        assert!(text.contains(expected), "no '{expected}' in\n{text}");
    }
    assert_eq!(text.lines().filter(|line| line.contains("shown by:")).count(), 7, "{text}");
    let (started, text) = run("--ignore firewall");
    assert!(!started && text.contains("(nat)") && !text.contains("(firewall)"), "{text}");
    // Policies of IPsec are the router's too, but not a script's.
    let (started, text) = run("--ignore firewall,nat");
    assert!(started, "{text}");
    let script = network.folder.write("router.lua", "");
    let (started, text) =
        network.run("r", &format!("{PROGRAM} lua {script} eth1 eth2 --for 0.1 --ignore firewall,nat"));
    assert!(!started && !text.contains("(nat)"), "{text}");
    for expected in [
        "ipsec: policy fwd from 10.1.0.0/24 to 10.2.0.0/24 blocks packets (ipsec)\n",
        "ipsec: policy out from 10.1.0.0/24 to 10.3.0.0/24 encrypts or decrypts packets (ipsec)\n",
    ] {
        assert!(text.contains(expected), "no '{expected}' in\n{text}");
    }

    // The doctor finds the same, and those that are ignored are only a warning.
    let settings = "[[port]]\nname = \"eth1\"\n[beside_linux]\nignore = [\"firewall\", \"ipsec\"]\n";
    let file = network.folder.write("brickway.toml", settings);
    let text = doctor(&format!("--config {file} --json"));
    let verdict = |what: &str| {
        let line =
            text.lines().find(|line| line.contains(what)).unwrap_or_else(|| panic!("no {what} in {text}"));
        serde_json::from_str::<serde_json::Value>(line).unwrap()["verdict"].as_str().unwrap().to_owned()
    };
    assert_eq!((verdict("inet t").as_str(), verdict("ip v").as_str()), ("warn", "bad"));
}

#[test]
fn rules_that_come_while_the_router_runs_are_a_problem_of_it() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    let _router = start(&network, "eth1 eth2");
    let problems = || network.run("r", &format!("{PROGRAM} show problems")).1;
    assert!(!problems().contains("nftables"), "{}", problems());
    script(
        &network,
        "nft 'add table ip t; add chain ip t f { type filter hook forward priority 0; policy drop; }'",
    );
    let expected =
        "nftables: chain 'f' of table 'ip t' (hook forward, 0 rules, policy drop) (firewall) is bypassed";
    assert!(problems().contains(expected), "{}", problems());
}

#[test]
fn what_is_at_a_port_and_is_bypassed_is_a_warning() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    script(
        &network,
        "tc qdisc replace dev eth1 root tbf rate 1mbit burst 10kb latency 50ms
         tc qdisc add dev eth2 clsact
         tc filter add dev eth2 ingress u32 match u32 0 0 action drop 2>/dev/null || \
             tc filter add dev eth2 ingress u32 match u32 0 0 flowid 1:1
         ip link add mv0 link eth2 type macvlan",
    );
    let (started, text) = network.run("r", &format!("{PROGRAM} run eth1 eth2 --quiet --for 0.1"));
    assert!(started, "{text}");
    let (_, found) = network.run("r", &format!("{PROGRAM} doctor eth1 eth2"));
    for expected in [
        "eth1: it has the queueing discipline tbf",
        "eth2: it has filters of tc at ingress",
        "eth2: the macvlan interface mv0 is on top of it",
    ] {
        assert!(text.contains(expected), "no '{expected}' in\n{text}");
        let (port, what) = expected.split_once(": ").unwrap();
        let is_found = found.lines().any(|line| {
            line.starts_with("warn") && line.contains(&format!(" {port} ")) && line.contains(what)
        });
        assert!(is_found, "no '{expected}' in\n{found}");
    }
}

#[test]
fn each_network_namespace_has_its_own_control_socket() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    let router = start(&network, "eth1 eth2");
    let (shown, text) = network.run("r", &format!("{PROGRAM} show ports"));
    assert!(shown && text.contains("eth2"), "{text}\n{}", router.printed());
    // Elsewhere nobody answers, and those who ask hear where the router is.
    let (shown, text) = network.run("x", &format!("{PROGRAM} show ports"));
    let expected = format!("there is a router in network namespace '{}' (process ", network.name("r"));
    assert!(!shown && text.contains(&expected), "{text}");
    let (_, number) = network.run("r", "stat -Lc %i /proc/self/ns/net");
    let socket = format!("/run/brickway/{}.sock", number.trim());
    let (shown, text) = network.run("x", &format!("{PROGRAM} show ports --socket {socket}"));
    assert!(shown && text.contains("this router is in another network namespace (process "), "{text}");
    drop(router);
    // A configuration with interfaces has one too.
    let router = start(&network, &network.folder.write("a.click", "FromDevice(eth1) -> Discard;"));
    let (shown, text) = network.run("r", &format!("{PROGRAM} show elements"));
    assert!(shown && text.contains("Discard"), "{text}\n{}", router.printed());
    drop(router);
    // A client of another test may have taken away what nobody listens at.
    let _ = std::fs::remove_file(socket);
}

#[test]
fn a_shell_completes_what_the_running_router_has() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    // What bash calls for the last of these words.
    let complete = |words: &str| {
        let script = format!(
            "source <(COMPLETE=bash {PROGRAM}); COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
             _clap_complete_brickway brickway ${{COMP_WORDS[-1]}}; echo ${{COMPREPLY[*]}}"
        );
        let output = network.on("r", "bash -c").arg(script).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{words}");
        String::from_utf8(output.stdout).unwrap().trim().replace('\u{b}', " ")
    };
    // Without a router there are no ports.
    assert_eq!(complete("brickway show ports e"), "");
    let _router = start(&network, "eth1 eth2");
    // A shell does not wait for a router that is too busy.
    for (words, expected) in [
        ("brickway show ports e", "eth1 eth2"),
        ("brickway capture rt4", "rt4"),
        ("brickway show handlers rt4.batc", "rt4.batches"),
        ("brickway help DecIPT", "DecIPTTL"),
        ("brickway set workers.b", "workers.balance"),
        ("brickway run eth", "eth1 eth2"),
    ] {
        assert!(eventually(|| complete(words) == expected), "{words}: {}", complete(words));
    }
}

#[test]
fn a_reload_does_all_that_changed_or_nothing() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    let socket = network.folder.file("socket");
    let settings = |more: &str| {
        let ports = "[[port]]\nname = \"eth1\"\n[[port]]\nname = \"eth2\"\n";
        let control = format!("[control]\nsocket = \"{socket}\"\n");
        network.folder.write("brickway.toml", format!("{ports}{control}{more}"))
    };
    let acl = |default: &str| format!("[acl]\nrules = [\"permit tcp any any\"]\ndefault = \"{default}\"\n");
    let router = start(&network, &format!("--config {}", settings(&acl("permit"))));
    let harmless = "the access list denies nothing";
    assert!(eventually(|| router.printed().contains(harmless)), "{}", router.printed());
    let ask = |what: &str| network.on("r", &format!("{PROGRAM} {what} --socket {socket}")).output().unwrap();
    let text = |what: &str| String::from_utf8(ask(what).stdout).unwrap();
    let denies = || {
        text("show acl")
            .lines()
            .any(|line| line.trim_start().starts_with("default") && line.ends_with("deny"))
    };
    assert!(!denies());

    // What cannot be done has its exit code, and keeps the rest from being done.
    settings(&(acl("deny") + "[workers]\ncount = 2\n[slow_path]\nmode = \"native\"\n"));
    let refused = ask("reload");
    let error = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(3), "{error}");
    let expected =
        "nothing was changed: workers.count, slow_path.mode cannot change while the router runs; restart it";
    assert!(error.contains(expected), "{error}");
    assert!(!denies() && text("show config").contains("default = \"permit\""));
    settings("[acl]\nrules = [\"permit nonsense\"]\ndefault = \"deny\"\n[workers]\nbalance = false\n");
    let refused = ask("reload");
    let error = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{error}");
    assert!(
        error.contains("rule 1: word 2 is 'nonsense'") && error.contains("help: expected any, "),
        "{error}"
    );
    assert!(!denies() && text("show config").contains("balance = true"));
    assert!(text("show problems").contains(harmless));
    settings("[acl]\nrules = [\"permit tcp any any\"]\nfile = \"rules.txt\"\n");
    network.folder.write("rules.txt", "permit icmp any any\ndenny any any any\n");
    let error = String::from_utf8(ask("reload").stderr).unwrap();
    assert!(error.contains("rules.txt:2: word 1 is 'denny'"), "{error}");

    // The default is changed while the router runs, and so is what else can be.
    settings(&(acl("deny") + "[workers]\nbalance = false\n"));
    let done = ask("reload");
    let said = String::from_utf8(done.stdout).unwrap();
    let expected = "access list read, then deny\nworkers.balance = false\n";
    assert!(done.status.code() == Some(0) && said.starts_with(expected), "{said}");
    assert!(denies() && text("show config").contains("default = \"deny\""));

    // SIGHUP is the same, and does not end the router.
    settings(&(acl("permit") + "[workers]\nbalance = false\n"));
    router.signal(Signal::HUP);
    let printed = || router.printed();
    assert!(eventually(|| printed().contains("reload: access list read, then permit")), "{}", printed());
    assert!(eventually(|| printed().matches(harmless).count() == 2), "{}", printed());
    assert!(!denies());
    settings(&(acl("deny") + "[workers]\ncount = 2\n"));
    router.signal(Signal::HUP);
    let failed = "reload failed: nothing was changed: workers.count cannot change";
    assert!(eventually(|| printed().contains(failed)), "{}", printed());
    assert!(!denies());

    // Settings without a rule have no list: a reload permits all, as a start does.
    settings("[acl]\nrules = [\"permit tcp any any\"]\n[workers]\nbalance = false\n");
    assert!(ask("reload").status.success() && denies());
    settings("[acl]\nrules = []\n[workers]\nbalance = false\n");
    assert!(ask("reload").status.success() && !denies(), "{}", text("show acl"));
    settings("[acl]\nrules = [\"permit tcp any any\"]\n[workers]\nbalance = false\n");
    assert!(ask("reload").status.success() && denies(), "back to a list: {}", router.printed());
    settings("[workers]\nbalance = false\n");
    assert!(ask("reload").status.success() && !denies(), "no list: {}", router.printed());
    assert_eq!(router.interrupt(), 0);

    // One that began without a filter gets none.
    for fail in ["open", "closed"] {
        let with = |acl: &str| {
            let path = settings(acl);
            let text = std::fs::read_to_string(&path).unwrap();
            network.folder.write("brickway.toml", format!("fail = \"{fail}\"\n{text}"))
        };
        let router = start(&network, &format!("--config {}", with("")));
        with("[acl]\nrules = [\"permit tcp any any\"]\n");
        let refused = ask("reload");
        let error = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(3), "{fail}: {error}");
        let expected = "nothing was changed: what filters, in a router that began without it, cannot change";
        assert!(error.contains(expected), "{fail}: {error}");
        assert_eq!(router.interrupt(), 0);
    }
}

#[test]
fn a_reload_of_what_has_not_changed_changes_nothing_and_is_no_mistake() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    let socket = network.folder.file("socket");
    let text =
        format!("[[port]]\nname = \"eth1\"\n[[port]]\nname = \"eth2\"\n[control]\nsocket = \"{socket}\"\n");
    let settings = network.folder.write("brickway.toml", text);
    let router = start(&network, &format!("--config {settings}"));
    let (done, said) = network.run("r", &format!("{PROGRAM} reload --socket {socket}"));
    assert!(done, "{said}\n{}", router.printed());
}

#[test]
fn sighup_reads_a_configuration_again_and_ends_no_router() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    let configure = |text: &str| network.folder.write("router.click", text);
    let file = configure("in :: FromDevice(eth1) -> Counter -> Discard;");
    let configured = start(&network, &file);
    configure("in :: FromDevice(eth1) -> Discard;");
    configured.signal(Signal::HUP);
    let read = format!("reload: {file} read");
    assert!(eventually(|| configured.printed().contains(&read)), "{}", configured.printed());
    // A mistake leaves what runs as it is.
    configure("in :: FromDevice(eth1) -> Nowhere;");
    configured.signal(Signal::HUP);
    assert!(eventually(|| configured.printed().contains("reload failed: ")), "{}", configured.printed());
    // What a port has would be gone until a restart.
    configure("Idle -> Discard;");
    configured.signal(Signal::HUP);
    let refused = "elements with ports cannot change or go while the router runs: FromDevice(eth1); expected";
    assert!(eventually(|| configured.printed().contains(refused)), "{}", configured.printed());
    assert_eq!((configured.ended(), configured.interrupt()), (None, 0));

    let of_ports = start(&network, "eth1 eth2");
    let begins = |line: &str| line.starts_with("brickway: a router of eth1, eth2 runs with ");
    assert!(of_ports.printed().lines().next().is_some_and(begins), "{}", of_ports.printed());
    of_ports.signal(Signal::HUP);
    let nothing = "reload failed: there is nothing to read again";
    assert!(eventually(|| of_ports.printed().contains(nothing)), "{}", of_ports.printed());
    assert_eq!((of_ports.ended(), of_ports.interrupt()), (None, 0));
}

/// The fields of a thread's status that say what it may do.
#[derive(Debug, PartialEq, Eq)]
struct Rights {
    /// Real, effective, saved and that of files.
    users: Vec<u32>,
    groups: Vec<u32>,
    others: Vec<u32>,
    /// Capabilities in force, permitted, inheritable, ambient, and those that programs can have.
    capabilities: [u64; 5],
    has_no_new_privileges: bool,
    is_filtered: bool,
}

impl Rights {
    /// Returns those of a thread, which may have ended.
    fn of(process: u32, thread: &str) -> Option<Rights> {
        let status = std::fs::read_to_string(format!("/proc/{process}/task/{thread}/status")).ok()?;
        let field = |name: &str| {
            status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim))
        };
        let numbers = |name: &str| -> Option<Vec<u32>> {
            Some(field(name)?.split_whitespace().map(|number| number.parse().unwrap()).collect())
        };
        let mask = |name: &str| Some(u64::from_str_radix(field(name)?, 16).unwrap());
        Some(Rights {
            users: numbers("Uid")?,
            groups: numbers("Gid")?,
            others: numbers("Groups")?,
            capabilities: [
                mask("CapEff")?,
                mask("CapPrm")?,
                mask("CapInh")?,
                mask("CapAmb")?,
                mask("CapBnd")?,
            ],
            has_no_new_privileges: field("NoNewPrivs")? == "1",
            is_filtered: field("Seccomp")? == "2",
        })
    }

    /// Returns those of a router of ports, as this user.
    fn of_ports(user: u32, group: u32) -> Rights {
        Rights {
            users: vec![user; 4],
            groups: vec![group; 4],
            others: Vec::new(),
            capabilities: [OF_PORTS, OF_PORTS, 0, 0, OF_PORTS],
            has_no_new_privileges: true,
            is_filtered: true,
        }
    }
}

/// NET_ADMIN, NET_RAW, IPC_LOCK, SYS_NICE, PERFMON, BPF.
const OF_PORTS: u64 = 1 << 12 | 1 << 13 | 1 << 14 | 1 << 23 | 1 << 38 | 1 << 39;
/// A user that each machine has, and that owns nothing.
const NOBODY: u32 = 65_534;

/// Returns the router in namespace `r`.
fn process_of(network: &Network) -> u32 {
    let (_, pids) = network.run("r", &format!("ip netns pids {}", network.name("r")));
    let name = |pid: &u32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let mut pids = pids.split_whitespace().filter_map(|pid| pid.parse().ok());
    pids.find(|pid| name(pid).trim() == "brickway").unwrap()
}

/// What all threads of the router in a namespace may do.
fn rights_of_all(network: &Network) -> Vec<Rights> {
    let process = process_of(network);
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap().flatten();
    threads.filter_map(|thread| Rights::of(process, thread.file_name().to_str()?)).collect()
}

/// Waits until all threads of the router have these rights.
fn wait_for_rights(network: &Network, router: &netns::Running, expected: &Rights) {
    let mut all = Vec::new();
    let have = eventually(|| {
        all = rights_of_all(network);
        all.len() > 3 && all.iter().all(|rights| rights == expected)
    });
    assert!(have, "{all:?}, not {expected:?}\n{}", router.printed());
}

/// The number of user nobody's group.
fn group_of_nobody() -> u32 {
    let text = std::fs::read_to_string("/etc/passwd").unwrap();
    let line = text.lines().find(|line| line.split(':').nth(2) == Some("65534")).unwrap();
    line.split(':').nth(3).unwrap().parse().unwrap()
}

/// Sets who may look into the test's folder.
fn set_folder(network: &Network, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(network.folder.path(), std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_router_of_ports_gives_up_what_it_does_not_need() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    let router = start(&network, "eth1 eth2 --user root");
    wait_for_rights(&network, &router, &Rights::of_ports(0, 0));
    assert_eq!(router.interrupt(), 0, "{}", router.printed());
    // Elements of a configuration may write files of others, and run programs.
    let file = network.folder.write("r.click", "FromDevice(eth1) -> Discard;");
    let router = start(&network, &file);
    let (dac_override, module) = (1 << 1, 1 << 16);
    let all_but_few = |rights: &Rights| {
        let [effective, _, _, _, bounding] = rights.capabilities;
        let has = |capability: u64| [effective, bounding].map(|set| set & capability != 0);
        has(dac_override) == [true; 2]
            && has(module) == [false; 2]
            && rights.users == [0; 4]
            && rights.has_no_new_privileges
            && rights.is_filtered
    };
    router.wait_until("threads with fewer rights", || rights_of_all(&network).iter().all(all_but_few));
    assert_eq!(router.interrupt(), 0, "{}", router.printed());
}

#[test]
fn a_router_of_ports_is_another_user_s_once_it_runs() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    set_folder(&network, 0o755);
    let rules = network.folder.write("rules.txt", "permit tcp any any\ndeny any any any\n");
    let settings = |more: &str| {
        let ports = "user = \"nobody\"\n[[port]]\nname = \"eth1\"\n[[port]]\nname = \"eth2\"\n";
        let acl = format!("[acl]\nfile = \"{rules}\"\n");
        network.folder.write("brickway.toml", format!("{ports}{acl}{more}"))
    };
    // Secrets are root's, and read before it is another user's. A port below 1024 is root's too.
    let token = network.folder.write("token", "kj3h4kj5h34kj5h3");
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).unwrap();
    let metrics = format!("[metrics]\nlisten = \"127.0.0.1:79\"\ntoken_file = \"{token}\"\n");
    let router = start(&network, &format!("--config {}", settings(&metrics)));
    wait_for_rights(&network, &router, &Rights::of_ports(NOBODY, group_of_nobody()));

    // What needs rights works: the kernel's counters, samples, nftables, another name, a port that goes and comes back.
    for show in ["ports", "problems", "routes", "cost"] {
        let (shown, text) = network.run("r", &format!("{PROGRAM} show {show}"));
        assert!(shown, "show {show}: {text}");
    }
    network.ip("r", "link del eth2");
    network.link(("r", "eth2", "02:00:00:00:02:01"), ("x", "two", "02:00:00:00:02:02"));
    router.wait_until("the port again", || router.printed().contains("the interface is back"));
    network.ip("r", "link set eth1 down");
    network.ip("r", "link set eth1 name lan");
    network.ip("r", "link set lan up");
    let renamed = || network.run("r", &format!("{PROGRAM} show ports")).1.contains("lan");
    assert!(eventually(renamed), "{}", router.printed());

    // The list of legacy tables is a file of root's.
    let legacy = "iptables-legacy -t mangle -A FORWARD -j DROP";
    script(&network, legacy);
    settings(&format!("{metrics}[workers]\nbalance = false\n"));
    network.folder.write("rules.txt", "permit udp any any\ndeny any any any\n");
    let (done, text) = network.run("r", &format!("{PROGRAM} reload"));
    assert!(done && text.contains("access list read"), "{text}\n{}", router.printed());
    assert!(text.contains("iptables-legacy: chain 'FORWARD' of table 'mangle'"), "{text}");
    let (_, text) = network.run("r", &format!("{PROGRAM} show acl"));
    assert!(text.contains("permit udp any any"), "{text}");
    // A file that the user may not read leaves the rules as they are.
    std::fs::set_permissions(&rules, std::fs::Permissions::from_mode(0o600)).unwrap();
    let (done, text) = network.run("r", &format!("{PROGRAM} reload"));
    assert!(!done && text.contains("rules.txt") && text.contains("Permission denied"), "{text}");
    std::fs::set_permissions(&rules, std::fs::Permissions::from_mode(0o644)).unwrap();

    // The socket is root's, and so is its folder. The router's own user may not ask.
    let (_, number) = network.run("r", "stat -Lc %i /proc/self/ns/net");
    let socket = format!("/run/brickway/{}.sock", number.trim());
    let of = |path: &str| {
        let file = std::fs::metadata(path).unwrap();
        (file.uid(), file.mode() & 0o7777)
    };
    assert_eq!((of(&socket), of("/run/brickway")), ((0, 0o600), (0, 0o755)));
    let (shown, text) = network.run(
        "r",
        &format!("setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups -- {PROGRAM} show ports"),
    );
    assert!(!shown, "{text}");

    // What it leaves is in nobody's way, whether it ends in order or is killed.
    assert_eq!(router.interrupt(), 0, "{}", router.printed());
    let again = "lan eth2 --user nobody --ignore firewall";
    let router = start(&network, again);
    router.signal(Signal::KILL);
    assert!(eventually(|| router.ended().is_some()));
    let router = start(&network, again);
    let (shown, text) = network.run("r", &format!("{PROGRAM} show ports"));
    assert!(shown && text.contains("lan"), "{text}\n{}", router.printed());
    drop(router);
    let _ = std::fs::remove_file(socket);
}

#[test]
fn packets_are_forwarded_by_a_router_of_another_user() {
    if !netns::is_root() {
        return;
    }
    for driver in ["xdp", "af_xdp", "af_packet"] {
        let network = netns::router::between_hosts();
        let router =
            start(&network, &format!("eth1 eth2 --driver {driver} --user nobody --metrics 127.0.0.1:9779"));
        netns::router::warm_up(&network, "a", &["10.0.2.2"]);
        wait_for_rights(&network, &router, &Rights::of_ports(NOBODY, group_of_nobody()));
        // Linux is followed, and asked.
        network.ip("r", "route add 192.0.2.0/24 via 10.0.2.2");
        network.ip("b", "addr add 192.0.2.2/24 dev lo");
        netns::router::warm_up(&network, "a", &["192.0.2.2"]);
        assert_eq!(router.interrupt(), 0, "{}", router.printed());
        assert_eq!(network.answers("a", "10.0.2.2"), 10, "Linux forwards again");
    }
}

#[test]
fn the_usual_user_is_taken_where_it_can_read_the_files_and_another_only_if_it_can() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    let ports = "[[port]]\nname = \"eth1\"\n[[port]]\nname = \"eth2\"\n";
    let settings = network.folder.write("brickway.toml", ports);
    let refused = |arguments: &str| {
        let (done, text) = network.run("r", &format!("{PROGRAM} run {arguments} --for 0.1"));
        assert!(!done, "{text}");
        text
    };
    set_folder(&network, 0o700);
    let text = refused(&format!("--config {settings} --user nobody"));
    let expected = format!("user 'nobody' cannot open '{settings}', which a reload opens: Permission denied");
    assert!(text.contains(&expected) && text.contains("chgrp "), "{text}");
    let text = refused("eth1 eth2 --user no-such-user");
    assert!(text.contains("user = \"no-such-user\": there is no user 'no-such-user'"), "{text}");
    let file = network.folder.write("r.click", "Idle -> Discard;");
    let text = refused(&format!("{file} --user nobody"));
    assert!(text.contains("--user is for a list of ports"), "{text}");

    // A machine with the user of the packages: `ip netns exec` has mounts of its own.
    let mut users = std::fs::read_to_string("/etc/passwd").unwrap();
    users.push_str("brickway:x:64999:64998::/nonexistent:/usr/sbin/nologin\n");
    let users = network.folder.write("passwd", users);
    let with_user = |words: &str| format!("mount --bind {users} /etc/passwd; exec {PROGRAM} {words}");
    let start = |words: &str| {
        let script = network.folder.write("start.sh", with_user(words));
        let router = network.start("r", &format!("sh -e {script}"));
        router.wait_until("it runs", || router.printed().contains(" runs with "));
        router
    };
    let router = start("run eth1 eth2");
    wait_for_rights(&network, &router, &Rights::of_ports(64_999, 64_998));
    assert_eq!(router.interrupt(), 0, "{}", router.printed());
    // A reload would not be able to read the file.
    let router = start(&format!("run --config {settings}"));
    wait_for_rights(&network, &router, &Rights::of_ports(0, 0));
    let printed = router.printed();
    assert!(printed.contains("the router stays root's: user 'brickway' cannot open"), "{printed}");
    assert_eq!(router.interrupt(), 0);
    let (_, text) = network.script("r", &with_user(&format!("doctor --config {settings}")));
    assert!(text.contains("the router stays root's: user 'brickway' cannot open"), "{text}");
    set_folder(&network, 0o755);
    let router = start(&format!("run --config {settings}"));
    wait_for_rights(&network, &router, &Rights::of_ports(64_999, 64_998));
    assert_eq!(router.interrupt(), 0, "{}", router.printed());
    let (_, text) = network.script("r", &with_user(&format!("doctor --config {settings}")));
    assert!(text.contains("the router becomes user 'brickway'"), "{text}");

    // A script is another user's only if it is asked for.
    let lua = network.folder.write("router.lua", "for batch in brickway.batches() do end\n");
    let router = start(&format!("lua {lua} eth1 eth2"));
    let is_root =
        |rights: &Rights| rights.users == [0; 4] && rights.has_no_new_privileges && rights.is_filtered;
    router.wait_until("threads with fewer rights", || rights_of_all(&network).iter().all(is_root));
    assert_eq!(router.interrupt(), 0, "{}", router.printed());
    let router = start(&format!("lua {lua} eth1 eth2 --user brickway"));
    wait_for_rights(&network, &router, &Rights::of_ports(64_999, 64_998));
    let (done, text) = network.run("r", &format!("{PROGRAM} reload"));
    assert!(done, "{text}\n{}", router.printed());
    assert_eq!(router.interrupt(), 0, "{}", router.printed());
}
