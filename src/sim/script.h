/* What happens to workers during a simulated run: a text file with one line per event,
 *
 *   TIME leave WORKER            it leaves, and its task is lost
 *   TIME join WORKER             it joins, perhaps again
 *   TIME freeze WORKER SECONDS   it does nothing for that long
 *
 * with workers numbered from 1 and comments after '#'. A worker whose first line is a join is
 * absent at the start. */
#ifndef PL_SIM_SCRIPT_H
#define PL_SIM_SCRIPT_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum pl_script_verb { PL_SCRIPT_LEAVE, PL_SCRIPT_JOIN, PL_SCRIPT_FREEZE };

struct pl_script_line {
    uint64_t when_ns, for_ns;
    enum pl_script_verb verb;
    int worker; /* from 0 */
};

struct pl_script {
    struct pl_script_line *line;
    size_t n;
};

/* Reads `path` and checks every line. Free with pl_script_free. */
int pl_script_read(const char *path, int n_workers, struct pl_script *out, struct pl_why *why);
void pl_script_free(struct pl_script *s);

#endif
