//! =c
//! KernelTap(ADDR/MASK, [GATEWAY, I<keywords> DEVNAME, MTU, ETHER, BURST, HEADROOM, IGNORE_QUEUE_OVERFLOWS])
//!
//! =s devices
//! exchanges Ethernet frames with Linux over a virtual interface
//!
//! =d
//! Makes a virtual Ethernet interface of this host (a TAP device) with the address ADDR/MASK. The frames that Linux sends
//! by it leave by output 0; frames that come in are given to Linux as if they had come in by the interface. The arguments
//! are those of KernelTun.
//!
//! Linux asks for link addresses by ARP before it sends; an ARPResponder can answer with any.
//!
//! =e
//!   tap :: KernelTap(192.0.2.1/24) -> kind :: Classifier(12/0806, 12/0800);
//!   kind[0] -> ARPResponder(0.0.0.0/0 1:1:1:1:1:1) -> tap;
//!   kind[1] -> ...
//!
//! =a KernelTun, FromHost, ToHost, ARPResponder

use graph::Class;

use super::kernel_tun::{self, make};

pub(crate) static CLASS: Class = Class {
    name: "KernelTap",
    manual: graph::manual!("kernel_tap.rs"),
    make: |setup| make(setup, true),
    ..kernel_tun::CLASS
};
