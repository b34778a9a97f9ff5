"""The file of an archive with compiled kernels: for each cache on disk the folders that SAVE's process used.

The first line is the SHA-256 of the rest, which is JSON: {"format": 1, "caches": {NAME: {"version": TEXT, "folders":
[{"name": TEXT, "files": [{"name": TEXT, "bytes": N, "content": base64 of zlib}]}]}}}.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from foundry import attachments
from foundry.errors import corrupt, mismatch

NAME = "kernels.json"
FORMAT = 1

# More than any engine has; a hand-made file cannot make a reader allocate without bound.
MAX_CACHES = 16
MAX_FOLDERS = 4096
MAX_FILES = 64
MAX_FILE_BYTES = 64 << 20
MAX_BYTES = 512 << 20
# SAVE leaves out what comes after that; the rest is for names and the hash.
MAX_CONTENT = attachments.MAX_BYTES - (2 << 20)

# Names of folders and files: never hidden, never a path.
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,249}\Z")


@dataclass(frozen=True)
class StoredFile:
    """A file, packed."""

    name: str
    nbytes: int
    packed: str

    def content(self) -> bytes:
        """Raises FoundryError(kind="corrupt") if it is not what it should be."""
        unpacker = zlib.decompressobj()
        try:
            found = unpacker.decompress(base64.b64decode(self.packed, validate=True), self.nbytes + 1)
        except (binascii.Error, ValueError, zlib.error) as problem:
            raise corrupt(f"the content of {self.name} cannot be unpacked ({problem})") from None
        if len(found) != self.nbytes or not unpacker.eof:
            raise corrupt(f"the content of {self.name} does not have the {self.nbytes} bytes that it should have")
        return found


@dataclass(frozen=True)
class Folder:
    """A folder of a cache: everything that belongs to one kernel."""

    name: str
    files: tuple[StoredFile, ...]

    def contents(self) -> dict[str, bytes]:
        """By name. Raises FoundryError(kind="corrupt")."""
        return {file.name: file.content() for file in self.files}


@dataclass(frozen=True)
class StoredCache:
    """What an archive has of one cache. `version`: of the program that filled it and must be the same on LOAD."""

    version: str
    folders: tuple[Folder, ...]

    @property
    def nbytes(self) -> int:
        """Unpacked."""
        return sum(file.nbytes for folder in self.folders for file in folder.files)


def plain(name: str) -> bool:
    """Whether a folder or a file may have that name."""
    return _PLAIN.match(name) is not None


def pack(name: str, content: bytes) -> StoredFile:
    """A file for the archive."""
    return StoredFile(name, len(content), base64.b64encode(zlib.compress(content)).decode())


def fitting(folders: Iterable[Folder], room: int) -> tuple[list[Folder], list[str], int]:
    """The folders that an archive takes, names of those that it does not, and the room left (characters)."""
    taken: list[Folder] = []
    left_out: list[str] = []
    for folder in folders:
        # With room for keys and punctuation around each name.
        length = len(folder.name) + 64 + sum(len(file.packed) + len(file.name) + 64 for file in folder.files)
        fits = length <= room and len(taken) < MAX_FOLDERS and len(folder.files) <= MAX_FILES
        if fits and all(file.nbytes <= MAX_FILE_BYTES for file in folder.files):
            taken.append(folder)
            room -= length
        else:
            left_out.append(folder.name)
    return taken, left_out, room


def dumps(caches: Mapping[str, StoredCache]) -> str:
    """The text of the file."""
    document = {
        "format": FORMAT,
        "caches": {
            name: {
                "version": cache.version,
                "folders": [
                    {
                        "name": folder.name,
                        "files": [
                            {"name": file.name, "bytes": file.nbytes, "content": file.packed} for file in folder.files
                        ],
                    }
                    for folder in cache.folders
                ],
            }
            for name, cache in caches.items()
        },
    }
    text = json.dumps(document)
    return f"{hashlib.sha256(text.encode()).hexdigest()}\n{text}\n"


def loads(text: str, where: str) -> dict[str, StoredCache]:
    """By name of the cache. Raises FoundryError: corrupt, or mismatch for another format; `where` names the file."""
    digest, _, rest = text.partition("\n")
    rest = rest.removesuffix("\n")
    if digest != hashlib.sha256(rest.encode()).hexdigest():
        raise corrupt(f"{where}: its hash is wrong; save the archive anew")
    try:
        document = json.loads(rest)
    except (ValueError, RecursionError) as problem:
        raise corrupt(f"{where} is not JSON ({problem}); save the archive anew") from None
    return _Reader(where).caches(document)


class _Reader:
    def __init__(self, where: str) -> None:
        self._where = where
        self._bytes = 0

    def caches(self, document: Any) -> dict[str, StoredCache]:
        version = self._get(document, "format", int)
        if version != FORMAT:
            raise mismatch(f"{self._where} has format {version}, this Foundry reads {FORMAT}; save the archive anew")
        caches = self._get(document, "caches", dict, MAX_CACHES)
        return {name: self._cache(cache) for name, cache in caches.items()}

    def _cache(self, entry: Any) -> StoredCache:
        folders = tuple(self._folder(folder) for folder in self._get(entry, "folders", list, MAX_FOLDERS))
        self._once([folder.name for folder in folders])
        return StoredCache(self._get(entry, "version", str, 1000), folders)

    def _folder(self, entry: Any) -> Folder:
        files = tuple(self._file(file) for file in self._get(entry, "files", list, MAX_FILES))
        self._once([file.name for file in files])
        return Folder(self._name(entry), files)

    def _file(self, entry: Any) -> StoredFile:
        nbytes = self._get(entry, "bytes", int)
        self._bytes += nbytes
        if not 0 <= nbytes <= MAX_FILE_BYTES or self._bytes > MAX_BYTES:
            raise self._corrupt(f"a file of {nbytes} bytes is too much")
        return StoredFile(self._name(entry), nbytes, self._get(entry, "content", str))

    def _name(self, entry: Any) -> str:
        name: str = self._get(entry, "name", str)
        if not plain(name):
            raise self._corrupt(f"{name[:100]!r} is no name for a file")
        return name

    def _once(self, names: list[str]) -> None:
        if len(set(names)) != len(names):
            raise self._corrupt("a name comes twice in one place")

    def _get(self, parent: Any, key: str, kind: type, limit: int | None = None) -> Any:
        value = parent.get(key) if isinstance(parent, dict) else None
        if not isinstance(value, kind) or isinstance(value, bool):
            raise self._corrupt(f"{key!r} is missing, or no {kind.__name__}")
        if limit is not None and len(value) > limit:  # type: ignore[arg-type]
            raise self._corrupt(f"{key!r} has more than {limit} entries")
        return value

    def _corrupt(self, what: str) -> Exception:
        return corrupt(f"{self._where}: {what}; save the archive anew")
