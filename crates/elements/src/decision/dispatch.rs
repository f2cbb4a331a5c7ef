//! The form of a program that runs.
//!
//! Steps that test the same bits of the same word one after the other (a list of ethertypes, of
//! ports, of hosts) become one node: one load, then a short scan or, past [`MOST_SCANNED`] values,
//! a hash table. Two steps on neighbouring words that fit in one unaligned load become one.
//!
//! There is no length check before the walk. Safe code has to bound each load anyway, and that
//! branch is always predicted for packets that are long enough; its cold side applies the rules for
//! short packets, so that one loop serves both.

use super::{Base, Jump, Step};

/// Values of one node that are compared one by one; more go into a hash table.
const MOST_SCANNED: usize = 6;

/// Length of an Ethernet header: how far before the network header the link header starts.
pub(super) const ETHER_HEADER: usize = 14;

/// An origin that no packet reaches; leaves room to add any step's offset.
const OUT_OF_REACH: usize = isize::MAX as usize;

/// A [`Jump`] in one word: a node's index, or a decision if the top bit is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Target(u32);

impl Target {
    /// The output, for a target that is a decision; `None` drops.
    #[inline(always)]
    fn decision(self) -> Option<u32> {
        if self == DROP { None } else { Some(self.0 & !DECIDED) }
    }
}

const DECIDED: u32 = 1 << 31;
const DROP: Target = Target(u32::MAX);
/// Marks a free slot of a hash table.
const FREE: Target = Target(u32::MAX - 1);

#[derive(Clone, Copy, Debug)]
enum Shape {
    /// Compare with `value`.
    One,
    /// Compare with each of `cases[first..end]`.
    Scan,
    /// Look up in the table `cases[first..end]`, whose length is a power of two.
    Hash,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    base: Base,
    shape: Shape,
    need: u8,
    offset: u16,
    mask: u32,
    value: u32,
    hit: Target,
    miss: Target,
    short: Target,
    first: u32,
    end: u32,
}

/// One comparison at the entry that decides at once: `Classifier(12/0806 20/0001, ..., 12/0800, -)` has one
/// for IPv4. Tried before the walk, because most packets of most configurations end here.
#[derive(Clone, Copy, Debug)]
pub struct Shortcut {
    /// Place of the four bytes that are compared, from the start of the data.
    pub offset: usize,
    /// The bits that count.
    pub mask: u32,
    /// What they are.
    pub value: u32,
    /// The output, or nothing for a packet to drop.
    pub decision: Option<u32>,
}

#[derive(Clone, Debug)]
pub(super) struct Dispatch {
    entry: Target,
    pub(super) shortcut: Option<Shortcut>,
    /// Another case of the same comparison.
    pub(super) second: Option<Shortcut>,
    nodes: Vec<Node>,
    cases: Vec<(u32, Target)>,
    depth: usize,
}

impl Dispatch {
    #[inline]
    pub(super) fn run(&self, data: &[u8], network: usize, transport: usize) -> Option<u32> {
        if let Some(shortcut) = &self.shortcut
            && let Some(bytes) = data.get(shortcut.offset..).and_then(<[u8]>::first_chunk::<4>)
            && u32::from_be_bytes(*bytes) & shortcut.mask == shortcut.value
        {
            return shortcut.decision;
        }
        self.walk(data, network, transport, || ())
    }

    /// Of the cases of the entry node that decide at once, the one of this number.
    fn find_shortcut(&self, number: usize) -> Option<Shortcut> {
        let node = self.nodes.get(self.entry.0 as usize).filter(|node| matches!(node.base, Base::Data))?;
        let (value, target) = match node.shape {
            Shape::One if number == 0 => (node.value, node.hit),
            Shape::One => return None,
            Shape::Scan | Shape::Hash => {
                let cases = &self.cases[node.first as usize..node.end as usize];
                let decided = |&&(_, target): &&(u32, Target)| target != FREE && target.0 >= DECIDED;
                *cases.iter().filter(decided).nth(number)?
            }
        };
        (target.0 >= DECIDED).then(|| Shortcut {
            offset: usize::from(node.offset),
            mask: node.mask,
            value,
            decision: target.decision(),
        })
    }

    /// The depth, where `heads` are the first steps of the nodes; jumps go to later steps only.
    fn measure(&self, heads: &[usize]) -> usize {
        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        order.sort_unstable_by_key(|&node| std::cmp::Reverse(heads[node]));
        let mut depths = vec![0; self.nodes.len()];
        for number in order {
            let node = &self.nodes[number];
            let cases = &self.cases[node.first as usize..node.end as usize];
            let targets = cases.iter().map(|&(_, target)| target).chain([node.hit, node.miss, node.short]);
            let behind = targets.filter(|target| target.0 < DECIDED).map(|target| depths[target.0 as usize]);
            depths[number] = 1 + behind.max().unwrap_or(0);
        }
        depths.iter().copied().max().unwrap_or(0)
    }

    #[inline(always)]
    fn walk(&self, data: &[u8], network: usize, transport: usize, mut on_load: impl FnMut()) -> Option<u32> {
        let network = network.min(OUT_OF_REACH);
        let link = if network >= ETHER_HEADER { network - ETHER_HEADER } else { OUT_OF_REACH };
        let origins = [0, link, network, transport.min(OUT_OF_REACH)];
        let mut at = self.entry;
        while at.0 < DECIDED {
            let node = &self.nodes[at.0 as usize];
            on_load();
            let position = origins[node.base as usize] + usize::from(node.offset);
            let word = match data.get(position..).and_then(<[u8]>::first_chunk::<4>) {
                Some(bytes) => u32::from_be_bytes(*bytes),
                None => match last_word(data, position, node.need) {
                    Some(word) => word,
                    None => {
                        at = node.short;
                        continue;
                    }
                },
            };
            let word = word & node.mask;
            at = match node.shape {
                Shape::One if word == node.value => node.hit,
                Shape::One => node.miss,
                Shape::Scan => self.scan(node, word),
                Shape::Hash => self.look_up(node, word),
            };
        }
        at.decision()
    }

    #[inline]
    fn scan(&self, node: &Node, word: u32) -> Target {
        for &(value, target) in &self.cases[node.first as usize..node.end as usize] {
            if value == word {
                return target;
            }
        }
        node.miss
    }

    #[inline]
    fn look_up(&self, node: &Node, word: u32) -> Target {
        let table = &self.cases[node.first as usize..node.end as usize];
        let last = table.len() - 1;
        let mut slot = hash(word) & last;
        // Ends at the latest at a free slot: tables are at most half full.
        loop {
            let (value, target) = table[slot];
            if target == FREE {
                return node.miss;
            }
            if value == word {
                return target;
            }
            slot = (slot + 1) & last;
        }
    }

    /// `steps` must be a directed acyclic graph; its jumps only go forward.
    pub(super) fn compile(entry: Jump, steps: &[Step]) -> Dispatch {
        let mut compiler = Compiler {
            steps,
            node_of: vec![None; steps.len()],
            waiting: Vec::new(),
            node_count: 0,
            // Entering a long list at many places would copy its tail each time; past this many
            // cases, tails are jumped to instead.
            cases_left: steps.len() * 4 + 64,
        };
        let mut dispatch = Dispatch {
            entry: DROP,
            shortcut: None,
            second: None,
            nodes: Vec::new(),
            cases: Vec::new(),
            depth: 0,
        };
        dispatch.entry = compiler.target(entry);
        let mut next = 0;
        while next < compiler.waiting.len() {
            let index = compiler.waiting[next];
            let node = compiler.node(index, &mut dispatch.cases);
            dispatch.nodes.push(node);
            next += 1;
        }
        dispatch.depth = dispatch.measure(&compiler.waiting);
        dispatch.shortcut = dispatch.find_shortcut(0);
        dispatch.second = dispatch.find_shortcut(1);
        dispatch
    }

    /// Nodes on the longest way.
    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    /// How many words are loaded to decide about a packet.
    #[cfg(test)]
    pub(super) fn loads(&self, data: &[u8], network: usize, transport: usize) -> usize {
        let mut loads = 0;
        self.walk(data, network, transport, || loads += 1);
        loads
    }
}

/// The word at `position` where fewer than four bytes are left but at least `need`, the rest zero.
/// No bit of the rest is in a mask, as `need` covers the mask.
#[cold]
#[inline(never)]
pub(super) fn last_word(data: &[u8], position: usize, need: u8) -> Option<u32> {
    let rest = data.get(position..).unwrap_or(&[]);
    if rest.len() < usize::from(need) {
        return None;
    }
    let mut word = [0; 4];
    for (to, from) in word.iter_mut().zip(rest) {
        *to = *from;
    }
    Some(u32::from_be_bytes(word))
}

/// Multiplicative hashing (Knuth, The Art of Computer Programming 6.4): the product's upper half,
/// since a mask may leave only high bits or only low bits to differ.
#[inline]
fn hash(word: u32) -> usize {
    (u64::from(word).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize
}

struct Compiler<'a> {
    steps: &'a [Step],
    node_of: Vec<Option<u32>>,
    /// Steps that a node has been promised to, in the order of nodes.
    waiting: Vec<usize>,
    node_count: u32,
    cases_left: usize,
}

impl Compiler<'_> {
    fn target(&mut self, jump: Jump) -> Target {
        match jump {
            Jump::Output(output) => Target(output | DECIDED),
            Jump::Drop => DROP,
            Jump::Step(index) => {
                let node = self.node_of[index as usize].unwrap_or_else(|| {
                    self.waiting.push(index as usize);
                    self.node_count += 1;
                    self.node_count - 1
                });
                self.node_of[index as usize] = Some(node);
                Target(node)
            }
        }
    }

    fn node(&mut self, index: usize, cases: &mut Vec<(u32, Target)>) -> Node {
        let head = self.steps[index];
        let mut list = vec![(head.value, head.yes)];
        let mut miss = head.no;
        while let Some(next) = miss.step().map(|i| self.steps[i]) {
            let listed = next.same_word(&head) && next.mask == head.mask && next.need == head.need;
            if !listed || head.short_yes || next.short_yes || self.cases_left == 0 {
                break;
            }
            // A value that is there already never gets this far.
            if list.len() > MOST_SCANNED || list.iter().all(|&(value, _)| value != next.value) {
                list.push((next.value, next.yes));
                self.cases_left -= 1;
            }
            miss = next.no;
        }
        if list.len() == 1 {
            return self.single(&head);
        }
        let (origin, shift) = origin_shift(&head);
        let short = if head.short_yes { head.yes } else { miss };
        let mut node = Node {
            base: head.base,
            shape: Shape::Scan,
            need: head.need - (shift / 8) as u8,
            offset: origin,
            mask: head.mask << shift,
            value: 0,
            hit: DROP,
            miss: self.target(miss),
            short: self.target(short),
            first: cases.len() as u32,
            end: 0,
        };
        if list.len() <= MOST_SCANNED {
            for (value, jump) in list {
                cases.push((value << shift, self.target(jump)));
            }
        } else {
            node.shape = Shape::Hash;
            let size = (list.len() * 2).next_power_of_two();
            let mut table = vec![(0, FREE); size];
            for (value, jump) in list {
                let value = value << shift;
                let mut slot = hash(value) & (size - 1);
                while table[slot].1 != FREE && table[slot].0 != value {
                    slot = (slot + 1) & (size - 1);
                }
                // First match first: a value that is there already stays.
                if table[slot].1 == FREE {
                    table[slot] = (value, self.target(jump));
                }
            }
            cases.extend(table);
        }
        node.end = cases.len() as u32;
        node
    }

    fn single(&mut self, head: &Step) -> Node {
        let step = match head.yes.step().map(|i| self.steps[i]) {
            Some(next) => join_unaligned(head, &next).unwrap_or(*head),
            None => *head,
        };
        let (offset, shift) = origin_shift(&step);
        Node {
            base: step.base,
            shape: Shape::One,
            need: step.need.saturating_sub((shift / 8) as u8),
            offset,
            mask: step.mask << shift,
            value: step.value << shift,
            hit: self.target(step.yes),
            miss: self.target(step.no),
            short: self.target(step.on_short()),
            first: 0,
            end: 0,
        }
    }
}

/// The load offset of a step and how far its mask moves up: [`Base::Link`] counts from two bytes
/// before the header, and nothing can be loaded from there.
fn origin_shift(step: &Step) -> (u16, u32) {
    match (step.base, step.offset) {
        (Base::Link, offset) if offset >= 2 => (offset - 2, 0),
        (Base::Link, _) => (0, 16),
        (_, offset) => (offset, 0),
    }
}

/// One step for two on neighbouring words that must both hold, if their bytes fit in one load.
fn join_unaligned(first: &Step, second: &Step) -> Option<Step> {
    let follows = second.base == first.base && second.offset == first.offset + 4 && second.no == first.no;
    // With both short exits at `no` it does not matter which of the two fails.
    if !follows || first.short_yes || second.short_yes || first.mask == 0 || first.need != 4 {
        return None;
    }
    let skipped = first.mask.leading_zeros() / 8;
    if skipped == 0 || u32::from(second.need) > skipped || (first.base == Base::Link && first.offset == 0) {
        return None;
    }
    Some(Step {
        offset: first.offset + skipped as u16,
        need: 4 - skipped as u8 + second.need,
        mask: first.mask << (8 * skipped) | second.mask >> (32 - 8 * skipped),
        value: first.value << (8 * skipped) | second.value >> (32 - 8 * skipped),
        yes: second.yes,
        ..*first
    })
}
