/* Defects that have no other test: see docs/reliability.md. */
#include <signal.h>
#include <unistd.h>

#include "base/opt.h"
#include "run/checkpoint.h"
#include "run/tensors.h"
#include "suite_train.h"
#include "sys/process.h"
#include "timing/recording.h"

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

/* --- signals across fork --------------------------------------------------------------------- */

static int count_blocked(void *arg) {
    sigset_t now;
    int n = 0;
    sigprocmask(SIG_BLOCK, NULL, &now);
    for (int i = 1; i < 32; i++) n += sigismember(&now, i) == 1;
    return n;
}

/* Neither a new process nor its parent has a signal blocked that was not before. */
TEST(signals_are_blocked_only_across_a_fork) {
    char how[96];
    int before = count_blocked(NULL);
    int pid = pl_process_start("mask", count_blocked, NULL);
    assert_true(pid > 0);
    assert_int_equal(count_blocked(NULL), before);
    pl_process_await(pid, 5000000000u, how, sizeof how);
    assert_string_equal(how, "left");
}

/* --- a checkpoint that is not finite ---------------------------------------------------------- */

/* Writes a checkpoint like the one in `from`, with weights that are not finite. */
static void write_spoilt(const char *from, const char *to) {
    static const char *const keys[] = {"updates", "setup", "run", "origin"};
    struct pl_tensors *t = NULL;
    struct pl_tensor tensor[64];
    struct pl_meta meta[4];
    struct pl_why why = {.text = ""};
    size_t n_meta = 0;
    if (pl_tensors_read(from, &t, &why)) fail_msg("%s", why.text);
    size_t n = pl_tensors_count(t);
    assert_true(n <= 64);
    for (size_t i = 0; i < 4; i++)
        if (pl_tensors_meta(t, keys[i]))
            meta[n_meta++] = (struct pl_meta){.key = keys[i], .value = pl_tensors_meta(t, keys[i])};
    for (size_t i = 0; i < n; i++) {
        tensor[i] = *pl_tensors_at(t, i);
        float *copy = malloc(tensor[i].bytes + 1);
        assert_non_null(copy);
        memcpy(copy, tensor[i].data, tensor[i].bytes);
        if (strncmp(tensor[i].name, "run.", 4) != 0) copy[0] = NAN;
        tensor[i].data = copy;
    }
    if (pl_tensors_write(to, tensor, n, meta, n_meta, &why)) fail_msg("%s", why.text);
    for (size_t i = 0; i < n; i++) free((void *)tensor[i].data);
    pl_tensors_free(t);
}

TEST(resuming_skips_what_is_not_finite) {
    char dir[200], last[1024], bad[300], latest[300], other[300];
    struct pl_saved *saved = NULL;
    struct pl_why skipped = {.text = ""}, why = {.text = ""};
    snprintf(dir, sizeof dir, "%s", folder_path("checkpoints"));
    pl_setup *s = make("method=async model=quadratic:dim=5 workers=2 transport=inproc updates=50 "
                       "checkpoint=%s",
                       dir);
    train(s);
    assert_int_equal(pl_checkpoint_find(dir, last, sizeof last, &why), 0);
    snprintf(bad, sizeof bad, "%s/checkpoint-0000000099.safetensors", dir);
    write_spoilt(last, bad);
    snprintf(latest, sizeof latest, "%s/latest", dir);
    unlink(latest);
    /* the one before it was cut short */
    snprintf(other, sizeof other, "%s/checkpoint-0000000098.safetensors", dir);
    FILE *f = fopen(other, "w");
    assert_true(f && fputs("{}", f) >= 0 && fclose(f) == 0);
    assert_int_equal(symlink("checkpoint-0000000099.safetensors", latest), 0);
    if (pl_checkpoint_read_last(dir, &saved, &skipped, &why)) fail_msg("%s", why.text);
    assert_string_equal(pl_saved_path(saved), last);
    if (!strstr(skipped.text, "not finite") ||
        !strstr(skipped.text, "; 1 other checkpoint cannot be used either; resuming from"))
        fail_msg("%s", skipped.text);
    pl_saved_free(saved);
}

/* --- recordings of other programs' runs ------------------------------------------------------- */

/* Their gradients are not in the recording. */
TEST(runs_of_other_programs_are_not_replayed) {
    struct pl_recorder *r = NULL;
    struct pl_why why = {.text = ""};
    pl_run *run = NULL;
    const char *path = folder_path("recording");
    assert_int_equal(pl_recorder_open(path,
                                      "program=0\nformat=3\nmodel=external:dim=5\nworkers=2\n", 2,
                                      1, &r, &why),
                     0);
    pl_recorder_end(r, 1, 0, NULL, 0);
    assert_int_equal(pl_recorder_close(r, &why), 0);
    pl_setup *s = plain();
    assert_int_equal(pl_replay(s, path, &run), PL_EUSAGE);
    if (!strstr(pl_setup_why(s), "model 'external' is computed by other programs"))
        fail_msg("%s", pl_setup_why(s));
}

ALL_TESTS_BETWEEN(folder_make, folder_clear)
