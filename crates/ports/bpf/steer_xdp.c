// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Steers the packets of an interface: to the AF_XDP sockets of a router, or to the kernel as if there were no router.
//
// All packets go to the socket of the queue that they came in by, except, when TRANSIT is set, those that are not ours
// (decide.h). A queue without a socket leaves its packets to the kernel, whatever they are: bpf_redirect_map
// falls back to XDP_PASS. What a `host:` port has sealed goes to the kernel in any case (passage.h).
//
// The loader sets TRANSIT and SEAL, and the size of SOCKETS, before it loads the program. Linux 5.9 or newer.

#include "bpf.h"
#include "decide.h"
#include "passage.h"

static long (*const redirect_map)(void *map, __u64 key, __u64 flags) = (void *)BPF_FUNC_redirect_map;
static long (*const adjust_head)(struct xdp_md *context, int bytes) = (void *)BPF_FUNC_xdp_adjust_head;
static long (*const tail_call)(void *context, void *programs, __u32 number) = (void *)BPF_FUNC_tail_call;

// Sockets by queue.
struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_XSKMAP);
    MAP_NUMBER(max_entries, 1);
    MAP_TYPE(key, __u32);
    MAP_TYPE(value, __u32);
} SOCKETS SEC(".maps");

// The program that moves packets in the kernel, if there is one: transit (forward.c), or of all packets what a node of a cluster
// relays (relay.c). It leaves the rest to `to_socket`. Behind it the one that sees what is left to the kernel's stack.
enum { MOVES, SEES, STAGES };
struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_PROG_ARRAY);
    MAP_NUMBER(max_entries, STAGES);
    MAP_TYPE(key, __u32);
    MAP_TYPE(value, __u32);
} FORWARD SEC(".maps");

struct link {
    __u8 address[6];
    // Whether packets whose checksum is still to be computed are the kernel's, which knows it.
    __u8 leaves_unfinished;
    __u8 unused;
    __u32 mtu;
};

// The interface.
struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
    MAP_NUMBER(max_entries, 1);
    MAP_TYPE(key, __u32);
    MAP_TYPE(value, struct link);
} LINK SEC(".maps");

const volatile __u8 TRANSIT = 0;
const volatile __u8 SEAL[SEAL_BYTES] = {0};

enum { ADDRESSES_BYTES = 12 };

INLINE __u16 number_at(const __u8 *place) { return SWAP16(*(const __u16 *)place); }

INLINE __u16 type_of(const __u8 *frame) { return number_at(frame + ADDRESSES_BYTES); }

INLINE int is_sealed(const __u8 *frame, const void *end) {
    if ((const void *)(frame + ADDRESSES_BYTES + SEALED_BYTES) > end || type_of(frame) != SEAL_TYPE)
        return 0;
    int differs = 0;
    for (int at = 0; at < SEAL_BYTES; at++)
        differs |= frame[ETHERNET_BYTES + at] ^ SEAL[at];
    return !differs;
}

// Moves the addresses over the seal.
INLINE int unseal(struct xdp_md *context, __u8 *frame) {
    __u8 addresses[ADDRESSES_BYTES];
    __builtin_memcpy(addresses, frame, ADDRESSES_BYTES);
    __builtin_memcpy(frame + SEALED_BYTES, addresses, ADDRESSES_BYTES);
    return adjust_head(context, SEALED_BYTES) == 0 ? XDP_PASS : XDP_DROP;
}

// Whose a frame is, beside the reasons to leave it to the kernel: ours to forward, or our sockets'. They compute a missing
// checksum, and get ESP to the host and frames of VLANs that Linux has no interface for.
enum { OURS = -1, OF_SOCKETS = -2 };

INLINE int whose(const __u8 *frame, const void *end) {
    const __u8 *header = frame + ETHERNET_BYTES;
    if ((const void *)header > end)
        return LEFT_NOT_IP;
    __u16 type = type_of(frame);
    int share;
    if (is_tag(type)) {
        header += TAG_BYTES;
        if ((const void *)header > end)
            return LEFT_NOT_IP;
        share = share_of_tag(type, number_at(frame + ETHERNET_BYTES));
        if (share == NOTHING_OF_IT)
            return LEFT_VLAN;
        type = number_at(frame + ETHERNET_BYTES + 2);
    } else {
        share = share_of_interface();
    }
    // Whether frames that are not plain transit are the sockets' too.
    int takes_all = share == ALL_OF_IT;
    __u32 first = 0;
    const struct link *link = lookup(&LINK, &first);
    if (!link)
        return takes_all ? OF_SOCKETS : LEFT_STATION;
    int differs = 0;
    for (int at = 0; at < 6; at++)
        differs |= frame[at] ^ link->address[at];
    if (differs && !is_station(frame, type))
        return takes_all ? OF_SOCKETS : (int)left_by_type(type, frame[0] & 1);
    if (is_left(share, type))
        return LEFT_FAMILY;
    enum kind kind = OTHER;
    int is_finished;
    switch (type) {
    case TYPE_IPV4:
        if ((const void *)(header + IPV4_BYTES) > end)
            return takes_all ? OF_SOCKETS : LEFT_HOST;
        kind = kind_of_ipv4(header, link->mtu);
        if (kind == MAY_BE_ESP && is_esp_ipv4(header, header + IPV4_BYTES, end))
            return OF_SOCKETS;
        if (kind == PLAIN_TRANSIT && !takes_all && is_for_client(frame, header, header + IPV4_BYTES, end))
            return LEFT_CLIENT;
        is_finished = kind == PLAIN_TRANSIT && !is_unfinished_ipv4(header, end);
        break;
    case TYPE_IPV6:
        if ((const void *)(header + IPV6_BYTES) > end)
            return takes_all ? OF_SOCKETS : LEFT_HOST;
        kind = kind_of_ipv6(header, link->mtu);
        if (kind == MAY_BE_ESP && is_esp_ipv6(header, header + IPV6_BYTES, end))
            return OF_SOCKETS;
        if (kind == PLAIN_TRANSIT && !takes_all && is_discovery(header, header + IPV6_BYTES, end))
            return LEFT_CLIENT;
        is_finished = kind == PLAIN_TRANSIT && !is_unfinished_ipv6(header, end);
        break;
    default:
        return takes_all ? OF_SOCKETS : (int)left_by_type(type, 0);
    }
    if (is_finished)
        return OURS;
    if (takes_all || (kind == PLAIN_TRANSIT && !link->leaves_unfinished))
        return OF_SOCKETS;
    return kind == PLAIN_TRANSIT ? LEFT_UNFINISHED : (int)left_by_kind(kind);
}

SEC("xdp.frags")
int to_socket(struct xdp_md *context) {
    int action = redirect_map(&SOCKETS, context->rx_queue_index, XDP_PASS);
    count(action == XDP_REDIRECT ? STEERED : LEFT_QUEUE);
    return action;
}

SEC("xdp.frags")
int steer(struct xdp_md *context) {
    __u8 *frame = (__u8 *)(long)context->data;
    const void *end = (const void *)(long)context->data_end;
    if (is_sealed(frame, end))
        return unseal(context, frame);
    int owner = TRANSIT ? whose(frame, end) : OURS;
    switch (owner) {
    case OURS:
        tail_call(context, &FORWARD, MOVES);
        return to_socket(context);
    case OF_SOCKETS:
        return to_socket(context);
    default:
        count(owner);
        tail_call(context, &FORWARD, SEES);
        return XDP_PASS;
    }
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
