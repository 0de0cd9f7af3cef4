"""Asks aioquic's HTTP/3 for one file of a server at localhost, and for nothing more, while it says all the time that it is
there. Prints the status, the stream that GOAWAY names, the code that the connection was closed with, milliseconds since the
answer, and how many PING frames the server sent from a second after it on: before that it looks for the path's MTU.

unasked.py PORT CA PATH
"""

import asyncio
import json
import sys
import time

from aioquic.asyncio import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.buffer import Buffer
from aioquic.h3.connection import FrameType, H3Connection
from aioquic.h3.events import HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated
from aioquic.quic.logger import QuicLogger


class Http(H3Connection):
    goaway = None

    def _handle_control_frame(self, frame_type, frame_data):
        if frame_type == FrameType.GOAWAY:
            self.goaway = Buffer(data=frame_data).pull_uint_var()
        super()._handle_control_frame(frame_type, frame_data)


class Client(QuicConnectionProtocol):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.http = Http(self._quic)
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
        for event in self.http.handle_event(event):
            if isinstance(event, HeadersReceived):
                self.status = int(dict(event.headers)[b":status"])
            if getattr(event, "stream_ended", False):
                self.answered.set()


def pings(logger):
    events = logger.to_dict()["traces"][0]["events"]
    received = [event["data"]["frames"] for event in events if event["name"] == "transport:packet_received"]
    return sum(frame["frame_type"] == "ping" for frames in received for frame in frames)


async def main(port, ca, path):
    logger = QuicLogger()
    configuration = QuicConfiguration(is_client=True, alpn_protocols=["h3"], server_name="localhost", quic_logger=logger)
    configuration.load_verify_locations(ca)
    async with connect("127.0.0.1", int(port), configuration=configuration, create_protocol=Client) as client:
        client.get(f"localhost:{port}".encode(), path.encode())
        await asyncio.wait_for(client.answered.wait(), 10)
        answered, before = time.monotonic(), None
        while not client.ended.is_set() and (took := time.monotonic() - answered) < 20:
            if took > 1 and before is None:
                before = pings(logger)
            client._quic.send_ping(0)
            client.transmit()
            await asyncio.sleep(0.1)
        took = int((time.monotonic() - answered) * 1000)
    told = {"status": client.status, "goaway": client.http.goaway, "code": client.code, "ms": took}
    print(json.dumps(told | {"pings": pings(logger) - before}))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
