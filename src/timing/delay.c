/* Delay laws: parsing, drawing, and the functions that theory needs.
 *
 * The laws are those of Dutta et al. 2018 (exponential, shifted exponential, Pareto), of the
 * DANA and Gap-Aware simulators (gamma; `hetero:v=` is the CVB model of Ali et al. 2000: worker i's
 * mean is multiplied by p_i ~ Gamma(1/v^2, v^2), mean 1), log-normal, constant, and measured times
 * (measured.h) from a trace or a recording. `hetero` multiplies up to three speeds: v (random),
 * power ((i+1)^power for worker i, from 0) and slow/by (the last fraction `slow` of the workers is
 * `by` times slower).
 *
 * Memory: one law, or one per item of a list; per worker a law index if there is a list, and a
 * speed if there is a hetero. A draw is keyed by (seed, worker, task) and cut at PL_DELAY_MAX, so
 * it is always finite. */
#include "timing/delay.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "base/special.h"
#include "timing/measured.h"

#define DELAY_WORKERS_MAX (1 << 24) /* workers in one run */
#define DELAY_ITEMS_MAX 256         /* laws in a list */
#define DELAY_TIMES_MAX 1000000     /* N in N*LAW */
#define DELAY_SPEED_MIN 1e-3        /* lower bound of a drawn speed */

struct law {
    enum pl_delay_kind kind;
    double a, b;                  /* see enum pl_delay_kind */
    bool in_order;                /* recording: the n-th task takes the n-th time */
    struct pl_measured *measured; /* a trace or a recording */
};

struct pl_delay {
    int n_workers, n_laws;
    bool alike;
    struct law *law;  /* [n_laws] */
    uint16_t *law_of; /* [n_workers], or NULL: all follow law[0] */
    double *speed;    /* [n_workers], or NULL: all 1 */
};

/* The conf of every law except a trace: one or two numbers. */
struct numbers {
    double a, b;
};
#define NUMBER(name, field, def, min, max, help)                                                   \
    PL_OPT(name, REAL, struct numbers, field, def, min, max, NULL, help, 0)
#define TIME(name, field, def, min, help)                                                          \
    PL_OPT(name, REAL, struct numbers, field, def, min, PL_DELAY_MAX, "SECONDS", help, 0)

/* The laws. exp stores its mean in b and has a = 0, so it is a shiftexp without a shift. */

#define LAW(name_, brief_, paper_, opts_)                                                          \
    static const struct pl_entry delay_##name_ = {#name_, brief_, paper_, opts_,                   \
                                                  .conf_size = sizeof(struct numbers)}

static const struct pl_opt const_opts[] = {TIME("t", a, "1", 0, "seconds per mini-batch"),
                                           PL_OPT_END};
static const struct pl_opt exp_opts[] = {TIME("mean", b, "1", 1e-12, "mean seconds"), PL_OPT_END};
static const struct pl_opt shiftexp_opts[] = {
    TIME("shift", a, "1", 0, "minimum seconds per mini-batch"),
    TIME("mean", b, "1", 1e-12, "mean seconds of the exponential part"), PL_OPT_END};
static const struct pl_opt pareto_opts[] = {
    NUMBER("shape", a, "2", 0.05, 1e6, "tail exponent (the mean is infinite at 1 or below)"),
    TIME("scale", b, "1", 1e-12, "minimum seconds"), PL_OPT_END};
static const struct pl_opt gamma_opts[] = {
    NUMBER("shape", a, "100", 0.01, 1e6, "1/(coefficient of variation)^2"),
    TIME("mean", b, "1", 1e-12, "mean seconds"), PL_OPT_END};
static const struct pl_opt lognormal_opts[] = {
    NUMBER("mu", a, "0", -50, 20, "mean of the logarithm of the seconds"),
    NUMBER("sigma", b, "1", 1e-6, 20, "standard deviation of that logarithm"), PL_OPT_END};

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
    PL_OPT_FILE(struct trace_conf, file, "",
                "measured seconds, one per line, or two columns: worker (from 1) and seconds"),
    PL_OPT_END};
static const struct pl_entry delay_trace = {
    "trace", "draws from measured delays; per worker if the file has a worker column", "",
    trace_opts, .conf_size = sizeof(struct trace_conf)};

struct recording_conf {
    char file[PL_TEXT_MAX];
    int order;
};
enum { ORDER_SEQUENCE, ORDER_RANDOM };
static const struct pl_opt recording_opts[] = {
    PL_OPT_FILE(struct recording_conf, file, "", "recording written by --record"),
    PL_OPT_CHOICE(struct recording_conf, order, "sequence", "sequence|random",
                  "replay a worker's times in sequence (repeating), or draw them at random"),
    PL_OPT_END};
static const struct pl_entry delay_recording = {
    "recording", "the task times of a recorded run, per worker", "", recording_opts,
    .conf_size = sizeof(struct recording_conf)};

static double delay_sample_cdf(struct pl_sample s, double x, bool upper) {
    size_t lo = 0, hi = s.n;
    while (lo < hi) { /* count those <= x */
        size_t mid = lo + (hi - lo) / 2;
        if (s.ascending[mid] <= x)
            lo = mid + 1;
        else
            hi = mid;
    }
    return (double)(upper ? s.n - lo : lo) / (double)s.n;
}

static double delay_sample_quantile(struct pl_sample s, double u) {
    double at = ceil(u * (double)s.n) - 1.0;
    return s.ascending[at <= 0.0 ? 0 : at >= (double)(s.n - 1) ? s.n - 1 : (size_t)at];
}

static double delay_law_draw(const struct law *l, uint32_t worker, uint64_t task,
                             struct pl_rng *r) {
    switch (l->kind) {
    case PL_DELAY_CONST: return l->a;
    case PL_DELAY_EXP:
    case PL_DELAY_SHIFTEXP: return l->a + l->b * pl_rng_exp(r);
    case PL_DELAY_PARETO: return l->b * exp(pl_rng_exp(r) / l->a);
    case PL_DELAY_GAMMA: return l->b / l->a * pl_rng_gamma(r, l->a);
    case PL_DELAY_LOGNORMAL: return exp(l->a + l->b * pl_rng_normal(r));
    case PL_DELAY_TRACE:
    case PL_DELAY_RECORDING: {
        struct pl_sample s = pl_measured_of(l->measured, worker);
        return l->in_order ? s.in_order[(task - 1) % s.n]
                           : s.ascending[pl_rng_below(r, (uint32_t)s.n)];
    }
    }
    return 0.0;
}

static double delay_law_mean(const struct law *l, uint32_t worker) {
    switch (l->kind) {
    case PL_DELAY_CONST: return l->a;
    case PL_DELAY_EXP:
    case PL_DELAY_SHIFTEXP: return l->a + l->b;
    case PL_DELAY_PARETO: return l->a > 1.0 ? l->a * l->b / (l->a - 1.0) : INFINITY;
    case PL_DELAY_GAMMA: return l->b;
    case PL_DELAY_LOGNORMAL: return exp(l->a + 0.5 * l->b * l->b);
    case PL_DELAY_TRACE:
    case PL_DELAY_RECORDING: return pl_measured_of(l->measured, worker).mean;
    }
    return 0.0;
}

/* Pr(X <= t), or Pr(X > t) if `upper`, for t >= 0. */
static double delay_law_cdf(const struct law *l, uint32_t worker, double t, bool upper) {
    double x = 0.0; /* exp, shiftexp and pareto: -log Pr(X > t) */
    switch (l->kind) {
    case PL_DELAY_CONST: return (t >= l->a) != upper ? 1.0 : 0.0;
    case PL_DELAY_EXP:
    case PL_DELAY_SHIFTEXP: x = t > l->a ? (t - l->a) / l->b : 0.0; break;
    case PL_DELAY_PARETO: x = t > l->b ? l->a * log(t / l->b) : 0.0; break;
    case PL_DELAY_GAMMA: return pl_gamma_cdf(l->a, t * l->a / l->b, upper);
    case PL_DELAY_LOGNORMAL: return pl_normal_cdf((log(t) - l->a) / l->b, upper);
    case PL_DELAY_TRACE:
    case PL_DELAY_RECORDING: return delay_sample_cdf(pl_measured_of(l->measured, worker), t, upper);
    }
    return upper ? exp(-x) : -expm1(-x);
}

static double delay_law_quantile(const struct law *l, uint32_t worker, double u) {
    switch (l->kind) {
    case PL_DELAY_CONST: return l->a;
    case PL_DELAY_EXP:
    case PL_DELAY_SHIFTEXP: return l->a - l->b * log1p(-u);
    case PL_DELAY_PARETO: return l->b * exp(-log1p(-u) / l->a);
    case PL_DELAY_GAMMA: return l->b / l->a * pl_gamma_quantile(l->a, u);
    case PL_DELAY_LOGNORMAL: return exp(l->a + l->b * pl_normal_quantile(u));
    case PL_DELAY_TRACE:
    case PL_DELAY_RECORDING: return delay_sample_quantile(pl_measured_of(l->measured, worker), u);
    }
    return 0.0;
}

/* hetero is in the table for `list`; pl_delay_open parses it itself. */

struct hetero {
    double v, power, slow, by;
};
static const struct pl_opt hetero_opts[] = {
    PL_OPT_REAL(struct hetero, v, "0", 0, 2,
                "coefficient of variation of the workers' mean times, drawn from a gamma law"),
    PL_OPT_REAL(struct hetero, power, "0", -4, 4, "worker i (from 1) takes i^power times as long"),
    PL_OPT_REAL(struct hetero, slow, "0", 0, 1,
                "fraction of the workers that is slow: the last ones, at least one"),
    PL_OPT_REAL(struct hetero, by, "5", 1e-3, 1e6, "factor by which slow workers take longer"),
    PL_OPT_END};
static const struct pl_entry delay_hetero = {
    "hetero",
    "workers of different speeds: hetero:v=0.6,LAW or power= or slow=,by=; LAW comes last",
    "Ali et al., HCW 2000 (v)", hetero_opts, .conf_size = sizeof(struct hetero)};

/* in the order of enum pl_delay_kind */
static const struct pl_entry *const delay_table[] = {
    &delay_const,     &delay_exp,   &delay_shiftexp,  &delay_pareto, &delay_gamma,
    &delay_lognormal, &delay_trace, &delay_recording, &delay_hetero, NULL};

const struct pl_family pl_delay_family = {
    "delay", "how long does a mini-batch take on a worker? lists: LAW|LAW|2*LAW, in turn",
    delay_table};

/* Parsing */

/* Parses one law of a list, "exp:mean=2", into *law. */
static int delay_law(const char *spec, int n_workers, struct law *law, struct pl_why *why) {
    const struct pl_entry *entry;
    void *conf;
    int rc = pl_spec_parse(&pl_delay_family, spec, n_workers, &entry, &conf, why);
    if (rc) return rc;
    *law = (struct law){0};
    while (delay_table[law->kind] != entry) law->kind++;
    if (law->kind == PL_DELAY_TRACE) {
        rc = pl_measured_trace(((struct trace_conf *)conf)->file, &law->measured, why);
    } else if (law->kind == PL_DELAY_RECORDING) {
        law->in_order = ((struct recording_conf *)conf)->order == ORDER_SEQUENCE;
        rc = pl_measured_recording(((struct recording_conf *)conf)->file, &law->measured, why);
    } else {
        const struct numbers *x = conf;
        law->a = x->a;
        law->b = x->b;
    }
    free(conf);
    return rc;
}

/* Splits "3*exp" into 3 and "exp"; "exp" gives 1. */
static int delay_times(const char **item, size_t *times, struct pl_why *why) {
    size_t digits = strspn(*item, "0123456789");
    *times = 1;
    if (digits == 0 || (*item)[digits] != '*') return PL_OK;
    unsigned long n = digits < 9 ? strtoul(*item, NULL, 10) : 0;
    if (n < 1 || n > DELAY_TIMES_MAX)
        return pl_fail(why, PL_EUSAGE, "delay '%.60s': the number before * is not from 1 to %d",
                       *item, DELAY_TIMES_MAX);
    *times = n;
    *item += digits + 1;
    return PL_OK;
}

/* Returns the index in d->law of a law equal to the one just parsed, d->law[d->n_laws], which is
 * added if it is new. So "exp|exp" is one law. */
static uint16_t delay_keep(struct pl_delay *d) {
    const struct law *last = &d->law[d->n_laws];
    for (int i = 0; i < d->n_laws && !last->measured; i++)
        if (d->law[i].kind == last->kind && d->law[i].a == last->a && d->law[i].b == last->b)
            return (uint16_t)i;
    return (uint16_t)d->n_laws++;
}

/* Parses LAW|LAW|2*LAW and assigns a law to every worker. */
static int delay_list(struct pl_delay *d, const char *spec, struct pl_why *why) {
    uint16_t turn[DELAY_ITEMS_MAX]; /* the law of each item */
    size_t times[DELAY_ITEMS_MAX], n_items = 0;
    for (const char *p = spec;;) {
        char text[PL_SPEC_MAX];
        size_t n = strcspn(p, "|");
        const char *item = text;
        if (n_items == DELAY_ITEMS_MAX)
            return pl_fail(why, PL_EUSAGE, "a list has at most %d delay laws", DELAY_ITEMS_MAX);
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
                           "delay 'hetero' comes first and once; combine its options and give it a "
                           "list of laws: hetero:v=0.6,power=0.5,exp|const");
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

static double delay_hetero_speed(const struct hetero *h, int worker, int n_workers, uint64_t seed) {
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

/* Parses "hetero:OPTIONS,LAW", assigns a speed to every worker and points *inner at LAW, the first
 * piece between commas that is not key=value. */
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
    for (int w = 0; w < d->n_workers; w++)
        d->speed[w] = delay_hetero_speed(&h, w, d->n_workers, seed);
    *inner = p;
    return PL_OK;
}

static bool delay_is_alike(const struct pl_delay *d) {
    for (int i = 0; i < d->n_laws; i++)
        if (d->law[i].measured && pl_measured_workers(d->law[i].measured) > 1 && d->n_workers > 1)
            return false;
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
        return pl_fail(why, PL_EUSAGE, "workers=%d is not accepted; delays are for 1 to %d workers",
                       n_workers, DELAY_WORKERS_MAX);
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
    for (int i = 0; d->law && i < d->n_laws; i++) pl_measured_free(d->law[i].measured);
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
    /* a recorded time is that of a whole task, with any number of mini-batches */
    if (law->kind == PL_DELAY_RECORDING)
        return fmin(speed * steps * delay_law_draw(law, worker, task, &r), PL_DELAY_MAX);
    for (uint32_t i = 0; i < steps && sum < PL_DELAY_MAX; i++)
        sum += speed * delay_law_draw(law, worker, task, &r);
    return sum < PL_DELAY_MAX ? sum : PL_DELAY_MAX;
}

bool pl_delay_alike(const struct pl_delay *d) {
    return d->alike;
}

double pl_delay_mean(const struct pl_delay *d, uint32_t worker) {
    double speed;
    const struct law *law = delay_of(d, worker, &speed);
    return speed * delay_law_mean(law, worker);
}

double pl_delay_cdf(const struct pl_delay *d, uint32_t worker, double t) {
    double speed;
    const struct law *law = delay_of(d, worker, &speed);
    if (!(t >= 0.0)) return 0.0;
    return t >= PL_DELAY_MAX ? 1.0 : delay_law_cdf(law, worker, t / speed, false);
}

double pl_delay_tail(const struct pl_delay *d, uint32_t worker, double t) {
    double speed;
    const struct law *law = delay_of(d, worker, &speed);
    if (!(t >= 0.0)) return 1.0;
    return t >= PL_DELAY_MAX ? 0.0 : delay_law_cdf(law, worker, t / speed, true);
}

double pl_delay_quantile(const struct pl_delay *d, uint32_t worker, double u) {
    double speed;
    const struct law *law = delay_of(d, worker, &speed);
    double t = speed * delay_law_quantile(law, worker, u);
    return t < PL_DELAY_MAX ? t : PL_DELAY_MAX;
}

void pl_delay_look(const struct pl_delay *d, uint32_t worker, struct pl_delay_look *out) {
    const struct law *law = delay_of(d, worker, &out->speed);
    bool measured = law->measured != NULL;
    out->kind = measured ? PL_DELAY_TRACE : law->kind;
    out->a = out->kind == PL_DELAY_EXP ? law->b : law->a;
    out->b = out->kind == PL_DELAY_EXP ? 0.0 : law->b;
    struct pl_sample s = {0};
    if (measured) s = pl_measured_of(law->measured, worker);
    out->sample = s.ascending;
    out->n_sample = s.n;
}
