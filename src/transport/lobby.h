/* Where clients wait: the socket at which the server listens, and those who have connected and not
 * yet said what they are.
 *
 * Connections beyond PL_LOBBY_ROOM wait in the kernel's backlog, and a client that finds that full
 * tries again. A client that does not identify itself within LOBBY_PATIENCE_NS is disconnected.
 *
 * Threads: the one that watches the workers (liveness.h) calls everything, except open and close.
 */
#ifndef PL_TRANSPORT_LOBBY_H
#define PL_TRANSPORT_LOBBY_H

#include <poll.h>

#include "transport/greeting.h"

#define PL_LOBBY_ROOM 64
#define PL_LOBBY_POLLED (PL_LOBBY_ROOM + 1)

struct pl_lobby;

/* PL_EUSAGE, PL_EIO or PL_ENOMEM. */
int pl_lobby_open(const char *path, struct pl_lobby **out, struct pl_why *why);
void pl_lobby_close(struct pl_lobby *l);          /* and removes the socket's file; NULL is fine */
void pl_lobby_close_in_child(struct pl_lobby *l); /* in a forked process: the descriptors alone */

/* Fills in what to poll, PL_LOBBY_POLLED at most, and returns how many. *until is brought forward
 * to when there is something to do anyway. */
nfds_t pl_lobby_gather(struct pl_lobby *l, struct pollfd *polled, uint64_t now, uint64_t *until);

/* After a poll of the n descriptors that were gathered, or of none: welcome() is called for each
 * client that has said what it is, and returns whether it took the socket. Those who have kept
 * silent for too long are sent away, unless none were polled. */
void pl_lobby_attend(struct pl_lobby *l, const struct pollfd *polled, nfds_t n, uint64_t now,
                     bool (*welcome)(void *ctx, int sock, const struct pl_newcomer *client),
                     void *ctx);

#endif
