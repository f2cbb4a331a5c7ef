//! Nodes and sets of them.

use std::fmt;

/// A server of the cluster: 0 to [`NodeId::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(u16);

impl NodeId {
    /// The highest number: ten bits of a fabric header, of which the last pattern means "none".
    pub const MAX: u16 = 1022;
    /// How many nodes a cluster has at most.
    pub const COUNT: usize = Self::MAX as usize + 1;

    /// The node of this number, if there can be one.
    pub const fn new(number: u16) -> Option<NodeId> {
        if number <= Self::MAX { Some(NodeId(number)) } else { None }
    }

    /// Its number.
    pub const fn number(self) -> u16 {
        self.0
    }

    /// Its number, as the index of a table.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The first `count` nodes.
    pub fn first(count: usize) -> impl Iterator<Item = NodeId> + Clone {
        (0..count.min(Self::COUNT) as u16).map(NodeId)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A set of nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeSet {
    words: Vec<u64>,
}

impl NodeSet {
    /// None of `count` nodes.
    pub fn none(count: usize) -> NodeSet {
        NodeSet { words: vec![0; count.div_ceil(64)] }
    }

    /// Puts `node` in. A node beyond the count is not a member of anything.
    pub fn insert(&mut self, node: NodeId) {
        if let Some(word) = self.words.get_mut(node.index() / 64) {
            *word |= 1 << (node.index() % 64);
        }
    }

    /// Takes `node` out.
    pub fn remove(&mut self, node: NodeId) {
        if let Some(word) = self.words.get_mut(node.index() / 64) {
            *word &= !(1 << (node.index() % 64));
        }
    }

    /// Whether `node` is in it.
    #[inline]
    pub fn contains(&self, node: NodeId) -> bool {
        self.words.get(node.index() / 64).is_some_and(|word| word >> (node.index() % 64) & 1 == 1)
    }

    /// How many are in it.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether nobody is in it.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    /// Its nodes, in order.
    pub fn iter(&self) -> impl Iterator<Item = NodeId> + '_ {
        NodeId::first(self.words.len() * 64).filter(|&node| self.contains(node))
    }
}

impl FromIterator<NodeId> for NodeSet {
    fn from_iter<I: IntoIterator<Item = NodeId>>(nodes: I) -> NodeSet {
        let mut set = NodeSet::none(NodeId::COUNT);
        nodes.into_iter().for_each(|node| set.insert(node));
        set
    }
}
