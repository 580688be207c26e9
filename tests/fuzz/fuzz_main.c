/* Which target runs, and files in memory. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"

#define FILES 8

static const struct fuzz_target *target;

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
const char *__asan_default_options(void);

/* Memory that one input frees is not used again before the next one; more than that costs half of
 * the speed. libFuzzer looks for leaks after each input that allocates more often than it frees;
 * one more search at the end would take three seconds on aarch64. */
const char *__asan_default_options(void) {
    return "quarantine_size_mb=4:malloc_context_size=8:leak_check_at_exit=0";
}

static const struct fuzz_target *find(const char *name) {
    const struct fuzz_target *const tables[] = {fuzz_files, fuzz_texts, fuzz_runs, fuzz_mailboxes,
                                                fuzz_clients};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        for (const struct fuzz_target *t = tables[i]; t->name; t++)
            if (strcmp(t->name, name) == 0) return t;
    return NULL;
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    const char *slash = strrchr((*argv)[0], '/'), *name = slash ? slash + 1 : (*argv)[0];
    if (strncmp(name, "fuzz_", 5) == 0) name += 5;
    if (getenv("FUZZ_TARGET")) name = getenv("FUZZ_TARGET");
    target = find(name);
    if (!target) {
        fprintf(stderr, "there is no target '%s'\n", name);
        exit(1);
    }
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    target->run(data, n);
    return 0;
}

const char *fuzz_file(int slot, const uint8_t *data, size_t n) {
    static int fd[FILES];
    static char path[FILES][32];
    if (fd[slot] == 0) {
        fd[slot] = memfd_create("fuzz", MFD_CLOEXEC);
        FUZZ_MUST(fd[slot] > 0);
        snprintf(path[slot], sizeof *path, "/proc/self/fd/%d", fd[slot]);
    }
    FUZZ_MUST(ftruncate(fd[slot], 0) == 0);
    FUZZ_MUST(n == 0 || pwrite(fd[slot], data, n, 0) == (ssize_t)n);
    return path[slot];
}

static char folder[] = "/tmp/paceline-fuzz-XXXXXX";
static char names[FILES][300];

static void remove_folder(void) {
    for (int i = 0; i < FILES; i++)
        if (names[i][0]) unlink(names[i]);
    rmdir(folder);
}

const char *fuzz_folder(int slot, const char *name) {
    static int made;
    if (!made) {
        FUZZ_MUST(mkdtemp(folder) != NULL);
        atexit(remove_folder);
        made = 1;
    }
    if (!names[slot][0]) {
        snprintf(names[slot], sizeof *names, "%s/%s", folder, name);
        FUZZ_MUST(symlink(fuzz_file(slot, NULL, 0), names[slot]) == 0);
    }
    return folder;
}

struct fuzz_piece fuzz_cut(struct fuzz_piece *rest) {
    size_t n = (size_t)fuzz_number(rest, 2);
    if (n > rest->n) n = rest->n;
    struct fuzz_piece piece = {rest->data, n};
    rest->data += n;
    rest->n -= n;
    return piece;
}

uint64_t fuzz_number(struct fuzz_piece *rest, int bytes) {
    uint64_t x = 0;
    for (int i = 0; i < bytes && rest->n > 0; i++, rest->data++, rest->n--)
        x |= (uint64_t)*rest->data << (8 * i);
    return x;
}
