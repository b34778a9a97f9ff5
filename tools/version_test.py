"""Versions come from git's tags, and from what an archive wrote down."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from packaging.version import Version

from tools import version


@pytest.mark.parametrize(
    ("describe", "expected"),
    [
        ("", "0.1.0.dev0"),
        ("v0.2.0", "0.2.0"),
        ("v0.2.0-7-gabc1234", "0.2.1.dev0"),
        ("v1.10-1-gabc1234", "1.11.dev0"),
        ("v0.3.0rc2", "0.3.0rc2"),
        ("v0.3.0rc2-1-gabc1234", "0.3.0rc3.dev0"),
    ],
)
def test_version_of(describe: str, expected: str) -> None:
    assert version.version_of(describe) == expected
    assert str(Version(expected)) == expected


def test_versions_grow_from_commit_to_commit() -> None:
    history = ["", "v0.1.0rc1", "v0.1.0rc1-2-gabc1234", "v0.1.0rc2", "v0.1.0", "v0.1.0-3-gabc1234", "v0.1.1"]
    versions = [Version(version.version_of(describe)) for describe in history]
    assert versions == sorted(set(versions))


@pytest.mark.parametrize("describe", ["v1", "v1.2.3.4x", "1.2.3", "v1.2.3-rc1", "v1.2.3-1-gxyz"])
def test_tags_that_name_no_version_are_refused(describe: str) -> None:
    with pytest.raises(version.VersionError, match="release tags look like"):
        version.version_of(describe)


needs_git = pytest.mark.skipif(not shutil.which("git"), reason="there is no git on this machine")


class Checkout:
    """A repository with one commit."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()
        (root / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.0 (2026-01-01)\n\n- All.\n")
        (root / ".git_archival.txt").write_bytes((Path(__file__).parents[1] / ".git_archival.txt").read_bytes())
        (root / ".gitattributes").write_text(".git_archival.txt export-subst\n")
        self.git("init", "-q")
        self.git("add", ".")
        self.commit("first")

    def git(self, *arguments: str) -> str:
        who = ("-c", "user.name=Test", "-c", "user.email=test@localhost")
        done = subprocess.run(["git", *who, "-C", str(self.root), *arguments], text=True, capture_output=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def commit(self, message: str) -> None:
        self.git("commit", "-q", "--allow-empty", "-m", message)


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path / "checkout")


@needs_git
def test_checkout(checkout: Checkout) -> None:
    assert version.read(checkout.root).version == "0.1.0.dev0"
    checkout.git("tag", "v1.2.0")
    checkout.git("tag", "unrelated")
    found = version.read(checkout.root)
    assert (found.version, found.commit) == ("1.2.0", checkout.git("rev-parse", "HEAD"))
    checkout.commit("second")
    assert version.read(checkout.root).version == "1.2.1.dev0"


@needs_git
def test_what_is_watched_changes_with_commits_and_tags(checkout: Checkout) -> None:
    def state() -> list[object]:
        paths = [Path(path) for path in version.read(checkout.root).watch]
        return [
            sorted(path.iterdir()) if path.is_dir() else path.read_bytes() if path.exists() else None for path in paths
        ]

    states = [state()]
    for change in (("commit", "-q", "--allow-empty", "-m", "x"), ("tag", "v2.0.0"), ("checkout", "-q", "-b", "other")):
        checkout.git(*change)
        states.append(state())
        assert states[-1] != states[-2], change


@needs_git
def test_a_copy_in_another_checkout_does_not_take_its_tags(checkout: Checkout) -> None:
    checkout.git("tag", "v1.2.0")
    (checkout.root / "inner").mkdir()
    assert version.read(checkout.root / "inner") == version.Source(version.UNKNOWN)


@needs_git
def test_git_archive_knows_its_version(checkout: Checkout, tmp_path: Path) -> None:
    checkout.git("tag", "v1.2.0")
    checkout.commit("second")
    checkout.git("archive", "--prefix=tree/", "-o", str(tmp_path / "tree.tar"), "HEAD")
    shutil.unpack_archive(tmp_path / "tree.tar", tmp_path)
    here, there = version.read(checkout.root), version.read(tmp_path / "tree")
    assert (there.version, there.commit) == (here.version, here.commit) == ("1.2.1.dev0", here.commit)


@needs_git
def test_release_only_of_what_a_tag_names(checkout: Checkout) -> None:
    with pytest.raises(version.VersionError, match="has no tag"):
        version.release(checkout.root)
    checkout.git("tag", "v1.2.0")
    assert version.release(checkout.root) == "1.2.0"
    (checkout.root / "new").write_text("x")
    with pytest.raises(version.VersionError, match="differ from the commit"):
        version.release(checkout.root)
    (checkout.root / "new").unlink()
    checkout.commit("second")
    checkout.git("tag", "v1.3.0")
    with pytest.raises(version.VersionError, match="no section `## 1.3.0`"):
        version.release(checkout.root)
