//! =c
//! IPAddrRewriter(INPUTSPEC1, ..., INPUTSPECn [, I<keywords>])
//!
//! =s nat
//! rewrites source addresses of packets
//!
//! =d
//! Translates addresses only (Basic NAT, RFC 3022), of any protocol: each inner address has an outer one of its own as
//! long as it is in use. Packets from an inner address get the outer one as their source and leave by FOUTPUT; packets
//! to the outer address get the inner one as their destination and leave by ROUTPUT. Checksums of IP, TCP, UDP and DCCP
//! are updated, and fragments are translated like other packets.
//!
//! INPUTSPECs are those of IPRewriter, with patterns C<SADDR ->, where SADDR is an address, C<->, or a range C<A-B> or
//! C<A/LENGTH> of which each inner address gets one at random, or the next in order with C<#> behind it.
//!
//! Keyword arguments are TIMEOUT (2 hours), GUARANTEE, MAPPING_CAPACITY, REAP_INTERVAL, DST_ANNO (which concerns replies
//! only) and REPLY_ANNO, all as for IPRewriter. With several workers, all packets of an inner address and all packets to
//! its outer one must reach the same worker.
//!
//! Drop reasons: no IP header, no mapping, no port or address free, mapping table full, too many flows of
//! one host.
//!
//! =e
//!   rw :: IPAddrRewriter(pattern 192.0.2.0/24 - 0 1, drop);
//!
//! =a IPRewriter, IPAddrPairRewriter

use graph::Class;

use super::kind::Kind;
use super::rewriter::{ADDRESS_HANDLERS, PORTS, make};

pub(crate) static CLASS: Class = Class {
    name: "IPAddrRewriter",
    ports: PORTS,
    processing: Class::PUSH,
    handlers: ADDRESS_HANDLERS,
    manual: graph::manual!("ip_addr_rewriter.rs"),
    make: |setup| make(setup, Kind::Address),
    ..Class::DEFAULT
};
