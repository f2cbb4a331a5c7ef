//! =c
//! EtherMirror()
//!
//! =s ethernet
//! swaps the addresses of Ethernet headers
//!
//! =d
//! Swaps source and destination in the Ethernet header at the start of each packet, so that it goes back to where it came
//! from. A packet of fewer than 12 bytes is dropped and counted as "truncated Ethernet header".
//!
//! =a EtherEncap, EtherRewrite

use elements::ethernet::header::TRUNCATED;
use graph::{Class, Context, Element, Verdict};
use packet::Batch;

pub(crate) static CLASS: Class = Class {
    name: "EtherMirror",
    manual: graph::manual!("ether_mirror.rs"),
    make: |setup| {
        setup.arguments.finish()?;
        Ok(Box::new(EtherMirror))
    },
    ..Class::DEFAULT
};

struct EtherMirror;

impl Element for EtherMirror {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        cx.filter(batch, |packet| match packet.data_mut().first_chunk_mut::<12>() {
            Some(addresses) => {
                let (destination, source) = addresses.split_at_mut(6);
                destination.swap_with_slice(source);
                Verdict::Keep
            }
            None => Verdict::Drop(TRUNCATED),
        });
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    #[test]
    fn addresses_swap() {
        let mut bench = Bench::element(&crate::registry(), "EtherMirror", 1, 1);
        bench.push("in0", &[b"dstdstsrcsrc\x08\x00x", b"dstdstsrcsr"]);
        assert_eq!(bench.taken("out0"), [b"srcsrcdstdst\x08\x00x"]);
        assert_eq!(bench.drops("e", "truncated Ethernet header"), 1);
    }
}
