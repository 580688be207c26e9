/* Threads: the one that owns the port. */
#include "transport/port.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "transport/areas.h"

/* --- memory ------------------------------------------------------------------------------ */

int pl_port_memory_new(const struct pl_port_conf *conf, bool shared, struct pl_port_memory *out,
                       struct pl_why *why) {
    struct pl_shape s = {.dim = conf->dim};
    *out = (struct pl_port_memory){.segment = {.fd = -1}};
    if (conf->n_workers > 0) s.n_workers = (uint64_t)conf->n_workers;
    if (conf->n_versions > 0) s.n_versions = (uint64_t)conf->n_versions;
    if (conf->n_slots > 0) s.n_slots = (uint64_t)conf->n_slots;
    bool clients = shared && conf->listen;
    if (clients) {
        bool fewer = conf->n_own > 0 && conf->n_own < conf->n_slots;
        s.n_own = fewer ? (uint64_t)conf->n_own : s.n_slots;
        if (conf->n_evaluators > 0) s.n_evaluators = (uint64_t)conf->n_evaluators;
        s.half = conf->half;
    }
    if (!pl_shape_of(&s))
        return pl_fail(why, PL_EUSAGE,
                       "%d workers, %d versions and %d slots of %zu parameters are out of range: a "
                       "port has 1 to 2^20 of each, of 1 to 2^38 parameters%s",
                       conf->n_workers, conf->n_versions, conf->n_slots, conf->dim,
                       clients ? ", and if clients can join, 2^46 bytes for results" : "");
    out->shape = s;
    errno = 0;
    int rc = clients ? pl_areas_new(&s, conf->peers, &out->areas, &out->segment)
                     : pl_segment_new(s.size, shared, &out->segment);
    if (rc && errno == EFBIG)
        return pl_fail(
            why, PL_ENOMEM,
            "workers share %.3g MB of memory, but files are limited to less; raise the limit "
            "(ulimit -f)",
            (double)s.size * 1e-6);
    if (rc)
        return pl_fail(why, PL_ENOMEM,
                       "out of memory for %d workers, %d versions and %d slots of %zu parameters",
                       conf->n_workers, conf->n_versions, conf->n_slots, conf->dim);
    return PL_OK;
}

void pl_port_memory_free(struct pl_port_memory *m) {
    pl_areas_free(m->areas);
    m->areas = NULL;
    pl_segment_free(&m->segment);
}

static float *port_version(const struct pl_port_memory *m, size_t i) {
    size_t at = m->shape.versions + i * m->shape.stride;
    return (float *)(void *)((char *)m->segment.at + at);
}

static float *port_slot(const struct pl_port_memory *m, size_t i) {
    size_t at = m->shape.slots + i * m->shape.stride;
    return (float *)(void *)((char *)m->segment.at + at);
}

float *pl_port_memory_vector(struct pl_port_memory *m, int writer) {
    if (writer >= 0 && m->areas) return pl_areas_vector(m->areas, writer);
    if (writer < 0)
        return m->n_versions < m->shape.n_versions ? port_version(m, m->n_versions++) : NULL;
    return m->n_slots < m->shape.n_slots ? port_slot(m, m->n_slots++) : NULL;
}

uint32_t pl_port_memory_number(const struct pl_port_memory *m, const float *v) {
    if (!v) return 0;
    const struct pl_shape *s = &m->shape;
    size_t at = (size_t)((const char *)v - (const char *)m->segment.at);
    if (at < s->slots) return (uint32_t)((at - s->versions) / s->stride) + 1;
    return (uint32_t)(s->n_versions + (at - s->slots) / s->stride) + 1;
}

float *pl_port_memory_at(const struct pl_port_memory *m, uint32_t number) {
    size_t i = number - 1, n = m->shape.n_versions;
    if (number < 1 || i >= n + m->n_slots || (i < n && i >= m->n_versions)) return NULL;
    return i < n ? port_version(m, i) : port_slot(m, i - n);
}

uint64_t pl_port_memory_offset(const struct pl_port_memory *m, const float *v) {
    return (uint64_t)((const char *)v - (const char *)m->segment.at);
}

float *pl_port_memory_in_slots(const struct pl_port_memory *m, uint64_t offset, uint64_t n) {
    if (!m->segment.at || !pl_shape_in_slots(&m->shape, offset, n)) return NULL;
    return (float *)(void *)((char *)m->segment.at + offset);
}

/* --- workers ----------------------------------------------------------------------------- */

int pl_port_check_worker(int worker, int n_workers, bool there, struct pl_why *why) {
    if (worker < 0 || worker >= n_workers)
        return pl_fail(why, PL_EUSAGE, "there is no worker %d; workers are 1 to %d", worker + 1,
                       n_workers);
    return there ? pl_fail(why, PL_EUSAGE, "worker %d is there already", worker + 1) : PL_OK;
}

int pl_transport_check(const struct pl_transport *t, const struct pl_port_conf *conf,
                       struct pl_why *why) {
    const char *what = NULL;
    if (conf->listen && !t->clients)
        what = "let clients join";
    else if (conf->range && conf->n_servers > 1 && !t->group)
        what = "have several servers";
    else if (conf->peers && !t->shared && !t->stay)
        what = "let workers read one another's models";
    return what ? pl_fail(why, PL_EUSAGE, "transport %s cannot %s; use another one", t->name, what)
                : PL_OK;
}

void pl_port_spoil(struct pl_result *r) {
    r->defect = PL_NOT_COMPUTED;
    r->samples = 0;
    r->loss = NAN;
}

/* --- news -------------------------------------------------------------------------------- */

bool pl_port_queue_new(struct pl_port_queue *q, int room) {
    *q = (struct pl_port_queue){.room = room};
    q->news = calloc((size_t)room, sizeof *q->news);
    return q->news != NULL;
}

void pl_port_enqueue(struct pl_port_queue *q, enum pl_news_kind kind, int worker,
                     const struct pl_result *r) {
    if (q->n == q->room) return; /* ports have room for all that workers can send before an order */
    struct pl_news *news = &q->news[(q->first + q->n++) % q->room];
    *news = (struct pl_news){.kind = kind, .worker = worker};
    if (r) news->result = *r;
}

bool pl_port_dequeue(struct pl_port_queue *q, struct pl_news *out) {
    if (q->n == 0) return false;
    *out = q->news[q->first];
    q->first = (q->first + 1) % q->room;
    q->n--;
    return true;
}
