//! =c
//! FromDPDKDevice(PORT, [QUEUE, N_QUEUES, I<keywords> PROMISC, BURST, NDESC, ALLOW_NONEXISTENT, ACTIVE])
//!
//! =s devices
//! receives packets from a device of DPDK
//!
//! =d
//! FromDevice with FastClick's name and arguments. PORT is one of a PCI address (`0000:03:00.0`), a
//! virtual device of DPDK, or a name given by the command line (`--port NAME=dpdk:...`). A virtual
//! device has its arguments (`"net_pcap0,rx_pcap=in.pcap"`), in quotes when there is a comma.
//! Numbers of DPDK are not names here. Each worker has a receive queue of its own, as far as the
//! device has as many.
//!
//! Arguments are:
//!
//! QUEUE, N_QUEUES: only 0 and -1, the defaults, with which the workers have the queues.
//!
//! PROMISC: boolean. Whether to receive packets to other hosts too. False by default.
//!
//! BURST: packets received at a time, 1 to 256. The router's burst by default.
//!
//! NDESC: slots of each ring of the device, 32 to 32768, 1024 by default. The element that names
//! the device first decides.
//!
//! ALLOW_NONEXISTENT: boolean. If true and the device cannot be opened, this is Idle. False by default.
//!
//! ACTIVE: boolean. If false, the device is opened and nothing received. True by default.
//!
//! Handlers are FromDevice's.
//!
//! =e
//!   FromDPDKDevice(0000:03:00.0, PROMISC true) -> ... -> ToDPDKDevice(0000:03:00.1)
//!
//! =a ToDPDKDevice, FromDPDKRing, FromDevice

use elements::devices::from_device;
use graph::{Class, ConfigError, Element, Setup};

use super::DpdkPort;

pub(crate) static CLASS: Class = Class {
    name: "FromDPDKDevice",
    aliases: &[],
    manual: graph::manual!("from_dpdk_device.rs"),
    make,
    ..from_device::CLASS
};

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let port = DpdkPort::of_device(setup)?;
    let promiscuous = setup.arguments.keyword_or("PROMISC", false)?;
    let burst: Option<usize> = setup.arguments.keyword("BURST")?;
    let allow = setup.arguments.keyword_or("ALLOW_NONEXISTENT", false)?;
    let active = setup.arguments.keyword_or("ACTIVE", true)?;
    setup.arguments.finish()?;
    let mut more = format!(", PROMISC {promiscuous}");
    if let Some(burst) = burst {
        more += &format!(", BURST {burst}");
    }
    match port.open(setup, &more) {
        Err(_) if allow => Ok(Box::new(Silent)),
        Err(error) => Err(error),
        Ok(()) if !active => Ok(Box::new(Silent)),
        Ok(()) => (from_device::CLASS.make)(setup),
    }
}

/// Receives nothing.
struct Silent;

impl Element for Silent {
    fn has_handler(&self, _name: &str) -> bool {
        false
    }
}
