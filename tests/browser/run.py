#!/usr/bin/env python3
"""A browser that we did not write loads a page and a big file over HTTP/3.

Headless Chromium loads page/ and a file of 50 MB from a server on this machine. The page hashes the
file; this program compares hash, styles, image and the protocol of every response.

    tests/browser/run.py --quicket target/release/quicket
    tests/browser/run.py --server 'PROGRAM server --listen {listen} --cert {cert} --key {key} \\
        --www {www} --alpn h3'

Any server will do that prints one line of JSON with `"event": "listening"` and an `"address"`: with
a server of someone else's, the test tests itself.
"""

import argparse
import base64
import contextlib
import hashlib
import json
import os
import pathlib
import random
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading

import devtools

HERE = pathlib.Path(__file__).resolve().parent
BIG_FILE_BYTES = 50_000_000
LISTEN = "127.0.0.1:0"
QUICKET = ["serve", "{www}", "--listen", "{listen}", "--cert", "{cert}", "--key", "{key}", "--json"]

START_SECONDS = 20
# Chromium's first start on a machine reads half a gigabyte from its disk and sometimes hangs before
# it answers, which says nothing about the server: it is then started once more.
BROWSER_START_SECONDS = 90
BROWSER_STARTS = 2
PAGE_SECONDS = 30
DOWNLOAD_SECONDS = 120

# What page/ looks like when it has arrived.
IMAGE = [96, 48]
COLOR = "rgb(1, 102, 203)"
FILES = ["index.html", "style.css", "page.js", "image.svg", "big.bin", "missing.txt"]


class Failure(Exception):
    """The test failed, for the reason given."""


def main():
    arguments = parse_arguments()
    # What the browser still writes while it ends is left to the system.
    with tempfile.TemporaryDirectory(
        prefix="quicket-browser-", ignore_cleanup_errors=True
    ) as folder:
        folder = pathlib.Path(folder)
        try:
            run(arguments, folder)
        except (Failure, devtools.BrowserError) as error:
            for name in ["server.log", "browser.log"]:
                show_end(folder / name)
            sys.exit(f"browser test: {error}")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    server = parser.add_mutually_exclusive_group(required=True)
    server.add_argument("--quicket", metavar="PROGRAM", help="test `PROGRAM serve`")
    server.add_argument("--server", metavar="COMMAND", help="test another server; see this file")
    parser.add_argument("--chromium", default=find_chromium(), help="default: %(default)s")
    arguments = parser.parse_args()
    if arguments.chromium is None:
        parser.error("there is no Chromium: install Debian's package chromium, or use --chromium")
    return arguments


def find_chromium():
    names = ["chromium", "chromium-browser", "google-chrome"]
    return next(filter(None, map(shutil.which, names)), None)


def run(arguments, folder):
    expected = make_site(folder / "www")
    key_hash = make_certificate(folder)
    if arguments.quicket:
        command = [str(pathlib.Path(arguments.quicket).resolve()), *QUICKET]
    else:
        command = shlex.split(arguments.server)
    load(arguments, folder, command, key_hash, expected)
    if arguments.quicket:
        among_others(arguments, folder, command, key_hash, expected)


def among_others(arguments, folder, command, key_hash, expected):
    """The same where another program has all other names at that address, and first packets are read by the switch."""
    program = command[0]
    os.environ["QUICKET_SWITCH"] = str(folder / "switch")
    # Those who share an address know its port beforehand.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    neighbour = [program, "serve", "{www}-of-others", "--listen", address, "--json", "--switch"]
    shutil.copytree(HERE / "page", folder / "www-of-others", ignore=lambda *_: ["index.html"])
    try:
        with serving(neighbour, folder):
            own = [address if word == "{listen}" else word for word in command]
            load(arguments, folder, [*own, "--switch", "--server-name", "localhost"], key_hash, expected, "localhost")
    finally:
        told = subprocess.run([program, "switch", "status", "--json"], capture_output=True, text=True)
        if told.returncode == 0:
            os.kill(json.loads(told.stdout)["pid"], signal.SIGKILL)


def load(arguments, folder, command, key_hash, expected, name=None):
    """Has a browser load the page from a server, under its address or a name."""
    with serving(command, folder) as address:
        address = address if name is None else f"{name}:{address.rsplit(':', 1)[1]}"
        flags = [
            f"--origin-to-force-quic-on={address}",
            f"--ignore-certificate-errors-spki-list={key_hash}",
        ]
        with started_browser(arguments.chromium, folder, flags) as (browser, version):
            session = browser.open(f"https://{address}/index.html", PAGE_SECONDS)
            found = browser.evaluate(session, "check()", DOWNLOAD_SECONDS)
    judge(found, expected)
    speed = BIG_FILE_BYTES / found["seconds"] / 1e6
    where = "" if name is None else ", beside another program at the address"
    print(f"{version}: the page and {BIG_FILE_BYTES / 1e6:.0f} MB over h3 ({speed:.0f} MB/s){where}, all verified")


@contextlib.contextmanager
def started_browser(chromium, folder, flags):
    """Starts Chromium; gives it once it answers, and its version."""
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(open(folder / "browser.log", "wb"))
        for start in range(1, BROWSER_STARTS + 1):
            attempt = contextlib.ExitStack()
            profile = pathlib.Path(tempfile.mkdtemp(prefix="profile-", dir=folder))
            browser = attempt.enter_context(devtools.Browser(chromium, profile, flags, log))
            try:
                version = browser.call("Browser.getVersion", {}, BROWSER_START_SECONDS)["product"]
            except devtools.BrowserError as error:
                attempt.close()
                if start == BROWSER_STARTS:
                    raise
                print(f"browser test: {error}; starting it again", file=sys.stderr)
            else:
                stack.push(attempt)
                break
        yield browser, version


def make_site(www):
    """Puts the page and the big file into `www`; the hash of the big file."""
    shutil.copytree(HERE / "page", www)
    content = random.Random(9000).randbytes(BIG_FILE_BYTES)
    (www / "big.bin").write_bytes(content)
    return hashlib.sha256(content).hexdigest()


def make_certificate(folder):
    """A certificate as Chromium accepts it from a server that it knows by its key alone: ECDSA, for
    less than two weeks. Returns that key's hash."""
    certificate = folder / "cert.pem"
    openssl(
        "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
        "-days", "10", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
        "-keyout", folder / "key.pem", "-out", certificate,
    )
    public_key = openssl("x509", "-in", certificate, "-pubkey", "-noout")
    public_key = openssl("pkey", "-pubin", "-outform", "der", stdin=public_key)
    return base64.b64encode(hashlib.sha256(public_key).digest()).decode()


def openssl(*arguments, stdin=b""):
    try:
        done = subprocess.run(["openssl", *arguments], input=stdin, capture_output=True, check=True)
    except FileNotFoundError:
        raise Failure("the program openssl is missing: install Debian's package openssl") from None
    except subprocess.CalledProcessError as error:
        raise Failure(f"openssl failed: {error.stderr.decode(errors='replace')}") from None
    return done.stdout


@contextlib.contextmanager
def serving(command, folder):
    """Runs the server; gives its address."""
    values = {
        "listen": LISTEN,
        "cert": str(folder / "cert.pem"),
        "key": str(folder / "key.pem"),
        "www": str(folder / "www"),
    }
    command = [part.format(**values) for part in command]
    with open(folder / "server.log", "wb") as log:
        try:
            process = subprocess.Popen(
                # The peers of the lab end when this end of their standard input does.
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        except OSError as error:
            raise Failure(f"cannot start {command[0]}: {error.strerror}") from None
        try:
            yield listening(process)
        finally:
            ended = process.poll()
            process.kill()
            process.wait()
            process.stdin.close()
            if ended is not None:
                raise Failure(f"the server ended by itself with code {ended}")


def listening(process):
    """The address that the server says it listens on."""
    timer = threading.Timer(START_SECONDS, process.kill)
    timer.start()
    try:
        for line in process.stdout:
            event = json.loads(line)
            if event.get("event") == "listening":
                # Nobody reads further events, but the server must not wait for a reader.
                threading.Thread(target=process.stdout.read, daemon=True).start()
                return event["address"]
    except json.JSONDecodeError:
        raise Failure(f"the server printed a line that is not JSON: {line!r}") from None
    finally:
        timer.cancel()
    raise Failure(f"the server does not say where it listens within {START_SECONDS} s")


def judge(found, expected):
    wanted = {
        "status": 200,
        "length": BIG_FILE_BYTES,
        "sha256": expected,
        "missing": 404,
        "image": IMAGE,
        "color": COLOR,
        "protocols": dict.fromkeys(FILES, "h3"),
    }
    wrong = [f"{name}: {found.get(name)!r} instead of {value!r}"
             for name, value in wanted.items() if found.get(name) != value]
    if wrong:
        raise Failure("the page is not as it should be: " + "; ".join(wrong))


def show_end(path, lines=20):
    if path.exists():
        # Chromium complains at length where there is no desktop.
        text = [line for line in path.read_text(errors="replace").splitlines() if "dbus/" not in line]
        print(f"--- end of {path.name}", *text[-lines:], sep="\n", file=sys.stderr)


if __name__ == "__main__":
    main()
