//! Next hops: what stands behind the numbers that compiled tables yield. A million routes can point to one number, and
//! whatever happens to it (a new MAC address, a failed link, another member in its group) is changed here, in one
//! place, at a cost that does not depend on the routes.
//!
//! ```text
//!  routes            control side: NextHops                          fast path: Resolver
//!
//!  10.0.0.0/8 --> 1  single  via A        up    backup 4             entries    buckets    hops
//!  10.1.0.0/16 -> 2  single  via B        down                       ---------------------------
//!  0.0.0.0/0 ---> 3  group   1 x1, 2 x3   up    (1 is left)          1 -------> A -------> via A
//!  10.2.0.0/16 -> 4  single  blackhole    up                         2 -------> unreachable
//!                                                                    3 -------> A A A A ...
//!                    who uses whom, weights, backups, free numbers   4 -------> blackhole
//! ```
//!
//! # The files
//!
//! | file | holds |
//! | --- | --- |
//! | `next_hop.rs` | [`NextHop`]: forward, or one of seven ends |
//! | `adjacency.rs` | [`Adjacency`]: port and rewrite string in a cache line |
//! | `resolver.rs` | [`Resolver`]: the arrays that workers read, and how copies catch up |
//! | `group.rs` | how many buckets a group has and how they move; its invariants |
//! | `apportion.rs` | how many buckets each member gets, and why nobody loses when others leave |
//! | `error.rs` | [`NextHopError`] |
//! | this one | [`NextHops`]: numbers, users, link state, backups |
//!
//! # What a number resolves to
//!
//! * A single next hop that is up: itself. A group with a member that is up: the member that the flow's bucket
//!   belongs to, always one that is up; members' own backups play no part in it.
//! * Otherwise its backup (a single next hop or a group), if that is up itself; otherwise [`NextHop::Unreachable`]. The
//!   backup of a backup is not asked: two next hops may then back each other without going in circles, and a failure
//!   touches the entries of those who have the failed one as backup and no others.
//! * A free number, and number 0: [`NextHop::NoRoute`].
//!
//! # Costs
//!
//! Resolving costs three loads. `set` changes one place. A failure costs one entry, plus for each group with that member
//! a pass over its buckets. On one core of an AMD EPYC (Zen 5) with 32,767 next hops, `examples/next_hops.rs` printed:
//!
//! | change | microseconds | to bring a copy in line |
//! | --- | --- | --- |
//! | a next hop of 1,000 groups of 8 and 9 fails | 120 | 21 |
//! | ... and comes back | 240 | 21 |
//! | a next hop in no group fails, gets a new MAC address | under 0.2 | under 0.1 |
//! | a member more or less in a group of 8 | 1 | under 0.1 |
//! | a whole copy | | 200 |
//!
//! and 1.7 ns to resolve one of 64 next hops at random and copy its Ethernet header, 2.1 with 64 groups of 8, 3.0 with
//! 10,000 next hops, 4.2 with 10,000 groups (7 and 8 to 14 while other programs use the shared cache).
//!
//! There is no call for a batch. Resolving 32 numbers first and using them afterwards, with and without prefetch, gained
//! 0.7 ns with 10,000 numbers and nothing else to do, and mostly lost 1 ns and more with other work between the packets:
//! the processor overlaps the loads of consecutive packets by itself.
//!
//! The control side takes about 100 bytes a number and 8 bytes a member of a group, beside a resolver of its own.

mod adjacency;
mod apportion;
mod error;
mod group;
mod next_hop;
mod resolver;
#[cfg(test)]
mod tests;

pub use adjacency::Adjacency;
pub use error::NextHopError;
pub use group::Member;
pub use next_hop::NextHop;
pub use resolver::Resolver;
pub(crate) use resolver::{Change, Entry};

use crate::NextHopIndex;
use group::{Balancer, MAX_MEMBERS, MAX_WEIGHT, buckets_for};
use resolver::slot_of;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};

/// Who uses a number, and where it leads.
#[derive(Debug)]
struct Item {
    /// The members, if this is a group.
    group: Option<Vec<Member>>,
    /// Its buckets.
    block: Entry,
    backup: Option<NextHopIndex>,
    /// How often it is held.
    routes: u64,
    /// The groups of which it is a member.
    groups: Vec<NextHopIndex>,
    /// Those of which it is the backup.
    protects: Vec<NextHopIndex>,
}

/// Next hops and groups by number: the control side. See the head of this file.
///
/// ```
/// use fib::{NextHop, NextHops};
///
/// let mut next_hops = NextHops::new();
/// let north = next_hops.add(NextHop::Forward("north"))?;
/// let south = next_hops.add(NextHop::Forward("south"))?;
/// let both = next_hops.add_group(&[(north, 1), (south, 3)])?;
///
/// let mut workers_copy = next_hops.resolver().clone();
/// next_hops.set_down(south)?;
/// workers_copy.catch_up(next_hops.resolver());
/// assert_eq!(workers_copy.resolve(both, 0x1234_5678), &NextHop::Forward("north"));
/// # Ok::<(), fib::NextHopError>(())
/// ```
#[derive(Debug)]
pub struct NextHops<P> {
    /// By number; `None` is a free one.
    items: Vec<Option<Item>>,
    /// Whether a number leads somewhere itself: the link state of a single next hop; for a group, whether any member's
    /// is up. Apart from `items` because groups look at all of their members' often.
    up: Vec<bool>,
    /// Freed numbers. The one that has been free longest is used first, so that a thread that still has an old number
    /// without holding it has time to notice.
    free: VecDeque<NextHopIndex>,
    /// Freed blocks of 2^i buckets. They are used again for the same size only: never more than the sum over the
    /// sizes of the most that were in use at a time.
    free_blocks: [Vec<Entry>; 18],
    by_value: HashMap<NextHop<P>, BTreeSet<NextHopIndex>>,
    resolver: Resolver<P>,
    balancer: Balancer,
}

impl<P: Copy + Eq + Hash> Default for NextHops<P> {
    fn default() -> Self {
        NextHops::new()
    }
}

impl<P: Copy + Eq + Hash> NextHops<P> {
    /// Nothing but number 0, "no route".
    pub fn new() -> NextHops<P> {
        static LINEAGES: AtomicU64 = AtomicU64::new(0);
        NextHops {
            items: vec![None],
            up: vec![true],
            free: VecDeque::new(),
            free_blocks: Default::default(),
            by_value: HashMap::from([(NextHop::NoRoute, BTreeSet::from([NextHopIndex::NONE]))]),
            resolver: Resolver::new(LINEAGES.fetch_add(1, Ordering::Relaxed)),
            balancer: Balancer::default(),
        }
    }

    /// The fast path as it is now: to look at, to clone, and for copies to [catch up](Resolver::catch_up) with.
    pub fn resolver(&self) -> &Resolver<P> {
        &self.resolver
    }

    /// How many numbers are in use, 0 not counted.
    pub fn len(&self) -> usize {
        self.items.len() - 1 - self.free.len()
    }

    /// Whether no number but 0 is in use.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A new number for `next_hop`, which is up.
    ///
    /// # Errors
    /// [`NextHopError::Exhausted`].
    pub fn add(&mut self, next_hop: NextHop<P>) -> Result<NextHopIndex, NextHopError> {
        let index = self.take_number()?;
        let block = self.take_block(1);
        self.resolver.buckets_mut(block)[0] = slot_of(index);
        self.resolver.set_hop(index, next_hop);
        self.by_value.entry(next_hop).or_default().insert(index);
        self.put(index, None, block);
        Ok(index)
    }

    /// The smallest number of a next hop equal to `next_hop`, or a new one. For callers that have values and no numbers
    /// of their own; hold the number that you use.
    ///
    /// It also finds numbers made by [`NextHops::add`], which their owner may [`set`](NextHops::set) to something else:
    /// do not mix the two where that is not meant.
    ///
    /// # Errors
    /// [`NextHopError::Exhausted`].
    pub fn intern(&mut self, next_hop: NextHop<P>) -> Result<NextHopIndex, NextHopError> {
        match self.by_value.get(&next_hop).and_then(BTreeSet::first) {
            Some(&index) => Ok(index),
            None => self.add(next_hop),
        }
    }

    /// Changes a next hop, for all routes and groups that use it. Its link state, backup and number stay.
    ///
    /// # Errors
    /// [`NextHopError::Unknown`], [`NextHopError::Fixed`] for number 0, [`NextHopError::IsGroup`].
    pub fn set(&mut self, index: NextHopIndex, next_hop: NextHop<P>) -> Result<(), NextHopError> {
        self.single(index)?;
        let old = self.resolver.hop(index);
        if old != next_hop {
            self.forget_value(old, index);
            self.by_value.entry(next_hop).or_default().insert(index);
            self.resolver.set_hop(index, next_hop);
        }
        Ok(())
    }

    /// The single next hop of this number, whatever its link state; `None` if it is a group or free.
    pub fn get(&self, index: NextHopIndex) -> Option<NextHop<P>> {
        match self.single(index) {
            Ok(_) => Some(self.resolver.hop(index)),
            Err(NextHopError::Fixed) => Some(NextHop::NoRoute),
            Err(_) => None,
        }
    }

    /// Whether the number is that of a next hop or a group. Number 0 is.
    pub fn exists(&self, index: NextHopIndex) -> bool {
        index == NextHopIndex::NONE || self.items.get(index.index()).is_some_and(Option::is_some)
    }

    /// A new group. Flows are spread over the members that are up in the ratio of their weights, 1 to 256.
    ///
    /// # Errors
    /// [`NextHopError::Exhausted`], and those of [`NextHops::set_members`].
    pub fn add_group(&mut self, members: &[(NextHopIndex, u16)]) -> Result<NextHopIndex, NextHopError> {
        self.check_members(members)?;
        let index = self.take_number()?;
        let mut members: Vec<Member> =
            members.iter().map(|&(index, weight)| Member { index, weight, buckets: 0 }).collect();
        let count = buckets_for(members.iter().map(|member| member.weight));
        let block = self.take_block(count);
        // All buckets are the first member's, and then shared as after any other change.
        self.resolver.buckets_mut(block).fill(slot_of(members[0].index));
        members[0].buckets = count;
        for member in &members {
            self.known_mut(member.index).groups.push(index);
        }
        // A group's own slot is never looked at; it must not keep what a former owner of the number left there.
        self.resolver.set_hop(index, NextHop::NoRoute);
        self.put(index, Some(members), block);
        self.rebalance(index);
        Ok(index)
    }

    /// Changes who is in a group and with what weight. Flows of members that stay stay with them, up to what others'
    /// shares require.
    ///
    /// # Errors
    /// [`NextHopError::Unknown`], [`NextHopError::NotGroup`], [`NextHopError::EmptyGroup`],
    /// [`NextHopError::TooManyMembers`], [`NextHopError::Weight`], [`NextHopError::Duplicate`],
    /// [`NextHopError::GroupInGroup`], and [`NextHopError::Fixed`] for number 0.
    pub fn set_members(
        &mut self,
        group: NextHopIndex,
        members: &[(NextHopIndex, u16)],
    ) -> Result<(), NextHopError> {
        self.members(group)?;
        self.check_members(members)?;
        let weights: HashMap<NextHopIndex, u16> = members.iter().copied().collect();
        let item = self.known_mut(group);
        let list = item.group.as_mut().expect("it was just seen to be a group");
        let (mut gone, mut new) = (Vec::new(), weights.clone());
        for member in list.iter_mut() {
            new.remove(&member.index);
            // Weight 0 makes it give up its buckets; then it is dropped.
            member.weight = weights.get(&member.index).copied().unwrap_or(0);
            if member.weight == 0 {
                gone.push(member.index);
            }
        }
        // In the caller's order, so that equal calls have equal results.
        for &(index, weight) in members.iter().filter(|(index, _)| new.contains_key(index)) {
            list.push(Member { index, weight, buckets: 0 });
        }
        let old_block = item.block;
        new.into_keys().for_each(|index| self.known_mut(index).groups.push(group));
        for index in gone {
            let groups = &mut self.known_mut(index).groups;
            groups.retain(|&other| other != group);
        }
        self.grow(group, old_block, buckets_for(members.iter().map(|&(_, weight)| weight)));
        self.rebalance(group);
        Ok(())
    }

    /// Adds a member to a group, or changes its weight. Only flows that now belong to it move (or, if the weight is less
    /// than before, only flows that no longer do).
    ///
    /// # Errors
    /// As [`NextHops::set_members`].
    pub fn add_member(
        &mut self,
        group: NextHopIndex,
        member: NextHopIndex,
        weight: u16,
    ) -> Result<(), NextHopError> {
        let mut members = self.weights(group)?;
        match members.iter_mut().find(|(index, _)| *index == member) {
            Some(known) => known.1 = weight,
            None => members.push((member, weight)),
        }
        self.set_members(group, &members)
    }

    /// Takes a member out of a group. Only its flows move.
    ///
    /// # Errors
    /// [`NextHopError::Unknown`], [`NextHopError::NotGroup`], [`NextHopError::NotMember`], [`NextHopError::EmptyGroup`]
    /// for the last one.
    pub fn remove_member(&mut self, group: NextHopIndex, member: NextHopIndex) -> Result<(), NextHopError> {
        let mut members = self.weights(group)?;
        let at = members.iter().position(|(index, _)| *index == member);
        members.remove(at.ok_or(NextHopError::NotMember { group, member })?);
        self.set_members(group, &members)
    }

    /// The members of a group, with their weights and present shares.
    ///
    /// # Errors
    /// [`NextHopError::Unknown`], [`NextHopError::NotGroup`].
    pub fn members(&self, group: NextHopIndex) -> Result<&[Member], NextHopError> {
        self.known(group)?.group.as_deref().ok_or(NextHopError::NotGroup(group))
    }

    /// A single next hop cannot be reached for now: groups avoid it, and its own number leads to its backup. Twice
    /// is as good as once.
    ///
    /// # Errors
    /// [`NextHopError::Unknown`], [`NextHopError::Fixed`] for number 0, [`NextHopError::IsGroup`].
    pub fn set_down(&mut self, index: NextHopIndex) -> Result<(), NextHopError> {
        self.set_link(index, false)
    }

    /// The end of [`NextHops::set_down`].
    ///
    /// # Errors
    /// As there.
    pub fn set_up(&mut self, index: NextHopIndex) -> Result<(), NextHopError> {
        self.set_link(index, true)
    }

    /// Whether a single next hop is up, or any member of a group is. `false` for a free number,
    /// `true` for number 0.
    pub fn is_up(&self, index: NextHopIndex) -> bool {
        self.up.get(index.index()).copied().unwrap_or(false)
    }

    /// Where packets for `index` go while it is down (fast reroute): a single next hop or a group, which then cannot be
    /// removed. `None`: nowhere, they are [unreachable](NextHop::Unreachable). A backup that is down itself does not
    /// help.
    ///
    /// # Errors
    /// [`NextHopError::Unknown`], [`NextHopError::Fixed`] for number 0, [`NextHopError::OwnBackup`].
    pub fn set_backup(
        &mut self,
        index: NextHopIndex,
        backup: Option<NextHopIndex>,
    ) -> Result<(), NextHopError> {
        self.known(index)?;
        if let Some(backup) = backup {
            self.known(backup)?;
            if backup == index {
                return Err(NextHopError::OwnBackup(index));
            }
            self.known_mut(backup).protects.push(index);
        }
        self.replace_backup(index, backup);
        self.refresh(index);
        Ok(())
    }

    /// The backup of a number.
    pub fn backup(&self, index: NextHopIndex) -> Option<NextHopIndex> {
        self.known(index).ok().and_then(|item| item.backup)
    }

    /// Counts a route (or anything else outside) that uses the number, so that it is not removed. Number 0 needs no
    /// holding and may be held.
    ///
    /// # Errors
    /// [`NextHopError::Unknown`].
    pub fn hold(&mut self, index: NextHopIndex) -> Result<(), NextHopError> {
        if index.is_some() {
            self.known(index)?;
            self.known_mut(index).routes += 1;
        }
        Ok(())
    }

    /// The end of one [`NextHops::hold`].
    ///
    /// # Errors
    /// [`NextHopError::Unknown`], [`NextHopError::NotHeld`].
    pub fn release(&mut self, index: NextHopIndex) -> Result<(), NextHopError> {
        if index.is_some() {
            let left = self.known(index)?.routes.checked_sub(1).ok_or(NextHopError::NotHeld(index))?;
            self.known_mut(index).routes = left;
        }
        Ok(())
    }

    /// How often a number is [held](NextHops::hold): by routes, as a rule.
    pub fn holds(&self, index: NextHopIndex) -> u64 {
        self.known(index).map_or(0, |item| item.routes)
    }

    /// Frees a number. It is not a route until it is given to another next hop.
    ///
    /// # Errors
    /// [`NextHopError::InUse`] while it is held, in a group, or a backup; [`NextHopError::Unknown`];
    /// [`NextHopError::Fixed`] for number 0.
    pub fn remove(&mut self, index: NextHopIndex) -> Result<(), NextHopError> {
        let item = self.known(index)?;
        let (routes, groups, backups) = (item.routes, item.groups.len(), item.protects.len());
        if (routes, groups, backups) != (0, 0, 0) {
            return Err(NextHopError::InUse { index, routes, groups, backups });
        }
        self.replace_backup(index, None);
        let item = self.items[index.index()].take().expect("it was just seen to be there");
        match item.group {
            None => self.forget_value(self.resolver.hop(index), index),
            Some(members) => {
                for member in members {
                    self.known_mut(member.index).groups.retain(|&group| group != index);
                }
            }
        }
        self.free_blocks[item.block.order()].push(item.block);
        self.resolver.set_entry(index, Entry::NO_ROUTE);
        self.up[index.index()] = false;
        self.free.push_back(index);
        Ok(())
    }

    fn known(&self, index: NextHopIndex) -> Result<&Item, NextHopError> {
        if !index.is_some() {
            return Err(NextHopError::Fixed);
        }
        self.items.get(index.index()).and_then(Option::as_ref).ok_or(NextHopError::Unknown(index))
    }

    /// An item that is known to be there: the caller has checked, or another item refers to it.
    fn known_mut(&mut self, index: NextHopIndex) -> &mut Item {
        self.items[index.index()].as_mut().expect("what is referred to is not removed")
    }

    fn single(&self, index: NextHopIndex) -> Result<&Item, NextHopError> {
        let item = self.known(index)?;
        if item.group.is_some() { Err(NextHopError::IsGroup(index)) } else { Ok(item) }
    }

    fn check_members(&self, members: &[(NextHopIndex, u16)]) -> Result<(), NextHopError> {
        if members.is_empty() {
            return Err(NextHopError::EmptyGroup);
        }
        if members.len() > MAX_MEMBERS {
            return Err(NextHopError::TooManyMembers(members.len()));
        }
        let mut seen = BTreeSet::new();
        for &(member, weight) in members {
            match self.single(member) {
                Err(NextHopError::IsGroup(member)) => return Err(NextHopError::GroupInGroup(member)),
                other => other?,
            };
            if weight == 0 || weight > MAX_WEIGHT {
                return Err(NextHopError::Weight { member, weight });
            }
            if !seen.insert(member) {
                return Err(NextHopError::Duplicate(member));
            }
        }
        Ok(())
    }

    fn weights(&self, group: NextHopIndex) -> Result<Vec<(NextHopIndex, u16)>, NextHopError> {
        Ok(self.members(group)?.iter().map(|member| (member.index, member.weight)).collect())
    }

    /// A number for [`NextHops::put`] to put something under.
    fn take_number(&mut self) -> Result<NextHopIndex, NextHopError> {
        if let Some(index) = self.free.pop_front() {
            return Ok(index);
        }
        let number = u16::try_from(self.items.len()).ok().and_then(NextHopIndex::new);
        let index = number.ok_or(NextHopError::Exhausted)?;
        self.items.push(None);
        self.up.push(false);
        Ok(index)
    }

    fn put(&mut self, index: NextHopIndex, group: Option<Vec<Member>>, block: Entry) {
        let (groups, protects) = (Vec::new(), Vec::new());
        self.items[index.index()] = Some(Item { group, block, backup: None, routes: 0, groups, protects });
        self.up[index.index()] = true;
        self.refresh(index);
    }

    fn take_block(&mut self, count: u32) -> Entry {
        let free = self.free_blocks[count.trailing_zeros() as usize].pop();
        free.unwrap_or_else(|| self.resolver.new_buckets(count))
    }

    fn forget_value(&mut self, next_hop: NextHop<P>, index: NextHopIndex) {
        if let Some(numbers) = self.by_value.get_mut(&next_hop) {
            numbers.remove(&index);
            if numbers.is_empty() {
                self.by_value.remove(&next_hop);
            }
        }
    }

    /// Changes the field and takes the entry out of the old backup's list; the new one's is the caller's.
    fn replace_backup(&mut self, index: NextHopIndex, backup: Option<NextHopIndex>) {
        if let Some(old) = std::mem::replace(&mut self.known_mut(index).backup, backup) {
            let protects = &mut self.known_mut(old).protects;
            let at = protects.iter().position(|&other| other == index);
            protects.swap_remove(at.expect("a backup knows whom it protects"));
        }
    }

    fn set_link(&mut self, index: NextHopIndex, up: bool) -> Result<(), NextHopError> {
        self.single(index)?;
        if std::mem::replace(&mut self.up[index.index()], up) == up {
            return Ok(());
        }
        self.refresh(index);
        let groups = std::mem::take(&mut self.known_mut(index).groups);
        groups.iter().for_each(|&group| self.rebalance(group));
        self.known_mut(index).groups = groups;
        Ok(())
    }

    /// Gives the group a larger block, if `count` is more than it has. Repeating the old buckets moves no flow.
    fn grow(&mut self, group: NextHopIndex, old: Entry, count: u32) {
        if count <= old.mask + 1 {
            return;
        }
        let block = self.take_block(count);
        self.resolver.repeat_buckets(old, block);
        self.free_blocks[old.order()].push(old);
        let item = self.known_mut(group);
        item.block = block;
        for member in item.group.iter_mut().flatten() {
            member.buckets *= count / (old.mask + 1);
        }
        self.refresh(group);
    }

    /// Shares a group's buckets anew, drops members of weight 0, and sees whether any is up.
    fn rebalance(&mut self, group: NextHopIndex) {
        let item = self.items[group.index()].as_mut().expect("a member's group is there");
        let members = item.group.as_mut().expect("only groups have members");
        if self.balancer.plan(item.block.mask + 1, members, &self.up) {
            self.balancer.rebalance(self.resolver.buckets_mut(item.block));
        }
        members.retain(|member| member.weight > 0);
        let up = members.iter().any(|member| self.up[member.index.index()]);
        if std::mem::replace(&mut self.up[group.index()], up) != up {
            self.refresh(group);
        }
    }

    /// Brings the fast path's entry of a number in line, and the entries of those that it now serves as backup.
    fn refresh(&mut self, index: NextHopIndex) {
        self.resolver.set_entry(index, self.entry(index));
        let protects = std::mem::take(&mut self.known_mut(index).protects);
        for &other in &protects {
            self.resolver.set_entry(other, self.entry(other));
        }
        self.known_mut(index).protects = protects;
    }

    /// Where a number leads, by the rules at the head of this file.
    fn entry(&self, index: NextHopIndex) -> Entry {
        let block = |index: NextHopIndex| self.known(index).map(|item| item.block).ok();
        let up = |index: &NextHopIndex| self.is_up(*index);
        let leads_to = Some(index).filter(up).or_else(|| self.backup(index).filter(up));
        leads_to.and_then(block).unwrap_or(Entry::UNREACHABLE)
    }
}
