"""A headless Chromium over its debugging pipe: opens a page, runs JavaScript in it, presses keys, takes pictures."""

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

PATIENCE = 60


class Browser:
    """One page. `requests` and `messages` are what it asked the network for, and its console's errors."""

    def __init__(self, width=1280, height=900):
        self.folder = tempfile.mkdtemp(prefix="minibptt-browser-")
        out, self._out = os.pipe()
        self._in, into = os.pipe()

        def pipes():  # the browser reads commands from 3 and answers on 4
            kept = os.dup(out), os.dup(into)
            os.dup2(kept[0], 3)
            os.dup2(kept[1], 4)

        options = [
            *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"),
            *("--no-first-run", "--disable-background-networking", "--disable-ipc-flooding-protection"),
            *("--remote-debugging-pipe", f"--user-data-dir={self.folder}", f"--window-size={width},{height}"),
            "about:blank",
        ]
        self.process = subprocess.Popen(
            [CHROMIUM, *options],
            preexec_fn=pipes,
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(out)
        os.close(into)
        self._buffer, self._number, self._session = b"", 0, None
        self.requests, self.messages, self.dialogs = [], [], []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.ask(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(Exception):
            self.ask("Browser.close")
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self._out)
        os.close(self._in)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _read(self):
        while b"\0" not in self._buffer:
            if not select.select([self._in], [], [], PATIENCE)[0]:
                raise RuntimeError(f"the browser says nothing for {PATIENCE} s")
            more = os.read(self._in, 2**20)
            if not more:
                raise RuntimeError("the browser has gone")
            self._buffer += more
        line, self._buffer = self._buffer.split(b"\0", 1)
        message = json.loads(line)
        method, params = message.get("method", ""), message.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.messages.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.messages.append(params["entry"]["text"])
        elif method == "Page.javascriptDialogOpening":
            self.dialogs.append(params["message"])
        return message

    def ask(self, method, **params):
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": params}
        if self._session and not method.startswith(("Target.", "Browser.")):
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def open(self, path, hash=""):
        self.ask("Page.navigate", url=f"file://{path}{hash}")
        self.run("new Promise(done => document.readyState === 'complete' ? done() : addEventListener('load', done))")
        while self.run("document.readyState") != "complete" or self.run("location.href") == "about:blank":
            pass

    def run(self, code):
        """The value of an expression, a promise's when it has come."""
        result = self.ask("Runtime.evaluate", expression=code, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"].get("exception", {}).get("description", "JavaScript failed"))
        return result["result"].get("value")

    def painted(self):
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def size(self, width, height, mobile=False, scale=1):
        self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=mobile
        )
        self.ask("Emulation.setTouchEmulationEnabled", enabled=mobile)

    def dark(self, wanted):
        value = "dark" if wanted else "light"
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": value}])

    def key(self, key, modifiers=0):
        text = {"text": " "} if key == " " else {}
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, modifiers=modifiers, **text)
            text = {}

    def mouse(self, kind, x, y):
        held = 0 if kind in ("mouseReleased",) else 1
        self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=held, clickCount=1)

    def swipe(self, x, y, to_x, to_y, moves=10):
        """One finger, from (x, y) to (to_x, to_y)."""
        self.ask("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
        for i in range(1, moves + 1):
            point = {"x": x + (to_x - x) * i / moves, "y": y + (to_y - y) * i / moves}
            self.ask("Input.dispatchTouchEvent", type="touchMove", touchPoints=[point])
            self.painted()
        self.ask("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
        self.painted()

    def picture(self, path, whole=False):
        answer = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        with open(path, "wb") as file:
            file.write(base64.b64decode(answer["data"]))
