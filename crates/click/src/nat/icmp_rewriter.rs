//! =c
//! ICMPRewriter(MAPS, [I<keywords> DST_ANNO, REPLY_ANNO])
//!
//! =s nat
//! rewrites ICMP errors about translated packets
//!
//! =d
//! An ICMP error holds the beginning of the packet that it is about. Where that packet had been
//! translated, the error goes to the translated address, and its receiver would not know the
//! packet. MAPS are names of rewriters (IPRewriter, TCPRewriter, UDPRewriter, IPAddrRewriter,
//! IPAddrPairRewriter, ICMPPingRewriter), separated by spaces. The first of them with a mapping of
//! the packet has its former header. The packet within the error is rewritten to that header. The
//! error's destination is rewritten too, if it was the packet's source (RFC 5508, 4). All checksums
//! of both are updated.
//!
//! Errors are destination unreachable, source quench, redirect, time exceeded and parameter
//! problem. Rewritten errors leave by output 0. If a name in MAPS is followed by C<:N>, they leave
//! by output N plus the output of the mapping. Errors without a mapping and other ICMP packets
//! leave by output 1, if that is connected and no name has an C<:N>. Otherwise they are dropped.
//!
//! Keyword arguments are:
//!
//! =over 8
//!
//! =item DST_ANNO
//!
//! Whether the destination annotation is set to the new destination; true by default.
//!
//! =item REPLY_ANNO
//!
//! An annotation of one byte. Errors about packets of a mapping's own direction get it from the packet that made it.
//!
//! =back
//!
//! It looks into the tables of its own worker, so the error must reach the worker of the flow.
//! ICMPRewriter and the rewriters must be on the same side of any Punt.
//!
//! Drop reasons: no IP header, not ICMP, not an ICMP error about a mapping.
//!
//! =e
//!   ICMPRewriter(rw ping)
//!
//! =a IPRewriter, ICMPPingRewriter, ICMPError

use std::net::Ipv4Addr;

use graph::arguments::{AnnotationByte, Raw};
use graph::lang::split_words;
use graph::{Class, ConfigError, Context, Element, FromArgument, Setup};
use packet::wire::IpProtocol;
use packet::wire::ipv4::Ipv4;
use packet::wire::udp::Udp;
use packet::{Batch, Packet, checksum};

use super::flow::{Tuple, delta, updated, updated_udp};
use super::group::{Membership, Named};
use super::kind::{DCCP, ECHO, ICMP, Sight, TCP, UDP, echo};
use super::translate::{Annotate, recheck, store};

pub(crate) static CLASS: Class = Class {
    name: "ICMPRewriter",
    ports: "1/1-",
    processing: Class::PUSH,
    manual: graph::manual!("icmp_rewriter.rs"),
    make,
    ..Class::DEFAULT
};

/// ICMP types of errors (RFC 792): destination unreachable, source quench, redirect, time exceeded, parameter problem.
const ERRORS: [u8; 5] = [3, 4, 5, 11, 12];

/// Bytes of an ICMP error before the packet that it is about.
const ERROR_LEN: usize = 8;

/// Longest part of a packet that is rewritten: an IP header, and a TCP header up to its checksum.
const MOST_REWRITTEN: usize = 60 + 20;

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let Raw(names) = setup.arguments.required("MAPS")?;
    let destination = setup.arguments.keyword_or("DST_ANNO", true)?;
    let reply = setup.arguments.keyword::<AnnotationByte>("REPLY_ANNO")?.map(|AnnotationByte(at)| at);
    setup.arguments.finish()?;
    let mut maps = Vec::new();
    let mut errors = Vec::new();
    for word in split_words(&names) {
        match map(setup, &word) {
            Ok(map) => maps.push(map),
            Err(error) => errors.extend(error.messages),
        }
    }
    if maps.is_empty() && errors.is_empty() {
        errors.push("MAPS: expected names of rewriters".to_owned());
    }
    if !errors.is_empty() {
        return Err(errors.into());
    }
    Ok(Box::new(ICMPRewriter { maps, annotate: Annotate { destination, reply } }))
}

fn map(setup: &Setup<'_>, word: &str) -> Result<Map, ConfigError> {
    let (name, offset) = match word.split_once(':') {
        Some((name, offset)) => {
            let number = usize::from_argument(offset);
            let number =
                number.ok_or_else(|| format!("{word}: expected the number of an output, got '{offset}'"))?;
            (name, Some(number))
        }
        None => (word, None),
    };
    let rewriter = Named::find(setup, name)?;
    let outputs = setup.outputs();
    match offset {
        Some(offset) if offset.saturating_add(rewriter.outputs) > outputs => {
            Err(format!("{word}: '{name}' has {} outputs, more than are left of {outputs}", rewriter.outputs)
                .into())
        }
        _ => Ok(Map { rewriter, offset, membership: None }),
    }
}

/// A rewriter whose table is looked into.
struct Map {
    rewriter: Named,
    /// What its mappings' outputs are added to.
    offset: Option<usize>,
    membership: Option<Membership>,
}

struct ICMPRewriter {
    maps: Vec<Map>,
    annotate: Annotate,
}

/// What an error is about.
struct About {
    /// The packet's flow the other way, by which the mapping is found.
    sight: Sight,
    /// Length of its IP header.
    header_len: usize,
    /// Whether ports or identifier are there.
    has_transport: bool,
}

fn about(message: &[u8]) -> Option<About> {
    let &[kind, ..] = message.first_chunk::<ERROR_LEN>()?;
    let packet = message.get(ERROR_LEN..).filter(|_| ERRORS.contains(&kind))?;
    let header = Ipv4::new_unchecked(packet.first_chunk::<20>()?);
    let (IpProtocol(protocol), header_len) = (header.protocol(), header.header_len());
    if header.version() != 4 || header_len < 20 {
        return None;
    }
    let tuple = Tuple {
        source: header.destination().to_bits(),
        destination: header.source().to_bits(),
        ..Tuple::default()
    };
    let addresses = Sight { tuple, protocol, begins: false };
    let whole = header.fragment_offset() == 0;
    let start = packet.get(header_len..).and_then(|rest| rest.first_chunk::<8>()).filter(|_| whole);
    let sight = match (protocol, start) {
        // TCP and DCCP have their ports where UDP has them.
        (TCP | UDP | DCCP, Some(start)) => {
            let ports = Udp::new_unchecked(start);
            let (source_port, destination_port) = (ports.destination_port(), ports.source_port());
            Some(Sight { tuple: Tuple { source_port, destination_port, ..tuple }, ..addresses })
        }
        (ICMP, Some(&[ECHO, _, _, _, a, b, ..])) => {
            Some(echo(tuple.source, tuple.destination, u16::from_be_bytes([a, b]), false))
        }
        _ => None,
    };
    Some(About { sight: sight.unwrap_or(addresses), header_len, has_transport: sight.is_some() })
}

/// Rewrites the packet within an error, whose flow the other way is `new` now.
fn rewrite(message: &mut [u8], about: &About, new: Tuple) {
    let old = about.sight.tuple;
    let end = message.len().min(ERROR_LEN + MOST_REWRITTEN);
    let Some(packet) = message.get_mut(ERROR_LEN..end) else { return };
    let before = checksum::sum(packet);
    let addresses = checksum::combine(delta(old.destination, new.destination), delta(old.source, new.source));
    store(packet, 10, |check| updated(check, addresses, false));
    for (at, address) in [(12, new.destination), (16, new.source)] {
        if let Some(field) = packet.get_mut(at..at + 4) {
            field.copy_from_slice(&address.to_be_bytes());
        }
    }
    if let Some(transport) = packet.get_mut(about.header_len..).filter(|_| about.has_transport) {
        if about.sight.protocol == ICMP {
            store(transport, 4, |_| new.destination_port);
            let (old, new) = (old.destination_port, new.destination_port);
            store(
                transport,
                2,
                |check| if old == new { check } else { checksum::update_u16(check, old, new) },
            );
        } else {
            store(transport, 0, |_| new.destination_port);
            store(transport, 2, |_| new.source_port);
            let ports = |tuple: Tuple| u32::from(tuple.source_port) << 16 | u32::from(tuple.destination_port);
            let all = checksum::combine(addresses, delta(ports(old), ports(new)));
            match about.sight.protocol {
                TCP => store(transport, 16, |check| updated(check, all, false)),
                UDP => store(transport, 6, |check| updated_udp(check, all, false)),
                _ => store(transport, 6, |check| updated(check, all, false)),
            }
        }
    }
    let after = checksum::sum(packet);
    recheck(message, 2, before, after);
}

impl ICMPRewriter {
    /// Rewrites an error; the output it leaves by.
    fn rewrite(&self, packet: &mut Packet) -> Option<usize> {
        let about = about(packet.transport()?)?;
        for Map { offset, membership, .. } in &self.maps {
            let Some(membership) = membership else { continue };
            let group = membership.lock();
            let Some(place) = group.find(membership.member, &about.sight) else { continue };
            let flow = group.table.get(place.flow)?;
            let new = group.translated(membership.member, place, about.sight.tuple)?;
            let output =
                offset.map_or(0, |offset| offset + usize::from(flow.outputs[usize::from(place.reply)]));
            let reply = place.reply.then_some(flow.reply_annotation);
            drop(group);
            self.redirect(packet, about.sight.tuple.destination, new.destination, reply);
            rewrite(packet.transport_mut()?, &about, new);
            return Some(output);
        }
        None
    }

    /// Sends an error to the packet's sender that went to `old`.
    fn redirect(&self, packet: &mut Packet, old: u32, new: u32, reply: Option<u8>) {
        let header = packet.network_mut().and_then(|bytes| bytes.first_chunk_mut::<20>());
        let header = header.map(Ipv4::new_unchecked).filter(|header| header.destination().to_bits() == old);
        let goes_to_old = header.is_some_and(|mut header| {
            header.set_destination(Ipv4Addr::from_bits(new));
            header.set_checksum(updated(header.checksum(), super::flow::plain_zero(delta(old, new)), false));
            true
        });
        let annotate = Annotate { destination: self.annotate.destination && goes_to_old, ..self.annotate };
        annotate.set(packet, new, reply);
    }
}

impl Element for ICMPRewriter {
    fn initialise(&mut self, _cx: &mut Context) -> Result<(), String> {
        for map in &mut self.maps {
            map.membership = Some(map.rewriter.get()?);
        }
        Ok(())
    }

    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        let unmapped = cx.outputs() > 1 && self.maps.iter().all(|map| map.offset.is_none());
        cx.classify(batch, |packet| {
            let header =
                packet.network().and_then(|bytes| bytes.first_chunk::<20>()).ok_or("no IP header")?;
            let header = Ipv4::new_unchecked(header);
            if header.protocol() != IpProtocol::ICMP {
                return Err("not ICMP");
            }
            // The message begins in the first fragment.
            match if header.fragment_offset() == 0 { self.rewrite(packet) } else { None } {
                Some(output) => Ok(output),
                None if unmapped => Ok(1),
                None => Err("not an ICMP error about a mapping"),
            }
        });
    }
}
