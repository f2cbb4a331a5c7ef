//! How prefixes of a family are written in the configuration. All else in this folder is written once for both.

use std::net::Ipv6Addr;

use fib::{Fib, FibFamily, State};
use graph::{FromArgument, names};
use ipnet::{Ipv4Net, Ipv6Net};

use super::route::Via;

/// The routes of an element and the tables made of them.
pub(super) type RouteFib<A> = Fib<Via<A>>;
/// What workers read of them.
pub(crate) type RouteState<A> = State<Via<A>>;

/// A family as routes in the configuration name it.
pub(crate) trait RouteFamily: FibFamily<Ip: FromArgument> {
    /// What an address is called in messages, with its article.
    const ADDRESS: &str;
    /// A prefix that is right.
    const PREFIX: &str;

    /// The address before the `/` of a prefix; `is_short` where zeroes at the end may be missing.
    fn parse_network(text: &str, is_short: bool) -> Option<Self>;

    /// The network that the configuration calls so, or the address; no host bits.
    fn named(name: &str) -> Option<Self::Net>;
}

/// The index of the main VRF in [`State`].
pub(super) const MAIN_INDEX: usize = 0;

impl RouteFamily for u32 {
    const ADDRESS: &str = "an IP address";
    const PREFIX: &str = "192.0.2.0/24";

    /// `18.26` before a mask is 18.26.0.0, as in Click.
    fn parse_network(text: &str, is_short: bool) -> Option<u32> {
        let mut octets = [0u8; 4];
        let mut count = 0;
        for part in text.split('.') {
            let digits = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
            // A leading zero means octal to some programs and nothing to others: it is not a number here.
            let clear = digits && (part.len() == 1 || !part.starts_with('0'));
            *octets.get_mut(count).filter(|_| clear)? = part.parse().ok()?;
            count += 1;
        }
        (is_short || count == 4).then(|| u32::from_be_bytes(octets))
    }

    fn named(name: &str) -> Option<Ipv4Net> {
        names::address(name).map(Ipv4Net::from).or_else(|| names::network(name))
    }
}

impl RouteFamily for u128 {
    const ADDRESS: &str = "an IPv6 address";
    const PREFIX: &str = "2001:db8::/32";

    fn parse_network(text: &str, _is_short: bool) -> Option<u128> {
        text.parse::<Ipv6Addr>().ok().map(u128::from)
    }

    fn named(name: &str) -> Option<Ipv6Net> {
        names::address_6(name)
            .map(Ipv6Net::from)
            .or_else(|| names::network_6(name).map(|network| network.trunc()))
    }
}
