// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The router's own forwarding tables, read where they are: in a map that the router has mapped, and changes while packets
// flow. What lies where is said in crates/fib: src/fib/shared.rs (header, descriptors, next hops), src/rank/mod.rs (IPv4),
// src/range_tree/mod.rs (IPv6), and publish.rs argues the protocol of `enter` and `leave`.
//
// A place is an offset in bytes. Every access is masked, so that whatever lies there, the program stays inside the map;
// that it is right, the protocol sees to.

#pragma once

#include "bpf.h"

// A power of two. The loader has an object for each size.
#ifndef TABLE_BYTES
#error "TABLE_BYTES: the size of the map"
#endif

struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
    MAP_NUMBER(max_entries, 1);
    MAP_NUMBER(map_flags, BPF_F_MMAPABLE);
    MAP_NUMBER(key_size, 4);
    MAP_NUMBER(value_size, TABLE_BYTES);
} TABLES SEC(".maps");

// What stands at a place. Elements are aligned to their size.
#define AT(type, tables, place) (*(type *)((tables) + ((place) & (TABLE_BYTES - sizeof(type)))))

// The header: 64-bit words.
enum { ACTIVE = 0, SLOTS = 8, SLOT_COUNT = 16, SLOT_BYTES = 128 };

// A descriptor: 32-bit words.
enum { ENTRIES = 0, ENTRY_COUNT = 4, BUCKETS = 8, LINES = 16, VRF_COUNT = 24, RULES = 28, FIRST_VRF = 32, VRF_BYTES = 32 };
// Those of a VRF.
enum { CHUNKS = 0, HOPS = 4, BLOCKS = 8, TOP = 12, MIDDLES = 16, NODES = 20 };

enum { LONGEST_REWRITE = 26 };

// A next hop.
struct next_hop {
    __u8 forwards;
    __u8 length;
    __u16 port;
    __u8 rewrite[LONGEST_REWRITE];
    __u16 unused;
};

// A visit of this CPU to the tables: the place of its slot.
typedef __u64 visit;

#ifdef CARELESS
// Tests have a program that announces nothing, to see that they would notice.
INLINE visit enter(__u8 *tables, __u32 cpu) { return AT(__u64, tables, SLOTS) + (__u64)cpu * SLOT_BYTES; }
INLINE void leave(__u8 *tables, visit slot) { (void)tables, (void)slot; }
#else
// Announces this CPU: what follows is read after it, for an exchange that succeeds is a full barrier. Returns 0 if a visit
// of this CPU is under way already: on a kernel for real time one program may be in the middle of another.
INLINE visit enter(__u8 *tables, __u32 cpu) {
    visit slot = AT(__u64, tables, SLOTS) + (__u64)cpu * SLOT_BYTES;
    __u64 before = *(volatile __u64 *)&AT(__u64, tables, slot);
    return !(before & 1) && __sync_bool_compare_and_swap(&AT(__u64, tables, slot), before, before + 1) ? slot : 0;
}

// Says that this CPU has read what it wanted. The addition returns a value, and so is a full barrier; for a value that
// nobody uses the compiler would take one that is not.
INLINE void leave(__u8 *tables, visit slot) {
    __u64 before = __sync_fetch_and_add(&AT(__u64, tables, slot), 1);
    asm volatile("" ::"r"(before) : "memory");
}
#endif

// The descriptor of the active state; 0 if there is none. To be loaded once in a visit: all else is found by it.
INLINE __u64 active(__u8 *tables) { return *(volatile __u64 *)&AT(__u64, tables, ACTIVE); }

#ifdef SLOW
// Whether the time is over: the loop ends then.
static long look(__u64 index, void *end) {
    static __u64 (*const now)(void) = (void *)BPF_FUNC_ktime_get_ns;
    (void)index;
    return now() >= *(__u64 *)end;
}

// Stays for STAY nanoseconds, one time in SLOW: tests have a program that is often overtaken between two loads.
INLINE void dawdle(void) {
    static __u64 (*const now)(void) = (void *)BPF_FUNC_ktime_get_ns;
    static __u32 (*const random)(void) = (void *)BPF_FUNC_get_prandom_u32;
    static long (*const loop)(__u32, void *, void *, __u64) = (void *)BPF_FUNC_loop;
    __u64 end = now() + STAY;
    if (random() % SLOW == 0)
        loop(1 << 20, look, &end, 0);
}
#else
INLINE void dawdle(void) {}
#endif

// Bits that are set; there is no instruction for it.
INLINE __u64 ones(__u64 word) {
    word -= word >> 1 & 0x55555555;
    word = (word & 0x33333333) + (word >> 2 & 0x33333333);
    word = (word + (word >> 4)) & 0x0f0f0f0f;
    return (word * 0x01010101 & 0xffffffff) >> 24;
}

// The place in the list of next hops for a part of what an entry describes.
INLINE __u64 place_of(__u64 entry, __u64 part) { return (entry >> 32) + ones((entry & 0xffffffff) >> (part & 31)); }

enum { IS_BLOCK = 0x8000 };

// The number of the next hop of an IPv4 address; 0 if there is none.
INLINE __u64 lookup_ipv4(__u8 *tables, __u64 vrf, __u64 address) {
    __u64 hops = AT(__u32, tables, vrf + HOPS);
    __u64 chunk = AT(__u64, tables, AT(__u32, tables, vrf + CHUNKS) + (address >> 13) * 8);
    __u64 found = AT(__u16, tables, hops + place_of(chunk, address >> 8) * 2);
    if (!(found & IS_BLOCK))
        return found;
    __u64 base = chunk >> 32;
    __u64 first = AT(__u16, tables, hops + (base - 2) * 2) | (__u64)AT(__u16, tables, hops + (base - 1) * 2) << 16;
    __u64 block = first + (found & ~IS_BLOCK);
    __u64 place = AT(__u32, tables, vrf + BLOCKS) + (block * 8 + (address >> 5 & 7)) * 8;
    return AT(__u16, tables, hops + place_of(AT(__u64, tables, place), address) * 2);
}

enum {
    GO_ON = 1u << 31,
    // Bit 30: the next stage.
    NODE_NUMBER = (1 << 30) - 1,
    NODE_BYTES = 128,
    NODE_WORDS = 64,
    // Levels of all stages together: more than a tree of 2^23 nodes has.
    MOST_LEVELS = 24,
};

// An IPv6 address, in host order.
struct address6 {
    __u64 high, low;
};

// `step` if the end of the range at a place of a node is below the key, else 0.
INLINE __u64 step_over(__u8 *tables, __u64 node, __u64 place, __u64 key, __u64 step) {
    return if_set(AT(__u32, tables, node + place * 4) - key, step);
}

// The number of the next hop of an IPv6 address; 0 if there is none.
INLINE __u64 lookup_ipv6(__u8 *tables, __u64 vrf, struct address6 address) {
    __u64 word = AT(__u32, tables, AT(__u32, tables, vrf + TOP) + (address.high >> 48) * 4);
    if (word & GO_ON) {
        __u64 place = ((word & NODE_NUMBER) << 8 | (address.high >> 40 & 0xff)) * 4;
        word = AT(__u32, tables, AT(__u32, tables, vrf + MIDDLES) + place);
    }
    __u64 nodes = AT(__u32, tables, vrf + NODES);
    // The key of a stage is what stands at the top: 32 bits, in the last stage eight.
    __u64 high = address.high << 24 | address.low >> 40, low = address.low << 24;
    // One way through the loop, so that the kernel has little to check.
    for (int level = 0; level < MOST_LEVELS; level++) {
        if (!(word & GO_ON))
            return word;
        __u64 goes_on = -(word >> 30 & 1);
        high ^= (high ^ (high << 32 | low >> 32)) & goes_on;
        low ^= (low ^ low << 32) & goes_on;
        __u64 key = high >> 32;
        __u64 node = nodes + (word & NODE_NUMBER) * NODE_BYTES;
        // The last end is the highest there is, so the place is below 16.
        __u64 place = step_over(tables, node, 7, key, 8);
        place += step_over(tables, node, place + 3, key, 4);
        place += step_over(tables, node, place + 1, key, 2);
        place += step_over(tables, node, place, key, 1);
        word = AT(__u32, tables, node + NODE_WORDS + place * 4);
    }
    return 0;
}

// 64 by 64 bits, the halves of the product folded (crates/packet/src/flow.rs).
INLINE __u64 folded(__u64 a, __u64 b) {
    __u64 a_low = a & 0xffffffff, a_high = a >> 32, b_low = b & 0xffffffff, b_high = b >> 32;
    __u64 low = a_low * b_low, cross = a_high * b_low, other = a_low * b_high, high = a_high * b_high;
    __u64 middle = (low >> 32) + (cross & 0xffffffff) + other;
    high += (cross >> 32) + (middle >> 32);
    return high ^ (middle << 32 | (low & 0xffffffff));
}
