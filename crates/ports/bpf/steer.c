// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Steers the packets of an interface: to the AF_XDP sockets of a router, or to the kernel as if there were no router.
//
// All packets go to the socket of the queue that they came in by, except, when TRANSIT is set, those that the kernel
// has to see so that it stays a host on this link:
//   - frames to a group (broadcast, multicast: routing protocols, DHCP, router advertisements),
//   - ARP and IPv6 neighbour discovery,
//   - packets to an address in LOCAL.
// A queue without a socket leaves its packets to the kernel, whatever they are: bpf_redirect_map falls back to XDP_PASS.
//
// The loader sets TRANSIT, and the size of SOCKETS, before it loads the program. Linux 5.9 or newer.

#include <linux/bpf.h>
#include <linux/types.h>

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
// Types of maps are told to the loader by the types of members (BTF): a number is the length of an array.
#define MAP_NUMBER(name, value) int(*name)[value]
#define MAP_TYPE(name, value) value *name

static void *(*const lookup)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static long (*const redirect_map)(void *map, __u64 key, __u64 flags) = (void *)BPF_FUNC_redirect_map;

// Sockets by queue.
struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_XSKMAP);
    MAP_NUMBER(max_entries, 1);
    MAP_TYPE(key, __u32);
    MAP_TYPE(value, __u32);
} SOCKETS SEC(".maps");

// An IPv6 address, or an IPv4 one as ::ffff:a.b.c.d.
struct address {
    __u8 bytes[16];
};

// Addresses whose packets stay with the kernel.
struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_HASH);
    MAP_NUMBER(max_entries, 16384);
    MAP_NUMBER(map_flags, BPF_F_NO_PREALLOC);
    MAP_TYPE(key, struct address);
    MAP_TYPE(value, __u8);
} LOCAL SEC(".maps");

enum { STEERED, LEFT, COUNTS };

// Packets steered to a socket, and left to the kernel.
struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    MAP_NUMBER(max_entries, COUNTS);
    MAP_TYPE(key, __u32);
    MAP_TYPE(value, __u64);
} PACKETS SEC(".maps");

const volatile __u8 TRANSIT = 0;

#define SWAP16(number) __builtin_bswap16(number)

enum {
    TYPE_IPV4 = 0x0800,
    TYPE_ARP = 0x0806,
    TYPE_IPV6 = 0x86dd,
    TYPE_VLAN = 0x8100,
    TYPE_SERVICE_VLAN = 0x88a8,
    ETHERNET_BYTES = 14,
    TAG_BYTES = 4,
    IPV4_BYTES = 20,
    IPV6_BYTES = 40,
    PROTOCOL_ICMPV6 = 58,
    // RFC 4861, section 4: router solicitation to redirect.
    FIRST_DISCOVERY = 133,
    LAST_DISCOVERY = 137,
};

INLINE int is_local_ipv4(const __u8 *header, const void *end) {
    if ((const void *)(header + IPV4_BYTES) > end)
        return 0;
    struct address address;
    __builtin_memset(address.bytes, 0, 10);
    __builtin_memset(address.bytes + 10, 0xff, 2);
    __builtin_memcpy(address.bytes + 12, header + 16, 4);
    return lookup(&LOCAL, &address) != 0;
}

INLINE int is_local_ipv6(const __u8 *header, const void *end) {
    if ((const void *)(header + IPV6_BYTES) > end)
        return 0;
    // Link-local addresses (RFC 4291, section 2.5.6) are never transit.
    const __u8 *destination = header + 24;
    if (destination[0] == 0xfe && (destination[1] & 0xc0) == 0x80)
        return 1;
    const __u8 *type = header + IPV6_BYTES;
    if (header[6] == PROTOCOL_ICMPV6 && (const void *)(type + 1) <= end && *type >= FIRST_DISCOVERY &&
        *type <= LAST_DISCOVERY)
        return 1;
    struct address address;
    __builtin_memcpy(address.bytes, destination, 16);
    return lookup(&LOCAL, &address) != 0;
}

// Whether the kernel has to see the packet.
INLINE int is_kernels(const __u8 *frame, const void *end) {
    const __u8 *at = frame + ETHERNET_BYTES;
    if ((const void *)at > end)
        return 0;
    if (frame[0] & 1)
        return 1;
    __u16 type = SWAP16(*(const __u16 *)(at - 2));
    for (int tags = 0; tags < 2 && (type == TYPE_VLAN || type == TYPE_SERVICE_VLAN); tags++) {
        at += TAG_BYTES;
        if ((const void *)at > end)
            return 0;
        type = SWAP16(*(const __u16 *)(at - 2));
    }
    switch (type) {
    case TYPE_ARP:
        return 1;
    case TYPE_IPV4:
        return is_local_ipv4(at, end);
    case TYPE_IPV6:
        return is_local_ipv6(at, end);
    default:
        return 0;
    }
}

SEC("xdp")
int steer(struct xdp_md *context) {
    const __u8 *frame = (const __u8 *)(long)context->data;
    const void *end = (const void *)(long)context->data_end;
    int action = XDP_PASS;
    if (!TRANSIT || !is_kernels(frame, end))
        action = redirect_map(&SOCKETS, context->rx_queue_index, XDP_PASS);
    __u32 which = action == XDP_REDIRECT ? STEERED : LEFT;
    __u64 *count = lookup(&PACKETS, &which);
    if (count)
        *count += 1;
    return action;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
