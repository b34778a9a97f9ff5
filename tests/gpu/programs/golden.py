"""Graphs with golden runs and an export: deterministic, random, in-place, and one that adds in any order."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch

import foundry

ROWS, WIDTH, HITS = 64, 1024, 1 << 18


class Model:
    """`hidden` is created by the first forward and used by all later ones."""

    def __init__(self, s: foundry.Session, scale: float) -> None:
        with s.phase("weights"):
            self.w = s.register("w", scale * torch.linspace(-1, 1, WIDTH * WIDTH, device="cuda").view(WIDTH, WIDTH))
            values = torch.rand(HITS, generator=torch.Generator().manual_seed(1))
            where = torch.randint(64, (HITS,), generator=torch.Generator().manual_seed(2))
            self.values, self.where = s.register("values", values.cuda()), s.register("where", where.cuda())
        with s.phase("inputs"):
            self.x = s.register("x", torch.linspace(0, 1, ROWS * WIDTH, device="cuda").view(ROWS, WIDTH), mutable=True)
            self.count = s.register("count", torch.zeros(8, device="cuda"), mutable=True)
            # Too large to be stored: filled for golden runs.
            self.cache = s.register("cache", torch.zeros(24 << 20, dtype=torch.bfloat16, device="cuda"), mutable=True)
        self.hidden: torch.Tensor | None = None

    def decode(self) -> torch.Tensor:
        """Reads and writes the persistent tensor and the cache."""
        if self.hidden is None:
            self.hidden = torch.full((ROWS, WIDTH), 0.5, device="cuda")
        out = torch.nn.functional.gelu((self.x + self.hidden) @ self.w) + self.cache[:WIDTH].float()
        self.cache[WIDTH : 2 * WIDTH].copy_(out[0])
        return out

    def functions(self) -> dict[str, Any]:
        """By name of their graphs."""
        return {
            "decode": self.decode,
            "random": lambda: torch.nn.functional.dropout(self.x, 0.5) + torch.rand_like(self.x),
            "count": lambda: self.count.add_(1).clone(),
            # Atomic additions of floating-point numbers: native replays differ in the last bits.
            "scatter": lambda: torch.zeros(64, device="cuda").index_add_(0, self.where, self.values),
        }


def main() -> None:
    """Runs in the mode of the command line."""
    parser = argparse.ArgumentParser()
    mode = parser.add_mutually_exclusive_group(required=True)
    for name in ("save", "load"):
        mode.add_argument(f"--{name}", dest="mode", action="store_const", const=name)
    parser.add_argument("--archive", required=True)
    parser.add_argument("--json", required=True)
    parser.add_argument("--scale", type=float, default=1.0)
    options = parser.parse_args()

    session = foundry.session(options.archive, options.mode, golden=True, verify=True)
    graphs = {}
    with session as s:
        model = Model(s, options.scale)
        for name, function in model.functions().items():
            graphs[name] = s.graph(name, function)
        hidden = s.exported("hidden")
        if hidden is None and model.hidden is not None:
            hidden = s.export("hidden", model.hidden)
    session.wait()
    report = session.report
    results = {
        "outcome": report.outcome,
        "golden": report.golden,
        "left_out": report.left_out,
        "fell_back": report.fell_back,
        "warnings": report.warnings,
        "verdicts": {v.graph: [v.verdict, v.detail] for v in report.verdicts},
        "count": model.count.tolist(),
        "cache": [float(model.cache.float().min()), float(model.cache.float().max())],
        "hidden": None if hidden is None else [float(hidden.min()), float(hidden.max())],
        "hidden_made": model.hidden is not None,
    }
    if hidden is not None:
        # The graph reads the export: another value there is another output.
        graphs["decode"].replay()
        first = graphs["decode"].outputs.clone()
        hidden.fill_(0.25)
        graphs["decode"].replay()
        results["reads_export"] = not torch.equal(first, graphs["decode"].outputs)
    Path(options.json).write_text(json.dumps(results))


if __name__ == "__main__":
    with torch.no_grad():
        main()
