//! The kernel's state, dumped and followed.
//!
//! **Two sockets.** One joined all groups before the first dump was asked for, and hears of every change.
//! Dumps come over the other one, so that their replies cannot fill the buffer of the first.
//!
//! **What is older?** A notification may be older or newer than what a dump says of the same thing, and
//! nothing in it says which. The kernel writes a dump piece by piece, each when we have read the one before;
//! call the moment at which it wrote of a thing *d*, and that of a notification about the thing *n*.
//!
//! - A notification that we read before we asked for the dump is older than it: right in this order.
//! - All others are held back until the dump has ended. If *n* > *d* this is the right order again. If *n* <
//!   *d* an older state is applied after a newer one; but then every later change of the thing was notified
//!   too, and follows in the order in which it happened. The last word is right, if not every one before it.
//!   (Routes with the same key are several things: `same_key` sees to that.)
//!
//! So nothing is lost, and what the kernel says last holds. Only notifications of the same group of parts are
//! held back (next-hop objects and routes are one group, as routes refer to objects): a neighbour's new
//! address waits for no dump of a million routes. More than [`HELD_BACK`] of them are left in the socket.
//!
//! **Lost notifications.** When the socket's buffer is full, the kernel reports it once (`ENOBUFS`). What is
//! left in the buffer is then worthless, as nobody knows what was lost behind it, and would be wrong if it
//! came after the next dump. It is read and thrown away, until nothing is there; and then everything is
//! dumped.
//!
//! **Dumps that are not whole.** The kernel marks a dump during which its list changed (`NLM_F_DUMP_INTR`),
//! except those of routes and neighbours. A dump of IPv6 routes counts how many it wrote, and goes on after
//! as many if the tree changed: when one went, it misses another one. One of IPv4 goes on after so many
//! routes of an address, one of neighbours after so many of a bucket of their table. In all these cases it is
//! read once more within the same bracket of events, so that what either saw stays.
//!
//! **What the kernel does not tell** (found on Linux 6.18, see the tests of this file):
//!
//! - IPv4 routes vanish when their link goes down, and when an address goes that they needed; paths of a
//!   route with several are marked dead, and alive again, in both families;
//! - next-hop objects vanish when their link goes down or loses its carrier, and groups shrink; when one
//!   vanishes, so do its IPv4 routes.
//! - with another MTU of a link, those of IPv6 routes by it are others (net/ipv6/route.c, `rt6_mtu_change`);
//! - an IPv6 route of an advertisement gets another preference or lifetime with the next one, and counts no more
//!   when its lifetime has ended. It leaves the list up to 30 s later, with a message.
//!
//! What dumps do not tell lives in `hidden`.
//!
//! So advertisements are listened for (`advertisements`), and IPv6 routes are dumped after each one, and when the
//! next lifetime ends. A link that goes up or down or gets another MTU, and an IPv4 address that goes, are reasons to dump objects
//! and routes soon (`schedule`). A link whose carrier comes back is reported twice: when the carrier is there (`IFF_LOWER_UP`),
//! and up to a second later when the kernel has acted on it (`IFF_RUNNING`); routes change in between. A
//! next-hop object that goes with notice takes its routes with it: that is left to who listens.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use netlink_packet_core::{ErrorBuffer, NLM_F_DUMP_INTR, NLMSG_DONE, NLMSG_ERROR};
use netlink_sys::protocols::NETLINK_ROUTE;
use rustix::io::Errno;

use crate::change::{Change, InterfaceIndex, Link, Part};
use crate::netlink::advertisements::Advertisements;
use crate::netlink::counters::Counters;
use crate::netlink::frames::{Frame, frames};
use crate::netlink::hidden;
use crate::netlink::message::{DecodeError, Decoded, decode, is_advertised, link_state};
use crate::netlink::request;
use crate::netlink::same_key::{Outcome, SameKey};
use crate::netlink::schedule::Schedule;
use crate::netlink::sockets::{KernelSocket, Received};
use crate::readiness::Readiness;

/// Multicast groups (`RTNLGRP_*`): links, neighbours, addresses, routes, rules and settings of both families, next-hop
/// objects.
const GROUPS: [u32; 11] = [1, 3, 5, 7, 8, 9, 11, 19, 24, 25, 32];

/// `RTM_NEWNETCONF`: a setting of an interface, or of all, has changed.
const SETTING_CHANGED: u16 = 80;

/// Notifications that are held back during a dump; more are left in the socket.
const HELD_BACK: usize = 65_536;

/// Datagrams of each socket that one call of [`Kernel::receive`] reads. One of a dump has up to 32 KB: 250 to
/// 500 routes.
const DATAGRAMS_PER_CALL: usize = 32;

/// Datagrams that one call throws away after an overrun.
const THROWN_PER_CALL: usize = 4096;

/// How often a dump is read, at most, if things change while it is written.
const PASSES: u8 = 4;

/// What changes without a message when a link does.
const ROUTES_AND_OBJECTS: &[Part] = &[Part::Objects, Part::Routes4, Part::Routes6];

/// Longer than any message: attributes are at most 64 KB long, and the kernel writes at most 32 KB at a time
/// in a dump.
const LONGEST_DATAGRAM: usize = 256 << 10;

/// How to follow the kernel.
#[derive(Clone, Debug)]
pub struct KernelOptions {
    /// Bytes that the kernel may keep for us while we do not read. A notification takes about 1 KB of it.
    pub receive_buffer: usize,
}

impl Default for KernelOptions {
    fn default() -> KernelOptions {
        KernelOptions { receive_buffer: 32 << 20 }
    }
}

/// What comes from the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// All of a part follows, in [`Event::Change`]s; none of them says that something is gone. If an earlier
    /// dump of it did not end, this one takes its place.
    DumpBegins(Part),
    /// What of the part was not among the changes since [`Event::DumpBegins`] is not there any more.
    DumpEnds(Part),
    /// Something changed. Between the beginning and the end of a dump changes of other parts may come, too.
    Change(Change),
}

/// The state of the kernel's network namespace, dumped and followed. Linux 5.3 or newer.
///
/// Its owner polls [`Kernel::fd`] and calls [`Kernel::receive`] when it is readable.
pub struct Kernel {
    notifications: KernelSocket,
    dumps: KernelSocket,
    readiness: Readiness,
    buffer: Vec<u8>,
    sequence: u32,
    schedule: Schedule,
    dump: Option<Dump>,
    held_back: VecDeque<(u16, Decoded)>,
    /// Whether what is in the notifications' socket is to be thrown away.
    throws_away: bool,
    /// Whether messages were lost, and not all is read again.
    has_lost: bool,
    same_key: SameKey,
    /// Whether each link was up, ran and had a carrier when we last heard of it.
    link_states: HashMap<InterfaceIndex, (u32, u32)>,
    advertisements: Advertisements,
    /// Whether settings of interfaces have changed since [`Kernel::take_settings_changed`].
    settings_changed: bool,
    counters: Counters,
}

/// A dump that is being read.
struct Dump {
    part: Part,
    sequence: u32,
    pass: u8,
    /// Whether the kernel said that it is not whole.
    was_interrupted: bool,
    /// Whether all of it was read.
    is_read: bool,
    /// Addresses of the last route of each piece, IPv4.
    seams: HashSet<IpAddr>,
    /// How many messages were held back when this pass began: they are older than it.
    older: usize,
}

type Sink<'a> = &'a mut dyn FnMut(Event);

impl Kernel {
    /// Opens the sockets in the network namespace of the calling thread. Everything is dumped by the calls of
    /// [`Kernel::receive`] that follow.
    pub fn open(options: &KernelOptions) -> io::Result<Kernel> {
        let notifications = KernelSocket::for_notifications(NETLINK_ROUTE, &GROUPS, options.receive_buffer)?;
        let dumps = KernelSocket::for_route_dumps()?;
        let readiness = Readiness::new()?;
        readiness.watch(&notifications)?;
        readiness.watch(&dumps)?;
        let advertisements = Advertisements::listen();
        advertisements.socket().map_or(Ok(()), |socket| readiness.watch(socket))?;
        let mut kernel = Kernel {
            notifications,
            dumps,
            readiness,
            buffer: vec![0; LONGEST_DATAGRAM],
            sequence: 0,
            schedule: Schedule::default(),
            dump: None,
            held_back: VecDeque::new(),
            throws_away: false,
            has_lost: false,
            same_key: SameKey::default(),
            link_states: HashMap::new(),
            advertisements,
            settings_changed: true,
            counters: Counters::default(),
        };
        kernel.schedule.everything(Instant::now());
        kernel.set_timer()?;
        Ok(kernel)
    }

    /// Readable when [`Kernel::receive`] has something to do; always the same descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.readiness.fd()
    }

    /// Whether every part was dumped, since the beginning or the last loss of messages.
    pub fn is_synchronised(&self) -> bool {
        self.schedule.has_everything() && !self.throws_away
    }

    /// Whether settings of interfaces may have changed since the last call, as far as Linux notifies of it.
    pub(crate) fn take_settings_changed(&mut self) -> bool {
        std::mem::take(&mut self.settings_changed)
    }

    /// What was counted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Everything is dumped again, as after a loss of messages.
    pub fn request_resync(&mut self) -> io::Result<()> {
        if !self.throws_away {
            self.start_over()?;
        }
        self.set_timer()
    }

    /// Asks the kernel to find out, or check, where this neighbour is: as if there was a packet for it. What
    /// comes of it comes as a [`Change::Neighbour`]. To be asked for neighbours that are unknown, failed or
    /// stale; it takes permanence from permanent ones.
    pub fn ask_neighbour(&mut self, index: InterfaceIndex, address: IpAddr) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        self.counters.asked += 1;
        self.notifications.send(&request::ask_neighbour(index, address, self.sequence))
    }

    /// Receives what there is, a bounded part of it: if there is more, the descriptor stays readable. An
    /// error is one of the system, after which the next call tries again.
    pub fn receive(&mut self, sink: &mut dyn FnMut(Event)) -> io::Result<()> {
        let result = self.work(sink);
        self.set_timer()?;
        result
    }

    fn work(&mut self, sink: Sink<'_>) -> io::Result<()> {
        if self.throws_away {
            return self.throw_away();
        }
        let has_all = self.read_notifications(sink)?;
        let now = Instant::now();
        if self.advertisements.have_changed_routes(now) {
            self.schedule.soon(Part::Routes6, now);
        }
        match &self.dump {
            _ if self.throws_away => Ok(()),
            // What was held back says whether the dump can be trusted, so all of it has to be there.
            Some(dump) if dump.is_read && has_all => self.end_dump(sink, now),
            Some(dump) if dump.is_read => Ok(()),
            Some(_) => self.read_dump(sink, now),
            None => match self.schedule.next(now) {
                Some(part) => self.begin_dump(part, sink, now),
                None => Ok(()),
            },
        }
    }

    /// The timer goes when a dump is due, or at once if there is work that no socket may tell of: lost
    /// notifications, a dump that only waits for the notifications.
    fn set_timer(&mut self) -> io::Result<()> {
        let moment = match &self.dump {
            _ if self.throws_away => Some(Instant::now()),
            Some(dump) if dump.is_read => Some(Instant::now()),
            Some(_) => None,
            None => self.schedule.next_time().into_iter().chain(self.advertisements.next_time()).min(),
        };
        self.readiness.wake_at(moment)
    }

    /// Reads some notifications; whether there are no more, or no more that we want now.
    fn read_notifications(&mut self, sink: Sink<'_>) -> io::Result<bool> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut result = Ok(false);
        for _ in 0..DATAGRAMS_PER_CALL {
            if self.held_back.len() >= HELD_BACK {
                result = Ok(true);
                break;
            }
            match self.notifications.receive(&mut buffer) {
                Ok(Received::Bytes(length)) => self.notified(&buffer[..length], sink),
                Ok(Received::Nothing) => {
                    result = Ok(true);
                    break;
                }
                Ok(Received::Lost) => {
                    self.counters.overruns += 1;
                    self.throws_away = true;
                    self.has_lost = true;
                    tracing::warn!(
                        event = "netlink",
                        reason = "overrun",
                        "netlink: the socket overran; all tables are read again"
                    );
                    break;
                }
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        self.buffer = buffer;
        result
    }

    /// A datagram of notifications.
    fn notified(&mut self, bytes: &[u8], sink: Sink<'_>) {
        for frame in frames(bytes) {
            match frame.and_then(|frame| self.notification(&frame, sink)) {
                Ok(()) => {}
                Err(error) => self.counters.error(error),
            }
        }
    }

    fn notification(&mut self, frame: &Frame<'_>, sink: Sink<'_>) -> Result<(), DecodeError> {
        if frame.kind == NLMSG_ERROR {
            // The answer to `ask_neighbour`; there is none when all went well.
            self.counters.refused += 1;
            let code = ErrorBuffer::new_checked(frame.payload).ok().and_then(|error| error.code());
            if code.is_some_and(|code| code.get().saturating_abs() == Errno::NOBUFS.raw_os_error()) {
                tracing::warn!(
                    event = "neighbour",
                    reason = "table full",
                    "Linux's neighbour table is full; raise net.ipv4.neigh.default.gc_thresh3 (ipv6 likewise)"
                );
            }
            return Ok(());
        }
        self.counters.notifications += 1;
        if frame.kind == SETTING_CHANGED {
            // It is read with those of which Linux does not notify (`crate::switches`).
            self.settings_changed = true;
            return Ok(());
        }
        let decoded = decode(frame)?;
        self.look_for_silence(frame, &decoded);
        if is_advertised(frame) {
            // The kernel reports a route of an advertisement first, and gives it its lifetime then: what this message
            // says of it may be that it has expired.
            self.schedule.soon(Part::Routes6, Instant::now());
            if matches!(decoded, Decoded::RouteGone(_)) {
                return Ok(());
            }
        }
        self.advertisements.note(frame);
        match (&self.dump, decoded.part()) {
            (_, None) => {
                if let Decoded::NotForUs(reason) = decoded {
                    self.counters.ignored.count(reason);
                }
            }
            (Some(dump), Some(part)) if group(dump.part) == group(part) => {
                self.held_back.push_back((frame.flags, decoded));
            }
            _ => self.apply(frame.flags, decoded, sink),
        }
        Ok(())
    }

    /// Tells of a notification whose time has come.
    fn apply(&mut self, flags: u16, decoded: Decoded, sink: Sink<'_>) {
        let part = decoded.part();
        let outcome = match decoded {
            Decoded::Change(Change::Route(route)) => self.same_key.added(flags, route),
            Decoded::RouteGone(route) => self.same_key.removed(&route),
            Decoded::Change(change) => Outcome { change: Some(change), needs_dump: false },
            Decoded::NotForUs(_) => return,
        };
        if let (true, Some(part)) = (outcome.needs_dump, part) {
            self.schedule.soon(part, Instant::now());
        }
        if let Some(change) = outcome.change {
            sink(Event::Change(change));
        }
    }

    /// Schedules dumps after what makes the kernel change things without a message.
    fn look_for_silence(&mut self, frame: &Frame<'_>, decoded: &Decoded) {
        let parts: &[Part] = match decoded {
            Decoded::Change(Change::Link(link)) => self.changed_in_silence(link, frame),
            Decoded::Change(Change::LinkGone(index)) => {
                self.link_states.remove(index);
                ROUTES_AND_OBJECTS
            }
            Decoded::Change(Change::AddressGone(address)) if address.address.is_ipv4() => &[Part::Routes4],
            _ => &[],
        };
        let now = Instant::now();
        parts.iter().for_each(|&part| self.schedule.soon(part, now));
    }

    /// Keeps the state and the MTU of a link. Returns what may be other than it was if we knew of others.
    fn changed_in_silence(&mut self, link: &Link, frame: &Frame<'_>) -> &'static [Part] {
        let state = link_state(frame);
        match self.link_states.insert(link.index, (state, link.mtu)) {
            Some((known, _)) if known != state => ROUTES_AND_OBJECTS,
            Some((_, mtu)) if mtu != link.mtu => &[Part::Routes6],
            _ => &[],
        }
    }

    fn begin_dump(&mut self, part: Part, sink: Sink<'_>, now: Instant) -> io::Result<()> {
        self.schedule.began(part, now);
        self.ask_for_dump(part, 1).inspect_err(|_| self.schedule.failed(part, now))?;
        sink(Event::DumpBegins(part));
        Ok(())
    }

    fn ask_for_dump(&mut self, part: Part, pass: u8) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        self.dumps.send(&request::dump(part, self.sequence))?;
        self.counters.dumps += 1;
        if matches!(part, Part::Routes4 | Part::Routes6) {
            self.same_key.dump_begins(part);
        }
        if part == Part::Routes6 {
            self.advertisements.dump_begins(Instant::now());
        }
        self.dump = Some(Dump {
            part,
            sequence: self.sequence,
            pass,
            was_interrupted: false,
            is_read: false,
            seams: HashSet::new(),
            older: self.held_back.len(),
        });
        Ok(())
    }

    /// Reads some of the dump.
    fn read_dump(&mut self, sink: Sink<'_>, now: Instant) -> io::Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut result = Ok(());
        for _ in 0..DATAGRAMS_PER_CALL {
            let received = self.dumps.receive(&mut buffer);
            result = match received {
                Ok(Received::Bytes(length)) => self.dump_piece(&buffer[..length], sink),
                Ok(Received::Nothing) => break,
                Ok(Received::Lost) => Err(io::Error::other("a message is longer than the buffer")),
                Err(error) => Err(error),
            };
            if result.is_err() || self.dump.as_ref().is_none_or(|dump| dump.is_read) {
                break;
            }
        }
        self.buffer = buffer;
        result.or_else(|error| self.give_up_dump(&error, sink, now))
    }

    /// A datagram of the dump.
    fn dump_piece(&mut self, bytes: &[u8], sink: Sink<'_>) -> io::Result<()> {
        let Some(dump) = &mut self.dump else { return Ok(()) };
        let mut last_route = None;
        for frame in frames(bytes) {
            let frame = match frame {
                Ok(frame) => frame,
                Err(error) => {
                    self.counters.error(error);
                    break;
                }
            };
            if frame.sequence != dump.sequence {
                continue;
            }
            dump.was_interrupted |= frame.flags & NLM_F_DUMP_INTR != 0;
            if frame.kind == NLMSG_DONE || frame.kind == NLMSG_ERROR {
                dump.is_read = true;
                // Both begin with an error number, negative, or zero.
                let code = ErrorBuffer::new_checked(frame.payload).ok().and_then(|error| error.code());
                return match code {
                    Some(code) => Err(io::Error::from_raw_os_error(code.get().saturating_abs())),
                    None => Ok(()),
                };
            }
            self.counters.dumped += 1;
            self.advertisements.note(&frame);
            let change = match decode(&frame) {
                Ok(Decoded::Change(Change::Link(link))) if dump.part == Part::Links => {
                    self.link_states.insert(link.index, (link_state(&frame), link.mtu));
                    Some(Change::Link(link))
                }
                // Where the kernel has no IPv6, it answers with all routes that it has.
                Ok(decoded) if decoded.part().is_some_and(|part| part != dump.part) => continue,
                Ok(Decoded::Change(Change::Route(route))) => {
                    last_route = Some(route.key.prefix.addr());
                    self.same_key.dumped(route)
                }
                Ok(Decoded::Change(change)) => Some(change),
                Ok(Decoded::RouteGone(_)) => None,
                Ok(Decoded::NotForUs(reason)) => {
                    self.counters.ignored.count(reason);
                    None
                }
                Err(error) => {
                    self.counters.error(error);
                    None
                }
            };
            if let Some(change) = change {
                sink(Event::Change(change));
            }
        }
        dump.seams.extend(last_route.filter(IpAddr::is_ipv4));
        Ok(())
    }

    /// All of the dump was read, and all notifications that came meanwhile.
    fn end_dump(&mut self, sink: Sink<'_>, now: Instant) -> io::Result<()> {
        let Some(dump) = self.dump.take() else { return Ok(()) };
        let part = dump.part;
        let (hiding, needs_pass) =
            if part == Part::Routes6 { self.same_key.hidden(hidden::count) } else { Default::default() };
        if dump.was_interrupted || needs_pass || self.may_have_missed(&dump) {
            if dump.pass < PASSES {
                self.counters.dumps_repeated += 1;
                return self
                    .ask_for_dump(part, dump.pass + 1)
                    .or_else(|error| self.give_up_dump(&error, sink, now));
            }
            // Four looks together saw everything, most likely. A later one makes sure.
            self.schedule.soon(part, now);
        }
        hiding.into_iter().for_each(|route| sink(Event::Change(Change::Route(route))));
        sink(Event::DumpEnds(part));
        self.schedule.ended(part, now);
        self.release(part, sink);
        if self.is_synchronised() && std::mem::take(&mut self.has_lost) {
            tracing::info!(event = "netlink", "netlink: in step with Linux again");
        }
        Ok(())
    }

    /// Whether things went while the dump was written in a way that makes the kernel skip others.
    fn may_have_missed(&self, dump: &Dump) -> bool {
        let mut newer = self.held_back.iter().skip(dump.older);
        match dump.part {
            // The table may also have grown, which nothing tells.
            Part::Neighbours => newer.next().is_some(),
            Part::Routes4 | Part::Routes6 => newer.any(|(_, decoded)| match decoded {
                Decoded::RouteGone(route) => match route.key.prefix.addr() {
                    IpAddr::V6(_) => dump.part == Part::Routes6,
                    address => dump.seams.contains(&address),
                },
                _ => false,
            }),
            Part::Links | Part::Addresses | Part::Objects | Part::Rules => false,
        }
    }

    /// Tells what was held back during a dump of this part.
    fn release(&mut self, part: Part, sink: Sink<'_>) {
        self.same_key.replay_begins();
        while let Some((flags, decoded)) = self.held_back.pop_front() {
            self.apply(flags, decoded, sink);
        }
        self.same_key.replay_ends(part);
    }

    /// The dump failed, which never happens but for want of memory or on a kernel that is too old. What was
    /// held back is newer than what was read of it.
    fn give_up_dump(&mut self, error: &io::Error, sink: Sink<'_>, now: Instant) -> io::Result<()> {
        let Some(dump) = self.dump.take() else { return Ok(()) };
        self.counters.dumps_failed += 1;
        self.schedule.failed(dump.part, now);
        self.release(dump.part, sink);
        self.reopen_dumps()?;
        Err(io::Error::new(
            error.kind(),
            format!("dump of {:?} over netlink: {error}; tried again", dump.part),
        ))
    }

    /// Throws away what the kernel kept for us from before messages were lost, some of it.
    fn throw_away(&mut self) -> io::Result<()> {
        for _ in 0..THROWN_PER_CALL {
            match self.notifications.receive(&mut self.buffer)? {
                Received::Nothing => return self.start_over(),
                Received::Bytes(_) | Received::Lost => {}
            }
        }
        Ok(())
    }

    /// Everything is dumped anew; a dump that is being read is left where it is.
    fn start_over(&mut self) -> io::Result<()> {
        self.throws_away = false;
        self.held_back.clear();
        self.schedule.everything(Instant::now());
        if self.dump.take().is_some() {
            self.reopen_dumps()?;
        }
        Ok(())
    }

    /// The kernel ends a dump only when all of it was read, or with the socket.
    fn reopen_dumps(&mut self) -> io::Result<()> {
        self.dumps = KernelSocket::for_route_dumps()?;
        self.readiness.watch(&self.dumps)
    }
}

/// Parts of the same group refer to each other, so that the order of their changes counts.
fn group(part: Part) -> Part {
    match part {
        Part::Objects | Part::Routes4 | Part::Routes6 => Part::Objects,
        Part::Links | Part::Addresses | Part::Neighbours | Part::Rules => part,
    }
}
