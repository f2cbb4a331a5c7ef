//! Shares of an overloaded output: a queue for each input node, served by deficit round robin (Shreedhar and Varghese, SIGCOMM
//! 1995), so that a node that sends more than its share loses its own packets and nobody else's.
//!
//! All queues take their room from one store. When that is full, the longest queue in bytes loses its newest packet
//! (Suter, Lakshman, Stiliadis and Choudhury 1998): a node that keeps to its share has a short queue and loses nothing. A
//! tournament of all queues knows the longest; a change moves upwards as far as the winner is concerned. Memory is all
//! taken at the start: 24 bytes and a packet's handle for each place, 64 for each node.

use std::collections::VecDeque;

use crate::NodeId;

/// What an input node got of an output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Packets given out.
    pub packets: u64,
    /// Bytes given out.
    pub bytes: u64,
    /// Packets dropped.
    pub drops: u64,
}

/// Packets `T` of several input nodes that wait for one output.
///
/// ```
/// # use fabric::{FairQueue, NodeId};
/// let node = |number| NodeId::new(number).expect("a node");
/// let mut queue = FairQueue::new(2, 3, 1514);
/// assert_eq!(queue.push(node(0), "greedy", 1000), None);
/// assert_eq!(queue.push(node(0), "greedier", 1000), None);
/// assert_eq!(queue.push(node(1), "modest", 100), None);
/// // No room for more, and node 0 has most of it.
/// assert_eq!(queue.push(node(1), "late", 100), Some((node(0), "greedier")));
/// assert_eq!(queue.pop(), Some("greedy"));
/// ```
#[derive(Clone, Debug)]
pub struct FairQueue<T> {
    places: Vec<Place<T>>,
    /// The first free place; the others follow it.
    free: u32,
    /// By node, filled up to a power of two.
    inputs: Vec<Input>,
    nodes: usize,
    /// Inputs with packets, in the order of their turns. One whose last packet was dropped stays until its turn.
    turns: VecDeque<u16>,
    /// A tree, the root at 1, its leaves the inputs: which of those below has most bytes waiting.
    longest: Vec<u16>,
    quantum: u32,
    len: usize,
}

/// The end of a list of places.
const END: u32 = u32::MAX;

#[derive(Clone, Debug)]
struct Place<T> {
    packet: Option<T>,
    bytes: u32,
    next: u32,
    previous: u32,
}

#[derive(Clone, Debug)]
struct Input {
    first: u32,
    last: u32,
    /// Bytes that it may send in its turn.
    credit: u32,
    has_turn: bool,
    /// Bytes that wait.
    bytes: u64,
    share: Share,
}

impl<T> FairQueue<T> {
    /// For packets of `nodes` nodes, at most `capacity` of them. A turn is worth `quantum` bytes; one not shorter than
    /// the usual packet has every turn send something.
    pub fn new(nodes: usize, capacity: usize, quantum: u32) -> FairQueue<T> {
        let nodes = nodes.min(NodeId::COUNT);
        let capacity = capacity.min(END as usize - 1) as u32;
        let place = |number: u32| {
            let next = if number + 1 < capacity { number + 1 } else { END };
            Place { packet: None, bytes: 0, next, previous: END }
        };
        let input =
            Input { first: END, last: END, credit: 0, has_turn: false, bytes: 0, share: Share::default() };
        let leaves = nodes.next_power_of_two();
        let mut longest = vec![0; 2 * leaves];
        for at in (1..2 * leaves).rev() {
            longest[at] = if at < leaves { longest[2 * at] } else { (at - leaves) as u16 };
        }
        FairQueue {
            places: (0..capacity).map(place).collect(),
            free: if capacity > 0 { 0 } else { END },
            inputs: vec![input; leaves],
            nodes,
            turns: VecDeque::with_capacity(nodes),
            longest,
            quantum: quantum.max(1),
            len: 0,
        }
    }

    /// Of how many nodes packets may wait.
    #[inline]
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// How many packets wait.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether none waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A packet of `bytes` bytes that came in by `input`. If there is no room, the newest packet of the longest queue
    /// is given back, to be dropped: that may be this one, and is if there is no such node.
    #[inline]
    pub fn push(&mut self, input: NodeId, packet: T, bytes: u32) -> Option<(NodeId, T)> {
        if input.index() >= self.nodes {
            return Some((input, packet));
        }
        let mut dropped = None;
        if self.free == END {
            let longest = self.longest[1];
            let most = self.inputs[usize::from(longest)].bytes;
            let this = &mut self.inputs[input.index()];
            if this.bytes + u64::from(bytes) >= most {
                this.share.drops += 1;
                return Some((input, packet));
            }
            dropped = NodeId::new(longest).zip(self.drop_newest(longest));
        }
        self.append(input.number(), packet, bytes);
        dropped
    }

    /// The next packet to send.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        loop {
            let number = *self.turns.front()?;
            let input = &mut self.inputs[usize::from(number)];
            let Some(place) = self.places.get(input.first as usize) else {
                input.has_turn = false;
                self.turns.pop_front();
                continue;
            };
            let bytes = place.bytes;
            if input.credit < bytes {
                // The end of its turn; the next one begins with more credit.
                input.credit = input.credit.saturating_add(self.quantum);
                self.turns.rotate_left(1);
                continue;
            }
            input.credit -= bytes;
            input.share.packets += 1;
            input.share.bytes += u64::from(bytes);
            let first = input.first;
            let packet = self.remove(number, first);
            let input = &mut self.inputs[usize::from(number)];
            if input.first == END {
                input.has_turn = false;
                self.turns.pop_front();
            }
            return packet;
        }
    }

    /// What each node got, for all of which something waited once.
    pub fn shares(&self) -> impl Iterator<Item = (NodeId, Share)> + '_ {
        let shares = NodeId::first(self.nodes).zip(self.inputs.iter().map(|input| input.share));
        shares.filter(|(_, share)| *share != Share::default())
    }

    /// Counts from zero again.
    pub fn reset_shares(&mut self) {
        self.inputs.iter_mut().for_each(|input| input.share = Share::default());
    }

    fn drop_newest(&mut self, number: u16) -> Option<T> {
        let input = &mut self.inputs[usize::from(number)];
        input.share.drops += 1;
        let last = input.last;
        self.remove(number, last)
    }

    /// Puts a packet last, where a place is free.
    fn append(&mut self, number: u16, packet: T, bytes: u32) {
        let at = self.free;
        let input = &mut self.inputs[usize::from(number)];
        let last = input.last;
        let place = &mut self.places[at as usize];
        self.free = place.next;
        *place = Place { packet: Some(packet), bytes, next: END, previous: last };
        input.last = at;
        input.bytes += u64::from(bytes);
        if last == END {
            input.first = at;
        } else {
            self.places[last as usize].next = at;
        }
        if !input.has_turn {
            input.has_turn = true;
            input.credit = self.quantum;
            self.turns.push_back(number);
        }
        self.len += 1;
        self.tell_longest(number);
    }

    /// Takes the packet at a place out of its input's list.
    fn remove(&mut self, number: u16, at: u32) -> Option<T> {
        let place = self.places.get_mut(at as usize)?;
        let packet = place.packet.take();
        let (next, previous, bytes) = (place.next, place.previous, place.bytes);
        place.next = self.free;
        self.free = at;
        let input = &mut self.inputs[usize::from(number)];
        input.bytes -= u64::from(bytes);
        match next {
            END => input.last = previous,
            next => self.places[next as usize].previous = previous,
        }
        match previous {
            END => input.first = next,
            previous => self.places[previous as usize].next = next,
        }
        self.len -= 1;
        self.tell_longest(number);
        packet
    }

    /// Plays the matches of an input again whose length has changed, up to where it lost before and loses again.
    fn tell_longest(&mut self, number: u16) {
        let mut at = (self.inputs.len() + usize::from(number)) / 2;
        while at > 0 {
            let (left, right) = (self.longest[2 * at], self.longest[2 * at + 1]);
            let is_right = self.inputs[usize::from(right)].bytes > self.inputs[usize::from(left)].bytes;
            let winner = if is_right { right } else { left };
            if std::mem::replace(&mut self.longest[at], winner) != number && winner != number {
                return;
            }
            at /= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NODES: u16 = 5;

    fn node(number: u16) -> NodeId {
        NodeId::new(number).unwrap()
    }

    /// The same with lists, looked through each time.
    struct Model {
        queues: Vec<VecDeque<(u32, u32)>>,
        credits: Vec<u32>,
        turns: Vec<usize>,
        capacity: usize,
        quantum: u32,
    }

    impl Model {
        fn len(&self) -> usize {
            self.queues.iter().map(VecDeque::len).sum()
        }

        fn bytes(&self, of: usize) -> u64 {
            self.queues[of].iter().map(|&(_, bytes)| u64::from(bytes)).sum()
        }

        fn push(&mut self, input: usize, packet: u32, bytes: u32) -> Option<(NodeId, u32)> {
            let mut dropped = None;
            if self.len() == self.capacity {
                let longest = (0..self.queues.len()).rev().max_by_key(|&of| self.bytes(of)).unwrap();
                if self.bytes(input) + u64::from(bytes) >= self.bytes(longest) {
                    return Some((node(input as u16), packet));
                }
                dropped = self.queues[longest].pop_back().map(|(packet, _)| (node(longest as u16), packet));
            }
            if !self.turns.contains(&input) {
                self.turns.push(input);
                self.credits[input] = self.quantum;
            }
            self.queues[input].push_back((packet, bytes));
            dropped
        }

        fn pop(&mut self) -> Option<u32> {
            while let Some(&turn) = self.turns.first() {
                match self.queues[turn].front() {
                    None => drop(self.turns.remove(0)),
                    Some(&(packet, bytes)) if bytes <= self.credits[turn] => {
                        self.credits[turn] -= bytes;
                        self.queues[turn].pop_front();
                        if self.queues[turn].is_empty() {
                            self.turns.remove(0);
                        }
                        return Some(packet);
                    }
                    Some(_) => {
                        self.credits[turn] += self.quantum;
                        self.turns.rotate_left(1);
                    }
                }
            }
            None
        }
    }

    #[test]
    fn who_keeps_to_its_share_loses_nothing() {
        let mut queue = FairQueue::new(3, 30, 1514);
        // Each step sends 1,000 bytes. Node 0 brings four times that, node 1 a fifth, node 2 what is left and more.
        for step in 0..1000 {
            for (input, count, bytes) in [(0, 4, 1000), (1, 1, 200), (2, 10, 100)] {
                (0..count).for_each(|_| _ = queue.push(node(input), (), bytes));
            }
            let mut sent = 0;
            while sent < 1000 {
                let before: u64 = queue.shares().map(|(_, share)| share.bytes).sum();
                queue.pop().unwrap();
                sent += queue.shares().map(|(_, share)| share.bytes).sum::<u64>() - before;
            }
            assert!(queue.len() <= 30, "step {step}");
        }
        let shares: Vec<Share> = queue.shares().map(|(_, share)| share).collect();
        assert_eq!(shares[1].drops, 0);
        assert!(shares[0].drops > 0 && shares[2].drops > 0);
        assert!(shares[1].bytes >= 199_000, "{shares:?}");
        assert!(shares[0].bytes.abs_diff(shares[2].bytes) <= 1514 + 1000, "{shares:?}");
        queue.reset_shares();
        assert_eq!(queue.shares().count(), 0);
    }

    #[test]
    fn without_room_or_node_packets_come_back() {
        let mut queue = FairQueue::new(2, 0, 0);
        assert_eq!(queue.push(node(1), 7, 64), Some((node(1), 7)));
        assert_eq!(queue.push(node(2), 8, 64), Some((node(2), 8)));
        assert_eq!(queue.shares().collect::<Vec<_>>(), [(node(1), Share { drops: 1, ..Share::default() })]);
        assert_eq!((queue.pop(), queue.is_empty()), (None, true));
        let mut nobody = FairQueue::new(0, 3, 0);
        assert_eq!(nobody.push(node(0), 9, 64), Some((node(0), 9)));
    }

    #[test]
    fn the_highest_node_has_its_queue() {
        let mut queue = FairQueue::new(NodeId::COUNT, 2, 1);
        assert_eq!(queue.push(node(NodeId::MAX), 1, 9000), None);
        assert_eq!(queue.push(node(0), 2, 0), None);
        assert_eq!(queue.push(node(0), 3, 64), Some((node(NodeId::MAX), 1)));
        assert_eq!([queue.pop(), queue.pop(), queue.pop()], [Some(2), Some(3), None]);
    }

    proptest! {
        #[test]
        fn it_is_the_model(
            steps in prop::collection::vec((0..NODES + 3, 0..200_u32), 1..400),
            capacity in 0..40_usize,
            quantum in 1..300_u32,
        ) {
            let mut queue = FairQueue::new(NODES.into(), capacity, quantum);
            let mut model = Model {
                queues: vec![VecDeque::new(); NODES.into()],
                credits: vec![0; NODES.into()],
                turns: Vec::new(),
                capacity,
                quantum,
            };
            let mut last = vec![None; NODES.into()];
            for (packet, (what, bytes)) in (0_u32..).zip(steps.iter().copied()) {
                if what < NODES {
                    let dropped = queue.push(node(what), packet, bytes);
                    prop_assert_eq!(dropped, model.push(what.into(), packet, bytes));
                } else {
                    let was_empty = queue.is_empty();
                    let popped = queue.pop();
                    prop_assert_eq!(popped, model.pop());
                    prop_assert_eq!(popped.is_none(), was_empty, "work conserving");
                    if let Some(packet) = popped {
                        let input = usize::from(steps[packet as usize].0);
                        prop_assert!(last[input].replace(packet) < Some(packet), "first in, first out");
                    }
                }
                prop_assert_eq!(queue.len(), model.len());
                prop_assert!(queue.len() <= capacity);
            }
            let shares: Vec<Share> = queue.shares().map(|(_, share)| share).collect();
            let gone: u64 = shares.iter().map(|share| share.packets + share.drops).sum();
            let came = steps.iter().filter(|(what, _)| *what < NODES).count();
            prop_assert_eq!(gone as usize + queue.len(), came);
        }

        #[test]
        fn shares_differ_by_a_quantum_and_a_packet_at_most(
            packets in prop::collection::vec(prop::collection::vec(1..9000_u32, 40), 2..6),
            quantum in 1..10_000_u32,
        ) {
            let mut queue = FairQueue::new(packets.len(), 1000, quantum);
            for (input, packets) in (0..).zip(&packets) {
                packets.iter().for_each(|&bytes| assert_eq!(queue.push(node(input), input, bytes), None));
            }
            let longest = *packets.iter().flatten().max().unwrap();
            let mut sent = vec![(0, 0_u32); packets.len()];
            while let Some(input) = queue.pop() {
                let (count, bytes) = &mut sent[usize::from(input)];
                *bytes += packets[usize::from(input)][*count];
                *count += 1;
                if *count == packets[usize::from(input)].len() {
                    break;
                }
                let most = sent.iter().map(|&(_, bytes)| bytes).max().unwrap();
                let least = sent.iter().map(|&(_, bytes)| bytes).min().unwrap();
                prop_assert!(most - least < quantum + longest, "{sent:?}");
            }
        }
    }
}
