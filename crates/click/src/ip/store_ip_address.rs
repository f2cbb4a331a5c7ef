//! =c
//! StoreIPAddress(OFFSET)
//! StoreIPAddress(ADDR, OFFSET)
//!
//! =s ip
//! writes an IP address into the packet
//!
//! =d
//! With one argument, writes the destination IP address annotation into the data of each packet at OFFSET,
//! unless the annotation is zero. With two, writes ADDR, which may be zero.
//!
//! OFFSET may be `src` or `dst`: then the address goes into that field of the marked IP header, and the
//! checksums of IP, TCP and UDP are updated. With a number nothing but the 4 bytes changes; use SetIPChecksum
//! and its kin where that matters.
//!
//! Where the address does not fit, the packet leaves by output 1 if that is connected and is dropped otherwise.
//! Drop reasons: address beyond the end of the packet, no IP header.
//!
//! =a GetIPAddress, SetIPAddress, SetIPChecksum

use std::net::Ipv4Addr;

use graph::{Class, ConfigError, Context, Element, FromArgument, Setup, Verdict};
use packet::wire::IpProtocol;
use packet::wire::ipv4::Ipv4;
use packet::wire::tcp::{self, Tcp};
use packet::wire::udp::{self, Udp};
use packet::{Batch, Packet, checksum};

pub(crate) static CLASS: Class = Class {
    name: "StoreIPAddress",
    ports: "1/1-2",
    processing: Class::AGNOSTIC_WITH_ERRORS,
    manual: graph::manual!("store_ip_address.rs"),
    make,
    ..Class::DEFAULT
};

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let arguments = &mut setup.arguments;
    let address = arguments.keyword::<Ipv4Addr>("ADDR")?;
    let place = arguments.keyword::<Place>("OFFSET")?;
    let rest = arguments.rest();
    arguments.finish()?;
    let mut rest = rest.iter();
    // The address comes first, and only when there are two arguments.
    let address = match address {
        None if rest.len() + usize::from(place.is_some()) > 1 => match rest.next() {
            Some(text) => Some(read("ADDR", text)?),
            None => None,
        },
        given => given,
    };
    let place = match (place, rest.next()) {
        (Some(place), None) => place,
        (None, Some(text)) => read("OFFSET", text)?,
        (None, None) => return Err(ConfigError::new("missing argument: OFFSET is required")),
        (Some(_), Some(text)) => {
            return Err(format!("OFFSET is given twice, the second time as '{text}'").into());
        }
    };
    match rest.next() {
        Some(text) => Err(format!("too many arguments: '{text}'; expected ADDR, OFFSET").into()),
        None => Ok(Box::new(StoreIPAddress { address: address.map(Ipv4Addr::to_bits), place })),
    }
}

fn read<T: FromArgument>(name: &str, text: &str) -> Result<T, ConfigError> {
    T::from_argument(text)
        .ok_or_else(|| ConfigError::new(format!("{name}: expected {}, got '{text}'", T::EXPECTED)))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Data(usize),
    Source,
    Destination,
}

impl FromArgument for Place {
    const EXPECTED: &'static str = "non-negative integer, src or dst";
    fn from_argument(text: &str) -> Option<Self> {
        match text.to_ascii_lowercase().as_str() {
            "src" => Some(Self::Source),
            "dst" => Some(Self::Destination),
            _ => usize::from_argument(text).map(Self::Data),
        }
    }
}

struct StoreIPAddress {
    address: Option<u32>,
    place: Place,
}

impl Element for StoreIPAddress {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        cx.filter(batch, |packet| {
            let address = self.address.unwrap_or_else(|| packet.annotations().destination_ip());
            if address == 0 && self.address.is_none() {
                return Verdict::Keep;
            }
            match self.place {
                Place::Data(offset) => {
                    let field =
                        packet.data_mut().get_mut(offset..).and_then(|rest| rest.first_chunk_mut::<4>());
                    let Some(field) = field else {
                        return Verdict::Divert(1, "address beyond the end of the packet");
                    };
                    *field = address.to_be_bytes();
                }
                Place::Source | Place::Destination => {
                    if store_in_header(packet, self.place == Place::Destination, address).is_none() {
                        return Verdict::Divert(1, "no IP header");
                    }
                }
            }
            Verdict::Keep
        });
    }
}

/// Writes `address` into the IP header, as its destination or its source, and updates all checksums that cover it.
fn store_in_header(packet: &mut Packet, is_destination: bool, address: u32) -> Option<()> {
    let mut header = Ipv4::new_unchecked(packet.network_mut()?.first_chunk_mut::<20>()?);
    let old = if is_destination { header.destination() } else { header.source() }.to_bits();
    match is_destination {
        true => header.set_destination(Ipv4Addr::from_bits(address)),
        false => header.set_source(Ipv4Addr::from_bits(address)),
    }
    header.set_checksum(checksum::update_u32(header.checksum(), old, address));
    // The transport header is in the first fragment only.
    let (protocol, is_first) = (header.protocol(), header.fragment_offset() == 0);
    // The pseudo-header of TCP (RFC 9293, 3.1) and UDP (RFC 768) covers the addresses.
    let Some(transport) = packet.transport_mut().filter(|_| is_first) else { return Some(()) };
    match protocol {
        IpProtocol::TCP if transport.len() >= tcp::MIN_HEADER_LEN => {
            let mut tcp = Tcp::new_unchecked(transport);
            tcp.set_checksum(checksum::update_u32(tcp.checksum(), old, address));
        }
        IpProtocol::UDP if transport.len() >= udp::HEADER_LEN => {
            let mut udp = Udp::new_unchecked(transport);
            udp.set_checksum(checksum::update_udp_u32(udp.checksum(), old, address));
        }
        _ => {}
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use graph::testing::{Bench, configure};

    use super::*;

    /// Click's own test: 20 bytes of 0x99, annotation 1.0.0.2.
    #[test]
    fn as_click_does_it() {
        let hex = |text: &str| -> Vec<u8> {
            let digits: String = text.split_whitespace().collect();
            (0..digits.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap())
                .collect()
        };
        for (config, expected) in [
            ("0", "01000002 99999999 99999999 99999999 99999999"),
            ("1.0.0.3, 4", "99999999 01000003 99999999 99999999 99999999"),
            ("src", "99999999 99999999 9999cbca 01000002 99999999"),
            ("dst", "99999999 99999999 9999cbca 99999999 01000002"),
            ("1.0.0.4, dst", "99999999 99999999 9999cbc8 99999999 01000004"),
        ] {
            let config = format!(
                "in :: TestInput -> MarkIPHeader(0) -> SetIPAddress(1.0.0.2)
                    -> StoreIPAddress({config}) -> out :: TestOutput;"
            );
            let mut bench = Bench::new(&crate::registry(), &config);
            bench.push("in", &[&[0x99; 20]]);
            assert_eq!(bench.taken("out"), [hex(expected)], "{config}");
        }
    }

    #[test]
    fn udp_checksum_follows() {
        let config = "in :: TestInput -> UDPIPEncap(1.0.0.1, 7, 2.0.0.2, 8) -> StoreIPAddress(9.8.7.6, src)
                -> CheckIPHeader -> CheckUDPHeader -> out :: TestOutput;";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.push("in", &[b"odd", b"even"]);
        let packets = bench.taken("out");
        assert_eq!(packets.len(), 2);
        assert_eq!(packets[0][12..16], [9, 8, 7, 6]);
    }

    #[test]
    fn what_does_not_fit_leaves_by_output_1() {
        let mut bench = Bench::element(&crate::registry(), "StoreIPAddress(1.2.3.4, 2)", 1, 2);
        bench.push("in0", &[b"12345", b"123456"]);
        assert_eq!(bench.taken("out1"), [b"12345"]);
        assert_eq!(bench.taken("out0"), [[b'1', b'2', 1, 2, 3, 4]]);
        let mut bench = Bench::element(&crate::registry(), "StoreIPAddress(src)", 1, 1);
        bench.push("in0", &[b"12345"]);
        assert_eq!(bench.taken("out0"), [b"12345"], "no annotation, no change");
    }

    #[test]
    fn configuration_mistakes() {
        assert!(configure(&CLASS, "").is_err());
        assert!(configure(&CLASS, "1.2.3.4").is_err());
        assert!(configure(&CLASS, "1.2.3.4, 5, 6").is_err());
        assert!(configure(&CLASS, "ADDR 1.2.3.4, OFFSET src").is_ok());
        assert!(configure(&CLASS, "1.2.3.4, OFFSET src").is_ok());
    }
}
