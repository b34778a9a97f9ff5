"""The wheel on an old userland: SAVE and LOAD in a root file system that tools/old_userland made, by chroot.

Skipped where FOUNDRY_OLD_USERLAND names none, and for another user than root.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.wheel import unpacked


@pytest.fixture(scope="module")
def root() -> Path:
    folder = os.environ.get("FOUNDRY_OLD_USERLAND")
    if not folder:
        pytest.skip("FOUNDRY_OLD_USERLAND names no root file system; tools/old_userland makes one")
    if os.geteuid() != 0:
        pytest.skip("only root may chroot")
    return Path(folder)


@pytest.fixture(scope="module")
def site(root: Path) -> Iterator[str]:
    """A folder with the wheel and what it requires, as a path inside the root file system."""
    with tempfile.TemporaryDirectory(dir=root / "tmp") as place:
        shutil.copytree(unpacked.folder(), place, dirs_exist_ok=True)
        for path in os.environ["PYTHONPATH"].split(os.pathsep):
            if path.endswith("/site"):
                shutil.copytree(path, place, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.so"))
        yield "/" + str(Path(place).relative_to(root))


def run(root: Path, site: str, *arguments: str) -> str:
    env = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "PYTHONPATH": site,
        "HOME": "/tmp",
        "LC_ALL": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    program = 'mount -t proc proc "$1/proc" && exec chroot "$@"'
    command = ["unshare", "-m", "sh", "-c", program, "sh", root, "/usr/bin/python3.11", *arguments]
    done = subprocess.run(command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_it_is_old(root: Path, site: str) -> None:
    libc, version = run(root, site, "-c", "import platform; print(*platform.libc_ver())").split()
    assert libc == "glibc" and tuple(map(int, version.split("."))) < (2, 34)


def test_quickstart(root: Path, site: str) -> None:
    out = run(root, site, "-m", "foundry.recipes.quickstart", "--simulated")
    assert "Every graph was restored and computes the same." in out


def test_a_missing_driver_is_named(root: Path, site: str) -> None:
    problem = run(root, site, "-c", "import foundry.cli.probe as probe; print(probe.ask().problem)")
    assert "libcuda.so.1" in problem
