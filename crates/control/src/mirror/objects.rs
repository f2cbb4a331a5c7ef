//! Next-hop objects (`ip nexthop`, zebra's next-hop groups): routes name them by id, and the source changes them without
//! a word about the routes.
//!
//! So what stands for an object in the FIB, its *face*, is a group whose number stays, even where the object is a single
//! path; when the object changes, the group gets other members, and flows that need not move stay where they are. IPv4
//! and IPv6 packets need different Ethernet headers, hence up to two faces. A face is made when the first route needs
//! it. An object that is not there (not yet, or no more) is one that punts.

use super::Mirror;
use super::hops::{BLACKHOLE, GroupMember, Members, NextHopEntry, PUNT};
use crate::change::{ObjectKind, Source};
use fib::{NextHopError, NextHopIndex};
use packet::IpVersion;
use std::collections::{BTreeMap, BTreeSet};

/// What tells objects apart: every source has its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ObjectKey {
    pub(super) source: Source,
    pub(super) id: u32,
}

/// What stands for an object in the FIB, for packets of one family.
#[derive(Debug)]
struct Face {
    index: NextHopIndex,
    users: u32,
    members: Members,
}

/// What is known of an object, and who needs it.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// What it is; `None` if it is not there.
    pub(super) kind: Option<ObjectKind>,
    /// The dump in which it was last seen.
    pub(super) epoch: u8,
    /// For IPv4, for IPv6.
    faces: [Option<Face>; 2],
}

/// All objects, those included that routes name and that are not there.
#[derive(Debug, Default)]
pub(super) struct Objects {
    pub(super) known: BTreeMap<ObjectKey, Known>,
    /// For each object, the groups that name it.
    groups_of: BTreeSet<(ObjectKey, u32)>,
    /// Counts changes of what objects are.
    pub(super) generation: u64,
}

impl Objects {
    /// Whether an object is there.
    pub(super) fn is_there(&self, key: ObjectKey) -> bool {
        self.known.get(&key).is_some_and(|known| known.kind.is_some())
    }

    /// The ids that a group names.
    fn named_by(&self, key: ObjectKey) -> Vec<ObjectKey> {
        match self.known.get(&key).and_then(|known| known.kind.as_ref()) {
            Some(ObjectKind::Group(members)) => {
                members.iter().map(|&(id, _)| ObjectKey { source: key.source, id }).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The object and the groups that name it.
    fn concerned(&self, key: ObjectKey) -> Vec<ObjectKey> {
        let groups = self.groups_of.range((key, 0)..=(key, u32::MAX));
        let groups = groups.map(|&(_, id)| ObjectKey { source: key.source, id });
        std::iter::once(key).chain(groups).collect()
    }
}

impl Mirror {
    /// An object is there, or is other than it was (`Some`), or is gone.
    pub(super) fn set_object(&mut self, key: ObjectKey, kind: Option<ObjectKind>) {
        for member in self.objects.named_by(key) {
            self.objects.groups_of.remove(&(member, key.id));
        }
        let epoch = self.epochs.of_objects(key.source);
        let known = self.objects.known.entry(key).or_default();
        known.epoch = epoch;
        let is_other = known.kind != kind;
        let named: Vec<ObjectKey> = if is_other { self.named_by_routes(key) } else { Vec::new() };
        let before = self.words_of(&named);
        if let Some(known) = self.objects.known.get_mut(&key) {
            known.kind = kind;
        }
        for member in self.objects.named_by(key) {
            self.objects.groups_of.insert((member, key.id));
        }
        if is_other {
            self.objects.generation += 1;
            self.record_objects(&named, before);
            for concerned in self.objects.concerned(key) {
                for version in IpVersion::ALL {
                    self.refresh_face(concerned, version);
                }
            }
        }
        self.drop_object_without_use(key);
    }

    /// The object and the groups that name it, as far as routes name them.
    fn named_by_routes(&self, key: ObjectKey) -> Vec<ObjectKey> {
        let has_routes = |key: &ObjectKey| {
            self.objects.known.get(key).is_some_and(|known| known.faces.iter().any(Option::is_some))
        };
        self.objects.concerned(key).into_iter().filter(has_routes).collect()
    }

    /// An object is gone. Returns whether there was one.
    pub(super) fn remove_object(&mut self, key: ObjectKey) -> bool {
        if !self.objects.is_there(key) {
            return false;
        }
        // The kernel flushes the routes of an object that is deleted, and tells nobody (`nexthop_flush_dev`,
        // `__remove_nexthop_fib`). Zebra withdraws its routes one by one.
        if key.source == Source::Netlink {
            self.condemn_targets(key);
        }
        self.set_object(key, None);
        true
    }

    /// The number that stands for an object, with one user more.
    pub(super) fn acquire_object(
        &mut self,
        key: ObjectKey,
        version: IpVersion,
    ) -> Result<NextHopIndex, NextHopError> {
        let known = self.objects.known.entry(key).or_default();
        if let Some(face) = &mut known.faces[version as usize] {
            face.users += 1;
            return Ok(face.index);
        }
        let members = self.face_members(key, version);
        let added = self.fib.next_hops_mut().add_group(&members);
        let Ok(index) = added else {
            self.release_members(&members);
            self.drop_object_without_use(key);
            return added;
        };
        self.back_up(index, Some(PUNT));
        self.hops.set_entry(index, NextHopEntry::Object(key, version));
        let known = self.objects.known.entry(key).or_default();
        known.faces[version as usize] = Some(Face { index, users: 1, members });
        Ok(index)
    }

    /// One user of what stands for an object less.
    pub(super) fn release_object(&mut self, key: ObjectKey, version: IpVersion) {
        let known = self.objects.known.get_mut(&key).expect("an object with a face is known");
        let place = &mut known.faces[version as usize];
        let face = place.as_mut().expect("a face in use is there");
        face.users -= 1;
        if face.users == 0 {
            let Face { index, members, .. } = place.take().expect("it was just there");
            self.retire(index);
            self.release_members(&members);
            self.drop_object_without_use(key);
        }
    }

    fn drop_object_without_use(&mut self, key: ObjectKey) {
        let is_of_use = |known: &Known| known.kind.is_some() || known.faces.iter().any(Option::is_some);
        if !self.objects.known.get(&key).is_some_and(is_of_use) {
            self.objects.known.remove(&key);
        }
    }

    /// Brings the members of all faces in line with their objects.
    pub(super) fn refresh_faces(&mut self) {
        for key in self.objects.known.keys().copied().collect::<Vec<_>>() {
            packet::pulse::beat();
            IpVersion::ALL.into_iter().for_each(|version| self.refresh_face(key, version));
        }
    }

    /// Brings the members of a face in line with its object.
    fn refresh_face(&mut self, key: ObjectKey, version: IpVersion) {
        let face = |mirror: &Mirror| {
            let face = mirror.objects.known.get(&key)?.faces[version as usize].as_ref()?;
            Some((face.index, face.members.clone()))
        };
        let Some((index, before)) = face(self) else { return };
        let link_before = self.connected_interface(index);
        let mut members = self.face_members(key, version);
        if let Err(error) = self.fib.next_hops_mut().set_members(index, &members) {
            self.note_next_hop_error(error);
            self.release_members(&members);
            members = vec![(PUNT, 1)];
            self.fib.next_hops_mut().set_members(index, &members).expect("a group of one is always possible");
        }
        let known = self.objects.known.get_mut(&key).expect("it was just found");
        known.faces[version as usize].as_mut().expect("it was just found").members = members;
        self.release_members(&before);
        if link_before != self.connected_interface(index) {
            self.evaluate_all_hosts();
        }
    }

    /// The members that what stands for an object is to have, each with one user more; punt where it cannot have them.
    fn face_members(&mut self, key: ObjectKey, version: IpVersion) -> Members {
        let single = |kind: Option<&ObjectKind>| match kind {
            Some(ObjectKind::Path(path)) => GroupMember::Path(*path),
            Some(ObjectKind::Blackhole) => GroupMember::Number(BLACKHOLE),
            // Groups in groups are none of Linux's; zebra resolves its own before it sends them.
            Some(ObjectKind::Group(_) | ObjectKind::OnlyLinux(_)) | None => GroupMember::Number(PUNT),
        };
        let kind_of = |id| {
            let known = self.objects.known.get(&ObjectKey { source: key.source, id });
            known.and_then(|known| known.kind.as_ref())
        };
        let ways: Vec<(GroupMember, u16)> = match kind_of(key.id) {
            // Linux alone knows which flows a member gets that is its.
            Some(ObjectKind::Group(members))
                if members.iter().any(|&(id, _)| matches!(kind_of(id), Some(ObjectKind::OnlyLinux(_)))) =>
            {
                vec![(GroupMember::Number(PUNT), 1)]
            }
            Some(ObjectKind::Group(members)) if !members.is_empty() => {
                members.iter().map(|&(id, weight)| (single(kind_of(id)), weight)).collect()
            }
            kind => vec![(single(kind), 1)],
        };
        match self.acquire_members(ways.into_iter(), version) {
            Ok(members) => members,
            Err(error) => {
                self.note_next_hop_error(error);
                vec![(PUNT, 1)]
            }
        }
    }
}
