"""A tunnel with many other ends, from a table and by learning, and what a stranger can do about it."""

import json
import socket

from networks import Tunnel, send_all, until

IP_RECVERR = 11

# Types and words, and the version of IP outside.
KINDS = [("sit", "encap gue", 4), ("gre", "key 7", 4), ("ip6gre", "flowlabel inherit encap gue", 6)]


def external(quicket, a, b):
    """In `b` are two other ends, each with an address of its own outside and inside."""
    b.ip("addr", "add", "192.0.2.3/24", "dev", "wire")
    b.ip("addr", "add", "fd00::3/64", "dev", "wire", "nodad")
    try:
        for kind, words, version in KINDS:
            outside = [f"192.0.2.{last}" if version == 4 else f"fd00::{last}" for last in (1, 2, 3)]
            table(quicket, a, b, f"type {kind} {words}", outside)
        learning(quicket, a, b)
    finally:
        b.ip("addr", "del", "192.0.2.3/24", "dev", "wire")
        b.ip("addr", "del", "fd00::3/64", "dev", "wire")


def ends(quicket, b, words, outside):
    """The tunnels of b. Answers leave by the tunnel of their source."""
    tunnels = []
    for number in 2, 3:
        line = f"{words} local {outside[number - 1]} remote {outside[0]}"
        tunnels.append(Tunnel(quicket, b, f"tun{number}", line, f"10.9.{number}.1/32"))
        b.ip("route", "add", "10.9.1.0/24", "dev", f"tun{number}", "table", str(number))
        b.ip("rule", "add", "from", f"10.9.{number}.1", "lookup", str(number))
    return tunnels


def close(b, tunnels):
    for tunnel in tunnels:
        tunnel.close()
    for number in 2, 3:
        b.ip("rule", "del", "from", f"10.9.{number}.1", "lookup", str(number))


def table(quicket, a, b, words, outside):
    far = ends(quicket, b, words, outside)
    entries = " ".join(f"to 10.9.{number}.0/24 dst {outside[number - 1]}" for number in (2, 3))
    hub = Tunnel(quicket, a, "tun1", f"{words} local {outside[0]} external {entries}", "10.9.1.1/16")
    for number in 2, 3:
        a.ping(f"10.9.{number}.1", hub.mtu)
        assert not a.ping(f"10.9.{number}.1", hub.mtu + 1, count=1, check=False)
        b.run("ping", "-n", "-q", "-c", "2", "-i", "0.02", "-W", "3", "-I", f"10.9.{number}.1", "10.9.1.1")
        send_all(a, b, f"10.9.{number}.1", 1 << 20, socket.AF_INET)
    # Each path has an MTU of its own.
    a.ip("route", "add", f"{outside[2]}/{'128' if ':' in outside[2] else '32'}", "dev", "wire", "mtu", "1400")
    a.ip("link", "set", "tun1", "down")
    a.ip("link", "set", "tun1", "up")
    until("the path is narrower", lambda: not a.ping("10.9.3.1", hub.mtu, count=1, check=False))
    a.ping("10.9.3.1", hub.mtu - 100)
    a.ping("10.9.2.1", hub.mtu)
    a.ip("route", "del", f"{outside[2]}/{'128' if ':' in outside[2] else '32'}", "dev", "wire", "mtu", "1400")
    # Nobody is there: the sender hears it.
    client = a.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.setsockopt(socket.IPPROTO_IP, IP_RECVERR, 1)
    client.connect(("10.9.4.1", 9))
    client.send(b"x")
    until("nobody is there", lambda: client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
    # An end does not send for what is behind another one.
    b.ip("route", "replace", "10.9.1.0/24", "dev", "tun2", "table", "3")
    assert not b.run("ping", "-c", "1", "-W", "1", "-I", "10.9.3.1", "10.9.1.1", check=False)
    assert hub.count("rx_source") >= 1 and hub.counters["tx_unknown"] >= 1, hub.counters
    hub.close()
    close(b, far)
    print(f"pair: {words}: many other ends, from a table", flush=True)


def learning(quicket, a, b):
    outside = ["192.0.2.1", "192.0.2.2", "192.0.2.3"]
    far = ends(quicket, b, "type sit encap gue", outside)
    hub = Tunnel(quicket, a, "tun1", "type sit encap gue local 192.0.2.1 external learn 192.0.2.0/24 allow 10.9.0.0/16 "
                 "ageing 300", "10.9.1.1/16")
    assert not a.ping("10.9.2.1", 100, count=1, check=False), "not known yet"
    for number in 2, 3:
        b.run("ping", "-n", "-q", "-c", "2", "-i", "0.02", "-W", "3", "-I", f"10.9.{number}.1", "10.9.1.1")
        a.ping(f"10.9.{number}.1", hub.mtu)
        send_all(a, b, f"10.9.{number}.1", 1 << 20, socket.AF_INET)
    shown = a.run(quicket[0], "tunnel", "show", "-s")
    assert "learned: to 10.9.2.1 dst 192.0.2.2" in shown and "learn 192.0.2.0/24" in shown, shown
    learned = json.loads(a.run(quicket[0], "tunnel", "show", "-j"))[0]["learned"]
    assert {one["to"]: one["dst"] for one in learned} == {"10.9.2.1": "192.0.2.2", "10.9.3.1": "192.0.2.3"}, learned
    # A stranger claims the address of another end: it gets nothing, and that one keeps it.
    b.ip("route", "replace", "10.9.1.0/24", "dev", "tun2", "table", "3")
    assert not b.run("ping", "-c", "1", "-W", "1", "-I", "10.9.3.1", "10.9.1.1", check=False)
    assert hub.count("rx_source") >= 1, hub.counters
    b.ip("route", "replace", "10.9.1.0/24", "dev", "tun3", "table", "3")
    a.ping("10.9.3.1", 100)
    # With other rules nothing is left of what was learned; with an entry of the table, that counts.
    a.run(quicket[0], "tunnel", "change", "tun1", "to", "10.9.2.0/24", "dst", "192.0.2.3")
    assert not a.ping("10.9.2.1", 100, count=1, check=False)
    a.run(quicket[0], "tunnel", "change", "tun1", "noto")
    a.ping("10.9.2.1", 100)
    a.run(quicket[0], "tunnel", "change", "tun1", "nolearn", "learn", "192.0.2.2/32")
    assert not a.ping("10.9.2.1", 100, count=1, check=False)
    before = hub.strays["rx_peer"]
    for number, comes in (2, True), (3, False):
        came = b.run("ping", "-c", "1", "-W", "1", "-I", f"10.9.{number}.1", "10.9.1.1", check=False)
        assert came == comes, f"from 192.0.2.{number}"
    hub.count("rx_peer")
    assert hub.strays["rx_peer"] > before, hub.strays
    hub.close()
    close(b, far)
    print("pair: other ends are learned, and strangers take nothing from them", flush=True)
