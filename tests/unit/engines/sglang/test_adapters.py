"""Both adapters on a stand-in for SGLang: what is done in which order, on SAVE, on LOAD and when something fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fake_start import FakeStart
from mini_sglang import Attention, BreakableCudaGraphBackend, LogitsProcessorOutput, log

GENERATIONS = ("classic", "backends")
NAMES = {"decode/4", "decode/2", "decode/1"}
NOTES = {"sglang.available_bytes": 777}
Make = Callable[..., tuple[Any, Any, Any]]


def run(found: dict[str, Any], runner: Any = None, attention: type[Attention] | None = None) -> Any:
    """Starts an engine of the generation that `found` holds; its graph runner."""
    executor = "sglang.srt.model_executor"
    kind = found[f"{executor}.model_runner"].ModelRunner
    runner = runner or (kind(attention) if attention else kind())
    if f"{executor}.cuda_graph_runner" in found:
        return runner.start_classic(found[f"{executor}.cuda_graph_runner"].CudaGraphRunner)
    decode = found[f"{executor}.runner.decode_cuda_graph_runner"].DecodeCudaGraphRunner
    return runner.start_backends(decode, found[f"{executor}.runner.eager_runner"].EagerRunner)


def kept(graph_runner: Any) -> dict[int, tuple[Any, Any]]:
    """Graph and outputs by size."""
    if hasattr(graph_runner, "graphs"):
        return {size: (graph, graph_runner.output_buffers[size]) for size, graph in graph_runner.graphs.items()}
    backend = graph_runner.backend
    return {key.size: (graph, backend._outputs[key]) for key, graph in backend._graphs.items()}


@pytest.mark.parametrize("generation", GENERATIONS)
def test_save(engine: Make, generation: str) -> None:
    """Every phase is around its part of the start, every capture is adopted, and the session ends with the last one."""
    _, start, found = engine(generation, FakeStart("save"))
    runner = run(found)
    assert log[:2] == ["device", "begin"]
    assert [entry for entry in log if entry[0] == "<" or entry[-1] == ">" or entry in ("load", "pool", "buffers")][:11] == [
        "<weights", "load", "weights>", "<kv_cache", "pool", "kv_cache>", "<buffers", "buffers>", "<buffers",
        *(["buffers>", "<buffers"] if generation == "backends" else ["buffers", "buffers>"]),
    ]  # fmt: skip
    assert log.index("buffers") < log.index("register attention") < log.index("forward 4")
    assert list(start.adopted) == ["decode/4", "decode/2", "decode/1"]
    assert start.adopted["decode/2"][0] is kept(runner)[2][0]
    assert start.adopted["decode/2"][1] == {"next_token_logits": "logits 2"}
    assert start.notes == {"sglang.available_bytes": 1000}
    assert log[-1] == "end"
    # What steps launch beside graphs is compiled before the archive is written.
    assert log[-2] == "clamp 1 int64 on cuda"
    # No phase is open while SGLang captures: captures have a zone of their own.
    assert log.index("<substituted") > max(i for i, entry in enumerate(log) if entry == "buffers>")


@pytest.mark.parametrize("generation", GENERATIONS)
def test_load_runs_no_forward_and_captures_nothing(engine: Make, generation: str) -> None:
    _, start, found = engine(generation, FakeStart("load", NAMES, dict(NOTES)))
    runner = run(found)
    assert not [entry for entry in log if entry.startswith(("forward", "capture", "freeze", "state", "adopt"))]
    assert runner.model_runner.pool_bytes == 777  # SAVE's figure, not the 1000 of this process
    assert set(kept(runner)) == {1, 2, 4}
    graph, output = kept(runner)[2]
    assert output == LogitsProcessorOutput("restored decode/2")
    graph.replay()
    graph.reset()
    assert log[-2:] == ["end", "restored replay decode/2"]
    # Tensors are compared when the first graph is asked for: all must be registered by then.
    last = max(i for i, entry in enumerate(log) if entry.startswith("register "))
    assert last < log.index("restored decode/4")


@pytest.mark.parametrize("generation", GENERATIONS)
def test_a_size_that_the_archive_lacks_is_captured(engine: Make, generation: str) -> None:
    _, start, found = engine(generation, FakeStart("load", {"decode/4", "decode/1"}, dict(NOTES)))
    runner = run(found)
    assert [entry for entry in log if entry.startswith("forward")] == ["forward 2"] * 3
    assert "freeze" in log
    assert kept(runner)[2][1] == LogitsProcessorOutput("logits 2")
    assert kept(runner)[4][1] == LogitsProcessorOutput("restored decode/4")


@pytest.mark.parametrize("generation", GENERATIONS)
def test_state_of_an_attention_backend_is_made_on_load(engine: Make, generation: str) -> None:
    """A backend that keeps something for every size gets it in the phase, in SGLang's order, and without a forward."""
    _, start, found = engine(generation, FakeStart("load", NAMES, dict(NOTES)))
    runner = run(found, attention=Attention)
    assert runner.attn_backend.wrappers == {4: "wrapper 4", 2: "wrapper 2", 1: "wrapper 1"}
    assert not [entry for entry in log if entry.startswith(("forward", "capture"))]
    made = log.index("state 4")
    assert log[made - 1 : made + 8] == [
        "<buffers", "state 4", "buffers>", "<buffers", "state 2", "buffers>", "<buffers", "state 1", "buffers>"
    ]  # fmt: skip
    assert made < log.index("register attention") < log.index("restored decode/4")
    assert set(kept(runner)) == {1, 2, 4}
    runner.attn_backend.init_forward_metadata_out_graph(8)  # what replays call is not in a phase
    assert log[-2:] != ["state 8", "buffers>"]


@pytest.mark.parametrize("generation", GENERATIONS)
def test_state_of_an_attention_backend_on_save(engine: Make, generation: str) -> None:
    """The same tensors, registered under the same names: after captures have made them."""
    _, start, found = engine(generation, FakeStart("save"))
    run(found, attention=Attention)
    made = log.index("state 4")
    assert (log[made - 1], log[made + 1]) == ("<buffers", "buffers>")
    assert log.index("adopt decode/1") < log.index("register attention") < log.index("end")


@pytest.mark.parametrize("generation", GENERATIONS)
def test_tensors_are_registered_under_the_same_names(engine: Make, generation: str) -> None:
    names = []
    for state in ("save", "load"):
        log.clear()
        _, start, found = engine(generation, FakeStart(state, NAMES, dict(NOTES)))
        run(found)
        names.append([name for name, _ in start.registered])
    assert names[0] == names[1] == ["model", "layers", "kv", "requests", "inputs", "slots", "attention"]


@pytest.mark.parametrize("generation", GENERATIONS)
def test_captures_after_the_start_are_sglangs_own(engine: Make, generation: str) -> None:
    """A request for hidden states makes SGLang capture anew: never from the archive."""
    _, start, found = engine(generation, FakeStart("load", NAMES, dict(NOTES)))
    runner = run(found)
    log.clear()
    runner.capture()
    assert [entry for entry in log if entry == "capture"] == ["capture"] * 3
    assert not [entry for entry in log if entry.startswith(("restored", "register", "end", "<"))]
    assert kept(runner)[2][1] == LogitsProcessorOutput("logits 2")


@pytest.mark.parametrize("generation", GENERATIONS)
def test_an_engine_that_fails_ends_the_session(engine: Make, generation: str) -> None:
    _, start, found = engine(generation, FakeStart("save"))
    runner = found["sglang.srt.model_executor.model_runner"].ModelRunner()
    runner.fails = MemoryError("no memory")
    with pytest.raises(MemoryError):
        run(found, runner)
    assert isinstance(start.problem, MemoryError)
    assert "end" not in log
    assert log.count("<buffers") == log.count("buffers>")


@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize(
    ("notes", "sentence"),
    [
        ({}, "does not say"),
        ({"sglang.available_bytes": "x"}, "does not say"),
        ({"sglang.available_bytes": True}, "does not say"),
        ({"sglang.available_bytes": 5001}, "are free here"),
    ],
)
def test_a_kv_cache_that_cannot_be_had(engine: Make, generation: str, notes: dict[str, Any], sentence: str) -> None:
    """Served natively with this process's own figure."""
    _, start, found = engine(generation, FakeStart("load", NAMES, notes))
    runner = run(found)
    assert runner.model_runner.pool_bytes == 1000
    assert sentence in str(start.problem)
    assert kept(runner)[2][1] == LogitsProcessorOutput("logits 2")


@pytest.mark.parametrize("generation", GENERATIONS)
def test_what_is_not_supported_is_served_natively(engine: Make, generation: str) -> None:
    _, start, found = engine(generation, FakeStart("save"))
    runner = found["sglang.srt.model_executor.model_runner"].ModelRunner()
    runner.server_args.speculative_algorithm = "EAGLE"
    run(found, runner)
    assert "--speculative-algorithm is used" in str(start.problem)
    assert not [entry for entry in log if entry.startswith(("begin", "<", "register", "adopt", "end"))]
    assert log.count("capture") == 3


@pytest.mark.parametrize("generation", GENERATIONS)
def test_models_with_state_space_layers(engine: Make, generation: str) -> None:
    """Known only when the model is loaded: the session that has begun is given up."""
    _, start, found = engine(generation, FakeStart("save"))
    runner = found["sglang.srt.model_executor.model_runner"].ModelRunner()
    runner.mambaish_config = object()
    run(found, runner)
    assert "state-space" in str(start.problem)
    assert not start.adopted
    assert "register layers" not in log


@pytest.mark.parametrize("generation", GENERATIONS)
def test_a_draft_runner_is_left_alone(engine: Make, generation: str) -> None:
    _, start, found = engine(generation, FakeStart("save"))
    runner = found["sglang.srt.model_executor.model_runner"].ModelRunner()
    runner.is_draft_worker = True
    run(found, runner)
    assert not [entry for entry in log if entry.startswith(("begin", "<", "register", "adopt", "end"))]


@pytest.mark.parametrize(("becomes", "taken"), [("save", False), ("load", True)])
@pytest.mark.parametrize("generation", GENERATIONS)
def test_replicas(engine: Make, generation: str, becomes: str, taken: bool) -> None:
    """All load from one archive, one saves it: which of the two a start is the session knows."""
    _, start, found = engine(generation, FakeStart(becomes, NAMES, dict(NOTES)))
    runner = found["sglang.srt.model_executor.model_runner"].ModelRunner()
    runner.dp_rank = 1
    run(found, runner)
    assert start.spare == "data-parallel replica 1 does not save: replica 0 saves for all"
    assert ("<weights" in log) is taken and start.problem is None


@pytest.mark.parametrize("rank", [0, None])
def test_the_first_replica_may_save(engine: Make, rank: int | None) -> None:
    _, start, found = engine("classic", FakeStart("save"))
    runner = found["sglang.srt.model_executor.model_runner"].ModelRunner()
    runner.dp_rank = rank
    run(found, runner)
    assert start.spare == "" and "<weights" in log


@pytest.mark.parametrize("generation", GENERATIONS)
def test_outputs_that_an_archive_cannot_hold(engine: Make, generation: str) -> None:
    """That size is not saved; the engine has it all the same."""
    _, start, found = engine(generation, FakeStart("save"))
    kind = found["sglang.srt.model_executor.model_runner"].ModelRunner
    kind.forward = lambda self, size: {"hidden": size} if size == 2 else LogitsProcessorOutput(size)
    runner = run(found)
    assert list(start.adopted) == ["decode/4", "decode/1"]
    assert kept(runner)[2][1] == {"hidden": 2}


def test_the_event_inside_graphs(engine: Make) -> None:
    """Kept when captures have made it; handed back before the loop, so that sizes captured natively record it, too."""
    _, start, found = engine("backends", FakeStart("save"))
    run(found)
    assert log.index("adopt decode/1") < log.index("register event captured event") < log.index("end")
    for archive in (NAMES, {"decode/4"}):
        _, start, found = engine("backends", FakeStart("load", archive, dict(NOTES)))
        assert run(found).in_graph_metadata_prep_done == "restored in_graph_metadata_prep_done"
    _, start, found = engine("backends", FakeStart("load", set(), dict(NOTES)))
    assert run(found).in_graph_metadata_prep_done == "captured event"


def test_only_full_graphs_of_decode(engine: Make) -> None:
    _, start, found = engine("backends", FakeStart("save"))
    decode = found["sglang.srt.model_executor.runner.decode_cuda_graph_runner"].DecodeCudaGraphRunner
    decode.backend_class = BreakableCudaGraphBackend
    run(found)
    assert "BreakableCudaGraphBackend" in str(start.problem)
    assert not start.adopted


def test_prefill_graphs_of_the_same_class_are_left_alone(engine: Make) -> None:
    _, start, found = engine("backends", FakeStart("load", NAMES, dict(NOTES)))
    run(found)
    other = found["sglang.srt.model_executor.runner_backend.full_cuda_graph_backend"].FullCudaGraphBackend()
    key = type("Key", (), {"size": 4})()
    other.capture_one(key, lambda: "prefill")
    assert other._outputs == {key: "prefill"}
