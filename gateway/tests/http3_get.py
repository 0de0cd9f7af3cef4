"""Gets / of an HTTP/3 server with aioquic, and prints the status and the body. Arguments: port, file with the server's
certificate, server name of the handshake, :authority, and if there is one a certificate and its key."""

import asyncio
import sys

from aioquic.asyncio import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration


class Client(QuicConnectionProtocol):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.http = H3Connection(self._quic)
        self.status, self.body, self.answered = None, b"", asyncio.Event()

    def get(self, authority):
        stream = self._quic.get_next_available_stream_id()
        fields = [(b":method", b"GET"), (b":scheme", b"https"), (b":authority", authority.encode()), (b":path", b"/")]
        forged = [(b"client-cert", b"forged"), (b"x-client-sha256", b"forged"), (b"x_client_sha256", b"forged")]
        self.http.send_headers(stream, fields + forged, end_stream=True)
        self.transmit()

    def quic_event_received(self, event):
        for event in self.http.handle_event(event):
            if isinstance(event, HeadersReceived):
                self.status = dict(event.headers)[b":status"].decode()
            elif isinstance(event, DataReceived):
                self.body += event.data
            if getattr(event, "stream_ended", False):
                self.answered.set()

    def connection_lost(self, error):
        super().connection_lost(error)
        self.answered.set()


async def main(port, certificate, name, authority, *own):
    configuration = QuicConfiguration(is_client=True, alpn_protocols=["h3"], server_name=name)
    configuration.load_verify_locations(certificate)
    if own:
        configuration.load_cert_chain(*own)
    async with connect("127.0.0.1", port, configuration=configuration, create_protocol=Client) as client:
        client.get(authority)
        await asyncio.wait_for(client.answered.wait(), 20)
        print(client.status)
        print(client.body.decode())


asyncio.run(main(int(sys.argv[1]), *sys.argv[2:]))
