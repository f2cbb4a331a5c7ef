//! =c
//! ResetIPChecksum()
//!
//! =s ip
//! sets the IP checksum
//!
//! =d
//! The same as C<SetIPChecksum>. In FastClick it leaves the checksum to the network card, which not every port has; here it is
//! computed at once.
//!
//! Drop reasons: no IP header.
//!
//! =a SetIPChecksum

use graph::Class;

use super::set_ip_checksum::make;

pub(crate) static CLASS: Class =
    Class { name: "ResetIPChecksum", manual: graph::manual!("reset_ip_checksum.rs"), make, ..Class::DEFAULT };

#[cfg(test)]
mod tests {
    use graph::testing::Bench;
    use testbed::ipv4::ipv4;

    #[test]
    fn the_checksum_is_right() {
        let packet = ipv4([1, 2, 3, 4], [5, 6, 7, 8], 17, b"data");
        let mut spoilt = packet.clone();
        spoilt[10] ^= 1;
        let mut bench = Bench::element(&crate::registry(), "ResetIPChecksum", 1, 1);
        bench.push("in0", &[&spoilt]);
        assert_eq!(bench.taken("out0"), [packet]);
    }
}
