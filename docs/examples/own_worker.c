/* A run whose workers are other programs, over shared memory:
 *
 *     cc own_worker.c $(pkg-config --cflags --libs paceline) -lm -o own_worker
 *     ./own_worker serve run.socket &       # decides, updates, prints one JSON object at the end
 *     ./own_worker work run.socket &        # computes; start as many as you like, at any time
 *     ./own_worker work run.socket
 *
 * What is trained is a line through noisy points, y = 3 x - 2: small enough to see everything, and
 * a worker could as well be a program that keeps its data, or its accelerator, to itself. */
#include <math.h>
#include <paceline_client.h>
#include <stdio.h>
#include <string.h>

enum { SLOPE, OFFSET, DIM };
enum { BATCH = 16 };

/* A point that depends on its three numbers alone: the same task has the same samples again. */
static void draw(uint64_t worker, uint64_t task, uint64_t i, double *x, double *y) {
    uint64_t h = (worker * 1000003 + task) * 1000003 + i;
    for (int round = 0; round < 3; round++) h = (h ^ (h >> 31)) * UINT64_C(0x9e3779b97f4a7c15);
    *x = (double)(h >> 40) / (1 << 24) * 2 - 1;
    *y = 3 * *x - 2 + 0.1 * sin((double)(h & 0xffff));
}

/* Mean squared error over one mini-batch, and its gradient. */
static double gradient(const float *w, uint64_t worker, uint64_t task, float *g) {
    double loss = 0, slope = 0, offset = 0;
    for (uint64_t i = 0; i < BATCH; i++) {
        double x, y;
        draw(worker, task, i, &x, &y);
        double error = (double)w[SLOPE] * x + (double)w[OFFSET] - y;
        loss += error * error;
        slope += 2 * error * x;
        offset += 2 * error;
    }
    g[SLOPE] = (float)(slope / BATCH);
    g[OFFSET] = (float)(offset / BATCH);
    return loss / BATCH;
}

/* --- the server -------------------------------------------------------------------------- */

/* The server has the function as well: it evaluates the model with it, now and then. */
static int evaluate(void *ctx, const float *w, const struct pl_samples *s, float *g, double *loss) {
    (void)ctx;
    *loss = gradient(w, s->worker, s->batch_no, g);
    return PL_OK;
}

static void say(void *ctx, int level, const char *sentence) {
    (void)ctx;
    fprintf(stderr, "%s%s\n", level == PL_WARNING ? "warning: " : "", sentence);
}

static int serve(const char *path) {
    const struct pl_function f = {.dim = DIM, .gradient = evaluate};
    const char *options[][2] = {{"method", "async"}, {"workers", "2"},  {"lr", "0.05"},
                                {"updates", "400"},  {"spawn", "none"}, {"listen", path}};
    pl_setup *setup;
    pl_run *run = NULL;
    if (pl_setup_new(&setup)) return 1;
    int rc = pl_setup_function(setup, &f);
    for (size_t i = 0; !rc && i < sizeof options / sizeof *options; i++)
        rc = pl_setup_set(setup, options[i][0], options[i][1]);
    pl_setup_log(setup, say, NULL);
    if (!rc) rc = pl_train(setup, &run); /* returns when 400 updates are made */
    if (rc) {
        fprintf(stderr, "%s\n", pl_setup_why(setup));
    } else {
        size_t n;
        const float *w = pl_run_weights(run, &n);
        fprintf(stderr, "y = %.2f x %+.2f\n", (double)w[SLOPE], (double)w[OFFSET]);
        puts(pl_run_json(run));
    }
    pl_run_free(run);
    pl_setup_free(setup);
    return rc ? 1 : 0;
}

/* --- a worker ---------------------------------------------------------------------------- */

static int work(const char *path) {
    struct pl_client_task task = {0};
    pl_client *client;
    char why[400];
    unsigned long n = 0;
    const struct pl_client_conf conf = {.path = path, .dim = DIM};
    if (pl_client_open(&conf, &client, why, sizeof why)) { /* waits for the server */
        fprintf(stderr, "%s\n", why);
        return 1;
    }
    while (pl_client_pull(client, -1, &task) == PL_OK) { /* sleeps until there is something to do */
        /* long computations look at pl_client_cancelled(client) now and then, and pull again */
        double loss = gradient(task.w, (uint64_t)task.worker, task.task, task.out);
        pl_client_push(client, DIM, BATCH, loss);
        n++;
    }
    pl_client_close(client); /* the run is over, or its server is gone */
    if (n > 0) fprintf(stderr, "worker %d: %lu gradients\n", task.worker + 1, n);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "serve") == 0) return serve(argv[2]);
    if (argc == 3 && strcmp(argv[1], "work") == 0) return work(argv[2]);
    fprintf(stderr, "usage: own_worker serve|work SOCKET\n");
    return 2;
}
