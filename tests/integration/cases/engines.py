"""What captures may contain, and what may happen to them: each a class of the story's engine; they combine."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from foundry import archive_json
from foundry.recipes.mini_engine import graphs
from foundry.recipes.mini_engine.arrays import DeviceArray
from foundry.recipes.mini_engine.engine import MiniEngine, Replayable
from foundry.recipes.mini_engine.graphs import CapturedGraph
from foundry.recipes.mini_engine.kernels import Kernels
from foundry.recipes.mini_engine.model import StepOutputs
from tests.integration.story.engines import StoryEngine

Forward = Callable[[], StepOutputs]
HANDLE = ctypes.c_void_p


def driver(symbol: str, *arguments: Any) -> int:
    """Calls any function of the driver; returns its CUresult."""
    function: Callable[..., int] = getattr(ctypes.CDLL("libcuda.so.1"), symbol)
    return function(*arguments)


def must(symbol: str, *arguments: Any) -> None:
    """The same, for a call that has to succeed."""
    code = driver(symbol, *arguments)
    assert code == 0, f"{symbol}: {code}"


class Altered(StoryEngine):
    """The forward of some graphs is another."""

    ALTERED: tuple[str, ...] = ("decode/8",)

    def capture(self, name: str, batch: int, function: Forward) -> Replayable:
        if name in self.ALTERED:
            function = partial(self.altered, name, function)
        return super().capture(name, batch, function)

    def altered(self, name: str, function: Forward) -> StepOutputs:
        """The other forward; `function` is the usual one."""
        raise NotImplementedError

    @property
    def capturing(self) -> bool:
        """Whether the current stream captures."""
        return self.device.driver.is_capturing(self.device.stream)


class HostCopy(Altered):
    """A copy between the device and host memory in the middle of a captured forward."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.pageable = ctypes.create_string_buffer(4096)
        self.pinned = self.device.driver.host_alloc(4096)

    def altered(self, name: str, function: Forward) -> StepOutputs:
        outputs = function()
        scratch = self.device.empty((16,))
        self.copy(scratch)
        self.kernels.launch("add", (1, 1, 1), 128, scratch, scratch, 16)
        return outputs

    def copy(self, scratch: DeviceArray) -> None:
        """The copy itself."""
        raise NotImplementedError


class ReadsPinned(HostCopy):
    """From pinned memory."""

    def copy(self, scratch: DeviceArray) -> None:
        self.device.driver.upload_async(scratch.address, self.pinned, scratch.nbytes, self.device.stream)


class WritesPinned(HostCopy):
    """To pinned memory."""

    def copy(self, scratch: DeviceArray) -> None:
        self.device.driver.download_async(self.pinned, scratch.address, scratch.nbytes, self.device.stream)


class ReadsPageable(HostCopy):
    """From memory of the C heap."""

    def copy(self, scratch: DeviceArray) -> None:
        at = ctypes.addressof(self.pageable)
        self.device.driver.upload_async(scratch.address, at, scratch.nbytes, self.device.stream)


class KernelReadsPinned(Altered):
    """A kernel gets the address of pinned memory, which the device can read."""

    def altered(self, name: str, function: Forward) -> StepOutputs:
        outputs = function()
        if not hasattr(self, "pinned"):
            self.pinned = self.device.driver.host_alloc(4096)
            ctypes.memset(self.pinned, 0, 4096)
        self.kernels.launch(
            "add", (1, 1, 1), 128, outputs.logits, self.device.adopt(self.pinned, (8,), "float32", 32), 8
        )
        return outputs


class ThroughHostMemory(Altered):
    """Logits of decode/8 take a way through registered pinned memory, by copies and by a kernel that reads it."""

    NAME, NBYTES = "staging", 4096

    def before_capture(self) -> None:
        super().before_capture()
        self.host = self.allocate_host()
        self.notes["host"] = self.host
        self.register_host()

    def allocate_host(self) -> int:
        """Pinned memory, elsewhere in every process."""
        return self.device.driver.host_alloc(4096)

    def register_host(self) -> None:
        """As the program has it: an object with the buffer protocol."""
        self.session.register_host(self.NAME, (ctypes.c_char * self.NBYTES).from_address(self.host))

    def altered(self, name: str, function: Forward) -> StepOutputs:
        outputs = function()
        if not hasattr(self, "host"):
            return outputs  # a warm-up
        driver, stream, logits = self.device.driver, self.device.stream, outputs.logits.address
        driver.download_async(self.host + 512, logits, 32, stream)
        must("cuMemsetD8Async", ctypes.c_uint64(logits), 0, ctypes.c_size_t(32), HANDLE(stream))
        driver.upload_async(logits, self.host + 512, 32, stream)
        driver.download_async(self.host, logits, 32, stream)
        must("cuMemsetD8Async", ctypes.c_uint64(logits), 0, ctypes.c_size_t(32), HANDLE(stream))
        staged = self.device.adopt(self.host, (8,), "float32", 32)
        self.kernels.launch("add", (1, 1, 1), 128, outputs.logits, staged, 8)
        return outputs


class HostMemoryNotRegistered(ThroughHostMemory):
    """The program forgets it."""

    def register_host(self) -> None:
        """Nothing."""


class HostMemoryOfAnotherName(ThroughHostMemory):
    """It has another name here."""

    NAME = "other"


class HostMemoryTooSmall(ThroughHostMemory):
    """Less of it is registered."""

    NBYTES = 600


class HostMemoryPageable(ThroughHostMemory):
    """It is not pinned."""

    def register_host(self) -> None:
        self.pageable = ctypes.create_string_buffer(4096)
        self.session.register_host(self.NAME, self.pageable)


class HostMemoryTwice(ThroughHostMemory):
    """Two names for one memory."""

    def register_host(self) -> None:
        super().register_host()
        self.session.register_host("again", (ctypes.c_char * 8).from_address(self.host + 4088))


HOST_FUNCTION = ctypes.CFUNCTYPE(None, HANDLE)


class HostFunction(Altered):
    """A host function in the middle of a captured forward."""

    def altered(self, name: str, function: Forward) -> StepOutputs:
        self.call = HOST_FUNCTION(lambda data: None)
        outputs = function()
        must("cuLaunchHostFunc", HANDLE(self.device.stream), self.call, None)
        self.kernels.launch("add", (1, 1, 1), 128, self.device.empty((8,)), self.device.empty((8,)), 8)
        return outputs


class AsyncScratch(Altered):
    """Logits take a way through scratch that comes and goes by cuMemAllocAsync and cuMemFreeAsync in the capture."""

    def altered(self, name: str, function: Forward) -> StepOutputs:
        outputs = function()
        at, stream = self.allocate(name, 4096), HANDLE(self.device.stream)
        scratch = self.device.adopt(at.value, (8,), "float32", 32)
        logits, size = ctypes.c_uint64(outputs.logits.address), ctypes.c_size_t(32)
        must("cuMemcpyDtoDAsync_v2", at, logits, size, stream)
        must("cuMemsetD8Async", logits, 0, size, stream)
        self.kernels.launch("add", (1, 1, 1), 128, outputs.logits, scratch, 8)
        self.free(name, at)
        return outputs

    def allocate(self, name: str, nbytes: int) -> ctypes.c_uint64:
        """Scratch for one forward."""
        at = ctypes.c_uint64()
        must("cuMemAllocAsync", ctypes.byref(at), ctypes.c_size_t(nbytes), HANDLE(self.device.stream))
        return at

    def free(self, name: str, at: ctypes.c_uint64) -> None:
        """The forward is done with it."""
        must("cuMemFreeAsync", at, HANDLE(self.device.stream))


class AsyncScratchFreedElsewhere(AsyncScratch):
    """decode/8 allocates in its capture and does not free; decode/4 uses that memory and frees it in its own."""

    ALTERED = ("decode/8", "decode/4")
    shared: ctypes.c_uint64

    def allocate(self, name: str, nbytes: int) -> ctypes.c_uint64:
        if name == "decode/4" and self.capturing:
            return self.shared
        at = super().allocate(name, nbytes)
        if self.capturing:
            self.shared = at
        return at

    def free(self, name: str, at: ctypes.c_uint64) -> None:
        if name == "decode/4" or not self.capturing:
            super().free(name, at)


class AsyncScratchFreedOutside(AsyncScratch):
    """Allocated in the capture, freed by the program after it."""

    def free(self, name: str, at: ctypes.c_uint64) -> None:
        if self.capturing:
            self.kept = at
        else:
            super().free(name, at)

    def before_serving(self) -> None:
        """What a program does with memory that a graph left behind."""
        if hasattr(self, "kept"):
            super().free("decode/8", self.kept)


class Grafted(StoryEngine):
    """Something is done to captured graphs before they are read, or after."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        original, self._name = self.runtime.capture, ""

        def capture(function: Callable[[], Any], warmup: int, graphs_slot: int | None) -> CapturedGraph:
            graph = original(function, warmup, graphs_slot)
            self.graft(self._name, graph)
            return graph

        self.runtime.capture = capture  # type: ignore[method-assign]

    def capture(self, name: str, batch: int, function: Forward) -> Replayable:
        self._name = name
        return super().capture(name, batch, function)

    def graft(self, name: str, graph: CapturedGraph) -> None:
        """Called with every graph before anybody reads it."""
        raise NotImplementedError


def nodes(graph: int) -> list[int]:
    """The nodes of a CUgraph."""
    count = ctypes.c_size_t()
    must("cuGraphGetNodes", HANDLE(graph), None, ctypes.byref(count))
    found = (HANDLE * count.value)()
    must("cuGraphGetNodes", HANDLE(graph), found, ctypes.byref(count))
    return [node or 0 for node in found]


class KernelParams(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2."""

    _fields_ = [
        ("func", HANDLE),
        ("dims", ctypes.c_uint * 6),
        ("shared", ctypes.c_uint),
        ("params", ctypes.POINTER(HANDLE)),
        ("extra", HANDLE),
        ("kern", HANDLE),
        ("ctx", HANDLE),
    ]


class AllocParams(ctypes.Structure):
    """CUDA_MEM_ALLOC_NODE_PARAMS_v1: pinned memory of device 0."""

    _fields_ = [
        ("type", ctypes.c_int),
        ("handles", ctypes.c_int),
        ("location", ctypes.c_int * 2),
        ("rest", ctypes.c_char * 72),
        ("access", HANDLE),
        ("access_count", ctypes.c_size_t),
        ("bytes", ctypes.c_size_t),
        ("address", ctypes.c_uint64),
    ]


class GraphOwnedMemory(Grafted):
    """decode/8 allocates memory of its own; decode/4 frees it, after its first node, whoever reads it."""

    def graft(self, name: str, graph: CapturedGraph) -> None:
        raw, added = HANDLE(graph.raw()), HANDLE()
        if name == "decode/8":
            params = AllocParams(type=1, location=(1, 0), bytes=4096)
            must("cuGraphAddMemAllocNode", ctypes.byref(added), raw, None, ctypes.c_size_t(0), ctypes.byref(params))
            self.owned = params.address
        elif name == "decode/4":
            first = HANDLE(nodes(graph.raw())[0])
            must("cuGraphAddMemFreeNode", ctypes.byref(added), raw, ctypes.byref(first), ctypes.c_size_t(1),
                 ctypes.c_uint64(self.owned))  # fmt: skip

    def before_serving(self) -> None:
        """One cannot be replayed twice without the other."""
        for batch in (8, 4):
            self.graphs[batch] = self.capture(f"again/{batch}", batch, partial(self.forward, batch))


class ChangedAfterwards(Grafted):
    """Once a graph was read its owner changes the arguments of argmax: every token becomes 0."""

    def graft(self, name: str, graph: CapturedGraph) -> None:
        instantiate = graph.instantiate

        def change_and_instantiate() -> None:
            if graph._graph:
                for node in nodes(graph.raw()):
                    self._change(node)
            instantiate()

        graph.instantiate = change_and_instantiate  # type: ignore[method-assign]

    def _change(self, node: int) -> None:
        kind = ctypes.c_int()
        must("cuGraphNodeGetType", HANDLE(node), ctypes.byref(kind))
        params, name = KernelParams(), ctypes.c_char_p()
        if kind.value != 0:
            return
        must("cuGraphKernelNodeGetParams_v2", HANDLE(node), ctypes.byref(params))
        if params.kern:
            must("cuKernelGetName", ctypes.byref(name), HANDLE(params.kern))
        else:
            must("cuFuncGetName", ctypes.byref(name), HANDLE(params.func))
        if b"argmax" in (name.value or b""):
            width = ctypes.c_int(1)
            values = (HANDLE * 3)(params.params[0], params.params[1], ctypes.addressof(width))
            params.params = values
            must("cuGraphKernelNodeSetParams_v2", HANDLE(node), ctypes.byref(params))


class ModuleInCapture(Altered):
    """Code is loaded while the stream captures, as Triton does with a kernel's first use: a library and a module."""

    def altered(self, name: str, function: Forward) -> StepOutputs:
        outputs = function()
        kernels = self.kernels
        if self.capturing:
            kernels = self.late = Kernels(self.device, self.images)
            assert kernels._library == kernels._module == 0
        size = outputs.logits.size
        kernels.launch("add", (-(-size // 128), 1, 1), 128, outputs.logits, outputs.logits, size)
        kernels.launch("count_step", (1, 1, 1), 1, outputs.step)
        return outputs

    def __init__(self, images: Any, *arguments: Any, **options: Any) -> None:
        super().__init__(images, *arguments, **options)
        self.images = images


class PinnedMemoryInOwnCode(ModuleInCapture):
    """The same, and a kernel of that code gets the address of pinned memory."""

    def altered(self, name: str, function: Forward) -> StepOutputs:
        outputs = super().altered(name, function)
        if not hasattr(self, "pinned"):
            self.pinned = self.device.driver.host_alloc(4096)
            ctypes.memset(self.pinned, 0, 4096)
        kernels = self.late if self.capturing else self.kernels
        pinned = self.device.adopt(self.pinned, (8,), "float32", 32)
        kernels.launch("add", (1, 1, 1), 128, outputs.logits, pinned, 8)
        return outputs


class MemoryProperties(ctypes.Structure):
    """CUmemAllocationProp of cuda.h, pinned memory of device 0."""

    _fields_ = [
        ("type", ctypes.c_int),
        ("handles", ctypes.c_int),
        ("location", ctypes.c_int * 2),
        ("win32", HANDLE),
        ("flags", ctypes.c_uint64),
    ]


class GeneratorElsewhere(StoryEngine):
    """One graph reads seed and offset from memory that the engine maps itself, so no zone holds it."""

    def capture(self, name: str, batch: int, function: Forward) -> Replayable:
        if name != "decode/8":
            return super().capture(name, batch, function)
        handle, address, nbytes = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_size_t(2 << 20)
        properties = MemoryProperties(type=1, location=(1, 0))
        none, flags = ctypes.c_size_t(0), ctypes.c_uint64(0)
        must("cuMemCreate", ctypes.byref(handle), nbytes, ctypes.byref(properties), flags)
        must("cuMemAddressReserve", ctypes.byref(address), nbytes, none, flags, flags)
        must("cuMemMap", address, nbytes, none, handle, flags)
        must("cuMemSetAccess", address, nbytes, ctypes.byref((ctypes.c_int * 3)(1, 0, 3)), ctypes.c_size_t(1))
        generator = self.device.generator
        words = generator.seed_word, generator.offset_word
        generator.seed_word = self.device.adopt(address.value, (1,), "uint64", 8)
        generator.offset_word = self.device.adopt(address.value + 8, (1,), "uint64", 8)
        try:
            return super().capture(name, batch, function)
        finally:
            generator.seed_word, generator.offset_word = words


class SmallestFirst(StoryEngine):
    """Captures the smallest graph first: the pool's places grow, and the largest graph comes last."""

    def capture_all(self) -> None:
        for batch in sorted(self.config.batch_sizes):
            self.graphs[batch] = self.capture(f"decode/{batch}", batch, partial(self.forward, batch))


EXTERNAL = 1


class SharedEvent(Altered):
    """decode/8 records an event that decode/4 and decode/2 wait for, and that host code could wait for, too."""

    ALTERED = ("decode/8", "decode/4", "decode/2")

    def altered(self, name: str, function: Forward) -> StepOutputs:
        if not hasattr(self, "event"):
            self.event = self.device.driver.event()
        stream, event = HANDLE(self.device.stream), HANDLE(self.event)
        if self.capturing and name != "decode/8":
            must("cuStreamWaitEvent", stream, event, EXTERNAL)
        outputs = function()
        if self.capturing and name == "decode/8":
            must("cuEventRecordWithFlags", event, stream, EXTERNAL)
        return outputs


class NamedEvent(SharedEvent):
    """Host code waits for the event."""

    def altered(self, name: str, function: Forward) -> StepOutputs:
        if not hasattr(self, "event"):
            self.event = self.session.register_event("step", self.device.driver.event())
        return super().altered(name, function)

    def after_serving(self) -> dict[str, Any]:
        event, stream, gate = HANDLE(self.session.event("step")), HANDLE(self.device.stream), threading.Event()
        blocker = HOST_FUNCTION(lambda data: gate.wait(30) and None)
        must("cuLaunchHostFunc", stream, blocker, None)
        self.graphs[8].replay()
        found = [driver("cuEventQuery", event)]
        gate.set()
        must("cuEventSynchronize", event)
        served: dict[str, Any] = {"event": [*found, driver("cuEventQuery", event)]}
        if self.runtime._events:
            (mine,) = self.runtime._events
            gate.clear()
            must("cuLaunchHostFunc", stream, blocker, None)
            mine.record(self.device.stream)
            side = self.device.driver.stream()
            mine.wait(side)
            served["core"] = [mine.query(), driver("cuStreamQuery", HANDLE(side))]
            gate.set()
            mine.synchronize()
            must("cuStreamSynchronize", HANDLE(side))
            served["core"] += [mine.query(), mine.handle == event.value]
        return served


class OwnCaptures(StoryEngine):
    """Captures with the engine's own code, and starts a session that is no block."""

    def start(self) -> None:
        self.session.begin()
        try:
            MiniEngine.start(self)
        except BaseException as problem:
            self.session.end(problem)
            raise
        self.session.end()

    def capture(self, name: str, batch: int, function: Forward) -> Replayable:
        graph = self.session.restored(name)
        if graph is not None:
            return graph
        self.model.prepare(self.config.max_batch)
        function()
        with self.session.capturing():
            made = graphs.capture(self.device, function, self.session.graph_pool(), self.capture_stream)
        self.session.adopt(name, made, made.outputs)
        made.instantiate()
        return made


class AsksForIpcHandle(StoryEngine):
    """Asks for legacy IPC handles of memory in zones."""

    def before_capture(self) -> None:
        super().before_capture()
        places = {"weights": self.model.weights["norm"], "ambient": self.device.empty((1024,))}
        handle = ctypes.create_string_buffer(b"\xa5" * 64, 64)
        for zone, array in places.items():
            code = driver("cuIpcGetMemHandle", handle, ctypes.c_uint64(array.address))
            self.notes[f"ipc.{zone}"] = [code, handle.raw == b"\xa5" * 64]


# --- captures that are interrupted, all in decode/16


class Interrupted(Altered):
    """Something ends the capture in the middle."""

    ALTERED = ("decode/16",)

    def altered(self, name: str, function: Forward) -> StepOutputs:
        outputs = function()
        if self.capturing:
            self.interrupt()
        return outputs

    def interrupt(self) -> None:
        """Ends it."""
        raise NotImplementedError


class ByException(Interrupted):
    """The model raises."""

    def interrupt(self) -> None:
        raise RuntimeError("the model has a bug")


class BySignal(Interrupted):
    """Somebody presses control-C."""

    def interrupt(self) -> None:
        signal.raise_signal(signal.SIGINT)


class ByKill(Interrupted):
    """The process is killed."""

    def interrupt(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class ByInvalidCall(Interrupted):
    """A call that no capture permits invalidates it; the driver says so at the end."""

    def interrupt(self) -> None:
        self.device.driver.synchronize()


class ByMemory(Interrupted):
    """There is no memory for scratch that the capture needs."""

    def interrupt(self) -> None:
        set_faults("cuMemCreate:*:CUDA_ERROR_OUT_OF_MEMORY;cuMemAlloc:*:CUDA_ERROR_OUT_OF_MEMORY")
        try:
            self.device.empty((64 << 20,), "uint8")
        finally:
            set_faults("")


class RaisesWhileLoading(StoryEngine):
    """The engine's own code raises after the weights."""

    def create_cache(self) -> None:
        raise RuntimeError("the cache does not fit")


class KilledWhileWriting(StoryEngine):
    """The process is killed when the archive is written but for its last file."""

    def before_capture(self) -> None:
        def kill(manifest: archive_json.Manifest) -> str:
            os.kill(os.getpid(), signal.SIGKILL)
            raise AssertionError

        archive_json.Manifest.dumps = kill  # type: ignore[assignment,method-assign]


def set_faults(text: str) -> None:
    """Faults of the simulated driver from now on."""
    assert driver("foundry_sim_set_faults", ctypes.c_char_p(text.encode())) == 0
