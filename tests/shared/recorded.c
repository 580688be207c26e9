#include "recorded.h"
#include "folder.h"

#include <unistd.h>

#include <zlib.h>

#define N_FILES 32 /* names in use */

pl_setup *small;

/* ---- files ---- */

const char *path(const char *name) {
    static char at[N_FILES][600], names[N_FILES][64];
    static int n;
    int i = 0;
    while (i < n && strcmp(names[i], name) != 0) i++;
    if (i == n) {
        assert_true(n < N_FILES);
        snprintf(names[n], sizeof *names, "%s", name);
        snprintf(at[n++], sizeof *at, "%s/%s", folder, name);
    }
    return at[i];
}

const char *fresh(const char *name) {
    const char *p = path(name);
    unlink(p);
    return p;
}

struct bytes slurp(const char *from) {
    struct bytes b = {malloc(1 << 20), 0};
    FILE *f = fopen(from, "rb");
    assert_non_null(f);
    assert_non_null(b.at);
    b.n = fread(b.at, 1, 1 << 20, f);
    assert_true(b.n < 1 << 20);
    fclose(f);
    return b;
}

void spill(const char *to, const uint8_t *at, size_t n) {
    FILE *f = fopen(to, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(at, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

void check_same_file(const char *what, const char *a, const char *b) {
    struct bytes x = slurp(a), y = slurp(b);
    if (x.n != y.n || memcmp(x.at, y.at, x.n) != 0) fail_msg("%s: %s and %s differ", what, a, b);
    assert_true(x.n > 0);
    free(x.at);
    free(y.at);
}

/* ---- an encoder of its own ---- */

static void put(uint8_t **at, uint64_t x, int n) {
    for (; n > 0; n--, x >>= 8) *(*at)++ = (uint8_t)x;
}

/* A recording of n lines. */
struct bytes encode(const char *text, uint32_t workers, uint32_t steps, const struct line *line,
                    size_t n) {
    struct bytes b = {malloc(64 + strlen(text) + 56 * n), 0};
    assert_non_null(b.at);
    uint8_t *at = b.at;
    memcpy(at, "\x89PLREC\r\n", 8);
    at += 8;
    put(&at, 1, 4);
    put(&at, workers, 4);
    put(&at, steps, 4);
    put(&at, strlen(text), 4);
    memcpy(at, text, strlen(text));
    at += strlen(text);
    uint32_t crc = (uint32_t)crc32(0, b.at, (uInt)(at - b.at));
    put(&at, crc, 4);
    for (size_t i = 0; i < n; i++) {
        uint8_t link[4], *to = link, *from = at;
        uint64_t loss;
        memcpy(&loss, &line[i].loss, 8);
        put(&to, crc, 4);
        put(&at, line[i].kind, 4);
        put(&at, line[i].worker, 4);
        put(&at, line[i].now, 8);
        put(&at, line[i].task, 8);
        put(&at, line[i].began, 8);
        put(&at, line[i].comm, 8);
        put(&at, loss, 8);
        put(&at, line[i].samples, 4);
        crc = (uint32_t)crc32(crc32(0, link, 4), from, 52);
        put(&at, crc, 4);
    }
    b.n = (size_t)(at - b.at);
    return b;
}

const char *encoded(const char *name, const char *text, uint32_t workers, uint32_t steps,
                    const struct line *line, size_t n) {
    const char *p = fresh(name);
    struct bytes b = encode(text, workers, steps, line, n);
    spill(p, b.at, b.n);
    free(b.at);
    return p;
}

/* ---- setting up and running ---- */

void check_refused(pl_setup *s, const char *file, int rc, const char *word) {
    pl_run *run = NULL;
    assert_int_equal(pl_replay(s, file, &run), rc);
    if (!strstr(pl_setup_why(s), word)) fail_msg("\"%s\" lacks '%s'", pl_setup_why(s), word);
    assert_null(run);
}

/* ---- beginning and end ---- */

int recorded_begin(void **state) {
    char seed[32];
    if (folder_make(NULL)) return -1;
    small = plain();
    snprintf(seed, sizeof seed, "%llu", test_seed);
    set_all(small, "data=digits:samples=300,test=50 model=softmax workers=4 batch=16 lr=0.02");
    set(small, "updates", sanitized ? "30" : "80");
    set(small, "eval-samples", "100");
    set(small, "seed", seed);
    return pl_setup_check(small);
}

int recorded_end(const char *const *names, size_t n) {
    return folder_end(names, n);
}
