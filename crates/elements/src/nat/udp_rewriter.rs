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
//! =h table read-only
//! The mappings, as IPRewriter's udp_table. C<mappings> is the same.
//!
//! =h lookup read-only
//! Takes C<SADDR SPORT DADDR DPORT> of UDP and returns what that becomes, if there is a mapping.
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
//! =a IPRewriter, TCPRewriter

use graph::Class;

use super::kind::Kind;
use super::rewriter::{PORTS, make};

pub(crate) static CLASS: Class = Class {
    name: "UDPRewriter",
    ports: PORTS,
    processing: Class::PUSH,
    flow: Class::COMPLETE_FLOW,
    manual: include_str!("udp_rewriter.rs"),
    make: |setup| make(setup, Kind::Udp),
};
