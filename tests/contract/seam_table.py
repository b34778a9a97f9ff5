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

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

from fetch_sources import cache  # noqa: E402
from pins import ENGINES, Engine  # noqa: E402
from source_seams import Source  # noqa: E402

from foundry.engines.common.seams import Seam  # noqa: E402

TITLES = {"vllm": "vLLM", "sglang": "SGLang"}


def seams_of(engine: Engine) -> tuple[Seam, ...]:
    """The plugin's table."""
    found: tuple[Seam, ...] = importlib.import_module(f"foundry.engines.{engine.package}.seams").ALL
    return found


def sources(engine: Engine, folder: Path) -> dict[str, Source]:
    """Every release by its version. Raises OSError for one that is not there."""
    return {release.version: Source.of(folder / engine.archive(release)) for release in engine.releases}


def problems(seams: Sequence[Seam], releases: Mapping[str, Source]) -> dict[tuple[str, Seam], str]:
    """What is wrong with a seam in a release."""
    found = {(version, seam): source.problem(seam) for version, source in releases.items() for seam in seams}
    return {place: problem for place, problem in found.items() if problem}


def page(engine: Engine, seams: Sequence[Seam], releases: Mapping[str, Source]) -> str:
    """The document."""
    found, title = problems(seams, releases), TITLES[engine.package]
    adapters = list(dict.fromkeys(seam.adapter for seam in seams if seam.adapter))
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
            missing = [seam for seam in seams if seam.adapter in ("", adapter) and (version, seam) in found]
            cells.append("native: " + ", ".join(f"`{seam.name}`" for seam in missing) if missing else "fits")
        lines.append(f"| {version} | {' | '.join(cells)} |")
    lines += ["", "## Places", "", "| place | what for | adapter | in |", "| --- | --- | --- | --- |"]
    for seam in seams:
        name = seam.name if seam.parameters is None else f"{seam.name}({', '.join(seam.parameters)})"
        attributes = f" with {', '.join(f'`{name}`' for name in seam.attributes)}" if seam.attributes else ""
        lacking = [version for version in releases if (version, seam) in found]
        where = "all" if not lacking else f"all but {', '.join(lacking)}" if len(lacking) < len(releases) else "none"
        lines.append(f"| `{name}` of `{seam.module}`{attributes} | {seam.use} | {seam.adapter or 'all'} | {where} |")
    if found:
        lines += ["", "## What differs", ""]
        lines += [f"- {version}: {problem}" for (version, _), problem in found.items()]
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
