#include "run/copy.h"

#include <stdlib.h>
#include <string.h>

#include "run/saver.h"

struct pl_copy {
    struct pl_snapshot *snapshot;
    float *w; /* [dim], which the snapshot refers to */
    uint64_t version;
};

void pl_copy_free(struct pl_copy *c) {
    if (!c) return;
    pl_snapshot_free(c->snapshot);
    free(c->w);
    free(c);
}

/* The model, which other threads may read from then on. */
static int copy_weights(struct pl_copy *c, const struct pl_model *m, struct pl_engine *e,
                        float *room) {
    struct pl_model_now now;
    c->w = malloc(m->dim * sizeof *c->w);
    int rc = c->w ? pl_engine_model(e, room, &now) : PL_ENOMEM;
    if (rc) return rc;
    memcpy(c->w, now.w, m->dim * sizeof *c->w);
    pl_engine_let_go(e, &now);
    pl_snapshot_weights(c->snapshot, m, c->w);
    return PL_OK;
}

int pl_copy_new(const struct pl_server_conf *conf, struct pl_engine *e, float *room,
                struct pl_copy **out) {
    struct pl_copy *c = calloc(1, sizeof *c);
    int rc = c ? pl_snapshot_new(&c->snapshot, NULL) : PL_ENOMEM;
    if (!rc) {
        struct pl_archive archive = pl_snapshot_archive(c->snapshot);
        rc = pl_engine_archive(e, &archive);
    }
    if (!rc) rc = copy_weights(c, conf->job->model, e, room);
    if (rc) {
        pl_copy_free(c);
        return rc;
    }
    pl_saver_notes(&conf->save, c->snapshot);
    c->version = pl_engine_view(e)->version;
    *out = c;
    return PL_OK;
}

uint64_t pl_copy_version(const struct pl_copy *c) {
    return c->version;
}

int pl_copy_pack(struct pl_copy *c, unsigned char **out, size_t *bytes, struct pl_why *why) {
    return pl_snapshot_pack(c->snapshot, c->version, out, bytes, why);
}
