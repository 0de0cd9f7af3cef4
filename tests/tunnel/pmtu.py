"""A path that becomes narrower in the middle: an ICMP error outside becomes one inside."""

import socket

from networks import Namespace, Tunnel, send_all, until

# Types and words, what a path of 1400 bytes leaves inside (as the kernel's own tests of the path MTU have it: less
# 20 or 40 of IP, 8 of UDP, 4 of GUE, 8 of the encapsulation limit, and GRE's), and what is inside.
PATHS = [
    ("ipip", "encap fou encap-dport 5555", 1372, "4"),
    ("ipip", "encap gue", 1368, "4"),
    ("ipip", "encap gue encap-remcsum", 1360, "4"),
    ("sit", "encap gue", 1368, "46"),
    ("gre", "encap gue", 1364, "46"),
    ("gretap", "encap gue", 1350, "46"),
    ("ip6tnl", "encap fou encap-dport 5555 mode ip6ip6", 1352, "6"),
    ("ip6tnl", "encap gue", 1348, "46"),
    ("ip6tnl", "encap gue encaplimit 4", 1340, "46"),
    ("ip6gre", "encap gue", 1344, "46"),
    ("ipip", "encap none", 1380, "4"),
    ("gre", "encap none", 1376, "46"),
    ("sit", "encap none", 1380, "46"),
    ("ip6tnl", "encap none", 1360, "46"),
    ("ip6gre", "encap none encaplimit 4", 1348, "46"),
]


def narrow(quicket, a, b):
    router = Namespace("router")
    try:
        for end, v4, v6 in (a, "198.51.100", "fd01"), (b, "203.0.113", "fd02"):
            near, far = "way", f"to{v6}"
            end.ip("link", "add", near, "type", "veth", "peer", "name", far, "netns", router.name)
            for where, name, last in (end, near, 1), (router, far, 254):
                where.ip("addr", "add", f"{v4}.{last}/24", "dev", name)
                where.ip("addr", "add", f"{v6}::{last}/64", "dev", name, "nodad")
                where.ip("link", "set", name, "up")
        router.run("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
        for end, v4, v6, via4, via6 in (a, "203.0.113.0/24", "fd02::/64", "198.51.100.254", "fd01::254"), \
                (b, "198.51.100.0/24", "fd01::/64", "203.0.113.254", "fd02::254"):
            end.ip("route", "add", v4, "via", via4)
            end.ip("-6", "route", "add", v6, "via", via6)
        for kind, words, expected, families in PATHS:
            path(quicket, a, b, router, kind, words, expected, families)
    finally:
        router.remove()


def path(quicket, a, b, router, kind, words, expected, families):
    for end, name, mtu in (router, "tofd02", 1500), (b, "way", 1500):
        end.ip("link", "set", name, "mtu", str(mtu))
    for end in a, b:
        end.ip("route", "flush", "cache")
        end.ip("-6", "route", "flush", "cache")
    here, there = ("fd01::1", "fd02::1") if kind.startswith("ip6") else ("198.51.100.1", "203.0.113.1")
    line = f"type {kind} {words} local {{}} remote {{}}"
    tunnels = [Tunnel(quicket, a, "tun1", line.format(here, there), "10.9.0.1/30 fd09::1/64"),
               Tunnel(quicket, b, "tun1", line.format(there, here), "10.9.0.2/30 fd09::2/64")]
    assert tunnels[0].mtu == expected + 100, (kind, words, tunnels[0].mtu)
    for family, address, kind_of in ("4", "10.9.0.2", socket.AF_INET), ("6", "fd09::2", socket.AF_INET6):
        if family in families:
            a.ping(address, expected + 100, count=1)
    # Narrower from now on.
    router.ip("link", "set", "tofd02", "mtu", "1400")
    b.ip("link", "set", "way", "mtu", "1400")
    for family, address, kind_of in ("4", "10.9.0.2", socket.AF_INET), ("6", "fd09::2", socket.AF_INET6):
        if family not in families:
            continue
        assert not a.ping(address, expected + 100, count=1, check=False), f"{kind} {words}: wider than the path"
        until(f"{kind} {words}: the path's MTU is known inside",
              lambda: f"mtu {expected}" in a.run("ip", "route", "get", address)
              or (a.ping(address, expected + 100, count=1, check=False), False)[1])
        a.ping(address, expected)
        assert not a.ping(address, expected + 1, count=1, check=False), f"{kind} {words}: {expected + 1} got through"
        send_all(a, b, address, 1 << 20, kind_of)
        a.ping(address, expected + 100, fragment="dont")
    for tunnel in tunnels:
        tunnel.close()
    print(f"pair: {kind} {words}: a path of 1400 bytes leaves {expected} inside", flush=True)
