#!/usr/bin/env python3
"""A gateway with thousands of connections that live, and its page: how long the page, the counters and the JSON take to come, and what
a browser shows, with a picture at two widths, light and dark. The connections are of HTTP/3, and ask in turns."""

import base64
import contextlib
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
from environment import ROOT  # noqa: E402
from gateway_site import LONG, absolute, ask, certificate, end_as_a_failure, fail, free_port, options, say, until  # noqa: E402
from local_socket import Relay  # noqa: E402

sys.path.insert(0, str(ROOT / "tests" / "browser"))
import devtools  # noqa: E402

# How often each is read.
READ = 30
# The longest that a reading may take among many, the median, in seconds.
SLOW = 0.5
# The page reads every 2 s: it draws lines once it has read several times.
WATCHED = 20
# What is looked at: name, width, height, and whether it is dark. The narrow one is a telephone, whose scrollbars take no room.
VIEWS = [("wide-light", 1280, 1120, False), ("wide-dark", 1280, 1120, True), ("narrow-light", 390, 844, False), ("narrow-dark", 390, 844, True)]

FILE = """listen = ["127.0.0.1:{port}"]
[[certificate]]
chain = "certificate.pem"
key = "key.pem"
[[site]]
names = ["localhost"]
[[site.route]]
respond = {{ body = "{body}" }}
[metrics]
listen = "unix:{folder}/metrics.sock"
[capture]
allow = true
max_s = 3600
"""


def of(number):
    """Has a program stay on one of the processors that this one may use, if there are several."""
    cores = sorted(os.sched_getaffinity(0))
    return (lambda: os.sched_setaffinity(0, {cores[number]})) if len(cores) > 1 else None


class Crowd:
    """A gateway that answers by itself, and connections that ask it: each on a processor of its own. They end with `stack`."""

    def __init__(self, stack, quicket, load, folder, connections, rate=0):
        self.processes = []
        stack.callback(self.end)
        self.quicket, self.folder, self.port = quicket, folder, free_port()
        self.environment = os.environ | {name: str(folder) for name in ("XDG_DATA_HOME", "XDG_RUNTIME_DIR")}
        certificate(folder)
        self.file = folder / "site.toml"
        self.write("")
        self.log = folder / "gateway.log"
        with self.log.open("wb") as log:
            self.gateway = subprocess.Popen([quicket, "gateway", self.file, "--workers", "1"], stdout=log, stderr=log, cwd=folder,
                                            env=self.environment, preexec_fn=of(0))
        self.processes.append(self.gateway)
        until("the gateway listens", self.listens)
        self.load = subprocess.Popen([load, f"127.0.0.1:{self.port}", folder / "certificate.pem", str(connections), str(rate)],
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=of(1))
        self.processes.append(self.load)
        if self.load.stdout.readline() != "ready\n":
            fail(f"the load ends: {self.log.read_text()}")

    def write(self, more):
        text = FILE.format(port=self.port, folder=self.folder, body="x" * 1000) + more
        (self.folder / "next.toml").write_text(text)
        (self.folder / "next.toml").replace(self.file)

    def listens(self):
        if self.gateway.poll() is not None:
            fail(f"the gateway has ended: {self.log.read_text()}")
        return "Gateway on" in self.log.read_text()

    def answers(self):
        """How many have come so far."""
        self.load.stdin.write("?\n")
        self.load.stdin.flush()
        told = self.load.stdout.readline()
        if not told:
            fail("the load has ended")
        return int(told)

    def cpu(self):
        """The gateway's processor time, in seconds: all threads that it has and had."""
        return time.clock_gettime((~self.gateway.pid << 3) | 2)

    def read(self, path):
        """What is at a path of the page's address."""
        return ask(self.folder / "metrics.sock", path)[1]

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()


def time_of(crowd, path):
    """How long it takes until all of it is here, in seconds, and how long it is."""
    taken, size = [], 0
    for _ in range(READ):
        begun = time.monotonic()
        size = len(crowd.read(path))
        taken.append(time.monotonic() - begun)
        time.sleep(0.05)
    return statistics.median(taken), max(taken), size


def look(crowd, connections, folder, shots, watched):
    """Opens the page in Chromium, and looks at it."""
    relay = Relay(crowd.folder / "metrics.sock")
    with contextlib.ExitStack() as stack:
        stack.callback(relay.server_close)
        stack.callback(relay.shutdown)
        log = stack.enter_context((folder / "browser.log").open("wb"))
        browser = stack.enter_context(devtools.Browser(shutil.which("chromium"), folder / "profile", [], log))
        session = browser.open(f"http://127.0.0.1:{relay.server_address[1]}/", LONG)
        time.sleep(watched)
        shown = browser.evaluate(session, "document.body.innerText", LONG)
        assert "Read at" in shown, shown[:300]
        # As the page has it, which counts thousands where there are ten at least.
        number = f"{connections // 1000} k" if connections >= 10_000 else str(connections)
        opened = f"{number}\nconnections open"
        assert opened in shown.replace("\u202f", " ").replace("\u00a0", " "), f"no {connections} connections on the page: {shown[:300]}"
        for name, width, height, is_dark in VIEWS:
            scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
            browser.call("Emulation.setEmulatedMedia", {"features": [scheme]}, LONG, session)
            metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
            browser.call("Emulation.setDeviceMetricsOverride", metrics, LONG, session)
            time.sleep(0.5)
            overflow = browser.evaluate(session, "document.documentElement.scrollWidth - document.documentElement.clientWidth", LONG)
            assert overflow <= 0, f"{name}: the page is {overflow} pixels wider than the window"
            if shots:
                picture = browser.call("Page.captureScreenshot", {"captureBeyondViewport": True}, LONG, session)["data"]
                (shots / f"{name}.png").write_bytes(base64.b64decode(picture))


def main():
    parser = options(__doc__)
    parser.add_argument("--load", type=absolute, required=True, help="gateway/examples/load.rs, built")
    parser.add_argument("--connections", type=int, default=10_000, help="(default: %(default)s)")
    parser.add_argument("--rate", type=int, default=500, help="requests in a second (default: %(default)s)")
    parser.add_argument("--watched", type=float, default=WATCHED, help="how long the page is open, in seconds (default: %(default)s)")
    parser.add_argument("--shots", type=pathlib.Path, help="a folder for pictures of the page")
    arguments = parser.parse_args()
    end_as_a_failure()
    with tempfile.TemporaryDirectory(prefix="quicket-crowd-") as folder, contextlib.ExitStack() as stack:
        folder = pathlib.Path(folder)
        crowd = Crowd(stack, arguments.quicket, arguments.load, folder, arguments.connections, arguments.rate)
        opened = f'quicket_gateway_connections_open{{protocol="h3"}} {arguments.connections}\n'
        until("all connections are there", lambda: opened in crowd.read("/metrics").decode())
        for path in "/", "/metrics", "/metrics.json":
            median, most, size = time_of(crowd, path)
            say(f"{arguments.connections} connections: {path} in {median * 1000:.1f} ms, at most {most * 1000:.1f} ms, {size / 1000:.1f} kB")
            assert median < SLOW, f"{path} takes {median} s"
        if arguments.shots:
            arguments.shots.mkdir(parents=True, exist_ok=True)
        before, answers, begun = crowd.cpu(), crowd.answers(), time.monotonic()
        look(crowd, arguments.connections, folder, arguments.shots, arguments.watched)
        took = time.monotonic() - begun
        say(f"The page in Chromium for {took:.0f} s: {(crowd.answers() - answers) / took:.0f} requests/s, {(crowd.cpu() - before) / took:.1%} of a "
            "processor for all that the gateway does")


if __name__ == "__main__":
    main()
