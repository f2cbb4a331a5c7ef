//! `brickway show`, `top`, `set` and `reload` as a person meets them: the program asks a router, made up here, over
//! a real socket.

#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "show/top.rs"]
mod top;

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use control::api::{
    Action, Backend, ChangeFilter, ChangeRow, ClusterNodeRow, ClusterRow, CostRow, CounterRow, DriftChecks,
    DriftRow, DropRow, EdgeRow, ElementRow, EventRow, HandlerRow, HistoryRow, Level, LogQuery, LogRow,
    LookupRow, MemberRow, MovedRow, NeighbourRow, NextHopRow, PathRow, PortRow, PuntRow, QueueRow, RateRow,
    Request, RouteRow, RouteTableRow, RouteWayRow, Rows, Server, ServerOptions, Show, SystemRow, TextRow,
    TrafficRow, Unanswered, WayRow, WorkerRow,
};
use packet::IpVersion;
use serde_json::json;

/// A route that came and was replaced, an object that changed, and how far back that reaches.
fn changes(filter: &ChangeFilter, rows: &mut Rows<'_>) -> Result<(), Unanswered> {
    let way = |hops: &str, protocol: &str, metric| {
        Some(RouteWayRow { hops: hops.into(), protocol: protocol.into(), source: "netlink".into(), metric })
    };
    let overwritten = if filter.table.is_some() { 12 } else { 0 };
    rows.send(ChangeRow::History { since: "2026-11-26T22:01:13.000001Z".into(), kept: 65_536, overwritten })?;
    if filter.since_us == Some(1_795_749_000_000_000) {
        return Ok(());
    }
    let prefix = filter.within.unwrap_or_else(|| "10.2.0.0/16".parse().unwrap());
    let (first, second) = ("via 10.0.0.1 dev eth1", "via 10.0.1.1 dev eth2");
    let (old, new) = (way(first, "static", 0), way(second, "bgp", 20));
    let table = filter.table.unwrap_or(254);
    let time = |second: u32| format!("2026-11-27T03:12:{second:02}.123456Z");
    rows.send(ChangeRow::Route { time: time(1), table, prefix, old: None, new: old.clone() })?;
    rows.send(ChangeRow::Route { time: time(2), table, prefix, old, new: new.clone() })?;
    let object =
        ChangeRow::Object { time: time(3), object: 7, old: way(first, "", 0), new: way(second, "", 0) };
    rows.send(object)?;
    rows.send(ChangeRow::Route { time: time(4), table, prefix, old: new, new: None })
}

/// Two events, and what a follower hears beside them.
fn log(query: &LogQuery, rows: &mut Rows<'_>) -> Result<(), Unanswered> {
    let event = |level, text: &str, fields: serde_json::Value| {
        let fields = fields.as_object().unwrap().clone();
        LogRow::Event(EventRow {
            time: "2026-11-27T03:12:01.123456Z".into(),
            level,
            text: text.into(),
            fields,
        })
    };
    if query.last != Some(0) {
        rows.send(event(
            Level::Warn,
            "eth1: link down (no carrier)",
            json!({"event": "link", "port": "eth1"}),
        ))?;
    }
    if query.follow {
        rows.send(LogRow::Alive { is_alive: true })?;
        rows.send(LogRow::Lost { lost: 3 })?;
        rows.send(event(Level::Info, "eth1: link up", json!({"port": "eth1"})))?;
    }
    Ok(())
}

/// A router with two ports and a few routes.
struct Router {
    drifts: bool,
}

fn path(gateway: &str, interface: &str) -> PathRow {
    let gateway = gateway.parse::<IpAddr>().ok();
    PathRow { gateway, interface: interface.into(), weight: 1, is_usable: true }
}

fn route(prefix: &str, protocol: &str, metric: u32, paths: Vec<PathRow>) -> RouteRow {
    RouteRow {
        prefix: prefix.parse().unwrap(),
        table: 254,
        kind: if paths.is_empty() { "blackhole" } else { "unicast" }.into(),
        protocol: protocol.into(),
        source: "netlink".into(),
        metric,
        object: None,
        paths,
        is_in_force: true,
        is_fast: true,
    }
}

fn all_routes() -> Vec<RouteRow> {
    let two =
        vec![path("10.0.0.1", "eth1"), PathRow { weight: 3, is_usable: false, ..path("10.0.1.1", "eth2") }];
    vec![
        route("0.0.0.0/0", "bgp", 20, vec![path("10.0.0.1", "eth1")]),
        RouteRow {
            is_in_force: false,
            is_fast: false,
            ..route("0.0.0.0/0", "static", 200, vec![path("10.0.1.1", "eth2")])
        },
        route("10.0.0.0/24", "kernel", 0, vec![path("", "eth1")]),
        RouteRow { object: Some(17), source: "fpm".into(), ..route("192.0.2.0/24", "ospf", 20, two) },
        RouteRow { table: 7, ..route("198.51.100.0/24", "static", 0, Vec::new()) },
        RouteRow { table: 255, ..route("10.0.0.254/32", "kernel", 0, vec![path("", "eth1")]) },
        route("2001:db8::/32", "bgp", 20, vec![path("fe80::1", "eth1")]),
    ]
}

impl Backend for Router {
    fn answer(&self, request: &Request, rows: &mut Rows<'_>) -> Result<(), Unanswered> {
        let show = match request {
            Request::Table(query) => {
                assert_eq!(query.show, "acl");
                rows.send(json!({"number": 10, "rule": "deny tcp any any port 25", "packets": 3}))?;
                return rows.send(json!({"number": 0, "rule": "permit", "packets": 1_000}));
            }
            Request::Show(show) => show,
            Request::Do(Action::Set { option, value }) if option == "workers.balance" => {
                return rows.send(TextRow { text: format!("workers.balance is {value} now") });
            }
            Request::Do(Action::Set { option, .. }) => {
                return Err(format!("'{option}' cannot be changed while the router runs").into());
            }
            Request::Do(Action::Write { handler, value }) => {
                return rows.send(TextRow { text: format!("{handler} got '{value}'") });
            }
            Request::Do(Action::Reload {}) => return Ok(()),
        };
        match show {
            Show::Ports(_) => {
                for (index, name) in [(3, "eth1"), (4, "eth2")] {
                    rows.send(PortRow {
                        name: name.into(),
                        interface: String::new(),
                        spec: format!("af_xdp:{name}?steer=transit"),
                        path: "kernel".to_owned(),
                        index,
                        mac: format!("02:00:00:00:00:0{index}"),
                        mtu: 1500,
                        is_up: true,
                        has_carrier: index == 3,
                        addresses: if index == 3 {
                            vec!["10.0.0.254/24".parse().unwrap()]
                        } else {
                            Vec::new()
                        },
                        driver: "af_xdp".into(),
                        mode: "zero-copy".into(),
                        above: Vec::new(),
                        rx: TrafficRow {
                            packets: 1_234_567,
                            bytes: 1_300_000_000,
                            dropped: 8,
                            errors: 1,
                            packets_per_second: 11_500.0,
                            bits_per_second: 92e6,
                        },
                        tx: TrafficRow { packets: 7, bytes: 420, ..TrafficRow::default() },
                        in_kernel: 1_000_000,
                        by_workers: 234_555,
                        to_linux: 12,
                        left_because: "to this host".into(),
                    })?;
                }
            }
            Show::Routes(_) => {
                for route in all_routes() {
                    rows.send(route)?;
                }
            }
            Show::Route(query) => {
                let found = query.address.is_ipv4().then(|| all_routes().remove(0));
                let decision = if found.is_some() { "via 10.0.0.1 dev eth1" } else { "no route" };
                rows.send(LookupRow {
                    address: query.address,
                    table: 254,
                    route: found,
                    decision: decision.into(),
                    ways: query.from.map_or(Vec::new(), |_| {
                        let decision = "forwarded via 10.0.0.1 dev eth1".to_owned();
                        vec![WayRow { share: 0.25, decision }]
                    }),
                })?;
            }
            Show::Neighbours(_) => {
                for (address, mac, state) in
                    [("10.0.0.1", Some("02:00:00:00:01:01"), "reachable"), ("fe80::1", None, "incomplete")]
                {
                    rows.send(NeighbourRow {
                        address: address.parse().unwrap(),
                        interface: "eth1".into(),
                        mac: mac.map(str::to_owned),
                        state: state.into(),
                    })?;
                }
            }
            Show::NextHops(_) => {
                let one = NextHopRow {
                    id: 8,
                    kind: "forward".into(),
                    gateway: Some([10, 0, 0, 1].into()),
                    interface: "eth1".into(),
                    mac: Some("02:00:00:00:01:01".into()),
                    members: Vec::new(),
                    users: 564_579,
                };
                let members = vec![
                    MemberRow { id: 8, weight: 1, share: 0.25 },
                    MemberRow { id: 9, weight: 3, share: 0.75 },
                ];
                rows.send(one.clone())?;
                let (kind, interface) = ("group".into(), String::new());
                rows.send(NextHopRow {
                    id: 20,
                    kind,
                    interface,
                    gateway: None,
                    mac: None,
                    members,
                    users: 1,
                })?;
            }
            Show::History(_) => {
                let rx = RateRow { packets_per_second: 12_460, bits_per_second: 5_790_000_000 };
                for port in ["eth1", "eth2"] {
                    let time = "2026-11-27T03:12:01.573000Z".to_owned();
                    rows.send(HistoryRow { time, port: port.to_owned(), rx, tx: RateRow::default() })?;
                }
            }
            Show::Workers(_) => {
                let slow = WorkerRow {
                    worker: 1,
                    is_slow: true,
                    busy: 0.004,
                    packets: 12,
                    busy_since_start: 0.25,
                    cycles_per_packet: None,
                    queues: Vec::new(),
                };
                let queues = vec!["eth1:0".into(), "eth2:0".into()];
                let fast = WorkerRow {
                    worker: 0,
                    is_slow: false,
                    busy: 0.5,
                    cycles_per_packet: Some(1_500.0),
                    queues,
                    ..slow.clone()
                };
                rows.send(fast)?;
                rows.send(slow)?;
            }
            Show::Cost(filter) => {
                assert!(filter.seconds == 1 || filter.seconds == 30);
                let misses = |count| filter.unfused.then_some(count);
                let step = |elements: &[&str], cycles, share| CostRow {
                    elements: elements.iter().map(|&name| name.to_owned()).collect(),
                    classes: vec!["Strip".to_owned(); elements.len()],
                    packets: 1_280,
                    packets_per_batch: 32.0,
                    cycles_per_packet: Some(cycles),
                    share,
                    cache_misses_per_packet: misses(0.25),
                    branch_misses_per_packet: misses(0.5),
                    ..CostRow::default()
                };
                let note = if filter.unfused { "" } else { "cache and branch misses: not counted here" };
                rows.send(step(&["s", "t"], 12.5, 0.25))?;
                rows.send(step(&["in"], 7.0, 0.5))?;
                rows.send(CostRow { share: 0.25, note: note.into(), ..CostRow::default() })?;
            }
            Show::Queues(_) => rows.send(QueueRow {
                port: "eth1".into(),
                queue: 0,
                worker: 0,
                packets: 1_000,
                bytes: 64_000,
                dropped: vec![("no free frame".into(), 3)],
                shared_with: vec![0, 1],
                ..QueueRow::default()
            })?,
            Show::Punts(_) => {
                for (element, reason) in [("rt", "no route"), ("ttl", "time to live expired")] {
                    let class = "FIBLookup".to_owned();
                    rows.send(PuntRow { element: element.into(), class, reason: reason.into(), packets: 7 })?;
                }
            }
            Show::Elements(_) => {
                let edge = |output, packets| EdgeRow { output, to: "out".into(), input: 0, packets };
                rows.send(ElementRow {
                    element: "rt".into(),
                    class: "FIBLookup".into(),
                    packets: 1_000,
                    dropped: 3,
                    cycles: 12_500.0,
                    counts: Vec::new(),
                    edges: vec![edge(0, Some(997)), edge(1, None)],
                })?;
            }
            Show::System(_) => rows.send(SystemRow {
                host: "r1".into(),
                version: "1.2.3".into(),
                pid: 77,
                namespace: 4_026_531_840,
                uptime_seconds: 90_061.5,
                problems: None,
                drift: Some(DriftChecks { checked_at: 0.0, differing: 2, healed: 5 }),
                workers: 2,
                tables: vec![RouteTableRow {
                    table: 254,
                    family: IpVersion::V4,
                    kind: "byte24".into(),
                    routes: 1_000_000,
                }],
                next_hops: Some((12, 32_767)),
                frames: vec![(4_000, 4_096), (4_096, 4_096)],
            })?,
            Show::Drops(_) => {
                for (element, reason) in [("check", "bad checksum"), ("rt", "no route")] {
                    let class = "CheckIPHeader".to_owned();
                    rows.send(DropRow {
                        element: element.into(),
                        class,
                        reason: reason.into(),
                        packets: 1_005,
                    })?;
                }
            }
            Show::Config(filter) => {
                let text = if filter.click { "eth1 :: FromDevice;" } else { "[workers]\ncount = 1" };
                rows.send(TextRow { text: text.into() })?;
            }
            Show::Drift(_) => {
                let table = |family, differences| DriftRow::Table {
                    source: "netlink".into(),
                    table: 254,
                    family,
                    theirs: 5,
                    ours: 5,
                    lookup: Some("byte24".into()),
                    differences,
                };
                rows.send(table(IpVersion::V4, 0))?;
                if self.drifts {
                    let prefix = "2001:db8::/32".parse().unwrap();
                    rows.send(DriftRow::Difference {
                        table: 254,
                        prefix,
                        theirs: Some("via fe80::1 dev eth1".into()),
                        ours: None,
                    })?;
                }
                rows.send(table(IpVersion::V6, u64::from(self.drifts)))?;
            }
            Show::Cluster(_) => {
                rows.send(ClusterRow::Cluster {
                    name: "rb4".into(),
                    topology: "mesh(2)".into(),
                    nodes: 2,
                    here: "a".into(),
                    leader: Some("b".into()),
                    problem: None,
                })?;
                for (node, packets, leads) in [("a", 100, false), ("b", 300, true)] {
                    rows.send(ClusterRow::Node(Box::new(ClusterNodeRow {
                        node: node.into(),
                        role: "edge+route".into(),
                        state: if leads { "leads" } else { "member" }.into(),
                        is_reached: true,
                        lag: Some(0),
                        input: MovedRow { packets, bytes: 0 },
                        routed: packets,
                        direct: 9,
                        balanced: 1,
                        ..ClusterNodeRow::default()
                    })))?;
                }
                rows.send(ClusterRow::Event { time: 0.0, text: "node 'b' leads".into() })?;
            }
            Show::Netlink(_) | Show::Fpm(_) => {
                for (name, value, note) in
                    [("messages", 1_002_003, ""), ("connected", 1, "from 127.0.0.1:40000")]
                {
                    rows.send(CounterRow { name: name.into(), value, note: note.into() })?;
                }
            }
            Show::Problems(_) => rows.send(TextRow { text: "203.0.113.0/24: has labels (mpls)".into() })?,
            Show::Handlers(filter) => {
                let value = filter.name.as_ref().map(|_| "1\n2\n".to_owned());
                let name = filter.name.clone().unwrap_or("check.drops".into());
                rows.send(HandlerRow { name, value })?;
            }
            // They have commands of their own.
            Show::Changes(filter) => changes(filter, rows)?,
            Show::Log(query) => log(query, rows)?,
            Show::Capture(_) | Show::Trace(_) => return Err("this router has no packets".into()),
        }
        Ok(())
    }
}

/// Exit code, standard output and standard error of the program, asking a router that runs for it.
fn brickway(words: &[&str]) -> (i32, String, String) {
    ask(words, Some(Router { drifts: false }))
}

fn ask(words: &[&str], router: Option<Router>) -> (i32, String, String) {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let name =
        format!("brickway-show-{}-{}.sock", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let socket: PathBuf = std::env::temp_dir().join(name);
    let server = router.map(|router| Server::start(&ServerOptions::new(&socket), Arc::new(router)).unwrap());
    let output = Command::new(env!("CARGO_BIN_EXE_brickway"))
        .args(words)
        .arg("--socket")
        .arg(&socket)
        .env("TZ", "UTC")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    drop(server);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().replace(socket.to_str().unwrap(), "SOCKET");
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

/// What `brickway show WORDS` prints when all is well.
fn shown(words: &str) -> String {
    let words: Vec<&str> = ["show"].into_iter().chain(words.split_whitespace()).collect();
    let (code, out, err) = brickway(&words);
    assert_eq!((code, err.as_str()), (0, ""), "{words:?}");
    out
}

#[test]
fn routes_read_like_those_of_ip() {
    let expected = "\
Codes: > in force, * forwarded by the router once Linux knows the neighbour (others by Linux)

>*  0.0.0.0/0        via 10.0.0.1  dev eth1  proto bgp                    metric 20
    0.0.0.0/0        via 10.0.1.1  dev eth2  proto static                 metric 200
>*  10.0.0.0/24                    dev eth1  proto kernel
>*  192.0.2.0/24     via 10.0.0.1  dev eth1  proto ospf    weight 1       metric 20 nhid 17 from fpm
                     via 10.0.1.1  dev eth2                weight 3 down
>*  198.51.100.0/24  blackhole               proto static                 table 7
>*  2001:db8::/32    via fe80::1   dev eth1  proto bgp                    metric 20
";
    assert_eq!(shown("routes"), expected);
    assert_eq!(shown("routes -6").lines().count(), 3);
    assert_eq!(
        shown("routes --table 255").lines().last().unwrap().split_whitespace().nth(1),
        Some("10.0.0.254/32")
    );
    assert_eq!(shown("routes 192.0.0.7/16 --protocol ospf --dev eth2").lines().count(), 4);
    let expected =
        "10.9.9.9 via 10.0.0.1 dev eth1\n>*  0.0.0.0/0  via 10.0.0.1  dev eth1  proto bgp    metric 20\n";
    assert_eq!(shown("route 10.9.9.9"), expected);
    let shared = shown("route 10.9.9.9 --from 10.0.0.7 --iif eth1");
    let ways: Vec<&str> = shared.lines().collect();
    assert_eq!(ways[1], "  25% forwarded via 10.0.0.1 dev eth1");
    assert_eq!(brickway(&["show", "route", "10.9.9.9", "--iif", "eth1", "--table", "7"]).0, 2);
    let (code, out, err) = brickway(&["show", "route", "::1"]);
    assert_eq!((code, out.as_str(), err.as_str()), (1, "::1 no route\n", "brickway: no route to ::1\n"));
}

#[test]
fn what_each_of_them_prints() {
    for (words, expected) in [
        (
            "ports",
            "\
port        packets   bytes  dropped  errors  packets/s    bit/s
eth1  rx  1,234,567  1.30 G        8       1    11.50 k  92.00 M
      tx          7    420         0       0         0        0
eth2  rx  1,234,567  1.30 G        8       1    11.50 k  92.00 M
      tx          7    420         0       0         0        0

port  in the kernel  by workers  by Linux  left to Linux because of
eth1         81.0 %      19.0 %     0.0 %
eth2         81.0 %      19.0 %     0.0 %

port  link        driver             MTU  MAC address        transit, addresses
eth1  up          af_xdp zero-copy  1500  02:00:00:00:00:03  kernel 10.0.0.254/24
eth2  no carrier  af_xdp zero-copy  1500  02:00:00:00:00:04  kernel
",
        ),
        (
            "history eth1",
            "\
time                     port  rx packets/s  rx bit/s  tx packets/s  tx bit/s
2026-11-27 03:12:01.573  eth1       12.46 k    5.79 G             0         0
",
        ),
        (
            "neighbours",
            "\
neighbour  dev   lladdr             state
10.0.0.1   eth1  02:00:00:00:01:01  reachable
fe80::1    eth1                     incomplete
",
        ),
        (
            "next-hops",
            "\
id  kind     via       dev   lladdr             members          used by
 8  forward  10.0.0.1  eth1  02:00:00:00:01:01                   564,579
20  group                                       8 (25%) 9 (75%)        1
",
        ),
        (
            "workers",
            "\
worker  busy  since start  packets  cycles/packet  receive queues
     0   50%          25%       12         1500.0  eth1:0, eth2:0
  slow    0%          25%       12              -
",
        ),
        (
            "queues",
            "\
queue       worker  packets    bytes  dropped  shared with, reasons of drops
eth1:0  rx       0    1,000  64.00 k        3  worker 0, worker 1, no free frame 3
",
        ),
        (
            "punts ttl",
            "\
punted  by   class      reason
     7  ttl  FIBLookup  time to live expired
",
        ),
        (
            "system",
            "\
host               r1
version            1.2.3
process            77
network namespace  4026531840
uptime             1 d 01:01:01
drift              2 routes differ from Linux's, 5 were healed
workers            2
next hops          12 of 32,767
free frames        4,000 of 4,096, 4,096 of 4,096

table  family  kind       routes
  254  IPv4    byte24  1,000,000
",
        ),
        (
            "elements",
            "\
element  class      packets  dropped  cycles/packet  to
rt       FIBLookup    1,000        3           12.5  [0] 997 to [0]out
                                                     [1] ? to [0]out
",
        ),
        ("drops nothing", "no packets dropped\n"),
        (
            "cost",
            "\
worker  packets  fill  cycles  share  class           element
     0    1,280  32.0     7.0  50.0%  Strip           in
     0    1,280  32.0    12.5  25.0%  fused run of 2  s + t
     0                         25.0%                  (rest)

cache and branch misses: not counted here
",
        ),
        (
            "cost --unfused --sort cycles --seconds 30",
            "\
worker  packets  fill  cycles  share  cache-misses  branch-misses  class           element
     0    1,280  32.0    12.5  25.0%         0.250          0.500  fused run of 2  s + t
     0    1,280  32.0     7.0  50.0%         0.250          0.500  Strip           in
     0                         25.0%                                               (rest)
",
        ),
        ("drops route", "dropped  by  class          reason\n  1,005  rt  CheckIPHeader  no route\n"),
        ("acl", "   rule  packets\n     10        3  deny tcp any any port 25\ndefault    1,000  permit\n"),
        ("config", "[workers]\ncount = 1\n"),
        ("config --click", "eth1 :: FromDevice;\n"),
        ("fpm", "messages   1,002,003\nconnected          1  from 127.0.0.1:40000\n"),
        ("problems", "203.0.113.0/24: has labels (mpls)\n"),
        ("handlers", "check.drops\n"),
        ("handlers check.drops", "1\n2\n"),
        (
            "drift",
            "\
source   table  family  its routes  ours  lookup  differences
netlink    254  IPv4             5     5  byte24            0
netlink    254  IPv6             5     5  byte24            0
",
        ),
        (
            "cluster",
            "\
cluster 'rb4', mesh(2), 2 nodes; 'b' leads; 'a' answers

node  role        state   links  lag  input  routed  output  balanced  flowlets moved
a     edge+route  member      -    0  25.0%   25.0%       -     10.0%            0.0%
b     edge+route  leads       -    0  75.0%   75.0%       -     10.0%            0.0%

evenness, most loaded node over mean, 1.00 is even: input 1.50 (b), routed 1.50 (b)

when (UTC)           what happened
1970-01-01 00:00:00  node 'b' leads
",
        ),
        ("ports nowhere", "no ports\n"),
        (
            "drops route --json",
            "{\"element\":\"rt\",\"class\":\"CheckIPHeader\",\"reason\":\"no route\",\"packets\":1005}\n",
        ),
    ] {
        assert_eq!(shown(words), expected, "brickway show {words}");
    }
}

#[test]
fn without_words_it_lists_what_there_is() {
    let list = shown("");
    assert!(
        list.starts_with("brickway show ...\nports              The ports: packets, bytes, rates, "),
        "{list}"
    );
    assert_eq!(list.lines().count(), 24);
}

#[test]
fn drift_has_its_exit_code() {
    let (code, out, _) = ask(&["show", "drift"], Some(Router { drifts: true }));
    let expected = "\
table  prefix         Linux or daemon       forwarding table
  254  2001:db8::/32  via fe80::1 dev eth1  -

source   table  family  its routes  ours  lookup  differences
netlink    254  IPv4             5     5  byte24            0
netlink    254  IPv6             5     5  byte24            1
";
    assert_eq!((code, out.as_str()), (3, expected));
    let (code, out, _) = ask(&["show", "drift", "--json"], Some(Router { drifts: true }));
    assert_eq!((code, out.lines().count()), (3, 3));
}

#[test]
fn routers_do_as_they_are_told_or_say_why_not() {
    let said = |words: &[&str]| brickway(words);
    assert_eq!(
        said(&["set", "workers.balance", "no"]),
        (0, "workers.balance is no now\n".into(), String::new())
    );
    assert_eq!(said(&["set", "--handler", "c.reset", ""]), (0, "c.reset got ''\n".into(), String::new()));
    assert_eq!(said(&["reload"]), (0, String::new(), String::new()));
    let error = "brickway: 'colour' cannot be changed while the router runs\n";
    assert_eq!(said(&["set", "colour", "red"]), (1, String::new(), error.to_owned()));
}

#[test]
fn without_a_router_the_exit_code_says_so() {
    let error = "brickway: no router answers at 'SOCKET'; is one running? ('brickway run', or --socket if it has another \
                 socket)\n";
    let costly = &["show", "cost", "--unfused"];
    for words in [&["show", "ports"][..], &["reload"], &["set", "a", "b"], costly, &["profile", "1"]] {
        assert_eq!(ask(words, None), (4, String::new(), error.to_owned()));
    }
    assert_eq!(ask(&["show", "rotes"], None).0, 2);
}

#[test]
fn a_column_that_is_not_there_is_answered_with_those_that_are() {
    let (code, out, err) = ask(&["show", "cost", "--sort", "colour"], None);
    assert_eq!((code, out.as_str()), (2, ""));
    let columns = "element, class, worker, packets, fill, cycles, share, cache-misses, branch-misses";
    assert!(err.contains("'colour'") && err.contains(columns), "{err}");
    assert_eq!(ask(&["show", "cost", "--seconds", "31"], None).0, 2);
    let (_, first, _) = brickway(&["show", "cost", "--sort", "cycles", "--json"]);
    let first: serde_json::Value = serde_json::from_str(first.lines().next().unwrap()).unwrap();
    assert_eq!((&first["elements"], &first["cycles_per_packet"]), (&json!(["s", "t"]), &json!(12.5)));
}

#[test]
fn changes_of_routes_are_read_in_time_and_say_how_far_back_they_reach() {
    let expected = "\
time                     route          change        packets went           by
2026-11-27 03:12:01.123  10.2.0.0/16    added         via 10.0.0.1 dev eth1  proto static netlink
2026-11-27 03:12:02.123  10.2.0.0/16    changed from  via 10.0.0.1 dev eth1  proto static netlink
                                        to            via 10.0.1.1 dev eth2  proto bgp metric 20 netlink
2026-11-27 03:12:03.123  next-hop id 7  changed from  via 10.0.0.1 dev eth1  netlink
                                        to            via 10.0.1.1 dev eth2  netlink
2026-11-27 03:12:04.123  10.2.0.0/16    removed       via 10.0.1.1 dev eth2  proto bgp metric 20 netlink
All changes since the router began (2026-11-26 22:01:13.000) are kept: 65,536
";
    assert_eq!(shown("changes"), expected);
    let of_table = shown("changes 192.0.2.7/24 --table 7");
    assert!(of_table.contains("  192.0.2.0/24 table 7  added "), "{of_table}");
    let reach = "The history reaches back to 2026-11-26 22:01:13.000: 65,536 changes; 12 older ones were overwritten\n";
    assert!(of_table.ends_with(reach), "{of_table}");
    let none = shown("changes --since 2026-11-27T03:10:00Z");
    assert!(none.starts_with("no changes\nAll changes since the router began "), "{none}");
    let json = shown("changes 10.2.3.4 --json");
    let last = "{\"kind\":\"route\",\"time\":\"2026-11-27T03:12:04.123456Z\",\"table\":254,\"prefix\":\"10.2.0.0/16\",\
                \"old\":{\"hops\":\"via 10.0.1.1 dev eth2\",\"protocol\":\"bgp\",\"source\":\"netlink\",\"metric\":20},\"new\":null}";
    assert_eq!(json.lines().last(), Some(last));
    let (code, _, err) =
        ask(&["show", "changes", "--since", "5m", "--until", "2h"], Some(Router { drifts: false }));
    assert_eq!((code, err.as_str()), (1, "brickway: --until: before --since; expected a later time\n"));
    let (code, _, err) = ask(&["show", "changes", "--since", "noon"], None);
    assert!(
        code == 2 && err.contains("expected 3:10, 3:10:30, '2026-11-27 3:10', 5m, 2h, 3d or now"),
        "{err}"
    );
    assert_eq!(ask(&["show", "changes", "ten"], None).0, 2);
}

#[test]
fn the_log_is_followed_until_the_router_ends_or_read_until_a_time() {
    let waiting = "brickway: waiting for events; Ctrl-C ends it\n";
    let ended = "brickway: the router has ended\n";
    let followed = "\
(3 events were lost: they came faster than they were read)
2026-11-27 03:12:01.123 info  eth1: link up
";
    let (code, out, err) = brickway(&["monitor"]);
    assert_eq!((code, out.as_str(), err), (1, followed, format!("{waiting}{ended}")));
    let (code, out, _) = brickway(&["monitor", "--last", "5"]);
    let first = "2026-11-27 03:12:01.123 warn  eth1: link down (no carrier)\n";
    assert_eq!((code, out), (1, format!("{first}{followed}")));
    let (code, out, err) = brickway(&["monitor", "--since", "2h", "--until", "now"]);
    assert_eq!((code, out.as_str(), err.as_str()), (0, first, ""));
    let (_, out, _) = brickway(&["monitor", "--json"]);
    let event = "{\"time\":\"2026-11-27T03:12:01.123456Z\",\"level\":\"info\",\"text\":\"eth1: link up\",\"port\":\"eth1\"}";
    assert_eq!(out, format!("{{\"lost\":3}}\n{event}\n"));
    assert_eq!(brickway(&["monitor", "--last", "0", "--until", "now"]).1, "no events\n");
    assert_eq!(ask(&["monitor", "--level", "loud"], None).0, 2);
    assert_eq!(ask(&["monitor"], None).0, 4);
}
