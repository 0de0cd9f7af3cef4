"""A port that leads to a local socket, for browsers, which know no local sockets."""

import contextlib
import socket
import socketserver
import threading


class Relay(socketserver.ThreadingTCPServer):
    """A port on this machine that leads to a local socket: a gateway's page, for a browser outside."""

    daemon_threads = True

    def __init__(self, path):
        super().__init__(("127.0.0.1", 0), self.Carry)
        self.path = str(path)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    class Carry(socketserver.BaseRequestHandler):
        def handle(self):
            with socket.socket(socket.AF_UNIX) as inner, contextlib.suppress(OSError):
                inner.connect(self.server.path)
                ways = [threading.Thread(target=self.pour, args=pair, daemon=True)
                        for pair in ((self.request, inner), (inner, self.request))]
                [way.start() for way in ways]
                [way.join() for way in ways]

        @staticmethod
        def pour(source, target):
            with contextlib.suppress(OSError):
                while data := source.recv(65536):
                    target.sendall(data)
                target.shutdown(socket.SHUT_WR)
