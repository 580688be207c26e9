#include "api/listen.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/setup.h"
#include "sys/address.h"

/* Whether it is HOST:PORT and not a path. */
static bool listen_is_address(const char *text) {
    struct pl_address a;
    return strchr(text, ':') && !strchr(text, '/') && pl_address_split(text, &a);
}

/* A path may have commas itself: the pieces that are not the address are one path. */
int pl_listen_read(const char *text, struct pl_listen *out, struct pl_why *why) {
    const char *path = NULL, *end = NULL;
    bool fits = true;
    *out = (struct pl_listen){.path = ""};
    if (!text[0]) return PL_OK;
    for (const char *at = text; fits; at++) {
        char piece[sizeof out->address];
        size_t n = strcspn(at, ",");
        snprintf(piece, sizeof piece, "%.*s", (int)n, at);
        if (n < sizeof piece && listen_is_address(piece)) {
            fits = !out->address[0];
            snprintf(out->address, sizeof out->address, "%s", piece);
        } else {
            fits = !path || at == end + 1;
            path = path ? path : at;
            end = at + n;
        }
        at += n;
        if (!*at) break;
    }
    size_t n = path ? (size_t)(end - path) : 0;
    if (!fits || (path && n == 0) || n >= sizeof out->path)
        return pl_fail(why, PL_EUSAGE,
                       "listen takes the path of a socket, HOST:PORT, or one of each with a comma "
                       "between them, but not '%.100s'",
                       text);
    if (path) snprintf(out->path, sizeof out->path, "%.*s", (int)n, path);
    return PL_OK;
}

int pl_listen_check(const struct pl_setup_conf *c, struct pl_listen *out, struct pl_why *why) {
    struct pl_address a;
    int rc = pl_listen_read(c->listen, out, why);
    if (rc) return rc;
    bool open =
        out->address[0] && pl_address_split(out->address, &a) && !pl_address_is_local(a.host);
    if (open && !c->keys[0] && !c->insecure)
        return pl_fail(why, PL_EUSAGE,
                       "anybody could join at %.200s; make certificates with paceline keys and use "
                       "--keys DIR, or say --insecure yes",
                       out->address);
    if ((c->keys[0] || c->insecure) && !out->address[0])
        return pl_fail(why, PL_EUSAGE,
                       "%s is for workers on other machines; use it with --listen HOST:PORT",
                       c->keys[0] ? "keys" : "insecure");
    if (c->keys[0] && c->insecure)
        return pl_fail(why, PL_EUSAGE,
                       "--insecure lets anybody join, and --keys only those with a certificate; "
                       "leave out --insecure");
    return PL_OK;
}

int pl_listen_open(struct pl_listen *l, struct pl_why *why) {
    const char *tmp = getenv("TMPDIR");
    if (l->path[0] || !l->address[0]) return PL_OK;
    if (!tmp || !*tmp || strlen(tmp) > 60) tmp = "/tmp";
    snprintf(l->folder, sizeof l->folder, "%s/paceline-XXXXXX", tmp);
    if (!mkdtemp(l->folder)) {
        l->folder[0] = '\0';
        return pl_fail(why, PL_EIO, "cannot make a folder in '%s': %s", tmp, strerror(errno));
    }
    snprintf(l->path, sizeof l->path, "%s/run.socket", l->folder);
    return PL_OK;
}

void pl_listen_close(struct pl_listen *l) {
    if (!l->folder[0]) return;
    rmdir(l->folder); /* the port has removed its socket */
}
