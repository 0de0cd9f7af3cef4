"""Clients between two networks: downloads that go on while addresses, devices and routes go and come.

usage: run.py --quicket PROGRAM --moving PROGRAM --c PROGRAM --fetch PROGRAM --python PROGRAM --scratch FOLDER [--only CASE]

Makes network namespaces and removes them. Needs root, iproute2 and openssl. PROGRAM for --moving is the example of that name
of the crate `quicket`, that for --c is client.c beside this file, that for --fetch c/examples/fetch.c, and that for --python
one with aioquic.
"""

import argparse
import contextlib
import hashlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
from namespaces import Namespace, inside, until  # noqa: E402

SERVER = "10.9.0.2"
PORT = 4433
SIZE = 64 << 20
# Of each network towards the client, so that downloads take some seconds.
RATE = "150mbit"
NETWORKS = {"wifi": ("10.1.0", 100), "phone": ("10.2.0", 200)}
ETH_P_IP = 0x0800
ETH_P_ALL = 0x0003
# How soon the download goes on after a change in the control, in seconds, and does not without the feature: less than the
# 2.8 s for which the client's timer lets it rest by then (`has_given_up`).
SOON = 2


class World:
    """A client with two networks, a router that drops what comes from the wrong one, and a server behind it."""

    def __init__(self, stack):
        """What is made is removed by the stack, also if the rest cannot be made."""
        def made(name):
            namespace = Namespace(f"moves-{name}")
            stack.callback(namespace.remove)
            return namespace
        self.client, self.router, self.server = (made(name) for name in ("client", "router", "server"))
        self.router.run("sysctl", "-q", "-w", "net.ipv4.ip_forward=1", "net.ipv4.conf.all.rp_filter=1")
        # A gateway is asked for its address of Ethernet from an address that it knows; otherwise it does not answer, and is
        # asked again after a second.
        self.client.run("sysctl", "-q", "-w", "net.ipv4.conf.all.arp_announce=2")
        for name, (prefix, _) in NETWORKS.items():
            self.client.ip("link", "add", name, "type", "veth", "peer", "name", name, "netns", self.router.name)
            self.router.ip("addr", "add", f"{prefix}.1/24", "dev", name)
            self.router.ip("link", "set", name, "up")
            self.router.run("tc", "qdisc", "add", "dev", name, "root", "tbf", "rate", RATE, "burst", "64k",
                            "latency", "20ms")
        self.router.ip("link", "add", "wire", "type", "veth", "peer", "name", "wire", "netns", self.server.name)
        for end, last in (self.router, "1"), (self.server, "2"):
            end.ip("addr", "add", f"10.9.0.{last}/24", "dev", "wire")
            end.ip("link", "set", "wire", "up")
        self.server.ip("route", "add", "default", "via", "10.9.0.1")

    def reset(self, *networks):
        for name in NETWORKS:
            self.down(name)
        for name in networks:
            self.up(name)
        until("the networks are there", lambda: all(self.is_there(name) for name in networks))

    def is_there(self, name):
        """True if the gateway answers: a device that is up takes packets only a moment later."""
        return self.client.run("ping", "-n", "-q", "-c", "1", "-W", "1", "-I", name, f"{NETWORKS[name][0]}.1", check=False)

    def down(self, name):
        """The device goes, its address, and its route."""
        self.client.ip("link", "set", name, "down")
        self.client.ip("addr", "flush", "dev", name)

    def up(self, name):
        prefix, metric = NETWORKS[name]
        self.client.ip("addr", "replace", f"{prefix}.2/24", "dev", name)
        self.client.ip("link", "set", name, "up")
        self.route(name)

    def route(self, name):
        prefix, metric = NETWORKS[name]
        self.client.ip("route", "add", "default", "via", f"{prefix}.1", "dev", name, "metric", str(metric))

    def rules(self, prefix):
        """What the router drops of a network: all between the client and the server, without the client's being told."""
        return ["from", f"{prefix}.2", "to", SERVER, "blackhole"], ["from", SERVER, "to", f"{prefix}.2", "blackhole"]

    @contextlib.contextmanager
    def silent(self, name):
        """Nothing gets through by one network, which looks as before."""
        rules = self.rules(NETWORKS[name][0])
        for rule in rules:
            self.router.ip("rule", "add", *rule)
        try:
            yield
        finally:
            for rule in rules:
                self.router.ip("rule", "del", *rule)


class Sniffer:
    """When packets from or to the server went by one of the client's devices."""

    def __init__(self, world, device):
        with inside(world.client.name):
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL))
            self.socket.bind((device, ETH_P_ALL))
        self.socket.settimeout(0.2)
        self.received, self.sent, self.over = [], [], False
        self.thread = threading.Thread(target=self.listen)
        self.thread.start()

    def listen(self):
        while not self.over:
            try:
                packet, (_, protocol, kind, _, _) = self.socket.recvfrom(65536)
            except (TimeoutError, OSError):
                # A device that goes down says so.
                continue
            if protocol != ETH_P_IP:
                continue
            source, destination = (socket.inet_ntoa(packet[at:at + 4]) for at in (12, 16))
            # More than an answer to a probe: the rest of a download.
            if kind == socket.PACKET_HOST and source == SERVER and len(packet) > 600:
                self.received.append(time.monotonic())
            if kind == socket.PACKET_OUTGOING and destination == SERVER:
                self.sent.append(time.monotonic())

    def first(self, after):
        """How long after a time something came first, in seconds; none if nothing did."""
        return next((time - after for time in list(self.received) if time > after), None)

    def close(self):
        self.over = True
        self.thread.join()
        self.socket.close()


@contextlib.contextmanager
def sniffing(world, device):
    sniffer = Sniffer(world, device)
    try:
        yield sniffer
    finally:
        sniffer.close()


def has_given_up(sniffer, begun):
    """True if a client to which nothing gets through has sent a probe just now that came 1.5 s or more after the one before,
    or nothing for six seconds: by itself it sends nothing for twice as long (RFC 9002, Section 6.2.1)."""
    now, probes = time.monotonic(), [begun]
    for sent in list(sniffer.sent):
        if sent - probes[-1] > 0.1:
            probes.append(sent)
    return now - probes[-1] > 6 or (now - probes[-1] < 0.2 and len(probes) > 2 and probes[-1] - probes[-2] >= 1.5)


class Serve:
    """`quicket serve`, and what it says of connections that have ended."""

    def __init__(self, world, quicket, scratch):
        self.folder = scratch / "served"
        self.folder.mkdir(exist_ok=True)
        data = os.urandom(1 << 20) * (SIZE >> 20)
        (self.folder / "large").write_bytes(data)
        self.hash = hashlib.sha256(data).hexdigest()
        command = world.server.command(str(quicket), "serve", str(self.folder), "--listen", f"{SERVER}:{PORT}",
                                       "--json")
        self.process = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        listening = json.loads(self.process.stdout.readline())
        self.pin = listening["pin"]
        self.ended = []
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.process.stdout:
            event = json.loads(line)
            if event["event"] == "closed":
                self.ended.append(event)

    def close(self):
        self.process.terminate()
        self.process.wait()


class Get:
    """A download by `quicket get`."""

    def __init__(self, world, quicket, serve, scratch, *words):
        self.file = scratch / "fetched"
        # Also what a download has left that did not come to its end.
        for path in scratch.glob("fetched*"):
            path.unlink()
        self.part = scratch
        serve.ended.clear()
        self.serve = serve
        command = world.client.command(
            str(quicket), "get", "--json", "--http3-only", "--no-sessions", "--pin", serve.pin, "--sha256", serve.hash,
            "-o", str(self.file), *words, f"https://{SERVER}:{PORT}/large")
        said = {**os.environ, "RUST_LOG": "warn,quicket::core::network=debug"}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, text=True, stdout=pipe, stderr=pipe, env=said)
        self.errors = None

    def size(self):
        """How much of the file is there."""
        return max((path.stat().st_size for path in self.part.glob("fetched*")), default=0)

    def under_way(self):
        until("the download is under way", lambda: self.size() > SIZE // 16)
        assert self.process.poll() is None, "it is over already"

    def end(self, seconds=60):
        """Its report, after it has ended well."""
        out, self.errors = self.process.communicate(timeout=seconds)
        assert self.process.returncode == 0, f"{self.errors}\n{out}"
        report = json.loads(out)
        ended = until("the server has seen the end", lambda: self.serve.ended)
        assert len(ended) == 1 and len(report["connections"]) == 1, (ended, report, self.errors)
        return report["connections"][0], ended[0]


def went_on(case, sniffer, device, changed, seconds=None):
    """How long it took until the download went on by a device, in words. It must not be longer than so many seconds, if
    they are given: elsewhere the time is the machine's affair, too."""
    waited = sniffer.first(changed)
    assert waited is not None, f"{case}: nothing came by {device}"
    assert seconds is None or waited < seconds, f"{case}: {waited} s until something came by {device}"
    return f"data after {waited * 1000:.0f} ms"


def follows(case, expect, before, change, world, quicket, serve, scratch, device):
    """A download during which `change` happens; the server sees one connection, which moves `expect` times."""
    world.reset(*before)
    get = Get(world, quicket, serve, scratch)
    get.under_way()
    with sniffing(world, device) as sniffer:
        begun = time.monotonic()
        changed = change() or begun
        client, server = get.end()
    assert server["path_changes"] in expect, f"{case}: {server}\n{get.errors}"
    print(f"moves: {case}: moved {server['path_changes']} times (client: {client['path_changes']}), "
          f"{went_on(case, sniffer, device, changed)}, one connection", flush=True)


def cases(world, quicket, serve, scratch):
    wifi_gone = lambda: world.client.ip("addr", "del", "10.1.0.2/24", "dev", "wifi")  # noqa: E731
    wifi_down = lambda: world.client.ip("link", "set", "wifi", "down")  # noqa: E731
    wifi_routeless = lambda: world.client.ip("route", "del", "default", "dev", "wifi")  # noqa: E731

    def routeless_for_6_s():
        wifi_routeless()
        time.sleep(6)
        back = time.monotonic()
        world.route("wifi")
        return back

    def gap(name, seconds=3):
        def change():
            world.down("wifi")
            time.sleep(seconds)
            back = time.monotonic()
            world.up(name)
            return back
        return change

    def flapping():
        for number in range(10):
            world.down("wifi" if number % 2 == 0 else "phone")
            world.up("phone" if number % 2 == 0 else "wifi")
            time.sleep(0.15)

    both = ("wifi", "phone")
    all_cases = {
        "the address goes": (both, wifi_gone, {1}, "phone"),
        "the device goes down": (both, wifi_down, {1}, "phone"),
        "the default route goes": (both, wifi_routeless, {1}, "phone"),
        "the only default route goes for 6 s": (("wifi",), routeless_for_6_s, {1}, "wifi"),
        "a better network comes": (("phone",), lambda: world.up("wifi"), {1}, "wifi"),
        "no network for 3 s, then another": (("wifi",), gap("phone"), {1}, "phone"),
        "no network for 3 s, then the same": (("wifi",), gap("wifi"), {1}, "wifi"),
        "ten changes in two seconds": (("wifi",), flapping, set(range(1, 13)), "phone"),
    }
    for case, (before, change, expect, device) in all_cases.items():
        yield case, lambda case=case, before=before, change=change, expect=expect, device=device: follows(
            case, expect, before, change, world, quicket, serve, scratch, device)
    yield "handshake", lambda: handshake(world, quicket, serve, scratch, wifi_gone)


def control(world, quicket, serve, scratch):
    """The address goes of a network that has let nothing through for a while. A client that follows goes on at once; without
    the feature, neither side sends anything that the other gets before a timeout that has doubled again and again."""
    for words in [], ["--stay"]:
        world.reset("wifi", "phone")
        get = Get(world, quicket, serve, scratch, *words)
        get.under_way()
        with sniffing(world, "phone") as phone, world.silent("wifi"):
            with sniffing(world, "wifi") as wifi:
                begun = time.monotonic()
                until("the client waits", lambda: has_given_up(wifi, begun))
            changed = time.monotonic()
            world.client.ip("addr", "del", "10.1.0.2/24", "dev", "wifi")
            if words:
                time.sleep(SOON)
                assert phone.first(changed) is None and get.process.poll() is None, "it went on without the feature"
                get.process.terminate()
                get.process.wait()
                print(f"moves: control: nothing came for {SOON} s with --stay", flush=True)
            else:
                get.end()
                print(f"moves: control: {went_on('control', phone, 'phone', changed, SOON)}", flush=True)


def handshake(world, quicket, serve, scratch, change):
    """The address goes before the server has heard of the client."""
    world.reset("wifi", "phone")
    with sniffing(world, "phone") as phone, world.silent("wifi"), sniffing(world, "wifi") as wifi:
        get = Get(world, quicket, serve, scratch)
        until("the client asks for a connection", lambda: wifi.sent)
        changed = time.monotonic()
        change()
        get.end()
    print(f"moves: the address goes during the handshake: {went_on('handshake', phone, 'phone', changed)}", flush=True)


class Moving:
    """The example: a server that forbids moves if it is to, and clients by all APIs."""

    def __init__(self, world, program, c, kind):
        self.world, self.program, self.c = world, program, c
        self.process = subprocess.Popen(world.server.command(str(program), kind, f"{SERVER}:{PORT + 1}"), text=True,
                                        stdout=subprocess.PIPE)
        ready, self.pin = self.process.stdout.readline().split()
        assert ready == "ready"

    def client(self, kind):
        words = [str(self.program), kind, f"{SERVER}:{PORT + 1}"] if kind != "c" else \
            [str(self.c), SERVER, str(PORT + 1), self.pin]
        command = self.world.client.command(*words, str(SIZE >> 20))
        pipe = subprocess.PIPE
        return subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe, stderr=pipe)

    def end(self, client):
        """What a client says at its end, and how often it moved, as the server has it."""
        out, errors = client.communicate(timeout=60)
        assert client.returncode == 0, errors
        moves = int(self.process.stdout.readline().split()[1])
        # Nothing, where all has been read before.
        return out[:-1].rpartition("\n")[2], moves

    def under_way(self, kind):
        client = self.client(kind)
        for word in "connected", "under way":
            assert client.stdout.readline() == f"{word}\n", client.stderr.read()
        return client

    def fetch(self, kind, change):
        client = self.under_way(kind)
        change()
        return self.end(client)

    def close(self):
        self.process.terminate()
        self.process.wait()


def apis(world, program, c):
    server = Moving(world, program, c, "serve")
    for kind in "blocking", "tokio", "c":
        world.reset("wifi", "phone")
        out, moves = server.fetch(kind, lambda: world.down("wifi"))
        assert moves == 1, (kind, out, moves)
        print(f"moves: {kind}: {out}", flush=True)
    for kind in "blocking", "tokio", "c":
        world.reset("wifi", "phone")
        with world.silent("wifi"), sniffing(world, "wifi") as wifi:
            client = server.client(kind)
            until("the client asks for a connection", lambda: wifi.sent)
            world.down("wifi")
            if kind == "c":
                _, errors = client.communicate(timeout=60)
                assert client.returncode == 1 and "address has changed during the handshake" in errors, errors
                continue
            out, moves = server.end(client)
        # The attempt has begun again.
        assert moves == 0, (kind, out, moves)
        print(f"moves: {kind}, during the handshake: {out}", flush=True)
    server.close()


class Stranger:
    """A server of HTTP/3 that we did not write, in the server's namespace."""

    def __init__(self, world, python, scratch):
        key, certificate, self.large = (scratch / name for name in ("http3.key", "http3.pem", "http3.large"))
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                        "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-addext",
                        "basicConstraints=critical,CA:FALSE", "-keyout", key, "-out", certificate], check=True, stderr=subprocess.DEVNULL)
        der = subprocess.run(["openssl", "x509", "-in", certificate, "-outform", "der"], check=True, stdout=subprocess.PIPE).stdout
        self.pin = hashlib.sha256(der).hexdigest()
        self.large.write_bytes(os.urandom(1 << 20) * 24)
        script = pathlib.Path(__file__).with_name("http3.py")
        command = [python, script, SERVER, PORT + 2, certificate, key, self.large]
        self.process = subprocess.Popen(world.server.command(*map(str, command)), text=True, stdout=subprocess.PIPE)
        assert self.process.stdout.readline() == "ready\n"

    def ended(self):
        """What it says of the next connection that has ended."""
        return dict(word.split("=") for word in self.process.stdout.readline().split()[1:])

    def close(self):
        self.process.terminate()
        self.process.wait()


def kit(world, fetch, python, scratch):
    """The client kit in C, and aioquic: a download that moves, early data by a stored session, a body and trailers."""
    stranger = Stranger(world, python, scratch)
    fetched, sessions = scratch / "kit.fetched", scratch / "kit.sessions"
    for file in sessions.glob("**/*.session*"):
        file.unlink()
    words = [fetch, "--pin", stranger.pin, "--host", f"localhost={SERVER}", "--sessions", sessions, "--info", "-i", "-m", "60"]

    def start(*more):
        command = world.client.command(*map(str, words), *map(str, more))
        pipe = subprocess.PIPE
        return subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe, stderr=pipe)

    def end(client, said=None):
        out, errors = client.communicate(said, timeout=90)
        assert client.returncode == 0, errors
        return out, errors

    url = f"https://localhost:{PORT + 2}"
    world.reset("wifi", "phone")
    fetched.unlink(missing_ok=True)
    client = start("-o", fetched, f"{url}/large")
    until("the download is under way", lambda: fetched.exists() and fetched.stat().st_size > stranger.large.stat().st_size // 16)
    with sniffing(world, "phone") as phone:
        changed = time.monotonic()
        world.down("wifi")
        _, errors = end(client)
    assert fetched.read_bytes() == stranger.large.read_bytes(), "it is not the same"
    server = stranger.ended()
    assert "moves: 1\n" in errors and "early data: none" in errors and server["addresses"] == "2", (errors, server)
    print(f"moves: kit: {went_on('kit', phone, 'phone', changed)}, one connection to aioquic", flush=True)
    out, errors = end(start("-T", "-", f"{url}/echo"), "a body of its own")
    assert out == "a body of its own" and "length: 17\n" in errors and "server: aioquic\n" in errors, (out, errors)
    # What has a body waits for the handshake; what has none does not.
    assert "early data: none" in errors and stranger.ended()["early"] == "no", errors
    _, errors = end(start(f"{url}/echo"))
    server = stranger.ended()
    assert "early data: accepted" in errors and server["early"] == "yes" and server["code"] == "0x100", (errors, server)
    stranger.close()
    print("moves: kit: a body and trailers, and early data by a session of another process", flush=True)


def listening(world, program, c):
    """A connection of a listener's socket moves, and the listener is found where it was."""
    server = Moving(world, program, c, "serve")
    world.reset("phone")
    client = server.under_way("listening")
    world.up("wifi")
    received, place = client.stdout.readline(), client.stdout.readline()
    assert place == "at 0.0.0.0:4435\n", client.stderr.read()
    sockets = [line.split()[3] for line in world.client.run("ss", "-Huan").splitlines()]
    assert "0.0.0.0:4435" in sockets and not [it for it in sockets if "%" in it], sockets
    _, moves = server.end(client)
    assert moves == 1, (received, moves)
    server.close()
    print(f"moves: beside a listener: {received.strip()}", flush=True)


def marked(world, program, c):
    """Packets with a mark have a table of routes of their own. Another network is better there, but lets nothing through: the
    connection stays where it is, as its network still leads to the server by that table, and by no other one."""
    table, mark = "100", ("fwmark", "7", "lookup", "100")
    server = Moving(world, program, c, "serve")
    world.reset("phone")
    add = lambda name, metric: world.client.ip(  # noqa: E731
        "route", "add", "default", "via", f"{NETWORKS[name][0]}.1", "dev", name, "metric", metric, "table", table)
    world.client.ip("rule", "add", *mark)
    add("phone", "200")
    world.client.ip("route", "del", "default", "dev", "phone")
    with world.silent("wifi"), sniffing(world, "wifi") as wifi:
        client = server.under_way("marked")
        world.up("wifi")
        add("wifi", "100")
        out, moves = server.end(client)
    world.client.ip("rule", "del", *mark)
    assert moves == 0 and wifi.sent, (out, moves, wifi.sent)
    server.close()
    print(f"moves: with a mark, and a better network comes that leads nowhere: {out}", flush=True)


def forbidden(world, program, c):
    """A server that forbids moves: the connection stays while it can, and goes on from elsewhere when it must."""
    server = Moving(world, program, c, "serve-fixed")
    changes = {
        "the address goes": lambda: world.down("wifi"),
        "the default route goes": lambda: world.client.ip("route", "del", "default", "dev", "wifi"),
    }
    for what, change in changes.items():
        world.reset("wifi", "phone")
        out, moves = server.fetch("blocking", change)
        assert moves == 1, (what, out, moves)
        print(f"moves: forbidden, and {what}: {out}", flush=True)
    world.reset("phone")
    out, moves = server.fetch("tokio", lambda: world.up("wifi"))
    assert moves == 0, (out, moves)
    print(f"moves: forbidden, and a better network comes: {out}", flush=True)
    server.close()


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--quicket", required=True, type=pathlib.Path)
    parser.add_argument("--moving", required=True, type=pathlib.Path)
    parser.add_argument("--c", required=True, type=pathlib.Path)
    parser.add_argument("--fetch", required=True, type=pathlib.Path)
    parser.add_argument("--python", required=True, type=pathlib.Path)
    parser.add_argument("--scratch", required=True, type=pathlib.Path)
    parser.add_argument("--only")
    arguments = parser.parse_args()
    arguments.scratch.mkdir(parents=True, exist_ok=True)
    quicket, program, c = (path.resolve() for path in (arguments.quicket, arguments.moving, arguments.c))
    scratch = arguments.scratch.resolve()
    with contextlib.ExitStack() as stack:
        world = World(stack)
        serve = Serve(world, quicket, scratch)
        stack.callback(serve.close)
        tests = dict(cases(world, quicket, serve, scratch))
        tests["apis"] = lambda: apis(world, program, c)
        # Not resolved: the program of an environment is a link.
        tests["kit"] = lambda: kit(world, arguments.fetch.resolve(), arguments.python.absolute(), scratch)
        tests["forbidden"] = lambda: forbidden(world, program, c)
        tests["marked"] = lambda: marked(world, program, c)
        tests["listening"] = lambda: listening(world, program, c)
        # The last: the server does not know yet that the client has gone.
        tests["control"] = lambda: control(world, quicket, serve, scratch)
        for name, test in tests.items():
            if arguments.only in (None, name):
                test()
    print("moves: all is well", flush=True)


if __name__ == "__main__":
    main()
