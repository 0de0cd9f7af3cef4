#!/usr/bin/env python3
"""Clients that ask for something large and never read it, over HTTP/3, HTTP/2 and HTTP/1.1 in turn: the gateway's memory stays within
what its file says, who reads is served all the while, and the memory comes back when they have gone."""

import contextlib
import pathlib
import resource
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
import environment  # noqa: E402, F401 (finds scripts/)
from gateway_site import LONG, Site, absolute, end_as_a_failure, fail, options, say, until  # noqa: E402

# What the file allows for the data of streams, in MiB: an answer that nobody reads takes about 30 KiB of it.
BUDGET = 512
# What each client may take: a connection, and of one answer a piece that waits for the client and one that is read from the
# server, of 64 KiB at most (docs/gateway.md, "Limits for each client"). Bytes.
EACH = {"HTTP/3": 160 << 10, "HTTP/2": 256 << 10, "HTTP/1.1": 272 << 10}
# What may stay when all have gone, beside what was there before: a part of what they took, and bytes for the allocator's chance, which
# it may have before, too.
STAYS, SLACK = 0.1, 16 << 20
# How long memory is looked at while nobody reads, in seconds.
LOOKED = 5
# Descriptors of the gateway for each client over TCP, and what it and others have beside.
DESCRIPTORS, OTHERS = 2, 200


class UnreadSite(Site):
    """Takes as many clients as come, and lets them be."""

    EVENTS = "worker_connections 30000;"
    HTTP = "open_file_cache max=10;"
    # Each client's answer holds a connection to the server.
    origin = "max_connections = 30000\n"

    def write(self, more):
        super().write(f"[limits]\nmemory_mib = {BUDGET}\nbody_timeout_ms = 600000\n{more}")


def rss(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    fail("no VmRSS")


def mib(octets):
    return f"{octets / (1 << 20):.0f} MiB"


def h2_frame(kind, flags, stream, payload):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


# A request for /large. Over HTTP/2: the preface, SETTINGS, and HEADERS without indexing (RFC 9113, RFC 7541).
H2 = (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + h2_frame(4, 0, 0, b"")
      + h2_frame(1, 5, 1, b"\x82\x87\x04\x06/large\x01\x09localhost"))
H1 = b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n"


class OverTcp:
    """Connections over TLS, each of which asks once."""

    def __init__(self, site, version, count):
        self.sockets = []
        context = ssl.create_default_context(cafile=site.certificate)
        context.set_alpn_protocols(["h2" if version == "HTTP/2" else "http/1.1"])
        for _ in range(count):
            plain = socket.socket()
            # What the system takes for us is not the gateway's to keep.
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            plain.settimeout(LONG)
            plain.connect(("127.0.0.1", site.port))
            stream = context.wrap_socket(plain, server_hostname="localhost")
            stream.sendall(H2 if version == "HTTP/2" else H1)
            self.sockets.append(stream)

    def end(self):
        for stream in self.sockets:
            stream.close()


class OverQuic:
    """Connections of `gateway/examples/load.rs`."""

    def __init__(self, site, load, count):
        self.process = subprocess.Popen([load, f"127.0.0.1:{site.port}", site.certificate, str(count), "unread"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        if self.process.stdout.readline() != "ready\n":
            self.end()
            fail(f"the clients over HTTP/3 end:\n{site.log()}")

    def end(self):
        # It says goodbye, so that nothing waits for a timeout.
        self.process.stdin.close()
        try:
            self.process.wait(LONG)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def look(site, version, clients, count):
    """Memory while nobody reads, and after."""
    pid = site.gateway.pid
    before, begun = rss(pid), time.monotonic()
    with contextlib.closing(contextlib.ExitStack()) as stack:
        unread = clients()
        stack.callback(unread.end)
        took = time.monotonic() - begun
        most, end = 0, time.monotonic() + LOOKED
        while time.monotonic() < end:
            most = max(most, rss(pid))
            site.fetch(version, "page")
            site.fetch("HTTP/1.1", "large")
    grown, allowed = most - before, SLACK + count * EACH[version]
    say(f"{version}: {count} clients that never read ({took:.0f} s): {mib(grown)} more, {grown / count / 1024:.1f} KiB each; {mib(allowed)} allowed")
    if grown > allowed:
        fail(f"{version}: more than {mib(allowed)}")
    stays = before + int(grown * STAYS) + SLACK
    until(f"{version}: memory comes back to {mib(stays)}, from {mib(before)} before", lambda: rss(pid) <= stays)


def main():
    parser = options(__doc__)
    parser.add_argument("--load", type=absolute, required=True, help="gateway/examples/load.rs, built")
    parser.add_argument("--clients", type=int, default=10_000, help="(default: %(default)s)")
    arguments = parser.parse_args()
    end_as_a_failure()
    wanted = DESCRIPTORS * arguments.clients + OTHERS
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < wanted:
        fail(f"{arguments.clients} clients take {wanted} descriptors, and there may be {hard}: raise the limit (ulimit -Hn), or lower --clients")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory(prefix="quicket-unread-") as folder:
        site = UnreadSite(arguments.quicket, pathlib.Path(folder))
        try:
            look(site, "HTTP/3", lambda: OverQuic(site, arguments.load, arguments.clients), arguments.clients)
            for version in "HTTP/2", "HTTP/1.1":
                look(site, version, lambda version=version: OverTcp(site, version, arguments.clients), arguments.clients)
        finally:
            site.end()


if __name__ == "__main__":
    main()
