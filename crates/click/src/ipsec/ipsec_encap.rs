//! =c
//! IPsecEncap(PROTO)
//!
//! =s ipsec
//! puts the outer IP header of a tunnel before packets
//!
//! =d
//! Each packet becomes the payload of an IP packet with protocol PROTO (`esp` or 50). The IP packet
//! goes to the address in the destination annotation, which is the tunnel's other end behind
//! RadixIPsecLookup. Its source is 0.0.0.0, and it is marked for FixIPSrc, which writes the address
//! of the interface. The time to live is 250, and identifications count up from 0. Network and
//! transport header are marked.
//!
//! Drop reasons: no head room for the header.
//!
//! =a IPEncap, FixIPSrc, IPsecESPEncap, RadixIPsecLookup, EspEncap

use std::net::Ipv4Addr;

use graph::{Class, ConfigError, Context, Element, Setup, Verdict};
use packet::Batch;
use packet::wire::ipv4::Ipv4Repr;

use crate::ip::{Protocol, prepend_header};

pub(crate) static CLASS: Class =
    Class { name: "IPsecEncap", manual: graph::manual!("ipsec_encap.rs"), make, ..Class::DEFAULT };

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let Protocol(protocol) = setup.arguments.required("PROTO")?;
    setup.arguments.finish()?;
    let mut header = Ipv4Repr::new(Ipv4Addr::UNSPECIFIED, Ipv4Addr::UNSPECIFIED, protocol, 0);
    header.ttl = 250;
    Ok(Box::new(IpsecEncap(header)))
}

struct IpsecEncap(Ipv4Repr);

impl Element for IpsecEncap {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        let Self(header) = self;
        cx.filter(batch, |packet| {
            header.destination = Ipv4Addr::from_bits(packet.annotations().destination_ip());
            header.payload_len = packet.len();
            if prepend_header(packet, header).is_none() {
                return Verdict::Drop("no head room for the header");
            }
            packet.annotations_mut().set_fix_source(true);
            header.identification = header.identification.wrapping_add(1);
            Verdict::Keep
        });
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::{Bench, configure};

    use super::*;

    #[test]
    fn to_the_byte() {
        let config = "in :: TestInput -> SetIPAddress(2.0.0.2) -> IPsecEncap(esp) -> out :: TestOutput;";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.push("in", &[b"abc", b"abc"]);
        let packet = &bench.taken_packets("out")[1];
        let header = [0x45, 0, 0, 23, 0, 1, 0, 0, 250, 50, 0xbe, 0xb2, 0, 0, 0, 0, 2, 0, 0, 2];
        assert_eq!(packet.data(), [&header[..], b"abc"].concat());
        assert!(packet.annotations().fix_source());
        assert_eq!(packet.transport(), Some(&b"abc"[..]));
        let error = configure(&CLASS, "ipsec").unwrap_err();
        assert!(error[0].contains("a number up to 255") && error[0].contains("esp"), "{error:?}");
    }
}
