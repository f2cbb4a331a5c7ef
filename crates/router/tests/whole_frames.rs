//! Long frames of hosts through a Click configuration: whole, and in pieces before what needs them single.

#![allow(clippy::unwrap_used, reason = "a test")]

mod netns;

use netns::router::{PROGRAM, start};
use netns::{Network, Running, eventually};

/// Two ports, IPv4 between them.
const ROUTER: &str = "
elementclass Port { $port, $ip, $mac |
  FromDevice($port, SNIFFER false) -> kind :: Classifier(12/0800, 12/0806 20/0001, 12/0806 20/0002, -);
  kind[0] -> Strip(14) -> CheckIPHeader -> output;
  arp :: ARPQuerier($ip, $mac); to :: ToDevice($port);
  kind[1] -> ARPResponder($ip $mac) -> to; kind[2] -> [1] arp; kind[3] -> Discard;
  input -> DropBroadcasts -> ttl :: DecIPTTL -> fragment :: IPFragmenter($MTU) -> arp -> to;
  arp[1] -> to;
  ttl[1] -> ICMPError($ip, timeexceeded) -> [1] output;
  fragment[1] -> ICMPError($ip, unreachable, needfrag, PMTU $MTU) -> [1] output;
}
one :: Port(eth1, 10.0.1.1, 02:00:00:00:01:01);
two :: Port(eth2, 10.0.2.1, 02:00:00:00:02:01);
";

/// Packets are looked up, behind what is between.
const PLAIN: &str = "rt :: RadixIPLookup(10.0.1.0/24 0, 10.0.2.0/24 1);
x :: BETWEEN; x -> rt; one[0], two[0] => x, x; one[1], two[1] => rt, rt; rt[0] -> one; rt[1] -> two;";

/// Those of a become those of the router.
const NAT: &str = "rw :: IPRewriter(pattern 10.0.2.1 20000-60000 - - 0 1, drop);
png :: ICMPPingRewriter(pattern 10.0.2.1 - - - 0 1, drop);
one[0] -> a :: IPClassifier(icmp, -); a[0] -> png; a[1] -> rw;
two[0] -> b :: IPClassifier(icmp, -); b[0] -> [1] png; b[1] -> [1] rw;
there :: GetIPAddress(16) -> two; back :: GetIPAddress(16) -> one;
rw[0], png[0] => there, there; rw[1], png[1] => back, back;
one[1], two[1] => Discard, Discard;";

fn network() -> Network {
    let network = Network::new(&["a", "r", "b"]);
    for (host, number) in [("a", 1), ("b", 2)] {
        let (ours, theirs) = (format!("02:00:00:00:0{number}:01"), format!("02:00:00:00:0{number}:02"));
        network.link((host, "eth0", &theirs), ("r", &format!("eth{number}"), &ours));
        network.ip(host, &format!("addr add 10.0.{number}.2/24 dev eth0"));
        network.ip(host, &format!("route add default via 10.0.{number}.1"));
    }
    // The senders leave everything to a card, and the receivers check every packet.
    for (host, device, offloads) in [
        ("a", "eth0", "tx on tso on gso on rx off gro off"),
        ("b", "eth0", "tx on tso on gso on rx off gro off"),
    ] {
        let (done, text) = network.run(host, &format!("ethtool -K {device} {offloads}"));
        assert!(done, "{text}");
    }
    network
}

fn configuration(rest: &str, mtu: u32) -> String {
    format!("define($MTU {mtu});\n{ROUTER}{rest}")
}

fn plain(between: &str) -> String {
    PLAIN.replace("BETWEEN", between)
}

fn run(network: &Network, text: &str) -> (Running, String) {
    let (file, socket) = (network.folder.write("router.click", text), network.folder.file("socket"));
    (start(network, &format!("{file} --socket {socket}")), socket)
}

fn show(network: &Network, socket: &str, what: &str) -> String {
    network.run("r", &format!("{PROGRAM} show {what} --socket {socket}")).1
}

/// What a handler says, as a number.
fn count(network: &Network, socket: &str, handler: &str) -> u64 {
    let text = show(network, socket, &format!("handlers {handler}"));
    text.split_whitespace().filter_map(|word| word.replace(',', "").parse().ok()).next_back().unwrap_or(0)
}

/// So much TCP from host to host.
fn transfer(network: &Network, megabytes: u32, options: &str) {
    let server = network.start("b", "iperf3 -s -1");
    let mut text = String::new();
    let through = eventually(|| {
        let (done, output) = network.run("a", &format!("iperf3 -n {megabytes}M -c 10.0.2.2 {options}"));
        text = output;
        done
    });
    drop(server);
    assert!(through, "{megabytes} MB {options}: {text}");
    for host in ["a", "b"] {
        let (_, text) = network.run(host, "nstat -asz TcpInCsumErrors UdpInCsumErrors");
        let wrong = text.lines().skip(1).any(|line| line.split_whitespace().nth(1).is_some_and(|n| n != "0"));
        assert!(!wrong, "{host}: {text}");
    }
}

/// Frames that went out by an interface of a host, and how many packets of TCP it sent.
fn frames_and_segments(network: &Network, host: &str) -> (u64, u64) {
    let (_, text) = network.run(host, "cat /sys/class/net/eth0/statistics/tx_packets");
    let (_, segments) = network.run(host, "nstat -asz TcpOutSegs");
    let segments = segments.lines().find(|line| line.starts_with("TcpOutSegs")).unwrap();
    (text.trim().parse().unwrap(), segments.split_whitespace().nth(1).unwrap().parse().unwrap())
}

#[test]
fn long_frames_stay_whole_and_are_counted_as_their_packets() {
    if !netns::is_root() {
        return;
    }
    for (name, rest) in [("plain", plain("Null")), ("nat", NAT.to_owned())] {
        let network = network();
        let (router, socket) = run(&network, &configuration(&rest, 1_500));
        assert!(eventually(|| network.answers("a", "10.0.2.2") == 10), "{name}: {}", router.printed());
        // While links come up, what is sent is lost.
        let lost_before = show(&network, &socket, "drops");
        for options in ["", "-R", "-P 4"] {
            transfer(&network, 20, options);
        }
        // Each host's frames are fewer by far than its packets, and the router has counted packets.
        let (frames, segments) = frames_and_segments(&network, "a");
        assert!(frames * 2 < segments, "{name}: {frames} frames, {segments} segments");
        let received = count(&network, &socket, "one/FromDevice@1.count");
        assert!(received.abs_diff(segments) < segments / 50, "{name}: {received} of {segments}");
        assert_eq!(show(&network, &socket, "drops"), lost_before, "{name}");
        assert_eq!(router.interrupt(), 0, "{name}: {}", router.printed());
    }
}

#[test]
fn long_frames_are_divided_before_what_needs_packets_single() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    let (router, socket) = run(&network, &configuration(&plain("SetIPChecksum"), 1_500));
    assert!(eventually(|| network.answers("a", "10.0.2.2") == 10), "{}", router.printed());
    transfer(&network, 10, "");
    assert!(count(&network, &socket, "x@divide.divided") > 0, "{}", show(&network, &socket, "elements"));
    // Another one, while it runs.
    network.folder.write("router.click", configuration(&plain("CheckTCPHeader"), 1_500));
    let (done, text) = network.run("r", &format!("{PROGRAM} reload --socket {socket}"));
    assert!(done, "{text}\n{}", router.printed());
    transfer(&network, 10, "");
    assert!(show(&network, &socket, "elements").contains("CheckTCPHeader"));
    assert!(!show(&network, &socket, "drops").contains("checksum"), "{}", show(&network, &socket, "drops"));
    assert_eq!(router.interrupt(), 0, "{}", router.printed());
}

#[test]
fn long_frames_whose_pieces_are_too_long_get_one_answer_or_are_fragmented() {
    if !netns::is_root() {
        return;
    }
    let network = network();
    let (router, socket) = run(&network, &configuration(&plain("Null"), 1_300));
    assert!(eventually(|| network.answers("a", "10.0.2.2") == 10), "{}", router.printed());
    // TCP learns the MTU of the path.
    transfer(&network, 10, "");
    let (_, route) = network.run("a", "ip route get 10.0.2.2");
    let (_, cache) = network.run("a", "ip route show cache 10.0.2.2");
    assert!((route.clone() + &cache).contains("mtu 1300"), "{route}{cache}");
    // Where it must not fragment nobody, the router does.
    network.set("a", "net.ipv4.ip_no_pmtu_disc=1");
    network.run("a", "ip route flush cache");
    transfer(&network, 5, "");
    let fragments =
        ["one", "two"].map(|port| count(&network, &socket, &format!("{port}/fragment.fragments")));
    assert!(fragments.iter().sum::<u64>() > 100, "{fragments:?} {}", show(&network, &socket, "elements"));
    assert_eq!(router.interrupt(), 0, "{}", router.printed());
}

#[test]
fn scripts_get_long_frames_whole_if_they_take_them() {
    if !netns::is_root() {
        return;
    }
    const SCRIPT: &str = "
        local forwarded, frames = 0, 0
        handlers.read('forwarded', function() return forwarded end, 'sum')
        handlers.read('frames', function() return frames end, 'sum')
        for batch in brickway.batches() do
          local ip = batch:check_ip():union(batch:check_ip6())
          local alive = batch:decrement_ttl(batch:check_mtu(batch:lookup(ip)))
          local sent = batch:apply_routes(alive)
          forwarded, frames = forwarded + sent:pieces(), frames + #sent
          batch:punt()
        end";
    for takes_merged in [true, false] {
        let network = network();
        network.forward("r");
        for number in [1, 2] {
            network.ip("r", &format!("addr add 10.0.{number}.1/24 dev eth{number}"));
        }
        let first = if takes_merged { "brickway.take_merged()" } else { "" };
        let (file, socket) =
            (network.folder.write("s.lua", format!("{first}{SCRIPT}")), network.folder.file("socket"));
        let router = network.start("r", &format!("{PROGRAM} lua {file} eth1 eth2 --socket {socket}"));
        assert!(eventually(|| network.answers("a", "10.0.2.2") == 10), "{}", router.printed());
        let lost_before = show(&network, &socket, "drops");
        for options in ["", "-R", "-P 4"] {
            transfer(&network, 20, options);
        }
        let (_, segments) = frames_and_segments(&network, "a");
        let (_, of_the_other) = frames_and_segments(&network, "b");
        let forwarded = count(&network, &socket, "main.forwarded");
        let all = segments + of_the_other;
        assert!(
            forwarded.abs_diff(all) < all / 10,
            "{takes_merged}: {forwarded} of {all}\n{}",
            show(&network, &socket, "ports")
                + &show(&network, &socket, "drops")
                + &network.run("r", "ip -s link").1
        );
        let frames = count(&network, &socket, "main.frames");
        assert_eq!(frames * 2 < forwarded, takes_merged, "{frames} frames, {forwarded} packets");
        assert_eq!(show(&network, &socket, "drops"), lost_before);
        assert!(
            show(&network, &socket, "ports").contains("af_xdp tc"),
            "{}",
            show(&network, &socket, "ports")
        );
        assert_eq!(router.interrupt(), 0, "{}", router.printed());
    }
}
