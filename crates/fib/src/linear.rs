//! A table that looks at every route. It is the reference that the properties of the other tables are tested
//! against, and right for a handful of routes. It has nothing in common with them but the answers.
//!
//! Memory: 12 bytes a route.

use crate::{NextHopIndex, Rib4, Route4, Table4, TableError};
use ipnet::Ipv4Net;
use std::net::Ipv4Addr;

/// Routes in no order, searched one by one.
#[derive(Clone, Debug, Default)]
pub struct Linear {
    routes: Vec<Route4>,
}

impl Linear {
    /// An empty table.
    pub fn new() -> Linear {
        Linear::default()
    }

    /// The routes, in no order that means anything.
    pub fn routes(&self) -> &[Route4] {
        &self.routes
    }

    /// Sets the next hop of a prefix and returns the one it had, if any.
    pub fn set(&mut self, prefix: Ipv4Net, next_hop: NextHopIndex) -> Option<NextHopIndex> {
        for route in &mut self.routes {
            if route.prefix == prefix {
                return Some(std::mem::replace(&mut route.next_hop, next_hop));
            }
        }
        self.routes.push(Route4 { prefix, next_hop });
        None
    }

    /// Removes the route at exactly this prefix and returns its next hop, if there was one.
    pub fn unset(&mut self, prefix: Ipv4Net) -> Option<NextHopIndex> {
        let place = self.routes.iter().position(|route| route.prefix == prefix)?;
        Some(self.routes.swap_remove(place).next_hop)
    }
}

impl Table4 for Linear {
    fn lookup(&self, address: u32) -> NextHopIndex {
        let address = Ipv4Addr::from(address);
        let mut best: Option<&Route4> = None;
        for route in &self.routes {
            let longer = best.is_none_or(|best| route.prefix.prefix_len() > best.prefix.prefix_len());
            if longer && route.prefix.contains(&address) {
                best = Some(route);
            }
        }
        best.map_or(NextHopIndex::NONE, |route| route.next_hop)
    }

    fn lookup_batch(&self, addresses: &[u32], next_hops: &mut [NextHopIndex]) {
        assert_eq!(addresses.len(), next_hops.len(), "one place for each answer");
        for (&address, next_hop) in addresses.iter().zip(next_hops) {
            *next_hop = self.lookup(address);
        }
    }

    fn update(&mut self, rib: &Rib4, prefix: Ipv4Net) -> Result<(), TableError> {
        match rib.get(prefix) {
            Some(next_hop) => self.set(prefix, next_hop),
            None => self.unset(prefix),
        };
        Ok(())
    }

    fn rebuild(&mut self, rib: &Rib4) -> Result<(), TableError> {
        self.routes.clear();
        self.routes.extend(rib.iter());
        Ok(())
    }

    fn memory_bytes(&self) -> usize {
        self.routes.capacity() * size_of::<Route4>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_wins_in_any_order() {
        let hop = |number| NextHopIndex::new(number).unwrap();
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
            let mut table = Linear::new();
            for i in order {
                let (prefix, number) = [("0.0.0.0/0", 1), ("10.0.0.0/8", 2), ("10.0.0.1/32", 3)][i];
                assert_eq!(table.set(prefix.parse().unwrap(), hop(number)), None);
            }
            assert_eq!(table.lookup(0x0a00_0001), hop(3));
            assert_eq!(table.lookup(0x0a00_0002), hop(2));
            assert_eq!(table.lookup(0), hop(1));
            assert_eq!(table.unset("10.0.0.0/8".parse().unwrap()), Some(hop(2)));
            assert_eq!(table.lookup(0x0a00_0002), hop(1));
        }
    }
}
