"""A stock kernel in a QEMU machine without KVM, which runs commands that come by its serial port."""

import lzma
import os
import pathlib
import re
import shutil
import subprocess
import time

MODULES = ["virtio_pci", "virtio_net", "fou", "fou6", "ipip", "sit", "ip_gre", "ip6_gre", "ip6_tunnel",
           "sch_netem"]
END = "@end@"

INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
for module in $(cat /modules); do insmod /lib/$module.ko || echo "no $module"; done
ip link set lo up
stty -echo raw 2>/dev/null
last=0
echo "%s0 0"
while read -r number length line; do
  if [ "${#line}" != "$length" ]; then echo "%s$number again"; continue; fi
  if [ "$number" != "$last" ]; then eval "$line" 2>&1; status=$?; last=$number; fi
  echo "%s$number $status"
done
poweroff -f
""" % (END, END, END)


def backports_of(scratch):
    """Options by which apt knows Debian's backports and nothing else; the system's own lists stay as they are."""
    folder = scratch / "backports"
    for part in "lists/partial", "cache/archives/partial":
        (folder / part).mkdir(parents=True, exist_ok=True)
    release = dict(line.strip().split("=", 1) for line in open("/etc/os-release") if "=" in line)
    suite = f"{release['VERSION_CODENAME']}-backports"
    sources = folder / "some.list"
    sources.write_text(f"deb {debian()} {suite} main\n")
    options = [f"-oDir::Etc::sourcelist={sources}", "-oDir::Etc::sourceparts=-", f"-oDir::State::lists={folder}/lists",
               f"-oDir::Cache={folder}/cache"]
    subprocess.run(["apt-get", *options, "update", "-qq"], check=True)
    return options


def debian():
    """Where this system has Debian's packages from, as its own lists say."""
    out = subprocess.run(["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)"], check=True,
                         text=True, stdout=subprocess.PIPE).stdout
    for line in out.splitlines():
        uri, release, component = line.split()
        if component == "main" and "security" not in release and "security" not in uri:
            return uri
    raise SystemExit("apt knows of no packages of Debian's: apt-get update")


def unpack(scratch, backports):
    """Debian's kernel, unpacked and not installed; returns the folder."""
    options = backports_of(scratch) if backports else []
    out = subprocess.run(["apt-cache", *options, "depends", "linux-image-amd64"], check=True, text=True,
                         stdout=subprocess.PIPE).stdout
    package = re.search(r"Depends: (linux-image-\S+)", out).group(1)
    target = scratch / package
    if not (target / "done").exists():
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        subprocess.run(["apt-get", *options, "download", "-q", package], cwd=target, check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deb = next(target.glob("*.deb"))
        # Only what is needed of 400 MB.
        tar = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", deb], stdout=subprocess.PIPE)
        subprocess.run(["tar", "-x", "-C", target, "--wildcards", "./boot/vmlinuz-*",
                        "*/kernel/net/*", "*/drivers/net/*.ko*", "*/drivers/virtio/*",
                        "*/lib/*.ko*"], stdin=tar.stdout, check=True)
        tar.wait()
        deb.unlink()
        (target / "done").touch()
    return target


def in_order(tree, wanted):
    """The files of these modules and of those that they need, in the order of loading."""
    files = {p.name.split(".ko")[0].replace("-", "_"): p for p in tree.rglob("*.ko*")}
    order = []

    def visit(name):
        if name in [n for n, _, _ in order] or name not in files:
            return  # built in
        data = files[name].read_bytes()
        if files[name].suffix == ".xz":
            data = lzma.decompress(data)
        depends = re.search(rb"\0depends=([^\0]*)\0", b"\0" + data)
        for other in (depends.group(1).decode().split(",") if depends else []):
            if other:
                visit(other.replace("-", "_"))
        order.append((name, files[name], data))

    for name in wanted:
        visit(name)
    return order


def initramfs(scratch, tree, wanted, programs, files):
    root = scratch / "root"
    shutil.rmtree(root, ignore_errors=True)
    for folder in ["bin", "lib", "proc", "sys", "dev", "tmp", "etc", "usr", "run"]:
        (root / folder).mkdir(parents=True)
    shutil.copy("/bin/busybox", root / "bin/busybox")
    modules = in_order(tree, wanted)
    for name, _, data in modules:
        (root / f"lib/{name}.ko").write_bytes(data)
    (root / "modules").write_text("\n".join(name for name, _, _ in modules))
    # Those of busybox know nothing of encapsulation and bad links.
    (root / "sbin").mkdir()
    for name in "ip", "tc":
        take_along(root, shutil.which(name), f"sbin/{name}")
    for program in programs:
        take_along(root, program, f"sbin/{os.path.basename(program)}")
    for name, text in files.items():
        (root / name).write_text(text)
    # Busybox has nothing that answers datagrams.
    take_along(root, shutil.which("perl"), "sbin/perl")
    (root / "init").write_text(INIT.replace("ip link", "/sbin/ip link"))
    (root / "init").chmod(0o755)
    image = scratch / "initramfs"
    with open(image, "wb") as out:
        names = subprocess.run(["find", "."], cwd=root, check=True, stdout=subprocess.PIPE).stdout
        subprocess.run(["cpio", "-o", "-H", "newc", "--quiet"], cwd=root, input=names, stdout=out, check=True)
    return image


def take_along(root, program, name):
    """A program, and what it is linked to."""
    # What debuggers read is ten times as long as the rest.
    subprocess.run(["strip", "--strip-debug", "-o", root / name, os.path.realpath(program)], check=True)
    for line in subprocess.run(["ldd", program], check=True, text=True, stdout=subprocess.PIPE).stdout.splitlines():
        found = re.search(r"(/\S+)", line)
        if found:
            place = root / found.group(1).lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(os.path.realpath(found.group(1)), place)


class Guest:
    """A machine that is joined to a namespace by a tap, if there is one, with programs below /sbin and files that are named from / on."""

    def __init__(self, scratch, namespace=None, tap=None, backports=False, modules=MODULES, programs=(), files=None, memory=256):
        tree = unpack(scratch, backports)
        net = ["-netdev", f"tap,id=net,ifname={tap},script=no,downscript=no",
               "-device", "virtio-net-pci,netdev=net,romfile="] if tap else []
        inside = ["ip", "netns", "exec", namespace] if namespace else []
        kernel = next((tree / "boot").glob("vmlinuz-*"))
        self.version = kernel.name.removeprefix("vmlinuz-")
        self.process = subprocess.Popen(
            [*inside, "qemu-system-x86_64", "-nodefaults", "-nographic",
             "-no-user-config", "-accel", "tcg", "-cpu", "max", "-m", str(memory), "-no-reboot",
             "-kernel", kernel, "-initrd", initramfs(scratch, tree, modules, programs, files or {}),
             "-append", "console=ttyS0 quiet loglevel=1 panic=-1 random.trust_cpu=on",
             "-serial", "stdio", *net],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        os.set_blocking(self.process.stdout.fileno(), False)
        self.rest = b""
        self.number = 0
        self.line = b""
        self.wait(90)

    def wait(self, seconds):
        """Output up to the end of a command, and its status.

        A serial port loses what its 16 bytes have no room for while the machine is busy. So a command has a number
        and its length, is sent again if it arrived in part or is not answered, and is carried out once."""
        until = time.monotonic() + seconds
        output, again = "", time.monotonic() + 5
        while True:
            found = re.search(rb"(?s)(.*?)" + END.encode() + rb"([^\r\n]*)\r?\n", self.rest)
            if found:
                self.rest = self.rest[found.end():]
                output += found.group(1).decode(errors="replace").replace("\r", "")
                number, _, status = found.group(2).decode().partition(" ")
                if number == str(self.number) and status.isdecimal():
                    return output, int(status)
                if status == "again":
                    again = 0
                continue
            if time.monotonic() > until or self.process.poll() is not None:
                raise SystemExit(f"the guest does not answer; it said: {output}{self.rest.decode(errors='replace')}")
            if self.line and time.monotonic() > again:
                again = time.monotonic() + 5
                self.send(b"\n" + self.line)
            self.rest += self.process.stdout.read() or b""
            time.sleep(0.01)

    def run(self, command, seconds=60, check=True):
        self.start(command)
        return self.finish(command, seconds, check)

    def start(self, command):
        self.number += 1
        command = command.strip()
        self.line = f"{self.number} {len(command)} {command}\n".encode()
        self.send(self.line)

    def send(self, line):
        self.process.stdin.write(line)
        self.process.stdin.flush()

    def finish(self, command, seconds=60, check=True):
        output, status = self.wait(seconds)
        if check and status != 0:
            raise SystemExit(f"guest: `{command}` failed ({status}): {output}")
        return output

    def close(self):
        self.process.kill()
        self.process.wait()
