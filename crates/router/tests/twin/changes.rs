//! Random changes of Linux's state, as commands of `ip` and `sysctl`: routes with the attributes that `ip` knows, next-hop
//! objects, rules, neighbours, addresses, links, and the switches of interfaces. A command may fail: it fails in both worlds.
//! Those of kinds of interfaces stand in `kinds`.

use packet::random::SplitMix64;

/// Destinations of routes.
const PREFIXES4: [&str; 8] = [
    "10.9.0.0/16",
    "10.9.1.0/24",
    "10.9.1.192/26",
    "10.9.2.7/32",
    "198.51.100.0/24",
    "default",
    "203.0.113.0/24",
    "10.0.3.0/25",
];
const PREFIXES6: [&str; 6] = [
    "2001:db8:9::/48",
    "2001:db8:9:1::/64",
    "2001:db8:9:1::7/128",
    "default",
    "2001:db8:a::/48",
    "2001:db8:3::/80",
];

/// Names that interfaces have or get.
const PORTS: [&str; 3] = ["eth1", "eth2", "eth3"];
const NAMES: [&str; 6] = ["eth1", "eth2", "eth3", "wan0", "lan0", "vrrp7"];

/// Draws from lists of words.
pub(crate) struct Draw<'a>(pub(crate) &'a mut SplitMix64);

impl Draw<'_> {
    pub(crate) fn of<'b>(&mut self, choices: &[&'b str]) -> &'b str {
        choices[self.0.below(choices.len() as u64) as usize]
    }

    pub(crate) fn number(&mut self, from: u64, to: u64) -> u64 {
        from + self.0.below(to - from + 1)
    }

    /// What is drawn, behind a space, once in `one_in` times.
    fn maybe(&mut self, one_in: u64, draw: impl FnOnce(&mut Self) -> String) -> String {
        if self.0.one_in(one_in) { format!(" {}", draw(self)) } else { String::new() }
    }

    pub(crate) fn port(&mut self) -> &'static str {
        // Mostly one that has its first name still.
        if self.0.one_in(6) { self.of(&NAMES) } else { self.of(&PORTS) }
    }
}

/// Draws a change that needs no kind of interface but the ports.
pub(crate) fn plain(draw: &mut Draw<'_>) -> String {
    match draw.0.below(32) {
        0..=8 => route4(draw),
        9..=15 => route6(draw),
        16 | 17 => next_hop(draw),
        18 | 19 => rule(draw),
        20 => neighbour(draw),
        21 | 22 => address(draw),
        23..=26 => link(draw),
        _ => switch(draw),
    }
}

fn route4(draw: &mut Draw<'_>) -> String {
    let verb = draw.of(&["add", "replace", "replace", "del", "append", "prepend"]);
    let prefix = draw.of(&PREFIXES4);
    let metric = draw.maybe(4, |draw| format!("metric {}", draw.0.below(3) * 10));
    let table = draw.maybe(6, |_| "table 100".into());
    let tos = draw.maybe(12, |_| "tos 0x10".into());
    let way = match draw.0.below(16) {
        0 => {
            let kind = draw.of(&["blackhole", "unreachable", "prohibit", "throw", "multicast", "broadcast"]);
            let way = if kind.ends_with("cast") { format!(" dev {}", draw.port()) } else { String::new() };
            return format!("ip route {verb} {kind} {prefix}{way}{metric}{table}{tos}");
        }
        1 => format!("nhid {}", draw.number(1, 6)),
        2 => format!("dev {}", draw.port()),
        3 => format!("via inet6 2001:db8:{}::2 dev {}", draw.number(1, 3), draw.port()),
        4 => format!("via 10.0.{}.9", draw.number(1, 3)),
        5 => format!("via 10.77.0.1 dev {} onlink", draw.port()),
        6 => {
            let weight = draw.number(1, 3);
            format!("nexthop via 10.0.2.2 weight {weight} nexthop via 10.0.3.2")
        }
        7 => return format!("ip route {verb} local 203.0.113.0/28 dev lo"),
        _ => format!("via 10.0.{}.2", draw.number(1, 3)),
    };
    let attributes = match draw.0.below(12) {
        0 => " mtu 1300".to_owned(),
        1 => " mtu lock 1300".to_owned(),
        2 => format!(" src 10.0.{}.1", draw.number(1, 3)),
        3 => format!(" {}", draw.of(&["hoplimit 33", "advmss 1000", "initcwnd 9", "realms 5", "quickack 1"])),
        4 => format!(" proto {}", draw.of(&["static", "bgp", "boot"])),
        5 => " scope link".to_owned(),
        _ => String::new(),
    };
    format!("ip route {verb} {prefix} {way}{metric}{table}{tos}{attributes}")
}

fn route6(draw: &mut Draw<'_>) -> String {
    let verb = draw.of(&["add", "replace", "replace", "del", "append"]);
    let prefix = draw.of(&PREFIXES6);
    let metric = draw.maybe(4, |draw| format!("metric {}", 100 + draw.0.below(3) * 10));
    let table = draw.maybe(6, |_| "table 100".into());
    let from = draw.maybe(5, |draw| format!("from {}", draw.of(&["2001:db8:b::/48", "2001:db8:1::/64"])));
    let way = match draw.0.below(12) {
        0 => {
            let kind = draw.of(&["blackhole", "unreachable", "prohibit", "throw"]);
            return format!("ip -6 route {verb} {kind} {prefix}{from}{metric}{table}");
        }
        1 => format!("nhid {}", draw.number(1, 6)),
        2 => format!("dev {}", draw.port()),
        3 => format!("via 2001:db8:{}::9", draw.number(1, 3)),
        4 => "nexthop via 2001:db8:2::2 weight 2 nexthop via 2001:db8:3::2".to_owned(),
        5 => return format!("ip -6 route {verb} local 2001:db8:a::7/128 dev lo"),
        6 => format!("via fe80::ff:fe00:{0}02 dev eth{0}", draw.number(1, 3)),
        _ => format!("via 2001:db8:{}::2", draw.number(1, 3)),
    };
    let attributes = match draw.0.below(10) {
        0 => " mtu 1300".to_owned(),
        1 => format!(" pref {}", draw.of(&["low", "medium", "high"])),
        2 => format!(" expires {}", draw.number(1, 2)),
        3 => format!(" {}", draw.of(&["hoplimit 33", "advmss 1000", "initcwnd 9", "quickack 1"])),
        _ => String::new(),
    };
    format!("ip -6 route {verb} {prefix}{from} {way}{metric}{table}{attributes}")
}

/// Some routes that share prefix and table: which of them counts, and which comes back.
pub(crate) fn crowd(draw: &mut Draw<'_>) -> String {
    let is_ipv4 = !draw.0.one_in(3);
    [0; 6].map(|_| crowded(draw, is_ipv4)).join("; ")
}

fn crowded(draw: &mut Draw<'_>, is_ipv4: bool) -> String {
    let (route, prefix, number) = match is_ipv4 {
        true => ("ip route", "10.9.1.0/24", draw.maybe(12, |_| "tos 0x10".into())),
        false => ("ip -6 route", "2001:db8:9:1::/64", String::new()),
    };
    let number = number + &draw.maybe(12, |_| "metric 110".into());
    let verb = match draw.0.below(8) {
        // IPv6 knows no order but that of coming.
        0..=1 if is_ipv4 => "prepend",
        0..=3 => "append",
        4 => "replace",
        5 => "change",
        // Without a way the first one goes.
        _ if !draw.0.one_in(4) => return format!("{route} del {prefix}{number}"),
        _ => "del",
    };
    let way = match draw.0.below(8) {
        0 => format!("dev eth{}", draw.number(1, 3)),
        1 => format!("nhid {}", draw.number(1, 6)),
        _ if is_ipv4 => format!("via 10.0.{}.2", draw.number(1, 3)),
        _ => format!("via 2001:db8:{}::2", draw.number(1, 3)),
    };
    format!("{route} {verb} {prefix} {way}{number}")
}

/// What makes sources and destinations the host's own: local networks, settings of sources, and ports without addresses.
pub(crate) fn own(draw: &mut Draw<'_>) -> String {
    let verb = draw.of(&["add", "add", "del"]);
    let port = draw.of(&PORTS);
    let number = draw.number(1, 3);
    match draw.0.below(18) {
        15 | 16 => format!("ip -4 rule {verb} pref 101 iif {port} {}", draw.of(&["lookup 100", "prohibit"])),
        17 => format!("ip route {verb} default via 10.0.{number}.2 table 100"),
        0 => format!("ip route {verb} local 192.168.9.0/24 dev lo"),
        1 => format!("ip addr {verb} 192.168.9.1/24 dev lo"),
        2 => format!("ip route {verb} {} 10.9.1.5 dev lo", draw.of(&["local", "broadcast", "anycast"])),
        3 => {
            format!("ip -6 route {verb} {} 2001:db8:9::/48 table local", draw.of(&["blackhole", "prohibit"]))
        }
        4 => format!("ip -6 route {verb} local 2001:db8:9:1::/64 dev lo"),
        5 => format!("ip -6 route {verb} default via 2001:db8:2::2 table local"),
        6 => format!("ip -4 rule {verb} pref 100 to 10.99.0.0/16 lookup 100"),
        7 | 8 => format!("sysctl -qw net.ipv4.conf.{port}.rp_filter={}", draw.number(0, 2)),
        9 => format!("ip -4 addr flush dev {port}"),
        10 => format!("ip addr add 10.0.{number}.1/24 dev eth{number}"),
        11 | 12 => format!("ip link set {port} mtu {}", draw.of(&["1200", "1200", "1500"])),
        13 => format!("sysctl -qw net.ipv4.conf.{port}.accept_local={}", draw.number(0, 1)),
        _ => format!("ip addr {verb} 2001:db8:9:1::7/128 dev lo"),
    }
}

fn next_hop(draw: &mut Draw<'_>) -> String {
    let number = draw.number(1, 6);
    match draw.0.below(8) {
        0 => format!("ip nexthop del id {number}"),
        1 => format!("ip nexthop replace id {number} blackhole"),
        2 | 3 => format!("ip nexthop replace id {number} group 1/2"),
        4 => format!("ip nexthop replace id {number} group 1,3/2"),
        5 => format!("ip nexthop replace id {number} via 2001:db8:{0}::2 dev eth{0}", draw.number(1, 3)),
        _ => format!("ip nexthop replace id {number} via 10.0.{0}.2 dev eth{0}", draw.number(1, 3)),
    }
}

fn rule(draw: &mut Draw<'_>) -> String {
    let family = draw.of(&["-4", "-6"]);
    let verb = draw.of(&["add", "add", "add", "del"]);
    let preference = draw.number(100, 104);
    let selector = match draw.0.below(9) {
        0 if family == "-4" => "from 10.0.1.0/24".to_owned(),
        0 => "from 2001:db8:1::/64".to_owned(),
        1 if family == "-4" => "to 10.9.1.0/24".to_owned(),
        1 => "to 2001:db8:9:1::/64".to_owned(),
        2 => format!("iif {}", draw.port()),
        3 => format!("oif {}", draw.port()),
        4 => "fwmark 0x100".to_owned(),
        5 => format!("ipproto {}", draw.of(&["udp", "tcp", "253"])),
        6 => format!("{} {}", draw.of(&["sport", "dport"]), draw.of(&["5000", "5000-5010", "443"])),
        7 => format!("tos {}", draw.of(&["0x10", "0x08"])),
        _ => "from all".to_owned(),
    };
    let negated = draw.maybe(10, |_| "not".into());
    let action = match draw.0.below(8) {
        0 => draw.of(&["blackhole", "prohibit", "unreachable"]).to_owned(),
        1 => "lookup main suppress_prefixlength 0".to_owned(),
        2 => "lookup main".to_owned(),
        _ => "lookup 100".to_owned(),
    };
    format!("ip {family} rule {verb}{negated} pref {preference} {selector} {action}")
}

fn neighbour(draw: &mut Draw<'_>) -> String {
    let number = draw.number(1, 3);
    let host = draw.of(&["9", "2", "7"]);
    match draw.0.below(6) {
        0 => format!("ip neigh del 10.0.{number}.{host} dev eth{number}"),
        1 => format!("ip -6 neigh add proxy 2001:db8:a::1 dev eth{number}"),
        2 => format!(
            "ip neigh replace 2001:db8:{number}::{host} lladdr 02:00:00:00:0{number}:99 dev eth{number} nud permanent"
        ),
        _ => format!(
            "ip neigh replace 10.0.{number}.{host} lladdr 02:00:00:00:0{number}:99 dev eth{number} nud permanent"
        ),
    }
}

fn address(draw: &mut Draw<'_>) -> String {
    let verb = draw.of(&["add", "add", "del"]);
    let number = draw.number(1, 3);
    match draw.0.below(7) {
        0 => format!("ip addr {verb} 10.9.2.7/32 dev lo"),
        1 => format!("ip addr {verb} 10.0.{number}.1/24 dev eth{number}"),
        2 => format!("ip addr {verb} 10.0.{number}.129/25 dev eth{number}"),
        3 => format!("ip addr {verb} 10.9.1.1/24 dev eth{number}"),
        4 => format!("ip addr {verb} 10.0.1.254/32 dev vrrp7"),
        5 => format!("ip addr {verb} 2001:db8:9:1::7/128 dev lo"),
        _ => format!("ip addr {verb} 2001:db8:{number}::1/64 dev eth{number} nodad"),
    }
}

fn link(draw: &mut Draw<'_>) -> String {
    let port = draw.port();
    match draw.0.below(16) {
        0 => format!("ip link set {port} down"),
        1 | 2 => format!("ip link set {port} up"),
        3 | 4 => format!("ip link set {port} mtu {}", draw.of(&["1500", "1400", "1300", "1280", "1000"])),
        5 => format!("ip link set {port} address 02:00:00:00:0{}:77", draw.number(1, 3)),
        6..=8 => format!("ip link set {port} name {}", draw.of(&NAMES)),
        9 | 10 => {
            format!("ip link add vrrp7 link {port} address 00:00:5e:00:01:07 type macvlan mode private")
        }
        11 | 12 => "ip link set vrrp7 up".to_owned(),
        13 => format!("ip link {} vrrp7", draw.of(&["del", "set down dev"])),
        14 => format!("ip link set {port} {}", draw.of(&["promisc on", "allmulticast on", "promisc off"])),
        _ => format!("ip link property add dev {port} altname alt-{port}"),
    }
}

/// A switch of an interface, or of all.
fn switch(draw: &mut Draw<'_>) -> String {
    let port = if draw.0.one_in(4) { draw.of(&["all", "default", "lo"]) } else { draw.port() };
    let on = draw.number(0, 1);
    match draw.0.below(20) {
        0..=3 => format!("sysctl -qw net.ipv4.conf.{port}.forwarding={on}"),
        4 => format!("sysctl -qw net.ipv4.ip_forward={on}"),
        5 => format!("sysctl -qw net.ipv6.conf.all.forwarding={on}"),
        6 => format!("sysctl -qw net.ipv6.conf.{port}.force_forwarding={on}"),
        7 | 8 => format!("sysctl -qw net.ipv4.conf.{port}.rp_filter={}", draw.number(0, 2)),
        9 | 10 => {
            format!("sysctl -qw net.ipv6.conf.{port}.mtu={}", draw.of(&["1280", "1300", "1400", "1500"]))
        }
        11 => format!("sysctl -qw net.ipv6.conf.{port}.disable_ipv6={on}"),
        12 => format!(
            "sysctl -qw net.ipv{}.fib_multipath_hash_policy={}",
            draw.of(&["4", "6"]),
            draw.number(0, 3)
        ),
        13 => format!("sysctl -qw net.ipv4.conf.{port}.ignore_routes_with_linkdown={on}"),
        14 => format!("sysctl -qw net.ipv6.conf.{port}.accept_source_route={on}"),
        _ => {
            let name = draw.of(&[
                "accept_source_route",
                "accept_local",
                "route_localnet",
                "bc_forwarding",
                "proxy_arp",
                "disable_policy",
                "disable_xfrm",
                "src_valid_mark",
                "log_martians",
                "drop_unicast_in_l2_multicast",
                "shared_media",
            ]);
            format!("sysctl -qw net.ipv4.conf.{port}.{name}={on}")
        }
    }
}
