/* The inside of a history, which history.c (collecting) and history_json.c (printing) share. */
#ifndef PL_OBSERVE_HISTORY_STATE_H
#define PL_OBSERVE_HISTORY_STATE_H

#include "observe/history.h"

#define HISTORY_KNOBS 4096   /* changes of K or the bound; beyond that every second one is kept */
#define HISTORY_POINTS 4096  /* evaluations, likewise */
#define HISTORY_LAGS 64      /* staleness counted one by one; beyond that by powers of two */
#define HISTORY_BINS 112     /* HISTORY_LAGS, and one per power of two above */
#define HISTORY_PAIRS 64     /* up to this many workers: who waited for whom */
#define HISTORY_LINE 160     /* longest line of the event log that is kept */
#define HISTORY_NAME 64      /* bytes of the name of a worker */
#define HISTORY_FIRST 200    /* lines from the beginning */
#define HISTORY_LAST 800     /* lines from the end */
#define HISTORY_CELLS 131072 /* cells of worker and time */
#define HISTORY_COLUMNS 512  /* at most this many per worker */

/* The letter of a fate in the JSON text. */
enum {
    HISTORY_APPLIED = 'A',
    HISTORY_DROPPED = 'D',
    HISTORY_CANCELLED = 'C',
    HISTORY_LOST = 'L',
    HISTORY_REJECTED = 'R',
    HISTORY_UNFINISHED = 'U'
};

struct history_task {
    uint64_t from_ns, to_ns, task;
    uint32_t sent_ns; /* the last part of it, saturated */
    uint32_t lag;
    int worker;
    char fate;
};

struct history_knobs {
    double time;
    struct pl_knobs knobs;
};

struct pl_history {
    char *method, *clock, *metric, *options, *command;
    int n_workers, n_shown; /* n_shown: workers with tasks and times of their own */
    uint64_t now_ns, version, n_events;
    bool ended;
    char why[16];     /* "" until the end, */
    double core_wait; /* and NAN */
    struct pl_fates fates;
    struct pl_staleness staleness;
    char (*name)[HISTORY_NAME];  /* [n_shown], or NULL: no worker has one */
    struct pl_timeline_row *row; /* [n_shown], copied, because another thread may print them */

    struct history_task *task; /* a ring: task number i is at i % PL_HISTORY_TASKS */
    size_t room;
    uint64_t n_tasks, first_task; /* the ring has [first_task, n_tasks) */
    float *pairs; /* [n_workers][n_workers] seconds that the second waited for the first, or NULL */

    int n_columns;
    uint64_t width_ns; /* of a column; 0: no span yet */
    float *cell;       /* [n_shown][n_columns][4] seconds by enum pl_span_kind */

    struct history_knobs knobs[HISTORY_KNOBS];
    size_t n_knobs, n_points;
    struct pl_point point[HISTORY_POINTS];
    uint64_t bin[HISTORY_BINS];
    char (*line)[HISTORY_LINE]; /* [HISTORY_FIRST + HISTORY_LAST]; the last ones are a ring */
};

#endif
