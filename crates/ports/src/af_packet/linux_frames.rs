//! The frames of an interface that Linux has, for captures: those that come in and that no port of ours took before, and those that
//! it sends. A port by XDP or AF_XDP takes its frames, and sends, where Linux's taps see nothing. So this is what it does not see.

use std::io;
use std::os::fd::OwnedFd;

use crate::af_packet::ring::{Received, Ring, RingKind};
use crate::af_packet::rx::{ADDRESS_OFFSET, insert_tag};
use crate::merged::TAG_BYTES;
use crate::af_packet::socket;

/// The least room of a ring, in frames.
const LEAST_SLOTS: usize = 64;

/// A frame that Linux has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinuxFrame {
    /// Whether Linux sends it; else it came in.
    pub is_sent: bool,
    /// When, in nanoseconds since 1970.
    pub time_ns: u64,
    /// Its length, in bytes; Linux may have merged it from several packets.
    pub length: u32,
    /// Its first bytes: as many as were asked for, or some more.
    pub data: Vec<u8>,
}

/// The frames of an interface that Linux has, from now on.
#[derive(Debug)]
pub struct LinuxFrames {
    // The ring before the socket: unmapped first.
    ring: Ring,
    socket: OwnedFd,
    index: i32,
    head: usize,
}

impl LinuxFrames {
    /// Begins to take the first so many bytes of each frame of the interface with this number. Frames that wait to be taken have so
    /// many bytes of memory, and room for [`LEAST_SLOTS`] at least.
    ///
    /// # Errors
    /// The kernel has no packet sockets, no memory, no such interface, or this process may not.
    pub fn of(index: i32, bytes: usize, memory: usize) -> io::Result<Self> {
        let socket = socket::open()?;
        socket::set(
            &socket,
            libc::PACKET_VERSION,
            &(libc::tpacket_versions::TPACKET_V2 as libc::c_int),
        )?;
        let slots = memory / Ring::slot_bytes(bytes);
        let ring = Ring::new(&socket, RingKind::Receive, slots.max(LEAST_SLOTS), bytes)?;
        socket::bind(&socket, index, true)?;
        Ok(Self { ring, socket, index, head: 0 })
    }

    /// Whether the interface with this number is still the same one.
    pub fn is_on(&self, index: i32) -> bool {
        self.index == index && socket::is_on(&self.socket, index)
    }

    /// Takes the next frame that there is; [`None`] too where the kernel's numbers of one make no sense.
    pub fn take(&mut self) -> Option<LinuxFrame> {
        let status = self.ring.status(self.head);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        #[allow(unsafe_code, reason = "reading a slot of the ring")]
        // SAFETY: the slot is ours: its status says so. The result is used up before the slot is handed over below.
        let received = unsafe { self.ring.received(self.head) };
        let frame = frame(received, status);
        self.ring.set_status(self.head, libc::TP_STATUS_KERNEL);
        self.head = self.ring.next(self.head);
        frame
    }

    /// Frames that there was no room for, since the last call.
    pub fn lost(&self) -> u64 {
        socket::statistics(&self.socket).map_or(0, |counts| u64::from(counts.tp_drops))
    }
}

/// The frame of a slot, with the VLAN tag that the kernel took out of it; none where the kernel's numbers make no sense.
fn frame(slot: Received<'_>, status: u32) -> Option<LinuxFrame> {
    let header = slot.header();
    let data = slot.bytes(usize::from(header.tp_mac), header.tp_snaplen as usize)?;
    let address = slot.bytes(ADDRESS_OFFSET, size_of::<libc::sockaddr_ll>())?;
    let is_sent =
        address[std::mem::offset_of!(libc::sockaddr_ll, sll_pkttype)] == libc::PACKET_OUTGOING;
    let has_tag = status & libc::TP_STATUS_VLAN_VALID != 0 && data.len() >= crate::af_packet::ETHERNET_BYTES;
    let tag = if has_tag { TAG_BYTES } else { 0 };
    let mut whole = vec![0; data.len() + tag];
    if has_tag {
        insert_tag(&mut whole, data, status, header.tp_vlan_tpid, header.tp_vlan_tci);
    } else {
        whole.copy_from_slice(data);
    }
    let time_ns = u64::from(header.tp_sec) * 1_000_000_000 + u64::from(header.tp_nsec);
    Some(LinuxFrame { is_sent, time_ns, length: header.tp_len + tag as u32, data: whole })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interface::Interface;
    use crate::testing::{in_namespace, numbered_frame, pool, send, soon, veth_pair};
    use crate::{OpenOptions, open};

    #[test]
    fn what_comes_in_is_seen_with_its_tag_and_length_and_what_a_port_sends_is_not() {
        in_namespace(|| {
            veth_pair("left", "right");
            let frames = |name, bytes| {
                let index = Interface::new(name).unwrap().index().unwrap();
                LinuxFrames::of(index, bytes, 1 << 20).unwrap()
            };
            let (mut at_left, mut at_right) = (frames("left", 100), frames("right", 100));
            let mut left = open("left", &OpenOptions::default()).unwrap();
            let (mut tx, mut pool) = (left.take_tx(0).unwrap(), pool(64));
            let plain = numbered_frame(1, 60);
            let tagged = [&plain[..12], &[0x81, 0, 0x20, 7], &numbered_frame(2, 1_514)[12..]].concat();
            send(&mut *tx, &mut pool, &[plain.clone(), tagged.clone()]);
            let mut seen = Vec::new();
            soon("2 frames", || {
                seen.extend(at_right.take());
                seen.len() >= 2
            });
            let seen: Vec<_> = seen.iter().map(|frame| (frame.is_sent, frame.length, &frame.data[..])).collect();
            assert_eq!(seen, [(false, 60, &plain[..]), (false, 1_518, &tagged[..])]);
            assert_eq!(at_left.take(), None);
            assert!(at_right.is_on(at_right.index) && !at_right.is_on(at_left.index));
            // Nobody takes them.
            let many = vec![plain; 64];
            soon("a full ring", || {
                send(&mut *tx, &mut pool, &many);
                at_right.lost() > 0
            });
        });
    }
}
