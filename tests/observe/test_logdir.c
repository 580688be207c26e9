/* The TensorBoard file, read back by a decoder that shares nothing with its writer but the
 * checksum, which has vectors of its own; and the log directory as a whole. */
#include <dirent.h>
#include <signal.h>

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "choices.h"
#include "folder.h"
#include "observe/logdir.h"
#include "observe/sink.h"
#include "observe/tensorboard.h"

static struct pl_why why;

/* --- files ------------------------------------------------------------------------------- */

static char *slurp(const char *path, size_t *n) {
    static char text[1 << 20];
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    *n = fread(text, 1, sizeof text - 1, f);
    text[*n] = '\0';
    fclose(f);
    return text;
}

static int count_files(const char *dir, const char *beginning, char *path, size_t max) {
    DIR *d = opendir(dir);
    const struct dirent *entry;
    int n = 0;
    assert_non_null(d);
    while ((entry = readdir(d))) {
        if (entry->d_name[0] == '.' || strncmp(entry->d_name, beginning, strlen(beginning)) != 0)
            continue;
        n++;
        if (path) assert_true(snprintf(path, max, "%s/%s", dir, entry->d_name) < (int)max);
    }
    closedir(d);
    return n;
}

/* --- a decoder --------------------------------------------------------------------------- */

struct reader {
    const unsigned char *at, *end;
};

static uint64_t whole(struct reader *r, int size) {
    uint64_t value = 0;
    assert_true(r->end - r->at >= size);
    for (int i = 0; i < size; i++) value |= (uint64_t)r->at[i] << 8 * i;
    r->at += size;
    return value;
}

static uint64_t varint(struct reader *r) {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        uint64_t byte = whole(r, 1);
        value |= (byte & 0x7f) << shift;
        if (byte < 0x80) return value;
    }
    fail_msg("a number without an end");
    return 0;
}

static struct reader part(struct reader *r, uint64_t n) {
    assert_true(n <= (uint64_t)(r->end - r->at));
    struct reader p = {r->at, r->at + n};
    r->at += n;
    return p;
}

struct event {
    double wall;
    uint64_t step;
    char version[40];
    int n;
    struct {
        char tag[40];
        float value;
    } scalar[10];
};

static void text_of(struct reader p, char *out, size_t max) {
    snprintf(out, max, "%.*s", (int)(p.end - p.at), (const char *)p.at);
}

static void read_value(struct reader p, struct event *e) {
    assert_true(e->n < 10);
    while (p.at < p.end) {
        uint64_t key = varint(&p);
        if (key == (1 << 3 | 2)) {
            text_of(part(&p, varint(&p)), e->scalar[e->n].tag, sizeof e->scalar[0].tag);
        } else {
            assert_int_equal(key, 2 << 3 | 5);
            uint32_t bits = (uint32_t)whole(&p, 4);
            memcpy(&e->scalar[e->n].value, &bits, sizeof bits);
        }
    }
    e->n++;
}

static struct event read_event(struct reader p) {
    struct event e = {.n = 0};
    while (p.at < p.end) {
        uint64_t key = varint(&p), bits;
        switch (key) {
        case 1 << 3 | 1:
            bits = whole(&p, 8);
            memcpy(&e.wall, &bits, sizeof bits);
            break;
        case 2 << 3 | 0: e.step = varint(&p); break;
        case 3 << 3 | 2: text_of(part(&p, varint(&p)), e.version, sizeof e.version); break;
        case 5 << 3 | 2: {
            struct reader summary = part(&p, varint(&p));
            while (summary.at < summary.end) {
                assert_int_equal(varint(&summary), 1 << 3 | 2);
                read_value(part(&summary, varint(&summary)), &e);
            }
            break;
        }
        default: fail_msg("a field with key %d", (int)key);
        }
    }
    return e;
}

static uint32_t unmasked(uint64_t masked) {
    uint32_t turned = (uint32_t)masked - 0xa282ead8u;
    return turned >> 17 | turned << 15;
}

/* The records of a file, checked; returns how many. */
static int read_events(const char *path, struct event *out, int max) {
    size_t size;
    const unsigned char *text = (const unsigned char *)slurp(path, &size);
    struct reader r = {text, text + size};
    int n = 0;
    while (r.at < r.end) {
        const unsigned char *head = r.at;
        uint64_t length = whole(&r, 8);
        assert_int_equal(unmasked(whole(&r, 4)), pl_crc32c(head, 8));
        struct reader data = part(&r, length);
        assert_int_equal(unmasked(whole(&r, 4)), pl_crc32c(data.at, length));
        assert_true(n < max);
        out[n++] = read_event(data);
    }
    return n;
}

/* --- files that are discarded ------------------------------------------------------------ */

/* Only what was created is removed, whatever has its name by now. */
TEST(what_is_discarded_was_created) {
    FILE *f, *other;
    struct stat st;
    const char *path = folder_path("discarded");
    assert_int_equal(pl_sink_open("log", path, &f, &why), PL_OK);
    pl_sink_discard(path, f);
    assert_int_equal(lstat(path, &st), -1);
    assert_int_equal(symlink("nowhere", path), 0);
    pl_sink_discard(path, f);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(pl_sink_open("log", path, &other, &why), PL_OK);
    pl_sink_discard(path, f);
    assert_int_equal(lstat(path, &st), 0);
    pl_sink_discard(path, other);
    assert_int_equal(lstat(path, &st), -1);
    fclose(f);
    fclose(other);
    assert_int_equal(pl_sink_open("log", "-", &f, &why), PL_OK); /* of standard output: > - */
    pl_sink_discard("-", f);
    assert_int_equal(unlink("-"), 0);
    fclose(f);
}

/* --- TensorBoard ------------------------------------------------------------------------- */

TEST(test_crc) {
    unsigned char zero[32] = {0}, ones[32], up[32];
    memset(ones, 0xff, sizeof ones);
    for (int i = 0; i < 32; i++) up[i] = (unsigned char)i;
    assert_int_equal(pl_crc32c("123456789", 9), 0xE3069283u);
    assert_int_equal(pl_crc32c("", 0), 0);
    assert_int_equal(pl_crc32c(zero, 32), 0x8A9136AAu);
    assert_int_equal(pl_crc32c(ones, 32), 0x62A8AB43u);
    assert_int_equal(pl_crc32c(up, 32), 0x46DD794Eu);
}

TEST_BETWEEN(folder_make, folder_clear, test_tensorboard) {
    static const char *const tags[] = {"loss",   "test_loss", "test_accuracy",     "k", "staleness",
                                       "unused", "workers",   "samples_per_second"};
    struct pl_tensorboard *t;
    struct event e[5];
    char path[700];
    size_t n;
    struct pl_point p = {.time = 2.5,
                         .consensus = NAN,
                         .updates = 300,
                         .loss = 0.5,
                         .test_loss = 0.75,
                         .test_accuracy = 0.875,
                         .k = 4,
                         .staleness = 1.5,
                         .unused = 17,
                         .workers = 8};
    assert_int_equal(pl_tensorboard_open(folder, 1700000000.5, &t, &why), 0);
    snprintf(path, sizeof path, "%s", pl_tensorboard_path(t));
    assert_non_null(strstr(path, "/events.out.tfevents.1700000000."));
    pl_tensorboard_point(t, &p, 1024);
    p.test_loss = p.test_accuracy = NAN;
    p.time = 1e9;
    p.updates = UINT64_MAX;
    p.loss = INFINITY;
    pl_tensorboard_point(t, &p, NAN);
    assert_int_equal(read_events(path, e, 5), 3); /* before it is closed */
    assert_int_equal(pl_tensorboard_flush(t, &why), 0);
    assert_int_equal(pl_tensorboard_open(folder, 1700000000.9, &t, &why), PL_EIO);
    assert_int_equal(pl_tensorboard_close(t, &why), 0);
    /* the first bytes of every event file that TensorFlow ever wrote */
    assert_memory_equal(slurp(path, &n), "\x18\0\0\0\0\0\0\0\xa3\x7fK\"\t", 13);
    assert_true(e[0].wall == 1700000000.5 && e[0].n == 0);
    assert_string_equal(e[0].version, "brain.Event:2");
    static const float values[] = {0.5f, 0.75f, 0.875f, 4, 1.5f, 17, 8, 1024};
    assert_true(e[1].wall == 1700000003.0 && e[1].step == 300 && e[1].n == 8);
    for (int i = 0; i < 8; i++) {
        assert_string_equal(e[1].scalar[i].tag, tags[i]);
        assert_true(e[1].scalar[i].value == values[i]);
    }
    assert_true(e[2].step == UINT64_MAX && e[2].n == 5 && isinf(e[2].scalar[0].value));
    assert_int_equal(pl_tensorboard_open("no/such/place", 1, &t, &why), PL_EIO);
}

/* --- the directory ----------------------------------------------------------------------- */

/* Two workers, an update of 16 samples a second, from `start` on. */
static void drive(struct pl_logdir *ld, int start, int n_updates) {
    struct pl_control *c = control_of("ksync:k=all", "fixed", 2, 1);
    const struct pl_plan *plan;
    pl_control_on_event(c, pl_logdir_event, ld);
    for (int w = 0; w < 2; w++) {
        struct pl_event e = {.kind = PL_JOIN, .worker = w, .now_ns = (uint64_t)start * 1000000000u};
        assert_int_equal(pl_control_step(c, &e, &plan, &why), 0);
    }
    for (int i = 1; i <= n_updates; i++) {
        for (int w = 0; w < 2; w++) {
            struct pl_event e = {.kind = PL_ARRIVE,
                                 .worker = w,
                                 .task = (uint64_t)i,
                                 .samples = 8,
                                 .now_ns = (uint64_t)(start + i) * 1000000000u};
            assert_int_equal(pl_control_step(c, &e, &plan, &why), 0);
        }
        struct pl_point p = {.time = start + i,
                             .updates = (uint64_t)i,
                             .loss = 1.0 / i,
                             .k = 2,
                             .samples = 1000.0 * start + 16 * i}; /* of the run, also before */
        pl_logdir_point(ld, &p);
    }
    pl_control_end(c, (uint64_t)(start + n_updates + 1) * 1000000000u);
}

static int count_lines(const char *text) {
    int n = 0;
    for (; *text; text++) n += *text == '\n';
    return n;
}

TEST_BETWEEN(folder_make, folder_clear, test_logdir) {
    struct pl_logdir *ld;
    struct event e[5];
    char dir[300], path[700];
    size_t n;
    snprintf(dir, sizeof dir, "%s/log", folder);
    assert_int_equal(pl_logdir_open(dir, "sync", 2, PL_SINK_MAX, &ld, &why), 0);
    drive(ld, 0, 3);
    assert_int_equal(count_files(dir, "", NULL, 0), 4);
    assert_int_equal(count_files(dir, "events.out.tfevents.", path, sizeof path), 1);
    assert_int_equal(read_events(path, e, 5), 4); /* points are there at once */
    assert_true(e[3].step == 3 && e[3].scalar[7].value == 16);
    assert_string_equal(e[3].scalar[7].tag, "samples_per_second");
    snprintf(path, sizeof path, "%s/points.jsonl", dir);
    assert_int_equal(count_lines(slurp(path, &n)), 3);
    assert_int_equal(pl_logdir_flush(ld, &why), 0);
    snprintf(path, sizeof path, "%s/trace.json", dir);
    assert_null(strstr(slurp(path, &n), "]"));
    snprintf(path, sizeof path, "%s/events.txt", dir);
    const char *text = slurp(path, &n);
    assert_int_equal(count_lines(text), 8);
    assert_non_null(strstr(text, "\n3 arrive W2#3: take, commit w3 <- W1@w2 W2@w2, start W1@w3"));
    assert_int_equal(pl_logdir_close(ld, &why), 0);
    snprintf(path, sizeof path, "%s/trace.json", dir);
    text = slurp(path, &n);
    assert_string_equal(text + n - 4, "}\n]\n");
    assert_non_null(strstr(text, "\"unfinished\""));
    assert_non_null(strstr(text, "\"args\":{\"name\":\"sync\"}"));
    assert_int_equal(pl_logdir_open(dir, "sync", 2, PL_SINK_MAX, &ld, &why),
                     PL_EIO); /* nothing is lost */
    assert_non_null(strstr(why.text, "is not empty"));
    assert_int_equal(pl_logdir_close(NULL, &why), 0);
}

TEST_BETWEEN(folder_make, folder_clear, test_places) {
    struct pl_logdir *ld;
    struct event e[3];
    char path[300], deep[2000];
    snprintf(path, sizeof path, "%s/empty", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(pl_logdir_open(path, "x", 2, PL_SINK_MAX, &ld, &why),
                     0); /* it may be there, if empty */
    drive(ld, 1000, 2);  /* a run that goes on: its speed is that of this part */
    assert_int_equal(pl_logdir_close(ld, &why), 0);
    assert_int_equal(count_files(path, "events.out.tfevents.", deep, sizeof deep), 1);
    assert_int_equal(read_events(deep, e, 3), 3);
    assert_int_equal(e[1].n, e[2].n - 1); /* the first point has no speed */
    assert_true(e[2].scalar[7].value == 16);
    assert_int_equal(count_files(path, "", NULL, 0), 4);
    snprintf(path, sizeof path, "%s/file", folder);
    fclose(fopen(path, "w"));
    assert_int_equal(pl_logdir_open(path, "x", 1, PL_SINK_MAX, &ld, &why), PL_EIO);
    assert_non_null(strstr(why.text, "Not a directory"));
    snprintf(path, sizeof path, "%s/no/such", folder);
    assert_int_equal(pl_logdir_open(path, "x", 1, PL_SINK_MAX, &ld, &why), PL_EIO);
    assert_non_null(strstr(why.text, "cannot be created"));
    assert_int_equal(pl_logdir_open("", "x", 1, PL_SINK_MAX, &ld, &why), PL_EIO);
    /* a name that is itself allowed, but has no room for the files: all is as it was before */
    int n = snprintf(deep, sizeof deep, "%s", folder);
    while (n < 1010) n += snprintf(deep + n, sizeof deep - (size_t)n, "/.");
    snprintf(deep + n, sizeof deep - (size_t)n, "/deep");
    assert_int_equal(pl_logdir_open(deep, "x", 1, PL_SINK_MAX, &ld, &why), PL_EUSAGE);
    snprintf(path, sizeof path, "%s/deep", folder);
    assert_int_equal(access(path, F_OK), -1);
}

/* A disk that is full after a few kilobytes: in a child, for the limit is for the whole process. */
TEST_BETWEEN(folder_make, folder_clear, test_full) {
    char dir[300];
    snprintf(dir, sizeof dir, "%s/full", folder);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct rlimit small = {2000, 2000};
        struct pl_logdir *ld;
        signal(SIGXFSZ, SIG_IGN);
        if (setrlimit(RLIMIT_FSIZE, &small) != 0) _exit(10);
        if (pl_logdir_open(dir, "x", 2, PL_SINK_MAX, &ld, &why)) _exit(11);
        drive(ld, 0, 2);
        if (pl_logdir_flush(ld, &why)) _exit(12);
        drive(ld, 2, 500); /* events of a second run: only their number matters */
        why.text[0] = '\0';
        char all[2048] = "";
        int n = 0;
        for (; n < 9 && pl_logdir_flush(ld, &why) == PL_EIO; n++)
            pl_append(all, sizeof all, "%s\n", why.text);
        bool told = strstr(all, "trace.json") && strstr(all, "events.txt");
        if (!told || n > 4) _exit(13); /* each of them once */
        why.text[0] = '\0';
        int rc = pl_logdir_close(ld, &why);
        bool named = strstr(why.text, "trace.json") && strstr(why.text, "; nor could events.txt");
        _exit(rc == PL_EIO && named ? 42 : 14);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 42);
}

/* Files with a line per event stop at their limit, whole; the others go on. */
TEST_BETWEEN(folder_make, folder_clear, test_limit) {
    struct pl_logdir *ld;
    char dir[300], path[700];
    size_t n;
    snprintf(dir, sizeof dir, "%s/limit", folder);
    assert_int_equal(pl_logdir_open(dir, "sync", 2, 2000, &ld, &why), 0);
    drive(ld, 0, 100);
    assert_false(pl_logdir_is_full(ld));
    assert_int_equal(pl_logdir_flush(ld, &why), 0);
    assert_true(pl_logdir_is_full(ld));
    drive(ld, 100, 100);
    assert_int_equal(pl_logdir_flush(ld, &why), 0);
    assert_int_equal(pl_logdir_close(ld, &why), 0);
    snprintf(path, sizeof path, "%s/events.txt", dir);
    const char *text = slurp(path, &n);
    assert_int_equal(count_lines(text), 203);
    assert_non_null(strstr(text, "\n(the event log ends here"));
    snprintf(path, sizeof path, "%s/trace.json", dir);
    text = slurp(path, &n);
    assert_string_equal(text + n - 4, "}\n]\n");
    assert_null(strstr(text, "\"version\":101"));
    snprintf(path, sizeof path, "%s/points.jsonl", dir);
    assert_int_equal(count_lines(slurp(path, &n)), 200);
}
