//! =c
//! IPRewriter(INPUTSPEC1, ..., INPUTSPECn [, I<keywords>])
//!
//! =s nat
//! rewrites addresses and ports of TCP and UDP packets
//!
//! =d
//! Translates addresses and ports (NAPT, RFC 3022) of TCP and UDP packets whose IP header is marked; checksums are
//! updated. A table of mappings says how. A mapping is made by the first packet of a flow and counts for both ways: if
//! packets (SA, SP, DA, DP) become (SA', SP', DA', DP') and leave by FOUTPUT, packets (DA', DP', SA', SP') become
//! (DA, DP, SA, SP) and leave by ROUTPUT, whichever input they come by. TCP and UDP have mappings of their own.
//!
//! What becomes of a packet without a mapping is for the INPUTSPEC of its input to say:
//!
//! =over 8
//!
//! =item drop
//!
//! It is dropped. C<discard> is the same.
//!
//! =item pass [OUTPUT]
//!
//! It leaves by OUTPUT, 0 by default, as it is, and makes no mapping. C<nochange> is the same.
//!
//! =item keep FOUTPUT ROUTPUT
//!
//! Makes a mapping that changes nothing.
//!
//! =item pattern SADDR SPORT DADDR DPORT FOUTPUT ROUTPUT
//!
//! Makes a mapping to these addresses and ports; C<-> leaves one as it is. SPORT may be a range C<L-H>: the packet's
//! own port if it is in the range and no other mapping has it towards the same destination, else one of the others at
//! random. With C<?> behind the range it is one at random always, with C<#> the next in order. SADDR may be a range
//! C<A-B> or C<A/LENGTH> of addresses instead, without the first and the last one of the network. At most
//! 64 values are tried; where all of these are taken the packet is dropped. Random ports cannot be
//! predicted (RFC 6056), whatever RandomSeed says.
//!
//! =item pattern NAME FOUTPUT ROUTPUT
//!
//! The same with a pattern that an IPRewriterPatterns has named.
//!
//! =item ELEMENT
//!
//! An element that chooses a pattern: RoundRobinIPMapper, SourceIPHashMapper.
//!
//! =back
//!
//! Packets of other protocols and fragments other than the first are dropped unless their input says C<pass>.
//!
//! Keyword arguments are:
//!
//! =over 8
//!
//! =item TCP_TIMEOUT, TIMEOUT
//!
//! How long after its last packet the mapping of a TCP connection is kept that has carried data both ways; 24 hours.
//!
//! =item TCP_NODATA_TIMEOUT
//!
//! That of one that has not; 5 minutes.
//!
//! =item TCP_DONE_TIMEOUT
//!
//! That of one that was closed both ways, or reset; 4 minutes.
//!
//! =item TCP_GUARANTEE, GUARANTEE
//!
//! For how long after its last packet a mapping of TCP does not make room for another; 5 seconds.
//!
//! =item UDP_TIMEOUT
//!
//! How long a mapping of UDP is kept; 5 minutes.
//!
//! =item UDP_STREAMING_TIMEOUT
//!
//! How long after three packets, at least one of them a reply; as UDP_TIMEOUT.
//!
//! =item UDP_GUARANTEE
//!
//! As TCP_GUARANTEE; 5 seconds.
//!
//! =item MAPPING_CAPACITY, CAPACITY
//!
//! Most mappings on each worker, at most 16777216, or the name of another rewriter whose capacity counts for both
//! together; 262144 by default. When that many are in use, the one that would expire next among those whose guarantee
//! has run out makes room, unless the new mapping would expire before it. So a flood of new flows does not
//! push out connections that have carried data both ways. Otherwise new flows are dropped. Each mapping
//! takes 112 to 160 bytes, reserved at the start and given by the kernel when first used.
//!
//! =item HOST_FLOWS
//!
//! Most mappings that packets from one source address may have made, on each worker and among all elements
//! with the same capacity. Further flows of that address are dropped. By default half of the capacity, and
//! not below 1024.
//!
//! =item REAP_INTERVAL
//!
//! How often expired mappings are removed where no packets come; otherwise they are removed at once. 15 minutes.
//!
//! =item DST_ANNO
//!
//! Whether the destination annotation is set to the new destination; true by default.
//!
//! =item REPLY_ANNO
//!
//! An annotation of one byte (C<PAINT>, or its number). Replies get it from the packet that made the mapping.
//!
//! =back
//!
//! B<Several workers.> Each has a table of its own, and takes ports from its own part of each range, so no two hand out
//! the same. Packets of both ways must reach the same worker. The address that stays the same is the other host's: have
//! the hash of the inner interfaces taken over the destination and that of the outer ones over the source
//! (C<FromDevice>'s handler C<hash>), or use one worker. A mapping's age is known to 64 ms, or a sixteenth of its
//! guarantee.
//!
//! Different from Click: TCP and UDP have no mapping in common in UDPRewriter either; mappings expire at once; there is
//! a capacity by default; ranges of addresses and of ports cannot be combined.
//!
//! Drop reasons: no IP header, not TCP or UDP, fragment without ports, transport header cut off, no mapping, no port or
//! address free, mapping table full, too many flows of one host.
//!
//! =e
//!   rw :: IPRewriter(pattern 192.0.2.1 1024-65535 - - 0 1, drop);
//!   inside -> [0]rw[0] -> outside_out;
//!   outside -> [1]rw[1] -> inside_out;
//!
//! =a TCPRewriter, UDPRewriter, IPAddrRewriter, IPAddrPairRewriter, ICMPPingRewriter, ICMPRewriter,
//! IPRewriterPatterns, RoundRobinIPMapper, FTPPortMapper

use graph::Class;

use super::kind::Kind;
use super::rewriter::{BOTH_HANDLERS, PORTS, make};

pub(crate) static CLASS: Class = Class {
    name: "IPRewriter",
    ports: PORTS,
    processing: Class::PUSH,
    handlers: BOTH_HANDLERS,
    manual: graph::manual!("ip_rewriter.rs"),
    make: |setup| make(setup, Kind::Both),
    ..Class::DEFAULT
};
