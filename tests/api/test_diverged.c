/* When a finished run has diverged. */
#include <math.h>

#include "api/run.h"
#include "learn/job.h"
#include "model/model.h"
#include "test.h"

static const struct pl_model_kind ours = {.by_clients = false}, theirs = {.by_clients = true};

/* How a run diverged whose loss began and ended there; "" if it did not. */
static const char *judge(const struct pl_model_kind *kind, double start, double end) {
    static struct pl_run run;
    struct pl_model model = {.kind = kind};
    const struct pl_job job = {.model = &model};
    const struct pl_why why = {.text = ""};
    static float weights[1];
    run = (struct pl_run){.outcome = pl_outcome_none()};
    run.outcome.first_loss = start;
    run.outcome.score.loss = end;
    run.outcome.weights = weights;
    pl_run_point(&run, &(struct pl_point){.loss = start});
    pl_run_end(&run, &job, PL_OK, &why);
    free(run.point);
    return run.diverged;
}

TEST(a_loss_that_rose_too_far_has_diverged) {
    static const struct {
        const char *what;
        double start, end;
        bool diverged;
    } row[] = {
        {"classification learns", 2.3, 0.02, false},
        {"classification gets worse", 2.3, 4.5, false},
        {"classification diverges", 2.3, 4.7, true},
        {"resumed near the minimum, at another rate", 0.0226, 0.0466, false},
        {"resumed at the minimum", 0, 0.01, false},
        {"resumed, and diverges", 0.0226, 3.1, true},
        {"regression from 0.01 diverges", 0.01, 5, true},
        {"regression on large targets, worse", 4e6, 7e6, false},
        {"regression on large targets diverges", 4e6, 9e6, true},
        {"a negative loss rises", -5, -1, false},
        {"a negative loss diverges", -5, 0.5, true},
        {"no longer a number", 2.3, NAN, true},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        if ((judge(&ours, row[i].start, row[i].end)[0] != '\0') != row[i].diverged)
            fail_msg("%s: %g to %g", row[i].what, row[i].start, row[i].end);
}

/* Losses that clients report are those of a few mini-batches: the same rule, a thousandfold. */
TEST(losses_of_clients_rise_a_thousandfold) {
    assert_string_equal(judge(&theirs, 2, 2001), "");
    assert_string_equal(judge(&theirs, 2, 2100), "the loss rose from 2 to 2.1e+03");
    assert_string_equal(judge(&theirs, 0, 900), "");
    assert_string_equal(judge(&theirs, 0.001, INFINITY), "the loss rose from 0.001 to inf");
}
