"""A balancer between network namespaces, with servers behind tunnels that answer directly.

usage: run.py --quicket PROGRAM --scratch FOLDER [--peers FOLDER] [--whole]

Makes network namespaces and removes them. Needs root and iproute2.
"""

import argparse
import json
import pathlib
import socket
import struct
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tunnel"))
import many  # noqa: E402
from in_driver import in_the_kernel, intact  # noqa: E402
from networks import Namespace, until  # noqa: E402
from site_of_three import BALANCERS, SERVERS, Relay, Site  # noqa: E402


def downloads(site):
    """New connections reach all servers, and what they fetch is what is there."""
    assert site.fetch("large") == site.large
    seen = {}
    for _ in range(40):
        seen.setdefault(site.who(), 0)
        if len(seen) == len(SERVERS):
            break
    assert seen.keys() == SERVERS.keys(), f"new connections reached {sorted(seen)} only"
    report = site.balancers[BALANCERS[0]].status()
    counters = report["counters"]
    assert counters["named"] > 20 and counters["hashed"] > 0 and counters["initial"] > 0, counters
    lost = {name: counters[name] for name in ("malformed", "no_server", "too_big", "send_full", "send_refused")}
    assert not any(lost.values()), lost
    assert report["reports"]["accepted"] > 2 and not report["reports"]["forged"], report
    print(f"balance: {counters['named']} datagrams by connection ID, {counters['hashed']} flows by hash", flush=True)


def rebindings(site):
    """A client whose port changes again and again keeps its server."""
    with Relay(site) as relay:
        relay.rebind_every = 200
        assert site.fetch("large", relay.address) == site.large
        assert relay.rebindings > 3, relay.rebindings
        print(f"balance: a download survives {relay.rebindings} rebindings", flush=True)


def both(site):
    """Two balancers choose alike for first packets, and either carries on what the other one began."""
    first, second = BALANCERS
    chosen = {}
    for balancer in first, second:
        site.route(balancer)
        chosen[balancer] = [site.who(port) for port in range(20000, 20008)]
    assert chosen[first] == chosen[second], chosen
    assert len(set(chosen[first])) > 1, "the ports were to reach several servers"
    with Relay(site) as relay:
        relay.stop_at = 300
        fetching = site.get("large", relay.address)
        assert relay.stopped.wait(60)
        before = site.balancers[first].counter("named")
        site.route(first)
        relay.go.set()
        assert fetching.communicate(timeout=60)[0] == site.large
        assert site.balancers[first].counter("named") > before
    counters = site.balancers[second].status()["counters"]
    # It has an XDP program: the first packets of each connection ID are what user space has read.
    assert counters["in_kernel"] > 20 and counters["taught"] > 8, counters
    print(f"balance: of {counters['named']} datagrams {counters['in_kernel']} went by the kernel", flush=True)
    print("balance: two balancers choose alike, and one carries on what the other began", flush=True)


def drain(site):
    """A server that drains keeps its connections and takes no new ones."""
    with Relay(site) as relay:
        relay.stop_at = 300
        fetching = site.get("large", relay.address)
        assert relay.stopped.wait(60)
        sent = {s["name"]: s["sent"] for s in site.balancers[BALANCERS[0]].status()["servers"]}
        # The one that this connection is on.
        relay.go.set()
        relay.go.clear()
        relay.stopped.clear()
        relay.stop_at = relay.passed + 300
        assert relay.stopped.wait(60)
        now = {s["name"]: s["sent"] for s in site.balancers[BALANCERS[0]].status()["servers"]}
        busy = max(SERVERS, key=lambda name: now[name] - sent[name])
        for balancer in site.balancers.values():
            balancer.write(**{busy: "drain"})
            balancer.read_again()
            balancer.wait_for(**{busy: "draining"})
        others = {site.who() for _ in range(many.TRIES)}
        assert busy not in others, f"{busy} drains and got a new connection"
        relay.go.set()
        assert fetching.communicate(timeout=60)[0] == site.large
    for balancer in site.balancers.values():
        balancer.write()
        balancer.read_again()
        balancer.wait_for(**{busy: "serving"})
    print(f"balance: {busy} drained: its download went on, new connections went elsewhere", flush=True)


def rotation(site):
    """Connection IDs of another configuration, first read, then written, while a download goes on."""
    with Relay(site) as relay:
        relay.stop_at = 300
        fetching = site.get("large", relay.address)
        assert relay.stopped.wait(60)
        for more, readers in ("issue 0\n", site.balancers), ("issue 1\n", site.servers):
            site.write_ids(more, (0, 12), (1, 12))
            for reader in readers.values():
                reader.read_again()
        relay.go.set()
        assert fetching.communicate(timeout=60)[0] == site.large
    balancer = site.balancers[BALANCERS[0]]
    before = balancer.status()["counters"]
    assert site.fetch("large") == site.large
    after = balancer.status()["counters"]
    # Connection IDs that it cannot read would make a download go by its flow.
    named, kept = (after[name] - before[name] for name in ("named", "kept"))
    assert named > 3 and kept <= named and after["unknown_server"] == before["unknown_server"], (named, kept)
    print("balance: configurations are rotated under a download", flush=True)


def refused_files(site):
    """A file that is wrong changes nothing, and it is said why."""
    balancer = site.balancers[BALANCERS[0]]
    for text, why in (balancer.file.read_text() + "servr x 10.0.0.7\n", 'line 9: "servr" is not known'), \
            (balancer.file.read_text().replace("workers 2", "workers 3"), "workers cannot change"):
        good = balancer.file.read_text()
        balancer.file.write_text(text)
        balancer.read_again(good=False)
        until(why, lambda: why in (balancer.status()["not_read_again"] or ""))
        if "servr" in text:
            done = subprocess.run([*site.quicket, "balance", "--config", balancer.file, "--check"], text=True,
                                  stderr=subprocess.PIPE)
            assert done.returncode == 2 and why in done.stderr, done
        balancer.file.write_text(good)
    assert site.who() in SERVERS
    balancer.read_again()
    assert balancer.status()["not_read_again"] is None
    shown = balancer.namespace.run(*site.quicket, "balance", "--config", str(balancer.file), "--show-config")
    assert "0011223344556677" not in shown and "mtu 1500" in shown, shown
    text = balancer.namespace.run(*site.quicket, "balance", "status", "--prometheus")
    assert 'quicket_balance_server_state{site="192.0.2.1:4433",server="east",state="serving"} 1' in text, text
    print("balance: files that are wrong are refused by their line", flush=True)


def killed(site):
    """Of a server that dies new connections hear nothing once its reports have stopped; one that is stopped
    says that it drains."""
    victim = site.servers["west"]
    victim.process.kill()
    for balancer in site.balancers.values():
        balancer.wait_for(west="down", east="serving", north="serving")
    seen = {site.who() for _ in range(many.TRIES)}
    assert seen == {"east", "north"}, seen
    assert site.fetch("large") == site.large
    print("balance: a server that was killed is down in two seconds, and nobody is sent there", flush=True)


def fields(quicket, scratch):
    """Outer and inner fields, by a socket instead of a tunnel; what does not fit; reports of strangers."""
    scratch.mkdir(parents=True, exist_ok=True)
    a, b = Namespace("a"), Namespace("b")
    process = None
    try:
        a.ip("link", "add", "wire", "type", "veth", "peer", "name", "wire", "netns", b.name)
        for end, last in (a, 1), (b, 2):
            end.ip("addr", "add", f"10.0.0.{last}/24", "dev", "wire")
            end.ip("addr", "add", f"fd00::{last}/64", "dev", "wire", "nodad")
            end.ip("link", "set", "wire", "up")
        file = scratch / "balance"
        file.write_text("listen 10.0.0.1:7000\nlisten [fd00::1]:7000\nserver b 10.0.0.2\n")
        process = subprocess.Popen(a.command(*quicket, "balance", "--config", file), text=True, stderr=subprocess.PIPE)
        assert "ready" in process.stderr.readline()
        gue = b.socket(socket.AF_INET, socket.SOCK_DGRAM)
        gue.bind(("10.0.0.2", 6080))
        gue.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
        gue.settimeout(10)
        for family, address, head in (socket.AF_INET, "10.0.0.1", 20), (socket.AF_INET6, "fd00::1", 40):
            client = b.socket(family, socket.SOCK_DGRAM)
            client.bind(("10.0.0.2" if head == 20 else "fd00::2", 0))
            level, option = (socket.IPPROTO_IP, socket.IP_TOS) if head == 20 else \
                (socket.IPPROTO_IPV6, socket.IPV6_TCLASS)
            most = 1500 - 32 - head - 8
            for size, ecn in (21, 0), (600, 1), (1200, 2), (most, 3):
                client.setsockopt(level, option, 0xb8 | ecn)
                sent = b"\x40" + bytes(range(256)) * 6
                client.sendto(sent[:size], (address, 7000))
                data, extra, _, (source, _) = gue.recvmsg(2000, 64)
                assert source == "10.0.0.1" and extra[0][2][0] == ecn, "the outer mark is a copy, DSCP is not"
                packet = data[4:]
                assert data[:4] == bytes([0, 4 if head == 20 else 41, 0, 0])
                tos = packet[1] if head == 20 else (packet[0] << 4 & 0xf0) | packet[1] >> 4
                ttl = packet[8] if head == 20 else packet[7]
                assert tos == 0xb8 | ecn and ttl == 63, (tos, ttl)
                ports = struct.unpack("!HHH", packet[head:head + 6])
                assert ports == (client.getsockname()[1], 7000, size + 8), ports
                assert packet[head + 8:] == sent[:size]
                pseudo = packet[12:20] if head == 20 else packet[8:40]
                assert intact(pseudo + struct.pack("!HH", 17, size + 8) + packet[head:]), "checksum of UDP"
                assert head == 40 or intact(packet[:20]), "checksum of IPv4"
            client.setsockopt(level, 11 if head == 20 else 25, 1)  # IP_RECVERR, IPV6_RECVERR
            client.sendto(sent[:most + 1], (address, 7000))
            assert told_of(client) == most + head + 8, "what packets may have"
            client.sendto(b"\x40", (address, 7000))
            client.sendto(b"", (address, 7000))
            client.sendto(b"\xc0\0\0\0\0\0\0" + bytes(40), (address, 7000))
            client.sendto(b"\xc0\0\0\0\1\xff", (address, 7000))
        counters = {}

        def counted():
            counters.update(json_of(a, quicket)["counters"])
            return counters["malformed"] == 2
        until("all that was refused is counted", counted)
        assert (counters["too_big"], counters["too_short"], counters["version_negotiation"]) == (2, 4, 2), counters
        assert counters["sent"] == 8 and counters["told"] == 2, counters
    finally:
        if process:
            process.kill()
            process.wait()
        a.remove()
        b.remove()
    print("balance: addresses, TTL, DSCP, ECN and checksums are those of the client", flush=True)


def told_of(client):
    """What the system has heard by ICMP of the MTU on the way of this socket's datagrams."""
    def look():
        try:
            _, extra, _, _ = client.recvmsg(2000, 512, socket.MSG_ERRQUEUE | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        errno, _, _, _, _, mtu, _ = struct.unpack_from("IBBBBII", extra[0][2])
        return (errno, mtu)
    errno, mtu = until("an error by ICMP", look)
    assert errno == 90, errno  # EMSGSIZE
    return mtu


def json_of(namespace, quicket):
    report, = json.loads(namespace.run(*quicket, "balance", "status", "-j"))
    return report


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quicket", required=True, type=pathlib.Path)
    parser.add_argument("--scratch", required=True, type=pathlib.Path)
    parser.add_argument("--peers", default=pathlib.Path(__file__).resolve().parents[2] / "target/lab",
                        help="where the lab builds other implementations (quicket lab peers); those that are there take part")
    parser.add_argument("--whole", action="store_true", help="1,000 connections, and nothing else")
    arguments = parser.parse_args()
    quicket = [str(arguments.quicket.absolute())]
    started = time.monotonic()
    peers, missing = many.built(arguments.peers)
    if missing:
        print(f"balance: LEFT OUT, as the lab has not built them: {', '.join(missing)}", flush=True)
    with Site(quicket, arguments.scratch.absolute() / "many") as site:
        many.survive(site, *((1000, 2, 20) if arguments.whole else (100, 0.5, 6)), peers)
    if arguments.whole:
        return
    fields(quicket, arguments.scratch.absolute())
    in_the_kernel(quicket, arguments.scratch.absolute())
    with Site(quicket, arguments.scratch.absolute()) as site:
        for part in downloads, rebindings, both, drain, rotation, refused_files, killed:
            part(site)
    print(f"balance: passed in {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
