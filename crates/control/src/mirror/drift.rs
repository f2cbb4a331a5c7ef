//! Drift: whether the mirror has the routes that its source has. A fresh dump is compared with the mirror, as a whole by
//! digests, and route by route.

use super::Mirror;
use super::routes::{Key, MirrorFamily, Stored};
use super::targets::Content;
use crate::change::{Change, Part, RouteKey, Source};
use packet::{IpVersion, pulse};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

/// What a digest is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DigestOf {
    /// Who told the routes.
    pub source: Source,
    /// The table of Linux.
    pub table: u32,
    /// The family.
    pub version: IpVersion,
}

/// A number that equal sets of routes have in common, in whatever order they came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest {
    /// How many routes there are.
    pub routes: u64,
    /// The sum of their hashes.
    pub sum: u64,
}

/// What a comparison found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drift {
    /// Routes compared: those that either side has, and those that could not be read.
    pub compared: u64,
    /// How many of these differ.
    pub differing: u64,
    /// Some of them.
    pub differences: Vec<Difference>,
}

/// A route of which mirror and source have different ideas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// The mirror has it, the source does not.
    OnlyInMirror(RouteKey),
    /// The source has it, the mirror does not.
    OnlyAtSource(RouteKey),
    /// Both have it, and packets go elsewhere.
    Other(RouteKey),
}

impl Difference {
    /// The route.
    pub fn key(&self) -> RouteKey {
        let (Self::OnlyInMirror(key) | Self::OnlyAtSource(key) | Self::Other(key)) = self;
        *key
    }

    /// What the source and what the mirror has, in a word; none for nothing.
    pub fn sides(&self) -> (Option<&'static str>, Option<&'static str>) {
        match self {
            Self::OnlyInMirror(_) => (None, Some("a route")),
            Self::OnlyAtSource(_) => (Some("a route"), None),
            Self::Other(_) => (Some("a route"), Some("another route")),
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.key();
        let what = match self {
            Self::OnlyInMirror(_) => "only the mirror has it",
            Self::OnlyAtSource(_) => "the mirror has it not",
            Self::Other(_) => "the mirror has another target",
        };
        write!(f, "{} table {} metric {}: {what}", key.prefix, key.table, key.metric)
    }
}

fn digest_of(key: &RouteKey, protocol: u8, target: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    (key, protocol, target).hash(&mut hasher);
    hasher.finish()
}

impl Digest {
    fn add(&mut self, route: u64) {
        self.routes += 1;
        self.sum = self.sum.wrapping_add(route);
    }
}

/// The routes that a source has, as a fresh dump tells them: of each its key, and a number of what it says.
#[derive(Clone, Debug)]
pub struct Told {
    source: Source,
    routes: HashMap<RouteKey, u64>,
    /// Messages that were not understood: each may be a route, which the mirror does not have.
    unread: u64,
}

impl Told {
    /// Returns those of a source that has told nothing yet.
    pub fn by(source: Source) -> Told {
        Told { source, routes: HashMap::new(), unread: 0 }
    }

    /// Says how many messages were not understood.
    pub fn set_unread(&mut self, messages: u64) {
        self.unread = messages;
    }

    /// Returns how many messages were not understood.
    pub fn unread(&self) -> u64 {
        self.unread
    }

    /// Takes in a change; one that is not of a route does not count.
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::Route(route) => {
                let (key, protocol) = (route.key, route.protocol);
                let target = Content::of(self.source, route).digest();
                self.routes.insert(key, digest_of(&key, protocol, target));
            }
            Change::RouteGone(key) => drop(self.routes.remove(&key)),
            _ => {}
        }
    }

    /// Returns the digests of the routes.
    pub fn digests(&self) -> BTreeMap<DigestOf, Digest> {
        let mut digests: BTreeMap<DigestOf, Digest> = BTreeMap::new();
        for (key, &digest) in &self.routes {
            pulse::beat();
            let version = IpVersion::of(key.prefix.addr());
            let of = DigestOf { source: self.source, table: key.table, version };
            digests.entry(of).or_default().add(digest);
        }
        digests
    }
}

impl Mirror {
    /// Calls `visit` with every route of a family, its source, and its digest.
    fn for_each_digest<A: MirrorFamily>(&self, mut visit: impl FnMut(Source, RouteKey, u64)) {
        for (&table, routes) in &self.tables.tables {
            for (key, stored) in A::routes(routes).iter() {
                pulse::beat();
                let (key, source, Stored { target, protocol, .. }) =
                    (Key::route_key(key, table), key.source, stored);
                visit(source, key, digest_of(&key, *protocol, self.targets.get(*target).value.digest));
            }
        }
    }

    /// The digests of all routes.
    pub fn digests(&self) -> BTreeMap<DigestOf, Digest> {
        let mut digests: BTreeMap<DigestOf, Digest> = BTreeMap::new();
        let mut add = |source, key: RouteKey, digest| {
            let of = DigestOf { source, table: key.table, version: IpVersion::of(key.prefix.addr()) };
            digests.entry(of).or_default().add(digest);
        };
        self.for_each_digest::<u32>(&mut add);
        self.for_each_digest::<u128>(add);
        digests
    }

    /// Compares the routes of a source with those that it has told in a fresh dump. `parts` are those that the dump has;
    /// parts that are not routes do not count. `limit` is for the list of differences.
    pub fn drift(&self, parts: &[Part], told: Told, limit: usize) -> Drift {
        let Told { source, routes: mut told, unread } = told;
        let mut drift = Drift { compared: unread, differing: unread, ..Drift::default() };
        let mut differ = |difference: Option<Difference>| {
            drift.compared += 1;
            drift.differing += u64::from(difference.is_some());
            if drift.differences.len() < limit {
                drift.differences.extend(difference);
            }
        };
        let mut compare = |of: Source, key: RouteKey, digest| {
            if of == source {
                differ(match told.remove(&key) {
                    Some(same) if same == digest => None,
                    Some(_) => Some(Difference::Other(key)),
                    None => Some(Difference::OnlyInMirror(key)),
                });
            }
        };
        if parts.contains(&Part::Routes4) {
            self.for_each_digest::<u32>(&mut compare);
        }
        if parts.contains(&Part::Routes6) {
            self.for_each_digest::<u128>(&mut compare);
        }
        told.into_keys().for_each(|key| differ(Some(Difference::OnlyAtSource(key))));
        drift
    }
}
