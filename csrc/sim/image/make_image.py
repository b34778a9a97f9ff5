"""Makes code images of the simulated driver: compiles kernels for several architectures and packs them as nvcc would.

Commands:
  build --output NAME.fatbin --elf 80 --elf 90 [--ptx 80] --root DIR source...   compile, then pack
  pack  --output NAME.fatbin --elf 80=a.so --elf 90=b.so [--ptx 80=a.so]         pack compiled code
With one --elf and --bare the output is the ELF itself, as Triton hands cubins to the driver.
"""

from __future__ import annotations

import argparse
import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

WRAPPER_MAGIC = 0x466243B1
FATBIN_MAGIC = 0xBA55ED50
KIND_PTX = 1
KIND_ELF = 2
ENTRY_HEADER_BYTES = 64
FLAGS_64BIT_LINUX = 0x11

# Contraction and reassociation stay off: equal input gives equal bits whatever the host compiler's mood.
COMPILE_FLAGS = [
    "-std=c++20",
    "-O2",
    "-fPIC",
    "-ffp-contract=off",
    "-fvisibility=hidden",
    "-fno-exceptions",
    "-fno-rtti",
    "-Wall",
    "-Wextra",
    "-Werror",
]
# -Bsymbolic: a variable of the client with the same name must not stand in for the image's own.
LINK_FLAGS = ["-shared", "-Wl,-Bsymbolic", "-Wl,--as-needed", "-Wl,-z,defs", "-Wl,--build-id=none", "-lm"]


class Entry(NamedTuple):
    """One entry of a fatbin. `kind` is KIND_ELF, or KIND_PTX for the simulator's stand-in for PTX."""

    kind: int
    arch: int
    payload: bytes
    flags: int = FLAGS_64BIT_LINUX


def fatbin(entries: list[Entry]) -> bytes:
    """A fatbin with these entries, payloads padded to 8 bytes."""
    body = bytearray()
    for entry in entries:
        payload = entry.payload + bytes(-len(entry.payload) % 8)
        body += struct.pack(
            "<HHIQIIHHIIIQQQ",
            entry.kind,
            0x0101,
            ENTRY_HEADER_BYTES,
            len(payload),
            0,  # compressed size
            0,
            8,  # minor and major version of the PTX or ELF flavour
            1,
            entry.arch,
            0,  # object name: offset, length
            0,
            entry.flags,
            0,
            0,  # uncompressed size
        )
        body += payload
    return struct.pack("<IHHQ", FATBIN_MAGIC, 1, 16, len(body)) + bytes(body)


def wrapper(address: int, version: int = 1, objects: int = 0) -> bytes:
    """A fatbin wrapper for an image at `address` of this process, as compiled-in code has it in .nvFatBinSegment.

    In version 2 `objects` is the address of the list of objects that were linked.
    """
    return struct.pack("<IIQQ", WRAPPER_MAGIC, version, address, objects)


def compile_elf(sources: list[str], arch: int, root: str, output: str) -> None:
    """Compiles kernels for one architecture with $CXX (c++ if unset) into a shared object at `output`."""
    compiler = os.environ.get("CXX", "c++")
    command = [compiler, *COMPILE_FLAGS, f"-DFOUNDRY_SIM_ARCH={arch}", f"-I{root}", *sources, "-o", output, *LINK_FLAGS]
    subprocess.run(command, check=True)


def _parse_pack(values: list[str], kind: int) -> list[Entry]:
    entries = []
    for value in values:
        arch, _, path = value.partition("=")
        if not arch.isdigit() or not path:
            raise SystemExit(f"make_image: {value!r} is not ARCH=FILE")
        entries.append(Entry(kind, int(arch), Path(path).read_bytes()))
    return entries


def _build(args: argparse.Namespace) -> list[Entry]:
    entries = []
    with tempfile.TemporaryDirectory() as folder:
        for kind, archs in ((KIND_ELF, args.elf), (KIND_PTX, args.ptx)):
            for arch in archs:
                if not arch.isdigit():
                    raise SystemExit(f"make_image: {arch!r} is not an architecture such as 80")
                output = os.path.join(folder, f"{kind}_{arch}.so")
                compile_elf(args.sources, int(arch), args.root, output)
                entries.append(Entry(kind, int(arch), Path(output).read_bytes()))
    return entries


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("build", "pack"):
        command = commands.add_parser(name)
        command.add_argument("--output", required=True)
        command.add_argument("--elf", action="append", default=[])
        command.add_argument("--ptx", action="append", default=[])
        command.add_argument("--bare", action="store_true", help="write the only ELF itself")
        if name == "build":
            command.add_argument("--root", default=".", help="include root: the folder that holds csrc")
            command.add_argument("sources", nargs="+")
    args = parser.parse_args(argv)
    if args.command == "build":
        entries = _build(args)
    else:
        entries = _parse_pack(args.elf, KIND_ELF) + _parse_pack(args.ptx, KIND_PTX)
    if not entries:
        raise SystemExit("make_image: give at least one --elf or --ptx")
    if args.bare:
        if len(entries) != 1:
            raise SystemExit("make_image: --bare writes exactly one ELF")
        data = entries[0].payload
    else:
        data = fatbin(entries)
    Path(args.output).write_bytes(data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
