"""Two programs at one address, and clients that stay connected."""

import pathlib
import subprocess
import sys
import time

sys.dont_write_bytecode = True
from common import Crowd, Switch, free_port  # noqa: E402

CONNECTIONS = 200
# The names of the two programs for their clients. The second has all names that no other has.
CUSTOMERS, VICTIM = "localhost", "127.0.0.1"


class Site:
    """Two programs at one address: one for all names, which is attacked, and `localhost`, which has customers."""

    def __init__(self, quicket, folder, asks_every=1.0, forward=False, crowd=True):
        self.quicket, self.folder, self.asks_every = quicket, folder, asks_every
        self.switch = Switch(quicket, folder, forward)
        self.address = f"127.0.0.1:{free_port()}"
        self.servers, self.pins, self.crowd = [], {}, None
        for name, words in (CUSTOMERS, ["--server-name", CUSTOMERS]), (VICTIM, []):
            root = folder / name
            root.mkdir()
            (root / "who").write_text(f"{name}\n")
            self.start(name, *words)
        self.crowd = self.hold(CUSTOMERS) if crowd else None
        self.switch.helps()

    def start(self, name, *words):
        """A program, which ends with this one."""
        server, listening = self.switch.serve(self.folder / name, self.address, *words)
        self.servers.append(server)
        self.pins[name] = listening["pin"]

    def hold(self, name):
        """Connections to a program."""
        # Reports as often as they ask: how long something took is not known any better.
        words = ("--ports", "20", "--report-every", f"{round(self.asks_every * 1000)}ms")
        return Crowd(self.quicket, self.address, self.pins[name], name, CONNECTIONS, self.asks_every, *words).come()

    def host(self):
        host, port = self.address.rsplit(":", 1)
        return host, int(port)

    def status(self):
        return self.switch.status()

    def programs(self):
        return self.switch.programs()

    def pids(self):
        return [self.status()["pid"], *(server.pid for server in self.servers)]

    def memory(self):
        """What each of the processes has, in bytes."""
        def resident(pid):
            status = pathlib.Path(f"/proc/{pid}/status").read_text()
            return int(status.split("VmRSS:")[1].split()[0]) << 10
        return [resident(pid) for pid in self.pids()]

    def get(self, name):
        """A new connection; how long it took in seconds."""
        begun = time.monotonic()
        port = self.address.rsplit(":", 1)[1]
        got = subprocess.run([self.quicket, "get", "--quiet", "-4", "--pin", self.pins[name], "--output", "-",
                              f"https://{name}:{port}/who"], capture_output=True, text=True)
        assert got.returncode == 0 and got.stdout == f"{name}\n", f"{name}: {got.stdout} {got.stderr}"
        return time.monotonic() - begun

    def end(self):
        if self.crowd:
            self.crowd.end()
        self.switch.end()
        for server in self.servers:
            server.kill()
            server.wait()
