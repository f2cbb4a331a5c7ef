//! What can be wrong with a request to change next hops.

use super::group::{MAX_MEMBERS, MAX_WEIGHT};
use crate::NextHopIndex;
use thiserror::Error;

/// Why next hops were not changed. After an error everything is as it was before the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NextHopError {
    /// All numbers are taken.
    #[error("all {} next-hop numbers are in use; remove one first", NextHopIndex::MAX.get())]
    Exhausted,
    /// Nothing has this number.
    #[error("there is no next hop {}; numbers come from add, add_group and intern", .0.get())]
    Unknown(NextHopIndex),
    /// Number 0 was to be changed, to be a member or a backup.
    #[error("next hop 0 is \"no route\" and stays so; use the number of a next hop that was added")]
    Fixed,
    /// A next hop that somebody uses was to be removed.
    #[error(
        "next hop {} is in use by {routes} routes and {groups} groups and is the backup of {backups}; \
         it can be removed when nothing uses it", .index.get()
    )]
    InUse {
        /// The next hop.
        index: NextHopIndex,
        /// How often it is held.
        routes: u64,
        /// How many groups have it as a member.
        groups: usize,
        /// How many next hops have it as their backup.
        backups: usize,
    },
    /// A next hop was released more often than held.
    #[error("next hop {} is released but not held; each release needs a hold before it", .0.get())]
    NotHeld(NextHopIndex),
    /// A group without members was asked for, or the last member was to be removed.
    #[error("a group needs a member; remove the group instead of its last member")]
    EmptyGroup,
    /// More members than a group can have.
    #[error("{0} members are too many for a group; it can have {MAX_MEMBERS}")]
    TooManyMembers(usize),
    /// A weight out of range.
    #[error("weight {weight} of member {} is not possible; weights are 1 to {MAX_WEIGHT}", .member.get())]
    Weight {
        /// The member.
        member: NextHopIndex,
        /// The weight given.
        weight: u16,
    },
    /// A member given twice.
    #[error("next hop {} is twice in the group; give it a larger weight instead", .0.get())]
    Duplicate(NextHopIndex),
    /// A group was to be the member of a group.
    #[error("next hop {} is a group and cannot be a member of one; give its members instead", .0.get())]
    GroupInGroup(NextHopIndex),
    /// The operation is for single next hops.
    #[error("next hop {} is a group; this is for single next hops, so use its members' numbers", .0.get())]
    IsGroup(NextHopIndex),
    /// The operation is for groups.
    #[error("next hop {} is not a group; use a number that add_group gave", .0.get())]
    NotGroup(NextHopIndex),
    /// The next hop is not a member of that group.
    #[error("next hop {} is not a member of group {}; add it first", .member.get(), .group.get())]
    NotMember {
        /// The group.
        group: NextHopIndex,
        /// The next hop.
        member: NextHopIndex,
    },
    /// A next hop was to be its own backup.
    #[error("next hop {} cannot be its own backup; use another one", .0.get())]
    OwnBackup(NextHopIndex),
}
