#!/usr/bin/env python3
"""Shows `quicket gateway` at work on this machine: nginx and a service of plain TCP behind it, files fetched over HTTP/3,
HTTP/2 and HTTP/1.1, and bytes carried over QUIC to the service. Then the gateway reads its file again, and is replaced
by its next generation, while all of that goes on. Every byte is verified."""

import argparse
import concurrent.futures
import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import signal
import socket
import socketserver
import subprocess
import tempfile
import threading
import time

# How long anything may take on a machine that is busy, in seconds.
LONG = 60
# The files that nginx has, in bytes.
FILES = {"small": 1 << 10, "page": 100_000, "large": 10_000_000}
# What goes to the service of TCP and back.
ECHO = 1_000_000
RELOADS, UPGRADES = 5, 2
VERSIONS = "HTTP/3", "HTTP/2", "HTTP/1.1"
# The gateway's word when its file was read again.
TAKEN_UP = "Read again: "

NGINX = """daemon off; master_process off; pid nginx.pid; error_log stderr crit; events {{ }}
http {{
  access_log off; client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi; scgi_temp_path scgi;
  server {{ listen unix:{folder}/nginx.sock; root {folder}/files; }}
}}
"""

SITE = """listen = ["127.0.0.1:{port}"]
{more}
[[certificate]]
chain = "certificate.pem"
key = "key.pem"

[origin.nginx]
servers = ["unix:{folder}/nginx.sock"]

[[site]]
names = ["localhost"]
[[site.route]]
origin = "nginx"

[[protocol]]
alpn = ["echo"]
streams = "tcp://127.0.0.1:{echo}"
"""


def say(text):
    print(text, flush=True)


def fail(text):
    raise SystemExit(f"demo: {text}")


def until(what, condition):
    deadline = time.monotonic() + LONG
    while not condition():
        if time.monotonic() > deadline:
            fail(f"{what}: not within {LONG} s")
        time.sleep(0.05)


def free_port():
    """A port that nobody has, neither for UDP nor for TCP."""
    while True:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp, socket.socket() as tcp:
            udp.bind(("127.0.0.1", 0))
            with contextlib.suppress(OSError):
                tcp.bind(udp.getsockname())
                return tcp.getsockname()[1]


class Echo(socketserver.BaseRequestHandler):
    """The service of TCP."""

    def handle(self):
        while data := self.request.recv(65536):
            self.request.sendall(data)


class Site:
    """nginx, the service, and the gateway before them; all ends with `end`."""

    def __init__(self, quicket, folder):
        self.quicket, self.folder = quicket, folder
        self.environment = os.environ | {"QUICKET_SWITCH": str(folder / "switch"), "XDG_DATA_HOME": str(folder / "data")}
        self.processes, self.reloads = [], 0
        self.make_files()
        (folder / "nginx.conf").write_text(NGINX.format(folder=folder))
        self.start("nginx", ["nginx", "-p", folder, "-c", folder / "nginx.conf", "-e", "stderr"])
        until("nginx listens", lambda: (folder / "nginx.sock").exists())
        self.echo = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo)
        self.echo.daemon_threads = True
        threading.Thread(target=self.echo.serve_forever, daemon=True).start()
        self.port = free_port()
        self.certificate = str(folder / "certificate.pem")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                        "-keyout", folder / "key.pem", "-out", self.certificate, "-subj", "/CN=localhost", "-addext",
                        "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE"],
                       check=True, capture_output=True)
        self.write("")
        self.gateway = self.start("the gateway", [quicket, "gateway", folder / "site.toml", "--switch"])
        until("the gateway listens", self.listens)

    def make_files(self):
        files = self.folder / "files"
        files.mkdir()
        self.hashes = {}
        for name, size in FILES.items():
            content = os.urandom(size)
            (files / name).write_bytes(content)
            self.hashes[name] = hashlib.sha256(content).hexdigest()

    def write(self, more):
        """The gateway's file, with a word more at its head."""
        text = SITE.format(port=self.port, folder=self.folder, echo=self.echo.server_address[1], more=more)
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
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

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

    def __init__(self, site):
        self.site, self.over, self.counts = site, threading.Event(), dict.fromkeys((*VERSIONS, "echo"), 0)
        self.bytes = 0
        self.pool = concurrent.futures.ThreadPoolExecutor()
        self.running = [self.pool.submit(self.run, kind) for kind in self.counts]

    def run(self, kind):
        try:
            while not self.over.is_set():
                carried = self.site.carry() if kind == "echo" else self.site.fetch(kind, "page")
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


def show(site):
    say(f"nginx and a service of TCP run behind the gateway, 127.0.0.1:{site.port} (UDP and TCP)")
    for version in VERSIONS:
        begun = time.monotonic()
        fetched = sum(site.fetch(version, name) for name in FILES)
        say(f"  {version:<8}  {len(FILES)} files, {fetched:,} bytes, all as nginx has them ({time.monotonic() - begun:.2f} s)")
    site.carry()
    say(f"  echo      {ECHO:,} bytes to the service and back, by quicket connect")
    load = Load(site)
    begun = time.monotonic()
    for _ in range(RELOADS):
        site.read_again()
        load.go_on()
    say(f"the file was read again {RELOADS} times under load")
    for _ in range(UPGRADES):
        before = site.serving()
        site.upgrade()
        load.go_on()
        say(f"process {site.serving()} has taken over from {before}")
    load.end()
    counts = ", ".join(f"{count} over {kind}" for kind, count in load.counts.items() if kind != "echo")
    say(f"meanwhile, in {time.monotonic() - begun:.1f} s: {counts}, {load.counts['echo']} connections to the service, "
        f"{load.bytes / 1e6:,.0f} MB, every byte verified, nothing failed")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quicket", type=lambda path: str(pathlib.Path(path).resolve()), required=True, help="the program")
    arguments = parser.parse_args()
    missing = [program for program in ("nginx", "curl", "openssl") if not shutil.which(program)]
    if missing:
        fail(f"{', '.join(missing)} missing: apt-get install nginx-light curl openssl")
    with tempfile.TemporaryDirectory(prefix="quicket-demo-") as folder:
        site = None
        try:
            site = Site(arguments.quicket, pathlib.Path(folder))
            show(site)
        finally:
            if site:
                site.end()


if __name__ == "__main__":
    main()
