//! =c
//! FixIPSrc(IPADDR)
//!
//! =s ip
//! sets the source address of packets that ask for it
//!
//! =d
//! A packet whose "fix source" annotation is set gets IPADDR as its source address and a fresh checksum, and the
//! annotation is cleared. All others pass untouched. ICMPError sets the annotation: RFC 1812, 4.3.2.4 wants an
//! error's source to be the address of the interface it leaves by, which is known only here.
//!
//! =a ICMPError

use std::net::Ipv4Addr;

use elements::runs::{self, Step};
use graph::runs::Ordinary;
use graph::{Class, Context, Element};
use packet::wire::ipv4::{Ipv4, MIN_HEADER_LEN};
use packet::{Batch, Packet};

pub(crate) static CLASS: Class = Class {
    capabilities: &[graph::TAKES_MERGED],
    name: "FixIPSrc",
    manual: graph::manual!("fix_ip_src.rs"),
    make: |setup| {
        let address = setup.arguments.required("IPADDR")?;
        setup.arguments.finish()?;
        Ok(Box::new(FixIPSrc { address }))
    },
    ..Class::DEFAULT
};

pub(super) struct FixIPSrc {
    pub(super) address: Ipv4Addr,
}

impl FixIPSrc {
    /// Sets the source of a packet that asks for it.
    #[cold]
    #[inline(never)]
    pub(super) fn fix(&self, packet: &mut Packet) {
        let Some(bytes) = packet.network_mut() else { return };
        let header_len = bytes.get(..1).map_or(0, |first| Ipv4::new_unchecked(first).header_len());
        if let Some(header) = bytes.get_mut(..header_len).filter(|_| header_len >= MIN_HEADER_LEN) {
            let mut header = Ipv4::new_unchecked(header);
            header.set_source(self.address);
            header.fill_checksum();
            packet.annotations_mut().set_fix_source(false);
        }
    }
}

impl Element for FixIPSrc {
    fn ordinary(&self) -> Option<Ordinary> {
        runs::ordinary([Step::SourceStays])
    }

    fn process(&mut self, _cx: &mut Context, batch: &mut Batch) {
        for packet in batch.packets_mut() {
            if packet.annotations().fix_source() {
                self.fix(packet);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;
    use testbed::ipv4::{ipv4, with_options};

    #[test]
    fn only_where_asked() {
        let mut bench = Bench::element(&crate::registry(), "FixIPSrc(9.8.7.6)", 1, 1);
        let before = with_options([1, 2, 3, 4], [5, 6, 7, 8], 1, &[1, 1, 1, 0], b"data");
        let after = with_options([9, 8, 7, 6], [5, 6, 7, 8], 1, &[1, 1, 1, 0], b"data");
        let mut marked = bench.packet(&before);
        marked.set_network_header(0);
        marked.annotations_mut().set_fix_source(true);
        let mut plain = bench.packet(&before);
        plain.set_network_header(0);
        let mut headerless = bench.packet(&ipv4([1, 2, 3, 4], [5, 6, 7, 8], 1, b""));
        headerless.annotations_mut().set_fix_source(true);
        bench.push_packets("in0", vec![marked, plain, headerless]);
        let packets = bench.taken_packets("out0");
        assert_eq!(packets[0].data(), after);
        assert!(!packets[0].annotations().fix_source());
        assert_eq!(packets[1].data(), before);
        assert_eq!(packets[2].data()[12], 1);
    }
}
