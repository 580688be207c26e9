#include "core/aggregate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- reductions -------------------------------------------------------------------------- */

static const struct pl_reduce *aggregate_rule(const struct pl_chain *c, int i) {
    return (const struct pl_reduce *)c->link[i].entry;
}

bool pl_reduce_geometry(const struct pl_chain *c) {
    for (int i = 0; i < c->n; i++)
        if (aggregate_rule(c, i)->geometry) return true;
    return false;
}

/* Whether it needs matrices of members by members. */
static bool aggregate_squares(const struct pl_chain *c) {
    return pl_reduce_geometry(c) || c->n > 1;
}

bool pl_reduce_remembers(const struct pl_chain *c) {
    for (int i = 0; i < c->n; i++)
        if (aggregate_rule(c, i)->remembers) return true;
    return false;
}

static int aggregate_rows(const struct pl_reduce *r, const void *conf, int n) {
    if (r->rows) return r->rows(conf, n);
    return !r->mix || r->prepares ? n : 1;
}

/* f as given, or the largest that n vectors allow; negative if there is none. */
static int aggregate_f(const struct pl_reduce *r, const void *conf, int n) {
    if (!r->needs) return 0;
    int given = ((const struct pl_reduce_f *)conf)->f, most = r->most(conf, n);
    if (given == PL_COUNT_AUTO) return most;
    return given <= most ? given : -1;
}

/* Number of vectors that reach link i if the group has k members. */
static int aggregate_reach(const struct pl_chain *c, int i, int k) {
    for (int j = 0; j < i; j++) k = aggregate_rows(aggregate_rule(c, j), c->link[j].conf, k);
    return k;
}

/* The smallest group that satisfies link i; 0 if there is none. */
static int aggregate_least(const struct pl_chain *c, int i) {
    for (int k = 1; k <= 8 * PL_GRAM_MAX; k++)
        if (aggregate_f(aggregate_rule(c, i), c->link[i].conf, aggregate_reach(c, i, k)) >= 0)
            return k;
    return 0;
}

static int aggregate_refuse(const struct pl_chain *c, int i, int k, struct pl_why *why) {
    char spec[PL_SPEC_MAX], all[64], f[64] = "", least[64] = "";
    const struct pl_reduce *r = aggregate_rule(c, i);
    int n = aggregate_reach(c, i, k), most = r->most(c->link[i].conf, n),
        enough = aggregate_least(c, i);
    pl_spec_print(c->link[i].entry, c->link[i].conf, spec, sizeof spec);
    snprintf(all, sizeof all, n == k ? "only K=%d gradients are" : "of K=%d gradients only %d are",
             k, n);
    if (most >= 0) snprintf(f, sizeof f, "use f=%d%s", most, most > 0 ? " or less" : "");
    if (enough > 0)
        snprintf(least, sizeof least, "%sK=%d or more", most >= 0 ? ", or " : "use ", enough);
    return pl_fail(why, PL_EUSAGE, "reduce '%.80s' needs %s and %s reduced at once; %s%s", spec,
                   r->needs, all, f, f[0] || least[0] ? least : "use another rule");
}

/* A link without an f takes the largest f of the other links. */
static void aggregate_share_f(struct pl_chain *c) {
    int given = PL_COUNT_AUTO;
    for (int i = 0; i < c->n; i++) {
        const struct pl_reduce_f *f = c->link[i].conf;
        if (aggregate_rule(c, i)->needs && f->f > given) given = f->f;
    }
    for (int i = 0; i < c->n; i++) {
        struct pl_reduce_f *f = c->link[i].conf;
        if (aggregate_rule(c, i)->needs && f->f == PL_COUNT_AUTO) f->f = given;
    }
}

int pl_reduce_check(struct pl_chain *c, struct pl_sizes group, struct pl_why *why) {
    aggregate_share_f(c);
    for (int i = 0; i < c->n; i++) {
        const struct pl_reduce *r = aggregate_rule(c, i);
        if (r->prepares && i == c->n - 1)
            return pl_fail(why, PL_EUSAGE,
                           "reduce '%s' prepares gradients for another rule; add one, as in "
                           "%s+median",
                           r->id.name, r->id.name);
        if (!r->prepares && i < c->n - 1)
            return pl_fail(why, PL_EUSAGE,
                           "reduce '%s' leaves one vector, so no rule can follow it; put '%s' "
                           "last",
                           r->id.name, r->id.name);
        if (aggregate_f(r, c->link[i].conf, aggregate_reach(c, i, group.least)) < 0)
            return aggregate_refuse(c, i, group.least, why);
    }
    if (aggregate_squares(c) && group.most > PL_GRAM_MAX)
        return pl_fail(
            why, PL_EUSAGE,
            "reduce '%s' compares gradients in pairs, but a group may have K=%d of them; "
            "use K=%d or less, or a coordinate-wise rule such as %s",
            aggregate_rule(c, c->n - 1)->id.name, group.most, PL_GRAM_MAX,
            pl_reduce_median.id.name);
    return PL_OK;
}

/* --- a group ----------------------------------------------------------------------------- */

struct pl_mixer {
    int room_n;
    uint64_t n_medians;
    double *room, *gram[2], *row[2], *mine, *product;
};

struct pl_mixer *pl_mixer_new(void) {
    return calloc(1, sizeof(struct pl_mixer));
}

static void aggregate_clear(struct pl_mixer *m) {
    free(m->room);
    free(m->gram[0]);
    free(m->gram[1]);
    free(m->row[0]);
    free(m->row[1]);
    free(m->mine);
    free(m->product);
    *m = (struct pl_mixer){.n_medians = m->n_medians};
}

uint64_t pl_mixer_n_medians(const struct pl_mixer *m) {
    return m->n_medians;
}

void pl_mixer_free(struct pl_mixer *m) {
    if (!m) return;
    aggregate_clear(m);
    free(m);
}

/* Makes room for n vectors. A single sum of the members needs no square matrices. */
static bool aggregate_grow(struct pl_mixer *m, int n, bool squares) {
    size_t side = (size_t)n + 1, size = squares ? side * side : side;
    if (n <= m->room_n) return true;
    aggregate_clear(m);
    m->room = malloc((squares ? PL_MIX_ROOM(n) : 4 * side) * sizeof *m->room);
    double **array[] = {&m->row[0], &m->row[1], &m->mine, &m->gram[0], &m->gram[1], &m->product};
    bool ok = m->room != NULL;
    for (size_t i = 0; i < (squares ? 6 : 3); i++)
        ok = (*array[i] = malloc(size * sizeof(double))) && ok;
    if (ok) m->room_n = n;
    return ok;
}

/* sum of a[i] b[i * stride]; a 0 in a skips b, even if that is not finite */
static double aggregate_dot(const double *a, const double *b, int n, size_t stride) {
    double sum = 0;
    for (int i = 0; i < n; i++)
        if (a[i] != 0) sum += a[i] * b[(size_t)i * stride];
    return sum;
}

/* Inner products of mixed vectors: R G R', with the previous result unchanged. */
static void aggregate_gram(struct pl_mixer *m, const double *row, int n_rows, int n,
                           const double *gram, double *out) {
    size_t side = (size_t)n + 1, next = (size_t)n_rows + 1;
    for (int i = 0; i <= n_rows; i++)
        for (size_t j = 0; j < side; j++)
            m->product[(size_t)i * side + j] =
                i < n_rows ? aggregate_dot(row + (size_t)i * side, gram + j, n + 1, side)
                           : gram[(size_t)n * side + j];
    for (size_t i = 0; i < next; i++)
        for (size_t j = 0; j <= i; j++) {
            const double *a = j < next - 1 ? row + j * side : NULL;
            double x = a ? aggregate_dot(a, m->product + i * side, n + 1, 1)
                         : m->product[i * side + side - 1];
            out[i * next + j] = out[j * next + i] = x;
        }
}

/* The members' weights after all links so far: row [n_rows][n+1] times old [n][width], or times the
 * factors at the first link. */
static void aggregate_mix(const double *row, int n_rows, int n, const double *old,
                          const double *factor, int width, double *out) {
    size_t side = (size_t)n + 1;
    for (int i = 0; i < n_rows; i++) {
        const double *mine = row + (size_t)i * side;
        double *to = out + (size_t)i * (size_t)width;
        for (int j = 0; j < width; j++)
            to[j] = j == width - 1 ? mine[n]
                    : old          ? aggregate_dot(mine, old + j, n, (size_t)width)
                                   : mine[j] * factor[j];
    }
}

/* Inner products of the members after multiplication by their factors. */
static const double *aggregate_scale(const double *gram, int n, const double *factor, double *out) {
    size_t side = (size_t)n + 1;
    for (size_t i = 0; i < side; i++)
        for (size_t j = 0; j < side; j++) {
            double by = (i + 1 < side ? factor[i] : 1) * (j + 1 < side ? factor[j] : 1);
            out[i * side + j] = by != 0 ? by * gram[i * side + j] : 0;
        }
    return out;
}

/* Runs a link; *at becomes the input of the next. False: its condition fails or it cannot decide.
 */
static bool aggregate_link(struct pl_mixer *m, const struct pl_choice *link, bool last,
                           const double *factor, struct pl_reduce_at *at, struct pl_mixed *out) {
    const struct pl_reduce *r = (const struct pl_reduce *)link->entry;
    at->f = aggregate_f(r, link->conf, at->n);
    if (at->f < 0) return false;
    out->rule = r->apply ? r : NULL;
    out->conf = link->conf;
    if (!r->mix) return true;
    size_t room = (size_t)aggregate_rows(r, link->conf, at->n) * ((size_t)at->n + 1);
    memset(m->mine, 0, room * sizeof(double));
    int n_rows = r->mix(link->conf, at, m->mine);
    if (n_rows <= 0) return false;
    double *next = out->row == m->row[0] ? m->row[1] : m->row[0];
    aggregate_mix(m->mine, n_rows, at->n, out->row, factor, out->width, next);
    out->row = next;
    if (at->gram && !last) {
        next = at->gram == m->gram[0] ? m->gram[1] : m->gram[0];
        aggregate_gram(m, m->mine, n_rows, at->n, at->gram, next);
        at->gram = next;
    }
    at->n = n_rows;
    at->samples = NULL;
    at->worker = NULL;
    return true;
}

int pl_mix(struct pl_mixer *m, const struct pl_chain *c, const struct pl_reduce_at *group,
           const double *factor, struct pl_mixed *out) {
    bool holds = !aggregate_squares(c) || group->n <= PL_GRAM_MAX;
    *out = (struct pl_mixed){.at = *group, .width = group->n + 1, .factor = factor};
    if (holds) {
        if (!aggregate_grow(m, group->n, aggregate_squares(c))) return PL_ENOMEM;
        out->at.room = m->room;
        if (group->gram) out->at.gram = aggregate_scale(group->gram, group->n, factor, m->gram[0]);
    }
    for (int i = 0; holds && i < c->n; i++)
        holds = aggregate_link(m, &c->link[i], i == c->n - 1, factor, &out->at, out);
    if (!holds) {
        *out = (struct pl_mixed){
            .rule = &pl_reduce_median, .at = *group, .width = group->n + 1, .factor = factor};
        m->n_medians++;
    }
    return PL_OK;
}
