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
    assert_eq!(
        (done.status.code(), said.as_str()),
        (Some(0), "access list read, then deny\nworkers.balance = false\n")
    );
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

/// The fields of a thread's status that say what it may do: capabilities in force, no_new_privs, seccomp.
fn privileges(process: u32, thread: &str) -> Option<(u64, bool, bool)> {
    let status = std::fs::read_to_string(format!("/proc/{process}/task/{thread}/status")).ok()?;
    let field = |name: &str| {
        status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim))
    };
    let capabilities = u64::from_str_radix(field("CapEff")?, 16).ok()?;
    Some((capabilities, field("NoNewPrivs")? == "1", field("Seccomp")? == "2"))
}

/// What all threads of the router in a namespace may do.
fn privileges_of_all(network: &Network) -> Vec<(u64, bool, bool)> {
    let (_, pids) = network.run("r", &format!("ip netns pids {}", network.name("r")));
    let name = |pid: &u32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let mut pids = pids.split_whitespace().filter_map(|pid| pid.parse().ok());
    let process = pids.find(|pid| name(pid).trim() == "brickway").unwrap();
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap().flatten();
    threads.filter_map(|thread| privileges(process, thread.file_name().to_str()?)).collect()
}

#[test]
fn a_router_of_ports_gives_up_what_it_does_not_need() {
    if !netns::is_root() {
        return;
    }
    // CHOWN, NET_BIND_SERVICE, NET_ADMIN, NET_RAW, IPC_LOCK, SYS_NICE, PERFMON, BPF.
    let needed = [0, 10, 12, 13, 14, 23, 38, 39].iter().fold(0, |all, bit| all | 1_u64 << bit);
    let network = network();
    let router = start(&network, "eth1 eth2");
    router.wait_until("threads with little privileges", || {
        let all = privileges_of_all(&network);
        all.len() > 3
            && all.iter().all(|&(capabilities, no_new, filtered)| {
                capabilities & !needed == 0 && capabilities != 0 && no_new && filtered
            })
    });
    // What needs them works: the kernel's counters, samples, nftables, another name, a port that goes and comes back.
    for show in ["ports", "problems", "routes", "cost"] {
        let (shown, text) = network.run("r", &format!("{PROGRAM} show {show}"));
        assert!(shown, "show {show}: {text}");
    }
    network.ip("r", "link del eth2");
    network.link(("r", "eth2", "02:00:00:00:02:01"), ("x", "two", "02:00:00:00:02:02"));
    router.wait_until("the port again", || router.printed().contains("the interface is back"));
    assert_eq!(router.interrupt(), 0, "{}", router.printed());

    // Elements of a configuration may need more.
    let file = network.folder.write("r.click", "FromDevice(eth1) -> Discard;");
    let router = start(&network, &file);
    assert!(privileges_of_all(&network).iter().all(|(capabilities, ..)| capabilities & !needed != 0));
    assert_eq!(router.interrupt(), 0, "{}", router.printed());
}
