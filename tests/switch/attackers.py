#!/usr/bin/python3
"""Attackers at an address that two programs share through the switch: a flood of first packets at one of them,
connection IDs that were guessed, packets that were replayed, and another user of the machine. The other program's
connections go on, and new ones come."""

import argparse
import os
import pathlib
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
from common import until  # noqa: E402
from initials import Flood, initial  # noqa: E402
from site_of_two import CONNECTIONS, CUSTOMERS, VICTIM, Site  # noqa: E402

NOBODY = 65534
# Of the switch and of each program, while attackers are at work, in bytes.
MOST_MEMORY = 400 << 20
# Of what an attack should send, so much is one. A machine that is busy has several turns for it.
ATTACK, TURNS = 0.5, 5
# What a new connection of customers takes meanwhile, in seconds: half of them, and each.
USUALLY, AT_MOST = 1, 10
# Answers to packets that are nobody's: a stateless reset is limited to some a second (docs/security.md).
MOST_RESETS = 5_000


def attack(site, what, datagrams, seconds, rate):
    """Sends datagrams while customers come and stay."""
    for _ in range(TURNS):
        flood = Flood(site.host(), datagrams)
        before = Work(site)
        reached, waits, memory = beside(site, lambda: flood.run(seconds, rate))
        work = before.since()
        site.crowd.whole(what)
        assert max(memory) < MOST_MEMORY, f"{what}: {max(memory) >> 20} MiB"
        assert waits[len(waits) // 2] < USUALLY and waits[-1] < AT_MOST, f"{what}: new connections took {waits} s"
        if reached >= ATTACK * rate:
            break
    else:
        raise AssertionError(f"{what}: {reached:,.0f} datagrams a second are no attack; asked for were {rate:,}")
    print(f"{what}: {reached:,.0f} datagrams a second for {seconds} s, {flood.answers:,} answered; {CONNECTIONS} connections "
          f"beside them went on, {len(waits)} new ones took {waits[len(waits) // 2] * 1000:.0f} ms (the longest "
          f"{waits[-1] * 1000:.0f} ms); the switch had {memory[0] >> 20} MiB, who has customers {memory[1] >> 20}, who is "
          f"attacked {memory[2] >> 20}; {work}", flush=True)
    return flood


class Work:
    """What the processes and the kernel do from now on, in shares of a core."""

    TICKS = os.sysconf("SC_CLK_TCK")

    def __init__(self, site):
        names = ("the switch", "who has customers", "who is attacked", "who attacks, and counts")
        self.pids = dict(zip(names, (*site.pids(), os.getpid())))
        self.begun, self.before, self.soft = time.monotonic(), self.ticks(), self.interrupts()
        self.dropped = self.drops(site)
        self.site = site

    def ticks(self):
        def used(pid):
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            return int(fields[11]) + int(fields[12])
        return {name: used(pid) for name, pid in self.pids.items()}

    @staticmethod
    def interrupts():
        """Ticks that are nobody's: softirq."""
        return int(pathlib.Path("/proc/stat").read_text().splitlines()[0].split()[7])

    @staticmethod
    def drops(site):
        """Datagrams for which the sockets of the address had no room."""
        port = f":{site.host()[1]:04X}"
        rows = [row.split() for row in pathlib.Path("/proc/net/udp").read_text().splitlines()[1:]]
        return sum(int(row[12]) for row in rows if row[1].endswith(port))

    def since(self):
        seconds = (time.monotonic() - self.begun) * self.TICKS
        used = {name: ticks - self.before[name] for name, ticks in self.ticks().items()}
        used["interrupts"] = self.interrupts() - self.soft
        shares = ", ".join(f"{name} {ticks / seconds:.0%}" for name, ticks in used.items())
        return f"of a core: {shares}; {self.drops(self.site) - self.dropped:,} found no room in a socket"


def beside(site, run):
    """What `run` returns; meanwhile customers come: how long each took, in order, and the most memory of each process."""
    result, waits, memory = [], [], site.memory()
    sender = threading.Thread(target=lambda: result.append(run()))
    sender.start()
    while not waits or sender.is_alive():
        waits.append(site.get(CUSTOMERS))
        memory = [max(pair) for pair in zip(memory, site.memory())]
    sender.join()
    return result[0], sorted(waits), memory


def first_packets(site, seconds, rate, count):
    attack(site, "first packets at another name", [initial("victim.example", "h3") for _ in range(count)], seconds, rate)
    until("who was attacked serves again", lambda: attempt(site))


def failing(site, seconds, rate, count):
    """Handshakes that end at once: each leaves a connection that closes (RFC 9000, Section 10.2)."""
    datagrams = [initial("victim.example", "h3", wrong=True) for _ in range(count)]
    attack(site, "first packets with a wrong parameter", datagrams, seconds, rate)
    until("who was attacked serves again", lambda: attempt(site))


def attempt(site):
    try:
        return site.get(VICTIM)
    except AssertionError:
        return None


def unfinished(site, seconds, rate, count):
    """ClientHellos that never end: each asks the switch to keep a part."""
    attack(site, "halves of ClientHellos", [initial("victim.example", "h3", whole=False) for _ in range(count)], seconds, rate)


def guessed(site, seconds, rate, count):
    draw = random.Random(9000)
    short = [bytes([0x40 | draw.getrandbits(6)]) + draw.randbytes(60) for _ in range(count // 2)]
    long = [b"\xe0\0\0\0\1\x0e" + draw.randbytes(14) + b"\0\x40\x28" + draw.randbytes(40) for _ in range(count // 2)]
    flood = attack(site, "guessed connection IDs", short + long, seconds, rate)
    assert flood.answers < MOST_RESETS * seconds, f"{flood.answers} resets"


def replayed(site, seconds, rate):
    """What customers have sent, heard on the wire, from other addresses."""
    port = site.host()[1]
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    wire.bind(("lo", 0))
    wire.settimeout(1)
    heard, until_then = [], time.monotonic() + 4
    while time.monotonic() < until_then:
        frame = wire.recv(4096)
        # Ethernet, IPv4 without options, UDP to the server; one that is a train is longer.
        if frame[23:24] == b"\x11" and int.from_bytes(frame[36:38], "big") == port and len(frame) < 1500:
            heard.append(frame[42:])
    wire.close()
    assert len(heard) > CONNECTIONS, f"{len(heard)} datagrams were heard"
    attack(site, "replayed packets", heard * (1 + 1000 // len(heard)), seconds, rate)


class Nobody:
    """Another user of the machine, with a program that all may start, and a home: a server that has a place for its keys
    fails for no want of one."""

    def __init__(self, site, folder):
        self.home, self.program = folder / "home", folder / "program"
        self.home.mkdir(mode=0o700)
        os.chown(self.home, NOBODY, NOBODY)
        subprocess.run(["install", "-m", "755", site.quicket, self.program], check=True)
        self.environment = site.switch.environment | {"HOME": str(self.home), "XDG_DATA_HOME": str(self.home)}

    def fails(self, because, *command):
        """A command fails for one of these reasons."""
        done = subprocess.run(command, env=self.environment, cwd="/", user=NOBODY, group=NOBODY, extra_groups=[],
                              capture_output=True, text=True, timeout=30)
        said = done.stderr + done.stdout
        assert done.returncode not in (0, 101) and any(word in said for word in because), f"{command}: {done.returncode}, {said!r}"

    def quicket(self, because, *words):
        self.fails([because] if isinstance(because, str) else because, str(self.program), *words)


def another_user(site, folder):
    """Who is not the user of the switch gets nothing, not even where the names are known."""
    nobody = Nobody(site, folder)
    serve = ["serve", "/", "--listen", site.address, "--quiet"]
    take = [*serve, "--switch", "--server-name", CUSTOMERS, "--replace"]
    path = pathlib.Path(site.switch.environment["QUICKET_SWITCH"])
    whose = f"this switch is that of user {os.getuid()}"
    # Everybody may look into the folder. What keeps others out is the socket's own mode.
    nobody.quicket(whose, "switch", "status")
    nobody.quicket(whose, *take)
    assert (nobody.home / "quicket").is_dir(), "the server did not come as far as its keys"
    # Where somebody has opened it to all, the switch still knows its user by the system's word (SO_PEERCRED).
    mode = path.stat().st_mode
    path.chmod(0o777)
    listens = ("import socket; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect({!r}); "
               "raise SystemExit(repr(s.recv(65536)))")
    nobody.fails([whose], "/usr/bin/python3", "-c", listens.format(str(path)))
    # It closes the connection with these words, which who asks meanwhile reads all the same.
    nobody.quicket(whose, "switch", "status")
    nobody.quicket(whose, "switch", "upgrade")
    nobody.quicket(whose, *take)
    path.chmod(mode)
    # Without the switch the address is in use, and cannot be shared by others.
    nobody.quicket("is in use", *serve)
    share = ("import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); "
             "s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1); s.bind(('127.0.0.1', {}))")
    nobody.fails(["Address already in use"], "/usr/bin/python3", "-c", share.format(site.host()[1]))
    for pid in site.pids():
        for what in "mem", "environ", "fd":
            nobody.fails(["Permission denied"], "ls" if what == "fd" else "cat", f"/proc/{pid}/{what}")
    site.crowd.whole("another user")
    print("another user: no status, no name, no share of the port, no look into a process", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quicket", type=lambda path: str(pathlib.Path(path).resolve()), required=True)
    parser.add_argument("--seconds", type=int, default=5, help="how long each attack lasts")
    parser.add_argument("--rate", type=int, default=100_000, help="datagrams a second")
    parser.add_argument("--different", type=int, default=20_000, help="how many first packets are made; they are sent in turns")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="quicket-attackers-") as folder:
        # What is in it is seen by all, so that the switch itself keeps others out.
        os.chmod(folder, 0o755)
        site = Site(arguments.quicket, pathlib.Path(folder))
        try:
            site.crowd.whole("before")
            took = sorted(site.get(CUSTOMERS) for _ in range(9))
            print(f"before: a new connection takes {took[4] * 1000:.0f} ms", flush=True)
            first_packets(site, arguments.seconds, arguments.rate, arguments.different)
            failing(site, arguments.seconds, arguments.rate, arguments.different)
            unfinished(site, arguments.seconds, arguments.rate, arguments.different // 4)
            guessed(site, arguments.seconds, arguments.rate, arguments.different)
            replayed(site, arguments.seconds, arguments.rate)
            another_user(site, pathlib.Path(folder))
        finally:
            site.end()


if __name__ == "__main__":
    main()
