#include "core/average.h"

#include <stdlib.h>
#include <string.h>

#define AVERAGE_TAIL 0.1                 /* F of plain "tail" */
#define AVERAGE_MANY (UINT64_C(1) << 62) /* no run has so many updates */

enum { AVERAGE_RECENT, AVERAGE_OLDER, AVERAGE_SHOWN };

int pl_average_parse(const char *spec, struct pl_average_conf *out, struct pl_why *why) {
    static const char *const name[] = {"none", "tail", "ema"};
    size_t n = strcspn(spec, ":");
    const char *number = spec[n] ? spec + n + 1 : NULL;
    char *end = NULL;
    *out = (struct pl_average_conf){.number = number ? strtod(number, &end) : AVERAGE_TAIL};
    int kind = 0;
    while (kind < 3 && (strlen(name[kind]) != n || strncmp(spec, name[kind], n) != 0)) kind++;
    out->kind = kind < 3 ? (enum pl_average_kind)kind : PL_AVERAGE_NONE;
    bool is_number = number && end > number && *end == '\0' && out->number > 0;
    bool ok = kind == PL_AVERAGE_NONE   ? !number
              : kind == PL_AVERAGE_TAIL ? !number || (is_number && out->number <= 1)
                                        : kind < 3 && is_number && out->number < 1;
    return ok ? PL_OK
              : pl_fail(why, PL_EUSAGE,
                        "average '%.80s' is not known; use none, tail, tail:F with 0 < F <= 1 (the "
                        "last F of the updates) or ema:B with 0 < B < 1",
                        spec);
}

/* The window that has grown long enough is finished, and an empty one begins. */
static void average_turn(struct pl_average *a) {
    pl_real *finished = a->vector[AVERAGE_RECENT];
    a->vector[AVERAGE_RECENT] = a->vector[AVERAGE_OLDER];
    a->vector[AVERAGE_OLDER] = finished;
    a->n_older = a->n_recent;
    a->n_recent = 0;
}

/* The step of `recent` towards the version that joins. */
static double average_step(struct pl_average *a) {
    a->n_recent++;
    if (a->conf.kind == PL_AVERAGE_TAIL) return 1 / (double)a->n_recent;
    double rest = 1 - a->conf.number;
    a->weight = a->conf.number * a->weight + rest;
    return a->n_recent == 1 ? 1 : rest / a->weight;
}

static double average_share(const struct pl_average *a) {
    return a->n_older == 0 ? 1 : (double)a->n_recent / (double)(a->n_recent + a->n_older);
}

struct pl_average_at pl_average_next(struct pl_average *a, uint64_t n, bool shows) {
    if (a->conf.kind == PL_AVERAGE_NONE) return (struct pl_average_at){.recent = NULL};
    bool tail = a->conf.kind == PL_AVERAGE_TAIL;
    if (tail && a->n_recent > 0 && (double)a->n_recent >= a->conf.number * (double)n)
        average_turn(a);
    double step = average_step(a);
    a->is_shown = shows;
    return (struct pl_average_at){.recent = a->vector[AVERAGE_RECENT],
                                  .older = a->vector[AVERAGE_OLDER],
                                  .shown = tail && shows ? a->vector[AVERAGE_SHOWN] : NULL,
                                  .step = step,
                                  .share = average_share(a)};
}

/* out [n] may be `from`. */
static void average_mix(const pl_real *from, const pl_real *restrict to, double part, pl_real *out,
                        size_t n) {
    if (part == 1) {
        memcpy(out, to, n * sizeof *out);
        return;
    }
    for (size_t i = 0; i < n; i++) out[i] = from[i] + (pl_real)part * (to[i] - from[i]);
}

void pl_average_add(struct pl_average *a, const pl_real *w, uint64_t n) {
    struct pl_average_at at = pl_average_next(a, n, false);
    if (at.recent) average_mix(at.recent, w, at.step, at.recent, a->dim);
}

const pl_real *pl_average_shown(struct pl_average *a) {
    if (a->n_recent == 0) return NULL;
    if (a->conf.kind == PL_AVERAGE_EMA) return a->vector[AVERAGE_RECENT];
    const pl_real *recent = a->vector[AVERAGE_RECENT], *older = a->vector[AVERAGE_OLDER];
    pl_real *shown = a->vector[AVERAGE_SHOWN];
    double share = average_share(a);
    if (!a->is_shown) average_mix(older, recent, share, shown, a->dim);
    a->is_shown = true;
    return shown;
}

void pl_average_restart(struct pl_average *a) {
    a->n_recent = a->n_older = 0;
    a->weight = 0;
    a->is_shown = false;
}

int pl_average_archive(struct pl_average *a, const struct pl_archive *k) {
    uint64_t counts[3] = {a->conf.kind, a->n_recent, a->n_older};
    if (a->conf.kind == PL_AVERAGE_NONE) return PL_OK;
    size_t known = pl_archive_wholes(k, "average.counts", counts, 3);
    if (k->restoring && (known != 3 || counts[0] != a->conf.kind)) return PL_OK;
    pl_archive_numbers(k, "average.weight", &a->weight, 1);
    size_t n = pl_archive_reals(k, "average.recent", a->vector[AVERAGE_RECENT], a->dim);
    if (a->conf.kind == PL_AVERAGE_TAIL && n == a->dim)
        n = pl_archive_reals(k, "average.older", a->vector[AVERAGE_OLDER], a->dim);
    if (!k->restoring) return PL_OK;
    a->n_recent = counts[1];
    a->n_older = counts[2];
    a->is_shown = false;
    bool ok = n == a->dim && counts[1] < AVERAGE_MANY && counts[2] < AVERAGE_MANY &&
              a->weight >= 0 && a->weight <= 1;
    return ok ? PL_OK : PL_EDATA;
}
