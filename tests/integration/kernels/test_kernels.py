"""Compiled kernels in an archive, with the real core on the simulated driver: saved, put, inspected, damaged."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from foundry.recipes import simulated

PROGRAM = str(Path(__file__).parent / "program.py")
ATTACHED = "rank_0/attached.kernels.json"


def start(mode: str, archive: Path, cache: Path) -> dict[str, Any]:
    results = cache.parent / f"{cache.name}.json"
    launcher = [sys.executable, "-m", "foundry", "run", "--save", "--"] if mode == "save" else []
    done = subprocess.run(
        [*launcher, sys.executable, PROGRAM, mode, str(archive), str(cache), str(results)],
        capture_output=True, text=True, timeout=300, check=False, env=simulated.environment(os.environ, "h100"),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(results.read_text())
    return found


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "foundry", *arguments],
        capture_output=True, text=True, timeout=300, check=False, env=simulated.environment(os.environ, "h100"),
    )  # fmt: skip


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("saved")
    return folder / "a.fdry", start("save", folder / "a.fdry", folder / "cache")


def test_a_load_with_an_empty_cache_compiles_nothing(saved: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    archive, save = saved
    assert (save["outcome"], save["compiled"]) == ("saved", ["splits"])
    assert save["kernel_caches"]["triton"]["stored"] == 1
    for again in range(2):
        load = start("load", archive, tmp_path / "cache")
        assert load["outcome"] == "restored" and load["compiled"] == [] and load["warnings"] == []
        assert load["kernel_caches"]["triton"][("put", "there")[again]] == 1
        assert (load["kernel"], load["outputs"]) == (save["kernel"], save["outputs"])


def test_inspect_shows_them(saved: tuple[Path, dict[str, Any]]) -> None:
    archive, _ = saved
    shown = command("inspect", str(archive))
    assert shown.returncode == 0, shown.stderr
    (line,) = [line.split() for line in shown.stdout.splitlines() if line.startswith("triton")]
    assert line[:4] == ["triton", "3.6.0", "splits", "1"]
    document = json.loads(command("inspect", str(archive), "--json").stdout)
    (files,) = document["kernel_caches"]["triton"]["folders"].values()
    assert files == ["splits.cubin", "splits.json"]
    assert ATTACHED in [file["name"] for file in document["files"]]


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "names"),
    [
        (flip, "its hash is wrong"),
        (lambda path: path.write_bytes(path.read_bytes()[:-9]), "foundry.json lists"),
        (Path.unlink, "attached.kernels.json"),
        (lambda path: path.write_bytes(b"\xff" * path.stat().st_size), "UTF-8"),
    ],
    ids=["flipped", "truncated", "missing", "bytes"],
)
def test_a_wrong_file_costs_the_kernels_alone(
    damage: Callable[[Path], object], names: str, saved: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    archive = tmp_path / "a.fdry"
    shutil.copytree(saved[0], archive)
    damage(archive / ATTACHED)
    load = start("load", archive, tmp_path / "cache")
    assert load["outcome"] == "restored" and load["outputs"] == saved[1]["outputs"]
    assert load["compiled"] == ["splits"] and load["compiled_at_start"] == []
    (warning,) = load["warnings"]
    assert names in warning and "not used" in warning
    assert command("inspect", str(archive)).returncode != 0


def test_an_archive_that_everybody_can_write_fills_no_cache(saved: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    archive = tmp_path / "a.fdry"
    shutil.copytree(saved[0], archive)
    archive.chmod(archive.stat().st_mode | stat.S_IWOTH)
    load = start("load", archive, tmp_path / "cache")
    assert load["outcome"] == "restored" and load["compiled"] == ["splits"]
    assert any("compiled kernels of the archive are not used" in line for line in load["warnings"])
