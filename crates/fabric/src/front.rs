//! Which routing node a flow belongs to, at a node that does not route itself (two-stage clusters).
//!
//! Flows fall into buckets by their hash; each bucket belongs to a node, in the proportion of the weights. When a node leaves,
//! only its buckets move; when one joins, only those that it gets. So flows stay on their node, and its caches and state
//! (translations, say) stay theirs.
//!
//! Routing nodes may be specialised ([`Fronts`]). The flows of a class are divided among the nodes that serve it, all other flows among
//! the general nodes, which serve none. Every routing node can route every packet, so nothing is dropped while one of them is there:
//! without a node that serves it a class goes where the general nodes would have it, and without a general node the others stand in.

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
    /// Parts that a node's share is counted in.
    pub const PARTS: usize = BUCKETS;

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

    /// How many of [`Front::PARTS`] of the flows `node` has.
    pub fn share(&self, node: NodeId) -> usize {
        self.owners.iter().filter(|owner| **owner == Some(node)).count()
    }
}

/// A routing node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutingNode<C> {
    /// Which it is.
    pub node: NodeId,
    /// Its part of the flows, in proportion to those of the others.
    pub weight: u32,
    /// The classes that it is specialised for; none at a general node.
    pub serves: Vec<C>,
}

/// The routing nodes of each class of flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fronts<C> {
    classes: Vec<(C, Front)>,
    general: Front,
}

impl<C> Default for Fronts<C> {
    fn default() -> Self {
        Fronts { classes: Vec::new(), general: Front::default() }
    }
}

impl<C: Clone + PartialEq> Fronts<C> {
    /// The classes, in the order in which the nodes of [`Fronts::divide`] name them first.
    pub fn classes(&self) -> impl ExactSizeIterator<Item = &C> {
        self.classes.iter().map(|(class, _)| class)
    }

    /// Who has the flows of a class, by its place among [`Fronts::classes`]; for all other numbers, the flows of no class.
    #[inline]
    pub fn of_class(&self, class: usize) -> &Front {
        self.classes.get(class).map_or(&self.general, |(_, front)| front)
    }

    /// Divides the flows anew among those of `nodes` that are there, and moves as few as that takes.
    pub fn divide(&mut self, nodes: &[RoutingNode<C>], is_there: impl Fn(NodeId) -> bool) {
        let there: Vec<_> = nodes.iter().filter(|known| known.weight > 0 && is_there(known.node)).collect();
        let those = |are: &dyn Fn(&RoutingNode<C>) -> bool| -> Vec<(NodeId, u32)> {
            there.iter().filter(|known| are(known)).map(|known| (known.node, known.weight)).collect()
        };
        let mut general = those(&|known| known.serves.is_empty());
        if general.is_empty() {
            general = those(&|_| true);
        }
        let general_before = self.general.clone();
        self.general.divide(&general);
        let before = std::mem::take(&mut self.classes);
        for class in nodes.iter().flat_map(|known| &known.serves) {
            if self.classes().any(|known| known == class) {
                continue;
            }
            let servers = those(&|known| known.serves.contains(class));
            // The flows of a new class were the general nodes'.
            let known = before.iter().find(|(known, _)| known == class);
            let mut front = known.map_or(&general_before, |(_, front)| front).clone();
            if servers.is_empty() {
                front.clone_from(&self.general);
            } else {
                front.divide(&servers);
            }
            self.classes.push((class.clone(), front));
        }
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
    use proptest::prelude::*;

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

    /// The names of classes.
    const CLASSES: [&str; 3] = ["dns", "voice", "backup"];

    /// A cluster: for each node its weight, what it serves, and whether it is there.
    fn clusters() -> impl Strategy<Value = Vec<Vec<(u32, Vec<bool>, bool)>>> {
        let serves = prop::collection::vec(prop::bool::weighted(0.3), CLASSES.len());
        let node = (prop_oneof![1 => Just(0), 4 => 1_u32..9], serves, prop::bool::weighted(0.8));
        prop::collection::vec(prop::collection::vec(node, 1..7), 1..6)
    }

    /// Those among whom a class's flows, or those of no class, are divided: said once more, node after node.
    fn servers(nodes: &[RoutingNode<&str>], there: &[bool], class: Option<&str>) -> Vec<(NodeId, u32)> {
        let all = nodes.iter().zip(there).filter(|(known, there)| **there && known.weight > 0);
        let pair = |known: &RoutingNode<&str>| (known.node, known.weight);
        let all: Vec<_> = all.map(|(known, _)| known).collect();
        let of_class = all.iter().filter(|known| class.is_some_and(|class| known.serves.contains(&class)));
        let general = all.iter().filter(|known| known.serves.is_empty());
        let choices = [
            of_class.map(|known| pair(known)).collect::<Vec<_>>(),
            general.map(|known| pair(known)).collect(),
            all.iter().map(|known| pair(known)).collect(),
        ];
        choices.into_iter().find(|choice| !choice.is_empty()).unwrap_or_default()
    }

    proptest! {
        #[test]
        fn each_class_has_its_servers_by_weight_and_no_change_moves_more_flows_than_it_must(steps in clusters()) {
            let mut fronts = Fronts::default();
            for step in steps {
                let there: Vec<bool> = step.iter().map(|(.., there)| *there).collect();
                let nodes: Vec<RoutingNode<&str>> = (0..).zip(&step).map(|(number, (weight, serves, _))| {
                    let serves = CLASSES.into_iter().zip(serves).filter(|(_, serves)| **serves);
                    let serves = serves.map(|(class, _)| class).collect();
                    RoutingNode { node: node(number), weight: *weight, serves }
                }).collect();
                let before = fronts.clone();
                fronts.divide(&nodes, |node| there[node.index()]);
                for class in CLASSES.into_iter().map(Some).chain([None]) {
                    let is_known = fronts.classes().any(|known| Some(*known) == class);
                    let named = class.filter(|class| nodes.iter().any(|known| known.serves.contains(class)));
                    prop_assert_eq!(is_known, named.is_some());
                    let front_of = |fronts: &Fronts<&'static str>| {
                        let place = fronts.classes().position(|known| Some(*known) == class);
                        fronts.of_class(place.unwrap_or(usize::MAX)).clone()
                    };
                    let (old, new) = (front_of(&before), front_of(&fronts));
                    let servers = servers(&nodes, &there, named);
                    let total: f64 = servers.iter().map(|(_, weight)| f64::from(*weight)).sum();
                    let mut surplus = old.owners.iter().filter(|owner| owner.is_none()).count();
                    for number in 0..7 {
                        let weight = servers.iter().find(|(known, _)| *known == node(number));
                        let exact = weight.map_or(0.0, |(_, weight)| f64::from(*weight) / total * 1024.0);
                        let share = new.share(node(number));
                        prop_assert!((share as f64 - exact).abs() < 1.0, "{share} of {exact}");
                        surplus += old.share(node(number)).saturating_sub(share);
                    }
                    let is_free = servers.is_empty();
                    prop_assert_eq!(new.owners.iter().all(Option::is_some), !is_free);
                    // A class without a server goes where the general flows go, wherever it was.
                    let has_server = |class: &str| {
                        let serves = |known: &RoutingNode<&str>| known.serves.contains(&class);
                        servers.iter().any(|(server, _)| nodes.iter().any(|known| known.node == *server && serves(known)))
                    };
                    let follows = class.is_some_and(|class| !has_server(class));
                    prop_assert!(!follows || new == fronts.general);
                    if !is_free && !follows {
                        prop_assert_eq!(moved(&old, &new), surplus);
                    }
                }
            }
        }
    }

    #[test]
    fn a_drained_or_dead_node_gives_its_flows_to_the_general_nodes_and_gets_them_back() {
        let back = |number, weight, serves: &[&'static str]| RoutingNode {
            node: node(number),
            weight,
            serves: serves.to_vec(),
        };
        let mut nodes = [back(1, 1, &[]), back(2, 1, &[]), back(3, 1, &["dns"]), back(4, 3, &["dns"])];
        let mut fronts = Fronts::default();
        fronts.divide(&nodes, |_| true);
        let whole = fronts.clone();
        assert_eq!([1, 2, 3, 4].map(|number| whole.of_class(0).share(node(number))), [0, 0, 256, 768]);
        assert_eq!([1, 2, 3, 4].map(|number| whole.of_class(1).share(node(number))), [512, 512, 0, 0]);
        fronts.divide(&nodes, |known| known.number() < 3);
        assert_eq!(fronts.of_class(0), whole.of_class(1), "a class without a server");
        nodes[2].weight = 0;
        fronts.divide(&nodes, |_| true);
        assert_eq!(fronts.of_class(0).share(node(4)), 1024);
        // Without a general node the others stand in.
        fronts.divide(&nodes, |known| known.number() == 4);
        assert_eq!(fronts.of_class(1).share(node(4)), 1024);
        fronts.divide(&nodes, |_| false);
        assert_eq!(fronts.of_class(1), &Front::default());
    }
}
