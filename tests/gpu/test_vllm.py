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

from engine_runs import Engines, damage, gpus  # noqa: E402
from vllm_faults import environment  # noqa: E402

pytestmark = pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed")

PROCESS = "foundry.recipes.engines.vllm_process"
SERVER = "foundry.recipes.engines.vllm_server"
# What `vllm serve` needs and offline use does not.
SERVER_NEEDS = ("uvicorn", "watchfiles", "model_hosting_container_standards", "prometheus_fastapi_instrumentator")
# Engines at a time on a GPU: each takes some 12 GiB of the GPU.
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
    "v1-lora": ["--runner", "v1", "--adapter", *SMALL],
    "v2-lora": ["--runner", "v2", "--adapter", *SMALL],
    "v1-separate": ["--runner", "v1", "--separate", *SMALL],
    "v2-separate": ["--runner", "v2", "--separate", *SMALL],
    "v1-asynchronous": ["--runner", "v1", "--asynchronous", *SMALL],
    "v2-asynchronous": ["--runner", "v2", "--asynchronous", *SMALL],
}
# vLLM's kernels for LoRA add with atomics: two native starts agreed in 2 and in 6 of 8 answers of 64 tokens.
SAME_WITH_ADAPTER = 2
IN_PROCESSES = ("--separate", "--asynchronous")
# Runs with faults: SAVE leaves graphs of these sizes out.
FAULTS = {"refused": 4, "table": 2}
FAULTY = {runner: ["--runner", runner, *SMALL, "--batches", "1", "2", "4", "8"] for runner in ("v1", "v2")}
REPLICAS = ["--runner", "v2", "--asynchronous", "--replicas", "2", "--layers", "8", *SMALL]
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
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where logs, results and archives lie."""
    kept = os.environ.get("FOUNDRY_TEST_FOLDER")
    folder = Path(kept) if kept else tmp_path_factory.mktemp("vllm")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="module")
def servers(request: pytest.FixtureRequest, folder: Path) -> Iterator[Engines]:
    """`vllm serve` natively, and twice as `foundry run --auto`: already started if there is a case for it."""
    found = Engines(folder / "server", SERVER, [*COMMON, "--layers", "8"], TOGETHER, TIMEOUT_S)
    found.folder.mkdir(exist_ok=True)
    if collected(request, "test_a_server_is_saved_and_restored") and not lacking():
        arguments = ["--runner", "v2", *SMALL]
        gpu = {"CUDA_VISIBLE_DEVICES": "0"}  # the same start again: the launcher preloads nothing for the second
        found.start("native", "native", arguments, env=gpu)
        found.start("first", "auto", arguments, found.archive("server"), env=gpu)
        found.start("second", "auto", arguments, found.archive("server"), "first", gpu)
    yield found
    found.join()


def collected(request: pytest.FixtureRequest, name: str) -> bool:
    """Whether that case runs."""
    return any(item.name == name for item in request.session.items)


def lacking() -> list[str]:
    """Packages that a server needs and that are not installed."""
    return [name for name in SERVER_NEEDS if importlib.util.find_spec(name) is None]


@pytest.fixture(scope="module")
def engines(request: pytest.FixtureRequest, folder: Path, servers: Engines) -> Iterator[Engines]:
    """Everything that the collected cases need, already started."""
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
    if collected(request, "test_golden_runs_of_an_engine"):
        arguments = CONFIGURATIONS["v2-separate"]
        found.start(f"{GOLDEN}.save", "save", arguments, found.archive(GOLDEN), env={"FOUNDRY_GOLDEN": "1"})
        found.start(
            f"{GOLDEN}.load", "load", arguments, found.archive(GOLDEN), f"{GOLDEN}.save", {"FOUNDRY_VERIFY": "1"}
        )
    env = environment(folder / "faults", **FAULTS)
    for runner in {call["faulty"] for call in calls if "faulty" in call}:
        name = f"faulty-{runner}"
        found.start(f"{name}.native", "native", FAULTY[runner], env=env)
        found.start(f"{name}.save", "save", FAULTY[runner], found.archive(name), env=env)
        found.start(f"{name}.load", "load", FAULTY[runner], found.archive(name), f"{name}.save", env)
    if collected(request, "test_one_archive_serves_all_replicas") and gpus() > 1:
        start_all(found, "replicas", REPLICAS)
    if damages:
        found["v2-separate.save"]
    for name in damages:
        damaged = str(folder / f"{name}.fdry")
        damage(archive, damaged, name)
        found.start(f"{name}.load", "load", base, damaged)
    yield found
    found.join()


def start_all(engines: Engines, name: str, arguments: list[str]) -> None:
    """Native, SAVE, and LOAD after it."""
    env = {"CUDA_VISIBLE_DEVICES": "0,1"}
    engines.start(f"{name}.native", "native", arguments, env=env)
    engines.start(f"{name}.save", "save", arguments, engines.archive(name), env=env)
    engines.start(f"{name}.load", "load", arguments, engines.archive(name), f"{name}.save", env)


def separate(configuration: str) -> bool:
    """Whether its engines have processes of their own."""
    return any(flag in CONFIGURATIONS[configuration] for flag in IN_PROCESSES)


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
    if not separate(configuration):
        assert loaded["in_start"] == {"captures": 0, "dummy_runs": 0}
        assert native["in_start"]["captures"] >= saved["foundry"]["saved"]
        assert loaded["captures"] == 0
    assert native["tokens"]["1"] == saved["tokens"]["1"] == loaded["tokens"]["1"]
    assert wrong_tokens(configuration, native["tokens"], saved["tokens"], loaded["tokens"]) == []
    if "--adapter" in CONFIGURATIONS[configuration]:  # which is loaded when everything is restored
        answers = [run["tokens"]["adapter"] for run in (native, saved, loaded)]
        assert sum(mine in (first, second) for first, second, mine in zip(*answers, strict=True)) >= SAME_WITH_ADAPTER
        assert all(mine != other for mine, other in zip(answers[2], loaded["tokens"]["alone"], strict=True))


def wrong_tokens(configuration: str, native: Tokens, saved: Tokens, loaded: Tokens) -> list[str]:
    """Prompts that LOAD answers differently, where two native starts (SAVE captures natively) agree.

    In an engine process of its own only prompts that are alone count: which ones share the first steps is chance.
    """
    batches = ["alone"] if separate(configuration) else [batch for batch in native if batch != "adapter"]
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


@pytest.mark.parametrize("faulty", FAULTY)
def test_what_the_archive_lacks_is_captured_natively_and_told(engines: Engines, faulty: str) -> None:
    """One graph that cannot be recorded, one that reads a table which nobody registered and every step rewrites."""
    native, saved, loaded = (engines[f"faulty-{faulty}.{mode}"] for mode in ("native", "save", "load"))
    left_out = saved["foundry"]["left_out"]
    assert saved["foundry"]["outcome"] == "saved", saved["foundry"]["text"]
    assert {size_of(name) for name in left_out} == set(FAULTS.values()), left_out
    reasons = {size_of(name): " ".join(sentences) for name, sentences in left_out.items()}
    assert "a test does not want this graph" in reasons[FAULTS["refused"]]
    assert "an input that is not registered" in reasons[FAULTS["table"]]
    done = loaded["foundry"]
    assert done["outcome"] == "restored" and done["restored"] == saved["foundry"]["saved"] == 3, done["text"]
    assert set(done["fell_back"]) == set(left_out)
    assert all(why.startswith("SAVE left it out") for why in done["fell_back"].values())
    assert loaded["in_start"]["captures"] == len(left_out)
    assert all(name in engines.log(f"faulty-{faulty}.load") for name in left_out)
    assert native["tokens"] == saved["tokens"] == loaded["tokens"]


def size_of(name: str) -> int:
    """Tokens of a graph, by its name."""
    return next(int(part.removeprefix("num_tokens=")) for part in name.split("/") if part.startswith("num_tokens="))


def test_one_archive_serves_all_replicas(engines: Engines) -> None:
    """Data parallel, a GPU each: replica 0 saves, all load, and each answers as native ones do."""
    if gpus() < 2:
        pytest.skip(f"two replicas need two GPUs, and there are {gpus()}")
    native, saved, loaded = (engines[f"replicas.{mode}"] for mode in ("native", "save", "load"))
    assert [done["outcome"] for done in saved["replicas"]] == ["saved", "none"]
    assert "data-parallel replica 1 does not save" in engines.log("replicas.save")
    assert [done["outcome"] for done in loaded["replicas"]] == ["restored", "restored"]
    assert [done["restored"] for done in loaded["replicas"]] == [saved["foundry"]["saved"]] * 2
    assert all(not done["fell_back"] for done in loaded["replicas"])
    for batch in ("alone", "replica 0", "replica 1"):
        assert native["tokens"]["alone"] == loaded["tokens"][batch] == saved["tokens"][batch], batch


def test_a_server_is_saved_and_restored(servers: Engines) -> None:
    """`vllm serve`, asked over HTTP: `foundry run --auto` saves first and loads then."""
    if lacking():
        pytest.skip(f"vLLM's server needs {', '.join(lacking())}")
    native, first, second = (servers[name] for name in ("native", "first", "second"))
    assert (first["outcome"], second["outcome"]) == ("saved", "restored"), (first["said"], second["said"])
    assert first["graphs"] == second["graphs"] == 5
    assert native["tokens"] == first["tokens"] == second["tokens"]
    assert len({tuple(answer) for answer in native["tokens"]["alone"]}) == 8  # answers differ from prompt to prompt
