"""What Foundry needs to know of the framework that owns tensors and captures.

`foundry.torch` implements it for PyTorch; an engine with an allocator of its own implements it directly (see
`foundry.recipes.mini_engine`). The session never touches a tensor but through its runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    # Not imported at run time: with mode="off" nothing of the core is loaded.
    from foundry._core import Event, Tensor


class GeneratorUse(NamedTuple):
    """How one replay of a graph uses the framework's default random generator.

    `increment`: what it adds to the generator's offset. `seed` and `offset`: what the device words that the graph's
    kernels read hold right now; two values that differ and that nothing else is likely to hold.
    """

    increment: int
    seed: int
    offset: int


class NativeGraph(Protocol):
    """A graph captured in this process, owned by the framework."""

    outputs: Any

    def raw(self) -> int:
        """The CUgraph, valid until `instantiate`."""

    def generator(self) -> GeneratorUse | None:
        """None if a replay draws no random numbers. May replay the graph to find out. Asked on SAVE only, before `raw`."""

    def instantiate(self) -> None:
        """Makes it replayable; does nothing the second time."""

    def replay(self) -> None: ...


class Runtime(Protocol):
    """Framework services. Devices are CUDA ordinals of this process; streams are CUstream handles."""

    name: str

    def device(self) -> int:
        """The device that the session works on; a CUDA context is current afterwards.

        Raises FoundryError(kind="unsupported") where the framework's settings keep memory out of zones."""

    def fingerprint(self) -> dict[str, str | int]:
        """Fields of the framework for the fingerprint (its version, allocator settings that move memory)."""

    def begin_zone(self, slot: int) -> None:
        """From now on allocations of all threads come from the zone, until the matching end_zone."""

    def pause_zone(self, slot: int) -> None:
        """Allocations do not come from the current zone until resume_zone: a capture brings a pool of its own."""

    def resume_zone(self, slot: int) -> None:
        """The zone that was paused takes allocations again, unused segments of before included."""

    def end_zone(self, slot: int) -> None:
        """Ends the routing and gives unused segments of the zone back."""

    def describe(self, tensor: Any) -> Tensor:
        """Address, shape and storage of a framework tensor (name and flags left for the session)."""

    def named_tensors(self, module: Any) -> Iterable[tuple[str, Any, bool]]:
        """(qualified name, tensor, constant) of a module's parameters and buffers."""

    def is_tensor(self, value: Any) -> bool: ...

    def host_span(self, tensor: Any) -> tuple[int, int]:
        """Address and bytes of a tensor on the host that lies in one piece.

        Raises FoundryError(kind="invalid") for any other."""

    def adopt(self, tensor: Tensor, owner: object) -> Any:
        """A framework tensor over existing memory, its storage being the recorded one; keeps `owner` alive as long as
        anything uses that storage."""

    def alias(self, tensor: Tensor, base: Any) -> Any:
        """A tensor that shares the storage of `base`, at the recorded offset."""

    def reseat(self, aliases: list[Any], old_address: int, new_address: int, nbytes: int, owner: object) -> None:
        """Points every given tensor of one storage to the copy of that storage at new_address.

        The old memory must never be handed out again: another anchor may have been copied there.
        """

    def event_handle(self, event: Any) -> tuple[int, int]:
        """The CUevent of a framework's event, 0 if there is none yet, and the flags to create one like it."""

    def event_over(self, event: Event) -> Any:
        """A framework's event, or what takes its place, for an event of restored graphs."""

    def aliases(self, storages: list[list[Any]]) -> list[tuple[list[Any], int]]:
        """For the registered tensors of each storage: all tensors of it that `reseat` can move, these included, and how
        many users of its memory there are besides, which cannot be found."""

    def blocks(self) -> list[tuple[int, int, bool]]:
        """(address, bytes, active) of the framework allocator's blocks."""

    def capture(self, function: Callable[[], Any], warmup: int, graphs_slot: int | None) -> NativeGraph:
        """Warms up, then captures `function`; graph-private memory comes from the zone, or from the framework's own
        pool where graphs_slot is None (native fallback)."""

    def graph_pool(self, graphs_slot: int | None) -> Any:
        """The pool that `capture` uses, for a program that captures with the framework's own means."""

    def capturing(self, graphs_slot: int | None) -> AbstractContextManager[None]:
        """What `capture` does around its own capture, for one that the program makes itself with that pool."""

    def captured(self, graph: Any) -> NativeGraph:
        """For a graph that the program captured: `graph` is the framework's object, its CUgraph must still be there.

        The result need not know what the graph outputs."""

    def draw(self, increment: int) -> tuple[int, int]:
        """Seed and offset of the default generator now; then advances its offset by `increment`."""

    def set_generator(self, seed: int, offset: int) -> None:
        """Puts the default generator into a state that `draw` returned."""

    def current_stream(self) -> int: ...

    def synchronize(self) -> None: ...
