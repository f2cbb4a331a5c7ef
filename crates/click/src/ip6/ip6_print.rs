//! =c
//! IP6Print([LABEL, I<keywords> NBYTES, CONTENTS, ACTIVE])
//!
//! =s ip6
//! prints IPv6 packets
//!
//! =d
//! Prints a line for each packet whose IPv6 header is marked, and passes it on: LABEL, if there is one, the addresses, payload
//! length, next header and hop limit. With CONTENTS true the first NBYTES bytes (1500 by default) of the packet follow in
//! hexadecimal. It reports a packet without a whole header. With ACTIVE false it prints nothing.
//!
//! It formats text for every packet: not for the fast path.
//!
//! =e
//!   IP6Print(in)
//! prints
//!   in: 2001:db8::1 -> 2001:db8::2 plen 64, next 58, hlim 64
//!
//! =a IPPrint, Print, CheckIP6Header

use std::fmt::Write;

use graph::{Class, Context, Element, Field, Handler};
use packet::wire::ipv6::Ipv6;
use packet::{Batch, Packet};

use crate::ip::{Contents, write_bytes};

pub(crate) static CLASS: Class = Class {
    name: "IP6Print",
    capabilities: &[graph::KEEPS_ALL],
    handlers: &[Handler::field("active", "The ACTIVE argument.", &Field(|e: &mut Ip6Print| &mut e.active))],
    manual: graph::manual!("ip6_print.rs"),
    make: |setup| {
        let label: String = setup.arguments.optional("LABEL")?.unwrap_or_default();
        let most = setup.arguments.keyword_or("NBYTES", 1500)?;
        let contents = setup.arguments.keyword_or("CONTENTS", false)?;
        let active = setup.arguments.keyword_or("ACTIVE", true)?;
        setup.arguments.finish()?;
        Ok(Box::new(Ip6Print { label, most, contents, active }))
    },
    ..Class::DEFAULT
};

struct Ip6Print {
    label: String,
    most: usize,
    contents: bool,
    active: bool,
}

impl Ip6Print {
    fn describe(&self, text: &mut String, packet: &Packet) -> std::fmt::Result {
        if !self.label.is_empty() {
            write!(text, "{}: ", self.label)?;
        }
        let Some(header) = packet.network().and_then(|bytes| Ipv6::new_checked(bytes).ok()) else {
            text.push_str("no IPv6 header");
            return Ok(());
        };
        let (source, destination) = (header.source(), header.destination());
        let (length, next, limit) = (header.payload_len(), header.next_header().0, header.hop_limit());
        write!(text, "{source} -> {destination} plen {length}, next {next}, hlim {limit}")?;
        if self.contents {
            write_bytes(text, packet.data(), self.most, Contents::Hex)?;
        }
        Ok(())
    }
}

impl Element for Ip6Print {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        if !self.active {
            return;
        }
        for packet in batch.packets() {
            let mut text = String::new();
            // Writing to a string does not fail.
            let _ = self.describe(&mut text, packet);
            cx.message(&text);
        }
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::{Bench, configure};
    use testbed::ipv6::{FAR, HOST, ipv6};

    use super::*;

    fn printed(arguments: &str, packet: &[u8]) -> Vec<String> {
        let config =
            format!("in :: TestInput -> MarkIP6Header -> e :: IP6Print({arguments}) -> out :: TestOutput");
        let mut bench = Bench::new(&crate::registry(), &config);
        bench.push("in", &[packet]);
        assert_eq!(bench.taken("out").len(), 1);
        bench.messages()
    }

    #[test]
    fn lines() {
        let packet = ipv6(HOST, FAR, 17, b"12345678");
        let line = "2001:db8:1::7 -> 2001:db8:2::8 plen 8, next 17, hlim 64";
        assert_eq!(printed("", &packet), [line]);
        assert_eq!(printed("a b, ACTIVE true", &packet), [format!("a b: {line}")]);
        assert_eq!(printed("CONTENTS true, NBYTES 6", &packet), [format!("{line}\n  60000000 0008")]);
        assert_eq!(printed("x", &packet[..39]), ["x: no IPv6 header"]);
        assert!(printed("ACTIVE false", &packet).is_empty());
        assert!(configure(&CLASS, "NBYTES -1").is_err());
    }
}
