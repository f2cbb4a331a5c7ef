//! =c
//! UDPRewriter(INPUTSPEC1, ..., INPUTSPECn [, I<keywords>])
//!
//! =s nat
//! rewrites addresses and ports of UDP packets
//!
//! =d
//! An IPRewriter that does not follow connections; see there for INPUTSPECs, keyword arguments and several workers. TCP
//! and DCCP packets are rewritten too, but age as UDP does. The timeouts are TIMEOUT (UDP_TIMEOUT), STREAMING_TIMEOUT
//! (UDP_STREAMING_TIMEOUT) and GUARANTEE (UDP_GUARANTEE).
//!
//! Drop reasons: no IP header, not TCP or UDP, fragment without ports, transport header cut off, no mapping, no port or
//! address free, mapping table full, too many flows of one host.
//!
//! =a IPRewriter, TCPRewriter

use graph::Class;

use super::kind::Kind;
use super::rewriter::{PORTS, UDP_HANDLERS, make};

pub(crate) static CLASS: Class = Class {
    name: "UDPRewriter",
    ports: PORTS,
    processing: Class::PUSH,
    handlers: UDP_HANDLERS,
    manual: graph::manual!("udp_rewriter.rs"),
    make: |setup| make(setup, Kind::Udp),
    ..Class::DEFAULT
};
