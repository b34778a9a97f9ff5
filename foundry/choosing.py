"""How a session begins: what it was asked for, and the choice between SAVE, LOAD and native."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from foundry import modes, tracing
from foundry.anchors import Anchors
from foundry.attachments import Attachments
from foundry.errors import DAMAGED, error
from foundry.exports import Events, Exports
from foundry.home import Home
from foundry.native import Backend, NativeBackend

if TYPE_CHECKING:
    from foundry.fingerprint import Fingerprint
    from foundry.report import Report
    from foundry.runtime import Runtime

log = logging.getLogger("foundry")


@dataclass(frozen=True)
class Options:
    """What `foundry.session` was asked for; the environment's answers are in it."""

    mode: modes.Mode
    path: str  # "" with mode "off"
    fail: bool  # whatever cannot be restored raises
    strict: bool
    fingerprint: Mapping[str, object] | None
    golden: bool  # of all graphs
    verify: bool
    compact: bool
    exec_budget: int  # bytes; 0 is no bound

    @classmethod
    def chosen(
        cls,
        path: str | os.PathLike[str] | None,
        mode: str,
        on_mismatch: str | None,
        strict: bool,
        fingerprint: Mapping[str, object] | None,
        golden: bool | None,
        verify: bool | None,
        compact: bool | None,
        exec_budget: int | None,
    ) -> Options:
        """From the arguments of `foundry.session`. Raises ValueError for what makes no sense."""
        known = modes.chosen_mode(mode)
        return cls(
            mode=known,
            path="" if known == "off" else modes.chosen_path(path),
            fail=modes.chosen_reaction(on_mismatch) == "fail",
            strict=strict,
            fingerprint=fingerprint,
            golden=modes.chosen_golden(golden),
            verify=modes.chosen_verify(verify),
            compact=modes.chosen_compact(compact),
            exec_budget=modes.chosen_exec_budget(exec_budget),
        )


@dataclass(frozen=True)
class Declared:
    """What the program declares while a session is open."""

    anchors: Anchors = field(default_factory=Anchors)
    exports: Exports = field(default_factory=Exports)
    events: Events = field(default_factory=Events)
    attachments: Attachments = field(default_factory=Attachments)
    golden: set[str] = field(default_factory=set)  # graphs whose golden runs SAVE records


class Beginning:
    """The begin of one session. `home` is the process it works in, where CUDA is used."""

    def __init__(self, options: Options, declared: Declared, runtime: Callable[[], Runtime], report: Report) -> None:
        self._options = options
        self._declared = declared
        self._runtime = runtime
        self._report = report
        self.home: Home | None = None

    def backend(self) -> Backend:
        """What does the session's work.

        Raises FoundryError, or ImportError, only for what must not end in native capture: mode "save" and
        on_mismatch="fail".
        """
        options = self._options
        if options.mode == "off":
            return NativeBackend(self._runtime, self._report)
        try:
            from foundry import _core
        except ImportError as problem:
            if options.mode == "save" or options.fail:
                raise
            return self._go_native(f"Foundry's extension cannot be loaded ({problem})")
        try:
            return self._choose()
        except _core.FoundryError as problem:
            if options.mode == "save" or options.fail:
                self._report.outcome, self._report.reason = "failed", str(problem)
                raise
            return self._go_native(str(problem))

    def _choose(self) -> Backend:
        from foundry import _core, fingerprint

        options, report = self._options, self._report
        reason = _core.driver_available()
        if reason is not None:
            raise error("driver", reason)
        if os.environ.get(tracing.VARIABLE):
            tracing.begin(os.environ[tracing.VARIABLE])
        runtime = self._runtime()
        self.home = Home()
        device = runtime.device()
        with report.step("fingerprint"):
            here = fingerprint.take(runtime, device, options.fingerprint)
            decision = modes.decide(options.mode, options.path, here)
        report.archive, report.reason = decision.path, decision.reason
        report.mismatches = decision.mismatches
        if decision.action == "native":
            if options.fail:
                raise error("mismatch", f"{decision.reason}\n{fingerprint.mismatch_table(decision.mismatches)}")
            return self._go_native(decision.reason)
        if decision.action == "load":
            can_save = options.mode == "auto" and modes.hook_present() and _can_be_saved(decision.path)
            try:
                if can_save:
                    self._check_images(decision)
                return self._load(decision, runtime, device)
            except _core.FoundryError as problem:
                if problem.kind not in DAMAGED or not can_save:
                    raise
                # As for one that cannot even be read: otherwise no start with "auto" would ever mend it.
                log.warning("the archive is saved anew: %s", problem)
                report.notes, report.warnings = {}, []
        return self._save(decision, runtime, device, here)

    def _save(self, decision: modes.Decision, runtime: Runtime, device: int, here: Fingerprint) -> Backend:
        from foundry.saving import SaveBackend

        _try_place(decision.path)
        backend = SaveBackend(
            decision.path,
            runtime,
            device,
            here,
            self._declared.anchors,
            self._declared.exports,
            self._declared.events,
            self._declared.attachments,
            self._declared.golden,
            self._report,
            self._options.strict,
            self._options.compact,
            self._options.mode == "auto",
        )
        self._report.outcome = "saving"
        return backend

    def _check_images(self, decision: modes.Decision) -> None:
        """Reads code images too, which a LOAD does while graphs are restored: too late to save anew what is damaged."""
        from foundry import _core
        from foundry.saving import RANK

        assert decision.manifest is not None
        with self._report.step("images"), named(decision.path):
            _core.Archive(decision.path, RANK, list(decision.manifest.inventory)).verify_images()

    def _load(self, decision: modes.Decision, runtime: Runtime, device: int) -> Backend:
        from foundry import _core
        from foundry.loading import LoadBackend

        assert decision.manifest is not None  # it was compared
        self._report.notes = dict(decision.manifest.notes)
        self._report.warnings += _core.archive_warnings(decision.path)
        with named(decision.path):
            backend = LoadBackend(
                decision.path,
                decision.manifest,
                runtime,
                device,
                self._declared.anchors,
                self._report,
                self._options.fail,
                self._options.verify,
                self._options.exec_budget,
            )
        self._report.outcome = "loading"
        return backend

    def _go_native(self, reason: str) -> Backend:
        self._report.outcome, self._report.reason = "native", reason
        log.warning("%s", self._report)
        return NativeBackend(self._runtime, self._report)


@contextmanager
def named(archive: str) -> Iterator[None]:
    """The core names files by their places in the archive: errors get to say which archive that is."""
    from foundry import _core

    try:
        yield
    except _core.FoundryError as problem:
        if problem.kind not in DAMAGED or f"{archive}/" in str(problem):
            raise
        raise error(problem.kind, f"{archive}: {problem}") from None


def _can_be_saved(archive: str) -> bool:
    """Where nothing can be written, what is whole of a damaged archive is of more use than a SAVE that is refused."""
    from foundry import _core

    try:
        _try_place(archive)
    except _core.FoundryError:
        return False
    return True


def _try_place(archive: str) -> None:
    """Whether an archive can be made there: at the end of a start that takes minutes is too late to learn that it cannot.

    Raises FoundryError.
    """
    from foundry import _core

    try:
        _core.Staging(archive).discard()
    except _core.FoundryError as problem:
        advice = " Make that folder, or choose another path for the archive." if problem.kind == "io" else ""
        raise error(problem.kind, f"no archive can be saved as {archive}: {problem}{advice}") from None
