// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Samples: the first bytes of one packet of so many, for the router's exporters. src/kernel_forwarding/samples.rs reads them.
//
// Before a packet is drawn, so many others pass: a number from 1 to `2 * one_in - 1`, each as likely, so that it is `one_in` on
// average and no pattern of the traffic follows the draws (as in crates/router: src/capture/sampler.rs). Each processor draws for
// itself, of each port. While nobody wants samples, a packet costs the test of a word.

#pragma once

#include "bpf.h"
#include "hook.h"

static void *(*const reserve)(void *ring, __u64 bytes, __u64 flags) = (void *)BPF_FUNC_ringbuf_reserve;
static void (*const submit)(void *record, __u64 flags) = (void *)BPF_FUNC_ringbuf_submit;
static void (*const discard)(void *record, __u64 flags) = (void *)BPF_FUNC_ringbuf_discard;
static __u32 (*const random_number)(void) = (void *)BPF_FUNC_get_prandom_u32;

enum { MOST_SAMPLE_BYTES = 1024, SAMPLE_RING_BYTES = 4 << 20, NO_PORT = 0xffff };

// What the router wants: written by it while packets flow.
struct sampling {
    // One packet of so many; 0 for none.
    __u32 one_in;
    // Changes whenever that does, so that each processor draws anew.
    __u32 turn;
    // How many bytes of each, at most.
    __u32 bytes;
    __u32 unused;
};

// How far a processor is with a port.
struct draw {
    // Packets that passed since the last one that was taken, up to the next one that is drawn.
    __u64 due;
    // Draws since then for which there was no room.
    __u64 lost;
    // The packet that is drawn next, counted from 1.
    __u32 left;
    __u32 turn;
};

// A packet as it came in.
struct sample {
    __u64 stands_for;
    __u64 lost;
    // Of the frame.
    __u32 length;
    // Those below.
    __u32 bytes;
    __u16 in;
    __u16 out;
    __u8 data[MOST_SAMPLE_BYTES];
};

struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_RINGBUF);
    MAP_NUMBER(max_entries, SAMPLE_RING_BYTES);
} SAMPLES SEC(".maps");

INLINE void draw_next(struct draw *draw, __u32 one_in) {
    __u32 next = 1 + ((__u64)random_number() * (2 * (__u64)one_in - 1) >> 32);
    draw->left = next;
    draw->due += next;
}

// A frame that came in by a port. Where packets are merged in it, the first of them is as long as `length`.
struct drawn {
    __u32 packets;
    __u32 length;
    __u16 in;
    __u16 out;
};

// Takes the packet that was drawn. Returns whether there was room.
INLINE int take(void *context, enum hook hook, __u32 most, struct draw *draw, __u64 due, const struct drawn *drawn) {
    struct sample *sample = reserve(&SAMPLES, sizeof(struct sample), 0);
    if (!sample)
        return 0;
    __u64 length = drawn->length, bytes = length < most ? length : most;
    if (bytes == 0 || bytes > MOST_SAMPLE_BYTES || load_bytes(context, hook, 0, sample->data, bytes) != 0) {
        discard(sample, BPF_RB_NO_WAKEUP);
        return 0;
    }
    sample->stands_for = due;
    sample->lost = draw->lost;
    sample->length = length;
    sample->bytes = bytes;
    sample->in = drawn->in;
    sample->out = drawn->out;
    // The reader looks by itself, some times a second.
    submit(sample, BPF_RB_NO_WAKEUP);
    return 1;
}

// Packets of a frame of 64 KiB and more.
enum { MOST_MERGED = 64 };

// Counts the packets of a frame that came in by a port, and samples it if one of them is drawn. If several are, the one sample stands
// for what each would have stood for.
INLINE void draw(void *context, enum hook hook, const struct sampling *sampling, struct draw *draw, const struct drawn *drawn) {
    __u32 one_in = *(const volatile __u32 *)&sampling->one_in;
    if (__builtin_expect(!one_in, 1))
        return;
    __u32 turn = *(const volatile __u32 *)&sampling->turn;
    if (draw->turn != turn) {
        draw->turn = turn;
        // Those that passed are stood for by the next one.
        draw->due -= draw->left;
        draw_next(draw, one_in);
    }
    __u32 packets = drawn->packets;
    if (draw->left > packets) {
        draw->left -= packets;
        return;
    }
    __u64 due = 0;
    for (int at = 0; at < (hook == TC ? MOST_MERGED : 1); at++) {
        packets -= draw->left;
        due = draw->due;
        draw_next(draw, one_in);
        if (draw->left > packets)
            break;
    }
    // There are no more than that, but of frames longer than any.
    draw->left = draw->left > packets ? draw->left - packets : 1;
    if (take(context, hook, sampling->bytes, draw, due, drawn)) {
        draw->due -= due;
        draw->lost = 0;
    } else {
        draw->lost += 1;
    }
}
