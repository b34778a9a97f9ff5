"""What the ELF files of the wheel need from the system, and what they show to it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.wheel import unpacked

# All of them parts of glibc.
GLIBC = {"libc.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0", "ld-linux-x86-64.so.2"}
FILES = {
    "foundry/_core.so": "_core.so",
    "foundry/lib/sm_80/libcuda_hook.so": "libcuda_hook.so",
    "foundry/lib/sm_90/libcuda_hook.so": "libcuda_hook.so",
    "foundry/sim/libcuda.so.1": "libcuda.so.1",
}


def test_these_and_no_others() -> None:
    assert set(unpacked.elf_files()) == set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_needs_glibc_only(name: str) -> None:
    file = unpacked.elf_files()[name]
    assert set(unpacked.dynamic(file, "NEEDED")) <= GLIBC
    assert unpacked.dynamic(file, "RPATH") == unpacked.dynamic(file, "RUNPATH") == []
    assert unpacked.dynamic(file, "SONAME") == [FILES[name]]


@pytest.mark.parametrize("name", FILES)
def test_no_symbol_of_a_newer_glibc(name: str) -> None:
    text = unpacked.readelf("--dyn-syms", unpacked.elf_files()[name])
    versions = {tuple(map(int, found.split("."))) for found in re.findall(r"@GLIBC_([0-9.]+)", text)}
    assert versions and max(versions) <= (2, 28)


def test_hooks_export_their_list() -> None:
    listed = subprocess.run([os.environ["PRINT_INTERPOSED"]], check=True, text=True, capture_output=True).stdout.split()
    assert len(listed) > 50
    for sm in ("80", "90"):
        assert unpacked.exported(unpacked.elf_files()[f"foundry/lib/sm_{sm}/libcuda_hook.so"]) == set(listed)


def test_extension_exports_module_and_allocator() -> None:
    names = unpacked.exported(unpacked.elf_files()["foundry/_core.so"])
    assert "PyInit__core" in names
    assert [name for name in names if not re.match(r"PyInit__core$|foundry_zone_(malloc|free)_", name)] == []


@pytest.mark.parametrize("name", FILES)
def test_no_path_of_the_build(name: str) -> None:
    data = unpacked.elf_files()[name].read_bytes()
    for trace in (b"/bazel-out/", b"/execroot/", b"/sandbox/", b"/home/", b"/root/", b"/tmp/bazel"):
        assert trace not in data


def test_auditwheel_agrees() -> None:
    done = subprocess.run([sys.executable, "-m", "auditwheel", "show", unpacked.WHEEL], text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())  # it breaks lines
    found = re.search(r'is consistent with the following platform tag: "manylinux_2_(\d+)_x86_64"', said)
    assert found and int(found.group(1)) <= 28, done.stdout


def test_poisoned_tbb_changes_nothing(tmp_path: Path) -> None:
    for name in ("libtbb.so.12", "libtbb.so.2", "libtbbmalloc.so.2", "libtbbbind.so.3"):
        (tmp_path / name).write_text("no library\n")
    program = "import foundry._core as core; print(core.__file__, 'libtbb' in open('/proc/self/maps').read())"
    env = {**unpacked.environment(unpacked.folder()), "LD_LIBRARY_PATH": str(tmp_path)}
    done = subprocess.run([os.environ["PYTHON"], "-c", program], text=True, capture_output=True, env=env, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    place, loaded = done.stdout.split()
    assert place.startswith(str(unpacked.folder())) and loaded == "False"
