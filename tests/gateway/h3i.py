#!/usr/bin/env python3
"""h3i, Cloudflare's tool for malformed HTTP/3, against `quicket gateway` and `quicket serve`: each connection or stream ends with the
code that RFC 9114 and RFC 9204 demand (lab/peers/h3i), no such request reaches a server behind the gateway, and the gateway counts them."""

import pathlib
import re
import socket
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import environment  # noqa: E402, F401 (finds scripts/)
from gateway_site import absolute, certificate, end_as_a_failure, fail, free_port, options, say, until  # noqa: E402
from malformed import FILE, refused  # noqa: E402
from served import Served, gateway  # noqa: E402


def run(program, port, kind, server):
    """The corpus; how many cases there are that break a rule."""
    done = subprocess.run([program, str(port), kind], capture_output=True, text=True, timeout=300)
    outcome = re.search(r"^(\d+) cases, (\d+) failed, (\d+) break no rule$", done.stdout, re.MULTILINE)
    if done.returncode or not outcome or server.has_ended():
        fail(f"{kind}: not all came out as they should:\n{done.stdout}{done.stderr}\n{server.said()[-4000:]}")
    say(f"{kind}: {outcome[0]}")
    return int(outcome[1]) - int(outcome[3])


def before_an_origin(arguments, folder):
    with socket.create_server(("127.0.0.1", 0)) as origin:
        port = free_port()
        with gateway(arguments.quicket, folder, FILE.format(port=port, origin=origin.getsockname()[1], folder=folder)) as server:
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
    parser = options(__doc__)
    parser.add_argument("--h3i", type=absolute, required=True, help="what was built of lab/peers/h3i")
    arguments = parser.parse_args()
    end_as_a_failure()
    with tempfile.TemporaryDirectory(prefix="quicket-h3i-") as folder:
        folder = pathlib.Path(folder)
        certificate(folder)
        before_an_origin(arguments, folder)
        serve(arguments, folder)


if __name__ == "__main__":
    main()
