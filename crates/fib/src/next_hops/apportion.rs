//! How many buckets of a group each member gets: Webster's method of apportionment (Sainte-Laguë), which parliaments
//! use for the same problem. Nothing in this file knows buckets or next hops.
//!
//! # The method
//!
//! Seat number *k* (1, 2, ...) of a member of weight *w* has the price (2k - 1) / w. The N seats of the house go to the
//! N cheapest. Equivalently: there is a divisor d with each count = w / d, rounded to the nearest whole.
//!
//! # Why this method
//!
//! Prices of a member depend on nobody else. So when a member leaves, the cheapest N seats of those who stay contain all
//! that they had: **nobody who stays loses a seat**, and only the seats of the one who left change hands. When a member
//! comes, the others can only lose, and only to it. The same holds for one changed weight. Methods that round each
//! share up or down on its own (largest remainder) lack this: there, a member who stays can lose a seat because another
//! one left, and flows would move for nothing.
//!
//! Ties go to who has the seat now, which makes all of the above exact, and each change the smallest possible.
//!
//! # How near the ideal
//!
//! Let n members have weights w_i with sum W, let p_i = w_i / W, and let the ideal share be N p_i. Every count is
//! w_i / d + e_i with |e_i| <= 1/2, and the counts add up to N, so count_i - N p_i = e_i (1 - p_i) - p_i (sum of the
//! other e), and hence
//!
//! ```text
//! |count_i - N p_i|  <=  (1 + p_i (n - 2)) / 2
//! ```
//!
//! which is less than one seat for equal weights, for up to three members, and for every member with less than an
//! (n - 2)th of the weight. Only a member that outweighs the average of many others may be further off: by that many
//! seats, of the many that it has. (No method does better for everyone *and* keeps the promise of the last section:
//! Balinski and Young, "Fair Representation", 1982: methods free of population paradoxes can miss the quota.)
//!
//! The lower end of this bound also makes it fast: each member starts with as many seats as it is sure to get, which
//! leaves fewer than n seats to give one by one.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// A member of the house.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    /// The weight; 0 gets nothing.
    pub(super) weight: u16,
    /// The seats it has now.
    pub(super) held: u32,
    /// The seats it gets: the answer.
    pub(super) target: u32,
}

/// The next seat of a member, ordered so that the cheapest is the greatest.
#[derive(Clone, Copy, Debug)]
pub(super) struct NextSeat {
    claim: u32,
    weight: u32,
    taken: u32,
    held: u32,
}

impl Ord for NextSeat {
    fn cmp(&self, other: &NextSeat) -> Ordering {
        // (2 taken + 1) / weight, compared without division. At most 2^18 * 2^8.
        let mine = u64::from(2 * self.taken + 1) * u64::from(other.weight);
        let theirs = u64::from(2 * other.taken + 1) * u64::from(self.weight);
        let has_it = self.taken < self.held;
        let other_has_it = other.taken < other.held;
        theirs.cmp(&mine).then(has_it.cmp(&other_has_it)).then(other.claim.cmp(&self.claim))
    }
}

impl PartialOrd for NextSeat {
    fn partial_cmp(&self, other: &NextSeat) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for NextSeat {
    fn eq(&self, other: &NextSeat) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for NextSeat {}

/// Sets the `target` of every claim, so that they add up to `seats`. At least one claim must have a weight. `heap` is
/// memory to work in.
pub(super) fn apportion(seats: u32, claims: &mut [Claim], heap: &mut BinaryHeap<NextSeat>) {
    let total: i64 = claims.iter().map(|claim| i64::from(claim.weight)).sum();
    let members = claims.iter().filter(|claim| claim.weight > 0).count() as i64;
    debug_assert!(total > 0, "a house needs a member");
    let mut left = seats;
    let mut entries = std::mem::take(heap).into_vec();
    entries.clear();
    for (number, claim) in claims.iter_mut().enumerate() {
        claim.target = 0;
        if claim.weight == 0 {
            continue;
        }
        // The bound of the essay times 2W: 2 N w - (W + w (n - 2)), rounded up to whole seats.
        let weight = i64::from(claim.weight);
        let sure = 2 * i64::from(seats) * weight - total - weight * (members - 2);
        claim.target = ((sure + 2 * total - 1) / (2 * total)).max(0) as u32;
        left -= claim.target;
        entries.push(NextSeat {
            claim: number as u32,
            weight: u32::from(claim.weight),
            taken: claim.target,
            held: claim.held,
        });
    }
    *heap = BinaryHeap::from(entries);
    for _ in 0..left {
        let mut cheapest = heap.peek_mut().expect("a house has a member");
        cheapest.taken += 1;
        claims[cheapest.claim as usize].target += 1;
        // Here the heap puts it where its new price belongs.
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn claims(weights: &[u16], held: &[u32]) -> Vec<Claim> {
        weights.iter().zip(held).map(|(&weight, &held)| Claim { weight, held, target: 0 }).collect()
    }

    fn targets(seats: u32, weights: &[u16], held: &[u32]) -> Vec<u32> {
        let mut claims = claims(weights, held);
        apportion(seats, &mut claims, &mut BinaryHeap::new());
        claims.iter().map(|claim| claim.target).collect()
    }

    /// The method as the essay words it: sort all seats by price.
    fn by_sorting(seats: u32, weights: &[u16], held: &[u32]) -> Vec<u32> {
        let mut prices = Vec::new();
        for (member, &weight) in weights.iter().enumerate().filter(|(_, weight)| **weight > 0) {
            for seat in 0..seats {
                prices.push((seat, u64::from(weight), seat >= held[member], member));
            }
        }
        prices.sort_by(|a, b| {
            let (mine, theirs) = (u64::from(2 * a.0 + 1) * b.1, u64::from(2 * b.0 + 1) * a.1);
            mine.cmp(&theirs).then(a.2.cmp(&b.2)).then(a.3.cmp(&b.3))
        });
        let mut counts = vec![0; weights.len()];
        prices[..seats as usize].iter().for_each(|price| counts[price.3] += 1);
        counts
    }

    #[test]
    fn shares_follow_weights_and_ties_stay_where_they_are() {
        assert_eq!(targets(64, &[1, 1], &[0, 0]), [32, 32]);
        assert_eq!(targets(128, &[1, 2], &[0, 0]), [43, 85]);
        assert_eq!(targets(64, &[1, 1, 1], &[0, 0, 22]), [21, 21, 22]);
        assert_eq!(targets(64, &[1, 0, 1], &[0, 64, 0]), [32, 0, 32]);
    }

    proptest! {
        #[test]
        fn the_cheapest_seats_are_taken(
            members in prop::collection::vec((0u16..=256, 0u32..40), 1..12), seats in 1u32..200
        ) {
            let (weights, held): (Vec<u16>, Vec<u32>) = members.into_iter().unzip();
            prop_assume!(weights.iter().any(|&weight| weight > 0));
            prop_assert_eq!(targets(seats, &weights, &held), by_sorting(seats, &weights, &held));
        }

        #[test]
        fn counts_are_as_near_the_ideal_as_the_essay_promises(
            weights in prop::collection::vec(1u16..=256, 1..100), order in 0u32..14
        ) {
            let seats = 1i64 << order;
            let counts = targets(seats as u32, &weights, &vec![0; weights.len()]);
            let total: i64 = weights.iter().map(|&weight| i64::from(weight)).sum();
            prop_assert_eq!(counts.iter().map(|&count| i64::from(count)).sum::<i64>(), seats);
            for (&weight, &count) in weights.iter().zip(&counts) {
                let off = (i64::from(count) * total - seats * i64::from(weight)).abs();
                prop_assert!(2 * off <= total + i64::from(weight) * (weights.len() as i64 - 2));
            }
        }
    }
}
