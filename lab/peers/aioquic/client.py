"""The client role."""

import argparse
import asyncio
import functools
import hashlib
from pathlib import Path

from aioquic.asyncio import QuicConnectionProtocol, connect
from aioquic.h3.connection import H3Connection
from aioquic.h3.events import DataReceived, H3Event, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import (
    ConnectionTerminated,
    DatagramFrameReceived,
    HandshakeCompleted,
    QuicEvent,
    StreamDataReceived,
    StreamReset,
)
from aioquic.quic.packet import QuicProtocolVersion
from aioquic.tls import CipherSuite, SessionTicket

from events import (
    ALPN_ECHO,
    ALPN_H3,
    ECHO_DATAGRAM_LENGTH,
    ECHO_STREAM_LENGTH,
    CountingLogger,
    Counts,
    echo_payload,
    emit,
    facts_of,
    key_log,
)

H3_NO_ERROR = 0x100
CONCURRENCY = 100
# Into a transfer, the handshake is over.
KEY_UPDATE_AFTER = 0.5
TICKET_PATIENCE = 2.0
DATAGRAM_PATIENCE = 0.5
DATAGRAM_ATTEMPTS = 5
# The codes of a client that gives streams up.
RESET_CODE = 7
STOP_CODE = 8
# Reserved to exercise version negotiation (RFC 9000, Section 15).
UNKNOWN_VERSION = 0x1A2A3A4A
NO_COMMON_VERSION = "Could not find a common protocol version"


class Answer:
    """What comes back on one stream."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.status = b"200"
        self.begun = asyncio.Event()
        self.done: asyncio.Future = asyncio.get_running_loop().create_future()

    def end(self) -> None:
        if not self.done.done():
            self.done.set_result(bytes(self.data))

    def fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)
            self.done.exception()  # It may be that nobody waits any more.


class ClientProtocol(QuicConnectionProtocol):
    """One connection."""

    number = 0

    def __init__(self, *arguments, **named) -> None:
        super().__init__(*arguments, **named)
        self.answers: dict[int, Answer] = {}
        self.datagrams: asyncio.Queue[bytes] = asyncio.Queue()
        self.completed: asyncio.Future = asyncio.get_running_loop().create_future()
        self.facts: dict = {}
        self.counts = Counts(self._quic)
        self.http3: H3Connection | None = None

    def start_http3(self) -> None:
        self.http3 = H3Connection(self._quic)

    def quic_event_received(self, event: QuicEvent) -> None:
        self.counts.look()
        if isinstance(event, HandshakeCompleted):
            self.facts = {**facts_of(self._quic, event), "retry": self.counts.retried}
            emit("connection", connection=self.number, **self.facts)
            self.completed.set_result(None)
        elif isinstance(event, ConnectionTerminated):
            error = ConnectionError(f"{event.error_code:#x} {event.reason_phrase}")
            for answer in self.answers.values():
                answer.fail(error)
            if not self.completed.done():
                self.completed.set_exception(error)
        elif isinstance(event, StreamReset) and event.stream_id in self.answers:
            self.answers[event.stream_id].fail(ConnectionError("the server reset the stream"))
        elif isinstance(event, DatagramFrameReceived):
            self.datagrams.put_nowait(event.data)
        if self.http3 is not None:
            for http_event in self.http3.handle_event(event):
                self.http3_event_received(http_event)
        elif isinstance(event, StreamDataReceived) and event.stream_id in self.answers:
            answer = self.answers[event.stream_id]
            answer.data += event.data
            answer.begun.set()
            if event.end_stream:
                answer.end()

    def http3_event_received(self, event: H3Event) -> None:
        if not isinstance(event, HeadersReceived | DataReceived):
            return
        answer = self.answers[event.stream_id]
        if isinstance(event, HeadersReceived):
            answer.status = dict(event.headers)[b":status"]
        else:
            answer.data += event.data
        if event.stream_ended:
            answer.end()

    async def ask(self, request: bytes) -> bytes:
        """Sends a request on a new stream and returns all that comes back."""
        stream_id = self._quic.get_next_available_stream_id()
        answer = self.answers[stream_id] = Answer()
        self._quic.send_stream_data(stream_id, request, end_stream=True)
        self.transmit()
        try:
            return await answer.done
        finally:
            del self.answers[stream_id]

    async def give_up(self, request: bytes) -> None:
        """Begins a stream, and gives it up when a part of what comes back is there."""
        stream_id = self._quic.get_next_available_stream_id()
        answer = self.answers[stream_id] = Answer()
        self._quic.send_stream_data(stream_id, request)
        self.transmit()
        await answer.begun.wait()
        del self.answers[stream_id]
        self._quic.reset_stream(stream_id, RESET_CODE)
        self._quic.stop_stream(stream_id, STOP_CODE)
        self.transmit()

    async def get(self, authority: str, path: str) -> bytes:
        if self.http3 is None:
            return await self.ask(f"GET {path}\r\n".encode())
        stream_id = self._quic.get_next_available_stream_id()
        answer = self.answers[stream_id] = Answer()
        headers = [
            (b":method", b"GET"),
            (b":scheme", b"https"),
            (b":authority", authority.encode()),
            (b":path", path.encode()),
        ]
        self.http3.send_headers(stream_id, headers, end_stream=True)
        self.transmit()
        content = await answer.done
        if answer.status != b"200":
            raise ConnectionError(f"{path}: the server answered {answer.status.decode()}")
        return content


class Client:
    """All connections of one run."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.tickets: asyncio.Queue[SessionTicket] = asyncio.Queue()
        self.connections = 0

    def configuration(self) -> QuicConfiguration:
        configuration = QuicConfiguration(
            is_client=True,
            alpn_protocols=[self.arguments.alpn],
            server_name=self.arguments.server_name,
            max_datagram_frame_size=65535,
            quic_logger=CountingLogger(),
            secrets_log_file=key_log(),
        )
        if self.arguments.chacha20:
            configuration.cipher_suites = [CipherSuite.CHACHA20_POLY1305_SHA256]
        if self.arguments.v2:
            configuration.original_version = QuicProtocolVersion.VERSION_1
            configuration.supported_versions = [
                QuicProtocolVersion.VERSION_2,
                QuicProtocolVersion.VERSION_1,
            ]
        if self.arguments.unknown_version:
            configuration.supported_versions = [UNKNOWN_VERSION]
        configuration.load_verify_locations(self.arguments.ca)
        if self.arguments.cert is not None:
            configuration.load_cert_chain(self.arguments.cert, self.arguments.key)
        return configuration

    async def run(self) -> None:
        arguments = self.arguments
        paths = arguments.download
        ticket = None
        if arguments.unknown_version:
            await self.negotiate()
            emit("done")
            return
        if arguments.one_by_one:
            for path in paths:
                await self.connect(lambda connection: self.download(connection, [path]))
            emit("done")
            return
        if arguments.parallel:
            async with asyncio.TaskGroup() as tasks:
                for path in paths:
                    work = functools.partial(self.download, paths=[path])
                    tasks.create_task(self.connect(work))
            emit("done")
            return
        if arguments.resume or arguments.early_data:
            first, paths = paths[:1], paths[1:]
            ticket = await self.connect(lambda connection: self.first(connection, first))
        if arguments.early_data and not ticket.max_early_data_size:
            raise ConnectionError("the session ticket does not permit early data")
        await self.connect(lambda connection: self.everything(connection, paths), ticket)
        emit("done")

    async def connect(self, work, ticket: SessionTicket | None = None):
        configuration = self.configuration()
        configuration.session_ticket = ticket
        self.connections += 1
        number = self.connections
        early = ticket is not None and self.arguments.early_data
        async with connect(
            *self.arguments.connect,
            configuration=configuration,
            create_protocol=ClientProtocol,
            session_ticket_handler=self.tickets.put_nowait,
            wait_connected=False,
        ) as connection:
            connection.number = number
            if not early:
                connection.transmit()
                await connection.completed
            if self.arguments.alpn == ALPN_H3:
                connection.start_http3()
            result = await work(connection)
            await connection.completed
            connection.facts["key_updates"] = connection.counts.key_updates
            streams = connection._quic.get_next_available_stream_id() // 4
            emit("closed", connection=connection.number, streams=streams, **connection.facts)
            connection.close(H3_NO_ERROR if self.arguments.alpn == ALPN_H3 else 0)
            return result

    async def negotiate(self) -> None:
        """Offers a version that nobody has, and waits until the server has said what it has."""
        async with connect(
            *self.arguments.connect,
            configuration=self.configuration(),
            create_protocol=ClientProtocol,
            wait_connected=False,
        ) as connection:
            connection.transmit()
            try:
                await connection.completed
            except ConnectionError as error:
                if NO_COMMON_VERSION not in str(error):
                    raise
                return
            raise ConnectionError("the server accepted a version that nobody has")

    async def first(self, connection: ClientProtocol, paths: list[str]) -> SessionTicket:
        await self.download(connection, paths)
        async with asyncio.timeout(TICKET_PATIENCE):
            return await self.tickets.get()

    async def everything(self, connection: ClientProtocol, paths: list[str]) -> None:
        if self.arguments.key_update:
            asyncio.get_running_loop().call_later(KEY_UPDATE_AFTER, connection.request_key_update)
        await self.download(connection, paths)
        if self.arguments.alpn == ALPN_ECHO:
            await self.echo(connection)

    async def download(self, connection: ClientProtocol, paths: list[str]) -> None:
        places = asyncio.Semaphore(CONCURRENCY)

        async def one(path: str) -> None:
            async with places:
                content = await connection.get(self.arguments.server_name, path)
            self.store(connection, path, content)

        async with asyncio.TaskGroup() as tasks:
            for path in paths:
                tasks.create_task(one(path))

    def store(self, connection: ClientProtocol, path: str, content: bytes) -> None:
        if self.arguments.out is not None:
            (Path(self.arguments.out) / path.lstrip("/")).write_bytes(content)
        emit(
            "file",
            connection=connection.number,
            path=path,
            bytes=len(content),
            sha256=hashlib.sha256(content).hexdigest(),
        )

    async def echo(self, connection: ClientProtocol) -> None:
        async def one(number: int) -> None:
            payload = echo_payload(number, ECHO_STREAM_LENGTH)
            if await connection.ask(payload) != payload:
                raise ConnectionError(f"the echo of stream {number} differs")

        for number in range(self.arguments.resets):
            await connection.give_up(echo_payload(number, ECHO_STREAM_LENGTH))
        async with asyncio.TaskGroup() as tasks:
            for number in range(self.arguments.streams):
                tasks.create_task(one(number))
        lost = 0
        for number in range(self.arguments.datagrams):
            lost += await self.echo_datagram(connection, number)
        emit(
            "echo",
            connection=connection.number,
            streams=self.arguments.streams,
            datagrams=self.arguments.datagrams,
            datagrams_lost=lost,
        )

    async def echo_datagram(self, connection: ClientProtocol, number: int) -> int:
        """Has one datagram echoed; returns how often it had to be sent again."""
        payload = echo_payload(number, ECHO_DATAGRAM_LENGTH)
        for attempt in range(DATAGRAM_ATTEMPTS):
            connection._quic.send_datagram_frame(payload)
            connection.transmit()
            try:
                async with asyncio.timeout(DATAGRAM_PATIENCE):
                    while await connection.datagrams.get() != payload:
                        pass
                return attempt
            except TimeoutError:
                continue
        raise ConnectionError(f"datagram {number} was not echoed")


async def run_client(arguments: argparse.Namespace) -> None:
    try:
        await Client(arguments).run()
    except ExceptionGroup as group:
        raise group.exceptions[0] from None
