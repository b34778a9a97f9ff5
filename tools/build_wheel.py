"""Writes a wheel from a list of files: same input, same bytes.

usage: build_wheel.py PLAN.json OUT.whl

The plan is a JSON object:
  distribution, version   name and version of the distribution
  commit                  of the sources, empty where nobody knows; recorded in dist-info/foundry-build.json
  tag                     PYTHON-ABI-PLATFORM of the wheel
  metadata                file with the head of METADATA (without Metadata-Version, Name, Version)
  description             file with the description (Markdown)
  entry_points            file that becomes entry_points.txt
  licenses                files that go into dist-info/licenses
  files                   object: path in the wheel -> file
  build_info              files with pins; their content is recorded there too
Entries are sorted, times are 1980-01-01, modes are 0644, or 0755 for what is an ELF file or a script.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

EPOCH = (1980, 1, 1, 0, 0, 0)


class WheelError(Exception):
    """A plan from which no proper wheel can be made."""


def record_hash(data: bytes) -> str:
    """The hash of a RECORD line (PEP 376: urlsafe base64 of SHA-256 without padding)."""
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def metadata(plan: dict[str, Any]) -> bytes:
    """METADATA in version 2.4: the head of the project, license files and the description."""
    head = Path(plan["metadata"]).read_text().strip("\n").splitlines()
    head = [line for line in head if not line.startswith("#")]
    lines = ["Metadata-Version: 2.4", f"Name: {plan['distribution']}", f"Version: {plan['version']}", *head]
    lines += [f"License-File: {name}" for name in sorted(Path(file).name for file in plan["licenses"])]
    lines.append("Description-Content-Type: text/markdown")
    return ("\n".join(lines) + "\n\n" + Path(plan["description"]).read_text()).encode()


def build_info(plan: dict[str, Any]) -> bytes:
    """What the wheel was made of: the commit, and the pins, line by line (comments and continuation marks left out)."""
    pins = {}
    for file in map(Path, plan["build_info"]):
        lines = [line.strip() for line in file.read_text().replace("\\\n", " ").splitlines()]
        pins[file.name] = [" ".join(line.split()) for line in lines if line and not line.startswith("#")]
    document = {"commit": plan["commit"], "pins": pins, "version": plan["version"]}
    return (json.dumps(document, indent=1, sort_keys=True) + "\n").encode()


def content(plan: dict[str, Any]) -> dict[str, bytes]:
    """All entries but RECORD, by their path in the wheel."""
    if not re.fullmatch(r"[A-Za-z0-9_]+", plan["distribution"]) or not re.fullmatch(
        r"[0-9][A-Za-z0-9.+]*", plan["version"]
    ):
        raise WheelError(f"{plan['distribution']} {plan['version']} is no name and version that a file name can carry")
    info = f"{plan['distribution']}-{plan['version']}.dist-info"
    entries = {name: Path(file).read_bytes() for name, file in plan["files"].items()}
    entries[f"{info}/METADATA"] = metadata(plan)
    entries[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: foundry\nRoot-Is-Purelib: false\nTag: {plan['tag']}\n".encode()
    )
    entries[f"{info}/entry_points.txt"] = Path(plan["entry_points"]).read_bytes()
    entries[f"{info}/foundry-build.json"] = build_info(plan)
    for file in plan["licenses"]:
        entries[f"{info}/licenses/{Path(file).name}"] = Path(file).read_bytes()
    for name in entries:
        if name.startswith("/") or ".." in name.split("/") or "\\" in name:
            raise WheelError(f"{name} is no path of a wheel")
    return entries


def write_wheel(plan: dict[str, Any], out: Path) -> None:
    """Writes the wheel of a plan.

    Raises WheelError for an unusable plan and OSError if a file cannot be read or written.
    """
    entries = content(plan)
    record = f"{plan['distribution']}-{plan['version']}.dist-info/RECORD"
    lines = [f"{name},{record_hash(data)},{len(data)}" for name, data in sorted(entries.items())]
    lines.append(f"{record},,")
    names = sorted(entries) + [record]  # RECORD comes last, as the format recommends
    entries[record] = ("\n".join(lines) + "\n").encode()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
        for name in names:
            data = entries[name]
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.create_system = 3
            entry.external_attr = (0o100755 if data[:4] == b"\x7fELF" or data[:2] == b"#!" else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)


def main(plan: str, out: str) -> None:
    try:
        write_wheel(json.loads(Path(plan).read_text()), Path(out))
    except (WheelError, OSError) as error:
        sys.exit(f"build_wheel: {error}")


if __name__ == "__main__":
    main(*sys.argv[1:])
