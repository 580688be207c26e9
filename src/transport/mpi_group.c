/* Several servers over MPI: the log that followers execute, and what all servers do together.
 *
 * Threads: the one that owns the port executes everything. */
#include <stdlib.h>
#include <string.h>

#include "sys/clock.h"
#include "sys/futex.h"
#include "transport/mpi_port.h"

#define LANE_ROOM 256 /* entries that are being sent to one follower, at most */
#define GROUP_GRACE_NS UINT64_C(60000000000) /* within which another server must answer */

#define GROUP_OVER_NS UINT64_C(3000000000) /* the same, if the run is to end */
#define GROUP_ASK_NS 100000000u            /* between two questions whether the run is to end */

struct pl_log_lane {
    struct pl_log_entry entry[LANE_ROOM];
    MPI_Request request[LANE_ROOM];
    int next;
};

/* --- opening ----------------------------------------------------------------------------- */

int pl_group_open(struct pl_port *p) {
    p->next = MPI_REQUEST_NULL;
    if (p->n_servers == 1) return PL_OK;
    if (pl_mpi_rank() > 0) {
        MPI_Recv_init(&p->entry, sizeof p->entry, MPI_BYTE, 0, WIRE_LOG, pl_mpi_comm(), &p->next);
        MPI_Start(&p->next);
        return PL_OK;
    }
    p->lane = calloc((size_t)p->n_servers, sizeof *p->lane);
    if (!p->lane) return PL_ENOMEM;
    for (int s = 0; s < p->n_servers; s++)
        for (int i = 0; i < LANE_ROOM; i++) p->lane[s].request[i] = MPI_REQUEST_NULL;
    return PL_OK;
}

/* --- waiting ------------------------------------------------------------------------------ */

struct pl_group_wait pl_group_wait_new(uint64_t grace_ns) {
    uint64_t now = pl_now_ns();
    return (struct pl_group_wait){.began = now, .asked = now, .end = now + grace_ns};
}

/* The end of a run, by the clock or by a signal, does not wait for a rank that is frozen. */
bool pl_group_wait_is_over(struct pl_port *p, struct pl_group_wait *w, uint64_t now) {
    if (p->over && now - w->asked >= GROUP_ASK_NS) {
        w->asked = now;
        if (p->over(p->over_ctx) && w->end > now + GROUP_OVER_NS) w->end = now + GROUP_OVER_NS;
    }
    return now >= w->end;
}

/* Waits for other servers; the calls also move vectors to and from workers. */
static bool group_wait(struct pl_port *p, int n, MPI_Request *request) {
    int other = pl_mpi_rank() == 0 ? 1 : 0; /* one of those that should have answered */
    struct pl_group_wait w = pl_group_wait_new(GROUP_GRACE_NS);
    for (uint64_t now = w.began; !pl_mpi_broken(); now = pl_now_ns()) {
        int done = 0;
        MPI_Testall(n, request, &done, MPI_STATUSES_IGNORE);
        if (done) return true;
        if (pl_group_wait_is_over(p, &w, now)) break;
        pl_wire_pause(&p->wake_server, atomic_load(&p->wake_server), now - w.began, GROUP_ASK_NS,
                      true);
    }
    if (!pl_mpi_broken()) pl_mpi_break(other);
    return false;
}

/* --- the log ----------------------------------------------------------------------------- */

static void group_log(struct pl_port *p, const struct pl_log_entry *e) {
    for (int s = 1; p->lane && s < p->n_servers; s++) {
        struct pl_log_lane *lane = &p->lane[s];
        int at = lane->next;
        lane->next = (at + 1) % LANE_ROOM;
        if (!group_wait(p, 1, &lane->request[at])) return;
        lane->entry[at] = *e;
        MPI_Isend(&lane->entry[at], sizeof *e, MPI_BYTE, s, WIRE_LOG, pl_mpi_comm(),
                  &lane->request[at]);
    }
}

void pl_group_log_own(struct pl_port *p, uint32_t kind, int worker, uint32_t flags) {
    if (p->lane)
        group_log(p, &(struct pl_log_entry){.kind = kind, .worker = worker, .flags = flags});
}

bool pl_group_close(struct pl_port *p) {
    bool ok = true;
    for (int s = 1; p->lane && s < p->n_servers; s++)
        ok = ok && group_wait(p, LANE_ROOM, p->lane[s].request);
    if (pl_mpi_rank() > 0) ok = group_wait(p, 3 * p->n_workers, p->request);
    if (!ok) return false;
    free(p->lane);
    p->lane = NULL;
    if (p->next == MPI_REQUEST_NULL) return true;
    MPI_Cancel(&p->next);
    MPI_Wait(&p->next, MPI_STATUS_IGNORE);
    MPI_Request_free(&p->next);
    return true;
}

bool pl_group_moves(struct pl_port *p) {
    int done = 0;
    MPI_Testall(3 * p->n_workers, p->request, &done, MPI_STATUSES_IGNORE);
    return !done;
}

static int group_settle(struct pl_port *p, int worker) {
    return group_wait(p, 1, &p->request[p->n_workers + worker]) ? PL_OK : PL_ERUN;
}

/* Does what rank 0's port did. */
static int group_follower_do(struct pl_port *p, const struct pl_log_entry *e) {
    if (e->worker < 0 || e->worker >= p->n_workers) return PL_ERUN;
    struct pl_mpi_worker *w = &p->worker[e->worker];
    switch (e->kind) {
    case ENTRY_SENT:
        w->sent = w->order;
        w->work = PL_MPI_BUSY;
        w->waiting = false;
        if (e->flags && !group_wait(p, 1, &p->request[2 * p->n_workers + e->worker]))
            return PL_ERUN;
        if (e->flags) pl_mpi_port_send_vector(p, e->worker, &w->sent, w->input.v);
        return PL_OK;
    case ENTRY_COMES:
        if (group_settle(p, e->worker)) return PL_ERUN;
        pl_mpi_port_receive_vector(p, e->worker, &w->sent);
        return PL_OK;
    case ENTRY_FREED: w->work = PL_MPI_IDLE; return PL_OK;
    case ENTRY_RESET: *w = (struct pl_mpi_worker){0}; return group_settle(p, e->worker);
    default: return PL_ERUN;
    }
}

static int group_next(struct pl_port *p, struct pl_log_entry *out) {
    uint64_t quiet = pl_now_ns(), now = quiet;
    for (; !pl_mpi_broken(); now = pl_now_ns()) {
        int received = 0;
        MPI_Test(&p->next, &received, MPI_STATUS_IGNORE);
        if (received) {
            struct pl_log_entry e = p->entry;
            quiet = now;
            MPI_Start(&p->next);
            if (e.kind >= PL_ENTRY_HOST) {
                *out = e;
                return PL_OK;
            }
            if (group_follower_do(p, &e)) return PL_ERUN;
            continue;
        }
        pl_wire_pause(&p->wake_server, 0, now - quiet, PL_FOREVER, pl_group_moves(p));
    }
    return PL_ERUN;
}

/* --- together ---------------------------------------------------------------------------- */

static int group_scatter(struct pl_port *p, const float *whole, float *mine) {
    MPI_Request request[PL_MAX_SERVERS];
    int n = 0;
    if (pl_mpi_rank() > 0)
        MPI_Irecv(mine, (int)p->dim, MPI_FLOAT, 0, WIRE_SLICE, pl_mpi_comm(), &request[n++]);
    for (int s = 1; pl_mpi_rank() == 0 && s < p->n_servers; s++)
        MPI_Isend(whole + p->range[s].from, (int)p->range[s].n, MPI_FLOAT, s, WIRE_SLICE,
                  pl_mpi_comm(), &request[n++]);
    if (pl_mpi_rank() == 0) memcpy(mine, whole + p->range[0].from, p->dim * sizeof *mine);
    return group_wait(p, n, request) ? PL_OK : PL_ERUN;
}

static int group_gather(struct pl_port *p, const float *mine, float *whole) {
    MPI_Request request[PL_MAX_SERVERS];
    int n = 0;
    if (pl_mpi_rank() > 0)
        MPI_Isend(mine, (int)p->dim, MPI_FLOAT, 0, WIRE_SLICE, pl_mpi_comm(), &request[n++]);
    for (int s = 1; pl_mpi_rank() == 0 && s < p->n_servers; s++)
        MPI_Irecv(whole + p->range[s].from, (int)p->range[s].n, MPI_FLOAT, s, WIRE_SLICE,
                  pl_mpi_comm(), &request[n++]);
    if (pl_mpi_rank() == 0) memcpy(whole + p->range[0].from, mine, p->dim * sizeof *mine);
    return group_wait(p, n, request) ? PL_OK : PL_ERUN;
}

/* To rank 0 and back, because rows are few. */
static int group_table(struct pl_port *p, double *table, const struct pl_range *range,
                       size_t width) {
    MPI_Request request[PL_MAX_SERVERS];
    const struct pl_range *last = &range[p->n_servers - 1], *own = &range[pl_mpi_rank()];
    int n = 0, all = (int)((last->from + last->n) * width);
    if (pl_mpi_rank() > 0) {
        MPI_Isend(table + own->from * width, (int)(own->n * width), MPI_DOUBLE, 0, WIRE_TABLE,
                  pl_mpi_comm(), &request[n++]);
        if (!group_wait(p, n, request)) return PL_ERUN;
        MPI_Irecv(table, all, MPI_DOUBLE, 0, WIRE_TABLE, pl_mpi_comm(), &request[0]);
        return group_wait(p, 1, request) ? PL_OK : PL_ERUN;
    }
    for (int s = 1; s < p->n_servers; s++)
        MPI_Irecv(table + range[s].from * width, (int)(range[s].n * width), MPI_DOUBLE, s,
                  WIRE_TABLE, pl_mpi_comm(), &request[n++]);
    if (!group_wait(p, n, request)) return PL_ERUN;
    n = 0;
    for (int s = 1; s < p->n_servers; s++)
        MPI_Isend(table, all, MPI_DOUBLE, s, WIRE_TABLE, pl_mpi_comm(), &request[n++]);
    return group_wait(p, n, request) ? PL_OK : PL_ERUN;
}

static int group_bytes(struct pl_port *p, void *bytes, size_t n) {
    MPI_Request request[PL_MAX_SERVERS];
    int n_requests = 0;
    if (pl_mpi_rank() > 0)
        MPI_Irecv(bytes, (int)n, MPI_BYTE, 0, WIRE_BYTES, pl_mpi_comm(), &request[n_requests++]);
    for (int s = 1; pl_mpi_rank() == 0 && s < p->n_servers; s++)
        MPI_Isend(bytes, (int)n, MPI_BYTE, s, WIRE_BYTES, pl_mpi_comm(), &request[n_requests++]);
    return group_wait(p, n_requests, request) ? PL_OK : PL_ERUN;
}

const struct pl_group_ops pl_mpi_group = {.log = group_log,
                                          .next = group_next,
                                          .settle = group_settle,
                                          .scatter = group_scatter,
                                          .gather = group_gather,
                                          .table = group_table,
                                          .bytes = group_bytes};
