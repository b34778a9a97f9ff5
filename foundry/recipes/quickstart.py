"""Foundry in one minute: graphs saved by one process, restored by the next, results compared.

    python -m foundry.recipes.quickstart

With a GPU and PyTorch a small decoder is used; without, a mini engine on a simulated driver that comes along. The
first process SAVEs under `foundry run --save`. The second has nothing preloaded, allocates differently, and LOADs.

Exit code: 0 if every graph was restored and every result is equal, 1 otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from foundry.cli import probe
from foundry.recipes import simulated
from foundry.text import size

GPU_MODEL = ["--layers", "8", "--max-batch", "64", "--repeats", "10", "--compare", "8", "64"]


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m foundry.recipes.quickstart", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--simulated", action="store_true", help="use the simulated driver even if there is a GPU")
    where.add_argument("--gpu", action="store_true", help="use the GPU, or fail")
    parser.add_argument("--device", default="h100", choices=simulated.DEVICES,
                        help="the simulated GPU (default: %(default)s)")  # fmt: skip
    parser.add_argument("--folder", help="keep the archive and the results there (default: a temporary folder)")
    return parser.parse_args(argv)


def choose(options: argparse.Namespace) -> str | None:
    """None to simulate, else what PyTorch answers. Raises RuntimeError if a GPU is wanted and cannot be used."""
    if options.simulated:
        return None
    answer = probe.ask(framework=True)
    if answer.problem is None and answer.devices and (answer.framework or "").startswith("torch "):
        return answer.framework
    if options.gpu:
        no_framework = "PyTorch is not installed here" if answer.framework == "none" else answer.framework
        raise RuntimeError(answer.problem or (no_framework if answer.devices else "the driver sees no GPU"))
    return None


def step(name: str, command: Sequence[str], env: Mapping[str, str], folder: Path) -> dict[str, Any]:
    """Runs one process and reads the results it wrote. Raises RuntimeError with its output if it failed."""
    results = folder / f"{name}.json"
    done = subprocess.run(
        [*command, f"--{name}", "--archive", str(folder / "decode.fdry"), "--json", str(results)],
        env=dict(env),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    (folder / f"{name}.log").write_text(done.stdout)
    if done.returncode != 0:
        raise RuntimeError(f"{name.upper()} ended with code {done.returncode}:\n{done.stdout.rstrip()}")
    document: dict[str, Any] = json.loads(results.read_text())
    return document


def run(options: argparse.Namespace, folder: Path, console: Console) -> bool:
    """Both processes and the comparison; whether all is equal."""
    framework = choose(options)
    env = dict(os.environ)
    if framework is None:
        env = simulated.environment(env, options.device)
        program, drift = ["foundry.recipes.mini_decode"], ["--drift"]
        console.print(f"No GPU is used: a mini engine on a simulated {options.device}.", highlight=False)
    else:
        program, drift = ["foundry.recipes.torch_decode", *GPU_MODEL], ["--drift", "extra"]
        console.print(f"Using {framework} and the GPU.", highlight=False)
    python = [sys.executable, "-m", *program]
    saved = step("save", [sys.executable, "-m", "foundry", "run", "--save", "--", *python], env, folder)
    loaded = step("load", [*python, *drift], env, folder)
    summary = summarize_simulated if framework is None else summarize_torch
    rows, good = summary(saved, loaded)
    table = Table(box=None, header_style="bold", pad_edge=False)
    for i, head in enumerate(("", "SAVE", "LOAD, another process")):
        table.add_column(head, justify="left" if i == 0 else "right")
    for row in rows:
        table.add_row(*row)
    console.print(table)
    return good


def summarize_simulated(saved: dict[str, Any], loaded: dict[str, Any]) -> tuple[list[tuple[str, str, str]], bool]:
    """Rows of the table, and whether every result is equal."""
    equal = sum(saved["outputs"][key] == loaded["outputs"][key] for key in saved["outputs"])
    total = len(saved["outputs"])
    tokens = saved["tokens"] == loaded["tokens"] == loaded["tokens_eager"] == saved["tokens_eager"]
    drawn = saved["sampled"] == loaded["sampled"] == loaded["sampled_eager"] == saved["sampled_eager"]
    rows = rows_of(saved, saved["milliseconds"], loaded, loaded["milliseconds"])
    rows.append(("replays with equal bits", "", f"{equal} of {total}"))
    rows.append(("decoded tokens", "", "equal" if tokens else "DIFFERENT"))
    rows.append(("sampled tokens, same seed", "", "equal" if drawn else "DIFFERENT"))
    return rows, equal == total and tokens and drawn and loaded["restored"] == loaded["graphs"]


def summarize_torch(saved: dict[str, Any], loaded: dict[str, Any]) -> tuple[list[tuple[str, str, str]], bool]:
    """Rows of the table, and whether every result is equal."""
    save, load = (
        {**results["report"], "graphs": results["graphs"], "preload": results["preload"]} for results in (saved, loaded)
    )
    save["archive_bytes"] = saved["archive_bytes"]
    rows = rows_of(save, save["milliseconds"], load, load["milliseconds"])
    total, different = loaded["compared"], len(loaded["different"])
    rows.append(("outputs with equal bits", "", f"{total - different} of {total}"))
    for timed in loaded["step_ms"]:
        rows.append(
            (f"step of batch {timed['batch']}, ms", f"{timed['native']:.3f} native", f"{timed['restored']:.3f}")
        )
    return rows, different == 0 and not loaded["not_restored"]


def rows_of(
    saved: dict[str, Any], save_ms: dict[str, float], loaded: dict[str, Any], load_ms: dict[str, float]
) -> list[tuple[str, str, str]]:
    """Rows that both kinds have."""
    capture = sum(save_ms.get(name, 0.0) for name in ("capture", "instantiate"))
    write = sum(save_ms.get(name, 0.0) for name in ("snapshot", "describe", "write", "publish"))
    restore = sum(load_ms.get(name, 0.0) for name in ("verify", "zones", "map", "start", "anchors", "wait"))
    return [
        ("preloaded", "the hook" if saved["preload"] else "nothing", "the hook" if loaded["preload"] else "nothing"),
        ("graphs", str(saved["graphs"]), f"{loaded['restored']} restored"),
        ("nodes", str(saved["nodes"]), str(loaded["nodes"])),
        ("code images", str(saved["images"]), str(loaded["images"])),
        ("archive", size(saved["archive_bytes"]), ""),
        ("materialized memory", "", size(loaded["mapped_bytes"])),
        ("tensors re-seated", "", str(len(loaded["reseated"]))),
        ("warm-up and capture, ms", f"{capture:.1f}", ""),
        ("writing the archive, ms", f"{write:.1f}", ""),
        ("restore, ms", "", f"{restore:.1f}"),
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the quickstart; returns the exit code."""
    options = arguments(argv)
    console = Console(width=None if sys.stdout.isatty() else 100)
    with tempfile.TemporaryDirectory(prefix="foundry-quickstart-") as temporary:
        folder = Path(options.folder or temporary).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        try:
            good = run(options, folder, console)
        except (RuntimeError, OSError) as problem:
            print(problem, file=sys.stderr)
            return 1
    console.print("Every graph was restored and computes the same." if good else "Results differ: see above.")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
