//! Changing a rank table.
//!
//! A changed prefix repaints the addresses that no more-specific route inside it claims; the RIB lists these gaps. Chunks that
//! lie in a gap as a whole get an entry. In the others the answers of the 32 networks are taken out of the entry,
//! painted over, and packed again; where an edge of the gap lies inside a network, the same is done with the 256
//! answers of its block. So the RIB is asked for gaps and for one next hop, and never for the routes around.
//!
//! Where several routes in a chunk have changed, the chunk is compiled once from what the RIB has in it.
//!
//! What an entry used to point to is given back to [`Room`] and may be used for the next one at once: nobody reads
//! the copy of the table that is being changed. Most changes are of a next hop only; then the new answers fit where
//! the old ones were.

use super::{BLOCK, BLOCKS, CHUNK_BITS, CHUNKS, HOPS, IS_BLOCK, NAME, NETWORKS, NUMBERS, Rank, place};
use crate::changes::Changes;
use crate::rib::Range;
use crate::room::Room;
use crate::{NextHopIndex, Rib, TableError};
use ipnet::Ipv4Net;
use packet::Family;

/// From so many gaps on it is quicker to compile everything.
const MANY_GAPS: usize = 100_000;
const REST_BITS: u32 = 32 - CHUNK_BITS as u32;
const REST_MASK: u32 = (1 << REST_BITS) - 1;

/// What changes a [`Rank`].
#[derive(Debug, Default)]
pub struct RankCompiler {
    hops: Room,
    blocks: Room,
    changes: Changes,
    /// The chunks that the last update changed, some of them twice: first and last of each stretch.
    touched: Vec<(u32, u32)>,
    /// Working memory: the entries of a chunk's blocks, and its ranges.
    entries: Vec<u64>,
    ranges: Vec<Range<u32>>,
}

impl RankCompiler {
    /// The chunks that the last update changed; `None` means all.
    pub(crate) fn touched(&self) -> Option<&[(u32, u32)]> {
        if self.touched.first() == Some(&(0, CHUNKS as u32 - 1)) { None } else { Some(&self.touched) }
    }

    /// What has changed since the mirror image was brought in line.
    pub(crate) fn changes(&self) -> &Changes {
        &self.changes
    }
}

/// Something ran out.
struct NoRoom;

/// The bitmap for the answers of some parts, and how many answers that leaves.
fn parts(values: &[u16]) -> (u32, usize) {
    let mut bitmap = 0;
    let mut count = 1;
    for part in 1..values.len() {
        if values[part] != values[part - 1] {
            bitmap |= 1 << (part - 1);
            count += 1;
        }
    }
    (bitmap, count)
}

/// Writes the distinct neighbours of `values` in reverse.
fn write_reversed(hops: &mut [u16], values: &[u16], bitmap: u32) {
    let mut at = hops.len();
    for (part, &value) in values.iter().enumerate() {
        if part == 0 || bitmap & 1 << (part - 1) != 0 {
            at -= 1;
            hops[at] = value;
        }
    }
}

/// The answers of a network, one for each address.
type Hosts = [u16; 256];

impl Rank {
    /// Where the blocks of a chunk begin and how many they are.
    fn blocks_of(&self, entry: u64) -> (usize, usize) {
        let count = entry.count_ones_of_bitmap();
        let base = (entry >> 32) as usize;
        if count == 0 {
            return (0, 0);
        }
        let blocks = self.hops[base..=base + count].iter().filter(|&&hop| hop & IS_BLOCK != 0).count();
        match blocks {
            0 => (0, 0),
            _ => (usize::from(self.hops[base - 2]) | usize::from(self.hops[base - 1]) << 16, blocks),
        }
    }

    fn block(&self, number: usize) -> [u64; BLOCK] {
        std::array::from_fn(|entry| self.blocks[number * BLOCK + entry])
    }

    fn set_whole(&mut self, compiler: &mut RankCompiler, chunk: usize, next_hop: u16) {
        let entry = self.chunks[chunk];
        self.chunks[chunk] = u64::from(next_hop) << 32;
        let (first, blocks) = self.blocks_of(entry);
        for block in first..first + blocks {
            give_back_hosts(compiler, &self.block(block));
        }
        give_back_networks(compiler, entry, first, blocks);
    }

    /// Paints addresses `first` to `last`, all of one chunk.
    fn paint(
        &mut self,
        compiler: &mut RankCompiler,
        first: u32,
        last: u32,
        next_hop: u16,
    ) -> Result<(), NoRoom> {
        let chunk = (first >> REST_BITS) as usize;
        let entry = self.chunks[chunk];
        let mut answers = self.networks(chunk);
        let (first_block, blocks) = self.blocks_of(entry);
        // The blocks that come in the place of others, or are new: those at the two ends.
        let mut painted: [(usize, [u64; BLOCK]); 2] = [(NETWORKS, [0; BLOCK]); 2];
        let mut count = 0;
        for (network, answer) in answers.iter_mut().enumerate() {
            let start = (chunk as u32) << REST_BITS | (network as u32) << 8;
            if first > start | 0xff || last < start {
                continue;
            }
            let before =
                (*answer & IS_BLOCK != 0).then(|| self.block(first_block + usize::from(*answer & !IS_BLOCK)));
            if let Some(block) = &before {
                give_back_hosts(compiler, block);
            }
            if first <= start && last >= start | 0xff {
                *answer = next_hop;
                continue;
            }
            let mut hosts = match &before {
                Some(block) => self.hosts(block),
                None => [*answer; 256],
            };
            hosts[(first.max(start) & 0xff) as usize..=(last.min(start | 0xff) & 0xff) as usize]
                .fill(next_hop);
            if hosts.iter().all(|&host| host == hosts[0]) {
                *answer = hosts[0];
            } else {
                painted[count] = (network, self.pack_hosts(compiler, &hosts)?);
                count += 1;
                *answer = IS_BLOCK;
            }
        }
        let mut entries = std::mem::take(&mut compiler.entries);
        entries.clear();
        if blocks > 0 || count > 0 {
            for (network, answer) in
                answers.iter_mut().enumerate().filter(|(_, answer)| **answer & IS_BLOCK != 0)
            {
                let new = painted.iter().find(|painted| painted.0 == network).map(|painted| painted.1);
                let block = new.unwrap_or_else(|| self.block(first_block + usize::from(*answer & !IS_BLOCK)));
                *answer = IS_BLOCK | (entries.len() / BLOCK) as u16;
                entries.extend(block);
            }
        }
        let set = self.set_networks(compiler, chunk, &answers, &entries);
        compiler.entries = entries;
        self.note_used(compiler);
        set
    }

    /// Gives a chunk the answers of its networks, and its blocks in the order of their numbers.
    fn set_networks(
        &mut self,
        compiler: &mut RankCompiler,
        chunk: usize,
        answers: &[u16; NETWORKS],
        entries: &[u64],
    ) -> Result<(), NoRoom> {
        let entry = self.chunks[chunk];
        let (bitmap, count) = parts(answers);
        let (first_before, blocks_before) = self.blocks_of(entry);
        let blocks = entries.len() / BLOCK;
        if count == 1 {
            self.chunks[chunk] = u64::from(answers[0]) << 32;
            give_back_networks(compiler, entry, first_before, blocks_before);
            return Ok(());
        }
        let (base, first) = if entry as u32 == bitmap && blocks == blocks_before {
            ((entry >> 32) as usize, first_before)
        } else {
            give_back_networks(compiler, entry, first_before, blocks_before);
            let header = if blocks > 0 { 2 } else { 0 };
            let base = self.allocate_hops(compiler, header + count)? + header;
            let first = if blocks > 0 { compiler.blocks.allocate(blocks, BLOCKS).ok_or(NoRoom)? } else { 0 };
            self.blocks.reserve((first + blocks) * BLOCK);
            (base, first)
        };
        if blocks > 0 {
            self.blocks[first * BLOCK..first * BLOCK + entries.len()].copy_from_slice(entries);
            self.hops[base - 2] = first as u16;
            self.hops[base - 1] = (first >> 16) as u16;
        }
        write_reversed(&mut self.hops[base..base + count], answers, bitmap);
        self.chunks[chunk] = (base as u64) << 32 | u64::from(bitmap);
        Ok(())
    }

    /// The 256 answers in a block.
    fn hosts(&self, block: &[u64; BLOCK]) -> Hosts {
        std::array::from_fn(|host| self.hops[place(block[host / NETWORKS], host as u32)])
    }

    /// A block for 256 answers; those of its eight entries stand side by side.
    fn pack_hosts(&mut self, compiler: &mut RankCompiler, hosts: &Hosts) -> Result<[u64; BLOCK], NoRoom> {
        let mut shapes = [(0, 0); BLOCK];
        let mut places = 0;
        for (shape, hosts) in shapes.iter_mut().zip(hosts.chunks(NETWORKS)) {
            *shape = parts(hosts);
            places += shape.1;
        }
        let mut base = self.allocate_hops(compiler, places)?;
        let mut block = [0; BLOCK];
        for ((entry, (bitmap, count)), hosts) in block.iter_mut().zip(shapes).zip(hosts.chunks(NETWORKS)) {
            write_reversed(&mut self.hops[base..base + count], hosts, bitmap);
            *entry = (base as u64) << 32 | u64::from(bitmap);
            base += count;
        }
        Ok(block)
    }

    /// Takes places of `hops`.
    fn allocate_hops(&mut self, compiler: &mut RankCompiler, places: usize) -> Result<usize, NoRoom> {
        let base = compiler.hops.allocate(places, HOPS).ok_or(NoRoom)?;
        self.hops.reserve(base + places);
        Ok(base)
    }

    /// Compiles a chunk from the ranges in it. A range that began in an earlier chunk counts from the start of this.
    fn set_ranges(
        &mut self,
        compiler: &mut RankCompiler,
        chunk: usize,
        ranges: &[Range<u32>],
    ) -> Result<(), NoRoom> {
        if let [(_, next_hop)] = ranges {
            self.chunks[chunk] = u64::from(next_hop.get()) << 32;
            return Ok(());
        }
        let first = (chunk as u32) << REST_BITS;
        let mut answers = [0u16; NETWORKS];
        let mut entries = std::mem::take(&mut compiler.entries);
        entries.clear();
        // The range in which the current network begins.
        let mut current = 0;
        for (network, answer) in answers.iter_mut().enumerate() {
            let start = first | (network as u32) << 8;
            current = range_at(ranges, current, start);
            let end = range_at(ranges, current, start | 0xff);
            *answer = ranges[current].1.get();
            if current != end {
                let mut host_range = current;
                let hosts = std::array::from_fn(|host| {
                    host_range = range_at(ranges, host_range, start | host as u32);
                    ranges[host_range].1.get()
                });
                *answer = IS_BLOCK | (entries.len() / BLOCK) as u16;
                entries.extend(self.pack_hosts(compiler, &hosts)?);
            }
            current = end;
        }
        let set = self.set_networks(compiler, chunk, &answers, &entries);
        compiler.entries = entries;
        set
    }

    /// Paints addresses of any number of chunks.
    fn paint_gap(
        &mut self,
        compiler: &mut RankCompiler,
        first: u32,
        last: u32,
        next_hop: u16,
    ) -> Result<(), NoRoom> {
        let (mut chunk, last_chunk) = (first >> REST_BITS, last >> REST_BITS);
        compiler.touched.push((chunk, last_chunk));
        if first & REST_MASK != 0 || (chunk == last_chunk && last & REST_MASK != REST_MASK) {
            self.paint(compiler, first, last.min(first | REST_MASK), next_hop)?;
            chunk += 1;
        }
        let whole = if last & REST_MASK == REST_MASK { last_chunk + 1 } else { last_chunk };
        while chunk < whole {
            self.set_whole(compiler, chunk as usize, next_hop);
            chunk += 1;
        }
        if chunk == last_chunk {
            self.paint(compiler, last & !REST_MASK, last, next_hop)?;
        }
        Ok(())
    }

    /// Paints the addresses that the route at a prefix decides.
    fn paint_prefix(
        &mut self,
        compiler: &mut RankCompiler,
        rib: &Rib<u32>,
        prefix: Ipv4Net,
    ) -> Result<(), NoRoom> {
        let (first, _) = u32::bounds(prefix);
        let next_hop = rib.next_hop_at(first, prefix.prefix_len()).get();
        let mut set = Ok(());
        rib.for_each_gap(prefix, |first, last| {
            if set.is_ok() && compiler.touched.len() < MANY_GAPS {
                set = self.paint_gap(compiler, first, last, next_hop);
            }
        });
        set
    }

    /// Compiles a chunk anew.
    fn compile_chunk(
        &mut self,
        compiler: &mut RankCompiler,
        rib: &Rib<u32>,
        chunk: u32,
    ) -> Result<(), NoRoom> {
        compiler.touched.push((chunk, chunk));
        self.set_whole(compiler, chunk as usize, 0);
        // What is shorter than a chunk and reaches into it contains it.
        let first = chunk << REST_BITS;
        let background = rib.next_hop_at(first, CHUNK_BITS - 1);
        let mut ranges = std::mem::take(&mut compiler.ranges);
        rib.flatten(first, CHUNK_BITS, background, &mut ranges);
        let set = self.set_ranges(compiler, chunk as usize, &ranges);
        compiler.ranges = ranges;
        self.note_used(compiler);
        set
    }

    fn note_used(&mut self, compiler: &RankCompiler) {
        self.hops_used = compiler.hops.used().max(NUMBERS);
        self.blocks_used = compiler.blocks.used();
    }
}

/// Gives back the list of next hops that a chunk's entry leads to, and the blocks, but not what these lead to.
fn give_back_networks(compiler: &mut RankCompiler, entry: u64, first_block: usize, blocks: usize) {
    let count = entry.count_ones_of_bitmap();
    if count > 0 {
        let header = if blocks > 0 { 2 } else { 0 };
        compiler.hops.give_back((entry >> 32) as usize - header, header + count + 1);
        compiler.blocks.give_back(first_block, blocks);
    }
}

/// Gives back the next hops that a block leads to.
fn give_back_hosts(compiler: &mut RankCompiler, block: &[u64; BLOCK]) {
    let (base, places) = hops_of_block(block);
    compiler.hops.give_back(base, places);
}

/// Counts the bits of an entry's bitmap.
trait Bitmap {
    fn count_ones_of_bitmap(self) -> usize;
}

impl Bitmap for u64 {
    fn count_ones_of_bitmap(self) -> usize {
        (self as u32).count_ones() as usize
    }
}

/// Where the next hops of a block begin, and how many they are: its entries' stand side by side.
fn hops_of_block(entries: &[u64]) -> (usize, usize) {
    let places = entries.iter().map(|entry| entry.count_ones_of_bitmap() + 1).sum();
    ((entries[0] >> 32) as usize, places)
}

/// The last of `ranges`, from `current` on, that begins at or before `address`.
fn range_at(ranges: &[Range<u32>], mut current: usize, address: u32) -> usize {
    while ranges.get(current + 1).is_some_and(|range| range.0 <= address) {
        current += 1;
    }
    current
}

fn full(prefix: Ipv4Net) -> TableError {
    let limit = "it has room for some 100,000,000 changes of next hop and for 1,048,576 networks of /24 that contain \
                 longer prefixes";
    TableError::Full { table: NAME, prefix: prefix.into(), limit }
}

pub(super) fn update(
    table: &mut Rank,
    compiler: &mut RankCompiler,
    rib: &Rib<u32>,
    prefix: Ipv4Net,
) -> Result<(), TableError> {
    update_all(table, compiler, rib, &[prefix])
}

pub(super) fn update_all(
    table: &mut Rank,
    compiler: &mut RankCompiler,
    rib: &Rib<u32>,
    prefixes: &[Ipv4Net],
) -> Result<(), TableError> {
    compiler.touched.clear();
    if compiler.hops.used() == 0 {
        compiler.hops.reset(NUMBERS);
    }
    let chunk_of = |prefix: &Ipv4Net| u32::from(prefix.network()) >> REST_BITS;
    let mut set = Ok(());
    let mut rest = prefixes;
    while let (&[prefix, ..], true) = (rest, set.is_ok() && compiler.touched.len() < MANY_GAPS) {
        packet::pulse::beat();
        let chunk = chunk_of(&prefix);
        let is_inside = |prefix: &&Ipv4Net| prefix.prefix_len() >= CHUNK_BITS && chunk_of(prefix) == chunk;
        let inside = rest.iter().take_while(is_inside).count();
        if inside > 1 {
            set = table.compile_chunk(compiler, rib, chunk);
            rest = &rest[inside..];
        } else {
            set = table.paint_prefix(compiler, rib, prefix);
            rest = &rest[1..];
        }
    }
    // Where there was no room there may be much of it in pieces that are too small.
    if set.is_err()
        || compiler.touched.len() == MANY_GAPS
        || compiler.hops.is_wasteful()
        || compiler.blocks.is_wasteful()
    {
        return rebuild(table, compiler, rib)
            .map_err(|error| prefixes.first().map_or(error, |&prefix| full(prefix)));
    }
    for &(first, last) in &compiler.touched {
        compiler.changes.note(first, last);
    }
    Ok(())
}

pub(super) fn rebuild(
    table: &mut Rank,
    compiler: &mut RankCompiler,
    rib: &Rib<u32>,
) -> Result<(), TableError> {
    table.chunks.fill(0);
    compiler.hops.reset(NUMBERS);
    compiler.blocks.reset(0);
    compiler.changes.note_everything();
    compiler.touched.clear();
    compiler.touched.push((0, CHUNKS as u32 - 1));
    let mut ranges = Vec::with_capacity(rib.len());
    rib.flatten(0, 0, NextHopIndex::NONE, &mut ranges);
    // `first` is the range in which a chunk begins.
    let mut first = 0;
    for chunk in 0..CHUNKS {
        packet::pulse::beat();
        let last_address = (chunk as u32) << REST_BITS | REST_MASK;
        let end = range_at(&ranges, first, last_address) + 1;
        table.set_ranges(compiler, chunk, &ranges[first..end]).map_err(|NoRoom| {
            let network = (chunk as u32) << REST_BITS;
            full(u32::net(network, CHUNK_BITS))
        })?;
        let next_starts_chunk = ranges.get(end).is_some_and(|range| range.0 == last_address.wrapping_add(1));
        first = if next_starts_chunk { end } else { end - 1 };
    }
    table.note_used(compiler);
    Ok(())
}

pub(super) fn catch_up(table: &mut Rank, compiler: &mut RankCompiler, ahead: &Rank) {
    (table.hops_used, table.blocks_used) = (ahead.hops_used, ahead.blocks_used);
    table.hops.reserve(ahead.hops_used);
    table.blocks.reserve(ahead.blocks_used * BLOCK);
    if compiler.changes.is_everything() {
        table.chunks.copy_from_slice(&ahead.chunks);
        table.hops[..ahead.hops_used].copy_from_slice(&ahead.hops[..ahead.hops_used]);
        let entries = ahead.blocks_used * BLOCK;
        table.blocks[..entries].copy_from_slice(&ahead.blocks[..entries]);
    }
    for &(first, last) in compiler.changes.stretches() {
        packet::pulse::beat();
        for chunk in first as usize..=last as usize {
            let entry = ahead.chunks[chunk];
            table.chunks[chunk] = entry;
            let count = entry.count_ones_of_bitmap();
            if count == 0 {
                continue;
            }
            let base = (entry >> 32) as usize;
            table.hops[base - 2..=base + count].copy_from_slice(&ahead.hops[base - 2..=base + count]);
            let (first, blocks) = ahead.blocks_of(entry);
            let blocks = first * BLOCK..(first + blocks) * BLOCK;
            table.blocks[blocks.clone()].copy_from_slice(&ahead.blocks[blocks.clone()]);
            for block in ahead.blocks[blocks].chunks(BLOCK) {
                let (base, places) = hops_of_block(block);
                table.hops[base..base + places].copy_from_slice(&ahead.hops[base..base + places]);
            }
        }
    }
    compiler.changes.clear();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LocalFib, Table};

    fn to(number: u16) -> NextHopIndex {
        NextHopIndex::new(number).unwrap()
    }

    #[test]
    fn what_is_given_back_is_used_again() {
        let mut fib = LocalFib::<u32, Rank>::new().unwrap();
        let prefix = |i: u32| Ipv4Net::new((i << 8).into(), 24 + (i % 8 == 4) as u8 * 5).unwrap();
        for i in (0..40_000).step_by(2) {
            fib.insert(prefix(i), to(1)).unwrap();
        }
        let used = fib.compiler().hops.used();
        for round in 2..12 {
            for i in (0..40_000).step_by(2) {
                fib.replace(prefix(i), to(round)).unwrap();
            }
        }
        assert!(fib.compiler().hops.used() <= used * 2, "{} after {used}", fib.compiler().hops.used());
        for i in (0..40_000).step_by(2) {
            fib.remove(prefix(i)).unwrap();
        }
        assert_eq!(fib.compiler().hops.free(), fib.compiler().hops.used() - NUMBERS);
        assert_eq!(fib.compiler().blocks.free(), fib.compiler().blocks.used());
    }

    /// The blocks of a chunk stand side by side: single free places do not help it.
    #[test]
    fn free_room_in_pieces_is_no_reason_to_refuse_a_route() {
        let (mut table, mut compiler, mut rib) = (Rank::new().unwrap(), RankCompiler::default(), Rib::new());
        for place in 0..BLOCKS {
            assert_eq!(compiler.blocks.allocate(1, BLOCKS), Some(place));
        }
        (0..BLOCKS).step_by(2).for_each(|place| compiler.blocks.give_back(place, 1));
        assert!(!compiler.blocks.is_wasteful());
        for prefix in ["10.0.0.1/32", "10.0.1.1/32"].map(|prefix| prefix.parse().unwrap()) {
            rib.insert(prefix, to(1)).unwrap();
            table.update(&mut compiler, &rib, prefix).unwrap();
        }
        assert_eq!(
            [0x0a00_0001, 0x0a00_0101, 0x0a00_0102].map(|address| table.lookup(address).get()),
            [1, 1, 0]
        );
        assert_eq!((compiler.blocks.used(), compiler.changes.is_everything()), (2, true));
    }

    #[test]
    fn a_route_with_very_many_gaps_is_compiled_with_everything() {
        let mut rib = Rib::<u32>::new();
        for i in 0..MANY_GAPS as u32 + 10 {
            rib.insert(Ipv4Net::new((i << 9).into(), 24).unwrap(), to(1)).unwrap();
        }
        let mut fib = LocalFib::<u32, Rank>::build(rib).unwrap();
        fib.insert("0.0.0.0/0".parse().unwrap(), to(2)).unwrap();
        for i in [0, 7, MANY_GAPS as u32 + 9] {
            assert_eq!((fib.lookup(i << 9).get(), fib.lookup(i << 9 | 256).get()), (1, 2));
        }
        assert_eq!(fib.lookup(u32::MAX).get(), 2);
    }

    #[test]
    fn a_chunk_full_of_host_routes() {
        let mut rib = Rib::<u32>::new();
        for i in 0..1 << 13 {
            rib.insert(Ipv4Net::new((0x0a00_0000u32 + i).into(), 32).unwrap(), to(i as u16 + 1)).unwrap();
        }
        let mut fib = LocalFib::<u32, Rank>::build(rib).unwrap();
        fib.replace("10.0.31.255/32".parse().unwrap(), to(9)).unwrap();
        for i in 0..(1 << 13) - 1 {
            assert_eq!(fib.lookup(0x0a00_0000 + i).get(), i as u16 + 1);
        }
        assert_eq!(fib.lookup(0x0a00_1fff).get(), 9);
        assert_eq!(fib.lookup(0x0a00_0000 - 1), NextHopIndex::NONE);
        assert_eq!(fib.lookup(0x0a00_2000), NextHopIndex::NONE);
    }

    #[test]
    fn a_processor_without_bit_counting_answers_alike() {
        let mut rib = Rib::<u32>::new();
        for i in 0..2_000u32 {
            let length = 12 + (i % 21) as u8;
            let network = i.wrapping_mul(2_654_435_761) & u32::mask(length);
            rib.replace(Ipv4Net::new(network.into(), length).unwrap(), to(i as u16)).unwrap();
        }
        let mut compiler = RankCompiler::default();
        let mut table = Rank::new().unwrap();
        table.rebuild(&mut compiler, &rib).unwrap();
        let addresses: Vec<u32> = (0..100_000u32).map(|i| i.wrapping_mul(2_654_435_761 >> 3)).collect();
        let mut fast = vec![NextHopIndex::NONE; addresses.len()];
        let mut plain = fast.clone();
        table.lookup_batch(&addresses, &mut fast);
        let table = table.without_popcnt();
        table.lookup_batch(&addresses, &mut plain);
        assert_eq!(fast, plain);
        assert!(addresses.iter().zip(&plain).all(|(&address, &answer)| table.lookup(address) == answer));
    }

    #[test]
    fn routes_that_fill_chunks_need_no_lists() {
        let mut rib = Rib::<u32>::new();
        for i in 0..64u32 {
            rib.insert(Ipv4Net::new((i << 13).into(), 19).unwrap(), to(i as u16 + 1)).unwrap();
        }
        let fib = LocalFib::<u32, Rank>::build(rib).unwrap();
        assert_eq!(fib.compiler().hops.used(), NUMBERS);
        assert_eq!(fib.lookup(63 << 13).get(), 64);
        assert_eq!(fib.lookup(64 << 13), NextHopIndex::NONE);
    }
}
