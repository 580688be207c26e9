/* pl_work: a worker of a run whose server is on another machine, with the models of this library.
 *
 * Threads: the caller's looks whether it is to stop; one more computes. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/setup.h"
#include "run/about.h"
#include "run/worker.h"
#include "sys/address.h"
#include "sys/certificates.h"
#include "sys/futex.h"
#include "sys/numerals.h"
#include "sys/thread.h"
#include "transport/client_link.h"

#define WORK_SETUP_MAX 65536
#define WORK_WAIT_NS 60000000000u
#define WORK_LOOK_NS 100000000u

struct work {
    const struct pl_job *job;
    struct pl_link *link;
    int worker, rc;
    char standby[PL_URL_MAX]; /* of the server, as it was told */
    atomic_uint done;
};

static void work_loop(void *arg) {
    struct work *w = arg;
    w->rc = pl_worker_loop(w->job, &pl_http, w->link, w->worker, NULL);
    pl_futex_ring(&w->done);
}

static void work_standby(const struct pl_setup *s, struct work *w) {
    char url[PL_URL_MAX];
    pl_http_standby(w->link, url);
    if (strcmp(url, w->standby) == 0) return;
    memcpy(w->standby, url, sizeof url);
    pl_log_detail(&s->log, url[0] ? "the server has a standby at %s" : "it has none%s", url);
}

/* Works until the server has no more orders. *left is set if this worker was told to stop. */
static int work_once(struct pl_setup *s, struct work *w, bool *left) {
    struct pl_thread *thread;
    if (pl_thread_start(work_loop, w, &thread))
        return pl_fail(&s->why, PL_ENOMEM, "cannot start a thread");
    while (atomic_load(&w->done) == 0) {
        pl_futex_wait(&w->done, 0, WORK_LOOK_NS);
        work_standby(s, w);
        if (!*left && pl_setup_stops(s)) {
            *left = true;
            pl_http_leave(w->link);
        }
    }
    pl_thread_join(thread);
    return w->rc ? pl_fail(&s->why, w->rc, "out of memory for a worker") : PL_OK;
}

/* Joins, again and again if the server lets it. */
static int work_run(struct pl_setup *s, const struct pl_built *built,
                    struct pl_client_link_conf *conf) {
    bool left = false, again = true;
    int rc = PL_OK;
    while (!rc && !left && again) {
        struct work w = {.job = &built->job};
        struct pl_welcome welcome;
        char sentence[PL_WORD_MAX];
        rc = pl_http.join->connect(conf, &w.link, &welcome, &s->why);
        if (rc) break;
        w.worker = welcome.worker;
        pl_log_note(&s->log, "joined %s as worker %d of %d", pl_http_server(w.link), w.worker + 1,
                    welcome.n_workers);
        rc = work_once(s, &w, &left);
        again = pl_http.join->farewell(w.link, sentence, &again) && again;
        bool lost = pl_http.join->lost(w.link);
        pl_http.link.detach(w.link);
        if (rc || left || !lost) break;
        if (again)
            pl_log_note(&s->log, "joining again after update %llu: %s",
                        (unsigned long long)conf->past->seen, sentence);
        else
            rc = pl_fail(&s->why, PL_ERUN, "the server at %s is gone: %s", conf->path, sentence);
    }
    return rc;
}

/* The run's options, as far as they are not given here. */
static int work_setup(struct pl_setup *s, const struct pl_client_link_conf *conf) {
    char *text = malloc(WORK_SETUP_MAX);
    if (!text) return pl_fail(&s->why, PL_ENOMEM, "out of memory");
    int rc = pl_http_fetch(conf, "/v1/setup", text, WORK_SETUP_MAX, &s->why);
    const char *data = rc ? NULL : strstr(text, "\ndata=?\n");
    if (data && !pl_setup_is_set(s, "data"))
        rc = pl_fail(&s->why, PL_EUSAGE,
                     "the run reads its data from a file; say where this machine has it, for "
                     "example --data csv:FILE");
    if (!rc && data) memmove(text + (data - text), data + 7, strlen(data + 7) + 1);
    if (!rc && (rc = pl_setup_lines(s, text))) pl_fail_in(&s->why, rc, "the server's setup");
    free(text);
    if (rc) return rc;
    const struct pl_model_kind *kind = pl_setup_kind(s);
    if (kind && kind->by_clients)
        return pl_fail(&s->why, PL_EUSAGE,
                       "the run has a model that clients compute; join it with such a client "
                       "(PACELINE=%s)",
                       conf->path);
    s->conf.spawn = PL_SPAWN_PROCESSES; /* nothing is started */
    return PL_OK;
}

static void work_waiting(void *ctx, const char *sentence) {
    const struct pl_setup *s = ctx;
    pl_log_note(&s->log, "%s", sentence);
}

int pl_work(pl_setup *s, const char *server, const char *keys) {
    PL_NUMERALS;
    char url[300];
    bool whole = strncmp(server, "http://", 7) == 0 || strncmp(server, "https://", 8) == 0;
    bool secure = keys && keys[0];
    snprintf(url, sizeof url, "%s%s", whole ? "" : secure ? "https://" : "http://", server);
    struct pl_past past = {.run = ""};
    struct pl_client_link_conf conf = {.path = url,
                                       .keys = keys,
                                       .past = &past,
                                       .wait_ns = WORK_WAIT_NS,
                                       .waiting = work_waiting,
                                       .stop = pl_setup_stops,
                                       .ctx = s};
    struct pl_built built;
    int rc = pl_address_check(server, &s->why);
    if (!rc) rc = work_setup(s, &conf);
    if (!rc) rc = pl_build(s, PL_HOST_REAL, &built);
    if (rc) return rc;
    conf.client.dim = built.job.model->dim;
    snprintf(conf.client.fingerprint, sizeof conf.client.fingerprint, "%016llx",
             (unsigned long long)pl_layout_fingerprint(&built.layout));
    rc = work_run(s, &built, &conf);
    pl_built_free(&built);
    return rc;
}

int pl_keys(const char *folder, const char *hosts, const char *worker, int days, char *why,
            size_t why_max) {
    struct pl_why sentence = {""};
    int rc = pl_certificates_make(folder, hosts, worker, days, &sentence);
    if (why_max > 0) snprintf(why, why_max, "%s", sentence.text);
    return rc;
}
