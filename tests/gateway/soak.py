#!/usr/bin/env python3
"""A gateway under mixed load for a long time: files over HTTP/3, HTTP/2 and HTTP/1.1, many requests at once, bytes carried
to a service, connections that stay and whose ports change, and downloads through a NAT that rebinds. Meanwhile its file
changes, generations take over from each other, and servers behind it are killed and come back.

What fails must have met a server's death. Each generation's memory and descriptors are looked at after the same time
under the same load: the last one may have no more than the first."""

import argparse
import collections
import contextlib
import hashlib
import json
import os
import pathlib
import random
import re
import socketserver
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
import environment  # noqa: E402, F401 (finds scripts/)
from gateway_site import FILES, LONG, Load, Service, Site, fail, free_port, options, say, until  # noqa: E402

# Connections that stay, and how often each asks, in seconds.
HELD, EVERY = 100, 2
# Of a death a client may hear that much later, in seconds: by then the gateway has tried the other server.
AFTERMATH = 5
# What a generation may have more than the first one: a part of that, and bytes for the allocator's chance.
GROWTH, SLACK = 0.15, 16 << 20
# Descriptors: connections to servers and of clients come and go.
MORE_FILES = 64
# Downloads whose port changed in the midst of the handshake: addresses are to be stable until it is confirmed (RFC 9000, Section 9).
# It takes a hundredth of the time between two changes.
UNLUCKY, UNLUCKY_SHARE = 2, 0.03
HANDSHAKE_ENDED = "the handshake took too long"

HELD_PROTOCOL = """
[[protocol]]
alpn = ["hq-interop"]
streams = "tcp://127.0.0.1:{port}"
"""


class Who(socketserver.BaseRequestHandler):
    """Answers each stream that is carried to it (HTTP/0.9)."""

    def handle(self):
        if self.request.recv(4096):
            self.request.sendall(b"here")


class SoakSite(Site):
    """Two servers of files, of which one dies now and then, and a service for connections that stay."""

    SERVERS = ("one", "other")

    def __init__(self, quicket, folder):
        self.who = Service(("127.0.0.1", 0), Who)
        threading.Thread(target=self.who.serve_forever, daemon=True).start()
        self.protocols = HELD_PROTOCOL.format(port=self.who.server_address[1])
        self.deaths = []
        super().__init__(quicket, folder)
        der = subprocess.run(["openssl", "x509", "-in", self.certificate, "-outform", "der"], check=True, capture_output=True)
        self.pin = "sha256:" + hashlib.sha256(der.stdout).hexdigest()

    def listens(self):
        # Servers die here; whether the gateway lives is what counts.
        self.processes = [entry for entry in self.processes if entry[0] not in self.SERVERS]
        return super().listens()

    def kill_server(self, name):
        """Without a chance to end what it has begun; it comes back."""
        self.servers[name].kill()
        self.servers[name].wait()
        self.deaths.append(time.monotonic())
        time.sleep(1)
        self.servers[name] = self.start_server(name)

    def near_death(self, begun):
        """Whether a server died while something went on that has just ended, or shortly before."""
        return any(death > begun - AFTERMATH for death in list(self.deaths))

    def end(self):
        super().end()
        for server in self.servers.values():
            server.kill()
            server.wait()
        self.who.shutdown()


class Link:
    """A NAT in front of the gateway whose ports change all the time."""

    def __init__(self, site, scenario):
        self.port = free_port()
        self.process = subprocess.Popen(
            [site.quicket, "lab", "link", "--listen", f"127.0.0.1:{self.port}", "--to", f"127.0.0.1:{site.port}", "--scenario", scenario,
             "--json", "-"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert "link from" in self.process.stderr.readline()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()

    def end(self):
        """How often ports changed."""
        self.process.terminate()
        return json.loads(self.process.communicate(timeout=LONG)[0])["nat"]["rebindings"]


class Held:
    """Connections that ask again and again through the NAT."""

    def __init__(self, site, link):
        self.counts = {}
        self.process = subprocess.Popen(
            [site.quicket, "lab", "hold", "--pin", site.pin.removeprefix("sha256:"), "--connections", str(HELD), "--ports", "50",
             "--every", f"{EVERY}s", f"127.0.0.1:{link.port}", "who"], stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self.read, daemon=True).start()
        until("the connections that stay are there", lambda: self.counts and sum(self.counts["open"].values()) == HELD)

    def read(self):
        for line in self.process.stdout:
            self.counts = json.loads(line)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()

    def check(self):
        counts = self.counts
        if any(counts[what] for what in ("refused", "failed", "strayed", "reasons")) or sum(counts["open"].values()) != HELD:
            fail(f"of the connections that stay: {counts}")

    def end(self):
        asked = self.counts["answers"] + 3 * HELD
        until("all connections that stay are answered", lambda: self.counts["answers"] >= asked and not self.counts["silent"])
        self.check()
        self.process.terminate()
        self.process.wait()
        return self.counts["answers"]


class Mixed(Load):
    """The load of the demonstration, with downloads through the NAT, and many requests at once by h2load."""

    def __init__(self, site, link, pause):
        self.link, self.pause, self.excused, self.requests = link, pause, collections.Counter(), collections.Counter()
        self.unlucky = 0
        super().__init__(site, more=("NAT", "h2load"))

    def one(self, kind):
        time.sleep(self.pause)
        begun = time.monotonic()
        try:
            if kind == "NAT":
                return self.download()
            return self.many() if kind == "h2load" else super().one(kind)
        except SystemExit:
            if not self.site.near_death(begun):
                raise
            self.excused[kind] += 1
            return 0

    def download(self):
        with tempfile.TemporaryDirectory(dir=self.site.folder) as folder:
            out = pathlib.Path(folder) / "large"
            done = subprocess.run(
                [self.site.quicket, "get", f"https://localhost:{self.site.port}/large", "--connect", f"127.0.0.1:{self.link.port}", "--ca",
                 self.site.certificate, "--http3-only", "--quiet", "--limit-rate", "4M", "-o", out],
                env=self.site.environment, timeout=LONG, text=True, capture_output=True)
            if done.returncode != 0 and HANDSHAKE_ENDED in done.stderr:
                self.unlucky += 1
                if self.unlucky > UNLUCKY + UNLUCKY_SHARE * self.counts["NAT"]:
                    fail(f"the NAT ended {self.unlucky} of {self.counts['NAT']} downloads: {done.stderr}")
                return 0
            if done.returncode != 0:
                fail(f"a download through the NAT: {done.stderr}")
            if hashlib.sha256(out.read_bytes()).hexdigest() != self.site.hashes["large"]:
                fail("a download through the NAT: another content")
        return FILES["large"]

    def many(self):
        """Requests at a rate that leaves room for the rest."""
        done = subprocess.run(
            ["h2load", "-D", "5", "-c", "10", "-m", "4", "--rps", "20", f"https://localhost:{self.site.port}/small"],
            timeout=LONG, text=True, capture_output=True)
        told = re.search(r"requests: \d+ total, \d+ started, \d+ done, (\d+) succeeded, (\d+) failed, (\d+) errored", done.stdout)
        if not told:
            fail(f"h2load: {done.stdout} {done.stderr}")
        succeeded, failed, errored = map(int, told.groups())
        self.requests.update(succeeded=succeeded, failed=failed + errored)
        if failed + errored or not succeeded:
            fail(f"h2load: {succeeded} succeeded, {failed} failed, {errored} errored")
        return succeeded * FILES["small"]


def resources(pid):
    """Resident memory in bytes, and descriptors."""
    pages = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE"), len(os.listdir(f"/proc/{pid}/fd"))


class Soak:
    def __init__(self, site, seconds, upgrades, pause, seed):
        self.site, self.stretch, self.upgrades, self.pause = site, seconds / (upgrades + 1), upgrades, pause
        self.random = random.Random(seed)
        self.seen = []

    def run(self):
        site, begun = self.site, time.monotonic()
        # Two, so that connections that stay and downloads have changes of their own.
        with contextlib.ExitStack() as stack:
            links = [stack.enter_context(Link(site, f"{delay}every {often}s rebind=port")) for delay, often in (("", 3), ("delay=5ms; ", 2))]
            self.load(site, links, stack.enter_context(Held(site, links[0])), begun)
        self.judge()

    def load(self, site, links, held, begun):
        load = Mixed(site, links[1], self.pause)
        for generation in range(self.upgrades + 1):
            if generation:
                site.upgrade()
            self.live_through(load, held)
            pid = site.serving()
            self.seen.append(resources(pid))
            memory, files = self.seen[-1]
            say(f"  {time.monotonic() - begun:6.0f} s: generation {generation + 1}, process {pid}: {memory / (1 << 20):.0f} MiB, {files} "
                f"descriptors; {sum(load.counts.values())} rounds of clients, {held.counts['answers']} answers to those that stay")
        load.end()
        answers = held.end()
        rebindings = [link.end() for link in links]
        assert all(count >= 2 for count in rebindings), rebindings
        excused = dict(load.excused) or "none"
        say(f"soak: {time.monotonic() - begun:.0f} s, {dict(load.counts)}, {load.bytes / 1e6:,.0f} MB verified, {load.requests['succeeded']} "
            f"requests by h2load, {answers} answers on {HELD} connections that stayed; ports changed {sum(rebindings)} times, {site.reloads} "
            f"reloads, {self.upgrades} upgrades, {len(site.deaths)} deaths of servers; failed near those: {excused}, and of requests by "
            f"h2load {load.requests['failed']}; a new port during the handshake ended {load.unlucky} downloads; nothing else failed")

    def live_through(self, load, held):
        """One generation's time: its file changes every few seconds, and servers die."""
        until_when, change, death = time.monotonic() + self.stretch, 0, time.monotonic() + self.stretch / 4
        while (now := time.monotonic()) < until_when:
            if load.over.is_set():
                load.end()
            held.check()
            if now >= change:
                self.site.read_again()
                change = now + self.random.uniform(1, 4)
            if now >= death:
                self.site.kill_server(self.random.choice(self.site.SERVERS))
                death = now + self.random.uniform(8, 20)
            time.sleep(0.2)

    def judge(self):
        (memory, files), (last_memory, last_files) = self.seen[0], self.seen[-1]
        assert last_memory <= memory * (1 + GROWTH) + SLACK, f"memory has grown from {memory} to {last_memory} bytes: {self.seen}"
        assert last_files <= files + MORE_FILES, f"descriptors have grown from {files} to {last_files}: {self.seen}"


def main():
    parser = options(__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=1800, help="how long (default: %(default)s)")
    parser.add_argument("--upgrades", type=int, default=5, help="how many generations follow the first one (default: %(default)s)")
    parser.add_argument("--pause", type=float, default=0.1, help="between two rounds of a client, in seconds (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="where chance starts from (default: %(default)s)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="quicket-soak-") as folder, contextlib.ExitStack() as stack:
        site = SoakSite(arguments.quicket, pathlib.Path(folder))
        stack.callback(site.end)
        Soak(site, arguments.seconds, arguments.upgrades, arguments.pause, arguments.seed).run()


if __name__ == "__main__":
    main()
