#!/usr/bin/env python3
"""Go's net/http and quic-go, and Python's niquests, before a gateway and behind it: each version of HTTP that they speak in front, to each that
they speak behind, with large bodies both ways, trailers, conversations, early hints and requests that are given up; and the streams and
datagrams of a private protocol."""

import contextlib
import hashlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading

sys.dont_write_bytecode = True
from environment import HERE, go_on_with_packages  # noqa: E402
from gateway_site import LONG, Site, end_as_a_failure, fail, options, say  # noqa: E402

# What of the gateway's file leads to a server over each version.
SCHEMES = {"http1": "http", "http2": "h2c", "http3": "h3"}
ORIGIN = """[origin.{name}]
servers = ["{scheme}://localhost:{port}"]
{trust}[[site.route]]
path = "/{name}"
origin = "{name}"
"""


class Datagrams:
    """A service of UDP that sends back what comes."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            data, sender = self.socket.recvfrom(65536)
            self.socket.sendto(data, sender)


class Strangers(Site):
    def __init__(self, quicket, folder, peer):
        self.peer, self.datagrams, self.behind = peer, Datagrams(), None
        super().__init__(quicket, folder)

    def write(self, more):
        if not self.behind:
            # Its certificate is there by now, and is the gateway's, too.
            self.behind = subprocess.Popen([self.peer, "origin", "-certificate", self.certificate, "-key", self.folder / "key.pem"],
                                           stdout=subprocess.PIPE, text=True)
            self.processes.append(("the origin", self.behind, self.folder / "origin.log"))
            ports = json.loads(self.behind.stdout.readline())
            trust = f'ca = "{self.certificate}"\n'
            tables = [ORIGIN.format(name=name, scheme=scheme, port=ports[name], trust=trust if scheme == "h3" else "")
                      for name, scheme in SCHEMES.items()]
            # A line of the private protocol, whose table is the last one, comes first.
            self.protocols = "".join([f'datagrams = "udp://127.0.0.1:{self.datagrams.port}"\n', *tables])
        super().write(more)

    def by_go(self, *arguments):
        done = subprocess.run([self.peer, *arguments], timeout=5 * LONG, text=True, capture_output=True)
        if done.returncode != 0:
            fail(f"{' '.join(map(str, arguments))}: {done.stderr}{self.log()[-2000:]}")


def by_niquests(site):
    """In this process's Python."""
    import niquests
    with niquests.Session() as session:
        # Certificates that the environment names would count instead.
        session.trust_env, session.verify = False, site.certificate
        versions = set()
        for name in SCHEMES:
            at = f"https://localhost:{site.port}/{name}"
            sent = os.urandom(3_000_000)
            answer = session.post(f"{at}/sum", data=sent)
            versions.add(answer.http_version)
            if answer.status_code != 200 or answer.text.split() != [str(len(sent)), hashlib.sha256(sent).hexdigest()]:
                fail(f"niquests to {name}: {answer.status_code}, {answer.text}")
            answer = session.get(f"{at}/content/2000000")
            versions.add(answer.http_version)
            if len(answer.content) != 2_000_000:
                fail(f"niquests from {name}: {len(answer.content)} bytes")
    # It begins with what TCP offers, and goes on by what Alt-Svc has told of.
    if 30 not in versions:
        fail(f"niquests never came by HTTP/3, but by {versions}")
    say(f"niquests: bodies both ways to every origin, by HTTP {sorted(version / 10 for version in versions)}")


def main():
    arguments = options(__doc__).parse_args()
    end_as_a_failure()
    with tempfile.TemporaryDirectory(prefix="quicket-strangers-") as folder, contextlib.ExitStack() as ends:
        peer = pathlib.Path(folder) / "peer"
        subprocess.run(["go", "build", "-mod=readonly", "-o", peer, "."], cwd=HERE / "go", check=True)
        site = Strangers(arguments.quicket, pathlib.Path(folder), peer)
        ends.callback(site.end)
        at = f"localhost:{site.port}"
        for version in "123":
            site.by_go("requests", "-version", version, "-address", at, "-certificate", site.certificate, *SCHEMES)
            say(f"Go over HTTP/{version}: every part holds with origins of {', '.join(SCHEMES)}")
        site.by_go("streams", "-address", at, "-certificate", site.certificate)
        say("quic-go: 20 streams of a private protocol at once, each half-closed, and a datagram")
        by_niquests(site)


if __name__ == "__main__":
    go_on_with_packages()
    main()
