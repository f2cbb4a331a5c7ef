// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What every BPF program here is written with: sections, maps, helpers of the kernel.

#pragma once

#include <linux/bpf.h>
#include <linux/types.h>

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
// Types of maps are told to the loader by the types of members (BTF): a number is the length of an array.
#define MAP_NUMBER(name, value) int(*name)[value]
#define MAP_TYPE(name, value) value *name

#define SWAP16(number) __builtin_bswap16(number)

static void *(*const lookup)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;

// enum tcx_action_base of linux/bpf.h, which older headers do not have: on to the next program, or drop.
enum { NEXT = -1, DROP = 2 };

enum { ETHERNET_BYTES = 14 };
