/* What is shown while a run goes on, and how a signal ends it. */
#define _GNU_SOURCE
#include <errno.h>
#include <jansson.h>
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
#define PROGRESS_WAIT 2       /* seconds without an evaluation before a file gets a line */
#define PROGRESS_LEAST 1e-3   /* seconds worth showing */
#define PROGRESS_SHARE 0.01   /* of the run, or of its time so far, between two lines of a file, */
#define PROGRESS_LINE 60      /* unless this many seconds have passed */
#define PROGRESS_TENTH 0.1    /* of a run of a race, or of runs whose number may grow */
#define PROGRESS_LARGE 1e5    /* losses have an exponent from here on */
#define PROGRESS_UPDATES 1000 /* the limit of a run that has no other */

#define PROGRESS_SAME_NS 300000000 /* a signal that comes again so soon is no second wish */

/* Atomic because the handler may run on any thread. */
static atomic_int progress_signals, progress_first; /* how many count, and the first one */
static atomic_llong progress_first_ns;

/* `timeout` sends a signal to the program and then to its group, so that it comes twice, and so may
 * the SIGHUP of a terminal that closes. */
int cli_signal(int number) {
    struct timespec t;
    int first = 0;
    clock_gettime(CLOCK_MONOTONIC, &t);
    long long now = t.tv_sec * 1000000000LL + t.tv_nsec, at = atomic_load(&progress_first_ns);
    if (atomic_compare_exchange_strong(&progress_first, &first, number)) {
        atomic_store(&progress_first_ns, now);
        return atomic_fetch_add(&progress_signals, 1) + 1;
    }
    /* at 0, another thread is about to store when the first one came */
    bool again = number == first && (at == 0 || now - at < PROGRESS_SAME_NS);
    if (again || number == SIGHUP) return atomic_load(&progress_signals);
    return atomic_fetch_add(&progress_signals, 1) + 1;
}

#define PROGRESS_ENDING                                                                            \
    "paceline: interrupted; the run is ending, a second signal ends it at once\n"

/* The process whose run answers the first signal with a line; 0: none, or it has. A worker that is
 * being forked is another process. */
static atomic_int progress_teller;
static atomic_bool progress_erases; /* a line that is refreshed */

/* Says once that the run is ending. The handler calls it, because the run may be busy for long. */
static void progress_tell_end(void) {
    int self = (int)getpid();
    if (!atomic_compare_exchange_strong(&progress_teller, &self, 0)) return;
    static const char text[] = CLI_ERASE PROGRESS_ENDING;
    size_t skip = atomic_load(&progress_erases) ? 0 : sizeof CLI_ERASE - 1;
    if (write(STDERR_FILENO, text + skip, sizeof text - 1 - skip) < 0) return; /* nobody reads it */
}

static void progress_on_signal(int number) {
    int before = errno;
    if (cli_signal(number) > 1) _exit(CLI_INTERRUPTED);
    progress_tell_end();
    errno = before;
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

double cli_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* --- what to show -------------------------------------------------------------------------- */

static int progress_into = -1; /* the file that gets the share of this process's run */

void cli_progress_into(int fd) {
    progress_into = fd;
}

void cli_progress_begin(struct cli_progress *p, const char *name, enum cli_progress_how how,
                        pl_setup *setup) {
    *p = (struct cli_progress){.how = how,
                               .time = cli_number(setup, "time"),
                               .updates = cli_number(setup, "updates"),
                               .epochs = cli_number(setup, "epochs"),
                               .begun = NAN,
                               .at = NAN,
                               .next = cli_now() + PROGRESS_FIRST,
                               .wait = cli_now() + PROGRESS_WAIT};
    if (!(p->time > 0) && !(p->updates > 0) && !(p->epochs > 0) && !cli_has_target(setup))
        p->updates = PROGRESS_UPDATES;
    p->refreshes = how != CLI_PROGRESS_QUIET && cli_can_erase() && progress_into < 0;
    if (how == CLI_PROGRESS_PER_RUN && !p->refreshes && progress_into < 0)
        p->next = cli_now() + PROGRESS_LINE;
    snprintf(p->name, sizeof p->name, "%s", name);
}

void cli_progress_tells(const struct cli_progress *p) {
    if (pl_rank() > 0) return;
    atomic_store(&progress_erases, p->refreshes);
    atomic_store(&progress_teller, (int)getpid());
}

void cli_progress_limits(struct cli_progress *p, const char *json) {
    json_t *run = json_loads(json, 0, NULL), *limits = json_object_get(run, "limits");
    p->time = json_number_value(json_object_get(limits, "time")); /* 0 of null */
    p->updates = json_number_value(json_object_get(limits, "updates"));
    p->epochs = json_number_value(json_object_get(limits, "epochs"));
    const char *kind = json_string_value(json_object_get(run, "kind"));
    p->real = kind && strcmp(kind, "train") == 0;
    p->learns = json_is_object(json_object_get(run, "model"));
    json_decref(run);
}

/* The share of the run that is done, by the limit that will end it first; below 0 if
 * unknown. */
static double progress_share(const struct cli_progress *c, const struct pl_point *p) {
    double share = -1;
    if (c->time > 0) share = fmax(share, p->time / c->time);
    if (c->updates > 0) share = fmax(share, (double)p->updates / c->updates);
    if (c->epochs > 0) share = fmax(share, p->epochs / c->epochs);
    return fmin(share, 1);
}

/* --- the line ---------------------------------------------------------------------------- */

#define PROGRESS_FIELDS 14

/* If the terminal is too narrow, the fields of the highest rank are left out first. */
struct progress_line {
    int n;
    struct {
        int rank;
        char text[80];
    } field[PROGRESS_FIELDS];
};

static void progress_field(struct progress_line *l, int rank, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

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

static void progress_begin_eta(struct cli_progress *c, double share) {
    if (!isnan(c->begun)) return;
    c->begun = cli_now();
    c->share_begun = share;
}

/* How long it will still take by the clock, from the share that was done since it began, and at
 * most `left` seconds. */
static void progress_eta(struct progress_line *l, struct cli_progress *c, double share,
                         double left) {
    progress_begin_eta(c, share);
    double now = cli_now(), done = share - c->share_begun;
    if (!(done > 0) || now - c->begun < PROGRESS_FIRST) return;
    double s = fmin((now - c->begun) * (1 - share) / done, left);
    if (s < 60)
        progress_field(l, 2, "ETA %.0f s", ceil(s));
    else if (s < 3600)
        progress_field(l, 2, "ETA %.0f min", ceil(s / 60));
    else if (s < 1e6 * 3600)
        progress_field(l, 2, "ETA %.1f h", s / 3600);
}

/* With four decimals, or with five digits if it is large. */
static void progress_loss(struct progress_line *l, int rank, const char *name, double loss) {
    double size = fabs(loss);
    if (size < PROGRESS_LARGE)
        progress_field(l, rank, "%s %.*f", name, size < 10 ? 4 : 4 - (int)log10(size), loss);
    else
        progress_field(l, rank, "%s %.3e", name, loss);
}

/* Progress and quality first; what tells how it got there follows. */
static void progress_fields(struct progress_line *l, struct cli_progress *c,
                            const struct pl_point *p) {
    double share = c->ended ? -1 : progress_share(c, p);
    double left = c->real && c->time > 0 ? fmax(c->time - p->time, 0) : INFINITY;
    progress_field(l, 5, "%s", c->name);
    if (share >= 0) progress_field(l, 0, "%3.0f %%", floor(100 * share));
    progress_field(l, 1, "%.4g s", p->time < PROGRESS_LEAST ? 0 : p->time);
    if (share >= 0) progress_eta(l, c, share, left);
    if (c->learns && !c->scored) progress_field(l, 3, "not evaluated yet");
    if (c->scored && isfinite(c->last.loss)) progress_loss(l, 3, "loss", c->last.loss);
    if (c->scored && isfinite(c->last.test_accuracy))
        progress_field(l, 4, "accuracy %.4f", c->last.test_accuracy);
    else if (c->scored && isfinite(c->last.test_loss))
        progress_loss(l, 4, "test loss", c->last.test_loss);
    progress_field(l, 6, "update %llu", (unsigned long long)p->updates);
    if (p->time > c->at && p->samples >= c->samples) {
        double rate = (p->samples - c->samples) / (p->time - c->at);
        progress_field(l, 9, rate < 1000 ? "%.3g samples/s" : "%.0f samples/s", rate);
    }
    c->at = p->time;
    c->samples = p->samples;
    progress_field(l, 10, "K %d", p->k);
    progress_field(l, 8, "stale %.2f/%llu", isfinite(p->staleness) ? p->staleness : 0,
                   (unsigned long long)p->staleness_max);
    if (c->replays && p->workers == 0 && p->updates == 0) /* it is before the first event */
        progress_field(l, 7, "workers -/%d", p->expected);
    else
        progress_field(l, 7, "workers %d/%d", p->workers, p->expected);
    progress_field(l, 11, "unused %llu", (unsigned long long)p->unused);
}

/* Prints a line in one piece, so that the messages of others do not end up inside it. */
static void progress_put(const struct cli_progress *c, struct progress_line *line, size_t width) {
    char text[PROGRESS_FIELDS * 82 + 16] = "";
    progress_fit(line, width);
    if (c->refreshes) cli_append(text, sizeof text, CLI_ERASE);
    for (int i = 0; i < line->n; i++)
        cli_append(text, sizeof text, "%s%.*s", i ? "  " : "", (int)width, line->field[i].text);
    cli_append(text, sizeof text, c->refreshes ? "\r" : "\n");
    fputs(text, stderr);
    fflush(stderr);
}

static void progress_print(struct cli_progress *c, const struct pl_point *p, size_t width) {
    struct progress_line line = {.n = 0};
    progress_fields(&line, c, p);
    progress_put(c, &line, width);
}

/* Whether the line is due; it is from time to time. */
static bool progress_is_due(struct cli_progress *c) {
    double now = cli_now();
    if (now < c->next) return false;
    c->next = now + PROGRESS_EVERY;
    return true;
}

static size_t progress_width(void) {
    struct winsize size = {.ws_col = 80};
    ioctl(STDERR_FILENO, TIOCGWINSZ, &size);
    return size.ws_col > 1 ? size.ws_col - 1u : 79u;
}

/* Whether an evaluation gets a line of a file. The last one of a run of a race has it anyway. */
static bool progress_is_far(const struct cli_progress *c, const struct pl_point *p, double share,
                            double now) {
    if (c->how == CLI_PROGRESS_PER_RUN)
        return share < 1 && (share >= c->share + PROGRESS_TENTH || now >= c->next);
    if (isnan(c->at) || now >= c->next) return true;
    return share < 0 ? p->time >= c->at * (1 + PROGRESS_SHARE)
                     : share >= 1 || share >= c->share + PROGRESS_SHARE;
}

void cli_progress_point(void *ctx, const struct pl_point *p) {
    struct cli_progress *c = ctx;
    bool prints = c->how == CLI_PROGRESS_ALL || c->how == CLI_PROGRESS_PER_RUN;
    c->last = *p;
    c->scored = true;
    if (c->refreshes || !prints || progress_into >= 0) return;
    double share = progress_share(c, p), now = cli_now();
    if (!progress_is_far(c, p, share, now)) return;
    c->share = share;
    c->next = now + PROGRESS_LINE;
    progress_print(c, p, 1000);
}

/* The first evaluation may take long; until it has ended, a file gets a line per minute. */
static void progress_before(struct cli_progress *c, const struct pl_point *p) {
    double now = cli_now(), at = c->at;
    bool prints = c->how == CLI_PROGRESS_ALL && !c->refreshes && progress_into < 0;
    if (!prints || !c->learns || c->scored || p->workers == 0 || now < c->wait) return;
    c->wait = now + PROGRESS_LINE;
    progress_print(c, p, 1000);
    c->at = at; /* the first evaluation still gets its line */
}

int cli_progress_tick(void *ctx, const struct pl_point *p) {
    struct cli_progress *c = ctx;
    if (cli_interrupted()) {
        progress_tell_end(); /* if the signal came before the run */
        return 1;
    }
    progress_before(c, p);
    if ((!c->refreshes && progress_into < 0) || !progress_is_due(c)) return 0;
    if (progress_into >= 0)
        dprintf(progress_into, "%.4f\n", fmax(progress_share(c, p), 0));
    else
        progress_print(c, p, progress_width());
    return 0;
}

void cli_progress_tell(int ended, int least) {
    if (progress_into >= 0) dprintf(progress_into, "runs %d %d\n", ended, least);
}

/* Whether enough has been done for a line of a file. As long as the number of runs may grow, only
 * runs that ended count. */
static bool progress_many_is_due(struct cli_progress *c, const struct cli_progress_runs *r) {
    double now = cli_now(), step = (r->known ? PROGRESS_SHARE : PROGRESS_TENTH) * r->least;
    double done = r->ended + (r->known ? r->under_way : 0);
    if (done < c->done + step && !(r->known && done >= r->least && c->done < done) && now < c->next)
        return false;
    c->done = done;
    c->next = now + PROGRESS_LINE;
    return true;
}

void cli_progress_many(struct cli_progress *c, const struct cli_progress_runs *r,
                       const char *under_way) {
    struct progress_line line = {.n = 0};
    double share = r->known && r->least > 0 ? (r->ended + r->under_way) / r->least : -1;
    if (c->how == CLI_PROGRESS_QUIET || r->least < 1) return;
    if (share >= 0) progress_begin_eta(c, share);
    if (c->refreshes ? !progress_is_due(c) : !progress_many_is_due(c, r)) return;
    progress_field(&line, 1, "%d of %s%d runs done", r->ended, r->known ? "" : "at least ",
                   r->least);
    if (share >= 0) progress_field(&line, 0, "%3.0f %%", floor(100 * share));
    if (share >= 0 && share < 1 && r->steady) progress_eta(&line, c, share, INFINITY);
    progress_field(&line, 3, "%s", under_way);
    progress_put(c, &line, c->refreshes ? progress_width() : 1000);
}

void cli_progress_end(struct cli_progress *p) {
    atomic_store(&progress_teller, 0);
    p->ended = true; /* by whatever limit: what share of another one it took is of no interest */
    if (p->refreshes) cli_progress_erase();
    if (!cli_can_erase() && p->how == CLI_PROGRESS_PER_RUN && p->scored)
        progress_print(p, &p->last, 1000);
}
