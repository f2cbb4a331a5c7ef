//! From the routes of a file to those that a router forwards by: each target gets the number of a next hop. What
//! `ip route` prints has next hops, and each of them gets a number of its own. Tables of prefixes and origins have none;
//! there, as in a lookup element with `FILE` and 64 next hops in `VIA`, a hash of the origin chooses one.

use std::collections::HashMap;

use anyhow::{Context, Result};
use fib::{NextHopIndex, Rib, synthesize};
use ipnet::IpNet;

use super::route::{Route, Target};

/// How many next hops the origins are spread over: the neighbours of a well-connected router.
const DRAWN: u16 = 64;

/// Where next hops come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextHops {
    /// The file has none; a hash of the origin chooses one of [`DRAWN`].
    Drawn,
    /// The file has so many.
    Own(u16),
}

impl NextHops {
    /// The highest number.
    pub(super) fn count(self) -> u16 {
        match self {
            NextHops::Drawn => DRAWN,
            NextHops::Own(count) => count,
        }
    }

    /// For people.
    pub(super) fn text(self) -> String {
        match self {
            NextHops::Drawn => format!("{DRAWN} next hops, drawn by a hash of the origin"),
            NextHops::Own(1) => "1 next hop of the file".to_owned(),
            NextHops::Own(count) => format!("{count} next hops of the file"),
        }
    }

    /// For programs.
    pub(super) fn json(self) -> &'static str {
        match self {
            NextHops::Drawn => "drawn",
            NextHops::Own(_) => "file",
        }
    }
}

/// Routes by number of their next hop.
pub(super) struct Ribs {
    pub(super) ipv4: Rib<u32>,
    pub(super) ipv6: Rib<u128>,
    pub(super) next_hops: NextHops,
}

/// The routes of a file, which has no prefix twice.
///
/// # Errors
///
/// If they have more different next hops than there are numbers.
pub(super) fn ribs(routes: &[Route]) -> Result<Ribs> {
    let mut ribs = Ribs { ipv4: Rib::new(), ipv6: Rib::new(), next_hops: NextHops::Drawn };
    let mut numbers: HashMap<String, NextHopIndex> = HashMap::new();
    for Route { prefix, target } in routes {
        let number = match target {
            Target::Origin(origin) => synthesize::next_hop_of_origin(*origin, DRAWN),
            Target::Ways(_) => own_number(&mut numbers, target)?,
        };
        match *prefix {
            IpNet::V4(prefix) => ribs.ipv4.insert(prefix, number)?,
            IpNet::V6(prefix) => ribs.ipv6.insert(prefix, number)?,
        };
    }
    if !numbers.is_empty() {
        ribs.next_hops = NextHops::Own(numbers.len() as u16);
    }
    Ok(ribs)
}

/// The number of a next hop of the file, from 1 in the order in which they come.
fn own_number(numbers: &mut HashMap<String, NextHopIndex>, target: &Target) -> Result<NextHopIndex> {
    let name = target.next_hop();
    if let Some(&number) = numbers.get(&name) {
        return Ok(number);
    }
    let number = u16::try_from(numbers.len() + 1).ok().and_then(NextHopIndex::new);
    let number = number.with_context(|| {
        format!(
            "'{name}' is one next hop too many; a table can have {} different ones",
            NextHopIndex::MAX.get()
        )
    })?;
    numbers.insert(name, number);
    Ok(number)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;
    use fib::read::{Hop, IpRoute, RouteKind};

    fn way(prefix: &str, via: std::net::Ipv4Addr) -> Route {
        let hops = vec![Hop { via: Some(via.into()), device: None, weight: 1 }];
        let prefix = prefix.parse().unwrap();
        let kind = RouteKind::Unicast;
        let route = IpRoute { prefix, kind, hops, table: None, metric: 7, protocol: None };
        Route { prefix, target: Target::Ways(Box::new(route)) }
    }

    #[test]
    fn routes_by_the_same_next_hop_share_its_number() {
        let [one, two] = ["192.0.2.1", "192.0.2.2"].map(|address| address.parse().unwrap());
        let routes = [way("10.0.0.0/8", one), way("10.1.0.0/16", two), way("10.2.0.0/16", one)];
        let ribs = ribs(&routes).unwrap();
        assert_eq!(ribs.next_hops, NextHops::Own(2));
        let numbers: Vec<u16> = ribs.ipv4.iter().map(|found| found.next_hop.get()).collect();
        assert_eq!(numbers, [1, 2, 1]);
    }

    #[test]
    fn origins_are_spread_over_the_next_hops() {
        let prefix = |i: u32| ipnet::Ipv4Net::new((i << 8).into(), 24).unwrap();
        let routes: Vec<Route> =
            (0..1000).map(|i| Route { prefix: prefix(i).into(), target: Target::Origin(i) }).collect();
        let ribs = ribs(&routes).unwrap();
        let numbers: std::collections::BTreeSet<u16> =
            ribs.ipv4.iter().map(|found| found.next_hop.get()).collect();
        assert_eq!((numbers.first(), numbers.last(), numbers.len()), (Some(&1), Some(&64), 64));
    }

    #[test]
    fn there_are_no_more_next_hops_than_numbers() {
        let way = |i: u32| way(&format!("{}/32", std::net::Ipv4Addr::from(i)), i.into());
        let mut routes: Vec<Route> = (0..32_767).map(way).collect();
        assert_eq!(ribs(&routes).unwrap().next_hops.count(), 32_767);
        routes.push(way(32_767));
        let error = ribs(&routes).err().unwrap().to_string();
        assert!(error.starts_with("'via 0.0.127.255' is one next hop too many"), "{error}");
    }
}
