/* The numbers of a running run over HTTP: /metrics in the Prometheus text format (0.0.4), and
 * /healthz, which answers "ok", or 503 and a message if there was no update for a long time.
 *
 * Threads: the run's thread publishes; the server's thread answers from a copy. */
#ifndef PL_OBSERVE_METRICS_H
#define PL_OBSERVE_METRICS_H

#include "core/control.h"

/* The number of workers with times of their own; further workers are left out. */
#define PL_METRICS_WORKERS 4096

/* The current state of a run. A number that is NAN (unknown) is left out. */
struct pl_metrics_now {
    uint64_t updates, samples; /* samples: those in applied updates */
    struct pl_fates fates;
    uint64_t quarantined, evicted, frozen; /* times that workers were suspended */
    struct pl_staleness staleness;
    int workers, workers_expected, k;
    int workers_away; /* of workers: their connection is lost, and they may return */
    double loss, test_loss, test_accuracy;
    double consensus; /* of the workers' own models; NAN: there is one model */
    double run_seconds;
    double last_update, last_checkpoint; /* seconds since 1970 */
    const struct pl_timeline_row *row;   /* [n_rows], one per worker; copied; may be NULL */
    int n_rows;
};

struct pl_metrics;

/* Serves at HOST:PORT, :PORT or PORT; see http.h. now_ns() is the clock of /healthz, for any
 * thread. PL_EMISSING if the library was built without libmicrohttpd. */
int pl_metrics_open(const char *address, uint64_t (*now_ns)(void), struct pl_metrics **out,
                    struct pl_why *why);
int pl_metrics_port(const struct pl_metrics *m);
void pl_metrics_close(struct pl_metrics *m); /* NULL is allowed */

/* The pages are /metrics, /healthz and /readyz. Call it once at the start and
 * then as often as readers need new numbers. Before the first call, /metrics shows zeros. */
void pl_metrics_publish(struct pl_metrics *m, const struct pl_metrics_now *now);

/* --- the parts, for tests ---------------------------------------------------------------- */

/* The page, malloc()ed, or NULL if there is no memory. */
char *pl_metrics_text(const struct pl_metrics_now *now, size_t *n);

/* Tells whether a run is healthy `since` seconds after the last update (or the start), with `mean`
 * seconds per update (NAN: none yet). It is unhealthy if `since` exceeds both ten times `mean` and
 * 30 s. Writes the text of /healthz to out. */
bool pl_metrics_well(double since, double mean, char *out, size_t max);

#endif
