#!/usr/bin/env python3
"""Clients of other implementations where three programs share an address: two servers of files told apart by name, and
one in Python that has the protocol hq-interop for all other names. Each client gets the files of the program that it
asked for, by hash, from all of them at once; some move to another port meanwhile. With the kernel's help and without.

The lab builds the clients (quicket lab peers, ./test interop), but for ngtcp2's, which is Debian's."""

import argparse
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
from common import LONG, Switch, free_port, lines  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The servers of files; the third name is any other.
NAMES, OTHER = ("localhost", "b.example"), "c.example"
LARGE = 8 << 20
# A client moves half a second into the download, which has to last that long.
LARGE_OF_MOVERS = 96 << 20
# Connections of each client to each program, all at once.
TURNS = 3


def clients(lab):
    """How each client is started, the protocols that it speaks, and the servers of files that it asks."""
    found = {
        "quinn": ([str(lab / "cargo/release/quicket-peer-quinn")], ["hq-interop", "h3"], NAMES),
        "quic-go": ([str(lab / "quic-go-peer")], ["hq-interop", "h3"], NAMES),
        # It asks an address in numbers for localhost, whatever it is told.
        "ngtcp2": ([sys.executable, str(ROOT / "lab/peers/ngtcp2/main.py")], ["h3"], NAMES[:1]),
    }
    missing = [name for name, (command, *_) in found.items() if not os.access(command[0], os.X_OK)]
    assert not missing, f"not built: {missing}; ./test interop builds them"
    assert shutil.which("gtlsclient"), "gtlsclient is missing: apt install ngtcp2-client"
    return found


def certificates(folder):
    certificate, key = folder / "certificate", folder / "key"
    names = ",".join(f"DNS:{name}" for name in (*NAMES, OTHER))
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                    "-keyout", key, "-out", certificate, "-subj", "/CN=test", "-addext", f"subjectAltName={names}",
                    "-addext", "basicConstraints=critical,CA:FALSE"], check=True, capture_output=True)
    return str(certificate), str(key)


class Site:
    def __init__(self, quicket, folder, forward):
        self.folder = folder
        self.switch = Switch(quicket, folder, forward)
        self.address = f"127.0.0.1:{free_port()}"
        self.certificate, self.key = certificates(folder)
        self.hashes, self.processes, self.downloads = {}, [], 0
        for name in NAMES:
            root = folder / name
            root.mkdir()
            for file, length in ("large", LARGE), ("larger", LARGE_OF_MOVERS):
                content = os.urandom(length)
                (root / file).write_bytes(content)
                self.hashes[name, file] = hashlib.sha256(content).hexdigest()
            server, _ = self.switch.serve(root, self.address, "--server-name", name, "--cert", self.certificate, "--key", self.key)
            self.processes.append(server)
        self.processes.append(self.python(quicket))
        self.hashes[OTHER, "large"] = hashlib.sha256(b"python:GET /large\r\n").hexdigest()
        self.switch.helps()

    def python(self, quicket):
        """A program that knows nothing of the switch."""
        environment = self.switch.environment | {"KEY": self.key, "CERTIFICATE": self.certificate}
        program = subprocess.Popen(
            [quicket, "run", "--switch=python", "--", sys.executable, str(ROOT / "cli/tests/python/share.py"), "python",
             self.address.rsplit(":", 1)[1], "hq-interop"], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        ready = next((line for line in program.stdout if line.startswith(("READY", "REFUSED"))), "it has ended")
        assert ready.startswith("READY"), ready
        lines(program.stdout)
        return program

    def start(self, client, command, name, protocol, file, *words):
        self.downloads += 1
        out = self.folder / f"{client}-{self.downloads}"
        out.mkdir()
        process = subprocess.Popen(
            [*command, "client", "--connect", self.address, "--ca", self.certificate, "--server-name", name, "--alpn", protocol,
             "--download", f"/{file}", "--out", str(out), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        return client, name, protocol, file, out, process

    def finish(self, client, name, protocol, file, out, process):
        """A download is what its program serves."""
        said, errors = process.communicate(timeout=LONG)
        what = f"{client}, {protocol}, {file} of {name}"
        assert process.returncode == 0 and (out / file).exists(), f"{what}: {said}{errors}"
        got = hashlib.sha256((out / file).read_bytes()).hexdigest()
        assert got == self.hashes[name, file], f"{what}: another file"
        shutil.rmtree(out)
        return [json.loads(line) for line in said.splitlines()]

    def refused(self, client, command):
        """Nobody has h3 for other names."""
        process = self.start(client, command, OTHER, "h3", "large")[-1]
        said, errors = process.communicate(timeout=LONG)
        assert process.returncode != 0, f"{client}: an answer for h3 of {OTHER}: {said}{errors}"

    def first_packets(self):
        """Programs and the clients that they had."""
        return {program["program"]: program["first_packets"] for program in self.switch.programs()}

    def end(self):
        self.switch.end()
        for process in self.processes:
            process.kill()
            process.wait()


def meet(site, found):
    """All clients and all programs at once; then those that move."""
    begun = time.monotonic()
    running, expected = [], {name: 0 for name in (*NAMES, "python")}
    for client, (command, protocols, names) in found.items():
        for name, protocol in [(name, protocol) for name in names for protocol in protocols] + [
                (OTHER, protocol) for protocol in protocols if protocol == "hq-interop"]:
            for _ in range(TURNS):
                running.append(site.start(client, command, name, protocol, "large"))
                expected["python" if name == OTHER else name] += 1
    for one in running:
        site.finish(*one)
    strangers = [client for client, (*_, names) in found.items() if names == NAMES]
    for client in strangers:
        site.refused(client, found[client][0])
    movers = [site.start(client, command, name, "h3", "larger", "--migrate", "127.0.0.1")
              for client, (command, _, names) in found.items() for name in names]
    for mover in movers:
        expected[mover[1]] += 1
        site.finish(*mover)
    had = site.first_packets()
    # A client may send its first packet again.
    assert all(had[name] >= count for name, count in expected.items()), f"{had}, not {expected}"
    site.switch.helps()
    dropped = site.switch.status()["addresses"][0]["dropped"]
    wrong = {reason: count for reason, count in dropped.items() if count and reason in ("unreadable", "malformed", "not_served")}
    assert not wrong, wrong
    how = "every datagram forwarded" if site.switch.forward else "the kernel helps"
    print(f"{how}: {site.downloads - len(strangers)} downloads by {', '.join(found)} from three programs at one address, "
          f"{len(movers)} of clients that were told to move ({time.monotonic() - begun:.0f} s)", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quicket", type=lambda path: str(pathlib.Path(path).resolve()), required=True)
    parser.add_argument("--lab", type=pathlib.Path, default=ROOT / "target/lab", help="where the lab's programs are")
    arguments = parser.parse_args()
    found = clients(arguments.lab)
    for forward in False, True:
        with tempfile.TemporaryDirectory(prefix="quicket-clients-") as folder:
            site = Site(arguments.quicket, pathlib.Path(folder), forward)
            try:
                meet(site, found)
            finally:
                site.end()


if __name__ == "__main__":
    main()
