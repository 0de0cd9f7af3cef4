"""Tunnels between a namespace and a stock kernel, in a virtual machine."""

import contextlib
import os
import socket
import threading
import time

import guest as guests
from networks import Namespace, Tunnel, until

# Types and words here, what `ip` is told there if it is more, the port there, the MTU there, inside.
KERNEL = [
    ("ipip", "encap fou encap-dport 5555", "", "ipproto 4", 1472, "4"),
    ("ipip", "encap fou encap-dport 5555 noencap-csum", "", "ipproto 4", 1472, "4"),
    ("ipip", "encap gue encap-dport 5555", "encap-csum", "gue", 1468, "4"),
    ("ipip", "encap gue encap-dport 5555 encap-sport 5555", "", "gue", 1468, "4"),
    ("ipip", "encap gue encap-dport 5555 encap-version 1", "", "gue", 1468, "4"),
    ("ipip", "encap gue encap-dport 5555 encap-remcsum", "encap-csum encap-remcsum", "gue", 1460, "4"),
    ("sit", "encap fou encap-dport 5555 mode ip6ip", "", "ipproto 41", 1472, "6"),
    ("sit", "encap gue encap-dport 5555", "", "gue", 1468, "46"),
    ("gre", "encap fou encap-dport 5555", "", "ipproto 47", 1468, "46"),
    ("gre", "encap gue encap-dport 5555", "encap-csum", "gue", 1464, "46"),
    ("gre", "encap gue encap-dport 5555 key 77 seq csum", "key 77 seq csum", "gue", 1452, "46"),
    ("gre", "encap gue encap-dport 5555 encap-remcsum", "encap-csum encap-remcsum", "gue", 1456, "46"),
    ("ip6tnl", "encap fou encap-dport 5555 mode ip6ip6", "mode ip6ip6", "-6 ipproto 41", 1452, "6"),
    ("ip6tnl", "encap gue encap-dport 5555 mode any", "mode any", "-6 gue", 1448, "46"),
    ("ip6gre", "encap gue encap-dport 5555", "", "-6 gue", 1444, "46"),
    ("ip6tnl", "encap gue encap-dport 5555 mode any encaplimit 4", "mode any encaplimit 4", "-6 gue", 1440, "46"),
    ("gretap", "encap gue encap-dport 5555 key 5", "key 5", "gue", 1446, "46"),
    ("ip6gretap", "encap fou encap-dport 5555", "", "-6 ipproto 47", 1434, "46"),
    ("ipip", "", "", "", 1480, "4"),
    ("ipip", "nopmtudisc", "nopmtudisc", "", 1480, "4"),
    ("sit", "mode any", "mode any", "", 1480, "46"),
    ("sit", "mode ip6ip", "mode ip6ip", "", 1480, "6"),
    ("gre", "", "", "", 1476, "46"),
    ("gre", "key 77 seq csum", "key 77 seq csum", "", 1464, "46"),
    ("gretap", "key 5", "key 5", "", 1458, "46"),
    ("ip6tnl", "mode any", "mode any", "", 1460, "46"),
    ("ip6tnl", "mode ip6ip6 encaplimit 4", "mode ip6ip6 encaplimit 4", "", 1452, "6"),
    ("ip6gre", "key 3", "key 3", "", 1452, "46"),
    ("ip6gretap", "", "", "", 1442, "46"),
]


# The same for a path of 1400 bytes, and what it leaves inside (as the kernel's own tests of the path MTU have it: less
# 20 or 40 of IP, 8 of UDP, 4 of GUE, and those of GRE).
NARROW = [
    ("ipip", "encap fou encap-dport 5555", "", "ipproto 4", 1372, "4"),
    ("sit", "encap gue encap-dport 5555", "", "gue", 1368, "46"),
    ("gre", "encap gue encap-dport 5555", "", "gue", 1364, "46"),
    ("ip6tnl", "encap fou encap-dport 5555 mode ip6ip6", "mode ip6ip6", "-6 ipproto 41", 1352, "6"),
    ("ip6tnl", "encap gue encap-dport 5555 mode any", "mode any", "-6 gue", 1348, "46"),
    ("ip6gre", "encap gue encap-dport 5555", "", "-6 gue", 1344, "46"),
    ("ipip", "", "", "", 1380, "4"),
    ("ip6gre", "", "", "", 1356, "46"),
]
INSIDE = {"4": ("10.9.0.{}", socket.AF_INET), "6": ("fd09::{}", socket.AF_INET6)}
ECHO = 5002
# Sends each datagram back. There is a perl on each Debian; its modules stay at home.
ECHOES = (f"/sbin/perl -e 'socket(S,10,2,17);bind(S,pack(\"S n N a16 N\",10,{ECHO},0,\"\",0));' "
          "-e 'while(defined($p=recv(S,$d,65535,0))){send(S,$d,0,$p)}' >/dev/null 2>&1 & true")
# The type of an answer to a ping.
ICMP = {"4": 0, "6": 129}


@contextlib.contextmanager
def machine(scratch, backports=False):
    """A namespace, and a guest that is joined to it by a tap."""
    a = Namespace("kernel")
    guest = None
    try:
        a.ip("tuntap", "add", "tap0", "mode", "tap")
        a.ip("addr", "add", "192.0.2.1/24", "dev", "tap0")
        a.ip("addr", "add", "fd00::1/64", "dev", "tap0", "nodad")
        a.ip("link", "set", "tap0", "up")
        started = time.monotonic()
        guest = guests.Guest(scratch, a.name, "tap0", backports)
        print(f"kernel: Linux {guest.version} is up after {time.monotonic() - started:.1f} s", flush=True)
        guest.run("/sbin/ip link set eth0 up; /sbin/ip addr add 192.0.2.2/24 dev eth0; "
                  "/sbin/ip addr add fd00::2/64 dev eth0 nodad")
        guest.run(ECHOES)
        yield a, guest
    finally:
        if guest:
            guest.close()
        a.remove()


def newer_kernel(quicket, scratch):
    kernel(quicket, scratch, backports=True)


def kernel(quicket, scratch, backports=False):
    with machine(scratch, backports) as (a, guest):
        for kind, words, there, port, mtu, families in KERNEL:
            combination(quicket, a, guest, kind, words, there, port, mtu, families)
        for words, there, port in IMPAIRED:
            impaired(quicket, a, guest, words, there, port)
        narrow(quicket, a, guest)


# Types and words here, what `ip` is told there if it is more, and the port there.
IMPAIRED = [
    ("ipip encap gue encap-dport 5555", "encap-csum", "gue"),
    ("gre encap gue encap-dport 5555 key 77 seq csum", "key 77 seq csum", "gue"),
    ("sit", "mode any", ""),
]
# Of what the guest sends, a part is lost, comes twice, late, or with a bit turned over.
IMPAIRMENT = "delay 5ms 2ms loss 1% duplicate 1% reorder 5% 50% corrupt 0.5%"


def impaired(quicket, a, machine, words, there, port):
    """A bad link from the guest: TCP gets every byte right all the same, or the tunnel made it worse."""
    kind = words.split()[0]
    tunnel = Tunnel(quicket, a, "tun1", f"type {words} local 192.0.2.1 remote 192.0.2.2", "10.9.0.1/30")
    encap = "encap gue encap-sport auto encap-dport 5555" if port else ""
    if port:
        machine.run("/sbin/ip fou add port 5555 gue")
    machine.run(f"/sbin/ip link add tun1 type {kind} local 192.0.2.2 remote 192.0.2.1 ttl 64 {encap} {there}")
    machine.run("/sbin/ip addr add 10.9.0.2/30 dev tun1; /sbin/ip link set tun1 up")
    machine.run(f"/sbin/tc qdisc add dev eth0 root netem {IMPAIRMENT}")
    turns = 0
    while turns < 2 or link_drops(machine) == 0:
        assert turns < 10, f"{words}: the link lost nothing"
        bulk(a, machine, "10.9.0.{}", socket.AF_INET, words, size=1 << 17)
        turns += 1
    machine.run("/sbin/tc qdisc del dev eth0 root; /sbin/ip link del tun1")
    if port:
        machine.run("/sbin/ip fou del port 5555")
    tunnel.close()
    print(f"kernel: {words}: TCP is right over a link with {IMPAIRMENT}", flush=True)


def link_drops(machine):
    return int(machine.run("/sbin/tc -s qdisc show dev eth0").split("dropped ")[1].split(",")[0])



def ends(kind):
    """The outer addresses, here and there."""
    return ("fd00::1", "fd00::2") if kind.startswith("ip6") else ("192.0.2.1", "192.0.2.2")


@contextlib.contextmanager
def theirs(guest, kind, local, remote, words, there, port):
    """The tunnel of the guest; its MTU."""
    encap = f"encap {'fou' if 'encap fou' in words else 'gue'} encap-sport auto encap-dport 5555" if port else ""
    more = "" if "nopmtudisc" in there else "ttl 64"
    if kind.startswith("ip6"):
        more = "" if "encaplimit" in there else "encaplimit none"
    listen = f"/sbin/ip {'-6 ' if '-6' in port else ''}fou add port 5555 {port.replace('-6 ', '')} && " if port else ""
    # Since a check of March 2024 (Linux 6.9, in 6.1.192 too) Linux drops what its receive offload has joined
    # of GRE in UDP: it counts UDP InErrors. Whoever has such a peer turns the offload off there.
    joined = 1000 if "gre" in kind and port else 65536
    guest.run(f"{listen}/sbin/ip link add tun1 type {kind} local {local} remote {remote} {more} {encap} {there} && "
              "/sbin/ip addr add 10.9.0.2/30 dev tun1 && /sbin/ip addr add fd09::2/64 dev tun1 nodad && "
              f"/sbin/ip link set tun1 up && /sbin/ip link set eth0 gro_max_size {joined}")
    try:
        yield int(guest.run("cat /sys/class/net/tun1/mtu").split()[-1])
    finally:
        forget = f"/sbin/ip {'-6 ' if '-6' in port else ''}fou del port 5555" if port else "true"
        guest.run(f"/sbin/ip link del tun1; {forget}")


def combination(quicket, a, guest, kind, words, there, port, mtu, families, size=1 << 20):
    """Packets of all kinds and sizes, both ways, with as many bytes of TCP."""
    here, remote = ends(kind)
    what = f"{kind} {words} / {there or 'plain'}"
    with contextlib.closing(Tunnel(quicket, a, "tun1", f"type {kind} local {here} remote {remote} {words}",
                                   "10.9.0.1/30 fd09::1/64")) as tunnel, \
            theirs(guest, kind, remote, here, words, there, port) as other:
        assert other == mtu and tunnel.mtu == mtu + (4 if "encap-version" in words else 0), \
            f"{what}: MTU {tunnel.mtu} here, {other} there, {mtu} expected"
        for family in families:
            address, kind_of = INSIDE[family]
            for length in 100, mtu - 1, mtu:
                a.ping(address.format(2), length, count=1)
            a.ping(address.format(2), 3000, count=1, fragment="dont")
            guest.run(f"ping -c 1 -W 3 -s {mtu - (28 if family == '4' else 48)} {address.format(1)}")
            bulk(a, guest, address, kind_of, what, size)
            datagrams(a, address.format(2), kind_of, mtu, what)
            marks(a, address.format(2), family, what)
            too_long(a, address.format(2), tunnel.mtu, what)
    print(f"kernel: {what}: mtu {mtu}", flush=True)


def too_long(a, address, mtu, what):
    """The device lets more in than the path carries: the sender is told how much that is, by us."""
    a.ip("link", "set", "tun1", "mtu", "2000")
    assert not a.ping(address, mtu + 1, count=1, check=False), f"{what}: {mtu + 1} bytes got through"
    route = a.run("ip", "route", "get", address)
    assert f"mtu {mtu}" in route, f"{what}: the sender was not told {mtu}: {route}"
    a.ping(address, mtu, count=1)
    a.ip("link", "set", "tun1", "mtu", str(mtu))


def datagrams(a, address, family, mtu, what):
    """UDP both ways, whole and in fragments: each datagram comes back as it was."""
    headers = 28 if family == socket.AF_INET else 48
    client = a.socket(family, socket.SOCK_DGRAM)
    client.settimeout(1)
    client.connect((address, ECHO))
    for size in 0, 1, 999, mtu - headers - 1, mtu - headers, mtu - headers + 1, 4000:
        data = os.urandom(size)
        # UDP may lose one where the guest has no room for it.
        for turn in range(20):
            client.send(data)
            with contextlib.suppress(TimeoutError):
                back = client.recv(65535)
                break
        else:
            raise SystemExit(f"{what}: a datagram of {size} bytes does not come back")
        assert back == data, f"{what}: a datagram of {size} bytes is another one"
        # Nothing late may be taken for the next one.
        drain(client)
    client.close()


def drain(client):
    client.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            client.recv(65535)
    client.settimeout(1)


def marks(a, address, family, what):
    """ECN: outside as inside, and inside as it was. The guest answers a ping with the field that arrives there."""
    protocol = 0x0800 if family == "4" else 0x86dd
    answer = ICMP[family]
    inner = a.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(protocol))
    inner.bind(("tun1", protocol))
    inner.settimeout(10)
    outer = a.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
    outer.bind(("tap0", 3))
    outer.settimeout(10)
    pattern = os.urandom(16)

    def field(packet):
        return (packet[1] if packet[0] >> 4 == 4 else int.from_bytes(packet[:2]) >> 4) & 3

    def find(tap, right):
        until_ = time.monotonic() + 10
        while time.monotonic() < until_:
            packet, (_, _, direction, *_) = tap.recvfrom(4000)
            if pattern in packet and right(packet, direction):
                return packet
        raise SystemExit(f"{what}: no ping of ours on the way")

    for mark in 0, 1, 2, 3:
        a.run("ping", "-n", "-q", "-c", "1", "-W", "3", "-Q", str(mark), "-p", pattern.hex(), address)
        sent = find(outer, lambda packet, direction: direction == socket.PACKET_OUTGOING)
        assert field(sent) == mark, f"{what}: {mark} inside is {field(sent)} outside"
        header = 20 if family == "4" else 40
        back = find(inner, lambda packet, direction: direction != socket.PACKET_OUTGOING and packet[header] == answer)
        assert field(back) == mark, f"{what}: {mark} comes back as {field(back)}"
    inner.close()
    outer.close()


def narrow(quicket, a, guest):
    """A router between our end and the guest, behind which the path becomes narrower."""
    far = Namespace("far")
    try:
        far.ip("link", "add", "way", "type", "veth", "peer", "name", "far", "netns", a.name)
        for where, name, last in (far, "way", 1), (a, "far", 254):
            where.ip("addr", "add", f"198.51.100.{last}/24", "dev", name)
            where.ip("addr", "add", f"fd01::{last}/64", "dev", name, "nodad")
            where.ip("link", "set", name, "up")
        a.run("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
        far.ip("route", "add", "192.0.2.0/24", "via", "198.51.100.254")
        far.ip("-6", "route", "add", "fd00::/64", "via", "fd01::254")
        guest.run("/sbin/ip route add 198.51.100.0/24 via 192.0.2.1; /sbin/ip -6 route add fd01::/64 via fd00::1")
        for kind, words, there, port, mtu, families in NARROW:
            here, remote = ("fd01::1", "fd00::2") if kind.startswith("ip6") else ("198.51.100.1", "192.0.2.2")
            what = f"{kind} {words} / {there or 'plain'}"
            a.ip("link", "set", "tap0", "mtu", "1500")
            for version in "-4", "-6":
                far.ip(version, "route", "flush", "cache")
            line = f"type {kind} local {here} remote {remote} {words}"
            tunnel = Tunnel(quicket, far, "tun1", line, "10.9.0.1/30 fd09::1/64")
            assert tunnel.mtu == mtu + 100, f"{what}: {tunnel.mtu}"
            with theirs(guest, kind, remote, here, words, there, port):
                for family in families:
                    far.ping(INSIDE[family][0].format(2), mtu + 100, count=1)
                a.ip("link", "set", "tap0", "mtu", "1400")
                for family in families:
                    address, kind_of = INSIDE[family]
                    until(f"{what}: the sender is told {mtu}",
                          lambda: f"mtu {mtu}" in far.run("ip", "route", "get", address.format(2))
                          or (far.ping(address.format(2), mtu + 100, count=1, check=False), False)[1])
                    far.ping(address.format(2), mtu, count=1)
                    assert not far.ping(address.format(2), mtu + 1, count=1, check=False), f"{what}: {mtu + 1}"
                    far.ping(address.format(2), mtu + 100, count=1, fragment="dont")
                    bulk(far, guest, address, kind_of, what)
            tunnel.close()
            print(f"kernel: {what}: a path of 1400 bytes leaves {mtu} inside", flush=True)
    finally:
        far.remove()


def bulk(a, machine, address, family, what, size=1 << 20):
    """TCP in both directions at once, through offloads here and there: an echo of a megabyte."""
    data = os.urandom(size)
    machine.start("nc -l -p 5001 -e cat & true")
    machine.finish("nc")
    deadline = time.monotonic() + 20
    while True:
        client = a.socket(family, socket.SOCK_STREAM)
        client.settimeout(30)
        try:
            client.connect((address.format(2), 5001))
            break
        except ConnectionRefusedError:
            client.close()
            if time.monotonic() > deadline:
                raise SystemExit(f"{what}: nobody listens in the guest")
            time.sleep(0.05)
    sender = threading.Thread(target=lambda: (client.sendall(data), client.shutdown(socket.SHUT_WR)))
    sender.start()
    back = bytearray()
    while piece := client.recv(1 << 16):
        back += piece
    sender.join()
    client.close()
    if bytes(back) != data:
        raise SystemExit(f"{what}: {len(back)} bytes came back of {size}, or others")
