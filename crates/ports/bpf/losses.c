// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Counts packets that forward.c has redirected and that left by no interface. The kernel frees them, and reports it at two
// tracepoints: xdp_devmap_xmit for a driver that did not take all packets of a burst, xdp_redirect_err for packets that did
// not get as far (a driver that says that it takes none, an interface that is down, a packet too long for it).
//
// Linux 6.6 or newer, with the types of its structures (CONFIG_DEBUG_INFO_BTF).

#include <linux/errno.h>

#include "bpf.h"

// As far as they are read here; the loader finds where the running kernel has these members.
#define OF_KERNEL __attribute__((preserve_access_index))

struct ns_common {
    unsigned int inum;
} OF_KERNEL;

struct net {
    struct ns_common ns;
} OF_KERNEL;

typedef struct {
    struct net *net;
} OF_KERNEL possible_net_t;

struct net_device {
    int ifindex;
    possible_net_t nd_net;
} OF_KERNEL;

enum { MOST_PORTS = 256 };

// An interface: its network namespace and its number there.
struct interface {
    __u32 namespace;
    __u32 number;
};

// The router's ports, by interface.
struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_HASH);
    MAP_NUMBER(max_entries, MOST_PORTS);
    MAP_TYPE(key, struct interface);
    MAP_TYPE(value, __u32);
} PORTS SEC(".maps");

// Packets to a port by reason: its driver had no room, its driver takes no redirected packets, or they did not get to it.
struct losses {
    __u64 full, refused, unsent;
};

struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    MAP_NUMBER(max_entries, MOST_PORTS);
    MAP_TYPE(key, __u32);
    MAP_TYPE(value, struct losses);
} LOSSES SEC(".maps");

INLINE const __u32 *port_of(const struct net_device *device) {
    struct interface interface = {device->nd_net.net->ns.inum, device->ifindex};
    return lookup(&PORTS, &interface);
}

// TP_PROTO(const struct net_device *from, const struct net_device *to, int sent, int drops, int err)
SEC("tp_btf/xdp_devmap_xmit")
int count_untaken(const __u64 *arguments) {
    const struct net_device *from = (const void *)arguments[0], *to = (const void *)arguments[1];
    int drops = arguments[3], error = arguments[4];
    if (!drops)
        return 0;
    const __u32 *port = port_of(to);
    struct losses *losses;
    // Others may redirect to our interfaces too.
    if (!port || !port_of(from) || !(losses = lookup(&LOSSES, port)))
        return 0;
    *(error < 0 ? &losses->refused : &losses->full) += drops;
    return 0;
}

// TP_PROTO(const struct net_device *dev, const struct bpf_prog *xdp, const void *tgt, int err,
//          enum bpf_map_type map_type, u32 map_id, u32 index)
SEC("tp_btf/xdp_redirect_err")
int count_unsent(const __u64 *arguments) {
    const struct net_device *from = (const void *)arguments[0];
    __u32 port = arguments[6];
    struct losses *losses;
    // The index in the map is the number of the port.
    if ((__u32)arguments[4] != BPF_MAP_TYPE_DEVMAP || !port_of(from) || !(losses = lookup(&LOSSES, &port)))
        return 0;
    int error = arguments[3];
    *(error == -EOPNOTSUPP ? &losses->refused : &losses->unsent) += 1;
    return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
