"""What the recipes for vLLM share: the command line, and the tables at the end."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from foundry.recipes.engines import vllm_process
from foundry.recipes.engines.runs import Results, Runs, console, table
from foundry.text import count, size

MODULE = "foundry.recipes.engines.vllm_process"


def arguments(name: str, text: str | None, argv: Sequence[str] | None) -> tuple[argparse.Namespace, Runs]:
    """The command line of a recipe, and the runs that it asks for."""
    parser = argparse.ArgumentParser(
        prog=f"python -m foundry.recipes.{name}", description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--archive", default="vllm.fdry", help="directory of the archive (default: %(default)s)")
    parser.add_argument("--folder", help="keep logs and results there (default: a temporary folder)")
    vllm_process.add_options(parser)
    options = parser.parse_args(argv)
    known = argparse.ArgumentParser()
    vllm_process.add_options(known)
    passed = []
    for action in known._actions:
        value = getattr(options, action.dest, None)
        if not action.option_strings or action.dest == "help" or value in (None, False):
            continue
        passed.append(action.option_strings[0])
        passed += [] if value is True else list(map(str, value)) if isinstance(value, list) else [str(value)]
    return options, Runs(MODULE, passed, options.archive, options.folder)


def summary(results: Results) -> None:
    """What Foundry did, in a few lines."""
    done = results["foundry"]
    if done["outcome"] == "saved":
        console.print(
            f"saved {count(done['saved'], 'graph')} to {done['archive']} ({size(done['archive_bytes'])}), "
            f"{count(len(done['left_out']), 'graph')} left out",
            markup=False,
        )
    elif done["outcome"] == "restored":
        console.print(
            f"restored {count(done['restored'], 'graph')} from {done['archive']}: {done['in_place']} tensors in place, "
            f"{done['reseated']} re-seated, {size(done['mapped_bytes'])} mapped, "
            f"{size(done['content_bytes'])} of content",
            markup=False,
        )
    else:
        console.print(f"no graph was saved or restored: {done.get('reason') or done['outcome']}", markup=False)
    for name, why in {**done.get("left_out", {}), **done.get("fell_back", {})}.items():
        console.print(f"  {name}: {why if isinstance(why, str) else ' '.join(why)}", markup=False)


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
