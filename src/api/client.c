/* pl_client: a worker or the evaluator of a run whose server is another process.
 *
 * Threads: the caller's; pl_client_interrupt is called by any. */
#include <ctype.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "learn/task.h"
#include "run/about.h"
#include "run/stepper.h"
#include "run/worker.h"
#include "sys/clock.h"
#include "sys/numerals.h"
#include "transport/guest.h"

#define CLIENT_WAIT 30             /* seconds, unless the caller sets them */
#define CLIENT_SLICE_NS 100000000u /* after which a wait looks whether it was interrupted */
#define CLIENT_WORD_NS 1000000000u /* for the server to take a request */
#define CLIENT_NUMBERS 16
#define CLIENT_NAME 32

struct pl_client {
    char path[128];        /* of the server's socket, */
    struct pl_guest guest; /* and what it was told, for joining again */
    struct pl_link *link;
    int role, worker;
    size_t dim;
    bool raw;
    struct pl_about about;
    char server[PL_ABOUT_MAX];
    struct pl_order order;
    struct pl_client_task task; /* as given to the caller */
    bool has_task;
    struct pl_stepper *stepper; /* takes the local steps for a worker that does not; or NULL */
    struct pl_step step;        /* the gradient that it wants */
    uint32_t samples;           /* of the steps so far */
    bool stepping;              /* the stepper wants another gradient of the current task */
    const float *base;          /* [dim] the input of the current task */
    float *w, *out;             /* [dim] of an evaluator; of a worker whose results are bfloat16 */
    bool sets_lr, lr_sent;      /* a rate was set, and no result with it has counted; one has it */
    double lr;
    uint64_t pushed; /* task that was pushed last, and its version */
    uint64_t pushed_version;
    bool any; /* a result has counted: */
    uint64_t counted, counted_version;
    char numbers[PL_WORD_MAX]; /* of an evaluator's answer: " name=value …" */
    int n_numbers;
    atomic_bool interrupted;
    struct pl_why why;
};

/* --- joining -------------------------------------------------------------------------------- */

/* The rules that a list names, as bits; 0: it names one that does not exist. */
static uint64_t client_rules(const char *list, struct pl_why *why) {
    uint64_t can = 0;
    for (const char *at = list;; at++) {
        size_t n = strcspn(at, ",");
        uint64_t one = pl_about_rule(at, n);
        if (!one) {
            pl_fail(why, PL_EUSAGE,
                    "'%.*s' in rules '%.100s' is not a local rule; 'paceline list local' shows "
                    "them",
                    (int)(n < 60 ? n : 60), at, list);
            return 0;
        }
        can |= one;
        at += n;
        if (!*at) return can;
    }
}

static uint64_t client_ns(double seconds, double otherwise) {
    double s = isnan(seconds) ? otherwise : seconds;
    if (s <= 0) return 0;
    return s < 1e9 ? (uint64_t)llround(s * 1e9) : UINT64_MAX;
}

/* The stepper and vectors of its own, as far as this client needs them. */
static int client_memory(struct pl_client *s, uint64_t can) {
    uint64_t rule = pl_about_rule(s->about.rule, strlen(s->about.rule));
    size_t bytes = s->dim * sizeof(float);
    bool ok = true;
    if (s->role == PL_ROLE_EVALUATOR) {
        ok = (s->w = malloc(bytes)) != NULL;
    } else {
        if (!(can & rule) || (rule == PL_ABOUT_GRADIENT && s->about.keeps))
            ok = pl_stepper_new(&s->about, &s->stepper) == PL_OK;
        if (ok && s->about.half && (s->stepper || !s->raw)) ok = (s->out = malloc(bytes)) != NULL;
    }
    return ok ? PL_OK : pl_fail(&s->why, PL_ENOMEM, "out of memory for %zu parameters", s->dim);
}

/* Joins, for the first time or in place of a link that was lost, which stays if this fails. */
static int client_enter(struct pl_client *s, const struct pl_guest_conf *guest) {
    struct pl_welcome welcome;
    struct pl_link *link = NULL;
    int rc = pl_guest_connect(guest, &link, &welcome, &s->why);
    if (rc) return rc;
    pl_stepper_free(s->stepper); /* its rule may still write a result */
    pl_shm.link.detach(s->link);
    free(s->w);
    free(s->out);
    s->link = link;
    s->stepper = NULL;
    s->w = s->out = NULL;
    s->stepping = s->any = s->lr_sent = false;
    s->pushed = 0;
    s->worker = s->role == PL_ROLE_WORKER ? welcome.worker : -1;
    s->dim = welcome.dim;
    memcpy(s->server, welcome.about, sizeof s->server);
    rc = pl_about_read(s->server, &s->about);
    if (rc)
        return pl_fail(&s->why, rc, "the server at '%.200s' is of another version of Paceline",
                       guest->path);
    return client_memory(s, guest->guest.can);
}

static int client_connect(struct pl_client *s, const struct pl_client_conf *conf) {
    struct pl_guest_conf guest = {
        .path = conf->path,
        .waiting = conf->waiting,
        .ctx = conf->waiting_ctx,
        .wait_ns = client_ns(conf->wait == 0 ? CLIENT_WAIT : conf->wait, CLIENT_WAIT),
        .guest = {.kind = conf->role == PL_ROLE_EVALUATOR ? PL_GUEST_WATCHER : PL_GUEST_WORKER,
                  .dim = conf->dim}};
    if (!conf->path || conf->role < PL_ROLE_WORKER || conf->role > PL_ROLE_EVALUATOR)
        return pl_fail(&s->why, PL_EUSAGE, "a client needs the path of a socket and a role");
    guest.guest.can = client_rules(conf->rules ? conf->rules : pl_about_gradient(), &s->why);
    if (!guest.guest.can) return PL_EUSAGE;
    if (conf->fingerprint)
        snprintf(guest.guest.fingerprint, sizeof guest.guest.fingerprint, "%016llx",
                 (unsigned long long)conf->fingerprint);
    s->role = conf->role;
    s->raw = conf->raw != 0;
    s->guest = guest.guest;
    snprintf(s->path, sizeof s->path, "%s", conf->path);
    return client_enter(s, &guest);
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
    pl_stepper_free(s->stepper); /* its rule may still write a result */
    pl_shm.link.detach(s->link);
    free(s->w);
    free(s->out);
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

static int client_wants(int sends) {
    return sends == PL_SENDS_DELTA   ? PL_WANTS_DELTA
           : sends == PL_SENDS_MODEL ? PL_WANTS_MODEL
                                     : PL_WANTS_GRADIENT;
}

/* What an evaluator and a worker are told alike. */
static struct pl_client_task client_task(const struct pl_client *s,
                                         const struct pl_run_note *note) {
    const struct pl_about *a = &s->about;
    return (struct pl_client_task){.worker = s->worker,
                                   .version = note->version,
                                   .dim = s->dim,
                                   .wants = PL_WANTS_NUMBERS,
                                   .steps = a->steps,
                                   .lr = a->local_lr > 0 ? a->local_lr : note->lr,
                                   .weight_decay = a->decay,
                                   .rule = a->rule,
                                   .options = a->options,
                                   .fresh = 1};
}

/* The next gradient of a task whose local steps are taken here. */
static void client_step(struct pl_client *s) {
    s->task.w = s->step.w;
    s->task.out = s->step.g;
    s->task.step = s->step.step;
}

static void client_begin(struct pl_client *s, const struct pl_run_note *note) {
    struct pl_task_at at = {.worker = (uint32_t)s->worker,
                            .task = s->task.task,
                            .w = s->task.w,
                            .version = note->version,
                            .lr = note->lr};
    s->base = s->task.w;
    s->samples = 0;
    s->task.wants = PL_WANTS_GRADIENT;
    s->task.w16 = NULL;
    s->task.out16 = NULL;
    pl_stepper_begin(s->stepper, &at, s->task.acked != 0, note->applied,
                     s->out ? s->out : s->order.out, &s->step);
    client_step(s);
}

static void client_ordered(struct pl_client *s) {
    const struct pl_run_note note = pl_note_unpack(&s->order);
    struct pl_client_task t = client_task(s, &note);
    bool acked = s->pushed > 0 && s->pushed == note.acked;
    if (acked) {
        s->any = true;
        if (s->lr_sent) s->sets_lr = false;
        s->counted = s->pushed;
        s->counted_version = s->pushed_version;
    }
    t.task = s->order.task;
    t.w = pl_worker_input(&pl_shm, s->link, &s->order);
    t.w16 = s->order.half_in;
    t.out16 = s->order.half_out;
    t.out = !t.out16 ? s->order.out : s->out;
    t.wants = client_wants(s->about.sends);
    t.fresh = !s->any || s->counted_version != note.version;
    t.acked = acked;
    t.merged = s->any && s->counted <= note.applied;
    s->pushed = 0;
    s->task = t;
    if (s->stepper) client_begin(s, &note);
}

/* Whether another gradient of the current task is wanted. */
static bool client_goes_on(struct pl_client *s) {
    bool goes_on = s->stepping && !pl_cancelled(pl_shm.link.cancelled(s->link));
    s->stepping = false;
    if (goes_on) client_step(s);
    return goes_on;
}

/* Waits for an order or, as an evaluator, for a newer version, for at most one slice. */
static int client_look(struct pl_client *s, uint64_t wait_ns) {
    if (s->role == PL_ROLE_WORKER) {
        int rc = pl_guest_pull(s->link, wait_ns, &s->order);
        if (!rc) client_ordered(s);
        return rc;
    }
    struct pl_order shown = {0};
    int rc = pl_guest_newest(s->link, wait_ns, s->w, shown.note);
    if (rc) return rc;
    const struct pl_run_note note = pl_note_unpack(&shown);
    s->task = client_task(s, &note);
    s->task.w = s->w;
    return PL_OK;
}

/* The server is not there any more, or not for this worker: one that was too slow joins again, if
 * there is still a place. PL_ETIMEDOUT: it has. */
static int client_lost(struct pl_client *s) {
    struct pl_guest_conf guest = {.path = s->path, .guest = s->guest};
    char sentence[PL_WORD_MAX], refused[PL_WHY_MAX];
    bool again = false;
    if (!pl_guest_farewell(s->link, sentence, &again))
        return pl_fail(&s->why, PL_ERUN, "the server is gone before the run has ended");
    if (!again) return pl_fail(&s->why, PL_ERUN, "the server hung up: %s", sentence);
    int rc = client_enter(s, &guest);
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
        if (rc == PL_ECANCELLED && pl_guest_lost(s->link)) rc = client_lost(s);
        if (rc != PL_ETIMEDOUT) break;
        now = pl_now_ns();
        if (now >= end) return rc;
    }
    if (rc) return rc;
    s->has_task = true;
    *task = s->task;
    return PL_OK;
}

int pl_client_cancelled(const pl_client *s) {
    return s->has_task && s->role == PL_ROLE_WORKER && pl_cancelled(pl_shm.link.cancelled(s->link));
}

static int client_no_task(struct pl_client *s) {
    return pl_fail(&s->why, PL_EUSAGE, "there is no task to answer; pull one first");
}

/* Whether the result can be used; converts it to what is sent. */
static bool client_finite(struct pl_client *s) {
    uint16_t *half = s->order.half_out;
    if (!half) return pl_vec_finite(s->order.out, s->dim);
    if (s->out) pl_dtype_narrow(PL_BF16, s->out, s->dim, half);
    bool finite = true;
    for (size_t i = 0; i < s->dim; i++) finite &= (half[i] & 0x7f80) != 0x7f80;
    return finite;
}

static int client_send(struct pl_client *s, struct pl_result *r) {
    r->sets_lr = s->sets_lr;
    r->lr = s->lr;
    s->lr_sent = s->sets_lr;
    pl_shm.link.push(s->link, r);
    s->has_task = false;
    s->pushed = r->task;
    s->pushed_version = s->task.version;
    return PL_OK;
}

static int client_say(struct pl_client *s, const char *word) {
    int rc = pl_guest_say(s->link, word, CLIENT_WORD_NS);
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

int pl_client_push(pl_client *s, size_t n, uint32_t samples, double loss) {
    PL_NUMERALS;
    if (!s->has_task) return client_no_task(s);
    if (s->role == PL_ROLE_EVALUATOR) return client_score(s);
    const struct pl_about *a = &s->about;
    if (samples == 0) samples = s->stepper ? a->batch : a->batch * a->steps;
    if (s->stepper && n == s->dim) {
        s->samples += samples;
        s->has_task = false;
        s->stepping = pl_stepper_next(s->stepper, &loss, &s->step);
        if (s->stepping) return PL_OK;
        samples = s->samples;
    }
    struct pl_result r = {.task = s->task.task, .samples = samples, .loss = loss};
    if (s->order.stays) /* the result is this worker's model */
        pl_task_own((enum pl_sends)a->sends,
                    &(struct pl_own_step){s->task.lr, a->own_decay, a->outer, {NULL, 0}},
                    s->stepper ? s->base : s->task.w, s->order.out, s->dim);
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
    if (used + n + 32 >= sizeof s->numbers - 32)
        return pl_fail(&s->why, PL_EUSAGE, "an answer has at most %zu bytes of numbers",
                       sizeof s->numbers - 64);
    pl_append(s->numbers, sizeof s->numbers, " %s=%.17g", name, value);
    s->n_numbers++;
    return PL_OK;
}

int pl_client_set_lr(pl_client *s, double lr) {
    PL_NUMERALS;
    char word[64];
    if (!(lr >= 0 && lr <= 1e6))
        return pl_fail(&s->why, PL_EUSAGE, "a learning rate is a number from 0 to 1e6");
    if (s->role == PL_ROLE_WORKER) { /* the next result has it, and cannot overtake it */
        s->sets_lr = true;
        s->lr_sent = false;
        s->lr = lr;
        return PL_OK;
    }
    snprintf(word, sizeof word, "lr %.17g", lr);
    return client_say(s, word);
}

int pl_client_checkpoint(pl_client *s) {
    return client_say(s, "checkpoint");
}

int pl_client_end(pl_client *s) {
    return client_say(s, "end");
}
