"""The page of `paceline report` in a real browser. tests/page.sh starts it."""
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["SOURCE_DIR"], "tests"))
import browser  # noqa: E402

PACELINE = os.environ["PACELINE"]
EVIL = "</script><img src=x onerror=\"window.hurt=1\"><script>window.hurt=1</script>"
failed = 0


def check(fine, what):
    global failed
    if not fine:
        failed += 1
        print("failed:", what)


def paceline(*words):
    done = subprocess.run([PACELINE, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    check(done.returncode == 0, " ".join(words) + ": " + done.stdout[-500:])
    return done.stdout


def drawn(b, selector):
    """How many colours the canvases under a selector have; a figure that is not drawn has one or none."""
    return b.run("""[...document.querySelectorAll(%s)].map(c => {
        const d = new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer);
        return new Set(d).size; }).reduce((a, b) => Math.min(a, b), 1e9)""" % json.dumps(selector))


def open_page(b, path):
    b.messages, b.requests = [], []
    b.open(path)
    b.frames(3)
    check(b.messages == [], "%s: the console says %s" % (path, b.messages[:3]))
    outside = [r for r in b.requests if not r.startswith(("file:", "data:", "http://127.0.0.1"))]
    check(outside == [], "%s: asked the network for %s" % (path, outside[:3]))
    check(b.run("typeof window.hurt") == "undefined", path + ": text of a file was executed")


# --- runs of every kind -------------------------------------------------------------------------

KINDS = {
    "train": ["train", "--method", "kasync:k=2", "--workers", "3", "--data", "digits", "--delay", "exp:mean=0.01",
              "--time", "1.5", "--log-dir", "train"],
    "simulate": ["simulate", "--method", "abs", "--data", "digits", "--time", "8", "--log-dir", "simulate",
                 "--record", "run.rec"],
    "mf": ["simulate", "--method", "dsgd", "--model", "mf", "--data", "lowrank:users=300,items=200,ratings=20000",
           "--workers", "4", "--lr", "0.02", "--epochs", "3", "--log-dir", "mf"],
    "gossip": ["simulate", "--method", "ad-psgd", "--data", "digits", "--time", "8", "--log-dir", "gossip"],
    "timing": ["simulate", "--policy", "ksync:k=60", "--model", "none", "--workers", "100", "--updates", "300",
               "--log-dir", "timing"],
    "race": ["race", "sync", "async", "gap-aware@lr=0.01", "--data", "digits", "--time", "8", "--target-accuracy",
             "0.2", "--seeds", "2", "--out", "race"],
}
METRIC = {"mf": "Test RMSE", "timing": None}


def kinds(b):
    for name, words in KINDS.items():
        paceline(*words)
    for name in [*KINDS, "run.rec"]:
        page = name + ".html"
        paceline("report", name, "-o", page)
        open_page(b, page)
        check(b.run("document.querySelector('#verdict p').textContent.length") > 20, name + ": no verdict")
        metric = METRIC.get(name, "Test accuracy")
        if metric:
            check(metric in b.run("document.querySelector('#metric h2').textContent"), name + ": metric")
            check(drawn(b, "#metric canvas") > 3, name + ": the metric is not drawn")
        check(drawn(b, "canvas.gantt") > 3, name + ": the Gantt is not drawn")
        check(drawn(b, "#knobs canvas") > 3, name + ": K is not drawn")
        check(drawn(b, "#staleness canvas") > 3, name + ": the staleness is not drawn")
        check(b.run("document.querySelectorAll('.stack .track div').length") > 0, name + ": no times")
        check(b.run("document.querySelectorAll('#configuration tr').length") > 20, name + ": no configuration")
        b.run("document.querySelector('#events summary').click()")
        b.frames()
        check(re.search(r"join W1.*start W1", b.run("document.querySelector('#events pre').textContent")),
              name + ": no event log")
        check(b.messages == [], "%s: the console says %s" % (name, b.messages[:3]))


def race(b):
    open_page(b, "race.html")
    rows = b.run("[...document.querySelectorAll('#metric tbody tr')].map(r => r.textContent)")
    check(len(rows) == 3 and any("gap-aware@lr=0.01" in r for r in rows), "the board: %s" % rows)
    check(b.run("Page.loads[0].groups.every(g => g.runs.length === 2)"), "seeds are not grouped")
    order = b.run("Page.loads[0].groups.map(g => Number.isFinite(g.reached) ? g.reached : 1e9)")
    check(order == sorted(order), "the ranking is not in order: %s" % order)
    check(b.run("Page.loads[0].target") == 0.2, "no target")
    check("gap" in b.run("document.querySelector('#run select').textContent"), "no choice of runs")
    b.run("const s = document.querySelector('#run select'); s.value = '2'; s.dispatchEvent(new Event('change'))")
    b.frames(3)
    check(drawn(b, "canvas.gantt") > 3, "the other run is not drawn")
    paceline("report", "race", "train", "mf", "-o", "all.html")
    open_page(b, "all.html")
    check(b.run("document.querySelectorAll('#metric, #metric-2').length") == 2, "workloads are not apart")
    b.size(390, 800)
    open_page(b, "all.html")
    wide = b.run("""[...document.querySelectorAll('*')].filter(e => e.getBoundingClientRect().right > 391
        && !e.closest('.scroll, .skip')).map(e => e.tagName + '.' + e.className + ' ' + e.parentElement.className)""")
    check(b.run("document.documentElement.scrollWidth") <= 390, "too wide for a phone: %s" % wide[:5])
    b.size(1200, 900)
    b.pdf("race.pdf")
    check(os.path.getsize("race.pdf") > 20000, "not printed")


# --- many tasks, the keyboard -------------------------------------------------------------------

def many(folder, n_tasks=100000, n_workers=24):
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
        json.dump({"format": "paceline history 1", "method": "many", "clock": "virtual", "metric": "",
                   "options": {"seed": "1"}, "workers": n_workers, "time": max(ends) * 1e-3, "updates": 1, "ended": 1,
                   "fates": {"applied": n_tasks}, "rows": [[1, 0, 1, 1, 1, 1, 0, 0, 1, 0]] * n_workers,
                   "held": [], "knobs": [[0, 1, None]], "staleness": {"mean": 1, "max": 1, "bins": [[0, 1]]},
                   "points": [], "cells": {"width": 1, "rows": []}, "events": {"all": 0, "first": [], "last": []},
                   "tasks": {"all": n_tasks, "unit": 1e-3, "fate": "".join(t[3] for t in tasks),
                             "worker": [t[1] for t in tasks],
                             "end": [e - b for e, b in zip(ends, [0] + ends)],
                             "duration": [t[2] for t in tasks], "sent": [0] * n_tasks,
                             "lag": [t[4] for t in tasks], "number": list(range(n_tasks))}}, f)


def keyboard(b):
    many("many")
    paceline("report", "many")
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
    synced = b.run("(() => { const s = Page.parts.find(p => p.id === 'knobs').chart.u.scales.x; "
                   "return [s.min, s.max]; })()")
    check(abs(synced[0] - b.run(view)[0]) < 1e-6 * whole[1], "K does not follow the Gantt: %s" % synced)
    b.key("n")
    first = b.run(gantt + ".readout.textContent")
    b.key("n")
    second = b.run(gantt + ".readout.textContent")
    check("Worker 1, task" in first and first != second, "n does not go from task to task: " + first)
    b.key("0")
    check(b.run(view) == whole, "0 does not show the whole run")
    # scrolling: every frame draws all visible tasks; the time is reported, not asserted
    times = b.run("""(async () => { const g = %s, out = []; g.zoom(0.9);
        for (let i = 0; i < 30; i++) { g.show(g.t0 + (i %% 2 ? 1 : -1) * 0.01 * g.end, g.t1 + (i %% 2 ? 1 : -1) * 0.01 * g.end);
            await new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r))); out.push(g.milliseconds); }
        return out.sort((a, b) => a - b); })()""" % gantt)
    print("10^5 tasks: median frame %.1f ms, slowest of 30 %.1f ms" % (times[15], times[-1]))
    theme = b.run("getComputedStyle(document.body).backgroundColor")
    b.run("document.getElementById('theme').click()")
    b.frames(3)
    check(b.run("getComputedStyle(document.body).backgroundColor") != theme, "the theme does not change")
    check(b.messages == [], "the console says %s" % b.messages[:3])


# --- hostile files ------------------------------------------------------------------------------

def write(folder, files):
    os.mkdir(folder)
    for name, text in files.items():
        with open(os.path.join(folder, name), "wb") as f:
            f.write(text if isinstance(text, bytes) else text.encode())


def hostile(b):
    with open("simulate/history.json") as f:
        good = json.load(f)
    evil = dict(good, method=EVIL, options={EVIL: EVIL, "data": EVIL, "seed": "1", "delay": EVIL},
                events={"all": 1, "first": [EVIL], "last": []})
    huge = dict(good, time=1e308, workers=1e300, updates=-5, knobs=[[1e300, 1e300, -1]], held=[[99999, 1, 1], [0, "x", {}]],
                rows=[[1e308] * 10, ["a", None], "x"], staleness={"bins": [[1e18, 1e18], ["a", "b"]]},
                points=[{"time": 1e308, "loss": -1e308, "test_accuracy": 1e308}, {"time": "soon"}, 7, None])
    broken = dict(good, tasks=dict(good["tasks"], worker=good["tasks"]["worker"][:-1]))
    wild = dict(good, tasks=dict(good["tasks"], worker=[-1, 1e9] * (len(good["tasks"]["worker"]) // 2)
                                 + [0] * (len(good["tasks"]["worker"]) % 2)))
    point = '{"method":"m","time":1,"loss":1,"test_accuracy":0.5}\n'
    write("h1", {"history.json": json.dumps(evil), "run.json": json.dumps({"id": EVIL, "command": [EVIL], "why": EVIL})})
    write("h2", {"history.json": json.dumps(huge).replace("1e+308", "1e308"), "points.jsonl": "{\n" + point + "[1]\nnull\n"})
    write("h3", {"history.json": json.dumps(broken), "run.json": "[1,2"})
    write("h4", {"history.json": json.dumps(good)[:5000], "points.jsonl": point})
    write("h5", {"history.json": "[]", "points.jsonl": b"\xff\xfe\x00\x01" + EVIL.encode()})
    write("h6", {"history.json": json.dumps(wild)})
    write("h7", {"results.jsonl": json.dumps({"entrant": EVIL, "result": {"seed": 1, "staleness": 3}}) + "\n",
                 "points-01-seed1.jsonl": point, "points-99-seed1.jsonl": point, "history-01.json": "{}"})
    write("h8", {"history.json": "{}", "points.jsonl": ""})
    folders = ["h%d" % i for i in range(1, 9)]
    for folder in folders:
        paceline("report", folder, "-o", folder + ".html")
        open_page(b, folder + ".html")
    paceline("report", *folders, "-o", "hostile.html")
    open_page(b, "hostile.html")
    check("</script>" in b.run("document.body.textContent"), "a name was swallowed")
    check(b.run("document.querySelectorAll('main img, main script').length") == 0, "text became elements")
    check(b.run("document.querySelectorAll('.trouble').length") > 0, "damaged files are not mentioned")
    with open("hostile.html", encoding="utf-8", errors="replace") as f:
        check("window.hurt" not in f.read(), "hostile text is in the page as it was")
    os.rename("h1", EVIL.replace("/", "_")[:60])
    paceline("report", EVIL.replace("/", "_")[:60], "-o", "named.html")
    open_page(b, "named.html")


# --- live ---------------------------------------------------------------------------------------

def live(b):
    run = subprocess.Popen([PACELINE, "train", "--method", "async", "--workers", "2", "--data", "digits", "--delay",
                            "exp:mean=0.01", "--time", "90", "--dashboard", "0"], stdout=subprocess.DEVNULL,
                           stderr=subprocess.PIPE, text=True)
    address = None
    for line in run.stderr:
        found = re.search(r"http://\S+", line)
        if found:
            address = found.group(0)
            break
        if "libmicrohttpd" in line:
            print("live: skipped, no libmicrohttpd")
            run.wait()
            return
    open_page(b, address)
    b.wait("Page.runs.length === 1 && Page.runs[0].history.updates > 0", "a live run")
    before = b.run("Page.runs[0].history.updates")
    b.wait("Page.runs[0].history.updates > %d" % before, "a live run that goes on")
    check(b.run("document.getElementById('state').textContent") == "live", "the page is not live")
    run.terminate()
    run.communicate()
    check(run.returncode == 0, "the run failed")
    b.wait("document.getElementById('state').textContent === 'ended'", "the end of a live run")
    b.wait("Page.runs[0].history.ended", "the last data of a live run")
    check(b.messages == [], "live: the console says %s" % b.messages[:3])


def main():
    if not browser.find():
        print("skipped: chromium is not installed (make setup-test)")
        return 77
    here = tempfile.mkdtemp()
    os.chdir(here)
    b = browser.Browser()
    try:
        for part in (kinds, race, keyboard, hostile, live):
            began = time.monotonic()
            part(b)
            print("%s: %.0f s" % (part.__name__, time.monotonic() - began))
    finally:
        b.close()
        os.chdir("/")
        shutil.rmtree(here, ignore_errors=True)
    print("failed: %d" % failed)
    return 1 if failed else 0


sys.exit(main())
