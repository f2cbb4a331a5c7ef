//! The history: what the forwarding tables had for a prefix, and what they got, for somebody who asks later what a route did at
//! 3:12.
//!
//! It is a ring of the last [`MOST`] changes of routes *in force*: what waits behind the best route of a prefix moves no packet.
//! A next-hop object that gets other paths moves the packets of all its routes without a word about them, so it is a change too.
//!
//! A change keeps what it says of next hops as text, since interfaces and objects may be others when somebody reads it. Some hundred
//! texts serve a full table: each target keeps its own until a link or an object changes.

use super::objects::ObjectKey;
use super::routes::{Key, MirrorFamily, Stored};
use super::targets::TargetId;
use super::{Mirror, fixed};
use crate::change::{Hops, ObjectKind, RouteKind, Source};
use ipnet::IpNet;
use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Paths that a text names.
const MOST_PATHS: usize = 8;

/// Changes that are kept; older ones are overwritten. They take 6.5 MB where routes have a path each; of more, eight are named.
pub const MOST: usize = 1 << 16;

/// A route in force, or what an object stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// Where packets go, in the words of `ip route`: `via 10.0.0.1 dev eth0`, `blackhole`.
    pub hops: Arc<str>,
    /// The next-hop object that the route names.
    pub object: Option<NonZeroU32>,
    /// The route's priority.
    pub metric: u32,
    /// Who made the route (`rtm_protocol`).
    pub protocol: u8,
    /// Who told of it.
    pub source: Source,
}

/// What has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The route of a table to a prefix.
    Route(u32, IpNet),
    /// A next-hop object that routes name.
    Object(u32),
}

/// A change of what packets do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteChange {
    /// When it was, in microseconds since 1970.
    pub time_us: u64,
    /// What has changed.
    pub subject: Subject,
    /// What it was before; `None` if there was nothing.
    pub old: Option<Way>,
    /// What it was then; `None` if nothing was left.
    pub new: Option<Way>,
}

/// How far the history reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// All changes since this moment are there, in microseconds since 1970.
    pub since_us: u64,
    /// Changes that are there.
    pub kept: usize,
    /// Older changes that were overwritten.
    pub overwritten: u64,
}

/// The ring.
#[derive(Debug, Default)]
pub(super) struct History {
    /// The present moment; nobody has said one while it is 0.
    pub(super) now_us: u64,
    began_us: u64,
    changes: VecDeque<RouteChange>,
    overwritten: u64,
}

impl History {
    fn push(&mut self, subject: Subject, old: Option<Way>, new: Option<Way>) {
        if self.changes.len() == MOST {
            self.changes.pop_front();
            self.overwritten += 1;
        }
        self.changes.push_back(RouteChange { time_us: self.now_us, subject, old, new });
    }
}

impl Mirror {
    /// Says what time it is: the changes that follow happen then.
    pub fn set_time(&mut self, now: SystemTime) {
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.history.now_us = since.as_micros() as u64;
        if self.history.began_us == 0 {
            self.history.began_us = self.history.now_us;
        }
    }

    /// The changes of routes in force from the one of this number on, with their numbers; the first that ever was has number 0.
    pub fn changes_from(&self, number: u64) -> impl Iterator<Item = (u64, &RouteChange)> {
        let first = self.history.overwritten;
        let skipped = number.saturating_sub(first) as usize;
        (first + skipped as u64..).zip(self.history.changes.iter().skip(skipped))
    }

    /// How far back [`Mirror::changes_from`] reaches.
    pub fn reach(&self) -> Reach {
        let History { began_us, changes, overwritten, .. } = &self.history;
        // Of changes at one moment some may be gone.
        let since_us = match changes.front() {
            Some(oldest) if *overwritten > 0 => oldest.time_us + 1,
            _ => *began_us,
        };
        Reach { since_us, kept: changes.len(), overwritten: *overwritten }
    }

    /// The route in force to a prefix is another one.
    pub(super) fn record_route<A: MirrorFamily>(
        &mut self,
        table: u32,
        before: Option<(Key<A>, Stored)>,
        after: Option<(Key<A>, Stored)>,
    ) {
        let Some((key, _)) = after.or(before) else { return };
        let key = key.route_key(table);
        if fixed::is_fixed(key.prefix) {
            return;
        }
        let (old, new) = (self.way(before), self.way(after));
        if old != new {
            self.history.push(Subject::Route(key.table, key.prefix), old, new);
        }
    }

    fn way<A: MirrorFamily>(&mut self, route: Option<(Key<A>, Stored)>) -> Option<Way> {
        let (key, Stored { target, protocol, .. }) = route?;
        let (hops, object) = self.words(target);
        Some(Way { hops, object, metric: key.metric, protocol, source: key.source })
    }

    /// What a target does to packets, in words.
    pub(super) fn words(&mut self, id: TargetId) -> (Arc<str>, Option<NonZeroU32>) {
        let generation = self.links.generation + self.objects.generation;
        let target = self.targets.get(id);
        let object = target.key.object();
        let number = object.and_then(|object| NonZeroU32::new(object.id));
        if let Some((known, words)) = &target.value.words {
            // What an object was that is gone only its targets know.
            if *known == generation || object.is_some_and(|object| !self.objects.is_there(object)) {
                return (Arc::clone(words), number);
            }
        }
        let content = Arc::clone(&target.key);
        let mut words = match (&content.hops, object) {
            (_, Some(object)) => {
                format!("{} (nhid {})", self.object_words(object).unwrap_or_default(), object.id)
            }
            (Hops::Paths(paths), None) => {
                let has_weight = paths.iter().any(|path| path.weight != 1);
                joined(paths.len(), paths.iter().map(|path| self.path_text(path, has_weight)))
            }
            (Hops::None | Hops::Object(_), None) => String::new(),
        };
        if content.kind != RouteKind::Unicast {
            words = format!("{} {words}", content.kind.name());
        }
        if let Some(mtu) = content.mtu {
            words = format!("{words} mtu {mtu}");
        }
        let words: Arc<str> = words.trim().into();
        self.targets.all.get_mut(id).value.words = Some((generation, Arc::clone(&words)));
        (words, number)
    }

    /// What an object stands for, in words; `None` if it is not there.
    fn object_words(&self, key: ObjectKey) -> Option<String> {
        let kind = self.objects.known.get(&key)?.kind.as_ref()?;
        let single = |kind: &ObjectKind, weight: Option<u16>| match kind {
            ObjectKind::Path(path) => {
                let weight = weight.map_or(String::new(), |weight| format!(" weight {weight}"));
                self.path_text(path, false) + &weight
            }
            ObjectKind::Blackhole => "blackhole".to_owned(),
            ObjectKind::Group(_) => "group".to_owned(),
            ObjectKind::OnlyLinux(_) => "punt".to_owned(),
        };
        let ObjectKind::Group(members) = kind else { return Some(single(kind, None)) };
        let has_weight = members.iter().any(|&(_, weight)| weight != 1);
        let texts = members.iter().map(|&(id, weight)| {
            let member = self.objects.known.get(&ObjectKey { source: key.source, id });
            let kind = member.and_then(|member| member.kind.as_ref());
            kind.map_or_else(|| format!("nhid {id}"), |kind| single(kind, has_weight.then_some(weight)))
        });
        Some(joined(members.len(), texts))
    }

    /// What these objects stand for.
    pub(super) fn words_of(&self, objects: &[ObjectKey]) -> Vec<Option<Arc<str>>> {
        objects.iter().map(|&key| self.object_words(key).map(Arc::from)).collect()
    }

    /// Objects that routes name stood for `before`, and may stand for something else now.
    pub(super) fn record_objects(&mut self, objects: &[ObjectKey], before: Vec<Option<Arc<str>>>) {
        let after = self.words_of(objects);
        for ((key, old), new) in objects.iter().zip(before).zip(after) {
            let way = |hops| Way { hops, object: None, metric: 0, protocol: 0, source: key.source };
            if old != new {
                self.history.push(Subject::Object(key.id), old.map(way), new.map(way));
            }
        }
    }
}

/// Joins the first of so many paths: the history is bounded by its number of changes, so that each has to be short.
fn joined(count: usize, texts: impl Iterator<Item = String>) -> String {
    let text = texts.take(MOST_PATHS).collect::<Vec<_>>().join(", ");
    match count.checked_sub(MOST_PATHS) {
        None | Some(0) => text,
        Some(more) => format!("{text} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::{Change, Hops, Link, Object, Path, Route, RouteKey};
    use fib::MAIN;
    use std::time::Duration;

    const KERNEL: Source = Source::Netlink;

    /// A router with ports eth1 and eth2, which are interfaces 1 and 2, at second 1,000 since 1970.
    fn router() -> Mirror {
        let mut mirror = Mirror::new((1..3).map(|port| (format!("eth{port}"), port))).unwrap();
        for index in 1..3 {
            mirror.apply(KERNEL, link(index, &format!("eth{index}")));
        }
        at(&mut mirror, 1_000);
        mirror
    }

    fn link(index: u32, name: &str) -> Change {
        Change::Link(Link {
            index,
            name: name.into(),
            mac: Some([2, 0, 0, 0, 0, index as u8]),
            mtu: 1500,
            is_up: true,
            has_carrier: true,
            master: None,
            below: None,
            kind: String::new(),
            vlan: None,
            has_priorities: false,
            vrf_table: None,
        })
    }

    fn at(mirror: &mut Mirror, second: u64) {
        mirror.set_time(UNIX_EPOCH + Duration::from_secs(second));
    }

    fn path(gateway: &str, index: u32) -> Path {
        let gateway = Some(gateway.parse().unwrap());
        Path { index, gateway, weight: 1, is_down: false, has_encapsulation: false }
    }

    fn route(prefix: &str, metric: u32, hops: Hops) -> Change {
        let key = RouteKey { table: MAIN, prefix: prefix.parse().unwrap(), metric, tos: 0, from: None };
        let kind = if hops == Hops::None { RouteKind::Blackhole } else { RouteKind::Unicast };
        Change::Route(Route {
            key,
            kind,
            protocol: 4,
            preferred_source: None,
            mtu: None,
            preference: Route::MEDIUM,
            only_linux: None,
            hops,
        })
    }

    fn via(prefix: &str, metric: u32, gateway: &str, index: u32) -> Change {
        route(prefix, metric, Hops::Paths(vec![path(gateway, index)]))
    }

    fn gone(prefix: &str, metric: u32) -> Change {
        Change::RouteGone(RouteKey {
            table: MAIN,
            prefix: prefix.parse().unwrap(),
            metric,
            tos: 0,
            from: None,
        })
    }

    /// What was recorded, a line each.
    fn recorded(mirror: &Mirror) -> Vec<String> {
        let way = |way: &Option<Way>| {
            way.as_ref()
                .map_or("-".to_owned(), |way| format!("{} metric {} {}", way.hops, way.metric, way.source))
        };
        let changes = mirror.changes_from(0).map(|(_, change)| {
            let subject = match change.subject {
                Subject::Route(table, prefix) => format!("{prefix} table {table}"),
                Subject::Object(id) => format!("object {id}"),
            };
            format!("{} {subject}: {} => {}", change.time_us / 1_000_000, way(&change.old), way(&change.new))
        });
        changes.collect()
    }

    #[test]
    fn a_route_that_comes_changes_and_goes_has_three_entries() {
        let mut mirror = router();
        mirror.apply(KERNEL, via("10.9.0.0/16", 0, "10.0.1.2", 1));
        at(&mut mirror, 2_000);
        mirror.apply(KERNEL, via("10.9.0.0/16", 0, "10.0.2.2", 2));
        // Told once more, as a dump does, nothing has changed.
        mirror.apply(KERNEL, via("10.9.0.0/16", 0, "10.0.2.2", 2));
        mirror.publish();
        at(&mut mirror, 3_000);
        mirror.apply(KERNEL, gone("10.9.0.0/16", 0));
        mirror.apply(KERNEL, gone("10.9.0.0/16", 0));
        assert_eq!(
            recorded(&mirror),
            [
                "1000 10.9.0.0/16 table 254: - => via 10.0.1.2 dev eth1 metric 0 netlink",
                "2000 10.9.0.0/16 table 254: via 10.0.1.2 dev eth1 metric 0 netlink => \
                 via 10.0.2.2 dev eth2 metric 0 netlink",
                "3000 10.9.0.0/16 table 254: via 10.0.2.2 dev eth2 metric 0 netlink => -",
            ]
        );
        assert_eq!(mirror.reach(), Reach { since_us: 1_000_000_000, kept: 3, overwritten: 0 });
    }

    #[test]
    fn routes_that_wait_behind_the_best_one_are_not_recorded_until_they_are_it() {
        let mut mirror = router();
        mirror.apply(KERNEL, via("10.9.0.0/16", 20, "10.0.1.2", 1));
        // Worse ones: of another metric, of another source.
        mirror.apply(KERNEL, via("10.9.0.0/16", 100, "10.0.2.2", 2));
        mirror.apply(Source::Fpm, route("10.9.0.0/16", 20, Hops::None));
        mirror.apply(KERNEL, gone("10.9.0.0/16", 100));
        assert_eq!(recorded(&mirror).len(), 1);
        mirror.apply(KERNEL, gone("10.9.0.0/16", 20));
        // A better one takes its place, and the worse one gets it back.
        mirror.apply(KERNEL, via("10.9.0.0/16", 5, "10.0.2.2", 2));
        mirror.apply(KERNEL, gone("10.9.0.0/16", 5));
        let best = "via 10.0.2.2 dev eth2 metric 5 netlink";
        let blackhole = "blackhole metric 20 fpm";
        assert_eq!(
            recorded(&mirror)[1..],
            [
                format!("1000 10.9.0.0/16 table 254: via 10.0.1.2 dev eth1 metric 20 netlink => {blackhole}"),
                format!("1000 10.9.0.0/16 table 254: {blackhole} => {best}"),
                format!("1000 10.9.0.0/16 table 254: {best} => {blackhole}"),
            ]
        );
    }

    #[test]
    fn an_object_that_changes_is_recorded_and_one_that_goes_is_still_known() {
        let mut mirror = router();
        let object = |gateway: &str, index| {
            Change::Object(Object { id: 7, kind: ObjectKind::Path(path(gateway, index)) })
        };
        mirror.apply(KERNEL, object("10.0.1.2", 1));
        // Nothing names it yet.
        mirror.apply(KERNEL, object("10.0.1.3", 1));
        mirror.apply(KERNEL, route("10.9.0.0/16", 0, Hops::Object(7)));
        mirror.apply(KERNEL, object("10.0.2.2", 2));
        mirror.apply(KERNEL, Change::ObjectGone(7));
        mirror.publish();
        let last = "via 10.0.2.2 dev eth2";
        assert_eq!(
            recorded(&mirror),
            [
                "1000 10.9.0.0/16 table 254: - => via 10.0.1.3 dev eth1 (nhid 7) metric 0 netlink".to_owned(),
                format!("1000 object 7: via 10.0.1.3 dev eth1 metric 0 netlink => {last} metric 0 netlink"),
                format!("1000 object 7: {last} metric 0 netlink => -"),
                format!("1000 10.9.0.0/16 table 254: {last} (nhid 7) metric 0 netlink => -"),
            ]
        );
    }

    #[test]
    fn the_name_of_an_interface_is_that_of_the_time() {
        let mut mirror = router();
        mirror.apply(KERNEL, via("10.9.0.0/16", 0, "10.0.1.2", 1));
        mirror.apply(KERNEL, link(1, "lan"));
        mirror.apply(KERNEL, gone("10.9.0.0/16", 0));
        let lines = recorded(&mirror);
        assert!(lines[0].contains("=> via 10.0.1.2 dev eth1 "), "{lines:?}");
        assert!(lines[1].contains(": via 10.0.1.2 dev lan "), "{lines:?}");
    }

    #[test]
    fn the_oldest_changes_are_overwritten_and_the_reach_says_so() {
        let mut mirror = router();
        for number in 0..MOST as u64 + 10 {
            at(&mut mirror, 1_000 + number);
            let gateway = if number % 2 == 0 { "10.0.1.2" } else { "10.0.1.3" };
            mirror.apply(KERNEL, via("10.9.0.0/16", 0, gateway, 1));
        }
        let reach = Reach { since_us: 1_010_000_001, kept: MOST, overwritten: 10 };
        assert_eq!(mirror.reach(), reach);
        assert_eq!(
            mirror.changes_from(0).next().map(|(number, change)| (number, change.time_us)),
            Some((10, 1_010_000_000))
        );
        let last = MOST as u64 + 9;
        assert_eq!(mirror.changes_from(last).map(|(number, _)| number).collect::<Vec<_>>(), [last]);
        assert_eq!(mirror.changes_from(last + 1).count(), 0);
    }
}
