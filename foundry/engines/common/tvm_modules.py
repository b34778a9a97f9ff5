"""Modules that tvm-ffi compiles with nvcc, kernels and host code in one shared object: from SAVE's cache to LOAD's.

tvm-ffi names a folder by a hash of sources and flags, writes build.ninja into it and has ninja decide, which builds
whatever it has not built itself. So a module is put, and ninja left out, at the moment when tvm-ffi would call it, if ninja
has never built there, and build.ninja and the sources that it names are what they were on SAVE, but for where the cache
lies. Headers that sources include are not compared. Written for tvm-ffi 0.1.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from foundry.engines.common import folders
from foundry.engines.common.kernel_file import Folder, StoredCache, pack, plain
from foundry.errors import unsupported

NAME, TITLE = "tvm_ffi", "tvm-ffi"

_PACKAGE = "apache-tvm-ffi"
_RECIPE = "build.ninja"
_BUILT = ".ninja_log"  # ninja knows what it has built here, and whether it is out of date
_STEPS = re.compile(rb"^build ([^:|\n]+)[^:\n]*: \S+ ([^|\n]+)", re.MULTILINE)
_HERE = b"$here"  # what a stored recipe has in place of its folder's path; "$h" is none of ninja's escapes


class Used:
    """SAVE: nothing has to be watched, modules that were loaded are mapped."""

    def stop(self) -> None:
        """Nothing to do."""

    def stored(self) -> StoredCache | None:
        """Modules that this process has loaded from the cache; None without tvm-ffi."""
        version = _version()
        if not version:
            return None
        cache = _cache().resolve()  # mappings have no symbolic links in their paths
        found = []
        for module in folders.loaded_modules():
            if module.parent.parent != cache or not plain(module.name):
                continue
            with suppress(OSError):  # somebody cleans the cache
                files = pack(_RECIPE, _recipe(module.parent)), pack(module.name, module.read_bytes())
                found.append(Folder(module.parent.name, files))
        return StoredCache(version, tuple(folder for folder in found if plain(folder.name)))


def provide(stored: StoredCache) -> folders.Provided:
    """LOAD: from now on tvm-ffi is given these modules instead of compiling them.

    Raises FoundryError(kind="unsupported") with the reason where it cannot be.
    """
    version = _version()
    if stored.version != version:
        raise unsupported(f"they are of tvm-ffi {stored.version}, here {f'it is {version}' if version else 'is none'}")
    try:
        extension: Any = importlib.import_module("tvm_ffi.cpp.extension")
        original = extension.build_ninja
    except (ImportError, AttributeError) as problem:
        raise unsupported(f"tvm-ffi {version} is not one that Foundry knows ({problem})") from None
    provided = folders.Provided(ready=len(stored.folders), where=str(_cache()))
    by_name = {folder.name: folder for folder in stored.folders}

    @functools.wraps(original)
    def build_ninja(build_dir: str, *args: Any, **kwargs: Any) -> Any:
        folder = by_name.get(Path(build_dir).name)
        if folder is None or not _given(Path(build_dir), folder, provided):
            return original(build_dir, *args, **kwargs)
        return None

    extension.build_ninja = build_ninja
    return provided


def _given(place: Path, folder: Folder, provided: folders.Provided) -> bool:
    """Whether the module is there, from SAVE; tvm-ffi has locked the folder."""
    from foundry import _core

    try:
        contents = folder.contents()
        recipe = contents.pop(_RECIPE)
        ((name, module),) = contents.items()
        if recipe != _recipe(place) or (place / _BUILT).exists():
            return False
        if (place / name).exists():
            known = (place / name).read_bytes() == module
            provided.there += known
            return known
        folders.put_file(place / name, module)
    except (_core.FoundryError, OSError, KeyError, ValueError) as problem:
        provided.refused.append(f"{folder.name} is compiled anew: {problem}")
        return False
    provided.put += 1
    return True


def _recipe(place: Path) -> bytes:
    """build.ninja, which names its sources by absolute paths, and a hash of what they hold. Raises OSError."""
    text = (place / _RECIPE).read_bytes()
    steps = _STEPS.findall(text)
    made = {name for outputs, _ in steps for name in outputs.split()}
    content = hashlib.sha256()
    for source in dict.fromkeys(name for _, inputs in steps for name in inputs.split() if name not in made):
        content.update((place / os.fsdecode(source)).read_bytes())
    return text.replace(bytes(place.resolve()), _HERE) + b"\n# sources " + content.hexdigest().encode() + b"\n"


def _cache() -> Path:
    """As tvm-ffi has it."""
    return Path(os.environ.get("TVM_FFI_CACHE_DIR", "~/.cache/tvm-ffi")).expanduser()


def _version() -> str:
    """Of the package, if it is imported or can be, and of the C library that its modules were linked with."""
    if importlib.util.find_spec("tvm_ffi") is None:
        return ""
    try:
        return f"{importlib.metadata.version(_PACKAGE)} ({os.confstr('CS_GNU_LIBC_VERSION')})"
    except importlib.metadata.PackageNotFoundError:
        return ""
