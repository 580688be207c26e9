/* Delay laws: parsing, drawing, and the functions theory needs of a law.
 *
 * The laws are those of Dutta et al. 2018 (exponential, shifted exponential, Pareto), of the
 * DANA and Gap-Aware simulators (gamma; `hetero:v=` is the CVB model of Ali et al. 2000: worker i's
 * mean is multiplied by p_i ~ Gamma(1/v^2, v^2), mean 1), log-normal, constant, and a trace of
 * measured seconds. `hetero` multiplies up to three speeds: v (random), power ((i+1)^power for
 * worker i counted from 0) and slow/by (the last share of the workers is so many times slower).
 *
 * Memory: one law, or one per item of a list; per worker a law index where there is a list and a
 * speed where there is a hetero; nothing per worker otherwise. A draw is keyed by (seed, worker,
 * task), is cut at PL_DELAY_MAX and is therefore always finite.
 *
 * A trace file has one number of seconds per line, or two columns "worker seconds" with workers
 * numbered from 1; '#' begins a comment. Worker i draws with replacement from its own
 * measurements; with more workers than the file knows, the file's workers are used in turn. */
#include "core/delay.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "base/special.h"

#define DELAY_WORKERS_MAX (1 << 24) /* workers of one run */
#define DELAY_ITEMS_MAX 256         /* laws in a list */
#define DELAY_TIMES_MAX 1000000     /* N in N*LAW */
#define DELAY_SPEED_MIN                                                                            \
    1e-3 /* a drawn speed below is raised to this: nobody is infinitely fast                       \
          */
#define TRACE_VALUES_MAX 4000000  /* measurements in a file */
#define TRACE_WORKERS_MAX 1000000 /* workers in a file */
#define TRACE_LINE_MAX 256        /* characters in a line, with its final zero */

struct trace {
    double *value; /* [n], each worker's part ascending */
    size_t *start; /* [n_groups + 1] */
    double *mean;  /* [n_groups] */
    size_t n_groups;
};

struct law {
    enum pl_delay_kind kind;
    double a, b; /* see enum pl_delay_kind */
    struct trace *trace;
};

struct pl_delay {
    int n_workers, n_laws;
    bool alike;
    struct law *law;  /* [n_laws] */
    uint16_t *law_of; /* [n_workers], or NULL: all follow law[0] */
    double *speed;    /* [n_workers], or NULL: all 1 */
};

/* The conf of every law but a trace: its one or two numbers. */
struct numbers {
    double a, b;
};
#define NUMBER(name_, field, def_, lo, hi, help_)                                                  \
    {                                                                                              \
        .name = name_, .type = PL_OPT_REAL, .def = def_, .help = help_, .min = lo, .max = hi,      \
        .offset = offsetof(struct numbers, field)                                                  \
    }

/* The laws. exp keeps its mean in b and has a = 0, so that it is shiftexp without a shift. */

#define LAW(name_, brief_, paper_, opts_)                                                          \
    static const struct pl_entry delay_##name_ = {#name_, brief_, paper_, opts_,                   \
                                                  sizeof(struct numbers)}

static const struct pl_opt const_opts[] = {
    NUMBER("t", a, "1", 0, PL_DELAY_MAX, "seconds of every mini-batch"), {.name = NULL}};
static const struct pl_opt exp_opts[] = {
    NUMBER("mean", b, "1", 1e-12, PL_DELAY_MAX, "mean seconds"), {.name = NULL}};
static const struct pl_opt shiftexp_opts[] = {
    NUMBER("shift", a, "1", 0, PL_DELAY_MAX, "seconds that every mini-batch takes at least"),
    NUMBER("mean", b, "1", 1e-12, PL_DELAY_MAX, "mean seconds of the exponential part, on top"),
    {.name = NULL}};
static const struct pl_opt pareto_opts[] = {
    NUMBER("shape", a, "2", 0.05, 1e6, "exponent of the tail; no mean at 1 or below"),
    NUMBER("scale", b, "1", 1e-12, PL_DELAY_MAX, "least seconds"),
    {.name = NULL}};
static const struct pl_opt gamma_opts[] = {
    NUMBER("shape", a, "100", 0.01, 1e6, "1/(coefficient of variation)^2"),
    NUMBER("mean", b, "1", 1e-12, PL_DELAY_MAX, "mean seconds"),
    {.name = NULL}};
static const struct pl_opt lognormal_opts[] = {
    NUMBER("mu", a, "0", -50, 20, "mean of the logarithm of the seconds"),
    NUMBER("sigma", b, "1", 1e-6, 20, "standard deviation of that logarithm"),
    {.name = NULL}};

LAW(const, "every mini-batch takes t seconds", "", const_opts);
LAW(exp, "exponential", "", exp_opts);
LAW(shiftexp, "shift plus an exponential", "Dutta et al., AISTATS 2018", shiftexp_opts);
LAW(pareto, "heavy tail, Pr(X > t) = (scale/t)^shape", "Dutta et al., AISTATS 2018", pareto_opts);
LAW(gamma, "gamma, as in the DANA simulator", "Ali et al., HCW 2000", gamma_opts);
LAW(lognormal, "exp of a normal", "", lognormal_opts);

struct trace_conf {
    char file[PL_TEXT_MAX];
};
static const struct pl_opt trace_opts[] = {
    {.name = "file",
     .type = PL_OPT_TEXT,
     .def = "",
     .help = "measured seconds, one per line, or two columns: worker (from 1) and seconds",
     .offset = offsetof(struct trace_conf, file)},
    {.name = NULL}};
static const struct pl_entry delay_trace = {
    "trace", "draws from measured delays, each worker from its own where the file tells them apart",
    "", trace_opts, sizeof(struct trace_conf)};

static size_t trace_group(const struct trace *t, uint32_t worker, const double **value) {
    size_t g = worker % t->n_groups;
    *value = t->value + t->start[g];
    return t->start[g + 1] - t->start[g];
}

static double trace_cdf(const struct trace *t, uint32_t worker, double x, bool upper) {
    const double *value;
    size_t n = trace_group(t, worker, &value), lo = 0, hi = n;
    while (lo < hi) { /* how many are <= x */
        size_t mid = lo + (hi - lo) / 2;
        if (value[mid] <= x)
            lo = mid + 1;
        else
            hi = mid;
    }
    return (double)(upper ? n - lo : lo) / (double)n;
}

static double trace_quantile(const struct trace *t, uint32_t worker, double u) {
    const double *value;
    size_t n = trace_group(t, worker, &value);
    double at = ceil(u * (double)n) - 1.0;
    return value[at <= 0.0 ? 0 : at >= (double)(n - 1) ? n - 1 : (size_t)at];
}

static double law_draw(const struct law *l, uint32_t worker, struct pl_rng *r) {
    const double *value;
    switch (l->kind) {
    case PL_DELAY_CONST: return l->a;
    case PL_DELAY_EXP:
    case PL_DELAY_SHIFTEXP: return l->a + l->b * pl_rng_exp(r);
    case PL_DELAY_PARETO: return l->b * exp(pl_rng_exp(r) / l->a);
    case PL_DELAY_GAMMA: return l->b / l->a * pl_rng_gamma(r, l->a);
    case PL_DELAY_LOGNORMAL: return exp(l->a + l->b * pl_rng_normal(r));
    case PL_DELAY_TRACE: {
        size_t n = trace_group(l->trace, worker, &value);
        return value[pl_rng_below(r, (uint32_t)n)];
    }
    }
    return 0.0;
}

static double law_mean(const struct law *l, uint32_t worker) {
    switch (l->kind) {
    case PL_DELAY_CONST: return l->a;
    case PL_DELAY_EXP:
    case PL_DELAY_SHIFTEXP: return l->a + l->b;
    case PL_DELAY_PARETO: return l->a > 1.0 ? l->a * l->b / (l->a - 1.0) : INFINITY;
    case PL_DELAY_GAMMA: return l->b;
    case PL_DELAY_LOGNORMAL: return exp(l->a + 0.5 * l->b * l->b);
    case PL_DELAY_TRACE: return l->trace->mean[worker % l->trace->n_groups];
    }
    return 0.0;
}

/* Pr(X <= t), or Pr(X > t) where `upper`, for t >= 0. */
static double law_cdf(const struct law *l, uint32_t worker, double t, bool upper) {
    double x = 0.0; /* exp, shiftexp and pareto: -log Pr(X > t) */
    switch (l->kind) {
    case PL_DELAY_CONST: return (t >= l->a) != upper ? 1.0 : 0.0;
    case PL_DELAY_EXP:
    case PL_DELAY_SHIFTEXP: x = t > l->a ? (t - l->a) / l->b : 0.0; break;
    case PL_DELAY_PARETO: x = t > l->b ? l->a * log(t / l->b) : 0.0; break;
    case PL_DELAY_GAMMA: return pl_gamma_cdf(l->a, t * l->a / l->b, upper);
    case PL_DELAY_LOGNORMAL: return pl_normal_cdf((log(t) - l->a) / l->b, upper);
    case PL_DELAY_TRACE: return trace_cdf(l->trace, worker, t, upper);
    }
    return upper ? exp(-x) : -expm1(-x);
}

static double law_quantile(const struct law *l, uint32_t worker, double u) {
    switch (l->kind) {
    case PL_DELAY_CONST: return l->a;
    case PL_DELAY_EXP:
    case PL_DELAY_SHIFTEXP: return l->a - l->b * log1p(-u);
    case PL_DELAY_PARETO: return l->b * exp(-log1p(-u) / l->a);
    case PL_DELAY_GAMMA: return l->b / l->a * pl_gamma_quantile(l->a, u);
    case PL_DELAY_LOGNORMAL: return exp(l->a + l->b * pl_normal_quantile(u));
    case PL_DELAY_TRACE: return trace_quantile(l->trace, worker, u);
    }
    return 0.0;
}

/* hetero is in the table for `list`; pl_delay_open takes it apart itself. */

struct hetero {
    double v, power, slow, by;
};
#define SPEED(name_, def_, lo, hi, help_)                                                          \
    {                                                                                              \
        .name = #name_, .type = PL_OPT_REAL, .def = def_, .help = help_, .min = lo, .max = hi,     \
        .offset = offsetof(struct hetero, name_)                                                   \
    }
static const struct pl_opt hetero_opts[] = {
    SPEED(v, "0", 0, 2, "coefficient of variation of the workers' mean times, drawn from a gamma"),
    SPEED(power, "0", -4, 4, "worker i, counted from 1, takes i^power times as long"),
    SPEED(slow, "0", 0, 1, "share of the workers, the last ones, that is slow; at least one"),
    SPEED(by, "5", 1e-3, 1e6, "how many times as long the slow ones take"),
    {.name = NULL}};
static const struct pl_entry delay_hetero = {
    "hetero", "workers of different speeds: hetero:v=0.6,LAW or power= or slow=,by=; LAW is last",
    "Ali et al., HCW 2000 (v)", hetero_opts, sizeof(struct hetero)};

/* in the order of enum pl_delay_kind */
static const struct pl_entry *const delay_table[] = {&delay_const,  &delay_exp,    &delay_shiftexp,
                                                     &delay_pareto, &delay_gamma,  &delay_lognormal,
                                                     &delay_trace,  &delay_hetero, NULL};

const struct pl_family pl_delay_family = {
    "delay", "how long does a mini-batch take on a worker? lists: LAW|LAW|2*LAW, in turn",
    delay_table};

/* Reading a trace */

struct measured {
    uint32_t worker; /* from 1; 1 for all where the file has one column */
    double seconds;
};

struct measured_list {
    struct measured *at;
    size_t n, room;
    int columns;
};

static int measured_compare(const void *pa, const void *pb) {
    const struct measured *a = pa, *b = pb;
    if (a->worker != b->worker) return a->worker < b->worker ? -1 : 1;
    return (a->seconds > b->seconds) - (a->seconds < b->seconds);
}

/* Adds the numbers of one line, if any. Returns what is wrong with it, or NULL. */
static const char *measured_line(struct measured_list *m, char *line) {
    line[strcspn(line, "#\r\n")] = '\0';
    double x[2] = {0, 0};
    int n = 0;
    for (char *p = line + strspn(line, " \t"); *p; p += strspn(p, " \t")) {
        char *end;
        if (n == 2) return "has more than two columns";
        x[n] = strtod(p, &end);
        if (end == p || !strchr(" \t", *end)) return "is not a number of seconds";
        n++;
        p = end;
    }
    if (n == 0) return NULL;
    if (m->columns == 0) m->columns = n;
    if (n != m->columns) return "has another number of columns than the lines before it";
    double seconds = x[n - 1];
    if (!(seconds >= 0.0 && seconds <= PL_DELAY_MAX)) return "is not between 0 and 1e9 seconds";
    if (n == 2 && !(x[0] >= 1.0 && x[0] <= TRACE_WORKERS_MAX && x[0] == floor(x[0])))
        return "does not begin with a worker's number, counted from 1";
    if (m->n == m->room) {
        if (m->n == TRACE_VALUES_MAX) return "is one measurement too many; 4000000 are accepted";
        size_t room = m->room ? 2 * m->room : 1024;
        if (room > TRACE_VALUES_MAX) room = TRACE_VALUES_MAX;
        struct measured *at = realloc(m->at, room * sizeof *at);
        if (!at) return "does not fit into memory";
        m->at = at;
        m->room = room;
    }
    m->at[m->n++] = (struct measured){n == 2 ? (uint32_t)x[0] : 1u, seconds};
    return NULL;
}

static int measured_read(const char *file, struct measured_list *m, struct pl_why *why) {
    if (!file[0])
        return pl_fail(why, PL_EUSAGE,
                       "delay 'trace' needs a file of measured seconds: trace:FILE");
    FILE *in = fopen(file, "r");
    if (!in) return pl_fail(why, PL_EIO, "delay trace '%s': %s", file, strerror(errno));
    char line[TRACE_LINE_MAX];
    const char *wrong = NULL;
    unsigned long number = 0;
    while (!wrong && fgets(line, sizeof line, in)) {
        number++;
        if (!strchr(line, '\n') && !feof(in))
            wrong = "is longer than 255 characters or not text";
        else
            wrong = measured_line(m, line);
    }
    int failed = ferror(in) ? errno : 0;
    fclose(in);
    if (failed) return pl_fail(why, PL_EIO, "delay trace '%s': %s", file, strerror(failed));
    if (wrong)
        return pl_fail(why, PL_EDATA,
                       "delay trace '%s': line %lu %s; a line is SECONDS or WORKER SECONDS", file,
                       number, wrong);
    if (m->n == 0)
        return pl_fail(why, PL_EDATA, "delay trace '%s' holds no measurement; a line is SECONDS",
                       file);
    return PL_OK;
}

static void trace_free(struct trace *t) {
    if (!t) return;
    free(t->value);
    free(t->start);
    free(t->mean);
    free(t);
}

static int trace_build(const char *file, struct measured_list *m, struct trace **out,
                       struct pl_why *why) {
    qsort(m->at, m->n, sizeof *m->at, measured_compare);
    size_t n_groups = m->at[m->n - 1].worker;
    struct trace *t = calloc(1, sizeof *t);
    if (t) {
        t->value = malloc(m->n * sizeof *t->value);
        t->start = calloc(n_groups + 1, sizeof *t->start);
        t->mean = calloc(n_groups, sizeof *t->mean);
    }
    if (!t || !t->value || !t->start || !t->mean) {
        trace_free(t);
        return pl_fail(why, PL_ENOMEM, "out of memory for delay trace '%s'", file);
    }
    t->n_groups = n_groups;
    size_t i = 0;
    for (size_t g = 0; g < n_groups; g++) {
        t->start[g] = i;
        for (; i < m->n && m->at[i].worker == g + 1; i++) {
            t->value[i] = m->at[i].seconds;
            t->mean[g] += (t->value[i] - t->mean[g]) / (double)(i - t->start[g] + 1);
        }
        if (i == t->start[g]) {
            trace_free(t);
            return pl_fail(why, PL_EDATA,
                           "delay trace '%s' has no line for worker %zu; it needs one for each of "
                           "its %zu workers",
                           file, g + 1, n_groups);
        }
    }
    t->start[n_groups] = m->n;
    *out = t;
    return PL_OK;
}

static int trace_open(const char *file, struct trace **out, struct pl_why *why) {
    struct measured_list m = {0};
    int rc = measured_read(file, &m, why);
    if (!rc) rc = trace_build(file, &m, out, why);
    free(m.at);
    return rc;
}

/* Parsing */

/* One law of a list, "exp:mean=2", into *law. */
static int delay_law(const char *spec, int n_workers, struct law *law, struct pl_why *why) {
    const struct pl_entry *entry;
    void *conf;
    int rc = pl_spec_parse(&pl_delay_family, spec, n_workers, &entry, &conf, why);
    if (rc) return rc;
    *law = (struct law){0};
    while (delay_table[law->kind] != entry) law->kind++;
    if (law->kind == PL_DELAY_TRACE) {
        rc = trace_open(((struct trace_conf *)conf)->file, &law->trace, why);
    } else {
        const struct numbers *x = conf;
        law->a = x->a;
        law->b = x->b;
    }
    free(conf);
    return rc;
}

/* "3*exp" -> 3 and "exp"; "exp" -> 1. */
static int delay_times(const char **item, size_t *times, struct pl_why *why) {
    size_t digits = strspn(*item, "0123456789");
    *times = 1;
    if (digits == 0 || (*item)[digits] != '*') return PL_OK;
    unsigned long n = digits < 9 ? strtoul(*item, NULL, 10) : 0;
    if (n < 1 || n > DELAY_TIMES_MAX)
        return pl_fail(why, PL_EUSAGE,
                       "delay '%.60s': the number before * is from 1 to %d, as in exp|2*const:t=3",
                       *item, DELAY_TIMES_MAX);
    *times = n;
    *item += digits + 1;
    return PL_OK;
}

/* The index in d->law of a law equal to the one just read, which is d->law[d->n_laws]; keeps it
 * where it is new. So "exp|exp" is one law. */
static uint16_t delay_keep(struct pl_delay *d) {
    const struct law *last = &d->law[d->n_laws];
    for (int i = 0; i < d->n_laws && !last->trace; i++)
        if (d->law[i].kind == last->kind && d->law[i].a == last->a && d->law[i].b == last->b)
            return (uint16_t)i;
    return (uint16_t)d->n_laws++;
}

/* Reads LAW|LAW|2*LAW and gives every worker its law. */
static int delay_list(struct pl_delay *d, const char *spec, struct pl_why *why) {
    uint16_t turn[DELAY_ITEMS_MAX]; /* the law of each item */
    size_t times[DELAY_ITEMS_MAX], n_items = 0;
    for (const char *p = spec;;) {
        char text[PL_SPEC_MAX];
        size_t n = strcspn(p, "|");
        const char *item = text;
        if (n_items == DELAY_ITEMS_MAX)
            return pl_fail(why, PL_EUSAGE, "a list of delays has at most %d laws", DELAY_ITEMS_MAX);
        memcpy(text, p, n);
        text[n] = '\0';
        int rc = delay_times(&item, &times[n_items], why);
        if (rc) return rc;
        if (!*item)
            return pl_fail(why, PL_EUSAGE,
                           "delay '%.60s' has an empty item; a list is LAW|LAW|2*LAW", spec);
        size_t head = strcspn(item, ":");
        if (head == 6 && strncmp(item, "hetero", head) == 0)
            return pl_fail(why, PL_EUSAGE,
                           "delay 'hetero' comes first and once; its options multiply and it may "
                           "hold a list: hetero:v=0.6,power=0.5,exp|const");
        rc = delay_law(item, d->n_workers, &d->law[d->n_laws], why);
        if (rc) return rc;
        turn[n_items] = delay_keep(d);
        n_items++;
        if (!p[n]) break;
        p += n + 1;
    }
    if (d->n_laws == 1) return PL_OK;
    d->law_of = malloc((size_t)d->n_workers * sizeof *d->law_of);
    if (!d->law_of) return pl_fail(why, PL_ENOMEM, "out of memory for %d workers", d->n_workers);
    size_t item = 0, used = 0;
    for (int w = 0; w < d->n_workers; w++) {
        d->law_of[w] = turn[item];
        if (++used == times[item]) {
            used = 0;
            item = (item + 1) % n_items;
        }
    }
    return PL_OK;
}

static double hetero_speed(const struct hetero *h, int worker, int n_workers, uint64_t seed) {
    double speed = pow(worker + 1.0, h->power);
    if (h->v > 0.0) {
        struct pl_rng r;
        double v2 = h->v * h->v;
        pl_rng_init(&r, seed, PL_STREAM_SPEED, (uint32_t)worker, 0);
        speed *= fmax(v2 * pl_rng_gamma(&r, 1.0 / v2), DELAY_SPEED_MIN);
    }
    int n_slow = (int)floor(h->slow * n_workers + 0.5);
    if (n_slow == 0 && h->slow > 0.0) n_slow = 1;
    return worker >= n_workers - n_slow ? speed * h->by : speed;
}

/* Reads the options of "hetero:OPTIONS,LAW", gives every worker its speed, and points *inner at
 * LAW: the first piece between commas that is not key=value. */
static int delay_hetero_open(struct pl_delay *d, const char *args, uint64_t seed,
                             const char **inner, struct pl_why *why) {
    const char *p = args;
    for (; p[strcspn(p, ":=,|")] == '='; p += *p == ',') p += strcspn(p, ",");
    if (!*p || p == args)
        return pl_fail(why, PL_EUSAGE,
                       "delay 'hetero:%.60s' needs %s: hetero:v=0.6,LAW or hetero:power=0.5,LAW or "
                       "hetero:slow=0.25,by=5,LAW",
                       args, *p ? "v=, power= or slow= before the law" : "a law at its end");
    char options[PL_SPEC_MAX];
    size_t n = (size_t)(p - args) - 1; /* without the comma before LAW */
    memcpy(options, args, n);
    options[n] = '\0';
    struct hetero h;
    int rc = pl_opt_parse(hetero_opts, &h, options, d->n_workers, why);
    if (rc) return pl_fail_in(why, rc, "delay 'hetero'");
    if (h.slow == 0.0 && h.by != 5.0)
        return pl_fail(why, PL_EUSAGE, "delay 'hetero': by=%g does nothing without slow=", h.by);
    d->speed = malloc((size_t)d->n_workers * sizeof *d->speed);
    if (!d->speed) return pl_fail(why, PL_ENOMEM, "out of memory for %d workers", d->n_workers);
    for (int w = 0; w < d->n_workers; w++) d->speed[w] = hetero_speed(&h, w, d->n_workers, seed);
    *inner = p;
    return PL_OK;
}

static bool delay_is_alike(const struct pl_delay *d) {
    for (int i = 0; i < d->n_laws; i++)
        if (d->law[i].trace && d->law[i].trace->n_groups > 1 && d->n_workers > 1) return false;
    for (int w = 1; w < d->n_workers; w++) {
        if (d->law_of && d->law_of[w] != d->law_of[0]) return false;
        if (d->speed && d->speed[w] != d->speed[0]) return false;
        if (!d->law_of && !d->speed) break;
    }
    return true;
}

int pl_delay_open(const char *spec, int n_workers, uint64_t seed, struct pl_delay **out,
                  struct pl_why *why) {
    char name[PL_NAME_MAX];
    const char *args, *inner = spec;
    if (n_workers < 1 || n_workers > DELAY_WORKERS_MAX)
        return pl_fail(why, PL_EUSAGE, "%d workers cannot have delays; from 1 to %d can", n_workers,
                       DELAY_WORKERS_MAX);
    if (strlen(spec) >= PL_SPEC_MAX)
        return pl_fail(why, PL_EUSAGE, "delay '%.60s...' is longer than %d characters", spec,
                       PL_SPEC_MAX - 1);
    struct pl_delay *d = calloc(1, sizeof *d);
    if (d) d->law = calloc(DELAY_ITEMS_MAX, sizeof *d->law);
    if (!d || !d->law) {
        pl_delay_free(d);
        return pl_fail(why, PL_ENOMEM, "out of memory");
    }
    d->n_workers = n_workers;
    int rc = PL_OK;
    if (strncmp(spec, "hetero", 6) == 0 && (spec[6] == ':' || spec[6] == '\0')) {
        rc = pl_spec_split(spec, name, &args, why);
        if (!rc) rc = delay_hetero_open(d, args, seed, &inner, why);
    }
    if (!rc) rc = delay_list(d, inner, why);
    if (rc) {
        pl_delay_free(d);
        return rc;
    }
    d->alike = delay_is_alike(d);
    *out = d;
    return PL_OK;
}

void pl_delay_free(struct pl_delay *d) {
    if (!d) return;
    for (int i = 0; d->law && i < d->n_laws; i++) trace_free(d->law[i].trace);
    free(d->law);
    free(d->law_of);
    free(d->speed);
    free(d);
}

/* Use */

static const struct law *delay_of(const struct pl_delay *d, uint32_t worker, double *speed) {
    *speed = 1.0;
    if (!d->law_of && !d->speed) return &d->law[0];
    uint32_t w = worker % (uint32_t)d->n_workers;
    if (d->speed) *speed = d->speed[w];
    return &d->law[d->law_of ? d->law_of[w] : 0];
}

double pl_delay_draw(const struct pl_delay *d, uint64_t seed, uint32_t worker, uint64_t task,
                     uint32_t steps) {
    struct pl_rng r;
    double speed, sum = 0.0;
    const struct law *law = delay_of(d, worker, &speed);
    pl_rng_init(&r, seed, PL_STREAM_DELAY, worker, task);
    for (uint32_t i = 0; i < steps && sum < PL_DELAY_MAX; i++)
        sum += speed * law_draw(law, worker, &r);
    return sum < PL_DELAY_MAX ? sum : PL_DELAY_MAX;
}

bool pl_delay_alike(const struct pl_delay *d) {
    return d->alike;
}

double pl_delay_mean(const struct pl_delay *d, uint32_t worker) {
    double speed;
    const struct law *law = delay_of(d, worker, &speed);
    return speed * law_mean(law, worker);
}

double pl_delay_cdf(const struct pl_delay *d, uint32_t worker, double t) {
    double speed;
    const struct law *law = delay_of(d, worker, &speed);
    if (!(t >= 0.0)) return 0.0;
    return t >= PL_DELAY_MAX ? 1.0 : law_cdf(law, worker, t / speed, false);
}

double pl_delay_tail(const struct pl_delay *d, uint32_t worker, double t) {
    double speed;
    const struct law *law = delay_of(d, worker, &speed);
    if (!(t >= 0.0)) return 1.0;
    return t >= PL_DELAY_MAX ? 0.0 : law_cdf(law, worker, t / speed, true);
}

double pl_delay_quantile(const struct pl_delay *d, uint32_t worker, double u) {
    double speed;
    const struct law *law = delay_of(d, worker, &speed);
    double t = speed * law_quantile(law, worker, u);
    return t < PL_DELAY_MAX ? t : PL_DELAY_MAX;
}

void pl_delay_look(const struct pl_delay *d, uint32_t worker, struct pl_delay_look *out) {
    const struct law *law = delay_of(d, worker, &out->speed);
    out->kind = law->kind;
    out->a = out->kind == PL_DELAY_EXP ? law->b : law->a;
    out->b = out->kind == PL_DELAY_EXP ? 0.0 : law->b;
    out->sample = NULL;
    out->n_sample = law->trace ? trace_group(law->trace, worker, &out->sample) : 0;
}
