//! What a router answers: one row a line. Fields may be added; a client leaves those that it does not know.
//!
//! Names of kinds, states and protocols are those that `ip` prints. Counts are since the start of the router.

use std::net::IpAddr;

use ipnet::IpNet;
use packet::IpVersion;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as JsonValue};
use utoipa::ToSchema;

use super::request::{
    DropFilter, Level, NeighbourFilter, NextHopFilter, PortFilter, Request, RouteFilter, Show,
};

/// What a port moved in one direction since the router began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TrafficRow {
    /// Packets received, or sent.
    pub packets: u64,
    /// Their bytes, with the Ethernet header, without the frame check sequence.
    pub bytes: u64,
    /// Packets lost for want of room, frames or a link.
    pub dropped: u64,
    /// Packets lost because they, or the device, had an error.
    pub errors: u64,
    /// Packets a second, over the last second.
    pub packets_per_second: f64,
    /// Bits a second of those bytes, over the last second.
    pub bits_per_second: f64,
}

/// A port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PortRow {
    /// Its name in the settings: that of Linux's interface when the router started.
    pub name: String,
    /// The name that Linux has for its interface now; empty if there is none now.
    #[serde(default)]
    pub interface: String,
    /// What carries its packets, as the port's spec says: `af_xdp:eth1?steer=transit`.
    pub spec: String,
    /// The driver: `af_xdp`, `af_packet`, `dpdk`, ...; empty for a VLAN of another port.
    pub driver: String,
    /// How the driver moves packets, where it has several ways: `zero-copy`, `copy`, `generic`, `tc`.
    pub mode: String,
    /// Number of the interface that Linux has for it; 0 if there is none now.
    pub index: u32,
    /// Its Ethernet address, `02:00:00:00:00:01`.
    pub mac: String,
    /// Largest packet, in bytes, without the Ethernet header.
    pub mtu: u32,
    /// Whether the administrator has it up.
    pub is_up: bool,
    /// Whether its cable is in.
    pub has_carrier: bool,
    /// Linux's addresses on it, with the lengths of their prefixes.
    #[schema(value_type = Vec<String>)]
    pub addresses: Vec<IpNet>,
    /// Linux's interfaces right above it that are not ports, with their kinds: `vrrp7 (macvlan)`, `br0 (bridge)`.
    #[serde(default)]
    pub above: Vec<String>,
    /// How its packets travel: "kernel" where plain transit is forwarded in the kernel, or "workers" with the reason.
    pub path: String,
    /// What came in by it since the router started, as Linux counts the device, also what Linux forwarded. Of a port without a device
    /// of its own, what workers and kernel counted.
    pub rx: TrafficRow,
    /// What was sent by it, counted alike.
    pub tx: TrafficRow,
    /// Packets of `rx` that were forwarded in the kernel.
    #[serde(default)]
    pub in_kernel: u64,
    /// Packets of `rx` that workers forwarded, answered or dropped.
    #[serde(default)]
    pub by_workers: u64,
    /// Packets of `rx` that Linux got: handed over by the graph, or left to it by the driver's program before they came there.
    pub to_linux: u64,
    /// Why the driver's program left most of those: `checksum not computed yet`. Empty if most were handed over by the graph, of
    /// which the table of punts has the reasons.
    #[serde(default)]
    pub left_because: String,
}

/// What a port moved in one direction in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RateRow {
    /// Packets a second.
    pub packets_per_second: u64,
    /// Bits a second of their bytes.
    pub bits_per_second: u64,
}

/// What a port moved in a second of the last five minutes. A second in which its counts began anew has no row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HistoryRow {
    /// The end of the second, in UTC: `2026-11-27T03:12:01.573000Z`.
    pub time: String,
    /// The port.
    pub port: String,
    /// What came in by it.
    pub rx: RateRow,
    /// What was sent by it.
    pub tx: RateRow,
}

/// One way to a destination.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PathRow {
    /// The router that packets are handed to; none on a link itself.
    #[schema(value_type = Option<String>)]
    pub gateway: Option<IpAddr>,
    /// The interface, empty if none is named.
    pub interface: String,
    /// Its share among the paths.
    pub weight: u16,
    /// Whether it can be used: link up, neighbour not failed.
    pub is_usable: bool,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RouteRow {
    /// The destinations.
    #[schema(value_type = String)]
    pub prefix: IpNet,
    /// The table, 254 is main.
    pub table: u32,
    /// What happens to packets: `unicast`, `local`, `broadcast`, `blackhole`, `unreachable`, `prohibit`,
    /// `throw`, ...
    pub kind: String,
    /// Who made it: `kernel`, `static`, `bgp`, `ospf`, ...; a number if it has no name.
    pub protocol: String,
    /// Who told us: `netlink` or `fpm`.
    pub source: String,
    /// Its priority: the lowest is in force.
    pub metric: u32,
    /// The next-hop object (`ip nexthop`) whose paths these are.
    pub object: Option<u32>,
    /// Where packets go; those of the next-hop object if there is one. Empty when the kind says it all.
    pub paths: Vec<PathRow>,
    /// Whether it is the one in force of all routes to its prefix.
    pub is_in_force: bool,
    /// Whether workers forward (or drop) by it, in a connected network to each neighbour that Linux knows; if not, its packets
    /// go to Linux.
    pub is_fast: bool,
}

/// What the workers do with packets to an address.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LookupRow {
    /// The address asked for.
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// The table with this neighbour.
    pub table: u32,
    /// The route with the longest prefix; none if there is no route.
    pub route: Option<RouteRow>,
    /// What the workers do, in words: `via 192.0.2.1 dev eth1`, `punt`, `no route`.
    pub decision: String,
    /// Where several ways share the packets: the ways.
    #[serde(default)]
    pub ways: Vec<WayRow>,
}

/// One of the ways that share the packets to an address.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WayRow {
    /// The share of flows that it has, 0 to 1.
    pub share: f64,
    /// What the workers do with them, in words.
    pub decision: String,
}

/// A neighbour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NeighbourRow {
    /// Its address.
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// The interface.
    pub interface: String,
    /// Its Ethernet address, where known.
    pub mac: Option<String>,
    /// What Linux knows of it: `reachable`, `stale`, `delay`, `probe`, `failed`, `incomplete`, `permanent`,
    /// `noarp`.
    pub state: String,
}

/// A next hop of the forwarding tables.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NextHopRow {
    /// Its number in the forwarding tables.
    pub id: u32,
    /// What packets meet: `forward`, `punt`, `blackhole`, `unreachable`, `prohibit`, `local`, `broadcast`,
    /// `group`.
    pub kind: String,
    /// The neighbour.
    #[schema(value_type = Option<String>)]
    pub gateway: Option<IpAddr>,
    /// The interface, empty if none.
    pub interface: String,
    /// The neighbour's Ethernet address, once it is known.
    pub mac: Option<String>,
    /// Of a group: its members.
    pub members: Vec<MemberRow>,
    /// Routes and groups that use it.
    pub users: u64,
}

/// A member of a group of next hops.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MemberRow {
    /// Number of the next hop.
    pub id: u32,
    /// Its weight.
    pub weight: u16,
    /// The share of flows that it has now, 0 to 1.
    pub share: f64,
}

/// A thread that works on packets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WorkerRow {
    /// Its number; the slow thread's is the number of workers.
    pub worker: usize,
    /// Whether it is the slow thread.
    pub is_slow: bool,
    /// Share of its time that it worked over the last second, 0 to 1.
    pub busy: f64,
    /// Share of its time that it worked since the start, 0 to 1.
    pub busy_since_start: f64,
    /// Packets that it received.
    pub packets: u64,
    /// Cycles that it took for each packet of the last second; none below 10,000 packets a second, where cycles are those of wake-ups.
    pub cycles_per_packet: Option<f64>,
    /// Its receive queues, as `eth1:0`.
    pub queues: Vec<String>,
}

/// What a step of the packets' way cost a worker while it was measured: an element, or several that work as one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CostRow {
    /// The elements; none for what is left of the worker's time: looks at idle ports, sleep, time that Linux gave to other
    /// programs.
    pub elements: Vec<String>,
    /// The class of each.
    pub classes: Vec<String>,
    /// The worker; the slow thread's number is the number of workers.
    pub worker: usize,
    /// Whether it is the slow thread.
    pub is_slow: bool,
    /// Packets that came to the step.
    pub packets: u64,
    /// How many of them came in a batch, on average; 0 without any.
    pub packets_per_batch: f64,
    /// TSC cycles a packet that the step took itself, without the steps that it sends packets to; none without packets.
    pub cycles_per_packet: Option<f64>,
    /// Share of the worker's time that it took, 0 to 1.
    pub share: f64,
    /// Misses of the last-level cache a packet, in the program itself; none without packets, or where the CPU does not count them.
    pub cache_misses_per_packet: Option<f64>,
    /// Mispredicted branches a packet, likewise.
    pub branch_misses_per_packet: Option<f64>,
    /// What there is to say beside it: why misses are not counted; usually empty.
    pub note: String,
}

/// A queue of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QueueRow {
    /// The port.
    pub port: String,
    /// Its number on the port, among the queues of its direction.
    pub queue: usize,
    /// Whether it sends; else it receives.
    pub sends: bool,
    /// The worker that has it; the slow thread's number is the number of workers.
    pub worker: usize,
    /// Whether that is the slow thread.
    pub is_slow: bool,
    /// Packets received, or sent.
    pub packets: u64,
    /// Their bytes, with the Ethernet header, without the frame check sequence.
    pub bytes: u64,
    /// Packets that the driver dropped, by reason.
    pub dropped: Vec<(String, u64)>,
    /// Of a receive queue: the workers that process its packets, when not the one that polls it alone.
    pub shared_with: Vec<usize>,
}

/// Packets that an element dropped for a reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DropRow {
    /// The element.
    pub element: String,
    /// Its class.
    pub class: String,
    /// The reason, in words.
    pub reason: String,
    /// Packets.
    pub packets: u64,
}

/// Packets that an element sent another way than the usual one: to Linux, or to elements that answer. Or what the program of a
/// port's driver left to Linux.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PuntRow {
    /// The element, or the port.
    pub element: String,
    /// Its class; of a port "driver".
    pub class: String,
    /// The reason, in words.
    pub reason: String,
    /// Packets.
    pub packets: u64,
}

/// An element of the graph, all copies together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ElementRow {
    /// Its name.
    pub element: String,
    /// Its class.
    pub class: String,
    /// Packets that came into it, or that it received.
    pub packets: u64,
    /// Packets that it dropped.
    pub dropped: u64,
    /// TSC cycles that it took, estimated from a sample.
    pub cycles: f64,
    /// What it counts beside packets: mappings of a translator, errors of a script.
    #[serde(default)]
    pub counts: Vec<CountRow>,
    /// Where its packets go.
    pub edges: Vec<EdgeRow>,
}

/// Something that an element counts beside packets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CountRow {
    /// Its name as a metric, without `brickway_`: `nat_mappings`.
    pub name: String,
    /// What it is.
    pub about: String,
    /// All copies of the element together.
    pub value: f64,
}

/// A connection from an element to another one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EdgeRow {
    /// The output.
    pub output: usize,
    /// The other element.
    pub to: String,
    /// Its input.
    pub input: usize,
    /// Packets that took this way; none where the counts of elements do not say.
    pub packets: Option<u64>,
}

/// The router itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SystemRow {
    /// The name of the host (`uname -n`).
    #[serde(default)]
    pub host: String,
    /// The version of the program.
    pub version: String,
    /// Number of its process.
    pub pid: u32,
    /// Number of its network namespace (`stat -Lc %i /proc/self/ns/net`).
    pub namespace: u64,
    /// Seconds since it began.
    pub uptime_seconds: f64,
    /// What the checks of the forwarding tables have found; none before the first one.
    #[serde(default)]
    pub drift: Option<DriftChecks>,
    /// How many problems there were at the last look, every 30 seconds; none where the router has nothing of Linux.
    #[serde(default)]
    pub problems: Option<usize>,
    /// Threads that move packets, without the slow thread.
    pub workers: usize,
    /// The tables of routes.
    pub tables: Vec<RouteTableRow>,
    /// Next hops in use, and the most that there may be; none where the router has tables of its own.
    pub next_hops: Option<(usize, usize)>,
    /// Frames that no packet has, and all, of each worker's pool.
    pub frames: Vec<(usize, usize)>,
}

/// What the checks found that compare the forwarding tables with Linux's routes every so often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DriftChecks {
    /// When the last one ended, in seconds since 1970.
    pub checked_at: f64,
    /// Routes that still differ after it.
    pub differing: u64,
    /// Routes that differed, and were read again, since the router began.
    pub healed: u64,
}

/// A table of routes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RouteTableRow {
    /// The table, 254 is main.
    pub table: u32,
    /// IPv4 or IPv6.
    #[schema(value_type = String)]
    pub family: IpVersion,
    /// The kind of the compiled table.
    pub kind: String,
    /// Routes in it.
    pub routes: usize,
}

/// A piece of text for people, of one line or several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TextRow {
    /// The text, without an end of line at its end.
    pub text: String,
}

/// How Linux and the forwarding tables agree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum DriftRow {
    /// A table that was compared.
    Table {
        /// Who told us of its routes: `netlink` or `fpm`.
        source: String,
        /// The table.
        table: u32,
        /// IPv4 or IPv6.
        #[schema(value_type = String)]
        family: IpVersion,
        /// Routes that the source has now.
        theirs: u64,
        /// Routes that we have.
        ours: u64,
        /// The forwarding table in which workers look them up; none where they have none.
        lookup: Option<String>,
        /// Routes that differ, are missing, or are too many.
        differences: u64,
    },
    /// Something that differs. Backends may leave some out when there are very many.
    Difference {
        /// The table.
        table: u32,
        /// What it is about.
        #[schema(value_type = String)]
        prefix: IpNet,
        /// What the source has now, in words; none if it has nothing.
        theirs: Option<String>,
        /// What we have, in words; none if we have nothing.
        ours: Option<String>,
    },
}

/// What a node of a cluster knows of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ClusterRow {
    /// The cluster; the first row.
    Cluster {
        /// Its name.
        name: String,
        /// How its nodes are wired: `mesh(4)`.
        topology: String,
        /// How many nodes it has, whether they are there or not. 64 of them have rows.
        nodes: usize,
        /// The node that answers.
        here: String,
        /// Who leads, as far as that node knows.
        leader: Option<String>,
        /// Why it cannot use the cluster's store now.
        problem: Option<String>,
    },
    /// A node.
    Node(Box<ClusterNodeRow>),
    /// Something that happened; the newest comes last, and the last 64 are kept.
    Event {
        /// When, in seconds since 1970.
        time: f64,
        /// What, in words.
        text: String,
    },
}

/// Packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MovedRow {
    /// Packets.
    pub packets: u64,
    /// Their bytes, with the Ethernet header, without the frame check sequence.
    pub bytes: u64,
}

/// A node of a cluster. Counts are since it began, and are as old as what it has said last: two seconds at most while it is there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ClusterNodeRow {
    /// Its name.
    pub node: String,
    /// Its number in the topology.
    pub number: u16,
    /// `edge+route`, `edge`, `route` or `relay`.
    pub role: String,
    /// Its weight among the nodes that route, where fronts divide flows.
    pub weight: u32,
    /// `member`, `leads`, `leaving`; `unreachable`: the fabric has no way to it; `not a member`: the fabric reaches it, the store
    /// has not heard of it; `away`: neither.
    pub state: String,
    /// Whether the fabric has a way to it.
    pub is_reached: bool,
    /// Whether it leads.
    pub leads: bool,
    /// Entries of the leader's log that its tables do not have yet; none of a node that is not a member.
    pub lag: Option<u64>,
    /// When it counted what follows, in seconds since it began.
    pub counted_at: f64,
    /// What came in by its ports.
    pub input: MovedRow,
    /// Packets that it looked up routes for.
    pub routed: u64,
    /// What it sent by its ports.
    pub output: MovedRow,
    /// Packets that it sent to other nodes directly.
    pub direct: u64,
    /// Their bytes.
    pub direct_bytes: u64,
    /// Packets that it sent over an intermediate node.
    pub balanced: u64,
    /// Their bytes.
    pub balanced_bytes: u64,
    /// Flowlets moved: packets that left the path of the packet of their flow before them.
    pub moved: u64,
    /// Link full: packets that it sent although no link had room.
    pub link_full: u64,
    /// Its links.
    pub links: Vec<ClusterLinkRow>,
}

/// A link of a node of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterLinkRow {
    /// Its place among the node's links.
    pub link: u16,
    /// Its interface.
    pub interface: String,
    /// The node at its other end.
    pub to: String,
    /// Whether both ends hear each other.
    pub is_up: bool,
    /// What is wrong with it; usually empty.
    pub problem: String,
    /// How frames that are relayed from it travel: the kernel, or sockets with the reason.
    pub path: String,
    /// Frames received.
    pub received: u64,
    /// Frames sent, hellos among them.
    pub sent: u64,
    /// Bytes that the node sent by it directly to their output node.
    pub direct_bytes: u64,
    /// Bytes that it sent by it over an intermediate node.
    pub balanced_bytes: u64,
    /// Bytes that it sent by it for other nodes.
    pub relayed_bytes: u64,
}

/// What routes were and became. Times are UTC, as RFC 3339 has them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ChangeRow {
    /// The first row: how far back the history reaches.
    History {
        /// All changes since then are there.
        since: String,
        /// Changes that are there, of all routes.
        kept: u64,
        /// Older changes that were overwritten.
        overwritten: u64,
    },
    /// The route in force to a prefix became another one.
    Route {
        /// When.
        time: String,
        /// The table.
        table: u32,
        /// The destinations.
        #[schema(value_type = String)]
        prefix: IpNet,
        /// What it was; none if there was no route.
        old: Option<RouteWayRow>,
        /// What it became; none if there was no route any more.
        new: Option<RouteWayRow>,
    },
    /// A next-hop object that routes name got other paths; their packets moved with it.
    Object {
        /// When.
        time: String,
        /// Its number (`ip nexthop`).
        object: u32,
        /// What it was; none if it was not there.
        old: Option<RouteWayRow>,
        /// What it became; none if it is gone.
        new: Option<RouteWayRow>,
    },
}

/// A route in force, or a next-hop object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RouteWayRow {
    /// Where packets went, in the words of `ip route`.
    pub hops: String,
    /// Who made the route: `kernel`, `static`, `bgp`; empty of an object.
    pub protocol: String,
    /// Who told us: `netlink` or `fpm`.
    pub source: String,
    /// The route's priority.
    pub metric: u32,
}

/// What a follower of the log gets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum LogRow {
    /// Something happened.
    Event(EventRow),
    /// The client was too slow for so many events, which it does not get.
    Lost {
        /// How many.
        lost: u64,
    },
    /// Now and then while nothing happens: the router is there.
    Alive {
        /// Always true.
        is_alive: bool,
    },
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EventRow {
    /// When, in UTC, as RFC 3339 has it.
    pub time: String,
    /// How much it matters.
    pub level: Level,
    /// What happened, for people.
    pub text: String,
    /// The same for machines, one field each: `event`, `port`, `prefix`, `node`, `reason`, `user`, ...
    #[serde(flatten)]
    pub fields: Map<String, JsonValue>,
}

/// A count, or a state that has a number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CounterRow {
    /// Its name, in a few lower-case words.
    pub name: String,
    /// The count.
    pub value: u64,
    /// What there is to say beside it; usually empty.
    pub note: String,
}

/// A handler of an element.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HandlerRow {
    /// `ELEMENT.HANDLER`.
    pub name: String,
    /// Its value, if it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// What a capture or a trace brings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum CaptureRow {
    /// A packet at some place of its way.
    Packet(Box<SeenPacket>),
    /// Some times a second, and at the end: how many there were so far.
    Counts {
        /// By interface.
        interfaces: Vec<CaptureCounts>,
    },
    /// The end, where the client did not end it.
    End {
        /// Why.
        reason: String,
    },
}

/// Packets that one interface of a capture had.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CaptureCounts {
    /// The interface.
    pub interface: String,
    /// Packets that were captured.
    pub captured: u64,
    /// Packets that were not captured because the client was too slow. Of those that Linux has, selected or not.
    pub lost: u64,
    /// Packets that came in by the port meanwhile, selected or not, which its driver's program left to Linux and which are not captured.
    #[serde(default)]
    pub left_to_linux: u64,
    /// Why most of those were left; empty without one.
    #[serde(default)]
    pub left_because: String,
    /// Packets that Linux sent by the port meanwhile, selected or not, which are not captured either.
    #[serde(default)]
    pub sent_by_linux: u64,
}

/// A packet at some place of its way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct SeenPacket {
    /// Which packet it is, from 1 on: for a trace that of those that are followed.
    pub number: u64,
    /// Of a trace, how many places the packet was seen at before. Two threads may report in another order.
    pub step: u32,
    /// When it was seen, in nanoseconds since 1970.
    pub time_ns: u64,
    /// The copy of the graph.
    pub worker: usize,
    /// The port; else where it was seen: `ELEMENT`, `drops`, `punts`.
    pub interface: String,
    /// `in` or `out` of a port; else empty.
    pub direction: String,
    /// The element that it left, or that dropped it.
    pub element: String,
    /// Its class.
    pub class: String,
    /// The output by which it left; none where it was dropped.
    pub output: Option<usize>,
    /// The element that it came to; none where it was dropped.
    pub next: Option<String>,
    /// What becomes of it: `passed`, `sent`, `punted`, `ended` (in an element that packets do not leave) or `dropped`. Of a packet that
    /// no worker saw: `left to Linux` where it came in, or `sent by Linux`.
    pub verdict: String,
    /// Why it was dropped; else empty.
    pub reason: String,
    /// Whether it begins with an Ethernet header; else with an IP header.
    pub is_ethernet: bool,
    /// Its length, in bytes.
    pub length: u32,
    /// How many packets of its interface and direction it stands for: itself, and of a sample those since the one before.
    pub stands_for: u64,
    /// Where it begins in its frame, in bytes: the distance between two places shows what was stripped or put in front.
    pub offset: u32,
    /// Its first bytes, in hexadecimal.
    pub data: String,
    /// Its annotations, in hexadecimal; of traces alone.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub annotations: String,
}

/// A row of any kind, as a router sends it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
#[allow(missing_docs, reason = "each is the row of that name")]
pub enum Row {
    Port(Box<PortRow>),
    History(HistoryRow),
    Route(RouteRow),
    Lookup(LookupRow),
    Neighbour(NeighbourRow),
    NextHop(NextHopRow),
    Worker(WorkerRow),
    Cost(CostRow),
    Queue(QueueRow),
    Drop(DropRow),
    Punt(PuntRow),
    Element(ElementRow),
    System(SystemRow),
    Text(TextRow),
    Drift(DriftRow),
    Change(ChangeRow),
    Log(LogRow),
    Cluster(ClusterRow),
    Counter(CounterRow),
    Handler(HandlerRow),
    Capture(CaptureRow),
    Table(JsonValue),
}

macro_rules! row_from {
    ($($variant:ident $row:ident,)*) => {
        $(impl From<$row> for Row {
            fn from(row: $row) -> Self {
                Self::$variant(row)
            }
        })*
    };
}

impl From<PortRow> for Row {
    fn from(row: PortRow) -> Self {
        Self::Port(Box::new(row))
    }
}

row_from! {
    History HistoryRow, Route RouteRow, Lookup LookupRow, Neighbour NeighbourRow, NextHop NextHopRow, Worker WorkerRow,
    Cost CostRow, Queue QueueRow, Drop DropRow, Punt PuntRow, Element ElementRow, System SystemRow, Text TextRow, Drift DriftRow, Cluster ClusterRow, Change ChangeRow, Log LogRow, Counter CounterRow, Handler HandlerRow, Capture CaptureRow, Table JsonValue,
}

impl Request {
    /// Whether the filter selects the row. The server asks it for every row, so a backend may send all it
    /// has.
    pub fn selects(&self, row: &Row) -> bool {
        match (self, row) {
            (Request::Show(Show::Ports(PortFilter { port: Some(port) })), Row::Port(row)) => {
                row.name == *port
            }
            (Request::Show(Show::History(PortFilter { port: Some(port) })), Row::History(row)) => {
                row.port == *port
            }
            (Request::Show(Show::Queues(PortFilter { port: Some(port) })), Row::Queue(row)) => {
                row.port == *port
            }
            (Request::Show(Show::Routes(filter)), Row::Route(row)) => filter.selects(row),
            (Request::Show(Show::Neighbours(filter)), Row::Neighbour(row)) => filter.selects(row),
            (Request::Show(Show::NextHops(NextHopFilter { id: Some(id) })), Row::NextHop(row)) => {
                row.id == *id
            }
            (Request::Show(Show::Drops(DropFilter { containing: Some(text) })), Row::Drop(row)) => {
                row.element.contains(text) || row.reason.contains(text)
            }
            (Request::Show(Show::Punts(DropFilter { containing: Some(text) })), Row::Punt(row)) => {
                row.element.contains(text) || row.reason.contains(text)
            }
            _ => true,
        }
    }
}

impl RouteFilter {
    fn selects(&self, row: &RouteRow) -> bool {
        self.may_select(row.table, row.prefix)
            && self.protocol.as_ref().is_none_or(|protocol| row.protocol == *protocol)
            && self.interface.as_ref().is_none_or(|name| row.paths.iter().any(|path| path.interface == *name))
    }
}

impl NeighbourFilter {
    fn selects(&self, row: &NeighbourRow) -> bool {
        self.family.is_none_or(|family| family == IpVersion::of(row.address))
            && self.interface.as_ref().is_none_or(|name| row.interface == *name)
    }
}
