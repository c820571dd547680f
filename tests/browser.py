"""A real Chromium for the tests, driven by its DevTools protocol over a pipe: no package, no port.

https://chromedevtools.github.io/devtools-protocol/; ``--remote-debugging-pipe`` reads JSON that ends with NUL from file 3 and writes it
to file 4. Every request that a page makes, every error in its console and every breach of its policy is noted.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BINARY = shutil.which("chromium-headless-shell") or shutil.which("chromium")
_OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
)
_KEYS = {
    "Tab": (9, "Tab", ""),
    "Enter": (13, "Enter", "\r"),
    "Backspace": (8, "Backspace", ""),
    "/": (191, "Slash", "/"),
    " ": (32, "Space", " "),
    "a": (65, "KeyA", "a"),
    "ArrowDown": (40, "ArrowDown", ""),
}
PATIENCE = 60.0
"""Seconds that anything may take on a busy machine."""


class Browser:
    """One tab. ``requests`` are the addresses that it asked for, ``errors`` what its console and its policy complained of."""

    def __init__(self, home: Path) -> None:
        assert BINARY is not None
        read_by_it, self._write = os.pipe()
        self._read, written_by_it = os.pipe()
        command = [BINARY, *_OPTIONS, f"--user-data-dir={home}", "about:blank"]
        bridge = f'exec 3<&{read_by_it} 4>&{written_by_it}; exec "$@"'
        self._process = subprocess.Popen(
            ["bash", "-c", bridge, "bash", *command],
            pass_fds=(read_by_it, written_by_it),
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        os.close(read_by_it)
        os.close(written_by_it)
        os.set_blocking(self._read, False)
        self._buffer, self._number = b"", 0
        self._session = ""
        self.requests: list[str] = []
        self.errors: list[str] = []
        (page,) = [each for each in self.call("Target.getTargets")["targetInfos"] if each["type"] == "page"]
        attached = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        os.close(self._read)
        os.close(self._write)

    # -- the protocol -------------------------------------------------------------------------------------------------
    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Have something done, and return what comes of it."""
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        ends = time.monotonic() + PATIENCE
        while True:
            for found in self._messages():
                if found.get("id") == number:
                    assert "error" not in found, found["error"]
                    answer: dict[str, Any] = found["result"]
                    return answer
                self._note(found)
            assert time.monotonic() < ends, f"{method} was not answered"
            time.sleep(0.005)

    def _messages(self) -> Iterator[dict[str, Any]]:
        while True:
            try:
                piece = os.read(self._read, 1 << 20)
            except BlockingIOError:
                return
            assert piece, "the browser has ended"
            self._buffer += piece
            while b"\0" in self._buffer:
                message, _, self._buffer = self._buffer.partition(b"\0")
                yield json.loads(message)

    def _note(self, event: dict[str, Any]) -> None:
        method, told = event.get("method"), event.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(told["exceptionDetails"])[:500])
        elif method == "Runtime.consoleAPICalled" and told["type"] == "error":
            self.errors.append(json.dumps(told["args"])[:500])
        elif method == "Log.entryAdded" and told["entry"]["level"] == "error":
            self.errors.append(f"{told['entry']['text']} {told['entry'].get('url', '')}"[:500])

    # -- what a person does -------------------------------------------------------------------------------------------
    def open(self, address: str, *, width: int = 1280, dark: bool = False) -> None:
        """Open a page in a window of a width, in the light or the dark theme, and wait until it is there."""
        self.look(dark=dark)
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.call("Page.navigate", url=address)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def look(self, *, dark: bool) -> None:
        """Change to the light or the dark theme."""
        theme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=theme)

    def run(self, script: str) -> Any:
        """Return the value of an expression in the page."""
        found = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        return found["result"].get("value")

    def until(self, script: str) -> None:
        """Wait until an expression is true in the page."""
        self.wait(lambda: bool(self.run(f"!!({script})")), script)  # an element is no value

    def shown(self) -> str:
        """Return the beginning of what the page says, and where it is: for messages."""
        text = self.run("document.querySelector('main')?.innerText ?? document.body?.innerText ?? ''")
        return f"{self.run('location.href')}: {' '.join(str(text).split())[:800]}"

    def wait(self, true: Callable[[], bool], what: str) -> None:
        """Wait until something is so."""
        ends = time.monotonic() + PATIENCE
        while not true():
            assert time.monotonic() < ends, f"it did not come to be: {what}; {self.shown()}; {self.errors}"
            time.sleep(0.05)

    def press(self, key: str, *, control: bool = False) -> None:
        """Press one key and let it go."""
        code, name, text = _KEYS.get(key, (ord(key[0].upper()), f"Key{key.upper()}", key))
        modifiers = 2 if control else 0
        common: dict[str, Any] = {"key": key, "code": name, "windowsVirtualKeyCode": code, "modifiers": modifiers}
        down = {"type": "keyDown", "text": text} if text and not control else {"type": "rawKeyDown"}
        self.call("Input.dispatchKeyEvent", **down, **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def type(self, text: str) -> None:
        """Type a text where the focus is."""
        self.call("Input.insertText", text=text)

    def tab_to(self, condition: str, most: int = 200) -> None:
        """Press Tab until the focus is on an element for which ``condition``, about ``at``, is true."""
        for _ in range(most):
            self.press("Tab")
            if self.run(f"(at => {condition})(document.activeElement)"):
                return
        raise AssertionError(f"the keyboard does not reach {condition}")

    def follow(self, condition: str) -> None:
        """Go to a link by the keyboard alone, open it, and wait for its page."""
        before = self.run("location.href")
        self.tab_to(condition)
        self.press("Enter")
        self.until(f"location.href !== {json.dumps(before)} && document.readyState === 'complete'")

    def picture(self, path: Path) -> None:
        """Save a picture of the page."""
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(found["data"]))


@contextmanager
def browsing(home: Path) -> Iterator[Browser]:
    """Run a browser with a profile of its own."""
    found = Browser(home)
    try:
        yield found
    finally:
        found.close()
