#!/usr/bin/env python3
"""The version of this source tree (PEP 440), which git's tags decide.

usage: version.py            prints the version
       version.py --json     prints what the build needs, see Source
       version.py --release  prints the version if this tree may be released, else says why not

A commit tagged `vX.Y.Z` (or `vX.Y.ZrcN`) is that version; what comes after it is the next one's `.dev0`.
Every commit between two tags has the same version on purpose: what is built changes with its sources
only. Wheels record the commit beside the version. A tree without git (git archive, source archives) knows both
from .git_archival.txt.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ARCHIVAL = ".git_archival.txt"
FIRST = "0.1.0"  # what the first tag will say
UNKNOWN = "0.0.0+unknown"
TAG = re.compile(r"v(?P<release>\d+(?:\.\d+)+)(?:(?P<kind>a|b|rc)(?P<number>\d+))?")
DESCRIBE = ("describe", "--tags", "--match=v[0-9]*")


class VersionError(Exception):
    """A tag or an archive that names no version, or a tree that may not be released."""


@dataclass
class Source:
    """Where a tree comes from."""

    version: str
    commit: str = ""  # 40 hexadecimal digits, empty where nobody knows
    describe: str = ""  # TAG or TAG-DISTANCE-gCOMMIT, empty before the first tag
    watch: list[str] = field(default_factory=list)  # files and folders whose change may change the rest


def version_of(describe: str) -> str:
    """The version for an answer of `git describe --tags`: a tag's own, or `.dev0` of what follows it."""
    if not describe:
        return FIRST + ".dev0"
    tag, _, distance = describe.partition("-")
    found = TAG.fullmatch(tag)
    if not found or not re.fullmatch(r"|\d+-g[0-9a-f]+", distance):
        raise VersionError(f"{describe!r} names no version: release tags look like v0.2.0 or v0.2.0rc1.")
    release, kind, number = found.group("release", "kind", "number")
    if not distance:
        return tag[1:]
    if kind:
        return f"{release}{kind}{int(number) + 1}.dev0"
    *head, last = release.split(".")
    return ".".join([*head, str(int(last) + 1)]) + ".dev0"


def git(*arguments: str, root: Path) -> str | None:
    """The answer of a git command about this tree, or None where it has none."""
    try:
        command = ["git", "-c", "safe.directory=*", "-C", str(root), *arguments]
        return subprocess.run(command, text=True, capture_output=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def from_archive(root: Path) -> Source | None:
    """What `git archive` or build_backend.py wrote down; None for a checkout, where git knows better."""
    path = root / ARCHIVAL
    if not path.is_file():
        return None
    entries = dict(line.split(": ", 1) for line in path.read_text().splitlines() if ": " in line)
    commit, describe = entries.get("commit", ""), entries.get("describe", "").strip()
    if commit.startswith("$Format"):
        return None
    return Source(version_of(describe), commit, describe)


def from_git(root: Path) -> Source | None:
    """What git says, if this tree is a checkout of its own (and no folder in somebody else's)."""
    top = git("rev-parse", "--show-toplevel", root=root)
    if top is None or Path(top).resolve() != root.resolve():
        return None
    commit = git("rev-parse", "HEAD", root=root) or ""
    describe = git(*DESCRIBE, root=root) or "" if commit else ""
    folders = [
        git("rev-parse", "--path-format=absolute", name, root=root) for name in ("--git-dir", "--git-common-dir")
    ]
    own, common = (Path(folder) for folder in folders if folder)
    branch = git("symbolic-ref", "-q", "HEAD", root=root)
    watch = [own / "HEAD", common / "packed-refs", common / "refs/tags", *([common / branch] if branch else [])]
    return Source(version_of(describe), commit, describe, [str(path) for path in watch])


def read(root: Path = ROOT) -> Source:
    """Version and commit of the tree at `root`.

    Raises VersionError for a tag that is none.
    """
    return from_archive(root) or from_git(root) or Source(UNKNOWN)


def archival(source: Source) -> str:
    """.git_archival.txt for an archive of this tree, as git archive would fill it in."""
    return f"commit: {source.commit}\ndescribe: {source.describe}\n"


def release(root: Path = ROOT) -> str:
    """The version, if the tree is exactly a tagged commit that CHANGELOG.md describes.

    Raises VersionError with the reason if not.
    """
    source = read(root)
    if not source.describe or "-" in source.describe:
        raise VersionError(
            f"No release: {source.commit or 'this tree'} has no tag vX.Y.Z (its version is {source.version})."
        )
    changed = git("status", "--porcelain", root=root)
    if changed:
        raise VersionError("No release: these files differ from the commit:\n" + changed)
    if not re.search(rf"^## {re.escape(source.version)}( |$)", (root / "CHANGELOG.md").read_text(), re.M):
        raise VersionError(f"No release: CHANGELOG.md has no section `## {source.version}`.")
    return source.version


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--release", action="store_true")
    arguments = parser.parse_args()
    try:
        if arguments.release:
            print(release())
        elif arguments.json:
            print(json.dumps(asdict(read())))
        else:
            print(read().version)
    except VersionError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
