/* X.509 certificates for a run and its workers, made with GnuTLS.
 *
 * Keys are of the curve P-256. An authority signs all; its key stays in the folder. */
#ifndef PL_SYS_CERTIFICATES_H
#define PL_SYS_CERTIFICATES_H

#include "base/status.h"

#define PL_CERTIFICATES_SERVER "server" /* the name in a server's certificate */

/* Makes `folder` with ca.pem, ca-key.pem, server.pem, server-key.pem, and worker.pem and
 * worker-key.pem of a worker with this name. `hosts`: names and addresses of the server, with
 * commas between them. If the folder has an authority, makes folder/WORKER with ca.pem, worker.pem
 * and worker-key.pem instead. Nothing is overwritten. */
int pl_certificates_make(const char *folder, const char *hosts, const char *worker, int days,
                         struct pl_why *why);

/* Refuses a private key that others can read, or that is not there. */
int pl_certificates_private(const char *key, struct pl_why *why);

#endif
