"""An upgrade to WebSocket (RFC 6455), of which only the opening handshake is looked at. `server`: says its port, and sends
back what comes after it. `client PORT CERTIFICATE PATH`: sends as much over TLS, and says what has come of it."""

import base64
import hashlib
import os
import select
import socket
import ssl
import sys
import threading
import time

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
SENT = bytes(range(256)) * 2000


def accept(key):
    return base64.b64encode(hashlib.sha1(key + GUID).digest())


def head(stream):
    read = b""
    while not read.endswith(b"\r\n\r\n"):
        octet = stream.recv(1)
        if not octet:
            break
        read += octet
    first, *lines = read.decode().strip().split("\r\n")
    return first, {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


def serve(stream):
    _, fields = head(stream)
    if fields.get("upgrade", "").lower() != "websocket":
        return stream.sendall(b"HTTP/1.1 426 Upgrade Required\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
    told = accept(fields["sec-websocket-key"].encode())
    stream.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: " + told + b"\r\n\r\n")
    while piece := stream.recv(65536):
        stream.sendall(piece)
    stream.close()


def exchange(stream, data):
    """Sends while it receives, in one thread: one that reads and one that writes disturb each other in one stream of OpenSSL's."""
    stream.setblocking(False)
    rest, come = memoryview(data), b""
    deadline = time.monotonic() + 20
    while len(come) < len(data):
        assert time.monotonic() < deadline, f"{len(come)} of {len(data)} have come in time"
        moved = False
        try:
            if rest:
                rest, moved = rest[stream.send(rest[:65536]) :], True
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            pass
        try:
            piece = stream.recv(65536)
            if not piece:
                break
            come, moved = come + piece, True
        except ssl.SSLWantReadError:
            pass
        if not moved:
            select.select([stream], [stream] if rest else [], [], 1)
    return come


if sys.argv[1] == "server":
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    while True:
        threading.Thread(target=serve, args=[listener.accept()[0]], daemon=True).start()

port, certificate, path = sys.argv[2:]
context = ssl.create_default_context(cafile=certificate)
context.set_alpn_protocols(["http/1.1"])
stream = context.wrap_socket(socket.create_connection(("127.0.0.1", int(port)), 20), server_hostname="localhost")
key = base64.b64encode(os.urandom(16))
stream.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
               f"Sec-WebSocket-Key: {key.decode()}\r\n\r\n".encode())
first, fields = head(stream)
print(first.split()[1], flush=True)
if first.split()[1] == "101":
    assert fields["sec-websocket-accept"] == accept(key).decode(), fields
    come = exchange(stream, SENT)
    print("all" if come == SENT else f"{len(come)} of {len(SENT)}")
