//! Ports of DPDK 22.11: every device that it has a driver for, packets in its mbufs and never copied.
//!
//! # Where things lie
//!
//! ```text
//! mbuf                  private area           data room
//! | struct rte_mbuf 128 | metadata 128         | head room 128 | data ... | tail room |
//! ^ line 0   ^ line 1   ^ line 2   ^ line 3    ^ buf_addr      ^ buf_addr + data_off
//!                       '------------- a packet's chunk ---------------------------'
//! ```
//!
//! The private area that DPDK leaves to applications behind each mbuf is exactly our metadata, and its head room is
//! ours, so the chunk of a packet starts at `mbuf + 128` and there is no second descriptor anywhere. Per packet DPDK
//! itself touches lines 0 and 1 (it resets both when it takes an mbuf from the pool) and the data; receiving touches
//! line 0 (it must be one segment, of the port's pool), the first bytes of the data (the packet type) and the metadata
//! (lines 2 and 3, written, not read); sending reads lines 0 and 2, and writes place and length to line 0 where they
//! are not what they were. With AVX-512 a line is looked at and written whole (`wide`).
//!
//! What it costs (64-byte packets over looped `net_pcap`, one Zen 5 core, CPU time in TSC cycles a packet, from a profile): DPDK itself 25.5,
//! receiving 3 (of which the packet type 1, line 3 a third of one), sending 2, calls and the loop 1. The loop without
//! AVX-512 takes 3 more.
//!
//! # Who owns what
//!
//! From `rx_burst` to `tx_burst` an mbuf belongs to its one [`packet::Packet`]. Dropping that gives it back to its
//! mempool, from any thread; sending gives it to the device. Packets that lie elsewhere (made by an element, received
//! from another kind of port) are copied into mbufs when they are sent. Mempools live as long as the process, so a
//! packet may outlive its port.
//!
//! A port and its queues share the open device; the last of them stops, closes and unplugs it.
//!
//! # The environment
//!
//! DPDK's environment starts with the first port, once a process: without files (`--in-memory`), telemetry or pinned
//! threads, on huge pages when enough are free, else without, which it says. More words for it come from the variable
//! `BRICKWAY_EAL` (`BRICKWAY_EAL="-a 0000:03:00.0 --iova-mode=va"`). Workers register as threads of DPDK when they
//! first look at a queue: only then have they a cache of mbufs.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `port` | ports |
//! | `eal` | the environment: start, log, threads |
//! | `mbufs` | mempools; mbufs to packets and back |
//! | `queues` | receive and transmit queues |
//! | `ring` | `rte_ring`s as ports |
//! | `wide` | mbufs to packets on CPUs with AVX-512 |
//! | `shim` | declarations of the C side (`shim/dpdk.c`) |

#[cfg(feature = "dpdk")]
mod eal;
#[cfg(feature = "dpdk")]
mod mbufs;
#[cfg(feature = "dpdk")]
mod port;
#[cfg(feature = "dpdk")]
mod queues;
#[cfg(feature = "dpdk")]
mod ring;
#[cfg(feature = "dpdk")]
mod shim;
#[cfg(feature = "dpdk")]
mod wide;

#[cfg(all(test, feature = "dpdk"))]
pub(crate) use port::start_for_tests;

use crate::DriverDoc;
#[cfg(not(feature = "dpdk"))]
use crate::PortError;
use crate::spec::{Open, option};

#[cfg(feature = "dpdk")]
const OPEN_DPDK: Open = |spec, options| Ok(Box::new(port::DpdkPort::open(spec, options)?));
#[cfg(feature = "dpdk")]
const OPEN_DPDK_RING: Open = |spec, options| Ok(Box::new(ring::RingPort::open(spec, options)?));
#[cfg(not(feature = "dpdk"))]
const OPEN_DPDK: Open = |spec, _| {
    Err(PortError::BadSpec {
        spec: spec.text().to_owned(),
        problem: "this program was built without DPDK; build it with `--features dpdk`".to_owned(),
    })
};
#[cfg(not(feature = "dpdk"))]
const OPEN_DPDK_RING: Open = OPEN_DPDK;

/// The driver, as specs name it.
pub(crate) static DRIVER: DriverDoc = DriverDoc {
    name: "dpdk",
    what: "DEVICE[,ARGUMENTS]",
    help: "a device of DPDK 22.11: a PCI address, or a virtual device with its arguments (feature `dpdk`)",
    options: &[
        option("ring", "SLOTS", "slots of each receive and transmit ring (default 1024)"),
        option("mbufs", "NUMBER", "packet buffers beside those in rings and caches (default 4096)"),
        option("mtu", "BYTES", "the device's MTU (default: as it is)"),
        option("promiscuous", "yes|no", "receive frames to other hosts too (default no)"),
        option("symmetric", "yes|no", "both directions of a flow to the same receive queue (default no)"),
        option(
            "huge",
            "auto|yes|no",
            "huge pages for DPDK, at the first port (default: when enough are free)",
        ),
    ],
    open: OPEN_DPDK,
    ..DriverDoc::DEFAULT
};

/// The driver, as specs name it.
pub(crate) static RING: DriverDoc = DriverDoc {
    name: "dpdk_ring",
    what: "NAME",
    help: "a ring of DPDK, within this process or to another (feature `dpdk`)",
    options: &[
        option("slots", "NUMBER", "packets that the ring holds, if it is made now (default 1024)"),
        option("node", "NUMBER", "memory node of the ring (default: any)"),
    ],
    open: OPEN_DPDK_RING,
    ..DriverDoc::DEFAULT
};
