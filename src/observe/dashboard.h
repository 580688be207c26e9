/* The page of `paceline report`, live: served over HTTP while runs go on. "/" is the page,
 * "/data/N" the histories of the runs from the N-th on as JSON, "/events" a stream that says when
 * there is news.
 *
 * One run at a time is attached; runs that have ended stay on the page. Requests are answered from
 * a copy of the history, on the server's thread: a client never makes the run wait.
 *
 * Threads: the run's thread calls everything here. */
#ifndef PL_OBSERVE_DASHBOARD_H
#define PL_OBSERVE_DASHBOARD_H

#include "observe/history.h"

struct pl_dashboard;

/* `address` is HOST:PORT, [HOST]:PORT, :PORT or PORT; see http.h. `facts` is that of page.h, and is
 * the dashboard's from then on; NULL: out of memory. PL_EMISSING if the library was
 * built without libmicrohttpd. */
int pl_dashboard_open(const char *address, char *facts, struct pl_dashboard **out,
                      struct pl_why *why);

/* Where the page is, "http://127.0.0.1:8080/", in out, which is returned. */
#define PL_DASHBOARD_URL 300
const char *pl_dashboard_url(const struct pl_dashboard *d, char out[PL_DASHBOARD_URL]);

/* Waits up to two seconds for pages that are open to fetch the end of the last run. NULL is
 * allowed. */
void pl_dashboard_close(struct pl_dashboard *d);

/* The history of the run that begins now. The caller keeps it until pl_dashboard_detach, and
 * changes it only between pl_dashboard_enter and pl_dashboard_leave. */
void pl_dashboard_attach(struct pl_dashboard *d, struct pl_history *h);
void pl_dashboard_detach(struct pl_dashboard *d);
void pl_dashboard_enter(struct pl_dashboard *d);
void pl_dashboard_leave(struct pl_dashboard *d);

#endif
