"""Outputs of restored graphs and exports: tensors over materialized memory, sharing storages as they did on SAVE."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from foundry import outputs

if TYPE_CHECKING:
    from foundry._core import Tensor
    from foundry.runtime import Runtime


class RestoredOutputs:
    """Makes tensors of an archive, each once; `owner` lives as long as any of them."""

    def __init__(
        self, tensors: Sequence[Tensor], runtime: Runtime, owner: object, anchor_tensor: Callable[[str], Any]
    ) -> None:
        self._tensors = tensors
        self._runtime = runtime
        self._owner = owner
        self._anchor_tensor = anchor_tensor
        self._made: dict[int, Any] = {}
        self._by_storage: dict[int, Any] = {}

    def make(self, tree: str, where: str) -> Any:
        """The outputs that `tree` describes. Raises FoundryError(kind="corrupt") naming `where`."""
        return outputs.loads(tree, self.tensor, where)

    def tensor(self, index: int) -> Any:
        """The tensor of that record."""
        if index not in self._made:
            self._made[index] = self._new(self._tensors[index])
        return self._made[index]

    def _new(self, recorded: Tensor) -> Any:
        if recorded.anchor is not None:
            return self._runtime.alias(recorded, self._anchor_tensor(self._tensors[recorded.anchor].name))
        base = self._by_storage.get(recorded.storage)
        if base is not None:
            return self._runtime.alias(recorded, base)
        made = self._runtime.adopt(recorded, self._owner)
        if recorded.nbytes:
            self._by_storage[recorded.storage] = made
        return made
