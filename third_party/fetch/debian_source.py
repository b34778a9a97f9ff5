"""Fetches the upstream archive of a Debian source package and checks its hash.

usage: debian_source.py PACKAGE FILE SHA256 FOLDER

The file comes from FOUNDRY_VENDOR/debian if that is set, else through apt-get with a private
configuration that takes the mirror from the host's apt sources (or FOUNDRY_DEBIAN_MIRROR); nothing
on the host changes. Every suite of the mirror that carries the file will do: the hash decides.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

SUITES = ("stable", "oldstable", "unstable")
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


class FetchError(Exception):
    """What could not be fetched, and what to do."""


def mirror() -> str:
    """The Debian mirror of this host.

    Source of the fact: FOUNDRY_DEBIAN_MIRROR, else the first `.../debian` of /etc/apt.
    """
    named = os.environ.get("FOUNDRY_DEBIAN_MIRROR")
    if named:
        return named.rstrip("/")
    sources = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    for source in sources:
        if not source.is_file():
            continue
        for line in source.read_text(errors="replace").splitlines():
            found = re.search(r"(?:https?|file|mirror\+\S+?)://?\S+/debian/?(?=\s|$)", line)
            if found and not line.lstrip().startswith("#"):
                return found.group(0).rstrip("/")
    raise FetchError(
        "No Debian mirror: /etc/apt names none. Set FOUNDRY_DEBIAN_MIRROR to one, or "
        "FOUNDRY_VENDOR to a folder filled by tools/vendor."
    )


def private_apt(work: Path, kind: str, suites: Sequence[str]) -> Path:
    """Writes an apt configuration that only lives in `work` and returns its path; kind is deb or deb-src."""
    for folder in ("lists/partial", "cache/archives/partial", "log"):
        (work / folder).mkdir(parents=True)
    (work / "status").touch()
    signed = f"signed-by={KEYRING}" if KEYRING.exists() else ""
    where = mirror()
    (work / "sources.list").write_text("".join(f"{kind} [{signed}] {where} {suite} main\n" for suite in suites))
    settings = {
        "Dir::Etc::SourceList": work / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::Etc::Preferences": "/dev/null",
        "Dir::Etc::PreferencesParts": "/dev/null",
        "Dir::State": work,
        "Dir::State::Lists": work / "lists",
        "Dir::State::status": work / "status",
        "Dir::Cache": work / "cache",
        "Dir::Log": work / "log",
        "APT::Sandbox::User": "root",
    }
    config = work / "apt.conf"
    config.write_text("".join(f'{key} "{value}";\n' for key, value in settings.items()))
    return config


def run(*command: str | Path, cwd: Path, check: bool = True) -> str:
    done = subprocess.run(command, cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if check and done.returncode:
        raise FetchError(f"{' '.join(map(str, command))} failed with status {done.returncode}:\n{done.stdout}")
    return done.stdout


def from_mirror(package: str, file: str, folder: Path) -> None:
    if not shutil.which("apt-get"):
        raise FetchError(
            f"{file} comes from a Debian mirror and apt-get was not found. Use a machine with apt, "
            "set FOUNDRY_VENDOR to a folder filled by tools/vendor, or build with the module registry."
        )
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        config = private_apt(work, "deb-src", SUITES)
        run("apt-get", "-qq", "-c", config, "update", cwd=work)
        records = run("apt-cache", "-c", config, "showsrc", package, cwd=work)
        found = []
        for record in re.split(r"\n(?=Package: )", records):
            version = re.search(r"^Version: (\S+)", record, re.M)
            if version:
                found.append(version.group(1))
                if f" {file}\n" in record + "\n":
                    # Fetches more than this file; whether the rest arrives does not matter.
                    log = run(
                        "apt-get",
                        "-qq",
                        "-c",
                        config,
                        "--download-only",
                        "source",
                        f"{package}={version.group(1)}",
                        cwd=work,
                        check=False,
                    )
                    if (work / file).exists():
                        shutil.copyfile(work / file, folder / file)
                        return
                    raise FetchError(f"apt-get could not fetch {file}:\n{log}")
        raise FetchError(
            f"The Debian mirror has no {file}: it carries {package} {', '.join(found) or 'not at all'}. Set "
            "FOUNDRY_VENDOR to a folder that has it, or update third_party/fetch/pins/debian.txt."
        )


def main(package: str, file: str, sha256: str, target: str) -> None:
    folder = Path(target)
    vendor = os.environ.get("FOUNDRY_VENDOR")
    if vendor:
        source = Path(vendor) / "debian" / file
        if not source.is_file():
            raise FetchError(f"{source} is missing: fill the folder with tools/vendor, or unset FOUNDRY_VENDOR.")
        shutil.copyfile(source, folder / file)
    else:
        from_mirror(package, file, folder)
    have = hashlib.sha256((folder / file).read_bytes()).hexdigest()
    if have != sha256:
        (folder / file).unlink()
        raise FetchError(f"{file} has SHA-256 {have}, but {sha256} is pinned: it was not used.")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except FetchError as error:
        sys.exit(str(error))
