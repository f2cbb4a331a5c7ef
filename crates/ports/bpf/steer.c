// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Steers the packets of an interface: to the AF_XDP sockets of a router, or to the kernel as if there were no router.
//
// There are two places for it (hook.h), of which one is used at a time.
//
// **XDP** (`steer`). All packets go to the socket of the queue that they came in by, except, when TRANSIT is set, those that are not ours
// (decide.h). A queue without a socket leaves its packets to the kernel, whatever they are: bpf_redirect_map
// falls back to XDP_PASS. What a `host:` port has sealed goes to the kernel in any case (passage.h).
//
// **tc** (`steer_tc`). No packet goes to a socket. Transit is handed to the program that forwards; the rest of what is ours goes where REST
// says: to a TAP device of the router, on whose way the kernel cuts merged packets unless the port takes them, or, where nobody of ours
// has to see it, to the kernel, but for martians. So neither merged packets nor unfinished checksums are a reason to leave one. What a
// `host:` port has marked goes to the kernel.
//
// The loader sets TRANSIT and SEAL, and the size of SOCKETS, before it loads the programs. Linux 5.9 or newer, in tc 6.6.

#include "bpf.h"
#include "decide.h"
#include "hook.h"
#include "passage.h"

static long (*const redirect_map)(void *map, __u64 key, __u64 flags) = (void *)BPF_FUNC_redirect_map;
static long (*const adjust_head)(struct xdp_md *context, int bytes) = (void *)BPF_FUNC_xdp_adjust_head;
static long (*const tail_call)(void *context, void *programs, __u32 number) = (void *)BPF_FUNC_tail_call;
static long (*const redirect)(__u32 interface, __u64 flags) = (void *)BPF_FUNC_redirect;

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

// The same in tc.
struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_PROG_ARRAY);
    MAP_NUMBER(max_entries, STAGES);
    MAP_TYPE(key, __u32);
    MAP_TYPE(value, __u32);
} FORWARD_TC SEC(".maps");

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
// checksum, and get ESP to the host and frames of VLANs that Linux has no interface for. In tc a TAP device is in their place.
enum { OURS = -1, OF_SOCKETS = -2 };

// Of a VLAN that the kernel has no interface for nothing is ours where the kernel has the rest (`rest_is_kernels`).
INLINE int whose(void *context, enum hook hook, int rest_is_kernels) {
    const __u8 *frame = frame_of(context, hook);
    const void *end = end_of(context, hook);
    const __u8 *header = frame + ETHERNET_BYTES;
    if ((const void *)header > end)
        return LEFT_NOT_IP;
    __u16 type = type_of(frame);
    int share;
    if (hook == TC && ((struct __sk_buff *)context)->vlan_present) {
        const struct __sk_buff *packet = context;
        share = share_of_tag(SWAP16((__u16)packet->vlan_proto), packet->vlan_tci);
    } else if (is_tag(type)) {
        header += TAG_BYTES;
        if ((const void *)header > end)
            return LEFT_NOT_IP;
        share = share_of_tag(type, number_at(frame + ETHERNET_BYTES));
        type = number_at(frame + ETHERNET_BYTES + 2);
    } else {
        share = share_of_interface();
    }
    if (share == NOTHING_OF_IT || (rest_is_kernels && share == ALL_OF_IT))
        return LEFT_VLAN;
    // Whether frames that are not plain transit are the sockets' too.
    int takes_all = share == ALL_OF_IT;
    __u32 first = 0;
    const struct link *link = lookup(&LINK, &first);
    if (!link)
        return takes_all ? OF_SOCKETS : LEFT_STATION;
    __u32 longest = is_merged(context, hook) ? ANY_LENGTH : link->mtu;
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
        kind = kind_of_ipv4(header, longest);
        if (kind == MAY_BE_ESP && is_esp_ipv4(header, header + IPV4_BYTES, end))
            return OF_SOCKETS;
        if (kind == PLAIN_TRANSIT && !takes_all && is_for_client(frame, header, header + IPV4_BYTES, end))
            return LEFT_CLIENT;
        is_finished = kind == PLAIN_TRANSIT && (hook == TC || !is_unfinished_ipv4(header, end));
        break;
    case TYPE_IPV6:
        if ((const void *)(header + IPV6_BYTES) > end)
            return takes_all ? OF_SOCKETS : LEFT_HOST;
        kind = kind_of_ipv6(header, longest);
        if (kind == MAY_BE_ESP && is_esp_ipv6(header, header + IPV6_BYTES, end))
            return OF_SOCKETS;
        if (kind == PLAIN_TRANSIT && !takes_all && is_discovery(header, header + IPV6_BYTES, end))
            return LEFT_CLIENT;
        is_finished = kind == PLAIN_TRANSIT && (hook == TC || !is_unfinished_ipv6(header, end));
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
    int owner = TRANSIT ? whose(context, XDP, 0) : OURS;
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

// IPv4 addresses from which nobody sends, in network order: the host's, and the broadcast addresses of its networks.
struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_HASH);
    MAP_NUMBER(max_entries, 16384);
    MAP_NUMBER(map_flags, BPF_F_NO_PREALLOC);
    MAP_TYPE(key, __u32);
    MAP_TYPE(value, __u8);
} OWN_SOURCES SEC(".maps");

// Whether transit comes from where no host is (RFC 1812, 5.3.7; RFC 4291, 2.5.5.2), or claims to come from this one. Linux would forward
// some of it; the router's graph drops all of it (CheckIPHeader, CheckIP6Header of crates/elements). A VLAN may have other addresses.
INLINE int is_martian(struct __sk_buff *packet) {
    const __u8 *frame = frame_of(packet, TC), *header = frame + ETHERNET_BYTES;
    const void *end = end_of(packet, TC);
    if ((const void *)header > end)
        return 0;
    if (type_of(frame) == TYPE_IPV4 && (const void *)(header + IPV4_BYTES) <= end) {
        const __u8 *source = header + 12;
        __u32 address;
        __builtin_memcpy(&address, source, 4);
        return source[0] == 0 || source[0] == 127 || source[0] >= 224 ||
               (!(packet->vlan_tci & VLAN_MASK) && lookup(&OWN_SOURCES, &address));
    }
    if (type_of(frame) == TYPE_IPV6 && (const void *)(header + IPV6_BYTES) <= end)
        return number_of_bytes(header + 8, 8) == 0 && number_of_bytes(header + 16, 4) == 0xffff;
    return 0;
}

// Whose the rest is in tc: nobody has said it yet, the kernel's, or ours, by a TAP device.
enum { UNASSIGNED, KERNELS, ROUTERS };
struct rest {
    __u32 owner;
    __u32 device;
};
struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
    MAP_NUMBER(max_entries, 1);
    MAP_TYPE(key, __u32);
    MAP_TYPE(value, struct rest);
} REST SEC(".maps");

INLINE const struct rest *rest_of_all(void) {
    __u32 first = 0;
    return lookup(&REST, &first);
}

INLINE int see_and_leave(struct __sk_buff *packet, __u32 reason) {
    count(reason);
    tail_call(packet, &FORWARD_TC, SEES);
    return NEXT;
}

// Of transit, or what else is the sockets'.
INLINE int give_rest(struct __sk_buff *packet, const struct rest *rest, int is_transit) {
    if (rest && rest->owner == ROUTERS) {
        __u32 first = 0;
        const struct link *link = lookup(&LINK, &first);
        // Pieces of what is merged, with the shortest headers, that the router cannot hold.
        if (packet->gso_size && link && packet->gso_size + 40 > link->mtu)
            return see_and_leave(packet, LEFT_LONG);
        count(STEERED);
        return redirect(rest->device, 0);
    }
    if (!rest || rest->owner == UNASSIGNED)
        return see_and_leave(packet, LEFT_QUEUE);
    if (is_transit && is_martian(packet)) {
        count(DROPPED_MARTIAN);
        return DROP;
    }
    return see_and_leave(packet, LEFT_ODD);
}

// What the program that forwards leaves.
SEC("classifier")
int to_rest(struct __sk_buff *packet) { return give_rest(packet, rest_of_all(), 1); }

// At the way out by the TAP device: the kernel's own packets, and programs', are none that came in by the port.
SEC("classifier")
int received_only(struct __sk_buff *packet) { return packet->ingress_ifindex ? NEXT : DROP; }

SEC("classifier")
int steer_tc(struct __sk_buff *packet) {
    if (is_from_us(packet)) {
        // For us only: nobody's routing rules shall see it.
        packet->mark &= PERMITTED;
        return NEXT;
    }
    pull_headers(packet);
    const struct rest *rest = rest_of_all();
    int owner = whose(packet, TC, !rest || rest->owner != ROUTERS);
    if (owner == OURS)
        tail_call(packet, &FORWARD_TC, MOVES);
    return owner < 0 ? give_rest(packet, rest, owner == OURS) : see_and_leave(packet, owner);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
