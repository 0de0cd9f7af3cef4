#!/usr/bin/env python3
"""A client downloads through the gateway and walks from one network to another and back, while the gateway reads its file again, its key
process is killed and started anew, and a new program takes over from it. Two clients do so: ours, and aioquic. The files must be
whole, and nobody may have connected twice. Needs root: each host is a network namespace."""

import contextlib
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
from environment import HERE, python  # noqa: E402
from gateway_site import FILES, LONG, Site, ask, end_as_a_failure, fail, options, say, until  # noqa: E402
from namespaces import Namespace, inside, ip  # noqa: E402

# The client's networks: its address in each, the gateway's, and which one it likes better.
NETWORKS = {"wifi": ("10.1.0.2", "10.1.0.1", 100), "phone": ("10.2.0.2", "10.2.0.1", 200)}
# How large the file is, in bytes, and how fast bodies flow to all clients together, in bytes per second: two downloads take 51 s, and what
# happens meanwhile takes 8 s on a machine with little else to do.
LARGE, RATE = 18_000_000, 700_000
# What each client has to get between two events, in bytes: so each event meets a download that goes on.
STEP = 200_000
# A handshake's signature is made elsewhere.
KEY = "key.pem"


class Scene(Site):
    """The gateway, its switch, its key process and nginx on one host."""

    ADDRESS = "10.0.0.1"
    FILES = FILES | {"large": LARGE}
    KEY = '{{ keyd = "unix:{folder}/keyd.sock" }}'
    rules = f"bytes_per_s = {RATE}\n"
    protocols = '\n[metrics]\nlisten = "unix:{folder}/metrics.sock"\n'

    def __init__(self, quicket, folder):
        self.KEY, self.protocols = (text.format(folder=folder) for text in (self.KEY, self.protocols))
        self.keyd = None
        super().__init__(quicket, folder)

    def write(self, more):
        if not self.keyd:
            (self.folder / KEY).chmod(0o600)
            self.start_keyd()
        super().write(f"{more}[limits]\ndrain_ms = 120000\n" if "[limits]" not in more else f"{more}drain_ms = 120000\n")

    def start_keyd(self):
        log, command = self.folder / "keyd.log", [self.quicket, "keyd", "--listen", f"unix:{self.folder}/keyd.sock", "--key", self.folder / KEY]
        said = log.read_text().count("Keys at") if log.exists() else 0
        with log.open("ab") as out:
            self.keyd = subprocess.Popen(command, stdout=out, stderr=out, env=self.environment)
        until("the key process has its key", lambda: log.read_text().count("Keys at") > said)

    def kill_keyd(self):
        if self.keyd:
            self.keyd.kill()
            self.keyd.wait()

    def counter(self, name):
        """The sum of a counter of the gateway that serves, over HTTP/3."""
        lines = ask(self.folder / "metrics.sock", "/metrics")[1].decode().splitlines()
        return sum(float(line.split(" ")[1]) for line in lines if line.startswith(f'quicket_gateway_{name}{{protocol="h3"'))

    def end(self):
        try:
            super().end()
        finally:
            self.kill_keyd()


class Walker:
    """A host with two networks, of which it uses the better one that is there, and the downloads on it."""

    def __init__(self, host, gateway, scene):
        self.host, self.gateway, self.scene, self.running = host, gateway, scene, {}
        for name, (own, router, metric) in NETWORKS.items():
            ip("link", "add", name, "netns", self.host.name, "type", "veth", "peer", "name", name, "netns", gateway.name)
            for namespace, address in (self.host, own), (gateway, router):
                namespace.ip("addr", "add", f"{address}/24", "dev", name)
                namespace.ip("link", "set", name, "up")
            self.route(name)

    def route(self, name):
        _, router, metric = NETWORKS[name]
        self.host.ip("route", "replace", f"{Scene.ADDRESS}/32", "via", router, "dev", name, "metric", str(metric))

    def start(self, what, command):
        with (self.scene.folder / f"{what}.log").open("wb") as log:
            self.running[what] = subprocess.Popen(self.host.command(*command), stdout=subprocess.PIPE, stderr=log, text=True,
                                                  env=self.scene.environment, cwd=self.scene.folder)

    def get(self, path, out):
        scene = self.scene
        return [scene.quicket, "get", f"https://localhost:{scene.port}/{path}", "--connect", f"{scene.ADDRESS}:{scene.port}", "--ca",
                scene.certificate, "--http3-only", "--no-sessions", "--json", "-o", str(scene.folder / out)]

    def download(self):
        self.start("quicket", self.get("large", "large"))
        self.start("aioquic", [python(), HERE / "download.py", Scene.ADDRESS, str(self.scene.port), self.scene.certificate, "/large", "aioquic.large"])

    def newcomer(self):
        """A client without a session: its handshake takes a signature."""
        done = subprocess.run(self.host.command(*self.get("small", "small")), env=self.scene.environment, capture_output=True, text=True,
                              timeout=LONG)
        if done.returncode:
            fail(f"a new client: {done.stderr}")
        assert (self.scene.folder / "small").read_bytes() == (self.scene.folder / "files" / "small").read_bytes()

    def received(self, name):
        """Bytes that came from a network."""
        told, = json.loads(self.host.run("ip", "-s", "-j", "link", "show", name))
        return told["stats64"]["rx"]["bytes"]

    def written(self):
        """How much each download has, in bytes."""
        files = {"quicket": "large.part", "aioquic": "aioquic.large"}
        return {what: (self.scene.folder / file).stat().st_size for what, file in files.items() if (self.scene.folder / file).exists()}

    def go_on(self, name):
        """Waits until each download has gone on for a while; all that comes has to come over this network."""
        for what, process in self.running.items():
            if process.poll() is not None:
                fail(f"the download by {what} is over too early: {process.communicate()[0]} {(self.scene.folder / f'{what}.log').read_text()}")
        received, written = self.received(name), self.written()
        until("downloads go on", lambda: len(now := self.written()) == 2 and all(
            size - written.get(what, 0) >= STEP for what, size in now.items()))
        # A part of it may have come before, and was written since: clients write what has come for a while at once.
        assert self.received(name) - received >= STEP, f"only {self.received(name) - received} bytes came over {name}"

    def leave(self, name, other):
        """The network is gone, address and route with it, and the other one is there."""
        self.host.ip("link", "set", other, "up")
        self.route(other)
        self.host.ip("link", "set", name, "down")

    def end(self):
        """What the clients say."""
        return {what: json.loads(process.communicate(timeout=2 * LONG)[0] or "null") for what, process in self.running.items()}

    def kill(self):
        for process in self.running.values():
            process.kill()
            process.wait()


class Scenario:
    def __init__(self, scene, walker):
        self.scene, self.walker, self.begun = scene, walker, time.monotonic()

    def tell(self, what, network):
        self.walker.go_on(network)
        say(f"  {time.monotonic() - self.begun:4.0f} s  {what}")

    def run(self):
        scene, walker = self.scene, self.walker
        walker.download()
        until("both have connected", lambda: scene.counter("connections_total") == 2)
        self.tell("both download over wifi", "wifi")
        walker.leave("wifi", "phone")
        self.tell("the client has left the wifi: both go on over the phone's network", "phone")
        # That both have moved is known: the other network is down, and both have got more.
        until("the gateway has counted that", lambda: scene.counter("quic_moves_total") >= 2)
        scene.read_again()
        self.tell("the gateway has read its file again", "phone")
        scene.kill_keyd()
        self.tell("the key process was killed", "phone")
        scene.start_keyd()
        until("a new client is served", self.is_signed)
        self.tell("it is back, and a new client is served", "phone")
        scene.upgrade()
        walker.newcomer()
        self.tell("a new program has taken over, and the old one ends what it has begun", "phone")
        walker.leave("phone", "wifi")
        self.tell("the client is back in the wifi", "wifi")
        self.judge(walker.end())

    def is_signed(self):
        done = subprocess.run(self.walker.host.command(*self.walker.get("small", "small")), env=self.scene.environment,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=LONG)
        return done.returncode == 0

    def judge(self, told):
        scene, hashed = self.scene, self.scene.hashes["large"]
        for what, said in told.items():
            if not said:
                fail(f"{what}: {(scene.folder / f'{what}.log').read_text()}")
        assert hashlib.sha256((scene.folder / "large").read_bytes()).hexdigest() == hashed, "quicket get has another content"
        connections = told["quicket"]["connections"]
        assert len(connections) == 1, f"quicket get has connected again: {connections}"
        assert told["aioquic"] == {"status": "200", "bytes": LARGE, "sha256": hashed}, told["aioquic"]
        # One that had come back would have come to the new program.
        assert scene.counter("connections_total") == 1, "who was there before has connected again"
        say(f"scenario: two downloads of {LARGE / 1e6:.0f} MB by one connection each, through two moves, a reload, a key process that was "
            f"killed and a new program, in {time.monotonic() - self.begun:.0f} s: every byte as nginx has it")


def play(quicket):
    with tempfile.TemporaryDirectory(prefix="quicket-scenario-") as folder, contextlib.ExitStack() as stack:
        folder = pathlib.Path(folder)
        # nginx's workers are of another user.
        folder.chmod(0o755)
        gateway = Namespace("gateway")
        stack.callback(gateway.remove)
        gateway.ip("addr", "add", f"{Scene.ADDRESS}/32", "dev", "lo")
        with inside(gateway.name):
            client = Namespace("client")
            stack.callback(client.remove)
            scene = Scene(quicket, folder)
            stack.callback(scene.end)
            walker = Walker(client, gateway, scene)
            stack.callback(walker.kill)
            Scenario(scene, walker).run()


def main():
    arguments = options(__doc__).parse_args()
    if os.geteuid() != 0:
        fail("network namespaces take root")
    end_as_a_failure()
    python()
    play(arguments.quicket)


if __name__ == "__main__":
    main()
