#include "sys/certificates.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

int pl_certificates_private(const char *key, struct pl_why *why) {
    struct stat s;
    if (stat(key, &s))
        return pl_fail(why, PL_EIO, "cannot read '%.300s': %s", key, strerror(errno));
    if (s.st_mode & 077)
        return pl_fail(why, PL_EUSAGE,
                       "the private key '%.300s' can be read by others; change that with chmod 600",
                       key);
    return PL_OK;
}

#ifdef PL_HAVE_GNUTLS

#include <arpa/inet.h>
#include <fcntl.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/output.h"

#define CERTIFICATES_PATH 500
#define CERTIFICATES_HOSTS "localhost,127.0.0.1"
#define CERTIFICATES_EARLY_S 300 /* valid before now: clocks differ */

/* A certificate and its key. */
struct identity {
    gnutls_x509_crt_t crt;
    gnutls_x509_privkey_t key;
};

static void certificates_identity_free(struct identity *i) {
    if (i->crt) gnutls_x509_crt_deinit(i->crt);
    if (i->key) gnutls_x509_privkey_deinit(i->key);
}

static int certificates_fail(int rc, const char *what, struct pl_why *why) {
    return pl_fail(why, PL_ERUN, "cannot make the certificate of %s: %s", what,
                   gnutls_strerror(rc));
}

/* A new key, and a certificate of it without a purpose. */
static int certificates_identity_new(struct identity *i, const char *name, int days) {
    unsigned char serial[16];
    time_t now = time(NULL);
    int rc = gnutls_x509_privkey_init(&i->key);
    if (!rc) rc = gnutls_x509_crt_init(&i->crt);
    if (!rc)
        rc = gnutls_x509_privkey_generate(i->key, GNUTLS_PK_ECDSA,
                                          GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0);
    if (!rc) rc = gnutls_rnd(GNUTLS_RND_NONCE, serial, sizeof serial);
    serial[0] &= 0x7f; /* positive */
    if (!rc) rc = gnutls_x509_crt_set_version(i->crt, 3);
    if (!rc) rc = gnutls_x509_crt_set_serial(i->crt, serial, sizeof serial);
    if (!rc) rc = gnutls_x509_crt_set_activation_time(i->crt, now - CERTIFICATES_EARLY_S);
    if (!rc) rc = gnutls_x509_crt_set_expiration_time(i->crt, now + (time_t)days * 86400);
    if (!rc) rc = gnutls_x509_crt_set_key(i->crt, i->key);
    if (!rc)
        rc = gnutls_x509_crt_set_dn_by_oid(i->crt, GNUTLS_OID_X520_COMMON_NAME, 0, name,
                                           (unsigned)strlen(name));
    return rc;
}

static int certificates_identity_sign(struct identity *i, const struct identity *by) {
    return gnutls_x509_crt_sign2(i->crt, by->crt, by->key, GNUTLS_DIG_SHA256, 0);
}

static int certificates_authority_new(struct identity *i, int days) {
    int rc = certificates_identity_new(i, "paceline authority", days);
    if (!rc) rc = gnutls_x509_crt_set_basic_constraints(i->crt, 1, 0);
    if (!rc) rc = gnutls_x509_crt_set_key_usage(i->crt, GNUTLS_KEY_KEY_CERT_SIGN);
    return rc ? rc : certificates_identity_sign(i, i);
}

/* A name or an address by which the server is reached. */
static int certificates_host(struct identity *i, const char *host) {
    unsigned char address[16];
    int family = strchr(host, ':') ? AF_INET6 : AF_INET;
    bool is_address = inet_pton(family, host, address) == 1;
    return gnutls_x509_crt_set_subject_alt_name(
        i->crt, is_address ? GNUTLS_SAN_IPADDRESS : GNUTLS_SAN_DNSNAME,
        is_address ? (const void *)address : host,
        is_address ? (family == AF_INET ? 4 : 16) : (unsigned)strlen(host), GNUTLS_FSAN_APPEND);
}

static int certificates_member_new(struct identity *i, const char *name, const char *hosts,
                                   int days, const struct identity *by) {
    int rc = certificates_identity_new(i, name, days);
    const char *purpose = hosts ? GNUTLS_KP_TLS_WWW_SERVER : GNUTLS_KP_TLS_WWW_CLIENT;
    if (!rc) rc = gnutls_x509_crt_set_basic_constraints(i->crt, 0, -1);
    if (!rc) rc = gnutls_x509_crt_set_key_usage(i->crt, GNUTLS_KEY_DIGITAL_SIGNATURE);
    if (!rc) rc = gnutls_x509_crt_set_key_purpose_oid(i->crt, purpose, 0);
    while (!rc && hosts && *hosts) {
        char host[256];
        size_t n = strcspn(hosts, ",");
        snprintf(host, sizeof host, "%.*s", (int)n, hosts);
        if (n > 0 && n < sizeof host) rc = certificates_host(i, host);
        hosts += n + (hosts[n] == ',');
    }
    return rc ? rc : certificates_identity_sign(i, by);
}

/* --- files ---------------------------------------------------------------------------------- */

/* What one call has made, which is removed if a later step fails. */
struct certificates_made {
    char folder[CERTIFICATES_PATH]; /* "": it was there before */
    char file[6][CERTIFICATES_PATH];
    int n;
};

static void certificates_undo(const struct certificates_made *made) {
    for (int i = 0; i < made->n; i++) unlink(made->file[i]);
    if (made->folder[0]) rmdir(made->folder);
}

static int certificates_folder(struct certificates_made *made, const char *folder,
                               struct pl_why *why) {
    if (mkdir(folder, 0700)) return pl_output_no_folder("folder", folder, why);
    snprintf(made->folder, sizeof made->folder, "%s", folder);
    return PL_OK;
}

static int certificates_write(struct certificates_made *made, const char *folder, const char *name,
                              const gnutls_datum_t *text, bool secret, struct pl_why *why) {
    char *path = made->file[made->n];
    snprintf(path, CERTIFICATES_PATH, "%s/%s", folder, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, secret ? 0600 : 0644);
    if (fd < 0) return pl_fail_create(why, "certificate", path);
    made->n++;
    bool ok = write(fd, text->data, text->size) == (ssize_t)text->size;
    if (close(fd) != 0) ok = false;
    return ok ? PL_OK : pl_fail(why, PL_EIO, "cannot write '%.300s'", path);
}

static int certificates_identity_write(struct certificates_made *made, const struct identity *i,
                                       const char *folder, const char *name, struct pl_why *why) {
    gnutls_datum_t crt = {NULL, 0}, key = {NULL, 0};
    char file[64];
    int rc = gnutls_x509_crt_export2(i->crt, GNUTLS_X509_FMT_PEM, &crt);
    if (!rc) rc = gnutls_x509_privkey_export2(i->key, GNUTLS_X509_FMT_PEM, &key);
    if (rc) rc = certificates_fail(rc, name, why);
    snprintf(file, sizeof file, "%s.pem", name);
    if (!rc) rc = certificates_write(made, folder, file, &crt, false, why);
    snprintf(file, sizeof file, "%s-key.pem", name);
    if (!rc) rc = certificates_write(made, folder, file, &key, true, why);
    gnutls_free(crt.data);
    gnutls_free(key.data);
    return rc;
}

static int certificates_authority_read(struct identity *i, const char *folder, gnutls_datum_t *pem,
                                       struct pl_why *why) {
    char path[CERTIFICATES_PATH];
    gnutls_datum_t key = {NULL, 0};
    snprintf(path, sizeof path, "%s/ca-key.pem", folder);
    int rc = pl_certificates_private(path, why);
    if (rc) return rc;
    rc = gnutls_load_file(path, &key);
    snprintf(path, sizeof path, "%s/ca.pem", folder);
    if (!rc) rc = gnutls_load_file(path, pem);
    if (!rc) rc = gnutls_x509_crt_init(&i->crt);
    if (!rc) rc = gnutls_x509_privkey_init(&i->key);
    if (!rc) rc = gnutls_x509_crt_import(i->crt, pem, GNUTLS_X509_FMT_PEM);
    if (!rc) rc = gnutls_x509_privkey_import(i->key, &key, GNUTLS_X509_FMT_PEM);
    gnutls_free(key.data);
    return rc ? pl_fail(why, PL_EDATA, "cannot read the authority of '%.200s': %s", folder,
                        gnutls_strerror(rc))
              : PL_OK;
}

/* --- making --------------------------------------------------------------------------------- */

/* One more worker, in a folder of its own. */
static int certificates_more(const char *folder, const char *worker, int days, struct pl_why *why) {
    struct identity authority = {0}, member = {0};
    struct certificates_made done = {0};
    gnutls_datum_t pem = {NULL, 0};
    struct stat st;
    char own[CERTIFICATES_PATH];
    snprintf(own, sizeof own, "%s/%s", folder, worker);
    int rc = certificates_authority_read(&authority, folder, &pem, why);
    int made = rc ? rc : certificates_member_new(&member, worker, NULL, days, &authority);
    if (!rc && made) rc = certificates_fail(made, worker, why);
    if (!rc && lstat(own, &st) == 0)
        rc = pl_fail(why, PL_EUSAGE,
                     "worker '%s' has a certificate already, in '%.300s'; give the next one "
                     "another name",
                     worker, own);
    if (!rc) rc = certificates_folder(&done, own, why);
    if (!rc) rc = certificates_write(&done, own, "ca.pem", &pem, false, why);
    if (!rc) rc = certificates_identity_write(&done, &member, own, "worker", why);
    if (rc) certificates_undo(&done);
    gnutls_free(pem.data);
    certificates_identity_free(&member);
    certificates_identity_free(&authority);
    return rc;
}

/* Refuses a folder in which one of the six files exists. */
static int certificates_look(const char *folder, struct pl_why *why) {
    static const char *const names[] = {"ca", PL_CERTIFICATES_SERVER, "worker"};
    char path[CERTIFICATES_PATH];
    struct stat st;
    for (int i = 0; i < 6; i++) {
        snprintf(path, sizeof path, "%s/%s%s.pem", folder, names[i / 2], i % 2 ? "-key" : "");
        if (lstat(path, &st) == 0)
            return pl_fail(why, PL_EIO,
                           "'%.300s' already exists and will not be overwritten; choose another "
                           "folder",
                           path);
    }
    return PL_OK;
}

/* The authority comes last: a folder that has ca-key.pem has everything. */
static int certificates_all(const char *folder, const char *hosts, const char *worker, int days,
                            struct pl_why *why) {
    struct identity authority = {0}, server = {0}, member = {0};
    struct certificates_made done = {0};
    struct stat st;
    int rc = certificates_look(folder, why);
    if (rc) return rc;
    int made = certificates_authority_new(&authority, days);
    if (!made)
        made = certificates_member_new(&server, PL_CERTIFICATES_SERVER, hosts, days, &authority);
    if (!made) made = certificates_member_new(&member, worker, NULL, days, &authority);
    rc = made ? certificates_fail(made, "the server", why) : PL_OK;
    if (!rc && stat(folder, &st) != 0) rc = certificates_folder(&done, folder, why);
    if (!rc) rc = certificates_identity_write(&done, &server, folder, PL_CERTIFICATES_SERVER, why);
    if (!rc) rc = certificates_identity_write(&done, &member, folder, "worker", why);
    if (!rc) rc = certificates_identity_write(&done, &authority, folder, "ca", why);
    if (rc) certificates_undo(&done);
    certificates_identity_free(&member);
    certificates_identity_free(&server);
    certificates_identity_free(&authority);
    return rc;
}

static bool certificates_named(const char *s) {
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-");
    return n > 0 && n < 60 && !s[n];
}

int pl_certificates_make(const char *folder, const char *hosts, const char *worker, int days,
                         struct pl_why *why) {
    char path[CERTIFICATES_PATH];
    struct stat st;
    if (!certificates_named(worker))
        return pl_fail(why, PL_EUSAGE,
                       "a worker's name has 1 to 59 letters, digits, _ and -, unlike '%.80s'",
                       worker);
    if (strcmp(worker, PL_CERTIFICATES_SERVER) == 0)
        return pl_fail(why, PL_EUSAGE,
                       "a worker cannot be called '%s': a standby is known by that name", worker);
    if (strlen(folder) > CERTIFICATES_PATH - 100)
        return pl_fail(why, PL_EUSAGE, "the name of the folder is too long");
    snprintf(path, sizeof path, "%s/ca-key.pem", folder);
    if (stat(path, &st))
        return certificates_all(folder, hosts ? hosts : CERTIFICATES_HOSTS, worker, days, why);
    if (hosts)
        return pl_fail(why, PL_EUSAGE,
                       "'%.300s' has the certificate of a server already, whose hosts cannot "
                       "change; make another folder for other hosts",
                       folder);
    return certificates_more(folder, worker, days, why);
}

#else

int pl_certificates_make(const char *folder, const char *hosts, const char *worker, int days,
                         struct pl_why *why) {
    (void)folder, (void)hosts, (void)worker, (void)days;
    return pl_fail(why, PL_EMISSING,
                   "this build cannot make certificates; install the Debian package "
                   "libgnutls28-dev and build again");
}

#endif
