/* What happens to workers during a simulated run, told in a text file: one line an event,
 *
 *   TIME leave WORKER            it is gone, its task is lost
 *   TIME join WORKER             it is there (again)
 *   TIME freeze WORKER SECONDS   it stands still for that long
 *
 * with workers numbered from 1 and '#' before a remark. A worker whose first line is a join is not
 * there at the start. */
#ifndef PL_SIM_SCRIPT_H
#define PL_SIM_SCRIPT_H

#include <stdbool.h>
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

/* Reads `path`; every line is checked. Free with pl_script_free. */
int pl_script_read(const char *path, int n_workers, struct pl_script *out, struct pl_why *why);
void pl_script_free(struct pl_script *s);

#endif
