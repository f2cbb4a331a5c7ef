// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Whose a packet is, when Linux stays the host on a link: ours is what is plain transit, and the kernel gets the rest.
// src/host_filter.rs makes the same decision in Rust, and a test compares the two.
//
// Transit is a frame to the interface's own address, no longer than its MTU allows, with an IP packet that
//   - goes to an address that is not the host's own (LOCAL), not a group, not of this link or this host only,
//   - is no neighbour discovery (RFC 4861).
// IPv4 options and IPv6 hop-by-hop headers are ours too: the kernel would forward such packets past our access lists. So is
// what has lived too long: whether it is answered, and by whom, is the router's to say.
// So all of ARP, LLDP, IS-IS, MPLS, broken packets and the like stays with the kernel.
//
// Frames with an 802.1Q tag are the kernel's, unless VLANS says otherwise of their VLAN: where Linux has an interface for
// it, ours is what is transit as above; where it has none, all of it is ours, ARP, groups and the host's own included.

#pragma once

#include "bpf.h"

enum {
    TYPE_IPV4 = 0x0800,
    TYPE_IPV6 = 0x86dd,
    // IEEE 802.1Q: a customer tag; what follows it is control information and the type of the packet.
    TYPE_VLAN = 0x8100,
    TAG_BYTES = 4,
    VLAN_MASK = 0xfff,
    IPV4_BYTES = 20,
    // The header, and the first byte behind it: the type of an ICMPv6 message.
    IPV6_BYTES = 40 + 1,
    PROTOCOL_ICMPV6 = 58,
    // RFC 4861, section 4: router solicitation to neighbour advertisement. A redirect for a host behind us is transit.
    FIRST_DISCOVERY = 133,
    LAST_DISCOVERY = 136,
};

// An IPv6 address, or an IPv4 one as ::ffff:a.b.c.d.
struct address {
    __u8 bytes[16];
};

// The host's own addresses.
struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_HASH);
    MAP_NUMBER(max_entries, 16384);
    MAP_NUMBER(map_flags, BPF_F_NO_PREALLOC);
    MAP_TYPE(key, struct address);
    MAP_TYPE(value, __u8);
} LOCAL SEC(".maps");

// What is ours of a VLAN. The numbers are those of VlanShare in src/host_steering.rs.
enum { NOTHING_OF_IT, TRANSIT_OF_IT, ALL_OF_IT };

// By the number of the VLAN. Number 0 is no VLAN, and stays with the kernel.
struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
    MAP_NUMBER(max_entries, VLAN_MASK + 1);
    MAP_TYPE(key, __u32);
    MAP_TYPE(value, __u8);
} VLANS SEC(".maps");

// From the control information of a tag.
INLINE int share_of_vlan(__u16 control) {
    __u32 number = control & VLAN_MASK;
    const __u8 *share = lookup(&VLANS, &number);
    return share ? *share : NOTHING_OF_IT;
}

enum { STEERED, LEFT, COUNTS };

// Packets steered to a socket, and left to the kernel.
struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    MAP_NUMBER(max_entries, COUNTS);
    MAP_TYPE(key, __u32);
    MAP_TYPE(value, __u64);
} PACKETS SEC(".maps");

INLINE void count(__u32 which) {
    __u64 *count = lookup(&PACKETS, &which);
    if (count)
        *count += 1;
}

// Of a header of IPV4_BYTES.
INLINE int is_transit_ipv4(const __u8 *header) {
    const __u8 *destination = header + 16;
    if (header[0] >> 4 != 4)
        return 0;
    // RFC 6890: this host, loopback; groups, reserved addresses and broadcast.
    if (destination[0] == 0 || destination[0] == 127 || destination[0] >= 224)
        return 0;
    struct address address;
    __builtin_memset(address.bytes, 0, 10);
    __builtin_memset(address.bytes + 10, 0xff, 2);
    __builtin_memcpy(address.bytes + 12, destination, 4);
    return lookup(&LOCAL, &address) == 0;
}

// RFC 4291, section 2.5.6: a router forwards no packet from or to such an address.
INLINE int is_link_local(const __u8 *address) { return address[0] == 0xfe && (address[1] & 0xc0) == 0x80; }

// Of a header of IPV6_BYTES.
INLINE int is_transit_ipv6(const __u8 *header) {
    const __u8 *source = header + 8, *destination = header + 24, *type = header + 40;
    if (header[0] >> 4 != 6)
        return 0;
    if (destination[0] == 0xff || is_link_local(destination) || is_link_local(source))
        return 0;
    if (header[6] == PROTOCOL_ICMPV6 && *type >= FIRST_DISCOVERY && *type <= LAST_DISCOVERY)
        return 0;
    struct address address;
    __builtin_memcpy(address.bytes, destination, 16);
    // RFC 4291, sections 2.5.2 and 2.5.3: the unspecified address and loopback.
    __u32 rest = address.bytes[15] & 0xfe;
    for (int at = 0; at < 15; at++)
        rest |= address.bytes[at];
    return rest != 0 && lookup(&LOCAL, &address) == 0;
}
