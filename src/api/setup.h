/* Inside a pl_setup: the options as they were given (setup.c), and how they become a job. */
#ifndef PL_API_SETUP_H
#define PL_API_SETUP_H

#include <stdatomic.h>

#include "core/policy.h"
#include "core/recipe.h"
#include "learn/job.h"
#include "run/initial.h"
#include "sim/net.h"
#include "sim/script.h"

/* The clock of the run: on a virtual clock the delay law gives the time of a task; on a real clock
 * it is added to the time that the task takes. */
enum pl_host { PL_HOST_VIRTUAL, PL_HOST_REAL };

enum pl_where { PL_WHERE_AUTO, PL_WHERE_INPROC, PL_WHERE_SHM, PL_WHERE_MPI };
enum pl_spawn { PL_SPAWN_PROCESSES, PL_SPAWN_THREADS, PL_SPAWN_NONE };

/* Every key of pl_setup_set; the table is pl_setup_opts in setup.c. */
struct pl_setup_conf {
    char method[PL_TEXT_MAX];
    char column[PL_N_COLUMNS][PL_TEXT_MAX]; /* policy, tuner, …; "": the method's */
    char attack[PL_TEXT_MAX];
    int64_t workers; /* 0: not set, and pl_setup_resolve has not been called */
    int64_t min_workers;
    int64_t start;
    int64_t servers, batch, updates, eval_samples, seed, threads;
    char model[PL_TEXT_MAX], data[PL_TEXT_MAX], partition[PL_TEXT_MAX];
    int sampling;
    double lr, weight_decay, max_norm;
    char average[PL_TEXT_MAX];
    char lr_schedule[PL_TEXT_MAX];
    int lr_scale;
    char delay[PL_TEXT_MAX], net[PL_TEXT_MAX], script[PL_TEXT_MAX];
    double epochs, time, target_loss, target_accuracy, eval_every, update_time;
    int transport; /* enum pl_where */
    int spawn;     /* enum pl_spawn */
    bool insecure, respawn;
    char init[PL_TEXT_MAX], layout[PL_TEXT_MAX];
    int worker_names; /* 1: ranks */
    int wire;         /* what vectors are sent as: 0: F32, 1: BF16 */
    double wait;
    char evict[PL_TEXT_MAX];
    char requests[PL_TEXT_MAX]; /* "none", "any" or a token */
    char job[PL_TEXT_MAX], exchange[PL_TEXT_MAX], keys[PL_TEXT_MAX], standby[PL_TEXT_MAX];
    char listen[PL_TEXT_MAX], checkpoint[PL_TEXT_MAX], checkpoint_every[PL_TEXT_MAX];
    int64_t checkpoint_keep;
    char resume[PL_TEXT_MAX], log_dir[PL_TEXT_MAX], metrics[PL_TEXT_MAX];
    char log[PL_TEXT_MAX], events[PL_TEXT_MAX], record[PL_TEXT_MAX];
    char history[PL_TEXT_MAX], dashboard[PL_TEXT_MAX];
    double smoothness, noise, convexity, start_loss, target; /* of the planner */
    char trace[PL_TEXT_MAX];                                 /* of the planner */
};
/* Flags of an option: the commands that read it (enum pl_command; a replay is exact if only options
 * with PL_FOR_REPLAY are given), and what becomes of it in a recording. */
enum {
    PL_KEPT = 1 << 8,         /* recordings and checkpoints keep it */
    PL_NOT_RESTORED = 1 << 9, /* kept for the reader's information only */
    PL_OF_METHOD = 1 << 10,   /* not restored if a method is given, which has its own */
    PL_OF_WORKLOAD = 1 << 11, /* numbers of two runs can be compared only if it is the same */
    PL_ASIDE = 1 << 12        /* runs that differ in it alone repeat one experiment */
};
extern const struct pl_opt pl_setup_opts[];
#define PL_SETUP_OPTS 96 /* is more than there are */

/* The option called `key`, or NULL. */
const struct pl_opt *pl_setup_find(const char *key);

/* A data set that several setups use. */
struct pl_shared_data {
    struct pl_data *data;
    char spec[PL_TEXT_MAX];
    atomic_int n_holders; /* copies of a setup may be used and freed on several threads at once */
};

/* A dashboard that shows the runs of several setups. */
struct pl_dashboard;
struct pl_shared_board {
    struct pl_dashboard *dashboard;
    atomic_int n_holders;
};

#define PL_SETUP_POLICIES 48 /* is more than there are */

struct pl_setup {
    struct pl_setup_conf conf;
    bool is_set[PL_SETUP_OPTS]; /* by index into pl_setup_opts: the caller has set it */
    struct pl_why why;
    char *header, *described;    /* by pl_setup_describe; or NULL */
    char *method;                /* by pl_setup_method; or NULL */
    struct pl_shared_data *data; /* NULL until a run needs it */
    /* the library's policies, then those of the program; ends with NULL */
    const struct pl_entry *policy[PL_SETUP_POLICIES + 1];
    bool has_function;
    struct pl_function function;
    struct pl_initial *initial; /* weights of the program; NULL: none */
    char *rules;                /* lines of a layout; NULL: none */
    void (*point)(void *ctx, const struct pl_point *p);
    int (*tick)(void *ctx, const struct pl_point *p);
    void *watch_ctx;
    void (*event)(void *ctx, const struct pl_happening *happening);
    void *event_ctx;
    struct pl_log log;
    void (*start)(void *ctx, const char *header, const char *json);
    void *start_ctx;
    struct pl_shared_board *board; /* of pl_setup_serve, or NULL */
    char **captured; /* the history of the next run goes there as JSON, malloc()ed; or NULL */
    void (*made)(void *ctx, int worker, int pid); /* a worker process was made; for tests */
    void *made_ctx;
    bool ranks; /* workers are ranks of an MPI job */
};

/* The delay law: as set, or, for "auto", that of a virtual clock. */
const char *pl_setup_delay(const struct pl_setup *s);

/* Whether there is no model, so that the run simulates timing alone. */
bool pl_setup_timing_alone(const struct pl_setup *s);

/* Whether the server of a real run starts its workers. */
bool pl_setup_spawns(const struct pl_setup *s);

/* The kind of the model; NULL for a function of the embedding program and unknown names. */
const struct pl_model_kind *pl_setup_kind(const struct pl_setup *s);

/* The family of policies that this setup can name. */
struct pl_family pl_setup_policies(const struct pl_setup *s);

/* Whether the program keeps the data itself (pl_setup_rows). */
bool pl_setup_has_rows(const struct pl_setup *s);

/* What the page must know, as a JSON object: the options of a workload, and those that tell one
 * experiment from another. malloc()ed; NULL: out of memory. */
char *pl_setup_facts(void);

/* Whether the caller has set the option. */
bool pl_setup_is_set(const struct pl_setup *s, const char *key);

/* Gives "workers" its default, which depends on the host. Returns the value before: callers whose
 * setup outlives the run put it back. */
int64_t pl_setup_resolve(struct pl_setup *s, enum pl_host host);

/* Releases the data, and frees it if no other setup holds it. */
void pl_setup_let_go(struct pl_setup *s);

/* Asks the watching program, without a report, whether to stop. ctx is the setup. */
bool pl_setup_stops(void *ctx);

/* Every option with PL_KEPT as a line "key=value", with the setup's values or with those given; the
 * caller must free() *out. */
int pl_setup_text(struct pl_setup *s, char **out);
int pl_setup_text_of(struct pl_setup *s, const struct pl_setup_conf *c, char **out);

/* The same for another machine, without those that name files; data that is a file is "?". */
int pl_setup_portable(struct pl_setup *s, char **out);

/* Sets the options from such lines, except those that the caller has set. If the caller has set a
 * method, the columns are the method's. */
int pl_setup_lines(struct pl_setup *s, const char *text);

/* Reads a recording, which the caller frees, and sets the options it was made with likewise. */
struct pl_recording;
int pl_setup_from(struct pl_setup *s, const char *path, struct pl_recording *out);

/* A job and everything it owns. */
struct pl_built {
    struct pl_job job;
    enum pl_host host;
    struct pl_net_conf net;
    struct pl_script script;
    char method[PL_NAME_MAX];
    struct pl_layout layout;               /* of the model's vector; empty without a model */
    char *rules;                           /* the lines that were applied to it; or NULL */
    float *w0;                             /* the job's `initial` */
    size_t *tensor_end;                    /* the job's tensors, if clients compute; or NULL */
    struct pl_model_range *range;          /* the job's ranges, if the layout has rules; or NULL */
    const char *schedule;                  /* of the learning rate: the user's or the method's */
    const char *average;                   /* of the weights, likewise */
    char given[PL_N_COLUMNS][PL_SPEC_MAX]; /* the columns as they were given */
    char spec[PL_N_COLUMNS][PL_SPEC_MAX];  /* resolved, as they are reported */
};

/* Chooses the seven columns, for a job whose number of workers is set: those that were set, the
 * rest of the method, or the defaults of a policy that was given without a method. */
int pl_build_columns(const struct pl_setup *s, struct pl_built *b, struct pl_why *why);

/* The object of pl_setup_method, as a member of another if there is a key. */
struct pl_json;
int pl_method_print(struct pl_setup *s, struct pl_json *j, const char *key);

/* Resolves (pl_setup_resolve) and checks everything; opens data, model and laws. Free with
 * pl_built_free. */
int pl_build(struct pl_setup *setup, enum pl_host host, struct pl_built *out);
void pl_built_free(struct pl_built *b);

#endif
