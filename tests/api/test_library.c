/* The library among others in one process: a locale with a decimal comma, several runs at once, and
 * descriptors that are nobody else's business. */
#include <dirent.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "api/setup.h"
#include "comma.h"
#include "folder.h"
#include "setups.h"

#define WORKERS 2

/* --- numbers ------------------------------------------------------------------------------ */

TEST(numbers_have_a_point) {
    char text[200];
    pl_setup *s = NULL;
    pl_run *run = NULL;
    if (!use_comma(folder)) {
        print_message("skipped: localedef cannot make a locale here\n");
        skip();
    }
    s = plain();
    set_all(s, "lr=0.25 delay=exp:mean=0.5 method=kasync:k=2 data=blobs "
               "lr-schedule=step:at=2.5,by=0.5 workers=4 updates=50");
    set(s, "log", folder_path("log"));
    set(s, "record", folder_path("rec"));
    assert_int_not_equal(pl_setup_set(s, "lr", "0,25"), 0);
    assert_int_equal(pl_setup_get(s, "lr", text, sizeof text), 0);
    assert_string_equal(text, "0.25");
    assert_int_equal(pl_setup_get(s, "start-loss", text, sizeof text), 0);
    assert_string_equal(text, "2.3");
    if (pl_simulate(s, &run)) fail_msg("%s", pl_setup_why(s));
    const char *json = pl_run_json(run);
    assert_non_null(strstr(json, "\"lr\":0.25,"));
    pl_run_free(run);
    set_all(s, "log= record=");
    if (pl_replay(s, folder_path("rec"), &run)) fail_msg("%s", pl_setup_why(s));
    assert_true(pl_run_number(run, "replay.same") == 1);
    pl_run_free(run);
    /* the log has numbers with a point, and the program has its locale as before */
    char line[4000] = "";
    FILE *f = fopen(folder_path("log"), "r");
    assert_non_null(f);
    for (int i = 0; i < 3; i++) assert_non_null(fgets(line, sizeof line, f));
    fclose(f);
    const char *loss = strstr(line, "\"loss\":");
    assert_non_null(loss);
    assert_int_equal(loss[7 + strspn(loss + 7, "0123456789")], '.');
    assert_string_equal(localeconv()->decimal_point, ",");
    setlocale(LC_NUMERIC, "C");
}

/* --- real runs ---------------------------------------------------------------------------- */

struct crew {
    atomic_int pid[WORKERS];
    atomic_int workers; /* present, by the last tick */
    atomic_bool stop;
    char odd[400]; /* descriptors that a worker should not have */
    bool looked;
};

static void note_pid(void *ctx, int worker, int pid) {
    atomic_store(&((struct crew *)ctx)->pid[worker], pid);
}

static int bowl(void *ctx, const float *w, const struct pl_samples *b, float *g, double *loss) {
    memcpy(g, w, 3 * sizeof *g);
    *loss = 0;
    return 0;
}

static pl_setup *make(struct crew *crew, int (*tick)(void *ctx, const struct pl_point *p)) {
    static const struct pl_function f = {.dim = 3, .gradient = bowl};
    pl_setup *s = setup_of("method=async workers=2 delay=const:t=0.01 updates=100000000");
    pl_setup_function(s, &f);
    pl_setup_watch(s, NULL, tick, crew);
    s->made = note_pid;
    s->made_ctx = crew;
    return s;
}

/* A worker has its standard streams, one socket, and the kernel's count of its waits for a core. */
static int look_at_descriptors(void *ctx, const struct pl_point *p) {
    struct crew *crew = ctx;
    char dir[64], path[400], what[300], waits[80];
    int n_sockets = 0;
    if (p->updates < 5) return 0;
    for (int w = 0; w < WORKERS; w++) {
        int pid = atomic_load(&crew->pid[w]);
        snprintf(dir, sizeof dir, "/proc/%d/fd", pid);
        snprintf(waits, sizeof waits, "/proc/%d/task/%d/schedstat", pid, pid);
        DIR *d = opendir(dir);
        if (!d) continue;
        crew->looked = true;
        for (struct dirent *e; (e = readdir(d));) {
            if (e->d_name[0] == '.' || strtol(e->d_name, NULL, 10) <= 2) continue;
            snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
            ssize_t n = readlink(path, what, sizeof what - 1);
            what[n > 0 ? n : 0] = '\0';
            if (strncmp(what, "socket:", 7) == 0)
                n_sockets++;
            else if (strcmp(what, waits) != 0)
                pl_append(crew->odd, sizeof crew->odd, "%s ", what);
        }
        closedir(d);
    }
    if (n_sockets > WORKERS) pl_append(crew->odd, sizeof crew->odd, "%d sockets", n_sockets);
    return 1;
}

TEST(workers_have_what_they_need) {
    struct crew crew = {.odd = ""};
    pl_run *run = NULL;
    pl_setup *s = make(&crew, look_at_descriptors);
    set(s, "record", folder_path("fd.rec"));
    set(s, "log", folder_path("fd.log"));
    set(s, "events", folder_path("fd.events"));
    set(s, "log-dir", folder_path("fd.dir"));
    set(s, "listen", folder_path("fd.sock"));
    set(s, "metrics", "0");
    int rc = pl_train(s, &run);
    if (rc == PL_EMISSING) {
        set(s, "metrics", "");
        rc = pl_train(s, &run);
    }
    if (rc) fail_msg("%s", pl_setup_why(s));
    assert_true(crew.looked);
    if (crew.odd[0]) fail_msg("a worker has %s", crew.odd);
    pl_run_free(run);
}

static int watch_workers(void *ctx, const struct pl_point *p) {
    struct crew *crew = ctx;
    atomic_store(&crew->workers, p->workers);
    return atomic_load(&crew->stop);
}

static void *train_thread(void *arg) {
    pl_run *run = NULL;
    if (pl_train(arg, &run)) return arg;
    pl_run_free(run);
    return NULL;
}

static bool comes_to(const struct crew *crew, int n) {
    for (int i = 0; i < 12000; i++) { /* two minutes at most */
        if (atomic_load(&crew->workers) == n) return true;
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    return false;
}

/* The workers of the second run are forked while the first has its sockets open. When one of the
 * first dies, nothing of it may live on in the second's. */
TEST(deaths_are_noticed_in_every_run) {
    struct crew crew[2] = {{.stop = false}};
    pl_setup *s[2];
    pthread_t thread[2];
    for (int i = 0; i < 2; i++) {
        s[i] = make(&crew[i], watch_workers);
        assert_int_equal(pthread_create(&thread[i], NULL, train_thread, s[i]), 0);
        assert_true(comes_to(&crew[i], WORKERS));
    }
    kill(atomic_load(&crew[0].pid[1]), SIGKILL);
    bool noticed = comes_to(&crew[0], WORKERS - 1);
    for (int i = 0; i < 2; i++) atomic_store(&crew[i].stop, true);
    for (int i = 0; i < 2; i++) {
        void *failed = NULL;
        pthread_join(thread[i], &failed);
        assert_null(failed);
    }
    assert_true(noticed);
    assert_int_equal(atomic_load(&crew[1].workers), WORKERS);
}

ALL_TESTS_BETWEEN(folder_make, folder_clear)
