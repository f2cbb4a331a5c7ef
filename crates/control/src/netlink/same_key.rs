//! Several routes of one key. The mirror knows one route for each [`RouteKey`], the one in force; the kernel
//! may have more, and tells of each. Here lives what turns the one into the other:
//!
//! - **Appended routes.** The same network on two links, or `ip route append`, gives routes with the same
//!   key; the first is in force. When it goes the next one is, of which the kernel says nothing then: so
//!   those behind the first are kept here.
//! - **IPv6 routes that are not paths of one route**: those of router advertisements, of interfaces, and to
//!   next-hop objects. Linux takes the one with the best preference (`RTA_PREF`, RFC 4191), and of these one by the
//!   incoming interface, else the first, where it forwards. All of them are kept here.
//! - **IPv6 paths that go one by one.** `RTM_DELROUTE` of IPv6 may mean one path of several, and names only
//!   that one. So IPv6 routes with several paths are kept here, and what is left of one is reported as the
//!   route.
//!
//! Routes with neither trait (nearly all) take no memory here. What the kernel's messages do not tell (a
//! route put before another one, an IPv6 route that is not a path of the one before it) asks for a dump, in
//! which routes of one key stand behind each other in their order.
//!
//! A dump forgets what was known, and notifications from before it may be told after it (see `kernel`). For a
//! key that had several routes or paths they may then name one that the dump does not know. Such keys are
//! remembered until the dump has ended, and a route of theirs that goes asks for one more dump, unless it is
//! plain that all went.
//!
//! Flags of `RTM_NEWROUTE`, Linux 4.20 to 6.18 (`fib_table_insert`, `fib6_add_rt2node`): `NLM_F_REPLACE` took
//! the place of a route; both have `NLM_F_EXCL` when it is the only one of its key. IPv4 has `NLM_F_APPEND` when
//! it went behind others, and none of these when it went before them (`ip route prepend`). IPv6 has none of
//! these when it joined others; it then names all paths of its set.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{IpAddr, Ipv6Addr};

use netlink_packet_core::{NLM_F_APPEND, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};

use crate::change::{Change, Hops, OnlyLinux, Part, Path, Route, RouteKey};
use crate::netlink::hidden::{self, Place};

/// Keys with more than one route or, for IPv6, more than one path.
#[derive(Default)]
pub(super) struct SameKey {
    keys: HashMap<RouteKey, Several>,
    /// Keys that had more than one before the dump that is being read or is to come; where it was all one
    /// IPv6 route with several paths, that route.
    before: HashMap<RouteKey, Option<Route>>,
    /// Whether notifications are passed on that may be older than the last dump.
    replays: bool,
    /// Places of IPv6 routes of which the list had more lines than a dump told of routes with several paths. The lines of all
    /// routes there are counted in the next one: those of other tables are among them.
    suspects: HashMap<Place, usize>,
    /// The key of the last route of a dump; of IPv6 the route.
    last_dumped: Option<(RouteKey, Option<Route>)>,
}

#[derive(Default)]
struct Several {
    /// The first of them; kept if it is one of IPv6 that has several paths, or others behind it.
    first: Option<Route>,
    /// Those behind it, in their order.
    behind: Vec<Route>,
}

/// What is to be told, and whether only a dump can tell how things are.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) change: Option<Change>,
    pub(super) needs_dump: bool,
}

impl Outcome {
    fn tell(change: Change) -> Outcome {
        Outcome { change: Some(change), needs_dump: false }
    }

    fn nothing() -> Outcome {
        Outcome { change: None, needs_dump: false }
    }
}

impl SameKey {
    /// A dump of these routes begins: it tells all anew.
    pub(super) fn dump_begins(&mut self, part: Part) {
        let known = self.keys.extract_if(|key, _| is_of_part(key, part));
        self.before
            .extend(known.map(|(key, several)| (key, several.first.filter(|_| several.behind.is_empty()))));
        self.last_dumped = None;
        if part == Part::Routes6 {
            self.suspects.values_mut().for_each(|lines| *lines = 0);
        }
    }

    /// A dump of IPv6 routes has ended. Returns those beside which the kernel hides others, as Linux's alone, and whether only another
    /// pass can tell.
    pub(super) fn hidden(
        &mut self,
        count: impl FnOnce(&mut HashMap<Place, usize>) -> io::Result<()>,
    ) -> (Vec<Route>, bool) {
        let firsts =
            || self.keys.iter().filter_map(|(key, it)| Some((hidden::place(key)?, it.first.as_ref()?, it)));
        let mut told: HashMap<Place, usize> = HashMap::new();
        for (place, first, several) in firsts().filter(|(_, first, _)| hidden::may_hide(first)) {
            let of_key = std::iter::once(first).chain(&several.behind).map(hidden::lines_of).sum::<usize>();
            *told.entry(place).or_default() += of_key;
        }
        self.suspects.retain(|place, _| told.contains_key(place));
        let mut listed: HashMap<Place, usize> = told.keys().map(|place| (*place, 0)).collect();
        if told.is_empty() {
            return (Vec::new(), false);
        }
        let (mut hiding, mut needs_dump) = (HashSet::new(), false);
        if let Err(error) = count(&mut listed) {
            tracing::warn!(
                event = "netlink",
                "Linux's list of IPv6 routes, which tells what a dump leaves out, cannot be read ({error}); prefixes with several \
                 paths are Linux's alone"
            );
            hiding.extend(told.keys().copied());
        }
        for (place, lines) in listed.into_iter().filter(|(place, lines)| *lines > told[place]) {
            match self.suspects.get(&place) {
                Some(all) if lines <= *all => continue,
                Some(_) => {}
                None => {
                    needs_dump = true;
                    self.suspects.insert(place, 0);
                }
            }
            hiding.insert(place);
        }
        let of_hiding =
            self.keys.iter_mut().filter(|(key, _)| hidden::place(key).is_some_and(|it| hiding.contains(&it)));
        let routes = of_hiding.filter_map(|(_, several)| {
            several.first.as_mut()?.only_linux = Some(OnlyLinux::Choice);
            several.elected()
        });
        (routes.collect(), needs_dump)
    }

    /// A dump ended; what was held back meanwhile follows, till [`SameKey::replay_ends`].
    pub(super) fn replay_begins(&mut self) {
        self.replays = true;
    }

    /// What follows is newer than the dump of these routes.
    pub(super) fn replay_ends(&mut self, part: Part) {
        self.replays = false;
        self.before.retain(|key, _| !is_of_part(key, part));
        self.keys.retain(|key, several| !is_of_part(key, part) || !several.is_plain());
    }

    /// A route of a dump.
    pub(super) fn dumped(&mut self, route: Route) -> Option<Change> {
        if !self.suspects.is_empty()
            && let Some(lines) = hidden::place(&route.key).and_then(|place| self.suspects.get_mut(&place))
        {
            *lines += hidden::lines_of(&route);
        }
        if let Some((_, last)) = self.last_dumped.take_if(|(key, _)| *key == route.key) {
            let key = route.key;
            let several = self.keys.entry(key).or_default();
            if let Some(last) = last {
                several.first.get_or_insert(last);
            }
            several.behind.push(route);
            self.last_dumped = Some((key, None));
            return several.elected().map(Change::Route);
        }
        self.last_dumped = Some((route.key, is_ipv6(&route).then(|| route.clone())));
        self.keep_paths(&route);
        Some(Change::Route(route))
    }

    /// `RTM_NEWROUTE` with these flags.
    pub(super) fn added(&mut self, flags: u16, route: Route) -> Outcome {
        let has_others = self.keys.get(&route.key).is_some_and(Several::has_others);
        if is_ipv6(&route) {
            let joined = flags & (NLM_F_REPLACE | NLM_F_EXCL) == 0;
            // The message of an appended path has the attributes of that one, and not those of the first.
            if joined && (has_others || paths(&route).len() < 2 || flags & NLM_F_APPEND != 0) {
                self.before.insert(route.key, None);
                return Outcome { change: None, needs_dump: true };
            }
        } else if flags & NLM_F_APPEND != 0 {
            let behind = &mut self.keys.entry(route.key).or_default().behind;
            // The kernel does not take the same one twice; so this one was in the dump.
            if !behind.iter().any(|other| is_same(other, &route)) {
                behind.push(route);
            }
            return Outcome { change: None, needs_dump: self.replays };
        }
        // Which of several routes IPv6 replaced it does not say; and without the flag this one went before
        // the others, of which the first may take no memory here. A card that takes a route over has it told
        // again, without a flag.
        let how = NLM_F_CREATE | NLM_F_EXCL | NLM_F_REPLACE | NLM_F_APPEND;
        let is_prepended = !is_ipv6(&route) && flags & how == NLM_F_CREATE;
        let needs_dump = is_prepended || has_others && (is_ipv6(&route) || flags & NLM_F_REPLACE == 0);
        if let Some(several) = self.keys.get_mut(&route.key) {
            several.first = None;
            if several.behind.is_empty() {
                self.keys.remove(&route.key);
            }
        }
        self.keep_paths(&route);
        Outcome { change: Some(Change::Route(route)), needs_dump }
    }

    /// `RTM_DELROUTE`.
    pub(super) fn removed(&mut self, route: &Route) -> Outcome {
        let is_uncertain = self.before.get(&route.key).is_some_and(|former| match former {
            Some(former) => {
                !paths(former).iter().all(|path| paths(route).iter().any(|gone| is_same_path(path, gone)))
            }
            None => true,
        });
        let was_hiding = self.keys.get(&route.key).is_some_and(Several::hides);
        let outcome = self.remove(route);
        Outcome { needs_dump: outcome.needs_dump || is_uncertain || was_hiding, ..outcome }
    }

    fn remove(&mut self, route: &Route) -> Outcome {
        let key = route.key;
        let Some(several) = self.keys.get_mut(&key) else {
            return Outcome::tell(Change::RouteGone(key));
        };
        // The route in force may be the one that is meant even if one behind it looks the same to us; that
        // differs in something that is nothing to us, so either will do.
        if let Some(position) = several.behind.iter().position(|other| is_same(other, route)) {
            several.behind.remove(position);
            let elected =
                several.elected().map_or_else(Outcome::nothing, |it| Outcome::tell(Change::Route(it)));
            return self.settle(key, elected);
        }
        if let Some(mut first) = several.first.take()
            && let Hops::Paths(left) = &mut first.hops
        {
            left.retain(|path| !paths(route).iter().any(|gone| is_same_path(path, gone)));
            if !left.is_empty() {
                several.first = Some(first);
                let elected = several.elected().expect("the first of them is there");
                return self.settle(key, Outcome::tell(Change::Route(elected)));
            }
        }
        if several.behind.is_empty() {
            return self.settle(key, Outcome::tell(Change::RouteGone(key)));
        }
        let next = several.behind.remove(0);
        if is_ipv6(&next) {
            several.first = Some(next.clone());
        }
        let elected = several.elected().unwrap_or(next);
        self.settle(key, Outcome::tell(Change::Route(elected)))
    }

    /// Keeps what is to be kept of the route in force. Of a key that had several routes messages from before the dump
    /// may still say that another one went.
    fn keep_paths(&mut self, route: &Route) {
        if is_ipv6(route) && (paths(route).len() > 1 || self.before.contains_key(&route.key)) {
            self.keys.entry(route.key).or_default().first = Some(route.clone());
        }
    }

    /// Forgets a key of which nothing more is to be known.
    fn settle(&mut self, key: RouteKey, outcome: Outcome) -> Outcome {
        if self.keys.get(&key).is_some_and(Several::is_plain) && !self.before.contains_key(&key) {
            self.keys.remove(&key);
        }
        outcome
    }
}

impl Several {
    /// Whether there is nothing to remember: one route at most, with one path.
    fn is_plain(&self) -> bool {
        self.behind.is_empty() && self.first.as_ref().is_none_or(|first| paths(first).len() < 2)
    }

    /// Whether there are routes that no dump tells.
    fn hides(&self) -> bool {
        self.first.as_ref().is_some_and(|first| first.only_linux == Some(OnlyLinux::Choice))
    }

    /// Whether there are routes behind the first.
    fn has_others(&self) -> bool {
        !self.behind.is_empty() || self.hides()
    }

    /// The one that Linux takes, of IPv6 routes (`find_rr_leaf` where `all.forwarding` is set): the first of those
    /// with the best preference, of which those out by the interface that the packet came by go first
    /// (`ip6_pol_route_input` has that interface where a host's own packets have the one they are bound to). Which
    /// path of several, or of an object, has what preference no message says; and whether a route counts whose link
    /// has no carrier depends on settings.
    fn elected(&self) -> Option<Route> {
        let first = self.first.as_ref()?;
        let mut best = first;
        for route in &self.behind {
            if route.preference > best.preference {
                best = route;
            }
        }
        let is_clear = |route: &Route| match &route.hops {
            Hops::None => true,
            Hops::Paths(paths) => matches!(paths[..], [Path { is_down: false, .. }]),
            Hops::Object(_) => false,
        };
        let interface = |route: &Route| paths(route).first().map(|path| path.index);
        // Packets to addresses of a link, which every interface has routes for, are never forwarded.
        let is_of_link = matches!(first.key.prefix.addr(), IpAddr::V6(addr) if is_of_link(addr));
        let depends_on_input = |route: &Route| {
            !is_of_link && route.preference == best.preference && interface(route) != interface(best)
        };
        let all = || std::iter::once(first).chain(&self.behind);
        let is_certain = self.behind.is_empty()
            || is_of_link
            || all().all(|route| is_clear(route) && !depends_on_input(route));
        let only_linux =
            if is_certain { all().find_map(|route| route.only_linux) } else { Some(OnlyLinux::Choice) };
        Some(Route { only_linux, ..best.clone() })
    }
}

fn is_of_part(key: &RouteKey, part: Part) -> bool {
    key.prefix.addr().is_ipv4() == (part == Part::Routes4)
}

/// Whether it is link-local, or of a group.
fn is_of_link(addr: Ipv6Addr) -> bool {
    addr.is_unicast_link_local() || addr.is_multicast()
}

fn is_ipv6(route: &Route) -> bool {
    route.key.prefix.addr().is_ipv6()
}

fn paths(route: &Route) -> &[Path] {
    match &route.hops {
        Hops::Paths(paths) => paths,
        Hops::None | Hops::Object(_) => &[],
    }
}

/// Whether they are the same path; whether it is down changes without a message.
fn is_same_path(one: &Path, other: &Path) -> bool {
    (one.index, one.gateway) == (other.index, other.gateway)
}

/// Whether they are the same in all that a route has for us; whether a path is down changes without a message.
fn is_same(one: &Route, other: &Route) -> bool {
    let told = |route: &Route| {
        let mut route = route.clone();
        if let Hops::Paths(paths) = &mut route.hops {
            paths.iter_mut().for_each(|path| path.is_down = false);
        }
        route
    };
    told(one) == told(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::RouteKind;

    fn route(prefix: &str, gateways: &[&str]) -> Route {
        let path = |gateway: &&str| Path {
            index: 7,
            gateway: Some(gateway.parse().unwrap()),
            weight: 1,
            is_down: false,
            has_encapsulation: false,
        };
        Route {
            key: RouteKey { table: 254, prefix: prefix.parse().unwrap(), metric: 0, tos: 0, from: None },
            kind: RouteKind::Unicast,
            protocol: 4,
            preferred_source: None,
            mtu: None,
            preference: Route::MEDIUM,
            only_linux: None,
            hops: Hops::Paths(gateways.iter().map(path).collect()),
        }
    }

    /// Of an IPv4 route that is the only one of its key.
    const ALONE: u16 = NLM_F_CREATE | NLM_F_EXCL;

    fn told(route: &Route) -> Outcome {
        Outcome::tell(Change::Route(route.clone()))
    }

    #[test]
    fn an_ordinary_route_comes_and_goes_and_leaves_nothing() {
        let mut same = SameKey::default();
        for (prefix, flags) in [("10.0.0.0/8", ALONE), ("2001:db8::/32", ALONE)] {
            let only = route(prefix, &["192.0.2.1"]);
            assert_eq!(same.added(flags, only.clone()), told(&only));
            assert_eq!(same.removed(&only), Outcome::tell(Change::RouteGone(only.key)));
        }
        assert!(same.keys.is_empty());
    }

    #[test]
    fn an_appended_ipv4_route_takes_over_when_those_before_it_go() {
        let mut same = SameKey::default();
        let [one, two, three] =
            ["192.0.2.1", "192.0.2.2", "192.0.2.3"].map(|way| route("10.0.0.0/8", &[way]));
        assert_eq!(same.added(ALONE, one.clone()), told(&one));
        assert_eq!(same.added(NLM_F_APPEND, two.clone()), Outcome::nothing());
        assert_eq!(same.added(NLM_F_APPEND, three.clone()), Outcome::nothing());
        assert_eq!(same.removed(&two), Outcome::nothing());
        assert_eq!(same.removed(&one), told(&three));
        assert_eq!(same.removed(&three), Outcome::tell(Change::RouteGone(one.key)));
        assert!(same.keys.is_empty());
    }

    #[test]
    fn of_routes_by_one_way_the_one_goes_that_is_named() {
        let alone = route("10.0.0.0/8", &["192.0.2.1"]);
        let others = [
            Route { mtu: Some(1300), ..alone.clone() },
            Route { preferred_source: Some("192.0.2.9".parse().unwrap()), ..alone.clone() },
            Route { only_linux: Some(OnlyLinux::Choice), ..alone.clone() },
        ];
        for first in others {
            let mut same = SameKey::default();
            let two = route("10.0.0.0/8", &["192.0.2.2"]);
            assert_eq!(same.added(ALONE, first.clone()), told(&first));
            assert_eq!(same.added(NLM_F_APPEND, two.clone()), Outcome::nothing());
            assert_eq!(same.added(NLM_F_APPEND, alone.clone()), Outcome::nothing());
            assert_eq!(same.removed(&first), told(&two));
            assert_eq!(same.removed(&two), told(&alone));
            assert_eq!(same.removed(&alone), Outcome::tell(Change::RouteGone(alone.key)));
        }
    }

    #[test]
    fn an_ipv4_route_put_before_another_one_asks_for_the_other_one() {
        let mut same = SameKey::default();
        let [one, two] = ["192.0.2.1", "192.0.2.2"].map(|way| route("10.0.0.0/8", &[way]));
        assert_eq!(same.added(ALONE, one.clone()), told(&one));
        let prepended = same.added(NLM_F_CREATE, two.clone());
        assert_eq!(prepended, Outcome { change: Some(Change::Route(two.clone())), needs_dump: true });
        same.dump_begins(Part::Routes4);
        same.dumped(two.clone());
        same.dumped(one.clone());
        assert_eq!(same.removed(&two), told(&one));
        // Told again because a card has taken it over.
        assert_eq!(same.added(0, one.clone()), told(&one));
    }

    #[test]
    fn a_dump_gives_the_routes_of_one_key_in_their_order() {
        let mut same = SameKey::default();
        let [one, two] = ["192.0.2.1", "192.0.2.2"].map(|way| route("10.0.0.0/8", &[way]));
        for _ in 0..2 {
            same.dump_begins(Part::Routes4);
            assert_eq!(same.dumped(one.clone()), Some(Change::Route(one.clone())));
            assert_eq!(same.dumped(two.clone()), None);
            same.replay_begins();
            same.replay_ends(Part::Routes4);
        }
        assert_eq!(same.removed(&one), told(&two));
        assert!(same.keys.is_empty());
    }

    #[test]
    fn ipv6_paths_go_one_at_a_time() {
        let mut same = SameKey::default();
        let set = route("2001:db8::/32", &["fe80::1", "fe80::2", "fe80::3"]);
        assert_eq!(same.added(NLM_F_EXCL, set.clone()), told(&set));
        let gone = |way| route("2001:db8::/32", &[way]);
        assert_eq!(same.removed(&gone("fe80::2")), told(&route("2001:db8::/32", &["fe80::1", "fe80::3"])));
        // One joins: all are named again.
        let joined = route("2001:db8::/32", &["fe80::4", "fe80::1", "fe80::3"]);
        assert_eq!(same.added(NLM_F_CREATE, joined.clone()), told(&joined));
        assert_eq!(same.removed(&route("2001:db8::/32", &["fe80::3", "fe80::1"])), told(&gone("fe80::4")));
        assert_eq!(same.removed(&gone("fe80::4")), Outcome::tell(Change::RouteGone(set.key)));
        assert!(same.keys.is_empty());
    }

    #[test]
    fn an_appended_ipv6_path_asks_for_the_attributes_of_the_first_one() {
        let mut same = SameKey::default();
        let first = Route { mtu: Some(1300), ..route("2001:db8::/32", &["fe80::1"]) };
        assert_eq!(same.added(NLM_F_EXCL | NLM_F_APPEND, first.clone()), told(&first));
        let joined = route("2001:db8::/32", &["fe80::1", "fe80::2"]);
        let outcome = Outcome { change: None, needs_dump: true };
        assert_eq!(same.added(NLM_F_CREATE | NLM_F_APPEND, joined), outcome);
    }

    #[test]
    fn where_the_list_cannot_be_read_several_ipv6_paths_are_linux_s() {
        let mut same = SameKey::default();
        let set = route("2001:db8::/32", &["fe80::1", "fe80::2"]);
        let dump = |same: &mut SameKey| {
            same.dump_begins(Part::Routes6);
            same.dumped(set.clone());
            same.dumped(route("2001:db8:1::/48", &["fe80::1"]));
        };
        dump(&mut same);
        let (hiding, _) = same.hidden(|_| Err(io::ErrorKind::PermissionDenied.into()));
        assert_eq!(hiding, [Route { only_linux: Some(OnlyLinux::Choice), ..set.clone() }]);
        dump(&mut same);
        let read = |places: &mut HashMap<Place, usize>| {
            places.values_mut().for_each(|lines| *lines = 2);
            Ok(())
        };
        assert_eq!(same.hidden(read), (Vec::new(), false));
    }

    #[test]
    fn what_went_before_the_dump_asks_for_another_one() {
        let mut same = SameKey::default();
        let set = route("2001:db8::/32", &["fe80::1", "fe80::2"]);
        let [one, two] = ["fe80::1", "fe80::2"].map(|way| route("2001:db8::/32", &[way]));
        for (gone, dumped, needs_dump) in
            [(&one, Some(two.clone()), true), (&set, None, false), (&set, Some(one.clone()), false)]
        {
            assert_eq!(same.added(NLM_F_REPLACE, set.clone()), told(&set));
            same.dump_begins(Part::Routes6);
            dumped.map(|route| same.dumped(route));
            same.replay_begins();
            // What the dump named is there still.
            let change = if needs_dump { Change::Route(two.clone()) } else { Change::RouteGone(set.key) };
            assert_eq!(same.removed(gone), Outcome { change: Some(change), needs_dump });
            same.replay_ends(Part::Routes6);
            assert!(same.before.is_empty() && same.keys.is_empty());
        }
    }

    #[test]
    fn of_ipv6_routes_that_are_not_paths_of_one_the_best_preference_counts() {
        let mut same = SameKey::default();
        let of = |gateway: &str, preference| Route { preference, ..route("::/0", &[gateway]) };
        let (low, high, equal) = (of("fe80::1", 1), of("fe80::2", 3), of("fe80::3", 3));
        same.dump_begins(Part::Routes6);
        assert_eq!(same.dumped(low.clone()), Some(Change::Route(low.clone())));
        for (dumped, elected) in [(&high, &high), (&equal, &high)] {
            assert_eq!(same.dumped(dumped.clone()), Some(Change::Route(elected.clone())));
        }
        same.replay_begins();
        same.replay_ends(Part::Routes6);
        // The first goes, and the elected one stays; then that goes.
        assert_eq!(same.removed(&low), told(&high));
        assert_eq!(same.removed(&high), told(&equal));
        assert_eq!(same.removed(&equal), Outcome::tell(Change::RouteGone(low.key)));
        assert!(same.keys.is_empty());

        // Whether a path counts that has no carrier, and what preference one path of several has, no message says. A
        // packet leaves by the interface that it came by where it can.
        let down = Path { is_down: true, ..paths(&low)[0] };
        let elsewhere = Path { index: 8, ..paths(&low)[0] };
        for odd in [
            Route { hops: Hops::Paths(vec![down]), ..low.clone() },
            Route { hops: Hops::Paths(vec![elsewhere]), ..equal.clone() },
            Route { kind: RouteKind::Blackhole, hops: Hops::None, ..equal.clone() },
            route("::/0", &["fe80::4", "fe80::5"]),
            Route { hops: Hops::Object(7), ..low.clone() },
        ] {
            same.dump_begins(Part::Routes6);
            same.dumped(odd);
            let Some(Change::Route(elected)) = same.dumped(high.clone()) else { panic!("a route") };
            assert_eq!(elected.only_linux, Some(OnlyLinux::Choice));
        }
        // Of a link's own addresses it is nobody's question.
        same.dump_begins(Part::Routes6);
        let of_link = |index, is_down| Route {
            hops: Hops::Paths(vec![Path { index, is_down, ..paths(&low)[0] }]),
            ..route("fe80::/64", &["fe80::1"])
        };
        same.dumped(of_link(1, false));
        let Some(Change::Route(elected)) = same.dumped(of_link(2, true)) else { panic!("a route") };
        assert_eq!(elected.only_linux, None);
        // What one of them has that only Linux obeys, makes all of them Linux's.
        same.dump_begins(Part::Routes6);
        same.dumped(Route { only_linux: Some(OnlyLinux::Attribute(99)), ..low.clone() });
        let Some(Change::Route(elected)) = same.dumped(high.clone()) else { panic!("a route") };
        assert_eq!(elected.only_linux, Some(OnlyLinux::Attribute(99)));

        // One goes, a dump has the other one only, and then comes the message.
        same.dump_begins(Part::Routes6);
        same.dumped(low.clone());
        same.replay_begins();
        assert_eq!(same.removed(&high).change, Some(Change::Route(low.clone())), "the other one stays");
        same.replay_ends(Part::Routes6);
        assert!(same.before.is_empty() && same.keys.is_empty());
        assert_eq!(same.removed(&low), Outcome::tell(Change::RouteGone(low.key)));
    }

    #[test]
    fn what_messages_do_not_tell_asks_for_a_dump() {
        let mut same = SameKey::default();
        let [one, two] = ["fe80::1", "fe80::2"].map(|way| route("2001:db8::/32", &[way]));
        assert_eq!(
            same.added(NLM_F_EXCL, one),
            Outcome::tell(Change::Route(route("2001:db8::/32", &["fe80::1"])))
        );
        assert!(same.added(0, two).needs_dump);
        let [one, two] = ["192.0.2.1", "192.0.2.2"].map(|way| route("10.0.0.0/8", &[way]));
        assert!(!same.added(ALONE, one.clone()).needs_dump);
        same.added(NLM_F_APPEND, two);
        assert!(same.added(NLM_F_CREATE, one).needs_dump);
    }
}
