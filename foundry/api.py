"""The public API: a session around an engine's start.

with foundry.session("decode.fdry") as s:
    with s.phase("weights"):
        model = s.register_module("model", Model().cuda())
    with s.phase("inputs"):
        x = s.register("x", torch.zeros(512, 1024, device="cuda"), mutable=True)
    g = {n: s.graph(f"decode/{n}", lambda n=n: model(x[:n]), warmup=2) for n in sizes}
g[8].replay()
y = g[8].outputs
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from foundry import launches, modes, tracing
from foundry.anchors import Anchor
from foundry.choosing import Beginning, Declared, Options
from foundry.report import Report

if TYPE_CHECKING:
    from foundry.graphs import Graph
    from foundry.home import Home
    from foundry.native import Backend
    from foundry.runtime import Runtime

log = logging.getLogger("foundry")

T = TypeVar("T")
ZoneKind = Literal["rebuilt", "private"]

_active_lock = threading.Lock()
_active: Session | None = None


def session(
    path: str | os.PathLike[str] | None = None,
    mode: str = "auto",
    *,
    runtime: Runtime | None = None,
    on_mismatch: str | None = None,
    strict: bool = False,
    fingerprint: Mapping[str, object] | None = None,
    golden: bool | None = None,
    verify: bool | None = None,
    compact: bool | None = None,
    exec_budget: int | None = None,
) -> Session:
    """A session to enter with `with`.

    path: the archive directory; None takes FOUNDRY_ARCHIVE.
    mode: "save", "load", "off", or "auto": LOAD if the archive fits, else SAVE if the hook is preloaded, else native.
        FOUNDRY_MODE narrows "auto".
    runtime: the framework; None is PyTorch.
    on_mismatch: "fallback" captures natively whatever cannot be restored, "fail" raises; None takes
        FOUNDRY_ON_MISMATCH, else "fallback".
    strict: on SAVE any finding of the pointer audit, and any graph that cannot be saved, raises.
    fingerprint: fields of yours that must be equal on SAVE and LOAD (model, quantization, flags, ...).
    golden: on SAVE record golden runs of all graphs: what each computes from its inputs as they are at the end, small
        tensors of integers as they were at its capture. None takes FOUNDRY_GOLDEN (0 or 1), else no.
    verify: on LOAD replay golden runs before anything else does, and capture natively what computes something else;
        None takes FOUNDRY_VERIFY (0 or 1), else no.
    compact: on SAVE compress the graphs: a smaller archive that takes longer to open. None takes FOUNDRY_COMPACT (0 or
        1), else no.
    exec_budget: on LOAD device memory in bytes that instantiated graphs may take (about 2.9 KB a node, and 7.8 KB of host
        memory that the budget bounds with it). Beyond it graphs that were not replayed, or not for the longest time,
        lose what was instantiated; their next replay instantiates them again, which takes some milliseconds. None
        takes FOUNDRY_EXEC_BUDGET; 0, as without it, is no bound.

    Raises ValueError for arguments that make no sense.
    """
    options = Options.chosen(path, mode, on_mismatch, strict, fingerprint, golden, verify, compact, exec_budget)
    return Session(options, runtime)


class Session:
    """SAVE or LOAD around an engine's start; one at a time in a process."""

    def __init__(self, options: Options, runtime: Runtime | None) -> None:
        self._options = options
        self._given_runtime = runtime
        self._declared = Declared()
        self._host: list[object] = []  # kept alive
        self._backend: Backend | None = None
        self._home: Home | None = None  # where CUDA is used
        self._ended = False
        self.report = Report(options.path, options.mode, "off")

    # ---- inside the block

    def phase(self, name: str, kind: ZoneKind = "rebuilt") -> AbstractContextManager[None]:
        """Allocations of all threads inside the block belong to the zone `name`, nested and re-entered at will.

        kind "rebuilt": LOAD runs the block too and gets the same addresses. "private": only SAVE needs the block's
        memory (warm-up, profiling); LOAD materializes what graphs reach of it.
        """
        return tracing.around(self._entered().phase(name, kind), "phase", name)

    def register(self, name: str, tensor: T, mutable: bool = False) -> T:
        """Declares a tensor of a phase that graphs use; returns it.

        A constant one (weights) is copied to its recorded address if LOAD puts it elsewhere; a `mutable` one (inputs,
        caches) must land there. Raises FoundryError on SAVE if it was not allocated in a phase.
        """
        backend = self._entered()
        if self._options.mode != "off":
            anchor = Anchor(name, tensor, mutable)
            backend.registered(anchor)
            self._declared.anchors.add(name, tensor, mutable)
        return tensor

    def register_module(self, name: str, module: T) -> T:
        """Registers every parameter and buffer of a module under `name`.<qualified name>; returns the module."""
        self._entered()
        if self._options.mode != "off":
            for child, tensor, constant in self._runtime().named_tensors(module):
                self.register(f"{name}.{child}", tensor, mutable=not constant)
        return module

    def register_host(self, name: str, memory: T) -> T:
        """Declares pinned host memory that captured functions copy from or to, or that their kernels use; returns it.

        memory: a contiguous CPU tensor, or anything with the buffer protocol (NumPy, ctypes, memoryview). Before the
        graphs that use it. LOAD must register memory of that name, too, at least as large: wherever it lies, restored
        graphs use it. What it holds is the program's business. The session keeps it alive.

        Raises FoundryError(kind="invalid") on SAVE if it is not pinned, overlaps other such memory, or if the name is
        taken. On LOAD graphs that need memory that is missing or does not fit are captured natively.
        """
        backend = self._entered()
        if self._options.mode != "off":
            backend.registered_host(name, memory)
            self._host.append(memory)
        return memory

    def export(self, name: str, tensor: T) -> T:
        """Declares a tensor that only forwards or warm-ups create and that the program needs after its start.

        SAVE: its memory becomes part of the archive, with its content unless a captured function allocated it. Returns
        the tensor. On LOAD such a tensor is `exported(name)`; nobody has to create it, and `export` gives back that
        one too. Raises FoundryError on SAVE if the tensor's memory lies in no zone, or is part of a phase that LOAD
        runs itself and was not registered.
        """
        return self._declared.exports.add(self._entered(), name, tensor)

    def exported(self, name: str) -> Any:
        """The tensor exported under `name`: by this process, or on LOAD by SAVE. None if there is none yet.

        On LOAD this finishes the session: everything must be registered before. Where that ends in native capture there
        is no export of SAVE's either.

            hidden = s.exported("hidden")
            if hidden is None:
                hidden = s.export("hidden", first_forward())
        """
        return self._declared.exports.get(self._entered(), name)

    def register_event(self, name: str, event: T) -> T:
        """Declares an event that captured graphs record, or wait for, and that the program uses too; returns it.

        It must be one that becomes a node of the graph: `torch.cuda.Event(external=True)`. One event for all graphs
        that use it comes back on LOAD as `event(name)`. Raises FoundryError if another event has the name.
        """
        self._entered()
        self._declared.events.add(name, event)
        return event

    def event(self, name: str) -> Any:
        """The event of that name: on LOAD the one that restored graphs use, else the one that the program registered.

        None if there is neither. With PyTorch a restored one has the methods of torch.cuda.Event but no timing. On LOAD
        this finishes the session: everything must be registered before. A captured function should ask here, too: where
        only some graphs can be restored, the others are captured with the event of those.
        """
        found = self._entered().event(name)
        return self._declared.events.get(name) if found is None else found

    def graph(self, name: str, function: Callable[[], Any], warmup: int = 2, golden: bool = False) -> Graph:
        """The graph of `function`, a call without arguments that reads registered tensors and returns outputs.

        SAVE and native: runs it `warmup` times, then captures it; SAVE also replays it once. LOAD: returns at once and
        does not call it.

        golden: SAVE records what the graph computes from its inputs as they are at the end of the block, small tensors of
            integers as its capture finds them. That takes a few replays and overwrites caches (see docs/operations.md).
        """
        if golden or self._options.golden:
            self._declared.golden.add(name)
        return self._entered().graph(name, function, warmup)

    def in_phase(self, tensor: Any) -> bool:
        """Whether the memory of `tensor` was allocated in a phase that LOAD runs too, so that it can be registered."""
        backend = self._entered()
        if self.report.outcome not in ("saving", "loading") or not self.runtime.is_tensor(tensor):
            return False
        return backend.in_phase(tensor)

    @property
    def runtime(self) -> Runtime:
        """The framework."""
        return self._runtime()

    # ---- captures that the program makes itself

    def graph_pool(self) -> Any:
        """The memory pool for captures by the program's own code, e.g. `torch.cuda.graph(graph, pool=s.graph_pool())`.

        On SAVE that of Foundry's zone for graphs, else one of the framework's own.
        """
        return self._entered().graph_pool()

    def capturing(self) -> AbstractContextManager[None]:
        """To be held around every capture by the program's own code, in every mode.

        Meanwhile no phase is current and memory of zones is not given back; on SAVE libraries' workspaces that the
        graph uses are private to it. On LOAD this finishes the session: everything must be registered before.
        """
        return self._entered().capturing()

    def adopt(self, name: str, graph: Any, outputs: Any, golden: bool = False) -> Graph:
        """A graph that the program captured: to be called when its capture has ended, before it is replayed.

        graph: the framework's object, e.g. a `torch.cuda.CUDAGraph(keep_graph=True)` or a
            `foundry.torch.kept_graph.KeptGraph`. It stays the program's, to instantiate and to replay. SAVE replays it
            once, and again at the end of the session where it has doubts or golden runs to record.
        outputs: tensors that the graph writes and the program reads, in any nesting of tuples, lists and dicts. Only
            their addresses are kept: the program may let them go.

        SAVE: what cannot be saved is left out, as with `graph`. Otherwise nothing is recorded. Raises FoundryError if
        the name was used before.
        """
        if golden or self._options.golden:
            self._declared.golden.add(name)
        return self._entered().adopt(name, graph, outputs)

    def captured(self) -> None:
        """Captures are over, and the program goes on with steps as it will run them, inside the block.

        SAVE: memory outside phases that graphs read and these steps rewrite is found as an input that nobody registered,
        and those graphs are left out (docs/operations.md). Without this call that is found for what captures rewrote. It may
        be repeated after steps.
        """
        self._entered().captured()

    def restored(self, name: str) -> Graph | None:
        """On LOAD the graph of that name, ready to be replayed; None if the program has to capture it.

        On LOAD this finishes the session: everything must be registered before. With on_mismatch="fail" it raises
        FoundryError instead of returning None for a graph that the archive has.

            graph = s.restored(name)
            if graph is None:
                graph = KeptGraph()
                with s.capturing(), torch.cuda.graph(graph, pool=s.graph_pool()):
                    outputs = forward()
                graph = s.adopt(name, graph, outputs)
        """
        return self._entered().restored(name)

    # ---- the program's own facts and files

    def attach(self, name: str, text: Callable[[], str | None]) -> None:
        """A text file of the program's: on SAVE it becomes part of the archive, LOAD gets it as `attached(name)`.

        name: letters, digits, `_`, `-` and `.`. `text` is called when the archive is written; it returns at most 16 MiB,
        or None for no file. Raises FoundryError(kind="invalid") for another name, or one that was used.
        """
        self._entered()
        self._declared.attachments.add(name, text)

    def attached(self, name: str) -> str | None:
        """On LOAD the text that SAVE attached under that name; None if there is none, and in every other mode.

        It was read without following links and is as long as foundry.json says: what it holds is the program's to check.
        Raises FoundryError: corrupt or io.
        """
        return self._entered().attached(name)

    @property
    def notes(self) -> dict[str, str | int | float | bool]:
        """A table for the program's own facts: what SAVE puts in comes back on LOAD (a measured memory size, say)."""
        return self.report.notes

    # ---- the end

    def finish(self) -> None:
        """LOAD: compares and re-seats now, not at the end of the block; the first replay does so too.

        Everything must be registered before. On SAVE the archive is written at the end of the block only.
        """
        backend = self._entered()
        if self.report.outcome == "loading":
            backend.finish()

    def wait(self) -> Report:
        """Returns when every graph can be replayed without waiting, and what happened to each."""
        with tracing.span("wait"):
            self._entered().wait()
        tracing.flush()
        return self.report

    # ---- the block

    def begin(self) -> Session:
        """Enters the session where a `with` block cannot be: in one function, to `end` in another, of any thread."""
        return self.__enter__()

    def end(self, error: BaseException | None = None) -> None:
        """Ends a session that `begin` entered; `error` is what the program's start failed with.

        SAVE publishes, LOAD finishes, unless there is an error. Raises what the end of a block raises. A second call
        does nothing.
        """
        self._entered()
        if not self._ended:
            self.__exit__(None if error is None else type(error), error, None)

    def __enter__(self) -> Session:
        if self._backend is not None:
            raise RuntimeError("a session can be entered once")
        beginning = Beginning(self._options, self._declared, self._runtime, self.report)
        if self._options.mode == "off":
            self._backend = beginning.backend()
            return self
        global _active
        with _active_lock:
            if _active is not None:
                raise RuntimeError(f"a session for {_active._options.path} is active: one at a time in a process")
            _active = self
        try:
            self._backend = beginning.backend()
        except BaseException:
            self._leave()
            raise
        self._home = beginning.home
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if problem is not None and self._home is not None and self._home.left:
            return  # a fork that leaves the block by exit or exception: the session is its parent's
        backend = self._entered()
        self._ended = True
        try:
            if problem is None:
                backend.finish()
            else:
                self.report.reason = f"the block ended with {type(problem).__name__}: {problem}"
                backend.abandon()
        finally:
            self._leave()
        if self.report.outcome in ("saved", "restored"):
            log.log(logging.WARNING if self.report.fell_back else logging.INFO, "%s", self.report)

    def _leave(self) -> None:
        global _active
        if self._options.mode == "auto":
            launches.settle(self._options.path, self.report)
        if os.environ.get(modes.VERIFY_REPORT_VARIABLE):
            self.report.write_verdicts(os.environ[modes.VERIFY_REPORT_VARIABLE])
        with _active_lock:
            if _active is self:
                _active = None

    def _entered(self) -> Backend:
        if self._backend is None:
            raise RuntimeError("use the session inside its `with` block")
        if self._home is not None:
            self._home.check()
        return self._backend

    def _runtime(self) -> Runtime:
        if self._given_runtime is None:
            from foundry.torch import runtime

            self._given_runtime = runtime()
        return self._given_runtime
