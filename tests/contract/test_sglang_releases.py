"""What the SGLang plugin relies on, in the sources of several releases, and the page that says so."""

from __future__ import annotations

import ast
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from foundry.engines import sglang
from foundry.engines.sglang import plugin, seams

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from fetch_sources import cache  # noqa: E402
from pins import SGLANG, Release  # noqa: E402
from seam_table import lacking, page, problems, seams_of  # noqa: E402
from source_seams import Source  # noqa: E402

NAMED = os.environ.get("FOUNDRY_ENGINE_SOURCES")
SOURCES = Path(NAMED).resolve().parent if NAMED else cache()
PAGE = Path(os.environ.get("FOUNDRY_RELEASES_PAGE") or HERE.parents[1] / "docs/engines/sglang-releases.md")
SEAMS = seams_of(SGLANG)
EVERY = pytest.mark.parametrize("release", SGLANG.releases, ids=lambda release: release.version)

# The adapter that a release needs; the other one's places are not all there.
ADAPTERS = {"0.5.12": "classic", "0.5.13": "classic"}
_read: dict[str, Source] = {}


def source(release: Release) -> Source:
    """The sources of a release, or a skip that says why there are none."""
    path = SOURCES / SGLANG.archive(release)
    if not path.exists():
        said = SOURCES / "unavailable.txt"
        reasons = said.read_text().splitlines() if said.exists() else []
        reason = next((line for line in reasons if line.startswith(f"sglang {release.version}:")), "")
        pytest.skip(reason or f"{path} is not there: run tests/contract/fetch_sources.py")
    return _read.setdefault(release.version, Source.of(path))


@EVERY
def test_one_adapter_fits_and_is_the_one_that_the_plugin_chooses(release: Release) -> None:
    read = source(release)
    found = problems(SEAMS, {release.version: read})
    fits = [name for name in seams.ADAPTERS if not lacking(SGLANG, name, release.version, found)]
    assert fits == [ADAPTERS.get(release.version, "backends")], "\n".join(found.values())
    # plugin.adapter_name() asks for this module.
    assert (read.tree(seams.CLASSIC_RUNNER) is not None) == (fits == ["classic"])


@EVERY
def test_the_size_of_the_kv_cache_is_measured_in_a_known_place(release: Release) -> None:
    read = source(release)
    if ADAPTERS.get(release.version) != "classic":
        assert [seam for seam in seams.PROFILES if not read.problem(seam)]


def test_releases_that_were_run_are_among_those_checked() -> None:
    assert set(plugin.TRIED) <= {release.version for release in SGLANG.releases}


@pytest.mark.parametrize("version", ["0.5.13", "0.5.23"])
def test_what_is_not_there_is_noticed(version: str) -> None:
    """The same check finds a change of every seam: this test can fail."""
    read = source(next(release for release in SGLANG.releases if release.version == version))
    wanted = (*seams.COMMON, *seams.ADAPTERS[ADAPTERS.get(version, "backends")])
    for seam in wanted:
        assert read.problem(seam) == ""
        assert read.problem(replace(seam, name=f"{seam.name}_gone"))
        assert read.problem(replace(seam, module=f"{seam.module}_gone"))
        if seam.parameters:
            assert read.problem(replace(seam, parameters=(*seam.parameters[:-1], "renamed")))
        if seam.attributes:
            assert read.problem(replace(seam, attributes=("gone",))).endswith("has no gone")


def test_the_page_says_what_the_sources_say() -> None:
    made = page(SGLANG, SEAMS, {release.version: source(release) for release in SGLANG.releases})
    assert PAGE.read_text(encoding="utf-8") == made, "python tests/contract/seam_table.py sglang makes it anew"


def test_the_modules_that_the_plugin_imports_are_among_those_checked() -> None:
    """Nothing is used that the table of seams does not know."""
    imported = set()
    for path in Path(sglang.__path__[0]).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "sglang":
                imported.update(f"{node.module}.{alias.name}" for alias in node.names)
    known = {seam.module for seam in SEAMS} | {f"{seam.module}.{seam.name.split('.')[0]}" for seam in SEAMS}
    assert imported and imported - known == set()
