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
from initials import Flood, initial  # noqa: E402
from site_of_two import CONNECTIONS, CUSTOMERS, VICTIM, Site, until  # noqa: E402

NOBODY = 65534
# Of the switch and of each program, while attackers are at work, in bytes.
MOST_MEMORY = 400 << 20
# Answers to packets that are nobody's: a stateless reset is limited to some a second (docs/security.md).
MOST_RESETS = 5_000


def attack(site, what, datagrams, seconds, rate):
    """Sends datagrams while customers come and stay."""
    flood = Flood(site.host(), datagrams)
    result = {}
    sender = threading.Thread(target=lambda: result.update(rate=flood.run(seconds, rate)))
    waits, memory = [], 0
    sender.start()
    while sender.is_alive():
        waits.append(site.get(CUSTOMERS))
        memory = max(memory, site.memory())
    sender.join()
    site.crowd.whole(what)
    assert memory < MOST_MEMORY, f"{what}: {memory >> 20} MiB"
    waits.sort()
    print(f"{what}: {result['rate']:,.0f} datagrams a second for {seconds} s, {flood.answers:,} answered; {CONNECTIONS} connections "
          f"beside them went on, {len(waits)} new ones took {waits[len(waits) // 2] * 1000:.0f} ms (the longest "
          f"{waits[-1] * 1000:.0f} ms); the largest process had {memory >> 20} MiB", flush=True)
    return flood


def first_packets(site, seconds, rate, count):
    attack(site, "first packets at another name", [initial("victim.example", "h3") for _ in range(count)], seconds, rate)
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


def another_user(site):
    """Who is not the user of the switch gets nothing, not even where the names are known."""
    def as_nobody(*command):
        done = subprocess.run(command, env=site.environment, cwd="/", user=NOBODY, group=NOBODY, extra_groups=[],
                              capture_output=True, text=True, timeout=30)
        return done.returncode, done.stderr + done.stdout

    # The program must be one that everybody may start.
    program = "/tmp/quicket-attackers-" + str(os.getpid())
    subprocess.run(["install", "-m", "755", site.quicket, program], check=True)
    try:
        for words in (["switch", "status"],
                      ["serve", "/", "--listen", site.address, "--switch", "--server-name", CUSTOMERS, "--replace", "--quiet"],
                      ["serve", "/", "--listen", site.address, "--quiet"]):
            status, said = as_nobody(program, *words)
            assert status not in (0, 101), f"{words}: {status} {said}"
        share = ("import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); "
                 "s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1); s.bind(('127.0.0.1', {}))")
        status, said = as_nobody("/usr/bin/python3", "-c", share.format(site.host()[1]))
        assert status != 0 and "Address already in use" in said, said
        for pid in site.pids():
            for what in "mem", "environ", "fd":
                status, said = as_nobody("ls" if what == "fd" else "cat", f"/proc/{pid}/{what}")
                assert status != 0, f"{what} of {pid}: {said}"
    finally:
        os.unlink(program)
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
        site = Site(arguments.quicket, pathlib.Path(folder))
        try:
            site.crowd.whole("before")
            took = sorted(site.get(CUSTOMERS) for _ in range(9))
            print(f"before: a new connection takes {took[4] * 1000:.0f} ms", flush=True)
            first_packets(site, arguments.seconds, arguments.rate, arguments.different)
            unfinished(site, arguments.seconds, arguments.rate, arguments.different // 4)
            guessed(site, arguments.seconds, arguments.rate, arguments.different)
            replayed(site, arguments.seconds, arguments.rate)
            another_user(site)
        finally:
            site.end()


if __name__ == "__main__":
    main()
