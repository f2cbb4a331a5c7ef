//! Scripts as a user runs them: `brickway lua` between two hosts, and reloads under traffic.

#![allow(clippy::unwrap_used, reason = "a test")]

mod netns;

use std::process::Command;

use netns::router::PROGRAM;
use netns::{Network, Running, eventually};
use rustix::process::Signal;
use testbed::Folder;

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/lua");

/// Runs the program; what it printed, and whether it succeeded.
fn brickway(words: &[&str]) -> (bool, String) {
    let output = Command::new(PROGRAM).args(words).output().unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text)
}

/// A script that counts, of which each version has a number.
fn counter(version: usize) -> String {
    format!(
        "local seen = 0
         function process(batch) seen = seen + #batch end
         function save() return seen end
         function restore(saved) seen = saved end
         handlers.read('seen', function() return seen end, 'sum')
         handlers.read('version', function() return {version} .. ' ' .. brickway.args end)"
    )
}

#[test]
fn a_hundred_reloads_of_script_and_configuration_lose_no_packet_and_no_state() {
    let folder = Folder::new();
    let (socket, script) = (folder.file("socket"), folder.file("script.lua"));
    let config = |args: usize| {
        format!(
            "source :: RatedSource(LENGTH 60, RATE 20000) -> came :: Counter
                 -> s :: Lua(FILE {script}, ARGS \"{args}\") -> left :: Counter -> Discard;"
        )
    };
    std::fs::write(&script, counter(0)).unwrap();
    let file = folder.write("router.click", config(0));
    let mut command = Command::new(PROGRAM);
    command.args(["run", &file, "--socket", &socket]);
    let router = Running::start(&mut command, folder.path().join("log")).unwrap();
    let read = |name: &str| {
        let (done, text) = brickway(&["show", "handlers", name, "--socket", &socket]);
        assert!(done, "{name}: {text}");
        text.trim().to_owned()
    };
    router.wait_until("the router runs", || brickway(&["show", "handlers", "s.seen", "--socket", &socket]).0);
    for number in 1..=100 {
        std::fs::write(&script, counter(number)).unwrap();
        let (done, text) = brickway(&["set", "--handler", "s.reload", "", "--socket", &socket]);
        assert!(done, "{text}");
        folder.write("router.click", config(number));
        let (done, text) = brickway(&["reload", "--socket", &socket]);
        assert!(done, "{text}");
        assert_eq!(read("s.version"), format!("{number} {number}"));
    }
    // A script with a mistake changes nothing.
    std::fs::write(&script, "function process( ").unwrap();
    assert!(!brickway(&["set", "--handler", "s.reload", "", "--socket", &socket]).0);
    assert_eq!(read("s.version"), "100 100");
    let (done, text) = brickway(&["set", "--handler", "source.active", "false", "--socket", &socket]);
    assert!(done, "{text}");
    let count = read("came.count");
    assert_eq!(
        [read("s.seen"), read("left.count"), read("s.errors")],
        [count.clone(), count.clone(), "0".into()]
    );
    assert!(count.parse::<u64>().unwrap() > 100, "{count}");
    assert_eq!(router.interrupt(), 0);
}

/// A router r between the hosts left and right.
fn network() -> Network {
    let network = Network::new(&["left", "r", "right"]);
    network.link(("r", "eth1", "02:00:00:00:01:01"), ("left", "one", "02:00:00:00:01:02"));
    network.link(("r", "eth2", "02:00:00:00:02:01"), ("right", "two", "02:00:00:00:02:02"));
    network.forward("r");
    for (host, link, net) in [("left", "one", 1), ("right", "two", 2)] {
        network.ip("r", &format!("addr add 10.0.{net}.1/24 dev eth{net}"));
        network.ip(host, &format!("addr add 10.0.{net}.2/24 dev {link}"));
        network.ip(host, &format!("route add default via 10.0.{net}.1"));
    }
    network
}

/// Linux forwards nothing past a script, so what it checks of sources later is checked before the script.
#[test]
fn what_linux_checks_of_sources_later_is_obeyed() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    let router =
        network.start("r", &format!("{PROGRAM} lua {EXAMPLES}/router.lua eth1 eth2 --errors-to-linux"));
    router.wait_until("the router runs", || router.printed().contains(" runs with "));
    network.ip("left", "addr add 192.0.2.7/32 dev one");
    network.ip("r", "route add 192.0.2.7/32 via 10.0.2.2");
    network.ip("right", "addr add 198.51.100.7/32 dev two");
    network.ip("r", "route add 198.51.100.7/32 via 10.0.2.2");
    let watch = network.start("right", "tcpdump -n -l -i two icmp");
    watch.wait_until("tcpdump", || watch.printed().contains("listening on"));
    // What arrives, for the answers go elsewhere.
    let arrives = |from: &str| {
        let before = watch.printed().matches(&format!("IP {from} >")).count();
        network.run("left", &format!("ping -n -c 1 -W 1 -I {from} 198.51.100.7"));
        watch.printed().matches(&format!("IP {from} >")).count() > before
    };
    let (own, others) = ("10.0.1.2", "192.0.2.7");
    let why = || network.run("r", &format!("{PROGRAM} show drops")).1;
    assert!(eventually(|| arrives(own) && arrives(others)), "{}", why());
    for (setting, is_believed) in [("1", false), ("2", true), ("0", true), ("1", false), ("0", true)] {
        network.set("r", &format!("net.ipv4.conf.eth1.rp_filter={setting}"));
        assert!(eventually(|| arrives(others) == is_believed), "rp_filter={setting}: {}", why());
        assert!(eventually(|| arrives(own)), "rp_filter={setting}: {}", why());
    }
    // Sources in networks that are the host's, whatever the filter.
    network.ip("r", "route del 192.0.2.7/32");
    network.ip("r", "addr add 192.0.2.1/24 dev lo");
    assert!(eventually(|| !arrives(others)), "{}", why());
    assert!(eventually(|| arrives(own)), "{}", why());
    network.ip("r", "addr del 192.0.2.1/24 dev lo");
    assert!(eventually(|| arrives(others)), "{}", why());
    // The host's own address is nobody else's, but where Linux accepts it.
    network.ip("left", "addr add 10.0.2.1/32 dev one");
    assert!(!arrives("10.0.2.1"));
    network.set("r", "net.ipv4.conf.eth1.accept_local=1");
    assert!(eventually(|| arrives("10.0.2.1")), "{}", why());
    network.ip("r", "addr add 192.0.2.1/24 dev lo");
    assert!(eventually(|| arrives(others) && arrives("10.0.2.1")), "{}", why());
    network.ip("r", "addr del 192.0.2.1/24 dev lo");
    network.set("r", "net.ipv4.conf.eth1.accept_local=0");
    assert!(eventually(|| !arrives("10.0.2.1")), "{}", why());
}

#[test]
fn a_script_is_a_router_between_two_hosts_with_linux_behind_it() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    // The router checks sources as Linux is set to.
    network.set("r", "net.ipv4.conf.eth1.rp_filter=1");
    let folder = Folder::new();
    let script = folder.write("router.lua", std::fs::read(format!("{EXAMPLES}/router.lua")).unwrap());
    let mut command = network.on("r", &format!("{PROGRAM} lua {script} eth1 eth2 --quiet --errors-to-linux"));
    let router = Running::start(&mut command, folder.path().join("log")).unwrap();
    let read = |name: &str| network.run("r", &format!("{PROGRAM} show handlers {name}")).1.trim().to_owned();
    router.wait_until("the router runs", || read("main.state") == "running");
    let ping = |flags: &str| network.run("left", &format!("ping -n -c 3 -i 0.1 -W 5 {flags} 10.0.2.2"));
    assert!(eventually(|| ping("").0), "{}", router.printed());
    let (done, text) = ping("-s 4000");
    assert!(done, "{text}");
    // Too long for the MTU, a TTL that ends here, no route: Linux answers.
    network.ip("r", "link set eth2 mtu 1400");
    let answered = |flags: &str, answer: &str| eventually(|| ping(flags).1.contains(answer));
    assert!(
        answered("-s 1450 -M do", "mtu = 1400") || answered("-s 1450 -M do", "mtu=1400"),
        "{}",
        ping("-s 1450 -M do").1
    );
    assert!(answered("-t 1", "Time to live exceeded"));
    let (_, text) = network.run("left", "ping -n -c 1 -W 5 10.9.9.9");
    assert!(text.contains("Unreachable"), "{text}");
    // A source that does not belong there is dropped.
    network.ip("left", "addr add 192.0.2.7/32 dev one");
    let (done, _) = network.run("left", "ping -n -c 1 -W 1 -I 192.0.2.7 10.0.2.2");
    assert!(!done);
    assert!(network.run("r", &format!("{PROGRAM} show drops")).1.contains("no route back"));
    let forwarded = |text: &str| text.parse::<u64>().unwrap_or_default();
    let before = forwarded(&read("main.forwarded"));
    assert!(before >= 6, "{before}");
    // A reload keeps the count; a broken script changes nothing.
    router.signal(Signal::HUP);
    assert!(eventually(|| router.printed().contains("runs anew")), "{}", router.printed());
    assert!(forwarded(&read("main.forwarded")) >= before);
    // One with a mistake in its loop drops all packets, or leaves them to Linux if that was asked for.
    std::fs::write(&script, "for batch in brickway.batches() do batch:lookp() end").unwrap();
    assert!(network.run("r", &format!("{PROGRAM} reload")).0);
    assert!(ping("").0, "{}", router.printed());
    assert!(network.run("r", &format!("{PROGRAM} show handlers main.errors")).1.trim() != "0");
    std::fs::write(&script, std::fs::read(format!("{EXAMPLES}/router.lua")).unwrap()).unwrap();
    assert!(network.run("r", &format!("{PROGRAM} reload")).0);
    std::fs::write(&script, "for batch in").unwrap();
    let (done, text) = network.run("r", &format!("{PROGRAM} reload"));
    assert!(!done && text.contains("router.lua:1:"), "{text}");
    assert!(ping("").0);
    assert_eq!(router.interrupt(), 0);
}
