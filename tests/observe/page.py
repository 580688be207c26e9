"""The page of `paceline report` in a real browser. tests/observe/page.sh starts it."""
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
import time

sys.dont_write_bytecode = True
import browser  # noqa: E402
from page_checks import adds_up, check, drawn, failed, open_page, paceline  # noqa: E402
from page_hostile import hostile  # noqa: E402
from page_live import live  # noqa: E402
from page_race import bounds, figures, race, resolution, unfinished  # noqa: E402
from page_tasks import keyboard  # noqa: E402

KINDS = {
    "train": (
        "train --method kasync:k=2 --workers 3 --data digits --delay exp:mean=0.01 "
        "--updates 200 --log-dir train"
    ),
    "simulate": (
        "simulate --method abs --data digits --time 8 --log-dir simulate --record run.rec"
    ),
    "mf": (
        "simulate --method dsgd --model mf --data "
        "lowrank:users=300,items=200,ratings=20000 --workers 4 --lr 0.02 --epochs 3 "
        "--log-dir mf"
    ),
    "gossip": "simulate --method ad-psgd --data digits --time 8 --log-dir gossip",
    "timing": (
        "simulate --policy ksync:k=60 --model none --workers 100 --updates 300 --log-dir timing"
    ),
    "race": (
        "race sync async gap-aware@lr=0.01 --tune no --data digits --time 8 "
        "--target-accuracy 0.2 --seeds 2 --out race"
    ),
}


METRIC = {"mf": "Test RMSE", "timing": None}


def kinds(b: browser.Browser) -> None:
    for name, words in KINDS.items():
        paceline(words)
    for name in [*KINDS, "run.rec"]:
        page = name + ".html"
        paceline("report -o", page, name)
        open_page(b, page)
        check(
            b.run("document.querySelector('#verdict p').textContent.length") > 20,
            name + ": no verdict",
        )
        if name == "train":
            said = b.run("document.querySelector('#verdict').textContent")
            check(re.search(r"[.]Workers spent ", said), "whose workers: " + said)
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
        told = b.run(
            """[...document.querySelectorAll('#configuration details tr')].filter(
            r => r.cells[0].textContent === 'lr').map(r => r.cells[1].textContent)"""
        )
        check(told == [{"mf": "0.02"}.get(name, "0.1")], "%s: the learning rate %s" % (name, told))
        b.run("document.querySelector('#events summary').click()")
        b.frames()
        check(
            re.search(
                r"join W1.*start W1", b.run("document.querySelector('#events pre').textContent")
            ),
            name + ": no event log",
        )
        check(b.messages == [], "%s: the console says %s" % (name, b.messages[:3]))


def slow(b: browser.Browser) -> None:
    """A worker is named from the factor on that the warnings and the summary have, which the history has."""
    for seconds in (1.9, 2.1):
        name = "slow-%g" % seconds
        paceline(
            "simulate --method async --model none --time 100 --log-dir %s "
            "--delay '7*const:t=1|const:t=%g'" % (name, seconds)
        )
        paceline("report -o", name + ".html", name)
        open_page(b, name + ".html")
        text = b.run("document.getElementById('verdict').textContent")
        check(("Worker 8 took" in text) == (seconds > 2), "%s: %s" % (name, text))


def cores(b: browser.Browser) -> None:
    """Waiting for a core is the number that the run told; nothing is said if it is small or not known."""
    with open("train/history.json") as f:
        told = json.load(f)
    said = {}
    for waited in (0.853, 0.004, None):
        with open("waited.json", "w") as f:
            json.dump(dict(told, core_wait=waited), f, separators=(",", ":"))
        paceline("report waited.json -o waited.html")
        open_page(b, "waited.html")
        said[waited] = [
            b.run("document.querySelector('%s').textContent" % s) for s in ("#verdict", "#time")
        ]
    sentence = "Waiting for a core: 85 % of worker time, part of compute"
    check(sentence in said[0.853][0], "waiting for a core: %s" % said[0.853])
    check("core" not in said[0.853][1], "it is said twice: %s" % said[0.853])
    check("core" not in str([said[0.004], said[None]]), "not waiting for a core: %s" % said)


def odd(b: browser.Browser) -> None:
    """Runs that must not look like ordinary ones: diverged, and options that a shell would split."""
    paceline(
        "simulate --data digits --method sync --workers 10 --attack signflip:f=3,scale=-10 "
        "--updates 60 --log-dir diverged",
        status=1,
    )
    paceline("report diverged -o diverged.html")
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
    line = (
        "simulate --method kasync:k=4 --delay '7*exp:mean=1|const:t=5' --model none "
        "--updates 20 --log-dir"
    )
    words = [*shlex.split(line), "a folder's"]
    paceline(line, words[-1])
    paceline("report -o quoted.html", words[-1])
    open_page(b, "quoted.html")
    pasted = b.run("document.querySelector('#configuration pre').textContent")
    told = json.load(open("a folder's/history.json"))["command_line"]
    check(
        pasted == told
        and shlex.split(pasted)[1:]
        == words[:3] + ["--workers", "8", "--model", "none"] + words[3:5] + words[7:9],
        "pasted into a shell: " + pasted,
    )


def axes(b: browser.Browser) -> None:
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


def main() -> int:
    if not browser.find():
        print("skipped: chromium is not installed (make setup-test)")
        return 77
    here = tempfile.mkdtemp()
    os.chdir(here)
    b = browser.Browser()
    try:
        parts = (
            kinds,
            race,
            unfinished,
            resolution,
            bounds,
            figures,
            slow,
            cores,
            odd,
            axes,
            keyboard,
            hostile,
            live,
        )
        for part in [p for p in parts if p.__name__ in (sys.argv[1:] or p.__name__)]:
            began = time.monotonic()
            part(b)
            print("%s: %.0f s" % (part.__name__, time.monotonic() - began))
    finally:
        b.close()
        os.chdir("/")
        shutil.rmtree(here, ignore_errors=True)
    print("failed: %d" % len(failed))
    return 1 if failed else 0


sys.exit(main())
