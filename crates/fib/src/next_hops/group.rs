//! A group: members with weights, and the power-of-two number of buckets that they share. A flow's hash picks a bucket,
//! the bucket's owner forwards the flow (resilient hashing, as in `ip nexthop add ... type resilient`, Linux 5.13).
//!
//! # Invariants
//!
//! 1. Every bucket belongs to a member that is up. If none is, the buckets are shared as if all were; nobody looks at
//!    them then (the group's entry leads elsewhere).
//! 2. Each member's number of buckets is what Webster's method gives it (`apportion.rs`): within one bucket of its ideal
//!    share for equal weights, and within the bound stated there in general. This holds after every change, not only
//!    on average or after a timer.
//! 3. A change moves as few buckets as (2) allows. So when one member goes (down, or out of the group) only its buckets
//!    change hands, spread over the others by weight; when one comes, buckets go to it and to nobody else, and no more
//!    than its share; and a change of one weight moves buckets to that member, or from it, only. A flow keeps its next
//!    hop as long as its bucket does.
//!
//! (3) follows from (2) because a seat's price depends on nobody else; the proof is in `apportion.rs`. Buckets are moved
//! by one pass over the group's array: who has more than its target gives what it meets first, and those who get take
//! turns.
//!
//! # How many buckets
//!
//! Enough that the lightest member gets 32, so that rounding is off by some 2 in 100 at most, but no more than 1,024 or
//! 32 a member, whichever is more, unless the lightest member would get none:
//!
//! | members, weights | buckets | bytes | lightest member's share in buckets |
//! | --- | --- | --- | --- |
//! | 2 equal | 64 | 128 | 32 |
//! | 3 equal | 128 | 256 | 42.7 |
//! | 8 equal | 256 | 512 | 32 |
//! | 1 and 2 | 128 | 256 | 42.7 |
//! | 1 and 256 | 1,024 | 2,048 | 4.0 |
//! | 64 equal | 2,048 | 4,096 | 32 |
//! | 512 equal | 16,384 | 32 KB | 32 |
//! | 1, and 511 of 256 | 131,072 | 256 KB | 1.0 |
//!
//! The number never shrinks in a group's life, and when it grows, the old buckets are repeated: no flow moves for it.

use super::apportion::{Claim, NextSeat, apportion};
use super::resolver::{Slot, slot_of};
use crate::NextHopIndex;
use std::collections::BinaryHeap;

/// The most members of a group, as in FRR's largest configuration.
pub(super) const MAX_MEMBERS: usize = 512;
/// The largest weight: Linux has a byte for weight - 1.
pub(super) const MAX_WEIGHT: u16 = 256;

/// A member of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The single next hop.
    pub index: NextHopIndex,
    /// Its weight, 1 to 256.
    pub weight: u16,
    /// The buckets it has at the moment; none while it is down and another member is up.
    pub buckets: u32,
}

/// How many buckets a group of these weights has at least; see the essay.
pub(super) fn buckets_for(weights: impl Iterator<Item = u16> + Clone) -> u32 {
    let members = weights.clone().count() as u32;
    let total: u32 = weights.clone().map(u32::from).sum();
    let lightest = weights.map(u32::from).min().expect("a group has members");
    let precise = (32 * total).div_ceil(lightest).next_power_of_two();
    let affordable = (32 * members).next_power_of_two().max(1024);
    // With W / w buckets and more, Webster's method gives the lightest member its first: 1 / w is no more than the
    // price of any other seat beyond those W / 2w + n / 2 that are cheaper.
    let needed = total.div_ceil(lightest).next_power_of_two();
    precise.min(affordable).max(needed)
}

/// Moves buckets so that the invariants hold. It is only memory to work in: between calls it means nothing, but that
/// `surplus` is all zero.
#[derive(Debug, Default)]
pub(super) struct Balancer {
    claims: Vec<Claim>,
    heap: BinaryHeap<NextSeat>,
    /// How many buckets the owner of a slot has to give.
    surplus: Vec<u32>,
    /// Who gets buckets, and how many.
    gainers: Vec<(Slot, u32)>,
}

impl Balancer {
    /// Works out how many buckets each member is to have: members that `up` selects, or all if none is up, and
    /// never those of weight 0, which are about to leave. Returns whether any bucket must move; then
    /// [`Balancer::rebalance`] must follow.
    pub(super) fn plan(&mut self, seats: u32, members: &mut [Member], up: &[bool]) -> bool {
        let is_up = |member: &Member| up[member.index.index()] && member.weight > 0;
        let any_up = members.iter().any(is_up);
        self.claims.clear();
        self.claims.extend(members.iter().map(|member| {
            let weight = if is_up(member) || !any_up { member.weight } else { 0 };
            Claim { weight, held: member.buckets, target: 0 }
        }));
        apportion(seats, &mut self.claims, &mut self.heap);
        self.gainers.clear();
        self.surplus.resize(up.len() + 1, 0);
        for (member, claim) in members.iter_mut().zip(&self.claims) {
            let slot = slot_of(member.index);
            if claim.target > claim.held {
                self.gainers.push((slot, claim.target - claim.held));
            } else {
                self.surplus[usize::from(slot)] = claim.held - claim.target;
            }
            member.buckets = claim.target;
        }
        !self.gainers.is_empty()
    }

    /// Moves the buckets that were planned to move.
    pub(super) fn rebalance(&mut self, buckets: &mut [Slot]) {
        let mut turn = 0;
        for bucket in buckets {
            let surplus = &mut self.surplus[usize::from(*bucket)];
            if *surplus == 0 {
                continue;
            }
            *surplus -= 1;
            let (slot, wanted) = &mut self.gainers[turn];
            *bucket = *slot;
            *wanted -= 1;
            if *wanted == 0 {
                self.gainers.swap_remove(turn);
                if self.gainers.is_empty() {
                    return;
                }
            } else {
                turn += 1;
            }
            if turn >= self.gainers.len() {
                turn = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_in_the_essay_is_right() {
        let equal = |members: usize| buckets_for(std::iter::repeat_n(1, members));
        assert_eq!([2, 3, 8, 64, 512].map(equal), [64, 128, 256, 2048, 16_384]);
        assert_eq!(buckets_for([1, 2].into_iter()), 128);
        assert_eq!(buckets_for([1, 256].into_iter()), 1024);
        let worst = std::iter::once(1).chain(std::iter::repeat_n(256, MAX_MEMBERS - 1));
        assert_eq!(buckets_for(worst), 131_072);
    }

    #[test]
    fn even_the_lightest_member_of_the_largest_group_gets_a_bucket() {
        let mut members: Vec<Member> = (1..=MAX_MEMBERS as u16)
            .map(|number| Member { index: NextHopIndex::new(number).unwrap(), weight: 256, buckets: 0 })
            .collect();
        members[17].weight = 1;
        let seats = buckets_for(members.iter().map(|member| member.weight));
        members[0].buckets = seats;
        assert!(Balancer::default().plan(seats, &mut members, &[true; MAX_MEMBERS + 1]));
        assert_eq!(members[17].buckets, 1);
    }
}
