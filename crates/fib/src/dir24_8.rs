//! DIR-24-8: one array with an entry for every /24 (Gupta, Lin, McKeown, "Routing lookups in hardware at memory
//! access speeds", INFOCOM 1998).
//!
//! ```text
//!             address                base: 2^24 entries of 16 bits
//!  +--------------------+------+     +--------------------------+
//!  |  first 24 bits     | last |  -> | 0 | next hop, 15 bits     |   the answer
//!  +--------------------+------+     | 1 | group number, 15 bits |   a prefix longer than /24 is in here:
//!                          |         +--------------------------+   groups[256 * number + last] is the answer
//!                          +-------------------------------------->
//! ```
//!
//! # Why it is fast
//!
//! Nearly every lookup is one load at an address that is known at once, so the loads of a batch overlap without any
//! help. On huge pages the base needs 16 TLB entries. What it pays with is cache: every destination /24 shares its
//! 64-byte line only with its 31 neighbours, so 65,536 scattered destinations occupy 4 MB.
//!
//! # Changes
//!
//! A changed prefix is repainted where no more-specific route claims the addresses; the RIB lists these gaps. Whole /24s
//! are filled in the base. A gap that ends inside a /24 ends at a route longer than /24, so that /24 has a group,
//! and its part of the group is filled. A group is made when the first such route comes and given back when the last
//! goes. A /24 to a /32 costs under a microsecond besides the RIB's search; a /8 writes up to 128 KB.
//!
//! # Memory
//!
//! | what | bytes |
//! | --- | --- |
//! | base | 33,554,432 (untouched pages are not occupied until written) |
//! | a /24 that contains longer prefixes | 512 |
//! | such /24s at most | 32,768, that is 16 MB |

use crate::changes::Changes;
use crate::memory::{HugeArray, prefetch};
use crate::{BURST, NextHopIndex, Rib, Route, Table, TableError};
use ipnet::Ipv4Net;
use packet::Family;

const NAME: &str = "dir24_8";
const BASE_ENTRIES: usize = 1 << 24;
/// Set in a base entry that holds the number of a group and not a next hop.
const IS_GROUP: u16 = 0x8000;
const GROUP_ENTRIES: usize = 256;
const GROUPS: usize = 1 << 15;

/// The DIR-24-8 table. See the top of its file for the layout.
pub struct Dir24_8 {
    base: HugeArray<u16>,
    groups: HugeArray<u16>,
    /// Groups below this number have been used.
    groups_used: u16,
}

/// What changes a [`Dir24_8`].
#[derive(Debug, Default)]
pub struct Dir24_8Compiler {
    /// The groups that were used and given back.
    groups_free: Vec<u16>,
    /// The /24s that changed.
    changes: Changes,
}

impl Dir24_8 {
    /// The base entry of an address.
    #[inline(always)]
    #[allow(unsafe_code, reason = "a bounds check less in the lookup loop")]
    fn base_entry(&self, address: u32) -> u16 {
        // SAFETY: an address without its last 8 bits is below 2^24, and `base` has 2^24 entries from `new` on.
        unsafe { *self.base.get_unchecked((address >> 8) as usize) }
    }

    /// The place in `groups` of the answer for `address`, whose base entry is `entry`.
    #[inline(always)]
    fn place_in_group(entry: u16, address: u32) -> usize {
        (entry & !IS_GROUP) as usize * GROUP_ENTRIES + (address & 0xff) as usize
    }

    /// The group of the /24 number `net24`, made from its single answer if it has none yet.
    fn group_of(
        &mut self,
        compiler: &mut Dir24_8Compiler,
        net24: usize,
        prefix: Ipv4Net,
    ) -> Result<u16, TableError> {
        let entry = self.base[net24];
        if entry & IS_GROUP != 0 {
            return Ok(entry & !IS_GROUP);
        }
        let group = match compiler.groups_free.pop() {
            Some(group) => group,
            None if (self.groups_used as usize) < GROUPS => {
                self.groups_used += 1;
                self.groups_used - 1
            }
            None => {
                let limit = "32,768 networks of /24 already contain longer prefixes";
                return Err(TableError::Full { table: NAME, prefix: prefix.into(), limit });
            }
        };
        self.group_mut(group).fill(entry);
        self.base[net24] = IS_GROUP | group;
        Ok(group)
    }

    fn group_mut(&mut self, group: u16) -> &mut [u16] {
        let start = group as usize * GROUP_ENTRIES;
        &mut self.groups[start..start + GROUP_ENTRIES]
    }

    /// Writes `next_hop` for the addresses `first` to `last`. A /24 that is only partly among them has a group.
    fn fill(&mut self, first: u32, last: u32, next_hop: NextHopIndex) {
        let mut net24 = (first >> 8) as usize;
        let last_net24 = (last >> 8) as usize;
        if !first.is_multiple_of(256) || last & 0xff != 0xff {
            // Gaps begin and end where routes do. With an end inside a /24 there are pieces of /24s at the ends.
            let end = last.min(first | 0xff);
            self.fill_part(net24, first, end, next_hop);
            if net24 == last_net24 {
                return;
            }
            self.fill_part(last_net24, last & !0xff, last, next_hop);
            net24 += 1;
            self.fill_whole(net24, last_net24, next_hop);
            return;
        }
        self.fill_whole(net24, last_net24 + 1, next_hop);
    }

    /// Fills `first` to `last`, which lie in one /24.
    fn fill_part(&mut self, net24: usize, first: u32, last: u32, next_hop: NextHopIndex) {
        let entry = self.base[net24];
        if entry & IS_GROUP == 0 {
            assert!(first & 0xff == 0 && last & 0xff == 0xff, "a /24 that is filled in part has a group");
            self.base[net24] = next_hop.get();
            return;
        }
        let part = (first & 0xff) as usize..=(last & 0xff) as usize;
        self.group_mut(entry & !IS_GROUP)[part].fill(next_hop.get());
    }

    /// Fills the /24s from `from` up to, not including, `to`.
    fn fill_whole(&mut self, from: usize, to: usize, next_hop: NextHopIndex) {
        // A /24 that is a gap as a whole contains no longer route, so its entry is a next hop and not a group; the
        // one exception, a group whose last route has just gone, is collapsed by `update` itself.
        debug_assert!(self.base[from..to].iter().all(|entry| entry & IS_GROUP == 0));
        self.base[from..to].fill(next_hop.get());
    }

    /// Repaints the part of a /24 that a prefix longer than /24 covers.
    fn update_long(
        &mut self,
        compiler: &mut Dir24_8Compiler,
        rib: &Rib<u32>,
        prefix: Ipv4Net,
    ) -> Result<(), TableError> {
        let (first, _) = u32::bounds(prefix);
        let net24 = (first >> 8) as usize;
        let network = first & u32::mask(24);
        compiler.changes.note(net24 as u32, net24 as u32);
        if !rib.has_longer_inside(network, 24) {
            let entry = self.base[net24];
            if entry & IS_GROUP != 0 {
                compiler.groups_free.push(entry & !IS_GROUP);
                self.base[net24] = rib.next_hop_at(first, prefix.prefix_len()).get();
            }
            return Ok(());
        }
        let group = self.group_of(compiler, net24, prefix)?;
        let next_hop = rib.next_hop_at(first, prefix.prefix_len());
        let entries = self.group_mut(group);
        rib.for_each_gap(prefix, |first, last| {
            entries[(first & 0xff) as usize..=(last & 0xff) as usize].fill(next_hop.get());
        });
        Ok(())
    }

    /// Looks up at most [`BURST`] addresses.
    #[inline(always)]
    fn lookup_burst(&self, addresses: &[u32], next_hops: &mut [NextHopIndex]) {
        let mut entries = [0u16; BURST];
        let mut any = 0;
        for (&address, entry) in addresses.iter().zip(&mut entries) {
            *entry = self.base_entry(address);
            any |= *entry;
        }
        if any & IS_GROUP != 0 {
            for (&address, &entry) in addresses.iter().zip(&entries) {
                if entry & IS_GROUP != 0 {
                    prefetch(&self.groups, Self::place_in_group(entry, address));
                }
            }
            for (&address, entry) in addresses.iter().zip(&mut entries) {
                if *entry & IS_GROUP != 0 {
                    *entry = self.groups[Self::place_in_group(*entry, address)];
                }
            }
        }
        for (&entry, next_hop) in entries.iter().zip(next_hops) {
            *next_hop = NextHopIndex::from_entry(entry);
        }
    }
}

impl Table<u32> for Dir24_8 {
    const NAME: &'static str = NAME;
    type Compiler = Dir24_8Compiler;

    fn new() -> Result<Dir24_8, TableError> {
        Ok(Dir24_8 {
            base: HugeArray::zeroed(NAME, BASE_ENTRIES)?,
            groups: HugeArray::zeroed(NAME, GROUPS * GROUP_ENTRIES)?,
            groups_used: 0,
        })
    }

    #[inline]
    fn lookup(&self, address: u32) -> NextHopIndex {
        let entry = self.base_entry(address);
        if entry & IS_GROUP == 0 {
            return NextHopIndex::from_entry(entry);
        }
        NextHopIndex::from_entry(self.groups[Self::place_in_group(entry, address)])
    }

    #[inline]
    fn lookup_batch(&self, addresses: &[u32], next_hops: &mut [NextHopIndex]) {
        assert_eq!(addresses.len(), next_hops.len(), "one place for each answer");
        for (addresses, next_hops) in addresses.chunks(BURST).zip(next_hops.chunks_mut(BURST)) {
            self.lookup_burst(addresses, next_hops);
        }
    }

    fn update(
        &mut self,
        compiler: &mut Dir24_8Compiler,
        rib: &Rib<u32>,
        prefix: Ipv4Net,
    ) -> Result<(), TableError> {
        if prefix.prefix_len() > 24 {
            return self.update_long(compiler, rib, prefix);
        }
        let next_hop = rib.next_hop_at(u32::bounds(prefix).0, prefix.prefix_len());
        rib.for_each_gap(prefix, |first, last| {
            compiler.changes.note(first >> 8, last >> 8);
            self.fill(first, last, next_hop);
        });
        Ok(())
    }

    fn rebuild(&mut self, compiler: &mut Dir24_8Compiler, rib: &Rib<u32>) -> Result<(), TableError> {
        self.base.fill(0);
        self.groups_used = 0;
        compiler.groups_free.clear();
        compiler.changes.note_everything();
        // The RIB's order puts a route before those inside it: each paints over what it refines.
        for Route { prefix, next_hop } in rib.iter() {
            packet::pulse::beat();
            let (first, last) = u32::bounds(prefix);
            let net24 = (first >> 8) as usize;
            if prefix.prefix_len() > 24 {
                let group = self.group_of(compiler, net24, prefix)?;
                let part = (first & 0xff) as usize..=(last & 0xff) as usize;
                self.group_mut(group)[part].fill(next_hop.get());
            } else {
                self.base[net24..=(last >> 8) as usize].fill(next_hop.get());
            }
        }
        Ok(())
    }

    fn catch_up(&mut self, compiler: &mut Dir24_8Compiler, ahead: &Dir24_8) {
        self.groups_used = ahead.groups_used;
        if compiler.changes.is_everything() {
            let used = self.groups_used as usize * GROUP_ENTRIES;
            self.base.copy_from_slice(&ahead.base);
            self.groups[..used].copy_from_slice(&ahead.groups[..used]);
        }
        for &(first, last) in compiler.changes.stretches() {
            let stretch = first as usize..=last as usize;
            self.base[stretch.clone()].copy_from_slice(&ahead.base[stretch.clone()]);
            for &entry in ahead.base[stretch].iter().filter(|&&entry| entry & IS_GROUP != 0) {
                let start = (entry & !IS_GROUP) as usize * GROUP_ENTRIES;
                let group = start..start + GROUP_ENTRIES;
                self.groups[group.clone()].copy_from_slice(&ahead.groups[group]);
            }
        }
        compiler.changes.clear();
    }

    fn for_each_range(&self, visit: &mut dyn FnMut(u32, NextHopIndex)) {
        for (first, &entry) in (0..=u32::MAX).step_by(256).zip(self.base.iter()) {
            if entry & IS_GROUP == 0 {
                visit(first, NextHopIndex::from_entry(entry));
                continue;
            }
            let start = (entry & !IS_GROUP) as usize * GROUP_ENTRIES;
            for (address, &entry) in (first..=first | 0xff).zip(&self.groups[start..start + GROUP_ENTRIES]) {
                visit(address, NextHopIndex::from_entry(entry));
            }
        }
    }

    fn expected_bytes(routes: usize) -> usize {
        // One route in eight longer than /24 and alone in its network is more than the Internet has.
        BASE_ENTRIES * 2 + (routes / 8).min(GROUPS) * GROUP_ENTRIES * 2
    }

    fn memory_bytes(&self) -> usize {
        (BASE_ENTRIES + self.groups_used as usize * GROUP_ENTRIES) * size_of::<u16>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LocalFib;

    #[test]
    fn a_group_comes_with_the_first_long_prefix_and_goes_with_the_last() {
        let to = |number| NextHopIndex::new(number).unwrap();
        let mut fib = LocalFib::<u32, Dir24_8>::new().unwrap();
        fib.insert("10.0.0.0/8".parse().unwrap(), to(1)).unwrap();
        fib.insert("10.0.0.128/25".parse().unwrap(), to(2)).unwrap();
        fib.insert("10.0.0.255/32".parse().unwrap(), to(3)).unwrap();
        assert_eq!((fib.table().groups_used, fib.compiler().groups_free.len()), (1, 0));
        // A shorter route that comes later shows through beside the long ones.
        fib.insert("10.0.0.0/24".parse().unwrap(), to(4)).unwrap();
        let answers = |fib: &LocalFib<u32, Dir24_8>| {
            [0, 127, 128, 254, 255].map(|last| fib.table().lookup(0x0a00_0000 | last).get())
        };
        assert_eq!(answers(&fib), [4, 4, 2, 2, 3]);
        fib.remove("10.0.0.128/25".parse().unwrap()).unwrap();
        assert_eq!(answers(&fib), [4, 4, 4, 4, 3]);
        fib.remove("10.0.0.255/32".parse().unwrap()).unwrap();
        assert_eq!(answers(&fib), [4, 4, 4, 4, 4]);
        assert_eq!((fib.table().groups_used, fib.compiler().groups_free.len()), (1, 1));
        fib.remove("10.0.0.0/24".parse().unwrap()).unwrap();
        assert_eq!(answers(&fib), [1, 1, 1, 1, 1]);
    }

    #[test]
    fn a_gap_with_pieces_of_networks_at_both_ends_is_filled() {
        let to = |number| NextHopIndex::new(number).unwrap();
        let mut fib = LocalFib::<u32, Dir24_8>::new().unwrap();
        fib.insert("10.0.0.0/32".parse().unwrap(), to(1)).unwrap();
        fib.insert("10.0.3.255/32".parse().unwrap(), to(2)).unwrap();
        fib.insert("10.0.0.0/22".parse().unwrap(), to(3)).unwrap();
        for (address, number) in
            [(0, 1), (1, 3), (0xff, 3), (0x100, 3), (0x2ff, 3), (0x300, 3), (0x3fe, 3), (0x3ff, 2)]
        {
            assert_eq!(fib.table().lookup(0x0a00_0000 | address).get(), number, "{address:#x}");
        }
        fib.remove("10.0.0.0/22".parse().unwrap()).unwrap();
        for (address, number) in [(0, 1), (1, 0), (0x100, 0), (0x3fe, 0), (0x3ff, 2), (0x400, 0)] {
            assert_eq!(fib.table().lookup(0x0a00_0000 | address).get(), number, "{address:#x}");
        }
    }
}
