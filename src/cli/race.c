/* paceline race: compares several methods on one workload with common random numbers. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "race.h"

static const char *const race_default[] = {"auto",           "sync", "backup",    "kasync",
                                           "adasync-kasync", "abs",  "gap-aware", "async"};

/* The demo, simulated or real: Fashion-MNIST, eight workers whose delays have infinite variance. */
static const char *const race_demo[][2] = {{"data", "fashion"},
                                           {"model", "mlp:hidden=64"},
                                           {"workers", "8"},
                                           {"batch", "32"},
                                           {"delay", "pareto:shape=1.5,scale=0.01"},
                                           {"target-accuracy", "0.8"},
                                           {"time", "60"},
                                           {"eval-every", "0.5"}};

/* --- checking ---------------------------------------------------------------------------- */

static int race_check(const struct race *r) {
    /* opens the data once, for all to share; errors are reported for the entrant that has them */
    pl_setup_check(r->setup);
    for (int i = 0; i < r->n; i++) {
        struct race_entrant *e = &r->entrant[i];
        pl_setup *one = NULL;
        const char *method = "";
        int status = cli_race_setup(r, e, &one), rc = PL_OK;
        if (status == CLI_OK &&
            ((rc = pl_setup_check(one)) || (rc = pl_setup_method(one, &method))))
            status = cli_fail(rc, "in '%s': %s", e->name, pl_setup_why(one));
        json_t *of = json_loads(method, 0, NULL);
        e->synchronous = json_integer_value(json_object_get(of, "synchronous")) != 0;
        json_decref(of);
        pl_setup_free(one);
        if (status != CLI_OK) return status;
    }
    return CLI_OK;
}

/* --- running ----------------------------------------------------------------------------- */

/* The simulator predicts from the injected delays; without them it cannot. */
static bool race_predicts(pl_setup *one) {
    char delay[RACE_PATH];
    return pl_setup_get(one, "delay", delay, sizeof delay) == PL_OK && strcmp(delay, "auto") != 0;
}

/* Simulates the coming run from the injected delays alone. The files that an entrant names are left
 * to the real run. */
static int race_predict(struct race_entrant *e, int seed, const pl_setup *one) {
    pl_setup *copy;
    pl_run *run = NULL;
    if (pl_setup_copy(one, &copy)) return cli_fail(CLI_FAILED, "out of memory");
    cli_race_alone(copy);
    int rc = pl_simulate(copy, &run);
    if (!rc) {
        e->predicted[seed] = pl_run_number(run, "time_to_target");
        e->predicted_per_update[seed] = pl_run_number(run, "time_per_update");
    }
    int status = rc ? cli_fail(rc, "in '%s': %s", e->name, pl_setup_why(copy)) : CLI_OK;
    pl_run_free(run);
    pl_setup_free(copy);
    return status;
}

/* Runs an entrant that is set up, with its line of progress. */
static int race_go(struct race *r, struct race_task task, pl_setup *one, char **line) {
    int i = task.entrant, seed = task.seed;
    struct race_entrant *e = &r->entrant[i];
    struct cli_progress progress = {0};
    char name[sizeof progress.name];
    pl_run *run = NULL;
    int status = CLI_OK, rc = PL_OK;
    enum cli_progress_how how = r->quiet ? CLI_PROGRESS_QUIET : CLI_PROGRESS_PER_RUN;
    snprintf(name, sizeof name, "%d/%d %.40s", i * r->n_seeds + seed + 1, r->n * r->n_seeds,
             e->name);
    pl_setup_watch(one, cli_progress_point, cli_progress_tick, &progress);
    if (r->real && race_predicts(one)) {
        char simulated[sizeof progress.name];
        snprintf(simulated, sizeof simulated, "%.48s, simulated", name);
        cli_progress_begin(&progress, simulated, r->quiet ? how : CLI_PROGRESS_TERMINAL, one);
        status = race_predict(e, seed, one);
    }
    cli_progress_begin(&progress, name, how, one);
    /* claims have hostile workers and rates that diverge, on purpose */
    pl_setup_log(one, r->part ? NULL : cli_say, (void *)(uintptr_t)e->name);
    r->entrant_now = i;
    r->seed_now = seed;
    pl_setup_start(one, cli_race_run_begins, r);
    if (status == CLI_OK && !cli_interrupted()) rc = (r->real ? pl_train : pl_simulate)(one, &run);
    const struct pl_point *met = run ? cli_race_met(r, run) : NULL;
    if (met) progress.last = *met; /* as in the table */
    cli_progress_end(&progress);
    if (run) cli_race_run_ended(r, run);
    if (rc)
        status = cli_fail(rc, "in '%s': %s", e->name, pl_setup_why(one));
    else if (run && !cli_interrupted()) /* an interrupted run has no result */
        status = (*line = cli_race_result_line(r, task, run)) ? CLI_OK : CLI_FAILED;
    const char *trouble = run ? pl_run_text(run, "trouble") : NULL;
    if (trouble) cli_say((void *)(uintptr_t)e->name, 1, trouble);
    pl_run_free(run);
    return status;
}

static int race_one(struct race *r, struct race_task task, char **line) {
    int i = task.entrant, seed = task.seed;
    pl_setup *one = NULL;
    char text[RACE_PATH + 64];
    int status = cli_race_setup(r, &r->entrant[i], &one);
    snprintf(text, sizeof text, "%.0f", r->first_seed + seed);
    if (status == CLI_OK && pl_setup_set(one, "seed", text))
        status = cli_fail(CLI_USAGE, "--%s", pl_setup_why(one));
    cli_race_curve(r, i, seed, text, sizeof text);
    unlink(text); /* of a run that was interrupted */
    if (status == CLI_OK && cli_race_scores(one)) pl_setup_set(one, "log", text);
    snprintf(text, sizeof text, "%.400s/history-%02d.json", r->out, i + 1);
    if (seed == 0) unlink(text);
    if (status == CLI_OK && seed == 0 && cli_race_scores(one))
        pl_setup_set(one, "history", text); /* for the report */
    if (status == CLI_OK) status = race_go(r, task, one, line);
    pl_setup_free(one);
    return status;
}

static int race_task(struct race *r, struct race_task task, char **line) {
    if (task.seed != RACE_TUNING) return race_one(r, task, line);
    int status = cli_race_tune(r, task.entrant);
    if (status != CLI_OK || cli_interrupted()) return status;
    return (*line = cli_race_rate_line(r, task.entrant)) ? CLI_OK : CLI_FAILED;
}

/* --- the command ------------------------------------------------------------------------- */

/* Draws the race, and says what is in its folder. */
static int race_end(const struct race *r) {
    bool drawn;
    int status = cli_race_plot(r, &drawn);
    if (status != CLI_OK || r->json) return status;
    putchar('\n');
    char out[4 * RACE_PATH];
    if (drawn) printf("plot: %s/plot.svg   ", r->out);
    printf("curves and results: %s/*.jsonl\na page to look at: paceline report %s\n", r->out,
           cli_word(out, sizeof out, r->out));
    return CLI_OK;
}

/* Prints what all entrants share, and who they are. */
static void race_header(const struct race *r, const char *header) {
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    if (!f) return;
    fprintf(f, "%s  entrants ", header);
    for (int i = 0; i < r->n; i++) fprintf(f, "%s%s", i ? ", " : " ", r->entrant[i].name);
    fprintf(f, "\n  seeds     %d from %.0f, %s\n", r->n_seeds, r->first_seed,
            r->real ? "with real workers" : "simulated");
    if (!r->serves && !r->real)
        fprintf(f, "  at once   %d run%s\n", r->jobs, r->jobs > 1 ? "s" : "");
    if (fclose(f) == 0) cli_put_lines(stderr, CLI_HEADER_INDENT, text);
    free(text);
}

/* Prints what all entrants share, and leaves it in the folder. */
static int race_begin(struct race *r) {
    const char *header, *json;
    int rc = pl_setup_describe(r->setup, "race", r->real, &header, &json);
    if (rc) return cli_fail(rc, "%s", pl_setup_why(r->setup));
    r->described = strdup(json);
    if (!r->described) return cli_fail(CLI_FAILED, "out of memory");
    if (!r->quiet && !r->part && r->share == 0) race_header(r, header);
    cli_race_describe(r, NULL);
    return CLI_OK;
}

static bool race_all_diverged(const struct race *r) {
    int n = 0;
    for (int i = 0; i < r->n; i++) n += cli_race_diverged(r, &r->entrant[i]);
    return n > 0 && n == r->n * r->n_seeds;
}

static int race_show(const struct race *r) {
    if (r->json) return cli_race_print_json(r);
    cli_race_board(r);
    if (r->real) cli_race_prediction(r);
    return CLI_OK;
}

/* Another process shows the race: one that is at work still, or one that runs what is missing. */
static int race_leave(const struct race *r, int failed) {
    if (!r->part && cli_race_missing(r) > 0)
        fprintf(stderr,
                "share %d of %d is done; %d of %d runs have no result yet, and the same command "
                "runs what is missing at the end\n",
                r->share + 1, r->shares, cli_race_missing(r), r->n * r->n_seeds);
    return failed;
}

static int race_run(struct race *r, const char *out, bool resumed) {
    int status = race_check(r), failed = CLI_OK;
    if (status == CLI_OK && !resumed) status = cli_race_create(r, out);
    if (status == CLI_OK) status = cli_race_open(r);
    bool others = r->shares > 1 && !resumed && cli_race_is_in(r->out); /* have said what it is */
    if (status == CLI_OK && !others) status = cli_race_save(r);
    if (status == CLI_OK) status = race_begin(r);
    r->closes = cli_race_missing(r) == 0 && r->share == 0;
    pl_setup_log(r->setup, cli_say, NULL);
    if (status == CLI_OK && pl_setup_serve(r->setup))
        status = cli_fail(CLI_FAILED, "%s", pl_setup_why(r->setup));
    cli_catch_signals();
    if (status == CLI_OK) failed = cli_race_jobs(r, race_task);
    if (r->results) {
        bool bad = ferror(r->results) != 0;
        if (fclose(r->results) != 0 || bad)
            status =
                cli_fail(CLI_FAILED, "%s/results.jsonl could not be written completely", r->out);
    }
    if (r->described)
        cli_race_describe(r, status != CLI_OK || failed != CLI_OK ? "failed"
                             : cli_interrupted()                  ? "interrupted"
                                                                  : "finished");
    if (r->shares > 1 && status == CLI_OK && !cli_interrupted() && !r->closes)
        return race_leave(r, failed);
    if (cli_race_missing(r) == r->n * r->n_seeds && failed != CLI_OK) status = failed;
    if (status == CLI_OK) status = cli_race_save(r); /* with the ranking */
    if (status != CLI_OK) {
        if (!resumed && r->shares < 2) cli_race_forget(r);
        return status;
    }
    if (!r->part) status = race_show(r);
    if (cli_interrupted() && r->part) return CLI_INTERRUPTED;
    char again[4 * RACE_PATH];
    cli_word(again, sizeof again, r->out);
    if (cli_interrupted())
        return cli_fail(CLI_INTERRUPTED, "interrupted; 'paceline race --resume %s' goes on", again);
    if (status == CLI_OK && !r->part) status = race_end(r);
    if (status == CLI_OK && !r->part && race_all_diverged(r))
        return cli_fail(CLI_FAILED, "all %d runs diverged; try smaller learning rates",
                        r->n * r->n_seeds);
    if (status != CLI_OK || failed == CLI_OK) return status;
    return cli_fail(failed,
                    "%d of %d runs have no result; 'paceline race --resume %s' repeats them",
                    cli_race_missing(r), r->n * r->n_seeds, again);
}

/* Sets the demo's options; those given on the command line override them. */
static void race_preset(struct race *r) {
    for (size_t i = 0; i < sizeof race_demo / sizeof *race_demo; i++)
        pl_setup_set(r->setup, race_demo[i][0], race_demo[i][1]);
}

/* The value of --name in argv, which cli_parse has not seen yet; NULL: it is not there. */
static const char *race_peek(int argc, char **argv, const char *name) {
    size_t n = strlen(name);
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], name, n) != 0) continue;
        if (argv[i][n] == '=') return argv[i] + n + 1;
        if (argv[i][n] == '\0') return i + 1 < argc ? argv[i + 1] : "";
    }
    return NULL;
}

/* Whether learning rates are tuned. `tune` is the value of --tune; NULL: not given. A race that
 * goes on does as it did. */
static int race_tunes(struct race *r, const char *tune, const char *rates, bool resumed) {
    bool one = cli_number(r->setup, "lr") > 0;
    bool can = cli_race_scores(r->setup) && (!r->real || race_predicts(r->setup));
    if (tune && strcmp(tune, "yes") != 0 && strcmp(tune, "no") != 0)
        return cli_fail(CLI_USAGE, "--tune '%.40s': use yes or no", tune);
    bool wanted = tune && strcmp(tune, "yes") == 0;
    if (one && (rates || wanted))
        return cli_fail(
            CLI_USAGE, "--tune and --rates give every method its own learning rate, and --lr fixes "
                       "one for all; give one of them");
    if (wanted && !can)
        return cli_fail(CLI_USAGE, "--tune yes simulates runs, which needs a model, and --delay if "
                                   "the race is real");
    if (tune || !resumed) r->tune = tune ? wanted : can && !one;
    return CLI_OK;
}

/* A whole number from 1 to `most` in the text of an option; 0: it is not. */
static int race_whole(const char *text, int most) {
    char *end;
    long n = strtol(text, &end, 10);
    return *end || !*text || n < 1 || n > most ? 0 : (int)n;
}

/* How many runs go side by side. `jobs` is the value of --jobs; NULL: not given. */
static int race_at_once(struct race *r, const char *jobs) {
    char dashboard[RACE_PATH] = "";
    pl_setup_get(r->setup, "dashboard", dashboard, sizeof dashboard);
    r->serves = *dashboard != '\0';
    int cores = pl_ranks() > 1 ? 1 : pl_cores(); /* ranks are as many as runs should go at once */
    r->jobs = jobs ? race_whole(jobs, RACE_JOBS) : cores < RACE_JOBS ? cores : RACE_JOBS;
    if (r->jobs == 0)
        return cli_fail(CLI_USAGE, "--jobs %.20s is not a whole number from 1 to %d", jobs,
                        RACE_JOBS);
    if (r->serves && jobs && r->jobs > 1)
        return cli_fail(CLI_USAGE, "--dashboard shows one run at a time; leave out --jobs");
    return CLI_OK;
}

/* Seeds and entrants, after the options are parsed. */
static int race_enter_all(struct race *r, const struct cli_args *args, const char *seeds,
                          const char *rates, bool resumed) {
    int status = CLI_OK;
    if (seeds && (r->n_seeds = race_whole(seeds, RACE_SEEDS)) == 0)
        return cli_fail(CLI_USAGE, "--seeds %.20s is not a whole number from 1 to %d", seeds,
                        RACE_SEEDS);
    r->first_seed = cli_number(r->setup, "seed");
    r->target = cli_has_target(r->setup);
    if (cli_number(r->setup, "target-accuracy") > 0 && cli_number(r->setup, "target-loss") > 0)
        return cli_fail(CLI_USAGE,
                        "a race is to one target, because methods that meet different ones cannot "
                        "be compared; give --target-accuracy or --target-loss");
    if (r->real && pl_rank() >= 0)
        return cli_fail(CLI_USAGE, "race --real runs on one machine; do not start it by mpirun");
    int n = args->n_words || resumed ? args->n_words : (int)(sizeof race_default / sizeof(char *));
    for (int i = 0; status == CLI_OK && i < n; i++) {
        const char *name = args->n_words ? args->word[i] : race_default[i];
        bool again = r->part || r->shares > 1;
        if (!again || !cli_race_has(r, name)) status = cli_race_add(r, name);
    }
    if (status == CLI_OK && r->part && r->n != n)
        status = cli_fail(CLI_FAILED, "'%s' has the results of another race; use another folder",
                          r->out);
    return status == CLI_OK && rates ? cli_race_rates(r, rates) : status;
}

static const char race_notes[] =
    "Default methods: auto sync backup kasync adasync-kasync abs gap-aware async. A method may\n"
    "carry options of its parts (after ':') and of its run (after '@'). Every method\n"
    "without an @lr races at the rate that served it best in simulated runs with seeds of\n"
    "their own, unless --lr or --tune no is given. Examples:\n\n"
    "  paceline race --demo\n"
    "  paceline race sync kasync:k=4 gap-aware --data digits \\\n"
    "      --target-accuracy 0.9 --time 2000\n"
    "  paceline race sync abs --target-accuracy 0.8 --time 500 --seeds 5\n"
    "  paceline race --resume race ringmaster      # add a method to a finished race\n"
    "  paceline race sync abs --real --workers 4 --delay exp:mean=0.02 --time 5\n";

/* The folder in which several processes meet. */
static const char *race_shared_folder(int argc, char **argv) {
    const char *out = race_peek(argc, argv, "--out");
    if (!out) out = race_peek(argc, argv, "-o");
    return out ? out : "race";
}

/* `folder` is that of a part; NULL: the arguments name it. */
static int race_command(struct race *r, const char *folder, int argc, char **argv) {
    bool demo = race_peek(argc, argv, "--demo") != NULL;
    const char *seeds = NULL, *out = NULL, *rates = NULL, *tune = NULL, *jobs = NULL,
               *resume = race_peek(argc, argv, "--resume");
    if (!folder && !resume && r->shares > 1) folder = race_shared_folder(argc, argv);
    if (folder && cli_race_is_in(folder)) resume = folder;
    const struct cli_flag flags[] = {
        {"demo", NULL, "Fashion-MNIST on 8 workers with heavy-tailed delays", &demo, NULL},
        {"real", NULL, "race with real workers on this machine; the simulator predicts first",
         &r->real, NULL},
        {"tune", "yes|no",
         "find each method's best learning rate first, by simulation (yes, unless --lr is given)",
         NULL, &tune},
        {"rates", "DIR", "take the learning rates that a race like this one tuned", NULL, &rates},
        {"seeds", "N", "repeat with N seeds from --seed on; print 95 % intervals (1)", NULL,
         &seeds},
        {"jobs", "N", "simulate N runs at once; results do not depend on it (one per core)", NULL,
         &jobs},
        {"out", "DIR", "new folder for results, curves and plot; -o for short (race, race-2, ...)",
         NULL, &out},
        {"resume", "DIR", "go on with the race in DIR; more methods and seeds may be added", NULL,
         &resume},
        {"json", NULL, "print one JSON object and nothing else", &r->json, NULL},
        {"quiet", NULL, "print no header and no progress, only results and warnings", &r->quiet,
         NULL},
        {NULL, NULL, NULL, NULL, NULL}};
    struct cli_args args = {
        .command = "race",
        .brief = "compare several methods on one workload with common random numbers",
        .usage = "race [METHOD[:OPTIONS][@NAME=VALUE] ...] [--NAME VALUE ...]",
        .options = PL_FOR_RACE,
        .own = PL_FOR_RACE,
        .flag = flags,
        .takes_words = true,
        .notes = race_notes};
    int status = CLI_OK;
    char cores[24]; /* a prediction must have as many workers as the real race */
    snprintf(cores, sizeof cores, "%d", pl_cores());
    if (race_peek(argc, argv, "--real")) pl_setup_set(r->setup, "workers", cores);
    if (demo) race_preset(r);
    if (resume && *resume) status = cli_race_load(r, resume);
    if (status == CLI_OK) status = cli_parse(&args, argc, argv, r->setup);
    if (status != CLI_OK || args.helped) return status;
    r->quiet = r->quiet || r->json;
    if (folder) out = resume ? NULL : folder;
    if (resume && out)
        return cli_fail(CLI_USAGE, "--resume goes on in its own folder; leave out --out");
    if (resume) status = cli_race_same(r);
    if (status == CLI_OK) status = race_at_once(r, jobs);
    if (status == CLI_OK) status = race_tunes(r, tune, rates, resume != NULL);
    if (status == CLI_OK) status = race_enter_all(r, &args, seeds, rates, resume != NULL);
    return status == CLI_OK ? race_run(r, out, resume != NULL) : status;
}

static int race_new(const char *folder, int argc, char **argv, bool *closes) {
    struct race r = {.n_seeds = 1, .name_width = 17, .part = folder != NULL};
    cli_race_share(&r);
    r.entrant = calloc(RACE_ENTRANTS, sizeof *r.entrant);
    if (!r.entrant || pl_setup_new(&r.setup)) return cli_fail(CLI_FAILED, "out of memory");
    int status = race_command(&r, folder, argc, argv);
    if (closes) *closes = r.closes;
    free(r.described);
    cli_race_free(&r);
    return status;
}

int cli_race(int argc, char **argv) {
    return race_new(NULL, argc, argv, NULL);
}

int cli_race_part(const char *folder, int argc, char **argv, bool *closes) {
    return race_new(folder, argc, argv, closes);
}
