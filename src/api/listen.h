/* Where clients join: the option "listen", which is the path of a socket, HOST:PORT, or both with a
 * comma between them. If it has no path, the socket that the gateway needs is in a folder of its
 * own. */
#ifndef PL_API_LISTEN_H
#define PL_API_LISTEN_H

#include "base/status.h"

struct pl_setup_conf;

struct pl_listen {
    char path[400];    /* "": no client joins */
    char address[300]; /* "": no client joins from other machines */
    char folder[200];  /* that was made for the path; "": none */
};

/* Splits it; PL_EUSAGE. */
int pl_listen_read(const char *text, struct pl_listen *out, struct pl_why *why);

/* The same of the option of a run, with those that belong to it: keys and insecure. */
int pl_listen_check(const struct pl_setup_conf *c, struct pl_listen *out, struct pl_why *why);

/* Makes the folder, if one is needed, and removes it with what was made there. */
int pl_listen_open(struct pl_listen *l, struct pl_why *why);
void pl_listen_close(struct pl_listen *l);

#endif
