"""First packets of clients (RFC 9001, Section 5), made in advance and sent at a rate."""

import ctypes
import hashlib
import hmac
import os
import socket
import struct
import time

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

SALT = bytes.fromhex("38762cf7f55934b34d179ae6a4c80cadccbb7f0a")
LENGTH = 1200


def expand(secret, label, length):
    """HKDF-Expand-Label (RFC 8446, Section 7.1) of one block."""
    label = b"tls13 " + label
    info = struct.pack("!HB", length, len(label)) + label + b"\0\1"
    return hmac.new(secret, info, hashlib.sha256).digest()[:length]


def vector(size, data):
    return len(data).to_bytes(size, "big") + data


def client_hello(name, protocol, source, padding=0, wrong=False):
    """A ClientHello (RFC 8446, Section 4.1.2), longer by so many bytes of padding (RFC 7685). What is wrong ends the handshake:
    a transport parameter whose length does not match its integer (RFC 9000, Section 18)."""
    def extension(kind, data):
        return struct.pack("!H", kind) + vector(2, data)

    extensions = extension(21, bytes(padding)) if padding else b""
    extensions += extension(0, vector(2, b"\0" + vector(2, name.encode())))
    extensions += extension(16, vector(2, vector(1, protocol.encode())))
    extensions += extension(43, vector(1, b"\3\4"))
    extensions += extension(13, vector(2, bytes.fromhex("0403080404010503")))
    extensions += extension(10, vector(2, b"\0\x1d"))
    extensions += extension(51, vector(2, b"\0\x1d" + vector(2, x25519())))
    parameters = b"\x0f" + vector(1, source) + bytes.fromhex("0404800f4240 0504800f4240 080110".replace(" ", ""))
    parameters += b"\x09\1\x40" if wrong else b""
    extensions += extension(57, parameters)
    body = b"\3\3" + os.urandom(32) + b"\0" + vector(2, b"\x13\x01") + b"\1\0" + vector(2, extensions)
    return b"\1" + vector(3, body)


def x25519():
    """A public key."""
    return X25519PrivateKey.generate().public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


class Client:
    """One that only begins: its Initial packets, each in a datagram."""

    def __init__(self):
        self.to, self.source = os.urandom(8), os.urandom(8)
        secret = expand(hmac.new(SALT, self.to, hashlib.sha256).digest(), b"client in", 32)
        self.key, self.iv = expand(secret, b"quic key", 16), expand(secret, b"quic iv", 12)
        self.mask = Cipher(algorithms.AES(expand(secret, b"quic hp", 16)), modes.ECB())

    def datagram(self, number, frames):
        """A packet of these frames, filled up to the length of a datagram."""
        before = b"\0\0\0\1" + vector(1, self.to) + vector(1, self.source) + b"\0"
        length = LENGTH - 1 - len(before) - 2
        header = b"\xc3" + before + struct.pack("!H", 0x4000 | length) + number.to_bytes(4, "big")
        payload = frames.ljust(length - 4 - 16, b"\0")
        assert len(payload) == length - 4 - 16, "more than a datagram holds"
        nonce = (int.from_bytes(self.iv, "big") ^ number).to_bytes(12, "big")
        sealed = AESGCM(self.key).encrypt(nonce, payload, header)
        mask = self.mask.encryptor().update(sealed[:16])
        packet = bytearray(header + sealed)
        packet[0] ^= mask[0] & 0x0F
        for at in range(4):
            packet[len(header) - 4 + at] ^= mask[1 + at]
        return bytes(packet)


def crypto(offset, data):
    """A CRYPTO frame (RFC 9000, Section 19.6)."""
    return b"\6" + struct.pack("!HH", 0x4000 | offset, 0x4000 | len(data)) + data


def initial(name, protocol, whole=True, wrong=False):
    """The first datagram of a client that asks for `name`, with the whole of its ClientHello or the first half."""
    client = Client()
    hello = client_hello(name, protocol, client.source, wrong=wrong)
    hello = hello if whole else hello[:len(hello) // 2]
    return client.datagram(0, crypto(0, hello))


class Message(ctypes.Structure):
    """struct mmsghdr."""
    _fields_ = [("name", ctypes.c_void_p), ("namelen", ctypes.c_uint32), ("iov", ctypes.c_void_p), ("iovlen", ctypes.c_size_t),
                ("control", ctypes.c_void_p), ("controllen", ctypes.c_size_t), ("flags", ctypes.c_int),
                ("length", ctypes.c_uint)]


class Piece(ctypes.Structure):
    """struct iovec."""
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


LIBC = ctypes.CDLL(None, use_errno=True)
BATCH = 64


class Flood:
    """Sends datagrams in turns from several sockets, with several in a system call."""

    def __init__(self, address, datagrams, sockets=16):
        self.datagrams = [ctypes.create_string_buffer(data, len(data)) for data in datagrams]
        self.pieces = (Piece * len(datagrams))()
        self.messages = (Message * len(datagrams))()
        for at, data in enumerate(self.datagrams):
            self.pieces[at] = Piece(ctypes.addressof(data), len(data))
            self.messages[at].iov = ctypes.addressof(self.pieces[at])
            self.messages[at].iovlen = 1
        self.sockets = []
        for at in range(sockets):
            one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            one.bind((f"127.0.{1 + at}.1", 0))
            one.connect(address)
            one.setblocking(False)
            self.sockets.append(one)
        self.answers = 0

    def run(self, seconds, rate):
        """Sends for a time; returns how many a second were sent."""
        begun, sent, turn = time.monotonic(), 0, 0
        while (now := time.monotonic() - begun) < seconds:
            if sent > now * rate:
                time.sleep(0.0005)
                continue
            at = (turn * BATCH) % (len(self.messages) - BATCH + 1)
            one = self.sockets[turn % len(self.sockets)]
            turn += 1
            done = LIBC.sendmmsg(one.fileno(), ctypes.byref(self.messages, at * ctypes.sizeof(Message)), BATCH, 0)
            sent += max(done, 0)
            if turn % 64 == 0:
                self.take_answers()
        self.take_answers()
        return sent / (time.monotonic() - begun)

    def take_answers(self):
        for one in self.sockets:
            try:
                while one.recv(2048):
                    self.answers += 1
            except OSError:
                pass
