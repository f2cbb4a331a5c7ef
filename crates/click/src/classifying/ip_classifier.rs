//! =c
//! IPClassifier(PATTERN, ..., PATTERN)
//!
//! =s classification
//! sorts IP packets by their contents
//!
//! =d
//! Sends each IP packet out by the output of the first PATTERN that is true of it. There is one output for each pattern. The IP
//! header must be marked (CheckIPHeader, MarkIPHeader); of a packet without that only patterns that match everything are true.
//!
//! Patterns are built of primitives:
//!
//!   [SRCORDST] host ADDR            [SRCORDST] net ADDR/BITS      [SRCORDST] net ADDR mask MASK
//!   [SRCORDST] [tcp|udp] port PORT  ip proto PROTO                icmp type TYPE
//!   ip vers N  ip hl N  ip tos N  ip dscp N  ip len N  ip id N  ip ttl N
//!   ip frag  ip unfrag  ip ect  ip ce
//!   tcp opt syn|ack|fin|rst|psh|urg  tcp win N
//!   ip[POS:LEN] N  transp[POS:LEN] N  tcp[POS:LEN] N  udp[POS:LEN] N  icmp[POS:LEN] N
//!   [SRCORDST] ether host ADDR  true  false
//!
//! SRCORDST is C<src>, C<dst>, C<src or dst> (the default) or C<src and dst>. Before a value may
//! stand one of `==`, `!=`, `<`, `>`, `<=` and `>=`, and before that a mask:
//! C<src tcp port & 10 == 8>. Primitives are joined by C<and>, C<or>, C<not> (C<&&>, C<||>, C<!>),
//! C<? :> and parentheses. Much can be left out: C<www> is C<port www>, C<10.0.0.0/8> is
//! C<net 10.0.0.0/8>, C<syn> is C<tcp opt syn>, and C<src port 80 or 81> is
//! C<src port 80 or src port 81>. C<->, C<any> and C<all> match everything.
//!
//! Ports, ICMP types and fields of TCP are looked at in first fragments only. A primitive that looks at bytes which the packet
//! does not have is false.
//!
//! Dropped packets are counted as "no pattern matches".
//!
//! Beyond Click: ports and numbers may be ranges, C<port 1024-65535>.
//!
//! A packet in which several are merged (see Divide) is judged once, by its headers. Its length is
//! that of all of them.
//!
//! =e
//!   IPClassifier(10.0.0.0/24 and syn, 10.0.0.0/24 and fin ack, 10.0.0.0/24 and tcp, -)
//!
//! =a Classifier, IPFilter, CheckIPHeader, MarkIPHeader

use elements::classifying::decider::{Decider, make, one_for_each_output};
use elements::decision::Program;
use graph::Class;

pub(crate) static CLASS: Class = Class {
    capabilities: &[graph::TAKES_MERGED],
    name: "IPClassifier",
    ports: "1/-",
    processing: Class::PUSH,
    handlers: Decider::<true>::HANDLERS,
    manual: graph::manual!("ip_classifier.rs"),
    make: |setup| {
        make::<true>(
            setup,
            |patterns, outputs| {
                let compiled = Program::ip_classifier(patterns)?;
                one_for_each_output(patterns, outputs)?;
                Ok(compiled)
            },
            "no pattern matches",
        )
    },
    ..Class::DEFAULT
};

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use graph::testing::{Bench, configure};
    use packet::Packet;
    use proptest::prelude::*;

    /// A UDP packet from 10.0.0.1 to 10.0.0.2 and `port`, behind `before` bytes.
    pub(in crate::classifying) fn udp(bench: &mut Bench, before: usize, port: u16) -> Packet {
        let mut bytes = vec![0; before + 28];
        bytes[before] = 0x45;
        bytes[before + 9] = 17;
        bytes[before + 12..before + 20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        bytes[before + 22..before + 24].copy_from_slice(&port.to_be_bytes());
        let mut packet = bench.packet(&bytes);
        packet.set_network_and_transport_header(before, 20);
        packet
    }

    #[test]
    fn packets_go_where_the_first_pattern_says() {
        let text = "IPClassifier(dst udp port 53, src host 10.0.0.1, -)";
        let mut bench = Bench::element(&crate::registry(), text, 1, 3);
        let plain = udp(&mut bench, 0, 53);
        let framed = udp(&mut bench, 14, 53);
        let other = udp(&mut bench, 0, 54);
        // The IP header may have been stripped, wholly or in part, since it was marked.
        let mut stripped = udp(&mut bench, 14, 53);
        stripped.strip(14 + 20);
        let mut cut = udp(&mut bench, 0, 54);
        cut.strip(2);
        let unmarked = bench.packet(&[0x45; 28]);
        bench.push_packets("in0", vec![plain, framed, other, stripped, cut, unmarked]);
        let lengths = |bench: &mut Bench, output| -> Vec<usize> {
            bench.taken_packets(output).iter().map(|packet| packet.len()).collect()
        };
        assert_eq!(lengths(&mut bench, "out0"), [28, 42, 8]);
        assert_eq!(lengths(&mut bench, "out1"), [28, 26]);
        assert_eq!(lengths(&mut bench, "out2"), [28]);
    }

    #[test]
    fn every_mistake_is_told() {
        let errors = configure(&CLASS, "src host, -, dst port 70000").unwrap_err();
        assert!(errors.len() >= 2, "{errors:?}");
        assert_eq!(configure(&CLASS, "tcp, -").unwrap_err().len(), 1);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn any_packet_leaves(
            bytes in proptest::collection::vec(any::<u8>(), 0..80),
            marks in (0usize..90, 0usize..60), strip in 0usize..40, marked in any::<bool>(),
        ) {
            let text = "IPClassifier(tcp dst port 80 and syn, ip frag, src net 10.0.0.0/8 or udp port > 1023, \
                        ether host 1:2:3:4:5:6, icmp type echo or transp[4:4] 5, -)";
            let mut bench = Bench::element(&crate::registry(), text, 1, 6);
            let mut packet = bench.packet(&bytes);
            if marked {
                packet.set_network_and_transport_header(marks.0, marks.1);
            }
            packet.strip(strip);
            bench.push_packets("in0", vec![packet]);
            let left: usize = (0..6).map(|output| bench.taken(&format!("out{output}")).len()).sum();
            prop_assert_eq!(left, 1);
        }
    }
}
