"""Network namespaces, and programs and sockets in them: what ./demo and the tests between namespaces share."""

import contextlib
import ctypes
import os
import socket
import subprocess
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
        self.name = f"quicket-{os.getpid()}-{name}"
        ip("netns", "add", self.name)
        try:
            self.ip("link", "set", "lo", "up")
        except BaseException:
            self.remove()
            raise

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
        try:
            pids = subprocess.run(["ip", "netns", "pids", self.name], text=True, stdout=subprocess.PIPE).stdout
            for pid in pids.split():
                # One may end by itself meanwhile.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), 9)
        finally:
            ip("netns", "del", self.name)
