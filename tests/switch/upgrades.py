#!/usr/bin/env python3
"""Upgrades under load: many connections that are used all the while, a tenth of whose clients move between two
upgrades, and new connections that come, of which some stay with each generation. None may be lost, and no request may
fail; in the end all generations are side by side."""

import argparse
import collections
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
from common import Crowd, Switch, free_port, until, whole  # noqa: E402


class Upgrades:
    def __init__(self, arguments, folder):
        self.arguments = arguments
        self.switch = Switch(arguments.quicket, folder, arguments.forward)
        site = folder / "site"
        site.mkdir()
        (site / "who").write_text("here\n")
        # By default it holds as many as half of the memory is enough for at worst.
        room = str(arguments.connections + arguments.stay + 1000)
        words = ("--server-name", "localhost", "--max-connections", room)
        self.server, listening = self.switch.serve(site, f"127.0.0.1:{free_port()}", *words)
        self.address, self.pin = listening["address"], listening["pin"]
        # Those of the first generation, and of each one after it.
        self.crowds = []
        self.came, self.failed, self.ended = 0, [], False
        self.coming = threading.Thread(target=self.new_connections)

    def serving(self):
        return [program["pid"] for program in self.switch.programs() if program["state"] == "serving"]

    def hold(self, connections, *words):
        words = ("--ports", str(min(connections, 250)), *words)
        crowd = Crowd(self.arguments.quicket, self.address, self.pin, "localhost", connections, self.arguments.ask_every, *words)
        self.crowds.append(crowd)
        crowd.come()

    def new_connections(self):
        while not self.ended:
            url = f"https://{self.address.replace('127.0.0.1', 'localhost')}/who"
            got = subprocess.run([self.arguments.quicket, "get", "-4", "--pin", self.pin, "--output", "/dev/null", url],
                                 capture_output=True, text=True)
            if got.returncode:
                self.failed.append(got.stderr)
            self.came += 1
            time.sleep(0.1)

    def upgrade(self, number, since):
        before = self.serving()
        begun = time.monotonic()
        self.switch.run("upgrade")
        until("the next generation serves", lambda: (now := self.serving()) and now != before)
        took = time.monotonic() - begun
        self.hold(self.arguments.stay)
        self.whole(f"after upgrade {number}")
        print(f"{time.monotonic() - since:6.0f} s  upgrade {number}: the next generation serves after {took:.2f} s; "
              f"{self.answers()} answers, {self.came} new connections", flush=True)

    def answers(self):
        return sum(crowd.counts["answers"] for crowd in self.crowds)

    def whole(self, when):
        whole(self.crowds, when)
        assert not self.failed, f"{when}: {self.failed[:3]}"

    def side_by_side(self):
        """All generations are there, each with the connections that came while it was the newest."""
        count, first = self.arguments.upgrades + 1, self.arguments.connections

        def there():
            programs = self.switch.programs()
            states = collections.Counter(program["state"] for program in programs)
            # One whose answer was late has no count for the moment.
            held = sorted(program["connections"] or 0 for program in programs)
            return (len({program["generation"] for program in programs}) == len({program["pid"] for program in programs}) == count
                    and states == {"serving": 1, "draining": count - 1}
                    and held[0] >= self.arguments.stay and held[-1] >= first)

        until(f"{count} generations are side by side", there)
        return count

    def run(self):
        since = time.monotonic()
        self.hold(self.arguments.connections, "--move-every", f"{self.arguments.every}s")
        print(f"{time.monotonic() - since:6.0f} s  {self.arguments.connections} connections are open", flush=True)
        self.switch.helps()
        self.coming.start()
        for number in range(1, self.arguments.upgrades + 1):
            begun = time.monotonic()
            self.upgrade(number, since)
            time.sleep(max(0, self.arguments.every - (time.monotonic() - begun)))
        generations = self.side_by_side()
        self.switch.helps()
        self.ended = True
        self.coming.join()
        self.whole("in the end")
        held = sum(crowd.connections for crowd in self.crowds)
        print(f"{self.arguments.upgrades} upgrades, {generations} generations side by side: 0 of {held} connections lost, none of "
              f"{self.answers()} requests and none of {self.came} new connections failed")
        waits = collections.Counter()
        for crowd in self.crowds:
            waits.update({int(limit): count for limit, count in crowd.counts["waits"].items()})
        print("answers within milliseconds: " + ", ".join(f"{limit}: {count}" for limit, count in sorted(waits.items())))
        print(self.switch.run("status"))

    def end(self):
        self.ended = True
        for crowd in self.crowds:
            crowd.end()
        if self.coming.is_alive():
            self.coming.join()
        self.switch.end()
        self.server.kill()
        self.server.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quicket", type=lambda path: str(pathlib.Path(path).resolve()), required=True)
    parser.add_argument("--connections", type=int, default=10_000, help="of the first generation")
    parser.add_argument("--stay", type=int, default=50, help="new connections that stay with each generation")
    parser.add_argument("--upgrades", type=int, default=20)
    parser.add_argument("--every", type=int, default=30, help="seconds between two upgrades")
    parser.add_argument("--ask-every", type=float, default=5, help="seconds between two requests of a connection")
    parser.add_argument("--forward", action="store_true", help="without the kernel's help: the switch forwards every datagram")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="quicket-upgrades-") as folder:
        upgrades = Upgrades(arguments, pathlib.Path(folder))
        try:
            upgrades.run()
        finally:
            upgrades.end()


if __name__ == "__main__":
    main()
