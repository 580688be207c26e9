/* Who may join, and how it gets its seat.
 *
 * Threads: the request's. */
#define _GNU_SOURCE
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run/gateway_state.h"
#include "sys/certificates.h"

static bool join_allowed(const struct pl_gateway *g, const char *name) {
    size_t n = strlen(name);
    bool standby = strcmp(name, PL_CERTIFICATES_SERVER) == 0; /* it has the server's certificate */
    if (!g->allowed || standby) return true;
    for (const char *at = g->allowed; (at = strstr(at, name)); at++)
        if ((at == g->allowed || at[-1] == '\n') && (at[n] == '\n' || !at[n])) return true;
    return false;
}

/* The library asks for a certificate and does not insist. */
const char *pl_gateway_stranger(struct request *r) {
    if (!r->gateway->conf.keys) return NULL;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(r->connection, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    gnutls_session_t session = info ? (gnutls_session_t)info->tls_session : NULL;
    unsigned status = 1, n = 0;
    const gnutls_datum_t *cert = session ? gnutls_certificate_get_peers(session, &n) : NULL;
    if (!cert || n == 0) return "it has no certificate";
    if (gnutls_certificate_verify_peers2(session, &status) || status)
        return status & GNUTLS_CERT_EXPIRED ? "its certificate has expired"
                                            : "its certificate is not of this run's authority";
    gnutls_x509_crt_t crt;
    size_t size = sizeof r->name;
    if (gnutls_x509_crt_init(&crt)) return "out of memory";
    int rc = gnutls_x509_crt_import(crt, cert, GNUTLS_X509_FMT_DER);
    if (!rc)
        rc = gnutls_x509_crt_get_dn_by_oid(crt, GNUTLS_OID_X520_COMMON_NAME, 0, 0, r->name, &size);
    gnutls_x509_crt_deinit(crt);
    if (rc) return "its certificate has no name";
    for (char *c = r->name; *c; c++)
        if (*c < '!' || *c > '~') *c = '?';
    return join_allowed(r->gateway, r->name) ? NULL : "its name is not in the list of allowed ones";
}

/* What a client tells about the server that it had before. Why it must not join this one; or NULL,
 * and the newest version that an earlier server of this run showed it, or 0. */
static const char *join_past(struct request *r, uint64_t *lost) {
    struct pl_gateway *g = r->gateway;
    char run[PL_RUN_ID_MAX];
    bool bad = false;
    uint64_t epoch = pl_gateway_said_whole(r, PL_WIRE_EPOCH, UINT64_MAX, &bad);
    uint64_t seen = pl_gateway_said_whole(r, PL_WIRE_SEEN, UINT64_MAX, &bad);
    if (!pl_gateway_said_text(r, PL_WIRE_RUN, run, sizeof run) || bad)
        return "a header makes no sense";
    if (!run[0] || strcmp(run, g->conf.run) != 0)
        return NULL; /* of another run, or it was nowhere */
    if (epoch > g->conf.epoch) return "it had a server of this run that came after this one";
    *lost = epoch < g->conf.epoch ? seen : 0;
    return NULL;
}

/* What a client says about itself; false: that makes no sense. */
static bool join_said(const struct request *r, struct pl_newcomer *c) {
    char kind[16];
    bool bad = false;
    c->dim = pl_gateway_said_whole(r, PL_WIRE_DIM, UINT64_C(1) << 40, &bad);
    c->can = pl_gateway_said_whole(r, PL_WIRE_CAN, UINT64_MAX, &bad);
    c->seat = pl_gateway_said_whole(r, PL_WIRE_NUMBER, 1000000, &bad);
    if (!pl_gateway_said_text(r, PL_WIRE_FINGERPRINT, c->fingerprint, sizeof c->fingerprint) ||
        !pl_gateway_said_text(r, PL_WIRE_TOKEN, c->token, sizeof c->token) ||
        !pl_gateway_said_text(r, PL_WIRE_JOB, c->job, sizeof c->job) ||
        !pl_gateway_said_text(r, PL_WIRE_KIND, kind, sizeof kind))
        bad = true;
    c->kind = strcmp(kind, "evaluator") == 0 ? PL_CLIENT_EVALUATOR : PL_CLIENT_WORKER;
    return !bad && (!kind[0] || c->kind == PL_CLIENT_EVALUATOR || strcmp(kind, "worker") == 0);
}

enum MHD_Result pl_gateway_join(struct request *r) {
    struct pl_gateway *g = r->gateway;
    struct pl_client_link_conf conf = {.path = g->conf.path};
    const struct pl_newcomer *c = &conf.client;
    struct pl_why why = {""};
    bool bad = false;
    if (pl_gateway_said_whole(r, PL_WIRE_VERSION, 1000, &bad) != PL_WIRE_PROTOCOL)
        return pl_gateway_answer(r, MHD_HTTP_BAD_REQUEST,
                                 "this server speaks protocol 1; say so in the "
                                 "header Paceline-Protocol");
    if (bad || !join_said(r, &conf.client))
        return pl_gateway_answer(r, MHD_HTTP_BAD_REQUEST, "a header makes no sense");
    uint64_t lost = 0;
    const char *past = join_past(r, &lost);
    if (past) {
        pl_gateway_report(r, past);
        return pl_gateway_answer(r, MHD_HTTP_FORBIDDEN, past);
    }
    struct seat *s = calloc(1, sizeof *s);
    if (!s) return pl_gateway_answer(r, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory");
    struct pl_welcome welcome;
    if (pl_client_link_connect(&conf, &s->link, &welcome, &why)) {
        free(s);
        const char *sentence = strstr(why.text, " refuses: ");
        pl_gateway_report(r, sentence ? sentence + 10 : why.text);
        return pl_gateway_answer(r, MHD_HTTP_FORBIDDEN, sentence ? sentence + 10 : why.text);
    }
    s->gateway = g;
    s->seen = lost;
    s->kind = c->kind;
    s->speaks = welcome.speaks;
    s->worker = welcome.worker;
    s->dim = welcome.dim;
    s->presence.seen_ns = pl_now_ns();
    memcpy(s->name, r->name, sizeof s->name);
    s->presence.told_name = !s->name[0]; /* otherwise the run is to know it */
    if (s->kind == PL_CLIENT_EVALUATOR) s->room = malloc(s->dim * sizeof *s->room);
    int worker = s->kind == PL_CLIENT_WORKER ? s->worker : -1;
    if (!pl_gateway_key(g, worker, s->key) || (s->kind == PL_CLIENT_EVALUATOR && !s->room)) {
        pl_gateway_seat_free(s);
        return pl_gateway_answer(r, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory");
    }
    pl_log_detail(g->conf.log, "%s %d joined over the network%s%s",
                  s->kind == PL_CLIENT_EVALUATOR ? "evaluator" : "worker", s->worker + 1,
                  s->name[0] ? " as " : "", s->name);
    pl_lock_enter(g->lock);
    s->next = g->seats;
    /* if the run is over, its first request hears that, unless it comes too late */
    if (g->closed) s->life = SEAT_ENDED;
    g->seats = s;
    s->n_requests++;
    r->seat = s;
    pl_lock_leave(g->lock);
    if (s->name[0]) atomic_store(&g->moved, true);
    pl_gateway_ring(g);
    return pl_gateway_answer_seat(r, s, &welcome);
}
