//! The decision of `bpf/decide.h` once more, in Rust, for captures of what the kernel's taps show. Tests compare what the kernel decides with it,
//! over likely frames.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use packet::IpVersion;
use packet::wire::IpProtocol;
use packet::wire::ethernet::MacAddr;
use packet::wire::ipv4::{Ipv4, MIN_HEADER_LEN as IPV4_BYTES};
use packet::wire::ipv6::{HEADER_LEN as IPV6_BYTES, Ipv6};

use crate::af_packet::ETHERNET_BYTES;
use crate::host_steering::{AddressKey, Station, VlanId, VlanShare, key_of};

// The numbers of bpf/decide.h.
const TYPE_IPV4: [u8; 2] = [0x08, 0x00];
const TYPE_IPV6: [u8; 2] = [0x86, 0xdd];
const TYPE_VLAN: [u8; 2] = [0x81, 0x00];
const TYPE_SERVICE_VLAN: [u8; 2] = [0x88, 0xa8];
const TAG_BYTES: usize = 4;
const VLAN_MASK: u16 = 0xfff;
const ESP_PORT: [u8; 2] = 4500_u16.to_be_bytes();
const UDP_BYTES: usize = 8;
const ESP_BYTES: usize = 8;
const CLIENT_PORT: [u8; 2] = 68_u16.to_be_bytes();
/// Where the link address of a client of DHCP is behind UDP's header.
const CLIENT_ADDRESS: std::ops::Range<usize> = UDP_BYTES + 28..UDP_BYTES + 34;
/// Neighbour discovery (RFC 4861, 4).
const DISCOVERY: std::ops::RangeInclusive<u8> = 133..=137;

/// Says which frames of a port are for the host and which are plain transit, as the steering programs of AF_XDP and
/// AF_PACKET ports do.
#[derive(Clone, Debug)]
pub(crate) struct HostFilter {
    mac: MacAddr,
    mtu: usize,
    local: HashSet<AddressKey>,
    vlans: HashMap<VlanId, VlanShare>,
    takes_esp: bool,
    stations: Vec<Station>,
    leaves_clients: bool,
}

impl HostFilter {
    /// For a port with this link address and MTU, which its twin in Linux has too; no local addresses yet.
    pub(crate) fn new(mac: MacAddr, mtu: usize) -> Self {
        let (stations, takes_esp, leaves_clients) = (Vec::new(), false, false);
        Self { mac, mtu, local: HashSet::new(), vlans: HashMap::new(), takes_esp, stations, leaves_clients }
    }

    /// Other local addresses.
    pub(crate) fn set_local_addresses(&mut self, addresses: &[IpAddr]) {
        self.local = addresses.iter().copied().map(key_of).collect();
    }

    /// Another link address or MTU.
    pub(crate) fn set_link(&mut self, mac: MacAddr, mtu: usize) {
        (self.mac, self.mtu) = (mac, mtu);
    }

    /// The length of the longest frame of one packet, with two tags.
    pub(crate) fn longest_frame(&self) -> usize {
        self.mtu.saturating_add(ETHERNET_BYTES + 2 * TAG_BYTES)
    }

    /// Says what is ours of which VLANs.
    pub(crate) fn set_vlans(&mut self, vlans: &[(VlanId, VlanShare)]) {
        self.vlans = vlans.iter().copied().collect();
    }

    /// Says whether ESP to the local addresses is ours.
    pub(crate) fn take_esp(&mut self, takes: bool) {
        self.takes_esp = takes;
    }

    /// Further link addresses.
    pub(crate) fn set_stations(&mut self, stations: &[Station]) {
        self.stations = stations.to_vec();
    }

    /// Says whether all that goes to clients of DHCP is Linux's.
    pub(crate) fn leave_clients(&mut self, leaves: bool) {
        self.leaves_clients = leaves;
    }

    /// The same of a frame in which several packets are merged, and which is as long as it likes.
    pub(crate) fn is_merged_hosts(&self, frame: &[u8]) -> bool {
        self.is_hosts_within(frame, usize::MAX)
    }

    /// Whether a frame is for the host; else it is ours: plain transit, ESP to the host, or of a VLAN that is ours whole.
    pub(crate) fn is_hosts(&self, frame: &[u8]) -> bool {
        self.is_hosts_within(frame, self.mtu)
    }

    /// The same with another longest packet.
    fn is_hosts_within(&self, frame: &[u8], longest: usize) -> bool {
        let Some((header, mut packet)) = frame.split_at_checked(ETHERNET_BYTES) else { return true };
        let mut kind = [header[12], header[13]];
        let mut share = self.share_of_interface();
        if matches!(kind, TYPE_VLAN | TYPE_SERVICE_VLAN) {
            let Some((&[high, low, a, b], rest)) = packet.split_first_chunk::<TAG_BYTES>() else {
                return true;
            };
            match u16::from_be_bytes([high, low]) & VLAN_MASK {
                // A priority tag.
                0 => {}
                _ if kind != TYPE_VLAN => return true,
                number => match self.vlans.get(&number) {
                    Some(VlanShare::All) => return false,
                    Some(&of_vlan) => share = of_vlan,
                    None => return true,
                },
            }
            (kind, packet) = ([a, b], rest);
        }
        let to = &header[..6];
        let is_station =
            |station: &Station| *to == station.mac.0 && station.families[usize::from(kind == TYPE_IPV6)];
        let is_ours = (*to == self.mac.0 || self.stations.iter().any(is_station))
            && match kind {
                TYPE_IPV4 if !share.takes(IpVersion::V4) => false,
                TYPE_IPV6 if !share.takes(IpVersion::V6) => false,
                TYPE_IPV4 => packet
                    .split_first_chunk()
                    .is_some_and(|(header, rest)| self.is_ours_ipv4(to, header, rest, longest)),
                TYPE_IPV6 => packet
                    .split_first_chunk()
                    .is_some_and(|(header, rest)| self.is_ours_ipv6(header, rest, longest)),
                _ => false,
            };
        !is_ours
    }

    fn share_of_interface(&self) -> VlanShare {
        self.vlans.get(&0).copied().unwrap_or(VlanShare::Transit)
    }

    fn is_ours_ipv4(&self, to: &[u8], header: &[u8; IPV4_BYTES], rest: &[u8], longest: usize) -> bool {
        let header = Ipv4::new_unchecked(header);
        let destination = header.destination();
        header.version() == 4
            && header.total_len() <= longest
            // RFC 6890: loopback; groups. RFC 919: limited broadcast.
            && !destination.is_loopback()
            && !destination.is_multicast()
            && !destination.is_broadcast()
            && (!self.local.contains(&key_of(destination.into())) && !self.is_for_client(to, &header, rest)
                || self.local.contains(&key_of(destination.into()))
                    && self.takes_esp
                    && header.header_len() == IPV4_BYTES
                    && !header.is_fragment()
                    && is_esp(header.protocol(), rest, header.total_len().saturating_sub(IPV4_BYTES)))
    }

    /// Whether a transit packet is for a client of DHCP on this host.
    fn is_for_client(&self, to: &[u8], header: &Ipv4<&[u8; IPV4_BYTES]>, rest: &[u8]) -> bool {
        header.protocol() == IpProtocol::UDP
            && header.header_len() == IPV4_BYTES
            && header.fragment_offset() == 0
            && rest.len() >= UDP_BYTES
            && rest[2..4] == CLIENT_PORT
            && (self.leaves_clients || rest.get(CLIENT_ADDRESS) == Some(to))
    }

    fn is_ours_ipv6(&self, header: &[u8; IPV6_BYTES], rest: &[u8], longest: usize) -> bool {
        let header = Ipv6::new_unchecked(header);
        let destination = header.destination();
        header.version() == 6
            && IPV6_BYTES + header.payload_len() <= longest
            && !destination.is_multicast()
            // RFC 4291, section 2.5.6: a router forwards no packet from or to such an address.
            && !destination.is_unicast_link_local()
            && !header.source().is_unicast_link_local()
            && (!self.local.contains(&destination.octets()) && !is_discovery(&header, rest)
                || self.local.contains(&destination.octets())
                    && self.takes_esp
                    && is_esp(header.next_header(), rest, header.payload_len()))
    }
}

/// Whether a packet is neighbour discovery that no router has forwarded.
fn is_discovery(header: &Ipv6<&[u8; IPV6_BYTES]>, rest: &[u8]) -> bool {
    header.next_header() == IpProtocol::ICMPV6
        && header.hop_limit() == 255
        && rest.first().is_some_and(|kind| DISCOVERY.contains(kind))
}

/// Whether ESP begins behind an IP header; of `rest` the packet has `length` bytes.
fn is_esp(protocol: IpProtocol, rest: &[u8], length: usize) -> bool {
    let rest = &rest[..length.min(rest.len())];
    let esp = match protocol {
        IpProtocol::ESP => Some(rest),
        IpProtocol::UDP if rest.get(2..4) == Some(&ESP_PORT) => rest.get(UDP_BYTES..),
        _ => None,
    };
    // SPI 0 marks IKE.
    esp.is_some_and(|esp| esp.len() >= ESP_BYTES && esp[..4] != [0; 4])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::{Config, TestRunner};

    use super::*;
    use crate::testing::{
        HOST_ADDRESSES, HOST_MAC, HOST_STATION, HOST_VLANS, in_namespace, ip, likely_frames, station,
        veth_pair,
    };
    use crate::{af_packet, af_xdp};

    fn filter() -> HostFilter {
        let mut filter = HostFilter::new(MacAddr(HOST_MAC), 1_500);
        filter.set_local_addresses(&HOST_ADDRESSES.map(|address| address.parse().unwrap()));
        filter.set_vlans(&HOST_VLANS);
        filter.set_stations(&[station(false)]);
        filter
    }

    #[test]
    fn the_kernel_decides_the_same() {
        in_namespace(|| {
            veth_pair("left", "right");
            ip("link set left address 02:00:00:00:00:02");
            let addresses = HOST_ADDRESSES.map(|address| address.parse().unwrap());
            // With ESP for Linux, and for us; then without a family. Of DHCP what names our address, and all.
            use VlanShare::{Nothing, Transit, TransitIpv4, TransitIpv6};
            let kinds = [(false, Transit), (true, Transit), (true, TransitIpv4), (false, TransitIpv6)];
            let deciders =
                [kinds[0], kinds[1], kinds[2], kinds[3], (true, Nothing)].map(|(takes_esp, own)| {
                    let mut filter = filter();
                    filter.take_esp(takes_esp);
                    filter.leave_clients(takes_esp);
                    filter.set_stations(&[station(takes_esp)]);
                    let vlans: Vec<_> = HOST_VLANS.into_iter().chain([(0, own)]).collect();
                    filter.set_vlans(&vlans);
                    let [xdp, tc] = af_xdp::decision(filter.mac, 1_500, &addresses, &vlans, takes_esp);
                    // In tc there are no sockets, which would have ESP and VLANs that Linux does not know.
                    let mut in_tc = filter.clone();
                    in_tc.take_esp(false);
                    let known: Vec<_> =
                        vlans.iter().copied().filter(|(_, share)| *share != VlanShare::All).collect();
                    in_tc.set_vlans(&known);
                    let tc = (in_tc, std::cell::RefCell::new(tc));
                    let packet_sockets = af_packet::decision("left", &addresses, &vlans, takes_esp);
                    (filter, std::cell::RefCell::new(xdp), packet_sockets, tc)
                });
            let [ours, tagged, esp, esp_in_udp, to_station, to_client, to_any_client, discovery] =
                [const { std::cell::Cell::new(0) }; 8];
            let mut runner =
                TestRunner::new(Config { cases: 8_000, failure_persistence: None, ..Config::default() });
            let result = runner.run(&likely_frames(), |frame| {
                let is_tagged =
                    [TYPE_VLAN, TYPE_SERVICE_VLAN].map(Vec::from).contains(&frame[12..14].to_vec());
                let tag = if is_tagged { TAG_BYTES } else { 0 };
                let is_ipv6 = frame.get(12 + tag..14 + tag) == Some(&TYPE_IPV6);
                for (filter, xdp, packet_sockets, (in_tc, tc)) in &deciders {
                    let is_ours = !filter.is_hosts(&frame);
                    prop_assert_eq!((xdp.borrow_mut())(&frame), is_ours, "XDP");
                    // Packet sockets see whether a frame was merged, and so need not look at the packet's length. The
                    // kernel runs no tests of them with cut headers.
                    let shortest = ETHERNET_BYTES + tag + if is_ipv6 { 40 } else { 20 };
                    if frame.len() >= shortest {
                        prop_assert_eq!((tc.borrow_mut())(&frame), !in_tc.is_hosts(&frame), "tc");
                    }
                    if frame.len() >= shortest
                        && (is_ours || !is_too_long(&frame[ETHERNET_BYTES + tag..], is_ipv6))
                    {
                        prop_assert_eq!(packet_sockets(&frame), is_ours, "packet sockets");
                    }
                }
                let count =
                    |counter: &std::cell::Cell<u32>, counts| counter.set(counter.get() + u32::from(counts));
                let [without, with, ..] = deciders.each_ref().map(|(filter, ..)| !filter.is_hosts(&frame));
                count(&ours, without && !is_tagged);
                count(&tagged, without && is_tagged);
                let protocol = frame.get(tag + if is_ipv6 { 20 } else { 23 });
                count(&esp, with && !without && protocol == Some(&50));
                count(&esp_in_udp, with && !without && protocol == Some(&17));
                count(&to_station, without && frame[..6] == HOST_STATION);
                count(&to_any_client, without && !with);
                let is_client = |range: std::ops::Range<usize>, bytes: &[u8]| frame.get(range) == Some(bytes);
                count(
                    &to_client,
                    !without && is_client(36..38, &CLIENT_PORT) && is_client(70..76, &HOST_MAC),
                );
                count(&discovery, !without && is_ipv6 && is_client(54..55, &[135]));
                Ok(())
            });
            result.unwrap();
            for (counter, what) in [
                (&to_station, "to the station above were transit"),
                (&to_client, "were for a client here"),
                (&to_any_client, "were for a client elsewhere"),
                (&discovery, "were neighbour discovery"),
            ] {
                // Some 20 are expected of the rarest.
                assert!(counter.get() > 0, "{} frames {what}", counter.get());
            }
            assert!(ours.get() > 100, "{} frames were transit", ours.get());
            assert!(tagged.get() > 100, "{} tagged frames were ours", tagged.get());
            assert!(esp.get() > 20, "{} frames were ESP", esp.get());
            assert!(esp_in_udp.get() > 20, "{} frames were ESP in UDP", esp_in_udp.get());
        });
    }

    fn is_too_long(packet: &[u8], is_ipv6: bool) -> bool {
        let (at, header) = if is_ipv6 { (4, IPV6_BYTES) } else { (2, 0) };
        header + usize::from(u16::from_be_bytes([packet[at], packet[at + 1]])) > 1_500
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
        // The packet counts, not the frame with what trails it.
        frame[16..18].copy_from_slice(&[0, 30]);
        filter.set_link(MacAddr(HOST_MAC), 29);
        assert!(filter.is_hosts(&frame), "longer than the MTU");
        filter.set_link(MacAddr(HOST_MAC), 30);
        assert!(!filter.is_hosts(&frame));
    }
}
