"""The page of `paceline report` in a real browser. tests/observe/page.sh starts it."""
import http.server
import json
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

sys.dont_write_bytecode = True
import browser  # noqa: E402

PACELINE = os.environ["PACELINE"]
EVIL = '</script><img src=x onerror="window.hurt=1"><script>window.hurt=1</script>'
failed = 0


def check(fine, what):
    global failed
    if not fine:
        failed += 1
        print("failed:", what)


def paceline(*words, status=0):
    done = subprocess.run(
        [PACELINE, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    check(done.returncode == status, " ".join(words) + ": " + done.stdout[-500:])
    return done.stdout


def drawn(b, selector):
    """How many colours the canvases under a selector have; a figure that is not drawn has one or none."""
    return b.run(
        """[...document.querySelectorAll(%s)].map(c => {
        const d = new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer);
        return new Set(d).size; }).reduce((a, b) => Math.min(a, b), 1e9)"""
        % json.dumps(selector)
    )


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
    "train": [
        "train",
        "--method",
        "kasync:k=2",
        "--workers",
        "3",
        "--data",
        "digits",
        "--delay",
        "exp:mean=0.01",
        "--updates",
        "200",
        "--log-dir",
        "train",
    ],
    "simulate": [
        "simulate",
        "--method",
        "abs",
        "--data",
        "digits",
        "--time",
        "8",
        "--log-dir",
        "simulate",
        "--record",
        "run.rec",
    ],
    "mf": [
        "simulate",
        "--method",
        "dsgd",
        "--model",
        "mf",
        "--data",
        "lowrank:users=300,items=200,ratings=20000",
        "--workers",
        "4",
        "--lr",
        "0.02",
        "--epochs",
        "3",
        "--log-dir",
        "mf",
    ],
    "gossip": [
        "simulate",
        "--method",
        "ad-psgd",
        "--data",
        "digits",
        "--time",
        "8",
        "--log-dir",
        "gossip",
    ],
    "timing": [
        "simulate",
        "--policy",
        "ksync:k=60",
        "--model",
        "none",
        "--workers",
        "100",
        "--updates",
        "300",
        "--log-dir",
        "timing",
    ],
    "race": [
        "race",
        "sync",
        "async",
        "gap-aware@lr=0.01",
        "--tune",
        "no",
        "--data",
        "digits",
        "--time",
        "8",
        "--target-accuracy",
        "0.2",
        "--seeds",
        "2",
        "--out",
        "race",
    ],
}
METRIC = {"mf": "Test RMSE", "timing": None}


def adds_up(b, name):
    """The number of tasks is the sum of the fates beside it."""
    near = "document.querySelector('canvas.gantt').parentNode.querySelector('%s')"
    said = b.run(near % ".readout" + ".textContent").split(" tasks")[0].replace("\u202f", "")
    fates = b.run("[...%s.children].map(x => x.textContent)" % near % ".legend")
    counts = [int(f.rsplit(" ", 1)[1].replace("\u202f", "")) for f in fates if f[-1].isdigit()]
    check(said.isdigit() and int(said) == sum(counts), "%s: %s tasks, but %s" % (name, said, fates))


def kinds(b):
    for name, words in KINDS.items():
        paceline(*words)
    for name in [*KINDS, "run.rec"]:
        page = name + ".html"
        paceline("report", name, "-o", page)
        open_page(b, page)
        check(
            b.run("document.querySelector('#verdict p').textContent.length") > 20,
            name + ": no verdict",
        )
        metric = METRIC.get(name, "Test accuracy")
        if metric:
            check(
                metric in b.run("document.querySelector('#metric h2').textContent"),
                name + ": metric",
            )
            check(drawn(b, "#metric canvas") > 3, name + ": the metric is not drawn")
        check(drawn(b, "canvas.gantt") > 3, name + ": the Gantt is not drawn")
        adds_up(b, name)
        check(drawn(b, "#knobs canvas") > 3, name + ": K is not drawn")
        check(drawn(b, "#staleness canvas") > 3, name + ": the staleness is not drawn")
        check(
            b.run("document.querySelectorAll('.stack .track div').length") > 0, name + ": no times"
        )
        check(
            b.run("document.querySelectorAll('#configuration tr').length") > 20,
            name + ": no configuration",
        )
        b.run("document.querySelector('#events summary').click()")
        b.frames()
        check(
            re.search(
                r"join W1.*start W1", b.run("document.querySelector('#events pre').textContent")
            ),
            name + ": no event log",
        )
        check(b.messages == [], "%s: the console says %s" % (name, b.messages[:3]))


def race(b):
    open_page(b, "race.html")
    rows = b.run("[...document.querySelectorAll('#metric tbody tr')].map(r => r.textContent)")
    check(len(rows) == 3 and any("gap-aware@lr=0.01" in r for r in rows), "the board: %s" % rows)
    check(b.run("Page.loads[0].groups.every(g => g.runs.length === 2)"), "seeds are not grouped")
    with open("race/race.json") as f:
        told = json.load(f)
    check(
        b.run("Page.loads[0].groups.map(g => g.name)") == [r["method"] for r in told["ranking"]],
        "the order is another",
    )
    said = b.run("[...document.querySelectorAll('#verdict p')].map(p => p.textContent)")
    check(
        told["verdict"] and said[: len(told["verdict"])] == told["verdict"],
        "the page says %s, the race %s" % (said, told["verdict"]),
    )
    check(
        said[0].startswith("With learning rates that were not tuned, "), "the headline: " + said[0]
    )
    above = b.run(
        "Page.loads[0].groups.every(g => g.times.length < g.runs.length || g.finals.every(x => x >= 0.2))"
    )
    check(above, "a method that reached the target is shown below it")
    heading = "document.querySelector('#metric h2').textContent"
    b.run(
        "[...document.querySelectorAll('#metric .bar button')].find(x => x.textContent === 'training loss').click()"
    )
    check(b.run(heading) == "Training loss over time", "the heading stays: " + b.run(heading))
    check(b.run("Page.loads[0].target") == 0.2, "no target")
    check("gap" in b.run("document.querySelector('#run select').textContent"), "no choice of runs")
    b.run(
        "const s = document.querySelector('#run select'); s.value = '2'; s.dispatchEvent(new Event('change'))"
    )
    b.frames(3)
    check(drawn(b, "canvas.gantt") > 3, "the other run is not drawn")
    adds_up(b, "the other run")
    check(
        b.run("document.querySelectorAll('.tried').length") == 0,
        "rates of a race that was not tuned",
    )
    paceline(
        "race",
        "sync",
        "async",
        "--workers",
        "2",
        "--data",
        "digits:samples=300,test=100",
        "--model",
        "softmax",
        "--target-accuracy",
        "0.5",
        "--updates",
        "200",
        "--out",
        "tuned",
    )
    paceline("report", "tuned", "-o", "tuned.html")
    open_page(b, "tuned.html")
    with open("tuned/race.json") as f:
        told = json.load(f)["entrants"]
    rows = b.run(
        """[...document.querySelectorAll('.tried tbody tr')].map(
        r => [r.cells[0].textContent, [...r.cells].slice(1).filter(c => c.textContent).length])"""
    )
    check(rows == [[e["name"], len(e["tried"])] for e in told], "rates tried: %s" % rows)
    used = b.run(
        """[...document.querySelectorAll('.tried strong')].map(
        x => x.closest('table').tHead.rows[0].cells[x.parentNode.cellIndex].textContent)"""
    )
    check(
        [float(x) for x in used] == [float("%.3g" % e["lr"]) for e in told], "rates used: %s" % used
    )
    paceline(
        "race",
        "sync",
        "async@lr=0.01",
        "--lr",
        "0.1",
        "--workers",
        "2",
        "--data",
        "digits:samples=300,test=100",
        "--model",
        "softmax",
        "--target-accuracy",
        "0.99",
        "--time",
        "9",
        "--out",
        "missed",
    )
    paceline("report", "missed", "-o", "missed.html")
    open_page(b, "missed.html")
    heads = b.run("[...document.querySelectorAll('#metric th')].map(x => x.textContent)")
    check("training loss" in heads, "the order cannot be checked: %s" % heads)
    if "training loss" in heads:
        shown = b.run(
            "[...document.querySelectorAll('#metric tbody tr')].map(r => r.cells[%d].textContent)"
            % heads.index("training loss")
        )
        check(
            len(shown) == 2 and float(shown[0]) < float(shown[1]),
            "not the order of losses: %s" % shown,
        )
    check(
        "Sorted by training loss, because no method reached the target."
        in b.run("document.querySelector('#metric').textContent"),
        "the order is not explained",
    )
    paceline("report", "race", "train", "mf", "-o", "all.html")
    open_page(b, "all.html")
    loads = b.run("Page.loads.map(l => [l.clock, l.groups.map(g => g.name).sort().join(' ')])")
    check(
        loads
        == [
            ["virtual", "async gap-aware@lr=0.01 sync"],
            ["real", "kasync:k=2"],
            ["virtual", "dsgd"],
        ],
        "clocks and workloads are not apart: %s" % loads,
    )
    check(
        b.run("document.querySelectorAll('#metric, #metric-2, #metric-3').length") == 3,
        "workloads are not apart",
    )
    said = b.run("document.querySelector('#verdict').textContent")
    check(
        "kasync:k=2 ended with" in said and not re.search("kasync[^.]*did not reach", said),
        "no target, and missed it: " + said,
    )
    b.size(390, 800)
    open_page(b, "all.html")
    wide = b.run(
        """[...document.querySelectorAll('*')].filter(e => e.getBoundingClientRect().right > 391
        && !e.closest('.scroll, .skip')).map(e => e.tagName + '.' + e.className + ' ' + e.parentElement.className)"""
    )
    check(
        b.run("document.documentElement.scrollWidth") <= 390, "too wide for a phone: %s" % wide[:5]
    )
    wide = b.run(
        "Page.parts.filter(p => p.chart).map(p => p.chart.u.bbox.width / devicePixelRatio)"
    )
    check(min(wide) > 200, "a figure is a strip on a phone: %s" % wide)
    b.size(1200, 900)
    b.pdf("race.pdf")
    check(os.path.getsize("race.pdf") > 20000, "not printed")


def resolution(b):
    """Times of a real race, and of a real run, have no more digits than are known, and the page says how many."""
    small = [
        "--data",
        "digits:samples=300,test=50",
        "--model",
        "softmax",
        "--workers",
        "2",
        "--delay",
        "const:t=0.002",
        "--target-loss",
        "2",
        "--time",
        "20",
    ]
    paceline("race", "sync", "async", "--real", "--tune", "no", *small, "--out", "known")
    with open("known/race.json") as f:
        told = json.load(f)
    for row, seconds in zip(told["ranking"], (1.0437, 2.2611)):
        row["time_to_target"].update(mean=seconds, half=None, within=0.08)
        row["factor"].update(mean=1.0437 / seconds, half=None, within=0.051)
    told["ranking"][1]["factor"].update(low=0.41, high=0.52)
    with open("known/race.json", "w") as f:
        json.dump(told, f)
    paceline("report", "known", "-o", "known.html")
    open_page(b, "known.html")
    rows = b.run(
        "[...document.querySelectorAll('#metric tbody tr')].map(r => [...r.cells].map(c => c.textContent))"
    )
    check(
        [r[2:4] for r in rows] == [["1.0 s", "1.0"], ["2.3 s", "0.5 (0.4 to 0.5)"]],
        "digits: %s" % rows,
    )
    text = b.run("document.querySelector('#metric').textContent")
    check("Times to target are known to ± 0.08 s." in text, "no resolution: " + text)
    paceline("simulate", "--model", "quadratic", "--updates", "30", "--log-dir", "bowl")
    paceline(
        "race",
        "sync",
        "async",
        "--model",
        "quadratic",
        "--tune",
        "no",
        "--updates",
        "30",
        "--out",
        "bowls",
    )
    for name in ("bowl", "bowls"):
        paceline("report", name, "-o", name + ".html")
        open_page(b, name + ".html")
        text = b.run("document.querySelector('#verdict').textContent")
        check(
            "quadratic, 8 workers" in text and "fashion" not in text,
            "a model without data: " + text,
        )
    paceline("train", *small, "--log-dir", "alone")
    points = [
        dict(
            time=t,
            updates=10 * i,
            epochs=i,
            samples=i,
            loss=loss,
            test_loss=loss,
            test_accuracy=0.5,
        )
        for i, (t, loss) in enumerate(((0, 3), (0.96, 2.5), (1.1274, 1.9)))
    ]
    with open("alone/points.jsonl", "w") as f:
        f.writelines(json.dumps(p) + "\n" for p in points)
    paceline("report", "alone", "-o", "alone.html")
    open_page(b, "alone.html")
    text = b.run("document.querySelector('#verdict').textContent")
    check("after 1.0 ± 0.08 s." in text, "a run alone: " + text)


def slow(b):
    """A worker is named from the factor on that the warnings and the summary have, which the history has."""
    for seconds in (1.9, 2.1):
        name = "slow-%g" % seconds
        paceline(
            "simulate",
            "--method",
            "async",
            "--model",
            "none",
            "--delay",
            "7*const:t=1|const:t=%g" % seconds,
            "--time",
            "100",
            "--log-dir",
            name,
        )
        paceline("report", name, "-o", name + ".html")
        open_page(b, name + ".html")
        text = b.run("document.getElementById('verdict').textContent")
        check(("Worker 8 took" in text) == (seconds > 2), "%s: %s" % (name, text))


def cores(b):
    """Waiting for a core is the number that the run told; nothing is said if it is small or not known."""
    with open("train/history.json") as f:
        told = json.load(f)
    said = {}
    for waited in (0.853, 0.004, None):
        with open("waited.json", "w") as f:
            json.dump(dict(told, core_wait=waited), f, separators=(",", ":"))
        paceline("report", "waited.json", "-o", "waited.html")
        open_page(b, "waited.html")
        said[waited] = [
            b.run("document.querySelector('%s').textContent" % s) for s in ("#verdict", "#time")
        ]
    waited = "For 85 % of their time they waited for a core, which counts as computing."
    check(all(waited in text for text in said[0.853]), "waiting for a core: %s" % said[0.853])
    check("core" not in str([said[0.004], said[None]]), "not waiting for a core: %s" % said)


def odd(b):
    """Runs that must not look like ordinary ones: diverged, and options that a shell would split."""
    paceline(
        "simulate",
        "--data",
        "digits",
        "--method",
        "sync",
        "--workers",
        "10",
        "--attack",
        "signflip:f=3,scale=-10",
        "--updates",
        "60",
        "--log-dir",
        "diverged",
        status=1,
    )
    paceline("report", "diverged", "-o", "diverged.html")
    open_page(b, "diverged.html")
    said = b.run("[...document.querySelectorAll('#verdict p')].map(p => p.textContent)")
    check(
        said[0].startswith("sync diverged") and any("attack signflip" in p for p in said),
        "diverged: %s" % said,
    )
    b.run(
        "[...document.querySelectorAll('#metric .bar button')].find(x => x.textContent === 'training loss').click()"
    )
    b.frames()
    labels = b.run("Page.parts.find(p => p.id === 'metric').chart.u.axes[1]._values")
    check(labels and len(labels) > 2, "a loss up to 1e29 has the labels %s" % labels)
    words = [
        "simulate",
        "--method",
        "kasync:k=4",
        "--delay",
        "7*exp:mean=1|const:t=5",
        "--model",
        "none",
        "--updates",
        "20",
        "--log-dir",
        "a folder's",
    ]
    paceline(*words)
    paceline("report", "a folder's", "-o", "quoted.html")
    open_page(b, "quoted.html")
    pasted = b.run("document.querySelector('#configuration pre').textContent")
    told = json.load(open("a folder's/history.json"))["command_line"]
    check(
        pasted == told
        and shlex.split(pasted)[1:]
        == words[:3] + ["--workers", "8", "--model", "none"] + words[3:5] + words[7:9],
        "pasted into a shell: " + pasted,
    )


# --- axes ---------------------------------------------------------------------------------------


def axes(b):
    """Every lowest value, on logarithmic and linear axes, also beyond what uPlot can label by itself."""
    open_page(b, "train.html")
    missing = b.run(
        """(async () => {
        const missing = [], box = make("div", { style: "width:800px" }, document.body);
        const draw = async (lo, hi, log) => {
            const points = [hi, lo, Math.sqrt(lo) * Math.sqrt(hi)].map((loss, i) =>
                ({ time: 10 ** (i - 1) * (log ? lo : 1), loss }));
            const run = { points, history: { time: points[2].time, knobs: [{ time: 0, k: 1, bound: NaN }] } };
            const load = { groups: [{ name: "m", runs: [run], times: [] }], targetMetric: "loss", target: NaN };
            for (const chart of [Charts.comparison(box, load, "loss", log), Charts.knobs(box, run)]) {
                await null; /* uPlot draws in a microtask */
                for (const a of chart.u.axes)
                    if (!(new Set(a._values).size > 1)) missing.push([lo, hi, a.label, a._values]);
                chart.u.destroy();
            }
            box.replaceChildren();
        };
        for (let m = 100; m < 1000; m++)
            await draw(m / 100 * 10 ** (m % 9 - 5), 40 * m / 100 * 10 ** (m % 9 - 5), true);
        for (const [lo, hi] of [[2, 1e36], [1e-36, 2e-36], [1e300, 3e300], [1.05e-3, 1.1e-3]])
            await draw(lo, hi, false);
        return missing; })()"""
    )
    check(missing == [], "%d axes without labels: %s" % (len(missing), missing[:5]))
    check(b.messages == [], "axes: the console says %s" % b.messages[:3])


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


# --- hostile files ------------------------------------------------------------------------------


def write(folder, files):
    os.mkdir(folder)
    for name, text in files.items():
        with open(os.path.join(folder, name), "wb") as f:
            f.write(text if isinstance(text, bytes) else text.encode())


def hostile(b):
    with open("simulate/history.json") as f:
        good = json.load(f)
    evil = dict(
        good,
        method=EVIL,
        options={EVIL: EVIL, "data": EVIL, "seed": "1", "delay": EVIL},
        events={"all": 1, "first": [EVIL], "last": []},
    )
    huge = dict(
        good,
        time=1e308,
        workers=1e300,
        updates=-5,
        knobs=[[1e300, 1e300, -1]],
        held=[[99999, 1, 1], [0, "x", {}]],
        rows=[[1e308] * 10, ["a", None], "x"],
        staleness={"bins": [[1e18, 1e18], ["a", "b"]]},
        points=[{"time": 1e308, "loss": -1e308, "test_accuracy": 1e308}, {"time": "soon"}, 7, None],
    )
    broken = dict(good, tasks=dict(good["tasks"], worker=good["tasks"]["worker"][:-1]))
    wild = dict(
        good,
        tasks=dict(
            good["tasks"],
            worker=[-1, 1e9] * (len(good["tasks"]["worker"]) // 2)
            + [0] * (len(good["tasks"]["worker"]) % 2),
        ),
    )
    point = '{"method":"m","time":1,"loss":1,"test_accuracy":0.5}\n'
    write(
        "h1",
        {
            "history.json": json.dumps(evil),
            "run.json": json.dumps({"id": EVIL, "command": [EVIL], "why": EVIL}),
        },
    )
    write(
        "h2",
        {
            "history.json": json.dumps(huge).replace("1e+308", "1e308"),
            "points.jsonl": "{\n" + point + "[1]\nnull\n",
        },
    )
    write("h3", {"history.json": json.dumps(broken), "run.json": "[1,2"})
    write("h4", {"history.json": json.dumps(good)[:5000], "points.jsonl": point})
    write("h5", {"history.json": "[]", "points.jsonl": b"\xff\xfe\x00\x01" + EVIL.encode()})
    write("h6", {"history.json": json.dumps(wild)})
    write(
        "h7",
        {
            "results.jsonl": json.dumps({"entrant": EVIL, "result": {"seed": 1, "staleness": 3}})
            + "\n",
            "points-01-seed1.jsonl": point,
            "points-99-seed1.jsonl": point,
            "history-01.json": "{}",
        },
    )
    write("h8", {"history.json": "{}", "points.jsonl": ""})
    folders = ["h%d" % i for i in range(1, 9)]
    for folder in folders:
        paceline("report", folder, "-o", folder + ".html")
        open_page(b, folder + ".html")
    paceline("report", *folders, "-o", "hostile.html")
    open_page(b, "hostile.html")
    check("</script>" in b.run("document.body.textContent"), "a name was swallowed")
    check(
        b.run("document.querySelectorAll('main img, main script').length") == 0,
        "text became elements",
    )
    check(
        b.run("document.querySelectorAll('.trouble').length") > 0, "damaged files are not mentioned"
    )
    with open("hostile.html", encoding="utf-8", errors="replace") as f:
        check("window.hurt" not in f.read(), "hostile text is in the page as it was")
    os.rename("h1", EVIL.replace("/", "_")[:60])
    paceline("report", EVIL.replace("/", "_")[:60], "-o", "named.html")
    open_page(b, "named.html")


# --- live ---------------------------------------------------------------------------------------


def live(b):
    run = subprocess.Popen(
        [
            PACELINE,
            "train",
            "--method",
            "async",
            "--workers",
            "2",
            "--data",
            "digits",
            "--delay",
            "exp:mean=0.01",
            "--time",
            "3600",
            "--dashboard",
            "0",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    address = ""
    for line in run.stderr or ():
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
    check(b.messages == [], "live: the console says %s" % b.messages[:3])
    with urllib.request.urlopen(address) as answer:
        page = answer.read()
    b.open("about:blank", None)
    run.terminate()
    run.communicate()
    check(run.returncode == 0, "the run failed")
    growing(b, page)


def growing(b, page):
    """The same page, with a server that grows as the test says."""
    with open("simulate/history.json") as f:
        good = json.load(f)
    now = {"time": good["time"], "over": False}

    class Server(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            kinds = {"/": "text/html", "/events": "text/event-stream"}
            self.send_response(200)
            self.send_header("Content-Type", kinds.get(self.path, "application/json"))
            self.end_headers()
            if self.path == "/":
                self.wfile.write(page)
            elif self.path == "/events":
                while not now.get("closed"):
                    try:
                        self.wfile.write(
                            b"data: %s\n\n" % json.dumps({"over": int(now["over"])}).encode()
                        )
                    except OSError:
                        return
                    time.sleep(0.1)
            else:
                run = dict(good, time=now["time"], ended=int(now["over"]))
                self.wfile.write(
                    json.dumps(
                        {
                            "first": 0,
                            "runs": [run] if self.path == "/data/0" else [],
                            "past": int(now["over"]),
                            "over": int(now["over"]),
                        }
                    ).encode()
                )

        def log_message(self, *words):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    gantt = "Page.parts.find(p => p.gantt)?.gantt"
    shows = (
        "(g => g && g.end === %r && Math.abs(g.t0 - %r) < 1e-6 && Math.abs(g.t1 - %r) < 1e-6)("
        + gantt
        + ")"
    )
    try:
        open_page(b, "http://127.0.0.1:%d/" % server.server_address[1])
        b.wait(shows % (now["time"], 0, now["time"]), "the first data")
        for end, window, after in (
            (40, None, (0, 40)),
            (50, (1, 2), (1, 2)),
            (60, (45, 50), (55, 60)),
        ):
            if window:
                b.run("%s.show(%g, %g)" % (gantt, *window))
            now["time"] = end
            b.wait(shows % (end, *after), "a window that follows until %d s" % end)
        now["over"] = True
        b.wait("document.getElementById('state').textContent === 'ended'", "the end of a live run")
        b.wait("Page.runs[0].history.ended", "the last data of a live run")
        check("abs" in b.run("document.title"), "the title has lost the method")
        check(b.messages == [], "growing: the console says %s" % b.messages[:3])
        b.open("about:blank", None)
    finally:
        now["closed"] = True
        server.shutdown()
        server.server_close()


def main():
    if not browser.find():
        print("skipped: chromium is not installed (make setup-test)")
        return 77
    here = tempfile.mkdtemp()
    os.chdir(here)
    b = browser.Browser()
    try:
        parts = (kinds, race, resolution, slow, cores, odd, axes, keyboard, hostile, live)
        for part in [p for p in parts if p.__name__ in (sys.argv[1:] or p.__name__)]:
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
