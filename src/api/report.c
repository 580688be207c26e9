/* pl_report and pl_setup_serve: the page that shows runs, as a file and live. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "api/setup.h"
#include "base/input.h"
#include "base/json.h"
#include "base/output.h"
#include "observe/dashboard.h"
#include "observe/page.h"
#include "sys/numerals.h"
#include "timing/recording.h"

#define REPORT_HISTORY (64u << 20) /* longest history file, in bytes */

/* Replays the recording, and adds the history of the replay. */
static int report_recording(pl_setup *setup, struct pl_json *j, const char *path) {
    pl_setup *copy;
    pl_run *run = NULL;
    char *text = NULL;
    if (pl_setup_copy(setup, &copy)) return pl_fail(&setup->why, PL_ENOMEM, "out of memory");
    copy->captured = &text;
    int rc = pl_replay(copy, path, &run);
    if (rc) setup->why = copy->why;
    if (!rc && !text) rc = pl_fail(&setup->why, PL_ENOMEM, "out of memory");
    if (!rc) pl_page_text(j, path, "recording", "history.json", text);
    free(text);
    pl_run_free(run);
    pl_setup_free(copy);
    return rc;
}

/* Adds a file of the option "history". */
static int report_history(pl_setup *setup, struct pl_json *j, const char *path) {
    static const char begin[] = "{\"format\":\"paceline history ";
    struct stat st;
    const char *wrong = "";
    FILE *f = pl_input_file(path, &wrong);
    if (!f) return pl_fail(&setup->why, PL_EIO, "'%.200s': %s", path, wrong);
    bool fits = fstat(fileno(f), &st) == 0 && st.st_size < REPORT_HISTORY;
    char *text = fits ? malloc((size_t)st.st_size + 1) : NULL;
    size_t n = text ? fread(text, 1, (size_t)st.st_size, f) : 0;
    fclose(f);
    if (text) text[n] = '\0';
    int rc = PL_OK;
    if (text && strncmp(text, begin, sizeof begin - 1) == 0)
        pl_page_text(j, path, "run", "history.json", text);
    else
        rc = pl_fail(&setup->why, PL_EUSAGE,
                     "'%.200s' is neither a recording nor a history; give a folder of --log-dir, a "
                     "folder of a race, or a recording",
                     path);
    free(text);
    return rc;
}

static int report_add(pl_setup *setup, struct pl_json *j, const char *path) {
    struct stat st;
    if (stat(path, &st) != 0)
        return pl_fail(&setup->why, PL_EIO, "'%.200s': %s", path, strerror(errno));
    if (S_ISDIR(st.st_mode)) return pl_page_folder(j, path, &setup->why);
    if (S_ISREG(st.st_mode) && pl_recording_is(path)) return report_recording(setup, j, path);
    return report_history(setup, j, path);
}

static bool report_is_stdout(const char *out) {
    return strcmp(out, "-") == 0;
}

/* A page of this program may be replaced, no other file. */
static int report_may_write(const char *out, struct pl_why *why) {
    char begin[sizeof PL_PAGE_BEGIN] = "";
    struct stat st;
    if (report_is_stdout(out) || lstat(out, &st) != 0) return PL_OK;
    FILE *f = S_ISREG(st.st_mode) ? fopen(out, "r") : NULL;
    bool ours = f && fread(begin, 1, sizeof begin - 1, f) == sizeof begin - 1 &&
                strcmp(begin, PL_PAGE_BEGIN) == 0;
    if (f) fclose(f);
    return ours ? PL_OK
                : pl_fail(why, PL_EIO,
                          "'%.200s' exists and is not a report; choose another name with -o", out);
}

static int report_write(const char *out, const char *text, size_t n, struct pl_why *why) {
    struct pl_why reason;
    if (report_is_stdout(out)) { /* whose owner flushes it, and sees errors */
        fwrite(text, 1, n, stdout);
        return PL_OK;
    }
    int rc = pl_output_write(out, text, n, &reason);
    return rc ? pl_fail(why, rc, "'%.200s' could not be written: %s", out, reason.text) : PL_OK;
}

int pl_report(pl_setup *setup, const char *const *path, size_t n_paths, const char *out) {
    PL_NUMERALS;
    struct pl_json j = {0};
    setup->why.text[0] = '\0';
    int rc = n_paths ? report_may_write(out, &setup->why)
                     : pl_fail(&setup->why, PL_EUSAGE, "a report needs at least one path");
    pl_json_open(&j, NULL, '{');
    pl_json_text(&j, "program", PL_VERSION);
    pl_json_open(&j, "sources", '[');
    for (size_t i = 0; !rc && i < n_paths; i++) rc = report_add(setup, &j, path[i]);
    pl_json_close(&j, ']');
    pl_json_close(&j, '}');
    size_t n = 0;
    char *facts = pl_setup_facts();
    char *page = rc || j.failed || !facts ? NULL : pl_page_new(facts, j.text, j.n, &n);
    if (!rc && !page) rc = pl_fail(&setup->why, PL_ENOMEM, "out of memory for the report");
    if (!rc) rc = report_write(out, page, n, &setup->why);
    free(page);
    free(facts);
    free(j.text);
    return rc;
}

int pl_setup_serve(pl_setup *setup) {
    char url[PL_DASHBOARD_URL];
    setup->why.text[0] = '\0';
    if (setup->board || !setup->conf.dashboard[0]) return PL_OK;
    struct pl_shared_board *b = calloc(1, sizeof *b);
    if (!b) return pl_fail(&setup->why, PL_ENOMEM, "out of memory");
    int rc = pl_dashboard_open(setup->conf.dashboard, pl_setup_facts(), &b->dashboard, &setup->why);
    if (rc) {
        free(b);
        return pl_fail_in(&setup->why, rc, "dashboard");
    }
    b->n_holders = 1;
    setup->board = b;
    pl_log_note(&setup->log, "the dashboard is at %s", pl_dashboard_url(b->dashboard, url));
    return PL_OK;
}
