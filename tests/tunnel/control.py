"""Tunnels that are shown and changed while they are carried."""

import json
import socket
import subprocess

from networks import Tunnel, send_all


def changes(quicket, a, b):
    """Tunnels that are shown and changed while they are carried, and ports that come and go."""
    def asks(end, *words, code=0, before=()):
        done = subprocess.run(end.command(*before, *quicket[:-1], *words), text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=60)
        assert done.returncode == code, (words, done)
        return done.stderr if code else done.stdout

    assert asks(a, "show") == "" and "no program carries" in asks(a, "change", "tun1", "ttl", "5", code=6)
    line = "type gre local 192.0.2.{} remote 192.0.2.{} encap gue key 5"
    tunnels = [Tunnel(quicket, a, "tun1", line.format(1, 2), "10.9.0.1/30", workers=2),
               Tunnel(quicket, b, "tun1", line.format(2, 1), "10.9.0.2/30")]
    a.ping("10.9.0.2", 1460)
    assert "carries tun1 already" in subprocess.run(
        a.command(*quicket, "tun1", *line.format(1, 2).split()), text=True, stderr=subprocess.PIPE).stderr
    shown = asks(a, "show")
    assert shown.startswith("tun1: type gre remote 192.0.2.2 local 192.0.2.1 ttl inherit"), shown
    assert "key 5 encap gue encap-sport auto encap-dport 6080 encap-csum" in shown, shown
    report, = json.loads(asks(a, "show", "-s", "-j", "tun1"))
    assert report["ifname"] == "tun1" and report["mtu"] == 1460 and report["counters"]["rx_packets"] >= 2, report
    assert report["linkinfo"]["info_data"]["encap-dport"] == "6080", report
    assert "RX: packets" in asks(a, "show", "-s") and "gue" in asks(a, "port", "show")

    def both(*words):
        for end in a, b:
            asks(end, "change", "tun1", *words)

    mtu = {"encap-remcsum": 1452, "noencap-remcsum": 1460, "nokey seq csum": 1456, "encap fou encap-dport 4754": 1460,
           "encap gue encap-dport 7000": 1456, "encap-sport 7000": 1456}
    for words, expected in mtu.items():
        both(*words.split())
        assert asks(a, "show").endswith(f" mtu {expected}\n"), (words, asks(a, "show"))
        assert f"mtu {expected} " in a.run("ip", "link", "show", "tun1"), words
        a.ping("10.9.0.2", expected)
        b.ping("10.9.0.1", expected)
    send_all(a, b, "10.9.0.2", 1 << 20, socket.AF_INET)
    # What stands alone is seen in its effect.
    asks(a, "change", "tun1", "remote", "192.0.2.77")
    assert not a.ping("10.9.0.2", 100, count=1, check=False)
    asks(a, "change", "tun1", "remote", "192.0.2.2")
    a.ping("10.9.0.2", 100)
    asks(a, "port", "add", "7001", "gue", "peer", "192.0.2.2")
    asks(b, "change", "tun1", "encap-dport", "7001", "encap-sport", "auto")
    b.ping("10.9.0.1", 100, check=False)
    received = json.loads(asks(a, "show", "-s", "-j"))[0]["counters"]["rx_packets"]
    b.ping("10.9.0.1", 100, check=False)
    assert json.loads(asks(a, "show", "-s", "-j"))[0]["counters"]["rx_packets"] >= received + 2, "by the new port"
    asks(a, "port", "del", "7001")
    assert "7001" not in asks(a, "port", "show")
    for wrong, code, why in (["change", "tun1", "tll", "5"], 2, 'did you mean "ttl"'), \
            (["change", "tun1", "type", "ipip"], 2, "does not change"), \
            (["change", "tun1", "local", "192.0.2.99"], 6, "no address of this host"), \
            (["port", "del", "7001"], 2, "no such port"), (["port", "del", "7000"], 2, "another port"), \
            (["port", "add", "7000", "ipproto", "4"], 2, "two meanings"):
        assert why in asks(a, *wrong, code=code), (wrong, why)
    # Who is nobody here sees, and changes nothing.
    nobody = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
    if a.run(*nobody, quicket[0], "--version", check=False):
        assert asks(a, "show", before=nobody) == asks(a, "show")
        assert "only root" in asks(a, "change", "tun1", "ttl", "5", code=6, before=nobody)
    asks(a, "del", "tun1")
    assert tunnels[0].process.wait(timeout=30) == 0 and "tun1" not in a.run("ip", "link")
    assert "no such device" in asks(a, "del", "tun1", code=6)
    tunnels[1].close()
    print("pair: tunnels and ports are shown and changed while they are carried", flush=True)
