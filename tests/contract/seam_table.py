#!/usr/bin/env python3
"""Makes the page in docs/engines that says which releases of an engine have the seams that its plugin needs.

usage: seam_table.py ENGINE [--sources FOLDER] > docs/engines/ENGINE-releases.md

The sources are those that fetch_sources.py puts into its cache, or into FOLDER.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

from fetch_sources import cache  # noqa: E402
from pins import ENGINES, Engine  # noqa: E402
from source_seams import Source  # noqa: E402

from foundry.engines.common.seams import Seam  # noqa: E402

TITLES = {"vllm": "vLLM", "sglang": "SGLang"}


def seams_of(engine: Engine) -> tuple[Seam, ...]:
    """The plugin's table."""
    found: tuple[Seam, ...] = module_of(engine).ALL
    return found


def sources(engine: Engine, folder: Path) -> dict[str, Source]:
    """Every release by its version. Raises OSError for one that is not there."""
    return {release.version: Source.of(folder / engine.archive(release)) for release in engine.releases}


def problems(seams: Sequence[Seam], releases: Mapping[str, Source]) -> dict[tuple[str, Seam], str]:
    """What is wrong with a seam in a release."""
    found = {(version, seam): source.problem(seam) for version, source in releases.items() for seam in seams}
    return {place: problem for place, problem in found.items() if problem}


def module_of(engine: Engine) -> Any:
    """The plugin's module of seams."""
    return importlib.import_module(f"foundry.engines.{engine.package}.seams")


def lacking(engine: Engine, adapter: str, version: str, found: Mapping[tuple[str, Seam], str]) -> list[Seam]:
    """Seams that an adapter needs and a release does not have. Of groups in ONE_OF one is enough."""
    groups = getattr(module_of(engine), "ONE_OF", ())
    missing = [seam for seam in seams_of(engine) if seam.adapter in ("", adapter) and (version, seam) in found]
    replaced = {seam for group in groups for seam in group if any((version, other) not in found for other in group)}
    return [seam for seam in missing if seam not in replaced]


def page(engine: Engine, seams: Sequence[Seam], releases: Mapping[str, Source]) -> str:
    """The document. With ONE_ADAPTER in the plugin's module a release has the seams of one adapter only."""
    found, title = problems(seams, releases), TITLES[engine.package]
    one_adapter = getattr(module_of(engine), "ONE_ADAPTER", False)
    adapters = list(dict.fromkeys(seam.adapter for seam in seams if seam.adapter))
    fits = {
        version: [adapter for adapter in adapters if not lacking(engine, adapter, version, found)]
        for version in releases
    }
    lines = [
        f"# Releases of {title} that the plugin fits",
        "",
        f"Made by `python tests/contract/seam_table.py {engine.package}`; `//tests/contract` compares it with the sources",
        "of these releases, of which nothing is run. The plugin checks the same places when the engine starts. Where one",
        "is missing, or takes other parameters, the engine serves natively and its log says which place it is.",
        "",
        f"| {title} | {' | '.join(f'adapter {adapter}' for adapter in adapters)} |",
        f"| --- | {' | '.join('---' for _ in adapters)} |",
    ]
    for version in releases:
        cells = []
        for adapter in adapters:
            missing = [f"`{seam.name}`" for seam in lacking(engine, adapter, version, found)]
            other = one_adapter and fits[version]
            cells.append("fits" if not missing else "" if other else f"native: {', '.join(missing)}")
        lines.append(f"| {version} | {' | '.join(cells)} |")
    lines += ["", "## Places", "", "| place | what for | adapter | in |", "| --- | --- | --- | --- |"]
    for seam in seams:
        name = seam.name if seam.parameters is None else f"{seam.name}({', '.join(seam.parameters)})"
        attributes = f" with {', '.join(f'`{name}`' for name in seam.attributes)}" if seam.attributes else ""
        without = [version for version in releases if (version, seam) in found]
        where = "all" if not without else f"all but {', '.join(without)}" if len(without) < len(releases) else "none"
        lines.append(f"| `{name}` of `{seam.module}`{attributes} | {seam.use} | {seam.adapter or 'all'} | {where} |")
    differing = [(version, problem) for (version, _), problem in found.items() if not (one_adapter and fits[version])]
    if differing:
        lines += ["", "## What differs", ""]
        lines += [f"- {version}: {problem}" for version, problem in differing]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("--sources", type=Path, default=cache(), metavar="FOLDER")
    arguments = parser.parse_args()
    engine = ENGINES[arguments.engine]
    print(page(engine, seams_of(engine), sources(engine, arguments.sources)), end="")


if __name__ == "__main__":
    main()
