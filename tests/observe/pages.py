"""Random pages in a real browser: none may write to its console, and the slowest load is reported. The argument is how
many, the second the first seed; tests/observe/pages.sh starts it. A page whose load takes longer than PAGES_LIMIT
seconds is bad, if that is set: `make pages LIMIT=2`, on a machine that has nothing else to do."""
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Any, Dict, List, Tuple

sys.dont_write_bytecode = True
import browser  # noqa: E402

PACELINE = os.environ["PACELINE"]
NAMES = [
    "sync",
    "async",
    "kasync:k=2",
    'it\'s "quoted"',
    "<b>bold</b>",
    "</script><script>hurt=1</script>",
    "é × µ",
    "a" * 150,
    "`$(id)`",
    "toString",
    "__proto__",
    "",
]
CURVES = ("falls", "constant", "point", "none", "diverges", "lost", "jumps", "zero", "negative")
OPEN = """(async () => {
    for (const b of document.querySelectorAll("main section[id^=metric] button")) b.click();
    for (const s of document.querySelectorAll("main select")) for (const o of [...s.options].slice(0, 4)) {
        const now = document.getElementById("run") ? document.querySelector("#run select") : s;
        now.value = o.value; now.dispatchEvent(new Event("change")); }
    for (const d of document.querySelectorAll("details")) d.open = true;
    await new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)));
    return document.querySelectorAll("#verdict p").length; })()"""


def paceline(*words: str) -> None:
    subprocess.run(
        [PACELINE, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True
    )


def curve(rng: random.Random, kind: str, page: int) -> List[Dict[str, Any]]:
    """Evaluations of one run; the smallest loss of a falling curve has every mantissa as pages go on."""
    low = (1 + (page * 37 % 900) / 100) * 10.0 ** rng.randint(-6, 2)
    n = {"point": 1, "none": 0}.get(kind, rng.choice((2, 3, 50, 3000)))
    span, high = 10.0 ** rng.randint(-6, 6), low * rng.choice((2, 30, 1000))
    out = []
    for i in range(n):
        x = i / max(1, n - 1)
        loss = {
            "falls": high * (low / high) ** x,
            "diverges": low * 10 ** (36 * x),
            "zero": 0,
            "negative": -low * x,
            "jumps": rng.choice((low, high, None)),
            "lost": low if x < 0.5 else None,
        }.get(kind, low)
        out.append(
            {
                "method": "m",
                "time": x * span,
                "updates": i,
                "loss": loss,
                "test_loss": loss,
                "test_accuracy": rng.choice((x, None)) if page % 3 else None,
            }
        )
    return out


def write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def run_folder(rng: random.Random, folder: str, page: int, bases: List[Dict[str, Any]]) -> None:
    os.mkdir(folder)
    history = dict(rng.choice(bases))
    points = curve(rng, rng.choice(CURVES), page)
    options = dict(
        history["options"],
        seed=str(rng.randint(1, 3)),
        method=rng.choice(NAMES),
        workers=str(rng.choice((1, 8))),
        data=rng.choice(("digits", "<i>mine</i>")),
    )
    more: Any = ({}, {"target-loss": "0.011"}, {"target-accuracy": "0.5"}, {"attack": "'x'"})
    options.update(rng.choice(more))
    history.update(
        method=options["method"],
        options=options,
        points=points,
        clock=rng.choice(("real", "virtual", "")),
        ended=rng.randint(0, 1),
        time=rng.choice((history["time"], 0, 1e-6, 1e9)),
    )
    if rng.random() < 0.8:
        write(folder + "/history.json", json.dumps(history))
    if rng.random() < 0.8 or not os.listdir(folder):
        write(folder + "/points.jsonl", "".join(json.dumps(p) + "\n" for p in points))
    if rng.random() < 0.5:
        write(
            folder + "/run.json",
            json.dumps(
                {
                    "id": "1",
                    "kind": "train",
                    "command": ["paceline", "it's"],
                    "why": rng.choice(("time", "diverged")),
                    "options": options,
                }
            ),
        )


def race_folder(rng: random.Random, folder: str, page: int, bases: List[Dict[str, Any]]) -> None:
    os.mkdir(folder)
    names = rng.sample(NAMES[:-1], rng.randint(1, 9))
    n_seeds = rng.randint(1, 4)

    def mean() -> Dict[str, Any]:
        return {
            "mean": rng.choice((None, 10.0 ** rng.randint(-9, 30))),
            "half": rng.choice((None, 0, 1e-3, 1e9)),
            "n": n_seeds,
            "bound": rng.choice((None, None, "at least", "at most")),
            "shown": rng.choice((None, "≥ 147")),
        }

    keys = (
        "time_to_target",
        "factor",
        "loss",
        "test_accuracy",
        "staleness",
        "wasted",
        "idle",
        "predicted",
    )
    rows = [
        dict(
            {k: mean() for k in keys},
            method=n,
            lr=0.1,
            runs=n_seeds,
            reached=rng.randint(0, n_seeds),
            diverged=rng.randint(0, 1),
        )
        for n in rng.sample(names, len(names))
    ]
    about = {
        "seeds": n_seeds,
        "real": rng.random() < 0.5,
        "entrants": [{"name": n} for n in names],
        "options": dict(bases[0]["options"]),
        "baseline": rng.choice((None, names[0])),
        "verdict": ["%s was the first." % n for n in names[:2]],
        "ranking": rows,
    }
    if rng.random() < 0.8:
        write(folder + "/race.json", json.dumps(about))
    write(
        folder + "/results.jsonl",
        "".join(json.dumps({"entrant": n, "result": {"seed": 1}}) + "\n" for n in names),
    )
    for i in range(len(names)):
        kind = rng.choice(CURVES)
        for seed in range(1, n_seeds + 1):
            write(
                folder + "/points-%02d-seed%d.jsonl" % (i + 1, seed),
                "".join(json.dumps(p) + "\n" for p in curve(rng, kind, page)),
            )
        if rng.random() < 0.7:
            h = dict(rng.choice(bases))
            write(
                folder + "/history-%02d.json" % (i + 1),
                json.dumps(dict(h, options=dict(h["options"], seed="1"))),
            )


def real_runs() -> List[Any]:
    """Histories of real runs: an ordinary one, a thousand workers, no model, one worker."""
    runs = (
        ["--data", "digits", "--updates", "40"],
        ["--model", "none", "--workers", "1000", "--updates", "30"],
        ["--model", "none", "--workers", "1", "--updates", "1"],
        ["--model", "quadratic", "--method", "abs", "--workers", "70", "--updates", "200"],
    )
    out = []
    for i, words in enumerate(runs):
        paceline("simulate", *words, "--history", "base%d.json" % i)
        with open("base%d.json" % i, encoding="utf-8") as f:
            out.append(json.load(f))
    return out


def one(
    b: browser.Browser, rng: random.Random, page: int, bases: List[Dict[str, Any]]
) -> Tuple[float, List[Any]]:
    """Makes and opens a page; returns the seconds it took to load, and what is wrong with it."""
    folders = []
    for i in range(rng.choice((1, 1, 2, 4))):
        folders.append("page%d-%d%s" % (page, i, rng.choice(("", " it's", "<b>"))))
        rng.choice((run_folder, race_folder))(rng, folders[-1], page, bases)
    paceline("report", *folders, "-o", "page.html")
    b.size(rng.choice((390, 800, 1200)), 800)
    b.messages = []
    began = time.monotonic()
    b.open("page.html")
    took = time.monotonic() - began
    said = b.run(OPEN)
    wrong = list(b.messages)
    if not said:
        wrong.append("no verdict")
    if b.run("typeof hurt") != "undefined" or b.run(
        "document.querySelectorAll('main b, main i:not([style])').length"
    ):
        wrong.append("text became markup")
    if b.run("document.documentElement.scrollWidth > innerWidth"):
        wrong.append("wider than the window")
    if not wrong:
        for folder in folders:
            shutil.rmtree(folder)
    return took, wrong


def main() -> int:
    if not browser.find():
        print("skipped: chromium is not installed (make setup-test)")
        return 77
    n, first = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    limit = float(os.environ.get("PAGES_LIMIT", "inf"))
    here = tempfile.mkdtemp()
    os.chdir(here)
    b = browser.Browser()
    times, bad = [], 0
    try:
        bases = real_runs()
        for page in range(first, first + n):
            took, wrong = one(b, random.Random(page), page, bases)
            times.append(took)
            if took > limit:
                wrong.append("%.2f s to load" % took)
            if wrong:
                bad += 1
                print("page %d: %s" % (page, wrong[:3]))
    finally:
        b.close()
        os.chdir("/")
        shutil.rmtree(here, ignore_errors=True)
    times.sort()
    print(
        "%d pages, %d bad; load: median %.2f s, slowest %.2f s" % (n, bad, times[n // 2], times[-1])
    )
    return 1 if bad else 0


sys.exit(main())
