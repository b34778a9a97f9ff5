"""LOAD: restores in the background while the engine's own code runs, then compares, repairs or refuses."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from foundry import _core, attachments, host, journal, launches, native, verifying
from foundry.anchors import Anchor, Anchors
from foundry.errors import DAMAGED, mismatch, wrong_state
from foundry.graphs import Graph
from foundry.home import Home, stop_at_exit
from foundry.phases import PhaseStack
from foundry.restored import RestoredOutputs
from foundry.saving import GRAPHS, RANK
from foundry.settling import Settlement
from foundry.zones import zone_of

if TYPE_CHECKING:
    from foundry.archive_json import Manifest
    from foundry.report import Report
    from foundry.runtime import Runtime

log = logging.getLogger("foundry")

Captured = tuple[Callable[[], Any], int]


class LoadBackend:
    """One LOAD of one rank. `fail`: a mismatch raises instead of falling back to native capture.

    The constructor raises FoundryError with nothing mapped if the archive is corrupt or its addresses are taken.
    """

    def __init__(
        self,
        path: str,
        manifest: Manifest,
        runtime: Runtime,
        device: int,
        anchors: Anchors,
        report: Report,
        fail: bool,
        verify: bool = False,
        exec_budget: int = 0,
    ) -> None:
        self._home = Home()
        self._path = path
        self._runtime = runtime
        self._device = device
        self._anchors = anchors
        self._report = report
        self._fail = fail
        self._verify = verify
        self._phases = PhaseStack(runtime)
        # Guards `_requested`, `_finished` and `_native`; taken by whoever uses a handle first.
        self._lock = threading.RLock()
        self._requested: dict[str, tuple[Graph, Captured]] = {}
        self._finished = False
        self._broken = ""
        self._native = False
        self._restored_events: dict[str, Any] = {}
        # Graphs that are not used, and why.
        self._refused = {name: f"SAVE left it out: {' '.join(why)}" for name, why in manifest.left_out.items()}
        self._inventory = list(manifest.inventory)
        with report.step("verify"):
            self._archive = _core.Archive(path, RANK, self._inventory)
            self._tensors = list(self._archive.tensors)
            # Snapshots of graphs that SAVE refused afterwards may still be in the file.
            self._graphs = {graph.name: graph for graph in self._archive.graphs if graph.name not in manifest.left_out}
        self._export_index = {tensor.name: i for i, tensor in enumerate(self._tensors) if tensor.export}
        self._kinds = {zone.name: zone.kind for zone in self._archive.zones}
        self._loader = _core.Loader(self._archive, device)
        try:
            _core.seal(False)
            with report.step("zones"):
                self._slots = self._loader.open_zones()
            with report.step("map"):
                self._loader.map()
            with report.step("start"):
                self._loader.start([graph.index for graph in self._graphs.values()], exec_budget=exec_budget)
            # Now: a damaged file must be known before tensors are moved.
            self._golden = verifying.open_golden(self._loader, self._archive, self._inventory) if verify else None
        except BaseException:
            self._loader.close()
            _core.seal(True)
            raise
        stop_at_exit(self)
        self._settlement = Settlement(
            path, self._tensors, self._loader, self._slots.get(GRAPHS), anchors, runtime, report
        )
        self._outputs = RestoredOutputs(self._tensors, runtime, self._loader, self._anchor_tensor)

    def _anchor_tensor(self, name: str) -> Any:
        return self._anchors[name].tensor

    # ---- while the engine starts

    def phase(self, name: str, kind: str) -> AbstractContextManager[None]:
        """Places allocations as recorded; a phase that the archive lacks, or that it materializes, changes nothing."""
        if self._finished:
            return nullcontext()
        if name not in self._kinds:
            self._report.warnings.append(f"the archive has no phase {name!r}: its allocations are not placed")
        return self._phases.phase(self._slots.get(name) if self._kinds.get(name) == "rebuilt" else None)

    def registered(self, anchor: Anchor) -> None:
        """Compared when the session finishes."""

    def registered_host(self, name: str, memory: Any) -> None:
        """Graphs that use memory of that name use this one."""
        if self._finished:
            if not self._native:
                raise wrong_state(f"host memory {name!r} must be registered before the session is finished")
            return
        self._loader.register_host(name, *host.span(self._runtime, memory))

    def in_phase(self, tensor: Any) -> bool:
        """Whether it lies in a rebuilt zone."""
        slot = zone_of(self._runtime, tensor)
        return any(slot == known and self._kinds[name] == "rebuilt" for name, known in self._slots.items())

    def exporting(self, name: str, tensor: Any) -> None:
        """Only what SAVE did not export gets here: it is the program's own."""

    def exported(self, name: str) -> Any:
        """The tensor over its recorded memory; None if the archive has none, or if everything is native."""
        self.finish()
        with self._lock:
            index = self._export_index.get(name)
            return None if index is None or self._native else self._outputs.tensor(index)

    def restores_exports(self) -> bool:
        """Unless the session went native."""
        return not self._native

    def graph(self, name: str, function: Callable[[], Any], warmup: int) -> Graph:
        """A handle; the function is kept and only called if the graph has to be captured natively."""
        with self._lock:
            self._check_name(name)
            graph = Graph(name, self._decide)
            self._requested[name] = graph, (function, warmup)
            if self._finished:
                self._capture_missing([name])
            return graph

    def _check_name(self, name: str) -> None:
        if name in self._requested:
            raise wrong_state(f"the graph {name!r} was asked for already: every graph needs a name of its own")

    def event(self, name: str) -> Any:
        """The event of the restored graphs that use it; None if there are none."""
        self.finish()
        with self._lock:
            used = {graph.index for graph in self._graphs.values()}
            if self._native or used.isdisjoint(self._archive.events.get(name, [])):
                return None
            if name not in self._restored_events:
                self._restored_events[name] = self._runtime.event_over(self._loader.event(name))
            return self._restored_events[name]

    def attached(self, name: str) -> str | None:
        """The archive's file of that name."""
        return attachments.read(self._path, self._inventory, name, RANK)

    def captured(self) -> None:
        """SAVE compared what steps do with what graphs read."""

    # ---- captures that the program makes itself

    def graph_pool(self) -> Any:
        """The framework's own: what is captured here is captured natively."""
        return self._runtime.graph_pool(None)

    @contextmanager
    def capturing(self) -> Iterator[None]:
        """The program captures what cannot be restored. Its mode of capture may forbid what restore threads do."""
        self.finish()
        if not self._native:
            for graph in self._graphs.values():
                with suppress(_core.FoundryError):
                    self._loader.wait(graph.index)
        with self._phases.suspended(), self._runtime.capturing(None), self._report.step("native capture"):
            yield

    def adopt(self, name: str, graph: Any, outputs: Any) -> Graph:
        """A graph that the program captured natively."""
        with self._lock:
            self._check_name(name)
            adopted = Graph(name)
            adopted.become_native(self._runtime.captured(graph), outputs)
            self._requested[name] = adopted, (_dropped, 0)
            self._report.fell_back.setdefault(name, "the program captured it")
            return adopted

    def restored(self, name: str) -> Graph | None:
        """Finishes, and waits for the graph: what is returned can be replayed."""
        self.finish()
        with self._lock:
            if name in self._requested:
                known = self._requested[name][0]
                return known if known.source == "restored" else None
            graph = Graph(name)
            reason = self._reason_not_to_restore(name) or self._restore(graph, self._graphs[name])
            if reason:
                # The program is told now; the account at the end of the session says why, once for all such graphs.
                log.debug("graph %s is not restored: %s", name, reason)
                self._report.fell_back[name] = reason
                return None
            return graph

    # ---- the end of the start

    def finish(self) -> None:
        """Compares anchors, re-seats, and captures natively what the archive lacks; later calls do nothing.

        Raises FoundryError(kind="mismatch") if the session is to fail on a mismatch.
        """
        with self._lock:
            if self._finished:
                if self._broken:
                    raise wrong_state(self._broken)
                return
            self._finished = True
            try:
                self._phases.end_all()
                try:
                    with self._report.step("content"):
                        self._loader.wait_content()  # what is wrong with it must be known before tensors are moved
                    with self._report.step("anchors"):
                        self._settlement.run()
                    self._loader.settle()
                finally:
                    journal.finish(self._path, self._inventory, RANK, self._device, self._report)
            except BaseException as problem:
                if self._settlement.moving or not isinstance(problem, _core.FoundryError):
                    # Tensors may be half moved: neither restored nor native graphs would be right.
                    self._broken = f"the session failed while it settled its tensors and cannot replay: {problem}"
                    self._report.outcome, self._report.reason = "failed", self._broken
                    raise
                self._give_up(self._report.reason or str(problem))
                if self._fail:
                    self._report.outcome = "failed"
                    raise
                log.warning("%s", self._report)
                self._capture_missing(list(self._requested))
                return
            finally:
                _core.seal(True)
            self._check_golden()
            self._report.outcome = "restored"
            self._report.restored = [name for name in self._requested if name in self._graphs]
            self._report.unused = [name for name in self._graphs if name not in self._requested]
            self._report.warnings += _core.diagnoses()
            self._take_stats()
            self._capture_missing([name for name in self._requested if name not in self._graphs])

    def _check_golden(self) -> None:
        """Before anything is replayed; graphs that compute something else are captured natively."""
        if not self._verify:
            return
        if self._golden is None:
            self._report.warnings.append("the archive has no golden runs: save it with golden=True")
            return
        try:
            with self._report.step("verify golden"):
                verdicts, notes = verifying.check(self._golden, self._archive, self._loader, self._runtime)
            self._report.verdicts = verdicts
            self._report.warnings += notes
            wrong = [verdict for verdict in verdicts if verdict.verdict == "differs"]
            if wrong and self._fail:
                raise mismatch(
                    f"graph {wrong[0].graph} of {self._path} does not compute what it did: {wrong[0].detail}"
                )
        except BaseException as problem:
            # Tensors were moved already: there is no way back to native graphs.
            self._broken = f"the session failed while it checked golden runs and cannot replay: {problem}"
            self._report.outcome, self._report.reason = "failed", self._broken
            raise
        finally:
            self._golden = None
        for verdict in wrong:
            del self._graphs[verdict.graph]
            self._refused[verdict.graph] = f"it does not compute what it did on SAVE: {verdict.detail}"

    def _give_up(self, reason: str) -> None:
        self._native = True
        self._report.outcome, self._report.reason = "native", reason
        self._report.restored = []
        self._loader.close()

    def _capture_missing(self, names: Sequence[str]) -> None:
        for name in names:
            graph, (function, warmup) = self._requested[name]
            reason = self._reason_not_to_restore(name)
            if not reason:
                continue
            if not self._native:
                self._warn(name, reason)
            self._capture(graph, function, warmup, reason)

    def _reason_not_to_restore(self, name: str) -> str:
        if self._native:
            return self._report.reason or "the session ended before it was restored"
        return "" if name in self._graphs else self._refused.get(name, "the archive does not have it")

    def _warn(self, name: str, reason: str) -> None:
        """A reason that many graphs share (a damaged image, say) is a warning once."""
        known = reason in self._report.fell_back.values()
        log.log(logging.DEBUG if known else logging.WARNING, "graph %s is captured natively: %s", name, reason)

    def _capture(self, graph: Graph, function: Callable[[], Any], warmup: int, reason: str) -> None:
        with self._phases.suspended(), self._report.step("native capture"):
            graph.become_native(native.capture(self._runtime, function, warmup))
        self._requested[graph.name] = graph, (_dropped, 0)
        self._report.fell_back[graph.name] = reason

    # ---- handles

    def _decide(self, graph: Graph) -> None:
        """Makes a pending handle usable."""
        self._home.check()
        self.finish()
        with self._lock:
            if graph.source != "pending":
                return
            function, warmup = self._requested[graph.name][1]
            if self._native:
                self._capture(graph, function, warmup, self._report.reason)
                return
            reason = self._restore(graph, self._graphs[graph.name])
            if reason:
                self._warn(graph.name, reason)
                self._capture(graph, function, warmup, reason)

    def _restore(self, graph: Graph, entry: _core.ArchiveGraph) -> str:
        """Waits for the graph. Returns why it cannot be restored, "" if it was."""
        try:
            with self._report.step("wait"):
                self._loader.wait(entry.index)
        except _core.FoundryError as problem:
            if problem.kind in DAMAGED:
                self._report.damaged = True
                launches.refuse(self._path)
            if self._fail:
                raise
            for names in (self._report.restored, self._report.unused):
                if graph.name in names:
                    names.remove(graph.name)
            return str(problem)
        graph.become_restored(
            self._launcher(entry),
            partial(self._outputs.make, entry.outputs, f"graph {graph.name!r}"),
        )
        self._requested[graph.name] = graph, (_dropped, 0)
        if graph.name not in self._report.restored:
            self._report.restored.append(graph.name)
            self._report.unused.remove(graph.name)
        return ""

    def _launcher(self, entry: _core.ArchiveGraph) -> Callable[[], None]:
        index, stream, increment = entry.index, self._runtime.current_stream, entry.generator_increment
        if not increment:
            return partial(_launch, self._loader.launch, index, stream)
        return partial(_launch_random, self._loader.launch_random, index, stream, self._runtime.draw, increment)

    def wait(self) -> None:
        """Every requested graph can be replayed afterwards, restored or captured natively."""
        self.finish()
        for graph, _ in list(self._requested.values()):
            if graph.source == "pending":
                self._decide(graph)
        if not self._native:
            self._take_stats()

    def abandon(self) -> None:
        """The engine's start failed: what was restored and used stays, the rest is let go."""
        with self._lock:
            if self._finished:
                return
            self._finished = True
            try:
                self._phases.end_all()
            finally:
                self._give_up(self._report.reason or "the session ended with an exception")
                self._report.outcome = "failed"
                _core.seal(True)

    def stop(self) -> None:
        """The process ends. What is restored by now stays usable until it has."""
        if not self._home.left:
            self._loader.cancel()

    def _take_stats(self) -> None:
        stats = self._loader.stats()
        self._report.mapped_bytes, self._report.content_bytes = stats.mapped_bytes, stats.content_bytes
        self._report.images, self._report.nodes = stats.images, stats.nodes
        self._report.exec_device_bytes, self._report.exec_host_bytes = stats.exec_device_bytes, stats.exec_host_bytes
        self._report.execs, self._report.evicted, self._report.rebuilt = stats.execs, stats.evicted, stats.rebuilt
        self._report.milliseconds.update({f"restore.{step}": value for step, value in stats.milliseconds.items()})


def _launch(launch: Callable[[int, int], None], graph: int, stream: Callable[[], int]) -> None:
    launch(graph, stream())


def _launch_random(
    launch: Callable[[int, int, int, int], None],
    graph: int,
    stream: Callable[[], int],
    draw: Callable[[int], tuple[int, int]],
    increment: int,
) -> None:
    # As a native replay: the numbers go on where the generator stands, and the generator moves on.
    launch(graph, stream(), *draw(increment))


def _dropped() -> Any:
    raise AssertionError("the graph is decided: its function is not called any more")
