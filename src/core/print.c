/* Events and plans as text. */
#include <stdio.h>
#include <string.h>

#include "core/control_state.h"

const char *pl_event_word(enum pl_event_kind kind) {
    static const char *const words[] = {"join",  "arrive", "reject", "leave",  "measured",
                                        "timer", "base",   "scored", "switch", "end"};
    return words[kind];
}

const char *pl_verb_word(enum pl_verb verb) {
    static const char *const words[] = {"take", "drop",  "defer", "commit", "start", "cancel",
                                        "stop", "blend", "pair",  "push",   "absorb"};
    return words[verb];
}

/* Nanoseconds as seconds, exactly, without trailing zeros. */
static void print_time(uint64_t ns, char *out, size_t max) {
    snprintf(out, max, "%llu.%09llu", (unsigned long long)(ns / 1000000000u),
             (unsigned long long)(ns % 1000000000u));
    size_t n = strlen(out);
    while (out[n - 1] == '0') out[--n] = '\0';
    if (out[n - 1] == '.') out[n - 1] = '\0';
}

/* What a tuner is told, and what it has chosen. */
static void print_tuning(const struct pl_control *c, const struct pl_event *e, char out[128]) {
    char spec[PL_SPEC_MAX];
    out[0] = '\0';
    if (e->kind == PL_SCORED) snprintf(out, 128, " loss %.17g", e->loss);
    if (e->kind != PL_SWITCH) return;
    pl_spec_print(&c->method.policy->id, c->method.policy_state, spec, sizeof spec);
    snprintf(out, 128, " to %.80s%s", spec, e->samples ? ", back to an earlier model" : "");
}

size_t pl_control_print_room(const struct pl_control *c, const struct pl_plan *plan) {
    size_t n;
    pl_control_group(c, &n);
    return 192 + 64 * (plan->n + n);
}

void pl_control_print(const struct pl_control *c, const struct pl_event *e,
                      const struct pl_plan *plan, char *out, size_t max) {
    char time[32], tuning[128];
    size_t n_group;
    const struct pl_member *group = pl_control_group(c, &n_group);
    size_t n = 0; /* written so far; pl_append would look for the end every time */
#define SAY(...)                                                                                   \
    do {                                                                                           \
        if (n < max) n += (size_t)snprintf(out + n, max - n, __VA_ARGS__);                         \
    } while (0)
    print_time(e->now_ns, time, sizeof time);
    SAY("%s %s", time, pl_event_word(e->kind));
    if (pl_event_has_worker(e)) SAY(" W%d", e->worker + 1);
    if (e->kind == PL_ARRIVE || e->kind == PL_REJECT || e->kind == PL_BASE_READY)
        SAY("#%llu", (unsigned long long)e->task);
    print_tuning(c, e, tuning);
    SAY("%s", tuning);
    const char *sep = ": ";
    for (size_t i = 0; i < plan->n; i++, sep = ", ") {
        const struct pl_action *a = &plan->action[i];
        SAY("%s%s", sep, pl_verb_word(a->verb));
        switch (a->verb) {
        case PL_TAKE:
            if (e->kind != PL_ARRIVE || a->worker != e->worker) SAY(" W%d", a->worker + 1);
            break;
        case PL_DROP:
        case PL_DEFER:
        case PL_STOP: break;
        case PL_BLEND: SAY(" W%d <- W%d", a->worker + 1, a->peer + 1); break;
        case PL_PAIR: SAY(" W%d W%d", a->worker + 1, a->peer + 1); break;
        case PL_PUSH: SAY(" W%d -> W%d", a->worker + 1, a->peer + 1); break;
        case PL_ABSORB:
        case PL_CANCEL: SAY(" W%d", a->worker + 1); break;
        case PL_START:
            SAY(" W%d@w%llu", a->worker + 1, (unsigned long long)a->version);
            if (a->row >= 0) SAY(" block %d,%d", a->row + 1, a->col + 1);
            break;
        case PL_COMMIT:
            SAY(" w%llu <-", (unsigned long long)a->version);
            for (size_t m = 0; m < n_group; m++)
                if (!group[m].left_out)
                    SAY(" W%d@w%llu", group[m].worker + 1, (unsigned long long)group[m].base);
            for (size_t m = 0; m < n_group; m++)
                if (group[m].left_out)
                    SAY(", reject W%d#%llu", group[m].worker + 1,
                        (unsigned long long)group[m].task);
            break;
        }
    }
    if (plan->timed && plan->timer_ns == PL_NO_TIMER) SAY("%sno timer", sep);
    if (plan->timed && plan->timer_ns != PL_NO_TIMER) {
        print_time(plan->timer_ns, time, sizeof time);
        SAY("%stimer %s", sep, time);
    }
#undef SAY
}
