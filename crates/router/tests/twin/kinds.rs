//! Kinds of interfaces beside plain ports. Each seed has one: what both worlds have of it before anything else, its own changes,
//! and the headers that its frames come in. Kinds that a kernel lacks are found out by trying, and left out.

use packet::random::SplitMix64;
use testbed::Namespace;

use crate::changes::Draw;

/// A kind of interface.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    /// A command that fails where the kernel lacks the kind.
    needs: &'static str,
    /// Commands for both worlds, which stay when a disagreement is shrunk.
    pub(crate) here: &'static [&'static str],
    /// Lines of `ip` at the far ends.
    pub(crate) far: &'static str,
    /// What the far ends take in beside neighbour discovery, as a rule of nftables.
    pub(crate) far_accepts: &'static str,
    /// The ports of the router.
    pub(crate) ports: &'static [&'static str],
    /// What is around packets that come by its interfaces.
    pub(crate) wrappings: &'static [Wrapping],
    /// Link addresses that its interfaces have at port 1.
    pub(crate) stations: &'static [[u8; 6]],
    /// Whether Linux has packets from the ports that the router does not see, so that with a filter it forwards none of them.
    pub(crate) is_unjudged: bool,
    /// Whether the router refuses the drivers of XDP at its ports.
    pub(crate) refuses_xdp: bool,
    change: fn(&mut Draw<'_>) -> String,
}

/// What is around a packet behind the Ethernet header: tags, or the header of a tunnel from 10.0.1.2 to 10.0.1.1.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wrapping {
    Tags(&'static [[u8; 4]]),
    Ip,
    Gre,
    GreEthernet,
    Vxlan,
    /// From 2001:db8:1::2 to 2001:db8:1::1.
    Ip6,
}

const PLAIN_PORTS: &[&str] = &["eth1", "eth2", "eth3"];

/// Of most kinds.
const PLAIN: Kind = Kind {
    name: "plain",
    needs: "true",
    here: &[],
    far: "",
    far_accepts: "",
    ports: PLAIN_PORTS,
    wrappings: &[],
    stations: &[],
    is_unjudged: false,
    refuses_xdp: false,
    change: |draw| crate::changes::plain(draw),
};

pub(crate) static KINDS: [Kind; 18] = [
    PLAIN,
    Kind { name: "ipv4", here: &["sysctl -qw net.ipv6.conf.all.disable_ipv6=1"], ..PLAIN },
    Kind {
        name: "ipv6",
        here: &[
            "ip -4 addr flush dev eth1",
            "ip -4 addr flush dev eth2",
            "ip -4 addr flush dev eth3",
            "ip -4 addr flush dev eth4",
        ],
        ..PLAIN
    },
    Kind {
        name: "crowd",
        // Without these a router that lost a route would leave its packets to Linux, and nobody would see it.
        here: &["ip route add blackhole 10.9.0.0/16; ip -6 route add blackhole 2001:db8:9::/48"],
        change: |draw| crate::changes::crowd(draw),
        ..PLAIN
    },
    Kind { name: "own", change: |draw| crate::changes::own(draw), ..PLAIN },
    Kind {
        name: "macvlan",
        needs: "ip link add try0 link below type macvlan",
        stations: &[[0, 0, 0x5e, 0, 1, 7], [2, 0, 0, 0, 1, 0x88]],
        is_unjudged: true,
        change: macvlan,
        ..PLAIN
    },
    Kind {
        name: "bridge",
        needs: "ip link add try0 type bridge",
        here: &[BRIDGE],
        stations: &[[2, 0, 0, 0, 5, 1], [2, 0, 0, 0, 3, 1], [2, 0, 0, 0, 3, 2], [2, 0, 0, 0, 4, 2]],
        is_unjudged: true,
        change: bridge,
        ..PLAIN
    },
    Kind {
        name: "bridge_port",
        needs: "ip link add try0 type bridge",
        here: &[BRIDGE, BRIDGED],
        ports: &["eth1", "eth2", "br0"],
        stations: &[[2, 0, 0, 0, 5, 1], [2, 0, 0, 0, 3, 1], [2, 0, 0, 0, 3, 2], [2, 0, 0, 0, 4, 2]],
        is_unjudged: true,
        refuses_xdp: true,
        change: bridge,
        ..PLAIN
    },
    Kind {
        name: "vxlan",
        needs: "ip link add try0 type vxlan id 7 dstport 4789",
        here: &["ip link add vx0 address 02:00:00:00:05:01 type vxlan id 7 local 10.0.1.1 remote 10.0.1.2 \
                 dstport 4789; ip addr add 10.0.5.1/24 dev vx0; ip addr add 2001:db8:5::1/64 dev vx0 nodad; \
                 ip link set vx0 up"],
        far: "link add vx0 address 02:00:00:00:05:02 type vxlan id 7 local 10.0.1.2 remote 10.0.1.1 dstport 4789
              addr add 10.0.5.2/24 dev vx0
              addr add 2001:db8:5::2/64 dev vx0 nodad
              link set vx0 up",
        far_accepts: "udp dport 4789 accept",
        wrappings: &[Wrapping::Vxlan],
        change: vxlan,
        ..PLAIN
    },
    Kind { name: "vlan", ..VLAN },
    Kind { name: "vlan_port", ports: &["eth1", "eth1.5", "eth2", "eth3"], change: vlan_port, ..VLAN },
    Kind {
        name: "vrf",
        needs: "ip link add try0 type vrf table 100",
        here: &["ip link add red type vrf table 100; ip link set red up"],
        change: vrf,
        ..PLAIN
    },
    Kind { name: "bond", ..BOND },
    Kind { name: "bond_port", here: &[MAKE_BOND, BONDED], ports: &["eth1", "eth2", "bond0"], refuses_xdp: true, ..BOND },
    Kind {
        name: "tunnel",
        needs: "ip link add try0 type gre local 10.0.0.1 remote 10.0.0.2",
        here: &[
            "ip link add gre1 type gre local 10.0.1.1 remote 10.0.1.2 ttl 64; ip addr add 10.0.5.1/24 dev gre1; \
             ip addr add 2001:db8:5::1/64 dev gre1 nodad; ip link set gre1 up",
            "ip link add ipip1 type ipip local 10.0.1.1 remote 10.0.1.2 ttl 64; ip addr add 10.0.6.1/24 dev ipip1; \
             ip link set ipip1 up",
            "ip link add sit1 type sit local 10.0.1.1 remote 10.0.1.2 ttl 64; \
             ip addr add 2001:db8:6::1/64 dev sit1 nodad; ip link set sit1 up",
        ],
        wrappings: &[Wrapping::Ip, Wrapping::Gre, Wrapping::Ip6],
        change: tunnel,
        ..PLAIN
    },
    Kind {
        name: "gretap",
        needs: "ip link add try0 type gretap local 10.0.0.1 remote 10.0.0.2",
        here: &["ip link add gt1 address 02:00:00:00:05:01 type gretap local 10.0.1.1 remote 10.0.1.2 ttl 64; \
                 ip addr add 10.0.5.1/24 dev gt1; ip addr add 2001:db8:5::1/64 dev gt1 nodad; ip link set gt1 up"],
        far: "link add gt1 address 02:00:00:00:05:02 type gretap local 10.0.1.2 remote 10.0.1.1
              addr add 10.0.5.2/24 dev gt1
              addr add 2001:db8:5::2/64 dev gt1 nodad
              link set gt1 up",
        far_accepts: "meta l4proto gre accept",
        wrappings: &[Wrapping::GreEthernet],
        change: gretap,
        ..PLAIN
    },
    Kind {
        name: "ipvlan",
        needs: "ip link add try0 link below type ipvlan",
        far: "addr add 10.0.5.2/24 dev far1
              addr add 2001:db8:5::2/64 dev far1 nodad",
        change: ipvlan,
        ..PLAIN
    },
    Kind {
        name: "ifb",
        needs: "ip link add try0 type ifb; tc qdisc add dev below ingress; \
                tc filter add dev below ingress matchall action mirred egress redirect dev try0",
        here: &["ip link add ifb0 type ifb; ip link set ifb0 up"],
        change: ifb,
        ..PLAIN
    },
];

const BRIDGE: &str = "ip link add br0 type bridge forward_delay 0 mcast_snooping 0; ip link set br0 up";
const BRIDGED: &str = "ip addr flush dev eth3; ip link set eth3 master br0; ip addr add 10.0.3.1/24 dev br0; \
                       ip addr add 2001:db8:3::1/64 dev br0 nodad";

const VLAN: Kind = Kind {
    name: "vlan",
    needs: "ip link add link below name try0 type vlan id 5",
    here: &["ip link add link eth1 name eth1.5 type vlan id 5; ip addr add 10.0.5.1/24 dev eth1.5; \
             ip addr add 2001:db8:5::1/64 dev eth1.5 nodad; ip link set eth1.5 up"],
    far: "link add link far1 name far1.5 type vlan id 5
          addr add 10.0.5.2/24 dev far1.5
          addr add 2001:db8:5::2/64 dev far1.5 nodad
          link set far1.5 up",
    wrappings: &[
        Wrapping::Tags(&[[0x81, 0, 0, 5]]),
        Wrapping::Tags(&[[0x81, 0, 0, 5]]),
        Wrapping::Tags(&[[0x81, 0, 0xa0, 5]]),
        Wrapping::Tags(&[[0x81, 0, 0, 5], [0x81, 0, 0, 7]]),
        Wrapping::Tags(&[[0x81, 0, 0, 5], [0x81, 0, 0xe0, 0]]),
        Wrapping::Tags(&[[0x88, 0xa8, 0, 5]]),
        Wrapping::Tags(&[[0x88, 0xa8, 0, 5], [0x81, 0, 0, 7]]),
        Wrapping::Tags(&[[0x81, 0, 0, 6]]),
    ],
    is_unjudged: true,
    change: vlan,
    ..PLAIN
};

const MAKE_BOND: &str = "ip link add bond0 type bond mode active-backup; ip link set bond0 up";
const BONDED: &str = "ip addr flush dev eth3; ip link set eth3 down; ip link set eth3 master bond0; ip link set eth3 up; \
                      ip addr add 10.0.3.1/24 dev bond0; ip addr add 2001:db8:3::1/64 dev bond0 nodad";

const BOND: Kind = Kind {
    name: "bond",
    needs: "ip link add try0 type bond",
    here: &[MAKE_BOND],
    stations: &[[2, 0, 0, 0, 3, 1]],
    is_unjudged: true,
    change: bond,
    ..PLAIN
};

impl Kind {
    /// The kind of a seed: seeds that follow each other have the drivers in turn, so it is that of all drivers.
    pub(crate) fn of(seed: u64, drivers: u64) -> &'static Kind {
        &KINDS[(seed / drivers % KINDS.len() as u64) as usize]
    }

    /// Returns whether this kernel has the kind.
    pub(crate) fn is_here(&self) -> bool {
        let namespace = Namespace::new(Namespace::unique_name("twin-k")).unwrap();
        namespace.ip("link add below type veth peer name other").unwrap();
        namespace.script(self.needs).is_ok()
    }

    /// Draws a change: one of the kind's own, or any.
    pub(crate) fn change(&self, random: &mut SplitMix64) -> String {
        let mut draw = Draw(random);
        if draw.0.one_in(2) { (self.change)(&mut draw) } else { crate::changes::plain(&mut draw) }
    }
}

/// A route through a neighbour on the network of the kind's interface, or the interface itself.
fn route(draw: &mut Draw<'_>, interface: &str, network: u64) -> String {
    let verb = draw.of(&["replace", "replace", "add", "del", "append"]);
    if draw.0.one_in(2) {
        let prefix = draw.of(&["10.9.0.0/16", "10.9.1.0/24", "198.51.100.0/24", "default"]);
        let way = draw.of(&["via", "via", "dev"]);
        let via = if way == "via" { format!(" via 10.0.{network}.2") } else { String::new() };
        format!("ip route {verb} {prefix}{via} dev {interface}")
    } else {
        let prefix = draw.of(&["2001:db8:9::/48", "2001:db8:9:1::/64", "2001:db8:a::/48", "default"]);
        format!("ip -6 route {verb} {prefix} via 2001:db8:{network}::2 dev {interface}")
    }
}

/// What may happen to any interface.
fn interface(draw: &mut Draw<'_>, name: &str) -> String {
    let on = draw.number(0, 1);
    match draw.0.below(9) {
        0 => format!("ip link set {name} down"),
        1 | 2 => format!("ip link set {name} up"),
        3 => format!("ip link set {name} mtu {}", draw.of(&["1500", "1400", "1300", "1280", "1000"])),
        4 => format!("sysctl -qw net/ipv4/conf/{name}/forwarding={on}"),
        5 => format!("sysctl -qw net/ipv4/conf/{name}/rp_filter={}", draw.number(0, 2)),
        6 => format!("sysctl -qw net/ipv6/conf/{name}/disable_ipv6={on}"),
        7 => format!("sysctl -qw net/ipv4/conf/{name}/{}={on}", draw.of(&["accept_local", "proxy_arp"])),
        _ => format!("ip rule add pref {} iif {name} lookup 100", draw.number(100, 104)),
    }
}

fn macvlan(draw: &mut Draw<'_>) -> String {
    let mode = draw.of(&["private", "bridge", "vepa", "passthru", "source"]);
    match draw.0.below(10) {
        0 | 1 => {
            let port = draw.port();
            format!(
                "ip link add vrrp7 link {port} address 00:00:5e:00:01:07 type macvlan mode {mode}; ip link set vrrp7 up"
            )
        }
        2 | 3 => {
            let port = draw.of(&["eth1", "eth2", "eth4"]);
            format!(
                "ip link add mvt0 link {port} address 02:00:00:00:01:88 type macvtap mode {mode}; ip link set mvt0 up"
            )
        }
        4 => "ip link add mv4 link eth4 type macvlan mode bridge; ip link set mv4 up".to_owned(),
        5 => format!("ip link del {}", draw.of(&["vrrp7", "mvt0", "mv4"])),
        6 => format!("ip addr {} 10.0.1.254/32 dev vrrp7", draw.of(&["add", "del"])),
        7 => format!("ip route replace 10.9.0.0/16 via 10.0.{}.2 dev vrrp7 onlink", draw.number(1, 3)),
        _ => {
            let name = draw.of(&["vrrp7", "mvt0", "mv4"]);
            interface(draw, name)
        }
    }
}

fn bridge(draw: &mut Draw<'_>) -> String {
    let member = draw.of(&["eth3", "eth3", "eth4", "eth1", "eth2"]);
    match draw.0.below(14) {
        0 | 1 => format!("ip link set {member} master br0"),
        2 => format!("ip link set {member} nomaster"),
        3 => BRIDGED.to_owned(),
        4 => "ip link set eth4 master br0; ip addr flush dev eth4; ip addr add 10.0.4.1/24 dev br0; \
              ip addr add 2001:db8:4::1/64 dev br0 nodad"
            .to_owned(),
        5 => "ip addr flush dev br0; ip link set eth3 nomaster; ip addr add 10.0.3.1/24 dev eth3; \
              ip addr add 2001:db8:3::1/64 dev eth3 nodad"
            .to_owned(),
        6 => "ip link set br0 address 02:00:00:00:05:01".to_owned(),
        7 => "ip link del br0".to_owned(),
        8 => "ip link add vrrp7 link br0 address 00:00:5e:00:01:07 type macvlan mode private; ip link set vrrp7 up"
            .to_owned(),
        9 => {
            let switch = draw.of(&["hairpin on", "isolated on", "learning off", "flood off", "neigh_suppress on"]);
            // Whether the far end has said something before is up to chance.
            format!("bridge link set dev {member} {switch}; ip link set {member} type bridge_slave fdb_flush")
        }
        10 | 11 => {
            let network = draw.number(3, 4);
            route(draw, "br0", network)
        }
        _ => interface(draw, "br0"),
    }
}

fn vxlan(draw: &mut Draw<'_>) -> String {
    match draw.0.below(10) {
        0..=3 => route(draw, "vx0", 5),
        4 => "ip link add br0 type bridge forward_delay 0 mcast_snooping 0; ip link set br0 up; ip link set vx0 master br0; \
              ip link set eth4 master br0"
            .to_owned(),
        5 => "ip link set vx0 master br0; ip link set eth3 master br0".to_owned(),
        6 => "ip link set vx0 nomaster".to_owned(),
        7 => "ip link del vx0; ip link add vx0 address 02:00:00:00:05:01 type vxlan id 7 local 10.0.1.1 remote 10.0.1.2 \
              dstport 4789 dev eth1; ip addr add 10.0.5.1/24 dev vx0; ip link set vx0 up"
            .to_owned(),
        _ => interface(draw, "vx0"),
    }
}

fn vlan(draw: &mut Draw<'_>) -> String {
    match draw.0.below(14) {
        0..=2 => route(draw, "eth1.5", 5),
        3 => "ip link add link eth1.5 name eth1.5.7 type vlan id 7; ip addr add 10.0.6.1/24 dev eth1.5.7; \
              ip link set eth1.5.7 up"
            .to_owned(),
        4 => "ip link add link eth1 name eth1s type vlan proto 802.1ad id 5; ip addr add 10.0.6.1/24 dev eth1s; \
              ip link set eth1s up"
            .to_owned(),
        5 => "ip link add link eth1s name eth1s.7 type vlan id 7; ip link set eth1s.7 up".to_owned(),
        6 => "ip link add link eth2 name eth2.5 type vlan id 5; ip link set eth2.5 up".to_owned(),
        7 => "ip link del eth1.5".to_owned(),
        8 => "ip link add link eth1 name eth1.5 type vlan id 5; ip addr add 10.0.5.1/24 dev eth1.5; ip link set eth1.5 up"
            .to_owned(),
        9 => "ip link add br0 type bridge forward_delay 0 mcast_snooping 0; ip link set br0 up; \
              ip link set eth1.5 master br0"
            .to_owned(),
        10 => format!(
            "ip link set eth1.5 {}",
            draw.of(&[
                "type vlan egress 0:5",
                "type vlan reorder_hdr off",
                "name wan5",
                "nomaster",
                "address 02:00:00:00:01:55"
            ])
        ),
        11 => "ip link add vrrp7 link eth1.5 address 00:00:5e:00:01:07 type macvlan mode private; ip link set vrrp7 up"
            .to_owned(),
        _ => interface(draw, "eth1.5"),
    }
}

/// Not that the VLAN goes: where it is a port and Linux has no interface for it, the router makes one, and forwards.
fn vlan_port(draw: &mut Draw<'_>) -> String {
    loop {
        let change = vlan(draw);
        if change != "ip link del eth1.5" {
            return change;
        }
    }
}

fn vrf(draw: &mut Draw<'_>) -> String {
    let port = draw.of(&["eth1", "eth2", "eth3", "eth4"]);
    match draw.0.below(12) {
        0..=2 => format!("ip link set {port} master red"),
        3 => format!("ip link set {port} nomaster"),
        4 => format!(
            "ip link set {port} master red; ip addr add 2001:db8:{0}::1/64 dev {port} nodad",
            &port[3..]
        ),
        // Routes that lead out of a VRF, and into one.
        5 => {
            let prefix = draw.of(&["10.9.0.0/16", "10.9.1.0/24", "default"]);
            format!("ip route replace {prefix} via 10.0.{0}.2 dev eth{0} table 100", draw.number(1, 4))
        }
        6 => format!(
            "ip route replace {} dev red",
            draw.of(&["10.9.0.0/16", "198.51.100.0/24", "10.0.2.0/24"])
        ),
        7 => format!("ip -6 route replace {} dev red", draw.of(&["2001:db8:9::/48", "2001:db8:2::/64"])),
        8 => {
            let number = draw.number(1, 4);
            format!("ip -6 route replace 2001:db8:9::/48 via 2001:db8:{number}::2 dev eth{number} table 100")
        }
        9 => draw
            .of(&[
                "ip route add unreachable default metric 4278198272 table 100",
                "ip route add table 100 throw default",
                "ip rule add pref 90 iif red lookup main",
                "ip link del red",
                "ip link add blue type vrf table 200; ip link set blue up; ip link set eth3 master blue",
                "sysctl -qw net.ipv4.conf.red.forwarding=0",
                "ip addr add 10.9.2.7/32 dev red",
            ])
            .to_owned(),
        _ => interface(draw, port),
    }
}

fn bond(draw: &mut Draw<'_>) -> String {
    match draw.0.below(10) {
        0 | 1 => BONDED.to_owned(),
        2 => "ip link set eth3 nomaster; ip link set eth3 up".to_owned(),
        3 => {
            let port = draw.of(&["eth2", "eth4"]);
            format!("ip link set {port} down; ip link set {port} master bond0; ip link set {port} up")
        }
        4 => format!("ip link set bond0 type bond active_slave {}", draw.of(&["eth3", "eth4"])),
        5 | 6 => route(draw, "bond0", 3),
        7 => "ip link del bond0".to_owned(),
        _ => interface(draw, "bond0"),
    }
}

fn tunnel(draw: &mut Draw<'_>) -> String {
    let name = draw.of(&["gre1", "gre1", "ipip1", "sit1"]);
    match draw.0.below(10) {
        0..=3 if name == "sit1" => {
            let prefix = draw.of(&["2001:db8:9::/48", "2001:db8:a::/48", "default"]);
            format!("ip -6 route replace {prefix} dev sit1")
        }
        0..=3 => {
            let prefix = draw.of(&["10.9.0.0/16", "10.9.1.0/24", "198.51.100.0/24", "default"]);
            format!("ip route replace {prefix} dev {name}")
        }
        4 => "ip -6 route replace 2001:db8:9::/48 dev gre1".to_owned(),
        5 => format!("ip link set {name} type {} ttl {}", &name[..name.len() - 1], draw.of(&["inherit", "9"])),
        6 => "ip link add ip6t1 type ip6tnl mode any local 2001:db8:1::1 remote 2001:db8:1::2 encaplimit none; \
              ip link set ip6t1 up"
            .to_owned(),
        7 => format!("ip route replace 10.9.0.0/16 encap ip id 5 dst 10.0.1.2 dev {name}"),
        _ => interface(draw, name),
    }
}

fn gretap(draw: &mut Draw<'_>) -> String {
    match draw.0.below(8) {
        0..=3 => route(draw, "gt1", 5),
        4 => "ip link add br0 type bridge forward_delay 0 mcast_snooping 0; ip link set br0 up; ip link set gt1 master br0; \
              ip link set eth4 master br0"
            .to_owned(),
        5 => "ip link set gt1 master br0; ip link set eth3 master br0".to_owned(),
        _ => interface(draw, "gt1"),
    }
}

fn ipvlan(draw: &mut Draw<'_>) -> String {
    let mode = draw.of(&["l2", "l3", "l3s"]);
    match draw.0.below(8) {
        0..=2 => {
            let flag = draw.of(&["bridge", "private", "vepa"]);
            format!(
                "ip link add ipv0 link eth1 type ipvlan mode {mode} {flag}; ip link set ipv0 up; \
                 ip addr add 10.0.5.1/24 dev ipv0; ip addr add 2001:db8:5::1/64 dev ipv0 nodad"
            )
        }
        3 => "ip link del ipv0".to_owned(),
        4 | 5 => route(draw, "ipv0", 5),
        _ => interface(draw, "ipv0"),
    }
}

fn ifb(draw: &mut Draw<'_>) -> String {
    let port = draw.of(&["eth1", "eth2", "eth4"]);
    match draw.0.below(6) {
        0 => format!("tc qdisc add dev {port} ingress"),
        1 => format!(
            "tc qdisc add dev {port} clsact; tc filter add dev {port} ingress matchall action mirred egress redirect dev ifb0"
        ),
        2 => format!("tc qdisc add dev {port} clsact; tc filter add dev {port} ingress matchall action pass"),
        3 => format!("tc qdisc del dev {port} {}", draw.of(&["clsact", "ingress"])),
        4 => format!("tc qdisc replace dev {port} root {}", draw.of(&["fq_codel", "pfifo_fast", "prio"])),
        _ => interface(draw, "ifb0"),
    }
}
