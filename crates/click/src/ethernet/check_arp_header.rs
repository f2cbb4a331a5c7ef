//! =c
//! CheckARPHeader([OFFSET, I<keywords> VERBOSE, DETAILS])
//!
//! =s arp
//! checks ARP packets
//!
//! =d
//! Takes packets with an ARP header OFFSET bytes into the data (0 by default). Checks that the header and its four addresses
//! are there, that Ethernet addresses have six bytes, IPv4 addresses four and IPv6 addresses sixteen. Marks good packets'
//! ARP header as the network header. Bad ones leave by output 1 or, if that is not in use, are dropped and counted as
//! "tiny packet", "too small for addresses", "bad hardware type/length" or "bad protocol type/length".
//!
//! With VERBOSE true every bad packet is reported, otherwise the first one. With DETAILS true there is a C<drop_details> handler.
//!
//! =a ARPPrint, CheckIPHeader

use graph::{Class, Combine, Context, Element, Get, Handler};
use packet::{Batch, Packet};

pub(crate) static CLASS: Class = Class {
    name: "CheckARPHeader",
    ports: "1/1-2",
    processing: Class::AGNOSTIC_WITH_ERRORS,
    handlers: &[Handler::read(
        "drop_details",
        Combine::Join,
        "Bad packets by reason. Only with DETAILS.",
        &Get(|e: &mut CheckArpHeader| e.details_text()),
    )],
    manual: graph::manual!("check_arp_header.rs"),
    make: |setup| {
        let offset = setup.arguments.optional("OFFSET")?.unwrap_or(0);
        let verbose = setup.arguments.keyword_or("VERBOSE", false)?;
        let details = setup.arguments.keyword_or("DETAILS", false)?;
        setup.arguments.finish()?;
        let name = setup.name().to_owned();
        Ok(Box::new(CheckArpHeader { offset, verbose, details, counts: [0; REASONS.len()], name }))
    },
    ..Class::DEFAULT
};

const REASONS: [&str; 4] =
    ["tiny packet", "too small for addresses", "bad hardware type/length", "bad protocol type/length"];

/// What stands before the addresses (RFC 826, "Packet format").
const FIXED_LEN: usize = 8;

struct CheckArpHeader {
    offset: usize,
    verbose: bool,
    details: bool,
    counts: [u64; REASONS.len()],
    name: String,
}

/// Checks and marks the ARP header; the error is the index of the reason.
fn check(packet: &mut Packet, offset: usize) -> Result<(), usize> {
    let bytes = packet.data().get(offset..).unwrap_or(&[]);
    let Some(&[h0, h1, p0, p1, hardware_len, protocol_len, ..]) = bytes.first_chunk::<FIXED_LEN>() else {
        return Err(0);
    };
    let length = FIXED_LEN + 2 * usize::from(hardware_len) + 2 * usize::from(protocol_len);
    if bytes.len() < length {
        return Err(1);
    }
    if u16::from_be_bytes([h0, h1]) == 1 && hardware_len != 6 {
        return Err(2);
    }
    match (u16::from_be_bytes([p0, p1]), protocol_len) {
        (0x0800, 4) | (0x86dd, 16) => {}
        (0x0800 | 0x86dd, _) => return Err(3),
        _ => {}
    }
    packet.set_network_and_transport_header(offset, length);
    Ok(())
}

impl CheckArpHeader {
    /// Bad packets, by reason.
    fn details_text(&self) -> String {
        let lines = REASONS.iter().zip(&self.counts).map(|(reason, count)| format!("{count}\t{reason}\n"));
        lines.collect()
    }
}

impl Element for CheckArpHeader {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        let offset = self.offset;
        let bad = std::cell::Cell::new(0);
        batch.extract(
            |packet| match check(packet, offset) {
                Ok(()) => true,
                Err(found) => {
                    bad.set(found);
                    false
                }
            },
            |packet| {
                let reason = bad.get();
                if self.verbose || self.counts == [0; REASONS.len()] {
                    cx.message(&format!("{}: ARP header check failed: {}", self.name, REASONS[reason]));
                }
                self.counts[reason] += 1;
                cx.divert(1, packet, REASONS[reason]);
            },
        );
    }

    fn has_handler(&self, _name: &str) -> bool {
        self.details
    }
}

#[cfg(test)]
mod tests {
    use super::super::arp_frame::tests::REQUEST;
    use super::*;
    use graph::testing::Bench;
    use proptest::prelude::*;

    #[test]
    fn good_and_bad() {
        let mut bench = Bench::element(&crate::registry(), "CheckARPHeader(14, DETAILS true)", 1, 1);
        let changed = |at: usize, to: u8| {
            let mut frame = REQUEST;
            frame[at] = to;
            frame
        };
        bench.push("in0", &[&REQUEST, &REQUEST[..21], &REQUEST[..41], &changed(18, 5), &changed(19, 3)]);
        let packets = bench.taken_packets("out0");
        assert_eq!((packets.len(), packets[0].network_offset()), (1, Some(14)));
        for reason in REASONS {
            assert_eq!(bench.drops("e", reason), 1, "{reason}");
        }
        assert_eq!(bench.messages(), ["e: ARP header check failed: tiny packet"]);
        assert!(bench.read("e.drop_details").starts_with("1\ttiny packet\n1\ttoo small"));
    }

    proptest! {
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..50), offset in 0usize..60) {
            let text = format!("CheckARPHeader({offset})");
            let mut bench = Bench::element(&crate::registry(), &text, 1, 2);
            bench.push("in0", &[&bytes]);
            prop_assert_eq!(bench.taken("out0").len() + bench.taken("out1").len(), 1);
        }
    }
}
