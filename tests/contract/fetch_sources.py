#!/usr/bin/env python3
"""Fetches the sources of pinned engine releases: a few MB of every wheel, by HTTP ranges, where pip's index has it.

usage: fetch_sources.py [--pin] [FOLDER]

FOLDER (the cache by default) gets one zip per release, and `unavailable.txt` with a sentence for each that could not
be had. The cache is engine-sources in $FOUNDRY_CACHE, $XDG_CACHE_HOME/foundry or ~/.cache/foundry: what is there is
not fetched again. With FOUNDRY_VENDOR they come from engine-sources there (`tools/vendor --engines`) and nothing is
fetched. --pin prints the digests for pins.py instead.
"""

from __future__ import annotations

import argparse
import base64
import csv
import functools
import hashlib
import io
import os
import re
import shutil
import ssl
import subprocess
import sys
import urllib.request
import zipfile
import zlib
from pathlib import Path

from pins import ENGINES, Engine, Release

# Gaps between wanted files that are fetched along with them, and how much of a wheel's end holds its directory.
_GAP, _TAIL = 1 << 18, 1 << 20
_SECONDS = 60


class Unavailable(Exception):
    """Why a release cannot be read, a sentence."""


def cache() -> Path:
    """Where fetched sources stay, or those of FOUNDRY_VENDOR are."""
    vendor = os.environ.get("FOUNDRY_VENDOR")
    if vendor:
        return Path(vendor, "engine-sources")
    home = os.environ.get("FOUNDRY_CACHE")
    base = os.environ.get("XDG_CACHE_HOME")
    return Path(home or (Path(base) if base else Path.home() / ".cache") / "foundry", "engine-sources")


def link(engine: Engine, release: Release) -> str:
    """The URL of a release's wheel."""
    if os.environ.get("FOUNDRY_VENDOR"):
        raise Unavailable(
            f"FOUNDRY_VENDOR is set, so nothing is fetched, and {cache()} does not have it whole: tools/vendor --engines "
            "puts it there"
        )
    found = links(engine.package).get(engine.wheel(release))
    if found is None:
        raise Unavailable(f"pip's index has no {engine.wheel(release)}, or cannot be reached")
    return found


@functools.cache
def links(package: str) -> dict[str, str]:
    """URLs by file name of every wheel of a package, as pip finds them with its configuration."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "index", "versions", "-vv", package]
    try:
        done = subprocess.run(pip, text=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        return {}
    found = re.findall(rf"((?:https?|file)://[^\s#]+/({re.escape(package)}-[^\s/#]+\.whl))", done.stdout + done.stderr)
    return {name: url for url, name in found}


class Ranges(io.RawIOBase):
    """A file at a URL, of which parts are fetched."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._context = ssl.create_default_context(cafile=os.environ.get("PIP_CERT"))
        self._parts: list[tuple[int, bytes]] = []
        self._position = 0
        self._size = 0
        self._fetch(f"bytes=-{_TAIL}")

    def _fetch(self, wanted: str) -> None:
        request = urllib.request.Request(self._url, headers={"Range": wanted, "Accept-Encoding": "identity"})
        with urllib.request.urlopen(request, timeout=_SECONDS, context=self._context) as answer:
            place = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+)", answer.headers.get("Content-Range", ""))
            if answer.status != 206 or place is None:
                raise Unavailable("the server does not answer for parts of a file")
            first, last, self._size = (int(number) for number in place.groups())
            data = answer.read(last - first + 1)
        if len(data) != last - first + 1:
            raise Unavailable("the connection broke")
        self._parts.append((first, data))

    def prefetch(self, spans: list[tuple[int, int]]) -> None:
        """Fetches [first, end) of each, near ones together."""
        runs: list[list[int]] = []
        for first, end in sorted(spans):
            if runs and first - runs[-1][1] < _GAP:
                runs[-1][1] = max(end, runs[-1][1])
            else:
                runs.append([first, end])
        for first, end in runs:
            self._fetch(f"bytes={first}-{min(end, self._size) - 1}")

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self._position = offset + (0, self._position, self._size)[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, size: int = -1) -> bytes:
        end = self._size if size < 0 else min(self._position + size, self._size)
        if end <= self._position:
            return b""
        for first, data in self._parts:
            if first <= self._position and end <= first + len(data):
                found = data[self._position - first : end - first]
                self._position = end
                return found
        self._fetch(f"bytes={self._position}-{end - 1}")
        return self.read(end - self._position)


def files(url: str, engine: Engine, release: Release, pin: bool) -> dict[str, bytes]:
    """The engine's folders of a wheel, and its RECORD, by which every file is checked."""
    source = Ranges(url)
    record_name = engine.record(release)
    # zipfile checks CRCs.
    with zipfile.ZipFile(source) as wheel:
        record = wheel.read(record_name)
        digest = hashlib.sha256(record).hexdigest()
        if pin:
            print(f'        Release("{release.version}", "{digest}"),')
            return {}
        if digest != release.record:
            raise Unavailable(f"its RECORD has the SHA-256 {digest}, not the pinned one")
        hashes = listed(record)
        wanted = [i for i in wheel.infolist() if engine.wants(i.filename)]
        # A local header repeats the name; its extra field is short.
        source.prefetch([(i.header_offset, i.header_offset + i.compress_size + len(i.filename) + 1024) for i in wanted])
        found = {record_name: record}
        for info in wanted:
            found[info.filename] = wheel.read(info)
            if hashes.get(info.filename) != text_of(found[info.filename]):
                raise Unavailable(f"{info.filename} is not what its RECORD says")
    return found


def listed(record: bytes) -> dict[str, str]:
    """The hashes of a RECORD by file name."""
    return {row[0]: row[1] for row in csv.reader(io.StringIO(record.decode()))}


def text_of(data: bytes) -> str:
    """The hash of a file as a RECORD writes it."""
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")


def whole(path: Path, engine: Engine, release: Release) -> bool:
    """Whether a kept archive is there and has what its name promises, by the pinned digest."""
    if not path.exists():
        return False
    name = engine.record(release)
    try:
        with zipfile.ZipFile(path) as archive:
            record = archive.read(name)
            if hashlib.sha256(record).hexdigest() != release.record:
                return False
            wanted = {name: text for name, text in listed(record).items() if engine.wants(name)}
            return wanted == {other: text_of(archive.read(other)) for other in archive.namelist() if other != name}
    except (zipfile.BadZipFile, zlib.error, KeyError):
        return False


def write(path: Path, content: dict[str, bytes]) -> None:
    """A zip, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in sorted(content.items()):
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    partial.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pin", action="store_true")
    parser.add_argument("folder", type=Path, nargs="?")
    arguments = parser.parse_args()
    kept, problems = cache(), []
    for engine in ENGINES.values():
        for release in engine.releases:
            path = kept / engine.archive(release)
            try:
                if arguments.pin or not whole(path, engine, release):
                    content = files(link(engine, release), engine, release, arguments.pin)
                    if content:
                        write(path, content)
                if arguments.folder and path.exists():
                    arguments.folder.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(path, arguments.folder / path.name)
            except (Unavailable, OSError, zipfile.BadZipFile, KeyError) as problem:
                problems.append(f"{engine.package} {release.version}: {problem}")
    if not arguments.pin:
        (arguments.folder or kept).mkdir(parents=True, exist_ok=True)
        (arguments.folder or kept).joinpath("unavailable.txt").write_text("".join(f"{line}\n" for line in problems))
    print("\n".join(problems), file=sys.stderr, end="\n" if problems else "")


if __name__ == "__main__":
    main()
