/* The runs of a race side by side: 21 simulated runs (three methods, seven seeds) of `paceline
 * race` on 2, 4, 8, … and all cores, one run per core, against the same race on one core. Set
 * $PACELINE to the program.
 *
 * A run is never divided, so linear speed is out of reach: a run of sync has 8 gradients per
 * update, one of kasync 4 and one of async 1, and 16 cores cannot be done before the longest run
 * is. */
#include <string.h>
#include <unistd.h>

#include "bench.h"

#define RACE_REPEATS 3
#define RACE_COUNTS 12 /* numbers of cores that are tried */

static double race_once(const char *program, const char *folder, const char *how) {
    char command[2048];
    snprintf(command, sizeof command,
             "rm -rf '%s/race' && '%s' race sync kasync async --data digits --model mlp:hidden=64 "
             "--workers 8 --batch 32 --delay exp:mean=1 --lr 0.05 --updates 1000 --seeds 7 --quiet "
             "--out '%s/race' %s >/dev/null",
             folder, program, folder, how);
    double begun = bench_now();
    bench_need(system(command) == 0, "paceline race failed");
    return bench_now() - begun;
}

/* What share of linear speed is possible: every core takes the next run as soon as it is free. */
static double race_allowed(long cores) {
    static const double gradients[] = {8, 4, 1};
    double *busy = calloc((size_t)cores, sizeof *busy), sum = 0, last = 0;
    bench_need(busy != NULL, "out of memory");
    for (int i = 0; i < 21; i++) {
        long next = 0;
        for (long c = 1; c < cores; c++)
            if (busy[c] < busy[next]) next = c;
        busy[next] += gradients[i / 7];
        sum += gradients[i / 7];
        if (busy[next] > last) last = busy[next];
    }
    free(busy);
    return sum / last / (double)cores;
}

int main(void) {
    const char *program = getenv("PACELINE"), *base = getenv("TMPDIR");
    char folder[400], how[64], clean[440];
    double time[RACE_COUNTS][RACE_REPEATS], alone = 0, ours = 0, share = 1;
    long cores = sysconf(_SC_NPROCESSORS_ONLN), count[RACE_COUNTS];
    int n = 0;
    bench_begin();
    bench_need(program != NULL, "PACELINE does not name the program");
    snprintf(folder, sizeof folder, "%.380s/race-XXXXXX", base && *base ? base : "/tmp");
    bench_need(!strchr(folder, '\''), "TMPDIR has a quote, which ends that of a shell command");
    bench_need(mkdtemp(folder) != NULL, "no folder could be made");
    for (long c = 1; c < cores && n < RACE_COUNTS - 1; c *= 2) count[n++] = c;
    count[n++] = cores;
    for (int i = 0; i < RACE_REPEATS; i++)
        for (int k = 0; k < n; k++) {
            snprintf(how, sizeof how, "--jobs %ld --threads 1", count[k]);
            time[k][i] = race_once(program, folder, how);
        }
    snprintf(clean, sizeof clean, "rm -rf '%s'", folder);
    bench_need(system(clean) == 0, "the folder could not be removed");
    printf("21 runs of a race\ncores  seconds  speed-up  of linear  possible\n");
    for (int k = 0; k < n; k++) {
        ours = bench_median(time[k], RACE_REPEATS);
        if (k == 0) alone = ours;
        share = alone / ours / (double)count[k];
        printf("%5ld %8.2f %9.2f %10.2f %9.2f\n", count[k], ours, alone / ours, share,
               race_allowed(count[k]));
    }
    bench_row("race.cores", ours, "s", "one core / cores", alone / (double)cores, share);
    return 0;
}
