/* Filters: whether a contribution is accepted when it arrives. Notation as in the papers: g is the
 * gradient, x the model, and f of n workers may be hostile. */
#include <math.h>
#include <string.h>

#include "core/rule.h"

/* --- none -------------------------------------------------------------------------------- */

static const struct pl_filter_kind filter_none = {
    .id = {.name = "none", .brief = "accept everything", .paper = "", .opts = pl_no_opts},
};

/* --- kardam ------------------------------------------------------------------------------
 * Damaskinos, El Mhamdi, Guerraoui, Patra, Taziki, "Asynchronous Byzantine machine learning (the
 * case of SGD)", ICML 2018. Two conditions:
 *   Lipschitz   ||g - g'|| / ||x_t - x_(t-1)|| <= the (n-f)/n quantile of {K_p}, where g' is the
 *               gradient accepted last and K_p = ||g_p - g_p'|| / ||x_p - x_p'|| of worker p's own
 *               gradients on two successive models;
 *   frequency   among the authors of the last 2f accepted gradients and of this one, no f workers
 *               together appear more than f times.
 * K_p is computed from what p sent; in the paper p reports it. A rejected worker often restarts on
 * the model it had, and the formula then divides by zero. Either the server's last step replaces
 * the distance (same=step), or K_p is infinite (same=infinite), which accepts every gradient once
 * more than f workers are in that state. If g' came from a hostile worker, no other gradient agrees
 * with it. It is forgotten if none was accepted for KARDAM_PATIENCE arrivals of every worker, and
 * the next gradient is accepted unchecked. */

#define KARDAM_PATIENCE 10
enum { KARDAM_STEP, KARDAM_INFINITE };

struct kardam {
    int f;
    int same; /* KARDAM_STEP, KARDAM_INFINITE */
};

static const struct pl_opt kardam_opts[] = {
    PL_OPT_COUNT(struct kardam, f, "auto", 0, 1e6,
                 "number of hostile workers to tolerate, n > 3f+1 (auto: the most possible)"),
    PL_OPT_CHOICE(struct kardam, same, "step", "step|infinite",
                  "Lipschitz estimate from two gradients on the same model: over one server step, "
                  "or infinite"),
    PL_OPT_END,
};

/* Indices into the filter's memory. */
enum { KARDAM_G, KARDAM_NOW, KARDAM_BEFORE }; /* vectors: g', x_t, x_(t-1) */
enum {                                        /* integers */
       KARDAM_VERSION,
       KARDAM_MOVED,
       KARDAM_ANY,
       KARDAM_ROW,
       KARDAM_N,
       KARDAM_AUTHOR /* followed by the other authors */
};
enum { KARDAM_BASE, KARDAM_KNOWN }; /* marks: version of own + 1, whether K_p is known */

static int kardam_f(const void *conf, int n_workers) {
    int f = ((const struct kardam *)conf)->f;
    if (f != PL_COUNT_AUTO) return f;
    return n_workers > 4 ? (n_workers - 2) / 3 : 0;
}

static const char *kardam_check(const void *conf, int n_workers) {
    int f = kardam_f(conf, n_workers);
    return f > 0 && n_workers <= 3 * f + 1 ? "it needs more than 3f+1 workers; use a smaller f, or "
                                             "f=auto for the largest"
                                           : NULL;
}

static double kardam_ratio(const pl_real *g, const pl_real *h, const pl_real *x, const pl_real *y,
                           size_t n) {
    double over = sqrt(pl_vec_distance2(g, h, n)), under = sqrt(pl_vec_distance2(x, y, n));
    if (over == 0) return 0;
    double k = over / under; /* infinite if the model did not move */
    return isnan(k) ? (double)INFINITY : k;
}

/* Stores the current model and the previous one. */
static void kardam_move(const struct pl_filter_at *at, struct pl_filter_memory *m) {
    if (m->whole[KARDAM_VERSION] == at->version + 1) return;
    pl_real *before = m->vector[KARDAM_BEFORE];
    m->whole[KARDAM_MOVED] = m->whole[KARDAM_VERSION] != 0;
    m->vector[KARDAM_BEFORE] = m->vector[KARDAM_NOW];
    m->vector[KARDAM_NOW] = before;
    memcpy(before, at->w, at->n * sizeof *before);
    m->whole[KARDAM_VERSION] = at->version + 1;
}

/* Updates K_p from the worker's own gradients. */
static void kardam_learn(const struct kardam *c, const struct pl_filter_at *at,
                         struct pl_filter_memory *m, const pl_real *g) {
    uint64_t *mark = &m->mark[(size_t)at->worker * PL_FILTER_MARKS];
    const pl_real *x = at->base_w, *y = m->own[1];
    bool same = mark[KARDAM_BASE] == at->base + 1, known = mark[KARDAM_BASE] != 0;
    if (same && c->same == KARDAM_STEP) {
        known = m->whole[KARDAM_MOVED] != 0;
        x = m->vector[KARDAM_NOW];
        y = m->vector[KARDAM_BEFORE];
    }
    if (known) {
        m->number[at->worker] = kardam_ratio(g, m->own[0], x, y, at->n);
        mark[KARDAM_KNOWN] = 1;
    }
    mark[KARDAM_BASE] = at->base + 1;
    memcpy(m->own[0], g, at->n * sizeof *g);
    memcpy(m->own[1], at->base_w, at->n * sizeof *g);
}

/* The (n-f)/n quantile of the known K_p: of m numbers the ceil(m (n-f)/n)-th smallest. Infinite if
 * none is known. */
static double kardam_quantile(int f, int n_workers, struct pl_filter_memory *m) {
    double *k = m->room;
    int n = 0;
    for (int i = 0; i < n_workers; i++) {
        if (!m->mark[(size_t)i * PL_FILTER_MARKS + KARDAM_KNOWN]) continue;
        int at = n++;
        for (; at > 0 && k[at - 1] > m->number[i]; at--) k[at] = k[at - 1];
        k[at] = m->number[i];
    }
    int64_t rank = ((int64_t)n * (n_workers - f) + n_workers - 1) / n_workers;
    return n > 0 ? k[rank > 0 ? rank - 1 : 0] : (double)INFINITY;
}

/* Tells whether f authors together have more than f of the last 2f + 1, that is, whether an author
 * appears twice. The same test is used while there are fewer, because f authors with f of a few
 * would leave no room for others later. */
static bool kardam_frequent(const struct pl_filter_at *at, const struct pl_filter_memory *m) {
    for (uint64_t i = 0; i < m->whole[KARDAM_N]; i++)
        if (m->whole[KARDAM_AUTHOR + i] == (uint64_t)at->worker) return true;
    return false;
}

static void kardam_believed(int f, const struct pl_filter_at *at, struct pl_filter_memory *m,
                            const pl_real *g) {
    uint64_t *author = &m->whole[KARDAM_AUTHOR], *n = &m->whole[KARDAM_N], most = 2 * (uint64_t)f;
    memcpy(m->vector[KARDAM_G], g, at->n * sizeof *g);
    m->whole[KARDAM_ANY] = 1;
    while (*n > 0 && *n >= most) memmove(author, author + 1, --*n * sizeof *author);
    if (most > 0) author[(*n)++] = (uint64_t)at->worker;
}

/* Tells whether g is close enough to the gradient accepted last. */
static bool kardam_smooth(int f, const struct pl_filter_at *at, struct pl_filter_memory *m,
                          const pl_real *g) {
    if (m->whole[KARDAM_ROW] >= KARDAM_PATIENCE * (uint64_t)at->n_workers)
        m->whole[KARDAM_ANY] = m->whole[KARDAM_ROW] = 0;
    if (!m->whole[KARDAM_ANY] || !m->whole[KARDAM_MOVED]) return true;
    double k = kardam_ratio(g, m->vector[KARDAM_G], m->vector[KARDAM_NOW], m->vector[KARDAM_BEFORE],
                            at->n);
    return k <= kardam_quantile(f, at->n_workers, m);
}

static bool kardam_believes(const void *conf, const struct pl_filter_at *at,
                            struct pl_filter_memory *m, pl_real *g) {
    int f = kardam_f(conf, at->n_workers);
    if (m->whole[KARDAM_N] > 2 * (uint64_t)f) m->whole[KARDAM_N] = 0; /* f was larger */
    kardam_move(at, m);
    kardam_learn(conf, at, m, g);
    bool believed = kardam_smooth(f, at, m, g) && !kardam_frequent(at, m);
    if (believed) kardam_believed(f, at, m, g);
    m->whole[KARDAM_ROW] = believed ? 0 : m->whole[KARDAM_ROW] + 1;
    return believed;
}

static const struct pl_filter_kind filter_kardam = {
    .id = {.name = "kardam",
           .brief = "reject gradients that change faster than most, and too many from few workers",
           .paper = "Damaskinos, El Mhamdi, Guerraoui, Patra, Taziki, ICML 2018",
           .opts = kardam_opts,
           .conf_size = sizeof(struct kardam),
           .needs = PL_NEEDS_SERVER | PL_NEEDS_ONE_SERVER},
    .n_vectors = 3,
    .n_own = 2,
    .check = kardam_check,
    .believes = kardam_believes,
};

/* --- zeno --------------------------------------------------------------------------------
 * Xie, Koyejo, Gupta, "Zeno++: robust fully asynchronous SGD", ICML 2020. Let v be a gradient on
 * samples that the server holds. g is scaled to the length of v and accepted if
 *   eta <v, g> - rho ||g||^2 >= -eta eps.
 * The paper applies the scaled g. v is a few updates old: where the loss falls quickly, it is much
 * longer than the gradients that arrive, and lengthening them makes honest runs oscillate. The
 * default only shortens them (scale=down), which bounds what a hostile worker can do just as well.
 */

enum { ZENO_DOWN, ZENO_BOTH };

struct zeno {
    struct pl_filter_trust trust;
    double rho, eps;
    int scale; /* ZENO_DOWN, ZENO_BOTH */
};

static const struct pl_opt zeno_opts[] = {
    PL_OPT_INT(struct pl_filter_trust, samples, "128", 1, 1000000,
               "training samples kept by the server"),
    PL_OPT_INT(struct pl_filter_trust, every, "10", 1, 1e9,
               "updates between recomputations of the server's gradient (k in the paper)"),
    PL_OPT_REAL(struct zeno, rho, "0.002", 0, 1e6, "weight of the squared norm"),
    PL_OPT_REAL(struct zeno, eps, "0.1", -1e6, 1e6, "tolerance"),
    PL_OPT_CHOICE(struct zeno, scale, "down", "down|both",
                  "down: shorten gradients to the length of the server's; both: also lengthen "
                  "them, as in the paper"),
    PL_OPT_END,
};

static bool zeno_believes(const void *conf, const struct pl_filter_at *at,
                          struct pl_filter_memory *m, pl_real *g) {
    const struct zeno *c = conf;
    (void)m;
    double vv = pl_vec_dot(at->trusted, at->trusted, at->n);
    double gg = pl_vec_dot(g, g, at->n), vg = pl_vec_dot(at->trusted, g, at->n);
    double scale = gg > 0 ? sqrt(vv) / sqrt(gg) : 0, length2 = gg > 0 ? vv : 0;
    if (!(at->lr * scale * vg - c->rho * length2 >= -at->lr * c->eps)) return false;
    if (c->scale == ZENO_DOWN && scale > 1) return true;
    for (size_t i = 0; i < at->n; i++) g[i] = (pl_real)(scale * (double)g[i]);
    return true;
}

static const struct pl_filter_kind filter_zeno = {
    .id = {.name = "zeno",
           .brief = "reject gradients that go uphill on the server's own samples; rescale the rest",
           .paper = "Xie, Koyejo, Gupta, ICML 2020 (Zeno++)",
           .opts = zeno_opts,
           .conf_size = sizeof(struct zeno),
           .needs = PL_NEEDS_SERVER | PL_NEEDS_ONE_SERVER | PL_NEEDS_REFERENCE},
    .trusts = true,
    .believes = zeno_believes,
};

static const struct pl_entry *const filter_table[] = {&filter_none.id, &filter_kardam.id,
                                                      &filter_zeno.id, NULL};

const struct pl_family pl_filter_family = {"filter", "which contributions are accepted?",
                                           filter_table};
