#include "api/setup.h"

#include <stdlib.h>
#include <string.h>

#define AT(field) offsetof(struct pl_setup_conf, field)
#define COLUMN(c) (AT(column) + (size_t)(c)*PL_TEXT_MAX)

/* One table: pl_setup_set, the flags of the command line, `paceline list option`, the manual. */
const struct pl_opt pl_setup_opts[] = {
    {.name = "method",
     .type = PL_OPT_TEXT,
     .def = "",
     .help =
         "a published method, with options of its parts: kasync:k=4; abs where no policy is said",
     .offset = AT(method)},
    {.name = "policy",
     .type = PL_OPT_TEXT,
     .def = "",
     .help = "when to update and who computes next",
     .offset = COLUMN(PL_COLUMN_POLICY)},
    {.name = "tuner",
     .type = PL_OPT_TEXT,
     .def = "",
     .help = "how K and the staleness bound move",
     .offset = COLUMN(PL_COLUMN_TUNER)},
    {.name = "correct",
     .type = PL_OPT_TEXT,
     .def = "",
     .help = "how a stale gradient is repaired",
     .offset = COLUMN(PL_COLUMN_CORRECT)},
    {.name = "reduce",
     .type = PL_OPT_TEXT,
     .def = "",
     .help = "how a group becomes one vector",
     .offset = COLUMN(PL_COLUMN_REDUCE)},
    {.name = "optim",
     .type = PL_OPT_TEXT,
     .def = "",
     .help = "how that vector moves the model",
     .offset = COLUMN(PL_COLUMN_OPTIM)},
    {.name = "local",
     .type = PL_OPT_TEXT,
     .def = "",
     .help = "what a worker does between contacts",
     .offset = COLUMN(PL_COLUMN_LOCAL)},
    {.name = "filter",
     .type = PL_OPT_TEXT,
     .def = "",
     .help = "which gradients are believed when they arrive: kardam:f=2",
     .offset = COLUMN(PL_COLUMN_FILTER)},
    {.name = "attack",
     .type = PL_OPT_TEXT,
     .def = "",
     .help = "what hostile workers send, and how many there are: signflip:f=2",
     .offset = AT(attack)},
    {.name = "workers",
     .type = PL_OPT_INT,
     .def = "8",
     .min = 1,
     .max = PL_MAX_WORKERS,
     .help = "number of workers",
     .offset = AT(workers)},
    {.name = "servers",
     .type = PL_OPT_INT,
     .def = "1",
     .min = 1,
     .max = 64,
     .help = "over MPI: ranks that serve, each a part of the vector",
     .offset = AT(servers)},
    {.name = "model",
     .type = PL_OPT_TEXT,
     .def = "mlp",
     .help = "what is trained; none: timing alone",
     .offset = AT(model)},
    {.name = "data",
     .type = PL_OPT_TEXT,
     .def = "fashion",
     .help = "what it is trained on",
     .offset = AT(data)},
    {.name = "partition",
     .type = PL_OPT_TEXT,
     .def = "whole",
     .help = "which samples a worker draws from",
     .offset = AT(partition)},
    {.name = "sampling",
     .type = PL_OPT_CHOICE,
     .def = "iid",
     .choices = "iid|epoch",
     .help = "mini-batches drawn with replacement, or in shuffled passes",
     .offset = AT(sampling)},
    {.name = "batch",
     .type = PL_OPT_INT,
     .def = "32",
     .min = 1,
     .max = 1000000,
     .help = "samples in a mini-batch",
     .offset = AT(batch)},
    {.name = "lr",
     .type = PL_OPT_REAL,
     .def = "0.1",
     .min = 0,
     .max = 1e6,
     .help = "learning rate",
     .offset = AT(lr)},
    {.name = "lr-schedule",
     .type = PL_OPT_TEXT,
     .def = "auto",
     .help = "how the learning rate changes; chain with +: warmup:over=5+step:at=80,120; auto: as "
             "the method says, or constant",
     .offset = AT(lr_schedule)},
    {.name = "lr-scale",
     .type = PL_OPT_CHOICE,
     .def = "one",
     .choices = "one|k",
     .help = "k: multiply the rate by the size of each group",
     .offset = AT(lr_scale)},
    {.name = "weight-decay",
     .type = PL_OPT_REAL,
     .def = "0",
     .min = 0,
     .max = 1e6,
     .help = "times the weights, added to every gradient",
     .offset = AT(weight_decay)},
    {.name = "delay",
     .type = PL_OPT_TEXT,
     .def = "auto",
     .help = "law of the time a mini-batch takes; in a real run, of what is added to it; auto: "
             "exp:mean=1 where simulated, nothing where real",
     .offset = AT(delay)},
    {.name = "net",
     .type = PL_OPT_TEXT,
     .def = "",
     .help = "network: latency=S,bandwidth=B/S,server=B/S,bytes=B",
     .offset = AT(net)},
    {.name = "update-time",
     .type = PL_OPT_REAL,
     .def = "0",
     .min = 0,
     .max = 3600,
     .help = "seconds that every update takes at the server: a slow merge, simulated or slept",
     .offset = AT(update_time)},
    {.name = "spread",
     .type = PL_OPT_BOOL,
     .def = "no",
     .help = "report how far apart the models are that workers compute on",
     .offset = AT(spread)},
    {.name = "script",
     .type = PL_OPT_TEXT,
     .def = "",
     .help = "file of lines TIME leave|join|freeze WORKER [SECONDS]",
     .offset = AT(script)},
    {.name = "updates",
     .type = PL_OPT_INT,
     .def = "0",
     .min = 0,
     .max = 1e15,
     .help = "end after so many updates; 1000 where nothing else ends the run, 100000 where only a "
             "target does",
     .offset = AT(updates)},
    {.name = "epochs",
     .type = PL_OPT_REAL,
     .def = "0",
     .min = 0,
     .max = 1e9,
     .help = "end after so many passes over the training set",
     .offset = AT(epochs)},
    {.name = "time",
     .type = PL_OPT_REAL,
     .def = "0",
     .min = 0,
     .max = 1e9,
     .help = "end after so many seconds",
     .offset = AT(time)},
    {.name = "target-loss",
     .type = PL_OPT_REAL,
     .def = "0",
     .min = 0,
     .max = 1e300,
     .help = "end when the training loss is this low",
     .offset = AT(target_loss)},
    {.name = "target-accuracy",
     .type = PL_OPT_REAL,
     .def = "0",
     .min = 0,
     .max = 1,
     .help = "end when the test accuracy is this high",
     .offset = AT(target_accuracy)},
    {.name = "eval-every",
     .type = PL_OPT_REAL,
     .def = "0",
     .min = 0,
     .max = 1e9,
     .help = "seconds between evaluations; 0: a fiftieth of --time; where that is not said, 20 "
             "typical tasks, or 1 s in a real run",
     .offset = AT(eval_every)},
    {.name = "eval-samples",
     .type = PL_OPT_INT,
     .def = "2000",
     .min = 1,
     .max = 1e9,
     .help = "training samples the loss is evaluated on",
     .offset = AT(eval_samples)},
    {.name = "seed",
     .type = PL_OPT_INT,
     .def = "1",
     .min = 0,
     .max = 9007199254740992.0,
     .help = "of everything random",
     .offset = AT(seed)},
    {.name = "threads",
     .type = PL_OPT_INT,
     .def = "0",
     .min = 0,
     .max = 1024,
     .help = "threads that compute; 0: one a core",
     .offset = AT(threads)},
    {.name = "transport",
     .type = PL_OPT_CHOICE,
     .def = "auto",
     .choices = "auto|inproc|shm|mpi",
     .help = "how workers are reached: threads, processes over shared memory, or ranks of mpirun "
             "or srun; auto: ranks where a launcher started several, else as --spawn says",
     .offset = AT(transport)},
    {.name = "spawn",
     .type = PL_OPT_CHOICE,
     .def = "processes",
     .choices = "processes|threads|none",
     .help = "what workers are; none: they come by themselves (--listen)",
     .offset = AT(spawn)},
    {.name = "respawn",
     .type = PL_OPT_BOOL,
     .def = "no",
     .help = "make a new worker for every one that goes",
     .offset = AT(respawn)},
    {.name = "listen",
     .type = PL_OPT_TEXT,
     .def = "",
     .help = "path of a socket where workers of other programs can join",
     .offset = AT(listen)},
    {.name = "checkpoint",
     .type = PL_OPT_TEXT,
     .def = "",
     .help = "folder for checkpoints",
     .offset = AT(checkpoint)},
    {.name = "checkpoint-every",
     .type = PL_OPT_TEXT,
     .def = "60s",
     .help = "between checkpoints: seconds (60s), minutes (10m), hours (2h) or updates (500)",
     .offset = AT(checkpoint_every)},
    {.name = "checkpoint-keep",
     .type = PL_OPT_INT,
     .def = "3",
     .min = 1,
     .max = 1e6,
     .help = "checkpoints to keep; older ones are deleted",
     .offset = AT(checkpoint_keep)},
    {.name = "resume",
     .type = PL_OPT_TEXT,
     .def = "",
     .help = "go on from a checkpoint: its file or folder, or auto: from the folder of "
             "--checkpoint where there is one, else from the start",
     .offset = AT(resume)},
    {.name = "log-dir",
     .type = PL_OPT_TEXT,
     .def = "",
     .help = "folder for JSON lines, TensorBoard events, a Chrome trace and the event log",
     .offset = AT(log_dir)},
    {.name = "metrics",
     .type = PL_OPT_TEXT,
     .def = "",
     .help = "HOST:PORT (or PORT, on loopback) where Prometheus finds /metrics and /healthz",
     .offset = AT(metrics)},
    {.name = "log",
     .type = PL_OPT_TEXT,
     .def = "",
     .help = "file for one JSON line per evaluation",
     .offset = AT(log)},
    {.name = "events",
     .type = PL_OPT_TEXT,
     .def = "",
     .help = "file for the event log, as text",
     .offset = AT(events)},
    {.name = "record",
     .type = PL_OPT_TEXT,
     .def = "",
     .help = "file for a recording of the run: see paceline replay",
     .offset = AT(record)},
    {.name = "smoothness",
     .type = PL_OPT_REAL,
     .def = "1",
     .min = 1e-12,
     .max = 1e12,
     .help = "plan: Lipschitz constant L of the gradient",
     .offset = AT(smoothness)},
    {.name = "noise",
     .type = PL_OPT_REAL,
     .def = "10",
     .min = 0,
     .max = 1e12,
     .help = "plan: variance of one sample's gradient",
     .offset = AT(noise)},
    {.name = "convexity",
     .type = PL_OPT_REAL,
     .def = "0",
     .min = 0,
     .max = 1e12,
     .help = "plan: strong convexity c; 0: the non-convex bound",
     .offset = AT(convexity)},
    {.name = "start-loss",
     .type = PL_OPT_REAL,
     .def = "2.3",
     .min = 1e-12,
     .max = 1e12,
     .help = "plan: loss at the start",
     .offset = AT(start_loss)},
    {.name = "target",
     .type = PL_OPT_REAL,
     .def = "0",
     .min = 0,
     .max = 1e12,
     .help = "plan: squared gradient norm (convex: excess loss) to reach; 0: 0.02",
     .offset = AT(target)},
    {.name = "trace",
     .type = PL_OPT_TEXT,
     .def = "",
     .help = "plan: draw delays from a recording, or from a file of measured seconds",
     .offset = AT(trace)},
    {.name = NULL},
};

_Static_assert(sizeof pl_setup_opts / sizeof *pl_setup_opts <= PL_SETUP_OPTS, "one flag each");

int pl_setup_new(pl_setup **out) {
    pl_setup *s = calloc(1, sizeof *s);
    if (!s) return PL_ENOMEM;
    pl_opt_parse(pl_setup_opts, &s->conf, "", 1, NULL);
    *out = s;
    return PL_OK;
}

int pl_setup_copy(const pl_setup *from, pl_setup **out) {
    pl_setup *s = malloc(sizeof *s);
    if (!s) return PL_ENOMEM;
    *s = *from;
    if (s->data) s->data->n_holders++;
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
    free(s);
}

static int setup_index(const char *key) {
    for (int i = 0; pl_setup_opts[i].name; i++)
        if (strcmp(pl_setup_opts[i].name, key) == 0) return i;
    return -1;
}

const char *pl_setup_delay(const struct pl_setup *s) {
    return strcmp(s->conf.delay, "auto") == 0 ? "exp:mean=1" : s->conf.delay;
}

bool pl_setup_is_set(const struct pl_setup *s, const char *key) {
    int i = setup_index(key);
    return i >= 0 && s->is_set[i];
}

int pl_setup_set(pl_setup *s, const char *key, const char *value) {
    s->why.text[0] = '\0';
    int i = setup_index(key), rc = pl_opt_set(pl_setup_opts, &s->conf, key, value, 1, &s->why);
    if (!rc) s->is_set[i] = true;
    return rc;
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

void pl_setup_log(pl_setup *s, void (*say)(void *ctx, int warning, const char *sentence),
                  void *ctx) {
    s->log = (struct pl_log){say, ctx};
}

int pl_setup_function(pl_setup *s, const struct pl_function *f) {
    s->why.text[0] = '\0';
    if (f->dim == 0 || !f->gradient)
        return pl_fail(&s->why, PL_EUSAGE, "a function needs a dim of at least 1 and a gradient");
    s->function = *f;
    s->has_function = true;
    return PL_OK;
}
