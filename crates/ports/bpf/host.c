// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Gives the frames that come in by the TAP device of `host:` ports to the kernel as if they had come in by another
// interface (src/host). Which one is said by a VLAN tag, which the kernel has taken out of the frame when the program
// runs, so that taking it off costs nothing: 12 bits are the number of an entry of TARGETS, and two bits beside them say
// which marks the packet gets (passage.h).
//
// The kernel reads the Ethernet header again when it puts the packet in: whether the frame is to the interface's own
// address is decided as for one from the cable. Linux 6.6 or newer (tcx).

#include "bpf.h"
#include "passage.h"

static long (*const vlan_pop)(struct __sk_buff *packet) = (void *)BPF_FUNC_skb_vlan_pop;
static long (*const redirect)(__u32 interface, __u64 flags) = (void *)BPF_FUNC_redirect;

enum {
    TARGET_BITS = 12,
    NEEDS_MARK = 1 << TARGET_BITS,
    IS_PERMITTED = 2 << TARGET_BITS,
};

// Numbers of interfaces; 0: none.
struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
    MAP_NUMBER(max_entries, 1 << TARGET_BITS);
    MAP_TYPE(key, __u32);
    MAP_TYPE(value, __u32);
} TARGETS SEC(".maps");

SEC("classifier")
int inject(struct __sk_buff *packet) {
    if (!packet->vlan_present)
        return DROP;
    __u32 tag = packet->vlan_tci, number = tag & ((1 << TARGET_BITS) - 1);
    const __u32 *interface = lookup(&TARGETS, &number);
    if (!interface || !*interface || vlan_pop(packet) != 0)
        return DROP;
    packet->mark = (tag & NEEDS_MARK ? MARK : 0) | (tag & IS_PERMITTED ? PERMITTED : 0);
    return redirect(*interface, BPF_F_INGRESS);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
