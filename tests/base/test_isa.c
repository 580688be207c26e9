/* Every instruction set gives the same bits: each kernel of the list below runs once for every set
 * that this processor has, on odd lengths, unaligned arrays and awkward values. Kernels on vectors
 * are compared with a twin that computes one element at a time; rules, whose formulas are those of
 * tests/rule, with themselves on the oldest set.
 *
 * To add a kernel, write a function that reads a->in[], a->n and a->seed and leaves its results in
 * a->out[] and a->number, and one that is plain, and add a line to cases[]; a rule is a line. An
 * array of out[] is in[] of the same index when a function is called. */
#include "base/isa.h"
#include "base/opt.h"
#include "base/rng.h"
#include "core/rule.h"
#include "isa_kernels.h"

#define LONGEST 1100
#define AROUND 8 /* elements before and behind an array that nobody may write */

/* --- all of them --------------------------------------------------------------------------- */

static const struct isa_case {
    const char *name; /* of a rule: as it is given, behind the name of its table */
    isa_run *kernel, *plain;
} cases[] = {
    {"vec dot", dot, dot_plain},
    {"vec distance", distance2, distance2_plain},
    {"vec finite", all_finite, all_finite_plain},
    {"vec weighted", weighted, weighted_plain},
    {"vec accumulate", accumulate, accumulate_plain},
    {"correct/gap:decay=0.9", correct, correct},
    {"correct/gap:form=scalar,decay=0.9", correct, correct},
    {"correct/dc", correct, correct},
    {"correct/dc:form=a,lambda=2", correct, correct},
    {"correct/distance", correct, correct},
    {"correct/clip", correct, correct},
    {"correct/brake", correct, correct},
    {"optim/sgd", optim, optim},
    {"optim/momentum:beta=0.8,dampening=0.3", optim, optim},
    {"optim/nesterov:beta=0.8", optim, optim},
    {"optim/nesterov:beta=0.8,form=torch", optim, optim},
    {"optim/adagrad", optim, optim},
    {"optim/adagrad:eps=0", optim, optim},
    {"optim/adam:beta1=0.8,beta2=0.9", optim, optim},
    {"optim/adamw:beta1=0.8,beta2=0.9", optim, optim},
    {"optim/dana:beta=0.8", optim, optim},
    {"optim/dana:beta=0.8,form=slim", optim, optim},
    {"optim/dana:beta=0.8,form=multi", optim, optim},
    {"optim/ormo:beta=0.8", optim, optim},
};
#define N_CASES (sizeof cases / sizeof *cases)

/* The whole memory of one run: each array begins somewhere in its place, aligned or not. */
struct isa_memory {
    float in[ARRAYS][LONGEST + 2 * AROUND + 16], out[ARRAYS][LONGEST + 2 * AROUND + 16];
};

/* Ordinary numbers, or awkward ones among them. */
static float value(struct pl_rng *rng, int kind) {
    static const float awkward[] = {0,      -0.0f, 1e-40f, -1e-44f, 1.2e-38f,
                                    -1e30f, 1e30f, 1e-20f, 1,       -3e38f};
    uint32_t pick = (uint32_t)pl_rng_below(rng, 10);
    float usual = (float)pl_rng_normal(rng);
    if (kind == 0 || (kind == 1 && pick > 2)) return usual;
    return awkward[pl_rng_below(rng, kind == 2 ? 5 : 10)];
}

static void isa_fill(struct isa_memory *memory, const struct isa_case *c, struct isa_arrays *a,
                     size_t n, uint64_t seed) {
    struct pl_rng rng;
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 0, seed);
    memset(memory, 0, sizeof *memory);
    *a = (struct isa_arrays){.n = n, .seed = pl_rng_below(&rng, 1u << 30), .rule = c->name};
    int kind = (int)pl_rng_below(&rng, 4);
    for (int k = 0; k < ARRAYS; k++) {
        size_t from = AROUND + pl_rng_below(&rng, 16);
        float *x = memory->in[k] + from;
        for (size_t i = 0; i < n; i++) x[i] = value(&rng, kind);
        a->in[k] = x;
        a->out[k] = memory->out[k] + from;
        memcpy(a->out[k], x, n * sizeof *x);
    }
}

/* Same bits, except that one not-a-number is as good as another. */
static bool isa_same(const float *a, const float *b, size_t n, size_t *at) {
    for (*at = 0; *at < n; ++*at)
        if (memcmp(a + *at, b + *at, sizeof *a) != 0 && !(isnan(a[*at]) && isnan(b[*at])))
            return false;
    return true;
}

static struct isa_memory fast, slow;

static void isa_compare(const struct isa_case *c, enum pl_isa isa, size_t n, uint64_t seed) {
    struct isa_arrays a, b;
    size_t room = sizeof fast.out[0] / sizeof(float), at;
    isa_fill(&slow, c, &b, n, seed);
    fast = slow;
    a = b;
    for (int k = 0; k < ARRAYS; k++) {
        a.in[k] = fast.in[k] + (b.in[k] - slow.in[k]);
        a.out[k] = fast.out[k] + (b.out[k] - slow.out[k]);
    }
    pl_isa = isa;
    c->kernel(&a);
    pl_isa = PL_ISA_BASELINE;
    c->plain(&b);
    for (int k = 0; k < ARRAYS; k++)
        if (!isa_same(fast.out[k], slow.out[k], room, &at))
            fail_msg("%s, %s, %zu elements, run %llu: element %td of array %d is %.9g, not %.9g",
                     c->name, pl_isa_name(isa), n, (unsigned long long)seed,
                     fast.out[k] + at - a.out[k], k, (double)fast.out[k][at],
                     (double)slow.out[k][at]);
    if (memcmp(&a.number, &b.number, sizeof a.number) != 0 && !(isnan(a.number) && isnan(b.number)))
        fail_msg("%s, %s, %zu elements, run %llu: the number is %.17g, not %.17g", c->name,
                 pl_isa_name(isa), n, (unsigned long long)seed, a.number, b.number);
}

TEST(every_set_gives_the_same_bits) {
    static const size_t more[] = {100, 127, 128, 129, 255, 256, 300, 1000, 1024, 1029, LONGEST};
    enum pl_isa usual = pl_isa;
    int n_sets = 0;
    for (int isa = 0; isa < PL_N_ISAS; isa++) {
        if (!pl_isa_present((enum pl_isa)isa)) continue;
        n_sets++;
        for (size_t c = 0; c < N_CASES; c++) {
            uint64_t seed = 0;
            for (size_t n = 0; n < 70; n++)
                for (int k = 0; k < 3; k++) isa_compare(&cases[c], (enum pl_isa)isa, n, seed++);
            for (size_t i = 0; i < sizeof more / sizeof *more; i++)
                for (int k = 0; k < 3; k++)
                    isa_compare(&cases[c], (enum pl_isa)isa, more[i], seed++);
        }
        print_message("%s: the same bits\n", pl_isa_name((enum pl_isa)isa));
    }
    pl_isa = usual;
    assert_true(n_sets > 0);
}

/* A rule with loops of its own is in the list. */
static void check_listed(const struct pl_family *family, const char *name) {
    char wanted[80];
    size_t n = (size_t)snprintf(wanted, sizeof wanted, "%s/%s", family->name, name);
    for (size_t c = 0; c < N_CASES; c++)
        if (strncmp(cases[c].name, wanted, n) == 0 && strchr(":", cases[c].name[n])) return;
    fail_msg("cases[] has no line for %s", wanted);
}

TEST(every_rule_is_compared) {
    for (const struct pl_entry *const *e = pl_optim_family.table; *e; e++)
        check_listed(&pl_optim_family, (*e)->name);
    for (const struct pl_entry *const *e = pl_correct_family.table; *e; e++) {
        const struct pl_correct *c = (const struct pl_correct *)*e;
        if (c->apply || c->sums) check_listed(&pl_correct_family, (*e)->name);
    }
}
