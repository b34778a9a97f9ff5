"""What the recipes for vLLM share: the command line, and the table of starts."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from foundry.recipes.engines import vllm_process
from foundry.recipes.engines.runs import Results, Runs, parser, passed, table

MODULE = "foundry.recipes.engines.vllm_process"


def arguments(name: str, text: str | None, argv: Sequence[str] | None) -> tuple[argparse.Namespace, Runs]:
    """The command line of a recipe, and the runs that it asks for."""
    options = parser(name, text, "vllm.fdry", vllm_process.add_options).parse_args(argv)
    return options, Runs(MODULE, passed(options, vllm_process.add_options), options.archive, options.folder)


STEPS = (
    ("imports", "imports"),
    ("engine_init", "engine init"),
    ("load_model", "  of that, weights"),
    ("profile_run", "  profile run"),
    ("capture_model", "  capture"),
    ("first_token", "first token after that"),
    ("start_to_first_token", "process start to first token"),
)


def starts(runs: dict[str, Results]) -> None:
    """Seconds of the start side by side, and what ran in it."""
    rows = [(f"{text}, s", *(f"{run['seconds'].get(key, 0.0):.2f}" for run in runs.values())) for key, text in STEPS]
    rows.append(("graphs captured in the start", *(str(run["in_start"]["captures"]) for run in runs.values())))
    rows.append(("forwards in the start that serve nobody", *(str(r["in_start"]["dummy_runs"]) for r in runs.values())))
    table(("", *runs), rows)
