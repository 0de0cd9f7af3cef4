"""Many connections at once, which live through everything that happens to a site, but for the death of their server."""

import json
import os
import pathlib
import subprocess
import threading
import time

from networks import until
from site_of_three import ADDRESS, BALANCERS, PORT, SERVERS, Server

# A NAT of the lab between the clients and the site: all ports outside change at once.
NAT, REBINDINGS = 5555, "every 3s rebind=port"

# New connections that show that a server gets none: one of four is missed by chance once in a thousand runs.
TRIES = 25
# The four times that all are answered with both balancers at work take six seconds at least.
CHANGES = 4
# Stateless resets of clients that may look as if they named a server; of packets of connections there are thousands.
RESETS = 20


class Hold:
    """`quicket lab hold` in the namespace of the client: connections that ask again and again who answers."""

    def __init__(self, site, connections, every, idle):
        self.connections, self.lines, self.counts = connections, 0, {}
        self.process = site.start(
            site.client, "lab", "hold", "--pin", site.pin, "--connections", str(connections), "--ports",
            str(min(connections, 250)), "--every", f"{every}s", "--idle", f"{idle}s", f"127.0.0.1:{NAT}", "/who", ready=0)
        threading.Thread(target=self.listen, daemon=True).start()
        site.drain(self.process)

    def listen(self):
        for line in self.process.stdout:
            self.counts = json.loads(line)
            self.lines += 1

    def told(self, what, condition, seconds=120):
        try:
            until(what, lambda: self.counts and condition(self.counts), seconds)
        except SystemExit as error:
            raise SystemExit(f"{error}: {self.counts}") from error

    def all_answer(self, what, lost=None):
        """Every connection that should be there has been answered since now; no other is lost, and none has moved."""
        alive = self.connections - sum((lost or {}).values())
        # More answers than there are connections, several times over: each has asked again.
        asked = self.counts["answers"] + 3 * alive
        self.told(f"all connections are answered {what}", lambda counts: counts["answers"] >= asked)
        self.told(f"no answer is late {what}", lambda counts: counts["silent"] == 0)
        counts = self.counts
        assert counts["failed"] == 0, f"{what}: {counts}"
        assert counts["lost"] == (lost or {}), f"{what}: {counts}"
        assert counts["strayed"] == 0 and counts["refused"] == 0, f"{what}: {counts}"
        assert sum(counts["open"].values()) == alive, f"{what}: {counts}"


class Toggle:
    """The way to the site leads over each balancer in turn, so that each connection meets both."""

    def __init__(self, site):
        self.site, self.ended, self.changes = site, threading.Event(), 0
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.ended.wait(0.7):
            self.site.route(BALANCERS[(self.changes + 1) % len(BALANCERS)])
            self.changes += 1

    def end(self, balancer):
        self.ended.set()
        self.thread.join()
        assert self.changes >= CHANGES, f"the balancer changed {self.changes} times only"
        self.site.route(balancer)


def everywhere(site, states, **words):
    """All balancers read their files anew, with words for some servers, and say what states these are in."""
    for balancer in site.balancers.values():
        if balancer.process.poll() is None:
            balancer.write(**words)
            balancer.read_again()
            balancer.wait_for(**states)


def survive(site, connections, every, idle, peers):
    """The connections are lost only with the server that dies."""
    nat = site.start(site.client, "lab", "link", "--listen", f"127.0.0.1:{NAT}", "--to", f"{ADDRESS}:{PORT}",
                     "--scenario", REBINDINGS, "--json", "-", ready=0)
    assert "link from" in nat.stderr.readline()
    site.drain(nat)
    started = time.monotonic()
    hold = Hold(site, connections, every, idle)
    hold.told("all are connected", lambda counts: sum(counts["open"].values()) == connections)
    opened = time.monotonic() - started
    assert all(hold.counts["open"].get(name, 0) > connections // 10 for name in SERVERS), hold.counts
    toggle = Toggle(site)
    hold.all_answer("through two balancers in turn, from ports that change")
    forwarded(site, "before others come")
    strangers(site, peers)

    for more, readers in ("issue 0\n", site.balancers), ("issue 1\n", site.servers):
        site.write_ids(more, (0, 12), (1, 12))
        for reader in readers.values():
            reader.read_again()
    hold.all_answer("while configurations are rotated")
    forwarded(site, "while configurations are rotated")

    SERVERS["south"] = 4
    site.servers["south"] = Server(site, "south")
    everywhere(site, {"south": "serving"})
    hold.all_answer("after a server was added")
    assert any(new_connection(site) == "south" for _ in range(60)), "a new server gets no new connection"
    strangers(site, peers)

    everywhere(site, {"west": "draining"}, west="drain")
    hold.all_answer("while a server drains")
    reached = {new_connection(site) for _ in range(TRIES)}
    assert "west" not in reached, reached

    first, second = BALANCERS
    toggle.end(second)
    site.balancers[first].process.kill()
    hold.all_answer("after a balancer was killed")

    victim = hold.counts["open"]["north"]
    site.servers["north"].process.kill()
    hold.told("those of the server that was killed are lost", lambda counts: counts["open"]["north"] == 0)
    hold.all_answer("but those of the server that was killed", lost={"north": victim})
    strangers(site, peers)
    reached = {new_connection(site) for _ in range(TRIES)}
    assert not reached & {"north", "west"}, reached
    forwarded(site, "to the end")

    hold.process.terminate()
    nat.terminate()
    rebindings = json.loads(nat.stdout.read())["nat"]["rebindings"]
    assert rebindings >= 3, rebindings
    del SERVERS["south"]
    print(f"balance: of {connections} connections, opened in {opened:.1f} s, the {victim} were lost whose server was "
          f"killed; all others lived through {rebindings} rebindings of all, {toggle.changes} changes of the balancer, a "
          f"rotation, a server added, one drained, and a balancer killed; {hold.counts['answers']} answers", flush=True)


def alive(site):
    """The balancers that were not killed, by their numbers."""
    return [(number, balancer) for number, balancer in site.balancers.items() if balancer.process.poll() is None]


def forwarded(site, what):
    """Balancers that are at work have dropped nothing, and went by connection IDs for nearly all."""
    for number, balancer in alive(site):
        counters = balancer.status()["counters"]
        wrong = {name: counters[name] for name in ("malformed", "too_big", "no_server", "send_refused", "version_negotiation",
                                                   "expired") if counters[name]}
        assert not wrong, f"{number}, {what}: {wrong}"
        assert counters["named"] > 2 * (counters["kept"] + counters["hashed"]), f"{number}, {what}: {counters}"
        # Clients answer with stateless resets what is not for them, as after they have closed, or where a NAT gives the port
        # to another one (RFC 9000, Section 10.3). Their octets are random, and of two configurations one of four has the
        # number of one.
        assert counters["unknown_server"] <= RESETS, f"{number}, {what}: {counters}"


def new_connection(site):
    """Who answers on a new connection; if nobody does, what the balancers say of it."""
    before = {number: balancer.status()["counters"] for number, balancer in alive(site)}
    try:
        return site.who()
    except AssertionError as error:
        said = [str(error)]
        for number, balancer in alive(site):
            status = balancer.status()
            grown = {name: value - before[number][name] for name, value in status["counters"].items()}
            said.append(f"{number}: {({name: value for name, value in grown.items() if value})}, "
                        f"{[(server['name'], server['state']) for server in status['servers']]}")
        raise SystemExit("\n".join(said)) from error


def strangers(site, peers):
    """Other implementations fetch files over connections of their own, all at once."""
    authority, = (site.scratch / "data").rglob("self-signed.pem")
    running = []
    for name, program in peers.items():
        for turn in range(3):
            out = site.scratch / f"{name}{turn}"
            out.mkdir(exist_ok=True)
            command = site.client.command(
                *program, "client", "--connect", f"127.0.0.1:{NAT}", "--ca", str(authority), "--server-name", "localhost",
                "--alpn", "hq-interop", "--parallel", "--download", "/who", "--download", "/large", "--out", str(out))
            running.append((name, out, subprocess.Popen(command, text=True, stdout=subprocess.PIPE,
                                                        stderr=subprocess.PIPE)))
    for name, out, process in running:
        said, errors = process.communicate(timeout=120)
        assert process.returncode == 0, f"{name}: {said}{errors}"
        assert (out / "large").read_bytes() == site.large, f"{name}: another file"
        assert (out / "who").read_text() in SERVERS, name


def built(folder):
    """The programs of other implementations that the lab has built, and the names of those that it has not."""
    places = {"quinn": "cargo/release/quicket-peer-quinn", "quic-go": "quic-go-peer"}
    found = {name: pathlib.Path(folder) / place for name, place in places.items()}
    have = {name: [str(place.absolute())] for name, place in found.items() if os.access(place, os.X_OK)}
    return have, sorted(set(places) - set(have))
