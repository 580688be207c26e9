/* MPI in this process: initializing and finalizing it, how ranks wait, and agreements between all
 * of them.
 *
 * Threads: the one that serves or works executes everything; world_end() runs when the process
 * exits. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/seconds.h"
#include "sys/clock.h"
#include "sys/futex.h"
#include "sys/thread.h"
#include "transport/mpi.h"
#include "transport/mpi_wire.h"

#define PAUSE_YIELD 100000u    /* ns of yielding before the first sleep */
#define PAUSE_MOVING 10000000u /* the same while a vector is moving */
#define PAUSE_LEAST 50000u
#define PAUSE_MOST 2000000u
#define WORLD_ABORT_NS UINT64_C(3000000000) /* for rank 0 to abort the job */

/* There is one MPI per process, so this is global. */
static struct {
    bool begun;
    bool ours; /* we finalize it: the embedding program had not initialized it */
    bool broken;
    pid_t pid;
    int rank, size;
    bool *near; /* [size] ranks on this host; NULL: not known */
    MPI_Comm comm;
    char error[PL_WHY_MAX]; /* what MPI reported first */
} world;

MPI_Comm pl_mpi_comm(void) {
    return world.comm;
}

int pl_mpi_rank(void) {
    return world.rank;
}

int pl_mpi_size(void) {
    return world.size;
}

bool pl_mpi_near(int rank) {
    return world.near && rank >= 0 && rank < world.size && world.near[rank];
}

void pl_wire_pause(atomic_uint *word, unsigned seen, uint64_t waited_ns, uint64_t left_ns,
                   bool moving) {
    if (waited_ns < (moving ? PAUSE_MOVING : PAUSE_YIELD)) {
        pl_yield();
        return;
    }
    uint64_t ns = waited_ns / 32;
    if (ns < PAUSE_LEAST || moving) ns = PAUSE_LEAST;
    if (ns > PAUSE_MOST) ns = PAUSE_MOST;
    pl_futex_wait(word, seen, ns < left_ns ? ns : left_ns);
}

bool pl_mpi_broken(void) {
    return world.broken;
}

void pl_mpi_break(int rank) {
    if (!world.error[0])
        pl_append(world.error, sizeof world.error, "rank %d does not answer", rank);
    world.broken = true;
}

/* --- initializing and finalizing --------------------------------------------------------- */

static void world_error(MPI_Comm *comm, int *code, ...) {
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    int n = 0;
    (void)comm;
    MPI_Error_string(*code, text, &n);
    if (!world.error[0]) pl_append(world.error, sizeof world.error, "MPI reports: %s", text);
    world.broken = true;
}

/* Rank 0 aborts first, which ends the others while they wait: a launcher that is told twice at the
 * same time may hang. */
static void world_end(void) {
    free(world.near);
    world.near = NULL;
    if (!world.ours || world.pid != getpid()) return; /* a forked child is no rank */
    if (!world.broken) {
        MPI_Finalize();
        return;
    }
    if (world.rank > 0) pl_sleep_ns(WORLD_ABORT_NS);
    MPI_Abort(world.comm, 1);
}

/* Finds the ranks of this host. All ranks call it. */
static void world_find_near(void) {
    MPI_Comm host;
    MPI_Group all, here;
    int n = 0;
    MPI_Comm_split_type(world.comm, MPI_COMM_TYPE_SHARED, world.rank, MPI_INFO_NULL, &host);
    MPI_Comm_group(world.comm, &all);
    MPI_Comm_group(host, &here);
    MPI_Group_size(here, &n);
    world.near = calloc((size_t)world.size, sizeof *world.near);
    for (int i = 0; world.near && i < n; i++) {
        int rank = MPI_UNDEFINED;
        MPI_Group_translate_ranks(here, 1, &i, all, &rank);
        if (rank >= 0 && rank < world.size) world.near[rank] = true;
    }
    MPI_Group_free(&here);
    MPI_Group_free(&all);
    MPI_Comm_free(&host);
}

static int world_start(struct pl_why *why) {
    int begun = 0, ended = 0, level = MPI_THREAD_SINGLE;
    MPI_Errhandler handler;
    MPI_Finalized(&ended);
    MPI_Initialized(&begun);
    if (ended) return pl_fail(why, PL_ERUN, "MPI was already finalized in this process");
    if (!begun) {
        if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level))
            return pl_fail(why, PL_ERUN, "MPI cannot be initialized");
        world.ours = true;
        world.pid = getpid();
        atexit(world_end);
    } else {
        MPI_Query_thread(&level);
    }
    if (level < MPI_THREAD_FUNNELED)
        return pl_fail(why, PL_ERUN,
                       "MPI was initialized without thread support; use MPI_THREAD_SERIALIZED");
    MPI_Comm_dup(MPI_COMM_WORLD, &world.comm);
    MPI_Comm_create_errhandler(world_error, &handler);
    MPI_Comm_set_errhandler(world.comm, handler);
    MPI_Errhandler_free(&handler);
    MPI_Comm_rank(world.comm, &world.rank);
    MPI_Comm_size(world.comm, &world.size);
    world_find_near();
    world.begun = true;
    return PL_OK;
}

int pl_mpi_begin(int *rank, int *size, struct pl_why *why) {
    if (!world.begun) {
        int rc = world_start(why);
        if (rc) return rc;
    }
    *rank = world.rank;
    *size = world.size;
    return PL_OK;
}

/* --- agreements -------------------------------------------------------------------------- */

static const struct pl_patience world_forever = {.wait_ns = PL_FOREVER};

/* False if patience ends or MPI is broken. */
static bool world_wait(int n, MPI_Request *request, const struct pl_patience *p) {
    uint64_t began = pl_now_ns(), now = began;
    atomic_uint never = 0; /* nothing wakes it */
    for (int done = 0; !world.broken; now = pl_now_ns()) {
        MPI_Testall(n, request, &done, MPI_STATUSES_IGNORE);
        if (done) return true;
        if (now - began >= p->wait_ns || (p->ended && p->ended(p->ctx))) return false;
        pl_wire_pause(&never, 0, now - began, p->wait_ns - (now - began), false);
    }
    return false;
}

static int world_failed(struct pl_why *why) {
    return pl_fail(why, PL_ERUN, "%s; the job is aborted",
                   world.error[0] ? world.error : "a rank does not answer");
}

int pl_mpi_share(int rc, char **text, struct pl_why *why) {
    int head[2] = {rc, 0};
    MPI_Request request;
    if (world.broken) return world_failed(why);
    if (world.rank == 0 && !rc) head[1] = (int)strlen(*text) + 1;
    MPI_Ibcast(head, 2, MPI_INT, 0, world.comm, &request);
    if (!world_wait(1, &request, &world_forever)) return world_failed(why);
    if (head[0]) return head[0];
    if (world.rank != 0 && !(*text = malloc((size_t)head[1]))) {
        world.broken = true; /* the others would wait for this rank */
        return pl_fail(why, PL_ENOMEM, "out of memory");
    }
    MPI_Ibcast(*text, head[1], MPI_CHAR, 0, world.comm, &request);
    if (!world_wait(1, &request, &world_forever)) return world_failed(why);
    if (world.rank != 0) (*text)[head[1] - 1] = '\0';
    return PL_OK;
}

struct world_report {
    int rc;
    char text[PL_WHY_MAX];
};

/* Receives the reports of all other ranks. */
static int world_collect(struct world_report *report, MPI_Request *request,
                         const struct pl_patience *patience, struct pl_why *why) {
    uint64_t began = pl_now_ns();
    for (int r = 1; r < world.size; r++)
        MPI_Irecv(&report[r], sizeof *report, MPI_BYTE, r, WIRE_AGREE, world.comm, &request[r]);
    request[0] = MPI_REQUEST_NULL;
    if (!world_wait(world.size, request, patience)) {
        char names[200] = "";
        int n = 0;
        for (int r = 1; r < world.size; r++) {
            int received = 0;
            MPI_Test(&request[r], &received, MPI_STATUS_IGNORE);
            if (received) continue;
            pl_append(names, sizeof names, "%s%d", n++ ? ", " : "", r);
        }
        if (world.error[0]) return world_failed(why);
        world.broken = true;
        if (patience->ended && patience->ended(patience->ctx))
            return pl_fail(why, PL_ERUN,
                           "rank %s did not answer before the run was ended; the job is aborted",
                           names);
        return pl_fail(why, PL_ERUN, "rank %s did not answer for %.3g s; the job is aborted", names,
                       pl_seconds(pl_now_ns() - began));
    }
    return PL_OK;
}

static int world_lead(int rc, const struct pl_patience *patience, struct pl_why *why) {
    size_t n = (size_t)world.size;
    struct world_report *report = calloc(n, sizeof *report);
    MPI_Request *request = calloc(n, sizeof(*request));
    struct pl_why *late = rc ? NULL : why; /* rank 0's own message goes first */
    int result = report && request ? world_collect(report, request, patience, late)
                                   : pl_fail(late, PL_ENOMEM, "out of memory");
    if (result) {
        world.broken = true; /* the job will be aborted */
        if (rc) result = rc;
    } else {
        static int failed; /* static: if time is up, it may still be sent when this has returned */
        const struct pl_patience told = {.wait_ns = patience->wait_ns};
        failed = rc;
        for (int r = 1; r < world.size && !rc && !failed; r++) {
            if (!report[r].rc) continue;
            failed = report[r].rc;
            report[r].text[sizeof report[r].text - 1] = '\0';
            pl_fail(why, failed, "rank %d: %.480s", r,
                    report[r].text[0] ? report[r].text : pl_status_text(failed));
        }
        for (int r = 1; r < world.size; r++)
            MPI_Isend(&failed, 1, MPI_INT, r, WIRE_VERDICT, world.comm, &request[r]);
        world.broken = !world_wait(world.size, request, &told);
        result = world.broken ? world_failed(why) : failed;
    }
    if (!world.broken) { /* otherwise something may still be received there */
        free(report);
        free(request);
    }
    return result;
}

int pl_mpi_agree(int rc, const struct pl_patience *patience, struct pl_why *why) {
    if (world.broken) return rc ? rc : world_failed(why);
    if (world.rank == 0) return world_lead(rc, patience, why);
    struct world_report report = {.rc = rc};
    MPI_Request request[2];
    int verdict = PL_ERUN;
    if (why) memcpy(report.text, why->text, sizeof report.text);
    if (why) why->text[0] = '\0';
    MPI_Irecv(&verdict, 1, MPI_INT, 0, WIRE_VERDICT, world.comm, &request[1]);
    MPI_Isend(&report, sizeof report, MPI_BYTE, 0, WIRE_AGREE, world.comm, &request[0]);
    return world_wait(2, request, &world_forever) ? verdict : world_failed(why);
}
