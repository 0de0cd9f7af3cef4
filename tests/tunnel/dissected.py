"""tshark's dissectors take our packets apart: layers, fields and checksums as they should be.

Debian's has none for GUE, whose packets scapy takes apart (strangers.py).
"""

import json
import subprocess

from networks import Tunnel

# Words of the type, how tshark is told of a port, the layers around the ping, and fields with their values.
CASES = [
    ("ipip encap fou encap-dport 5555", "udp.port==5555,ip", "ip:udp:ip:icmp", {"udp.dstport": ["5555"]}),
    ("sit encap fou encap-dport 5555 mode ip6ip", "udp.port==5555,ipv6", "ip:udp:ipv6:icmpv6", {}),
    ("gre encap fou", None, "ip:udp:gre:ip:icmp", {"udp.dstport": ["4754"]}),
    ("gre encap fou key 77 seq csum", None, "ip:udp:gre:ip:icmp", {"gre.key": ["0x0000004d"]}),
    ("gretap encap fou key 5", None, "ip:udp:gre:eth:ethertype:ip:icmp", {"gre.key": ["0x00000005"]}),
    ("ip6tnl encap fou encap-dport 5555 mode ip6ip6", "udp.port==5555,ipv6", "ipv6:udp:ipv6:icmpv6", {}),
    ("ip6gre encap fou encaplimit 3", None, "ipv6:ipv6.dstopts:udp:gre:ip:icmp", {"ipv6.opt.tel": ["3"]}),
    ("ipip", None, "ip:ip:icmp", {"ip.proto": ["4", "1"]}),
    ("sit", None, "ip:ipv6:icmpv6", {"ip.proto": ["41"]}),
    ("gre key 7 seq csum", None, "ip:gre:ip:icmp", {"gre.key": ["0x00000007"]}),
    ("ip6tnl mode any encaplimit 2", None, "ipv6:ipv6.dstopts:ipv6:icmpv6", {"ipv6.opt.tel": ["2"]}),
]
# What tshark computes itself, where it is there: 1 is right.
SUMS = ["ip.checksum.status", "icmp.checksum.status", "icmpv6.checksum.status", "gre.checksum.status"]
PINGS = 3
# How many packets tshark counts before it ends: also those that it does not show, such as ARP inside of gretap.
COUNTED = 5 * PINGS


def dissected(quicket, a, b):
    for words, decoded, layers, fields in CASES:
        v6 = words.startswith("ip6")
        outer = ("fd00::1", "fd00::2") if v6 else ("192.0.2.1", "192.0.2.2")
        line = f"type {words} local {{}} remote {{}}"
        ends = [
            Tunnel(quicket, a, "tun1", line.format(*outer), "10.9.0.1/30 fd09::1/64"),
            Tunnel(quicket, b, "tun1", line.format(*reversed(outer)), "10.9.0.2/30 fd09::2/64"),
        ]
        packets = captured(a, b, decoded, layers, "fd09::2" if "icmpv6" in layers else "10.9.0.2")
        for tunnel in ends:
            tunnel.close()
        assert len(packets) == 2 * PINGS, f"{words}: {len(packets)} packets, not {2 * PINGS}"
        for packet in packets:
            assert "_ws.malformed" not in packet, f"{words}: {packet}"
            for field in SUMS:
                assert set(packet.get(field, ["1"])) == {"1"}, f"{words}: {field}: {packet[field]}"
            for field, wanted in fields.items():
                # A port is that of the tunnel in one direction at least: the other end answers likewise.
                assert packet[field] == wanted, f"{words}: {field}: {packet[field]}, not {wanted}"
        for field in fields:
            assert all(field in packet for packet in packets)
        if "csum" in words.split():
            assert all(packet.get("gre.checksum.status") == ["1"] for packet in packets), f"{words}: no checksum"
        if "seq" in words.split():
            numbers = [int(packet["gre.sequence_number"][0]) for packet in packets]
            assert len(set(numbers)) >= PINGS, f"{words}: {numbers}"
    print(f"pair: tshark finds the layers, fields and checksums of {len(CASES)} kinds right", flush=True)


def captured(a, b, decoded, layers, address):
    """What of `layers` passes at b's device while a pings, each packet as a table of its fields."""
    names = ["frame.protocols", "_ws.malformed", "udp.dstport", "gre.key", "gre.sequence_number", "ipv6.opt.tel",
             "ip.proto", *SUMS]
    command = ["tshark", "-n", "-l", "-Q", "-i", "wire", "-T", "json", "-o", "ip.check_checksum:TRUE",
               "-c", str(COUNTED), "-a", "duration:20",
               "-Y", f'frame.protocols == "eth:ethertype:{layers}:data"'
               f' or frame.protocols == "eth:ethertype:{layers}"']
    command += [word for name in names for word in ("-e", name)]
    command += ["-d", decoded] if decoded else []
    running = subprocess.Popen(b.command(*command), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    # It says nothing when it listens: ping until it has enough.
    while running.poll() is None:
        a.ping(address, 200, count=PINGS, check=False)
    out, errors = running.communicate()
    assert running.returncode == 0, errors
    return [packet["_source"]["layers"] for packet in json.loads(out or "[]")][:2 * PINGS]
