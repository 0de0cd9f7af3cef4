"""Serves a port that it shares with other programs, and knows nothing of that: QUIC by Python's socket module,
the handshake by the library. Answers each stream with its name and what it was sent.

    share.py NAME PORT PROTOCOLS [reuse] [fork]

PROTOCOLS separated by commas, or - for none. Says BOUND, then READY with its address or REFUSED with the
error. What it reads: "close" ends the listener, "listen" begins another one; at the end of its input it ends.
Says ENDED when the listener has ended. With "fork" it has a child, which closes the listener, says CHILD with its process and how it cannot accept then, and
stays until it is killed.
"""

import ctypes
import errno
import os
import socket
import struct
import sys
import threading
import time

IPPROTO_QUIC = 261
SOL_QUIC = 288
QUIC_STREAM_INFO = 0
QUIC_SOCKOPT_ALPN = 11
MSG_FIN = 0x200
STREAM_INFO = struct.Struct("qI4x")

library = ctypes.CDLL(None, use_errno=True)


def say(*words):
    print(*words, flush=True)


def answer(connection, name, protocols):
    files = (os.environ["KEY"].encode(), os.environ["CERTIFICATE"].encode())
    with connection:
        if library.quicket_server_handshake(connection.fileno(), *files, protocols) != 0:
            return
        asked = {}
        while True:
            try:
                data, control, _, _ = connection.recvmsg(65536, socket.CMSG_SPACE(STREAM_INFO.size))
            except OSError:
                return
            [(_, _, info)] = control
            stream, flags = STREAM_INFO.unpack(info)
            asked[stream] = asked.get(stream, b"") + data
            if flags & MSG_FIN:
                text = name + b":" + asked.pop(stream)
                info = STREAM_INFO.pack(stream, MSG_FIN)
                connection.sendmsg([text], [(SOL_QUIC, QUIC_STREAM_INFO, info)])


def serve(listener, name, protocols):
    while True:
        try:
            connection, _ = listener.accept()
        except OSError as error:
            say("ENDED", errno.errorcode[error.errno])
            return
        threading.Thread(target=answer, args=(connection, name, protocols), daemon=True).start()


def listen(name, port, protocols, reuse):
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_QUIC)
    try:
        if reuse:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(("127.0.0.1", port))
        say("BOUND")
        if protocols is not None:
            listener.setsockopt(SOL_QUIC, QUIC_SOCKOPT_ALPN, protocols)
        listener.listen(64)
    except OSError as error:
        say("REFUSED", errno.errorcode[error.errno])
        listener.close()
        return None
    threading.Thread(target=serve, args=(listener, name, protocols), daemon=True).start()
    say("READY", "%s:%d" % listener.getsockname())
    return listener


def main():
    name, port, protocols = sys.argv[1].encode(), int(sys.argv[2]), sys.argv[3].encode()
    protocols = None if protocols == b"-" else protocols
    reuse = "reuse" in sys.argv[4:]
    listener = listen(name, port, protocols, reuse)
    if "fork" in sys.argv[4:] and os.fork() == 0:
        try:
            os.close(listener.fileno())
            listener.accept()
        except OSError as error:
            say("CHILD", os.getpid(), errno.errorcode[error.errno])
        while True:
            time.sleep(60)
    for line in sys.stdin:
        if line == "close\n":
            port = listener.getsockname()[1]
            # While a thread accepts, closing alone ends nothing, as with other sockets.
            listener.listen(0)
            listener.close()
            say("CLOSED")
        elif line == "listen\n":
            listener = listen(name, port, protocols, reuse)
    os._exit(0)


if __name__ == "__main__":
    main()
