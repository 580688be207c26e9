#include "core/book.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BOOK_SPARE 2 /* terms that a take may add to a row */

struct book_snapshot {
    int n_refs;
    int writer; /* worker, or -1 */
    int next;   /* that is free; -1: none */
};

struct book_worker {
    bool here, busy;
    bool makes;        /* its base is on its way: only its own row refers to it */
    int base, brought; /* of its task; -1: none */
    double weight, inbox_weight;
    struct pl_row row, inbox;
    struct pl_row of; /* what its base is made of, while it computes */
};

struct pl_book {
    int n_workers, n_here;
    struct book_worker *worker;
    struct book_snapshot *snapshot;
    int n_snapshots, room, unused; /* unused: first of those that are free; -1: none */
    struct pl_row rest;
    void (*freed)(void *ctx, int snapshot);
    void *ctx;
};

/* --- snapshots --------------------------------------------------------------------------- */

void pl_book_on_free(struct pl_book *b, void (*freed)(void *ctx, int snapshot), void *ctx) {
    b->freed = freed;
    b->ctx = ctx;
}

void pl_book_hold(struct pl_book *b, int snapshot) {
    b->snapshot[snapshot].n_refs++;
}

void pl_book_release(struct pl_book *b, int snapshot) {
    if (snapshot < 0 || --b->snapshot[snapshot].n_refs > 0) return;
    b->snapshot[snapshot].next = b->unused;
    b->unused = snapshot;
    if (b->freed) b->freed(b->ctx, snapshot);
}

/* A number for what `writer` will write, held once; -1: out of memory. */
static int book_snapshot(struct pl_book *b, int writer) {
    int s = b->unused;
    if (s < 0) {
        if (b->n_snapshots == b->room) {
            int room = b->room ? 2 * b->room : 64;
            struct book_snapshot *grown = realloc(b->snapshot, (size_t)room * sizeof *grown);
            if (!grown) return -1;
            b->snapshot = grown;
            b->room = room;
        }
        s = b->n_snapshots++;
    } else {
        b->unused = b->snapshot[s].next;
    }
    b->snapshot[s] = (struct book_snapshot){1, writer, -1};
    return s;
}

/* --- rows -------------------------------------------------------------------------------- */

static void row_hold(struct pl_book *b, const struct pl_row *r) {
    for (int i = 0; i < r->n; i++) pl_book_hold(b, r->term[i].snapshot);
}

static void row_let_go(struct pl_book *b, struct pl_row *r) {
    for (int i = 0; i < r->n; i++) pl_book_release(b, r->term[i].snapshot);
    r->n = 0;
}

/* Adds c times a snapshot; terms that cancel are left out. False where there is no room. */
static bool row_add(struct pl_row *r, int snapshot, double c) {
    for (int i = 0; i < r->n; i++) {
        if (r->term[i].snapshot != snapshot) continue;
        r->term[i].c += c;
        if (r->term[i].c == 0) {
            memmove(&r->term[i], &r->term[i + 1], (size_t)(r->n - i - 1) * sizeof *r->term);
            r->n--;
        }
        return true;
    }
    if (c == 0) return true;
    if (r->n == PL_ROW_TERMS) return false;
    r->term[r->n++] = (struct pl_term){snapshot, c};
    return true;
}

static bool row_add_row(struct pl_row *r, const struct pl_row *what, double c) {
    bool fits = true;
    for (int i = 0; i < what->n; i++)
        fits = row_add(r, what->term[i].snapshot, c * what->term[i].c) && fits;
    return fits;
}

/* The new row takes the place of the old one; those that both have stay throughout. */
static void row_set(struct pl_book *b, struct pl_row *r, const struct pl_row *to) {
    struct pl_row before = *r;
    row_hold(b, to);
    r->n = to->n;
    memcpy(r->term, to->term, (size_t)to->n * sizeof *to->term);
    row_let_go(b, &before);
}

/* A worker's row as others see it: in snapshots that are whole. */
static void book_see(const struct book_worker *w, struct pl_row *out) {
    out->n = 0;
    for (int i = 0; i < w->row.n; i++) {
        if (w->busy && w->makes && w->row.term[i].snapshot == w->base)
            row_add_row(out, &w->of, w->row.term[i].c);
        else
            row_add(out, w->row.term[i].snapshot, w->row.term[i].c);
    }
}

/* How many different snapshots there are in r[n], counted up to one more than fit. */
static int rows_span(const struct pl_row *const *r, int n) {
    struct pl_row all = {.n = 0};
    for (int k = 0; k < n; k++)
        for (int i = 0; i < r[k]->n; i++)
            if (!row_add(&all, r[k]->term[i].snapshot, 1)) return PL_ROW_TERMS + 1;
    return all.n;
}

/* --- making ------------------------------------------------------------------------------ */

int pl_book_new(int n_workers, struct pl_book **out) {
    struct pl_book *b = calloc(1, sizeof *b);
    if (!b) return PL_ENOMEM;
    b->n_workers = n_workers;
    b->unused = -1;
    b->worker = calloc((size_t)n_workers, sizeof *b->worker);
    int first = b->worker ? book_snapshot(b, -1) : -1;
    if (first != PL_FIRST_SNAPSHOT) {
        pl_book_free(b);
        return PL_ENOMEM;
    }
    for (int i = 0; i < n_workers; i++) b->worker[i].base = b->worker[i].brought = -1;
    row_add(&b->rest, first, 1);
    *out = b;
    return PL_OK;
}

void pl_book_free(struct pl_book *b) {
    if (!b) return;
    free(b->worker);
    free(b->snapshot);
    free(b);
}

/* --- what control tells ------------------------------------------------------------------ */

void pl_book_join(struct pl_book *b, int worker) {
    struct book_worker *w = &b->worker[worker];
    w->here = true;
    b->n_here++;
    w->weight = 1;
    w->inbox_weight = 0;
    row_set(b, &w->row, &b->rest);
}

/* The task is over; its base and what it brought belong to nobody but rows. */
static void book_end_task(struct pl_book *b, struct book_worker *w) {
    row_let_go(b, &w->of);
    pl_book_release(b, w->base);
    pl_book_release(b, w->brought);
    w->base = w->brought = -1;
    w->busy = w->makes = false;
}

/* What the worker wrote never was: its row is again the sum that its base was to be made of. */
void pl_book_reject(struct pl_book *b, int worker) {
    struct book_worker *w = &b->worker[worker];
    struct pl_row seen;
    if (!w->busy) return;
    book_see(w, &seen);
    row_set(b, &w->row, &seen);
    book_end_task(b, w);
}

void pl_book_leave(struct pl_book *b, int worker) {
    struct book_worker *w = &b->worker[worker];
    if (!w->here) return;
    pl_book_reject(b, worker);
    if (--b->n_here == 0) row_set(b, &b->rest, &w->row);
    row_let_go(b, &w->row);
    row_let_go(b, &w->inbox);
    book_end_task(b, w); /* it may have arrived and not have been decided on */
    w->here = false;
    w->weight = w->inbox_weight = 0;
}

int pl_book_start(struct pl_book *b, int worker) {
    struct book_worker *w = &b->worker[worker];
    bool makes = w->row.n != 1 || w->row.term[0].c != 1;
    book_end_task(b, w);
    int base = makes ? book_snapshot(b, worker) : w->row.term[0].snapshot;
    if (base < 0) return PL_ENOMEM;
    if (!makes) pl_book_hold(b, base);
    int brought = book_snapshot(b, worker);
    if (brought < 0) {
        pl_book_release(b, base);
        return PL_ENOMEM;
    }
    w->base = base;
    w->brought = brought;
    w->busy = true;
    w->makes = makes;
    row_set(b, &w->of, &w->row);
    struct pl_row row = {.n = 1, .term = {{base, 1}}};
    row_set(b, &w->row, &row);
    return PL_OK;
}

void pl_book_made(struct pl_book *b, int worker) {
    struct book_worker *w = &b->worker[worker];
    if (!w->makes) return;
    w->makes = false;
    row_let_go(b, &w->of); /* it has read them */
}

void pl_book_arrive(struct pl_book *b, int worker) {
    struct book_worker *w = &b->worker[worker];
    w->busy = w->makes = false;
    row_let_go(b, &w->of);
}

void pl_book_take(struct pl_book *b, int worker, double factor) {
    struct book_worker *w = &b->worker[worker];
    struct pl_row row = w->row;
    row_add(&row, w->base, -factor);
    row_add(&row, w->brought, factor); /* there is room: see BOOK_SPARE */
    row_set(b, &w->row, &row);
    book_end_task(b, w);
}

void pl_book_drop(struct pl_book *b, int worker) {
    if (b) book_end_task(b, &b->worker[worker]);
}

/* --- exchanges --------------------------------------------------------------------------- */

static bool book_fits(const struct pl_row *row, const struct book_worker *w) {
    const struct pl_row *const both[] = {row, &w->inbox};
    return rows_span(both, 2) + BOOK_SPARE <= PL_ROW_TERMS;
}

/* a row_i + b row_j as i has it, and whether i can have it. */
static bool book_blend(const struct book_worker *i, const struct book_worker *j, double a, double b,
                       struct pl_row *out) {
    struct pl_row seen, other, whole;
    book_see(j, &other);
    book_see(i, &seen);
    out->n = whole.n = 0;
    bool fits = row_add_row(out, &i->row, a) && row_add_row(out, &other, b);
    fits = row_add_row(&whole, &seen, a) && row_add_row(&whole, &other, b) && fits;
    return fits && out->n > 0 && book_fits(&whole, i) && book_fits(out, i);
}

static const char *book_do_give(struct pl_book *b, struct book_worker *from, struct book_worker *to,
                                double share) {
    struct pl_row seen, inbox = {.n = 0}, own;
    double sent = share * from->weight, sum = to->inbox_weight + sent;
    if (!(share > 0 && share < 1) || !(sent > 0))
        return "it gave away a share that is not between nothing and all";
    book_see(from, &seen);
    book_see(to, &own);
    const struct pl_row *const all[] = {&own, &to->row, &to->inbox, &seen};
    if (rows_span(all, 4) + BOOK_SPARE > PL_ROW_TERMS) return "an exchange did not fit";
    row_add_row(&inbox, &to->inbox, to->inbox_weight / sum);
    row_add_row(&inbox, &seen, sent / sum);
    row_set(b, &to->inbox, &inbox);
    to->inbox_weight = sum;
    from->weight -= sent;
    return NULL;
}

static void book_do_receive(struct pl_book *b, struct book_worker *w) {
    struct pl_row row = {.n = 0};
    double sum = w->weight + w->inbox_weight;
    if (w->inbox_weight == 0) return;
    row_add_row(&row, &w->row, w->weight / sum);
    row_add_row(&row, &w->inbox, w->inbox_weight / sum); /* it fitted when it was given */
    row_set(b, &w->row, &row);
    row_let_go(b, &w->inbox);
    w->weight = sum;
    w->inbox_weight = 0;
}

static const char *book_do_two(struct pl_book *b, const struct pl_action *a) {
    struct book_worker *i = &b->worker[a->worker], *j = &b->worker[a->peer];
    struct pl_row one, two;
    switch (a->verb) {
    case PL_BLEND:
        if (!book_blend(i, j, a->keep, a->factor, &one)) return "an exchange did not fit";
        row_set(b, &i->row, &one);
        return NULL;
    case PL_PAIR:
        if (!book_blend(i, j, 1 - a->factor, a->factor, &one) ||
            !book_blend(j, i, 1 - a->factor, a->factor, &two))
            return "an exchange did not fit";
        row_hold(b, &two); /* what i alone had may go to j whole */
        row_set(b, &i->row, &one);
        row_set(b, &j->row, &two);
        row_let_go(b, &two);
        return NULL;
    default: return book_do_give(b, i, j, a->factor);
    }
}

const char *pl_book_do(struct pl_book *b, const struct pl_action *a) {
    if (!b) return "it mixed models, and there is but one";
    if (a->worker < 0 || a->worker >= b->n_workers || !b->worker[a->worker].here)
        return "it mixed the model of somebody who is not there";
    if (a->verb == PL_RECEIVE) {
        book_do_receive(b, &b->worker[a->worker]);
        return NULL;
    }
    if (a->peer < 0 || a->peer >= b->n_workers || !b->worker[a->peer].here)
        return "it mixed the model of somebody who is not there";
    if (a->peer == a->worker) return "it mixed a model with itself";
    if (!isfinite(a->keep)) return "it said a factor that is not finite";
    return book_do_two(b, a);
}

/* --- reading ----------------------------------------------------------------------------- */

struct pl_book_task pl_book_task(const struct pl_book *b, int worker) {
    const struct book_worker *w = &b->worker[worker];
    return (struct pl_book_task){&w->of, w->base, w->brought, w->makes};
}

/* One more than fits is left for what the plan itself adds: the worker that has just arrived is
 * taken before or after. */
bool pl_book_fits(const struct pl_book *b, int worker, int peer) {
    const struct book_worker *i = &b->worker[worker], *j = &b->worker[peer];
    struct pl_row one, two, brought = {.n = 0};
    book_see(i, &one);
    book_see(j, &two);
    if (i->brought >= 0) row_add(&brought, i->brought, 1);
    if (i->base >= 0) row_add(&brought, i->base, 1);
    if (j->base >= 0) row_add(&brought, j->base, 1);
    /* rows as they are besides: where one is seen, terms may have cancelled */
    const struct pl_row *const all[] = {&one,      &two,      &i->row, &j->row,
                                        &i->inbox, &j->inbox, &brought};
    return rows_span(all, 7) + BOOK_SPARE <= PL_ROW_TERMS;
}

double pl_book_row(const struct pl_book *b, int worker, struct pl_row *out) {
    book_see(&b->worker[worker], out);
    return b->worker[worker].weight;
}

double pl_book_inbox(const struct pl_book *b, int worker, struct pl_row *out) {
    *out = b->worker[worker].inbox;
    return b->worker[worker].inbox_weight;
}

const struct pl_row *pl_book_rest(const struct pl_book *b) {
    return &b->rest;
}

int pl_book_n_workers(const struct pl_book *b) {
    return b->n_workers;
}

int pl_book_n_snapshots(const struct pl_book *b) {
    return b->n_snapshots;
}

int pl_book_writer(const struct pl_book *b, int snapshot) {
    return b->snapshot[snapshot].writer;
}

/* --- what policies ask -------------------------------------------------------------------- */

bool pl_fits(const struct pl_view *v, int worker, int peer) {
    return v->book && pl_book_fits(v->book, worker, peer);
}

double pl_weight(const struct pl_view *v, int worker) {
    return v->book ? v->book->worker[worker].weight : 0;
}
