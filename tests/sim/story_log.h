/* What an event log says: updates, drops, cancels, rejects and losses. For test_story.c. */
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
    bool busy[N_WORKERS + 1];
    long base[N_WORKERS + 1], version;
    struct facts *out;
};

static struct fact *next_fact(struct reader *r) {
    return r->out->n < N_FACTS ? &r->out->at[r->out->n++] : NULL;
}

static bool ends_in(struct reader *r, double now, enum kind kind, int worker) {
    struct fact *f = next_fact(r);
    if (!f || worker < 1 || worker > N_WORKERS) return false;
    *f = (struct fact){.time = now, .kind = kind, .version = -1, .n = 1};
    f->member[0] = (struct member){worker, r->base[worker], r->version - r->base[worker]};
    r->busy[worker] = false;
    return true;
}

/* "w1 <- W1@w0 W2@w0" */
static bool read_commit(struct reader *r, double now, const char *at) {
    char line[256];
    struct fact *f = next_fact(r);
    snprintf(line, sizeof line, "%.17g %.200s", now, at);
    if (!f || !read_fact(line, f) || f->kind != COMMIT) return false;
    for (int i = 0; i < f->n; i++) f->member[i].lag = r->version - f->member[i].base;
    r->version = f->version;
    return true;
}

/* "W1@w1": an end of this event that it follows has that version. */
static bool read_start(struct reader *r, const char *at, int first) {
    struct member m;
    if (!read_member(&at, &m)) return false;
    for (struct fact *f = r->out->at + first; f < r->out->at + r->out->n; f++)
        if (f->kind != COMMIT && f->member[0].worker == m.worker) f->version = m.base;
    r->busy[m.worker] = true;
    r->base[m.worker] = m.base;
    return true;
}

/* "2.3 arrive W1#1: take, commit w1 <- W1@w0, start W1@w1" */
static bool read_event(struct reader *r, char *line) {
    char what[16], *next;
    int w = 0, first = r->out->n;
    double now;
    bool ok = sscanf(line, "%lf %15[a-z] W%d", &now, what, &w) >= 2 && w >= 0 && w <= N_WORKERS;
    if (ok && strcmp(what, "reject") == 0) ok = ends_in(r, now, REJECT, w);
    if (ok && strcmp(what, "leave") == 0 && r->busy[w]) ok = ends_in(r, now, LOST, w);
    if (ok && strcmp(what, "arrive") == 0) r->busy[w] = false;
    char *at = strstr(line, ": ");
    for (at = at ? at + 2 : NULL; ok && at; at = next) {
        next = strstr(at, ", ");
        if (next) *next = '\0', next += 2;
        if (strcmp(at, "drop") == 0) ok = ends_in(r, now, DROP, w);
        if (sscanf(at, "cancel W%d", &w) == 1) ok = ends_in(r, now, CANCEL, w);
        if (strncmp(at, "commit ", 7) == 0) ok = read_commit(r, now, at + 7);
        if (strncmp(at, "start ", 6) == 0) ok = read_start(r, at + 6, first);
    }
    return ok;
}

/* The facts of a log. False: `why` says which line cannot be. */
static bool read_log(const char *log, struct facts *out, char *why, size_t max) {
    static struct reader r;
    char line[1024], copy[1024];
    r = (struct reader){.out = out};
    out->n = 0;
    for (int number = 1; *log; number++) {
        size_t n = strcspn(log, "\n");
        snprintf(line, sizeof line, "%.*s", (int)n, log);
        memcpy(copy, line, sizeof copy);
        log += n + (log[n] == '\n');
        if (!read_event(&r, copy)) {
            snprintf(why, max, "line %d of the log cannot be read: %.300s", number, line);
            return false;
        }
    }
    return true;
}

#endif
