//! Targets: what happens to packets of a route, apart from where the route leads. A full table has some hundred
//! different ones for a million routes, so routes have the number of theirs, which has the number of a next hop.

use super::hops::{BLACKHOLE, BROADCAST, GroupMember, LOCAL, PROHIBIT, PUNT, UNREACHABLE};
use super::objects::ObjectKey;
use super::{Count, Mirror};
use crate::change::{Hops, OnlyLinux, Path, Route, RouteKind, Source};
use crate::interner::{Interned, Interner};
use fib::{NextHopError, NextHopIndex};
use packet::IpVersion;
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// The number of a target.
pub(super) type TargetId = u32;

/// What happens to packets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Content {
    /// Whose objects are meant, where it is an object.
    pub(super) source: Option<Source>,
    /// The family of the packets.
    pub(super) version: IpVersion,
    pub(super) kind: RouteKind,
    pub(super) hops: Hops,
    pub(super) mtu: Option<u32>,
    /// Why all routes to its prefixes are Linux's.
    pub(super) only_linux: Option<OnlyLinux>,
}

impl Content {
    pub(super) fn of(source: Source, route: Route) -> Content {
        let source = matches!(route.hops, Hops::Object(_)).then_some(source);
        let version = IpVersion::of(route.key.prefix.addr());
        let Route { kind, hops, mtu, only_linux, .. } = route;
        Content { source, version, kind, hops, mtu, only_linux }
    }

    /// The object that it names.
    pub(super) fn object(&self) -> Option<ObjectKey> {
        match (self.source, &self.hops) {
            (Some(source), &Hops::Object(id)) => Some(ObjectKey { source, id }),
            _ => None,
        }
    }

    /// Whether a path has an encapsulation.
    pub(super) fn is_encapsulated(&self) -> bool {
        matches!(&self.hops, Hops::Paths(paths) if paths.iter().any(|path| path.has_encapsulation))
    }

    /// A number by which to see whether two are equal. It does not know in what order the paths are, nor whether they are
    /// down: the kernel changes both without a word.
    pub(super) fn digest(&self) -> u64 {
        let of = |value: &dyn Fn(&mut DefaultHasher)| {
            let mut hasher = DefaultHasher::new();
            value(&mut hasher);
            hasher.finish()
        };
        let paths: u64 = match &self.hops {
            Hops::None => 1,
            Hops::Object(id) => of(&|hasher| id.hash(hasher)),
            Hops::Paths(paths) => {
                let one = |path: &Path| of(&|hasher| Path { is_down: false, ..*path }.hash(hasher));
                paths.iter().map(one).fold(2, u64::wrapping_add)
            }
        };
        of(&|hasher| (self.kind, paths, self.mtu, self.only_linux).hash(hasher))
    }
}

/// What belongs to a content.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) digest: u64,
    /// The next hop that says to workers what happens.
    pub(super) index: NextHopIndex,
    /// Its routes are to be removed with the next publication; no others may get it.
    pub(super) is_condemned: bool,
    /// What happens in words, once somebody has asked, and of which state of links and objects.
    pub(super) words: Option<(u64, Arc<str>)>,
}

/// All targets.
#[derive(Debug, Default)]
pub(super) struct Targets {
    pub(super) all: Interner<Content, Target>,
    /// Those that name an object.
    of_objects: BTreeSet<(ObjectKey, TargetId)>,
    /// How many are condemned.
    pub(super) condemned: usize,
}

impl Targets {
    pub(super) fn get(&self, id: TargetId) -> &Interned<Content, Target> {
        self.all.get(id)
    }
}

impl Mirror {
    /// The target with this content, with one user more.
    pub(super) fn acquire_target(&mut self, content: Content) -> TargetId {
        if let Some(id) = self.targets.all.find(&content) {
            return id;
        }
        let found = self.number_of(&content);
        let index = found.unwrap_or_else(|error| {
            self.note_next_hop_error(error);
            PUNT
        });
        let target = Target { digest: content.digest(), index, is_condemned: false, words: None };
        let object = content.object();
        let id = self.targets.all.add(Arc::new(content), target);
        self.targets.of_objects.extend(object.map(|object| (object, id)));
        // What could not be had is not shared, so that the next route tries again.
        if found.is_err() {
            self.targets.all.hide(id);
        }
        id
    }

    /// One user of a target more.
    pub(super) fn share_target(&mut self, id: TargetId) {
        self.targets.all.get_mut(id).users += 1;
    }

    /// One user of a target less.
    pub(super) fn release_target(&mut self, id: TargetId) {
        let object = self.targets.get(id).key.object();
        if let Some(target) = self.targets.all.release(id) {
            object.map(|object| self.targets.of_objects.remove(&(object, id)));
            self.targets.condemned -= usize::from(target.is_condemned);
            self.release_index(target.index);
        }
    }

    /// The object is gone, and so will be the routes that have it.
    pub(super) fn condemn_targets(&mut self, object: ObjectKey) {
        let named = self.targets.of_objects.range((object, 0)..=(object, TargetId::MAX)).map(|&(_, id)| id);
        let standing: Vec<TargetId> = named.filter(|&id| !self.targets.get(id).value.is_condemned).collect();
        for id in standing {
            // While the object is there.
            self.words(id);
            self.targets.all.get_mut(id).value.is_condemned = true;
            self.targets.all.hide(id);
            self.targets.condemned += 1;
        }
    }

    /// The next hop for a target, with one user more.
    fn number_of(&mut self, content: &Content) -> Result<NextHopIndex, NextHopError> {
        if content.only_linux.is_some() {
            return Ok(PUNT);
        }
        let fixed = match content.kind {
            RouteKind::Unicast => None,
            RouteKind::Local | RouteKind::Anycast => Some(LOCAL),
            // Linux's to judge, and no way back for a source (net/ipv4/fib_frontend.c,
            // `__fib_validate_source`).
            RouteKind::Broadcast | RouteKind::Multicast => Some(BROADCAST),
            RouteKind::Blackhole => Some(BLACKHOLE),
            RouteKind::Unreachable => Some(UNREACHABLE),
            RouteKind::Prohibit => Some(PROHIBIT),
            RouteKind::Throw => Some(NextHopIndex::NONE),
        };
        if let Some(index) = fixed {
            return Ok(index);
        }
        if content.mtu.is_some() {
            // Workers know the MTU of ports, not of routes.
            return Ok(PUNT);
        }
        let paths = match (&content.hops, content.object()) {
            (_, Some(object)) => return self.acquire_object(object, content.version),
            (Hops::Paths(paths), None) if !paths.is_empty() => paths,
            _ => {
                self.count(Count::RoutesWithoutPath);
                return Ok(PUNT);
            }
        };
        let ways = paths.iter().map(|path| (GroupMember::Path(*path), path.weight));
        self.acquire_group(ways, content.version)
    }
}
