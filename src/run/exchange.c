#include "run/exchange.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/input.h"
#include "base/output.h"
#include "run/server_state.h"

/* What a file begins with. The steps [tensors] of 8 bytes follow, then the weights, if it has them,
 * the vectors, and the reference, if it has one, [dim] floats each. */
struct exchange_head {
    uint64_t dim, version;
    uint64_t tensors, weights, vectors; /* how many: all or 0; 1 or 0; all or 0 */
    uint64_t reference;                 /* 1 or 0: the gradient that a filter compares with */
};

/* A file that was read. */
struct exchange_read {
    struct exchange_head head;
    bool fits;       /* the head is of this run, so that a client of it has written the file */
    uint64_t *steps; /* [tensors] */
    float *real;     /* [weights + vectors + reference][dim] */
};

static const char exchange_mark[] = "paceline: "; /* what `refused` begins with */

static bool exchange_join(const char *dir, const char *name, char path[PL_OUTPUT_PATH]) {
    int n = snprintf(path, PL_OUTPUT_PATH, "%s/%s", dir, name);
    return n > 0 && n < PL_OUTPUT_PATH;
}

static bool exchange_path(const struct server *s, const char *name, char path[PL_OUTPUT_PATH]) {
    return exchange_join(s->conf->exchange, name, path);
}

static void exchange_refuse(struct server *s, const struct pl_why *why) {
    char path[PL_OUTPUT_PATH];
    char text[sizeof exchange_mark + sizeof why->text];
    pl_log_warn(&s->job->log, "%s", why->text);
    int n = snprintf(text, sizeof text, "%s%s", exchange_mark, why->text);
    if (s->conf->exchange && exchange_path(s, "refused", path))
        pl_output_write(path, text, (size_t)n, NULL);
}

/* --- what is there -------------------------------------------------------------------------- */

static bool exchange_is_refusal(FILE *f) {
    char text[sizeof exchange_mark] = "";
    return fread(text, 1, sizeof text - 1, f) == sizeof text - 1 &&
           strcmp(text, exchange_mark) == 0;
}

/* Whether the file has the length that it says. */
static bool exchange_is_state(FILE *f) {
    struct exchange_head h;
    struct stat st;
    if (fread(&h, sizeof h, 1, f) != 1 || fstat(fileno(f), &st)) return false;
    if (h.dim >> 40 || h.tensors >> 40 || h.vectors >> 10 || h.weights > 1 || h.reference > 1)
        return false;
    uint64_t real = (h.weights + h.vectors + h.reference) * h.dim;
    return (uint64_t)st.st_size == sizeof h + h.tensors * sizeof(uint64_t) + real * sizeof(pl_real);
}

int pl_exchange_check(const char *dir, struct pl_why *why) {
    static const struct {
        const char *name, *what;
        bool (*is_ours)(FILE *f);
    } file[] = {{"saved", "a state that a run has saved", exchange_is_state},
                {"refused", "a message of a run", exchange_is_refusal}};
    for (size_t i = 0; i < sizeof file / sizeof *file; i++) {
        char path[PL_OUTPUT_PATH];
        const char *wrong;
        struct stat st;
        if (!exchange_join(dir, file[i].name, path) || lstat(path, &st)) continue;
        FILE *f = S_ISREG(st.st_mode) ? pl_input_file(path, &wrong) : NULL;
        bool ours = f && file[i].is_ours(f);
        if (f) fclose(f);
        if (!ours)
            return pl_fail(why, PL_EUSAGE,
                           "'%.200s' is in the way: it is not %s; move it, or give another folder "
                           "with --exchange",
                           path, file[i].what);
    }
    return PL_OK;
}

/* The optimizer, if there is one at the server and a folder for its state. */
static struct pl_store *exchange_store(const struct server *s, struct pl_why *why) {
    struct pl_store *store = s->several ? NULL : pl_engine_store(s->engine);
    if (!s->conf->exchange)
        pl_fail(why, PL_EUSAGE,
                "a program asks for the state of the optimizer, but there is no folder for it; "
                "give --exchange DIR");
    else if (!store)
        pl_fail(why, PL_EUSAGE,
                "a program asks for the state of the optimizer, but this method has no model at "
                "one server");
    return s->conf->exchange ? store : NULL;
}

/* --- saving --------------------------------------------------------------------------------- */

static int exchange_write(const struct pl_store *store, const char *path, struct pl_why *why) {
    struct pl_store_state state = pl_store_state(store);
    struct exchange_head head = {.dim = state.dim,
                                 .version = pl_store_newest(store)->id,
                                 .tensors = (uint64_t)state.n_tensors,
                                 .vectors = (uint64_t)state.n};
    struct pl_output o;
    int rc = pl_output_begin(&o, path, why);
    if (!rc) rc = pl_output_put(&o, &head, sizeof head, why);
    for (int t = 0; !rc && t < state.n_tensors; t++) {
        uint64_t steps = pl_store_steps(store, t);
        rc = pl_output_put(&o, &steps, sizeof steps, why);
    }
    for (int i = 0; !rc && i < state.n; i++)
        rc = pl_output_put(&o, state.vector[i], state.dim * sizeof(pl_real), why);
    return pl_output_end(&o, rc, why);
}

void pl_exchange_save(struct server *s) {
    struct pl_why why = {.text = ""};
    char path[PL_OUTPUT_PATH];
    const struct pl_store *store = exchange_store(s, &why);
    if (!store || !exchange_path(s, "saved", path) || exchange_write(store, path, &why))
        exchange_refuse(s, &why);
}

/* --- loading -------------------------------------------------------------------------------- */

/* Whether the file has what this run can take, or nothing of it. */
static bool exchange_fits(const struct exchange_head *h, const struct pl_store_state *state) {
    return h->dim == state->dim && h->weights <= 1 && h->reference <= 1 &&
           (h->tensors == 0 || h->tensors == (uint64_t)state->n_tensors) &&
           (h->vectors == 0 || h->vectors == (uint64_t)state->n);
}

static int exchange_parse(FILE *f, const struct pl_store_state *state, struct exchange_read *r,
                          struct pl_why *why) {
    struct exchange_head *h = &r->head;
    r->fits = fread(h, sizeof *h, 1, f) == 1 && exchange_fits(h, state);
    if (!r->fits)
        return pl_fail(why, PL_EDATA, "what a program wants to load is of another model or rule");
    size_t n = (size_t)(h->weights + h->vectors + h->reference) * state->dim;
    r->steps = calloc((size_t)h->tensors + 1, sizeof *r->steps);
    r->real = malloc((n + 1) * sizeof *r->real);
    if (!r->steps || !r->real) return pl_fail(why, PL_ENOMEM, "out of memory for what is loaded");
    if (fread(r->steps, sizeof *r->steps, (size_t)h->tensors, f) != h->tensors ||
        fread(r->real, sizeof *r->real, n, f) != n || fgetc(f) != EOF)
        return pl_fail(why, PL_EDATA,
                       "what a program wants to load has another length than it says");
    for (uint64_t t = 0; t < h->tensors; t++)
        if (r->steps[t] >= UINT64_C(1) << 53)
            return pl_fail(why, PL_EDATA, "what a program wants to load has too many steps");
    if (!pl_vec_finite(r->real, n))
        return pl_fail(why, PL_EDATA, "what a program wants to load is not finite");
    return PL_OK;
}

static int exchange_take(struct server *s, struct pl_store *store, const struct exchange_read *r,
                         struct pl_why *why) {
    struct pl_store_state state = pl_store_state(store);
    const float *at = r->real;
    if (r->head.weights && pl_store_set_model(store, at))
        return pl_fail(why, PL_ENOMEM, "out of memory for the weights that are loaded");
    if (r->head.weights) {
        pl_leases_replaced(s->leases, pl_store_newest(store)->id);
        s->clients.evaluator.version = PL_NOT_SHOWN; /* the evaluator has not seen them */
        at += state.dim;
    }
    for (uint64_t i = 0; i < r->head.vectors; i++, at += state.dim)
        memcpy(state.vector[i], at, state.dim * sizeof *at);
    if (r->head.tensors && pl_store_set_steps(store, r->steps))
        return pl_fail(why, PL_ENOMEM, "out of memory for the steps that are loaded");
    if (r->head.reference && !pl_engine_give_reference(s->engine, at))
        return pl_fail(why, PL_EUSAGE,
                       "a program gives a gradient to compare with, but the filter needs none");
    return PL_OK;
}

/* After the last update. A reference is not needed any more, which its sender could not know. */
static int exchange_late(const struct exchange_read *r, struct pl_why *why) {
    if (r->head.weights + r->head.vectors + r->head.tensors == 0) return PL_OK;
    return pl_fail(why, PL_EUSAGE, "the run has ended, so its weights and state cannot change");
}

void pl_exchange_load(struct server *s) {
    struct pl_why why = {.text = ""};
    struct exchange_read r = {.steps = NULL};
    char path[PL_OUTPUT_PATH];
    const char *wrong = "";
    struct pl_store *store = exchange_store(s, &why);
    FILE *f = store && exchange_path(s, "load", path) ? pl_input_file(path, &wrong) : NULL;
    int rc = PL_EUSAGE;
    if (f) {
        struct pl_store_state state = pl_store_state(store);
        rc = exchange_parse(f, &state, &r, &why);
        bool late = pl_engine_ended(s->engine);
        if (!rc) rc = late ? exchange_late(&r, &why) : exchange_take(s, store, &r, &why);
        fclose(f);
    } else if (store) {
        pl_fail(&why, PL_EIO, "what a program wants to load cannot be read: %s", wrong);
    }
    if (rc) exchange_refuse(s, &why);
    if (r.fits) unlink(path); /* and leaves a file that only has the name */
    free(r.steps);
    free(r.real);
}
