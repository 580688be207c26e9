/* Messages from workers to a port over MPI, and the news they become.
 *
 * Threads: the one that owns the port executes everything. */
#include <stdio.h>

#include "sys/clock.h"
#include "transport/greeting.h"
#include "transport/mpi_port.h"

void pl_mpi_port_shut_worker(struct pl_port *p, int worker) {
    struct pl_mpi_worker *w = &p->worker[worker];
    struct pl_mpi_mail *m = &p->mail[worker];
    if (w->presence >= PL_MPI_LEAVING) return;
    bool joined = w->presence == PL_MPI_JOINED && p->final_w;
    w->presence = PL_MPI_LEAVING;
    w->waiting = false;
    struct pl_wire last = {.kind = WIRE_SHUTDOWN, .task = m->chunks.n_total};
    if (joined) {
        last.flags = w->shares ? WIRE_SHARED : WIRE_WITH_VECTOR;
        last.in = w->shares ? pl_port_memory_number(&p->memory, p->final_w) : 0;
        memcpy(last.note, p->final_note, sizeof last.note);
        pl_mpi_memory_sync(&p->memory);
    }
    pl_mpi_port_send(p, worker, &last);
    if (last.flags & WIRE_WITH_VECTOR)
        MPI_Isend(p->final_w, (int)p->dim, MPI_FLOAT, pl_mpi_port_rank(p, worker), WIRE_FINAL,
                  pl_mpi_comm(), &m->final);
}

/* The worker has no order any more: one that waits is sent. */
static void news_freed(struct pl_port *p, int worker) {
    struct pl_mpi_worker *w = &p->worker[worker];
    w->work = PL_MPI_IDLE;
    w->phase = PL_PHASE_WAITING;
    pl_group_log_own(p, ENTRY_FREED, worker, 0);
    pl_mpi_port_send_order(p, worker);
}

/* Whether this client may join. */
static bool news_admits(struct pl_port *p, int worker, struct pl_newcomer *c, struct pl_why *why) {
    enum pl_admission admission = PL_MAY_SPEAK;
    c->fingerprint[sizeof c->fingerprint - 1] = c->token[sizeof c->token - 1] = '\0';
    c->job[sizeof c->job - 1] = '\0';
    if (!p->conf.about) {
        pl_fail(
            why, PL_ERUN,
            "its workers are other ranks of paceline train; start rank 0 with --model external");
        return false;
    }
    if (c->dim > 0 && c->dim != p->dim) {
        pl_fail(why, PL_ERUN, "the model of the run has %zu parameters, and that of the client %zu",
                p->dim, c->dim);
        return false;
    }
    if (p->conf.admit) admission = p->conf.admit(p->conf.admit_ctx, c, why);
    p->worker[worker].speaks = admission == PL_MAY_SPEAK;
    return admission != PL_REFUSED;
}

/* Answers a client; false: it cannot join. */
static bool news_answer(struct pl_port *p, int worker) {
    struct pl_mpi_mail *mail = &p->mail[worker];
    struct pl_newcomer client = mail->up.newcomer;
    struct pl_why why = {.text = ""};
    if (!news_admits(p, worker, &client, &why)) {
        snprintf(mail->down.text, sizeof mail->down.text, "%s", why.text);
        pl_mpi_port_send_tail(p, worker,
                              &(struct pl_wire){.kind = WIRE_REFUSED,
                                                .flags = !p->conf.about,
                                                .n_tail = sizeof mail->down.text});
        return false;
    }
    mail->down.welcome = (struct pl_welcome){.worker = worker,
                                             .n_workers = p->n_workers,
                                             .dim = p->dim,
                                             .speaks = p->worker[worker].speaks};
    snprintf(mail->down.welcome.about, sizeof mail->down.welcome.about, "%s", p->conf.about);
    pl_mpi_port_send_tail(p, worker,
                          &(struct pl_wire){.kind = WIRE_WELCOME,
                                            .dim = p->dim,
                                            .n_tail = sizeof mail->down.welcome});
    return true;
}

static void news_hello(struct pl_port *p, int worker, const struct pl_wire *m) {
    struct pl_mpi_worker *w = &p->worker[worker];
    bool waiting = w->waiting;
    struct pl_chunks_out *chunks = &p->mail[worker].chunks;
    chunks->n_total = 0;
    chunks->v = NULL;
    chunks->is_void = false;
    *w = (struct pl_mpi_worker){
        .presence = PL_MPI_JOINED, .phase = PL_PHASE_WAITING, .order = w->order, .input = w->input};
    const struct pl_range *last = &p->range[p->n_servers - 1];
    bool client = m->n_tail == sizeof(struct pl_newcomer);
    if (m->flags != WIRE_PROTOCOL || (client && !news_answer(p, worker)) ||
        (!client && (p->conf.about || m->dim != last->from + last->n))) {
        pl_mpi_port_shut_worker(p, worker);
        return;
    }
    pl_port_enqueue(&p->queue, PL_NEWS_JOINED, worker, NULL);
    w->waiting = waiting;
    if (p->memory.segment.fd >= 0 && pl_mpi_near(pl_mpi_port_rank(p, worker))) {
        const struct pl_wire offer = pl_mpi_memory_offer(&p->memory);
        w->presence = PL_MPI_OFFERED;
        pl_mpi_port_send(p, worker, &offer);
    }
    pl_mpi_port_send_order(p, worker);
}

static void news_mapped(struct pl_port *p, int worker, bool shares) {
    struct pl_mpi_worker *w = &p->worker[worker];
    if (w->presence != PL_MPI_OFFERED) return;
    w->presence = PL_MPI_JOINED;
    w->shares = shares;
    pl_mpi_port_send_order(p, worker);
}

/* When the worker took the order and when it answered, by this machine's clock: the time that it
 * did not compute was spent on the way, half of it in each direction. */
static struct pl_result news_judge(const struct pl_mpi_worker *w, const struct pl_wire *m) {
    uint64_t now = pl_now_ns(), all = now - w->sent_ns;
    uint64_t took = m->took_ns < all ? m->took_ns : all, way = (all - took) / 2;
    struct pl_result r = {.task = m->task,
                          .defect = (enum pl_defect)m->defect,
                          .samples = m->samples,
                          .loss = m->loss,
                          .sets_lr = w->speaks && m->flags & WIRE_SETS_LR,
                          .lr = m->lr,
                          .tells_waits = m->flags & WIRE_WAITS,
                          .pull_wait_ns = m->pull_wait_ns,
                          .wait_ns = m->wait_ns,
                          .pulled_ns = w->sent_ns + way,
                          .pushed_ns = w->sent_ns + way + took};
    if (m->defect > PL_NOT_COMPUTED || m->samples > INT32_MAX || m->task != w->sent.task)
        pl_port_spoil(&r);
    return r;
}

/* True if its vector is still to come: nothing else from this worker is read before that. */
static bool news_result(struct pl_port *p, int worker, const struct pl_wire *m) {
    struct pl_mpi_worker *w = &p->worker[worker];
    if (w->work == PL_MPI_IDLE) return false;
    w->result = news_judge(w, m);
    if (m->n_tail > 0 && m->n_tail <= sizeof p->mail->up.absent) {
        w->result.absent = p->mail[worker].up.absent;
        w->result.n_absent = (uint32_t)(m->n_tail / sizeof *w->result.absent);
        w->held = true;
    }
    if (m->flags & WIRE_WITH_VECTOR) {
        pl_group_log_own(p, ENTRY_COMES, worker, 0);
        pl_mpi_port_receive_vector(p, worker, &w->sent);
        return true;
    }
    if (m->flags & WIRE_SHARED) pl_mpi_memory_sync(&p->memory);
    pl_port_enqueue(&p->queue, PL_NEWS_RESULT, worker, &w->result);
    news_freed(p, worker);
    return false;
}

static void news_base(struct pl_port *p, int worker, uint64_t task) {
    const struct pl_mpi_worker *w = &p->worker[worker];
    if (w->work == PL_MPI_IDLE || task != w->sent.task) return;
    struct pl_result r = {.task = task, .is_base = true};
    pl_port_enqueue(&p->queue, PL_NEWS_BASE, worker, &r);
}

/* An order that the worker let go and that was not cancelled is sent again; the worker has its
 * vector. */
static void news_let_go(struct pl_port *p, int worker, uint64_t task) {
    struct pl_mpi_worker *w = &p->worker[worker];
    if (w->work == PL_MPI_IDLE || task != w->sent.task) return;
    if (w->order.task == w->sent.task) w->waiting = true;
    news_freed(p, worker);
}

static void news_bye(struct pl_port *p, int worker) {
    struct pl_mpi_worker *w = &p->worker[worker];
    bool here = pl_mpi_is_here(w);
    pl_mpi_port_shut_worker(p, worker);
    *w = (struct pl_mpi_worker){.presence = PL_MPI_GONE};
    pl_group_log_own(p, ENTRY_RESET, worker, 0);
    if (here) pl_port_enqueue(&p->queue, PL_NEWS_GONE, worker, NULL);
}

static void news_word(struct pl_port *p, int worker, uint64_t n) {
    struct pl_mpi_worker *w = &p->worker[worker];
    char *word = p->mail[worker].up.word;
    if (!w->speaks || n >= PL_WORD_MAX || !pl_greeting_printable(word, n)) return;
    word[n] = '\0';
    pl_port_enqueue(&p->queue, PL_NEWS_WORD, worker, NULL);
    w->held = true;
}

/* Reads the next message, unless the tail of this one is not to be overwritten. */
static void news_next(struct pl_port *p, int worker) {
    if (!p->worker[worker].held) MPI_Start(&p->request[worker]);
}

void pl_mpi_port_release(struct pl_port *p, int worker) {
    struct pl_mpi_worker *w = &p->worker[worker];
    if (!w->held || p->request[p->n_workers + worker] != MPI_REQUEST_NULL) return;
    w->held = false;
    news_next(p, worker);
}

/* A message, with its tail. */
static void news_take(struct pl_port *p, int worker) {
    const struct pl_wire m = p->mail[worker].in;
    switch (m.kind) {
    case WIRE_HELLO: news_hello(p, worker, &m); break;
    case WIRE_RESULT:
        if (news_result(p, worker, &m)) return;
        break;
    case WIRE_BASE: news_base(p, worker, m.task); break;
    case WIRE_FREE: news_let_go(p, worker, m.task); break;
    case WIRE_PHASE:
        if (p->worker[worker].work != PL_MPI_IDLE && m.flags <= PL_PHASE_COMPUTING)
            p->worker[worker].phase = (enum pl_phase)m.flags;
        break;
    case WIRE_MAPPED: news_mapped(p, worker, m.flags == 1); break;
    case WIRE_BYE: news_bye(p, worker); break;
    case WIRE_WORD: news_word(p, worker, m.n_tail); break;
    default: break;
    }
    news_next(p, worker);
}

static void news_read(struct pl_port *p, int worker) {
    const struct pl_wire *m = &p->mail[worker].in;
    p->worker[worker].tail_comes = m->n_tail > 0;
    if (m->n_tail > sizeof p->mail->up)
        pl_mpi_break(pl_mpi_port_rank(p, worker));
    else if (m->n_tail > 0)
        pl_mpi_port_receive_tail(p, worker, m);
    else
        news_take(p, worker);
}

/* A vector is complete, after the small message about it. The way it took does not count as the
 * worker's time. */
static void news_received(struct pl_port *p, int worker) {
    struct pl_mpi_worker *w = &p->worker[worker];
    p->n_moving--;
    if (w->tail_comes) {
        w->tail_comes = false;
        news_take(p, worker);
        return;
    }
    pl_port_enqueue(&p->queue, PL_NEWS_RESULT, worker, &p->worker[worker].result);
    news_freed(p, worker);
    news_next(p, worker);
}

bool pl_mpi_port_poll(struct pl_port *p) {
    int n = 0;
    MPI_Testsome(3 * p->n_workers, p->request, &n, p->which, MPI_STATUSES_IGNORE);
    pl_exchange_answer(&p->exchange);
    for (int w = 0; w < p->n_workers && p->n_moving > 0; w++)
        if (pl_chunks_sent(&p->mail[w].chunks)) p->n_moving--;
    if (n == MPI_UNDEFINED || pl_mpi_broken()) return false;
    /* what was sent first: a result may free its worker for the next order */
    for (int i = 0; i < n; i++)
        if (p->which[i] / p->n_workers == 2) p->n_moving--;
    for (int i = 0; i < n; i++) {
        int worker = p->which[i] % p->n_workers;
        switch (p->which[i] / p->n_workers) {
        case 0: news_read(p, worker); break;
        case 1: news_received(p, worker); break;
        default: break;
        }
    }
    return n > 0;
}

/* MPI itself has failed: all workers are gone. */
static void news_lost(struct pl_port *p) {
    for (int w = 0; w < p->n_workers; w++) {
        if (!pl_mpi_is_here(&p->worker[w])) continue;
        p->worker[w] = (struct pl_mpi_worker){.presence = PL_MPI_GONE};
        pl_port_enqueue(&p->queue, PL_NEWS_GONE, w, NULL);
    }
}

void pl_mpi_port_news(struct pl_port *p, uint64_t wait_ns, struct pl_news *out) {
    uint64_t began = pl_now_ns(), quiet = began, now = began;
    *out = (struct pl_news){.kind = PL_NEWS_NONE, .worker = -1};
    if (p->shown >= 0) pl_mpi_port_release(p, p->shown);
    p->shown = -1;
    for (;; now = pl_now_ns()) {
        unsigned seen = atomic_load(&p->wake_server);
        if (atomic_exchange(&p->woken, false)) return;
        if (pl_mpi_port_poll(p)) quiet = now;
        if (pl_mpi_broken()) news_lost(p);
        if (pl_port_dequeue(&p->queue, out)) break;
        if (now - began >= wait_ns) return;
        pl_wire_pause(&p->wake_server, seen, now - quiet, wait_ns - (now - began), p->n_moving > 0);
    }
    if (out->kind == PL_NEWS_WORD) out->word = p->mail[out->worker].up.word;
    if (out->word || out->result.n_absent > 0) p->shown = out->worker;
}
