//! Next hops against a naive model, after every change of a random sequence: what each number resolves to, who owns
//! each bucket, how many each member has, which buckets moved, and that two copies that catch up in turn, as a
//! double-buffered router's do, become equal to the original.

#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, HashSet};

fn number(index: u16) -> NextHopIndex {
    NextHopIndex::new(index).unwrap()
}

fn forward(value: u32) -> NextHop<u32> {
    NextHop::Forward(value)
}

/// Next hops 1 to `count`, forwarding to 1 to `count`.
fn singles(count: u16) -> NextHops<u32> {
    let mut next_hops = NextHops::new();
    for value in 1..=count {
        assert_eq!(next_hops.add(forward(value.into())), Ok(number(value)));
    }
    next_hops
}

/// The owner of each bucket of a group, as numbers.
fn owners<P: Copy + Eq + Hash>(next_hops: &NextHops<P>, group: NextHopIndex) -> Vec<u16> {
    let block = next_hops.known(group).unwrap().block;
    next_hops.resolver.buckets(block).iter().map(|slot| slot - 1).collect()
}

/// What the model knows of a number.
#[derive(Clone, Debug)]
enum Model {
    Single { value: u32, up: bool },
    Group(BTreeMap<u16, u16>),
}

#[derive(Clone, Debug, Default)]
struct World {
    known: BTreeMap<u16, Model>,
    backups: BTreeMap<u16, u16>,
    held: BTreeMap<u16, u64>,
}

impl World {
    fn up(&self, index: u16) -> bool {
        match &self.known[&index] {
            Model::Single { up, .. } => *up,
            Model::Group(members) => members.keys().any(|&member| self.up(member)),
        }
    }

    fn used(&self, index: u16) -> bool {
        let in_group = |model: &Model| matches!(model, Model::Group(members) if members.contains_key(&index));
        self.held.get(&index).is_some_and(|&count| count > 0)
            || self.backups.values().any(|&backup| backup == index)
            || self.known.values().any(in_group)
    }

    /// The members with whom a group's buckets are shared.
    fn sharers(&self, members: &BTreeMap<u16, u16>) -> BTreeMap<u16, u16> {
        let up: BTreeMap<_, _> = members
            .iter()
            .filter(|(index, _)| self.up(**index))
            .map(|(&index, &weight)| (index, weight))
            .collect();
        if up.is_empty() { members.clone() } else { up }
    }

    /// The values that a number may resolve to; for a single next hop exactly one.
    fn values(&self, index: u16) -> HashSet<NextHop<u32>> {
        let leads_to = Some(index).filter(|&index| self.up(index));
        let leads_to =
            leads_to.or_else(|| self.backups.get(&index).copied().filter(|&backup| self.up(backup)));
        match leads_to.map(|index| &self.known[&index]) {
            None => HashSet::from([NextHop::Unreachable]),
            Some(Model::Single { value, .. }) => HashSet::from([forward(*value)]),
            Some(Model::Group(members)) => {
                self.sharers(members).keys().flat_map(|&member| self.values(member)).collect()
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Operation {
    Add(u32),
    Intern(u32),
    Set(u16, u32),
    AddGroup(Vec<(u16, u16)>),
    SetMembers(u16, Vec<(u16, u16)>),
    AddMember(u16, u16, u16),
    RemoveMember(u16, u16),
    Link(u16, bool),
    Backup(u16, Option<u16>),
    Hold(u16),
    Release(u16),
    Remove(u16),
    CatchUp,
}

fn operation() -> impl Strategy<Value = Operation> {
    let index = || 0u16..128;
    let weight = prop_oneof![4 => 1u16..5, 1 => 0u16..=257];
    let members = prop::collection::vec((index(), weight.clone()), 0..7);
    prop_oneof![
        4 => (0u32..6).prop_map(Operation::Add),
        1 => (0u32..6).prop_map(Operation::Intern),
        1 => (index(), 0u32..6).prop_map(|(index, value)| Operation::Set(index, value)),
        3 => members.clone().prop_map(Operation::AddGroup),
        1 => (index(), members).prop_map(|(index, members)| Operation::SetMembers(index, members)),
        3 => (index(), index(), weight).prop_map(|(group, member, weight)| {
            Operation::AddMember(group, member, weight)
        }),
        2 => (index(), index()).prop_map(|(group, member)| Operation::RemoveMember(group, member)),
        6 => (index(), any::<bool>()).prop_map(|(index, up)| Operation::Link(index, up)),
        2 => (index(), prop::option::of(index())).prop_map(|(index, backup)| Operation::Backup(index, backup)),
        1 => index().prop_map(Operation::Hold),
        1 => index().prop_map(Operation::Release),
        1 => index().prop_map(Operation::Remove),
        1 => Just(Operation::CatchUp),
    ]
}

/// Random numbers would rarely be those of members in a group, so most of them (those not divisible by 8) are mapped to
/// numbers that exist: single next hops, or groups where groups are wanted.
fn aim(operation: &mut Operation, world: &World) {
    let of_kind = |groups: bool| -> Vec<u16> {
        let wanted = |model: &Model| matches!(model, Model::Group(_)) == groups;
        world.known.iter().filter(|(_, model)| wanted(model)).map(|(&index, _)| index).collect()
    };
    let (singles, groups) = (of_kind(false), of_kind(true));
    let to = |index: &mut u16, targets: &[u16]| {
        let wild = index.is_multiple_of(8) || targets.is_empty();
        *index = if wild { *index / 8 } else { targets[usize::from(*index) % targets.len()] };
    };
    let aim_all = |members: &mut Vec<(u16, u16)>| {
        let keep_twins = members.first().is_some_and(|first| first.0.is_multiple_of(16));
        members.iter_mut().for_each(|(member, _)| to(member, &singles));
        let mut seen = HashSet::new();
        members.retain(|(member, _)| seen.insert(*member) || keep_twins);
    };
    match operation {
        Operation::Add(_) | Operation::Intern(_) | Operation::CatchUp => {}
        Operation::Set(index, _) | Operation::Link(index, _) => to(index, &singles),
        Operation::AddGroup(members) => aim_all(members),
        Operation::SetMembers(group, members) => {
            to(group, &groups);
            aim_all(members);
        }
        Operation::AddMember(group, member, _) => {
            to(group, &groups);
            to(member, &singles);
        }
        Operation::RemoveMember(group, member) => {
            to(group, &groups);
            match world.known.get(group) {
                Some(Model::Group(members)) => to(member, &members.keys().copied().collect::<Vec<_>>()),
                _ => to(member, &singles),
            }
        }
        Operation::Backup(index, backup) => {
            let any: Vec<u16> = world.known.keys().copied().collect();
            to(index, &any);
            backup.iter_mut().for_each(|backup| to(backup, &any));
        }
        Operation::Hold(index) | Operation::Release(index) | Operation::Remove(index) => {
            to(index, &world.known.keys().copied().collect::<Vec<_>>());
        }
    }
}

/// Does the operation on both. The model decides by itself whether it is allowed.
fn apply(operation: &Operation, next_hops: &mut NextHops<u32>, world: &mut World) {
    let single = |world: &World, index: &u16| matches!(world.known.get(index), Some(Model::Single { .. }));
    let allowed = |world: &World, members: &[(u16, u16)]| {
        let distinct: HashSet<u16> = members.iter().map(|(member, _)| *member).collect();
        let right = |(member, weight): &(u16, u16)| single(world, member) && (1..=256).contains(weight);
        !members.is_empty() && distinct.len() == members.len() && members.iter().all(right)
    };
    let numbers = |members: &[(u16, u16)]| -> Vec<_> {
        members.iter().map(|&(member, weight)| (number(member), weight)).collect()
    };
    match operation {
        Operation::Add(value) => {
            let index = next_hops.add(forward(*value)).unwrap();
            assert!(world.known.insert(index.get(), Model::Single { value: *value, up: true }).is_none());
        }
        Operation::Intern(wanted) => {
            let index = next_hops.intern(forward(*wanted)).unwrap().get();
            let equal = |model: &Model| matches!(model, Model::Single { value, .. } if value == wanted);
            match world.known.iter().find(|(_, model)| equal(model)) {
                Some((&first, _)) => assert_eq!(index, first),
                None => drop(world.known.insert(index, Model::Single { value: *wanted, up: true })),
            }
        }
        Operation::Set(index, new) => {
            let done = next_hops.set(number(*index), forward(*new)).is_ok();
            assert_eq!(done, single(world, index));
            if let (true, Some(Model::Single { value, .. })) = (done, world.known.get_mut(index)) {
                *value = *new;
            }
        }
        Operation::AddGroup(members) => {
            let made = next_hops.add_group(&numbers(members));
            assert_eq!(made.is_ok(), allowed(world, members), "{made:?}");
            if let Ok(index) = made {
                let members = Model::Group(members.iter().copied().collect());
                assert!(world.known.insert(index.get(), members).is_none());
            }
        }
        Operation::SetMembers(group, members) => {
            let right = matches!(world.known.get(group), Some(Model::Group(_))) && allowed(world, members);
            assert_eq!(next_hops.set_members(number(*group), &numbers(members)).is_ok(), right);
            if right {
                world.known.insert(*group, Model::Group(members.iter().copied().collect()));
            }
        }
        Operation::AddMember(group, member, weight) => {
            let right = allowed(world, &[(*member, *weight)]);
            let done = next_hops.add_member(number(*group), number(*member), *weight).is_ok();
            match world.known.get_mut(group) {
                Some(Model::Group(members)) if right => {
                    assert!(done);
                    members.insert(*member, *weight);
                }
                _ => assert!(!done),
            }
        }
        Operation::RemoveMember(group, member) => {
            let done = next_hops.remove_member(number(*group), number(*member)).is_ok();
            match world.known.get_mut(group) {
                Some(Model::Group(members)) if members.len() > 1 => {
                    assert_eq!(done, members.remove(member).is_some());
                }
                _ => assert!(!done),
            }
        }
        Operation::Link(index, is_up) => {
            let done =
                if *is_up { next_hops.set_up(number(*index)) } else { next_hops.set_down(number(*index)) };
            match world.known.get_mut(index) {
                Some(Model::Single { up, .. }) => {
                    done.unwrap();
                    *up = *is_up;
                }
                _ => assert!(done.is_err()),
            }
        }
        Operation::Backup(index, backup) => {
            let done = next_hops.set_backup(number(*index), backup.map(number)).is_ok();
            let there = |index: &u16| world.known.contains_key(index);
            assert_eq!(done, there(index) && backup.is_none_or(|backup| there(&backup) && backup != *index));
            if done {
                world.backups.remove(index);
                backup.map(|backup| world.backups.insert(*index, backup));
            }
        }
        Operation::Hold(index) => {
            let done = next_hops.hold(number(*index)).is_ok();
            assert_eq!(done, *index == 0 || world.known.contains_key(index));
            if done && *index != 0 {
                *world.held.entry(*index).or_default() += 1;
            }
        }
        Operation::Release(index) => {
            let held = world.held.get_mut(index).filter(|count| **count > 0);
            assert_eq!(next_hops.release(number(*index)).is_ok(), *index == 0 || held.is_some());
            held.into_iter().for_each(|count| *count -= 1);
        }
        Operation::Remove(index) => {
            let right = world.known.contains_key(index) && !world.used(*index);
            assert_eq!(next_hops.remove(number(*index)).is_ok(), right);
            if right {
                world.known.remove(index);
                world.backups.remove(index);
            }
        }
        Operation::CatchUp => {}
    }
}

/// Everything that the essays promise of a state.
fn check_state(next_hops: &NextHops<u32>, world: &World) {
    assert_eq!(next_hops.len(), world.known.len());
    for index in 0..90 {
        let resolved: HashSet<NextHop<u32>> =
            (0..100).map(|flow| *next_hops.resolver().resolve(number(index), flow)).collect();
        let expected = match world.known.contains_key(&index) {
            true => world.values(index),
            false => HashSet::from([NextHop::NoRoute]),
        };
        assert!(resolved.is_subset(&expected), "{index}: {resolved:?}, not {expected:?}");
    }
    for (&index, model) in &world.known {
        let Model::Group(members) = model else { continue };
        assert_eq!(next_hops.members(number(index)).unwrap().len(), members.len());
        let sharers = world.sharers(members);
        let owners = owners(next_hops, number(index));
        let seats = owners.len() as i64;
        let mut counts: BTreeMap<u16, i64> = sharers.keys().map(|&member| (member, 0)).collect();
        owners.iter().for_each(|owner| *counts.get_mut(owner).expect("a bucket of a member that is up") += 1);
        for member in next_hops.members(number(index)).unwrap() {
            assert_eq!(members[&member.index.get()], member.weight);
            assert_eq!(counts.get(&member.index.get()).copied().unwrap_or(0), i64::from(member.buckets));
        }
        let total: i64 = sharers.values().map(|&weight| i64::from(weight)).sum();
        for (member, &weight) in &sharers {
            let off = (counts[member] * total - seats * i64::from(weight)).abs();
            assert!(
                2 * off <= total + i64::from(weight) * (sharers.len() as i64 - 2),
                "{counts:?} {sharers:?}"
            );
            if sharers.len() <= 3 || sharers.values().all(|other| *other == weight) {
                assert!(off < total, "more than a bucket off: {counts:?} {sharers:?}");
            }
            for (other, &other_weight) in &sharers {
                // Nobody has a seat that another one would get more cheaply.
                assert!(
                    (2 * counts[member] - 1) * i64::from(other_weight)
                        <= (2 * counts[other] + 1) * i64::from(weight)
                );
            }
        }
    }
}

/// Which buckets may move between two states: those of members that lost weight (all of it, when they went), if
/// nobody gained; to those that gained, if nobody lost.
fn check_moves(before: &World, old: &[u16], after: &World, new: &[u16], group: u16) {
    let sharers = |world: &World| match &world.known[&group] {
        Model::Group(members) => world.sharers(members),
        Model::Single { .. } => unreachable!("it is a group"),
    };
    let (before, after) = (sharers(before), sharers(after));
    let weight = |sharers: &BTreeMap<u16, u16>, member: u16| sharers.get(&member).copied().unwrap_or(0);
    let all: HashSet<u16> = before.keys().chain(after.keys()).copied().collect();
    let gained = all.iter().any(|&member| weight(&after, member) > weight(&before, member));
    let lost = all.iter().any(|&member| weight(&after, member) < weight(&before, member));
    for (bucket, &owner) in new.iter().enumerate() {
        let old_owner = old[bucket % old.len()];
        // A larger group rounds anew, so there is nothing exact to say about it.
        if owner == old_owner || new.len() != old.len() {
            continue;
        }
        assert!(gained || lost, "a bucket moved without a reason");
        if !gained {
            assert!(weight(&after, old_owner) < weight(&before, old_owner), "a flow of {old_owner} moved");
        }
        if !lost {
            assert!(weight(&after, owner) > weight(&before, owner), "{owner} got a bucket for nothing");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn next_hops_do_what_the_model_does(mut operations in prop::collection::vec(operation(), 1..80)) {
        let (mut next_hops, mut world) = (NextHops::new(), World::default());
        let mut copies = [next_hops.resolver().clone(), next_hops.resolver().clone()];
        for operation in &mut operations {
            aim(operation, &world);
            let world_before = world.clone();
            let groups: Vec<u16> = (1..90).filter(|&index| next_hops.members(number(index)).is_ok()).collect();
            let before: Vec<_> = groups.iter().map(|&group| owners(&next_hops, number(group))).collect();
            apply(operation, &mut next_hops, &mut world);
            check_state(&next_hops, &world);
            for (&group, before) in groups.iter().zip(&before) {
                if next_hops.members(number(group)).is_ok() {
                    check_moves(&world_before, before, &world, &owners(&next_hops, number(group)), group);
                }
            }
            if let Operation::CatchUp = operation {
                copies[0].catch_up(next_hops.resolver());
                prop_assert!(copies[0].same_arrays(next_hops.resolver()));
                copies.swap(0, 1);
            }
        }
        // One copy may also catch up with the other.
        let [first, second] = &mut copies;
        first.catch_up(next_hops.resolver());
        second.catch_up(first);
        prop_assert!(first.same_arrays(next_hops.resolver()) && second.same_arrays(next_hops.resolver()));
    }
}

#[test]
fn a_member_that_goes_and_comes_back_moves_its_share_only() {
    let mut next_hops = singles(8);
    let members: Vec<_> = (1..=8).map(|index| (number(index), 1)).collect();
    let group = next_hops.add_group(&members).unwrap();
    let before = owners(&next_hops, group);
    next_hops.set_down(number(3)).unwrap();
    let down = owners(&next_hops, group);
    assert!(before.iter().zip(&down).all(|(was, is)| if *was == 3 { *is != 3 } else { was == is }));
    let counts: Vec<u32> = next_hops.members(group).unwrap().iter().map(|member| member.buckets).collect();
    assert_eq!(counts, [37, 37, 0, 37, 37, 36, 36, 36]);
    next_hops.set_up(number(3)).unwrap();
    let back = owners(&next_hops, group);
    assert_eq!(down.iter().zip(&back).filter(|(was, is)| was != is).count(), 32);
    assert_eq!(next_hops.members(group).unwrap()[2].buckets, 32);
}

#[test]
fn a_group_that_grows_beyond_its_buckets_moves_flows_to_the_new_member_only() {
    let mut next_hops = singles(3);
    let group = next_hops.add_group(&[(number(1), 1), (number(2), 1)]).unwrap();
    let before = owners(&next_hops, group);
    next_hops.add_member(group, number(3), 1).unwrap();
    let after = owners(&next_hops, group);
    assert_eq!((before.len(), after.len()), (64, 128));
    assert!(after.iter().enumerate().all(|(bucket, &owner)| owner == 3 || owner == before[bucket % 64]));
    // The old block serves the next group of its size.
    let next = next_hops.add_group(&[(number(2), 1), (number(3), 1)]).unwrap();
    assert_eq!(next_hops.known(next).unwrap().block.mask, 63);
    assert_eq!(next_hops.resolver.new_buckets(1).base, 2 + 3 + 64 + 128);
}

#[test]
fn a_failed_next_hop_leads_to_its_backup_and_not_in_circles() {
    let mut next_hops = singles(4);
    let group = next_hops.add_group(&[(number(3), 1), (number(4), 1)]).unwrap();
    let (one, two) = (number(1), number(2));
    next_hops.set_backup(one, Some(two)).unwrap();
    next_hops.set_backup(two, Some(one)).unwrap();
    next_hops.set_backup(group, Some(one)).unwrap();
    let chosen = |next_hops: &NextHops<u32>, index| next_hops.resolver().chosen(index, 77);
    next_hops.set_down(one).unwrap();
    assert_eq!((chosen(&next_hops, one), chosen(&next_hops, two)), (Some(two), Some(two)));
    next_hops.set_down(two).unwrap();
    assert_eq!((chosen(&next_hops, one), chosen(&next_hops, two)), (None, None));
    assert_eq!(next_hops.resolver().resolve(one, 77), &NextHop::Unreachable);
    next_hops.set_down(number(3)).unwrap();
    assert_eq!(chosen(&next_hops, group), Some(number(4)));
    next_hops.set_down(number(4)).unwrap();
    assert_eq!(chosen(&next_hops, group), None);
    next_hops.set_up(one).unwrap();
    assert_eq!((chosen(&next_hops, group), chosen(&next_hops, two)), (Some(one), Some(one)));
    next_hops.set_backup(two, Some(group)).unwrap();
    assert_eq!(chosen(&next_hops, two), None);
    next_hops.set_up(number(4)).unwrap();
    assert_eq!(chosen(&next_hops, two), Some(number(4)));
}

#[test]
fn numbers_end_at_the_largest_and_come_back_when_freed() {
    let mut next_hops = NextHops::new();
    for value in 1..=NextHopIndex::MAX.get() {
        next_hops.add(forward(value.into())).unwrap();
    }
    assert_eq!(next_hops.add(NextHop::Local), Err(NextHopError::Exhausted));
    assert_eq!(next_hops.add_group(&[(number(1), 1)]), Err(NextHopError::Exhausted));
    assert_eq!(next_hops.intern(forward(99)), Ok(number(99)));
    next_hops.remove(number(500)).unwrap();
    next_hops.remove(number(400)).unwrap();
    assert_eq!(next_hops.resolver().resolve(number(500), 0), &NextHop::NoRoute);
    assert_eq!(next_hops.add(NextHop::Local), Ok(number(500)));
    assert_eq!(next_hops.len(), 32_766);
    assert_eq!(next_hops.resolver().resolve(NextHopIndex::MAX, 0), &forward(32_767));
}

#[test]
fn errors_name_the_thing_and_what_would_be_right() {
    let mut next_hops = singles(2);
    let (one, two) = (number(1), number(2));
    let group = next_hops.add_group(&[(one, 1)]).unwrap();
    next_hops.set_backup(two, Some(one)).unwrap();
    next_hops.hold(one).unwrap();
    let errors = [
        (next_hops.remove(one), "next hop 1 is in use by 1 routes and 1 groups and is the backup of 1"),
        (next_hops.release(two), "next hop 2 is released but not held"),
        (next_hops.set_members(group, &[]), "a group needs a member"),
        (next_hops.remove_member(group, one), "a group needs a member"),
        (next_hops.remove_member(group, two), "next hop 2 is not a member of group 3"),
        (
            next_hops.set_members(group, &[(two, 0)]),
            "weight 0 of member 2 is not possible; weights are 1 to 256",
        ),
        (next_hops.set_members(group, &[(two, 1), (two, 2)]), "next hop 2 is twice in the group"),
        (next_hops.add_member(group, group, 1), "next hop 3 is a group and cannot be a member of one"),
        (
            next_hops.set_members(group, &[(two, 1); 513]),
            "513 members are too many for a group; it can have 512",
        ),
        (next_hops.set_down(group), "next hop 3 is a group; this is for single next hops"),
        (next_hops.set_members(one, &[(two, 1)]), "next hop 1 is not a group"),
        (next_hops.set(number(9), NextHop::Local), "there is no next hop 9"),
        (next_hops.set(NextHopIndex::NONE, NextHop::Local), "next hop 0 is \"no route\" and stays so"),
        (next_hops.set_backup(one, Some(one)), "next hop 1 cannot be its own backup"),
    ];
    for (result, start) in errors {
        let message = result.unwrap_err().to_string();
        assert!(message.starts_with(start), "{message}");
    }
}

#[test]
fn readers_and_the_control_thread_may_be_different_threads() {
    fn crosses_threads<T: Send + Sync + Clone>() {}
    crosses_threads::<Resolver<Adjacency>>();
}
