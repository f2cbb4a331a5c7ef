/*
 * DPDK's lookup tables, measured from outside: one table in one process, driven by lines on standard input.
 *
 *   dpdk_tables rte_fib|rte_lpm|rte_fib6|rte_lpm6 [EAL options]
 *
 *   load FILE        makes the table           loaded SECONDS TABLE_BYTES HEAP_BYTES DESCRIPTION
 *                                              before it, now and then: progress DONE OF
 *   addresses FILE   what is looked up         addresses COUNT
 *   check batch      once over all of them     checksum NUMBER
 *   check single
 *   batch            as often as fits a run    rate LOOKUPS_PER_SECOND
 *   single
 *   updates FILE     changes routes and back   rate UPDATES_PER_SECOND
 *
 * Each command is answered by one line; "error TEXT" is a valid answer to all of them. The end of standard input ends
 * the process, and so does the death of its parent.
 *
 * Files hold what the parent wrote a moment ago on the same machine, so numbers are in its byte order. A route is 16
 * bytes of address, first byte first, then prefix length and next hop of 32 bits each. An address is 32 bits in host
 * order for IPv4, 16 bytes for IPv6, as the tables take them. An update is the number of a route, 32 bits.
 *
 * The loops that are timed are those of ours.rs, with what DPDK's own examples call in the place of our lookup: bursts
 * of 32 addresses in a row, next hops into an array that the compiler must believe is read. Time is CPU time of this
 * thread, so that what other programs take does not count.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_fib.h>
#include <rte_fib6.h>
#include <rte_lpm.h>
#include <rte_lpm6.h>
#include <rte_malloc.h>
#include <rte_version.h>

#define BURST 32
/* A run goes over all addresses again and again for at least so long. */
#define RUN_SECONDS 0.15
/* Changes of routes end after so long, even if the list is longer: rte_lpm searches its rules one by one. */
#define UPDATE_SECONDS 1.0
/* Groups of 256 entries beyond those that the routes need. */
#define SPARE_TBL8S 256
/* The next hop of addresses without a route; routes have others. */
#define NO_ROUTE 0

struct route {
	uint8_t address[16];
	uint32_t length;
	uint32_t next_hop;
};

enum engine { RTE_FIB_ENGINE, RTE_LPM_ENGINE, RTE_FIB6_ENGINE, RTE_LPM6_ENGINE };

static const char *const engine_names[] = { "rte_fib", "rte_lpm", "rte_fib6", "rte_lpm6" };

static enum engine engine;
static struct rte_fib *fib;
static struct rte_lpm *lpm;
static struct rte_fib6 *fib6;
static struct rte_lpm6 *lpm6;
static struct route *routes;
static size_t route_count;
static void *addresses;
static size_t address_count;
/* Standard output as the parent knows it; the EAL talks elsewhere. */
static FILE *answers;

static void answer(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void answer(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vfprintf(answers, format, arguments);
	va_end(arguments);
	fputc('\n', answers);
	fflush(answers);
}

static double seconds_of(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

static bool is_ipv6(void)
{
	return engine == RTE_FIB6_ENGINE || engine == RTE_LPM6_ENGINE;
}

/* Reads a file of records of `record` bytes; returns their number, or (size_t)-1. */
static size_t read_records(const char *path, size_t record, void **records)
{
	FILE *file = fopen(path, "rb");
	size_t count;
	long bytes;

	if (file == NULL)
		return (size_t)-1;
	fseek(file, 0, SEEK_END);
	bytes = ftell(file);
	rewind(file);
	count = bytes / record;
	free(*records);
	/* On a cache line, with room behind it: the lookups of 16 addresses read nothing else. */
	*records = aligned_alloc(64, (bytes + 64) / 64 * 64);
	if (*records == NULL || fread(*records, record, count, file) != count)
		count = (size_t)-1;
	fclose(file);
	return count;
}

static uint32_t ipv4(const struct route *route)
{
	const uint8_t *byte = route->address;

	return (uint32_t)byte[0] << 24 | byte[1] << 16 | byte[2] << 8 | byte[3];
}

/*
 * How many groups of 256 entries the routes need: one for every place at bit 24, 32, 40... that has a longer route.
 * Routes come in the order of their addresses, so those of one place stand together.
 */
static uint32_t tbl8s_needed(void)
{
	uint32_t needed = 0;
	unsigned int bytes;

	for (bytes = 3; bytes < (is_ipv6() ? 16 : 4); bytes++) {
		const struct route *last = NULL;
		size_t i;

		for (i = 0; i < route_count; i++) {
			if (routes[i].length <= bytes * 8)
				continue;
			if (last == NULL || memcmp(last->address, routes[i].address, bytes) != 0)
				needed++;
			last = &routes[i];
		}
	}
	return needed;
}

static size_t heap_bytes(void)
{
	struct rte_malloc_socket_stats stats;
	size_t bytes = 0;
	int socket;

	for (socket = 0; socket < RTE_MAX_NUMA_NODES; socket++)
		if (rte_malloc_get_socket_stats(socket, &stats) == 0)
			bytes += stats.heap_allocsz_bytes;
	return bytes;
}

static int set_route(const struct route *route, uint32_t next_hop)
{
	switch (engine) {
	case RTE_FIB_ENGINE:
		return rte_fib_add(fib, ipv4(route), route->length, next_hop);
	case RTE_LPM_ENGINE:
		return rte_lpm_add(lpm, ipv4(route), route->length, next_hop);
	case RTE_FIB6_ENGINE:
		return rte_fib6_add(fib6, route->address, route->length, next_hop);
	case RTE_LPM6_ENGINE:
		return rte_lpm6_add(lpm6, route->address, route->length, next_hop);
	}
	return -EINVAL;
}

/*
 * An empty table with room for the routes; describes it, and returns the bytes of what lookups read. Next hops of 2
 * bytes are the fastest that hold ours, but then there may be 32,767 groups of 256 entries at most.
 */
static size_t make_table(uint32_t tbl8s, char *description, size_t size)
{
	const uint32_t max_tbl8s_of_2_bytes = (1 << 15) - 1;
	const size_t tbl24_entries = 1 << 24;
	bool narrow = tbl8s <= max_tbl8s_of_2_bytes;
	const char *lookup = "scalar";
	size_t entry = sizeof(uint32_t);

	switch (engine) {
	case RTE_FIB_ENGINE: {
		struct rte_fib_conf conf = {
			.type = RTE_FIB_DIR24_8,
			.default_nh = NO_ROUTE,
			.max_routes = route_count,
			.dir24_8 = { narrow ? RTE_FIB_DIR24_8_2B : RTE_FIB_DIR24_8_4B, tbl8s },
		};

		fib = rte_fib_create("fib", SOCKET_ID_ANY, &conf);
		if (fib == NULL)
			return 0;
		if (rte_fib_select_lookup(fib, RTE_FIB_LOOKUP_DIR24_8_VECTOR_AVX512) == 0)
			lookup = "AVX-512";
		else
			rte_fib_select_lookup(fib, RTE_FIB_LOOKUP_DEFAULT);
		entry = narrow ? 2 : 4;
		break;
	}
	case RTE_LPM_ENGINE: {
		struct rte_lpm_config conf = { .max_rules = route_count, .number_tbl8s = tbl8s };

		lpm = rte_lpm_create("lpm", SOCKET_ID_ANY, &conf);
		if (lpm == NULL)
			return 0;
		break;
	}
	case RTE_FIB6_ENGINE: {
		struct rte_fib6_conf conf = {
			.type = RTE_FIB6_TRIE,
			.default_nh = NO_ROUTE,
			.max_routes = route_count,
			.trie = { narrow ? RTE_FIB6_TRIE_2B : RTE_FIB6_TRIE_4B, tbl8s },
		};

		fib6 = rte_fib6_create("fib6", SOCKET_ID_ANY, &conf);
		if (fib6 == NULL)
			return 0;
		if (rte_fib6_select_lookup(fib6, RTE_FIB6_LOOKUP_TRIE_VECTOR_AVX512) == 0)
			lookup = "AVX-512";
		else
			rte_fib6_select_lookup(fib6, RTE_FIB6_LOOKUP_DEFAULT);
		entry = narrow ? 2 : 4;
		break;
	}
	case RTE_LPM6_ENGINE: {
		struct rte_lpm6_config conf = { .max_rules = route_count, .number_tbl8s = tbl8s };

		lpm6 = rte_lpm6_create("lpm6", SOCKET_ID_ANY, &conf);
		if (lpm6 == NULL)
			return 0;
		break;
	}
	}
	snprintf(description, size, "%s, entries of %zu bytes, %s", lookup, entry,
		rte_eal_has_hugepages() ? "2 MB pages" : "no huge pages");
	return (tbl24_entries + (size_t)tbl8s * 256) * entry;
}

/* Adds all routes, or as many as the table takes; tells of its progress every second. */
static int add_routes(size_t *added, double *told)
{
	for (*added = 0; *added < route_count; ++*added) {
		const struct route *route = &routes[*added];
		int result = set_route(route, route->next_hop);

		if (result != 0)
			return result;
		if (*added % 1024 == 1023 && seconds_of(CLOCK_MONOTONIC) - *told > 1.0) {
			*told = seconds_of(CLOCK_MONOTONIC);
			answer("progress %zu %zu", *added, route_count);
		}
	}
	return 0;
}

static void load(const char *path)
{
	char description[128];
	double start, told;
	uint32_t tbl8s;
	size_t heap_before, table_bytes, added;
	int result;

	route_count = read_records(path, sizeof(struct route), (void **)&routes);
	if (route_count == (size_t)-1 || route_count == 0) {
		answer("error cannot read the routes in '%s'", path);
		return;
	}
	heap_before = heap_bytes();
	told = seconds_of(CLOCK_MONOTONIC);
	for (tbl8s = tbl8s_needed() + SPARE_TBL8S;; tbl8s += tbl8s / 4) {
		start = seconds_of(CLOCK_MONOTONIC);
		table_bytes = make_table(tbl8s, description, sizeof(description));
		if (table_bytes == 0) {
			answer("error %s refuses a table for %zu routes and %u groups of 256 entries: %s",
				engine_names[engine], route_count, tbl8s, rte_strerror(rte_errno));
			return;
		}
		result = add_routes(&added, &told);
		if (result == 0)
			break;
		/* rte_fib6 sets more groups aside than it uses; how many, only trying tells. */
		if (engine != RTE_FIB6_ENGINE || result != -ENOSPC) {
			answer("error %s refuses route %zu of %zu, length %u: %s", engine_names[engine], added + 1,
				route_count, routes[added].length, rte_strerror(-result));
			return;
		}
		rte_fib6_free(fib6);
	}
	answer("loaded %.6f %zu %zu %s", seconds_of(CLOCK_MONOTONIC) - start, table_bytes,
		heap_bytes() - heap_before, description);
}

/* Every next hop and its place in the row count; the same arithmetic as `Checksum` of engine.rs. */
static inline uint64_t add_to_checksum(uint64_t checksum, uint64_t next_hop)
{
	return (checksum ^ next_hop) * UINT64_C(0x100000001b3);
}

/* The compiler must believe that somebody reads all memory here. */
#define READ_BY_SOMEBODY(hops) __asm__ volatile("" : : "r"(hops) : "memory")

/*
 * A pass over all addresses in bursts, for a table whose next hops have the type HOP. LOOKUP looks up BURST addresses
 * from `from` into `hops`; HOP_OF gives what one of `hops` says, and is only evaluated when a checksum is wanted.
 */
#define DEFINE_BATCH(NAME, ADDRESS, HOP, LOOKUP, HOP_OF)											\
	static inline __attribute__((always_inline)) uint64_t NAME##_pass(bool check)					\
	{																								\
		ADDRESS *all = addresses;																	\
		uint64_t checksum = 0;																		\
		size_t i, k;																				\
																									\
		for (i = 0; i + BURST <= address_count; i += BURST) {										\
			ADDRESS *from = all + i;																\
			HOP hops[BURST] __attribute__((aligned(64)));											\
																									\
			LOOKUP;																					\
			READ_BY_SOMEBODY(hops);																	\
			for (k = 0; check && k < BURST; k++)													\
				checksum = add_to_checksum(checksum, HOP_OF(hops[k]));								\
		}																							\
		return checksum;																			\
	}																								\
	static uint64_t NAME##_timed(void) { return NAME##_pass(false); }								\
	static uint64_t NAME##_check(void) { return NAME##_pass(true); }

/* The same, one address after the other: LOOKUP looks up `*from` into `hop`. */
#define DEFINE_SINGLE(NAME, ADDRESS, HOP, LOOKUP, HOP_OF)											\
	static inline __attribute__((always_inline)) uint64_t NAME##_pass(bool check)					\
	{																								\
		ADDRESS *all = addresses;																	\
		uint64_t checksum = 0;																		\
		size_t i;																					\
																									\
		for (i = 0; i < address_count; i++) {														\
			ADDRESS *from = all + i;																\
			HOP hop;																				\
																									\
			LOOKUP;																					\
			READ_BY_SOMEBODY(&hop);																	\
			if (check)																				\
				checksum = add_to_checksum(checksum, HOP_OF(hop));									\
		}																							\
		return checksum;																			\
	}																								\
	static uint64_t NAME##_timed(void) { return NAME##_pass(false); }								\
	static uint64_t NAME##_check(void) { return NAME##_pass(true); }

typedef uint8_t address6[16];

#define AS_IS(hop) (hop)
/* rte_lpm marks the entries that are answers. */
#define IF_SUCCESS(hop) ((hop) & RTE_LPM_LOOKUP_SUCCESS ? (hop) & 0xffffff : NO_ROUTE)
/* rte_lpm6 answers -1 for no route. */
#define OR_NO_ROUTE(hop) ((hop) < 0 ? NO_ROUTE : (uint64_t)(hop))

static inline __attribute__((always_inline)) void lookup_by_four(const uint32_t *from, uint32_t *hops)
{
	int k;

	for (k = 0; k < BURST; k += 4)
		rte_lpm_lookupx4(lpm, _mm_loadu_si128((const __m128i *)(from + k)), hops + k, NO_ROUTE);
}

DEFINE_BATCH(fib_batch, uint32_t, uint64_t, rte_fib_lookup_bulk(fib, from, hops, BURST), AS_IS)
DEFINE_SINGLE(fib_single, uint32_t, uint64_t, rte_fib_lookup_bulk(fib, from, &hop, 1), AS_IS)
DEFINE_BATCH(lpm_batch, uint32_t, uint32_t, rte_lpm_lookup_bulk(lpm, from, hops, BURST), IF_SUCCESS)
DEFINE_BATCH(lpm_by_four, uint32_t, uint32_t, lookup_by_four(from, hops), AS_IS)
DEFINE_SINGLE(lpm_single, uint32_t, uint32_t,
	hop = rte_lpm_lookup(lpm, *from, &hop) == 0 ? hop : NO_ROUTE, AS_IS)
DEFINE_BATCH(fib6_batch, address6, uint64_t, rte_fib6_lookup_bulk(fib6, from, hops, BURST), AS_IS)
DEFINE_SINGLE(fib6_single, address6, uint64_t, rte_fib6_lookup_bulk(fib6, from, &hop, 1), AS_IS)
DEFINE_BATCH(lpm6_batch, address6, int32_t, rte_lpm6_lookup_bulk_func(lpm6, from, hops, BURST), OR_NO_ROUTE)
DEFINE_SINGLE(lpm6_single, address6, int32_t,
	hop = rte_lpm6_lookup(lpm6, *from, (uint32_t *)&hop) == 0 ? hop : -1, OR_NO_ROUTE)

struct loop {
	uint64_t (*timed)(void);
	uint64_t (*check)(void);
};

/*
 * By engine: batched, batched in another way, one by one. rte_lpm has two ways: the lookup of four is the faster one
 * from the caches, the bulk lookup from memory (100 and 180 million a second); the better one counts.
 */
static const struct {
	struct loop batch, other_batch, single;
} loops[] = {
	[RTE_FIB_ENGINE] = { .batch = { fib_batch_timed, fib_batch_check },
		.single = { fib_single_timed, fib_single_check } },
	[RTE_LPM_ENGINE] = { .batch = { lpm_batch_timed, lpm_batch_check },
		.other_batch = { lpm_by_four_timed, lpm_by_four_check },
		.single = { lpm_single_timed, lpm_single_check } },
	[RTE_FIB6_ENGINE] = { .batch = { fib6_batch_timed, fib6_batch_check },
		.single = { fib6_single_timed, fib6_single_check } },
	[RTE_LPM6_ENGINE] = { .batch = { lpm6_batch_timed, lpm6_batch_check },
		.single = { lpm6_single_timed, lpm6_single_check } },
};

static double rate_of(struct loop loop)
{
	double start, elapsed;
	uint64_t lookups = 0;

	/* Once to bring the table into the caches, as far as it goes. */
	loop.timed();
	start = seconds_of(CLOCK_THREAD_CPUTIME_ID);
	do {
		loop.timed();
		lookups += address_count;
		elapsed = seconds_of(CLOCK_THREAD_CPUTIME_ID) - start;
	} while (elapsed < RUN_SECONDS);
	return lookups / elapsed;
}

static void measure(bool single)
{
	double rate = rate_of(single ? loops[engine].single : loops[engine].batch);

	if (!single && loops[engine].other_batch.timed != NULL) {
		double other = rate_of(loops[engine].other_batch);

		rate = other > rate ? other : rate;
	}
	answer("rate %.0f", rate);
}

static void check(bool single)
{
	uint64_t checksum = single ? loops[engine].single.check() : loops[engine].batch.check();

	if (!single && loops[engine].other_batch.check != NULL && loops[engine].other_batch.check() != checksum)
		answer("error the two batched lookups of %s give different next hops", engine_names[engine]);
	else
		answer("checksum %" PRIu64, checksum);
}

/* Gives routes another next hop, then their own again: afterwards the table is as it was. */
static void update(const char *path)
{
	uint32_t *order = NULL;
	size_t count = read_records(path, sizeof(*order), (void **)&order), changed, i;
	double start = seconds_of(CLOCK_THREAD_CPUTIME_ID), elapsed;

	if (count == (size_t)-1) {
		answer("error cannot read the updates in '%s'", path);
		return;
	}
	for (changed = 0; changed < count; changed++) {
		const struct route *route = &routes[order[changed] % route_count];

		if (set_route(route, route->next_hop + 1) != 0)
			break;
		if (changed % 64 == 63 && seconds_of(CLOCK_THREAD_CPUTIME_ID) - start > UPDATE_SECONDS)
			count = changed + 1;
	}
	for (i = 0; i < changed; i++) {
		const struct route *route = &routes[order[i] % route_count];

		if (set_route(route, route->next_hop) != 0)
			break;
	}
	elapsed = seconds_of(CLOCK_THREAD_CPUTIME_ID) - start;
	free(order);
	if (i == 0 || i < count)
		answer("error %s refuses a change of a route", engine_names[engine]);
	else
		answer("rate %.0f", (changed + i) / elapsed);
}

static void obey(char *line)
{
	char *argument;

	line[strcspn(line, "\n")] = 0;
	argument = strchr(line, ' ');
	if (argument != NULL)
		*argument++ = 0;
	else
		argument = "";
	if (strcmp(line, "load") == 0) {
		load(argument);
	} else if (route_count == 0 || route_count == (size_t)-1) {
		answer("error load routes first");
	} else if (strcmp(line, "addresses") == 0) {
		address_count = read_records(argument, is_ipv6() ? 16 : 4, &addresses);
		if (address_count == (size_t)-1)
			answer("error cannot read the addresses in '%s'", argument);
		else
			answer("addresses %zu", address_count);
	} else if (strcmp(line, "check") == 0) {
		check(strcmp(argument, "single") == 0);
	} else if (strcmp(line, "batch") == 0 || strcmp(line, "single") == 0) {
		measure(strcmp(line, "single") == 0);
	} else if (strcmp(line, "updates") == 0) {
		update(argument);
	} else {
		answer("error no command '%s'", line);
	}
}

/* The lcore may run on every CPU that this process may: EAL's own choice would ignore what taskset said. */
static char *lcores_option(void)
{
	char *text = malloc(16 + 8 * CPU_SETSIZE), *end = text;
	cpu_set_t allowed;
	int cpu;

	if (text == NULL || sched_getaffinity(0, sizeof(allowed), &allowed) != 0)
		return NULL;
	end += sprintf(end, "--lcores=0@(");
	for (cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &allowed))
			end += sprintf(end, "%d,", cpu);
	end[-1] = ')';
	return text;
}

int main(int argument_count, char **arguments)
{
	/* The program's name, ours, and what the parent gave. */
	char *eal_arguments[32] = { arguments[0], lcores_option() };
	char line[4096];
	int i;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	answers = fdopen(dup(STDOUT_FILENO), "w");
	if (answers == NULL || dup2(STDERR_FILENO, STDOUT_FILENO) < 0 || eal_arguments[1] == NULL)
		return 2;
	for (engine = RTE_FIB_ENGINE; engine <= RTE_LPM6_ENGINE; engine++)
		if (argument_count >= 2 && strcmp(arguments[1], engine_names[engine]) == 0)
			break;
	if (engine > RTE_LPM6_ENGINE || argument_count > 30) {
		answer("error the first argument is rte_fib, rte_lpm, rte_fib6 or rte_lpm6");
		return 2;
	}
	for (i = 2; i < argument_count; i++)
		eal_arguments[i] = arguments[i];
	if (rte_eal_init(argument_count, eal_arguments) < 0) {
		answer("error DPDK's environment does not start: %s", rte_strerror(rte_errno));
		return 1;
	}
	answer("ready %s", rte_version());
	while (fgets(line, sizeof(line), stdin) != NULL)
		obey(line);
	rte_eal_cleanup();
	return 0;
}
