"""The packer writes the containers of real images, field by field, and refuses what it cannot pack."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from csrc.sim.image import make_image
from csrc.sim.image.make_image import KIND_ELF, KIND_PTX, Entry


def test_fatbin_layout() -> None:
    data = make_image.fatbin([Entry(KIND_ELF, 80, b"abc"), Entry(KIND_PTX, 90, b"01234567", flags=0x2011)])
    magic, version, header, size = struct.unpack_from("<IHHQ", data)
    assert (magic, version, header, size) == (0xBA55ED50, 1, 16, len(data) - 16)
    assert struct.unpack_from("<HHIQ", data, 16) == (1 + 1, 0x0101, 64, 8)
    assert struct.unpack_from("<I", data, 16 + 28) == (80,)
    assert data[16 + 64 : 16 + 72] == b"abc\0\0\0\0\0"
    second = 16 + 72
    assert struct.unpack_from("<HHIQ", data, second) == (1, 0x0101, 64, 8)
    assert struct.unpack_from("<I", data, second + 28) == (90,)
    assert struct.unpack_from("<Q", data, second + 40) == (0x2011,)
    assert len(data) == second + 72


def test_wrapper_layout() -> None:
    assert make_image.wrapper(0x1234) == struct.pack("<IIQQ", 0x466243B1, 1, 0x1234, 0)
    assert make_image.wrapper(0x1234, 2, 0x99) == struct.pack("<IIQQ", 0x466243B1, 2, 0x1234, 0x99)


def test_built_images_have_the_stated_entries() -> None:
    def entries(variable: str) -> list[tuple[int, int, bytes]]:
        data = Path(os.environ[variable]).read_bytes()
        found, at = [], 16
        while at < len(data):
            kind, _, header, size = struct.unpack_from("<HHIQ", data, at)
            found.append((kind, struct.unpack_from("<I", data, at + 28)[0], data[at + header : at + header + 4]))
            at += header + size
        return found

    assert entries("DECODE") == [(KIND_ELF, 80, b"\x7fELF"), (KIND_ELF, 90, b"\x7fELF")]
    assert entries("ASSORTED") == [(KIND_ELF, 90, b"\x7fELF"), (KIND_PTX, 80, b"\x7fELF")]
    assert Path(os.environ["ASSORTED_SM80"]).read_bytes()[:4] == b"\x7fELF"


def test_build_compiles_for_each_architecture(tmp_path: Path) -> None:
    output = tmp_path / "x.fatbin"
    source = "csrc/sim/image/kernels/assorted.cc"
    assert make_image.main(["build", "--output", str(output), "--elf", "80", "--elf", "90", source]) == 0
    data = output.read_bytes()
    assert data.count(b"\x7fELF") == 2
    size = struct.unpack_from("<Q", data, 16 + 8)[0]
    first, second = data[16 + 64 : 16 + 64 + size], data[16 + 64 + size + 64 :]
    assert first != second, "FOUNDRY_SIM_ARCH differs"
    again = tmp_path / "y.fatbin"
    make_image.main(["build", "--output", str(again), "--elf", "80", "--elf", "90", source])
    assert again.read_bytes() == data, "equal input gives equal bytes"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--elf", "80"], "is not ARCH=FILE"),
        (["--elf", "sm80=x"], "is not ARCH=FILE"),
        ([], "give at least one"),
    ],
)
def test_refusals(tmp_path: Path, arguments: list[str], sentence: str) -> None:
    with pytest.raises(SystemExit, match=sentence):
        make_image.main(["pack", "--output", str(tmp_path / "x"), *arguments])
    assert not (tmp_path / "x").exists()


def test_bare_is_exactly_one_elf(tmp_path: Path) -> None:
    (tmp_path / "a.so").write_bytes(b"\x7fELFrest")
    one = ["pack", "--bare", "--output", str(tmp_path / "x"), "--elf", f"80={tmp_path}/a.so"]
    assert make_image.main(one) == 0
    assert (tmp_path / "x").read_bytes() == b"\x7fELFrest"
    with pytest.raises(SystemExit, match="exactly one"):
        make_image.main([*one, "--elf", f"90={tmp_path}/a.so"])
