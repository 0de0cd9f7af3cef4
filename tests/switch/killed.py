#!/usr/bin/env python3
"""What a kill -9 costs, where two programs share an address: of the switch, of a generation that was superseded, of one
that serves, and of another program. What is lost is what lived there, and nothing else. With --rounds all that is done
so often, and a table says how long what took: the median and the worst."""

import argparse
import os
import pathlib
import signal
import statistics
import sys
import tempfile
import time

sys.dont_write_bytecode = True
from common import until  # noqa: E402
from site_of_two import CONNECTIONS, CUSTOMERS, VICTIM, Site  # noqa: E402

# Seconds. Clients ask so often, and say as often what they know.
ASKS_EVERY = 0.1
CLIENTS_KNOW = 10
SWITCH_IS_BACK = 5
# Milliseconds. Others stall for a second at most, where the kernel does not help.
STALL = 1024
# How often a thing that takes so long is looked at, in seconds.
LOOK = 0.02


class Times:
    """How long what took, in seconds, of all rounds."""

    def __init__(self):
        self.all = {}

    def add(self, what, seconds):
        self.all.setdefault(what, []).append(seconds)
        return f"{seconds:.2f} s"

    def since(self, what, begun):
        return self.add(what, time.monotonic() - begun)

    def table(self):
        """In Markdown, as docs/switch.md has it."""
        print("| kill -9 of | until | median | worst | rounds |\n| --- | --- | --- | --- | --- |")
        for (killed, until_what), took in self.all.items():
            median, worst = statistics.median(took), max(took)
            print(f"| {killed} | {until_what} | {median:.2f} s | {worst:.2f} s | {len(took)} |")


TIMES = Times()
THE_SWITCH = "the switch"
SUPERSEDED = "a generation that was superseded"
ANOTHER = "another program"
SERVING = "the generation that serves"
KNOW = f"the last of its {CONNECTIONS} clients has its reset"


def kill(pid):
    os.kill(pid, signal.SIGKILL)
    return time.monotonic()


def served(site, name):
    try:
        return site.get(name)
    except AssertionError:
        return None


def the_switch(site):
    before = site.status()["pid"]
    programs = len(site.programs())
    begun = kill(before)

    def is_back():
        try:
            return site.status()["pid"] != before and len(site.programs()) == programs
        except Exception:  # it is not there yet
            return False

    until("the switch is back with all programs", is_back, SWITCH_IS_BACK, LOOK)
    back = TIMES.since((THE_SWITCH, "status has all programs"), begun)
    until("new connections come", lambda: served(site, CUSTOMERS) and served(site, VICTIM), SWITCH_IS_BACK, LOOK)
    new = TIMES.since((THE_SWITCH, "new clients of both programs come"), begun)
    site.crowd.whole("the switch was killed")
    longest = max(map(int, site.crowd.counts["waits"]))
    TIMES.add((THE_SWITCH, f"all {CONNECTIONS} connections have had their answers: the longest wait"), longest / 1000)
    assert longest <= STALL, f"an answer took up to {longest} ms"
    site.switch.helps()
    print(f"the switch: back with all programs after {back}, new connections to both after {new}; none of {CONNECTIONS} "
          f"connections lost, all answers within {longest} ms", flush=True)


def lost(crowd, begun, what):
    until(f"{what}: its clients know", lambda: crowd.open() == 0, CLIENTS_KNOW, LOOK)
    counts = crowd.counts
    resets = sum(count for reason, count in counts["reasons"].items() if "reset" in reason.lower())
    assert resets == CONNECTIONS, f"{what}: {counts['reasons']}"
    return TIMES.since((what, KNOW), begun)


def serving(site):
    """The processes that take new connections, by the names of their programs."""
    return {program["program"]: program["pid"] for program in site.programs() if program["state"] == "serving"}


def generations(site):
    """One that was superseded, and then the one that serves."""
    before = serving(site)
    name = next(name for name, pid in before.items() if pid == site.servers[0].pid)
    site.switch.run("upgrade")
    until("the next generation serves", lambda: serving(site).get(name, before[name]) != before[name])
    old = site.crowd
    site.crowd = site.hold(CUSTOMERS)
    try:
        took = lost(old, kill(before[name]), SUPERSEDED)
    finally:
        old.end()
    site.crowd.whole("the generation before was killed")
    print(f"a generation that was superseded: its {CONNECTIONS} clients had resets after {took}; none of {CONNECTIONS} of the "
          "next generation was lost", flush=True)
    return name


def the_other(site, name):
    """The program of others: its clients are reset, ours notice nothing."""
    other = next(key for key in serving(site) if key != name)
    crowd = site.hold(VICTIM)
    try:
        took = lost(crowd, kill(serving(site)[other]), ANOTHER)
    finally:
        crowd.end()
    site.crowd.whole("another program was killed")
    print(f"another program: its {CONNECTIONS} clients had resets after {took}; none of {CONNECTIONS} of this one was lost", flush=True)


def the_last(site, name):
    """The generation that serves. Another one starts at once, as by a service manager."""
    begun = kill(serving(site)[name])
    took = lost(site.crowd, begun, SERVING)
    site.start(CUSTOMERS, "--server-name", CUSTOMERS)
    until("new connections come", lambda: served(site, CUSTOMERS), CLIENTS_KNOW, LOOK)
    new = TIMES.since((SERVING, "another one, started when they have, has new clients"), begun)
    print(f"the generation that serves: its {CONNECTIONS} clients had resets after {took}; new ones come {new} after", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quicket", type=lambda path: str(pathlib.Path(path).resolve()), required=True)
    parser.add_argument("--forward", action="store_true", help="without the kernel's help: the switch forwards every datagram")
    parser.add_argument("--rounds", type=int, default=1, metavar="N", help="do all of it so often, and print a table of how long it took")
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error("--rounds: at least one")
    for _ in range(arguments.rounds):
        a_round(arguments)
    if arguments.rounds > 1:
        TIMES.table()


def a_round(arguments):
    with tempfile.TemporaryDirectory(prefix="quicket-killed-") as folder:
        site = Site(arguments.quicket, pathlib.Path(folder), ASKS_EVERY, arguments.forward)
        try:
            the_switch(site)
            name = generations(site)
            the_other(site, name)
            the_last(site, name)
        finally:
            site.end()


if __name__ == "__main__":
    main()
