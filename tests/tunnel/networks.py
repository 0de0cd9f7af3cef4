"""The programs in network namespaces, and bytes from one to the other."""

import hashlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
from namespaces import Namespace, inside, ip, until  # noqa: E402, F401


class Tunnel:
    """A process of ours that carries a tunnel in a namespace."""

    def __init__(self, quicket, namespace, name, words, address, workers=1, peer=None):
        self.namespace, self.name = namespace, name
        self.errors = []
        command = namespace.command(*quicket, "--workers", str(workers), "--counters", "1", name, *words.split()) \
            if quicket[-1] == "add" else namespace.command(*quicket, name, *words.split())
        self.process = subprocess.Popen(command, text=True, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
        self.counters = {}
        threading.Thread(target=self.listen, daemon=True).start()
        first = self.process.stderr.readline()
        if "ready" not in first:
            raise SystemExit(f"{name} {words}: {first}{self.process.stderr.read()}")
        self.mtu = int(first.split()[-1])
        threading.Thread(target=self.complain, daemon=True).start()
        for one in address.split():
            extra = ["nodad"] if ":" in one else []
            namespace.ip("addr", "add", one, "dev", name, *extra)
        namespace.ip("link", "set", name, "up")

    def listen(self):
        for line in self.process.stdout:
            report = json.loads(line)
            self.strays = report["strays"]
            self.counters = report["tunnels"][0]["counters"]

    def complain(self):
        for line in self.process.stderr:
            self.errors.append(line)

    def count(self, name):
        """A counter, once it has been reported anew."""
        before = self.counters
        until("counters", lambda: self.counters is not before)
        return self.counters[name]

    def close(self):
        self.process.kill()
        self.process.wait()
        self.namespace.ip("link", "del", self.name)


def send_all(sender, receiver, address, size, family):
    """Bytes by TCP from one namespace to another; returns bytes per second."""
    data = os.urandom(1 << 16) * (size >> 16)
    listener = receiver.socket(family, socket.SOCK_STREAM)
    listener.bind((address, 0))
    listener.listen()
    listener.settimeout(60)
    result = {}

    def receive():
        connection, _ = listener.accept()
        connection.settimeout(60)
        digest, buffer = hashlib.sha256(), bytearray(1 << 18)
        while length := connection.recv_into(buffer):
            digest.update(memoryview(buffer)[:length])
        result["digest"] = digest.digest()
        connection.close()

    thread = threading.Thread(target=receive)
    thread.start()
    client = sender.socket(family, socket.SOCK_STREAM)
    client.settimeout(60)
    client.connect(listener.getsockname()[:2])
    started = time.monotonic()
    client.sendall(data)
    client.shutdown(socket.SHUT_WR)
    thread.join()
    taken = time.monotonic() - started
    client.close()
    listener.close()
    if result.get("digest") != hashlib.sha256(data).digest():
        raise SystemExit("what arrived by TCP is not what was sent")
    return size / taken


def veth(a, b, mtu=1500):
    a.ip("link", "add", "wire", "mtu", str(mtu), "type", "veth", "peer", "name", "wire", "mtu", str(mtu),
         "netns", b.name)
    for end, last in (a, "1"), (b, "2"):
        end.ip("addr", "add", f"192.0.2.{last}/24", "dev", "wire")
        end.ip("addr", "add", f"fd00::{last}/64", "dev", "wire", "nodad")
        end.ip("link", "set", "wire", "up")
