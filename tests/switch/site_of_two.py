"""Two programs at one address, and clients that stay connected."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
from upgrades import free_port, lines, until  # noqa: E402

CONNECTIONS = 200
# The names of the two programs for their clients. The second has all names that no other has.
CUSTOMERS, VICTIM = "localhost", "127.0.0.1"


class Crowd:
    """Connections that ask every second."""

    def __init__(self, quicket, address, pin, name=CUSTOMERS):
        self.counts = {}
        self.process = subprocess.Popen(
            [quicket, "lab", "hold", "--pin", pin, "--server-name", name, "--connections", str(CONNECTIONS), "--ports", "20", "--every", "1s", address,
             "who"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        lines(self.process.stdout, lambda line: setattr(self, "counts", json.loads(line)))
        until("all connections are there", lambda: self.open() == CONNECTIONS)

    def open(self):
        return sum(self.counts.get("open", {}).values())

    def whole(self, when):
        """None has lost its connection, waits for an answer, or got another's."""
        seen = self.counts["answers"]
        until(f"{when}: answers go on", lambda: self.counts["answers"] > seen + CONNECTIONS)
        counts = self.counts
        assert self.open() == CONNECTIONS, f"{when}: {counts}"
        assert not counts["silent"] and not counts["refused"] and not counts["strayed"] and not counts["reasons"], f"{when}: {counts}"

    def end(self):
        self.process.kill()
        self.process.wait()


class Site:
    """Two programs at one address: one for all names, which is attacked, and `localhost`, which has customers."""

    def __init__(self, quicket, folder, crowd=True):
        self.quicket, self.folder = quicket, folder
        self.environment = os.environ | {"QUICKET_SWITCH": str(folder / "switch")}
        self.address = f"127.0.0.1:{free_port()}"
        self.servers, self.pins = {}, {}
        for name, words in (CUSTOMERS, ["--server-name", CUSTOMERS]), (VICTIM, []):
            root = folder / name
            root.mkdir()
            (root / "who").write_text(f"{name}\n")
            self.start(name, words)
        self.crowd = Crowd(quicket, self.address, self.pins[CUSTOMERS]) if crowd else None

    def start(self, name, words):
        """A program, which ends with this one."""
        server = subprocess.Popen(
            [self.quicket, "serve", self.folder / name, "--listen", self.address, "--switch", *words, "--drain", "86400",
             "--json", "--quiet"], env=self.environment, stdout=subprocess.PIPE, text=True)
        self.servers.setdefault(name, server)
        listening = next((event for event in map(json.loads, server.stdout) if event["event"] == "listening"), None)
        assert listening, f"{name} does not listen"
        lines(server.stdout)
        self.pins[name] = listening["pin"]

    def host(self):
        host, port = self.address.rsplit(":", 1)
        return host, int(port)

    def switch(self, *words):
        told = subprocess.run([self.quicket, "switch", *words], env=self.environment, check=True, capture_output=True, text=True)
        return told.stdout

    def status(self):
        return json.loads(self.switch("status", "--json"))

    def programs(self):
        return [program for address in self.status()["addresses"] for program in address["programs"]]

    def pids(self):
        return [self.status()["pid"], *(server.pid for server in self.servers.values())]

    def memory(self):
        """What the largest of the processes has, in bytes."""
        def resident(pid):
            status = pathlib.Path(f"/proc/{pid}/status").read_text()
            return int(status.split("VmRSS:")[1].split()[0]) << 10
        return max(map(resident, self.pids()))

    def get(self, name):
        """A new connection; how long it took in seconds."""
        begun = time.monotonic()
        port = self.address.rsplit(":", 1)[1]
        got = subprocess.run([self.quicket, "get", "--quiet", "-4", "--pin", self.pins[name], "--output", "-",
                              f"https://{name}:{port}/who"], capture_output=True, text=True)
        assert got.returncode == 0 and got.stdout == f"{name}\n", f"{name}: {got.stdout} {got.stderr}"
        return time.monotonic() - begun

    def end(self):
        pids = {server.pid for server in self.servers.values()}
        try:
            pids |= {self.status()["pid"], *(program["pid"] for program in self.programs())}
        except (subprocess.CalledProcessError, KeyError):
            pass
        if self.crowd:
            self.crowd.end()
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for server in self.servers.values():
            server.wait()
