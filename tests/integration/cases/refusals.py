"""Enters a LOAD session for every archive of a folder, one after the other in one process, and says what became of it.

    python -m tests.integration.cases.refusals FOLDER RESULTS

Then, as a process that lives, it serves natively.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import foundry
from foundry.recipes import simulated
from foundry.recipes.mini_decode import PROMPTS
from foundry.recipes.mini_engine.device import Device
from foundry.recipes.mini_engine.engine import EngineConfig, MiniEngine
from foundry.recipes.mini_engine.model import ModelConfig
from foundry.recipes.mini_engine.runtime import MiniRuntime
from tests.integration.story.engines import footprint


def enter(archive: Path, runtime: MiniRuntime, fields: dict[str, Any], on_mismatch: str) -> dict[str, Any]:
    """What entering gives. A session that is entered is left by an exception, and then everything is let go, too."""
    session = foundry.session(
        archive, "load", runtime=runtime, on_mismatch=on_mismatch, fingerprint=fields
    )  # fmt: skip
    before = footprint()
    found: dict[str, Any] = {}
    try:
        with session:
            found["outcome"], found["reason"] = session.report.outcome, session.report.reason
            found["kept"] = footprint() != before
            if session.report.outcome == "loading":
                raise InterruptedError
    except InterruptedError:
        pass
    except foundry.FoundryError as problem:
        found |= {"outcome": "raised", "kind": problem.kind, "reason": str(problem)}
    found["left"] = {key: value for key, value in footprint().items() if value != before[key]}
    return found


def main() -> None:
    folder, results = Path(sys.argv[1]), Path(sys.argv[2])
    config = EngineConfig(model=ModelConfig())
    fields = {"model": repr(config.model), "batch_sizes": list(config.batch_sizes), "max_length": 256}
    runtime = MiniRuntime(Device())
    found: dict[str, Any] = {
        archive.name: {how: enter(archive, runtime, fields, how) for how in ("fallback", "fail")}
        for archive in sorted(folder.iterdir())
    }
    engine = MiniEngine(simulated.folder(), config)
    engine.start()
    found["tokens"] = engine.generate(PROMPTS, 8)
    results.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
