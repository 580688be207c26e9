/* A short linear combination of vectors, which are known by their numbers. */
#ifndef PL_BASE_COMBINATION_H
#define PL_BASE_COMBINATION_H

#define PL_TERMS 32 /* terms of a combination at most, wherever one is kept or sent */

struct pl_term {
    int vector;
    double c; /* times this */
};

struct pl_combination {
    int n;
    struct pl_term term[PL_TERMS];
};

#endif
