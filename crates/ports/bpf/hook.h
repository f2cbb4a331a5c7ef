// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The two places where the programs that forward run, and what differs between them. XDP sees a frame as a driver has it. tc (tcx)
// is in the kernel's stack: there several packets may be merged in one frame, checksums may be unfinished, which whoever sends
// finishes, and an 802.1Q tag lies beside the frame.
//
// `hook` is known wherever these functions are inlined, so a program has nothing of the other place.

#pragma once

#include "bpf.h"
#include "headers.h"

enum hook { XDP, TC };

static long (*const xdp_load_bytes)(struct xdp_md *context, __u32 from, void *to, __u32 bytes) = (void *)BPF_FUNC_xdp_load_bytes;
static __u64 (*const xdp_buffer_bytes)(struct xdp_md *context) = (void *)BPF_FUNC_xdp_get_buff_len;
static long (*const skb_load_bytes)(const void *context, __u32 from, void *to, __u32 bytes) = (void *)BPF_FUNC_skb_load_bytes;
static long (*const skb_pull_data)(struct __sk_buff *context, __u32 bytes) = (void *)BPF_FUNC_skb_pull_data;

INLINE __u8 *frame_of(void *context, enum hook hook) {
    return (__u8 *)(long)(hook == TC ? ((struct __sk_buff *)context)->data : ((struct xdp_md *)context)->data);
}

// The end of what can be read by a pointer.
INLINE void *end_of(void *context, enum hook hook) {
    return (void *)(long)(hook == TC ? ((struct __sk_buff *)context)->data_end : ((struct xdp_md *)context)->data_end);
}

INLINE __u32 interface_of(void *context, enum hook hook) {
    return hook == TC ? ((struct __sk_buff *)context)->ifindex : ((struct xdp_md *)context)->ingress_ifindex;
}

// Bytes of a frame in all its buffers.
INLINE __u64 buffer_bytes(void *context, enum hook hook) {
    return hook == TC ? ((struct __sk_buff *)context)->len : xdp_buffer_bytes(context);
}

INLINE long load_bytes(void *context, enum hook hook, __u32 from, void *to, __u32 bytes) {
    return hook == TC ? skb_load_bytes(context, from, to, bytes) : xdp_load_bytes(context, from, to, bytes);
}

// Whether several packets are merged in the frame. There are such in tc alone.
INLINE int is_merged(void *context, enum hook hook) { return hook == TC && ((struct __sk_buff *)context)->gso_size != 0; }

// Has what programs read of a frame lie where pointers read: the headers of IPv6 or IPv4 and of TCP, what tells a client of DHCP
// (decide.h), the header in an ICMP error. A sender's headers lie there, and more of a frame that others have a part of costs a copy
// of its head.
enum {
    IPV4_AND_TCP = ETHERNET_BYTES + 20 + 20,
    IPV4_AND_DHCP = ETHERNET_BYTES + 20 + 8 + 34,
    IPV4_AND_ERROR = ETHERNET_BYTES + 20 + 8 + 20,
    IPV6_AND_TCP = ETHERNET_BYTES + 40 + 20,
    IPV6_AND_ERROR = ETHERNET_BYTES + 40 + 8 + 40,
};

INLINE void pull_headers(struct __sk_buff *packet) {
    const __u8 *frame = (const __u8 *)(long)packet->data, *end = (const __u8 *)(long)packet->data_end;
    __u64 there = end - frame, wanted = IPV6_AND_TCP;
    // Of pointers the kernel allows no other order of subtractions, which the compiler would try.
    asm volatile("" : "+r"(there));
    if (frame + IPV4_AND_TCP <= end) {
        __u8 protocol4 = frame[ETHERNET_BYTES + 9];
        if (*(const __u16 *)(frame + 12) == SWAP16(0x0800))
            wanted = protocol4 == PROTOCOL_UDP ? IPV4_AND_DHCP : protocol4 == PROTOCOL_ICMP ? IPV4_AND_ERROR : IPV4_AND_TCP;
        else if (frame[ETHERNET_BYTES + 6] == PROTOCOL_ICMPV6)
            wanted = IPV6_AND_ERROR;
    }
    if (packet->len < wanted)
        wanted = packet->len;
    if (there < wanted)
        skb_pull_data(packet, wanted);
}
