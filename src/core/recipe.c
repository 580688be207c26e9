#include "core/recipe.h"

#include <stdio.h>
#include <string.h>

#include "core/rule.h"
#include "core/tuner.h"

const struct pl_family *const pl_column_family[PL_N_COLUMNS] = {
    &pl_policy_family, &pl_tuner_family, &pl_correct_family,
    &pl_reduce_family, &pl_optim_family, &pl_local_family};

#define DUTTA "Dutta, Joshi, Ghosh, Dube, Nagpurkar, AISTATS 2018"
#define ADASYNC "Dutta, Wang, Joshi, arXiv 2003.10579"
#define CHEN "Chen, Pan, Monga, Bengio, Jozefowicz, arXiv 1604.00981"
#define PSP "Wang, Catterall, Mortier, arXiv 1709.07772"

/* X(name, brief, paper, policy, tuner, correct, reduce, optim, local) */
#define RECIPES(X)                                                                                 \
    X(sync, "sync", "wait for everybody", "", "ksync:k=all", "fixed", "none", "mean", "sgd",       \
      "gradient")                                                                                  \
    X(async, "async", "wait for nobody", DUTTA, "kasync:k=1", "fixed", "none", "mean", "sgd",      \
      "gradient")                                                                                  \
    X(ksync, "ksync", "wait for the first half of the workers, call the rest back", DUTTA,         \
      "ksync:k=50%", "fixed", "none", "mean", "sgd", "gradient")                                   \
    X(kbatchsync, "kbatchsync", "wait for K mini-batches of one version, whoever brings them",     \
      DUTTA, "kbatchsync:k=50%", "fixed", "none", "mean", "sgd", "gradient")                       \
    X(kasync, "kasync", "wait for half of the workers, on any version", DUTTA, "kasync:k=50%",     \
      "fixed", "none", "mean", "sgd", "gradient")                                                  \
    X(kbatchasync, "kbatchasync", "update at every K-th mini-batch", DUTTA, "kbatchasync:k=50%",   \
      "fixed", "none", "mean", "sgd", "gradient")                                                  \
    X(backup, "backup",                                                                            \
      "synchronous with a fifth of the workers as spares; late ones are dropped", CHEN,            \
      "ksync:k=80%,cancel=no", "fixed", "none", "mean", "sgd", "gradient")                         \
    X(adasync_ksync, "adasync-ksync", "K-sync with K growing as the loss falls", ADASYNC,          \
      "ksync:k=1", "adasync", "none", "mean", "sgd", "gradient")                                   \
    X(adasync_kbatchsync, "adasync-kbatchsync", "K-batch-sync with K growing as the loss falls",   \
      ADASYNC, "kbatchsync:k=1", "adasync", "none", "mean", "sgd", "gradient")                     \
    X(adasync_kasync, "adasync-kasync", "K-async with K growing as the loss falls", ADASYNC,       \
      "kasync:k=1", "adasync", "none", "mean", "sgd", "gradient")                                  \
    X(adasync_kbatchasync, "adasync-kbatchasync",                                                  \
      "K-batch-async with K growing as the loss falls", ADASYNC, "kbatchasync:k=1", "adasync",     \
      "none", "mean", "sgd", "gradient")                                                           \
    X(sa_adasync, "sa-adasync",                                                                    \
      "AdaSync K-async, each gradient divided by its staleness "                                   \
      "(reconstructed)",                                                                           \
      "baseline of Tan, Zhu, Zhang, arXiv 2301.08895", "kasync:k=1", "adasync", "lag", "mean",     \
      "sgd", "gradient")                                                                           \
    X(abs, "abs",                                                                                  \
      "K-async with K growing, the staleness bound shrinking and stale workers "                   \
      "restarted (reconstructed)",                                                                 \
      "after Tan, Zhu, Zhang, arXiv 2301.08895", "kasync:k=1,stop=yes", "abs:rule=measured",       \
      "none", "mean", "sgd", "gradient")                                                           \
    X(staleness_aware, "staleness-aware", "asynchronous, each gradient divided by its staleness",  \
      "Zhang, Gupta, Lian, Liu, IJCAI 2016", "kasync:k=1", "fixed", "lag", "mean", "sgd",          \
      "gradient")                                                                                  \
    X(distance_rate, "distance-rate", "asynchronous, rate bounded by the distance travelled",      \
      DUTTA ", eq. 11-13", "kasync:k=1", "fixed", "distance", "mean", "sgd", "gradient")           \
    X(gap_aware, "gap-aware", "asynchronous momentum, gradients divided by their gap",             \
      "Barkai, Hakimi, Schuster, ICLR 2020", "kasync:k=1", "fixed", "gap", "mean", "momentum",     \
      "gradient")                                                                                  \
    X(dana, "dana", "asynchronous, a momentum per worker and a look-ahead over all",               \
      "Hakimi, Barkai, Gabel, Schuster, arXiv 1907.11612", "kasync:k=1", "fixed", "none", "mean",  \
      "dana", "gradient")                                                                          \
    X(dana_ga, "dana-ga", "DANA with Gap-Aware (which copy is compared is recalled)",              \
      "Barkai, Hakimi, Schuster, ICLR 2020", "kasync:k=1", "fixed", "gap", "mean", "dana",         \
      "gradient")                                                                                  \
    X(dc_asgd, "dc-asgd", "asynchronous with delay compensation", "Zheng et al., ICML 2017",       \
      "kasync:k=1", "fixed", "dc", "mean", "sgd", "gradient")                                      \
    X(delay_adaptive, "delay-adaptive", "asynchronous, smaller rate beyond the usual delay",       \
      "Mishchenko et al., NeurIPS 2022", "kasync:k=1", "fixed", "delay-adaptive", "mean", "sgd",   \
      "gradient")                                                                                  \
    X(clipped_asgd, "clipped-asgd", "asynchronous, gradients clipped (c is ours to set)",          \
      "Erickson and Johansson, arXiv 2606.13287", "kasync:k=1", "fixed", "clip", "mean", "sgd",    \
      "gradient")                                                                                  \
    X(ssp, "ssp", "asynchronous, nobody more than s steps ahead of the slowest",                   \
      "Ho et al., NIPS 2013", "ssp", "fixed", "none", "mean", "sgd", "gradient")                   \
    X(pbsp, "pbsp", "asynchronous, nobody ahead of a random sample", PSP, "psp:s=0", "fixed",      \
      "none", "mean", "sgd", "gradient")                                                           \
    X(pssp, "pssp", "asynchronous, nobody more than s steps ahead of a random sample", PSP,        \
      "psp:s=4", "fixed", "none", "mean", "sgd", "gradient")                                       \
    X(ringmaster, "ringmaster",                                                                    \
      "asynchronous below a staleness bound, stale workers restarted; "                            \
      "bound grows by itself",                                                                     \
      "Maranjyan, Tyurin, Richtarik, ICML 2025", "kasync:k=1,stop=yes", "growing-bound", "none",   \
      "mean", "sgd", "gradient")                                                                   \
    X(rennala, "rennala", "B mini-batches of one version, here as many as workers",                \
      "Tyurin and Richtarik, NeurIPS 2023", "kbatchsync:k=all", "fixed", "none", "mean", "sgd",    \
      "gradient")                                                                                  \
    X(ormo, "ormo", "asynchronous with ordered momentum (recalled; algebra derived)",              \
      "Shi, Yang, Li, NeurIPS 2024", "kasync:k=1", "fixed", "none", "mean", "ormo", "gradient")    \
    X(fastest_k, "fastest-k", "K-sync with K growing when gradients disagree",                     \
      "Kas Hanna et al., arXiv 2002.11005", "ksync:k=1", "fastestk", "none", "mean", "sgd",        \
      "gradient")                                                                                  \
    X(local_sgd, "local-sgd", "synchronous rounds of local steps", "Stich, ICLR 2019",             \
      "ksync:k=all", "fixed", "none", "mean", "sgd", "steps")

#define X(symbol, word, text, cite, a, b, c, d, e, f)                                              \
    static const struct pl_recipe recipe_##symbol = {                                              \
        .id = {.name = word, .brief = text, .paper = cite, .opts = pl_no_opts},                    \
        .column = {a, b, c, d, e, f}};
RECIPES(X)
#undef X

static const struct pl_entry *const recipe_table[] = {
#define X(symbol, word, text, cite, a, b, c, d, e, f) &recipe_##symbol.id,
    RECIPES(X)
#undef X
        NULL};

const struct pl_family pl_recipe_family = {"method", "a published method: one row of choices",
                                           recipe_table};

/* The first column whose member has an option called key[0..n). */
static int recipe_column(char spec[PL_N_COLUMNS][PL_SPEC_MAX], const char *key, size_t n) {
    for (int c = 0; c < PL_N_COLUMNS; c++) {
        char name[PL_NAME_MAX];
        const char *args;
        const struct pl_entry *entry;
        if (pl_spec_split(spec[c], name, &args, NULL)) continue;
        if (pl_entry_find(pl_column_family[c], name, &entry, NULL)) continue;
        for (const struct pl_opt *o = entry->opts; o->name; o++)
            if (strlen(o->name) == n && strncmp(o->name, key, n) == 0) return c;
    }
    return -1;
}

int pl_recipe_resolve(const char *method, const struct pl_recipe **recipe,
                      char spec[PL_N_COLUMNS][PL_SPEC_MAX], struct pl_why *why) {
    char name[PL_NAME_MAX];
    const char *args = "";
    const struct pl_entry *entry = NULL;
    int rc = pl_spec_split(method, name, &args, why);
    if (!rc) rc = pl_entry_find(&pl_recipe_family, name, &entry, why);
    if (rc) return rc;
    *recipe = (const struct pl_recipe *)entry;
    for (int c = 0; c < PL_N_COLUMNS; c++)
        snprintf(spec[c], PL_SPEC_MAX, "%s", (*recipe)->column[c]);
    while (*args) {
        size_t key = strcspn(args, "=,"), len = strcspn(args, ",");
        if (args[key] != '=' || key == 0)
            return pl_fail(why, PL_EUSAGE, "method '%s': '%.60s' is not key=value", name, args);
        int c = recipe_column(spec, args, key);
        if (c < 0)
            return pl_fail(why, PL_EUSAGE,
                           "method '%s' has no option '%.*s'; 'paceline list' shows those of its "
                           "policy %s, tuner %s and rules",
                           name, (int)(key < 40 ? key : 40), args, (*recipe)->column[0],
                           (*recipe)->column[1]);
        pl_append(spec[c], PL_SPEC_MAX, "%c%.*s", strchr(spec[c], ':') ? ',' : ':', (int)len, args);
        args += len;
        if (*args == ',' && *++args == '\0')
            return pl_fail(why, PL_EUSAGE, "method '%s': a spec cannot end with a comma", name);
    }
    return PL_OK;
}
