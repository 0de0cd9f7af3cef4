#!/usr/bin/env python3
"""Upgrades under load: many connections that are used all the while, a tenth of whose clients move between two
upgrades, and new connections that come. None may be lost, and no request may fail."""

import argparse
import json
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import threading
import time

LONG = 120
# Seconds between two requests of a connection.
ASKED = 5


def lines(stream, heed=lambda line: None):
    """Reads a stream to its end on a thread, so that who writes it never waits."""
    def read():
        for line in stream:
            heed(line)
    threading.Thread(target=read, daemon=True).start()


def until(what, condition, seconds=LONG):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.1)


def free_port():
    """A port that the next generation finds, too: so not 0."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class Upgrades:
    def __init__(self, quicket, folder, connections, every):
        self.quicket, self.connections, self.every = quicket, connections, every
        self.switch = {"QUICKET_SWITCH": str(folder / "switch")}
        site = folder / "site"
        site.mkdir()
        (site / "who").write_text("here\n")
        self.server = subprocess.Popen(
            [quicket, "serve", site, "--listen", f"127.0.0.1:{free_port()}", "--switch", "--server-name", "localhost", "--drain",
             "86400", "--json", "--quiet"],
            env=os.environ | self.switch, stdout=subprocess.PIPE, text=True)
        events = (event for event in map(json.loads, self.server.stdout) if event["event"] == "listening")
        listening = next(events, None)
        assert listening, "the server does not listen"
        lines(self.server.stdout)
        self.address, self.pin = listening["address"], listening["pin"]
        self.counts, self.hold = {}, None
        self.came, self.failed, self.ended = 0, [], False

    def status(self):
        told = self.run("switch", "status", "--json")
        return json.loads(told.stdout)

    def run(self, *words):
        command = [self.quicket, *words]
        return subprocess.run(command, env=os.environ | self.switch, check=True, capture_output=True, text=True)

    def generations(self):
        return [program for address in self.status()["addresses"] for program in address["programs"]]

    def serving(self):
        return [program["pid"] for program in self.generations() if program["state"] == "serving"]

    def hold_connections(self):
        self.hold = subprocess.Popen(
            [self.quicket, "lab", "hold", "--pin", self.pin, "--connections", str(self.connections), "--ports",
             str(min(self.connections, 250)), "--every", f"{ASKED}s", "--move-every", f"{self.every}s", self.address, "who"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        lines(self.hold.stderr)
        lines(self.hold.stdout, lambda line: setattr(self, "counts", json.loads(line)))
        until("all connections are there", lambda: sum(self.counts.get("open", {}).values()) == self.connections)

    def new_connections(self):
        while not self.ended:
            url = f"https://{self.address.replace('127.0.0.1', 'localhost')}/who"
            got = subprocess.run([self.quicket, "get", "--pin", self.pin, "--output", "/dev/null", url],
                                 capture_output=True, text=True)
            if got.returncode:
                self.failed.append(got.stderr)
            self.came += 1
            time.sleep(0.1)

    def upgrade(self, number, since):
        before = self.serving()
        begun = time.monotonic()
        self.run("switch", "upgrade")
        until("the next generation serves", lambda: (now := self.serving()) and now != before)
        took = time.monotonic() - begun
        # Each connection has asked since, and who waits for the answer is silent by now.
        time.sleep(3 * ASKED)
        self.whole(f"after upgrade {number}")
        print(f"{time.monotonic() - since:6.0f} s  upgrade {number}: the next generation serves after {took:.2f} s; "
              f"{self.counts['answers']} answers, {self.came} new connections", flush=True)

    def whole(self, when):
        counts = self.counts
        there = sum(counts["open"].values())
        assert there == self.connections and not counts["refused"] and not counts["strayed"], f"{when}: {counts}"
        assert not counts["silent"], f"{when}: {counts}"
        assert not counts["reasons"] and not self.failed, f"{when}: {counts['reasons']} {self.failed[:3]}"

    def end(self):
        self.ended = True
        pids = {self.server.pid}
        try:
            pids |= {program["pid"] for program in self.generations()} | {self.status()["pid"]}
        except (subprocess.CalledProcessError, KeyError):
            pass
        if self.hold:
            self.hold.kill()
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.server.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quicket", type=lambda path: str(pathlib.Path(path).resolve()), required=True)
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--upgrades", type=int, default=20)
    parser.add_argument("--every", type=int, default=30, help="seconds between two upgrades")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="quicket-upgrades-") as folder:
        upgrades = Upgrades(arguments.quicket, pathlib.Path(folder), arguments.connections, arguments.every)
        try:
            since = time.monotonic()
            upgrades.hold_connections()
            print(f"{time.monotonic() - since:6.0f} s  {arguments.connections} connections are open", flush=True)
            coming = threading.Thread(target=upgrades.new_connections)
            coming.start()
            for number in range(1, arguments.upgrades + 1):
                begun = time.monotonic()
                upgrades.upgrade(number, since)
                time.sleep(max(0, arguments.every - (time.monotonic() - begun)))
            upgrades.ended = True
            coming.join()
            upgrades.whole("in the end")
            counts = upgrades.counts
            print(f"{arguments.upgrades} upgrades: 0 of {arguments.connections} connections lost, none of "
                  f"{counts['answers']} requests and none of {upgrades.came} new connections failed")
            print("answers within milliseconds: " + ", ".join(
                f"{limit}: {count}" for limit, count in sorted(counts["waits"].items(), key=lambda it: int(it[0]))))
            print(upgrades.run("switch", "status").stdout)
        finally:
            upgrades.end()


if __name__ == "__main__":
    main()
