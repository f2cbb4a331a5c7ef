//! Shares of an overloaded output: a queue for each input node, served by deficit round robin (Shreedhar and Varghese, SIGCOMM
//! 1995), so that a node that sends more than its share loses its own packets and nobody else's.

use std::collections::VecDeque;

use crate::NodeId;

/// Packets `T` of several input nodes that wait for one output.
#[derive(Clone, Debug)]
pub struct FairQueue<T> {
    queues: Vec<Queue<T>>,
    /// Queues with packets, in the order of their turns.
    turns: VecDeque<u16>,
    quantum: u32,
    most: usize,
    len: usize,
}

#[derive(Clone, Debug)]
struct Queue<T> {
    packets: VecDeque<(T, u32)>,
    credit: u32,
}

impl<T> FairQueue<T> {
    /// Of `nodes` nodes, each with at most `most` packets waiting. A turn is worth `quantum` bytes: at least the longest
    /// packet, so that every turn sends something.
    pub fn new(nodes: usize, most: usize, quantum: u32) -> FairQueue<T> {
        // Room for all from the start: a queue on the packets' way never allocates.
        let queue = || Queue { packets: VecDeque::with_capacity(most), credit: 0 };
        FairQueue {
            queues: std::iter::repeat_with(queue).take(nodes).collect(),
            turns: VecDeque::with_capacity(nodes),
            quantum: quantum.max(1),
            most,
            len: 0,
        }
    }

    /// How many packets wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A packet of `bytes` bytes that came in by `input`.
    ///
    /// # Errors
    /// The packet, if that node's queue is full or there is no such node.
    pub fn push(&mut self, input: NodeId, packet: T, bytes: u32) -> Result<(), T> {
        let most = self.most;
        let Some(queue) = self.queues.get_mut(input.index()).filter(|queue| queue.packets.len() < most)
        else {
            return Err(packet);
        };
        if queue.packets.is_empty() {
            queue.credit = 0;
            self.turns.push_back(input.number());
        }
        queue.packets.push_back((packet, bytes));
        self.len += 1;
        Ok(())
    }

    /// The next packet to send.
    pub fn pop(&mut self) -> Option<T> {
        loop {
            let turn = *self.turns.front()?;
            let queue = &mut self.queues[usize::from(turn)];
            let &(_, bytes) = queue.packets.front()?;
            if queue.credit < bytes {
                // The end of its turn; the next one begins with more credit.
                queue.credit = queue.credit.saturating_add(self.quantum);
                self.turns.rotate_left(1);
                continue;
            }
            queue.credit -= bytes;
            let (packet, _) = queue.packets.pop_front()?;
            if queue.packets.is_empty() {
                self.turns.pop_front();
            }
            self.len -= 1;
            return Some(packet);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u16) -> NodeId {
        NodeId::new(number).unwrap()
    }

    #[test]
    fn bytes_are_shared_evenly_whoever_sends_more() {
        let mut queue = FairQueue::new(3, 200, 1500);
        // Node 0 sends large packets, node 1 small ones, node 2 nothing.
        for number in 0..200 {
            queue.push(node(0), (0, number), 1500).unwrap();
            queue.push(node(1), (1, number), 100).unwrap();
        }
        let mut bytes = [0_i32; 2];
        for _ in 0..160 {
            let (from, _) = queue.pop().unwrap();
            bytes[from] += [1500, 100][from];
        }
        assert!((bytes[0] - bytes[1]).abs() <= 1500, "{bytes:?}");
    }

    #[test]
    fn the_order_of_each_node_stays_and_nothing_is_lost() {
        let mut queue = FairQueue::new(2, 4, 1);
        assert_eq!(queue.push(node(2), 9, 1), Err(9), "no such node");
        for packet in 0..4 {
            queue.push(node(1), packet, 64).unwrap();
        }
        assert_eq!(queue.push(node(1), 4, 64), Err(4), "full");
        queue.push(node(0), 10, 64).unwrap();
        let out: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(out.iter().filter(|packet| **packet < 10).copied().collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert_eq!((out.len(), queue.len(), queue.is_empty()), (5, 0, true));
    }
}
