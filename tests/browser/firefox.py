#!/usr/bin/env python3
"""Firefox loads a page and a big file through `quicket gateway`: at first over HTTP/2, whose answer tells of HTTP/3 (Alt-Svc: RFC 7838),
and then over HTTP/3. Its own client verifies the certificate, by an authority that its profile trusts."""

import argparse
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

import marionette
from run import BIG_FILE_BYTES, COLOR, DOWNLOAD_SECONDS, FILES, IMAGE, PAGE_SECONDS, Failure, make_site, openssl, show_end

START_SECONDS = 90
# How often the page is loaded until it comes over HTTP/3: Firefox tries that beside the first requests.
LOADS = 20

FILE = """listen = ["127.0.0.1:{port}"]
[[certificate]]
chain = "cert.pem"
key = "key.pem"
[[site]]
names = ["localhost"]
[[site.route]]
files = "{folder}/www"
"""


def certificates(folder):
    """An authority, and a certificate of its for localhost."""
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    openssl("req", "-x509", *key, "-days", "10", "-subj", "/CN=Authority of a test", "-keyout", folder / "ca.key", "-out", folder / "ca.pem")
    openssl("req", "-x509", *key, "-days", "10", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-addext",
            "basicConstraints=critical,CA:FALSE", "-CA", folder / "ca.pem", "-CAkey", folder / "ca.key", "-keyout", folder / "key.pem",
            "-out", folder / "cert.pem")


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def until_it_listens(gateway, port):
    for _ in range(400):
        if gateway.poll() is not None:
            raise Failure(f"the gateway has ended with code {gateway.returncode}")
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise Failure("the gateway does not listen")


def load(browser, url):
    """Loads the page until all of it comes over HTTP/3; how often, and what was found."""
    first = None
    for loads in range(1, LOADS + 1):
        browser.open(url, PAGE_SECONDS)
        protocols = browser.evaluate("protocols()", PAGE_SECONDS)
        first = first or protocols["index.html"]
        if set(protocols.values()) == {"h3"}:
            return first, loads, browser.evaluate("check()", DOWNLOAD_SECONDS)
        time.sleep(0.2)
    raise Failure(f"after {LOADS} times the page does not come over HTTP/3: {protocols}")


def run(arguments, folder):
    expected = make_site(folder / "www")
    certificates(folder)
    port = free_port()
    (folder / "site.toml").write_text(FILE.format(port=port, folder=folder))
    with open(folder / "server.log", "wb") as server_log, open(folder / "browser.log", "wb") as browser_log:
        gateway = subprocess.Popen([arguments.quicket, "gateway", folder / "site.toml"], stdout=server_log, stderr=server_log)
        browser = None
        try:
            until_it_listens(gateway, port)
            browser = marionette.Firefox(arguments.firefox, folder / "profile", folder / "ca.pem", browser_log)
            version = browser.connect(START_SECONDS)
            first, loads, found = load(browser, f"https://localhost:{port}/index.html")
        finally:
            if browser:
                browser.end()
            gateway.kill()
            gateway.wait()
    wanted = {"status": 200, "length": BIG_FILE_BYTES, "sha256": expected, "missing": 404, "image": IMAGE, "color": COLOR,
              "protocols": dict.fromkeys(FILES, "h3")}
    wrong = [f"{name}: {found.get(name)!r} instead of {value!r}" for name, value in wanted.items() if found.get(name) != value]
    if first != "h2":
        wrong.append(f"the page came over {first} at first, and not over HTTP/2")
    if wrong:
        raise Failure("the page is not as it should be: " + "; ".join(wrong))
    speed = BIG_FILE_BYTES / found["seconds"] / 1e6
    print(f"Firefox {version}: h2 at first, h3 from load {loads} on; {BIG_FILE_BYTES / 1e6:.0f} MB over h3 ({speed:.0f} MB/s), all verified")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quicket", type=lambda path: str(pathlib.Path(path).resolve()), required=True, help="the program")
    parser.add_argument("--firefox", default=marionette.find_firefox(), help="default: %(default)s")
    arguments = parser.parse_args()
    if arguments.firefox is None:
        parser.error("there is no Firefox: install Debian's packages firefox-esr and libnss3-tools, or use --firefox")
    with tempfile.TemporaryDirectory(prefix="quicket-firefox-", ignore_cleanup_errors=True) as folder:
        folder = pathlib.Path(folder)
        try:
            run(arguments, folder)
        except (Failure, marionette.BrowserError) as error:
            for name in ["server.log", "browser.log"]:
                show_end(folder / name)
            sys.exit(f"browser test: {error}")


if __name__ == "__main__":
    main()
