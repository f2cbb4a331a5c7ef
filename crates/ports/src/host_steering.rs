//! Linux as the host of our links: which packets are plain transit, and so ours, and which stay with the kernel.
//!
//! The decision is `bpf/decide.h`, made in the kernel for AF_XDP and AF_PACKET ports with `steer=transit`. What changes while
//! traffic flows are the addresses of the host; here is how the programs get them, and where they come from when nobody tells them. So are the VLANs of
//! which something is ours.

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use packet::wire::ethernet::MacAddr;

use crate::{KernelForwarding, PortError, Spec, XdpMode};

/// Which packets stay with Linux: those to its own addresses, and all that is not plain transit. ESP to its addresses may be
/// ours ([`HostSteering::take_esp`]).
///
/// Directed broadcast addresses and anycast addresses are the host's as well: the kernel's routing table `local` has them all.
/// Loopback, link-local and group addresses are known.
///
/// A port reads the addresses of its network namespace when it is opened. From the first call on it trusts the caller.
pub trait HostSteering {
    /// Says which addresses are the host's own, instead of those said before.
    ///
    /// # Errors
    /// [`PortError::System`] when the kernel has no room for so many (16384); those that are missing are steered to us.
    fn set_local_addresses(&mut self, addresses: &[IpAddr]) -> Result<(), PortError>;

    /// Says what is ours of which VLANs (802.1Q), instead of what was said before. Of those not named all is Linux's. Number 0 is
    /// the interface itself, whose transit is ours if it is not named.
    ///
    /// # Errors
    /// [`PortError::System`]; not expected.
    fn set_vlans(&mut self, vlans: &[(VlanId, VlanShare)]) -> Result<(), PortError>;

    /// Names IPv4 addresses from which nobody sends, instead of those named before: the host's, and the broadcast addresses of its
    /// networks. Where all that is not forwarded in the kernel is Linux's, packets from them are dropped first.
    ///
    /// # Errors
    /// As [`HostSteering::set_local_addresses`].
    fn set_own_sources(&mut self, _sources: &[Ipv4Addr]) -> Result<(), PortError> {
        Ok(())
    }

    /// Says whether ESP to the host's own addresses is ours: right behind the IP header (RFC 4303), or in UDP to port 4500
    /// (RFC 3948). It is Linux's at first; a change takes effect at once.
    ///
    /// Linux keeps IKE and NAT keepalives on that port, IPv4 fragments and IPv4 packets with options, packets longer than the
    /// MTU, and what has SPI 0. ESP to a directed broadcast address is as ESP to any of the host's addresses. Transit is not
    /// concerned.
    ///
    /// # Errors
    /// [`PortError::System`]; not expected.
    fn take_esp(&mut self, takes: bool) -> Result<(), PortError>;

    /// Names further link addresses, instead of those named before: of interfaces above the port that Linux would forward from
    /// as from the port, such as VRRP's. Frames to them are as frames to the port. There are [`MOST_STATIONS`] of a family at most;
    /// frames to others are Linux's. One of no family is Linux's, though Linux takes frames to it for frames to the port: that of a
    /// bridge's member.
    ///
    /// # Errors
    /// [`PortError::System`]; not expected.
    fn set_stations(&mut self, stations: &[Station]) -> Result<(), PortError>;

    /// Says whether all frames to the port's own address are Linux's, because the port is a member of a bridge, say. They are ours
    /// at first.
    ///
    /// # Errors
    /// As [`HostSteering::follow_link`].
    fn give_way(&mut self, gives: bool) -> Result<(), PortError>;

    /// Says whether all unicast packets to clients of DHCP (UDP port 68) are Linux's, also to clients elsewhere: it gives them
    /// to packet sockets and forwards them. At first those are that name the link address which the frame is to.
    ///
    /// # Errors
    /// [`PortError::System`]; not expected.
    fn leave_clients(&mut self, leaves: bool) -> Result<(), PortError>;

    /// Says whether transit packets whose transport checksum is still to be computed are Linux's. A program of XDP sees them
    /// from the other end of a veth or from a virtual machine; only the kernel knows that the checksum is missing. They are
    /// ours at first.
    ///
    /// # Errors
    ///
    /// As [`HostSteering::follow_link`].
    fn leave_unfinished_checksums(&mut self, _leaves: bool) -> Result<(), PortError> {
        Ok(())
    }

    /// Returns whether a frame that came in, of which these are the first bytes, and that Linux shows to its taps, is the router's: where
    /// the router's program is behind the taps.
    fn takes_tapped(&self, _frame: &[u8], _length: usize) -> bool {
        false
    }

    /// Returns how packets come by XDP; `None` if they do not, or its queues are not open yet.
    fn xdp(&self) -> Option<XdpWay> {
        None
    }

    /// Has transit that comes in forwarded in the kernel first, as by the port of this number; the rest is ours as before, or may be
    /// Linux's (`rest_is_linux`), which a program in tc leaves it then.
    /// Another call exchanges the one for the other, without a packet between.
    ///
    /// # Errors
    ///
    /// [`PortError::Unsupported`] where the port's packets come by no XDP program.
    fn forward_in_kernel(
        &mut self,
        forwarding: &mut KernelForwarding,
        port: u16,
        rest_is_linux: bool,
    ) -> Result<(), PortError>;

    /// Has all transit be ours again.
    ///
    /// # Errors
    ///
    /// [`PortError::System`]; not expected.
    fn forward_here(&mut self) -> Result<(), PortError>;

    /// Reads the interface's link address and MTU anew: call it after one of them changed.
    ///
    /// # Errors
    /// [`PortError::NoSuchInterface`] while it is gone; the port reads them anyway when it is there again.
    fn follow_link(&mut self) -> Result<(), PortError>;
}

/// How packets come from an interface by XDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XdpWay {
    /// Where the program runs.
    pub mode: XdpMode,
    /// Whether sockets get packets without a copy.
    pub is_zero_copy: bool,
    /// Whether they are handed to a program that moves them in the kernel first.
    pub moves_in_kernel: bool,
    /// Whether a tc program is in the place of the one of XDP.
    pub is_in_tc: bool,
}

/// A further link address of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Station {
    /// The address.
    pub mac: MacAddr,
    /// Whether it is one for IPv4, and for IPv6. With neither, its frames are Linux's whatever that takes them for.
    pub families: [bool; 2],
}

/// How many further link addresses a port has at most for each family.
pub const MOST_STATIONS: usize = 8;

/// The number of a VLAN, 1 to 4094.
pub type VlanId = u16;

/// What is ours of the frames of a VLAN. The numbers are those of `bpf/decide.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum VlanShare {
    /// Plain transit: Linux has an interface for the VLAN, which gets the rest.
    Transit = 1,
    /// All of them, to whatever address: Linux has none.
    All = 2,
    /// IPv6 transit alone: Linux forwards no IPv4 from the interface.
    TransitIpv6 = 5,
    /// IPv4 transit alone: Linux forwards no IPv6 from the interface.
    TransitIpv4 = 9,
    /// Nothing: Linux forwards neither.
    Nothing = 13,
}

impl VlanShare {
    /// Returns the transit of the families that are ours, IPv4 and IPv6.
    pub fn of_families(ours: [bool; 2]) -> Self {
        match ours {
            [true, true] => Self::Transit,
            [false, true] => Self::TransitIpv6,
            [true, false] => Self::TransitIpv4,
            [false, false] => Self::Nothing,
        }
    }

    /// Returns whether transit of a family is ours.
    pub(crate) fn takes(self, version: packet::IpVersion) -> bool {
        let left = match version {
            packet::IpVersion::V4 => 4,
            packet::IpVersion::V6 => 8,
        };
        self as u8 & left == 0
    }
}

/// Which packets are ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Steer {
    /// All of them.
    All,
    /// Plain transit; see `bpf/decide.h`.
    Transit,
}

impl Steer {
    /// Takes the option `steer`.
    pub(crate) fn take(spec: &mut Spec) -> Result<Self, PortError> {
        let choices = [("all", Self::All), ("transit", Self::Transit)];
        Ok(spec.take_choice("steer", &choices)?.unwrap_or(Self::All))
    }
}

/// An address as the programs compare it: IPv6, or IPv4 as ::ffff:a.b.c.d.
pub(crate) type AddressKey = [u8; 16];

/// The key of an address.
pub(crate) fn key_of(address: IpAddr) -> AddressKey {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// The addresses of all interfaces of the namespace, to any of which Linux takes packets by any interface, and the
/// broadcast addresses of their networks.
pub(crate) fn addresses_of_namespace() -> io::Result<HashSet<IpAddr>> {
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    #[allow(unsafe_code, reason = "the C interface of getifaddrs(3)")]
    // SAFETY: the function writes the list's first element to `first`.
    if unsafe { libc::getifaddrs(&raw mut first) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut addresses = HashSet::new();
    let mut next = first;
    #[allow(unsafe_code, reason = "a list of the C library")]
    // SAFETY: each element and its addresses are valid until the list is freed.
    unsafe {
        while let Some(element) = next.as_ref() {
            let (address, mask) = (ip_address(element.ifa_addr), ip_address(element.ifa_netmask));
            addresses.extend(address);
            if let (Some(IpAddr::V4(address)), Some(IpAddr::V4(mask))) = (address, mask) {
                // The kernel has it in its table `local`, unless the network is a single host or a line of two
                // (RFC 3021); whoever is in one of those is known, or another host.
                let broadcast = address | !mask;
                addresses.extend((mask.to_bits().leading_ones() < 31).then_some(IpAddr::V4(broadcast)));
            }
            next = element.ifa_next;
        }
        libc::freeifaddrs(first);
    }
    Ok(addresses)
}

/// The IP address in a socket address; `None` when it is something else.
#[allow(unsafe_code, reason = "a union of the C library")]
unsafe fn ip_address(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: the caller passes null or a valid address, whose family says which type it is.
    unsafe {
        match i32::from(address.as_ref()?.sa_family) {
            libc::AF_INET => {
                let address = address.cast::<libc::sockaddr_in>().read_unaligned();
                Some(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)).into())
            }
            libc::AF_INET6 => {
                let address = address.cast::<libc::sockaddr_in6>().read_unaligned();
                Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use packet::Batch;

    use super::*;
    use crate::testing::{
        batch_of, begin, contents, in_namespace, ip, numbered_frame, pool, soon, veth_pair,
    };
    use crate::{OpenOptions, Port};

    #[test]
    fn addresses_are_the_kernels() {
        in_namespace(|| {
            veth_pair("left", "right");
            ip("addr add 192.0.2.1/24 dev left");
            ip("addr add 198.51.100.1 peer 198.51.100.9 dev left");
            ip("addr add 2001:db8::1/64 dev right nodad");
            let addresses = addresses_of_namespace().unwrap();
            for expected in ["192.0.2.1", "192.0.2.255", "198.51.100.1", "2001:db8::1", "127.0.0.1"] {
                assert!(addresses.contains(&expected.parse().unwrap()), "{expected} in {addresses:?}");
            }
            assert!(!addresses.contains(&"198.51.100.9".parse().unwrap()), "{addresses:?}");
        });
    }

    fn frame(kind: [u8; 2], rest: &[u8]) -> Vec<u8> {
        let mut frame = [&numbered_frame(1, 60)[..12], &kind, rest].concat();
        frame.resize(frame.len().max(60), 0);
        frame
    }

    fn ipv4(first: u8, ttl: u8, to: [u8; 4]) -> Vec<u8> {
        frame([8, 0], &[&[first], &[0; 7][..], &[ttl], &[0x45; 7], &to].concat())
    }

    fn ipv6(next: u8, hop_limit: u8, to: &str, first: u8) -> Vec<u8> {
        let to: Ipv6Addr = to.parse().unwrap();
        let header = [&[0x60, 0, 0, 0, 0, 8, next, hop_limit][..], &[1; 16], &to.octets(), &[first; 8]];
        frame([0x86, 0xdd], &header.concat())
    }

    const ESP: u8 = 50;
    const UDP: u8 = 17;
    /// SPI and sequence number, and ciphertext.
    const SEALED: [u8; 16] = [0, 0, 2, 1, 0, 0, 0, 1, 9, 9, 9, 9, 9, 9, 9, 9];

    /// A frame with a packet of this protocol, and behind it what is not a part of the packet.
    fn packet(to: &str, protocol: u8, payload: &[u8]) -> Vec<u8> {
        let length = payload.len() as u8;
        match to.parse().unwrap() {
            IpAddr::V4(to) => {
                let header = [0x45, 0, 0, 20 + length, 0, 0, 0, 0, 64, protocol, 0, 0, 198, 51, 100, 9];
                let mut frame = frame([8, 0], &[&header, &to.octets()[..], payload].concat());
                frame.extend([7; 20]);
                frame
            }
            IpAddr::V6(to) => {
                let header = [&[0x60, 0, 0, 0, 0, length, protocol, 64][..], &[1; 16], &to.octets(), payload];
                frame([0x86, 0xdd], &[&header.concat()[..], &[7; 20]].concat())
            }
        }
    }

    /// What UDP carries to a port.
    fn in_udp(port: u16, payload: &[u8]) -> Vec<u8> {
        let length = (8 + payload.len() as u16).to_be_bytes();
        [&[0x11, 0x94][..], &port.to_be_bytes(), &length, &[0; 2], payload].concat()
    }

    /// ESP to the host, and what is near it and Linux's in any case.
    fn esp_and_not() -> [Vec<Vec<u8>>; 2] {
        let (mut esp, mut not) = (Vec::new(), Vec::new());
        for to in ["192.0.2.1", "2001:db8::1"] {
            let datagram = |payload: &[u8]| packet(to, UDP, &in_udp(4_500, payload));
            esp.extend([packet(to, ESP, &SEALED), datagram(&SEALED), packet(to, ESP, &SEALED[..8])]);
            esp.push(datagram(&[0xff; 8]));
            // IKE, a keepalive, too little for ESP, another port, another protocol.
            not.extend([
                datagram(&[&[0; 4], &SEALED[..]].concat()),
                datagram(&[0xff]),
                datagram(&SEALED[..7]),
            ]);
            not.extend([packet(to, UDP, &in_udp(4_501, &SEALED)), packet(to, 6, &in_udp(4_500, &SEALED))]);
        }
        let change = |at: usize, to: u8| {
            let mut frame = esp[0].clone();
            frame[at] = to;
            frame
        };
        // Options, fragments, frames to others.
        not.extend([change(14, 0x46), change(20, 0x20), change(21, 1), change(0, 3), change(5, 3)]);
        not.extend(["255.255.255.255", "224.0.0.1", "ff02::1", "fe80::7"].map(|to| packet(to, ESP, &SEALED)));
        [esp, not]
    }

    #[test]
    fn the_kernel_gets_what_a_host_needs_and_we_get_the_rest() {
        let mut multicast = ipv4(0x45, 64, [198, 51, 100, 7]);
        multicast[0] = 1;
        let mut to_another = ipv4(0x45, 64, [198, 51, 100, 7]);
        to_another[5] = 3;
        let tagged = |tag: u16, inner: &[u8]| {
            let [high, low] = tag.to_be_bytes();
            [&inner[..12], &[0x81, 0, high, low], &inner[12..]].concat()
        };
        let kernels = [
            ipv4(0x45, 64, [192, 0, 2, 1]),
            ipv4(0x45, 64, [192, 0, 2, 255]),
            frame([8, 6], &[0; 28]),
            ipv6(6, 64, "2001:db8::1", 0),
            ipv6(6, 64, "fe80::7", 0),
            tagged(5, &ipv4(0x45, 64, [198, 51, 100, 7])),
            numbered_frame(7, 60),
            // Of which Linux may be the proxy.
            ipv6(58, 255, "2001:db8:7::1", 135),
            multicast,
            to_another,
        ];
        let ours = [
            ipv4(0x45, 64, [192, 0, 2, 2]),
            ipv4(0x45, 2, [198, 51, 100, 7]),
            ipv6(6, 64, "2001:db8::2", 0),
            ipv6(58, 64, "2001:db8:7::1", 128),
            // Options: the kernel would forward them past our access lists.
            ipv4(0x46, 64, [198, 51, 100, 7]),
            ipv6(0, 64, "2001:db8:7::1", 0),
            // Discovery that a router has forwarded, and addresses that no host has: the same.
            ipv6(58, 254, "2001:db8:7::1", 135),
            ipv6(6, 64, "::", 0),
            ipv4(0x45, 64, [0, 1, 2, 3]),
            ipv4(0x45, 64, [240, 0, 0, 1]),
            // What has lived too long.
            ipv4(0x45, 1, [198, 51, 100, 8]),
            ipv6(6, 0, "2001:db8:7::1", 0),
        ];
        // Of VLAN 5 transit is ours, of VLAN 6 everything, and the tag comes with its priority.
        let question = frame([8, 6], &[0; 28]);
        let mut to_all = question.clone();
        to_all[..6].fill(0xff);
        let mut longest = ipv4(0x45, 64, [198, 51, 100, 7]);
        longest.resize(1_514, 7);
        let tagged_ours = [
            tagged(0xa005, &ours[1]),
            tagged(5, &ours[3]),
            tagged(5, &longest),
            tagged(6, &question),
            tagged(0x6006, &to_all),
            tagged(6, &ipv4(0x45, 64, [192, 0, 2, 1])),
            // A priority tag is that of no VLAN.
            tagged(0xe000, &ours[1]),
        ];
        let tagged_kernels = [
            tagged(5, &question),
            tagged(5, &to_all),
            tagged(5, &kernels[0]),
            tagged(7, &ours[1]),
            tagged(0, &question),
        ];
        for spec in [
            "af_xdp:right?steer=transit",
            "af_xdp:right?steer=transit&mode=generic",
            "af_xdp:right?steer=transit&mode=tc",
            "right?steer=transit&trace=/dev/null",
        ] {
            let (kernels, ours) = (kernels.clone(), ours.clone());
            let (tagged_kernels, tagged_ours) = (tagged_kernels.clone(), tagged_ours.clone());
            in_namespace(move || {
                veth_pair("left", "right");
                ip("link set right address 02:00:00:00:00:02");
                ip("addr add 192.0.2.1/24 dev right");
                ip("addr add 2001:db8::1/64 dev right nodad");
                let open = |spec: &str| crate::open(spec, &OpenOptions::default()).unwrap();
                let (mut left, mut right) = (open("left"), open(spec));
                let mut pool = pool(2_048);
                let (mut tx, mut rx) = (left.take_tx(0).unwrap(), right.take_rx(0).unwrap());
                begin(&mut *rx, &mut pool);
                right.host().unwrap().forward_here().unwrap();
                let mut left_to_kernel = 0;
                // Sends frames, of which we and the kernel get so many; ours.
                let mut split = |right: &mut dyn Port, frames: &[&[Vec<u8>]], to_kernel: usize| {
                    let frames = frames.concat();
                    let mut batch = batch_of(&mut pool, &frames);
                    tx.send(&mut pool, &mut batch);
                    left_to_kernel += to_kernel as u64;
                    let mut received = Batch::new();
                    soon("all packets are seen", || {
                        rx.receive(&mut pool, &mut received, 32);
                        let seen = rx.stats().left_to_kernel() >= left_to_kernel;
                        seen && received.len() + to_kernel >= frames.len()
                    });
                    assert_eq!(rx.stats().left_to_kernel(), left_to_kernel, "{spec}");
                    let details = right.details();
                    assert!(details.ends_with(&format!("left to the kernel {left_to_kernel}")), "{details}");
                    let ours = contents(&received);
                    pool.free(&mut received);
                    ours
                };
                assert_eq!(split(&mut *right, &[&kernels, &ours], kernels.len()), ours, "{spec}");
                // VLANs that come and go.
                let vlans = [(5, VlanShare::Transit), (6, VlanShare::All)];
                right.host().unwrap().set_vlans(&vlans).unwrap();
                let frames: &[&[Vec<u8>]] = &[&tagged_kernels, &tagged_ours];
                assert_eq!(split(&mut *right, frames, tagged_kernels.len()), tagged_ours, "{spec}");
                right.host().unwrap().set_vlans(&vlans[1..]).unwrap();
                assert_eq!(split(&mut *right, &[&tagged_ours], 3), tagged_ours[3..], "{spec}");
                // ESP to the host, under the switch; in transit it is ours in any case.
                right.host().unwrap().set_vlans(&vlans).unwrap();
                let [esp, not_esp] = esp_and_not();
                let esp_in_vlan: Vec<Vec<u8>> = esp.iter().map(|frame| tagged(5, frame)).collect();
                let in_transit = [
                    packet("198.51.100.7", ESP, &SEALED),
                    packet("2001:db8::7", UDP, &in_udp(4_500, &SEALED)),
                ];
                let frames: &[&[Vec<u8>]] = &[&esp, &not_esp, &esp_in_vlan, &in_transit];
                for takes in [None, Some(true), Some(false), Some(true)] {
                    takes.into_iter().for_each(|takes| right.host().unwrap().take_esp(takes).unwrap());
                    let (ours, to_kernel) = match takes {
                        Some(true) => ([&esp[..], &esp_in_vlan, &in_transit].concat(), not_esp.len()),
                        _ => (in_transit.to_vec(), not_esp.len() + 2 * esp.len()),
                    };
                    assert_eq!(split(&mut *right, frames, to_kernel), ours, "{spec}, {takes:?}");
                }
                // Addresses that come and go.
                let new: IpAddr = "192.0.2.9".parse().unwrap();
                right.host().unwrap().set_local_addresses(&[new]).unwrap();
                let to_the_new = [packet("192.0.2.9", ESP, &SEALED)];
                assert_eq!(
                    split(&mut *right, &[&to_the_new, &esp], 0),
                    [&to_the_new[..], &esp].concat(),
                    "{spec}"
                );
                right.host().unwrap().take_esp(false).unwrap();
                assert_eq!(split(&mut *right, &[&to_the_new, &esp], 1), esp, "{spec}");
                let address: IpAddr = "198.51.100.7".parse().unwrap();
                right.host().unwrap().set_local_addresses(&[address, address]).unwrap();
                assert_eq!(split(&mut *right, &[&ours[1..3]], 1), ours[2..3]);
                right.host().unwrap().set_local_addresses(&[]).unwrap();
                assert_eq!(split(&mut *right, &[&ours[1..3]], 0), ours[1..3]);
                let others = ["2001:db8::2".parse().unwrap(), address];
                right.host().unwrap().set_local_addresses(&others).unwrap();
                assert_eq!(
                    split(&mut *right, &[&ours, &kernels[..1]], 3),
                    [&ours[..1], &ours[3..4], &ours[5..], &kernels[..1]].concat()
                );
                right.host().unwrap().set_local_addresses(&[]).unwrap();
                // Another link address.
                ip("link set right address 02:00:00:00:00:03");
                right.host().unwrap().follow_link().unwrap();
                let to_the_new = &kernels[kernels.len() - 1..];
                assert_eq!(split(&mut *right, &[&ours, to_the_new], ours.len()), to_the_new);
                assert!(left.host().is_none());
            });
        }
    }

    #[test]
    fn esp_stays_ours_when_an_interface_comes_back() {
        for spec in
            ["af_xdp:right?steer=transit", "af_xdp:right?steer=transit&mode=tc", "right?steer=transit"]
        {
            in_namespace(move || {
                let make = || {
                    veth_pair("left", "right");
                    ip("link set right address 02:00:00:00:00:02");
                };
                make();
                let open = |spec: &str| crate::open(spec, &OpenOptions::default()).unwrap();
                let mut right = open(spec);
                let mut pool = pool(2_048);
                let mut rx = right.take_rx(0).unwrap();
                begin(&mut *rx, &mut pool);
                right.host().unwrap().set_local_addresses(&["192.0.2.1".parse().unwrap()]).unwrap();
                right.host().unwrap().take_esp(true).unwrap();
                ip("link delete right");
                soon("the interface is missed", || {
                    rx.receive(&mut pool, &mut Batch::new(), 0);
                    rx.due_in_ns().is_some()
                });
                make();
                right.host().unwrap().follow_link().unwrap();
                let mut left = open("left");
                let mut tx = left.take_tx(0).unwrap();
                let frames = [in_udp(4_500, &[0; 16]), in_udp(4_500, &SEALED)]
                    .map(|data| packet("192.0.2.1", UDP, &data));
                soon("ESP comes, and IKE does not", || {
                    let mut batch = batch_of(&mut pool, &frames);
                    tx.send(&mut pool, &mut batch);
                    rx.receive(&mut pool, &mut batch, 32);
                    let received = contents(&batch);
                    pool.free(&mut batch);
                    assert!(!received.contains(&frames[0]), "{spec}");
                    received.contains(&frames[1])
                });
            });
        }
    }
}
