"""Name, size, metadata and files of the wheel."""

from __future__ import annotations

import email.parser
import json
import os
import re
import zipfile

from packaging.metadata import Metadata
from packaging.utils import parse_wheel_filename

from tests.wheel import unpacked


def test_name() -> None:
    name, _, _, tags = parse_wheel_filename(unpacked.WHEEL.name)
    python = "cp" + os.environ["PYTHON_VERSION"].replace(".", "")
    assert name == "foundry"
    assert {str(tag) for tag in tags} == {f"{python}-{python}-manylinux_2_28_x86_64"}


def test_size() -> None:
    assert unpacked.WHEEL.stat().st_size < 20e6


def test_metadata() -> None:
    (info,) = unpacked.folder().glob("*.dist-info")
    metadata = Metadata.from_email((info / "METADATA").read_bytes(), validate=False)
    assert metadata.requires_python == ">=3.10"
    assert metadata.license_expression == "Apache-2.0"
    assert metadata.license_files and {"LICENSE", "zstd.txt", "boost.txt", "pybind11.txt"} <= set(
        metadata.license_files
    )
    for name in metadata.license_files:
        assert (info / "licenses" / name).stat().st_size > 500
    assert str(metadata.version) == json.loads((info / "foundry-build.json").read_text())["version"]
    raw = email.parser.BytesParser().parsebytes((info / "METADATA").read_bytes())
    assert not re.search(r"torch|cuda-", " ".join(raw.get_all("Requires-Dist", [])))  # one wheel for every torch
    assert "foundry = foundry.cli" in (info / "entry_points.txt").read_text()


def test_build_info_has_commit_and_pins() -> None:
    (info,) = unpacked.folder().glob("*.dist-info")
    document = json.loads((info / "foundry-build.json").read_text())
    assert re.fullmatch(r"[0-9a-f]{40}|", document["commit"])  # nobody knows it in a copy of the tree without git
    pins = document["pins"]
    assert any(line.startswith("ziglang==") for line in pins["zig.txt"])
    assert any("nvidia-cuda-nvcc==13.0" in line for line in pins["cuda.txt"])


def test_files() -> None:
    with zipfile.ZipFile(unpacked.WHEEL) as archive:
        names = set(archive.namelist())
    for name in (
        "foundry/__init__.py",
        "foundry/py.typed",
        "foundry/_core.pyi",
        "foundry/sim/decode.fatbin",
        "foundry/cli/__init__.py",
    ):
        assert name in names
    tops = {name.split("/")[0] for name in names}
    assert sorted(top for top in tops if not top.endswith(".dist-info")) == ["foundry"]
    assert not [name for name in names if "test" in name.split("/")[-1] or name.endswith((".pyc", ".cc"))]
