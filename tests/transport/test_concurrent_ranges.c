/* Transports with workers of their own, as in test_concurrent.c: strips, stamps and bases are what
 * was sent. mpi.sh runs it on ranks. */
#include "suite_transport.h"

/* Strips are not sent over HTTP. */
static const struct pl_transport *const *kinds;
static size_t n_kinds;

/* How often something is tried: messages take their time. */
static int rounds(const struct crew *c, int shared) {
    return c->t->shared ? shared : shared / 20;
}

/* --- strips ------------------------------------------------------------------------------ */

/* Where the strips of a part are in the vectors that are read and written: anywhere, of any length,
 * none included. */
struct place {
    size_t in, out, n;
};

static int places_of(uint64_t part, struct place place[PL_STRIPS]) {
    place[0] = (struct place){part % 11, 17 + part % 3, part % 4};
    place[1] = (struct place){20 + part % 7, part % 5, 1 + part % 12};
    return PL_STRIPS;
}

static void strip_worker(struct crew *c, struct pl_link *l, int worker) {
    struct pl_order o;
    while (c->t->link.pull(l, &o) == 0) {
        struct place place[PL_STRIPS];
        uint64_t part = o.note[0];
        bool wrong = part != 1000 + o.task || o.n_strips != places_of(part, place);
        for (int s = 0; !wrong && s < o.n_strips; s++) {
            wrong = o.strip[s].n != place[s].n;
            for (size_t i = 0; !wrong && i < place[s].n; i++) {
                wrong = o.strip[s].in[i] != (float)(o.task + place[s].in + i);
                o.strip[s].out[i] = -o.strip[s].in[i];
            }
        }
        if (wrong) atomic_fetch_add(&c->notes->n_wrong, 1);
        c->t->link.push(l, &(struct pl_result){.task = o.task, .samples = 1, .loss = 1});
    }
}

/* Nothing else of the vectors is written. */
TEST(strips_are_what_is_sent) {
    for (size_t k = 0; k < n_kinds; k++) {
        struct crew c;
        if (!crew_forks(kinds[k]) || crew_is_far(kinds[k])) continue;
        crew_open(&c, kinds[k], 1, 40, false);
        crew_spawn(&c, 0, strip_worker);
        crew_news(&c, PL_NEWS_JOINED, 0);
        for (uint64_t task = 1; task <= (uint64_t)rounds(&c, 400); task++) {
            struct pl_order o = crew_order(&c, task, NULL, NULL);
            struct place place[PL_STRIPS];
            float expected[40];
            o.n_inputs = 0;
            o.note[0] = 1000 + task;
            o.n_strips = places_of(o.note[0], place);
            for (size_t i = 0; i < c.dim; i++) c.slot[1][i] = (float)(task + i);
            for (size_t i = 0; i < c.dim; i++) c.slot[0][i] = expected[i] = -7;
            for (int s = 0; s < o.n_strips; s++) {
                o.strip[s] = (struct pl_strip){c.slot[1] + place[s].in, c.slot[0] + place[s].out,
                                               place[s].n};
                for (size_t i = 0; i < place[s].n; i++)
                    expected[place[s].out + i] = -c.slot[1][place[s].in + i];
            }
            c.t->port.tell(c.p, 0, &o);
            assert_int_equal(crew_news(&c, PL_NEWS_RESULT, 0).result.task, task);
            for (size_t i = 0; i < c.dim; i++) assert_true(c.slot[0][i] == expected[i]);
        }
        assert_int_equal(atomic_load(&c.notes->n_wrong), 0);
        c.t->port.shutdown(c.p, CREW_PATIENCE_NS);
        assert_int_equal(crew_join(&c, 0), 0);
        crew_close(&c);
    }
}

/* --- stamps ------------------------------------------------------------------------------ */

static void copy_worker(struct crew *c, struct pl_link *l, int worker) {
    struct pl_order o;
    while (c->t->link.pull(l, &o) == 0) {
        memcpy(o.out, o.input[0].v, c->dim * sizeof *o.out);
        c->t->link.push(l, &(struct pl_result){.task = o.task, .samples = 1});
    }
}

/* The vector changes at every task, which only stamp 0 allows: so what the worker read tells
 * whether the vector was sent. If memory is shared, it always reads what is there. */
TEST(a_stamp_is_sent_once) {
    static const struct {
        uint64_t stamp;
        bool sent;
    } tasks[] = {{7, true}, {7, false}, {7, false}, {0, true}, {0, true},
                 {7, true}, {8, true},  {8, false}, {7, true}};
    for (size_t k = 0; k < n_kinds; k++) {
        struct crew c;
        float seen = 0;
        if (!crew_forks(kinds[k]) || crew_is_far(kinds[k])) continue;
        crew_open(&c, kinds[k], 1, 40, false);
        crew_spawn(&c, 0, copy_worker);
        crew_news(&c, PL_NEWS_JOINED, 0);
        for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++) {
            uint64_t task = i + 1;
            for (size_t j = 0; j < c.dim; j++) c.version[0][j] = (float)task;
            if (crew_in_place(&c) || tasks[i].sent) seen = (float)task;
            struct pl_order o = crew_order(&c, task, c.version[0], c.slot[0]);
            c.input.stamp = tasks[i].stamp;
            c.t->port.tell(c.p, 0, &o);
            assert_int_equal(crew_news(&c, PL_NEWS_RESULT, 0).result.task, task);
            for (size_t j = 0; j < c.dim; j++) assert_true(c.slot[0][j] == seen);
        }
        c.t->port.shutdown(c.p, CREW_PATIENCE_NS);
        assert_int_equal(crew_join(&c, 0), 0);
        crew_close(&c);
    }
}

/* --- bases ------------------------------------------------------------------------------- */

/* Computes twice the sum of its inputs. */
static void sum_worker(struct crew *c, struct pl_link *l, int worker) {
    struct pl_order o;
    while (c->t->link.pull(l, &o) == 0) {
        for (size_t i = 0; i < c->dim; i++) {
            double sum = 0;
            for (int t = 0; t < o.n_inputs; t++) sum += o.input[t].c * (double)o.input[t].v[i];
            if (o.base) o.base[i] = (float)sum;
            o.out[i] = (float)(2 * sum);
        }
        if (o.base) c->t->link.push(l, &(struct pl_result){.task = o.task, .is_base = true});
        c->t->link.push(l, &(struct pl_result){.task = o.task, .samples = 1});
    }
}

static void sum_tell(struct crew *c, int worker, uint64_t task, const struct pl_input *input, int n,
                     float *base, float *out, bool stays) {
    struct pl_order o = crew_order(c, task, NULL, out);
    o.input = input;
    o.n_inputs = n;
    o.base = base;
    o.stays = stays;
    c->t->port.tell(c->p, worker, &o);
    if (base) {
        struct pl_result r = crew_news(c, PL_NEWS_BASE, worker).result;
        assert_true(r.is_base && r.task == task);
    }
    struct pl_result r = crew_news(c, PL_NEWS_RESULT, worker).result;
    assert_true(!r.is_base && r.task == task && r.defect == PL_NO_DEFECT);
}

static void vector_is(struct crew *c, const float *v, double value) {
    for (size_t i = 0; i < c->dim; i++) assert_true(v[i] == (float)value);
}

/* Bases and results that stay with their workers are read by others and fetched by the server. */
TEST(bases_come_first_and_stay) {
    for (size_t k = 0; k < n_kinds; k++) {
        struct crew c;
        if (!crew_forks(kinds[k]) || crew_is_far(kinds[k])) continue;
        crew_open(&c, kinds[k], 2, 40, false);
        for (int w = 0; w < 2; w++) {
            crew_spawn(&c, w, sum_worker);
            crew_news(&c, PL_NEWS_JOINED, w);
        }
        float **slot = c.slot;
        for (size_t i = 0; i < c.dim; i++) c.version[0][i] = 3;
        for (size_t i = 0; i < c.dim; i++) c.version[1][i] = 5;
        struct pl_input server[] = {{c.version[0], 0, 1, -1}, {c.version[1], 0, -2, -1}};
        sum_tell(&c, 0, 1, server, 1, NULL, slot[0], true);    /* 3, and 6 */
        sum_tell(&c, 0, 2, server, 2, slot[1], slot[2], true); /* 3 - 10 = -7, and -14 */
        struct pl_input first[] = {{slot[0], 0, 1, 0}, {slot[1], 0, 10, 0}, {slot[2], 0, 1, 0}};
        sum_tell(&c, 1, 1, first, 3, slot[3], slot[4], true); /* 6 - 70 - 14 = -78, and -156 */
        sum_tell(&c, 0, 3, &(struct pl_input){slot[4], 0, 1, 1}, 1, NULL, slot[5], true);
        sum_tell(&c, 1, 2, &(struct pl_input){slot[4], 0, 1, 1}, 1, NULL, slot[6], false);
        vector_is(&c, slot[6], -312); /* is brought to the server */
        struct pl_input all[6];
        for (int i = 0; i < 6; i++)
            all[i] = (struct pl_input){.v = slot[i], .writer = i == 3 || i == 4};
        if (c.t->stay) assert_int_equal(c.t->stay->fetch(c.p, all, 6), 0);
        static const double value[] = {6, -7, -14, -78, -156, -312};
        for (int i = 0; i < 6; i++) vector_is(&c, slot[i], value[i]);
        c.t->port.shutdown(c.p, CREW_PATIENCE_NS);
        for (int w = 0; w < 2; w++) assert_int_equal(crew_join(&c, w), 0);
        crew_close(&c);
    }
}

int main(void) {
    return crew_main(&kinds, &n_kinds);
}
