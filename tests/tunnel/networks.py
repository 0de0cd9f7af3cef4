"""Network namespaces, the programs in them, and bytes from one to the other."""

import contextlib
import ctypes
import hashlib
import json
import os
import socket
import subprocess
import threading
import time

LIBC = ctypes.CDLL(None, use_errno=True)


def ip(*words):
    subprocess.run(["ip", *words], check=True)


@contextlib.contextmanager
def inside(namespace):
    """Sockets of this thread are made in the namespace."""
    own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    other = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    if LIBC.setns(other, 0) != 0:
        raise OSError(ctypes.get_errno(), "setns")
    try:
        yield
    finally:
        LIBC.setns(own, 0)
        os.close(own)
        os.close(other)


def until(what, condition, seconds=30):
    end = time.monotonic() + seconds
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > end:
            raise SystemExit(f"waited {seconds} s in vain: {what}")
        time.sleep(0.02)


class Namespace:
    def __init__(self, name):
        self.name = f"quicket-tunnel-{os.getpid()}-{name}"
        ip("netns", "add", self.name)
        self.ip("link", "set", "lo", "up")

    def ip(self, *words):
        ip("-n", self.name, *words)

    def command(self, *words):
        return ["ip", "netns", "exec", self.name, *words]

    def run(self, *words, check=True):
        done = subprocess.run(self.command(*words), text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        if check and done.returncode != 0:
            raise SystemExit(f"{self.name}: `{' '.join(words)}` failed: {done.stdout}")
        return done.stdout if check else done.returncode == 0

    def ping(self, address, size, count=2, fragment="do", check=True):
        """A ping whose packet has `size` bytes, IP header included."""
        headers = 48 if ":" in address else 28
        return self.run("ping", "-n", "-q", "-c", str(count), "-i", "0.02", "-W", "3", "-M", fragment,
                        "-s", str(size - headers), address, check=check)

    def socket(self, *arguments):
        with inside(self.name):
            return socket.socket(*arguments)

    def remove(self):
        """Ends what still runs in it, as after a failure: a namespace lives as long as a process in it."""
        pids = subprocess.run(["ip", "netns", "pids", self.name], text=True, stdout=subprocess.PIPE).stdout
        for pid in pids.split():
            os.kill(int(pid), 9)
        ip("netns", "del", self.name)


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
