"""Stock SGLang: saved, restored in fresh processes, greedy tokens compared with native ones; wrong archives are refused.

Starts of an engine take most of a minute, nearly all of it importing, so all that the chosen cases need run side by side.
Every LOAD has a Triton cache of its own, empty at first; the one that has to restore all has no other kernels either.
Skipped where SGLang is not installed. FOUNDRY_TEST_FOLDER keeps the logs.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from engine_runs import Engines, damage  # noqa: E402

from foundry.recipes.engines import sglang_recipe  # noqa: E402

pytestmark = pytest.mark.skipif(importlib.util.find_spec("sglang") is None, reason="SGLang is not installed")

PROCESS = "foundry.recipes.engines.sglang_process"
# Engines at a time. A small KV cache, but a large share of what is free: SGLang measures twice, and others come meanwhile.
TOGETHER = int(os.environ.get("FOUNDRY_TEST_ENGINES", "6"))
COMMON = ["--memory", "0.3", "--kv-tokens", "20000", "--repeats", "1"]
TIMEOUT_S = 400
CACHES = ("TRITON_CACHE_DIR", "TVM_FFI_CACHE_DIR")
# What differs from the archive of "same", and a field that the reason must name.
OTHERS: dict[str, tuple[list[str], str]] = {
    "context": (["--context", "1024"], "option.context_length"),
    "sizes": (["--max-batch", "8", "--batches", "1", "8"], "option.cuda_graph"),
    "model": (["--layers", "27"], "model"),
}


def captures(results: dict[str, Any]) -> int:
    """How many graphs a run captured before it was asked for other ones."""
    return sum(line["kind"] == "capture" for line in results["probe"])


def empty(folder: Path, name: str, *variables: str) -> dict[str, str]:
    """An environment in which nothing is compiled yet, so that every compilation is counted."""
    return {variable: str(folder / f"{name}.caches" / variable) for variable in variables}


@pytest.fixture(scope="module")
def engines(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    """Everything that the collected cases need, already started."""
    kept = os.environ.get("FOUNDRY_TEST_FOLDER")
    folder = Path(kept) if kept else tmp_path_factory.mktemp("sglang")
    folder.mkdir(parents=True, exist_ok=True)
    found = Engines(folder, PROCESS, COMMON, TOGETHER, TIMEOUT_S)
    calls = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    archive = found.archive("same")
    found.start("native", "native", [])
    found.start("save", "save", [], archive)
    found.start("load", "load", ["--compare"], archive, "save", empty(folder, "load", *CACHES))
    for name in dict.fromkeys(call["other"] for call in calls if "other" in call):
        found.start(f"{name}.native", "native", OTHERS[name][0])
        found.start(f"{name}.load", "load", OTHERS[name][0], archive, "save", empty(folder, name, CACHES[0]))
    damages = list(dict.fromkeys(call["how"] for call in calls if "how" in call))
    if damages:
        found["save"]
    for name in damages:
        damage(archive, found.archive(name), name)
        found.start(f"{name}.load", "load", [], found.archive(name), env=empty(folder, name, CACHES[0]))
    yield found
    found.join()


def test_restored_engine_gives_native_tokens(engines: Engines) -> None:
    """All graphs come from the archive, nothing is captured, nothing compiled for decode, every token is the native one."""
    native, saved, loaded = (engines[name] for name in ("native", "save", "load"))
    assert saved["foundry"]["outcome"] == "saved", saved["foundry"]["text"]
    assert saved["foundry"]["left_out"] == {}
    assert captures(native) == captures(saved) == saved["foundry"]["saved"] > 0
    assert saved["tokens"] == native["tokens"]
    done = loaded["foundry"]
    assert done["outcome"] == "restored", done["text"]
    assert done["restored"] == saved["foundry"]["saved"] and done["fell_back"] == {}
    assert captures(loaded) == 0
    assert sglang_recipe.compiled_for_decode(loaded) == []
    assert loaded["tokens"] == native["tokens"]


def test_restoring_takes_a_moment(engines: Engines) -> None:
    """In place of captures, with no compiled kernel in any cache; other engines may start meanwhile."""
    assert 0 < sglang_recipe.seconds(engines["load"], *sglang_recipe.GRAPHS) <= 0.3


def test_kernels_that_save_used_come_with_the_archive(engines: Engines) -> None:
    """What captures compiled, and SAVE with it, is not compiled on LOAD: not for prefill either."""
    saved, loaded = engines["save"], engines["load"]
    kept, given = (results["foundry"]["kernel_caches"] for results in (saved, loaded))
    # Triton's driver module may have been compiled before the session began.
    assert kept["triton"]["stored"] == given["triton"]["put"] + given["triton"]["there"]
    assert given["triton"]["put"] > 0
    assert kept["tvm_ffi"]["stored"] == given["tvm_ffi"]["ready"] > 0
    assert given["triton"]["refused"] == given["tvm_ffi"]["refused"] == []
    assert [line for line in loaded["probe"] if line["kind"] == "module"] == []


@pytest.mark.parametrize("how", ["kernels"])
def test_without_the_archives_kernels_decode_compiles_some_and_that_is_counted(engines: Engines, how: str) -> None:
    """A damaged file of kernels is named, graphs are restored all the same, and tokens are native."""
    loaded = engines[f"{how}.load"]
    assert loaded["foundry"]["outcome"] == "restored"
    assert any("kernels.json" in warning for warning in loaded["foundry"]["warnings"])
    assert sglang_recipe.compiled_for_decode(loaded) != []
    assert loaded["tokens"] == engines["native"]["tokens"]


def test_graphs_captured_beside_restored_ones_give_the_same_tokens(engines: Engines) -> None:
    loaded = engines["load"]
    assert set(loaded["equal_in_process"].values()) == {True}
    assert [row["batch"] for row in loaded["replays"]] == [int(batch) for batch in loaded["equal_in_process"]]
    # Other engines run meanwhile: no figure is judged but that both kinds do the same work.
    assert all(0.5 < row["ratio"] < 2 for row in loaded["replays"])


def test_the_log_says_it_once(engines: Engines) -> None:
    assert engines["load"] and engines.log("load").count("Foundry: restored ") == 1
    assert engines["save"] and engines.log("save").count("Foundry: saved ") == 1


@pytest.mark.parametrize("other", OTHERS)
def test_an_archive_of_something_else_leads_to_native_serving(engines: Engines, other: str) -> None:
    """The reason names what differs, and tokens are native."""
    loaded = engines[f"{other}.load"]
    assert loaded["foundry"]["outcome"] == "native"
    assert OTHERS[other][1] in loaded["foundry"]["reason"]
    assert captures(loaded) > 0
    assert loaded["tokens"] == engines[f"{other}.native"]["tokens"]


@pytest.mark.parametrize("how", ["truncated", "flipped"])
def test_a_damaged_archive_leads_to_native_serving(engines: Engines, how: str) -> None:
    """The reason names the file, and tokens are native."""
    loaded = engines[f"{how}.load"]
    assert loaded["foundry"]["outcome"] == "native"
    assert "rank_0/" in loaded["foundry"]["reason"]
    assert captures(loaded) == captures(engines["native"])
    assert loaded["tokens"] == engines["native"]["tokens"]


@pytest.mark.parametrize("how", ["image"])
def test_graphs_with_a_damaged_image_are_captured_natively(engines: Engines, how: str) -> None:
    """The reason names the image, once, and tokens are native."""
    loaded = engines[f"{how}.load"]
    fell_back = loaded["foundry"]["fell_back"]
    assert fell_back and captures(loaded) == len(fell_back)
    assert all("images/" in reason for reason in fell_back.values())
    said = engines.log(f"{how}.load")
    assert all(said.count(reason.removeprefix(f"graph {name}, ")) == 1 for name, reason in fell_back.items())
    assert loaded["tokens"] == engines["native"]["tokens"]
