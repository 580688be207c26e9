"""The page of a run that goes on."""
import http.server
import json
import re
import subprocess
import threading
import time
import urllib.request

import browser
from page_checks import PACELINE, check, open_page


def live(b: browser.Browser) -> None:
    run = subprocess.Popen(
        [
            PACELINE,
            *"train --method async --workers 2 --data digits --delay exp:mean=0.01".split(),
            *"--time 3600 --dashboard 0".split(),
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


def growing(b: browser.Browser, page: bytes) -> None:
    """The same page, with a server that grows as the test says."""
    with open("simulate/history.json") as f:
        good = json.load(f)
    now = {"time": good["time"], "over": False}

    class Server(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
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

        def log_message(self, *words: object) -> None:
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
