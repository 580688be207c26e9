/* pl_client: a worker or the evaluator of a run whose server is another process.
 *
 * Threads: the caller's; pl_client_interrupt is called by any. */
#include <ctype.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/seconds.h"
#include "paceline_client.h"
#include "run/about.h"
#include "run/worker.h"
#include "sys/clock.h"
#include "sys/numerals.h"
#include "transport/client_link.h"
#include "transport/mpi.h"

#define CLIENT_WAIT 30 /* seconds, unless the caller sets them */
#define CLIENT_AGAIN_NS 30000000000u
#define CLIENT_SLICE_NS 100000000u /* after which a wait looks whether it was interrupted */
#define CLIENT_WORD_NS 1000000000u /* for the server to take a request */
#define CLIENT_NUMBERS 16
#define CLIENT_NAME 32

struct pl_client {
    char path[256], keys[256]; /* of the server's socket or its URL, */
    struct pl_newcomer client; /* what it was told, for joining again, */
    struct pl_past past;       /* and the server that it had before */
    const struct pl_transport *t;
    struct pl_link *link;
    int role, worker;
    bool speaks; /* the server carries out its requests */
    size_t dim;
    bool raw, checks;
    struct pl_about about;
    char server[PL_ABOUT_MAX];
    struct pl_order order;
    struct pl_client_task task; /* as given to the caller */
    bool has_task;
    struct pl_choice local;        /* a worker's local rule, */
    struct pl_local_state state;   /* what it keeps, */
    struct pl_local_steps steps;   /* and how far the current task is */
    bool is_gradient;              /* the rule's result is the gradient, as it was computed */
    struct pl_model_range buffers; /* the last elements of the vector, if there are any */
    float *room, *g;               /* [dim] scratch of the rule */
    uint32_t samples;              /* of the current task so far */
    bool more;                     /* the current task is not complete */
    const float *base;             /* [dim] the input of the current task */
    float *w, *out; /* [dim] of an evaluator; of a worker whose results are bfloat16 */
    uint64_t absent[PL_ABSENT_WORDS]; /* bits of the tensors that the result does not have, */
    uint32_t n_absent;                /* if there are any: words of it */
    bool sets_lr, lr_sent; /* a rate was set, and no result with it has counted; one has it */
    double lr;
    uint64_t pushed;           /* task that was pushed last */
    char numbers[PL_WORD_MAX]; /* of an evaluator's answer: " name=value …" */
    int n_numbers;
    atomic_bool interrupted;
    struct pl_why why;
};

/* --- joining -------------------------------------------------------------------------------- */

static uint64_t client_ns(double seconds, double otherwise) {
    double s = isnan(seconds) ? otherwise : seconds;
    if (s <= 0) return 0;
    return s < 1e9 ? pl_ns(s) : UINT64_MAX;
}

/* The local rule, with the vectors that it needs. */
static int client_rule(struct pl_client *s) {
    const struct pl_about *a = &s->about;
    char spec[PL_SPEC_MAX + PL_ABOUT_NAME];
    snprintf(spec, sizeof spec, "%s:%s", a->rule, a->options);
    int rc =
        pl_spec_parse(&pl_local_family, spec, a->workers, &s->local.entry, &s->local.conf, NULL);
    if (rc) return rc == PL_ENOMEM ? rc : PL_EDATA;
    if (!((const struct pl_local *)s->local.entry)->begin) return PL_EDATA;
    s->buffers = (struct pl_model_range){a->parameters, s->dim, 0, 0, PL_RANGE_BUFFERS};
    s->is_gradient = pl_local_is_gradient(&s->local);
    if (s->is_gradient) return PL_OK;
    s->room = malloc(s->dim * sizeof *s->room);
    s->g = malloc(s->dim * sizeof *s->g);
    rc = pl_local_state_new(&s->local, s->dim, &s->state);
    return s->room && s->g ? rc : PL_ENOMEM;
}

/* What depends on the run. */
static int client_prepare(struct pl_client *s, const char *path) {
    size_t bytes = s->dim * sizeof(float);
    int rc = pl_about_read(s->server, &s->about);
    if (!rc && s->role == PL_ROLE_WORKER) rc = client_rule(s);
    if (!rc && s->role == PL_ROLE_EVALUATOR && !(s->w = malloc(bytes))) rc = PL_ENOMEM;
    bool converts = s->role == PL_ROLE_WORKER && s->about.half && !(s->raw && s->is_gradient);
    if (!rc && converts && !(s->out = malloc(bytes))) rc = PL_ENOMEM;
    if (rc == PL_ENOMEM) return pl_fail(&s->why, rc, "out of memory for %zu parameters", s->dim);
    return rc ? pl_fail(&s->why, rc, "the server at '%.200s' is of another version of Paceline",
                        path)
              : PL_OK;
}

/* Leaves the run, and forgets all about it. */
static void client_leave(struct pl_client *s) {
    if (s->link) s->t->link.detach(s->link);
    s->link = NULL;
    pl_local_state_free(&s->state);
    free(s->local.conf);
    free(s->room);
    free(s->g);
    free(s->w);
    free(s->out);
    s->local = (struct pl_choice){0};
    s->room = s->g = s->w = s->out = NULL;
    s->more = s->lr_sent = false;
    s->pushed = 0;
}

/* Joins, for the first time or in place of a link that was lost, which stays if this fails. */
static int client_enter(struct pl_client *s, struct pl_client_link_conf *client) {
    struct pl_welcome welcome;
    struct pl_link *link = NULL;
    client->past = &s->past;
    client->wants_final = true;
    int rc = s->t->join->connect(client, &link, &welcome, &s->why);
    if (rc) return rc;
    client_leave(s);
    s->link = link;
    s->worker = s->role == PL_ROLE_WORKER ? welcome.worker : -1;
    s->dim = welcome.dim;
    s->speaks = welcome.speaks;
    memcpy(s->server, welcome.about, sizeof s->server);
    return client_prepare(s, client->path);
}

/* How the server at this path is reached: a socket of this machine, a URL, or other ranks. */
static int client_transport(struct pl_client *s, const char *path) {
    bool far = strncmp(path, "http://", 7) == 0 || strncmp(path, "https://", 8) == 0;
    bool ranks = strcmp(path, PL_MPI_SERVER) == 0;
    int rc = ranks ? pl_mpi_load(&s->why) : PL_OK;
    s->t = ranks ? pl_mpi_transport() : far ? &pl_http : &pl_shm;
    return rc;
}

static int client_connect(struct pl_client *s, const struct pl_client_conf *conf) {
    struct pl_client_link_conf client = {
        .path = conf->path,
        .keys = conf->keys ? conf->keys : getenv("PACELINE_KEYS"),
        .waiting = conf->waiting,
        .ctx = conf->waiting_ctx,
        .wait_ns = client_ns(conf->wait == 0 ? CLIENT_WAIT : conf->wait, CLIENT_WAIT),
        .client = {.kind = conf->role == PL_ROLE_EVALUATOR ? PL_CLIENT_EVALUATOR : PL_CLIENT_WORKER,
                   .dim = conf->dim,
                   .can = conf->steps ? PL_ABOUT_STEPS : 0,
                   .seat = conf->number > 0 ? (uint64_t)conf->number : 0}};
    if (!conf->path || conf->role < PL_ROLE_WORKER || conf->role > PL_ROLE_EVALUATOR)
        return pl_fail(&s->why, PL_EUSAGE, "a client needs the path of a socket and a role");
    if (conf->fingerprint)
        snprintf(client.client.fingerprint, sizeof client.client.fingerprint, "%016llx",
                 (unsigned long long)conf->fingerprint);
    const char *token = conf->token ? conf->token : "", *job = conf->job ? conf->job : "";
    if (snprintf(client.client.token, PL_TOKEN_MAX, "%s", token) >= PL_TOKEN_MAX ||
        snprintf(client.client.job, PL_JOB_MAX, "%s", job) >= PL_JOB_MAX)
        return pl_fail(&s->why, PL_EUSAGE, "a token has at most %d bytes and the name of a job %d",
                       PL_TOKEN_MAX - 1, PL_JOB_MAX - 1);
    s->role = conf->role;
    s->raw = conf->raw != 0;
    s->checks = conf->checks != 0;
    s->client = client.client;
    if ((size_t)snprintf(s->path, sizeof s->path, "%s", conf->path) >= sizeof s->path ||
        (size_t)snprintf(s->keys, sizeof s->keys, "%s", client.keys ? client.keys : "") >=
            sizeof s->keys)
        return pl_fail(&s->why, PL_EUSAGE, "'%.200s' is too long", conf->path);
    int rc = client_transport(s, conf->path);
    return rc ? rc : client_enter(s, &client);
}

int pl_client_open(const struct pl_client_conf *conf, pl_client **out, char *why, size_t why_max) {
    PL_NUMERALS;
    struct pl_client *s = calloc(1, sizeof *s);
    int rc = s ? client_connect(s, conf) : PL_ENOMEM;
    if (why_max > 0) snprintf(why, why_max, "%s", s ? s->why.text : "out of memory");
    if (rc)
        pl_client_close(s);
    else
        *out = s;
    return rc;
}

void pl_client_close(pl_client *s) {
    if (!s) return;
    client_leave(s);
    free(s);
}

const char *pl_client_server(const pl_client *s) {
    return s->server;
}

const char *pl_client_why(const pl_client *s) {
    return s->why.text;
}

/* --- tasks ---------------------------------------------------------------------------------- */

void pl_client_interrupt(pl_client *s) {
    atomic_store(&s->interrupted, true);
}

/* The next mini-batches of the current task. */
static void client_show(struct pl_client *s) {
    const struct pl_local_task *t = &s->steps.task;
    s->task.w = t->moved ? t->x : t->at;
    s->task.out = t->moved ? t->x : t->g;
    s->task.step = s->steps.done;
    s->task.steps = s->steps.wanted;
}

static void client_ordered(struct pl_client *s) {
    const struct pl_run_note note = pl_note_unpack(&s->order);
    const struct pl_local *rule = (const struct pl_local *)s->local.entry;
    const struct pl_about *a = &s->about;
    bool moves = s->client.can & PL_ABOUT_STEPS && rule->plain && rule->plain(s->local.conf);
    if (s->pushed > 0 && s->pushed == note.acked) {
        pl_local_state_acked(&s->state);
        if (s->lr_sent) s->sets_lr = false;
    }
    s->pushed = s->samples = s->n_absent = 0;
    s->state.applied = note.applied;
    s->base = pl_worker_input(s->t, s->link, &s->order, s->dim);
    struct pl_local_task t = {.dim = s->dim,
                              .w = s->base,
                              .lr = note.lr,
                              .weight_decay = a->weight_decay,
                              .ranges = {&s->buffers, a->parameters < s->dim},
                              .n_workers = a->workers,
                              .model = s->room,
                              .g = s->g,
                              .out = s->order.half_out ? s->out : s->order.out,
                              .moved = moves};
    pl_local_begin(&s->local, &t, &s->state, s->order.task, note.version, &s->steps);
    s->task = (struct pl_client_task){
        .worker = s->worker,
        .task = s->order.task,
        .version = note.version,
        .dim = s->dim,
        .w16 = s->is_gradient ? s->order.half_in : NULL,
        .out16 = s->is_gradient ? s->order.half_out : NULL,
        .wants = moves ? PL_WANTS_STEPS : PL_WANTS_GRADIENT,
        .lr = s->steps.task.lr,
        .checks = note.checks && s->checks && s->is_gradient && !s->order.half_out,
        .weight_decay = rule->applies_weight_decay ? a->weight_decay : 0};
    client_show(s);
}

/* Whether more mini-batches of the current task are wanted. */
static bool client_goes_on(struct pl_client *s) {
    bool goes_on = s->more && !pl_cancelled(s->t->link.cancelled(s->link));
    s->more = false;
    if (goes_on) client_show(s);
    return goes_on;
}

/* Waits for an order or, as an evaluator, for a newer version. The end brings the last version. */
static int client_look(struct pl_client *s, uint64_t wait_ns) {
    const struct pl_join_ops *join = s->t->join;
    struct pl_order shown = {0};
    bool works = s->role == PL_ROLE_WORKER;
    int rc = works ? join->pull(s->link, wait_ns, &s->order)
                   : join->newest(s->link, wait_ns, s->w, shown.note);
    if (!rc && works) client_ordered(s);
    if (rc ? rc != PL_ECANCELLED : works) return rc;
    const float *w = !rc ? s->w : join->final ? join->final(s->link, shown.note) : NULL;
    const struct pl_run_note note = pl_note_unpack(&shown);
    s->task = (struct pl_client_task){.worker = s->worker,
                                      .version = note.version,
                                      .dim = s->dim,
                                      .w = w,
                                      .wants = PL_WANTS_NUMBERS,
                                      .lr = note.lr};
    return rc;
}

/* The server is not there any more, or not for this worker: one that was too slow joins again, if
 * there is still a place. PL_ETIMEDOUT: it has. */
static int client_lost(struct pl_client *s) {
    struct pl_client_link_conf client = {
        .path = s->path, .keys = s->keys, .client = s->client, .wait_ns = CLIENT_AGAIN_NS};
    char sentence[PL_WORD_MAX], refused[PL_WHY_MAX];
    bool again = false;
    if (!s->t->join->farewell(s->link, sentence, &again))
        return pl_fail(&s->why, PL_ERUN, "the server is gone before the run has ended");
    if (!again) return pl_fail(&s->why, PL_ERUN, "the server hung up: %s", sentence);
    int rc = client_enter(s, &client);
    if (!rc) return PL_ETIMEDOUT;
    snprintf(refused, sizeof refused, "%s", s->why.text);
    return pl_fail(&s->why, rc == PL_EINTR ? rc : PL_ERUN,
                   "the server hung up: %.100s; and it cannot join again: %.300s", sentence,
                   refused);
}

int pl_client_pull(pl_client *s, double seconds, struct pl_client_task *task) {
    PL_NUMERALS;
    uint64_t now = pl_now_ns(), wait = seconds < 0 ? UINT64_MAX : client_ns(seconds, 0);
    uint64_t end = wait > UINT64_MAX - now ? UINT64_MAX : now + wait;
    uint64_t slice = s->role == PL_ROLE_WORKER ? CLIENT_SLICE_NS : 2 * CLIENT_SLICE_NS;
    int rc;
    s->has_task = false;
    s->why.text[0] = s->numbers[0] = '\0';
    s->n_numbers = 0;
    for (;;) {
        if (atomic_exchange(&s->interrupted, false)) return PL_EINTR;
        uint64_t left = end > now ? end - now : 0;
        rc = client_goes_on(s) ? PL_OK : client_look(s, left < slice ? left : slice);
        if (rc == PL_ECANCELLED && s->t->join->lost(s->link)) rc = client_lost(s);
        if (rc != PL_ETIMEDOUT) break;
        now = pl_now_ns();
        if (now >= end) return rc;
    }
    s->has_task = rc == PL_OK;
    *task = s->task;
    return rc;
}

int pl_client_cancelled(const pl_client *s) {
    if (!s->has_task || s->role != PL_ROLE_WORKER) return 0;
    bool (*hung_up)(const struct pl_link *l) = s->t->join->hung_up;
    return hung_up && hung_up(s->link) ? 2 : pl_cancelled(s->t->link.cancelled(s->link));
}

static int client_no_task(struct pl_client *s) {
    return pl_fail(&s->why, PL_EUSAGE, "there is no task to answer; pull one first");
}

/* Whether the result can be used, if the server asks for that (docs/decisions/finite.md) and not
 * the program; converts it to what is sent. */
static bool client_finite(struct pl_client *s) {
    uint16_t *half = s->order.half_out;
    if (half && s->out) pl_dtype_narrow(PL_BF16, s->out, s->dim, half);
    if (s->task.checks || !pl_note_unpack(&s->order).checks) return true;
    if (!half) return pl_vec_finite(s->order.out, s->dim);
    bool finite = true;
    for (size_t i = 0; i < s->dim; i++) finite &= (half[i] & 0x7f80) != 0x7f80;
    return finite;
}

static int client_send(struct pl_client *s, struct pl_result *r) {
    r->sets_lr = s->sets_lr;
    r->lr = s->lr;
    r->absent = s->absent;
    r->n_absent = s->n_absent;
    s->lr_sent = s->sets_lr;
    s->t->link.push(s->link, r);
    s->has_task = false;
    s->n_absent = 0;
    s->pushed = r->task;
    return PL_OK;
}

/* Whether the server listens to this client. */
static int client_may_ask(struct pl_client *s) {
    if (s->speaks) return PL_OK;
    return pl_fail(&s->why, PL_EUSAGE,
                   "this client may not change the run; start the server with --requests TOKEN and "
                   "open the client with the same token, or with --requests any");
}

static int client_say(struct pl_client *s, const char *word) {
    int rc = s->t->join->say(s->link, word, CLIENT_WORD_NS);
    if (rc == PL_ECANCELLED) return pl_fail(&s->why, PL_ERUN, "the server is gone");
    if (rc == PL_ETIMEDOUT)
        return pl_fail(&s->why, PL_ERUN, "the server did not take a request within a second");
    return rc;
}

/* An evaluator's answer. */
static int client_score(struct pl_client *s) {
    char word[PL_WORD_MAX];
    int n = snprintf(word, sizeof word, "score %llu%s", (unsigned long long)s->task.version,
                     s->numbers);
    if (n < 0 || (size_t)n >= sizeof word)
        return pl_fail(&s->why, PL_EUSAGE, "an answer has at most %d bytes of numbers",
                       PL_WORD_MAX - 32);
    s->has_task = false;
    return client_say(s, word);
}

int pl_client_absent(pl_client *s, const unsigned char *absent, size_t n) {
    if (!s->has_task) return client_no_task(s);
    if (n != s->about.tensors || !s->is_gradient)
        return pl_fail(&s->why, PL_EUSAGE,
                       "results may lack some of %zu tensors of parameters here, and not of %zu; "
                       "see \"tensors\" of the server",
                       s->about.tensors, n);
    memset(s->absent, 0, sizeof s->absent);
    for (size_t i = 0; i < n; i++)
        if (absent[i]) s->absent[i / 64] |= UINT64_C(1) << i % 64;
    s->n_absent = (uint32_t)((n + 63) / 64);
    return PL_OK;
}

int pl_client_push(pl_client *s, size_t n, uint32_t samples, double loss) {
    PL_NUMERALS;
    if (!s->has_task) return client_no_task(s);
    if (s->role == PL_ROLE_EVALUATOR) return client_score(s);
    const struct pl_local *rule = s->steps.rule;
    if (samples == 0) samples = s->about.batch * s->task.steps;
    if (n == s->dim) {
        s->samples += samples;
        s->has_task = false;
        s->more = pl_local_next(&s->steps, loss);
        if (s->more) return PL_OK;
        samples = s->samples;
        loss = s->steps.loss;
    }
    struct pl_result r = {.task = s->task.task, .samples = samples, .loss = loss};
    if (s->order.stays) { /* the result is this worker's model */
        struct pl_own_step own = {
            .lr = s->task.lr,
            .decay = rule->applies_weight_decay ? 0 : s->about.weight_decay,
            .outer = rule->outer ? rule->outer(s->local.conf, s->about.workers) : 1};
        pl_task_own(rule->sends, &own, s->base, s->order.out, s->dim);
    }
    if (n != s->dim)
        r.defect = PL_WRONG_SIZE;
    else if (isinf(loss) || !client_finite(s))
        r.defect = PL_NOT_FINITE;
    return client_send(s, &r);
}

int pl_client_fail(pl_client *s) {
    if (!s->has_task) return client_no_task(s);
    struct pl_result r = {.task = s->task.task, .defect = PL_NOT_COMPUTED, .loss = NAN};
    s->numbers[0] = '\0';
    return s->role == PL_ROLE_EVALUATOR ? client_score(s) : client_send(s, &r);
}

/* --- requests ------------------------------------------------------------------------------- */

int pl_client_report(pl_client *s, const char *name, double value) {
    PL_NUMERALS;
    size_t n = strlen(name), used = strlen(s->numbers);
    bool ok = n > 0 && n < CLIENT_NAME && s->n_numbers < CLIENT_NUMBERS;
    for (size_t i = 0; ok && i < n; i++)
        ok = isalnum((unsigned char)name[i]) || strchr("_.-", name[i]) != NULL;
    if (!ok || !s->has_task || s->role != PL_ROLE_EVALUATOR)
        return pl_fail(&s->why, PL_EUSAGE,
                       "an evaluator reports up to %d numbers about a version it has pulled, with "
                       "names of 1 to %d letters, digits, _ . and -",
                       CLIENT_NUMBERS, CLIENT_NAME - 1);
    if (!pl_about_can_be(name, n, value))
        return pl_fail(&s->why, PL_EUSAGE,
                       "%s cannot be %.6g; an accuracy is from 0 to 1, and no number above 1e100",
                       name, value);
    if (used + n + 32 >= sizeof s->numbers - 32)
        return pl_fail(&s->why, PL_EUSAGE, "these are too many numbers for one answer");
    pl_append(s->numbers, sizeof s->numbers, " %s=%.17g", name, value);
    s->n_numbers++;
    return PL_OK;
}

static int client_request(struct pl_client *s, const char *word) {
    int rc = client_may_ask(s);
    return rc ? rc : client_say(s, word);
}

int pl_client_set_lr(pl_client *s, double lr) {
    PL_NUMERALS;
    char word[64];
    if (!(lr >= 0 && lr <= 1e6))
        return pl_fail(&s->why, PL_EUSAGE, "a learning rate is a number from 0 to 1e6");
    snprintf(word, sizeof word, "lr %.17g", lr);
    if (s->role != PL_ROLE_WORKER || pl_client_cancelled(s)) return client_request(s, word);
    int rc = client_may_ask(s);
    if (rc) return rc;
    s->sets_lr = true; /* the next result has it, and cannot overtake it */
    s->lr_sent = false;
    s->lr = lr;
    return PL_OK;
}

int pl_client_checkpoint(pl_client *s) {
    return client_request(s, "checkpoint");
}

int pl_client_pause(pl_client *s, int yes) {
    return client_request(s, yes ? "pause" : "resume");
}

int pl_client_save(pl_client *s) {
    return client_request(s, "save");
}

int pl_client_load(pl_client *s) {
    return client_request(s, "load");
}

int pl_client_end(pl_client *s) {
    return client_request(s, "end");
}
