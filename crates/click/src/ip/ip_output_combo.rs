//! =c
//! IPOutputCombo(COLOR, IPADDR, MTU)
//!
//! =s ip
//! does the last steps of an IP router in one
//!
//! =d
//! The same as
//!
//!   DropBroadcasts -> p :: PaintTee(COLOR) -> g :: IPGWOptions(IPADDR) -> FixIPSrc(IPADDR)
//!     -> d :: DecIPTTL -> l :: CheckLength(MTU) -> [0]output;
//!   p[1] -> [1]output;  g[1] -> [2]output;  d[1] -> [3]output;  l[1] -> [4]output;
//!
//! The further outputs are:
//!
//! =item 1
//! copies of packets that were painted COLOR,
//!
//! =item 2
//! packets with malformed options,
//!
//! =item 3
//! packets whose time to live has expired,
//!
//! =item 4
//! packets longer than MTU, for an C<IPFragmenter>.
//!
//! =back
//!
//! The single elements become one loop where they stand in a row, so that this element is not
//! faster.
//!
//! Drop reasons: link-level broadcast, no IP header. Copies that are missing are counted as "no
//! frame for a copy".
//!
//! =e
//!   rt[1] -> o :: IPOutputCombo(2, 18.26.7.1, 1500) -> arpq1;
//!   o[1] -> ICMPError(18.26.7.1, redirect, host) -> rt;
//!
//! =a IPInputCombo, DropBroadcasts, PaintTee, IPGWOptions, FixIPSrc, DecIPTTL, CheckLength

use std::net::Ipv4Addr;

use elements::ip::dec_ip_ttl::{self, decrement};
use elements::ip::ip_gw_options::{IPGWOptions, is_plain};
use graph::{Class, Context, Element, Verdict};
use packet::{Batch, Packet, PacketType};

use super::fix_ip_src::FixIPSrc;

pub(crate) static CLASS: Class = Class {
    name: "IPOutputCombo",
    ports: "1/5",
    processing: Class::PUSH,
    manual: graph::manual!("ip_output_combo.rs"),
    make: |setup| {
        let colour = setup.arguments.required("COLOR")?;
        let address: Ipv4Addr = setup.arguments.required("IPADDR")?;
        let mtu = setup.arguments.required("MTU")?;
        setup.arguments.finish()?;
        let (options, fix) = (IPGWOptions::new(address), FixIPSrc { address });
        Ok(Box::new(IPOutputCombo { colour, options, fix, mtu }))
    },
    ..Class::DEFAULT
};

/// What leaves by which output.
const REDIRECTED: usize = 1;
const BAD_OPTIONS: usize = 2;
const EXPIRED: usize = 3;
const TOO_LONG: usize = 4;

struct IPOutputCombo {
    colour: u8,
    options: IPGWOptions,
    fix: FixIPSrc,
    mtu: usize,
}

impl IPOutputCombo {
    #[inline]
    fn finish(&mut self, packet: &mut Packet, now_ns: u64) -> Verdict {
        if !is_plain(packet) {
            match self.options.process_packet(packet, now_ns) {
                Verdict::Keep => {}
                Verdict::Divert(..) => return Verdict::Output(BAD_OPTIONS),
                other => return other,
            }
        }
        if packet.annotations().fix_source() {
            self.fix.fix(packet);
        }
        match decrement(packet) {
            Ok(()) if packet.len() > self.mtu => Verdict::Output(TOO_LONG),
            Ok(()) => Verdict::Keep,
            Err(dec_ip_ttl::Flaw::Expired) => Verdict::Output(EXPIRED),
            Err(dec_ip_ttl::Flaw::NoHeader) => Verdict::Drop("no IP header"),
        }
    }
}

impl Element for IPOutputCombo {
    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        cx.filter(batch, |packet| match packet.packet_type() {
            PacketType::Broadcast | PacketType::Multicast => Verdict::Drop("link-level broadcast"),
            _ => Verdict::Keep,
        });
        for packet in batch.packets() {
            if packet.annotations().paint() == self.colour {
                match cx.copy(packet) {
                    Some(copy) => cx.emit(REDIRECTED, copy),
                    None => cx.count_drop("no frame for a copy", 1),
                }
            }
        }
        let now_ns = cx.now_ns();
        cx.filter(batch, |packet| self.finish(packet, now_ns));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};
    use testbed::ipv4::any_packet;

    use proptest::prelude::*;

    /// A packet, its paint, its type, and whether its source is to be fixed.
    type Sample = (Vec<u8>, u8, bool, bool);

    fn outcome(config: &str, samples: &[Sample]) -> Vec<Vec<Vec<u8>>> {
        let mut bench = Bench::new(&crate::registry(), config);
        let packets = samples.iter().map(|(bytes, paint, broadcast, fix)| {
            let mut packet = bench.packet(bytes);
            packet.annotations_mut().set_paint(*paint);
            packet.annotations_mut().set_fix_source(*fix);
            packet.set_packet_type(if *broadcast { PacketType::Broadcast } else { PacketType::Host });
            packet
        });
        let packets = packets.collect();
        bench.push_packets("in", packets);
        let mut outcome = ["out0", "out1", "out2", "out3", "out4"].map(|output| bench.taken(output));
        // Odd packets leave behind the others of their batch.
        outcome.iter_mut().for_each(|packets| packets.sort());
        outcome.into()
    }

    proptest! {
        #[test]
        fn as_the_six(
            samples in proptest::collection::vec((any_packet(), 0u8..3, prop::bool::weighted(0.1), any::<bool>()), 1..30),
        ) {
            let outputs = "out1 :: TestOutput; out2 :: TestOutput; out3 :: TestOutput; out4 :: TestOutput;";
            let combo = format!("{outputs} in :: TestInput -> CheckIPHeader
                -> e :: IPOutputCombo(2, 9.8.7.6, 100) -> out0 :: TestOutput;
                e[1] -> out1; e[2] -> out2; e[3] -> out3; e[4] -> out4;");
            let six = format!("{outputs} in :: TestInput -> CheckIPHeader
                -> DropBroadcasts -> p :: PaintTee(2) -> g :: IPGWOptions(9.8.7.6)
                -> FixIPSrc(9.8.7.6) -> d :: DecIPTTL -> l :: CheckLength(100) -> out0 :: TestOutput;
                p[1] -> out1; g[1] -> out2; d[1] -> out3; l[1] -> out4;");
            prop_assert_eq!(outcome(&combo, &samples), outcome(&six, &samples));
        }
    }

    #[test]
    fn mistakes_and_drops() {
        let mut bench = Bench::element(&crate::registry(), "IPOutputCombo(1, 1.2.3.4, 1500)", 1, 5);
        bench.push("in0", &[b"no header"]);
        assert_eq!(bench.drops("e", "no IP header"), 1);
        assert!(configure(&CLASS, "1, 1.2.3.4").is_err());
        assert!(configure(&CLASS, "1, 1.2.3, 1500").is_err());
    }
}
