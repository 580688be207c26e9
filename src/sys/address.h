/* Network addresses as people write them. */
#ifndef PL_SYS_ADDRESS_H
#define PL_SYS_ADDRESS_H

#include <stdbool.h>

struct pl_address {
    char host[256], port[6];
};

/* Splits HOST:PORT, [HOST]:PORT, :PORT or PORT; the default host is 127.0.0.1. False if it is none
 * of them. */
bool pl_address_split(const char *text, struct pl_address *out);

/* Whether only programs of this machine can connect to this host. */
bool pl_address_is_local(const char *host);

#endif
