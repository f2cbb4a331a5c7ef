//! The decision of `bpf/decide.h` once more, in Rust: tests compare what the kernel decides with it, over likely frames.

use std::collections::HashSet;
use std::net::IpAddr;

use packet::wire::ethernet::MacAddr;

use crate::af_packet::ETHERNET_BYTES;
use crate::host_steering::{AddressKey, key_of};

// The numbers of bpf/decide.h.
const TYPE_IPV4: [u8; 2] = [0x08, 0x00];
const TYPE_IPV6: [u8; 2] = [0x86, 0xdd];
const IPV4_BYTES: usize = 20;
/// The header, and the first byte behind it: the type of an ICMPv6 message.
const IPV6_BYTES: usize = 40 + 1;
const PROTOCOL_ICMPV6: u8 = 58;
/// Types of neighbour discovery (RFC 4861, section 4): router solicitation to redirect.
const DISCOVERY: std::ops::RangeInclusive<u8> = 133..=137;

/// Says which frames of a port are for the host and which are plain transit, as the steering programs of AF_XDP and
/// AF_PACKET ports do.
#[derive(Clone, Debug)]
pub(crate) struct HostFilter {
    mac: MacAddr,
    longest: usize,
    local: HashSet<AddressKey>,
}

impl HostFilter {
    /// For a port with this link address and MTU, which its twin in Linux has too; no local addresses yet.
    pub(crate) fn new(mac: MacAddr, mtu: usize) -> Self {
        Self { mac, longest: mtu + ETHERNET_BYTES, local: HashSet::new() }
    }

    /// Other local addresses.
    pub(crate) fn set_local_addresses(&mut self, addresses: &[IpAddr]) {
        self.local = addresses.iter().copied().map(key_of).collect();
    }

    /// Another link address or MTU.
    pub(crate) fn set_link(&mut self, mac: MacAddr, mtu: usize) {
        (self.mac, self.longest) = (mac, mtu + ETHERNET_BYTES);
    }

    /// Whether a frame is for the host; else it is plain transit.
    pub(crate) fn is_hosts(&self, frame: &[u8]) -> bool {
        let Some((header, packet)) = frame.split_at_checked(ETHERNET_BYTES) else { return true };
        let is_transit = frame.len() <= self.longest
            && header[..6] == self.mac.0
            && match [header[12], header[13]] {
                TYPE_IPV4 => packet.first_chunk().is_some_and(|header| self.is_transit_ipv4(header)),
                TYPE_IPV6 => packet.first_chunk().is_some_and(|header| self.is_transit_ipv6(header)),
                _ => false,
            };
        !is_transit
    }

    fn is_transit_ipv4(&self, header: &[u8; IPV4_BYTES]) -> bool {
        let [.., a, b, c, d] = *header;
        header[0] >> 4 == 4
            && header[8] > 1
            // RFC 6890: this host, loopback; groups, reserved addresses and broadcast.
            && !matches!(a, 0 | 127 | 224..)
            && !self.local.contains(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d])
    }

    fn is_transit_ipv6(&self, header: &[u8; IPV6_BYTES]) -> bool {
        let (source, kind) = (&header[8..24], header[40]);
        let mut destination: AddressKey = [0; 16];
        destination.copy_from_slice(&header[24..40]);
        // RFC 4291, section 2.5.6: a router forwards no packet from or to such an address.
        let is_link_local = |address: &[u8]| address[0] == 0xfe && address[1] & 0xc0 == 0x80;
        header[0] >> 4 == 6
            && header[7] > 1
            && destination[0] != 0xff
            && !is_link_local(&destination)
            && !is_link_local(source)
            && !(header[6] == PROTOCOL_ICMPV6 && DISCOVERY.contains(&kind))
            // RFC 4291, sections 2.5.2 and 2.5.3: the unspecified address and loopback.
            && u128::from_be_bytes(destination) > 1
            && !self.local.contains(&destination)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::{Config, TestRunner};

    use super::*;
    use crate::testing::{HOST_ADDRESSES, HOST_MAC, in_namespace, ip, likely_frames, veth_pair};
    use crate::{af_packet, af_xdp};

    fn filter() -> HostFilter {
        let mut filter = HostFilter::new(MacAddr(HOST_MAC), 1_500);
        filter.set_local_addresses(&HOST_ADDRESSES.map(|address| address.parse().unwrap()));
        filter
    }

    #[test]
    fn the_kernel_decides_the_same() {
        in_namespace(|| {
            veth_pair("left", "right");
            ip("link set left address 02:00:00:00:00:02");
            let filter = filter();
            let addresses = HOST_ADDRESSES.map(|address| address.parse().unwrap());
            let xdp = std::cell::RefCell::new(af_xdp::decision(filter.mac, 1_500, &addresses));
            let packet_sockets = af_packet::decision("left", &addresses);
            let ours = std::cell::Cell::new(0);
            let mut runner =
                TestRunner::new(Config { cases: 4_000, failure_persistence: None, ..Config::default() });
            let result = runner.run(&likely_frames(), |frame| {
                let is_ours = !filter.is_hosts(&frame);
                ours.set(ours.get() + u32::from(is_ours));
                prop_assert_eq!((xdp.borrow_mut())(&frame), is_ours, "XDP");
                // Packet sockets see whether a frame was merged, and so need not look at its length. The kernel
                // runs no tests of them with cut headers.
                let shortest = ETHERNET_BYTES + if frame[12..14] == TYPE_IPV6 { 40 } else { 20 };
                if (shortest..=1_514).contains(&frame.len()) {
                    prop_assert_eq!(packet_sockets(&frame), is_ours, "packet sockets");
                }
                Ok(())
            });
            result.unwrap();
            assert!(ours.get() > 100, "{} frames were transit", ours.get());
        });
    }

    #[test]
    fn addresses_come_and_go() {
        let mut filter = filter();
        let mut frame = vec![0; 60];
        frame[..6].copy_from_slice(&HOST_MAC);
        frame[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
        frame[22] = 2;
        frame[30..34].copy_from_slice(&[198, 51, 100, 7]);
        assert!(!filter.is_hosts(&frame));
        let address = "198.51.100.7".parse().unwrap();
        filter.set_local_addresses(&[address]);
        assert!(filter.is_hosts(&frame));
        filter.set_local_addresses(&[]);
        assert!(!filter.is_hosts(&frame));
        filter.set_link(MacAddr([2, 0, 0, 0, 0, 9]), 1_500);
        assert!(filter.is_hosts(&frame));
        filter.set_link(MacAddr(HOST_MAC), 45);
        assert!(filter.is_hosts(&frame), "longer than the MTU");
        filter.set_link(MacAddr(HOST_MAC), 46);
        assert!(!filter.is_hosts(&frame));
    }
}
