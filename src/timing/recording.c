/* Writes and reads recordings; docs/recording.md describes the format. */
#include "timing/recording.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <zlib.h>

#include "base/input.h"

#define RECORDING_VERSION 1
#define RECORDING_HEAD 24       /* bytes of the header before the text */
#define RECORDING_EVENT 56      /* bytes of an event */
#define RECORDING_BUFFER 65536  /* bytes buffered before a write */
#define RECORDING_MAX 0x1p32    /* largest file accepted: about seventy million events */
#define RECORDING_END_NS 9e18   /* limit of times: 285 years */
#define RECORDING_STEPS_MAX 1e9 /* mini-batches per task */

static const uint8_t recording_magic[8] = {0x89, 'P', 'L', 'R', 'E', 'C', '\r', '\n'};

/* Kinds of events in a file; those of control are numbered as in enum pl_event_kind, from 1. */
enum {
    RECORDED_JOIN = 1,
    RECORDED_ARRIVE,
    RECORDED_REJECT,
    RECORDED_LEAVE,
    RECORDED_END, /* takes the number of PL_MEASURED, which is never recorded */
    RECORDED_TIMER,
    RECORDED_MADE,
    RECORDED_SCORED
};
_Static_assert((int)RECORDED_SCORED == (int)PL_SCORED + 1, "kinds are numbered as in control");

/* --- bytes ------------------------------------------------------------------------------- */

static void recording_put_u32(uint8_t *at, uint32_t x) {
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(x >> 8 * i);
}

static void recording_put_u64(uint8_t *at, uint64_t x) {
    for (int i = 0; i < 8; i++) at[i] = (uint8_t)(x >> 8 * i);
}

static uint32_t recording_get_u32(const uint8_t *at) {
    uint32_t x = 0;
    for (int i = 0; i < 4; i++) x |= (uint32_t)at[i] << 8 * i;
    return x;
}

static uint64_t recording_get_u64(const uint8_t *at) {
    return recording_get_u32(at) | (uint64_t)recording_get_u32(at + 4) << 32;
}

static uint32_t recording_crc(uint32_t crc, const uint8_t *at, size_t n) {
    return (uint32_t)crc32(crc, at, (uInt)n);
}

/* The checksum of an event covers the previous checksum, and so everything before it. */
static uint32_t recording_chain(uint32_t before, const uint8_t *event) {
    uint8_t link[4];
    recording_put_u32(link, before);
    return recording_crc(recording_crc(0, link, sizeof link), event, RECORDING_EVENT - 4);
}

/* The same for writing: eight bytes at a time by tables, which takes a quarter of zlib's time for
 * so few bytes. Readers use zlib, so the two implementations check each other. */
struct recording_tables {
    uint32_t t[8][256];
};

static void recording_tables_fill(struct recording_tables *c) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
        c->t[0][i] = crc;
    }
    for (int k = 1; k < 8; k++)
        for (int i = 0; i < 256; i++)
            c->t[k][i] = c->t[k - 1][i] >> 8 ^ c->t[0][c->t[k - 1][i] & 255];
}

static uint32_t recording_chain_fast(const struct recording_tables *c, uint32_t before,
                                     const uint8_t *event) {
    _Static_assert(RECORDING_EVENT % 8 == 0, "an event must be a whole number of words");
    uint32_t crc = UINT32_MAX, low = before, high = recording_get_u32(event);
    for (const uint8_t *at = event + 4;; at += 8) {
        low ^= crc;
        crc = c->t[7][low & 255] ^ c->t[6][low >> 8 & 255] ^ c->t[5][low >> 16 & 255] ^
              c->t[4][low >> 24] ^ c->t[3][high & 255] ^ c->t[2][high >> 8 & 255] ^
              c->t[1][high >> 16 & 255] ^ c->t[0][high >> 24];
        if (at == event + RECORDING_EVENT - 4) return ~crc;
        low = recording_get_u32(at);
        high = recording_get_u32(at + 4);
    }
}

/* --- writing ----------------------------------------------------------------------------- */

struct pl_recorder {
    int fd, error; /* error: errno of the first write that failed */
    char *path;
    int n_workers;
    uint64_t *began_ns; /* [n_workers] start of its current task */
    uint32_t crc;
    uint64_t written; /* bytes */
    struct recording_tables tables;
    size_t n;
    uint8_t buffer[RECORDING_BUFFER];
};

void pl_recorder_flush(struct pl_recorder *r) {
    size_t done = 0;
    if ((double)(r->written + r->n) > RECORDING_MAX && !r->error) r->error = EFBIG;
    if (!r->error) r->written += r->n;
    while (done < r->n && !r->error) {
        ssize_t n = write(r->fd, r->buffer + done, r->n - done);
        if (n > 0)
            done += (size_t)n;
        else if (n < 0 && errno != EINTR)
            r->error = errno;
    }
    r->n = 0;
}

static void recording_write(struct pl_recorder *r, const void *from, size_t n) {
    for (size_t done = 0; done < n;) {
        size_t piece = RECORDING_BUFFER - r->n < n - done ? RECORDING_BUFFER - r->n : n - done;
        memcpy(r->buffer + r->n, (const uint8_t *)from + done, piece);
        r->n += piece;
        done += piece;
        if (r->n == RECORDING_BUFFER) pl_recorder_flush(r);
    }
}

static void recording_write_head(struct pl_recorder *r, const char *text, size_t length,
                                 uint32_t steps) {
    uint8_t head[RECORDING_HEAD], crc[4];
    memcpy(head, recording_magic, 8);
    recording_put_u32(head + 8, RECORDING_VERSION);
    recording_put_u32(head + 12, (uint32_t)r->n_workers);
    recording_put_u32(head + 16, steps);
    recording_put_u32(head + 20, (uint32_t)length);
    r->crc = recording_crc(0, head, sizeof head);
    r->crc = recording_crc(r->crc, (const uint8_t *)text, length);
    recording_put_u32(crc, r->crc);
    recording_write(r, head, sizeof head);
    recording_write(r, text, length);
    recording_write(r, crc, sizeof crc);
}

static void recording_free(struct pl_recorder *r) {
    if (!r) return;
    free(r->path);
    free(r->began_ns);
    free(r);
}

int pl_recorder_open(const char *path, const char *text, int n_workers, uint32_t steps,
                     struct pl_recorder **out, struct pl_why *why) {
    size_t length = strlen(text);
    if (length > PL_RECORDING_TEXT_MAX)
        return pl_fail(why, PL_EUSAGE, "the setup is too long to record: %zu characters of %d",
                       length, PL_RECORDING_TEXT_MAX);
    struct pl_recorder *r = calloc(1, sizeof *r);
    if (r) {
        r->path = strdup(path);
        r->began_ns = calloc((size_t)n_workers, sizeof *r->began_ns);
    }
    if (!r || !r->path || !r->began_ns) {
        recording_free(r);
        return pl_fail(why, PL_ENOMEM, "out of memory for the recording");
    }
    r->n_workers = n_workers;
    recording_tables_fill(&r->tables);
    r->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (r->fd < 0) {
        recording_free(r);
        return pl_fail_create(why, "record", path);
    }
    recording_write_head(r, text, length, steps);
    pl_recorder_flush(r); /* if the disk fills up later, what there is can be read */
    *out = r;
    return PL_OK;
}

struct recorder_line {
    uint32_t kind, worker;
    uint64_t now_ns, task, began_ns, comm_ns;
    double loss;
    uint32_t samples;
};

static void recording_add(struct pl_recorder *r, const struct recorder_line *l) {
    uint8_t b[RECORDING_EVENT];
    uint64_t loss;
    memcpy(&loss, &l->loss, sizeof loss);
    recording_put_u32(b, l->kind);
    recording_put_u32(b + 4, l->worker);
    recording_put_u64(b + 8, l->now_ns);
    recording_put_u64(b + 16, l->task);
    recording_put_u64(b + 24, l->began_ns);
    recording_put_u64(b + 32, l->comm_ns);
    recording_put_u64(b + 40, loss);
    recording_put_u32(b + 48, l->samples);
    r->crc = recording_chain_fast(&r->tables, r->crc, b);
    recording_put_u32(b + 52, r->crc);
    recording_write(r, b, sizeof b);
}

void pl_recorder_event(void *ctx, const struct pl_control *c, const struct pl_event *e,
                       const struct pl_plan *plan) {
    struct pl_recorder *r = ctx;
    (void)c;
    uint32_t worker = pl_event_has_worker(e) ? (uint32_t)e->worker : 0;
    if (!pl_event_is_made(e) && worker < (uint32_t)r->n_workers) {
        struct recorder_line l = {
            .kind = (uint32_t)e->kind + 1, .worker = worker, .now_ns = e->now_ns};
        if (e->kind == PL_BASE_READY) l.task = e->task;
        if (e->kind == PL_SCORED) l.loss = e->loss;
        if (e->kind == PL_ARRIVE || e->kind == PL_REJECT) {
            l.task = e->task;
            l.began_ns = r->began_ns[e->worker];
            l.comm_ns = e->comm_ns;
            l.loss = e->loss;
            l.samples = e->samples;
        }
        recording_add(r, &l);
    }
    for (size_t i = 0; i < plan->n; i++)
        if (plan->action[i].verb == PL_START) r->began_ns[plan->action[i].worker] = e->now_ns;
}

void pl_recorder_end(struct pl_recorder *r, uint64_t now_ns, uint64_t n_updates,
                     const float *weights, size_t dim) {
    struct recorder_line l = {.kind = RECORDED_END,
                              .now_ns = now_ns,
                              .task = n_updates,
                              .comm_ns = pl_digest(weights, dim)};
    recording_add(r, &l);
}

int pl_recorder_close(struct pl_recorder *r, struct pl_why *why) {
    if (!r) return PL_OK;
    pl_recorder_flush(r);
    if (close(r->fd) != 0 && !r->error) r->error = errno;
    int rc = pl_recorder_failed(r, why);
    recording_free(r);
    return rc;
}

int pl_recorder_failed(const struct pl_recorder *r, struct pl_why *why) {
    if (!r->error) return PL_OK;
    return pl_fail(why, PL_EIO, "record file '%.200s' could not be written completely: %s", r->path,
                   strerror(r->error));
}

/* --- reading ----------------------------------------------------------------------------- */

struct reader {
    FILE *f;
    const char *path;
    uint64_t left; /* bytes of the file left to read */
    uint32_t crc;
    struct pl_recording *out;
    struct pl_why *why;
};

static int recording_open(struct reader *r) {
    const char *wrong = NULL;
    struct stat st;
    r->f = pl_input_file(r->path, &wrong);
    if (r->f && fstat(fileno(r->f), &st) != 0) wrong = strerror(errno);
    if (wrong)
        return pl_fail(r->why, PL_EIO, "recording '%.200s' cannot be read: %s", r->path, wrong);
    r->left = (uint64_t)st.st_size;
    if ((double)st.st_size > RECORDING_MAX)
        return pl_fail(r->why, PL_EDATA, "recording '%.200s' is larger than 4 GiB, the limit",
                       r->path);
    return PL_OK;
}

/* Reads n bytes; false if fewer are left. */
static bool recording_get(struct reader *r, void *to, size_t n) {
    if (r->left < n || fread(to, 1, n, r->f) != n) return false;
    r->left -= n;
    return true;
}

static int recording_no_head(const struct reader *r) {
    return pl_fail(r->why, PL_EDATA,
                   "recording '%.200s' is truncated in its header and cannot be read", r->path);
}

/* Reads the header and allocates text and events. */
static int recording_read_head(struct reader *r) {
    uint8_t head[RECORDING_HEAD], crc[4];
    struct pl_recording *out = r->out;
    size_t have = r->left < sizeof head ? (size_t)r->left : sizeof head;
    if (!recording_get(r, head, have)) return recording_no_head(r);
    if (memcmp(head, recording_magic, have < 8 ? have : 8) != 0)
        return pl_fail(r->why, PL_EDATA,
                       "'%.200s' is not a recording; create one with --record FILE", r->path);
    if (have < sizeof head) return recording_no_head(r);
    if (recording_get_u32(head + 8) != RECORDING_VERSION)
        return pl_fail(r->why, PL_EDATA,
                       "recording '%.200s' has format %u; this program reads format %d", r->path,
                       (unsigned)recording_get_u32(head + 8), RECORDING_VERSION);
    uint32_t n_workers = recording_get_u32(head + 12), steps = recording_get_u32(head + 16),
             length = recording_get_u32(head + 20);
    if (n_workers < 1 || n_workers > PL_MAX_WORKERS || steps < 1 || steps > RECORDING_STEPS_MAX ||
        length > PL_RECORDING_TEXT_MAX)
        return pl_fail(r->why, PL_EDATA, "recording '%.200s' is damaged: its header is invalid",
                       r->path);
    if (r->left < (uint64_t)length + sizeof crc) return recording_no_head(r);
    size_t room = (size_t)((r->left - length - sizeof crc) / RECORDING_EVENT);
    size_t each = sizeof *out->event + sizeof *out->began_ns;
    out->memory = malloc(room * each + length + 1);
    if (!out->memory)
        return pl_fail(r->why, PL_ENOMEM, "out of memory for the %zu events of recording '%.200s'",
                       room, r->path);
    out->event = out->memory;
    out->began_ns = (uint64_t *)(void *)(out->event + room);
    out->text = (char *)(out->began_ns + room);
    out->n_workers = (int)n_workers;
    out->steps = steps;
    if (!recording_get(r, out->text, length) || !recording_get(r, crc, sizeof crc))
        return recording_no_head(r);
    out->text[length] = '\0';
    r->crc = recording_crc(0, head, sizeof head);
    r->crc = recording_crc(r->crc, (const uint8_t *)out->text, length);
    if (recording_get_u32(crc) != r->crc || strlen(out->text) != length)
        return pl_fail(r->why, PL_EDATA,
                       "recording '%.200s' is damaged in its header: its checksum does not match",
                       r->path);
    return PL_OK;
}

static int recording_damaged(const struct reader *r, const char *how) {
    return pl_fail(r->why, PL_EDATA, "recording '%.200s' is damaged at event %zu: %s", r->path,
                   r->out->n_events + 1, how);
}

static int recording_read_event(struct reader *r, const uint8_t *b) {
    struct pl_recording *out = r->out;
    r->crc = recording_chain(r->crc, b);
    if (recording_get_u32(b + 52) != r->crc)
        return recording_damaged(r, "its checksum does not match");
    uint32_t kind = recording_get_u32(b), worker = recording_get_u32(b + 4);
    uint64_t now_ns = recording_get_u64(b + 8), loss = recording_get_u64(b + 40);
    uint64_t before = out->n_events ? out->event[out->n_events - 1].now_ns : 0;
    if (kind < RECORDED_JOIN || kind > RECORDED_SCORED)
        return recording_damaged(r, "unknown kind of event");
    if (worker >= (uint32_t)out->n_workers)
        return recording_damaged(r, "its worker number is too large");
    if (now_ns < before || (double)now_ns >= RECORDING_END_NS)
        return recording_damaged(r, "its time is out of range");
    if (kind == RECORDED_END) {
        if (r->left > 0) return recording_damaged(r, "data follow the end of the run");
        out->ended = true;
        out->end_ns = now_ns;
        out->n_updates = recording_get_u64(b + 16);
        out->digest = recording_get_u64(b + 32);
        return PL_OK;
    }
    struct pl_event *e = &out->event[out->n_events];
    *e = (struct pl_event){.kind = (enum pl_event_kind)(kind - 1),
                           .now_ns = now_ns,
                           .worker = (int)worker,
                           .task = recording_get_u64(b + 16),
                           .comm_ns = recording_get_u64(b + 32),
                           .samples = recording_get_u32(b + 48)};
    memcpy(&e->loss, &loss, sizeof loss);
    out->began_ns[out->n_events] = recording_get_u64(b + 24);
    if (out->began_ns[out->n_events] > now_ns)
        return recording_damaged(r, "its task arrived before it was started");
    out->n_events++;
    return PL_OK;
}

static int recording_read_all(struct reader *r) {
    uint8_t b[RECORDING_EVENT];
    int rc = recording_open(r);
    if (!rc) rc = recording_read_head(r);
    while (!rc && !r->out->ended && recording_get(r, b, sizeof b)) rc = recording_read_event(r, b);
    if (!rc && ferror(r->f))
        rc = pl_fail(r->why, PL_EIO, "recording '%.200s' cannot be read: %s", r->path,
                     strerror(errno));
    r->out->cut = !r->out->ended;
    return rc;
}

int pl_recording_read(const char *path, struct pl_recording *out, struct pl_why *why) {
    *out = (struct pl_recording){.path = path};
    struct reader r = {.path = path, .out = out, .why = why};
    int rc = recording_read_all(&r);
    if (r.f) fclose(r.f);
    if (rc) pl_recording_free(out);
    return rc;
}

void pl_recording_free(struct pl_recording *r) {
    free(r->memory);
    *r = (struct pl_recording){0};
}

bool pl_recording_is(const char *path) {
    uint8_t magic[8];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return false;
    bool is = read(fd, magic, sizeof magic) == (ssize_t)sizeof magic &&
              memcmp(magic, recording_magic, sizeof magic) == 0;
    close(fd);
    return is;
}

bool pl_recording_line(const char *text, const char *key, char *out, size_t max) {
    size_t n = strlen(key);
    for (const char *line = text; *line;) {
        size_t length = strcspn(line, "\n");
        if (length > n && line[n] == '=' && strncmp(line, key, n) == 0) {
            if (max > 0) snprintf(out, max, "%.*s", (int)(length - n - 1), line + n + 1);
            return true;
        }
        line += length + (line[length] == '\n');
    }
    return false;
}

/* --- digest ------------------------------------------------------------------------------ */

#define DIGEST_LANES 4
#define DIGEST_BASIS 0xcbf29ce484222325u
#define DIGEST_PRIME 0x100000001b3u

/* FNV-1a over 32-bit words in four independent lanes, which the processor computes in parallel.
 * Word i goes to lane i mod 4, and lane l begins at the basis plus l. The lanes and the number of
 * words are then combined in the same way. */
uint64_t pl_digest(const float *w, size_t dim) {
    if (!w || dim == 0) return 0;
    uint64_t lane[DIGEST_LANES], digest = DIGEST_BASIS;
    for (size_t l = 0; l < DIGEST_LANES; l++) lane[l] = DIGEST_BASIS + l;
    for (size_t i = 0; i < dim; i += DIGEST_LANES)
        for (size_t l = 0; l < DIGEST_LANES && i + l < dim; l++) {
            uint32_t word;
            memcpy(&word, &w[i + l], sizeof word);
            lane[l] = (lane[l] ^ word) * DIGEST_PRIME;
        }
    for (size_t l = 0; l < DIGEST_LANES; l++) digest = (digest ^ lane[l]) * DIGEST_PRIME;
    return (digest ^ dim) * DIGEST_PRIME;
}

bool pl_recording_is_real(const struct pl_recording *r) {
    char run[200]; /* the description begins with the run's id and kind */
    return pl_recording_line(r->text, "run", run, sizeof run) && strstr(run, "\"kind\":\"train\"");
}

/* Tasks are numbered as they start: those that are missing did not come back. */
double pl_recording_missing(const struct pl_recording *r) {
    uint64_t n_back = 0, n_started = 0, *last = calloc((size_t)r->n_workers, sizeof *last);
    for (size_t i = 0; last && i < r->n_events; i++) {
        const struct pl_event *e = &r->event[i];
        if (e->kind != PL_ARRIVE && e->kind != PL_REJECT) continue;
        n_started += e->task - last[e->worker];
        last[e->worker] = e->task;
        n_back++;
    }
    free(last);
    return n_started ? 1 - (double)n_back / (double)n_started : 0;
}
