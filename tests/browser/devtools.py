"""Chromium without a window, driven over a pair of pipes by the DevTools protocol."""

import json
import os
import select
import signal
import subprocess
import time

FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    # Nothing but the page under test goes to the network, not even a question for a name.
    "--host-resolver-rules=MAP localhost 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--no-default-browser-check",
    "--no-first-run",
    "--remote-debugging-pipe",
]

# Chromium reads commands from descriptor 3 and writes answers to descriptor 4.
LAUNCH = 'commands=$1 answers=$2; shift 2; exec "$@" 3<&"$commands" 4>&"$answers"'


class BrowserError(Exception):
    """The browser could not do what it was told."""


class Browser:
    """A running Chromium. Use it in a `with` statement, at the end of which it is stopped."""

    def __init__(self, executable, profile, flags, log):
        commands, self._commands = os.pipe()
        self._answers, answers = os.pipe()
        self._process = subprocess.Popen(
            ["bash", "-c", LAUNCH, "bash", str(commands), str(answers)]
            + [executable, *FLAGS, f"--user-data-dir={profile}", *flags, "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(commands, answers),
            # Its helpers are ended with it, and are the last to write to the profile.
            start_new_session=True,
        )
        os.close(commands)
        os.close(answers)
        self._unread = b""
        self._last_id = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self._commands)
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._end_helpers(time.monotonic() + 10)
        os.close(self._answers)

    def _end_helpers(self, deadline):
        try:
            while time.monotonic() < deadline:
                os.killpg(self._process.pid, signal.SIGKILL)
                time.sleep(0.05)
        except ProcessLookupError:
            pass  # None is left.

    def open(self, url, timeout):
        """Opens `url`, waits until all of it is loaded, and returns the session of its page."""
        target = self.call("Target.createTarget", {"url": "about:blank"}, timeout)["targetId"]
        attach = {"targetId": target, "flatten": True}
        session = self.call("Target.attachToTarget", attach, timeout)["sessionId"]
        self.call("Page.enable", {}, timeout, session)
        opened = self.call("Page.navigate", {"url": url}, timeout, session)
        if "errorText" in opened:
            raise BrowserError(f"the page does not open: {opened['errorText']}")
        self._wait("its load event", time.monotonic() + timeout,
                   lambda message: message.get("method") == "Page.loadEventFired")
        return session

    def evaluate(self, session, expression, timeout):
        """What `expression`, or the promise that it is, comes to."""
        parameters = {"expression": expression, "awaitPromise": True, "returnByValue": True}
        answer = self.call("Runtime.evaluate", parameters, timeout, session)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            said = details.get("exception", {}).get("description", details["text"])
            raise BrowserError(f"the page's script failed: {said}")
        return answer["result"].get("value")

    def call(self, method, parameters, timeout, session=None):
        """Calls a method of the DevTools protocol."""
        self._last_id += 1
        number = self._last_id
        message = {"id": number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        try:
            os.write(self._commands, json.dumps(message).encode() + b"\0")
        except BrokenPipeError:
            raise BrowserError("the browser is gone") from None
        answer = self._wait(f"the answer to {method}", time.monotonic() + timeout,
                            lambda message: message.get("id") == number)
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def _wait(self, what, deadline, is_it):
        while True:
            message = self._receive(what, deadline)
            if is_it(message):
                return message

    def _receive(self, what, deadline):
        while b"\0" not in self._unread:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._answers], [], [], left)[0]:
                raise BrowserError(f"the browser took too long: waited for {what}")
            arrived = os.read(self._answers, 1 << 16)
            if not arrived:
                raise BrowserError(f"the browser ended: waited for {what}")
            self._unread += arrived
        message, self._unread = self._unread.split(b"\0", 1)
        return json.loads(message)
