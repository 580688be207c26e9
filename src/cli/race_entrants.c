/* Who races: entering a method, and the setup of its runs. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "race.h"

bool cli_race_has(const struct race *r, const char *name) {
    for (int i = 0; i < r->n; i++)
        if (strcmp(r->entrant[i].name, name) == 0) return true;
    return false;
}

/* Refuses names with commas between them; in a spec, commas come behind the colon. */
static int race_refuse_commas(const char *name) {
    char words[200];
    size_t n = strcspn(name, ":@");
    if (!memchr(name, ',', n)) return CLI_OK;
    snprintf(words, sizeof words, "%.120s", name);
    for (size_t i = 0; i < n && words[i]; i++)
        if (words[i] == ',') words[i] = ' ';
    return cli_fail(CLI_USAGE, "'%.120s' is not a method; separate methods by spaces: race %s",
                    name, words);
}

int cli_race_add(struct race *r, const char *name) {
    int status = race_refuse_commas(name);
    if (status != CLI_OK) return status;
    if (r->n == RACE_ENTRANTS)
        return cli_fail(CLI_USAGE, "more than %d methods cannot race at once", RACE_ENTRANTS);
    if (cli_race_has(r, name)) return cli_fail(CLI_USAGE, "'%.60s' is in the race already", name);
    struct race_entrant *e = &r->entrant[r->n];
    e->name = strdup(name);
    if (!e->name) return cli_fail(CLI_FAILED, "out of memory");
    r->n++;
    double *const numbers[] = {e->to_target,
                               e->within,
                               e->loss,
                               e->accuracy,
                               e->end,
                               e->staleness,
                               e->wasted,
                               e->idle,
                               e->lr,
                               e->per_update,
                               e->predicted_per_update,
                               e->predicted};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        for (int s = 0; s < RACE_SEEDS; s++) numbers[i][s] = NAN;
    e->tuned = NAN;
    if ((int)strlen(name) > r->name_width) r->name_width = (int)strlen(name);
    return CLI_OK;
}

void cli_race_free(struct race *r) {
    for (int i = 0; i < r->n; i++) free(r->entrant[i].name);
    free(r->entrant);
    pl_setup_free(r->setup);
}

/* Whether an option says what the race is about, so that it must be the same for all entrants. */
static bool race_is_shared(const char *option) {
    static const char *const shared[] = {"data", "model", "workers",         "delay",      "attack",
                                         "net",  "seed",  "target-accuracy", "target-loss"};
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++)
        if (strcmp(option, shared[i]) == 0) return true;
    return false;
}

int cli_race_setup(const struct race *r, const struct race_entrant *e, pl_setup **out) {
    char text[1024], *rest = text;
    if (pl_setup_copy(r->setup, out)) return cli_fail(CLI_FAILED, "out of memory");
    if (strlen(e->name) >= sizeof text) return cli_fail(CLI_USAGE, "'%.40s…' is too long", e->name);
    memcpy(text, e->name, strlen(e->name) + 1);
    int rc = pl_setup_set(*out, "method", strsep(&rest, "@"));
    while (!rc && rest) {
        char *key = strsep(&rest, "@"), *value = strchr(key, '=');
        if (!value) return cli_fail(CLI_USAGE, "in '%s', '@%s' is not @key=value", e->name, key);
        *value = '\0';
        if (race_is_shared(key))
            return cli_fail(CLI_USAGE,
                            "in '%s': all methods of a race have the same %s; give --%s, or run "
                            "another race",
                            e->name, key, key);
        rc = pl_setup_set(*out, key, value + 1);
    }
    if (!rc && isfinite(e->tuned)) {
        snprintf(text, sizeof text, "%.17g", e->tuned);
        rc = pl_setup_set(*out, "lr", text);
    }
    return rc ? cli_fail(rc, "in '%s': %s", e->name, pl_setup_why(*out)) : CLI_OK;
}

bool cli_race_has_rate(const struct race_entrant *e) {
    return strstr(e->name, "@lr=") != NULL;
}

void cli_race_alone(pl_setup *one) {
    static const char *const files[] = {"log",     "events",  "record",
                                        "log-dir", "history", "dashboard"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) pl_setup_set(one, files[i], "");
}

bool cli_race_scores(pl_setup *setup) {
    char model[RACE_PATH] = "";
    pl_setup_get(setup, "model", model, sizeof model);
    return strcmp(model, "none") != 0;
}
