"""What the library needs and exports."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.integration.hook.support import product


def readelf(option: str, path: Path) -> str:
    return subprocess.run(["readelf", "-W", option, str(path)], check=True, capture_output=True, text=True).stdout


@pytest.fixture(params=["HOOK_SM80", "HOOK_SM90"])
def library(request: pytest.FixtureRequest) -> Path:
    return product(request.param)


def test_needs_libc_only(library: Path) -> None:
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", readelf("-d", library)))
    assert "libc.so.6" in needed
    assert needed <= {"libc.so.6", "libdl.so.2", "libpthread.so.0"}  # the last two where glibc is older than 2.34


def test_has_no_search_path_and_its_own_name(library: Path) -> None:
    dynamic = readelf("-d", library)
    assert "RPATH" not in dynamic and "RUNPATH" not in dynamic
    assert re.findall(r"\(SONAME\).*\[(.*)\]", dynamic) == ["libcuda_hook.so"]
    assert "TEXTREL" not in dynamic


def test_exports_the_table_and_nothing_else(library: Path) -> None:
    listed = subprocess.run(
        [str(product("PRINT_INTERPOSED"))], check=True, capture_output=True, text=True
    ).stdout.split()
    exported = set()
    for line in readelf("--dyn-syms", library).splitlines():
        fields = line.split()
        if len(fields) == 8 and fields[4] in ("GLOBAL", "WEAK", "UNIQUE") and fields[6] != "UND":
            exported.add(fields[7].split("@")[0])
    assert len(listed) == len(set(listed))
    assert exported == set(listed)
    assert {"dlsym", "foundry_abi_v1", "cuGetProcAddress_v2", "cuMemAlloc_v2", "cuMemAllocAsync_ptsz"} <= exported


def test_builds_differ_in_device_code() -> None:
    contents = [product(name).read_bytes() for name in ("HOOK_SM80", "HOOK_SM90")]
    for content in contents:
        assert b"foundry_block_summary" in content and b"foundry_pointer_scan" in content
    assert contents[0] != contents[1]
