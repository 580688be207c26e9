#include "sys/address.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool address_is_port(const char *s) {
    size_t n = strspn(s, "0123456789");
    return n > 0 && n < 6 && s[n] == '\0' && strtol(s, NULL, 10) <= 65535;
}

bool pl_address_split(const char *text, struct pl_address *out) {
    const char *host = text, *port = text;
    size_t n = 0;
    if (text[0] == '[') {
        const char *end = strchr(text, ']');
        if (!end || end[1] != ':' || end == text + 1) return false;
        host = text + 1;
        n = (size_t)(end - host);
        port = end + 2;
    } else {
        const char *colon = strchr(text, ':');
        n = colon ? (size_t)(colon - text) : 0;
        port = colon ? colon + 1 : text;
    }
    if (!address_is_port(port) || n >= sizeof out->host) return false;
    snprintf(out->host, sizeof out->host, "%.*s", (int)n, host);
    if (n == 0) snprintf(out->host, sizeof out->host, "127.0.0.1");
    snprintf(out->port, sizeof out->port, "%s", port);
    return true;
}

bool pl_address_is_local(const char *host) {
    return strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0 ||
           strcasecmp(host, "localhost") == 0;
}
