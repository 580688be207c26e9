/* The runs of a race side by side: 21 simulated runs (three methods, seven seeds) of `paceline
 * race` on all cores, one run per core, against the same race on one core. Set $PACELINE to the
 * program. */
#include <string.h>
#include <unistd.h>

#include "bench.h"

#define RACE_REPEATS 3

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

int main(void) {
    const char *program = getenv("PACELINE"), *base = getenv("TMPDIR");
    char folder[400], all[64], clean[440];
    double one[RACE_REPEATS], many[RACE_REPEATS];
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    bench_begin();
    bench_need(program != NULL, "PACELINE does not name the program");
    snprintf(folder, sizeof folder, "%.380s/race-XXXXXX", base && *base ? base : "/tmp");
    bench_need(mkdtemp(folder) != NULL, "no folder could be made");
    snprintf(all, sizeof all, "--jobs %ld --threads 1", cores);
    for (int i = 0; i < RACE_REPEATS; i++) {
        one[i] = race_once(program, folder, "--jobs 1 --threads 1");
        many[i] = race_once(program, folder, all);
    }
    snprintf(clean, sizeof clean, "rm -rf '%s'", folder);
    bench_need(system(clean) == 0, "the folder could not be removed");
    double alone = bench_median(one, RACE_REPEATS), ours = bench_median(many, RACE_REPEATS);
    double share = alone / ours / (double)cores;
    printf("21 runs of a race: %.2f s on one core, %.2f s on %ld cores, %.2f of linear\n", alone,
           ours, cores, share);
    bench_row("race.cores", ours, "s", "one core / cores", alone / (double)cores, share);
    return 0;
}
