/* What a run needs and what it is offered: choices that do not go together are refused in one
 * sentence, which says what was given and what to type instead; so is a default that fails. */
#include "api/setup.h"
#include "base/opt.h"
#include "blocks.h"
#include "setups.h"

#define MATRIX "model=" BLOCKS_MODEL " data=" BLOCKS_DATA

static void refuses(const char *options, const char *words) {
    pl_setup *s = setup_of("workers=4 %s", options);
    int rc = pl_setup_check(s);
    if (rc != PL_EUSAGE || !strstr(pl_setup_why(s), words))
        fail_msg("%s: %d, %s", options, rc, pl_setup_why(s));
}

/* What does not go with blocks of a matrix. */
TEST(test_blocks) {
    static const struct {
        const char *options, *words;
    } row[] = {
        {"method=fdsgd model=softmax data=digits",
         "model 'softmax' has none; use --model mf --data ratings:FILE"},
        {"method=dsgd model=quadratic", "model 'quadratic' has none; use --model mf"},
        {"method=async local=sweep model=softmax data=digits",
         "use --policy blocks or --policy strata with --model mf"},
        {"method=async lr-schedule=bold model=quadratic", "has no data; use a model that has data"},
        {MATRIX " method=fdsgd optim=adam", "use optim sgd"},
        {MATRIX " method=fdsgd correct=gap", "use correct none"},
        {MATRIX " method=fdsgd reduce=median", "use reduce mean"},
        {MATRIX " method=fdsgd local=steps", "use local sweep"},
        {MATRIX " method=fdsgd filter=kardam", "use filter none"},
        {MATRIX " method=dsgd attack=signflip:f=1", "leave out --attack or choose another policy"},
        {MATRIX " method=dsgd weight-decay=0.1", "use l2 of the model"},
        {MATRIX " method=dsgd partition=iid", "use partition whole"},
        {MATRIX " method=dsgd listen=here", "let the server start its workers"},
        {MATRIX " method=fdsgd:grid=4", "grid must be more than the number of workers"},
        {MATRIX " method=dsgd:grid=3", "grid cannot be less than the number of workers"},
        {MATRIX " method=fdsgd tuner=adasync", "changes K"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) refuses(row[i].options, row[i].words);
}

TEST(test_other_version) {
    pl_setup *s = setup_of("workers=4");
    assert_int_equal(pl_setup_lines(s, "program=0.1.0\nformat=1\nmethod=async\n"), PL_EDATA);
    assert_non_null(strstr(pl_setup_why(s), "another version"));
    assert_int_equal(pl_setup_lines(s, "program=0.1.0\nformat=3\nmethod=async\n"), PL_OK);
}

/* The whole sentence: what was given, what it needs, what stands against it, what to type. */
TEST(test_sentences) {
    refuses("method=ad-psgd reduce=nnm+median",
            "reduce 'nnm+median' needs a model at a server, but policy 'gossip");
    refuses("method=ad-psgd reduce=nnm+median",
            "' keeps a model at every worker instead; use reduce mean");
    refuses("method=sync optim=dana policy=ksync:k=4",
            "optim 'dana' takes contributions one at a time, but policy 'ksync:k=4' makes groups "
            "of 4; use a policy with k=1");
    refuses("method=dana policy=buffers:b=2", "policy 'buffers:b=2' makes groups of 2 to 17");
    refuses("method=dana tuner=adasync", "but tuner 'adasync' lets K grow to 4; use --tuner fixed");
    refuses(
        "method=async model=quadratic local=sweep",
        "local 'sweep' works on blocks of a matrix, but policy 'kasync:k=1' hands out the whole "
        "model; use --policy blocks or --policy strata");
    refuses("method=async model=none attack=signflip:f=1",
            "attack 'signflip:f=1' needs tasks that compute something, but model 'none' simulates "
            "timing alone; use a model");
    refuses("method=async model=quadratic attack=labelflip:f=1",
            "attack 'labelflip:f=1' needs class labels, but model 'quadratic' has none");
    refuses("method=async " MATRIX " attack=labelflip:f=1",
            "needs class labels, but data '" BLOCKS_DATA "' has none; use attack gaussian");
    refuses("method=async model=mf data=digits:samples=200",
            "model 'mf' needs ratings, but data 'digits:samples=200' has none; use --data ratings");
    refuses("method=async model=quadratic lr-schedule=warmup",
            "lr-schedule 'warmup' needs training samples, but model 'quadratic' has no data; add "
            "unit=updates");
    refuses("method=kardam model=quadratic attack=alie:f=1",
            "attack 'alie:f=1' is made where a group is committed, but filter 'kardam' judges "
            "contributions when they arrive; use attack gaussian");
}

/* What nobody sets is what goes with the policy. */
TEST(test_defaults) {
    static const char *const options[] = {
        "policy=ssp model=quadratic", "policy=gossip model=quadratic", "policy=blocks " MATRIX,
        "policy=strata model=none",   "method=kardam model=none",      "method=zeno++ model=none",
        "method=dsgd model=none"};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        pl_setup *s = setup_of("workers=4 %s", options[i]);
        if (pl_setup_check(s)) fail_msg("%s: %s", options[i], pl_setup_why(s));
    }
}

/* --- a default that cannot be set ----------------------------------------------------------- */

static bool parsing_fails;

int __real_pl_opt_parse(const struct pl_opt *opts, void *conf, const char *text, int n_workers,
                        struct pl_why *why);
int __wrap_pl_opt_parse(const struct pl_opt *opts, void *conf, const char *text, int n_workers,
                        struct pl_why *why);
int __wrap_pl_opt_parse(const struct pl_opt *opts, void *conf, const char *text, int n_workers,
                        struct pl_why *why) {
    if (parsing_fails) return PL_EUSAGE;
    return __real_pl_opt_parse(opts, conf, text, n_workers, why);
}

TEST(a_default_that_fails_is_reported) {
    pl_setup *s = NULL;
    parsing_fails = true;
    assert_int_equal(pl_setup_new(&s), PL_EUSAGE);
    assert_null(s);
    parsing_fails = false;
    s = plain();
}
