"""A site in network namespaces: a client, two balancers, three servers, all at one bridge."""

import ctypes
import fcntl
import itertools
import json
import os
import pathlib
import selectors
import signal
import socket
import struct
import subprocess
import threading

from networks import Namespace, until

ADDRESS, PORT = "192.0.2.1", 4433
SERVERS = {"east": 1, "west": 2, "north": 3}
BALANCERS = (8, 9)
CLIENT = 100
CONFIGURATION = "config {0} server-id 4 nonce {1} key {2}\n"


def whole_checksums(namespace, device):
    """Has packets leave with their checksums, as from any other machine: the peer of a virtual device gets them open."""
    class Request(ctypes.Structure):
        _fields_ = [("name", ctypes.c_char * 16), ("data", ctypes.c_void_p)]
    siocethtool, set_transmit_checksums = 0x8946, 0x17
    value = ctypes.create_string_buffer(struct.pack("II", set_transmit_checksums, 0))
    request = Request(device.encode(), ctypes.addressof(value))
    with namespace.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, siocethtool, request)


class Server:
    """`quicket serve` behind `quicket tunnel`, with the address of the site on its loopback device."""

    def __init__(self, site, name):
        self.site, self.name, number = site, name, SERVERS[name]
        self.namespace = site.attach(f"s{number}", number)
        self.namespace.ip("addr", "add", f"{ADDRESS}/32", "dev", "lo")
        folder = site.scratch / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "who").write_text(name)
        (folder / "large").write_bytes(site.large)
        tunnels = site.scratch / f"{name}.tunnels"
        tunnels.write_text("".join(
            f"add from{lb} type ipip remote 10.0.0.{lb} local 10.0.0.{number} encap gue\n" for lb in BALANCERS))
        self.tunnel = site.start(self.namespace, "tunnel", "run", str(tunnels), ready=len(BALANCERS))
        for lb in BALANCERS:
            self.namespace.ip("link", "set", f"from{lb}", "up")
            self.namespace.run("sysctl", "-q", f"net.ipv4.conf.from{lb}.rp_filter=0")
        reports = [word for lb in BALANCERS for word in ("--report-to", f"10.0.0.{lb}:6081")]
        self.process = site.start(
            self.namespace, "serve", str(folder), "--json", "-l", f"{ADDRESS}:{PORT}", "--connection-ids", str(site.ids),
            "--server-id", f"{number:08x}", "--max-udp-payload", "1440", *reports, ready=0)
        self.events = []
        first = self.process.stdout.readline()
        if not first:
            raise SystemExit(f"{name}: {self.process.stderr.read()}")
        self.pin = json.loads(first)["pin"]
        threading.Thread(target=self.listen, daemon=True).start()
        site.drain(self.process)

    def listen(self):
        for line in self.process.stdout:
            self.events.append(json.loads(line))

    def read_again(self):
        before = len(self.events)
        self.process.send_signal(signal.SIGHUP)
        until(f"{self.name} reads again", lambda: [e for e in self.events[before:] if "read_again" in e["event"]])
        event, = [e for e in self.events[before:] if "read_again" in e["event"]]
        assert event["event"] == "read_again", event


class Balancer:
    def __init__(self, site, number):
        self.site, self.number = site, number
        self.namespace = site.attach(f"lb{number}", number)
        self.namespace.ip("addr", "add", f"{ADDRESS}/32", "dev", "lo")
        self.namespace.run("sysctl", "-q", "net.ipv4.conf.eth0.forwarding=1")
        self.file = site.scratch / f"balance{number}"
        self.write()
        self.process = site.start(self.namespace, "balance", "--config", str(self.file))

    def write(self, **words):
        """The file, with words for some servers."""
        lines = [f"listen {ADDRESS}:{PORT}", f"connection-ids {self.site.ids}", "hash-key 0011223344556677",
                 f"reports 10.0.0.{self.number}:6081 timeout 2", "workers 2"]
        if self.number == BALANCERS[1]:
            lines.append("xdp eth0 generic")
        lines += [f"server {name} 10.0.0.{number} id {number:08x} report {words.get(name, '')}"
                  for name, number in SERVERS.items()]
        self.file.write_text("\n".join(lines) + "\n")

    def read_again(self, good=True):
        before = self.status()["files_taken_up"]
        self.process.send_signal(signal.SIGHUP)
        if good:
            until("the files are taken up", lambda: self.status()["files_taken_up"] > before)

    def status(self):
        report, = json.loads(self.namespace.run(*self.site.quicket, "balance", "status", "-j"))
        return report

    def states(self):
        return {server["name"]: server["state"] for server in self.status()["servers"]}

    def wait_for(self, **states):
        until(f"balancer {self.number} says {states}, and {self.states()} is so",
              lambda: states.items() <= self.states().items())

    def counter(self, name):
        return self.status()["counters"][name]


class Site:
    def __init__(self, quicket, scratch):
        self.quicket, self.scratch = quicket, pathlib.Path(scratch)
        self.scratch.mkdir(parents=True, exist_ok=True)
        self.namespaces, self.processes, self.relays = [], [], []
        # None that the system gives by itself.
        self.ports = itertools.count(21_000)
        self.large = os.urandom(3 << 20)
        self.ids = self.scratch / "site"
        self.key = os.urandom(32).hex()
        self.write_ids("issue 0\n", (0, 12))

    def __enter__(self):
        try:
            return self.build()
        except BaseException:
            # Nobody else takes away what there is of it.
            self.__exit__()
            raise

    def build(self):
        self.net = Namespace("net")
        self.namespaces.append(self.net)
        self.net.ip("link", "add", "bridge", "type", "bridge")
        self.net.ip("link", "set", "bridge", "up")
        self.client = self.attach("client", CLIENT)
        whole_checksums(self.client, "eth0")
        self.balancers = {number: Balancer(self, number) for number in BALANCERS}
        self.servers = {name: Server(self, name) for name in SERVERS}
        self.pin = self.servers["east"].pin
        assert all(server.pin == self.pin for server in self.servers.values())
        self.route(BALANCERS[0])
        for balancer in self.balancers.values():
            balancer.wait_for(**dict.fromkeys(SERVERS, "serving"))
        return self

    def __exit__(self, *_):
        for relay in self.relays:
            relay.close()
        for process in self.processes:
            process.kill()
            process.wait()
        for namespace in self.namespaces:
            namespace.remove()

    def write_ids(self, more, *configurations):
        lines = [CONFIGURATION.format(n, nonce, f"{n + 1:02x}" * 16) for n, nonce in configurations]
        self.ids.write_text("".join(lines) + more + f"report-key {self.key}\n")

    def attach(self, name, number):
        namespace = Namespace(name)
        self.namespaces.append(namespace)
        self.net.ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", namespace.name)
        self.net.ip("link", "set", name, "master", "bridge", "up")
        namespace.ip("addr", "add", f"10.0.0.{number}/24", "dev", "eth0")
        namespace.ip("link", "set", "eth0", "up")
        return namespace

    def route(self, balancer):
        """All that the client sends goes by this balancer from now on."""
        self.client.ip("route", "replace", f"{ADDRESS}/32", "via", f"10.0.0.{balancer}")

    def start(self, namespace, *words, ready=1):
        """A program of ours; `ready` of its lines say that it is ready."""
        data = self.scratch / "data"
        process = subprocess.Popen(namespace.command(*self.quicket, *words), text=True, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, env={**os.environ, "XDG_DATA_HOME": str(data)})
        self.processes.append(process)
        for _ in range(ready):
            line = process.stderr.readline()
            if line.startswith("quicket: the kernel forwards"):
                line = process.stderr.readline()
            if "ready" not in line:
                raise SystemExit(f"{words}: {line}{process.stderr.read()}")
        if ready:
            self.drain(process)
        return process

    def drain(self, process):
        """Reads what a program says from now on: it would wait, once nobody does."""
        process.errors = []
        threading.Thread(target=lambda: process.errors.extend(process.stderr), daemon=True).start()

    def get(self, name, at=f"{ADDRESS}:{PORT}"):
        """Begins to fetch a file."""
        return subprocess.Popen(self.client.command(*self.quicket, "get", "-q", "--pin", self.pin, "-o", "-",
                                                    f"https://{at}/{name}"),
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                env={**os.environ, "XDG_STATE_HOME": str(self.scratch / "state")})

    def fetch(self, name, at=f"{ADDRESS}:{PORT}"):
        process = self.get(name, at)
        out, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors.decode()
        return out

    def who(self, port=None):
        """The server that a new connection reaches, from a port of the client's: one that nothing came from before, if none
        is named. A balancer takes what comes from a known port where it went in the last two minutes, to a server that drains, too."""
        with Relay(self, port or next(self.ports)) as relay:
            return self.fetch("who", relay.address).decode()


class Relay:
    """A NAT in the namespace of the client: it has one flow, whose port can change, and can stop for a while."""

    def __init__(self, site, port=None):
        self.site = site
        site.relays.append(self)
        self.inside = site.client.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.inside.bind(("127.0.0.1", 0))
        self.address = "127.0.0.1:{}".format(self.inside.getsockname()[1])
        self.port, self.outside, self.client = port, None, None
        self.passed, self.stop_at, self.rebind_every, self.rebindings = 0, None, None, 0
        self.go, self.ended, self.stopped = threading.Event(), False, threading.Event()
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.inside, selectors.EVENT_READ)
        self.rebind()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.ended = True
        self.go.set()
        self.thread.join()
        self.inside.close()
        self.outside.close()

    def rebind(self):
        new = self.site.client.socket(socket.AF_INET, socket.SOCK_DGRAM)
        new.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        new.bind(("10.0.0.%d" % CLIENT, self.port or 0))
        # Answers come from the address of the site, by another way than requests went.
        new.connect((ADDRESS, PORT))
        if self.outside:
            self.selector.unregister(self.outside)
            self.outside.close()
            self.rebindings += 1
        self.outside = new
        self.selector.register(new, selectors.EVENT_READ)

    def run(self):
        while not self.ended:
            for key, _ in self.selector.select(0.1):
                try:
                    if key.fileobj is self.inside:
                        data, self.client = self.inside.recvfrom(65536)
                        self.outside.send(data)
                    elif key.fileobj is self.outside:
                        self.inside.sendto(self.outside.recv(65536), self.client)
                except OSError:
                    continue
                self.passed += 1
                if self.rebind_every and self.passed % self.rebind_every == 0:
                    self.rebind()
                if self.stop_at is not None and self.passed >= self.stop_at:
                    self.stop_at = None
                    self.stopped.set()
                    self.go.wait(60)
