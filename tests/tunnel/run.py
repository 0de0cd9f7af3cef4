"""Tunnels between network namespaces, and between a namespace and a stock kernel.

usage: run.py --quicket PROGRAM --scratch FOLDER [--carry] [pair] [kernel] [newer-kernel] [matrix]

Makes network namespaces and removes them. Needs root, iproute2, ping, tshark; for `kernel` also
QEMU, busybox and Debian's kernel package, which is unpacked to the scratch folder. `newer-kernel`
takes the one of Debian's backports; `matrix` goes through all that both sides can be told to do. These two are not
among the parts that run if none is named.
"""

import argparse
import os
import pathlib
import socket
import subprocess
import sys
import time

sys.dont_write_bytecode = True
import kernel  # noqa: E402
import matrix  # noqa: E402
import service  # noqa: E402
import strangers  # noqa: E402
from control import changes  # noqa: E402
from discovery import discovery  # noqa: E402
from dissected import dissected  # noqa: E402
from external import external  # noqa: E402
from fields import firewall_marks, limits, marks  # noqa: E402
from fragments import fragments  # noqa: E402
from networks import Namespace, Tunnel, ip, send_all, veth  # noqa: E402
from pmtu import narrow  # noqa: E402

# Words of the type, those of the encapsulation, the MTU of a path of 1500 bytes, and what is inside.
PAIRS = [
    ("ipip", "encap gue", 1468, "4"),
    ("ipip", "encap gue encap-version 1", 1472, "4"),
    ("ipip", "encap gue encap-remcsum", 1460, "4"),
    ("ipip", "encap fou encap-dport 5555 noencap-csum", 1472, "4"),
    ("sit", "encap gue", 1468, "46"),
    ("gre", "encap gue key 7 seq csum", 1452, "46"),
    ("gre", "encap fou encap-sport 4754", 1468, "46"),
    ("ip6tnl", "encap gue", 1448, "46"),
    ("ip6tnl", "encap fou encap-dport 5555 mode ip6ip6 noencap-udp6-csum", 1452, "6"),
    ("ip6gre", "encap gue encap-remcsum", 1436, "46"),
    ("ip6gre", "encap gue encaplimit 3", 1436, "46"),
    ("gretap", "encap gue key 3", 1446, "46"),
    ("ip6gretap", "encap fou", 1434, "46"),
    ("ipip", "encap none", 1480, "4"),
    ("sit", "", 1480, "46"),
    ("gre", "key 7 seq csum", 1464, "46"),
    ("gretap", "", 1462, "46"),
    ("ip6tnl", "mode any", 1460, "46"),
    ("ip6gre", "key 9 encaplimit 3", 1444, "46"),
]


def pair(quicket, scratch):
    a, b = Namespace("a"), Namespace("b")
    try:
        veth(a, b)
        for kind, words, mtu, families in PAIRS:
            outer = ("192.0.2.1", "192.0.2.2") if not kind.startswith("ip6") else ("fd00::1", "fd00::2")
            tunnels = []
            for end, local, remote, last in (a, *outer, "1"), (b, *reversed(outer), "2"):
                address = f"10.9.0.{last}/30 fd09::{last}/64"
                line = f"type {kind} local {local} remote {remote} {words}"
                tunnels.append(Tunnel(quicket, end, "tun1", line, address))
            assert tunnels[0].mtu == mtu, f"{kind} {words}: {tunnels[0].mtu}, not {mtu}"
            speeds = []
            for family, address, kind_of in ("4", "10.9.0.2", socket.AF_INET), ("6", "fd09::2", socket.AF_INET6):
                if family not in families:
                    continue
                for size in 100, mtu - 1, mtu:
                    a.ping(address, size)
                if a.ping(address, mtu + 1, check=False):
                    raise SystemExit(f"{kind} {words}: a packet of {mtu + 1} bytes got through")
                a.ping(address, 4000, fragment="dont")
                speeds.append(send_all(a, b, address, 8 << 20, kind_of))
                speeds.append(send_all(b, a, address.replace("2", "1") if family == "4" else "fd09::1", 8 << 20, kind_of))
            rates = ", ".join(f"{speed * 8 / 1e9:.1f}" for speed in speeds)
            print(f"pair: {kind} {words}: mtu {mtu}, {rates} Gbit/s", flush=True)
            for tunnel in tunnels:
                tunnel.close()
        copies(quicket, a, b)
        marks(quicket, a, b)
        marks(quicket, a, b, raw=True)
        limits(quicket, a, b)
        limits(quicket, a, b, "none")
        firewall_marks(quicket, a, b)
        fragments(quicket, a, b)
        if quicket[-1] == "add":
            together(quicket, a, b, scratch)
            changes(quicket, a, b)
            external(quicket, a, b)
            discovery(quicket, a, b)
            service.service(quicket, a, b, scratch)
            service.in_order(quicket, a, b)
            strangers.taken_apart(quicket, a, b)
            dissected(quicket, a, b)
            strangers.attacked(quicket, a, b)
        narrow(quicket, a, b)
    finally:
        a.remove()
        b.remove()


def each_once(a, b):
    for number, *_ in COPIES:
        answer = a.run("ping", "-n", "-c", "20", "-i", "0.01", "-W", "3", f"10.9.{number}.2")
        assert "20 received" in answer and "duplicates" not in answer, answer
        send_all(a, b, f"10.9.{number}.2", 1 << 20, socket.AF_INET)


def together(quicket, a, b, scratch):
    """The same four, by one program at each end."""
    running = []
    for end, local, remote, last in (a, "192.0.2.1", "192.0.2.2", 1), (b, "192.0.2.2", "192.0.2.1", 2):
        file = scratch / f"together{last}"
        file.write_text("".join(f"add tun{number} type {kind} local {local} remote {remote} {words}\n"
                                for number, kind, words in COPIES))
        running.append((end, subprocess.Popen(end.command(*quicket[:-1], "run", "--workers", "2", str(file)), text=True,
                                              stderr=subprocess.PIPE)))
        for number, *_ in COPIES:
            line = running[-1][1].stderr.readline()
            assert "ready" in line, line
            end.ip("addr", "add", f"10.9.{number}.{last}/30", "dev", f"tun{number}")
            end.ip("link", "set", f"tun{number}", "up")
    each_once(a, b)
    # A change has sockets of its own, which get packets while those before still do.
    flood = subprocess.Popen(a.command("ping", "-n", "-q", "-i", "0.002", "-c", "1500", "10.9.1.2"), text=True,
                             stdout=subprocess.PIPE)
    for turn in range(20):
        b.run(*quicket[:-1], "change", "tun1", *(["encap", "none", "nopmtudisc"] if turn % 2 == 0 else ["pmtudisc"]))
    said = flood.communicate(timeout=60)[0]
    assert "duplicates" not in said, said
    assert int(said.split(" received")[0].split()[-1]) > 1400, said
    for end, process in running:
        process.terminate()
        process.wait(timeout=30)
        for number, *_ in COPIES:
            end.ip("link", "del", f"tun{number}")
    print("pair: four tunnels without UDP of one program have each their packets, once, also while one changes", flush=True)


COPIES = [(1, "gre", "key 1"), (2, "gre", "key 2 seq"), (3, "sit", ""), (4, "gre", "encap fou")]


def copies(quicket, a, b):
    """Tunnels without UDP between the same addresses: the sockets of all get a copy of each packet."""
    tunnels = []
    for number, kind, words in COPIES:
        for end, local, remote, last in (a, "192.0.2.1", "192.0.2.2", 1), (b, "192.0.2.2", "192.0.2.1", 2):
            line = f"type {kind} local {local} remote {remote} {words}"
            tunnels.append(Tunnel(quicket, end, f"tun{number}", line, f"10.9.{number}.{last}/30"))
    # Each by a program of its own.
    each_once(a, b)
    for tunnel in tunnels:
        tunnel.close()
    print("pair: tunnels without UDP between the same addresses have each their packets, once", flush=True)


def prerequisites():
    """Ends with a sentence where the machine lacks what the tests need: nothing is left out in silence."""
    if os.geteuid() != 0:
        raise SystemExit("the tunnel's tests make network namespaces: run them as root")
    name = f"quicket-tunnel-{os.getpid()}-probe"
    made = subprocess.run(["ip", "netns", "add", name], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if made.returncode != 0:
        raise SystemExit(f"this machine makes no network namespaces, which the tunnel's tests need: {made.stdout}")
    try:
        made = subprocess.run(["ip", "-n", name, "tuntap", "add", "probe", "mode", "tun"], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if made.returncode != 0:
            raise SystemExit(f"this machine makes no TUN devices (module tun, /dev/net/tun), which the tunnel's "
                             f"tests need: {made.stdout}")
    finally:
        ip("netns", "del", name)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quicket", required=True)
    parser.add_argument("--scratch", required=True, type=pathlib.Path)
    parser.add_argument("--carry", action="store_true", help="the program is the example `carry`")
    parser.add_argument("parts", nargs="*", default=[])
    arguments = parser.parse_args()
    prerequisites()
    arguments.scratch.mkdir(parents=True, exist_ok=True)
    program = os.path.abspath(arguments.quicket)
    quicket = [program] if arguments.carry else [program, "tunnel", "add"]
    parts = {"pair": pair, "kernel": kernel.kernel, "newer-kernel": kernel.newer_kernel, "matrix": matrix.matrix}
    for part in arguments.parts or ["pair", "kernel"]:
        started = time.monotonic()
        parts[part](quicket, arguments.scratch.absolute())
        print(f"{part}: passed in {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
