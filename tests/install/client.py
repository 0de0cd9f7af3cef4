"""Python on the C library, without interposition: says hello to the echo server of a port."""

import ctypes
import socket
import struct
import sys

IPPROTO_QUIC = 261
MSG_SYN, MSG_FIN = 0x400, 0x200

library = ctypes.CDLL("libquicket.so.0", use_errno=True)


def call(name, *arguments):
    answer = getattr(library, f"quicket_{name}")(*arguments)
    if answer < 0:
        raise OSError(ctypes.get_errno(), name)
    return answer


fd = call("socket", socket.AF_INET, socket.SOCK_STREAM, IPPROTO_QUIC)
address = struct.pack("=H", socket.AF_INET) + struct.pack("!H", int(sys.argv[1]))
address += socket.inet_aton("127.0.0.1") + bytes(8)
call("connect", fd, address, len(address))
call("client_handshake", fd, b"localhost", b"echo", b"certificate.pem", None)
assert call("send", fd, b"hello", 5, MSG_SYN | MSG_FIN) == 5
room = ctypes.create_string_buffer(1024)
received = call("recv", fd, room, len(room), 0)
print(room.raw[:received].decode())
call("close", fd)
