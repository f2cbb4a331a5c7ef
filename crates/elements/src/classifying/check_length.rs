//! =c
//! CheckLength(LENGTH)
//!
//! =s classification
//! sorts packets by their length
//!
//! =d
//! Packets of at most LENGTH bytes leave by output 0. Longer ones leave by output 1 if that is connected and
//! are dropped otherwise.
//!
//! Of packets that begin with their IP header, of either version, LENGTH is an MTU. IPv6 packets are never
//! fragmented by routers (RFC 8200, 5); what leaves by output 1 wants an ICMP6Error. IPv4 packets with the
//! don't-fragment bit set want an ICMPError, and others an IPFragmenter.
//!
//! Other than in Click there is no extra length annotation.
//!
//! Drop reasons: too long.
//!
//! =e
//!   ... -> mtu :: CheckLength(1500) -> ...
//!   mtu[1] -> ICMP6Error(2001:db8::1, packettoobig, PMTU 1500) -> ...
//!
//! =a IPFragmenter, ICMP6Error, Truncate

use graph::runs::Ordinary;
use graph::{Class, Combine, Context, Element, FromArgument, Get, Handler, Put, Verdict};
use packet::Batch;

use crate::runs::{self, Step};

pub(crate) static CLASS: Class = Class {
    name: "CheckLength",
    capabilities: &[graph::KEEPS_ALL, graph::TAKES_MERGED],
    ports: "1/1-2",
    processing: Class::AGNOSTIC_WITH_ERRORS,
    handlers: &[
        Handler::read_write(
            "length",
            Combine::First,
            "The LENGTH argument.",
            &Get(|e: &mut CheckLength| e.length.to_string()),
            &Put(|e: &mut CheckLength, _, value| {
                e.length = usize::from_value(value)?;
                Ok(())
            }),
        ),
        Handler::read(
            "drops",
            Combine::Sum,
            "Packets that were too long so far.",
            &Get(|e: &mut CheckLength| e.drops.to_string()),
        ),
    ],
    manual: graph::manual!("check_length.rs"),
    make: |setup| {
        let length = setup.arguments.required("LENGTH")?;
        setup.arguments.finish()?;
        Ok(Box::new(CheckLength { length, drops: 0 }))
    },
    ..Class::DEFAULT
};

struct CheckLength {
    length: usize,
    drops: u64,
}

impl Element for CheckLength {
    fn ordinary(&self) -> Option<Ordinary> {
        runs::ordinary([Step::AtMost(self.length)])
    }

    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        let Self { length, drops } = self;
        cx.filter(batch, |packet| {
            // Merged packets are as long as their pieces.
            if packet.len() <= *length || packet.piece_len() <= *length {
                return Verdict::Keep;
            }
            *drops += packet.pieces();
            Verdict::Divert(1, "too long")
        });
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::{Bench, configure};

    use super::*;

    #[test]
    fn by_length() {
        let mut bench = Bench::element(&crate::registry(), "CheckLength(4)", 1, 2);
        bench.push("in0", &[b"1234", b"12345", b""]);
        assert_eq!(bench.taken("out0"), [&b"1234"[..], b""]);
        assert_eq!(bench.taken("out1"), [b"12345"]);
        bench.write("e.length", "5").unwrap();
        bench.push("in0", &[b"12345"]);
        assert_eq!((bench.taken("out0").len(), bench.read("e.drops")), (1, "1".into()));
        let mut bench = Bench::element(&crate::registry(), "CheckLength(4)", 1, 1);
        bench.push("in0", &[b"12345"]);
        assert_eq!(bench.drops("e", "too long"), 1);
        assert!(configure(&CLASS, "").is_err());
    }
}
