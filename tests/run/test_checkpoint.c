/* Checkpoints: what a snapshot took comes back by name; a folder keeps as many as asked and loses
 * nothing else; damage is told together with what is still whole; a writer killed at any moment
 * leaves a whole one. Files are written to a fresh directory under TMPDIR. */
#include <grp.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/rng.h"
#include "folder.h"
#include "opened.h"
#include "run/checkpoint.h"
#include "run/tensors.h"
#include "suite_train.h"

/* A checkpoint in folder d. */
static const char *test_file(uint64_t updates) {
    char name[64];
    snprintf(name, sizeof name, "d/checkpoint-%010llu.safetensors", (unsigned long long)updates);
    return folder_path(name);
}

static bool test_exists(const char *path) {
    struct stat st;
    return lstat(path, &st) == 0;
}

static void test_put(const char *path) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fclose(f), 0);
}

/* Flips a bit of the last byte. */
static void test_damage(const char *path) {
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, -1, SEEK_END), 0);
    int c = fgetc(f);
    assert_int_equal(fseek(f, -1, SEEK_END), 0);
    fputc(c ^ 4, f);
    assert_int_equal(fclose(f), 0);
}

/* A snapshot of little, marked with a number. */
static struct pl_snapshot *test_snapshot(uint64_t mark) {
    struct pl_snapshot *s = NULL;
    assert_int_equal(pl_snapshot_new(&s, NULL), PL_OK);
    struct pl_archive archive = pl_snapshot_archive(s);
    pl_archive_wholes(&archive, "mark", &mark, 1);
    return s;
}

static void test_write(uint64_t updates, size_t keep_n) {
    struct pl_why why = {""};
    struct pl_snapshot *s = test_snapshot(updates);
    if (pl_checkpoint_write(folder_path("d"), keep_n, s, updates, &why)) fail_msg("%s", why.text);
    pl_snapshot_free(s);
}

static struct pl_saved *test_read(const char *path) {
    struct pl_saved *saved = NULL;
    struct pl_why why = {""};
    if (pl_checkpoint_read(path, &saved, &why)) fail_msg("%s", why.text);
    return saved;
}

static const char *test_found(const char *where) {
    static char path[900];
    struct pl_why why = {""};
    if (pl_checkpoint_find(where, path, sizeof path, &why)) fail_msg("%s", why.text);
    return path;
}

/* ---- round trip ---- */

TEST(everything_comes_back) {
    struct pl_data *data = open_data("blobs:dim=6,classes=3,samples=9,test=0", test_seed);
    struct pl_model *m = open_model("mlp:hidden=5,4", data);
    float *w = own_room(m->dim, sizeof *w), *back = own_room(m->dim, sizeof *back);
    m->kind->init(m, test_seed, w);
    pl_real reals[3] = {1, 2, 3};
    uint64_t wholes[2] = {UINT64_MAX, 5};
    double numbers[2] = {0.1, -1e300};
    uint8_t bytes[3] = {0, 1, 255};
    struct pl_snapshot *s = NULL;
    struct pl_why why = {""};
    folder_empty(folder);
    assert_int_equal(pl_snapshot_new(&s, &why), PL_OK);
    struct pl_archive archive = pl_snapshot_archive(s);
    assert_false(archive.restoring);
    assert_int_equal(pl_archive_reals(&archive, "store.velocity", reals, 3), 3);
    assert_int_equal(pl_archive_wholes(&archive, "control.k", wholes, 2), 2);
    assert_int_equal(pl_archive_numbers(&archive, "numbers", numbers, 2), 2);
    assert_int_equal(pl_archive_bytes(&archive, "policy", bytes, 3), 3);
    assert_int_equal(pl_archive_bytes(&archive, "none", NULL, 0), 0);
    reals[0] = 9; /* pieces are copied, weights are not */
    wholes[0] = bytes[0] = 9;
    numbers[0] = 9;
    pl_snapshot_weights(s, m, w);
    w[0] = 42;
    pl_snapshot_text(s, "method", "ksync:k=2");
    if (pl_checkpoint_write(folder_path("d"), 3, s, 200, &why)) fail_msg("%s", why.text);
    pl_snapshot_free(s);

    struct pl_saved *saved = test_read(test_file(200));
    archive = pl_saved_archive(saved);
    assert_true(archive.restoring);
    pl_real reals_back[4] = {0, 0, 0, 7};
    uint64_t wholes_back[2];
    double numbers_back[1];
    uint8_t bytes_back[3];
    assert_int_equal(pl_archive_reals(&archive, "store.velocity", reals_back, 4), 3);
    assert_true(reals_back[0] == 1 && reals_back[1] == 2 && reals_back[2] == 3);
    assert_true(reals_back[3] == 7); /* kept shorter: the rest stays */
    assert_int_equal(pl_archive_wholes(&archive, "control.k", wholes_back, 2), 2);
    assert_true(wholes_back[0] == UINT64_MAX && wholes_back[1] == 5);
    assert_int_equal(pl_archive_numbers(&archive, "numbers", numbers_back, 1), 2); /* kept longer */
    assert_true(numbers_back[0] == 0.1);
    assert_int_equal(pl_archive_bytes(&archive, "policy", bytes_back, 3), 3);
    assert_true(bytes_back[0] == 0 && bytes_back[1] == 1 && bytes_back[2] == 255);
    assert_int_equal(pl_archive_bytes(&archive, "none", bytes_back, 3), 0);
    assert_int_equal(pl_archive_reals(&archive, "unknown", reals_back, 4), 0);
    assert_int_equal(pl_archive_reals(&archive, "control.k", reals_back, 4),
                     0); /* of another type */
    assert_int_equal(pl_archive_reals(&archive, "layer1.bias", reals_back, 4), 0);
    assert_string_equal(pl_saved_text(saved, "method"), "ksync:k=2");
    assert_string_equal(pl_saved_text(saved, "updates"), "200");
    assert_null(pl_saved_text(saved, "other"));
    if (pl_saved_weights(saved, m, back, &why)) fail_msg("%s", why.text);
    assert_memory_equal(w, back, m->dim * sizeof *w);
    pl_saved_free(saved);

    struct pl_tensors *t = NULL; /* as others see it */
    assert_int_equal(pl_tensors_read(test_file(200), &t, &why), PL_OK);
    assert_non_null(pl_tensors_find(t, "run.store.velocity"));
    const struct pl_tensor *bias = pl_tensors_find(t, "layer2.bias");
    assert_memory_equal(bias->data, w + 5 * 6 + 5 + 4 * 5, 4 * sizeof *w);
    pl_tensors_free(t);
}

TEST(weights_of_another_model_are_refused) {
    static const struct {
        const char *spec, *word;
    } other[] = {
        {"mlp:hidden=5", "its 'layer1.weight' is F32 [6,6], the model's is F32 [5,6]"},
        {"mlp:hidden=6,6", "no 'layer3.weight'"},
        {"softmax", "has 4 arrays of weights, the model has 2"},
        {"quadratic:dim=84", "no 'weights'"},
    };
    struct pl_data *data = open_data("blobs:dim=6,classes=6,samples=9,test=0", test_seed);
    struct pl_model *m = open_model("mlp:hidden=6", data);
    float w[84] = {0}, back[200];
    assert_int_equal(m->dim, 84);
    struct pl_snapshot *s = test_snapshot(0);
    struct pl_why why = {""};
    pl_snapshot_weights(s, m, w);
    if (pl_checkpoint_write(folder_path("d"), 0, s, 1, &why)) fail_msg("%s", why.text);
    pl_snapshot_free(s);
    struct pl_saved *saved = test_read(test_file(1));
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        struct pl_model *o = open_model(other[i].spec, data);
        assert_true(o->dim <= 200);
        for (size_t j = 0; j < 200; j++) back[j] = 5;
        int rc = pl_saved_weights(saved, o, back, &why);
        if (rc != PL_EUSAGE || !strstr(why.text, other[i].word))
            fail_msg("%s gave %d, \"%s\"", other[i].spec, rc, why.text);
        for (size_t j = 0; j < 200; j++) assert_true(back[j] == 5);
    }
    pl_saved_free(saved);
}

/* ---- folders ---- */

TEST(old_ones_go_and_nothing_else) {
    static const char *const others[] = {
        "checkpoint-1.safetensors",
        "checkpoint-00000000001.safetensors",
        "checkpoint-0000000001.safetensors.bak",
        "checkpoint-0000000001",
        "my-checkpoint-0000000001.safetensors",
        "checkpoint-000000000x.safetensors",
        "checkpoint-99999999999999999999999.safetensors",
        "checkpoint-0000000001.safetensors.12-3.tmp",
        "checkpoint-0000000001.safetensors.paceline-12-3.tmp.mine",
        "notes.txt",
    };
    size_t n_others = sizeof others / sizeof *others;
    char link[64] = "";
    folder_empty(folder);
    test_write(100, 3); /* makes the folder */
    for (size_t i = 0; i < n_others; i++) {
        char name[128];
        snprintf(name, sizeof name, "d/%s", others[i]);
        test_put(folder_path(name));
    }
    assert_int_equal(mkdir(test_file(1), 0700), 0); /* a folder of that name is not ours */
    for (uint64_t u = 200; u <= 600; u += 100) test_write(u, 3);
    assert_int_equal(folder_count(folder_path("d")), n_others + 1 + 3 + 1);
    assert_true(test_exists(test_file(400)) && test_exists(test_file(600)));
    assert_false(test_exists(test_file(300)));
    for (size_t i = 0; i < n_others; i++) {
        char name[128];
        snprintf(name, sizeof name, "d/%s", others[i]);
        assert_true(test_exists(folder_path(name)));
    }
    assert_true(readlink(folder_path("d/latest"), link, sizeof link - 1) > 0);
    assert_string_equal(link, "checkpoint-0000000600.safetensors");
    assert_string_equal(test_found(folder_path("d")), test_file(600));

    test_write(450, 1); /* the one just written stays, whatever its number */
    assert_true(test_exists(test_file(450)));
    assert_int_equal(folder_count(folder_path("d")), n_others + 1 + 1 + 1);
    test_write(460, 0); /* all stay */
    test_write(470, 0);
    assert_int_equal(folder_count(folder_path("d")), n_others + 1 + 3 + 1);
    test_write(12345678901, 0); /* more than ten digits are ten digits and more */
    assert_string_equal(test_found(folder_path("d")), test_file(12345678901));
}

TEST(the_latest_is_found) {
    char path[900];
    struct pl_why why = {""};
    folder_empty(folder);
    assert_int_equal(pl_checkpoint_find(folder_path("d"), path, sizeof path, &why), PL_EMISSING);
    assert_int_equal(mkdir(folder_path("d"), 0700), 0);
    assert_int_equal(pl_checkpoint_find(folder_path("d"), path, sizeof path, &why), PL_EMISSING);
    assert_non_null(strstr(why.text, "has no checkpoint"));
    assert_int_equal(symlink("checkpoint-0000000900.safetensors", folder_path("d/latest")), 0);
    assert_int_equal(pl_checkpoint_find(folder_path("d"), path, sizeof path, &why), PL_EMISSING);
    test_write(100, 3); /* the dangling link is replaced */
    test_write(200, 3);
    assert_string_equal(test_found(folder_path("d")), test_file(200));
    assert_string_equal(test_found(folder_path("d/latest")), test_file(200));
    assert_string_equal(test_found(test_file(100)), test_file(100));
    assert_int_equal(unlink(folder_path("d/latest")), 0);
    assert_int_equal(symlink("checkpoint-0000000900.safetensors", folder_path("d/latest")), 0);
    assert_string_equal(test_found(folder_path("d")), test_file(200));
    assert_int_equal(unlink(folder_path("d/latest")), 0);
    assert_string_equal(test_found(folder_path("d")), test_file(200));
    assert_int_equal(pl_checkpoint_find(folder_path("d"), path, 20, &why), PL_EUSAGE);
    /* of a killed writer */
    assert_int_equal(symlink("checkpoint-0000000200.safetensors", folder_path("d/latest.tmp")), 0);
    test_write(300, 3);
    assert_string_equal(test_found(folder_path("d/latest")), test_file(300));
    assert_false(test_exists(folder_path("d/latest.tmp")));
}

TEST(damage_is_told_with_what_is_whole) {
    static const uint64_t written[] = {50, 100, 200, 300};
    struct pl_why why;
    struct pl_saved *saved = NULL;
    char expected[2000];
    folder_empty(folder);
    for (int i = 0; i < 4; i++) test_write(written[i], 0);
    static const struct {
        uint64_t damaged, offered; /* one more is damaged, and read */
        const char *text;
    } steps[] = {
        {200, 100, "; the one before it is intact: "},
        {100, 50, "; the one before it is intact: "},
        {200, 50, "; the last intact one before it: "},
        {50, 300, "; one after it is intact: "},
        {300, 0, "; the others are damaged too"},
    };
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        if (i != 2) test_damage(test_file(steps[i].damaged));
        why.text[0] = '\0';
        assert_int_equal(pl_checkpoint_read(test_file(steps[i].damaged), &saved, &why), PL_EDATA);
        assert_null(saved);
        snprintf(expected, sizeof expected,
                 "checkpoint '%s' is damaged: its SHA-256 does not match%s%s",
                 test_file(steps[i].damaged), steps[i].text,
                 steps[i].offered ? test_file(steps[i].offered) : "");
        assert_string_equal(why.text, expected);
    }
    for (int i = 0; i < 3; i++) assert_int_equal(unlink(test_file(written[i])), 0);
    assert_int_equal(pl_checkpoint_read(test_file(300), &saved, &why), PL_EDATA);
    assert_non_null(strstr(why.text, "does not match; there is no other"));
    /* by a path without a folder */
    char here[1024];
    assert_non_null(getcwd(here, sizeof here));
    test_write(200, 0);
    assert_int_equal(chdir(folder_path("d")), 0);
    assert_int_equal(pl_checkpoint_read("checkpoint-0000000300.safetensors", &saved, &why),
                     PL_EDATA);
    assert_int_equal(chdir(here), 0);
    assert_non_null(strstr(why.text, ": checkpoint-0000000200.safetensors"));
    assert_int_equal(pl_checkpoint_read(test_file(300), &saved, NULL), PL_EDATA);
}

static void expect_unwritten(const char *dir, int status, const char *word) {
    struct pl_snapshot *s = test_snapshot(1);
    struct pl_why why = {""};
    int rc = pl_checkpoint_write(dir, 1, s, 900, &why);
    if (rc != status || !strstr(why.text, word)) fail_msg("%s: %d, \"%s\"", dir, rc, why.text);
    pl_snapshot_free(s);
}

TEST(a_failed_write_loses_nothing) {
    folder_empty(folder);
    test_write(100, 2);
    test_write(200, 2);
    test_put(folder_path("file"));
    expect_unwritten(folder_path("file"), PL_EIO, "is not a folder");
    expect_unwritten(folder_path("no/such"), PL_EIO, "cannot be created");
    /* a folder where the checkpoint should go */
    assert_int_equal(mkdir(test_file(900), 0700), 0);
    expect_unwritten(folder_path("d"), PL_EIO, "cannot be written");
    assert_int_equal(rmdir(test_file(900)), 0);
    assert_int_equal(folder_count(folder_path("d")), 3);
    /* a folder in which nothing can be made; root can, so somebody else tries */
    assert_int_equal(chmod(folder_path("d"), 0555), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (geteuid() == 0 && (setgroups(0, NULL) || setgid(65534) || setuid(65534))) _exit(0);
        struct pl_snapshot *s = test_snapshot(1);
        int rc = pl_checkpoint_write(folder_path("d"), 1, s, 900, NULL);
        pl_snapshot_free(s);
        _exit(rc == PL_EIO ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(chmod(folder_path("d"), 0755), 0);
    assert_int_equal(folder_count(folder_path("d")), 3);
    pl_saved_free(test_read(test_found(folder_path("d/latest"))));
    assert_string_equal(test_found(folder_path("d")), test_file(200));
    /* somebody's file called latest stays */
    assert_int_equal(unlink(folder_path("d/latest")), 0);
    test_put(folder_path("d/latest"));
    expect_unwritten(folder_path("d"), PL_EUSAGE, "is in the way");
    assert_int_equal(folder_count(folder_path("d")), 3);
}

TEST(two_pieces_of_one_name_are_refused) {
    struct pl_snapshot *s = test_snapshot(1);
    struct pl_archive archive = pl_snapshot_archive(s);
    struct pl_why why = {""};
    double v = 0;
    folder_empty(folder);
    pl_archive_numbers(&archive, "mark", &v, 1);
    assert_int_equal(pl_checkpoint_write(folder_path("d"), 1, s, 1, &why), PL_EUSAGE);
    assert_non_null(strstr(why.text, "same name twice"));
    pl_snapshot_free(s);
    s = test_snapshot(1);
    pl_snapshot_text(s, "updates", "3");
    assert_int_equal(pl_checkpoint_write(folder_path("d"), 1, s, 1, &why), PL_EUSAGE);
    pl_snapshot_free(s);
    assert_int_equal(folder_count(folder_path("d")), 0);
}

/* What a killed writer left is removed; what one that lives is still writing, is not. */
TEST(remains_are_swept) {
    const char *dead = "d/checkpoint-0000000100.safetensors.paceline-4711-0.tmp";
    const char *live = "d/checkpoint-0000000100.safetensors.paceline-4712-0.tmp";
    folder_empty(folder);
    test_write(100, 1);
    test_put(folder_path(dead));
    FILE *f = fopen(folder_path(live), "wb");
    assert_non_null(f);
    assert_int_equal(flock(fileno(f), LOCK_EX), 0);
    test_write(200, 1);
    assert_false(test_exists(folder_path(dead)));
    assert_true(test_exists(folder_path(live)));
    fclose(f);
    test_write(300, 1);
    assert_int_equal(folder_count(folder_path("d")), 2);
}

/* ---- kill -9 ---- */

#define KILL_FLOATS 100000

static void kill_write_forever(uint64_t updates) {
    static float w[KILL_FLOATS];
    for (;; updates++) {
        struct pl_snapshot *s = test_snapshot(updates);
        struct pl_archive archive = pl_snapshot_archive(s);
        for (size_t i = 0; i < KILL_FLOATS; i++) w[i] = (float)updates;
        pl_archive_reals(&archive, "w", w, KILL_FLOATS);
        if (pl_checkpoint_write(folder_path("d"), 2, s, updates, NULL)) _exit(1);
        pl_snapshot_free(s);
    }
}

TEST(a_killed_writer_leaves_a_whole_one) {
    struct pl_rng rng;
    uint64_t mark = 1, last = 1;
    int n_cut = 0;
    folder_empty(folder);
    test_write(1, 2);
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 1, 0);
    for (int i = 0; i < 30; i++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) kill_write_forever(last + 1);
        struct timespec pause = {.tv_nsec = 1000 * (long)pl_rng_below(&rng, 20000)};
        nanosleep(&pause, NULL);
        int status = 0;
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status)); /* it did not fail by itself */
        n_cut += folder_count(folder_path("d")) > 3;
        struct pl_saved *saved = test_read(test_found(folder_path("d")));
        struct pl_archive archive = pl_saved_archive(saved);
        assert_int_equal(pl_archive_wholes(&archive, "mark", &mark, 1), 1);
        assert_true(mark >= last);
        last = mark;
        pl_saved_free(saved);
        pl_saved_free(test_read(test_found(folder_path("d/latest"))));
    }
    printf("%llu written, %d cut in the middle\n", (unsigned long long)last, n_cut);
    test_write(last + 1, 2);
    assert_int_equal(folder_count(folder_path("d")), 3); /* nothing of the dead is left */
}

/* --- a checkpoint that is not finite --------------------------------------------------------- */

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

ALL_TESTS_BETWEEN(folder_make, folder_clear)
