//! What happens at a time: a packet's arrival somewhere, with the packet in it; or a hello's.

/// One event, of 40 bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Event {
    /// When.
    pub(crate) at_ps: u64,
    /// When the packet came in by its port.
    pub(crate) entered_ps: u64,
    /// The packet's flow; of a hello, its place among those on their way.
    pub(crate) flow: u32,
    /// The packet's number in its flow, from 1.
    pub(crate) sequence: u32,
    pub(crate) bytes: u16,
    /// Where it happens.
    pub(crate) node: u16,
    /// The number that the link it comes by has there.
    pub(crate) link: u16,
    pub(crate) input: u16,
    pub(crate) output: u16,
    /// The intermediate node that is still before it, or [`NOBODY`].
    pub(crate) via: u16,
    /// Of the flow's hash: chooses among parallel links.
    pub(crate) entropy: u8,
    pub(crate) kind: Kind,
}

/// No intermediate node.
pub(crate) const NOBODY: u16 = u16::MAX;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A packet comes by a node's port.
    #[default]
    Enters,
    /// A packet comes by a link.
    Comes,
    /// A packet is in a switch, before its link to `node`.
    Switch,
    /// A node says hello.
    Says,
    /// A hello comes by a link.
    Heard,
    /// A node starts again.
    Starts,
}

impl Kind {
    /// Whether a packet is on its way in the cluster.
    pub(crate) fn is_packet(self) -> bool {
        matches!(self, Kind::Comes | Kind::Switch)
    }
}
