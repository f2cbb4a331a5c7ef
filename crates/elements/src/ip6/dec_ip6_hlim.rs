//! =c
//! DecIP6HLIM()
//!
//! =s ip6
//! takes one off the hop limit
//!
//! =d
//! Expects packets with the IPv6 header marked. A packet whose hop limit is 0 or 1 leaves by output 1 if that
//! is connected (usually to an ICMP6Error) and is dropped otherwise. All others lose one and leave by output
//! 0.
//!
//! Drop reasons: hop limit expired, no IPv6 header.
//!
//! =e
//!   ... -> CheckIP6Header -> hl :: DecIP6HLIM -> ...
//!   hl[1] -> ICMP6Error(2001:db8::1, timeexceeded) -> ...
//!
//! =a ICMP6Error, CheckIP6Header, DecIPTTL

use std::cell::Cell;

use graph::runs::Ordinary;
use graph::{Class, Combine, Context, Element, Get, Handler};
use packet::wire::ipv6::{HEADER_LEN, field::HOP_LIMIT};
use packet::{Batch, Packet};

use crate::runs::{self, Step};

pub(crate) static CLASS: Class = Class {
    name: "DecIP6HLIM",
    capabilities: &[graph::TAKES_MERGED, graph::KEEPS_ALL],
    ports: "1/1-2",
    processing: Class::AGNOSTIC_WITH_ERRORS,
    handlers: &[Handler::read(
        "drops",
        Combine::Sum,
        "Packets that expired so far.",
        &Get(|e: &mut DecIp6Hlim| e.expired.to_string()),
    )],
    manual: graph::manual!("dec_ip6_hlim.rs"),
    make: |setup| {
        setup.arguments.finish()?;
        Ok(Box::new(DecIp6Hlim { expired: 0 }))
    },
    ..Class::DEFAULT
};

struct DecIp6Hlim {
    expired: u64,
}

/// Why a packet does not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    Expired,
    NoHeader,
}

/// Takes one hop off.
#[inline(always)]
pub(crate) fn decrement(packet: &mut Packet) -> Result<(), Flaw> {
    let Some(header) = packet.network_mut().and_then(|bytes| bytes.first_chunk_mut::<HEADER_LEN>()) else {
        return Err(Flaw::NoHeader);
    };
    // RFC 8200, 3: "When forwarding, the packet is discarded if Hop Limit was zero when received or is
    // decremented to zero."
    if header[HOP_LIMIT] <= 1 {
        return Err(Flaw::Expired);
    }
    header[HOP_LIMIT] -= 1;
    Ok(())
}

impl Element for DecIp6Hlim {
    fn ordinary(&self) -> Option<Ordinary> {
        runs::ordinary([Step::DecrementHopLimit])
    }

    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        let flaw = Cell::new(Flaw::Expired);
        batch.extract(
            |packet| match decrement(packet) {
                Ok(()) => true,
                Err(found) => {
                    flaw.set(found);
                    false
                }
            },
            |packet| match flaw.get() {
                Flaw::Expired => {
                    self.expired += packet.pieces();
                    cx.divert(1, packet, "hop limit expired");
                }
                Flaw::NoHeader => cx.drop(packet, "no IPv6 header"),
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    use super::*;
    use testbed::ipv6::{FAR, HOST, ipv6};

    fn with_hop_limit(hop_limit: u8) -> Vec<u8> {
        let mut packet = ipv6(HOST, FAR, 17, b"payload");
        packet[HOP_LIMIT] = hop_limit;
        packet
    }

    #[test]
    fn one_less_or_expired() {
        for outputs in [1, 2] {
            let config = if outputs == 1 { "" } else { "; e[1] -> expired :: TestOutput" };
            let config =
                format!("in :: TestInput -> MarkIP6Header -> e :: DecIP6HLIM -> out :: TestOutput {config}");
            let mut bench = Bench::new(&crate::registry(), &config);
            let packets = [255, 2, 1, 0].map(with_hop_limit);
            bench.push("in", &packets.each_ref().map(Vec::as_slice));
            assert_eq!(bench.taken("out"), [254, 1].map(with_hop_limit));
            assert_eq!(bench.read("e.drops"), "2");
            if outputs == 1 {
                assert_eq!(bench.drops("e", "hop limit expired"), 2);
            } else {
                assert_eq!(bench.taken("expired"), packets[2..]);
            }
        }
    }

    #[test]
    fn no_header() {
        let mut bench = Bench::element(&crate::registry(), "DecIP6HLIM", 1, 1);
        bench.push("in0", &[&with_hop_limit(64)]);
        assert_eq!(bench.drops("e", "no IPv6 header"), 1);
    }
}
