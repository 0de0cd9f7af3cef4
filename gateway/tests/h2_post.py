"""Posts a body to an HTTP/2 server with the library h2, and prints the status, the length of the answer's body, and how the
stream ended: with which error code, if it was reset. Arguments: port, file with the server's certificate, path, length."""

import socket
import ssl
import sys

import h2.config
import h2.connection
import h2.events

PORT, CERTIFICATE, PATH, LENGTH = sys.argv[1:]
context = ssl.create_default_context(cafile=CERTIFICATE)
context.set_alpn_protocols(["h2"])
sock = context.wrap_socket(socket.create_connection(("127.0.0.1", int(PORT)), 20), server_hostname="localhost")
http = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
http.initiate_connection()
fields = [(":method", "POST"), (":scheme", "https"), (":authority", "localhost"), (":path", PATH), ("content-length", LENGTH)]
http.send_headers(1, fields)
left, status, length, whole, code = int(LENGTH), None, 0, False, None
while code is None:
    # As long as it is not told to stop, it sends.
    while left and (room := min(left, http.local_flow_control_window(1), http.max_outbound_frame_size)):
        left -= room
        http.send_data(1, b"a" * room, end_stream=not left)
    sock.sendall(http.data_to_send())
    data = sock.recv(65536)
    if not data:
        break
    for event in http.receive_data(data):
        if isinstance(event, h2.events.ResponseReceived):
            status = dict(event.headers)[":status"]
        elif isinstance(event, h2.events.DataReceived):
            length += len(event.data)
            http.acknowledge_received_data(event.flow_controlled_length, 1)
        elif isinstance(event, h2.events.StreamEnded):
            whole = True
        elif isinstance(event, h2.events.StreamReset):
            code = int(event.error_code)
print(status, length, "whole" if whole else "cut off", "reset", code)
