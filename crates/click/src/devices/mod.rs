//! Ports, files and the host.

#[cfg(feature = "dpdk")]
mod dpdk;
mod endpoint;
mod from_dump;
mod kernel_tun;
mod pipeliner;
mod socket;
mod static_thread_sched;
#[cfg(test)]
pub(crate) mod testing;
mod to_dump;
mod to_host_sniffers;

use graph::Class;

/// The classes of this folder.
pub static CLASSES: &[&Class] = &[
    &from_dump::CLASS,
    &socket::FROM,
    &kernel_tun::TAP,
    &kernel_tun::CLASS,
    &pipeliner::CLASS,
    &socket::CLASS,
    &static_thread_sched::CLASS,
    &to_dump::CLASS,
    &to_host_sniffers::CLASS,
    &socket::TO,
    #[cfg(feature = "dpdk")]
    &dpdk::from_dpdk_device::CLASS,
    #[cfg(feature = "dpdk")]
    &dpdk::from_dpdk_ring::CLASS,
    #[cfg(feature = "dpdk")]
    &dpdk::to_dpdk_device::CLASS,
    #[cfg(feature = "dpdk")]
    &dpdk::to_dpdk_ring::CLASS,
];
