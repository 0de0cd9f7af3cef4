"""Connections of aioquic to HTTP/3 servers, as standard input asks for them.

connect NAME HOST PORT CA    opens a connection, prints its number and the certificate's SHA-256
get NUMBER PATH              asks on a connection, prints the status and the body
"""

import asyncio
import sys
from contextlib import AsyncExitStack

from aioquic.asyncio import QuicConnectionProtocol, connect
from aioquic.h3.connection import H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from cryptography.hazmat.primitives.hashes import SHA256


class Browser(QuicConnectionProtocol):
    def __init__(self, *arguments, **named) -> None:
        super().__init__(*arguments, **named)
        self.http3: H3Connection | None = None
        self.answers: dict[int, tuple[bytearray, asyncio.Future]] = {}
        self.status = b""

    def quic_event_received(self, event) -> None:
        if self.http3 is None:
            return
        for http in self.http3.handle_event(event):
            if not isinstance(http, HeadersReceived | DataReceived):
                continue
            body, done = self.answers[http.stream_id]
            if isinstance(http, HeadersReceived):
                self.status = dict(http.headers)[b":status"]
            else:
                body += http.data
            if http.stream_ended and not done.done():
                done.set_result(bytes(body))

    async def get(self, path: str) -> bytes:
        if self.http3 is None:
            self.http3 = H3Connection(self._quic)
        stream = self._quic.get_next_available_stream_id()
        done = asyncio.get_running_loop().create_future()
        self.answers[stream] = (bytearray(), done)
        name = self._quic.configuration.server_name.encode()
        headers = [(b":method", b"GET"), (b":scheme", b"https"), (b":authority", name)]
        self.http3.send_headers(stream, [*headers, (b":path", path.encode())], end_stream=True)
        self.transmit()
        return await done


async def main() -> None:
    connections: list[Browser] = []
    async with AsyncExitStack() as stack:
        while line := await asyncio.to_thread(sys.stdin.readline):
            match line.split():
                case ["connect", name, host, port, ca]:
                    configuration = QuicConfiguration(alpn_protocols=["h3"], server_name=name)
                    configuration.load_verify_locations(ca)
                    opening = connect(
                        host, int(port), configuration=configuration, create_protocol=Browser
                    )
                    connection = await stack.enter_async_context(opening)
                    connections.append(connection)
                    certificate = connection._quic.tls._peer_certificate
                    print(len(connections) - 1, certificate.fingerprint(SHA256()).hex(), flush=True)
                case ["get", number, path]:
                    connection = connections[int(number)]
                    async with asyncio.timeout(20):
                        body = await connection.get(path)
                    print(connection.status.decode(), body.decode().rstrip(), flush=True)


asyncio.run(main())
