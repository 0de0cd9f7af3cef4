"""A server of processes in Python, which knows nothing of how its sockets are made: binds, listens, forks, and
each child accepts. It answers each stream with the number of its process and what it was sent.

    prefork.py PORT PROTOCOL CHILDREN accept | epoll

A child serves a client at a time, or with "epoll" each by a thread. It says CHILD with its process, the parent READY
with its address, and waits for its children. All end with their input.
"""

import ctypes
import os
import selectors
import socket
import struct
import sys
import threading

IPPROTO_QUIC = 261
SOL_QUIC = 288
QUIC_STREAM_INFO = 0
QUIC_SOCKOPT_ALPN = 11
MSG_FIN = 0x200
STREAM_INFO = struct.Struct("qI4x")

library = ctypes.CDLL(None, use_errno=True)


def say(line):
    # In one piece: others write, too.
    os.write(1, line.encode() + b"\n")


def end_with_the_input():
    def run():
        while os.read(0, 1):
            pass
        os._exit(0)

    threading.Thread(target=run, daemon=True).start()


def serve(connection, protocol):
    files = (os.environ["KEY"].encode(), os.environ["CERTIFICATE"].encode())
    with connection:
        if library.quicket_server_handshake(connection.fileno(), *files, protocol) != 0:
            return
        asked = b""
        while True:
            try:
                data, control, _, _ = connection.recvmsg(65536, socket.CMSG_SPACE(STREAM_INFO.size))
            except OSError:
                return
            [(_, _, info)] = control
            stream, flags = STREAM_INFO.unpack(info)
            asked += data
            if flags & MSG_FIN:
                info = STREAM_INFO.pack(stream, MSG_FIN)
                connection.sendmsg([b"%d:%b" % (os.getpid(), asked)], [(SOL_QUIC, QUIC_STREAM_INFO, info)])
                asked = b""


def work(listener, protocol, how):
    end_with_the_input()
    say("CHILD %d" % os.getpid())
    if how == "accept":
        while True:
            serve(listener.accept()[0], protocol)
    listener.setblocking(False)
    with selectors.EpollSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        while True:
            selector.select()
            try:
                connection, _ = listener.accept()
            except BlockingIOError:
                continue
            connection.setblocking(True)
            threading.Thread(target=serve, args=(connection, protocol), daemon=True).start()


def main():
    port, protocol, children, how = int(sys.argv[1]), sys.argv[2].encode(), int(sys.argv[3]), sys.argv[4]
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_QUIC)
    listener.bind(("127.0.0.1", port))
    listener.setsockopt(SOL_QUIC, QUIC_SOCKOPT_ALPN, protocol)
    listener.listen(64)
    for _ in range(children):
        if os.fork() == 0:
            work(listener, protocol, how)
    say("READY %s:%d" % listener.getsockname())
    end_with_the_input()
    while True:
        try:
            os.wait()
        except ChildProcessError:
            threading.Event().wait()


if __name__ == "__main__":
    main()
