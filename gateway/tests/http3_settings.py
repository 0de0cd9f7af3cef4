"""Prints the settings of an HTTP/3 server that matter here, as aioquic reads them. Arguments: port, certificate, and the server's name
if it is another one than localhost."""

import asyncio
import sys

from aioquic.asyncio import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3Connection
from aioquic.quic.configuration import QuicConfiguration


class Client(QuicConnectionProtocol):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.http = H3Connection(self._quic)
        self.told = asyncio.Event()

    def quic_event_received(self, event):
        self.http.handle_event(event)
        if self.http.received_settings is not None:
            self.told.set()


async def main(port, certificate, name="localhost"):
    configuration = QuicConfiguration(is_client=True, alpn_protocols=["h3"], server_name=name)
    configuration.load_verify_locations(certificate)
    async with connect("127.0.0.1", port, configuration=configuration, create_protocol=Client) as client:
        await asyncio.wait_for(client.told.wait(), 20)
        settings = client.http.received_settings
        print(*(f"{key}={settings.get(key)}" for key in (6, 8)))


asyncio.run(main(int(sys.argv[1]), *sys.argv[2:]))
