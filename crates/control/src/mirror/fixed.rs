//! Destinations that no route may change: they are in every table of the FIB, and hide what sources say inside them.
//!
//! | destinations | what happens | why |
//! | --- | --- | --- |
//! | 0.0.0.0/8, 127.0.0.0/8, ::1 | dropped | "this network" and loopback are never forwarded, RFC 1812 5.3.7, RFC 4291 2.5.3 |
//! | 224.0.0.0/4, ff00::/8 | punted | the kernel answers and routes multicast |
//! | 255.255.255.255 | broadcast | for the hosts of the link, RFC 1812 5.3.5.1 |
//! | fe80::/10 | punted, but for the host's own | never forwarded, RFC 4291 2.5.6 |

use super::hops::{BLACKHOLE, BROADCAST, PUNT};
use crate::change::RouteKind;
use fib::NextHopIndex;
use ipnet::IpNet;

/// A destination with what happens to its packets.
struct Fixed {
    prefix: &'static str,
    next_hop: NextHopIndex,
}

const FIXED: [Fixed; 7] = [
    Fixed { prefix: "0.0.0.0/8", next_hop: BLACKHOLE },
    Fixed { prefix: "127.0.0.0/8", next_hop: BLACKHOLE },
    Fixed { prefix: "224.0.0.0/4", next_hop: PUNT },
    Fixed { prefix: "255.255.255.255/32", next_hop: BROADCAST },
    Fixed { prefix: "::1/128", next_hop: BLACKHOLE },
    Fixed { prefix: "fe80::/10", next_hop: PUNT },
    Fixed { prefix: "ff00::/8", next_hop: PUNT },
];

/// The routes that every table of the FIB begins with.
pub(super) fn routes() -> impl Iterator<Item = (IpNet, NextHopIndex)> {
    FIXED.iter().map(|fixed| {
        let prefix = fixed.prefix.parse().expect("the prefixes of the list are prefixes");
        (prefix, fixed.next_hop)
    })
}

/// Whether exactly this prefix has a fixed route.
pub(super) fn is_fixed(prefix: IpNet) -> bool {
    // Other prefixes are distinguished without a look at the list.
    hides(prefix, RouteKind::Unicast) && routes().any(|(fixed, _)| fixed == prefix)
}

/// Whether a route of a source has no say, because its destinations are fixed.
pub(super) fn hides(prefix: IpNet, kind: RouteKind) -> bool {
    match prefix {
        IpNet::V4(prefix) => {
            let (address, length) = (u32::from(prefix.addr()), prefix.prefix_len());
            match address >> 24 {
                0 | 127 => length >= 8,
                224..=239 => length >= 4,
                _ => address == u32::MAX && length == 32,
            }
        }
        IpNet::V6(prefix) => {
            let (address, length) = (u128::from(prefix.addr()), prefix.prefix_len());
            let is_own = matches!(kind, RouteKind::Local | RouteKind::Anycast);
            match address >> 118 {
                0x3fa => length == 10 || (length > 10 && !is_own),
                0x3fc.. => length >= 8,
                _ => address == 1 && length == 128,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_inside_a_fixed_destination_is_hidden_and_nothing_else() {
        let hides = |prefix: &str, kind| super::hides(prefix.parse().unwrap(), kind);
        for (prefix, _) in routes() {
            assert!(super::hides(prefix, RouteKind::Unicast), "{prefix}");
        }
        let inside = ["127.0.0.1/32", "0.1.0.0/16", "239.1.0.0/16", "ff02::1/128", "fe80::/64"];
        assert!(inside.iter().all(|prefix| hides(prefix, RouteKind::Unicast)));
        let outside =
            ["0.0.0.0/0", "0.0.0.0/1", "126.0.0.0/7", "224.0.0.0/3", "240.0.0.0/4", "255.255.255.254/32"];
        assert!(outside.iter().all(|prefix| !hides(prefix, RouteKind::Unicast)));
        let outside = ["::/0", "::/127", "fec0::/10", "fe00::/9", "fe00::/7", "::2/128", "2001:db8::/32"];
        assert!(outside.iter().all(|prefix| !hides(prefix, RouteKind::Unicast)));
        assert!(!hides("fe80::1/128", RouteKind::Local) && !hides("fe80::/128", RouteKind::Anycast));
        assert!(hides("127.0.0.1/32", RouteKind::Local) && hides("::1/128", RouteKind::Local));
    }
}
