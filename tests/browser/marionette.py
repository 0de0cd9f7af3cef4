"""Firefox without a window, driven by its own protocol for tests (Marionette)."""

import json
import shutil
import socket
import subprocess
import time

PREFERENCES = {
    # Where it listens: at any port, which it writes into its profile.
    "marionette.port": 0,
    # HTTP/3 is off where the system or the user has authorities of their own, unless ...
    "network.http.http3.disable_when_third_party_roots_found": False,
    # Each load comes from the server, whatever it says.
    "browser.cache.disk.enable": False,
    "browser.cache.memory.enable": False,
    # Nothing of it goes to others than the server that is tested.
    "network.proxy.type": 1,
    "network.proxy.http": "127.0.0.1",
    "network.proxy.http_port": 9,
    "network.proxy.ssl": "127.0.0.1",
    "network.proxy.ssl_port": 9,
    "network.proxy.no_proxies_on": "localhost",
    "messaging-system.rsexperimentloader.enabled": False,
    "app.normandy.enabled": False,
    "app.update.disabledForTesting": True,
    "browser.safebrowsing.malware.enabled": False,
    "browser.safebrowsing.phishing.enabled": False,
    "browser.shell.checkDefaultBrowser": False,
    "browser.startup.homepage_override.mstone": "ignore",
    "browser.startup.page": 0,
    "datareporting.policy.dataSubmissionEnabled": False,
    "extensions.systemAddon.update.enabled": False,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "services.settings.server": "data:,#remote-settings-dummy/v1",
    "toolkit.telemetry.enabled": False,
}


class BrowserError(Exception):
    """The browser did not do what it was told."""


def find_firefox():
    return next(filter(None, map(shutil.which, ["firefox-esr", "firefox"])), None)


class Firefox:
    """A browser with a profile of its own, in which an authority is trusted."""

    def __init__(self, program, profile, authority, log):
        profile.mkdir()
        lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});\n" for name, value in PREFERENCES.items()]
        (profile / "user.js").write_text("".join(lines))
        database = f"sql:{profile}"
        for command in (["-N", "--empty-password"], ["-A", "-n", "test", "-t", "C,,", "-i", authority]):
            subprocess.run(["certutil", *command, "-d", database], check=True, capture_output=True)
        flags = ["--headless", "--marionette", "--no-remote", "--profile", profile, "about:blank"]
        self.process = subprocess.Popen([program, *flags], stdout=log, stderr=log)
        self.profile, self.count, self.come = profile, 0, b""

    def connect(self, patience):
        """Waits until it can be told something."""
        place, deadline = self.profile / "MarionetteActivePort", time.monotonic() + patience
        while not (place.exists() and place.read_text().strip()):
            if self.process.poll() is not None:
                raise BrowserError(f"Firefox has ended with code {self.process.returncode}")
            if time.monotonic() > deadline:
                raise BrowserError(f"Firefox does not listen within {patience} s")
            time.sleep(0.05)
        self.socket = socket.create_connection(("127.0.0.1", int(place.read_text())), patience)
        self.receive()
        session = self.call("WebDriver:NewSession", {"capabilities": {"alwaysMatch": {"acceptInsecureCerts": False}}}, patience)
        return session["capabilities"]["browserVersion"]

    def receive(self):
        """The next message: its length in bytes, a colon, and JSON."""
        while True:
            length, colon, rest = self.come.partition(b":")
            if colon and len(rest) >= int(length):
                self.come = rest[int(length) :]
                return json.loads(rest[: int(length)])
            piece = self.socket.recv(65536)
            if not piece:
                raise BrowserError("Firefox has ended")
            self.come += piece

    def call(self, command, parameters, patience):
        self.count += 1
        text = json.dumps([0, self.count, command, parameters]).encode()
        self.socket.settimeout(patience)
        try:
            self.socket.sendall(str(len(text)).encode() + b":" + text)
            _, _, error, result = self.receive()
        except TimeoutError:
            raise BrowserError(f"no answer to {command} within {patience} s") from None
        if error:
            raise BrowserError(f"{command}: {error['error']}: {error['message']}")
        return result

    def open(self, url, patience):
        self.call("WebDriver:Navigate", {"url": url}, patience)

    def evaluate(self, expression, patience):
        """The value of an expression of the page, once it is settled."""
        script = f"const told = arguments[0]; Promise.resolve({expression}).then(told, (error) => told({{ error: String(error) }}));"
        parameters = {"script": script, "args": [], "scriptTimeout": patience * 1000, "newSandbox": False, "sandbox": None}
        return self.call("WebDriver:ExecuteAsyncScript", parameters, patience)["value"]

    def end(self):
        self.process.kill()
        self.process.wait()
