/* A mutex, for code outside sys that shares memory with pool threads. */
#ifndef PL_SYS_LOCK_H
#define PL_SYS_LOCK_H

struct pl_lock;
struct pl_lock *pl_lock_new(void); /* NULL: out of memory */
void pl_lock_free(struct pl_lock *l);
void pl_lock_enter(struct pl_lock *l);
void pl_lock_leave(struct pl_lock *l);

#endif
