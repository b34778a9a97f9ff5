"""Stock vLLM: saved, restored in fresh processes, greedy tokens compared with native ones; wrong archives are refused.

Starts of an engine take half a minute each, most of it importing, so all that the chosen cases need run side by side.
Skipped where vLLM is not installed. FOUNDRY_TEST_FOLDER keeps the logs.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from engine_runs import Engines, damage  # noqa: E402

pytestmark = pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed")

PROCESS = "foundry.recipes.engines.vllm_process"
# Engines at a time: each takes some 12 GiB of the GPU.
TOGETHER = int(os.environ.get("FOUNDRY_TEST_ENGINES", "8"))
TIMEOUT_S = 400
SMALL = ["--sizes", "1,2,4,8,16", "--max-num-seqs", "16", "--batches", "1", "8", "16"]
COMMON = ["--memory", "0.05", "--kv-gib", "6"]
CONFIGURATIONS: dict[str, list[str]] = {
    "v1": ["--runner", "v1"],
    "v2": ["--runner", "v2"],
    "v1-compiled": ["--runner", "v1", "--compile", "3"],
    "v2-compiled": ["--runner", "v2", "--compile", "3"],
    "v1-pieces": ["--runner", "v1", "--compile", "3", "--cudagraph", "FULL_AND_PIECEWISE", *SMALL],
    "v2-pieces": ["--runner", "v2", "--compile", "3", "--cudagraph", "FULL_AND_PIECEWISE", *SMALL],
    "v1-full": ["--runner", "v1", "--cudagraph", "FULL", *SMALL],
    "v2-full": ["--runner", "v2", "--cudagraph", "FULL", *SMALL],
    "triton": ["--runner", "v2", "--attention", "TRITON_ATTN", *SMALL],
    "v1-separate": ["--runner", "v1", "--separate", *SMALL],
    "v2-separate": ["--runner", "v2", "--separate", *SMALL],
}
GOLDEN = "v2-golden"
Tokens = dict[str, list[list[int]]]
# What differs from the archive of "v2-separate", and a field that the reason must name.
OTHERS: dict[str, tuple[list[str], str]] = {
    "length": (["--max-model-len", "1024"], "max_model_len"),
    "sizes": (["--sizes", "1,2,4,8"], "capture_sizes"),
    "model": (["--layers", "27"], "model_config"),
}
DAMAGES = ("truncated", "flipped")


@pytest.fixture(scope="module")
def engines(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    """Everything that the collected cases need, already started."""
    kept = os.environ.get("FOUNDRY_TEST_FOLDER")
    folder = Path(kept) if kept else tmp_path_factory.mktemp("vllm")
    folder.mkdir(parents=True, exist_ok=True)
    found = Engines(folder, PROCESS, COMMON, TOGETHER, TIMEOUT_S)
    calls = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    wanted = {call["configuration"]: None for call in calls if "configuration" in call}
    others = {call["other"]: None for call in calls if "other" in call}
    damages = {call["damage"]: None for call in calls if "damage" in call}
    if others or damages:
        wanted["v2-separate"] = None
    for name in wanted:
        found.start(f"{name}.save", "save", CONFIGURATIONS[name], found.archive(name))
        # Two processes that fill one compile cache at a time tune kernels differently, and use each other's.
        after = f"{name}.save" if "--compile" in CONFIGURATIONS[name] else ""
        found.start(f"{name}.native", "native", CONFIGURATIONS[name], after=after)
    for name in wanted:
        found.start(f"{name}.load", "load", CONFIGURATIONS[name], found.archive(name), f"{name}.save")
    base, archive = CONFIGURATIONS["v2-separate"], found.archive("v2-separate")
    for name in others:
        arguments = [*base, *OTHERS[name][0]]
        found.start(f"{name}.native", "native", arguments)
        found.start(f"{name}.load", "load", arguments, archive, "v2-separate.save")
    if any(item.name == "test_golden_runs_of_an_engine" for item in request.session.items):
        arguments = CONFIGURATIONS["v2-separate"]
        found.start(f"{GOLDEN}.save", "save", arguments, found.archive(GOLDEN), env={"FOUNDRY_GOLDEN": "1"})
        found.start(
            f"{GOLDEN}.load", "load", arguments, found.archive(GOLDEN), f"{GOLDEN}.save", {"FOUNDRY_VERIFY": "1"}
        )
    if damages:
        found["v2-separate.save"]
    for name in damages:
        damaged = str(folder / f"{name}.fdry")
        damage(archive, damaged, name)
        found.start(f"{name}.load", "load", base, damaged)
    yield found
    found.join()


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_restored_engine_gives_native_tokens(engines: Engines, configuration: str) -> None:
    """All graphs come from the archive, nothing is captured or warmed up, and every token is the native one."""
    native, saved, loaded = (engines[f"{configuration}.{mode}"] for mode in ("native", "save", "load"))
    assert saved["foundry"]["outcome"] == "saved", saved["foundry"]["text"]
    assert saved["foundry"]["left_out"] == {}
    done = loaded["foundry"]
    assert done["outcome"] == "restored", done["text"]
    assert done["restored"] == saved["foundry"]["saved"] > 0
    assert done["fell_back"] == {}
    if "--separate" not in CONFIGURATIONS[configuration]:
        assert loaded["in_start"] == {"captures": 0, "dummy_runs": 0}
        assert native["in_start"]["captures"] >= saved["foundry"]["saved"]
        assert loaded["captures"] == 0
    assert native["tokens"]["1"] == saved["tokens"]["1"] == loaded["tokens"]["1"]
    assert wrong_tokens(configuration, native["tokens"], saved["tokens"], loaded["tokens"]) == []


def wrong_tokens(configuration: str, native: Tokens, saved: Tokens, loaded: Tokens) -> list[str]:
    """Prompts that LOAD answers differently, where two native starts (SAVE captures natively) agree.

    In an engine process of its own only prompts that are alone count: which ones share the first steps is chance.
    """
    batches = ["alone"] if "--separate" in CONFIGURATIONS[configuration] else list(native)
    return [
        f"batch {batch}, prompt {i}"
        for batch in batches
        for i, (first, second, third) in enumerate(zip(native[batch], saved[batch], loaded[batch], strict=True))
        if first == second and third != first
    ]


@pytest.mark.parametrize("other", OTHERS)
def test_an_archive_of_something_else_leads_to_native_serving(engines: Engines, other: str) -> None:
    """The reason names what differs, and tokens are native."""
    loaded = engines[f"{other}.load"]
    assert loaded["foundry"]["outcome"] == "native"
    assert OTHERS[other][1] in loaded["foundry"]["reason"]
    assert loaded["tokens"]["alone"] == engines[f"{other}.native"]["tokens"]["alone"]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_archive_leads_to_native_serving(engines: Engines, damage: str) -> None:
    """The reason names the file, and tokens are native."""
    loaded = engines[f"{damage}.load"]
    assert loaded["foundry"]["outcome"] == "native"
    assert "rank_0/" in loaded["foundry"]["reason"]
    assert loaded["tokens"]["alone"] == engines["v2-separate.native"]["tokens"]["alone"]


def test_golden_runs_of_an_engine(engines: Engines) -> None:
    """What SAVE recorded of every graph is what LOAD computes before it serves."""
    saved, loaded = engines[f"{GOLDEN}.save"]["foundry"], engines[f"{GOLDEN}.load"]["foundry"]
    assert len(saved["golden"]) == saved["saved"] > 0, saved["text"]
    assert loaded["outcome"] == "restored" and loaded["restored"] == saved["saved"], loaded["text"]
    assert set(loaded["verdicts"].values()) <= {"equal", "within spread"} and loaded["verdicts"]
