//! Dumps: what a source does not name when it tells all that it has is gone.
//!
//! A source dumps its state at the beginning, and again when it may have missed something: [`Mirror::dump_begins`], the
//! changes, [`Mirror::dump_ends`]. Everything carries the *epoch* (the number of the dump) in which it was last told;
//! what has another than the present one when a dump ends is gone. Until then it stays, so a daemon that is restarted
//! disturbs nobody.

use super::Mirror;
use super::counters::Count;
use super::objects::ObjectKey;
use crate::change::{Address, InterfaceIndex, Part, Source};
use packet::IpVersion;

/// The number of the present dump of each source and part.
#[derive(Debug, Default)]
pub(super) struct Epochs([[u8; 7]; 2]);

impl Epochs {
    pub(super) fn of(&self, source: Source, part: Part) -> u8 {
        self.0[source as usize][part as usize]
    }

    pub(super) fn next(&mut self, source: Source, part: Part) {
        let epoch = &mut self.0[source as usize][part as usize];
        *epoch = epoch.wrapping_add(1);
    }

    pub(super) fn of_objects(&self, source: Source) -> u8 {
        self.of(source, Part::Objects)
    }

    pub(super) fn of_neighbours(&self) -> u8 {
        self.of(Source::Netlink, Part::Neighbours)
    }

    pub(super) fn of_rules(&self) -> u8 {
        self.of(Source::Netlink, Part::Rules)
    }

    pub(super) fn of_routes(&self, source: Source, version: IpVersion) -> u8 {
        self.of(source, if version == IpVersion::V6 { Part::Routes6 } else { Part::Routes4 })
    }
}

impl Mirror {
    /// A source is about to tell all that it has of a part.
    pub fn dump_begins(&mut self, source: Source, part: Part) {
        self.epochs.next(source, part);
    }

    /// A source has told all that it has of a part: what it did not name since [`Mirror::dump_begins`] is gone.
    pub fn dump_ends(&mut self, source: Source, part: Part) {
        let epoch = self.epochs.of(source, part);
        let is_kernels = !matches!(part, Part::Routes4 | Part::Routes6 | Part::Objects);
        if is_kernels && source != Source::Netlink {
            return;
        }
        let swept = match part {
            Part::Links => {
                let all = self.links.interfaces.iter().filter(|(_, interface)| interface.epoch != epoch);
                let gone: Vec<InterfaceIndex> = all.map(|(&index, _)| index).collect();
                self.links.is_settled = true;
                gone.iter().filter(|index| self.remove_link(**index)).count()
            }
            Part::Addresses => {
                let all = self.links.addresses.iter().filter(|(_, seen)| **seen != epoch);
                let gone: Vec<Address> = all.map(|(address, _)| address.clone()).collect();
                gone.iter().filter(|address| self.links.remove_address(address)).count()
            }
            Part::Neighbours => {
                let all = self.neighbours.known.iter().filter(|(_, entry)| entry.epoch != epoch);
                let gone: Vec<_> = all.map(|(&key, _)| key).collect();
                gone.iter().filter(|(address, index)| self.remove_neighbour(*index, *address)).count()
            }
            Part::Rules => {
                let before = self.policy.list.len();
                self.policy.list.retain(|(_, seen)| *seen == epoch);
                let gone = before - self.policy.list.len();
                self.policy.is_dirty |= gone > 0;
                gone
            }
            Part::Objects => {
                let all = self.objects.known.iter();
                let all = all.filter(|(key, known)| key.source == source && known.epoch != epoch);
                let gone: Vec<ObjectKey> =
                    all.filter(|(_, known)| known.kind.is_some()).map(|(&key, _)| key).collect();
                gone.iter().filter(|key| self.remove_object(**key)).count()
            }
            Part::Routes4 => {
                self.remove_routes::<u32>(|_, key, stored| key.source == source && stored.epoch != epoch)
            }
            Part::Routes6 => {
                self.remove_routes::<u128>(|_, key, stored| key.source == source && stored.epoch != epoch)
            }
        };
        self.count_more(Count::Swept, swept);
    }
}
