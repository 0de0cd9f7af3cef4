#!/usr/bin/env python3
"""A browser that we did not write loads a page from nginx, whose TCP is a stack in user space.

nginx is not changed (`quicket run --tcp-by`). Its port is at a switch for packets, to which a network device is attached; headless
Chromium is in another network namespace, at the other end of that device. The page hashes what came of each file; this program
compares that, and looks whether the frames went by the switch.

    tests/browser/stack.py --quicket target/release/quicket
"""

import argparse
import contextlib
import hashlib
import json
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import zlib

sys.dont_write_bytecode = True
import devtools
from run import COLOR, HERE, IMAGE, PAGE_SECONDS, Failure, find_chromium, show_end, started_browser

SERVER, CLIENT = "192.0.2.1", "192.0.2.2"
BIG_FILE_BYTES = 8_000_000
# Width and height of an image that does not compress.
PICTURE = (160, 120)
START_SECONDS = 20

NGINX = """daemon off; worker_processes 2; pid {folder}/pid; error_log {folder}/nginx.log warn;
events {{ worker_connections 512; }}
http {{ access_log off; sendfile on; keepalive_timeout 65;
  types {{ text/html html; text/css css; text/javascript js; image/svg+xml svg; image/png png; }}
  server {{ listen 80; root {www}; }} }}
"""

# What the page says: what became of each file, all of them asked for at once.
HASHES = """(async () => {
  const name = async (file) => {
    const response = await fetch(file, { cache: "no-store" });
    return [file, [response.status, await sha256(await response.arrayBuffer())]];
  };
  const picture = new Image();
  picture.src = "picture.png?decoded";
  await picture.decode();
  return {
    files: Object.fromEntries(await Promise.all(%s.map(name))),
    picture: [picture.naturalWidth, picture.naturalHeight],
    protocols: Object.values(protocols()),
  };
})()"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quicket", metavar="PROGRAM", required=True)
    parser.add_argument("--chromium", default=find_chromium(), help="default: %(default)s")
    arguments = parser.parse_args()
    if arguments.chromium is None:
        parser.error("there is no Chromium: install Debian's package chromium, or use --chromium")
    if os.geteuid() != 0:
        if "CI" in os.environ:
            sys.exit("browser test of a stack: network devices need root")
        print("LEFT OUT: a browser and a stack in user space, as network devices need root")
        return
    # What the browser still writes while it ends is left to the system.
    with tempfile.TemporaryDirectory(prefix="quicket-stack-", ignore_cleanup_errors=True) as folder:
        folder = pathlib.Path(folder)
        # The workers of nginx are another user's.
        folder.chmod(0o755)
        try:
            run(arguments, folder)
        except (Failure, devtools.BrowserError) as error:
            for name in ["switch.log", "server.log", "nginx.log", "browser.log"]:
                show_end(folder / name)
            sys.exit(f"browser test of a stack: {error}")


def run(arguments, folder):
    quicket = str(pathlib.Path(arguments.quicket).resolve())
    files = make_site(folder / "www")
    switch = folder / "packets"
    with contextlib.ExitStack() as stack:
        here, there = stack.enter_context(namespaces())
        start(stack, folder / "switch.log", [*here, quicket, "switch", "packets", "--name", str(switch)])
        until("the switch is there", switch.exists)
        call([quicket, "switch", "attach", "wire", "--name", str(switch)])
        (folder / "nginx.conf").write_text(NGINX.format(folder=folder, www=folder / "www"))
        nginx = ["nginx", "-e", "stderr", "-c", str(folder / "nginx.conf")]
        start(stack, folder / "server.log", [*here, quicket, "run", "--tcp-by", str(switch), "--", *nginx])
        probe = [*there, "curl", "-s", "-o", "/dev/null", "--max-time", "1", f"http://{SERVER}/style.css"]
        until("nginx answers", lambda: subprocess.run(probe, check=False).returncode == 0)
        chromium = folder / "chromium"
        chromium.write_text("#!/bin/sh\nexec " + " ".join(there) + f" {arguments.chromium} \"$@\"\n")
        chromium.chmod(0o755)
        flags = [
            f"--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE {SERVER}",
            # Only such an origin has hashes (W3C, Web Cryptography API, Section 10).
            f"--unsafely-treat-insecure-origin-as-secure=http://{SERVER}",
        ]
        with started_browser(str(chromium), folder, flags) as (browser, version):
            begun = time.monotonic()
            session = browser.open(f"http://{SERVER}/index.html", PAGE_SECONDS)
            page = browser.evaluate(session, "check()", PAGE_SECONDS)
            found = browser.evaluate(session, HASHES % json.dumps(list(files)), PAGE_SECONDS)
            seconds = time.monotonic() - begun
        judge(page, found, files)
        [device] = json.loads(call([quicket, "switch", "devices", "-j", "--name", str(switch)]))["devices"]
        sent = device["sent"]
        # The big file came twice.
        if sent * 1500 < 2 * BIG_FILE_BYTES:
            raise Failure(f"only {sent} frames have left by the switch")
    print(f"{version}: the page, {len(files)} files and {sent} frames from nginx on a stack in user space, in {seconds:.1f} s, all verified")


def make_site(www):
    """Puts the page and what belongs to it into `www`: the hash of each file."""
    shutil.copytree(HERE / "page", www)
    chance = random.Random(9293)
    (www / "big.bin").write_bytes(chance.randbytes(BIG_FILE_BYTES))
    width, height = PICTURE
    rows = b"".join(b"\0" + chance.randbytes(3 * width) for _ in range(height))
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    picture = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    (www / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n" + picture)
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(www.iterdir())}


@contextlib.contextmanager
def namespaces():
    """Two network namespaces with a device between them: how a program is started in each."""
    names = [f"quicket-{end}-{os.getpid()}" for end in ["server", "browser"]]
    try:
        for name in names:
            call(["ip", "netns", "add", name])
        call(["ip", "-n", names[0], "link", "add", "wire", "type", "veth", "peer", "name", "wire", "netns", names[1]])
        for name, address in zip(names, [SERVER, CLIENT]):
            call(["ip", "-n", name, "addr", "add", f"{address}/24", "dev", "wire"])
            for device in ["lo", "wire"]:
                call(["ip", "-n", name, "link", "set", device, "up"])
        yield [["ip", "netns", "exec", name] for name in names]
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def start(stack, log, command):
    """Starts a program that ends with `stack`."""
    output = stack.enter_context(open(log, "wb"))
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    def end():
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    stack.callback(end)


def call(command):
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except FileNotFoundError:
        raise Failure(f"the program {command[0]} is missing") from None
    except subprocess.CalledProcessError as error:
        raise Failure(f"{' '.join(command)} failed: {error.stderr}") from None


def until(what, condition):
    deadline = time.monotonic() + START_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise Failure(f"not within {START_SECONDS} s: {what}")
        time.sleep(0.05)


def judge(page, found, files):
    wanted = {"status": 200, "length": BIG_FILE_BYTES, "sha256": files["big.bin"], "missing": 404, "image": IMAGE, "color": COLOR}
    wrong = [f"{name}: {page.get(name)!r} instead of {value!r}" for name, value in wanted.items() if page.get(name) != value]
    for name, sha256 in files.items():
        if found["files"].get(name) != [200, sha256]:
            wrong.append(f"{name}: {found['files'].get(name)} instead of {sha256}")
    if found["picture"] != list(PICTURE):
        wrong.append(f"the picture is {found['picture']}")
    if set(found["protocols"]) != {"http/1.1"}:
        wrong.append(f"protocols: {found['protocols']}")
    if wrong:
        raise Failure("the page is not as it should be: " + "; ".join(wrong))


if __name__ == "__main__":
    main()
