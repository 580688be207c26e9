/* Instruction sets. The library is built for the oldest processors of its architecture. Loops that
 * gain from wider vectors are compiled once more for each newer set, and the program chooses among
 * them when it starts:
 *
 *     static PL_VARIANTS(double, vec_sum, (const float *x, size_t n), (x, n)) {
 *         double sum = 0;
 *         …
 *     }
 *
 * All variants give the same bits: they are the same C, without contraction into fused
 * multiply-adds, so each sum has the order that it has in the text. What the body calls is compiled
 * for the set too if it is inlined (PL_ISA_BODY). The body may ask for `isa`, the set that it is
 * compiled for. A call costs a jump; the body should be a loop over a block.
 *
 * aarch64 has one set: its baseline includes vectors of 128 bits (NEON). With PL_ONE_VARIANT,
 * as for fuzzing, loops are compiled once: for the baseline, and not for common sizes as well. */
#ifndef PL_BASE_ISA_H
#define PL_BASE_ISA_H

#include <stdbool.h>

#include "base/status.h"

enum pl_isa {
    PL_ISA_BASELINE,
#if defined(__x86_64__)
    PL_ISA_AVX2,
    PL_ISA_AVX512,
#endif
    PL_N_ISAS
};

/* The set in use: the widest that the processor has, unless the environment variable PACELINE_ISA
 * names another of them. Tests change it; all else reads it. */
extern enum pl_isa pl_isa;

const char *pl_isa_name(enum pl_isa isa); /* "sse2", "avx2", "avx512", "neon" */
bool pl_isa_present(enum pl_isa isa);     /* whether this processor has it */

/* Whether PACELINE_ISA, if set, names a set that this processor has; otherwise it is ignored. */
int pl_isa_check(struct pl_why *why);

#define PL_ISA_RETURN_void
#define PL_ISA_RETURN_bool return
#define PL_ISA_RETURN_int return
#define PL_ISA_RETURN_double return
#define PL_ISA_RETURN_size_t return

#define PL_ISA_BODY static inline __attribute__((always_inline))

/* The list in parentheses, and one more. */
#define PL_ISA_LIST(...) __VA_ARGS__
#define PL_ISA_PARAMETERS(list) (PL_ISA_LIST list, __attribute__((unused)) const enum pl_isa isa)
#define PL_ISA_ARGUMENTS(list, isa) (PL_ISA_LIST list, isa)

#if defined(__x86_64__) && !defined(PL_ONE_VARIANT)
#define PL_VARIANTS(type, name, parameters, arguments)                                             \
    type name parameters;                                                                          \
    PL_ISA_BODY type name##_body PL_ISA_PARAMETERS(parameters);                                    \
    __attribute__((target("avx2"))) static type name##_avx2 parameters {                           \
        PL_ISA_RETURN_##type name##_body PL_ISA_ARGUMENTS(arguments, PL_ISA_AVX2);                 \
    }                                                                                              \
    __attribute__((                                                                                \
        target("avx512f,avx512bw,avx512dq,avx512vl"))) static type name##_avx512 parameters {      \
        PL_ISA_RETURN_##type name##_body PL_ISA_ARGUMENTS(arguments, PL_ISA_AVX512);               \
    }                                                                                              \
    static type name##_baseline parameters {                                                       \
        PL_ISA_RETURN_##type name##_body PL_ISA_ARGUMENTS(arguments, PL_ISA_BASELINE);             \
    }                                                                                              \
    type name parameters {                                                                         \
        static type(*const variant[PL_N_ISAS])                                                     \
            parameters = {name##_baseline, name##_avx2, name##_avx512};                            \
        PL_ISA_RETURN_##type variant[pl_isa] arguments;                                            \
    }                                                                                              \
    PL_ISA_BODY type name##_body PL_ISA_PARAMETERS(parameters)
#else
#define PL_VARIANTS(type, name, parameters, arguments)                                             \
    type name parameters;                                                                          \
    PL_ISA_BODY type name##_body PL_ISA_PARAMETERS(parameters);                                    \
    type name parameters {                                                                         \
        PL_ISA_RETURN_##type name##_body PL_ISA_ARGUMENTS(arguments, PL_ISA_BASELINE);             \
    }                                                                                              \
    PL_ISA_BODY type name##_body PL_ISA_PARAMETERS(parameters)
#endif

#endif
