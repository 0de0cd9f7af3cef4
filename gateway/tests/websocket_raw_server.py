"""A server of HTTP/1.1 that takes up every WebSocket, and says "hello". At /rst it resets the connection as soon as the client
says something; others it reads to their end, and logs what that was: FIN or RST. Argument: a file for its log."""

import base64
import hashlib
import socket
import struct
import sys
import threading

LOG = open(sys.argv[1], "a", buffering=1)
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def serve(connection):
    asked = b""
    while not asked.endswith(b"\r\n\r\n"):
        asked += connection.recv(1)
    lines = asked.split(b"\r\n")
    fields = dict(line.lower().split(b": ", 1) for line in lines[1:] if b": " in line)
    key = next(line.split(b": ", 1)[1] for line in lines if line.lower().startswith(b"sec-websocket-key: "))
    accept = base64.b64encode(hashlib.sha1(key + GUID).digest())
    assert fields[b"upgrade"] == b"websocket"
    connection.sendall(
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n\x81\x05hello"
    )
    if b" /rst " in lines[0]:
        connection.recv(1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return connection.close()
    try:
        while connection.recv(65536):
            pass
        print("FIN", file=LOG)
    except ConnectionResetError:
        print("RST", file=LOG)
    connection.close()


listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)


def accept():
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve, args=(connection,), daemon=True).start()


threading.Thread(target=accept, daemon=True).start()
# It ends with who started it.
sys.stdin.buffer.read()
