/* What goes wrong in a storm, and programs of others that lie. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "run/worker.h"
#include "storm.h"

extern const struct pl_transport __wrap_pl_shm;

/* --- clients ---------------------------------------------------------------------------------- */

static bool client_owns(const struct storm_worker *w, const float *v) {
    for (int i = 0; i < storm.n_memory; i++)
        if (storm.memory[i] == v) return storm.writer[i] == w->link.worker;
    return false;
}

static float client_nonsense(void) {
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    return bad[pl_rng_below(&storm.rng, 3)];
}

/* A client can write to what it has sent. */
static void client_writes_late(struct storm_worker *w) {
    if (!w->wrote || !client_owns(w, w->wrote)) return;
    storm_say("worker %d writes to what it has sent", w->link.worker + 1);
    storm.counts.lies++;
    w->wrote[pl_rng_below(&storm.rng, (uint32_t)storm.dim)] = client_nonsense();
}

static void client_lie(struct storm_worker *w, const struct pl_order *o, struct pl_result *r) {
    size_t n = storm.dim;
    storm.counts.lies++;
    switch (pl_rng_below(&storm.rng, 10)) {
    case 0:
    case 1: o->out[pl_rng_below(&storm.rng, (uint32_t)n)] = client_nonsense(); break;
    case 2:
        for (size_t i = 0; i < n; i++) o->out[i] = client_nonsense();
        break;
    case 3:
        for (size_t i = 0; i < n; i++) o->out[i] *= storm.huge ? 1e30f : 2;
        break;
    case 4: r->samples = storm_chance(0.5) ? INT32_MAX : pl_rng_u32(&storm.rng); break;
    case 5: r->samples = 0; break;
    case 6: r->loss = storm_chance(0.5) ? NAN : 1e300; break;
    case 7: r->task = storm_chance(0.5) ? r->task - 1 : pl_rng_u64(&storm.rng); break;
    case 8: r->defect = (enum pl_defect)pl_rng_below(&storm.rng, 6); break;
    default:
        r->pulled_ns = pl_rng_u64(&storm.rng);
        r->pushed_ns = pl_rng_u64(&storm.rng);
        break;
    }
    w->wrote = o->out;
}

static void client_do(struct storm_worker *w, const struct pl_order *o) {
    const struct pl_transport *t = &__wrap_pl_shm;
    const float *in = pl_worker_input(t, &w->link, o, storm.dim);
    struct pl_result r = {.task = o->task, .samples = storm.samples, .loss = 1};
    r.pulled_ns = storm.now_ns;
    if (pl_cancelled(t->link.cancelled(&w->link)) || w->dead || storm.shutdown) return;
    for (size_t i = 0; i < storm.dim; i++) o->out[i] = 0.1f * in[i];
    r.pushed_ns = storm.now_ns;
    if (w->liar && storm_chance(0.5)) client_lie(w, o, &r);
    t->link.push(&w->link, &r);
    if (w->liar && storm_chance(0.3)) client_writes_late(w);
    if (w->liar && storm_chance(0.1)) t->link.push(&w->link, &r); /* again */
    static const char *const words[] = {"lr 0.01",          "lr nan",         "checkpoint",
                                        "score 1 loss=nan", "checkpoint now", "\xc3\xa9"};
    if (storm_chance(0.02)) storm_word(w->link.worker, words[pl_rng_below(&storm.rng, 6)]);
}

static int client_main(void *arg) {
    struct storm_worker *w = arg;
    const struct pl_transport *t = &__wrap_pl_shm;
    struct pl_link *link;
    struct pl_order order;
    if (t->start->attach(NULL, w->link.worker, &link)) return 1;
    while (t->link.pull(link, &order) == PL_OK) client_do(w, &order);
    return 0;
}

void storm_client(int worker) {
    struct storm_worker *w = &storm.worker[worker];
    w->client = true;
    w->offered = false;
    w->liar = worker < storm.n_liars;
    storm_begin_worker(worker, client_main, w);
}

/* --- faults ---------------------------------------------------------------------------------- */

static void faults_freeze(struct storm_worker *w, int worker) {
    if (w->frozen_ns) return;
    uint64_t mean = storm_chance(0.5) ? 20 * storm.task_ns : 15000000000u;
    w->frozen_ns = storm.now_ns + storm_draw_ns(mean);
    storm.counts.freezes++;
    storm_say("worker %d stops for %.3g s", worker + 1,
              (double)(w->frozen_ns - storm.now_ns) * 1e-9);
}

/* The last result again, though its task is over. */
static void faults_repeat(struct storm_worker *w, int worker) {
    if (!w->attached || w->gone || w->last.task == 0 || w->n >= STORM_NEWS - 2) return;
    struct storm_message *m = &w->message[(w->first + w->n++) % STORM_NEWS];
    uint64_t at = storm.now_ns + storm_draw_ns(10 * storm.task_ns);
    if (at < w->last_at_ns) at = w->last_at_ns;
    w->last_at_ns = at;
    *m = (struct storm_message){
        .news = {.kind = PL_NEWS_RESULT, .worker = worker, .result = w->last}, .at_ns = at};
    storm.counts.repeats++;
    storm_say("the result of worker %d's task %llu comes again", worker + 1,
              (unsigned long long)w->last.task);
}

static void faults_one(enum storm_kind kind, int worker) {
    struct storm_worker *w = &storm.worker[worker];
    switch (kind) {
    case STORM_KILL:
        if (!w->made || w->dead) break;
        storm.counts.kills++;
        storm_kill(worker);
        break;
    case STORM_FREEZE:
        if (w->made && w->attached) faults_freeze(w, worker);
        break;
    case STORM_REPEAT: faults_repeat(w, worker); break;
    case STORM_NET:
        storm.burst_ns = storm.now_ns + storm_draw_ns(20 * storm.task_ns);
        storm.counts.bursts++;
        break;
    default: break;
    }
}

void storm_fault(void) {
    uint32_t n = (uint32_t)storm.n_workers;
    storm.fault_ns = storm.now_ns + storm_draw_ns(storm.mean_fault_ns);
    int worker = (int)pl_rng_below(&storm.rng, n);
    struct storm_worker *w = &storm.worker[worker];
    if (w->client && w->liar && w->made && !w->frozen_ns && storm_chance(0.3))
        client_writes_late(w);
    if (storm.now_ns < storm.calm_ns) {
        enum storm_kind kind = (enum storm_kind)pl_rng_below(&storm.rng, STORM_FAULTS);
        if (storm.faults[kind]) faults_one(kind, worker);
    }
    /* a client that is gone comes back, or another one takes its place */
    for (int i = 0; !storm.shutdown && i < storm.n_workers; i++) {
        struct storm_worker *g = &storm.worker[i];
        if (!storm.clients && !(storm.mixed && g->offered && !g->expected)) continue;
        if (!g->made && !g->joined && !g->gone && g->n == 0 && storm_chance(0.5)) storm_client(i);
    }
}
