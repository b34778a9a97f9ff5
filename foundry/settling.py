"""The end of a LOAD: tensors are compared with those of SAVE and put where its graphs expect them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from foundry import _core, reseat, vacating
from foundry.anchors import Anchors, Comparison, Move, compare
from foundry.errors import mismatch
from foundry.report import Reseated
from foundry.text import count

if TYPE_CHECKING:
    from foundry.report import Report
    from foundry.runtime import Runtime


class Settlement:
    """That of one LOAD. `tensors` are the archive's, `scratch` is the zone that gives memory for what has to wait.

    While `moving` is set, tensors may be half moved: what fails then leaves neither restored nor native graphs right.
    """

    def __init__(
        self,
        path: str,
        tensors: Sequence[_core.Tensor],
        loader: _core.Loader,
        scratch: int | None,
        anchors: Anchors,
        runtime: Runtime,
        report: Report,
    ) -> None:
        self._path = path
        self._tensors = tensors
        self._loader = loader
        self._scratch = scratch
        self._anchors = anchors
        self._runtime = runtime
        self._report = report
        self.moving = False

    def run(self) -> None:
        """Compares, and moves what landed elsewhere.

        Raises FoundryError(kind="mismatch") before anything is moved if a tensor cannot be where the graphs expect it.
        """
        self._runtime.synchronize()
        recorded = [tensor for tensor in self._tensors if tensor.constant or tensor.mutable]
        live = {anchor.name: self._runtime.describe(anchor.tensor) for anchor in self._anchors}
        mutable = {anchor.name for anchor in self._anchors if anchor.mutable}
        result = compare(recorded, live, mutable)
        if result.moves:
            result.differences += reseat.obstacles(result.moves, self._runtime.blocks())
        leaving = vacating.vacated(result.moves)
        aliases = self._vacate(leaving, live, result) if leaving and not result.differences else {}
        self._report.extra_anchors = result.extra
        self._report.anchors_in_place = len(result.in_place)
        if result.differences:
            self._report.differences = result.differences
            number = count(len(result.differences), "tensor")
            self._report.reason = f"{number} of {self._path} cannot be where the graphs expect them"
            raise mismatch(f"{self._report.reason}: {'; '.join(result.differences)}")
        # Everything that can be refused comes before the first byte is overwritten.
        for move in result.moves:
            self._loader.claim(move.recorded, move.nbytes)
        self._loader.pin()
        _core.seal(True)  # what the copies need meanwhile is plain memory, which really goes when it is freed
        self.moving = True
        self._reseat(result, live, aliases)
        self.moving = False

    def _vacate(
        self, leaving: Sequence[Move], live: dict[str, _core.Tensor], result: Comparison
    ) -> dict[int, list[Any]]:
        """All tensors of storages whose place will hold something else, by that place; what else means it is a difference."""
        found = self._runtime.aliases([[self._anchors[name].tensor for name in move.names] for move in leaving])
        for move, (_, hidden) in zip(leaving, found, strict=True):
            if hidden:
                result.differences.append(vacating.hidden_users(move, hidden))
        memory = vacating.tables(live, self._runtime.blocks())
        result.differences += vacating.stored_addresses(leaving, memory, _core.read_memory)
        return {move.landed: tensors for move, (tensors, _) in zip(leaving, found, strict=True)}

    def _reseat(self, result: Comparison, live: dict[str, _core.Tensor], found: dict[int, list[Any]]) -> None:
        reseat.copy_all(result.moves, reseat.DeviceMemory(self._scratch))
        for move in result.moves:
            aliases = found.get(move.landed) or [self._anchors[name].tensor for name in move.names]
            self._runtime.reseat(aliases, move.landed, move.recorded, move.nbytes, self._loader)
            shift = move.recorded - move.landed
            for name in move.names:
                tensor = live[name]
                self._report.reseated.append(Reseated(name, tensor.address, tensor.address + shift, tensor.nbytes))
