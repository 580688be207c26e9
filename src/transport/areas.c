/* Threads: see areas.h. */
#include "transport/areas.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct areas_seat {
    atomic_uint n_given; /* slots handed out */
    atomic_bool foreign; /* a client has or had it mapped */
    int file;            /* of its area, if other workers read it; or -1 */
    /* if other workers read the area: what the client in this seat writes instead of it */
    struct pl_segment private;
};

struct pl_areas {
    struct pl_shape shape;
    struct pl_segment segment; /* freed by the caller of new() */
    int head, versions;        /* files; -1: closed */
    bool peers;
    struct areas_seat *seat; /* [n_seats] */
};

static size_t areas_at(const struct pl_areas *a, int seat) {
    return a->shape.mailboxes + (size_t)seat * a->shape.mailbox_step;
}

static void areas_drop(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

/* A file that everybody may read, and only this process and its children write. */
static int areas_place_ours(struct pl_areas *a, size_t from, size_t size, int *fd) {
    *fd = pl_segment_file(size, false);
    if (*fd < 0) return PL_ENOMEM;
    int rc = pl_segment_place(&a->segment, from, size, *fd, true);
    pl_segment_seal(*fd);
    return rc;
}

/* Without peers, an area needs no file before a client comes. With them it keeps its file, which no
 * client can write. */
static int areas_place_all(struct pl_areas *a) {
    const struct pl_shape *s = &a->shape;
    int n = (int)pl_shape_seats(s);
    int rc = areas_place_ours(a, 0, s->mailboxes, &a->head);
    if (!rc) rc = areas_place_ours(a, s->versions, s->versions_end - s->versions, &a->versions);
    if (!rc && !a->peers)
        rc = pl_segment_place(&a->segment, s->mailboxes, s->versions - s->mailboxes, -1, true);
    for (int i = 0; !rc && a->peers && i < n; i++)
        rc = areas_place_ours(a, areas_at(a, i), s->mailbox_step, &a->seat[i].file);
    return rc;
}

int pl_areas_new(const struct pl_shape *shape, bool peers, struct pl_areas **areas,
                 struct pl_segment *out) {
    size_t n = pl_shape_seats(shape);
    struct pl_areas *a = calloc(1, sizeof *a);
    if (!a) return PL_ENOMEM;
    *a = (struct pl_areas){.shape = *shape, .head = -1, .versions = -1, .peers = peers};
    a->segment.fd = -1;
    a->seat = calloc(n, sizeof *a->seat);
    for (size_t i = 0; a->seat && i < n; i++) a->seat[i].file = a->seat[i].private.fd = -1;
    int rc = a->seat ? pl_segment_reserve(shape->size, &a->segment) : PL_ENOMEM;
    if (!rc) rc = areas_place_all(a);
    if (rc) {
        pl_segment_free(&a->segment);
        pl_areas_free(a);
        return rc;
    }
    *out = a->segment;
    *areas = a;
    return PL_OK;
}

static void areas_close(struct pl_areas *a) {
    areas_drop(&a->head);
    areas_drop(&a->versions);
    for (uint64_t i = 0; a->seat && i < pl_shape_seats(&a->shape); i++)
        areas_drop(&a->seat[i].file);
}

void pl_areas_vacate(struct pl_areas *a, int seat) {
    pl_segment_free(&a->seat[seat].private);
}

void pl_areas_free(struct pl_areas *a) {
    if (!a) return;
    areas_close(a);
    for (uint64_t i = 0; a->seat && i < pl_shape_seats(&a->shape); i++) pl_areas_vacate(a, (int)i);
    free(a->seat);
    free(a);
}

float *pl_areas_vector(struct pl_areas *a, int worker) {
    const struct pl_shape *s = &a->shape;
    unsigned i = atomic_load(&a->seat[worker].n_given);
    if (i >= s->n_own) return NULL;
    atomic_store(&a->seat[worker].n_given, i + 1);
    size_t at = s->slots + (size_t)worker * s->mailbox_step + i * s->stride;
    return (float *)(void *)((char *)a->segment.at + at);
}

/* A new file with the slots of the seat's area: some may be results that are still used. Nothing of
 * the mailbox is needed while its seat is free. Returns the file, which is mapped as `fresh`, or
 * -1. */
static int areas_copy(struct pl_areas *a, int seat, struct pl_segment *fresh) {
    const struct pl_shape *s = &a->shape;
    size_t slots = s->slots - s->mailboxes;
    size_t used = atomic_load(&a->seat[seat].n_given) * s->stride;
    int fd = pl_segment_file(s->mailbox_step, true), copy = fd < 0 ? -1 : dup(fd);
    if (copy < 0 || pl_segment_map(copy, s->mailbox_step, fresh)) {
        areas_drop(&fd);
        return -1;
    }
    memcpy((char *)fresh->at + slots, (char *)a->segment.at + areas_at(a, seat) + slots, used);
    return fd;
}

/* The copy takes the place of the area; the server may read slots meanwhile. Returns the file, or
 * -1. */
static int areas_replace(struct pl_areas *a, int seat) {
    struct pl_segment fresh;
    int fd = areas_copy(a, seat, &fresh);
    if (fd < 0) return -1;
    pl_segment_free(&fresh);
    if (pl_segment_place(&a->segment, areas_at(a, seat), a->shape.mailbox_step, fd, true))
        areas_drop(&fd);
    return fd;
}

bool pl_areas_give(struct pl_areas *a, int seat, int fd[PL_GIVEN]) {
    fd[PL_GIVEN_HEAD] = pl_segment_reader(a->head);
    fd[PL_GIVEN_VERSIONS] = pl_segment_reader(a->versions);
    fd[PL_GIVEN_AREA] =
        a->peers ? areas_copy(a, seat, &a->seat[seat].private) : areas_replace(a, seat);
    atomic_store(&a->seat[seat].foreign, true);
    bool all = true;
    for (int i = 0; i < PL_GIVEN; i++) all = all && fd[i] >= 0;
    if (!all) pl_areas_took(fd);
    if (!all) pl_areas_vacate(a, seat);
    return all;
}

struct pl_mailbox *pl_areas_mailbox(const struct pl_areas *a, int seat) {
    void *private = a->seat[seat].private.at;
    return private ? private : pl_shape_mailbox(&a->shape, a->segment.at, seat);
}

void pl_areas_publish(struct pl_areas *a, int seat, float *v) {
    const char *private = a->seat[seat].private.at;
    size_t at = (size_t)((char *)v - (char *)a->segment.at) - areas_at(a, seat);
    if (private) memcpy(v, private + at, a->shape.stride);
}

void pl_areas_took(int fd[PL_GIVEN]) {
    for (int i = 0; i < PL_GIVEN; i++) areas_drop(&fd[i]);
}

int pl_areas_reader(const struct pl_areas *a, int worker) {
    return a->peers ? pl_segment_reader(a->seat[worker].file) : -1;
}

bool pl_areas_peers(const struct pl_areas *a) {
    return a->peers;
}

int pl_areas_renew(struct pl_areas *a, int seat) {
    if (a->peers || !atomic_load(&a->seat[seat].foreign)) return PL_OK;
    int fd = areas_replace(a, seat);
    if (fd < 0) return PL_ENOMEM;
    close(fd);
    atomic_store(&a->seat[seat].foreign, false);
    return PL_OK;
}

void pl_areas_close_in_child(struct pl_areas *a) {
    areas_close(a);
    for (uint64_t i = 0; i < pl_shape_seats(&a->shape); i++) pl_areas_vacate(a, (int)i);
    pl_segment_protect(&a->segment, a->shape.versions, a->shape.versions_end - a->shape.versions);
}
