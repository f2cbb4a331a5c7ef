// SPDX-License-Identifier: MIT OR Apache-2.0
//
// ESP by intel-ipsec-mb (1.3 or newer): whole packets in, whole packets out, in place, many at a time. src/engine/multi_buffer.rs
// declares the same types and functions.
//
// AES-GCM and ChaCha20-Poly1305 work on one packet at a time, because one packet fills the CPU. CBC and HMAC depend on their last block, so
// packets of several go through the CPU side by side: such jobs are handed in one by one and come back in another order.

#include <intel-ipsec-mb.h>
#include <stdlib.h>
#include <string.h>

#if IMB_VERSION_NUM < IMB_VERSION(1, 3, 0)
#error "intel-ipsec-mb is too old; expected 1.3 or newer"
#endif

enum { AES_GCM, CHACHA20_POLY1305, CBC_SHA1, CBC_SHA256, CBC_SHA512 };
enum { HEADER = 8, GCM_IV = 8, SALT = 4, BLOCK = 16, MAX_ICV = 32, MAX_DIGEST = 64, MAX_HASH_BLOCK = 128 };

// What a key becomes before it is used.
struct schedule {
    struct gcm_key_data gcm;
    DECLARE_ALIGNED(uint8_t encrypt[BLOCK * 15], 16);
    DECLARE_ALIGNED(uint8_t decrypt[BLOCK * 15], 16);
    DECLARE_ALIGNED(uint8_t inner[MAX_DIGEST], 16);
    DECLARE_ALIGNED(uint8_t outer[MAX_DIGEST], 16);
    uint8_t chacha[32];
    uint8_t salt[SALT];
    uint32_t suite;
    uint32_t key_bytes;
    uint32_t icv_bytes;
};

struct job {
    const struct schedule *keys;
    // From the SPI to the end of the ICV.
    uint8_t *esp;
    uint32_t length;
    uint32_t sequence_high;
    uint32_t extended;
    uint32_t right;
};

// The library's state of one thread. The form for SSE has SHA extensions where the processor has them, those for AVX and AVX2 have not
// unless the processor has GFNI too: without that SHA-1 and SHA-256 are the work of another manager.
struct manager {
    IMB_MGR *best;
    IMB_MGR *sha;
};

static IMB_MGR *manager_of(uint32_t most) {
    IMB_MGR *manager = alloc_mb_mgr(0);
    if (!manager)
        return NULL;
    // Less than the processor can, to measure that: 1 is without AVX-512, 2 without AVX2.
    if (most == 2)
        init_mb_mgr_sse(manager);
    else if (most == 1)
        init_mb_mgr_avx2(manager);
    else
        init_mb_mgr_auto(manager, NULL);
    if (imb_get_errno(manager)) {
        free_mb_mgr(manager);
        return NULL;
    }
    return manager;
}

struct manager *brickway_mb_manager(uint32_t most) {
    struct manager *manager = malloc(sizeof *manager);
    if (!manager)
        return NULL;
    manager->best = manager->sha = manager_of(most);
    if (!manager->best) {
        free(manager);
        return NULL;
    }
    const IMB_MGR *best = manager->best;
    int has_sha = best->features & IMB_FEATURE_SHANI;
    int uses_sha = best->used_arch == IMB_ARCH_AVX512 || best->used_arch < IMB_ARCH_AVX || best->features & IMB_FEATURE_GFNI;
    if (has_sha && !uses_sha) {
        IMB_MGR *sha = manager_of(2);
        if (sha)
            manager->sha = sha;
    }
    return manager;
}

void brickway_mb_free_manager(struct manager *manager) {
    if (manager->sha != manager->best)
        free_mb_mgr(manager->sha);
    free_mb_mgr(manager->best);
    free(manager);
}

uint32_t brickway_mb_arch(const struct manager *manager) { return manager->best->used_arch; }

uint64_t brickway_mb_features(const struct manager *manager) { return manager->best->features; }

static IMB_MGR *for_suite(const struct manager *manager, uint32_t suite) {
    return suite == CBC_SHA1 || suite == CBC_SHA256 ? manager->sha : manager->best;
}

static void pad_key(IMB_MGR *manager, uint32_t suite, const uint8_t *key, size_t bytes, uint8_t with, uint8_t *digest) {
    DECLARE_ALIGNED(uint8_t block[MAX_HASH_BLOCK], 16);
    memset(block, with, sizeof block);
    for (size_t i = 0; i < bytes; i++)
        block[i] ^= key[i];
    if (suite == CBC_SHA1)
        IMB_SHA1_ONE_BLOCK(manager, block, digest);
    else if (suite == CBC_SHA256)
        IMB_SHA256_ONE_BLOCK(manager, block, digest);
    else
        IMB_SHA512_ONE_BLOCK(manager, block, digest);
    imb_clear_mem(block, sizeof block);
}

// `key` is the cipher's key, and the salt behind it for those that have one; `auth` is HMAC's, no longer than a block.
struct schedule *brickway_mb_schedule(const struct manager *managers, uint32_t suite, const uint8_t *key, uint32_t key_bytes, const uint8_t *auth,
                                      uint32_t auth_bytes, uint32_t icv_bytes) {
    struct schedule *schedule = aligned_alloc(64, (sizeof *schedule + 63) & ~(size_t)63);
    if (!schedule)
        return NULL;
    IMB_MGR *manager = for_suite(managers, suite);
    memset(schedule, 0, sizeof *schedule);
    schedule->suite = suite;
    schedule->key_bytes = key_bytes;
    schedule->icv_bytes = icv_bytes;
    switch (suite) {
    case AES_GCM:
        if (key_bytes == 16)
            IMB_AES128_GCM_PRE(manager, key, &schedule->gcm);
        else
            IMB_AES256_GCM_PRE(manager, key, &schedule->gcm);
        memcpy(schedule->salt, key + key_bytes, SALT);
        break;
    case CHACHA20_POLY1305:
        memcpy(schedule->chacha, key, 32);
        memcpy(schedule->salt, key + 32, SALT);
        break;
    default:
        if (key_bytes == 16)
            IMB_AES_KEYEXP_128(manager, key, schedule->encrypt, schedule->decrypt);
        else
            IMB_AES_KEYEXP_256(manager, key, schedule->encrypt, schedule->decrypt);
        pad_key(manager, suite, auth, auth_bytes, 0x36, schedule->inner);
        pad_key(manager, suite, auth, auth_bytes, 0x5c, schedule->outer);
    }
    return schedule;
}

void brickway_mb_free_schedule(struct schedule *schedule) {
    imb_clear_mem(schedule, sizeof *schedule);
    free(schedule);
}

// What one packet after the other leaves behind of its key stream and of the salt. It is cleared behind a batch.
struct scratch {
    union {
        struct gcm_context_data gcm;
        struct chacha20_poly1305_context_data chacha;
    } context;
    uint8_t nonce[12];
};

// The nonce: the salt, and the IV of the packet.
static inline void nonce_of(uint8_t nonce[12], const struct job *job) {
    memcpy(nonce, job->keys->salt, SALT);
    memcpy(nonce + SALT, job->esp + HEADER, GCM_IV);
}

// What is authenticated beside the payload: the header, with all of an extended sequence number (RFC 4106, section 5).
static inline const uint8_t *associated(uint8_t room[12], const struct job *job, uint32_t *bytes) {
    *bytes = HEADER;
    if (!job->extended)
        return job->esp;
    memcpy(room, job->esp, 4);
    uint32_t high = __builtin_bswap32(job->sequence_high);
    memcpy(room + 4, &high, 4);
    memcpy(room + 8, job->esp + 4, 4);
    *bytes = 12;
    return room;
}

// Takes the same time wherever they differ.
static inline uint32_t same(const uint8_t *a, const uint8_t *b, uint32_t bytes) {
    uint32_t differ = 0;
    for (uint32_t i = 0; i < bytes; i++)
        differ |= a[i] ^ b[i];
    __asm__("" : "+r"(differ));
    return differ == 0;
}

static inline void gcm(IMB_MGR *manager, struct job *job, struct scratch *scratch, int seal) {
    const struct schedule *keys = job->keys;
    struct gcm_context_data *context = &scratch->context.gcm;
    uint8_t *nonce = scratch->nonce, room[12], tag[16];
    uint32_t associated_bytes;
    nonce_of(nonce, job);
    const uint8_t *data = associated(room, job, &associated_bytes);
    uint8_t *payload = job->esp + HEADER + GCM_IV;
    uint8_t *icv = job->esp + job->length - keys->icv_bytes;
    uint64_t bytes = icv - payload;
    if (seal) {
        if (keys->key_bytes == 16)
            IMB_AES128_GCM_ENC(manager, &keys->gcm, context, payload, payload, bytes, nonce, data, associated_bytes, icv, keys->icv_bytes);
        else
            IMB_AES256_GCM_ENC(manager, &keys->gcm, context, payload, payload, bytes, nonce, data, associated_bytes, icv, keys->icv_bytes);
    } else {
        if (keys->key_bytes == 16)
            IMB_AES128_GCM_DEC(manager, &keys->gcm, context, payload, payload, bytes, nonce, data, associated_bytes, tag, keys->icv_bytes);
        else
            IMB_AES256_GCM_DEC(manager, &keys->gcm, context, payload, payload, bytes, nonce, data, associated_bytes, tag, keys->icv_bytes);
        job->right = same(tag, icv, keys->icv_bytes);
    }
}

static inline void chacha(IMB_MGR *manager, struct job *job, struct scratch *scratch, int seal) {
    const struct schedule *keys = job->keys;
    struct chacha20_poly1305_context_data *context = &scratch->context.chacha;
    uint8_t *nonce = scratch->nonce, room[12], tag[16];
    uint32_t associated_bytes;
    nonce_of(nonce, job);
    const uint8_t *data = associated(room, job, &associated_bytes);
    uint8_t *payload = job->esp + HEADER + GCM_IV;
    uint8_t *icv = job->esp + job->length - keys->icv_bytes;
    uint64_t bytes = icv - payload;
    IMB_CHACHA20_POLY1305_INIT(manager, keys->chacha, context, nonce, data, associated_bytes);
    if (seal) {
        IMB_CHACHA20_POLY1305_ENC_UPDATE(manager, keys->chacha, context, payload, payload, bytes);
        IMB_CHACHA20_POLY1305_ENC_FINALIZE(manager, context, icv, keys->icv_bytes);
    } else {
        IMB_CHACHA20_POLY1305_DEC_UPDATE(manager, keys->chacha, context, payload, payload, bytes);
        IMB_CHACHA20_POLY1305_DEC_FINALIZE(manager, context, tag, keys->icv_bytes);
        job->right = same(tag, icv, keys->icv_bytes);
    }
}

static const uint8_t NO_IV[BLOCK];
static const IMB_HASH_ALG HASHES[] = {[CBC_SHA1] = IMB_AUTH_HMAC_SHA_1, [CBC_SHA256] = IMB_AUTH_HMAC_SHA_256, [CBC_SHA512] = IMB_AUTH_HMAC_SHA_512};

struct tag {
    uint8_t received[MAX_ICV];
    uint8_t computed[MAX_ICV];
};

// A packet whose tag is in `icv` was sealed. One that was opened has its tag in `user_data2`.
static inline void finished(IMB_JOB *done, int seal) {
    struct job *job = done->user_data;
    struct tag *tag = done->user_data2;
    uint32_t bytes = job->keys->icv_bytes;
    uint8_t *icv = job->esp + job->length - bytes;
    if (done->status != IMB_STATUS_COMPLETED)
        job->right = 0;
    else if (seal)
        memcpy(icv, tag->computed, bytes);
    else
        job->right = same(tag->computed, tag->received, bytes);
}

static void submit_cbc(IMB_MGR *manager, struct job *job, struct tag *tag, int seal) {
    const struct schedule *keys = job->keys;
    IMB_JOB *next = IMB_GET_NEXT_JOB(manager);
    uint32_t hashed = job->length - keys->icv_bytes;
    uint8_t *icv = job->esp + hashed;
    memcpy(tag->received, icv, keys->icv_bytes);
    // The upper half of an extended sequence number is authenticated behind the payload, though not sent (RFC 4303, section 2.2.1).
    if (job->extended) {
        uint32_t high = __builtin_bswap32(job->sequence_high);
        memcpy(icv, &high, 4);
    }
    next->enc_keys = keys->encrypt;
    next->dec_keys = keys->decrypt;
    next->key_len_in_bytes = keys->key_bytes;
    next->cipher_mode = IMB_CIPHER_CBC;
    next->iv_len_in_bytes = BLOCK;
    next->src = job->esp;
    if (seal) {
        // A nonce stands where the IV will: encrypted with no IV it becomes one that nobody can predict (NIST SP 800-38A, appendix C).
        next->iv = NO_IV;
        next->cipher_start_src_offset_in_bytes = HEADER;
        next->cipher_direction = IMB_DIR_ENCRYPT;
        next->chain_order = IMB_ORDER_CIPHER_HASH;
    } else {
        next->iv = job->esp + HEADER;
        next->cipher_start_src_offset_in_bytes = HEADER + BLOCK;
        next->cipher_direction = IMB_DIR_DECRYPT;
        next->chain_order = IMB_ORDER_HASH_CIPHER;
    }
    next->dst = job->esp + next->cipher_start_src_offset_in_bytes;
    next->msg_len_to_cipher_in_bytes = hashed - next->cipher_start_src_offset_in_bytes;
    next->hash_alg = HASHES[keys->suite];
    next->hash_start_src_offset_in_bytes = 0;
    next->msg_len_to_hash_in_bytes = hashed + (job->extended ? 4 : 0);
    next->auth_tag_output = tag->computed;
    next->auth_tag_output_len_in_bytes = keys->icv_bytes;
    next->u.HMAC._hashed_auth_key_xor_ipad = keys->inner;
    next->u.HMAC._hashed_auth_key_xor_opad = keys->outer;
    next->user_data = job;
    next->user_data2 = tag;
    IMB_JOB *done = IMB_SUBMIT_JOB_NOCHECK(manager);
    while (done) {
        finished(done, seal);
        done = IMB_GET_COMPLETED_JOB(manager);
    }
}

// src/engine/multi_buffer.rs hands in at most as many as a batch has.
_Static_assert(IMB_MAX_JOBS >= 256, "a batch of packets fits");

static void finish(IMB_MGR *manager, int seal) {
    for (IMB_JOB *done = IMB_FLUSH_JOB(manager); done; done = IMB_FLUSH_JOB(manager))
        finished(done, seal);
}

static inline void run(const struct manager *managers, struct job *jobs, uint32_t count, int seal) {
    struct tag tags[IMB_MAX_JOBS];
    struct scratch scratch;
    int waiting = 0, scratched = 0;
    for (uint32_t i = 0; i < count; i++) {
        jobs[i].right = 1;
        // The end of the packet after the next one comes while this one is worked on.
        if (i + 2 < count)
            __builtin_prefetch(jobs[i + 2].esp + jobs[i + 2].length - 1);
        switch (jobs[i].keys->suite) {
        case AES_GCM:
            gcm(managers->best, &jobs[i], &scratch, seal);
            scratched = 1;
            break;
        case CHACHA20_POLY1305:
            chacha(managers->best, &jobs[i], &scratch, seal);
            scratched = 1;
            break;
        default:
            submit_cbc(for_suite(managers, jobs[i].keys->suite), &jobs[i], &tags[i], seal);
            waiting = 1;
        }
    }
    if (scratched)
        explicit_bzero(&scratch, sizeof scratch);
    if (!waiting)
        return;
    finish(managers->best, seal);
    if (managers->sha != managers->best)
        finish(managers->sha, seal);
}

// At most IMB_MAX_JOBS (256) jobs.
void brickway_mb_seal(const struct manager *managers, struct job *jobs, uint32_t count) { run(managers, jobs, count, 1); }

void brickway_mb_open(const struct manager *managers, struct job *jobs, uint32_t count) { run(managers, jobs, count, 0); }
