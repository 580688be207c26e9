"""Pages of many tasks, and the keyboard."""
import json
import os
import random

import browser
from page_checks import check, open_page, paceline


def many(folder: str, n_tasks: int = 100000, n_workers: int = 24) -> None:
    """A log directory with 10^5 tasks of all fates."""
    rng = random.Random(1)
    now, tasks = [0] * n_workers, []
    for i in range(n_tasks):
        w = min(range(n_workers), key=now.__getitem__) if i % 50 else rng.randrange(n_workers)
        took = int(1000 * rng.paretovariate(1.7))
        tasks.append((now[w] + took, w, took, rng.choice("AAAAAAAADCLR"), rng.randrange(9)))
        now[w] += took + rng.randrange(200)
    tasks.sort()
    ends = [t[0] for t in tasks]
    os.mkdir(folder)
    with open(os.path.join(folder, "history.json"), "w") as f:
        json.dump(
            {
                "format": "paceline history 1",
                "method": "many",
                "clock": "virtual",
                "metric": "",
                "options": {"seed": "1"},
                "workers": n_workers,
                "time": max(ends) * 1e-3,
                "updates": 1,
                "ended": 1,
                "fates": {"applied": n_tasks},
                "rows": [[1, 0, 1, 1, 1, 1, 0, 0, 1, 0]] * n_workers,
                "held": [],
                "knobs": [[0, 1, None]],
                "staleness": {"mean": 1, "max": 1, "bins": [[0, 1]]},
                "points": [],
                "cells": {"width": 1, "rows": []},
                "events": {"all": 0, "first": [], "last": []},
                "tasks": {
                    "all": n_tasks,
                    "unit": 1e-3,
                    "fate": "".join(t[3] for t in tasks),
                    "worker": [t[1] for t in tasks],
                    "end": [e - b for e, b in zip(ends, [0] + ends)],
                    "duration": [t[2] for t in tasks],
                    "sent": [0] * n_tasks,
                    "lag": [t[4] for t in tasks],
                    "number": list(range(n_tasks)),
                },
            },
            f,
        )


def keyboard(b: browser.Browser) -> None:
    many("many")
    paceline("report many")
    open_page(b, "report.html")
    gantt = "Page.parts.find(p => p.gantt).gantt"
    check(b.run(gantt + ".seen") == 100000, "not all tasks are drawn")
    for _ in range(30):
        if b.run("document.activeElement.className") == "gantt":
            break
        b.key("Tab")
    check(b.run("document.activeElement.className") == "gantt", "Tab does not reach the Gantt")
    view = "[%s.t0, %s.t1]" % (gantt, gantt)
    whole = b.run(view)
    for key in "+++":
        b.key(key)
    zoomed = b.run(view)
    check(zoomed[1] - zoomed[0] < (whole[1] - whole[0]) / 7, "+ does not zoom: %s" % zoomed)
    b.key("ArrowRight")
    check(b.run(view)[0] > zoomed[0], "the right arrow does not move")
    b.frames()
    synced = b.run(
        "(() => { const s = Page.parts.find(p => p.id === 'knobs').chart.u.scales.x; "
        "return [s.min, s.max]; })()"
    )
    check(
        abs(synced[0] - b.run(view)[0]) < 1e-6 * whole[1],
        "K does not follow the Gantt: %s" % synced,
    )
    b.key("n")
    first = b.run(gantt + ".readout.textContent")
    b.key("n")
    second = b.run(gantt + ".readout.textContent")
    check(
        "Worker 1, task" in first and first != second, "n does not go from task to task: " + first
    )
    b.key("0")
    check(b.run(view) == whole, "0 does not show the whole run")
    # scrolling: every frame draws all visible tasks; the time is reported, not asserted
    times = b.run(
        """(async () => { const g = %s, out = []; g.zoom(0.9);
        for (let i = 0; i < 30; i++) {
            g.show(g.t0 + (i %% 2 ? 1 : -1) * 0.01 * g.end, g.t1 + (i %% 2 ? 1 : -1) * 0.01 * g.end);
            await new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r))); out.push(g.milliseconds); }
        return out.sort((a, b) => a - b); })()"""
        % gantt
    )
    print("10^5 tasks: median frame %.1f ms, slowest of 30 %.1f ms" % (times[15], times[-1]))
    theme = b.run("getComputedStyle(document.body).backgroundColor")
    b.run("document.getElementById('theme').click()")
    b.frames(3)
    check(
        b.run("getComputedStyle(document.body).backgroundColor") != theme,
        "the theme does not change",
    )
    check(b.messages == [], "the console says %s" % b.messages[:3])
