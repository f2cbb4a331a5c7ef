//! What differs between IPv4 and IPv6 in route lookup: the annotation, the table, and how addresses are written. All
//! else in this folder is written once for both.

use std::fmt::Display;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use fib::{Address, Byte24, EditError, Fib, MAIN, RangeTree, Rib, State, Table};
use graph::{FromArgument, names};
use ipnet::{Ipv4Net, Ipv6Net};
use packet::Annotations;

use super::route::Via;

/// The routes of an element and the tables made of them.
pub(super) type RouteFib<A> = Fib<Via<A>>;
/// What workers read of them.
pub(super) type RouteState<A> = State<Via<A>>;

/// `u32` (IPv4) or `u128` (IPv6), addresses in host order.
pub(super) trait Family: Address {
    /// An address as people write it.
    type Ip: Copy + Display + FromArgument + FromStr + From<Self> + Into<Self>;
    /// The compiled table.
    type Table: Table<Self>;
    /// What an address is called in messages, with its article.
    const ADDRESS: &str;
    /// A prefix that is right.
    const PREFIX: &str;

    /// The address before the `/` of a prefix; `is_short` where zeroes at the end may be missing.
    fn parse_network(text: &str, is_short: bool) -> Option<Self>;

    /// The network that the configuration calls so, or the address; no host bits.
    fn named(name: &str) -> Option<Self::Net>;

    /// Where the packet goes next.
    fn destination(annotations: &Annotations) -> Self;

    /// Sets where the packet goes next.
    fn set_destination(annotations: &mut Annotations, address: Self);

    /// The table of the main VRF, the only one that elements have.
    fn table(state: &RouteState<Self>) -> Option<&Self::Table>;

    /// The routes of the main VRF.
    fn rib(fib: &RouteFib<Self>) -> Option<&Rib<Self>>;

    /// Takes all routes from `rib`.
    fn load(fib: &mut RouteFib<Self>, rib: Rib<Self>) -> Result<(), EditError>;
}

/// The index of the main VRF in [`State`].
const MAIN_INDEX: usize = 0;

impl Family for u32 {
    type Ip = Ipv4Addr;
    type Table = Byte24;
    const ADDRESS: &str = "an IP address";
    const PREFIX: &str = "192.0.2.0/24";

    /// `18.26` before a mask is 18.26.0.0, as in Click.
    fn parse_network(text: &str, is_short: bool) -> Option<u32> {
        let mut octets = [0u8; 4];
        let mut count = 0;
        for part in text.split('.') {
            let digits = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
            // A leading zero means octal to some programs and nothing to others: it is no number here.
            let clear = digits && (part.len() == 1 || !part.starts_with('0'));
            *octets.get_mut(count).filter(|_| clear)? = part.parse().ok()?;
            count += 1;
        }
        (is_short || count == 4).then(|| u32::from_be_bytes(octets))
    }

    fn named(name: &str) -> Option<Ipv4Net> {
        names::address(name).map(Ipv4Net::from).or_else(|| names::network(name))
    }

    #[inline(always)]
    fn destination(annotations: &Annotations) -> u32 {
        annotations.destination_ip()
    }

    #[inline(always)]
    fn set_destination(annotations: &mut Annotations, address: u32) {
        annotations.set_destination_ip(address);
    }

    #[inline(always)]
    fn table(state: &RouteState<u32>) -> Option<&Byte24> {
        state.ipv4(MAIN_INDEX)
    }

    fn rib(fib: &RouteFib<u32>) -> Option<&Rib<u32>> {
        fib.rib4(MAIN)
    }

    fn load(fib: &mut RouteFib<u32>, rib: Rib<u32>) -> Result<(), EditError> {
        fib.load4(MAIN, rib)
    }
}

impl Family for u128 {
    type Ip = Ipv6Addr;
    type Table = RangeTree;
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

    #[inline(always)]
    fn destination(annotations: &Annotations) -> u128 {
        annotations.destination_ip6()
    }

    #[inline(always)]
    fn set_destination(annotations: &mut Annotations, address: u128) {
        annotations.set_destination_ip6(address);
    }

    #[inline(always)]
    fn table(state: &RouteState<u128>) -> Option<&RangeTree> {
        state.ipv6(MAIN_INDEX)
    }

    fn rib(fib: &RouteFib<u128>) -> Option<&Rib<u128>> {
        fib.rib6(MAIN)
    }

    fn load(fib: &mut RouteFib<u128>, rib: Rib<u128>) -> Result<(), EditError> {
        fib.load6(MAIN, rib)
    }
}
