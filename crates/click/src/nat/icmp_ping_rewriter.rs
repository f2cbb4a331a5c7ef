//! =c
//! ICMPPingRewriter(INPUTSPEC1, ..., INPUTSPECn [, I<keywords>])
//!
//! =s nat
//! rewrites addresses and identifiers of pings
//!
//! =d
//! Translates ICMP echo requests and replies, so that hosts behind a NAT can ping: a request's addresses and identifier
//! become others, and the replies to it get back what the request had. INPUTSPECs are those of IPRewriter; the source
//! port of a pattern is the identifier, and patterns may be written C<SADDR DADDR IDENTIFIERS> too.
//!
//! Replies without a mapping and what is no echo are dropped unless their input says C<pass>.
//!
//! Keyword arguments are TIMEOUT (5 minutes), GUARANTEE, MAPPING_CAPACITY, REAP_INTERVAL, DST_ANNO and REPLY_ANNO, all
//! as for IPRewriter, where there is more on several workers too.
//!
//! Drop reasons: no IP header, not ICMP, not an echo, fragment without ports, transport header cut off, no mapping, no
//! port or address free, mapping table full, too many flows of one host.
//!
//! =e
//!   ping :: ICMPPingRewriter(pattern 192.0.2.1 - 0-65535 0 1, drop);
//!
//! =a IPRewriter, ICMPRewriter, ICMPPingResponder

use graph::Class;

use super::kind::Kind;
use super::rewriter::{PING_HANDLERS, PORTS, make};

pub(crate) static CLASS: Class = Class {
    name: "ICMPPingRewriter",
    ports: PORTS,
    processing: Class::PUSH,
    handlers: PING_HANDLERS,
    manual: graph::manual!("icmp_ping_rewriter.rs"),
    make: |setup| make(setup, Kind::Ping),
    ..Class::DEFAULT
};
