//! The twin: two identical worlds, one with Linux alone, one with a router of ours on the ports. Random changes of Linux's state
//! are made in both, before the router starts and while it runs. After each the same frames are sent to both. What comes out,
//! where, and every ICMP error must be the same, but for the departures that `judge` lists with their reasons.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `world` | a world: namespaces, links, the router, frames to and from them |
//! | `kinds` | kinds of interfaces beside ports: bridges, VLANs, VRFs, tunnels; each seed has one |
//! | `changes` | random changes, as commands of `ip` and `sysctl` |
//! | `probes` | random frames |
//! | `judge` | what agrees, and the departures |
//!
//! A failure prints the fewest changes that show it, and the frame. Variables: `BRICKWAY_TWIN_SEEDS` is the number of seeds
//! (`make test-all` has 20,000), of which `BRICKWAY_TWIN_FIRST` are left out; `BRICKWAY_TWIN_SEED` repeats one,
//! `BRICKWAY_TWIN_KINDS` has the kinds to which seeds are kept.

#![allow(clippy::unwrap_used, reason = "a test")]

mod changes;
mod judge;
mod kinds;
#[path = "../netns/mod.rs"]
mod netns;
mod probes;
mod world;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use judge::Judge;
use kinds::{KINDS, Kind};
use packet::random::SplitMix64;
use probes::Probe;
use world::{Routing, World};

/// Seeds of a run without variables, over all drivers.
const SEEDS: u64 = 200;
/// After so many seeds a line says how far it is.
const TOLD_EVERY: usize = 250;
const DRIVERS: [&str; 4] = ["auto", "xdp", "af_xdp", "af_packet"];
/// Scenarios of a driver that run at a time: they mostly wait.
const AT_A_TIME: usize = 2;
/// Frames that are sent after a change.
const PROBES: usize = 40;
/// How long Brickway may take to follow a change, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);
/// The same while a disagreement is shrunk.
const SHRINKING: Duration = Duration::from_secs(5);

/// A seed's changes.
#[derive(Clone, Debug)]
struct Scenario {
    kind: &'static Kind,
    driver: &'static str,
    filters: bool,
    probes: u64,
    before: Vec<String>,
    during: Vec<String>,
}

impl Scenario {
    fn of(seed: u64) -> Scenario {
        let mut random = SplitMix64::new(seed);
        // The driver is the seed's, so that each test has its share.
        let driver = DRIVERS[(seed % DRIVERS.len() as u64) as usize];
        let kind = Kind::of(seed, DRIVERS.len() as u64);
        let filters = random.one_in(3);
        let mut changes = |most: u64| -> Vec<String> {
            let count = random.below(most + 1);
            (0..count).map(|_| kind.change(&mut random)).collect()
        };
        let (before, during) = (changes(8), changes(8));
        Scenario { kind, driver, filters, probes: random.next_u64(), before, during }
    }

    fn judge(&self) -> Judge {
        let is_multipath = |change: &String| change.contains("nexthop via") || change.contains("group");
        let any = |is: &dyn Fn(&String) -> bool| self.before.iter().chain(&self.during).any(is);
        Judge {
            filters: self.filters,
            // A bridge may take a port's frames.
            is_unjudged: self.kind.is_unjudged || any(&|change| change.contains("eth3 master br0")),
            is_multipath: any(&is_multipath),
            has_paths6: false,
            member_leaves: !self.kind.ports.contains(&"eth3")
                && any(&|change| change.contains("eth3 nomaster") || change.contains("link del br0")),
            has_stations: any(&|change| change.contains("macvlan")),
            leaves_ipv4: any(&|change| change.contains("accept_local")),
            has_broadcast: any(&|change| change.contains("broadcast 10.9.1.5")),
            lacks_ipv4: false,
            lacks_link_local: false,
        }
    }

    /// The scenario without one of its changes.
    fn without(&self, at: usize) -> Scenario {
        let mut fewer = self.clone();
        if at < fewer.before.len() {
            fewer.before.remove(at);
        } else {
            fewer.during.remove(at - self.before.len());
        }
        fewer
    }

    fn len(&self) -> usize {
        self.before.len() + self.during.len()
    }
}

/// The end of a scenario.
enum End {
    Agreed,
    /// The router did not start.
    Refused(String),
    /// What was different.
    Disagreed(String),
}

/// Runs a scenario, with a patience for each change.
fn run(scenario: &Scenario, patience: Duration) -> End {
    beside(scenario, Routing::Brickway(scenario.driver), patience)
}

/// Makes a change in both worlds. Returns whether it succeeds in both or in none. A neighbour that only a packet asked for that the
/// router drops (`judge`) is known in one.
fn is_made(change: &str, linux: &World, ours: &World) -> bool {
    linux.make(change) == ours.make(change) || change.starts_with("ip neigh del")
}

/// The same with something else beside Linux.
fn beside(scenario: &Scenario, routing: Routing<'_>, patience: Duration) -> End {
    let (mut linux, mut ours) = (World::new(scenario.kind), World::new(scenario.kind));
    let mut random = SplitMix64::new(scenario.probes);
    for change in &scenario.before {
        if !is_made(change, &linux, &ours) {
            return End::Disagreed(format!("'{change}' succeeds in one world only, before the start"));
        }
    }
    linux.start(Routing::Linux, scenario.filters).unwrap();
    if let Err(printed) = ours.start(routing, scenario.filters) {
        return End::Refused(printed);
    }
    let mut first = 1u16;
    let changes = std::iter::once(None).chain(scenario.during.iter().map(Some));
    for (at, change) in changes.enumerate() {
        if let Some(change) = change
            && !is_made(change, &linux, &ours)
        {
            return End::Disagreed(format!("'{change}' succeeds in one world only"));
        }
        let probes: Vec<Probe> = (0..PROBES).map(|_| probes::probe(&mut random, scenario.kind)).collect();
        if let Some(difference) = compare(scenario, &mut linux, &mut ours, &probes, &mut first, patience) {
            let last = change.map_or("after the start", String::as_str);
            return End::Disagreed(format!("change {at} ({last}): {difference}"));
        }
    }
    match drift(&ours, patience) {
        Some(difference) => End::Disagreed(difference),
        None => End::Agreed,
    }
}

/// Returns what `show drift` finds at the end, if it goes on finding it.
fn drift(ours: &World, patience: Duration) -> Option<String> {
    let end = Instant::now() + patience;
    while ours.has_router() {
        let (printed, code) = ours.show("drift");
        if code == Some(0) {
            break;
        }
        if Instant::now() > end {
            return Some(format!("at the end: show drift: {printed}"));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    None
}

/// Sends the probes until both worlds agree on them. Returns what is different at the end of the patience.
fn compare(
    scenario: &Scenario,
    linux: &mut World,
    ours: &mut World,
    probes: &[Probe],
    first: &mut u16,
    patience: Duration,
) -> Option<String> {
    let (lacks_ipv4, lacks_link_local) = linux.lacks();
    let judge = Judge { has_paths6: linux.has_paths6(), lacks_ipv4, lacks_link_local, ..scenario.judge() };
    let end = Instant::now() + patience;
    let mut pause = Duration::from_millis(10);
    loop {
        *first = if *first > 60_000 { 1 } else { *first + PROBES as u16 };
        linux.send(probes, *first);
        ours.send(probes, *first);
        let number = |at: usize| *first + at as u16;
        let mut differing = Vec::new();
        // The slowest way is over the router's slow path and Linux: some milliseconds.
        let until = Instant::now() + pause.max(Duration::from_millis(100));
        loop {
            linux.gather();
            ours.gather();
            differing.clear();
            differing.extend((0..probes.len()).filter(|&at| {
                !judge.agrees(&probes[at], &linux.outcome(number(at)), &ours.outcome(number(at)))
            }));
            if differing.is_empty() || Instant::now() > until {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        // What comes twice, or should not come, comes now.
        std::thread::sleep(Duration::from_millis(8));
        linux.gather();
        ours.gather();
        if let Some(at) = (0..probes.len()).find(|&at| judge.is_leak(&probes[at], &ours.outcome(number(at))))
        {
            return Some(format!("a denied packet passed: {}", probes::described(&probes[at].frame)));
        }
        if let Some(printed) = ours.end() {
            return Some(format!("the router ended: {printed}"));
        }
        differing
            .retain(|&at| !judge.agrees(&probes[at], &linux.outcome(number(at)), &ours.outcome(number(at))));
        let &at = differing.first()?;
        if Instant::now() > end {
            let told = |outcome: world::Outcome| {
                let frames = outcome
                    .iter()
                    .map(|(port, frame)| format!("far{}: {}", port + 1, probes::described(frame)));
                let frames: Vec<String> = frames.collect();
                if frames.is_empty() { "nothing".to_owned() } else { frames.join("; ") }
            };
            return Some(format!(
                "{} of {} frames; the first, at eth{}: {}\n  Linux    {}\n  Brickway {}\n{}",
                differing.len(),
                probes.len(),
                probes[at].link + 1,
                probes::described(&probes[at].frame),
                told(linux.outcome(number(at))),
                told(ours.outcome(number(at))),
                ours.show("problems").0,
            ));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(500));
    }
}

/// Removes changes while the rest still shows a disagreement.
fn shrunk(scenario: &Scenario) -> (Scenario, String) {
    let mut smallest = scenario.clone();
    let mut difference = String::new();
    let mut at = smallest.len();
    while at > 0 {
        at -= 1;
        let fewer = smallest.without(at);
        if let End::Disagreed(why) = run(&fewer, SHRINKING) {
            smallest = fewer;
            difference = why;
        }
    }
    (smallest, difference)
}

/// Describes a failure by the fewest changes that show it.
fn explained(seed: u64, why: &str) -> String {
    let scenario = Scenario::of(seed);
    let (smallest, difference) = shrunk(&scenario);
    let difference = if difference.is_empty() { why } else { &difference };
    let filter = if scenario.filters { ", with a filter" } else { "" };
    format!(
        "seed {seed}, {}, {}{filter}:\n  before the start: {:#?}\n  while it runs: {:#?}\n{difference}\n",
        scenario.kind.name, scenario.driver, smallest.before, smallest.during
    )
}

/// The number that a variable has.
fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

/// The kinds that are wanted and that this kernel has. Names those that it lacks.
fn kinds_here() -> Vec<&'static str> {
    let wanted = std::env::var("BRICKWAY_TWIN_KINDS").unwrap_or_default();
    let wanted: Vec<&str> = wanted.split_whitespace().collect();
    let is_wanted = |kind: &&Kind| wanted.is_empty() || wanted.contains(&kind.name);
    let (here, lacking): (Vec<&Kind>, Vec<&Kind>) =
        KINDS.iter().filter(is_wanted).partition(|kind| kind.is_here());
    if !lacking.is_empty() {
        let names: Vec<&str> = lacking.iter().map(|kind| kind.name).collect();
        println!("left out, as this kernel lacks them ('make test-twin-vm' has them): {}", names.join(", "));
    }
    here.iter().map(|kind| kind.name).collect()
}

/// Runs the seeds of a driver.
fn twin(driver: &str) {
    if !netns::is_root() {
        return;
    }
    let seeds = match number("BRICKWAY_TWIN_SEED") {
        Some(seed) => seed..seed + 1,
        None => number("BRICKWAY_TWIN_FIRST").unwrap_or(0)..number("BRICKWAY_TWIN_SEEDS").unwrap_or(SEEDS),
    };
    let kinds = kinds_here();
    let is_here = |seed: &u64| {
        let scenario = Scenario::of(*seed);
        let is_refused = scenario.kind.refuses_xdp && ["xdp", "af_xdp"].contains(&driver);
        scenario.driver == driver && kinds.contains(&scenario.kind.name) && !is_refused
    };
    let seeds: Vec<u64> = seeds.filter(is_here).collect();
    let next = AtomicUsize::new(0);
    let found = Mutex::new((Vec::new(), Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(&seed) = seeds.get(number) else { break };
                    if number > 0 && number.is_multiple_of(TOLD_EVERY) {
                        println!("{driver}: {number} of {} seeds", seeds.len());
                    }
                    match run(&Scenario::of(seed), PATIENCE) {
                        End::Agreed => {}
                        End::Refused(why) => found.lock().unwrap().1.push(format!("seed {seed}: {why}")),
                        End::Disagreed(why) => {
                            println!(
                                "{:?} differs, and its changes are reduced now: {why}",
                                Scenario::of(seed)
                            );
                            let failure = explained(seed, &why);
                            println!("{failure}");
                            found.lock().unwrap().0.push(failure);
                        }
                    }
                }
            });
        }
    });
    let ((failures, refused), count) = (found.into_inner().unwrap(), seeds.len());
    assert!(failures.is_empty(), "{} of {count} seeds differ, printed above", failures.len());
    assert!(refused.len() * 6 <= count + 10, "too many are refused:\n{}", refused.join("\n"));
}

/// What would differ between two Linuxes would be a mistake of the twin.
#[test]
fn linux_agrees_with_itself() {
    if !netns::is_root() {
        return;
    }
    let seeds = 0..number("BRICKWAY_TWIN_SEEDS").unwrap_or(SEEDS) / 10;
    let kinds = kinds_here();
    let seeds = seeds.map(|seed| seed * DRIVERS.len() as u64);
    let differing: Vec<String> = seeds
        .filter(|&seed| kinds.contains(&Scenario::of(seed).kind.name))
        .filter_map(|seed| match beside(&Scenario::of(seed), Routing::Linux, PATIENCE) {
            End::Agreed => None,
            End::Refused(why) | End::Disagreed(why) => Some(format!("seed {seed}: {why}")),
        })
        .collect();
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

#[test]
fn by_auto() {
    twin("auto");
}

#[test]
fn by_xdp() {
    twin("xdp");
}

#[test]
fn by_af_xdp() {
    twin("af_xdp");
}

#[test]
fn by_af_packet() {
    twin("af_packet");
}
