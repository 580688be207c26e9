/* What the members of the families need of a run, as flags; and the one function that says which
 * choices do not go together.
 *
 * An entry lists its needs in struct pl_entry. The code that puts a run together lists its parties,
 * that is every choice and every option that needs something or takes something away, and asks
 * pl_needs_check before anything runs. */
#ifndef PL_BASE_NEEDS_H
#define PL_BASE_NEEDS_H

#include "base/json.h"
#include "base/opt.h"

struct pl_party {
    const char *what;  /* "optim", "weight-decay" */
    const char *given; /* what the user gave, or what stands for it: "dana:form=slim", "0.1"; NULL:
                          nothing, and it only lacks */
    unsigned needs;
    unsigned lacks;      /* needs of others that are not met because of it, */
    const char *how;     /* and why, in words; NULL: the words of the need */
    const char *instead; /* what to do when it clashes with another; NULL: what the need advises */
    const struct pl_family *family; /* or else another entry of its family; NULL: it has none */
};

/* 0 if no party needs what another one lacks; otherwise PL_EUSAGE and a sentence that names both
 * and what to type instead. */
int pl_needs_check(const struct pl_party *party, int n, struct pl_why *why);

/* The names of these needs, as the member "needs" of an object. */
void pl_needs_print(unsigned needs, struct pl_json *j);

/* The first entry of a family that needs nothing of `lacks`; NULL if there is none. */
const struct pl_entry *pl_needs_first(const struct pl_family *family, unsigned lacks);

#endif
