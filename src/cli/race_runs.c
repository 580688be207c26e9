/* What a race is, in its folder: run.json for the race, and one file for each of its runs. */
#include <stdlib.h>
#include <string.h>
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

static void race_quote(FILE *f, const char *s) {
    fputc('"', f);
    for (; *s; s++) {
        if (*s == '"' || *s == '\\') fputc('\\', f);
        if ((unsigned char)*s >= 0x20) fputc(*s, f);
    }
    fputc('"', f);
}

/* The members that a race adds to the description, and its end. */
static void race_members(FILE *f, const struct race *r, const char *why) {
    char ended[32] = "";
    time_t now = time(NULL);
    struct tm utc;
    if (gmtime_r(&now, &utc)) strftime(ended, sizeof ended, "%Y-%m-%dT%H:%M:%SZ", &utc);
    fputs(",\"race\":{\"entrants\":[", f);
    for (int i = 0; i < r->n; i++) {
        if (i) fputc(',', f);
        race_quote(f, r->entrant[i].name);
    }
    fprintf(f, "],\"seeds\":%d,\"first_seed\":%.0f,\"real\":%s}", r->n_seeds, r->first_seed,
            r->real ? "true" : "false");
    if (why)
        fprintf(f, ",\"ended\":\"%s\",\"why\":\"%s\",\"trouble\":null}", ended, why);
    else
        fputs(",\"ended\":null,\"why\":null,\"trouble\":null}", f);
}

/* The description of the setup ends with "ended", "why" and "trouble", which the race replaces. */
void cli_race_describe(const struct race *r, const char *why) {
    static const char end[] = ",\"ended\":null";
    char path[RACE_PATH + 32], *text = NULL;
    size_t n = 0, body = strlen(r->described);
    FILE *f = open_memstream(&text, &n);
    if (!f) return;
    const char *tail = r->described;
    for (const char *at = tail; (at = strstr(at, end)); at++) tail = at;
    if (tail > r->described) body = (size_t)(tail - r->described);
    fwrite(r->described, 1, body, f);
    race_members(f, r, why);
    snprintf(path, sizeof path, "%.480s/run.json", r->out);
    if (fclose(f) == 0) race_write(path, text);
    free(text);
}
