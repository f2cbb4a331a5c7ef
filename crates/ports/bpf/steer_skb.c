// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Steers the packets of an interface with packet sockets, which take copies: of each packet either the copy or the
// original has to go. Both programs make the same decision (decide.h):
//   - `filter`, on each of our sockets, gives it what is plain transit,
//   - `screen`, behind the sockets at the entry of the kernel's stack, drops just that.
// What a `host:` port gives to the kernel is marked: our sockets do not get it, and the kernel does (passage.h).
//
// Beyond what decide.h says, frames that were merged by the kernel or a card (GRO) are the kernel's, which can take them
// apart again. Linux 6.6 or newer (tcx).

#include "bpf.h"
#include "decide.h"
#include "passage.h"

// From anywhere in the packet, also from pages beside its linear part, where other ways do not look.
static long (*const load_bytes)(const void *packet, __u32 from, void *to, __u32 length) =
    (void *)BPF_FUNC_skb_load_bytes;

enum {
    // linux/if_packet.h: PACKET_HOST. The frame is to the interface's own address.
    TO_US = 0,
    // The return values of a socket filter: how many bytes the socket gets.
    NOTHING = 0,
    WHOLE = -1,
};

INLINE int is_transit(struct __sk_buff *packet) {
    if (packet->pkt_type != TO_US || packet->vlan_present || packet->gso_size)
        return 0;
    __u8 header[IPV6_BYTES];
    switch (SWAP16((__u16)packet->protocol)) {
    case TYPE_IPV4:
        return load_bytes(packet, ETHERNET_BYTES, header, IPV4_BYTES) == 0 && is_transit_ipv4(header);
    case TYPE_IPV6:
        return load_bytes(packet, ETHERNET_BYTES, header, IPV6_BYTES) == 0 && is_transit_ipv6(header);
    default:
        return 0;
    }
}

SEC("socket")
int filter(struct __sk_buff *packet) {
    if (packet->mark == MARK)
        return NOTHING;
    int transit = is_transit(packet);
    count(transit ? STEERED : LEFT);
    return transit ? WHOLE : NOTHING;
}

SEC("classifier")
int screen(struct __sk_buff *packet) {
    if (packet->mark == MARK) {
        // For us only: nobody's routing rules shall see it.
        packet->mark = 0;
        return NEXT;
    }
    return is_transit(packet) ? DROP : NEXT;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
