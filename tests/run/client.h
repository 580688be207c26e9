/* A server in a process of its own, and clients of it. */
#ifndef PL_TESTS_CLIENT_H
#define PL_TESTS_CLIENT_H

#include <sys/wait.h>
#include <unistd.h>

#include "paceline_client.h"
#include "suite_train.h"

enum { DIM = 5 };

/* f(w) = 1/2 |w - (0, 1, 2, …)|^2 */
static inline double bowl(const float *w, float *g) {
    double loss = 0;
    for (int i = 0; i < DIM; i++) {
        double d = (double)w[i] - i;
        if (g) g[i] = (float)d;
        loss += d * d / 2;
    }
    return loss;
}

struct server {
    pid_t pid;
    char path[200], out[200]; /* its socket; the file with its JSON object, or its message */
};

struct served {
    char text[8192];
    bool ok;
};

static inline void server_says(void *log, int level, const char *sentence) {
    fprintf(log, "%s\n", sentence);
    fflush(log);
}

/* Waits until the server's log has these words; false: it has not within two minutes. */
static inline bool server_said(const struct server *s, const char *words) {
    char log[210], line[400];
    bool found = false;
    snprintf(log, sizeof log, "%s.log", s->out);
    for (int i = 0; !found && i < 1200; i++) {
        FILE *f = fopen(log, "r");
        while (f && !found && fgets(line, sizeof line, f)) found = strstr(line, words) != NULL;
        if (f) fclose(f);
        if (!found) nap(100);
    }
    return found;
}

/* A server in a process of its own, which trains and then writes its results. */
static inline struct server serve_setup(struct server s, pl_setup *setup) {
    pl_run *run = NULL;
    s.pid = fork();
    assert_true(s.pid >= 0);
    if (s.pid) return s;
    FILE *f = fopen(s.out, "w");
    char name[210];
    snprintf(name, sizeof name, "%s.log", s.out);
    FILE *log = fopen(name, "w");
    if (!f || !log) _exit(9);
    pl_setup_log(setup, server_says, log);
    int rc = pl_train(setup, &run);
    if (rc) {
        fprintf(f, "%s\n", pl_setup_why(setup));
    } else {
        size_t n;
        const float *w = pl_run_weights(run, &n);
        fprintf(f, "%s\n", pl_run_json(run));
        for (size_t i = 0; i < n; i++) fprintf(f, "%.9g ", (double)w[i]);
        const char *trouble = pl_run_text(run, "trouble");
        fprintf(f, "\n%s%s\n", trouble ? trouble : "", pl_run_diverged(run) ? "diverged" : "");
    }
    fclose(f);
    _exit(rc ? 1 : 0);
}

static inline struct server serve_with(const char *options, bool tensors) {
    static int n;
    struct server s;
    skip_processes();
    snprintf(s.path, sizeof s.path, "%s.%d", folder_path("socket"), n);
    snprintf(s.out, sizeof s.out, "%s.%d", folder_path("out"), n++);
    pl_setup *setup = setup_of("listen=%s wait=300 requests=any %s", s.path, options);
    static const float w[3] = {0, 0, 0}, b[2] = {0, 0};
    const struct pl_tensor_info t[] = {
        {.name = "fc.weight", .shape = {3, 1}, .n_dims = 2, .data = w},
        {.name = "fc.bias", .shape = {2}, .n_dims = 1, .data = b}};
    if (tensors) assert_int_equal(pl_setup_tensors(setup, t, 2), 0);
    return serve_setup(s, setup);
}

static inline struct server serve(const char *options) {
    return serve_with(options, false);
}

static inline struct served served(const struct server *s) {
    struct served r = {.text = ""};
    int status;
    assert_int_equal(waitpid(s->pid, &status, 0), s->pid);
    r.ok = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    FILE *f = fopen(s->out, "r");
    if (f) {
        size_t got = fread(r.text, 1, sizeof r.text - 1, f);
        r.text[got] = '\0';
        fclose(f);
    }
    return r;
}

/* A number of the JSON object; NAN: null, or not there. */
static inline double said(const struct served *r, const char *key) {
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *at = strstr(r->text, quoted);
    if (!at || strncmp(at + strlen(quoted), "null", 4) == 0) return NAN;
    return strtod(at + strlen(quoted), NULL);
}

static inline pl_client *join(const struct server *s, struct pl_client_conf conf) {
    pl_client *c = NULL;
    char why[400] = "";
    conf.path = s->path;
    int rc = pl_client_open(&conf, &c, why, sizeof why);
    if (rc) fail_msg("%s (%d)", why, rc);
    return c;
}

/* Answers one task; the status of the pull. */
static inline int answer(pl_client *c, double loss_or_nan) {
    struct pl_client_task t;
    int rc = pl_client_pull(c, 120, &t);
    if (rc) return rc;
    assert_int_equal(t.dim, DIM);
    assert_int_equal(t.wants, PL_WANTS_GRADIENT);
    double loss = bowl(t.w, t.out);
    assert_int_equal(pl_client_push(c, DIM, 1, isnan(loss_or_nan) ? NAN : loss), PL_OK);
    return PL_OK;
}

static inline void work(pl_client *c, double loss_or_nan) {
    int rc;
    while ((rc = answer(c, loss_or_nan)) == PL_OK) continue;
    assert_int_equal(rc, PL_ECANCELLED);
    pl_client_close(c);
}

#endif
