/* A commit as a whole: what the members' arithmetic (commit.c) makes becomes the newest version,
 * and members that are not finite are left out.
 *
 * Versions are immutable, so a version that was made with such a member is not published but
 * written again without it. Rules that change vectors in place cannot go back: with them the blocks
 * that are not finite contribute nothing. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/store_state.h"

/* The newest version contains the group. */
static void publish_end(struct pl_store *s) {
    struct store_group *g = &s->group;
    struct pl_tally t = {0};
    for (int m = 0; m < g->n; m++) {
        if (g->member[m].finite != PL_FINITE_NO) pl_tally_add(&t, g->samples[m], g->member[m].loss);
        pl_store_release(s, g->member[m].base);
        free(g->member[m].absent);
    }
    g->n = 0;
    pl_members_count_absent(s);
    pl_rate_commit(&s->conf.rate, &s->progress, &t);
    s->newest->id = s->progress.n_commits;
    if (!s->conf.offload) pl_average_add(&s->average, s->newest->model, s->newest->id);
    s->newest->lr = pl_store_rate(s);
}

/* --- members that are left out ------------------------------------------------------------- */

bool pl_store_can_leave_out(const struct pl_store *s) {
    return s->optim->n_vectors == 0 && s->correct->n_vectors == 0 && !s->own && !s->direction &&
           !s->last && !s->conf.offload && !s->conf.slice.allreduce;
}

/* What a commit changes besides the new version, if it can be written again. */
struct publish_numbers {
    double lr_max, correct_number[PL_RULE_NUMBERS], optim_number[PL_RULE_NUMBERS];
    uint64_t n_corrected, n_commits;
};

static struct publish_numbers publish_numbers(const struct pl_store *s) {
    struct publish_numbers n = {
        .lr_max = s->lr_max, .n_corrected = s->n_corrected, .n_commits = s->progress.n_commits};
    memcpy(n.correct_number, s->correct_number, sizeof n.correct_number);
    memcpy(n.optim_number, s->optim_number, sizeof n.optim_number);
    return n;
}

static void publish_go_back(struct pl_store *s, const struct publish_numbers *n) {
    s->lr_max = n->lr_max;
    s->n_corrected = n->n_corrected;
    s->progress.n_commits = n->n_commits;
    memcpy(s->correct_number, n->correct_number, sizeof n->correct_number);
    memcpy(s->optim_number, n->optim_number, sizeof n->optim_number);
}

/* Nothing is left of the group: the model stays as it is. */
static void publish_same(struct pl_store *s, struct pl_version *next) {
    size_t bytes = s->conf.dim * sizeof *next->model;
    pl_commit_begin(s, pl_store_rate(s));
    memcpy(next->model, s->newest->model, bytes);
    if (next->lookahead != next->model) memcpy(next->lookahead, s->newest->lookahead, bytes);
}

struct publish_row {
    struct store_member member;
    uint32_t samples;
    int worker;
};

static void publish_set(struct store_group *g, int i, const struct publish_row *row) {
    g->member[i] = row->member;
    g->samples[i] = row->samples;
    g->worker[i] = row->worker;
}

/* Writes the version again, as if the spoiled members had never been in the group. The others are
 * judged again. If a worker spoils its vector only now, the blocks contribute nothing: there is no
 * third time. */
static int publish_without(struct pl_store *s, double factor, struct pl_version *next,
                           double *dot) {
    struct store_group *g = &s->group;
    int n = g->n, rc = PL_OK;
    struct publish_row *row = malloc((size_t)n * sizeof *row);
    if (!row) return PL_ENOMEM;
    if (s->conf.writes) s->conf.writes(s->conf.parallel_for.ctx, NULL);
    g->n = 0;
    for (int i = 0; i < n; i++) {
        if (g->member[i].finite == PL_FINITE_YES) g->member[i].finite = PL_FINITE_UNKNOWN;
        row[i] = (struct publish_row){g->member[i], g->samples[i], g->worker[i]};
        if (row[i].member.finite != PL_FINITE_NO) publish_set(g, g->n++, &row[i]);
    }
    if (g->n > 0)
        rc = pl_commit_write(s, factor, next, dot);
    else
        publish_same(s, next);
    for (int i = 0, used = 0; i < n; i++)
        if (row[i].member.finite != PL_FINITE_NO) row[i].member.finite = g->member[used++].finite;
    for (int i = 0; i < n; i++) publish_set(g, i, &row[i]);
    g->n = n;
    free(row);
    return rc;
}

static bool publish_spoiled(const struct pl_store *s) {
    const struct store_group *g = &s->group;
    for (int i = 0; i < g->n; i++)
        if (g->member[i].finite == PL_FINITE_NO) return true;
    return false;
}

/* --- commits ------------------------------------------------------------------------------- */

int pl_store_commit(struct pl_store *s, double factor, struct pl_measure *measure) {
    struct publish_numbers before = publish_numbers(s);
    struct pl_version *next = pl_store_version(s);
    double dot = 0;
    int rc = next ? pl_commit_write(s, factor, next, &dot) : PL_ENOMEM;
    if (!rc && pl_store_can_leave_out(s) && publish_spoiled(s)) {
        publish_go_back(s, &before);
        rc = publish_without(s, factor, next, &dot);
    }
    if (rc) {
        pl_store_release(s, next);
        return rc;
    }
    if (measure) measure->dot = s->last && s->progress.n_commits > 1 ? dot : NAN;
    pl_store_release(s, s->newest);
    s->newest = next;
    publish_end(s);
    return PL_OK;
}
