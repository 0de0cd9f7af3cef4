"""WebSocket from the client's side, over HTTP/1.1 (RFC 6455), HTTP/2 (RFC 8441) and HTTP/3 (RFC 9220): frames that are written and read
one by one, whatever is in them."""

import asyncio
import base64
import os
import ssl
import struct

import hpack
from aioquic.asyncio import connect as quic_connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated, StreamReset

# RFC 6455, Section 5.2.
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
# How a pipe ends, in place of a frame.
END, RESET = "ended", "reset"
CANCEL, REQUEST_CANCELLED = 8, 0x10C
PATIENCE = 30


def frame(opcode, payload=b"", last=True, masked=True, reserved=0):
    length = len(payload)
    head = bytes([last << 7 | reserved << 4 | opcode])
    mask = masked << 7
    if length < 126:
        head += bytes([mask | length])
    elif length < 65536:
        head += bytes([mask | 126]) + struct.pack(">H", length)
    else:
        head += bytes([mask | 127]) + struct.pack(">Q", length)
    if not masked:
        return head + payload
    key = os.urandom(4)
    keys = key * (length // 4 + 1)
    return head + key + (int.from_bytes(payload) ^ int.from_bytes(keys[:length])).to_bytes(length)


class Pipe:
    """Bytes in both directions, once the server has agreed."""

    def __init__(self):
        self.status, self.came, self.unread = asyncio.get_running_loop().create_future(), asyncio.Queue(), b""

    def answered(self, status):
        if not self.status.done():
            self.status.set_result(int(status))

    async def more(self):
        """Whether there is more, and how it has ended otherwise."""
        data = await asyncio.wait_for(self.came.get(), PATIENCE)
        if data in (END, RESET):
            # Whoever asks again hears it again.
            self.came.put_nowait(data)
            return data
        self.unread += data
        return None

    async def take(self, count):
        while len(self.unread) < count:
            if ended := await self.more():
                return ended
        taken, self.unread = self.unread[:count], self.unread[count:]
        return taken

    async def frame(self):
        """The next one: whether it is the last of its message, its opcode and what is in it; or how all has ended."""
        head = await self.take(2)
        if head in (END, RESET):
            return head
        assert head[0] & 0x70 == 0 and head[1] & 0x80 == 0, f"no frame of a server: {head}"
        length = head[1]
        if length > 125:
            length = int.from_bytes(await self.take(2 if length == 126 else 8))
        payload = await self.take(length) if length else b""
        return bool(head[0] & 0x80), head[0] & 15, payload


class One(Pipe):
    @classmethod
    async def open(cls, port, certificate, path):
        self, context = cls(), ssl.create_default_context(cafile=certificate)
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")
        key = base64.b64encode(os.urandom(16)).decode()
        self.writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                          f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode())
        head = await self.reader.readuntil(b"\r\n\r\n")
        self.answered(head.split()[1])
        assert await self.status == 101, head
        self.pump = asyncio.create_task(self.read())
        return self

    async def read(self):
        try:
            while data := await self.reader.read(65536):
                self.came.put_nowait(data)
            self.came.put_nowait(END)
        except OSError:
            self.came.put_nowait(RESET)

    async def send(self, data):
        self.writer.write(data)

    def finish(self):
        self.writer.close()

    def vanish(self):
        self.writer.transport.abort()

    close = vanish


class Two(Pipe, asyncio.Protocol):
    """By frames of its own, for the library h2 takes GOAWAY for the end of all streams."""

    DATA, HEADERS, RST_STREAM, SETTINGS, PING_FRAME, WINDOW_UPDATE = 0, 1, 3, 4, 6, 8
    END_STREAM, ACK, END_HEADERS = 1, 1, 4
    INITIAL_WINDOW_SIZE, ENABLE_CONNECT_PROTOCOL = 4, 8
    # What both windows have at first, what an answer may take here, and how much is in a frame, in bytes.
    WINDOW, OURS, MOST = 65535, 1 << 30, 16384

    @classmethod
    async def open(cls, port, certificate, path):
        context = ssl.create_default_context(cafile=certificate)
        context.set_alpn_protocols(["h2"])
        loop = asyncio.get_running_loop()
        _, self = await loop.create_connection(cls, "127.0.0.1", port, ssl=context, server_hostname="localhost")
        await asyncio.wait_for(self.allowed, PATIENCE)
        self.write(self.HEADERS, self.END_HEADERS, 1, hpack.Encoder().encode(fields(port, path)))
        assert await asyncio.wait_for(self.status, PATIENCE) == 200, self.status
        return self

    def connection_made(self, transport):
        self.transport, self.unparsed, self.waiting, self.decoder = transport, b"", bytearray(), hpack.Decoder()
        self.allowed, self.room, self.all_room = asyncio.get_running_loop().create_future(), self.WINDOW, self.WINDOW
        self.initial = self.WINDOW
        transport.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        self.write(self.SETTINGS, 0, 0, struct.pack(">HI", self.INITIAL_WINDOW_SIZE, self.OURS))
        self.write(self.WINDOW_UPDATE, 0, 0, struct.pack(">I", self.OURS))

    def write(self, kind, flags, stream, payload):
        self.transport.write(struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload)

    def data_received(self, data):
        self.unparsed += data
        while len(self.unparsed) >= 9 and len(self.unparsed) >= (end := 9 + int.from_bytes(self.unparsed[:3])):
            head, payload, self.unparsed = self.unparsed[:9], self.unparsed[9:end], self.unparsed[end:]
            self.heard(head[3], head[4], int.from_bytes(head[5:9]), payload)
        self.push()

    def heard(self, kind, flags, stream, payload):
        if kind == self.SETTINGS and not flags & self.ACK:
            self.settings(dict(struct.iter_unpack(">HI", payload)))
        elif kind == self.PING_FRAME and not flags & self.ACK:
            self.write(kind, self.ACK, 0, payload)
        elif kind == self.WINDOW_UPDATE:
            more = int.from_bytes(payload)
            self.room, self.all_room = (self.room + more, self.all_room) if stream else (self.room, self.all_room + more)
        elif kind == self.HEADERS:
            self.answered(dict(self.decoder.decode(payload))[":status"])
        elif kind == self.DATA and payload:
            self.came.put_nowait(payload)
        elif kind == self.RST_STREAM:
            self.came.put_nowait(RESET)
        if kind in (self.DATA, self.HEADERS) and flags & self.END_STREAM:
            self.came.put_nowait(END)

    def settings(self, given):
        initial = given.get(self.INITIAL_WINDOW_SIZE, self.initial)
        self.room, self.initial = self.room + initial - self.initial, initial
        self.write(self.SETTINGS, self.ACK, 0, b"")
        if given.get(self.ENABLE_CONNECT_PROTOCOL) == 1 and not self.allowed.done():
            self.allowed.set_result(True)

    def push(self):
        while self.waiting and (count := min(self.room, self.all_room, self.MOST, len(self.waiting))) > 0:
            self.write(self.DATA, 0, 1, bytes(self.waiting[:count]))
            del self.waiting[:count]
            self.room, self.all_room = self.room - count, self.all_room - count

    async def send(self, data):
        self.waiting += data
        self.push()

    def connection_lost(self, error):
        self.came.put_nowait(RESET)

    def finish(self):
        self.write(self.DATA, self.END_STREAM, 1, b"")

    def vanish(self):
        self.write(self.RST_STREAM, 0, 1, struct.pack(">I", CANCEL))

    def close(self):
        self.transport.abort()


class Stream(QuicConnectionProtocol):
    """A connection of HTTP/3 with one stream."""

    pipe = None

    def quic_event_received(self, event):
        if self.pipe is None:
            return
        if isinstance(event, (StreamReset, ConnectionTerminated)):
            self.pipe.came.put_nowait(RESET)
        for heard in self.pipe.h3.handle_event(event):
            if isinstance(heard, HeadersReceived):
                self.pipe.answered(dict(heard.headers)[b":status"])
            elif isinstance(heard, DataReceived) and heard.data:
                self.pipe.came.put_nowait(heard.data)
            if getattr(heard, "stream_ended", False):
                self.pipe.came.put_nowait(END)


class Three(Pipe):
    @classmethod
    async def open(cls, port, certificate, path):
        self, configuration = cls(), QuicConfiguration(is_client=True, alpn_protocols=["h3"], server_name="localhost")
        configuration.load_verify_locations(certificate)
        self.context = quic_connect("127.0.0.1", port, configuration=configuration, create_protocol=Stream)
        self.client = await self.context.__aenter__()
        self.h3, self.client.pipe = H3Connection(self.client._quic), self
        self.id = self.client._quic.get_next_available_stream_id()
        self.h3.send_headers(self.id, [(name.encode(), value.encode()) for name, value in fields(port, path)])
        self.client.transmit()
        assert await asyncio.wait_for(self.status, PATIENCE) == 200, self.status
        return self

    async def send(self, data):
        self.h3.send_data(self.id, data, end_stream=False)
        self.client.transmit()

    def finish(self):
        self.client._quic.send_stream_data(self.id, b"", end_stream=True)
        self.client.transmit()

    def vanish(self):
        self.client._quic.reset_stream(self.id, REQUEST_CANCELLED)
        self.client.transmit()

    def close(self):
        self.client.close()


def fields(port, path):
    return [(":method", "CONNECT"), (":protocol", "websocket"), (":scheme", "https"), (":authority", f"localhost:{port}"), (":path", path),
            ("sec-websocket-version", "13")]


PIPES = {"HTTP/1.1": One, "HTTP/2": Two, "HTTP/3": Three}
