/* Workers over HTTP and HTTPS: what bare sockets and bare TLS take for the same bytes on loopback,
 * and what we take; and how long until the death of a worker is known.
 *
 * A worker is a process that has been forked before there were threads. It has three threads, which
 * answer a vector with a vector: over HTTP, over a socket, and over a socket with TLS. So both
 * sides are timed in turn, repetition by repetition. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <gnutls/gnutls.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"
#include "run/gateway.h"
#include "sys/certificates.h"
#include "sys/futex.h"
#include "sys/thread.h"
#include "transport/client_link.h"

#define WORKERS 8
#define REPEATS 15

static char folder[64], path[100], keys[100];
static size_t dim;

/* --- the bare side ------------------------------------------------------------------------ */

struct wire {
    int sock;
    gnutls_session_t tls; /* NULL: none */
    char *buffer;
};

static void wire_move(struct wire *w, bool sends) {
    size_t n = dim * sizeof(float);
    for (size_t at = 0; at < n;) {
        size_t most = n - at < 65536 ? n - at : 65536;
        ssize_t k;
        if (w->tls)
            k = sends ? gnutls_record_send(w->tls, w->buffer + at, most)
                      : gnutls_record_recv(w->tls, w->buffer + at, most);
        else
            k = sends ? send(w->sock, w->buffer + at, n - at, MSG_NOSIGNAL)
                      : recv(w->sock, w->buffer + at, n - at, 0);
        if (k == GNUTLS_E_AGAIN || k == GNUTLS_E_INTERRUPTED) continue;
        if (k <= 0) _exit(0); /* the other side is gone */
        at += (size_t)k;
    }
}

static void wire_tls(struct wire *w, bool server) {
    gnutls_certificate_credentials_t c;
    char crt[150], key[150];
    snprintf(crt, sizeof crt, "%s/%s.pem", keys, server ? "server" : "worker");
    snprintf(key, sizeof key, "%s/%s-key.pem", keys, server ? "server" : "worker");
    bench_need(!gnutls_certificate_allocate_credentials(&c) &&
                   !gnutls_certificate_set_x509_key_file(c, crt, key, GNUTLS_X509_FMT_PEM) &&
                   !gnutls_init(&w->tls, server ? GNUTLS_SERVER : GNUTLS_CLIENT) &&
                   !gnutls_priority_set_direct(w->tls, "NORMAL:-VERS-ALL:+VERS-TLS1.3", NULL) &&
                   !gnutls_credentials_set(w->tls, GNUTLS_CRD_CERTIFICATE, c),
               "no TLS");
    gnutls_transport_set_int(w->tls, w->sock);
    int rc;
    do rc = gnutls_handshake(w->tls);
    while (rc < 0 && !gnutls_error_is_fatal(rc));
    bench_need(rc == 0, "no handshake");
}

static struct wire wire_new(int sock, bool tls, bool server) {
    struct wire w = {.sock = sock, .buffer = (char *)bench_floats(dim)};
    int on = 1;
    setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (tls) wire_tls(&w, server);
    return w;
}

static int wire_listen(int *port) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t n = sizeof a;
    int sock = socket(AF_INET, SOCK_STREAM, 0);
    bench_need(!bind(sock, (struct sockaddr *)&a, sizeof a) && !listen(sock, 2 * WORKERS) &&
                   !getsockname(sock, (struct sockaddr *)&a, &n),
               "no socket");
    *port = ntohs(a.sin_port);
    return sock;
}

/* --- a worker ----------------------------------------------------------------------------- */

struct far {
    char url[64];
    bool tls;
    int port; /* of the bare side */
};

static void far_echo(void *arg) {
    const struct far *f = arg;
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)f->port),
                            .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int sock = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(sock, (struct sockaddr *)&a, sizeof a)) _exit(1);
    struct wire w = wire_new(sock, f->tls, false);
    for (;;) {
        wire_move(&w, false);
        wire_move(&w, true);
    }
}

static void far_work(const struct far *f) {
    struct pl_client_link_conf conf = {
        .path = f->url, .keys = keys, .wait_ns = UINT64_C(10000000000)};
    struct pl_welcome welcome;
    struct pl_link *l;
    struct pl_thread *bare;
    struct pl_order o;
    struct pl_why why = {""};
    if (pl_thread_start(far_echo, (void *)(uintptr_t)f, &bare)) _exit(1);
    if (pl_http.join->connect(&conf, &l, &welcome, &why)) {
        fprintf(stderr, "%s\n", why.text);
        _exit(1);
    }
    while (pl_http.link.pull(l, &o) == 0)
        pl_http.link.push(l, &(struct pl_result){.task = o.task, .samples = 1, .loss = 0});
    _exit(0);
}

/* --- the server --------------------------------------------------------------------------- */

static struct pl_port *port;
static float *version, *slot[WORKERS];

static void our_round(int n, uint64_t task) {
    struct pl_input input = {.v = version, .c = 1, .writer = -1};
    struct pl_news news;
    for (int w = 0; w < n; w++)
        pl_shm.port.tell(
            port, w,
            &(struct pl_order){.task = task, .n_inputs = 1, .input = &input, .out = slot[w]});
    for (int done = 0; done < n; done += news.kind == PL_NEWS_RESULT)
        pl_shm.port.news(port, PL_FOREVER, &news);
}

static void wire_round(void *w) {
    wire_move(w, true);
    wire_move(w, false);
}

static void bare_round(struct wire *w, int n) {
    struct pl_thread *thread[WORKERS];
    for (int i = 1; i < n; i++)
        bench_need(!pl_thread_start(wire_round, &w[i], &thread[i]), "no thread");
    wire_round(&w[0]);
    for (int i = 1; i < n; i++) pl_thread_join(thread[i]);
}

/* How long until the gateway says that this worker is away. */
static double death(struct pl_gateway *g, pid_t pid) {
    int worker;
    bool away = false;
    while (pl_gateway_moved(g, &worker, &away)) continue;
    double start = bench_now();
    kill(pid, SIGKILL);
    while (!away && bench_now() < start + 30) {
        pl_gateway_moved(g, &worker, &away);
        usleep(200);
    }
    return bench_now() - start;
}

static void told(void *gateway) {
    struct pl_gateway **g = gateway;
    if (*g) pl_gateway_told(*g);
}

/* One measurement: n workers, and the size of a vector in MB. */
static void compare(const char *key, int n, size_t mb, bool tls) {
    struct pl_gateway *g = NULL;
    struct pl_port_conf conf = {.n_workers = n,
                                .n_versions = 1,
                                .n_slots = n,
                                .n_own = 1,
                                .listen = path,
                                .told = told,
                                .told_ctx = &g};
    static const struct pl_log silent;
    struct pl_gateway_conf gate = {.address = "127.0.0.1:0",
                                   .path = path,
                                   .keys = tls ? keys : NULL,
                                   .n_clients = n,
                                   .log = &silent};
    struct far f = {.tls = tls};
    struct pl_news news;
    struct wire bare[WORKERS];
    double ours[REPEATS], theirs[REPEATS];
    pid_t pid[WORKERS];
    int tell[2];
    dim = conf.dim = mb * 250000;
    int listens = wire_listen(&f.port);
    bench_need(pipe(tell) == 0, "no pipe");
    for (int i = 0; i < n; i++)
        if ((pid[i] = fork()) == 0) { /* waits until it knows where */
            close(listens);
            if (read(tell[0], &f, sizeof f) == sizeof f) far_work(&f);
            _exit(1);
        }
    bench_need(!pl_shm.port.open(&conf, &port, NULL) && !pl_gateway_open(&gate, &g, NULL),
               "no gateway");
    version = pl_shm.port.vector(port, -1);
    for (size_t i = 0; i < dim; i++) version[i] = 1;
    for (int i = 0; i < n; i++) slot[i] = pl_shm.port.vector(port, i);
    snprintf(f.url, sizeof f.url, "http%s://127.0.0.1:%d", tls ? "s" : "", pl_gateway_port(g));
    for (int i = 0; i < n; i++)
        bench_need(write(tell[1], &f, sizeof f) == sizeof f, "a worker is gone");
    for (int i = 0; i < n; i++) bare[i] = wire_new(accept(listens, NULL, NULL), tls, true);
    for (int i = 0; i < n; i += news.kind == PL_NEWS_JOINED)
        pl_shm.port.news(port, PL_FOREVER, &news);
    for (int i = -2; i < REPEATS; i++) {
        double start = bench_now();
        bare_round(bare, n);
        double middle = bench_now();
        our_round(n, (uint64_t)(i + 3));
        if (i < 0) continue;
        theirs[i] = middle - start;
        ours[i] = bench_now() - middle;
    }
    double a = 1e3 * bench_median(ours, REPEATS), b = 1e3 * bench_median(theirs, REPEATS);
    printf("  %d x %2zu MB %s: %8.2f ms, bare %8.2f ms, share %.2f\n", n, mb,
           tls ? "TLS  " : "plain", a, b, b / a);
    bench_row(key, a, "ms", tls ? "bare GnuTLS" : "bare TCP", b, b / a);
    if (n == 1 && mb == 4) {
        double s = death(g, pid[0]);
        printf("  its death was known after %.1f ms\n", 1e3 * s);
        bench_row(tls ? "network.death.tls" : "network.death", 1e3 * s, "ms", "50 ms", 50,
                  s / 0.05);
    }
    for (int i = 0; i < n; i++) kill(pid[i], SIGKILL);
    for (int i = 0; i < n; i++) waitpid(pid[i], NULL, 0);
    pl_gateway_close(g);
    pl_shm.port.shutdown(port, 0);
    pl_shm.port.close(port);
    close(listens);
    close(tell[0]);
    close(tell[1]);
    fflush(stdout);
}

static void clean(void) {
    DIR *d = opendir(keys);
    for (const struct dirent *e; d && (e = readdir(d));) {
        char name[400];
        snprintf(name, sizeof name, "%s/%s", keys, e->d_name);
        unlink(name);
    }
    if (d) closedir(d);
    rmdir(keys);
    rmdir(folder);
}

int main(void) {
    struct pl_why why = {""};
    pid_t pid;
    snprintf(folder, sizeof folder, "/tmp/paceline-bench-XXXXXX");
    bench_need(mkdtemp(folder) != NULL, "no folder");
    snprintf(path, sizeof path, "%s/socket", folder);
    snprintf(keys, sizeof keys, "%s/keys", folder);
    bench_begin();
    bench_need(!pl_certificates_make(keys, "127.0.0.1", "worker", 1, &why), why.text);
    printf("push and pull over loopback: a vector there, and one back\n");
    static const struct {
        const char *key;
        int n;
        size_t mb;
        bool tls;
    } row[] = {{"network.plain.4", 1, 4, false},     {"network.plain.40", 1, 40, false},
               {"network.tls.4", 1, 4, true},        {"network.tls.40", 1, 40, true},
               {"network.plain.eight", 8, 4, false}, {"network.tls.eight", 8, 4, true}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) { /* each without threads of the last */
        fflush(stdout);
        if ((pid = fork()) == 0) {
            compare(row[i].key, row[i].n, row[i].mb, row[i].tls);
            _exit(0);
        }
        int status = 1;
        waitpid(pid, &status, 0);
        if (status) bench_missing(row[i].key, "it failed");
    }
    clean();
    return 0;
}
