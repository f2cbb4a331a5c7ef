//! What a queue did: packets, bytes, and a counter for every named reason by which a packet was lost or changed.

/// Defines [`Event`] from one table, so that the list, the names and the counters cannot drift apart.
macro_rules! events {
    ($($name:ident $kind:ident $label:literal $doc:literal,)*) => {
        /// Something that happened to a packet of a queue, or to the queue; each has a counter.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Event {
            $(#[doc = $doc] $name,)*
        }

        impl Event {
            /// All events, in the order of their number.
            pub const ALL: &'static [Event] = &[$(Event::$name,)*];

            /// The name as shown beside the counter.
            pub const fn name(self) -> &'static str {
                match self { $(Event::$name => $label,)* }
            }

            /// Whether the event means that a packet was lost.
            pub const fn is_drop(self) -> bool {
                match self { $(Event::$name => events!(@drop $kind),)* }
            }

            /// Whether the event means that a steering program left a packet to the kernel.
            pub const fn is_left_to_kernel(self) -> bool {
                match self { $(Event::$name => events!(@left $kind),)* }
            }
        }
    };
    (@drop drop) => { true };
    (@left left) => { true };
    (@$question:ident $kind:ident) => { false };
}

events! {
    NoFrame drop "no free frame" "The worker's pool had no frame for a packet that had to be received or copied.",
    TooLong drop "frame too long" "Received: longer than a frame of the pool or a slot of the ring holds. Sent: longer than the MTU allows.",
    Offload drop "offload frame" "Several segments in one frame, made by the sender's or the card's segmentation offload, longer than the MTU.",
    TooShort drop "frame too short" "Shorter than an Ethernet header.",
    RingFull drop "ring full in the kernel" "The kernel had packets for us and no free slot in the ring.",
    LinkDown drop "link down" "To be sent while the interface was down or gone.",
    PortGone drop "port is gone" "To be sent, or received and not taken yet, when the interface vanished.",
    KernelDropped drop "dropped by the kernel" "The kernel found no frame of ours to receive into, or the packet was longer than one.",
    BadDescriptor drop "invalid descriptor" "A ring held something that is not a frame.",
    Refused drop "refused by the kernel" "The kernel did not take the packet.",
    Truncated drop "truncated in the file" "A file holds only the start of the packet.",
    Martian drop "martian source" "Transit from where no host is, or that claims to come from this one (RFC 1812, 5.3.7), where Linux forwards what is not plain.",
    Malformed drop "malformed file" "The file cannot be read further from here.",
    WriteFailed drop "file not writable" "The file could not be written (the disk is full).",
    FaultDrop drop "fault: dropped" "Dropped by the fault injector.",
    FaultRate drop "fault: over rate" "Over the rate of the fault injector.",
    FaultCorrupt note "fault: corrupted" "One bit changed by the fault injector.",
    FaultDuplicate note "fault: duplicated" "Doubled by the fault injector.",
    FaultReorder note "fault: reordered" "Held back by the fault injector until another packet passed.",
    Segments drop "packet in segments" "In several pieces of memory, and too long for one.",
    Missed drop "missed by the device" "The device had no free slot for the packet.",
    ReceiveError drop "receive error" "The device received the packet with an error.",
    SendError drop "send error" "The device could not send the packet.",
    Copied note "copied to send" "Lay in memory that the port cannot send from.",
    FillEmpty note "fill ring empty" "The kernel looked for a frame to receive into and found none.",
    LeftArp left "ARP" "Left to the kernel by the steering program: it answers ARP.",
    LeftNotIp left "not IP" "Left to the kernel: of another protocol, such as LLDP, IS-IS or MPLS.",
    LeftGroup left "broadcast or multicast frame" "Left to the kernel: an IP packet in a frame to many.",
    LeftStation left "frame to another station" "Left to the kernel: an IP packet to the Ethernet address of another station.",
    LeftHost left "to this host" "Left to the kernel: to its own addresses, to groups, to or from what no router forwards.",
    LeftLong left "longer than MTU or frame" "Left to the kernel, which can take apart what was merged of several packets: longer than the MTU of the port, or than a frame of the router holds.",
    LeftUnfinished left "checksum not computed yet" "Left to the kernel, which knows that the transport checksum is missing.",
    LeftVlan left "VLAN that is not a port" "Left to the kernel: in a VLAN that is not a port of the router.",
    LeftQueue left "queue without a socket yet" "Left to the kernel: the router had no socket on the queue yet, or has none.",
    LeftClient left "DHCP or neighbour discovery" "Left to the kernel: what its DHCP clients and its proxies of neighbour discovery read, to addresses that it does not have.",
    LeftFamily left "not forwarded by Linux" "Left to the kernel: of a family that Linux does not forward from this interface.",
    LeftOdd left "transit that is not plain" "Left to the kernel, which forwards the port's transit too: IP options, the last hop, no route, several paths, a packet longer than the MTU of its way.",
    HostFull drop "host queue full" "The kernel could not take another packet for the host.",
    LinkLost note "link lost" "The interface went down.",
    NotRecorded note "not recorded" "Went its way, but the capture or trace could not keep up.",
}

const EVENTS: usize = Event::ALL.len();

/// Counts of a queue since it was opened.
///
/// Aligned so that a queue, which holds its counts, shares no cache line (nor the pair of lines that is fetched at once)
/// with the queue of another worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(128))]
pub struct QueueStats {
    /// Packets given to the worker, or sent.
    pub packets: u64,
    /// Their bytes, link header included, frame check sequence not.
    pub bytes: u64,
    events: [u64; EVENTS],
}

impl Default for QueueStats {
    fn default() -> Self {
        Self { packets: 0, bytes: 0, events: [0; EVENTS] }
    }
}

impl QueueStats {
    /// How often `event` happened.
    #[inline]
    pub fn count(&self, event: Event) -> u64 {
        self.events[event as usize]
    }

    /// The events that happened, with their counts.
    pub fn events(&self) -> impl Iterator<Item = (Event, u64)> + '_ {
        Event::ALL.iter().map(|&event| (event, self.count(event))).filter(|&(_, count)| count > 0)
    }

    /// Packets lost, for all reasons together.
    pub fn dropped(&self) -> u64 {
        self.events().filter(|(event, _)| event.is_drop()).map(|(_, count)| count).sum()
    }

    /// Counts `count` more of `event`.
    #[inline]
    pub(crate) fn add(&mut self, event: Event, count: u64) {
        self.events[event as usize] += count;
    }

    /// Counts a packet.
    #[inline(always)]
    pub(crate) fn packet(&mut self, bytes: usize) {
        self.packets += 1;
        self.bytes += bytes as u64;
    }

    /// Packets lost because they, or the device, had an error: those that are not for want of room, link or frames.
    pub fn errors(&self) -> u64 {
        use Event::{BadDescriptor, Malformed, ReceiveError, SendError, TooShort, Truncated, WriteFailed};
        let errors = [BadDescriptor, Malformed, ReceiveError, SendError, TooShort, Truncated, WriteFailed];
        errors.into_iter().map(|event| self.count(event)).sum()
    }

    /// Packets that a steering program left to the kernel, for all reasons together.
    pub fn left_to_kernel(&self) -> u64 {
        self.events().filter(|(event, _)| event.is_left_to_kernel()).map(|(_, count)| count).sum()
    }

    /// Adds the events of `other`, not its packets: a wrapper's view of what it wraps.
    pub(crate) fn with_events_of(mut self, other: &Self) -> Self {
        for (mine, theirs) in self.events.iter_mut().zip(other.events) {
            *mine += theirs;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_summed_and_notes_are_not() {
        let mut stats = QueueStats::default();
        stats.packet(60);
        stats.add(Event::LinkDown, 2);
        stats.add(Event::FaultReorder, 7);
        assert_eq!(stats.dropped(), 2);
        assert_eq!(stats.events().collect::<Vec<_>>(), [(Event::LinkDown, 2), (Event::FaultReorder, 7)]);
        let sum = QueueStats::default().with_events_of(&stats);
        assert_eq!((sum.packets, sum.dropped()), (0, 2));
    }
}
