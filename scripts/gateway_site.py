"""`quicket gateway` on this machine, with nginx and a service of plain TCP behind it, and clients that use both: what ./demo
gateway and the soak test of the gateway (tests/gateway) share."""

import argparse
import concurrent.futures
import contextlib
import hashlib
import http.client
import json
import os
import pathlib
import signal
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
import time

# How long anything may take on a machine that is busy, in seconds.
LONG = 60
# The files that nginx has, in bytes.
FILES = {"small": 1 << 10, "page": 100_000, "large": 10_000_000}
# What goes to the service of TCP and back.
ECHO = 1_000_000
VERSIONS = "HTTP/3", "HTTP/2", "HTTP/1.1"
# The gateway's word when its file was read again.
TAKEN_UP = "Read again: "

# A server of files at a socket of the system. `{name}` has it apart from another one.
NGINX = """daemon off; master_process off; pid {name}.pid; error_log stderr crit; events {{ {events} }}
http {{
  {http} access_log off; client_body_temp_path {name}.body; proxy_temp_path {name}.proxy;
  fastcgi_temp_path {name}.fastcgi; uwsgi_temp_path {name}.uwsgi; scgi_temp_path {name}.scgi;
  server {{ listen unix:{folder}/{name}.sock; root {folder}/files; }}
}}
"""

SITE = """listen = ["{address}:{port}"]
{more}
[[certificate]]
chain = "certificate.pem"
key = {key}

[origin.nginx]
servers = [{servers}]
{origin}
[[site]]
names = ["localhost"]
{rules}[[site.route]]
origin = "nginx"

[[protocol]]
alpn = ["echo"]
streams = "tcp://127.0.0.1:{echo}"
{protocols}"""


def say(text):
    print(text, flush=True)


def fail(text):
    raise SystemExit(f"failed: {text}")


def until(what, condition):
    deadline = time.monotonic() + LONG
    while not condition():
        if time.monotonic() > deadline:
            fail(f"{what}: not within {LONG} s")
        time.sleep(0.05)


def absolute(path):
    return str(pathlib.Path(path).resolve())


def options(about, **more):
    """A parser of arguments, which has the program."""
    parser = argparse.ArgumentParser(description=about, **more)
    parser.add_argument("--quicket", type=absolute, required=True, help="the program")
    return parser


def end_as_a_failure():
    """SIGTERM ends this program as a failure does: what it has begun is ended."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))


def ask(path, target, **fields):
    """What a page at a Unix socket answers: its type and its content."""
    connection = http.client.HTTPConnection("localhost")
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as connection.sock:
        connection.sock.settimeout(LONG)
        connection.sock.connect(str(path))
        connection.request("GET", target, headers=fields)
        answer = connection.getresponse()
        if answer.status != 200:
            fail(f"{target}: {answer.status}")
        return answer.headers["Content-Type"], answer.read()


def free_port():
    """A port that nobody has, neither for UDP nor for TCP."""
    while True:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp, socket.socket() as tcp:
            udp.bind(("127.0.0.1", 0))
            with contextlib.suppress(OSError):
                tcp.bind(udp.getsockname())
                return tcp.getsockname()[1]


def certificate(folder):
    """certificate.pem and key.pem, for localhost."""
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-keyout",
                    folder / "key.pem", "-out", folder / "certificate.pem", "-subj", "/CN=localhost", "-addext",
                    "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE"], check=True, capture_output=True)


class Echo(socketserver.BaseRequestHandler):
    """The service of TCP."""

    def handle(self):
        while data := self.request.recv(65536):
            self.request.sendall(data)


class Service(socketserver.ThreadingTCPServer):
    daemon_threads = True
    # The five that Python has resets connections which come at once.
    request_queue_size = 1024


class Site:
    """nginx, the service, and the gateway before them; all ends with `end`."""

    # The files, in bytes.
    FILES = FILES
    # Servers of files with the same content, by their names.
    SERVERS = ("nginx",)
    # What the servers' files say more of events, and of HTTP.
    EVENTS = HTTP = ""
    # Where the gateway listens.
    ADDRESS = "127.0.0.1"
    # What its file says of the certificate's key.
    KEY = '"key.pem"'
    # Lines of the site's table and of the origin's, and tables more than the service's.
    rules = origin = protocols = ""

    def __init__(self, quicket, folder):
        self.quicket, self.folder = quicket, folder
        self.environment = os.environ | {"QUICKET_SWITCH": str(folder / "switch"), "XDG_DATA_HOME": str(folder / "data")}
        self.processes, self.reloads, self.servers, self.echo = [], 0, {}, None
        try:
            self.begin()
        except BaseException:
            self.end()
            raise

    def begin(self):
        folder = self.folder
        self.make_files()
        self.servers = {name: self.start_server(name) for name in self.SERVERS}
        self.echo = Service(("127.0.0.1", 0), Echo)
        threading.Thread(target=self.echo.serve_forever, daemon=True).start()
        self.port = free_port()
        certificate(folder)
        self.certificate = str(folder / "certificate.pem")
        self.write("")
        self.gateway = self.start("the gateway", [self.quicket, "gateway", folder / "site.toml", "--switch"])
        until("the gateway listens", self.listens)

    def start_server(self, name):
        """A server of files, which listens."""
        (self.folder / f"{name}.conf").write_text(NGINX.format(folder=self.folder, name=name, events=self.EVENTS, http=self.HTTP))
        (self.folder / f"{name}.sock").unlink(missing_ok=True)
        server = self.start(name, ["nginx", "-p", self.folder, "-c", self.folder / f"{name}.conf", "-e", "stderr"])
        until(f"{name} listens", lambda: (self.folder / f"{name}.sock").exists())
        return server

    def make_files(self):
        files = self.folder / "files"
        files.mkdir()
        self.hashes = {}
        for name, size in self.FILES.items():
            content = os.urandom(size)
            (files / name).write_bytes(content)
            self.hashes[name] = hashlib.sha256(content).hexdigest()

    def write(self, more):
        """The gateway's file, with a word more at its head."""
        servers = ", ".join(f'"unix:{self.folder}/{name}.sock"' for name in self.SERVERS)
        text = SITE.format(address=self.ADDRESS, port=self.port, key=self.KEY, servers=servers, echo=self.echo.server_address[1], more=more,
                           rules=self.rules, origin=self.origin, protocols=self.protocols)
        (self.folder / "next.toml").write_text(text)
        (self.folder / "next.toml").replace(self.folder / "site.toml")

    def start(self, what, command):
        log = self.folder / f"{pathlib.Path(command[0]).name}.log"
        with log.open("ab") as out:
            process = subprocess.Popen(command, env=self.environment, stdout=out, stderr=out, cwd=self.folder)
        self.processes.append((what, process, log))
        return process

    def listens(self):
        for what, process, log in self.processes:
            if process.poll() is not None:
                fail(f"{what} has ended:\n{log.read_text()}")
        with socket.socket() as probe:
            # QUIC may come after TCP.
            return probe.connect_ex((self.ADDRESS, self.port)) == 0 and bool(self.status()["addresses"])

    def log(self):
        return (self.folder / pathlib.Path(self.quicket).name).with_suffix(".log").read_text()

    def command(self, version, name, out):
        url = f"https://localhost:{self.port}/{name}"
        if version == "HTTP/3":
            return [self.quicket, "get", url, "--ca", self.certificate, "--http3-only", "--quiet", "-o", out]
        return ["curl", f"--http{version[5:]}", "--silent", "--show-error", "--fail", "--cacert", self.certificate, "-o", out,
                "-w", "%{http_version}", url]

    def fetch(self, version, name):
        """Fetches a file and compares it with what nginx has."""
        what = f"/{name} over {version}"
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            out = pathlib.Path(folder) / name
            done = subprocess.run(self.command(version, name, out), env=self.environment, timeout=LONG, text=True,
                                  capture_output=True)
            if done.returncode != 0:
                fail(f"{what}: {done.stderr}")
            if version != "HTTP/3" and f"HTTP/{done.stdout}" != version:
                fail(f"{what}: curl got HTTP/{done.stdout}")
            content = out.read_bytes()
        if hashlib.sha256(content).hexdigest() != self.hashes[name]:
            fail(f"{what}: another content")
        return len(content)

    def carry(self):
        """Sends bytes to the service and gets them back, over a connection of its own."""
        sent = os.urandom(ECHO)
        done = subprocess.run([self.quicket, "connect", f"localhost:{self.port}", "--alpn", "echo", "--ca", self.certificate,
                               "--quiet"], input=sent, env=self.environment, timeout=LONG, capture_output=True)
        if done.returncode != 0 or done.stdout != sent:
            fail(f"the service behind the gateway: {len(done.stdout)} of {ECHO} bytes came back: {done.stderr.decode()}")
        return 2 * ECHO

    def status(self):
        told = subprocess.run([self.quicket, "switch", "status", "--json"], env=self.environment, capture_output=True, text=True)
        return json.loads(told.stdout) if told.returncode == 0 else {"addresses": []}

    def generations(self):
        """The processes of the gateway that the switch knows, and what each does."""
        programs = (program for address in self.status()["addresses"] for program in address["programs"])
        return {program["pid"]: program["state"] for program in programs}

    def serving(self):
        """The process that gets new connections, if there is one."""
        return next((pid for pid, state in self.generations().items() if state == "serving"), None)

    def read_again(self):
        """The file with another word in it, and SIGHUP."""
        self.reloads += 1
        self.write(f"[limits]\nclient_connections = {1000 + self.reloads}\n")
        told = self.log().count(TAKEN_UP)
        os.kill(self.serving(), signal.SIGHUP)
        until("the gateway has read its file again", lambda: self.log().count(TAKEN_UP) > told)

    def upgrade(self):
        """The next generation gets all new connections."""
        before = self.serving()
        subprocess.run([self.quicket, "switch", "upgrade"], env=self.environment, check=True, capture_output=True)
        until("the next generation serves", lambda: self.serving() not in (None, before))

    def end(self):
        if self.echo:
            self.echo.shutdown()
        for _, process, _ in self.processes:
            process.kill()
            process.wait()
        # The switch last: programs would start another one.
        for pid in (*self.generations(), self.status().get("pid")):
            with contextlib.suppress(ProcessLookupError, TypeError):
                os.kill(pid, signal.SIGKILL)


class Load:
    """Clients that fetch all the time, and others that use the service."""

    def __init__(self, site, more=()):
        kinds = (*VERSIONS, "echo", *more)
        self.site, self.over, self.counts = site, threading.Event(), dict.fromkeys(kinds, 0)
        self.bytes = 0
        self.pool = concurrent.futures.ThreadPoolExecutor(len(kinds))
        self.running = [self.pool.submit(self.run, kind) for kind in kinds]

    def one(self, kind):
        """Does once what clients of a kind do, and says how many bytes that were."""
        return self.site.carry() if kind == "echo" else self.site.fetch(kind, "page")

    def run(self, kind):
        try:
            while not self.over.is_set():
                carried = self.one(kind)
                self.counts[kind] += 1
                self.bytes += carried
        finally:
            # One that fails ends it all.
            self.over.set()

    def go_on(self):
        """Waits until each kind was there once more, so that what has just happened had its chance."""
        wanted = {kind: count + 2 for kind, count in self.counts.items()}
        until("clients go on", lambda: self.over.is_set() or all(self.counts[kind] >= count for kind, count in wanted.items()))
        if self.over.is_set():
            self.end()

    def end(self):
        self.over.set()
        for running in self.running:
            running.result(LONG)
        self.pool.shutdown()
