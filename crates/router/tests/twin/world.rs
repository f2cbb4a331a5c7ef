//! A world: a router `r` with three ports and an interface that is not a port, and the stations at their far ends, which answer for
//! neighbours and are silent otherwise. What a kind of interface needs stands beside (`kinds`).
//!
//! ```text
//!   r: eth1 10.0.1.1/24 2001:db8:1::1/64 02:..:01:01 ----- far1 10.0.1.2, .7  2001:db8:1::2, ::7  02:..:01:02
//!      eth2 ... eth4 likewise                              far2 ... far4, in one namespace
//! ```

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use testbed::{Folder, Namespace, Running};

use crate::kinds::Kind;
use crate::netns::router::PROGRAM;
use crate::netns::wire::Wire;
use crate::probes::{self, DENIED, Probe};

/// The links of a world; the last one is not a port of the router.
pub(crate) const LINKS: usize = 4;

/// How long a router may take to start: an emulated kernel verifies programs for a minute.
const LONGEST_START: Duration = Duration::from_secs(300);

/// Frames that came of a probe: by which far end, and their bytes without what their makers chose.
pub(crate) type Outcome = Vec<(usize, Vec<u8>)>;

pub(crate) struct World {
    kind: &'static Kind,
    // Wires are closed before their namespace goes.
    wires: Vec<Wire>,
    router: Option<Running>,
    r: Namespace,
    _far: Namespace,
    folder: Folder,
    seen: BTreeMap<u16, Outcome>,
}

/// The program that routes in a world.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Routing<'a> {
    Linux,
    Brickway(&'a str),
}

const LINUX_FILTER: &str =
    "table ip f { chain f { type filter hook forward priority 0; udp dport 5353 drop; }; }
table ip6 f { chain f { type filter hook forward priority 0; udp dport 5353 drop; }; }";

/// The filter of the far ends, which take in neighbour discovery and what this says.
fn silence(accepted: &str) -> String {
    format!(
        "table inet s {{ chain s {{ type filter hook input priority 0; policy drop;
icmpv6 type {{ nd-neighbor-solicit, nd-neighbor-advert }} accept; {accepted}; }}; }}"
    )
}

impl World {
    pub(crate) fn new(kind: &'static Kind) -> World {
        let name = |kind| Namespace::unique_name(kind);
        let r = Namespace::new(name("twin-r")).unwrap();
        let far = Namespace::new(name("twin-f")).unwrap();
        r.script(
            "sysctl -qw net.ipv6.conf.default.accept_dad=0 net.ipv6.conf.all.accept_dad=0 \
             net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0 \
             net.ipv4.conf.all.send_redirects=0 net.ipv4.conf.default.send_redirects=0 \
             net.ipv4.icmp_ratemask=0 net.ipv4.icmp_msgs_per_sec=1000000 net.ipv4.icmp_msgs_burst=1000000 \
             net.ipv6.icmp.ratelimit=0 net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1",
        )
        .unwrap();
        far.script(&format!(
            "sysctl -qw net.ipv6.conf.default.accept_dad=0 net.ipv6.conf.all.accept_dad=0 \
             net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.default.rp_filter=0 net.ipv6.conf.default.accept_ra=0
             nft '{}'",
            silence(kind.far_accepts)
        ))
        .unwrap();
        let mut lines = String::new();
        let mut far_lines = String::new();
        for n in 1..=LINKS {
            lines += &format!(
                "link add eth{n} address 02:00:00:00:0{n}:01 numrxqueues 2 numtxqueues 2 type veth \
                 peer name far{n} netns {} address 02:00:00:00:0{n}:02\n\
                 addr add 10.0.{n}.1/24 brd + dev eth{n}\naddr add 2001:db8:{n}::1/64 dev eth{n} nodad\n\
                 link set eth{n} up\n",
                far.name()
            );
            for host in [2, 7] {
                far_lines += &format!("addr add 10.0.{n}.{host}/24 dev far{n}\n");
                far_lines += &format!("addr add 2001:db8:{n}::{host}/64 dev far{n} nodad\n");
            }
            far_lines += &format!("link set far{n} up\n");
        }
        let kinds_lines = kind.far.lines().map(|line| format!("{}\n", line.trim()));
        far_lines.extend(kinds_lines);
        let batch = |namespace: &Namespace, lines: &str, more: &str| {
            let script = format!("ip -batch - <<'END'\n{lines}END\n{more}");
            namespace.script(&script).unwrap();
        };
        batch(&r, &lines, "for n in 1 2 3 4; do ethtool -K eth$n tx off gro on; done");
        batch(&far, &far_lines, "for n in 1 2 3 4; do ethtool -K far$n tx off gro on; done");
        let wires = (1..=LINKS).map(|n| Wire::open(&far, &format!("af_packet:far{n}"))).collect();
        let world =
            World { kind, wires, router: None, r, _far: far, folder: Folder::new(), seen: BTreeMap::new() };
        for change in kind.here {
            assert!(world.make(change).iter().all(|&taken| taken), "{}: '{change}' fails", kind.name);
        }
        world
    }

    /// Makes a change: commands with semicolons between them. Returns which of them Linux took.
    pub(crate) fn make(&self, change: &str) -> Vec<bool> {
        change.split("; ").map(|command| self.command(command)).collect()
    }

    fn command(&self, change: &str) -> bool {
        let mut words = change.split(' ');
        let program = words.next().unwrap_or_default();
        let mut command = if program == "ip" {
            let mut command = Command::new("ip");
            command.args(["-n", self.r.name()]);
            command
        } else {
            self.r.command(program)
        };
        command.args(words).output().unwrap().status.success()
    }

    /// Whether Linux has an IPv6 route with several paths.
    pub(crate) fn has_paths6(&self) -> bool {
        self.r.run("ip -6 route show table all").unwrap().contains("nexthop via")
    }

    /// Whether a port lacks an IPv4 address, and whether an interface with IPv6 addresses lacks a link-local one.
    pub(crate) fn lacks(&self) -> (bool, bool) {
        let addresses = self.r.run("ip -brief addr").unwrap();
        let (mut ipv4, mut link_local) = (false, false);
        for line in addresses.lines().filter(|line| !line.starts_with("lo ")) {
            let has = |part: &str| line.split_whitespace().skip(2).any(|address| address.contains(part));
            ipv4 |= line.starts_with("eth") && !has(".");
            link_local |= has(":") && !has("fe80:");
        }
        (ipv4, link_local)
    }

    /// Starts what routes here. Returns what the router printed if it refuses to start.
    pub(crate) fn start(&mut self, routing: Routing<'_>, filters: bool) -> Result<(), String> {
        let Routing::Brickway(driver) = routing else {
            if filters {
                self.r.script(&format!("nft '{LINUX_FILTER}'")).unwrap();
            }
            return Ok(());
        };
        let socket = self.folder.file("socket");
        let mut command = self.r.command(PROGRAM);
        command.arg("run").args(self.kind.ports).args(["--driver", driver, "--socket", &socket]);
        if filters {
            let list = self.folder.write("list", format!("deny udp any any port {DENIED}\n"));
            command.args(["--acl", &list]);
        }
        let log = self.folder.path().join("router.log");
        let router = Running::start(&mut command, log).unwrap();
        let end = Instant::now() + LONGEST_START;
        let is_over = || router.printed().contains(" runs with ") || router.ended().is_some();
        while !is_over() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(2));
        }
        let is_over = is_over();
        assert!(is_over, "the router neither starts nor ends: {}", router.printed());
        if router.ended().is_some() {
            return Err(router.printed());
        }
        self.router = Some(router);
        Ok(())
    }

    /// Returns what the router printed if it has ended.
    pub(crate) fn end(&self) -> Option<String> {
        let router = self.router.as_ref()?;
        router.ended().map(|code| format!("exit code {code}: {}", router.printed()))
    }

    /// Returns what `brickway show WHAT` prints, and its exit code.
    pub(crate) fn show(&self, what: &str) -> (String, Option<i32>) {
        let socket = self.folder.file("socket");
        let output = self.r.command(PROGRAM).args(["show", what, "--socket", &socket]).output().unwrap();
        (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.code())
    }

    /// Whether a router of ours runs here.
    pub(crate) fn has_router(&self) -> bool {
        self.router.is_some()
    }

    /// Sends probes, the first with this number.
    pub(crate) fn send(&mut self, probes: &[Probe], first: u16) {
        self.gather();
        self.seen.clear();
        for (number, probe) in (first..).zip(probes) {
            self.wires[probe.link].send(&probes::numbered(probe, number));
        }
    }

    /// Takes in what has come.
    pub(crate) fn gather(&mut self) {
        for (port, wire) in self.wires.iter_mut().enumerate() {
            for frame in wire.received() {
                if let Some((number, frame)) = recognised(frame) {
                    let outcome = self.seen.entry(number).or_default();
                    outcome.push((port, frame));
                    outcome.sort();
                }
            }
        }
    }

    /// What came of a probe.
    pub(crate) fn outcome(&self, number: u16) -> Outcome {
        self.seen.get(&number).cloned().unwrap_or_default()
    }
}

/// The number of the probe of which a frame came, and the frame without what its maker chose. `None` for what stations and
/// routers say beside, and for errors of which Linux limits the rate or the time depends on a neighbour's silence.
fn recognised(mut frame: Vec<u8>) -> Option<(u16, Vec<u8>)> {
    let number = |bytes: &[u8]| Some(u16::from_be_bytes([*bytes.first()?, *bytes.get(1)?]));
    let headers = probes::ip_headers(&frame);
    let (&at, outer) = headers.split_last()?;
    outer.iter().for_each(|&outer| probes::without_choices(&mut frame[outer..]));
    let packet = frame.get_mut(at..)?;
    match packet.first()? >> 4 {
        4 if packet.len() >= 28 => {
            let header = usize::from(packet[0] & 15) * 4;
            if packet[9] != 1 {
                // Of a fragment of a tunnel's packet the number is not there.
                let is_tunnels = matches!(packet[9], 4 | 41 | 47)
                    || packet.get(header + 2..header + 4) == Some(&probes::VXLAN_PORT);
                return Some((number(&packet[4..])?, frame)).filter(|_| !is_tunnels);
            }
            let message = packet.get(header..)?;
            // Redirects and "unreachable" but for "fragmentation needed" are limited by host (net.ipv4.route.error_burst).
            if message[0] == 5 || (message[0] == 3 && message[1] != 4) {
                return None;
            }
            let number = number(message.get(12..)?)?;
            packet[4..6].fill(0);
            packet[10..12].fill(0);
            Some((number, frame))
        }
        6 if packet.len() >= 48 => {
            if packet[6] != 58 {
                return Some((number(&packet[2..])?, frame));
            }
            // Address unreachable comes when a neighbour was silent for three seconds.
            let message = &packet[40..];
            if message[0] >= 128 || (message[0] == 1 && message[1] == 3) {
                return None;
            }
            let number = number(message.get(10..)?)?;
            packet[1..4].fill(0);
            Some((number, frame))
        }
        _ => None,
    }
}
