/* The page that shows runs: our HTML, styles and scripts (src/observe/page/), uPlot, and the data,
 * in one file that needs nothing else. The data is deflated and written in base64, so that nothing
 * in it is read as HTML.
 *
 * Threads: any. */
#ifndef PL_OBSERVE_PAGE_H
#define PL_OBSERVE_PAGE_H

#include "base/json.h"
#include "base/status.h"

/* Every page begins with this. */
#define PL_PAGE_BEGIN "<!doctype html>\n<!-- paceline report -->\n"

/* The page with this JSON text as its data; if that is NULL, one that fetches its data from the
 * server it came from. `facts` is what the page must know about the program, a JSON object.
 * malloc()ed, or NULL if there is no memory. */
char *pl_page_new(const char *facts, const char *data, size_t n_data, size_t *n);

/* Adds what `path` holds to an open JSON array, as an object {"path":…,"kind":…,"files":{…}}: the
 * files of a log directory or of a race, as they are. Returns PL_EIO if it cannot be read,
 * PL_EUSAGE if there is nothing in it that a page could show. */
int pl_page_folder(struct pl_json *j, const char *path, struct pl_why *why);

/* The same with one text as the file `name`. */
void pl_page_text(struct pl_json *j, const char *path, const char *kind, const char *name,
                  const char *text);

#endif
