"""The server role."""

import argparse
import itertools
from pathlib import Path, PurePosixPath

from aioquic.asyncio import QuicConnectionProtocol, serve
from aioquic.h3.connection import H3Connection
from aioquic.h3.events import H3Event, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import (
    ConnectionTerminated,
    DatagramFrameReceived,
    HandshakeCompleted,
    QuicEvent,
    StopSendingReceived,
    StreamDataReceived,
    StreamReset,
)

from events import (
    ALPN_ECHO,
    ALPN_H3,
    CountingLogger,
    Counts,
    emit,
    facts_of,
    key_log,
    standard_input_ended,
)

MAX_REQUEST = 4096
NOT_FOUND = 1

numbers = itertools.count(1)


def is_bidirectional(stream_id: int) -> bool:
    return stream_id & 2 == 0


class ServerProtocol(QuicConnectionProtocol):
    """One connection."""

    def __init__(self, *arguments, folder: Path | None, retry: bool, **named) -> None:
        super().__init__(*arguments, **named)
        self.folder = folder
        self.retry = retry
        self.number = next(numbers)
        self.counts = Counts(self._quic)
        self.facts: dict = {}
        self.requests: dict[int, bytearray] = {}
        self.streams: set[int] = set()
        self.given_up: set[int] = set()
        self.http3: H3Connection | None = None
        self.alpn: str | None = None

    def quic_event_received(self, event: QuicEvent) -> None:
        self.counts.look()
        if self.alpn is None:
            # Early data comes before the handshake is complete.
            self.alpn = self._quic.tls.alpn_negotiated
            if self.alpn == ALPN_H3:
                self.http3 = H3Connection(self._quic)
        if isinstance(event, HandshakeCompleted):
            self.facts = {**facts_of(self._quic, event), "retry": self.retry}
            emit("connection", connection=self.number, **self.facts)
        elif isinstance(event, ConnectionTerminated):
            self.report_end(event)
        elif self.http3 is not None:
            for http_event in self.http3.handle_event(event):
                self.http3_event_received(http_event)
        elif isinstance(event, StreamDataReceived):
            self.stream_data_received(event)
        elif isinstance(event, StopSendingReceived | StreamReset):
            # The library leaves the answer to the application (RFC 9000, Section 3.5).
            if event.stream_id not in self.given_up:
                self.given_up.add(event.stream_id)
                self._quic.reset_stream(event.stream_id, event.error_code)
        elif isinstance(event, DatagramFrameReceived) and self.alpn == ALPN_ECHO:
            self._quic.send_datagram_frame(event.data)

    def report_end(self, event: ConnectionTerminated) -> None:
        if event.error_code and event.frame_type is not None:
            message = f"connection {self.number}: {event.error_code:#x} {event.reason_phrase}"
            emit("error", message=message)
        self.facts["key_updates"] = self.counts.key_updates
        emit("closed", connection=self.number, streams=len(self.streams), **self.facts)

    def stream_data_received(self, event: StreamDataReceived) -> None:
        if not is_bidirectional(event.stream_id) or event.stream_id in self.given_up:
            return
        self.streams.add(event.stream_id)
        if self.alpn == ALPN_ECHO:
            self._quic.send_stream_data(event.stream_id, event.data, event.end_stream)
            return
        request = self.requests.setdefault(event.stream_id, bytearray())
        request += event.data
        if len(request) > MAX_REQUEST:
            self._quic.reset_stream(event.stream_id, NOT_FOUND)
        elif event.end_stream:
            self.answer_http09(event.stream_id, bytes(request))
            del self.requests[event.stream_id]

    def answer_http09(self, stream_id: int, request: bytes) -> None:
        method, _, path = request.decode().rstrip().partition(" ")
        content = self.read(path) if method == "GET" else None
        if content is None:
            self._quic.reset_stream(stream_id, NOT_FOUND)
        else:
            self._quic.send_stream_data(stream_id, content, end_stream=True)

    def http3_event_received(self, event: H3Event) -> None:
        if not isinstance(event, HeadersReceived):
            return
        self.streams.add(event.stream_id)
        content = self.read(dict(event.headers).get(b":path", b"").decode())
        if content is None:
            self.http3.send_headers(event.stream_id, [(b":status", b"404")], end_stream=True)
            return
        length = str(len(content)).encode()
        headers = [(b":status", b"200"), (b"content-length", length)]
        self.http3.send_headers(event.stream_id, headers)
        self.http3.send_data(event.stream_id, content, end_stream=True)

    def read(self, path: str) -> bytes | None:
        relative = PurePosixPath(path.lstrip("/"))
        if self.folder is None or ".." in relative.parts:
            return None
        try:
            return (self.folder / relative).read_bytes()
        except OSError:
            return None


async def run_server(arguments: argparse.Namespace) -> None:
    configuration = QuicConfiguration(
        is_client=False,
        alpn_protocols=arguments.alpn,
        max_datagram_frame_size=65535,
        quic_logger=CountingLogger(),
        secrets_log_file=key_log(),
    )
    configuration.load_cert_chain(arguments.cert, arguments.key)
    folder = Path(arguments.www) if arguments.www else None
    tickets: dict[bytes, object] = {}

    def create_protocol(*positional, **named) -> ServerProtocol:
        return ServerProtocol(*positional, folder=folder, retry=arguments.retry, **named)

    server = await serve(
        *arguments.listen,
        configuration=configuration,
        create_protocol=create_protocol,
        # A ticket is good for one connection, which is what keeps early data from being replayed.
        session_ticket_fetcher=lambda ticket: tickets.pop(ticket, None),
        session_ticket_handler=lambda ticket: tickets.__setitem__(ticket.ticket, ticket),
        retry=arguments.retry,
    )
    host, port = server._transport.get_extra_info("sockname")[:2]
    emit("listening", address=f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    await standard_input_ended()
    server.close()
