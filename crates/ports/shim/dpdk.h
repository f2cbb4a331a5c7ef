/* What the DPDK driver calls: DPDK's inline functions, one call a burst, and its structures in a few plain ones.
 *
 * Functions return 0 or a count, or the negative of an errno. The Rust side is src/dpdk/shim.rs; both change together.
 */
#ifndef BRICKWAY_DPDK_H
#define BRICKWAY_DPDK_H

#include <stddef.h>
#include <stdint.h>

struct rte_mbuf;
struct rte_mempool;
struct rte_ring;

/* What a device can do. */
struct brickway_dpdk_device {
	char driver[32];
	uint64_t rss_fields;
	uint64_t rx_offloads;
	uint64_t tx_offloads;
	int32_t socket;
	uint16_t port;
	uint16_t most_rx_queues;
	uint16_t most_tx_queues;
	uint16_t least_mtu;
	uint16_t most_mtu;
	uint16_t reta_size;
	uint16_t rx_slots;
	uint16_t tx_slots;
	uint8_t key_bytes;
	uint8_t mac[6];
	uint8_t spare;
};

/* How to set a device up. `mtu` 0: as it is. */
struct brickway_dpdk_setup {
	struct rte_mempool *pool;
	const uint8_t *key;
	uint64_t rss_fields;
	uint16_t rx_queues;
	uint16_t tx_queues;
	uint16_t rx_slots;
	uint16_t tx_slots;
	uint16_t mtu;
	uint16_t key_bytes;
};

/* Counts of a device since it was started. */
struct brickway_dpdk_counts {
	uint64_t missed;
	uint64_t receive_errors;
	uint64_t no_mbuf;
	uint64_t send_errors;
};

int brickway_dpdk_init(int argc, char **argv, int keep_log);
size_t brickway_dpdk_take_log(char *text, size_t room);
int brickway_dpdk_register_thread(void);
void brickway_dpdk_unregister_thread(void);

int brickway_dpdk_make_pool(const char *name, uint32_t mbufs, uint32_t cache, uint16_t metadata, uint16_t data_room,
			    int socket, struct rte_mempool **pool);

int brickway_dpdk_probe(const char *devargs, const char *name, struct brickway_dpdk_device *device);
int brickway_dpdk_start(uint16_t port, const struct brickway_dpdk_setup *setup, const char **step);
void brickway_dpdk_close(uint16_t port);
int brickway_dpdk_mtu(uint16_t port, uint16_t *mtu);
int brickway_dpdk_promiscuous(uint16_t port);
int brickway_dpdk_all_multicast(uint16_t port);
int brickway_dpdk_link(uint16_t port, uint32_t *megabits);
int brickway_dpdk_counts(uint16_t port, struct brickway_dpdk_counts *counts);

int brickway_dpdk_reta(uint16_t port, uint16_t *queues, uint16_t size);
int brickway_dpdk_set_reta(uint16_t port, const uint16_t *queues, uint16_t size);
int brickway_dpdk_set_hash(uint16_t port, const uint8_t *key, uint8_t key_bytes, uint64_t fields);
int brickway_dpdk_hash(uint16_t port, uint8_t *key, uint8_t key_bytes, uint64_t *fields);
int brickway_dpdk_steer(uint16_t port, uint32_t address, uint32_t mask, uint16_t queue, char *problem, size_t room);

uint16_t brickway_dpdk_receive(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count);
uint16_t brickway_dpdk_send(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count);
uint16_t brickway_dpdk_allocate(struct rte_mempool *pool, struct rte_mbuf **mbufs, uint16_t count);
struct rte_mbuf *brickway_dpdk_copy(struct rte_mbuf *mbuf, struct rte_mempool *pool);
void brickway_dpdk_free(struct rte_mbuf *mbuf);
unsigned brickway_dpdk_in_use(const struct rte_mempool *pool);

int brickway_dpdk_ring(const char *name, uint32_t slots, int socket, struct rte_ring **ring);
unsigned brickway_dpdk_ring_receive(struct rte_ring *ring, struct rte_mbuf **mbufs, unsigned count);
unsigned brickway_dpdk_ring_send(struct rte_ring *ring, struct rte_mbuf **mbufs, unsigned count);

#endif
