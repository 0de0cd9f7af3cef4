"""A client that sends a body with trailers to /echo, and prints what x-heard says in those of the answer; then the names
of the trailers of /trailers. Arguments: the version of HTTP (1, 2, 3; 2-late: trailers follow when the answer has begun),
the port, the server's certificate, and the names of the trailers."""

import asyncio
import socket
import ssl
import sys

import h2.config
import h2.connection
import h2.events
from aioquic.asyncio import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3Connection
from aioquic.h3.events import HeadersReceived
from aioquic.quic.configuration import QuicConfiguration

VERSION, PORT, CERTIFICATE, *NAMES = sys.argv[1:]
TRAILERS = [(name, "203.0.113.9") for name in NAMES]


def pseudo(path):
    method = "POST" if path == "/echo" else "GET"
    return [(":method", method), (":scheme", "https"), (":authority", "localhost"), (":path", path)]


def secure(alpn):
    context = ssl.create_default_context(cafile=CERTIFICATE)
    context.set_alpn_protocols([alpn])
    return context.wrap_socket(socket.create_connection(("127.0.0.1", int(PORT)), 20), server_hostname="localhost")


def one(path):
    """Sends as it was told, whatever is right, and reads to the end of a chunked answer."""
    with secure("http/1.1") as stream:
        head = "GET" if path != "/echo" else "POST"
        lines = [f"{head} {path} HTTP/1.1", "Host: localhost", "TE: trailers", "Connection: te, close"]
        body = ""
        if path == "/echo":
            lines += ["Transfer-Encoding: chunked", "Trailer: " + ", ".join(NAMES)]
            body = "1\r\na\r\n0\r\n" + "".join(f"{name}: {value}\r\n" for name, value in TRAILERS) + "\r\n"
        stream.sendall(("\r\n".join(lines) + "\r\n\r\n" + body).encode())
        read = b""
        while data := stream.recv(65536):
            read += data
        return [], read


def two(path):
    with secure("h2") as stream:
        connection = h2.connection.H2Connection(h2.config.H2Configuration(validate_outbound_headers=False))
        connection.initiate_connection()
        connection.send_headers(1, pseudo(path), end_stream=path != "/echo")
        if path == "/echo":
            connection.send_data(1, b"a")
        is_late, trailers = VERSION == "2-late", []
        if path == "/echo" and not is_late:
            connection.send_headers(1, TRAILERS, end_stream=True)
        stream.sendall(connection.data_to_send())
        while data := stream.recv(65536):
            for event in connection.receive_data(data):
                if isinstance(event, h2.events.TrailersReceived):
                    trailers = [(name.decode(), value.decode()) for name, value in event.headers]
                elif isinstance(event, h2.events.DataReceived) and path == "/echo" and is_late:
                    connection.send_headers(1, TRAILERS, end_stream=True)
                elif isinstance(event, (h2.events.StreamEnded, h2.events.StreamReset)):
                    return trailers, event
            stream.sendall(connection.data_to_send())
        return trailers, None


class Three(QuicConnectionProtocol):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.http, self.sections, self.ended = H3Connection(self._quic), [], asyncio.Event()

    def ask(self, path):
        stream = self._quic.get_next_available_stream_id()
        coded = [(name.encode(), value.encode()) for name, value in pseudo(path)]
        self.sections, self.ended = [], asyncio.Event()
        self.http.send_headers(stream, coded, end_stream=path != "/echo")
        if path == "/echo":
            self.http.send_data(stream, b"a", end_stream=False)
            trailers = [(name.encode(), value.encode()) for name, value in TRAILERS]
            self.http.send_headers(stream, trailers, end_stream=True)
        self.transmit()

    def quic_event_received(self, event):
        for event in self.http.handle_event(event):
            if isinstance(event, HeadersReceived):
                self.sections.append([(name.decode(), value.decode()) for name, value in event.headers])
            if getattr(event, "stream_ended", False):
                self.ended.set()


async def three(paths):
    configuration = QuicConfiguration(is_client=True, alpn_protocols=["h3"], server_name="localhost")
    configuration.load_verify_locations(CERTIFICATE)
    async with connect("127.0.0.1", int(PORT), configuration=configuration, create_protocol=Three) as client:
        for path in paths:
            client.ask(path)
            await asyncio.wait_for(client.ended.wait(), 20)
            told(client.sections[-1] if len(client.sections) > 1 else [], client.sections)


def told(trailers, all):
    trailers = dict(trailers)
    print(trailers.get("x-heard", " ".join(sorted(trailers))) if trailers else repr(all), flush=True)


if VERSION == "3":
    asyncio.run(three(["/echo", "/trailers"]))
else:
    for path in ["/echo", "/trailers"]:
        told(*{"1": one, "2": two, "2-late": two}[VERSION](path))
