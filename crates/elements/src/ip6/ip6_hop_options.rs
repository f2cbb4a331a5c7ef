//! =c
//! IP6HopOptions()
//!
//! =s ip6
//! processes the IPv6 options that concern routers
//!
//! =d
//! Expects packets with the IPv6 header marked. Looks at the hop-by-hop options of those that have
//! some (RFC 8200, 4.3). Padding and router alert (RFC 2711) pass. For an unknown option, the two
//! high bits of its type decide (4.2):
//!
//! =item 00
//! the packet passes.
//!
//! =item 01
//! the packet is dropped as "unknown IPv6 option".
//!
//! =item 10
//! the packet leaves by output 1 if that is connected (usually to an ICMP6Error with code option).
//! The parameter problem annotation is at the option's type. Without output 1 the packet is dropped
//! as "unknown IPv6 option".
//!
//! =item 11
//! as 10, but a packet to a group is dropped.
//!
//! =back
//!
//! Options that do not fit their header are dropped as "malformed IPv6 options".
//!
//! Drop reasons: unknown IPv6 option, malformed IPv6 options, no IPv6 header.
//!
//! =e
//!   ... -> CheckIP6Header -> options :: IP6HopOptions -> FIBLookup6(eth1, eth2, OPTIONS true) ...
//!   options[1] -> ICMP6Error(2001:db8::1, parameterproblem, option) -> ...
//!
//! =a CheckIP6Header, FIBLookup6, ICMP6Error, IPGWOptions

use graph::{Class, Context, Element, Verdict};
use packet::wire::ipv6::Ipv6;
use packet::wire::ipv6_extension::{Ipv6ExtensionBody, Ipv6OptionIter, UnknownOptionAction, option_kind};
use packet::wire::{IpProtocol, WireError};
use packet::{Batch, Packet};

pub(crate) static CLASS: Class = Class {
    name: "IP6HopOptions",
    capabilities: &[graph::TAKES_MERGED, graph::KEEPS_ALL],
    ports: "1/1-2",
    processing: Class::AGNOSTIC_WITH_ERRORS,
    manual: graph::manual!("ip6_hop_options.rs"),
    make: |setup| {
        setup.arguments.finish()?;
        Ok(Box::new(Ip6HopOptions))
    },
    ..Class::DEFAULT
};

const MALFORMED: &str = "malformed IPv6 options";
const UNKNOWN: &str = "unknown IPv6 option";

/// Where the first option that is not known starts, in octets from the start of the packet, and what happens then.
fn first_unknown(ipv6: &Ipv6<&[u8]>) -> Result<Option<(usize, UnknownOptionAction)>, WireError> {
    let Some(first) = ipv6.extensions().next() else { return Ok(None) };
    let first = first?;
    let Ipv6ExtensionBody::HopByHop { options } = first.body else { return Ok(None) };
    for option in Ipv6OptionIter::new(options) {
        let option = option?;
        let is_known =
            matches!(option.kind, option_kind::PAD1 | option_kind::PADN | option_kind::ROUTER_ALERT);
        if !is_known && option.unknown_action() != UnknownOptionAction::Skip {
            // Behind the two octets that the header begins with.
            return Ok(Some((first.offset + 2 + option.offset, option.unknown_action())));
        }
    }
    Ok(None)
}

fn judge(packet: &mut Packet) -> Verdict {
    let ipv6 = packet.network().and_then(|bytes| Ipv6::new_checked(bytes).ok());
    let Some(ipv6) = ipv6 else { return Verdict::Drop("no IPv6 header") };
    if ipv6.next_header() != IpProtocol::HOP_BY_HOP {
        return Verdict::Keep;
    }
    let (at, action) = match first_unknown(&ipv6) {
        Ok(None) => return Verdict::Keep,
        Ok(Some(found)) => found,
        Err(_) => return Verdict::Drop(MALFORMED),
    };
    let is_reported = match action {
        UnknownOptionAction::Skip | UnknownOptionAction::Discard => false,
        UnknownOptionAction::DiscardAndReport => true,
        UnknownOptionAction::DiscardAndReportUnlessMulticast => !ipv6.destination().is_multicast(),
    };
    if !is_reported {
        return Verdict::Drop(UNKNOWN);
    }
    // The header has 2,048 octets at most.
    packet.annotations_mut().set_parameter_problem(at as u16);
    Verdict::Divert(1, UNKNOWN)
}

struct Ip6HopOptions;

impl Element for Ip6HopOptions {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        cx.filter(batch, judge);
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    use super::*;
    use testbed::ipv6::{FAR, HOST, ipv6};

    /// What happens to a packet with these options: six octets, or that and a multiple of eight.
    fn fate(options: &[u8], destination: std::net::Ipv6Addr) -> String {
        let config = "in :: TestInput -> MarkIP6Header -> e :: IP6HopOptions -> out :: TestOutput; e[1] -> bad :: TestOutput;";
        let mut bench = Bench::new(&crate::registry(), config);
        let header = [&[17, (options.len() / 8) as u8], options].concat();
        bench.push("in", &[&ipv6(HOST, destination, 0, &header)]);
        if let Some(bad) = bench.taken_packets("bad").first() {
            return format!("bad at {}", bad.annotations().parameter_problem());
        }
        let dropped = [MALFORMED, UNKNOWN].into_iter().find(|reason| bench.drops("e", reason) == 1);
        dropped.map_or_else(|| format!("passed {}", bench.taken("out").len()), str::to_owned)
    }

    /// RFC 8200, 4.2.
    #[test]
    fn the_type_of_an_unknown_option_says_what_happens() {
        let group = "ff05::1".parse().unwrap();
        for (options, expected, to_group) in [
            (&[1, 4, 0, 0, 0, 0][..], "passed 1", "passed 1"),
            (&[5, 2, 0, 0, 1, 0], "passed 1", "passed 1"),
            (&[0x1e, 4, 0, 0, 0, 0], "passed 1", "passed 1"),
            (&[0x5e, 4, 0, 0, 0, 0], UNKNOWN, UNKNOWN),
            (&[0x9e, 4, 0, 0, 0, 0], "bad at 42", "bad at 42"),
            (&[0, 0, 0xde, 2, 0, 0], "bad at 44", UNKNOWN),
            (&[0x1e, 5, 0, 0, 0, 0], MALFORMED, MALFORMED),
            (&[0, 0, 0, 0, 0, 1], MALFORMED, MALFORMED),
        ] {
            assert_eq!(fate(options, FAR), expected, "{options:x?}");
            assert_eq!(fate(options, group), to_group, "{options:x?}");
        }
        // Beyond what an octet can say.
        let mut long = vec![1, 254];
        long.extend([0; 254]);
        long.extend([0x9e, 4, 0, 0, 0, 0]);
        assert_eq!(fate(&long, FAR), "bad at 298");
    }

    #[test]
    fn without_options_packets_pass() {
        let mut bench = Bench::new(
            &crate::registry(),
            "in :: TestInput -> MarkIP6Header -> IP6HopOptions -> out :: TestOutput",
        );
        bench.push(
            "in",
            &[&ipv6(HOST, FAR, 17, b"payload"), &ipv6(HOST, FAR, 60, &[17, 0, 0x9e, 4, 0, 0, 0, 0])],
        );
        assert_eq!(bench.taken("out").len(), 2);
    }
}
