/* A run's numbers over HTTP while it goes on: /metrics in the text format of Prometheus (0.0.4),
 * and /healthz, which says "ok", or 503 with a sentence where no update came for long.
 *
 * Threads: the run's thread publishes, the server's thread answers from a copy. */
#ifndef PL_OBSERVE_METRICS_H
#define PL_OBSERVE_METRICS_H

#include "core/control.h"
#include "observe/timeline.h"

/* Workers whose times are shown one by one; those beyond are left out. */
#define PL_METRICS_WORKERS 4096

/* The run now. A real number that is not known is NAN, and left out. */
struct pl_metrics_now {
    uint64_t updates, samples; /* samples: in the updates */
    struct pl_fates fates;
    struct pl_staleness staleness;
    int workers, workers_expected, k;
    double loss, test_loss, test_accuracy;
    double run_seconds;
    double last_update, last_checkpoint; /* seconds since 1970 */
    const struct pl_timeline_row *row;   /* [n_rows], one per worker; copied; may be NULL */
    int n_rows;
};

struct pl_metrics;

/* Serves at HOST:PORT, :PORT or PORT, see http.h: the host is 127.0.0.1 where none is given, and
 * port 0 takes any that is free. PL_EMISSING where the library was built without libmicrohttpd. */
int pl_metrics_open(const char *address, struct pl_metrics **out, struct pl_why *why);
int pl_metrics_port(const struct pl_metrics *m);
void pl_metrics_close(struct pl_metrics *m); /* NULL is fine */

/* Once at the start, and then as often as anybody may want to know. Before the first, /metrics has
 * zeros. */
void pl_metrics_publish(struct pl_metrics *m, const struct pl_metrics_now *now);

/* --- the parts, for tests ---------------------------------------------------------------- */

/* The page, malloc()ed; NULL: out of memory. */
char *pl_metrics_text(const struct pl_metrics_now *now, size_t *n);

/* Whether a run is well, `since` seconds after the last update (or after the start, where there was
 * none) and with `mean` seconds per update (NAN: none yet): not where `since` is more than ten
 * times `mean` and more than 30 s. What /healthz says is written to out. */
bool pl_metrics_well(double since, double mean, char *out, size_t max);

/* Another clock for /healthz, in nanoseconds; time begins anew. */
void pl_metrics_clock(struct pl_metrics *m, uint64_t (*now_ns)(void));

#endif
