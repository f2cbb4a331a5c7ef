//! =c
//! IPMirror([I<keyword> DST_ANNO])
//!
//! =s ip
//! sends packets back to where they came from
//!
//! =d
//! Swaps source and destination address of packets whose IP header is marked; in TCP and UDP the ports, too, and in TCP sequence
//! and acknowledgment number. No checksum changes by that. Unless DST_ANNO is false, the destination annotation becomes the new
//! destination.
//!
//! Drop reasons: no IP header.
//!
//! =a EtherMirror, IP6Mirror

use graph::{Class, Context, Element, Verdict};
use packet::{Batch, Packet};

pub(crate) static CLASS: Class = Class {
    name: "IPMirror",
    manual: graph::manual!("ip_mirror.rs"),
    make: |setup| {
        let annotate = setup.arguments.keyword_or("DST_ANNO", true)?;
        setup.arguments.finish()?;
        Ok(Box::new(IPMirror { annotate }))
    },
    ..Class::DEFAULT
};

struct IPMirror {
    annotate: bool,
}

/// Swaps the ports of a TCP or UDP header that begins with these bytes.
pub(crate) fn swap_ports(transport: &mut [u8]) {
    if let Some([a, b, c, d]) = transport.first_chunk_mut() {
        std::mem::swap(a, c);
        std::mem::swap(b, d);
    }
}

impl IPMirror {
    fn mirror(&self, packet: &mut Packet) -> Option<()> {
        let network = packet.network_mut()?;
        let header = network.first_chunk_mut::<20>()?;
        let (source, destination) = header[12..].split_at_mut(4);
        source.swap_with_slice(destination);
        let new_destination = u32::from_be_bytes(*destination.first_chunk()?);
        let protocol = header[9];
        let header_len = usize::from(header[0] & 0x0f) * 4;
        let is_first = u16::from_be_bytes([header[6], header[7]]) & 0x1fff == 0;
        // Behind a header that is too short for one nothing is swapped.
        let transport = network.get_mut(header_len.max(20)..).filter(|_| is_first).unwrap_or_default();
        if matches!(protocol, 6 | 17) && transport.len() >= 8 {
            swap_ports(transport);
        }
        if protocol == 6
            && let Some(numbers) = transport.get_mut(4..12)
        {
            numbers.rotate_left(4);
        }
        if self.annotate {
            packet.annotations_mut().set_destination_ip(new_destination);
        }
        Some(())
    }
}

impl Element for IPMirror {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        cx.filter(batch, |packet| match self.mirror(packet) {
            Some(()) => Verdict::Keep,
            None => Verdict::Drop("no IP header"),
        });
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;
    use testbed::ipv4::{ipv4, refresh};

    const TRANSPORT: [u8; 20] = [0, 1, 0, 2, 3, 3, 3, 3, 4, 4, 4, 4, 0x50, 0, 0, 0, 0, 0, 0, 0];

    fn mirrored(packet: &[u8]) -> Vec<u8> {
        let config = "in :: TestInput -> CheckIPHeader -> IPMirror -> CheckIPHeader -> out :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.push("in", &[packet]);
        bench.taken("out").concat()
    }

    #[test]
    fn addresses_ports_and_numbers() {
        let expected = |protocol, transport: &[u8]| ipv4([5, 6, 7, 8], [1, 2, 3, 4], protocol, transport);
        let packet = |protocol| ipv4([1, 2, 3, 4], [5, 6, 7, 8], protocol, &TRANSPORT);
        let mut tcp = [0, 2, 0, 1, 4, 4, 4, 4, 3, 3, 3, 3, 0x50, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(mirrored(&packet(6)), expected(6, &tcp));
        tcp[4..12].copy_from_slice(&TRANSPORT[4..12]);
        assert_eq!(mirrored(&packet(17)), expected(17, &tcp));
        assert_eq!(mirrored(&packet(89)), expected(89, &TRANSPORT));
        let mut fragment = packet(17);
        fragment[7] = 1;
        refresh(&mut fragment);
        assert_eq!(mirrored(&fragment)[20..], TRANSPORT);
    }

    #[test]
    fn the_annotation_follows() {
        for (arguments, destination) in [("", 0x0102_0304), ("DST_ANNO false", 0x0506_0708)] {
            let config = format!(
                "in :: TestInput -> CheckIPHeader -> e :: IPMirror({arguments}) -> out :: TestOutput"
            );
            let mut bench = Bench::new(&crate::registry(), &config);
            bench.push("in", &[&ipv4([1, 2, 3, 4], [5, 6, 7, 8], 17, b"")]);
            assert_eq!(bench.taken_packets("out")[0].annotations().destination_ip(), destination);
        }
        let mut bench = Bench::element(&crate::registry(), "IPMirror", 1, 1);
        bench.push("in0", &[&ipv4([1, 2, 3, 4], [5, 6, 7, 8], 17, b"")]);
        assert_eq!(bench.drops("e", "no IP header"), 1);
    }
}
