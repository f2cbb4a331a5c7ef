//! What a translation is about: the four numbers that name a flow, and a flow that is translated.

use std::fmt;
use std::net::Ipv4Addr;

use packet::checksum;

use super::sequence::Shifts;

/// Addresses and ports of a packet; what a translation leaves alone may be 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Tuple {
    pub(super) source: u32,
    pub(super) destination: u32,
    pub(super) source_port: u16,
    pub(super) destination_port: u16,
}

impl Tuple {
    /// That of packets the other way.
    #[inline(always)]
    pub(super) fn reversed(self) -> Self {
        Self {
            source: self.destination,
            destination: self.source,
            source_port: self.destination_port,
            destination_port: self.source_port,
        }
    }
}

impl fmt::Display for Tuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (source, destination) = (Ipv4Addr::from_bits(self.source), Ipv4Addr::from_bits(self.destination));
        write!(f, "({source}, {}, {destination}, {})", self.source_port, self.destination_port)
    }
}

/// What the table finds a flow by: a tuple, and among whose translations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) tuple: Tuple,
    /// Number of the element, and protocol in the lowest byte.
    pub(super) map: u32,
}

/// No flow, no shifts.
pub(super) const NONE: u32 = u32::MAX;

/// What a packet of the flow changed in [`Flow::state`]. The first four are of TCP: FIN or RST, and data, each way.
pub(super) mod state {
    pub(in crate::nat) const DONE: u8 = 1;
    pub(in crate::nat) const BOTH_DONE: u8 = 3;
    pub(in crate::nat) const DATA: u8 = 4;
    pub(in crate::nat) const BOTH_DATA: u8 = 12;
    /// There was a reply; the bits above count packets to three.
    pub(in crate::nat) const REPLIED: u8 = 1;
    pub(in crate::nat) const PACKET: u8 = 2;
    pub(in crate::nat) const PACKETS: u8 = 6;
}

/// A flow that is translated, both ways. One cache line: all that a packet needs beside its slot in the index.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Flow {
    /// As its packets come.
    pub(super) original: Tuple,
    /// As they leave.
    pub(super) rewritten: Tuple,
    pub(super) map: u32,
    /// Neighbours in the list of its class; `next` also links the places that are free.
    pub(super) previous: u32,
    pub(super) next: u32,
    /// Where its sequence numbers' shifts are.
    pub(super) shifts: u32,
    /// When it was last used, and put at the end of its list.
    pub(super) used_ns: u64,
    /// Outputs of its packets and of those the other way.
    pub(super) outputs: [u16; 2],
    /// Which rule made it.
    pub(super) owner: u16,
    /// What the sum over the addresses, and over all that the transport checksum covers, grows by on the way out.
    pub(super) address_delta: u16,
    pub(super) transport_delta: u16,
    pub(super) class: u8,
    pub(super) state: u8,
    pub(super) reply_annotation: u8,
}

const _: () = assert!(size_of::<Flow>() == 64);

impl Flow {
    pub(super) fn new(original: Tuple, rewritten: Tuple, map: u32, outputs: [u16; 2], owner: u16) -> Self {
        let ports = |tuple: Tuple| u32::from(tuple.source_port) << 16 | u32::from(tuple.destination_port);
        let address_delta = checksum::combine(
            delta(original.source, rewritten.source),
            delta(original.destination, rewritten.destination),
        );
        let transport_delta = checksum::combine(address_delta, delta(ports(original), ports(rewritten)));
        Self {
            original,
            rewritten,
            map,
            previous: NONE,
            next: NONE,
            shifts: NONE,
            used_ns: 0,
            outputs,
            owner,
            address_delta: plain_zero(address_delta),
            transport_delta: plain_zero(transport_delta),
            class: 0,
            state: 0,
            reply_annotation: 0,
        }
    }

    pub(super) fn key(&self, reply: bool) -> Key {
        Key { tuple: if reply { self.rewritten.reversed() } else { self.original }, map: self.map }
    }

    /// What packets are rewritten to.
    #[inline(always)]
    pub(super) fn target(&self, reply: bool) -> Tuple {
        if reply { self.original.reversed() } else { self.rewritten }
    }

    pub(super) fn protocol(&self) -> u8 {
        self.map as u8
    }
}

/// What a sum grows by when a word of it changes (RFC 1624, equation 3: `~m + m'`).
pub(super) fn delta(old: u32, new: u32) -> u16 {
    let sum = u64::from(!old) + u64::from(new);
    let folded = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
    let folded = (folded & 0xffff) + (folded >> 16);
    (folded & 0xffff) as u16 + (folded >> 16) as u16
}

/// Zero for both zeros, so that what does not change is left as it is, whatever it is.
pub(super) fn plain_zero(delta: u16) -> u16 {
    if delta == 0xffff { 0 } else { delta }
}

/// The check after its sum grew by `delta`, or, on the way back, shrank.
#[inline(always)]
pub(super) fn updated(check: u16, delta: u16, reply: bool) -> u16 {
    if delta == 0 { check } else { !checksum::combine(!check, if reply { !delta } else { delta }) }
}

/// As [`updated`], for a UDP check: zero is "none computed" and stays, and no other becomes zero (RFC 768).
#[inline(always)]
pub(super) fn updated_udp(check: u16, delta: u16, reply: bool) -> u16 {
    if check == 0 { 0 } else { checksum::finish_udp(!updated(check, delta, reply)) }
}

/// A flow with what TCP needs beside it.
pub(super) type FlowAndShifts<'a> = (&'a mut Flow, Option<&'a mut Shifts>);
