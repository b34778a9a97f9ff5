"""Unpacks Debian packages and all that they depend on into a folder, as a small root file system.

usage: debian_packages.py FOLDER SUITE[,SUITE...] PACKAGE...

The first suite that the mirror carries and that offers the packages is taken, and its name printed. apt checks the
archive's signatures; nothing is installed on the host, no script of a package is run, and FOLDER/packages.txt lists
name, version and SHA-256 of what was unpacked. The mirror is found as in debian_source.py.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from debian_source import FetchError, private_apt, run


def download(work: Path, suite: str, packages: Sequence[str]) -> list[Path]:
    """The files of the packages and of their dependencies.

    Raises FetchError if the mirror lacks the suite or a package.
    """
    config = private_apt(work, "deb", [suite])
    apt = ("apt-get", "-qq", "-c", config, "-o", "APT::Install-Recommends=false")
    run(*apt, "update", cwd=work)
    listed = run(*apt, "--print-uris", "install", *packages, cwd=work)
    names = [line.split(" ")[1].split("_")[0] for line in listed.splitlines() if line.startswith("'")]
    run(*apt, "download", *names, cwd=work)
    return sorted(work.glob("*.deb"))


def unpack(folder: Path, files: Sequence[Path]) -> None:
    """Unpacks packages over each other; /bin, /lib, /lib64 and /sbin are links into /usr, as in Debian."""
    for name in ("bin", "lib", "lib64", "sbin"):
        (folder / "usr" / name).mkdir(parents=True, exist_ok=True)
        if not (folder / name).exists():
            (folder / name).symlink_to(f"usr/{name}")
    lines = []
    for file in files:
        # Through tar, which keeps the links above; dpkg-deb -x would put folders in their place.
        run(
            "sh",
            "-c",
            'dpkg-deb --fsys-tarfile "$1" | tar x --keep-directory-symlink -C "$2"',
            "sh",
            file,
            folder,
            cwd=folder,
        )
        head = run("dpkg-deb", "-W", "--showformat=${Package} ${Version}", file, cwd=folder)
        lines.append(f"{head} {hashlib.sha256(file.read_bytes()).hexdigest()}\n")
    (folder / "packages.txt").write_text("".join(lines))


def main(target: str, suites: str, *packages: str) -> None:
    for tool in ("apt-get", "dpkg-deb"):
        if not shutil.which(tool):
            raise FetchError(f"{tool} was not found: Debian packages cannot be unpacked here.")
    if os.environ.get("FOUNDRY_VENDOR"):
        raise FetchError("FOUNDRY_VENDOR is set, and its folder holds no packages but Bazel's.")
    folder = Path(target).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    problems = []
    for suite in suites.split(","):
        with tempfile.TemporaryDirectory() as name:
            try:
                files = download(Path(name), suite, packages)
            except FetchError as error:
                problems.append(f"{suite}: {error}")
                continue
            unpack(folder, files)
            print(suite)
            return
    raise FetchError(f"The Debian mirror does not offer {', '.join(packages)}:\n" + "\n".join(problems))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except FetchError as error:
        sys.exit(str(error))
