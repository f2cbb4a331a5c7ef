// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What every BPF program here is written with: sections, maps, helpers of the kernel.

#pragma once

#include <linux/bpf.h>
#include <linux/types.h>

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
// A function of its own, which the kernel checks by itself.
#define FUNCTION __attribute__((noinline))
// Types of maps are told to the loader by the types of members (BTF): a number is the length of an array.
#define MAP_NUMBER(name, value) int(*name)[value]
#define MAP_TYPE(name, value) value *name

#define SWAP16(number) __builtin_bswap16(number)

static void *(*const lookup)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;

// enum tcx_action_base of linux/bpf.h, which older headers do not have: on to the next program, or drop.
enum { NEXT = -1, DROP = 2 };

// `value` if the highest bit of `word` is set, else 0. The compiler shall not see that a comparison is meant, of which it
// would make a branch that nobody could predict. Of a mask by an arithmetic shift the kernel, when it checks the program,
// would make two ways.
INLINE __u64 if_set(__u64 word, __u64 value) {
    asm("" : "+r"(word));
    return (word >> 63) * value;
}

enum { ETHERNET_BYTES = 14 };
