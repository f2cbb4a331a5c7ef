//! Random changes of a FIB, as peers make them, and back: what was withdrawn is announced again, new routes and
//! more-specifics come and go, next hops change. Taking all of it back must give the table from before, to the bit of its
//! digest.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fib::synthesize::random_bits;
use fib::{EditError, Fib, MAIN, NextHopIndex};
use ipnet::IpNet;
use packet::Family;
use packet::random::SplitMix64;

/// A published batch has 1 to so many changes.
const LARGEST_BATCH: u64 = 1000;

/// What was done.
#[derive(Clone, Debug, Default)]
pub(super) struct Done {
    pub(super) withdrawn: usize,
    pub(super) announced: usize,
    /// Routes that got another next hop (by chance at times the one they had).
    pub(super) changed: usize,
    /// Changes for which a table had no room. They left it as it was.
    pub(super) refused: usize,
    pub(super) batches: usize,
    /// Applying and publishing.
    pub(super) time: Duration,
    /// The longest publication: of the changes of one batch, to workers and to the other copy.
    pub(super) longest_publication: Duration,
}

impl Done {
    /// All changes that were accepted.
    pub(super) fn changes(&self) -> usize {
        self.withdrawn + self.announced + self.changed
    }
}

/// Changes a FIB and knows the way back.
pub(super) struct Churn<'a> {
    fib: &'a mut Fib<u16>,
    next_hops: u16,
    random: SplitMix64,
    /// All prefixes that have a route.
    prefixes: Vec<IpNet>,
    /// Those that had one.
    withdrawn: Vec<IpNet>,
    /// What each changed prefix had before, the first change first.
    before: Vec<(IpNet, Option<NextHopIndex>)>,
}

impl<'a> Churn<'a> {
    /// For a FIB with routes and the next hops 1 to `next_hops`.
    pub(super) fn new(fib: &'a mut Fib<u16>, next_hops: u16, seed: u64) -> Self {
        let ipv4 =
            fib.rib4(MAIN).into_iter().flat_map(|rib| rib.iter().map(|found| IpNet::from(found.prefix)));
        let ipv6 =
            fib.rib6(MAIN).into_iter().flat_map(|rib| rib.iter().map(|found| IpNet::from(found.prefix)));
        let prefixes = ipv4.chain(ipv6).collect();
        Self {
            fib,
            next_hops,
            random: SplitMix64::new(seed),
            prefixes,
            withdrawn: Vec::new(),
            before: Vec::new(),
        }
    }

    /// The FIB as it is now.
    pub(super) fn fib(&mut self) -> &mut Fib<u16> {
        self.fib
    }

    /// Makes `count` changes. `progress` gets how many are made.
    pub(super) fn change(&mut self, count: usize, progress: &mut dyn FnMut(usize)) -> Result<Done> {
        let mut done = Done::default();
        let begin = Instant::now();
        let mut made = 0;
        while made < count && !(self.prefixes.is_empty() && self.withdrawn.is_empty()) {
            let size = (1 + self.random.below(LARGEST_BATCH) as usize).min(count - made);
            let steps: Vec<(IpNet, Option<NextHopIndex>)> = (0..size).map(|_| self.draw()).collect();
            self.publish(&steps, &mut done)?;
            made += size;
            progress(made);
        }
        done.time = begin.elapsed();
        Ok(done)
    }

    /// Takes all changes back, the last first.
    pub(super) fn take_back(&mut self, progress: &mut dyn FnMut(usize)) -> Result<Done> {
        let mut done = Done::default();
        let begin = Instant::now();
        let mut steps = std::mem::take(&mut self.before);
        steps.reverse();
        let mut made = 0;
        while made < steps.len() {
            let size = (1 + self.random.below(LARGEST_BATCH) as usize).min(steps.len() - made);
            self.publish(&steps[made..made + size], &mut done)?;
            made += size;
            progress(made);
        }
        done.time = begin.elapsed();
        Ok(done)
    }

    /// A prefix, and the next hop that it is to have, if any.
    fn draw(&mut self) -> (IpNet, Option<NextHopIndex>) {
        // Number 0 is a null route.
        let number = self.random.below(u64::from(self.next_hops) + 1) as u16;
        let next_hop = NextHopIndex::new(number);
        let kind = self.random.below(3);
        let again = self.prefixes.is_empty() || (kind == 1 && self.random.below(2) == 0);
        if again && !self.withdrawn.is_empty() {
            let place = self.random.below(self.withdrawn.len() as u64) as usize;
            let prefix = self.withdrawn.swap_remove(place);
            self.prefixes.push(prefix);
            return (prefix, next_hop);
        }
        let place = self.random.below(self.prefixes.len() as u64) as usize;
        let prefix = self.prefixes[place];
        match kind {
            0 => {
                self.prefixes.swap_remove(place);
                self.withdrawn.push(prefix);
                (prefix, None)
            }
            1 => {
                let near = match prefix {
                    IpNet::V4(prefix) => near::<u32>(prefix, &mut self.random).into(),
                    IpNet::V6(prefix) => near::<u128>(prefix, &mut self.random).into(),
                };
                self.prefixes.push(near);
                (near, next_hop)
            }
            _ => (prefix, next_hop),
        }
    }

    /// Applies and publishes one batch.
    fn publish(&mut self, steps: &[(IpNet, Option<NextHopIndex>)], done: &mut Done) -> Result<()> {
        for &(prefix, after) in steps {
            let before = match prefix {
                IpNet::V4(prefix) => self.fib.rib4(MAIN).and_then(|rib| rib.get(prefix)),
                IpNet::V6(prefix) => self.fib.rib6(MAIN).and_then(|rib| rib.get(prefix)),
            };
            let (result, counter) = match (before, after) {
                // A prefix drawn twice, and withdrawn already.
                (None, None) => continue,
                (None, Some(after)) => (self.fib.insert(MAIN, prefix, after), &mut done.announced),
                (Some(_), Some(after)) => (self.fib.replace(MAIN, prefix, after), &mut done.changed),
                (Some(_), None) => (self.fib.remove(MAIN, prefix), &mut done.withdrawn),
            };
            match result {
                Ok(_) => {
                    *counter += 1;
                    self.before.push((prefix, before));
                }
                Err(EditError::Table(_)) => done.refused += 1,
                Err(error) => {
                    return Err(error).with_context(|| format!("cannot change the route to {prefix}"));
                }
            }
        }
        let begin = Instant::now();
        self.fib.publish();
        done.longest_publication = done.longest_publication.max(begin.elapsed());
        done.batches += 1;
        Ok(())
    }
}

/// A prefix around or inside `prefix`, up to two bits shorter and eight longer.
fn near<A: Family>(prefix: A::Net, random: &mut SplitMix64) -> A::Net {
    let (network, length) = A::parts(prefix);
    let shortest = length.saturating_sub(2);
    let longest = (length + 8).min(A::BITS);
    let chosen = shortest + random.below(u64::from(longest - shortest) + 1) as u8;
    let address = network | random_bits::<A>(A::BITS - length, random);
    A::net(address & A::mask(chosen), chosen)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;
    use fib::NextHop;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn fib(prefixes: &[&str]) -> Fib<u16> {
        let mut fib = Fib::new().unwrap();
        for number in 1..=3 {
            fib.next_hops_mut().add(NextHop::Forward(number)).unwrap();
        }
        for prefix in prefixes {
            fib.insert(MAIN, prefix.parse().unwrap(), NextHopIndex::new(2).unwrap()).unwrap();
        }
        fib.publish();
        fib
    }

    fn routes(fib: &Fib<u16>) -> BTreeMap<IpNet, u16> {
        let ipv4 =
            fib.rib4(MAIN).unwrap().iter().map(|found| (IpNet::from(found.prefix), found.next_hop.get()));
        let ipv6 =
            fib.rib6(MAIN).unwrap().iter().map(|found| (IpNet::from(found.prefix), found.next_hop.get()));
        ipv4.chain(ipv6).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        /// Whatever the changes were, taking them back gives the routes from before.
        #[test]
        fn all_changes_are_taken_back(seed: u64, count in 0usize..3000) {
            let mut fib = fib(&["10.0.0.0/8", "10.9.0.0/16", "192.0.2.1/32", "0.0.0.0/0", "2001:db8::/32"]);
            let original = routes(&fib);
            let mut churn = Churn::new(&mut fib, 3, seed);
            let done = churn.change(count, &mut |_| {}).unwrap();
            prop_assert!(done.changes() <= count && done.refused == 0);
            prop_assert_eq!(done.batches == 0, count == 0);
            if count > 100 {
                prop_assert!(done.withdrawn > 0 && done.announced > 0 && done.changed > 0, "{:?}", done);
                prop_assert_ne!(&routes(churn.fib()), &original);
            }
            let back = churn.take_back(&mut |_| {}).unwrap();
            prop_assert_eq!(back.changes(), done.changes());
            prop_assert_eq!(routes(&fib), original);
        }
    }

    #[test]
    fn a_new_prefix_is_near_the_old() {
        let mut random = SplitMix64::new(1);
        let prefix: ipnet::Ipv4Net = "10.9.0.0/28".parse().unwrap();
        let lengths: std::collections::BTreeSet<u8> = (0..1000)
            .map(|_| {
                let near = near::<u32>(prefix, &mut random);
                assert!(near.contains(&prefix) || prefix.contains(&near), "{near}");
                assert_eq!(near, near.trunc());
                near.prefix_len()
            })
            .collect();
        assert_eq!(lengths, (26..=32).collect());
        assert!(near::<u32>("0.0.0.0/0".parse().unwrap(), &mut random).prefix_len() <= 8);
    }
}
