//! What a node makes of the leader's records: forwarding tables, and the adjacencies behind its own labels.

use std::collections::HashMap;

use fabric::{Label, NodeId};
use fib::Adjacency;
use fib::publish::{Readers, Writer, pair};

use super::member::mirror_port;
use super::protection::Told;
use super::record::Record;
use crate::change::{Part, Source};
use crate::mirror::Mirror;

/// A port of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnPort {
    /// Its place in the list of the node's ports.
    pub place: u16,
    /// Its link address.
    pub mac: [u8; 6],
}

/// What a node's tables hold, in a word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableDigest {
    /// The place in the log where it was taken.
    pub sequence: u64,
    /// Routes of Linux.
    pub routes: u64,
    /// The sum of their hashes, labels included.
    pub sum: u64,
}

/// See the top of the file.
pub struct Tables {
    own: HashMap<u8, OwnPort>,
    labels: HashMap<(u8, [u8; 6]), Known>,
    /// By label; what `writer` is to publish.
    adjacencies: Vec<Option<Adjacency>>,
    writer: Writer<Vec<Option<Adjacency>>>,
    readers: Readers<Vec<Option<Adjacency>>>,
    /// Labels whose adjacency changed since the last publication.
    changed: Vec<usize>,
    /// Counts whole tables.
    table: u8,
    digest: TableDigest,
    /// What IPsec protects, and the table in which it was last told.
    protection: Option<(Told, u8)>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    /// Whose label it is.
    node: u16,
    label: u32,
    /// The table in which it was last told.
    table: u8,
}

impl Tables {
    /// Empty ones of a node with these ports.
    pub fn new(own: HashMap<u8, OwnPort>) -> Tables {
        let (writer, readers) = pair(Vec::new(), Vec::new());
        Tables {
            own,
            labels: HashMap::new(),
            adjacencies: Vec::new(),
            writer,
            readers,
            changed: Vec::new(),
            table: 0,
            digest: TableDigest::default(),
            protection: None,
        }
    }

    /// Returns what IPsec protects; `None` where nothing ever was.
    pub fn protection(&self) -> Option<&Told> {
        self.protection.as_ref().map(|(told, _)| told)
    }

    /// Where workers read the adjacency of a label.
    pub fn readers(&self) -> &Readers<Vec<Option<Adjacency>>> {
        &self.readers
    }

    /// The digest that the leader asked for last.
    pub fn digest(&self) -> TableDigest {
        self.digest
    }

    /// A label above all that mean something here, whatever node they are of.
    pub fn labels_end(&self) -> u32 {
        let highest = self.labels.values().map(|known| known.label + 2).max().unwrap_or(0);
        highest.max(self.adjacencies.len() as u32).next_multiple_of(2)
    }

    /// Neighbours behind this node's ports, and behind all.
    pub fn neighbours(&self) -> (usize, usize) {
        let own = self.labels.keys().filter(|(port, _)| self.own.contains_key(port)).count();
        (own, self.labels.len())
    }

    /// A whole table follows.
    pub fn table_begins(&mut self, mirror: &mut Mirror) {
        self.table = self.table.wrapping_add(1);
        PARTS.iter().for_each(|&part| mirror.dump_begins(Source::Netlink, part));
    }

    /// The whole table has been told.
    pub fn table_ends(&mut self, mirror: &mut Mirror) {
        PARTS.iter().for_each(|&part| mirror.dump_ends(Source::Netlink, part));
        let gone = self.labels.iter().filter(|(_, known)| known.table != self.table);
        for (port, mac) in gone.map(|(&key, _)| key).collect::<Vec<_>>() {
            self.forget(mirror, port, mac);
        }
        self.protection.take_if(|(_, table)| *table != self.table);
    }

    /// Takes in a record that stands in the log at this place.
    pub fn apply(&mut self, mirror: &mut Mirror, record: Record, sequence: u64) {
        match record {
            Record::Change(change) => mirror.apply(Source::Netlink, change),
            Record::Routes(route, prefixes) => mirror.apply_routes(Source::Netlink, &route, &prefixes),
            // No port has this number.
            Record::Label { port: 0, .. } => {}
            Record::Label { port, node, mac, label } => {
                // Both families' labels can be written.
                let (Some(number), Some(id), Some(_)) =
                    (Label::new(label), NodeId::new(node), Label::new(label.saturating_add(1)))
                else {
                    return;
                };
                let before = self.labels.insert((port, mac), Known { node, label, table: self.table });
                if before.is_none_or(|before| (before.node, before.label) != (node, label)) {
                    if mirror.is_node(id) {
                        self.set_adjacencies(port, mac, label);
                    }
                    mirror.set_exit_label(mirror_port(port), mac, Some((id, number)));
                }
            }
            Record::LabelGone { port, mac } => self.forget(mirror, port, mac),
            Record::Protection(told) => self.protection = Some((told, self.table)),
            Record::LabelsGiven { .. } | Record::Log(_) | Record::Complete => {}
            Record::Compare => {
                let digests = mirror.digests();
                let mut digest = TableDigest { sequence, ..TableDigest::default() };
                for of in digests.values() {
                    digest.routes += of.routes;
                    digest.sum = digest.sum.wrapping_add(of.sum);
                }
                for ((port, mac), known) in &self.labels {
                    let bytes = mac.iter().fold(u64::from(*port), |sum, &byte| sum << 8 | u64::from(byte));
                    let mixed = (bytes ^ u64::from(known.label) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                    digest.sum = digest.sum.wrapping_add(mixed ^ mixed >> 32);
                }
                let protection = self.protection().map_or(0, Told::digest);
                digest.sum = digest.sum.wrapping_add(protection);
                self.digest = digest;
            }
        }
    }

    fn forget(&mut self, mirror: &mut Mirror, port: u8, mac: [u8; 6]) {
        let Some(known) = self.labels.remove(&(port, mac)) else { return };
        mirror.set_exit_label(mirror_port(port), mac, None);
        let is_own = |port| self.own.contains_key(port);
        // It may be another neighbour's by now.
        let is_free = !self.labels.iter().any(|((of, _), other)| other.label == known.label && is_own(of));
        if is_free && is_own(&port) {
            self.set(known.label as usize, None);
            self.set(known.label as usize + 1, None);
        }
    }

    fn set_adjacencies(&mut self, port: u8, mac: [u8; 6], label: u32) {
        let Some(&OwnPort { place, mac: source }) = self.own.get(&port) else { return };
        for (family, ethertype) in [[0x08, 0x00], [0x86, 0xdd]].into_iter().enumerate() {
            let adjacency = Adjacency::ethernet(place, mac, source, ethertype);
            self.set(label as usize + family, Some(adjacency));
        }
    }

    fn set(&mut self, label: usize, adjacency: Option<Adjacency>) {
        if self.adjacencies.len() <= label {
            self.adjacencies.resize(label + 1, None);
        }
        self.adjacencies[label] = adjacency;
        self.changed.push(label);
    }

    /// Lets workers see what was taken in: first what others may send to this node, then where this node sends.
    pub fn publish(&mut self, mirror: &mut Mirror) {
        let changed = std::mem::take(&mut self.changed);
        if !changed.is_empty() {
            for _ in 0..2 {
                let (passive, _) = self.writer.both();
                passive.resize(self.adjacencies.len(), None);
                changed.iter().for_each(|&label| passive[label] = self.adjacencies[label]);
                self.writer.flip();
            }
        }
        mirror.publish();
    }
}

/// All that a table holds.
const PARTS: [Part; 7] = [
    Part::Links,
    Part::Addresses,
    Part::Rules,
    Part::Neighbours,
    Part::Objects,
    Part::Routes4,
    Part::Routes6,
];
