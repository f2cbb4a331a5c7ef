//! =c
//! FromDPDKRing(MEM_POOL, I<keywords> FROM_PROC, TO_PROC, [BURST, NDESC, NUMA_ZONE])
//!
//! =s devices
//! receives packets from another graph through a ring of DPDK
//!
//! =d
//! Receives the packets that a ToDPDKRing sends, in this process or in another that shares DPDK's
//! memory with it. Start the first process with `BRICKWAY_EAL="--file-prefix=NAME"`, and the others
//! with `BRICKWAY_EAL="--proc-type=secondary --file-prefix=NAME"`. Packets are not copied. One
//! worker receives.
//!
//! Arguments are:
//!
//! MEM_POOL: a name that is part of the ring's. Both ends give the same.
//!
//! FROM_PROC: a name for the process with this element. It is the TO_PROC of the ToDPDKRing.
//!
//! TO_PROC: a name for the process at the other end. It is the FROM_PROC of the ToDPDKRing.
//!
//! BURST: packets received at a time, 1 to 256. The router's burst by default.
//!
//! NDESC: packets that the ring holds, 1024 by default. The end that comes first decides.
//!
//! NUMA_ZONE: the memory node of the ring. Any by default.
//!
//! Handlers are FromDevice's.
//!
//! =e
//!   FromDPDKRing(1, FROM_PROC router, TO_PROC firewall) -> ...
//!
//! =a ToDPDKRing, FromDPDKDevice

use elements::devices::from_device;
use graph::{Class, ConfigError, Element, Setup};

use super::DpdkPort;

pub(crate) static CLASS: Class = Class {
    name: "FromDPDKRing",
    aliases: &[],
    manual: graph::manual!("from_dpdk_ring.rs"),
    make,
    ..from_device::CLASS
};

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let port = DpdkPort::of_ring(setup, false)?;
    let burst: Option<usize> = setup.arguments.keyword("BURST")?;
    setup.arguments.finish()?;
    port.open(setup, &burst.map_or(String::new(), |burst| format!(", BURST {burst}")))?;
    (from_device::CLASS.make)(setup)
}
