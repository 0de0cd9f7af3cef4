#!/usr/bin/env python3
"""What a kill -9 costs who comes to a gateway behind the switch: of a generation that was superseded, nothing; of the one that serves,
while an older one lives, what that one had; of a gateway that is alone, what it had. Who comes then is served as soon as another gateway
is started, over HTTP/3, HTTP/2, HTTP/1.1 and a private protocol."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
import environment  # noqa: E402, F401 (finds scripts/)
from gateway_site import LONG, VERSIONS, Load, Site, end_as_a_failure, fail, options, say, until  # noqa: E402

# How long it may take until a gateway that is started serves, on a machine that is busy, in seconds.
SERVES = 10


class Conversation:
    """A stream of the private protocol that stays open, in a process of its own: it lives as long as the gateway's that has it."""

    def __init__(self, site):
        command = [site.quicket, "connect", f"localhost:{site.port}", "--alpn", "echo", "--ca", site.certificate, "--quiet"]
        self.process = subprocess.Popen(command, env=site.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.goes_on("it begins")

    def goes_on(self, when):
        said = f"{when}\n".encode()
        try:
            self.process.stdin.write(said)
            self.process.stdin.flush()
            heard = self.process.stdout.readline()
        except BrokenPipeError:
            heard = b""
        if heard != said:
            fail(f"{when}: a conversation has ended")

    def breaks_off(self, when):
        try:
            code = self.process.wait(LONG)
        except subprocess.TimeoutExpired:
            fail(f"{when}: its conversation does not end")
        if code == 0:
            fail(f"{when}: its conversation has ended well")

    def end(self):
        self.process.kill()
        self.process.wait()


def listens(pid, port):
    """Whether a process has a socket that listens there."""
    lines = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
    sockets = {f"socket:[{words[9]}]" for words in lines if words[1].endswith(f":{port:04X}") and words[3] == "0A"}
    held = set()
    for descriptor in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            held.add(os.readlink(descriptor))
    return bool(sockets & held)


class KilledSite(Site):
    def upgrade(self):
        before = self.serving()
        super().upgrade()
        # Both take connections over TCP until the older one has heard that it need not.
        until("the older one takes nothing new", lambda: not listens(before, self.port))

    def kill(self, pid):
        # A generation is the child of the one before it, or ours; and a process that has ended is no longer in the report.
        os.kill(pid, signal.SIGKILL)
        if pid == self.gateway.pid:
            self.gateway.wait()
        until(f"{pid} is gone", lambda: pid not in self.generations())

    def start_again(self):
        """As a service manager does; how long it takes until it has served each version."""
        begun = time.monotonic()
        self.processes = [entry for entry in self.processes if entry[1] is not self.gateway]
        self.gateway = self.start("the gateway", [self.quicket, "gateway", self.folder / "site.toml", "--switch"])
        until("it serves", lambda: self.listens() and self.serving() == self.gateway.pid)
        self.is_served()
        took = time.monotonic() - begun
        if took > SERVES:
            fail(f"a gateway that was started serves after {took:.1f} s")
        return took

    def is_served(self):
        for version in VERSIONS:
            self.fetch(version, "small")
        self.carry()


def the_superseded(site, talks):
    """Others come all the while, and none of them notices."""
    old = site.serving()
    of_old = talks(site)
    site.upgrade()
    of_new = talks(site)
    of_old.goes_on("it was superseded")
    load = Load(site)
    try:
        load.go_on()
        site.kill(old)
        load.go_on()
    finally:
        load.end()
    of_old.breaks_off("the superseded one was killed")
    of_new.goes_on("the one before was killed")
    if len(site.generations()) != 1:
        fail(f"one generation, and not {site.generations()}")
    say(f"a generation that was superseded: {sum(load.counts.values())} who came meanwhile were served; the next one's conversation goes on")
    return of_new


def the_serving(site, of_old, talks):
    """The one before has what it has still, and takes nothing new."""
    site.upgrade()
    of_new = talks(site)
    site.kill(site.serving())
    of_new.breaks_off("the serving one was killed")
    of_old.goes_on("the next one was killed")
    took = site.start_again()
    of_old.goes_on("another one was started")
    newest = talks(site)
    newest.goes_on("it is the third")
    say(f"the generation that serves, while an older one lives: another one has served all versions {took:.1f} s after it was started; the older one's "
        "conversation goes on")
    return newest


def the_only(site, of_it):
    for pid in site.generations():
        site.kill(pid)
    of_it.breaks_off("the only one was killed")
    took = site.start_again()
    say(f"a gateway that is alone: another one has served all versions {took:.1f} s after it was started")


def main():
    arguments = options(__doc__).parse_args()
    end_as_a_failure()
    conversations = []

    def talks(site):
        conversations.append(Conversation(site))
        return conversations[-1]

    with tempfile.TemporaryDirectory(prefix="quicket-killed-") as folder:
        site = KilledSite(arguments.quicket, pathlib.Path(folder))
        try:
            second = the_superseded(site, talks)
            newest = the_serving(site, second, talks)
            the_only(site, newest)
        finally:
            for conversation in conversations:
                conversation.end()
            site.end()


if __name__ == "__main__":
    main()
