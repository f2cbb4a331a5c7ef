//! What happens to a packet: it is forwarded, or it ends here in one of eight ways. The names are those of Linux's
//! route types (`ip route add blackhole ...`, `include/uapi/linux/rtnetlink.h`), so that a mirrored table reads the
//! same on both sides.

use std::fmt;

/// A single next hop. `P` is what forwarding needs to know: an [`Adjacency`](crate::Adjacency) where frames leave
/// by a port, or a gateway and an output in a lookup element.
///
/// The default is [`NextHop::NoRoute`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum NextHop<P> {
    /// There is no route. The packet is dropped, with the ICMP error "network unreachable" (RFC 1812, 5.2.7.1).
    #[default]
    NoRoute,
    /// The packet goes out as `P` says.
    Forward(P),
    /// Dropped without a word.
    Blackhole,
    /// Dropped with the ICMP error "host unreachable". Also what a failed next hop without a backup becomes.
    Unreachable,
    /// Dropped with the ICMP error "communication administratively prohibited".
    Prohibit,
    /// For this router itself.
    Local,
    /// For all hosts of an attached network, this router among them.
    Broadcast,
    /// For the slow path: a route that the fast path cannot do.
    Punt,
    /// The neighbour is on the link of this port, and its link address is to be resolved first.
    Resolve(u16),
}

impl<P> NextHop<P> {
    /// What forwarding needs to know, if the packet is forwarded.
    #[inline]
    pub const fn forward(&self) -> Option<&P> {
        match self {
            NextHop::Forward(adjacency) => Some(adjacency),
            _ => None,
        }
    }
}

/// `via` and what `P` prints, or the name of the route type as `ip route` prints it.
impl<P: fmt::Display> fmt::Display for NextHop<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NextHop::NoRoute => f.pad("no route"),
            NextHop::Forward(adjacency) => write!(f, "via {adjacency}"),
            NextHop::Blackhole => f.pad("blackhole"),
            NextHop::Unreachable => f.pad("unreachable"),
            NextHop::Prohibit => f.pad("prohibit"),
            NextHop::Local => f.pad("local"),
            NextHop::Broadcast => f.pad("broadcast"),
            NextHop::Punt => f.pad("punt"),
            NextHop::Resolve(port) => write!(f, "neighbour to resolve, port {port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_read_the_names_of_linux() {
        assert_eq!(NextHop::Forward("10.0.0.1 output 3").to_string(), "via 10.0.0.1 output 3");
        assert_eq!(NextHop::<u8>::Prohibit.to_string(), "prohibit");
        assert_eq!(NextHop::<u8>::default().to_string(), "no route");
        assert_eq!(format!("{:>12}", NextHop::<u8>::Unreachable), " unreachable");
    }

    #[test]
    fn only_a_forwarding_next_hop_has_something_to_forward_by() {
        assert_eq!(NextHop::Forward(7).forward(), Some(&7));
        assert_eq!(NextHop::<u8>::Local.forward(), None);
    }
}
