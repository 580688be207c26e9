/* The keys of seats. One has the number of its worker, something random, and a code of both that
 * only those can make who know the gateway's secret. A standby knows it, so nobody can vote for
 * workers that he is not.
 *
 * Threads: any. */
#define _GNU_SOURCE
#include <nettle/hmac.h>
#include <nettle/memops.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "run/gateway_state.h"

#define KEY_NAMED (PL_WIRE_KEY / 2) /* digits before the code */
#define KEY_WORKER (KEY_NAMED / 2)

static void key_digits(const uint8_t *bytes, size_t n, char *out) {
    for (size_t i = 0; i < n; i++) snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

bool pl_gateway_secret(char secret[PL_WIRE_KEY + 1]) {
    uint8_t bytes[PL_WIRE_KEY / 2];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes) return false;
    key_digits(bytes, sizeof bytes, secret);
    return true;
}

static void key_code(const char *secret, const char *key, char code[PL_WIRE_KEY - KEY_NAMED + 1]) {
    struct hmac_sha256_ctx ctx;
    uint8_t digest[(PL_WIRE_KEY - KEY_NAMED) / 2];
    hmac_sha256_set_key(&ctx, PL_WIRE_KEY, (const uint8_t *)secret);
    hmac_sha256_update(&ctx, KEY_NAMED, (const uint8_t *)key);
    hmac_sha256_digest(&ctx, sizeof digest, digest);
    key_digits(digest, sizeof digest, code);
}

bool pl_gateway_key(const struct pl_gateway *g, int worker, char key[PL_WIRE_KEY + 1]) {
    uint8_t bytes[(KEY_NAMED - KEY_WORKER) / 2];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes) return false;
    snprintf(key, KEY_WORKER + 1, "%08x", (unsigned)worker);
    key_digits(bytes, sizeof bytes, key + KEY_WORKER);
    key_code(g->secret, key, key + KEY_NAMED);
    return true;
}

int pl_gateway_key_worker(const char *secret, const char *key) {
    char code[PL_WIRE_KEY - KEY_NAMED + 1], worker[KEY_WORKER + 1];
    if (strlen(secret) != PL_WIRE_KEY || strlen(key) != PL_WIRE_KEY) return -1;
    key_code(secret, key, code);
    if (!memeql_sec(code, key + KEY_NAMED, sizeof code)) return -1;
    snprintf(worker, sizeof worker, "%.*s", KEY_WORKER, key);
    return (int)strtoul(worker, NULL, 16);
}
