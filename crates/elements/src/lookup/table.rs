//! Routes, their next hops and the table compiled from them, as one thing that changes together.
//!
//! # Which compiled table
//!
//! Cycles (TSC) a lookup in batches of 32, on one core of an AMD EPYC (Zen 5, 1 MB second-level and 32 MB shared
//! third-level cache), a default route and random prefixes of /16 to /32; destinations inside the prefixes:
//!
//! | routes | destinations | `Linear` | `Dxr18`, 1 MB | `Dir24_8`, 32 MB |
//! | --- | --- | --- | --- | --- |
//! | 4 | 4,096 | 24 | 6 | 1.4 |
//! | 9 | 65,536 | 72 | 6 | 2.0 |
//! | 64 | 65,536 | 328 | 7 | 8.5 |
//! | 1,000 | 65,536 | | 7.5 | 11 |
//! | 100,000 | 65,536 | | 22 | 23 |
//!
//! A table with a few routes is therefore a `Dxr18`: a few cycles more than the fastest, a thirty-second of the
//! memory, and compiled in 1 ms where a default route alone writes 32 MB into the other. `Linear` loses to it from
//! two routes on. Beyond [`COMPACT_ROUTES`] routes, where there is a full table or one on its way, it is `Dir24_8`:
//! 1 to 4 cycles for traffic with favourites.

use std::collections::HashMap;

use fib::{Dir24_8, Dxr18, Fib4, NextHopIndex, Rib4, Table4, TableError};
use ipnet::Ipv4Net;

use super::route::{NextHop, Route};

/// Most routes that are compiled for little memory.
const COMPACT_ROUTES: usize = 1024;

/// Which compiled table a lookup element wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Design {
    /// Small for few routes, fast for many; goes over by itself.
    BySize,
    /// DIR-24-8 from the first route on.
    Direct,
}

/// The compiled table.
enum Compiled {
    Compact(Dxr18),
    Direct(Dir24_8),
}

impl Compiled {
    fn new(design: Design, routes: usize) -> Result<Self, TableError> {
        if design == Design::BySize && routes <= COMPACT_ROUTES {
            Ok(Self::Compact(Dxr18::new()?))
        } else {
            Ok(Self::Direct(Dir24_8::new()?))
        }
    }
}

impl Table4 for Compiled {
    fn lookup(&self, address: u32) -> NextHopIndex {
        match self {
            Self::Compact(table) => table.lookup(address),
            Self::Direct(table) => table.lookup(address),
        }
    }

    #[inline]
    fn lookup_batch(&self, addresses: &[u32], next_hops: &mut [NextHopIndex]) {
        match self {
            Self::Compact(table) => table.lookup_batch(addresses, next_hops),
            Self::Direct(table) => table.lookup_batch(addresses, next_hops),
        }
    }

    fn update(&mut self, rib: &Rib4, prefix: Ipv4Net) -> Result<(), TableError> {
        match self {
            Self::Compact(_) if rib.len() > COMPACT_ROUTES => {
                let mut direct = Dir24_8::new()?;
                direct.rebuild(rib)?;
                *self = Self::Direct(direct);
                Ok(())
            }
            Self::Compact(table) => table.update(rib, prefix),
            Self::Direct(table) => table.update(rib, prefix),
        }
    }

    fn rebuild(&mut self, rib: &Rib4) -> Result<(), TableError> {
        match self {
            Self::Compact(table) => table.rebuild(rib),
            Self::Direct(table) => table.rebuild(rib),
        }
    }

    fn memory_bytes(&self) -> usize {
        match self {
            Self::Compact(table) => table.memory_bytes(),
            Self::Direct(table) => table.memory_bytes(),
        }
    }
}

/// Next hops by number. Number 0 is [`NextHop::NONE`].
#[derive(Clone, Debug)]
pub(super) struct NextHops {
    entries: Vec<NextHop>,
    numbers: HashMap<NextHop, NextHopIndex>,
    /// Numbers that no route uses any more.
    free: Vec<NextHopIndex>,
}

impl Default for NextHops {
    fn default() -> Self {
        Self { entries: vec![NextHop::NONE], numbers: HashMap::new(), free: Vec::new() }
    }
}

impl NextHops {
    /// The number of a next hop, a new one if it has none. `routes` are those that use numbers now.
    pub(super) fn number(&mut self, next_hop: NextHop, routes: &Rib4) -> Result<NextHopIndex, String> {
        if let Some(&number) = self.numbers.get(&next_hop) {
            return Ok(number);
        }
        if let Some(number) = u16::try_from(self.entries.len()).ok().and_then(NextHopIndex::new) {
            self.entries.push(next_hop);
            self.numbers.insert(next_hop, number);
            return Ok(number);
        }
        if self.free.is_empty() {
            self.collect(routes);
        }
        let number = self.free.pop().ok_or_else(|| {
            format!(
                "{} pairs of gateway and output are in use, and there can be no more",
                NextHopIndex::MAX.get()
            )
        })?;
        self.entries[number.index()] = next_hop;
        self.numbers.insert(next_hop, number);
        Ok(number)
    }

    /// Finds the numbers that no route uses.
    fn collect(&mut self, routes: &Rib4) {
        let mut used = vec![false; self.entries.len()];
        for route in routes.iter() {
            used[route.next_hop.index()] = true;
        }
        self.numbers.retain(|_, number| {
            let keep = used[number.index()];
            if !keep {
                self.free.push(*number);
            }
            keep
        });
    }
}

/// What a handler asks of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// A route for a prefix that has none.
    Add(Route),
    /// A route, whether the prefix has one or not.
    Set(Route),
    /// No route for the prefix any more; it must be this one if the next hop is given.
    Remove(Route),
}

/// A change that was made, so that it can be made again elsewhere, or undone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    prefix: Ipv4Net,
    before: Option<NextHop>,
    after: Option<NextHop>,
}

/// The routes of a lookup element, ready for packets.
pub(super) struct RouteTable {
    fib: Fib4<Compiled>,
    next_hops: NextHops,
    design: Design,
}

impl RouteTable {
    /// Compiles routes; their next hops are numbers of `next_hops`.
    pub(super) fn build(rib: Rib4, next_hops: NextHops, design: Design) -> Result<Self, TableError> {
        let compiled = Compiled::new(design, rib.len())?;
        Ok(Self { fib: Fib4::build(rib, compiled)?, next_hops, design })
    }

    /// A table of the same design without routes.
    pub(super) fn emptied(&self) -> Result<Self, TableError> {
        Self::build(Rib4::new(), NextHops::default(), self.design)
    }

    /// The same table once more; takes about a tenth of a second for a full table.
    pub(super) fn copy(&self) -> Result<Self, TableError> {
        Self::build(self.fib.rib().clone(), self.next_hops.clone(), self.design)
    }

    /// Where packets to `address` (host order) go; [`NextHop::NONE`] without a route.
    pub(super) fn lookup(&self, address: u32) -> NextHop {
        self.next_hop(self.fib.table().lookup(address))
    }

    /// Looks up many addresses; see [`Table4::lookup_batch`].
    #[inline]
    pub(super) fn lookup_batch(&self, addresses: &[u32], numbers: &mut [NextHopIndex]) {
        self.fib.table().lookup_batch(addresses, numbers);
    }

    /// The next hop of this number.
    #[inline(always)]
    pub(super) fn next_hop(&self, number: NextHopIndex) -> NextHop {
        self.next_hops.entries.get(number.index()).copied().unwrap_or(NextHop::NONE)
    }

    /// The route of exactly this prefix.
    fn get(&self, prefix: Ipv4Net) -> Option<NextHop> {
        self.fib.rib().get(prefix).map(|number| self.next_hop(number))
    }

    /// Carries out all commands, or none: the error is that of the first that is refused.
    pub(super) fn transact(&mut self, commands: &[Command]) -> Result<Vec<Change>, String> {
        let mut changes: Vec<Change> = Vec::with_capacity(commands.len());
        for (index, command) in commands.iter().enumerate() {
            match self.carry_out(command) {
                Ok(change) => changes.push(change),
                Err(error) => {
                    for change in changes.iter().rev() {
                        self.assign(change.prefix, change.before)
                            .expect("a table that held these routes holds them again");
                    }
                    return Err(if commands.len() > 1 {
                        format!("command {}: {error}", index + 1)
                    } else {
                        error
                    });
                }
            }
        }
        Ok(changes)
    }

    /// Makes changes that were made to a table with the same routes.
    pub(super) fn repeat(&mut self, changes: &[Change]) -> Result<(), String> {
        changes.iter().try_for_each(|change| self.assign(change.prefix, change.after))
    }

    fn carry_out(&mut self, command: &Command) -> Result<Change, String> {
        let (Command::Add(route) | Command::Set(route) | Command::Remove(route)) = *command;
        let prefix = route.prefix;
        let before = self.get(prefix);
        let after = match (command, before) {
            (Command::Add(_), Some(_)) => {
                let existing = Route { prefix, next_hop: before };
                return Err(format!("conflict with existing route '{existing}'"));
            }
            (Command::Add(_) | Command::Set(_), _) => route.next_hop,
            (Command::Remove(_), Some(_)) if route.next_hop.is_none() || route.next_hop == before => None,
            (Command::Remove(_), _) => return Err(format!("route '{route}' not found")),
        };
        self.assign(prefix, after)?;
        Ok(Change { prefix, before, after })
    }

    /// Gives a prefix this next hop, or none.
    fn assign(&mut self, prefix: Ipv4Net, next_hop: Option<NextHop>) -> Result<(), String> {
        let result = match next_hop {
            Some(next_hop) => {
                let number = self.next_hops.number(next_hop, self.fib.rib())?;
                self.fib.replace(prefix, number).map(|_| ())
            }
            None if self.fib.rib().get(prefix).is_some() => self.fib.remove(prefix).map(|_| ()),
            None => Ok(()),
        };
        result.map_err(|error| error.to_string())
    }

    /// All routes, one a line, in the order of their addresses, in Click's columns.
    pub(super) fn text(&self) -> String {
        use std::fmt::Write;
        let mut text = String::new();
        for route in self.fib.rib().iter() {
            let NextHop { gateway, output } = self.next_hop(route.next_hop);
            let start = text.len();
            let gateway_text =
                if gateway == 0 { "-".to_owned() } else { std::net::Ipv4Addr::from(gateway).to_string() };
            // Writing to a string does not fail.
            let _ = write!(text, "{}\t", route.prefix);
            if text.len() < start + 17 {
                text.push('\t');
            }
            let start = text.len();
            let _ = write!(text, "{gateway_text}\t");
            if text.len() < start + 9 {
                text.push('\t');
            }
            let _ = writeln!(text, "{output}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn empty(design: Design) -> RouteTable {
        RouteTable::build(Rib4::new(), NextHops::default(), design).unwrap()
    }

    fn route(text: &str) -> Route {
        Route::parse(text, 1000).unwrap()
    }

    #[test]
    fn many_routes_go_over_to_the_large_table_and_answers_stay() {
        let mut table = empty(Design::BySize);
        for number in 0..=COMPACT_ROUTES as u32 {
            assert!(matches!(table.fib.table(), Compiled::Compact(_)), "{number}");
            let prefix = Ipv4Net::new((number << 12 | 1 << 30).into(), 20).unwrap();
            let next_hop = Some(NextHop { gateway: 0, output: (number % 7) as u16 });
            table.transact(&[Command::Add(Route { prefix, next_hop })]).unwrap();
        }
        assert!(matches!(table.fib.table(), Compiled::Direct(_)));
        for number in 0..=COMPACT_ROUTES as u32 {
            let output = table.lookup(number << 12 | 1 << 30 | 0xfff).output;
            assert_eq!(output, (number % 7) as u16, "{number}");
        }
        assert_eq!(table.lookup(0), NextHop::NONE);
        assert!(matches!(empty(Design::Direct).fib.table(), Compiled::Direct(_)));
    }

    #[test]
    fn numbers_of_next_hops_that_are_gone_are_used_again() {
        let mut table = empty(Design::BySize);
        let to = |gateway| Route {
            prefix: "10.0.0.0/8".parse().unwrap(),
            next_hop: Some(NextHop { gateway, output: 0 }),
        };
        for gateway in 1..=70_000 {
            table.transact(&[Command::Set(to(gateway))]).unwrap();
            assert_eq!(table.lookup(0x0a00_0001).gateway, gateway);
        }
        assert!(table.next_hops.entries.len() <= NextHopIndex::MAX.index() + 1);
    }

    #[test]
    fn too_many_next_hops_are_refused() {
        let mut table = empty(Design::BySize);
        let to = |number: u32| {
            let prefix = Ipv4Net::new((number << 8).into(), 24).unwrap();
            Command::Add(Route { prefix, next_hop: Some(NextHop { gateway: number, output: 0 }) })
        };
        let most: Vec<Command> = (1..=32_767).map(to).collect();
        table.transact(&most).unwrap();
        let error = table.transact(&[to(40_000)]).unwrap_err();
        assert_eq!(error, "32767 pairs of gateway and output are in use, and there can be no more");
        assert_eq!(table.lookup(32_767 << 8).gateway, 32_767);
    }

    #[test]
    fn the_text_has_clicks_columns() {
        let mut table = empty(Design::BySize);
        table
            .transact(
                &["10.0.0.0/8 1", "0/0 192.0.2.1 2", "192.168.100.128/25 203.0.113.254 3"]
                    .map(|text| Command::Add(route(text))),
            )
            .unwrap();
        let expected =
            "0.0.0.0/0\t\t192.0.2.1\t2\n10.0.0.0/8\t\t-\t\t1\n192.168.100.128/25\t203.0.113.254\t3\n";
        assert_eq!(table.text(), expected);
    }

    /// Prefixes that often contain and often equal each other.
    fn prefixes() -> impl Strategy<Value = Ipv4Net> {
        let length = prop_oneof![Just(0u8), Just(8), Just(20), Just(24), Just(25), Just(31), Just(32)];
        (0u32..4, 0u32..4, length).prop_map(|(high, low, length)| {
            Ipv4Net::new((high << 30 | high << 8 | low).into(), length).unwrap().trunc()
        })
    }

    fn commands() -> impl Strategy<Value = Command> {
        let next_hop = (0u32..3, 0u16..3).prop_map(|(gateway, output)| NextHop { gateway, output });
        (0..4u8, prefixes(), next_hop).prop_map(|(kind, prefix, next_hop)| {
            let route = Route { prefix, next_hop: Some(next_hop) };
            match kind {
                0 => Command::Add(route),
                1 => Command::Set(route),
                2 => Command::Remove(route),
                _ => Command::Remove(Route { prefix, next_hop: None }),
            }
        })
    }

    /// The same commands on a map of routes; `None` when one is refused.
    fn reference(
        mut routes: BTreeMap<Ipv4Net, NextHop>,
        commands: &[Command],
    ) -> Option<BTreeMap<Ipv4Net, NextHop>> {
        for command in commands {
            match *command {
                Command::Add(Route { prefix, next_hop }) => {
                    if routes.contains_key(&prefix) {
                        return None;
                    }
                    routes.insert(prefix, next_hop.unwrap());
                }
                Command::Set(Route { prefix, next_hop }) => {
                    routes.insert(prefix, next_hop.unwrap());
                }
                Command::Remove(Route { prefix, next_hop }) => {
                    let known = routes.remove(&prefix)?;
                    if next_hop.is_some_and(|wanted| wanted != known) {
                        return None;
                    }
                }
            }
        }
        Some(routes)
    }

    fn scan(routes: &BTreeMap<Ipv4Net, NextHop>, address: u32) -> NextHop {
        let matching =
            routes.iter().filter(|(prefix, _)| prefix.contains(&std::net::Ipv4Addr::from(address)));
        matching
            .max_by_key(|(prefix, _)| prefix.prefix_len())
            .map_or(NextHop::NONE, |(_, &next_hop)| next_hop)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn transactions_do_all_or_nothing_and_lookups_find_the_longest_prefix(
            transactions in prop::collection::vec(prop::collection::vec(commands(), 1..6), 1..12),
        ) {
            let mut table = empty(Design::BySize);
            let mut repeated = empty(Design::BySize);
            let mut routes = BTreeMap::new();
            for transaction in &transactions {
                let result = table.transact(transaction);
                let expected = reference(routes.clone(), transaction);
                prop_assert_eq!(result.is_ok(), expected.is_some(), "{:?} {:?}", result, transaction);
                routes = expected.unwrap_or(routes);
                if let Ok(changes) = result {
                    repeated.repeat(&changes).unwrap();
                }
                let edges = routes.keys().flat_map(|prefix| {
                    let (first, last) = (u32::from(prefix.network()), u32::from(prefix.broadcast()));
                    [first, last, first.wrapping_sub(1), last.wrapping_add(1)]
                });
                for address in edges.chain([0, u32::MAX]) {
                    prop_assert_eq!(table.lookup(address), scan(&routes, address));
                }
                prop_assert_eq!(table.text(), repeated.text());
                prop_assert_eq!(table.text().lines().count(), routes.len());
            }
        }
    }
}
