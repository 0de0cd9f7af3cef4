"""What the tests of the switch share: processes that end with the test, a switch of its own, and clients that stay."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import threading
import time

# How long anything may take on a machine that is busy, in seconds.
LONG = 120


def lines(stream, heed=lambda line: None):
    """Reads a stream to its end on a thread, so that who writes it never waits."""
    def read():
        for line in stream:
            heed(line)
    threading.Thread(target=read, daemon=True).start()


def until(what, condition, seconds=LONG, pause=0.1):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(pause)


def free_port():
    """A port that the next generation finds, too: so not 0."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class Switch:
    """A switch of the test's own, which the first program starts, and any program if it is killed."""

    def __init__(self, quicket, folder, forward=False):
        self.quicket, self.forward = quicket, forward
        self.environment = os.environ | {"QUICKET_SWITCH": str(folder / "switch")}
        if forward:
            # The first switch is started so; those that come after it are told by the programs.
            program = folder / "forwarding"
            program.write_text(f"#!/bin/sh\nexec '{quicket}' \"$@\" --forward\n")
            program.chmod(0o755)
            self.environment["QUICKET_SWITCH_PROGRAM"] = str(program)

    def run(self, *words):
        told = subprocess.run([self.quicket, "switch", *words], env=self.environment, check=True, capture_output=True, text=True)
        return told.stdout

    def status(self):
        return json.loads(self.run("status", "--json"))

    def programs(self):
        return [program for address in self.status()["addresses"] for program in address["programs"]]

    def helps(self):
        """Asserts that the kernel helps, or that it does not where everything is forwarded."""
        for address in self.status()["addresses"]:
            assert address["kernel"]["helps"] is not self.forward, address["kernel"]

    def serve(self, folder, address, *words):
        """A program, and its first event: where it listens."""
        server = subprocess.Popen(
            [self.quicket, "serve", folder, "--listen", address, "--switch", *words, "--drain", "86400", "--json", "--quiet"],
            env=self.environment, stdout=subprocess.PIPE, text=True)
        listening = next((event for event in map(json.loads, server.stdout) if event["event"] == "listening"), None)
        assert listening, f"the server of {folder} does not listen"
        lines(server.stdout)
        return server, listening

    def end(self):
        """Ends the switch and all of its programs, those that programs have started among them."""
        try:
            programs = {program["pid"] for program in self.programs()}
            switch = self.status()["pid"]
        except (subprocess.CalledProcessError, KeyError):
            return
        # The switch last: a program that outlives it starts another one.
        for pid in (*programs, switch):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


class Crowd:
    """Connections that ask again and again, each every `every` seconds."""

    def __init__(self, quicket, address, pin, name, connections, every, *words):
        self.connections, self.counts = connections, {}
        self.process = subprocess.Popen(
            [quicket, "lab", "hold", "--pin", pin, "--server-name", name, "--connections", str(connections), "--every",
             f"{round(every * 1000)}ms", *words, address, "who"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        lines(self.process.stdout, lambda line: setattr(self, "counts", json.loads(line)))

    def come(self):
        """Waits for all to be there."""
        until("all connections are there", lambda: self.open() == self.connections)
        return self

    def open(self):
        return sum(self.counts.get("open", {}).values())

    def whole(self, when):
        whole([self], when)

    def hurt(self):
        """Whether anything is wrong that time does not mend."""
        counts = self.counts
        wrong = any(counts[what] for what in ("refused", "failed", "strayed", "reasons"))
        return wrong or self.open() != self.connections

    def end(self):
        self.process.kill()
        self.process.wait()


def whole(crowds, when):
    """Each connection has asked since now and has its answer; none is lost, or got another's answer."""
    # Who waits does not ask again. When the others have four answers, three times of `every` have passed, and it is silent.
    enough = [crowd.counts["answers"] + 4 * crowd.connections for crowd in crowds]

    def done():
        return any(crowd.hurt() for crowd in crowds) or all(
            crowd.counts["answers"] >= answers and not crowd.counts["silent"] for crowd, answers in zip(crowds, enough))

    until(f"{when}: all connections are answered", done)
    for crowd in crowds:
        assert not crowd.hurt(), f"{when}: {crowd.counts}"
