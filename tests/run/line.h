/* A connection to a server over which a test sends what it likes: plain, or with TLS. */
#ifndef PL_TESTS_RUN_LINE_H
#define PL_TESTS_RUN_LINE_H

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>
#ifdef PL_HAVE_GATEWAY
#include <gnutls/gnutls.h>
#endif

#include "folder.h"
#include "sys/certificates.h"
#include "test.h"

/* A folder with an authority and the certificate of a worker, which the first call makes. */
static inline void line_keys(char keys[300]) {
    struct pl_why why = {""};
    snprintf(keys, 300, "%s", folder_path("line"));
    if (access(keys, F_OK) == 0) return;
    int rc = pl_certificates_make(keys, "127.0.0.1", "alice", 1, &why);
    if (rc == PL_EMISSING) skip();
    if (rc) fail_msg("%s", why.text);
}

struct line {
    int sock;
    bool failed; /* the server hung up during the handshake */
#ifdef PL_HAVE_GATEWAY
    gnutls_session_t tls; /* NULL: plain */
    gnutls_certificate_credentials_t keys;
#endif
};

#ifdef PL_HAVE_GATEWAY

/* Whether to try again after this result. */
static inline bool line_again(const struct line *l, ssize_t rc, int ms) {
    bool sends = gnutls_record_get_direction(l->tls);
    struct pollfd p = {.fd = l->sock, .events = sends ? POLLOUT : POLLIN};
    return rc == GNUTLS_E_INTERRUPTED || (rc == GNUTLS_E_AGAIN && poll(&p, 1, ms) == 1);
}

static inline void line_secure(struct line *l, const char *keys) {
    char cert[400], key[400];
    int rc, yes = 1;
    fcntl(l->sock, F_SETFL, O_NONBLOCK);
    setsockopt(l->sock, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes); /* after the handshake */
    assert_int_equal(gnutls_certificate_allocate_credentials(&l->keys), 0);
    snprintf(cert, sizeof cert, "%s/worker.pem", keys);
    snprintf(key, sizeof key, "%s/worker-key.pem", keys);
    if (keys[0])
        assert_int_equal(
            gnutls_certificate_set_x509_key_file(l->keys, cert, key, GNUTLS_X509_FMT_PEM), 0);
    assert_int_equal(gnutls_init(&l->tls, GNUTLS_CLIENT | GNUTLS_NO_SIGNAL), 0);
    assert_int_equal(gnutls_set_default_priority(l->tls), 0);
    assert_int_equal(gnutls_credentials_set(l->tls, GNUTLS_CRD_CERTIFICATE, l->keys), 0);
    gnutls_transport_set_int(l->tls, l->sock);
    do rc = gnutls_handshake(l->tls);
    while (line_again(l, rc, 30000));
    l->failed = rc != 0;
}

#endif

/* With TLS if `keys` is not NULL: with the certificate in this folder, or none if it is "". It
 * trusts every server. */
static inline struct line line_open(int sock, const char *keys) {
    struct line l = {.sock = sock};
#ifdef PL_HAVE_GATEWAY
    if (keys) line_secure(&l, keys);
#endif
    return l;
}

static inline ssize_t line_send(struct line *l, const void *bytes, size_t n) {
    if (l->failed) return -1;
#ifdef PL_HAVE_GATEWAY
    ssize_t rc = 0;
    if (l->tls) {
        do rc = gnutls_record_send(l->tls, bytes, n);
        while (line_again(l, rc, 30000));
        return rc;
    }
#endif
    return send(l->sock, bytes, n, MSG_NOSIGNAL);
}

/* What comes within `ms`: more than 0 bytes, or 0 or less if nothing does. */
static inline ssize_t line_receive(struct line *l, void *bytes, size_t max, int ms) {
    if (l->failed) return -1;
#ifdef PL_HAVE_GATEWAY
    ssize_t rc = 0;
    if (l->tls) {
        do rc = gnutls_record_recv(l->tls, bytes, max);
        while (line_again(l, rc, ms));
        return rc;
    }
#endif
    struct pollfd p = {.fd = l->sock, .events = POLLIN};
    return poll(&p, 1, ms) == 1 ? recv(l->sock, bytes, max, 0) : -1;
}

/* Says that nothing more will come. */
static inline void line_finish(struct line *l) {
#ifdef PL_HAVE_GATEWAY
    if (l->tls && !l->failed) gnutls_bye(l->tls, GNUTLS_SHUT_WR);
    if (l->tls) return;
#endif
    shutdown(l->sock, SHUT_WR);
}

static inline void line_close(struct line *l) {
#ifdef PL_HAVE_GATEWAY
    if (l->tls) gnutls_deinit(l->tls);
    if (l->keys) gnutls_certificate_free_credentials(l->keys);
#endif
    close(l->sock);
}

#endif
