//! Packets of a known flow, rewritten: addresses, ports, identifiers, sequence numbers, and every checksum over them by
//! what changed (RFC 1624), so that a packet that was damaged before stays so.

use std::net::Ipv4Addr;

use packet::wire::IpProtocol;
use packet::wire::ipv4::Ipv4;
use packet::wire::tcp::{Tcp, TcpFlags};
use packet::{Packet, checksum};

use super::flow::{Flow, Tuple, state, updated, updated_udp};
use super::kind::{DCCP, Kind, TCP, UDP};
use super::sequence::Shifts;

/// Which annotations a rewriter sets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Annotate {
    /// The destination.
    pub(super) destination: bool,
    /// The byte that replies get from the packet that began the flow.
    pub(super) reply: Option<usize>,
}

impl Annotate {
    /// The byte of `packet` that replies of its flow get.
    pub(super) fn kept(&self, packet: &Packet) -> u8 {
        self.reply.and_then(|at| packet.annotations().bytes().get(at)).copied().unwrap_or(0)
    }

    /// Sets what `packet` gets, which goes to `destination` now.
    #[inline(always)]
    pub(super) fn set(&self, packet: &mut Packet, destination: u32, reply: Option<u8>) {
        if self.destination {
            packet.annotations_mut().set_destination_ip(destination);
        }
        if let (Some(at), Some(value)) = (self.reply, reply)
            && let Some(byte) = packet.annotations_mut().bytes_mut().get_mut(at)
        {
            *byte = value;
        }
    }
}

/// Updates the check at `at` of `bytes`, a part of whose data summed to `before` and sums to `after` now.
pub(super) fn recheck(bytes: &mut [u8], at: usize, before: u16, after: u16) {
    if before != after {
        store(bytes, at, |check| !checksum::combine(checksum::combine(!check, !before), after));
    }
}

/// Changes the 16-bit field at `at`, if it is there.
#[inline(always)]
pub(super) fn store(bytes: &mut [u8], at: usize, to: impl FnOnce(u16) -> u16) {
    if let Some(field) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<2>()) {
        *field = to(u16::from_be_bytes(*field)).to_be_bytes();
    }
}

/// Rewrites a packet of `flow`, or one the other way, and notes in the flow what it says of the connection.
#[inline(always)]
pub(super) fn translate(
    kind: Kind,
    (flow, shifts): (&mut Flow, Option<&mut Shifts>),
    reply: bool,
    packet: &mut Packet,
    tuple: Tuple,
    annotate: &Annotate,
) {
    let target = kind.translated(flow, reply, tuple);
    let Some(header) = packet.network_mut().and_then(|bytes| bytes.first_chunk_mut::<20>()) else { return };
    let mut header = Ipv4::new_unchecked(header);
    header.set_source(Ipv4Addr::from_bits(target.source));
    header.set_destination(Ipv4Addr::from_bits(target.destination));
    header.set_checksum(updated(header.checksum(), flow.address_delta, reply));
    let (IpProtocol(protocol), first_fragment) = (header.protocol(), header.fragment_offset() == 0);
    let payload_len = header.total_len().saturating_sub(header.header_len());
    if kind != Kind::Address || reply {
        annotate.set(packet, target.destination, reply.then_some(flow.reply_annotation));
    }
    let Some(segment) = packet.transport_mut().filter(|_| first_fragment) else { return };
    let delta = flow.transport_delta;
    match kind {
        Kind::Ping => {
            let identifier = if reply { target.destination_port } else { target.source_port };
            if segment.len() >= 8 {
                let before = u16::from_be_bytes([segment[4], segment[5]]);
                store(segment, 2, |check| match before == identifier {
                    true => check,
                    false => checksum::update_u16(check, before, identifier),
                });
                segment[4..6].copy_from_slice(&identifier.to_be_bytes());
                // The update cannot tell the two zeros apart when nothing but zeros is left: an answer without data, say.
                let message = segment.len().min(payload_len);
                if message >= 8 && segment[2..4] == [0, 0] && segment[..message].iter().all(|&byte| byte == 0)
                {
                    segment[2..4].copy_from_slice(&[u8::MAX; 2]);
                }
            }
        }
        Kind::Address | Kind::Pair => update_checks(segment, protocol, delta, reply),
        _ => {
            if segment.len() >= 4 {
                segment[..2].copy_from_slice(&target.source_port.to_be_bytes());
                segment[2..4].copy_from_slice(&target.destination_port.to_be_bytes());
            }
            update_checks(segment, protocol, delta, reply);
            if protocol == TCP && kind != Kind::Udp {
                follow_tcp(flow, reply, segment, payload_len);
                if let Some(shifts) = shifts {
                    shifts.apply(reply, segment);
                }
            } else {
                follow_udp(flow, reply);
            }
        }
    }
}

/// The checksum of a transport header, which covers addresses too.
#[inline(always)]
fn update_checks(segment: &mut [u8], protocol: u8, delta: u16, reply: bool) {
    match protocol {
        TCP => store(segment, 16, |check| updated(check, delta, reply)),
        UDP => store(segment, 6, |check| updated_udp(check, delta, reply)),
        // RFC 4340, 9.1: the pseudo-header is in it as it is in TCP's.
        DCCP => store(segment, 6, |check| updated(check, delta, reply)),
        _ => {}
    }
}

/// How far a TCP connection is: which way it is closed, and which way there were data.
#[inline(always)]
fn follow_tcp(flow: &mut Flow, reply: bool, segment: &[u8], payload_len: usize) {
    let Some(header) = segment.first_chunk::<14>().map(Tcp::new_unchecked) else { return };
    let (has_data, flags) = (payload_len > header.header_len(), header.flags());
    if flags.contains(TcpFlags::RST) {
        flow.state |= state::BOTH_DONE;
    } else if flags.contains(TcpFlags::FIN) {
        flow.state |= state::DONE << u8::from(reply);
    } else if flags.contains(TcpFlags::SYN) || has_data {
        flow.state &= !(state::DONE << u8::from(reply));
    }
    if has_data {
        flow.state |= state::DATA << u8::from(reply);
    }
}

/// Whether there were three packets, and a reply.
#[inline(always)]
fn follow_udp(flow: &mut Flow, reply: bool) {
    if reply {
        flow.state |= state::REPLIED;
    }
    if flow.state & state::PACKETS != state::PACKETS {
        flow.state += state::PACKET;
    }
}
