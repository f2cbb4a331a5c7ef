//! Messages to the kernel.

use std::net::IpAddr;

use netlink_packet_core::{
    NLA_HEADER_SIZE, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REQUEST, NetlinkBuffer, NlaBuffer,
};

use crate::change::{InterfaceIndex, Part};
use crate::netlink::frames::HEADER_LENGTH;
use crate::netlink::message::{FAMILY_ANY, FAMILY_IPV4, FAMILY_IPV6, kind};

const IFLA_EXT_MASK: u16 = 29;
/// Links without their counters: half of the message otherwise.
const RTEXT_FILTER_SKIP_STATS: u32 = 1 << 3;

const NDA_DST: u16 = 1;
/// `NTF_USE`: as if a packet was to be sent to the neighbour.
const FLAG_USE: u8 = 1;

/// A message that is being written.
pub(crate) struct Message {
    bytes: Vec<u8>,
}

impl Message {
    /// A message with the fixed fields of its type.
    pub(crate) fn new(kind: u16, flags: u16, sequence: u32, fixed: &[u8]) -> Message {
        let mut bytes = vec![0; HEADER_LENGTH];
        let mut header = NetlinkBuffer::new(&mut bytes);
        header.set_message_type(kind);
        header.set_flags(flags);
        header.set_sequence_number(sequence);
        header.set_port_number(0);
        bytes.extend_from_slice(fixed);
        Message { bytes }
    }

    /// Gives it another number, which its answer has.
    pub(crate) fn numbered(mut self, sequence: u32) -> Message {
        NetlinkBuffer::new(&mut self.bytes).set_sequence_number(sequence);
        self
    }

    /// Adds an attribute.
    pub(crate) fn attribute(mut self, kind: u16, value: &[u8]) -> Message {
        let begin = self.bytes.len().next_multiple_of(4);
        self.bytes.resize(begin + NLA_HEADER_SIZE + value.len(), 0);
        let mut attribute = NlaBuffer::new(&mut self.bytes[begin..]);
        attribute.set_kind(kind);
        attribute.set_length((NLA_HEADER_SIZE + value.len()) as u16);
        attribute.value_mut().copy_from_slice(value);
        self
    }

    /// The bytes, padded to four.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        let length = self.bytes.len();
        NetlinkBuffer::new(&mut self.bytes).set_length(length as u32);
        self.bytes.resize(length.next_multiple_of(4), 0);
        self.bytes
    }
}

/// Asks for all of a part. The fixed fields are zero, as strict checking wants them, and all tables are
/// meant.
pub(super) fn dump(part: Part, sequence: u32) -> Vec<u8> {
    let (kind, family, length) = match part {
        Part::Links => (kind::GET_LINK, FAMILY_ANY, 16),
        Part::Addresses => (kind::GET_ADDRESS, FAMILY_ANY, 8),
        Part::Routes4 => (kind::GET_ROUTE, FAMILY_IPV4, 12),
        Part::Routes6 => (kind::GET_ROUTE, FAMILY_IPV6, 12),
        Part::Objects => (kind::GET_OBJECT, FAMILY_ANY, 8),
        Part::Neighbours => (kind::GET_NEIGHBOUR, FAMILY_ANY, 12),
        Part::Rules => (kind::GET_RULE, FAMILY_ANY, 12),
    };
    let mut fixed = [0; 16];
    fixed[0] = family;
    let message = Message::new(kind, NLM_F_REQUEST | NLM_F_DUMP, sequence, &fixed[..length]);
    match part {
        Part::Links => message.attribute(IFLA_EXT_MASK, &RTEXT_FILTER_SKIP_STATS.to_ne_bytes()).finish(),
        _ => message.finish(),
    }
}

/// Asks the kernel to act as if it had a packet for this neighbour, without a packet: one that it does not
/// know, or that failed, is asked for its Ethernet address; a stale one gets the state "delay", and is asked
/// some five seconds later unless it is heard of (`neigh_event_send`); for a reachable one nothing happens.
/// The state in the message is none, so that nothing else changes.
pub(super) fn ask_neighbour(index: InterfaceIndex, address: IpAddr, sequence: u32) -> Vec<u8> {
    let mut fixed = [0; 12];
    fixed[0] = if address.is_ipv4() { FAMILY_IPV4 } else { FAMILY_IPV6 };
    fixed[4..8].copy_from_slice(&index.to_ne_bytes());
    fixed[10] = FLAG_USE;
    let message = Message::new(kind::NEW_NEIGHBOUR, NLM_F_REQUEST | NLM_F_CREATE, sequence, &fixed);
    match address {
        IpAddr::V4(address) => message.attribute(NDA_DST, &address.octets()).finish(),
        IpAddr::V6(address) => message.attribute(NDA_DST, &address.octets()).finish(),
    }
}
