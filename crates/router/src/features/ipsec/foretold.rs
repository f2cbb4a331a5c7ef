//! What a router that starts now would make of Linux's IPsec, for `brickway doctor`.

use std::io;
use std::time::{Duration, Instant};

use control::netlink::xfrm::{Watch, WatchOptions};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::linux_ipsec::{LONGEST_DUMP, State, is_empty};

/// What there is of Linux's IPsec.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Foretold {
    /// Policies, those for packets to the host itself among them.
    pub(super) policies: usize,
    /// Associations.
    pub(super) associations: usize,
    /// Policies and associations that the fast path leaves to Linux, each with the reason.
    pub(super) left: Vec<String>,
    /// Whether forwarded packets have to be judged.
    pub(super) sees_transit: bool,
}

/// Looks at what there is. `None` where the kernel has no IPsec.
///
/// # Errors
///
/// The kernel does not tell.
pub(super) fn foretold() -> io::Result<Option<Foretold>> {
    let Some(mut watch) = Watch::open(&WatchOptions::default())? else { return Ok(None) };
    let mut state = State::catching();
    let end = Instant::now() + LONGEST_DUMP;
    while !watch.is_synchronised() {
        if Instant::now() >= end {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut polled = [PollFd::from_borrowed_fd(watch.fd(), PollFlags::IN)];
        let wait = Timespec::try_from(Duration::from_millis(100)).map_err(io::Error::other)?;
        poll(&mut polled, Some(&wait))?;
        watch.receive(&mut |event| _ = state.apply(event, ipsec::MAX_WINDOW))?;
    }
    Ok(Some(Foretold::of(&mut state)))
}

impl Foretold {
    pub(super) fn of(state: &mut State) -> Self {
        let sees_transit = !is_empty(&state.contents());
        let left = state.problems().into_iter();
        Self {
            policies: state.policies.len(),
            associations: state.sas.len(),
            left: left.map(|problem| problem.replacen("IPsec: ", "", 1)).collect(),
            sees_transit,
        }
    }
}
