/* The transport of a storm, and the world that runs while the server waits. */
#define _GNU_SOURCE
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "storm.h"

struct pl_port {
    int unused;
};
static struct pl_port the_port;
extern const struct pl_transport __wrap_pl_shm; /* stands for the transport over shared memory */

/* --- messages ------------------------------------------------------------------------------- */

/* The messages of one worker arrive in order; those of two workers may cross. */
static void port_send(struct storm_worker *w, enum pl_news_kind kind, const struct pl_result *r) {
    if (w->gone || (w->n >= STORM_NEWS - 1 && kind != PL_NEWS_GONE)) return;
    uint64_t at = storm.now_ns + (kind == PL_NEWS_BASE ? 0 : storm_draw_ns(storm.news_ns));
    if (storm.now_ns < storm.burst_ns && kind != PL_NEWS_BASE)
        at += storm_draw_ns(20 * storm.news_ns);
    if (at < w->last_at_ns) at = w->last_at_ns;
    w->last_at_ns = at;
    struct storm_message *m = &w->message[(w->first + w->n++) % STORM_NEWS];
    *m = (struct storm_message){.news = {.kind = kind, .worker = w->link.worker}, .at_ns = at};
    if (r) m->news.result = *r;
    if (kind == PL_NEWS_GONE) w->gone = true;
}

void storm_word(int worker, const char *word) {
    struct storm_worker *w = &storm.worker[worker];
    int n = w->n;
    port_send(w, PL_NEWS_WORD, NULL);
    if (w->n > n) w->message[(w->first + n) % STORM_NEWS].news.word = word;
    storm.counts.words++;
}

void storm_kill(int worker) {
    struct storm_worker *w = &storm.worker[worker];
    if (!w->made || w->dead) return;
    storm_say("worker %d dies", worker + 1);
    bool attached = w->attached;
    struct storm_held held = w->held;
    storm_unwind(worker);
    w->held = held; /* the mailbox of a dead worker stays as it was until the server sees it */
    w->held.order.out = w->held.order.base = NULL;
    for (int i = 0; i < PL_STRIPS; i++) w->held.order.strip[i].out = NULL;
    if (attached || w->expected) port_send(w, PL_NEWS_GONE, NULL);
}

/* The port has checked values for being plausible. */
static void port_judge(struct pl_result *r) {
    uint64_t now = storm.now_ns;
    if ((unsigned)r->defect <= PL_NOT_COMPUTED && r->samples <= INT32_MAX &&
        r->pulled_ns >= storm.opened_ns && r->pulled_ns <= r->pushed_ns && r->pushed_ns <= now)
        return;
    *r = (struct pl_result){.task = r->task,
                            .defect = PL_NOT_COMPUTED,
                            .loss = NAN,
                            .pulled_ns = now,
                            .pushed_ns = now};
}

/* The number is free. */
static void port_vacate(struct storm_worker *w) {
    w->expected = w->joined = w->gone = w->client = w->liar = false;
    w->n = 0;
    w->order.task = 0;
    w->held.task = 0;
    w->last_at_ns = 0;
    w->wrote = NULL;
}

static bool port_deliver(struct pl_news *out) {
    struct storm_worker *best = NULL;
    for (int i = 0; i < storm.n_workers; i++) {
        struct storm_worker *w = &storm.worker[i];
        if (w->n == 0 || w->message[w->first].at_ns > storm.now_ns) continue;
        if (!best || w->message[w->first].at_ns < best->message[best->first].at_ns) best = w;
    }
    if (!best) return false;
    *out = best->message[best->first].news;
    best->first = (best->first + 1) % STORM_NEWS;
    best->n--;
    if (out->kind == PL_NEWS_JOINED) best->joined = true;
    if (out->kind == PL_NEWS_GONE) {
        storm.leaving = out->worker;
        port_vacate(best);
    }
    if (out->kind == PL_NEWS_RESULT) port_judge(&out->result);
    static const char *const kind[] = {"none", "joined", "base", "result", "word"};
    if (storm.verbose)
        storm_say("news: worker %d %s %llu", out->worker + 1,
                  out->kind <= PL_NEWS_WORD ? kind[out->kind] : "gone",
                  (unsigned long long)out->result.task);
    return true;
}

/* --- the world ------------------------------------------------------------------------------ */

static uint64_t port_min(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static uint64_t port_next(void) {
    uint64_t next = port_min(storm.fault_ns, storm.stop_ns);
    for (int i = 0; i < storm.n_workers; i++) {
        const struct storm_worker *w = &storm.worker[i];
        if (w->n > 0) next = port_min(next, w->message[w->first].at_ns);
        if (w->made && w->frozen_ns) next = port_min(next, w->frozen_ns);
        if (w->made && !w->frozen_ns) next = port_min(next, w->wake_ns);
    }
    for (size_t i = 0; i < sizeof storm.background / sizeof *storm.background; i++)
        if (storm.background[i].run) next = port_min(next, storm.background[i].at_ns);
    return next;
}

static void port_background(struct pl_background *b) {
    void (*run)(void *arg) = b->run;
    run(b->arg);
    b->run = NULL;
    if (b->done) b->done(b->ctx);
}

/* Everything that is due. */
static void port_step(void) {
    for (int i = 0; i < storm.n_workers; i++) {
        struct storm_worker *w = &storm.worker[i];
        if (w->made && w->frozen_ns && w->frozen_ns <= storm.now_ns) {
            storm_say("worker %d goes on", i + 1);
            w->frozen_ns = 0;
            if (w->wake_ns < storm.now_ns) w->wake_ns = storm.now_ns;
        }
        if (w->made && !w->frozen_ns && w->wake_ns <= storm.now_ns) {
            storm_resume(w);
            if (!w->made && !w->gone && (w->attached || w->expected)) {
                w->held.task = 0;
                port_send(w, PL_NEWS_GONE, NULL);
            }
        }
    }
    for (size_t i = 0; i < sizeof storm.background / sizeof *storm.background; i++)
        if (storm.background[i].run && storm.background[i].at_ns <= storm.now_ns)
            port_background(&storm.background[i]);
    if (storm.stop_ns <= storm.now_ns) {
        storm_say("the server is killed");
        storm.stopped = true;
        storm.stop_ns = STORM_NEVER;
        storm.woken = true;
    }
    if (storm.fault_ns <= storm.now_ns) storm_fault();
}

static bool port_has_news(void) {
    for (int i = 0; i < storm.n_workers; i++) {
        const struct storm_worker *w = &storm.worker[i];
        if (w->n > 0 && w->message[w->first].at_ns <= storm.now_ns) return true;
    }
    return false;
}

void storm_run_until(uint64_t ns) {
    for (uint64_t next; (next = port_next()) <= ns;) {
        if (port_has_news() && next <= storm.now_ns) break; /* news wait for the server */
        if (next > storm.now_ns) storm.now_ns = next;
        port_step();
        if (port_has_news()) break;
    }
}

static void port_news(struct pl_port *p, uint64_t wait_ns, struct pl_news *out) {
    uint64_t end = storm.now_ns + (wait_ns < STORM_NEVER / 4 ? wait_ns : STORM_NEVER / 4);
    *out = (struct pl_news){.kind = PL_NEWS_NONE, .worker = -1};
    storm.leaving = -1;
    storm_check_held("before news");
    if (++storm.n_idle_news > 2000000) storm_fail("the run does not end");
    while (!storm.woken && !port_has_news() && storm.now_ns < end) {
        uint64_t next = port_next();
        storm.now_ns = next < end ? (next > storm.now_ns ? next : storm.now_ns) : end;
        if (next <= storm.now_ns) port_step();
    }
    storm_check_held("while the server waited");
    if (storm.woken) {
        storm.woken = false;
        return;
    }
    if (port_deliver(out)) storm.counts.events++;
}

static void port_wake(struct pl_port *p) {
    storm.woken = true;
}

/* --- the server's end ----------------------------------------------------------------------- */

static int port_open(const struct pl_port_conf *conf, struct pl_port **out, struct pl_why *why) {
    if (conf->n_workers > STORM_WORKERS) storm_fail("%d workers", conf->n_workers);
    storm.n_workers = conf->n_workers;
    storm.dim = conf->dim;
    storm.peers = conf->peers;
    storm.open = true;
    storm.shutdown = storm.woken = false;
    storm.opened_ns = storm.now_ns;
    storm.n_versions = conf->n_versions;
    storm.n_slots = conf->n_slots;
    storm.n_own = conf->listen && conf->n_own ? conf->n_own : 0;
    storm.n_memory = 0;
    int room = conf->n_versions + conf->n_slots + conf->n_workers * storm.n_own + 1;
    storm.memory = calloc((size_t)room, sizeof *storm.memory);
    storm.writer = calloc((size_t)room, sizeof *storm.writer);
    for (int i = 0; i < storm.n_workers; i++) {
        struct storm_worker *w = &storm.worker[i];
        char *stack = w->stack;
        *w = (struct storm_worker){.link.worker = i, .stack = stack, .wake_ns = STORM_NEVER};
        w->token.flag = &w->cancel;
        if (storm.clients) storm_client(i);
    }
    *out = &the_port;
    return PL_OK;
}

static void port_shutdown(struct pl_port *p, uint64_t wait_ns) {
    bool frozen = false;
    storm_check_held("at the end");
    storm.shutdown = true;
    for (int i = 0; i < storm.n_workers; i++) {
        struct storm_worker *w = &storm.worker[i];
        atomic_store(&w->cancel, true);
        if (w->frozen_ns && !w->client)
            frozen = true;
        else if (w->made)
            storm_unwind(i);
    }
    if (frozen) storm.now_ns += wait_ns;
}

static void port_close(struct pl_port *p) {
    if (!p) return;
    for (int i = 0; i < storm.n_workers; i++)
        if (storm.worker[i].made) storm_unwind(i);
    for (int i = 0; i < storm.n_memory; i++) free(storm.memory[i]);
    free(storm.memory);
    free(storm.writer);
    storm.memory = NULL;
    storm.n_memory = 0;
    storm.open = false;
}

static float *port_vector(struct pl_port *p, int writer) {
    int n = 0, most = writer < 0 ? storm.n_versions : storm.n_own ? storm.n_own : storm.n_slots;
    for (int i = 0; i < storm.n_memory; i++)
        n += writer < 0 || storm.n_own ? storm.writer[i] == writer : storm.writer[i] >= 0;
    if (n >= most) return NULL;
    float *v = calloc(storm.dim, sizeof *v);
    storm.memory[storm.n_memory] = v;
    storm.writer[storm.n_memory++] = writer;
    return v;
}

static void port_tell(struct pl_port *p, int worker, const struct pl_order *o) {
    struct storm_worker *w = &storm.worker[worker];
    /* a timer that was due is handled before the news that the worker is gone */
    if (worker == storm.leaving) return;
    if (!w->joined)
        storm_fail("worker %d is absent, and is told task %llu", worker + 1,
                   (unsigned long long)o->task);
    storm_told(worker, o);
    memcpy(w->input, o->input, (size_t)o->n_inputs * sizeof *w->input);
    w->order = *o;
    w->order.input = w->input;
    if (w->waits) w->wake_ns = storm.now_ns + storm_draw_ns(storm.news_ns);
}

static void port_cancel(struct pl_port *p, int worker) {
    struct storm_worker *w = &storm.worker[worker];
    if (!w->joined) return;
    if (w->order.task && w->order.stays)
        storm_fail("worker %d: an order that stays is cancelled", worker + 1);
    w->order.task = 0;
    /* it notices now, or after it has computed */
    if (storm_chance(0.7)) {
        atomic_store(&w->cancel, true);
        if (w->wake_ns != STORM_NEVER) w->wake_ns = storm.now_ns;
    }
}

/* Versions are never given up early here. */
static bool port_answered(struct pl_port *p, int worker) {
    return false;
}

static uint64_t port_holds(const struct pl_port *p, int worker) {
    const struct storm_worker *w = &storm.worker[worker];
    if (w->liar && storm_chance(0.2)) return pl_rng_below(&storm.rng, 1000);
    return w->held.task != w->order.task ? w->held.task : 0;
}

static enum pl_phase port_phase(struct pl_port *p, int worker) {
    const struct storm_worker *w = &storm.worker[worker];
    if (!w->joined) return PL_PHASE_AWAY;
    return w->waits ? PL_PHASE_WAITING : PL_PHASE_COMPUTING;
}

static int port_expect(struct pl_port *p, int worker, struct pl_why *why) {
    struct storm_worker *w = &storm.worker[worker];
    if (w->expected || w->joined || w->made)
        return pl_fail(why, PL_EUSAGE, "worker %d is there already", worker + 1);
    w->expected = true;
    w->offered = false;
    storm.expecting = worker;
    return PL_OK;
}

static void port_offer(struct pl_port *p, int worker) {
    storm.worker[worker].offered = true;
}

static bool port_is_client(const struct pl_port *p, int worker) {
    return worker < storm.n_workers && storm.worker[worker].client;
}

/* For the server, a client that it hangs up on is like one that dies: what it still does happens in
 * memory of its own. */
static bool port_hang_up(struct pl_port *p, int worker, bool again, const char *sentence) {
    if (!port_is_client(p, worker) || storm.peers) return false;
    storm_say("worker %d is hung up on: %s", worker + 1, sentence);
    storm.counts.hung_up++;
    storm_kill(worker);
    return true;
}

static int port_attach(struct pl_port *p, int worker, struct pl_link **out) {
    struct storm_worker *w = &storm.worker[worker];
    if (w->dead || storm.shutdown) return PL_EUSAGE;
    w->attached = true;
    port_send(w, PL_NEWS_JOINED, NULL);
    *out = &w->link;
    return PL_OK;
}

static void port_made(struct pl_port *p, int worker) {
    struct storm_worker *w = &storm.worker[worker];
    if (!w->made) port_send(w, PL_NEWS_GONE, NULL); /* no process could be started */
}

/* --- a worker's end ------------------------------------------------------------------------- */

static struct storm_worker *port_worker(const struct pl_link *l) {
    return &storm.worker[l->worker];
}

/* What a worker that computes leaves in its output until it is done. */
static void port_scribble(struct storm_worker *w) {
    struct pl_order *o = w->given;
    for (int s = 0; s < o->n_strips; s++)
        for (size_t i = 0; i < o->strip[s].n; i++) o->strip[s].out[i] = NAN;
    for (size_t i = 0; o->out && i < storm.dim; i++) o->out[i] = NAN;
}

static void port_hold(struct storm_worker *w, struct pl_order *out) {
    *out = w->order;
    w->held = (struct storm_held){.task = w->order.task, .order = w->order};
    memcpy(w->held.input, w->input, sizeof w->input);
    out->input = w->held.order.input = w->held.input;
    w->held.hash = storm_hash_inputs(&w->held);
    w->given = out;
    w->pulled_ns = storm.now_ns;
    port_scribble(w);
}

static int port_pull(struct pl_link *l, struct pl_order *out) {
    struct storm_worker *w = port_worker(l);
    w->held.task = 0;
    w->given = NULL;
    for (;;) {
        atomic_store(&w->cancel, false);
        if (w->dead || storm.shutdown) return PL_ECANCELLED;
        if (w->order.task && w->order.task != w->answered) break;
        w->waits = true;
        storm_leave(w, STORM_NEVER);
        w->waits = false;
    }
    port_hold(w, out);
    storm_leave(w, storm_draw_ns(storm.news_ns));
    return w->dead || storm.shutdown ? PL_ECANCELLED : PL_OK;
}

static const struct pl_cancel *port_cancelled(const struct pl_link *l) {
    struct storm_worker *w = port_worker(l);
    storm_leave(w, storm_draw_ns(storm.task_ns));
    if (!w->dead && !storm.shutdown && !w->client) port_scribble(w);
    return &w->token;
}

static int port_sleep(struct pl_link *l, uint64_t ns) {
    struct storm_worker *w = port_worker(l);
    storm_leave(w, ns);
    return atomic_load(&w->cancel) || w->dead || storm.shutdown ? PL_ECANCELLED : PL_OK;
}

static void port_push(struct pl_link *l, const struct pl_result *r) {
    struct storm_worker *w = port_worker(l);
    if (w->dead || storm.shutdown) return;
    if (r->is_base) {
        if (w->held.task && w->held.order.base) {
            w->held.base_ready = true;
            w->held.base_hash = storm_hash(w->held.order.base, storm.dim);
        }
        port_send(w, PL_NEWS_BASE, r);
        return;
    }
    /* it has written its result, and dies or stops before it says so, or sends it */
    storm_leave(w, storm_draw_ns(storm.news_ns));
    if (w->dead || storm.shutdown) return;
    struct pl_result result = *r;
    if (!w->client) {
        result.pulled_ns = w->pulled_ns;
        result.pushed_ns = storm.now_ns;
    }
    if (w->held.task) w->answered = w->held.task;
    w->held.task = 0;
    w->given = NULL;
    w->last = result;
    port_send(w, PL_NEWS_RESULT, &result);
    storm_leave(w, storm_draw_ns(storm.news_ns));
}

static void port_detach(struct pl_link *l) {}

static const struct pl_start_ops port_start = {
    .processes = true, .expect = port_expect, .attach = port_attach, .made = port_made};
static const struct pl_shared_ops port_shared = {.answered = port_answered};
static const struct pl_client_ops port_clients = {
    .offer = port_offer, .is_client = port_is_client, .hang_up = port_hang_up};

const struct pl_transport __wrap_pl_shm = {.name = "shm",
                                           .brief = "a storm",
                                           .port = {.open = port_open,
                                                    .shutdown = port_shutdown,
                                                    .close = port_close,
                                                    .vector = port_vector,
                                                    .tell = port_tell,
                                                    .cancel = port_cancel,
                                                    .holds = port_holds,
                                                    .phase = port_phase,
                                                    .news = port_news,
                                                    .wake = port_wake},
                                           .link = {.pull = port_pull,
                                                    .cancelled = port_cancelled,
                                                    .sleep = port_sleep,
                                                    .push = port_push,
                                                    .detach = port_detach},
                                           .start = &port_start,
                                           .shared = &port_shared,
                                           .clients = &port_clients};
