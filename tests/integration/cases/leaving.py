"""A start of the story's engine whose process ends, or forks, while graphs are restored or afterwards.

python -m tests.integration.cases.leaving WHAT ARCHIVE RESULTS; the simulator's faults make the restore slow.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def _at_last() -> None:
    """Runs after all exit handlers of Foundry: first come, last served."""
    if ending is not None:
        ending.write_text(json.dumps({"threads": len(os.listdir("/proc/self/task")), "sources": sources}))


ending: Path | None = None
sources: list[str] = []
atexit.register(_at_last)

import foundry  # noqa: E402
from foundry.recipes import simulated  # noqa: E402
from foundry.recipes.mini_decode import PROMPTS  # noqa: E402
from foundry.recipes.mini_engine.engine import EngineConfig  # noqa: E402
from foundry.recipes.mini_engine.model import ModelConfig  # noqa: E402
from tests.integration.story.engines import StoryEngine  # noqa: E402


class LeavingEngine(StoryEngine):
    """`leave` is called when every graph was asked for and none was waited for."""

    leave: Callable[[], None] = staticmethod(lambda: None)

    def capture_all(self) -> None:
        super().capture_all()
        self.leave()


def refused(what: Callable[[], Any]) -> str:
    """The sentence that it is refused with, without waiting for anything."""
    begun = time.monotonic()
    try:
        what()
    except foundry.FoundryError as problem:
        assert time.monotonic() - begun < 5, "it waited"
        return f"{problem.kind}: {problem}"
    return "it went well"


def child(engine: LeavingEngine) -> dict[str, str]:
    """Whatever a fork may try."""
    from foundry import _core

    s = engine.session
    graph = engine.graphs[8]
    # A native graph's replay is the framework's business.
    replays = {} if graph.source == "native" else {"replay": refused(graph.replay)}
    return {
        **replays,
        "graph": refused(lambda: s.graph("new", lambda: None)),
        "register": refused(lambda: s.register("new", engine.model.weights["norm"])),
        "wait": refused(s.wait),
        "finish": refused(s.finish),
        "event": refused(lambda: s.event("step")),
        "end": refused(s.end),
        "zones": refused(_core.zones),
    }


def fork(engine: LeavingEngine, results: Path) -> int:
    """Returns the exit code of a fork that tries everything and then ends as any Python program does."""
    pid = os.fork()
    if pid == 0:
        results.write_text(json.dumps(child(engine)))
        sys.exit(7)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return -1


def main(what: str, archive: str, out: str) -> int:
    """what: "exit", "fork while restoring", "fork while saving", "fork"."""
    mode = "save" if what == "fork while saving" else "load"
    results, forked = Path(out), Path(f"{out}.child")
    engine = LeavingEngine(
        simulated.folder(), EngineConfig(model=ModelConfig()), archive, mode,
        fields={"max_length": ModelConfig.max_length},
    )  # fmt: skip
    if what == "exit":
        global ending
        ending = results
        engine.session.begin()
        sources.append(engine.session.graph("decode/8", lambda: None).source)
        return 5
    codes: list[int] = []
    if what != "fork":
        engine.leave = lambda: codes.append(fork(engine, forked))  # type: ignore[method-assign]
    engine.start()
    if what == "fork":
        codes.append(fork(engine, forked))
    (code,) = codes
    found = {
        "code": code,
        "child": json.loads(forked.read_text()) if forked.exists() else {},
        "outcome": engine.session.report.outcome,
        "restored": engine.session.report.restored,
        "equal": engine.generate(PROMPTS, 4) == engine.generate(PROMPTS, 4, eager=True),
    }
    results.write_text(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
