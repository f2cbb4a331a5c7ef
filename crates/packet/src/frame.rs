//! A frame: one fixed-size chunk of memory that carries one packet, and [`Packet`], the owned handle to it.
//!
//! ```text
//! chunk start                                                                    chunk end
//! | metadata 128 | head room 128 (free to prepend) | data (length) ... | tail room |
//! ```
//!
//! The first cache line of the metadata holds all that forwarding reads and writes for each packet:
//! where the data lies, the owner, the annotations. The second line holds the rest (the last eight
//! annotation bytes, the time stamp, the link to the next returned frame) and stays cold on the fast path.
//! The layout is `repr(C)`, so that drivers, BPF programs and scripts can share it.
//!
//! All positions are offsets from the chunk start. A header position (link, network, transport) stays
//! where it was when bytes are stripped or prepended, as in Click: after `Strip(14)` the link header lies
//! in the head room, and `Unstrip` brings it back.
//!
//! **Invariants**, held by every method here, on which the unsafe code relies:
//! `METADATA_BYTES <= data_offset <= data_offset + length <= chunk_bytes`, and a header position is 0 (unset)
//! or `METADATA_BYTES <= position <= chunk_bytes`. Bytes of a chunk are always initialised (the memory
//! comes zeroed from the kernel, and afterwards holds what earlier packets left).

use std::fmt;
use std::ptr::NonNull;

use crate::pool::Shared;
use crate::prefetch::prefetch_address;
use crate::return_stack::{Chain, Node};

/// Bytes of metadata at the start of a chunk: two cache lines.
pub const METADATA_BYTES: usize = 128;
/// Free bytes before the data of a fresh packet: room for encapsulations.
pub const HEADROOM_BYTES: usize = 128;
/// Where the data of a fresh packet starts, from the start of its chunk.
pub const DATA_OFFSET: usize = METADATA_BYTES + HEADROOM_BYTES;
/// Bytes of annotations, as many as Click has.
pub const ANNOTATION_BYTES: usize = 48;

/// How the link layer addressed a packet to us; Click's packet type annotation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PacketType {
    /// To our own link address; also the state of a packet that nobody classified.
    #[default]
    Host = 0,
    /// Link-level broadcast.
    Broadcast = 1,
    /// Link-level multicast.
    Multicast = 2,
    /// To another host (seen in promiscuous mode).
    OtherHost = 3,
    /// Sent by this machine.
    Outgoing = 4,
}

/// The annotations that travel with a packet: 48 bytes, at Click's offsets.
///
/// The named accessors cover what elements share; [`Annotations::bytes`] is for elements with an `ANNO`
/// argument.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Annotations([u8; ANNOTATION_BYTES]);

impl Annotations {
    /// Offset of the destination (next hop) address: 4 bytes for IPv4, 16 for IPv6.
    pub const DESTINATION: usize = 0;
    /// Offset of the paint, 1 byte.
    pub const PAINT: usize = 16;
    /// Offset of the ICMP parameter problem pointer, 2 bytes.
    pub const PARAMETER_PROBLEM: usize = 17;
    /// Offset of the "set the source address at the output" flag, 1 byte.
    pub const FIX_SOURCE: usize = 19;
    /// Offset of the aggregate number, 4 bytes; its first two bytes are also the VLAN TCI.
    pub const AGGREGATE: usize = 20;
    /// Offset of the count of packets that this one stands for beyond itself, 4 bytes.
    pub const EXTRA_PACKETS: usize = 24;
    /// Offset of the IPsec association, 4 bytes: the one that has opened this packet, or that is to seal it. Click has nothing there.
    pub const ASSOCIATION: usize = 36;
    /// Offset of the sequence number of the ESP packet that this one was in, the lower 4 bytes.
    pub const ESP_SEQUENCE: usize = 40;

    /// All bytes.
    pub fn bytes(&self) -> &[u8; ANNOTATION_BYTES] {
        &self.0
    }

    /// All bytes, to change.
    pub fn bytes_mut(&mut self) -> &mut [u8; ANNOTATION_BYTES] {
        &mut self.0
    }

    /// The IPv4 address the packet goes to next: the destination, or the gateway after a lookup.
    /// In network byte order when seen as bytes; here as a number in host order.
    #[inline(always)]
    pub fn destination_ip(&self) -> u32 {
        u32::from_be_bytes([self.0[0], self.0[1], self.0[2], self.0[3]])
    }

    /// Sets the address the packet goes to next.
    #[inline(always)]
    pub fn set_destination_ip(&mut self, address: u32) {
        self.0[..4].copy_from_slice(&address.to_be_bytes());
    }

    /// The IPv6 address the packet goes to next, in host order; it shares its place with the IPv4 address.
    #[inline(always)]
    pub fn destination_ip6(&self) -> u128 {
        let bytes = self.0.first_chunk().expect("annotations are longer than an address");
        u128::from_be_bytes(*bytes)
    }

    /// Sets the IPv6 address the packet goes to next.
    #[inline(always)]
    pub fn set_destination_ip6(&mut self, address: u128) {
        self.0[..16].copy_from_slice(&address.to_be_bytes());
    }

    /// The colour set by `Paint`.
    #[inline(always)]
    pub fn paint(&self) -> u8 {
        self.0[Self::PAINT]
    }

    /// Sets the colour.
    #[inline(always)]
    pub fn set_paint(&mut self, colour: u8) {
        self.0[Self::PAINT] = colour;
    }

    /// Byte of the packet that an ICMP parameter problem points at, counted from its IP header.
    #[inline(always)]
    pub fn parameter_problem(&self) -> u16 {
        u16::from_le_bytes([self.0[Self::PARAMETER_PROBLEM], self.0[Self::PARAMETER_PROBLEM + 1]])
    }

    /// Sets the byte that an ICMP parameter problem points at.
    #[inline(always)]
    pub fn set_parameter_problem(&mut self, offset: u16) {
        let [low, high] = offset.to_le_bytes();
        self.0[Self::PARAMETER_PROBLEM] = low;
        self.0[Self::PARAMETER_PROBLEM + 1] = high;
    }

    /// Whether `FixIPSrc` has to write the outgoing interface's address into the source field.
    #[inline(always)]
    pub fn fix_source(&self) -> bool {
        self.0[Self::FIX_SOURCE] != 0
    }

    /// Marks the packet for `FixIPSrc`.
    #[inline(always)]
    pub fn set_fix_source(&mut self, fix: bool) {
        self.0[Self::FIX_SOURCE] = u8::from(fix);
    }

    /// Reads the four bytes at `offset` in host order, as Click's integer annotations do.
    /// `None` when they reach past the end.
    pub fn u32_at(&self, offset: usize) -> Option<u32> {
        let bytes = self.0.get(offset..)?.first_chunk::<4>()?;
        Some(u32::from_ne_bytes(*bytes))
    }

    /// Writes four bytes at `offset` in host order; false when they reach past the end.
    pub fn set_u32_at(&mut self, offset: usize, value: u32) -> bool {
        match self.0.get_mut(offset..).and_then(|tail| tail.first_chunk_mut::<4>()) {
            Some(bytes) => {
                *bytes = value.to_ne_bytes();
                true
            }
            None => false,
        }
    }
}

/// The start of every chunk. See the module's essay for the invariants.
#[repr(C, align(64))]
pub(crate) struct Metadata {
    data_offset: u16,
    length: u16,
    link_offset: u16,
    network_offset: u16,
    transport_offset: u16,
    chunk_bytes: u16,
    input_port: u16,
    packet_type: PacketType,
    /// 1 if several packets are merged in this one, which `merged` describes; 0 if not.
    is_merged: u8,
    pub(crate) owner: NonNull<Shared>,
    annotations: Annotations,
    timestamp_ns: u64,
    next_returned: *mut Metadata,
    merged: Merged,
    spare_cold: [u8; 32],
}

/// How several packets of TCP or UDP are merged in one, as a sender's segmentation offload and Linux's GRO do. Each of them on a link
/// would have the headers of this one, and a piece of what follows. The checksum of the transport header means nothing: the element
/// that divides the packet, or the port that sends it whole, computes it.
///
/// Positions are from the start of the frame's chunk: they stay where they are when headers before are stripped or prepended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Merged {
    /// Bytes of each piece; the last may have fewer. Not 0.
    pub piece_bytes: u16,
    /// Where the IP header is.
    pub network: u16,
    /// Where the header of TCP or UDP is.
    pub transport: u16,
    /// Where what is divided begins.
    pub payload: u16,
}

const _: () = assert!(size_of::<Metadata>() == METADATA_BYTES);

/// Bytes of metadata that a fresh packet must have written: the rest is for pools alone.
pub const FRESH_BYTES: usize = 80;

/// The first line of a fresh packet's metadata, for drivers that write it themselves: the members of the first line, those
/// that are written together as one number.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct FreshLine {
    /// Where the data lies: its offset, its length, the link header's offset.
    places: u64,
    /// Size of the chunk and packet type.
    kind: u64,
    /// As a pointer, so that it is one again when it is read.
    owner: NonNull<Shared>,
    annotations: [u64; 5],
}

impl FreshLine {
    /// The first eight bytes: offset and length of the data, offset of the link header, 16 bits each.
    pub fn places(&self) -> u64 {
        self.places
    }
}

const _: () = {
    use std::mem::offset_of;
    assert!(cfg!(target_endian = "little") && size_of::<FreshLine>() == 64);
    assert!(offset_of!(FreshLine, owner) == offset_of!(Metadata, owner));
    assert!(offset_of!(Metadata, data_offset) == 0 && offset_of!(Metadata, length) == 2);
    assert!(offset_of!(Metadata, link_offset) == 4 && offset_of!(Metadata, chunk_bytes) == 10);
    assert!(offset_of!(Metadata, packet_type) == 14 && offset_of!(Metadata, owner) == 16);
    assert!(offset_of!(Metadata, network_offset) == 6 && offset_of!(Metadata, transport_offset) == 8);
    assert!(offset_of!(Metadata, input_port) == 12 && offset_of!(Metadata, annotations) == 24);
    assert!(offset_of!(Metadata, timestamp_ns) == 72 && offset_of!(Metadata, next_returned) == FRESH_BYTES);
};

#[allow(unsafe_code, reason = "the link of an intrusive list")]
// SAFETY: `next_returned` is used by the return stack alone.
unsafe impl Node for Metadata {
    #[inline]
    unsafe fn next_slot(node: NonNull<Self>) -> *mut *mut Self {
        // SAFETY: the node points at a chunk's metadata, which lives as long as its pool (see `pool`).
        unsafe { &raw mut (*node.as_ptr()).next_returned }
    }
}

/// A packet: the one owner of one frame. Dropping it returns the frame to the pool it came from (with one
/// atomic operation; workers free whole batches with [`Pool::free`](crate::Pool::free), which is cheaper).
#[repr(transparent)]
pub struct Packet {
    metadata: NonNull<Metadata>,
}

#[allow(unsafe_code, reason = "a packet is an owned piece of memory")]
// SAFETY: a packet is the only handle to its chunk, and the chunk is plain memory.
unsafe impl Send for Packet {}

#[allow(unsafe_code, reason = "views into the chunk; all rest on the invariants in the module's essay")]
impl Packet {
    /// Writes fresh metadata: no data, no header positions, annotations zero.
    ///
    /// # Safety
    /// `chunk` must be a chunk of `chunk_bytes` (at least `DATA_OFFSET`, at most 65,535) that nobody else
    /// uses, initialised, aligned to 64 bytes, and owned by the pool behind `owner`.
    #[inline(always)]
    pub(crate) unsafe fn initialise(
        chunk: NonNull<Metadata>,
        chunk_bytes: u16,
        owner: NonNull<Shared>,
    ) -> Self {
        // SAFETY: the caller's; a chunk is at least `DATA_OFFSET` long.
        unsafe { Self::initialise_with(chunk, chunk_bytes, owner, DATA_OFFSET as u16, 0) }
    }

    /// Writes fresh metadata: data at a place, no header positions, annotations zero.
    ///
    /// # Safety
    /// As [`Packet::initialise`], and `METADATA_BYTES <= data_offset`, `data_offset + length <= chunk_bytes`.
    #[inline(always)]
    pub(crate) unsafe fn initialise_with(
        chunk: NonNull<Metadata>,
        chunk_bytes: u16,
        owner: NonNull<Shared>,
        data_offset: u16,
        length: u16,
    ) -> Self {
        let metadata = chunk.as_ptr();
        // SAFETY: the caller hands us the chunk for writing.
        unsafe {
            (*metadata).data_offset = data_offset;
            (*metadata).length = length;
            (*metadata).link_offset = 0;
            (*metadata).network_offset = 0;
            (*metadata).transport_offset = 0;
            (*metadata).chunk_bytes = chunk_bytes;
            (*metadata).input_port = 0;
            (*metadata).packet_type = PacketType::Host;
            (*metadata).is_merged = 0;
            (*metadata).owner = owner;
            (*metadata).annotations = Annotations([0; ANNOTATION_BYTES]);
            (*metadata).timestamp_ns = 0;
        }
        Self { metadata: chunk }
    }

    /// The first line of fresh metadata: data at a place, which begins with the link header, annotations zero. The bytes
    /// of the second line up to [`FRESH_BYTES`] are zero.
    #[inline(always)]
    pub(crate) fn fresh_line(
        chunk_bytes: u16,
        owner: NonNull<Shared>,
        (data_offset, length): (u16, u16),
        packet_type: PacketType,
    ) -> FreshLine {
        let data = u64::from(data_offset);
        let places = data | u64::from(length) << 16 | data << 32;
        let kind = u64::from(chunk_bytes) << 16 | u64::from(packet_type as u8) << 48;
        FreshLine { places, kind, owner, annotations: [0; 5] }
    }

    /// Writes such a line, and what follows: a store for each 16 bytes and none across two lines.
    ///
    /// # Safety
    /// As [`Packet::initialise_with`]; the line is one of [`Packet::fresh_line`] for this chunk.
    #[inline(always)]
    pub(crate) unsafe fn initialise_line(chunk: NonNull<Metadata>, line: FreshLine) -> Self {
        // SAFETY: the caller hands us the chunk for writing; it starts with two lines of metadata.
        unsafe {
            chunk.cast::<FreshLine>().write(line);
            chunk.cast::<FreshLine>().add(1).cast::<[u64; 2]>().write([0; 2]);
        }
        Self { metadata: chunk }
    }

    /// Gives up the handle without returning the frame.
    #[inline(always)]
    pub(crate) fn into_chunk(self) -> NonNull<Metadata> {
        let chunk = self.metadata;
        std::mem::forget(self);
        chunk
    }

    /// Marks a chunk that is lent to a driver with what it takes to make it a packet again.
    ///
    /// # Safety
    /// As [`Packet::initialise`].
    #[inline(always)]
    pub(crate) unsafe fn lend(chunk: NonNull<Metadata>, chunk_bytes: u16, owner: NonNull<Shared>) {
        // SAFETY: the caller hands us the chunk for writing.
        unsafe {
            (*chunk.as_ptr()).chunk_bytes = chunk_bytes;
            (*chunk.as_ptr()).owner = owner;
        }
    }

    /// A chunk that was marked by [`Packet::lend`] as a fresh packet.
    ///
    /// # Safety
    /// As [`Packet::initialise`], and the marks are still there.
    #[inline(always)]
    pub(crate) unsafe fn returned(chunk: NonNull<Metadata>) -> Self {
        // SAFETY: `lend` wrote these two, and the caller has the chunk.
        unsafe { Self::initialise(chunk, (*chunk.as_ptr()).chunk_bytes, (*chunk.as_ptr()).owner) }
    }

    /// Gives the frame to a driver, for as long as a device sends it: the start of its chunk. It comes back by
    /// [`Packet::from_raw`].
    #[inline(always)]
    pub fn into_raw(self) -> NonNull<u8> {
        self.into_chunk().cast()
    }

    /// The packet whose frame was given to a driver.
    ///
    /// # Safety
    /// `chunk` must come from [`Packet::into_raw`], each time once, with its metadata as they were.
    #[inline(always)]
    pub unsafe fn from_raw(chunk: NonNull<u8>) -> Self {
        Self { metadata: chunk.cast() }
    }

    /// The start of the frame's chunk, for drivers that find their own descriptor by it.
    #[inline(always)]
    pub fn chunk(&self) -> NonNull<u8> {
        self.metadata.cast()
    }

    /// Where the data starts, in bytes from the start of the chunk.
    #[inline(always)]
    pub fn data_offset(&self) -> usize {
        usize::from(self.metadata().data_offset)
    }

    /// Where the data starts, as [`Packet::data_offset`], in the lower half; its length in the upper.
    #[inline(always)]
    pub fn place(&self) -> u32 {
        let metadata = self.metadata();
        u32::from(metadata.data_offset) | u32::from(metadata.length) << 16
    }

    /// Makes the data `length` bytes from `data_offset` bytes behind the chunk's start. False, and no change, when
    /// they do not lie within the chunk behind its metadata.
    #[inline(always)]
    pub(crate) fn set_range(&mut self, data_offset: usize, length: usize) -> bool {
        let metadata = self.metadata_mut();
        let room = usize::from(metadata.chunk_bytes);
        if data_offset < METADATA_BYTES || data_offset > room || length > room - data_offset {
            return false;
        }
        metadata.data_offset = data_offset as u16;
        metadata.length = length as u16;
        true
    }

    #[inline(always)]
    pub(crate) fn owner(&self) -> NonNull<Shared> {
        self.metadata().owner
    }

    #[inline(always)]
    fn metadata(&self) -> &Metadata {
        // SAFETY: the packet owns its chunk, whose start is initialised metadata.
        unsafe { self.metadata.as_ref() }
    }

    #[inline(always)]
    fn metadata_mut(&mut self) -> &mut Metadata {
        // SAFETY: as above, and `&mut self` makes the access exclusive.
        unsafe { self.metadata.as_mut() }
    }

    /// Length of the data in bytes.
    #[inline(always)]
    #[allow(clippy::len_without_is_empty, reason = "an empty packet is a packet")]
    pub fn len(&self) -> usize {
        usize::from(self.metadata().length)
    }

    /// The data.
    #[inline(always)]
    pub fn data(&self) -> &[u8] {
        let metadata = self.metadata();
        // SAFETY: the data lies within the chunk, behind the metadata.
        unsafe { self.bytes_between(metadata.data_offset, metadata.data_offset + metadata.length) }
    }

    /// The data, to change.
    #[inline(always)]
    pub fn data_mut(&mut self) -> &mut [u8] {
        let metadata = self.metadata();
        let (start, end) = (metadata.data_offset, metadata.data_offset + metadata.length);
        // SAFETY: the data lies within the chunk, behind the metadata.
        unsafe { self.bytes_between_mut(start, end) }
    }

    /// Bytes free before the data.
    #[inline(always)]
    pub fn headroom(&self) -> usize {
        usize::from(self.metadata().data_offset) - METADATA_BYTES
    }

    /// Bytes free behind the data.
    #[inline(always)]
    pub fn tailroom(&self) -> usize {
        let metadata = self.metadata();
        usize::from(metadata.chunk_bytes - metadata.data_offset - metadata.length)
    }

    /// Most data bytes that a frame of this size can hold when all its room is used.
    #[inline(always)]
    pub fn capacity(&self) -> usize {
        usize::from(self.metadata().chunk_bytes) - METADATA_BYTES
    }

    /// Makes the data `count` bytes longer at its front and returns it all; the new bytes hold whatever was
    /// there (after [`Packet::strip`], what was stripped). `None`, and no change, without head room.
    #[inline(always)]
    pub fn prepend(&mut self, count: usize) -> Option<&mut [u8]> {
        if count > self.headroom() {
            return None;
        }
        let metadata = self.metadata_mut();
        metadata.data_offset -= count as u16;
        metadata.length += count as u16;
        Some(self.data_mut())
    }

    /// Puts `header` before the data, as its link header. False, and no change, without head room.
    #[inline(always)]
    pub fn prepend_link_header<const N: usize>(&mut self, header: &[u8; N]) -> bool {
        if N > self.headroom() {
            return false;
        }
        let metadata = self.metadata_mut();
        metadata.data_offset -= N as u16;
        metadata.length += N as u16;
        metadata.link_offset = metadata.data_offset;
        let start = metadata.data_offset;
        // SAFETY: `start` is in the head room, which holds the header (looked at above).
        unsafe { self.bytes_between_mut(start, start + N as u16) }.copy_from_slice(header);
        true
    }

    /// Writes `header` into the head room right before the data, as its link header; the data stays as it is. False, and no
    /// change, without head room.
    #[inline(always)]
    pub fn set_link_header_before<const N: usize>(&mut self, header: &[u8; N]) -> bool {
        if N > self.headroom() {
            return false;
        }
        let metadata = self.metadata_mut();
        let start = metadata.data_offset - N as u16;
        metadata.link_offset = start;
        // SAFETY: `start` is in the head room, which holds the header (looked at above).
        unsafe { self.bytes_between_mut(start, start + N as u16) }.copy_from_slice(header);
        true
    }

    /// Takes `count` bytes off the front. False, and no change, when the data is shorter.
    #[inline(always)]
    pub fn strip(&mut self, count: usize) -> bool {
        let metadata = self.metadata_mut();
        if count > usize::from(metadata.length) {
            return false;
        }
        metadata.data_offset += count as u16;
        metadata.length -= count as u16;
        true
    }

    /// What a checked IP header settles, in one step: takes `strip` bytes off the front, cuts the data `end` bytes
    /// behind where it starts now, and marks a network header of `header_bytes` that starts `network` bytes behind where it
    /// starts now, with the transport header behind it. False, and no change, unless
    /// `strip <= network`, and `network + header_bytes <= end <= length`.
    #[inline(always)]
    pub fn cut_to_network(&mut self, strip: usize, network: usize, header_bytes: usize, end: usize) -> bool {
        let metadata = self.metadata_mut();
        let fits =
            end <= usize::from(metadata.length) && header_bytes <= end && network <= end - header_bytes;
        if !fits || strip > network {
            return false;
        }
        let start = metadata.data_offset;
        metadata.data_offset = start + strip as u16;
        metadata.length = (end - strip) as u16;
        metadata.network_offset = start + network as u16;
        metadata.transport_offset = start + (network + header_bytes) as u16;
        true
    }

    /// Makes the data `count` bytes longer at its end and returns the new bytes, which hold whatever was
    /// there. `None`, and no change, without tail room.
    #[inline(always)]
    pub fn append(&mut self, count: usize) -> Option<&mut [u8]> {
        if count > self.tailroom() {
            return None;
        }
        let metadata = self.metadata_mut();
        let old_end = metadata.data_offset + metadata.length;
        metadata.length += count as u16;
        // SAFETY: behind the data, in the tail room, which is long enough (looked at above).
        Some(unsafe { self.bytes_between_mut(old_end, old_end + count as u16) })
    }

    /// Cuts the data to at most `length` bytes.
    #[inline(always)]
    pub fn truncate(&mut self, length: usize) {
        let metadata = self.metadata_mut();
        if length < usize::from(metadata.length) {
            metadata.length = length as u16;
        }
    }

    /// Replaces all data by `bytes`, with the usual head room. False, and no change, when they do not fit.
    pub fn set_data(&mut self, bytes: &[u8]) -> bool {
        match self.reset(bytes.len()) {
            Some(data) => {
                data.copy_from_slice(bytes);
                true
            }
            None => false,
        }
    }

    /// Makes the data `length` bytes long, with the usual head room, for a driver to fill; the bytes hold
    /// whatever was there. `None`, and no change, when the frame is too small.
    #[inline(always)]
    pub fn reset(&mut self, length: usize) -> Option<&mut [u8]> {
        let metadata = self.metadata_mut();
        if length > usize::from(metadata.chunk_bytes) - DATA_OFFSET {
            return None;
        }
        metadata.data_offset = DATA_OFFSET as u16;
        metadata.length = length as u16;
        metadata.is_merged = 0;
        Some(self.data_mut())
    }

    /// Makes the data `length` bytes long behind a head room of so many bytes, as [`Packet::reset`] does behind the usual one.
    pub fn reset_with_headroom(&mut self, headroom: usize, length: usize) -> Option<&mut [u8]> {
        if !self.set_range(METADATA_BYTES + headroom, length) {
            return None;
        }
        self.metadata_mut().is_merged = 0;
        Some(self.data_mut())
    }

    /// Moves the data by `delta` bytes within the chunk (positive: towards the end), with header positions and
    /// headers that were stripped. False, and no change, without room.
    pub fn shift(&mut self, delta: isize) -> bool {
        let first = usize::from(self.first_position());
        let room = if delta < 0 { first - METADATA_BYTES } else { self.tailroom() };
        if delta.unsigned_abs() > room {
            return false;
        }
        let start = usize::from(self.metadata().data_offset);
        let bytes = start + self.len() - first;
        let target = start.wrapping_add_signed(delta);
        let chunk = self.metadata.as_ptr().cast::<u8>();
        // SAFETY: both ranges lie within the chunk: `delta` was checked against the room on that side.
        unsafe {
            std::ptr::copy(chunk.add(first), chunk.add(first.wrapping_add_signed(delta)), bytes);
        }
        let metadata = self.metadata_mut();
        if metadata.is_merged != 0 {
            let Merged { network, transport, payload, .. } = &mut metadata.merged;
            [network, transport, payload]
                .into_iter()
                .for_each(|position| *position = usize::from(*position).wrapping_add_signed(delta) as u16);
        }
        metadata.data_offset = target as u16;
        let limit = usize::from(metadata.chunk_bytes);
        for position in
            [&mut metadata.link_offset, &mut metadata.network_offset, &mut metadata.transport_offset]
        {
            if *position != 0 {
                let moved = usize::from(*position).wrapping_add_signed(delta);
                *position = if (METADATA_BYTES..=limit).contains(&moved) { moved as u16 } else { 0 };
            }
        }
        true
    }

    /// Says that the link header starts `offset` bytes into the data (at most its length).
    #[inline(always)]
    pub fn set_link_header(&mut self, offset: usize) {
        let position = self.position(offset);
        self.metadata_mut().link_offset = position;
    }

    /// Says that the network header starts `offset` bytes into the data (at most its length).
    #[inline(always)]
    pub fn set_network_header(&mut self, offset: usize) {
        let position = self.position(offset);
        self.metadata_mut().network_offset = position;
    }

    /// Says that the network header starts `offset` bytes into the data and is `header_bytes` long, so that
    /// the transport header follows it.
    #[inline(always)]
    pub fn set_network_and_transport_header(&mut self, offset: usize, header_bytes: usize) {
        let network = self.position(offset);
        let transport = self.position(offset + header_bytes);
        let metadata = self.metadata_mut();
        metadata.network_offset = network;
        metadata.transport_offset = transport;
    }

    /// Says that the transport header starts `offset` bytes into the data (at most its length).
    #[inline(always)]
    pub fn set_transport_header(&mut self, offset: usize) {
        let position = self.position(offset);
        self.metadata_mut().transport_offset = position;
    }

    /// Forgets the link header.
    pub fn clear_link_header(&mut self) {
        self.metadata_mut().link_offset = 0;
    }

    /// Forgets network and transport headers.
    pub fn clear_network_header(&mut self) {
        let metadata = self.metadata_mut();
        metadata.network_offset = 0;
        metadata.transport_offset = 0;
    }

    /// From the link header to the end of the data; `None` when none was set.
    #[inline(always)]
    pub fn link(&self) -> Option<&[u8]> {
        self.from_position(self.metadata().link_offset)
    }

    /// From the network header to the end of the data; `None` when none was set.
    #[inline(always)]
    pub fn network(&self) -> Option<&[u8]> {
        self.from_position(self.metadata().network_offset)
    }

    /// From the network header to the end of the data, to change.
    #[inline(always)]
    pub fn network_mut(&mut self) -> Option<&mut [u8]> {
        let position = self.metadata().network_offset;
        let end = self.metadata().data_offset + self.metadata().length;
        if position == 0 || position > end {
            return None;
        }
        // SAFETY: a position that is set lies behind the metadata, and it is not behind the data's end.
        Some(unsafe { self.bytes_between_mut(position, end) })
    }

    /// From the transport header to the end of the data; `None` when none was set.
    #[inline(always)]
    pub fn transport(&self) -> Option<&[u8]> {
        self.from_position(self.metadata().transport_offset)
    }

    /// From the transport header to the end of the data, to change.
    #[inline(always)]
    pub fn transport_mut(&mut self) -> Option<&mut [u8]> {
        let position = self.metadata().transport_offset;
        let end = self.metadata().data_offset + self.metadata().length;
        if position == 0 || position > end {
            return None;
        }
        // SAFETY: a position that is set lies behind the metadata, and it is not behind the data's end.
        Some(unsafe { self.bytes_between_mut(position, end) })
    }

    /// Where the link header starts, from the start of the data: negative after a strip. `None`: unset.
    #[inline(always)]
    pub fn link_offset(&self) -> Option<isize> {
        self.relative(self.metadata().link_offset)
    }

    /// Where the network header starts, from the start of the data. `None`: unset.
    #[inline(always)]
    pub fn network_offset(&self) -> Option<isize> {
        self.relative(self.metadata().network_offset)
    }

    /// Whether the network header is marked and the data begins with it.
    #[inline(always)]
    pub fn begins_with_network_header(&self) -> bool {
        // The data never begins at 0, which stands for a position that is not set.
        self.metadata().network_offset == self.metadata().data_offset
    }

    /// Where the transport header starts, from the start of the data. `None`: unset.
    #[inline(always)]
    pub fn transport_offset(&self) -> Option<isize> {
        self.relative(self.metadata().transport_offset)
    }

    /// The annotations.
    #[inline(always)]
    pub fn annotations(&self) -> &Annotations {
        &self.metadata().annotations
    }

    /// The annotations, to change.
    #[inline(always)]
    pub fn annotations_mut(&mut self) -> &mut Annotations {
        &mut self.metadata_mut().annotations
    }

    /// How the link layer addressed the packet.
    #[inline(always)]
    pub fn packet_type(&self) -> PacketType {
        self.metadata().packet_type
    }

    /// Sets how the link layer addressed the packet.
    #[inline(always)]
    pub fn set_packet_type(&mut self, packet_type: PacketType) {
        self.metadata_mut().packet_type = packet_type;
    }

    /// Nanoseconds since 1970 at which the packet was received; 0 when nobody said.
    #[inline(always)]
    pub fn timestamp_ns(&self) -> u64 {
        self.metadata().timestamp_ns
    }

    /// Sets the time of reception in nanoseconds since 1970. Touches the cold metadata line.
    #[inline(always)]
    pub fn set_timestamp_ns(&mut self, timestamp_ns: u64) {
        self.metadata_mut().timestamp_ns = timestamp_ns;
    }

    /// Whether several packets are merged in this one.
    #[inline(always)]
    pub fn is_merged(&self) -> bool {
        self.metadata().is_merged != 0
    }

    /// How several packets are merged in this one, if so.
    #[inline]
    pub fn merged(&self) -> Option<Merged> {
        self.is_merged().then(|| self.metadata().merged)
    }

    /// Says how several packets are merged in this one.
    pub fn set_merged(&mut self, merged: Merged) {
        debug_assert!(
            merged.piece_bytes > 0 && merged.network < merged.transport && merged.transport < merged.payload
        );
        let metadata = self.metadata_mut();
        (metadata.is_merged, metadata.merged) = (1, merged);
    }

    /// Packets on a link that this one is.
    #[inline]
    pub fn pieces(&self) -> u64 {
        self.merged().map_or(1, |merged| {
            let end = usize::from(self.metadata().data_offset) + self.len();
            let divided = end.saturating_sub(usize::from(merged.payload));
            divided.div_ceil(usize::from(merged.piece_bytes)).max(1) as u64
        })
    }

    /// Bytes from the start of the data to the end of the first piece: a packet that is not merged is one.
    #[inline]
    pub fn piece_len(&self) -> usize {
        self.merged().map_or(self.len(), |merged| {
            let end = usize::from(merged.payload) + usize::from(merged.piece_bytes);
            end.saturating_sub(usize::from(self.metadata().data_offset)).min(self.len())
        })
    }

    /// The same of the last piece, as if it stood alone: headers and what is left for it.
    #[inline]
    pub fn last_piece_len(&self) -> usize {
        let before = (self.pieces() - 1) as usize;
        self.merged().map_or(self.len(), |merged| self.len() - before * usize::from(merged.piece_bytes))
    }

    /// Bytes of all packets on a link that this one is, as their data would begin where that of this one does.
    #[inline]
    pub fn bytes_in_pieces(&self) -> u64 {
        let headers = self.merged().map_or(0, |merged| {
            usize::from(merged.payload).saturating_sub(usize::from(self.metadata().data_offset))
        });
        self.len() as u64 + (self.pieces() - 1) * headers as u64
    }

    /// Number of the port the packet came in by.
    #[inline(always)]
    pub fn input_port(&self) -> u16 {
        self.metadata().input_port
    }

    /// Sets the number of the port the packet came in by.
    #[inline(always)]
    pub fn set_input_port(&mut self, port: u16) {
        self.metadata_mut().input_port = port;
    }

    /// Makes this packet a copy of `other`: data, header positions, annotations, time. False, and no change,
    /// when the data does not fit.
    pub fn copy_from(&mut self, other: &Self) -> bool {
        let (from, room) = (other.metadata(), usize::from(self.metadata().chunk_bytes));
        let start = usize::from(from.data_offset);
        if start + other.len() > room {
            return false;
        }
        let first = other.first_position();
        let end = from.data_offset + from.length;
        // SAFETY: from the first position that is set to the end of the data.
        let source = unsafe { other.bytes_between(first, end) };
        let metadata = self.metadata_mut();
        metadata.data_offset = from.data_offset;
        metadata.length = from.length;
        metadata.link_offset = within(from.link_offset, room);
        metadata.network_offset = within(from.network_offset, room);
        metadata.transport_offset = within(from.transport_offset, room);
        metadata.input_port = from.input_port;
        metadata.packet_type = from.packet_type;
        metadata.annotations = from.annotations;
        metadata.timestamp_ns = from.timestamp_ns;
        (metadata.is_merged, metadata.merged) = (from.is_merged, from.merged);
        // SAFETY: the same range, which ends within this chunk too (looked at above).
        unsafe { self.bytes_between_mut(first, end) }.copy_from_slice(source);
        true
    }

    /// Makes this packet one with the first `head` bytes of the data of `other`, and `more` behind them for the caller to write: with its
    /// header positions, annotations, time, and headers that were stripped, but not merged. False, and no change, when that does not fit.
    pub(crate) fn head_of(&mut self, other: &Self, head: usize, more: usize) -> bool {
        let (from, room) = (other.metadata(), usize::from(self.metadata().chunk_bytes));
        let start = usize::from(from.data_offset);
        if head > other.len() || start + head + more > room {
            return false;
        }
        let first = other.first_position();
        let end = from.data_offset + head as u16;
        let first = first.min(end);
        // SAFETY: from the first position that is set, or the data's start, to a place within the data.
        let source = unsafe { other.bytes_between(first, end) };
        let metadata = self.metadata_mut();
        metadata.data_offset = from.data_offset;
        metadata.length = (head + more) as u16;
        metadata.link_offset = within(from.link_offset, room);
        metadata.network_offset = within(from.network_offset, room);
        metadata.transport_offset = within(from.transport_offset, room);
        metadata.input_port = from.input_port;
        metadata.packet_type = from.packet_type;
        metadata.is_merged = 0;
        metadata.annotations = from.annotations;
        metadata.timestamp_ns = from.timestamp_ns;
        // SAFETY: the same range, which ends within this chunk too (looked at above).
        unsafe { self.bytes_between_mut(first, end) }.copy_from_slice(source);
        true
    }

    /// Asks the CPU to bring the metadata line into its cache.
    #[inline(always)]
    pub fn prefetch_metadata(&self) {
        prefetch_address(self.metadata.as_ptr().cast());
    }

    /// Asks the CPU to bring the first line of data of a packet with the usual head room into its cache,
    /// without reading the metadata.
    #[inline(always)]
    pub fn prefetch_data(&self) {
        prefetch_address(self.metadata.as_ptr().cast::<u8>().wrapping_add(DATA_OFFSET));
    }

    /// Where the packet begins: headers that were stripped lie in the head room and belong to it still.
    fn first_position(&self) -> u16 {
        let metadata = self.metadata();
        [metadata.link_offset, metadata.network_offset, metadata.transport_offset]
            .into_iter()
            .filter(|&position| position != 0)
            .fold(metadata.data_offset, u16::min)
    }

    #[inline(always)]
    fn position(&self, offset: usize) -> u16 {
        let metadata = self.metadata();
        metadata.data_offset + offset.min(usize::from(metadata.length)) as u16
    }

    #[inline(always)]
    fn relative(&self, position: u16) -> Option<isize> {
        (position != 0)
            .then(|| usize::from(position) as isize - usize::from(self.metadata().data_offset) as isize)
    }

    #[inline(always)]
    #[allow(clippy::wrong_self_convention, reason = "a slice that starts at a position")]
    fn from_position(&self, position: u16) -> Option<&[u8]> {
        let end = self.metadata().data_offset + self.metadata().length;
        if position == 0 || position > end {
            return None;
        }
        // SAFETY: a position that is set lies behind the metadata, and it is not behind the data's end.
        Some(unsafe { self.bytes_between(position, end) })
    }

    /// The bytes from `start` to `end`.
    ///
    /// # Safety
    /// `METADATA_BYTES <= start <= end <= chunk_bytes`.
    #[inline(always)]
    unsafe fn bytes_between(&self, start: u16, end: u16) -> &[u8] {
        debug_assert!(METADATA_BYTES as u16 <= start && start <= end && end <= self.metadata().chunk_bytes);
        // SAFETY: the caller's.
        unsafe {
            let first = self.metadata.as_ptr().cast::<u8>().add(usize::from(start));
            std::slice::from_raw_parts(first, usize::from(end - start))
        }
    }

    /// As [`Packet::bytes_between`], to change.
    ///
    /// # Safety
    /// As [`Packet::bytes_between`].
    #[inline(always)]
    unsafe fn bytes_between_mut(&mut self, start: u16, end: u16) -> &mut [u8] {
        debug_assert!(METADATA_BYTES as u16 <= start && start <= end && end <= self.metadata().chunk_bytes);
        // SAFETY: the caller's; the metadata lies before every such range, and `&mut self` makes the access exclusive.
        unsafe {
            let first = self.metadata.as_ptr().cast::<u8>().add(usize::from(start));
            std::slice::from_raw_parts_mut(first, usize::from(end - start))
        }
    }
}

/// A header position of another frame, as long as it lies inside this one.
fn within(position: u16, chunk_bytes: usize) -> u16 {
    if usize::from(position) <= chunk_bytes { position } else { 0 }
}

impl Drop for Packet {
    fn drop(&mut self) {
        #[allow(unsafe_code, reason = "the packet's chunk goes home")]
        // SAFETY: the packet owned the chunk, and is gone.
        unsafe {
            Shared::give_back(Chain::new(self.metadata));
        }
    }
}

impl fmt::Debug for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Packet({} bytes:", self.len())?;
        for byte in self.data().iter().take(64) {
            write!(f, " {byte:02x}")?;
        }
        f.write_str(if self.len() > 64 { " ...)" } else { ")" })
    }
}
