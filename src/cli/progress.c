#define _GNU_SOURCE
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"

#define PROGRESS_FIRST 0.5 /* seconds before the first line */
#define PROGRESS_EVERY 0.2

/* Atomic because the handler may run on any thread. */
static atomic_int progress_signals;

/* A terminal that closes may send SIGHUP twice; only another signal after the first ends at once.
 */
static void progress_on_signal(int number) {
    int none = 0;
    if (number == SIGHUP)
        atomic_compare_exchange_strong(&progress_signals, &none, 1);
    else if (atomic_fetch_add(&progress_signals, 1) > 0)
        _exit(130);
}

void cli_catch_signals(void) {
    struct sigaction act = {.sa_handler = progress_on_signal};
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    struct sigaction before; /* nohup ignores SIGHUP, and that is kept */
    if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
        sigaction(SIGHUP, &act, NULL);
}

bool cli_interrupted(void) {
    return atomic_load(&progress_signals) > 0;
}

static double progress_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void cli_progress_begin(struct cli_progress *p, const char *name, pl_setup *setup) {
    p->time = cli_number(setup, "time");
    p->updates = cli_number(setup, "updates");
    snprintf(p->name, sizeof p->name, "%s", name);
    p->loss = p->accuracy = NAN;
    p->at = p->samples = 0;
    p->next = progress_now() + PROGRESS_FIRST;
}

void cli_progress_point(void *ctx, const struct pl_point *p) {
    struct cli_progress *c = ctx;
    c->loss = p->loss;
    c->accuracy = p->test_accuracy;
}

/* --- the line ---------------------------------------------------------------------------- */

#define PROGRESS_FIELDS 12

/* If the terminal is too narrow, the fields of the highest rank are left out first. */
struct progress_line {
    int n;
    struct {
        int rank;
        char text[80];
    } field[PROGRESS_FIELDS];
};

static void progress_field(struct progress_line *l, int rank, const char *fmt, ...) {
    va_list ap;
    if (l->n == PROGRESS_FIELDS) return;
    l->field[l->n].rank = rank;
    va_start(ap, fmt);
    vsnprintf(l->field[l->n].text, sizeof l->field[l->n].text, fmt, ap);
    va_end(ap);
    if (l->field[l->n].text[0]) l->n++;
}

/* Removes fields until the rest, joined by two blanks, fits into `width`. */
static void progress_fit(struct progress_line *l, size_t width) {
    for (;;) {
        size_t length = 0;
        int worst = 0;
        for (int i = 0; i < l->n; i++) {
            length += strlen(l->field[i].text) + (i ? 2 : 0);
            if (l->field[i].rank >= l->field[worst].rank) worst = i;
        }
        if (length <= width || l->n < 2) return;
        l->n--;
        memmove(&l->field[worst], &l->field[worst + 1], (size_t)(l->n - worst) * sizeof *l->field);
    }
}

static void progress_fields(struct progress_line *l, struct cli_progress *c,
                            const struct pl_point *p) {
    double share = fmax(c->time > 0 ? p->time / c->time : 0,
                        c->updates > 0 ? (double)p->updates / c->updates : 0);
    progress_field(l, 5, "%s", c->name);
    if (share > 0) progress_field(l, 6, "%3.0f %%", 100 * fmin(share, 1));
    progress_field(l, 0, "update %llu", (unsigned long long)p->updates);
    progress_field(l, 9, "%.4g s", p->time);
    if (isfinite(c->loss)) progress_field(l, 1, "loss %.4f", c->loss);
    if (isfinite(c->accuracy)) progress_field(l, 7, "accuracy %.4f", c->accuracy);
    if (p->time > c->at && p->samples >= c->samples) {
        double rate = (p->samples - c->samples) / (p->time - c->at);
        progress_field(l, 4, rate < 1000 ? "%.3g samples/s" : "%.0f samples/s", rate);
    }
    c->at = p->time;
    c->samples = p->samples;
    progress_field(l, 8, "K %d", p->k);
    progress_field(l, 3, "stale %.2f/%llu", isfinite(p->staleness) ? p->staleness : 0,
                   (unsigned long long)p->staleness_max);
    progress_field(l, 2, "workers %d/%d", p->workers, p->expected);
    progress_field(l, 3, "dropped %llu", (unsigned long long)p->dropped);
}

int cli_progress_tick(void *ctx, const struct pl_point *p) {
    struct cli_progress *c = ctx;
    if (cli_interrupted()) return 1;
    double now = progress_now();
    if (now < c->next) return 0;
    c->next = now + PROGRESS_EVERY;
    if (c->quiet || !isatty(STDERR_FILENO)) return 0;
    struct progress_line line = {0};
    struct winsize size = {.ws_col = 80};
    ioctl(STDERR_FILENO, TIOCGWINSZ, &size);
    int width = size.ws_col > 20 ? size.ws_col - 1 : 79;
    progress_fields(&line, c, p);
    progress_fit(&line, (size_t)width);
    fputs("\r\033[K", stderr);
    for (int i = 0; i < line.n; i++)
        fprintf(stderr, "%s%.*s", i ? "  " : "", width, line.field[i].text);
    c->shown = true;
    return 0;
}

void cli_progress_end(struct cli_progress *p) {
    if (p->shown) fputs("\r\033[K", stderr);
    p->shown = false;
}
