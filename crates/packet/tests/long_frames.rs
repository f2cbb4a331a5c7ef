//! Frames of more than 32 KiB, which drivers with an allocator of their own have: positions need all of their 16 bits.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::ptr::NonNull;

use packet::DriverFrames;

#[repr(align(64))]
struct Chunk([u8; 65_535]);

#[test]
#[allow(unsafe_code, reason = "as a driver would")]
fn header_positions_beyond_32_kib_are_what_was_set() {
    fn free(_: NonNull<u8>) {}
    // SAFETY: the function touches no memory.
    let frames = unsafe { DriverFrames::new(free) };
    let mut chunk = Box::new(Chunk([0; 65_535]));
    // SAFETY: the chunk lives longer than its packet, and nobody else uses it.
    let mut packet = unsafe { frames.received(NonNull::from(&mut chunk.0).cast(), 65_535, 256, 50_000) };
    packet.set_link_header(0);
    packet.set_network_and_transport_header(40_000, 20);
    assert_eq!(packet.network_offset(), Some(40_000));
    assert_eq!(packet.transport_offset(), Some(40_020));
    assert!(packet.strip(45_000));
    assert_eq!(packet.link_offset(), Some(-45_000));
    assert_eq!(packet.network_offset(), Some(-5_000));
    assert_eq!(packet.network().unwrap().len(), 10_000);
}
