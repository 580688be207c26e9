/* What the headers of a request say: claims of a stranger, until they are checked.
 *
 * Threads: the request's. */
#define _GNU_SOURCE
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run/gateway_state.h"

const char *pl_gateway_said(const struct request *r, const char *name) {
    return MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, name);
}

/* A number, or `otherwise`; *bad is set if it is not one. */
static double said_number(const struct request *r, const char *name, double otherwise, bool *bad) {
    const char *text = pl_gateway_said(r, name);
    char *end;
    if (!text) return otherwise;
    double x = strtod(text, &end);
    if (end == text || *end) *bad = true;
    return x;
}

uint64_t pl_gateway_said_whole(const struct request *r, const char *name, uint64_t most,
                               bool *bad) {
    const char *text = pl_gateway_said(r, name);
    char *end;
    if (!text) return 0;
    errno = 0;
    unsigned long long x = strtoull(text, &end, 10);
    if (end == text || *end || errno || text[0] == '-' || x > most) *bad = true;
    return x;
}

bool pl_gateway_said_text(const struct request *r, const char *name, char *out, size_t max) {
    const char *text = pl_gateway_said(r, name);
    if (!text) text = "";
    for (const char *c = text; *c; c++)
        if (*c < ' ' || *c > '~') return false;
    return (size_t)snprintf(out, max, "%s", text) < max;
}

static bool said_absent(struct request *r) {
    const char *text = pl_gateway_said(r, PL_WIRE_ABSENT);
    size_t n = text ? strlen(text) : 0;
    if (n % 16 || n / 16 > PL_ABSENT_WORDS) return false;
    if (n > 0 && !(r->absent = calloc(n / 16, sizeof *r->absent))) return false;
    for (size_t i = 0; i < n / 16; i++) {
        char word[17], *end;
        memcpy(word, text + 16 * i, 16);
        word[16] = '\0';
        if (word[strspn(word, "0123456789abcdefABCDEF")]) return false;
        r->absent[i] = strtoull(word, &end, 16);
    }
    r->result.absent = r->absent;
    r->result.n_absent = (uint32_t)(n / 16);
    return true;
}

/* What a request for the next order says about the result of the last one. */
bool pl_gateway_said_result(struct request *r) {
    struct pl_result *x = &r->result;
    bool bad = false;
    x->task = pl_gateway_said_whole(r, PL_WIRE_TASK, UINT64_MAX, &bad);
    x->samples = (uint32_t)pl_gateway_said_whole(r, PL_WIRE_SAMPLES, UINT32_MAX, &bad);
    x->defect = (enum pl_defect)pl_gateway_said_whole(r, PL_WIRE_DEFECT, PL_NOT_COMPUTED, &bad);
    x->loss = said_number(r, PL_WIRE_LOSS, NAN, &bad);
    x->sets_lr = pl_gateway_said(r, PL_WIRE_LR) != NULL;
    x->lr = said_number(r, PL_WIRE_LR, 0, &bad);
    x->tells_waits = pl_gateway_said(r, PL_WIRE_WAITED) != NULL;
    x->wait_ns = pl_gateway_said_whole(r, PL_WIRE_WAITED, UINT64_MAX / 2, &bad);
    r->brings = x->task ? RESULT_NEW : RESULT_NONE;
    return !bad && said_absent(r);
}
