"""Starts, and replicas, that are native from the beginning or from some point on, and what is said."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from vllm_world import FULL, RUNNERS, Server, World


@RUNNERS
def test_a_release_that_lacks_what_adapters_import_is_served_natively(
    world: World, v2: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.process(hook=True, MODE="auto")
    monkeypatch.delattr(importlib.import_module("vllm.compilation.cuda_graph"), "CUDAGraphEntry")
    from foundry.engines import vllm as entry

    entry.register()
    config = world.config(v2)
    importlib.import_module("vllm.platforms").current_platform.check_and_update_config(config)
    worker = importlib.import_module("foundry.engines.vllm.worker").Worker(config, 0, 0, "tcp://", True)
    worker.init_device()
    (said,) = [line for line in importlib.import_module("vllm").log if line.startswith("say ")]
    assert "not one that the plugin knows" in said and "has no CUDAGraphEntry" in said


@RUNNERS
def test_a_worker_that_makes_another_runner_is_served_natively(
    world: World, v2: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.process(hook=True, MODE="auto")
    module = importlib.import_module("vllm.v1.worker.gpu.model_runner" if v2 else "vllm.v1.worker.gpu_model_runner")
    worker = importlib.import_module("vllm.v1.worker.gpu_worker").Worker
    other = type("OtherRunner", (), dict(vars(module.GPUModelRunner)))

    def init_device(self: Any) -> None:
        self.device, self.model_runner = "cuda:0", other(self.vllm_config, "cuda:0")

    monkeypatch.setattr(worker, "init_device", init_device)
    server = world.start(world.config(v2))
    server.check()
    assert server.said == [f"serving natively: this vLLM's worker makes another model runner than {module.__name__}'s"]


def test_graphs_that_a_model_captures_itself_are_refused(world: World) -> None:
    world.process(hook=True, MODE="save")
    from vllm.v1.worker.gpu.model_states.interface import ModelState

    class Special(ModelState):
        def capture_inner_cudagraphs(self) -> None: ...

    def make_special(worker: Any) -> None:
        worker.model_runner.model_state = Special()

    server = world.start(world.config(True), between=make_special)
    server.check()
    assert any("Special.capture_inner_cudagraphs" in line for line in server.said)
    assert not world.archive.exists()


@RUNNERS
@pytest.mark.parametrize("kind", ["FlashInfer", "FlexAttention"])
def test_attention_that_allocates_in_steps_what_graphs_read_is_refused(world: World, v2: bool, kind: str) -> None:
    """Captures of other sizes do not rewrite FlashInfer's plan of a size, so SAVE would not find out."""
    builder = type("Chunked", (type(f"{kind}MetadataBuilder", (), {}),), {})()

    def choose(worker: Any) -> None:
        group = importlib.import_module("vllm.v1.worker.utils").AttentionGroup
        worker.model_runner.attn_groups = [[], [group([object()]), group([builder])]]

    world.process(hook=True, MODE="auto")
    server = world.start(world.config(v2), between=choose)
    server.check()
    assert f"serving natively: {kind} is not supported yet" in server.said[-1]
    assert not world.archive.exists()
    builder.use_trtllm_decode_attention = True
    world.process(hook=True, MODE="auto")
    world.start(world.config(v2), between=choose)
    assert world.archive.exists()


@RUNNERS
def test_a_mode_that_vllm_has_changed_to_none(world: World, v2: bool) -> None:
    """As it does where the attention has no graphs: an archive of none would spare warm-ups and nothing else."""

    def change(worker: Any) -> None:
        compilation = worker.vllm_config.compilation_config
        compilation.cudagraph_mode = type(compilation.cudagraph_mode).NONE

    world.process(hook=True, MODE="auto")
    server = world.start(world.config(v2), between=change)
    assert server.said[-1] == "serving natively: no CUDA graphs are captured (enforce_eager, or cudagraph_mode is NONE)"
    assert not world.archive.exists()


@RUNNERS
def test_attention_that_was_chosen_otherwise_is_native(world: World, v2: bool) -> None:
    """Nobody asked for a backend, and what is installed here is not what was: caches may be laid out otherwise."""

    def start(*kinds: str) -> Server:
        def choose(worker: Any) -> None:
            group = importlib.import_module("vllm.v1.worker.utils").AttentionGroup
            worker.model_runner.attn_groups = [[group([type(kind, (), {})()]) for kind in kinds]]

        return world.start(world.config(v2), between=choose)

    world.process(hook=True, MODE="save")
    start("A", "B", "A")
    for others in (("B",), ("A", "C"), ()):
        world.process(MODE="load")
        server = start(*others)
        server.check()
        assert server.captured == FULL
        assert "attention is by " in server.said[-1] and ".A, " in server.said[-1] and "on SAVE" in server.said[-1]
    world.process(MODE="load")
    server = start("B", "A")
    server.check()
    assert server.log == []


@RUNNERS
def test_one_replica_saves_and_all_load(world: World, v2: bool) -> None:
    def start(rank: int, mode: str) -> Server:
        world.process(hook=mode == "save", MODE=mode)
        parallel = {
            "data_parallel_size": 2,
            "data_parallel_rank": rank,
            "data_parallel_index": rank,
            "data_parallel_rank_local": rank,
        }
        return world.start(world.config(v2, parallel_config=parallel))

    second = start(1, "save")
    assert second.captured == FULL and not world.archive.exists()
    assert any("replica 1 does not save" in line for line in second.said)
    start(0, "save").check()
    for rank in (0, 1):
        loaded = start(rank, "load")
        assert loaded.log == []
        loaded.check()


@RUNNERS
@pytest.mark.parametrize(("mode", "saving"), [("auto", [0, 2]), ("save", [0])])
def test_one_replica_of_each_machine_saves_where_nobody_asked_which(
    world: World, v2: bool, mode: str, saving: list[int]
) -> None:
    """Replicas 2 and 3 are on another machine, whose archives may be its own."""
    for rank, first in ((0, 0), (1, 0), (2, 2), (3, 2)):
        world.archive = world.archive.with_name(f"{rank}.fdry")
        world.process(hook=True, MODE=mode)
        # As vLLM leaves it for models without experts.
        parallel = {"data_parallel_index": rank, "data_parallel_rank_local": rank - first}
        server = world.start(world.config(v2, parallel_config=parallel))
        server.check()
        assert world.archive.exists() == (rank in saving)
        if rank not in saving:
            whom = "those of this machine" if mode == "auto" and first else "all"
            saves = first if mode == "auto" else 0
            assert server.said == [
                f"serving natively: data-parallel replica {rank} does not save: replica {saves} saves for {whom}"
            ]


def test_a_replica_that_does_not_know_its_machine_leaves_saving_to_the_first(world: World) -> None:
    """As an external launcher's."""
    world.process(hook=True, MODE="auto")
    server = world.start(world.config(parallel_config={"data_parallel_index": 3}))
    assert server.said == ["serving natively: data-parallel replica 3 does not save: replica 0 saves for all"]


@RUNNERS
def test_a_replica_that_does_not_save_loads_what_fits(world: World, v2: bool) -> None:
    """The launcher preloads the hook for a command that it has not seen, whatever archive there is."""
    parallel = {"data_parallel_index": 1, "data_parallel_rank_local": 1}
    world.save(v2)
    world.process(hook=True, MODE="auto")
    loaded = world.start(world.config(v2, parallel_config=parallel))
    assert loaded.log == []
    loaded.check()
    world.process(hook=True, MODE="auto")
    other = world.start(world.config(v2, parallel_config=parallel, model_config={"max_model_len": 2048}))
    other.check()
    assert other.captured == FULL
    assert other.said == ["serving natively: data-parallel replica 1 does not save: replica 0 saves for all"]
    assert other.worker.foundry.report is None


@RUNNERS
def test_what_is_not_supported_is_served_natively(world: World, v2: bool) -> None:
    world.process(hook=True, MODE="save")
    server = world.start(world.config(v2, parallel_config={"tensor_parallel_size": 2}))
    server.check()
    assert server.said == ["serving natively: tensor parallelism is not supported yet"]
    world.process(hook=True, MODE="save", ON_MISMATCH="fail")
    with pytest.raises(RuntimeError, match="tensor parallelism"):
        world.start(world.config(v2, parallel_config={"tensor_parallel_size": 2}))


@RUNNERS
def test_a_release_that_moved_something_is_served_natively(
    world: World, v2: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.process(hook=True, MODE="save")
    name = "vllm.v1.worker.gpu.model_runner" if v2 else "vllm.v1.worker.gpu_model_runner"
    runner = importlib.import_module(name).GPUModelRunner
    original = runner._dummy_run

    def renamed(self: Any, tokens: int = 8, *args: Any, num_tokens: int = 0) -> Any:
        return original(self, num_tokens or tokens, *args)

    monkeypatch.setattr(runner, "_dummy_run", renamed)
    server = world.start(world.config(v2))
    assert len(server.said) == 1
    assert "not one that the plugin knows" in server.said[0]
    assert "_dummy_run takes (tokens, args, num_tokens), the plugin knows (num_tokens, ...)" in server.said[0]
