"""A client of HTTP/2 that asks once and then only answers PING, and sends its own. Arguments: port, certificate, path,
and the window of a stream, in bytes.
Says the answer's status and its body's length, how many GOAWAY came afterwards and with which last error, how many of its
PINGs were answered, and after how many milliseconds without a request the connection ended."""

import socket
import ssl
import sys
import time

from hpack import Decoder, Encoder
from hyperframe.frame import DataFrame, Frame, GoAwayFrame, HeadersFrame, PingFrame, SettingsFrame

PORT, CERTIFICATE, PATH, WINDOW = sys.argv[1:]
context = ssl.create_default_context(cafile=CERTIFICATE)
context.set_alpn_protocols(["h2"])
stream = context.wrap_socket(socket.create_connection(("127.0.0.1", int(PORT)), 10), server_hostname="localhost")
stream.settimeout(0.05)
fields = [(":method", "GET"), (":scheme", "https"), (":authority", f"localhost:{PORT}"), (":path", PATH)]
settings = SettingsFrame(0, settings={SettingsFrame.INITIAL_WINDOW_SIZE: int(WINDOW)})
ask = HeadersFrame(1, Encoder().encode(fields), flags=["END_HEADERS", "END_STREAM"])
stream.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings.serialize() + ask.serialize())

begun = answered = time.monotonic()
come, status, length, goaways, answers = b"", None, 0, [], 0
while time.monotonic() - begun < 20:
    try:
        piece = stream.recv(65536)
        if not piece:
            break
        come += piece
    except TimeoutError:
        try:
            stream.sendall(PingFrame(0, opaque_data=b"anybody?").serialize())
        except OSError:
            break
    except OSError:
        break
    while len(come) >= 9:
        frame, rest = Frame.parse_frame_header(memoryview(come[:9]))
        if len(come) < 9 + rest:
            break
        frame.parse_body(memoryview(come[9 : 9 + rest]))
        come = come[9 + rest :]
        reply = None
        if isinstance(frame, SettingsFrame) and "ACK" not in frame.flags:
            reply = SettingsFrame(0, flags=["ACK"])
        elif isinstance(frame, PingFrame) and "ACK" not in frame.flags:
            reply = PingFrame(0, opaque_data=frame.opaque_data, flags=["ACK"])
        elif isinstance(frame, PingFrame):
            answers += 1
        elif isinstance(frame, HeadersFrame):
            status = dict(Decoder().decode(frame.data))[":status"]
        elif isinstance(frame, DataFrame):
            length += len(frame.data)
        elif isinstance(frame, GoAwayFrame):
            goaways.append(frame.error_code)
        if isinstance(frame, (HeadersFrame, DataFrame)) and "END_STREAM" in frame.flags:
            answered = time.monotonic()
        if reply:
            stream.sendall(reply.serialize())
idle = round((time.monotonic() - answered) * 1000)
print(status, length, len(goaways), *sorted(set(goaways)), answers > 0, idle)
