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
//! =a IPRewriter, UDPRewriter, FTPPortMapper

use graph::Class;

use super::kind::Kind;
use super::rewriter::{PORTS, TCP_HANDLERS, make};

pub(crate) static CLASS: Class = Class {
    name: "TCPRewriter",
    ports: PORTS,
    processing: Class::PUSH,
    handlers: TCP_HANDLERS,
    manual: graph::manual!("tcp_rewriter.rs"),
    make: |setup| make(setup, Kind::Tcp),
    ..Class::DEFAULT
};
