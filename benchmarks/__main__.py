"""Native capture, restore, the driver's own floor, replays and scaling, in turns: medians and spread.

    python -m benchmarks --archive decode.fdry --json results.json

Saves `torch_decode` to the archive if it is not there yet, and what the parts `compact` and `content` need to others
beside it. Every trial runs in a process of its own, forked from one that has imported PyTorch and not touched the GPU;
rounds go through all trials in turn. Needs a GPU and PyTorch.

Rows `loop` are the floor: the same nodes added and instantiated by nothing but driver calls. `cold` is the first pass of
a process, `warm` the last one, when the driver's pools have room.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import forks, memory, sizes, tables, trials

# How `restore` may be spread over threads (RestoreTuning in csrc/graph/restore.h); the first one is the default.
TUNINGS: Mapping[str, Mapping[str, int]] = {
    "restore": {},
    "restore, heaps as they are": {"grow_heaps": 0},
}
LOOPS: Mapping[str, Mapping[str, int]] = {
    "loop": {"image_threads": 8},
    "loop, 2 threads": {"image_threads": 8, "threads": 2},
    "loop, by kernel": {"image_threads": 8, "by_kernel": 1},
    "loop, edges with nodes": {"image_threads": 8, "edges_with_nodes": 1},
}
SCALES = ((16, 300), (67, 300), (256, 300), (1024, 300), (16, 3000), (67, 3000))
PARTS = ("restore", "loop", "start", "replays", "overlap", "content", "compact", "snapshot", "scale")
ONCE = ("snapshot", "scale")  # not in every round

OVERLAPS = (
    ("restore alone", None, True),
    ("copies alone", "copies", False),
    ("copies and restore", "copies", True),
    ("fills alone", "fills", False),
    ("fills and restore", "fills", True),
)

COLUMNS = {
    "restore": ("all graphs", "first graph", "open", "zones", "map and content", "start", "wait for first", "thread images", "thread images system", "thread kernels", "thread build", "thread instantiate", "thread graphs system", "thread globals", "thread content", "thread images end", "thread build end", "device_bytes", "host_bytes"),
    "loop": ("cold wall", "cold add", "cold edges", "cold instantiate", "warm wall", "warm add", "warm edges", "warm instantiate", "warm destroy_execs", "images_ms", "kernels_ms", "cold device_bytes", "cold host_bytes"),
    "start": ("graphs", "session", "end", "wait", "first launch of all", "first replay of all", "second launch of all", "second replay of all", "report restore.first ready", "report restore.restore"),
    "overlap": ("weights", "restore", "first graph"),
    "content": ("content GB/s", "copy GB/s", "read GB/s", "map", "content", "plain copy", "plain read", "pinning", "bytes", "host_bytes"),
    "scale": ("wall", "warm loop", "first", "images_end", "build", "instantiate", "device_bytes", "host_bytes"),
}  # fmt: skip


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--archive", default="decode.fdry", help="of torch_decode (default: %(default)s)")
    parser.add_argument("--json", metavar="FILE", help="every number of every trial")
    parser.add_argument("--trace", metavar="FOLDER", help="Chrome traces of the last round")
    parser.add_argument("--rounds", type=int, default=5, help="most rounds (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=100, help="no trial begins later (default: %(default)s)")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--only", nargs="+", metavar="TRIAL", help="trials by name, instead of all of the parts")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 8, 64, 512], help="batch sizes to replay")
    parser.add_argument("--recipe", nargs=argparse.REMAINDER, default=[], help="flags for torch_decode (last)")
    return parser.parse_args(argv)


def save(module: str, archive: str, flags: Sequence[str] = (), compact: bool = False) -> subprocess.Popen[bytes]:
    """Begins to save in a process of its own."""
    program = [sys.executable, "-m", module, "--archive", archive, *flags]
    run = [sys.executable, "-m", "foundry", "run", "--save", *(["--compact"] if compact else []), "--"]
    return subprocess.Popen([*run, *program], stdout=sys.stderr)


def prepare(options: argparse.Namespace) -> None:
    """Saves what is not there yet: torch_decode alone on the machine, its report beside it, then the others at once.

    Raises RuntimeError where torch_decode could not be saved; what needs another one fails later.
    """
    recipe, archive = "foundry.recipes.torch_decode", options.archive
    flags = ["--save", "--json", _report(archive), *options.recipe]
    if not Path(archive).exists() and save(recipe, archive, flags).wait() != 0:
        raise RuntimeError(f"torch_decode could not be saved to {archive}")
    others = []
    if "compact" in options.parts and not Path(_beside(archive, "compact")).exists():
        others.append(save(recipe, _beside(archive, "compact"), ["--save", *options.recipe], compact=True))
    if "content" in options.parts and not Path(_beside(archive, "content")).exists():
        others.append(save("benchmarks.content", _beside(archive, "content")))
    for process in others:
        process.wait()


def _beside(archive: str, name: str) -> str:
    path = Path(archive)
    return str(path.with_name(f"{path.stem}-{name}{path.suffix}"))


def _report(archive: str) -> str:
    return f"{archive}.save.json"


def all_trials(options: argparse.Namespace) -> dict[str, dict[str, Callable[[], dict[str, Any]]]]:
    """By part and name."""
    archive, flags, trace = options.archive, options.recipe, options.trace
    return {
        "restore": {
            name: partial(trials.restore, archive, dict(tuning), trace, _file(name)) for name, tuning in TUNINGS.items()
        },
        "loop": {name: partial(trials.driver_loop, archive, dict(loop)) for name, loop in LOOPS.items()},
        "start": {
            "native": partial(trials.native, flags),
            "load": partial(trials.load, archive, flags, trace, "load"),
        },
        "overlap": {
            name: partial(memory.overlap, archive, weights, restores, trace, _file(name))
            for name, weights, restores in OVERLAPS
        },
        "snapshot": {"snapshot": partial(trials.snapshot, archive)},
        "content": {"content": partial(memory.content, _beside(archive, "content"))},
        "scale": {
            f"{graphs} graphs of {nodes}": partial(trials.scale, archive, {"graphs": graphs, "nodes": nodes})
            for graphs, nodes in SCALES
        },
    }


def _file(name: str) -> str:
    return name.replace(", ", "-").replace(" ", "_").replace("'", "")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the benchmarks; returns the exit code: 1 if any trial failed."""
    options = arguments(argv)
    options.archive = os.path.abspath(options.archive)
    begin = time.monotonic()
    try:
        prepare(options)
    except RuntimeError as problem:
        print(problem, file=sys.stderr)
        return 1
    print(f"archives are there after {time.monotonic() - begin:.1f} s", file=sys.stderr)
    import torch  # once for all children  # noqa: F401

    if options.trace:
        Path(options.trace).mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {"runs": {}, "replays": {}, "errors": {}}
    runs: dict[str, dict[str, list[dict[str, Any]]]] = {}

    def attempt(name: str, trial: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
        left = options.seconds - (time.monotonic() - begin)
        if left <= 0:
            return None
        answer = forks.run(trial, min(60, left + 20))
        if "error" not in answer:
            return answer
        results["errors"][name] = answer["error"]
        print(f"{name}: {answer['error']}", file=sys.stderr)
        return None

    if "replays" in options.parts:
        measured = partial(trials.replays, options.archive, options.recipe, options.sizes, 24, 6)
        results["replays"] = attempt("replays", measured) or {}
    parts = {part: rows for part, rows in all_trials(options).items() if part in options.parts}
    for _ in range(options.rounds):
        for part, rows in parts.items():
            for name, trial in rows.items():
                if options.only and name not in options.only:
                    continue
                done = runs.setdefault(part, {}).setdefault(name, [])
                answer = attempt(name, trial) if part not in ONCE or not done else None
                if answer is not None:
                    done.append(answer)
    results["runs"] = runs
    results["archives"] = {
        archive: sizes.archive(archive)
        for archive in (options.archive, _beside(options.archive, "compact"))
        if Path(archive).exists()
    }
    native = runs.get("start", {}).get("native", [])
    if native and Path(_report(options.archive)).exists():
        results["save"] = sizes.save(json.loads(Path(_report(options.archive)).read_text()), native)
    results["seconds"] = time.monotonic() - begin
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=1) + "\n")
    show(results)
    return 1 if results["errors"] else 0


def show(results: Mapping[str, Any]) -> None:
    """Tables of medians."""
    for part, rows in results["runs"].items():
        medians = {f"{name} ({len(done)})": tables.summary(done) for name, done in rows.items() if done}
        if medians:
            columns = COLUMNS.get(part) or list(next(iter(medians.values())))
            print("\n".join(tables.lines(part, medians, columns)), end="\n\n")
    if results["replays"]:
        columns = list(next(iter(results["replays"].values())))
        print("  ".join(["replays".ljust(12), *columns]))
        for case, numbers in results["replays"].items():
            print("  ".join([case.ljust(12), *(f"{numbers[column]:.4f}".ljust(len(column)) for column in columns)]))
    for name, each in results["archives"].items():
        print(f"{name}: " + ", ".join(f"{part} {count:,}" for part, count in each.items()))
    for name, value in results.get("save", {}).items():
        print(f"save: {name} {value:.3f}")
    print(f"{results['seconds']:.0f} s; errors: {results['errors'] or 'none'}")


if __name__ == "__main__":
    sys.exit(main())
