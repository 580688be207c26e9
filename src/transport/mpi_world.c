#include <stdlib.h>
#include <string.h>

#include "sys/clock.h"
#include "sys/futex.h"
#include "transport/mpi.h"
#include "transport/mpi_wire.h"

/* MPI is one for the whole process, and so is this. */
static struct {
    bool begun;
    bool ours; /* to be ended by us: the embedding program had not begun it */
    bool broken;
    int rank, size;
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

bool pl_mpi_broken(void) {
    return world.broken;
}

void pl_mpi_break(int rank) {
    if (!world.error[0])
        pl_append(world.error, sizeof world.error, "rank %d does not answer any more", rank);
    world.broken = true;
}

/* --- beginning and end ------------------------------------------------------------------- */

static void world_error(MPI_Comm *comm, int *code, ...) {
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    int n = 0;
    (void)comm;
    MPI_Error_string(*code, text, &n);
    if (!world.error[0]) pl_append(world.error, sizeof world.error, "MPI reports: %s", text);
    world.broken = true;
}

static void world_end(void) {
    if (!world.ours) return;
    if (world.broken)
        MPI_Abort(world.comm, 1);
    else
        MPI_Finalize();
}

static int world_start(struct pl_why *why) {
    int begun = 0, ended = 0, level = MPI_THREAD_SINGLE;
    MPI_Errhandler handler;
    MPI_Finalized(&ended);
    MPI_Initialized(&begun);
    if (ended) return pl_fail(why, PL_ERUN, "MPI has been ended in this process");
    if (!begun) {
        if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level))
            return pl_fail(why, PL_ERUN, "MPI cannot be begun");
        world.ours = true;
        atexit(world_end);
    } else {
        MPI_Query_thread(&level);
    }
    if (level < MPI_THREAD_FUNNELED)
        return pl_fail(why, PL_ERUN,
                       "MPI was begun without threads; begin it with MPI_THREAD_FUNNELED");
    MPI_Comm_dup(MPI_COMM_WORLD, &world.comm);
    MPI_Comm_create_errhandler(world_error, &handler);
    MPI_Comm_set_errhandler(world.comm, handler);
    MPI_Errhandler_free(&handler);
    MPI_Comm_rank(world.comm, &world.rank);
    MPI_Comm_size(world.comm, &world.size);
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

/* --- meeting ----------------------------------------------------------------------------- */

/* False where time is up or MPI is broken. */
static bool world_wait(int n, MPI_Request *request, uint64_t wait_ns) {
    uint64_t began = pl_now_ns(), now = began;
    atomic_uint bell = 0;
    for (int done = 0; !world.broken; now = pl_now_ns()) {
        MPI_Testall(n, request, &done, MPI_STATUSES_IGNORE);
        if (done) return true;
        if (now - began >= wait_ns) return false;
        pl_wire_pause(&bell, 0, now - began, wait_ns - (now - began), false);
    }
    return false;
}

static int world_failed(struct pl_why *why) {
    return pl_fail(why, PL_ERUN, "%s; the job is aborted",
                   world.error[0] ? world.error : "some rank does not answer any more");
}

int pl_mpi_share(int rc, char **text, struct pl_why *why) {
    int head[2] = {rc, 0};
    MPI_Request request;
    if (world.broken) return world_failed(why);
    if (world.rank == 0 && !rc) head[1] = (int)strlen(*text) + 1;
    MPI_Ibcast(head, 2, MPI_INT, 0, world.comm, &request);
    if (!world_wait(1, &request, PL_FOREVER)) return world_failed(why);
    if (head[0]) return head[0];
    if (world.rank != 0 && !(*text = malloc((size_t)head[1]))) {
        world.broken = true; /* the others would wait for the rest of it */
        return pl_fail(why, PL_ENOMEM, "out of memory");
    }
    MPI_Ibcast(*text, head[1], MPI_CHAR, 0, world.comm, &request);
    if (!world_wait(1, &request, PL_FOREVER)) return world_failed(why);
    if (world.rank != 0) (*text)[head[1] - 1] = '\0';
    return PL_OK;
}

struct world_word {
    int rc;
    char text[PL_WHY_MAX];
};

/* Takes what all have to say. */
static int world_hear(struct world_word *word, MPI_Request *request, uint64_t wait_ns,
                      struct pl_why *why) {
    for (int r = 1; r < world.size; r++)
        MPI_Irecv(&word[r], sizeof *word, MPI_BYTE, r, WIRE_AGREE, world.comm, &request[r]);
    request[0] = MPI_REQUEST_NULL;
    if (!world_wait(world.size, request, wait_ns)) {
        char names[200] = "";
        int n = 0;
        for (int r = 1; r < world.size; r++) {
            int came = 0;
            MPI_Test(&request[r], &came, MPI_STATUS_IGNORE);
            if (came) continue;
            pl_append(names, sizeof names, "%s%d", n++ ? ", " : "", r);
        }
        if (world.error[0]) return world_failed(why);
        world.broken = true;
        return pl_fail(why, PL_ERUN, "rank %s did not answer for %g s; the job is aborted", names,
                       (double)wait_ns * 1e-9);
    }
    return PL_OK;
}

static int world_lead(int rc, uint64_t wait_ns, struct pl_why *why) {
    size_t n = (size_t)world.size;
    struct world_word *word = calloc(n, sizeof *word);
    MPI_Request *request = calloc(n, sizeof(*request));
    struct pl_why *late = rc ? NULL : why; /* what rank 0 has to say goes first */
    int heard = word && request ? world_hear(word, request, wait_ns, late)
                                : pl_fail(late, PL_ENOMEM, "out of memory");
    if (heard) {
        world.broken = true; /* and the job will be aborted */
        if (rc) heard = rc;
    } else {
        int failed = rc;
        for (int r = 1; r < world.size && !rc && !failed; r++) {
            if (!word[r].rc) continue;
            failed = word[r].rc;
            word[r].text[sizeof word[r].text - 1] = '\0';
            pl_fail(why, failed, "rank %d: %.480s", r,
                    word[r].text[0] ? word[r].text : pl_status_text(failed));
        }
        for (int r = 1; r < world.size; r++)
            MPI_Isend(&failed, 1, MPI_INT, r, WIRE_VERDICT, world.comm, &request[r]);
        heard = world_wait(world.size, request, wait_ns) ? failed : world_failed(why);
    }
    if (!world.broken) { /* otherwise something may still be received there */
        free(word);
        free(request);
    }
    return heard;
}

int pl_mpi_agree(int rc, uint64_t wait_ns, struct pl_why *why) {
    if (world.broken) return rc ? rc : world_failed(why);
    if (world.rank == 0) return world_lead(rc, wait_ns, why);
    struct world_word word = {.rc = rc};
    MPI_Request request[2];
    int verdict = PL_ERUN;
    if (why) memcpy(word.text, why->text, sizeof word.text);
    if (why) why->text[0] = '\0';
    MPI_Irecv(&verdict, 1, MPI_INT, 0, WIRE_VERDICT, world.comm, &request[1]);
    MPI_Isend(&word, sizeof word, MPI_BYTE, 0, WIRE_AGREE, world.comm, &request[0]);
    return world_wait(2, request, PL_FOREVER) ? verdict : world_failed(why);
}
