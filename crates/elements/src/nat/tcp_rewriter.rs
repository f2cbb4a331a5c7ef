//! =c
//! TCPRewriter(INPUTSPEC1, ..., INPUTSPECn [, I<keywords>])
//!
//! =s nat
//! rewrites addresses, ports and sequence numbers of TCP packets
//!
//! =d
//! An IPRewriter for TCP alone; see there for INPUTSPECs, keyword arguments (those of UDP excepted) and several workers.
//!
//! Where FTPPortMapper has changed the length of data, sequence numbers, acknowledgements and selective
//! acknowledgements (RFC 2018) are changed to match, as IPRewriter does it too.
//!
//! Drop reasons: no IP header, not TCP, fragment without ports, transport header cut off, no mapping, no port or address
//! free, mapping table full, too many flows of one host.
//!
//! =h table read-only
//! The mappings, as IPRewriter's tcp_table; behind a mapping whose sequence numbers differ, by how much. C<mappings> is
//! the same.
//!
//! =h lookup read-only
//! Takes C<SADDR SPORT DADDR DPORT> and returns what that becomes, if there is a mapping.
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
//! =a IPRewriter, UDPRewriter, FTPPortMapper

use graph::Class;

use super::kind::Kind;
use super::rewriter::{PORTS, make};

pub(crate) static CLASS: Class = Class {
    name: "TCPRewriter",
    ports: PORTS,
    processing: Class::PUSH,
    flow: Class::COMPLETE_FLOW,
    manual: include_str!("tcp_rewriter.rs"),
    make: |setup| make(setup, Kind::Tcp),
};
