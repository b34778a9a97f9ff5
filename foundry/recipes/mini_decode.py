"""Decode graphs of the mini engine on the simulated driver: saved in one process, restored in the next.

    foundry run --save -- python -m foundry.recipes.mini_decode --save --archive decode.fdry --json save.json
    python -m foundry.recipes.mini_decode --load --archive decode.fdry --json load.json --drift

The simulated driver comes with the package; both processes find it by

    export LD_LIBRARY_PATH=$(python -m foundry.recipes.simulated)

FOUNDRY_SIM_DEVICE names its GPU: h100 (the default), h200, a100-40gb, a100-80gb.

Exit code: 0 if the graphs were saved, restored or captured as asked; 1 otherwise.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import os
import random
import struct
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import foundry
from foundry.recipes import simulated
from foundry.recipes.mini_engine.engine import EngineConfig, MiniEngine, Row
from foundry.recipes.mini_engine.with_foundry import FoundryEngine

PROMPTS = [[1, 2, 3], [7, 8, 9, 10, 11], [(13 * i) % 256 for i in range(40)]]


class DriftingEngine(FoundryEngine):
    """Allocates otherwise than the engine that saved: before the start, between phases and inside one."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.keep = [self.device.empty((n,)) for n in (70_000, 3, 900_000, 12)]

    def weight_order(self) -> list[str]:
        """The other way round."""
        return super().weight_order()[::-1]

    def create_cache(self) -> None:
        """After a few allocations that SAVE does not make."""
        super().create_cache()
        self.keep.append(self.device.empty((2 << 20,), "uint8"))


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m foundry.recipes.mini_decode", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    mode = parser.add_mutually_exclusive_group(required=True)
    for name in ("save", "load", "native"):
        mode.add_argument(f"--{name}", dest="mode", action="store_const", const=name)
    parser.add_argument("--archive", default="decode.fdry")
    parser.add_argument("--json", metavar="FILE", help="write the results there")
    parser.add_argument("--drift", action="store_true", help="allocate more, and weights in another order")
    parser.add_argument(
        "--on-mismatch", choices=("fallback", "fail"), help="default: FOUNDRY_ON_MISMATCH, else fallback"
    )
    return parser.parse_args(argv)


def fill_caches(engine: MiniEngine) -> None:
    """The same content in every process: what earlier steps left there depends on what was run."""
    numbers = random.Random(3)
    piece = struct.pack("<4096f", *(numbers.uniform(-1, 1) for _ in range(4096)))
    for array in (*engine.model.keys, *engine.model.values):
        array.upload((piece * (array.nbytes // len(piece) + 1))[: array.nbytes])


def every_size(engine: MiniEngine) -> dict[str, str]:
    """A hash of the logits and tokens (likeliest and drawn) of every graph, over two rounds of inputs."""
    found = {}
    pages = engine.config.model.max_pages
    fill_caches(engine)
    for size, graph in engine.graphs.items():
        for round_ in range(2):
            rows = [
                # Two cache pages of its own for every row.
                Row((7 * i + round_) % engine.config.model.vocabulary, i % 32, [2 * i, 2 * i + 1, *[0] * (pages - 2)])
                for i in range(size)
            ]
            for storage in {id(a.storage): a.storage for a in (graph.outputs.logits, graph.outputs.tokens)}.values():
                # A replay that does nothing must not pass.
                engine.device.driver.memset8_async(storage.address, 0, storage.nbytes, engine.device.stream)
            engine.device.generator.manual_seed(size + round_)
            outputs = engine.step(rows)
            parts = (outputs.logits, outputs.tokens, outputs.sampled)
            found[f"{size}/{round_}"] = hashlib.sha256(b"".join(part.to_bytes() for part in parts)).hexdigest()
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the recipe; returns the exit code."""
    options = arguments(argv)
    logging.getLogger("foundry").addHandler(logging.NullHandler())  # the report is printed below
    mode = "off" if options.mode == "native" else options.mode
    kind = DriftingEngine if options.drift else FoundryEngine
    try:
        engine = kind(simulated.folder(), EngineConfig(), options.archive, mode, on_mismatch=options.on_mismatch)
        begin = time.perf_counter()
        engine.start()
        start = time.perf_counter() - begin
    except (foundry.FoundryError, OSError) as problem:
        print(problem, file=sys.stderr)
        if "libcuda" in str(problem) and not isinstance(problem, foundry.FoundryError):
            print("Set LD_LIBRARY_PATH to the simulated driver: see --help.", file=sys.stderr)
        return 1
    report = engine.session.report
    results: dict[str, Any] = {
        "mode": options.mode,
        "outcome": report.outcome,
        "device": engine.device.name,
        "preload": os.environ.get("LD_PRELOAD", ""),
        "graphs": len(engine.graphs),
        "restored": len(report.restored),
        "fell_back": report.fell_back,
        "left_out": report.left_out,
        "differences": report.differences,
        "reseated": [r.name for r in report.reseated],
        "warnings": report.warnings,
        "nodes": report.nodes,
        "images": report.images,
        "mapped_bytes": report.mapped_bytes,
        "content_bytes": report.content_bytes,
        "start_ms": round(start * 1e3, 3),
        "milliseconds": {name: round(value, 3) for name, value in report.milliseconds.items()},
        "outputs": every_size(engine),
        "tokens": engine.generate(PROMPTS, 12),
        "tokens_eager": engine.generate(PROMPTS, 12, eager=True),
    }
    for key, eager in (("sampled", False), ("sampled_eager", True)):
        engine.device.generator.manual_seed(5)
        results[key] = engine.generate(PROMPTS, 12, eager=eager, sampled=True)
    good = report.outcome == {"save": "saved", "load": "restored", "native": "off"}[options.mode]
    good = good and not report.left_out and not report.fell_back
    if options.mode == "save" and good:
        results["archive_bytes"] = sum(f.stat().st_size for f in Path(report.archive).rglob("*") if f.is_file())
    print(report)
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=1) + "\n")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
