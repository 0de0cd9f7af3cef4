"""Posts a body to an HTTP/3 server with aioquic, and prints the status, the length of the answer's body, and whether the
server stopped the sending, with which code. Arguments: port, file with the server's certificate, path, length of the body."""

import asyncio
import sys

from aioquic.asyncio import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import StopSendingReceived


class Client(QuicConnectionProtocol):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.http = H3Connection(self._quic)
        self.status, self.length, self.stopped = None, 0, "not"
        self.answered, self.told = asyncio.Event(), asyncio.Event()

    def post(self, path, length):
        stream = self._quic.get_next_available_stream_id()
        fields = [(b":method", b"POST"), (b":scheme", b"https"), (b":authority", b"localhost"), (b":path", path.encode())]
        self.http.send_headers(stream, fields + [(b"content-length", str(length).encode())])
        self.http.send_data(stream, b"a" * length, end_stream=True)
        self.transmit()

    def quic_event_received(self, event):
        if isinstance(event, StopSendingReceived):
            self.stopped = f"{event.error_code:#x}"
            self.told.set()
        for event in self.http.handle_event(event):
            if isinstance(event, HeadersReceived):
                self.status = dict(event.headers)[b":status"].decode()
            elif isinstance(event, DataReceived):
                self.length += len(event.data)
            if getattr(event, "stream_ended", False):
                self.answered.set()

    def connection_lost(self, error):
        super().connection_lost(error)
        self.answered.set()
        self.told.set()


async def main(port, certificate, path, length):
    configuration = QuicConfiguration(is_client=True, alpn_protocols=["h3"], server_name="localhost")
    configuration.load_verify_locations(certificate)
    async with connect("127.0.0.1", port, configuration=configuration, create_protocol=Client) as client:
        client.post(path, length)
        await asyncio.wait_for(client.answered.wait(), 20)
        await asyncio.wait_for(client.told.wait(), 20)
        print(client.status, client.length, "stopped", client.stopped)


asyncio.run(main(int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])))
