//! =c
//! KernelTun(ADDR/MASK, [GATEWAY, I<keywords> TAP, DEVNAME, MTU, ETHER, BURST, HEADROOM, IGNORE_QUEUE_OVERFLOWS])
//!
//! =s devices
//! exchanges IP packets with Linux over a virtual interface
//!
//! =d
//! Makes a virtual interface of this host (a TUN device) with the address ADDR/MASK. The IP packets
//! that Linux sends by it leave by output 0, with their IP header marked and their destination
//! annotation set. Other packets leave by output 1 if that is connected. Packets that come in are
//! given to Linux as if they had come in by the interface. They are given from their network header
//! on, so a link header before it does no harm. With GATEWAY, an address of the interface's
//! network, a default route over it is made. The interface is gone when the router ends. Its input
//! is agnostic.
//!
//! Keyword arguments are:
//!
//! TAP: boolean. Whether packets begin with an Ethernet header, as with KernelTap. False by default.
//!
//! DEVNAME: the interface's name. By default the first of tun0, tun1 ... (tap0, tap1 ...) that is free.
//!
//! MTU: the interface's MTU in bytes. 1500 by default. Longer packets are dropped.
//!
//! ETHER: the Ethernet address of Linux's end, with TAP. The kernel chooses one by default.
//!
//! BURST: packets taken from Linux at a time. The router's burst by default.
//!
//! HEADROOM: bytes left free before the data, at most 128, which is what all packets have.
//!
//! IGNORE_QUEUE_OVERFLOWS: boolean. It is accepted and has no effect, as overflows are counted and
//! not printed.
//!
//! Packets are dropped as "no network header", "unknown IP version", "packet too small", "packet
//! larger than MTU", "not an IP packet" or "transmit queue full".
//!
//! =e
//!   tun :: KernelTun(192.0.2.1/24) -> ICMPPingResponder -> tun;
//!
//! =a KernelTap, FromHost, ToHost
//!
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

use std::net::Ipv4Addr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use elements::devices::from_host::ip;
use elements::devices::{Losses, OpenPort, Unopened};
use graph::arguments::Raw;
use graph::lang::unquote;
use graph::{
    Arguments, Class, Combine, ConfigError, Context, Element, FromArgument, Get, Handler, Setup, TaskStatus,
    Verdict, names,
};
use ipnet::Ipv4Net;
use packet::wire::ethernet::{HEADER_LEN, MacAddr};
use packet::wire::ipv4::Ipv4;
use packet::wire::ipv6::{self, Ipv6};
use packet::{Batch, MAX_BATCH, Packet};
use ports::{RxQueue, TxQueue};

pub(crate) static CLASS: Class = Class {
    name: "KernelTun",
    ports: "0-1/0-2",
    processing: "a/h",
    flow: "x/y",
    handlers: &[
        Handler::read(
            "dev_name",
            Combine::First,
            "The interface's name.",
            &Get(|e: &mut KernelTun| e.name.clone()),
        ),
        Handler::read(
            "packets",
            Combine::Sum,
            "Packets received from Linux.",
            &Get(|e: &mut KernelTun| e.rx.as_ref().map_or(0, |rx| rx.stats().packets).to_string()),
        ),
    ],
    manual: graph::manual!("kernel_tun.rs", "KernelTun"),
    make: |setup| {
        let is_tap = setup.arguments.keyword_or("TAP", false)?;
        make(setup, is_tap)
    },
    ..Class::DEFAULT
};

pub(crate) static TAP: Class = Class {
    name: "KernelTap",
    manual: graph::manual!("kernel_tun.rs", "KernelTap"),
    make: |setup| make(setup, true),
    ..CLASS
};

/// Head room of every packet, in bytes.
const HEADROOM: usize = 128;

/// Makes either element.
fn make(setup: &mut Setup<'_>, is_tap: bool) -> Result<Box<dyn Element>, ConfigError> {
    let wanted = Wanted::read(&mut setup.arguments, is_tap)?;
    if setup.is_check() {
        return Ok(Box::new(Unopened));
    }
    let copy = setup.copy();
    let device = setup.shared_by_copies(|| wanted.open(setup, is_tap))?;
    let receives = setup.outputs() > 0 && !copy.is_slow();
    Ok(Box::new(KernelTun {
        is_tap,
        mtu: wanted.mtu,
        burst: wanted.burst,
        rx: if receives { Some(device.port.take_rx(copy.index)?) } else { None },
        tx: device.port.take_tx(copy.index)?,
        name: device.name.clone(),
        pulls: setup.inputs() > 0 && setup.input_is_pull(0),
        waiting: Batch::new(),
        more_upstream: false,
        rx_losses: Losses::default(),
        tx_losses: Losses::default(),
        _device: device,
    }))
}

/// What the arguments say.
struct Wanted {
    address: Ipv4Net,
    gateway: Option<Ipv4Addr>,
    name: Option<String>,
    mac: Option<MacAddr>,
    mtu: usize,
    burst: Option<usize>,
}

impl Wanted {
    fn read(arguments: &mut Arguments, is_tap: bool) -> Result<Self, ConfigError> {
        let Raw(text) = arguments.required("ADDR")?;
        let address = interface_address(&unquote(&text)).ok_or_else(|| {
            format!("ADDR: expected IP address with prefix length, as in 192.0.2.1/24, got '{text}'")
        })?;
        let gateway: Option<Ipv4Addr> = arguments.optional("GATEWAY")?;
        let headroom = arguments.keyword_or("HEADROOM", HEADROOM)?;
        let burst: Option<usize> = arguments.keyword("BURST")?;
        let mac: Option<MacAddr> = arguments.keyword("ETHER")?;
        let _: Option<bool> = arguments.keyword("IGNORE_QUEUE_OVERFLOWS")?;
        let mtu = arguments.keyword_or("MTU", 1500)?;
        let old_name: Option<String> = arguments.keyword("DEV_NAME")?;
        let name: Option<String> = arguments.keyword("DEVNAME")?;
        arguments.finish()?;
        let gateway = gateway.filter(|gateway| !gateway.is_unspecified());
        if gateway.is_some_and(|gateway| !address.contains(&gateway)) {
            return Err(format!("bad GATEWAY: expected an address in {}", address.trunc()).into());
        }
        if burst.is_some_and(|burst| !(1..=MAX_BATCH).contains(&burst)) {
            return Err(format!("BURST must be >= 1 and at most {MAX_BATCH}").into());
        }
        if !(68..=65_521).contains(&mtu) {
            return Err(format!("MTU: expected 68 to 65521 bytes, got {mtu}").into());
        }
        if headroom > HEADROOM {
            return Err(format!("HEADROOM too big: packets have {HEADROOM} bytes").into());
        }
        let mac = mac.filter(|_| is_tap);
        Ok(Self { address, gateway, name: name.or(old_name), mac, mtu, burst })
    }

    /// Makes the interface and gives it its address.
    fn open(&self, setup: &Setup<'_>, is_tap: bool) -> Result<Device, ConfigError> {
        let kind = if is_tap { "tap" } else { "tun" };
        let free =
            || (0..).map(|number| format!("{kind}{number}")).find(|name| ports::addresses(name).is_none());
        let name = self.name.clone().or_else(free).unwrap_or_default();
        let mac = self.mac.map_or_else(String::new, |mac| format!("&mac={mac}"));
        let port = OpenPort::for_all_copies(setup, &format!("{kind}:{name}?mtu={}{mac}", self.mtu))?;
        ip(&["addr", "add", &self.address.to_string(), "dev", &name])?;
        if let Some(gateway) = self.gateway {
            ip(&["route", "add", "default", "via", &gateway.to_string(), "dev", &name])?;
        }
        Ok(Device { port, name })
    }
}

/// An address with its prefix length, which a name may stand for.
fn interface_address(text: &str) -> Option<Ipv4Net> {
    match text.contains('/') {
        true => Ipv4Net::from_argument(text),
        false => Ipv4Net::new(names::address(text)?, names::network(text)?.prefix_len()).ok(),
    }
}

/// The interface, for all copies of the element.
struct Device {
    port: OpenPort,
    name: String,
}

struct KernelTun {
    is_tap: bool,
    mtu: usize,
    burst: Option<usize>,
    /// `None` where nobody wants what Linux sends.
    rx: Option<Box<dyn RxQueue>>,
    tx: Box<dyn TxQueue>,
    name: String,
    pulls: bool,
    /// Packets that were pulled and for which the device had no room.
    waiting: Batch,
    /// Whether a pull may find packets of which nothing in the kernel tells.
    more_upstream: bool,
    rx_losses: Losses,
    tx_losses: Losses,
    _device: Arc<Device>,
}

impl KernelTun {
    /// Takes from Linux; how many.
    fn receive(&mut self, cx: &mut Context, max: usize) -> usize {
        let Some(rx) = &mut self.rx else { return 0 };
        let mut batch = cx.spare_batch();
        let count = rx.receive(cx.pool(), &mut batch, max);
        let now = cx.now_ns();
        batch.iter_mut().for_each(|packet| packet.set_timestamp_ns(now));
        if !self.is_tap {
            cx.filter(&mut batch, |packet| match mark(packet) {
                Some(()) => Verdict::Keep,
                None => Verdict::Divert(1, "not an IP packet"),
            });
        }
        cx.emit_batch(0, &mut batch);
        cx.recycle(batch);
        count
    }

    /// Leaves in `batch` what Linux can be given, as it wants it.
    fn prepare(&self, cx: &mut Context, batch: &mut Batch) {
        let (is_tap, mtu) = (self.is_tap, self.mtu);
        cx.filter(batch, |packet| match if is_tap { frame(packet, mtu) } else { ip_packet(packet, mtu) } {
            Ok(()) => Verdict::Keep,
            Err(reason) => Verdict::Drop(reason),
        });
    }

    /// Pulls and gives to Linux; whether anything moved.
    fn forward(&mut self, cx: &mut Context, max: usize) -> bool {
        let wanted = max.saturating_sub(self.waiting.len());
        let mut batch = cx.spare_batch();
        cx.pull(0, &mut batch, wanted);
        let mut moved = !batch.is_empty();
        self.more_upstream = moved || cx.upstream_active();
        self.prepare(cx, &mut batch);
        let count = batch.len();
        batch.move_front(&mut self.waiting, count);
        cx.recycle(batch);
        if !self.waiting.is_empty() {
            moved |= self.tx.send(cx.pool(), &mut self.waiting) > 0;
        }
        moved
    }
}

/// Marks the IP header of a packet from Linux.
fn mark(packet: &mut Packet) -> Option<()> {
    let data = packet.data();
    match data.first()? >> 4 {
        4 => {
            let header = Ipv4::new_unchecked(data.first_chunk::<20>()?);
            let (header_len, destination) = (header.header_len(), header.destination());
            if header_len < 20 || header_len > data.len() {
                return None;
            }
            packet.set_network_and_transport_header(0, header_len);
            packet.annotations_mut().set_destination_ip(destination.to_bits());
        }
        6 => {
            let destination = Ipv6::new_checked(data).ok()?.destination();
            packet.set_network_and_transport_header(0, ipv6::HEADER_LEN);
            packet.annotations_mut().set_destination_ip6(destination.to_bits());
        }
        _ => return None,
    }
    Some(())
}

/// Makes `packet` begin with its IP header.
fn ip_packet(packet: &mut Packet, mtu: usize) -> Result<(), &'static str> {
    const NO_HEADER: &str = "no network header";
    let offset = packet.network_offset().ok_or(NO_HEADER)?;
    let header = packet.network().filter(|header| header.len() >= 20).ok_or(NO_HEADER)?;
    if !matches!(header[0] >> 4, 4 | 6) {
        return Err("unknown IP version");
    }
    let moved = match usize::try_from(offset) {
        Ok(strip) => packet.strip(strip),
        Err(_) => packet.prepend(offset.unsigned_abs()).is_some(),
    };
    match (moved, packet.len() <= mtu) {
        (true, true) => Ok(()),
        (true, false) => Err("packet larger than MTU"),
        (false, _) => Err(NO_HEADER),
    }
}

fn frame(packet: &Packet, mtu: usize) -> Result<(), &'static str> {
    match packet.len() {
        ..HEADER_LEN => Err("packet too small"),
        length if length - HEADER_LEN > mtu => Err("packet larger than MTU"),
        _ => Ok(()),
    }
}

impl Element for KernelTun {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        if let Some(rx) = &mut self.rx {
            rx.prepare(cx.pool()).map_err(|error| error.to_string())?;
        }
        if self.rx.is_some() || self.pulls {
            cx.wake();
        }
        Ok(())
    }

    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        self.prepare(cx, batch);
        if !batch.is_empty() {
            self.tx.send(cx.pool(), batch);
            cx.drop_batch(batch, "transmit queue full");
        }
    }

    fn task(&mut self, cx: &mut Context) -> TaskStatus {
        let max = self.burst.unwrap_or(cx.burst());
        let received = self.receive(cx, max);
        let moved = self.pulls && self.forward(cx, max);
        if received > 0 || moved {
            return TaskStatus::Busy;
        }
        if self.rx.is_some() || self.more_upstream || !self.waiting.is_empty() {
            return TaskStatus::Idle;
        }
        TaskStatus::Asleep
    }

    fn wait_fds<'a>(&'a self, fds: &mut Vec<BorrowedFd<'a>>) -> bool {
        let fd = self.rx.as_ref().and_then(|rx| rx.wait_fd());
        fds.extend(fd);
        fd.is_some() && !self.more_upstream && self.waiting.is_empty()
    }

    fn settle(&mut self, cx: &mut Context) {
        if let Some(rx) = &self.rx {
            self.rx_losses.count(cx, &rx.stats());
        }
        self.tx_losses.count(cx, &self.tx.stats());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::testing::until;
    use crate::registry;
    use graph::setup::Shared;
    use graph::testing::{Bench, configure};
    use testbed::in_namespace;
    use testbed::ipv4::ipv4;

    #[test]
    fn linux_answers_a_ping_over_it() {
        in_namespace(|| {
            let config = "in :: TestInput -> Strip(2) -> MarkIPHeader -> Unstrip(2) -> t :: KernelTun(192.0.2.1/24, DEVNAME brk0)
                -> f :: IPFilter(allow icmp type echo-reply, drop all) -> out :: TestOutput";
            let mut bench = Bench::try_new(&registry(), config, 32, &Shared::default()).unwrap();
            assert_eq!(bench.read("t.dev_name"), "brk0");
            let echo = ipv4([192, 0, 2, 9], [192, 0, 2, 1], 1, &[8, 0, 0xf7, 0xfd, 0, 1, 0, 1]);
            bench.push("in", &[&[&[0, 0], &echo[..]].concat(), b"no", &[0; 40]]);
            assert_eq!(bench.stats("t").drops, [("no network header", 1), ("unknown IP version", 1)]);
            let mut reply = Vec::new();
            until(&mut bench, |bench| {
                reply.extend(bench.taken_packets("out"));
                !reply.is_empty()
            });
            assert_eq!(reply[0].data()[12..21], [192, 0, 2, 1, 192, 0, 2, 9, 0]);
            assert_eq!(reply[0].annotations().destination_ip(), 0xc000_0209);
        });
    }

    #[test]
    fn pulled_and_with_frames() {
        in_namespace(|| {
            let config = "in :: TestInput -> Queue -> t :: KernelTun(192.0.2.1/24, 192.0.2.9, TAP true, MTU 1400, ETHER 2:0:0:0:0:7)
                -> c :: Classifier(12/0806 20/0002) -> out :: TestOutput";
            let mut bench = Bench::try_new(&registry(), config, 32, &Shared::default()).unwrap();
            assert_eq!(bench.read("t.dev_name"), "tap0");
            let mut request = vec![0xff; 6];
            request.extend([2, 0, 0, 0, 0, 8, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 8, 192, 0, 2, 9]);
            request.extend([0, 0, 0, 0, 0, 0, 192, 0, 2, 1]);
            bench.push("in", &[&request[..], &[0; 13], &[0; 1500]]);
            until(&mut bench, |bench| {
                bench.taken("out").iter().any(|frame| frame[6..12] == [2, 0, 0, 0, 0, 7])
            });
            assert_eq!(bench.stats("t").drops, [("packet too small", 1), ("packet larger than MTU", 1)]);
        });
    }

    #[test]
    fn mistakes() {
        let error = |config: &str| configure(&CLASS, config).unwrap_err().remove(0);
        assert!(error("192.0.2.1").starts_with("ADDR: expected IP address with prefix length"));
        assert_eq!(error("192.0.2.1/24, 10.0.0.1"), "bad GATEWAY: expected an address in 192.0.2.0/24");
        assert!(error("192.0.2.1/24, BURST 0").contains("BURST must be >= 1"));
        assert!(error("192.0.2.1/24, MTU 20").contains("MTU: expected 68 to 65521"));
        assert!(error("192.0.2.1/24, HEADROOM 1000").contains("HEADROOM too big"));
    }
}
