"""Outer and inner fields, by hand-made datagrams instead of a tunnel at the other end."""

import socket
import struct

from networks import Tunnel, until

IPV6_RECVERR = 25
IPV6_FLOWINFO_SEND = 33


def ipv4(source, destination, tos, payload, protocol=17):
    header = struct.pack("!BBHHHBBH4s4s", 0x45, tos, 20 + len(payload), 1, 0x4000, 64, protocol, 0,
                         socket.inet_aton(source), socket.inet_aton(destination))
    total = sum(struct.unpack("!10H", header))
    total = (total & 0xffff) + (total >> 16)
    total = ~((total & 0xffff) + (total >> 16)) & 0xffff
    return header[:10] + struct.pack("!H", total) + header[12:] + payload


def marks(quicket, a, b, raw=False):
    """ECN in both directions, and what is refused: by hand-made datagrams instead of a tunnel in b."""
    encap, shim = ("none", b"") if raw else ("gue", b"\0\4\0\0")
    line = f"type ipip local 192.0.2.1 remote 192.0.2.2 encap {encap} allow 10.9.0.0/24"
    tunnel = Tunnel(quicket, a, "tun1", line, "10.9.0.1/30")
    inner = a.socket(socket.AF_INET, socket.SOCK_DGRAM)
    inner.bind(("10.9.0.1", 7))
    inner.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
    inner.settimeout(3)
    sort = (socket.SOCK_RAW, socket.IPPROTO_IPIP) if raw else (socket.SOCK_DGRAM,)
    outer = b.socket(socket.AF_INET, *sort)
    outer.bind(("192.0.2.2", 6080))
    outer.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
    outer.setsockopt(socket.IPPROTO_IP, 12, 1)
    outer.settimeout(3)

    def arrive(inner_tos, outer_tos, source="10.9.0.2"):
        udp = struct.pack("!HHHH", 9, 7, 9, 0) + bytes([inner_tos << 4 | outer_tos])
        outer.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, outer_tos)
        outer.sendto(shim + ipv4(source, "10.9.0.1", inner_tos, udp), ("192.0.2.1", 6080))

    table = {(i, o): o if i and o == 3 else i for i in range(4) for o in range(4)}
    table[2, 1] = 1
    for (inside_field, outside), expected in table.items():
        arrive(inside_field, outside)
        if (inside_field, outside) == (0, 3):
            continue  # dropped; the next one arrives instead
        data, extra, _, _ = inner.recvmsg(9, 64)
        assert data == bytes([inside_field << 4 | outside]), "not what was sent"
        assert extra[0][2][0] & 3 == expected, (inside_field, outside, extra, expected)
    for ecn in range(4):
        inner.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0xb8 | ecn)
        inner.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 33)
        inner.sendto(b"x", ("10.9.0.2", 9))
        data, extra, _, _ = outer.recvmsg(99, 64)
        if raw:
            assert data[9] == socket.IPPROTO_IPIP and data[6] & 0x40, "IP in IP, which may not be fragmented"
            data = data[20:]
        assert data.startswith(shim) and data[len(shim) + 1] == 0xb8 | ecn, data
        fields = {kind: value for _, kind, value in extra}
        assert fields[socket.IP_TOS][0] == ecn, "the outer field is a copy, DSCP is not"
        assert struct.unpack("i", fields[socket.IP_TTL])[0] == 33
    arrive(0, 0, source="11.0.0.1")
    arrive(0, 0, source="10.9.0.1")
    if raw:
        outer.sendto(b"\0\4\xff\0", ("192.0.2.1", 0))
    else:
        outer.sendto(b"\x20\1\0\0", ("192.0.2.1", 6080))
        outer.sendto(b"\0\4\xff\0", ("192.0.2.1", 6080))
    b.ip("addr", "add", "192.0.2.3/24", "dev", "wire")
    stranger = b.socket(socket.AF_INET, *sort)
    stranger.bind(("192.0.2.3", 0))
    stranger.sendto(shim + ipv4("10.9.0.2", "10.9.0.1", 0, b"12345678"), ("192.0.2.1", 6080))
    arrive(1, 1)
    assert inner.recv(9) == b"\x11"
    if quicket[-1] == "add":
        assert tunnel.count("rx_source") == 2 and tunnel.counters["rx_congestion"] == 1, tunnel.counters
        if raw:
            # Others' packets do not reach the socket at all.
            assert tunnel.counters["rx_malformed"] == 1 and not any(tunnel.strays.values()), tunnel.counters
        else:
            assert tunnel.strays["rx_control"] == 1 and tunnel.strays["rx_malformed"] == 1, tunnel.strays
            assert tunnel.strays["rx_peer"] == 1, tunnel.strays
    tunnel.close()
    b.ip("addr", "del", "192.0.2.3/24", "dev", "wire")
    print(f"pair: ECN, TTL and refusals are as they should be{', without UDP' if raw else ''}", flush=True)


def limits(quicket, a, b, encap="gue"):
    """Flow labels; encapsulation limits: outside, counted down from those inside, and used up."""
    words = f"type ip6tnl mode ip6ip6 local fd00::1 remote fd00::2 encap {encap}"
    eth = b.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x86dd))
    eth.bind(("wire", 0x86dd))
    eth.settimeout(10)

    def outer(what="options"):
        """The next outer packet, or the options that come first in it, if any."""
        while True:
            packet = eth.recv(2000)
            if packet[8:24] == socket.inet_pton(socket.AF_INET6, "fd00::1") and b"x" * 99 in packet:
                if what != "options":
                    return packet
                return packet[42:48] if packet[6] == 60 else None

    tunnel = Tunnel(quicket, a, "tun1", f"{words} flowlabel 1234a tclass 20", "fd09::1/64")
    a.socket(socket.AF_INET6, socket.SOCK_DGRAM).sendto(b"x" * 99, ("fd09::2", 9))
    assert outer("first word")[:4] == bytes.fromhex("6201234a"), "the flow label and the traffic class"
    tunnel.close()
    tunnel = Tunnel(quicket, a, "tun1", f"{words} flowlabel inherit tclass inherit", "fd09::1/64")
    labelled = a.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    labelled.setsockopt(socket.IPPROTO_IPV6, IPV6_FLOWINFO_SEND, 1)
    labelled.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, 0x20)
    for label in 0x1beef, 0x1cafe:
        labelled.sendto(b"x" * 99, ("fd09::2", 9, label, 0))
        found = outer("first word")[:4]
        assert found == (0x62000000 | label).to_bytes(4), f"those inside: {found.hex()}, not {label:x}"
    tunnel.close()
    for own, inside, expected in ("none", None, None), ("4", None, 4), ("4", 9, 8), ("none", 9, 8):
        tunnel = Tunnel(quicket, a, "tun1", f"{words} encaplimit {own}", "fd09::1/64")
        sender = a.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        if inside is not None:
            sender.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_DSTOPTS, bytes([0, 0, 4, 1, inside, 1, 1, 0]))
        sender.sendto(b"x" * 99, ("fd09::2", 9))
        found = outer()
        assert found == (None if expected is None else bytes([4, 1, expected, 1, 1, 0])), (own, inside, found)
        if inside is not None:
            sender.setsockopt(socket.IPPROTO_IPV6, IPV6_RECVERR, 1)
            sender.connect(("fd09::2", 9))
            sender.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_DSTOPTS, bytes([0, 0, 4, 1, 0, 1, 1, 0]))
            sender.send(b"x")
            until("the limit is used up", lambda: sender.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
        tunnel.close()
    print(f"pair: encapsulation limits are sent, counted down, and used up, with encap {encap}", flush=True)


# Types and words, and the version of IP outside.
MARKED = [("sit", "encap gue", 4), ("gre", "", 4), ("sit", "encap gue external to 10.9.0.0/30 dst 192.0.2.2", 4),
          ("ip6tnl", "encap gue", 6), ("ip6gre", "", 6)]


def firewall_marks(quicket, a, b):
    """Marked packets take the route that a rule has for the mark: here by a neighbour of another address."""
    for version, other, net in (4, "192.0.2.7", "192.0.2.2/32"), (6, "fd00::7", "fd00::2/128"):
        a.ip(f"-{version}", "rule", "add", "fwmark", "7", "lookup", "77")
        a.ip("neigh", "add", other, "lladdr", "02:00:00:00:00:77", "nud", "permanent", "dev", "wire")
        a.ip(f"-{version}", "route", "add", net, "via", other, "dev", "wire", "table", "77")
    eth = b.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
    eth.bind(("wire", 3))
    eth.settimeout(10)
    try:
        for kind, words, version in MARKED:
            ends = ("192.0.2.1", "192.0.2.2") if version == 4 else ("fd00::1", "fd00::2")
            remote = "" if "external" in words else f"remote {ends[1]}"
            for mark, elsewhere in ("", False), ("fwmark 7", True), ("fwmark 0x8", False):
                line = f"type {kind} local {ends[0]} {remote} {words} {mark}"
                tunnel = Tunnel(quicket, a, "tun1", line, "10.9.0.1/30")
                packet = a.socket(socket.AF_INET, socket.SOCK_DGRAM)
                packet.sendto(b"x" * 99, ("10.9.0.2", 9))
                while True:
                    data, (_, _, to, *_) = eth.recvfrom(2000)
                    if b"x" * 99 in data and to != socket.PACKET_OUTGOING:
                        break
                assert (to == socket.PACKET_OTHERHOST) == elsewhere, f"{kind} {words} {mark}: to {to}"
                tunnel.close()
    finally:
        eth.close()
        for version, other in (4, "192.0.2.7"), (6, "fd00::7"):
            a.ip(f"-{version}", "rule", "del", "fwmark", "7", "lookup", "77")
            a.ip(f"-{version}", "route", "flush", "table", "77")
            a.ip("neigh", "del", other, "dev", "wire")
    print("pair: what has a mark takes the route of its mark", flush=True)
