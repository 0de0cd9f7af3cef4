#!/usr/bin/env python3
"""What it costs a gateway to be looked at, in requests per second of its processor: with its page open, while one connection among many is
captured, and while one request in a hundred has spans. One process has all of it, in turns with nothing of it, under one load over
HTTP/3; the gateway answers by itself, so that a request costs as little as it can."""

import contextlib
import http.server
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
from crowd import Crowd, absolute, end_as_a_failure, fail, options, say, until  # noqa: E402

# Which part may be missing of the requests in a second of the gateway's processor.
MOST = 0.02
# How often a page reads, in seconds.
INTERVAL = 2
# The connection that is captured.
CAPTURED = "127.0.0.2"


class Receiver(http.server.BaseHTTPRequestHandler):
    """Takes spans (OTLP over HTTP), and says that all is well."""

    protocol_version, taken = "HTTP/1.1", 0

    def do_POST(self):
        type(self).taken += len(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


class Page:
    """Reads as an open page does."""

    def __init__(self, crowd, *_):
        self.crowd, self.over, self.read, self.fault = crowd, threading.Event(), 0, None
        crowd.read("/")
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        try:
            while not self.over.wait(INTERVAL if self.read else 0):
                self.crowd.read("/metrics.json")
                self.read += 1
        except BaseException as fault:
            self.fault = fault

    def end(self):
        self.over.set()
        self.thread.join()
        if self.fault:
            raise self.fault
        assert self.read, "the page was not read"


class Capture:
    """`quicket gateway capture` of one client."""

    def __init__(self, crowd, number, stack):
        self.file = crowd.folder / f"capture-{number}.pcapng"
        self.process = subprocess.Popen([crowd.quicket, "gateway", "capture", crowd.file, "--client", CAPTURED, "--for", "3000s", "-o", self.file],
                                        env=crowd.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        stack.callback(self.process.kill)
        until("the capture has begun", lambda: self.file.exists() or self.process.poll() is not None)

    def end(self):
        if self.process.poll() is not None:
            fail(f"the capture has ended before: {self.process.communicate()[1]}")
        self.process.send_signal(signal.SIGINT)
        _, errors = self.process.communicate(timeout=60)
        if self.process.returncode:
            fail(f"the capture: {errors}")
        # More than the file's head.
        assert self.file.stat().st_size > 1000, f"nothing of {CAPTURED} was captured: {errors}"


class Spans:
    """`[traces]` in the gateway's file, for one request in a hundred."""

    def __init__(self, crowd, *_):
        self.crowd, self.before = crowd, Receiver.taken
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.reload(f'[traces]\nendpoint = "http://127.0.0.1:{self.server.server_address[1]}/v1/traces"\nsample = 0.01\n')

    def reload(self, more):
        crowd = self.crowd
        told = crowd.log.read_text().count("Read again")
        crowd.write(more)
        crowd.gateway.send_signal(signal.SIGHUP)
        until("the file was read again", lambda: crowd.log.read_text().count("Read again") > told)

    def end(self):
        until("spans have come", lambda: Receiver.taken > self.before)
        self.reload("")
        self.server.shutdown()
        self.server.server_close()


LOOKS = {"page": Page, "capture of one connection": Capture, "spans of 1 %": Spans}


def rate(crowd, seconds):
    """Requests in a second of the gateway's processor."""
    answers, cpu = crowd.answers(), crowd.cpu()
    time.sleep(seconds)
    return (crowd.answers() - answers) / (crowd.cpu() - cpu)


def main():
    parser = options(__doc__)
    parser.add_argument("--load", type=absolute, required=True, help="gateway/examples/load.rs, built")
    parser.add_argument("--connections", type=int, default=1000, help="(default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="of all looks (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=4, help="of each measurement (default: %(default)s)")
    parser.add_argument("--most", type=float, default=MOST, help="what may be missing, more on a machine that does other things, too "
                        "(default: %(default)s)")
    arguments = parser.parse_args()
    end_as_a_failure()
    with tempfile.TemporaryDirectory(prefix="quicket-costs-") as folder, contextlib.ExitStack() as stack:
        crowd = Crowd(stack, arguments.quicket, arguments.load, pathlib.Path(folder), arguments.connections)
        time.sleep(arguments.seconds / 2)
        alone, looked = [rate(crowd, arguments.seconds)], {name: [] for name in LOOKS}
        for number in range(arguments.rounds):
            for name, Look in LOOKS.items():
                look = Look(crowd, number, stack)
                with_it = rate(crowd, arguments.seconds)
                look.end()
                alone.append(rate(crowd, arguments.seconds))
                # Against what is before and behind it, as a machine's speed drifts.
                looked[name].append(with_it / statistics.mean(alone[-2:]))
    say(f"{arguments.connections} connections, {statistics.median(alone):.0f} requests per second of the gateway's processor with nobody looking "
        f"(of {len(alone)}: {min(alone):.0f} to {max(alone):.0f}). With somebody looking, of that, the median of {arguments.rounds}:")
    for name, ratios in looked.items():
        ratio = statistics.median(ratios)
        say(f"  {name}: {ratio:.3f} ({min(ratios):.3f} to {max(ratios):.3f})")
        assert ratio >= 1 - arguments.most, f"{name} costs more than {arguments.most:.0%}"


if __name__ == "__main__":
    main()
