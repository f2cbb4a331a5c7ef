//! Which routing node a flow belongs to, at a node that does not route itself (two-stage clusters).
//!
//! Flows fall into buckets by their hash; each bucket belongs to a node, in the proportion of the weights. When a node leaves,
//! only its buckets move; when one joins, only those that it gets. So flows stay on their node, and its caches and state
//! (translations, say) stay theirs.

use crate::NodeId;

/// Buckets of flows; a thousandth of the traffic is as fine as weights get.
const BUCKETS: usize = 1024;

/// The routing nodes and the flows of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Front {
    owners: Vec<Option<NodeId>>,
}

impl Default for Front {
    fn default() -> Self {
        Front { owners: vec![None; BUCKETS] }
    }
}

impl Front {
    /// The node of a flow, by its hash. `None`: there is no routing node.
    #[inline]
    pub fn node(&self, flow: u32) -> Option<NodeId> {
        self.owners[((u64::from(flow) * BUCKETS as u64) >> 32) as usize]
    }

    /// Divides the flows anew among `nodes` and their weights, and moves as few as that takes. Weights of 0 get nothing;
    /// where all are 0 nobody does. A node that stands there twice has both weights.
    pub fn divide(&mut self, nodes: &[(NodeId, u32)]) {
        let mut shares = shares(nodes);
        // Who has too much gives the surplus away; who is gone, everything.
        let mut free = Vec::new();
        for (bucket, owner) in self.owners.iter_mut().enumerate() {
            let share = shares.iter_mut().find(|(node, share)| Some(*node) == *owner && *share > 0);
            match share {
                Some((_, share)) => *share -= 1,
                None => {
                    *owner = None;
                    free.push(bucket);
                }
            }
        }
        let mut takers = shares.into_iter().flat_map(|(node, share)| std::iter::repeat_n(node, share));
        free.into_iter().for_each(|bucket| self.owners[bucket] = takers.next());
    }

    /// How many of 1024 parts of the flows `node` has.
    pub fn share(&self, node: NodeId) -> usize {
        self.owners.iter().filter(|owner| **owner == Some(node)).count()
    }
}

/// Buckets for each node, [`BUCKETS`] in all: rounded down, and the largest remainders up.
fn shares(nodes: &[(NodeId, u32)]) -> Vec<(NodeId, usize)> {
    let mut weights: Vec<(NodeId, u64)> = Vec::new();
    for &(node, weight) in nodes {
        match weights.iter_mut().find(|(other, _)| *other == node) {
            Some((_, sum)) => *sum += u64::from(weight),
            None => weights.push((node, weight.into())),
        }
    }
    weights.sort_unstable();
    let total: u64 = weights.iter().map(|(_, weight)| weight).sum();
    if total == 0 {
        return Vec::new();
    }
    let exact = |weight: u64| u128::from(weight) * BUCKETS as u128;
    let mut shares: Vec<_> =
        weights.iter().map(|&(node, weight)| (node, (exact(weight) / u128::from(total)) as usize)).collect();
    let mut rest: Vec<usize> = (0..shares.len()).collect();
    rest.sort_by_key(|&index| std::cmp::Reverse(exact(weights[index].1) % u128::from(total)));
    let missing = BUCKETS - shares.iter().map(|(_, share)| share).sum::<usize>();
    rest.into_iter().take(missing).for_each(|index| shares[index].1 += 1);
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u16) -> NodeId {
        NodeId::new(number).unwrap()
    }

    fn moved(before: &Front, after: &Front) -> usize {
        before.owners.iter().zip(&after.owners).filter(|(before, after)| before != after).count()
    }

    #[test]
    fn shares_are_the_weights() {
        let mut front = Front::default();
        assert_eq!(front.node(7), None);
        front.divide(&[(node(1), 1), (node(2), 2), (node(3), 1), (node(4), 0)]);
        assert_eq!([1, 2, 3, 4].map(|number| front.share(node(number))), [256, 512, 256, 0]);
        front.divide(&[(node(1), 1), (node(2), 1), (node(3), 1)]);
        assert_eq!([1, 2, 3].map(|number| front.share(node(number))), [342, 341, 341]);
    }

    #[test]
    fn who_leaves_takes_nobody_elses_flows_along() {
        let all = [(node(1), 1), (node(2), 1), (node(3), 1)];
        let mut front = Front::default();
        front.divide(&all);
        let before = front.clone();
        front.divide(&all[..2]);
        assert_eq!(moved(&before, &front), before.share(node(3)));
        let without = front.clone();
        front.divide(&all);
        assert_eq!(moved(&without, &front), front.share(node(3)));
        front.divide(&all);
        front.divide(&[]);
        assert_eq!(front, Front::default());
    }
}
