"""A headless browser for tests and pictures, driven over a pipe with the DevTools protocol. Needs Chromium
and nothing but Python's own library."""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from typing import Any, Dict, List, Optional

LIMIT_S = 300  # for a browser that hangs; a machine under load may take long


def find() -> Optional[str]:
    """The path of a browser, or None."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if shutil.which(name):
            return shutil.which(name)
    return None


class Browser:
    """One page. `messages` has what the page wrote to its console and every uncaught error, `requests`
    what it asked the network for."""

    def __init__(self, width: int = 1200, height: int = 900) -> None:
        self.home = tempfile.mkdtemp()
        ours, theirs = os.pipe(), os.pipe()  # to the browser, from it
        os.set_inheritable(ours[0], True)
        os.set_inheritable(theirs[1], True)

        def wire() -> None:
            # the browser reads file 3 and writes file 4
            a, b = os.dup(ours[0]), os.dup(theirs[1])
            os.dup2(a, 3)
            os.dup2(b, 4)

        self.process = subprocess.Popen(
            [
                find() or "chromium",
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                "--disable-background-networking",
                "--no-first-run",
                "--disable-dev-shm-usage",
                "--remote-debugging-pipe",
                "--user-data-dir=" + self.home,
                "about:blank",
            ],
            preexec_fn=wire,
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(ours[0])
        os.close(theirs[1])
        self.out, self.into = ours[1], theirs[0]
        self.buffer, self.number, self.session = b"", 0, None
        self.messages: List[str] = []
        self.requests: List[str] = []
        pages = self.call("Target.getTargets")["targetInfos"]
        page = next(t for t in pages if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")
        self.size(width, height)

    def close(self) -> None:
        try:
            self.session = None
            self.call("Browser.close")
        except (OSError, RuntimeError):
            pass
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.out)
        os.close(self.into)
        shutil.rmtree(self.home, ignore_errors=True)

    def _receive(self, until: float) -> Any:
        while b"\0" not in self.buffer:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.into], [], [], left)[0]:
                raise RuntimeError("the browser did not answer")
            data = os.read(self.into, 1 << 20)
            if not data:
                raise RuntimeError("the browser has ended")
            self.buffer += data
        line, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(line)

    def _note(self, message: Dict[str, Any]) -> None:
        method, p = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            d = p["exceptionDetails"]
            self.messages.append(d.get("exception", {}).get("description", d["text"]))
        elif method == "Runtime.consoleAPICalled":
            self.messages.append(
                " ".join(str(a.get("value", a.get("description"))) for a in p["args"])
            )
        elif method == "Log.entryAdded":
            self.messages.append(p["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(p["request"]["url"])

    def call(self, method: str, **params: Any) -> Any:
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + LIMIT_S
        while True:
            answer = self._receive(until)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(method + ": " + answer["error"]["message"])
                return answer["result"]
            self._note(answer)

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression; promises are awaited."""
        r = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in r:
            raise RuntimeError(
                r["exceptionDetails"].get("exception", {}).get("description", "error")
            )
        return r["result"].get("value")

    def wait(self, script: str, what: str, limit_s: float = LIMIT_S) -> None:
        until = time.monotonic() + limit_s
        while not self.run(script):
            if time.monotonic() > until:
                raise RuntimeError("not seen: " + what)
            time.sleep(0.05)

    def open(
        self,
        address: str,
        ready: Optional[str] = "document.documentElement?.dataset.ready === 'yes'",
    ) -> None:
        if ":" not in address:
            address = "file://" + os.path.abspath(address)
        self.call("Page.navigate", url=address)
        if ready:
            self.wait(ready, "a page that is ready")
            self.frames()

    def frames(self, n: int = 2) -> None:
        for _ in range(n):
            self.run("new Promise(r => requestAnimationFrame(() => r(1)))")

    def size(self, width: int, height: int, scale: float = 1) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=False,
        )

    def dark(self, yes: bool) -> None:
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": "dark" if yes else "light"}],
        )

    def key(self, key: str) -> None:
        names = {"+": "Equal", "-": "Minus"}
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        code = {
            "Tab": 9,
            "Enter": 13,
            "Home": 36,
            "End": 35,
            "ArrowLeft": 37,
            "ArrowUp": 38,
            "ArrowRight": 39,
            "ArrowDown": 40,
        }.get(key, 0)
        self.call(
            "Input.dispatchKeyEvent",
            type="keyDown",
            key=key,
            code=names.get(key, key),
            windowsVirtualKeyCode=code,
            **text,
        )
        self.call(
            "Input.dispatchKeyEvent",
            type="keyUp",
            key=key,
            code=names.get(key, key),
            windowsVirtualKeyCode=code,
        )

    def picture(self, path: str, whole: bool = True) -> None:
        size = self.run(
            "[document.documentElement.clientWidth, document.documentElement.scrollHeight]"
        )
        clip = {"x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1}
        extra = {"clip": clip, "captureBeyondViewport": True} if whole else {}
        data = self.call("Page.captureScreenshot", format="png", **extra)["data"]
        with open(path, "wb") as f:
            f.write(base64.b64decode(data))

    def pdf(self, path: str) -> None:
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"]))
