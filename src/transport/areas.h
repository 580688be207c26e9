/* The memory of a port where clients can join: files of which each client gets those it may see.
 * shm_layout.h says where they are.
 *
 * Threads: the owner of the port, except pl_areas_give(), which the thread that admits clients
 * calls for a seat that is free. */
#ifndef PL_TRANSPORT_AREAS_H
#define PL_TRANSPORT_AREAS_H

#include "sys/segment.h"
#include "transport/shm_layout.h"

struct pl_areas;

/* `peers`: workers read what others write. *out is the whole segment, which the caller frees. 0 or
 * PL_ENOMEM. */
int pl_areas_new(const struct pl_shape *shape, bool peers, struct pl_areas **areas,
                 struct pl_segment *out);
void pl_areas_free(struct pl_areas *a); /* closes the files; NULL is fine */

/* Memory for one more vector that the worker writes, or NULL if there is no more. */
float *pl_areas_vector(struct pl_areas *a, int worker);

/* Descriptors that a client is given, and that the caller closes by pl_areas_took. */
enum { PL_GIVEN_HEAD, PL_GIVEN_VERSIONS, PL_GIVEN_AREA, PL_GIVEN };
bool pl_areas_give(struct pl_areas *a, int seat, int fd[PL_GIVEN]);
void pl_areas_took(int fd[PL_GIVEN]);
/* What the server sees of the client in a seat until it leaves. If workers read what others write,
 * a client has an area that no other worker reads; what it wrote is published by the server. */
struct pl_mailbox *pl_areas_mailbox(const struct pl_areas *a, int seat);
void pl_areas_publish(struct pl_areas *a, int seat, float *v); /* v: its slot, as others see it */
void pl_areas_vacate(struct pl_areas *a, int seat);
/* For reading the area of another worker, where workers do; otherwise -1. */
int pl_areas_reader(const struct pl_areas *a, int worker);
bool pl_areas_peers(const struct pl_areas *a);

/* Before a process is forked for this seat: no former client can write its area. */
int pl_areas_renew(struct pl_areas *a, int seat); /* 0 or PL_ENOMEM */

/* In a forked process: closes the files, and makes versions read-only. */
void pl_areas_close_in_child(struct pl_areas *a);

#endif
