/* paceline race: compares several methods on one workload with common random numbers. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "race.h"

static const char *const race_default[] = {
    "sync", "backup", "kasync", "adasync-kasync", "abs", "gap-aware@lr=0.01", "async"};

/* The demo: Fashion-MNIST, eight workers whose delays have infinite variance. */
static const char *const race_demo[][2] = {{"data", "fashion"},
                                           {"model", "mlp:hidden=64"},
                                           {"workers", "8"},
                                           {"batch", "16"},
                                           {"lr", "0.05"},
                                           {"delay", "pareto:shape=1.5,scale=1"},
                                           {"target-accuracy", "0.84"},
                                           {"time", "30000"},
                                           {"eval-every", "100"}};

/* The demo with real workers: a hundredth of the time, and an easier target. */
static const char *const race_demo_real[][2] = {{"batch", "32"},
                                                {"delay", "pareto:shape=1.5,scale=0.01"},
                                                {"target-accuracy", "0.8"},
                                                {"time", "60"},
                                                {"eval-every", "0.2"}};

/* --- entrants ---------------------------------------------------------------------------- */

/* Copies the setup and adds the entrant's method and options. */
static int race_enter(const struct race *r, const struct race_entrant *e, pl_setup **out) {
    char text[1024], *rest = text;
    if (pl_setup_copy(r->setup, out)) return cli_fail(CLI_FAILED, "out of memory");
    if (strlen(e->name) >= sizeof text) return cli_fail(CLI_USAGE, "'%.40s…' is too long", e->name);
    memcpy(text, e->name, strlen(e->name) + 1);
    int rc = pl_setup_set(*out, "method", strsep(&rest, "@"));
    while (!rc && rest) {
        char *key = strsep(&rest, "@"), *value = strchr(key, '=');
        if (!value) return cli_fail(CLI_USAGE, "in '%s', '@%s' is not @key=value", e->name, key);
        *value = '\0';
        rc = pl_setup_set(*out, key, value + 1);
    }
    return rc ? cli_fail(rc, "in '%s': %s", e->name, pl_setup_why(*out)) : CLI_OK;
}

static int race_check(const struct race *r) {
    /* opens the data once, for all to share; errors are reported for the entrant that has them */
    int rc = pl_setup_set(r->setup, "method", "sync");
    if (!rc) rc = pl_setup_check(r->setup);
    for (int i = 0; i < r->n; i++) {
        pl_setup *one = NULL;
        int status = race_enter(r, &r->entrant[i], &one);
        if (status == CLI_OK && (rc = pl_setup_check(one)) != 0)
            status = cli_fail(rc, "in '%s': %s", r->entrant[i].name, pl_setup_why(one));
        pl_setup_free(one);
        if (status != CLI_OK) return status;
    }
    return CLI_OK;
}

/* --- running ----------------------------------------------------------------------------- */

/* Writes an entrant's name as a JSON string. */
static void race_quote(FILE *f, const char *s) {
    fputc('"', f);
    for (; *s; s++) {
        if (*s == '"' || *s == '\\') fputc('\\', f);
        if ((unsigned char)*s >= 0x20) fputc(*s, f);
    }
    fputc('"', f);
}

static void race_enter_result(struct race *r, struct race_entrant *e, int seed, pl_run *run) {
    e->to_target[seed] = pl_run_number(run, "time_to_target");
    double rmse = pl_run_number(run, "test_rmse");
    if (isfinite(rmse)) r->rates = true;
    e->accuracy[seed] = isfinite(rmse) ? rmse : pl_run_number(run, "test_accuracy");
    e->loss[seed] = pl_run_number(run, "loss");
    e->staleness[seed] = pl_run_number(run, "staleness.mean");
    e->wasted[seed] = pl_run_number(run, "worker_time.wasted");
    e->idle[seed] = pl_run_number(run, "worker_time.idle");
    e->per_update[seed] = pl_run_number(run, "time_per_update");
    e->n_diverged += pl_run_diverged(run) != 0;
    fputs("{\"entrant\":", r->results);
    race_quote(r->results, e->name);
    fprintf(r->results, ",\"result\":%s}\n", pl_run_json(run));
}

/* The simulator predicts from the injected delays; without them it cannot. */
static bool race_predicts(pl_setup *one) {
    char delay[RACE_PATH];
    return pl_setup_get(one, "delay", delay, sizeof delay) == PL_OK && strcmp(delay, "auto") != 0;
}

/* Simulates the coming run from the injected delays alone. The files that an entrant names are left
 * to the real run. */
static int race_predict(struct race_entrant *e, int seed, const pl_setup *one) {
    static const char *const files[] = {"log",     "events",  "record",
                                        "log-dir", "history", "dashboard"};
    pl_setup *copy;
    pl_run *run = NULL;
    if (pl_setup_copy(one, &copy)) return cli_fail(CLI_FAILED, "out of memory");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) pl_setup_set(copy, files[i], "");
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

static int race_one(struct race *r, int i, int seed) {
    struct race_entrant *e = &r->entrant[i];
    pl_setup *one = NULL;
    char text[RACE_PATH + 64], name[32];
    int status = race_enter(r, e, &one);
    snprintf(text, sizeof text, "%.0f", r->first_seed + seed);
    if (status == CLI_OK && pl_setup_set(one, "seed", text))
        status = cli_fail(CLI_USAGE, "--%s", pl_setup_why(one));
    snprintf(text, sizeof text, "%.400s/points-%02d-seed%.0f.jsonl", r->out, i + 1,
             r->first_seed + seed);
    if (status == CLI_OK) pl_setup_set(one, "log", text);
    snprintf(text, sizeof text, "%.400s/history-%02d.json", r->out, i + 1);
    if (status == CLI_OK && seed == 0) pl_setup_set(one, "history", text); /* for the report */
    if (status == CLI_OK) {
        struct cli_progress progress = {0};
        pl_run *run = NULL;
        int rc = PL_OK;
        e->predicted[seed] = e->predicted_per_update[seed] = NAN;
        snprintf(name, sizeof name, "%d/%d", i * r->n_seeds + seed + 1, r->n * r->n_seeds);
        snprintf(text, sizeof text, "%s %.40s", name, e->name);
        pl_setup_watch(one, cli_progress_point, cli_progress_tick, &progress);
        e->predicts = r->real && race_predicts(one);
        if (e->predicts) {
            char simulated[sizeof progress.name];
            snprintf(simulated, sizeof simulated, "%.48s, simulated", text);
            cli_progress_begin(&progress, simulated, one);
            status = race_predict(e, seed, one);
        }
        cli_progress_begin(&progress, text, one);
        pl_setup_log(one, cli_say, NULL);
        if (status == CLI_OK && !cli_interrupted())
            rc = (r->real ? pl_train : pl_simulate)(one, &run);
        cli_progress_end(&progress);
        if (rc)
            status = cli_fail(rc, "in '%s': %s", e->name, pl_setup_why(one));
        else if (run && !cli_interrupted()) /* an interrupted run has no result */
            race_enter_result(r, e, seed, run);
        pl_run_free(run);
    }
    pl_setup_free(one);
    return status;
}

/* --- the command ------------------------------------------------------------------------- */

static int race_plot(const struct race *r) {
    char why[600];
    int rc = pl_plot_folder(r->out, NULL, why, sizeof why);
    if (rc == PL_OK)
        printf("\nplot: %s/plot.svg   curves and results: %s/*.jsonl\n", r->out, r->out);
    else if (rc == PL_EMISSING || rc == PL_EUSAGE)
        printf("\nno plot: %s; curves and results: %s/*.jsonl\n", why, r->out);
    else
        return cli_fail(CLI_FAILED, "%s", why);
    printf("a page to look at: paceline report %s\n", r->out);
    return CLI_OK;
}

/* Creates the folder for the results: the given one, or the first free of race, race-2, … */
static int race_folder(struct race *r, const char *named) {
    snprintf(r->out, sizeof r->out, "%.400s", named ? named : "race");
    for (int i = 2; mkdir(r->out, 0777) != 0; i++) {
        if (errno != EEXIST || named)
            return cli_fail(CLI_FAILED, "results folder '%.300s' %s%s", r->out,
                            errno == EEXIST ? "already exists and will not be overwritten; "
                                            : "cannot be created: ",
                            errno == EEXIST ? "choose another name" : strerror(errno));
        if (i > 9999) return cli_fail(CLI_FAILED, "too many race folders; give --out DIR");
        snprintf(r->out, sizeof r->out, "race-%d", i);
    }
    char path[RACE_PATH + 32];
    snprintf(path, sizeof path, "%.480s/results.jsonl", r->out);
    r->results = fopen(path, "wx");
    return r->results ? CLI_OK
                      : cli_fail(CLI_FAILED, "%.300s cannot be created: %s", path, strerror(errno));
}

/* Removes the folder if the race failed before its first result. */
static void race_forget(const struct race *r) {
    char path[RACE_PATH + 32];
    struct stat s;
    snprintf(path, sizeof path, "%.480s/results.jsonl", r->out);
    if (!r->results || stat(path, &s) != 0 || s.st_size != 0) return;
    unlink(path);
    rmdir(r->out); /* fails if there are curves in it */
}

static int race_run(struct race *r, const char *out) {
    int status = race_check(r);
    if (status == CLI_OK) status = race_folder(r, out);
    pl_setup_log(r->setup, cli_say, NULL);
    if (status == CLI_OK && pl_setup_serve(r->setup))
        status = cli_fail(CLI_FAILED, "%s", pl_setup_why(r->setup));
    cli_catch_signals();
    for (int i = 0; status == CLI_OK && i < r->n && !cli_interrupted(); i++)
        for (int s = 0; status == CLI_OK && s < r->n_seeds && !cli_interrupted(); s++)
            status = race_one(r, i, s);
    if (r->results) {
        bool bad = ferror(r->results) != 0;
        if (fclose(r->results) != 0 || bad)
            status =
                cli_fail(CLI_FAILED, "%s/results.jsonl could not be written completely", r->out);
    }
    if (status != CLI_OK) {
        race_forget(r);
        return status;
    }
    if (cli_interrupted())
        return cli_fail(CLI_FAILED, "interrupted; finished results are in %s", r->out);
    cli_race_board(r);
    if (r->real) cli_race_prediction(r);
    return race_plot(r);
}

/* Sets the demo's options; those given on the command line override them. */
static void race_preset(struct race *r, int argc, char **argv) {
    bool demo = false;
    for (int i = 1; i < argc; i++) {
        demo = demo || strcmp(argv[i], "--demo") == 0;
        r->real = r->real || strcmp(argv[i], "--real") == 0;
    }
    if (!demo) return;
    for (size_t i = 0; i < sizeof race_demo / sizeof *race_demo; i++)
        pl_setup_set(r->setup, race_demo[i][0], race_demo[i][1]);
    for (size_t i = 0; r->real && i < sizeof race_demo_real / sizeof *race_demo_real; i++)
        pl_setup_set(r->setup, race_demo_real[i][0], race_demo_real[i][1]);
}

int cli_race(int argc, char **argv) {
    bool demo = false, real = false;
    const char *seeds = "1", *out = NULL;
    const struct cli_flag flags[] = {
        {"demo", NULL, "Fashion-MNIST on 8 workers with heavy-tailed delays", &demo, NULL},
        {"real", NULL, "race with real workers on this machine; the simulator predicts first",
         &real, NULL},
        {"seeds", "N", "repeat with N seeds from --seed on; print 95 % intervals (1)", NULL,
         &seeds},
        {"out", "DIR", "new folder for results, curves and plot (race, race-2, …)", NULL, &out},
        {NULL, NULL, NULL, NULL, NULL}};
    struct cli_args args = {
        .command = "race",
        .brief = "compare several methods on one workload with common random numbers",
        .usage = "race [METHOD[:OPTIONS][@NAME=VALUE] ...] [--NAME VALUE ...]",
        .options = "race",
        .flag = flags,
        .takes_words = true,
        .notes =
            "Default methods: sync backup kasync adasync-kasync abs gap-aware async. A method may\n"
            "carry options of its parts (after ':') and of its run (after '@'). Examples:\n\n"
            "  paceline race --demo\n"
            "  paceline race sync kasync:k=4 gap-aware@lr=0.01 --data digits --time 200\n"
            "  paceline race sync abs --target-accuracy 0.8 --time 500 --seeds 5\n"
            "  paceline race sync abs --real --workers 4 --delay exp:mean=0.02 --time 5\n"};
    struct race r = {0};
    struct race_entrant *entrants = calloc(RACE_ENTRANTS, sizeof *entrants);
    if (!entrants || pl_setup_new(&r.setup)) return cli_fail(CLI_FAILED, "out of memory");
    r.entrant = entrants;
    race_preset(&r, argc, argv);
    int status = cli_parse(&args, argc, argv, r.setup);
    char *end;
    r.n_seeds = (int)strtol(seeds, &end, 10);
    if (status == CLI_OK && (*end || !*seeds || r.n_seeds < 1 || r.n_seeds > RACE_SEEDS))
        status = cli_fail(CLI_USAGE, "--seeds %.20s is not a whole number from 1 to %d", seeds,
                          RACE_SEEDS);
    r.first_seed = cli_number(r.setup, "seed");
    r.target = cli_has_target(r.setup);
    if (status == CLI_OK && real && pl_rank() >= 0)
        status = cli_fail(CLI_USAGE, "race --real runs on one machine; do not start it by mpirun");
    if (status == CLI_OK && args.n_words > RACE_ENTRANTS)
        status = cli_fail(CLI_USAGE, "more than %d methods cannot race at once", RACE_ENTRANTS);
    if (status == CLI_OK && !args.helped) {
        r.n = args.n_words ? args.n_words : (int)(sizeof race_default / sizeof *race_default);
        r.name_width = 17;
        for (int i = 0; i < r.n; i++) {
            entrants[i].name = args.n_words ? args.word[i] : race_default[i];
            if ((int)strlen(entrants[i].name) > r.name_width)
                r.name_width = (int)strlen(entrants[i].name);
        }
        status = race_run(&r, out);
    }
    free(entrants);
    pl_setup_free(r.setup);
    return status;
}
