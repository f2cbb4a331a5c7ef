//! Router advertisements (RFC 4861), and lifetimes of IPv6 routes. With an advertisement the kernel may change the
//! preference and the lifetime of its routes without a message; and a route counts no more when its lifetime has ended,
//! which a message says up to 30 s later. Here lives what knows when IPv6 routes are to be dumped for that.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, SockFilter, Socket, Type};

use crate::netlink::frames::Frame;
use crate::netlink::message::{is_advertised, time_left};

/// `ND_ROUTER_ADVERT`.
const ROUTER_ADVERTISEMENT: u32 = 134;

/// Advertisements that one call reads.
const MOST: usize = 64;

/// The kernel rounds what is left of a lifetime down to 10 ms.
const AFTER_LIFETIME: Duration = Duration::from_millis(20);

/// How often expired routes are looked at. They are in the list for up to 30 s. Who adds one anew
/// meanwhile gets the error EEXIST, but it has its new lifetime, without a message
/// (net/ipv6/ip6_fib.c, `fib6_add_rt2node`).
const REVIVAL: Duration = Duration::from_secs(5);

/// A route that is named less than 10 ms before or after its lifetime ends has the lifetime of one that lasts for ever, 0
/// (net/core/rtnetlink.c, `rtnl_put_cacheinfo`). Where a lifetime ends so soon after a dump has begun, that may be so.
const SOON: Duration = Duration::from_secs(1);

/// Listens on all interfaces of the network namespace of the thread that opened it.
pub(super) struct Advertisements {
    /// `None` where the kernel has no IPv6, or we lack the right to listen (`CAP_NET_RAW`).
    socket: Option<Socket>,
    /// Whether there are routes of advertisements.
    has_routes: bool,
    /// When the next lifetime of a route ends, or one that has ended is looked at again.
    next_expiry: Option<Instant>,
    /// When routes are looked at once more, as a dump may have named one just when its lifetime ended.
    once_more: Option<Instant>,
}

impl Advertisements {
    pub(super) fn listen() -> Advertisements {
        Advertisements { socket: socket().ok(), has_routes: false, next_expiry: None, once_more: None }
    }

    /// What to wait for.
    pub(super) fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(Socket::as_fd)
    }

    /// All IPv6 routes will be named anew.
    pub(super) fn dump_begins(&mut self, now: Instant) {
        if self.next_expiry.is_some_and(|expiry| expiry <= now + SOON) {
            self.once_more = Some(now + 2 * SOON);
        }
        (self.has_routes, self.next_expiry) = (false, None);
    }

    /// Remembers what a message says of an IPv6 route.
    pub(super) fn note(&mut self, frame: &Frame<'_>) {
        self.has_routes |= is_advertised(frame);
        let look_after = |left: Duration| if left.is_zero() { REVIVAL } else { left + AFTER_LIFETIME };
        let expiry = time_left(frame).and_then(|left| Instant::now().checked_add(look_after(left)));
        self.next_expiry = self.next_expiry.into_iter().chain(expiry).min();
    }

    /// When the next lifetime ends.
    pub(super) fn next_time(&self) -> Option<Instant> {
        self.next_expiry.into_iter().chain(self.once_more).min()
    }

    /// Takes the advertisements that have come, and what has expired. Returns whether routes may be other than they
    /// were. What advertisements say is the kernel's to judge.
    pub(super) fn have_changed_routes(&mut self, now: Instant) -> bool {
        let is_again = self.once_more.take_if(|time| *time <= now).is_some();
        let has_expired = self.next_expiry.take_if(|expiry| *expiry <= now).is_some();
        if has_expired {
            self.once_more = Some(now + 2 * SOON);
        }
        let mut byte = [MaybeUninit::uninit()];
        let received = |socket: &Socket| (0..MOST).take_while(|_| socket.recv(&mut byte).is_ok()).count();
        let has_come = self.socket.as_ref().map_or(0, received) > 0;
        is_again || has_expired || has_come && self.has_routes
    }
}

fn socket() -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6))?;
    socket.set_nonblocking(true)?;
    // Classic BPF (BPF_LD | BPF_B | BPF_ABS, BPF_JMP | BPF_JEQ | BPF_K, BPF_RET | BPF_K): byte 0 is the type of the
    // ICMPv6 message. Others are not queued.
    socket.attach_filter(&[
        SockFilter::new(0x30, 0, 0, 0),
        SockFilter::new(0x15, 0, 1, ROUTER_ADVERTISEMENT),
        SockFilter::new(0x06, 0, 0, 1),
        SockFilter::new(0x06, 0, 0, 0),
    ])?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lifetime_that_ends_while_routes_are_named_is_looked_at_once_more() {
        let now = Instant::now();
        let ending = |after| Advertisements {
            socket: None,
            has_routes: false,
            next_expiry: Some(now + after),
            once_more: None,
        };
        // Something else had them named.
        let mut soon = ending(SOON / 2);
        soon.dump_begins(now);
        assert_eq!(soon.next_time(), Some(now + 2 * SOON));
        assert!(soon.have_changed_routes(now + 2 * SOON));
        soon.dump_begins(now + 2 * SOON);
        assert_eq!(soon.next_time(), None, "once");
        let mut later = ending(2 * SOON);
        later.dump_begins(now);
        assert_eq!(later.next_time(), None, "this dump names its lifetime");
        // It ended, and another one may have ended during the dump that follows.
        let mut ended = ending(Duration::ZERO);
        assert!(ended.have_changed_routes(now));
        ended.dump_begins(now);
        assert_eq!(ended.next_time(), Some(now + 2 * SOON));
        assert!(ended.have_changed_routes(now + 2 * SOON) && !ended.have_changed_routes(now + 9 * SOON));
    }
}
