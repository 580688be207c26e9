/* The ground everything stands on: options as people write them, the event queue with its ties,
 * JSON that parsers accept, sentences that are cut and not overrun. */
#include "base/grow.h"
#include "base/heap.h"
#include "base/hint.h"
#include "base/json.h"
#include "base/log.h"
#include "base/opt.h"
#include "base/rng.h"
#include "test.h"

/* ---- arrays ---- */

TEST(an_array_that_cannot_grow_is_as_it_was) {
    int *at = NULL;
    size_t room = 0;
    for (int i = 0; i < 1000; i++) {
        assert_true(PL_GROW(at, room, i + 1));
        at[i] = i;
    }
    assert_in_range(room, 1000, 2000);
    assert_false(PL_GROW(at, room, SIZE_MAX / 2));
    assert_false(PL_RESIZE(at, SIZE_MAX / 3));
    assert_in_range(room, 1000, 2000);
    for (int i = 0; i < 1000; i++) assert_int_equal(at[i], i);
    free(at);
}

/* ---- options ---- */

struct all {
    char text[PL_TEXT_MAX];
    int64_t whole;
    double real;
    bool flag;
    int choice, count;
    uint64_t bound;
    struct pl_list_of list;
};

static const struct pl_opt all_opts[] = {
    PL_OPT("dir", TEXT, struct all, text, "here", 0, 0, NULL, "", 0),
    PL_OPT_INT(struct all, whole, "3", -5, 9000000000.0, ""),
    PL_OPT_REAL(struct all, real, "0.5", 0, 1e300, ""),
    PL_OPT_BOOL(struct all, flag, "no", ""),
    PL_OPT_CHOICE(struct all, choice, "red", "red|green|blue", ""),
    PL_OPT_COUNT(struct all, count, "all", 1, 1000000, ""),
    PL_OPT_BOUND(struct all, bound, "inf", 1, 1e15, ""),
    PL_OPT_LIST(struct all, list, "1,2", 0, 100, ""),
    PL_OPT_END,
};

static const struct pl_entry all_entry = {"all", "", "", all_opts, sizeof(struct all), 0};
static const struct pl_entry bare_entry = {"bare", "", "", pl_no_opts, 0, 0};
static const struct pl_entry *const all_table[] = {&all_entry, &bare_entry, NULL};
static const struct pl_family all_family = {.name = "thing", .brief = "", .table = all_table};

static struct all parsed(const char *args, int n_workers) {
    struct all a = {.whole = 77};
    struct pl_why why = {""};
    if (pl_opt_parse(all_opts, &a, args, n_workers, &why)) fail_msg("%s: %s", args, why.text);
    return a;
}

static void refused(const char *args, const char *word) {
    struct all a = {.whole = 77};
    struct pl_why why = {""};
    int rc = pl_opt_parse(all_opts, &a, args, 8, &why);
    if (rc != PL_EUSAGE || !strstr(why.text, word))
        fail_msg("'%.60s' gave %d, \"%s\"; expected the words '%s'", args, rc, why.text, word);
    assert_int_equal(pl_opt_parse(all_opts, &a, args, 8, NULL), PL_EUSAGE);
}

TEST(options_of_every_type) {
    struct all a = parsed("", 8);
    assert_string_equal(a.text, "here");
    assert_int_equal(a.whole, 3);
    assert_true(a.real == 0.5 && !a.flag && a.choice == 0 && a.count == 8);
    assert_true(a.bound == PL_NO_BOUND && a.list.n == 2 && a.list.at[1] == 2);

    a = parsed("whole=9000000000,real=1e-3,flag=yes,choice=blue,count=5,bound=12,list=7", 8);
    assert_true(a.whole == 9000000000 && a.real == 1e-3 && a.flag && a.choice == 2);
    assert_true(a.count == 5 && a.bound == 12 && a.list.n == 1 && a.list.at[0] == 7);
    a = parsed("whole=-5", 8);
    assert_int_equal(a.whole, -5);
    a = parsed("whole=1e3", 8); /* whole, however it is written */
    assert_int_equal(a.whole, 1000);
    a = parsed("whole=1,whole=2", 8); /* the last word counts */
    assert_int_equal(a.whole, 2);
}

TEST(options_out_of_range) {
    refused("whole=-6", "whole=-6");
    refused("whole=-6", "a whole number from -5 to 9000000000");
    refused("whole=1.5", "whole number");
    refused("whole=", "whole");
    refused("whole=7x", "whole=7x");
    refused("whole=nan", "whole=nan");
    refused("real=-0.1", "a number of at least 0");
    refused("real=nan", "real=nan");
    refused("real=inf", "real=inf");
    refused("real=1e999", "real=1e999");
    refused("real= 1", "real= 1");
    refused("flag=maybe", "yes or no");
    refused("flag=", "yes or no");
    refused("choice=pink", "one of red|green|blue");
    refused("choice=re", "one of red|green|blue");
    refused("choice=red|green", "one of red|green|blue");
    refused("bound=0", "bound=0");
    refused("bound=-1", "whole number");
    refused("bound=1.5", "'inf'");
    refused("list=1,2,300", "separated by commas");
    refused("list=1,two", "separated by commas");
}

TEST(options_lists) {
    struct all a = parsed("list=80,100,flag=yes", 1);
    assert_true(a.list.n == 2 && a.list.at[0] == 80 && a.flag);
    a = parsed("list=1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16", 1);
    assert_int_equal(a.list.n, PL_LIST_MAX);
    refused("list=1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17", "list=");
    struct pl_why why = {""};
    assert_int_equal(pl_opt_set(all_opts, &a, "list", "", 1, &why), 0);
    assert_int_equal(a.list.n, 0);
    assert_int_equal(pl_opt_set(all_opts, &a, "list", "1,", 1, &why), PL_EUSAGE);
    assert_int_equal(pl_opt_set(all_opts, &a, "list", ",1", 1, &why), PL_EUSAGE);
    assert_int_equal(pl_opt_set(all_opts, &a, "list", "1,,2", 1, &why), PL_EUSAGE);
}

TEST(options_counts) {
    assert_int_equal(parsed("count=all", 12).count, 12);
    assert_int_equal(parsed("count=75%", 8).count, 6);
    assert_int_equal(parsed("count=50%", 5).count, 3); /* rounded to nearest, halves up */
    assert_int_equal(parsed("count=100%", 7).count, 7);
    assert_int_equal(parsed("count=0%", 7).count, 1); /* never 0 */
    assert_int_equal(parsed("count=1%", 7).count, 1);
    assert_int_equal(parsed("count=12.5%", 16).count, 2);
    assert_int_equal(parsed("count=9", 4).count,
                     9); /* more than there are: for the policy to say */
    refused("count=0", "'all' or a percentage up to 100%");
    refused("count=101%", "count=101%");
    refused("count=-1%", "count=-1%");
    refused("count=nan%", "count=nan%");
    refused("count=%", "count=%");
    refused("count=1.5", "count=1.5");
    refused("count=most", "count=most");
}

TEST(options_commas) {
    refused("real=1,", "cannot end with a comma");
    refused("list=1,2,", "cannot end with a comma");
    refused("whole=1,real=2,", "cannot end with a comma");
    refused("real=,", "cannot end with a comma");
    refused("dir=a,", "cannot end with a comma");
    refused("real=1,,whole=2", "two commas");
    refused("whole=1,real", "whole=1,real"); /* a piece without '=' continues what is before */
    refused(",real=1", "real=1");
}

/* The key of a first option that is a text may be left out. */
TEST(options_first_text) {
    assert_string_equal(parsed("/some/where", 1).text, "/some/where");
    assert_string_equal(parsed("dir=/some/where", 1).text, "/some/where");
    struct all a = parsed("/a,b,whole=4", 1);
    assert_string_equal(a.text, "/a,b");
    assert_int_equal(a.whole, 4);
    a = parsed("whole=4", 1);
    assert_string_equal(a.text, "here");
    assert_string_equal(parsed("file=odd", 1).text, "file=odd"); /* no option is called file */
}

TEST(options_too_long) {
    char text[2000];
    struct all a;
    struct pl_why why = {""};
    for (size_t n = PL_TEXT_MAX - 3; n < PL_TEXT_MAX + 3; n++) {
        memset(text, 'x', n);
        text[n] = '\0';
        int rc = pl_opt_parse(all_opts, &a, text, 1, &why);
        assert_int_equal(rc, n < PL_TEXT_MAX ? 0 : PL_EUSAGE);
        if (rc) assert_non_null(strstr(why.text, "longer than 511"));
        assert_int_equal(pl_opt_set(all_opts, &a, "dir", text, 1, &why), rc);
    }
    memset(text, 'x', sizeof text);
    memcpy(text, "whole=1,", 8);
    text[1500] = '=';
    text[sizeof text - 1] = '\0';
    refused(text, "");
    char name[PL_NAME_MAX];
    const char *args;
    assert_int_equal(pl_spec_split(text + 8, name, &args, &why), PL_EUSAGE);
    assert_int_equal(pl_spec_split("", name, &args, &why), PL_EUSAGE);
    assert_int_equal(pl_spec_split(":a=1", name, &args, &why), PL_EUSAGE);
    assert_int_equal(pl_spec_split("name:a=1:b", name, &args, &why), 0);
    assert_string_equal(name, "name");
    assert_string_equal(args, "a=1:b");
}

TEST(options_suggest) {
    refused("whole=1,reel=2", "did you mean 'real'?");
    refused("whole=1,colour=2", "the options are dir, whole");
    const struct pl_entry *e = NULL;
    void *conf = NULL;
    struct pl_why why = {""};
    assert_int_equal(pl_spec_parse(&all_family, "al", 1, &e, &conf, &why), PL_EUSAGE);
    assert_string_equal(why.text, "no thing is called 'al'; did you mean 'all'?");
    assert_int_equal(pl_spec_parse(&all_family, "zzzzzz", 1, &e, &conf, &why), PL_EUSAGE);
    assert_string_equal(why.text, "no thing is called 'zzzzzz'; give one of all, bare");
    assert_int_equal(pl_spec_parse(&all_family, "bare:k=1", 1, &e, &conf, &why), PL_EUSAGE);
    assert_non_null(strstr(why.text, "none are accepted"));
    assert_int_equal(pl_spec_parse(&all_family, "all:real=2,flag=x", 1, &e, &conf, &why),
                     PL_EUSAGE);
    assert_non_null(strstr(why.text, "thing 'all': flag=x"));
    assert_null(conf);
    static const char *const names[] = {"momentum", "nesterov", "adam", "sgd"};
    assert_string_equal(pl_nearest("momentun", names, 4), "momentum");
    assert_string_equal(pl_nearest("nest", names, 4), "nesterov");
    assert_string_equal(pl_nearest("asgd", names, 4), "sgd");
    assert_string_equal(pl_nearest("sdg", names, 4), "sgd");
    assert_null(pl_nearest("rmsprop", names, 4));
    assert_null(pl_nearest("device", (const char *const[]){"reduce", "servers"}, 2));
    assert_null(pl_nearest("", names, 4));
    assert_string_equal(pl_nearest("ADAM", names, 4), "adam");
    assert_string_equal(pl_nearest("K", (const char *const[]){"s", "k"}, 2), "k");
    assert_null(pl_nearest("0", (const char *const[]){"x", "1"}, 2));
    assert_null(pl_nearest("cifar100", (const char *const[]){"cifar10"}, 1));
    assert_string_equal(pl_nearest("beta", (const char *const[]){"eps", "beta1"}, 2), "beta1");
}

/* What is printed says what differs from the defaults, and reads back as the same. */
TEST(specs_print_and_read_back) {
    static const struct {
        const char *args, *printed;
    } row[] = {
        {"", "all:count=8"},
        {"real=5e-1,whole=3", "all:count=8"},
        {"x,y", "all:dir=x,y,count=8"},
        {"list=3,1,flag=yes,bound=7", "all:flag=yes,count=8,bound=7,list=3,1"},
        {"choice=green,count=25%,bound=inf", "all:choice=green,count=2"},
        {"whole=-1,real=1e-300", "all:whole=-1,real=1e-300,count=8"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char spec[PL_SPEC_MAX], again[PL_SPEC_MAX];
        struct all a = parsed(row[i].args, 8);
        pl_spec_print(&all_entry, &a, spec, sizeof spec);
        assert_string_equal(spec, row[i].printed);
        a = parsed(spec + 4, 8);
        pl_spec_print(&all_entry, &a, again, sizeof again);
        assert_string_equal(again, spec);
    }
    char spec[PL_SPEC_MAX];
    pl_spec_print(&bare_entry, "", spec, sizeof spec);
    assert_string_equal(spec, "bare");
}

/* Random texts of the letters that mean something: a struct or a sentence, never anything else. */
TEST(options_survive_noise) {
    static const char *const piece[] = {"whole", "real", "list", "flag", "count", "=",  ",",
                                        "1",     "%",    "all",  "inf",  "nan",   "-",  ".",
                                        "e",     "yes",  ":",    "|",    " ",     "\n", "red"};
    struct pl_rng rng;
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 1, 0);
    for (int round = 0; round < (sanitized ? 20000 : 200000); round++) {
        char text[120] = "";
        uint32_t n = pl_rng_below(&rng, 12);
        for (uint32_t i = 0; i < n; i++)
            pl_append(text, sizeof text, "%s",
                      piece[pl_rng_below(&rng, sizeof piece / sizeof *piece)]);
        struct all a;
        struct pl_why why = {""};
        int rc = pl_opt_parse(all_opts, &a, text, 8, &why);
        if (rc != 0 && (rc != PL_EUSAGE || !why.text[0])) fail_msg("'%s' gave %d", text, rc);
        if (rc == 0 && !(isfinite(a.real) && a.real >= 0 && a.count >= 1 && a.whole >= -5 &&
                         a.choice >= 0 && a.choice < 3 && a.list.n <= PL_LIST_MAX))
            fail_msg("'%s' was accepted", text);
    }
}

/* ---- the event queue ---- */

/* Random pushes and pops against a plain search for the earliest, first come first served. */
TEST(heap_is_a_queue) {
    enum { MOST = 500 };
    static struct pl_timed plain[MOST];
    struct pl_heap h = {0};
    struct pl_rng r;
    int n = 0;
    uint64_t seq = 0;
    pl_rng_init(&r, test_seed, PL_STREAM_TEST, 4, 0);
    assert_null(pl_heap_top(&h));
    for (int round = 0; round < (sanitized ? 5000 : 20000); round++) {
        bool grow = round / 700 % 2 == 0;
        if (n < MOST && (n == 0 || pl_rng_below(&r, 10) < (grow ? 7 : 3))) {
            uint64_t when = pl_rng_below(&r, 20); /* many ties */
            plain[n++] = (struct pl_timed){when, seq, seq * 3, (int32_t)round, (int32_t)(seq % 5)};
            assert_int_equal(pl_heap_push(&h, when, (int32_t)(seq % 5), round, seq * 3), 0);
            seq++;
        } else {
            int best = 0;
            for (int i = 1; i < n; i++)
                if (plain[i].when_ns < plain[best].when_ns ||
                    (plain[i].when_ns == plain[best].when_ns && plain[i].seq < plain[best].seq))
                    best = i;
            assert_true(pl_heap_top(&h)->seq == plain[best].seq);
            struct pl_timed t = pl_heap_pop(&h);
            assert_true(t.when_ns == plain[best].when_ns && t.seq == plain[best].seq);
            assert_true(t.task == plain[best].task && t.who == plain[best].who &&
                        t.what == plain[best].what);
            plain[best] = plain[--n];
        }
        assert_int_equal(h.n, n);
    }
    pl_heap_free(&h);
    assert_null(pl_heap_top(&h));
}

static bool keeps_some(const void *ctx, const struct pl_timed *t) {
    return t->task % *(const uint64_t *)ctx == 0;
}

/* What is kept comes out in the order it would have come out in. */
TEST(heap_keeps_what_it_is_told) {
    static const uint64_t divisors[] = {1, 2, 7, 1000};
    struct pl_rng r;
    pl_rng_init(&r, test_seed, PL_STREAM_TEST, 6, 0);
    for (size_t d = 0; d < sizeof divisors / sizeof *divisors; d++)
        for (int n = 0; n < 300; n += 1 + n / 4) {
            struct pl_heap all = {0}, some = {0};
            for (int i = 0; i < n; i++) {
                uint64_t when = pl_rng_below(&r, 30), task = 1 + pl_rng_below(&r, 100);
                assert_int_equal(pl_heap_push(&all, when, 0, 0, task), 0);
                assert_int_equal(pl_heap_push(&some, when, 0, 0, task), 0);
            }
            pl_heap_keep(&some, keeps_some, &divisors[d]);
            while (all.n > 0) {
                struct pl_timed t = pl_heap_pop(&all);
                if (!keeps_some(&divisors[d], &t)) continue;
                assert_true(some.n > 0 && pl_heap_pop(&some).seq == t.seq);
            }
            assert_int_equal(some.n, 0);
            pl_heap_free(&all);
            pl_heap_free(&some);
        }
}

/* ---- JSON ---- */

TEST(json_quotes_and_nulls) {
    struct pl_json j = {0};
    pl_json_open(&j, NULL, '{');
    pl_json_text(&j, "a\"b", "back\\slash \"quote\" \n\t\x01 é");
    pl_json_text(&j, "none", NULL);
    pl_json_open(&j, "list", '[');
    pl_json_real(&j, NULL, 0.1);
    pl_json_real(&j, NULL, NAN);
    pl_json_real(&j, NULL, -INFINITY);
    pl_json_whole(&j, NULL, UINT64_MAX);
    pl_json_open(&j, NULL, '{');
    pl_json_close(&j, '}');
    pl_json_open(&j, NULL, '[');
    pl_json_close(&j, ']');
    pl_json_close(&j, ']');
    pl_json_real(&j, "minus", -2.5e-300);
    pl_json_close(&j, '}');
    assert_false(j.failed);
    assert_string_equal(j.text,
                        "{\"a\\\"b\":\"back\\\\slash \\\"quote\\\" \\u000a\\u0009\\u0001 é\","
                        "\"none\":null,\"list\":[0.1,null,null,18446744073709551615,{},[]],"
                        "\"minus\":-2.5e-300}");
    assert_int_equal(strlen(j.text), j.n);
    free(j.text);
}

TEST(json_numbers_read_back) {
    struct pl_rng r;
    pl_rng_init(&r, test_seed, PL_STREAM_TEST, 5, 0);
    for (int round = 0; round < 20000; round++) {
        double x;
        uint64_t bits = pl_rng_u64(&r);
        memcpy(&x, &bits, sizeof x);
        if (round % 2) x = pl_rng_below(&r, 100000) / 1000.0;
        struct pl_json j = {0};
        pl_json_real(&j, NULL, x);
        if (isfinite(x))
            assert_true(strtod(j.text, NULL) == x);
        else
            assert_string_equal(j.text, "null");
        free(j.text);
    }
}

/* ---- sentences ---- */

TEST(sentences_are_cut) {
    struct pl_why why;
    char long_text[2000], small[8] = "abc";
    memset(long_text, 'y', sizeof long_text);
    long_text[sizeof long_text - 1] = '\0';
    assert_int_equal(pl_fail(&why, PL_EDATA, "%s", long_text), PL_EDATA);
    assert_int_equal(strlen(why.text), PL_WHY_MAX - 1);
    assert_int_equal(pl_fail_in(&why, PL_EIO, "where"), PL_EIO);
    assert_int_equal(strlen(why.text), PL_WHY_MAX - 1);
    assert_int_equal(strncmp(why.text, "where: yyy", 10), 0);
    assert_int_equal(pl_fail(NULL, PL_EIO, "nobody listens"), PL_EIO);
    assert_int_equal(pl_fail_in(NULL, PL_EIO, "nobody"), PL_EIO);
    pl_append(small, sizeof small, "%s", "defghij");
    assert_string_equal(small, "abcdefg");
    pl_append(small, sizeof small, "%s", "more");
    assert_string_equal(small, "abcdefg");
}

TEST(statuses_have_texts) {
    static const int status[] = {PL_OK,     PL_EUSAGE,  PL_EDATA,      PL_EIO,
                                 PL_ENOMEM, PL_EPOLICY, PL_ECANCELLED, PL_EMISSING};
    for (size_t i = 0; i < sizeof status / sizeof *status; i++)
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(pl_status_text(status[i]), pl_status_text(status[j]));
    assert_string_equal(pl_status_text(-99), pl_status_text(1));
}

static void say_to(void *ctx, int level, const char *sentence) {
    snprintf(ctx, 100, "%d %s", level, sentence);
}

TEST(log_reaches_its_owner) {
    char said[100] = "";
    struct pl_log log = {.say = say_to, .ctx = said}, silent = {0};
    pl_log_warn(&log, "worker %d", 3);
    assert_string_equal(said, "1 worker 3");
    pl_log_note(&log, "worker %d", 5);
    assert_string_equal(said, "0 worker 5");
    pl_log_detail(&log, "worker %d", 3);
    assert_string_equal(said, "-1 worker 3");
    pl_log_warn(&silent, "worker %d", 4);
    assert_string_equal(said, "-1 worker 3");
}
