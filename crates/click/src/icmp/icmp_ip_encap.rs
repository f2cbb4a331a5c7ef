//! =c
//! ICMPIPEncap(SRC, DST, TYPE [, CODE, I<keyword> IDENTIFIER])
//!
//! =s icmp
//! puts ICMP and IP headers before packets
//!
//! =d
//! Each packet becomes what an ICMP message from SRC to DST carries, with time to live 255. TYPE and CODE are numbers or names
//! (C<echo>, C<timestamp>; C<unreachable> and C<host>); CODE is 0 by default. In requests and their replies IDENTIFIER (0 by
//! default) and a sequence number follow, which counts up from 1 and leaves 0 out; in other messages 4 zeros. In timestamps 12
//! more zeros follow. Network and transport header are marked, and the destination annotation is set to DST.
//!
//! Drop reasons: no head room for the headers.
//!
//! =a ICMPPingEncap, ICMPError, IPEncap

use elements::icmp::names;
use graph::{Class, Combine, ConfigError, Context, Element, Get, Handler, Put, Setup, Verdict};
use packet::Batch;

use super::icmp_ping_encap::Request;

pub(crate) static CLASS: Class = Class {
    name: "ICMPIPEncap",
    handlers: &[
        Handler::read_write(
            "src",
            Combine::First,
            "The SRC argument.",
            &Get(|e: &mut ICMPIPEncap| e.request.source.to_string()),
            &Put(|e: &mut ICMPIPEncap, _, value| e.request.set_source(value)),
        ),
        Handler::read_write(
            "dst",
            Combine::First,
            "The DST argument.",
            &Get(|e: &mut ICMPIPEncap| e.request.destination.to_string()),
            &Put(|e: &mut ICMPIPEncap, _, value| e.request.set_destination(value)),
        ),
    ],
    manual: graph::manual!("icmp_ip_encap.rs"),
    make,
    ..Class::DEFAULT
};

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let source = setup.arguments.required("SRC")?;
    let destination = setup.arguments.required("DST")?;
    let kind: String = setup.arguments.required("TYPE")?;
    let code: String = setup.arguments.optional("CODE")?.unwrap_or_else(|| "0".to_owned());
    let identifier = setup.arguments.keyword_or("IDENTIFIER", 0)?;
    setup.arguments.finish()?;
    let kind =
        names::type_number(&kind).ok_or_else(|| format!("TYPE: expected an ICMP type, got '{kind}'"))?;
    let code = names::code_number(kind, &code)
        .ok_or_else(|| format!("CODE: expected a code of this ICMP type, got '{code}'"))?;
    let request = Request { kind, code, ..Request::echo(source, destination, identifier, 255) };
    Ok(Box::new(ICMPIPEncap { request, sequence: 1 }))
}

struct ICMPIPEncap {
    request: Request,
    sequence: u16,
}

impl Element for ICMPIPEncap {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        cx.filter(batch, |packet| {
            if self.request.encapsulate(packet, self.sequence).is_none() {
                return Verdict::Drop("no head room for the headers");
            }
            self.sequence = self.sequence.checked_add(1).unwrap_or(1);
            Verdict::Keep
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    fn message(arguments: &str) -> Vec<u8> {
        let config = format!(
            "in :: TestInput -> ICMPIPEncap(1.0.0.1, 2.0.0.2, {arguments}) -> CheckIPHeader -> out :: TestOutput"
        );
        let mut bench = Bench::new(&crate::registry(), &config);
        bench.push("in", &[b"data"]);
        let message = bench.taken("out").concat().split_off(20);
        assert!(packet::checksum::is_valid(&message));
        message
    }

    #[test]
    fn headers_by_type() {
        assert_eq!(message("echo, IDENTIFIER 7")[4..], [0, 7, 0, 1, b'd', b'a', b't', b'a']);
        let unreachable = message("unreachable, host");
        assert_eq!((unreachable[0], unreachable[1], &unreachable[4..]), (3, 1, &b"\0\0\0\0data"[..]));
        let timestamp = message("timestamp-reply, 0, IDENTIFIER 1");
        assert_eq!((timestamp[0], timestamp.len(), &timestamp[4..8]), (14, 24, &[0, 1, 0, 1][..]));
        assert_eq!(message("77, 5")[..2], [77, 5]);
    }

    #[test]
    fn handlers_and_mistakes() {
        let mut bench = Bench::element(&crate::registry(), "ICMPIPEncap(1.0.0.1, 2.0.0.2, echo)", 1, 1);
        bench.write("e.dst", "3.0.0.3").unwrap();
        bench.push("in0", &[b""]);
        assert_eq!(bench.taken_packets("out0")[0].annotations().destination_ip(), 0x0300_0003);
        assert_eq!(bench.read("e.src"), "1.0.0.1");
        assert!(configure(&CLASS, "1.0.0.1, 2.0.0.2").is_err());
        assert!(configure(&CLASS, "1.0.0.1, 2.0.0.2, shout").unwrap_err()[0].starts_with("TYPE: "));
        assert!(configure(&CLASS, "1.0.0.1, 2.0.0.2, echo, host").unwrap_err()[0].starts_with("CODE: "));
    }
}
