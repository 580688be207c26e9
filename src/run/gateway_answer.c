/* What the gateway answers. Vectors are sent from where they lie.
 *
 * Threads: the request's. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run/gateway_state.h"
#include "run/worker.h"

static enum MHD_Result answer_with(struct request *r, unsigned status, struct MHD_Response *with) {
    r->answered = true;
    if (!with) return MHD_NO;
    if (r->aside.work && !r->aside.reply) { /* this is its thread; libmicrohttpd's own goes on */
        r->aside.reply = with;
        r->aside.status = status;
        return MHD_YES;
    }
    MHD_set_connection_option(r->connection, MHD_CONNECTION_OPTION_TIMEOUT,
                              r->gateway->conf.timeout_s);
    enum MHD_Result rc = MHD_queue_response(r->connection, status, with);
    MHD_destroy_response(with);
    return rc;
}

enum MHD_Result pl_gateway_answer_reply(struct request *r) {
    struct MHD_Response *reply = r->aside.reply;
    r->aside.work = NULL;
    r->aside.reply = NULL;
    return answer_with(r, r->aside.status, reply);
}

static struct MHD_Response *answer_text(const char *text) {
    struct MHD_Response *a = MHD_create_response_from_buffer(strlen(text), (void *)(uintptr_t)text,
                                                             MHD_RESPMEM_MUST_COPY);
    if (a) MHD_add_response_header(a, MHD_HTTP_HEADER_CONTENT_TYPE, "text/plain; charset=utf-8");
    return a;
}

/* A seat that is not known is no wrong request: the server may have been started again. */
enum MHD_Result pl_gateway_answer(struct request *r, unsigned status, const char *text) {
    if (status == MHD_HTTP_BAD_REQUEST || status == MHD_HTTP_LENGTH_REQUIRED ||
        status == MHD_HTTP_CONTENT_TOO_LARGE)
        pl_gateway_report_request(r, text);
    return answer_with(r, status, answer_text(text));
}

static void answer_add(struct MHD_Response *a, const char *name, const char *fmt, ...)
    PL_PRINTF(3, 4);
static void answer_add(struct MHD_Response *a, const char *name, const char *fmt, ...) {
    char text[GATEWAY_URL];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    MHD_add_response_header(a, name, text);
}

/* Why the server hung up, which it says once; the caller has the lock. */
static void answer_farewell(struct seat *s, char out[PL_WORD_MAX], bool *again) {
    if (!s->farewell && pl_client_link_farewell(s->link, out, &s->again)) s->farewell = strdup(out);
    snprintf(out, PL_WORD_MAX, "%s",
             s->farewell                    ? s->farewell
             : pl_client_link_lost(s->link) ? "the server is gone"
                                            : "this client has left");
    *again = s->farewell && s->again;
}

/* The seat has ended: the run is over, which it may be without a seat, or the server hung up. */
enum MHD_Result pl_gateway_answer_gone(struct request *r) {
    struct seat *s = r->seat;
    struct pl_gateway *g = r->gateway;
    char sentence[PL_WORD_MAX] = "the run has ended";
    bool again = false;
    pl_lock_enter(g->lock);
    bool over = g->over || pl_client_link_over(s->link);
    if (!over) answer_farewell(s, sentence, &again);
    if (s && over)
        pl_gateway_seat_told(s);
    else if (s)
        pl_gateway_seat_end(s);
    pl_lock_leave(g->lock);
    struct MHD_Response *a = answer_text(sentence);
    if (a) answer_add(a, PL_WIRE_OVER, "%d", over);
    if (a) answer_add(a, PL_WIRE_AGAIN, "%d", again);
    return answer_with(r, MHD_HTTP_GONE, a);
}

static void answer_note(struct MHD_Response *a, const uint64_t note[PL_NOTE_WORDS]) {
    struct pl_order o = {0};
    char words[17 * PL_NOTE_WORDS + 1] = "";
    memcpy(o.note, note, sizeof o.note);
    const struct pl_run_note n = pl_note_unpack(&o);
    for (int i = 0; i < PL_NOTE_WORDS; i++)
        pl_append(words, sizeof words, "%s%" PRIx64, i ? " " : "", note[i]);
    answer_add(a, PL_WIRE_NOTE, "%s", words);
    answer_add(a, PL_WIRE_MODEL, "%" PRIu64, n.version);
    answer_add(a, PL_WIRE_LR, "%.17g", n.lr);
}

/* The vector is sent from where it lies, which the order keeps in place. */
enum MHD_Result pl_gateway_answer_order(struct request *r) {
    struct seat *s = r->seat;
    const struct pl_order *o = &s->order;
    size_t dim = s->dim;
    const void *body = o->half_in;
    size_t bytes = dim * sizeof(uint16_t);
    if (!body) {
        body = pl_worker_input(&pl_shm, s->link, o, dim);
        bytes = dim * sizeof(float);
    }
    struct MHD_Response *a =
        MHD_create_response_from_buffer(bytes, (void *)(uintptr_t)body, MHD_RESPMEM_PERSISTENT);
    if (!a) return MHD_NO;
    MHD_add_response_header(a, MHD_HTTP_HEADER_CONTENT_TYPE, "application/octet-stream");
    answer_add(a, PL_WIRE_TASK, "%" PRIu64, o->task);
    answer_add(a, PL_WIRE_STAYS, "%d", o->stays);
    answer_add(a, PL_WIRE_TYPE, "%s", o->half_in ? "bf16" : "f32");
    answer_add(a, PL_WIRE_RESULT, "%s", o->half_out ? "bf16" : "f32");
    answer_note(a, o->note);
    return answer_with(r, MHD_HTTP_OK, a);
}

/* 204: there is none; 410: the run is over. */
enum MHD_Result pl_gateway_answer_copy(struct request *r, unsigned char *bytes, size_t n,
                                       uint64_t version) {
    struct pl_gateway *g = r->gateway;
    pl_lock_enter(g->lock);
    bool over = g->over;
    int workers = pl_gateway_standby_told(g);
    g->standby.told = g->standby.told || over;
    pl_lock_leave(g->lock);
    struct MHD_Response *a =
        bytes ? MHD_create_response_from_buffer(n, bytes, MHD_RESPMEM_MUST_FREE) : answer_text("");
    if (!a) {
        free(bytes);
        return MHD_NO;
    }
    answer_add(a, PL_WIRE_RUN, "%s", g->conf.run);
    answer_add(a, PL_WIRE_EPOCH, "%" PRIu64, g->conf.epoch);
    answer_add(a, PL_WIRE_WORKERS, "%d", workers);
    answer_add(a, PL_WIRE_MODEL, "%" PRIu64, version);
    answer_add(a, PL_WIRE_SECRET, "%s", g->secret);
    answer_add(a, PL_WIRE_OVER, "%d", over);
    return answer_with(r, over ? MHD_HTTP_GONE : bytes ? MHD_HTTP_OK : MHD_HTTP_NO_CONTENT, a);
}

enum MHD_Result pl_gateway_answer_seat(struct request *r, const struct seat *s,
                                       const struct pl_welcome *w) {
    struct MHD_Response *a = answer_text(w->about);
    if (!a) return MHD_NO;
    answer_add(a, PL_WIRE_SEAT, "%s", s->key);
    answer_add(a, PL_WIRE_WORKER, "%d", w->worker);
    answer_add(a, PL_WIRE_WORKERS, "%d", w->n_workers);
    answer_add(a, PL_WIRE_DIM, "%zu", w->dim);
    answer_add(a, PL_WIRE_HALF, "%u", w->half);
    answer_add(a, PL_WIRE_SPEAKS, "%d", w->speaks);
    answer_add(a, PL_WIRE_RUN, "%s", r->gateway->conf.run);
    answer_add(a, PL_WIRE_EPOCH, "%" PRIu64, r->gateway->conf.epoch);
    answer_add(a, PL_WIRE_RETURNS, "%d", r->gateway->conf.returns);
    answer_add(a, PL_WIRE_BEAT, "%u", pl_gateway_beat_s(&r->gateway->conf));
    return answer_with(r, MHD_HTTP_CREATED, a);
}

enum MHD_Result pl_gateway_answer_newest(struct request *r) {
    struct seat *s = r->seat;
    struct MHD_Response *a =
        MHD_create_response_from_buffer(s->dim * sizeof *s->room, s->room, MHD_RESPMEM_PERSISTENT);
    if (!a) return MHD_NO;
    answer_note(a, s->order.note);
    return answer_with(r, MHD_HTTP_OK, a);
}

/* 204: the run has not ended, or without weights. */
enum MHD_Result pl_gateway_answer_final(struct request *r) {
    struct seat *s = r->seat;
    uint64_t note[PL_NOTE_WORDS];
    const float *w = pl_gateway_over(r->gateway) ? pl_client_link_final(s->link, note) : NULL;
    struct MHD_Response *a =
        w ? MHD_create_response_from_buffer(s->dim * sizeof *w, (void *)(uintptr_t)w,
                                            MHD_RESPMEM_PERSISTENT)
          : NULL;
    pl_lock_enter(r->gateway->lock);
    s->told = r->gateway->over; /* requests that are not sent yet are waited for */
    pl_lock_leave(r->gateway->lock);
    if (!a) return pl_gateway_answer(r, MHD_HTTP_NO_CONTENT, "");
    answer_note(a, note);
    return answer_with(r, MHD_HTTP_OK, a);
}
