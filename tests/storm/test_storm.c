/* The deterministic storm: whole runs of the real server and the real workers on a virtual clock
 * (storm/storm.h), with workers that die, stop and lie, messages that are late and come twice,
 * processes that cannot be started, and servers that are killed and resumed. A seed decides all of
 * it, the method included, and gives the same run every time. storm/invariants.c has what is
 * checked after every event.
 *
 *   STORM_SEED=N    runs one seed and prints its events
 *   STORM_SEEDS=N   runs that many (`make storm-seeds SEEDS=N`), from STORM_FROM on */
#define _GNU_SOURCE
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "api/setup.h"
#include "blocks.h"
#include "core/recipe.h"
#include "paceline.h"
#include "storm.h"

#define STALL_NS UINT64_C(500000000000)
#define SERVERS 3 /* of one seed, at most, one after the other */

static char folder[300], saved[400], tape[400];

/* --- a plan ---------------------------------------------------------------------------------- */

struct plan {
    const char *method;
    bool blocks, checkpoint, record, respawn, clients;
    uint64_t updates;
    char options[1000];
};

static uint64_t below(uint32_t n) {
    return pl_rng_below(&storm.rng, n);
}

static const char *method_of(uint64_t seed) {
    uint64_t n = 0;
    while (pl_recipe_family.table[n]) n++;
    return pl_recipe_family.table[seed % n]->name;
}

static struct plan plan_of(uint64_t seed, bool plain) {
    struct plan p = {.method = method_of(seed)};
    static const char *const evict[] = {"auto", "auto", "off", "0.5", "3"};
    p.blocks = needs_blocks(p.method);
    p.clients = storm_chance(0.3) && !plain && !p.blocks;
    p.checkpoint = storm_chance(0.2);
    storm.mixed = !plain && !p.blocks && !p.clients && storm_chance(0.2);
    p.record = !p.checkpoint && !p.clients && !storm.mixed && storm_chance(0.3);
    p.respawn = !p.clients && storm_chance(0.8);
    p.updates = 20 + below(100);
    storm.samples = 8;
    storm.task_ns = 1000000u << below(5);
    storm.news_ns = storm.task_ns >> below(8);
    storm.mean_fault_ns = storm.task_ns << below(4);
    storm.calm_ns = storm.now_ns + (UINT64_C(1000000000) << below(4));
    storm.clients = p.clients;
    int workers = 1 + (int)below(STORM_WORKERS);
    if (plain) workers = STORM_WORKERS;
    storm.n_liars =
        (p.clients || storm.mixed) && storm_chance(0.7) ? (int)below((uint32_t)workers / 2 + 1) : 0;
    for (int i = 0; i < STORM_FAULTS; i++) storm.faults[i] = storm_chance(0.6);
    storm.one_model = !p.blocks;
    /* sgp divides by a worker's weight, which it sends away to peers that are stopped: its steps
     * grow until they absorb it again */
    storm.huge = (storm.n_liars > 0 && storm_chance(0.2)) || strstr(p.method, "sgp") != NULL;
    char *o = p.options;
    size_t max = sizeof p.options;
    pl_append(o, max, "method=%s workers=%d updates=%llu time=900 threads=1 batch=%u seed=%llu",
              p.method, workers, (unsigned long long)p.updates, storm.samples,
              (unsigned long long)seed);
    pl_append(o, max, " evict=%s respawn=%s eval-every=%s eval-samples=10", evict[below(5)],
              p.respawn ? "yes" : "no", storm_chance(0.5) ? "0.05" : "2");
    if (p.blocks)
        pl_append(o, max, " model=mf:k=2 data=lowrank:users=12,items=10,ratings=60");
    else if (plain || storm_chance(0.1))
        pl_append(o, max, " model=softmax data=blobs:samples=60,test=10,dim=3,classes=3");
    else
        pl_append(o, max, " model=quadratic:dim=%llu", 2 + (unsigned long long)below(40));
    if (p.clients)
        pl_append(o, max, " spawn=none listen=%s/socket", folder);
    else if (storm_chance(0.2))
        pl_append(o, max, " delay=exp:mean=%g", (double)storm.task_ns * 1e-9);
    if (storm.mixed) pl_append(o, max, " listen=%s/socket", folder);
    if (storm_chance(0.1)) pl_append(o, max, " update-time=%g", (double)storm.task_ns * 2e-10);
    if (p.checkpoint)
        pl_append(o, max, " checkpoint=%s checkpoint-every=%llu", saved,
                  1 + (unsigned long long)below(20));
    if (p.record) pl_append(o, max, " record=%s", tape);
    return p;
}

static pl_setup *make(const char *options, const char *more) {
    char text[1200], *rest = text;
    pl_setup *s = NULL;
    if (pl_setup_new(&s)) storm_fail("no setup");
    snprintf(text, sizeof text, "%s %s", options, more);
    for (char *one; (one = strsep(&rest, " ")) != NULL;) {
        if (!*one) continue;
        char *value = strchr(one, '=');
        *value = '\0';
        if (pl_setup_set(s, one, value + 1)) storm_fail("%s: %s", one, pl_setup_why(s));
    }
    return s;
}

/* --- checkpoints ------------------------------------------------------------------------------ */

static char kept[400]; /* the folder as it was when the server was killed */
static bool is_kept;

static void clear_folder(const char *dir) {
    char path[700];
    DIR *d = opendir(dir);
    for (const struct dirent *e; d && (e = readdir(d)) != NULL;) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        unlink(path);
    }
    if (d) closedir(d);
    rmdir(dir);
}

/* Files are written under other names and renamed, so that a link keeps what is there now. */
static void keep_folder(void) {
    char from[700], to[700], target[300];
    is_kept = true;
    clear_folder(kept);
    DIR *d = opendir(saved);
    if (!d) return;
    if (mkdir(kept, 0700)) storm_fail("cannot make a folder");
    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        snprintf(from, sizeof from, "%s/%s", saved, e->d_name);
        snprintf(to, sizeof to, "%s/%s", kept, e->d_name);
        ssize_t n = readlink(from, target, sizeof target - 1);
        if (n >= 0) target[n] = '\0';
        if (n >= 0 ? symlink(target, to) : link(from, to)) storm_fail("cannot link %s", from);
    }
    closedir(d);
}

static uint64_t newest_in(const char *dir) {
    uint64_t newest = 0;
    DIR *d = opendir(dir);
    for (const struct dirent *e; d && (e = readdir(d)) != NULL;) {
        bool is = strncmp(e->d_name, "checkpoint-", 11) == 0 && strstr(e->d_name, ".safetensors");
        uint64_t n = is ? strtoull(e->d_name + 11, NULL, 10) : 0;
        if (n > newest) newest = n;
    }
    if (d) closedir(d);
    return newest;
}

/* A server that was killed has not written what this one wrote at its end. Returns the number of
 * updates in the newest checkpoint that is left; 0: there is none. */
static uint64_t forget_later_files(void) {
    clear_folder(saved);
    if (rename(kept, saved)) return 0;
    return newest_in(saved);
}

/* --- one run ---------------------------------------------------------------------------------- */

static int tick(void *ctx, const struct pl_point *p) {
    if (!storm.stopped) return 0;
    if (!is_kept) keep_folder();
    return 1;
}

static void say(void *ctx, int level, const char *sentence) {
    storm_say("%s: %s", level == PL_WARNING ? "warning" : "note", sentence);
}

static double number(const pl_run *run, const char *key) {
    return pl_run_number(run, key);
}

static void check_end(const struct plan *p, const pl_run *run) {
    static const char *const fates[] = {"tasks.applied", "tasks.dropped",  "tasks.cancelled",
                                        "tasks.lost",    "tasks.rejected", "tasks.running"};
    double sum = 0;
    for (size_t i = 0; i < sizeof fates / sizeof *fates; i++) sum += number(run, fates[i]);
    if (sum != number(run, "tasks.started")) storm_fail("at the end, fates do not sum up");
    if (number(run, "updates") != (double)storm.version)
        storm_fail("%g updates are reported after %llu", number(run, "updates"),
                   (unsigned long long)storm.version);
    size_t n;
    const float *w = pl_run_weights(run, &n);
    for (size_t i = 0; w && i < n; i++)
        if (!storm.huge && !isfinite(w[i])) storm_fail("the model at the end is not finite");
    const char *trouble = pl_run_text(run, "trouble");
    storm_say("end: %g updates, %s", number(run, "updates"), trouble ? trouble : "no trouble");
    /* if nothing but faults of limited time can stop a run, it does not stop */
    bool must = p->respawn && !storm.mixed && !storm.stopped && !trouble &&
                number(run, "suspended.evicted") == 0;
    if (must && number(run, "updates") < (double)p->updates &&
        storm.now_ns - storm.commit_ns > STALL_NS)
        storm_fail("there was no update for %.0f s; the run ended after %g of %llu",
                   (double)(storm.now_ns - storm.commit_ns) * 1e-9, number(run, "updates"),
                   (unsigned long long)p->updates);
}

static void check_replay(const pl_run *run) {
    pl_setup *s = make("threads=1", "");
    pl_run *again = NULL;
    size_t n, m;
    storm.control = NULL;
    if (pl_replay(s, tape, &again)) storm_fail("the replay: %s", pl_setup_why(s));
    if (number(again, "replay.same") != 1)
        storm_fail("the replay differs: %s", pl_run_text(again, "replay"));
    const float *w = pl_run_weights(run, &n), *v = pl_run_weights(again, &m);
    if (n != m || memcmp(w, v, n * sizeof *w) != 0) storm_fail("the replay has other weights");
    pl_run_free(again);
    pl_setup_free(s);
}

/* Nothing of the last server's workers is left. */
static void begin_server(uint64_t version) {
    storm.control = NULL;
    storm.version = version;
    storm.event_ns = 0;
    storm.n_events = 0;
    storm.present = 0;
    memset(storm.alive, 0, sizeof storm.alive);
    memset(storm.committed, 0, sizeof storm.committed);
    for (uint64_t v = version + 1; v < 4096; v++) storm.version_hash[v] = 0;
    storm.stopped = false;
    is_kept = false;
    storm.counts.servers++;
}

enum end { ENDED, KILLED, REFUSED };

/* REFUSED: the method needs more workers, or something that programs of others cannot compute. */
static enum end serve(const struct plan *p, bool last, bool resumes) {
    pl_setup *s = make(p->options, resumes ? "resume=auto" : "");
    pl_run *run = NULL;
    pl_setup_log(s, say, NULL);
    pl_setup_watch(s, NULL, tick, NULL);
    storm.stop_ns = last ? STORM_NEVER : storm.now_ns + storm_draw_ns(100 * storm.task_ns);
    int rc = pl_train(s, &run);
    storm.stop_ns = STORM_NEVER;
    bool killed = storm.stopped;
    bool refused = rc == PL_EUSAGE && storm.n_events == 0;
    if (rc && rc != PL_ERUN && !refused) storm_fail("status %d: %s", rc, pl_setup_why(s));
    if (rc) storm_say("%s", pl_setup_why(s));
    if (!rc) check_end(p, run);
    if (!rc && p->record) check_replay(run);
    pl_run_free(run);
    pl_setup_free(s);
    return refused ? REFUSED : killed ? KILLED : ENDED;
}

static bool run_seed(uint64_t seed, bool plain) {
    struct storm_counts counts = storm.counts;
    char *stack[STORM_WORKERS];
    bool verbose = storm.verbose;
    for (int i = 0; i < STORM_WORKERS; i++) stack[i] = storm.worker[i].stack;
    memset(&storm, 0, sizeof storm);
    for (int i = 0; i < STORM_WORKERS; i++) storm.worker[i].stack = stack[i];
    storm.counts = counts;
    storm.seed = seed;
    storm.verbose = verbose;
    storm.now_ns = 1000000000;
    pl_rng_init(&storm.rng, seed, PL_STREAM_TEST, 77, 0);
    struct plan p = plan_of(seed, plain);
    storm.fault_ns = storm.now_ns + storm_draw_ns(storm.mean_fault_ns);
    storm_say("%s", p.options);
    clear_folder(saved);
    unlink(tape);
    uint64_t version = 0;
    for (int i = 0; i < SERVERS; i++) {
        begin_server(version);
        enum end end = serve(&p, !p.checkpoint || i == SERVERS - 1, i > 0);
        if (end == REFUSED) return false;
        if (end == ENDED) break;
        version = forget_later_files();
        storm_say("the next server begins at update %llu", (unsigned long long)version);
    }
    return true;
}

static void run_one(uint64_t seed) {
    if (!run_seed(seed, false) && !run_seed(seed, true)) storm_fail("it was refused");
}

/* Seeds that found something: a result that was copied and rejected, whose worker was then told to
 * write to the server's memory; inputs of a frozen worker that were used again; a run that ended
 * before its last event, two evictions in one moment. */
static const uint64_t found[] = {14, 1142, 2498};

/* --- all of them ------------------------------------------------------------------------------ */

static uint64_t number_of(const char *name, uint64_t usual) {
    const char *given = getenv(name);
    char *end = NULL;
    uint64_t n = given && *given ? strtoull(given, &end, 10) : usual;
    if (end && *end) {
        fprintf(stderr, "%s=%s is not a whole number\n", name, given);
        exit(1);
    }
    return n;
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(void) {
    const char *sanitize = getenv("SANITIZE"), *one = getenv("STORM_SEED");
    if (sanitize && strstr(sanitize, "thread")) {
        printf("one thread has no races; thread sanitizer cannot follow coroutines\n");
        return 77;
    }
    uint64_t from = one ? number_of("STORM_SEED", 0) : number_of("STORM_FROM", 1);
    uint64_t n = one ? 1 : number_of("STORM_SEEDS", sanitize && *sanitize ? 60 : 300);
    uint64_t n_methods = 0;
    while (pl_recipe_family.table[n_methods]) n_methods++;
    const char *shm = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(folder, sizeof folder, "%s/paceline-storm-XXXXXX", shm);
    if (!mkdtemp(folder)) return 1;
    snprintf(saved, sizeof saved, "%s/saved", folder);
    snprintf(kept, sizeof kept, "%s/kept", folder);
    snprintf(tape, sizeof tape, "%s/tape", folder);
    storm.verbose = one != NULL;
    double began = seconds();
    for (size_t i = 0; !one && i < sizeof found / sizeof *found; i++) run_one(found[i]);
    for (uint64_t seed = from; seed < from + n; seed++) run_one(seed);
    const struct storm_counts *c = &storm.counts;
    double took = seconds() - began;
    printf("%llu seeds (%llu to %llu), %llu methods, %.1f s, %.0f seeds per minute\n",
           (unsigned long long)n, (unsigned long long)from, (unsigned long long)(from + n - 1),
           (unsigned long long)(n < n_methods ? n : n_methods), took, (double)n * 60 / took);
    printf(
        "%llu servers, %llu messages, %llu updates; faults: %llu kills, %llu freezes, %llu lies, "
        "%llu repeated results, %llu bursts of delay, %llu processes that could not start; "
        "%llu requests; %llu clients were hung up on\n",
        (unsigned long long)c->servers, (unsigned long long)c->events,
        (unsigned long long)c->updates, (unsigned long long)c->kills,
        (unsigned long long)c->freezes, (unsigned long long)c->lies, (unsigned long long)c->repeats,
        (unsigned long long)c->bursts, (unsigned long long)c->failed_starts,
        (unsigned long long)c->words, (unsigned long long)c->hung_up);
    clear_folder(saved);
    clear_folder(kept);
    unlink(tape);
    rmdir(folder);
    for (int i = 0; i < STORM_WORKERS; i++) free(storm.worker[i].stack);
    return 0;
}
