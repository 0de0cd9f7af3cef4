"""A server of HTTP/3 by aioquic, that does what paths ask for: hello, size/N, echo (body and trailers), slow, early (an
answer before the body), hints (103), leave (GOAWAY), refused (once), reset, half, hold/SECONDS, and answers that are none.
Arguments: certificate, key, a file for its log, port or 0, how many requests it takes on a connection: at first, more as
aioquic likes; with = in front as many at a time, and never more."""

import asyncio
import sys

from aioquic.asyncio import serve
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.buffer import encode_uint_var
from aioquic.h3.connection import ErrorCode, FrameType, H3Connection, HeadersState, encode_frame
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import HandshakeCompleted

CHAIN, KEY, LOG, PORT, STREAMS = sys.argv[1:]
LOG = open(LOG, "a", buffering=1)
refused = 0


class Server(QuicConnectionProtocol):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.answered = 0
        if STREAMS.startswith("="):
            self.limit_strictly(int(STREAMS[1:]))
        else:
            self._quic._local_max_streams_bidi.value = int(STREAMS)
        self.http = None
        self.paths, self.trailers, self.taken, self.leaving = {}, {}, 0, None

    def limit_strictly(self, count):
        streams = self._quic._local_max_streams_bidi
        streams.sent = count
        # aioquic would raise it by itself.
        exact = {"value": property(lambda limit: count + self.answered, lambda limit, value: None)}
        streams.__class__ = type("Exact", (type(streams),), exact)

    def quic_event_received(self, event):
        if isinstance(event, HandshakeCompleted):
            print("connection", file=LOG)
            self.http = H3Connection(self._quic)
        for event in self.http.handle_event(event) if self.http else ():
            if isinstance(event, (HeadersReceived, DataReceived)):
                self.received(event)

    def received(self, event):
        stream = event.stream_id
        if isinstance(event, HeadersReceived) and stream not in self.paths:
            self.paths[stream] = path = dict(event.headers)[b":path"].decode()
            print(path, file=LOG)
            if path == "/echo":
                self.begin(stream)
            else:
                asyncio.ensure_future(self.answer(stream, path, dict(event.headers)))
        elif isinstance(event, HeadersReceived):
            self.trailers[stream] = event.headers
        if self.paths[stream] == "/echo":
            if isinstance(event, DataReceived) and event.data:
                self.http.send_data(stream, event.data, end_stream=False)
            if event.stream_ended:
                said = ",".join(sorted(name.decode() for name, _ in self.trailers.get(stream, [])))
                print("heard", said, file=LOG)
                self.http.send_headers(stream, [(b"x-heard", said.encode()), (b"x-last", b"1")], end_stream=True)
            self.transmit()

    def begin(self, stream, status=b"200", fields=()):
        self.http.send_headers(stream, [(b":status", status), *fields])

    def interim(self, stream, fields):
        self.begin(stream, b"103", fields)
        self.http._stream[stream].headers_send_state = HeadersState.INITIAL

    def raw(self, stream, section):
        frame = encode_frame(FrameType.HEADERS, b"\0\0" + section)
        self._quic.send_stream_data(stream, frame, end_stream=True)

    async def answer(self, stream, path, fields):
        global refused
        self.taken += 1
        if path.startswith("/slow"):
            await asyncio.sleep(0.5)
        if path.startswith("/hold/"):
            await asyncio.sleep(float(path[6:]))
        if path.startswith("/leave") and self.leaving is None and self.taken >= 6:
            # This one is answered and no other, whatever has come; the connection ends soon.
            self.leaving = stream + 4
            goaway = encode_frame(FrameType.GOAWAY, encode_uint_var(self.leaving))
            self._quic.send_stream_data(self.http._local_control_stream_id, goaway)
            asyncio.get_running_loop().call_later(1, self.close, ErrorCode.H3_NO_ERROR)
        if self.leaving is not None and stream >= self.leaving:
            return self.transmit()
        if path == "/refused" and not refused:
            refused = 1
            self._quic.reset_stream(stream, ErrorCode.H3_REQUEST_REJECTED)
            self._quic.stop_stream(stream, ErrorCode.H3_REQUEST_REJECTED)
        elif path == "/reset":
            self._quic.reset_stream(stream, ErrorCode.H3_INTERNAL_ERROR)
        elif path == "/empty":
            self._quic.send_stream_data(stream, b"", end_stream=True)
        elif path == "/smuggled":
            self.begin(stream, fields=[(b"connection", b"close")])
            self.http.send_data(stream, b"x", end_stream=True)
        elif path == "/switched":
            self.raw(stream, b"\x5f\x09\x03101")
        elif path == "/undecodable":
            self.raw(stream, b"\x80")
        elif path == "/unknown":
            # Fields in a frame that is longer than any header section may be.
            self.raw(stream, b"\xd9" + b"\x27\x00aaaaaaa\x7f\x81\x7e" + b"b" * 16256 * 1 + b"\xd9" * 60000)
        elif path == "/long":
            self.begin(stream, fields=[(b"content-length", b"3")])
            self.http.send_data(stream, b"four", end_stream=True)
        elif path == "/push":
            self._quic.send_stream_data(stream, encode_frame(FrameType.PUSH_PROMISE, b"\0\0\0"))
        elif path == "/half":
            self.begin(stream, fields=[(b"content-length", b"8")])
            self.http.send_data(stream, b"half", end_stream=False)
            self.transmit()
            await asyncio.sleep(0.1)
            self.close(ErrorCode.H3_INTERNAL_ERROR)
        elif path == "/silent":
            return
        elif path == "/trailers":
            self.begin(stream)
            self.http.send_data(stream, b"a", end_stream=False)
            names = b"x-good set-cookie content-type location x-set x_set".split()
            self.http.send_headers(stream, [(name, b"1") for name in names], end_stream=True)
        elif path.startswith("/early"):
            self.begin(stream, b"413")
            body = b"no more" if path == "/early" else b"x" * int(path[7:])
            self.http.send_data(stream, body, end_stream=True)
            self._quic.stop_stream(stream, ErrorCode.H3_NO_ERROR)
        elif path.startswith("/size/"):
            self.begin(stream)
            self.http.send_data(stream, b"0123456789" * (int(path[6:]) // 10), end_stream=True)
        else:
            if path == "/hints":
                self.interim(stream, [(b"link", b"</a.css>; rel=preload")])
            self.begin(stream)
            said = path.encode()
            if path == "/who":
                said = fields[b":authority"] + b" " + fields.get(b"x-forwarded-proto", b"?")
            self.http.send_data(stream, said, end_stream=True)
        self.answered += 1
        self.transmit()


async def main():
    configuration = QuicConfiguration(is_client=False, alpn_protocols=["h3"], max_datagram_frame_size=None)
    configuration.load_cert_chain(CHAIN, KEY)
    server = await serve("127.0.0.1", int(PORT), configuration=configuration, create_protocol=Server)
    print(server._transport.get_extra_info("sockname")[1], flush=True)
    # It ends with who started it.
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.read)


asyncio.run(main())
