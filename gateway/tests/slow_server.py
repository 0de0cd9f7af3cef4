"""A server of HTTP/1.1 that takes its time: /slow half a second, /hang until there is the file `release`. Arguments: a file for its
log, which has connections and paths, and the file `release`."""

import http.server
import os
import sys
import threading
import time

LOG = open(sys.argv[1], "w", buffering=1)
RELEASE = sys.argv[2]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self):
        print("connection", file=LOG)
        super().setup()

    def do_GET(self):
        print(self.path, file=LOG)
        if self.path.startswith("/slow"):
            time.sleep(0.5)
        while self.path.startswith("/hang") and not os.path.exists(RELEASE):
            time.sleep(0.01)
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.path)))
        self.end_headers()
        self.wfile.write(self.path.encode())

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 64


server = Server(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_address[1], flush=True)
# It ends with who started it.
sys.stdin.buffer.read()
