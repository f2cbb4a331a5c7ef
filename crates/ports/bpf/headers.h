// SPDX-License-Identifier: MIT OR Apache-2.0
//
// IP headers, as programs that forward read them.

#pragma once

#include "bpf.h"

enum {
    PLAIN = 0x45,
    PROTOCOL_ICMP = 1,
    PROTOCOL_IPIP = 4,
    PROTOCOL_TCP = 6,
    PROTOCOL_UDP = 17,
    PROTOCOL_DCCP = 33,
    PROTOCOL_IPV6 = 41,
    PROTOCOL_GRE = 47,
    PROTOCOL_ESP = 50,
    PROTOCOL_AH = 51,
    PROTOCOL_ICMPV6 = 58,
    PROTOCOL_SCTP = 132,
    PROTOCOL_UDP_LITE = 136,
};

// An IPv4 header without options, at two bytes' alignment.
struct ipv4 {
    __u8 version_and_length;
    __u8 service;
    __u16 total_length;
    __u16 identification;
    __u16 fragment;
    __u8 ttl;
    __u8 protocol;
    __u16 checksum;
    __u16 source[2];
    __u16 destination[2];
};

struct ipv6 {
    __u32 version_and_flow;
    __u16 payload_length;
    __u8 next_header;
    __u8 hop_limit;
    __u16 source[8];
    __u16 destination[8];
};

// Of an address or a part of one, in network order.
INLINE __u64 word32(const __u16 *place) { return (__u64)SWAP16(place[0]) << 16 | SWAP16(place[1]); }
INLINE __u64 word64(const __u16 *place) { return word32(place) << 32 | word32(place + 2); }
