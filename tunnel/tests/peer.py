"""The other end of a tunnel's test, written by the RFCs alone: usage: peer.py THEIR-ADDRESS OWN-ADDRESS"""

import socket
import struct
import sys

DIRECT, GUE = 5555, 6080


def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def packet(version, source, payload, still_open=False):
    """A datagram of UDP in a packet of IP; with the sum of the pseudo-header for a checksum, if that is still open."""
    length = 8 + len(payload)
    if version == 4:
        addresses = b"".join(socket.inet_aton(f"10.9.0.{last}") for last in (source, 3 - source))
        header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + length, 7, 0x4000, 64, 17, 0)
        header = header[:10] + struct.pack("!H", checksum(header + addresses)) + addresses
        pseudo = addresses + struct.pack("!BBH", 0, 17, length)
    else:
        addresses = b"".join(socket.inet_pton(socket.AF_INET6, f"fd09::{last}") for last in (source, 3 - source))
        header = struct.pack("!IHBB", 6 << 28, length, 17, 64) + addresses
        pseudo = addresses + struct.pack("!II", length, 17)
    udp = struct.pack("!HHHH", 9, 7, length, 0) + payload
    value = ~checksum(pseudo) & 0xffff if still_open else checksum(pseudo + udp)
    return header + udp[:6] + struct.pack("!H", value) + udp[8:]


def gre(version, inner, key=7, wrong=0):
    kind = 0x0800 if version == 4 else 0x86dd
    header = struct.pack("!HHHHI", 0xa000, kind, 0, 0, key)
    return header[:4] + struct.pack("!H", checksum(header + inner) ^ wrong) + header[6:] + inner


def main():
    theirs, own = sys.argv[1:]
    ports = {}
    for port in DIRECT, GUE:
        ports[port] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        ports[port].bind((own, port))
        ports[port].settimeout(30)

    def send(port, data):
        ports[port].sendto(data, (theirs, port))

    hello = b"from python"
    send(DIRECT, packet(4, 2, hello))
    for data in (
            b"\0\x29\0\0" + packet(6, 2, hello),
            # Private flags: remote checksum offload, from byte 40 on, to byte 46.
            b"\2\x29\0\1" + struct.pack("!IHH", 0x80000000, 40, 46) + packet(6, 2, hello, still_open=True),
            b"\0\x2f\0\0" + gre(4, packet(4, 2, hello), wrong=1),
            b"\0\x2f\0\0" + gre(4, packet(4, 2, hello), key=8),
            b"\0\x2f\0\0" + gre(4, packet(4, 2, hello)),
            b"\0\x2f\0\0" + gre(6, packet(6, 2, hello))):
        send(GUE, data)
    answer = b"to python"
    expected = {
        DIRECT: [packet(4, 1, answer)],
        GUE: [b"\0\x29\0\0" + packet(6, 1, answer), b"\0\x2f\0\0" + gre(4, packet(4, 1, answer)),
              b"\0\x2f\0\0" + gre(6, packet(6, 1, answer))],
    }
    for port, datagrams in expected.items():
        for datagram in datagrams:
            found, (sender, _) = ports[port].recvfrom(9000)
            assert found == datagram, f"{found.hex()}, not {datagram.hex()}"
            assert sender == theirs, sender


main()
