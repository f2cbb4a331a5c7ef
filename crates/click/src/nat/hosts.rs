//! How many flows each host began, so that none takes all of the table.
//!
//! Open addressing with linear probing, at most half full, under a keyed hash; who has no flow left has no
//! slot either. Room for one host a flow is reserved at first, so packets allocate nothing.

use packet::flow::FlowKey;

/// Counts of flows by source address.
#[derive(Debug)]
pub(super) struct Hosts {
    /// Address and count, 32 bits each; a count of 0 is a free slot. Zeros, which the kernel gives when they are touched.
    slots: Vec<u64>,
    key: FlowKey,
}

/// The address and the count of a slot.
fn parts(slot: u64) -> (u32, u32) {
    ((slot >> 32) as u32, slot as u32)
}

fn slot_of(host: u32, count: u32) -> u64 {
    u64::from(host) << 32 | u64::from(count)
}

impl Hosts {
    /// No hosts, and no room for any.
    pub(super) fn new(key: FlowKey) -> Self {
        Self { slots: vec![0; 2], key }
    }

    /// Makes room for so many hosts.
    pub(super) fn reserve(&mut self, hosts: usize) {
        let count = (hosts.max(1) * 2).next_power_of_two();
        if count > self.slots.len() {
            let old = std::mem::replace(&mut self.slots, vec![0; count]);
            for (host, count) in old.into_iter().map(parts).filter(|(_, count)| *count > 0) {
                let place = self.place(host);
                self.slots[place] = slot_of(host, count);
            }
        }
    }

    fn mask(&self) -> usize {
        self.slots.len() - 1
    }

    /// Where a search for `host` begins.
    fn home(&self, host: u32) -> usize {
        self.key.product(host.into(), 0) as usize & self.mask()
    }

    /// The place of a host, or the free one where it would be.
    fn place(&self, host: u32) -> usize {
        let mut at = self.home(host);
        loop {
            let (other, count) = parts(self.slots[at]);
            if count == 0 || other == host {
                return at;
            }
            at = (at + 1) & self.mask();
        }
    }

    /// Flows of a host.
    pub(super) fn count(&self, host: u32) -> u32 {
        parts(self.slots[self.place(host)]).1
    }

    /// Counts one more flow of a host.
    pub(super) fn add(&mut self, host: u32) {
        let place = self.place(host);
        let (_, count) = parts(self.slots[place]);
        self.slots[place] = slot_of(host, count + 1);
    }

    /// Counts one flow less.
    pub(super) fn remove(&mut self, host: u32) {
        let mut gap = self.place(host);
        let count = parts(self.slots[gap]).1.saturating_sub(1);
        self.slots[gap] = slot_of(host, count);
        if count > 0 {
            return;
        }
        // What comes behind moves up unless it would stand before its home.
        let mut at = gap;
        loop {
            at = (at + 1) & self.mask();
            let slot = self.slots[at];
            let (host, count) = parts(slot);
            if count == 0 {
                return;
            }
            let home = self.home(host);
            if (at.wrapping_sub(home) & self.mask()) >= (at.wrapping_sub(gap) & self.mask()) {
                self.slots[gap] = slot;
                self.slots[at] = 0;
                gap = at;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn counts_agree_with_a_map(acts in proptest::collection::vec((0_u32..24, any::<bool>()), 0..400), seed: u64) {
            let mut hosts = Hosts::new(FlowKey::from_seed(seed));
            hosts.reserve(10);
            let mut model: HashMap<u32, u32> = HashMap::new();
            for (number, (host, adds)) in acts.into_iter().enumerate() {
                let host = host << 24;
                if adds {
                    hosts.add(host);
                    *model.entry(host).or_default() += 1;
                } else if let Some(count) = model.get_mut(&host).filter(|count| **count > 0) {
                    hosts.remove(host);
                    *count -= 1;
                }
                hosts.reserve(model.len().max(number / 8));
                for host in 0..24 {
                    let expected = model.get(&(host << 24)).copied().unwrap_or(0);
                    prop_assert_eq!(hosts.count(host << 24), expected);
                }
            }
        }
    }
}
