/* The shim around DPDK 22.11: see dpdk.h. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_flow.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_ring.h>

#include "dpdk.h"

/* Where Rust reads and writes an mbuf (struct Mbuf in src/dpdk/shim.rs). */
#define AT(field, offset) _Static_assert(offsetof(struct rte_mbuf, field) == (offset), #field)
AT(buf_addr, 0);
AT(rearm_data, 16);
AT(data_off, 16);
AT(refcnt, 18);
AT(nb_segs, 20);
AT(port, 22);
AT(ol_flags, 24);
AT(packet_type, 32);
AT(pkt_len, 36);
AT(data_len, 40);
AT(buf_len, 54);
AT(pool, 56);
AT(priv_size, 88);
_Static_assert(sizeof(struct rte_mbuf) == 128, "rte_mbuf");
_Static_assert(RTE_PKTMBUF_HEADROOM == 128, "RTE_PKTMBUF_HEADROOM");
_Static_assert(sizeof(struct brickway_dpdk_device) == 32 + 24 + 4 + 16 + 8 + 4, "brickway_dpdk_device");

/* DPDK says why something failed in its log only. The end of it is kept for error messages. */
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static char log_text[4096];
static size_t log_used;

static ssize_t keep_log_text(void *cookie, const char *text, size_t length)
{
	(void)cookie;
	pthread_mutex_lock(&log_lock);
	const char *from = text;
	size_t count = length;
	if (count > sizeof(log_text)) {
		from += count - sizeof(log_text);
		count = sizeof(log_text);
	}
	if (log_used + count > sizeof(log_text)) {
		size_t forget = log_used + count - sizeof(log_text);
		memmove(log_text, log_text + forget, log_used - forget);
		log_used -= forget;
	}
	memcpy(log_text + log_used, from, count);
	log_used += count;
	pthread_mutex_unlock(&log_lock);
	return (ssize_t)length;
}

size_t brickway_dpdk_take_log(char *text, size_t room)
{
	pthread_mutex_lock(&log_lock);
	size_t count = RTE_MIN(room, log_used);
	memcpy(text, log_text + log_used - count, count);
	log_used = 0;
	pthread_mutex_unlock(&log_lock);
	return count;
}

int brickway_dpdk_init(int argc, char **argv, int keep_log)
{
	if (keep_log) {
		cookie_io_functions_t functions = { .write = keep_log_text };
		FILE *file = fopencookie(NULL, "w", functions);
		if (file == NULL)
			return -errno;
		setvbuf(file, NULL, _IOLBF, 0);
		rte_openlog_stream(file);
	}
	int result = rte_eal_init(argc, argv);
	return result < 0 ? -(rte_errno ? rte_errno : EINVAL) : 0;
}

/* A thread that is registered has a mempool cache of its own. */
int brickway_dpdk_register_thread(void)
{
	if (rte_lcore_id() != LCORE_ID_ANY)
		return 0;
	return rte_thread_register() < 0 ? -rte_errno : 0;
}

void brickway_dpdk_unregister_thread(void)
{
	rte_thread_unregister();
}

int brickway_dpdk_make_pool(const char *name, uint32_t mbufs, uint32_t cache, uint16_t metadata, uint16_t data_room,
			    int socket, struct rte_mempool **pool)
{
	*pool = rte_pktmbuf_pool_create(name, mbufs, cache, metadata, data_room, socket);
	return *pool == NULL ? -rte_errno : 0;
}

int brickway_dpdk_probe(const char *devargs, const char *name, struct brickway_dpdk_device *device)
{
	uint16_t port = RTE_MAX_ETHPORTS;
	int result = rte_dev_probe(devargs);
	if (result < 0)
		return result;
	if (rte_eth_dev_get_port_by_name(name, &port) != 0) {
		/* A card may have several ports, each with a name of its own: the first of this device. */
		struct rte_dev_iterator iterator;
		uint16_t match;
		RTE_ETH_FOREACH_MATCHING_DEV(match, devargs, &iterator) {
			port = match;
			rte_eth_iterator_cleanup(&iterator);
			break;
		}
	}
	struct rte_eth_dev_info info;
	if (port == RTE_MAX_ETHPORTS)
		return -ENODEV;
	result = rte_eth_dev_info_get(port, &info);
	if (result < 0)
		return result;
	memset(device, 0, sizeof(*device));
	snprintf(device->driver, sizeof(device->driver), "%s", info.driver_name);
	device->rss_fields = info.flow_type_rss_offloads;
	device->rx_offloads = info.rx_offload_capa;
	device->tx_offloads = info.tx_offload_capa;
	device->socket = rte_eth_dev_socket_id(port);
	device->port = port;
	device->most_rx_queues = info.max_rx_queues;
	device->most_tx_queues = info.max_tx_queues;
	device->least_mtu = info.min_mtu;
	device->most_mtu = info.max_mtu;
	device->reta_size = info.reta_size;
	device->rx_slots = info.rx_desc_lim.nb_max;
	device->tx_slots = info.tx_desc_lim.nb_max;
	device->key_bytes = info.hash_key_size;
	struct rte_ether_addr mac;
	if (rte_eth_macaddr_get(port, &mac) == 0)
		memcpy(device->mac, mac.addr_bytes, sizeof(device->mac));
	return 0;
}

int brickway_dpdk_start(uint16_t port, const struct brickway_dpdk_setup *setup, const char **step)
{
	struct rte_eth_conf configuration;
	memset(&configuration, 0, sizeof(configuration));
	if (setup->mtu != 0)
		configuration.rxmode.mtu = setup->mtu;
	if (setup->rss_fields != 0) {
		configuration.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		configuration.rx_adv_conf.rss_conf.rss_hf = setup->rss_fields;
		configuration.rx_adv_conf.rss_conf.rss_key = (uint8_t *)(uintptr_t)setup->key;
		configuration.rx_adv_conf.rss_conf.rss_key_len = (uint8_t)setup->key_bytes;
	}
	*step = "configuring the device";
	int result = rte_eth_dev_configure(port, setup->rx_queues, setup->tx_queues, &configuration);
	if (result < 0)
		return result;
	if (setup->mtu != 0) {
		/* Some drivers take it by this way only. */
		*step = "setting the MTU";
		result = rte_eth_dev_set_mtu(port, setup->mtu);
		if (result < 0 && result != -ENOTSUP)
			return result;
	}
	uint16_t rx_slots = setup->rx_slots, tx_slots = setup->tx_slots;
	*step = "choosing the length of the rings";
	result = rte_eth_dev_adjust_nb_rx_tx_desc(port, &rx_slots, &tx_slots);
	if (result < 0)
		return result;
	*step = "setting up a receive queue";
	for (uint16_t queue = 0; queue < setup->rx_queues; queue++) {
		result = rte_eth_rx_queue_setup(port, queue, rx_slots, rte_eth_dev_socket_id(port), NULL, setup->pool);
		if (result < 0)
			return result;
	}
	*step = "setting up a transmit queue";
	for (uint16_t queue = 0; queue < setup->tx_queues; queue++) {
		result = rte_eth_tx_queue_setup(port, queue, tx_slots, rte_eth_dev_socket_id(port), NULL);
		if (result < 0)
			return result;
	}
	*step = "starting the device";
	result = rte_eth_dev_start(port);
	if (result < 0)
		return result;
	if (setup->rss_fields != 0 && setup->key != NULL) {
		*step = "setting the hash key";
		result = brickway_dpdk_set_hash(port, setup->key, (uint8_t)setup->key_bytes, setup->rss_fields);
		if (result < 0 && result != -ENOTSUP)
			return result;
	}
	rte_eth_dev_set_link_up(port);
	rte_eth_stats_reset(port);
	return 0;
}

/* Also a device that was probed and not started. */
void brickway_dpdk_close(uint16_t port)
{
	struct rte_eth_dev_info info;
	struct rte_device *device = rte_eth_dev_info_get(port, &info) == 0 ? info.device : NULL;
	rte_eth_dev_stop(port);
	rte_eth_dev_close(port);
	if (device != NULL)
		rte_dev_remove(device);
}

int brickway_dpdk_mtu(uint16_t port, uint16_t *mtu)
{
	return rte_eth_dev_get_mtu(port, mtu);
}

int brickway_dpdk_promiscuous(uint16_t port)
{
	return rte_eth_promiscuous_enable(port);
}

int brickway_dpdk_all_multicast(uint16_t port)
{
	return rte_eth_allmulticast_enable(port);
}

/* 1: the link is up. */
int brickway_dpdk_link(uint16_t port, uint32_t *megabits)
{
	struct rte_eth_link link;
	int result = rte_eth_link_get_nowait(port, &link);
	if (result < 0)
		return result;
	*megabits = link.link_speed;
	return link.link_status;
}

int brickway_dpdk_counts(uint16_t port, struct brickway_dpdk_counts *counts)
{
	struct rte_eth_stats stats;
	int result = rte_eth_stats_get(port, &stats);
	if (result < 0)
		return result;
	counts->missed = stats.imissed;
	counts->receive_errors = stats.ierrors;
	counts->no_mbuf = stats.rx_nombuf;
	counts->send_errors = stats.oerrors;
	return 0;
}

/* Buckets beyond what fits here do not exist in any device of this release (the largest table has 2,048). */
#define GROUPS (RTE_ETH_RSS_RETA_SIZE_512 * 4 / RTE_ETH_RETA_GROUP_SIZE)

int brickway_dpdk_reta(uint16_t port, uint16_t *queues, uint16_t size)
{
	struct rte_eth_rss_reta_entry64 groups[GROUPS];
	if (size > GROUPS * RTE_ETH_RETA_GROUP_SIZE)
		return -E2BIG;
	memset(groups, 0, sizeof(groups));
	for (unsigned group = 0; group < GROUPS; group++)
		groups[group].mask = UINT64_MAX;
	int result = rte_eth_dev_rss_reta_query(port, groups, size);
	if (result < 0)
		return result;
	for (unsigned bucket = 0; bucket < size; bucket++)
		queues[bucket] = groups[bucket / RTE_ETH_RETA_GROUP_SIZE].reta[bucket % RTE_ETH_RETA_GROUP_SIZE];
	return 0;
}

int brickway_dpdk_set_reta(uint16_t port, const uint16_t *queues, uint16_t size)
{
	struct rte_eth_rss_reta_entry64 groups[GROUPS];
	if (size > GROUPS * RTE_ETH_RETA_GROUP_SIZE)
		return -E2BIG;
	memset(groups, 0, sizeof(groups));
	for (unsigned bucket = 0; bucket < size; bucket++) {
		groups[bucket / RTE_ETH_RETA_GROUP_SIZE].mask |= UINT64_C(1) << (bucket % RTE_ETH_RETA_GROUP_SIZE);
		groups[bucket / RTE_ETH_RETA_GROUP_SIZE].reta[bucket % RTE_ETH_RETA_GROUP_SIZE] = queues[bucket];
	}
	return rte_eth_dev_rss_reta_update(port, groups, size);
}

int brickway_dpdk_set_hash(uint16_t port, const uint8_t *key, uint8_t key_bytes, uint64_t fields)
{
	struct rte_eth_rss_conf hash = {
		.rss_key = (uint8_t *)(uintptr_t)key,
		.rss_key_len = key_bytes,
		.rss_hf = fields,
	};
	return rte_eth_dev_rss_hash_update(port, &hash);
}

int brickway_dpdk_hash(uint16_t port, uint8_t *key, uint8_t key_bytes, uint64_t *fields)
{
	struct rte_eth_rss_conf hash = { .rss_key = key, .rss_key_len = key_bytes };
	int result = rte_eth_dev_rss_hash_conf_get(port, &hash);
	*fields = hash.rss_hf;
	return result;
}

/* Address and mask in host order. */
int brickway_dpdk_steer(uint16_t port, uint32_t address, uint32_t mask, uint16_t queue, char *problem, size_t room)
{
	struct rte_flow_attr attributes = { .ingress = 1 };
	struct rte_flow_item_ipv4 wanted, bits;
	memset(&wanted, 0, sizeof(wanted));
	memset(&bits, 0, sizeof(bits));
	wanted.hdr.dst_addr = rte_cpu_to_be_32(address);
	bits.hdr.dst_addr = rte_cpu_to_be_32(mask);
	struct rte_flow_item pattern[] = {
		{ .type = RTE_FLOW_ITEM_TYPE_ETH },
		{ .type = RTE_FLOW_ITEM_TYPE_IPV4, .spec = &wanted, .mask = &bits },
		{ .type = RTE_FLOW_ITEM_TYPE_END },
	};
	struct rte_flow_action_queue to = { .index = queue };
	struct rte_flow_action actions[] = {
		{ .type = RTE_FLOW_ACTION_TYPE_QUEUE, .conf = &to },
		{ .type = RTE_FLOW_ACTION_TYPE_END },
	};
	struct rte_flow_error error;
	memset(&error, 0, sizeof(error));
	if (rte_flow_create(port, &attributes, pattern, actions, &error) != NULL)
		return 0;
	int result = rte_errno ? -rte_errno : -EINVAL;
	snprintf(problem, room, "%s", error.message ? error.message : rte_strerror(-result));
	return result;
}

uint16_t brickway_dpdk_receive(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count)
{
	return rte_eth_rx_burst(port, queue, mbufs, count);
}

uint16_t brickway_dpdk_send(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count)
{
	return rte_eth_tx_burst(port, queue, mbufs, count);
}

/* As many as there are. */
uint16_t brickway_dpdk_allocate(struct rte_mempool *pool, struct rte_mbuf **mbufs, uint16_t count)
{
	if (rte_pktmbuf_alloc_bulk(pool, mbufs, count) == 0)
		return count;
	for (uint16_t done = 0; done < count; done++) {
		mbufs[done] = rte_pktmbuf_alloc(pool);
		if (mbufs[done] == NULL)
			return done;
	}
	return count;
}

/* A copy of all segments, in one where they fit. */
struct rte_mbuf *brickway_dpdk_copy(struct rte_mbuf *mbuf, struct rte_mempool *pool)
{
	return rte_pktmbuf_copy(mbuf, pool, 0, UINT32_MAX);
}

void brickway_dpdk_free(struct rte_mbuf *mbuf)
{
	rte_pktmbuf_free(mbuf);
}

unsigned brickway_dpdk_in_use(const struct rte_mempool *pool)
{
	return rte_mempool_in_use_count(pool);
}

int brickway_dpdk_ring(const char *name, uint32_t slots, int socket, struct rte_ring **ring)
{
	*ring = rte_ring_lookup(name);
	if (*ring != NULL)
		return 0;
	*ring = rte_ring_create(name, slots, socket, RING_F_EXACT_SZ);
	return *ring == NULL ? -rte_errno : 1;
}

unsigned brickway_dpdk_ring_receive(struct rte_ring *ring, struct rte_mbuf **mbufs, unsigned count)
{
	return rte_ring_dequeue_burst(ring, (void **)mbufs, count, NULL);
}

unsigned brickway_dpdk_ring_send(struct rte_ring *ring, struct rte_mbuf **mbufs, unsigned count)
{
	return rte_ring_enqueue_burst(ring, (void **)mbufs, count, NULL);
}
