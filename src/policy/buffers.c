/* Buffers: an update as soon as every buffer has a contribution; a worker that sends a result goes
 * on at once.
 *
 * Yang and Li, "Buffered asynchronous SGD for Byzantine learning", JMLR 2023: worker s fills buffer
 * s mod B. The reduction of the same name averages each buffer into one gradient; this policy says
 * when. It does not wait for a buffer whose workers are all gone. While one buffer is empty, the
 * others hold at most 8 b gradients; further ones are dropped, so that a worker that never answers
 * costs a bounded amount of memory. */
#include <string.h>

#include "paceline_policy.h"

#define BUFFERS_MAX 128
#define BUFFERS_DEPTH 8 /* gradients in a buffer, on average, while another is still empty */

struct buffers {
    int b;
};

struct buffers_state {
    struct buffers conf;
    int n_full;
    uint64_t full[BUFFERS_MAX / 64];
};

static const struct pl_opt buffers_opts[] = {
    PL_OPT_COUNT(struct buffers, b, "50%", 1, BUFFERS_MAX,
                 "number of buffers; worker s uses buffer s mod b"),
    PL_OPT_END,
};

static const char *buffers_check(const void *conf, int n_workers) {
    int b = ((const struct buffers *)conf)->b;
    if (b > BUFFERS_MAX) return "there can be at most 128 buffers; set b";
    return b <= n_workers ? NULL : "b cannot be more than the number of workers";
}

static struct pl_knobs buffers_knobs(const void *conf) {
    return (struct pl_knobs){((const struct buffers *)conf)->b, PL_NO_BOUND};
}

/* While one buffer is empty, the others hold up to BUFFERS_DEPTH b contributions and at most b - 2
 * empty ones are filled; then the last one is. */
static struct pl_sizes buffers_groups(const void *conf, int n_workers, int k) {
    int b = ((const struct buffers *)conf)->b;
    (void)n_workers;
    (void)k;
    return (struct pl_sizes){b, b > 1 ? BUFFERS_DEPTH * b + b - 1 : 1};
}

static bool buffers_is_full(const struct buffers_state *s, int worker) {
    int i = worker % s->conf.b;
    return s->full[i / 64] >> (i % 64) & 1;
}

static void buffers_clear(struct buffers_state *s) {
    s->n_full = 0;
    memset(s->full, 0, sizeof s->full);
}

/* Whether every buffer that a worker can still fill is full. */
static bool buffers_are_full(const struct buffers_state *s, const struct pl_view *v) {
    if (s->n_full == s->conf.b) return true;
    if (v->n_alive == v->n_workers) return false;
    for (int i = 0; i < v->n_workers; i++)
        if (v->worker[i].state != PL_GONE && !buffers_is_full(s, i)) return false;
    return true;
}

static void buffers_arrive(void *state, const struct pl_view *v, const struct pl_arrival *a,
                           struct pl_plan *p) {
    struct buffers_state *s = state;
    if (v->n_taken == 0) buffers_clear(s); /* also if a run resumes without its open group */
    bool full = buffers_is_full(s, a->worker);
    if (full && v->n_taken >= BUFFERS_DEPTH * s->conf.b) {
        pl_drop(p);
        pl_start(p, a->worker, PL_FETCH);
        return;
    }
    pl_take(p, 1);
    if (!full) {
        int i = a->worker % s->conf.b;
        s->full[i / 64] |= (uint64_t)1 << (i % 64);
        s->n_full++;
    }
    if (buffers_are_full(s, v)) {
        pl_commit(p, 1);
        buffers_clear(s);
    }
    pl_start(p, a->worker, PL_FETCH);
}

static void buffers_leave(void *state, const struct pl_view *v, int worker, struct pl_plan *p) {
    struct buffers_state *s = state;
    (void)worker;
    if (v->n_taken == 0 || !buffers_are_full(s, v)) return;
    pl_commit(p, 1);
    buffers_clear(s);
}

const struct pl_policy pl_policy_buffers = {
    .id = {"buffers",
           "update when every buffer has a gradient; workers share buffers and never wait",
           "Yang and Li, JMLR 2023 (BASGD)", buffers_opts, sizeof(struct buffers), 0},
    .by_batch = true,
    .state_size = sizeof(struct buffers_state),
    .check = buffers_check,
    .knobs = buffers_knobs,
    .groups = buffers_groups,
    .arrive = buffers_arrive,
    .fetches = pl_always_fetches,
    .leave = buffers_leave,
};
