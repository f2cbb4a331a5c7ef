//! =c
//! IPRewriter(INPUTSPEC1, ..., INPUTSPECn [, I<keywords>])
//!
//! =s nat
//! rewrites addresses and ports of TCP and UDP packets
//!
//! =d
//! Translates addresses and ports (NAPT, RFC 3022) of TCP and UDP packets whose IP header is
//! marked, and updates checksums. A table of mappings has the translations. The first packet of a
//! flow makes a mapping, which counts for both directions:
//!
//! =item *
//! packets (SA, SP, DA, DP) become (SA', SP', DA', DP') and leave by FOUTPUT,
//!
//! =item *
//! packets (DA', DP', SA', SP') become (DA, DP, SA, SP) and leave by ROUTPUT, whichever input they
//! come by.
//!
//! =back
//!
//! TCP and UDP have mappings of their own.
//!
//! The INPUTSPEC of an input decides on packets without a mapping:
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
//! Makes a mapping to these addresses and ports; C<-> leaves one as it is. SPORT may be a range
//! C<L-H>. The packet's own port is taken if it is in the range and no other mapping has it towards
//! the same destination. Otherwise one of the other ports is taken at random. With C<?> behind the
//! range a port is always taken at random, and with C<#> the next in order. SADDR may be a range
//! C<A-B> or C<A/LENGTH> of addresses instead, without the first and the last one of the network.
//! At most 64 values are tried; where all of these are taken the packet is dropped. Random ports
//! cannot be predicted (RFC 6056), whatever the seed of RandomSeed.
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
//! Packets of other protocols and fragments other than the first are dropped unless the INPUTSPEC
//! is C<pass>.
//!
//! Keyword arguments are:
//!
//! =over 8
//!
//! =item TCP_TIMEOUT, TIMEOUT
//!
//! How long after its last packet the mapping of a TCP connection is kept that has carried data
//! both ways; 24 hours.
//!
//! =item TCP_NODATA_TIMEOUT
//!
//! The same for a connection that has not; 5 minutes.
//!
//! =item TCP_DONE_TIMEOUT
//!
//! The same for a connection that was closed both ways, or reset; 4 minutes.
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
//! The same after three packets, at least one of them a reply; as UDP_TIMEOUT.
//!
//! =item UDP_GUARANTEE
//!
//! As TCP_GUARANTEE; 5 seconds.
//!
//! =item MAPPING_CAPACITY, CAPACITY
//!
//! Most mappings on each worker, at most 16777216; 262144 by default. It may be the name of another
//! rewriter instead, whose capacity then counts for both together. When all are in use, a mapping
//! whose guarantee has run out makes room. It is the one that would expire next, unless the new
//! mapping would expire before it. So a flood of new flows does not push out connections that have
//! carried data both ways. Otherwise new flows are dropped. Each mapping takes 112 to 160 bytes,
//! reserved at the start and given by the kernel when first used.
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
//! B<Several workers.> Each has a table of its own, and takes ports from its own part of each
//! range. So no two workers allocate the same port. Packets of both directions must reach the same
//! worker. Use one worker, or C<FromDevice>'s handler C<hash>: the hash must be over the address
//! that stays the same, that of the other host. On inner interfaces this is the destination, on
//! outer interfaces the source. A mapping's age is known to 64 ms, or a sixteenth of its guarantee.
//!
//! Different from Click: TCP and UDP have no mapping in common in UDPRewriter either. Mappings
//! expire at once. There is a capacity by default. Ranges of addresses and of ports cannot be
//! combined.
//!
//! Drop reasons: `no IP header`, `not TCP or UDP`, `fragment without ports`,
//! `transport header cut off`, `no mapping`, `no port or address free`, `mapping table full`,
//! `too many flows of one host`.
//!
//! =e
//!   rw :: IPRewriter(pattern 192.0.2.1 1024-65535 - - 0 1, drop);
//!   inside -> [0]rw[0] -> outside_out;
//!   outside -> [1]rw[1] -> inside_out;
//!
//! =a TCPRewriter, UDPRewriter, IPAddrRewriter, IPAddrPairRewriter, ICMPPingRewriter, ICMPRewriter,
//! IPRewriterPatterns, RoundRobinIPMapper, FTPPortMapper
//!
//! =c
//! TCPRewriter(INPUTSPEC1, ..., INPUTSPECn [, I<keywords>])
//!
//! =s nat
//! rewrites addresses, ports and sequence numbers of TCP packets
//!
//! =d
//! An IPRewriter for TCP alone. INPUTSPECs, keyword arguments (those of UDP excepted) and several
//! workers are as there.
//!
//! FTPPortMapper may change the length of data. Sequence numbers, acknowledgements and selective
//! acknowledgements (RFC 2018) are then changed to match, as IPRewriter does it too.
//!
//! Drop reasons: `no IP header`, `not TCP`, `fragment without ports`, `transport header cut off`,
//! `no mapping`, `no port or address free`, `mapping table full`, `too many flows of one host`.
//!
//! =a IPRewriter, UDPRewriter, FTPPortMapper
//!
//! =c
//! UDPRewriter(INPUTSPEC1, ..., INPUTSPECn [, I<keywords>])
//!
//! =s nat
//! rewrites addresses and ports of UDP packets
//!
//! =d
//! An IPRewriter that does not follow connections. INPUTSPECs, keyword arguments and several
//! workers are as there. TCP and DCCP packets are rewritten too, but age as UDP does. The timeouts
//! are TIMEOUT (UDP_TIMEOUT), STREAMING_TIMEOUT (UDP_STREAMING_TIMEOUT) and GUARANTEE
//! (UDP_GUARANTEE).
//!
//! Drop reasons: `no IP header`, `not TCP or UDP`, `fragment without ports`,
//! `transport header cut off`, `no mapping`, `no port or address free`, `mapping table full`,
//! `too many flows of one host`.
//!
//! =a IPRewriter, TCPRewriter
//!
//! =c
//! IPAddrRewriter(INPUTSPEC1, ..., INPUTSPECn [, I<keywords>])
//!
//! =s nat
//! rewrites source addresses of packets
//!
//! =d
//! Translates only addresses (Basic NAT, RFC 3022), of any protocol. Each inner address has an
//! outer one of its own as long as it is in use. Packets from an inner address get the outer one as
//! their source and leave by FOUTPUT. Packets to the outer address get the inner one as their
//! destination and leave by ROUTPUT. Checksums of IP, TCP, UDP and DCCP are updated, and fragments
//! are translated like other packets.
//!
//! INPUTSPECs are those of IPRewriter, with patterns C<SADDR ->. SADDR is an address, C<->, or a
//! range C<A-B> or C<A/LENGTH>. Of a range, each inner address gets an address at random, or the
//! next in order with C<#> behind the range.
//!
//! Keyword arguments are TIMEOUT (2 hours), GUARANTEE, MAPPING_CAPACITY, REAP_INTERVAL, DST_ANNO
//! (for replies only) and REPLY_ANNO, all as for IPRewriter. With several workers, all packets of
//! an inner address and all packets to its outer one must reach the same worker.
//!
//! Drop reasons: `no IP header`, `no mapping`, `no port or address free`, `mapping table full`,
//! `too many flows of one host`.
//!
//! =e
//!   rw :: IPAddrRewriter(pattern 192.0.2.0/24 - 0 1, drop);
//!
//! =a IPRewriter, IPAddrPairRewriter
//!
//! =c
//! IPAddrPairRewriter(INPUTSPEC1, ..., INPUTSPECn [, I<keywords>])
//!
//! =s nat
//! rewrites addresses of packets by pairs
//!
//! =d
//! Translates only addresses, of any protocol, as IPAddrRewriter does, but a mapping is for a pair
//! of source and destination. So the destination may be rewritten too, and an inner address may
//! have several outer ones, for different destinations. Patterns are C<SADDR DADDR>, of which SADDR
//! may be a range.
//!
//! INPUTSPECs, keyword arguments and several workers: see IPAddrRewriter and IPRewriter.
//!
//! Drop reasons: `no IP header`, `no mapping`, `no port or address free`, `mapping table full`,
//! `too many flows of one host`.
//!
//! =a IPRewriter, IPAddrRewriter
//!
//! =c
//! ICMPPingRewriter(INPUTSPEC1, ..., INPUTSPECn [, I<keywords>])
//!
//! =s nat
//! rewrites addresses and identifiers of pings
//!
//! =d
//! Translates ICMP echo requests and replies, so that hosts behind a NAT can ping. A request's
//! addresses and identifier become others, and the replies to it get the former ones back.
//! INPUTSPECs are those of IPRewriter. The source port of a pattern is the identifier, and patterns
//! may be written C<SADDR DADDR IDENTIFIERS> too.
//!
//! Replies without a mapping, and packets that are not echo messages, are dropped unless the
//! INPUTSPEC is C<pass>.
//!
//! Keyword arguments are TIMEOUT (5 minutes), GUARANTEE, MAPPING_CAPACITY, REAP_INTERVAL, DST_ANNO
//! and REPLY_ANNO, all as for IPRewriter. The manual of IPRewriter has more on several workers too.
//!
//! Drop reasons: `no IP header`, `not ICMP`, `not an echo`, `fragment without ports`,
//! `transport header cut off`, `no mapping`, `no port or address free`, `mapping table full`,
//! `too many flows of one host`.
//!
//! =e
//!   ping :: ICMPPingRewriter(pattern 192.0.2.1 - 0-65535 0 1, drop);
//!
//! =a IPRewriter, ICMPRewriter, ICMPPingResponder

use graph::{Class, METRICS};

use super::kind::Kind;
use super::rewriter::{ADDRESS_HANDLERS, BOTH_HANDLERS, PING_HANDLERS, TCP_HANDLERS, UDP_HANDLERS, make};

pub(crate) static CLASS: Class = Class {
    name: "IPRewriter",
    ports: "1-/1-",
    processing: Class::PUSH,
    capabilities: &[graph::TAKES_MERGED, METRICS],
    handlers: BOTH_HANDLERS,
    manual: graph::manual!("ip_rewriter.rs", "IPRewriter"),
    make: |setup| make(setup, Kind::Both),
    ..Class::DEFAULT
};

pub(crate) static TCP: Class = Class {
    name: "TCPRewriter",
    capabilities: &[graph::TAKES_MERGED, METRICS],
    handlers: TCP_HANDLERS,
    manual: graph::manual!("ip_rewriter.rs", "TCPRewriter"),
    make: |setup| make(setup, Kind::Tcp),
    ..CLASS
};

pub(crate) static UDP: Class = Class {
    name: "UDPRewriter",
    capabilities: &[graph::TAKES_MERGED, METRICS],
    handlers: UDP_HANDLERS,
    manual: graph::manual!("ip_rewriter.rs", "UDPRewriter"),
    make: |setup| make(setup, Kind::Udp),
    ..CLASS
};

pub(crate) static ADDRESS: Class = Class {
    name: "IPAddrRewriter",
    capabilities: &[graph::TAKES_MERGED, METRICS],
    handlers: ADDRESS_HANDLERS,
    manual: graph::manual!("ip_rewriter.rs", "IPAddrRewriter"),
    make: |setup| make(setup, Kind::Address),
    ..CLASS
};

pub(crate) static PAIR: Class = Class {
    name: "IPAddrPairRewriter",
    capabilities: &[graph::TAKES_MERGED, METRICS],
    handlers: ADDRESS_HANDLERS,
    manual: graph::manual!("ip_rewriter.rs", "IPAddrPairRewriter"),
    make: |setup| make(setup, Kind::Pair),
    ..CLASS
};

pub(crate) static PING: Class = Class {
    name: "ICMPPingRewriter",
    capabilities: &[graph::TAKES_MERGED, METRICS],
    handlers: PING_HANDLERS,
    manual: graph::manual!("ip_rewriter.rs", "ICMPPingRewriter"),
    make: |setup| make(setup, Kind::Ping),
    ..CLASS
};
