//! =c
//! ToDPDKRing(MEM_POOL, I<keywords> FROM_PROC, TO_PROC, [BURST, TIMEOUT, BLOCKING, IQUEUE, NDESC, NUMA_ZONE])
//!
//! =s devices
//! sends packets to another graph through a ring of DPDK
//!
//! =d
//! Sends packets to the FromDPDKRing with the same MEM_POOL and with FROM_PROC and TO_PROC exchanged; see there. Any
//! number of workers may send. Packets that lie elsewhere than in DPDK's memory are copied into it.
//!
//! Arguments are:
//!
//! FROM_PROC: a name for the process with this element.
//!
//! TO_PROC: a name for the process at the other end.
//!
//! BURST, TIMEOUT, BLOCKING, IQUEUE: as of ToDPDKDevice.
//!
//! NDESC: packets that the ring holds, 1024 by default. The end that comes first decides.
//!
//! NUMA_ZONE: the memory node of the ring. Any by default.
//!
//! Handlers are ToDevice's.
//!
//! =e
//!   ... -> ToDPDKRing(1, FROM_PROC firewall, TO_PROC router)
//!
//! =a FromDPDKRing, ToDPDKDevice

use elements::devices::to_device;
use graph::{Class, ConfigError, Element, Setup};

use super::{DpdkPort, sending};

pub(crate) static CLASS: Class =
    Class { name: "ToDPDKRing", manual: graph::manual!("to_dpdk_ring.rs"), make, ..to_device::CLASS };

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let port = DpdkPort::of_ring(setup, true)?;
    let more = sending(setup)?;
    setup.arguments.finish()?;
    port.open(setup, &more)?;
    (to_device::CLASS.make)(setup)
}
