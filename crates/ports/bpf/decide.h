// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Whose a packet is, when Linux stays the host on a link: ours is what is plain transit, and the kernel gets the rest.
// src/host_filter.rs makes the same decision in Rust, and a test compares the two.
//
// Transit is a frame to the interface's own address or to one of STATIONS, with an IP packet that
//   - is no longer than the MTU (a longer one was made by an offload; the kernel can take it apart),
//   - goes to an address that is not the host's own (LOCAL), not a group, not of this link,
//   - is not for what reads packets there without having their address (see `is_for_client`, `is_discovery`).
// The kernel would forward every such packet, past our access lists. So ours are also packets with IPv4 options, with
// IPv6 extension headers, and to reserved addresses. So is what has lived too long: whether it is answered, and by whom,
// is the router's to decide.
// The kernel gets all of ARP, LLDP, IS-IS, MPLS and the like.
//
// What the kernel gets to an address that is not the host's it may forward. Where something filters, its backstop drops
// that (control's `backstop`).
//
// While TAKES_ESP is set, ESP (RFC 4303) to the host's own addresses is ours too, if it is no longer than the MTU: right
// behind the IP header, or in UDP to port 4500 (RFC 3948). The kernel keeps IKE and the keepalives on that port, IPv4
// fragments and IPv4 packets with options. All that is ESP here is ESP to `find` of crates/ipsec/src/esp/header.rs.
//
// A priority tag, whose VLAN has number 0, changes nothing (IEEE 802.1Q, 6.9.1): the frame is one of the port itself.
// Frames with another 802.1Q tag are the kernel's, unless VLANS says otherwise of their VLAN: where Linux has an
// interface for it, ours is what is transit as above; where it has none, all of it is ours, ARP, groups and the host's
// own included.
//
// Of a family that Linux does not forward from the interface, or from that of a VLAN, nothing is ours: what becomes of such
// packets is Linux's to say.

#pragma once

#include "bpf.h"
#include "headers.h"

enum {
    TYPE_IPV4 = 0x0800,
    TYPE_ARP = 0x0806,
    TYPE_IPV6 = 0x86dd,
    // IEEE 802.1Q: a customer tag; what follows it is control information and the type of the packet.
    TYPE_VLAN = 0x8100,
    // IEEE 802.1ad: a service tag.
    TYPE_SERVICE_VLAN = 0x88a8,
    TAG_BYTES = 4,
    VLAN_MASK = 0xfff,
    IPV4_BYTES = 20,
    IPV6_BYTES = 40,
    // RFC 791: more fragments follow, or this is not the first.
    FRAGMENT = 0x3fff,
    // More than any packet has.
    ANY_LENGTH = 1 << 17,
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

// A bit for a hash of each of them, so that most addresses are known at a glance not to be the host's.
enum { LOCAL_BITS = 4096 };

struct bits {
    __u8 bytes[LOCAL_BITS / 8];
};

struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
    MAP_NUMBER(max_entries, 1);
    MAP_TYPE(key, __u32);
    MAP_TYPE(value, struct bits);
} MAY_BE_LOCAL SEC(".maps");

// What stands before an IPv4 address in the lower half of an IPv6 one, ::ffff:a.b.c.d.
#define MAPPED (0xffffull << 32)

// `word` is an IPv6 address of which the halves are combined by exclusive or, in the host's order.
INLINE int may_be_local(__u64 word) {
    __u32 first = 0;
    const struct bits *bits = lookup(&MAY_BE_LOCAL, &first);
    // The upper bits of a product (Fibonacci hashing).
    __u64 place = word * 0x9e3779b97f4a7c15 >> 52;
    return !bits || bits->bytes[place >> 3 & (LOCAL_BITS / 8 - 1)] >> (place & 7) & 1;
}

// Bytes may begin anywhere.
INLINE __u64 number_of_bytes(const __u8 *place, int bytes) {
    __u64 number = 0;
    for (int byte = 0; byte < bytes; byte++)
        number = number << 8 | place[byte];
    return number;
}

// What is ours of a VLAN. The numbers are those of VlanShare in src/host_steering.rs.
enum { NOTHING_OF_IT, TRANSIT_OF_IT, ALL_OF_IT, SHARES };

// Beside a share of transit: the families that are left to the kernel.
enum { LEAVES_IPV4 = 4, LEAVES_IPV6 = 8 };

// By the number of the VLAN. Number 0 is not a VLAN: it has what is left of the interface's own.
struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
    MAP_NUMBER(max_entries, VLAN_MASK + 1);
    MAP_TYPE(key, __u32);
    MAP_TYPE(value, __u8);
} VLANS SEC(".maps");

INLINE int is_tag(__u16 type) { return type == TYPE_VLAN || type == TYPE_SERVICE_VLAN; }

// From the type and the control information of a tag.
INLINE int share_of_tag(__u16 type, __u16 control) {
    __u32 number = control & VLAN_MASK;
    if (number && type != TYPE_VLAN)
        return NOTHING_OF_IT;
    const __u8 *share = lookup(&VLANS, &number);
    int known = share ? *share : NOTHING_OF_IT;
    return number ? known : known | TRANSIT_OF_IT;
}

// Of frames without a tag.
INLINE int share_of_interface(void) { return share_of_tag(TYPE_VLAN, 0); }

// Whether packets of this type are left to the kernel.
INLINE int is_left(int share, __u16 type) {
    return share & (type == TYPE_IPV4 ? LEAVES_IPV4 : type == TYPE_IPV6 ? LEAVES_IPV6 : 0);
}

// What became of a packet: steered to a socket, left to the kernel and why, or dropped. The reasons are those of src/bpf.rs.
enum {
    STEERED,
    LEFT_ARP,
    LEFT_NOT_IP,
    // A broadcast or multicast frame.
    LEFT_GROUP,
    // A frame to the address of another station.
    LEFT_STATION,
    // To this host: its addresses, groups, what no router forwards.
    LEFT_HOST,
    // Longer than the MTU, or merged of several.
    LEFT_LONG,
    // The transport checksum is still to be computed.
    LEFT_UNFINISHED,
    LEFT_VLAN,
    // The queue has no socket.
    LEFT_QUEUE,
    // For a client of DHCP or a proxy of neighbour discovery.
    LEFT_CLIENT,
    // Of a family that is left to the kernel.
    LEFT_FAMILY,
    // Transit that is not plain, where the kernel forwards that.
    LEFT_ODD,
    // Not left: the source is no host's.
    DROPPED_MARTIAN,
    COUNTS
};

// Packets by what became of them.
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

// Why a frame is left to the kernel that is not to the interface's own address, or has no IP packet.
INLINE __u32 left_by_type(__u16 type, int is_group) {
    if (type == TYPE_ARP)
        return LEFT_ARP;
    if (type != TYPE_IPV4 && type != TYPE_IPV6)
        return LEFT_NOT_IP;
    return is_group ? LEFT_GROUP : LEFT_STATION;
}

// Bytes may begin anywhere.
INLINE __u32 length_at(const __u8 *place) { return place[0] << 8 | place[1]; }

// Where the checksum is in a header of TCP, of UDP, and of SCTP; each is longer than that.
enum { TCP_CHECKSUM = 16, UDP_CHECKSUM = 6, SCTP_CHECKSUM = 8 };

// Adds up numbers of 16 bits, in whatever byte order.
INLINE __u32 sum_of(const __u8 *place, int words) {
    __u32 sum = 0;
    for (int word = 0; word < words; word++)
        sum += ((const __u16 *)place)[word];
    return sum;
}

// Whether the transport checksum of a packet is still to be computed, as the kernel leaves it to a device: there is the sum of
// the pseudo-header (CHECKSUM_PARTIAL, linux/skbuff.h), which one complete checksum in 65,536 is as well; in SCTP zero.
// `addresses` are `words` numbers of 16 bits.
INLINE int is_unfinished(const __u8 *addresses, int words, __u8 protocol, __u32 length, const __u8 *transport,
                         const void *end) {
    if (protocol == PROTOCOL_SCTP)
        return (const void *)(transport + SCTP_CHECKSUM + 4) <= end &&
               !(*(const __u16 *)(transport + SCTP_CHECKSUM) | *(const __u16 *)(transport + SCTP_CHECKSUM + 2));
    int at = protocol == PROTOCOL_TCP ? TCP_CHECKSUM : UDP_CHECKSUM;
    if ((protocol != PROTOCOL_TCP && protocol != PROTOCOL_UDP) || (const void *)(transport + at + 2) > end)
        return 0;
    __u32 sum = sum_of(addresses, words) + SWAP16(protocol) + SWAP16(length);
    sum = (sum >> 16) + (sum & 0xffff);
    sum = (sum >> 16) + (sum & 0xffff);
    return *(const __u16 *)(transport + at) == sum;
}

// Of a header of IPV4_BYTES; of packets with options it is not known. Fragments have complete checksums.
INLINE int is_unfinished_ipv4(const __u8 *header, const void *end) {
    return header[0] == PLAIN && !(length_at(header + 6) & FRAGMENT) &&
           is_unfinished(header + 12, 4, header[9], length_at(header + 2) - IPV4_BYTES, header + IPV4_BYTES, end);
}

// Of a header of IPV6_BYTES.
INLINE int is_unfinished_ipv6(const __u8 *header, const void *end) {
    return is_unfinished(header + 8, 16, header[6], length_at(header + 4), header + IPV6_BYTES, end);
}

// Whether ESP to the host's own addresses is ours. It is asked only about packets to these.
struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
    MAP_NUMBER(max_entries, 1);
    MAP_TYPE(key, __u32);
    MAP_TYPE(value, __u8);
} TAKES_ESP SEC(".maps");

// UDP's port for ESP; bytes of a header of UDP, and of ESP: SPI and sequence number.
enum { ESP_PORT = 4500, UDP_BYTES = 8, ESP_BYTES = 8 };

// Whether ESP begins behind an IP header, at `transport`. The packet has `length` bytes there, without what trails it.
INLINE int is_esp(__u8 protocol, int length, const __u8 *transport, const void *end) {
    if (protocol == PROTOCOL_UDP) {
        if ((const void *)(transport + UDP_BYTES) > end || length_at(transport + 2) != ESP_PORT)
            return 0;
        transport += UDP_BYTES;
        length -= UDP_BYTES;
    } else if (protocol != PROTOCOL_ESP) {
        return 0;
    }
    // RFC 3948, section 2.2: four zero bytes mark IKE. RFC 4303, section 2.1: SPI 0 is for local use.
    return length >= ESP_BYTES && (const void *)(transport + ESP_BYTES) <= end &&
           (transport[0] | transport[1] | transport[2] | transport[3]);
}

// Of a header of IPV4_BYTES, and what stands behind it.
INLINE int is_esp_ipv4(const __u8 *header, const __u8 *transport, const void *end) {
    return header[0] == PLAIN && !(length_at(header + 6) & FRAGMENT) &&
           is_esp(header[9], (int)length_at(header + 2) - IPV4_BYTES, transport, end);
}

// Of a header of IPV6_BYTES, and what stands behind it.
INLINE int is_esp_ipv6(const __u8 *header, const __u8 *transport, const void *end) {
    return is_esp(header[6], length_at(header + 4), transport, end);
}

// Further addresses of the interface for IPv4 and for IPv6, as numbers, 0 where there is none: those of interfaces above it,
// such as VRRP's macvlan, that the kernel would forward from as from this one.
enum { MOST_STATIONS = 8 };

struct stations {
    __u64 addresses[2][MOST_STATIONS];
    // Whether all frames to the interface's own address are the kernel's, because it is a member of a bridge, say. XDP programs
    // know another address instead.
    __u64 gives_way;
    // Addresses of members of the interface, a bridge: frames to them are to the interface too, says the kernel, which gets them.
    __u64 members[MOST_STATIONS];
};

struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
    MAP_NUMBER(max_entries, 1);
    MAP_TYPE(key, __u32);
    MAP_TYPE(value, struct stations);
} STATIONS SEC(".maps");

// Asked about frames that are not to the interface's own address.
INLINE int is_station(const __u8 *destination, __u16 type) {
    __u32 first = 0;
    const struct stations *stations = lookup(&STATIONS, &first);
    __u64 address = number_of_bytes(destination, 6);
    int is_one = 0;
    for (int at = 0; stations && at < MOST_STATIONS; at++)
        is_one |= stations->addresses[type == TYPE_IPV6][at] == address;
    return is_one && address;
}

// Whether all that goes to a client of DHCP is the kernel's, also to clients elsewhere.
struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
    MAP_NUMBER(max_entries, 1);
    MAP_TYPE(key, __u32);
    MAP_TYPE(value, __u8);
} LEAVES_CLIENTS SEC(".maps");

// UDP's port for clients of DHCP; where the link address of one is behind the header of UDP (RFC 2131, 2); the part of an IPv4
// fragment's field that is its place; types of neighbour discovery (RFC 4861, 4); the hop limit of what no router forwarded.
enum {
    CLIENT_PORT = 68,
    CLIENT_ADDRESS = 28,
    FRAGMENT_PLACE = 0x1fff,
    FIRST_DISCOVERY = 133,
    LAST_DISCOVERY = 137,
    FROM_THIS_LINK = 255,
};

// Whether a packet with a header of IPV4_BYTES, transit by its address, is for a client of DHCP on this host: a server sends
// it to the address that it offers (RFC 2131, 4.1), and the client reads it by a packet socket. While LEAVES_CLIENTS is
// not set, that is a message which names the link address that the frame is to.
INLINE int is_for_client(const __u8 *frame, const __u8 *header, const __u8 *transport, const void *end) {
    if (header[9] != PROTOCOL_UDP || header[0] != PLAIN || (length_at(header + 6) & FRAGMENT_PLACE) ||
        (const void *)(transport + UDP_BYTES) > end || length_at(transport + 2) != CLIENT_PORT)
        return 0;
    __u32 first = 0;
    const __u8 *leaves = lookup(&LEAVES_CLIENTS, &first);
    if (leaves && *leaves)
        return 1;
    const __u8 *client = transport + UDP_BYTES + CLIENT_ADDRESS;
    if ((const void *)(client + 6) > end)
        return 0;
    return number_of_bytes(client, 6) == number_of_bytes(frame, 6);
}

// Whether a packet with a header of IPV6_BYTES, transit by its address, is neighbour discovery: the kernel answers it for
// hosts whose proxy it is (RFC 4389). Forwarded it would be invalid.
INLINE int is_discovery(const __u8 *header, const __u8 *transport, const void *end) {
    return header[6] == PROTOCOL_ICMPV6 && header[7] == FROM_THIS_LINK && (const void *)(transport + 1) <= end &&
           transport[0] >= FIRST_DISCOVERY && transport[0] <= LAST_DISCOVERY;
}

// What a packet is by its IP header. MAY_BE_ESP is to an address of the host, while TAKES_ESP is set.
enum kind { OTHER, PLAIN_TRANSIT, MAY_BE_ESP, TOO_LONG };

INLINE __u32 left_by_kind(enum kind kind) { return kind == TOO_LONG ? LEFT_LONG : LEFT_HOST; }

INLINE enum kind kind_by_address(const struct address *address) {
    if (!lookup(&LOCAL, address))
        return PLAIN_TRANSIT;
    __u32 first = 0;
    const __u8 *takes_esp = lookup(&TAKES_ESP, &first);
    return takes_esp && *takes_esp ? MAY_BE_ESP : OTHER;
}

// Of a header of IPV4_BYTES.
INLINE enum kind kind_of_ipv4(const __u8 *header, __u32 mtu) {
    const __u8 *destination = header + 16;
    if (header[0] >> 4 != 4)
        return OTHER;
    if (length_at(header + 2) > mtu)
        return TOO_LONG;
    // RFC 6890: loopback; groups (224.0.0.0/4).
    if (destination[0] == 127 || destination[0] >> 4 == 14)
        return OTHER;
    // RFC 919: limited broadcast.
    if ((destination[0] & destination[1] & destination[2] & destination[3]) == 0xff)
        return OTHER;
    if (!may_be_local(MAPPED | number_of_bytes(destination, 4)))
        return PLAIN_TRANSIT;
    struct address address;
    __builtin_memset(address.bytes, 0, 10);
    __builtin_memset(address.bytes + 10, 0xff, 2);
    __builtin_memcpy(address.bytes + 12, destination, 4);
    return kind_by_address(&address);
}

// RFC 4291, section 2.5.6: a router forwards no packet from or to such an address.
INLINE int is_link_local(const __u8 *address) { return address[0] == 0xfe && (address[1] & 0xc0) == 0x80; }

// Of a header of IPV6_BYTES.
INLINE enum kind kind_of_ipv6(const __u8 *header, __u32 mtu) {
    const __u8 *source = header + 8, *destination = header + 24;
    if (header[0] >> 4 != 6)
        return OTHER;
    if (IPV6_BYTES + length_at(header + 4) > mtu)
        return TOO_LONG;
    if (destination[0] == 0xff || is_link_local(destination) || is_link_local(source))
        return OTHER;
    if (!may_be_local(number_of_bytes(destination, 8) ^ number_of_bytes(destination + 8, 8)))
        return PLAIN_TRANSIT;
    struct address address;
    __builtin_memcpy(address.bytes, destination, 16);
    return kind_by_address(&address);
}
