//! The order of events: a calendar queue (Brown, CACM 1988).
//!
//! Time is cut into days of equal length, some sixteen events each. A ring has the days to come; an event is thrown into
//! its day unsorted, and a day is sorted when it begins. What is further away than the ring reaches waits in a heap. Events
//! of the same time come in the order in which they were put in, so that a run is the same every time. A day's memory is
//! handed to a later day, which finds it in the cache.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use crate::event::Event;

pub(crate) struct Calendar {
    /// Picoseconds of a day, as a power of two.
    shift: u32,
    /// The days from `day` on, by their number modulo its length.
    ring: Vec<Vec<Event>>,
    mask: u64,
    /// How many events are in the ring.
    in_ring: usize,
    /// The day that has begun, and its events.
    day: u64,
    today: Vec<Event>,
    /// Those still to come today: time since the day began, and place in `today`.
    order: Vec<u64>,
    /// How many of them have come.
    came: usize,
    far: BinaryHeap<Reverse<Far>>,
    far_number: u64,
    /// Memory for days.
    empty: Vec<Vec<Event>>,
}

/// An event beyond the ring.
struct Far {
    number: u64,
    event: Event,
}

impl Far {
    fn key(&self) -> (u64, u64) {
        (self.event.at_ps, self.number)
    }
}

impl PartialEq for Far {
    fn eq(&self, other: &Far) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Far {}

impl PartialOrd for Far {
    fn partial_cmp(&self, other: &Far) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Far {
    fn cmp(&self, other: &Far) -> Ordering {
        self.key().cmp(&other.key())
    }
}

/// Events that a day should have.
const EVENTS_OF_A_DAY: f64 = 16.0;

impl Calendar {
    /// For so many events a second, most of them at most `reach_ps` after the one that they follow from.
    pub(crate) fn new(events_per_second: f64, reach_ps: u64) -> Calendar {
        let day_ps =
            (EVENTS_OF_A_DAY * 1e12 / events_per_second.max(1.0)).clamp(1.0, (1_u64 << 31) as f64) as u64;
        let shift = day_ps.ilog2();
        let days = (reach_ps >> shift).clamp(1 << 10, 1 << 20).next_power_of_two();
        Calendar {
            shift,
            ring: vec![Vec::new(); days as usize],
            mask: days - 1,
            in_ring: 0,
            day: 0,
            today: Vec::new(),
            order: Vec::new(),
            came: 0,
            far: BinaryHeap::new(),
            far_number: 0,
            empty: Vec::new(),
        }
    }

    /// Puts in an event, which is not before the last one that was taken out.
    pub(crate) fn push(&mut self, event: Event) {
        let day = event.at_ps >> self.shift;
        if day <= self.day {
            let key = self.key(&event, self.today.len());
            let place = self.came + self.order[self.came..].partition_point(|&other| other <= key);
            self.order.insert(place, key);
            self.today.push(event);
        } else if day - self.day <= self.mask {
            self.put(day, event);
        } else {
            self.far_number += 1;
            self.far.push(Reverse(Far { number: self.far_number, event }));
        }
    }

    /// The next event.
    pub(crate) fn pop(&mut self) -> Option<Event> {
        loop {
            if let Some(&key) = self.order.get(self.came) {
                self.came += 1;
                return Some(self.today[key as u32 as usize]);
            }
            if !self.begin_day() {
                return None;
            }
        }
    }

    /// All that are still there, in no order.
    pub(crate) fn rest(&self) -> impl Iterator<Item = &Event> {
        let today = self.order[self.came..].iter().map(|&key| &self.today[key as u32 as usize]);
        let later = self.ring.iter().flatten();
        today.chain(later).chain(self.far.iter().map(|Reverse(far)| &far.event))
    }

    /// An event's place among those of its day.
    fn key(&self, event: &Event, place: usize) -> u64 {
        // A day has at most 2^31 picoseconds; what is late comes at once.
        event.at_ps.saturating_sub(self.day << self.shift) << 32 | place as u64
    }

    fn put(&mut self, day: u64, event: Event) {
        let events = &mut self.ring[(day & self.mask) as usize];
        if events.capacity() == 0
            && let Some(memory) = self.empty.pop()
        {
            *events = memory;
        }
        events.push(event);
        self.in_ring += 1;
    }

    /// Goes on to the next day. `false`: there is none with events.
    fn begin_day(&mut self) -> bool {
        self.today.clear();
        self.order.clear();
        self.came = 0;
        let far_day = self.far.peek().map(|Reverse(far)| far.event.at_ps >> self.shift);
        match far_day {
            None if self.in_ring == 0 => return false,
            Some(day) if self.in_ring == 0 => self.day = day,
            _ => self.day += 1,
        }
        while let Some(Reverse(far)) = self.far.peek() {
            let day = far.event.at_ps >> self.shift;
            if day.saturating_sub(self.day) > self.mask {
                break;
            }
            let event = far.event;
            self.far.pop();
            self.put(day, event);
        }
        let events = &mut self.ring[(self.day & self.mask) as usize];
        if events.is_empty() {
            return true;
        }
        let memory = std::mem::replace(&mut self.today, std::mem::take(events));
        if memory.capacity() > 0 {
            self.empty.push(memory);
        }
        self.in_ring -= self.today.len();
        for (place, event) in self.today.iter().enumerate() {
            self.order.push(self.key(event, place));
        }
        self.order.sort_unstable();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// Against a list that is sorted, with events near and far, many at the same time.
    #[test]
    fn events_come_in_order_whatever_their_distance() {
        for (rate, reach_ps) in [(1.0, 1), (1e6, 1 << 30), (1e9, 1 << 20), (1e12, 1 << 40)] {
            let mut random = Random::new(7, rate as u64);
            let mut calendar = Calendar::new(rate, reach_ps);
            let mut list: Vec<(u64, u32)> = Vec::new();
            let (mut now_ps, mut number) = (0, 0);
            for _ in 0..3_000 {
                if random.below(5) < 3 || list.is_empty() {
                    let after = match random.below(4) {
                        0 => 0,
                        1 => u64::from(random.below(100)),
                        2 => u64::from(random.below(u32::MAX)),
                        _ => u64::from(random.below(u32::MAX)) << random.below(12),
                    };
                    calendar.push(Event { at_ps: now_ps + after, sequence: number, ..Event::default() });
                    list.push((now_ps + after, number));
                    number += 1;
                } else {
                    let first = list.iter().copied().min().unwrap();
                    list.retain(|&other| other != first);
                    let event = calendar.pop().unwrap();
                    assert_eq!((event.at_ps, event.sequence), first);
                    now_ps = event.at_ps;
                }
                if list.len() > 200 {
                    assert_eq!(calendar.rest().count(), list.len());
                    list.sort_unstable();
                    let rest: Vec<_> =
                        std::iter::from_fn(|| calendar.pop()).map(|e| (e.at_ps, e.sequence)).collect();
                    assert_eq!(rest, list);
                    now_ps = rest[rest.len() - 1].0;
                    list.clear();
                }
            }
        }
    }

    #[test]
    fn an_event_is_small() {
        assert!(size_of::<Event>() <= 40);
    }
}
