/* Workers and an evaluator for a server that knows nothing of their model:
 *
 *     cc external.c $(pkg-config --cflags --libs paceline) -lm -o external
 *     paceline train --model external:dim=2 --method async --workers 2 --lr 0.05 --time 2 \
 *         --eval-every 0.5 --listen run.socket --requests my-token &
 *     ./external run.socket & ./external run.socket & ./external run.socket evaluate my-token; wait
 *
 * What is trained is a line through noisy points, y = 3 x - 2. The same program works under every
 * method: if a method takes local steps, the library takes them and asks for their gradients. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <paceline_client.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { SLOPE, OFFSET, DIM, BATCH = 16 };

/* A point that depends on its three numbers alone: the same task has the same samples again. */
static void draw(uint64_t worker, uint64_t batch, uint64_t i, double *x, double *y) {
    uint64_t h = (worker * 1000003 + batch) * 1000003 + i;
    for (int round = 0; round < 3; round++) h = (h ^ (h >> 31)) * UINT64_C(0x9e3779b97f4a7c15);
    *x = (double)(h >> 40) / (1 << 24) * 2 - 1;
    *y = 3 * *x - 2 + 0.1 * sin((double)(h & 0xffff));
}

/* Mean squared error over one mini-batch, and its gradient unless g is NULL. */
static double gradient(const float *w, uint64_t worker, uint64_t batch, float *g) {
    double loss = 0, slope = 0, offset = 0;
    for (uint64_t i = 0; i < BATCH; i++) {
        double x, y;
        draw(worker, batch, i, &x, &y);
        double error = (double)w[SLOPE] * x + (double)w[OFFSET] - y;
        loss += error * error / BATCH;
        slope += 2 * error * x / BATCH;
        offset += 2 * error / BATCH;
    }
    if (g) {
        g[SLOPE] = (float)slope;
        g[OFFSET] = (float)offset;
    }
    return loss;
}

static void work(pl_client *client, const struct pl_client_task *task) {
    /* a long computation looks at pl_client_cancelled(client) now and then, and pulls again */
    uint64_t batch = task->task * task->steps + task->step;
    double loss = gradient(task->w, (uint64_t)task->worker, batch, task->out);
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); /* this model is too fast to watch */
    pl_client_push(client, DIM, BATCH, loss);
}

static void evaluate(pl_client *client, const struct pl_client_task *task) {
    double loss = 0;
    for (uint64_t i = 0; i < 100; i++) loss += gradient(task->w, 1000, i, NULL) / 100;
    pl_client_report(client, "test_loss", loss);
    pl_client_report(client, "slope", (double)task->w[SLOPE]);
    pl_client_push(client, 0, 0, NAN);
    fprintf(stderr, "update %llu: y = %.2f x %+.2f\n", (unsigned long long)task->version,
            (double)task->w[SLOPE], (double)task->w[OFFSET]);
}

int main(int argc, char **argv) {
    bool evaluates = argc == 4 && strcmp(argv[2], "evaluate") == 0;
    if (argc != 2 && !evaluates) {
        fprintf(stderr, "usage: external SOCKET [evaluate TOKEN]\n");
        return 2;
    }
    const struct pl_client_conf conf = {.path = argv[1],
                                        .role = evaluates ? PL_ROLE_EVALUATOR : PL_ROLE_WORKER,
                                        .dim = DIM,
                                        .token = evaluates ? argv[3] : NULL};
    struct pl_client_task task;
    pl_client *client;
    char why[400];
    int rc;
    if (pl_client_open(&conf, &client, why, sizeof why)) { /* waits for the server */
        fprintf(stderr, "external: %s\n", why);
        return 1;
    }
    while ((rc = pl_client_pull(client, -1, &task)) == PL_OK || rc == PL_EINTR)
        if (rc == PL_OK) (evaluates ? evaluate : work)(client, &task);
    if (rc != PL_ECANCELLED) fprintf(stderr, "external: %s\n", pl_client_why(client));
    pl_client_close(client);
    return rc == PL_ECANCELLED ? 0 : 1; /* PL_ECANCELLED: the run has ended */
}
