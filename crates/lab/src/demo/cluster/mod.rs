//! `brickway-lab demo --cluster`: four servers that are one router. Hosts on each of them, FRR on the leader, BIRD on a neighbour, etcd as the
//! store: a newcomer sees it route, and what it loses when the leader dies, and another server after it.
//!
//! | file | what lives there |
//! | --- | --- |
//! | this one | what is shown, step by step |
//! | `network` | namespaces, links, addresses; the cluster's file |
//! | `programs` | the programs that run in them, and their files |
//! | `figures` | what was measured |

mod figures;
mod network;
mod programs;

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use control::api::{Client, HandlerFilter, HandlerRow, LookupRow, Request, RouteQuery, Show};
use control::cluster::key::KeyFile;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tempfile::TempDir;

use super::hosts::{Ping, Stop, TRIES, again, all_answered};
use super::report::Report;
use super::{DemoArguments, check_programs};
use figures::{Figures, Lost, Throughput, flows_of};
use network::{FAR, Network, PORT_RATE, Station};
use programs::{FRR, PINGS_A_SECOND, Pings, Programs};

/// How long another node may take to lead, in seconds: what it holds for dead has been silent for three.
const LONGEST_TAKEOVER: f64 = 10.0;

/// How many pings in a hundred may be lost where nothing died that they pass, on a machine that stands in for all and may be busy.
const LOST_IN_A_HUNDRED: u64 = 2;

/// The share of what is sent that arrives at least, and the share of little traffic that goes directly. Of much traffic as much goes
/// over other servers at least.
const LEAST_RATE: f64 = if cfg!(debug_assertions) { 0.3 } else { 0.8 };
const LEAST_SHARE: [f64; 2] = [0.9, 0.5];

/// A step that was waited for in vain.
#[derive(Debug, thiserror::Error)]
#[error("{step}: {why}")]
struct Missed {
    step: &'static str,
    why: String,
}

/// Time between two looks at a node's tables, while none of its routes may go.
const LOOK_PERIOD: Duration = Duration::from_millis(20);

/// A row of `brickway cluster show --json`.
#[derive(Debug, Deserialize)]
struct NodeRow {
    node: String,
    state: String,
    #[serde(default)]
    lag: u64,
    #[serde(default)]
    links: Vec<LinkRow>,
}

#[derive(Debug, Deserialize)]
struct LinkRow {
    is_up: bool,
}

impl NodeRow {
    fn is_away(&self) -> bool {
        self.state == "away"
    }
}

/// The cluster that runs.
struct Cluster<'a> {
    network: &'a Network,
    folder: &'a TempDir,
    programs: Programs<'a>,
    stop: &'a Stop,
    /// How long anything may take that the demo waits for.
    patience: Duration,
}

pub(super) fn demo(arguments: &DemoArguments) -> Result<ExitCode> {
    check_programs(&[("etcd", "etcd-server"), ("vtysh", "frr"), ("bird", "bird2")])?;
    for daemon in ["zebra", "bgpd"] {
        if !Path::new(FRR).join(daemon).is_file() {
            bail!("FRR's {daemon} is not in {FRR}: apt-get install frr ('make demo-cluster' does it)");
        }
    }
    let begin = Instant::now();
    let stop = Stop::on_ctrl_c()?;
    let mut report = Report::new(arguments.json, &stop);
    let mut figures = Figures::default();
    let name = format!("brickway-{}", std::process::id());
    let folder = tempfile::Builder::new().prefix(&name).rand_bytes(0).tempdir()?;
    let key_file = folder.path().join("cluster.key");
    KeyFile::create(&key_file).with_context(|| format!("cannot write '{}'", key_file.display()))?;
    let config = network::cluster(&Programs::hook(&folder), key_file, arguments.workers)?;

    report.line("Four servers that are one router: every one is wired to every other, and each has a host. Behind the last one is a");
    report.line(
        "neighbour that speaks BGP to the one router. Each box is a network namespace of this machine.\n",
    );
    report.line("    ha          hb          hc          hd        n (BIRD) --- hn 203.0.113.2");
    report.line("    | a1        | b1        | c1        | d1     / d2");
    report.line("  [ a ]-------[ b ]-------[ c ]-------[ d ]-----/     and a-c, a-d, b-d; etcd in a management network\n");
    let network = Network::create(&config, &stop).context("cannot make the demo's network")?;
    report.step(
        "network",
        Ok(format!("{} namespaces, {} links; hosts have IPv4 and IPv6", network.size(), network.links)),
    );
    let result = (|| {
        let programs = Programs::start(&folder, &network, &config)?;
        let patience = Duration::from_secs(arguments.patience);
        let mut cluster = Cluster { network: &network, folder: &folder, programs, stop: &stop, patience };
        cluster.begin(
            &config.nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>(),
            &mut report,
            &mut figures,
        )?;
        cluster.exercise(arguments.seconds, &mut report, &mut figures)?;
        cluster.leader_dies(&mut report, &mut figures)?;
        cluster.another_dies(&mut report, &mut figures)?;
        if arguments.keep && !stop.is_set() {
            report.line("\n  What is left of the cluster runs on. In another terminal, for instance:");
            let (far, file) = (FAR[0].split('/').next().unwrap_or_default(), cluster.programs.file());
            let (host, management) = (network.hosts[3].host.namespace.name(), network.management.name());
            report.line(format_args!("    ip netns exec {host} ping {far}"));
            report.line(format_args!("    ip netns exec {management} brickway cluster show {file}"));
            report.line("  Ctrl-C ends it.");
            while !stop.is_set() && cluster.programs.ended().is_none() {
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        cluster.programs.end();
        anyhow::Ok(())
    })();
    report.clear_live();
    drop(network);
    drop(folder);
    if stop.is_set() && !arguments.keep {
        report.line("\nInterrupted; everything is cleaned up.");
        return Ok(ExitCode::from(130));
    }
    match result.map_err(|error| error.downcast::<Missed>()) {
        Ok(()) => {}
        Err(Ok(missed)) => report.step(missed.step, Err(missed.why)),
        Err(Err(error)) => return Err(error),
    }
    figures.seconds = begin.elapsed().as_secs_f64();
    figures.ok = !report.failed;
    match arguments.json {
        true => router::output::say_line!("{}", figures.json(&report.steps)?),
        false => router::output::say!("\n{}", figures.table().render()),
    }
    if report.failed {
        report.line("\nA step failed; everything is cleaned up.");
        return Ok(ExitCode::from(3));
    }
    report.line("\nThe cluster's file is examples/cluster.toml, with a port more: read it, change it, `brickway cluster check` it.");
    Ok(ExitCode::SUCCESS)
}

impl Cluster<'_> {
    /// Looks until there is something. The step fails if there never is, with what it was waiting for.
    fn wait<T>(
        &self,
        step: &'static str,
        what: &str,
        mut look: impl FnMut(&Self) -> Result<Option<T>>,
    ) -> Result<T> {
        let begin = Instant::now();
        loop {
            self.stop.check()?;
            if let Some(seen) = look(self)? {
                return Ok(seen);
            }
            if let Some((name, printed)) = self.programs.ended() {
                bail!(Missed { step, why: format!("'{name}' has ended:\n{printed}") });
            }
            if begin.elapsed() > self.patience {
                bail!(Missed { step, why: format!("{what}: not within {} s", self.patience.as_secs()) });
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What the nodes say of themselves; nothing while the store does not answer.
    fn nodes(&self) -> Result<Vec<NodeRow>> {
        let text = self.programs.show(&["--json"], self.stop)?;
        Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
    }

    fn leader(&self) -> Result<Option<String>> {
        Ok(self.nodes()?.into_iter().find(|row| row.state == "leads").map(|row| row.node))
    }

    /// Waits until the leader's BGP sessions of both families are up.
    fn wait_for_bgp(&self, leader: &str) -> Result<()> {
        self.wait("BGP", "its sessions", |this| {
            Ok((this.programs.bgp_sessions(leader, this.stop)? == FAR.len()).then_some(()))
        })
    }

    /// The first node leads; the others join it.
    fn begin(&mut self, names: &[&str], report: &mut Report, figures: &mut Figures) -> Result<()> {
        let begin = Instant::now();
        self.wait("etcd", "its answer", |this| {
            // What an empty store is asked for.
            Ok(this.programs.show(&[], this.stop)?.contains("nobody runs the cluster").then_some(()))
        })?;
        report.step(
            "etcd",
            Ok(format!("the store of the cluster, ready after {:.1} s", begin.elapsed().as_secs_f64())),
        );
        let begin = Instant::now();
        self.programs.start_node(0, names[0])?;
        let leader = self.wait("nodes", "a leader", |this| this.leader())?;
        for (place, name) in names.iter().enumerate().skip(1) {
            self.programs.start_node(place, name)?;
        }
        let links = names.len() - 1;
        self.wait("nodes", "all nodes and links", |this| {
            let up = |row: &NodeRow| row.links.iter().filter(|link| link.is_up).count() == links;
            let rows = this.nodes()?;
            let all = rows.len() == names.len() && rows.iter().all(|row| up(row) && row.lag == 0);
            Ok(all.then_some(()))
        })?;
        figures.ready_s = begin.elapsed().as_secs_f64();
        let text = format!(
            "{} are members after {:.1} s, all links up; '{leader}' leads: its Linux is the cluster's host",
            names.join(", "),
            figures.ready_s
        );
        report.step("nodes", Ok(text));
        let begin = Instant::now();
        self.programs.start_neighbour()?;
        self.wait_for_bgp(&leader)?;
        figures.bgp_s = begin.elapsed().as_secs_f64();
        self.wait("BGP", "the neighbour's prefixes on all nodes", |this| {
            let names = this.programs.names();
            Ok(names.iter().all(|name| knows_far(&this.programs.socket(name))).then_some(()))
        })?;
        let text = format!(
            "neighbour n's sessions with FRR on '{leader}' are up after {:.1} s; all {} nodes have its 2 prefixes",
            figures.bgp_s,
            names.len()
        );
        report.step("BGP", Ok(text));
        Ok(())
    }

    /// What a newcomer would try.
    fn exercise(&self, seconds: u32, report: &mut Report, figures: &mut Figures) -> Result<()> {
        let hosts = &self.network.hosts;
        let (mut all, mut slowest_ms, mut lossy) = (Ping::default(), 0.0f64, Vec::new());
        for from in hosts {
            for to in hosts.iter().filter(|to| to.name != from.name) {
                report.live(&format!("ping         {} -> {}", from.name, to.name));
                for address in &to.addresses {
                    let ping = match lossy.is_empty() {
                        true => from.host.reach(address, 3, self.stop)?,
                        false => from.host.ping(address, 3, self.stop)?,
                    };
                    all = all.and(ping);
                    slowest_ms = slowest_ms.max(ping.average_ms);
                    let missing = ping.sent - ping.answered;
                    lossy.extend(
                        (missing > 0).then(|| {
                            format!("; {} -> {address}: {missing} of {} lost", from.name, ping.sent)
                        }),
                    );
                }
            }
        }
        figures.lost.push(Lost::new("all run", "any host", "any other", (all.sent - all.answered, all.sent)));
        let outcome = all_answered("", all);
        let and = |text| {
            format!(
                "{text}: every host to every other, IPv4 and IPv6, {slowest_ms:.2} ms at most{}",
                lossy.concat()
            )
        };
        report.step("ping", outcome.map(and).map_err(and));

        let [first, last] = [&hosts[0], &hosts[hosts.len() - 1]];
        for (family, target) in last.addresses.iter().enumerate() {
            let right = [first.gateways[family].as_str(), target];
            let hops = first.host.traceroute(target, &right, self.stop)?;
            let text = format!(
                "{} -> {}: {}: two servers on the way, one hop",
                first.name,
                last.name,
                hops.join(", ")
            );
            report.step("traceroute", if hops == right { Ok(text) } else { Err(text) });
        }

        let mut all = Ping::default();
        for host in hosts {
            all = all.and(host.host.reach(&host.gateways[0], 3, self.stop)?);
        }
        let own: Vec<_> = hosts.iter().map(|host| host.gateways[0].as_str()).collect();
        report.step("router", all_answered(&format!("{}, by whichever server: ", own.join(", ")), all));

        let [_, middle, ..] = &hosts[..] else { bail!("the demo has at least two hosts") };
        for target in &self.network.far.addresses {
            let ping = middle.host.reach(target, 5, self.stop)?;
            let text = format!("{} -> {target} behind the neighbour, by BGP: ", middle.name);
            report.step("learnt route", all_answered(&text, ping));
        }

        // Much less and more than the quarter of port_rate that goes directly by right, which is 100 Mbit/s in bursts of 64 KiB. A
        // busy machine hands a node what came in 50 ms at once. A flow that this has moved stays where it is until it pauses.
        for (flows, mbps) in [(1u32, 10u32), (8, 45)] {
            let outcome = self.tcp((first, last), (flows, mbps), seconds, report, figures)?;
            report.step("iperf3", outcome);
        }
        let table = self.programs.show(&[], self.stop)?;
        report.line("\n  $ brickway cluster show cluster.toml");
        table.lines().take_while(|line| !line.starts_with("node  link")).for_each(|line| {
            report.line(format_args!("  {line}").to_string().trim_end());
        });
        Ok(())
    }

    /// TCP between two hosts in so many flows of so many Mbit/s each.
    fn tcp(
        &self,
        (first, last): (&Station, &Station),
        (flows, mbps): (u32, u32),
        seconds: u32,
        report: &Report,
        figures: &mut Figures,
    ) -> Result<Result<String, String>> {
        let (flows_text, rate) = (flows.to_string(), format!("{mbps}M"));
        let options = ["-P", &flows_text, "--fq-rate", &rate];
        let offered = f64::from(flows * mbps) * 1e6;
        let mut tries = 0;
        loop {
            tries += 1;
            let before = self.paths("a")?;
            let idle = &mut || report.live(&format!("iperf3       {} -> {}", first.name, last.name));
            let to = (&last.host, last.addresses[0].as_str());
            let tcp = first.host.iperf(to, seconds, &options, self.stop, idle)?;
            let after = self.paths("a")?;
            let [direct, balanced] = [after.0 - before.0, after.1 - before.1];
            let share = balanced as f64 / (direct + balanced).max(1) as f64;
            // Little traffic goes directly, much traffic over other servers.
            let (way, wanted, least) = match flows {
                1 => ("directly", 1.0 - share, LEAST_SHARE[0]),
                _ => ("over other servers", share, LEAST_SHARE[1]),
            };
            let (outcome, tcp) = match tcp {
                Ok(tcp) => {
                    let text = format!(
                        "TCP {} -> {}, {:.0} of {:.0} Mbit/s in {} (at least {LEAST_RATE} of it), {:.0}% {way} (at least {:.0}%; ports of {PORT_RATE}){}",
                        first.name,
                        last.name,
                        tcp.bits_per_second / 1e6,
                        offered / 1e6,
                        flows_of(flows),
                        wanted * 100.0,
                        least * 100.0,
                        again(tries)
                    );
                    let is_well = tcp.bits_per_second >= offered * LEAST_RATE && wanted >= least;
                    (if is_well { Ok(text) } else { Err(text) }, Some(tcp))
                }
                Err(why) => (Err(why), None),
            };
            if outcome.is_err() && tries < TRIES {
                continue;
            }
            figures.throughput.extend(tcp.map(|tcp| Throughput {
                flows,
                offered_bits_per_second: offered,
                bits_per_second: tcp.bits_per_second,
                direct: 1.0 - share,
                balanced: share,
            }));
            return Ok(outcome);
        }
    }

    /// Packets that a node has sent directly, and over another one.
    fn paths(&self, node: &str) -> Result<(u64, u64)> {
        let read = |handler: &str| -> Result<u64> {
            let row: HandlerRow = ask(
                &self.programs.socket(node),
                Show::Handlers(HandlerFilter { name: Some(handler.to_owned()) }),
            )?;
            row.value
                .unwrap_or_default()
                .trim()
                .parse()
                .with_context(|| format!("{handler} of node '{node}'"))
        };
        Ok((read("to.direct")?, read("to.balanced")?))
    }

    /// The leader dies while pings go.
    fn leader_dies(&mut self, report: &mut Report, figures: &mut Figures) -> Result<()> {
        let old = self.leader()?.context("nobody leads")?;
        let network = self.network;
        let [_, from, to, ..] = &network.hosts[..] else { bail!("the demo has at least three hosts") };
        let [far4, far6] = &network.far.addresses;
        let own = &from.gateways[0];
        let targets = [
            (from, &to.addresses[0], to.name.as_str()),
            (to, far6, "hn"),
            (from, far4, "hn"),
            (from, own, "the router itself"),
        ];
        let pings: Vec<Pings> =
            targets.iter().map(|(from, to, _)| Pings::start(self.folder, from, to)).collect::<Result<_>>()?;
        std::thread::sleep(Duration::from_millis(300));

        let sockets: Vec<_> = self.programs.names().into_iter().filter(|name| *name != old).collect();
        let sockets: Vec<_> = sockets.iter().map(|name| self.programs.socket(name)).collect();
        let watching = AtomicBool::new(true);
        let (takeover, back, new, (looks, missing)) = std::thread::scope(|scope| {
            let watch = scope.spawn(|| {
                let (mut looks, mut missing) = (0, 0);
                while watching.load(Ordering::SeqCst) {
                    for socket in &sockets {
                        looks += 1;
                        missing += u64::from(!knows_far(socket));
                    }
                    std::thread::sleep(LOOK_PERIOD);
                }
                (looks, missing)
            });
            let acted = (|| {
                report.line(format_args!("\n  kill -9 '{old}' and FRR on it"));
                let begin = Instant::now();
                self.programs.kill_node(&old);
                report.live(&format!("leader       '{old}' is dead"));
                let new =
                    self.wait("leader", "a new one", |this| Ok(this.leader()?.filter(|name| *name != old)))?;
                let takeover = begin.elapsed();
                report.live(&format!("leader       '{new}' leads; FRR starts"));
                self.wait_for_bgp(&new)?;
                let back = begin.elapsed();
                self.wait("router", "its answer", |this| {
                    let ping = from.host.ping(own, 2, this.stop)?;
                    Ok((ping.answered == ping.sent).then_some(()))
                })?;
                anyhow::Ok((takeover.as_secs_f64(), back.as_secs_f64(), new))
            })();
            // What BGP withdraws or adds when it is back would be seen now.
            std::thread::sleep(Duration::from_millis(500));
            watching.store(false, Ordering::SeqCst);
            let watched = watch.join().unwrap_or_default();
            acted.map(|(takeover, back, new)| (takeover, back, new, watched))
        })?;
        figures.takeover_s = takeover;
        figures.bgp_back_s = back;
        figures.looks = looks;
        figures.looks_without_route = missing;
        let text = format!("'{new}' leads {takeover:.1} s after '{old}' died (at most {LONGEST_TAKEOVER} s)");
        report.step("leader", if takeover <= LONGEST_TAKEOVER { Ok(text) } else { Err(text) });
        report.step("BGP", Ok(format!("sessions with FRR on '{new}' are up {back:.1} s after '{old}' died")));
        let text =
            format!("{looks} looks at the nodes' tables meanwhile: n's prefixes were missing in {missing}");
        report.step("routes", if missing == 0 && looks > 0 { Ok(text) } else { Err(text) });
        self.tell_lost(&format!("'{old}', the leader, dies"), takeover, &targets, pings, report, figures);
        Ok(())
    }

    /// Another node dies, which does not lead and has no neighbour.
    fn another_dies(&mut self, report: &mut Report, figures: &mut Figures) -> Result<()> {
        let leader = self.leader()?.context("nobody leads")?;
        let names = self.programs.names();
        let [others @ .., last] = &names[..] else { bail!("no node runs") };
        let dies = others.iter().find(|name| **name != leader).context("no node is left to die")?.clone();
        let network = self.network;
        let rest: Vec<&String> = names.iter().filter(|name| **name != dies).collect();
        let host = |name: &str| {
            let name = format!("h{name}");
            network.hosts.iter().find(|host| host.name == name).context("each node has a host")
        };
        let (from, to) = (host(rest[0])?, host(last)?);
        let far = &network.far.addresses[0];
        let targets = [
            (from, &to.addresses[0], to.name.as_str()),
            (from, far, "hn"),
            (from, &from.gateways[0], "the router itself"),
        ];
        let pings: Vec<Pings> =
            targets.iter().map(|(from, to, _)| Pings::start(self.folder, from, to)).collect::<Result<_>>()?;
        std::thread::sleep(Duration::from_millis(300));
        report.line(format_args!("\n  kill -9 '{dies}'"));
        report.live(&format!("node         '{dies}' is dead"));
        let begin = Instant::now();
        self.programs.kill_node(&dies);
        self.wait("node", "that the others notice", |this| {
            let rows = this.nodes()?;
            Ok(rows.iter().any(|row| row.node == dies && row.is_away()).then_some(()))
        })?;
        let noticed = begin.elapsed().as_secs_f64();
        std::thread::sleep(Duration::from_millis(300));
        let now = self.leader()?.unwrap_or_default();
        let sessions = self.programs.bgp_sessions(&now, self.stop)?;
        let text = format!(
            "'{now}' still leads, {sessions} of {} BGP sessions are up; the store misses '{dies}' after {noticed:.1} s",
            FAR.len()
        );
        report.step("leader", if now == leader && sessions == FAR.len() { Ok(text) } else { Err(text) });
        self.tell_lost(&format!("'{dies}' dies"), 0.0, &targets, pings, report, figures);
        Ok(())
    }

    /// Ends the pings, and tells what was lost. What goes between servers that live must go on; the router itself may be silent until
    /// another one leads, and a second more.
    fn tell_lost(
        &self,
        event: &str,
        takeover: f64,
        targets: &[(&Station, &String, &str)],
        pings: Vec<Pings>,
        report: &mut Report,
        figures: &mut Figures,
    ) {
        for ((from, address, to), pings) in targets.iter().zip(pings) {
            let lost = Lost::new(event, &from.name, to, pings.end());
            let silent = if from.gateways.contains(address) && takeover > 0.0 { takeover + 1.0 } else { 0.0 };
            let most = lost.sent * LOST_IN_A_HUNDRED / 100 + (silent * PINGS_A_SECOND) as u64;
            let text = format!(
                "{} -> {to} ({address}): {} of {} lost (at most {most}), a hundred a second",
                from.name, lost.lost, lost.sent
            );
            report.step("ping", if lost.sent > 0 && lost.lost <= most { Ok(text) } else { Err(text) });
            figures.lost.push(lost);
        }
    }
}

/// Asks a node's control socket for something of which there is one.
fn ask<T: DeserializeOwned>(socket: &Path, what: Show) -> Result<T> {
    let mut client = Client::connect(socket)?;
    let row = client.ask(&Request::Show(what))?.next().context("the node answers nothing")??;
    Ok(serde_json::from_str(&row)?)
}

/// Whether a node has both prefixes of the neighbour.
fn knows_far(socket: &Path) -> bool {
    FAR.iter().all(|address| {
        let Some(address) = address.split('/').next().and_then(|address| address.parse().ok()) else {
            return false;
        };
        let query = RouteQuery { address, table: None, from: None, input: None };
        let row: Result<LookupRow> = ask(socket, Show::Route(query));
        row.is_ok_and(|row| row.route.is_some_and(|route| route.protocol == "bgp"))
    })
}
