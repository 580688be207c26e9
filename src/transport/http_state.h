/* The inside of a link over HTTP, which its files share. They call each other in a circle: requests
 * (http_way.c) hand the lines of a stream to the thread that listens (http_talk.c), which makes
 * requests, and asks the standby (http_vote.c) whether the link has ended.
 *
 * One thread sends results and asks for orders, both in one request, beginning when the result is
 * pushed; another listens to the events of the seat: cancels, the end, and beats, whose absence
 * tells that the server is gone. If the connection breaks, either tries again for a minute, and the
 * seat remembers where it was.
 *
 * Threads: the owner's calls everything of the interface; pl_http_talk() and pl_http_listen() are
 * the link's own two. What they share is protected by `lock`, and whoever changes it rings `bell`.
 */
#ifndef PL_TRANSPORT_HTTP_STATE_H
#define PL_TRANSPORT_HTTP_STATE_H

#include <curl/curl.h>

#include "sys/clock.h"
#include "sys/futex.h"
#include "sys/lock.h"
#include "transport/client_link.h"
#include "transport/http_wire.h"
#include "transport/shm_layout.h"

#define HTTP_BACK_OFF_NS UINT64_C(50000000)
#define HTTP_PATH PL_URL_MAX

/* What was asked of the talking thread, and how far it is. */
enum talk { TALK_IDLE, TALK_ASKED, TALK_ANSWERED };

/* How it ended. */
enum end {
    END_NOT,
    END_LEFT,
    END_OVER,
    END_LOST,
    END_MOVED /* it is lost, and the standby has taken over */
};

/* What the body of an answer is. */
enum http_body {
    BODY_ROOM,  /* bytes for which there must be room */
    BODY_GROWS, /* likewise, but the memory is malloc()ed, and grows */
    BODY_LINES  /* a stream: see pl_http_line() */
};

/* Why there was no answer. */
enum http_silence {
    HTTP_LOST,     /* or there was one */
    HTTP_REFUSED,  /* nobody listens there */
    HTTP_FOREIGN,  /* somebody does who does not speak HTTP, or HTTPS if that was asked for */
    HTTP_STRANGER, /* its certificate is not of our authority, or of another host */
};

/* What a server says about itself. */
struct http_known {
    char run[PL_RUN_ID_MAX];
    uint64_t epoch;
    bool returns; /* it can be resumed if it dies */
    long beat_s;  /* between two of its beats, if no standby is known */
};

/* One kind of request and its connection. */
struct http_way {
    CURL *easy;
    CURLM *multi;
    struct curl_slist *headers;
    char error[CURL_ERROR_SIZE];
    /* the answer */
    char *body; /* where it goes, */
    size_t room, n;
    enum http_body kind; /* what the body is */
    char line[HTTP_PATH + 16];
    size_t line_n;
    struct pl_link *link;
    /* its headers */
    struct pl_order order;
    struct pl_welcome welcome;
    char key[PL_WIRE_KEY + 1];
    bool over, again, is_bf16, result_bf16;
    uint64_t version; /* of an order */
    struct http_known known;
    enum http_silence silence;
};

struct http_servers {
    char list[2 * HTTP_PATH]; /* URLs, with commas between them; the link's url is one of them, */
    size_t next;              /* and the next one begins here */
};

/* Paths of certificates; "": there are none. */
struct http_keys {
    char ca[HTTP_PATH], cert[HTTP_PATH], key[HTTP_PATH];
};

struct http_vectors {
    size_t room;        /* bytes of an answer */
    float *in[2], *out; /* an order's input and the one before it; the result */
    uint16_t *half[2];  /* the inputs as they came, if that was as bfloat16; otherwise NULL */
    int turn;           /* the input that the owner has */
    struct pl_input input;
};

/* What the owner computes. */
struct http_task {
    struct pl_cancel cancel;
    atomic_bool cancelled;
    /* the link's lock */
    uint64_t id, cancelled_id;
    bool result_bf16;
};

/* A request for the next order, which brings the result of the last one. The link's lock. */
struct http_next {
    enum talk state;
    bool has_result;
    struct pl_result result;
    uint64_t absent[PL_ABSENT_WORDS];
    struct pl_order order;
    uint64_t version; /* of the order */
};

/* What is known of the standby, and the vote for it: http_vote.c. The link's lock. */
struct http_election {
    char standby[HTTP_PATH]; /* of the server; "": it has none */
    bool forgets;            /* the server has asked to vote for it no more */
    bool voted;              /* for it, which was not taken back */
    int n_voting;            /* requests of both threads that vote */
    bool asks;               /* it waits for an order, which the standby may have */
};

/* The model that the run ended with. The link's lock, except for `wanted`. */
struct http_final {
    bool wanted;
    bool settled; /* it has come, or will not */
    float *w;     /* [dim], or NULL */
    uint64_t note[PL_NOTE_WORDS];
};

/* The link's lock. */
struct http_ending {
    enum end how;
    bool again; /* the client may join again */
    char farewell[PL_WORD_MAX];
};

struct pl_link {
    char url[HTTP_PATH], key[PL_WIRE_KEY + 1];
    struct http_servers servers;
    struct http_keys keys;
    struct http_known known; /* of the server that it has joined */
    size_t dim;
    struct pl_past *past;                      /* the owner's, and its thread's; or NULL */
    const struct pl_client_link_conf *joining; /* while there has been no server; then NULL */
    struct http_way talk, events, side;
    struct pl_thread *talker, *listener;
    struct http_vectors vectors;
    struct http_task task;
    atomic_bool stop;
    atomic_uint bell;

    struct pl_lock *lock; /* of everything below */
    struct http_next next;
    struct http_election election;
    struct http_ending ending;
    struct http_final final;
    uint64_t seen; /* the newest version so far */
    bool hears;    /* events have come */
    bool reopens;  /* events are asked for again, to tell the server what is known */
};

/* http_way.c: a request. After begin(), add() adds headers, and send() a body, which must stay
 * where it is; perform() returns the status of HTTP, or 0 if there was no answer: w->error says
 * why, or the link is being closed. */
int pl_http_way_open(struct http_way *w, struct pl_link *l);
void pl_http_way_close(struct http_way *w);
void pl_http_way_begin(struct http_way *w, const char *method, const char *path);
void pl_http_way_add(struct http_way *w, const char *name, const char *fmt, ...) PL_PRINTF(3, 4);
void pl_http_way_send(struct http_way *w, const void *body, size_t n);
long pl_http_way_perform(struct http_way *w);

/* http_talk.c: the threads, and how a link ends. */
void pl_http_talk(void *link);
void pl_http_listen(void *link);
bool pl_http_line(struct pl_link *l, const char *line); /* of the events; false: no more of them */
void pl_http_end(struct pl_link *l, enum end end, bool again, const char *sentence);
bool pl_http_ended(struct pl_link *l);
void pl_http_nap(struct pl_link *l, uint64_t ns);
void pl_http_refused(struct pl_link *l, struct http_way *w, long status); /* what it means */

/* http_vote.c: true if the standby has taken over, and the link has ended. vote() asks for it, and
 * recall() takes that back, if the server wants it. knows() tells the server the standby that it
 * may vote for, and returns whether there is one. */
bool pl_http_vote(struct pl_link *l, struct http_way *w);
bool pl_http_recall(struct pl_link *l, struct http_way *w);
bool pl_http_knows(struct pl_link *l, struct http_way *w);

/* http_join.c. prepare() makes a link that has not joined, with the certificate of that name; the
 * caller detaches it, also if this fails. */
int pl_http_prepare(const struct pl_client_link_conf *conf, const char *as, struct pl_link **out,
                    struct pl_why *why);
int pl_http_connect(const struct pl_client_link_conf *conf, struct pl_link **out,
                    struct pl_welcome *welcome, struct pl_why *why);
void pl_http_detach(struct pl_link *l);

#endif
