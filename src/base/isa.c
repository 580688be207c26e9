#include "base/isa.h"

#include <stdlib.h>
#include <string.h>

enum pl_isa pl_isa;

#if defined(__x86_64__)

static const char *const isa_names[] = {"sse2", "avx2", "avx512"};

bool pl_isa_present(enum pl_isa isa) {
    switch (isa) {
    case PL_ISA_AVX2: return __builtin_cpu_supports("avx2");
    case PL_ISA_AVX512:
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    default: return isa == PL_ISA_BASELINE;
    }
}

#else

#if defined(__aarch64__)
static const char *const isa_names[] = {"neon"};
#else
static const char *const isa_names[] = {"baseline"};
#endif

bool pl_isa_present(enum pl_isa isa) {
    return isa == PL_ISA_BASELINE;
}

#endif

const char *pl_isa_name(enum pl_isa isa) {
    return isa_names[isa];
}

/* The set that PACELINE_ISA names; PL_N_ISAS if there is no such set, or nothing is named. */
static enum pl_isa isa_asked(void) {
    const char *name = getenv("PACELINE_ISA");
    int isa = 0;
    while (isa < PL_N_ISAS && !(name && strcmp(name, isa_names[isa]) == 0)) isa++;
    return (enum pl_isa)isa;
}

int pl_isa_check(struct pl_why *why) {
    char all[64] = "";
    const char *name = getenv("PACELINE_ISA");
    enum pl_isa asked = isa_asked();
    if (!name || (asked != PL_N_ISAS && pl_isa_present(asked))) return PL_OK;
    for (int isa = 0; isa < PL_N_ISAS; isa++)
        if (pl_isa_present((enum pl_isa)isa)) {
            pl_append(all, sizeof all, "%s%s", isa > 0 ? ", " : "", isa_names[isa]);
        }
    return pl_fail(why, PL_EUSAGE,
                   "PACELINE_ISA is '%.40s', but the instruction sets of this processor are: %s",
                   name, all);
}

/* Before main: nothing may run with one set and then with another. */
__attribute__((constructor)) static void isa_choose(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
#endif
    enum pl_isa asked = isa_asked();
    if (asked != PL_N_ISAS && pl_isa_present(asked)) {
        pl_isa = asked;
        return;
    }
    for (int isa = 0; isa < PL_N_ISAS; isa++)
        if (pl_isa_present((enum pl_isa)isa)) pl_isa = (enum pl_isa)isa;
}
