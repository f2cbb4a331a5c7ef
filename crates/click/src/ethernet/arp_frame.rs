//! ARP packets with their Ethernet header: the two checked together, and made together.

use packet::wire::WireError;
use packet::wire::arp::{Arp, ArpRepr};
use packet::wire::ethernet::{EtherType, Ethernet, EthernetRepr, MacAddr};

/// Octets of an Ethernet header and the ARP packet behind it.
pub(super) const FRAME_LEN: usize = EthernetRepr::LEN + ArpRepr::LEN;

/// Why a frame is not an ARP packet, though its Ethernet header announces one.
pub(super) const NOT_ARP: &str = "not an ARP packet";

/// Reads the ARP packet in `frame`; the error is the reason to drop it.
pub(super) fn parse(frame: &[u8]) -> Result<ArpRepr, &'static str> {
    let ethernet = Ethernet::new_checked(frame).map_err(WireError::reason)?;
    if ethernet.ethertype() != EtherType::ARP {
        return Err(NOT_ARP);
    }
    let arp = Arp::new_checked(ethernet.payload()).map_err(WireError::reason)?;
    ArpRepr::parse(&arp).map_err(WireError::reason)
}

/// The frame that carries `arp` to `destination`.
pub(super) fn build(arp: &ArpRepr, destination: MacAddr) -> [u8; FRAME_LEN] {
    let mut frame = [0; FRAME_LEN];
    let header = EthernetRepr { destination, source: arp.sender_mac, ethertype: EtherType::ARP };
    let mut ethernet = Ethernet::new_unchecked(&mut frame[..]);
    let mut written = header.emit(&mut ethernet);
    written = written.and(arp.emit(&mut Arp::new_unchecked(ethernet.payload_mut())));
    debug_assert_eq!(written, Ok(()), "the frame has room for both");
    frame
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    pub(in crate::ethernet) const OUR_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 10]);
    pub(in crate::ethernet) const PEER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 11]);
    pub(in crate::ethernet) const OUR_IP: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
    pub(in crate::ethernet) const PEER_IP: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);

    /// A request for `192.0.2.2` from `192.0.2.1`, spelled out from the figure of RFC 826.
    pub(in crate::ethernet) const REQUEST: [u8; FRAME_LEN] = [
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 10, 0x08, 0x06, // Ethernet
        0, 1, 0x08, 0, 6, 4, 0, 1, // hardware, protocol, lengths, request
        2, 0, 0, 0, 0, 10, 192, 0, 2, 1, // sender
        0, 0, 0, 0, 0, 0, 192, 0, 2, 2, // target
    ];

    /// The answer to [`REQUEST`].
    pub(in crate::ethernet) const REPLY: [u8; FRAME_LEN] = [
        2, 0, 0, 0, 0, 10, 2, 0, 0, 0, 0, 11, 0x08, 0x06, // Ethernet
        0, 1, 0x08, 0, 6, 4, 0, 2, // hardware, protocol, lengths, reply
        2, 0, 0, 0, 0, 11, 192, 0, 2, 2, // sender
        2, 0, 0, 0, 0, 10, 192, 0, 2, 1, // target
    ];

    #[test]
    fn golden_bytes() {
        let request = ArpRepr::request(OUR_MAC, OUR_IP, PEER_IP);
        assert_eq!(build(&request, MacAddr::BROADCAST), REQUEST);
        assert_eq!(parse(&REQUEST), Ok(request));
        let reply = request.reply(PEER_MAC);
        assert_eq!(build(&reply, OUR_MAC), REPLY);
        assert_eq!(parse(&REPLY), Ok(reply));
    }

    #[test]
    fn reasons() {
        assert_eq!(parse(&REQUEST[..13]), Err("truncated Ethernet header"));
        assert_eq!(parse(&REQUEST[..41]), Err("truncated ARP packet"));
        let mut other = REQUEST;
        other[13] = 0;
        assert_eq!(parse(&other), Err(NOT_ARP));
        other = REQUEST;
        other[18] = 8;
        assert_eq!(parse(&other), Err("ARP address lengths are not 6 and 4"));
    }
}
