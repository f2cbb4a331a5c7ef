//! Queues of Linux's packet filter (`linux/netfilter/nfnetlink_queue.h`): a message for each packet, which waits for its verdict.
//!
//! Each hook has its queue and a socket that reads it: a flood of what comes in takes no room of what goes out.
//!
//! Linux counts packets of a queue in their ids before it finds out whether the socket has room for them, so gaps tell how many
//! were lost. For this, a queue is longer than the socket's buffer has room for.
//!
//! Linux gives packets to the input queue as they are on the wire: segments of a large one each by itself, with their checksums. In
//! the output hook ESP comes so anyway, unless its module `esp4_offload` or `esp6_offload` is to encrypt it afterwards. Linux 6.12
//! crashes where it segments such a packet for a queue, so the output queue is one that takes large packets (`NFQA_CFG_F_GSO`).
//! These are dropped.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_packet_core::{NLM_F_ACK, NLM_F_REQUEST};
use netlink_sys::Socket;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};

use super::{EspHookCounters, Hook, HookCounters, Verdict};
use crate::netfilter::{self, open_socket};
use crate::netlink::{Message, attributes, frames};

/// Numbers that are tried until one is free.
const NUMBERS: std::ops::Range<u16> = 4500..4532;
const LENGTH: u32 = 65_536;
/// Some 3,000 packets of 1,500 bytes; Linux takes it twice.
const RECEIVE_BUFFER: usize = 8 << 20;
const SEND_BUFFER: usize = 256 << 10;
/// Packets of each queue in a call of [`Queues::receive`].
const BATCH: usize = 256;
/// `NFQNL_MAX_COPY_RANGE`: the value of an attribute is not longer.
const LONGEST: usize = 0xffff - 4;
/// A packet and what is said about it.
const MESSAGE_BYTES: usize = LONGEST + 4096;

const SUBSYSTEM: u16 = 3;
const PACKET: u16 = SUBSYSTEM << 8;
const VERDICT: u16 = PACKET + 1;
const CONFIGURE: u16 = PACKET + 2;
const ERROR: u16 = 2;
const COMMAND: u16 = 1;
const BIND: u8 = 1;
const COPY: u16 = 2;
const COPY_PACKET: u8 = 2;
const MAX_LENGTH: u16 = 3;
const PACKET_HEADER: u16 = 1;
const VERDICT_HEADER: u16 = 2;
const PAYLOAD: u16 = 10;
/// The length of a packet of which only a part was copied.
const WHOLE_LENGTH: u16 = 13;
const INFO: u16 = 14;
/// `NFQA_SKB_GSO`.
const IS_LARGE: u32 = 2;
const MASK: u16 = 4;
const FLAGS: u16 = 5;
/// `NFQA_CFG_F_GSO`: packets that are to be segmented come as they are, and so do those without their checksum.
const TAKES_LARGE: u32 = 4;

/// The queues of this process.
#[derive(Debug)]
pub(super) struct Queues {
    input: HookQueue,
    output: HookQueue,
    buffer: Vec<u8>,
    counters: EspHookCounters,
}

/// The queue of a hook.
struct HookQueue {
    socket: Socket,
    number: u16,
    last_id: u32,
}

impl Queues {
    /// Opens two that are free in the network namespace of this thread.
    pub(super) fn open() -> io::Result<Self> {
        Ok(Self {
            input: HookQueue::open(0)?,
            output: HookQueue::open(TAKES_LARGE)?,
            buffer: vec![0; MESSAGE_BYTES],
            counters: EspHookCounters::default(),
        })
    }

    /// The numbers of the input queue and of the output queue, for rules.
    pub(super) fn numbers(&self) -> [u16; 2] {
        [self.input.number, self.output.number]
    }

    /// Readable when packets wait.
    pub(super) fn fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.input.socket.as_fd(), self.output.socket.as_fd()]
    }

    pub(super) fn counters(&self) -> EspHookCounters {
        self.counters
    }

    /// Judges packets that wait, at most [`BATCH`] of each queue; how many.
    pub(super) fn receive(&mut self, judge: &mut dyn FnMut(Hook, &[u8]) -> Verdict) -> io::Result<usize> {
        let Self { input, output, buffer, counters } = self;
        Ok(output.receive(buffer, counters, judge)? + input.receive(buffer, counters, judge)?)
    }
}

impl HookQueue {
    fn open(flags: u32) -> io::Result<Self> {
        let socket = open_socket()?;
        // An error does not repeat the packet. Without the other one, what comes after a loss is lost until all before it is read.
        socket.set_cap_ack(true)?;
        socket.set_no_enobufs(true)?;
        sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER)?;
        sockopt::set_socket_send_buffer_size_force(&socket, SEND_BUFFER)?;
        let mut result = Ok(());
        for number in NUMBERS {
            result = configure(&socket, number, flags);
            match result.as_ref().err().and_then(io::Error::raw_os_error).map(Errno::from_raw_os_error) {
                None => return Ok(Self { socket, number, last_id: 0 }),
                // It is another process's (or we lack the right, which the last number tells), or another socket's.
                Some(Errno::PERM | Errno::BUSY | Errno::EXIST) => {}
                Some(_) => break,
            }
        }
        Err(result.err().unwrap_or_else(|| Errno::BUSY.into()))
    }

    fn receive(
        &mut self,
        buffer: &mut [u8],
        counters: &mut EspHookCounters,
        judge: &mut dyn FnMut(Hook, &[u8]) -> Verdict,
    ) -> io::Result<usize> {
        let mut count = 0;
        for _ in 0..BATCH {
            let length = match recv(&self.socket, &mut *buffer, RecvFlags::DONTWAIT) {
                Ok((length, _)) => length,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            for frame in frames(&buffer[..length]).flatten() {
                if frame.kind == ERROR {
                    // Only verdicts are refused; what is not is not acknowledged.
                    counters.expired += 1;
                }
                let Some(packet) = (frame.kind == PACKET).then(|| Packet::read(frame.payload)).flatten()
                else {
                    continue;
                };
                count += 1;
                let last_id = std::mem::replace(&mut self.last_id, packet.id);
                counters.lost += u64::from(packet.id.wrapping_sub(last_id).wrapping_sub(1));
                let verdict = match packet.content {
                    Content::Whole(hook, bytes) => {
                        let verdict = match judge(hook, bytes) {
                            Verdict::Replace(bytes) if bytes.len() > LONGEST => Verdict::Drop,
                            verdict => verdict,
                        };
                        counters.of(hook).count(&verdict);
                        verdict
                    }
                    Content::Large => {
                        counters.unencrypted += 1;
                        Verdict::Drop
                    }
                    Content::Unreadable => {
                        counters.unreadable += 1;
                        Verdict::Drop
                    }
                };
                answer(&self.socket, &packet, &verdict)?;
            }
        }
        Ok(count)
    }
}

impl std::fmt::Debug for HookQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HookQueue").field("number", &self.number).finish_non_exhaustive()
    }
}

impl EspHookCounters {
    fn of(&mut self, hook: Hook) -> &mut HookCounters {
        match hook {
            Hook::Input => &mut self.input,
            Hook::Output => &mut self.output,
        }
    }
}

impl HookCounters {
    fn count(&mut self, verdict: &Verdict) {
        *match verdict {
            Verdict::Accept => &mut self.accepted,
            Verdict::Drop => &mut self.dropped,
            Verdict::Replace(_) => &mut self.replaced,
        } += 1;
    }
}

/// A packet that waits.
#[derive(Debug, PartialEq)]
struct Packet<'a> {
    queue: u16,
    id: u32,
    content: Content<'a>,
}

#[derive(Debug, PartialEq)]
enum Content<'a> {
    /// The whole packet.
    Whole(Hook, &'a [u8]),
    /// It is to be segmented, so Linux has not encrypted it yet.
    Large,
    /// There is only a part of it, or it comes from another hook.
    Unreadable,
}

impl<'a> Packet<'a> {
    /// Reads a message. Returns `None` if it holds no packet.
    fn read(message: &'a [u8]) -> Option<Self> {
        let (mut header, mut bytes, mut whole_length, mut info) = (None, None, None, None);
        // Family, version, queue.
        let (&[_, _, high, low], rest) = message.split_first_chunk()?;
        for attribute in attributes(rest).flatten() {
            match attribute.kind {
                PACKET_HEADER => header = attribute.value.first_chunk(),
                PAYLOAD => bytes = Some(attribute.value),
                WHOLE_LENGTH => whole_length = attribute.network_u32().ok(),
                INFO => info = attribute.network_u32().ok(),
                _ => {}
            }
        }
        // Id, EtherType, hook.
        let &[a, b, c, d, _, _, hook] = header?;
        let hook = match hook {
            HOOK_INPUT => Some(Hook::Input),
            HOOK_OUTPUT => Some(Hook::Output),
            _ => None,
        };
        let bytes = bytes.filter(|bytes| whole_length.is_none_or(|length| length as usize == bytes.len()));
        let content = match (hook, bytes) {
            (Some(_), _) if info.is_some_and(|info| info & IS_LARGE != 0) => Content::Large,
            (Some(hook), Some(bytes)) => Content::Whole(hook, bytes),
            _ => Content::Unreadable,
        };
        Some(Self { queue: u16::from_be_bytes([high, low]), id: u32::from_be_bytes([a, b, c, d]), content })
    }
}

const HOOK_INPUT: u8 = netfilter::Hook::Input as u8;
const HOOK_OUTPUT: u8 = netfilter::Hook::Output as u8;

fn message(kind: u16, flags: u16, number: u16) -> Message {
    let [high, low] = number.to_be_bytes();
    // Any family, version 0.
    Message::new(kind, NLM_F_REQUEST | flags, 0, &[0, 0, high, low])
}

/// Makes this socket the reader of a queue.
fn configure(socket: &Socket, number: u16, flags: u32) -> io::Result<()> {
    let [a, b, c, d] = (LONGEST as u32).to_be_bytes();
    let request = message(CONFIGURE, NLM_F_ACK, number)
        .attribute(COMMAND, &[BIND, 0, 0, 0])
        .attribute(COPY, &[a, b, c, d, COPY_PACKET])
        .attribute(MAX_LENGTH, &LENGTH.to_be_bytes())
        .attribute(FLAGS, &flags.to_be_bytes())
        .attribute(MASK, &TAKES_LARGE.to_be_bytes());
    socket.send(&request.finish(), 0)?;
    let mut buffer = [0; 4096];
    let (length, _) = recv(socket, &mut buffer[..], RecvFlags::empty())?;
    for frame in frames(&buffer[..length]) {
        let frame = frame.map_err(io::Error::other)?;
        if let (ERROR, Some(&code)) = (frame.kind, frame.payload.first_chunk()) {
            return match i32::from_ne_bytes(code) {
                0 => Ok(()),
                code => Err(io::Error::from_raw_os_error(code.saturating_neg())),
            };
        }
    }
    Err(io::Error::other("the kernel does not answer"))
}

/// Gives a verdict. Linux acts on it before this returns.
fn answer(socket: &Socket, packet: &Packet<'_>, verdict: &Verdict) -> io::Result<()> {
    let send =
        |verdict| send(socket, &verdict_message(packet.queue, packet.id, verdict), SendFlags::DONTWAIT);
    let sent = match send(verdict) {
        // There may be memory for less.
        Err(Errno::NOBUFS | Errno::NOMEM | Errno::AGAIN | Errno::MSGSIZE) => send(&Verdict::Drop),
        other => other,
    };
    Ok(sent.map(|_| ())?)
}

fn verdict_message(number: u16, id: u32, verdict: &Verdict) -> Vec<u8> {
    let code = if *verdict == Verdict::Drop { netfilter::DROP } else { netfilter::ACCEPT };
    let header = [code.to_be_bytes(), id.to_be_bytes()].concat();
    let message = message(VERDICT, 0, number).attribute(VERDICT_HEADER, &header);
    match verdict {
        Verdict::Replace(bytes) => message.attribute(PAYLOAD, bytes).finish(),
        _ => message.finish(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::UdpSocket;

    use proptest::prelude::*;
    use testbed::{in_namespace, run};

    use super::*;

    /// A message of these attributes, as Linux makes it.
    fn packet(header: &[u8], rest: &[(u16, &[u8])]) -> Vec<u8> {
        let message = message(PACKET, 0, 7).attribute(PACKET_HEADER, header);
        rest.iter().fold(message, |message, (kind, value)| message.attribute(*kind, value)).finish()
    }

    fn read(bytes: &[u8]) -> Option<Packet<'_>> {
        Packet::read(frames(bytes).next().unwrap().unwrap().payload)
    }

    #[test]
    fn packets_are_read_if_they_are_whole() {
        let header = |hook| [0, 0, 1, 2, 8, 0, hook];
        let payload = (PAYLOAD, &b"abc"[..]);
        let info = |bits: &'static [u8; 4]| (INFO, &bits[..]);
        for (bytes, expected) in [
            (packet(&header(1), &[payload]), Content::Whole(Hook::Input, b"abc")),
            (packet(&header(3), &[payload, info(&[0, 0, 0, 4])]), Content::Whole(Hook::Output, b"abc")),
            (
                packet(&header(3), &[payload, (WHOLE_LENGTH, &[0, 0, 0, 3])]),
                Content::Whole(Hook::Output, b"abc"),
            ),
            (packet(&header(3), &[payload, (WHOLE_LENGTH, &[0, 0, 0, 4])]), Content::Unreadable),
            (packet(&header(3), &[]), Content::Unreadable),
            (packet(&header(2), &[payload]), Content::Unreadable),
            (packet(&header(3), &[payload, info(&[0, 0, 0, 1])]), Content::Whole(Hook::Output, b"abc")),
            (packet(&header(3), &[payload, info(&[0, 0, 0, 2])]), Content::Large),
        ] {
            assert_eq!(read(&bytes), Some(Packet { queue: 7, id: 258, content: expected }));
        }
        assert_eq!(read(&packet(&[0, 0, 1, 2, 8, 0], &[payload])), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            for frame in frames(&bytes).flatten() {
                let _ = Packet::read(frame.payload);
            }
            let _ = Packet::read(&bytes);
        }
    }

    #[test]
    fn verdicts_have_the_id_and_the_packet() {
        let bytes = |verdict| verdict_message(0x1234, 5, &verdict)[16..].to_vec();
        let begin = [0, 0, 0x12, 0x34, 12, 0, 2, 0];
        assert_eq!(bytes(Verdict::Accept), [&begin[..], &[0, 0, 0, 1, 0, 0, 0, 5]].concat());
        assert_eq!(bytes(Verdict::Drop), [&begin[..], &[0, 0, 0, 0, 0, 0, 0, 5]].concat());
        let replaced = [&begin[..], &[0, 0, 0, 1, 0, 0, 0, 5], &[7, 0, 10, 0, 1, 2, 3, 0]].concat();
        assert_eq!(bytes(Verdict::Replace(vec![1, 2, 3])), replaced);
    }

    /// Datagrams of the loopback interface, which iptables hands to the queue.
    #[test]
    fn linux_does_what_it_is_told() {
        in_namespace(|| {
            // Queues of other readers are passed over.
            let other = Queues::open().unwrap();
            let mut queue = Queues::open().unwrap();
            let numbers: BTreeSet<u16> = other.numbers().into_iter().chain(queue.numbers()).collect();
            assert_eq!(numbers.len(), 4);
            let [near, far] = [0; 2].map(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
            far.set_nonblocking(true).unwrap();
            let to = far.local_addr().unwrap();
            for (chain, number) in ["INPUT", "OUTPUT"].into_iter().zip(queue.numbers()) {
                let rule = format!("-p udp --dport {} -j NFQUEUE --queue-num {number}", to.port());
                run("iptables-nft", &format!("-A {chain} {rule}"));
            }
            let mut judge = |verdicts: [Verdict; 2]| {
                let mut bytes = [0; 64];
                near.send_to(b"datagram", to).unwrap();
                let mut seen = Vec::new();
                let [mut output, mut input] = verdicts.map(Some);
                while queue
                    .receive(&mut |hook, packet| {
                        seen.push((hook, packet[28..].to_vec()));
                        let verdict = if hook == Hook::Output { &mut output } else { &mut input };
                        match verdict.take().unwrap() {
                            // The end of the packet with its headers.
                            Verdict::Replace(end) => {
                                let mut whole = [&packet[..28], &end].concat();
                                // No checksum.
                                whole[26..28].fill(0);
                                Verdict::Replace(whole)
                            }
                            verdict => verdict,
                        }
                    })
                    .unwrap()
                    > 0
                {}
                let arrived = far.recv(&mut bytes).ok().map(|length| bytes[..length].to_vec());
                (seen, arrived)
            };
            let sent = |hook| (hook, b"datagram".to_vec());
            let both = vec![sent(Hook::Output), sent(Hook::Input)];
            assert_eq!(judge([Verdict::Accept, Verdict::Accept]), (both.clone(), Some(b"datagram".to_vec())));
            assert_eq!(judge([Verdict::Drop, Verdict::Accept]), (vec![sent(Hook::Output)], None));
            assert_eq!(judge([Verdict::Accept, Verdict::Drop]), (both, None));
            let replaced = judge([Verdict::Replace(b"DATAGRAM".to_vec()), Verdict::Accept]);
            let expected = vec![sent(Hook::Output), (Hook::Input, b"DATAGRAM".to_vec())];
            assert_eq!(replaced, (expected, Some(b"DATAGRAM".to_vec())));
            let too_long = judge([Verdict::Replace(vec![0; LONGEST]), Verdict::Accept]);
            assert_eq!(too_long, (vec![sent(Hook::Output)], None));
            let expected = EspHookCounters {
                input: HookCounters { accepted: 2, dropped: 1, replaced: 0 },
                output: HookCounters { accepted: 2, dropped: 2, replaced: 1 },
                ..Default::default()
            };
            assert_eq!(queue.counters(), expected);
            assert_eq!(queue.receive(&mut |_, _| Verdict::Accept).unwrap(), 0);
        });
    }

    #[test]
    fn what_linux_lost_is_counted() {
        in_namespace(|| {
            let mut queue = Queues::open().unwrap();
            // About as much as three datagrams take.
            sockopt::set_socket_recv_buffer_size_force(&queue.input.socket, 4096).unwrap();
            let [near, far] = [0; 2].map(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
            far.set_nonblocking(true).unwrap();
            let to = far.local_addr().unwrap();
            let rule = format!("-p udp --dport {} -j NFQUEUE --queue-num {}", to.port(), queue.input.number);
            run("iptables-nft", &format!("-A INPUT {rule}"));
            for number in 0..100 {
                near.send_to(&[number], to).unwrap();
            }
            let mut accept = || queue.receive(&mut |_, _| Verdict::Accept).unwrap();
            let kept = accept();
            assert!((1..100).contains(&kept), "{kept}");
            near.send_to(&[100], to).unwrap();
            assert_eq!(accept(), 1);
            assert_eq!(queue.counters().lost, 100 - kept as u64);
            assert_eq!(queue.counters().input.accepted, kept as u64 + 1);
            let arrived: Vec<u8> = std::iter::from_fn(|| {
                let mut bytes = [0; 2];
                far.recv(&mut bytes).ok().map(|_| bytes[0])
            })
            .collect();
            assert_eq!(arrived.len(), kept + 1);
            assert_eq!(arrived.last(), Some(&100));
        });
    }
}
