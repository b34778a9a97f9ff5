"""Folders of caches on disk: read for an archive, put into a cache in one step."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from foundry import _core
from foundry.engines.common.kernel_file import MAX_FILE_BYTES, Folder, pack, plain

_MAPS = "/proc/self/maps"


@dataclass
class Provided:
    """What came of an archive's folders on LOAD. `put`: written into the cache; `there`: it had them; `ready`: will be
    put when they are asked for; `refused`: sentences."""

    put: int = 0
    there: int = 0
    ready: int = 0
    where: str = ""
    refused: list[str] = field(default_factory=list)


def loaded_modules() -> list[Path]:
    """Shared objects that this process has mapped."""
    with open(_MAPS, encoding="utf-8", errors="surrogateescape") as file:
        paths = {line.rstrip("\n").split(maxsplit=5)[5] for line in file if ".so" in line}
    return sorted(Path(path) for path in paths if path.startswith("/") and path.endswith(".so"))


def read(folder: Path, wanted: Callable[[str], bool]) -> Folder:
    """Its plain files with names that are wanted; what cannot be read, or is too large, is not there."""
    found = []
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:  # somebody cleans the cache
        return Folder(folder.name, ())
    for entry in entries:
        if not plain(entry.name) or not wanted(entry.name):
            continue
        with suppress(OSError):
            if entry.is_file(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_size <= MAX_FILE_BYTES:
                found.append(pack(entry.name, Path(entry).read_bytes()))
    return Folder(folder.name, tuple(found))


def provide(cache: Path, stored: Iterable[Folder], files: Callable[[Folder], Mapping[str, bytes]]) -> Provided:
    """Puts folders that a cache lacks into it. `files`: everything that a folder has to hold, checked.

    A folder that is refused, or cannot be written, is named in `refused`.
    """
    provided = Provided(where=str(cache))
    for folder in stored:
        place = cache / folder.name
        if _holds_something(place):
            provided.there += 1
            continue
        try:
            if put(place, files(folder)):
                provided.put += 1
            else:
                provided.there += 1
        except (_core.FoundryError, OSError) as problem:
            provided.refused.append(f"{folder.name} is not put into {cache}: {problem}")
    return provided


def put(place: Path, files: Mapping[str, bytes]) -> bool:
    """A folder that is there with all of its files, or not at all; False if another one was there, which stays.

    Raises OSError.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    temporary = place.parent / f"tmp.foundry_{os.getpid()}_{uuid.uuid4()}"
    temporary.mkdir()
    try:
        for name, content in files.items():
            with open(temporary / name, "xb") as file:
                file.write(content)
        try:
            os.rename(temporary, place)  # over an empty folder at most: caches make those before they look
        except OSError:
            if _holds_something(place):
                return False
            raise
        return True
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def put_file(place: Path, content: bytes) -> None:
    """A file that is there with all of its content, or not at all. Raises OSError."""
    temporary = place.parent / f"tmp.foundry_{os.getpid()}_{uuid.uuid4()}"
    try:
        with open(temporary, "xb") as file:
            file.write(content)
        os.rename(temporary, place)
    finally:
        temporary.unlink(missing_ok=True)


def _holds_something(place: Path) -> bool:
    """Whether there is anything but an empty folder."""
    try:
        return any(True for _ in os.scandir(place))
    except OSError:  # nothing; or a file, a link to nowhere, a folder of somebody else's
        return os.path.lexists(place)
