#!/usr/bin/python3
"""What bulk transfers cost programs that share an address, and the switch, in seconds of the processor for each GiB: one
program, and two at once; with the kernel's help, without, and as another user's (which wants root). Servers and switch
are on core 0, clients on core 1. On a quiet machine:

    cargo build --release -p quicket-cli && cargo build --release -p quicket --example throughput
    scripts/shared-bulk.py target/release/quicket target/release/examples/throughput [RUNS [MIB]]
"""

import os
import pathlib
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

NOBODY = 65534
TICKS = os.sysconf("SC_CLK_TCK")
# What it is called, programs, flags of the switch (none: there is none), whether they are another user's.
CASES = [
    ("a socket of its own", 1, None, False),
    ("the kernel's help, one", 1, [], False),
    ("... two at once", 2, [], False),
    ("without it, one: the socket is lent", 1, ["--forward"], False),
    ("... two at once", 2, ["--forward"], False),
    ("another user's, one", 1, ["--system"], True),
    ("... two at once", 2, ["--system"], True),
]


def pinned(core, command, **rest):
    return subprocess.Popen(["taskset", "-c", str(core), *command], **rest)


def used(processes):
    """Seconds of the processor, those of threads that have ended included."""
    def ticks(process):
        fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])
    return [ticks(process) / TICKS for process in processes]


def free_port():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class Site:
    def __init__(self, folder, quicket, throughput, case):
        _, programs, flags, is_tenant = case
        self.throughput, self.address = throughput, f"127.0.0.1:{free_port()}"
        self.names = [f"program{number}" for number in range(programs)]
        environment = os.environ | {"QUICKET_SWITCH": str(folder / "switch")}
        self.processes, self.clients = [], []
        try:
            self.start(folder, quicket, throughput, environment, flags, is_tenant)
        except BaseException:
            self.end()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def start(self, folder, quicket, throughput, environment, flags, is_tenant):
        self.is_shared = flags is not None
        if flags is not None:
            self.processes.append(pinned(0, [quicket, "switch", "--stay", "--name", folder / "switch", *flags],
                                         stderr=subprocess.DEVNULL))
            self.wait(lambda: (folder / "switch").exists())
        user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if is_tenant else {}
        for name in self.names:
            own = environment | ({} if flags is None else {"QUICKET_PROGRAM": name})
            self.processes.append(pinned(0, [throughput, "serve", self.address], env=own, stdout=subprocess.DEVNULL,
                                         cwd="/", **user))
        for name in self.names:
            self.wait(lambda name=name: self.client(name, "upload", 1, stderr=subprocess.DEVNULL).wait() == 0)

    @staticmethod
    def wait(condition):
        deadline = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def client(self, name, direction, mib, **rest):
        own = os.environ | ({"QUICKET_PROGRAM": name} if self.is_shared else {})
        command = [self.throughput, direction, self.address, str(mib)]
        self.clients = [client for client in self.clients if client.poll() is None]
        self.clients.append(pinned(1, command, env=own, stdout=subprocess.PIPE, text=True, **rest))
        return self.clients[-1]

    def move(self, direction, mib):
        """All clients at once; Gbit/s of each."""
        clients = [self.client(name, direction, mib) for name in self.names]
        said = [each.communicate(timeout=120)[0] for each in clients]
        assert all(each.returncode == 0 for each in clients)
        return [float(line.split()[1]) for line in said]

    def measure(self, direction, mib):
        """Gbit/s of all, and s/GiB of the servers and of the switch."""
        before = used(self.processes)
        rate = sum(self.move(direction, mib))
        spent = [now - then for now, then in zip(used(self.processes), before)]
        gib = mib * len(self.names) / 1024
        servers, switch = sum(spent[self.is_shared:]), spent[0] if self.is_shared else 0
        return rate, servers / gib, switch / gib

    def end(self):
        for process in [*self.clients, *reversed(self.processes)]:
            process.kill()
            process.wait()


def main():
    quicket, throughput = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
    runs, mib = (int(word) for word in (sys.argv[3:] + ["3", "2048"][len(sys.argv[3:]):]))
    results = {}
    for _ in range(runs):
        for number, case in enumerate(CASES):
            if case[3] and os.geteuid() != 0:
                continue
            with tempfile.TemporaryDirectory(prefix="quicket-bulk-") as folder:
                folder = pathlib.Path(folder)
                os.chmod(folder, 0o755)
                programs = [shutil.copy(path, folder) for path in (quicket, throughput)]
                with Site(folder, *programs, case) as site:
                    for direction in "upload", "download":
                        results.setdefault((number, direction), []).append(site.measure(direction, mib))
    for (number, direction), measured in results.items():
        rate, servers, switch = (statistics.median(column) for column in zip(*measured))
        total = [row[1] + row[2] for row in measured]
        print(f"{CASES[number][0]}, {direction}: {rate:.1f} Gbit/s; {statistics.median(total):.3f} s/GiB ({min(total):.3f} to "
              f"{max(total):.3f}): servers {servers:.3f}, switch {switch:.3f}")


if __name__ == "__main__":
    main()
