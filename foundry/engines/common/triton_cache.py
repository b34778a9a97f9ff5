"""Triton's cache on disk: which of its folders a process used, and putting such folders into the cache of another.

A folder is named by Triton's own key, over source, options, target and the versions of Triton and ptxas: base32 of the
SHA-256 that the kernel's metadata states. It holds a kernel, or a host module (the launcher of a signature, Triton's own
driver module). What does not fit is simply never looked up. Written for Triton 3.4 to 3.6.
"""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from foundry.engines.common import folders
from foundry.engines.common.kernel_file import Folder, StoredCache
from foundry.errors import corrupt, unsupported

NAME, TITLE = "triton", "Triton"

_KEY = re.compile(r"[A-Z2-7]{52}\Z")
# A kernel's list of its files, with absolute paths: made anew where it is put.
_GROUP = "__grp__"
_METADATA, _MODULE = ".json", ".so"


class Used:
    """SAVE: listens to what Triton compiles or finds in its cache, from now on."""

    def __init__(self) -> None:
        self._folders: dict[Path, None] = {}
        self._knobs = _knobs()
        self._before: Callable[..., Any] | None = None
        if self._knobs is not None:
            self._before = self._knobs.compilation.listener
            self._knobs.compilation.listener = self._listen

    def _listen(self, **about: Any) -> None:
        for path in about.get("metadata_group", {}).values():
            self._folders[Path(path).parent] = None
        if self._before is not None:
            self._before(**about)

    def stop(self) -> None:
        """No longer. Where somebody has put a listener before this one, this one only hands on."""
        if self._knobs is not None and self._knobs.compilation.listener == self._listen:
            self._knobs.compilation.listener = self._before

    def stored(self) -> StoredCache | None:
        """Kernels, and host modules that are loaded; None without Triton."""
        if self._knobs is None:
            return None
        used = list(self._folders)  # other threads may compile meanwhile
        # Mappings have no symbolic links in their paths.
        roots = {root.resolve() for root in (*{folder.parent for folder in used}, Path(self._knobs.cache.dir))}
        modules = [path.parent for path in folders.loaded_modules() if path.parent.parent in roots]
        found = [folder for folder in dict.fromkeys([*used, *modules]) if _KEY.match(folder.name)]
        by_name = {folder.name: folder for folder in found}
        packed = (folders.read(by_name[name], _belongs) for name in sorted(by_name))
        return StoredCache(_version(), tuple(folder for folder in packed if _kernel(folder) or _is_module(folder)))


def provide(stored: StoredCache) -> folders.Provided:
    """LOAD: puts folders that Triton's cache lacks into it; those that are there are never changed.

    Raises FoundryError(kind="unsupported") with the reason where there is no such cache.
    """
    knobs = _knobs()
    if knobs is None:
        raise unsupported("Triton is not used here, or older than 3.4")
    if stored.version != _version():
        raise unsupported(f"they are of Triton {stored.version}, here it is {_version()}")
    if knobs.cache.manager_class is not None:
        raise unsupported("TRITON_CACHE_MANAGER names a cache of another kind")
    cache = Path(knobs.cache.dir)
    return folders.provide(cache, stored.folders, lambda folder: _files(cache / folder.name, folder))


def _files(place: Path, folder: Folder) -> Mapping[str, bytes]:
    """All files of the folder, as Triton would have written them. Raises FoundryError(kind="corrupt")."""
    if not _KEY.match(folder.name):
        raise corrupt("it is not named by a key of Triton's")
    contents = folder.contents()
    if any(name.startswith(_GROUP) for name in contents):
        raise corrupt("it has a list of files")
    if _is_module(folder):
        return contents
    metadata = _kernel(folder)
    if metadata is None:
        raise corrupt("it is neither a kernel nor a module")
    if _key(contents[metadata]) != folder.name:
        raise corrupt("it is named by another key than its kernel has")
    group = {"child_paths": {name: str(place / name) for name in contents}}
    return {**contents, f"{_GROUP}{metadata}": json.dumps(group).encode()}


def _belongs(name: str) -> bool:
    return not name.startswith((_GROUP, "tmp.")) and name != "lock"


def _kernel(folder: Folder) -> str | None:
    """The name of the metadata, if the folder holds a kernel and nothing else."""
    names = [file.name for file in folder.files]
    found = [name for name in names if name.endswith(_METADATA)]
    if len(found) != 1 or any(name.endswith(_MODULE) for name in names):
        return None
    stem = found[0].removesuffix(_METADATA)
    return found[0] if f"{stem}.cubin" in names and all(name.startswith(f"{stem}.") for name in names) else None


def _is_module(folder: Folder) -> bool:
    return len(folder.files) > 0 and all(file.name.endswith(_MODULE) for file in folder.files)


def _key(metadata: bytes) -> str:
    try:
        digest = bytes.fromhex(json.loads(metadata)["hash"])
    except (ValueError, KeyError, TypeError, RecursionError) as problem:
        raise corrupt(f"its metadata cannot be read ({problem})") from None
    return base64.b32encode(digest).decode().rstrip("=")


def _knobs() -> Any:
    """Triton's settings; None where it is not imported, or has none."""
    return getattr(sys.modules.get("triton"), "knobs", None)


def _version() -> str:
    return str(getattr(sys.modules.get("triton"), "__version__", ""))
