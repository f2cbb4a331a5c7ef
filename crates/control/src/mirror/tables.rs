//! From the routes of a table to the FIB: of every prefix the best route, in each table of the FIB that is made from
//! this one ([`View`]).

use super::counters::MOST_PROBLEMS;
use super::hops::PUNT;
use super::routes::{Filter, Key, MirrorFamily, Stored, Table, View};
use super::{Count, Mirror, Problem, fixed};
use crate::change::{ObjectKind, RouteKey, RouteKind};
use fib::{EditError, MAIN, NextHopIndex};
use ipnet::{IpNet, Ipv4Net};
use packet::{IpVersion, pulse};
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr};

/// The most tables of the FIB. Each takes 29 MB even with a single route, both copies together (`memory.rs` of `fib` maps
/// huge pages).
pub(super) const MOST_FIB_TABLES: usize = 64;

/// All tables.
#[derive(Debug, Default)]
pub(super) struct Tables {
    pub(super) tables: BTreeMap<u32, Table>,
    /// The most tables that the FIB may have.
    pub(super) most_fib_tables: usize,
    /// Tables of the FIB that are for policy rules only, by what they are made from.
    pub(super) for_rules: BTreeMap<(u32, Filter), u32>,
    /// Tables of the FIB that no rule leads to any more. They go with the next publication, when no worker has rules
    /// that lead there.
    pub(super) unneeded: Vec<u32>,
    /// Where the FIB refused for want of room.
    pub(super) full: HashMap<(u32, IpVersion), Pause>,
    /// Prefixes that are Linux's for something that a route has.
    pub(super) peculiar: Marked,
    /// Prefixes to which a route has an MTU or an encapsulation, which are Linux's while it is the best.
    pub(super) punted_if_best: Marked,
    /// Addresses that are broadcasts by a route.
    pub(super) broadcasts: Marked,
    /// How many networks table local has, over IPv4 and IPv6.
    pub(super) local_networks: [usize; 2],
    /// How many IPv4 routes there are to the host itself beside those of its addresses, and how many broadcast routes
    /// beside those of its networks.
    pub(super) own_routes: usize,
}

/// Whether a prefix is one address.
fn is_whole(prefix: IpNet) -> bool {
    prefix.prefix_len() == prefix.max_prefix_len()
}

/// Tables and prefixes with routes of a kind, and the number of these.
#[derive(Debug, Default)]
pub(super) struct Marked(BTreeMap<(u32, IpNet), usize>);

impl Marked {
    pub(super) fn contains(&self, table: u32, prefix: IpNet) -> bool {
        self.0.contains_key(&(table, prefix))
    }

    /// The prefixes of a table.
    fn of_table(&self, table: u32) -> impl Iterator<Item = IpNet> {
        let least = (table, IpNet::V4(Ipv4Net::default()));
        let all = self.0.range(least..).map(|(place, _)| *place);
        all.take_while(move |(of, _)| *of == table).map(|(_, prefix)| prefix)
    }

    /// A route is of the kind now, or not any more.
    fn count(&mut self, table: u32, prefix: IpNet, was: bool, is: bool) {
        if was == is {
            return;
        }
        let count = self.0.entry((table, prefix)).or_default();
        *count = *count + usize::from(is) - usize::from(was);
        if *count == 0 {
            self.0.remove(&(table, prefix));
        }
    }
}

/// How many changes to let pass before the next attempt: the FIB rebuilds a table that it found full, which takes long.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pause {
    left: u32,
    length: u32,
}

impl Pause {
    const LONGEST: u32 = 1 << 16;

    fn longer(self) -> Pause {
        let length = (self.length * 2).clamp(1, Pause::LONGEST);
        Pause { left: length, length }
    }
}

impl Tables {
    /// The tables of the FIB that are made from a table.
    fn views(&self, table: u32) -> &[View] {
        self.tables.get(&table).map_or(&[], |stands| &stands.views)
    }
}

impl Mirror {
    /// Puts a route in the place of the one of the same key (`Some`), or removes that. Takes over one user of its target. Returns
    /// whether there was one.
    pub(super) fn change_route<A: MirrorFamily>(
        &mut self,
        table: u32,
        key: Key<A>,
        new: Option<Stored>,
    ) -> bool {
        pulse::beat();
        let Key { network, length, .. } = key;
        let stands = self.tables.tables.entry(table).or_default();
        let was_empty = stands.is_empty();
        let routes = A::routes_mut(stands);
        let old = match new {
            Some(stored) => routes.insert(key, stored),
            None => routes.remove(&key),
        };
        if was_empty != stands.is_empty() {
            self.policy.is_dirty = true;
        }
        // Most of what a dump tells is known.
        if let (Some(old), Some(new)) = (old, new)
            && (old.target, old.protocol) == (new.target, new.protocol)
        {
            self.release_target(old.target);
            return true;
        }
        let [was, is] = [old, new].map(|of| of.is_some_and(|stored| self.is_peculiar(&key, &stored)));
        self.tables.peculiar.count(table, key.prefix(), was, is);
        let is_peculiar = was || is;
        let [had, has] = [old, new].map(|of| of.is_some_and(|stored| self.is_punted(&stored)));
        self.tables.punted_if_best.count(table, key.prefix(), had, has);
        self.count_own(&key, old.as_ref(), new.as_ref());
        let [was, is] = [old, new].map(|of| of.is_some_and(|stored| self.is_broadcast(&key, &stored)));
        self.tables.broadcasts.count(table, key.prefix(), was, is);
        self.links.address_generation += u64::from(was != is);
        for place in 0.. {
            let Some(&View { fib_table, filter }) = self.tables.views(table).get(place) else { break };
            let standing = self.standing(table, filter, network, length);
            let mut standing = standing.map(|(key, stored)| (*key, *stored));
            let (best, second) = (standing.next(), standing.next());
            drop(standing);
            // A route that waits behind the best one changes nothing, unless it makes the prefix Linux's.
            if is_peculiar || best.is_none_or(|(first, _)| first >= key) {
                let next_hop = self.next_hop_at(table, filter, network, length);
                let is_best = best.is_none_or(|(first, _)| first >= key);
                if is_best && filter == Filter::default() && (old, new) != (None, None) {
                    let before = old.map_or(second, |old| Some((key, old)));
                    self.record_route(table, before, best);
                }
                self.install(fib_table, network, length, next_hop);
            }
        }
        if let Some(old) = old {
            self.release_target(old.target);
        }
        old.is_some()
    }

    /// The routes of a table to a prefix that count, the best first.
    fn standing<A: MirrorFamily>(
        &self,
        table: u32,
        filter: Filter,
        network: A,
        length: u8,
    ) -> impl Iterator<Item = (&Key<A>, &Stored)> {
        let routes = self.tables.tables.get(&table).map(A::routes).into_iter();
        let all = routes.flat_map(move |routes| routes.at(network, length));
        all.filter(move |(key, stored)| self.counts(filter, key, stored))
    }

    /// The best of the routes of a table to a prefix.
    fn best_route<A: MirrorFamily>(
        &self,
        table: u32,
        filter: Filter,
        network: A,
        length: u8,
    ) -> Option<(&Key<A>, &Stored)> {
        self.standing(table, filter, network, length).next()
    }

    /// The next hop of a route, as the FIB is to have it, if its destinations are not fixed.
    pub(super) fn next_hop_of<A: MirrorFamily>(&self, key: &Key<A>, stored: &Stored) -> Option<NextHopIndex> {
        let target = self.targets.get(stored.target);
        let is_hidden = fixed::hides(key.prefix(), target.key.kind);
        (!is_hidden).then_some(if key.is_conditional() { PUNT } else { target.value.index })
    }

    /// The next hop of a prefix, as a table of the FIB is to have it: that of the best route. Where a route has
    /// something that only Linux obeys, all routes to the prefix are Linux's to choose from.
    fn next_hop_at<A: MirrorFamily>(
        &self,
        table: u32,
        filter: Filter,
        network: A,
        length: u8,
    ) -> Option<NextHopIndex> {
        let (key, stored) = self.best_route(table, filter, network, length)?;
        let next_hop = self.next_hop_of(key, stored)?;
        let has_peculiar = !self.tables.peculiar.0.is_empty()
            && self
                .standing(table, filter, network, length)
                .any(|(key, stored)| self.is_peculiar(key, stored));
        Some(if has_peculiar { PUNT } else { next_hop })
    }

    /// Whether a route has something that only Linux obeys.
    fn is_peculiar<A: MirrorFamily>(&self, key: &Key<A>, stored: &Stored) -> bool {
        key.is_conditional() || self.targets.get(stored.target).key.only_linux.is_some()
    }

    /// Whether a route is among [`Tables::broadcasts`].
    fn is_broadcast<A: MirrorFamily>(&self, key: &Key<A>, stored: &Stored) -> bool {
        let prefix = key.prefix();
        let is_address = matches!(prefix, IpNet::V4(_)) && is_whole(prefix) && !fixed::is_fixed(prefix);
        is_address && self.targets.get(stored.target).key.kind == RouteKind::Broadcast
    }

    /// The IPv4 addresses that are broadcasts by a route in tables local and main, or in the table of a VRF.
    pub fn broadcasts(&self, vrf: Option<u32>) -> impl Iterator<Item = Ipv4Addr> {
        let prefixes = self.tables.broadcasts.of_table(vrf.unwrap_or(MAIN));
        prefixes.filter_map(|prefix| match prefix.addr() {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        })
    }

    /// Whether a route is among [`Tables::local_networks`].
    fn is_local_network<A: MirrorFamily>(key: &Key<A>) -> bool {
        let prefix = key.prefix();
        key.rank.is_local() && !is_whole(prefix) && !fixed::is_fixed(prefix)
    }

    /// Whether a route is among [`Tables::own_routes`].
    fn is_own_route<A: MirrorFamily>(&self, key: &Key<A>, stored: &Stored) -> bool {
        const KERNEL: u8 = 2;
        let (prefix, kind) = (key.prefix(), self.targets.get(stored.target).key.kind);
        let is_hosts = matches!(
            kind,
            RouteKind::Local | RouteKind::Broadcast | RouteKind::Anycast | RouteKind::Multicast
        );
        matches!(prefix, IpNet::V4(_))
            && is_hosts
            && !fixed::is_fixed(prefix)
            && !(is_whole(prefix) && stored.protocol == KERNEL)
    }

    /// There is a route more, or less. With the first and the last local network Linux does other things, and with
    /// the first and the last route of the host.
    fn count_own<A: MirrorFamily>(&mut self, key: &Key<A>, old: Option<&Stored>, new: Option<&Stored>) {
        let is_own = |of: Option<&Stored>| of.is_some_and(|stored| self.is_own_route(key, stored));
        let is_network = |of: Option<&Stored>| of.is_some() && Self::is_local_network(key);
        let networks = [is_network(old), is_network(new)];
        let own = [is_own(old), is_own(new)];
        let is_ipv6 = usize::from(matches!(key.prefix(), IpNet::V6(_)));
        let counts =
            [(&mut self.tables.local_networks[is_ipv6], networks), (&mut self.tables.own_routes, own)];
        for (count, [was, is]) in counts {
            let had_some = *count > 0;
            *count = *count + usize::from(is) - usize::from(was);
            if had_some != (*count > 0) {
                self.links.generation += 1;
                self.policy.is_dirty = true;
            }
        }
    }

    /// Whether a route is punted for an MTU or an encapsulation of its own.
    fn is_punted(&self, stored: &Stored) -> bool {
        let content = &self.targets.get(stored.target).key;
        content.mtu.is_some() || content.is_encapsulated()
    }

    /// The prefixes that are Linux's because a route to them has something that the fast path does not look at.
    pub fn route_problems(&self) -> Vec<Problem> {
        let places = self.tables.peculiar.0.keys().chain(self.tables.punted_if_best.0.keys());
        let mut all = places.filter_map(|&(table, prefix)| {
            let why = match prefix {
                IpNet::V4(_) => self.why_linux::<u32>(table, prefix),
                IpNet::V6(_) => self.why_linux::<u128>(table, prefix),
            };
            Some(Problem {
                route: Some((table, prefix)),
                reason: format!("{}, so packets to it go to Linux", why?),
            })
        });
        let mut problems: Vec<Problem> = all.by_ref().take(MOST_PROBLEMS).collect();
        let more = all.count();
        let mut objects = self.objects.known.iter().filter_map(|(key, known)| {
            let what = match known.kind.as_ref()? {
                ObjectKind::OnlyLinux(what) => what.to_string(),
                ObjectKind::Path(path) if path.has_encapsulation => "it has an encapsulation".to_owned(),
                _ => return None,
            };
            let reason = format!("next-hop object {}: {what}, so packets of its routes go to Linux", key.id);
            Some(Problem { route: None, reason })
        });
        problems.extend(objects.by_ref().take(MOST_PROBLEMS));
        let more_objects = objects.count();
        if more_objects > 0 {
            let reason = format!(
                "{more_objects} more next-hop objects are such, and packets of their routes go to Linux"
            );
            problems.push(Problem { route: None, reason });
        }
        if more > 0 {
            let reason = format!("{more} more prefixes have such routes, and packets to them go to Linux");
            problems.push(Problem { route: None, reason });
        }
        problems
    }

    /// Why a prefix is Linux's, if it is.
    fn why_linux<A: MirrorFamily>(&self, table: u32, prefix: IpNet) -> Option<String> {
        let (network, length) = A::from_net(prefix).map(A::parts)?;
        let mut all = self.standing(table, Filter::default(), network, length);
        let peculiar = all.find_map(|(key, stored)| {
            let RouteKey { tos, from, .. } = key.route_key(table);
            match (self.targets.get(stored.target).key.only_linux, from, tos) {
                (Some(what), ..) => Some(what.to_string()),
                (_, Some(from), _) => Some(format!("a route is for some sources only (from {from})")),
                (.., 1..) => Some(format!("a route is for a type of service only (tos {tos:#04x})")),
                _ => None,
            }
        });
        peculiar.or_else(|| {
            let (_, best) = self.best_route(table, Filter::default(), network, length)?;
            let content = &self.targets.get(best.target).key;
            let mtu = content.mtu.map(|mtu| format!("its route has an MTU ({mtu})"));
            mtu.or_else(|| {
                content.is_encapsulated().then(|| "a path of its route has an encapsulation".to_owned())
            })
        })
    }

    /// What a table of the FIB would have for a host itself if neighbours had no host routes.
    pub(super) fn beneath<A: MirrorFamily>(&self, fib_table: u32, host: A) -> Option<NextHopIndex> {
        let mut all = self.tables.tables.iter();
        let (&table, view) = all.find_map(|(table, stands)| {
            Some((table, stands.views.iter().find(|view| view.fib_table == fib_table)?))
        })?;
        self.next_hop_at(table, view.filter, host, A::BITS)
    }

    /// Whether a route is in a view.
    fn counts<A: MirrorFamily>(&self, filter: Filter, key: &Key<A>, stored: &Stored) -> bool {
        // `suppress_prefixlength` lets only routes through which packets would be forwarded not count.
        let ends = || {
            let kind = self.targets.get(stored.target).key.kind;
            matches!(kind, RouteKind::Blackhole | RouteKind::Unreachable | RouteKind::Prohibit)
        };
        (!filter.only_local || key.rank.is_local())
            && filter.longer_than.is_none_or(|length| u32::from(key.length) > length || ends())
    }

    /// Gives one prefix of a table of the FIB this next hop, or no route.
    fn install<A: MirrorFamily>(
        &mut self,
        fib_table: u32,
        network: A,
        length: u8,
        best: Option<NextHopIndex>,
    ) {
        let net = A::net(network, length);
        let prefix: IpNet = net.into();
        if fixed::is_fixed(prefix) {
            return;
        }
        if length == A::BITS && self.neighbours.hosts.contains_key(&(fib_table, network.to_ip())) {
            return self.evaluate_hosts_inside(fib_table, network, length);
        }
        let is_full = !self.tables.full.is_empty();
        if is_full && A::rib(&self.fib, fib_table).is_some_and(|rib| rib.get(net) == best) {
            return;
        }
        let best = best.filter(|_| !is_full || !self.is_paused(fib_table, A::VERSION));
        let replaced = best.and_then(|next_hop| {
            let replaced = self.fib.replace(fib_table, prefix, next_hop);
            replaced.map_err(|error| self.refused::<A>(fib_table, prefix, &error)).ok()
        });
        if is_full && replaced.is_some() {
            self.tables.full.remove(&(fib_table, A::VERSION));
        }
        // If the new one was refused the old one goes all the same: it is wrong by now.
        match replaced.map_or_else(|| self.fib.remove(fib_table, prefix), Ok) {
            Ok(change) if change.is_visible() => self.evaluate_hosts_inside(fib_table, network, length),
            Ok(_) | Err(EditError::Rib(_)) => {}
            Err(error) => self.refused::<A>(fib_table, prefix, &error),
        }
    }

    fn is_paused(&mut self, fib_table: u32, version: IpVersion) -> bool {
        let Some(pause) = self.tables.full.get_mut(&(fib_table, version)) else { return false };
        let is_paused = pause.left > 0;
        pause.left = pause.left.saturating_sub(1);
        if is_paused {
            self.count(Count::Refused);
        }
        is_paused
    }

    /// The FIB refused a change.
    fn refused<A: MirrorFamily>(&mut self, fib_table: u32, prefix: IpNet, error: &EditError) {
        if matches!(error, EditError::Table(_)) {
            let pause = self.tables.full.entry((fib_table, A::VERSION)).or_default();
            *pause = pause.longer();
        }
        self.note_edit_error(fib_table, prefix, error);
    }

    /// Makes a table of the FIB, with the fixed routes. Returns whether there was room.
    pub(super) fn add_fib_table(&mut self, fib_table: u32) -> bool {
        let has_room = self.fib.tables().count() < self.tables.most_fib_tables;
        let added = if has_room { self.fib.add_vrf(fib_table) } else { Ok(()) };
        if let Err(error) = &added {
            self.note(None, error.to_string());
        }
        if !has_room || added.is_err() {
            self.count(Count::TablesRefused);
            return false;
        }
        self.add_fixed_routes(fib_table);
        true
    }

    pub(super) fn add_fixed_routes(&mut self, fib_table: u32) {
        for (prefix, next_hop) in fixed::routes() {
            if let Err(error) = self.fib.insert(fib_table, prefix, next_hop) {
                self.note_edit_error(fib_table, prefix, &error);
            }
        }
    }

    /// Adds to a table of Linux the table of the FIB that forwarding uses.
    pub(super) fn ensure_table(&mut self, table: u32) {
        if !self.tables.views(table).is_empty() {
            return;
        }
        let is_new = !self.tables.tables.contains_key(&table);
        self.tables.tables.entry(table).or_default();
        // One that was refused is tried again when others go; see `Mirror::publish`.
        if is_new {
            self.policy.is_dirty = true;
            self.open_table(table);
        }
    }

    /// Makes the FIB's part of a table, if there is room for it.
    pub(super) fn open_table(&mut self, table: u32) {
        if table == MAIN || self.add_fib_table(table) {
            self.add_view(table, View { fib_table: table, filter: Filter::default() });
        }
    }

    /// A table of the FIB is made from a table of Linux from now on.
    pub(super) fn add_view(&mut self, table: u32, view: View) {
        self.tables.tables.entry(table).or_default().views.push(view);
        self.fill_view::<u32>(table, view);
        self.fill_view::<u128>(table, view);
    }

    fn fill_view<A: MirrorFamily>(&mut self, table: u32, view: View) {
        let Some(routes) = self.tables.tables.get(&table).map(A::routes) else { return };
        let mut prefixes: Vec<(A, u8)> = routes.iter().map(|(key, _)| (key.network, key.length)).collect();
        prefixes.dedup();
        for (network, length) in prefixes {
            pulse::beat();
            let next_hop = self.next_hop_at(table, view.filter, network, length);
            self.install(view.fib_table, network, length, next_hop);
        }
    }

    /// Removes the tables of the FIB that are unneeded since the last publication.
    pub(super) fn remove_unneeded_tables(&mut self) {
        for fib_table in std::mem::take(&mut self.tables.unneeded) {
            // It may have got routes meanwhile; what serves rules only is made anew if they want it again.
            let is_of_linux = self.tables.tables.contains_key(&fib_table);
            if is_of_linux && !self.is_unneeded(fib_table) {
                continue;
            }
            if let Err(error) = self.fib.remove_vrf(fib_table) {
                self.note(None, error.to_string());
                continue;
            }
            let hosts = self.neighbours.take_hosts(fib_table);
            hosts.into_iter().for_each(|index| self.release_index(index));
            self.tables.tables.retain(|&number, table| {
                table.views.retain(|view| view.fib_table != fib_table);
                number == MAIN || !table.views.is_empty() || !table.is_empty()
            });
            self.tables.for_rules.retain(|_, number| *number != fib_table);
            self.tables.full.retain(|(number, _), _| *number != fib_table);
        }
    }

    /// Makes the FIB's part of tables for which there was no room, if there is now.
    pub(super) fn open_refused_tables(&mut self) {
        let refused = self.tables.tables.iter().filter(|(_, table)| table.views.is_empty());
        let room = self.tables.most_fib_tables.saturating_sub(self.fib.tables().count());
        let some: Vec<u32> = refused.map(|(&number, _)| number).take(room).collect();
        for table in some {
            self.open_table(table);
            self.policy.is_dirty = true;
        }
    }

    /// Removes the routes that `is_gone` says are gone.
    pub(super) fn remove_routes<A: MirrorFamily>(
        &mut self,
        is_gone: impl Fn(&Mirror, &Key<A>, &Stored) -> bool,
    ) -> usize {
        let mut gone: Vec<(u32, Key<A>)> = Vec::new();
        for (&table, routes) in &self.tables.tables {
            let all = A::routes(routes).iter();
            let all = all.inspect(|_| pulse::beat());
            gone.extend(all.filter(|(key, stored)| is_gone(self, key, stored)).map(|(key, _)| (table, *key)));
        }
        for &(table, key) in &gone {
            self.change_route(table, key, None);
        }
        gone.len()
    }
}
