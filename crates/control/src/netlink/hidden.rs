//! IPv6 routes that no dump tells. The kernel writes a route with several paths where the first of
//! them stands, and goes on behind the last one (net/ipv6/ip6_fib.c, `fib6_dump_node`). A route to an
//! interface, of the same prefix and metric, may stand between two of them. The dump leaves it out,
//! and Linux may forward by it.
//!
//! `/proc/net/ipv6_route` has a line for each path and each such route, without its table. So lines
//! are counted: more of them than paths and routes in a dump mean that routes are hidden.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, Ipv6Addr};

use ipnet::{IpNet, Ipv6Net};

use crate::change::{Hops, Route, RouteKey};

/// The list of this thread's network namespace.
const LIST: &str = "/proc/thread-self/net/ipv6_route";

/// Between so many lines the thread beats.
const LINES_A_BEAT: usize = 4096;

/// What the list says of a route's place: destinations, sources, metric.
pub(super) type Place = (Ipv6Net, Ipv6Net, u32);

/// Where a route with this key stands; `None` for IPv4.
pub(super) fn place(key: &RouteKey) -> Option<Place> {
    let IpNet::V6(prefix) = key.prefix else { return None };
    Some((prefix, key.from.unwrap_or_default(), key.metric))
}

/// The number of lines that a route has.
pub(super) fn lines_of(route: &Route) -> usize {
    match &route.hops {
        Hops::Paths(paths) => paths.len().max(1),
        Hops::None | Hops::Object(_) => 1,
    }
}

/// Counts the lines of these places.
pub(super) fn count(places: &mut HashMap<Place, usize>) -> io::Result<()> {
    count_in(BufReader::new(std::fs::File::open(LIST)?), places)
}

fn count_in(list: impl BufRead, places: &mut HashMap<Place, usize>) -> io::Result<()> {
    for (number, line) in list.lines().enumerate() {
        if number % LINES_A_BEAT == 0 {
            packet::pulse::beat();
        }
        if let Some(count) = place_of(&line?).and_then(|place| places.get_mut(&place)) {
            *count += 1;
        }
    }
    Ok(())
}

/// The columns, all of them hexadecimal: destination, its length, source, its length, next hop, metric.
fn place_of(line: &str) -> Option<Place> {
    let mut words = line.split_ascii_whitespace();
    let mut net = || {
        let address = u128::from_str_radix(words.next()?, 16).ok()?;
        let length = u8::from_str_radix(words.next()?, 16).ok()?;
        Ipv6Net::new(Ipv6Addr::from(address), length).ok()
    };
    let (to, from) = (net()?, net()?);
    Some((to, from, u32::from_str_radix(words.nth(1)?, 16).ok()?))
}

/// Whether IPv6 routes of a key may have hidden ones between their paths.
pub(super) fn may_hide(route: &Route) -> bool {
    matches!(route.key.prefix.addr(), IpAddr::V6(_)) && lines_of(route) > 1
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn lines_are_counted_by_their_place() {
        let line = |from: &str, metric: &str| {
            format!(
                "20010db8000900010000000000000000 40 {from} 20010db8000200000000000000000002 {metric} 00000001 00000000 \
                 00000001     eth2\n"
            )
        };
        let none = "00000000000000000000000000000000 00";
        let some = "20010db8000b00000000000000000000 30";
        let list = line(none, "00000400")
            + &line(none, "00000400")
            + &line(none, "00000064")
            + &line(some, "00000400");
        let prefix: Ipv6Net = "2001:db8:9:1::/64".parse().unwrap();
        let any = Ipv6Net::default();
        let mut places = HashMap::from([((prefix, any, 1024), 0), ((prefix, any, 7), 0)]);
        count_in((list + "another line\n").as_bytes(), &mut places).unwrap();
        assert_eq!((places[&(prefix, any, 1024)], places[&(prefix, any, 7)]), (2, 0));
    }
}
