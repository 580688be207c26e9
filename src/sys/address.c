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

/* Whether it is HOST:PORT, or a URL, which needs no port. */
static bool address_is_server(const char *text, size_t n) {
    struct pl_address a;
    char at[sizeof a.host + sizeof a.port];
    const char *scheme = strstr(text, "://");
    bool url = scheme && scheme < text + n;
    if (url) {
        n -= (size_t)(scheme + 3 - text);
        text = scheme + 3;
    }
    size_t host = strcspn(text, "/,");
    if (n > host) n = host;
    if (n == 0 || n >= sizeof a.host || *text == ':') return false;
    snprintf(at, sizeof at, "%.*s", (int)n, text);
    const char *end = strrchr(at, ']');
    bool has_port = strchr(end ? end : at, ':') != NULL;
    if (!has_port && !url) return false;
    if (!has_port) snprintf(at + n, sizeof at - n, ":80");
    return pl_address_split(at, &a) && strtol(a.port, NULL, 10) > 0;
}

int pl_address_check(const char *servers, struct pl_why *why) {
    for (const char *at = servers;; at++) {
        size_t n = strcspn(at, ",");
        if (!address_is_server(at, n))
            return pl_fail(why, PL_EUSAGE,
                           "'%.*s' is not the address of a server; write HOST:PORT, with a port "
                           "from 1 to 65535",
                           n < 200 ? (int)n : 200, at);
        at += n;
        if (!*at) return PL_OK;
    }
}

bool pl_address_is_local(const char *host) {
    return strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0 ||
           strcasecmp(host, "localhost") == 0;
}
