//! The numbers of next hops: who uses each, and what it says to workers.
//!
//! Ways out of the router are *interned*: all routes through one gateway share one number, and all routes with the same
//! paths and weights one group. So whatever happens to a gateway or a link is one change, whatever number of routes
//! go there. A number is counted by its users (targets of routes, groups, objects, host routes) and freed after the last.
//!
//! | number | what it is |
//! | --- | --- |
//! | 0 | no route; as the next hop of a route, *throw* |
//! | 1 to 6 | punt, blackhole, unreachable, prohibit, local, broadcast |
//! | others | a [`Hop`], a group of hops, or what stands for a next-hop object |

use super::objects::ObjectKey;
use super::{Count, Mirror};
use crate::change::{InterfaceIndex, NeighbourState, Path};
use fib::{Adjacency, NextHop, NextHopError, NextHopIndex};
use packet::IpVersion;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

/// What the first numbers are.
const FIXED: [NextHop<Adjacency>; 6] = [
    NextHop::Punt,
    NextHop::Blackhole,
    NextHop::Unreachable,
    NextHop::Prohibit,
    NextHop::Local,
    NextHop::Broadcast,
];

const fn number(number: u16) -> NextHopIndex {
    match NextHopIndex::new(number) {
        Some(index) => index,
        None => NextHopIndex::NONE,
    }
}

pub(super) const PUNT: NextHopIndex = number(1);
pub(super) const BLACKHOLE: NextHopIndex = number(2);
pub(super) const UNREACHABLE: NextHopIndex = number(3);
pub(super) const PROHIBIT: NextHopIndex = number(4);
pub(super) const LOCAL: NextHopIndex = number(5);
pub(super) const BROADCAST: NextHopIndex = number(6);

/// The largest weight of a group's member.
const MAX_WEIGHT: u16 = 256;

/// A way out of the router, for packets of one family. Ordered by interface and gateway, so that those that a change of
/// a link or neighbour concerns stand together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Hop {
    pub(super) interface: InterfaceIndex,
    /// None where the destinations are on the link themselves.
    pub(super) gateway: Option<IpAddr>,
    /// The family of the packets, which may be another than the gateway's (RFC 8950).
    pub(super) version: IpVersion,
    /// Its source says that it cannot be used.
    pub(super) is_down: bool,
    pub(super) has_encapsulation: bool,
}

impl Hop {
    fn of(path: &Path, version: IpVersion) -> Hop {
        let Path { index: interface, gateway, is_down, has_encapsulation, .. } = *path;
        Hop { interface, gateway, version, is_down, has_encapsulation }
    }

    /// The hop to a neighbour on an interface, as every source would have it.
    pub(super) fn to_neighbour(interface: InterfaceIndex, address: IpAddr) -> Hop {
        let version = IpVersion::of(address);
        Hop { interface, gateway: Some(address), version, is_down: false, has_encapsulation: false }
    }

    /// The first and the last hop with this interface and gateway, whatever else they are.
    fn all_to(interface: InterfaceIndex, gateway: Option<IpAddr>) -> std::ops::RangeInclusive<Hop> {
        let hop = |version, all| Hop { interface, gateway, version, is_down: all, has_encapsulation: all };
        hop(IpVersion::V4, false)..=hop(IpVersion::V6, true)
    }
}

/// A member that a group is to have.
#[derive(Clone, Copy, Debug)]
pub(super) enum GroupMember {
    Path(Path),
    Number(NextHopIndex),
}

/// A number and how many use it.
#[derive(Debug)]
struct Used {
    index: NextHopIndex,
    users: u32,
}

pub(super) type Members = Vec<(NextHopIndex, u16)>;

/// What stands behind a number.
#[derive(Clone, Debug, Default)]
pub(super) enum NextHopEntry {
    #[default]
    Nothing,
    Fixed,
    Hop(Hop),
    Group(Members),
    /// What stands for a next-hop object, for the packets of one family.
    Object(ObjectKey, IpVersion),
}

/// All numbers in use.
#[derive(Debug, Default)]
pub(super) struct Hops {
    hops: BTreeMap<Hop, Used>,
    groups: HashMap<Members, Used>,
    /// By number.
    behind: Vec<NextHopEntry>,
    /// Numbers that nobody uses here and that could not be freed yet, because the FIB refused to let a route go.
    retired: Vec<NextHopIndex>,
}

impl Hops {
    /// What a number stands for.
    pub(super) fn behind(&self, index: NextHopIndex) -> &NextHopEntry {
        self.behind.get(index.index()).unwrap_or(&NextHopEntry::Nothing)
    }

    /// Numbers with what they stand for.
    pub(super) fn iter(&self) -> impl Iterator<Item = (NextHopIndex, &NextHopEntry)> {
        let numbers = (0..).map_while(NextHopIndex::new);
        numbers.zip(&self.behind).filter(|(_, behind)| !matches!(behind, NextHopEntry::Nothing))
    }

    pub(super) fn set_entry(&mut self, index: NextHopIndex, behind: NextHopEntry) {
        if self.behind.len() <= index.index() {
            self.behind.resize(index.index() + 1, NextHopEntry::Nothing);
        }
        self.behind[index.index()] = behind;
    }

    /// Whether routes, groups or objects use a neighbour.
    pub(super) fn uses(&self, interface: InterfaceIndex, address: IpAddr) -> bool {
        self.hops.range(Hop::all_to(interface, Some(address))).next().is_some()
    }
}

/// The EtherType of a family.
pub(super) const fn ethertype(version: IpVersion) -> [u8; 2] {
    version.ethertype().0.to_be_bytes()
}

impl Mirror {
    /// Takes the numbers that are always there.
    pub(super) fn add_fixed_hops(&mut self) {
        for (place, next_hop) in FIXED.into_iter().enumerate() {
            let index = self.fib.next_hops_mut().add(next_hop).expect("there is room for the first numbers");
            assert_eq!(index.index(), place + 1, "numbers are given in ascending order");
            self.hops.set_entry(index, NextHopEntry::Fixed);
        }
    }

    /// What workers are to do with packets for a hop.
    fn value(&self, hop: &Hop) -> NextHop<Adjacency> {
        let forward = || {
            let interface = self.links.get(hop.interface)?;
            let (port, source) = (interface.port?, interface.link.mac?);
            let mac = self.neighbours.usable_mac(hop.interface, hop.gateway?)?;
            if let Some(exits) = &self.exits {
                return exits.adjacency(port, mac, source, hop.version);
            }
            let ethertype = ethertype(hop.version);
            match self.links.vlan(port) {
                None => Some(Adjacency::ethernet(port, mac, source, ethertype)),
                Some(of) => Some(Adjacency::tagged(port, mac, source, of.vlan, ethertype)),
            }
        };
        let has_priorities =
            self.links.get(hop.interface).is_some_and(|interface| interface.link.has_priorities);
        if hop.has_encapsulation || has_priorities {
            return NextHop::Punt;
        }
        // Whose link address is not known, but the link is a port's.
        let resolve = || self.links.port(hop.interface).map_or(NextHop::Punt, NextHop::Resolve);
        forward().map_or_else(resolve, NextHop::Forward)
    }

    /// Has the kernel resolve the neighbour through which a next hop leads to a destination: all of them where it is a group.
    pub fn ask_about(&mut self, number: NextHopIndex, destination: IpAddr) {
        let members: Vec<NextHopIndex> = match self.hops.behind(number) {
            &NextHopEntry::Hop(Hop { interface, gateway, .. }) => {
                let neighbour = gateway.unwrap_or(destination);
                let is_known = self.neighbours.usable_mac(interface, neighbour).is_some();
                if self.links.port(interface).is_some() && !is_known {
                    self.neighbours.to_ask.insert((interface, neighbour));
                }
                return;
            }
            NextHopEntry::Group(members) => members.iter().map(|&(member, _)| member).collect(),
            NextHopEntry::Object(..) => {
                let members = self.fib.next_hops().members(number);
                members.map_or(Vec::new(), |members| members.iter().map(|member| member.index).collect())
            }
            NextHopEntry::Nothing | NextHopEntry::Fixed => Vec::new(),
        };
        members.into_iter().for_each(|member| self.ask_about(member, destination));
    }

    fn is_up(&self, hop: &Hop) -> bool {
        !hop.is_down && self.links.can_send(hop.interface)
    }

    /// A number for a hop, with one user more.
    pub(super) fn acquire_hop(&mut self, hop: Hop) -> Result<NextHopIndex, NextHopError> {
        if let Some(used) = self.hops.hops.get_mut(&hop) {
            used.users += 1;
            return Ok(used.index);
        }
        let value = self.value(&hop);
        let index = self.fib.next_hops_mut().add(value)?;
        self.hops.hops.insert(hop, Used { index, users: 1 });
        self.hops.set_entry(index, NextHopEntry::Hop(hop));
        self.refresh_hop(hop);
        self.ask(&hop, true);
        Ok(index)
    }

    /// A number for packets that take one of several ways, with one user more.
    pub(super) fn acquire_group(
        &mut self,
        ways: impl Iterator<Item = (GroupMember, u16)>,
        version: IpVersion,
    ) -> Result<NextHopIndex, NextHopError> {
        let members = self.acquire_members(ways, version)?;
        if let [(single, _)] = members[..] {
            return Ok(single);
        }
        if let Some(used) = self.hops.groups.get_mut(&members) {
            used.users += 1;
            let index = used.index;
            // The group holds them already.
            self.release_members(&members);
            return Ok(index);
        }
        let added = self.fib.next_hops_mut().add_group(&members);
        let Ok(index) = added else {
            self.release_members(&members);
            return added;
        };
        self.back_up(index, Some(PUNT));
        self.hops.set_entry(index, NextHopEntry::Group(members.clone()));
        self.hops.groups.insert(members, Used { index, users: 1 });
        Ok(index)
    }

    /// Numbers for ways, each once and in ascending order, with one user more.
    pub(super) fn acquire_members(
        &mut self,
        ways: impl Iterator<Item = (GroupMember, u16)>,
        version: IpVersion,
    ) -> Result<Members, NextHopError> {
        let mut members: BTreeMap<NextHopIndex, u16> = BTreeMap::new();
        for (way, weight) in ways {
            let acquired = match way {
                GroupMember::Path(path) => self.acquire_hop(Hop::of(&path, version)),
                GroupMember::Number(index) => Ok(index),
            };
            let index = match acquired {
                Ok(index) => index,
                Err(error) => {
                    self.release_members(&members.into_iter().collect::<Members>());
                    return Err(error);
                }
            };
            let sum = members.get(&index).map(|&other| other.saturating_add(weight));
            if sum.is_some() {
                self.release_index(index);
            }
            members.insert(index, sum.unwrap_or(weight).clamp(1, MAX_WEIGHT));
        }
        Ok(members.into_iter().collect())
    }

    pub(super) fn release_members(&mut self, members: &[(NextHopIndex, u16)]) {
        members.iter().for_each(|&(index, _)| self.release_index(index));
    }

    /// One user of a number less. After the last it is freed.
    pub(super) fn release_index(&mut self, index: NextHopIndex) {
        match self.hops.behind(index).clone() {
            NextHopEntry::Nothing | NextHopEntry::Fixed => {}
            NextHopEntry::Object(key, version) => self.release_object(key, version),
            NextHopEntry::Hop(hop) => {
                let used =
                    self.hops.hops.get_mut(&hop).expect("a number in use stands for a hop that is there");
                used.users -= 1;
                if used.users == 0 {
                    self.hops.hops.remove(&hop);
                    self.retire(index);
                }
            }
            NextHopEntry::Group(members) => {
                let used = self
                    .hops
                    .groups
                    .get_mut(&members)
                    .expect("a number in use stands for a group that is there");
                used.users -= 1;
                if used.users == 0 {
                    self.hops.groups.remove(&members);
                    self.retire(index);
                    self.release_members(&members);
                }
            }
        }
    }

    /// Frees a number, now or, if the FIB still has a route to it, when it has none.
    pub(super) fn retire(&mut self, index: NextHopIndex) {
        self.hops.set_entry(index, NextHopEntry::Nothing);
        if self.fib.next_hops_mut().remove(index).is_err() {
            self.hops.retired.push(index);
        }
    }

    /// Tries again to free what could not be freed.
    pub(super) fn free_retired(&mut self) {
        for index in std::mem::take(&mut self.hops.retired) {
            self.retire(index);
        }
    }

    /// Brings what workers know of a hop in line with its link and neighbour.
    fn refresh_hop(&mut self, hop: Hop) {
        let Some(index) = self.hops.hops.get(&hop).map(|used| used.index) else { return };
        let (value, is_up) = (self.value(&hop), self.is_up(&hop));
        let known = self.fib.next_hops();
        let (was, was_up) = (known.get(index), known.is_up(index));
        if was != Some(value) {
            self.count(Count::NextHopChanges);
            self.fib.next_hops_mut().set(index, value).expect("a hop's number is that of a single next hop");
        }
        if was_up != is_up {
            self.count(Count::NextHopChanges);
            let next_hops = self.fib.next_hops_mut();
            let set = if is_up { next_hops.set_up(index) } else { next_hops.set_down(index) };
            set.expect("a hop's number is that of a single next hop");
            self.back_up(index, (!is_up).then_some(PUNT));
        }
    }

    /// Where packets go while no path of a number is up. Linux may have another route for them, of a larger metric or
    /// a shorter prefix (`ignore_routes_with_linkdown`).
    pub(super) fn back_up(&mut self, index: NextHopIndex, backup: Option<NextHopIndex>) {
        let set = self.fib.next_hops_mut().set_backup(index, backup);
        set.expect("the number is in use, and PUNT always");
    }

    /// The neighbour of a hop should be asked for its address, if nobody knows it. One that has just failed to answer is
    /// not asked at once again, unless for somebody `new`: see [`Mirror::neighbours_to_ask_again`].
    fn ask(&mut self, hop: &Hop, is_new: bool) {
        let Some(gateway) = hop.gateway else { return };
        let is_unknown = match self.neighbours.state(hop.interface, gateway) {
            None => true,
            Some(NeighbourState::Failed) => is_new,
            Some(_) => false,
        };
        if is_unknown && self.links.port(hop.interface).is_some() && self.is_up(hop) {
            self.neighbours.to_ask.insert((hop.interface, gateway));
        }
    }

    /// Whether routes lead through this neighbour, by a port that is up.
    pub(super) fn leads_through(&self, interface: InterfaceIndex, neighbour: IpAddr) -> bool {
        let mut hops = self.hops.hops.range(Hop::all_to(interface, Some(neighbour)));
        self.links.port(interface).is_some() && hops.any(|(hop, _)| self.is_up(hop))
    }

    /// Something is new with a neighbour.
    pub(super) fn refresh_neighbour(&mut self, interface: InterfaceIndex, address: IpAddr) {
        let concerned = self.hops.hops.range(Hop::all_to(interface, Some(address)));
        for hop in concerned.map(|(&hop, _)| hop).collect::<Vec<_>>() {
            self.refresh_hop(hop);
            self.ask(&hop, false);
        }
    }

    /// Something is new with a link.
    pub(super) fn refresh_link(&mut self, interface: InterfaceIndex) {
        let first = Hop::all_to(interface, None);
        let concerned = self.hops.hops.range(first.start()..).map(|(&hop, _)| hop);
        for hop in concerned.take_while(|hop| hop.interface == interface).collect::<Vec<_>>() {
            self.refresh_hop(hop);
            self.ask(&hop, false);
        }
    }

    /// Something is new with a port, of which others may be VLANs.
    pub(super) fn refresh_vlans_of(&mut self, parent: u16) {
        self.links.vlans_of(parent).into_iter().for_each(|interface| self.refresh_link(interface));
    }

    /// The interface to whose link a route with this next hop leads, if its destinations are on that link themselves.
    pub(super) fn connected_interface(&self, index: NextHopIndex) -> Option<InterfaceIndex> {
        match self.hops.behind(index) {
            NextHopEntry::Hop(Hop {
                interface,
                gateway: None,
                is_down: false,
                has_encapsulation: false,
                ..
            }) => Some(*interface),
            NextHopEntry::Object(..) => match self.fib.next_hops().members(index).ok()? {
                [member] => self.connected_interface(member.index),
                _ => None,
            },
            _ => None,
        }
    }
}
