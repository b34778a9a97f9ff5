"""SAVE, then LOAD in another process, of a miniature vLLM: what runs, what is captured, what steps compute."""

from __future__ import annotations

import importlib
import json
from typing import Any

import fake_core
import pytest
from vllm_world import FULL, MODES, RUNNERS, SIZES, Server, World, names_of, parts_of


@RUNNERS
@MODES
def test_load_captures_nothing_and_runs_no_forward(world: World, v2: bool, mode: str) -> None:
    saved = world.save(v2, mode)
    saved.check(*parts_of(mode))
    pieces = [f"capture PIECEWISE {n}" for n in reversed(SIZES) for _ in range(2)] if len(parts_of(mode)) > 1 else []
    assert saved.captured == pieces + FULL
    assert "profile" in saved.log and "kernel warm-up" in saved.log
    assert any(line.startswith("saved ") for line in saved.said)

    loaded = world.load(v2, mode)
    loaded.check(*parts_of(mode))
    assert loaded.log == []
    assert loaded.framework.captures == 0
    # As after a capture: V1 then reports captures that nobody expects.
    assert v2 or not importlib.import_module("vllm.compilation.monitor").enabled_now
    assert loaded.kv_bytes == saved.kv_bytes == 5000
    assert loaded.worker.available_kv_cache_memory_bytes == 5000
    graphs = len(SIZES) * (1 + (2 if pieces else 0))
    assert any(line.startswith(f"restored {graphs} graphs") for line in loaded.said)


@RUNNERS
@MODES
def test_compiled_models_are_not_compiled_for_the_graphs(world: World, v2: bool, mode: str) -> None:
    from vllm.config import CompilationMode

    def start(load: bool) -> Server:
        world.process(hook=not load, MODE="load" if load else "save")
        config = world.config(v2, mode)
        config.compilation_config.mode = type(config.compilation_config.mode)[CompilationMode.VLLM_COMPILE.name]
        config.compilation_config.compile_sizes = [24]
        return world.start(config)

    start(load=False).check(*parts_of(mode))
    loaded = start(load=True)
    assert loaded.log == []
    loaded.check("FULL")
    # Pieces are found when the model is compiled, which the first prefill does.
    if mode == "FULL_AND_PIECEWISE":
        loaded.check("PIECEWISE")
        assert loaded.log == ["compile"]


@RUNNERS
@MODES
@pytest.mark.parametrize("size", [8, 16])  # 8 is what warm-up runs, after or before the capture
@pytest.mark.parametrize("release", ["0.22.1", "0.24.0", "0.26.0", "0.33.0"])
def test_only_what_is_missing_is_captured(world: World, v2: bool, mode: str, release: str, size: int) -> None:
    saved = world.save(v2, mode, release)
    names = names_of(world)
    lost = next(name for name in names if name.startswith("FULL/") and f"num_tokens={size}/" in name)
    world.process(release=release, MODE="load")
    fake_core.process.broken.add(lost)
    loaded = world.start(world.config(v2, mode))
    assert loaded.captured == [f"capture FULL {size}"]
    loaded.check(*parts_of(mode))
    # Profile and warm-up precede a capture as always, but the figure is SAVE's.
    assert "kernel warm-up" in loaded.log and "profile" in loaded.log
    assert saved.kv_bytes == loaded.kv_bytes
    assert any("as measured on SAVE" in line for line in loaded.said)


@RUNNERS
@pytest.mark.parametrize("whole", [False, True], ids=["a size", "all"])
def test_what_a_profile_grows_is_grown_before_graphs_that_use_it(
    world: World, v2: bool, whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LOAD skips it; whatever is captured then would lock the workspace too small, or lose it to a larger batch."""
    sizes = {"compilation_config": {"cudagraph_capture_sizes": [8, 16]}}
    world.save(v2, **sizes)
    lost = next(name for name in names_of(world) if "num_tokens=8/" in name)
    world.process(MODE="load")
    if whole:
        fake_core.process.broken.update(names_of(world))
    else:
        fake_core.process.broken.add(lost)
    loaded = world.start(world.config(v2, **sizes))
    assert "capture FULL 8" in loaded.captured
    runner = loaded.worker.model_runner
    tokens = runner.input_buffers.input_ids if v2 else runner.input_ids
    forward_context = importlib.import_module("vllm.forward_context")
    forward_context.run_with(forward_context.CUDAGraphMode.NONE, None, runner.model, tokens)


@RUNNERS
def test_another_engine_of_the_process_does_not_get_the_graphs(world: World, v2: bool) -> None:
    world.save(v2, "FULL_AND_PIECEWISE")
    loaded = world.load(v2, "FULL_AND_PIECEWISE")
    loaded.check("FULL", "PIECEWISE")
    model = importlib.import_module("vllm.model").Model(world.config(v2, "FULL_AND_PIECEWISE"))
    model(importlib.import_module("torch").framework.tensor(bytes(8)))
    assert len(model.pieces) == 2
    assert [piece.concrete_cudagraph_entries for piece in model.pieces] == [{}, {}]


@RUNNERS
@pytest.mark.parametrize("release", ["0.22.1", "0.24.0", "0.33.0"])
def test_a_size_of_which_a_piece_is_missing_is_captured_whole(world: World, v2: bool, release: str) -> None:
    world.save(v2, "FULL_AND_PIECEWISE", release)
    lost = next(name for name in names_of(world) if "num_tokens=8/" in name and name.endswith("piece=1"))
    world.process(release=release, MODE="load")
    fake_core.process.broken.add(lost)
    loaded = world.start(world.config(v2, "FULL_AND_PIECEWISE"))
    assert loaded.captured == ["capture PIECEWISE 8"] * 2
    loaded.check("FULL", "PIECEWISE")


@RUNNERS
@MODES
def test_an_archive_of_something_else_leads_to_a_native_start(world: World, v2: bool, mode: str) -> None:
    saved = world.save(v2, mode)
    loaded = world.load(v2, mode, model_config={"max_model_len": 2048})
    loaded.check(*parts_of(mode))
    assert loaded.log == saved.log
    assert any("max_model_len" in line and "2048" in line for line in loaded.said)


@RUNNERS
def test_a_damaged_archive_leads_to_a_native_start(world: World, v2: bool) -> None:
    saved = world.save(v2)
    path = world.archive / "rank_0" / "all.json"
    path.write_text(path.read_text() + " ")
    loaded = world.load(v2)
    loaded.check()
    assert loaded.log == saved.log
    assert any("serving natively" in line and "all.json" in line for line in loaded.said)


@RUNNERS
def test_without_an_archive_the_start_is_native(world: World, v2: bool) -> None:
    loaded = world.load(v2)
    loaded.check()
    assert loaded.captured == FULL
    assert sum("serving natively" in line for line in loaded.said) == 1


@RUNNERS
def test_what_the_user_wants_as_an_error_is_one(world: World, v2: bool) -> None:
    world.save(v2)
    world.process(MODE="load", ON_MISMATCH="fail")
    with pytest.raises(fake_core.FoundryError, match="max_model_len"):
        world.start(world.config(v2, model_config={"max_model_len": 2048}))
    world.process(MODE="save")  # without the hook
    with pytest.raises(fake_core.FoundryError, match="preloaded"):
        world.start(world.config(v2))


@RUNNERS
def test_loras_have_graphs_of_their_own(world: World, v2: bool) -> None:
    def start(mode: str, loras: bool) -> Server:
        world.process(hook=mode == "save", MODE=mode)
        config = world.config(v2, "FULL_AND_PIECEWISE")
        if loras:
            config.lora_config = importlib.import_module("vllm.config").LoRAConfig()
        return world.start(config)

    start("save", True)
    if v2:
        assert any("has_lora=True" in name for name in names_of(world))
    loaded = start("load", True)
    assert loaded.log == []
    loaded.check("FULL", "PIECEWISE")
    without = start("load", False)
    assert "capture FULL 8" in without.captured
    assert any("lora" in line for line in without.said)


# ---- memory for the KV cache


def change_notes(world: World, change: Any) -> None:
    path = world.archive / "foundry.json"
    document = json.loads(path.read_text())
    change(document["notes"])
    path.write_text(json.dumps(document))


@RUNNERS
@pytest.mark.parametrize("value", [None, True, "5000", 0, -5, 5000.0])
def test_an_archive_without_a_figure_for_the_kv_cache(world: World, v2: bool, value: Any) -> None:
    saved = world.save(v2)

    def change(notes: dict[str, Any]) -> None:
        del notes["vllm.available_kv_cache_bytes"]
        if value is not None:
            notes["vllm.available_kv_cache_bytes"] = value

    change_notes(world, change)
    loaded = world.load(v2)
    loaded.check()
    assert loaded.log == saved.log
    assert any("does not say how much memory" in line for line in loaded.said)


@RUNNERS
def test_a_kv_cache_that_does_not_fit_any_more(world: World, v2: bool) -> None:
    saved = world.save(v2)
    world.process(MODE="load")
    import torch

    torch.framework.free_bytes = 4999
    loaded = world.start(world.config(v2))
    loaded.check()
    assert loaded.log == saved.log
    assert any("are free here" in line for line in loaded.said)
    world.process(MODE="load", ON_MISMATCH="fail")
    import torch

    torch.framework.free_bytes = 4999
    with pytest.raises(RuntimeError, match="are free here"):
        world.start(world.config(v2))


def test_a_figure_just_as_large_as_free_memory_fits(world: World) -> None:
    world.save(v2=True)
    world.process(MODE="load")
    import torch

    torch.framework.free_bytes = 5000
    assert world.start(world.config(True)).log == []


@RUNNERS
def test_a_batch_that_profiling_replaced_is_made_anew_where_load_makes_it(world: World, v2: bool) -> None:
    """V1 profiles captures with a KV cache; with several groups, say, that exchanges the input batch."""
    groups = {"groups": 2}
    world.process(hook=True, MODE="save")
    config = world.config(v2)
    config.additional_config = groups
    world.start(config).check()
    world.process(MODE="load")
    config = world.config(v2)
    config.additional_config = groups
    loaded = world.start(config)
    assert loaded.log == []
    loaded.check()


# ---- V2's outputs


def test_auxiliary_hidden_states_come_back(world: World) -> None:
    for start in (world.save, world.load):
        server = start(True)
        assert not server.worker.model_runner.cudagraph_manager.aux_hidden_states
    world.process(hook=True, MODE="save")
    config = world.config(True)
    config.additional_config = {"aux": True}
    world.start(config).check()
    world.process(MODE="load")
    config = world.config(True)
    config.additional_config = {"aux": True}
    loaded = world.start(config)
    loaded.check()
    assert loaded.log == []
    assert len(loaded.worker.model_runner.cudagraph_manager.aux_hidden_states) == 1


@pytest.mark.parametrize("rows", [None, 31])
def test_hidden_states_that_are_too_small_are_not_used(
    world: World, rows: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.save(True)
    world.process(MODE="load")
    from foundry.engines.common import starting

    original = starting.EngineStart.exported

    def exported(start: Any, name: str) -> Any:
        found = original(start, name)
        return None if rows is None or found is None else found[:rows]

    monkeypatch.setattr(starting.EngineStart, "exported", exported)
    loaded = world.start(world.config(True))
    assert loaded.captured == FULL
    loaded.check()


@RUNNERS
def test_auto_saves_then_loads(world: World, v2: bool) -> None:
    world.process(hook=True, MODE="auto")
    assert world.start(world.config(v2)).captured == FULL
    world.process(hook=True, MODE="auto")
    loaded = world.start(world.config(v2))
    assert loaded.log == []
    loaded.check()


@pytest.mark.parametrize("v2", [False, True], ids=["v1", "v2"])
def test_graphs_have_the_name_of_all_that_vllm_tells_apart(world: World, v2: bool) -> None:
    world.save(v2, "FULL_AND_PIECEWISE")
    names = names_of(world)
    assert len(set(names)) == len(names) == 9
    pieces = "PIECEWISE/num_tokens=8/num_reqs=None/uniform=False/has_lora=False/num_active_loras=0/piece="
    assert [name for name in names if "=8/" in name and name.startswith("PIECE")] == [f"{pieces}0", f"{pieces}1"]
    assert {
        False: "FULL/num_tokens=8/num_reqs=8/uniform=True/has_lora=False/num_active_loras=0",
        True: "FULL/cg_mode=FULL/num_tokens=8/num_reqs=8/uniform_token_count=1/num_active_loras=0",
    }[v2] in names


@pytest.mark.parametrize(("v2", "times"), [(False, 1), (True, 2)], ids=["v1", "v2"])
def test_steps_of_the_warm_up_are_watched(world: World, v2: bool, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """V2 runs steps after its captures; the last may leave a table that steps rewrite as captures left it."""
    start = importlib.import_module("foundry.engines.common.starting").EngineStart
    original, watched = start.captured, []
    monkeypatch.setattr(start, "captured", lambda this: (watched.append(1), original(this)))
    world.process(hook=True, MODE="save")
    server = world.start(world.config(v2))
    assert len(watched) == times
    assert "execute_model" not in vars(server.worker), "only warm-ups are watched"


@RUNNERS
def test_a_table_that_forwards_create_and_steps_rewrite_costs_its_graphs_alone(world: World, v2: bool) -> None:
    """Nobody registered it: SAVE leaves out the graphs that read it, and LOAD has vLLM capture them."""

    def with_table(worker: Any) -> None:
        torch, model = importlib.import_module("torch"), worker.model_runner.get_model()
        original = type(model).__call__

        def __call__(this: Any, x: Any) -> Any:
            if x.length == 16 and not hasattr(this, "table"):
                this.table = torch.framework.tensor(bytes(32))
            if torch.framework.recording is None and hasattr(this, "table"):
                this.table.data = bytes([x.length] * 32)  # what the host knows of a step
            return torch.framework.add(original(this, x), this.table[:16]) if x.length == 16 else original(this, x)

        type(model).__call__ = __call__

    def check(server: Server) -> None:
        model = server.worker.model_runner.get_model()
        for value in (0, 3):
            model.table.data = bytes([value] * 32)
            assert server.worker.model_runner.decode(bytes(16))[0] == (100 + value) & 255
        model.table.data = bytes(32)
        server.check()

    world.process(hook=True, MODE="save")
    saved = world.start(world.config(v2), with_table)
    check(saved)
    (left_out,) = saved.worker.foundry.report.left_out
    assert "num_tokens=16/" in left_out
    world.process(MODE="load")
    loaded = world.start(world.config(v2), with_table)
    assert loaded.captured == ["capture FULL 16"]
    assert list(loaded.worker.foundry.report.fell_back) == [left_out]
    check(loaded)
