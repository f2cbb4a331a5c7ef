// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Policy rules (`ip rule`): in which tables a packet is looked up. They lie beside the tables and change with them
// (crates/fib: src/fib/shared/rules.rs says what lies where, src/policy.rs what a rule means).
//
// Only "this next hop" is said here. Where a rule drops, or nobody here knows whether it selects a packet, that is for the
// router's graph.

#pragma once

#include "bpf.h"
#include "tables.h"

// Places in a line, in bytes.
enum { RULE_SOURCES = 0, RULE_DESTINATIONS = 32, RULE_INPUTS = 64, RULE_FLAGS = 96, RULE_ARGUMENT = 100, RULE_BYTES = 104 };

enum {
    BY_INPUT = 1,
    IS_INVERTED = 2,
    IS_UNKNOWN = 4,
    LOOKS_UP = 8,
    LOOKS_UP_OF_PORT = 16,
    GOES_TO = 32,
    ENDS = 64,
};

// Rules of a family.
enum { MOST_RULES = 256 };

// The number of a next hop that others have to find.
enum { UNKNOWN_NUMBER = 0xffff };

// What is asked of the rules: addresses in host order, one of IPv4 in the lower half. An answer of the host's own to a
// packet comes in by no port, but belongs to the VRF of one.
struct query {
    struct address6 source, destination;
    __u32 port;
    __u8 is_ipv6;
    __u8 is_answer;
    __u8 unused[2];
};

// The number of the next hop of a destination in a VRF.
INLINE __u64 number_ipv4(__u8 *tables, __u64 vrf, __u64 destination) {
    return AT(__u32, tables, vrf + CHUNKS) ? lookup_ipv4(tables, vrf, destination) : UNKNOWN_NUMBER;
}

INLINE __u64 number_ipv6(__u8 *tables, __u64 vrf, struct address6 destination) {
    return AT(__u32, tables, vrf + TOP) ? lookup_ipv6(tables, vrf, destination) & 0x7fff : UNKNOWN_NUMBER;
}

// The following functions the kernel checks once, for all callers and all values.

FUNCTION __u32 number_in(__u64 vrf, struct query *query) {
    __u32 first = 0;
    __u8 *tables = lookup(&TABLES, &first);
    if (!tables || !query)
        return 0;
    if (query->is_ipv6)
        return number_ipv6(tables, vrf, query->destination);
    return number_ipv4(tables, vrf, query->destination.low);
}

// Whether an address lies between the two at a place.
INLINE int is_between(__u8 *tables, __u64 place, const struct address6 *address) {
    __u64 first_high = AT(__u64, tables, place), first_low = AT(__u64, tables, place + 8);
    __u64 last_high = AT(__u64, tables, place + 16), last_low = AT(__u64, tables, place + 24);
    if (address->high < first_high || (address->high == first_high && address->low < first_low))
        return 0;
    return address->high < last_high || (address->high == last_high && address->low <= last_low);
}

// The number of the next hop that the rules of a family yield, of which the two words at `header` tell; 0 if there is
// none, or a rule decides otherwise.
FUNCTION __u32 number_by_rules(__u64 descriptor, __u64 header, struct query *query) {
    __u32 first = 0;
    __u8 *tables = lookup(&TABLES, &first);
    if (!tables || !query)
        return 0;
    __u64 at = header + (query->is_ipv6 ? 8 : 0);
    __u64 rules = header + AT(__u32, tables, at), count = AT(__u32, tables, at + 4);
    if (!count)
        return number_in(descriptor + FIRST_VRF, query);
    __u64 place = 0, port = query->port & 0xff;
    for (int step = 0; step < MOST_RULES; step++) {
        if (place + 1 >= count)
            break;
        __u64 rule = rules + place * RULE_BYTES;
        __u64 flags = AT(__u32, tables, rule + RULE_FLAGS), argument = AT(__u32, tables, rule + RULE_ARGUMENT);
        place += 1;
        int is_like_it = is_between(tables, rule + RULE_SOURCES, &query->source) &&
                         is_between(tables, rule + RULE_DESTINATIONS, &query->destination);
        if (flags & BY_INPUT) {
            __u64 inputs = AT(__u64, tables, rule + RULE_INPUTS + port / 64 * 8);
            is_like_it = is_like_it && (query->is_answer || inputs >> (port & 63) & 1);
        }
        // To Linux an answer comes in by the interface that the packet leaves by, which nobody knows yet.
        if (is_like_it && (flags & IS_UNKNOWN || (query->is_answer && flags & BY_INPUT)))
            break;
        if (is_like_it == !!(flags & IS_INVERTED))
            continue;
        if (flags & ENDS)
            break;
        if (flags & GOES_TO)
            place = argument;
        if (!(flags & (LOOKS_UP | LOOKS_UP_OF_PORT)))
            continue;
        __u64 vrf = flags & LOOKS_UP ? argument : AT(__u8, tables, header + argument + port);
        if (vrf >= AT(__u32, tables, descriptor + VRF_COUNT))
            continue;
        __u32 number = number_in(descriptor + FIRST_VRF + vrf * VRF_BYTES, query);
        if (number)
            return number;
    }
    return 0;
}

// The number of the next hop of a packet, or of the host's answer to one, that came in by a port.
INLINE __u64 number_of_ipv4(__u8 *tables, __u64 descriptor, __u64 source, __u64 destination, __u32 port, int is_answer) {
    __u64 rules = AT(__u32, tables, descriptor + RULES);
    if (!rules)
        return number_ipv4(tables, descriptor + FIRST_VRF, destination);
    struct query query = {{0, source}, {0, destination}, .port = port, .is_answer = is_answer};
    return number_by_rules(descriptor, rules, &query);
}

INLINE __u64 number_of_ipv6(__u8 *tables, __u64 descriptor, struct address6 source, struct address6 destination, __u32 port,
                            int is_answer) {
    __u64 rules = AT(__u32, tables, descriptor + RULES);
    if (!rules)
        return number_ipv6(tables, descriptor + FIRST_VRF, destination);
    struct query query = {source, destination, .port = port, .is_ipv6 = 1, .is_answer = is_answer};
    return number_by_rules(descriptor, rules, &query);
}
