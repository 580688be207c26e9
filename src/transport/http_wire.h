/* The names that both ends of a link over HTTP use; docs/network.md describes the requests.
 *
 * Vectors are bodies, everything else is in headers.
 *
 * Threads: any. */
#ifndef PL_TRANSPORT_HTTP_WIRE_H
#define PL_TRANSPORT_HTTP_WIRE_H

#define PL_WIRE_PROTOCOL 1

#define PL_WIRE_SEATS "/v1/seats"
#define PL_WIRE_KEY 32 /* hexadecimal digits that name a seat */

/* Of a request for a seat, and its answer. */
#define PL_WIRE_VERSION "Paceline-Protocol"
#define PL_WIRE_KIND "Paceline-Kind" /* worker or evaluator */
#define PL_WIRE_DIM "Paceline-Dim"
#define PL_WIRE_CAN "Paceline-Can"
#define PL_WIRE_FINGERPRINT "Paceline-Fingerprint"
#define PL_WIRE_TOKEN "Paceline-Token"
#define PL_WIRE_JOB "Paceline-Job"
#define PL_WIRE_NUMBER "Paceline-Number" /* of the worker that it would like to be, from 1 */
#define PL_WIRE_SEAT "Paceline-Seat"     /* the key */
#define PL_WIRE_WORKER "Paceline-Worker" /* from 0 */
#define PL_WIRE_WORKERS "Paceline-Workers"
#define PL_WIRE_HALF "Paceline-Half"
#define PL_WIRE_SPEAKS "Paceline-Speaks"
#define PL_WIRE_RUN "Paceline-Run"         /* the id of the run, however often it was resumed */
#define PL_WIRE_EPOCH "Paceline-Epoch"     /* grows with each server of the run */
#define PL_WIRE_SEEN "Paceline-Seen"       /* the newest version that a client has had */
#define PL_WIRE_RETURNS "Paceline-Returns" /* 1: the server can be resumed if it dies */

#define PL_WIRE_BEAT "Paceline-Beat" /* seconds between two beats, without a standby */

#define PL_WIRE_COPY "/v1/copy"            /* for a standby */
#define PL_WIRE_VOTES "/v1/votes"          /* of workers, for a standby */
#define PL_WIRE_ADDRESS "Paceline-Address" /* HOST:PORT where a standby listens */
#define PL_WIRE_SECRET "Paceline-Secret"   /* of the server's keys, for its standby alone */

/* Of a result. */
#define PL_WIRE_TASK "Paceline-Task" /* of an order as well */
#define PL_WIRE_SAMPLES "Paceline-Samples"
#define PL_WIRE_LOSS "Paceline-Loss"
#define PL_WIRE_DEFECT "Paceline-Defect"
#define PL_WIRE_LR "Paceline-Lr"         /* of an order: the rate in force */
#define PL_WIRE_WAITED "Paceline-Waited" /* nanoseconds for a core, since the last result */
#define PL_WIRE_ABSENT "Paceline-Absent" /* bits of tensors, 16 hexadecimal digits per word */

/* Of a request for events, or a good-bye: URL of the standby that the client may vote for; absent:
 * it will not. */
#define PL_WIRE_STANDBY "Paceline-Standby"

/* Of a request for events: 1: the client asks for the final version when it hears of the end. */
#define PL_WIRE_FINAL "Paceline-Final"

/* Of a request for an order or a version: milliseconds after which there is none, at most 25000. */
#define PL_WIRE_WAIT "Paceline-Wait"

/* Of an order, and of a version that is shown. */
#define PL_WIRE_MODEL "Paceline-Version"
#define PL_WIRE_NOTE "Paceline-Note" /* words in hexadecimal, for programs of this library */
#define PL_WIRE_STAYS "Paceline-Stays"
#define PL_WIRE_TYPE "Paceline-Type"     /* f32 or bf16: of the body */
#define PL_WIRE_RESULT "Paceline-Result" /* f32 or bf16: of the result */

/* Of 410 Gone. */
#define PL_WIRE_OVER "Paceline-Over"   /* 1: the run has ended */
#define PL_WIRE_AGAIN "Paceline-Again" /* 1: the client may join again */

/* Seconds between two lines of the events of a seat: always if the client has said that it knows of
 * a standby, so that it notices soon when the server hangs; otherwise at least. */
#define PL_WIRE_BEAT_S 2

#endif
