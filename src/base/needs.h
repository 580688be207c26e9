/* What the members of the families need of a run, as flags; and the one function that says which
 * choices do not go together.
 *
 * An entry lists its needs in struct pl_entry. Whoever puts a run together writes down its parties,
 * that is every choice and every option that needs something or takes something away, and asks
 * pl_needs_check before anything runs. */
#ifndef PL_BASE_NEEDS_H
#define PL_BASE_NEEDS_H

#include "base/opt.h"

enum {
    PL_NEEDS_MODEL = 1 << 0,         /* tasks that compute something, not timing alone */
    PL_NEEDS_MATRIX = 1 << 1,        /* a model that can be worked on in blocks of a matrix */
    PL_NEEDS_DATA = 1 << 2,          /* training samples */
    PL_NEEDS_LABELS = 1 << 3,        /* … with classes */
    PL_NEEDS_RATINGS = 1 << 4,       /* … that are ratings */
    PL_NEEDS_SERVER_MODEL = 1 << 5,  /* one model, which contributions change at a server */
    PL_NEEDS_WHOLE_VECTORS = 1 << 6, /* tasks on the whole model */
    PL_NEEDS_PARTS = 1 << 7,         /* tasks on parts of the model */
    PL_NEEDS_BASE = 1 << 8,          /* the version that a contribution was computed on */
    PL_NEEDS_ONE_AT_A_TIME = 1 << 9, /* groups of one contribution */
    PL_NEEDS_ONE_SERVER = 1 << 10,   /* whole vectors at one server */
    PL_NEEDS_NO_FILTER = 1 << 11,    /* contributions that change after their arrival */
    /* what rules that work on whole contributions at a server need */
    PL_NEEDS_SERVER = PL_NEEDS_SERVER_MODEL | PL_NEEDS_WHOLE_VECTORS
};

struct pl_party {
    const char *what;  /* "optim", "weight-decay" */
    const char *given; /* what the user gave, or what stands for it: "dana:form=slim", "0.1" */
    unsigned needs;
    unsigned lacks;      /* needs of others that are not met because of it, */
    const char *how;     /* and why, in words; NULL: the words of the need */
    const char *instead; /* what to do when it clashes with another; NULL: what the need advises */
    const struct pl_family *family; /* or else another entry of its family; NULL: it has none */
};

/* 0 if no party needs what another one lacks; otherwise PL_EUSAGE and a sentence that names both
 * and what to type instead. */
int pl_needs_check(const struct pl_party *party, int n, struct pl_why *why);

/* The first entry of a family that needs nothing of `lacks`; NULL if there is none. */
const struct pl_entry *pl_needs_first(const struct pl_family *family, unsigned lacks);

#endif
