/* The one table of a run's options. It gives pl_setup_set and pl_setup_get, the flags of the
 * command line, `paceline list option`, the manual, and what a recording or checkpoint keeps of its
 * run.
 *
 * One row per option: name, field of struct pl_setup_conf, default, range or choices, flags, help.
 * The flags (setup.h) are the commands that read the option, KEPT if it is part of the run's
 * definition, so that recordings and checkpoints keep it, and how the page groups runs by it.
 * Options without KEPT specify where the run takes place and which files it writes. */
#include "api/setup.h"

#include <stdlib.h>
#include <string.h>

#include "base/hint.h"
#include "base/json.h"
#include "observe/dashboard.h"
#include "sys/numerals.h"
#include "sys/pool.h"

#define SIMULATED_WORKERS 8 /* unless set */

/* A text, by what it is: a name of a file, a spec, … */
#define TEXT_OF(type, name, field, def, flags, help)                                               \
    PL_OPT(name, TEXT, struct pl_setup_conf, field, def, 0, 0, type, help, flags)
#define SPEC(...) TEXT_OF("SPEC", __VA_ARGS__)
#define FILE_NAME(...) TEXT_OF("FILE", __VA_ARGS__)
#define DIR_NAME(...) TEXT_OF("DIR", __VA_ARGS__)
#define ADDRESS(...) TEXT_OF("HOST:PORT", __VA_ARGS__)
#define INTERVAL(...) TEXT_OF("INTERVAL", __VA_ARGS__)
#define BOOL(name, field, def, flags, help)                                                        \
    PL_OPT(name, BOOL, struct pl_setup_conf, field, def, 0, 0, NULL, help, flags)
#define CHOICE(name, field, def, choices, flags, help)                                             \
    PL_OPT(name, CHOICE, struct pl_setup_conf, field, def, 0, 0, choices, help, flags)
#define INT(name, field, def, min, max, flags, help)                                               \
    PL_OPT(name, INT, struct pl_setup_conf, field, def, min, max, NULL, help, flags)
#define REAL(name, field, def, min, max, flags, help)                                              \
    PL_OPT(name, REAL, struct pl_setup_conf, field, def, min, max, NULL, help, flags)

#define SECONDS(name, field, def, min, max, flags, help)                                           \
    PL_OPT(name, REAL, struct pl_setup_conf, field, def, min, max, "SECONDS", help, flags)
#define RATE(name, field, def, min, max, flags, help)                                              \
    PL_OPT(name, REAL, struct pl_setup_conf, field, def, min, max, "RATE", help, flags)
#define SHARE(name, field, def, flags, help)                                                       \
    PL_OPT(name, REAL, struct pl_setup_conf, field, def, 0, 1, "SHARE", help, flags)

#define SIMULATE PL_FOR_SIMULATE
#define TRAIN PL_FOR_TRAIN
#define RACE PL_FOR_RACE
#define PLAN PL_FOR_PLAN
#define REPLAY PL_FOR_REPLAY
#define EVAL PL_FOR_EVAL
#define PREDICT PL_FOR_PREDICT
#define WORK PL_FOR_WORK
#define RUNS (SIMULATE | TRAIN | RACE) /* every command that runs something new */
#define KEPT PL_KEPT
#define WORKLOAD PL_OF_WORKLOAD
#define ASIDE PL_ASIDE
#define COLUMN (RUNS | KEPT | PL_OF_METHOD)

const struct pl_opt pl_setup_opts[] = {
    SPEC("method", method, "", SIMULATE | TRAIN | KEPT,
         "published method and options of its parts: kasync:k=4 (default: auto; kasync if other "
         "parts are given, custom with --policy; for model mf fpsgd)"),
    SPEC("policy", column[PL_COLUMN_POLICY], "", COLUMN,
         "when the model is updated, and which workers compute next"),
    SPEC("tuner", column[PL_COLUMN_TUNER], "", COLUMN, "how K and the staleness bound change"),
    SPEC("correct", column[PL_COLUMN_CORRECT], "", COLUMN, "how a stale gradient is corrected"),
    SPEC("reduce", column[PL_COLUMN_REDUCE], "", COLUMN, "how a group becomes one vector"),
    SPEC("optim", column[PL_COLUMN_OPTIM], "", COLUMN, "how that vector changes the model"),
    SPEC("local", column[PL_COLUMN_LOCAL], "", COLUMN, "what a worker does between contacts"),
    SPEC("filter", column[PL_COLUMN_FILTER], "", COLUMN,
         "which gradients are accepted on arrival: kardam:f=2"),
    SPEC("attack", attack, "", RUNS | KEPT | WORKLOAD,
         "what hostile workers send, and how many there are: signflip:f=2"),
    INT("workers", workers, "8", 1, PL_MAX_WORKERS, RUNS | PLAN | KEPT | WORKLOAD,
        "number of workers (default: 8, or one per core in a real run)"),
    INT("servers", servers, "1", 1, 64, TRAIN | KEPT,
        "MPI: number of server ranks; each holds a part of the model"),
    SPEC("model", model, "mlp", RUNS | EVAL | KEPT | WORKLOAD,
         "model to train; none: simulate timing only"),
    FILE_NAME(
        "init", init, "", RUNS | KEPT,
        "safetensors file with the weights to begin with; for model external also their names, "
        "shapes and types"),
    FILE_NAME("layout", layout, "", RUNS | KEPT,
              "file of lines NAME lr=X decay=X buffer=yes, for some tensors of the model; see "
              "docs/workers.md"),
    SPEC("data", data, "fashion", RUNS | EVAL | PREDICT | WORK | KEPT | WORKLOAD, "data set"),
    SPEC("partition", partition, "whole", RUNS | KEPT, "which samples each worker draws from"),
    CHOICE("sampling", sampling, "iid", "iid|epoch", RUNS | KEPT,
           "draw mini-batches with replacement, or in shuffled passes"),
    INT("batch", batch, "32", 1, 1000000, RUNS | PLAN | KEPT, "samples per mini-batch"),
    RATE("lr", lr, "0", 0, 1e6, RUNS | PLAN | KEPT,
         "learning rate (default: the method's own, see 'paceline list optim'; 0.03 times that if "
         "mlp or cnn predict numbers)"),
    SPEC("lr-schedule", lr_schedule, "auto", RUNS | KEPT,
         "learning rate schedule; chain with +, as in warmup:over=5+step:at=80,120 (default: the "
         "method's, otherwise constant)"),
    CHOICE("lr-scale", lr_scale, "one", "one|k", RUNS | KEPT,
           "k: multiply the learning rate by the size of each group"),
    REAL("weight-decay", weight_decay, "0", 0, 1e6, RUNS | KEPT,
         "multiple of the weights that is added to every gradient (--optim adamw: decoupled)"),
    REAL("max-norm", max_norm, "0", 0, 1e30, RUNS | KEPT,
         "clip the mean of each group to this norm, before weight decay (default: no clipping)"),
    TEXT_OF("none|tail[:F]|ema:B", "average", average, "auto", RUNS | KEPT,
            "weights that are evaluated and saved for use: the newest, their average over the last "
            "F of the updates (tail alone: 0.1), or an exponential average that keeps B of itself "
            "per update (ema:0.99); default: the method's, otherwise none"),
    SPEC("delay", delay, "auto", RUNS | PLAN | KEPT | WORKLOAD,
         "distribution of the time per mini-batch; in a real run, of an added delay (default: "
         "exp:mean=1 if simulated, no delay in a real run)"),
    SPEC("net", net, "", SIMULATE | RACE | KEPT | WORKLOAD,
         "network: latency=S,bandwidth=B/S,server=B/S,bytes=B"),
    SECONDS("update-time", update_time, "0", 0, 3600, RUNS | KEPT,
            "extra seconds per update at the server, simulated or slept"),
    FILE_NAME("script", script, "", SIMULATE | RACE | KEPT,
              "file of lines TIME leave|join|freeze WORKER [SECONDS]"),
    INT("updates", updates, "0", 0, 1e15, RUNS | KEPT,
        "stop after N updates (0, the default: 1000 if no other limit is given, 100000 if only a "
        "target is)"),
    REAL("epochs", epochs, "0", 0, 1e9, RUNS | KEPT,
         "stop after X passes over the training set (default: no limit)"),
    SECONDS("time", time, "0", 0, 1e9, RUNS | KEPT,
            "stop after this time: 90s, 5m, 2h (default: no limit)"),
    REAL("target-loss", target_loss, "0", 0, 1e300, RUNS | KEPT,
         "stop when the training loss reaches X (default: no target)"),
    SHARE("target-accuracy", target_accuracy, "0", RUNS | KEPT,
          "stop when the test accuracy reaches this: 0.9 or 90% (default: no target)"),
    SECONDS(
        "eval-every", eval_every, "0", 0, 1e9, RUNS | KEPT,
        "seconds between evaluations (default: 1/50 of --time; without --time 20 typical tasks, or "
        "1 s in a real run); a simulated run with a target is evaluated after fixed updates "
        "instead"),
    INT("eval-samples", eval_samples, "2000", 1, 1e9, RUNS | EVAL | KEPT,
        "training samples used to evaluate the loss"),
    INT("seed", seed, "1", 0, 9007199254740992.0, RUNS | PLAN | KEPT | ASIDE, "random seed"),
    INT("threads", threads, "0", 0, 1024, RUNS | REPLAY | EVAL | WORK | ASIDE,
        "threads that compute (default: one per core)"),
    CHOICE("transport", transport, "auto", "auto|inproc|shm|mpi", TRAIN,
           "how workers are reached: inproc (threads), shm (processes), mpi (ranks started by "
           "mpirun or srun); auto: mpi if a launcher started several ranks, otherwise as --spawn"),
    CHOICE("spawn", spawn, "processes", "processes|threads|none", TRAIN | RACE | KEPT | ASIDE,
           "how workers are started; none: clients join through --listen"),
    BOOL("respawn", respawn, "no", TRAIN | RACE | KEPT, "replace every worker that leaves"),
    TEXT_OF(
        "auto|off|SECONDS", "evict", evict, "auto", RUNS | KEPT,
        "when a worker that sends no result counts as frozen and leaves the run: after SECONDS, "
        "off (never) or auto (after 10 times the longest task so far, at least 10 s)"),
    TEXT_OF("PATH|HOST:PORT", "listen", listen, "", TRAIN | ASIDE,
            "where clients can join: the path of a socket for those of this "
            "machine, HOST:PORT for those of others, or both with a comma between them"),
    DIR_NAME("keys", keys, "", TRAIN | ASIDE,
             "folder of certificates (paceline keys) for --listen HOST:PORT: only workers with one "
             "can join, and all they send is encrypted"),
    BOOL("insecure", insecure, "no", TRAIN | ASIDE,
         "let anybody on the network join at --listen HOST:PORT, without certificates"),
    TEXT_OF("URL", "standby", standby, "", TRAIN | ASIDE,
            "follow the server at this address (https://HOST:PORT), and take over its run at "
            "--listen when it has died"),
    TEXT_OF("none|any|TOKEN", "requests", requests, "none", TRAIN,
            "which programs that join may evaluate the model, set the learning rate, ask for a "
            "checkpoint and end the run: none, any, or those that show TOKEN"),
    TEXT_OF("NAME", "job", job, "", TRAIN | ASIDE,
            "name of the job that this run belongs to: programs that name another one cannot join"),
    DIR_NAME(
        "exchange", exchange, "", TRAIN | ASIDE,
        "folder where those programs save and load the weights and the state of the optimizer, "
        "in a format of docs/workers.md"),
    SECONDS("wait", wait, "300", 0, 1e9, TRAIN,
            "seconds to wait for the first worker to join before giving up"),
    INT("start", start, "0", 0, 1e6, TRAIN | ASIDE,
        "workers that train starts itself; the other places of --workers are for those that join "
        "through --listen (default: all)"),
    INT("min-workers", min_workers, "0", 0, 1e6, TRAIN | ASIDE,
        "begin when this many workers have joined (default: all of --workers, "
        "or those that came within 20 s)"),
    CHOICE(
        "worker-names", worker_names, "number", "number|rank", TRAIN,
        "what messages call workers: worker 1, 2, ... or, as their launcher does, rank 0, 1, ..."),
    CHOICE("wire", wire, "f32", "f32|bf16", TRAIN,
           "type of the numbers that clients exchange with the server; the "
           "server keeps f32"),
    DIR_NAME("checkpoint", checkpoint, "", TRAIN | ASIDE, "folder for checkpoints"),
    INTERVAL("checkpoint-every", checkpoint_every, "60s", TRAIN | KEPT | ASIDE,
             "interval between checkpoints: a time (60s, 10m, 1h30m) or a number of updates (500)"),
    INT("checkpoint-keep", checkpoint_keep, "3", 1, 1e6, TRAIN | KEPT | ASIDE,
        "number of checkpoints to keep; older ones are deleted"),
    TEXT_OF(
        "auto|PATH", "resume", resume, "", TRAIN | KEPT | PL_NOT_RESTORED | ASIDE,
        "continue from a checkpoint file or folder; auto: from the folder of --checkpoint if it "
        "has one, otherwise from the start"),
    DIR_NAME("log-dir", log_dir, "", SIMULATE | TRAIN | REPLAY | ASIDE,
             "folder for JSON lines, TensorBoard events, a Chrome trace and the event log"),
    ADDRESS("metrics", metrics, "", TRAIN | ASIDE,
            "HOST:PORT (or PORT, on loopback) that serves /metrics (Prometheus) and /healthz"),
    FILE_NAME(
        "history", history, "", SIMULATE | TRAIN | REPLAY | ASIDE,
        "file for the tasks and times of the run, as JSON; see paceline report (--log-dir has it)"),
    ADDRESS("dashboard", dashboard, "", SIMULATE | TRAIN | RACE | ASIDE,
            "HOST:PORT (or PORT, on loopback) that serves the page of paceline report during the "
            "run"),
    FILE_NAME("log", log, "", SIMULATE | TRAIN | REPLAY | ASIDE,
              "file for one JSON line per evaluation; - is standard output"),
    FILE_NAME("events", events, "", SIMULATE | TRAIN | REPLAY | ASIDE,
              "file for the event log, as text; - is standard output"),
    FILE_NAME("record", record, "", SIMULATE | TRAIN | REPLAY | ASIDE,
              "file for a recording of the run; see paceline replay"),
    REAL("smoothness", smoothness, "1", 1e-12, 1e12, PLAN | KEPT,
         "Lipschitz constant L of the gradient"),
    REAL("noise", noise, "10", 0, 1e12, PLAN | KEPT, "variance of one sample's gradient"),
    REAL("convexity", convexity, "0", 0, 1e12, PLAN | KEPT,
         "strong convexity c; 0 selects the non-convex bound"),
    REAL("start-loss", start_loss, "2.3", 1e-12, 1e12, PLAN | KEPT, "initial loss"),
    REAL("target", target, "0", 0, 1e12, PLAN | KEPT,
         "squared gradient norm to reach, or excess loss if convex (default 0.02)"),
    FILE_NAME("trace", trace, "", PLAN,
              "draw delays from a recording, or from a file of measured seconds"),
    PL_OPT_END,
};

_Static_assert(sizeof pl_setup_opts / sizeof *pl_setup_opts <= PL_SETUP_OPTS, "one flag each");

int pl_setup_new(pl_setup **out) {
    PL_NUMERALS;
    pl_setup *s = calloc(1, sizeof *s);
    if (!s) return PL_ENOMEM;
    int rc = pl_opt_parse(pl_setup_opts, &s->conf, "", 1, NULL);
    if (rc) {
        free(s);
        return rc;
    }
    s->conf.workers = 0; /* the default depends on the host: pl_setup_resolve */
    for (int i = 0; pl_policy_family.table[i]; i++) s->policy[i] = pl_policy_family.table[i];
    *out = s;
    return PL_OK;
}

static void setup_names(struct pl_json *j, const char *key, unsigned with, unsigned without) {
    pl_json_open(j, key, '[');
    for (const struct pl_opt *o = pl_setup_opts; o->name; o++)
        if (o->flags & with && !(o->flags & without)) pl_json_text(j, NULL, o->name);
    pl_json_close(j, ']');
}

char *pl_setup_facts(void) {
    struct pl_json j = {0};
    pl_json_open(&j, NULL, '{');
    setup_names(&j, "workload", PL_OF_WORKLOAD, 0);
    setup_names(&j, "experiment", RUNS, PL_ASIDE);
    pl_json_close(&j, '}');
    if (!j.failed) return j.text;
    free(j.text);
    return NULL;
}

int pl_setup_copy(const pl_setup *from, pl_setup **out) {
    pl_setup *s = malloc(sizeof *s);
    if (!s) return PL_ENOMEM;
    *s = *from;
    s->header = s->described = NULL;
    s->method = NULL;
    s->rules = from->rules ? strdup(from->rules) : NULL;
    if (from->rules && !s->rules) {
        free(s);
        return PL_ENOMEM;
    }
    if (s->data) s->data->n_holders++;
    if (s->board) s->board->n_holders++;
    pl_initial_hold(s->initial);
    *out = s;
    return PL_OK;
}

void pl_setup_let_go(struct pl_setup *s) {
    if (s->data && --s->data->n_holders == 0) {
        pl_data_free(s->data->data);
        free(s->data);
    }
    s->data = NULL;
}

void pl_setup_free(pl_setup *s) {
    if (!s) return;
    pl_setup_let_go(s);
    if (s->board && --s->board->n_holders == 0) {
        pl_dashboard_close(s->board->dashboard);
        free(s->board);
    }
    pl_initial_release(s->initial);
    free(s->rules);
    free(s->header);
    free(s->described);
    free(s->method);
    free(s);
}

const struct pl_opt *pl_setup_find(const char *key) {
    for (const struct pl_opt *o = pl_setup_opts; o->name; o++)
        if (strcmp(o->name, key) == 0) return o;
    return NULL;
}

const char *pl_setup_delay(const struct pl_setup *s) {
    return strcmp(s->conf.delay, "auto") == 0 ? "exp:mean=1" : s->conf.delay;
}

bool pl_setup_is_set(const struct pl_setup *s, const char *key) {
    const struct pl_opt *o = pl_setup_find(key);
    return o && s->is_set[o - pl_setup_opts];
}

int pl_setup_set(pl_setup *s, const char *key, const char *value) {
    PL_NUMERALS;
    s->why.text[0] = '\0';
    char hint[PL_TEXT_MAX];
    if (!pl_setup_find(key) && pl_hint_find("option", key, hint, sizeof hint))
        return pl_fail(&s->why, PL_EUSAGE, "there is no option '%.40s'; use %s", key, hint);
    int rc = pl_opt_set(pl_setup_opts, &s->conf, key, value, 1, &s->why);
    if (!rc) s->is_set[pl_setup_find(key) - pl_setup_opts] = true;
    return rc;
}

bool pl_setup_timing_alone(const struct pl_setup *s) {
    return !s->has_function && strcmp(s->conf.model, "none") == 0;
}

const struct pl_model_kind *pl_setup_kind(const struct pl_setup *s) {
    char name[PL_NAME_MAX];
    const char *args;
    const struct pl_entry *entry = NULL;
    if (s->has_function || pl_spec_split(s->conf.model, name, &args, NULL) ||
        pl_entry_find(&pl_model_family, name, &entry, NULL))
        return NULL;
    return (const struct pl_model_kind *)entry;
}

bool pl_setup_spawns(const struct pl_setup *s) {
    const struct pl_model_kind *kind = pl_setup_kind(s);
    return s->conf.spawn != PL_SPAWN_NONE && !(kind && kind->by_clients);
}

int64_t pl_setup_resolve(struct pl_setup *s, enum pl_host host) {
    int64_t before = s->conf.workers;
    if (before == 0) s->conf.workers = host == PL_HOST_REAL ? pl_cores() : SIMULATED_WORKERS;
    return before;
}

int pl_setup_get(pl_setup *s, const char *key, char *buffer, size_t max) {
    PL_NUMERALS;
    char value[PL_SPEC_MAX];
    const struct pl_opt *o = pl_setup_find(key);
    s->why.text[0] = '\0';
    if (!o)
        return pl_fail(&s->why, PL_EUSAGE,
                       "there is no option '%.40s'; 'paceline list option' shows them", key);
    int64_t workers = pl_setup_resolve(s, PL_HOST_VIRTUAL);
    pl_opt_print(o, &s->conf, value, sizeof value);
    s->conf.workers = workers;
    if (strlen(value) >= max)
        return pl_fail(&s->why, PL_EUSAGE, "the value of %s needs a buffer of %zu bytes, not %zu",
                       key, strlen(value) + 1, max);
    memcpy(buffer, value, strlen(value) + 1);
    return PL_OK;
}

const char *pl_setup_why(const pl_setup *s) {
    return s->why.text;
}

void pl_setup_watch(pl_setup *s, void (*point)(void *ctx, const struct pl_point *p),
                    int (*tick)(void *ctx, const struct pl_point *p), void *ctx) {
    s->point = point;
    s->tick = tick;
    s->watch_ctx = ctx;
}

bool pl_setup_stops(void *ctx) {
    const struct pl_setup *s = ctx;
    struct pl_point now = {0};
    return s->tick && s->tick(s->watch_ctx, &now);
}

void pl_setup_events(pl_setup *s, void (*event)(void *ctx, const struct pl_happening *happening),
                     void *ctx) {
    s->event = event;
    s->event_ctx = ctx;
}

void pl_setup_log(pl_setup *s, void (*say)(void *ctx, int level, const char *sentence), void *ctx) {
    s->log = (struct pl_log){.say = say, .ctx = ctx};
}

void pl_setup_start(pl_setup *s, void (*start)(void *ctx, const char *header, const char *json),
                    void *ctx) {
    s->start = start;
    s->start_ctx = ctx;
}

int pl_setup_function(pl_setup *s, const struct pl_function *f) {
    s->why.text[0] = '\0';
    if (f->dim == 0 || !f->gradient)
        return pl_fail(&s->why, PL_EUSAGE, "a function needs a dim of at least 1 and a gradient");
    s->function = *f;
    s->has_function = true;
    return PL_OK;
}

#define ROWS "rows" /* the "data" of a program that keeps it */

bool pl_setup_has_rows(const struct pl_setup *s) {
    return s->data && strcmp(s->conf.data, ROWS) == 0;
}

int pl_setup_rows(pl_setup *s, uint32_t n_train, uint32_t n_test, const uint16_t *label) {
    struct pl_shared_data *d = calloc(1, sizeof *d);
    s->why.text[0] = '\0';
    if (!d) return pl_fail(&s->why, PL_ENOMEM, "out of memory");
    int rc = pl_data_counted(n_train, n_test, label, &d->data, &s->why);
    if (rc) {
        free(d);
        return rc;
    }
    pl_setup_let_go(s);
    memcpy(d->spec, ROWS, sizeof ROWS);
    memcpy(s->conf.data, ROWS, sizeof ROWS);
    d->n_holders = 1;
    s->data = d;
    return PL_OK;
}
