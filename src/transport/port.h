/* What the ports over shared memory and over MPI have in common: the memory of vectors and the
 * queue of news.
 *
 * Threads: the one that owns the port. */
#ifndef PL_TRANSPORT_PORT_H
#define PL_TRANSPORT_PORT_H

#include "sys/segment.h"
#include "transport/shm_layout.h"

struct pl_areas;

struct pl_port_memory {
    struct pl_shape shape;
    struct pl_segment segment;
    size_t n_versions, n_slots; /* handed out so far; n_slots only if there are no areas */
    struct pl_areas *areas;     /* of a port where clients can join; or NULL */
};

/* `shared`: processes can map it. 0, PL_EUSAGE or PL_ENOMEM. */
int pl_port_memory_new(const struct pl_port_conf *conf, bool shared, struct pl_port_memory *out,
                       struct pl_why *why);
void pl_port_memory_free(struct pl_port_memory *m);
float *pl_port_memory_vector(struct pl_port_memory *m, int writer);

/* Vectors are numbered from 1, versions first; 0 stands for none. */
uint32_t pl_port_memory_number(const struct pl_port_memory *m, const float *v);
float *pl_port_memory_at(const struct pl_port_memory *m, uint32_t number); /* NULL: no such one */

/* Where in the segment an address is, and n floats at such an offset, if workers may write there;
 * If it is NULL, they may not. */
uint64_t pl_port_memory_offset(const struct pl_port_memory *m, const float *v);
float *pl_port_memory_in_slots(const struct pl_port_memory *m, uint64_t offset, uint64_t n);

/* PL_OK, or PL_EUSAGE if there is no worker of this number or it is there already. */
int pl_port_check_worker(int worker, int n_workers, bool there, struct pl_why *why);

/* A result that cannot be true, made harmless. */
void pl_port_spoil(struct pl_result *r);

struct pl_port_queue {
    struct pl_news *news; /* [room] */
    int first, n, room;
};

bool pl_port_queue_new(struct pl_port_queue *q, int room); /* false: out of memory */
void pl_port_enqueue(struct pl_port_queue *q, enum pl_news_kind kind, int worker,
                     const struct pl_result *r);                    /* r: NULL is fine */
bool pl_port_dequeue(struct pl_port_queue *q, struct pl_news *out); /* false: it is empty */

#endif
