/* Files that are written as a whole: a reader finds the old file or the new one, links are not
 * followed, and only what a killed writer left is removed. */
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/output.h"
#include "folder.h"
#include "test.h"

static void test_put(const char *name, const char *text) {
    FILE *f = fopen(folder_path(name), "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static void test_expect(const char *name, const char *text) {
    char got[64] = "";
    FILE *f = fopen(folder_path(name), "r");
    assert_non_null(f);
    size_t n = fread(got, 1, sizeof got - 1, f);
    fclose(f);
    got[n] = '\0';
    assert_string_equal(got, text);
}

static bool test_exists(const char *name) {
    struct stat st;
    return lstat(folder_path(name), &st) == 0;
}

TEST(test_replaces) {
    struct pl_why why;
    struct pl_output o;
    assert_int_equal(pl_output_write(folder_path("a"), "one", 3, &why), PL_OK);
    test_expect("a", "one");
    assert_int_equal(pl_output_begin(&o, folder_path("a"), &why), PL_OK);
    assert_int_equal(pl_output_put(&o, "two", 3, &why), PL_OK);
    test_expect("a", "one");
    assert_int_equal(pl_output_end(&o, PL_OK, &why), PL_OK);
    test_expect("a", "two");
    assert_int_equal(pl_output_begin(&o, folder_path("a"), &why), PL_OK);
    assert_int_equal(pl_output_end(&o, PL_EIO, &why), PL_EIO); /* given up */
    assert_int_equal(access(o.temporary, F_OK), -1);
    test_expect("a", "two");
    /* a link in the place of the file is replaced, and what it leads to stays */
    test_put("victim", "precious");
    assert_int_equal(symlink("victim", folder_path("link")), 0);
    assert_int_equal(pl_output_write(folder_path("link"), "new", 3, &why), PL_OK);
    test_expect("link", "new");
    test_expect("victim", "precious");
}

static mode_t test_mode(const char *name) {
    struct stat st;
    assert_int_equal(stat(folder_path(name), &st), 0);
    return st.st_mode & 07777;
}

TEST(test_mode_is_kept) {
    struct pl_why why;
    mode_t mask = umask(022);
    assert_int_equal(pl_output_write(folder_path("page"), "one", 3, &why), PL_OK);
    assert_int_equal(test_mode("page"), 0644);
    assert_int_equal(chmod(folder_path("page"), 0600), 0);
    assert_int_equal(pl_output_write(folder_path("page"), "two", 3, &why), PL_OK);
    assert_int_equal(test_mode("page"), 0600);
    assert_int_equal(chmod(folder_path("page"), 0666), 0);
    assert_int_equal(pl_output_write(folder_path("page"), "three", 5, &why), PL_OK);
    assert_int_equal(test_mode("page"), 0666);
    umask(mask);
}

TEST(test_links) {
    struct pl_why why;
    char name[64];
    test_put("victim", "precious");
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "b.paceline-%ld-%d.tmp", (long)getpid(), i);
        assert_int_equal(symlink(i < 2 ? "victim" : "nothing", folder_path(name)), 0);
    }
    assert_int_equal(pl_output_write(folder_path("b"), "new", 3, &why), PL_OK);
    test_expect("b", "new");
    test_expect("victim", "precious");
    assert_false(test_exists("nothing"));
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "b.paceline-%ld-%d.tmp", (long)getpid(), i);
        assert_true(test_exists(name));
    }
}

TEST(test_killed_writers) {
    static const char *const others[] = {
        "c.1-1.tmp",          "c.2024-11.tmp",     "c.paceline-12.tmp",      "c.paceline-1-2-3.tmp",
        "c.paceline-x-1.tmp", "c.paceline-1-.tmp", "c.paceline--1.tmp",      "cc.paceline-1-1.tmp",
        ".paceline-1-1.tmp",  "cpaceline-1-1.tmp", "c.paceline-1-1.tmp.old", "c.paceline-1-1"};
    struct pl_why why;
    struct pl_output alive;
    int status, pipes[2];
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) test_put(others[i], "mine");
    assert_int_equal(mkdir(folder_path("c.paceline-5-5.tmp"), 0700), 0);
    assert_int_equal(pl_output_begin(&alive, folder_path("c"), &why), PL_OK);
    assert_int_equal(pl_output_put(&alive, "alive", 5, &why), PL_OK);
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    if (child == 0) {
        struct pl_output o;
        if (pl_output_begin(&o, folder_path("c"), &why)) _exit(1);
        if (write(pipes[1], o.temporary, sizeof o.temporary) < 0) _exit(1);
        for (;;) pause();
    }
    char left[PL_OUTPUT_PATH];
    assert_int_equal(read(pipes[0], left, sizeof left), sizeof left);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(access(left, F_OK), 0);
    assert_int_equal(pl_output_write(folder_path("c"), "new", 3, &why), PL_OK);
    assert_int_equal(access(left, F_OK), -1);
    assert_int_equal(access(alive.temporary, F_OK), 0); /* its writer is this process */
    assert_int_equal(pl_output_end(&alive, PL_OK, &why), PL_OK);
    test_expect("c", "alive");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) test_expect(others[i], "mine");
    assert_int_equal(rmdir(folder_path("c.paceline-5-5.tmp")), 0);
}

TEST(test_refused) {
    struct pl_why why;
    char path[PL_OUTPUT_PATH + 8];
    memset(path, 'x', sizeof path);
    path[sizeof path - 1] = '\0';
    assert_int_equal(pl_output_write(path, "", 0, &why), PL_EUSAGE);
    assert_int_equal(pl_output_write(folder_path("no/file"), "", 0, &why), PL_EIO);
    assert_string_equal(why.text, "No such file or directory");
    assert_int_equal(mkdir(folder_path("full"), 0700), 0);
    assert_int_equal(pl_output_write(folder_path("full"), "", 0, &why), PL_EIO);
    assert_int_equal(rmdir(folder_path("full")), 0);
}

ALL_TESTS_BETWEEN(folder_make, folder_clear)
