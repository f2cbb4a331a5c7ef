//! =c
//! SetIPDSCP(DSCP)
//!
//! =s ip
//! sets the differentiated services code point
//!
//! =d
//! Sets the code point (RFC 2474; 0 to 63) of packets whose IP header is marked, and updates the checksum.
//!
//! Drop reasons: no IP header.
//!
//! =a SetIPECN, SetIP6DSCP, CheckIPHeader

use graph::{Class, Combine, Context, Element, FromArgument, Get, Handler, Put, Verdict};
use packet::wire::ipv4::{Ipv4, field};
use packet::{Batch, Packet, checksum};

pub(crate) static CLASS: Class = Class {
    name: "SetIPDSCP",
    capabilities: &[graph::TAKES_MERGED, graph::KEEPS_ALL],
    handlers: &[Handler::read_write(
        "dscp",
        Combine::First,
        "The code point.",
        &Get(|e: &mut SetIPDSCP| e.dscp.to_string()),
        &Put(|e: &mut SetIPDSCP, _, value| e.set(value)),
    )],
    manual: graph::manual!("set_ip_dscp.rs"),
    make: |setup| {
        let CodePoint(dscp) = setup.arguments.required("DSCP")?;
        setup.arguments.finish()?;
        Ok(Box::new(SetIPDSCP { dscp }))
    },
    ..Class::DEFAULT
};

/// A code point, 0 to 63.
pub struct CodePoint(pub u8);

impl FromArgument for CodePoint {
    const EXPECTED: &'static str = "code point from 0 to 63";
    fn from_argument(text: &str) -> Option<Self> {
        u8::from_argument(text).filter(|dscp| *dscp < 64).map(Self)
    }
}

/// The marked IP header as far as its checksum.
#[inline]
pub fn header_start(packet: &mut Packet) -> Option<&mut [u8; 12]> {
    packet.network_mut()?.first_chunk_mut()
}

/// Sets the octet that holds code point and ECN field, and updates the checksum.
#[inline]
pub fn set_tos(header: &mut [u8; 12], tos: u8) {
    let mut header = Ipv4::new_unchecked(header);
    let first = header.bytes()[field::VERSION_IHL];
    let word = |tos| u16::from_be_bytes([first, tos]);
    let check = checksum::update_u16(header.checksum(), word(header.tos()), word(tos));
    header.set_tos(tos);
    header.set_checksum(check);
}

struct SetIPDSCP {
    dscp: u8,
}

impl SetIPDSCP {
    /// Writes the handler `dscp`.
    fn set(&mut self, value: &str) -> Result<(), String> {
        let CodePoint(dscp) = CodePoint::from_argument(value.trim())
            .ok_or_else(|| format!("dscp: expected {}, got '{value}'", CodePoint::EXPECTED))?;
        self.dscp = dscp;
        Ok(())
    }
}

impl Element for SetIPDSCP {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        cx.filter(batch, |packet| {
            let Some(header) = header_start(packet) else { return Verdict::Drop("no IP header") };
            set_tos(header, self.dscp << 2 | header[field::TOS] & 3);
            Verdict::Keep
        });
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::{Bench, configure};

    use super::*;
    use testbed::ipv4::{ipv4, refresh};

    #[test]
    fn keeps_ecn_and_the_checksum() {
        let config = "in :: TestInput -> MarkIPHeader -> e :: SetIPDSCP(46) -> out :: TestOutput;";
        let mut bench = Bench::new(&crate::registry(), config);
        let mut packet = ipv4([1, 2, 3, 4], [5, 6, 7, 8], 17, b"data");
        packet[1] = 0b1010_1011;
        refresh(&mut packet);
        let mut expected = packet.clone();
        expected[1] = 46 << 2 | 3;
        refresh(&mut expected);
        bench.push("in", &[&packet, b"x"]);
        assert_eq!(bench.taken("out"), [expected]);
        assert_eq!(bench.drops("e", "no IP header"), 1);
        bench.write("e.dscp", "0").unwrap();
        assert!(bench.write("e.dscp", "64").is_err());
        assert_eq!(bench.read("e.dscp"), "0");
    }

    #[test]
    fn configuration_mistakes() {
        assert_eq!(
            configure(&CLASS, "64").unwrap_err(),
            ["DSCP: expected code point from 0 to 63, got '64'"]
        );
    }
}
