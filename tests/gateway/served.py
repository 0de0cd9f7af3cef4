"""A server under test in a process of its own."""

import os
import subprocess

from gateway_site import fail, until


class Served:
    """Its process, and what it says, in a log. It is killed at the end."""

    def __init__(self, folder, name, command, ready):
        self.name, self.ready, self.log = name, ready, folder / f"{name}.log"
        environment = os.environ | {home: str(folder) for home in ("HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR")}
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output, cwd=folder, env=environment)

    def __enter__(self):
        try:
            until(f"{self.name} listens", lambda: self.has_said(self.ready))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error):
        self.process.kill()
        self.process.wait()

    def has_ended(self):
        return self.process.poll() is not None

    def said(self):
        return self.log.read_text()

    def has_said(self, what):
        if self.has_ended():
            fail(f"{self.name} has ended: {self.said()}")
        return what in self.said()


def gateway(quicket, folder, text):
    """A gateway with this file."""
    file = folder / "site.toml"
    file.write_text(text)
    return Served(folder, "gateway", [quicket, "gateway", file], "Gateway on")
