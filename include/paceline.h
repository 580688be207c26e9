/* Paceline: distributed SGD that keeps its pace when workers straggle, stall, leave or lie.
 *
 * This is the public header; paceline_policy.h is for programs with a policy of their own,
 * paceline_client.h for programs that join a run, and paceline_loop.h for simulations in a loop of
 * their own. A run is configured by strings, the same as the flags of the command line, and returns
 * numbers and weights:
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
 * Functions that can fail return 0 or a negative PL_E… code; pl_setup_why() then has a message that
 * says what was wrong and what to use instead. Outputs are set only on success. There is no global
 * state: any number of setups may be used at once, each by one thread at a time.
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
    X(PL_EUSAGE, -1, "invalid request")                                                            \
    X(PL_EDATA, -2, "a file is damaged or has the wrong format")                                   \
    X(PL_EIO, -3, "a file cannot be read or written")                                              \
    X(PL_ENOMEM, -4, "out of memory")                                                              \
    X(PL_EPOLICY, -5, "a policy broke its contract")                                               \
    X(PL_ECANCELLED, -6, "cancelled")                                                              \
    X(PL_EMISSING, -7, "a required program or library is not installed")                           \
    X(PL_ERUN, -8, "the run cannot continue")                                                      \
    X(PL_ETIMEDOUT, -9, "the time limit has passed")                                               \
    X(PL_EINTR, -10, "interrupted by a signal")

#define PL_STATUS_ENUM(name, value, text) name = value,
enum { PL_OK = 0, PL_STATUS_LIST(PL_STATUS_ENUM) };
#undef PL_STATUS_ENUM

PL_API const char *pl_status_text(int status);
PL_API const char *pl_version(void); /* version of the library; PL_VERSION is that of the header */
/* The instruction set that loops were chosen for: the widest that this processor has ("avx512"), or
 * the one that the environment variable PACELINE_ISA names. Results do not depend on it. */
PL_API const char *pl_instruction_set(void);

/* --- configuring -------------------------------------------------------------------------- */

typedef struct pl_setup pl_setup; /* what to run */
typedef struct pl_run pl_run;     /* its results */

/* All numbers have a decimal point, whatever the program's locale; callbacks run with such numerals
 * too. Several threads may use the library at once, each its own setups and runs. */
PL_API int pl_setup_new(pl_setup **out);
PL_API int pl_setup_copy(const pl_setup *from,
                         pl_setup **out);   /* shares data that is already loaded */
PL_API void pl_setup_free(pl_setup *setup); /* NULL is allowed */

/* Sets an option: "method", "workers", "delay", …; see `paceline list option`. Numbers are checked
 * at once, specs when the run begins. */
PL_API int pl_setup_set(pl_setup *setup, const char *key, const char *value);

/* Writes the value of an option into buffer[max] as pl_setup_set would take it: what was set, or
 * the default. No value is longer than 511 characters. PL_EUSAGE if there is no such option or the
 * value does not fit; the buffer is then unchanged. */
PL_API int pl_setup_get(pl_setup *setup, const char *key, char *buffer, size_t max);

/* Checks everything that a run would check, and loads the data, without running. Copies made
 * afterwards share the data. */
PL_API int pl_setup_check(pl_setup *setup);

/* The message of the last failure, or "". Valid until the next call. */
PL_API const char *pl_setup_why(const pl_setup *setup);

struct pl_number {
    const char *name;
    double value;
};

/* The state of a run at one moment. Unknown numbers are NAN. */
struct pl_point {
    double time; /* seconds since the start; virtual if simulated */
    uint64_t updates;
    double epochs;
    double loss;                     /* on a fixed subset of the training set */
    double test_loss, test_accuracy; /* on the test set */
    int k;                           /* workers or mini-batches an update waits for */
    double staleness;                /* mean over the gradients applied so far */
    uint64_t unused;                 /* tasks dropped, cancelled, lost or rejected so far */
    int workers;                     /* workers present */
    int expected;                    /* workers expected */
    uint64_t staleness_max;
    double samples;   /* samples in applied gradients so far */
    double consensus; /* distance of the workers' models from their mean, if each has its own */
    const struct pl_number *more; /* [n_more] other numbers of an evaluator; valid only while */
    int n_more;                   /* `point` of pl_setup_watch is called */
};

/* Both are called on the thread that runs; either may be NULL. `point` is called after every
 * evaluation. `tick` is called often, without losses, also while a simulated run computes something
 * that takes long; the run ends in good order if it returns non-zero. An evaluation that takes more
 * than a second from then on is given up, also that of the model at the end. */
PL_API void pl_setup_watch(pl_setup *setup, void (*point)(void *ctx, const struct pl_point *p),
                           int (*tick)(void *ctx, const struct pl_point *p), void *ctx);

/* What was decided after an event, in order. Numbers that a decision does not have are -1. */
struct pl_decision {
    const char *what; /* "take", "drop" or "defer" a result; "commit" an update; "reject" a result
                         that the commit left out; "start", "cancel"; "stop" the run; and between
                         workers with models of their own, "blend", "pair", "push", "absorb" */
    int worker;       /* from 0 */
    int peer;         /* blend, pair, push: the other worker */
    int64_t task;     /* of that worker, from 1 */
    int64_t version;  /* take, start: that the task computes on; commit: the new one */
    int row, col;     /* start: the part of the model, from 0; -1: all of it */
};

/* An event. Numbers that it does not have are -1, and NAN. */
struct pl_happening {
    const char *what; /* "join", "arrive", "reject", "leave", "measured", "timer", "base", "scored",
                         "switch" or "end": docs/policies.md */
    uint64_t time_ns; /* since the start of the run, on its clock */
    int worker;
    int64_t task;
    double loss;        /* arrive, scored; NAN if it is unknown */
    const char *policy; /* switch: the policy from now on; otherwise NULL */
    int returned;       /* switch: 1 if the model is an earlier one again */
    const struct pl_decision *decision;
    size_t n_decisions;
};

/* Is called for every event, on the thread that runs, after what was decided has been done. It is
 * what the option "events" writes as text. */
PL_API void pl_setup_events(pl_setup *setup,
                            void (*event)(void *ctx, const struct pl_happening *happening),
                            void *ctx);

/* Receives messages for people during a run; a detail is what a client has asked for itself. */
enum pl_level { PL_DETAIL = -1, PL_NOTE = 0, PL_WARNING = 1 };
PL_API void pl_setup_log(pl_setup *setup, void (*say)(void *ctx, int level, const char *sentence),
                         void *ctx);

/* Is called when everything about a run is resolved and before its first task. `header` describes
 * the run in a few lines for people; `json` is the object of run.json (docs/runs.md). */
PL_API void pl_setup_start(pl_setup *setup,
                           void (*start)(void *ctx, const char *header, const char *json),
                           void *ctx);

/* Describes, in the same two forms, what a setup would run, with real workers or simulated, and
 * loads its data. `kind` is "simulate", "train" or "race"; a race has no method. Both texts are
 * valid until the next call with this setup. */
PL_API int pl_setup_describe(pl_setup *setup, const char *kind, int real, const char **header,
                             const char **json);

/* What the method of a setup consists of, as a JSON object: "name"; "policy", "tuner", "correct",
 * "reduce", "optim", "local", "filter", each as a spec; "parts", the names in each; "needs", as
 * in pl_item; "sends" ("gradients", "deltas", "models" or "ranges"); and flags, 0 or 1:
 * "synchronous" (an update waits for all workers and is the mean of their gradients), "averages"
 * (it waits, and adds the mean of their changes), "local_steps" (workers take steps between
 * contacts), "any_optimizer" (any optimizer can take them), "fixed_optim" (this one alone works),
 * "keeps_moving" (despite gradients of 0). Checks the specs alone. Valid until the next call. */
PL_API int pl_setup_method(pl_setup *setup, const char **json);

/* The cores that this process may use: the default of "workers" in a real run. */
PL_API int pl_cores(void);

/* Writes such an object to a file, a line per member; a file that exists is replaced as a whole. On
 * failure why[why_max] has a message. */
PL_API int pl_write_run(const char *path, const char *json, char *why, size_t why_max);

/* The same with any text, which is written as it is. */
PL_API int pl_write_file(const char *path, const char *text, char *why, size_t why_max);

/* A model of your own: a function of one flat vector, with its gradient. */
struct pl_samples {
    uint32_t n;            /* samples in the mini-batch */
    uint32_t dim;          /* features of a sample; 0 if wants_data is 0 */
    const float *x;        /* [n][dim], or NULL */
    const uint16_t *label; /* [n], or NULL */
    const float *target;   /* [n] numbers to predict, if the data has them instead of classes */
    uint64_t seed, batch_no;
    uint32_t worker;     /* identifies the mini-batch together with seed and batch_no */
    const uint32_t *row; /* [n] numbers of the samples in the data set, or NULL */
    int test;            /* they are samples of the test set */
    /* Returns non-zero if the result is no longer wanted; poll it in long computations. */
    int (*cancelled)(const void *token);
    const void *token;
};

struct pl_function {
    size_t dim;     /* parameters */
    int wants_data; /* mini-batches come from the data set of the setup */
    int classifies; /* score() counts correct classifications, so there is an accuracy */
    void *ctx;
    void (*init)(void *ctx, uint64_t seed, float *w); /* NULL: zeros */
    /* Computes the mean loss over the samples at w, and its gradient g [dim]. Returns 0 or
     * PL_ECANCELLED. Called from several threads at once unless "threads" is 1. */
    int (*gradient)(void *ctx, const float *w, const struct pl_samples *s, float *g, double *loss);
    /* Computes the summed loss over the samples and the number classified correctly. If NULL, the
     * loss comes from gradient(). */
    void (*score)(void *ctx, const float *w, const struct pl_samples *s, double *loss,
                  uint32_t *n_right);
};

/* Uses a function instead of the "model" option. The struct is copied; the caller keeps ctx. */
PL_API int pl_setup_function(pl_setup *setup, const struct pl_function *f);

/* Data that the program keeps itself, for functions with wants_data: the library draws which
 * samples a mini-batch consists of (the "row" of struct pl_samples) according to "partition" and
 * "sampling", counts epochs, and evaluates on them. label [n_train] has the classes of the training
 * samples, for partitions by label; if it is NULL, they have none. Replaces the "data" option. */
PL_API int pl_setup_rows(pl_setup *setup, uint32_t n_train, uint32_t n_test, const uint16_t *label);

/* Registers a policy of your own (paceline_policy.h) with this setup and the copies made of it
 * afterwards: "policy" then accepts its name and options like those of the library. At most 8. The
 * struct is not copied; it and everything it refers to must live as long as the setups. */
struct pl_policy;
PL_API int pl_setup_policy(pl_setup *setup, const struct pl_policy *policy);

/* --- running ----------------------------------------------------------------------------- */

/* Runs on a virtual clock. If a file cannot be completed, the run is returned all the same, and its
 * text "trouble" says which. */
PL_API int pl_simulate(pl_setup *setup, pl_run **out);

/* Runs with real workers: the calling thread is the server, and workers are threads or processes
 * that it creates ("spawn") or other programs that connect ("listen"; paceline_client.h). Processes
 * are forked, so they have copies of a function's ctx and of everything else, and do not see later
 * changes. Of the program's descriptors they keep the standard streams only: a function that reads
 * a file or socket opens it in the worker. Several threads may call this at once, each with a setup
 * of its own. Returns when the run has ended and no worker is left. Files are opened by the paths
 * that the options give, again and again: give absolute ones if the program changes its working
 * directory meanwhile.
 *
 * If mpirun or srun started several copies of this program ("transport"), all of them call this.
 * Rank 0 is the server and its options count; the others are its workers until the run has ended.
 * They return what rank 0 returns, with *out NULL and no message. The first call initialises MPI,
 * unless the program has done so (with MPI_THREAD_FUNNELED or more); MPI then ends with the
 * process.
 *
 * With "standby", it follows another server and returns when it has taken over and the run has
 * ended; *out is NULL if that server ended the run itself. */
PL_API int pl_train(pl_setup *setup, pl_run **out);

/* The rank of this process among those started by mpirun or srun; -1 if it was started alone. */
PL_API int pl_rank(void);

/* The number of these processes; 1 if it was started alone, 0 if the launcher does not say. */
PL_API int pl_ranks(void);
PL_API void pl_run_free(pl_run *run); /* NULL is allowed */

/* Repeats a recorded run (the option "record"): the same workers join, leave and return their tasks
 * at the same times, and every decision and weight is recomputed. All options are those of the
 * recording except "threads" and those that name files to write. The run has the numbers
 * "replay.events", how many events were the same from the start, and "replay.same", 1 or 0, and the
 * text "replay", a sentence: the same, the first difference, or where the recording ends early. */
PL_API int pl_replay(pl_setup *setup, const char *path, pl_run **out);

/* Sets all options that are not set yet to those of the recording, except "threads" and those that
 * name files to write, and "delay" to the recorded task times, to repeat the run with a change.
 * "net" is then empty, because those times include the network. If "method" is set, "policy" and
 * the other columns are not taken from the recording. */
PL_API int pl_setup_recorded(pl_setup *setup, const char *path);

/* Works for the server of a run on another machine (HOST:PORT, http://… or https://…), until the
 * run has ended, the server is gone, or the function `tick` of pl_setup_watch returns non-zero. The
 * options are the server's, except those that are set. `keys` is the folder of this worker's
 * certificate, or NULL. */
PL_API int pl_work(pl_setup *setup, const char *server, const char *keys);

/* Makes certificates in a folder, which must not exist or have been made by this: of an authority,
 * a server with these names and addresses (separated by commas; NULL: loopback), and a worker. If
 * the authority is there already, `hosts` must be NULL, and only the certificate of another worker
 * is made, in a folder of its name. They are valid for `days`. why[why_max] is set if it fails. */
PL_API int pl_keys(const char *folder, const char *hosts, const char *worker, int days, char *why,
                   size_t why_max);

/* Evaluates a checkpoint: a file, or the latest in a folder. Options that are not set have the
 * values of the checkpoint. The run has "updates", "loss", "test_loss", "test_accuracy" and
 * "test_rmse"; pl_run_diverged tells that its loss has risen since the start of its run. */
PL_API int pl_eval(pl_setup *setup, const char *path, pl_run **out);

/* Predicts the rows of "data" by a checkpoint. `line` gets lines of CSV and returns 0 to go on. */
PL_API int pl_predict(pl_setup *setup, const char *path, int (*line)(void *ctx, const char *line),
                      void *ctx);

/* The results as a JSON object: equal runs have equal objects. `paceline simulate --json` prints it
 * with one more member, "run": the text "run" below. The run owns it. */
PL_API const char *pl_run_json(pl_run *run);

/* One number of that object: "time_per_update", "tasks.applied", "staleness.mean", …; also
 * "core_wait" (the share of the workers' time in which they waited for a core; part of computing),
 * "batch", "epochs", "filtered" (tasks rejected by a filter), "gradients_computed" (some perhaps
 * ahead, in vain), "checkpoint_updates" (in the last checkpoint). NAN if it is unknown. */
PL_API double pl_run_number(const pl_run *run, const char *key);

/* "method" or a column of it ("policy", "tuner", …) with resolved options; "choices": all columns
 * but defaults; "policy_final": what the tuner has switched to, with its K; "replay"; "diverged";
 * "trouble": why a real run ended early, or what could not be saved; "checkpoint": the folder of
 * those it wrote; "id"; "run": run.json (docs/runs.md), what it was, why it ended. NULL: none. */
PL_API const char *pl_run_text(const pl_run *run, const char *key);

/* The evaluations, in order of time. */
PL_API size_t pl_run_points(const pl_run *run, const struct pl_point **points);

/* The final weights; NULL if only timing was simulated. */
PL_API const float *pl_run_weights(const pl_run *run, size_t *n);

/* How fast a worker was. Slow: its tasks took more than twice as long as is usual, which cannot be
 * chance. Stuck: its last one hung at the end. Unknown: it had fewer than PL_PACE_TASKS. */
#define PL_PACE_TASKS 5
enum pl_pace { PL_PACE_UNKNOWN, PL_PACE_USUAL, PL_PACE_SLOW, PL_PACE_STUCK };

/* Where one worker's time went, in seconds; for real runs. */
struct pl_worker_report {
    double compute, communication, idle, wasted;
    uint64_t tasks, unused; /* tasks that were used; all others that ended */
    double task, usual; /* mean seconds from start to arrival, without waiting for a core, NAN if
                           none arrived; its median over the workers */
    double held_up;     /* seconds that others, already done, waited for this worker alone */
    uint64_t last;      /* updates that waited for it last */
    double unfinished;  /* how long its task had run, in seconds, when the run ended */
    enum pl_pace pace;
};

/* One report per worker; 0 if there are none. */
PL_API size_t pl_run_workers(const pl_run *run, const struct pl_worker_report **reports);

/* Non-zero if the run diverged; pl_run_text(run, "diverged") is a phrase that says how. */
PL_API int pl_run_diverged(const pl_run *run);

/* --- weights with names ------------------------------------------------------------------- */

/* At the server a model is one flat vector of floats: named tensors in turn, each in C order. */
struct pl_tensor_info {
    const char *name;  /* 1 to 255 bytes of UTF-8 without control characters */
    const char *dtype; /* as in safetensors: "F32", "F16", "BF16", "F64", "I64", "I32", "U8";
                          NULL: "F32". The server computes in single precision whatever it is;
                          files have the tensor in its own type. Whole numbers are exact: each
                          takes a float per byte, the lowest first, the highest with the sign */
    uint64_t shape[8]; /* the first n_dims of them count */
    int n_dims;        /* 0: a single number */
    const void *data;  /* in the type of the tensor; NULL: zeros */
};

/* Writes tensors, in this order, into a safetensors file for the option "init". `layout` (see
 * pl_setup_layout) is stored with them; it may be NULL. Replaces a file at `path` or
 * changes nothing. On failure why[why_max] has a message. */
PL_API int pl_save_tensors(const char *path, const struct pl_tensor_info *tensor, size_t n,
                           const char *layout, char *why, size_t why_max);

/* Starts from these weights instead of those of the option "init". Everything is copied. With model
 * external they give its tensors their names, shapes and types; with another model, all names and
 * shapes must be that model's. */
PL_API int pl_setup_tensors(pl_setup *setup, const struct pl_tensor_info *tensor, size_t n);

/* What applies to some tensors only, as text: one line per rule, a name or a pattern with * and ?,
 * then settings. Later lines override earlier ones; # begins a comment.
 *
 *     *.bias               decay=0
 *     head.*               lr=0.1
 *     *.running_mean       buffer=yes
 *
 * lr and decay multiply the learning rate and the weight decay (default 1). buffer=yes: results
 * have new values there instead of a gradient, and the update replaces the old values by the mean
 * of the group's, whatever reduction and optimizer do elsewhere. The option "layout" names a file
 * with such lines; without either, the lines stored in the file of "init" count. A pattern that
 * matches no tensor is an error when the run begins. */
PL_API int pl_setup_layout(pl_setup *setup, const char *lines);

/* A number that two programs have in common if their models have the same tensors: names, types and
 * shapes, in the same order. Never 0. */
PL_API uint64_t pl_fingerprint(const struct pl_tensor_info *tensor, size_t n);

/* --- looking up -------------------------------------------------------------------------- */

struct pl_item_option {
    const char *name, *def, *help;
    char accepts[120]; /* "a whole number from 1 to 8" */
    const char *type;  /* what stands for its value in help: "N", "X", "yes|no", "FILE", "SPEC" */
};

/* Commands, as bits. */
enum pl_command {
    PL_FOR_SIMULATE = 1 << 0,
    PL_FOR_TRAIN = 1 << 1,
    PL_FOR_RACE = 1 << 2,
    PL_FOR_PLAN = 1 << 3,
    PL_FOR_REPLAY = 1 << 4,
    PL_FOR_EVAL = 1 << 5,
    PL_FOR_PREDICT = 1 << 6,
    PL_FOR_WORK = 1 << 7
};

struct pl_item {
    const char *family, *family_brief; /* "policy", "when is the model updated, …" */
    const char *name, *brief;
    const char *paper; /* or "" */
    const char *when;  /* of a method: when to use it; otherwise "" */
    char command[200]; /* a command that tries it; FILE and DIR stand for what it reads; or "" */
    char detail[400];  /* of a method: the choices it stands for, apart from defaults; of an
                          optimizer: its learning rate, unless one is given; of an option: the
                          names of the commands that accept it; otherwise "" */
    const char *facts; /* an object: "needs" ("ratings", …); of a method also "method", as above */
    unsigned commands; /* of an option: those that accept it (enum pl_command); otherwise 0 */
    size_t n_options;
    const struct pl_item_option *option;
};

/* Lists everything that a spec can name, family by family: method, policy, tuner, correct, reduce,
 * optim, local, filter, schedule, model, data, partition, delay, attack; and option, the keys of
 * pl_setup_set. `family` NULL lists all. PL_EUSAGE if there is no such family. */
PL_API int pl_list(const char *family, void (*each)(void *ctx, const struct pl_item *item),
                   void *ctx);

/* What a word of other tools is called here: for `kind` "option" and the word "learning-rate" it
 * writes "--lr" to out[max]. `kind` is "option", "command" or a family of pl_list. Returns 1, or 0
 * if the word is not known. */
PL_API int pl_hint(const char *kind, const char *word, char *out, size_t max);

/* --- planning ---------------------------------------------------------------------------- */

/* Predictions for one variant ("ksync", "kbatchsync", "kasync", "kbatchasync") at one K. */
struct pl_plan_row {
    const char *policy;
    int k;
    double time_per_update; /* seconds */
    double staleness;       /* mean */
    double error_floor;     /* the floor of the bound; see docs/theory.md */
    double time_to_target;  /* INFINITY if the floor is above the target */
    int exact;              /* time_per_update is a closed form, not sampled */
    int best;               /* the best K of this variant by the bound */
    int best_of_all;
    /* The bound is a worst case. The best rows of the variant and of all if noise and staleness
     * matter much less than it assumes; and, for `best` and `best_of_all`, by which factor their
     * time then exceeds the best one. Above 1.2 plan cannot know which row is best. */
    int loose, loose_of_all;
    double regret, regret_of_all;
};

/* Uses the setup's workers, delay, batch, lr and seed, and the planner's own options: "smoothness",
 * "noise", "convexity", "start-loss", "target", and "trace" instead of the delay (see `paceline
 * plan --help`). If "trace" is set, the setup then has the "delay" and "workers" that it stands for
 * instead. Rows are ordered by K. */
PL_API int pl_plan(pl_setup *setup, void (*each)(void *ctx, const struct pl_plan_row *row),
                   void *ctx);

/* --- pages -------------------------------------------------------------------------------- */

/* Writes one HTML file that shows runs and needs nothing else: each path is a folder of the option
 * "log-dir", a folder of a race, a file of the option "history", or a recording, which is replayed.
 * Replaces `out` only if it is such a page; "-" is standard output. The setup provides messages and
 * pl_setup_watch. */
PL_API int pl_report(pl_setup *setup, const char *const *path, size_t n_paths, const char *out);

/* Serves that page at the address of the option "dashboard" until the setup and its copies are
 * freed. It shows the runs of all of them. Without this call, each run serves its own page. */
PL_API int pl_setup_serve(pl_setup *setup);

#ifdef __cplusplus
}
#endif
#endif
