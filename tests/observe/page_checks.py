"""What the checks of pages share."""
import json
import os
import shlex
import subprocess
from typing import Any, Dict, List

import browser

PACELINE = os.environ["PACELINE"]
EVIL = '</script><img src=x onerror="window.hurt=1"><script>window.hurt=1</script>'
failed: List[str] = []


def check(fine: object, what: str) -> None:
    if not fine:
        failed.append(what)
        print("failed:", what)


def paceline(line: str, *words: str, status: int = 0) -> str:
    """The words of a line, as a shell has them, and other words."""
    all_words = [*shlex.split(line), *words]
    done = subprocess.run(
        [PACELINE, *all_words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    check(done.returncode == status, " ".join(all_words) + ": " + done.stdout[-500:])
    return done.stdout


def drawn(b: browser.Browser, selector: str) -> Any:
    """How many colours the canvases under a selector have; a figure that is not drawn has one or none."""
    return b.run(
        """[...document.querySelectorAll(%s)].map(c => {
        const d = new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer);
        return new Set(d).size; }).reduce((a, b) => Math.min(a, b), 1e9)"""
        % json.dumps(selector)
    )


def open_page(b: browser.Browser, path: str) -> None:
    b.messages, b.requests = [], []
    b.open(path)
    b.frames(3)
    check(b.messages == [], "%s: the console says %s" % (path, b.messages[:3]))
    outside = [r for r in b.requests if not r.startswith(("file:", "data:", "http://127.0.0.1"))]
    check(outside == [], "%s: asked the network for %s" % (path, outside[:3]))
    check(b.run("typeof window.hurt") == "undefined", path + ": text of a file was executed")


def write(folder: str, files: Dict[str, Any]) -> None:
    os.mkdir(folder)
    for name, text in files.items():
        with open(os.path.join(folder, name), "wb") as f:
            f.write(text if isinstance(text, bytes) else text.encode())


def adds_up(b: browser.Browser, name: str) -> None:
    """The number of tasks is the sum of the fates beside it."""
    near = "document.querySelector('canvas.gantt').parentNode.querySelector('%s')"
    said = b.run(near % ".readout" + ".textContent").split(" tasks")[0].replace("\u202f", "")
    fates = b.run("[...%s.children].map(x => x.textContent)" % near % ".legend")
    counts = [int(f.rsplit(" ", 1)[1].replace("\u202f", "")) for f in fates if f[-1].isdigit()]
    check(said.isdigit() and int(said) == sum(counts), "%s: %s tasks, but %s" % (name, said, fates))
