/* What an event log says, read by a worker table of its own: updates, drops, cancels, rejects and
 * losses. It refuses a log that cannot be. For test_story.c. */
#ifndef PL_TESTS_STORY_LOG_H
#define PL_TESTS_STORY_LOG_H

#include "base/status.h"
#include "test.h"

#define N_WORKERS 8  /* in any story */
#define N_FACTS 64   /* in any story */
#define N_MEMBERS 16 /* in any group */

/* --- facts: what is expected of a log, and what it says ---------------------------------- */

enum kind { COMMIT, DROP, CANCEL, LOST, REJECT, N_KINDS };
static const char *const kind_word[N_KINDS] = {"w", "drop", "cancel", "lost", "reject"};

struct member {
    int worker;
    long base, lag; /* -1: not said */
};

struct fact {
    double time;
    enum kind kind;
    long version; /* COMMIT: the new one; else the one the worker starts again on, or -1 */
    struct member member[N_MEMBERS];
    int n;
};

struct facts {
    struct fact at[N_FACTS];
    int n;
};

/* Reads "W2", "W2@w1" or "W2(d1)" and moves on. */
static bool read_member(const char **at, struct member *m) {
    int used = 0;
    *m = (struct member){-1, -1, -1};
    if (sscanf(*at, " W%d%n", &m->worker, &used) != 1) return false;
    *at += used;
    used = 0;
    if (sscanf(*at, "@w%ld%n", &m->base, &used) == 1 && used) *at += used;
    used = 0;
    if (sscanf(*at, "(d%ld)%n", &m->lag, &used) == 1 && used) *at += used;
    return m->worker >= 1 && m->worker <= N_WORKERS && (**at == ' ' || **at == '\0');
}

static bool read_fact(const char *line, struct fact *f) {
    char word[16];
    int used = 0;
    *f = (struct fact){.version = -1};
    if (sscanf(line, "%lf %15s%n", &f->time, word, &used) != 2) return false;
    const char *at = line + used;
    for (f->kind = DROP; f->kind < N_KINDS && strcmp(word, kind_word[f->kind]) != 0;) f->kind++;
    if (f->kind == N_KINDS) {
        f->kind = COMMIT;
        used = 0;
        if (sscanf(word, "w%ld", &f->version) != 1) return false;
        if (sscanf(at, " <-%n", &used) != 0 || !used) return false;
        at += used;
    }
    while (f->n < N_MEMBERS && read_member(&at, &f->member[f->n])) f->n++;
    used = 0;
    if (f->kind != COMMIT && sscanf(at, " -> w%ld%n", &f->version, &used) == 1) at += used;
    return *at == '\0' && (f->kind == COMMIT ? f->n > 0 : f->n == 1);
}

static void print_fact(const struct fact *f, char *out, size_t max) {
    out[0] = '\0';
    pl_append(out, max, "%.9g %s", f->time, kind_word[f->kind]);
    if (f->kind == COMMIT) pl_append(out, max, "%ld <-", f->version);
    for (int i = 0; i < f->n; i++) {
        pl_append(out, max, " W%d", f->member[i].worker);
        if (f->member[i].base >= 0) pl_append(out, max, "@w%ld", f->member[i].base);
        if (f->member[i].lag >= 0) pl_append(out, max, "(d%ld)", f->member[i].lag);
    }
    if (f->kind != COMMIT && f->version >= 0) pl_append(out, max, " -> w%ld", f->version);
}

static bool same_fact(const struct fact *want, const struct fact *got) {
    if (fabs(want->time - got->time) > 1e-9 || want->kind != got->kind || want->n != got->n ||
        want->version != got->version)
        return false;
    for (int i = 0; i < want->n; i++) {
        const struct member *w = &want->member[i], *g = &got->member[i];
        if (w->worker != g->worker || (w->base >= 0 && w->base != g->base) ||
            (w->lag >= 0 && w->lag != g->lag))
            return false;
    }
    return true;
}

/* --- reading a log ----------------------------------------------------------------------- */

struct reader {
    enum { GONE, IDLE, BUSY } state[N_WORKERS + 1];
    long task[N_WORKERS + 1], base[N_WORKERS + 1];
    int row[N_WORKERS + 1], col[N_WORKERS + 1]; /* of a block; 0: of none */
    long version;
    double now;
    struct member open[N_MEMBERS]; /* the group */
    int n_open;
    struct facts *out;
    double timer; /* that is set; below 0: none */
    int first;    /* fact of this event: an end that is followed by a start gets its version */
    int arrived;
};

static bool ends_in(struct reader *r, enum kind kind, int worker) {
    if (r->out->n == N_FACTS) return false;
    struct fact *f = &r->out->at[r->out->n++];
    *f = (struct fact){.time = r->now, .kind = kind, .version = -1, .n = 1};
    f->member[0] = (struct member){worker, r->base[worker], r->version - r->base[worker]};
    return true;
}

static bool read_commit(struct reader *r, const char *at) {
    if (r->out->n == N_FACTS || r->n_open == 0) return false;
    struct fact *f = &r->out->at[r->out->n++];
    *f = (struct fact){.time = r->now, .kind = COMMIT, .version = ++r->version, .n = r->n_open};
    memcpy(f->member, r->open, sizeof r->open);
    /* the members that the log prints are those that were taken */
    int used = 0;
    long version;
    if (sscanf(at, "w%ld <-%n", &version, &used) != 1 || !used || version != f->version)
        return false;
    at += used;
    for (int i = 0; i < r->n_open; i++) {
        struct member m;
        if (!read_member(&at, &m) || m.worker != f->member[i].worker || m.base != f->member[i].base)
            return false;
    }
    r->n_open = 0;
    return *at == '\0';
}

/* " block 3,7", or nothing: nobody else is busy in that row or column. */
static bool read_block(struct reader *r, const char *at, int worker) {
    int row = 0, col = 0, used = 0;
    if (*at && (sscanf(at, " block %d,%d%n", &row, &col, &used) != 2 || at[used])) return false;
    for (int i = 1; *at && i <= N_WORKERS; i++)
        if (r->state[i] == BUSY && (r->row[i] == row || r->col[i] == col)) return false;
    r->row[worker] = row;
    r->col[worker] = col;
    return true;
}

static bool read_start(struct reader *r, const char *at) {
    struct member m;
    if (!read_member(&at, &m) || r->state[m.worker] != IDLE) return false;
    if (!read_block(r, at, m.worker)) return false;
    /* the newest version, or the one it had */
    if (m.base != r->version && (r->task[m.worker] == 0 || m.base != r->base[m.worker]))
        return false;
    for (int i = r->first; i < r->out->n; i++) {
        struct fact *f = &r->out->at[i];
        if (f->kind != COMMIT && f->member[0].worker == m.worker) f->version = m.base;
    }
    r->state[m.worker] = BUSY;
    r->task[m.worker]++;
    r->base[m.worker] = m.base;
    return true;
}

/* An exchange between two who are there, or what one of them was given. */
static bool read_exchange(const struct reader *r, const char *a) {
    static const char *const forms[] = {"blend W%d <- W%d%n", "pair W%d W%d%n", "push W%d -> W%d%n",
                                        "absorb W%d%n"};
    for (size_t i = 0; i < 4; i++) {
        int w = 0, peer = 0, used = 0, n = i < 3 ? 2 : 1;
        if (i < 3 ? sscanf(a, forms[i], &w, &peer, &used) != n
                  : sscanf(a, forms[i], &w, &used) != n)
            continue;
        if (!used || a[used] || w < 1 || w > N_WORKERS || peer > N_WORKERS) return false;
        return r->state[w] != GONE && w != peer && (n == 1 || (peer > 0 && r->state[peer] != GONE));
    }
    return false;
}

static bool read_action(struct reader *r, const char *a) {
    int w = r->arrived;
    if (strcmp(a, "take") == 0 || strcmp(a, "drop") == 0) {
        if (!w) return false;
        r->arrived = 0; /* once */
        if (a[0] == 'd') return ends_in(r, DROP, w);
        if (r->n_open == N_MEMBERS) return false;
        r->open[r->n_open++] = (struct member){w, r->base[w], r->version - r->base[w]};
        return true;
    }
    if (strncmp(a, "commit ", 7) == 0) return read_commit(r, a + 7);
    if (strncmp(a, "start ", 6) == 0) return read_start(r, a + 6);
    if (read_exchange(r, a)) return true;
    if (strcmp(a, "no timer") == 0) return r->timer = -1, true;
    if (sscanf(a, "timer %lf", &r->timer) == 1) return r->timer >= r->now;
    if (sscanf(a, "cancel W%d", &w) != 1 || w < 1 || w > N_WORKERS || r->state[w] != BUSY)
        return false;
    r->state[w] = IDLE;
    return ends_in(r, CANCEL, w);
}

static bool read_plan(struct reader *r, char *at) {
    if (strncmp(at, ": ", 2) == 0) at += 2;
    while (*at) {
        char *comma = strstr(at, ", "), *next = comma ? comma + 2 : at + strlen(at);
        if (comma) *comma = '\0';
        if (!read_action(r, at)) return false;
        at = next;
    }
    return !r->arrived;
}

static bool begin_event(struct reader *r, double now) {
    bool goes_on = now >= r->now;
    r->now = now;
    r->first = r->out->n;
    r->arrived = 0;
    return goes_on;
}

/* One line; false where it cannot be. */
static bool read_event(struct reader *r, char *line) {
    char what[16];
    int w, used = 0;
    double now;
    long task = 0;
    if (sscanf(line, "%lf timer%n", &now, &used) == 1 && used) {
        if (!begin_event(r, now) || fabs(now - r->timer) > 1e-9) return false;
        r->timer = -1;
        return read_plan(r, line + used);
    }
    if (sscanf(line, "%lf %15s W%d%n", &now, what, &w, &used) != 3 || !used) return false;
    if (!begin_event(r, now) || w < 1 || w > N_WORKERS) return false;
    char *at = line + used;
    used = 0;
    if (sscanf(at, "#%ld%n", &task, &used) == 1) at += used;
    bool arrive = strcmp(what, "arrive") == 0, reject = strcmp(what, "reject") == 0;
    bool leave = strcmp(what, "leave") == 0, join = strcmp(what, "join") == 0;
    if (strcmp(what, "base") == 0) return r->state[w] == BUSY && r->task[w] == task && !*at;
    if (arrive || reject) {
        if (r->state[w] != BUSY || r->task[w] != task) return false;
        r->state[w] = IDLE;
        if (arrive) r->arrived = w;
        if (reject && !ends_in(r, REJECT, w)) return false;
    } else if (leave) {
        if (r->state[w] == GONE) return false;
        if (r->state[w] == BUSY && !ends_in(r, LOST, w)) return false;
        r->state[w] = GONE;
    } else if (!join || r->state[w] != GONE) {
        return false;
    } else {
        r->state[w] = IDLE;
    }
    return read_plan(r, at);
}

/* The facts of a log. False: `why` says which line cannot be. */
static bool read_log(const char *log, struct facts *out, char *why, size_t max) {
    static struct reader r;
    char line[1024], copy[1024];
    r = (struct reader){.out = out, .timer = -1};
    out->n = 0;
    for (int number = 1; *log; number++) {
        size_t n = strcspn(log, "\n");
        snprintf(line, sizeof line, "%.*s", (int)n, log);
        memcpy(copy, line, sizeof copy);
        log += n + (log[n] == '\n');
        if (!read_event(&r, copy)) {
            snprintf(why, max, "line %d of the log cannot be: %.300s", number, line);
            return false;
        }
    }
    return true;
}

#endif
