//! ARP for IPv4 over Ethernet (RFC 826).

use std::net::Ipv4Addr;

use super::ethernet::{EtherType, MacAddr};
use super::{WireError, read, read_u16};

/// Octets of an ARP packet for IPv4 over Ethernet.
pub const PACKET_LEN: usize = 28;
/// Hardware type of Ethernet.
pub const HARDWARE_ETHERNET: u16 = 1;

mod field {
    use crate::wire::Field;
    pub(super) const HARDWARE_TYPE: Field = 0..2;
    pub(super) const PROTOCOL_TYPE: Field = 2..4;
    pub(super) const HARDWARE_LEN: usize = 4;
    pub(super) const PROTOCOL_LEN: usize = 5;
    pub(super) const OPERATION: Field = 6..8;
    pub(super) const SENDER_MAC: Field = 8..14;
    pub(super) const SENDER_IP: Field = 14..18;
    pub(super) const TARGET_MAC: Field = 18..24;
    pub(super) const TARGET_IP: Field = 24..28;
}

/// What an ARP packet does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ArpOperation(pub u16);

impl ArpOperation {
    /// Who has this address?
    pub const REQUEST: Self = Self(1);
    /// I have this address.
    pub const REPLY: Self = Self(2);
}

view! {
    /// A view of an ARP packet for IPv4 over Ethernet.
    Arp
}

impl<T: AsRef<[u8]>> Arp<T> {
    /// The one length check: 28 octets.
    ///
    /// # Errors
    /// [`WireError::TruncatedArp`].
    #[inline]
    pub fn check_len(&self) -> Result<(), WireError> {
        if self.bytes().len() < PACKET_LEN { Err(WireError::TruncatedArp) } else { Ok(()) }
    }

    /// Hardware type; [`HARDWARE_ETHERNET`] is the only one known here.
    #[inline]
    pub fn hardware_type(&self) -> u16 {
        read_u16(self.bytes(), field::HARDWARE_TYPE)
    }

    /// Protocol type; [`EtherType::IPV4`] is the only one known here.
    #[inline]
    pub fn protocol_type(&self) -> EtherType {
        EtherType(read_u16(self.bytes(), field::PROTOCOL_TYPE))
    }

    /// Octets of a hardware address.
    #[inline]
    pub fn hardware_len(&self) -> u8 {
        self.bytes()[field::HARDWARE_LEN]
    }

    /// Octets of a protocol address.
    #[inline]
    pub fn protocol_len(&self) -> u8 {
        self.bytes()[field::PROTOCOL_LEN]
    }

    /// Operation.
    #[inline]
    pub fn operation(&self) -> ArpOperation {
        ArpOperation(read_u16(self.bytes(), field::OPERATION))
    }

    /// Ethernet address of the sender.
    #[inline]
    pub fn sender_mac(&self) -> MacAddr {
        MacAddr(read(self.bytes(), field::SENDER_MAC))
    }

    /// IPv4 address of the sender.
    #[inline]
    pub fn sender_ip(&self) -> Ipv4Addr {
        Ipv4Addr::from(read(self.bytes(), field::SENDER_IP))
    }

    /// Ethernet address of the target; without meaning in a request.
    #[inline]
    pub fn target_mac(&self) -> MacAddr {
        MacAddr(read(self.bytes(), field::TARGET_MAC))
    }

    /// IPv4 address of the target.
    #[inline]
    pub fn target_ip(&self) -> Ipv4Addr {
        Ipv4Addr::from(read(self.bytes(), field::TARGET_IP))
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Arp<T> {
    /// Sets the hardware type.
    #[inline]
    pub fn set_hardware_type(&mut self, hardware_type: u16) {
        self.buffer.as_mut()[field::HARDWARE_TYPE].copy_from_slice(&hardware_type.to_be_bytes());
    }

    /// Sets the protocol type.
    #[inline]
    pub fn set_protocol_type(&mut self, protocol_type: EtherType) {
        self.buffer.as_mut()[field::PROTOCOL_TYPE].copy_from_slice(&protocol_type.0.to_be_bytes());
    }

    /// Sets the octets of a hardware address.
    #[inline]
    pub fn set_hardware_len(&mut self, len: u8) {
        self.buffer.as_mut()[field::HARDWARE_LEN] = len;
    }

    /// Sets the octets of a protocol address.
    #[inline]
    pub fn set_protocol_len(&mut self, len: u8) {
        self.buffer.as_mut()[field::PROTOCOL_LEN] = len;
    }

    /// Sets the operation.
    #[inline]
    pub fn set_operation(&mut self, operation: ArpOperation) {
        self.buffer.as_mut()[field::OPERATION].copy_from_slice(&operation.0.to_be_bytes());
    }

    /// Sets the sender's Ethernet address.
    #[inline]
    pub fn set_sender_mac(&mut self, address: MacAddr) {
        self.buffer.as_mut()[field::SENDER_MAC].copy_from_slice(&address.0);
    }

    /// Sets the sender's IPv4 address.
    #[inline]
    pub fn set_sender_ip(&mut self, address: Ipv4Addr) {
        self.buffer.as_mut()[field::SENDER_IP].copy_from_slice(&address.octets());
    }

    /// Sets the target's Ethernet address.
    #[inline]
    pub fn set_target_mac(&mut self, address: MacAddr) {
        self.buffer.as_mut()[field::TARGET_MAC].copy_from_slice(&address.0);
    }

    /// Sets the target's IPv4 address.
    #[inline]
    pub fn set_target_ip(&mut self, address: Ipv4Addr) {
        self.buffer.as_mut()[field::TARGET_IP].copy_from_slice(&address.octets());
    }
}

/// The meaning of an ARP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ArpRepr {
    /// Request or reply; others are kept as they are.
    pub operation: ArpOperation,
    /// Ethernet address of the sender.
    pub sender_mac: MacAddr,
    /// IPv4 address of the sender; unspecified in a probe (RFC 5227).
    pub sender_ip: Ipv4Addr,
    /// Ethernet address of the target; zero in a request.
    pub target_mac: MacAddr,
    /// IPv4 address of the target.
    pub target_ip: Ipv4Addr,
}

impl ArpRepr {
    /// Octets that [`emit`](Self::emit) writes.
    pub const LEN: usize = PACKET_LEN;

    /// The request for `target_ip`.
    pub const fn request(sender_mac: MacAddr, sender_ip: Ipv4Addr, target_ip: Ipv4Addr) -> Self {
        let target_mac = MacAddr::ZERO;
        Self { operation: ArpOperation::REQUEST, sender_mac, sender_ip, target_mac, target_ip }
    }

    /// The reply to `self` that says that its target address is at `mac`.
    pub const fn reply(&self, mac: MacAddr) -> Self {
        Self {
            operation: ArpOperation::REPLY,
            sender_mac: mac,
            sender_ip: self.target_ip,
            target_mac: self.sender_mac,
            target_ip: self.sender_ip,
        }
    }

    /// Reads the packet. The order of the checks is that of RFC 826, "Packet Reception".
    ///
    /// # Errors
    /// [`WireError::ArpHardwareType`], [`WireError::ArpProtocolType`], [`WireError::ArpAddressLength`].
    pub fn parse<T: AsRef<[u8]>>(packet: &Arp<T>) -> Result<Self, WireError> {
        if packet.hardware_type() != HARDWARE_ETHERNET {
            return Err(WireError::ArpHardwareType);
        }
        if packet.protocol_type() != EtherType::IPV4 {
            return Err(WireError::ArpProtocolType);
        }
        if (packet.hardware_len(), packet.protocol_len()) != (6, 4) {
            return Err(WireError::ArpAddressLength);
        }
        Ok(Self {
            operation: packet.operation(),
            sender_mac: packet.sender_mac(),
            sender_ip: packet.sender_ip(),
            target_mac: packet.target_mac(),
            target_ip: packet.target_ip(),
        })
    }

    /// Writes the packet.
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`] below 28 octets.
    pub fn emit<T: AsRef<[u8]> + AsMut<[u8]>>(&self, packet: &mut Arp<T>) -> Result<(), WireError> {
        packet.check_len().map_err(|_| WireError::BufferTooSmall)?;
        packet.set_hardware_type(HARDWARE_ETHERNET);
        packet.set_protocol_type(EtherType::IPV4);
        packet.set_hardware_len(6);
        packet.set_protocol_len(4);
        packet.set_operation(self.operation);
        packet.set_sender_mac(self.sender_mac);
        packet.set_sender_ip(self.sender_ip);
        packet.set_target_mac(self.target_mac);
        packet.set_target_ip(self.target_ip);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::golden;
    use proptest::prelude::*;

    const ALICE: MacAddr = MacAddr([2, 0, 0, 0, 0, 10]);
    const BOB: MacAddr = MacAddr([2, 0, 0, 0, 0, 11]);

    #[test]
    fn golden_exchange() {
        let bytes = golden::payload(golden::ARP_REQUEST);
        let request = ArpRepr::parse(&Arp::new_checked(&bytes).unwrap()).unwrap();
        let (alice, bob) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2));
        assert_eq!(request, ArpRepr::request(ALICE, alice, bob));

        let mut reply = Arp::new_unchecked([0; PACKET_LEN]);
        request.reply(BOB).emit(&mut reply).unwrap();
        assert_eq!(reply.bytes(), golden::payload(golden::ARP_REPLY));
    }

    #[test]
    fn reasons() {
        let good = golden::payload(golden::ARP_REQUEST);
        assert_eq!(Arp::new_checked(&good[..27]).unwrap_err(), WireError::TruncatedArp);
        for (at, reason) in [
            (1, WireError::ArpHardwareType),
            (2, WireError::ArpProtocolType),
            (4, WireError::ArpAddressLength),
            (5, WireError::ArpAddressLength),
        ] {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            assert_eq!(ArpRepr::parse(&Arp::new_checked(&bad).unwrap()), Err(reason));
        }
    }

    proptest! {
        #[test]
        fn packets_round_trip(operation in any::<u16>(), macs in any::<[[u8; 6]; 2]>(), ips in any::<[[u8; 4]; 2]>()) {
            let repr = ArpRepr {
                operation: ArpOperation(operation),
                sender_mac: MacAddr(macs[0]),
                sender_ip: ips[0].into(),
                target_mac: MacAddr(macs[1]),
                target_ip: ips[1].into(),
            };
            let mut packet = Arp::new_checked([0xffu8; PACKET_LEN]).unwrap();
            repr.emit(&mut packet).unwrap();
            prop_assert_eq!(ArpRepr::parse(&packet), Ok(repr));
            prop_assert_eq!(repr.emit(&mut Arp::new_unchecked([0; 27])), Err(WireError::BufferTooSmall));
        }

        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(packet) = Arp::new_checked(&bytes) {
                let _ = ArpRepr::parse(&packet);
            }
        }
    }
}
