/* Which training rows a worker draws from, and which rows make up a mini-batch.
 *
 * Shares. "whole" stores nothing per worker, so a hundred thousand workers cost nothing. "iid"
 * deals a shuffled deck. "label" splits each class among the workers in proportions drawn from a
 * symmetric Dirichlet(alpha), as Yurochkin et al. (ICML 2019) do to skew federated data: large
 * alpha approaches iid, small alpha gives each class to a few workers. A worker without rows gets
 * some from the largest shares.
 *
 * Draws. A mini-batch depends only on (seed, worker, batch number). Nothing is stored per worker,
 * and the simulator, the real run and a replay see the same rows. Passes without replacement
 * therefore need a random permutation with random access: a Feistel network on the smallest power
 * of two that holds the share, iterated until its output falls inside the share (cycle walking;
 * Black and Rogaway, CT-RSA 2002). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/needs.h"
#include "base/rng.h"
#include "data/data.h"
#include "data/rows.h"

#define PARTITION_DRAWS_MAX 1e8 /* gamma draws for "label": classes times workers */
#define PARTITION_ROUNDS 8      /* rounds of the Feistel network */

struct pl_partition {
    uint32_t n_train, n_workers;
    uint32_t *start; /* [n_workers + 1], NULL for "whole" */
    uint32_t *row;   /* [n_train]: worker i owns row[start[i]] .. row[start[i + 1] - 1] */
};

struct partition_kind {
    struct pl_entry id;
    /* Writes the owner of every row. `owner` is NULL for "whole". */
    int (*assign)(const void *conf, const struct pl_data *data, uint32_t n_workers, uint64_t seed,
                  uint32_t *owner, struct pl_why *why);
};

struct partition_label_conf {
    double alpha;
};

/* deck [n] = a random order of 0 .. n-1 (Fisher and Yates) */
static void partition_shuffle(uint32_t *deck, uint32_t n, uint64_t seed) {
    struct pl_rng rng;
    pl_rng_init(&rng, seed, PL_STREAM_PARTITION, 0, 0);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t j = pl_rng_below(&rng, i + 1);
        deck[i] = deck[j];
        deck[j] = i;
    }
}

static int partition_iid(const void *conf, const struct pl_data *data, uint32_t n_workers,
                         uint64_t seed, uint32_t *owner, struct pl_why *why) {
    uint32_t n = data->n_train, *deck = malloc((size_t)n * sizeof *deck);
    (void)conf;
    if (!deck) return pl_fail(why, PL_ENOMEM, "out of memory");
    partition_shuffle(deck, n, seed);
    for (uint32_t i = 0; i < n; i++) owner[deck[i]] = i % n_workers;
    free(deck);
    return PL_OK;
}

/* Moves rows to workers that have none. T is the highest level with sum max(0, size - T) >= the
 * number of rows needed; only rows above T are moved. */
static int partition_fill_empty(uint32_t *owner, uint32_t n, uint32_t n_workers,
                                struct pl_why *why) {
    uint32_t *size = calloc(n_workers, sizeof *size), needed = 0;
    if (!size) return pl_fail(why, PL_ENOMEM, "out of memory");
    for (uint32_t i = 0; i < n; i++) size[owner[i]]++;
    for (uint32_t w = 0; w < n_workers; w++) needed += size[w] == 0;
    uint32_t low = 1, high = n; /* low frees enough because n >= n_workers, high frees nothing */
    while (high - low > 1) {
        uint32_t mid = low + (high - low) / 2;
        uint64_t freed = 0;
        for (uint32_t w = 0; w < n_workers; w++) freed += size[w] > mid ? size[w] - mid : 0;
        if (freed >= needed)
            low = mid;
        else
            high = mid;
    }
    uint32_t empty = 0;
    for (uint32_t i = 0; i < n && needed > 0; i++) {
        if (size[owner[i]] <= low) continue;
        while (size[empty] != 0) empty++;
        size[owner[i]]--;
        size[empty] = 1;
        owner[i] = empty;
        needed--;
    }
    free(size);
    return PL_OK;
}

/* The rows of one class, members[n] in random order, are dealt to the workers in proportions p. */
static void partition_class(const uint32_t *members, uint32_t n, double *p, uint32_t n_workers,
                            double alpha, struct pl_rng *rng, uint32_t *owner) {
    double sum = 0, reached = 0;
    for (uint32_t w = 0; w < n_workers; w++) sum += p[w] = pl_rng_gamma(rng, alpha);
    if (!(sum > 0)) { /* alpha so small that every draw underflowed: one worker takes all */
        memset(p, 0, n_workers * sizeof *p);
        p[pl_rng_below(rng, n_workers)] = sum = 1;
    }
    uint32_t at = 0;
    for (uint32_t w = 0; w < n_workers; w++) {
        reached += p[w];
        uint32_t end = w + 1 == n_workers ? n : (uint32_t)(reached / sum * n + 0.5);
        for (; at < end && at < n; at++) owner[members[at]] = w;
    }
}

static int partition_label(const void *conf, const struct pl_data *data, uint32_t n_workers,
                           uint64_t seed, uint32_t *owner, struct pl_why *why) {
    const struct partition_label_conf *c = conf;
    const uint16_t *label = data->train->label;
    uint32_t n = data->n_train, n_classes = data->n_classes;
    if (n_classes == 0)
        return pl_fail(why, PL_EUSAGE,
                       "partition 'label' needs classes, but this data set has none; use 'iid'");
    if ((double)n_classes * n_workers > PARTITION_DRAWS_MAX)
        return pl_fail(why, PL_EUSAGE,
                       "partition 'label' is limited to %.0e classes times workers; %lu times %lu "
                       "is more; use 'iid'",
                       PARTITION_DRAWS_MAX, (unsigned long)n_classes, (unsigned long)n_workers);
    int rc = PL_OK;
    uint32_t *deck = malloc((size_t)n * sizeof *deck), *sorted = malloc((size_t)n * sizeof *sorted);
    uint32_t *at = calloc((size_t)n_classes + 1, sizeof *at);
    double *p = malloc(n_workers * sizeof *p);
    if (!deck || !sorted || !at || !p) {
        rc = pl_fail(why, PL_ENOMEM, "out of memory");
        goto out;
    }
    partition_shuffle(deck, n, seed);
    /* sorted: the deck by class, stable; afterwards at[k] is the end of class k */
    for (uint32_t i = 0; i < n; i++) at[label[i] + 1]++;
    for (uint32_t k = 0; k < n_classes; k++) at[k + 1] += at[k];
    for (uint32_t i = 0; i < n; i++) sorted[at[label[deck[i]]]++] = deck[i];
    for (uint32_t k = 0; k < n_classes; k++) {
        uint32_t first = k ? at[k - 1] : 0;
        struct pl_rng rng;
        pl_rng_init(&rng, seed, PL_STREAM_PARTITION, k, 1);
        partition_class(sorted + first, at[k] - first, p, n_workers, c->alpha, &rng, owner);
    }
    rc = partition_fill_empty(owner, n, n_workers, why);
out:
    free(deck);
    free(sorted);
    free(at);
    free(p);
    return rc;
}

static const struct pl_opt partition_label_opts[] = {
    PL_OPT_REAL(struct partition_label_conf, alpha, "0.5", 1e-3, 1e6,
                "concentration of the Dirichlet distribution; smaller is more skewed"),
    PL_OPT_END,
};

static const struct partition_kind partition_whole_kind = {
    .id = {"whole", "every worker draws from the whole training set", "", pl_no_opts, 0, 0},
    .assign = NULL,
};

static const struct partition_kind partition_iid_kind = {
    .id = {"iid", "equal random shards, one per worker", "", pl_no_opts, 0, PL_NEEDS_WHOLE_VECTORS},
    .assign = partition_iid,
};

static const struct partition_kind partition_label_kind = {
    .id = {"label", "shards skewed by label: each class is split by a Dirichlet draw",
           "Yurochkin et al., Bayesian nonparametric federated learning of neural "
           "networks, ICML 2019",
           partition_label_opts, sizeof(struct partition_label_conf), PL_NEEDS_WHOLE_VECTORS},
    .assign = partition_label,
};

static const struct pl_entry *const partition_table[] = {
    &partition_whole_kind.id, &partition_iid_kind.id, &partition_label_kind.id, NULL};

const struct pl_family pl_partition_family = {
    "partition", "which training samples does each worker draw from?", partition_table};

/* Builds the lists of rows from their owners by counting. */
static int partition_collect(struct pl_partition *p, const uint32_t *owner, struct pl_why *why) {
    p->start = calloc((size_t)p->n_workers + 2, sizeof *p->start);
    p->row = malloc((size_t)p->n_train * sizeof *p->row);
    if (!p->start || !p->row) return pl_fail(why, PL_ENOMEM, "out of memory");
    /* counted at w + 2, so that start[w] is the beginning of w after the second pass */
    for (uint32_t i = 0; i < p->n_train; i++) p->start[owner[i] + 2]++;
    for (uint32_t w = 0; w < p->n_workers; w++) p->start[w + 2] += p->start[w + 1];
    for (uint32_t i = 0; i < p->n_train; i++) p->row[p->start[owner[i] + 1]++] = i;
    return PL_OK;
}

int pl_partition_open(const char *spec, const struct pl_data *data, int n_workers, uint64_t seed,
                      struct pl_partition **out, struct pl_why *why) {
    const struct pl_entry *entry;
    void *conf;
    uint32_t *owner = NULL;
    int rc = pl_spec_parse(&pl_partition_family, spec, n_workers, &entry, &conf, why);
    if (rc) return rc;
    const struct partition_kind *kind = (const struct partition_kind *)(const void *)entry;
    struct pl_partition *p = calloc(1, sizeof *p);
    if (!p) {
        rc = pl_fail(why, PL_ENOMEM, "out of memory");
        goto out;
    }
    p->n_train = data->n_train;
    p->n_workers = (uint32_t)n_workers;
    if (!kind->assign) goto out;
    if (p->n_train < p->n_workers) {
        rc = pl_fail(why, PL_EUSAGE,
                     "partition '%s' needs a sample for each of %d workers, but there are %lu; "
                     "use 'whole' or fewer workers",
                     entry->name, n_workers, (unsigned long)p->n_train);
        goto out;
    }
    owner = malloc((size_t)p->n_train * sizeof *owner);
    if (!owner) {
        rc = pl_fail(why, PL_ENOMEM, "out of memory");
        goto out;
    }
    rc = kind->assign(conf, data, p->n_workers, seed, owner, why);
    if (!rc) rc = partition_collect(p, owner, why);
out:
    free(owner);
    free(conf);
    if (rc)
        pl_partition_free(p);
    else
        *out = p;
    return rc;
}

void pl_partition_free(struct pl_partition *p) {
    if (!p) return;
    free(p->start);
    free(p->row);
    free(p);
}

uint32_t pl_partition_size(const struct pl_partition *p, uint32_t worker) {
    return p->start ? p->start[worker + 1] - p->start[worker] : p->n_train;
}

/* A permutation of [0, size), with random access. */
struct partition_shuffler {
    uint32_t size, low_bits, low_mask, high_mask;
    uint32_t key[PARTITION_ROUNDS];
};

static void partition_shuffler_init(struct partition_shuffler *s, uint32_t size, uint64_t seed,
                                    uint32_t worker, uint64_t pass) {
    struct pl_rng rng;
    uint32_t bits = 0;
    while (bits < 32 && (uint64_t)1 << bits < size) bits++;
    s->size = size;
    s->low_bits = (bits + 1) / 2;
    s->low_mask = ((uint32_t)1 << s->low_bits) - 1;
    s->high_mask = ((uint32_t)1 << (bits - s->low_bits)) - 1;
    pl_rng_init(&rng, seed, PL_STREAM_BATCH, worker, pass);
    for (int r = 0; r < PARTITION_ROUNDS; r++) s->key[r] = pl_rng_u32(&rng);
}

/* The finalizer of MurmurHash3, keyed. */
static uint32_t partition_mix(uint32_t x, uint32_t key) {
    x ^= key;
    x = (x ^ x >> 16) * 0x85ebca6bu;
    x = (x ^ x >> 13) * 0xc2b2ae35u;
    return (x ^ x >> 16) + key;
}

/* The two halves modify each other in turn, which also works for an odd number of bits. */
static uint32_t partition_place(const struct partition_shuffler *s, uint32_t at) {
    do {
        uint32_t low = at & s->low_mask, high = at >> s->low_bits;
        for (int r = 0; r < PARTITION_ROUNDS; r += 2) {
            high ^= partition_mix(low, s->key[r]) & s->high_mask;
            low ^= partition_mix(high, s->key[r + 1]) & s->low_mask;
        }
        at = high << s->low_bits | low;
    } while (at >= s->size);
    return at;
}

void pl_partition_draw(const struct pl_partition *p, enum pl_sampling sampling, uint64_t seed,
                       uint32_t worker, uint64_t batch_no, uint32_t n, uint32_t *index) {
    uint32_t size = pl_partition_size(p, worker);
    if (sampling == PL_SAMPLE_IID) {
        struct pl_rng rng;
        pl_rng_init(&rng, seed, PL_STREAM_BATCH, worker, batch_no);
        for (uint32_t i = 0; i < n; i++) index[i] = pl_rng_below(&rng, size);
    } else {
        uint64_t pass = batch_no * n / size;
        uint32_t at = (uint32_t)(batch_no * n % size);
        struct partition_shuffler shuffler;
        partition_shuffler_init(&shuffler, size, seed, worker, pass);
        for (uint32_t i = 0; i < n; i++, at++) {
            if (at == size) {
                at = 0;
                partition_shuffler_init(&shuffler, size, seed, worker, ++pass);
            }
            index[i] = partition_place(&shuffler, at);
        }
    }
    if (p->row)
        for (uint32_t i = 0; i < n; i++) index[i] = p->row[p->start[worker] + index[i]];
}
