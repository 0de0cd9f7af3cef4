"""A server of HTTP/1.1 that takes nothing that could be read in two ways, answers each request with its method and target, and keeps all
that it has got."""

import re
import socket
import threading

TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
REQUEST_LINE = re.compile(TOKEN + rb" [!-~]+ HTTP/1\.1")
# White space around a value is none of it (RFC 9112, Section 5).
FIELD = re.compile(rb"(" + TOKEN + rb"):[ \t]*((?:[!-~\x80-\xff](?:[ \t!-~\x80-\xff]*[!-~\x80-\xff])?)?)[ \t]*")


class Wrong(Exception):
    """What came is no request, or more than one."""


class Request:
    def __init__(self, head):
        first, *rest = head.split(b"\r\n")
        if not REQUEST_LINE.fullmatch(first):
            raise Wrong(f"the line {first}")
        self.method, self.target, _ = first.split(b" ")
        self.fields, self.body, self.trailers = list(map(field, rest)), b"", []
        if len(self.all(b"host")) != 1:
            raise Wrong(f"{len(self.all(b'host'))} of Host")
        self.length, self.codings = self.all(b"content-length"), self.all(b"transfer-encoding")
        if len(self.length) + len(self.codings) > 1 or self.codings not in ([], [b"chunked"]) or not all(map(bytes.isdigit, self.length)):
            raise Wrong(f"a body of {self.length} and {self.codings}")

    def all(self, name):
        return [value for other, value in self.fields if other == name]


def field(line):
    found = FIELD.fullmatch(line)
    if not found:
        raise Wrong(f"the field {line}")
    return found[1].lower(), found[2]


class Connection:
    """One of the gateway's."""

    def __init__(self, origin, peer):
        self.origin, self.peer, self.raw, self.unread = origin, peer, b"", b""

    def run(self):
        begun = False
        try:
            with self.peer:
                while True:
                    begun = False
                    while not self.unread:
                        if not self.more():
                            return
                    begun = True
                    self.origin.under_way(+1)
                    self.serve()
                    self.origin.under_way(-1)
        except EOFError:
            self.origin.under_way(-1)
        except (Wrong, ValueError) as error:
            self.origin.add_wrong(f"{error}: {self.raw[-1000:]}")
            if begun:
                self.origin.under_way(-1)

    def more(self):
        try:
            data = self.peer.recv(65536)
        except ConnectionResetError:
            data = b""
        self.unread += data
        self.raw += data
        return bool(data)

    def until(self, end):
        while end not in self.unread:
            if not self.more():
                raise EOFError
        taken, self.unread = self.unread.split(end, 1)
        return taken

    def take(self, count):
        while len(self.unread) < count:
            if not self.more():
                raise EOFError
        taken, self.unread = self.unread[:count], self.unread[count:]
        return taken

    def serve(self):
        request = Request(self.until(b"\r\n\r\n"))
        if (b"expect", b"100-continue") in [(name, value.lower()) for name, value in request.fields]:
            self.peer.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        if request.length:
            request.body = self.take(int(request.length[0]))
        elif request.codings:
            while size := int(self.until(b"\r\n"), 16):
                request.body += self.take(size)
                if self.take(2) != b"\r\n":
                    raise Wrong("a chunk of another length")
            while line := self.until(b"\r\n"):
                request.trailers.append(field(line))
        self.origin.add(request)
        said = b"" if request.method == b"HEAD" else request.method + b" " + request.target
        self.peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(said) + said)


class Origin:
    def __init__(self):
        self.lock, self.requests, self.wrong, self.begun = threading.Lock(), [], [], 0
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            connection = Connection(self, self.listener.accept()[0])
            threading.Thread(target=connection.run, daemon=True).start()

    def under_way(self, change):
        with self.lock:
            self.begun += change

    def add(self, request):
        with self.lock:
            self.requests.append(request)

    def add_wrong(self, what):
        with self.lock:
            self.wrong.append(what)

    def taken(self):
        """Requests that are complete since this was asked last, and what was none."""
        with self.lock:
            requests, wrong, self.requests, self.wrong = self.requests, self.wrong, [], []
        return requests, wrong
