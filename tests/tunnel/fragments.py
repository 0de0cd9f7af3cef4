"""Which outer packets may be fragmented: those whose packets inside may, and the least that IPv6 asks for."""

import socket

from networks import Tunnel, send_all, until

IP_MTU_DISCOVER, DONT, DO = 10, 0, 2


def fragments(quicket, a, b):
    # Words, and whether a packet inside that may be fragmented, or must not be, is one outside that must not be.
    for words, expected in ("", (True, True)), ("nopmtudisc", (False, True)), ("nopmtudisc ignore-df", (False, False)):
        for encap, protocol, shim in ("none", 4, 0), ("gue", 17, 12):
            line = f"type ipip local 192.0.2.1 remote 192.0.2.2 encap {encap} {words}"
            tunnel = Tunnel(quicket, a, "tun1", line, "10.9.0.1/30")
            eth = b.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))
            eth.bind(("wire", 0x0800))
            eth.settimeout(10)
            for inside, must_not in zip((DONT, DO), expected):
                sender = a.socket(socket.AF_INET, socket.SOCK_DGRAM)
                sender.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, inside)
                sender.sendto(b"x" * 99, ("10.9.0.2", 9))
                while True:
                    packet = eth.recv(2000)
                    if packet[9] == protocol and b"x" * 99 in packet:
                        break
                assert bool(packet[20 + shim + 6] & 0x40) == (inside == DO), "that inside"
                assert bool(packet[6] & 0x40) == must_not, f"{encap} {words}: {packet[6]:x} with {inside} inside"
            eth.close()
            tunnel.close()
    for encap in "gue", "none":
        narrow(quicket, a, b, encap)
    print("pair: outer packets may be fragmented where those inside may, and where IPv6 has no room otherwise", flush=True)


def narrow(quicket, a, b, encap):
    """A path that becomes too narrow for the least MTU of IPv6."""
    ends = [(a, "192.0.2.1", "192.0.2.2", 1), (b, "192.0.2.2", "192.0.2.1", 2)]
    tunnels = [Tunnel(quicket, end, "tun1", f"type sit local {local} remote {remote} encap {encap}",
                      f"10.9.0.{last}/30 fd09::{last}/64") for end, local, remote, last in ends]
    for end in a, b:
        end.ip("link", "set", "wire", "mtu", "1200")
    inside = 1200 - (32 if encap == "gue" else 20)
    until("IPv4 is told", lambda: not a.ping("10.9.0.2", inside + 1, count=1, check=False))
    a.ping("10.9.0.2", inside)
    until("the least of IPv6 gets through", lambda: a.ping("fd09::2", 1280, count=1, check=False))
    b.ping("fd09::1", 1280)
    assert not a.ping("fd09::2", 1281, count=1, check=False)
    for address, family in ("10.9.0.2", socket.AF_INET), ("fd09::2", socket.AF_INET6):
        send_all(a, b, address, 1 << 18, family)
    for tunnel in tunnels:
        tunnel.close()
    for end in a, b:
        end.ip("link", "set", "wire", "mtu", "1500")
        # Below 1280 bytes the device has no IPv6.
        end.ip("addr", "replace", f"fd00::{1 if end is a else 2}/64", "dev", "wire", "nodad")
