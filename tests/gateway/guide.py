#!/usr/bin/env python3
"""An operator types every command of docs/gateway.md, in order, on a host with nginx, Redis, a server of SSH and a service of UDP, and a client on another
host uses what is there by then. Needs root: both hosts are network namespaces, in which the usual ports and paths are free."""

import argparse
import contextlib
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
from environment import ROOT  # noqa: E402
from gateway_site import LONG, end_as_a_failure, fail, say, until  # noqa: E402
from namespaces import Namespace, inside, ip  # noqa: E402

GUIDE = ROOT / "docs" / "gateway.md"
# What stands in the guide, where it is reached, and the client.
NAMES, EDGE, CLIENT = ("example.org", "www.example.org", "play.example.org"), "192.0.2.1", "192.0.2.2"
LOG = pathlib.Path("/var/log/quicket/access.json")

NGINX = """daemon off; master_process off; pid /run/nginx.pid; error_log stderr crit; events {{}}
http {{
  access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  server {{ listen unix:/run/nginx.sock; return 200 "files\\n"; }}
  server {{ listen 127.0.0.1:8080; listen 10.0.0.1:8080; listen 10.0.0.2:8080; return 200 "app\\n"; }}
}}
"""
SSH = "StrictHostKeyChecking no\nLogLevel ERROR\n"
ECHO = "import socket\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\ns.bind(('127.0.0.1',5000))\nwhile True:\n s.sendto(*s.recvfrom(65536))\n"
SITE = '[[site]]\nnames = ["example.org"]\n[[site.route]]\nrespond = {{ body = "{body}\\n" }}\n'


def blocks(language):
    """The guide's blocks in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", GUIDE.read_text(), re.DOTALL | re.MULTILINE)


def commands():
    """Each command, and the lines that it is said to print."""
    found = []
    for line in "".join(blocks("console")).splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


def block(language, has):
    return next((text for text in blocks(language) if has in text), None) or fail(f"no block of the guide has {has}")


class Running:
    """A command of the guide that goes on, until its `with` ends."""

    def __init__(self, host, command, prints=(), wrapper=()):
        self.command, self.log = command, host.folder / "output"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([*wrapper, "bash", "-c", f"exec {command}"], cwd=host.folder, stdout=log, stderr=log)
        for line in prints:
            until(f"{command} prints {line!r}", lambda: self.says(line))

    def says(self, line):
        if self.process.poll() is not None:
            fail(f"{self.command} has ended with {self.process.returncode}: {self.log.read_text()}")
        return line in self.log.read_text().splitlines()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(LONG)


class Host:
    """What the guide takes for granted: certificates, names, and what is served already."""

    def __init__(self, quicket, folder, client):
        self.folder, self.client = folder, client
        os.environ |= {"PATH": f"{pathlib.Path(quicket).parent}:{os.environ['PATH']}", "HOME": str(folder)}
        os.environ.pop("QUICKET_SWITCH", None)
        self.certificates()
        self.servers()

    def certificates(self):
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
        openssl = lambda *words: subprocess.run(["openssl", *words], cwd=self.folder, check=True, capture_output=True)  # noqa: E731
        openssl("req", "-x509", *key, "-subj", "/CN=Authority of a test", "-keyout", "ca.key", "-out", "ca.pem")
        for name, others in {"example.org": NAMES, "shop.example": ("shop.example",)}.items():
            alternatives = ",".join(f"DNS:{other}" for other in others)
            openssl("req", "-x509", *key, "-subj", f"/CN={name}", "-addext", f"subjectAltName={alternatives}", "-addext",
                    "basicConstraints=critical,CA:FALSE", "-CA", "ca.pem", "-CAkey", "ca.key", "-keyout", f"{name}.key", "-out", f"{name}.pem")
        # The system trusts the authority, as it does those of the web.
        with open("/etc/ssl/certs/ca-certificates.crt", "ab") as trusted:
            trusted.write((self.folder / "ca.pem").read_bytes())

    def servers(self):
        folder = self.folder
        (folder / "nginx.conf").write_text(NGINX.format(folder=folder))
        # Both ends of SSH are root's, who is at home here.
        users = pathlib.Path("/etc/passwd")
        users.write_text(users.read_text().replace(":/root:", f":{folder}:", 1))
        (folder / ".ssh").mkdir(mode=0o700)
        key = folder / ".ssh" / "id_ed25519"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
        shutil.copy(key.with_suffix(".pub"), folder / ".ssh" / "authorized_keys")
        (folder / ".ssh" / "config").write_text(SSH)
        subprocess.run(["dropbearkey", "-t", "ed25519", "-f", folder / "host"], check=True, capture_output=True)
        self.started = [subprocess.Popen(command, cwd=folder) for command in (
            ["nginx", "-p", folder, "-c", folder / "nginx.conf", "-e", "stderr"],
            ["redis-server", "--bind", "127.0.0.1", "--save", "", "--logfile", "/dev/null"],
            ["/usr/sbin/dropbear", "-F", "-p", "127.0.0.1:22", "-r", folder / "host"],
            [sys.executable, "-c", ECHO],
        )]
        for address in ("127.0.0.1", 8080), ("127.0.0.1", 6379), ("127.0.0.1", 22):
            until(f"a server at {address}", lambda: self.is_there(address))

    def is_there(self, address):
        with socket.socket() as probe:
            return probe.connect_ex(address) == 0

    def run(self, command):
        """A command that ends, and its standard output."""
        done = subprocess.run(["bash", "-c", command], cwd=self.folder, text=True, capture_output=True, timeout=LONG)
        if done.returncode != 0:
            fail(f"{command}: {done.stderr}")
        return done.stdout

    def from_client(self, *words, **more):
        done = subprocess.run(self.client.command(*words), cwd=self.folder, text=True, capture_output=True, timeout=LONG, **more)
        if done.returncode != 0:
            fail(f"the client's {' '.join(words)}: {done.stderr}")
        return done.stdout

    def expect(self, path, body):
        """The client gets that over every version of HTTP."""
        url = f"https://example.org{path}"
        for words in ["curl", "-sS", "--http1.1", url], ["curl", "-sS", "--http2", url], ["quicket", "get", "--http3-only", "--quiet", "-o", "-", url]:
            if (got := self.from_client(*words)) != f"{body}\n":
                fail(f"{' '.join(words)}: {got!r} and not {body!r}")

    def serve(self, command, file):
        """A gateway by a file, which listens."""
        (self.folder / "site.toml").write_text(file)
        return Running(self, command, ["Gateway on [::]:443 (UDP and TCP): HTTP/3, HTTP/2 and HTTP/1.1"])


class Operator:
    """Types. What each command of the guide is for is a method; a command without one is a failure."""

    def __init__(self, host, ends):
        self.host, self.ends, self.held = host, ends, None

    def go(self, running):
        """Of commands that go on there is one at a time."""
        self.rest()
        self.held = self.ends.enter_context(running)
        return self.held

    def rest(self):
        if self.held:
            self.held.__exit__()
            self.held = None

    def type(self, command, prints):
        for pattern, method in self.KNOWN.items():
            if re.match(pattern, command):
                method(self, command.split("  #")[0].strip(), prints)
                say(f"$ {command}")
                return
        fail(f"nobody knows what this command of the guide should do: {command}")

    def try_it(self, command, prints):
        tried = self.go(Running(self.host, command, prints))
        until("it prints a command", lambda: "quicket get" in tried.log.read_text())
        told = re.search(r"quicket get .*", tried.log.read_text())[0]
        if (got := self.host.run(f"{told} -o -")) != "app\n":
            fail(f"{told}: {got!r}")

    def check(self, command, _):
        self.rest()
        self.file = block("toml", "[origin.app]\nservers = [\"http://10.0.0.1")
        (self.host.folder / "site.toml").write_text(self.file)
        if not (told := self.host.run(f"{command} 2>&1")).startswith("site.toml is right"):
            fail(f"{command}: {told}")

    def serve(self, command, _):
        self.go(self.host.serve(command, self.file))
        self.host.expect("/", "files")
        self.host.expect("/api", "app")
        if "https://example.org/" not in self.host.from_client("curl", "-sS", "-o", "/dev/null", "-w", "%{redirect_url}", "http://example.org/"):
            fail("no redirect from plain HTTP")

    def read_again(self, command, _):
        (self.host.folder / "site.toml").write_text(self.file + '[[site.route]]\npath = "/new"\nrespond = { body = "new\\n" }\n')
        self.host.run(command)
        until("the file was read again", lambda: any("Read again" in line for line in self.held.log.read_text().splitlines()))
        self.host.expect("/new", "new")

    def reopen(self, command, _):
        until("the log has lines", lambda: LOG.exists() and LOG.read_text().count("\n") > 5)
        LOG.rename(LOG.with_suffix(".1"))
        self.host.run(command)
        until("the log was opened anew", LOG.exists)
        self.host.expect("/", "files")
        until("what came since is in it", lambda: LOG.read_text().count("\n") >= 3)
        self.rest()

    def keyd(self, command, prints):
        keys = pathlib.Path("/etc/quicket/keys")
        keys.mkdir(parents=True)
        for name in "example.org", "shop.example":
            shutil.copy(self.host.folder / f"{name}.key", keys)
        with Running(self.host, command, prints):
            for name in "example.org", "shop.example":
                # Nobody can take them from the gateway's host, if they are not there.
                (self.host.folder / f"{name}.key").rename(self.host.folder / f"{name}.moved")
            certificate = block("toml", "keyd = \"unix:").split("\n\n")[0]
            with self.host.serve("quicket gateway site.toml", f'listen = ["[::]:443"]\n{certificate}\n{SITE.format(body="signed")}'):
                self.host.expect("/", "signed")
        for name in "example.org", "shop.example":
            (self.host.folder / f"{name}.moved").rename(self.host.folder / f"{name}.key")

    def begin_switched(self, command, _):
        self.go(self.host.serve(command.removesuffix("&"), self.file))
        self.host.expect("/", "files")

    def upgrade(self, command, _):
        listening = "Gateway on [::]:443 (UDP and TCP): HTTP/3, HTTP/2 and HTTP/1.1"
        (self.host.folder / "site.toml").write_text(self.file.replace('origin = "files"', 'respond = { body = "upgraded\\n" }'))
        self.host.run(command)
        until("the next generation serves", lambda: self.held.log.read_text().splitlines().count(listening) == 2)
        until("it serves all", lambda: "The next generation has taken over" in self.held.log.read_text())
        self.host.expect("/", "upgraded")

    def status(self, command, _):
        told = self.host.run(command)
        if "serving" not in told:
            fail(f"{command}: {told}")
        # The first generation was all that `rest` knows.
        for pid in self.host.run("pidof quicket").split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGTERM)
        until("all have ended", lambda: not any(is_quicket(pid) for pid in os.listdir("/proc") if pid.isdigit()))
        self.held = None

    def protocols(self):
        """A gateway with the guide's private protocols, for each way to use one."""
        head, protocols = self.file.split("[origin.files]")[0], block("toml", '[[protocol]]\nalpn = ["redis"]')
        return self.host.serve("quicket gateway site.toml", head + protocols + SITE.format(body="beside"))

    def redis(self, command, _):
        with self.protocols(), Running(self.host, command, wrapper=self.host.client.command()):
            until("the client has a Redis", lambda: self.there_is(("127.0.0.1", 6379)))
            self.host.from_client("redis-cli", "set", "a", "value")
            if (got := self.host.from_client("redis-cli", "get", "a")) != "value\n":
                fail(f"Redis says {got!r}")

    def there_is(self, address):
        with inside(self.host.client.name):
            return self.host.is_there(address)

    def game(self, command, _):
        with self.protocols(), Running(self.host, command, wrapper=self.host.client.command()):
            with inside(self.host.client.name):
                player = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            with player:
                player.settimeout(0.2)
                # Until the client's half is there nobody is at its port, and what is sent early may be lost.
                player.connect(("127.0.0.1", 5000))
                until("a datagram comes back", lambda: self.comes_back(player))

    def comes_back(self, player):
        try:
            player.send(b"a move")
            return player.recv(100) == b"a move"
        except OSError:
            time.sleep(0.05)
            return False

    def ssh(self, command, _):
        with self.protocols():
            got = self.host.from_client("bash", "-c", f"{command} 'echo at the other end'")
            if got != "at the other end\n":
                fail(f"ssh says {got!r}")

    KNOWN = {
        r"quicket gateway try ": try_it, r"quicket gateway --check ": check, r"quicket gateway site.toml *#?": serve, r"kill -HUP ": read_again,
        r"kill -USR1 ": reopen, r"quicket keyd ": keyd, r"quicket switch upgrade": upgrade, r"quicket switch status": status,
        r"quicket connect .* tcp:": redis, r"quicket connect .* udp:": game, r"ssh ": ssh,
    }
    # The longer one of two that begin alike comes first.
    KNOWN = {r"quicket gateway site.toml --switch &": begin_switched} | KNOWN


def is_quicket(pid):
    """And lives: nobody waits here for what has lost its parent."""
    with contextlib.suppress(OSError):
        name, state = pathlib.Path(f"/proc/{pid}/stat").read_text().split("(", 1)[1].rsplit(")", 1)
        return name == "quicket" and state.split()[0] != "Z"
    return False


def enclosed(quicket):
    """In namespaces of its own: what is mounted here nobody else sees."""
    end_as_a_failure()
    with tempfile.TemporaryDirectory(prefix="quicket-guide-") as folder, contextlib.ExitStack() as ends:
        folder = pathlib.Path(folder)
        folder.chmod(0o755)
        shutil.copytree("/etc", folder / "etc", symlinks=True)
        subprocess.run(["mount", "--bind", folder / "etc", "/etc"], check=True)
        for place in "/run", "/var/log":
            subprocess.run(["mount", "-t", "tmpfs", "tmpfs", place], check=True)
        LOG.parent.mkdir()
        pathlib.Path("/run/quicket-keyd").mkdir(mode=0o755)
        with open("/etc/hosts", "a") as hosts:
            hosts.write(f"\n{EDGE} {' '.join(NAMES)}\n")
        client = Namespace("client")
        ends.callback(client.remove)
        ip("link", "set", "lo", "up")
        for address in "10.0.0.1/32", "10.0.0.2/32":
            ip("address", "add", address, "dev", "lo")
        ip("link", "add", "edge", "type", "veth", "peer", "name", "client", "netns", client.name)
        ip("address", "add", f"{EDGE}/24", "dev", "edge")
        ip("link", "set", "edge", "up")
        client.ip("address", "add", f"{CLIENT}/24", "dev", "client")
        client.ip("link", "set", "client", "up")
        operator = Operator(Host(quicket, folder, client), ends)
        for command, prints in commands():
            operator.type(command, prints)
        operator.rest()
    say("every command of docs/gateway.md does what it says")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quicket", type=lambda path: str(pathlib.Path(path).resolve()), required=True, help="the program, by the name quicket")
    parser.add_argument("--enclosed", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.enclosed:
        return enclosed(arguments.quicket)
    if os.getuid() != 0:
        fail("this test needs root: its hosts are namespaces")
    again = [sys.executable, __file__, "--quicket", arguments.quicket, "--enclosed"]
    # Whoever ends this ends all that was started.
    os.execvp("unshare", ["unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc", "--kill-child", *again])


if __name__ == "__main__":
    main()
