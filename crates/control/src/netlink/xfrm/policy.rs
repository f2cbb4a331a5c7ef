//! Policies as the kernel describes them.

use std::net::IpAddr;

use super::{Limits, Mark, Mode, Offload, Protocol, Selector, Usage};

/// The number of a policy; unique in its network namespace, and kept when the policy is replaced.
pub type PolicyIndex = u32;

/// A policy (`struct xfrm_userpolicy_info` and attributes).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Its number.
    pub index: PolicyIndex,
    /// Where packets meet it.
    pub direction: Direction,
    /// Its packets.
    pub selector: Selector,
    /// Its priority. The lowest number that matches a packet decides.
    pub priority: u32,
    /// What happens to its packets.
    pub action: Action,
    /// Whether a socket's own policy may be taken instead (`XFRM_POLICY_LOCALOK`).
    pub may_be_overridden: bool,
    /// Whether it matches ICMP errors, too, whose inside its selector matches (`XFRM_POLICY_ICMP`).
    pub icmp: bool,
    /// Flags that we do not know; to be treated as unknown attributes.
    pub unknown_flags: u8,
    /// How its packets are transformed, the innermost first. Without any they pass as they are.
    pub templates: Vec<Template>,
    /// The marks of its packets.
    pub mark: Mark,
    /// The number of the XFRM interface that it belongs to; 0 is none.
    pub interface_id: u32,
    /// Its table.
    pub kind: PolicyType,
    /// When it expires.
    pub limits: Limits,
    /// Since when it is there and in use; the kernel does not count a policy's packets.
    pub usage: Usage,
    /// The card that does its work.
    pub offload: Option<Offload>,
    /// Whether it has a security context (SELinux).
    pub has_security_context: bool,
    /// Attributes that we do not know, by number.
    pub unknown: Vec<u16>,
}

/// Where packets meet a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Packets to the host itself.
    In,
    /// Packets that leave: the host's own, and forwarded ones.
    Out,
    /// Packets to be forwarded, as they were received.
    Forward,
}

impl Direction {
    /// Returns `in`, `out` or `fwd`, as `ip xfrm` has it.
    pub fn word(self) -> &'static str {
        match self {
            Direction::In => "in",
            Direction::Out => "out",
            Direction::Forward => "fwd",
        }
    }
}

/// What happens to packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// They pass, transformed as templates say.
    Allow,
    /// They are dropped.
    Block,
    /// Something that we do not know.
    Other(u8),
}

/// A table of policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PolicyType {
    /// The usual one.
    Main,
    /// The one that is tried before the main one, and adds templates to it (`CONFIG_XFRM_SUB_POLICY`).
    Sub,
    /// Something that we do not know.
    Other(u8),
}

impl PolicyType {
    pub(super) fn of(number: u8) -> PolicyType {
        match number {
            0 => PolicyType::Main,
            1 => PolicyType::Sub,
            other => PolicyType::Other(other),
        }
    }
}

/// The SA that packets need: those that leave get its header, those that came have had it (`struct xfrm_user_tmpl`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// The destination of the SA, in tunnel mode; unspecified is that of the packet.
    pub destination: IpAddr,
    /// The source of the SA; unspecified is any.
    pub source: IpAddr,
    /// The SPI of the SA; 0 is any.
    pub spi: u32,
    /// The protocol of the SA.
    pub protocol: Protocol,
    /// The number of the SA; 0 is any.
    pub request_id: u32,
    /// The mode of the SA.
    pub mode: Mode,
    /// Who may share the SA.
    pub share: Share,
    /// Whether packets that came may do without.
    pub is_optional: bool,
    /// The algorithms that the SA may have.
    pub algorithms: Algorithms,
}

/// Sets of algorithms, a bit for each number of PF_KEY (RFC 2367); all bits are all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Algorithms {
    /// Hashes.
    pub authentication: u32,
    /// Ciphers.
    pub encryption: u32,
    /// Compressions.
    pub compression: u32,
}

/// Who may share an SA. The kernel keeps it and does nothing about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// All.
    Any,
    /// A session.
    Session,
    /// A user.
    User,
    /// Nobody.
    Unique,
    /// Something that we do not know.
    Other(u8),
}

impl Share {
    pub(super) fn of(number: u8) -> Share {
        match number {
            0 => Share::Any,
            1 => Share::Session,
            2 => Share::User,
            3 => Share::Unique,
            other => Share::Other(other),
        }
    }
}

/// What happens to packets that no policy matches (`ip xfrm policy setdefault`, Linux 5.15). Older kernels let them pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// To the host.
    pub input: Action,
    /// To be forwarded.
    pub forward: Action,
    /// To be sent.
    pub output: Action,
}

impl Defaults {
    /// All packets pass.
    pub const ALLOW: Defaults =
        Defaults { input: Action::Allow, forward: Action::Allow, output: Action::Allow };
}

/// A policy's place: the lowest rank that matches a packet decides. Ranks of one [`Watch`](super::Watch) are all different.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank {
    /// The policy's priority.
    pub priority: u32,
    /// Its place among those of the same priority: the older, the lower.
    pub age: u64,
}
