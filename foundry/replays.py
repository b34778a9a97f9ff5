"""Replays at the end of SAVE: is a stale word padding, what is an input that nobody registered, golden runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from foundry import _core

if TYPE_CHECKING:
    from foundry.runtime import NativeGraph, Runtime

log = logging.getLogger("foundry")

# Native replays of a golden run: the first is the reference, the others show how far replays differ.
GOLDEN_REPLAYS = 4


class Replays:
    """Replays of captured graphs with the memory that `saver` keeps put back before each, and the generator after all.

    Each finds small inputs as they were when it was captured: those of another graph may send its kernels anywhere.
    """

    def __init__(self, saver: _core.Saver, runtime: Runtime) -> None:
        self._saver = saver
        self._runtime = runtime

    def prove_padding(self, graph: int, native: NativeGraph) -> str:
        """Replays with the freed memory that the graph may point to as it is, then with patterns in it.

        Returns why the words may be pointers, or "" if nothing depends on that memory. What a replay or the driver
        fails with ends the proof, too.
        """
        self._saver.keep_state()
        generator = self._runtime.draw(0)
        try:
            return self._depends(graph, self._replayer(graph, native, generator, self._saver.restore_state))
        except Exception as problem:  # noqa: BLE001 - a framework raises what it likes; the graph is left out for it
            log.debug("proof of padding", exc_info=True)
            return f"the test ended with {type(problem).__name__}: {problem}"
        finally:
            # After an error of the device nothing can be put back, and the next step of SAVE reports that.
            with suppress(_core.FoundryError):
                self._saver.heal()
                self._saver.restore_state()
            self._runtime.set_generator(*generator)

    def _depends(self, graph: int, replay: Callable[[], None]) -> str:
        def result() -> str:
            replay()
            return self._saver.fingerprint(graph)

        self._saver.expose(graph)
        before = result()
        if not before:
            return "the graph has no outputs that a test could compare"
        if result() != before:
            return (
                "its outputs differ from replay to replay, so a test with other content in that memory proves nothing"
            )
        for pattern in range(_core.POISON_PATTERNS):
            self._saver.poison(pattern)
            if result() != before:
                return "its outputs change with the content of that memory, so a kernel reads it"
            if not self._saver.untouched():
                return "a replay writes to that memory"
        return ""

    def find_inputs(self, graphs: Mapping[int, NativeGraph]) -> None:
        """Graphs that read memory which changed since captures, replayed with what it holds and with what it held.

        What no replay writes is an input, unless results depend neither on that nor on any other content: memory may only
        look as if a graph used it. Tells the saver why a graph may depend on it. Generator and memory are as before, but for
        mutable tensors that are too large to be put back each time.
        """
        generator = self._runtime.draw(0)
        try:
            self._find_inputs(graphs, generator)
        except Exception as problem:  # noqa: BLE001 - a framework raises what it likes; the graphs are left out for it
            log.debug("test of inputs", exc_info=True)
            for graph in graphs:
                self._saver.settle_inputs(graph, f"the test ended with {type(problem).__name__}: {problem}")
        finally:
            with suppress(_core.FoundryError):
                self._saver.heal()
                self._saver.put_inputs(False)
            self._runtime.set_generator(*generator)

    def _find_inputs(self, graphs: Mapping[int, NativeGraph], generator: tuple[int, int]) -> None:
        def results(earlier: bool, pattern: int | None = None) -> dict[int, str]:
            self._saver.put_inputs(earlier)
            if pattern is not None:
                self._saver.poison(pattern)
            found = {}
            for graph, native in graphs.items():
                self._saver.put_capture_inputs(graph)
                self._runtime.set_generator(*generator)
                native.replay()
                self._runtime.synchronize()
                found[graph] = self._saver.output_fingerprint(graph)
            return found

        now = results(False)
        self._saver.note_writes(False)
        then = results(True)
        self._saver.note_writes(True)
        unwritten = self._saver.unwritten_inputs()
        if not unwritten:
            return
        again = results(False)
        settle = self._saver.settle_inputs
        for graph in unwritten:
            if not now[graph]:
                settle(graph, "it has no outputs that a test could compare")
            elif again[graph] != now[graph]:
                settle(graph, "its outputs differ from replay to replay, so a test with other content proves nothing")
            elif then[graph] != now[graph]:
                settle(graph, "its outputs change with what that memory holds")
        # Known inputs keep their content: another one may send kernels anywhere.
        for pattern in range(_core.POISON_PATTERNS):
            self._saver.put_inputs(False)
            exposed = self._saver.expose_inputs()
            if not exposed:
                return
            other = results(False, pattern)
            self._saver.heal()
            for graph in exposed:
                if other[graph] != now[graph]:
                    settle(graph, "its outputs change with what that memory holds")

    def golden(self, graph: int, native: NativeGraph) -> None:
        """Records what the graph computes from the kept state and its capture inputs, and how far native replays differ."""
        seed, offset = generator = self._runtime.draw(0)
        replay = self._replayer(graph, native, generator, self._saver.prepare_golden)
        try:
            for _ in range(GOLDEN_REPLAYS):
                replay()
                self._saver.observe_golden(graph, seed, offset)
        finally:
            self._runtime.set_generator(*generator)

    def _replayer(
        self, graph: int, native: NativeGraph, generator: tuple[int, int], prepare: Callable[[], None]
    ) -> Callable[[], None]:
        def replay() -> None:
            prepare()
            self._saver.put_capture_inputs(graph)
            self._runtime.set_generator(*generator)
            native.replay()
            self._runtime.synchronize()

        return replay
