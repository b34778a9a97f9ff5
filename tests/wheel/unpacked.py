"""The wheel under test, unpacked once, and readers of its ELF files."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import tempfile
import zipfile
from pathlib import Path

WHEEL = Path(os.environ["WHEEL"]).resolve()


@functools.cache
def folder() -> Path:
    """A folder with the content of the wheel, modes included."""
    place = Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))
    with zipfile.ZipFile(WHEEL) as archive:
        for entry in archive.infolist():
            (place / archive.extract(entry, place)).chmod(entry.external_attr >> 16 & 0o777)
    return place


def environment(*paths: Path) -> dict[str, str]:
    """This environment for an interpreter of any version: it finds `paths` and what a wheel requires (plain Python)."""
    required = [path for path in os.environ["PYTHONPATH"].split(os.pathsep) if path.endswith("/site")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*map(str, paths), *required])}


def elf_files() -> dict[str, Path]:
    """The ELF files of the wheel, by their path in it without the tag of the Python."""
    found = {}
    for path in sorted(folder().rglob("*")):
        if path.is_file() and path.open("rb").read(4) == b"\x7fELF":
            found[re.sub(r"\.cpython-[^/]*\.so$", ".so", str(path.relative_to(folder())))] = path
    return found


def readelf(option: str, file: Path) -> str:
    return subprocess.run(["readelf", "-W", option, file], check=True, text=True, capture_output=True).stdout


def dynamic(file: Path, tag: str) -> list[str]:
    """The values of one tag of the dynamic section."""
    return re.findall(rf"\({tag}\).*\[(.*)\]", readelf("-d", file))


def exported(file: Path) -> set[str]:
    """The names that a shared library defines for others."""
    rows = [line.split() for line in readelf("--dyn-syms", file).splitlines() if re.search(r"\b(GLOBAL|WEAK)\b", line)]
    return {row[7].split("@")[0] for row in rows if row[6] not in ("UND", "ABS")}
