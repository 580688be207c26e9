/* Every rule of every table against a naive twin: the papers' formulas in double precision, one
 * element after the other, no blocks, no tiles. A rule without a twin fails here, so a new one
 * brings its own. Groups of one and of more than a thousand, vectors of one element and of many
 * tiles. */
#include "base/rng.h"
#include "choices.h"
#include "rule_twin.h"

#define N_VECTORS 7    /* different contributions; a large group uses each several times */
#define TOLERANCE 1e-6 /* relative to 1 + |value| */

/* ---- both, side by side ---- */

struct pair {
    struct pl_store_conf conf;
    struct pl_store *store;
    struct pl_version *held[N_WORKERS];
    struct twin twin;
    double *base[N_WORKERS]; /* the twin's copies of what workers hold */
    twin_correct *correct;
    twin_optim *step;
    bool by_samples;
    float *vector[N_VECTORS];
    double *wide[N_VECTORS];
    struct pl_rng rng;
};

static void pair_open(struct pair *p, size_t dim, size_t correct, size_t optim, bool by_samples,
                      double decay) {
    float *w0 = own_room(dim, sizeof *w0);
    double *wide = own_room(dim, sizeof *wide);
    *p = (struct pair){.conf = rules_of(dim, N_WORKERS, correct_twin[correct].spec,
                                        by_samples ? "mean:by=samples" : "mean",
                                        optim_twin[optim].spec, LR),
                       .correct = correct_twin[correct].apply,
                       .step = optim_twin[optim].step,
                       .by_samples = by_samples};
    pl_rng_init(&p->rng, test_seed, PL_STREAM_TEST, (uint32_t)(correct * N_OPTIM + optim), dim);
    for (size_t i = 0; i < dim; i++) wide[i] = w0[i] = (float)pl_rng_normal(&p->rng);
    p->conf.weight_decay = decay;
    p->store = store_of(&p->conf, w0);
    p->twin = twin_new(dim, decay, wide);
    p->twin.kind = ((const struct pl_optim *)p->conf.optim.entry)->velocity;
    for (int k = 0; k < N_WORKERS; k++) {
        pl_store_hold(p->store, p->held[k] = pl_store_newest(p->store));
        p->base[k] = own_room(dim, sizeof(double));
        memcpy(p->base[k], wide, dim * sizeof(double));
    }
    for (int k = 0; k < N_VECTORS; k++) {
        p->vector[k] = own_room(dim, sizeof(float));
        p->wide[k] = own_room(dim, sizeof(double));
    }
}

/* The twin goes on from the store's own weights. Gap-Aware asks how far a weight has moved, which
 * for a small move is the rounding of that weight: without this the two would measure different
 * moves, both rightly. Everything else a rule remembers stays apart. */
static void pair_join(struct pair *p) {
    const struct pl_version *v = pl_store_newest(p->store);
    for (size_t i = 0; i < p->conf.dim; i++) {
        p->twin.w[i] = v->model[i];
        p->twin.handed[i] = v->lookahead[i];
    }
    for (int w = 0; w < N_WORKERS; w++)
        for (size_t i = 0; i < p->conf.dim; i++) p->base[w][i] = p->held[w]->lookahead[i];
}

/* One commit loses a few units in the last place of its operands, 6e-8 each. Gap-Aware and Adam
 * divide by an element that may be almost zero, which magnifies what that element lost: with them
 * one element in a thousand may be further off. */
static void pair_compare(const struct pair *p, const char *what) {
    const struct pl_version *v = pl_store_newest(p->store);
    bool divides = p->correct == gap || p->step == adam || p->step == adagrad;
    size_t n_far = 0;
    for (size_t i = 0; i < p->conf.dim; i++) {
        double model = fabs(v->model[i] - p->twin.w[i]) / (1 + fabs(p->twin.w[i]));
        double handed = fabs(v->lookahead[i] - p->twin.handed[i]) / (1 + fabs(p->twin.handed[i]));
        double off = fmax(model, handed);
        n_far += off > TOLERANCE;
        if (!(off <= (divides ? LR : TOLERANCE)) || n_far > p->conf.dim / 1000 + 1)
            fail_msg("%s: element %zu of %zu is %.9g (%.9g handed), the twin has %.9g (%.9g)", what,
                     i, p->conf.dim, v->model[i], v->lookahead[i], p->twin.w[i], p->twin.handed[i]);
    }
}

/* One commit of a group of n random contributions of random workers, on both sides. */
static void pair_commit(struct pair *p, int n) {
    struct pl_version *now = pl_store_newest(p->store);
    struct twin_member *member = own_room((size_t)n, sizeof *member);
    bool brought[N_WORKERS] = {false};
    for (int k = 0; k < N_VECTORS && k < n; k++)
        for (size_t i = 0; i < p->conf.dim; i++)
            p->wide[k][i] = p->vector[k][i] = (float)(0.3 * pl_rng_normal(&p->rng));
    for (int k = 0; k < n; k++) {
        int w = (int)pl_rng_below(&p->rng, N_WORKERS), v = k % N_VECTORS;
        struct pl_member m = {.worker = w,
                              .base = p->held[w]->id,
                              .lag = now->id - p->held[w]->id,
                              .samples = 1 + pl_rng_below(&p->rng, 50),
                              .factor = 1};
        assert_int_equal(pl_store_take(p->store, &m, p->held[w], p->vector[v], PL_FINITE_UNKNOWN),
                         0);
        member[k] = (struct twin_member){.g = p->wide[v],
                                         .base = p->base[w],
                                         .base_id = m.base,
                                         .lag = m.lag,
                                         .worker = w,
                                         .samples = m.samples};
        brought[w] = true;
    }
    assert_int_equal(pl_store_commit(p->store, 1, NULL), 0);
    twin_commit(&p->twin, p->correct, p->step, p->by_samples, member, n);
    for (int w = 0; w < N_WORKERS; w++) {
        if (!brought[w]) continue;
        pl_store_release(p->store, p->held[w]);
        pl_store_hold(p->store, p->held[w] = pl_store_newest(p->store));
    }
}

static void pair_run(size_t dim, size_t correct, size_t optim, int group, int n_commits,
                     bool by_samples, double decay) {
    struct pair p;
    char what[160];
    pair_open(&p, dim, correct, optim, by_samples, decay);
    for (int k = 0; k < n_commits; k++) {
        pair_commit(&p, group);
        snprintf(what, sizeof what, "%s x %s, group of %d, commit %d", correct_twin[correct].spec,
                 optim_twin[optim].spec, group, k + 1);
        assert_int_equal(pl_store_newest(p.store)->id, k + 1);
        pair_compare(&p, what);
        pair_join(&p);
    }
}

static bool optim_single(size_t optim) {
    struct pl_choice c = choose(&pl_optim_family, optim_twin[optim].spec, N_WORKERS);
    return c.entry->needs & PL_NEEDS_ONE_AT_A_TIME;
}

/* ---- the tests ---- */

TEST(every_rule_has_a_twin) {
    for (const struct pl_entry *const *e = pl_correct_family.table; *e; e++) {
        bool found = false;
        for (size_t i = 0; i < N_CORRECT; i++)
            found |= strncmp(correct_twin[i].spec, (*e)->name, strlen((*e)->name)) == 0;
        if (!found) fail_msg("correct '%s' has no twin in this file", (*e)->name);
    }
    for (const struct pl_entry *const *e = pl_optim_family.table; *e; e++) {
        bool found = false;
        for (size_t i = 0; i < N_OPTIM; i++)
            found |= strncmp(optim_twin[i].spec, (*e)->name, strlen((*e)->name)) == 0;
        if (!found) fail_msg("optim '%s' has no twin in this file", (*e)->name);
    }
}

/* Every correction with every optimizer, one gradient at a time and, where they may, in groups. */
TEST(rules_agree_with_their_twins) {
    static const size_t dims[] = {1, 15, 16, 17, 1000};
    for (size_t c = 0; c < N_CORRECT; c++)
        for (size_t o = 0; o < N_OPTIM; o++)
            for (size_t d = 0; d < sizeof dims / sizeof *dims; d++) {
                pair_run(dims[d], c, o, 1, sanitized ? 6 : 20, false, 0);
                if (!optim_single(o)) pair_run(dims[d], c, o, 5, sanitized ? 4 : 10, true, 0.01);
            }
}

/* Some blocks, and more blocks than a store has tiles. */
TEST(rules_agree_on_long_vectors) {
    for (size_t c = 0; c < N_CORRECT; c++)
        for (size_t o = 0; o < N_OPTIM; o++)
            pair_run(c == 0 || o == 1 ? 70000 : 3000, c, o, 1, 2, false, 0.001);
}

/* 64 members are the last whose pointers are on the stack, 1024 the last with whole blocks. */
TEST(rules_agree_in_large_groups) {
    static const int groups[] = {2, 63, 64, 65, 100, 1023, 1024, 1025, 1300};
    for (size_t c = 0; c < N_CORRECT; c++)
        for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
            if (sanitized && groups[g] > 100 && groups[g] != 1025) continue;
            pair_run(groups[g] > 100 ? 333 : 1100, c, 1, groups[g], 3, g % 2, g % 3 ? 0.01 : 0);
        }
    pair_run(70000, 0, 0, 70, 2, true, 0);
    pair_run(70000, 3, 2, 70, 2, false, 0.01);
}

/* A group that shrinks after one that was large finds its scratch again, and the other way. */
TEST(groups_may_change_their_size) {
    static const int groups[] = {1, 1200, 3, 65, 64, 1, 2000, 100};
    for (size_t c = 0; c < N_CORRECT; c++) {
        struct pair p;
        pair_open(&p, 500, c, 1, false, 0.01);
        for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
            pair_commit(&p, groups[g]);
            pair_compare(&p, correct_twin[c].spec);
            pair_join(&p);
        }
    }
}

/* Sums are those of a plain loop, to rounding, and depend on the values and n alone. */
TEST(sums_are_sums) {
    static const size_t lengths[] = {0, 1, 7, 8, 9, 15, 16, 17, 63, 1000, 4097};
    float a[4097 + 3], b[4097 + 3];
    struct pl_rng rng;
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 1000, 0);
    for (size_t i = 0; i < 4097 + 3; i++) {
        a[i] = (float)pl_rng_normal(&rng);
        b[i] = (float)pl_rng_normal(&rng);
    }
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        size_t n = lengths[l];
        double dot = 0, distance2 = 0, size = 0;
        for (size_t i = 0; i < n; i++) {
            dot += (double)a[i] * b[i];
            size += fabs((double)a[i] * b[i]);
            distance2 += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        }
        double got = pl_vec_dot(a, b, n), far = pl_vec_distance2(a, b, n);
        assert_true(fabs(got - dot) <= 1e-13 * size);
        assert_true(fabs(far - distance2) <= 1e-13 * distance2);
        for (size_t shift = 1; shift <= 3; shift++) { /* other alignments, the same bits */
            float x[4097 + 3], y[4097 + 3];
            memcpy(x + shift, a, n * sizeof *x);
            memcpy(y + 3 - shift, b, n * sizeof *y);
            assert_true(pl_vec_dot(x + shift, y + 3 - shift, n) == got);
            assert_true(pl_vec_distance2(x + shift, y + 3 - shift, n) == far);
        }
    }
}
