/* A program that embeds Paceline with a policy of its own, as far as install.sh needs one; C
 * and C++ alike. */
#include <stdio.h>
#include <string.h>

#include <paceline_client.h>
#include <paceline_loop.h>
#include <paceline_policy.h>

/* Every kind of option, for the macros. */
struct always {
    int k, mode;
    int64_t n;
    double share;
    bool flag;
    uint64_t bound;
    char text[PL_TEXT_MAX];
    struct pl_list_of list;
};

static const struct pl_opt always_opts[] = {
    PL_OPT_COUNT(struct always, k, "1", 1, PL_MAX_WORKERS, "results per update"),
    PL_OPT_CHOICE(struct always, mode, "b", "a|b", "a choice"),
    PL_OPT_INT(struct always, n, "3", 1, 9, "a number"),
    PL_OPT_REAL(struct always, share, "0.5", 0, 1, "a share"),
    PL_OPT_BOOL(struct always, flag, "yes", "a flag"),
    PL_OPT_BOUND(struct always, bound, "inf", 0, 0, "a bound"),
    PL_OPT_TEXT(struct always, text, "", "a text"),
    PL_OPT_LIST(struct always, list, "1,2", 0, 9, "a list"),
    PL_OPT_END,
};

static struct pl_knobs always_knobs(const void *conf) {
    struct pl_knobs knobs = {((const struct always *)conf)->k, PL_NO_BOUND};
    return knobs;
}

static void always_arrive(void *state, const struct pl_view *v, const struct pl_arrival *a,
                          struct pl_plan *p) {
    (void)state;
    pl_take(p, pl_rng_unit(v->rng) < 2 ? 1 : 0);
    if (v->n_taken + 1 >= v->knobs.k) pl_commit(p, 1);
    pl_start(p, a->worker, PL_FETCH);
}

int main(void) {
    struct pl_policy policy;
    pl_setup *setup;
    pl_run *run = NULL;
    memset(&policy, 0, sizeof policy);
    policy.id.name = "always";
    policy.id.opts = always_opts;
    policy.id.conf_size = policy.state_size = sizeof(struct always);
    policy.uses = PL_USES_K;
    policy.knobs = always_knobs;
    policy.arrive = always_arrive;
    if (pl_setup_new(&setup)) return 1;
    int rc = pl_setup_policy(setup, &policy);
    if (!rc) rc = pl_setup_set(setup, "policy", "always:k=2,n=4,list=3,4,flag=no");
    if (!rc) rc = pl_setup_set(setup, "model", "none");
    if (!rc) rc = pl_setup_set(setup, "updates", "50");
    if (!rc) rc = pl_simulate(setup, &run);
    printf("paceline %s: %s\n", PL_VERSION, rc ? pl_setup_why(setup) : pl_run_text(run, "policy"));
    if (!rc && pl_run_number(run, "updates") != 50) rc = 1;
    pl_run_free(run);
    pl_setup_free(setup);
    return rc ? 1 : 0;
}
