/* Paceline: distributed SGD that keeps its pace when workers straggle, stall, leave or lie.
 *
 * The only public header. A run is set up by strings, the same that the command line takes as
 * flags, and gives back numbers and weights:
 *
 *     pl_setup *setup;
 *     pl_run *run;
 *     pl_setup_new(&setup);
 *     pl_setup_set(setup, "method", "gap-aware");
 *     pl_setup_set(setup, "workers", "32");
 *     pl_setup_set(setup, "delay", "gamma:shape=100,mean=1");
 *     if (pl_simulate(setup, &run)) fprintf(stderr, "%s\n", pl_setup_why(setup));
 *     else puts(pl_run_json(run));
 *
 * Functions that can fail return 0 or a negative PL_E… code; the sentence that says what was wrong
 * and what would be right is then in pl_setup_why(). Outputs are set only on success. There is no
 * global state: any number of setups may be used at once, each by one thread at a time.
 *
 * Programs written for one version compile with every later one of the same major version. */
#ifndef PACELINE_H
#define PACELINE_H

#include <stddef.h>
#include <stdint.h>

#define PL_VERSION "0.1.0"

#if defined(__GNUC__)
#define PL_API __attribute__((visibility("default")))
#else
#define PL_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* --- status ------------------------------------------------------------------------------ */

#define PL_STATUS_LIST(X)                                                                          \
    X(PL_EUSAGE, -1, "the request cannot be carried out as it is written")                         \
    X(PL_EDATA, -2, "a file is damaged or not what it should be")                                  \
    X(PL_EIO, -3, "a file cannot be read or written")                                              \
    X(PL_ENOMEM, -4, "out of memory")                                                              \
    X(PL_EPOLICY, -5, "a policy broke its contract")                                               \
    X(PL_ECANCELLED, -6, "cancelled")                                                              \
    X(PL_EMISSING, -7, "a program or part that is needed is not installed")                        \
    X(PL_ERUN, -8, "the run cannot go on")

#define PL_STATUS_ENUM(name, value, text) name = value,
enum { PL_OK = 0, PL_STATUS_LIST(PL_STATUS_ENUM) };
#undef PL_STATUS_ENUM

PL_API const char *pl_status_text(int status);
PL_API const char *pl_version(void); /* of the library; PL_VERSION is the header's */

/* --- setting up -------------------------------------------------------------------------- */

typedef struct pl_setup pl_setup; /* what to run */
typedef struct pl_run pl_run;     /* what came of it */

PL_API int pl_setup_new(pl_setup **out);
PL_API int pl_setup_copy(const pl_setup *from, pl_setup **out); /* data already read is shared */
PL_API void pl_setup_free(pl_setup *setup);                     /* NULL is fine */

/* Sets an option: "method", "workers", "delay", … as `paceline list option` shows them. Numbers
 * are checked at once, specs when the run begins. */
PL_API int pl_setup_set(pl_setup *setup, const char *key, const char *value);

/* Writes the value of an option into buffer[max] as pl_setup_set would take it: what was set, or
 * the default. No value is longer than 511 characters. PL_EUSAGE if there is no such option or the
 * value does not fit; the buffer is then unchanged. */
PL_API int pl_setup_get(pl_setup *setup, const char *key, char *buffer, size_t max);

/* Checks everything a run would, and opens its data, without running. Copies made afterwards share
 * the data. */
PL_API int pl_setup_check(pl_setup *setup);

/* The sentence for the last failure; "" where there was none. Valid until the next call. */
PL_API const char *pl_setup_why(const pl_setup *setup);

/* The state of a run at one moment. Unknown numbers are NAN. */
struct pl_point {
    double time; /* seconds since the start; virtual where simulated */
    uint64_t updates;
    double epochs;
    double loss;                     /* on a fixed subset of the training set */
    double test_loss, test_accuracy; /* on the test set */
    int k;                           /* workers or mini-batches an update waits for */
    double staleness;                /* mean over the gradients applied so far */
    uint64_t dropped;                /* tasks dropped, cancelled, lost or rejected so far */
    int workers;                     /* present */
    int expected;                    /* workers there could be */
    uint64_t staleness_max;
    double samples;   /* in gradients applied so far */
    double consensus; /* distance of the workers' models from their mean, where each has its own */
};

/* Called on the thread that runs. `point` after every evaluation; `tick` often, with the losses
 * unknown: non-zero ends the run in good order. Either may be NULL. */
PL_API void pl_setup_watch(pl_setup *setup, void (*point)(void *ctx, const struct pl_point *p),
                           int (*tick)(void *ctx, const struct pl_point *p), void *ctx);

/* Sentences for people while a run goes on: warnings (a worker whose gradients are not finite, …).
 * Silent where nobody asked. */
PL_API void pl_setup_log(pl_setup *setup, void (*say)(void *ctx, int warning, const char *sentence),
                         void *ctx);

/* A model of your own: a function of one flat vector with a gradient. */
struct pl_samples {
    uint32_t n;            /* samples in the mini-batch */
    uint32_t dim;          /* features of one; 0 where wants_data is 0 */
    const float *x;        /* [n][dim], or NULL */
    const uint16_t *label; /* [n], or NULL */
    uint64_t seed, batch_no;
    uint32_t worker; /* with seed and batch_no: what names this mini-batch */
    /* Non-zero where the result is no longer wanted; poll it in long computations. */
    int (*cancelled)(const void *token);
    const void *token;
};

struct pl_function {
    size_t dim;     /* parameters */
    int wants_data; /* mini-batches come from the setup's data set */
    int classifies; /* score() counts what is classified right: there is an accuracy */
    void *ctx;
    void (*init)(void *ctx, uint64_t seed, float *w); /* NULL: zeros */
    /* Mean loss over the samples at w, and its gradient into g [dim]. 0, or PL_ECANCELLED. Called
     * from several threads at once unless "threads" is 1. */
    int (*gradient)(void *ctx, const float *w, const struct pl_samples *s, float *g, double *loss);
    /* Summed loss over the samples, and how many are classified right. NULL: the loss comes from
     * gradient(). */
    void (*score)(void *ctx, const float *w, const struct pl_samples *s, double *loss,
                  uint32_t *n_right);
};

/* Uses a function instead of the "model" option. The struct is copied, ctx is borrowed. */
PL_API int pl_setup_function(pl_setup *setup, const struct pl_function *f);

/* --- running ----------------------------------------------------------------------------- */

/* Runs on a virtual clock. */
PL_API int pl_simulate(pl_setup *setup, pl_run **out);

/* Runs for real: this thread is the server, workers are threads or processes that it makes
 * ("spawn"), or programs that come by themselves ("listen", see below). Processes are made by
 * fork(), so a function's ctx is copied with everything else; they see nothing of what changes here
 * afterwards. Returns when the run has ended and no worker is left.
 *
 * Where mpirun or srun started several of this program ("transport"), all call this, and rank 0 is
 * the server with rank 0's options; the others are its workers until the run has ended. They return
 * what rank 0 returns, with *out NULL and no sentence. MPI is begun by the first call, unless the
 * program has begun it (MPI_THREAD_FUNNELED at least), and then ends with the process. */
PL_API int pl_train(pl_setup *setup, pl_run **out);

/* The number of this process among those that mpirun or srun started; -1 where it was started by
 * itself. */
PL_API int pl_rank(void);
PL_API void pl_run_free(pl_run *run); /* NULL is fine */

/* Runs a recording (the option "record") once more: the same workers come, go and bring their tasks
 * back at the same times, and every decision and every weight follows. All options are set as they
 * were then, but "threads" and those that name files to write. The run then has the numbers
 * "replay.events", how many were the same from the start on, and "replay.same", 1 or 0, and the
 * text "replay", a sentence: the same, or what differed first, or where the recording was cut
 * short. */
PL_API int pl_replay(pl_setup *setup, const char *path, pl_run **out);

/* Sets all options that were not set yet as they were when the recording was made, but "threads"
 * and those that name files to write, and "delay" to the times tasks took: for running the same
 * with a difference. "net" is empty then, as those times have the network in them. Where "method"
 * was set, "policy" and the other columns are not taken from the recording. */
PL_API int pl_setup_recorded(pl_setup *setup, const char *path);

/* Evaluates a checkpoint: a file, or the latest of a folder. Model, data and all else are as they
 * were when it was made, but for the options that are set. The run then has "updates", "loss",
 * "test_loss", "test_accuracy" and "test_rmse". */
PL_API int pl_eval(pl_setup *setup, const char *path, pl_run **out);

/* The JSON object that `paceline simulate --json` prints. Owned by the run. */
PL_API const char *pl_run_json(pl_run *run);

/* One number of that object: "time_per_update", "tasks.applied", "staleness.mean", …; also
 * "epochs", "filtered", the rejected tasks that a filter did not believe, and "gradients_computed",
 * which exceeds the arrivals where some were computed ahead in vain. NAN where it is unknown or
 * there is no such number. */
PL_API double pl_run_number(const pl_run *run, const char *key);

/* "method" or a column of it ("policy", "tuner", …) as it ran, options resolved; "replay";
 * "trouble": why a real run ended before its time, or what of it could not be kept; NULL where
 * there is no such text. */
PL_API const char *pl_run_text(const pl_run *run, const char *key);

/* The evaluations, in order of time. */
PL_API size_t pl_run_points(const pl_run *run, const struct pl_point **points);

/* The final weights; NULL for timing alone. */
PL_API const float *pl_run_weights(const pl_run *run, size_t *n);

/* Where one worker's time went, in seconds; kept by real runs. */
struct pl_worker_report {
    double compute, communication, idle, wasted;
    uint64_t tasks, unused; /* tasks that were taken, and that ended otherwise */
    double task;            /* mean seconds from start to arrival; NAN where none arrived */
    double held_up;         /* seconds that others, done already, waited for this one alone */
    uint64_t last;          /* updates that waited for it last */
    double unfinished;      /* seconds that its task had run when the run ended */
};

/* One per worker; 0 where they were not kept. */
PL_API size_t pl_run_workers(const pl_run *run, const struct pl_worker_report **reports);

/* Non-zero where the run ended because no finite gradient came any more. */
PL_API int pl_run_diverged(const pl_run *run);

/* --- being a worker ---------------------------------------------------------------------- */

/* A place in a run that another process of this user and machine serves with the option "listen":
 *
 *     pl_client *client;
 *     struct pl_client_task task;
 *     char why[200];
 *     if (pl_client_open("run.socket", &client, why, sizeof why)) …
 *     while (pl_client_pull(client, &task) == PL_OK) {
 *         … compute the gradient at task.w into task.out; stop where pl_client_cancelled(client) …
 *         pl_client_push(client, task.dim, samples, loss);
 *     }
 *     pl_client_close(client);
 *
 * The vectors are shared memory: nothing is copied on the way. One thread at a time. */
typedef struct pl_client pl_client;

struct pl_client_task {
    int worker;       /* this one's number, from 0 */
    uint64_t task;    /* numbers the tasks of this worker: with `worker` it can name a mini-batch */
    uint64_t version; /* of the model: updates before it */
    double lr;        /* in force, for workers that take steps of their own */
    size_t dim;
    const float *w; /* [dim] the model; read-only */
    float *out;     /* [dim] for the gradient */
};

PL_API int pl_client_open(const char *path, pl_client **out, char *why, size_t why_max);
PL_API void pl_client_close(pl_client *client); /* leaves the run; NULL is fine */

/* Waits for the next task. PL_ECANCELLED: the run is over, or its server is gone. */
PL_API int pl_client_pull(pl_client *client, struct pl_client_task *task);

/* Non-zero where the task that was pulled is no longer wanted. Cheap; pull the next one then. */
PL_API int pl_client_cancelled(const pl_client *client);

/* Answers the task that was pulled: n elements were written, mean over so many samples, with that
 * loss. What is not finite or not dim elements long is rejected, and counted. */
PL_API void pl_client_push(pl_client *client, size_t n, uint32_t samples, double loss);

/* --- looking up -------------------------------------------------------------------------- */

struct pl_item_option {
    const char *name, *def, *help;
    char accepts[120]; /* "a whole number from 1 to 8" */
};

struct pl_item {
    const char *family, *family_brief; /* "policy", "when is the model updated, …" */
    const char *name, *brief;
    const char *paper; /* "" where there is none to cite */
    char detail[400];  /* of a method: the choices it stands for, apart from defaults; of an option:
                          the commands that read it, some of "simulate train race plan replay eval";
                          otherwise "" */
    size_t n_options;
    const struct pl_item_option *option;
};

/* Everything a spec may name, family by family: method, policy, tuner, correct, reduce, optim,
 * local, filter, schedule, model, data, partition, delay, attack; and option, whose items are the
 * keys of pl_setup_set. `family` NULL: all of them. PL_EUSAGE where there is no such family. */
PL_API int pl_list(const char *family, void (*each)(void *ctx, const struct pl_item *item),
                   void *ctx);

/* --- planning ---------------------------------------------------------------------------- */

/* What theory says of one variant ("ksync", "kbatchsync", "kasync", "kbatchasync") at one K. */
struct pl_plan_row {
    const char *policy;
    int k;
    double time_per_update; /* seconds */
    double staleness;       /* mean */
    double error_floor;     /* of the bound; see docs/theory.md */
    double time_to_target;  /* INFINITY where the floor is above the target */
    int exact;              /* time_per_update is a closed form, not sampled */
    int best;               /* the recommended K of this variant */
    int best_of_all;
};

/* Uses the setup's workers, delay, batch, lr and seed, and the planner's own options: "smoothness",
 * "noise", "convexity", "start-loss", "target", and "trace" in place of the delay (see `paceline
 * plan --help`). Rows are ordered by K. */
PL_API int pl_plan(pl_setup *setup, void (*each)(void *ctx, const struct pl_plan_row *row),
                   void *ctx);

/* --- drawing ----------------------------------------------------------------------------- */

struct pl_curve {
    const char *name;
    const struct pl_point *point;
    size_t n_points;
};

/* Error (or loss, where there is no accuracy) against time into an SVG or PNG file, by its ending.
 * Needs gnuplot. On failure the sentence is in why[why_max] and no file is left. */
PL_API int pl_plot(const char *path, const char *title, const struct pl_curve *curve,
                   size_t n_curves, char *why, size_t why_max);

#ifdef __cplusplus
}
#endif
#endif
