//! Everything dumped, then followed.
//!
//! One socket hears of every change, and joined its groups before the first dump was asked for. Dumps come over another one.
//! `netlink::kernel` explains why nothing is lost: what is notified during a dump is held back until it has ended, and the last word is
//! right. A dump of SAs or policies is always whole, as the kernel keeps its place in the list; what is added or replaced meanwhile
//! goes to the front of the list, and is notified.
//!
//! **After a loss** (`ENOBUFS`) everything is dumped anew. Every SA and policy is reported again, and those that the dump does not name
//! as gone. For that we remember names, not keys.
//!
//! **What the kernel does not say in a message of its own**
//!
//! - An SA or policy whose hard limit was reached is only reported as expired: it is gone.
//! - `XFRM_MSG_UPDSA` repeats the request. Of a request for an SA that is there, the kernel takes limits, encapsulation and little
//!   else. So the SA is asked for, and what the kernel has is reported.
//! - Migration (RFC 4555, `XFRM_MSG_MIGRATE`) changes addresses of SAs and policies in one message: everything is dumped anew. Linux
//!   6.6 and older report it in the first network namespace only.
//! - SAs and policies whose work a card does go with the card, without a word. Those are better left to the kernel anyway.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use netlink_packet_core::{ErrorBuffer, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR};
use zeroize::Zeroize;

use super::message::{decode, kind};
use super::{
    Decoded, Defaults, Expiry, POLICY_ID_BYTES, Policy, PolicyIndex, PolicyType, Protocol, Rank, Requests,
    Sa, SaId, where_there,
};
use crate::netlink::Reasons;
use crate::netlink::ask::XFRM;
use crate::netlink::frames::{Frame, frames};
use crate::netlink::message::DecodeError;
use crate::netlink::request::Message;
use crate::netlink::sockets::{KernelSocket, Received};
use crate::readiness::Readiness;

/// Multicast groups (`XFRMNLGRP_*`): expiry, SAs, policies, migration.
const GROUPS: [u32; 4] = [2, 3, 4, 7];

/// Notifications that are held back during a dump; more are left in the socket.
const HELD_BACK: usize = 65_536;
/// Datagrams of each socket that one call of [`Watch::receive`] reads. One of a dump has up to 32 KB, some 60 SAs.
const DATAGRAMS_PER_CALL: usize = 32;
/// Datagrams that one call throws away after an overrun.
const THROWN_PER_CALL: usize = 4096;
/// How often a dump is read, at most, if the kernel says that it is not whole.
const PASSES: u8 = 4;
/// After which time a dump that failed is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// Longer than any message.
const LONGEST_DATAGRAM: usize = 256 << 10;

/// How to follow the kernel's IPsec state.
#[derive(Clone, Debug)]
pub struct WatchOptions {
    /// Bytes that the kernel may keep for us while we do not read. A notification takes about 2 KB of it.
    pub receive_buffer: usize,
}

impl Default for WatchOptions {
    fn default() -> WatchOptions {
        WatchOptions { receive_buffer: 16 << 20 }
    }
}

/// What comes from the kernel. An SA or policy may be reported again without a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// There is this SA: it is new, or something of it changed.
    Sa(Box<Sa>),
    /// This SA is gone.
    SaGone(SaId),
    /// An SA reached a limit, by the kernel's reckoning or by [`Requests::expire`]. After the hard one [`Event::SaGone`] follows.
    SaExpired(SaId, Expiry),
    /// There is this policy, at this place: it is new, it replaces the one of the same number, or its place changed.
    Policy(Box<Policy>, Rank),
    /// This policy is gone.
    PolicyGone(PolicyIndex),
    /// A policy reached a limit. After the hard one [`Event::PolicyGone`] follows.
    PolicyExpired(PolicyIndex, Expiry),
    /// What happens to packets that no policy matches.
    Defaults(Defaults),
    /// Everything that there is was reported, since the beginning or since messages were lost.
    Synchronised,
}

/// What [`Watch`] did since it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchCounters {
    /// Messages that told of a change when it happened.
    pub notifications: u64,
    /// Messages of dumps.
    pub dumped: u64,
    /// Dumps of everything that were begun.
    pub dumps: u64,
    /// Dumps that failed; each is tried again.
    pub dumps_failed: u64,
    /// Times that messages were lost because we did not read fast enough; each time everything is dumped again.
    pub overruns: u64,
    /// Messages that do not concern us, by reason.
    pub ignored: Reasons,
    /// Messages that were not understood, by reason.
    pub errors: Reasons,
}

/// The IPsec state of the kernel's network namespace, dumped and followed.
///
/// Its owner polls [`Watch::fd`] and calls [`Watch::receive`] when it is readable.
pub struct Watch {
    notifications: KernelSocket,
    dumps: KernelSocket,
    requests: Requests,
    readiness: Readiness,
    /// Zero but while a datagram is decoded.
    buffer: Vec<u8>,
    sequence: u32,
    /// When everything is to be dumped.
    due: Option<Instant>,
    dump: Option<Dump>,
    held_back: VecDeque<Decoded>,
    /// Whether what is in the notifications' socket is to be thrown away.
    throws_away: bool,
    /// SAs that were reported, with the number of the dump that last had them.
    sas: HashMap<SaId, u64>,
    /// The same of policies.
    policies: HashMap<PolicyIndex, (u64, PolicyType)>,
    /// The age of the next policy.
    age: u64,
    counters: WatchCounters,
}

/// A dump that is being read: SAs, then policies.
struct Dump {
    sequence: u32,
    pass: u8,
    is_of_policies: bool,
    was_interrupted: bool,
    /// The youngest first.
    policies: Vec<Policy>,
}

type Sink<'a> = &'a mut dyn FnMut(Event);

impl Watch {
    /// Opens the sockets in the network namespace of the calling thread. Returns `None` where the kernel has no IPsec. Everything is
    /// reported by the calls of [`Watch::receive`] that follow.
    ///
    /// # Errors
    ///
    /// The system's, such as `EPERM`.
    pub fn open(options: &WatchOptions) -> io::Result<Option<Watch>> {
        let notifications =
            where_there(KernelSocket::for_notifications(XFRM, &GROUPS, options.receive_buffer))?;
        let (Some(notifications), Some(requests)) = (notifications, Requests::open()?) else {
            return Ok(None);
        };
        let dumps = KernelSocket::open(XFRM)?;
        let readiness = Readiness::new()?;
        readiness.watch(&notifications)?;
        readiness.watch(&dumps)?;
        let mut watch = Watch {
            notifications,
            dumps,
            requests,
            readiness,
            buffer: vec![0; LONGEST_DATAGRAM],
            sequence: 0,
            due: Some(Instant::now()),
            dump: None,
            held_back: VecDeque::new(),
            throws_away: false,
            sas: HashMap::new(),
            policies: HashMap::new(),
            age: 0,
            counters: WatchCounters::default(),
        };
        watch.set_timer()?;
        Ok(Some(watch))
    }

    /// Returns what to poll: readable when [`Watch::receive`] has something to do, and always the same descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.readiness.fd()
    }

    /// Returns whether everything was reported, since the beginning or since messages were lost.
    pub fn is_synchronised(&self) -> bool {
        self.due.is_none() && self.dump.is_none() && !self.throws_away
    }

    /// Returns whether nothing is left of what was received.
    #[cfg(test)]
    pub(super) fn buffer_is_zero(&self) -> bool {
        self.buffer.iter().all(|&byte| byte == 0)
    }

    /// Returns what was counted.
    pub fn counters(&self) -> &WatchCounters {
        &self.counters
    }

    /// Receives what there is, a bounded part of it: if there is more, the descriptor stays readable.
    ///
    /// # Errors
    ///
    /// The system's, after which the next call tries again.
    pub fn receive(&mut self, sink: &mut dyn FnMut(Event)) -> io::Result<()> {
        let result = self.work(sink);
        self.set_timer()?;
        result
    }

    fn work(&mut self, sink: Sink<'_>) -> io::Result<()> {
        if self.throws_away {
            return self.throw_away();
        }
        self.read_notifications(sink)?;
        match &self.dump {
            _ if self.throws_away => Ok(()),
            Some(_) => self.read_dump(sink),
            None if self.due.is_some_and(|due| due <= Instant::now()) => self.begin_dump(),
            None => Ok(()),
        }
    }

    /// Wakes when a dump is due, or at once to throw away what no socket may tell of.
    fn set_timer(&mut self) -> io::Result<()> {
        let moment =
            if self.throws_away { Some(Instant::now()) } else { self.due.filter(|_| self.dump.is_none()) };
        self.readiness.wake_at(moment)
    }

    fn read_notifications(&mut self, sink: Sink<'_>) -> io::Result<()> {
        for _ in 0..DATAGRAMS_PER_CALL {
            if self.held_back.len() >= HELD_BACK {
                break;
            }
            match self.notifications.receive(&mut self.buffer)? {
                Received::Bytes(length) => self.decode(length, |watch, frame| {
                    watch.counters.notifications += 1;
                    match decode(frame) {
                        Ok(Decoded::NotForUs(reason)) => watch.counters.ignored.count(reason),
                        Ok(decoded) if watch.dump.is_some() => watch.held_back.push_back(decoded),
                        Ok(decoded) => watch.apply(decoded, sink)?,
                        Err(error) => watch.error(error),
                    }
                    Ok(())
                })?,
                Received::Nothing => break,
                Received::Lost => {
                    self.counters.overruns += 1;
                    self.throws_away = true;
                    break;
                }
            }
        }
        Ok(())
    }

    /// Takes the messages of a datagram in the buffer, in which nothing of it is left.
    fn decode(
        &mut self,
        length: usize,
        mut take: impl FnMut(&mut Watch, &Frame<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut result = Ok(());
        for frame in frames(&buffer[..length]) {
            match frame {
                Ok(frame) => result = result.and(take(self, &frame)),
                Err(error) => self.error(error),
            }
        }
        buffer[..length].zeroize();
        self.buffer = buffer;
        result
    }

    fn error(&mut self, error: DecodeError) {
        self.counters.errors.count(error.reason());
    }

    /// Reports what was notified.
    fn apply(&mut self, decoded: Decoded, sink: Sink<'_>) -> io::Result<()> {
        match decoded {
            Decoded::Sa(sa) => self.report_sa(sa, sink),
            Decoded::SaUpdated(id) => {
                // If it is not there any more, the message that says so follows.
                if let Some(sa) = self.requests.ask(&id).inspect_err(|_| self.due = Some(Instant::now()))? {
                    self.report_sa(Box::new(sa), sink);
                }
            }
            Decoded::SaGone(id) => self.report_sa_gone(id, sink),
            Decoded::SasFlushed(protocol) => {
                let is_flushed = |id: &SaId| {
                    protocol == 0 || protocol == Protocol::Any.number() || protocol == id.protocol.number()
                };
                let gone: Vec<SaId> = self.sas.keys().copied().filter(is_flushed).collect();
                gone.into_iter().for_each(|id| self.report_sa_gone(id, sink));
            }
            Decoded::SaExpired(id, expiry) => {
                if self.sas.contains_key(&id) {
                    sink(Event::SaExpired(id, expiry));
                }
                if expiry == Expiry::Hard {
                    self.report_sa_gone(id, sink);
                }
            }
            Decoded::Policy(policy) => self.report_policy(policy, sink),
            Decoded::PolicyGone(index) => self.report_policy_gone(index, sink),
            Decoded::PoliciesFlushed(kind) => {
                let gone: Vec<PolicyIndex> = self
                    .policies
                    .iter()
                    .filter(|(_, (_, its))| *its == kind)
                    .map(|(&index, _)| index)
                    .collect();
                gone.into_iter().for_each(|index| self.report_policy_gone(index, sink));
            }
            Decoded::PolicyExpired(index, expiry) => {
                if self.policies.contains_key(&index) {
                    sink(Event::PolicyExpired(index, expiry));
                }
                if expiry == Expiry::Hard {
                    self.report_policy_gone(index, sink);
                }
            }
            Decoded::Defaults(defaults) => sink(Event::Defaults(defaults)),
            Decoded::Migrated => self.due = Some(Instant::now()),
            Decoded::NotForUs(_) => {}
        }
        Ok(())
    }

    fn report_sa(&mut self, sa: Box<Sa>, sink: Sink<'_>) {
        // It has no algorithm, and gets one by a message.
        if sa.is_larval() {
            return;
        }
        self.sas.insert(sa.id, self.counters.dumps);
        sink(Event::Sa(sa));
    }

    fn report_sa_gone(&mut self, id: SaId, sink: Sink<'_>) {
        if self.sas.remove(&id).is_some() {
            sink(Event::SaGone(id));
        }
    }

    /// Reports a policy that is younger than all others.
    fn report_policy(&mut self, policy: Box<Policy>, sink: Sink<'_>) {
        self.policies.insert(policy.index, (self.counters.dumps, policy.kind));
        self.age += 1;
        let rank = Rank { priority: policy.priority, age: self.age };
        sink(Event::Policy(policy, rank));
    }

    fn report_policy_gone(&mut self, index: PolicyIndex, sink: Sink<'_>) {
        if self.policies.remove(&index).is_some() {
            sink(Event::PolicyGone(index));
        }
    }

    fn begin_dump(&mut self) -> io::Result<()> {
        self.due = Some(Instant::now() + RETRY);
        let sequence = self.ask_for_dump(false)?;
        self.due = None;
        self.counters.dumps += 1;
        self.dump = Some(Dump {
            sequence,
            pass: 1,
            is_of_policies: false,
            was_interrupted: false,
            policies: Vec::new(),
        });
        Ok(())
    }

    /// Asks for all SAs or all policies. Returns the number of the request.
    fn ask_for_dump(&mut self, policies: bool) -> io::Result<u32> {
        self.sequence = self.sequence.wrapping_add(1);
        let flags = NLM_F_REQUEST | NLM_F_DUMP;
        let message = if policies {
            Message::new(kind::GET_POLICY, flags, self.sequence, &[0; POLICY_ID_BYTES])
        } else {
            // What is behind the header are attributes, which would select SAs.
            Message::new(kind::GET_SA, flags, self.sequence, &[])
        };
        self.dumps.send(&message.finish())?;
        Ok(self.sequence)
    }

    /// Reads some of the dump.
    fn read_dump(&mut self, sink: Sink<'_>) -> io::Result<()> {
        for _ in 0..DATAGRAMS_PER_CALL {
            let mut is_read = false;
            let result = match self.dumps.receive(&mut self.buffer) {
                Ok(Received::Bytes(length)) => self.decode(length, |watch, frame| {
                    is_read |= watch.dumped(frame, sink)?;
                    Ok(())
                }),
                Ok(Received::Nothing) => break,
                Ok(Received::Lost) => Err(io::Error::other("a message is longer than the buffer")),
                Err(error) => Err(error),
            };
            if let Err(error) = result {
                return self.give_up_dump(&error, sink);
            }
            if is_read {
                return self.end_part(sink).or_else(|error| self.give_up_dump(&error, sink));
            }
        }
        Ok(())
    }

    /// Takes a message of the dump. Returns whether it was the last one.
    fn dumped(&mut self, frame: &Frame<'_>, sink: Sink<'_>) -> io::Result<bool> {
        let Some(dump) = self.dump.as_mut().filter(|dump| dump.sequence == frame.sequence) else {
            return Ok(false);
        };
        dump.was_interrupted |= frame.flags & NLM_F_DUMP_INTR != 0;
        if frame.kind == NLMSG_DONE || frame.kind == NLMSG_ERROR {
            // Both begin with an error number, negative, or zero.
            return match ErrorBuffer::new_checked(frame.payload).ok().and_then(|error| error.code()) {
                Some(code) => Err(io::Error::from_raw_os_error(code.get().saturating_abs())),
                None => Ok(true),
            };
        }
        self.counters.dumped += 1;
        match decode(frame) {
            Ok(Decoded::Sa(sa)) => self.report_sa(sa, sink),
            Ok(Decoded::Policy(policy)) => dump.policies.push(*policy),
            Ok(Decoded::NotForUs(reason)) => self.counters.ignored.count(reason),
            Ok(_) => {}
            Err(error) => self.error(error),
        }
        Ok(false)
    }

    /// All SAs were read, or all policies.
    fn end_part(&mut self, sink: Sink<'_>) -> io::Result<()> {
        let Some(mut dump) = self.dump.take() else { return Ok(()) };
        let is_whole = !dump.was_interrupted || dump.pass == PASSES;
        if dump.is_of_policies && is_whole {
            return self.end_dump(dump, sink);
        }
        dump.pass = if is_whole { 1 } else { dump.pass + 1 };
        dump.is_of_policies |= is_whole;
        dump.was_interrupted = false;
        dump.policies.clear();
        let sequence = self.ask_for_dump(dump.is_of_policies);
        dump.sequence = *sequence.as_ref().unwrap_or(&0);
        self.dump = Some(dump);
        sequence.map(drop)
    }

    /// Everything was read: what the dump did not name is gone, and what was held back is reported.
    fn end_dump(&mut self, dump: Dump, sink: Sink<'_>) -> io::Result<()> {
        let defaults = self.requests.defaults();
        dump.policies.into_iter().rev().for_each(|policy| self.report_policy(Box::new(policy), sink));
        let now = self.counters.dumps;
        let sas: Vec<SaId> = self.sas.iter().filter(|(_, seen)| **seen != now).map(|(&id, _)| id).collect();
        sas.into_iter().for_each(|id| self.report_sa_gone(id, sink));
        let policies: Vec<PolicyIndex> =
            self.policies.iter().filter(|(_, (seen, _))| *seen != now).map(|(&index, _)| index).collect();
        policies.into_iter().for_each(|index| self.report_policy_gone(index, sink));
        sink(Event::Defaults(defaults?));
        self.release(sink)?;
        if self.due.is_none() {
            sink(Event::Synchronised);
        }
        Ok(())
    }

    /// Reports what was held back during a dump.
    fn release(&mut self, sink: Sink<'_>) -> io::Result<()> {
        let mut result = Ok(());
        while let Some(decoded) = self.held_back.pop_front() {
            result = result.and(self.apply(decoded, sink));
        }
        result
    }

    /// The dump failed, which never happens but for want of memory or rights. What was held back is newer than what was read of it.
    fn give_up_dump(&mut self, error: &io::Error, sink: Sink<'_>) -> io::Result<()> {
        self.dump = None;
        self.due = Some(Instant::now() + RETRY);
        self.counters.dumps_failed += 1;
        self.release(sink)?;
        self.reopen_dumps()?;
        Err(io::Error::new(error.kind(), format!("dump of IPsec's state over netlink: {error}; tried again")))
    }

    /// Throws away what the kernel kept for us from before messages were lost, some of it.
    fn throw_away(&mut self) -> io::Result<()> {
        for _ in 0..THROWN_PER_CALL {
            match self.notifications.receive(&mut self.buffer)? {
                Received::Nothing => {
                    self.throws_away = false;
                    self.held_back.clear();
                    self.due = Some(Instant::now());
                    return if self.dump.take().is_some() { self.reopen_dumps() } else { Ok(()) };
                }
                Received::Bytes(length) => self.buffer[..length].zeroize(),
                Received::Lost => {}
            }
        }
        Ok(())
    }

    /// The kernel ends a dump only when all of it was read, or with the socket.
    fn reopen_dumps(&mut self) -> io::Result<()> {
        self.dumps = KernelSocket::open(XFRM)?;
        self.readiness.watch(&self.dumps)
    }
}
