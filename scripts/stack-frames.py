#!/usr/bin/env python3
"""Lists the largest stack frames of compiled Rust libraries; fails if one is above the limit.

    scripts/stack-frames.py --limit 1024 LIBRARY.rlib...

Reads the sections `.stack_sizes` that `rustc -Z emit-stack-sizes` writes: for every function its
address and, as ULEB128, the bytes of its frame. In object files a relocation says whose address it is.
"""

import argparse
import pathlib
import re
import shutil
import struct
import subprocess
import sys

SHOWN = 10
SYMTAB, RELA = 2, 4
FUNCTION = 2


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--limit", type=int, required=True, help="bytes that a frame may have")
    parser.add_argument("libraries", nargs="+", type=pathlib.Path)
    arguments = parser.parse_args()
    frames = {}
    for library in arguments.libraries:
        for item in members(library.read_bytes()):
            frames.update(frames_of(item))
    if not frames:
        sys.exit("no stack sizes: build with RUSTFLAGS='-Z emit-stack-sizes'")
    largest = sorted(((size, name) for name, size in frames.items()), reverse=True)
    names = readable([name for _, name in largest])
    above = sum(size > arguments.limit for size, _ in largest)
    print(f"{len(frames)} functions; the largest frames, in bytes:")
    for (size, _), name in list(zip(largest, names))[: max(SHOWN, above)]:
        print(f"{size:>8}  {name}")
    if above:
        sys.exit(f"{above} frames are above the limit of {arguments.limit} bytes")


def members(archive):
    """The object files of an `ar` archive."""
    if not archive.startswith(b"!<arch>\n"):
        sys.exit("this is no library: expected an archive of object files")
    at = 8
    while at + 60 <= len(archive):
        size = int(archive[at + 48 : at + 58])
        content = archive[at + 60 : at + 60 + size]
        if content.startswith(b"\x7fELF\x02\x01"):
            yield content
        at += 60 + size + size % 2


def frames_of(elf):
    """The frame of every function in an object file (64-bit, little-endian), by its symbol."""
    (start,) = struct.unpack_from("<Q", elf, 0x28)
    entry, count = struct.unpack_from("<HH", elf, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", elf, start + index * entry) for index in range(count)]

    def content(section):
        return elf[section[4] : section[4] + section[5]]

    tables = [section for section in sections if section[1] == SYMTAB]
    if not tables:
        return {}
    strings = content(sections[tables[0][6]])
    symbols = list(struct.iter_unpack("<IBBHQQ", content(tables[0])))
    functions = {(shndx, value): string(strings, name)
                 for name, info, _, shndx, value, _ in symbols if info & 0xF == FUNCTION}
    frames = {}
    for section in sections:
        target = sections[section[7]] if section[1] == RELA else None
        # A section of stack sizes is linked to the code that it describes.
        if target is None or not is_stack_sizes(elf, sections, target):
            continue
        sizes = content(target)
        for offset, info, addend in struct.iter_unpack("<QQq", content(section)):
            symbol = symbols[info >> 32]
            name = functions.get((symbol[3], symbol[4] + addend))
            if name is not None:
                frames[name] = uleb128(sizes, offset + 8)
    return frames


def is_stack_sizes(elf, sections, section):
    (names,) = struct.unpack_from("<H", elf, 0x3E)
    return string(elf, sections[names][4] + section[0]) == ".stack_sizes"


def string(table, at):
    return table[at : table.index(b"\0", at)].decode()


def uleb128(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
        at, shift = at + 1, shift + 7


def readable(names):
    """Symbols as a person writes them, as far as c++filt (binutils) can tell."""
    if shutil.which("c++filt") is None:
        return names
    done = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True)
    return [re.sub(r"\[[0-9a-f]{16}\]", "", name) for name in done.stdout.splitlines()]


if __name__ == "__main__":
    main()
