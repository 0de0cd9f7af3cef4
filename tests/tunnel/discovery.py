"""A path that drops what is too long without a word: probes find out what it carries."""

import json
import socket
import subprocess

from networks import Tunnel, until

# A control message of GUE, type 209: a probe without a number.
PROBE = b"\x20\xd1\0\0QPMT\1\0\0\0"


def discovery(quicket, a, b):
    """The other end of a pair of virtual devices drops what is longer than its own MTU and a tag, in silence."""
    def found():
        return json.loads(a.run(quicket[0], "tunnel", "show", "-j", "tun1"))[0]["discovery"]

    b.ip("link", "set", "wire", "mtu", "1400")
    line = "type sit local 192.0.2.{} remote 192.0.2.{} encap gue"
    tunnels = [Tunnel(quicket, a, "tun1", line.format(1, 2), "10.9.0.1/30 fd09::1/64")]
    a.run(quicket[0], "tunnel", "change", "tun1", "discovery")
    assert tunnels[0].mtu == 1468, tunnels[0].mtu
    until("nobody answers", lambda: tunnels[0].count("tx_probes") > 0)
    assert found() == {"state": "unanswered", "path_mtu": 1500}, "which changes nothing"
    tunnels.append(Tunnel(quicket, b, "tun1", line.format(2, 1), "10.9.0.2/30 fd09::2/64"))
    until("the search is over", lambda: found()["state"] == "complete", 60)
    path = found()["path_mtu"]
    assert 1396 <= path <= 1404, path
    assert f"path {path} (complete)" in a.run(quicket[0], "tunnel", "show")
    for address in "10.9.0.2", "fd09::2":
        assert not a.ping(address, path - 32 + 1, count=1, check=False), "the sender is told"
        a.ping(address, path - 32, count=1)
        assert f"mtu {path - 32}" in a.run("ip", "route", "get", address), "and knows it"
    a.ping("10.9.0.2", 1460, fragment="dont")
    # Narrower, while packets go.
    b.ip("link", "set", "wire", "mtu", "1300")
    until("the path is narrower", lambda: (a.ping("10.9.0.2", 1000, count=1, check=False), found()["path_mtu"] <= 1304)[1], 60)
    a.ping("10.9.0.2", found()["path_mtu"] - 32, count=1)
    assert tunnels[1].count("rx_probes") >= 4 and tunnels[1].counters["tx_probes"] == 0, tunnels[1].counters
    assert tunnels[0].count("rx_probes") > 2 and not tunnels[0].counters["rx_control"], tunnels[0].counters
    for tunnel in tunnels:
        tunnel.close()
    b.ip("link", "set", "wire", "mtu", "1500")
    for end in a, b:
        end.ip("route", "flush", "cache")
    print(f"pair: a path that drops in silence carries {path} bytes, by probes", flush=True)
    hub(quicket, a, b)
    first_answers(quicket, a, b)


def hub(quicket, a, b):
    """An end with many others answers those that it knows: of its table, and who it has learned from."""
    def found():
        return json.loads(a.run(quicket[0], "tunnel", "show", "-j", "tun1"))[0]["discovery"]

    b.ip("link", "set", "wire", "mtu", "1400")
    a.ip("addr", "add", "192.0.2.9/24", "dev", "wire")
    for words, known in ("to 10.9.0.0/30 dst 192.0.2.1", True), ("learn 192.0.2.0/24 allow 10.9.0.0/16", False):
        # Its device takes what the spoke sends at first.
        center = Tunnel(quicket, b, "tun1", f"type sit local 192.0.2.2 encap gue external {words}", "10.9.0.2/30")
        spoke = Tunnel(quicket, a, "tun1", "type sit local 192.0.2.1 remote 192.0.2.2 encap gue discovery", "10.9.0.1/30")
        if not known:
            until("it does not know the spoke", lambda: center.count("rx_peer") or center.strays["rx_peer"] > 0)
            assert center.counters["rx_probes"] == 0 and found()["state"] == "unanswered", center.counters
            a.ping("10.9.0.2", 100, count=1)
        until(f"{words}: the search is over", lambda: found()["state"] == "complete", 60)
        assert 1396 <= found()["path_mtu"] <= 1404, found()
        before = center.strays["rx_peer"]
        stranger = a.socket(socket.AF_INET, socket.SOCK_DGRAM)
        stranger.bind(("192.0.2.9", 0))
        stranger.sendto(PROBE + bytes(8), ("192.0.2.2", 6080))
        until("a stranger is not answered", lambda: (center.count("rx_peer"), center.strays["rx_peer"] > before)[1])
        stranger.close()
        spoke.close()
        center.close()
    a.ip("addr", "del", "192.0.2.9/24", "dev", "wire")
    b.ip("link", "set", "wire", "mtu", "1500")
    for end in a, b:
        end.ip("route", "flush", "cache")
    print("pair: an end with many others answers the probes of those that it knows", flush=True)


def first_answers(quicket, a, b):
    """Of several tunnels between the same addresses one answers, and no other when that has answered enough."""
    program = subprocess.Popen(b.command(*quicket[:-1], "run", "/dev/stdin"), text=True, stdin=subprocess.PIPE,
                               stderr=subprocess.PIPE)
    for number in 1, 2:
        program.stdin.write(f"add tun{number} type gre local 192.0.2.2 remote 192.0.2.1 key {number} encap gue\n")
    program.stdin.close()
    for _ in 1, 2:
        line = program.stderr.readline()
        assert "ready" in line, line
    asking = a.socket(socket.AF_INET, socket.SOCK_DGRAM)
    # Whatever second they come in, most of them are too many.
    for number in range(400):
        asking.sendto(PROBE + number.to_bytes(8), ("192.0.2.2", 6080))

    def counters():
        shown = {one["ifname"]: one["counters"] for one in json.loads(b.run(quicket[0], "tunnel", "show", "-s", "-j"))}
        return shown["tun1"], shown["tun2"]

    until("all are counted", lambda: counters()[0]["rx_probes"] + counters()[0]["rx_control"] == 400)
    first, second = counters()
    assert first["rx_probes"] >= 20 and first["rx_control"] > 0, first
    assert not second["rx_probes"] and not second["rx_control"], second
    asking.close()
    program.terminate()
    program.wait(timeout=30)
    for number in 1, 2:
        b.ip("link", "del", f"tun{number}")
    print("pair: of tunnels between the same addresses one answers probes, up to its limit", flush=True)
