"""A small start of the mini engine for tests: one process, one mode; what it found goes to a JSON file."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import foundry
from foundry.recipes import simulated
from foundry.recipes.mini_engine.engine import EngineConfig
from foundry.recipes.mini_engine.with_foundry import FoundryEngine

SIZES = (1, 4)
PROMPTS = [[1, 2, 3], [9, 8, 7, 6]]


def exports(engine: FoundryEngine) -> dict[str, Any]:
    """The persistent output of forwards as this process has it right after its start."""
    hidden = engine.session.exported("hidden_states")
    return {
        "address": hidden.address,
        "shape": list(hidden.shape),
        "content": hashlib.sha256(hidden.to_bytes()).hexdigest(),
        "zero": not any(hidden.to_bytes()),
        "same": engine.model.hidden_states is hidden,
    }


def main(mode: str, archive: str, out: str, *options: str) -> None:
    """Runs the start and writes results."""
    engine = FoundryEngine(simulated.folder(), EngineConfig(batch_sizes=SIZES), archive, mode)
    results: dict[str, Any] = {}
    try:
        engine.start()
    except foundry.FoundryError as problem:
        results["error"] = str(problem)
    else:
        results["export"] = exports(engine)
        results["tokens"] = engine.generate(PROMPTS, 6)
        results["eager"] = engine.generate(PROMPTS, 6, eager=True)
        # The last row of the last step, which the export holds, was computed by a restored graph.
        results["hidden_after"] = hashlib.sha256(engine.model.hidden_states.to_bytes()).hexdigest()  # type: ignore[union-attr]
    report = engine.session.report
    results |= {"outcome": report.outcome, "left_out": report.left_out, "warnings": report.warnings}
    Path(out).write_text(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
