/* The published methods: one row each. A row gives a name, what the method does, its citation, and
 * the columns that differ from pl_column_default: .policy always, and .tuner, .correct, .reduce,
 * .optim, .local, .filter, .schedule, .average or .lr where the method needs another than the
 * default; and .when, a sentence for those who choose. To add a method, add a row. */
#include "core/recipe.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/hint.h"
#include "core/rule.h"
#include "core/tuner.h"

const struct pl_family *const pl_column_family[PL_N_COLUMNS] = {
    &pl_policy_family, &pl_tuner_family, &pl_correct_family, &pl_reduce_family,
    &pl_optim_family,  &pl_local_family, &pl_filter_family};

const char *const pl_column_default[PL_N_COLUMNS] = {NULL,  "fixed",    "none", "mean",
                                                     "sgd", "gradient", "none"};

#define DUTTA "Dutta, Joshi, Ghosh, Dube, Nagpurkar, AISTATS 2018"
#define ADASYNC "Dutta, Wang, Joshi, arXiv 2003.10579"
#define CHEN "Chen, Pan, Monga, Bengio, Jozefowicz, arXiv 1604.00981"
#define XIE "Xie, Koyejo, Gupta, arXiv 1802.10116"
#define GOSSIP "Jin, Yuan, Iandola, Keutzer, arXiv 1611.04581"
#define EASGD "Zhang, Choromanska, LeCun, NIPS 2015"
#define NODELAY "Talyansky et al., Asynchronous SGD without gradient delay"
#define PSP "Wang, Catterall, Mortier, arXiv 1709.07772"

#define METHOD(word, text, cite, ...)                                                              \
    &(const struct pl_recipe){                                                                     \
        .id = {.name = word, .brief = text, .paper = cite, .opts = pl_no_opts}, __VA_ARGS__}       \
         .id

static const struct pl_entry *const recipe_table[] = {
    METHOD("auto", "the fastest policy and K whose noise does no harm, chosen during the run", "",
           .policy = "kbatchasync:k=all", .tuner = "auto", .correct = "brake", .average = "tail",
           .when = "You do not know which method suits your workers and your learning rate, or "
                   "their speeds change during the run."),
    METHOD("sync", "wait for all workers", DUTTA, .policy = "ksync:k=all",
           .when = "Workers take about equal time, or you need the reference that every paper "
                   "compares with."),
    METHOD("async", "update at every gradient", DUTTA, .policy = "kasync:k=1",
           .when = "Workers differ in speed and their number is small; with many workers lower "
                   "the learning rate, because staleness grows with their number."),
    METHOD("ksync", "wait for the fastest half of the workers, restart the rest", DUTTA,
           .policy = "ksync:k=50%",
           .when = "A few workers are slow at random and cancelling their tasks is cheap."),
    METHOD("kbatchsync", "wait for K mini-batches on one version, from any workers", DUTTA,
           .policy = "kbatchsync:k=50%",
           .when = "As ksync, if fast workers should contribute more than once rather than wait."),
    METHOD("kasync", "wait for half of the workers, on any version", DUTTA,
           .policy = "kasync:k=50%",
           .when = "Workers are slow at random and their unfinished work should be kept rather "
                   "than cancelled; a good first choice between sync and async."),
    METHOD("kbatchasync", "update at every K-th mini-batch", DUTTA, .policy = "kbatchasync:k=50%",
           .when = "As kasync, if workers should never wait: an update comes after every K "
                   "results, from any workers."),
    METHOD("backup", "synchronous with a fifth of the workers as spares; late results are dropped",
           CHEN, .policy = "ksync:k=80%,cancel=no",
           .when = "Workers cannot be interrupted, and the slowest fifth of their results can be "
                   "spared."),
    METHOD("adasync-ksync", "K-sync; K grows as the loss falls", ADASYNC, .policy = "ksync:k=1",
           .tuner = "adasync",
           .when = "The right K is unknown and the loss falls steadily: many cheap updates "
                   "first, accurate ones later. Tasks can be cancelled."),
    METHOD("adasync-kbatchsync", "K-batch-sync; K grows as the loss falls", ADASYNC,
           .policy = "kbatchsync:k=1", .tuner = "adasync",
           .when = "As adasync-ksync, if fast workers should contribute more than once rather "
                   "than wait."),
    METHOD("adasync-kasync", "K-async; K grows as the loss falls", ADASYNC, .policy = "kasync:k=1",
           .tuner = "adasync",
           .when = "The right K is unknown and workers should keep their unfinished work; many "
                   "cheap updates first, accurate ones later."),
    METHOD("adasync-kbatchasync", "K-batch-async; K grows as the loss falls", ADASYNC,
           .policy = "kbatchasync:k=1", .tuner = "adasync",
           .when = "As adasync-kasync, if workers should never wait."),
    METHOD("sa-adasync", "AdaSync K-async, gradients divided by their staleness (reconstructed)",
           "baseline of Tan, Zhu, Zhang, arXiv 2301.08895", .policy = "kasync:k=1",
           .tuner = "adasync", .correct = "lag",
           .when = "To compare with abs: AdaSync with the simplest correction for staleness."),
    METHOD("abs",
           "K-async; K grows, the staleness bound shrinks, stale workers restart (reconstructed)",
           "after Tan, Zhu, Zhang, arXiv 2301.08895", .policy = "kasync:k=1,stop=yes",
           .tuner = "abs:rule=measured",
           .when = "Delays have heavy tails and results of very slow workers do more harm than "
                   "good: they restart on the current model instead."),
    METHOD("staleness-aware", "asynchronous, gradients divided by their staleness",
           "Zhang, Gupta, Lian, Liu, IJCAI 2016", .policy = "kasync:k=1", .correct = "lag",
           .when = "Fully asynchronous runs in which some workers are much slower than others; "
                   "the simplest correction for staleness."),
    METHOD("distance-rate", "asynchronous, rate limited by how far the model has moved",
           DUTTA ", eq. 11-13", .policy = "kasync:k=1", .correct = "distance",
           .when = "Fully asynchronous runs in which the model moves fast at times; a stale "
                   "gradient counts less only if the model has moved."),
    METHOD("gap-aware", "asynchronous with momentum, gradients divided by their gap",
           "Barkai, Hakimi, Schuster, ICLR 2020", .policy = "kasync:k=1", .correct = "gap",
           .optim = "momentum",
           .when = "Asynchronous runs with momentum, where dividing by staleness would slow "
                   "training down too much."),
    METHOD("dana", "asynchronous, one momentum per worker and a look-ahead over all of them",
           "Hakimi, Barkai, Gabel, Schuster, arXiv 1907.11612", .policy = "kasync:k=1",
           .optim = "dana",
           .when = "Asynchronous runs with momentum and many workers; the look-ahead keeps "
                   "momentum from amplifying staleness."),
    METHOD("dana-ga", "DANA with Gap-Aware", "Barkai, Hakimi, Schuster, ICLR 2020",
           .policy = "kasync:k=1", .correct = "gap", .optim = "dana",
           .when = "As dana, with a correction for workers that are slower than the others."),
    METHOD("dc-asgd", "asynchronous with delay compensation", "Zheng et al., ICML 2017",
           .policy = "kasync:k=1", .correct = "dc",
           .when = "Asynchronous runs with moderate staleness, if one more vector per worker can "
                   "be kept at the server."),
    METHOD("delay-adaptive", "asynchronous, smaller rate for gradients with a long delay",
           "Mishchenko et al., NeurIPS 2022", .policy = "kasync:k=1", .correct = "delay-adaptive",
           .when = "Some workers are very slow and you do not want to tune a staleness bound: "
                   "the rate follows each gradient's delay."),
    METHOD("clipped-asgd", "asynchronous, gradients clipped to a maximum norm",
           "Erickson and Johansson, arXiv 2606.13287", .policy = "kasync:k=1", .correct = "clip",
           .when = "Gradients have heavy-tailed noise, or stale gradients are sometimes huge."),
    METHOD("ssp", "asynchronous, no worker more than s steps ahead of the slowest",
           "Ho et al., NIPS 2013", .policy = "ssp",
           .when = "Workers differ in speed for long periods and staleness must have a hard "
                   "bound."),
    METHOD("pbsp", "asynchronous, no worker ahead of a random sample of the others", PSP,
           .policy = "psp:s=0",
           .when = "There are so many workers that knowing the slowest of all is expensive; a "
                   "random sample of them takes its place."),
    METHOD("pssp", "asynchronous, no worker more than s steps ahead of a random sample", PSP,
           .policy = "psp:s=4",
           .when = "As pbsp, with some slack: no worker is more than s steps ahead of the sample."),
    METHOD("ringmaster", "asynchronous with a growing staleness bound; stale workers restart",
           "Maranjyan, Tyurin, Richtarik, ICML 2025", .policy = "kasync:k=1,stop=yes",
           .tuner = "growing-bound",
           .when = "Delays are unknown or change, and you want the optimal time complexity of "
                   "asynchronous SGD: stale workers are stopped."),
    METHOD("rennala", "wait for as many mini-batches on one version as there are workers",
           "Tyurin and Richtarik, NeurIPS 2023", .policy = "kbatchsync:k=all",
           .when = "Worker speeds are fixed and differ much, and every gradient should be fresh; "
                   "optimal for fixed delays."),
    METHOD("ormo", "asynchronous with ordered momentum", "Shi, Yang, Li, NeurIPS 2024",
           .policy = "kasync:k=1", .optim = "ormo",
           .when = "Asynchronous runs in which momentum should act as in sequential training."),
    METHOD("fastest-k", "K-sync; K grows when gradients disagree",
           "Kas Hanna et al., arXiv 2002.11005", .policy = "ksync:k=1", .tuner = "fastestk",
           .when = "K-sync with an unknown K: K grows when gradients of an update point in "
                   "different directions."),
    METHOD("local-sgd", "synchronous rounds of local steps", "Stich, ICLR 2019",
           .policy = "ksync:k=all", .local = "steps",
           .when = "Communication is expensive and workers take about equal time."),

    METHOD("downpour", "asynchronous pushes, one rate per coordinate at the server",
           "Dean et al., NIPS 2012", .policy = "kasync:k=1", .optim = "adagrad",
           .local = "downpour",
           .when = "The classic asynchronous baseline; features are sparse or have very "
                   "different scales."),
    METHOD("easgd", "asynchronous; each worker's model and the centre attract each other", EASGD,
           .policy = "kasync:k=1,early=yes", .local = "elastic",
           .when = "Communication is expensive and workers should explore on their own between "
                   "contacts."),
    METHOD("eamsgd", "EASGD with Nesterov momentum at the workers", EASGD,
           .policy = "kasync:k=1,early=yes", .local = "elastic:delta=0.9",
           .when = "As easgd, on problems where momentum helps."),
    METHOD("sync-easgd", "EASGD in rounds of one local step, all workers at once", EASGD,
           .policy = "rounds", .local = "elastic:u=1",
           .when = "To compare with easgd without staleness."),
    METHOD("nodelay", "workers continue while their changes are averaged; in rounds", NODELAY,
           .policy = "rounds", .local = "overlap",
           .when = "Communication takes about as long as a round of local steps and should be "
                   "hidden behind them."),
    METHOD("nodelay-async", "workers continue while their changes are averaged; asynchronous",
           NODELAY, .policy = "rounds:give=any", .local = "overlap",
           .when = "As nodelay, if workers also differ in speed."),
    METHOD("cocod", "local steps; averaging overlaps with the next round",
           "Shen, Xu, Liu, Chen, Cheng, IJCAI 2019", .policy = "rounds", .local = "overlap",
           .when = "Communication takes about as long as a round of local steps; workers take "
                   "about equal time."),
    METHOD("overlap-local-sgd",
           "local steps pulled towards an anchor that is averaged meanwhile, with momentum",
           "Wang, Liang, Joshi, ICASSP 2020", .policy = "rounds", .optim = "momentum:beta=0.7",
           .local = "overlap-local", .lr = 0.1,
           .when = "As cocod, if workers' models drift apart too far: an anchor pulls them "
                   "together."),
    METHOD("diloco", "many local steps, then an outer Nesterov step (inner SGD, not AdamW)",
           "after Douillard et al., arXiv 2311.08105", .policy = "ksync:k=all",
           .optim = "nesterov:beta=0.9", .local = "steps:u=50,outer=0.7", .lr = 0.1,
           .when = "Links between workers are very slow: models are exchanged only every few "
                   "dozen steps."),

    METHOD("gossip-pull", "no server: a worker averages in a random peer's model, then steps",
           GOSSIP, .policy = "gossip:mode=pull", .local = "own",
           .when = "There is no machine to act as a server and workers differ in speed."),
    METHOD("gossip-push", "no server: a worker steps, then a random peer averages its model in",
           GOSSIP, .policy = "gossip:mode=push", .local = "own",
           .when = "As gossip-pull, if sending is cheaper than asking."),
    METHOD("gosgd", "no server: a worker sends its model with half its weight to a random peer",
           "Blot, Picard, Cord, Thome, arXiv 1611.09726", .policy = "gossip:mode=push-sum",
           .local = "own",
           .when = "There is no server, messages may go one way only, and the average must be "
                   "preserved."),
    METHOD("ad-psgd",
           "no server: random pairs on a bipartite graph average while gradients compute",
           "Lian, Zhang, Zhang, Liu, ICML 2018", .policy = "gossip:mode=ad-psgd", .local = "own",
           .when = "There is no server, workers differ in speed, and communication should "
                   "overlap with computing."),
    METHOD("sgp", "no server: rounds of push-sum on the one-peer exponential graph",
           "Assran, Loizou, Ballas, Rabbat, ICML 2019", .policy = "sgp", .local = "own",
           .when = "There is no server and workers take about equal time; one message per worker "
                   "and round."),

    METHOD("byzantine-median", "synchronous, coordinate-wise median", XIE, .policy = "ksync:k=all",
           .reduce = "median",
           .when = "Fewer than half of the workers may send wrong gradients; simple and without "
                   "parameters."),
    METHOD("byzantine-geomedian", "synchronous, geometric median",
           XIE "; Chen, Su, Xu, arXiv 1705.05491", .policy = "ksync:k=all", .reduce = "geomedian",
           .when = "As byzantine-median, if coordinates depend on each other."),
    METHOD("byzantine-mean-around-median",
           "synchronous, coordinate-wise mean of the values closest to the median", XIE,
           .policy = "ksync:k=all", .reduce = "mean-around-median",
           .when = "As byzantine-median, with less noise: it averages the values closest to the "
                   "median."),
    METHOD("krum", "synchronous, the one gradient that is closest to its neighbours",
           "Blanchard, El Mhamdi, Guerraoui, Stainer, NIPS 2017", .policy = "ksync:k=all",
           .reduce = "krum",
           .when = "You know how many workers f may be hostile, and want a rule with a proof. It "
                   "uses only one gradient per update, so it is noisy."),
    METHOD("bulyan", "synchronous, repeated Krum, then the mean around the median",
           "El Mhamdi, Guerraoui, Rouault, ICML 2018", .policy = "ksync:k=all", .reduce = "bulyan",
           .when = "As krum, against attacks that hide in a few coordinates; needs 4f+3 workers."),
    METHOD("centered-clipping",
           "synchronous with worker momentum, differences to the last update clipped",
           "Karimireddy, He, Jaggi, ICML 2021", .policy = "ksync:k=all", .reduce = "centered-clip",
           .local = "gradient:beta=0.9",
           .when = "Hostile workers adapt over time; worker momentum makes their small, steady "
                   "shifts visible."),
    METHOD("basgd", "asynchronous, median of buffers that workers share", "Yang and Li, JMLR 2023",
           .policy = "buffers:b=50%", .reduce = "buffers+median",
           .when = "Hostile workers in an asynchronous run, and the server has no samples of its "
                   "own."),
    METHOD("kardam", "asynchronous, gradients that change faster than most are rejected",
           "Damaskinos, El Mhamdi, Guerraoui, Patra, Taziki, ICML 2018", .policy = "kasync:k=1",
           .correct = "exp", .filter = "kardam",
           .when = "Hostile workers in an asynchronous run; gradients change slowly from update "
                   "to update."),
    METHOD("zeno++",
           "asynchronous, gradients that contradict the server's own samples are rejected",
           "Xie, Koyejo, Gupta, ICML 2020", .policy = "kasync:k=1", .filter = "zeno",
           .when = "Hostile workers in an asynchronous run, possibly the majority, and the "
                   "server has samples of its own to compare with."),

    METHOD("fdsgd",
           "matrix factorisation, asynchronous: a free worker takes the least used free block",
           "Li et al. 2014", .policy = "blocks", .local = "sweep",
           .when = "Matrix factorisation on a few workers of different speed."),
    METHOD("dsgd", "matrix factorisation in strata of independent blocks, with a barrier",
           "Gemulla, Nijkamp, Haas, Sismanis, KDD 2011", .policy = "strata", .local = "sweep",
           .schedule = "bold",
           .when = "Matrix factorisation on workers of equal speed; deterministic."),
    METHOD("fpsgd", "matrix factorisation, asynchronous on a finer grid, with one rate per row",
           "Zhuang, Chin, Juan, Lin, RecSys 2013; LIBMF", .policy = "blocks:fine=yes",
           .local = "sweep:adaptive=yes",
           .when = "Matrix factorisation on the cores of one machine; the fastest of the three "
                   "to a good RMSE."),
    NULL};

const struct pl_family pl_recipe_family = {"method", "published methods: one choice per family",
                                           recipe_table};

const char *pl_recipe_column(const struct pl_recipe *r, int column) {
    return r->column[column] ? r->column[column] : pl_column_default[column];
}

/* The last link of a chain: it is the one that options are for. */
static char *recipe_last(char *spec) {
    char *last = spec;
    for (char *at = spec; *at; at++)
        if (*at == '+' && !isdigit((unsigned char)at[1])) last = at + 1; /* not that of 1e+2 */
    return last;
}

/* The first column whose member has an option called key[0..n). */
static int recipe_column(char spec[PL_N_COLUMNS][PL_SPEC_MAX], const char *key, size_t n) {
    for (int c = 0; c < PL_N_COLUMNS; c++) {
        char name[PL_NAME_MAX];
        const char *args;
        const struct pl_entry *entry;
        if (pl_spec_split(recipe_last(spec[c]), name, &args, NULL)) continue;
        if (pl_entry_find(pl_column_family[c], name, &entry, NULL)) continue;
        for (const struct pl_opt *o = entry->opts; o->name; o++)
            if (strlen(o->name) == n && strncmp(o->name, key, n) == 0) return c;
    }
    return -1;
}

/* Fails because args is not key=value. A number alone is meant for the policy. */
static int recipe_not_pair(const char *name, const char *policy, const char *args,
                           struct pl_why *why) {
    char first[PL_NAME_MAX], prefix[80];
    const char *rest;
    const struct pl_entry *entry = NULL;
    if (!pl_spec_split(policy, first, &rest, NULL))
        pl_entry_find(pl_column_family[PL_COLUMN_POLICY], first, &entry, NULL);
    snprintf(prefix, sizeof prefix, "method '%s'", name);
    int rc = pl_opt_not_pair(entry ? entry->opts : pl_no_opts, args, why);
    return pl_fail_in(why, rc, prefix);
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
        snprintf(spec[c], PL_SPEC_MAX, "%s", pl_recipe_column(*recipe, c));
    while (*args) {
        size_t key = strcspn(args, "=,"), len = strcspn(args, ",");
        if (args[key] != '=' || key == 0)
            return recipe_not_pair(name, spec[PL_COLUMN_POLICY], args, why);
        int c = recipe_column(spec, args, key);
        if (c < 0)
            return pl_fail(why, PL_EUSAGE,
                           "method '%s' has no option '%.*s'; 'paceline list %s' shows those of "
                           "its parts",
                           name, (int)(key < 40 ? key : 40), args, name);
        pl_append(spec[c], PL_SPEC_MAX, "%c%.*s", strchr(recipe_last(spec[c]), ':') ? ',' : ':',
                  (int)len, args);
        args += len;
        if (*args == ',' && *++args == '\0')
            return pl_fail(why, PL_EUSAGE, "method '%s': a spec cannot end with a comma", name);
    }
    return PL_OK;
}

const struct pl_family *pl_column_meant(const struct pl_family *family, const char *spec) {
    char name[PL_NAME_MAX], hint[PL_TEXT_MAX];
    const char *args;
    const struct pl_entry *entry;
    if (pl_spec_split(spec, name, &args, NULL) || !pl_entry_find(family, name, &entry, NULL) ||
        pl_hint_find(family->name, name, hint, sizeof hint))
        return NULL;
    for (int c = 0; c <= PL_N_COLUMNS; c++) {
        const struct pl_family *other = c < PL_N_COLUMNS ? pl_column_family[c] : &pl_recipe_family;
        if (!pl_entry_find(other, name, &entry, NULL)) return other;
    }
    return NULL;
}
