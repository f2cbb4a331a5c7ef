//! Random changes, against a model that keeps what sources say in plain lists and answers every question by looking at
//! all of it.

use super::routes::LOCAL;
use super::{Mirror, fixed};
use crate::change::*;
use fib::{Adjacency, Decision, MAIN, NextHop, NextHopIndex};
use ipnet::IpNet;
use packet::IpVersion;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

const PREFIXES: [&str; 22] = [
    "0.0.0.0/0",
    "8.0.0.0/5",
    "10.0.0.0/8",
    "10.0.0.0/24",
    "10.0.0.0/31",
    "10.0.0.1/32",
    "10.0.0.2/32",
    "10.0.1.0/24",
    "127.0.0.1/32",
    "224.0.0.0/3",
    "239.0.0.0/8",
    "255.255.255.255/32",
    "::/0",
    "2001:db8::/32",
    "2001:db8::/64",
    "2001:db8::1/128",
    "2001:db8::2/127",
    "fe80::/64",
    "fe80::1/128",
    "::1/128",
    "ff02::1/128",
    "fe00::/7",
];

const ADDRESSES: [&str; 16] = [
    "10.0.0.0",
    "10.0.0.1",
    "10.0.0.2",
    "10.0.0.3",
    "10.0.1.1",
    "8.8.8.8",
    "127.0.0.1",
    "239.1.1.1",
    "255.255.255.255",
    "2001:db8::1",
    "2001:db8::2",
    "2001:db8::3",
    "fe80::1",
    "::1",
    "ff02::1",
    "2001:db9::1",
];

/// Interfaces 1, 2 and 4 are ports when they have these names.
const NAMES: [&str; 5] = ["", "eth0", "eth1", "wg0", "eth2"];

fn port_of(name: &str) -> Option<u16> {
    match name {
        "eth0" => Some(0),
        "eth1" => Some(1),
        "eth2" => Some(2),
        _ => None,
    }
}

#[derive(Clone, Debug)]
enum Step {
    Apply(Source, Change),
    DumpBegins(Source, Part),
    DumpEnds(Source, Part),
    Forget(Source),
}

/// All that sources have said and not taken back; of each kind, with what the present dump has not named yet.
#[derive(Default)]
struct Model {
    links: Vec<Link>,
    neighbours: Vec<Neighbour>,
    routes: Vec<(Source, Route)>,
    objects: Vec<(Source, Object)>,
    rules: Vec<Rule>,
    unseen: BTreeSet<String>,
}

fn part_of(change: &Change) -> (Part, String) {
    let routes = |key: &RouteKey| {
        (if key.prefix.addr().is_ipv6() { Part::Routes6 } else { Part::Routes4 }, format!("{key:?}"))
    };
    match change {
        Change::Link(link) => (Part::Links, link.index.to_string()),
        Change::Route(route) => routes(&route.key),
        Change::RouteGone(key) => routes(key),
        Change::Object(object) => (Part::Objects, object.id.to_string()),
        Change::Neighbour(neighbour) => {
            (Part::Neighbours, format!("{} {}", neighbour.index, neighbour.address))
        }
        Change::Rule(rule) => (Part::Rules, format!("{rule:?}")),
        _ => unreachable!("the model is asked for what comes, not for what goes"),
    }
}

fn name_of(source: Source, change: &Change) -> String {
    let (part, name) = part_of(change);
    format!("{source} {part:?} {name}")
}

fn is_conditional(route: &Route) -> bool {
    route.key.tos != 0 || route.key.from.is_some()
}

impl Model {
    fn everything(&self) -> Vec<(Source, Change)> {
        let mut all = Vec::new();
        all.extend(self.links.iter().map(|link| (Source::Netlink, Change::Link(link.clone()))));
        all.extend(self.neighbours.iter().map(|it| (Source::Netlink, Change::Neighbour(*it))));
        all.extend(self.rules.iter().map(|rule| (Source::Netlink, Change::Rule(rule.clone()))));
        all.extend(self.routes.iter().map(|(source, route)| (*source, Change::Route(route.clone()))));
        all.extend(self.objects.iter().map(|(source, object)| (*source, Change::Object(object.clone()))));
        all
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Apply(source, change) => self.apply(*source, change.clone()),
            Step::DumpBegins(source, part) => {
                let of_part = |(of, change): &(Source, Change)| of == source && part_of(change).0 == *part;
                let all = self.everything().into_iter().filter(of_part);
                self.unseen.extend(all.map(|(source, change)| name_of(source, &change)));
            }
            Step::DumpEnds(source, part) => {
                for (of, change) in self.everything() {
                    if of == *source
                        && part_of(&change).0 == *part
                        && self.unseen.remove(&name_of(of, &change))
                    {
                        self.remove(of, change);
                    }
                }
            }
            Step::Forget(source) => {
                let rank =
                    |part: Part| if part == Part::Links { 2 } else { usize::from(part == Part::Objects) };
                let mut all = self.everything();
                all.sort_by_key(|(_, change)| rank(part_of(change).0));
                for (of, change) in all.into_iter().filter(|(of, _)| of == source) {
                    self.remove(of, change);
                }
            }
        }
    }

    fn remove(&mut self, source: Source, change: Change) {
        self.apply(
            source,
            match change {
                Change::Link(link) => Change::LinkGone(link.index),
                Change::Neighbour(neighbour) => Change::NeighbourGone(neighbour.index, neighbour.address),
                Change::Rule(rule) => Change::RuleGone(rule),
                Change::Route(route) => Change::RouteGone(route.key),
                Change::Object(object) => Change::ObjectGone(object.id),
                other => other,
            },
        );
    }

    fn apply(&mut self, source: Source, change: Change) {
        match change {
            Change::Link(link) => {
                self.unseen.remove(&name_of(source, &Change::Link(link.clone())));
                self.links.retain(|known| known.index != link.index);
                self.links.push(link);
            }
            Change::LinkGone(index) => {
                self.links.retain(|known| known.index != index);
                self.neighbours.retain(|known| known.index != index);
            }
            Change::Neighbour(neighbour) => {
                self.unseen.remove(&name_of(source, &change));
                self.neighbours.retain(|it| (it.index, it.address) != (neighbour.index, neighbour.address));
                self.neighbours.push(neighbour);
            }
            Change::NeighbourGone(index, address) => {
                self.neighbours.retain(|it| (it.index, it.address) != (index, address));
            }
            Change::Route(route) => {
                self.unseen.remove(&name_of(source, &Change::Route(route.clone())));
                self.routes.retain(|(of, known)| (*of, known.key) != (source, route.key));
                self.routes.push((source, route));
            }
            Change::RouteGone(key) => self.routes.retain(|(of, known)| (*of, known.key) != (source, key)),
            Change::Object(object) => {
                self.unseen.remove(&name_of(source, &Change::Object(object.clone())));
                self.objects.retain(|(of, known)| (*of, known.id) != (source, object.id));
                self.objects.push((source, object));
            }
            Change::ObjectGone(id) => {
                let was_there = self.object(source, id).is_some();
                self.objects.retain(|(of, known)| (*of, known.id) != (source, id));
                if source == Source::Netlink && was_there {
                    self.routes.retain(|(of, route)| (*of, &route.hops) != (source, &Hops::Object(id)));
                }
            }
            Change::Rule(rule) => {
                self.unseen.remove(&name_of(source, &Change::Rule(rule.clone())));
                self.rules.retain(|known| *known != rule);
                self.rules.push(rule);
            }
            Change::RuleGone(rule) => self.rules.retain(|known| *known != rule),
            Change::Address(_) | Change::AddressGone(_) => {}
        }
    }

    fn object(&self, source: Source, id: u32) -> Option<&ObjectKind> {
        self.objects.iter().find(|(of, known)| (*of, known.id) == (source, id)).map(|(_, known)| &known.kind)
    }

    fn link(&self, index: InterfaceIndex) -> Option<&Link> {
        self.links.iter().find(|link| link.index == index)
    }

    /// What packets meet that take a path, and whether it is up.
    fn path(&self, path: &Path, version: IpVersion) -> (NextHop<Adjacency>, bool) {
        let link = self.link(path.index);
        let is_up =
            !path.is_down && (path.index == 0 || link.is_some_and(|link| link.is_up && link.has_carrier));
        let forward = || {
            let (link, gateway) = (link?, path.gateway?);
            let port = port_of(&link.name)?;
            let mac = self.usable_mac(path.index, gateway)?;
            let ethertype = version.ethertype().0.to_be_bytes();
            Some(NextHop::Forward(Adjacency::ethernet(port, mac, link.mac?, ethertype)))
        };
        let port = link.and_then(|link| port_of(&link.name)).filter(|_| !path.has_encapsulation);
        let resolve = port.map_or(NextHop::Punt, NextHop::Resolve);
        (forward().filter(|_| !path.has_encapsulation).unwrap_or(resolve), is_up)
    }

    fn usable_mac(&self, index: InterfaceIndex, address: IpAddr) -> Option<[u8; 6]> {
        let known = self.neighbours.iter().find(|it| (it.index, it.address) == (index, address))?;
        let is_useless = matches!(known.state, NeighbourState::Failed | NeighbourState::Incomplete);
        known.mac.filter(|_| !is_useless)
    }

    /// The paths of a route; `Err` for what has none.
    fn ways(&self, source: Source, route: &Route) -> Vec<Result<Path, NextHop<Adjacency>>> {
        let single = |kind: Option<&ObjectKind>| match kind {
            Some(ObjectKind::Path(path)) => Ok(*path),
            Some(ObjectKind::Blackhole) => Err(NextHop::Blackhole),
            _ => Err(NextHop::Punt),
        };
        match &route.hops {
            Hops::Paths(paths) if !paths.is_empty() => paths.iter().map(|path| Ok(*path)).collect(),
            Hops::None | Hops::Paths(_) => vec![Err(NextHop::Punt)],
            Hops::Object(id) => match self.object(source, *id) {
                Some(ObjectKind::Group(members)) if !members.is_empty() => {
                    members.iter().map(|(id, _)| single(self.object(source, *id))).collect()
                }
                other => vec![single(other)],
            },
        }
    }

    /// What may happen to packets to an address, by the routes that `counts` lets count. Empty if there is no route.
    fn resolve(
        &self,
        address: IpAddr,
        table: u32,
        counts: impl Fn(&Route) -> bool,
    ) -> Vec<NextHop<Adjacency>> {
        let order = |(source, route): &(Source, Route)| {
            let rank = match (is_conditional(route), route.key.table) {
                (true, LOCAL) => 0,
                (true, _) => 1,
                (false, LOCAL) => 2,
                (false, _) => 3,
            };
            let longest_first = u8::MAX - route.key.prefix.prefix_len();
            (longest_first, rank, route.key.metric, *source, route.key.tos, route.key.from)
        };
        let is_it = |route: &Route| {
            let RouteKey { prefix, table: of, .. } = route.key;
            prefix.contains(&address) && (of == table || (of == LOCAL && table == MAIN)) && counts(route)
        };
        let mut all: Vec<&(Source, Route)> = self.routes.iter().filter(|(_, route)| is_it(route)).collect();
        all.sort_by_key(|route| order(route));
        let peculiar = |(_, route): &&(Source, Route)| is_conditional(route) || route.only_linux.is_some();
        let peculiar: BTreeSet<IpNet> =
            all.iter().copied().filter(|route| peculiar(route)).map(|(_, route)| route.key.prefix).collect();
        all.dedup_by_key(|(_, route)| route.key.prefix);
        let best = all.into_iter().find(|(_, route)| !fixed::hides(route.key.prefix, route.kind));
        let fixed = fixed::routes().find(|(prefix, _)| prefix.contains(&address));
        if let Some((prefix, fixed)) = fixed
            && best.is_none_or(|(_, route)| route.key.prefix.prefix_len() <= prefix.prefix_len())
        {
            return vec![match fixed.get() {
                1 => NextHop::Punt,
                2 => NextHop::Blackhole,
                _ => NextHop::Broadcast,
            }];
        }
        let Some((source, route)) = best else { return Vec::new() };
        let fixed = match route.kind {
            _ if peculiar.contains(&route.key.prefix) => Some(NextHop::Punt),
            RouteKind::Unicast => route.mtu.map(|_| NextHop::Punt),
            RouteKind::Local | RouteKind::Anycast => Some(NextHop::Local),
            RouteKind::Broadcast | RouteKind::Multicast => Some(NextHop::Broadcast),
            RouteKind::Blackhole => Some(NextHop::Blackhole),
            RouteKind::Unreachable => Some(NextHop::Unreachable),
            RouteKind::Prohibit => Some(NextHop::Prohibit),
            RouteKind::Throw => return Vec::new(),
        };
        if let Some(fixed) = fixed {
            return vec![fixed];
        }
        let mut ways = self.ways(*source, route);
        // The same way twice is one of more weight.
        for way in ways.iter_mut().flatten() {
            way.weight = 1;
        }
        let first = ways[0];
        if let Ok(Path { index, gateway: None, is_down: false, has_encapsulation: false, .. }) = first
            && ways.iter().all(|way| *way == first)
            && self.link(index).is_some_and(|link| port_of(&link.name).is_some())
            && self.usable_mac(index, address).is_some()
        {
            ways = vec![first.map(|path| Path { gateway: Some(address), ..path })];
        }
        let values = ways.iter().map(|way| match way {
            Ok(path) => self.path(path, IpVersion::of(address)),
            Err(fixed) => (*fixed, true),
        });
        let up: Vec<_> = values.filter(|(_, is_up)| *is_up).map(|(value, _)| value).collect();
        if up.is_empty() { vec![NextHop::Punt] } else { up }
    }

    /// What may happen to packets by the rules.
    fn decide(&self, is_main_only: bool, port: u16, from: IpAddr, to: IpAddr) -> Vec<NextHop<Adjacency>> {
        let or_none = |found: Vec<_>| if found.is_empty() { vec![NextHop::NoRoute] } else { found };
        if is_main_only {
            return or_none(self.resolve(to, MAIN, |_| true));
        }
        let mut rules: Vec<&Rule> =
            self.rules.iter().filter(|rule| rule.version == IpVersion::of(to)).collect();
        rules.sort_by_key(|rule| rule.priority);
        let has = |prefix: Option<IpNet>, address| prefix.is_none_or(|prefix| prefix.contains(&address));
        for rule in rules {
            let is_like_it = has(rule.from, from)
                && has(rule.to, to)
                && rule.mark.is_none()
                && rule.input.as_ref().is_none_or(|name| port_of(name) == Some(port));
            if is_like_it && rule.has_other_selectors {
                return vec![NextHop::Punt];
            }
            if is_like_it == rule.is_inverted {
                continue;
            }
            let suppress = rule.suppress_prefix_length;
            let ends =
                |kind| matches!(kind, RouteKind::Blackhole | RouteKind::Unreachable | RouteKind::Prohibit);
            let counts = |route: &Route| {
                suppress.is_none_or(|length| {
                    u32::from(route.key.prefix.prefix_len()) > length || ends(route.kind)
                })
            };
            let found = match rule.action {
                RuleAction::Table(LOCAL) => {
                    self.resolve(to, MAIN, |route| route.key.table == LOCAL && counts(route))
                }
                RuleAction::Table(table)
                    if table == MAIN || self.routes.iter().any(|(_, it)| it.key.table == table) =>
                {
                    self.resolve(to, table, counts)
                }
                RuleAction::Blackhole => vec![NextHop::Blackhole],
                RuleAction::Prohibit => vec![NextHop::Prohibit],
                _ => Vec::new(),
            };
            if !found.is_empty() {
                return found;
            }
        }
        vec![NextHop::NoRoute]
    }
}

fn any_address() -> impl Strategy<Value = IpAddr> {
    prop::sample::select(ADDRESSES.as_slice()).prop_map(|text| text.parse().unwrap())
}

fn any_path() -> impl Strategy<Value = Path> {
    let rarely = || prop::bool::weighted(0.05);
    (0u32..5, prop::option::weighted(0.6, any_address()), 1u16..4, rarely(), rarely()).prop_map(
        |(index, gateway, weight, is_down, has_encapsulation)| Path {
            index,
            gateway,
            weight,
            is_down,
            has_encapsulation,
        },
    )
}

fn any_key() -> impl Strategy<Value = RouteKey> {
    let table = prop_oneof![4 => Just(MAIN), 1 => Just(LOCAL), 1 => Just(100)];
    let tos = prop_oneof![9 => Just(0u8), 1 => Just(8)];
    let prefix = prop::sample::select(PREFIXES.as_slice());
    let from = prop::option::weighted(0.1, prop::sample::select(["2001:db8::/32", "fd00::/8"].as_slice()));
    (table, prefix, 0u32..3, tos, from).prop_map(|(table, prefix, metric, tos, from)| {
        let prefix: IpNet = prefix.parse().unwrap();
        let is_ipv6 = prefix.addr().is_ipv6();
        let from = from.filter(|_| is_ipv6).map(|from| from.parse().unwrap());
        RouteKey { table, prefix, metric, tos, from }
    })
}

fn any_route() -> impl Strategy<Value = Route> {
    use RouteKind::*;
    let other = prop::sample::select(
        [Local, Broadcast, Anycast, Multicast, Blackhole, Unreachable, Prohibit, Throw].as_slice(),
    );
    let kind = prop_oneof![4 => Just(Unicast), 1 => other];
    let hops = prop_oneof![
        4 => any_path().prop_map(|path| Hops::Paths(vec![path])),
        2 => prop::collection::vec(any_path(), 0..4).prop_map(Hops::Paths),
        2 => (0u32..5).prop_map(Hops::Object),
        1 => Just(Hops::None),
    ];
    let mtu = prop::option::weighted(0.05, Just(1300));
    let only_linux = prop::option::weighted(0.05, Just(OnlyLinux::Attribute(99)));
    (any_key(), kind, hops, mtu, only_linux).prop_map(|(key, kind, hops, mtu, only_linux)| Route {
        key,
        kind,
        protocol: 4,
        preferred_source: None,
        mtu,
        preference: Route::MEDIUM,
        only_linux,
        hops,
    })
}

fn any_link() -> impl Strategy<Value = Link> {
    (1u32..5, 0u8..3, prop::bool::weighted(0.9), prop::bool::weighted(0.8)).prop_map(
        |(index, mac, is_up, has_carrier)| Link {
            index,
            name: NAMES[index as usize].into(),
            mac: (mac > 0).then_some([2, 0, 0, 0, mac, index as u8]),
            mtu: 1500,
            is_up,
            has_carrier,
            master: None,
            below: None,
            kind: String::new(),
            vlan: None,
            has_priorities: false,
            vrf_table: None,
        },
    )
}

fn any_neighbour() -> impl Strategy<Value = Neighbour> {
    use NeighbourState::*;
    let state = prop::sample::select([Incomplete, Failed, Reachable, Stale, Permanent].as_slice());
    (1u32..5, any_address(), 0u8..3, state).prop_map(|(index, address, mac, state)| Neighbour {
        index,
        address,
        mac: (mac > 0).then_some([2, 1, 0, 0, mac, index as u8]),
        state,
    })
}

fn any_object() -> impl Strategy<Value = Object> {
    let kind = prop_oneof![
        3 => any_path().prop_map(ObjectKind::Path),
        1 => Just(ObjectKind::Blackhole),
        2 => prop::collection::vec((0u32..5, 1u16..4), 0..4).prop_map(ObjectKind::Group),
    ];
    (0u32..5, kind).prop_map(|(id, kind)| Object { id, kind })
}

fn any_rule() -> impl Strategy<Value = Rule> {
    let plain = |version, priority, action| Rule {
        version,
        priority,
        action,
        from: None,
        to: None,
        input: None,
        suppress_prefix_length: None,
        is_inverted: false,
        is_l3mdev: false,
        mark: None,
        has_other_selectors: false,
    };
    (prop::sample::select(&IpVersion::ALL[..]), 0usize..8, any::<bool>()).prop_map(
        move |(version, which, is_inverted)| {
            let rule = |priority, action| plain(version, priority, action);
            let net =
                |v4: &str, v6: &str| Some(if version == IpVersion::V6 { v6 } else { v4 }.parse().unwrap());
            match which {
                0 => rule(0, RuleAction::Table(LOCAL)),
                1 => rule(32766, RuleAction::Table(MAIN)),
                2 => Rule { suppress_prefix_length: Some(0), ..rule(100, RuleAction::Table(MAIN)) },
                3 => Rule {
                    from: net("10.0.0.0/24", "2001:db8::/64"),
                    is_inverted,
                    ..rule(200, RuleAction::Table(100))
                },
                4 => Rule { input: Some("eth1".into()), is_inverted, ..rule(300, RuleAction::Table(100)) },
                5 => Rule { mark: Some((7, 7)), is_inverted, ..rule(400, RuleAction::Blackhole) },
                6 => Rule {
                    to: net("8.8.8.8/32", "2001:db9::/64"),
                    has_other_selectors: true,
                    is_inverted,
                    ..rule(500, RuleAction::Prohibit)
                },
                _ => rule(250, RuleAction::Table(77)),
            }
        },
    )
}

fn any_step() -> impl Strategy<Value = Step> {
    let source = || prop_oneof![Just(Source::Netlink), Just(Source::Fpm)];
    let kernel =
        |change: BoxedStrategy<Change>| change.prop_map(|change| Step::Apply(Source::Netlink, change));
    let either = move |change: BoxedStrategy<Change>| {
        (source(), change).prop_map(|(source, change)| Step::Apply(source, change))
    };
    let parts = [Part::Links, Part::Routes4, Part::Routes6, Part::Objects, Part::Neighbours, Part::Rules];
    let part = prop::sample::select(parts.to_vec());
    let of_source = (source(), part).prop_filter("the kernel's", |(source, part)| {
        *source == Source::Netlink || matches!(part, Part::Routes4 | Part::Routes6 | Part::Objects)
    });
    prop_oneof![
        8 => either(any_route().prop_map(Change::Route).boxed()),
        2 => either(any_key().prop_map(Change::RouteGone).boxed()),
        4 => kernel(any_link().prop_map(Change::Link).boxed()),
        1 => kernel((1u32..5).prop_map(Change::LinkGone).boxed()),
        6 => kernel(any_neighbour().prop_map(Change::Neighbour).boxed()),
        2 => kernel((1u32..5, any_address()).prop_map(|(index, it)| Change::NeighbourGone(index, it)).boxed()),
        4 => either(any_object().prop_map(Change::Object).boxed()),
        1 => either((0u32..5).prop_map(Change::ObjectGone).boxed()),
        3 => kernel(any_rule().prop_map(Change::Rule).boxed()),
        1 => kernel(any_rule().prop_map(Change::RuleGone).boxed()),
        2 => (of_source, any::<bool>()).prop_map(|((source, part), begins)| {
            if begins { Step::DumpBegins(source, part) } else { Step::DumpEnds(source, part) }
        }),
        1 => prop::bool::weighted(0.1).prop_map(|fpm| {
            if fpm { Step::Forget(Source::Fpm) } else { Step::DumpBegins(Source::Fpm, Part::Routes4) }
        }),
    ]
}

/// All that may happen to packets to an address with this next hop.
fn outcomes(mirror: &Mirror, index: NextHopIndex) -> Vec<NextHop<Adjacency>> {
    let mut found: Vec<NextHop<Adjacency>> = Vec::new();
    let flows = if mirror.fib.next_hops().members(index).is_ok() { 0..1024 } else { 0..1 };
    for flow in flows {
        let outcome = *mirror.fib.state().next_hops().resolve(index, flow);
        if !found.contains(&outcome) {
            found.push(outcome);
        }
    }
    found
}

fn lookup(mirror: &Mirror, vrf: usize, address: IpAddr) -> NextHopIndex {
    let state = mirror.fib.state();
    match address {
        IpAddr::V4(address) => state.ipv4(vrf).unwrap().lookup(address.into()),
        IpAddr::V6(address) => state.ipv6(vrf).unwrap().lookup(address.into()),
    }
}

fn same(found: &[NextHop<Adjacency>], expected: &[NextHop<Adjacency>]) -> bool {
    let none = [NextHop::NoRoute];
    let expected = if expected.is_empty() { &none } else { expected };
    found.iter().all(|it| expected.contains(it)) && expected.iter().all(|it| found.contains(it))
}

fn check(mirror: &Mirror, model: &Model) -> Result<(), TestCaseError> {
    let mut known: BTreeMap<NextHopIndex, Vec<NextHop<Adjacency>>> = BTreeMap::new();
    let mut outcomes = |index| known.entry(index).or_insert_with(|| outcomes(mirror, index)).clone();
    let addresses: Vec<IpAddr> = ADDRESSES.iter().map(|text| text.parse().unwrap()).collect();
    for &address in &addresses {
        for table in [MAIN, 100] {
            let Some(vrf) = mirror.fib.vrf_index(table) else { continue };
            let found = outcomes(lookup(mirror, vrf, address));
            let expected = model.resolve(address, table, |_| true);
            prop_assert!(same(&found, &expected), "{address} in {table}: {found:?}, should be {expected:?}");
        }
        for (port, &from) in
            [0u16, 1].into_iter().flat_map(|port| addresses.iter().step_by(3).map(move |it| (port, it)))
        {
            if from.is_ipv4() != address.is_ipv4() {
                continue;
            }
            let (policy, ask) = (mirror.policy(), |vrf| lookup(mirror, vrf, address));
            let (decision, is_main_only) = match (from, address) {
                (IpAddr::V4(from), IpAddr::V4(to)) => {
                    (policy.ipv4.evaluate(port, from.into(), to.into(), ask), policy.ipv4.is_main_only())
                }
                (IpAddr::V6(from), IpAddr::V6(to)) => {
                    (policy.ipv6.evaluate(port, from.into(), to.into(), ask), policy.ipv6.is_main_only())
                }
                _ => continue,
            };
            let found = match decision {
                Decision::Route(index) => outcomes(index),
                Decision::NoRoute => vec![NextHop::NoRoute],
                Decision::Blackhole => vec![NextHop::Blackhole],
                Decision::Unreachable => vec![NextHop::Unreachable],
                Decision::Prohibit => vec![NextHop::Prohibit],
                Decision::Punt => vec![NextHop::Punt],
            };
            let expected = model.decide(is_main_only, port, from, address);
            prop_assert!(same(&found, &expected), "{from} to {address}: {found:?}, should be {expected:?}");
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn packets_go_where_the_model_says(steps in prop::collection::vec(prop::collection::vec(any_step(), 1..6), 1..30)) {
        let ports = NAMES.iter().filter_map(|name| Some((name.to_string(), port_of(name)?)));
        let mut mirror = Mirror::new(ports).unwrap();
        let mut model = Model::default();
        for batch in steps {
            for step in batch {
                model.step(&step);
                match step {
                    Step::Apply(source, change) => mirror.apply(source, change),
                    Step::DumpBegins(source, part) => mirror.dump_begins(source, part),
                    Step::DumpEnds(source, part) => mirror.dump_ends(source, part),
                    Step::Forget(source) => mirror.forget(source),
                }
            }
            mirror.publish();
            check(&mirror, &model)?;
            let mut told: Vec<String> = model.routes.iter().map(|(source, it)| format!("{source} {:?}", it.key)).collect();
            let mut shown: Vec<String> = mirror.routes().map(|it| format!("{} {:?}", it.source, it.key)).collect();
            told.sort();
            shown.sort();
            prop_assert_eq!(told, shown);
        }
        prop_assert!(mirror.problems().next().is_none());
        // Nothing is left over.
        mirror.forget(Source::Fpm);
        mirror.forget(Source::Netlink);
        mirror.publish();
        mirror.publish();
        prop_assert_eq!(mirror.fib.next_hops().len(), 6);
        prop_assert_eq!(mirror.fib.tables().collect::<Vec<_>>(), [MAIN]);
        prop_assert!(mirror.objects.known.is_empty());
        prop_assert_eq!(mirror.targets.all.iter().count(), 0);
    }
}
