//! =c
//! PollDevice(DEVNAME, [PROMISC, SNAPLEN, I<keywords> BURST, STOP, SNIFFER])
//!
//! =s devices
//! receives packets from a port
//!
//! =d
//! Another name of FromDevice, for configurations that were written for Click in the Linux kernel: every port is
//! polled here.
//!
//! =e
//!   PollDevice(eth0) -> Classifier(12/0800) -> ...
//!
//! =a FromDevice, ToDevice

use elements::devices::from_device;
use graph::Class;

pub(crate) static CLASS: Class = Class {
    name: "PollDevice",
    manual: graph::manual!("poll_device.rs"),
    make: from_device::make,
    ..from_device::CLASS
};
