//! Frames of more than 32 KiB: positions need all of their 16 bits.

#![allow(clippy::unwrap_used, reason = "a test")]

use packet::{Pool, PoolOptions};

#[test]
fn header_positions_beyond_32_kib_are_what_was_set() {
    let mut pool = Pool::new(PoolOptions { frames: 1, data_bytes: 60_000 }).unwrap();
    let mut packet = pool.allocate().unwrap();
    assert!(packet.set_data(&[0; 50_000]));
    packet.set_link_header(0);
    packet.set_network_and_transport_header(40_000, 20);
    assert_eq!(packet.network_offset(), Some(40_000));
    assert_eq!(packet.transport_offset(), Some(40_020));
    assert!(packet.strip(45_000));
    assert_eq!(packet.link_offset(), Some(-45_000));
    assert_eq!(packet.network_offset(), Some(-5_000));
    assert_eq!(packet.network().unwrap().len(), 10_000);
}
