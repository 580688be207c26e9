/* What a warning about a slow worker says. */
#include "base/seconds.h"
#include "observe/stragglers.h"
#include "test.h"

TEST(sentences_have_numbers) {
    static const struct {
        struct pl_stragglers_found found;
        const char *phase, *text;
    } row[] = {
        {{PL_SLOW_TASK, 2, 12.3, 0.41},
         "computing",
         "worker 3 is slow: its task has run for 12.3 s (median 0.41 s); it is computing"},
        {{PL_SLOW_WORKER, 0, 1234.5, 101.9},
         NULL,
         "worker 1 is slow: its tasks take 1234 s (median 102 s)"},
        {{PL_SLOW_WORKER, 9, 0.0123, 0.00000041},
         "",
         "worker 10 is slow: its tasks take 0.0123 s (median 0.41 µs)"},
    };
    const struct pl_log log = {0}, ranks = {.ranks = true};
    char text[200];
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        pl_stragglers_sentence(&row[i].found, &log, row[i].phase, text, sizeof text);
        assert_string_equal(text, row[i].text);
    }
    pl_stragglers_sentence(&row[0].found, &ranks, "x", text, 10);
    assert_string_equal(text, "rank 2 is");
    char names[3][PL_WORKER_NAME] = {"", "", "alice"};
    pl_stragglers_sentence(&row[0].found, &(struct pl_log){.names = names}, "x", text, 27);
    assert_string_equal(text, "worker 3 (alice) is slow: ");
    pl_stragglers_sentence(&row[0].found, &log, "x", text, 10);
    assert_string_equal(text, "worker 3 ");
}
