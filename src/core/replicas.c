/* Prefix: combination_ for sums of vectors, replicas_ for workers. */
#include "core/replicas.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define REPLICAS_SPARE 2 /* terms that a take may add to a model */

struct replica {
    bool here, busy;
    bool base_pending; /* its base is not complete: only its own model refers to it */
    int base, result;  /* of its task; -1: none */
    double weight, inbox_weight;
    struct pl_combination model, inbox;
    struct pl_combination input; /* what its base is made of, while it computes */
};

struct pl_replicas {
    int n_workers, n_here;
    struct replica *worker;
    struct pl_vectors *vectors;
    struct pl_combination last_model;
};

/* --- combinations ------------------------------------------------------------------------ */

static void combination_hold(struct pl_replicas *b, const struct pl_combination *r) {
    for (int i = 0; i < r->n; i++) pl_vector_hold(b->vectors, r->term[i].vector);
}

static void combination_let_go(struct pl_replicas *b, struct pl_combination *r) {
    for (int i = 0; i < r->n; i++) pl_vector_release(b->vectors, r->term[i].vector);
    r->n = 0;
}

/* Adds c times a vector; terms that cancel are left out. Returns false if there is no room. */
static bool combination_add(struct pl_combination *r, int vector, double c) {
    for (int i = 0; i < r->n; i++) {
        if (r->term[i].vector != vector) continue;
        r->term[i].c += c;
        if (r->term[i].c == 0) {
            memmove(&r->term[i], &r->term[i + 1], (size_t)(r->n - i - 1) * sizeof *r->term);
            r->n--;
        }
        return true;
    }
    if (c == 0) return true;
    if (r->n == PL_TERMS) return false;
    r->term[r->n++] = (struct pl_term){vector, c};
    return true;
}

static bool combination_add_all(struct pl_combination *r, const struct pl_combination *what,
                                double c) {
    bool fits = true;
    for (int i = 0; i < what->n; i++)
        fits = combination_add(r, what->term[i].vector, c * what->term[i].c) && fits;
    return fits;
}

/* Replaces a combination; vectors that both have stay held throughout. */
static void combination_set(struct pl_replicas *b, struct pl_combination *r,
                            const struct pl_combination *to) {
    struct pl_combination before = *r;
    combination_hold(b, to);
    r->n = to->n;
    memcpy(r->term, to->term, (size_t)to->n * sizeof *to->term);
    combination_let_go(b, &before);
}

/* A worker's model as peers may read it: in vectors that are complete. */
static void replicas_visible(const struct replica *w, struct pl_combination *out) {
    out->n = 0;
    for (int i = 0; i < w->model.n; i++) {
        if (w->busy && w->base_pending && w->model.term[i].vector == w->base)
            combination_add_all(out, &w->input, w->model.term[i].c);
        else
            combination_add(out, w->model.term[i].vector, w->model.term[i].c);
    }
}

/* The number of different vectors in r[n], counted up to one more than fits. */
static int combination_span(const struct pl_combination *const *r, int n) {
    struct pl_combination all = {.n = 0};
    for (int k = 0; k < n; k++)
        for (int i = 0; i < r[k]->n; i++)
            if (!combination_add(&all, r[k]->term[i].vector, 1)) return PL_TERMS + 1;
    return all.n;
}

/* --- creating ---------------------------------------------------------------------------- */

int pl_replicas_new(int n_workers, struct pl_replicas **out) {
    struct pl_replicas *b = calloc(1, sizeof *b);
    if (!b) return PL_ENOMEM;
    b->n_workers = n_workers;
    b->worker = calloc((size_t)n_workers, sizeof *b->worker);
    bool ok = b->worker && pl_vectors_new(&b->vectors) == PL_OK;
    int first = ok ? pl_vector_add(b->vectors, PL_SERVER) : PL_NO_VECTOR;
    if (first != PL_FIRST_VECTOR) {
        pl_replicas_free(b);
        return PL_ENOMEM;
    }
    for (int i = 0; i < n_workers; i++) b->worker[i].base = b->worker[i].result = -1;
    combination_add(&b->last_model, first, 1);
    *out = b;
    return PL_OK;
}

void pl_replicas_free(struct pl_replicas *b) {
    if (!b) return;
    free(b->worker);
    pl_vectors_free(b->vectors);
    free(b);
}

/* --- called by control ------------------------------------------------------------------- */

void pl_replicas_join(struct pl_replicas *b, int worker) {
    if (!b) return;
    struct replica *w = &b->worker[worker];
    w->here = true;
    b->n_here++;
    w->weight = 1;
    w->inbox_weight = 0;
    combination_set(b, &w->model, &b->last_model);
}

/* The task is over: from here on only models refer to its base and its result. */
static void replicas_end_task(struct pl_replicas *b, struct replica *w) {
    combination_let_go(b, &w->input);
    pl_vector_release(b->vectors, w->base);
    pl_vector_release(b->vectors, w->result);
    w->base = w->result = -1;
    w->busy = w->base_pending = false;
}

/* Nothing that the worker wrote is used: its model is again the sum of its input. */
void pl_replicas_reject(struct pl_replicas *b, int worker) {
    if (!b) return;
    struct replica *w = &b->worker[worker];
    struct pl_combination model;
    if (!w->busy) return;
    replicas_visible(w, &model);
    combination_set(b, &w->model, &model);
    replicas_end_task(b, w);
}

void pl_replicas_leave(struct pl_replicas *b, int worker) {
    if (!b) return;
    struct replica *w = &b->worker[worker];
    if (!w->here) return;
    pl_replicas_reject(b, worker);
    if (--b->n_here == 0) combination_set(b, &b->last_model, &w->model);
    combination_let_go(b, &w->model);
    combination_let_go(b, &w->inbox);
    replicas_end_task(b, w); /* it may have arrived without a decision */
    w->here = false;
    w->weight = w->inbox_weight = 0;
}

int pl_replicas_start(struct pl_replicas *b, int worker) {
    struct replica *w = &b->worker[worker];
    bool base_pending = w->model.n != 1 || w->model.term[0].c != 1;
    replicas_end_task(b, w);
    int base = base_pending ? pl_vector_add(b->vectors, worker) : w->model.term[0].vector;
    if (base < 0) return PL_ENOMEM;
    if (!base_pending) pl_vector_hold(b->vectors, base);
    int result = pl_vector_add(b->vectors, worker);
    if (result < 0) {
        pl_vector_release(b->vectors, base);
        return PL_ENOMEM;
    }
    w->base = base;
    w->result = result;
    w->busy = true;
    w->base_pending = base_pending;
    combination_set(b, &w->input, &w->model);
    struct pl_combination model = {.n = 1, .term = {{base, 1}}};
    combination_set(b, &w->model, &model);
    return PL_OK;
}

void pl_replicas_base_ready(struct pl_replicas *b, int worker) {
    struct replica *w = &b->worker[worker];
    if (!w->base_pending) return;
    w->base_pending = false;
    combination_let_go(b, &w->input); /* it has read them */
}

void pl_replicas_arrive(struct pl_replicas *b, int worker) {
    struct replica *w = &b->worker[worker];
    w->busy = w->base_pending = false;
    combination_let_go(b, &w->input);
}

void pl_replicas_take(struct pl_replicas *b, int worker, double factor) {
    struct replica *w = &b->worker[worker];
    struct pl_combination model = w->model;
    combination_add(&model, w->base, -factor);
    combination_add(&model, w->result, factor); /* there is room: see REPLICAS_SPARE */
    combination_set(b, &w->model, &model);
    replicas_end_task(b, w);
}

void pl_replicas_drop(struct pl_replicas *b, int worker) {
    if (b) replicas_end_task(b, &b->worker[worker]);
}

/* --- exchanges --------------------------------------------------------------------------- */

static bool replicas_fits(const struct pl_combination *model, const struct replica *w) {
    const struct pl_combination *const both[] = {model, &w->inbox};
    return combination_span(both, 2) + REPLICAS_SPARE <= PL_TERMS;
}

/* a x_i + b x_j, for worker i. Returns whether it fits. */
static bool replicas_blend(const struct replica *i, const struct replica *j, double a, double b,
                           struct pl_combination *out) {
    struct pl_combination seen, other, whole;
    replicas_visible(j, &other);
    replicas_visible(i, &seen);
    out->n = whole.n = 0;
    bool fits = combination_add_all(out, &i->model, a) && combination_add_all(out, &other, b);
    fits = combination_add_all(&whole, &seen, a) && combination_add_all(&whole, &other, b) && fits;
    return fits && out->n > 0 && replicas_fits(&whole, i) && replicas_fits(out, i);
}

static const char *replicas_push(struct pl_replicas *b, struct replica *from, struct replica *to,
                                 double share) {
    struct pl_combination seen, inbox = {.n = 0}, own;
    double sent = share * from->weight, sum = to->inbox_weight + sent;
    if (!(share > 0 && share < 1) || !(sent > 0))
        return "it pushed a share that is not between 0 and 1";
    replicas_visible(from, &seen);
    replicas_visible(to, &own);
    const struct pl_combination *const all[] = {&own, &to->model, &to->inbox, &seen};
    if (combination_span(all, 4) + REPLICAS_SPARE > PL_TERMS)
        return "an exchange needs more terms than a model can have";
    combination_add_all(&inbox, &to->inbox, to->inbox_weight / sum);
    combination_add_all(&inbox, &seen, sent / sum);
    combination_set(b, &to->inbox, &inbox);
    to->inbox_weight = sum;
    from->weight -= sent;
    return NULL;
}

static void replicas_absorb(struct pl_replicas *b, struct replica *w) {
    struct pl_combination model = {.n = 0};
    double sum = w->weight + w->inbox_weight;
    if (w->inbox_weight == 0) return;
    combination_add_all(&model, &w->model, w->weight / sum);
    combination_add_all(&model, &w->inbox,
                        w->inbox_weight / sum); /* it fits: checked by the push */
    combination_set(b, &w->model, &model);
    combination_let_go(b, &w->inbox);
    w->weight = sum;
    w->inbox_weight = 0;
}

static const char *replicas_exchange_two(struct pl_replicas *b, const struct pl_action *a) {
    struct replica *i = &b->worker[a->worker], *j = &b->worker[a->peer];
    struct pl_combination one, two;
    switch (a->verb) {
    case PL_BLEND:
        if (!replicas_blend(i, j, a->keep, a->factor, &one))
            return "an exchange needs more terms than a model can have";
        combination_set(b, &i->model, &one);
        return NULL;
    case PL_PAIR:
        if (!replicas_blend(i, j, 1 - a->factor, a->factor, &one) ||
            !replicas_blend(j, i, 1 - a->factor, a->factor, &two))
            return "an exchange needs more terms than a model can have";
        combination_hold(b, &two); /* a vector that only i had may go to j */
        combination_set(b, &i->model, &one);
        combination_set(b, &j->model, &two);
        combination_let_go(b, &two);
        return NULL;
    default: return replicas_push(b, i, j, a->factor);
    }
}

const char *pl_replicas_exchange(struct pl_replicas *b, const struct pl_action *a) {
    if (!b) return "it mixed models, but there is only one";
    if (a->worker < 0 || a->worker >= b->n_workers || !b->worker[a->worker].here)
        return "it mixed the model of a worker that is not present";
    if (a->verb == PL_ABSORB) {
        replicas_absorb(b, &b->worker[a->worker]);
        return NULL;
    }
    if (a->peer < 0 || a->peer >= b->n_workers || !b->worker[a->peer].here)
        return "it mixed the model of a worker that is not present";
    if (a->peer == a->worker) return "it mixed a model with itself";
    if (!isfinite(a->keep)) return "it used a factor that is not finite";
    return replicas_exchange_two(b, a);
}

/* --- reading ----------------------------------------------------------------------------- */

struct pl_replica_task pl_replica_task(const struct pl_replicas *b, int worker) {
    const struct replica *w = &b->worker[worker];
    return (struct pl_replica_task){&w->input, w->base, w->result, w->base_pending};
}

/* Leaves room for what the plan itself adds: the worker that has just arrived is taken before or
 * after the exchange. */
bool pl_replicas_fits(const struct pl_replicas *b, int worker, int peer) {
    const struct replica *i = &b->worker[worker], *j = &b->worker[peer];
    struct pl_combination one, two, task = {.n = 0};
    replicas_visible(i, &one);
    replicas_visible(j, &two);
    if (i->result >= 0) combination_add(&task, i->result, 1);
    if (i->base >= 0) combination_add(&task, i->base, 1);
    if (j->base >= 0) combination_add(&task, j->base, 1);
    /* the models themselves as well: in the visible ones, terms may have cancelled */
    const struct pl_combination *const all[] = {&one,      &two,      &i->model, &j->model,
                                                &i->inbox, &j->inbox, &task};
    return combination_span(all, 7) + REPLICAS_SPARE <= PL_TERMS;
}

double pl_replicas_model(const struct pl_replicas *b, int worker, struct pl_combination *out) {
    replicas_visible(&b->worker[worker], out);
    return b->worker[worker].weight;
}

double pl_replicas_inbox(const struct pl_replicas *b, int worker, struct pl_combination *out) {
    *out = b->worker[worker].inbox;
    return b->worker[worker].inbox_weight;
}

const struct pl_combination *pl_replicas_last_model(const struct pl_replicas *b) {
    return &b->last_model;
}

int pl_replicas_n_workers(const struct pl_replicas *b) {
    return b->n_workers;
}

struct pl_vectors *pl_replicas_vectors(const struct pl_replicas *b) {
    return b->vectors;
}

/* --- for policies ------------------------------------------------------------------------- */

bool pl_fits(const struct pl_view *v, int worker, int peer) {
    return v->replicas && pl_replicas_fits(v->replicas, worker, peer);
}

double pl_weight(const struct pl_view *v, int worker) {
    return v->replicas ? v->replicas->worker[worker].weight : 0;
}
