#include "run/clients.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "learn/replica_mean.h"
#include "run/exchange.h"
#include "run/server_state.h"
#include "run/worker.h"
#include "sys/clock.h"

#define CLIENTS_LAST_NS 60000000000u /* for the last evaluation, and twice what one took so far */
#define CLIENTS_LAST_MAX_NS 600000000000u
#define CLIENTS_SEATED_NS 10000000000u /* without a question, after which the evaluator is away */
#define CLIENTS_NUMBERS 16             /* of an evaluator, besides the score */
#define CLIENTS_NAME 32
#define CLIENTS_UNKNOWN 3 /* requests that are not known, and reported */

/* Whether what an evaluator is shown is not a version, but a mean that is copied for it. */
static bool clients_copies(const struct pl_job *job) {
    return pl_job_peers(job) || job->average.kind != PL_AVERAGE_NONE;
}

int pl_clients_open(struct server *s, struct pl_port_conf *port) {
    const struct pl_server_conf *c = s->conf;
    struct pl_clients *g = &s->clients;
    g->evaluator = (struct pl_clients_evaluator){.seat = -1, .due = true, .version = PL_NOT_SHOWN};
    if (!c->listen && !s->job->model->kind->by_clients) return PL_OK;
    pl_about_job(s->job, c->model, c->fingerprint, c->half, &g->about);
    snprintf(g->about.requests, sizeof g->about.requests, "%s", c->requests ? c->requests : "none");
    snprintf(g->about.job, sizeof g->about.job, "%s", c->job_name ? c->job_name : "");
    if (pl_about_write(&g->about, g->text))
        return pl_fail(s->why, PL_ENOMEM, "the description of the run is too long for its workers");
    port->about = g->text;
    port->admit = pl_about_admits;
    port->admit_ctx = &g->about;
    port->n_evaluators = g->about.needs_evaluator ? 1 : 0;
    port->half = c->half ? PL_HALF_RESULT | PL_HALF_MODEL : 0;
    if (clients_copies(s->job)) port->n_versions += port->n_evaluators + 1; /* and at the end */
    return PL_OK;
}

void pl_clients_result(struct server *s, const struct pl_result *r) {
    if (!isfinite(r->loss)) return;
    if (isnan(s->out->first_loss)) s->out->first_loss = r->loss;
    s->clients.loss += r->loss * r->samples;
    s->clients.samples += r->samples;
}

/* --- scores --------------------------------------------------------------------------------- */

/* Enters a score of the model at *p. Unless the evaluator knows the training loss, it is that of
 * the results since the last score. */
static void clients_enter(struct server *s, struct pl_score *score, struct pl_point *p) {
    struct pl_clients *g = &s->clients;
    if (isnan(score->loss) && g->samples > 0) score->loss = g->loss / g->samples;
    g->loss = g->samples = 0;
    const float *shown = g->evaluator.held.w;
    if (s->saver && shown) pl_saver_scored(s->saver, shown, score, p->updates);
    pl_engine_scored(s->engine, score, p);
}

/* What was shown is held until its numbers have come, so that the model they are about is there. */
static void clients_release(struct server *s) {
    struct pl_clients_evaluator *e = &s->clients.evaluator;
    if (!e->reading && !e->pending && e->held.w) pl_engine_let_go(s->engine, &e->held);
}

/* Shows the model as it is now to the evaluator that asked. */
static void clients_show(struct server *s) {
    struct pl_clients_evaluator *e = &s->clients.evaluator;
    if (clients_copies(s->job) && !e->room && !(e->room = s->ops->vector(s->port, -1))) return;
    uint64_t end_ns = s->clock.end_ns;
    e->shown_at = pl_engine_point(s->engine, end_ns > 0 ? end_ns : pl_server_now(s));
    if (pl_server_model(s, e->room, &e->held)) {
        e->held = (struct pl_model_now){.w = NULL};
        return;
    }
    struct pl_order order = {0};
    pl_note_pack(&order,
                 &(struct pl_run_note){.version = e->shown_at.updates, .lr = s->job->rate.lr});
    e->shown_at.consensus = e->held.consensus;
    e->reading = s->conf->transport->clients->show(s->port, e->seat, e->held.w, order.note);
    if (!e->reading) {
        pl_engine_let_go(s->engine, &e->held);
        return;
    }
    e->pending = true;
    e->version = e->shown_at.updates;
    e->shown_ns = pl_server_now(s);
}

/* Whether it has not been shown the newest version. */
static bool clients_newer(const struct server *s) {
    uint64_t shown = s->clients.evaluator.version;
    return shown == PL_NOT_SHOWN || s->view->version > shown;
}

/* If numbers are pending, they will not come: the version must be shown again. */
static void clients_give_up(struct server *s) {
    struct pl_clients_evaluator *e = &s->clients.evaluator;
    if (e->pending) {
        e->pending = false;
        e->version = PL_NOT_SHOWN;
        e->due = true;
    }
    clients_release(s);
}

/* Whether the evaluator is there: it asks, or evaluates. */
static bool clients_seated(struct server *s, uint64_t now) {
    struct pl_clients_evaluator *e = &s->clients.evaluator;
    if (e->seat < 0 || !s->conf->transport->clients->is_client(s->port, e->seat)) {
        e->seat = -1;
        clients_give_up(s);
        return false;
    }
    return e->pending || now < e->asked_ns + CLIENTS_SEATED_NS;
}

/* Questions are answered when they come or never: an evaluator that stops waiting asks again. */
static void clients_ask(struct server *s, int evaluator) {
    struct pl_clients_evaluator *e = &s->clients.evaluator;
    e->asked_ns = pl_server_begun(s) ? pl_server_now(s) : s->clock.last_ns;
    e->seat = evaluator;
    clients_give_up(s); /* it did not see what was shown, or joined again */
    /* before the beginning, the clock of the run does not go */
    if (!pl_server_begun(s) || !e->due || e->reading || !clients_newer(s)) return;
    e->due = false;
    clients_show(s);
}

static void clients_done(struct server *s) {
    s->clients.evaluator.reading = false;
    clients_release(s);
}

void pl_clients_score(struct server *s, uint64_t now) {
    if (!pl_engine_score_due(s->engine, now)) return;
    s->clients.evaluator.due = true;
    if (clients_seated(s, now) || s->clients.samples <= 0) return;
    struct pl_score score = {NAN, NAN, NAN};
    struct pl_point p = pl_engine_point(s->engine, now);
    clients_enter(s, &score, &p);
}

/* --- words ---------------------------------------------------------------------------------- */

/* An infinite number is one of a run that diverged; scores have NAN instead. */
static void clients_test_loss(struct pl_outcome *out, double loss) {
    if (isnan(loss)) return;
    if (isnan(out->first_test_loss) && isfinite(loss)) out->first_test_loss = loss;
    out->last_test_loss = loss;
}

static double clients_finite(double x) {
    return isfinite(x) ? x : (double)NAN;
}

/* Numbers of an evaluator that are not of a score. */
struct clients_more {
    struct pl_number at[CLIENTS_NUMBERS];
    char name[CLIENTS_NUMBERS][CLIENTS_NAME];
    int n;
};

/* Reads " name=value …": the numbers of a score, and others. */
static bool clients_numbers(const char *at, struct pl_score *score, struct clients_more *more) {
    const struct {
        const char *name;
        double *to;
    } known[] = {{"loss", &score->loss},
                 {"test_loss", &score->test_loss},
                 {"test_accuracy", &score->test_accuracy}};
    more->n = 0;
    for (at += strspn(at, " "); *at; at += strspn(at, " ")) {
        char *end;
        size_t n = strcspn(at, "= ");
        if (n == 0 || n >= CLIENTS_NAME || at[n] != '=') return false;
        double value = strtod(at + n + 1, &end);
        if (end == at + n + 1 || (*end && *end != ' ')) return false;
        if (!pl_about_can_be(at, n, value)) return false;
        bool found = false;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            if (strlen(known[i].name) == n && memcmp(known[i].name, at, n) == 0) {
                *known[i].to = value;
                found = true;
            }
        if (!found) {
            if (more->n == CLIENTS_NUMBERS) return false;
            char *name = more->name[more->n];
            snprintf(name, CLIENTS_NAME, "%.*s", (int)n, at);
            more->at[more->n++] = (struct pl_number){name, value};
        }
        at = end;
    }
    return true;
}

/* "score VERSION name=value …" */
static bool clients_scored(struct server *s, const char *args) {
    struct pl_clients_evaluator *e = &s->clients.evaluator;
    struct pl_score score = {NAN, NAN, NAN};
    struct clients_more more;
    char *end;
    if (!isdigit((unsigned char)*args)) return false;
    uint64_t version = strtoull(args, &end, 10), took = pl_server_now(s) - e->shown_ns;
    bool sound = clients_numbers(end, &score, &more);
    if (!e->pending || version != e->shown_at.updates) return sound; /* late */
    if (!sound || !*end) { /* it could not evaluate this version */
        e->pending = false;
        clients_release(s);
        return sound;
    }
    e->any = true;
    clients_test_loss(s->out, score.test_loss);
    score = (struct pl_score){clients_finite(score.loss), clients_finite(score.test_loss),
                              clients_finite(score.test_accuracy)};
    if (took > e->longest_ns) e->longest_ns = took;
    e->shown_at.more = more.at;
    e->shown_at.n_more = more.n;
    clients_enter(s, &score, &e->shown_at);
    e->shown_at.n_more = 0;
    e->pending = false;
    clients_release(s);
    return true;
}

static struct pl_who clients_who(const struct server *s, int client) {
    if (client < s->job->n_workers) return pl_log_who(&s->job->log, client);
    return (struct pl_who){"the evaluator"};
}

static bool clients_set_lr(struct server *s, int client, double lr) {
    if (!(lr >= 0 && lr <= 1e6)) return false;
    if (!s->clients.told_lr && lr != s->job->rate.lr) {
        s->clients.told_lr = true; /* schedules change it with every update */
        pl_log_detail(
            &s->job->log,
            "%s set the learning rate to %g, from %g; further changes will not be reported",
            clients_who(s, client).text, lr, s->job->rate.lr);
    }
    pl_engine_set_lr(s->engine, lr);
    return true;
}

static bool clients_lr(struct server *s, int client, const char *args) {
    char *end;
    double lr = strtod(args, &end);
    return end != args && !*end && clients_set_lr(s, client, lr);
}

void pl_clients_lr(struct server *s, int worker, double lr) {
    const struct pl_client_ops *clients = s->conf->transport->clients;
    if (clients && clients->is_client(s->port, worker)) clients_set_lr(s, worker, lr);
}

/* Says that a request is carried out: the first of its kind, because programs repeat it. */
static void clients_tell(const struct server *s, const char *client, const char *what, bool *told) {
    if (!*told)
        pl_log_detail(&s->job->log, "%s asked for %s; further requests will not be reported",
                      client, what);
    *told = true;
}

static bool clients_checkpoint(struct server *s, const char *client) {
    struct pl_clients *g = &s->clients;
    if (s->saver) {
        clients_tell(s, client, "a checkpoint", &g->told_checkpoint);
        pl_saver_ask(s->saver);
        pl_saver_poll(s->saver, s->engine, pl_server_now(s));
    } else if (!s->conf->save.dir && !g->told_no_saver) {
        g->told_no_saver = true;
        pl_log_warn(&s->job->log,
                    "%s asks for a checkpoint, but there is no folder for it; give "
                    "--checkpoint DIR",
                    client);
    }
    return true;
}

static void clients_word(struct server *s, int client, const char *word) {
    const struct pl_who who = clients_who(s, client);
    bool known = false;
    if (strncmp(word, "score ", 6) == 0 && client >= s->job->n_workers)
        known = clients_scored(s, word + 6);
    else if (strncmp(word, "lr ", 3) == 0)
        known = clients_lr(s, client, word + 3);
    else if (strcmp(word, "checkpoint") == 0)
        known = clients_checkpoint(s, who.text);
    else if (client < s->job->n_workers &&
             (strcmp(word, "pause") == 0 || strcmp(word, "resume") == 0)) {
        pl_engine_pause(s->engine, client, *word == 'p', pl_server_now(s));
        known = true;
    } else if (strcmp(word, "save") == 0) {
        clients_tell(s, who.text, "the state of the optimizer", &s->clients.told_save);
        pl_exchange_save(s);
        known = true;
    } else if (strcmp(word, "load") == 0) {
        clients_tell(s, who.text, "another state of the run", &s->clients.told_load);
        pl_exchange_load(s);
        known = true;
    } else if (strcmp(word, "end") == 0) {
        pl_log_detail(&s->job->log, "%s ended the run after update %llu", who.text,
                      (unsigned long long)s->view->version);
        pl_membership_left(&s->membership, false); /* they knew */
        pl_engine_end(s->engine);
        known = true;
    }
    if (known || s->clients.n_unknown == CLIENTS_UNKNOWN) return;
    pl_log_warn(&s->job->log, "%s sent a request that makes no sense: %.60s%s", who.text, word,
                ++s->clients.n_unknown == CLIENTS_UNKNOWN ? "; further ones will not be reported"
                                                          : "");
}

void pl_clients_news(struct server *s, const struct pl_news *news) {
    if (news->kind == PL_NEWS_WORD) clients_word(s, news->worker, news->word);
    if (news->kind == PL_NEWS_ASK) clients_ask(s, news->worker);
    if (news->kind == PL_NEWS_DONE) clients_done(s);
}

/* --- the end -------------------------------------------------------------------------------- */

/* Workers may still ask for the final state. Everything else they say comes too late. */
static void clients_last(struct server *s, const struct pl_news *news) {
    bool asks = news->kind == PL_NEWS_WORD &&
                (strcmp(news->word, "save") == 0 || strcmp(news->word, "load") == 0);
    if (asks || news->worker >= s->job->n_workers) pl_clients_news(s, news);
}

/* An evaluator that has joined, and has not asked yet, will. */
static void clients_expect(struct server *s) {
    struct pl_clients_evaluator *e = &s->clients.evaluator;
    if (e->seat >= 0 || !s->conf->transport->clients->is_client(s->port, s->job->n_workers)) return;
    e->seat = s->job->n_workers;
    e->asked_ns = pl_server_now(s);
}

/* Workers that find that the run has ended find the model that it ended with. */
static void clients_final(struct server *s) {
    const struct pl_client_ops *clients = s->conf->transport->clients;
    struct pl_order order = {0};
    float *copy;
    if (!clients || !clients->final || !s->end.w) return;
    pl_note_pack(&order, &(struct pl_run_note){.version = s->view->version});
    if (clients->final(s->port, s->end.w, order.note)) return;
    if (!(copy = s->ops->vector(s->port, -1))) return;
    memcpy(copy, s->end.w, s->job->model->dim * sizeof *copy);
    clients->final(s->port, copy, order.note);
}

void pl_clients_end(struct server *s) {
    struct pl_clients_evaluator *e = &s->clients.evaluator;
    clients_final(s);
    uint64_t limit = 2 * e->longest_ns + CLIENTS_LAST_NS;
    uint64_t until = pl_now_ns() + (limit < CLIENTS_LAST_MAX_NS ? limit : CLIENTS_LAST_MAX_NS);
    if (!s->clients.about.needs_evaluator) return;
    clients_expect(s);
    e->due = true; /* whatever was shown last */
    while (clients_seated(s, pl_server_now(s)) && (e->pending || clients_newer(s)) &&
           pl_now_ns() < until) {
        struct pl_news news;
        s->ops->news(s->port, SERVER_TICK, &news);
        clients_last(s, &news);
        struct pl_point p = pl_engine_point(s->engine, s->clock.end_ns);
        if (s->conf->watch.tick && s->conf->watch.tick(s->conf->watch.ctx, &p)) break;
    }
    if (e->any || pl_engine_has_score(s->engine)) return;
    struct pl_score score = {NAN, NAN, NAN};
    struct pl_point p = pl_engine_point(s->engine, s->clock.end_ns);
    p.consensus = s->end.consensus;
    clients_enter(s, &score, &p);
}
