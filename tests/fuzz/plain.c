/* Runs targets without libFuzzer and clang: plain TARGET FOLDER COUNT SEED runs each input of a
 * folder, then COUNT inputs made from them: bytes changed, taken out, repeated, or put in from
 * another one. What is made depends on the seed alone. An input that fails a target is left in the
 * file failed-TARGET of the current folder. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"
#include "fuzz.h"

#define INPUTS 1000
#define LONGEST 20000 /* bytes of an input that is made */

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static struct input {
    uint8_t *data;
    size_t n;
} input[INPUTS];
static int n_inputs;

static const uint8_t *current;
static size_t current_n;
static char left[100]; /* where an input is left that fails */

static void failed(int signal_number) {
    int fd = open(left, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0 || write(fd, current, current_n) != (ssize_t)current_n) _exit(3);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static void run(const uint8_t *data, size_t n) {
    uint8_t *exact = malloc(n ? n : 1); /* a sanitizer sees what is read beyond it */
    if (!exact) exit(2);
    if (n) memcpy(exact, data, n);
    current = exact;
    current_n = n;
    LLVMFuzzerTestOneInput(exact, n);
    free(exact);
}

static void read_input(const char *folder, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "rb");
    struct input *in = &input[n_inputs++];
    if (!f || !(in->data = malloc(1 << 20))) exit(2);
    in->n = fread(in->data, 1, 1 << 20, f);
    fclose(f);
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void read_inputs(const char *folder) {
    char *name[INPUTS];
    int n = 0;
    DIR *d = opendir(folder);
    if (!d) exit(2);
    for (struct dirent *e; n < INPUTS && (e = readdir(d));)
        if (e->d_name[0] != '.' && !(name[n++] = strdup(e->d_name))) exit(2);
    closedir(d);
    qsort(name, (size_t)n, sizeof *name, by_name);
    for (int i = 0; i < n; i++) {
        read_input(folder, name[i]);
        free(name[i]);
    }
}

static size_t below(struct pl_rng *r, size_t n) {
    return n ? (size_t)(pl_rng_u64(r) % n) : 0;
}

/* One change of v[n], which has room for LONGEST bytes. Returns the new length. */
static size_t change(struct pl_rng *r, uint8_t *v, size_t n) {
    static const uint8_t telling[] = {0,   1,   9,   '\n', ' ', '-', '.',
                                      '0', '9', ':', ',',  127, 128, 255};
    size_t at = below(r, n), some = 1 + below(r, 8);
    const struct input *other = &input[below(r, (size_t)n_inputs)];
    size_t from = below(r, other->n);
    if (some > n - at) some = n - at;
    switch (below(r, 6)) {
    case 0: /* a bit */
        if (n) v[at] ^= (uint8_t)(1u << below(r, 8));
        return n;
    case 1: /* a byte that often means something */
        if (n) v[at] = telling[below(r, sizeof telling)];
        return n;
    case 2: /* out */ memmove(v + at, v + at + some, n - at - some); return n - some;
    case 3: /* twice */
        if (n + some > LONGEST) return n;
        memmove(v + at + some, v + at, n - at);
        return n + some;
    case 4: /* the end is missing */ return below(r, 4) ? n : at;
    default: /* a piece of another one */
        if (some > other->n - from) some = other->n - from;
        if (n + some > LONGEST) return n;
        memmove(v + at + some, v + at, n - at);
        memcpy(v + at, other->data + from, some);
        return n + some;
    }
}

int main(int argc, char **argv) {
    static const int signals[] = {SIGILL, SIGTRAP, SIGABRT, SIGSEGV, SIGBUS, SIGFPE};
    static uint8_t made[LONGEST];
    struct pl_rng rng;
    if (argc != 5 || setenv("FUZZ_TARGET", argv[1], 1)) return 2;
    LLVMFuzzerInitialize(&argc, &argv);
    snprintf(left, sizeof left, "failed-%s", argv[1]);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) signal(signals[i], failed);
    read_inputs(argv[2]);
    if (n_inputs == 0) return 2;
    for (int i = 0; i < n_inputs; i++) run(input[i].data, input[i].n);
    pl_rng_init(&rng, strtoull(argv[4], NULL, 10), PL_STREAM_TEST, 0, 0);
    for (long i = strtol(argv[3], NULL, 10); i > 0; i--) {
        const struct input *in = &input[below(&rng, (size_t)n_inputs)];
        size_t n = in->n < LONGEST ? in->n : LONGEST;
        memcpy(made, in->data, n);
        for (size_t k = 1 + below(&rng, 4); k > 0; k--) n = change(&rng, made, n);
        run(made, n);
    }
    printf("%s: %d inputs of the corpus, and %s made from them\n", argv[1], n_inputs, argv[3]);
    for (int i = 0; i < n_inputs; i++) free(input[i].data);
    return 0;
}
