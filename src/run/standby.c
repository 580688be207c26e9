#include "run/standby.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run/checkpoint.h"
#include "sys/address.h"
#include "sys/clock.h"
#include "sys/memory.h"
#include "transport/http_follow.h"

#define STANDBY_NAP_NS 100000000u
#define STANDBY_NAPS 10
/* Servers that are resumed from an older checkpoint of the same run count by one: they stay below.
 */
#define STANDBY_EPOCHS 1000

struct standby_copy {
    char *bytes; /* NULL: none yet */
    size_t n;
    uint64_t version, epoch;
    int workers; /* that the server had when it was last heard of */
    char run[PL_RUN_ID_MAX];
};

struct follow {
    const struct pl_standby_conf *conf;
    struct pl_gateway *gateway;
    struct pl_follower *follower;
    struct standby_copy has;
    bool there;                     /* the server answered last time */
    bool told_waiting, told_behind; /* it was said that it does not yet, or that votes are ahead */
    struct pl_why *why;
};

static int standby_keep(struct follow *f, const struct pl_copy_of_run *c) {
    char *bytes = malloc(c->n);
    if (!bytes) return pl_fail(f->why, PL_ENOMEM, "out of memory for a copy of the run");
    memcpy(bytes, c->bytes, c->n);
    free(f->has.bytes);
    f->has = (struct standby_copy){bytes, c->n, c->version, c->epoch, c->workers, ""};
    memcpy(f->has.run, c->run, sizeof f->has.run);
    return PL_OK;
}

/* Whether the workers want this standby, and it has all that they have seen. */
static bool standby_elected(struct follow *f) {
    const struct pl_log *log = f->conf->gateway.log;
    if (!f->has.bytes) return false;
    struct pl_gateway_tally t =
        pl_gateway_tally(f->gateway, f->has.run, f->has.workers, f->has.version);
    if (!t.most) return false;
    if (t.elected) {
        pl_log_warn(log,
                    "the server is gone, and %d of its %d workers ask for this standby: it takes "
                    "over after update %" PRIu64,
                    t.n, f->has.workers, f->has.version);
        return true;
    }
    if (!f->told_behind)
        pl_log_warn(log,
                    "the server is gone, but its workers have seen update %" PRIu64
                    " and this standby has %" PRIu64 ": it does not take over",
                    t.seen, f->has.version);
    f->told_behind = true;
    return false;
}

/* One question, and what follows. PL_ETIMEDOUT: go on. */
static int standby_step(struct follow *f) {
    const struct pl_log *log = f->conf->gateway.log;
    struct pl_copy_of_run answer;
    uint64_t has = f->has.bytes ? f->has.version : UINT64_MAX;
    enum pl_followed what = pl_follower_next(f->follower, has, f->has.run, f->has.epoch, &answer);
    bool there = what == PL_FOLLOWED_COPY || what == PL_FOLLOWED_SAME;
    if (there && !f->there) pl_log_note(log, "following %s", f->conf->first);
    if (f->there && what == PL_FOLLOWED_GONE)
        pl_log_warn(log, "%s does not answer: %s", f->conf->first, answer.why);
    if (what == PL_FOLLOWED_GONE && !f->has.bytes && !f->told_waiting) {
        pl_log_note(log, "waiting until %s answers: %s", f->conf->first, answer.why);
        f->told_waiting = true;
    }
    f->there = there;
    if (there) f->has.workers = answer.workers;
    if (there) pl_gateway_follows(f->gateway, answer.secret);
    switch (what) {
    case PL_FOLLOWED_COPY: return standby_keep(f, &answer) ? PL_ENOMEM : PL_ETIMEDOUT;
    case PL_FOLLOWED_SAME: return PL_ETIMEDOUT;
    case PL_FOLLOWED_OVER: return PL_ECANCELLED;
    case PL_FOLLOWED_NO:
        return pl_fail(f->why, PL_ERUN, "cannot follow %s: %s", f->conf->first, answer.why);
    case PL_FOLLOWED_GONE: break;
    }
    for (int i = 0; i < STANDBY_NAPS; i++) { /* a question takes longer, if the server hangs */
        if (standby_elected(f)) return PL_OK;
        pl_sleep_ns(STANDBY_NAP_NS);
    }
    return PL_ETIMEDOUT;
}

/* A checkpoint from memory. */
static int standby_read(const struct standby_copy *c, struct pl_saved **out, struct pl_why *why) {
    char path[64];
    FILE *file = pl_memory_file(); /* a full disk does not matter now */
    if (!file || fwrite(c->bytes, 1, c->n, file) != c->n || fflush(file)) {
        if (file) fclose(file);
        return pl_fail(why, PL_ENOMEM, "out of memory for %zu bytes of a checkpoint", c->n);
    }
    snprintf(path, sizeof path, "/proc/self/fd/%d", fileno(file));
    int rc = pl_checkpoint_read(path, out, why);
    if (!rc) rc = pl_saved_resumable(*out, why);
    fclose(file);
    return rc;
}

/* Opens what collects the votes, and the way to the server, which is told where that is. */
static int standby_open(struct follow *f) {
    struct pl_address a;
    char address[300];
    int rc = pl_gateway_open(&f->conf->gateway, &f->gateway, f->why);
    if (rc) return rc;
    if (!pl_address_split(f->conf->gateway.address, &a)) return PL_EUSAGE;
    bool colons = strchr(a.host, ':') != NULL;
    snprintf(address, sizeof address, "%s%s%s:%d", colons ? "[" : "", a.host, colons ? "]" : "",
             pl_gateway_port(f->gateway));
    pl_log_note(f->conf->gateway.log, "standby on port %d", pl_gateway_port(f->gateway));
    return pl_follower_open(f->conf->first, f->conf->gateway.keys, address, &f->follower, f->why);
}

int pl_standby_follow(const struct pl_standby_conf *conf, struct pl_takeover *out,
                      struct pl_why *why) {
    struct follow f = {.conf = conf, .why = why};
    int rc = standby_open(&f);
    if (!rc) rc = PL_ETIMEDOUT;
    while (rc == PL_ETIMEDOUT)
        rc = conf->stop && conf->stop(conf->ctx) ? PL_EINTR : standby_step(&f);
    if (!rc) rc = standby_read(&f.has, &out->saved, why);
    out->epoch = f.has.epoch + STANDBY_EPOCHS;
    out->port = pl_gateway_port(f.gateway);
    out->socket = rc ? -1 : pl_gateway_socket(f.gateway);
    pl_follower_close(f.follower);
    pl_gateway_close(f.gateway);
    free(f.has.bytes);
    return rc;
}
