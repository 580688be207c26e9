/* Targets for libFuzzer: each reads one kind of input that others can write. All are one program;
 * which target runs is the name it is started under (see CMakeLists.txt here), or FUZZ_TARGET in
 * its environment. */
#ifndef PL_TESTS_FUZZ_H
#define PL_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

struct fuzz_target {
    const char *name;
    void (*run)(const uint8_t *data, size_t n);
};

extern const struct fuzz_target fuzz_files[], fuzz_texts[], fuzz_runs[], fuzz_mailboxes[],
    fuzz_clients[];

/* A file in memory with these contents; `slot` 0 … 7 are different files. Returns its path. */
const char *fuzz_file(int slot, const uint8_t *data, size_t n);

/* A folder, made once, in which `name` is such a file. Returns the folder's path. */
const char *fuzz_folder(int slot, const char *name);

/* Cuts the next piece off the front: two bytes with its length, then the piece. */
struct fuzz_piece {
    const uint8_t *data;
    size_t n;
};
struct fuzz_piece fuzz_cut(struct fuzz_piece *rest);
uint64_t fuzz_number(struct fuzz_piece *rest, int bytes); /* little-endian; 0 bits past the end */

void fuzz_recording(const char *path); /* reads a recording in every way */

/* Ends the program as a failure. */
#define FUZZ_MUST(condition)                                                                       \
    do                                                                                             \
        if (!(condition)) __builtin_trap();                                                        \
    while (0)

#endif
