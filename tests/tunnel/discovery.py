"""A path that drops what is too long without a word: probes find out what it carries."""

import json

from networks import Tunnel, until


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
