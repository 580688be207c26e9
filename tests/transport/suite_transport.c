#include "suite_transport.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "run/gateway.h"
#include "sys/clock.h"
#include "sys/thread.h"
#include "transport/mpi.h"
#include "transports.h"

int crew_files(const char *dir) {
    int n = 0;
    DIR *d = opendir(dir);
    while (d && readdir(d)) n++;
    if (d) closedir(d);
    return n;
}

/* Notes that all ranks share: a file that tests/transport/mpi.sh has made. */
static struct crew_notes *crew_shared(void) {
    static struct crew_notes *notes;
    const char *path = getenv("PL_TEST_SHARED");
    if (notes || !path) return notes;
    int fd = open(path, O_RDWR);
    if (fd < 0 || ftruncate(fd, sizeof *notes)) return NULL;
    void *at = mmap(NULL, sizeof *notes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    notes = at == MAP_FAILED ? NULL : at;
    return notes;
}

/* --- over HTTP: a port over shared memory with a gateway before it, and links of a transport that
 * has the worker's end alone ------------------------------------------------------------------ */

static struct pl_transport crew_http;
static const struct pl_transport *crew_end; /* whose links they are */
static struct pl_gateway *crew_gateway;

static void http_told(void *ctx) {
    if (crew_gateway) pl_gateway_told(crew_gateway);
}

static int http_open(const struct pl_port_conf *given, struct pl_port **out, struct pl_why *why) {
    static const struct pl_log silent;
    struct pl_gateway_conf g = {.address = "127.0.0.1:0",
                                .path = given->listen,
                                .n_clients = given->n_workers,
                                .log = &silent};
    struct pl_port_conf conf = *given;
    conf.told = http_told;
    int rc = pl_shm.port.open(&conf, out, why);
    return rc ? rc : pl_gateway_open(&g, &crew_gateway, why);
}

static void http_shutdown(struct pl_port *p, uint64_t wait_ns) {
    pl_gateway_close(crew_gateway);
    crew_gateway = NULL;
    pl_shm.port.shutdown(p, wait_ns);
}

static int http_expect(struct pl_port *p, int worker, struct pl_why *why) {
    return PL_OK;
}

static void http_made(struct pl_port *p, int worker) {}

static int http_attach(struct pl_port *p, int worker, struct pl_link **out) {
    char url[64];
    struct pl_welcome welcome;
    struct pl_client_link_conf conf = {
        .path = url, .client = {.seat = (uint64_t)worker + 1}, .wait_ns = CREW_PATIENCE_NS};
    snprintf(url, sizeof url, "http://127.0.0.1:%d", pl_gateway_port(crew_gateway));
    return crew_end->join->connect(&conf, out, &welcome, NULL);
}

static const struct pl_transport *http_kind(const struct pl_transport *end) {
    static const struct pl_start_ops start = {
        .expect = http_expect, .attach = http_attach, .made = http_made};
    struct pl_gateway *g;
    assert_true(!crew_end || crew_end == end); /* there is one */
    crew_end = end;
    crew_http = pl_shm;
    crew_http.name = end->name;
    crew_http.port.open = http_open;
    crew_http.port.shutdown = http_shutdown;
    crew_http.link = end->link;
    crew_http.start = &start;
    bool built = pl_gateway_open(&(struct pl_gateway_conf){.address = ""}, &g, NULL) != PL_EMISSING;
    return built && crew_http.link.pull ? &crew_http : NULL;
}

bool crew_is_far(const struct pl_transport *t) {
    return t == &crew_http;
}

static size_t crew_table(bool near, const struct pl_transport *here[CREW_KINDS]) {
    size_t n = 0;
    for (size_t i = 0; i < N_TRANSPORTS; i++) {
        const struct pl_transport *t = transports[i];
        if (near && !(t->port.open && t->shared)) continue;
        if (!t->port.open) t = http_kind(t);
        if (!t) continue; /* it was not built */
        assert_true(n < CREW_KINDS);
        here[n++] = t;
    }
    return n;
}

size_t crew_kinds(const struct pl_transport *const **kinds) {
    static const struct pl_transport *here[CREW_KINDS];
    int rank, size;
    *kinds = here;
    if (!pl_launcher_env(&rank, &size)) return crew_table(false, here);
    assert_int_equal(pl_mpi_begin(&rank, &size, NULL), 0);
    here[0] = pl_mpi_transport();
    return 1;
}

size_t crew_near(const struct pl_transport *const **kinds) {
    static const struct pl_transport *here[CREW_KINDS];
    *kinds = here;
    return crew_table(true, here);
}

struct pl_shape crew_shape(const struct crew *c) {
    struct pl_shape s = {.n_workers = (uint64_t)c->n_workers,
                         .n_evaluators = (uint64_t)c->n_evaluators,
                         .dim = c->dim,
                         .n_versions = CREW_VECTORS,
                         .n_slots = CREW_VECTORS,
                         .n_own = *c->path ? CREW_VECTORS : 0,
                         .half = c->half};
    assert_true(pl_shape_of(&s));
    return s;
}

struct pl_head *crew_head(const struct crew *c) {
    return (struct pl_head *)(void *)((char *)c->version[0] - crew_shape(c).versions);
}

struct pl_mailbox *crew_mailbox(const struct crew *c, int seat) {
    struct pl_shape s = crew_shape(c);
    return pl_shape_mailbox(&s, crew_head(c), seat);
}

void crew_open(struct crew *c, const struct pl_transport *t, int n_workers, size_t dim,
               bool listens) {
    crew_open_with(c, t, n_workers, dim, listens, (struct pl_port_conf){.peers = true});
}

/* Where slots are common, those of all workers are the same. */
static void crew_vectors(struct crew *c) {
    for (int i = 0; i < CREW_VECTORS; i++) c->version[i] = c->t->port.vector(c->p, -1);
    for (int w = 0; w < c->n_workers && w < CREW_MAX; w++)
        for (int i = 0; i < CREW_VECTORS; i++)
            c->own[w][i] = w == 0 || *c->path ? c->t->port.vector(c->p, w) : c->own[0][i];
    for (int i = 0; i < CREW_VECTORS; i++) c->slot[i] = c->own[0][i];
}

void crew_open_with(struct crew *c, const struct pl_transport *t, int n_workers, size_t dim,
                    bool listens, struct pl_port_conf conf) {
    struct pl_why why = {""};
    memset(c, 0, sizeof *c);
    c->n_files = crew_files("/proc/self/fd");
    if ((listens || crew_is_far(t)) && t->clients)
        snprintf(c->path, sizeof c->path, "transport-%d.sock", (int)getpid());
    conf.n_workers = n_workers;
    conf.dim = dim;
    conf.n_versions = conf.n_slots = CREW_VECTORS;
    conf.listen = *c->path ? c->path : NULL;
    c->t = t;
    c->n_workers = n_workers;
    c->n_evaluators = conf.n_evaluators;
    c->half = conf.half;
    c->dim = dim;
    if (t->port.open(&conf, &c->p, &why)) fail_msg("%s", why.text);
    c->notes = t->shared ? mmap(NULL, sizeof *c->notes, PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS, -1, 0)
                         : crew_shared();
    assert_true(c->notes && c->notes != MAP_FAILED);
    c->notes->n_wrong = c->notes->gate = 0;
    for (int i = 0; i < CREW_MAX; i++) c->notes->value[i] = 0;
    crew_vectors(c);
}

/* No descriptor, path or child is left; the segment never had a name. */
void crew_close(struct crew *c) {
    struct stat s;
    c->t->port.close(c->p);
    assert_int_equal(c->notes->n_wrong, 0);
    if (!c->t->shared) return; /* what MPI keeps open is its own */
    munmap(c->notes, sizeof *c->notes);
    assert_int_equal(crew_files("/proc/self/fd"), c->n_files);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
    if (*c->path) assert_int_equal(lstat(c->path, &s), -1);
}

static uint64_t note_of(uint64_t task, int i) {
    return task * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)i;
}

struct pl_order crew_order(struct crew *c, uint64_t task, const float *w, float *out) {
    c->input = (struct pl_input){.v = w, .stamp = 3 * task, .c = 1, .writer = -1};
    struct pl_order o = {.task = task, .n_inputs = 1, .input = &c->input, .out = out};
    for (int i = 0; i < PL_NOTE_WORDS; i++) o.note[i] = note_of(task, i);
    return o;
}

bool crew_noted(const struct crew *c, const struct pl_order *o) {
    bool same = o->n_inputs == 1 && o->input[0].c == 1 && !o->base && !o->stays && o->n_strips == 0;
    for (int i = 0; i < PL_NOTE_WORDS; i++) same = same && o->note[i] == note_of(o->task, i);
    return same;
}

int crew_connect(const char *path, struct pl_link **l, int *worker, size_t *dim,
                 struct pl_why *why) {
    struct pl_welcome welcome;
    struct pl_client_link_conf conf = {.path = path, .client = {.kind = PL_CLIENT_WORKER}};
    int rc = pl_client_link_connect(&conf, l, &welcome, why);
    if (rc) return rc;
    *worker = welcome.worker;
    *dim = welcome.dim;
    return PL_OK;
}

int crew_call(const struct crew *c) {
    struct sockaddr_un a;
    assert_int_equal(pl_greeting_address(c->path, &a, NULL), 0);
    int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (connect(sock, (struct sockaddr *)&a, sizeof a)) fail_msg("%s", strerror(errno));
    return sock;
}

struct pl_answer crew_answer(int sock, int fd[PL_GIVEN]) {
    struct pl_answer answer;
    int n;
    assert_int_equal(pl_greeting_receive(sock, &answer, sizeof answer, fd, PL_GIVEN, &n, 60000), 0);
    assert_int_equal(n, answer.code == PL_ANSWER_WELCOME ? PL_GIVEN : 0);
    return answer;
}

struct pl_link *crew_client(struct crew *c, int worker) {
    struct pl_link *l = NULL;
    struct pl_why why = {""};
    if (c->t->clients && !crew_is_far(c->t)) {
        int number;
        size_t dim;
        if (crew_connect(c->path, &l, &number, &dim, &why)) fail_msg("%s", why.text);
        assert_int_equal(number, worker);
        assert_int_equal(dim, c->dim);
    } else {
        assert_int_equal(c->t->start->expect(c->p, worker, &why), 0);
        assert_int_equal(c->t->start->attach(c->p, worker, &l), 0);
        c->t->start->made(c->p, worker);
    }
    return l;
}

static void member_main(void *arg) {
    struct crew_member *m = arg;
    struct pl_link *l;
    if (m->crew->t->start->attach(m->crew->p, m->worker, &l)) {
        m->crew->notes->n_wrong++;
        return;
    }
    m->work(m->crew, l, m->worker);
    m->crew->t->link.detach(l);
}

void crew_spawn(struct crew *c, int worker, crew_work *work) {
    struct pl_why why = {""};
    struct crew_member *m = &c->member[worker];
    *m = (struct crew_member){.crew = c, .worker = worker, .work = work};
    if (c->t->start && c->t->start->expect(c->p, worker, &why)) fail_msg("%s", why.text);
    if (!c->t->start) {
        atomic_store(&c->notes->work, (long long)((intptr_t)work - (intptr_t)member_main));
        atomic_store(&c->notes->dim, (long long)c->dim);
        atomic_fetch_add(&c->notes->asked[worker], 1);
    } else if (!c->t->start->processes) {
        assert_int_equal(pl_thread_start(member_main, m, &m->thread), 0);
    } else if ((m->pid = fork()) == 0) {
        member_main(m);
        _exit(0);
    }
    if (c->t->start) c->t->start->made(c->p, worker);
    assert_true(m->pid >= 0);
}

int crew_join(struct crew *c, int worker) {
    struct crew_member *m = &c->member[worker];
    int status = 0;
    if (!c->t->shared)
        assert_true(crew_wait(&c->notes->done[worker], atomic_load(&c->notes->asked[worker])));
    pl_thread_join(m->thread);
    if (m->pid > 0) assert_int_equal(waitpid(m->pid, &status, 0), m->pid);
    m->thread = NULL;
    m->pid = 0;
    return status;
}

static void crew_work_once(struct crew_notes *notes, int worker) {
    struct crew c = {
        .t = pl_mpi_transport(), .notes = notes, .dim = (size_t)atomic_load(&notes->dim)};
    struct pl_link *l;
    crew_work *work = (crew_work *)((intptr_t)member_main + (intptr_t)atomic_load(&notes->work));
    if (pl_mpi_connect(&(struct pl_range){0, c.dim}, 1, &l, &worker, NULL)) {
        atomic_fetch_add(&notes->n_wrong, 1);
        return;
    }
    work(&c, l, worker);
    c.t->link.detach(l);
}

/* False: this is rank 0, or there are no ranks. */
static bool crew_serve(void) {
    int rank, size;
    struct crew_notes *notes = crew_shared();
    if (!pl_launcher_env(&rank, &size)) return false;
    if (pl_mpi_begin(&rank, &size, NULL) || rank == 0) return false;
    for (int n = 0; notes && !atomic_load(&notes->dismissed);) {
        if (atomic_load(&notes->asked[rank - 1]) == n) {
            crew_sleep(200000);
            continue;
        }
        crew_work_once(notes, rank - 1);
        atomic_store(&notes->done[rank - 1], ++n);
    }
    return true;
}

int crew_main(const struct pl_transport *const **kinds, size_t *n_kinds) {
    *n_kinds = crew_kinds(kinds);
    if (crew_serve()) return 0;
    int failed = run_all_tests(NULL, NULL);
    struct crew_notes *notes = crew_shared();
    if (notes) atomic_store(&notes->dismissed, true);
    return failed;
}

bool crew_in_place(const struct crew *c) {
    const char *shared = getenv("PACELINE_MPI_SHARED");
    return c->t->shared || !shared || strcmp(shared, "no") != 0;
}

static struct pl_news crew_next(struct crew *c, bool pass_results) {
    struct pl_news n;
    uint64_t end = pl_now_ns() + CREW_PATIENCE_NS;
    do c->t->port.news(c->p, CREW_PATIENCE_NS, &n);
    while (pl_now_ns() < end &&
           (n.kind == PL_NEWS_NONE ||
            (pass_results && (n.kind == PL_NEWS_BASE || n.kind == PL_NEWS_RESULT))));
    return n;
}

void crew_tell(struct crew *c, int worker, uint64_t task) {
    struct pl_order o = crew_order(c, task, c->version[worker], c->own[worker][worker]);
    c->t->port.tell(c->p, worker, &o);
}

void crew_echo(struct crew *c, struct pl_link *l, int worker) {
    struct pl_order o;
    while (c->t->link.pull(l, &o) == 0) {
        for (size_t i = 0; i < c->dim; i++) o.out[i] = o.input[0].v[i] + (float)o.task;
        c->t->link.push(l, &(struct pl_result){.task = o.task, .samples = 1, .loss = 2});
    }
}

void crew_echoed(const struct crew *c, int worker, uint64_t task) {
    for (size_t i = 0; i < c->dim; i++)
        assert_true(c->own[worker][worker][i] == c->version[worker][i] + (float)task);
}

struct pl_news crew_news(struct crew *c, enum pl_news_kind kind, int worker) {
    struct pl_news n = crew_next(c, false);
    assert_int_equal(n.kind, kind);
    assert_int_equal(n.worker, worker);
    return n;
}

void crew_until(struct crew *c, enum pl_news_kind kind, int worker) {
    struct pl_news n = crew_next(c, true);
    if (n.kind == PL_NEWS_JOINED && kind != PL_NEWS_JOINED) n = crew_next(c, true);
    assert_int_equal(n.kind, kind);
    assert_int_equal(n.worker, worker);
}

void crew_silent(struct crew *c) {
    struct pl_news n;
    c->t->port.news(c->p, 0, &n);
    assert_int_equal(n.kind, PL_NEWS_NONE);
    assert_int_equal(n.worker, -1);
}

void crew_sleep(uint64_t ns) {
    struct timespec t = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
    nanosleep(&t, NULL);
}

bool crew_wait(const atomic_int *value, int least) {
    uint64_t end = pl_now_ns() + CREW_PATIENCE_NS;
    while (atomic_load(value) < least) {
        if (pl_now_ns() > end) return false;
        crew_sleep(100000);
    }
    return true;
}

bool crew_forks(const struct pl_transport *t) {
    const char *sanitize = getenv("SANITIZE");
    if (!t->start || !t->start->processes || !sanitize || !strstr(sanitize, "thread")) return true;
    printf("skipped for %s: the thread sanitizer does not see other processes\n", t->name);
    return false;
}
