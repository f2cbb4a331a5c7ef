//! The C side as Rust sees it: the functions of `shim/dpdk.c`, DPDK's mbuf as far as packets touch it.

#![allow(unsafe_code, reason = "declarations of C functions")]

use std::ffi::{c_char, c_int, c_uint};

/// `struct rte_mempool`: only ever pointed to.
#[repr(C)]
pub(super) struct Mempool([u8; 0]);

/// `struct rte_ring`: only ever pointed to.
#[repr(C)]
pub(super) struct Ring([u8; 0]);

/// The first cache line of `struct rte_mbuf`; the shim asserts these offsets when it is compiled.
#[repr(C)]
pub(super) struct Mbuf {
    pub(super) buf_addr: *mut u8,
    pub(super) buf_iova: u64,
    /// `data_off`, `refcnt`, `nb_segs`, `port`, from the lowest bits up (x86-64 is little-endian).
    pub(super) rearm_data: u64,
    pub(super) ol_flags: u64,
    pub(super) packet_type: u32,
    pub(super) pkt_len: u32,
    pub(super) data_len: u16,
    pub(super) vlan_tci: u16,
    pub(super) hash: [u32; 2],
    pub(super) vlan_tci_outer: u16,
    pub(super) buf_len: u16,
    pub(super) pool: *mut Mempool,
}

const _: () = assert!(size_of::<Mbuf>() == 64 && cfg!(target_endian = "little"));

/// Bytes of `struct rte_mbuf`.
pub(super) const MBUF_BYTES: usize = 128;

/// `struct brickway_dpdk_device`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Device {
    pub(super) driver: [c_char; 32],
    pub(super) rss_fields: u64,
    pub(super) rx_offloads: u64,
    pub(super) tx_offloads: u64,
    pub(super) socket: i32,
    pub(super) port: u16,
    pub(super) most_rx_queues: u16,
    pub(super) most_tx_queues: u16,
    pub(super) least_mtu: u16,
    pub(super) most_mtu: u16,
    pub(super) reta_size: u16,
    pub(super) rx_slots: u16,
    pub(super) tx_slots: u16,
    pub(super) key_bytes: u8,
    pub(super) mac: [u8; 6],
    pub(super) spare: u8,
}

/// `struct brickway_dpdk_setup`.
#[repr(C)]
pub(super) struct Setup {
    pub(super) pool: *mut Mempool,
    pub(super) key: *const u8,
    pub(super) rss_fields: u64,
    pub(super) rx_queues: u16,
    pub(super) tx_queues: u16,
    pub(super) rx_slots: u16,
    pub(super) tx_slots: u16,
    pub(super) mtu: u16,
    pub(super) key_bytes: u16,
}

/// `struct brickway_dpdk_counts`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) missed: u64,
    pub(super) receive_errors: u64,
    pub(super) no_mbuf: u64,
    pub(super) send_errors: u64,
}

unsafe extern "C" {
    pub(super) fn brickway_dpdk_init(argc: c_int, argv: *mut *mut c_char, keep_log: c_int) -> c_int;
    pub(super) fn brickway_dpdk_take_log(text: *mut u8, room: usize) -> usize;
    pub(super) safe fn brickway_dpdk_register_thread() -> c_int;
    pub(super) safe fn brickway_dpdk_unregister_thread();
    pub(super) fn brickway_dpdk_make_pool(
        name: *const c_char,
        mbufs: u32,
        cache: u32,
        metadata: u16,
        data_room: u16,
        socket: c_int,
        pool: *mut *mut Mempool,
    ) -> c_int;
    pub(super) fn brickway_dpdk_probe(
        devargs: *const c_char,
        name: *const c_char,
        device: *mut Device,
    ) -> c_int;
    pub(super) fn brickway_dpdk_start(port: u16, setup: *const Setup, step: *mut *const c_char) -> c_int;
    pub(super) safe fn brickway_dpdk_close(port: u16);
    pub(super) fn brickway_dpdk_mtu(port: u16, mtu: *mut u16) -> c_int;
    pub(super) safe fn brickway_dpdk_promiscuous(port: u16) -> c_int;
    pub(super) safe fn brickway_dpdk_all_multicast(port: u16) -> c_int;
    pub(super) fn brickway_dpdk_link(port: u16, megabits: *mut u32) -> c_int;
    pub(super) fn brickway_dpdk_counts(port: u16, counts: *mut Counts) -> c_int;
    pub(super) fn brickway_dpdk_reta(port: u16, queues: *mut u16, size: u16) -> c_int;
    pub(super) fn brickway_dpdk_set_reta(port: u16, queues: *const u16, size: u16) -> c_int;
    pub(super) fn brickway_dpdk_set_hash(port: u16, key: *const u8, key_bytes: u8, fields: u64) -> c_int;
    #[cfg(test)]
    pub(super) fn brickway_dpdk_hash(port: u16, key: *mut u8, key_bytes: u8, fields: *mut u64) -> c_int;
    pub(super) fn brickway_dpdk_steer(
        port: u16,
        address: u32,
        mask: u32,
        queue: u16,
        problem: *mut c_char,
        room: usize,
    ) -> c_int;
    pub(super) fn brickway_dpdk_receive(port: u16, queue: u16, mbufs: *mut *mut Mbuf, count: u16) -> u16;
    pub(super) fn brickway_dpdk_send(port: u16, queue: u16, mbufs: *mut *mut Mbuf, count: u16) -> u16;
    pub(super) fn brickway_dpdk_allocate(pool: *mut Mempool, mbufs: *mut *mut Mbuf, count: u16) -> u16;
    pub(super) fn brickway_dpdk_copy(mbuf: *mut Mbuf, pool: *mut Mempool) -> *mut Mbuf;
    pub(super) fn brickway_dpdk_free(mbuf: *mut Mbuf);
    #[cfg(test)]
    pub(super) fn brickway_dpdk_in_use(pool: *const Mempool) -> c_uint;
    pub(super) fn brickway_dpdk_ring(
        name: *const c_char,
        slots: u32,
        socket: c_int,
        ring: *mut *mut Ring,
    ) -> c_int;
    pub(super) fn brickway_dpdk_ring_receive(ring: *mut Ring, mbufs: *mut *mut Mbuf, count: c_uint)
    -> c_uint;
    pub(super) fn brickway_dpdk_ring_send(ring: *mut Ring, mbufs: *mut *mut Mbuf, count: c_uint) -> c_uint;
}
