// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The router's access lists, as its workers have them compiled: each field of a packet has a class, and the first rule is
// found by the classes (crates/elements: src/acl/compiled.rs, src/first_match). Only "permitted" is said here. Whatever is
// not surely permitted is left to the router's graph, which judges it again, drops it, counts it and answers.
//
// Each family has two areas. The router writes the one that is not in use, names it in `lists` (forward.c), and waits until
// no program runs that has seen the other. So a packet is judged by one list as a whole, and nobody announces anything.
//
// A place is an offset in bytes in the area. Every access is masked, so that whatever lies there, the program stays inside.
// src/kernel_forwarding/access_list.rs writes what is read here.

#pragma once

#include "bpf.h"
#include "headers.h"
#include "tables.h"

enum {
    // A power of two.
    AREA_BYTES = 1 << 20,
    // Two for each family.
    AREAS = 4,
    // Rules of a list, and the default.
    MOST_ANSWERS = 1024,
};

struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
    MAP_NUMBER(max_entries, AREAS);
    MAP_NUMBER(map_flags, BPF_F_MMAPABLE);
    MAP_NUMBER(key_size, 4);
    MAP_NUMBER(value_size, AREA_BYTES);
} LIST SEC(".maps");

struct hits {
    __u64 packets, bytes;
};

// What a processor has permitted and forwarded, by area and number of the rule.
struct all_hits {
    struct hits by_answer[AREAS * MOST_ANSWERS];
};

// By processor; the loader says how many there are.
struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
    MAP_NUMBER(max_entries, 1);
    MAP_NUMBER(map_flags, BPF_F_MMAPABLE);
    MAP_TYPE(key, __u32);
    MAP_TYPE(value, struct all_hits);
} HITS SEC(".maps");

// Whether there are lists; the loader sets it, and without them the kernel takes out all that follows.
const volatile __u8 LISTED = 0;

// What stands at a place of an area.
#define IN_LIST(type, list, place) (*(type *)((list) + ((place) & (AREA_BYTES - sizeof(type)))))

// Columns of classes: src/acl/compiled.rs in crates/elements.
enum { SOURCE, DESTINATION, SOURCE_PORT, DESTINATION_PORT, KIND, INPUT, COLUMNS = 8 };

// An area begins with these 32-bit words: intervals of four columns, each place and shift, or place and count for addresses of
// IPv6; for these the places of those in lower halves; arrays by value; how the rule is found.
enum {
    LOWERS = 32,
    KINDS = 40,
    INPUTS = 44,
    STEP_COUNT = 48,
    DIMENSION_COUNT = 52,
    VECTOR_WORDS = 56,
    ANSWERS = 60,
    // Two columns, the classes of the second, place.
    STEPS = 64,
    STEP_BYTES = 16,
    MOST_STEPS = 5,
    // Column, place.
    DIMENSIONS = STEPS + MOST_STEPS * STEP_BYTES,
    DIMENSION_BYTES = 8,
    MOST_DIMENSIONS = 6,
};

// Intervals by the upper bits of a key: the first that may have it, times 16, and how often to halve what is behind that.
enum { INDEX_BYTES = 4096 * 4, HALVINGS = 15 };

// A power of two of intervals, 4,096 at most, and the vectors of the most rules.
enum { MOST_HALVINGS = 12, MOST_VECTOR_WORDS = MOST_ANSWERS / 64 };

// The classes of a packet.
struct classes {
    __u16 of[COLUMNS];
};

// In the place of a class: the rest is the number of the intervals in the lower half.
enum { BY_LOWER = 0x8000 };

// Of TCP with the ACK or RST bit; other packets have the number of their protocol.
enum { ESTABLISHED = 512, ACK_OR_RST = 0x14 };

// A number whose highest bit is set if a is below b.
INLINE __u64 compared(__u64 a, __u64 b) { return (~a & b) | (~(a ^ b) & (a - b)); }

// The kernel checks each of the following functions once, for all callers and all values, where it would check what is
// inlined again for each way there.

// The class of a key of 32 bits, by the intervals at a place: an index, and their last keys, ascending, each with its class.
FUNCTION __u32 class_of(__u32 area, __u32 intervals, __u32 key) {
    __u8 *list = lookup(&LIST, &area);
    __u64 index = list ? IN_LIST(__u32, list, intervals) : 0;
    // No rule asks.
    if (!index)
        return 0;
    __u64 entry = IN_LIST(__u32, list, index + (key >> (IN_LIST(__u32, list, intervals + 4) & 31)) * 4ull);
    // Everything below `end` is below the key.
    __u64 end = index + INDEX_BYTES + (entry >> 4) * 8, half = 4ull << (entry & HALVINGS);
    for (int halving = 0; halving < MOST_HALVINGS; halving++) {
        if (half < 8)
            break;
        end += if_set(IN_LIST(__u32, list, end + half - 8) - (__u64)key, half);
        half >>= 1;
    }
    return IN_LIST(__u32, list, end + 4);
}

// The same of 64 bits, by a number of intervals: their last keys, and behind those the classes.
FUNCTION __u32 class_of_wide(__u32 area, __u32 intervals, __u64 key) {
    __u8 *list = lookup(&LIST, &area);
    if (!list)
        return 0;
    __u64 ends = IN_LIST(__u32, list, intervals), bytes = IN_LIST(__u32, list, intervals + 4) * 8ull;
    // Everything below `end` is below the key.
    __u64 end = ends, half = bytes >> 1;
    for (int halving = 0; halving < MOST_HALVINGS; halving++) {
        if (half < 8)
            break;
        end += if_set(compared(IN_LIST(__u64, list, end + half - 8), key), half);
        half >>= 1;
    }
    return IN_LIST(__u16, list, ends + bytes + (end - ends) / 4);
}

INLINE __u32 class_of_ipv6(__u32 area, __u8 *list, __u32 column, const __u16 *address) {
    __u32 class = class_of_wide(area, column * 8, word64(address));
    if (!(class & BY_LOWER))
        return class;
    __u32 intervals = IN_LIST(__u32, list, LOWERS + column * 4) + (class & (BY_LOWER - 1)) * 8;
    return class_of_wide(area, intervals, word64(address + 4));
}

// The answer for the classes of a packet: twice the number of the rule, and 1 if it permits.
FUNCTION __u32 answer_of(__u32 area, struct classes *classes) {
    __u8 *list = lookup(&LIST, &area);
    if (!list || !classes)
        return 0;
    dawdle();
    __u64 steps = IN_LIST(__u32, list, STEP_COUNT);
    for (__u64 step = 0; step < MOST_STEPS; step++) {
        if (step >= steps)
            break;
        __u64 at = STEPS + step * STEP_BYTES;
        __u64 left = IN_LIST(__u32, list, at) & (COLUMNS - 1), right = IN_LIST(__u32, list, at + 4) & (COLUMNS - 1);
        __u64 pair = (__u64)classes->of[left] * IN_LIST(__u32, list, at + 8) + classes->of[right];
        classes->of[left] = IN_LIST(__u16, list, IN_LIST(__u32, list, at + 12) + pair * 2);
    }
    __u64 answers = IN_LIST(__u32, list, ANSWERS), dimensions = IN_LIST(__u32, list, DIMENSION_COUNT);
    if (dimensions == 1)
        return IN_LIST(__u32, list, answers + classes->of[IN_LIST(__u32, list, DIMENSIONS) & (COLUMNS - 1)] * 4);
    __u64 words = IN_LIST(__u32, list, VECTOR_WORDS);
    __u64 rows[MOST_DIMENSIONS] = {0};
    for (__u64 dimension = 0; dimension < MOST_DIMENSIONS; dimension++) {
        if (dimension >= dimensions)
            break;
        __u64 at = DIMENSIONS + dimension * DIMENSION_BYTES;
        __u64 class = classes->of[IN_LIST(__u32, list, at) & (COLUMNS - 1)];
        rows[dimension] = IN_LIST(__u32, list, at + 4) + class * words * 8;
    }
    for (__u64 word = 0; word < MOST_VECTOR_WORDS; word++) {
        if (word >= words)
            break;
        __u64 rules = ~0ull;
        for (__u64 dimension = 0; dimension < MOST_DIMENSIONS; dimension++) {
            if (dimension >= dimensions)
                break;
            rules &= IN_LIST(__u64, list, rows[dimension] + word * 8);
        }
        if (rules) {
            __u64 below = (rules & -rules) - 1;
            return IN_LIST(__u32, list, answers + (word * 64 + ones(below & 0xffffffff) + ones(below >> 32)) * 4);
        }
    }
    return IN_LIST(__u32, list, answers + words * 64 * 4);
}

// What rules look at in a packet beside its addresses. Returns 0 if that is not all there.
INLINE int read_transport(__u32 area, __u8 *list, struct classes *classes, const __u16 *transport, __u32 bytes, const void *end,
                          __u8 protocol, __u8 paint) {
    if (bytes < 4 || (const void *)(transport + 2) > end)
        return 0;
    __u16 source = SWAP16(transport[0]), destination = SWAP16(transport[1]), kind = protocol;
    if (protocol == PROTOCOL_TCP) {
        if (bytes < 16 || (const void *)(transport + 8) > end)
            return 0;
        if (((const __u8 *)transport)[13] & ACK_OR_RST)
            kind = ESTABLISHED;
    } else if (protocol == PROTOCOL_ICMP || protocol == PROTOCOL_ICMPV6) {
        // Type and code.
        destination = source;
    }
    classes->of[SOURCE_PORT] = class_of(area, SOURCE_PORT * 8, source);
    classes->of[DESTINATION_PORT] = class_of(area, DESTINATION_PORT * 8, destination);
    classes->of[KIND] = IN_LIST(__u16, list, IN_LIST(__u32, list, KINDS) + kind * 2);
    classes->of[INPUT] = IN_LIST(__u16, list, IN_LIST(__u32, list, INPUTS) + paint * 2);
    return 1;
}

// Where a permitted packet is counted; -1 if it is not surely permitted.
INLINE int counted_at(__u32 area, __u32 answer) { return answer & 1 ? area * MOST_ANSWERS + (answer >> 1) : -1; }

INLINE int judge_ipv4(__u32 number, const struct ipv4 *header, __u32 bytes, const void *end, __u8 paint) {
    __u32 area = number - 1;
    __u8 *list = lookup(&LIST, &area);
    struct classes classes = {0};
    // Fragments are the graph's to judge.
    if (!list || header->fragment & SWAP16(0x3fff) ||
        !read_transport(area, list, &classes, (const __u16 *)(header + 1), bytes - sizeof(*header), end, header->protocol, paint))
        return -1;
    classes.of[SOURCE] = class_of(area, SOURCE * 8, word32(header->source));
    classes.of[DESTINATION] = class_of(area, DESTINATION * 8, word32(header->destination));
    return counted_at(area, answer_of(area, &classes));
}

INLINE int judge_ipv6(__u32 number, const struct ipv6 *header, __u32 bytes, const void *end, __u8 paint) {
    __u32 area = number - 1;
    __u8 *list = lookup(&LIST, &area);
    struct classes classes = {0};
    if (!list || !read_transport(area, list, &classes, (const __u16 *)(header + 1), bytes - sizeof(*header), end,
                                 header->next_header, paint))
        return -1;
    classes.of[SOURCE] = class_of_ipv6(area, list, SOURCE, header->source);
    classes.of[DESTINATION] = class_of_ipv6(area, list, DESTINATION, header->destination);
    return counted_at(area, answer_of(area, &classes));
}

INLINE void count_hit(__u32 cpu, int at, __u64 packets, __u64 bytes) {
    struct all_hits *all = lookup(&HITS, &cpu);
    if (all) {
        struct hits *hits = &all->by_answer[at & (AREAS * MOST_ANSWERS - 1)];
        hits->packets += packets;
        hits->bytes += bytes;
    }
}
