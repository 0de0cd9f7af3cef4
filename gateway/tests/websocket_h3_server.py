"""A WebSocket server of HTTP/3 (RFC 9220) by aioquic, with the frames of websockets: says its path and protocol, and sends
back what it gets; /refused gets 403, and /reset is reset after the answer.
Arguments: certificate, key, a file for its log, whether SETTINGS allow extended CONNECT (yes or no;
one: they do, and each connection allows a single stream)."""

import asyncio
import sys

from aioquic.asyncio import serve
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import ErrorCode, H3Connection, Setting
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import HandshakeCompleted, StopSendingReceived, StreamReset
from websockets.frames import Opcode
from websockets.protocol import OPEN, SERVER, Protocol

CHAIN, KEY, LOG, ALLOWED = sys.argv[1:]
LOG = open(LOG, "a", buffering=1)


class Http(H3Connection):
    def _get_local_settings(self):
        settings = super()._get_local_settings()
        if ALLOWED == "no":
            del settings[Setting.ENABLE_CONNECT_PROTOCOL]
        return settings


class Server(QuicConnectionProtocol):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.http = None
        self.sockets = {}
        if ALLOWED == "one":
            # aioquic would raise it by itself.
            streams = self._quic._local_max_streams_bidi
            streams.sent = 1
            fixed = {"value": property(lambda limit: 1, lambda limit, value: None)}
            streams.__class__ = type("Fixed", (type(streams),), fixed)

    def quic_event_received(self, event):
        if isinstance(event, HandshakeCompleted):
            print("connection", file=LOG)
            self.http = Http(self._quic)
        elif isinstance(event, (StreamReset, StopSendingReceived)):
            print(type(event).__name__, hex(event.error_code), file=LOG)
        for event in self.http.handle_event(event) if self.http else ():
            if isinstance(event, HeadersReceived):
                self.begun(event)
            elif isinstance(event, DataReceived) and event.stream_id in self.sockets:
                self.came(event.stream_id, event.data, event.stream_ended)
        self.transmit()

    def begun(self, event):
        stream, fields = event.stream_id, dict(event.headers)
        path = fields[b":path"].decode()
        names = [name.decode() for name, _ in event.headers]
        print(path, *(name for name in names if name.startswith((":", "sec-"))), file=LOG)
        if fields[b":method"] != b"CONNECT":
            self.http.send_headers(stream, [(b":status", b"200")])
            return self.http.send_data(stream, path.encode(), end_stream=True)
        assert fields[b":protocol"] == b"websocket" and fields[b"sec-websocket-version"] == b"13"
        assert fields[b":scheme"] == b"https" and b"sec-websocket-key" not in fields
        if path == "/refused":
            self.http.send_headers(stream, [(b":status", b"403")])
            return self.http.send_data(stream, b"no\n", end_stream=True)
        subprotocol = fields.get(b"sec-websocket-protocol", b"None")
        answer = [(b":status", b"200"), (b"sec-websocket-protocol", subprotocol)]
        self.http.send_headers(stream, answer)
        if path == "/reset":
            # A reset takes back what was not delivered: the head has time to be.
            return asyncio.get_running_loop().call_later(0.5, self.reset, stream)
        self.sockets[stream] = Protocol(SERVER, state=OPEN, max_size=4 << 20)
        self.sockets[stream].send_text(f"{path} {subprotocol.decode()}".encode())
        self.flush(stream)

    def reset(self, stream):
        self._quic.reset_stream(stream, ErrorCode.H3_REQUEST_CANCELLED)
        self.transmit()

    def came(self, stream, data, ended):
        socket = self.sockets[stream]
        if data:
            socket.receive_data(data)
        for frame in socket.events_received():
            if frame.opcode is Opcode.TEXT:
                socket.send_text(bytes(frame.data))
            elif frame.opcode is Opcode.BINARY:
                socket.send_binary(bytes(frame.data))
            elif frame.opcode is Opcode.CLOSE:
                print("closed", file=LOG)
        if ended:
            print("ended", file=LOG)
        self.flush(stream)
        if ended or socket.close_expected():
            self.http.send_data(stream, b"", end_stream=True)
            del self.sockets[stream]

    def flush(self, stream):
        for data in self.sockets[stream].data_to_send():
            if data:
                self.http.send_data(stream, data, end_stream=False)


async def main():
    configuration = QuicConfiguration(is_client=False, alpn_protocols=["h3"])
    configuration.load_cert_chain(CHAIN, KEY)
    server = await serve("127.0.0.1", 0, configuration=configuration, create_protocol=Server)
    print(server._transport.get_extra_info("sockname")[1], flush=True)
    # It ends with who started it.
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.read)


asyncio.run(main())
