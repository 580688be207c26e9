/* What a race is, in its folder: run.json for the race, and one file for each of its runs. */
#include <jansson.h>
#include <stdlib.h>
#include <time.h>

#include "race.h"

/* Writes a description; a failure is said, and the race goes on. */
static void race_write(const char *path, const char *json) {
    char why[600];
    if (json && pl_write_run(path, json, why, sizeof why)) cli_say(NULL, 1, why);
}

static void race_run_path(const struct race *r, char path[RACE_PATH + 32]) {
    snprintf(path, RACE_PATH + 32, "%.400s/run-%02d-seed%.0f.json", r->out, r->entrant_now + 1,
             r->first_seed + r->seed_now);
}

void cli_race_run_begins(void *ctx, const char *header, const char *json) {
    const struct race *r = ctx;
    char path[RACE_PATH + 32];
    (void)header;
    race_run_path(r, path);
    race_write(path, json);
}

void cli_race_run_ended(const struct race *r, const pl_run *run) {
    char path[RACE_PATH + 32];
    race_run_path(r, path);
    race_write(path, pl_run_text(run, "run"));
}

/* The description of the setup, with what the race is and how it ended. */
void cli_race_describe(const struct race *r, const char *why) {
    char path[RACE_PATH + 32], ended[32] = "";
    time_t now = time(NULL);
    struct tm utc;
    json_t *all = json_loads(r->described, 0, NULL), *entrants = json_array();
    if (gmtime_r(&now, &utc)) strftime(ended, sizeof ended, "%Y-%m-%dT%H:%M:%SZ", &utc);
    for (int i = 0; i < r->n; i++) json_array_append_new(entrants, json_string(r->entrant[i].name));
    json_t *race = json_pack("{s:{s:o, s:i, s:I, s:b}, s:s?, s:s?}", "race", "entrants", entrants,
                             "seeds", r->n_seeds, "first_seed", (json_int_t)r->first_seed, "real",
                             r->real, "ended", why ? ended : NULL, "why", why);
    char *text = json_object_update(all, race) ? NULL : json_dumps(all, JSON_COMPACT);
    snprintf(path, sizeof path, "%.480s/run.json", r->out);
    race_write(path, text);
    json_decref(race);
    json_decref(all);
    free(text);
}
