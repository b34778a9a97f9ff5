"""What the recipes for SGLang share: the command line, and what is printed."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from foundry.recipes.engines import sglang_probe, sglang_process
from foundry.recipes.engines.runs import Results, Runs, console, equal_tokens, parser, passed, replays, table

MODULE = "foundry.recipes.engines.sglang_process"


def arguments(
    name: str, text: str | None, argv: Sequence[str] | None, native: bool = False
) -> tuple[argparse.Namespace, Runs]:
    """The command line of a recipe, and the runs that it asks for."""
    made = parser(name, text, "sglang.fdry", sglang_process.add_options)
    if native:
        made.add_argument("--native", action="store_true", help="start a native engine too and compare tokens")
    options = made.parse_args(argv)
    return options, Runs(MODULE, passed(options, sglang_process.add_options), options.archive, options.folder)


def count(results: Results, kind: str, during: str = "") -> int:
    """How many captures or compilations there were: all, or those of a phase."""
    return sum(line["kind"] == kind and during in ("", line["during"]) for line in results["probe"])


def seconds(results: Results, *phases: str) -> float:
    """Of phases of the start."""
    return sum(
        float(line["seconds"]) for line in results["probe"] if line["kind"] == "phase" and line["name"] in phases
    )


def compiled_for_decode(results: Results) -> list[str]:
    """What was compiled while graphs were captured or restored, and in steps of decode."""
    return [
        line["name"]
        for line in results["probe"]
        if line["kind"] in COMPILED and line["during"] in (*GRAPHS, sglang_probe.DECODE)
    ]


COMPILED = {"triton": "Triton kernels", "launcher": "Triton launchers", "module": "CUDA modules"}
GRAPHS = ("init_device_graphs", "init_cuda_graphs")
PHASES = {
    "weights": ("load_model",),
    "KV cache": ("init_memory_pool", "alloc_memory_pool"),
    "attention": ("init_attention_backend", "init_attention_backends"),
    "captures, or restore": GRAPHS,
}


def starts(runs: dict[str, Results]) -> None:
    """Seconds and counts of each start, side by side."""
    rows = [("engine start, s", *(f"{run['seconds']['engine_init']:.1f}" for run in runs.values()))]
    rows += [(f"  {name}", *(f"{seconds(run, *p):.2f}" for run in runs.values())) for name, p in PHASES.items()]
    rows.append(("first token after that, s", *(f"{run['seconds']['first_token']:.2f}" for run in runs.values())))
    rows.append(("graphs captured", *(str(count(run, "capture")) for run in runs.values())))
    for kind, name in COMPILED.items():
        rows.append((f"{name} compiled", *(str(count(run, kind)) for run in runs.values())))
        rows.append(
            ("  while capturing", *(str(sum(count(run, kind, phase) for phase in GRAPHS)) for run in runs.values()))
        )
        rows.append(("  in steps of decode", *(str(count(run, kind, sglang_probe.DECODE)) for run in runs.values())))
    rows += [
        (f"ms a step, batch {batch}", *(f"{run['ms_per_token'].get(batch, 0):.3f}" for run in runs.values()))
        for batch in next(iter(runs.values()))["ms_per_token"]
    ]
    table(("", *runs), rows)


def tokens(first: Results, second: Results) -> bool:
    """Prints and returns whether greedy tokens are equal, in every set of prompts."""
    compared = equal_tokens(first["tokens"], second["tokens"])
    for name, (same, total) in compared.items():
        label = name if "prompts" in name else f"batch {name}"
        console.print(f"{label}: {same} of {total} answers have equal tokens")
    return all(same == total for same, total in compared.values())


def in_process(results: Results) -> bool:
    """Prints how restored graphs and native ones of one process compare; whether their tokens are equal."""
    replays(results["replays"], "native replay, ms", "restored")
    replays(results["steps"], "native step, ms", "restored")
    different = [batch for batch, equal in results["equal_in_process"].items() if not equal]
    if different:
        console.print(f"tokens of native graphs of the same process differ: batch {', '.join(different)}")
    return not different
