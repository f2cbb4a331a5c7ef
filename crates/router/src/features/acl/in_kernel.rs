//! The access list in the program that forwards in the kernel: IPv4 by the list of one element, IPv6 by that of the other.

use std::sync::Arc;

use elements::acl::AccessList;
use graph::setup::Shared;
use packet::IpVersion;
use ports::KernelForwarding;

/// The elements, and the family of the packets that they judge.
pub(super) const ELEMENTS: [(&str, IpVersion); 2] = [("acl4", IpVersion::V4), ("acl6", IpVersion::V6)];

/// The lists of the elements; none without rules.
pub(super) fn lists(shared: &Shared) -> impl Iterator<Item = (Arc<AccessList>, IpVersion)> {
    let list = |(name, version)| Some((shared.get::<AccessList>(&AccessList::key(name))?, version));
    ELEMENTS.into_iter().filter_map(list)
}

/// Has the program judge by the lists, also when they change.
pub(super) fn follow(shared: &Shared, forwarding: &mut KernelForwarding) {
    for (list, version) in lists(shared) {
        if let Some(kernel) = forwarding.take_list(version) {
            list.judge_in_kernel(kernel);
        }
    }
}
