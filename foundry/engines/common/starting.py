"""One engine's start in one process: a session that begins in one seam of the engine and ends in another."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Literal

import foundry
from foundry.engines.common import kernel_file
from foundry.engines.common.tensors import Walker

if TYPE_CHECKING:
    from foundry.api import ZoneKind
    from foundry.engines.common.kernel_caches import KernelCaches
    from foundry.graphs import Graph
    from foundry.report import Report

log = logging.getLogger("foundry")

State = Literal["native", "save", "load"]


class EngineStart:
    """What the adapters of an engine call. Whatever goes wrong ends in native serving with one clear line, unless the
    user asked for SAVE or for on_mismatch="fail": then it is raised.

    say: prints one line in the engine's own log. wanted: module names whose objects hold the engine's state.
    """

    def __init__(self, say: Callable[[str], None], wanted: Callable[[str], bool]) -> None:
        self._say = say
        self._wanted = wanted
        self._session: foundry.Session | None = None
        self._report: Report | None = None
        self._speaks = ExitStack()  # while the session is open, what Foundry logs is in the engine's log
        self._kernels: KernelCaches | None = None
        self._known: set[int] = set()
        self._names: set[str] = set()

    # ---- what is going on

    @property
    def state(self) -> State:
        """What this process does: "native" too after a session that could not go on."""
        if self._session is None:
            return "native"
        outcome = self._session.report.outcome
        if outcome == "saving":
            return "save"
        return "load" if outcome in ("loading", "restored") else "native"

    def loads(self) -> bool:
        """Whether restored graphs are used, as it stands now."""
        return self.state == "load"

    @property
    def report(self) -> Report | None:
        """The session's account, also after it could not go on. None if there never was one."""
        return self._report

    @property
    def notes(self) -> dict[str, str | int | float | bool]:
        """The engine's own facts in the archive."""
        return self._session.notes if self._session else {}

    # ---- the start

    def begin(self, fingerprint: Mapping[str, object] | Callable[[], Mapping[str, object]], spare: str = "") -> None:
        """Decides between SAVE, LOAD and native. A CUDA device must be chosen. A function is asked for the fields.

        spare: why this process does not save; it is native, for that reason, where it would.
        """
        with self.guarded("begin"):
            fields = fingerprint() if callable(fingerprint) else fingerprint
            if spare and _would_save(fields):
                self._say(f"serving natively: {spare}")
                return
            self._speaks.enter_context(_logged(self._logs))
            session = foundry.session(fingerprint=fields)
            report = self._report = session.report
            self._session = session.begin()
            if self.state != "native":
                self._say(f"{'saving to' if self.state == 'save' else 'restoring from'} {report.archive}")
                self._carry_kernels(self._session, report)
                return
            session.end()
            self._speaks.close()
            self._say(str(report) if report.mismatches else f"serving natively: {report.reason or 'Foundry is off'}")

    def _carry_kernels(self, session: foundry.Session, report: Report) -> None:
        from foundry.engines.common.kernel_caches import KernelCaches

        self._kernels = KernelCaches(report, self._say)
        if self.state == "save":
            self._kernels.watch()
            session.attach(kernel_file.NAME, self._kernels.text)
            return
        with report.step("kernel caches"):
            self._kernels.provide(session)

    def _logs(self, record: logging.LogRecord) -> None:
        # While the session begins it is not known yet, and `begin` says itself that it will be native.
        if self._session is not None or record.args != (self._report,):
            self._say(record.getMessage())

    def refuse(self, reason: str) -> None:
        """From here on the engine is native, for a reason that is said. Raises RuntimeError with on_mismatch="fail"."""
        self.give_up(RuntimeError(reason))
        refuse(reason, self._say)

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Around code of the engine that allocates the same on SAVE and on LOAD."""
        if self._session is None or self.state == "native":
            return nullcontext()
        return self._around(self._session, name, "rebuilt")

    def private(self, name: str) -> AbstractContextManager[None]:
        """SAVE: around profiling and warm-up, which LOAD does not run; what graphs reach of their memory is kept.

        Without it such memory may lie in a segment that was there before the session, which nobody can restore.
        """
        if self._session is None or self.state != "save":
            return nullcontext()
        return self._around(self._session, name, "private")

    @contextmanager
    def _around(self, session: foundry.Session, name: str, kind: ZoneKind) -> Iterator[None]:
        """What the engine does inside is its own: only what opens and closes the phase is Foundry's part."""
        opened = ExitStack()
        with self.guarded(f"phase {name}"):
            opened.enter_context(session.phase(name, kind))
        try:
            yield
        finally:
            with self.guarded(f"phase {name}"):
                opened.close()

    def register_module(self, name: str, module: Any) -> None:
        """Parameters and buffers of a model."""
        if self._session is None or self.state == "native":
            return
        with self.guarded("register"):
            for child, tensor, constant in self._session.runtime.named_tensors(module):
                self._register(f"{name}.{child}", tensor, mutable=not constant)

    def register_reachable(self, name: str, root: Any) -> None:
        """Every other device tensor in a phase that `root` reaches: buffers that the engine writes between replays."""
        if self._session is None or self.state == "native":
            return
        with self.guarded("register"):
            for path, tensor in Walker(self._session.runtime.is_tensor, self._wanted).tensors(name, root):
                self._register(path, tensor, mutable=True)

    def _register(self, name: str, tensor: Any, mutable: bool) -> None:
        assert self._session is not None
        if id(tensor) in self._known or not self._session.in_phase(tensor):
            return
        # The session keeps what is registered, so ids stay unique; a name may come again when an attribute is replaced.
        self._known.add(id(tensor))
        unique, again = name, 1
        while unique in self._names:
            again += 1
            unique = f"{name}#{again}"
        self._names.add(unique)
        self._session.register(unique, tensor, mutable=mutable)

    # ---- graphs

    def adopt(self, name: str, graph: Any, outputs: Any) -> None:
        """SAVE: a graph that the engine has just captured."""
        if self._session is not None and self.state == "save":
            with self.guarded(f"graph {name}"):
                self._session.adopt(name, graph, outputs)

    def captured(self) -> None:
        """SAVE: every graph is captured; what the engine runs from now on may show inputs that nobody registered."""
        if self._session is not None and self.state == "save":
            with self.guarded("captured"):
                self._session.captured()

    def restored(self, name: str) -> Graph | None:
        """LOAD: the graph of that name, or None if the engine has to capture it."""
        if self._session is None or self.state != "load":
            return None
        with self.guarded(f"graph {name}"):
            return self._session.restored(name)
        return None

    @contextmanager
    def substituted(self, name: str = "CUDAGraph") -> Iterator[None]:
        """SAVE: every `torch.cuda.CUDAGraph()` that the engine makes inside the block can be adopted."""
        if self._session is None or self.state != "save":
            yield
            return
        import torch

        from foundry.engines.common.engine_graph import engine_graph

        original = torch.cuda.CUDAGraph
        torch.cuda.CUDAGraph = engine_graph(self._session)
        try:
            yield
        finally:
            torch.cuda.CUDAGraph = original

    def export(self, name: str, tensor: Any) -> None:
        """SAVE: a tensor that only a forward creates and that the engine needs later."""
        if self._session is not None and self.state == "save":
            with self.guarded(f"export {name}"):
                self._session.export(name, tensor)

    def exported(self, name: str) -> Any:
        """LOAD: that tensor; None otherwise."""
        if self._session is None or self.state != "load":
            return None
        with self.guarded(f"export {name}"):
            return self._session.exported(name)
        return None

    def register_event(self, name: str, event: Any) -> None:
        """SAVE: an event that graphs record and that the engine waits for."""
        if self._session is not None and self.state == "save":
            with self.guarded(f"event {name}"):
                self._session.register_event(name, event)

    def event(self, name: str) -> Any:
        """LOAD: that event, as restored graphs record it; None otherwise, and where none of them does."""
        if self._session is None or self.state != "load":
            return None
        with self.guarded(f"event {name}"):
            return self._session.event(name)
        return None

    def finish(self) -> None:
        """LOAD: compares tensors now, so that `state` tells whether graphs are restored."""
        if self._session is not None and self.state == "load":
            with self.guarded("compare"):
                self._session.finish()

    def end(self) -> None:
        """The start is over: SAVE publishes, LOAD is settled."""
        session = self._session
        if session is None:
            return
        with self.guarded("end"):
            if self.state == "load":
                session.wait()
            session.end()  # logs what came of it
            self._leave()

    def give_up(self, problem: BaseException) -> None:
        """The engine's start failed, or Foundry's part in it."""
        session, self._session = self._session, None
        try:
            if session is not None:
                session.end(problem)
        except Exception as another:  # the first problem is the one that counts
            self._say(f"the session did not end well: {another}")
        self._leave()

    def _leave(self) -> None:
        if self._kernels is not None:
            self._kernels.stop()
        self._speaks.close()

    @contextmanager
    def guarded(self, what: str) -> Iterator[None]:
        """Around Foundry's part in the start: what fails there makes the engine native, see above."""
        try:
            yield
        except Exception as problem:
            self.give_up(problem)
            if must_raise():
                raise
            log.debug("%s", what, exc_info=True)
            self._say(f"serving natively: {what}: {problem}")


class _Handler(logging.Handler):
    def __init__(self, function: Callable[[logging.LogRecord], None]) -> None:
        super().__init__(logging.INFO)
        self._function = function

    def emit(self, record: logging.LogRecord) -> None:
        self._function(record)


@contextmanager
def _logged(function: Callable[[logging.LogRecord], None]) -> Iterator[None]:
    """Foundry's log goes to a function, and nowhere else: engines give the root logger handlers, or do not."""
    handler, level, propagate = _Handler(function), log.level, log.propagate
    log.addHandler(handler)
    log.propagate = False
    if level == logging.NOTSET:
        log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.propagate = propagate
        log.setLevel(level)


def _would_save(fields: Mapping[str, object]) -> bool:
    from foundry import fingerprint, modes
    from foundry.torch import runtime

    mode = modes.chosen_mode("auto")
    if mode != "auto" or not modes.hook_present():
        return mode == "save"
    here = fingerprint.take(runtime(), runtime().device(), fields)
    return modes.decide(mode, modes.chosen_path(None), here).action == "save"


def refuse(reason: str, say: Callable[[str], None]) -> None:
    """Says that the engine is native and why. Raises RuntimeError instead where the user set on_mismatch="fail"."""
    from foundry import modes

    if modes.chosen_reaction(None) == "fail":
        raise RuntimeError(f"Foundry: {reason}")
    say(f"serving natively: {reason}")


def must_raise() -> bool:
    """Whether the user wants an error rather than a native start."""
    from foundry import modes

    return modes.chosen_mode("auto") == "save" or modes.chosen_reaction(None) == "fail"
