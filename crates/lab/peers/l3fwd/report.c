/* Makes DPDK's example l3fwd measurable: answers each line on standard input with the packets that its ports received, those
 * that they sent, and the CPU time of its main thread, which forwards, in nanoseconds. */

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include <rte_ethdev.h>

static clockid_t main_clock;

static void *answer(void *unused)
{
	char line[64];

	while (fgets(line, sizeof line, stdin)) {
		struct timespec time = { 0, 0 };
		uint64_t received = 0, sent = 0;
		uint16_t port;

		clock_gettime(main_clock, &time);
		RTE_ETH_FOREACH_DEV(port) {
			struct rte_eth_stats stats;

			if (rte_eth_stats_get(port, &stats) == 0) {
				received += stats.ipackets;
				sent += stats.opackets;
			}
		}
		printf("forwarded %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", received, sent,
		       (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec);
		fflush(stdout);
	}
	return unused;
}

/* Runs in the main thread before main(). */
__attribute__((constructor)) static void begin(void)
{
	pthread_t thread;

	if (pthread_getcpuclockid(pthread_self(), &main_clock) == 0 && pthread_create(&thread, NULL, answer, NULL) == 0)
		pthread_detach(thread);
}
