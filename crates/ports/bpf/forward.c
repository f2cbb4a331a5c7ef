// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Forwards plain transit in the kernel, by the router's own tables: the quick way between two ports whose packets would be
// copied to the router and back otherwise.
//
// A steering program (steer.c) comes first: what gets here is transit, to the interface's own address, with nothing
// of the host's. This program forwards what is ordinary. Whatever is not - a bad header, options, a source that no
// packet has, one that the access list does not surely permit (acl.h), one hop left, no route, one of which the path is chosen
// by what is in a tunnel, a packet too long for its way out or one that would leave as it came -
// goes to the router's own graph (REST), which does with it what it does with any packet. So nothing is dropped here,
// and nobody answers here.
//
// The same stands in two places (hook.h). In tc the rest is what steer.c says (REST_TC), and what is merged of several packets is forwarded
// whole.
//
// Linux 6.6 or newer.

#include "acl.h"
#include "bpf.h"
#include "decide.h"
#include "headers.h"
#include "hook.h"
#include "policy.h"
#include "samples.h"
#include "tables.h"

static long (*const redirect_map)(void *map, __u64 key, __u64 flags) = (void *)BPF_FUNC_redirect_map;
static long (*const adjust_head)(struct xdp_md *context, int bytes) = (void *)BPF_FUNC_xdp_adjust_head;
static long (*const adjust_tail)(struct xdp_md *context, int bytes) = (void *)BPF_FUNC_xdp_adjust_tail;
static long (*const redirect)(__u32 interface, __u64 flags) = (void *)BPF_FUNC_redirect;
static long (*const skb_change_tail)(struct __sk_buff *packet, __u32 bytes, __u64 flags) = (void *)BPF_FUNC_skb_change_tail;
static long (*const vlan_push)(struct __sk_buff *packet, __u16 protocol, __u16 control) = (void *)BPF_FUNC_skb_vlan_push;
static long (*const vlan_pop)(struct __sk_buff *packet) = (void *)BPF_FUNC_skb_vlan_pop;
static long (*const check_mtu)(void *packet, __u32 interface, __u32 *mtu, __s32 change, __u64 flags) = (void *)BPF_FUNC_check_mtu;
static __s64 (*const csum_update)(struct __sk_buff *packet, __u32 sum) = (void *)BPF_FUNC_csum_update;
static long (*const tail_call)(void *context, void *programs, __u32 number) = (void *)BPF_FUNC_tail_call;
static __u32 (*const processor)(void) = (void *)BPF_FUNC_get_smp_processor_id;

// Ports of a router, interfaces that have a place in `port_of`, VLANs that have one in `vlans`.
enum { MOST_PORTS = 256, PLACES = 4096, VLAN_PLACES = 4096 };

// Where programs run: in the driver, or in the kernel's stack, as generic XDP and tc do.
enum { NATIVE = 1, IN_STACK = 2 };

// Which sources are believed: all, those with a route, those with one by the port that the packet came by (RFC 3704).
enum { ALL_SOURCES, LOOSE, STRICT };

// What there is to know of a port.
struct port {
    __u32 interface;
    // The largest packet of each family that it sends.
    __u16 mtu4;
    __u16 mtu6;
    // Where the programs of the interface run; 0 if what comes in by it is not forwarded here.
    __u8 mode;
    // From which modes the interface sends what is redirected to it.
    __u8 sends;
    // Which sources of packets that come in are believed.
    __u8 sources4;
    __u8 sources6;
    // By which rules of access lists know it.
    __u8 paint;
    // From which modes it sends frames that lie in several buffers.
    __u8 sends_fragments;
    // Whether its packets may be longer than a buffer of its driver.
    __u8 is_long;
    __u8 unused;
};

// A port that is a VLAN of another: there is one if its number is not 0.
struct vlan {
    __u16 number;
    __u8 below;
    __u8 port;
};

// What the router tells: written by it while packets flow.
struct links {
    // The key of the hash that chooses members of groups.
    __u64 key[2];
    // The access lists of IPv4 and IPv6: the number of the area, from 1; 0 if all is for the graph to judge.
    __u32 lists[2];
    // What is hashed of IPv4 and IPv6.
    __u32 paths[2];
    struct sampling sampling;
    struct port ports[MOST_PORTS];
    // Sources that are the host's own, or may be: a bit for a hash of each.
    __u8 own[PLACES / 8];
    // Numbers of ports, by interface.
    __u8 port_of[PLACES];
    struct vlan vlans[VLAN_PLACES];
};

struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
    MAP_NUMBER(max_entries, 1);
    MAP_NUMBER(map_flags, BPF_F_MMAPABLE);
    MAP_TYPE(key, __u32);
    MAP_TYPE(value, struct links);
} LINKS SEC(".maps");

// Interfaces to send by, by number of the port.
struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_DEVMAP);
    MAP_NUMBER(max_entries, MOST_PORTS);
    MAP_NUMBER(key_size, 4);
    MAP_NUMBER(value_size, 4);
} WAYS SEC(".maps");

// Programs that give packets to the router's sockets, by number of the port.
struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_PROG_ARRAY);
    MAP_NUMBER(max_entries, MOST_PORTS);
    MAP_NUMBER(key_size, 4);
    MAP_NUMBER(value_size, 4);
} REST SEC(".maps");

// Programs that leave packets to Linux and count them, by number of the port.
struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_PROG_ARRAY);
    MAP_NUMBER(max_entries, MOST_PORTS);
    MAP_NUMBER(key_size, 4);
    MAP_NUMBER(value_size, 4);
} REST_TC SEC(".maps");

// Packets and bytes: those of link header and packet, without padding.
struct amount {
    __u64 packets, bytes;
};

// What was forwarded here, and how much more what was sent is than frames: one in which several packets are merged has its headers once.
struct traffic {
    struct amount rx, tx, merged_tx;
    struct draw draw;
};

struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    MAP_NUMBER(max_entries, MOST_PORTS);
    MAP_TYPE(key, __u32);
    MAP_TYPE(value, struct traffic);
} TRAFFIC SEC(".maps");

// A ones-complement sum of the ten words of a header is 0xffff if and only if its checksum is right (RFC 1071).
INLINE int has_right_checksum(const __u16 *words) {
    __u32 sum = 0;
    for (int at = 0; at < 10; at++)
        sum += words[at];
    sum = (sum >> 16) + (sum & 0xffff);
    return sum + (sum >> 16) == 0xffff;
}

// Which member of a group takes a packet (crates/packet/src/multipath.rs): fields that decide, and what else there is to know
// of a policy.
enum {
    BY_SOURCE = 1 << 0,
    BY_DESTINATION = 1 << 1,
    BY_PROTOCOL = 1 << 2,
    BY_LABEL = 1 << 3,
    BY_SOURCE_PORT = 1 << 4,
    BY_DESTINATION_PORT = 1 << 5,
    // Six more of the packet in a tunnel.
    BY_INSIDE = 0x3f << 6,
    // Of an ICMP error, the packet inside decides.
    INTO_ERRORS = 1 << 16,
    // The innermost header decides.
    BY_INNERMOST = 1 << 17,
    UNKNOWN_POLICY = 1 << 18,
};

// Types of ICMP messages that are errors, a bit for each.
enum { ERRORS4 = 1 << 3 | 1 << 4 | 1 << 5 | 1 << 11 | 1 << 12, ERRORS6 = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4 };

// What decides about a packet.
struct keys {
    __u64 source, destination, label;
    __u16 ports[2];
    __u8 protocol;
};

// Whether the graph has to find what decides: where it stands in a tunnel, or where the ports are of what has them elsewhere
// (authentication headers, RFC 4302).
INLINE int is_for_graph(__u32 policy, __u8 protocol) {
    if (policy & UNKNOWN_POLICY || protocol == PROTOCOL_AH)
        return 1;
    return policy & (BY_INSIDE | BY_INNERMOST) &&
           (protocol == PROTOCOL_IPIP || protocol == PROTOCOL_IPV6 || protocol == PROTOCOL_GRE);
}

// The packet in an ICMP message of so many bytes is behind this header.
enum { ICMP_BYTES = 8 };

INLINE int is_error(__u32 errors, const __u8 *message) { return *message < 32 && errors >> *message & 1; }

// What Linux takes for ports are the first four bytes of these.
INLINE int has_ports(__u8 protocol) {
    return protocol == PROTOCOL_TCP || protocol == PROTOCOL_UDP || protocol == PROTOCOL_SCTP || protocol == PROTOCOL_ESP ||
           protocol == PROTOCOL_DCCP || protocol == PROTOCOL_UDP_LITE;
}

INLINE void read_ports(struct keys *keys, const __u16 *ports) {
    keys->ports[0] = SWAP16(ports[0]);
    keys->ports[1] = SWAP16(ports[1]);
}

// The same for both orders of the addresses, and of the ports.
INLINE __u64 path_hash(const struct links *links, __u32 policy, const struct keys *keys) {
    __u64 a = policy & BY_SOURCE ? keys->source : 0, b = policy & BY_DESTINATION ? keys->destination : 0;
    __u64 from = policy & BY_SOURCE_PORT ? keys->ports[0] : 0, to = policy & BY_DESTINATION_PORT ? keys->ports[1] : 0;
    __u64 protocol = policy & BY_PROTOCOL ? keys->protocol : 0, label = policy & BY_LABEL ? keys->label : 0;
    __u64 least = (a < b ? a : b) ^ (from < to ? from : to) << 40;
    __u64 most = (a < b ? b : a) ^ (from < to ? to : from) << 40 ^ protocol << 56 ^ label << 20;
    __u64 once = folded(least ^ links->key[0], most ^ links->key[1]);
    __u64 turned = links->key[0] << 32 | links->key[0] >> 32;
    return folded(once ^ turned, 0xe7037ed1a0b428db) & 0xffffffff;
}

// Spreads the hash over its low bits (crates/fib/src/next_hops/resolver.rs).
INLINE __u64 mixed(__u64 hash) { return hash * 0x9e3779b97f4a7c15 >> 32; }

// The place of an address in `own`: the upper bits of a product.
INLINE __u64 own_place(__u64 address) { return address * 0x9e3779b97f4a7c15 >> 52; }

INLINE int may_be_own(const struct links *links, __u64 address) {
    __u64 place = own_place(address);
    return links->own[place >> 3 & (PLACES / 8 - 1)] >> (place & 7) & 1;
}

// What to do with a packet.
struct way {
    struct next_hop next_hop;
    // Without its link header.
    __u32 bytes;
};

// The next hop behind a number, of which members of a group are chosen by `hash`.
INLINE int resolve(__u8 *tables, __u64 descriptor, __u64 number, __u64 hash, struct next_hop *next_hop) {
    dawdle();
    if (number >= AT(__u32, tables, descriptor + ENTRY_COUNT))
        return 0;
    __u64 entry = AT(__u64, tables, AT(__u32, tables, descriptor + ENTRIES) + number * 8);
    __u64 chosen = (entry & 0xffffffff) + (mixed(hash) & entry >> 32);
    __u64 slot = AT(__u16, tables, AT(__u32, tables, descriptor + BUCKETS) + chosen * 2);
    *next_hop = AT(struct next_hop, tables, AT(__u32, tables, descriptor + LINES) + slot * sizeof(struct next_hop));
    return next_hop->forwards;
}

INLINE int is_group(__u8 *tables, __u64 descriptor, __u64 number) {
    return number < AT(__u32, tables, descriptor + ENTRY_COUNT) &&
           AT(__u64, tables, AT(__u32, tables, descriptor + ENTRIES) + number * 8) >> 32;
}

// Whether a source is surely believed that has the next hop of this number. Of a group that is one member's to say.
INLINE int is_believed(__u8 *tables, __u64 descriptor, __u64 number, __u32 in, __u8 sources) {
    struct next_hop next_hop;
    return resolve(tables, descriptor, number, 0, &next_hop) && (sources == LOOSE || next_hop.port == in);
}

// Looks a packet up. The tables are those of the moment; the next hop is a copy.
INLINE int find_ipv4(__u8 *tables, const struct links *links, __u32 in, const struct ipv4 *header,
                     const void *end, struct next_hop *next_hop) {
    __u64 descriptor = active(tables);
    if (!descriptor)
        return 0;
    __u64 source = word32(header->source), destination = word32(header->destination), hash = 0;
    __u8 sources = links->ports[in & (MOST_PORTS - 1)].sources4;
    if (sources != ALL_SOURCES &&
        !is_believed(tables, descriptor, number_of_ipv4(tables, descriptor, destination, source, in, 1), in, sources))
        return 0;
    __u64 number = number_of_ipv4(tables, descriptor, source, destination, in, 0);
    if (is_group(tables, descriptor, number)) {
        const __u16 *transport = (const __u16 *)(header + 1);
        __u32 policy = links->paths[0];
        struct keys keys = {.source = source, .destination = destination, .protocol = header->protocol};
        if (is_for_graph(policy, keys.protocol))
            return 0;
        const struct ipv4 *inner = (const struct ipv4 *)((const __u8 *)transport + ICMP_BYTES);
        if (policy & INTO_ERRORS && keys.protocol == PROTOCOL_ICMP && !(header->fragment & SWAP16(0x1fff)) &&
            SWAP16(header->total_length) >= 2 * sizeof(*header) + ICMP_BYTES) {
            if ((const void *)(inner + 1) > end)
                return 0;
            if (is_error(ERRORS4, (const __u8 *)transport)) {
                keys.source = word32(inner->source);
                keys.destination = word32(inner->destination);
                keys.protocol = inner->protocol;
            }
        }
        // More fragments, or not the first; the length of an empty packet.
        if (has_ports(keys.protocol) && !(header->fragment & SWAP16(0x3fff)) && (const void *)(transport + 2) <= end &&
            SWAP16(header->total_length) >= sizeof(*header) + 4)
            read_ports(&keys, transport);
        hash = path_hash(links, policy, &keys);
    }
    return resolve(tables, descriptor, number, hash, next_hop);
}

INLINE int find_ipv6(__u8 *tables, const struct links *links, __u32 in, const struct ipv6 *header,
                     const void *end, struct next_hop *next_hop) {
    __u64 descriptor = active(tables), hash = 0;
    if (!descriptor)
        return 0;
    struct address6 source = {word64(header->source), word64(header->source + 4)};
    struct address6 destination = {word64(header->destination), word64(header->destination + 4)};
    __u8 sources = links->ports[in & (MOST_PORTS - 1)].sources6;
    if (sources != ALL_SOURCES &&
        !is_believed(tables, descriptor, number_of_ipv6(tables, descriptor, destination, source, in, 1), in, sources))
        return 0;
    __u64 number = number_of_ipv6(tables, descriptor, source, destination, in, 0);
    if (is_group(tables, descriptor, number)) {
        const __u16 *transport = (const __u16 *)(header + 1);
        __u32 policy = links->paths[1];
        struct keys keys = {.protocol = header->next_header};
        if (is_for_graph(policy, keys.protocol))
            return 0;
        // Those of the header that decides.
        const __u16 *label = (const __u16 *)header;
        const struct ipv6 *inner = (const struct ipv6 *)((const __u8 *)transport + ICMP_BYTES);
        if (policy & INTO_ERRORS && keys.protocol == PROTOCOL_ICMPV6 &&
            SWAP16(header->payload_length) >= sizeof(*header) + ICMP_BYTES) {
            if ((const void *)(inner + 1) > end)
                return 0;
            if (is_error(ERRORS6, (const __u8 *)transport)) {
                source = (struct address6){word64(inner->source), word64(inner->source + 4)};
                destination = (struct address6){word64(inner->destination), word64(inner->destination + 4)};
                keys.protocol = inner->next_header;
                label = (const __u16 *)inner;
            }
        }
        keys.label = word32(label) & 0xfffff;
        keys.source = folded(source.high ^ links->key[0], source.low ^ links->key[1]);
        keys.destination = folded(destination.high ^ links->key[0], destination.low ^ links->key[1]);
        if (has_ports(keys.protocol) && (const void *)(transport + 2) <= end && SWAP16(header->payload_length) >= 4)
            read_ports(&keys, transport);
        hash = path_hash(links, policy, &keys);
    }
    return resolve(tables, descriptor, number, hash, next_hop);
}

// Extension headers, behind which the ports of a flow are to be looked for (RFC 8200, 4).
INLINE int is_extension(__u8 header) {
    return header == 0 || header == 43 || header == 44 || header == 51 || header == 60 || header == 135 ||
           header == 139 || header == 140;
}

// Whether an address of this beginning is a host's on another link: no group, not of the link, nothing special.
INLINE int is_far_ipv6(const __u16 *address) {
    __u16 head = SWAP16(address[0]);
    return head && head < 0xff00 && (head & 0xffc0) != 0xfe80;
}

// The number of the area of a family's list. To be loaded once.
INLINE __u32 list_number(const struct links *links, int family) {
    return *(const volatile __u32 *)&links->lists[family];
}

// What of a frame there is to count, in packets as they are on a link.
struct burst {
    __u64 packets;
    // Of all headers in front of the payload but the link header.
    __u64 header_bytes;
};

INLINE void count_traffic(struct traffic *traffic, __u32 out, const struct burst *burst, __u64 bytes, __u64 rx_link, __u64 tx_link) {
    __u64 more = burst->packets - 1;
    traffic->rx.packets += burst->packets;
    traffic->rx.bytes += rx_link + bytes + more * (rx_link + burst->header_bytes);
    traffic = lookup(&TRAFFIC, &out);
    if (!traffic)
        return;
    __u64 more_bytes = more * (tx_link + burst->header_bytes);
    traffic->tx.packets += burst->packets;
    traffic->tx.bytes += tx_link + bytes + more_bytes;
    if (more) {
        traffic->merged_tx.packets += more;
        traffic->merged_tx.bytes += more_bytes;
    }
}

// The length of a frame whose first buffer has so many bytes, and that should have `needed`. Drivers with an MTU of 1,500 have it
// in one buffer (ONE_BUFFER in src/kernel_forwarding/mod.rs), unless they split headers off.
INLINE __u64 frame_length(void *context, enum hook hook, const struct port *from, __u64 first_buffer, __u64 needed) {
    return hook == TC || from->is_long || needed > first_buffer ? buffer_bytes(context, hook) : first_buffer;
}

// The port that is the VLAN of this number on port `below`; -1 if no port is.
INLINE int port_of_vlan(const struct links *links, __u32 number, __u32 below) {
    const struct vlan *vlan = &links->vlans[(number + below * 61) & (VLAN_PLACES - 1)];
    return number && vlan->number == number && vlan->below == below ? vlan->port : -1;
}

// The same of a tag in a frame.
INLINE int port_of_tag(const struct links *links, const __u8 *tag, __u32 below) {
    return port_of_vlan(links, SWAP16(*(const __u16 *)tag) & VLAN_MASK, below);
}

// The same of a tag beside a frame.
INLINE int port_of_tag_beside(const struct links *links, const struct __sk_buff *packet, __u32 below) {
    return (__u16)packet->vlan_proto == SWAP16(TYPE_VLAN) ? port_of_vlan(links, packet->vlan_tci & VLAN_MASK, below) : -1;
}

// Looks at a frame in which packets of TCP or UDP are merged, and has one of `bytes` bytes with its IP header. Returns 0 if it has not
// what counting needs, or is that of a tunnel.
INLINE int measure(const struct __sk_buff *packet, __u64 ip_bytes, __u64 bytes, __u8 protocol, const __u8 *transport,
                   const void *end, struct burst *burst) {
    __u64 transport_bytes = 8;
    if (protocol == PROTOCOL_TCP) {
        if ((const void *)(transport + 20) > end)
            return 0;
        transport_bytes = (transport[12] >> 4) * 4;
    } else if (protocol != PROTOCOL_UDP) {
        return 0;
    }
    burst->header_bytes = ip_bytes + transport_bytes;
    burst->packets = packet->gso_segs;
    __u64 size = packet->gso_size;
    if (!size || bytes <= burst->header_bytes)
        return 0;
    // Whoever sends by a TAP or a packet socket does not say how many.
    if (!burst->packets)
        burst->packets = (bytes - burst->header_bytes + size - 1) / size;
    // Of a tunnel each packet has more headers.
    return bytes - burst->header_bytes <= burst->packets * size;
}

// Whether the packets of a frame leave by a port that sends packets of up to `most` bytes. The kernel knows how long they will be.
INLINE int fits_merged(struct __sk_buff *packet, __u32 interface, __u32 most) {
    __u32 mtu = 0;
    return check_mtu(packet, interface, &mtu, 0, BPF_MTU_CHK_SEGS) == 0 && most >= mtu;
}

// The priority that Linux gives to a packet that it forwards, by its type of service (rt_tos2priority).
INLINE __u32 priority_of(__u8 service) { return 0x4620 >> (service >> 3 & 3) * 4 & 0xf; }

// Forwards a frame that came in by port `in` or a VLAN of it; returns -1 where that is for others to do.
INLINE int forward_from(void *context, enum hook hook, struct links *links, __u32 in) {
    // Pointers are checked against these anew after each helper that may move the frame.
    struct __sk_buff *packet = context;
    __u8 *frame = frame_of(context, hook);
    const void *end = end_of(context, hook);
    __u8 *tables;
    __u32 first = 0, bytes, cpu = processor();
    struct next_hop next_hop = {};
    struct burst burst = {.packets = 1};
    int is_found, hit = -1, is_beside = 0;
    if (frame + ETHERNET_BYTES > (__u8 *)end || !(tables = lookup(&TABLES, &first)) ||
        cpu >= AT(__u64, tables, SLOT_COUNT))
        return -1;
    __u16 type = *(__u16 *)(frame + 12);
    // Of the frame with its tag, and without it where that lies beside.
    __u64 link_bytes = ETHERNET_BYTES, at = ETHERNET_BYTES;
    if (hook == TC && packet->vlan_present) {
        int port = port_of_tag_beside(links, packet, in);
        if (port < 0)
            return -1;
        in = port;
        is_beside = 1;
        link_bytes += TAG_BYTES;
    } else if (hook == XDP && type == SWAP16(TYPE_VLAN)) {
        if (frame + ETHERNET_BYTES + TAG_BYTES > (__u8 *)end)
            return -1;
        int port = port_of_tag(links, frame + ETHERNET_BYTES, in);
        if (port < 0)
            return -1;
        in = port;
        type = *(__u16 *)(frame + ETHERNET_BYTES + 2);
        link_bytes += TAG_BYTES;
        at = link_bytes;
    }
    const struct port *from = &links->ports[in & (MOST_PORTS - 1)];
    __u64 first_buffer = (__u8 *)end - frame, length;
    // Of pointers the kernel allows no other order of subtractions, which the compiler would try.
    asm volatile("" : "+r"(first_buffer));
    if (type == SWAP16(TYPE_IPV4)) {
        struct ipv4 *header = (struct ipv4 *)(frame + at);
        if ((void *)(header + 1) > end)
            return -1;
        bytes = SWAP16(header->total_length);
        length = frame_length(context, hook, from, first_buffer, at + bytes);
        __u8 source_head = *(__u8 *)header->source, destination_head = *(__u8 *)header->destination;
        if (header->version_and_length != PLAIN || header->ttl <= 1 || bytes < sizeof(*header) ||
            at + bytes > length || !source_head || source_head == 127 || source_head >= 224 ||
            !destination_head || destination_head >= 224 || !has_right_checksum((__u16 *)header) ||
            may_be_own(links, MAPPED | word32(header->source)) ||
            (LISTED && (hit = judge_ipv4(list_number(links, 0), header, bytes, end, from->paint)) < 0))
            return -1;
        if (is_merged(context, hook) &&
            !measure(packet, sizeof(*header), bytes, header->protocol, (__u8 *)(header + 1), end, &burst))
            return -1;
        visit visit = enter(tables, cpu);
        if (!visit)
            return -1;
        is_found = find_ipv4(tables, links, in, header, end, &next_hop);
        leave(tables, visit);
    } else if (type == SWAP16(TYPE_IPV6)) {
        struct ipv6 *header = (struct ipv6 *)(frame + at);
        if ((void *)(header + 1) > end)
            return -1;
        bytes = sizeof(*header) + SWAP16(header->payload_length);
        length = frame_length(context, hook, from, first_buffer, at + bytes);
        if ((*(__u8 *)header & 0xf0) != 0x60 || header->hop_limit <= 1 || at + bytes > length ||
            is_extension(header->next_header) || !is_far_ipv6(header->source) || !is_far_ipv6(header->destination) ||
            may_be_own(links, word64(header->source) ^ word64(header->source + 4)) ||
            (LISTED && (hit = judge_ipv6(list_number(links, 1), header, bytes, end, from->paint)) < 0))
            return -1;
        if (is_merged(context, hook) &&
            !measure(packet, sizeof(*header), bytes, header->next_header, (__u8 *)(header + 1), end, &burst))
            return -1;
        visit visit = enter(tables, cpu);
        if (!visit)
            return -1;
        is_found = find_ipv6(tables, links, in, header, end, &next_hop);
        leave(tables, visit);
    } else {
        return -1;
    }
    __u32 out = next_hop.port & (MOST_PORTS - 1);
    const struct port *port = &links->ports[out];
    if (!is_found || out != next_hop.port || out == in || !(port->sends & from->mode))
        return -1;
    __u32 most = type == SWAP16(TYPE_IPV4) ? port->mtu4 : port->mtu6;
    if (bytes > most && !(is_merged(context, hook) && fits_merged(packet, port->interface, most)))
        return -1;
    if (next_hop.length != ETHERNET_BYTES && next_hop.length != ETHERNET_BYTES + TAG_BYTES)
        return -1;
    if (hook == XDP && at + bytes > first_buffer && !(port->sends_fragments & from->mode))
        return -1;
    struct traffic *traffic = lookup(&TRAFFIC, &in);
    if (!traffic)
        return -1;
    // An interface that is gone is not there to send by.
    if (hook == XDP && redirect_map(&WAYS, out, XDP_ABORTED) != XDP_REDIRECT)
        return -1;
    int trailer = length - at - bytes;
    if (trailer > 0 && is_merged(context, hook))
        return -1;
    // As it came. What follows does not fail, except where the driver has no room: then the graph may draw it once more.
    struct drawn drawn = {.packets = burst.packets, .length = length, .in = in, .out = out};
    if (is_merged(context, hook) && at + burst.header_bytes + packet->gso_size < length)
        drawn.length = at + burst.header_bytes + packet->gso_size;
    draw(context, hook, &links->sampling, &traffic->draw, &drawn);
    // RFC 1812, 5.2.2: what is behind the packet is not forwarded.
    if (trailer > 0) {
        if ((hook == TC ? skb_change_tail(packet, length - trailer, 0) : adjust_tail(context, -trailer)) != 0)
            return -1;
        frame = frame_of(context, hook);
        end = end_of(context, hook);
    }
    if (type == SWAP16(TYPE_IPV4)) {
        struct ipv4 *header = (struct ipv4 *)(frame + at);
        if ((void *)(header + 1) > end)
            return hook == TC ? DROP : XDP_ABORTED;
        // RFC 1624: one less in the upper byte is 0x0100 more in the checksum, with the carry; 0xffff is none (section 3).
        __u32 checksum = header->checksum + SWAP16(0x0100);
        header->checksum = checksum + (checksum >= 0xffff);
        header->ttl -= 1;
        if (hook == TC)
            packet->priority = priority_of(header->service);
    } else {
        struct ipv6 *header = (struct ipv6 *)(frame + at);
        if ((void *)(header + 1) > end)
            return hook == TC ? DROP : XDP_ABORTED;
        header->hop_limit -= 1;
        // A sum over the packet that the card has made is one less. The sum of an IPv4 header is always the same.
        if (hook == TC)
            csum_update(packet, SWAP16(0xfffe));
    }
    // A tag comes or goes. The packet is as it was but for its time to live, which nobody gets to see if this fails: Linux has
    // 256 bytes of head room (XDP_PACKET_HEADROOM).
    if (hook == TC) {
        __u16 control = SWAP16(*(__u16 *)(next_hop.rewrite + 14));
        if ((is_beside && vlan_pop(packet) != 0) ||
            (next_hop.length > ETHERNET_BYTES && vlan_push(packet, *(__u16 *)(next_hop.rewrite + 12), control) != 0))
            return DROP;
        frame = frame_of(context, hook);
        end = end_of(context, hook);
        if (frame + ETHERNET_BYTES > (__u8 *)end)
            return DROP;
        __builtin_memcpy(frame, next_hop.rewrite, ETHERNET_BYTES - 2);
        // A tag lies beside.
        *(__u16 *)(frame + 12) = *(__u16 *)(next_hop.rewrite + (next_hop.length == ETHERNET_BYTES ? 12 : 16));
    } else {
        if (next_hop.length != link_bytes) {
            if (adjust_head(context, next_hop.length > ETHERNET_BYTES ? -TAG_BYTES : TAG_BYTES) != 0)
                return XDP_ABORTED;
            frame = frame_of(context, hook);
            end = end_of(context, hook);
        }
        if (frame + ETHERNET_BYTES + TAG_BYTES > (__u8 *)end)
            return XDP_ABORTED;
        __builtin_memcpy(frame, next_hop.rewrite, ETHERNET_BYTES);
        if (next_hop.length > ETHERNET_BYTES)
            __builtin_memcpy(frame + ETHERNET_BYTES, next_hop.rewrite + ETHERNET_BYTES, TAG_BYTES);
    }
    if (LISTED)
        count_hit(cpu, hit, burst.packets, bytes + (burst.packets - 1) * burst.header_bytes);
    count_traffic(traffic, out, &burst, bytes, link_bytes, next_hop.length);
    return hook == TC ? redirect(port->interface, 0) : XDP_REDIRECT;
}

// The port by which a frame came in, if its transit is forwarded here, or else -1.
INLINE int port_of_frame(const struct links *links, __u32 interface) {
    __u32 in = links->port_of[interface & (PLACES - 1)];
    const struct port *port = &links->ports[in & (MOST_PORTS - 1)];
    return port->mode && port->interface == interface ? (int)in : -1;
}

SEC("xdp.frags")
int forward(struct xdp_md *context) {
    __u32 first = 0, interface = context->ingress_ifindex;
    struct links *links = lookup(&LINKS, &first);
    if (!links)
        return XDP_PASS;
    int in = port_of_frame(links, interface);
    if (in >= 0) {
        int action = forward_from(context, XDP, links, in);
        if (action >= 0)
            return action;
    }
    tail_call(context, &REST, links->port_of[interface & (PLACES - 1)]);
    // Nobody takes it: Linux does as if there were no router.
    return XDP_PASS;
}

// Sees a frame that is left to the kernel's own stack, for samples.
INLINE void sample_left(void *context, enum hook hook, const struct links *links) {
    const __u8 *frame = frame_of(context, hook);
    const void *end = end_of(context, hook);
    if (!links->sampling.one_in || frame + ETHERNET_BYTES > (const __u8 *)end)
        return;
    int in = links->port_of[interface_of(context, hook) & (PLACES - 1)];
    if (hook == TC && ((struct __sk_buff *)context)->vlan_present)
        in = port_of_tag_beside(links, context, in);
    else if (*(const __u16 *)(frame + 12) == SWAP16(TYPE_VLAN))
        in = frame + ETHERNET_BYTES + TAG_BYTES > (const __u8 *)end ? -1 : port_of_tag(links, frame + ETHERNET_BYTES, in);
    struct traffic *traffic = in < 0 ? 0 : lookup(&TRAFFIC, &in);
    struct drawn drawn = {.packets = 1, .length = buffer_bytes(context, hook), .in = in, .out = NO_PORT};
    if (is_merged(context, hook) && ((struct __sk_buff *)context)->gso_segs) {
        drawn.packets = ((struct __sk_buff *)context)->gso_segs;
        // Nearly: of one packet.
        drawn.length /= drawn.packets;
    }
    if (traffic)
        draw(context, hook, &links->sampling, &traffic->draw, &drawn);
}

SEC("xdp.frags")
int see(struct xdp_md *context) {
    __u32 first = 0;
    const struct links *links = lookup(&LINKS, &first);
    if (links)
        sample_left(context, XDP, links);
    return XDP_PASS;
}

SEC("classifier")
int forward_tc(struct __sk_buff *packet) {
    __u32 first = 0, interface = packet->ifindex;
    struct links *links = lookup(&LINKS, &first);
    if (!links)
        return NEXT;
    int in = port_of_frame(links, interface);
    if (in >= 0) {
        pull_headers(packet);
        int action = forward_from(packet, TC, links, in);
        if (action >= 0)
            return action;
    }
    tail_call(packet, &REST_TC, links->port_of[interface & (PLACES - 1)]);
    return NEXT;
}

SEC("classifier")
int see_tc(struct __sk_buff *packet) {
    __u32 first = 0;
    const struct links *links = lookup(&LINKS, &first);
    if (links)
        sample_left(packet, TC, links);
    return NEXT;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
