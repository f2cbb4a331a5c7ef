//! Packet sockets (packet(7)) and their options, for which rustix has no types.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// What PACKET_STATISTICS says: packets and drops since the last question.
pub(super) type Statistics = libc::tpacket_stats;

/// Opens a packet socket that receives nothing before it is bound to a protocol. Needs CAP_NET_RAW.
pub(crate) fn open() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?)
}

/// Binds to an interface, to receive frames of all protocols, or none (for a socket that sends).
pub(crate) fn bind(socket: &OwnedFd, index: i32, receive: bool) -> io::Result<()> {
    #[allow(unsafe_code, reason = "a struct of the C interface")]
    // SAFETY: a `sockaddr_ll` is numbers, for which zero is a value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = if receive { (libc::ETH_P_ALL as u16).to_be() } else { 0 };
    address.sll_ifindex = index;
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    #[allow(unsafe_code, reason = "binding to a link address")]
    // SAFETY: the address lives for the call, and the length is its own.
    let result = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Whether it is on this interface. One that has left the network namespace, or is gone, took all sockets off, for ever.
pub(crate) fn is_on(socket: &OwnedFd, index: i32) -> bool {
    #[allow(unsafe_code, reason = "a struct of the C interface")]
    // SAFETY: a `sockaddr_ll` is numbers, for which zero is a value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    #[allow(unsafe_code, reason = "asking for a link address")]
    // SAFETY: address and length live for the call, and the length is its own.
    let result = unsafe { libc::getsockname(socket.as_raw_fd(), (&raw mut address).cast(), &raw mut length) };
    result == 0 && address.sll_ifindex == index
}

/// Marks the types that packet socket options take: plain C numbers without padding.
pub(super) trait OptionValue: Copy {}
impl OptionValue for libc::c_int {}
impl OptionValue for libc::tpacket_req {}
impl OptionValue for libc::packet_mreq {}

/// Sets an option of packet sockets.
pub(super) fn set(socket: &OwnedFd, option: libc::c_int, value: &impl OptionValue) -> io::Result<()> {
    let length = size_of_val(value) as libc::socklen_t;
    let pointer = std::ptr::from_ref(value).cast();
    #[allow(unsafe_code, reason = "the C interface of packet(7)")]
    // SAFETY: the value lives for the call, and the length is its own.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_PACKET, option, pointer, length) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn get<T: Copy>(socket: &OwnedFd, option: libc::c_int, mut value: T) -> io::Result<T> {
    let mut length = size_of::<T>() as libc::socklen_t;
    let pointer = (&raw mut value).cast();
    #[allow(unsafe_code, reason = "the C interface of packet(7)")]
    // SAFETY: the value lives for the call, the length is its own; both callers pass plain numbers.
    let result =
        unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_PACKET, option, pointer, &raw mut length) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

/// Packets and drops since the last call.
pub(super) fn statistics(socket: &OwnedFd) -> io::Result<Statistics> {
    get(socket, libc::PACKET_STATISTICS, Statistics { tp_packets: 0, tp_drops: 0 })
}

/// Joins a group of sockets among which the kernel spreads flows by their hash: a new group without `group`, whose
/// number it returns. Linux 4.12 or newer.
pub(super) fn join_fanout(socket: &OwnedFd, group: Option<u16>) -> io::Result<u16> {
    let value = match group {
        Some(group) => libc::c_int::from(group) | (libc::PACKET_FANOUT_HASH as libc::c_int) << 16,
        None => ((libc::PACKET_FANOUT_HASH | libc::PACKET_FANOUT_FLAG_UNIQUEID) as libc::c_int) << 16,
    };
    set(socket, libc::PACKET_FANOUT, &value)?;
    Ok((get(socket, libc::PACKET_FANOUT, 0 as libc::c_int)? & 0xffff) as u16)
}

/// Makes the interface promiscuous for as long as the socket is there.
pub(super) fn make_promiscuous(socket: &OwnedFd, index: i32) -> io::Result<()> {
    let membership = libc::packet_mreq {
        mr_ifindex: index,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set(socket, libc::PACKET_ADD_MEMBERSHIP, &membership)
}
