//! =c
//! MarkIPCE([FORCE])
//!
//! =s ip
//! marks packets as having met congestion
//!
//! =d
//! Sets the ECN field (RFC 3168) of packets whose IP header is marked to "congestion experienced", and updates the checksum. A
//! packet whose sender does not know ECN is dropped; with FORCE true it is marked as well.
//!
//! Drop reasons: not capable of ECN, no IP header.
//!
//! =e
//!   red :: RED(5, 50, 0.02);
//!   ... -> red -> q :: Queue -> ...;  red[1] -> MarkIPCE -> q;
//!
//! =a SetIPECN, RED

use elements::ip::set_ip_dscp::{header_start, set_tos};
use graph::{Class, Verdict};

use crate::each_packet::each_packet;

pub(crate) static CLASS: Class = Class {
    name: "MarkIPCE",
    manual: graph::manual!("mark_ip_ce.rs"),
    make: |setup| {
        // Whether packets are marked that are not capable of ECN.
        let forces = setup.arguments.optional("FORCE")?.unwrap_or(false);
        each_packet(setup, move |packet| {
            let Some(header) = header_start(packet) else { return Verdict::Drop("no IP header") };
            if header[1] & CONGESTION_EXPERIENCED == 0 && !forces {
                return Verdict::Drop("not capable of ECN");
            }
            set_tos(header, header[1] | CONGESTION_EXPERIENCED);
            Verdict::Keep
        })
    },
    ..Class::DEFAULT
};

const CONGESTION_EXPERIENCED: u8 = 3;

#[cfg(test)]
mod tests {
    use graph::testing::Bench;
    use testbed::ipv4::{ipv4, refresh};

    #[test]
    fn only_packets_that_know_ecn() {
        let config = "in :: TestInput -> MarkIPHeader -> e :: MarkIPCE -> out :: TestOutput;";
        let mut bench = Bench::new(&crate::registry(), config);
        let packet = |tos: u8| {
            let mut packet = ipv4([1, 2, 3, 4], [5, 6, 7, 8], 17, b"data");
            packet[1] = tos;
            refresh(&mut packet);
            packet
        };
        bench.push("in", &[&packet(0x81), &packet(0x82), &packet(0x83), &packet(0x80), b"x"]);
        assert_eq!(bench.taken("out"), [packet(0x83), packet(0x83), packet(0x83)]);
        assert_eq!(bench.drops("e", "not capable of ECN"), 1);
        assert_eq!(bench.read("e.drops"), "2");
    }
}
