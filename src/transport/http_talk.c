/* The two threads of a link over HTTP.
 *
 * Threads: the link's own two, and for how it ends any. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/seconds.h"
#include "sys/numerals.h"
#include "transport/http_state.h"

#define TALK_PATIENCE_NS UINT64_C(60000000000)
#define TALK_REFUSED_NS UINT64_C(3000000000) /* nothing listens, and nothing will */
#define TALK_BACK_OFF_MAX_NS UINT64_C(2000000000)
#define TALK_FINAL 3  /* tries to get the final version */
#define TALK_BEATS 3L /* that the events lack, after which the server is gone */

/* What the server says of its standby: where it is, or that it is to be forgotten, which the next
 * request for events confirms. */
static void talk_standby(struct pl_link *l, const char *url, bool forgets) {
    struct http_election *e = &l->election;
    bool other = strcmp(url, e->standby) != 0;
    if (other) {
        snprintf(e->standby, sizeof e->standby, "%s", url);
        e->voted = false;
    }
    /* with a standby, beats must come more often */
    l->reopens = (forgets && !e->forgets) || (other && url[0] && l->known.beat_s > PL_WIRE_BEAT_S);
    e->forgets = forgets;
    e->asks = false;
}

/* A line of the events. */
bool pl_http_line(struct pl_link *l, const char *line) {
    struct http_election *e = &l->election;
    pl_lock_enter(l->lock);
    l->hears = true;
    if (strncmp(line, "cancel ", 7) == 0) {
        l->task.cancelled_id = strtoull(line + 7, NULL, 10);
        if (l->task.cancelled_id == l->task.id) atomic_store(&l->task.cancelled, true);
    } else if (strncmp(line, "standby ", 8) == 0) {
        talk_standby(l, line + 8, false);
    } else if (strncmp(line, "forget ", 7) == 0) {
        talk_standby(l, line + 7, true);
    } else if (strcmp(line, "beat") == 0) {
        e->asks = l->reopens = e->forgets && (e->voted || l->next.state == TALK_ASKED);
    } else if (strcmp(line, "over") == 0) {
        l->ending.how = END_OVER;
        atomic_store(&l->task.cancelled, true);
    }
    bool more = !l->reopens;
    pl_lock_leave(l->lock);
    pl_futex_ring(&l->bell);
    return more;
}

/* The link has ended, with a sentence if the server did not end the run. */
void pl_http_end(struct pl_link *l, enum end end, bool again, const char *sentence) {
    struct http_ending *e = &l->ending;
    pl_lock_enter(l->lock);
    if (e->how == END_NOT) {
        e->how = end;
        e->again = again;
        snprintf(e->farewell, sizeof e->farewell, "%s", sentence);
        for (char *c = e->farewell; *c; c++)
            if (*c < ' ' || *c > '~') *c = '?';
    }
    atomic_store(&l->task.cancelled, true);
    pl_lock_leave(l->lock);
    pl_futex_ring(&l->bell);
}

bool pl_http_ended(struct pl_link *l) {
    pl_lock_enter(l->lock);
    bool ended = l->ending.how != END_NOT;
    pl_lock_leave(l->lock);
    return ended || atomic_load(&l->stop);
}

static bool talk_is_over(struct pl_link *l) {
    pl_lock_enter(l->lock);
    bool over = l->ending.how == END_OVER;
    pl_lock_leave(l->lock);
    return over;
}

void pl_http_nap(struct pl_link *l, uint64_t ns) {
    uint64_t now = pl_now_ns(), end = pl_until(now, ns);
    while (now < end && !pl_http_ended(l))
        now = pl_sleep_on(&l->bell, atomic_load(&l->bell), now, end);
}

/* What an answer without an order means. */
void pl_http_refused(struct pl_link *l, struct http_way *w, long status) {
    char sentence[PL_WORD_MAX];
    size_t n = w->n < sizeof sentence - 1 ? w->n : sizeof sentence - 1;
    memcpy(sentence, w->body, n);
    sentence[n] = '\0';
    if (status == 410)
        pl_http_end(l, w->over ? END_OVER : END_LOST, w->again, sentence);
    else if (status == 404)
        pl_http_end(l, END_LOST, true, "the server does not know this client any more");
    else {
        char text[PL_WORD_MAX];
        snprintf(text, sizeof text, "it answers %ld: %.400s", status, sentence);
        pl_http_end(l, END_LOST, false, text);
    }
}

/* Sends the headers of a result, and its vector. */
static void talk_result(struct pl_link *l, struct http_way *w) {
    const struct pl_result *r = &l->next.result;
    size_t size = l->task.result_bf16 ? sizeof(uint16_t) : sizeof(float);
    pl_http_way_add(w, PL_WIRE_TASK, "%" PRIu64, r->task);
    pl_http_way_add(w, PL_WIRE_SAMPLES, "%" PRIu32, r->samples);
    pl_http_way_add(w, PL_WIRE_LOSS, "%.17g", r->loss);
    if (r->defect) pl_http_way_add(w, PL_WIRE_DEFECT, "%d", (int)r->defect);
    if (r->sets_lr) pl_http_way_add(w, PL_WIRE_LR, "%.17g", r->lr);
    if (r->tells_waits)
        pl_http_way_add(w, PL_WIRE_WAITED, "%" PRIu64, r->pull_wait_ns + r->wait_ns);
    if (r->n_absent > 0) {
        char bits[16 * PL_ABSENT_WORDS + 32];
        snprintf(bits, sizeof bits, "%s: ", PL_WIRE_ABSENT);
        for (uint32_t i = 0; i < r->n_absent; i++)
            pl_append(bits, sizeof bits, "%016" PRIx64, l->next.absent[i]);
        struct curl_slist *more = curl_slist_append(w->headers, bits);
        if (more) w->headers = more;
    }
    pl_http_way_send(w, l->vectors.out, r->defect ? 0 : l->dim * size);
}

/* One request. True if it was answered, one way or another. */
static bool talk_request(struct pl_link *l, struct http_way *w) {
    struct http_vectors *v = &l->vectors;
    struct http_next *next = &l->next;
    pl_http_way_begin(w, "POST", "/next");
    pl_http_way_add(w, "Content-Type", "application/octet-stream");
    if (next->has_result)
        talk_result(l, w);
    else
        pl_http_way_send(w, NULL, 0);
    int to = !v->turn;
    w->body = (char *)v->in[to];
    w->room = v->room;
    long status = pl_http_way_perform(w);
    if (status == 409)
        pl_http_nap(l, HTTP_BACK_OFF_NS); /* an earlier request is not answered yet */
    if (status == 503) snprintf(w->error, sizeof w->error, "it is not ready");
    if (status == 0 || status == 409 || status == 503) return false;
    pl_lock_enter(l->lock);
    next->has_result = false; /* the server has it */
    pl_lock_leave(l->lock);
    if (status == 204) return false;
    size_t size = w->is_bf16 ? sizeof(uint16_t) : sizeof(float);
    if (status != 200) {
        pl_http_refused(l, w, status);
    } else if (w->order.task == 0 || w->n != l->dim * size) {
        pl_http_end(l, END_LOST, false, "it sent an order that is damaged");
    } else if (w->is_bf16 && !v->half[to] && !(v->half[to] = malloc(w->n))) {
        pl_http_end(l, END_LOST, false, "out of memory");
    } else {
        if (w->is_bf16) {
            memcpy(v->half[to], w->body, w->n);
            pl_dtype_widen(PL_BF16, v->half[to], l->dim, v->in[to]);
        }
        pl_lock_enter(l->lock);
        next->order = w->order;
        next->version = w->version;
        next->order.half_in = w->is_bf16 ? v->half[to] : NULL;
        next->order.half_out = w->result_bf16 ? (uint16_t *)(void *)v->out : NULL;
        next->state = TALK_ANSWERED;
        pl_lock_leave(l->lock);
        pl_futex_ring(&l->bell);
    }
    return true;
}

/* Whether the server has been away for too long. */
static bool talk_gave_up(struct pl_link *l, struct http_way *w, uint64_t *since, uint64_t *wait) {
    uint64_t now = pl_now_ns();
    if (*since == 0) *since = now;
    pl_lock_enter(l->lock);
    bool returns = l->known.returns || l->election.standby[0];
    pl_lock_leave(l->lock);
    if (w->silence == HTTP_REFUSED && !returns && now - *since > TALK_REFUSED_NS) {
        pl_http_end(l, END_LOST, false,
                    "nothing listens there any more: the run has ended, or its server was killed "
                    "and has no checkpoint to continue from");
        return true;
    }
    if (now - *since > TALK_PATIENCE_NS) {
        char text[PL_WORD_MAX];
        snprintf(text, sizeof text, "it could not be reached for %.0f s: %.200s",
                 pl_seconds(TALK_PATIENCE_NS), w->error);
        pl_http_end(l, END_LOST, false, text);
        return true;
    }
    if (pl_http_vote(l, w)) return true;
    pl_http_nap(l, *wait);
    *wait = 2 * *wait < TALK_BACK_OFF_MAX_NS ? 2 * *wait : TALK_BACK_OFF_MAX_NS;
    return false;
}

void pl_http_talk(void *arg) {
    PL_NUMERALS;
    struct pl_link *l = arg;
    while (!pl_http_ended(l)) {
        unsigned seen = atomic_load(&l->bell);
        pl_lock_enter(l->lock);
        bool asked = l->next.state == TALK_ASKED;
        pl_lock_leave(l->lock);
        if (!asked) {
            uint64_t now = pl_now_ns();
            pl_sleep_on(&l->bell, seen, now, PL_FOREVER);
            continue;
        }
        uint64_t since = 0, wait = HTTP_BACK_OFF_NS;
        while (!pl_http_ended(l) && !talk_request(l, &l->talk)) {
            if (!l->talk.error[0]) since = 0, wait = HTTP_BACK_OFF_NS; /* it is there */
            if (l->talk.error[0] && talk_gave_up(l, &l->talk, &since, &wait)) break;
        }
    }
}

/* Gets the version that the run has ended with, also while the owner computes, because the server
 * is gone soon. */
static void talk_final(struct pl_link *l) {
    struct http_way *w = &l->events;
    float *final = malloc(l->vectors.room);
    long status = final ? 0 : -1;
    for (int i = 0; i < TALK_FINAL && status == 0 && !atomic_load(&l->stop); i++) {
        pl_http_way_begin(w, "GET", "/final");
        curl_easy_setopt(w->easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
        curl_easy_setopt(w->easy, CURLOPT_LOW_SPEED_TIME, TALK_BEATS * PL_WIRE_BEAT_S);
        w->body = (char *) final;
        w->room = l->vectors.room;
        status = pl_http_way_perform(w);
    }
    bool came = status == 200 && w->n == l->dim * sizeof *final;
    if (!came) free(final);
    pl_lock_enter(l->lock);
    if (came) {
        l->final.w = final;
        memcpy(l->final.note, w->order.note, sizeof l->final.note);
    }
    l->final.settled = true;
    pl_lock_leave(l->lock);
    pl_futex_ring(&l->bell);
}

/* Beats keep it from waiting for a server that is gone. */
void pl_http_listen(void *arg) {
    PL_NUMERALS;
    struct pl_link *l = arg;
    struct http_way *w = &l->events;
    uint64_t since = 0, wait = HTTP_BACK_OFF_NS;
    while (!pl_http_ended(l)) {
        if (pl_http_recall(l, w)) break;
        pl_http_way_begin(w, "GET", "/events");
        if (l->final.wanted) pl_http_way_add(w, PL_WIRE_FINAL, "1");
        long beat_s = pl_http_knows(l, w) ? PL_WIRE_BEAT_S : l->known.beat_s;
        curl_easy_setopt(w->easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
        curl_easy_setopt(w->easy, CURLOPT_LOW_SPEED_TIME, TALK_BEATS * beat_s);
        uint64_t begin = pl_now_ns();
        w->kind = BODY_LINES;
        long status = pl_http_way_perform(w);
        if (pl_now_ns() - begin > TALK_BACK_OFF_MAX_NS) since = 0, wait = HTTP_BACK_OFF_NS;
        if (status == 410 || status == 404) {
            if (status == 410 && w->over)
                pl_http_end(l, END_OVER, false, "");
            else
                pl_http_end(l, END_LOST, status == 404 || w->again,
                            "the server does not know this client any more");
            break;
        }
        pl_lock_enter(l->lock);
        bool reopens = l->reopens;
        l->reopens = false;
        pl_lock_leave(l->lock);
        if (!reopens && !pl_http_ended(l) && talk_gave_up(l, w, &since, &wait)) break;
    }
    if (l->final.wanted && talk_is_over(l)) talk_final(l);
}
