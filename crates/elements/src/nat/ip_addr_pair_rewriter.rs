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
//! =h table read-only
//! The mappings, two lines each. C<mappings> is the same.
//!
//! =h nmappings read-only
//! Number of mappings. C<table_size> is the same.
//!
//! =h mapping_failures read-only
//! Number of mappings that could not be made.
//!
//! =h patterns read-only
//! The INPUTSPECs, with their numbers of mappings; C<pattern0> and so on are one each, and can be written.
//!
//! =h size read-only
//! Number of mappings of all elements with the same capacity.
//!
//! =h capacity read/write
//! The capacity of each worker.
//!
//! =h clear write-only
//! Removes all mappings.
//!
//! =a IPRewriter, IPAddrRewriter

use graph::Class;

use super::kind::Kind;
use super::rewriter::{PORTS, make};

pub(crate) static CLASS: Class = Class {
    name: "IPAddrPairRewriter",
    ports: PORTS,
    processing: Class::PUSH,
    flow: Class::COMPLETE_FLOW,
    manual: include_str!("ip_addr_pair_rewriter.rs"),
    make: |setup| make(setup, Kind::Pair),
};
