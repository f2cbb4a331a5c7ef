//! What Linux and routing daemons tell us, as plain data. Names and meanings are those of rtnetlink(7); numbers are in
//! host order.

use std::fmt;
use std::net::IpAddr;

use ipnet::{IpNet, Ipv6Net};
use packet::IpVersion;
use serde::{Deserialize, Serialize};

/// Number of a network interface of Linux; 0 is none.
pub type InterfaceIndex = u32;

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Its number.
    pub index: InterfaceIndex,
    /// Its name.
    pub name: String,
    /// Its Ethernet address, where it has one.
    pub mac: Option<[u8; 6]>,
    /// Largest packet, in bytes.
    pub mtu: u32,
    /// Whether the administrator has it up (`IFF_UP`).
    pub is_up: bool,
    /// Whether it can carry packets (`IFF_LOWER_UP`).
    pub has_carrier: bool,
    /// The bridge, bond or VRF that it belongs to.
    pub master: Option<InterfaceIndex>,
    /// The interface below (`IFLA_LINK`): the port of a VLAN.
    pub below: Option<InterfaceIndex>,
    /// `veth`, `vlan`, `vrf` and so on; empty for a card. A macvlan that takes what is to others has its mode behind:
    /// `macvlan passthru`, `macvlan source`.
    pub kind: String,
    /// The 802.1Q number of a VLAN interface.
    pub vlan: Option<u16>,
    /// Whether a VLAN interface writes priorities into its tags (`egress-qos-map`).
    pub has_priorities: bool,
    /// The table of a VRF interface.
    pub vrf_table: Option<u32>,
}

/// An address of an interface.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Address {
    /// The interface.
    pub index: InterfaceIndex,
    /// The address (`IFA_LOCAL`, or `IFA_ADDRESS` where there is no local one).
    pub address: IpAddr,
    /// Length of the prefix of its link, in bits.
    pub prefix_length: u8,
}

/// Who tells of routes; of two that are else equal, the route of the first is the better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// The kernel of the host, over netlink.
    Netlink,
    /// A routing daemon, over FRR's forwarding plane manager protocol.
    Fpm,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Source::Netlink => "netlink",
            Source::Fpm => "fpm",
        })
    }
}

/// What happens to packets of a route (`rtm_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RouteKind {
    /// Forwarded.
    Unicast,
    /// For this host.
    Local,
    /// For all hosts of a link, this one among them.
    Broadcast,
    /// For this host as one of several.
    Anycast,
    /// For a group.
    Multicast,
    /// Dropped without a word.
    Blackhole,
    /// Dropped with "host unreachable".
    Unreachable,
    /// Dropped with "administratively prohibited".
    Prohibit,
    /// The search goes on with the next rule.
    Throw,
}

impl RouteKind {
    /// The name that `ip route` has for it.
    pub fn name(self) -> &'static str {
        match self {
            RouteKind::Unicast => "unicast",
            RouteKind::Local => "local",
            RouteKind::Broadcast => "broadcast",
            RouteKind::Anycast => "anycast",
            RouteKind::Multicast => "multicast",
            RouteKind::Blackhole => "blackhole",
            RouteKind::Unreachable => "unreachable",
            RouteKind::Prohibit => "prohibit",
            RouteKind::Throw => "throw",
        }
    }
}

/// What tells the routes of one source apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RouteKey {
    /// The table, 254 is main, 255 local.
    pub table: u32,
    /// The destinations.
    pub prefix: IpNet,
    /// Its priority: of several routes to a prefix the one with the lowest is in force.
    pub metric: u32,
    /// The type of service that packets must have; 0 for any.
    pub tos: u8,
    /// The sources that packets must have (`RTA_SRC`, IPv6 only); none for any.
    pub from: Option<Ipv6Net>,
}

/// Something of a route or next-hop object that decides about packets, and that only Linux obeys. These packets
/// are punted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum OnlyLinux {
    /// An attribute that is not known here (`RTA_*`), by its number.
    Attribute(u16),
    /// A metric that is not known here (`RTAX_*`), by its number.
    Metric(u16),
    /// An attribute of a path that is not known here (`RTA_*`), by its number.
    PathAttribute(u16),
    /// An attribute of a next-hop object that is not known here (`NHA_*`), by its number.
    ObjectAttribute(u16),
    /// Flags that are not known here (`RTM_F_*`, `RTNH_F_*`).
    Flags(u32),
    /// A kind of route that is not known here (`rtm_type`).
    Kind(u8),
    /// A kind of group that is not known here (`NHA_GROUP_TYPE`), and resilient groups: which flows are where is in a
    /// table of buckets, which moves with the traffic that Linux sees.
    GroupKind(u16),
    /// A path with a weight that is larger than those of the forwarding table.
    Weight(u16),
    /// An MTU that counts before those that Linux has learned of paths (`mtu lock`).
    LockedMtu,
    /// Several IPv6 routes of one metric that are not paths of one route, where it takes more than their preference to
    /// say which one Linux takes.
    Choice,
}

impl fmt::Display for OnlyLinux {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Attribute(number) => write!(f, "a route has the unknown attribute {number}"),
            Self::Metric(number) => write!(f, "a route has the unknown metric {number}"),
            Self::PathAttribute(number) => write!(f, "a path has the unknown attribute {number}"),
            Self::ObjectAttribute(number) => write!(f, "it has the unknown attribute {number}"),
            Self::Flags(flags) => write!(f, "unknown flags {flags:#x}"),
            Self::Kind(kind) => write!(f, "a route is of the unknown kind {kind}"),
            Self::GroupKind(1) => write!(f, "it is a resilient group"),
            Self::GroupKind(kind) => write!(f, "it is a group of the unknown kind {kind}"),
            Self::Weight(weight) => write!(f, "a path has the weight {weight}, more than 256"),
            Self::LockedMtu => write!(f, "a route has a locked MTU"),
            Self::Choice => write!(f, "several routes have the same metric"),
        }
    }
}

/// One way to a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Path {
    /// The interface; 0 if none is named.
    pub index: InterfaceIndex,
    /// The router that the packet is handed to; of the other family than the prefix for RFC 8950 (`RTA_VIA`).
    pub gateway: Option<IpAddr>,
    /// Its share among the paths, 1 or more.
    pub weight: u16,
    /// Whether the kernel says that it cannot be used (`RTNH_F_DEAD`, `RTNH_F_LINKDOWN`).
    pub is_down: bool,
    /// Whether labels or another encapsulation go on the packet (`RTA_ENCAP`), which the fast path does not do.
    pub has_encapsulation: bool,
}

/// Where packets of a route go.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Hops {
    /// Nowhere: the kind says it all.
    None,
    /// One path or several.
    Paths(Vec<Path>),
    /// A next-hop object (`ip nexthop`), by its id.
    Object(u32),
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// What tells it apart.
    pub key: RouteKey,
    /// What happens to packets.
    pub kind: RouteKind,
    /// Who made it (`rtm_protocol`): 2 the kernel, 4 the administrator, 11 zebra, 186 BGP, ...
    pub protocol: u8,
    /// The source address that the host uses for its own packets, a hint of no meaning for forwarding.
    pub preferred_source: Option<IpAddr>,
    /// Largest packet on this route, if smaller than the link's (`RTAX_MTU`).
    pub mtu: Option<u32>,
    /// Which of several IPv6 routes of one key counts (`RTA_PREF`, RFC 4191): that of the largest number.
    pub preference: u8,
    /// Why only Linux can say what happens to packets to this prefix.
    pub only_linux: Option<OnlyLinux>,
    /// Where packets go.
    pub hops: Hops,
}

impl Route {
    /// The preference of a route that has none (`ICMPV6_ROUTER_PREF_MEDIUM`).
    pub const MEDIUM: u8 = 2;
}

/// A next-hop object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// Its number.
    pub id: u32,
    /// What it is.
    pub kind: ObjectKind,
}

/// What a next-hop object is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ObjectKind {
    /// One path.
    Path(Path),
    /// Packets are dropped.
    Blackhole,
    /// Some of several other objects: id and weight (1 or more) of each.
    Group(Vec<(u32, u16)>),
    /// Something that the fast path does not do.
    OnlyLinux(OnlyLinux),
}

/// Writes an Ethernet address as `ip` prints it.
pub fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// What the kernel knows of a neighbour (`ndm_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum NeighbourState {
    /// Asked, no answer yet.
    Incomplete,
    /// Answered lately.
    Reachable,
    /// Has not been heard of for a while; its address is still used.
    Stale,
    /// Used while stale; it will be asked soon.
    Delay,
    /// Being asked again; its address is still used.
    Probe,
    /// Did not answer.
    Failed,
    /// Needs no asking.
    NoArp,
    /// Set by the administrator.
    Permanent,
}

impl NeighbourState {
    /// The name that `ip neighbour` has for it, in lower case.
    pub fn name(self) -> &'static str {
        match self {
            NeighbourState::Incomplete => "incomplete",
            NeighbourState::Reachable => "reachable",
            NeighbourState::Stale => "stale",
            NeighbourState::Delay => "delay",
            NeighbourState::Probe => "probe",
            NeighbourState::Failed => "failed",
            NeighbourState::NoArp => "noarp",
            NeighbourState::Permanent => "permanent",
        }
    }
}

/// A neighbour on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Neighbour {
    /// The interface.
    pub index: InterfaceIndex,
    /// Its address.
    pub address: IpAddr,
    /// Its Ethernet address, where known.
    pub mac: Option<[u8; 6]>,
    /// What the kernel knows of it.
    pub state: NeighbourState,
}

/// What a policy rule does with packets that it selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RuleAction {
    /// Looks up in a table; without a route the next rule is asked.
    Table(u32),
    /// Goes on at the rule of this priority.
    Goto(u32),
    /// Nothing.
    Nop,
    /// Drops.
    Blackhole,
    /// Drops with "network unreachable".
    Unreachable,
    /// Drops with "administratively prohibited".
    Prohibit,
    /// Something that is not known here (`FR_ACT_*`).
    Unknown(u8),
}

/// A policy rule (`ip rule`).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Rule {
    /// The family of the packets it is for.
    pub version: IpVersion,
    /// Rules are asked in ascending order.
    pub priority: u32,
    /// What it does.
    pub action: RuleAction,
    /// Source addresses it selects.
    pub from: Option<IpNet>,
    /// Destination addresses it selects.
    pub to: Option<IpNet>,
    /// The interface it selects packets of.
    pub input: Option<String>,
    /// Routes with prefixes this long or shorter do not count.
    pub suppress_prefix_length: Option<u32>,
    /// Whether it selects what does not match (`not`).
    pub is_inverted: bool,
    /// Whether the table is that of the packet's VRF (`l3mdev`).
    pub is_l3mdev: bool,
    /// The mark and its mask, when the rule selects by mark.
    pub mark: Option<(u32, u32)>,
    /// Whether it selects by something that is not listed here (ports, protocol, TOS, user, outgoing interface, ...).
    pub has_other_selectors: bool,
}

/// Something is new, changed, or gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// A link is there, or is other than it was.
    Link(Link),
    /// A link is gone.
    LinkGone(InterfaceIndex),
    /// An address is there.
    Address(Address),
    /// An address is gone.
    AddressGone(Address),
    /// A route is there. It replaces the one of the same key.
    Route(Route),
    /// The route of this key is gone.
    RouteGone(RouteKey),
    /// A next-hop object is there, or is other than it was.
    Object(Object),
    /// A next-hop object is gone, and all routes that use it.
    ObjectGone(u32),
    /// A neighbour is there, or is other than it was.
    Neighbour(Neighbour),
    /// A neighbour is gone.
    NeighbourGone(InterfaceIndex, IpAddr),
    /// A rule is there.
    Rule(Rule),
    /// A rule is gone.
    RuleGone(Rule),
}

/// Which part of the state a dump covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Part {
    /// Links.
    Links,
    /// Addresses.
    Addresses,
    /// IPv4 routes.
    Routes4,
    /// IPv6 routes.
    Routes6,
    /// Next-hop objects.
    Objects,
    /// Neighbours.
    Neighbours,
    /// Policy rules.
    Rules,
}
