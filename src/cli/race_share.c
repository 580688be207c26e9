/* A race that several processes share: the ranks that mpirun or srun started, or the tasks of a
 * Slurm array. They meet in the folder of the race and nowhere else: each carries out its share of
 * the runs, and appends their results to results.jsonl under a lock on that file. The process that
 * appends the last result that was missing shows the race. No process waits for another, so one
 * that dies costs its own runs alone, and the same command runs those again. */
#include <stdlib.h>
#include <sys/file.h>

#include "race.h"

static int share_number(const char *name, int otherwise) {
    const char *text = getenv(name);
    char *end;
    long n = text && *text ? strtol(text, &end, 10) : -1;
    return n >= 0 && n < 1 << 20 && !*end ? (int)n : otherwise;
}

void cli_race_share(struct race *r) {
    int ranks = pl_ranks() > 1 ? pl_ranks() : 1, rank = ranks > 1 ? pl_rank() : 0;
    int tasks = share_number("SLURM_ARRAY_TASK_COUNT", 1);
    int task = share_number("SLURM_ARRAY_TASK_ID", 0) - share_number("SLURM_ARRAY_TASK_MIN", 0);
    if (tasks < 2 || task < 0) tasks = 1;
    r->shares = ranks * tasks;
    r->share = tasks > 1 ? task % tasks * ranks + rank : rank;
}

/* All runs of an entrant that is tuned have the same share, because they need its rate. */
bool cli_race_mine(const struct race *r, struct race_task task) {
    int which =
        r->tune || task.seed == RACE_TUNING ? task.entrant : task.entrant * r->n_seeds + task.seed;
    return r->shares < 2 || which % r->shares == r->share;
}

void cli_race_lock(const struct race *r, FILE *results) {
    if (r->shares > 1) flock(fileno(results), LOCK_EX);
}

void cli_race_unlock(const struct race *r, FILE *results) {
    if (r->shares > 1) flock(fileno(results), LOCK_UN);
}
