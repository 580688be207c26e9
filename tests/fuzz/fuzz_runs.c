/* Contents that are hostile although their checksums are right: recordings and the state in a
 * checkpoint, as they are read (events, state) and with the whole run that they drive (replay,
 * resume); and requests from workers. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "api/setup.h"
#include "fuzz.h"
#include "run/server_state.h"
#include "sim/sim.h"
#include "timing/measured.h"
#include "timing/recording.h"

#define WORKERS 3
#define EVENTS 64
#define TICKS 100

static const char *const methods[] = {
    "sync",           "async",   "kasync:k=2", "kbatchsync:k=2", "ssp",    "rennala", "abs",
    "local-sgd",      "ad-psgd", "sgp",        "basgd",          "kardam", "dc-asgd", "easgd",
    "gap-aware",      "dana",    "ringmaster", "krum",           "gosgd",  "pssp",    "cocod",
    "adasync-kasync", "diloco",  "backup",
};
#define N_METHODS (sizeof methods / sizeof *methods)

static pl_setup *setup_of(const char *method) {
    pl_setup *s = NULL;
    FUZZ_MUST(pl_setup_new(&s) == 0);
    FUZZ_MUST(pl_setup_set(s, "method", method) == 0);
    FUZZ_MUST(pl_setup_set(s, "model", "quadratic:dim=4") == 0);
    FUZZ_MUST(pl_setup_set(s, "workers", "3") == 0);
    FUZZ_MUST(pl_setup_set(s, "updates", "50") == 0);
    FUZZ_MUST(pl_setup_set(s, "threads", "1") == 0);
    return s;
}

/* --- recordings --------------------------------------------------------------------------- */

static uint8_t file[4096 + 56 * EVENTS];
static size_t file_n;

static void put(uint64_t x, int bytes) {
    for (; bytes > 0; bytes--, x >>= 8) file[file_n++] = (uint8_t)x;
}

/* The format of docs/recording.md; the input decides what happened when. */
static const char *write_recording(const char *text, struct fuzz_piece *rest) {
    uint64_t now = 0, task[WORKERS] = {0};
    memcpy(file, "\x89PLREC\r\n", 8);
    file_n = 8;
    put(1, 4);
    put(WORKERS, 4);
    put(1, 4);
    put(strlen(text), 4);
    memcpy(file + file_n, text, strlen(text));
    file_n += strlen(text);
    uint32_t crc = (uint32_t)crc32(0, file, (uInt)file_n);
    put(crc, 4);
    for (int i = 0; i < EVENTS && rest->n > 0; i++) {
        uint8_t link[4] = {(uint8_t)crc, (uint8_t)(crc >> 8), (uint8_t)(crc >> 16),
                           (uint8_t)(crc >> 24)};
        size_t from = file_n;
        uint64_t what = fuzz_number(rest, 1), worker = (what >> 3) % WORKERS, odd = what >> 5;
        now += odd == 1 ? fuzz_number(rest, 8) : fuzz_number(rest, 1) * 100000000;
        task[worker] += (what & 7) == 2;
        put(what & 7, 4);
        put(odd == 2 ? fuzz_number(rest, 4) : worker, 4);
        put(now, 8);
        put(odd == 3 ? fuzz_number(rest, 8) : task[worker], 8);
        put(odd == 4 ? fuzz_number(rest, 8) : 0, 8);
        put(0, 8);
        put(odd == 5 ? fuzz_number(rest, 8) : 0, 8);
        put(odd == 6 ? fuzz_number(rest, 4) : 1, 4);
        crc = (uint32_t)crc32(crc32(0, link, 4), file + from, 52);
        put(crc, 4);
    }
    return fuzz_file(0, file, file_n);
}

void fuzz_recording(const char *path) {
    struct pl_recording r;
    struct pl_measured *m = NULL;
    struct pl_why why = {.text = ""};
    char line[100];
    pl_recording_is(path);
    if (pl_recording_read(path, &r, &why)) {
        FUZZ_MUST(why.text[0]);
        return;
    }
    for (size_t i = 0; i < r.n_events; i++)
        FUZZ_MUST(r.event[i].worker >= 0 && r.event[i].worker < r.n_workers);
    pl_recording_line(r.text, "method", line, sizeof line);
    pl_recording_free(&r);
    if (pl_measured_recording(path, &m, &why) == 0) pl_measured_free(m);
}

static void events(const uint8_t *data, size_t n) {
    struct fuzz_piece rest = {data, n};
    fuzz_recording(write_recording("method=async\nworkers=3\n", &rest));
}

static void replay(const uint8_t *data, size_t n) {
    struct fuzz_piece rest = {data, n};
    pl_setup *s = setup_of(methods[fuzz_number(&rest, 1) % N_METHODS]);
    char *text = NULL;
    pl_run *run = NULL;
    FUZZ_MUST(pl_setup_text(s, &text) == 0 && strlen(text) < 4000);
    if (pl_replay(s, write_recording(text, &rest), &run) == 0) {
        FUZZ_MUST(pl_run_text(run, "replay") != NULL);
        FUZZ_MUST(pl_run_json(run) != NULL);
    } else {
        FUZZ_MUST(pl_setup_why(s)[0]);
    }
    pl_run_free(run);
    pl_setup_free(s);
    free(text);
}

/* --- the state in checkpoints
 * ------------------------------------------------------------------------------- */

static size_t fill(struct fuzz_piece *rest, void *v, size_t n, size_t size) {
    uint64_t how = fuzz_number(rest, 1);
    size_t saved = how == 255 ? 0 : how == 254 ? n / 2 : n;
    if (how < 64) { /* as a run would have it at its start */
        memset(v, 0, saved * size);
        return saved;
    }
    for (size_t i = 0; i < saved * size; i++)
        ((uint8_t *)v)[i] = (uint8_t)(how < 128 && i % size ? 0 : fuzz_number(rest, 1));
    return saved;
}

static size_t piece(void *ctx, const char *name, enum pl_archive_kind kind, void *v, size_t n) {
    (void)name;
    return fill(ctx, v, n, pl_archive_size(kind));
}

static int n_ticks;

static int tick(void *ctx, const struct pl_point *p) {
    (void)ctx, (void)p;
    return ++n_ticks > TICKS;
}

/* What lives as long as the process. */
static struct pl_built *built_of(size_t method) {
    static struct pl_built built[N_METHODS];
    static pl_setup *setup[N_METHODS];
    if (!setup[method]) {
        setup[method] = setup_of(methods[method]);
        FUZZ_MUST(pl_build(setup[method], PL_HOST_VIRTUAL, &built[method]) == 0);
    }
    return &built[method];
}

static void resume(const uint8_t *data, size_t n) {
    struct fuzz_piece rest = {data, n};
    struct pl_built *b = built_of((size_t)fuzz_number(&rest, 1) % N_METHODS);
    float weights[4];
    struct pl_why why = {.text = ""};
    struct pl_outcome out;
    for (int i = 0; i < 4; i++) weights[i] = (float)(int8_t)fuzz_number(&rest, 1);
    struct pl_sim_from from = {.archive = {true, &rest, piece}, .weights = weights};
    struct pl_sim_conf conf = {.job = &b->job, .watch = {NULL, tick, NULL}, .from = &from};
    n_ticks = 0;
    if (pl_sim_run(&conf, &out, &why)) FUZZ_MUST(why.text[0]);
    free(out.weights);
}

/* --- engines ------------------------------------------------------------------------------- */

static int start(void *ctx, const struct pl_start *s) {
    (void)ctx, (void)s;
    return PL_OK;
}

static void cancel(void *ctx, int worker) {
    (void)ctx, (void)worker;
}

static struct pl_engine *engine_of(const struct pl_built *b, const float *w0,
                                   struct pl_outcome *out) {
    struct pl_engine_conf conf = {.job = &b->job, .host = {.start = start, .cancel = cancel}};
    struct pl_engine *e = NULL;
    struct pl_why why = {.text = ""};
    *out = pl_outcome_none();
    FUZZ_MUST(pl_engine_new(&conf, w0, out, &e, &why) == 0);
    return e;
}

/* What is read from a checkpoint, and the first events after it. */
static void state(const uint8_t *data, size_t n) {
    struct fuzz_piece rest = {data, n};
    const struct pl_built *b = built_of((size_t)fuzz_number(&rest, 1) % N_METHODS);
    const float w0[4] = {1, 2, 3, 4};
    struct pl_outcome out;
    struct pl_why why = {.text = ""};
    struct pl_archive archive = {true, &rest, piece};
    struct pl_engine *e = engine_of(b, w0, &out);
    int rc = pl_engine_archive(e, &archive);
    const struct pl_view *v = pl_engine_view(e);
    for (int w = 0; !rc && w < WORKERS; w++) {
        struct pl_event join = {.kind = PL_JOIN, .worker = w, .now_ns = v->now_ns};
        rc = pl_engine_event(e, &join, NULL, &why);
    }
    pl_engine_free(e);
}

/* Lines, each with a byte for its sender. They come as the transport delivers them: printable. */
static void request(const uint8_t *data, size_t n) {
    static struct pl_engine *engine; /* of many inputs */
    static struct pl_outcome out;
    struct fuzz_piece rest = {data, n};
    const struct pl_built *b = built_of(1);
    struct pl_why why = {.text = ""};
    const float w0[4] = {1, 2, 3, 4};
    struct pl_server_conf conf = {.job = &b->job};
    struct server s = {
        .conf = &conf, .job = &b->job, .why = &why, .out = &out, .clock = {.tick_ns = 1}};
    struct pl_membership_worker workers[WORKERS] = {0};
    s.membership = (struct pl_membership){.job = &b->job, .worker = workers};
    if (!engine) engine = engine_of(b, w0, &out);
    pl_engine_set_lr(engine, b->job.rate.lr);
    s.engine = engine;
    s.view = pl_engine_view(s.engine);
    s.clients.evaluator.seat = -1;
    while (rest.n > 0) {
        char word[PL_WORD_MAX];
        size_t length = 0;
        int client = (int)(fuzz_number(&rest, 1) % (WORKERS + 1));
        s.clients.evaluator.pending = client == WORKERS; /* an evaluator's numbers are awaited */
        while (rest.n > 0 && length + 1 < sizeof word) {
            int c = (int)fuzz_number(&rest, 1);
            if (c == '\n') break;
            word[length++] = (char)(c < 32 || c == 127 ? ' ' : c);
        }
        word[length] = '\0';
        if (length == 0) continue;
        pl_clients_news(&s,
                        &(struct pl_news){.kind = PL_NEWS_WORD, .worker = client, .word = word});
    }
    FUZZ_MUST(s.view->version == 0);
    if (!pl_engine_ended(engine)) return;
    pl_engine_free(engine);
    engine = NULL;
}

const struct fuzz_target fuzz_runs[] = {{"events", events}, {"replay", replay},   {"state", state},
                                        {"resume", resume}, {"request", request}, {NULL, NULL}};
