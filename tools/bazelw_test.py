"""tools/bazelw with stand-ins for what it starts."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

INSTALL = '#!/bin/sh\nmkdir -p "$1"\necho tried >>"$1/../tries"\n'
WORKS = (
    INSTALL
    + """printf '#!/bin/sh\\necho "$@"\\n' >"$1/bazel"; chmod +x "$1/bazel"; echo "common:offline --x=$1" >"$1/offline.bazelrc"\n"""
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A workspace with bazelw, and an installer that a test writes."""
    tree = tmp_path / "tree"
    (tree / "tools").mkdir(parents=True)
    shutil.copyfile(os.environ["BAZELW"], tree / "tools/bazelw")
    (tree / "tools/bazelw").chmod(0o755)
    (tree / ".bazelversion").write_text("7.7.1\n")
    for name in ("bazel_packages.txt", "bazel_tools.txt"):
        (tree / "tools" / name).write_text("")
    return tree


def run(tree: Path, install: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (tree / "tools/install_bazel.sh").write_text(install)
    (tree / "tools/install_bazel.sh").chmod(0o755)
    env = {"PATH": "/usr/bin:/bin", "FOUNDRY_CACHE": str(tree.parent / "cache"), "FOUNDRY_OFFLINE": "1"}
    return subprocess.run([tree / "tools/bazelw", *arguments], env=env, text=True, capture_output=True, cwd=tree)


def test_arguments_pass_unchanged(tree: Path) -> None:
    done = run(tree, WORKS, "test", "//...", "--test_arg=a b")
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip().endswith("test //... --test_arg=a b")
    (settings,) = (tree.parent / "cache/rc").iterdir()
    assert "common --config=offline" in settings.read_text()


def test_installed_once(tree: Path) -> None:
    for _ in range(2):
        assert run(tree, WORKS, "version").returncode == 0
    assert (tree.parent / "cache/tries").read_text() == "tried\n"


def test_failed_installation_ends_it_and_is_tried_again(tree: Path) -> None:
    for tries in (1, 2):
        done = run(tree, INSTALL + "echo no mirror >&2; exit 1\n", "version")
        assert done.returncode != 0 and done.stderr == "no mirror\n"
        assert (tree.parent / "cache/tries").read_text() == "tried\n" * tries
