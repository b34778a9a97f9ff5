"""The hash of the vendor folder for Nix belongs to the pins as they are."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import re
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def vendor() -> ModuleType:
    """tools/vendor, a program without an ending."""
    loader = importlib.machinery.SourceFileLoader("vendor", os.environ["VENDOR"])
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("vendor", loader))  # type: ignore[arg-type]
    loader.exec_module(module)
    return module


def files(variable: str) -> list[Path]:
    return [Path(name) for name in os.environ[variable].split()]


def test_vendor_hash_is_of_these_pins(vendor: ModuleType) -> None:
    assert [path.name for path in files("LISTS")] == [name.split("/")[-1] for name in vendor.LISTS]
    assert {"cuda.txt", "debian.txt", "zig.txt"} <= {path.name for path in files("PINS")}
    now = vendor.digest(files("PINS") + files("LISTS"))
    named = re.findall(r"^# Pins ([0-9a-f]{16})\b", Path(os.environ["VENDOR_HASH"]).read_text(), re.MULTILINE)
    assert named == [now], (
        f"pins have changed, so third_party/vendor_hash.nix is no longer of what tools/vendor fetches: docs/nix.md says "
        f"how to renew the hash; its first line has to name {now}"
    )


def test_any_change_is_noticed(vendor: ModuleType, tmp_path: Path) -> None:
    made = [tmp_path / name for name in ("a.txt", "b.txt")]
    for path in made:
        path.write_text("one\n")
    first = vendor.digest(made)
    assert re.fullmatch("[0-9a-f]{16}", first) and vendor.digest(reversed(made)) == first
    made[1].write_text("two\n")
    assert vendor.digest(made) != first
    assert vendor.digest(made[:1]) != first
    made[1].write_text("one\n")
    assert vendor.digest([made[0], made[1].rename(tmp_path / "c.txt")]) != first
