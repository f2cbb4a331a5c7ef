//! Ports: what a device can do, how it is set up, started and closed.

use std::ffi::{CStr, CString};
use std::net::Ipv4Addr;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use packet::wire::ethernet::MacAddr;

use crate::dpdk::eal::{self, Huge, because, unsupported};
use crate::dpdk::mbufs::{self, CACHE_HOLDS, Line, Reservation};
use crate::dpdk::queues::{DpdkRx, DpdkTx};
use crate::dpdk::shim::{self, Counts, Device, Setup};
use crate::steering::{HashFields, Steering};
use crate::{Handout, OpenOptions, Port, PortError, PortInfo, RxQueue, Spec, TxQueue};

/// Slots of a receive or transmit ring.
const DEFAULT_SLOTS: u64 = 1_024;
/// Mbufs beside those in rings and caches: on their way through the graph.
const DEFAULT_MBUFS: u64 = 4_096;
/// Bytes around the payload: Ethernet header and two VLAN tags.
const AROUND_MTU: usize = 14 + 8;

/// What is hashed by default, as far as the device can (RTE_ETH_RSS_IP and its kin, rte_ethdev.h).
mod rss {
    /// IPv4 and IPv6: whole, fragments, other protocols, and with extension headers (bits 2, 3, 7, 8, 9, 13, 15).
    pub(super) const ADDRESSES: u64 = 1 << 2 | 1 << 3 | 1 << 7 | 1 << 8 | 1 << 9 | 1 << 13 | 1 << 15;
    /// TCP and UDP over both (bits 4, 5, 10, 11, 16, 17).
    pub(super) const PORTS: u64 = 1 << 4 | 1 << 5 | 1 << 10 | 1 << 11 | 1 << 16 | 1 << 17;
}

/// Offloads of a device (rte_ethdev.h) that a graph could use; shown, not switched on.
const OFFLOADS: [(bool, u64, &str); 6] = [
    (true, 1 << 1, "IPv4 checksum on receipt"),
    (true, 1 << 2, "UDP checksum on receipt"),
    (true, 1 << 3, "TCP checksum on receipt"),
    (false, 1 << 1, "IPv4 checksum on sending"),
    (false, 1 << 2, "UDP checksum on sending"),
    (false, 1 << 3, "TCP checksum on sending"),
];

/// Drivers of devices at whose other end is one peer or none.
const CABLES: [&str; 5] = ["net_null", "net_ring", "net_memif", "net_pcap", "net_tap"];

/// Drivers of devices that receive all frames without being asked.
const RECEIVE_ALL: [&str; 2] = ["net_pcap", "net_vhost"];

/// An open device, shared by the port and its queues.
#[derive(Debug)]
pub(super) struct OpenDevice {
    pub(super) name: String,
    pub(super) port: u16,
    pub(super) mbufs: Reservation,
    pub(super) warn: fn(&str),
}

impl OpenDevice {
    pub(super) fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        #[allow(unsafe_code, reason = "the shim")]
        // SAFETY: the port is open. A device without counts leaves zeros.
        unsafe {
            shim::brickway_dpdk_counts(self.port, &raw mut counts);
        }
        counts
    }
}

impl Drop for OpenDevice {
    fn drop(&mut self) {
        let mut devices = eal::devices();
        shim::brickway_dpdk_close(self.port);
        devices.remove(&self.name);
    }
}

/// Closes a device that was probed, unless it became a port.
struct Probed {
    device: Device,
    is_port: bool,
}

impl Drop for Probed {
    fn drop(&mut self) {
        if !self.is_port {
            shim::brickway_dpdk_close(self.device.port);
        }
    }
}

/// A device of DPDK.
pub(crate) struct DpdkPort {
    info: PortInfo,
    rx: Handout<DpdkRx>,
    tx: Handout<DpdkTx>,
    is_cable: bool,
    limits: Device,
    device: Arc<OpenDevice>,
}

/// A key with which both directions of a flow have the same hash (Woo and Park, "Scalable TCP Session Monitoring with
/// Symmetric Receive-side Scaling", 2012): two bytes, again and again.
fn symmetric_key(bytes: usize) -> Vec<u8> {
    [0x6d, 0x5a].into_iter().cycle().take(bytes).collect()
}

/// Bytes of a device's hash key: 40, Toeplitz' for two IPv6 addresses and two ports, where the driver does not say.
fn key_bytes(device: &Device) -> usize {
    if device.key_bytes == 0 { 40 } else { usize::from(device.key_bytes) }
}

impl DpdkPort {
    pub(crate) fn open(spec: &mut Spec, options: &OpenOptions) -> Result<Self, PortError> {
        let devargs = spec.name().to_owned();
        let name = devargs.split(',').next().unwrap_or_default().to_owned();
        if name.is_empty() {
            let problem = "the device is missing, as in `dpdk:0000:03:00.0` or `dpdk:net_null0`".to_owned();
            return Err(PortError::BadSpec { spec: spec.text().to_owned(), problem });
        }
        if devargs.contains('&') {
            let problem =
                "options of the port stand behind a `?`, arguments of the device behind a comma".to_owned();
            return Err(PortError::BadSpec { spec: spec.text().to_owned(), problem });
        }
        let slots = spec.take_number("ring", (32, 32_768))?.unwrap_or(DEFAULT_SLOTS) as u16;
        let more_mbufs = spec.take_number("mbufs", (1, 1 << 26))?.unwrap_or(DEFAULT_MBUFS) as u32;
        let mtu = spec.take_number("mtu", (68, 65_000))?.map(|mtu| mtu as u16);
        let promiscuous = spec.take_switch("promiscuous", false)?;
        let symmetric = spec.take_switch("symmetric", false)?;
        let choices = [("auto", Huge::Auto), ("yes", Huge::Yes), ("no", Huge::No)];
        let huge = spec.take_choice("huge", &choices)?.unwrap_or(Huge::Auto);

        let frame_bytes = usize::from(mtu.unwrap_or(1_500)) + AROUND_MTU;
        let wanted = (options.rx_queues.max(1), options.tx_queues.max(1));
        let bytes = mbufs::pool_bytes(mbufs_for(wanted.0, wanted.1, slots, more_mbufs), frame_bytes);
        let eal = eal::start(&name, bytes, huge, options.warn)?;
        if eal::is_pci(&name) && !eal.huge {
            let problem =
                "a PCI device needs huge pages, and DPDK runs without them; reserve some with `sysctl \
                           vm.nr_hugepages=512` and start again"
                    .to_owned();
            return Err(unsupported(&name, problem));
        }

        let mut devices = eal::devices();
        if devices.contains(&name) {
            return Err(PortError::InUse { port: name, user: "another port of this process".to_owned() });
        }
        let mut probed = probe(&devargs, &name)?;
        let device = probed.device;
        let rx_queues = options.rx_queues.min(usize::from(device.most_rx_queues));
        if rx_queues < options.rx_queues {
            (options.warn)(&format!(
                "port {name}: {} receive queues were asked for, the device has {rx_queues}",
                options.rx_queues
            ));
        }
        // Every thread that sends gets a queue; where the device has fewer, they share.
        let tx_queues = wanted.1.min(usize::from(device.most_tx_queues).max(1));
        if let Some(mtu) = mtu
            && !(device.least_mtu..=device.most_mtu).contains(&mtu)
        {
            let expected = format!("an MTU from {} to {}", device.least_mtu, device.most_mtu);
            return Err(spec.bad_value("mtu", &mtu.to_string(), &expected));
        }
        let mbufs = mbufs_for(rx_queues.max(1), wanted.1, slots, more_mbufs);
        let mbufs = Reservation::make(&name, device.socket, mbufs, frame_bytes)?;

        let rss_fields = if rx_queues > 1 { device.rss_fields & (rss::ADDRESSES | rss::PORTS) } else { 0 };
        if rx_queues > 1 && rss_fields == 0 && !devargs.contains("rx_pcap") {
            (options.warn)(&format!(
                "port {name}: the driver does not spread flows over its {rx_queues} receive queues by itself"
            ));
        }
        let key = if symmetric { symmetric_key(key_bytes(&device)) } else { Vec::new() };
        let setup = Setup {
            pool: mbufs.pool(),
            key: if key.is_empty() { ptr::null() } else { key.as_ptr() },
            rss_fields,
            rx_queues: rx_queues as u16,
            tx_queues: tx_queues as u16,
            rx_slots: slots,
            tx_slots: slots,
            mtu: mtu.unwrap_or(0),
            key_bytes: key.len() as u16,
        };
        if let Err(error) = start(&name, device.port, &setup) {
            // DPDK 22.11's net_pcap crashes when it is closed with a loop that it had no mbufs for: it is left as it is.
            probed.is_port = name.starts_with("net_pcap");
            return Err(error);
        }
        probed.is_port = true;
        devices.insert(name.clone());
        let device = Arc::new(OpenDevice { name, port: device.port, mbufs, warn: options.warn });
        drop(devices);

        let mut port = Self::new(device, probed.device, &devargs, rx_queues, (wanted.1, tx_queues));
        if promiscuous {
            port.set_promiscuous()?;
        }
        port.receive_all_multicast();
        Ok(port)
    }

    /// `tx_queues`: those asked for, and those of the device.
    fn new(
        device: Arc<OpenDevice>,
        limits: Device,
        devargs: &str,
        rx_queues: usize,
        tx_queues: (usize, usize),
    ) -> Self {
        let mut mtu = 0;
        #[allow(unsafe_code, reason = "the shim")]
        // SAFETY: the port is open.
        let result = unsafe { shim::brickway_dpdk_mtu(device.port, &raw mut mtu) };
        let mtu = if result == 0 { usize::from(mtu) } else { 1_500 };
        // What an mbuf holds may be less than what a virtual device calls its MTU.
        let mtu = mtu.min(device.mbufs.data_bytes() - AROUND_MTU);
        let driver = driver_name(&limits);
        // Over these net_pcap works on an interface of Linux, which has neighbours.
        let is_interface = devargs.contains("iface=") && driver == "net_pcap";
        let is_cable = CABLES.contains(&driver.as_str()) && !is_interface;
        let mut mac = MacAddr(limits.mac);
        if driver == "net_tap" {
            // The device's address is that of the interface that Linux sees; ours is the other end of its cable.
            mac.0[5] ^= 1;
        }
        let line = if is_cable { Line::cable() } else { Line::network(mac) };
        let receivers = (0..rx_queues).map(|queue| DpdkRx::new(Arc::clone(&device), queue as u16, line));
        let (wanted, there) = tx_queues;
        let shared: Vec<_> = (0..there).map(|_| Arc::new(AtomicBool::new(false))).collect();
        let senders = (0..wanted).map(|number| {
            let queue = number % there;
            let is_shared = queue + there < wanted || number >= there;
            let busy = is_shared.then(|| Arc::clone(&shared[queue]));
            DpdkTx::new(Arc::clone(&device), number, queue as u16, busy, mtu + AROUND_MTU)
        });
        let name = device.name.clone();
        let (rx, tx) = (Handout::new(&name, "receive", receivers), Handout::new(&name, "transmit", senders));
        let info = PortInfo { name, driver: "dpdk", mac, mtu, rx_queues: rx.count(), tx_queues: tx.count() };
        Self { info, rx, tx, is_cable, limits, device }
    }

    /// Has the device receive all multicast frames: which groups are the host's only Linux knows, as with interfaces that programs
    /// capture from. Else neighbour discovery of IPv6, OSPF and VRRP would not be heard.
    fn receive_all_multicast(&mut self) {
        eal::forget_log();
        let result = shim::brickway_dpdk_all_multicast(self.device.port);
        let (name, driver) = (&self.info.name, driver_name(&self.limits));
        if result >= 0 || self.is_cable || RECEIVE_ALL.contains(&driver.as_str()) {
            return;
        }
        let why = because(result);
        (self.device.warn)(&match shim::brickway_dpdk_promiscuous(self.device.port) {
            0.. => format!(
                "port {name}: driver {driver} cannot receive all multicast ({why}), so it receives frames to other hosts too"
            ),
            _ => format!(
                "port {name}: driver {driver} cannot receive all multicast ({why}): IPv6 finds no neighbours, and OSPF and VRRP hear \
                 nothing"
            ),
        });
    }

    fn failed(&self, what: &str, code: i32) -> PortError {
        let driver = driver_name(&self.limits);
        unsupported(&self.info.name, format!("{what} does not work with driver {driver}: {}", because(code)))
    }
}

/// Mbufs that a port may hold: all rings full, all caches full, and those on their way.
fn mbufs_for(rx_queues: usize, tx_queues: usize, slots: u16, more: u32) -> u32 {
    let queues = (rx_queues + tx_queues) as u32;
    queues * (u32::from(slots) + CACHE_HOLDS) + more
}

fn driver_name(device: &Device) -> String {
    let bytes: Vec<u8> = device.driver.iter().map(|&byte| byte as u8).take_while(|&byte| byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn probe(devargs: &str, name: &str) -> Result<Probed, PortError> {
    let no_nul = |text: &str| CString::new(text).expect("a spec has no NUL");
    let (c_devargs, c_name) = (no_nul(devargs), no_nul(name));
    let mut device = Device::default();
    eal::forget_log();
    #[allow(unsafe_code, reason = "the shim")]
    // SAFETY: both texts and the place for the result live for the call.
    let result = unsafe { shim::brickway_dpdk_probe(c_devargs.as_ptr(), c_name.as_ptr(), &raw mut device) };
    if result < 0 {
        return Err(unsupported(name, eal::no_device(devargs, name, result)));
    }
    Ok(Probed { device, is_port: false })
}

fn start(name: &str, port: u16, setup: &Setup) -> Result<(), PortError> {
    let mut step = ptr::null();
    eal::forget_log();
    #[allow(unsafe_code, reason = "the shim")]
    // SAFETY: the port was probed; the setup, its key and the place for the step live for the call.
    let result = unsafe { shim::brickway_dpdk_start(port, setup, &raw mut step) };
    if result >= 0 {
        return Ok(());
    }
    #[allow(unsafe_code, reason = "a text of the shim")]
    // SAFETY: a failed start names its step, a literal.
    let step = unsafe { CStr::from_ptr(step) }.to_string_lossy();
    let reason = because(result);
    let hint = if result == -libc::ENOMEM || reason.contains("mbufs") || reason.contains("alloc") {
        "; more mbufs help, if a driver keeps some (`mbufs=`; net_pcap with infinite_rx needs one for each packet of \
         its file)"
    } else {
        ""
    };
    Err(unsupported(name, format!("{step} failed: {reason}{hint}")))
}

impl Port for DpdkPort {
    fn info(&self) -> PortInfo {
        self.info.clone()
    }

    fn take_rx(&mut self, queue: usize) -> Result<Box<dyn RxQueue>, PortError> {
        Ok(Box::new(self.rx.take(queue)?))
    }

    fn take_tx(&mut self, queue: usize) -> Result<Box<dyn TxQueue>, PortError> {
        Ok(Box::new(self.tx.take(queue)?))
    }

    fn set_promiscuous(&mut self) -> Result<(), PortError> {
        eal::forget_log();
        let result = shim::brickway_dpdk_promiscuous(self.device.port);
        // A cable without such a mode receives everything anyway.
        if result >= 0 || (self.is_cable && result == -libc::ENOTSUP) {
            return Ok(());
        }
        Err(self.failed("promiscuous mode", result))
    }

    fn has_link(&self) -> Option<bool> {
        let mut megabits = 0;
        #[allow(unsafe_code, reason = "the shim")]
        // SAFETY: the port is open.
        let result = unsafe { shim::brickway_dpdk_link(self.device.port, &raw mut megabits) };
        (result >= 0).then_some(result == 1)
    }

    fn steering(&mut self) -> Option<&mut dyn Steering> {
        Some(self)
    }

    fn details(&self) -> String {
        let mut megabits = 0;
        #[allow(unsafe_code, reason = "the shim")]
        // SAFETY: the port is open.
        let link = match unsafe { shim::brickway_dpdk_link(self.device.port, &raw mut megabits) } {
            1 if megabits == u32::MAX => "up".to_owned(),
            1 => format!("up at {megabits} Mbps"),
            0 => "down".to_owned(),
            _ => "unknown".to_owned(),
        };
        let able = OFFLOADS.iter().filter(|(rx, bit, _)| {
            let offloads = if *rx { self.limits.rx_offloads } else { self.limits.tx_offloads };
            offloads & bit != 0
        });
        let able: Vec<&str> = able.map(|&(_, _, name)| name).collect();
        let able = if able.is_empty() { "none".to_owned() } else { able.join(", ") };
        format!(
            "device {} link {link} queues at most {}/{} buckets {} offloads (not used) {able}",
            driver_name(&self.limits),
            self.limits.most_rx_queues,
            self.limits.most_tx_queues,
            self.limits.reta_size,
        )
    }
}

impl Steering for DpdkPort {
    fn reta(&self) -> Result<Vec<u16>, PortError> {
        let mut queues = vec![0; usize::from(self.limits.reta_size)];
        if queues.is_empty() {
            return Err(self.failed("an indirection table", -libc::ENOTSUP));
        }
        eal::forget_log();
        #[allow(unsafe_code, reason = "the shim")]
        // SAFETY: the port is open, the vector as long as said.
        let result =
            unsafe { shim::brickway_dpdk_reta(self.device.port, queues.as_mut_ptr(), self.limits.reta_size) };
        if result < 0 { Err(self.failed("reading the indirection table", result)) } else { Ok(queues) }
    }

    fn set_reta(&mut self, queues: &[u16]) -> Result<(), PortError> {
        let (size, there) = (usize::from(self.limits.reta_size), self.info.rx_queues);
        if queues.len() != size {
            let problem = format!(
                "an indirection table of {} buckets was given; the device's has {size}",
                queues.len()
            );
            return Err(unsupported(&self.info.name, problem));
        }
        if let Some(queue) = queues.iter().find(|&&queue| usize::from(queue) >= there) {
            let problem =
                format!("a bucket is to go to receive queue {queue}; there are {there}, counted from 0");
            return Err(unsupported(&self.info.name, problem));
        }
        eal::forget_log();
        #[allow(unsafe_code, reason = "the shim")]
        // SAFETY: the port is open, the slice as long as said.
        let result =
            unsafe { shim::brickway_dpdk_set_reta(self.device.port, queues.as_ptr(), self.limits.reta_size) };
        if result < 0 { Err(self.failed("changing the indirection table", result)) } else { Ok(()) }
    }

    fn set_hash(&mut self, key: Option<&[u8]>, fields: HashFields) -> Result<(), PortError> {
        let length = key_bytes(&self.limits);
        if let Some(key) = key.filter(|key| key.len() != length) {
            let problem = format!("a hash key of {} bytes was given; the device's has {length}", key.len());
            return Err(unsupported(&self.info.name, problem));
        }
        let wanted = match fields {
            HashFields::Addresses => rss::ADDRESSES,
            HashFields::AddressesAndPorts => rss::ADDRESSES | rss::PORTS,
        };
        let able = wanted & self.limits.rss_fields;
        if able == 0 {
            return Err(self.failed("hashing addresses", -libc::ENOTSUP));
        }
        eal::forget_log();
        let (key, key_bytes) = key.map_or((ptr::null(), 0), |key| (key.as_ptr(), key.len() as u8));
        #[allow(unsafe_code, reason = "the shim")]
        // SAFETY: the port is open, the key as long as said or not there.
        let result = unsafe { shim::brickway_dpdk_set_hash(self.device.port, key, key_bytes, able) };
        if result < 0 { Err(self.failed("changing the hash", result)) } else { Ok(()) }
    }

    fn steer_prefix(&mut self, prefix: Ipv4Addr, length: u8, queue: u16) -> Result<(), PortError> {
        if length > 32 || usize::from(queue) >= self.info.rx_queues {
            let there = self.info.rx_queues;
            let problem = format!(
                "{prefix}/{length} cannot go to receive queue {queue}: a length is at most 32, and there are {there} \
                 queues, counted from 0"
            );
            return Err(unsupported(&self.info.name, problem));
        }
        let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
        let address = u32::from(prefix) & mask;
        let mut problem = [0; 256];
        eal::forget_log();
        #[allow(unsafe_code, reason = "the shim")]
        // SAFETY: the port is open; the array has so much room, and the shim terminates what it writes.
        let (result, problem) = unsafe {
            let text = problem.as_mut_ptr();
            let result =
                shim::brickway_dpdk_steer(self.device.port, address, mask, queue, text, problem.len());
            (result, CStr::from_ptr(text).to_string_lossy().into_owned())
        };
        if result < 0 {
            let what = format!("steering {prefix}/{length} to a queue ({problem})");
            return Err(self.failed(&what, result));
        }
        Ok(())
    }
}

/// Starts DPDK's environment as tests share it.
#[cfg(test)]
pub(crate) fn start_for_tests() {
    eal::start("test", 0, eal::Huge::No, |_| {}).unwrap();
}

#[cfg(test)]
mod tests;
