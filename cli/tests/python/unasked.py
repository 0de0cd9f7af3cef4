"""Asks aioquic's HTTP/3 for one file of a server at localhost, and for nothing more, while it says all the time that it is
there. With `begun` it sends a byte of another request after the answer, and no more. Prints the status, the stream that GOAWAY
names, the code that the connection was closed with, and milliseconds since the answer.

unasked.py PORT CA PATH [begun]
"""

import asyncio
import json
import sys
import time

from aioquic.asyncio import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.buffer import Buffer
from aioquic.h3.connection import FrameType, H3Connection, StreamType
from aioquic.h3.events import HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated, StreamDataReceived


class Client(QuicConnectionProtocol):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.http = H3Connection(self._quic)
        self.control = {}
        self.status, self.code = None, None
        self.answered, self.ended = asyncio.Event(), asyncio.Event()

    def get(self, authority, path):
        stream = self._quic.get_next_available_stream_id()
        fields = [(b":method", b"GET"), (b":scheme", b"https"), (b":authority", authority), (b":path", path)]
        self.http.send_headers(stream, fields, end_stream=True)
        self.transmit()

    def quic_event_received(self, event):
        if isinstance(event, ConnectionTerminated):
            self.code = event.error_code
            self.ended.set()
        if isinstance(event, StreamDataReceived) and event.stream_id % 4 == 3:
            self.control[event.stream_id] = self.control.get(event.stream_id, b"") + event.data
        for event in self.http.handle_event(event):
            if isinstance(event, HeadersReceived):
                self.status = int(dict(event.headers)[b":status"])
            if getattr(event, "stream_ended", False):
                self.answered.set()


def goaway(streams):
    """What GOAWAY on the control stream names, of which aioquic tells nothing."""
    buffer = Buffer(data=next(data for data in streams.values() if data[0] == StreamType.CONTROL)[1:])
    named = None
    while not buffer.eof():
        kind, length = buffer.pull_uint_var(), buffer.pull_uint_var()
        frame = buffer.pull_bytes(length)
        if kind == FrameType.GOAWAY:
            named = Buffer(data=frame).pull_uint_var()
    return named


async def main(port, ca, path, begun=None):
    configuration = QuicConfiguration(is_client=True, alpn_protocols=["h3"], server_name="localhost")
    configuration.load_verify_locations(ca)
    async with connect("127.0.0.1", int(port), configuration=configuration, create_protocol=Client) as client:
        client.get(f"localhost:{port}".encode(), path.encode())
        await asyncio.wait_for(client.answered.wait(), 10)
        answered = time.monotonic()
        if begun:
            stream = client._quic.get_next_available_stream_id()
            client._quic.send_stream_data(stream, bytes([FrameType.HEADERS]))
        while not client.ended.is_set() and time.monotonic() - answered < 40:
            client._quic.send_ping(0)
            client.transmit()
            await asyncio.sleep(0.1)
        took = int((time.monotonic() - answered) * 1000)
    print(json.dumps({"status": client.status, "goaway": goaway(client.control), "code": client.code, "ms": took}))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
