#include "observe/page.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#include "base/grow.h"

#define PAGE_PATH 1200
#define PAGE_FILES 4096             /* of one folder */
#define PAGE_FILE_BYTES (64u << 20) /* longer files are cut */

/* --- the parts of the page --------------------------------------------------------------- */

#define PAGE_ASSETS(X)                                                                             \
    X(html)                                                                                        \
    X(css) X(data_js) X(gantt_js) X(charts_js) X(sentences_js) X(page_js) X(uplot_js) X(uplot_css)
#define PAGE_DECLARE(name)                                                                         \
    extern const unsigned char pl_asset_##name[];                                                  \
    extern const unsigned pl_asset_##name##_length;
PAGE_ASSETS(PAGE_DECLARE)
#undef PAGE_DECLARE

static void page_base64(struct pl_text *p, const unsigned char *bytes, size_t n) {
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        unsigned a = bytes[i], b = i + 1 < n ? bytes[i + 1] : 0, c = i + 2 < n ? bytes[i + 2] : 0;
        char four[4] = {digit[a >> 2], digit[(a & 3) << 4 | b >> 4],
                        i + 1 < n ? digit[(b & 15) << 2 | c >> 6] : '=',
                        i + 2 < n ? digit[c & 63] : '='};
        pl_text_put(p, four, 4);
    }
}

static void page_data(struct pl_text *p, const char *data, size_t n) {
    uLongf length = compressBound(n);
    unsigned char *bytes = malloc(length);
    if (!bytes || compress2(bytes, &length, (const Bytef *)data, n, 6) != Z_OK)
        p->failed = true;
    else
        page_base64(p, bytes, length);
    free(bytes);
}

/* The page, with what belongs there in place of its three marks: <!--css-->, <!--data-->,
 * <!--js-->. */
char *pl_page_new(const char *facts, const char *data, size_t n_data, size_t *n) {
    struct pl_text p = {0};
    const char *at = (const char *)pl_asset_html;
    const char *css = strstr(at, "<!--css-->"), *mark = strstr(at, "<!--data-->");
    const char *js = strstr(at, "<!--js-->");
    if (!css || !mark || !js) return NULL;
    pl_text_put(&p, at, (size_t)(css - at));
    pl_text_put(&p, pl_asset_uplot_css, pl_asset_uplot_css_length);
    pl_text_put(&p, pl_asset_css, pl_asset_css_length);
    pl_text_put(&p, css + 10, (size_t)(mark - css - 10));
    if (data) page_data(&p, data, n_data);
    pl_text_put(&p, mark + 11, (size_t)(js - mark - 11));
    pl_text_put(&p, pl_asset_uplot_js, pl_asset_uplot_js_length);
    pl_text_put(&p, "const FACTS = ", 14);
    pl_text_put(&p, facts, strlen(facts));
    pl_text_put(&p, ";\n", 2);
    pl_text_put(&p, pl_asset_data_js, pl_asset_data_js_length);
    pl_text_put(&p, pl_asset_gantt_js, pl_asset_gantt_js_length);
    pl_text_put(&p, pl_asset_charts_js, pl_asset_charts_js_length);
    pl_text_put(&p, pl_asset_sentences_js, pl_asset_sentences_js_length);
    pl_text_put(&p, pl_asset_page_js, pl_asset_page_js_length);
    pl_text_put(&p, js + 9, strlen(js + 9));
    if (p.failed) {
        free(p.text);
        return NULL;
    }
    *n = p.n;
    return p.text;
}

/* --- what folders hold ------------------------------------------------------------------- */

static bool page_like(const char *name, const char *first, const char *last) {
    size_t n = strlen(name), a = strlen(first), b = strlen(last);
    return n >= a + b && strncmp(name, first, a) == 0 && strcmp(name + n - b, last) == 0;
}

static bool page_wants(const char *name) {
    return strcmp(name, "run.json") == 0 || strcmp(name, "race.json") == 0 ||
           strcmp(name, "results.jsonl") == 0 || page_like(name, "points", ".jsonl") ||
           page_like(name, "history", ".json");
}

static int page_order(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The names of the files that a page can show, sorted; the caller frees each and the list. */
static int page_names(const char *path, char ***out, size_t *n, struct pl_why *why) {
    DIR *d = opendir(path);
    const struct dirent *entry;
    char **name = calloc(PAGE_FILES, sizeof *name);
    *n = 0;
    if (!d || !name) {
        int error = errno;
        if (d) closedir(d);
        free(name);
        return pl_fail(why, PL_EIO, "'%.200s' cannot be read: %s", path, strerror(error));
    }
    while (*n < PAGE_FILES && (entry = readdir(d)))
        if (page_wants(entry->d_name) && (name[*n] = strdup(entry->d_name))) ++*n;
    closedir(d);
    qsort(name, *n, sizeof *name, page_order);
    *out = name;
    return PL_OK;
}

/* A regular file as a string, cut at PAGE_FILE_BYTES; NULL: it cannot be read. */
static char *page_read(const char *path) {
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode)) return NULL;
    FILE *f = fopen(path, "r");
    size_t room = st.st_size < (off_t)PAGE_FILE_BYTES ? (size_t)st.st_size : PAGE_FILE_BYTES;
    char *text = f ? malloc(room + 1) : NULL;
    if (text) text[fread(text, 1, room, f)] = '\0';
    if (f) fclose(f);
    return text;
}

static void page_file(struct pl_json *j, const char *folder, const char *name) {
    char path[PAGE_PATH];
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    char *text = n > 0 && n < PAGE_PATH ? page_read(path) : NULL;
    if (text) pl_json_text(j, name, text);
    free(text);
}

int pl_page_folder(struct pl_json *j, const char *path, struct pl_why *why) {
    char **name = NULL;
    size_t n;
    bool race = false, run = false;
    int rc = page_names(path, &name, &n, why);
    if (rc) return rc;
    for (size_t i = 0; i < n; i++) {
        race = race || strcmp(name[i], "results.jsonl") == 0;
        run = run || (strcmp(name[i], "run.json") != 0 && strcmp(name[i], "race.json") != 0);
    }
    if (run) {
        pl_json_open(j, NULL, '{');
        pl_json_text(j, "path", path);
        pl_json_text(j, "kind", race ? "race" : "run");
        pl_json_open(j, "files", '{');
        for (size_t i = 0; i < n; i++) page_file(j, path, name[i]);
        pl_json_close(j, '}');
        pl_json_close(j, '}');
    } else {
        rc = pl_fail(why, PL_EUSAGE,
                     "'%.200s' holds no run: give a folder of --log-dir, a folder of a race, or a "
                     "recording",
                     path);
    }
    for (size_t i = 0; i < n; i++) free(name[i]);
    free(name);
    return rc;
}

void pl_page_text(struct pl_json *j, const char *path, const char *kind, const char *name,
                  const char *text) {
    pl_json_open(j, NULL, '{');
    pl_json_text(j, "path", path);
    pl_json_text(j, "kind", kind);
    pl_json_open(j, "files", '{');
    pl_json_text(j, name, text);
    pl_json_close(j, '}');
    pl_json_close(j, '}');
}
