#define _GNU_SOURCE
#include <math.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"

#define PROGRESS_FIRST 0.5 /* seconds before the first line */
#define PROGRESS_EVERY 0.2

static volatile sig_atomic_t progress_signals;

static void progress_on_signal(int number) {
    (void)number;
    if (++progress_signals > 1) _exit(130);
}

void cli_catch_signals(void) {
    struct sigaction act = {.sa_handler = progress_on_signal};
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
}

bool cli_interrupted(void) {
    return progress_signals > 0;
}

static double progress_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void cli_progress_begin(struct cli_progress *p, const char *name, const struct cli_args *args) {
    p->time = args->time;
    p->updates = args->updates;
    snprintf(p->name, sizeof p->name, "%s", name);
    p->loss = p->accuracy = NAN;
    p->next = progress_now() + PROGRESS_FIRST;
}

void cli_progress_point(void *ctx, const struct pl_point *p) {
    struct cli_progress *c = ctx;
    c->loss = p->loss;
    c->accuracy = p->test_accuracy;
}

int cli_progress_tick(void *ctx, const struct pl_point *p) {
    struct cli_progress *c = ctx;
    if (progress_signals) return 1;
    double now = progress_now();
    if (now < c->next) return 0;
    c->next = now + PROGRESS_EVERY;
    if (!isatty(STDERR_FILENO)) return 0;
    char line[240];
    snprintf(line, sizeof line, "%s", c->name);
    double share = fmax(c->time > 0 ? p->time / c->time : 0,
                        c->updates > 0 ? (double)p->updates / c->updates : 0);
    if (share > 0)
        cli_append(line, sizeof line, "%s%3.0f %%", line[0] ? "  " : "", 100 * fmin(share, 1));
    cli_append(line, sizeof line, "  update %llu  %.4g s", (unsigned long long)p->updates, p->time);
    if (isfinite(c->loss)) cli_append(line, sizeof line, "  loss %.4f", c->loss);
    if (isfinite(c->accuracy)) cli_append(line, sizeof line, "  accuracy %.4f", c->accuracy);
    if (p->time > c->at && p->samples >= c->samples)
        cli_append(line, sizeof line, "  %.3g samples/s",
                   (p->samples - c->samples) / (p->time - c->at));
    c->at = p->time;
    c->samples = p->samples;
    cli_append(line, sizeof line, "  K %d  stale %.2f/%llu  workers %d/%d  dropped %llu", p->k,
               isfinite(p->staleness) ? p->staleness : 0, (unsigned long long)p->staleness_max,
               p->workers, p->expected, (unsigned long long)p->dropped);
    struct winsize size = {.ws_col = 80};
    ioctl(STDERR_FILENO, TIOCGWINSZ, &size);
    fprintf(stderr, "\r\033[K%.*s", size.ws_col > 20 ? size.ws_col - 1 : 79, line);
    c->shown = true;
    return 0;
}

void cli_progress_end(struct cli_progress *p) {
    if (p->shown) fputs("\r\033[K", stderr);
    p->shown = false;
}
