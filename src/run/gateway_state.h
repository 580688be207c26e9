/* The inside of the gateway, which its files share. A request is one HTTP request; a seat is what a
 * client has between them.
 *
 * Threads: a few of libmicrohttpd's, which never wait; those of requests that take their time
 * (gateway_park.c); and pl_gateway_watch(). `lock` protects the lists and the members that say so;
 * `bell` is rung when one of them changes.
 *
 * Its files call each other in a circle, because the things do: a request finds its seat, a seat
 * that ends ends its requests, and either may be what the watch or a standby waits for. */
#ifndef PL_RUN_GATEWAY_STATE_H
#define PL_RUN_GATEWAY_STATE_H

#include <microhttpd.h>
#include <stdatomic.h>

#include "run/gateway.h"
#include "sys/clock.h"
#include "sys/futex.h"
#include "sys/httpd.h"
#include "sys/lock.h"
#include "transport/client_link.h"
#include "transport/http_wire.h"

#define GATEWAY_SECOND UINT64_C(1000000000)
#define GATEWAY_END_NS (3 * GATEWAY_SECOND)   /* for clients to learn that the run has ended */
#define GATEWAY_FINAL_RATE UINT64_C(10000000) /* bytes per second of final versions, at least */
#define GATEWAY_TOGETHER(ns) ((ns) - (ns) % (GATEWAY_SECOND / 4)) /* one look for many waits */
/* to those whose requests are not carried out */
#define GATEWAY_MUTE                                                                               \
    "this client may not change the run; start the server with --requests TOKEN and join with "    \
    "the "                                                                                         \
    "same token in the header Paceline-Token"
#define GATEWAY_URL 300
#define GATEWAY_REPORTS 10 /* refusals that are reported, */
#define GATEWAY_REPORT 400 /* and their length */
#define PL_NO_COPY UINT64_MAX

/* Seconds between two beats of a seat: there are no more than about a hundred per second in all.
 * Whether a connection is cut is found without them, as for one that is idle. */
static inline unsigned pl_gateway_beat_s(const struct pl_gateway_conf *conf) {
    unsigned s = (unsigned)conf->n_clients / 100;
    return s > PL_WIRE_BEAT_S ? s : PL_WIRE_BEAT_S;
}

enum seat_life {
    SEAT_HELD,     /* its client has it, and may come back to it */
    SEAT_GIVEN_UP, /* by the server, which its client has not heard yet */
    SEAT_ENDED     /* no request finds it any more */
};

/* Whether a client has a connection. */
enum presence {
    PRESENCE_UNKNOWN, /* it never asked for its events, and may compute without a connection */
    PRESENCE_HERE,
    PRESENCE_AWAY
};

struct seat_presence {
    enum presence state;
    bool told_away;      /* what pl_gateway_moved() told last, */
    bool told_name;      /* and whether it told the name */
    uint64_t seen_ns;    /* when the last request ended, */
    uint64_t longest_ns; /* and the longest time without one */
    uint64_t back_ns;    /* it came back without its events, and is not away before that */
};

/* Whether a client may elect the standby. */
enum elector {
    ELECTOR_NOT,    /* the standby does not know it */
    ELECTOR_COUNTS, /* the standby counts its vote */
    ELECTOR_FORGOT  /* but it has said that it will not vote */
};

struct seat {
    struct seat *next;
    struct pl_gateway *gateway;
    char key[PL_WIRE_KEY + 1], name[PL_WORKER_NAME]; /* of its certificate */
    struct pl_link *link;
    int worker;  /* its number, */
    size_t dim;  /* and the length of its vectors */
    float *room; /* [dim] of an evaluator */
    /* the newest version of an earlier server that it says it had; 0: none */
    uint64_t seen;
    enum pl_client_kind kind;
    bool speaks; /* its requests are carried out */
    /* the gateway's lock */
    enum seat_life life;
    struct seat_presence presence;
    enum elector elector;
    int n_requests;      /* that know it */
    struct request *has; /* the one that may use the link */
    bool asks_final;     /* its client asks for the final version when it knows of the end */
    bool told;           /* its client knows that the run is over, and asks for nothing more */
    uint64_t answered;   /* task of the last result that was pushed */
    char *farewell;      /* why the server hung up; NULL: it did not say so yet */
    bool again;          /* and whether its client may join again */
    /* of the request that has it, and read by its events */
    struct pl_order order;
    _Atomic uint64_t task; /* that the client computes; 0: none */
};

enum standby_state {
    STANDBY_NONE,
    STANDBY_HERE,  /* it has had a copy: orders wait for it */
    STANDBY_LOSING /* it is silent, and workers were asked to forget it: orders still wait */
};

struct standby {
    atomic_bool waits; /* a request of it waits for a copy */
    /* the gateway's lock */
    enum standby_state state;
    uint64_t losing_ns;    /* since when it is being lost, */
    bool told_losing;      /* and whether it was said that this takes long */
    uint64_t has;          /* the version of its copy, or PL_NO_COPY */
    int workers;           /* that it was told of, */
    int electors;          /* without those that have left since */
    bool told;             /* that the run is over */
    int n_requests;        /* of it, */
    uint64_t seen_ns;      /* and when the last one ended */
    char url[GATEWAY_URL]; /* where workers reach it */
    unsigned change;       /* counts how often workers had to hear of it */
    struct pl_copy *copy;  /* for its next answer; or NULL */
};

struct vote;

enum route {
    ROUTE_NONE,
    ROUTE_JOIN,
    ROUTE_NEXT,
    ROUTE_EVENTS,
    ROUTE_WORD,
    ROUTE_NEWEST,
    ROUTE_FINAL,
    ROUTE_LEAVE,
    ROUTE_SETUP,
    ROUTE_COPY,
    ROUTE_VOTE,
    ROUTE_RECALL,
    ROUTE_HEALTH
};

/* What a request brings for a task. */
enum result_use {
    RESULT_NONE,
    RESULT_NEW,
    RESULT_LATE /* of an order that was replaced, or sent again: it is read and dropped */
};

struct request_body {
    char *into;                /* where it goes; NULL: it is dropped */
    size_t n, room;            /* bytes of it so far, and in all */
    uint64_t since_ns, n_came; /* when its first bytes came, and how many did */
};

/* Until an earlier request of the same seat has ended. */
struct request_turn {
    uint64_t until_ns; /* it waits until then; 0: it does not */
    unsigned refusal;  /* it waited in vain, which it is told after its body, */
    const char *why;   /* and the reason */
};

/* For an order, or for a version. */
struct request_order {
    bool waits;      /* the gateway's lock: it waits in the link, and may be sent away */
    bool pulled;     /* it has an order, which the standby must have first */
    uint64_t end_ns; /* when it is answered at last */
};

struct request_events {
    uint64_t told;    /* the task whose cancel was sent; UINT64_MAX: the end was */
    uint64_t beat_ns; /* when a beat is due, */
    unsigned beat_s;  /* seconds between two */
    unsigned standby; /* the change of the standby that was sent */
};

/* Waiting with a connection that is suspended (gateway_park.c). The gateway's lock. */
struct request_park {
    bool parked; /* until *word is not `seen`, or the time has come */
    atomic_uint *word;
    unsigned seen;
    uint64_t until_ns;
    struct request *woken; /* the next one that goes on */
};

/* Work on a thread of its own (gateway_park.c). */
struct request_aside {
    bool runs;                /* the gateway's lock: it carries out work() */
    struct pl_thread *thread; /* which was started, */
    enum MHD_Result (*work)(struct request *r);
    struct MHD_Response *reply; /* and what it leaves */
    unsigned status;
};

struct request {
    struct request *next, *previous; /* in the gateway's list, for the watch */
    struct pl_gateway *gateway;
    struct MHD_Connection *connection;
    enum route route;
    struct seat *seat;
    int fd;
    bool answered;             /* or about to be */
    atomic_bool cut;           /* its connection is closed, or another request takes its place */
    bool returns;              /* the gateway's lock: its client was away until it came */
    bool follows;              /* it is a standby's */
    char name[PL_WORKER_NAME]; /* of its client's certificate */
    char text[PL_WORD_MAX];    /* its body, if that is short */
    struct request_body body;
    enum result_use brings;
    struct pl_result result;
    uint64_t *absent; /* [n_absent] of the result; NULL: it has all tensors */
    struct request_turn turn;
    struct request_order order;
    struct request_events events;
    struct request_park park;
    struct request_aside aside;
};

struct pl_gateway {
    struct pl_gateway_conf conf;
    struct pl_httpd *httpd;
    int wake, poll;               /* of the watch: an eventfd, and what it polls */
    char *pem[3];                 /* authority, certificate, key */
    char *allowed;                /* names, one per line; NULL: all */
    char secret[PL_WIRE_KEY + 1]; /* of the keys of its seats */
    struct pl_thread *watch;
    uint64_t tidy_ns; /* when the watch closes idle connections */
    atomic_uint bell;
    atomic_bool moved;    /* a worker is away or back, and it was not told */
    struct pl_lock *lock; /* of the rest */
    uint64_t look_ns;     /* when the watch looks again */
    struct seat *seats;
    struct request *requests;
    struct standby standby;
    char first[PL_WIRE_KEY + 1]; /* secret of the server that this standby follows; "": none yet */
    struct vote *vote;           /* [n_votes] of a standby */
    int n_votes;
    bool elected; /* they were enough, and cannot be taken back any more */
    int n_reports;
    char report[GATEWAY_REPORTS][GATEWAY_REPORT]; /* what was said of clients that were refused */
    bool over, closed;
};

/* gateway.c. ring() wakes all threads that wait for a change, and look() only the watch. over()
 * returns whether the run has ended. report() logs that a client was refused, once for each reason,
 * and few reasons; report_request() that a request of it cannot be used, once for each client. */
void pl_gateway_ring(struct pl_gateway *g);
void pl_gateway_look(struct pl_gateway *g);
bool pl_gateway_over(struct pl_gateway *g);
void pl_gateway_report(const struct request *r, const char *what);
void pl_gateway_report_request(const struct request *r, const char *what);

/* gateway_seat.c. remove() takes a seat out of the list if it has ended and nobody knows it; the
 * caller has the lock, and frees what is returned after it has left it. end() ends whatever waits
 * for it; the caller has the lock. find() makes the caller one who knows it; with another
 * certificate than that of its client, it is not found. take() makes this request the one that uses
 * the link: an earlier one that waits is sent away. False: its result is arriving, or it is being
 * answered. */
void pl_gateway_seat_free(struct seat *s);
struct seat *pl_gateway_seat_remove(struct pl_gateway *g, struct seat *s);
void pl_gateway_seat_end(struct seat *s);
void pl_gateway_seat_told(struct seat *s); /* that the run is over; the caller has the lock */
bool pl_gateway_seat_find(struct request *r, const char *key, size_t n);
void pl_gateway_seat_listens(struct seat *s);            /* the caller has the lock */
uint64_t pl_gateway_seat_patience(const struct seat *s); /* without a connection */
bool pl_gateway_seat_take(struct seat *s, struct request *r);
int pl_gateway_seats(const struct pl_gateway *g);  /* of workers; the caller has the lock */
bool pl_gateway_seat_counts(const struct seat *s); /* it is one of them; likewise */

/* gateway_key.c: a new secret; a new key for a worker, or for an evaluator, which is -1. worker()
 * returns whose key it is, and -1 if it was not made with that secret. */
bool pl_gateway_secret(char secret[PL_WIRE_KEY + 1]);
bool pl_gateway_key(const struct pl_gateway *g, int worker, char key[PL_WIRE_KEY + 1]);
int pl_gateway_key_worker(const char *secret, const char *key);

/* gateway_said.c: what the headers of a request say. Of a number that is none, *bad is set. */
const char *pl_gateway_said(const struct request *r, const char *name); /* NULL: nothing */
uint64_t pl_gateway_said_whole(const struct request *r, const char *name, uint64_t most, bool *bad);
bool pl_gateway_said_text(const struct request *r, const char *name, char *out, size_t max);
bool pl_gateway_said_result(struct request *r);

/* gateway_answer.c: what the server answers. */
enum MHD_Result pl_gateway_answer(struct request *r, unsigned status, const char *text);
enum MHD_Result pl_gateway_answer_reply(struct request *r); /* what its thread has left */
enum MHD_Result pl_gateway_answer_gone(struct request *r);  /* the run is over, or it hung up */
enum MHD_Result pl_gateway_answer_order(struct request *r);
enum MHD_Result pl_gateway_answer_newest(struct request *r);
enum MHD_Result
pl_gateway_answer_final(struct request *r); /* the version that the run ended with */
enum MHD_Result pl_gateway_answer_copy(struct request *r, unsigned char *bytes, size_t n,
                                       uint64_t version); /* frees the bytes; NULL: there is none */
enum MHD_Result pl_gateway_answer_seat(struct request *r, const struct seat *s,
                                       const struct pl_welcome *w);

/* gateway_join.c. Why this client must not join; NULL: it may. */
const char *pl_gateway_stranger(struct request *r);
enum MHD_Result pl_gateway_join(struct request *r);

/* gateway_park.c. A request waits until *word is not `seen`, or `ns` have passed; then it is called
 * again. unpark() finds those for which that is so, and returns after how long to look again;
 * UINT64_MAX: nobody waits. aside() has a thread do work(), which answers. */
enum MHD_Result pl_gateway_park(struct request *r, atomic_uint *word, unsigned seen, uint64_t ns);
uint64_t pl_gateway_unpark(struct pl_gateway *g);
enum MHD_Result pl_gateway_aside(struct request *r, enum MHD_Result (*work)(struct request *r));

/* gateway_order.c. begin() decides where the body goes; it returns why there must be none. */
const char *pl_gateway_order_begin(struct request *r);
enum MHD_Result pl_gateway_order_next(struct request *r);
enum MHD_Result pl_gateway_order_newest(struct request *r);

enum MHD_Result pl_gateway_events(struct request *r); /* gateway_events.c */

/* gateway_standby.c. done() ends a request of the standby; the caller has the lock. look() finds
 * out whether it is lost, and returns after how long to look again. holds() returns whether the
 * standby lacks the version of this order, and must have it first. heard() notes whether a worker
 * still knows of a standby; the caller has the lock. where() tells where the standby is ("" without
 * one) and whether it is to be forgotten, and returns how often that has changed. */
enum MHD_Result pl_gateway_standby(struct request *r);
void pl_gateway_standby_done(struct request *r);
/* The standby hears how many workers there are, which is returned; a worker has left, and will not
 * vote. The caller has the lock. */
int pl_gateway_standby_told(struct pl_gateway *g);
void pl_gateway_standby_left(struct seat *s);
void pl_gateway_standby_heard(struct seat *s, bool knows);
unsigned pl_gateway_standby_where(struct pl_gateway *g, char url[GATEWAY_URL], bool *losing);
uint64_t pl_gateway_standby_look(struct pl_gateway *g, uint64_t now);
bool pl_gateway_standby_holds(struct request *r, const uint64_t note[PL_NOTE_WORDS]);

/* gateway_votes.c: a vote, or one that is taken back. */
enum MHD_Result pl_gateway_vote(struct request *r);
void pl_gateway_votes_free(struct pl_gateway *g);

/* gateway_request.c, for libmicrohttpd. */
enum MHD_Result pl_gateway_request(void *cls, struct MHD_Connection *connection, const char *url,
                                   const char *method, const char *version, const char *data,
                                   size_t *data_size, void **context);
void pl_gateway_request_done(void *cls, struct MHD_Connection *connection, void **context,
                             enum MHD_RequestTerminationCode code);

void pl_gateway_watch(void *gateway); /* gateway_watch.c: a thread */

#endif
