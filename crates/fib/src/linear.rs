//! A table that looks at every route. It is the reference that the properties of the other tables are tested
//! against, and right for a handful of routes. It has nothing in common with them but the answers.
//!
//! Memory: 8 bytes a route for IPv4, 48 for IPv6.

use crate::{NextHopIndex, Rib, Route, Table, TableError};
use packet::Family;

/// Routes in no order, searched one by one.
#[derive(Clone, Debug)]
pub struct Linear<A: Family> {
    routes: Vec<(A, u8, NextHopIndex)>,
}

impl<A: Family> Default for Linear<A> {
    fn default() -> Self {
        Linear { routes: Vec::new() }
    }
}

impl<A: Family> Linear<A> {
    /// The prefixes and their next hops, in no order that means anything.
    pub fn routes(&self) -> impl Iterator<Item = (A::Net, NextHopIndex)> + '_ {
        self.routes.iter().map(|&(network, length, next_hop)| (A::net(network, length), next_hop))
    }

    fn position(&self, prefix: A::Net) -> Option<usize> {
        let parts = A::parts(prefix);
        self.routes.iter().position(|&(network, length, _)| (network, length) == parts)
    }

    /// Sets the next hop of a prefix (no host bits) and returns the one it had, if any.
    pub fn set(&mut self, prefix: A::Net, next_hop: NextHopIndex) -> Option<NextHopIndex> {
        if let Some(place) = self.position(prefix) {
            return Some(std::mem::replace(&mut self.routes[place].2, next_hop));
        }
        let (network, length) = A::parts(prefix);
        self.routes.push((network, length, next_hop));
        None
    }

    /// Removes the route at exactly this prefix and returns its next hop, if there was one.
    pub fn unset(&mut self, prefix: A::Net) -> Option<NextHopIndex> {
        let place = self.position(prefix)?;
        Some(self.routes.swap_remove(place).2)
    }
}

impl<A: Family> Table<A> for Linear<A> {
    const NAME: &'static str = "linear";
    type Compiler = ();

    fn new() -> Result<Self, TableError> {
        Ok(Linear::default())
    }

    fn lookup(&self, address: A) -> NextHopIndex {
        let mut best = None;
        for &(network, length, next_hop) in &self.routes {
            let longer = best.is_none_or(|(best_length, _)| length > best_length);
            if longer && address & A::mask(length) == network {
                best = Some((length, next_hop));
            }
        }
        best.map_or(NextHopIndex::NONE, |(_, next_hop)| next_hop)
    }

    fn update(&mut self, (): &mut (), rib: &Rib<A>, prefix: A::Net) -> Result<(), TableError> {
        match rib.get(prefix) {
            Some(next_hop) => self.set(prefix, next_hop),
            None => self.unset(prefix),
        };
        Ok(())
    }

    /// A change looks at every route, and so does compiling them all.
    fn update_all(&mut self, (): &mut (), rib: &Rib<A>, prefixes: &[A::Net]) -> Result<(), TableError> {
        match prefixes {
            &[prefix] => self.update(&mut (), rib, prefix),
            _ => self.rebuild(&mut (), rib),
        }
    }

    fn surely_fits(_rib: &Rib<A>) -> bool {
        true
    }

    fn rebuild(&mut self, (): &mut (), rib: &Rib<A>) -> Result<(), TableError> {
        self.routes.clear();
        self.routes.extend(rib.iter().map(|Route { prefix, next_hop }| {
            let (network, length) = A::parts(prefix);
            (network, length, next_hop)
        }));
        Ok(())
    }

    fn catch_up(&mut self, (): &mut (), ahead: &Self) {
        self.routes.clone_from(&ahead.routes);
    }

    fn for_each_range(&self, visit: &mut dyn FnMut(A, NextHopIndex)) {
        let mut starts = vec![A::MIN];
        for &(network, length, _) in &self.routes {
            starts.push(network);
            starts.extend(Some((network | !A::mask(length)).next()).filter(|&next| next != A::MIN));
        }
        starts.sort_unstable();
        starts.dedup();
        starts.into_iter().for_each(|start| visit(start, self.lookup(start)));
    }

    fn expected_bytes(routes: usize) -> usize {
        routes * size_of::<(A, u8, NextHopIndex)>()
    }

    fn memory_bytes(&self) -> usize {
        self.routes.capacity() * size_of::<(A, u8, NextHopIndex)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_wins_whatever_the_order() {
        let hop = |number| NextHopIndex::new(number).unwrap();
        let mut table = Linear::<u32>::default();
        table.set("10.9.0.0/16".parse().unwrap(), hop(2));
        table.set("10.0.0.0/8".parse().unwrap(), hop(1));
        assert_eq!(table.lookup(0x0a09_0001), hop(2));
        assert_eq!(table.lookup(0x0a0a_0001), hop(1));
        assert_eq!(table.lookup(0x0b00_0000), NextHopIndex::NONE);
        assert_eq!(table.unset("10.9.0.0/16".parse().unwrap()), Some(hop(2)));
        assert_eq!(table.lookup(0x0a09_0001), hop(1));
    }
}
