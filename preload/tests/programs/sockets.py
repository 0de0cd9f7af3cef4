"""QUIC with nothing but Python's socket and selectors modules; only the handshake is Quicket's."""

import ctypes
import os
import selectors
import socket
import struct
import subprocess
import sys
import threading

IPPROTO_QUIC = 261
SOL_QUIC = 288
QUIC_STREAM_INFO = 0
MSG_SYN, MSG_FIN = 0x400, 0x200
STREAM_INFO = struct.Struct("qI4x")

library = ctypes.CDLL(None, use_errno=True)


def handshake(function, sock, *arguments):
    arguments = [None if text is None else text.encode() for text in arguments]
    if getattr(library, function)(sock.fileno(), *arguments) != 0:
        raise OSError(ctypes.get_errno(), function)


def serve(listener, got):
    connection, address = listener.accept()
    with connection:
        handshake("quicket_server_handshake", connection, os.environ["KEY"],
                  os.environ["CERTIFICATE"], "test")
        got["address"] = address
        request = b""
        flags = 0
        while not flags & MSG_FIN:
            data, control, _, _ = connection.recvmsg(1024, socket.CMSG_SPACE(STREAM_INFO.size))
            [(level, kind, info)] = control
            assert (level, kind) == (SOL_QUIC, QUIC_STREAM_INFO), control
            got["stream"], flags = STREAM_INFO.unpack(info)
            request += data
        # A child process must not disturb.
        assert subprocess.run(["true"], check=False).returncode == 0
        connection.send(request.upper(), MSG_FIN)
        try:
            connection.recv(1)
        except OSError as error:
            got["end"] = error.errno


def main():
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_QUIC)
    listener.bind(("127.0.0.1", 0))
    listener.setsockopt(SOL_QUIC, 11, b"test")
    listener.listen(4)
    got = {}
    server = threading.Thread(target=serve, args=(listener, got))
    server.start()

    client = socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_QUIC)
    client.connect(listener.getsockname())
    handshake("quicket_client_handshake", client, "localhost", "test", None, os.environ["PIN"])
    local = client.getsockname()
    info = STREAM_INFO.pack(-1, MSG_SYN)
    client.sendmsg([b"hel", b"lo"], [(SOL_QUIC, QUIC_STREAM_INFO, info)])
    client.send(b" world", MSG_FIN)

    client.setblocking(False)
    selector = selectors.DefaultSelector()
    selector.register(client, selectors.EVENT_READ)
    answer = b""
    flags = 0
    while not flags & MSG_FIN:
        assert selector.select(timeout=20), "nothing came"
        data, control, _, _ = client.recvmsg(1024, socket.CMSG_SPACE(STREAM_INFO.size))
        _, flags = STREAM_INFO.unpack(control[0][2])
        answer += data
    assert answer == b"HELLO WORLD", answer
    try:
        client.recv(1)
        raise AssertionError("there was nothing to receive")
    except BlockingIOError:
        pass
    client.close()
    server.join(20)
    assert not server.is_alive()
    assert got == {"address": local, "stream": 0, "end": 107}, got
    print("passed")


if __name__ == "__main__":
    sys.exit(main())
