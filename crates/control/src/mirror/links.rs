//! The interfaces of the host: which of them are ports of the router, and what addresses they have.

use crate::change::{Address, InterfaceIndex, Link};
use crate::port_names::PortNames;
use crate::switches::Switches;
use std::collections::{BTreeMap, HashMap};

/// What is known of an interface.
#[derive(Debug)]
pub(super) struct Interface {
    pub(super) link: Link,
    /// The port that it is.
    pub(super) port: Option<u16>,
    /// The dump in which it was last seen.
    pub(super) epoch: u8,
}

/// A port that is a VLAN of another port: its packets leave by that one, with a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlanPort {
    /// Its own number.
    pub port: u16,
    /// The number of the other.
    pub parent: u16,
    /// The number of the VLAN, 1 to 4094.
    pub vlan: u16,
}

/// All interfaces and their addresses.
#[derive(Debug, Default)]
pub(super) struct Links {
    /// The ports of the router, and which interface each is.
    pub(super) ports: PortNames<u16>,
    /// Whether the index of a port's interface says which port it is, as in what a cluster's leader tells: one more than the
    /// port's number.
    pub(super) has_port_numbers: bool,
    /// Those of them that are VLANs of others.
    pub(super) vlans: Vec<VlanPort>,
    pub(super) interfaces: BTreeMap<InterfaceIndex, Interface>,
    /// The settings of those interfaces whose settings were read.
    pub(super) switches: HashMap<InterfaceIndex, Switches>,
    /// With the dump in which each was last seen.
    pub(super) addresses: BTreeMap<Address, u8>,
    /// Counts changes of `addresses`.
    pub(super) address_generation: u64,
    /// Whether all that were there at the beginning are known.
    pub(super) is_settled: bool,
    /// Counts changes of `interfaces` and `switches`.
    pub(super) generation: u64,
}

impl Links {
    /// Notes a link, and returns what it was before.
    pub(super) fn put(&mut self, link: Link, epoch: u8) -> Option<Interface> {
        let port = if self.has_port_numbers {
            let port = u16::try_from(link.index).ok().and_then(|number| number.checked_sub(1));
            port.filter(|&port| self.ports.name(port).is_some())
        } else {
            self.ports.put(link.index, &link.name)
        };
        self.interfaces.insert(link.index, Interface { link, port, epoch })
    }

    /// Forgets a link, and returns what it was. If it was a port, another interface may be that now: see [`Links::heir`].
    pub(super) fn remove(&mut self, index: InterfaceIndex) -> Option<Interface> {
        self.ports.remove(index);
        self.switches.remove(&index);
        self.interfaces.remove(&index)
    }

    /// Returns an interface that is to be a port whose own is gone, because it has the name.
    pub(super) fn heir(&self) -> Option<&Link> {
        let links = self.interfaces.values().filter(|interface| interface.port.is_none());
        links.map(|interface| &interface.link).find(|link| self.ports.is_wanted(&link.name))
    }

    pub(super) fn get(&self, index: InterfaceIndex) -> Option<&Interface> {
        self.interfaces.get(&index)
    }

    /// The port that an interface is.
    pub(super) fn port(&self, index: InterfaceIndex) -> Option<u16> {
        self.get(index)?.port
    }

    /// The name of an interface, or its number where it has none.
    pub(super) fn name(&self, index: InterfaceIndex) -> String {
        self.get(index).map_or_else(|| format!("if{index}"), |interface| interface.link.name.clone())
    }

    /// Whether packets can leave by an interface, as far as we know. One that nobody has named (0) is for the kernel
    /// to find. A VLAN needs the port below it: where Linux has no VLAN interface but one of ours, that stays up by itself.
    pub(super) fn can_send(&self, index: InterfaceIndex) -> bool {
        let is_up = |interface: &Interface| interface.link.is_up && interface.link.has_carrier;
        let below = |interface: &Interface| match interface.port.and_then(|port| self.vlan(port)) {
            Some(vlan) => self.of_port(vlan.parent).is_some_and(is_up),
            None => true,
        };
        index == 0 || self.get(index).is_some_and(|interface| is_up(interface) && below(interface))
    }

    /// What kind of VLAN a port is.
    pub(super) fn vlan(&self, port: u16) -> Option<VlanPort> {
        self.vlans.iter().find(|vlan| vlan.port == port).copied()
    }

    /// The interfaces of the VLANs of a port.
    pub(super) fn vlans_of(&self, parent: u16) -> Vec<InterfaceIndex> {
        let vlans = self.vlans.iter().filter(|vlan| vlan.parent == parent);
        vlans.filter_map(|vlan| Some(self.of_port(vlan.port)?.link.index)).collect()
    }

    /// The interface that is a port.
    pub(super) fn of_port(&self, port: u16) -> Option<&Interface> {
        self.interfaces.values().find(|interface| interface.port == Some(port))
    }

    /// The table of the VRF to which an interface belongs, or which it is.
    pub(super) fn vrf_table(&self, interface: &Interface) -> Option<u32> {
        interface.link.vrf_table.or_else(|| self.vrf_of(interface)?.vrf_table)
    }

    /// The VRF of which an interface is a member.
    pub(super) fn vrf_of(&self, interface: &Interface) -> Option<&Link> {
        let master = &self.get(interface.link.master?)?.link;
        master.vrf_table.is_some().then_some(master)
    }

    /// Whether a VRF has this table.
    pub(super) fn is_vrf_table(&self, table: u32) -> bool {
        self.interfaces.values().any(|interface| interface.link.vrf_table == Some(table))
    }

    /// The name of the port that an interface is, and the same with the interface's name where Linux calls it otherwise.
    pub(super) fn port_name(&self, interface: &Interface) -> Option<(String, String)> {
        let name = self.ports.name(interface.port?)?;
        let now = &interface.link.name;
        let both = if name == now { name.to_owned() } else { format!("{name} ({now} in Linux)") };
        Some((name.to_owned(), both))
    }

    /// The ports that a rule means which selects by input interface: a port, or those of a VRF, by which their packets come in to
    /// Linux. As in Linux, the name is that which the interface has now.
    pub(super) fn ports_of_input(&self, name: &str) -> Vec<u16> {
        let is_it = |interface: &&Interface| interface.link.name == name;
        let Some(interface) = self.interfaces.values().find(is_it) else {
            // A port without an interface in Linux.
            return self.ports.without_interface(name).into_iter().collect();
        };
        if let Some(port) = interface.port {
            return if self.vrf_of(interface).is_some() { Vec::new() } else { vec![port] };
        }
        let vrf = interface.link.index;
        let members = self.interfaces.values().filter(|interface| interface.link.master == Some(vrf));
        let mut ports: Vec<u16> = members.filter_map(|interface| interface.port).collect();
        ports.sort_unstable();
        ports
    }

    /// Notes the settings of an interface.
    pub(super) fn put_switches(&mut self, index: InterfaceIndex, switches: Switches) {
        if self.interfaces.contains_key(&index) && self.switches.insert(index, switches) != Some(switches) {
            self.generation += 1;
        }
    }

    /// Notes an address, and returns whether it is new.
    pub(super) fn put_address(&mut self, address: Address, epoch: u8) {
        if self.addresses.insert(address, epoch).is_none() {
            self.address_generation += 1;
        }
    }

    pub(super) fn remove_address(&mut self, address: &Address) -> bool {
        let was_there = self.addresses.remove(address).is_some();
        self.address_generation += u64::from(was_there);
        was_there
    }
}
