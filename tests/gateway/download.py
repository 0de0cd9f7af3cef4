"""Downloads a file over HTTP/3 with aioquic, by one connection, and prints as JSON how long and what it is (SHA-256). It says every half
second that it is there, as a client has to that may be at another address meanwhile: the server cannot know where. Arguments:
address, port, certificate, path, and where to write."""

import asyncio
import functools
import hashlib
import itertools
import json
import sys

from aioquic.asyncio import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated

# How long it may take, and how often the client says something, in seconds.
LONG, EVERY = 120, 0.5


class Client(QuicConnectionProtocol):
    def __init__(self, *arguments, out, **options):
        super().__init__(*arguments, **options)
        self.http = H3Connection(self._quic)
        self.told = {"status": None, "bytes": 0}
        self.hash, self.over, self.out = hashlib.sha256(), asyncio.Event(), out

    def get(self, authority, path):
        stream = self._quic.get_next_available_stream_id()
        fields = {":method": "GET", ":scheme": "https", ":authority": authority, ":path": path}
        self.http.send_headers(stream, [(name.encode(), value.encode()) for name, value in fields.items()], end_stream=True)
        self.transmit()

    def quic_event_received(self, event):
        if isinstance(event, ConnectionTerminated):
            self.told["lost"] = f"{event.error_code} {event.reason_phrase}"
            self.over.set()
        for event in self.http.handle_event(event):
            if isinstance(event, HeadersReceived):
                self.told["status"] = dict(event.headers)[b":status"].decode()
            elif isinstance(event, DataReceived):
                self.told["bytes"] += len(event.data)
                self.hash.update(event.data)
                self.out.write(event.data)
            if getattr(event, "stream_ended", False):
                self.told["sha256"] = self.hash.hexdigest()
                self.over.set()


async def say(client):
    for number in itertools.count():
        await asyncio.sleep(EVERY)
        client._quic.send_ping(number)
        client.transmit()


async def main(address, port, certificate, path, out):
    configuration = QuicConfiguration(is_client=True, alpn_protocols=["h3"], server_name="localhost", idle_timeout=LONG)
    configuration.load_verify_locations(certificate)
    with open(out, "wb", buffering=0) as out:
        create = functools.partial(Client, out=out)
        async with connect(address, int(port), configuration=configuration, create_protocol=create) as client:
            client.get(f"localhost:{port}", path)
            saying = asyncio.create_task(say(client))
            await asyncio.wait_for(client.over.wait(), LONG)
            saying.cancel()
            print(json.dumps(client.told))


asyncio.run(main(*sys.argv[1:]))
