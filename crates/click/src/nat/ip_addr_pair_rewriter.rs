//! =c
//! IPAddrPairRewriter(INPUTSPEC1, ..., INPUTSPECn [, I<keywords>])
//!
//! =s nat
//! rewrites addresses of packets by pairs
//!
//! =d
//! Translates addresses only, of any protocol, as IPAddrRewriter does, but a mapping is for a pair of source and
//! destination: the destination may be rewritten too, and an inner address may have several outer ones, for different
//! destinations. Patterns are C<SADDR DADDR>, of which SADDR may be a range.
//!
//! INPUTSPECs, keyword arguments and several workers: see IPAddrRewriter and IPRewriter.
//!
//! Drop reasons: no IP header, no mapping, no port or address free, mapping table full, too many flows of
//! one host.
//!
//! =a IPRewriter, IPAddrRewriter

use graph::Class;

use super::kind::Kind;
use super::rewriter::{ADDRESS_HANDLERS, PORTS, make};

pub(crate) static CLASS: Class = Class {
    name: "IPAddrPairRewriter",
    ports: PORTS,
    processing: Class::PUSH,
    handlers: ADDRESS_HANDLERS,
    manual: graph::manual!("ip_addr_pair_rewriter.rs"),
    make: |setup| make(setup, Kind::Pair),
    ..Class::DEFAULT
};
