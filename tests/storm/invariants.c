/* What holds after every event of a storm, and at every order. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run/worker.h"
#include "storm.h"

/* --- orders ---------------------------------------------------------------------------------- */

static bool invariants_is_input(const struct pl_order *o, const float *v) {
    for (int i = 0; i < o->n_inputs; i++)
        if (o->input[i].v == v) return true;
    return false;
}

/* Vectors of a task that a worker may still be computing. */
static void invariants_apart(int worker, const struct pl_order *o, int other,
                             const struct storm_held *h) {
    const struct pl_order *x = &h->order;
    if ((o->out && x->out == o->out) || (o->base && (x->base == o->base || x->out == o->base)) ||
        (x->base && x->base == o->out))
        storm_fail("worker %d is told to write where worker %d may still write", worker + 1,
                   other + 1);
    bool reads = !h->base_ready; /* then it reads its base */
    if (reads && ((o->out && invariants_is_input(x, o->out)) ||
                  (o->base && invariants_is_input(x, o->base))))
        storm_fail("worker %d is told to write what worker %d may still read", worker + 1,
                   other + 1);
    if (x->out && invariants_is_input(o, x->out))
        storm_fail("worker %d is told to read what worker %d may still write", worker + 1,
                   other + 1);
    if (x->base && !h->base_ready && invariants_is_input(o, x->base))
        storm_fail("worker %d is told to read a base that worker %d has not finished", worker + 1,
                   other + 1);
}

/* The same for strips of a model. A worker that left may read what others write, for a result that
 * will not be used. */
static void invariants_strips_apart(int worker, const struct pl_order *o, int other,
                                    const struct storm_held *h) {
    const struct pl_order *x = &h->order;
    for (int i = 0; i < x->n_strips; i++)
        for (int j = 0; j < o->n_strips; j++) {
            if (x->strip[i].out == o->strip[j].out)
                storm_fail("worker %d is told to write a strip that worker %d may still write",
                           worker + 1, other + 1);
            if (x->strip[i].out == o->strip[j].in)
                storm_fail("worker %d is told to read a strip that worker %d may still write",
                           worker + 1, other + 1);
            if (x->strip[i].in == o->strip[j].out && storm.alive[other])
                storm_fail("worker %d is told to write a strip that worker %d may still read",
                           worker + 1, other + 1);
        }
}

/* A model that workers are given is finite, and the same whenever they are. */
static void invariants_version(int worker, const struct pl_order *o) {
    const struct pl_run_note note = pl_note_unpack(o);
    for (int r = 0; r < o->n_strips; r++)
        for (size_t k = 0; k < o->strip[r].n; k++)
            if (!storm.huge && !isfinite(o->strip[r].in[k]))
                storm_fail("worker %d is given a strip that is not finite", worker + 1);
    for (int i = 0; i < o->n_inputs; i++)
        for (size_t k = 0; k < storm.dim; k++)
            if (!storm.huge && !isfinite(o->input[i].v[k]))
                storm_fail("worker %d is given a model that is not finite", worker + 1);
    if (o->stays || note.version >= 4096 || o->n_inputs != 1 || !storm.one_model) return;
    uint64_t hash = storm_hash(o->input[0].v, storm.dim);
    uint64_t *known = &storm.version_hash[note.version];
    if (*known && *known != hash)
        storm_fail("version %llu is not what it was when it was first given to a worker",
                   (unsigned long long)note.version);
    *known = hash;
}

/* Workers can only read what the server writes, and clients what others write. */
static bool invariants_writable(int worker, const float *v) {
    for (int i = 0; i < storm.n_memory; i++)
        if (storm.memory[i] == v)
            return storm.worker[worker].client ? storm.writer[i] == worker : storm.writer[i] >= 0;
    return false;
}

void storm_told(int worker, const struct pl_order *o) {
    if ((o->out && !invariants_writable(worker, o->out)) ||
        (o->base && !invariants_writable(worker, o->base)))
        storm_fail("worker %d is told to write to memory of the server or another", worker + 1);
    if ((o->out == NULL) != (o->n_strips > 0) || (o->out && invariants_is_input(o, o->out)))
        storm_fail("worker %d is told to write what it reads", worker + 1);
    for (int i = 0; i < o->n_strips; i++)
        if (o->strip[i].in == o->strip[i].out)
            storm_fail("worker %d is told to write a strip that it reads", worker + 1);
    for (int i = 0; i < storm.n_workers; i++) {
        const struct storm_worker *w = &storm.worker[i];
        if (i == worker || !w->made || w->liar) continue;
        if (w->held.task) invariants_apart(worker, o, i, &w->held);
        if (w->held.task) invariants_strips_apart(worker, o, i, &w->held);
        /* an order that it has not taken yet */
        if (w->order.task && w->order.task != w->answered && w->order.task != w->held.task) {
            struct storm_held later = {.order = w->order};
            later.order.input = w->input;
            invariants_apart(worker, o, i, &later);
            invariants_strips_apart(worker, o, i, &later);
        }
    }
    invariants_version(worker, o);
}

/* --- events ---------------------------------------------------------------------------------- */

static void invariants_fates(const struct pl_control *c) {
    struct pl_fates f = pl_control_fates(c);
    uint64_t sum = f.applied + f.dropped + f.cancelled + f.lost + f.rejected + f.running;
    if (sum != f.started)
        storm_fail("%llu tasks were started and %llu have a fate", (unsigned long long)f.started,
                   (unsigned long long)sum);
}

static void invariants_versions(const struct pl_view *v, const struct pl_plan *plan) {
    int commits = 0;
    for (size_t i = 0; i < plan->n; i++) {
        if (plan->action[i].verb != PL_COMMIT) continue;
        commits++;
        if (plan->action[i].version != storm.version + 1)
            storm_fail("version %llu is committed after %llu",
                       (unsigned long long)plan->action[i].version,
                       (unsigned long long)storm.version);
    }
    if (v->version < storm.version || v->version > storm.version + 1 ||
        (commits > 0) != (v->version > storm.version && !v->replicas))
        if (!v->replicas)
            storm_fail("version %llu follows %llu with %d commits", (unsigned long long)v->version,
                       (unsigned long long)storm.version, commits);
    if (v->version < storm.version)
        storm_fail("version %llu follows %llu", (unsigned long long)v->version,
                   (unsigned long long)storm.version);
    storm.counts.updates += v->version - storm.version;
    if (v->version > storm.version) storm.commit_ns = storm.now_ns;
    storm.version = v->version;
}

/* No result is in two versions. */
static void invariants_group(const struct pl_control *c, const struct pl_plan *plan) {
    bool commit = false;
    size_t n;
    for (size_t i = 0; i < plan->n; i++) commit = commit || plan->action[i].verb == PL_COMMIT;
    if (!commit) return;
    const struct pl_member *m = pl_control_group(c, &n);
    for (size_t i = 0; i < n; i++) {
        if (m[i].task >= STORM_TASKS) continue;
        uint8_t *bits = &storm.committed[m[i].worker][m[i].task / 8];
        uint8_t bit = (uint8_t)(1u << (m[i].task % 8));
        if (*bits & bit)
            storm_fail("task %llu of worker %d is committed twice", (unsigned long long)m[i].task,
                       m[i].worker + 1);
        *bits |= bit;
    }
}

/* The time of all workers while they were present. */
static void invariants_time(const struct pl_control *c, const struct pl_event *e) {
    double sum = storm.present;
    if (e->kind == PL_JOIN || e->kind == PL_LEAVE) {
        int i = e->worker;
        if (storm.alive[i] == (e->kind == PL_JOIN))
            storm_fail("worker %d %s twice", i + 1, e->kind == PL_JOIN ? "joins" : "leaves");
        if (e->kind == PL_LEAVE) storm.present += (double)(e->now_ns - storm.alive_since[i]) * 1e-9;
        storm.alive[i] = e->kind == PL_JOIN;
        storm.alive_since[i] = e->now_ns;
        sum = storm.present;
    }
    for (int i = 0; i < storm.n_workers; i++)
        if (storm.alive[i]) sum += (double)(e->now_ns - storm.alive_since[i]) * 1e-9;
    struct pl_worker_time t = pl_control_worker_time(c, e->now_ns);
    double counted = t.compute + t.communication + t.idle + t.wasted;
    if (storm.n_events == 1) { /* what a checkpoint brought */
        storm.present = counted;
        return;
    }
    if (fabs(counted - sum) > 1e-6 + 1e-9 * sum)
        storm_fail("workers were present for %.9f s, and %.9f s are accounted for", sum, counted);
}

void storm_event(void *ctx, const struct pl_control *c, const struct pl_event *e,
                 const struct pl_plan *plan) {
    const struct pl_view *v = pl_control_view(c);
    storm.n_events++;
    if (storm.verbose) {
        size_t room = pl_control_print_room(c, plan);
        char *line = malloc(room);
        if (line) pl_control_print(c, e, plan, line, room);
        storm_say("%s", line ? line : "");
        free(line);
    }
    bool alone = !pl_event_is_made(e) && e->kind != PL_SCORED; /* the time is its own */
    if (alone && e->now_ns <= storm.event_ns && storm.n_events > 1)
        storm_fail("two events at %llu ns", (unsigned long long)e->now_ns);
    storm.event_ns = e->now_ns;
    invariants_fates(c);
    invariants_versions(v, plan);
    invariants_group(c, plan);
    invariants_time(c, e);
    storm_check_held("after an event");
    for (size_t i = 0; i < plan->n; i++) {
        const struct pl_action *a = &plan->action[i];
        if (a->verb == PL_START && a->worker >= 0 && !storm.alive[a->worker])
            storm_fail("worker %d is absent, and is started", a->worker + 1);
    }
}

uint64_t storm_hash_inputs(const struct storm_held *h) {
    uint64_t hash = 0;
    for (int i = 0; i < h->order.n_strips; i++)
        hash = hash * 31 + storm_hash(h->order.strip[i].in, h->order.strip[i].n);
    for (int i = 0; i < h->order.n_inputs; i++)
        hash = hash * 31 + storm_hash(h->input[i].v, storm.dim);
    return hash;
}

void storm_check_held(const char *when) {
    for (int i = 0; i < storm.n_workers; i++) {
        const struct storm_worker *w = &storm.worker[i];
        if (w->held.task == 0 || !w->made || w->liar) continue; /* who lies about it may lose it */
        bool reads = !w->held.base_ready;
        /* parts are updated in place: one that left reads what others write, for a result that
         * will not be used */
        if (!storm.one_model && !storm.alive[i]) continue;
        if (reads && storm_hash_inputs(&w->held) != w->held.hash)
            storm_fail("%s, the input of worker %d's task %llu changed while it read it", when,
                       i + 1, (unsigned long long)w->held.task);
        if (!reads && storm_hash(w->held.order.base, storm.dim) != w->held.base_hash)
            storm_fail("%s, the base of worker %d's task %llu changed while it read it", when,
                       i + 1, (unsigned long long)w->held.task);
    }
}
