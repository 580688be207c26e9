/* Joining a server over HTTP, and leaving it.
 *
 * Threads: the owner's. */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/seconds.h"
#include "sys/address.h"
#include "sys/certificates.h"
#include "sys/thread.h"
#include "transport/http_state.h"

#define JOIN_LEAVE_S 5L /* for a result that is on its way, when leaving */
#define JOIN_DIM_MAX (UINT64_C(1) << 40)
#define JOIN_QUICK_S 3L /* for a connection at first, if there are other addresses to try */
#define JOIN_QUICK 4    /* tries */
#define JOIN_BEAT_S 60L /* between two beats at most, whatever the server says */

/* Says good-bye. A result that is on its way arrives before that. */
static void join_leave(struct pl_link *l) {
    char answer[PL_WORD_MAX];
    pl_lock_enter(l->lock);
    uint64_t task = l->next.has_result ? l->next.result.task : 0;
    bool voted = l->election.voted;
    pl_lock_leave(l->lock);
    pl_http_way_begin(&l->side, "DELETE", "");
    if (task) pl_http_way_add(&l->side, PL_WIRE_TASK, "%" PRIu64, task);
    if (voted) pl_http_knows(l, &l->side); /* and may be counted */
    curl_easy_setopt(l->side.easy, CURLOPT_TIMEOUT, JOIN_LEAVE_S);
    l->side.body = answer;
    l->side.room = sizeof answer;
    pl_http_way_perform(&l->side);
}

void pl_http_detach(struct pl_link *l) {
    if (!l) return;
    if (l->key[0] && l->ending.how <= END_LEFT) join_leave(l);
    atomic_store(&l->stop, true);
    pl_futex_ring(&l->bell);
    if (l->talk.multi) curl_multi_wakeup(l->talk.multi);
    if (l->events.multi) curl_multi_wakeup(l->events.multi);
    pl_thread_join(l->talker);
    pl_thread_join(l->listener);
    pl_http_way_close(&l->talk);
    pl_http_way_close(&l->events);
    pl_http_way_close(&l->side);
    pl_lock_free(l->lock);
    for (int i = 0; i < 2; i++) {
        free(l->vectors.in[i]);
        free(l->vectors.half[i]);
    }
    free(l->vectors.out);
    free(l->final.w);
    free(l);
}

/* The certificates of a folder. */
static int http_keys(struct pl_link *l, const char *keys, const char *as, struct pl_why *why) {
    struct http_keys *k = &l->keys;
    bool tls = strncmp(l->url, "https:", 6) == 0;
    bool has_keys = keys && *keys;
    if (!tls && has_keys)
        return pl_fail(why, PL_EUSAGE,
                       "%s is not encrypted, so certificates are of no use; write https://, or "
                       "leave out --keys (in Python PACELINE_KEYS)",
                       l->url);
    if (!tls) return PL_OK;
    if (!has_keys)
        return pl_fail(why, PL_EUSAGE,
                       "%s needs certificates; make them with paceline keys, and give their folder "
                       "by --keys, or in Python by PACELINE_KEYS",
                       l->url);
    if ((size_t)snprintf(k->ca, sizeof k->ca, "%s/ca.pem", keys) >= sizeof k->ca ||
        (size_t)snprintf(k->cert, sizeof k->cert, "%s/%s.pem", keys, as) >= sizeof k->cert ||
        (size_t)snprintf(k->key, sizeof k->key, "%s/%s-key.pem", keys, as) >= sizeof k->key)
        return pl_fail(why, PL_EUSAGE, "the name of the folder of keys is too long");
    return pl_certificates_private(k->key, why);
}

/* The next address of the list, whose addresses are like the first one: https or http. */
static void http_turn(struct pl_link *l) {
    struct http_servers *s = &l->servers;
    const char *at = s->list + s->next;
    size_t n = strcspn(at, ",");
    bool whole = strncmp(at, "http", 4) == 0 && strstr(at, "://");
    const char *scheme = whole ? "" : strncmp(s->list, "https:", 6) == 0 ? "https://" : "http://";
    snprintf(l->url, sizeof l->url, "%s%.*s", scheme, (int)n, at);
    for (size_t end = strlen(l->url); end > 0 && l->url[end - 1] == '/';) l->url[--end] = '\0';
    s->next = at[n] ? s->next + n + 1 : 0;
}

/* Asks for a seat once. The status, as pl_http_way_perform(). */
static long http_ask(struct pl_link *l, const struct pl_newcomer *c, int n_tries,
                     char about[PL_ABOUT_MAX]) {
    struct http_way *w = &l->side;
    pl_http_way_begin(w, "POST", "");
    if (n_tries < JOIN_QUICK && strchr(l->servers.list, ','))
        curl_easy_setopt(w->easy, CURLOPT_CONNECTTIMEOUT, JOIN_QUICK_S);
    pl_http_way_add(w, PL_WIRE_VERSION, "%d", PL_WIRE_PROTOCOL);
    pl_http_way_add(w, PL_WIRE_KIND, "%s", c->kind == PL_CLIENT_EVALUATOR ? "evaluator" : "worker");
    pl_http_way_add(w, PL_WIRE_DIM, "%zu", c->dim);
    pl_http_way_add(w, PL_WIRE_CAN, "%" PRIu64, c->can);
    pl_http_way_add(w, PL_WIRE_NUMBER, "%" PRIu64, c->seat);
    if (c->fingerprint[0]) pl_http_way_add(w, PL_WIRE_FINGERPRINT, "%s", c->fingerprint);
    if (c->token[0]) pl_http_way_add(w, PL_WIRE_TOKEN, "%s", c->token);
    if (c->job[0]) pl_http_way_add(w, PL_WIRE_JOB, "%s", c->job);
    if (l->past && l->past->run[0]) {
        pl_http_way_add(w, PL_WIRE_RUN, "%s", l->past->run);
        pl_http_way_add(w, PL_WIRE_EPOCH, "%" PRIu64, l->past->epoch);
        pl_http_way_add(w, PL_WIRE_SEEN, "%" PRIu64, l->past->seen);
    }
    pl_http_way_send(w, NULL, 0);
    w->body = about;
    w->room = PL_ABOUT_MAX - 1;
    w->welcome = (struct pl_welcome){0};
    long status = pl_http_way_perform(w);
    about[w->n] = '\0';
    return status;
}

/* What may be wrong if somebody is there who does not answer; "" if nobody is. */
static const char *http_hint(const struct pl_link *l) {
    if (l->side.silence != HTTP_FOREIGN) return "";
    return l->keys.ca[0]
               ? "; it does not speak HTTPS: was it started without --keys?"
               : "; it does not speak HTTP: was it started with --keys? Then give them here";
}

/* Why the server is not trusted, and what to do if its certificate is for another host. */
static int http_stranger(const struct pl_link *l, struct pl_why *why) {
    char host[256];
    const char *from = strstr(l->url, "://"), *sentence = l->side.error;
    from = from ? from + 3 : l->url;
    size_t bracket = *from == '[';
    snprintf(host, sizeof host, "%.*s", (int)strcspn(from + bracket, bracket ? "]" : ":/"),
             from + bracket);
    int rc =
        pl_fail(why, PL_EUSAGE, "the server at %.200s is not trusted: %.200s", l->url, sentence);
    if (strstr(sentence, "match") && why) /* the words of GnuTLS and OpenSSL */
        pl_append(why->text, sizeof why->text,
                  "; make keys for this host, in a new folder: paceline keys --out DIR --host %s",
                  host);
    return rc;
}

/* Whether it is too late to try again, with the reason; otherwise waits a little, and turns to the
 * next address. */
static int http_again(struct pl_link *l, const struct pl_client_link_conf *conf, bool first,
                      uint64_t end, struct pl_why *why) {
    uint64_t now = pl_now_ns();
    bool interrupted = conf->stop && conf->stop(conf->ctx);
    if (l->side.silence == HTTP_STRANGER && !strchr(l->servers.list, ',')) /* there is no other */
        return http_stranger(l, why);
    if (now >= end)
        return pl_fail(why, PL_EIO, "no server answers at %.200s: %.200s%s", l->url, l->side.error,
                       http_hint(l));
    if (first && conf->waiting) {
        char text[400];
        snprintf(text, sizeof text, "no server answers at %.200s yet, waiting up to %.3g s%s",
                 l->url, pl_seconds(conf->wait_ns), http_hint(l));
        conf->waiting(conf->ctx, text);
    }
    if (!interrupted)
        pl_nap_on(&l->bell, atomic_load(&l->bell), now, pl_until(now, 4 * HTTP_BACK_OFF_NS),
                  &interrupted);
    if (interrupted) return pl_fail(why, PL_EINTR, "interrupted while waiting for %.200s", l->url);
    http_turn(l);
    return PL_OK;
}

/* Whether a server of the same run came after this one. */
static bool http_outdated(const struct pl_link *l) {
    const struct pl_past *past = l->past;
    return past && strcmp(past->run, l->side.known.run) == 0 && l->side.known.epoch < past->epoch;
}

static void http_remember(struct pl_link *l) {
    struct pl_past *past = l->past;
    l->known = l->side.known;
    if (l->known.beat_s < PL_WIRE_BEAT_S) l->known.beat_s = PL_WIRE_BEAT_S;
    if (l->known.beat_s > JOIN_BEAT_S) l->known.beat_s = JOIN_BEAT_S;
    if (!past) return;
    past->seen = 0; /* the server knows of it */
    memcpy(past->run, l->known.run, sizeof past->run);
    past->epoch = l->known.epoch;
}

/* Tries until the server is there. */
static int http_join(struct pl_link *l, const struct pl_client_link_conf *conf,
                     struct pl_welcome *welcome, struct pl_why *why) {
    uint64_t end = pl_until(pl_now_ns(), conf->wait_ns);
    char about[PL_ABOUT_MAX];
    l->joining = conf;
    for (int n_tries = 0;; n_tries++) {
        long status = http_ask(l, &conf->client, n_tries, about);
        if (status == 201) break;
        if (status != 0 && status != 503)
            return pl_fail(why, PL_ERUN, "the server at %.100s refuses: %.380s", l->url,
                           about[0] ? about : "it gives no reason");
        int rc = http_again(l, conf, n_tries == 0, end, why);
        if (rc) return rc;
    }
    l->joining = NULL;
    if (http_outdated(l))
        return pl_fail(why, PL_ERUN,
                       "the server at %.200s has epoch %" PRIu64 " of this run, and one with epoch "
                       "%" PRIu64 " came after it; join that one, or restart this worker",
                       l->url, l->side.known.epoch, l->past->epoch);
    http_remember(l);
    *welcome = l->side.welcome;
    snprintf(welcome->about, sizeof welcome->about, "%s", about);
    memcpy(l->key, l->side.key, sizeof l->key);
    l->dim = welcome->dim;
    size_t dim = conf->client.dim;
    if (strlen(l->key) != PL_WIRE_KEY || l->dim < 1 || l->dim > JOIN_DIM_MAX ||
        (dim > 0 && dim != l->dim) || welcome->worker < 0)
        return pl_fail(why, PL_EDATA, "%.200s is not a paceline server of this protocol", l->url);
    return PL_OK;
}

static int http_start(struct pl_link *l, const struct pl_client_link_conf *conf) {
    size_t bytes = l->dim * sizeof(float);
    l->vectors.room = bytes = bytes > PL_WORD_MAX ? bytes : PL_WORD_MAX; /* or a sentence */
    for (int i = 0; i < 2; i++)
        if (!(l->vectors.in[i] = malloc(bytes))) return PL_ENOMEM;
    if (!(l->vectors.out = malloc(bytes))) return PL_ENOMEM;
    if (conf->client.kind == PL_CLIENT_EVALUATOR) return PL_OK; /* it asks when it wants to */
    l->final.wanted = conf->wants_final;
    int rc = pl_thread_start(pl_http_talk, l, &l->talker);
    return rc ? rc : pl_thread_start(pl_http_listen, l, &l->listener);
}

/* Waits until events come: from then on the server knows at once if this worker is gone. */
static int http_hears(struct pl_link *l, struct pl_why *why) {
    for (bool interrupted = false; !interrupted;) {
        unsigned seen = atomic_load(&l->bell);
        pl_lock_enter(l->lock);
        bool hears = l->hears;
        pl_lock_leave(l->lock);
        if (hears || pl_http_ended(l)) return PL_OK; /* whoever asks for an order learns why */
        pl_nap_on(&l->bell, seen, pl_now_ns(), PL_FOREVER, &interrupted);
    }
    return pl_fail(why, PL_EINTR, "interrupted while joining %.200s", l->url);
}

/* A link that has not joined. */
int pl_http_prepare(const struct pl_client_link_conf *conf, const char *as, struct pl_link **out,
                    struct pl_why *why) {
    const char *last = conf->past ? conf->past->server : "";
    struct pl_link *l = *out = calloc(1, sizeof *l);
    int rc = PL_OK;
    if (!l) return pl_fail(why, PL_ENOMEM, "out of memory");
    l->task.cancel.flag = &l->task.cancelled;
    l->lock = pl_lock_new();
    l->past = conf->past;
    if ((size_t)snprintf(l->servers.list, sizeof l->servers.list, "%s%s%s", last,
                         last[0] ? "," : "", conf->path) >= sizeof l->servers.list ||
        strlen(conf->path) >= sizeof l->url)
        rc = pl_fail(why, PL_EUSAGE, "the address of the server is too long");
    if (!rc) rc = pl_address_check(conf->path, why);
    if (!rc && (!l->lock || pl_http_way_open(&l->talk, l) || pl_http_way_open(&l->events, l) ||
                pl_http_way_open(&l->side, l)))
        rc = pl_fail(why, PL_ENOMEM, "out of memory");
    if (rc) return rc;
    http_turn(l);
    return http_keys(l, conf->keys, as, why);
}

int pl_http_connect(const struct pl_client_link_conf *conf, struct pl_link **out,
                    struct pl_welcome *welcome, struct pl_why *why) {
    struct pl_link *l;
    int rc = pl_http_prepare(conf, "worker", &l, why);
    if (!rc) rc = http_join(l, conf, welcome, why);
    if (!rc && http_start(l, conf))
        rc = pl_fail(why, PL_ENOMEM, "out of memory for %zu parameters", l->dim);
    if (!rc && l->listener) rc = http_hears(l, why);
    if (rc)
        pl_http_detach(l);
    else
        *out = l;
    return rc;
}

int pl_http_fetch(const struct pl_client_link_conf *conf, const char *path, char *out, size_t max,
                  struct pl_why *why) {
    struct pl_link *l;
    uint64_t end = pl_until(pl_now_ns(), conf->wait_ns);
    int rc = pl_http_prepare(conf, "worker", &l, why);
    long status = 0;
    if (!rc) l->joining = conf;
    for (bool first = true; !rc && status == 0; first = false) {
        char url[2 * HTTP_PATH];
        pl_http_way_begin(&l->side, "GET", "");
        snprintf(url, sizeof url, "%s%s", l->url, path);
        curl_easy_setopt(l->side.easy, CURLOPT_URL, url);
        l->side.body = out;
        l->side.room = max - 1;
        status = pl_http_way_perform(&l->side);
        out[l->side.n] = '\0';
        if (status == 503) status = 0;
        if (status == 0) rc = http_again(l, conf, first, end, why);
    }
    if (!rc && status != 200)
        rc = pl_fail(why, PL_ERUN, "the server at %.100s refuses: %.300s", l->url, out);
    pl_http_detach(l);
    return rc;
}
