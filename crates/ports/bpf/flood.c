// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Makes, sends and counts frames in the kernel, for measurements. `send` runs on frames of BPF_PROG_RUN, which the kernel then
// really sends (Linux 5.18); `count` drops those that come back. What else comes in is Linux's.

#include "bpf.h"
#include "headers.h"

static long (*const adjust_tail)(struct xdp_md *context, int bytes) = (void *)BPF_FUNC_xdp_adjust_tail;
static __u64 (*const buffer_bytes)(struct xdp_md *context) = (void *)BPF_FUNC_xdp_get_buff_len;
static long (*const redirect)(__u32 interface, __u64 flags) = (void *)BPF_FUNC_redirect;
static __u64 (*const now_ns)(void) = (void *)BPF_FUNC_ktime_get_ns;

// Bytes of a frame that are not zero: at least those of the shortest frame, without FCS, and at most these. With headers and a
// signature of 18 bytes a frame has 60 of IPv4 and UDP, 72 with TCP, 80 of IPv6 and UDP, 92 with TCP.
enum { LEAST_HEAD = 60, TCP_HEAD = 72, IPV6_HEAD = 80, MOST_HEAD = 92 };

// Copies the bytes of the head from the one place on to the other, if the frame is that long.
#define COPY(from, to) \
    if (data + (to) <= (__u8 *)end) \
    __builtin_memcpy(data + (from), frame->head + (from), (to) - (from))

// A time: nanoseconds, in parts of 1,024.
typedef __u64 fine;

// Sending does not catch up after a longer pause.
static const fine LONGEST_PAUSE = 100000ull << 10;

struct orders {
    // Frames to send in all.
    __u64 limit;
    // The time that a frame takes, and a byte; none if sending is as fast as can be.
    fine frame_time, byte_time;
    __u32 interface;
    // Frames in the list.
    __u32 frames;
    // The length with which frames come.
    __u32 longest;
    // By which frames are known: the first bytes of a payload, as they lie there.
    __u32 signature;
};

struct frame {
    __u8 head[MOST_HEAD];
    __u32 length;
};

struct sent {
    __u64 frames, bytes;
    fine due;
    __u32 place;
};

struct received {
    __u64 frames, bytes;
};

struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
    MAP_NUMBER(max_entries, 1);
    MAP_TYPE(key, __u32);
    MAP_TYPE(value, struct orders);
} ORDERS SEC(".maps");

// The frames to send, in turns; the loader says how many.
struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
    MAP_NUMBER(max_entries, 1);
    MAP_TYPE(key, __u32);
    MAP_TYPE(value, struct frame);
} FRAMES SEC(".maps");

struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
    MAP_NUMBER(max_entries, 1);
    MAP_TYPE(key, __u32);
    MAP_TYPE(value, struct sent);
} SENT SEC(".maps");

struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    MAP_NUMBER(max_entries, 1);
    MAP_TYPE(key, __u32);
    MAP_TYPE(value, struct received);
} RECEIVED SEC(".maps");

SEC("xdp")
int send(struct xdp_md *context) {
    __u32 first = 0;
    const struct orders *orders = lookup(&ORDERS, &first);
    struct sent *sent = lookup(&SENT, &first);
    if (!orders || !sent || sent->frames >= orders->limit)
        return XDP_DROP;
    if (sent->place >= orders->frames)
        sent->place = 0;
    __u32 place = sent->place;
    const struct frame *frame = lookup(&FRAMES, &place);
    if (!frame)
        return XDP_DROP;
    fine time = orders->frame_time + orders->byte_time * frame->length;
    if (time) {
        fine now = now_ns() << 10;
        if (now < sent->due)
            return XDP_DROP;
        sent->due = sent->due + LONGEST_PAUSE < now ? now + time : sent->due + time;
    }
    if (frame->length < orders->longest && adjust_tail(context, (int)(frame->length - orders->longest)) != 0)
        return XDP_ABORTED;
    __u8 *data = (__u8 *)(long)context->data;
    const void *end = (const void *)(long)context->data_end;
    if (data + LEAST_HEAD > (__u8 *)end)
        return XDP_ABORTED;
    // The kernel uses frames again as routers left them.
    __builtin_memcpy(data, frame->head, LEAST_HEAD);
    COPY(LEAST_HEAD, TCP_HEAD);
    COPY(TCP_HEAD, IPV6_HEAD);
    COPY(IPV6_HEAD, MOST_HEAD);
    sent->place += 1;
    sent->frames += 1;
    sent->bytes += frame->length;
    return redirect(orders->interface, 0);
}

// Where the transport header of a frame is, behind a plain header of IP, and of which protocol it is; 0 if there is none.
INLINE __u32 find_transport(const __u8 *frame, __u8 *protocol) {
    __u16 type = *(const __u16 *)(frame + 12);
    if (type == SWAP16(0x0800)) {
        const struct ipv4 *header = (const struct ipv4 *)(frame + ETHERNET_BYTES);
        *protocol = header->protocol;
        return header->version_and_length == PLAIN ? ETHERNET_BYTES + sizeof(*header) : 0;
    }
    if (type == SWAP16(0x86dd)) {
        const struct ipv6 *header = (const struct ipv6 *)(frame + ETHERNET_BYTES);
        *protocol = header->next_header;
        return ETHERNET_BYTES + sizeof(*header);
    }
    return 0;
}

SEC("xdp.frags")
int count(struct xdp_md *context) {
    __u32 first = 0;
    const struct orders *orders = lookup(&ORDERS, &first);
    struct received *received = lookup(&RECEIVED, &first);
    const __u8 *frame = (const __u8 *)(long)context->data;
    const void *end = (const void *)(long)context->data_end;
    if (!orders || !received || frame + LEAST_HEAD > (const __u8 *)end)
        return XDP_PASS;
    __u8 protocol = 0;
    __u32 transport = find_transport(frame, &protocol);
    if (!transport)
        return XDP_PASS;
    // Behind a header of TCP, or one of UDP or ICMP.
    const __u8 *signature = frame + transport + (protocol == PROTOCOL_TCP ? 20 : 8);
    if (signature + sizeof(__u32) > (const __u8 *)end || *(const __u32 *)signature != orders->signature)
        return XDP_PASS;
    received->frames += 1;
    received->bytes += buffer_bytes(context);
    return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
