/* Versions that no task needs any more: given up as soon as their workers have answered, unless a
 * rule or the policy may come back to them; and nothing else changes by that. */
#include "host.h"
#include "vectors.h"

#define N_WORKERS 8
#define N_UPDATES 60
#define DIM 64

/* Runs, and returns the largest number of vectors in use; *gave_up counts versions. */
static int run(const char *method, bool reclaims, float *w, int *gave_up) {
    struct host *h = host_of(setup_of("workers=8 model=quadratic:dim=64 method=%s", method));
    int most = 0;
    h->results = HOST_COMPUTES_AT_ONCE; /* all results wait for the server */
    host_begin(h, false, 0);
    *gave_up = 0;
    for (int i = 0; i < N_WORKERS; i++)
        host_event(h, (struct pl_event){.kind = PL_JOIN, .worker = i, .now_ns = ++h->now_ns});
    for (int t = 0; t < N_UPDATES; t++) {
        for (int i = 0; reclaims && i < N_WORKERS; i++)
            if (h->worker[i].busy) *gave_up += pl_engine_answered(h->engine, i);
        int i = t % N_WORKERS;
        if (!h->worker[i].busy) continue;
        host_event(h, (struct pl_event){.kind = PL_ARRIVE,
                                        .worker = i,
                                        .now_ns = ++h->now_ns,
                                        .task = h->worker[i].start.task});
        int n = vectors_in_use(pl_engine_vectors(h->engine));
        if (n > most) most = n;
    }
    assert_int_equal(h->job->model->dim, DIM);
    memcpy(w, pl_engine_newest(h->engine)->model, DIM * sizeof *w);
    return most;
}

static float without[DIM], with[DIM];

TEST(versions_that_were_answered_are_given_up) {
    static const char *const methods[] = {"async", "kasync:k=3", "ringmaster", "kbatchasync"};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        int none, some;
        int before = run(methods[i], false, without, &none);
        int after = run(methods[i], true, with, &some);
        assert_true(none == 0 && some > N_UPDATES / 4);
        /* a result per worker, the newest version, and what was just started or is in the group */
        if (after > N_WORKERS + 6 || after >= before)
            fail_msg("%s: %d vectors, and %d without", methods[i], after, before);
        assert_memory_equal(without, with, sizeof with);
    }
}

TEST(versions_that_are_read_again_are_held) {
    static const char *const methods[] = {"gap-aware", "kasync:fetch=3", "kbatchsync", "sync"};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        int none, some;
        run(methods[i], false, without, &none);
        run(methods[i], true, with, &some);
        if (some != 0) fail_msg("%s: %d versions were given up", methods[i], some);
        assert_memory_equal(without, with, sizeof with);
    }
}
