"""The source archive has the tree and always the same bytes; pip gets one clear sentence where Bazel cannot run."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tools import build_backend, version

FILES = {
    ".git_archival.txt": "commit: c0ffee\ndescribe: v1.2.3\n",
    "tools/wheel_metadata.txt": "# note\nSummary: A test\nRequires-Python: >=3.10\n",
    "tools/bazelw": "#!/bin/sh\necho bazelw: there is no Bazel >&2\nexit 1\n",
    ".bazelversion": "7.7.1\n",
    "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "tools.build_backend"\nbackend-path = ["."]\n',
}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "root"
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "tools/bazelw").chmod(0o755)
    for module in (build_backend, version):
        shutil.copyfile(str(module.__file__), root / "tools" / Path(str(module.__file__)).name)
    monkeypatch.setattr(build_backend, "ROOT", root)
    return root


def archive(names: list[str]) -> bytes:
    out = io.BytesIO()
    build_backend.write_sdist(out, names)
    return out.getvalue()


def test_archive_has_the_files(root: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(archive(sorted(FILES)))) as tar:
        assert set(tar.getnames()) == {"foundry-1.2.3/" + name for name in (*FILES, "PKG-INFO")}
        modes = {entry.name: entry.mode for entry in tar}
        assert modes["foundry-1.2.3/tools/bazelw"] == 0o755 and modes["foundry-1.2.3/.bazelversion"] == 0o644
        info = tar.extractfile("foundry-1.2.3/PKG-INFO")
        assert info and info.read().startswith(
            b"Metadata-Version: 2.4\nName: foundry\nVersion: 1.2.3\nSummary: A test\n"
        )


def test_same_bytes_whoever_makes_it(root: Path) -> None:
    first = archive(sorted(FILES))
    for name in FILES:
        os.utime(root / name, (1, 1))
    (root / ".bazelversion").chmod(0o600)
    assert archive(sorted(FILES)) == first


def git(root: Path, *arguments: str) -> str:
    who = ("-c", "user.name=Test", "-c", "user.email=test@localhost")
    done = subprocess.run(["git", *who, "-C", str(root), *arguments], text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_archive_of_an_archive_is_the_same(root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An unpacked source archive has no git, and knows its commit and version all the same."""
    (root / ".git_archival.txt").write_text("commit: $Format:%H$\ndescribe: $Format:%(describe)$\n")
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "first")
    git(root, "tag", "v2.0.0rc1")
    first = archive(build_backend.source_files())
    with tarfile.open(fileobj=io.BytesIO(first)) as tar:
        tar.extractall(tmp_path / "unpacked", filter="data")
    again = tmp_path / "unpacked/foundry-2.0.0rc1"
    assert version.read(again) == version.Source("2.0.0rc1", git(root, "rev-parse", "HEAD"), "v2.0.0rc1")
    monkeypatch.setattr(build_backend, "ROOT", again)
    assert archive(build_backend.source_files()) == first


def test_files_without_git(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", "/nonexistent")
    (root / "bazel-out").mkdir()
    (root / "bazel-out/x").write_text("x")
    (root / "PKG-INFO").write_text("x")
    assert set(build_backend.source_files()) == {*FILES, "tools/build_backend.py", "tools/version.py"}


def test_pip_install_without_bazel_ends_in_a_sentence(root: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--no-index", "--target", "out"]
    done = subprocess.run([*pip, str(root)], cwd=root, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode != 0
    assert "Install Bazel 7.7.1 (or bazelisk), or install a ready wheel of Foundry instead." in done.stdout
    assert "Traceback" not in done.stdout
