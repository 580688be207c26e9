/* The storm on real processes: workers are killed, stopped and continued, servers are killed and
 * resumed from their checkpoints, and clients join and lie, over all methods. Whatever
 * happens, a server ends in good order when it is asked to, every task has one fate, and no update
 * is lost that a checkpoint has.
 *
 *   STORM_FAULTS=N   faults in all, over all methods (`make storm`); without it a few, over some
 *   PL_TEST_SEED=N
 *
 * It signals only processes that it started, and children of those. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/rng.h"
#include "blocks.h"
#include "core/recipe.h"
#include "paceline_client.h"
#include "test.h"

#define WORKERS 8
#define LIARS 2
#define BATCH 8
#define ARGS 48
#define FAULTS_PER_SERVER 40 /* at most; then it is killed and resumed, or ends */
#define PATIENCE_MS 60000    /* for a server to begin or to end */

static char folder[200];
static const char *program;
static struct pl_rng rng;
static const char *method;   /* that is being tried */
static int per_server;       /* faults, before it is killed */
static atomic_uint *answers; /* of all clients; shared with them */
static struct { unsigned kills, stops, servers, clients, lies, methods, runs; } counts;

struct server {
    pid_t pid;
    char out[300], err[300]; /* files */
};

static void nap(long ms) {
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

static void show(const char *path) {
    char text[2000] = "";
    FILE *f = fopen(path, "r");
    if (f && fread(text, 1, sizeof text - 1, f) > 0) fprintf(stderr, "%s\n", text);
    if (f) fclose(f);
}

static void give_up(const struct server *s, const char *format, ...)
    __attribute__((format(printf, 2, 3), noreturn));

static void give_up(const struct server *s, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fprintf(stderr, "%s: ", method);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    if (s) {
        show(s->out);
        show(s->err);
        if (s->pid > 0) kill(s->pid, SIGKILL);
    }
    exit(1);
}

/* --- servers ---------------------------------------------------------------------------------- */

static void redirect(const char *path, int fd) {
    int file = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    if (file < 0 || dup2(file, fd) < 0) _exit(126);
}

/* Starts `paceline train` with "key value key value …", each key without its dashes. */
static void start(struct server *s, const char *options) {
    char text[1500], *rest = text, *argv[ARGS] = {(char *)(uintptr_t)program, "train", "--json"};
    int n = 3;
    snprintf(text, sizeof text, "%s", options);
    for (char *one; (one = strsep(&rest, " ")) != NULL && n < ARGS - 1;)
        if (*one) argv[n++] = one;
    snprintf(s->out, sizeof s->out, "%s/out", folder);
    snprintf(s->err, sizeof s->err, "%s/err", folder);
    pid_t parent = getpid();
    s->pid = fork();
    if (s->pid < 0) give_up(NULL, "cannot fork");
    if (s->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(1);
        redirect(s->out, 1);
        redirect(s->err, 2);
        execv(program, argv);
        _exit(127);
    }
    counts.runs++;
}

/* Waits for the end of the server; false: it has not ended. */
static bool wait_for(struct server *s, int *status, long ms) {
    for (long t = 0; t <= ms; t += 5) {
        if (waitpid(s->pid, status, WNOHANG) == s->pid) {
            s->pid = 0;
            return true;
        }
        nap(5);
    }
    return false;
}

/* The children of the server: its workers. */
static int workers_of(const struct server *s, pid_t *pid, int max) {
    char path[64];
    int n = 0, one;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)s->pid, (int)s->pid);
    FILE *f = fopen(path, "r");
    while (f && n < max && fscanf(f, "%d", &one) == 1) pid[n++] = one;
    if (f) fclose(f);
    return n;
}

/* Signals a process only if its parent is the given one, still. */
static bool strike(pid_t pid, pid_t parent, int number) {
    char path[64], text[256] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "r");
    if (!f) return false;
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    const char *end = strrchr(text, ')');
    int is = 0;
    if (!end || sscanf(end + 1, " %*c %d", &is) != 1 || is != (int)parent) return false;
    return kill(pid, number) == 0;
}

/* --- what a run says at its end -----------------------------------------------------------------
 */

static double number_in(const char *text, const char *key) {
    char quoted[40];
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *at = strstr(text, quoted);
    return at ? strtod(at + strlen(quoted), NULL) : NAN;
}

static double check_books(const struct server *s) {
    static const char *const fates[] = {"applied", "dropped",  "cancelled",
                                        "lost",    "rejected", "running"};
    char text[8000] = "";
    double sum = 0;
    FILE *f = fopen(s->out, "r");
    if (f && fread(text, 1, sizeof text - 1, f) == 0) text[0] = '\0';
    if (f) fclose(f);
    const char *tasks = strstr(text, "\"tasks\":");
    if (!tasks) give_up(s, "no result was printed");
    for (size_t i = 0; i < sizeof fates / sizeof *fates; i++) sum += number_in(tasks, fates[i]);
    if (!(sum == number_in(tasks, "started"))) give_up(s, "fates do not sum up");
    return number_in(text, "updates");
}

/* Ends a server in good order; returns its updates. */
static double end(struct server *s) {
    int status;
    kill(s->pid, SIGTERM);
    if (!wait_for(s, &status, PATIENCE_MS)) give_up(s, "the server does not end");
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        give_up(s, "the server ended with status %x", (unsigned)status);
    return check_books(s);
}

static uint64_t newest_checkpoint(void) {
    char path[300], name[100] = "";
    snprintf(path, sizeof path, "%s/saved/latest", folder);
    ssize_t n = readlink(path, name, sizeof name - 1);
    return n > 11 && strncmp(name, "checkpoint-", 11) == 0 ? strtoull(name + 11, NULL, 10) : 0;
}

static void clear(const char *name) {
    char command[400];
    snprintf(command, sizeof command, "rm -rf '%s/%s'", folder, name);
    if (system(command) != 0) give_up(NULL, "cannot remove %s", name);
}

/* --- processes ---------------------------------------------------------------------------------
 */

static const char *model_of(const char *name) {
    if (needs_blocks(name)) return "--model " BLOCKS_MODEL " --data " BLOCKS_DATA;
    if (strstr(name, "zeno"))
        return "--model softmax --data blobs:samples=200,test=20,dim=9,classes=3";
    return "--model quadratic:dim=500";
}

static void wait_for_workers(const struct server *s) {
    pid_t pid[WORKERS];
    for (int t = 0; t < PATIENCE_MS / 10; t++) {
        int status;
        if (workers_of(s, pid, WORKERS) > 0) return;
        if (waitpid(s->pid, &status, WNOHANG) == s->pid) give_up(s, "the server did not start");
        nap(10);
    }
    give_up(s, "the server has no workers");
}

/* Kills and stops workers. Returns how many faults there were. */
static int batter(const struct server *s, int n) {
    int done = 0;
    for (int tries = 0; done < n && tries < 20 * n; tries++) {
        pid_t pid[WORKERS];
        nap(1 + pl_rng_below(&rng, 4));
        int there = workers_of(s, pid, WORKERS);
        if (there == 0) continue;
        pid_t one = pid[pl_rng_below(&rng, (uint32_t)there)];
        static const int what[] = {SIGKILL, SIGKILL, SIGSTOP, SIGCONT, SIGCONT, SIGTERM};
        int number = what[pl_rng_below(&rng, sizeof what / sizeof *what)];
        if (!strike(one, s->pid, number)) continue;
        if (number == SIGKILL) counts.kills++;
        if (number == SIGSTOP) counts.stops++;
        done += number == SIGKILL || number == SIGSTOP;
    }
    pid_t pid[WORKERS];
    int there = workers_of(s, pid, WORKERS);
    for (int i = 0; i < there; i++) strike(pid[i], s->pid, SIGCONT);
    return done;
}

static int batter_processes(const char *name, int n_faults) {
    char options[1000];
    struct server s;
    int done = 0;
    snprintf(options, sizeof options,
             "--method %s --workers %d %s --batch 8 --delay exp:mean=0.002 --respawn yes "
             "--evict 2 --updates 100000000 --time 120 --threads 1 --checkpoint %s/saved "
             "--checkpoint-every 10 --resume auto",
             name, WORKERS, model_of(name), folder);
    clear("saved");
    uint64_t saved = 0;
    for (;;) {
        start(&s, options);
        wait_for_workers(&s);
        done += batter(&s, n_faults - done < per_server ? n_faults - done : per_server);
        if (done >= n_faults) break;
        int status;
        kill(s.pid, SIGKILL);
        if (!wait_for(&s, &status, PATIENCE_MS)) give_up(&s, "the server cannot be killed");
        if (!WIFSIGNALED(status)) give_up(&s, "the server ended by itself: %x", (unsigned)status);
        counts.servers++;
        done++;
        uint64_t now = newest_checkpoint();
        if (now < saved)
            give_up(&s, "the newest checkpoint has %llu updates, and %llu were saved",
                    (unsigned long long)now, (unsigned long long)saved);
        saved = now;
    }
    nap(50);
    double updates = end(&s);
    if (!(updates >= (double)saved))
        give_up(&s, "%g updates at the end, and %llu were saved", updates,
                (unsigned long long)saved);
    printf("%-22s processes  %5d faults, %8.0f updates\n", name, done, updates);
    return done;
}

/* --- programs of others ------------------------------------------------------------------------
 */

enum lie { LIE_NAN, LIE_LATE, LIE_SAMPLES, LIE_LOSS, LIE_SIZE, LIE_LEAVE, LIES };

static void answer(pl_client *c, const struct pl_client_task *t, enum lie lie, bool liar) {
    for (size_t i = 0; i < t->dim; i++) t->out[i] = 0.1f * t->w[i];
    if (!liar) {
        pl_client_push(c, t->dim, BATCH, 1);
        return;
    }
    if (lie == LIE_NAN) t->out[pl_rng_below(&rng, (uint32_t)t->dim)] = NAN;
    if (lie == LIE_LEAVE) _exit(0);
    pl_client_push(c, lie == LIE_SIZE ? t->dim / 2 : t->dim, lie == LIE_SAMPLES ? INT32_MAX : BATCH,
                   lie == LIE_LOSS ? 1e300 : 1);
    for (int k = 0; lie == LIE_LATE && k < 100; k++)
        for (size_t i = 0; i < t->dim; i++) t->out[i] = k % 2 ? NAN : INFINITY;
}

static void be_a_client(const char *path, bool liar, uint32_t seed) {
    const struct pl_client_conf conf = {.path = path, .wait = 300};
    struct pl_client_task t;
    pl_client *c = NULL;
    char why[300];
    pl_rng_init(&rng, seed, PL_STREAM_TEST, 5, 0);
    if (pl_client_open(&conf, &c, why, sizeof why)) _exit(3);
    while (pl_client_pull(c, 20, &t) == PL_OK) {
        atomic_fetch_add(answers, 1);
        answer(c, &t, (enum lie)pl_rng_below(&rng, LIES), liar && pl_rng_below(&rng, 2) == 0);
        nap(1);
    }
    pl_client_close(c);
    _exit(0);
}

static pid_t start_client(const char *path, bool liar) {
    uint32_t seed = pl_rng_u32(&rng);
    pid_t parent = getpid(), pid = fork();
    if (pid < 0) give_up(NULL, "cannot fork");
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(1);
        be_a_client(path, liar, seed);
    }
    counts.clients++;
    counts.lies += liar;
    return pid;
}

static int batter_clients(const char *name, int n_faults) {
    char options[1000], path[300];
    struct server s;
    pid_t client[WORKERS];
    int done = 0, status;
    snprintf(path, sizeof path, "%s/socket", folder);
    snprintf(
        options, sizeof options,
        "--method %s --workers %d --model quadratic:dim=500 --batch 8 --spawn none --listen %s "
        "--evict 2 --updates 100000000 --time 120 --threads 1",
        name, WORKERS, path);
    clear("socket");
    atomic_store(answers, 0);
    start(&s, options);
    /* the server may refuse: its method needs something that others do not compute */
    if (wait_for(&s, &status, 100) && WIFEXITED(status) && WEXITSTATUS(status) == 2) return 0;
    if (s.pid == 0) give_up(&s, "the server ended by itself: %x", (unsigned)status);
    for (int i = 0; i < WORKERS; i++) client[i] = start_client(path, i < LIARS);
    for (int t = 0; atomic_load(answers) < 2 * WORKERS && t < PATIENCE_MS; t += 10) nap(10);
    for (int tries = 0; done < n_faults && tries < 20 * n_faults; tries++) {
        nap(1 + pl_rng_below(&rng, 5));
        int i = (int)pl_rng_below(&rng, WORKERS);
        static const int what[] = {SIGKILL, SIGKILL, SIGSTOP, SIGCONT, SIGCONT};
        int number = what[pl_rng_below(&rng, sizeof what / sizeof *what)];
        if (waitpid(s.pid, &status, WNOHANG) == s.pid) {
            s.pid = 0;
            break;
        }
        bool gone = waitpid(client[i], NULL, WNOHANG) == client[i];
        if (!gone) kill(client[i], number);
        if (!gone && number == SIGKILL) gone = waitpid(client[i], NULL, 0) == client[i];
        counts.kills += number == SIGKILL;
        counts.stops += number == SIGSTOP;
        done += number != SIGCONT;
        if (gone) client[i] = start_client(path, i < LIARS);
    }
    /* at the end a server waits for workers that are stopped, but not for long */
    for (int i = 0; pl_rng_below(&rng, 8) > 0 && i < WORKERS; i++) kill(client[i], SIGCONT);
    double updates = s.pid ? end(&s) : check_books(&s);
    for (int i = 0; i < WORKERS; i++) {
        kill(client[i], SIGKILL);
        waitpid(client[i], NULL, 0);
    }
    printf("%-22s clients     %5d faults, %8.0f updates\n", name, done, updates);
    return done;
}

/* -----------------------------------------------------------------------------------------------
 */

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(void) {
    const char *given = getenv("STORM_FAULTS"), *sanitize = getenv("SANITIZE");
    const char *tmp = getenv("TMPDIR");
    program = getenv("PACELINE");
    if (!program) program = "build/paceline";
    if (sanitize && strstr(sanitize, "thread")) {
        printf("thread sanitizer cannot follow a fork that makes threads\n");
        return 77;
    }
    long n_faults = given ? strtol(given, NULL, 10) : 60;
    int n_methods = 0, done = 0, every = given ? 1 : 9;
    while (pl_recipe_family.table[n_methods]) n_methods++;
    begin_tests(15);
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 15, 0);
    snprintf(folder, sizeof folder, "%.100s/paceline-storm-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(folder)) return 1;
    answers =
        mmap(NULL, sizeof *answers, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (answers == MAP_FAILED) return 1;
    setvbuf(stdout, NULL, _IOLBF, 0);
    double began = seconds();
    int each = (int)(n_faults * every / n_methods) + 1;
    per_server = each / 4 < 2 ? 2 : each / 4 > FAULTS_PER_SERVER ? FAULTS_PER_SERVER : each / 4;
    for (int i = 0; i < n_methods; i += every) {
        method = pl_recipe_family.table[i]->name;
        counts.methods++;
        int now = needs_blocks(method) ? 0 : batter_clients(method, each / 2 + 1);
        done += now + batter_processes(method, each - now > 1 ? each - now : 1);
    }
    clear("");
    printf("%d faults over %u methods in %.0f s: %u workers killed, %u stopped, %u servers killed "
           "and resumed; %u programs joined, %u of them to lie. Every run ended in good order.\n",
           done, counts.methods, seconds() - began, counts.kills, counts.stops, counts.servers,
           counts.clients, counts.lies);
    return 0;
}
