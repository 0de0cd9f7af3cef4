#!/usr/bin/env python3
"""How long full handshakes take over QUIC, by where the private key is: in the gateway, in a key process on this machine at a Unix socket,
in one over TCP, and in one that is 1 ms away. The last stands behind a relay that holds every byte back for half of that, both ways.
One client at a time, one handshake of each kind in turns: what is shown is the latency, and not how many there could be."""

import collections
import contextlib
import itertools
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
import environment  # noqa: E402, F401 (finds scripts/)
from authority import Authority  # noqa: E402
from gateway_site import LONG, end_as_a_failure, free_port, options, say, until  # noqa: E402

# How far away the far key process is, there and back, in seconds.
AWAY = 0.001
# For the end of that a thread does not sleep, which takes longer than it should, but looks at the clock.
LOOKS = 0.0002

SITE = """listen = ["127.0.0.1:{port}"]
[[certificate]]
chain = "site.pem"
key = {key}
[[site]]
names = ["localhost"]
[[site.route]]
respond = {{ body = "here" }}
"""
OVER_TCP = '{{ keyd = "tcp:127.0.0.1:{port}", client_chain = "gateway.pem", client_key = "gateway.key", ca = "authority.pem" }}'


class Relay:
    """A port in front of another one. What comes goes on half of the delay later, each way."""

    def __init__(self, target, delay=AWAY / 2):
        self.target, self.delay = target, delay
        # What went on so far, both ways.
        self.carried = itertools.count()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                near = self.listener.accept()[0]
                far = socket.create_connection(("127.0.0.1", self.target))
                for one, other in (near, far), (far, near):
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self.carry(one, other)

    def carry(self, source, target):
        waiting, comes = collections.deque(), threading.Semaphore(0)

        def read():
            data = b"-"
            while data:
                with contextlib.suppress(OSError):
                    data = b""
                    data = source.recv(65536)
                waiting.append((time.monotonic() + self.delay, data))
                comes.release()

        def write():
            while True:
                comes.acquire()
                when, data = waiting.popleft()
                while (left := when - time.monotonic()) > 0:
                    if left > LOOKS:
                        time.sleep(left - LOOKS)
                with contextlib.suppress(OSError):
                    if data:
                        next(self.carried)
                        target.sendall(data)
                        continue
                    target.shutdown(socket.SHUT_RDWR)
                return

        for work in read, write:
            threading.Thread(target=work, daemon=True).start()


class Bench:
    """A key process, gateways that ask it, and one with the key. They end with `stack`."""

    def __init__(self, stack, quicket, folder):
        self.quicket, self.folder, self.processes = quicket, folder, []
        stack.callback(self.end)
        self.environment = os.environ | {name: str(folder) for name in ("XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR")}
        authority = Authority(folder)
        authority.issue("site", "rsa:2048", "DNS:localhost", "serverAuth")
        authority.issue("keys", "ec", "IP:127.0.0.1", "serverAuth")
        authority.issue("gateway", "ec", "DNS:gateway", "clientAuth")
        port = free_port()
        self.keyd = self.start("keyd", "Keys at", "keyd", "--listen", f"unix:{folder}/keyd.sock", "--listen", f"tcp:127.0.0.1:{port}", "--key", "site.key",
                               "--cert", "keys.pem", "--cert-key", "keys.key", "--client-ca", "authority.pem")
        self.relay = Relay(port)
        keys = {"in the gateway": '"site.key"', "Unix socket": f'{{ keyd = "unix:{folder}/keyd.sock" }}', "TCP": OVER_TCP.format(port=port),
                "TCP, 1 ms away": OVER_TCP.format(port=self.relay.port)}
        self.gateways = {where: self.gateway(key) for where, key in keys.items()}

    def start(self, name, ready, *words):
        log = self.folder / f"{name}.log"
        with log.open("wb") as out:
            process = subprocess.Popen([self.quicket, *words], cwd=self.folder, env=self.environment, stdout=out, stderr=out)
        self.processes.append(process)

        def is_ready():
            if process.poll() is not None:
                raise SystemExit(f"failed: {name} has ended: {log.read_text()}")
            return ready in log.read_text()

        until(f"{name} is ready", is_ready)
        return process

    def gateway(self, key):
        port = free_port()
        (self.folder / f"{port}.toml").write_text(SITE.format(port=port, key=key))
        self.start(f"gateway-{port}", "Gateway on", "gateway", f"{port}.toml", "--workers", "1")
        return port

    def handshake(self, port):
        """A full handshake; how long it took, in seconds."""
        done = subprocess.run([self.quicket, "get", f"https://localhost:{port}/", "--connect", f"127.0.0.1:{port}", "--ca", "authority.pem",
                               "--http3-only", "--no-sessions", "--json", "-o", "/dev/null"], cwd=self.folder, env=self.environment,
                              capture_output=True, text=True, timeout=LONG)
        if done.returncode:
            raise SystemExit(f"failed: {done.stderr}")
        connection, = json.loads(done.stdout)["connections"]
        assert not connection["resumed"], connection
        return connection["handshake_seconds"]

    def signatures(self):
        told = subprocess.run([self.quicket, "keyd", "status", "--json"], env=self.environment, capture_output=True, text=True, check=True)
        mine, = (status for status in json.loads(told.stdout) if status["pid"] == self.keyd.pid)
        return mine["counters"]["signatures"]

    def measure(self, count):
        """So many handshakes of each kind, in turns."""
        for port in self.gateways.values():
            self.handshake(port)
        before, taken, carried = self.signatures(), {where: [] for where in self.gateways}, next(self.relay.carried)
        for _ in range(count):
            for where, port in self.gateways.items():
                taken[where].append(self.handshake(port))
        signed = self.signatures() - before
        assert signed == count * (len(self.gateways) - 1), f"the key process has made {signed} signatures"
        # Each signature is a question and its answer.
        assert next(self.relay.carried) - carried > 2 * count, "the relay was not on the way"
        return taken

    def way(self):
        """How long a byte takes through the relay and back, in seconds: the median."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            relay, taken = Relay(server.getsockname()[1]), []
            with socket.create_connection(("127.0.0.1", relay.port)) as near, server.accept()[0] as far:
                for _ in range(200):
                    begun = time.monotonic()
                    near.sendall(b"-")
                    far.sendall(far.recv(1))
                    near.recv(1)
                    taken.append(time.monotonic() - begun)
            relay.listener.close()
        return statistics.median(taken)

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()


def main():
    parser = options(__doc__)
    parser.add_argument("--count", type=int, default=1000, help="handshakes of each kind, at least 2 (default: %(default)s)")
    arguments = parser.parse_args()
    end_as_a_failure()
    with tempfile.TemporaryDirectory(prefix="quicket-keyd-") as folder, contextlib.ExitStack() as stack:
        bench = Bench(stack, arguments.quicket, pathlib.Path(folder))
        way = bench.way()
        assert way >= AWAY, way
        taken = bench.measure(arguments.count)
    say(f"{arguments.count} full handshakes of each kind, RSA-2048; the relay takes {way * 1000:.2f} ms there and back. In ms:")
    say(f"{'The key':16} {'50 %':>6} {'95 %':>6} {'99 %':>6}")
    for where, times in taken.items():
        points = statistics.quantiles(times, n=100, method="inclusive")
        say(f"{where:16} {points[49] * 1000:6.2f} {points[94] * 1000:6.2f} {points[98] * 1000:6.2f}")


if __name__ == "__main__":
    main()
