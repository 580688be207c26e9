/* The end of a client over MPI: a rank that is another program, which loads this module.
 *
 * It takes part in what all ranks do together (api/ranks.c), as far as that concerns it: it gets
 * rank 0's options, which it does not need, and all ranks begin, or none does.
 *
 * Threads: the client's, one at a time. */
#include <stdlib.h>
#include <string.h>

#include "sys/clock.h"
#include "sys/futex.h"
#include "transport/greeting.h"
#include "transport/mpi.h"
#include "transport/mpi_link.h"

/* Whether this rank can be what the caller wants. */
static int client_check(enum pl_client_kind kind, struct pl_why *why) {
    int level = MPI_THREAD_SINGLE;
    MPI_Query_thread(&level);
    if (level < MPI_THREAD_SERIALIZED)
        return pl_fail(why, PL_ERUN,
                       "MPI was initialized for one thread; a client needs MPI_THREAD_SERIALIZED");
    if (kind == PL_CLIENT_EVALUATOR)
        return pl_fail(why, PL_EUSAGE, "over MPI every rank is a worker, and none an evaluator");
    return PL_OK;
}

/* What ranks do together before the run begins: one that cannot take part tells the others. */
static int client_begin(enum pl_client_kind kind, struct pl_why *why) {
    static bool begun; /* there is one run for each process, as there is one MPI */
    char *text = NULL;
    int rank, size, rc = pl_mpi_begin(&rank, &size, why);
    if (rc) return rc;
    if (begun) return pl_fail(why, PL_EUSAGE, "over MPI a process has one seat, in one run");
    begun = true;
    if (rank == 0) {
        pl_mpi_share(PL_EUSAGE, &text, why);
        return pl_fail(why, PL_EUSAGE,
                       "rank 0 of an MPI job is the server; start it with mpirun -n 1 paceline "
                       "train --model external … : -n %d and this program",
                       size > 1 ? size - 1 : 1);
    }
    rc = pl_mpi_share(PL_OK, &text, why);
    free(text);
    if (rc) return pl_fail(why, PL_ERUN, "the run did not begin; rank 0 says why");
    int own = client_check(kind, why);
    struct pl_why told = *why;
    rc = pl_mpi_agree(own, NULL, &told);
    if (own || !rc) return own;
    return pl_fail(why, PL_ERUN, "the run did not begin; rank 0 says why");
}

static int client_connect(const struct pl_client_link_conf *conf, struct pl_link **out,
                          struct pl_welcome *welcome, struct pl_why *why) {
    atomic_uint never = 0;
    struct pl_link *l = NULL;
    int rc = client_begin(conf->client.kind, why);
    if (!rc) rc = pl_mpi_hello(&conf->client, &l, why);
    if (rc) return rc;
    uint64_t began = pl_now_ns(), now = began;
    for (; !pl_mpi_answered(l); now = pl_now_ns())
        pl_wire_pause(&never, 0, now - began, PL_FOREVER, false);
    if (l->answered == WIRE_WELCOME && !pl_mpi_broken()) { /* though the run may be over by now */
        *welcome = l->answer->welcome;
        *out = l;
        return PL_OK;
    }
    rc = l->answered == WIRE_REFUSED
             ? pl_fail(why, PL_ERUN, "the server, rank 0, refuses: %.400s", l->answer->text)
             : pl_fail(why, PL_ERUN, "the server, rank 0, has shut down before the run began");
    struct pl_why told = *why;
    bool agrees = l->agrees;
    pl_mpi_detach(l);
    if (agrees) pl_mpi_agree(rc, NULL, &told); /* otherwise rank 0 aborts the job */
    return rc;
}

/* The server waits for the last message of all ranks: this one does not wait for its program. */
static int client_pull(struct pl_link *l, uint64_t wait_ns, struct pl_order *out) {
    int rc = l->left ? PL_ECANCELLED : pl_mpi_pull_until(l, wait_ns, out);
    if (rc == PL_ECANCELLED) pl_mpi_leave(l);
    return rc;
}

static bool client_lost(const struct pl_link *l) {
    (void)l;
    return pl_mpi_broken();
}

static bool client_farewell(struct pl_link *l, char out[PL_WORD_MAX], bool *again) {
    (void)l, (void)out, (void)again;
    return false; /* ranks stay */
}

static int client_say(struct pl_link *l, const char *word, uint64_t wait_ns) {
    size_t n = strlen(word);
    (void)wait_ns; /* it is sent at once */
    if (!pl_greeting_printable(word, n)) return PL_EUSAGE;
    if (l->shutdown || l->left || pl_mpi_broken()) return PL_ECANCELLED;
    pl_mpi_say(l, &(struct pl_wire){.kind = WIRE_WORD}, word, n);
    return PL_OK;
}

static int client_newest(struct pl_link *l, uint64_t wait_ns, float *out,
                         uint64_t note[PL_NOTE_WORDS]) {
    (void)l, (void)wait_ns, (void)out, (void)note;
    return PL_EUSAGE; /* there are no evaluators */
}

static const float *client_final(const struct pl_link *l, uint64_t note[PL_NOTE_WORDS]) {
    if (!l->left || pl_mpi_broken()) return NULL;
    if (l->last.flags & WIRE_SHARED) pl_mpi_memory_sync(&l->memory);
    for (int i = 0; i < PL_NOTE_WORDS; i++) note[i] = l->last.note[i];
    return l->last.flags & WIRE_SHARED ? pl_mpi_memory_at(&l->memory, l->last.in) : l->final_w;
}

const struct pl_join_ops pl_mpi_join = {client_connect, client_pull,   client_lost, client_farewell,
                                        client_say,     client_newest, NULL,        client_final};
