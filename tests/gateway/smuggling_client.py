"""Clients of HTTP/2 and HTTP/3 that send whatever they are told, each on a connection of its own, and say what came of it: a status, or
how the stream or the connection has ended."""

import asyncio
import socket
import ssl
import struct

import hpack
import pylsqpack
from aioquic.asyncio import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.buffer import Buffer, encode_uint_var
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated, StreamDataReceived, StreamReset

PATIENCE = 20
CANCEL, REQUEST_CANCELLED = 8, 0x10C


def integer(first, bits, value):
    """RFC 7541, Section 5.1."""
    most = (1 << bits) - 1
    if value < most:
        return bytes([first | value])
    out, value = bytearray([first | most]), value - most
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes([value])


def section_of_two(fields):
    """Lines that are never indexed, and no Huffman's code (RFC 7541, Section 6.2.3)."""
    string = lambda text: integer(0, 7, len(text)) + text
    return b"".join(b"\x10" + string(name) + string(value) for name, value in fields)


def section_of_three(fields):
    """RFC 9204, Section 4.5.6."""
    return b"\0\0" + b"".join(integer(0x30, 3, len(name)) + name + integer(0, 7, len(value)) + value for name, value in fields)


class Two:
    """RFC 9113."""

    DATA, HEADERS, RST_STREAM, SETTINGS, GOAWAY = 0, 1, 3, 4, 7
    END_STREAM, END_HEADERS = 1, 4

    def __init__(self, port, certificate):
        self.port, self.context = port, ssl.create_default_context(cafile=certificate)
        self.context.set_alpn_protocols(["h2"])

    def end(self):
        pass

    def frame(self, kind, flags, payload):
        stream = 0 if kind == self.SETTINGS else 1
        return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload

    def request(self, case):
        frames = [(self.HEADERS, self.END_HEADERS, section_of_two([*case.pseudo, *case.fields]))]
        frames += [(self.DATA, 0, piece) for piece in case.data]
        if case.trailers is not None:
            frames.append((self.HEADERS, self.END_HEADERS, section_of_two(case.trailers)))
        if case.ends:
            kind, flags, payload = frames[-1]
            frames[-1] = (kind, flags | self.END_STREAM, payload)
        else:
            frames.append((self.RST_STREAM, 0, struct.pack(">I", CANCEL)))
        return b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + self.frame(self.SETTINGS, 0, b"") + b"".join(self.frame(*one) for one in frames)

    def ask(self, case):
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE) as plain:
            with self.context.wrap_socket(plain, server_hostname="localhost") as stream:
                stream.sendall(self.request(case))
                if not case.ends:
                    return "reset by the client", b""
                try:
                    return self.outcome(stream.makefile("rb"))
                except OSError:
                    return "closed", b""

    def outcome(self, incoming):
        decoder, status, body = hpack.Decoder(), None, b""
        while len(head := incoming.read(9)) == 9:
            kind, flags = head[3], head[4]
            payload = incoming.read(int.from_bytes(head[:3]))
            if kind == self.HEADERS:
                # What is interim is none of it.
                fields = dict(decoder.decode(payload))
                if not fields.get(":status", "1").startswith("1"):
                    status = int(fields[":status"])
            elif kind == self.DATA:
                body += payload
            elif kind == self.RST_STREAM:
                # An answer without an error is whole, and the rest of the request of no interest.
                return (status, body) if status and payload == bytes(4) else ("reset", body)
            elif kind == self.GOAWAY and payload[4:8] != bytes(4):
                return "closed", body
            if kind in (self.HEADERS, self.DATA) and flags & self.END_STREAM:
                return status, body
        return "closed", body


class Stream(QuicConnectionProtocol):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.outcome, self.come = asyncio.get_running_loop().create_future(), b""

    def end(self, *outcome):
        if not self.outcome.done():
            self.outcome.set_result(outcome)

    def quic_event_received(self, event):
        if isinstance(event, ConnectionTerminated):
            self.end("closed", b"")
        elif isinstance(event, StreamReset) and event.stream_id == 0:
            self.end("reset", b"")
        elif isinstance(event, StreamDataReceived) and event.stream_id == 0:
            self.come += event.data
            if event.end_stream:
                self.end(*self.answer())

    def answer(self):
        frames, decoder, status, body = Buffer(data=self.come), pylsqpack.Decoder(0, 0), None, b""
        while not frames.eof():
            kind, payload = frames.pull_uint_var(), frames.pull_bytes(frames.pull_uint_var())
            if kind == 1:
                fields = dict(decoder.feed_header(0, payload)[1])
                if not fields.get(b":status", b"1").startswith(b"1"):
                    status = int(fields[b":status"])
            elif kind == 0:
                body += payload
        return status, body


class Three:
    """RFC 9114."""

    def __init__(self, port, certificate):
        self.port = port
        self.configuration = QuicConfiguration(is_client=True, alpn_protocols=["h3"], server_name="localhost")
        self.configuration.load_verify_locations(certificate)
        self.loop, self.tasks = asyncio.new_event_loop(), []

    @staticmethod
    def frame(kind, payload):
        return encode_uint_var(kind) + encode_uint_var(len(payload)) + payload

    def ask(self, case):
        outcome = self.loop.create_future()
        # A connection takes a while to end, which nobody waits for.
        self.tasks.append(self.loop.create_task(self.converse(case, outcome)))
        return self.loop.run_until_complete(asyncio.wait_for(outcome, PATIENCE))

    def end(self):
        self.loop.run_until_complete(asyncio.gather(*self.tasks))

    async def converse(self, case, outcome):
        try:
            async with connect("127.0.0.1", self.port, configuration=self.configuration, create_protocol=Stream) as client:
                self.send(client, case)
                outcome.set_result(await client.outcome if case.ends else ("reset by the client", b""))
        except Exception as error:
            if outcome.done():
                raise
            outcome.set_exception(error)

    def send(self, client, case):
        # A control stream with SETTINGS.
        client._quic.send_stream_data(2, b"\0\4\0")
        pieces = [self.frame(1, section_of_three([*case.pseudo, *case.fields]))]
        pieces += [self.frame(0, piece) for piece in case.data]
        if case.trailers is not None:
            pieces.append(self.frame(1, section_of_three(case.trailers)))
        for at, piece in enumerate(pieces):
            client._quic.send_stream_data(0, piece, case.ends and at == len(pieces) - 1)
        client.transmit()
        if not case.ends:
            client._quic.reset_stream(0, REQUEST_CANCELLED)
            client.transmit()
