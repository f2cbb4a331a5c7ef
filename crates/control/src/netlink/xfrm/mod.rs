//! The kernel's IPsec state: security associations (SAs) and policies, over `NETLINK_XFRM`. An IKE daemon or `ip xfrm` installs them;
//! we follow them, and report back what became of SAs that the fast path works with. Sources: `linux/xfrm.h`, `net/xfrm/` of Linux.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `sa`, `policy`, `selector` | what the kernel says, as plain data |
//! | `key` | keys: zeroed on drop, never printed |
//! | `replay` | sequence numbers and the replay window, read and written |
//! | `message` | from a message to what it says |
//! | `watch` | [`Watch`]: everything dumped, then followed; why nothing is lost |
//! | `requests` | [`Requests`]: counters and sequence numbers to the kernel, one SA's present state, expiry |
//!
//! All of it needs `CAP_NET_ADMIN` in the network namespace. Linux 4.19 or newer.
//!
//! # Order of policies
//!
//! The kernel takes the policy with the lowest priority number that matches a packet ([`Rank`]). Of several with the same number it
//! takes the oldest. Netlink does not carry an age: a dump begins with the youngest policy, and what is notified is younger than what
//! is there. A policy that replaces another one (`ip xfrm policy update`, strongSwan's updates) has the age of its replacement.
//!
//! ## What the order cannot tell
//!
//! A policy that replaces one of the same priority keeps the place of the old one among the policies whose prefixes fall into the
//! same list of the kernel, and is the youngest among all others. Linux before 6.13 leaves it at the old place everywhere. Neither is
//! visible over netlink. The order can be wrong for policies that overlap, have the same priority and of which one was replaced.

mod key;
mod message;
mod policy;
mod replay;
mod requests;
mod sa;
mod selector;
#[cfg(test)]
mod tests;
mod watch;

use std::io;

use rustix::io::Errno;

use super::ask;
pub use key::Key;
pub use message::{Decoded, decode};
pub use policy::{
    Action, Algorithms, Defaults, Direction, Policy, PolicyIndex, PolicyType, Rank, Share, Template,
};
pub use replay::{Replay, ReplayForm};
pub use requests::{Progress, RequestError, Requests};
pub use sa::{
    Algorithm, Encapsulation, EncapsulationKind, Expiry, Failures, Limit, Limits, Mark, Mode, Offload,
    Protocol, Sa, SaDirection, SaFlags, SaId, Usage,
};
pub use selector::{PortMatch, Selector};
pub use watch::{Event, Watch, WatchCounters, WatchOptions};

/// `struct xfrm_userpolicy_id`, which all zero asks for every policy.
const POLICY_ID_BYTES: usize = 64;

/// Lists the policies of this thread's network namespace, in the order in which the kernel tries them, without those of sockets. The
/// list is empty where the kernel has no IPsec.
///
/// # Errors
///
/// The kernel's, such as `EPERM`; a message that is not understood.
pub fn policies() -> io::Result<Vec<Policy>> {
    let mut found = Vec::new();
    let dumped =
        ask::dump(ask::XFRM, message::kind::GET_POLICY, &[0; POLICY_ID_BYTES], &mut |kind, payload| {
            if let Decoded::Policy(policy) = message::decode_parts(kind, payload).map_err(io::Error::other)? {
                found.push(*policy);
            }
            Ok(())
        });
    // The youngest came first; sorting leaves those of one priority as they are.
    found.reverse();
    found.sort_by_key(|policy| policy.priority);
    Ok(where_there(dumped)?.map(|()| found).unwrap_or_default())
}

/// Returns `None` where the kernel was built without IPsec.
fn where_there<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.raw_os_error() == Some(Errno::PROTONOSUPPORT.raw_os_error()) => Ok(None),
        other => other.map(Some),
    }
}
