//! Changing a range tree.
//!
//! A *slot* is a place that holds a word: one of `middle`, or one of a node. It is responsible for an interval of
//! addresses, and what its word leads to can be compiled anew without anything around it changing. So a change of a
//! prefix looks for the smallest slot that contains the prefix, and compiles that from the ranges in its interval: those
//! that it has, painted over with the new next hop, when no more-specific route lies inside the prefix, as is usual; otherwise
//! those of the RIB.
//!
//! # Why the tree stays shallow
//!
//! A slot above `height` levels of nodes takes at most as many entries as that many levels hold when their nodes are
//! filled to twelve, and the lowest to sixteen. When there are more, the slot around it is compiled instead, where
//! the same holds; only the slot in `middle` takes what comes and gets a level more. Entries are counted and not ranges,
//! because an end between two keys takes an entry more: otherwise each change could add a level. A slot that comes down to
//! one range leaves the joining of equal neighbours to the slot around it in the same way.

use super::{FANOUT, GO_ON, MIDDLE, MIDDLES, NAME, NEXT_STAGE, NODES, NUMBER, Node, RangeTree, key};
use crate::changes::Changes;
use crate::compare::Key;
use crate::rib::Range;
use crate::{NextHopIndex, Rib, TableError};
use ipnet::Ipv6Net;
use packet::Family;

/// Ranges in a node that is newly filled.
const FILL: usize = 12;
/// Changes leave no more nodes than this in use. Compiling the same routes anew can take more, because it does not fill
/// nodes, but never more than twice as many; so a change that is refused can always be taken back.
const NODES_FOR_CHANGES: usize = NODES / 2;
/// Bits of an address behind a slot of `middle`, and behind one of `top`.
const REST_BITS: u32 = 104;
const TOP_REST_BITS: u32 = 112;
/// Bits of an address behind the key of each stage.
const GRANULE_BITS: [u32; 4] = [72, 40, 8, 0];

/// What changes a [`RangeTree`].
#[derive(Debug, Default)]
pub struct RangeTreeCompiler {
    nodes_free: Vec<u32>,
    middles_free: Vec<u32>,
    changed_tops: Changes,
    changed_middles: Changes,
    changed_nodes: Changes,
    /// So many nodes may be in use.
    most_nodes: usize,
    /// Working memory.
    ranges: Vec<Range<u128>>,
    old: Vec<Range<u128>>,
}

/// Something ran out.
#[derive(Debug)]
struct NoRoom;

/// A range in one stage: its last key and its word.
type Entry = (u32, u32);

#[derive(Clone, Copy, Debug)]
enum Place {
    /// A word of `middles`.
    Middle(usize),
    /// A word of a node.
    Node(u32, usize),
}

/// A place and the addresses it is responsible for.
#[derive(Clone, Copy, Debug)]
struct Slot {
    place: Place,
    first: u128,
    last: u128,
    stage: usize,
}

impl Slot {
    /// Whether it is responsible for no more than one key of its stage.
    fn is_granule(&self) -> bool {
        self.first >> GRANULE_BITS[self.stage] == self.last >> GRANULE_BITS[self.stage]
    }
}

/// The bits of an address that the key of a stage leaves open.
fn granule_mask(stage: usize) -> u128 {
    (1 << GRANULE_BITS[stage]) - 1
}

/// The last address that has this key in its stage, in the part of the address space in which `inside` lies.
fn last_of_key(inside: u128, stage: usize, end: u32) -> u128 {
    if stage == 3 {
        return (inside & !0xff) | u128::from(end >> 24);
    }
    let bits = GRANULE_BITS[stage];
    let stage_mask = (1u128 << (bits + 32)) - 1;
    (inside & !stage_mask) | u128::from(end) << bits | granule_mask(stage)
}

/// The most entries that `height` levels of nodes take.
fn capacity(height: usize) -> usize {
    match height {
        0 => 1,
        _ => FANOUT * FILL.pow(height as u32 - 1),
    }
}

/// What becomes one entry of a node: a range, as far as it has keys of the stage to itself, or a key with several ranges,
/// which needs the next stage.
struct Piece<'a> {
    last: u128,
    inner: &'a [Range<u128>],
}

/// The pieces of the addresses up to `last`. The first of `ranges` contains `start`, where the next piece begins.
struct Pieces<'a> {
    ranges: &'a [Range<u128>],
    start: u128,
    last: u128,
    granule_mask: u128,
}

impl<'a> Pieces<'a> {
    fn new(ranges: &'a [Range<u128>], start: u128, last: u128, stage: usize) -> Pieces<'a> {
        Pieces { ranges, start, last, granule_mask: granule_mask(stage) }
    }

    fn end_of(&self, range: usize) -> u128 {
        self.ranges.get(range + 1).map_or(self.last, |next| next.0 - 1)
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        if self.ranges.is_empty() {
            return None;
        }
        let (end, mask) = (self.end_of(0), self.granule_mask);
        // If the range ends between two keys, the key of its end comes next, with whatever else is in it.
        let whole_keys_end = if end & mask == mask { Some(end) } else { (end & !mask).checked_sub(1) };
        let (last, ends_of) = match whole_keys_end.filter(|&end| end >= self.start) {
            Some(whole_keys_end) => (whole_keys_end, 0),
            None => {
                let granule_last = end | mask;
                let further = self.ranges[1..].iter().take_while(|range| range.0 <= granule_last);
                (granule_last, further.count())
            }
        };
        let piece = Piece { last, inner: &self.ranges[..=ends_of] };
        // The last of these ranges goes on behind the piece, or not.
        let used = if self.end_of(ends_of) > last { ends_of } else { ends_of + 1 };
        self.ranges = &self.ranges[used..];
        self.start = last.wrapping_add(1);
        Some(piece)
    }
}

impl RangeTree {
    fn word_at(&self, place: Place) -> u32 {
        match place {
            Place::Middle(at) => self.middles[at],
            Place::Node(number, slot) => self.nodes[number as usize].words[slot],
        }
    }

    /// Puts a word in place of another and gives back what that led to.
    fn put(&mut self, compiler: &mut RangeTreeCompiler, place: Place, word: u32) {
        let before = match place {
            Place::Middle(at) => {
                compiler.changed_middles.note(at as u32, at as u32);
                std::mem::replace(&mut self.middles[at], word)
            }
            Place::Node(number, slot) => {
                compiler.changed_nodes.note(number, number);
                std::mem::replace(&mut self.nodes[number as usize].words[slot], word)
            }
        };
        self.give_back(compiler, before);
    }

    fn give_back(&self, compiler: &mut RangeTreeCompiler, word: u32) {
        if word & GO_ON == 0 {
            return;
        }
        let number = word & NUMBER;
        compiler.nodes_free.push(number);
        // Places that are not in use hold next hops.
        for &word in &self.nodes[number as usize].words {
            self.give_back(compiler, word);
        }
    }

    fn new_node(&mut self, compiler: &mut RangeTreeCompiler, node: Node) -> Result<u32, NoRoom> {
        if self.nodes_used - compiler.nodes_free.len() >= compiler.most_nodes {
            return Err(NoRoom);
        }
        let number = match compiler.nodes_free.pop() {
            Some(number) => number,
            None if self.nodes_used < NODES => {
                self.nodes_used += 1;
                self.nodes_used as u32 - 1
            }
            None => return Err(NoRoom),
        };
        self.nodes.reserve(number as usize + 1);
        self.nodes[number as usize] = node;
        compiler.changed_nodes.note(number, number);
        Ok(GO_ON | number)
    }

    /// The word for some ranges of a stage.
    fn build(&mut self, compiler: &mut RangeTreeCompiler, entries: &[Entry]) -> Result<u32, NoRoom> {
        if let [(_, word)] = entries {
            return Ok(*word);
        }
        let mut node = Node { ends: [u32::MAX; FANOUT], words: [0; FANOUT] };
        let count = if entries.len() <= FANOUT {
            for (place, &(end, word)) in entries.iter().enumerate() {
                (node.ends[place], node.words[place]) = (end, word);
            }
            entries.len()
        } else {
            let mut of_child = FILL;
            while of_child * FANOUT < entries.len() {
                of_child *= FILL;
            }
            let children = entries.len().div_ceil(of_child);
            for place in 0..children {
                let from = entries.len() * place / children;
                let to = entries.len() * (place + 1) / children;
                node.ends[place] = entries[to - 1].0;
                node.words[place] = self.build(compiler, &entries[from..to])?;
            }
            children
        };
        node.ends[count - 1] = u32::MAX;
        self.new_node(compiler, node)
    }

    /// The word for the addresses `first` to `last`, which lie in one part of the address space for this stage and
    /// begin and end with a key of it. The first of `ranges` contains `first`, and no other begins before it.
    fn compile_stage(
        &mut self,
        compiler: &mut RangeTreeCompiler,
        ranges: &[Range<u128>],
        first: u128,
        last: u128,
        stage: usize,
    ) -> Result<u32, NoRoom> {
        if let [(_, next_hop)] = ranges {
            return Ok(u32::from(next_hop.get()));
        }
        let mut entries: Vec<Entry> = Vec::with_capacity(ranges.len() + 2);
        for piece in Pieces::new(ranges, first, last, stage) {
            let word = match piece.inner {
                [(_, next_hop)] => u32::from(next_hop.get()),
                inner => {
                    let granule = piece.last & !granule_mask(stage);
                    NEXT_STAGE | self.compile_stage(compiler, inner, granule, piece.last, stage + 1)?
                }
            };
            entries.push((key(piece.last, stage as u32), word));
        }
        self.build(compiler, &entries)
    }

    /// Compiles what a slot leads to.
    fn compile_slot(
        &mut self,
        compiler: &mut RangeTreeCompiler,
        slot: Slot,
        ranges: &[Range<u128>],
    ) -> Result<(), NoRoom> {
        let word = self.compile_stage(compiler, ranges, slot.first, slot.last, slot.stage)?;
        self.put(compiler, slot.place, word);
        Ok(())
    }

    /// The block of `middles` for an address, made if there is none.
    fn block(&mut self, compiler: &mut RangeTreeCompiler, address: u128) -> usize {
        let top = (address >> TOP_REST_BITS) as usize;
        let word = self.top[top];
        if word & GO_ON != 0 {
            return (word & NUMBER) as usize;
        }
        // There are as many blocks as words in `top`.
        let block = compiler.middles_free.pop().map_or(self.middles_used, |block| block as usize);
        self.middles_used = self.middles_used.max(block + 1);
        let words = block * MIDDLE..(block + 1) * MIDDLE;
        self.middles.reserve(words.end);
        compiler.changed_middles.note(words.start as u32, words.end as u32 - 1);
        self.middles[words].fill(word);
        self.top[top] = GO_ON | block as u32;
        compiler.changed_tops.note(top as u32, top as u32);
        block
    }

    fn middle_slot(&mut self, compiler: &mut RangeTreeCompiler, address: u128) -> Slot {
        let block = self.block(compiler, address);
        let at = block * MIDDLE + (address >> REST_BITS) as usize % MIDDLE;
        let (first, last) = u128::bounds(u128::net(address & u128::mask(24), 24));
        Slot { place: Place::Middle(at), first, last, stage: 0 }
    }

    /// Gives a whole /16 one next hop.
    fn set_top(&mut self, compiler: &mut RangeTreeCompiler, top: usize, word: u32) {
        let before = std::mem::replace(&mut self.top[top], word);
        if before & GO_ON != 0 {
            let block = before & NUMBER;
            let words = block as usize * MIDDLE..(block as usize + 1) * MIDDLE;
            for &word in &self.middles[words.clone()] {
                self.give_back(compiler, word);
            }
            self.middles[words].fill(0);
            compiler.middles_free.push(block);
        }
        compiler.changed_tops.note(top as u32, top as u32);
    }

    /// Gives the /16 of an address a single word if all words of its block are the same next hop.
    fn join_top(&mut self, compiler: &mut RangeTreeCompiler, address: u128) {
        let top = (address >> TOP_REST_BITS) as usize;
        let word = self.top[top];
        if word & GO_ON != 0 {
            let block = (word & NUMBER) as usize;
            let words = &self.middles[block * MIDDLE..(block + 1) * MIDDLE];
            let first = words[0];
            if first & GO_ON == 0 && words.iter().all(|&word| word == first) {
                self.set_top(compiler, top, first);
            }
        }
    }

    /// The slots that are responsible for an address, from the one in `middles` down.
    fn path(&mut self, compiler: &mut RangeTreeCompiler, address: u128) -> Vec<Slot> {
        let mut path = vec![self.middle_slot(compiler, address)];
        loop {
            let slot = path[path.len() - 1];
            let word = self.word_at(slot.place);
            if word & GO_ON == 0 {
                return path;
            }
            let stage = slot.stage + usize::from(word & NEXT_STAGE != 0);
            let node = &self.nodes[(word & NUMBER) as usize];
            let at = u32::below(&node.ends, key(address, stage as u32));
            let first = match at {
                0 => slot.first,
                _ => last_of_key(slot.first, stage, node.ends[at - 1]) + 1,
            };
            let last = match node.ends[at] {
                u32::MAX => slot.last,
                end => last_of_key(slot.first, stage, end),
            };
            path.push(Slot { place: Place::Node(word & NUMBER, at), first, last, stage });
        }
    }

    /// The ranges of a slot as they are when `first` to `last` are painted over. `old` is working memory.
    fn painted(
        &self,
        slot: Slot,
        (first, last, next_hop): (u128, u128, NextHopIndex),
        old: &mut Vec<Range<u128>>,
        ranges: &mut Vec<Range<u128>>,
    ) {
        old.clear();
        visit_word(self, self.word_at(slot.place), slot.stage, slot.first, &mut |start, has| {
            old.push((start, has))
        });
        ranges.clear();
        let mut begin = |start, next_hop| {
            if ranges.last().is_none_or(|last| last.1 != next_hop) {
                ranges.push((start, next_hop));
            }
        };
        let before = old.partition_point(|range| range.0 < first);
        old[..before].iter().for_each(|&(start, has)| begin(start, has));
        begin(first, next_hop);
        if last < slot.last {
            // The slot's first range begins with the slot.
            let behind = old.partition_point(|range| range.0 <= last + 1);
            begin(last + 1, old[behind - 1].1);
            old[behind..].iter().for_each(|&(start, has)| begin(start, has));
        }
    }

    /// A prefix of at least 24 bits.
    fn update_long(
        &mut self,
        compiler: &mut RangeTreeCompiler,
        rib: &Rib<u128>,
        prefix: Ipv6Net,
    ) -> Result<(), NoRoom> {
        let (first, last) = u128::bounds(prefix);
        let path = self.path(compiler, first);
        let contains = |slot: &Slot| slot.first <= first && last <= slot.last;
        let mut at = path.iter().rposition(contains).expect("a /24 contains its prefixes");
        let mut ranges = std::mem::take(&mut compiler.ranges);
        let length = prefix.prefix_len();
        let paint = (!rib.has_longer_inside(first, length)).then(|| rib.next_hop_at(first, length));
        loop {
            let slot = path[at];
            match paint {
                Some(next_hop) => self.painted(slot, (first, last, next_hop), &mut compiler.old, &mut ranges),
                None => rib.flatten_interval(slot.first, slot.last, &mut ranges),
            }
            let height = path[at + 1..].iter().take_while(|below| below.stage == slot.stage).count();
            let entries = || Pieces::new(&ranges, slot.first, slot.last, slot.stage).count();
            let fits = ranges.len() > 1 && (slot.is_granule() || entries() <= capacity(height));
            if at == 0 || fits {
                break;
            }
            at -= 1;
        }
        let compiled = self.compile_slot(compiler, path[at], &ranges);
        compiler.ranges = ranges;
        if at == 0 {
            self.join_top(compiler, first);
        }
        compiled
    }

    /// A prefix of fewer bits.
    fn update_short(
        &mut self,
        compiler: &mut RangeTreeCompiler,
        rib: &Rib<u128>,
        prefix: Ipv6Net,
    ) -> Result<(), NoRoom> {
        let word = u32::from(rib.next_hop_at(u128::bounds(prefix).0, prefix.prefix_len()).get());
        let mut compiled = None;
        let mut set = Ok(());
        let mut ranges = std::mem::take(&mut compiler.ranges);
        rib.for_each_gap(prefix, |first, last| {
            let mut number = first >> REST_BITS;
            while number <= last >> REST_BITS && set.is_ok() {
                let (begin, end) = u128::bounds(u128::net(number << REST_BITS, 24));
                let end_of_top = begin | ((1 << TOP_REST_BITS) - 1);
                if first <= begin && last >= end_of_top && number.is_multiple_of(MIDDLE as u128) {
                    self.set_top(compiler, (begin >> TOP_REST_BITS) as usize, word);
                    number += MIDDLE as u128;
                    continue;
                }
                let slot = self.middle_slot(compiler, begin);
                if first <= begin && last >= end {
                    self.put(compiler, slot.place, word);
                } else if compiled != Some(number) {
                    rib.flatten_interval(begin, end, &mut ranges);
                    set = self.compile_slot(compiler, slot, &ranges);
                    compiled = Some(number);
                }
                number += 1;
                if number > last >> REST_BITS || number.is_multiple_of(MIDDLE as u128) {
                    self.join_top(compiler, begin);
                }
            }
        });
        compiler.ranges = ranges;
        set
    }
}

fn full(prefix: Ipv6Net) -> TableError {
    let limit = "it has room for 8,388,608 nodes: 100,000,000 changes of next hop, 2,000,000 scattered /128s";
    TableError::Full { table: NAME, prefix: prefix.into(), limit }
}

pub(super) fn update(
    table: &mut RangeTree,
    compiler: &mut RangeTreeCompiler,
    rib: &Rib<u128>,
    prefix: Ipv6Net,
) -> Result<(), TableError> {
    compiler.most_nodes = NODES_FOR_CHANGES;
    let set = if prefix.prefix_len() >= 24 {
        table.update_long(compiler, rib, prefix)
    } else {
        table.update_short(compiler, rib, prefix)
    };
    // Nodes that are not full take more room than compiling anew does, and so does building before giving back.
    set.or_else(|NoRoom| rebuild(table, compiler, rib).map_err(|_| full(prefix)))
}

/// Whether compiling these routes takes no more nodes than changes may leave in use.
///
/// A node has at least two entries, so a stage takes fewer nodes than entries. The two ends of a route make an entry more each in
/// the stage in which its length ends, and two in those before, where an end lies between two keys.
pub(super) fn surely_fits(rib: &Rib<u128>) -> bool {
    let deeper: usize =
        GRANULE_BITS[..3].iter().map(|bits| rib.longer_than(u128::BITS as u8 - *bits as u8)).sum();
    2 * rib.len() + 4 * deeper <= NODES_FOR_CHANGES
}

pub(super) fn rebuild(
    table: &mut RangeTree,
    compiler: &mut RangeTreeCompiler,
    rib: &Rib<u128>,
) -> Result<(), TableError> {
    compiler.most_nodes = NODES;
    table.top.fill(0);
    (table.nodes_used, table.middles_used) = (0, 0);
    compiler.nodes_free.clear();
    compiler.middles_free.clear();
    let mut ranges = Vec::with_capacity(rib.len());
    rib.flatten(0, 0, NextHopIndex::NONE, &mut ranges);
    let mut current = 0;
    for top in 0..MIDDLES {
        let first = (top as u128) << TOP_REST_BITS;
        let last = first | ((1 << TOP_REST_BITS) - 1);
        current = range_at(&ranges, current, first);
        if range_at(&ranges, current, last) == current {
            table.top[top] = u32::from(ranges[current].1.get());
            continue;
        }
        packet::pulse::beat();
        for number in 0..MIDDLE {
            let first = first | (number as u128) << REST_BITS;
            let slot = table.middle_slot(compiler, first);
            current = range_at(&ranges, current, first);
            let end = range_at(&ranges, current, slot.last);
            let word = table.compile_stage(compiler, &ranges[current..=end], slot.first, slot.last, 0);
            let word = word.map_err(|NoRoom| full(u128::net(first, 24)))?;
            // What stood there is from before and leads nowhere.
            if let Place::Middle(at) = slot.place {
                table.middles[at] = word;
            }
            current = end;
        }
    }
    compiler.changed_tops.note_everything();
    compiler.changed_middles.note_everything();
    compiler.changed_nodes.note_everything();
    Ok(())
}

/// All ranges in the order of their addresses.
pub(super) fn for_each_range(table: &RangeTree, visit: &mut dyn FnMut(u128, NextHopIndex)) {
    for (top, &word) in table.top.iter().enumerate() {
        let first = (top as u128) << TOP_REST_BITS;
        if word & GO_ON == 0 {
            visit(first, NextHopIndex::from_entry(word as u16));
            continue;
        }
        let block = (word & NUMBER) as usize;
        for (number, &word) in table.middles[block * MIDDLE..(block + 1) * MIDDLE].iter().enumerate() {
            visit_word(table, word, 0, first | (number as u128) << REST_BITS, visit);
        }
    }
}

/// The ranges that a word leads to; `first` is the first address that it is for, `stage` that of its slot.
fn visit_word(
    table: &RangeTree,
    word: u32,
    stage: usize,
    first: u128,
    visit: &mut dyn FnMut(u128, NextHopIndex),
) {
    if word & GO_ON == 0 {
        return visit(first, NextHopIndex::from_entry(word as u16));
    }
    let stage = stage + usize::from(word & NEXT_STAGE != 0);
    let node = &table.nodes[(word & NUMBER) as usize];
    let mut start = first;
    for (&end, &word) in node.ends.iter().zip(&node.words) {
        visit_word(table, word, stage, start, visit);
        if end == u32::MAX {
            return;
        }
        start = last_of_key(first, stage, end) + 1;
    }
}

/// The last of `ranges`, from `current` on, that begins at or before `address`.
fn range_at(ranges: &[Range<u128>], mut current: usize, address: u128) -> usize {
    while ranges.get(current + 1).is_some_and(|range| range.0 <= address) {
        current += 1;
    }
    current
}

/// Copies what changed from one array to the other.
fn follow<T: Copy>(changes: &mut Changes, behind: &mut [T], ahead: &[T], used: usize) {
    if changes.is_everything() {
        behind[..used].copy_from_slice(&ahead[..used]);
    }
    for &(first, last) in changes.stretches() {
        let stretch = first as usize..=last as usize;
        behind[stretch.clone()].copy_from_slice(&ahead[stretch]);
    }
    changes.clear();
}

pub(super) fn catch_up(table: &mut RangeTree, compiler: &mut RangeTreeCompiler, ahead: &RangeTree) {
    (table.nodes_used, table.middles_used) = (ahead.nodes_used, ahead.middles_used);
    table.middles.reserve(ahead.middles_used * MIDDLE);
    table.nodes.reserve(ahead.nodes_used);
    follow(&mut compiler.changed_tops, &mut table.top, &ahead.top, MIDDLES);
    follow(&mut compiler.changed_middles, &mut table.middles, &ahead.middles, ahead.middles_used * MIDDLE);
    follow(&mut compiler.changed_nodes, &mut table.nodes, &ahead.nodes, ahead.nodes_used);
}

#[cfg(test)]
#[path = "compile_tests.rs"]
mod tests;
