"""A WebSocket client. Arguments: port, certificate, version of HTTP, what to do (echo, status, refused, reset, idle; over
HTTP/3 rst: says something, and how its stream has ended; abort, stop, leave: resets its stream, has the server send no more
on it or ends it once it has heard something), `tell` to say a line once it is connected. The frames of HTTP/2 and HTTP/3 are those of websockets, too."""

import asyncio
import ssl
import sys

import h2.config
import h2.connection
import h2.events
import h2.settings
from aioquic.asyncio import connect as quic_connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import StreamReset
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Frame, Opcode
from websockets.protocol import CLIENT, OPEN, Protocol

PORT, CERTIFICATE, VERSION, TASK = int(sys.argv[1]), *sys.argv[2:5]
PATH = f"/{TASK}" if TASK in ("refused", "reset", "rst") else "/echo"
CANCELLED = 0x10C
LARGE = bytes(range(256)) * 4096
FIELDS = [
    (":method", "CONNECT"),
    (":protocol", "websocket"),
    (":scheme", "https"),
    (":authority", f"localhost:{PORT}"),
    (":path", PATH),
    ("sec-websocket-version", "13"),
    ("sec-websocket-protocol", "chat"),
]


class Stream:
    """WebSocket on a stream, by the frames of websockets, over what sends bytes."""

    def __init__(self, send):
        self.send_bytes = send
        self.status = asyncio.get_running_loop().create_future()
        self.messages = asyncio.Queue()
        self.reset = None
        self.protocol = Protocol(CLIENT, state=OPEN, max_size=4 << 20)

    def headers(self, fields):
        fields = {name.decode(): value.decode() for name, value in fields}
        if not self.status.done():
            self.status.set_result(int(fields[":status"]))

    def data(self, data, ended):
        if data:
            self.protocol.receive_data(data)
        for frame in self.protocol.events_received():
            if frame.opcode is Opcode.TEXT:
                self.messages.put_nowait(frame.data.decode())
            elif frame.opcode is Opcode.BINARY:
                self.messages.put_nowait(bytes(frame.data))
        if ended:
            self.protocol.receive_eof()
            self.messages.put_nowait(None)
        self.flush()

    def flush(self):
        for data in self.protocol.data_to_send():
            if data:
                self.send_bytes(data)

    async def send(self, message):
        if isinstance(message, str):
            self.protocol.send_text(message.encode())
        else:
            self.protocol.send_binary(message)
        self.flush()

    async def recv(self):
        message = await self.messages.get()
        if message is None:
            raise ConnectionClosed(None, None)
        return message

    async def close(self):
        self.protocol.send_close(1000)
        self.flush()
        while await self.messages.get() is not None:
            pass

    @property
    def close_code(self):
        return self.protocol.close_code


class Two(asyncio.Protocol):
    """A connection of HTTP/2 with one stream (RFC 8441)."""

    def connection_made(self, transport):
        self.transport = transport
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        self.h2.initiate_connection()
        self.stream = Stream(self.send)
        self.waiting = bytearray()
        self.settings = asyncio.get_running_loop().create_future()
        self.flush()

    def flush(self):
        self.transport.write(self.h2.data_to_send())

    def send(self, data):
        self.waiting += data
        while self.waiting:
            room = min(self.h2.local_flow_control_window(1), self.h2.max_outbound_frame_size)
            if room == 0:
                break
            self.h2.send_data(1, bytes(self.waiting[:room]))
            del self.waiting[:room]
        self.flush()

    def data_received(self, data):
        for event in self.h2.receive_data(data):
            if isinstance(event, h2.events.RemoteSettingsChanged):
                code = h2.settings.SettingCodes.ENABLE_CONNECT_PROTOCOL
                if code in event.changed_settings and not self.settings.done():
                    self.settings.set_result(event.changed_settings[code].new_value)
            elif isinstance(event, h2.events.ResponseReceived):
                self.stream.headers([(bytes(n), bytes(v)) for n, v in event.headers])
            elif isinstance(event, h2.events.DataReceived):
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                self.stream.data(event.data, False)
            elif isinstance(event, (h2.events.StreamEnded, h2.events.StreamReset)):
                self.stream.data(b"", True)
        self.send(b"")

    def connection_lost(self, error):
        self.stream.data(b"", True)


class Three(QuicConnectionProtocol):
    """A connection of HTTP/3 with one stream (RFC 9220)."""

    def open(self):
        self.h3 = H3Connection(self._quic)
        self.id = self._quic.get_next_available_stream_id()
        self.stream = Stream(self.send)
        self.h3.send_headers(self.id, [(n.encode(), v.encode()) for n, v in FIELDS])
        self.transmit()

    def send(self, data):
        self.h3.send_data(self.id, data, end_stream=False)
        self.transmit()

    def quic_event_received(self, event):
        if isinstance(event, StreamReset):
            self.stream.reset = event.error_code
            self.stream.data(b"", True)
        for event in self.h3.handle_event(event) if hasattr(self, "h3") else ():
            if isinstance(event, HeadersReceived):
                self.stream.headers(event.headers)
            elif isinstance(event, DataReceived):
                self.stream.data(event.data, False)
            if getattr(event, "stream_ended", False):
                self.stream.data(b"", True)

    def connection_lost(self, error):
        self.stream.data(b"", True)


def tls():
    return ssl.create_default_context(cafile=CERTIFICATE)


async def two():
    context = tls()
    context.set_alpn_protocols(["h2"])
    loop = asyncio.get_running_loop()
    where = {"host": "localhost", "port": PORT, "ssl": context}
    _, protocol = await loop.create_connection(Two, **where)
    assert await protocol.settings == 1, "extended CONNECT is announced"
    protocol.h2.send_headers(1, FIELDS)
    protocol.flush()
    return protocol.stream


async def converse(connection):
    if TASK == "reset":
        try:
            print("heard", await connection.recv())
        except ConnectionClosed:
            print("ended")
        return
    first = await connection.recv()
    if TASK == "idle":
        if "tell" in sys.argv:
            print("connected", flush=True)
        try:
            await connection.recv()
        except ConnectionClosed:
            if "tell" not in sys.argv:
                print("ended")
        return
    for message in ["a", "", "ä" * 1000, b"\0\xff", LARGE]:
        await connection.send(message)
        assert await connection.recv() == message
    await connection.close()
    print(f"{first}; 5 messages, 1 MB; closed {connection.close_code}")


async def on_stream(stream):
    status = await stream.status
    if TASK in ("status", "refused") or status != 200:
        return print(status)
    await converse(stream)


async def break_off(protocol):
    stream, quic = protocol.stream, protocol._quic
    print(await stream.recv(), flush=True)
    if TASK == "rst":
        await stream.send("now")
    elif TASK == "abort":
        quic.reset_stream(protocol.id, CANCELLED)
    elif TASK == "stop":
        quic.stop_stream(protocol.id, CANCELLED)
        # It is heard of with what the server says next.
        await stream.send("say something")
    else:
        quic.send_stream_data(protocol.id, b"", end_stream=True)
    protocol.transmit()
    while await stream.messages.get() is not None:
        pass
    print("ended" if stream.reset is None else f"reset {stream.reset:#x}")


async def main():
    if VERSION == "1":
        uri = f"wss://localhost:{PORT}{PATH}"
        try:
            options = {"subprotocols": ["chat"], "max_size": 4 << 20, "ping_interval": None}
            async with connect(uri, ssl=tls(), **options) as connection:
                return print(101) if TASK == "status" else await converse(connection)
        except InvalidStatus as error:
            return print(error.response.status_code)
    if VERSION == "2":
        return await on_stream(await two())
    configuration = QuicConfiguration(is_client=True, alpn_protocols=["h3"], server_name="localhost")
    configuration.load_verify_locations(CERTIFICATE)
    where = {"configuration": configuration, "create_protocol": Three}
    async with quic_connect("127.0.0.1", PORT, **where) as protocol:
        protocol.open()
        if TASK in ("rst", "abort", "stop", "leave"):
            return await break_off(protocol)
        await on_stream(protocol.stream)


asyncio.run(asyncio.wait_for(main(), 15))
