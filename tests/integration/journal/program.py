"""The mini engine with 2 MiB more, or not, in the weights' phase: one process of test_diff.py.

usage: program.py save|load ARCHIVE RESULTS none|after|before
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from foundry.recipes import simulated
from foundry.recipes.mini_engine.arrays import DeviceArray
from foundry.recipes.mini_engine.engine import EngineConfig
from foundry.recipes.mini_engine.with_foundry import FoundryEngine

MIB = 1 << 20
PROMPTS = [[1, 2, 3], [7, 8, 9, 10, 11]]


class Engine(FoundryEngine):
    """`extra` says when the 2 MiB are allocated. "before" gives them back once the weights are there."""

    extra = "none"

    def load_weights(self) -> None:
        kept = self.allocate_extra() if self.extra == "before" else []
        super().load_weights()
        kept.clear()
        self.kept = self.allocate_extra() if self.extra == "after" else []

    def allocate_extra(self) -> list[DeviceArray]:
        """What fills a segment of 2 MiB of its own."""
        return [self.device.empty((MIB,), "uint8") for _ in range(2)]


def main() -> None:
    mode, archive, results, extra = sys.argv[1:]
    Engine.extra = extra
    engine = Engine(simulated.folder(), EngineConfig(batch_sizes=(1, 2, 21)), archive, mode)
    engine.start()
    report = engine.session.report
    found = {
        "outcome": report.outcome,
        "restored": report.restored,
        "reseated": [moved.name for moved in report.reseated],
        "divergence": report.divergence,
        "warnings": report.warnings,
        "text": str(report),
        "tokens": engine.generate(PROMPTS, 8),
        "eager": engine.generate(PROMPTS, 8, eager=True),
    }
    Path(results).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
