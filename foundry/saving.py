"""SAVE: captures into the graphs zone, snapshots at once, and publishes an archive when the session ends well."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from foundry import _core, archive_json, host, outputs, overlaps
from foundry.errors import invalid, unsupported, wrong_state
from foundry.graphs import Graph
from foundry.phases import PhaseStack
from foundry.replays import Replays
from foundry.text import count, size
from foundry.zones import slot_of, zone_of

if TYPE_CHECKING:
    from foundry.anchors import Anchor, Anchors
    from foundry.attachments import Attachments
    from foundry.exports import Events, Exports
    from foundry.fingerprint import Fingerprint
    from foundry.report import Report
    from foundry.runtime import NativeGraph, Runtime

log = logging.getLogger("foundry")

AMBIENT = "ambient"
GRAPHS = "graphs"
RANK = 0
_PER_GRAPH = frozenset(["unsupported", "invalid", "mismatch"])


class SaveBackend:
    """One SAVE of one rank. `keep_going`: what fails at the end is reported, not raised (mode "auto")."""

    def __init__(
        self,
        path: str,
        runtime: Runtime,
        device: int,
        fingerprint: Fingerprint,
        anchors: Anchors,
        exports: Exports,
        events: Events,
        attachments: Attachments,
        golden: set[str],
        report: Report,
        strict: bool,
        compact: bool,
        keep_going: bool,
    ) -> None:
        self._path = path
        self._runtime = runtime
        self._device = device
        self._fingerprint = fingerprint
        self._anchors = anchors
        self._exports = exports
        self._events = events
        self._attachments = attachments
        self._golden = golden
        self._report = report
        self._strict = strict
        self._compact = compact
        self._keep_going = keep_going
        self._phases = PhaseStack(runtime)
        self._slots: dict[str, tuple[int, str]] = {}
        self._recorded: list[tuple[str, int, outputs.Encoded, list[_core.Tensor]]] = []
        self._native: dict[int, NativeGraph] = {}
        self._names: set[str] = set()
        self._kinds: set[str] = set()  # of graphs, see _watch
        self._capture_inputs: list[Anchor] = []
        self._over = False
        try:
            _core.seal(False)
            self._graphs_slot = self._open(GRAPHS, "graphs")
            _core.set_ambient(device, self._open(AMBIENT, "ambient"))
            self._saver = _core.Saver(device)
        except BaseException:
            self._end()
            raise

    def _open(self, name: str, kind: str) -> int:
        slot, known = self._slots.get(name, (None, kind))
        if known != kind:
            raise invalid(f"the phase {name!r} is {known!r}: it cannot be {kind!r} too")
        if slot is None:
            slot = _core.zone_open(self._device, name, kind)
            self._slots[name] = slot, kind
        return slot

    def phase(self, name: str, kind: str) -> AbstractContextManager[None]:
        """Opens the zone on first use."""
        if self._over:
            return self._phases.phase(None)
        if name in (AMBIENT, GRAPHS):
            raise invalid(f"the phase name {name!r} is Foundry's own: choose another")
        return self._phases.phase(self._open(name, kind))

    def registered(self, anchor: Anchor) -> None:
        """An anchor must lie in a rebuilt zone: raises FoundryError otherwise."""
        described = self._describe(anchor)
        if not self._over and _core.Saver.takes_capture_input(described):
            self._capture_inputs.append(anchor)

    def _describe(self, anchor: Anchor) -> _core.Tensor:
        tensor = self._runtime.describe(anchor.tensor)
        slot = slot_of(tensor)
        if tensor.nbytes and (slot is None or not self._is_rebuilt(slot)):
            raise invalid(
                f"tensor {anchor.name!r} at {tensor.address:#x} was not allocated in a phase: create it (or its copy) "
                "inside `with session.phase(...)`, so that LOAD can put it at the same address"
            )
        return _as(tensor, name=anchor.name, constant=not anchor.mutable, mutable=anchor.mutable)

    def registered_host(self, name: str, memory: Any) -> None:
        """Graphs that are captured afterwards may use it."""
        if not self._over:
            self._saver.add_host_range(name, *host.span(self._runtime, memory))

    def in_phase(self, tensor: Any) -> bool:
        """Whether it lies in a rebuilt zone."""
        slot = zone_of(self._runtime, tensor)
        return slot is not None and self._is_rebuilt(slot)

    def exporting(self, name: str, tensor: Any) -> None:
        """An export must lie in a zone: raises FoundryError otherwise."""
        described = self._runtime.describe(tensor)
        slot = slot_of(described)
        if described.nbytes and slot is None:
            raise invalid(
                f"export {name!r} at {described.address:#x} is memory that Foundry did not see allocated: create the "
                "tensor inside the session"
            )
        if slot is not None and self._is_rebuilt(slot) and not self._anchored(described):
            raise invalid(
                f"export {name!r} at {described.address:#x} lies in a phase that LOAD runs itself: register the tensor "
                "there, or create it in a phase of kind 'private' or outside phases"
            )

    def _anchored(self, described: _core.Tensor) -> bool:
        storages = (self._runtime.describe(anchor.tensor).storage_address for anchor in self._anchors)
        return described.storage_address in storages

    def _is_rebuilt(self, slot: int) -> bool:
        return any(slot == known and kind == "rebuilt" for known, kind in self._slots.values())

    def exported(self, name: str) -> Any:
        """Nothing comes from an archive."""
        return None

    def restores_exports(self) -> bool:
        """Nothing comes from an archive."""
        return False

    def graph(self, name: str, function: Callable[[], Any], warmup: int) -> Graph:
        """Captures, snapshots, instantiates. A graph that cannot be saved is native all the same."""
        self._take_name(name)
        graph = Graph(name)
        with self._phases.suspended():
            slot = None if self._over else self._graphs_slot
            with self._report.step("capture"):
                native = self._runtime.capture(function, warmup, slot)
            if not self._over:
                with self._report.step("snapshot"), self._one_graph(name):
                    self._snapshot(name, native, native.outputs)
            with self._report.step("instantiate"):
                native.instantiate()
        graph.become_native(native)
        return graph

    def _take_name(self, name: str) -> None:
        if name in self._names:
            raise wrong_state(f"the graph {name!r} was captured already: every graph needs a name of its own")
        self._names.add(name)

    def graph_pool(self) -> Any:
        """That of the graphs zone."""
        return self._runtime.graph_pool(None if self._over else self._graphs_slot)

    @contextmanager
    def capturing(self) -> Iterator[None]:
        """Suspends phases, as for a capture of Foundry's own."""
        slot = None if self._over else self._graphs_slot
        with self._phases.suspended(), self._runtime.capturing(slot), self._report.step("capture"):
            yield

    def adopt(self, name: str, graph: Any, outputs: Any) -> Graph:
        """Snapshots. The program keeps the graph and its outputs, for as long as it likes."""
        self._take_name(name)
        native = self._runtime.captured(graph)
        if not self._over:
            with self._phases.suspended(), self._report.step("snapshot"), self._one_graph(name):
                self._snapshot(name, native, outputs)
        adopted = Graph(name)
        adopted.become_native(native, outputs)
        return adopted

    def restored(self, name: str) -> Graph | None:
        """Nothing comes from an archive."""
        return None

    def event(self, name: str) -> Any:
        """Nothing comes from an archive."""
        return None

    def attached(self, name: str) -> str | None:
        """Nothing comes from an archive."""
        return None

    def _snapshot(self, name: str, native: NativeGraph, returned: Any) -> None:
        encoded = outputs.Encoded(returned, self._runtime.is_tensor)
        tensors = [_as(self._runtime.describe(tensor), output=True) for tensor in encoded.release()]
        for described in tensors:
            if described.nbytes and slot_of(described) is None:
                raise unsupported(
                    f"an output at {described.address:#x} is memory that Foundry did not see allocated: create it "
                    "inside a phase or inside the captured function"
                )
        self._take_capture_inputs()
        use = native.generator()
        index = self._saver.add_graph(native.raw(), name)
        if use is not None:
            self._saver.set_generator(index, use.increment, use.seed, use.offset)
        self._recorded.append((name, index, encoded, tensors))
        self._native[index] = native
        self._watch(name)

    def _take_capture_inputs(self) -> None:
        """As the capture found them: a replay may change them, for one that draws random numbers as well.

        A program may have given a tensor other memory, or none; what it had before need not be there any more.
        """
        described = [self._runtime.describe(anchor.tensor) for anchor in self._capture_inputs]
        present = [_as(tensor, mutable=True) for tensor in described if slot_of(tensor) is not None]
        self._saver.take_capture_inputs(present)

    def _watch(self, name: str) -> None:
        """After the 1st, 2nd, 4th, ... capture, and the first of each kind (what a name has before its first "/")."""
        captures, kind = len(self._recorded), name.partition("/")[0] if "/" in name else ""
        if captures & (captures - 1) == 0 or kind not in self._kinds:
            self._kinds.add(kind)
            self._remember(again=False)

    def captured(self) -> None:
        """Captures are over, or a step that followed: see api.Session.captured."""
        if not self._over:
            self._remember(again=True)

    def _remember(self, again: bool) -> None:
        """What memory holds that warm-ups created until now: what changes until the end may be an input."""
        with self._report.step("watch"):
            self._saver.watch_inputs(self._runtime.blocks(), again)

    @contextmanager
    def _one_graph(self, name: str) -> Iterator[None]:
        """What is wrong with one graph leaves that graph out (strict: ends the session)."""
        try:
            yield
        except _core.FoundryError as problem:
            if self._strict or problem.kind not in _PER_GRAPH:
                raise
            self._report.left_out[name] = [str(problem)]
            log.warning("graph %s is not saved: %s", name, problem)

    def finish(self) -> None:
        """Writes and publishes the archive."""
        try:
            self._write()
        except _core.FoundryError as problem:
            self._report.outcome, self._report.reason = "failed", str(problem)
            if not self._keep_going:
                raise
            log.warning("no archive was saved: %s", problem)
        finally:
            self._end()

    def _write(self) -> None:
        report = self._report
        with report.step("describe"):
            self._phases.end_all()
            self._runtime.synchronize()
            for anchor in self._anchors:
                self._saver.add_tensor(self._describe(anchor))
            for name, tensor in self._exports:
                self._saver.add_tensor(_as(self._runtime.describe(tensor), name=name, export=True))
            for _, index, encoded, tensors in self._recorded:
                numbers = [self._saver.add_tensor(tensor) for tensor in tensors]
                self._saver.set_outputs(index, encoded.dumps(numbers), numbers)
            report.sharing = self._sharing()
            self._name_events()
            self._saver.set_blocks(self._runtime.blocks())
        replays = Replays(self._saver, self._runtime)
        with report.step("examine"):
            doubts = self._saver.examine()
        if doubts:
            with report.step("prove padding"):
                for index, _ in doubts:
                    self._saver.settle(index, replays.prove_padding(index, self._native[index]))
        with report.step("hidden inputs"):
            readers = self._saver.changed_inputs()
            if readers:
                replays.find_inputs({index: self._native[index] for index in readers})
            self._saver.judge_inputs()
        staging = _core.Staging(self._path)
        try:
            if self._golden:
                self._saver.keep_state()
            with report.step("write"):
                saved = self._saver.write(staging, RANK, self._strict, self._compact)
                attached = dict(self._attachments.texts(RANK))
                for name, text in attached.items():
                    staging.write_text(name, text)
            if self._golden:
                with report.step("golden runs"):
                    self._record_golden(saved, staging, replays)
            manifest = self._manifest(saved, staging.path)
            report.bytes_by_file.update({name: len(text.encode()) for name, text in attached.items()})
            if report.left_out and not report.saved:
                number, first = count(len(report.left_out), "graph"), next(iter(report.left_out.values()))[0]
                raise unsupported(f"none of {number} can be restored, so no archive is published; the first: {first}")
            with report.step("publish"):
                staging.write_text(archive_json.NAME, manifest.dumps())
                report.warnings += staging.publish()
        except BaseException:
            staging.discard()
            raise
        report.outcome = "saved"

    def _sharing(self) -> list[list[str]]:
        """Graphs whose outputs overlap. Registered and exported tensors are shared on purpose."""
        meant = {self._runtime.describe(anchor.tensor).storage_address for anchor in self._anchors}
        meant |= {self._runtime.describe(tensor).storage_address for _, tensor in self._exports}
        return overlaps.groups(
            (name, tensor.address, tensor.nbytes)
            for name, _, _, tensors in self._recorded
            for tensor in tensors
            if tensor.storage_address not in meant
        )

    def _name_events(self) -> None:
        for name, event in self._events:
            handle, flags = self._runtime.event_handle(event)
            if not handle or not self._saver.name_event(handle, name, flags):
                self._report.warnings.append(
                    f"no graph records or waits for the event {name!r}: in a capture only an external event becomes a "
                    "node (PyTorch: torch.cuda.Event(external=True))"
                )

    def _record_golden(self, saved: _core.SaveReport, staging: _core.Staging, replays: Replays) -> None:
        """Replays the graphs that are published; what cannot be replayed has no golden run."""
        report = self._report
        asked = [graph for graph in saved.graphs if graph.name in self._golden and graph.name not in report.left_out]
        for graph in asked:
            try:
                replays.golden(graph.index, self._native[graph.index])
            except (_core.FoundryError, RuntimeError) as problem:
                report.warnings.append(f"there is no golden run of graph {graph.name}: {problem}")
            else:
                report.golden.append(graph.name)
        if report.golden:
            lost = self._saver.write_golden(staging, RANK)
            if lost:
                report.warnings.append(
                    f"golden runs overwrote {size(lost)} of mutable tensors, too much to be kept meanwhile: they hold zeros"
                )
        elif asked:
            self._saver.restore_state()

    def _manifest(self, saved: _core.SaveReport, staging: str) -> archive_json.Manifest:
        report = self._report
        for name, sentences in saved.left_out.items():
            report.left_out.setdefault(name, []).extend(sentences)
        published = [graph for graph in saved.graphs if graph.name not in report.left_out]
        report.saved = [graph.name for graph in published]
        report.nodes = sum(graph.nodes for graph in published)
        report.warnings += [*saved.warnings, *_core.diagnoses()]
        report.bytes_by_file = dict(saved.bytes_by_file)
        report.mapped_bytes, report.content_bytes = saved.mapped_bytes, saved.content_bytes
        report.stored_bytes, report.images = saved.stored_bytes, saved.images
        report.milliseconds.update({f"write.{step}": value for step, value in saved.milliseconds.items()})
        return archive_json.Manifest(
            _core.FORMAT_VERSION,
            _core.VERSION,
            self._fingerprint,
            _core.describe_files(staging),
            [archive_json.GraphEntry(g.name, g.nodes, g.edges, g.nodes_by_type) for g in published],
            report.left_out,
            archive_json.plain_notes(report.notes),
        )

    def wait(self) -> None:
        """Native graphs are ready."""

    def abandon(self) -> None:
        """Nothing is published; graphs captured so far stay usable."""
        self._report.outcome = "failed"
        self._end()

    def _end(self) -> None:
        self._over = True
        self._recorded.clear()
        self._native.clear()
        self._capture_inputs.clear()
        # With what it keeps of the device's memory on the host; the program may keep the session for good.
        self.__dict__.pop("_saver", None)
        try:
            self._phases.end_all()
        finally:
            _core.set_ambient(self._device, None)
            _core.seal(True)
            _core.release_quarantine()


def _as(tensor: _core.Tensor, name: str = "", **flags: bool) -> _core.Tensor:
    """What a runtime described, with a name and flags."""
    return _core.Tensor(
        name,
        tensor.dtype,
        tensor.item_bytes,
        tensor.address,
        tensor.sizes,
        tensor.strides,
        tensor.storage_address,
        tensor.storage_bytes,
        **flags,
    )
