"""build_wheel writes wheels that pip accepts, with the same bytes every time."""

from __future__ import annotations

import copy
import csv
import io
import json
import os
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
from packaging.metadata import Metadata
from packaging.utils import parse_wheel_filename

from tools import build_wheel


@pytest.fixture
def plan(tmp_path: Path) -> dict[str, Any]:
    for name, text in {
        "head": "# for people\nSummary: A test\nRequires-Python: >=3.10\nRequires-Dist: rich\nLicense-Expression: Apache-2.0\n",
        "README.md": "# Title\n\nText.\n",
        "entry_points": "[console_scripts]\nt = t:main\n",
        "LICENSE": "license text\n",
        "pins.txt": "# why\na==1 \\\n  --hash=sha256:0\n",
        "t.py": "def main(): pass\n",
        "lib.so": "\x7fELF...",
    }.items():
        (tmp_path / name).write_text(text)
    return {
        "distribution": "t",
        "version": "1.2.3",
        "commit": "c0ffee",
        "tag": "cp311-cp311-linux_x86_64",
        "metadata": str(tmp_path / "head"),
        "description": str(tmp_path / "README.md"),
        "entry_points": str(tmp_path / "entry_points"),
        "licenses": [str(tmp_path / "LICENSE")],
        "files": {"t.py": str(tmp_path / "t.py"), "lib/lib.so": str(tmp_path / "lib.so")},
        "build_info": [str(tmp_path / "pins.txt")],
    }


def test_content_and_record(plan: dict[str, Any], tmp_path: Path) -> None:
    out = tmp_path / "t-1.2.3-cp311-cp311-linux_x86_64.whl"
    build_wheel.write_wheel(plan, out)
    assert parse_wheel_filename(out.name)[0] == "t"
    with zipfile.ZipFile(out) as wheel:
        names = wheel.namelist()
        assert names == sorted(names[:-1]) + ["t-1.2.3.dist-info/RECORD"]
        assert {
            "t.py",
            "lib/lib.so",
            "t-1.2.3.dist-info/licenses/LICENSE",
            "t-1.2.3.dist-info/entry_points.txt",
        } <= set(names)
        rows = list(csv.reader(io.StringIO(wheel.read(names[-1]).decode())))
        assert [row[0] for row in rows] == names
        for name, digest, size in rows[:-1]:
            data = wheel.read(name)
            assert (digest, size) == (build_wheel.record_hash(data), str(len(data)))
        assert json.loads(wheel.read("t-1.2.3.dist-info/foundry-build.json")) == {
            "commit": "c0ffee",
            "pins": {"pins.txt": ["a==1 --hash=sha256:0"]},
            "version": "1.2.3",
        }
        modes = {entry.filename: entry.external_attr >> 16 & 0o777 for entry in wheel.infolist()}
        assert modes["lib/lib.so"] == 0o755 and modes["t.py"] == 0o644
        parsed = Metadata.from_email(wheel.read("t-1.2.3.dist-info/METADATA"))
        assert parsed.license_files == ["LICENSE"] and parsed.summary == "A test"
        assert parsed.description and parsed.description.startswith("# Title")


def test_same_bytes_whatever_the_surroundings(
    plan: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_wheel.write_wheel(plan, tmp_path / "first")
    other = copy.deepcopy(plan)
    other["files"] = dict(reversed(other["files"].items()))
    os.chmod(tmp_path / "t.py", 0o600)
    os.utime(tmp_path / "t.py", (1, 1))
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    build_wheel.write_wheel(other, tmp_path / "second")
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()


@pytest.mark.parametrize("change", [{"version": "1 2"}, {"distribution": "a-b"}, {"files": {"../x": "LICENSE"}}])
def test_unusable_plans_are_refused(
    plan: dict[str, Any], tmp_path: Path, change: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(build_wheel.WheelError):
        build_wheel.write_wheel({**plan, **change}, tmp_path / "out")
