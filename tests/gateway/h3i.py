#!/usr/bin/env python3
"""h3i, Cloudflare's tool for malformed HTTP/3, against `quicket gateway` and `quicket serve`: each connection or stream ends with the
code that RFC 9114 and RFC 9204 demand (lab/peers/h3i), no such request reaches a server behind the gateway, and the gateway counts them."""

import argparse
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(ROOT / "scripts")]
from gateway_site import end_as_a_failure, fail, free_port, say, until  # noqa: E402
from malformed import FILE, certificate, refused  # noqa: E402


class Served:
    """A server under test, with what it said."""

    def __init__(self, folder, name, command, ready):
        self.log = folder / f"{name}.log"
        environment = os.environ | {home: str(folder) for home in ("HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR")}
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output, cwd=folder, env=environment)
        until(f"{name} listens", lambda: self.process.poll() is not None or ready in self.log.read_text())

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.terminate()
        self.process.wait()


def run(program, port, kind, server):
    """The corpus; how many cases there are that break a rule."""
    done = subprocess.run([program, str(port), kind], capture_output=True, text=True, timeout=300)
    outcome = re.search(r"^(\d+) cases, (\d+) failed, (\d+) break no rule$", done.stdout, re.MULTILINE)
    if done.returncode or not outcome or server.process.poll() is not None:
        fail(f"{kind}: not all came out as they should:\n{done.stdout}{done.stderr}\n{server.log.read_text()[-4000:]}")
    say(f"{kind}: {outcome[0]}")
    return int(outcome[1]) - int(outcome[3])


def gateway(arguments, folder):
    with socket.create_server(("127.0.0.1", 0)) as origin:
        port = free_port()
        text = FILE.format(port=port, origin=origin.getsockname()[1], folder=folder)
        (folder / "site.toml").write_text(text)
        command = [arguments.quicket, "gateway", folder / "site.toml"]
        with Served(folder, "gateway", command, "Gateway on") as server:
            wrong = run(arguments.h3i, port, "gateway", server)
            # A stream may be reset a moment before that is counted.
            until(f"all {wrong} are counted", lambda: sum(refused(folder).values()) >= wrong)
            counted = sum(refused(folder).values())
        if counted != wrong:
            fail(f"{counted:.0f} were counted, and {wrong} break a rule")
        origin.settimeout(0)
        try:
            origin.accept()
            fail("a request that was malformed has reached the server behind the gateway")
        except BlockingIOError:
            pass


def serve(arguments, folder):
    (folder / "www").mkdir()
    (folder / "www" / "ok").write_text("ok\n")
    port = free_port()
    command = [arguments.quicket, "serve", folder / "www", "--listen", f"127.0.0.1:{port}", "--no-tcp", "--json",
               "--cert", folder / "certificate.pem", "--key", folder / "key.pem"]
    with Served(folder, "serve", command, '"listening"') as server:
        run(arguments.h3i, port, "serve", server)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    path = lambda text: str(pathlib.Path(text).resolve())  # noqa: E731
    parser.add_argument("--quicket", type=path, required=True, help="the program")
    parser.add_argument("--h3i", type=path, required=True, help="what was built of lab/peers/h3i")
    arguments = parser.parse_args()
    end_as_a_failure()
    with tempfile.TemporaryDirectory(prefix="quicket-h3i-") as folder:
        folder = pathlib.Path(folder)
        certificate(folder)
        gateway(arguments, folder)
        serve(arguments, folder)


if __name__ == "__main__":
    main()
