"""Kernels that SAVE compiled for what runs beside graphs (attention metadata before each replay, say) go with the archive,
so that LOAD, which captures nothing, does not compile them with the first request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from foundry import _core
from foundry.engines.common import folders, kernel_file, triton_cache, tvm_modules
from foundry.text import count, size, some

if TYPE_CHECKING:
    from foundry.api import Session
    from foundry.report import Report

# Every cache on disk that is carried: how SAVE finds what it used, how LOAD is given it.
CACHES = {cache.NAME: cache for cache in (triton_cache, tvm_modules)}


class KernelCaches:
    """Of one start. What came of it is in `report.kernel_caches`, what is wrong in `report.warnings`."""

    def __init__(self, report: Report, say: Callable[[str], None]) -> None:
        self._report = report
        self._say = say
        self._used: dict[str, triton_cache.Used | tvm_modules.Used] = {}

    def watch(self) -> None:
        """SAVE: from now on."""
        self._used = {name: cache.Used() for name, cache in CACHES.items()}

    def stop(self) -> None:
        """SAVE is over."""
        for used in self._used.values():
            used.stop()

    def text(self) -> str | None:
        """SAVE: the file for the archive; None if no cache was used."""
        stored: dict[str, kernel_file.StoredCache] = {}
        room = kernel_file.MAX_CONTENT
        for name, used in self._used.items():
            try:
                found = used.stored()
            except OSError as problem:
                self._warn(f"compiled kernels of {CACHES[name].TITLE} are not in the archive: {problem}")
                continue
            if found is None or not found.folders:
                continue
            taken, left_out, room = kernel_file.fitting(found.folders, room)
            if left_out:
                self._warn(f"too large for the archive, so LOAD compiles them ({CACHES[name].TITLE}): {some(left_out)}")
            stored[name] = kernel_file.StoredCache(found.version, tuple(taken))
            self._report.kernel_caches[name] = {"stored": len(taken), "bytes": stored[name].nbytes}
            self._say(f"compiled kernels of {CACHES[name].TITLE} in the archive: {describe(stored[name])}")
        return kernel_file.dumps(stored) if stored else None

    def provide(self, session: Session) -> None:
        """LOAD: what the archive has goes where programs look for it."""
        try:
            text = session.attached(kernel_file.NAME)
            caches = {} if text is None else kernel_file.loads(text, f"{kernel_file.NAME} of {self._report.archive}")
        except _core.FoundryError as problem:
            self._warn(f"compiled kernels of the archive are not used: {problem}")
            return
        if not caches:
            return
        doubts = _core.archive_warnings(self._report.archive)
        if doubts:  # a cache outlives the process, and others use it
            self._warn(f"compiled kernels of the archive are not used: {' '.join(doubts)}")
            return
        for name, stored in caches.items():
            if name not in CACHES:
                self._warn(f"compiled kernels in the archive are for {name!r}, which this Foundry does not know")
                continue
            try:
                provided = CACHES[name].provide(stored)
            except (_core.FoundryError, OSError) as problem:
                self._warn(f"compiled kernels of {CACHES[name].TITLE} in the archive are not used: {problem}")
                continue
            self._report.warnings += provided.refused
            self._report.kernel_caches[name] = vars(provided)  # which goes on changing
            self._say(f"compiled kernels of {CACHES[name].TITLE}: {_happened(provided)}")

    def _warn(self, sentence: str) -> None:
        self._report.warnings.append(sentence)


def _happened(provided: folders.Provided) -> str:
    said = [f"{provided.put} put into {provided.where}"] if provided.put or not provided.ready else []
    said += [f"{provided.there} were there"] if provided.there else []
    said += [f"{provided.ready} will be put into {provided.where} when they are asked for"] if provided.ready else []
    return ", ".join([*said, *([f"{len(provided.refused)} refused"] if provided.refused else [])])


def describe(stored: kernel_file.StoredCache) -> str:
    """For people."""
    return f"{count(len(stored.folders), 'folder')}, {size(stored.nbytes)} unpacked, of version {stored.version}"
