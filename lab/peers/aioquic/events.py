"""The JSON lines of a peer, and what one end knows of a connection."""

import asyncio
import json
import os
import sys
import threading
from typing import Any, TextIO

from aioquic.quic.connection import QuicConnection
from aioquic.quic.events import HandshakeCompleted
from aioquic.quic.logger import QuicFileLogger, QuicLogger, QuicLoggerTrace

ALPN_HQ = "hq-interop"
ALPN_H3 = "h3"
ALPN_ECHO = "echo"

ECHO_STREAM_LENGTH = 1024
ECHO_DATAGRAM_LENGTH = 512


def emit(event: str, **fields: Any) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)


def echo_payload(number: int, length: int) -> bytes:
    """The bytes that every implementation sends on the echoed stream of this number."""
    payload = bytearray(number.to_bytes(4, "big"))
    state = number
    while len(payload) < length:
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        payload.append(state >> 24)
    return bytes(payload[:length])


class CountingTrace(QuicLoggerTrace):
    """Keeps counts of what the driver asks about, and everything if a file is wanted."""

    def __init__(self, *, is_client: bool, odcid: bytes, keep: bool) -> None:
        super().__init__(is_client=is_client, odcid=odcid)
        self.keep = keep
        self.keys_changed = 0
        self.retries = 0

    def log_event(self, *, category: str, event: str, data: dict) -> None:
        if self.keep:
            super().log_event(category=category, event=event, data=data)
        if event == "key_updated" and data["trigger"] in ("local_update", "remote_update"):
            self.keys_changed += 1
        elif event == "packet_received" and data["header"]["packet_type"] == "retry":
            self.retries += 1


class CountingLogger(QuicLogger):
    """Writes the files that QLOGDIR asks for."""

    def __init__(self) -> None:
        super().__init__()
        folder = os.environ.get("QLOGDIR")
        self.file = QuicFileLogger(folder) if folder else None

    def start_trace(self, is_client: bool, odcid: bytes) -> CountingTrace:
        trace = CountingTrace(is_client=is_client, odcid=odcid, keep=self.file is not None)
        if self.file is not None:
            self.file._traces.append(trace)
        return trace

    def end_trace(self, trace: QuicLoggerTrace) -> None:
        if self.file is not None:
            self.file.end_trace(trace)


def key_log() -> TextIO | None:
    """The file for TLS secrets that SSLKEYLOGFILE names."""
    name = os.environ.get("SSLKEYLOGFILE")
    return open(name, "a") if name else None


class Counts:
    """Keeps the trace of a connection, which lets go of it when it ends."""

    def __init__(self, connection: QuicConnection) -> None:
        self.connection = connection
        self.trace: CountingTrace | None = None

    def look(self) -> None:
        if self.trace is None:
            self.trace = self.connection._quic_logger

    @property
    def key_updates(self) -> int:
        # An update changes the keys of both directions, each of which is an event.
        return self.trace.keys_changed // 2 if self.trace else 0

    @property
    def retried(self) -> bool:
        return self.trace is not None and self.trace.retries > 0


def facts_of(connection: QuicConnection, completed: HandshakeCompleted) -> dict[str, Any]:
    return {
        # There is no accessor for the version in use.
        "version": f"0x{connection._version:08x}",
        "alpn": completed.alpn_protocol,
        "resumed": completed.session_resumed,
        "early_data": completed.early_data_accepted,
    }


async def standard_input_ended() -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def wait() -> None:
        while sys.stdin.buffer.read(64):
            pass
        loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=wait, daemon=True).start()
    await ended.wait()
