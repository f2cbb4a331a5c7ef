//! What a run did, for people and for programs.

use control::api::PortRow;
use elements::devices::balance::QueueShare;
use elements::devices::{RECEIVER, SENDER};
use graph::lang::FlatConfig;
use graph::router::CopyStats;

use crate::drop_in::Path;
use crate::output::print;
use crate::show::worker_name;
use crate::table::{Align, Table, thousands};

/// Packets through all ports.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) received: u64,
    pub(crate) sent: u64,
    pub(crate) dropped: u64,
}

impl Totals {
    /// Adds up what the elements counted, and what was forwarded in the kernel.
    pub(crate) fn of(config: &FlatConfig, stats: &[CopyStats], in_kernel: &[(String, Path)]) -> Self {
        let mut totals = Self::default();
        for (_, path) in in_kernel {
            totals.received += path.traffic.rx_packets;
            totals.sent += path.traffic.tx_packets;
            totals.dropped += path.losses.total();
        }
        for copy in stats {
            for (flat, element) in config.elements.iter().zip(&copy.elements) {
                if flat.has(RECEIVER) {
                    totals.received += element.packets;
                } else if flat.has(SENDER) {
                    totals.sent += element.passed();
                }
                totals.dropped += element.dropped();
            }
        }
        totals
    }
}

/// Describes what each element did, all copies together: packets, cycles a packet, drops by reason; and the kernel.
pub fn summary(config: &FlatConfig, stats: &[CopyStats], in_kernel: &[(String, Path)]) -> String {
    let mut table = Table::new(&[
        ("element", Align::Left),
        ("class", Align::Left),
        ("packets", Align::Right),
        ("a batch", Align::Right),
        ("cycles/packet", Align::Right),
        ("share", Align::Right),
    ]);
    let cycles_in_all: f64 =
        stats.iter().flat_map(|copy| &copy.elements).map(|element| element.cycles).sum::<f64>().max(1.0);
    for (index, flat) in config.elements.iter().enumerate() {
        let of_copies = || stats.iter().filter_map(|copy| copy.elements.get(index));
        let packets: u64 = of_copies().map(|element| element.packets).sum();
        let batches: u64 = of_copies().map(|element| element.batches).sum();
        let cycles: f64 = of_copies().map(|element| element.cycles).sum();
        if packets > 0 {
            table.row([
                flat.name.clone(),
                flat.class.clone(),
                thousands(packets),
                format!("{:.1}", packets as f64 / batches.max(1) as f64),
                format!("{:.1}", cycles / packets as f64),
                format!("{:.1}%", cycles / cycles_in_all * 100.0),
            ]);
        }
    }
    let mut text = table.render() + &drops(config, stats, in_kernel);
    let forwarded: u64 = in_kernel.iter().map(|(_, path)| path.traffic.rx_packets).sum();
    if forwarded > 0 {
        text.push_str(&format!("\n{} packets were forwarded in the kernel\n", thousands(forwarded)));
    }
    text
}

/// Describes what each port did, and what was dropped.
pub(super) fn of_ports(
    rows: &[PortRow],
    config: &FlatConfig,
    stats: &[CopyStats],
    in_kernel: &[(String, Path)],
) -> String {
    let mut table = Table::new(&[
        ("port", Align::Left),
        ("received", Align::Right),
        ("sent", Align::Right),
        ("dropped", Align::Right),
        ("in the kernel", Align::Right),
        ("by workers", Align::Right),
        ("by Linux", Align::Right),
    ]);
    for row in rows {
        table.row([
            row.name.clone(),
            thousands(row.rx.packets),
            thousands(row.tx.packets),
            thousands(row.rx.dropped + row.tx.dropped),
            thousands(row.in_kernel),
            thousands(row.by_workers),
            thousands(row.to_linux),
        ]);
    }
    table.render() + &drops(config, stats, in_kernel)
}

/// A table of what was dropped, below an empty line; nothing if nothing was.
fn drops(config: &FlatConfig, stats: &[CopyStats], in_kernel: &[(String, Path)]) -> String {
    let mut table = Table::new(&[("dropped", Align::Right), ("by", Align::Left), ("reason", Align::Left)]);
    let mut is_empty = true;
    let mut row = |count: u64, by: &str, reason: &str| {
        is_empty = false;
        table.row([thousands(count), by.to_owned(), reason.to_owned()]);
    };
    for (index, flat) in config.elements.iter().enumerate() {
        let of_copies = stats.iter().filter_map(|copy| copy.elements.get(index));
        let mut reasons: Vec<(&str, u64)> = Vec::new();
        for (reason, count) in of_copies.flat_map(|element| &element.drops) {
            match reasons.iter_mut().find(|(known, _)| known == reason) {
                Some((_, total)) => *total += count,
                None => reasons.push((reason, *count)),
            }
        }
        reasons.into_iter().for_each(|(reason, count)| row(count, &flat.name, reason));
    }
    for (port, path) in in_kernel {
        let losses = path.losses.by_reason().into_iter().filter(|(_, count)| *count > 0);
        losses.for_each(|(reason, count)| row(count, port, reason));
    }
    if is_empty { String::new() } else { format!("\n{}", table.render()) }
}

/// The share of each worker and queue: busy, packets received by its queues, and how many buckets it processes.
pub(super) fn workers_table(stats: &[CopyStats], shares: &[QueueShare], workers: usize) -> Table {
    let mut table = Table::new(&[
        ("worker", Align::Right),
        ("busy", Align::Right),
        ("port's queue", Align::Left),
        ("packets", Align::Right),
        ("share", Align::Right),
        ("processed by", Align::Left),
    ]);
    let in_all: u64 = shares.iter().map(|share| share.packets).sum();
    for copy in stats {
        let mut first = true;
        let name_of_copy = worker_name(copy.copy, copy.copy >= workers);
        let held: Vec<&QueueShare> = shares.iter().filter(|share| share.worker == copy.copy).collect();
        let busy = format!("{:.0}%", copy.busy * 100.0);
        for share in &held {
            let name = if std::mem::take(&mut first) {
                (name_of_copy.clone(), busy.clone())
            } else {
                Default::default()
            };
            table.row([
                name.0,
                name.1,
                format!("{} {}", share.element, share.queue),
                thousands(share.packets),
                format!("{:.0}%", share.packets as f64 / in_all.max(1) as f64 * 100.0),
                owners_text(&share.owners),
            ]);
        }
        if held.is_empty() {
            table.row([name_of_copy, busy, String::new(), String::new(), String::new(), String::new()]);
        }
    }
    table
}

/// The workers that process a queue's packets, with their share of its buckets when there are several.
fn owners_text(owners: &[usize]) -> String {
    let mut counts = std::collections::BTreeMap::new();
    owners.iter().for_each(|owner| *counts.entry(owner).or_insert(0usize) += 1);
    let one = counts.len() == 1;
    let part = |(owner, count): (&&usize, &usize)| match one {
        true => owner.to_string(),
        false => format!("{owner} ({:.0}%)", *count as f64 / owners.len() as f64 * 100.0),
    };
    counts.iter().map(part).collect::<Vec<_>>().join(", ")
}

pub(super) fn print_json(config: &FlatConfig, stats: &[CopyStats], shares: &[QueueShare]) {
    for share in shares {
        let object = serde_json::json!({
            "element": share.element, "queue": share.queue, "worker": share.worker, "packets": share.packets,
            "bucket_workers": share.owners,
        });
        print(&format!("{object}\n"));
    }
    for copy in stats {
        for (flat, element) in config.elements.iter().zip(&copy.elements) {
            if element.packets == 0 && element.drops.is_empty() {
                continue;
            }
            let drops: serde_json::Map<String, serde_json::Value> =
                element.drops.iter().map(|(reason, count)| ((*reason).to_owned(), (*count).into())).collect();
            let object = serde_json::json!({
                "copy": copy.copy, "element": flat.name, "class": flat.class, "packets": element.packets,
                "batches": element.batches, "cycles": element.cycles, "drops": drops,
            });
            print(&format!("{object}\n"));
        }
    }
}

#[cfg(test)]
mod tests {
    use graph::context::ElementStats;
    use graph::lang::{Options, Source};
    use packet::PoolStats;

    use super::*;

    #[test]
    fn what_a_port_dropped_was_not_sent() {
        let text = "FromDevice(null:a) -> ToDevice(null:b)".to_owned();
        let source = Source { name: "test".to_owned(), text };
        let config = crate::load::compile(&source, &Options::default(), &crate::classes()).unwrap();
        let elements = config.elements.iter().map(|element| {
            let drops = if element.has(SENDER) { vec![("port is gone", 3)] } else { Vec::new() };
            ElementStats { packets: 10, drops, ..ElementStats::default() }
        });
        let elements = elements.collect();
        let copy = CopyStats { copy: 0, elements, pool: PoolStats::default(), busy: 0.0, busy_ns: 0 };
        let totals = Totals::of(&config, &[copy], &[]);
        assert_eq!((totals.received, totals.sent, totals.dropped), (10, 7, 3));
    }
}
