#include "base/needs.h"

#include <stdio.h>

/* In the order in which they are checked: what would have to change first comes first. If a need
 * has advice of its own, that is printed instead of another entry's name. */
static const struct {
    unsigned need;
    const char *name; /* for programs */
    const char *needs, *lacks, *advice;
} needs_row[] = {
    {PL_NEEDS_MODEL, "model", "needs tasks that compute something", "simulates timing alone",
     "use a model, for example --model quadratic"},
    {PL_NEEDS_MATRIX, "matrix", "hands out blocks of a matrix", "has none",
     "use --model mf --data ratings:FILE, or --data lowrank to try it"},
    {PL_NEEDS_RATINGS, "ratings", "needs ratings", "has none",
     "use --data ratings:FILE, or --data lowrank to try it"},
    {PL_NEEDS_DATA, "data", "needs training samples", "has no data", "use a model that has data"},
    {PL_NEEDS_REFERENCE, "reference", "compares with a gradient on samples of the server",
     "has no data", "use a model that has data"},
    {PL_NEEDS_LABELS, "labels", "needs class labels", "has none", NULL},
    {PL_NEEDS_SERVER_MODEL, "server-model", "needs a model at a server",
     "keeps a model at every worker instead", NULL},
    {PL_NEEDS_PARTS, "parts", "works on blocks of a matrix", "hands out the whole model",
     "use --policy blocks or --policy strata with --model mf"},
    {PL_NEEDS_WHOLE_VECTORS, "whole-vectors", "needs the whole model", "hands out blocks of it",
     NULL},
    {PL_NEEDS_BASE, "base", "needs the version that a task was computed on",
     "keeps no old versions", NULL},
    {PL_NEEDS_ONE_AT_A_TIME, "one-at-a-time", "takes contributions one at a time",
     "makes larger groups", "use a policy with k=1"},
    {PL_NEEDS_ONE_SERVER, "one-server", "needs whole vectors at one server",
     "divides them among servers", "use servers 1"},
    {PL_NEEDS_SIMULATION, "simulation", "is for simulated runs",
     "has a network, faults and memory of its own that cannot be set or seen", NULL},
    {PL_NEEDS_PROCESSES, "processes", "needs workers that are processes", "starts threads",
     "use --spawn processes"},
    {PL_NEEDS_OUR_WORKERS, "our-workers", "is computed by workers of this library",
     "lets clients join, which send gradients", NULL},
    {PL_NEEDS_NO_FILTER, "no-filter", "is made where a group is committed",
     "judges contributions when they arrive", NULL},
};

void pl_needs_print(unsigned needs, struct pl_json *j) {
    pl_json_open(j, "needs", '[');
    for (size_t i = 0; i < sizeof needs_row / sizeof *needs_row; i++)
        if (needs & needs_row[i].need) pl_json_text(j, NULL, needs_row[i].name);
    pl_json_close(j, ']');
}

const struct pl_entry *pl_needs_first(const struct pl_family *family, unsigned lacks) {
    for (const struct pl_entry *const *e = family ? family->table : NULL; e && *e; e++)
        if (!((*e)->needs & lacks)) return *e;
    return NULL;
}

static int needs_refuse(const struct pl_party *a, const struct pl_party *b, size_t row,
                        struct pl_why *why) {
    char instead[120];
    const struct pl_entry *other = pl_needs_first(a->family, b->lacks);
    const char *advice = a->instead ? a->instead : b->instead ? b->instead : needs_row[row].advice;
    if (advice)
        snprintf(instead, sizeof instead, "%s", advice);
    else if (other)
        snprintf(instead, sizeof instead, "use %s %s", a->what, other->name);
    else
        snprintf(instead, sizeof instead,
                 b->given ? "leave out --%s or choose another %s" : "leave out --%s", a->what,
                 b->what);
    const char *how = b->how ? b->how : needs_row[row].lacks;
    if (!b->given)
        return pl_fail(why, PL_EUSAGE, "%s '%.100s' %s, but %s %s; %s", a->what, a->given,
                       needs_row[row].needs, b->what, how, instead);
    return pl_fail(why, PL_EUSAGE, "%s '%.100s' %s, but %s '%.100s' %s; %s", a->what, a->given,
                   needs_row[row].needs, b->what, b->given, how, instead);
}

int pl_needs_check(const struct pl_party *party, int n, struct pl_why *why) {
    for (size_t row = 0; row < sizeof needs_row / sizeof *needs_row; row++)
        for (int a = 0; a < n; a++)
            for (int b = 0; b < n; b++)
                if (party[a].needs & party[b].lacks & needs_row[row].need)
                    return needs_refuse(&party[a], &party[b], row, why);
    return PL_OK;
}
