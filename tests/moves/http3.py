"""A server of HTTP/3 by aioquic: `/large` is what a file has, `/echo` what the request had, with trailers.

usage: http3.py ADDRESS PORT CERTIFICATE KEY FILE

Says `ready`, then of each connection at its end whether it had early data, and from how many addresses its client came.
"""

import asyncio
import pathlib
import sys

from aioquic.asyncio import QuicConnectionProtocol, serve
from aioquic.h3.connection import H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated, HandshakeCompleted


class Protocol(QuicConnectionProtocol):
    large = b""

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.http, self.early, self.seen, self.lengths = None, False, set(), {}

    def datagram_received(self, data, address):
        self.seen.add(address)
        super().datagram_received(data, address)

    def quic_event_received(self, event):
        if isinstance(event, HandshakeCompleted):
            self.early = event.early_data_accepted
        if isinstance(event, ConnectionTerminated):
            print(f"ended early={'yes' if self.early else 'no'} addresses={len(self.seen)} code={event.error_code:#x}", flush=True)
        # Early data comes before the handshake is complete.
        if self.http is None:
            self.http = H3Connection(self._quic)
        for http_event in self.http.handle_event(event):
            self.on_http(http_event)
        self.transmit()

    def on_http(self, event):
        stream = event.stream_id
        if isinstance(event, HeadersReceived):
            path = dict(event.headers)[b":path"]
            status = {b"/large": b"200", b"/echo": b"200"}.get(path, b"404")
            self.http.send_headers(stream, [(b":status", status), (b"server", b"aioquic")], end_stream=status == b"404")
            if path == b"/large":
                self.http.send_data(stream, self.large, end_stream=True)
            elif path == b"/echo":
                self.lengths[stream] = 0
        elif isinstance(event, DataReceived) and stream in self.lengths:
            self.lengths[stream] += len(event.data)
            self.http.send_data(stream, event.data, end_stream=False)
        if event.stream_ended and stream in self.lengths:
            length = str(self.lengths.pop(stream)).encode()
            self.http.send_headers(stream, [(b"length", length)], end_stream=True)


async def main():
    address, port, certificate, key, file = sys.argv[1:]
    Protocol.large = pathlib.Path(file).read_bytes()
    configuration = QuicConfiguration(is_client=False, alpn_protocols=["h3"])
    configuration.load_cert_chain(certificate, key)
    tickets = {}
    await serve(address, int(port), configuration=configuration, create_protocol=Protocol,
                session_ticket_fetcher=lambda ticket: tickets.pop(ticket, None),
                session_ticket_handler=lambda ticket: tickets.__setitem__(ticket.ticket, ticket))
    print("ready", flush=True)
    await asyncio.Future()


asyncio.run(main())
