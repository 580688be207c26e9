#define _GNU_SOURCE
#include "transport/http_follow.h"

#ifdef PL_HAVE_CURL

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transport/http_state.h"

#define FOLLOW_SILENCE_S 6L /* the server answers within two seconds */
#define FOLLOW_CONNECT_S 3L

struct pl_follower {
    struct pl_link *link; /* that has not joined: its address and certificates */
    char address[HTTP_PATH];
    char *bytes; /* [room] of the last answer */
    size_t room;
};

int pl_follower_open(const char *server, const char *keys, const char *address,
                     struct pl_follower **out, struct pl_why *why) {
    struct pl_client_link_conf conf = {.path = server, .keys = keys};
    struct pl_follower *f = *out = calloc(1, sizeof *f);
    if (!f) return pl_fail(why, PL_ENOMEM, "out of memory");
    snprintf(f->address, sizeof f->address, "%s", address);
    int rc = pl_http_prepare(&conf, "server", &f->link, why);
    if (rc) {
        pl_follower_close(f);
        *out = NULL;
    }
    return rc;
}

void pl_follower_close(struct pl_follower *f) {
    if (!f) return;
    pl_http_detach(f->link);
    free(f->bytes);
    free(f);
}

static enum pl_followed follow_answer(long status, const struct http_way *w,
                                      struct pl_copy_of_run *out) {
    out->epoch = w->known.epoch;
    out->version = w->version;
    out->workers = w->welcome.n_workers;
    memcpy(out->run, w->known.run, sizeof out->run);
    memcpy(out->secret, w->key, sizeof out->secret);
    snprintf(out->why, sizeof out->why, "%s", w->error);
    if (status == 200) return PL_FOLLOWED_COPY;
    if (status == 204) return PL_FOLLOWED_SAME;
    if (status == 410 && w->over) return PL_FOLLOWED_OVER;
    if (status == 0 || status == 503) return PL_FOLLOWED_GONE;
    snprintf(out->why, sizeof out->why, "it answers %ld: %.*s", status,
             (int)(w->n < 300 ? w->n : 300), w->body ? w->body : "");
    return PL_FOLLOWED_NO;
}

enum pl_followed pl_follower_next(struct pl_follower *f, uint64_t has, const char *run,
                                  uint64_t epoch, struct pl_copy_of_run *out) {
    struct http_way *w = &f->link->side;
    char url[2 * HTTP_PATH];
    pl_http_way_begin(w, "GET", "");
    snprintf(url, sizeof url, "%s%s", f->link->url, PL_WIRE_COPY);
    curl_easy_setopt(w->easy, CURLOPT_URL, url);
    curl_easy_setopt(w->easy, CURLOPT_CONNECTTIMEOUT, FOLLOW_CONNECT_S);
    curl_easy_setopt(w->easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(w->easy, CURLOPT_LOW_SPEED_TIME, FOLLOW_SILENCE_S);
    pl_http_way_add(w, PL_WIRE_ADDRESS, "%s", f->address);
    if (has != UINT64_MAX) {
        pl_http_way_add(w, PL_WIRE_SEEN, "%" PRIu64, has);
        pl_http_way_add(w, PL_WIRE_RUN, "%s", run);
        pl_http_way_add(w, PL_WIRE_EPOCH, "%" PRIu64, epoch);
    }
    w->kind = BODY_GROWS;
    w->body = f->bytes;
    w->room = f->room;
    long status = pl_http_way_perform(w);
    f->bytes = w->body;
    f->room = w->room;
    *out = (struct pl_copy_of_run){.bytes = w->body, .n = w->n};
    return follow_answer(status, w, out);
}

#else

int pl_follower_open(const char *server, const char *keys, const char *address,
                     struct pl_follower **out, struct pl_why *why) {
    (void)server, (void)keys, (void)address, (void)out;
    return pl_fail(why, PL_EMISSING,
                   "this build cannot follow a server: it has no libcurl; install the Debian "
                   "package libcurl4-gnutls-dev and build again");
}

void pl_follower_close(struct pl_follower *f) {
    (void)f;
}

enum pl_followed pl_follower_next(struct pl_follower *f, uint64_t has, const char *run,
                                  uint64_t epoch, struct pl_copy_of_run *out) {
    (void)f, (void)has, (void)run, (void)epoch, (void)out;
    return PL_FOLLOWED_NO;
}

#endif
