//! A packet that stands for several, taken apart: the others share out its length and its time.

use graph::Context;
use packet::wire::IpProtocol;
use packet::{Annotations, Packet};

use super::annotations::{extra_length, extra_packets, first_timestamp_ns, set_extra_length};
use super::field;

/// A packet that stands for several.
#[derive(Debug)]
pub(super) struct Repeat {
    packet: Packet,
    left: u32,
    /// Length of all but the last, and of that.
    length: usize,
    last_length: usize,
    /// Time of the next, the distance to the one behind it, time of the last.
    time_ns: u64,
    step_ns: i64,
    last_ns: u64,
}

impl Repeat {
    /// Of a packet; one that stands for itself alone comes back.
    pub(super) fn new(mut packet: Packet) -> Result<Self, Packet> {
        let extra = extra_packets(&packet);
        if extra == 0 {
            return Err(packet);
        }
        let count = extra as usize + 1;
        let total = packet.len() + extra_length(&packet) as usize;
        let length = (total / count).max(packet.len());
        let last_length = total.saturating_sub(length.saturating_mul(count - 1)).max(packet.len());
        let last_ns = packet.timestamp_ns();
        let (time_ns, step_ns) = match first_timestamp_ns(&packet) {
            0 => (last_ns, 0),
            first => (first, (last_ns as i64).wrapping_sub(first as i64) / i64::from(extra)),
        };
        packet.annotations_mut().set_u32_at(Annotations::EXTRA_PACKETS, 0);
        Ok(Self { packet, left: extra, length, last_length, time_ns, step_ns, last_ns })
    }

    /// Whether only the last is left.
    pub(super) fn is_last(&self) -> bool {
        self.left == 0
    }

    /// The next of all but the last; `None` without a frame for it.
    pub(super) fn next(&mut self, cx: &mut Context) -> Option<Packet> {
        let next = shaped(cx.copy(&self.packet)?, self.length, self.time_ns);
        self.time_ns = self.time_ns.wrapping_add_signed(self.step_ns);
        self.left = self.left.saturating_sub(1);
        Some(next)
    }

    /// The last.
    pub(super) fn last(self) -> Packet {
        shaped(self.packet, self.last_length, self.last_ns)
    }
}

/// The packet, with this length and time.
fn shaped(mut packet: Packet, length: usize, time_ns: u64) -> Packet {
    set_lengths(&mut packet, length);
    let missing = length.saturating_sub(packet.len());
    set_extra_length(&mut packet, missing);
    packet.set_timestamp_ns(time_ns);
    packet
}

/// Makes `packet`, of which an IP header is marked, `total` bytes long with its link header, as its headers say. The bytes
/// stay as they are.
fn set_lengths(packet: &mut Packet, total: usize) {
    let link = packet.network_offset().and_then(|offset| usize::try_from(offset).ok());
    let (Some(link), Some(ip)) = (link, packet.network_mut()) else { return };
    let length = total.saturating_sub(link).min(usize::from(u16::MAX)) as u16;
    field::put(ip, 2, length.to_be_bytes());
    let header = ip.first().map_or(0, |first| u16::from(first & 0x0f) * 4);
    let is_udp = ip.get(9) == Some(&IpProtocol::UDP.0);
    let is_first = field::word(ip, 6).is_some_and(|flags| flags & 0x1fff == 0);
    if is_udp && is_first {
        field::put(ip, usize::from(header) + 4, length.saturating_sub(header).to_be_bytes());
    }
}
