"""Pages of hostile files."""
import json
import os

import browser
from page_checks import EVIL, check, open_page, paceline, write


def hostile(b: browser.Browser) -> None:
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
        paceline("report -o", folder + ".html", folder)
        open_page(b, folder + ".html")
    paceline("report -o hostile.html", *folders)
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
    paceline("report -o named.html", EVIL.replace("/", "_")[:60])
    open_page(b, "named.html")
