/* A folder of checkpoints is one run's at a time, and its lock has what a server noted there. */
#include "folder.h"
#include "run/claim.h"
#include "test.h"

static struct pl_claim take(const char *from) {
    struct pl_claim c;
    struct pl_why why = {""};
    if (pl_claim_take(folder, from, &c, &why)) fail_msg("%s", why.text);
    return c;
}

/* What the next server finds that continues from a checkpoint in this folder, or another one. */
static struct pl_claim found(const char *from) {
    struct pl_claim c = take(from);
    pl_claim_release(&c);
    return c;
}

static void note(const char *run, uint64_t epoch, uint64_t version) {
    struct pl_claim c = take(NULL);
    pl_claim_note(&c, "another-run-with-a-longer-name", 123456, 1);
    pl_claim_note(&c, run, epoch, version - 1);
    pl_claim_note(&c, run, epoch, version);
    pl_claim_release(&c);
}

TEST(the_next_server_finds_what_was_noted) {
    const char *here = folder_path("checkpoint-0000000001.safetensors");
    struct pl_claim c = take(here);
    if (c.lock < 0) skip(); /* no locks here */
    assert_string_equal(c.run, "");
    pl_claim_release(&c);
    note("20261118-120000-abcdef", 2, UINT64_MAX);
    for (int i = 0; i < 2; i++) { /* also if a server noted nothing */
        c = found(here);
        assert_string_equal(c.run, "20261118-120000-abcdef");
        assert_true(c.epoch == 2 && c.version == UINT64_MAX);
    }
    note("b", 1002, 7);
    c = found(here);
    assert_string_equal(c.run, "b");
    assert_true(c.epoch == 1002 && c.version == 7);
    /* a checkpoint of another folder, or none: it is another run's */
    assert_string_equal(found("/checkpoint-0000000001.safetensors").run, "");
    assert_string_equal(found(here).run, "");
    note("two words", 1, 7); /* what could not be read again is not written */
    assert_string_equal(found(here).run, "another-run-with-a-longer-name");
}

/* The machine was started again: not all that was written is on its disk. */
TEST(a_note_does_not_survive_the_machine) {
    const char *here = folder_path("checkpoint-0000000001.safetensors");
    char text[300] = "";
    note("a-run", 1, 7);
    size_t n = folder_read(".lock", text, sizeof text - 1);
    char *boot = strchr(text, ' ');
    if (!boot) skip();
    boot[1] = boot[1] == '0' ? '1' : '0';
    folder_write(".lock", text, n);
    assert_string_equal(found(here).run, "");
}

/* Whatever the file has, it is read as a whole or refused. */
TEST(damaged_notes_are_refused) {
    const char *here = folder_path("checkpoint-0000000001.safetensors");
    static const char *const bad[] = {
        "x",      "12",           " 12\n", "012\n",
        "12\n\n", "12 a b 1 2\n", "\n",    "12 a b 1 00000000000000000002",
        "-1\n",   "12 \n"};
    char text[300] = "", damaged[300];
    struct pl_claim c;
    struct pl_why why;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        folder_write(".lock", bad[i], strlen(bad[i]));
        assert_int_equal(pl_claim_take(folder, here, &c, &why), PL_EUSAGE);
        assert_non_null(strstr(why.text, "in the way"));
        assert_int_equal(folder_read(".lock", damaged, sizeof damaged), strlen(bad[i]));
    }
    folder_write(".lock", "", 0);
    note("a-run", 1, 7);
    size_t n = folder_read(".lock", text, sizeof text - 1);
    for (size_t i = 0; i < n; i++)
        for (int bit = 0; bit < 8; bit++) {
            memcpy(damaged, text, n);
            damaged[i] ^= (char)(1 << bit);
            folder_write(".lock", damaged, n);
            if (pl_claim_take(folder, here, &c, &why) == PL_OK) pl_claim_release(&c);
            folder_write(".lock", text, i); /* and cut off */
            if (pl_claim_take(folder, here, &c, &why) == PL_OK) {
                assert_int_equal(i, 0);
                pl_claim_release(&c);
            }
        }
}

ALL_TESTS_BETWEEN(folder_make, folder_clear)
