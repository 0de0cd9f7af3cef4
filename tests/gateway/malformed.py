#!/usr/bin/env python3
"""Clients that break the rules of HTTP/3, on aioquic's QUIC, against `quicket gateway`: each ends as RFC 9114 and RFC 9204 demand
(malformed_client.py), no request of theirs reaches a server behind the gateway, and the gateway counts them."""

import json
import pathlib
import re
import socket
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
from environment import HERE, python  # noqa: E402
from gateway_site import ask, certificate, end_as_a_failure, fail, free_port, options, say, until  # noqa: E402
from served import gateway  # noqa: E402

FILE = """listen = ["127.0.0.1:{port}"]
[[certificate]]
chain = "certificate.pem"
key = "key.pem"
[origin.nobody]
servers = ["http://127.0.0.1:{origin}"]
[[site]]
names = ["localhost"]
[[site.route]]
origin = "nobody"
[[site.route]]
path = "/ok"
methods = ["GET", "POST"]
respond = {{ status = 204 }}
[metrics]
listen = "unix:{folder}/metrics.sock"
"""


def refused(folder):
    """What the gateway has counted, by reason."""
    family = json.loads(ask(folder / "metrics.sock", "/metrics.json")[1]).get("quicket_gateway_refused_total", [])
    return {entry["labels"]["reason"]: entry["value"] for entry in family}


def main():
    arguments = options(__doc__).parse_args()
    end_as_a_failure()
    with tempfile.TemporaryDirectory(prefix="quicket-malformed-") as folder, socket.create_server(("127.0.0.1", 0)) as origin:
        folder = pathlib.Path(folder)
        certificate(folder)
        port = free_port()
        with gateway(arguments.quicket, folder, FILE.format(port=port, origin=origin.getsockname()[1], folder=folder)) as server:
            client = [python(), HERE / "malformed_client.py", str(port)]
            done = subprocess.run(client, capture_output=True, text=True, timeout=300)
            outcome = re.match(r"(\d+) cases, 0 failed, (\d+) break no rule", done.stdout)
            cases, good = map(int, outcome.groups()) if outcome else (0, 0)
            # A stream may be reset a moment before that is counted.
            if done.returncode == 0 and not server.has_ended():
                until(f"all {cases - good} are counted", lambda: sum(refused(folder).values()) >= cases - good)
            told = {} if server.has_ended() else refused(folder)
        if done.returncode:
            fail(f"not all came out as they should:\n{done.stdout}{done.stderr}\n{server.said()}")
        say(done.stdout.strip())
        origin.settimeout(0)
        try:
            origin.accept()
            fail("a request that was malformed has reached the server behind the gateway")
        except BlockingIOError:
            pass
        counted = sum(told.values())
        if counted != cases - good:
            fail(f"{counted} of {cases - good} were counted: {told}")
        say(f"all {counted:.0f} that break a rule were counted, by {len(told)} reasons")


if __name__ == "__main__":
    main()
