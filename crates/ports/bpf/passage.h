// SPDX-License-Identifier: MIT OR Apache-2.0
//
// How a frame that a `host:` port gives to the kernel comes past the steering program of its interface, which would give
// it back to us (src/host/passage.rs):
//   - MARK on the packet, taken off again by the steering program of packet sockets and that in tc,
//   - a seal in the frame, taken out by the XDP program in generic mode, which sees no marks:
//     source and destination address, SEAL_TYPE, SEAL, then the EtherType and what follows it.
// XDP in native mode runs before the place where the frame is put in, and needs neither.
//
// PERMITTED is another mark, which stays on the packet in the kernel: the router's filters have permitted it. A rule of
// nftables drops what comes in by our ports and would be forwarded without it (control's `backstop`, which has the same
// number). The routing rules of the machine see this bit.

#pragma once

#include "bpf.h"

enum {
    MARK = 0x62726b77,
    // A bit that MARK does not have.
    PERMITTED = 0x10000000,
    // EtherType for experiments (IEEE 802, clause 9.2.4).
    SEAL_TYPE = 0x88b5,
    SEAL_BYTES = 6,
    // With its type.
    SEALED_BYTES = 8,
};

// Whether a `host:` port has put a packet in.
INLINE int is_from_us(const struct __sk_buff *packet) { return (packet->mark & ~PERMITTED) == MARK; }
