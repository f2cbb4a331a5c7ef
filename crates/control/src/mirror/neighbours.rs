//! The neighbours, and the host routes that they get.
//!
//! A network that a port is connected to is punted as a whole (*glean*): who is there is the kernel's to find out. Those
//! whom it has found get host routes, so that their packets are forwarded.
//!
//! ```text
//!  10.0.0.0/24  dev eth0          punt
//!  10.0.0.7/32  neighbour, eth0   via 02:00:00:00:00:07 port 0
//! ```
//!
//! A neighbour gets one in each table of the FIB where its address, were there no host routes of neighbours, would
//! lead to such a network of the very interface on which it was found. Whatever changes, a route at a prefix or a
//! neighbour, the neighbours inside are [evaluated](Mirror::evaluate_host) anew; that says what should be, and so it
//! does not matter what was.

use super::hops::{Hop, NextHopEntry};
use super::routes::MirrorFamily;
use super::{Mirror, fixed};
use crate::change::{InterfaceIndex, Neighbour, NeighbourState};
use fib::NextHopIndex;
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// What is known of a neighbour.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) mac: Option<[u8; 6]>,
    pub(super) state: NeighbourState,
    /// The dump in which it was last seen.
    pub(super) epoch: u8,
}

impl Entry {
    /// Its Ethernet address, if the kernel would use it.
    pub(super) fn usable_mac(&self) -> Option<[u8; 6]> {
        match self.state {
            NeighbourState::Incomplete | NeighbourState::Failed => None,
            NeighbourState::Reachable
            | NeighbourState::Stale
            | NeighbourState::Delay
            | NeighbourState::Probe
            | NeighbourState::NoArp
            | NeighbourState::Permanent => self.mac,
        }
    }
}

/// All neighbours, by address.
#[derive(Debug, Default)]
pub(super) struct Neighbours {
    pub(super) known: BTreeMap<(IpAddr, InterfaceIndex), Entry>,
    /// Those whom the kernel should ask for their address.
    pub(super) to_ask: BTreeSet<(InterfaceIndex, IpAddr)>,
    /// The host routes in the FIB, by table. They take precedence over what sources say of the same prefix.
    pub(super) hosts: BTreeMap<(u32, IpAddr), NextHopIndex>,
}

impl Neighbours {
    pub(super) fn state(&self, interface: InterfaceIndex, address: IpAddr) -> Option<NeighbourState> {
        self.known.get(&(address, interface)).map(|entry| entry.state)
    }

    pub(super) fn usable_mac(&self, interface: InterfaceIndex, address: IpAddr) -> Option<[u8; 6]> {
        self.known.get(&(address, interface)).and_then(Entry::usable_mac)
    }

    /// Takes out the host routes of a table.
    pub(super) fn take_hosts(&mut self, fib_table: u32) -> Vec<NextHopIndex> {
        let mut gone = Vec::new();
        self.hosts.retain(|(table, _), index| {
            if *table == fib_table {
                gone.push(*index);
            }
            *table != fib_table
        });
        gone
    }

    /// The addresses from `first` to `last` that neighbours have.
    fn between(&self, first: IpAddr, last: IpAddr) -> Vec<IpAddr> {
        let range = self.known.range((first, 0)..=(last, InterfaceIndex::MAX));
        let mut addresses: Vec<IpAddr> = range.map(|(&(address, _), _)| address).collect();
        addresses.dedup();
        addresses
    }
}

impl Mirror {
    /// A neighbour is there, or is other than it was.
    pub(super) fn put_neighbour(&mut self, neighbour: Neighbour) {
        let Neighbour { index, address, mac, state } = neighbour;
        let epoch = self.epochs.of_neighbours();
        let entry = Entry { mac, state, epoch };
        let before = self.neighbours.known.insert((address, index), entry);
        if entry.usable_mac().is_some() || state == NeighbourState::Incomplete {
            self.neighbours.to_ask.remove(&(index, address));
        }
        if before.and_then(|before| before.usable_mac()) != entry.usable_mac() {
            self.refresh_neighbour(index, address);
            self.evaluate_host_everywhere(address);
        }
        // Its own host route is no route that leads through it.
        self.report_neighbour((index, address), before, Some(entry));
    }

    /// A neighbour is gone. Returns whether there was one.
    pub(super) fn remove_neighbour(&mut self, interface: InterfaceIndex, address: IpAddr) -> bool {
        let removed = self.neighbours.known.remove(&(address, interface));
        let was_there = removed.is_some();
        if was_there {
            self.report_neighbour((interface, address), removed, None);
            self.evaluate_host_everywhere(address);
            self.refresh_neighbour(interface, address);
        }
        was_there
    }

    /// Evaluates one address in all tables.
    fn evaluate_host_everywhere(&mut self, address: IpAddr) {
        for table in self.fib.tables().collect::<Vec<_>>() {
            self.evaluate_host(table, address);
        }
    }

    /// Evaluates all neighbours of an interface in all tables.
    pub(super) fn evaluate_hosts_of(&mut self, interface: InterfaceIndex) {
        let all = self.neighbours.known.keys().filter(|(_, of)| *of == interface);
        for address in all.map(|&(address, _)| address).collect::<Vec<_>>() {
            self.evaluate_host_everywhere(address);
        }
    }

    /// Evaluates all neighbours in all tables.
    pub(super) fn evaluate_all_hosts(&mut self) {
        let all: BTreeSet<IpAddr> = self.neighbours.known.keys().map(|&(address, _)| address).collect();
        all.into_iter().for_each(|address| self.evaluate_host_everywhere(address));
    }

    /// Evaluates the neighbours inside a prefix in one table.
    pub(super) fn evaluate_hosts_inside<A: MirrorFamily>(&mut self, fib_table: u32, network: A, length: u8) {
        let last = network | !A::mask(length);
        for address in self.neighbours.between(network.to_ip(), last.to_ip()) {
            self.evaluate_host(fib_table, address);
        }
    }

    /// Gives the neighbour of this address the host route that it should have in a table of the FIB, or none.
    fn evaluate_host(&mut self, fib_table: u32, address: IpAddr) {
        match address {
            IpAddr::V4(v4) => self.evaluate_host_of::<u32>(fib_table, address, v4.into()),
            IpAddr::V6(v6) => self.evaluate_host_of::<u128>(fib_table, address, v6.into()),
        }
    }

    fn evaluate_host_of<A: MirrorFamily>(&mut self, fib_table: u32, ip: IpAddr, address: A) {
        let Some(rib) = A::rib(&self.fib, fib_table) else { return };
        let host = A::net(address, A::BITS);
        let prefix: IpNet = host.into();
        if fixed::is_fixed(prefix) {
            return;
        }
        let beneath = self.beneath(fib_table, address);
        let route = beneath.or_else(|| rib.covering(host).map(|cover| cover.next_hop));
        let interface = route.and_then(|next_hop| self.connected_interface(next_hop));
        let is_usable = |interface: &InterfaceIndex| {
            self.links.port(*interface).is_some() && self.neighbours.usable_mac(*interface, ip).is_some()
        };
        let wanted = interface.filter(is_usable).map(|interface| Hop::to_neighbour(interface, ip));
        let installed = self.neighbours.hosts.get(&(fib_table, ip)).copied();
        let has = installed.and_then(|index| match self.hops.behind(index) {
            NextHopEntry::Hop(hop) => Some(*hop),
            _ => None,
        });
        if has == wanted && installed.is_some() == wanted.is_some() {
            return;
        }
        let acquired = wanted.and_then(|hop| {
            let acquired = self.acquire_hop(hop);
            acquired.map_err(|error| self.note_next_hop_error(error)).ok()
        });
        if (acquired, installed) == (None, None) {
            return;
        }
        let changed = match acquired.or(beneath) {
            Some(next_hop) => self.fib.replace(fib_table, prefix, next_hop),
            None => self.fib.remove(fib_table, prefix),
        };
        if let Err(error) = changed {
            self.note_edit_error(fib_table, prefix, &error);
            // What is still there has its user still.
            acquired.into_iter().for_each(|index| self.release_index(index));
            return;
        }
        match acquired {
            Some(index) => self.neighbours.hosts.insert((fib_table, ip), index),
            None => self.neighbours.hosts.remove(&(fib_table, ip)),
        };
        installed.into_iter().for_each(|index| self.release_index(index));
    }

    /// The neighbours that the kernel should be made to ask for their Ethernet address, because routes go through them
    /// and it does not know them; each is named once, and again when it is needed and unknown again.
    pub fn take_neighbours_to_ask(&mut self) -> Vec<(InterfaceIndex, IpAddr)> {
        std::mem::take(&mut self.neighbours.to_ask).into_iter().collect()
    }

    /// The neighbours that the kernel should be made to ask every now and then: those that it has not heard of for a while,
    /// and those that did not answer but that routes go through. Packets for the latter are punted, but where there are several
    /// paths the kernel may send all of them by another one, and would not ask again.
    pub fn neighbours_to_ask_again(&self) -> impl Iterator<Item = (InterfaceIndex, IpAddr)> + '_ {
        let due = self.neighbours.known.iter().filter(|&(&(address, interface), entry)| match entry.state {
            NeighbourState::Stale => true,
            NeighbourState::Failed => self.leads_through(interface, address),
            _ => false,
        });
        due.map(|(&(address, interface), _)| (interface, address))
    }
}
