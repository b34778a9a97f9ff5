"""One start of the mini engine in one mode: what became of it, as JSON.

    python -m tests.integration.story.drive load ARCHIVE RESULTS --kind MODULE:CLASS ...

The kinds are combined, the first one's methods first. A refusal that the session raises is a result, not a failure.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import foundry
from foundry.recipes import simulated
from foundry.recipes.mini_decode import PROMPTS, every_size
from foundry.recipes.mini_engine.engine import EngineConfig, MiniEngine
from foundry.recipes.mini_engine.model import ModelConfig
from tests.integration.story.engines import StoryEngine, footprint


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=("save", "load", "auto", "off"))
    parser.add_argument("archive")
    parser.add_argument("results", type=Path)
    parser.add_argument("--kind", action="append", default=[], metavar="MODULE:CLASS")
    parser.add_argument("--on-mismatch", default="fallback")
    parser.add_argument("--strict", action="store_true")
    parser.add_argument("--ordinal", type=int, default=0)
    parser.add_argument("--load-threads", type=int, default=1)
    parser.add_argument("--max-length", type=int, default=ModelConfig.max_length)
    parser.add_argument("--again", action="store_true", help="after a start that failed, another in the same process")
    parser.add_argument("--field", action="append", default=[], metavar="NAME=VALUE")
    return parser.parse_args()


def engine_class(kinds: list[str]) -> type[StoryEngine]:
    """The engine that is of all these kinds."""
    bases = []
    for kind in kinds:
        module, name = kind.split(":")
        bases.append(getattr(importlib.import_module(module), name))
    return type("Engine", (*bases, StoryEngine), {})


def main() -> int:
    options = arguments()
    results: dict[str, Any] = {"device": os.environ.get("FOUNDRY_SIM_DEVICE", "")}
    config = EngineConfig(model=ModelConfig(max_length=options.max_length), load_threads=options.load_threads)

    def engine_of(kinds: list[str]) -> StoryEngine:
        fields = {"max_length": options.max_length, **dict(field.split("=", 1) for field in options.field)}
        return engine_class(kinds)(
            simulated.folder(), config, options.archive, options.mode, ordinal=options.ordinal,
            on_mismatch=options.on_mismatch, strict=options.strict, fields=fields,
        )  # fmt: skip

    engine = engine_of(options.kind)
    before = footprint()
    try:
        engine.start()
    except foundry.FoundryError as problem:
        results["error"] = {"kind": problem.kind, "sentence": str(problem)}
    except BaseException as problem:  # an interrupt, too
        results["error"] = {"kind": type(problem).__name__, "sentence": str(problem)}
    report = engine.session.report
    results |= {"report": dataclasses.asdict(report), "text": str(report), "notes": copy.deepcopy(engine.notes)}
    results["footprint"] = {"before": before, "begun": engine.notes.get("begun"), "after": footprint()}
    serving: MiniEngine = engine
    if "error" in results and options.again:  # the process goes on as if nothing had happened
        serving = again = engine_of([])
        again.start()
        results["again"] = dataclasses.asdict(again.session.report)
    elif "error" in results:  # ... or without Foundry
        serving = MiniEngine(simulated.folder(), config, options.ordinal)
        serving.start()
    else:
        engine.before_serving()
    results["outputs"] = every_size(serving)
    for key, eager in (("tokens", False), ("tokens_eager", True)):
        results[key] = serving.generate(PROMPTS, 8, eager=eager)
        serving.device.generator.manual_seed(5)
        results[f"sampled_{key}"] = serving.generate(PROMPTS, 8, eager=eager, sampled=True)
    results["served"] = engine.after_serving()
    options.results.write_text(json.dumps(results, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
