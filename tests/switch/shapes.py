#!/usr/bin/python3
"""ClientHellos of one to five datagrams, in pieces, in any order, twice and with a hole, where two programs share an
address: each reaches the program whose name is in it, once it is there as a whole."""

import argparse
import pathlib
import random
import socket
import sys
import tempfile
import time

sys.dont_write_bytecode = True
from common import until  # noqa: E402
from initials import Client, client_hello, crypto  # noqa: E402
from site_of_two import CUSTOMERS, Site  # noqa: E402

# What a datagram has room for, its other fields and the CRYPTO frames' headers taken off.
ROOM = 1000
TURNS = 20
# How long no answer shows that there is none, in seconds.
SILENCE = 0.3


def datagrams(draw, name, count, frames):
    """The datagrams of a ClientHello, in order, each with its part in so many CRYPTO frames, shuffled."""
    client = Client()
    hello = client_hello(name, "h3", client.source, padding=(count - 1) * ROOM)
    assert (count - 1) * ROOM < len(hello) <= count * ROOM
    result = []
    for number in range(count):
        begin, end = number * ROOM, min((number + 1) * ROOM, len(hello))
        cuts = sorted({begin, end, *(draw.randint(begin, end) for _ in range(frames - 1))})
        parts = [crypto(at, hello[at:to]) for at, to in zip(cuts, cuts[1:])]
        draw.shuffle(parts)
        # PADDING and PING frames may stand in between (RFC 9000, Section 12.4).
        result.append(client.datagram(number, draw.choice([b"", b"\0\0\0", b"\1"]).join(parts)))
    return result


def has_answer(client, seconds):
    client.settimeout(seconds)
    try:
        return bool(client.recv(2048))
    except TimeoutError:
        return False


def first_packets(site):
    """How many each program had."""
    return {bool(program["server_names"]): program["first_packets"] for program in site.programs()}


def reach(site, name, sent, hole):
    """Sends datagrams; those of `hole` only after there was no answer to the others."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.connect(site.host())
        before = first_packets(site)
        for datagram in sent:
            client.send(datagram)
        if hole:
            assert not has_answer(client, SILENCE), f"{name}: an answer to a ClientHello that is not there yet"
            for datagram in hole:
                client.send(datagram)
        assert has_answer(client, 5), f"{name}: no answer"
    mine = name == CUSTOMERS
    until(f"{name}: its program has it", lambda: first_packets(site)[mine] > before[mine], 5)
    assert first_packets(site)[not mine] == before[not mine], f"{name}: the other program had some of it"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quicket", type=lambda path: str(pathlib.Path(path).resolve()), required=True)
    arguments = parser.parse_args()
    draw = random.Random(9000)
    begun, done = time.monotonic(), 0
    with tempfile.TemporaryDirectory(prefix="quicket-shapes-") as folder:
        site = Site(arguments.quicket, pathlib.Path(folder), crowd=False)
        try:
            for turn in range(TURNS):
                for count in 1, 2, 5:
                    name = CUSTOMERS if (turn + count) % 2 else "another.example"
                    all_of_it = datagrams(draw, name, count, frames=1 + turn % 5)
                    sent, hole = list(all_of_it), []
                    if turn % 2:
                        draw.shuffle(sent)
                    if turn % 3 == 1 and count > 1:
                        hole = [sent.pop(draw.randrange(len(sent)))]
                    if turn % 4 == 2:
                        sent += draw.choices(sent, k=2)
                    reach(site, name, sent, hole)
                    done += 1
        finally:
            site.end()
    print(f"{done} ClientHellos of 1, 2 and 5 datagrams, in pieces, shuffled, twice and with holes, reached the program that they name "
          f"({time.monotonic() - begun:.0f} s)")


if __name__ == "__main__":
    main()
