#include "base/chain.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int pl_chain_parse(const struct pl_family *family, const char *spec, int n_workers,
                   struct pl_chain *out, struct pl_why *why) {
    *out = (struct pl_chain){.n = 0};
    for (;;) {
        char one[PL_SPEC_MAX];
        /* '+' followed by a digit is part of a number such as 1e+2 */
        size_t n = strcspn(spec, "+");
        while (spec[n] == '+' && isdigit((unsigned char)spec[n + 1]))
            n += 1 + strcspn(spec + n + 1, "+");
        if (out->n == PL_LINKS || n >= sizeof one)
            return pl_fail(why, PL_EUSAGE, "%s: a chain has at most %d members", family->name,
                           PL_LINKS);
        memcpy(one, spec, n);
        one[n] = '\0';
        struct pl_choice *link = &out->link[out->n];
        int rc = pl_spec_parse(family, one, n_workers, &link->entry, &link->conf, why);
        if (rc) return rc;
        out->n++;
        if (spec[n] == '\0') return PL_OK;
        spec += n + 1;
    }
}

void pl_chain_print(const struct pl_chain *c, char *out, size_t max) {
    char one[PL_SPEC_MAX];
    out[0] = '\0';
    for (int i = 0; i < c->n; i++) {
        pl_spec_print(c->link[i].entry, c->link[i].conf, one, sizeof one);
        pl_append(out, max, "%s%s", i ? "+" : "", one);
    }
}

void pl_chain_free(struct pl_chain *c) {
    for (int i = 0; i < c->n; i++) free(c->link[i].conf);
    c->n = 0;
}
