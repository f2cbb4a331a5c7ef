//! =c
//! SetIPChecksum()
//!
//! =s ip
//! sets the IP checksum
//!
//! =d
//! Computes the checksum of the IP header anew: of the marked one, or of one at the start of the data when none
//! is marked.
//!
//! Drop reasons: no IP header.
//!
//! =a CheckIPHeader, SetUDPChecksum, SetTCPChecksum

use graph::{Alias, Class};
use packet::Packet;
use packet::wire::ipv4::{Ipv4, MIN_HEADER_LEN};

use crate::each_packet::{each_packet, or_drop};

pub(crate) static CLASS: Class = Class {
    name: "SetIPChecksum",
    aliases: &[Alias {
        name: "ResetIPChecksum",
        difference: "In FastClick it leaves the checksum to the network card, which not every port has; \
                here it is computed at once.",
    }],
    manual: graph::manual!("set_ip_checksum.rs"),
    make: |setup| each_packet(setup, |packet| or_drop(set(packet), "no IP header")),
    ..Class::DEFAULT
};

fn set(packet: &mut Packet) -> Option<()> {
    let bytes = if packet.network_offset().is_some() { packet.network_mut()? } else { packet.data_mut() };
    let header_len = Ipv4::new_unchecked(bytes.get(..1)?).header_len();
    let header = bytes.get_mut(..header_len).filter(|_| header_len >= MIN_HEADER_LEN)?;
    Ipv4::new_unchecked(header).fill_checksum();
    Some(())
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;
    use testbed::ipv4::with_options;

    #[test]
    fn sets_it_where_the_header_is() {
        let packet = with_options([1, 2, 3, 4], [5, 6, 7, 8], 17, &[1, 1, 1, 0], b"data");
        let mut spoilt = packet.clone();
        spoilt[10..12].copy_from_slice(&[0xde, 0xad]);
        let mut bench = Bench::element(&crate::registry(), "SetIPChecksum", 1, 1);
        bench.push("in0", &[&spoilt, &spoilt[..23], &[0x44; 30]]);
        assert_eq!(bench.taken("out0"), [&packet[..]]);
        assert_eq!(bench.read("e.drops"), "2");
        let config = "in :: TestInput -> MarkIPHeader(2) -> SetIPChecksum -> out :: TestOutput;";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.push("in", &[&[&[0, 0], &spoilt[..]].concat()]);
        assert_eq!(bench.taken("out"), [[&[0, 0], &packet[..]].concat()]);
    }
}
