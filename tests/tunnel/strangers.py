"""Scapy at the other end: it takes our packets apart, and sends what no tunnel should."""

import logging
import random
import socket

from networks import Tunnel, until

logging.getLogger("scapy.runtime").setLevel(logging.ERROR)
try:
    from scapy.layers.inet import GRE, ICMP, IP, UDP
    from scapy.layers.inet6 import IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrFragment
    from scapy.packet import Raw, fuzz
except ImportError as error:
    raise SystemExit(f"the tunnel's tests need scapy (Debian: python3-scapy): {error}") from error

# The longest datagram of a stranger: the system sends it in fragments.
LONGEST = 8000
# Tunnels in tunnels.
DEEP = 100

# Words, the port, the first bytes of a datagram, and what follows them.
OURS = [
    ("ipip", "encap fou encap-dport 5555", 5555, b"", IP),
    ("ipip", "encap gue", 6080, b"\0\4\0\0", IP),
    ("sit", "encap gue", 6080, b"\0\x29\0\0", IPv6),
    ("gre", "encap fou", 4754, b"", GRE),
    ("gre", "encap gue key 7 seq csum", 6080, b"\0\x2f\0\0", GRE),
    ("ip6tnl", "encap gue", 6080, b"\0\x29\0\0", IPv6),
    ("ip6gre", "encap fou key 7 csum", 4754, b"", GRE),
]


def rebuilt(packet):
    """The bytes that scapy makes of the fields, with lengths and checksums of its own."""
    packet = packet.copy()
    layer = packet
    while layer:
        layer.raw_packet_cache = None
        for field in "len", "chksum", "plen", "ihl":
            if field in layer.fields:
                delattr(layer, field)
        layer = layer.payload
    return bytes(packet)


def taken_apart(quicket, a, b):
    """What we send has the fields, lengths and checksums that scapy would give it."""
    for kind, words, port, shim, first in OURS:
        v6 = kind.startswith("ip6")
        ends = "local fd00::1 remote fd00::2" if v6 else "local 192.0.2.1 remote 192.0.2.2"
        tunnel = Tunnel(quicket, a, "tun1", f"type {kind} {ends} {words}", "10.9.0.1/30 fd09::1/64")
        family = socket.AF_INET6 if v6 else socket.AF_INET
        sink = b.socket(family, socket.SOCK_DGRAM)
        sink.bind(("fd00::2" if v6 else "192.0.2.2", port))
        sink.settimeout(10)
        inner6 = first is IPv6 or kind == "gre"
        sender = a.socket(socket.AF_INET6 if inner6 else socket.AF_INET, socket.SOCK_DGRAM)
        for size in 1, 2, 999, 1001:
            data = bytes(range(256)) * 4
            sender.sendto(data[:size], ("fd09::2" if inner6 else "10.9.0.2", 9))
            # The system's own packets, such as router solicitations, may come before.
            while True:
                datagram = sink.recv(2000)
                packet = first(datagram[len(shim):])
                if UDP in packet and packet[UDP].dport == 9:
                    break
            assert datagram.startswith(shim), (kind, words, datagram[:12])
            assert bytes(packet[UDP].payload) == data[:size], (kind, words, packet)
            assert rebuilt(packet) == datagram[len(shim):], (kind, words, packet, rebuilt(packet))
        sink.close()
        tunnel.close()
    print("pair: scapy finds in our packets what it would have written", flush=True)


def hostile():
    """Datagrams that no tunnel should have to see."""
    chance = random.Random(1)
    good = bytes(IP(src="10.9.0.2", dst="10.9.0.1") / UDP(dport=9) / Raw(b"x" * 40))
    good6 = bytes(IPv6(src="fd09::2", dst="fd09::1") / UDP(dport=9) / Raw(b"x" * 40))
    v4, v6, gre = b"\0\4\0\0", b"\0\x29\0\0", b"\0\x2f\0\0"
    for shim, packet in (v4, good), (v6, good6), (gre, bytes(GRE() / IP(good))), (b"", good):
        whole = shim + packet
        yield from (whole[:length] for length in range(1, len(whole)))
    for field, values in ("len", (0, 19, 69, 65535)), ("ihl", (0, 4, 15)), ("version", (0, 5, 6, 15)):
        for value in values:
            packet = IP(good)
            setattr(packet, field, value)
            packet.raw_packet_cache = None
            yield v4 + bytes(packet)
    for length in 0, 47, 49, 65535:
        packet = IPv6(good6)
        packet.plen = length
        packet.raw_packet_cache = None
        yield v6 + bytes(packet)
    nested, nested6 = good, good6
    for _ in range(DEEP):
        nested = bytes(IP(src="10.9.0.2", dst="10.9.0.1", proto=4) / Raw(nested))
        nested6 = bytes(IPv6(src="fd09::2", dst="fd09::1", nh=41) / Raw(nested6))
        yield v4 + nested
        yield v6 + nested6
        yield gre + bytes(GRE() / IP(nested))
    assert len(v6 + nested6) <= LONGEST, "the deepest one is sent whole"
    for start, offset in (0, 0), (20, 26), (20, 27), (60, 20), (65535, 65535), (20, 65535), (0, 68):
        yield b"\2\4\0\1\x80\0\0\0" + start.to_bytes(2, "big") + offset.to_bytes(2, "big") + good
    for offset in 0, 1, 2, 100, 8189, 8191:
        yield v4 + bytes(IP(src="10.9.0.2", dst="10.9.0.1", proto=17, flags=1, frag=offset) / Raw(b"x" * 200))
        yield v6 + bytes(IPv6(src="fd09::2", dst="fd09::1") / IPv6ExtHdrFragment(offset=offset, m=1) / Raw(b"x" * 200))
    chain = IPv6(src="fd09::2", dst="fd09::1")
    for _ in range(50):
        chain /= IPv6ExtHdrDestOpt()
    yield v6 + bytes(chain / UDP(dport=9))
    for _ in range(300):
        yield v4 + bytes(fuzz(IP(src="10.9.0.2", dst="10.9.0.1") / UDP()))
        yield v6 + bytes(fuzz(IPv6(src="fd09::2", dst="fd09::1") / UDP()))
        yield gre + bytes(fuzz(GRE())) + good
        yield chance.randbytes(chance.randrange(1, 200))


def without_udp(protocols):
    """The same without UDP: protocols, and what follows the header of IP."""
    of = {b"\0\4\0\0": 4, b"\0\x29\0\0": 41, b"\0\x2f\0\0": 47}
    for number, datagram in enumerate(hostile()):
        protocol = of.get(datagram[:4])
        packet = datagram[4:] if protocol else datagram
        if packet and (protocol or protocols[number % len(protocols)]) in protocols:
            yield protocol or protocols[number % len(protocols)], packet


def attacked(quicket, a, b):
    """Each datagram is counted once, whatever it is, and the tunnel goes on."""
    kinds = [("sit", (4, 41)), ("gre", (47,)), ("gretap", (47,)), ("ip6tnl", (4, 41)), ("ip6gre", (47,))]
    for kind, _ in kinds:
        family, ends = outside(kind)
        attacker = b.socket(family, socket.SOCK_DGRAM)
        attacker.bind((ends[1], 6080))
        attacker.connect((ends[0], 6080))
        attack(quicket, a, kind, "encap gue", hostile, lambda datagram: attacker.send(datagram[:LONGEST]))
        attacker.close()
    for kind, protocols in kinds:
        family, ends = outside(kind)
        raw = {protocol: b.socket(family, socket.SOCK_RAW, protocol) for protocol in protocols}
        for attacker in raw.values():
            attacker.bind((ends[1], 0))
            attacker.connect((ends[0], 0))
        attack(quicket, a, kind, "", lambda: without_udp(protocols), lambda one: raw[one[0]].send(one[1][:LONGEST]))
        for attacker in raw.values():
            attacker.close()
    print("pair: what no tunnel should see is counted, each once, and harms none, with UDP and without, over both versions "
          "of IP", flush=True)


def outside(kind):
    """The version of IP, and the addresses here and there."""
    if kind.startswith("ip6"):
        return socket.AF_INET6, ("fd00::1", "fd00::2")
    return socket.AF_INET, ("192.0.2.1", "192.0.2.2")


def attack(quicket, a, kind, words, packets, send):
    random.seed(1)
    _, (local, remote) = outside(kind)
    line = f"type {kind} local {local} remote {remote} {words}"
    tunnel = Tunnel(quicket, a, "tun1", line, "10.9.0.1/30 fd09::1/64")

    def counted():
        received = {**tunnel.counters}
        # Not dropped, and counted as what they are besides; writes are not packets.
        fate = [name for name in received if name.startswith("rx_")
                and name not in ("rx_bytes", "rx_writes", "rx_ecn_suspicious")]
        return sum(received[name] + tunnel.strays[name] for name in fate)

    sent = 0
    for packet in packets():
        send(packet)
        sent += 1
        if sent % 1000 == 0:
            until(f"{sent} packets are counted by {kind} {words}", lambda: tunnel.counters and counted() == sent)
    until(f"{sent} packets are counted by {kind} {words}, and not {counted()}", lambda: counted() == sent)
    assert tunnel.process.poll() is None and tunnel.counters["rx_malformed"] + tunnel.strays["rx_malformed"] > 50
    tunnel.close()
