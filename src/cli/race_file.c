/* The folder of a race: race.json says what the race is, results.jsonl has one line per finished
 * run, points-*.jsonl the curves. A race that was interrupted goes on from them. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "race.h"

static void file_path(const struct race *r, const char *name, char *path, size_t max) {
    snprintf(path, max, "%.480s/%s", r->out, name);
}

void cli_race_curve(const struct race *r, int i, int seed, char *path, size_t max) {
    snprintf(path, max, "%.400s/points-%02d-seed%.0f.jsonl", r->out, i + 1, r->first_seed + seed);
}

int cli_race_create(struct race *r, const char *named) {
    snprintf(r->out, sizeof r->out, "%.400s", named ? named : "race");
    for (int i = 2; mkdir(r->out, 0777) != 0; i++) {
        if (errno == EEXIST && (r->part || r->shares > 1)) return CLI_OK;
        if (errno != EEXIST || named)
            return cli_fail(CLI_FAILED, "results folder '%.300s' %s%s", r->out,
                            errno == EEXIST ? "already exists and will not be overwritten; "
                                            : "cannot be created: ",
                            errno == EEXIST ? "choose another name, or --resume it"
                                            : strerror(errno));
        if (i > 9999) return cli_fail(CLI_FAILED, "too many race folders; give --out DIR");
        snprintf(r->out, sizeof r->out, "race-%d", i);
    }
    return CLI_OK;
}

bool cli_race_is_in(const char *folder) {
    char path[RACE_PATH + 32];
    snprintf(path, sizeof path, "%.480s/race.json", folder);
    return access(path, F_OK) == 0;
}

bool cli_race_is_complete(const char *folder) {
    struct race r = {.n_seeds = 1, .entrant = calloc(RACE_ENTRANTS, sizeof *r.entrant)};
    bool complete = cli_race_is_in(folder) && r.entrant && pl_setup_new(&r.setup) == PL_OK &&
                    cli_race_load(&r, folder) == CLI_OK && cli_race_missing(&r) == 0;
    cli_race_free(&r);
    return complete;
}

int cli_race_open(struct race *r) {
    char path[RACE_PATH + 32];
    file_path(r, "results.jsonl", path, sizeof path);
    r->results = fopen(path, "a");
    return r->results ? CLI_OK
                      : cli_fail(CLI_FAILED, "%.300s cannot be written: %s", path, strerror(errno));
}

void cli_race_forget(const struct race *r) {
    char path[RACE_PATH + 32];
    struct stat s;
    file_path(r, "results.jsonl", path, sizeof path);
    if (stat(path, &s) != 0 || s.st_size != 0) return;
    unlink(path);
    file_path(r, "race.json", path, sizeof path);
    unlink(path);
    file_path(r, "run.json", path, sizeof path);
    unlink(path);
    rmdir(r->out); /* fails if there are curves in it */
}

/* --- what the race is -------------------------------------------------------------------- */

/* Options that say where a race runs, not what it is. */
static bool file_is_kept(const struct pl_item *option) {
    return option->commands & PL_FOR_RACE && strcmp(option->name, "threads") != 0 &&
           strcmp(option->name, "dashboard") != 0;
}

struct file_options {
    pl_setup *setup;
    json_t *options;
    int status;
};

static void file_option(void *ctx, const struct pl_item *item) {
    struct file_options *f = ctx;
    char value[RACE_PATH];
    if (file_is_kept(item) && pl_setup_get(f->setup, item->name, value, sizeof value) == PL_OK)
        json_object_set_new(f->options, item->name, json_string(value));
}

static json_t *file_real(double x) {
    return isfinite(x) ? json_real(x) : json_null();
}

static json_t *file_tried(const struct race_entrant *e) {
    json_t *all = json_array();
    for (int i = 0; i < e->n_tried; i++)
        json_array_append_new(all, json_pack("{s:o, s:o, s:o}", "lr", file_real(e->tried[i].lr),
                                             "time_to_target", file_real(e->tried[i].seconds),
                                             "error", file_real(e->tried[i].error)));
    return all;
}

static json_t *file_entrant(const struct race_entrant *e) {
    return json_pack("{s:s, s:o, s:o}", "name", e->name, "lr", file_real(e->tuned), "tried",
                     file_tried(e));
}

static json_t *file_entrants(const struct race *r) {
    json_t *all = json_array();
    for (int i = 0; i < r->n; i++) json_array_append_new(all, file_entrant(&r->entrant[i]));
    return all;
}

static json_t *file_mean(struct race_mean m) {
    static const char *const bound[] = {NULL, "at least", "at most"};
    char shown[64] = "";
    cli_append(shown, sizeof shown, "%s", cli_race_sign(m.bound));
    cli_race_digits(shown, sizeof shown, 3, cli_race_shown(m), m.within, m.bound);
    return json_pack("{s:o, s:o, s:o, s:o, s:i, s:s?, s:s?, s:o}", "mean", file_real(m.mean),
                     "half", file_real(m.half), "low", file_real(m.low), "high", file_real(m.high),
                     "n", m.n, "bound", bound[m.bound], "shown",
                     m.bound == RACE_EXACT ? NULL : shown, "within", file_real(m.within));
}

static json_t *file_row(const struct race *r, const struct race_entrant *e) {
    const struct {
        const char *key;
        const double *x;
    } numbers[] = {{"loss", e->loss},
                   {r->rates ? "test_rmse" : "test_accuracy", e->accuracy},
                   {"target_within", e->within},
                   {"time_per_update", e->per_update},
                   {"staleness", e->staleness},
                   {"wasted", e->wasted},
                   {"idle", e->idle},
                   {"predicted", e->predicted}};
    json_t *row =
        json_pack("{s:s, s:o, s:b, s:i, s:i, s:i, s:o, s:o}", "method", e->name, "lr",
                  file_real(cli_race_mean(e->lr, r->n_seeds).mean), "tuned", isfinite(e->tuned),
                  "runs", cli_race_done(r, e), "reached", cli_race_reached(r, e), "diverged",
                  cli_race_diverged(r, e), "time_to_target", file_mean(cli_race_time(r, e)),
                  "factor", file_mean(cli_race_factor_shown(r, e)));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        json_object_set_new(row, numbers[i].key,
                            file_mean(cli_race_mean(numbers[i].x, r->n_seeds)));
    return row;
}

/* Adds what the table shows. */
static void file_ranking(const struct race *r, json_t *all) {
    const struct race_entrant *order[RACE_ENTRANTS], *base = cli_race_baseline(r);
    json_t *ranking = json_array(), *verdict = json_array();
    int n = cli_race_order(r, order);
    char *text = cli_race_verdict(r), *rest = text;
    for (int i = 0; i < n; i++) json_array_append_new(ranking, file_row(r, order[i]));
    for (const char *line; (line = strsep(&rest, "\n")) && *line;)
        json_array_append_new(verdict, json_string(line));
    json_object_set_new(all, "sorted_by", json_string(cli_race_sorting(r)));
    json_object_set_new(all, "baseline", base ? json_string(base->name) : json_null());
    json_object_set_new(all, "verdict", verdict);
    json_object_set_new(all, "ranking", ranking);
    free(text);
}

/* The race and its results so far; the caller frees it. */
static json_t *file_describe(const struct race *r) {
    struct file_options f = {r->setup, json_object(), CLI_OK};
    pl_list("option", file_option, &f);
    json_t *all = json_pack("{s:s, s:i, s:b, s:b, s:o, s:o}", "program", pl_version(), "seeds",
                            r->n_seeds, "real", r->real, "tune", r->tune, "entrants",
                            file_entrants(r), "options", f.options);
    if (all) file_ranking(r, all);
    return all;
}

/* --- an earlier race --------------------------------------------------------------------- */

static int file_bad(const char *path, const char *why) {
    return cli_fail(CLI_FAILED, "'%.300s' is not of a race: %s", path, why);
}

static int file_load_options(struct race *r, const char *path, const json_t *options) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)options, key, value) {
        const char *text = json_string_value(value);
        if (!text || strlen(text) >= RACE_PATH) return file_bad(path, "an option is not a text");
        char now[RACE_PATH];
        if (pl_setup_get(r->setup, key, now, sizeof now))
            return file_bad(path, "it has an option that does not exist");
        if (strcmp(now, text) != 0 && pl_setup_set(r->setup, key, text))
            return file_bad(path, pl_setup_why(r->setup));
    }
    return CLI_OK;
}

static double file_number(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static void file_load_rate(struct race_entrant *e, const json_t *entrant) {
    size_t i;
    json_t *one;
    e->tuned = file_number(entrant, "lr");
    e->n_tried = 0;
    json_array_foreach(json_object_get(entrant, "tried"), i, one) {
        if (e->n_tried == RACE_TRIES) return;
        e->tried[e->n_tried++] = (struct race_try){
            file_number(one, "lr"), file_number(one, "time_to_target"), file_number(one, "error")};
    }
}

/* Takes the rates that other processes have found. */
static void file_load_rates(struct race *r) {
    char path[RACE_PATH + 32];
    size_t i;
    json_t *one;
    file_path(r, "race.json", path, sizeof path);
    json_t *all = json_load_file(path, 0, NULL);
    json_array_foreach(json_object_get(all, "entrants"), i, one) {
        const char *name = json_string_value(json_object_get(one, "name"));
        for (int e = 0; name && e < r->n; e++)
            if (strcmp(r->entrant[e].name, name) == 0 && isnan(r->entrant[e].tuned))
                file_load_rate(&r->entrant[e], one);
    }
    json_decref(all);
}

/* Other processes may write it too: what they found is read, and no other writes meanwhile. */
int cli_race_save(struct race *r) {
    char path[RACE_PATH + 32], why[600] = "out of memory for race.json";
    file_path(r, "results.jsonl", path, sizeof path);
    FILE *results = r->shares > 1 ? fopen(path, "a") : NULL;
    if (results) cli_race_lock(r, results);
    if (r->shares > 1) file_load_rates(r);
    json_t *all = file_describe(r);
    char *text = all ? json_dumps(all, JSON_INDENT(1)) : NULL;
    file_path(r, "race.json", path, sizeof path);
    bool bad = !text || pl_write_file(path, text, why, sizeof why);
    json_decref(all);
    free(text);
    if (results) fclose(results); /* which unlocks it */
    return bad ? cli_fail(CLI_FAILED, "%s", why) : CLI_OK;
}

static int file_load_entrants(struct race *r, const char *path, const json_t *entrants) {
    size_t i;
    json_t *one;
    json_array_foreach((json_t *)entrants, i, one) {
        const char *name = json_string_value(json_object_get(one, "name"));
        if (!name || strlen(name) >= RACE_PATH) return file_bad(path, "an entrant has no name");
        int status = cli_race_add(r, name);
        if (status != CLI_OK) return status;
        file_load_rate(&r->entrant[r->n - 1], one);
    }
    return CLI_OK;
}

static int file_load_race(struct race *r) {
    char path[RACE_PATH + 32];
    json_error_t error;
    file_path(r, "race.json", path, sizeof path);
    if (access(r->out, F_OK) != 0)
        return cli_fail(CLI_FAILED, "there is no folder '%.300s'; --resume takes that of a race",
                        r->out);
    if (access(path, F_OK) != 0)
        return cli_fail(CLI_FAILED, "'%.300s' is not of a race: it has no race.json", r->out);
    json_t *all = json_load_file(path, 0, &error);
    if (!all) return file_bad(path, error.text);
    json_int_t seeds = json_integer_value(json_object_get(all, "seeds"));
    const json_t *options = json_object_get(all, "options");
    const json_t *entrants = json_object_get(all, "entrants");
    int status = CLI_OK;
    if (seeds < 1 || seeds > RACE_SEEDS || !json_is_object(options) || !json_is_array(entrants))
        status = file_bad(path, "it lacks seeds, options or entrants");
    r->n_seeds = status == CLI_OK ? (int)seeds : 1;
    r->real = json_is_true(json_object_get(all, "real"));
    r->tune = json_is_true(json_object_get(all, "tune"));
    if (status == CLI_OK) status = file_load_options(r, path, options);
    if (status == CLI_OK) status = file_load_entrants(r, path, entrants);
    json_decref(all);
    return status;
}

static void file_take(struct race *r, struct race_entrant *e, int seed, const json_t *line) {
    const json_t *run = json_object_get(line, "result"), *tasks = json_object_get(run, "staleness"),
                 *time = json_object_get(run, "worker_time");
    double rmse = file_number(run, "test_rmse");
    r->rates = r->rates || isfinite(rmse);
    e->done[seed] = true;
    e->diverged[seed] = json_is_true(json_object_get(line, "diverged"));
    e->to_target[seed] = file_number(run, "time_to_target");
    e->within[seed] = file_number(run, "target_within");
    e->accuracy[seed] = isfinite(rmse) ? rmse : file_number(run, "test_accuracy");
    e->loss[seed] = file_number(run, "loss");
    e->end[seed] = file_number(run, "time");
    const json_t *met = json_object_get(line, "met");
    if (isnan(rmse) && json_is_object(met)) {
        e->accuracy[seed] = file_number(met, "test_accuracy");
        e->loss[seed] = file_number(met, "loss");
    }
    e->staleness[seed] = file_number(tasks, "mean");
    e->wasted[seed] = file_number(time, "wasted");
    e->idle[seed] = file_number(time, "idle");
    e->per_update[seed] = file_number(run, "time_per_update");
    e->lr[seed] = file_number(run, "lr");
    e->predicted[seed] = file_number(line, "predicted");
    e->predicted_per_update[seed] = file_number(line, "predicted_per_update");
}

/* A last line without an end was cut short: its run is repeated. */
static int file_take_results(struct race *r, const char *path, FILE *f) {
    char *line = NULL;
    size_t room = 0;
    off_t whole = 0;
    int status = CLI_OK;
    ssize_t n;
    while (status == CLI_OK && (n = getline(&line, &room, f)) > 0 && line[n - 1] == '\n') {
        json_t *all = json_loads(line, 0, NULL);
        const char *name = json_string_value(json_object_get(all, "entrant"));
        double seed = file_number(all, "seed") - r->first_seed;
        int i = 0;
        while (name && i < r->n && strcmp(r->entrant[i].name, name) != 0) i++;
        if (!name || i == r->n || !(seed >= 0 && seed < RACE_SEEDS))
            status = file_bad(path, "a line is not the result of an entrant");
        else
            file_take(r, &r->entrant[i], (int)seed, all);
        json_decref(all);
        whole += n;
    }
    free(line);
    if (status == CLI_OK && truncate(path, whole) != 0)
        status = cli_fail(CLI_FAILED, "%.300s cannot be written: %s", path, strerror(errno));
    return status;
}

static int file_load_results(struct race *r) {
    char path[RACE_PATH + 32];
    file_path(r, "results.jsonl", path, sizeof path);
    FILE *f = fopen(path, "r");
    if (!f && errno == ENOENT) return CLI_OK;
    if (!f) return cli_fail(CLI_FAILED, "%.300s cannot be read: %s", path, strerror(errno));
    cli_race_lock(r, f);
    int status = file_take_results(r, path, f);
    fclose(f); /* unlocks it */
    return status;
}

int cli_race_load(struct race *r, const char *folder) {
    if (strlen(folder) > 400) return cli_fail(CLI_USAGE, "'%.60s…' is too long", folder);
    snprintf(r->out, sizeof r->out, "%s", folder);
    int status = file_load_race(r);
    r->first_seed = cli_number(r->setup, "seed");
    return status == CLI_OK ? file_load_results(r) : status;
}

static void file_compare(void *ctx, const struct pl_item *item) {
    struct file_options *f = ctx;
    char now[RACE_PATH];
    const char *then = json_string_value(json_object_get(f->options, item->name));
    if (!then || f->status != CLI_OK || !file_is_kept(item) ||
        pl_setup_get(f->setup, item->name, now, sizeof now) || strcmp(now, then) == 0)
        return;
    f->status = cli_fail(CLI_USAGE,
                         "--%s %.100s: this race has %s%.100s, and all its entrants need the same; "
                         "begin a new race, or write METHOD@%s=VALUE",
                         item->name, now, *then ? "" : "none", then, item->name);
}

int cli_race_same(const struct race *r) {
    char path[RACE_PATH + 32];
    file_path(r, "race.json", path, sizeof path);
    json_t *all = json_load_file(path, 0, NULL);
    struct file_options f = {r->setup, json_object_get(all, "options"), CLI_OK};
    pl_list("option", file_compare, &f);
    if (f.status == CLI_OK && r->real != json_is_true(json_object_get(all, "real")))
        f.status = cli_fail(CLI_USAGE, "--real: this race is simulated; begin a new race");
    json_decref(all);
    return f.status;
}

/* --- results ----------------------------------------------------------------------------- */

/* A real run may still be updated before it ends. */
const struct pl_point *cli_race_met(const struct race *r, const pl_run *run) {
    double accuracy = cli_number(r->setup, "target-accuracy");
    double loss = cli_number(r->setup, "target-loss");
    const struct pl_point *p;
    size_t n = pl_run_points(run, &p);
    for (size_t i = 0; i < n; i++)
        if ((accuracy > 0 && p[i].test_accuracy >= accuracy) || (loss > 0 && p[i].loss <= loss))
            return &p[i];
    return NULL;
}

static json_t *file_met(const struct race *r, const pl_run *run) {
    const struct pl_point *p = cli_race_met(r, run);
    return p ? json_pack("{s:o, s:o}", "test_accuracy", file_real(p->test_accuracy), "loss",
                         file_real(p->loss))
             : json_null();
}

static char *file_line(json_t *line) {
    char *text = line ? json_dumps(line, JSON_COMPACT) : NULL;
    json_decref(line);
    if (!text) cli_fail(CLI_FAILED, "out of memory");
    return text;
}

char *cli_race_result_line(const struct race *r, struct race_task task, pl_run *run) {
    const struct race_entrant *e = &r->entrant[task.entrant];
    json_t *line =
        json_pack("{s:s, s:s, s:f, s:b, s:o, s:o, s:o, s:o}", "entrant", e->name, "run",
                  pl_run_text(run, "id"), "seed", r->first_seed + task.seed, "diverged",
                  pl_run_diverged(run), "predicted", file_real(e->predicted[task.seed]),
                  "predicted_per_update", file_real(e->predicted_per_update[task.seed]), "result",
                  json_loads(pl_run_json(run), 0, NULL), "met", file_met(r, run));
    return file_line(line);
}

char *cli_race_rate_line(const struct race *r, int i) {
    return file_line(file_entrant(&r->entrant[i]));
}

/* Appends a line to results.jsonl. If other processes do too, it enters what they appended, to find
 * out whether this was the last that was missing. */
static int file_append(struct race *r, const char *line) {
    char path[RACE_PATH + 32];
    int status = CLI_OK;
    file_path(r, "results.jsonl", path, sizeof path);
    cli_race_lock(r, r->results);
    if (fputs(line, r->results) == EOF || fputc('\n', r->results) == EOF || fflush(r->results) != 0)
        status = cli_fail(CLI_FAILED, "%s cannot be written: %s", path, strerror(errno));
    FILE *f = status == CLI_OK && r->shares > 1 ? fopen(path, "r") : NULL;
    if (f) {
        status = file_take_results(r, path, f);
        fclose(f);
    }
    r->closes = cli_race_missing(r) == 0;
    cli_race_unlock(r, r->results);
    return status;
}

int cli_race_take(struct race *r, struct race_task task, const char *line) {
    struct race_entrant *e = &r->entrant[task.entrant];
    json_t *all = json_loads(line, 0, NULL);
    if (!all) return cli_fail(CLI_FAILED, "out of memory");
    if (task.seed == RACE_TUNING)
        file_load_rate(e, all);
    else
        file_take(r, e, task.seed, all);
    json_decref(all);
    return task.seed == RACE_TUNING ? cli_race_save(r) : file_append(r, line);
}

/* --- the JSON object --------------------------------------------------------------------- */

int cli_race_print_json(const struct race *r) {
    json_t *all = file_describe(r);
    json_t *run = r->described ? json_loads(r->described, 0, NULL) : NULL;
    if (all) json_object_set_new(all, "folder", json_string(r->out));
    if (all && run) json_object_set_new(all, "run", run);
    bool bad = !all || json_dumpf(all, stdout, JSON_COMPACT) != 0;
    putchar('\n');
    json_decref(all);
    return bad ? cli_fail(CLI_FAILED, "out of memory") : CLI_OK;
}
