/* Network addresses as people write them. */
#ifndef PL_SYS_ADDRESS_H
#define PL_SYS_ADDRESS_H

#include <stdbool.h>

#include "base/status.h"

struct pl_address {
    char host[256], port[6];
};

/* Splits HOST:PORT, [HOST]:PORT, :PORT or PORT; the default host is 127.0.0.1. False for any other
 * text. */
bool pl_address_split(const char *text, struct pl_address *out);

/* Whether each of these, with commas between them, is the address of a server: HOST:PORT, or a URL,
 * which needs no port. PL_OK, or PL_EUSAGE. */
int pl_address_check(const char *servers, struct pl_why *why);

/* Whether only programs of this machine can connect to this host. */
bool pl_address_is_local(const char *host);

#endif
