/* The book: a second account of a run, kept from the events and the plans alone, and the promises
 * that are checked against it. Only the parts of suite_policy include this; see suite_policy.h. */
#ifndef TESTS_SUITE_BOOK_H
#define TESTS_SUITE_BOOK_H

#include "core/control.h"
#include "suite_policy.h"

#define SUITE_GRID 64                     /* rows of a grid, at most */
#define SUITE_GROUP (101 * SUITE_WORKERS) /* members, at most: rounds takes a hundred each */

struct book;

/* What one policy promises on top of what all do; beside its name, and nowhere else. */
struct policy_promises {
    const char *name;
    bool (*check)(struct book *b); /* after every event */
    bool fresh;                    /* applies nothing stale, and drops nothing else */
    bool least_used;               /* starts the free block that was used least */
    bool barrier;                  /* every row once before any row twice */
    /* After U updates the lags of what is applied, in flight or in the open group sum to U(P-1), or
     * to U(P-K). Holds if nobody comes or goes, and nothing is bounded, kept or tuned. */
    enum lag_law { LAG_LAW_NONE, LAG_LAW_ONE, LAG_LAW_K } lag_law;
};

struct tuner_promises {
    const char *name;
    bool (*check)(struct book *b, struct pl_knobs now);
};

struct entry { /* a worker */
    enum pl_worker_state state;
    uint64_t task, base, clock, since, joined, turn;
    uint64_t life;  /* who comes back is somebody else */
    bool holds;     /* a version it may keep */
    uint64_t first; /* of its tasks on that version */
    bool deferred;  /* what it brought, after this time: */
    uint64_t spent, sent;
    int row, col; /* of its latest task, where there is a grid */
};

struct gift { /* a member of the group */
    int worker;
    uint64_t life, task, base, lag;
};

struct book {
    const struct pl_policy *policy;
    const struct pl_tuner *tuner;
    const struct policy_promises *promises;
    const struct tuner_promises *tuner_promises;
    const void *conf, *tuner_conf;
    struct pl_control *control;
    int n, grid; /* grid 0: there is none */
    struct entry w[SUITE_WORKERS];
    uint64_t used[SUITE_GRID * SUITE_GRID]; /* blocks that were applied */
    struct gift group[SUITE_GROUP];
    int n_group;
    uint64_t now, version, turn, max_clock, n_logged, n_steps;
    struct pl_fates fates;
    uint64_t lag_sum, lag_max, n_fresh;
    uint64_t idle, wasted, sent, computed, alive; /* ns of what has ended */
    struct pl_knobs knobs;                        /* that the decision was made by */
    uint64_t timer;                               /* that the policy set */
    bool stopped;                                 /* by the policy */
    bool calm;                                    /* nobody comes, goes or is rejected */
    /* of the last event */
    bool committed, dropped;
    uint64_t arrived_lag;
    struct gift closed[SUITE_GROUP];
    int n_closed, busy_at_close;
    char why[400];
};

/* Writes the sentence and returns false. */
bool book_refuse(struct book *b, const char *fmt, ...) PL_PRINTF(2, 3);

#define MUST(b, what, ...)                                                                         \
    if (!(what)) return book_refuse(b, __VA_ARGS__)

int book_count(const struct book *b, enum pl_worker_state state);
struct pl_sizes book_sizes(const struct book *b, int k); /* of its groups while K is k */
uint64_t book_slowest(const struct book *b); /* the least clock of those who are there */

/* Enters an event and its plan; false if the plan cannot be carried out. */
void book_note_event(struct book *b, const struct pl_event *e);
bool book_note_plan(struct book *b, const struct pl_event *e, const struct pl_plan *plan);

/* Compares what control says with the book. */
bool book_check(struct book *b);

/* The rows of the tables of promises, or empty ones for a name that is not there. */
const struct policy_promises *promises_of_policy(const char *name);
const struct tuner_promises *promises_of_tuner(const char *name);

bool promises_check_policy(struct book *b);
bool promises_check_tuner(struct book *b, struct pl_knobs before);

#endif
