"""A tensor framework in miniature over the fake core: segments, blocks, views, captures, modules."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import fake_core as core

from foundry.runtime import GeneratorUse

SEGMENT = 1024
BLOCK = 64


class Storage:
    """Memory that tensors share; freed with its last tensor."""

    def __init__(self, framework: Framework, address: int, nbytes: int, owned: bool, owner: object = None) -> None:
        self.framework, self.address, self.nbytes, self.owned, self.owner = framework, address, nbytes, owned, owner

    def __del__(self) -> None:
        if self.owned:
            self.framework.free(self.address)


class FakeTensor:
    """One-dimensional bytes."""

    def __init__(self, storage: Storage, offset: int, length: int) -> None:
        self.storage, self.offset, self.length = storage, offset, length
        storage.framework.tensors.add(self)

    @property
    def address(self) -> int:
        return self.storage.address + self.offset

    @property
    def shape(self) -> tuple[int]:
        return (self.length,)

    def __getitem__(self, part: slice) -> FakeTensor:
        start, stop, _ = part.indices(self.length)
        return FakeTensor(self.storage, self.offset + start, stop - start)

    @property
    def data(self) -> bytes:
        return core.read_memory(self.address, self.length)

    @data.setter
    def data(self, value: bytes) -> None:
        assert len(value) == self.length
        core.write_memory(self.address, value)


class FakeEvent:
    """handle 0: not created yet."""

    def __init__(self, handle: int = 0) -> None:
        self.handle = handle


class Module:
    """Named tensors."""

    def __init__(self, **tensors: FakeTensor) -> None:
        self.tensors = tensors


class Framework:
    """Allocator and operations of one process; also the Runtime."""

    name = "fake"

    def __init__(self) -> None:
        # pool (None: plain memory) -> segment address -> {block address: (bytes, active)}
        self.pools: dict[int | None, dict[int, dict[int, tuple[int, bool]]]] = {None: {}}
        self.tensors: weakref.WeakSet[FakeTensor] = weakref.WeakSet()
        self.hidden_users = 0  # of every storage
        self.sizes: dict[int, int] = {}
        self.zone: int | None = None
        self.settings = "none"
        self.recording: list[Any] | None = None
        self.seed, self.offset = 0, 0
        self.in_graph = 0
        self.words: list[FakeTensor] = []
        self.kept: list[Storage] = []
        self.log: list[str] = []
        self.on_host: list[FakeTensor] = []
        self.next_raw = 1

    # ---- allocator

    def alloc(self, length: int) -> FakeTensor:
        need = max(BLOCK, -(-length // BLOCK) * BLOCK)
        pool = self.pools.setdefault(self.zone, {})
        for blocks in pool.values():
            for address, (nbytes, active) in sorted(blocks.items()):
                if not active and nbytes >= need:
                    return self._take(blocks, address, need, length)
        size = max(SEGMENT, need)
        segment = core.process.plain_alloc(size) if self.zone is None else core.zone_alloc(self.zone, size)
        self.sizes[segment] = size
        pool[segment] = {segment: (size, False)}
        return self._take(pool[segment], segment, need, length)

    def _take(self, blocks: dict[int, tuple[int, bool]], address: int, need: int, length: int) -> FakeTensor:
        nbytes, _ = blocks[address]
        if nbytes > need:
            blocks[address + need] = (nbytes - need, False)
        blocks[address] = (need, True)
        return FakeTensor(Storage(self, address, length, True), 0, length)

    def free(self, address: int) -> None:
        for pool in self.pools.values():
            for blocks in pool.values():
                if address in blocks:
                    blocks[address] = (blocks[address][0], False)

    def tensor(self, data: bytes) -> FakeTensor:
        made = self.alloc(len(data))
        made.data = data
        return made

    # ---- operations

    def _run(self, node: tuple[str, int, list[int], int]) -> None:
        if self.recording is not None:
            self.recording.append(node)
        else:
            core.run([node])

    def add(self, a: FakeTensor, b: FakeTensor) -> FakeTensor:
        out = self.alloc(a.length)
        self._run(("add", out.address, [a.address, b.address], a.length))
        return out

    def copy_(self, target: FakeTensor, source: FakeTensor) -> FakeTensor:
        self._run(("copy", target.address, [source.address], target.length))
        return target

    def manual_seed(self, seed: int) -> None:
        self.seed, self.offset = seed, 0

    def random(self, length: int) -> FakeTensor:
        """Random bytes; in a capture from the words, as torch does it."""
        out = self.alloc(length)
        if self.recording is None:
            out.data = core.numbers(self.seed, self.offset, length)
            self.offset += 4
        else:
            self._run(("random", out.address, [word.address for word in self.words], length))
            self.in_graph += 4
        return out

    def record(self, event: FakeEvent) -> None:
        """As part of a captured program."""
        if not event.handle:
            event.handle = 100 + len(self.log)
            self.log.append(f"event {event.handle}")
        self._run(("record", event.handle, [], 0))

    # ---- the Runtime protocol

    def device(self) -> int:
        if self.settings == "expandable":
            raise core.fail("unsupported", "expandable segments keep memory out of zones")
        return 0

    def fingerprint(self) -> dict[str, str | int]:
        return {"framework_version": "1", "cuda_version": "13.0", "allocator_settings": self.settings}

    def begin_zone(self, slot: int) -> None:
        assert self.zone is None, "the outer zone was not ended"
        self.zone = slot
        self.log.append(f"begin {core.process.zones[slot].name}")

    def pause_zone(self, slot: int) -> None:
        assert self.zone == slot
        self.zone = None
        self.log.append(f"pause {core.process.zones[slot].name}")

    def resume_zone(self, slot: int) -> None:
        assert self.zone is None
        self.zone = slot
        self.log.append(f"resume {core.process.zones[slot].name}")

    def end_zone(self, slot: int) -> None:
        assert self.zone == slot
        self.zone = None
        self.log.append(f"end {core.process.zones[slot].name}")

    def describe(self, tensor: FakeTensor) -> core.Tensor:
        storage = tensor.storage
        return core.Tensor("", "uint8", 1, tensor.address, [tensor.length], [1], storage.address, storage.nbytes)

    def named_tensors(self, module: Module) -> Iterable[tuple[str, FakeTensor, bool]]:
        return [(name, tensor, True) for name, tensor in module.tensors.items()]

    def is_tensor(self, value: Any) -> bool:
        return isinstance(value, FakeTensor)

    def host_span(self, tensor: FakeTensor) -> tuple[int, int]:
        if tensor not in self.on_host:
            raise core.fail("invalid", "it is on the device")
        return tensor.address, tensor.length

    def adopt(self, tensor: core.Tensor, owner: object) -> FakeTensor:
        storage = Storage(self, tensor.storage_address, tensor.storage_bytes, False, owner)
        return FakeTensor(storage, tensor.address - tensor.storage_address, tensor.sizes[0])

    def alias(self, tensor: core.Tensor, base: FakeTensor) -> FakeTensor:
        return FakeTensor(base.storage, tensor.address - tensor.storage_address, tensor.sizes[0])

    def reseat(self, aliases: list[FakeTensor], old: int, new: int, nbytes: int, owner: object) -> None:
        storage = Storage(self, new, nbytes, False, owner)
        for tensor in aliases:
            assert tensor.storage.address == old
            self.kept.append(tensor.storage)
            tensor.storage = storage

    def aliases(self, storages: list[list[FakeTensor]]) -> list[tuple[list[FakeTensor], int]]:
        return [([t for t in self.tensors if t.storage is known[0].storage], self.hidden_users) for known in storages]

    def event_handle(self, event: FakeEvent) -> tuple[int, int]:
        return event.handle, 2

    def event_over(self, event: core.Event) -> FakeEvent:
        return FakeEvent(event.handle)

    def blocks(self) -> list[tuple[int, int, bool]]:
        return [
            (address, nbytes, active)
            for pool in self.pools.values()
            for blocks in pool.values()
            for address, (nbytes, active) in blocks.items()
        ]

    def capture(self, function: Callable[[], Any], warmup: int, graphs_slot: int | None) -> FakeGraph:
        for _ in range(warmup):
            function()
        return self.capture_into(graphs_slot, function)

    def graph_pool(self, graphs_slot: int | None) -> int | None:
        return graphs_slot

    @contextmanager
    def capturing(self, graphs_slot: int | None) -> Iterator[None]:
        self.log.append(f"capturing into {graphs_slot}")
        yield
        self.log.append("captured")

    def captured(self, graph: FakeGraph) -> FakeGraph:
        return graph

    def capture_into(self, pool: int | None, function: Callable[[], Any]) -> FakeGraph:
        """The framework's own means, which a program may use by itself."""
        assert self.zone is None, "a phase is active in a capture"
        if not self.words:
            self.words = [self.alloc(8), self.alloc(8)]
        self.zone, self.recording, self.in_graph = pool, [], 0
        try:
            result = function()
            program = self.recording
        finally:
            self.zone, self.recording = None, None
        return FakeGraph(self, program, result, self.in_graph)

    def draw(self, increment: int) -> tuple[int, int]:
        state = self.seed, self.offset
        self.offset += increment
        return state

    def set_generator(self, seed: int, offset: int) -> None:
        self.seed, self.offset = seed, offset

    def current_stream(self) -> int:
        return 0

    def synchronize(self) -> None:
        pass


class FakeGraph:
    """A captured program."""

    def __init__(self, framework: Framework, program: list[Any], outputs: Any, increment: int) -> None:
        self.outputs = outputs
        self.program = program
        self._framework = framework
        self._increment = increment
        self._raw = framework.next_raw
        framework.next_raw += 1
        self.instantiated = False

    def raw(self) -> int:
        assert not self.instantiated
        core.process.captured[self._raw] = self.program
        return self._raw

    def generator(self) -> GeneratorUse | None:
        if self._increment == 0:
            return None
        self._write(0xABCDEF, 0x123456)
        return GeneratorUse(self._increment, 0xABCDEF, 0x123456)

    def _write(self, *values: int) -> None:
        for word, value in zip(self._framework.words, values, strict=True):
            word.data = value.to_bytes(8, "little")

    def instantiate(self) -> None:
        self.instantiated = True

    def replay(self) -> None:
        assert self.instantiated
        if self._increment:
            self._write(*self._framework.draw(self._increment))
        core.run(self.program)
