/* Requests of a link over HTTP, and the headers of their answers.
 *
 * Threads: the one that the way belongs to: one each for talk, events and side (the owner). */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/grow.h"
#include "sys/private_fd.h"
#include "transport/http_state.h"

#define WAY_CONNECT_S 10L

static size_t way_keep(char *data, size_t size, size_t n, void *ctx);
static size_t way_header(char *data, size_t size, size_t n, void *ctx);

int pl_http_way_open(struct http_way *w, struct pl_link *l) {
    w->link = l;
    w->easy = curl_easy_init();
    w->multi = curl_multi_init();
    return w->easy && w->multi ? PL_OK : PL_ENOMEM;
}

void pl_http_way_close(struct http_way *w) {
    curl_slist_free_all(w->headers);
    if (w->easy) curl_easy_cleanup(w->easy);
    if (w->multi) curl_multi_cleanup(w->multi);
}

void pl_http_way_add(struct http_way *w, const char *name, const char *fmt, ...) PL_PRINTF(3, 4);
void pl_http_way_add(struct http_way *w, const char *name, const char *fmt, ...) {
    char text[300];
    int n = snprintf(text, sizeof text, "%s: ", name);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text + n, sizeof text - (size_t)n, fmt, ap);
    va_end(ap);
    struct curl_slist *more = curl_slist_append(w->headers, text);
    if (more) w->headers = more;
}

/* The server finds that this process is gone, whatever it has forked or executed. */
static curl_socket_t way_socket(void *ctx, curlsocktype purpose, struct curl_sockaddr *to) {
    (void)ctx;
    (void)purpose;
    int sock = socket(to->family, to->socktype | SOCK_CLOEXEC, to->protocol);
    if (sock >= 0) pl_private_fd(sock);
    int count = 3; /* probes of a connection that may be cut; curl sends them */
    setsockopt(sock, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
    return sock < 0 ? CURL_SOCKET_BAD : sock;
}

static int way_close_socket(void *ctx, curl_socket_t sock) {
    (void)ctx;
    pl_private_fd_close(sock);
    return 0;
}

/* The next request of this way. */
void pl_http_way_begin(struct http_way *w, const char *method, const char *path) {
    const struct pl_link *l = w->link;
    char url[2 * HTTP_PATH];
    curl_slist_free_all(w->headers);
    w->headers = NULL;
    w->n = w->line_n = 0;
    w->kind = BODY_ROOM;
    w->over = w->again = w->is_bf16 = w->result_bf16 = false;
    w->silence = HTTP_LOST;
    w->known = (struct http_known){0};
    w->version = 0;
    w->order = (struct pl_order){0};
    w->error[0] = '\0';
    curl_easy_reset(w->easy);
    snprintf(url, sizeof url, "%s%s%s%s", l->url, PL_WIRE_SEATS, l->key[0] ? "/" : "", l->key);
    pl_append(url, sizeof url, "%s", path);
    curl_easy_setopt(w->easy, CURLOPT_URL, url);
    curl_easy_setopt(w->easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(w->easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(w->easy, CURLOPT_CUSTOMREQUEST, method);
    curl_easy_setopt(w->easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(w->easy, CURLOPT_OPENSOCKETFUNCTION, way_socket);
    curl_easy_setopt(w->easy, CURLOPT_CLOSESOCKETFUNCTION, way_close_socket);
    curl_easy_setopt(w->easy, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(w->easy, CURLOPT_CONNECTTIMEOUT, WAY_CONNECT_S);
    curl_easy_setopt(w->easy, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(w->easy, CURLOPT_TCP_KEEPIDLE, 2L);
    curl_easy_setopt(w->easy, CURLOPT_TCP_KEEPINTVL, 1L);
    curl_easy_setopt(w->easy, CURLOPT_BUFFERSIZE, 512L * 1024);
    curl_easy_setopt(w->easy, CURLOPT_UPLOAD_BUFFERSIZE, 2L * 1024 * 1024);
    curl_easy_setopt(w->easy, CURLOPT_ERRORBUFFER, w->error);
    curl_easy_setopt(w->easy, CURLOPT_WRITEFUNCTION, way_keep);
    curl_easy_setopt(w->easy, CURLOPT_WRITEDATA, w);
    curl_easy_setopt(w->easy, CURLOPT_HEADERFUNCTION, way_header);
    curl_easy_setopt(w->easy, CURLOPT_HEADERDATA, w);
    if (!l->keys.ca[0]) return;
    curl_easy_setopt(w->easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_3);
    curl_easy_setopt(w->easy, CURLOPT_CAINFO, l->keys.ca);
    curl_easy_setopt(w->easy, CURLOPT_CAPATH, NULL); /* nobody that the system trusts */
    curl_easy_setopt(w->easy, CURLOPT_SSLCERT, l->keys.cert);
    curl_easy_setopt(w->easy, CURLOPT_SSLKEY, l->keys.key);
}

void pl_http_way_send(struct http_way *w, const void *body, size_t n) {
    curl_easy_setopt(w->easy, CURLOPT_POST, 1L);
    curl_easy_setopt(w->easy, CURLOPT_POSTFIELDS, body ? body : "");
    curl_easy_setopt(w->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)n);
}

static bool way_stops(const struct http_way *w) {
    struct pl_link *l = w->link;
    if (w != &l->side) return atomic_load(&l->stop);
    return l->joining && l->joining->stop && l->joining->stop(l->joining->ctx);
}

/* Carries it out. The status of HTTP; 0: there was no answer, w->error says why, or the link is
 * being closed. */
long pl_http_way_perform(struct http_way *w) {
    long status = 0;
    int running = 1;
    CURLcode code = CURLE_OK;
    pl_http_way_add(w, "Expect", "%s", ""); /* it is never asked for */
    curl_easy_setopt(w->easy, CURLOPT_HTTPHEADER, w->headers);
    if (curl_multi_add_handle(w->multi, w->easy)) return 0;
    while (running && !way_stops(w)) {
        if (curl_multi_perform(w->multi, &running)) break;
        if (running) curl_multi_poll(w->multi, NULL, 0, 1000, NULL);
    }
    int left;
    CURLMsg *m = curl_multi_info_read(w->multi, &left);
    if (m && m->msg == CURLMSG_DONE) code = m->data.result;
    bool done = m && m->msg == CURLMSG_DONE && code == CURLE_OK;
    if (done) curl_easy_getinfo(w->easy, CURLINFO_RESPONSE_CODE, &status);
    long error = 0;
    if (code == CURLE_COULDNT_CONNECT) curl_easy_getinfo(w->easy, CURLINFO_OS_ERRNO, &error);
    if (error == ECONNREFUSED) w->silence = HTTP_REFUSED;
    if (code == CURLE_GOT_NOTHING || code == CURLE_SSL_CONNECT_ERROR) w->silence = HTTP_FOREIGN;
    if (code == CURLE_PEER_FAILED_VERIFICATION) w->silence = HTTP_STRANGER;
    curl_multi_remove_handle(w->multi, w->easy);
    if (!done && !w->error[0]) snprintf(w->error, sizeof w->error, "%s", curl_easy_strerror(code));
    return status;
}

/* The value of a header, if it has this name; otherwise NULL. */
static const char *way_header_is(const char *line, const char *name) {
    size_t n = strlen(name);
    if (strncasecmp(line, name, n) != 0 || line[n] != ':') return NULL;
    return line + n + 1 + strspn(line + n + 1, " ");
}

static void way_header_note(const char *text, uint64_t note[PL_NOTE_WORDS]) {
    for (int i = 0; i < PL_NOTE_WORDS; i++) {
        char *end;
        note[i] = strtoull(text, &end, 16);
        text = *end == ' ' ? end + 1 : end;
    }
}

static void way_header_read(struct http_way *w, const char *line) {
    struct http_known *known = &w->known;
    const char *v;
    if ((v = way_header_is(line, PL_WIRE_TASK))) w->order.task = strtoull(v, NULL, 10);
    if ((v = way_header_is(line, PL_WIRE_NOTE))) way_header_note(v, w->order.note);
    if ((v = way_header_is(line, PL_WIRE_STAYS))) w->order.stays = *v == '1';
    if ((v = way_header_is(line, PL_WIRE_TYPE))) w->is_bf16 = strncmp(v, "bf16", 4) == 0;
    if ((v = way_header_is(line, PL_WIRE_RESULT))) w->result_bf16 = strncmp(v, "bf16", 4) == 0;
    if ((v = way_header_is(line, PL_WIRE_OVER))) w->over = *v == '1';
    if ((v = way_header_is(line, PL_WIRE_AGAIN))) w->again = *v == '1';
    if ((v = way_header_is(line, PL_WIRE_WORKER))) w->welcome.worker = (int)strtol(v, NULL, 10);
    if ((v = way_header_is(line, PL_WIRE_WORKERS))) w->welcome.n_workers = (int)strtol(v, NULL, 10);
    if ((v = way_header_is(line, PL_WIRE_DIM))) w->welcome.dim = (size_t)strtoull(v, NULL, 10);
    if ((v = way_header_is(line, PL_WIRE_HALF)))
        w->welcome.half = (unsigned)strtoul(v, NULL, 10) & 3;
    if ((v = way_header_is(line, PL_WIRE_SPEAKS))) w->welcome.speaks = *v == '1';
    if ((v = way_header_is(line, PL_WIRE_MODEL))) w->version = strtoull(v, NULL, 10);
    if ((v = way_header_is(line, PL_WIRE_EPOCH))) known->epoch = strtoull(v, NULL, 10);
    if ((v = way_header_is(line, PL_WIRE_BEAT))) known->beat_s = strtol(v, NULL, 10);
    if ((v = way_header_is(line, PL_WIRE_RETURNS))) known->returns = *v == '1';
    if ((v = way_header_is(line, PL_WIRE_RUN)))
        snprintf(known->run, sizeof known->run, "%.*s", (int)strcspn(v, " \r\n"), v);
    if ((v = way_header_is(line, PL_WIRE_SEAT)) || (v = way_header_is(line, PL_WIRE_SECRET)))
        snprintf(w->key, sizeof w->key, "%.*s", (int)strspn(v, "0123456789abcdef"), v);
}

static size_t way_header(char *data, size_t size, size_t n, void *ctx) {
    char line[HTTP_PATH + 32];
    snprintf(line, sizeof line, "%.*s", (int)(size * n), data);
    way_header_read(ctx, line);
    return size * n;
}

static bool way_grow(struct http_way *w, size_t bytes) {
    return w->kind == BODY_GROWS && PL_GROW(w->body, w->room, w->n + bytes);
}

/* The body: lines of a stream, or bytes for which there must be room. */
static size_t way_keep(char *data, size_t size, size_t n, void *ctx) {
    struct http_way *w = ctx;
    size_t bytes = size * n;
    if (w->kind != BODY_LINES) {
        if (bytes > w->room - w->n && !way_grow(w, bytes)) return 0; /* curl ends the request */
        memcpy(w->body + w->n, data, bytes);
        w->n += bytes;
        return bytes;
    }
    for (size_t i = 0; i < bytes; i++) {
        w->line[w->line_n] = data[i] == '\n' ? '\0' : data[i];
        if (data[i] == '\n' && !pl_http_line(w->link, w->line)) return 0;
        w->line_n = data[i] == '\n' ? 0 : w->line_n + 1;
        if (w->line_n == sizeof w->line) return 0;
    }
    return bytes;
}
