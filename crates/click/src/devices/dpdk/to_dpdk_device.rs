//! =c
//! ToDPDKDevice(PORT, [QUEUE, N_QUEUES, I<keywords> BURST, TIMEOUT, BLOCKING, IQUEUE, NDESC])
//!
//! =s devices
//! sends packets to a device of DPDK
//!
//! =d
//! ToDevice with FastClick's name and arguments; see FromDPDKDevice for PORT, QUEUE, N_QUEUES and NDESC. Packets that
//! came from a device of DPDK are sent as they lie in memory, others are copied. It can pull too.
//!
//! Arguments are:
//!
//! BURST: packets sent at a time, 1 to 256. The router's burst by default.
//!
//! TIMEOUT: milliseconds that packets may wait until BURST are there. 0 by default: to the end of the worker's turn.
//!
//! BLOCKING: boolean. If true, which is the default, the worker receives nothing while the device has no room; if false
//! packets are dropped then.
//!
//! IQUEUE: accepted for configurations made for FastClick. Up to 256 packets wait for the device, and with BLOCKING what
//! was on its way behind them.
//!
//! Handlers are ToDevice's.
//!
//! =e
//!   ... -> ToDPDKDevice(0000:03:00.1, BLOCKING false)
//!
//! =a FromDPDKDevice, ToDPDKRing, ToDevice

use elements::devices::to_device;
use graph::{Class, ConfigError, Element, Setup};

use super::{DpdkPort, sending};

pub(crate) static CLASS: Class =
    Class { name: "ToDPDKDevice", manual: graph::manual!("to_dpdk_device.rs"), make, ..to_device::CLASS };

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let port = DpdkPort::of_device(setup)?;
    let more = sending(setup)?;
    setup.arguments.finish()?;
    port.open(setup, &more)?;
    (to_device::CLASS.make)(setup)
}
