/* Reading the members of a group: what is judged is what is used. */
#include <stdlib.h>
#include <string.h>

#include "core/store_state.h"

const pl_real *pl_member_judge(struct store_member *m, const pl_real *v, size_t n,
                               const pl_real *instead) {
    if (pl_vec_finite(v, n)) return v;
    __atomic_store_n(&m->spoiled, true, __ATOMIC_RELAXED); /* tiles run on several threads */
    return instead;
}

const pl_real *pl_member_read(struct store_member *m, size_t at, size_t n, const pl_real *instead,
                              pl_real *copy) {
    const pl_real *v = m->vector + at;
    if (m->guarded) v = memcpy(copy, v, n * sizeof *v);
    return pl_member_judge(m, v, n, instead);
}

int pl_members_agree(struct pl_store *s) {
    const struct pl_slice *slice = &s->conf.slice;
    size_t n = (size_t)s->n_members;
    if (!slice->allreduce || n == 0) return PL_OK;
    double *row = calloc(PL_TILES * n, sizeof *row);
    if (!row) return PL_ENOMEM;
    for (size_t m = 0; m < n && slice->first < slice->end; m++)
        row[(size_t)slice->first * n + m] = s->member[m].spoiled;
    int rc = slice->allreduce(slice->ctx, row, n);
    for (size_t i = 0; !rc && i < PL_TILES * n; i++)
        s->member[i % n].spoiled = s->member[i % n].spoiled || row[i] != 0;
    free(row);
    return rc;
}

pl_real pl_member_value(struct store_member *m, size_t at, pl_real instead) {
    pl_real v = *(const volatile pl_real *)&m->vector[at]; /* read once */
    return *pl_member_judge(m, &v, 1, &instead);
}
