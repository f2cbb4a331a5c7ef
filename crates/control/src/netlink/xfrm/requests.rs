//! What we tell the kernel, and ask of it.
//!
//! The kernel works on a request while `send` runs, and its answer is there when `send` returns. So requests need no waiting, and many
//! go with one system call.
//!
//! **What it takes.** From `XFRM_MSG_NEWAE` (`xfrm_new_ae`, `xfrm_update_ae_params`) it takes the four numbers of
//! `XFRMA_LTIME_VAL`, the time at which the SA was added among them, and all of `XFRMA_REPLAY_VAL` or `XFRMA_REPLAY_ESN_VAL`. The
//! flag `NLM_F_REPLACE` has to be there, and the SA must be neither larval nor expired. `xfrm_replay_verify_len` refuses another length
//! of the bitmap than the SA has, and a window that it has no room for; the window's size itself is taken. So [`Replay`] keeps both.
//! The kernel compares bytes and packets with their limits when it sends or receives itself, not here. Seconds are the work of its
//! timer. `XFRM_MSG_EXPIRE` (`xfrm_add_sa_expire`) reports to daemons, and deletes the SA if it is hard.

use std::io;
use std::net::IpAddr;

use netlink_packet_core::{ErrorBuffer, NLM_F_ACK, NLM_F_REPLACE, NLM_F_REQUEST, NLMSG_ERROR};
use rustix::io::Errno;
use zeroize::Zeroize;

use super::message::{attribute, decode_parts, kind};
use super::{Decoded, Defaults, Expiry, Mark, Replay, Sa, SaId, Usage};
use crate::netlink::ask::XFRM;
use crate::netlink::frames::{Frame, frames};
use crate::netlink::message::{FAMILY_IPV4, FAMILY_IPV6};
use crate::netlink::request::Message;
use crate::netlink::sockets::{KernelSocket, Received};

/// Requests of one system call: their answers have room in a receive buffer of the usual size.
const BATCH: usize = 64;
/// Longer than an answer: an SA with all its attributes has up to some kilobytes.
const BUFFER: usize = 64 << 10;

/// Length of `struct xfrm_usersa_info`, and where its fields are that name an SA.
const SA_INFO_BYTES: usize = 224;
const SA_INFO_ID: usize = 56;
const SA_INFO_FAMILY: usize = 212;
/// Length of `struct xfrm_user_expire`.
const EXPIRE_BYTES: usize = 232;
/// Length of `struct xfrm_aevent_id`, which begins with a `struct xfrm_usersa_id`.
const EVENT_ID_BYTES: usize = 48;

/// What became of an SA that the fast path works with.
#[derive(Clone, Debug)]
pub struct Progress {
    /// The SA.
    pub id: SaId,
    /// Its bytes, packets and times. The time at which it was added is to be the kernel's, which would take another one.
    pub usage: Option<Usage>,
    /// Its sequence numbers: those that the kernel had, [advanced](Replay::advanced).
    pub replay: Option<Replay>,
}

/// Why the kernel did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The SA was deleted, or never was.
    #[error("{0}: not in the kernel")]
    Gone(SaId),
    /// The replay state has another size than the SA's, or the SA is larval or expired.
    #[error("{0}: refused by the kernel; expected an SA in use and a replay window of its size")]
    Invalid(SaId),
    /// The kernel had no memory for an answer. The request may have been done.
    #[error("{0}: no answer from the kernel")]
    Unanswered(SaId),
    /// Something else, such as a lack of rights.
    #[error("{0}: {1}")]
    System(SaId, io::Error),
}

impl RequestError {
    fn of(id: SaId, number: i32) -> RequestError {
        match Errno::from_raw_os_error(number) {
            // Expiry says the second where all else says the first.
            Errno::SRCH | Errno::NOENT => RequestError::Gone(id),
            Errno::INVAL => RequestError::Invalid(id),
            _ => RequestError::System(id, io::Error::from_raw_os_error(number)),
        }
    }
}

/// A socket for requests, in the network namespace of the thread that opened it.
pub struct Requests {
    socket: KernelSocket,
    buffer: Vec<u8>,
    sequence: u32,
}

impl Requests {
    /// Opens the socket. Returns `None` where the kernel has no IPsec.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn open() -> io::Result<Option<Requests>> {
        let socket = super::where_there(KernelSocket::for_requests(XFRM))?;
        Ok(socket.map(|socket| Requests { socket, buffer: vec![0; BUFFER], sequence: 0 }))
    }

    /// Gives the kernel counters and sequence numbers of SAs, 64 with each system call. Listeners to `XFRMNLGRP_AEVENTS` hear of it.
    /// Returns those that failed, by their place in the list.
    pub fn report(&mut self, progress: &[Progress]) -> Vec<(usize, RequestError)> {
        self.all(progress, |progress| progress.id, new_event)
    }

    /// Says that SAs have reached a limit: IKE daemons hear of it, and the kernel deletes an SA whose hard limit it is. Returns those
    /// that failed, by their place in the list.
    pub fn expire(&mut self, expired: &[(SaId, Expiry)]) -> Vec<(usize, RequestError)> {
        self.all(expired, |(id, _)| *id, |(id, expiry)| expire(id, *expiry))
    }

    /// Asks for the present state of an SA. Returns `None` if it is not there.
    ///
    /// # Errors
    ///
    /// The system's, or an answer that is not understood.
    pub fn ask(&mut self, id: &SaId) -> io::Result<Option<Sa>> {
        let request = Message::new(kind::GET_SA, NLM_F_REQUEST, 0, &usersa_id(id));
        match self.one(with_mark(request, id.mark))? {
            Ok(Decoded::Sa(sa)) => Ok(Some(*sa)),
            Ok(_) => Ok(None),
            Err(Errno::SRCH) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Asks what happens to packets that no policy matches.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn defaults(&mut self) -> io::Result<Defaults> {
        match self.one(Message::new(kind::GET_DEFAULT, NLM_F_REQUEST, 0, &[0; 4]))? {
            Ok(Decoded::Defaults(defaults)) => Ok(defaults),
            // Linux before 5.15 does not know the question.
            Ok(_) | Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(Defaults::ALLOW),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends one request. Returns its answer, or the kernel's error number.
    fn one(&mut self, request: Message) -> io::Result<Result<Decoded, Errno>> {
        let mut answer = None;
        self.exchange(&request.finish(), &mut |frame| {
            answer = Some(match error_number(frame) {
                Some(number) => Ok(Err(Errno::from_raw_os_error(number))),
                None => decode_parts(frame.kind, frame.payload).map(Ok).map_err(io::Error::other),
            });
        })?;
        answer.unwrap_or_else(|| Err(io::Error::other("no answer from the kernel")))
    }

    /// Sends a request for each item, in batches. Each is acknowledged, its number is its place.
    fn all<T>(
        &mut self,
        items: &[T],
        id: impl Fn(&T) -> SaId,
        request: impl Fn(&T) -> Message,
    ) -> Vec<(usize, RequestError)> {
        let mut failed = Vec::new();
        for (batch, items) in items.chunks(BATCH).enumerate() {
            let first = self.sequence.wrapping_add(1);
            let bytes: Vec<u8> = items
                .iter()
                .flat_map(|item| {
                    self.sequence = self.sequence.wrapping_add(1);
                    request(item).numbered(self.sequence).finish()
                })
                .collect();
            let mut answers: Vec<Option<i32>> = vec![None; items.len()];
            let sent = self.exchange(&bytes, &mut |frame| {
                let place = frame.sequence.wrapping_sub(first) as usize;
                if let (Some(number), Some(answer)) = (error_number(frame), answers.get_mut(place)) {
                    *answer = Some(number);
                }
            });
            for (place, (item, answer)) in items.iter().zip(answers).enumerate() {
                let id = id(item);
                let error = match (answer, &sent) {
                    (Some(0), _) => continue,
                    (Some(number), _) => RequestError::of(id, number),
                    (None, Err(error)) => {
                        RequestError::System(id, io::Error::new(error.kind(), error.to_string()))
                    }
                    (None, Ok(())) => RequestError::Unanswered(id),
                };
                failed.push((batch * BATCH + place, error));
            }
        }
        failed
    }

    /// Sends requests and takes what the kernel answers to them.
    fn exchange(&mut self, requests: &[u8], take: &mut dyn FnMut(&Frame<'_>)) -> io::Result<()> {
        self.socket.send(requests)?;
        loop {
            packet::pulse::beat();
            match self.socket.receive(&mut self.buffer)? {
                Received::Bytes(length) => {
                    frames(&self.buffer[..length]).flatten().for_each(|frame| take(&frame));
                    // There may have been keys.
                    self.buffer[..length].zeroize();
                }
                Received::Nothing => return Ok(()),
                Received::Lost => {}
            }
        }
    }
}

/// The error number of an answer, positive; 0 is an acknowledgement. `None` for other messages.
fn error_number(frame: &Frame<'_>) -> Option<i32> {
    let code = || ErrorBuffer::new_checked(frame.payload).ok().and_then(|error| error.code());
    (frame.kind == NLMSG_ERROR).then(|| code().map_or(0, |code| code.get().saturating_abs()))
}

fn with_mark(message: Message, mark: Mark) -> Message {
    if mark == Mark::default() {
        return message;
    }
    let bytes = [mark.value.to_ne_bytes(), mark.mask.to_ne_bytes()].concat();
    message.attribute(attribute::MARK, &bytes)
}

fn address(address: IpAddr) -> ([u8; 16], u16) {
    let mut bytes = [0; 16];
    match address {
        IpAddr::V4(address) => bytes[..4].copy_from_slice(&address.octets()),
        IpAddr::V6(address) => bytes = address.octets(),
    }
    (bytes, u16::from(if address.is_ipv4() { FAMILY_IPV4 } else { FAMILY_IPV6 }))
}

/// `struct xfrm_usersa_id`.
fn usersa_id(id: &SaId) -> [u8; 24] {
    let (destination, family) = address(id.destination);
    let mut bytes = [0; 24];
    bytes[..16].copy_from_slice(&destination);
    bytes[16..20].copy_from_slice(&id.spi.to_be_bytes());
    bytes[20..22].copy_from_slice(&family.to_ne_bytes());
    bytes[22] = id.protocol.number();
    bytes
}

/// `XFRM_MSG_NEWAE`.
fn new_event(progress: &Progress) -> Message {
    let mut fixed = [0; EVENT_ID_BYTES];
    fixed[..24].copy_from_slice(&usersa_id(&progress.id));
    let flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_REPLACE;
    let mut message = with_mark(Message::new(kind::NEW_AE, flags, 0, &fixed), progress.id.mark);
    if let Some(Usage { bytes, packets, added_at, used_at }) = progress.usage {
        let numbers = [bytes, packets, added_at, used_at.unwrap_or(0)].map(u64::to_ne_bytes).concat();
        message = message.attribute(attribute::LTIME_VAL, &numbers);
    }
    if let Some(replay) = &progress.replay {
        message = message.attribute(replay.attribute(), &replay.bytes());
    }
    message
}

/// `XFRM_MSG_EXPIRE`. Of the SA's description the kernel reads what names it.
fn expire(id: &SaId, expiry: Expiry) -> Message {
    let (destination, family) = address(id.destination);
    let mut fixed = [0; EXPIRE_BYTES];
    fixed[SA_INFO_ID..SA_INFO_ID + 16].copy_from_slice(&destination);
    fixed[SA_INFO_ID + 16..SA_INFO_ID + 20].copy_from_slice(&id.spi.to_be_bytes());
    fixed[SA_INFO_ID + 20] = id.protocol.number();
    fixed[SA_INFO_FAMILY..SA_INFO_FAMILY + 2].copy_from_slice(&family.to_ne_bytes());
    fixed[SA_INFO_BYTES] = u8::from(expiry == Expiry::Hard);
    with_mark(Message::new(kind::EXPIRE, NLM_F_REQUEST | NLM_F_ACK, 0, &fixed), id.mark)
}
