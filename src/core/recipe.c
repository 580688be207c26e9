#include "core/recipe.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "core/rule.h"
#include "core/tuner.h"

const struct pl_family *const pl_column_family[PL_N_COLUMNS] = {
    &pl_policy_family, &pl_tuner_family, &pl_correct_family, &pl_reduce_family,
    &pl_optim_family,  &pl_local_family, &pl_filter_family};

#define DUTTA "Dutta, Joshi, Ghosh, Dube, Nagpurkar, AISTATS 2018"
#define ADASYNC "Dutta, Wang, Joshi, arXiv 2003.10579"
#define CHEN "Chen, Pan, Monga, Bengio, Jozefowicz, arXiv 1604.00981"
#define XIE "Xie, Koyejo, Gupta, arXiv 1802.10116"
#define GOSSIP "Jin, Yuan, Iandola, Keutzer, arXiv 1611.04581"
#define EASGD "Zhang, Choromanska, LeCun, NIPS 2015"
#define NODELAY "Talyansky et al., Asynchronous SGD without gradient delay"
#define PSP "Wang, Catterall, Mortier, arXiv 1709.07772"

/* symbol, name, what it does, citation, then its columns: policy, tuner, correct, reduce, optim,
 * local, filter. A new row also goes into the table below. */
#define RECIPE(symbol, word, text, cite, ...)                                                      \
    static const struct pl_recipe recipe_##symbol = {                                              \
        .id = {.name = word, .brief = text, .paper = cite, .opts = pl_no_opts},                    \
        .column = {__VA_ARGS__}}

RECIPE(sync, "sync", "wait for everybody", DUTTA, "ksync:k=all", "fixed", "none", "mean", "sgd",
       "gradient", "none");
RECIPE(async, "async", "wait for nobody", DUTTA, "kasync:k=1", "fixed", "none", "mean", "sgd",
       "gradient", "none");
RECIPE(ksync, "ksync", "wait for the first half of the workers, call the rest back", DUTTA,
       "ksync:k=50%", "fixed", "none", "mean", "sgd", "gradient", "none");
RECIPE(kbatchsync, "kbatchsync", "wait for K mini-batches of one version, whoever brings them",
       DUTTA, "kbatchsync:k=50%", "fixed", "none", "mean", "sgd", "gradient", "none");
RECIPE(kasync, "kasync", "wait for half of the workers, on any version", DUTTA, "kasync:k=50%",
       "fixed", "none", "mean", "sgd", "gradient", "none");
RECIPE(kbatchasync, "kbatchasync", "update at every K-th mini-batch", DUTTA, "kbatchasync:k=50%",
       "fixed", "none", "mean", "sgd", "gradient", "none");
RECIPE(backup, "backup", "synchronous with a fifth of the workers as spares; late ones are dropped",
       CHEN, "ksync:k=80%,cancel=no", "fixed", "none", "mean", "sgd", "gradient", "none");
RECIPE(adasync_ksync, "adasync-ksync", "K-sync with K growing as the loss falls", ADASYNC,
       "ksync:k=1", "adasync", "none", "mean", "sgd", "gradient", "none");
RECIPE(adasync_kbatchsync, "adasync-kbatchsync", "K-batch-sync with K growing as the loss falls",
       ADASYNC, "kbatchsync:k=1", "adasync", "none", "mean", "sgd", "gradient", "none");
RECIPE(adasync_kasync, "adasync-kasync", "K-async with K growing as the loss falls", ADASYNC,
       "kasync:k=1", "adasync", "none", "mean", "sgd", "gradient", "none");
RECIPE(adasync_kbatchasync, "adasync-kbatchasync", "K-batch-async with K growing as the loss falls",
       ADASYNC, "kbatchasync:k=1", "adasync", "none", "mean", "sgd", "gradient", "none");
RECIPE(sa_adasync, "sa-adasync",
       "AdaSync K-async, each gradient divided by its staleness (reconstructed)",
       "baseline of Tan, Zhu, Zhang, arXiv 2301.08895", "kasync:k=1", "adasync", "lag", "mean",
       "sgd", "gradient", "none");
RECIPE(abs, "abs",
       "K-async with K growing, the staleness bound shrinking and stale workers restarted "
       "(reconstructed)",
       "after Tan, Zhu, Zhang, arXiv 2301.08895", "kasync:k=1,stop=yes", "abs:rule=measured",
       "none", "mean", "sgd", "gradient", "none");
RECIPE(staleness_aware, "staleness-aware", "asynchronous, each gradient divided by its staleness",
       "Zhang, Gupta, Lian, Liu, IJCAI 2016", "kasync:k=1", "fixed", "lag", "mean", "sgd",
       "gradient", "none");
RECIPE(distance_rate, "distance-rate", "asynchronous, rate bounded by the distance travelled",
       DUTTA ", eq. 11-13", "kasync:k=1", "fixed", "distance", "mean", "sgd", "gradient", "none");
RECIPE(gap_aware, "gap-aware", "asynchronous momentum, gradients divided by their gap",
       "Barkai, Hakimi, Schuster, ICLR 2020", "kasync:k=1", "fixed", "gap", "mean", "momentum",
       "gradient", "none");
RECIPE(dana, "dana", "asynchronous, a momentum per worker and a look-ahead over all",
       "Hakimi, Barkai, Gabel, Schuster, arXiv 1907.11612", "kasync:k=1", "fixed", "none", "mean",
       "dana", "gradient", "none");
RECIPE(dana_ga, "dana-ga", "DANA with Gap-Aware (which copy is compared is recalled)",
       "Barkai, Hakimi, Schuster, ICLR 2020", "kasync:k=1", "fixed", "gap", "mean", "dana",
       "gradient", "none");
RECIPE(dc_asgd, "dc-asgd", "asynchronous with delay compensation", "Zheng et al., ICML 2017",
       "kasync:k=1", "fixed", "dc", "mean", "sgd", "gradient", "none");
RECIPE(delay_adaptive, "delay-adaptive", "asynchronous, smaller rate beyond the usual delay",
       "Mishchenko et al., NeurIPS 2022", "kasync:k=1", "fixed", "delay-adaptive", "mean", "sgd",
       "gradient", "none");
RECIPE(clipped_asgd, "clipped-asgd", "asynchronous, gradients clipped (c is ours to set)",
       "Erickson and Johansson, arXiv 2606.13287", "kasync:k=1", "fixed", "clip", "mean", "sgd",
       "gradient", "none");
RECIPE(ssp, "ssp", "asynchronous, nobody more than s steps ahead of the slowest",
       "Ho et al., NIPS 2013", "ssp", "fixed", "none", "mean", "sgd", "gradient", "none");
RECIPE(pbsp, "pbsp", "asynchronous, nobody ahead of a random sample", PSP, "psp:s=0", "fixed",
       "none", "mean", "sgd", "gradient", "none");
RECIPE(pssp, "pssp", "asynchronous, nobody more than s steps ahead of a random sample", PSP,
       "psp:s=4", "fixed", "none", "mean", "sgd", "gradient", "none");
RECIPE(ringmaster, "ringmaster",
       "asynchronous below a staleness bound, stale workers restarted; bound grows by itself",
       "Maranjyan, Tyurin, Richtarik, ICML 2025", "kasync:k=1,stop=yes", "growing-bound", "none",
       "mean", "sgd", "gradient", "none");
RECIPE(rennala, "rennala", "B mini-batches of one version, here as many as workers",
       "Tyurin and Richtarik, NeurIPS 2023", "kbatchsync:k=all", "fixed", "none", "mean", "sgd",
       "gradient", "none");
RECIPE(ormo, "ormo", "asynchronous with ordered momentum (recalled; algebra derived)",
       "Shi, Yang, Li, NeurIPS 2024", "kasync:k=1", "fixed", "none", "mean", "ormo", "gradient",
       "none");
RECIPE(fastest_k, "fastest-k", "K-sync with K growing when gradients disagree",
       "Kas Hanna et al., arXiv 2002.11005", "ksync:k=1", "fastestk", "none", "mean", "sgd",
       "gradient", "none");
RECIPE(local_sgd, "local-sgd", "synchronous rounds of local steps", "Stich, ICLR 2019",
       "ksync:k=all", "fixed", "none", "mean", "sgd", "steps", "none");

RECIPE(gossip_pull, "gossip-pull", "no server: half way to the model of a random peer, and a step",
       GOSSIP, "gossip:mode=pull", "fixed", "none", "mean", "sgd", "own", "none");
RECIPE(gossip_push, "gossip-push", "no server: a random peer is moved half way to one's own model",
       GOSSIP, "gossip:mode=push", "fixed", "none", "mean", "sgd", "own", "none");
RECIPE(gosgd, "gosgd", "no server: half of one's weight goes to a random peer, with the model",
       "Blot, Picard, Cord, Thome, arXiv 1611.09726", "gossip:mode=push-sum", "fixed", "none",
       "mean", "sgd", "own", "none");
RECIPE(ad_psgd, "ad-psgd",
       "no server: pairs on a bipartite graph average, and gradients do not wait for it",
       "Lian, Zhang, Zhang, Liu, ICML 2018", "gossip:mode=ad-psgd", "fixed", "none", "mean", "sgd",
       "own", "none");
RECIPE(sgp, "sgp", "no server: rounds of push-sum on the one-peer exponential graph",
       "Assran, Loizou, Ballas, Rabbat, ICML 2019", "gossip:mode=sgp", "fixed", "none", "mean",
       "sgd", "own", "none");

RECIPE(byzantine_median, "byzantine-median", "synchronous, the median of every coordinate", XIE,
       "ksync:k=all", "fixed", "none", "median", "sgd", "gradient", "none");
RECIPE(byzantine_geomedian, "byzantine-geomedian", "synchronous, the geometric median",
       XIE "; Chen, Su, Xu, arXiv 1705.05491", "ksync:k=all", "fixed", "none", "geomedian", "sgd",
       "gradient", "none");
RECIPE(byzantine_mean_around_median, "byzantine-mean-around-median",
       "synchronous, in every coordinate the mean of the values closest to the median", XIE,
       "ksync:k=all", "fixed", "none", "mean-around-median", "sgd", "gradient", "none");
RECIPE(krum, "krum", "synchronous, the one gradient that is closest to its neighbours",
       "Blanchard, El Mhamdi, Guerraoui, Stainer, NIPS 2017", "ksync:k=all", "fixed", "none",
       "krum", "sgd", "gradient", "none");
RECIPE(bulyan, "bulyan", "synchronous, Krum again and again, then around the median",
       "El Mhamdi, Guerraoui, Rouault, ICML 2018", "ksync:k=all", "fixed", "none", "bulyan", "sgd",
       "gradient", "none");
RECIPE(centered_clipping, "centered-clipping",
       "synchronous, momentum at the workers, the update before moved by clipped differences",
       "Karimireddy, He, Jaggi, ICML 2021", "ksync:k=all", "fixed", "none", "centered-clip", "sgd",
       "gradient:beta=0.9", "none");
RECIPE(basgd, "basgd", "asynchronous, the median of buffers that workers share",
       "Yang and Li, JMLR 2023", "buffers:b=50%", "fixed", "none", "buffers+median", "sgd",
       "gradient", "none");
RECIPE(kardam, "kardam",
       "asynchronous, gradients that change faster than others do are not believed",
       "Damaskinos, El Mhamdi, Guerraoui, Patra, Taziki, ICML 2018", "kasync:k=1", "fixed", "exp",
       "mean", "sgd", "gradient", "kardam");
RECIPE(zeno_pp, "zeno++",
       "asynchronous, gradients that the server's own samples speak against are not believed",
       "Xie, Koyejo, Gupta, ICML 2020", "kasync:k=1", "fixed", "none", "mean", "sgd", "gradient",
       "zeno");

RECIPE(downpour, "downpour", "asynchronous pushes, a rate per coordinate at the server",
       "Dean et al., NIPS 2012", "kasync:k=1", "fixed", "none", "mean", "adagrad", "downpour",
       "none");
RECIPE(easgd, "easgd", "asynchronous; workers' models and the centre pull each other", EASGD,
       "kasync:k=1,early=yes", "fixed", "none", "mean", "sgd", "elastic", "none");
RECIPE(eamsgd, "eamsgd", "EASGD with Nesterov momentum at the workers", EASGD,
       "kasync:k=1,early=yes", "fixed", "none", "mean", "sgd", "elastic:delta=0.9", "none");
RECIPE(sync_easgd, "sync-easgd", "EASGD in rounds: one local step, everybody pulls at once", EASGD,
       "rounds", "fixed", "none", "mean", "sgd", "elastic:u=1", "none");
RECIPE(nodelay, "nodelay", "workers go on while what they moved is averaged; cyclic", NODELAY,
       "rounds", "fixed", "none", "mean", "sgd", "overlap", "none");
RECIPE(nodelay_async, "nodelay-async",
       "workers go on while what they moved is averaged; fully asynchronous", NODELAY,
       "rounds:give=any", "fixed", "none", "mean", "sgd", "overlap", "none");
RECIPE(cocod, "cocod", "local steps, their averaging behind those of the next round",
       "Shen, Xu, Liu, Chen, Cheng, IJCAI 2019", "rounds", "fixed", "none", "mean", "sgd",
       "overlap", "none");
RECIPE(overlap_local_sgd, "overlap-local-sgd",
       "local steps pulled to an anchor with momentum, which is averaged meanwhile",
       "Wang, Liang, Joshi, ICASSP 2020", "rounds", "fixed", "none", "mean", "momentum:beta=0.7",
       "overlap-local", "none");
RECIPE(diloco, "diloco", "many local steps, then an outer Nesterov step (inner SGD, not AdamW)",
       "after Douillard et al., arXiv 2311.08105", "ksync:k=all", "fixed", "none", "mean",
       "nesterov:beta=0.9", "steps:u=50,outer=0.7", "none");
RECIPE(fdsgd, "fdsgd",
       "matrix factorisation, asynchronous: whoever is free takes the least used free block",
       "Li et al. 2014", "blocks", "fixed", "none", "mean", "sgd", "sweep", "none");
static const struct pl_recipe recipe_dsgd = {
    .id = {.name = "dsgd",
           .brief = "matrix factorisation in strata of blocks that share nothing, with a barrier",
           .paper = "Gemulla, Nijkamp, Haas, Sismanis, KDD 2011",
           .opts = pl_no_opts},
    .column = {"strata", "fixed", "none", "mean", "sgd", "sweep", "none"},
    .schedule = "bold"};
RECIPE(fpsgd, "fpsgd",
       "matrix factorisation, asynchronous on a finer grid of blocks, with a rate per row",
       "Zhuang, Chin, Juan, Lin, RecSys 2013; LIBMF", "blocks:fine=yes", "fixed", "none", "mean",
       "sgd", "sweep:adaptive=yes", "none");

static const struct pl_entry *const recipe_table[] = {&recipe_sync.id,
                                                      &recipe_async.id,
                                                      &recipe_ksync.id,
                                                      &recipe_kbatchsync.id,
                                                      &recipe_kasync.id,
                                                      &recipe_kbatchasync.id,
                                                      &recipe_backup.id,
                                                      &recipe_adasync_ksync.id,
                                                      &recipe_adasync_kbatchsync.id,
                                                      &recipe_adasync_kasync.id,
                                                      &recipe_adasync_kbatchasync.id,
                                                      &recipe_sa_adasync.id,
                                                      &recipe_abs.id,
                                                      &recipe_staleness_aware.id,
                                                      &recipe_distance_rate.id,
                                                      &recipe_gap_aware.id,
                                                      &recipe_dana.id,
                                                      &recipe_dana_ga.id,
                                                      &recipe_dc_asgd.id,
                                                      &recipe_delay_adaptive.id,
                                                      &recipe_clipped_asgd.id,
                                                      &recipe_ssp.id,
                                                      &recipe_pbsp.id,
                                                      &recipe_pssp.id,
                                                      &recipe_ringmaster.id,
                                                      &recipe_rennala.id,
                                                      &recipe_ormo.id,
                                                      &recipe_fastest_k.id,
                                                      &recipe_local_sgd.id,
                                                      &recipe_downpour.id,
                                                      &recipe_easgd.id,
                                                      &recipe_eamsgd.id,
                                                      &recipe_sync_easgd.id,
                                                      &recipe_nodelay.id,
                                                      &recipe_nodelay_async.id,
                                                      &recipe_cocod.id,
                                                      &recipe_overlap_local_sgd.id,
                                                      &recipe_diloco.id,
                                                      &recipe_gossip_pull.id,
                                                      &recipe_gossip_push.id,
                                                      &recipe_gosgd.id,
                                                      &recipe_ad_psgd.id,
                                                      &recipe_sgp.id,
                                                      &recipe_byzantine_median.id,
                                                      &recipe_byzantine_geomedian.id,
                                                      &recipe_byzantine_mean_around_median.id,
                                                      &recipe_krum.id,
                                                      &recipe_bulyan.id,
                                                      &recipe_centered_clipping.id,
                                                      &recipe_basgd.id,
                                                      &recipe_kardam.id,
                                                      &recipe_zeno_pp.id,
                                                      &recipe_fdsgd.id,
                                                      &recipe_dsgd.id,
                                                      &recipe_fpsgd.id,
                                                      NULL};

const struct pl_family pl_recipe_family = {
    .name = "method",
    .brief = "a published method: one row of choices",
    .table = recipe_table,
};

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
        pl_append(spec[c], PL_SPEC_MAX, "%c%.*s", strchr(recipe_last(spec[c]), ':') ? ',' : ':',
                  (int)len, args);
        args += len;
        if (*args == ',' && *++args == '\0')
            return pl_fail(why, PL_EUSAGE, "method '%s': a spec cannot end with a comma", name);
    }
    return PL_OK;
}
