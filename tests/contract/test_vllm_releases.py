"""What the vLLM plugin relies on, in the sources of several releases, and the page that says so."""

from __future__ import annotations

import ast
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from foundry.engines import vllm

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from fetch_sources import cache  # noqa: E402
from pins import VLLM, Release  # noqa: E402
from seam_table import page, problems, seams_of  # noqa: E402
from source_seams import Source  # noqa: E402

NAMED = os.environ.get("FOUNDRY_ENGINE_SOURCES")
SOURCES = Path(NAMED).resolve().parent if NAMED else cache()
PAGE = Path(os.environ.get("FOUNDRY_RELEASES_PAGE") or HERE.parents[1] / "docs/engines/vllm-releases.md")
SEAMS = seams_of(VLLM)

# Where a release is served natively, by adapter: what moved. None did so far.
NATIVE: dict[str, frozenset[str]] = {}
_read: dict[str, Source] = {}


def source(release: Release) -> Source:
    """The sources of a release, or a skip that says why there are none."""
    path = SOURCES / VLLM.archive(release)
    if not path.exists():
        said = SOURCES / "unavailable.txt"
        reasons = said.read_text().splitlines() if said.exists() else []
        reason = next((line for line in reasons if line.startswith(f"vllm {release.version}:")), "")
        pytest.skip(reason or f"{path} is not there: run tests/contract/fetch_sources.py")
    return _read.setdefault(release.version, Source.of(path))


@pytest.mark.parametrize("release", VLLM.releases, ids=lambda release: release.version)
def test_every_seam_is_there_or_the_release_is_known_to_be_native(release: Release) -> None:
    found = problems(SEAMS, {release.version: source(release)})
    adapters = {seam.adapter for _, seam in found}
    assert adapters == NATIVE.get(release.version, frozenset()), "\n".join(found.values())


def test_what_is_not_there_is_noticed() -> None:
    """The same check finds a change of every seam: this test can fail."""
    read = source(VLLM.releases[-1])
    for seam in SEAMS:
        assert read.problem(replace(seam, name=f"{seam.name}_gone"))
        assert read.problem(replace(seam, module=f"{seam.module}_gone"))
        if seam.parameters is not None:
            assert read.problem(replace(seam, parameters=(*seam.parameters[:-1], "renamed")))
        if seam.attributes:
            assert read.problem(replace(seam, attributes=("gone",))).endswith("has no gone")


def test_the_page_says_what_the_sources_say() -> None:
    made = page(VLLM, SEAMS, {release.version: source(release) for release in VLLM.releases})
    assert PAGE.read_text(encoding="utf-8") == made, "python tests/contract/seam_table.py vllm makes it anew"


def test_the_modules_that_the_plugin_imports_are_among_those_checked() -> None:
    """Nothing is used that the table of seams does not know."""
    imported = set()
    for path in Path(vllm.__path__[0]).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "vllm":
                imported.update(f"{node.module}.{alias.name}" for alias in node.names)
    known = {seam.module for seam in SEAMS} | {f"{seam.module}.{seam.name.split('.')[0]}" for seam in SEAMS}
    # Lazily made by the package, or asked for with a fallback.
    known |= {"vllm.platforms.current_platform", "vllm.compilation.breakable_cudagraph.is_breakable_cudagraph_enabled"}
    assert imported - known == set()


@pytest.mark.parametrize("release", VLLM.releases, ids=lambda release: release.version)
def test_a_worker_calls_the_plugin_before_its_class_is_looked_up(release: Release) -> None:
    """Whichever process it is in: the plugin has chosen the class by then."""
    found = source(release).tree("vllm.v1.worker.worker_base")
    assert found is not None
    functions = [node for node in ast.walk(found) if isinstance(node, ast.FunctionDef) and node.name == "init_worker"]
    found_calls = sorted((n for n in ast.walk(functions[-1]) if isinstance(n, ast.Call)), key=lambda call: call.lineno)
    calls = [ast.unparse(call.func) for call in found_calls]
    assert calls.index("load_general_plugins") < calls.index("resolve_obj_by_qualname")
