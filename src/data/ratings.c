/* Ratings from a text file: each line has user, item, rating and optionally a time.
 *
 * MovieLens separates them by tabs, "::", or commas below a line of names, and LIBMF by blanks. All
 * four are accepted, fields may be quoted, and blank lines are skipped. Ids are 64-bit whole
 * numbers in any order. They are renumbered 0, 1, … in ascending order or, shuffled, in a random
 * order that depends on the seed. Real sets number ids by age, so neighbours have very different
 * numbers of ratings; a random order gives blocks of about equal size.
 *
 * While the file is read, a hash table numbers ids as they appear, so a rating takes its twelve
 * bytes from the start. The table is salted with its own address, so a hostile file cannot aim at
 * one slot; the salt does not affect the result. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/grow.h"
#include "base/rng.h"
#include "data/file.h"
#include "data/rows.h"
#include "data/schema.h"

#define RATINGS_WINDOW ((size_t)1 << 16)
#define RATINGS_LINE_MAX 256

struct ratings_conf {
    char file[PL_TEXT_MAX], test_file[PL_TEXT_MAX];
    struct pl_ratings_conf ready;
};

/* `worker` words of the generator's key: what a sequence is used for */
enum { RATINGS_USERS = 64, RATINGS_ITEMS, RATINGS_SPLIT };

/* --- preparing a set from any source ------------------------------------------------------- */

/* Moves each id to its new place. */
static int ratings_move_ids(uint64_t **id, uint64_t n, const uint32_t *to, struct pl_why *why) {
    uint64_t *moved = NULL;
    int rc = n > 0 ? pl_rows_array(&moved, n, sizeof *moved, why) : PL_OK;
    if (rc || n == 0) return rc;
    for (uint64_t i = 0; i < n; i++) moved[to[i]] = (*id)[i];
    free(*id);
    *id = moved;
    return PL_OK;
}

static int ratings_shuffle(struct pl_ratings *r, struct pl_schema *s, uint64_t n, uint64_t seed,
                           struct pl_why *why) {
    uint32_t *user = NULL, *item = NULL;
    int rc = pl_rows_deck(r->n_users, seed, RATINGS_USERS, &user, why);
    if (!rc) rc = pl_rows_deck(r->n_items, seed, RATINGS_ITEMS, &item, why);
    if (!rc) rc = ratings_move_ids(&s->user, s->n_users, user, why);
    if (!rc) rc = ratings_move_ids(&s->item, s->n_items, item, why);
    for (uint64_t i = 0; !rc && i < n; i++) {
        r->rating[i].user = user[r->rating[i].user];
        r->rating[i].item = item[r->rating[i].item];
    }
    free(user);
    free(item);
    return rc;
}

/* Moves randomly drawn ratings to the last n_test places, unless those there are the test set. */
static void ratings_split(struct pl_ratings *r, bool draw, uint64_t seed) {
    struct pl_rng rng;
    pl_rng_init(&rng, seed, PL_STREAM_DATA, RATINGS_SPLIT, 0);
    for (uint32_t i = r->n_train + r->n_test; draw && i > r->n_train; i--) {
        uint32_t j = pl_rng_below(&rng, i);
        struct pl_rating drawn = r->rating[j];
        r->rating[j] = r->rating[i - 1];
        r->rating[i - 1] = drawn;
    }
    double sum = 0;
    for (uint32_t i = 0; i < r->n_train; i++) sum += r->rating[i].value;
    r->mean = sum / r->n_train;
}

int pl_ratings_give(struct pl_data *data, struct pl_rating *rating, uint64_t n, uint64_t n_users,
                    uint64_t n_items, const struct pl_ratings_conf *conf, uint64_t seed,
                    struct pl_why *why) {
    struct pl_ratings *r = calloc(1, sizeof *r);
    if (!r) {
        free(rating);
        return pl_fail(why, PL_ENOMEM, "out of memory");
    }
    data->ratings = r;
    r->rating = rating;
    r->n_users = (uint32_t)n_users;
    r->n_items = (uint32_t)n_items;
    r->n_test = conf->n_last ? (uint32_t)conf->n_last : (uint32_t)(conf->test * (double)n);
    r->n_train = (uint32_t)n - r->n_test;
    data->train->n = r->n_train;
    data->test->n = r->n_test;
    data->shape[0] = data->shape[1] = 1;
    data->shape[2] = 3;
    data->n_classes = 0;
    int rc = conf->shuffle ? ratings_shuffle(r, data->schema, n, seed, why) : PL_OK;
    if (!rc) ratings_split(r, !conf->n_last, seed);
    return rc;
}

/* --- ids ---------------------------------------------------------------------------------- */

/* Numbers ids in order of appearance. */
struct ratings_ids {
    uint64_t *id;   /* [n] */
    uint32_t *slot; /* [n_slots]: the id's number plus 1, or 0 if free */
    uint64_t n, room, n_slots;
    uint64_t salt;
};

static uint64_t ratings_hash(const struct ratings_ids *t, uint64_t id) {
    id = (id ^ t->salt) * 0x9e3779b97f4a7c15u;
    id = (id ^ id >> 32) * 0xd6e8feb86659fd93u;
    return (id ^ id >> 32) & (t->n_slots - 1);
}

/* Returns the slot of an id, or the free slot where it belongs. */
static uint32_t *ratings_slot(const struct ratings_ids *t, uint64_t id) {
    uint64_t at = ratings_hash(t, id);
    while (t->slot[at] && t->id[t->slot[at] - 1] != id) at = (at + 1) & (t->n_slots - 1);
    return &t->slot[at];
}

/* Doubles the room; at most half of the slots are in use. */
static int ratings_more_ids(struct ratings_ids *t, struct pl_why *why) {
    uint64_t room = t->room ? 2 * t->room : 1024;
    uint32_t *slot = PL_RESIZE(t->id, room) ? calloc((size_t)(2 * room), sizeof *slot) : NULL;
    if (!slot)
        return pl_fail(why, PL_ENOMEM, "out of memory for %llu ids", (unsigned long long)room);
    free(t->slot);
    t->slot = slot;
    t->room = room;
    t->n_slots = 2 * room;
    t->salt = (uint64_t)(uintptr_t)slot * 0xa0761d6478bd642fu;
    for (uint64_t i = 0; i < t->n; i++) *ratings_slot(t, t->id[i]) = (uint32_t)(i + 1);
    return PL_OK;
}

static int ratings_number(struct ratings_ids *t, uint64_t id, const char *what, uint32_t *number,
                          struct pl_why *why) {
    if (t->n == t->room) {
        int rc = ratings_more_ids(t, why);
        if (rc) return rc;
    }
    uint32_t *slot = ratings_slot(t, id);
    if (*slot == 0) {
        if (t->n == PL_RATINGS_IDS_MAX)
            return pl_fail(why, PL_EDATA, "more than %llu %s; no more are accepted",
                           (unsigned long long)PL_RATINGS_IDS_MAX, what);
        t->id[t->n++] = id;
        *slot = (uint32_t)t->n;
    }
    *number = *slot - 1;
    return PL_OK;
}

static int ratings_order(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* rank [n]: the position of each id in ascending order; the ids in that order go to *ids. */
static int ratings_rank(struct ratings_ids *t, uint32_t **out, uint64_t **ids, struct pl_why *why) {
    uint64_t *sorted = NULL;
    int rc = pl_rows_array(&sorted, t->n, sizeof *sorted, why);
    if (rc) return rc;
    rc = pl_rows_array(out, t->n, sizeof **out, why);
    if (rc) {
        free(sorted);
        return rc;
    }
    memcpy(sorted, t->id, (size_t)t->n * sizeof *sorted);
    qsort(sorted, (size_t)t->n, sizeof *sorted, ratings_order);
    for (uint64_t i = 0; i < t->n; i++) (*out)[*ratings_slot(t, sorted[i]) - 1] = (uint32_t)i;
    *ids = sorted;
    return PL_OK;
}

/* --- text --------------------------------------------------------------------------------- */

struct ratings_text {
    struct pl_file file;
    char window[RATINGS_WINDOW];
    size_t at, n;
    uint64_t line_no;
    char line[RATINGS_LINE_MAX];
};

struct ratings_set {
    struct pl_rating *rating;
    uint64_t n, room;
    struct ratings_ids users, items;
    bool known;   /* the ids are known, and others are not added: */
    uint64_t *id; /* [2 room]: as they are in the file */
};

static int ratings_damage(const struct ratings_text *t, struct pl_why *why, const char *what) {
    return pl_fail(why, PL_EDATA,
                   "%s, line %llu: %s; write user, item and rating, separated by tabs, "
                   "blanks, '::' or commas",
                   t->file.path, (unsigned long long)t->line_no, what);
}

/* Reads the next line, without its end, into t->line; *more is false after the last one. */
static int ratings_line(struct ratings_text *t, bool *more, struct pl_why *why) {
    size_t n = 0;
    bool any = false;
    t->line_no++;
    for (;;) {
        if (t->at == t->n) {
            t->at = 0;
            int rc = pl_file_read(&t->file, t->window, RATINGS_WINDOW, &t->n, why);
            if (rc) return rc;
            if (t->n == 0) break;
        }
        char c = t->window[t->at++];
        any = true;
        if (c == '\n') break;
        if (c == '\0') return ratings_damage(t, why, "zero byte in text");
        if (n == RATINGS_LINE_MAX - 1) return ratings_damage(t, why, "the line is too long");
        t->line[n++] = c;
    }
    while (n > 0 && (t->line[n - 1] == '\r' || t->line[n - 1] == ' ' || t->line[n - 1] == '\t'))
        n--;
    t->line[n] = '\0';
    *more = any;
    if (t->line_no == 1 && strncmp(t->line, "\xef\xbb\xbf", 3) == 0) /* a mark of UTF-8 */
        memmove(t->line, t->line + 3, n - 2);
    return PL_OK;
}

/* Replaces quotes around fields by blanks. */
static int ratings_unquote(struct ratings_text *t, struct pl_why *why) {
    for (char *at = strchr(t->line, '"'); at; at = strchr(at, '"')) {
        bool begins = at == t->line || strchr(",: \t", at[-1]), ends = strchr(",: \t", at[1]);
        if (!begins && !ends) return ratings_damage(t, why, "a quote inside of a field");
        *at = ' ';
    }
    return PL_OK;
}

static const char *ratings_blanks(const char *s) {
    return s + strspn(s, " \t");
}

/* Skips one separator and the blanks around it; returns NULL if there is none. */
static const char *ratings_between(const char *s) {
    const char *next = ratings_blanks(s);
    if (next[0] == ':' && next[1] == ':')
        next += 2;
    else if (next[0] == ',')
        next++;
    else if (next == s)
        return NULL;
    return ratings_blanks(next);
}

/* Parses an id; returns NULL if there are no digits or too many. */
static const char *ratings_id(const char *s, uint64_t *id) {
    uint64_t value = 0;
    if (!isdigit((unsigned char)*s)) return NULL;
    for (; isdigit((unsigned char)*s); s++) {
        uint64_t digit = (uint64_t)(*s - '0');
        if (value > (UINT64_MAX - digit) / 10) return NULL;
        value = 10 * value + digit;
    }
    *id = value;
    return s;
}

/* Parses a number that is finite as a float; returns NULL if there is none. */
static const char *ratings_value(const char *s, float *value) {
    char *end;
    if (!isdigit((unsigned char)*s) && !strchr("+-.", *s)) return NULL; /* no "nan", no "inf" */
    *value = strtof(s, &end);
    return end == s || !isfinite(*value) ? NULL : end;
}

static int ratings_add(struct ratings_text *t, struct ratings_set *s, uint64_t user, uint64_t item,
                       float value, struct pl_why *why) {
    if (s->n == PL_RATINGS_MAX)
        return pl_fail(why, PL_EDATA, "%s has more than %llu ratings, the largest number accepted",
                       t->file.path, (unsigned long long)PL_RATINGS_MAX);
    if (s->n == s->room) {
        uint64_t room = s->room ? 2 * s->room : 1024;
        if (!PL_RESIZE(s->rating, room) || (s->known && !PL_RESIZE(s->id, 2 * room)))
            return pl_fail(why, PL_ENOMEM, "out of memory for %llu ratings",
                           (unsigned long long)room);
        s->room = room;
    }
    struct pl_rating *r = &s->rating[s->n];
    if (s->known) {
        s->id[2 * s->n] = user;
        s->id[2 * s->n + 1] = item;
        r->user = *ratings_slot(&s->users, user) - 1; /* UINT32_MAX if it is not there */
        r->item = *ratings_slot(&s->items, item) - 1;
    } else {
        int rc = ratings_number(&s->users, user, "users", &r->user, why);
        if (!rc) rc = ratings_number(&s->items, item, "items", &r->item, why);
        if (rc) return pl_fail_in(why, rc, t->file.path);
    }
    r->value = value;
    s->n++;
    return PL_OK;
}

static int ratings_parse(struct ratings_text *t, struct ratings_set *s, struct pl_why *why) {
    int rc = ratings_unquote(t, why);
    if (rc) return rc;
    const char *at = ratings_blanks(t->line);
    uint64_t user, item;
    float value, when;
    if (*at == '\0' || (t->line_no == 1 && strncasecmp(at, "user", 4) == 0)) return PL_OK;
    at = ratings_id(at, &user);
    if (at) at = ratings_between(at);
    if (!at) return ratings_damage(t, why, "the first field is not a user id");
    at = ratings_id(at, &item);
    if (at && s->known && !*ratings_blanks(at)) /* the rating may be what is to be predicted */
        return ratings_add(t, s, user, item, 0, why);
    if (at) at = ratings_between(at);
    if (!at) return ratings_damage(t, why, "the second field is not an item id");
    at = ratings_value(at, &value);
    if (!at) return ratings_damage(t, why, "the third field is not a finite rating");
    if (*at) at = ratings_between(at); /* a time may follow, and nothing else */
    if (at && *at) at = ratings_value(at, &when);
    if (!at || *at) return ratings_damage(t, why, "the field after the rating is not a time");
    return ratings_add(t, s, user, item, value, why);
}

/* Appends the ratings of a file. */
static int ratings_read(const char *path, struct ratings_set *s, struct pl_why *why) {
    struct ratings_text *t = calloc(1, sizeof *t);
    if (!t) return pl_fail(why, PL_ENOMEM, "out of memory");
    uint64_t before = s->n;
    bool more = true;
    int rc = pl_file_open(&t->file, path, why);
    while (!rc && more) {
        rc = ratings_line(t, &more, why);
        if (!rc && more) rc = ratings_parse(t, s, why);
    }
    if (!rc && s->n == before) rc = pl_fail(why, PL_EDATA, "%s has no ratings", path);
    pl_file_close(&t->file);
    free(t);
    return rc;
}

/* Renumbers ids from order of appearance to ascending order. */
static int ratings_ascend(struct ratings_set *s, struct pl_schema *schema, struct pl_why *why) {
    uint32_t *user = NULL, *item = NULL;
    int rc = ratings_rank(&s->users, &user, &schema->user, why);
    if (!rc) schema->n_users = s->users.n;
    if (!rc) rc = ratings_rank(&s->items, &item, &schema->item, why);
    if (!rc) schema->n_items = s->items.n;
    for (uint64_t i = 0; !rc && i < s->n; i++) {
        s->rating[i].user = user[s->rating[i].user];
        s->rating[i].item = item[s->rating[i].item];
    }
    free(user);
    free(item);
    return rc;
}

static void ratings_free_ids(struct ratings_ids *t) {
    free(t->id);
    free(t->slot);
}

static int ratings_open(const void *conf, uint64_t seed, struct pl_data *data, struct pl_why *why) {
    const struct ratings_conf *c = conf;
    struct ratings_set s = {.n = 0};
    if (c->file[0] == '\0') return pl_fail(why, PL_EUSAGE, "ratings needs a file: ratings:FILE");
    struct pl_ratings_conf ready = c->ready;
    int rc = ratings_read(c->file, &s, why);
    uint64_t n_train = s.n;
    if (!rc && c->test_file[0]) rc = ratings_read(c->test_file, &s, why);
    ready.n_last = s.n - n_train;
    if (!rc) rc = ratings_ascend(&s, data->schema, why);
    ratings_free_ids(&s.users);
    ratings_free_ids(&s.items);
    if (rc) {
        free(s.rating);
        return rc;
    }
    struct pl_rating *fit = realloc(s.rating, (size_t)s.n * sizeof *fit);
    return pl_ratings_give(data, fit ? fit : s.rating, s.n, s.users.n, s.items.n, &ready, seed,
                           why);
}

/* Fills the table of ids with those of the model, in its order. */
static int ratings_known(struct ratings_ids *t, const uint64_t *id, uint64_t n, const char *what,
                         struct pl_why *why) {
    int rc = ratings_more_ids(t, why);
    for (uint64_t i = 0; !rc && i < n; i++) {
        uint32_t number = 0;
        rc = ratings_number(t, id[i], what, &number, why);
        if (!rc && number != i)
            rc = pl_fail(why, PL_EDATA, "the description of its data has the same id twice");
    }
    return rc;
}

static int ratings_open_as(const void *conf, struct pl_data *data, struct pl_why *why) {
    const struct ratings_conf *c = conf;
    const struct pl_schema *ids = data->schema;
    struct ratings_set s = {.known = true};
    if (c->file[0] == '\0') return pl_fail(why, PL_EUSAGE, "ratings needs a file: ratings:FILE");
    if (!data->ratings || !ids->user || !ids->item)
        return pl_fail(why, PL_EUSAGE, "the model was not trained on a file of ratings");
    int rc = ratings_known(&s.users, ids->user, ids->n_users, "users", why);
    if (!rc) rc = ratings_known(&s.items, ids->item, ids->n_items, "items", why);
    if (!rc) rc = ratings_read(c->file, &s, why);
    ratings_free_ids(&s.users);
    ratings_free_ids(&s.items);
    data->ratings->rating = s.rating;
    data->ratings->id = s.id;
    data->ratings->n_test = data->test->n = (uint32_t)s.n;
    return rc;
}

static const struct pl_opt ratings_opts[] = {
    PL_OPT_FILE(struct ratings_conf, file, "",
                "lines of user, item, rating and optionally a time, plain or .gz"),
    PL_OPT("test-file", TEXT, struct ratings_conf, test_file, "", 0, 0, "FILE",
           "ratings to test with, in the same format (empty: hold out a part)", 0),
    PL_RATINGS_OPTS(struct ratings_conf),
    PL_OPT_END,
};

const struct pl_data_kind pl_data_ratings = {
    .id = {"ratings", "ratings of items by users, in the formats of MovieLens and LIBMF",
           "Harper, Konstan, The MovieLens datasets: history and context, ACM TiiS 2015",
           ratings_opts, sizeof(struct ratings_conf), 0},
    .open = ratings_open,
    .open_as = ratings_open_as,
};
