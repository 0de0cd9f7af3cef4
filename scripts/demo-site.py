#!/usr/bin/env python3
"""Starts a whole site on this machine, each host a network namespace, from the files in docs/site: three gateways, a spreader in front
of them, a store, a key process and an origin behind them. Clients come back all the while with the sessions that they have. Then one thing
after the other is broken and repaired, and it is told what became of the clients. Needs root."""

import argparse
import collections
import concurrent.futures
import contextlib
import hashlib
import http.client
import json
import os
import pathlib
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import tomllib

sys.dont_write_bytecode = True
from authority import Authority  # noqa: E402
from local_socket import Relay  # noqa: E402
from namespaces import Namespace, until  # noqa: E402

FILES = pathlib.Path(__file__).resolve().parents[1] / "docs" / "site"
# How long anything may take on a machine that is busy, in seconds.
LONG = 60
GATEWAYS = ("gateway-1", "gateway-2", "gateway-3")
# Clients that come back, and how many of them do so at once.
CLIENTS, AT_ONCE = 12, 3
# What a client fetches, and what one downloads all the while, in bytes.
PAGE, LARGE = 20_000, 60_000_000
# A store that is younger brings no early data in, in seconds (docs/site.md).
YOUNG = 180
# Of the site's certificate; names of other certificates are those of files.
NAME = "example.org"


def say(text):
    print(text, flush=True)


def fail(text):
    raise SystemExit(f"failed: {text}")


class Host:
    def __init__(self, site, name, address, run):
        self.site, self.name, self.address, self.run = site, name, address, run
        self.namespace = site.attach(name, address)
        self.processes = {}

    def start(self, only=None):
        """Starts its programs, or one of them by its name."""
        for line in self.run:
            words = shlex.split(line)
            what = words[1] if words[0] == "quicket" else words[0]
            if only in (None, what):
                log = (self.site.folder / f"{self.name}.{what}.log").open("ab")
                program = self.site.quicket if words[0] == "quicket" else words[0]
                self.processes[what] = subprocess.Popen(self.namespace.command(program, *words[1:]), cwd=self.site.folder, stdout=log,
                                                        stderr=log, env=self.site.environment)

    def process(self, what):
        """The one in the namespace: `ip netns exec` becomes the program."""
        return self.processes[what]

    def log(self, what):
        return (self.site.folder / f"{self.name}.{what}.log").read_text()

    def kill(self, what):
        self.processes[what].kill()
        self.processes[what].wait()


class Site:
    """All hosts, and a network for clients; all ends with `end`."""

    def __init__(self, quicket, folder):
        self.quicket, self.folder = quicket, folder
        self.environment = os.environ | {"XDG_DATA_HOME": str(folder / "data"), "XDG_STATE_HOME": str(folder / "state"),
                                         "XDG_RUNTIME_DIR": str(folder)}
        self.namespaces, self.hosts, self.relays = [], {}, []
        self.plan = tomllib.loads((FILES / "hosts.toml").read_text())
        self.address = self.plan.pop("site")

    def build(self):
        self.write()
        self.net = Namespace("net")
        self.namespaces.append(self.net)
        self.net.ip("link", "add", "bridge", "type", "bridge")
        self.net.ip("link", "set", "bridge", "up")
        self.client = self.attach("client", "10.0.0.100")
        spreader = self.plan["spreader"]["address"]
        self.client.ip("route", "add", f"{self.address}/32", "via", spreader)
        for name, host in self.plan.items():
            self.hosts[name] = Host(self, name, host["address"], host["run"])
        for name in (*GATEWAYS, "spreader"):
            self.hosts[name].namespace.ip("addr", "add", f"{self.address}/32", "dev", "lo")
        self.hosts["spreader"].namespace.run("sysctl", "-q", "net.ipv4.conf.all.forwarding=1")
        for host in self.hosts.values():
            host.start()
            if host.name in GATEWAYS:
                self.accept_tunnel(host)
        self.up()

    def write(self):
        """The files of docs/site, what differs from gateway to gateway, and what is secret."""
        for file in FILES.iterdir():
            shutil.copy(file, self.folder)
        for number, name in enumerate(GATEWAYS, 1):
            gateway = (FILES / "gateway.toml").read_text().replace("00000001", f"{number:08x}")
            gateway = gateway.replace("/run/quicket/metrics.sock", f"{self.folder}/metrics-{number}.sock")
            (self.folder / f"{name}.toml").write_text(gateway)
            tunnels = (FILES / "tunnels").read_text().replace("10.0.0.1 ", f"10.0.0.{number} ").replace("gateway 1", f"gateway {number}")
            (self.folder / f"tunnels-{number}").write_text(tunnels)
        authority = Authority(self.folder)
        authority.issue(NAME, "rsa:2048", f"DNS:{NAME}", "serverAuth")
        authority.issue("keys", "ec", "IP:10.0.0.6", "serverAuth")
        authority.issue("gateway", "ec", "DNS:gateway", "clientAuth")
        password = os.urandom(16).hex()
        self.secret("store.password", password + "\n")
        with (self.folder / "store.conf").open("a") as store:
            store.write(f"user gateway on >{password} ~quicket:early:* resetchannels -@all +set +get +time +info +watch +unwatch +multi +exec +select\n")
        self.secret("connection-ids", f"config 0 server-id 4 nonce 12 key {os.urandom(16).hex()}\nreport-key {os.urandom(32).hex()}\n")
        self.run("switch", "secrets", "new", "secrets")
        files = self.folder / "files"
        files.mkdir()
        self.hashes = {}
        for name, size in ("page", PAGE), ("large", LARGE):
            content = os.urandom(size)
            (files / name).write_bytes(content)
            self.hashes[name] = hashlib.sha256(content).hexdigest()
        # The origin's workers are of another user.
        for folder in (self.folder, files):
            folder.chmod(0o755)

    def secret(self, name, text):
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_text(text)

    def run(self, *words):
        done = subprocess.run([self.quicket, *words], cwd=self.folder, env=self.environment, capture_output=True, text=True)
        if done.returncode:
            fail(f"quicket {' '.join(words)}: {done.stderr}")
        return done.stdout

    def attach(self, name, address):
        namespace = Namespace(name)
        self.namespaces.append(namespace)
        self.net.ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", namespace.name)
        self.net.ip("link", "set", name, "master", "bridge", "up")
        namespace.ip("addr", "add", f"{address}/24", "dev", "eth0")
        namespace.ip("link", "set", "eth0", "up")
        return namespace

    def accept_tunnel(self, host):
        """What comes out of the tunnel has the addresses of clients, to whom another way leads."""
        until(f"{host.name} has its tunnel", lambda: "ready" in host.log("tunnel"), LONG)
        host.namespace.ip("link", "set", "spread", "up")
        for what in "all", "spread":
            host.namespace.run("sysctl", "-q", f"net.ipv4.conf.{what}.rp_filter=0")

    def up(self):
        until("all gateways serve", self.serves, LONG)
        self.relays = [Relay(self.folder / f"metrics-{number}.sock") for number in range(1, len(GATEWAYS) + 1)]

    def serves(self):
        for host in self.hosts.values():
            for what, process in host.processes.items():
                if process.poll() is not None:
                    fail(f"{what} of {host.name} has ended:\n{host.log(what)}")
        return all(map(self.metrics, range(1, len(GATEWAYS) + 1))) and set(self.states().values()) == {"serving"}

    def states(self):
        """What the spreader says of each gateway."""
        spreader = self.hosts["spreader"].namespace
        told = subprocess.run(spreader.command(self.quicket, "balance", "status", "-j"), env=self.environment, capture_output=True, text=True)
        if told.returncode:
            return {}
        report, = json.loads(told.stdout)
        return {server["name"]: server["state"] for server in report["servers"]}

    def metrics(self, number):
        """A gateway's counters, or nothing if it is down."""
        connection = http.client.HTTPConnection("localhost", timeout=5)
        with contextlib.suppress(OSError, ValueError):
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.settimeout(5)
            connection.sock.connect(str(self.folder / f"metrics-{number}.sock"))
            connection.request("GET", "/metrics")
            return connection.getresponse().read().decode()
        return ""

    def counter(self, number, name):
        """A counter without labels."""
        lines = (line.split(" ") for line in self.metrics(number).splitlines())
        return next((float(line[1]) for line in lines if line[0] == f"quicket_gateway_{name}"), None)

    def takes(self):
        """How many gateways take early data."""
        return sum(self.counter(number, "register_takes") == 1 for number in range(1, len(GATEWAYS) + 1))

    def complaints(self):
        """The last words of each program's log, for who wants to know why."""
        logs = sorted(self.folder.glob("*.log"))
        return "\n".join(f"{log.name}: {log.read_text()[-300:].strip()}" for log in logs if log.stat().st_size)

    def end(self):
        for relay in self.relays:
            relay.shutdown()
            relay.server_close()
        for host in self.hosts.values():
            for process in host.processes.values():
                process.kill()
                process.wait()
        for namespace in self.namespaces:
            namespace.remove()


class Clients:
    """Each comes back again and again with its session, and fetches a page; one more downloads all the while."""

    def __init__(self, site):
        self.site, self.over = site, threading.Event()
        self.lock, self.seen, self.failures = threading.Lock(), collections.Counter(), []
        self.downloads = 0
        self.pool = concurrent.futures.ThreadPoolExecutor(AT_ONCE + 1)
        self.running = [self.pool.submit(self.come_back, first) for first in range(AT_ONCE)]
        self.running.append(self.pool.submit(self.download))

    def get(self, path, out, *words):
        return subprocess.Popen(
            self.site.client.command(self.site.quicket, "get", f"https://{NAME}/{path}", "--connect", f"{self.site.address}:443", "--ca",
                                     "authority.pem", "--http3-only", "--json", "-o", str(out), *words),
            cwd=self.site.folder, env=self.site.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def fetch(self, client):
        """What became of a visit: `full`, or `resumed` with what became of early data, or `failed`."""
        with tempfile.TemporaryDirectory(dir=self.site.folder) as folder:
            out = pathlib.Path(folder) / "page"
            process = self.get("page", out, "--sessions", f"sessions-{client}", "--max-time", "20")
            told, errors = process.communicate(timeout=LONG)
            if process.returncode:
                return "failed", errors.strip()
            if hashlib.sha256(out.read_bytes()).hexdigest() != self.site.hashes["page"]:
                self.over.set()
                fail("a page has another content")
        connection = json.loads(told)["connections"][0]
        return (f"0-RTT {connection['early_data']}" if connection["resumed"] else "full"), ""

    def come_back(self, first):
        client = first
        while not self.over.is_set():
            begun = time.monotonic()
            outcome, why = self.fetch(client)
            with self.lock:
                self.seen[outcome] += 1
                if why:
                    self.failures.append((begun, why))
            client = first + (client - first + AT_ONCE) % CLIENTS

    def download(self):
        """The whole file again and again, slowly; what a gateway's death cuts off goes on where it was."""
        while not self.over.is_set():
            out = self.site.folder / f"large-{self.downloads}"
            process = self.get("large", out, "--no-sessions", "--limit-rate", "3M", "--retry", "20")
            while process.poll() is None:
                if self.over.wait(0.2):
                    process.kill()
                    process.communicate()
                    return
            if process.returncode:
                self.over.set()
                fail(f"a download: {process.stderr.read()}")
            if hashlib.sha256(out.read_bytes()).hexdigest() != self.site.hashes["large"]:
                self.over.set()
                fail("a download has another content")
            out.unlink()
            self.downloads += 1

    def watch(self, visits=3 * CLIENTS):
        """What becomes of so many visits from now on, and of each that failed, when it began and why."""
        with self.lock:
            before, failed = self.seen.copy(), len(self.failures)
        until("clients come", lambda: self.over.is_set() or self.seen.total() - before.total() >= visits + AT_ONCE, 4 * LONG)
        if self.over.is_set():
            self.end()
        with self.lock:
            return self.seen - before, self.failures[failed:]

    def end(self):
        self.over.set()
        for running in self.running:
            running.result(LONG)
        self.pool.shutdown()


class Show:
    def __init__(self, site, clients):
        self.site, self.clients, self.begun, self.pause = site, clients, time.monotonic(), 0

    def tell(self, what, noticed=0, visits=3 * CLIENTS):
        """What happened, and what became of clients since. Those that came before a gateway's death was `noticed` may have failed."""
        seen, failures = self.clients.watch(visits)
        counts = ", ".join(f"{count} {outcome.replace('_', ' ')}" for outcome, count in sorted(seen.items()))
        say(f"  {time.monotonic() - self.begun:4.0f} s  {what}\n          {counts}")
        lost = [why for begun, why in failures if begun > noticed]
        if lost:
            fail(f"{what}: {lost[0]}\n{self.site.complaints()}")
        time.sleep(self.pause)
        return seen

    def run(self, whole):
        hosts = self.site.hosts
        # Who looks at the pages wants to see it.
        self.pause = 5 if whole else 0
        self.tell("all is up; the site is young, and takes no early data for three minutes (docs/site.md)")

        self.site.run("switch", "secrets", "rotate", "secrets")
        for name in GATEWAYS:
            hosts[name].process("gateway").send_signal(signal.SIGHUP)
        seen = self.tell("the secrets were rotated, and all gateways have read their files again")
        assert seen["full"] <= AT_ONCE, f"sessions do not outlive a rotation: {seen}"

        hosts["keys"].kill("keyd")
        seen = self.tell("the key process was killed: who has a session does not notice")
        assert not seen["full"] and not seen["failed"], seen
        self.back("keys", "keyd", "Keys at")
        self.newcomer("the key process is back: a new client is served")

        hosts["gateway-2"].kill("gateway")
        until("the spreader has noticed", lambda: self.site.states().get("gateway-2") == "down", LONG)
        noticed = time.monotonic()
        self.tell("gateway 2 was killed; the spreader sends clients to the others", noticed)
        hosts["gateway-2"].start("gateway")
        until("gateway 2 serves", lambda: self.site.states().get("gateway-2") == "serving", LONG)
        self.tell("gateway 2 is back", noticed)
        if whole:
            self.early_data()

    def back(self, name, what, ready):
        """Starts a host's program anew, and waits for the word that it says when it can be asked."""
        host = self.site.hosts[name]
        said = host.log(what).count(ready)
        host.start(what)
        until(f"{what} is back", lambda: host.log(what).count(ready) > said, LONG)

    def newcomer(self, what):
        """A client without a session: its handshake takes a signature."""
        outcome, why = self.clients.fetch(f"new-{time.monotonic_ns()}")
        if outcome != "full":
            fail(f"{what}: {outcome} {why}\n{self.site.complaints()}")
        say(f"  {time.monotonic() - self.begun:4.0f} s  {what}")

    def grow_up(self, what):
        until_takes = time.monotonic() + YOUNG + LONG
        while self.site.takes() < len(GATEWAYS):
            if time.monotonic() > until_takes:
                fail(f"early data is not taken: {self.site.complaints()}")
            if sys.stderr.isatty():
                left = max(0, until_takes - LONG - time.monotonic())
                print(f"\r          {what}: {left:3.0f} s ", end="", file=sys.stderr, flush=True)
            self.clients.watch(1)
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    def early_data(self):
        hosts = self.site.hosts
        self.grow_up("until early data is taken")
        # A client's first visit from now on gets the ticket that the second one may use.
        self.clients.watch(2 * CLIENTS)
        seen = self.tell("the store is old enough: early data is taken at every gateway", visits=100)
        tried = seen.total() - seen["full"]
        assert seen["0-RTT accepted"] >= 0.97 * tried, f"of {tried} only {seen}"
        hosts["store"].kill("redis-server")
        self.clients.watch(AT_ONCE)
        seen = self.tell("the store was killed: sessions are resumed without early data")
        assert not seen["0-RTT accepted"], seen
        hosts["store"].start("redis-server")
        until("the gateways have found the store again", lambda: all(
            self.site.counter(number, "register_breaker") == 0 for number in range(1, len(GATEWAYS) + 1)), LONG)
        seen = self.tell("the store is back, and knows nothing: no early data for three minutes")
        assert not seen["0-RTT accepted"], seen
        self.grow_up("until early data is taken again")
        self.clients.watch(2 * CLIENTS)
        seen = self.tell("early data is taken again")
        assert seen["0-RTT accepted"], seen


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quicket", type=lambda path: str(pathlib.Path(path).resolve()), required=True, help="the program")
    parser.add_argument("--short", action="store_true", help="leave out what takes minutes, as a store gets old enough")
    parser.add_argument("--stay", action="store_true", help="leave the site up at the end, until Ctrl-C")
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        fail("network namespaces take root: sudo ./demo site")
    missing = [program for program in ("nginx", "redis-server", "openssl", "ip") if not shutil.which(program)]
    if missing:
        fail(f"{', '.join(missing)} missing: apt-get install nginx-light redis-server openssl iproute2")
    with tempfile.TemporaryDirectory(prefix="quicket-site-") as folder, contextlib.ExitStack() as stack:
        site = Site(arguments.quicket, pathlib.Path(folder))
        stack.callback(site.end)
        site.build()
        for name, relay in zip(GATEWAYS, site.relays):
            say(f"{name}: http://127.0.0.1:{relay.server_address[1]}/")
        clients = Clients(site)
        stack.callback(clients.over.set)
        Show(site, clients).run(not arguments.short)
        if arguments.stay:
            say("the site stays up: end with Ctrl-C")
            with contextlib.suppress(KeyboardInterrupt):
                while not clients.over.wait(1):
                    pass
        clients.end()
        say(f"{clients.seen.total()} visits of {CLIENTS} clients and {clients.downloads} downloads of {LARGE / 1e6:.0f} MB: every byte as the origin "
            f"has it, {clients.seen['failed']} failed")


if __name__ == "__main__":
    main()
