//! One byte for every /24: the table for full speed.
//!
//! ```text
//!              address               bytes: 2^24
//!  +--------------------+------+    +---------------------------------+
//!  |  first 24 bits     | last | -> |  0 to 254: the next hop's number |   the answer, for nearly all packets
//!  +--------------------+------+    |  255: ask the rank table         |   larger numbers, and longer prefixes
//!                                   +---------------------------------+
//! ```
//!
//! It is DIR-24-8 (see `dir24_8.rs`) at half the size and with another table behind it. Half the size is what matters: 16 MB
//! stay in a third-level cache of 32 MB together with packets, 32 MB do not, and each line of the first-level cache
//! holds 64 networks. Routers have few next hops beside their routes; those with numbers from 255 on are found in the
//! [`Rank`] table in two to four times the time.
//!
//! TSC cycles a lookup in bursts of 32, 1,000,000 nested routes to 64 next hops, measured in one run on one core of an AMD EPYC (Zen 5, 32 MB of third-level cache):
//!
//! | addresses | DIR-24-8 | rank | this |
//! | --- | --- | --- | --- |
//! | random over the whole address space | 13.5 | 4.3 | 3.2 |
//! | random inside prefixes | 2.9 | 4.7 | 2.5 |
//! | 1,000 hot ones | 1.5 | 3.2 | 1.5 |
//!
//! # Few routes
//!
//! Up to 1,024 routes the bytes stay untouched and the rank table answers: 2 to 4 cycles, and a default route
//! costs 4 MB instead of 20. With the next route the bytes are filled, once.
//!
//! # Memory
//!
//! 16,777,216 bytes from 1,025 routes on, and those of the rank table.

use crate::memory::HugeArray;
use crate::rank::{IS_BLOCK, NETWORKS, Rank, RankCompiler};
use crate::region::Region;
use crate::{BURST, NextHopIndex, Rib, Table, TableError};
use ipnet::Ipv4Net;
use std::sync::Arc;

const NAME: &str = "byte24";
/// One for each /24, and one more because they are loaded in pairs.
const BYTES: usize = (1 << 24) + 1;
/// Stands where the rank table knows more.
const ASK: u8 = 255;

/// One byte for every /24, in front of a [`Rank`] table. See the top of its file. Up to `FEW` routes there are no bytes.
pub struct Byte24<const FEW: usize = 1024> {
    bytes: HugeArray<u8>,
    /// Whether the bytes are filled. Then they stay so.
    has_bytes: bool,
    rank: Rank,
}

/// Calls `visit` for each range: the bytes are what packets see, and the rank table where there are none or they ask it.
fn for_each_range(bytes: &[u8], rank: &Rank, visit: &mut dyn FnMut(u32, NextHopIndex)) {
    let mut last = None;
    rank.for_each_part(|start, next_hop| {
        let next_hop = match bytes.get((start >> 8) as usize) {
            Some(&number) if number != ASK => NextHopIndex::from_entry(u16::from(number)),
            _ => next_hop,
        };
        if last.replace(next_hop) != Some(next_hop) {
            visit(start, next_hop);
        }
    });
}

impl<const FEW: usize> Byte24<FEW> {
    #[inline(always)]
    #[allow(unsafe_code, reason = "a bounds check less in the lookup loop")]
    fn byte(&self, address: u32) -> u8 {
        // SAFETY: an address without its last 8 bits is below 2^24, and `bytes` has more entries from `new` on.
        unsafe { *self.bytes.get_unchecked((address >> 8) as usize) }
    }

    /// Looks up [`BURST`] addresses.
    ///
    /// It is written for what the compiler makes of it: loads of 16 bits can be put into vector registers one by one
    /// (PINSRW, part of plain x86-64), and mask, test and store are a few instructions for the whole burst. Stores of
    /// single bytes that are then looked at as a vector took half as long again, because a wide load waits until all
    /// the narrow stores that it covers have left the core.
    #[inline(always)]
    fn lookup_burst(&self, addresses: &[u32; BURST], next_hops: &mut [NextHopIndex; BURST]) {
        let mut pairs = [0u16; BURST];
        let mut seen = 0;
        for (&address, pair) in addresses.iter().zip(&mut pairs) {
            *pair = self.byte_and_next(address) & 0xff;
            // Bit 8 of a byte and 1 is set for 255 and for nothing else.
            seen |= *pair + 1;
        }
        for (&pair, next_hop) in pairs.iter().zip(&mut *next_hops) {
            *next_hop = NextHopIndex::from_entry(pair);
        }
        if seen & 1 << 8 != 0 {
            self.ask(addresses, next_hops);
        }
    }

    /// The byte of an address in the low half, that of the next /24 in the other.
    #[inline(always)]
    #[allow(unsafe_code, reason = "an unaligned load in the lookup loop")]
    fn byte_and_next(&self, address: u32) -> u16 {
        // SAFETY: an address without its last 8 bits is below 2^24, and `bytes` has one byte more than 2^24 from `new` on.
        unsafe {
            u16::from_le(self.bytes.as_ptr().add((address >> 8) as usize).cast::<u16>().read_unaligned())
        }
    }

    /// Looks up those addresses of a burst of which the rank table knows more.
    #[inline(never)]
    fn ask(&self, addresses: &[u32; BURST], next_hops: &mut [NextHopIndex; BURST]) {
        let mut asked = [0u32; BURST];
        let mut places = [0u8; BURST];
        let mut count = 0;
        for (place, (&address, &byte)) in addresses.iter().zip(&*next_hops).enumerate() {
            asked[count % BURST] = address;
            places[count % BURST] = place as u8;
            count += usize::from(byte.get() == u16::from(ASK));
        }
        let mut answers = [NextHopIndex::NONE; BURST];
        self.rank.lookup_burst(&asked[..count], &mut answers[..count]);
        for (&place, &answer) in places[..count].iter().zip(&answers) {
            next_hops[usize::from(place)] = answer;
        }
    }

    /// Writes the bytes of chunks `first` to `last` of the rank table.
    fn refresh(&mut self, first: usize, last: usize) {
        for chunk in first..=last {
            if let Some(next_hop) = self.rank.only_next_hop(chunk) {
                self.bytes[chunk * NETWORKS..(chunk + 1) * NETWORKS].fill(next_hop.min(u16::from(ASK)) as u8);
                continue;
            }
            let networks = self.rank.networks(chunk);
            for (byte, network) in self.bytes[chunk * NETWORKS..].iter_mut().zip(networks) {
                *byte = if network & IS_BLOCK != 0 { ASK } else { network.min(u16::from(ASK)) as u8 };
            }
        }
    }

    fn refresh_all(&mut self) {
        self.has_bytes = true;
        self.refresh(0, BYTES / NETWORKS - 1);
    }

    /// The rank table behind the bytes, which knows all answers.
    pub fn rank(&self) -> &Rank {
        &self.rank
    }
}

impl<const FEW: usize> Table<u32> for Byte24<FEW> {
    const NAME: &'static str = NAME;
    const IS_SHARED: bool = true;
    type Compiler = RankCompiler;

    fn new() -> Result<Self, TableError> {
        Ok(Byte24 { bytes: HugeArray::zeroed(NAME, BYTES)?, has_bytes: false, rank: Rank::new()? })
    }

    #[inline]
    fn lookup(&self, address: u32) -> NextHopIndex {
        let number = self.byte(address);
        if number == ASK || !self.has_bytes {
            return self.rank.lookup(address);
        }
        NextHopIndex::from_entry(u16::from(number))
    }

    #[inline]
    fn lookup_batch(&self, addresses: &[u32], next_hops: &mut [NextHopIndex]) {
        assert_eq!(addresses.len(), next_hops.len(), "one place for each answer");
        if !self.has_bytes {
            return self.rank.lookup_batch(addresses, next_hops);
        }
        let (bursts, rest) = addresses.as_chunks();
        let (of_bursts, of_rest) = next_hops.as_chunks_mut();
        for (addresses, next_hops) in bursts.iter().zip(of_bursts) {
            self.lookup_burst(addresses, next_hops);
        }
        for (&address, next_hop) in rest.iter().zip(of_rest) {
            *next_hop = self.lookup(address);
        }
    }

    fn update(
        &mut self,
        compiler: &mut RankCompiler,
        rib: &Rib<u32>,
        prefix: Ipv4Net,
    ) -> Result<(), TableError> {
        self.update_all(compiler, rib, &[prefix])
    }

    fn update_all(
        &mut self,
        compiler: &mut RankCompiler,
        rib: &Rib<u32>,
        prefixes: &[Ipv4Net],
    ) -> Result<(), TableError> {
        self.rank.update_all(compiler, rib, prefixes)?;
        match compiler.touched() {
            _ if !self.has_bytes && rib.len() <= FEW => {}
            Some(stretches) if self.has_bytes => {
                stretches.iter().for_each(|&(first, last)| self.refresh(first as usize, last as usize));
            }
            _ => self.refresh_all(),
        }
        Ok(())
    }

    fn surely_fits(rib: &Rib<u32>) -> bool {
        Rank::surely_fits(rib)
    }

    fn rebuild(&mut self, compiler: &mut RankCompiler, rib: &Rib<u32>) -> Result<(), TableError> {
        self.rank.rebuild(compiler, rib)?;
        if self.has_bytes || rib.len() > FEW {
            self.refresh_all();
        }
        Ok(())
    }

    fn catch_up(&mut self, compiler: &mut RankCompiler, ahead: &Self) {
        let catches_up = ahead.has_bytes && (compiler.changes().is_everything() || !self.has_bytes);
        self.has_bytes = ahead.has_bytes;
        if catches_up {
            self.bytes.copy_from_slice(&ahead.bytes);
        }
        let stretches = if self.has_bytes { compiler.changes().stretches() } else { &[] };
        for &(first, last) in stretches {
            let stretch = first as usize * NETWORKS..(last as usize + 1) * NETWORKS;
            self.bytes[stretch.clone()].copy_from_slice(&ahead.bytes[stretch]);
        }
        self.rank.catch_up(compiler, &ahead.rank);
    }

    /// The bytes stay: they are for bursts of lookups.
    fn relocate(&mut self, region: Option<&Arc<Region>>) -> Result<(), TableError> {
        self.rank.relocate(region)
    }

    /// Those of the rank table, which knows all answers.
    fn places_in(&self, region: &Arc<Region>) -> Option<[u32; 3]> {
        self.rank.places_in(region)
    }

    fn for_each_range(&self, visit: &mut dyn FnMut(u32, NextHopIndex)) {
        for_each_range(if self.has_bytes { &self.bytes } else { &[] }, &self.rank, visit);
    }

    fn expected_bytes(routes: usize) -> usize {
        Rank::expected_bytes(routes) + if routes > FEW { 1 << 24 } else { 0 }
    }

    fn memory_bytes(&self) -> usize {
        self.rank.memory_bytes() + if self.has_bytes { self.bytes.len() } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LocalFib;

    /// More than few routes, where no test looks.
    fn fill(fib: &mut LocalFib<u32, Byte24>) {
        for network in 0..=1024u32 {
            let prefix = Ipv4Net::new((200 << 24 | network << 8).into(), 24).unwrap();
            assert!(!fib.table().has_bytes);
            fib.insert(prefix, NextHopIndex::new(1).unwrap()).unwrap();
        }
        assert!(fib.table().has_bytes);
    }

    #[test]
    fn the_bytes_come_with_many_routes_and_stay() {
        let mut fib = LocalFib::<u32, Byte24>::new().unwrap();
        let few = fib.table().memory_bytes();
        fill(&mut fib);
        assert_eq!(fib.table().memory_bytes() >> 24, 1);
        for network in 0..=1024u32 {
            assert_eq!(fib.lookup(200 << 24 | network << 8 | 7).get(), 1);
            let prefix = Ipv4Net::new((200 << 24 | network << 8).into(), 24).unwrap();
            fib.remove(prefix).unwrap();
            assert_eq!(fib.lookup(200 << 24 | network << 8 | 7).get(), 0);
        }
        assert!(fib.table().has_bytes && few < 5 << 20);
    }

    #[test]
    fn numbers_from_255_on_and_long_prefixes_are_asked_for() {
        let mut fib = LocalFib::<u32, Byte24>::new().unwrap();
        let to = |number| NextHopIndex::new(number).unwrap();
        fill(&mut fib);
        let numbers = [0, 1, 254, 255, 256, 511, 32_767];
        for (network, number) in (0u32..).zip(numbers) {
            fib.insert(Ipv4Net::new((network << 8).into(), 24).unwrap(), to(number)).unwrap();
        }
        fib.insert("0.0.7.128/25".parse().unwrap(), to(3)).unwrap();
        let asked = |fib: &LocalFib<u32, Byte24>| -> Vec<u32> {
            (0..9).filter(|network| fib.table().byte(network << 8) == ASK).collect()
        };
        assert_eq!(asked(&fib), [3, 4, 5, 6, 7]);
        let addresses: Vec<u32> = (0..16).map(|half| half << 7).collect();
        let mut answers = [NextHopIndex::NONE; 16];
        fib.table().lookup_batch(&addresses, &mut answers);
        let expected = [0, 0, 1, 1, 254, 254, 255, 255, 256, 256, 511, 511, 32_767, 32_767, 0, 3];
        assert_eq!(answers.map(NextHopIndex::get), expected);
        fib.remove("0.0.7.128/25".parse().unwrap()).unwrap();
        assert_eq!(asked(&fib), [3, 4, 5, 6]);
        for (&address, number) in addresses.iter().zip(expected).take(14) {
            assert_eq!(fib.lookup(address).get(), number);
        }
    }
}
