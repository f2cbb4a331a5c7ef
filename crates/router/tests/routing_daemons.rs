//! A drop-in router whose routes come from routing daemons: FRR and BIRD, unchanged, as they run on any Linux
//! router. Their packets go through our ports, and what they learn is forwarded by the fast path.
//!
//! ```text
//! h1 - n1 = r = n2 - h2      n1 and r, r and n2 have two links each
//! ```

#![allow(clippy::unwrap_used, reason = "a test")]

mod netns;

use std::path::Path;
use std::time::Duration;
use testbed::Folder;

use netns::router::{forwarded_by_the_kernel, lost_during, start, warm_up};
use netns::{Network, Running, eventually};

/// Where Debian and FRR's own packages have the daemons.
const FRR: &str = "/usr/lib/frr";
const BIRD: &str = "/usr/sbin/bird";

const PORTS: &str = "eth1 eth2 eth3 eth4";
/// The far host.
const H2: [&str; 2] = ["10.2.0.2", "2001:db8:a2::2"];

/// The hosts and links; links 1 and 3 of r lead to n1, 2 and 4 to n2. Only the hosts have routes.
fn network() -> Network {
    let network = Network::new(&["r", "n1", "n2", "h1", "h2"]);
    for link in 1..=4 {
        let (device, neighbour) = (format!("eth{link}"), if link % 2 == 1 { "n1" } else { "n2" });
        network.link(
            ("r", &device, &format!("02:00:00:00:0{link}:01")),
            (neighbour, &device, &format!("02:00:00:00:0{link}:02")),
        );
        for (end, namespace) in [(1, "r"), (2, neighbour)] {
            network.allow_ipv6(namespace, &device);
            network.ip(namespace, &format!("addr add 10.0.{link}.{end}/24 dev {device}"));
            network.ip(namespace, &format!("addr add 2001:db8:{link}::{end}/64 dev {device} nodad"));
        }
    }
    for side in 1..=2 {
        let (neighbour, host) = (format!("n{side}"), format!("h{side}"));
        network.link(
            (&neighbour, "eth0", &format!("02:00:00:00:1{side}:01")),
            (&host, "eth0", &format!("02:00:00:00:1{side}:02")),
        );
        for (end, namespace) in [(1, &neighbour), (2, &host)] {
            network.allow_ipv6(namespace, "eth0");
            network.ip(namespace, &format!("addr add 10.{side}.0.{end}/24 dev eth0"));
            network.ip(namespace, &format!("addr add 2001:db8:a{side}::{end}/64 dev eth0 nodad"));
        }
        network.ip(&host, &format!("route add default via 10.{side}.0.1"));
        network.ip(&host, &format!("-6 route add default via 2001:db8:a{side}::1"));
    }
    for router in ["r", "n1", "n2"] {
        network.forward(router);
    }
    network
}

/// Waits until a namespace has a route to each of these prefixes.
fn wait_for_routes(network: &Network, label: &str, prefixes: &[&str]) {
    for prefix in prefixes {
        let family = if prefix.contains(':') { "-6" } else { "-4" };
        let learnt =
            eventually(|| !network.run(label, &format!("ip {family} route show {prefix}")).1.is_empty());
        let (_, routes) = network.run(label, &format!("ip {family} route show"));
        assert!(learnt, "{label} did not learn {prefix}; it has\n{routes}");
    }
}

/// A link of r is cut at its other end: pings stop for a moment only, and all goes by the fast path again.
fn cut(network: &Network, neighbour: &str, device: &str, destinations: &[&str]) {
    let (lost, sent) = lost_during(network, "h1", destinations[0], || {
        network.ip(neighbour, &format!("link set {device} down"));
        warm_up(network, "h1", destinations);
    });
    println!("{neighbour} cuts {device}: {lost} of {sent} pings lost");
    assert!(lost < sent);
}

/// Starts a daemon of FRR in a namespace, with this configuration.
fn frr(network: &Network, folder: &Folder, label: &str, daemon: &str, config: &str) -> Running {
    let own = folder.path().join(label);
    std::fs::create_dir_all(&own).unwrap();
    std::fs::write(own.join(format!("{daemon}.conf")), format!("hostname {label}\n{config}")).unwrap();
    let (given, text) = network.run(label, &format!("chown -R frr:frr {}", own.display()));
    assert!(given, "{text}");
    let own = own.display();
    let mut options = format!(
        "-f {own}/{daemon}.conf -i {own}/{daemon}.pid -z {own}/zserv --vty_socket {own} -A 127.0.0.1 -P 0"
    );
    options += " --log stdout --log-level warnings";
    if daemon == "zebra" && config.contains("fpm address") {
        // What the last zebra told the kernel stays for so many seconds, until the daemons tell it again.
        options += " -M dplane_fpm_nl -K 60";
    }
    let running = network.start(label, &format!("{FRR}/{daemon} {options}"));
    let socket = if daemon == "zebra" { "zserv".to_owned() } else { format!("{daemon}.vty") };
    running.wait_until(&format!("{label}: {daemon}"), || folder.path().join(label).join(&socket).exists());
    running
}

/// OSPF over these links; the first is the better one.
fn ospf(id: u8, links: [u8; 2], more: &str) -> String {
    let mut text = String::new();
    for (link, cost) in links.into_iter().zip([10, 100]) {
        text += &format!(
            "interface eth{link}\n ip ospf area 0\n ip ospf network point-to-point\n ip ospf cost {cost}
             ip ospf hello-interval 1\n ip ospf dead-interval 3\n"
        );
    }
    text + &format!("{more}router ospf\n ospf router-id 10.255.0.{id}\n timers throttle spf 0 50 50\n")
}

/// The same for IPv6.
fn ospf6(id: u8, links: [u8; 2], more: &str) -> String {
    let mut text = String::new();
    for (link, cost) in links.into_iter().zip([10, 100]) {
        text += &format!(
            "interface eth{link}\n ipv6 ospf6 area 0\n ipv6 ospf6 network point-to-point\n ipv6 ospf6 cost {cost}
             ipv6 ospf6 hello-interval 1\n ipv6 ospf6 dead-interval 3\n"
        );
    }
    text + &format!("{more}router ospf6\n ospf6 router-id 10.255.0.{id}\n timers throttle spf 0 50 50\n")
}

/// BGP between r (AS 65001) and n2 (AS 65002) over links 2 and 4, one session for each family and link.
fn bgp(of_r: bool, ipv4: &str, ipv6: &str) -> String {
    let (own, other, end) = if of_r { (65001, 65002, 2) } else { (65002, 65001, 1) };
    let mut text = format!(
        "router bgp {own}\n bgp router-id 10.255.1.{end}\n no bgp ebgp-requires-policy\n timers bgp 1 3
         no bgp default ipv4-unicast\n"
    );
    let neighbours = |family| {
        [2, 4].map(
            |link| if family == 4 { format!("10.0.{link}.{end}") } else { format!("2001:db8:{link}::{end}") },
        )
    };
    for (family, more) in [(4, ipv4), (6, ipv6)] {
        for neighbour in neighbours(family) {
            text +=
                &format!(" neighbor {neighbour} remote-as {other}\n neighbor {neighbour} timers connect 1\n");
        }
        text += &format!(" address-family ipv{family} unicast\n  {more}\n");
        for (neighbour, weight) in neighbours(family).into_iter().zip([200, 100]) {
            text += &format!("  neighbor {neighbour} activate\n  neighbor {neighbour} weight {weight}\n");
        }
        text += " exit-address-family\n";
    }
    text
}

/// FRR on r, n1 (OSPF) and n2 (BGP).
struct Frr {
    zebra: Option<Running>,
    _others: Vec<Running>,
    folder: Folder,
    of_zebra: &'static str,
}

impl Frr {
    /// Starts all, and waits until both sides know each other.
    fn start(network: &Network, of_zebra: &'static str) -> Self {
        let folder = Folder::new();
        let daemon = |label, daemon, config: &str| frr(network, &folder, label, daemon, config);
        let zebra = daemon("r", "zebra", of_zebra);
        let _others = vec![
            daemon("r", "ospfd", &(ospf(1, [1, 3], "") + " redistribute bgp\n")),
            daemon("r", "ospf6d", &(ospf6(1, [1, 3], "") + " redistribute bgp\n")),
            daemon("r", "bgpd", &bgp(true, "redistribute ospf", "redistribute ospf6")),
            daemon("n1", "zebra", ""),
            daemon("n1", "ospfd", &ospf(2, [1, 3], "interface eth0\n ip ospf area 0\n ip ospf passive\n")),
            daemon(
                "n1",
                "ospf6d",
                &ospf6(2, [1, 3], "interface eth0\n ipv6 ospf6 area 0\n ipv6 ospf6 passive\n"),
            ),
            daemon("n2", "zebra", ""),
            daemon("n2", "bgpd", &bgp(false, "network 10.2.0.0/24", "network 2001:db8:a2::/64")),
        ];
        wait_for_routes(network, "n1", &["10.2.0.0/24", "2001:db8:a2::/64"]);
        wait_for_routes(network, "n2", &["10.1.0.0/24", "2001:db8:a1::/64"]);
        Self { zebra: Some(zebra), _others, folder, of_zebra }
    }
}

#[test]
fn frr_with_ospf_and_bgp_and_links_cut() {
    if !netns::is_root() || !testbed::is_installed(&format!("{FRR}/zebra")) {
        return;
    }
    let network = network();
    let _router = start(&network, PORTS);
    let _frr = Frr::start(&network, "");
    warm_up(&network, "h1", &H2);
    cut(&network, "n1", "eth1", &H2);
    cut(&network, "n2", "eth2", &H2);
}

/// Whether zebra has a connection to the router.
fn has_fpm(network: &Network) -> bool {
    !network.run("r", "ss -Htn state established sport = :2620").1.is_empty()
}

#[test]
fn frr_with_the_forwarding_plane_manager_and_zebra_killed() {
    if !netns::is_root() || !testbed::is_installed(&format!("{FRR}/zebra")) {
        return;
    }
    let network = network();
    let _router = start(&network, &format!("{PORTS} --fpm 127.0.0.1:2620"));
    let mut frr = Frr::start(&network, "fpm address 127.0.0.1 port 2620\n");
    warm_up(&network, "h1", &H2);
    assert!(eventually(|| has_fpm(&network)), "zebra is not connected to the router");
    let before = forwarded_by_the_kernel(&network);
    let (lost, sent) = lost_during(&network, "h1", H2[0], || {
        frr.zebra = None;
        assert!(eventually(|| !has_fpm(&network)), "the connection outlives zebra");
        // What zebra told the router holds, even where the kernel forgets it.
        network.ip("r", "-4 route del 10.2.0.0/24");
        network.ip("r", "-6 route del 2001:db8:a2::/64");
        std::thread::sleep(Duration::from_secs(1));
        warm_up(&network, "h1", &H2);
        let _ = std::fs::remove_file(frr.folder.path().join("r").join("zserv"));
        frr.zebra = Some(self::frr(&network, &frr.folder, "r", "zebra", frr.of_zebra));
        assert!(eventually(|| has_fpm(&network)), "zebra is not connected to the router again");
        std::thread::sleep(Duration::from_secs(3));
    });
    let by_the_kernel = forwarded_by_the_kernel(&network) - before;
    println!("zebra killed and started: {lost} of {sent} pings lost, {by_the_kernel} packets by the kernel");
    assert!(lost <= sent / 20, "{lost} of {sent} lost");
    warm_up(&network, "h1", &H2);
}

/// OSPF of both families over these links, whose cost is the same, and to the hosts if there are any.
fn bird(network: &Network, folder: &Folder, label: &str, id: u8, links: &[&str]) -> Running {
    let links = links.iter().map(|link| format!("interface \"{link}\" {{ type ptp; hello 1; dead 3; }};"));
    let area = format!("area 0 {{ {} interface \"eth0\" {{ stub; }}; }};", links.collect::<String>());
    let mut config = format!("log stderr all; router id 10.255.0.{id}; protocol device {{ scan time 1; }}\n");
    for (version, family) in [(2, "ipv4"), (3, "ipv6")] {
        config += &format!(
            "protocol kernel {{ merge paths; {family} {{ export where source ~ [RTS_OSPF, RTS_OSPF_IA]; }}; }}
             protocol ospf v{version} {{ tick 1; {family}; {area} }}\n"
        );
    }
    let own = folder.path().join(label).display().to_string();
    std::fs::write(format!("{own}.conf"), config).unwrap();
    let running = network.start(label, &format!("{BIRD} -f -c {own}.conf -s {own}.ctl -P {own}.pid"));
    running.wait_until(&format!("{label}: {BIRD}"), || Path::new(&format!("{own}.ctl")).exists());
    running
}

#[test]
fn bird_with_ospf_and_links_cut() {
    if !netns::is_root() || !testbed::is_installed(BIRD) {
        return;
    }
    let network = network();
    let _router = start(&network, PORTS);
    let folder = Folder::new();
    let _birds = [
        bird(&network, &folder, "r", 1, &["eth1", "eth2", "eth3", "eth4"]),
        bird(&network, &folder, "n1", 2, &["eth1", "eth3"]),
        bird(&network, &folder, "n2", 3, &["eth2", "eth4"]),
    ];
    wait_for_routes(&network, "n1", &["10.2.0.0/24", "2001:db8:a2::/64"]);
    wait_for_routes(&network, "n2", &["10.1.0.0/24", "2001:db8:a1::/64"]);
    let both = eventually(|| {
        let (_, routes) = network.run("r", "ip route show 10.2.0.0/24");
        routes.contains("dev eth2") && routes.contains("dev eth4")
    });
    assert!(both, "no equal paths");
    warm_up(&network, "h1", &H2);
    cut(&network, "n1", "eth1", &H2);
    cut(&network, "n2", "eth4", &H2);
}
