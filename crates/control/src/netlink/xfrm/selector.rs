//! Which packets a policy or an SA is for.

use ipnet::IpNet;
use packet::IpVersion;

use crate::change::InterfaceIndex;

/// Packets that a policy or an SA is for: all conditions hold at once (`struct xfrm_selector`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Selector {
    /// The family of its packets.
    pub version: IpVersion,
    /// Where packets come from. The bits behind the prefix are as the kernel has them, and mean nothing.
    pub source: IpNet,
    /// Where packets go.
    pub destination: IpNet,
    /// Their protocol (IANA's number); 0 is all.
    pub protocol: u8,
    /// The source port; for ICMP the type, for GRE the upper half of the key.
    pub source_port: PortMatch,
    /// The destination port; for ICMP the code, for GRE the lower half of the key.
    pub destination_port: PortMatch,
    /// The interface by which packets leave; 0 is all.
    pub interface: InterfaceIndex,
    /// The user whose packets these are, which the kernel keeps and does not compare.
    pub user: u32,
}

/// A port, of which the bits in `mask` count. A mask of zero matches all ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PortMatch {
    /// The port.
    pub port: u16,
    /// The bits that count.
    pub mask: u16,
}

impl PortMatch {
    /// Returns whether this port matches.
    pub fn matches(self, port: u16) -> bool {
        (port ^ self.port) & self.mask == 0
    }
}
