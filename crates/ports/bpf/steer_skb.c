// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Steers the packets of an interface with packet sockets, which take copies: of each packet either the copy or the
// original has to go. Both programs make the same decision (decide.h):
//   - `filter`, on each of our sockets, gives it what is ours,
//   - `screen`, behind the sockets at the entry of the kernel's stack, drops just that.
// What a `host:` port gives to the kernel is marked: our sockets do not get it, and the kernel does (passage.h).
//
// What is longer than a socket's slots, or than the frames behind it, is the kernel's too: an MTU may have been raised.
//
// The kernel has taken an 802.1Q tag out of the frame before it asks, and keeps it beside; where it has not, it is read
// from the frame.
//
// Beyond what decide.h says, frames that were merged by the kernel or a card (GRO) are the kernel's, which can take them
// apart again; those of a VLAN that is ours whole are ours, and the port says why it drops them. Linux 6.6 or newer (tcx).

#include "bpf.h"
#include "decide.h"
#include "passage.h"

// From anywhere in the packet, also from pages beside its linear part, where other ways do not look.
static long (*const load_bytes)(const void *packet, __u32 from, void *to, __u32 length) =
    (void *)BPF_FUNC_skb_load_bytes;

// The longest frame that our sockets hold, in bytes; 0 if that is not known yet.
struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
    MAP_NUMBER(max_entries, 1);
    MAP_TYPE(key, __u32);
    MAP_TYPE(value, __u32);
} LONGEST SEC(".maps");

INLINE int is_held(const struct __sk_buff *packet) {
    __u32 first = 0;
    const __u32 *longest = lookup(&LONGEST, &first);
    return !longest || !*longest || packet->len <= *longest;
}

enum {
    // linux/if_packet.h: PACKET_HOST, the frame is to the interface's own address; PACKET_OTHERHOST, it is to another,
    // the last of those that came in.
    TO_US = 0,
    TO_ANOTHER = 3,
    // The return values of a socket filter: how many bytes the socket gets.
    NOTHING = 0,
    WHOLE = -1,
};

// A tag: control information and the type behind it, as in the frame.
struct tag {
    __u16 control;
    __u16 type;
};

// Loads what stands behind an IP header, as much as shows ESP in UDP, or ESP. The kernel writes zeros where it has less.
INLINE void load_transport(struct __sk_buff *packet, __u32 at, __u8 *transport) {
    if (load_bytes(packet, at, transport, UDP_BYTES + ESP_BYTES) != 0)
        load_bytes(packet, at, transport, ESP_BYTES);
}

INLINE int is_member(const struct stations *stations, const __u8 *destination) {
    __u64 address = number_of_bytes(destination, 6);
    int is_one = 0;
    for (int at = 0; at < MOST_STATIONS; at++)
        is_one |= stations->members[at] == address;
    return is_one;
}

// Whether a frame is to the interface's own address or to one of STATIONS, of which the kernel says here that it is to another.
INLINE int is_to_us(struct __sk_buff *packet, __u16 type) {
    __u8 destination[6];
    if (packet->pkt_type == TO_US) {
        __u32 first = 0;
        const struct stations *stations = lookup(&STATIONS, &first);
        if (!stations || stations->gives_way)
            return 0;
        if (!stations->members[0])
            return 1;
        return load_bytes(packet, 0, destination, sizeof(destination)) == 0 && !is_member(stations, destination);
    }
    return packet->pkt_type == TO_ANOTHER && load_bytes(packet, 0, destination, sizeof(destination)) == 0 &&
           is_station(destination, type);
}

// Reads the header of an IPv4 packet and what may be that of UDP behind it, which is zero where it is not there. Whether it has
// read the first.
INLINE int load_ipv4(struct __sk_buff *packet, __u32 at, __u8 *header) {
    return load_bytes(packet, at, header, IPV4_BYTES + UDP_BYTES) == 0 || load_bytes(packet, at, header, IPV4_BYTES) == 0;
}

// Whether an IPv4 packet, transit by its address, is for a client of DHCP. The header of a frame with its tag beside is as long.
INLINE int is_client_at(struct __sk_buff *packet, __u32 at, const __u8 *header) {
    __u8 destination[6], transport[UDP_BYTES + CLIENT_ADDRESS + 6];
    if (header[9] != PROTOCOL_UDP || length_at(header + IPV4_BYTES + 2) != CLIENT_PORT)
        return 0;
    if (load_bytes(packet, 0, destination, sizeof(destination)) != 0)
        return 0;
    // Where a packet is shorter the client's address is missing.
    int is_whole = load_bytes(packet, at + IPV4_BYTES, transport, sizeof(transport)) == 0;
    if (!is_whole && load_bytes(packet, at + IPV4_BYTES, transport, UDP_BYTES) != 0)
        return 0;
    return is_for_client(destination, header, transport, transport + (is_whole ? sizeof(transport) : UDP_BYTES));
}

INLINE int is_discovery_at(struct __sk_buff *packet, __u32 at, const __u8 *header) {
    __u8 type;
    return header[6] == PROTOCOL_ICMPV6 && load_bytes(packet, at + IPV6_BYTES, &type, 1) == 0 &&
           is_discovery(header, &type, &type + 1);
}

// What becomes of a packet: STEERED, or why it is left to the kernel.
INLINE __u32 fate_of(struct __sk_buff *packet) {
    int share;
    __u16 type = SWAP16((__u16)packet->protocol);
    __u32 at = ETHERNET_BYTES;
    if (packet->vlan_present) {
        share = share_of_tag(SWAP16((__u16)packet->vlan_proto), packet->vlan_tci);
    } else if (is_tag(type)) {
        struct tag tag;
        if (load_bytes(packet, ETHERNET_BYTES, &tag, sizeof(tag)) != 0)
            return LEFT_NOT_IP;
        share = share_of_tag(type, SWAP16(tag.control));
        type = SWAP16(tag.type);
        at += TAG_BYTES;
    } else {
        share = share_of_interface();
    }
    if (share == NOTHING_OF_IT)
        return LEFT_VLAN;
    if (share == ALL_OF_IT)
        return packet->pkt_type <= TO_ANOTHER ? STEERED : LEFT_STATION;
    if (!is_to_us(packet, type))
        return left_by_type(type, packet->pkt_type != TO_US && packet->pkt_type < TO_ANOTHER);
    if (packet->gso_size || !is_held(packet))
        return LEFT_LONG;
    if (is_left(share, type))
        return LEFT_FAMILY;
    enum kind kind;
    __u8 header[IPV6_BYTES], transport[UDP_BYTES + ESP_BYTES];
    const void *end = transport + sizeof(transport);
    int is_ours;
    switch (type) {
    case TYPE_IPV4:
        if (!load_ipv4(packet, at, header))
            return LEFT_HOST;
        kind = kind_of_ipv4(header, ANY_LENGTH);
        is_ours = kind == PLAIN_TRANSIT;
        if (is_ours && is_client_at(packet, at, header))
            return LEFT_CLIENT;
        if (kind == MAY_BE_ESP) {
            load_transport(packet, at + IPV4_BYTES, transport);
            is_ours = is_esp_ipv4(header, transport, end);
        }
        break;
    case TYPE_IPV6:
        if (load_bytes(packet, at, header, IPV6_BYTES) != 0)
            return LEFT_HOST;
        kind = kind_of_ipv6(header, ANY_LENGTH);
        is_ours = kind == PLAIN_TRANSIT;
        if (is_ours && is_discovery_at(packet, at, header))
            return LEFT_CLIENT;
        if (kind == MAY_BE_ESP) {
            load_transport(packet, at + IPV6_BYTES, transport);
            is_ours = is_esp_ipv6(header, transport, end);
        }
        break;
    default:
        return left_by_type(type, 0);
    }
    return is_ours ? STEERED : left_by_kind(kind);
}

SEC("socket")
int filter(struct __sk_buff *packet) {
    if (is_from_us(packet))
        return NOTHING;
    __u32 fate = fate_of(packet);
    count(fate);
    return fate == STEERED ? WHOLE : NOTHING;
}

SEC("classifier")
int screen(struct __sk_buff *packet) {
    if (is_from_us(packet)) {
        // For us only: nobody's routing rules shall see it.
        packet->mark &= PERMITTED;
        return NEXT;
    }
    return fate_of(packet) == STEERED ? DROP : NEXT;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
