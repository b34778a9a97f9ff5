"""The extension macro, the pytest runner, and the faces of the shared libraries."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from build.selftest import selftest_module


def readelf(option: str, file: str | Path) -> str:
    return subprocess.run(["readelf", "-W", option, file], check=True, text=True, capture_output=True).stdout


def dynamic(file: str | Path, tag: str) -> list[str]:
    return re.findall(rf"\({tag}\).*\[(.*)\]", readelf("-d", file))


def exported(file: str | Path) -> set[str]:
    rows = [line.split() for line in readelf("--dyn-syms", file).splitlines() if "GLOBAL" in line or "WEAK" in line]
    return {row[7].split("@")[0] for row in rows if row[6] != "UND" and row[6] != "ABS"}


@given(st.integers(0, 500))
def test_extension_computes(count: int) -> None:
    assert selftest_module.sum_of_squares(count) == sum(i * i for i in range(count))


def test_tbb_is_inside() -> None:
    selftest_module.sum_of_squares(10)
    assert "libtbb" not in Path("/proc/self/maps").read_text()


def test_exceptions_cross_tbb() -> None:
    with pytest.raises(RuntimeError, match="at 500"):
        selftest_module.throw_in_parallel(500)


def test_face_of_the_extension() -> None:
    file = selftest_module.__file__
    assert dynamic(file, "RPATH") == dynamic(file, "RUNPATH") == []
    assert exported(file) == {"PyInit_selftest_module"}
    assert not [name for name in dynamic(file, "NEEDED") if re.search("cuda|torch|python|tbb", name)]


def test_face_of_a_shared_library() -> None:
    file = os.environ["SHARED_LIBRARY"]
    assert dynamic(file, "SONAME") == ["libselftest.so.1"]
    assert set(dynamic(file, "NEEDED")) <= {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"}
    assert dynamic(file, "RPATH") == dynamic(file, "RUNPATH") == []
    assert exported(file) == {"selftest_answer"}
    assert ctypes.CDLL(file).selftest_answer() == 42


def test_children_import_the_same_packages() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import pytest, build.selftest; print(pytest.__version__)"],
        text=True,
        capture_output=True,
    )
    assert done.stdout.strip() == pytest.__version__, done.stderr
