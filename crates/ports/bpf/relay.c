// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Relays frames of a cluster's fabric between this node's dedicated links: what FromFabric does with a frame for another node
// (crates/elements/src/fabric/from_fabric.rs), without a copy to the router and back.
//
// A steering program (steer.c) comes first. Whatever is not a frame of the cluster from a believed neighbour for another
// node, by a link that can send it, goes on to the router's own graph (REST) as it came: hellos, frames that have arrived or have no hop
// left. So nothing is dropped here.
//
// The header is described in crates/fabric/src/header.rs.
//
// Linux 6.6 or newer.

#include "bpf.h"

static long (*const redirect_map)(void *map, __u64 key, __u64 flags) = (void *)BPF_FUNC_redirect_map;
static long (*const tail_call)(void *context, void *programs, __u32 number) = (void *)BPF_FUNC_tail_call;
// Bytes of a frame in all its buffers.
static __u64 (*const buffer_bytes)(struct xdp_md *context) = (void *)BPF_FUNC_xdp_get_buff_len;
static __u32 (*const processor)(void) = (void *)BPF_FUNC_get_smp_processor_id;

// Links of a node, patterns of a node's ten bits, interfaces that have a place in `link_of`.
enum { MOST_LINKS = 256, NODES = 1024, PLACES = 4096 };

// How many parallel links have room in an entry of `towards`.
enum { MOST_PARALLEL = 7 };

struct link {
    __u32 interface;
    __u32 mtu;
    // Where the programs of the interface run; 0 if what comes in by it is not relayed here.
    __u8 mode;
    // From which modes the interface sends what is redirected to it, and frames that lie in several buffers.
    __u8 sends;
    __u8 sends_fragments;
    // Whether a neighbour has proved who it is.
    __u8 is_believed;
};

// What the router tells: written by it while frames flow.
struct fabric {
    // By node: in the lowest byte how many live links lead towards it, and above that each one's number. Read at once, so
    // that no frame sees half of a change.
    __u64 towards[NODES];
    struct link links[MOST_LINKS];
    // Numbers of links, by interface.
    __u8 link_of[PLACES];
};

struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
    MAP_NUMBER(max_entries, 1);
    MAP_NUMBER(map_flags, BPF_F_MMAPABLE);
    MAP_TYPE(key, __u32);
    MAP_TYPE(value, struct fabric);
} FABRIC SEC(".maps");

// Interfaces to send by, by number of the link.
struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_DEVMAP);
    MAP_NUMBER(max_entries, MOST_LINKS);
    MAP_NUMBER(key_size, 4);
    MAP_NUMBER(value_size, 4);
} WAYS SEC(".maps");

// Programs that give frames to the router's sockets, by number of the link.
struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_PROG_ARRAY);
    MAP_NUMBER(max_entries, MOST_LINKS);
    MAP_NUMBER(key_size, 4);
    MAP_NUMBER(value_size, 4);
} REST SEC(".maps");

// Frames that were relayed here, and bytes, by link.
struct traffic {
    __u64 rx_packets, rx_bytes, tx_packets, tx_bytes;
};

struct counts {
    struct traffic links[MOST_LINKS];
};

// By processor. The loader sets how many there are.
struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
    MAP_NUMBER(max_entries, 1);
    MAP_NUMBER(map_flags, BPF_F_MMAPABLE);
    MAP_TYPE(key, __u32);
    MAP_TYPE(value, struct counts);
} COUNTS SEC(".maps");

// Set by the loader: the number of this node, and that of its cluster.
const volatile __u16 HERE = 0;
const volatile __u16 CLUSTER = 0;

// The header's two addresses as numbers. Without the kind, the first bytes are the same in all frames of the fabric.
enum { NONE = 0x3ff, OUTPUT_SHIFT = 30, VIA_SHIFT = 20, HOPS_SHIFT = 24, HOPS = 63, ENTROPY_SHIFT = 16 };
#define FIRST_BYTE (0xcfull << 40)
#define MADE_BY_NODES (0x02ull << 40)
#define CLUSTER_BITS 0xff000000ffffull

// Relays a frame that came in by a link; returns -1 where it is for the router's graph.
INLINE int relay_from(struct xdp_md *context, struct fabric *fabric, __u32 in) {
    __u32 *words = (__u32 *)(long)context->data;
    if ((void *)words + ETHERNET_BYTES > (void *)(long)context->data_end)
        return -1;
    __u64 high = (__u64)__builtin_bswap32(words[0]) << 32 | __builtin_bswap32(words[1]);
    __u64 destination = high >> 16, source = (high & 0xffff) << 32 | __builtin_bswap32(words[2]);
    if ((destination & FIRST_BYTE) != MADE_BY_NODES || (source & CLUSTER_BITS) != (MADE_BY_NODES | CLUSTER))
        return -1;
    __u64 via = destination >> VIA_SHIFT & NONE, target = via;
    if (via == HERE)
        destination |= (__u64)NONE << VIA_SHIFT;
    if (via == HERE || via == NONE)
        target = destination >> OUTPUT_SHIFT & NONE;
    if (target == HERE || !(source >> HOPS_SHIFT & HOPS))
        return -1;
    source -= 1ull << HOPS_SHIFT;
    __u64 towards = *(volatile __u64 *)&fabric->towards[target & (NODES - 1)], count = towards & 0xff;
    if (!count || count > MOST_PARALLEL)
        return -1;
    __u64 chosen = (source >> ENTROPY_SHIFT & 0xff) * count >> 8;
    __u32 out = towards >> (8 + chosen * 8) & 0xff;
    const struct link *from = &fabric->links[in], *link = &fabric->links[out];
    __u64 bytes = buffer_bytes(context), first_buffer = context->data_end - context->data;
    if (!(link->sends & from->mode) || bytes > link->mtu + ETHERNET_BYTES ||
        (bytes > first_buffer && !(link->sends_fragments & from->mode)))
        return -1;
    __u32 cpu = processor();
    struct counts *counts = lookup(&COUNTS, &cpu);
    // An interface that is gone is not there to send by.
    if (!counts || redirect_map(&WAYS, out, XDP_ABORTED) != XDP_REDIRECT)
        return -1;
    counts->links[in].rx_packets += 1;
    counts->links[in].rx_bytes += bytes;
    counts->links[out].tx_packets += 1;
    counts->links[out].tx_bytes += bytes;
    words[0] = __builtin_bswap32(destination >> 16);
    words[1] = __builtin_bswap32(destination << 16 | source >> 32);
    words[2] = __builtin_bswap32(source);
    return XDP_REDIRECT;
}

SEC("xdp.frags")
int relay(struct xdp_md *context) {
    __u32 first = 0, interface = context->ingress_ifindex;
    struct fabric *fabric = lookup(&FABRIC, &first);
    if (!fabric)
        return XDP_PASS;
    __u32 in = fabric->link_of[interface & (PLACES - 1)];
    const struct link *link = &fabric->links[in];
    if (link->mode && link->interface == interface && link->is_believed) {
        int action = relay_from(context, fabric, in);
        if (action >= 0)
            return action;
    }
    tail_call(context, &REST, in);
    // Nobody takes it: Linux does as if there were no router.
    return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
