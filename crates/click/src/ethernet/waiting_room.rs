//! Packets of one copy that wait for the Ethernet address of their next hop.

use std::collections::{HashMap, VecDeque};

use packet::Packet;

use super::address::Address;

/// A packet that waits.
#[derive(Debug)]
struct Waiting {
    number: u64,
    packet: Packet,
}

/// The packets for one next hop.
#[derive(Debug, Default)]
struct Line {
    packets: VecDeque<Waiting>,
    ask_at_ns: u64,
}

/// When a packet came, and for whom.
#[derive(Clone, Copy, Debug)]
struct Arrival<A> {
    number: u64,
    address: A,
    at_ns: u64,
}

/// All packets that wait, by next hop and by age.
#[derive(Debug)]
pub(super) struct WaitingRoom<A> {
    lines: HashMap<A, Line>,
    /// Arrivals, oldest first; those whose packet has left stay until they come to the front or are too many.
    arrivals: VecDeque<Arrival<A>>,
    count: usize,
    number: u64,
}

impl<A: Address> WaitingRoom<A> {
    pub(super) fn new() -> Self {
        Self { lines: HashMap::new(), arrivals: VecDeque::new(), count: 0, number: 0 }
    }

    /// How many packets wait.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// How many packets wait for `address`.
    pub(super) fn len_for(&self, address: A) -> usize {
        self.lines.get(&address).map_or(0, |line| line.packets.len())
    }

    /// The next hops that packets wait for.
    pub(super) fn addresses(&self) -> impl Iterator<Item = A> {
        self.lines.keys().copied()
    }

    /// When the shared table may be asked again about `address`; `None` when no packet waits for it.
    pub(super) fn ask_at_ns(&self, address: A) -> Option<u64> {
        self.lines.get(&address).map(|line| line.ask_at_ns)
    }

    /// Sets when the shared table may be asked again about `address`, if packets wait for it.
    pub(super) fn set_ask_at_ns(&mut self, address: A, at_ns: u64) {
        if let Some(line) = self.lines.get_mut(&address) {
            line.ask_at_ns = at_ns;
        }
    }

    /// Lets `packet`, which came at `now_ns`, wait for `address`.
    pub(super) fn add(&mut self, address: A, packet: Packet, now_ns: u64) {
        // Twice the packets, so that clearing up costs each arrival a constant.
        if self.arrivals.len() > 2 * self.count + 64 {
            let lines = &self.lines;
            self.arrivals.retain(|arrival| {
                let line = lines.get(&arrival.address);
                line.and_then(|line| line.packets.front()).is_some_and(|first| first.number <= arrival.number)
            });
        }
        self.number += 1;
        self.count += 1;
        self.arrivals.push_back(Arrival { number: self.number, address, at_ns: now_ns });
        let line = self.lines.entry(address).or_default();
        line.packets.push_back(Waiting { number: self.number, packet });
    }

    /// Takes the oldest packet for `address`.
    pub(super) fn take_oldest_for(&mut self, address: A) -> Option<Packet> {
        let line = self.lines.get_mut(&address)?;
        let first = line.packets.pop_front()?;
        if line.packets.is_empty() {
            self.lines.remove(&address);
        }
        self.count -= 1;
        Some(first.packet)
    }

    /// Takes the oldest packet of all.
    pub(super) fn take_oldest(&mut self) -> Option<Packet> {
        self.take_oldest_until(u64::MAX)
    }

    /// Takes the oldest packet of all if it came at `until_ns` or before.
    pub(super) fn take_oldest_until(&mut self, until_ns: u64) -> Option<Packet> {
        while let Some(&arrival) = self.arrivals.front()
            && arrival.at_ns <= until_ns
        {
            let line = self.lines.get(&arrival.address);
            let waits = line
                .and_then(|line| line.packets.front())
                .is_some_and(|first| first.number == arrival.number);
            if waits && arrival.at_ns > until_ns {
                return None;
            }
            self.arrivals.pop_front();
            if waits {
                return self.take_oldest_for(arrival.address);
            }
        }
        None
    }

    /// Takes all packets for `address`, oldest first.
    pub(super) fn take_all(&mut self, address: A) -> impl Iterator<Item = Packet> {
        let line = self.lines.remove(&address).unwrap_or_default();
        self.count -= line.packets.len();
        line.packets.into_iter().map(|waiting| waiting.packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::{Pool, PoolOptions};
    use proptest::prelude::*;

    proptest! {
        /// Against a plain list of (address, time, tag).
        #[test]
        fn agrees_with_a_list(acts in proptest::collection::vec((0u8..6, 1u32..5), 0..400)) {
            let mut pool = Pool::new(PoolOptions { frames: 1024, ..PoolOptions::default() }).unwrap();
            let mut room = WaitingRoom::new();
            let mut list: Vec<(u32, u64, u16)> = Vec::new();
            let tag = |packet: Packet| packet.input_port();
            for (number, (act, address)) in acts.into_iter().enumerate() {
                let now = number as u64;
                match act {
                    0..=2 => {
                        let mut packet = pool.allocate().unwrap();
                        packet.set_input_port(number as u16);
                        room.add(address, packet, now);
                        list.push((address, now, number as u16));
                    }
                    3 => {
                        let expected = (!list.is_empty()).then(|| list.remove(0).2);
                        prop_assert_eq!(room.take_oldest().map(tag), expected);
                    }
                    4 => {
                        let until = now.saturating_sub(10);
                        let old = list.first().is_some_and(|first| first.1 <= until);
                        let expected = old.then(|| list.remove(0).2);
                        prop_assert_eq!(room.take_oldest_until(until).map(tag), expected);
                    }
                    _ if now.is_multiple_of(2) => {
                        let taken: Vec<u16> = room.take_all(address).map(tag).collect();
                        let expected: Vec<u16> =
                            list.iter().filter(|entry| entry.0 == address).map(|entry| entry.2).collect();
                        prop_assert_eq!(taken, expected);
                        list.retain(|entry| entry.0 != address);
                    }
                    _ => {
                        let place = list.iter().position(|entry| entry.0 == address);
                        let expected = place.map(|place| list.remove(place).2);
                        prop_assert_eq!(room.take_oldest_for(address).map(tag), expected);
                    }
                }
                prop_assert_eq!(room.len(), list.len());
                let here = list.iter().filter(|entry| entry.0 == address).count();
                prop_assert_eq!(room.len_for(address), here);
                prop_assert_eq!(room.ask_at_ns(address).is_some(), here > 0);
                prop_assert!(room.arrivals.len() <= 2 * room.len() + 66 + list.len());
            }
        }
    }
}
