"""Anchor tensors: registered by name, and on LOAD compared with where SAVE had them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from foundry.errors import invalid
from foundry.text import size

if TYPE_CHECKING:
    from foundry._core import Tensor


@dataclass(frozen=True)
class Anchor:
    """A tensor as registered. Constant content may be copied elsewhere, mutable content may not."""

    name: str
    tensor: Any
    mutable: bool


class Anchors:
    """The registered tensors of a session, in order."""

    def __init__(self) -> None:
        self._by_name: dict[str, Anchor] = {}

    def add(self, name: str, tensor: Any, mutable: bool) -> None:
        """Registers. Raises FoundryError if another tensor has that name."""
        known = self._by_name.get(name)
        if known is not None and known.tensor is not tensor:
            raise invalid(f"two tensors are registered as {name!r}: every anchor tensor needs a name of its own")
        self._by_name[name] = Anchor(name, tensor, mutable)

    def __iter__(self) -> Iterator[Anchor]:
        return iter(self._by_name.values())

    def __getitem__(self, name: str) -> Anchor:
        return self._by_name[name]

    def __len__(self) -> int:
        return len(self._by_name)


@dataclass(frozen=True)
class Move:
    """A storage that landed elsewhere: all anchors in it go to `recorded`. Sizes in bytes."""

    landed: int
    recorded: int
    nbytes: int
    names: tuple[str, ...]


@dataclass
class Comparison:
    """Anchors of the archive against those of this process."""

    in_place: list[str] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    extra: list[str] = field(default_factory=list)


def compare(recorded: Sequence[Tensor], live: Mapping[str, Tensor], mutable: set[str]) -> Comparison:
    """Compares by name. `mutable` are the names that are mutable here; those that SAVE called so count too."""
    result = Comparison()
    names = {tensor.name for tensor in recorded}
    result.extra = [name for name in live if name not in names]
    moved: dict[str, Tensor] = {}
    for was in recorded:
        here = live.get(was.name)
        if here is None:
            result.differences.append(
                f"tensor {was.name!r} was registered on SAVE at {was.address:#x} ({size(was.nbytes)}), not here"
            )
            continue
        shape = _shape_difference(was, here)
        if shape:
            result.differences.append(f"tensor {was.name!r} {shape} (archive {was.address:#x}, here {here.address:#x})")
        elif was.nbytes == 0:
            result.in_place.append(was.name)
        elif was.address == here.address:
            if _holds(here, was):
                result.in_place.append(was.name)
            else:
                result.differences.append(
                    f"tensor {was.name!r} is in place, but its memory is {size(here.storage_bytes)} at "
                    f"{here.storage_address:#x} here and {size(was.storage_bytes)} at {was.storage_address:#x} in the "
                    "archive: graphs may use all of it"
                )
        elif was.mutable or was.name in mutable:
            result.differences.append(
                f"tensor {was.name!r} is mutable and the graphs expect it at {was.address:#x}; here it is at "
                f"{here.address:#x}: allocate it in the same phase and order as on SAVE"
            )
        else:
            moved[was.name] = was
    _plan_moves(moved, live, result)
    return result


def _holds(here: Tensor, was: Tensor) -> bool:
    """Whether the storage here covers the recorded one: graphs may use more of it than the registered view."""
    return (
        here.storage_address <= was.storage_address
        and here.storage_address + here.storage_bytes >= was.storage_address + was.storage_bytes
    )


def _shape_difference(was: Tensor, here: Tensor) -> str:
    if was.dtype != here.dtype:
        return f"is {here.dtype} here, {was.dtype} in the archive"
    if list(was.sizes) != list(here.sizes):
        return f"has shape {list(here.sizes)} here, {list(was.sizes)} in the archive"
    if was.nbytes != here.nbytes:
        return f"has {here.nbytes} bytes here, {was.nbytes} in the archive"
    if was.nbytes and list(was.strides) != list(here.strides):
        return f"has strides {list(here.strides)} here, {list(was.strides)} in the archive"
    return ""


def _plan_moves(moved: Mapping[str, Tensor], live: Mapping[str, Tensor], result: Comparison) -> None:
    """Groups moved tensors by the storage they share here. A storage moves as a whole or not at all."""
    sharing: dict[int, list[str]] = {}
    for name, tensor in live.items():
        sharing.setdefault(tensor.storage_address, []).append(name)
    in_place, extra = set(result.in_place), set(result.extra)
    targets: dict[int, int] = {}
    for landed, names in sharing.items():
        movers = [name for name in names if name in moved]
        if not movers:
            continue
        first = moved[movers[0]]
        nbytes = live[movers[0]].storage_bytes
        problem = ""
        for name in movers:
            was, here = moved[name], live[name]
            if was.address - was.storage_address != here.address - landed or was.storage_bytes != nbytes:
                problem = f"tensor {name!r} is part of another storage than on SAVE"
            elif was.storage_address != first.storage_address:
                problem = f"tensors {movers[0]!r} and {name!r} share memory here but not in the archive"
        held = [name for name in names if name in in_place and live[name].nbytes]
        stray = [name for name in names if name not in movers and name not in in_place and name not in extra]
        if held or stray:
            problem = f"tensors {movers[0]!r} and {(held + stray)[0]!r} share memory here but not in the archive"
        if first.storage_address in targets:
            other = sharing[targets[first.storage_address]][0]
            problem = f"tensors {movers[0]!r} and {other!r} share memory in the archive but not here"
        targets[first.storage_address] = landed
        if problem:
            result.differences.append(
                f"{problem} (archive {first.address:#x}, here {live[movers[0]].address:#x}), so it cannot be re-seated"
            )
        else:
            result.moves.append(Move(landed, first.storage_address, nbytes, tuple(names)))
    places = sorted(result.moves, key=lambda move: move.recorded)
    for i in range(1, len(places)):
        lower, upper = places[i - 1], places[i]
        if lower.recorded + lower.nbytes > upper.recorded:
            result.differences.append(
                f"the recorded places of tensors {lower.names[0]!r} ({lower.recorded:#x}) and {upper.names[0]!r} "
                f"({upper.recorded:#x}) overlap, so they cannot be re-seated"
            )
