/* What the server does for clients, which are workers of other programs and an evaluator: it tells
 * them about the run, carries out their requests, shows versions to the evaluator and enters its
 * numbers as scores. If clients compute the model, training losses are those of the results.
 *
 * Threads: the deciding one. */
#ifndef PL_RUN_CLIENTS_H
#define PL_RUN_CLIENTS_H

#include "engine/engine.h"
#include "run/about.h"

struct server;

/* There is one at a time. */
struct pl_clients_evaluator {
    int seat;                 /* -1: no evaluator has joined */
    uint64_t asked_ns;        /* when it last asked for a version, on the run's clock */
    bool due;                 /* it may have another version */
    bool reading;             /* it reads `held` */
    bool pending;             /* its numbers about `shown_at` have not come */
    bool any;                 /* some have */
    uint64_t version;         /* the newest that it has seen; PL_NOT_SHOWN: none that counts */
    struct pl_model_now held; /* what was shown; w is NULL: nothing */
    struct pl_point shown_at;
    uint64_t shown_ns, longest_ns; /* when; and how long an evaluation took at most */
    float *room;                   /* for a model that is not a version, in the port's memory */
};
#define PL_NOT_SHOWN UINT64_MAX

struct pl_clients {
    struct pl_about about;
    char text[PL_ABOUT_MAX];
    double loss, samples; /* of the results since the last score: the sum over known samples */

    struct pl_clients_evaluator evaluator;

    bool told_no_saver, told_lr, told_checkpoint, told_save, told_load;
    int n_unknown; /* requests that are not known and were reported, of all clients */
};

/* Fills in what the port tells clients and asks about them. */
int pl_clients_open(struct server *s, struct pl_port_conf *port);

void pl_clients_result(struct server *s, const struct pl_result *r); /* one that is usable */
void pl_clients_lr(struct server *s, int worker, double lr);         /* sent with a result */
void pl_clients_news(struct server *s, const struct pl_news *news);  /* WORD, ASK and DONE */

/* When an evaluation is due: the evaluator gets a version when it asks next, which it does several
 * times per second; without one, enters the workers' losses. */
void pl_clients_score(struct server *s, uint64_t now);

/* At the end, before workers leave: waits for the evaluator's numbers about the last version. */
void pl_clients_end(struct server *s);

#endif
