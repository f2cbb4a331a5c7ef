//! The leader: what its Linux says goes into the log.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::ledger::Ledger;
use super::log::{LogError, LogWriter, Stored};
use super::member::{ClusterPort, MemberOptions};
use super::protection::Told;
use super::record::Record;
use crate::netlink::{Event, Kernel, KernelOptions};
use crate::service::Common;
use crate::store::{Guard, Store, StoreError};
use crate::supervisor::Pulse;

/// How long changes may wait for each other: an entry of the log costs the store a write to its disk.
const LONGEST_GATHERING: Duration = Duration::from_millis(10);
/// Time between two looks at which neighbours are stale, and at which labels are free.
const LOOK_PERIOD: Duration = Duration::from_secs(5);
/// Time between two comparisons of all nodes' tables, while anything changes.
const COMPARE_PERIOD: Duration = Duration::from_secs(5);
/// How long the store remembers how it came to be what it is: statuses alone would fill it in days.
const COMPACT_PERIOD: Duration = Duration::from_secs(60);
/// How long the leader of an empty store waits for nodes that may know labels of a log that is lost.
const LONGEST_MEETING: Duration = Duration::from_secs(2);
/// How long this node's Linux may take to report what IPsec protects.
const LONGEST_PROTECTION: Duration = Duration::from_secs(30);
/// Tries to read a table that others change meanwhile.
const MOST_READS: usize = 20;
/// Stale neighbours that Linux is asked to look for at a time.
const MOST_ASKED: usize = 512;

/// Leads until another one does, or the node ends. The ports are there already.
pub(super) fn lead(
    common: &Arc<Common>,
    store: &Store,
    guard: Guard,
    options: &MemberOptions,
    pulse: &Pulse,
) -> Result<(), LogError> {
    pulse.beat();
    let mut ledger = Ledger::default();
    let result = lead_with(&mut ledger, common, store, guard, options, pulse);
    options.host.ends_to_lead();
    options.shared.keep_ledger(ledger);
    result
}

fn lead_with(
    ledger: &mut Ledger,
    common: &Arc<Common>,
    store: &Store,
    guard: Guard,
    options: &MemberOptions,
    pulse: &Pulse,
) -> Result<(), LogError> {
    let mut reads = 0;
    let stored = loop {
        match Stored::read(store) {
            Err(LogError::Changed) if reads < MOST_READS => reads += 1,
            other => break other?,
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let mut writer = LogWriter::new(store.clone(), guard, &stored);
    let mut version = options.shared.version();
    let mut records: Vec<Record> = Vec::new();
    let is_first = match options.shared.kept_ledger().filter(|_| writer.sequence() == 0) {
        // The store has lost everything, but labels must go on meaning what they mean.
        Some(kept) => {
            *ledger = kept;
            ledger.set_ports(options.ports_for_ledger());
            records.extend(ledger.snapshot().flatten());
            false
        }
        None => {
            ledger.set_ports(options.ports_for_ledger());
            let is_first = writer.sequence() == 0;
            let log = stored.log.into_iter().flat_map(|(_, records)| records);
            stored.table.into_iter().chain(log).for_each(|record| ledger.replay(record));
            // Ports may have moved while nobody led.
            ledger.set_ports(options.ports_for_ledger());
            if is_first {
                let lowest = labels_end(common, options);
                if lowest > 0 {
                    ledger.begin_labels_at(lowest);
                    // The next leader is to know too.
                    records.extend(ledger.snapshot().flatten());
                }
            }
            is_first
        }
    };
    ledger.set_unheard(unheard_ports(common, options));
    options.shared.forget_protection();
    options.host.begins_to_lead(ledger.protection(), &options.shared);
    // Before routes.
    ledger.set_protection(first_protection(common, options, pulse));
    let mut kernel = Kernel::open(&KernelOptions::default()).map_err(LogError::Netlink)?;
    let takeover = Instant::now();
    let mut is_held = !is_first;
    if is_held {
        ledger.hold();
    }
    let mut is_complete = false;
    let mut told = String::new();
    let (mut next_compact, mut compacted) = (takeover + COMPACT_PERIOD, None);
    let mut gathering: Option<Instant> = None;
    let mut next_protection = takeover;
    let (mut next_look, mut next_compare) = (takeover + LOOK_PERIOD, takeover + COMPARE_PERIOD);
    // Something changed since the tables were compared.
    let mut has_news = true;
    loop {
        pulse.beat();
        let is_idle = !wait(
            &kernel,
            if gathering.is_some() { Duration::from_millis(1) } else { Duration::from_millis(20) },
        );
        if common.lock().ends() || !options.still_leads() {
            return Ok(());
        }
        // Before Linux tells of an interface whose port has just come.
        if options.shared.version() != version {
            version = options.shared.version();
            ledger.set_ports(options.ports_for_ledger());
            ledger.set_unheard(unheard_ports(common, options));
        }
        // The kernel's errors are lost messages, after which it tells all again.
        let _ = kernel.receive(&mut |event| match event {
            Event::DumpBegins(part) => ledger.dump_begins(part),
            Event::DumpEnds(part) => ledger.dump_ends(part),
            Event::Change(change) => ledger.apply(change),
        });
        if next_protection <= Instant::now()
            && let Some(told) = options.shared.protection()
            && ledger.protection() != Some(&told)
        {
            next_protection = Instant::now() + gap_behind(&told);
            ledger.set_protection(told);
        }
        // In a dump nothing is known to be gone.
        if !is_complete && takeover.elapsed() >= options.restart_time && kernel.is_synchronised() {
            is_complete = true;
            if std::mem::take(&mut is_held) {
                ledger.let_go();
            }
            records.extend(ledger.take_pending());
            records.push(Record::Complete);
        }
        let now = Instant::now();
        if now >= next_compare && has_news {
            next_compare = now + COMPARE_PERIOD;
            has_news = false;
            records.push(Record::Compare);
        }
        has_news |= ledger.has_pending();
        if ledger.has_pending() || !records.is_empty() {
            gathering.get_or_insert(now);
        }
        let is_full = gathering.is_some_and(|since| since.elapsed() >= LONGEST_GATHERING);
        if gathering.is_some() && (is_idle || is_full) {
            records.extend(ledger.take_pending());
            match writer.append(&mut records) {
                Ok(()) => {
                    gathering = None;
                    told.clear();
                    ledger.logged(writer.sequence());
                }
                Err(StoreError::Fenced { .. }) => return Ok(()),
                Err(error) => {
                    fails(options, &mut told, format!("the store does not take what changes: {error}"))
                }
            }
        }
        if writer.is_long() && !ledger.has_pending() && records.is_empty() {
            match writer.write_table(ledger.snapshot()) {
                Ok(()) => {}
                Err(StoreError::Fenced { .. }) => return Ok(()),
                Err(error) => {
                    fails(options, &mut told, format!("the store does not take the table: {error}"))
                }
            }
        }
        if now >= next_compact {
            next_compact = now + COMPACT_PERIOD;
            // Whoever is behind by less can go on where it was.
            let before =
                std::mem::replace(&mut compacted, store.list("leader").ok().map(|(_, revision)| revision));
            // Another leader may have come further; and what is not forgotten now is the next time.
            let _ = before.map(|revision| store.compact(revision));
        }
        ask(common, &mut kernel, ledger);
        if now >= next_look {
            next_look = now + LOOK_PERIOD;
            ledger.acknowledged(lowest_acknowledged(common, options, writer.id()));
            for (index, address) in ledger.stale_neighbours().take(MOST_ASKED).collect::<Vec<_>>() {
                // The interface may be gone by now; then so is the question.
                let _ = kernel.ask_neighbour(index, address);
            }
        }
    }
}

/// Returns what IPsec protects when a leader begins. Where its Linux does not report that in time, all packets go to this node.
fn first_protection(common: &Common, options: &MemberOptions, pulse: &Pulse) -> Told {
    let begin = Instant::now();
    loop {
        if let Some(told) = options.shared.protection() {
            return told;
        }
        if begin.elapsed() >= LONGEST_PROTECTION || common.lock().ends() || !options.still_leads() {
            return Told::ALL_TO_LEADER;
        }
        pulse.beat();
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns how long to wait behind a list, so that the store's disk is not busy with long lists that change all the time.
fn gap_behind(told: &Told) -> Duration {
    Duration::from_micros(told.bytes() as u64)
}

/// Has Linux ask for the neighbours that this node's tables need.
fn ask(common: &Common, kernel: &mut Kernel, ledger: &Ledger) {
    let questions = common.take_questions();
    let mut state = common.lock();
    for (number, destination) in questions {
        state.mirror.ask_about(number, destination);
    }
    let wanted: HashSet<_> = state.mirror.take_neighbours_to_ask().into_iter().collect();
    drop(state);
    for (number, address) in wanted {
        if let Some(own) = ledger.own_interface(number) {
            let _ = kernel.ask_neighbour(own, address);
        }
    }
}

/// Tells what went wrong, once, and leaves the store some time.
fn fails(options: &MemberOptions, told: &mut String, problem: String) {
    if *told != problem {
        options.host.message(&problem);
        *told = problem;
    }
    std::thread::sleep(Duration::from_millis(200));
}

/// The place in this log that all nodes have reached. One that is away may still forward with the tables that it has, so nothing is
/// acknowledged then. Members that the configuration does not name forward too.
fn lowest_acknowledged(common: &Common, options: &MemberOptions, log: u64) -> u64 {
    let state = common.lock();
    let Some(cluster) = &state.cluster else { return 0 };
    let status = |name: &String| cluster.nodes.get(name).filter(|status| status.log == log);
    let reached = |name: &String| status(name).map_or(0, |status| status.sequence);
    let membership = options.shared.membership();
    membership.nodes.iter().chain(cluster.nodes.keys()).map(reached).min().unwrap_or(0)
}

/// The ports of nodes that are not members: who is cut off from the store may take frames of another leader's Linux only.
fn unheard_ports(common: &Common, options: &MemberOptions) -> Vec<u8> {
    let state = common.lock();
    let Some(cluster) = &state.cluster else { return Vec::new() };
    let members: HashSet<u16> = cluster.nodes.values().map(|status| status.number).collect();
    let is_away = |port: &ClusterPort| port.node != options.number && !members.contains(&port.node.number());
    options.shared.membership().ports.into_iter().filter(is_away).map(|port| port.number).collect()
}

/// A label above all that nodes may still send to each other by, from a log that is lost. Waits a moment for those that have not reported theirs.
fn labels_end(common: &Common, options: &MemberOptions) -> u32 {
    let begin = Instant::now();
    loop {
        let state = common.lock();
        let Some(cluster) = &state.cluster else { return 0 };
        let is_there = |name: &String| *name == options.name || cluster.nodes.contains_key(name);
        let all_are_there = options.shared.membership().nodes.iter().all(is_there);
        if all_are_there || begin.elapsed() >= LONGEST_MEETING || state.ends() || !options.still_leads() {
            let others = cluster.nodes.values().map(|status| status.labels);
            return others.fold(cluster.tables.labels_end(), u32::max);
        }
        drop(state);
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until the kernel has something to say; whether it has.
fn wait(kernel: &Kernel, limit: Duration) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(kernel.fd(), PollFlags::IN)];
    let limit = Timespec { tv_sec: 0, tv_nsec: limit.as_nanos() as i64 };
    // An interrupted wait is as good as one that is over.
    poll(&mut fds, Some(&limit)).is_ok_and(|ready| ready > 0)
}
