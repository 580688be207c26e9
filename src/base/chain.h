/* Choices and chains: "name:key=value" picks one member of a family, "warmup:over=5+cosine:over=90"
 * picks several, applied one after the other. */
#ifndef PL_BASE_CHAIN_H
#define PL_BASE_CHAIN_H

#include "base/opt.h"

#define PL_LINKS 4 /* the most members in one chain */

/* One member of a family, with its parsed options. */
struct pl_choice {
    const struct pl_entry *entry;
    void *conf;
};

struct pl_chain {
    struct pl_choice link[PL_LINKS];
    int n;
};

/* Parses "a:x=1+b+c". The caller frees *out even on failure: it holds what was parsed so far. */
int pl_chain_parse(const struct pl_family *family, const char *spec, int n_workers,
                   struct pl_chain *out, struct pl_why *why);
void pl_chain_print(const struct pl_chain *c, char *out, size_t max);
void pl_chain_free(struct pl_chain *c);

#endif
