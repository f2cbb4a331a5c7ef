// The kernel's side of the veth cases of `brickway-lab bench io`: a source, a sink, and the XDP redirect that routers
// are compared with. Plain bpf(2): it needs the kernel's headers and no library (Linux 5.18 for the source's frames).
//
//   veth_ends source NAMESPACE INTERFACE CPU SOURCE-MAC DESTINATION-MAC SOURCE-IP DESTINATIONS BYTES
//       sends UDP frames of so many bytes out of the interface, as fast as it can until it is told to take its time; the
//       file DESTINATIONS has an address a line, of the source's family, and a frame goes to each in turn
//   veth_ends sink NAMESPACE INTERFACE
//       drops IPv4 and UDP over IPv6 that come in by the interface, in XDP, and leaves the rest to the kernel
//   veth_ends redirect NAMESPACE INTERFACE OUT-INTERFACE
//       sends these from one interface to the other, in XDP
//
// It answers "ready", or "error REASON" and ends. Then each line on standard input gives "count N": the frames of its
// program so far. A line with a number also sets the nanoseconds from one frame of the source to the next, 0 for none. It
// ends with its standard input, and its programs with it.

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { HEADERS = 60, MOST_BYTES = 1514, FRAMES_A_CALL = 1 << 30, MOST_DESTINATIONS = 1 << 20 };

static void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    printf("error ");
    vprintf(format, arguments);
    printf("\n");
    va_end(arguments);
    fflush(stdout);
    exit(1);
}

static int bpf(enum bpf_cmd command, union bpf_attr *attr) {
    return (int)syscall(SYS_bpf, command, attr, sizeof *attr);
}

// One instruction of BPF.
#define OP(CODE, DST, SRC, OFF, IMM) \
    ((struct bpf_insn){.code = (CODE), .dst_reg = (DST), .src_reg = (SRC), .off = (OFF), .imm = (IMM)})
#define LOAD(SIZE, DST, SRC, OFF) OP(BPF_LDX | BPF_MEM | (SIZE), DST, SRC, OFF, 0)
#define SET(DST, IMM) OP(BPF_ALU64 | BPF_MOV | BPF_K, DST, 0, 0, IMM)
#define COPY(DST, SRC) OP(BPF_ALU64 | BPF_MOV | BPF_X, DST, SRC, 0, 0)
#define ADD(DST, IMM) OP(BPF_ALU64 | BPF_ADD | BPF_K, DST, 0, 0, IMM)
#define CALL(FUNCTION) OP(BPF_JMP | BPF_CALL, 0, 0, 0, FUNCTION)
#define EXIT OP(BPF_JMP | BPF_EXIT, 0, 0, 0, 0)

struct program {
    struct bpf_insn code[128];
    int length;
};

static void add(struct program *program, struct bpf_insn instruction) {
    program->code[program->length++] = instruction;
}

// Leaves the frame's start in r2. A frame shorter than `bytes` is passed on to the kernel.
static void begin(struct program *program, int bytes) {
    add(program, LOAD(BPF_W, 2, 1, offsetof(struct xdp_md, data)));
    add(program, LOAD(BPF_W, 3, 1, offsetof(struct xdp_md, data_end)));
    add(program, COPY(4, 2));
    add(program, ADD(4, bytes));
    add(program, OP(BPF_JMP | BPF_JLE | BPF_X, 4, 3, 2, 0));
    add(program, SET(0, XDP_PASS));
    add(program, EXIT);
}

// Passes what is neither IPv4 nor UDP over IPv6 on to the kernel: it answers ARP and neighbour discovery.
static void only_traffic(struct program *program) {
    begin(program, 21);
    add(program, LOAD(BPF_H, 5, 2, 12));
    add(program, OP(BPF_JMP | BPF_JEQ | BPF_K, 5, 0, 5, htons(0x0800)));
    add(program, OP(BPF_JMP | BPF_JNE | BPF_K, 5, 0, 2, htons(0x86dd)));
    add(program, LOAD(BPF_B, 5, 2, 20));
    add(program, OP(BPF_JMP | BPF_JEQ | BPF_K, 5, 0, 2, IPPROTO_UDP));
    add(program, SET(0, XDP_PASS));
    add(program, EXIT);
}

// Adds one to the counter.
static void count_one(struct program *program, int map) {
    add(program, OP(BPF_LD | BPF_DW | BPF_IMM, 1, BPF_PSEUDO_MAP_VALUE, 0, map));
    add(program, OP(0, 0, 0, 0, 0));
    add(program, SET(5, 1));
    add(program, OP(BPF_STX | BPF_ATOMIC | BPF_DW, 1, 5, 0, BPF_ADD));
}

static void redirect_to(struct program *program, int interface) {
    add(program, SET(1, interface));
    add(program, SET(2, 0));
    add(program, CALL(BPF_FUNC_redirect));
    add(program, EXIT);
}

static int load(const struct program *program) {
    static char log[65536];
    union bpf_attr attr = {.prog_type = BPF_PROG_TYPE_XDP};
    attr.insns = (uintptr_t)program->code;
    attr.insn_cnt = program->length;
    attr.license = (uintptr_t) "GPL";
    attr.log_buf = (uintptr_t)log;
    attr.log_size = sizeof log;
    attr.log_level = 1;
    int fd = bpf(BPF_PROG_LOAD, &attr);
    if (fd < 0) fail("the kernel does not load an XDP program: %s %s", strerror(errno), log);
    return fd;
}

// A link of its own ends with this process, however that ends (Linux 5.9).
static void attach(int program, const char *interface) {
    union bpf_attr attr = {0};
    attr.link_create.prog_fd = program;
    attr.link_create.target_ifindex = if_nametoindex(interface);
    attr.link_create.attach_type = BPF_XDP;
    attr.link_create.flags = XDP_FLAGS_DRV_MODE;
    if (bpf(BPF_LINK_CREATE, &attr) < 0) fail("cannot attach an XDP program to %s: %s", interface, strerror(errno));
}

static int counter;

// How the source takes its time.
static struct pace {
    uint64_t interval;
    uint64_t next;
    uint64_t destination;
} pace;
static int pace_map;

// The source has frames all the time, and sends those that are due. After a pause it goes on; it does not catch up.
static void send_when_due(struct program *program) {
    enum { PAUSE = 100000 };
    add(program, COPY(7, 1));
    add(program, OP(BPF_LD | BPF_DW | BPF_IMM, 6, BPF_PSEUDO_MAP_VALUE, 0, pace_map));
    add(program, OP(0, 0, 0, 0, 0));
    add(program, LOAD(BPF_DW, 8, 6, offsetof(struct pace, interval)));
    add(program, OP(BPF_JMP | BPF_JEQ | BPF_K, 8, 0, 11, 0));
    add(program, CALL(BPF_FUNC_ktime_get_ns));
    add(program, LOAD(BPF_DW, 9, 6, offsetof(struct pace, next)));
    add(program, OP(BPF_JMP | BPF_JGE | BPF_X, 0, 9, 2, 0));
    add(program, SET(0, XDP_DROP));
    add(program, EXIT);
    add(program, OP(BPF_ALU64 | BPF_ADD | BPF_X, 9, 8, 0, 0));
    add(program, COPY(2, 9));
    add(program, ADD(2, PAUSE));
    add(program, OP(BPF_JMP | BPF_JGE | BPF_X, 2, 0, 1, 0));
    add(program, COPY(9, 0));
    add(program, OP(BPF_STX | BPF_MEM | BPF_DW, 6, 9, offsetof(struct pace, next), 0));
    add(program, COPY(1, 7));
}

// What differs between the frames of the source.
union destination {
    struct {
        uint32_t address;
        uint16_t checksum;
    } ipv4;
    uint64_t ipv6[2];
};

// Puts the next destination into the frame at r2. r6 points to the pace.
static void send_to_next(struct program *program, int map, int count, int family) {
    add(program, LOAD(BPF_DW, 8, 6, offsetof(struct pace, destination)));
    add(program, OP(BPF_JMP | BPF_JLT | BPF_K, 8, 0, 1, count));
    add(program, SET(8, 0));
    add(program, COPY(9, 8));
    add(program, ADD(9, 1));
    add(program, OP(BPF_STX | BPF_MEM | BPF_DW, 6, 9, offsetof(struct pace, destination), 0));
    add(program, OP(BPF_ALU64 | BPF_MUL | BPF_K, 8, 0, 0, sizeof(union destination)));
    add(program, OP(BPF_LD | BPF_DW | BPF_IMM, 9, BPF_PSEUDO_MAP_VALUE, 0, map));
    add(program, OP(0, 0, 0, 0, 0));
    add(program, OP(BPF_ALU64 | BPF_ADD | BPF_X, 9, 8, 0, 0));
    if (family == AF_INET) {
        add(program, LOAD(BPF_W, 5, 9, offsetof(union destination, ipv4.address)));
        add(program, OP(BPF_STX | BPF_MEM | BPF_W, 2, 5, 30, 0));
        add(program, LOAD(BPF_H, 5, 9, offsetof(union destination, ipv4.checksum)));
        add(program, OP(BPF_STX | BPF_MEM | BPF_H, 2, 5, 24, 0));
    } else {
        for (int half = 0; half < 16; half += 8) {
            add(program, LOAD(BPF_DW, 5, 9, half));
            add(program, OP(BPF_STX | BPF_MEM | BPF_DW, 2, 5, 38 + half, 0));
        }
    }
}

static void set_value(int map, const void *value) {
    uint32_t key = 0;
    union bpf_attr attr = {.map_fd = map};
    attr.key = (uintptr_t)&key;
    attr.value = (uintptr_t)value;
    if (bpf(BPF_MAP_UPDATE_ELEM, &attr) < 0) fail("cannot write a BPF map: %s", strerror(errno));
}

static int make_map(int value_bytes) {
    union bpf_attr attr = {.map_type = BPF_MAP_TYPE_ARRAY};
    attr.key_size = 4;
    attr.value_size = value_bytes;
    attr.max_entries = 1;
    int fd = bpf(BPF_MAP_CREATE, &attr);
    if (fd < 0) fail("the kernel makes no BPF map: %s", strerror(errno));
    return fd;
}

static uint64_t counted(void) {
    uint32_t key = 0;
    uint64_t value = 0;
    union bpf_attr attr = {.map_fd = counter};
    attr.key = (uintptr_t)&key;
    attr.value = (uintptr_t)&value;
    if (bpf(BPF_MAP_LOOKUP_ELEM, &attr) < 0) fail("cannot read the counter: %s", strerror(errno));
    return value;
}

static void *answer(void *nothing) {
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        char *end;
        uint64_t interval = strtoull(line, &end, 10);
        if (end != line) {
            pace.interval = interval;
            set_value(pace_map, &pace);
        }
        printf("count %llu\n", (unsigned long long)counted());
        fflush(stdout);
    }
    exit(0);
    return nothing;
}

static void parse_mac(const char *text, uint8_t *mac) {
    unsigned bytes[6];
    if (sscanf(text, "%x:%x:%x:%x:%x:%x", bytes, bytes + 1, bytes + 2, bytes + 3, bytes + 4, bytes + 5) != 6)
        fail("'%s' is no link address", text);
    for (int i = 0; i < 6; i++) mac[i] = bytes[i];
}

static int family_of(const char *address) { return strchr(address, ':') ? AF_INET6 : AF_INET; }

static void parse_address(int family, const char *text, void *address) {
    if (inet_pton(family, text, address) != 1) fail("'%s' is no IPv%d address", text, family == AF_INET ? 4 : 6);
}

static void put16(uint8_t *place, int value) {
    place[0] = value >> 8;
    place[1] = value;
}

// A frame of so many bytes without destination.
static void make_frame(uint8_t *frame, int bytes, int family, char **words) {
    memset(frame, 0, bytes);
    parse_mac(words[1], frame);
    parse_mac(words[0], frame + 6);
    uint8_t *ip = frame + 14, *udp;
    if (family == AF_INET) {
        frame[12] = 8;
        ip[0] = 0x45;
        put16(ip + 2, bytes - 14);
        ip[8] = 64;
        ip[9] = IPPROTO_UDP;
        parse_address(family, words[2], ip + 12);
        udp = ip + 20;
    } else {
        frame[12] = 0x86;
        frame[13] = 0xdd;
        ip[0] = 0x60;
        put16(ip + 4, bytes - 54);
        ip[6] = IPPROTO_UDP;
        ip[7] = 64;
        parse_address(family, words[2], ip + 8);
        udp = ip + 40;
    }
    udp[0] = 0x10;
    udp[2] = 0x20;
    put16(udp + 4, frame + bytes - udp);
}

// The checksum of the frame's IPv4 header with this destination, in network order.
static uint16_t checksum_to(const uint8_t *frame, uint32_t destination) {
    uint8_t ip[20];
    memcpy(ip, frame + 14, 20);
    memcpy(ip + 16, &destination, 4);
    uint32_t sum = 0;
    for (int i = 0; i < 20; i += 2) sum += ip[i] << 8 | ip[i + 1];
    while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
    return htons(~sum);
}

// Reads the destinations of the frames into a map; returns how many there are.
static int read_destinations(const char *path, int family, const uint8_t *frame, int *map) {
    FILE *file = fopen(path, "r");
    if (!file) fail("cannot read %s: %s", path, strerror(errno));
    union destination *all = calloc(MOST_DESTINATIONS, sizeof *all);
    int count = 0;
    char line[64];
    while (count < MOST_DESTINATIONS && fgets(line, sizeof line, file)) {
        union destination *next = &all[count++];
        line[strcspn(line, "\n")] = 0;
        parse_address(family, line, next);
        if (family == AF_INET) next->ipv4.checksum = checksum_to(frame, next->ipv4.address);
    }
    fclose(file);
    if (count == 0) fail("%s has no destination", path);
    *map = make_map(count * sizeof *all);
    set_value(*map, all);
    free(all);
    return count;
}

static void run_source(const char *interface, char **words) {
    int cpu = atoi(words[0]), family = family_of(words[3]), destinations;
    int bytes = atoi(words[5]);
    if (bytes < HEADERS || bytes > MOST_BYTES) fail("frames of %s bytes; expected %d to %d", words[5], HEADERS, MOST_BYTES);
    uint8_t frame[MOST_BYTES];
    make_frame(frame, bytes, family, words + 1);
    int count = read_destinations(words[4], family, frame, &destinations);
    struct program program = {0};
    send_when_due(&program);
    begin(&program, HEADERS);
    // The kernel uses frames again as routers left them, with another time to live.
    for (int offset = 0; offset < HEADERS; offset += 4) {
        int32_t word;
        memcpy(&word, frame + offset, 4);
        add(&program, OP(BPF_ST | BPF_MEM | BPF_W, 2, 0, offset, word));
    }
    send_to_next(&program, destinations, count, family);
    count_one(&program, counter);
    redirect_to(&program, if_nametoindex(interface));
    int fd = load(&program);
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set) < 0) fail("cannot use CPU %d: %s", cpu, strerror(errno));
    union bpf_attr attr = {0};
    attr.test.prog_fd = fd;
    attr.test.data_in = (uintptr_t)frame;
    attr.test.data_size_in = bytes;
    attr.test.flags = BPF_F_TEST_XDP_LIVE_FRAMES;
    attr.test.batch_size = 64;
    attr.test.repeat = 64;
    if (bpf(BPF_PROG_TEST_RUN, &attr) < 0) fail("the kernel sends no frames of a program: %s", strerror(errno));
    attr.test.repeat = FRAMES_A_CALL;
    printf("ready\n");
    fflush(stdout);
    // Interrupted calls and full rings are part of the game; what arrives is counted elsewhere.
    for (;;) bpf(BPF_PROG_TEST_RUN, &attr);
}

int main(int count, char **words) {
    if (count < 4) fail("usage: veth_ends source|sink|redirect NAMESPACE INTERFACE ...");
    const char *role = words[1], *interface = words[3];
    // With the bench, also when that is killed.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct rlimit unlimited = {RLIM_INFINITY, RLIM_INFINITY};
    setrlimit(RLIMIT_MEMLOCK, &unlimited);
    char path[256];
    snprintf(path, sizeof path, "/run/netns/%s", words[2]);
    int namespace = open(path, O_RDONLY | O_CLOEXEC);
    if (namespace < 0 || setns(namespace, CLONE_NEWNET) < 0)
        fail("cannot enter the namespace %s: %s", words[2], strerror(errno));
    if (if_nametoindex(interface) == 0) fail("%s has no interface %s", words[2], interface);
    counter = make_map(sizeof(uint64_t));
    pace_map = make_map(sizeof(struct pace));
    pthread_t thread;
    if (pthread_create(&thread, NULL, answer, NULL) != 0) fail("no thread");
    if (strcmp(role, "source") == 0 && count == 10) run_source(interface, words + 4);
    struct program program = {0};
    only_traffic(&program);
    count_one(&program, counter);
    if (strcmp(role, "redirect") == 0 && count == 5) {
        redirect_to(&program, if_nametoindex(words[4]));
    } else if (strcmp(role, "sink") == 0) {
        add(&program, SET(0, XDP_DROP));
        add(&program, EXIT);
    } else {
        fail("no role '%s' with %d words", role, count - 2);
    }
    attach(load(&program), interface);
    printf("ready\n");
    fflush(stdout);
    pthread_join(thread, NULL);
}
