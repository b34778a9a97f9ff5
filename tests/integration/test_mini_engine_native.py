"""The mini engine on the simulated driver, without Foundry: what SAVE and LOAD will be compared with.

The file is also the program that the tests start: one process per simulated device, results as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from foundry.recipes.mini_engine.driver import DriverError
from foundry.recipes.mini_engine.engine import EngineConfig, MiniEngine, Row
from foundry.recipes.mini_engine.graphs import CapturedGraph, capture

MIB = 1 << 20
DEVICES = {"a100-40gb": 108, "h100": 132}
PROMPTS = [[1, 2, 3], [7, 8, 9, 10, 11], [(13 * i) % 256 for i in range(40)]]

# ---------------------------------------------------------------- in the child


class WatchingEngine(MiniEngine):
    """Notes the segments of the graph pool and of the default pool after each capture."""

    def __init__(self, images: Path, config: EngineConfig) -> None:
        super().__init__(images, config)
        self.growth: dict[int, list[int]] = {}
        self.default_before: int = 0
        self.default_after_first: int = 0

    def _segments(self, pool: int) -> list[int]:
        return sorted(s.nbytes for s in self.device.allocator.snapshot() if s.pool == pool)

    def capture(self, name: str, batch: int, function: Callable[[], Any]) -> Any:
        if not self.growth:
            self.device.synchronize()
            self.device.allocator.empty_cache()
            self.default_before = len(self._segments(0))
        graph = super().capture(name, batch, function)
        if not self.growth:
            self.default_after_first = len(self._segments(0))
        self.growth[batch] = self._segments(self.graph_pool)
        return graph


def scenario_report(images: Path, route: str) -> dict[str, Any]:
    """One whole start, decoding in three ways, and what the driver saw."""
    engine = WatchingEngine(images, EngineConfig(route=route))
    engine.start()
    device = engine.device
    greedy = engine.generate(PROMPTS, 20)
    result: dict[str, Any] = {
        "device": [device.name, device.sm_count, *device.capability],
        "nodes": {n: g.node_count for n, g in engine.graphs.items() if isinstance(g, CapturedGraph)},
        "greedy": greedy,
        "greedy_again": engine.generate(PROMPTS, 20),
        "greedy_eager": engine.generate(PROMPTS, 20, eager=True),
        "growth": engine.growth,
        "default_segments": [engine.default_before, engine.default_after_first],
        "scale": [engine.kernels.step_count()],
    }
    for key, eager in (("sampled", False), ("sampled_eager", True)):
        device.generator.manual_seed(5)
        result[key] = engine.generate(PROMPTS, 12, eager=eager, sampled=True)
    result["sampled_on"] = engine.generate(PROMPTS, 12, sampled=True)
    return result


def scenario_every_size(images: Path, route: str) -> dict[str, Any]:
    """Every graph against an eager forward of the same batch, bit by bit, twice, with eager work in between."""
    engine = MiniEngine(images, EngineConfig(route=route))
    engine.start()
    pages = engine.config.model.max_pages
    equal: dict[int, list[bool]] = {}
    for batch in engine.config.batch_sizes:
        rows = [Row((7 * i + batch) % 256, (5 * i) % 60, list(range(4 * i, 4 * i + 4))) for i in range(batch)]
        assert all(len(row.pages) <= pages for row in rows)
        equal[batch] = []
        for _ in range(2):
            replayed = engine.step(rows)
            bits = (replayed.logits.to_bytes(), replayed.tokens.to_bytes())
            counted = replayed.step.to_list()[0]
            eager = engine.step(rows, eager=True)
            equal[batch].append(bits == (eager.logits.to_bytes(), eager.tokens.to_bytes()))
            equal[batch].append(eager.step.to_list()[0] == counted + 1)
    return {"equal": equal}


def scenario_threads(images: Path, route: str) -> dict[str, Any]:
    """Weights loaded by four threads, and in reverse order by one."""

    class Reversed(MiniEngine):
        def weight_order(self) -> list[str]:
            return super().weight_order()[::-1]

    tokens, addresses = [], []
    for engine in (
        MiniEngine(images, EngineConfig(route=route)),
        MiniEngine(images, EngineConfig(route=route, load_threads=4)),
        Reversed(images, EngineConfig(route=route)),
    ):
        engine.start()
        tokens.append(engine.generate(PROMPTS, 8))
        base = min(array.address for array in engine.model.weights.values())
        addresses.append([engine.model.weights[name].address - base for name in sorted(engine.model.weights)])
    return {"tokens": tokens, "addresses": addresses}


def scenario_failures(images: Path, route: str) -> dict[str, Any]:
    """A capture whose function fails leaves the engine as it was; driver errors carry the driver's text."""
    engine = MiniEngine(images, EngineConfig(route=route))
    engine.start()
    before = engine.generate(PROMPTS, 8)

    def breaks() -> None:
        engine.forward(4)
        raise KeyError("in the middle of a capture")

    messages = []
    try:
        capture(engine.device, breaks, engine.graph_pool, engine.capture_stream)
    except KeyError as error:
        messages.append(str(error))
    again = capture(engine.device, lambda: engine.forward(4), engine.graph_pool, engine.capture_stream)
    again.replay()
    engine.device.synchronize()
    again.close()
    try:
        engine.device.driver.free(0x1234)
    except DriverError as error:
        messages.append(str(error))
    try:
        engine.kernels.launch("add", (1, 1, 1), 4096, engine.buffers.ids, engine.buffers.ids, 1)  # type: ignore[union-attr]
    except DriverError as error:
        messages.append(str(error))
    return {"messages": messages, "same": before == engine.generate(PROMPTS, 8)}


def scenario_release(images: Path, route: str) -> dict[str, Any]:
    """Closing every graph gives the pool's memory and the generator's words back."""
    engine = MiniEngine(images, EngineConfig(route=route))
    engine.start()
    device = engine.device
    pools = [{s.pool for s in device.allocator.snapshot()}]
    pool = engine.graph_pool
    for graph in engine.graphs.values():
        assert isinstance(graph, CapturedGraph)
        graph.close()
    engine.graphs.clear()
    device.allocator.release_pool(pool)
    device.synchronize()
    device.allocator.empty_cache()
    pools.append({s.pool for s in device.allocator.snapshot()})
    return {"pools": [sorted(p) for p in pools], "words": device.generator.seed_word is not None}


def child(arguments: list[str]) -> None:
    """Runs a scenario by name and prints its result."""
    scenario, images, route = arguments
    print(json.dumps(globals()[f"scenario_{scenario}"](Path(images), route)))


# ---------------------------------------------------------------- the tests


def run(scenario: str, device: str = "h100", route: str = "dlsym", **environment: str) -> dict[str, Any]:
    """The scenario's result from a process of its own on a simulated device."""
    env = dict(os.environ)
    env["LD_LIBRARY_PATH"] = str(Path(os.environ["SIM_DRIVER"]).resolve().parent)
    env["FOUNDRY_SIM_DEVICE"] = device
    env["PYTHONPATH"] = os.pathsep.join(path for path in [os.getcwd(), env.get("PYTHONPATH", "")] if path)
    env |= environment
    images = str(Path(os.environ["DECODE"]).resolve().parent)
    done = subprocess.run(
        [sys.executable, __file__, scenario, images, route], env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@pytest.fixture(scope="module")
def reports() -> dict[str, dict[str, Any]]:
    return {device: run("report", device) for device in DEVICES}


@pytest.mark.parametrize("device", DEVICES)
def test_device_is_the_one_asked_for(reports: dict[str, dict[str, Any]], device: str) -> None:
    assert reports[device]["device"][1:] == [DEVICES[device], 8 if device == "a100-40gb" else 9, 0]


@pytest.mark.parametrize("device", DEVICES)
def test_replayed_tokens_equal_eager_ones_every_time(reports: dict[str, dict[str, Any]], device: str) -> None:
    report = reports[device]
    assert [len(tokens) for tokens in report["greedy"]] == [20, 20, 20]
    assert report["greedy"] == report["greedy_again"] == report["greedy_eager"]
    assert len({tuple(tokens) for tokens in report["greedy"]}) == 3, "the prompts matter"
    assert all(len(set(tokens)) > 5 for tokens in report["greedy"]), "the model does not repeat one token"


@pytest.mark.parametrize("device", DEVICES)
def test_seed_means_the_same_before_a_replay_as_before_eager_work(
    reports: dict[str, dict[str, Any]], device: str
) -> None:
    report = reports[device]
    assert report["sampled"] == report["sampled_eager"]
    assert report["sampled_on"] != report["sampled"], "the generator goes on"
    assert report["sampled"] != [tokens[:12] for tokens in report["greedy"]]


def test_a_process_of_its_own_and_another_route_give_the_same(reports: dict[str, dict[str, Any]]) -> None:
    other = run("report", "a100-40gb", "proc_address")
    assert other == reports["a100-40gb"]


@pytest.mark.parametrize(("device", "largest"), [("a100-40gb", 21), ("h100", 24)])
def test_split_scratch_starts_in_the_middle_of_the_capture_loop(
    reports: dict[str, dict[str, Any]], device: str, largest: int
) -> None:
    report = reports[device]
    nodes = {int(batch): count for batch, count in report["nodes"].items()}
    assert list(nodes) == sorted(nodes, reverse=True), "captured largest first"
    unsplit = nodes[max(nodes)]
    # A combine kernel per layer tells that attention was split.
    assert {batch: count - unsplit for batch, count in nodes.items()} == {
        batch: 2 if batch <= largest else 0 for batch in nodes
    }
    growth = {int(batch): segments for batch, segments in report["growth"].items()}
    for batch, segments in growth.items():
        assert (20 * MIB in segments) == (batch <= largest), (batch, segments)
        assert 2 * MIB in segments


@pytest.mark.parametrize("device", DEVICES)
def test_first_capture_registers_the_generator_in_a_segment_of_its_own(
    reports: dict[str, dict[str, Any]], device: str
) -> None:
    # Its words belong to the capture stream, where the default pool had nothing.
    before, after = reports[device]["default_segments"]
    assert after == before + 1


@pytest.mark.parametrize("device", DEVICES)
def test_every_graph_equals_the_eager_forward_bit_by_bit(device: str) -> None:
    equal = run("every_size", device)["equal"]
    assert {int(batch) for batch in equal} == set(EngineConfig().batch_sizes)
    assert all(flag for flags in equal.values() for flag in flags), equal


def test_order_and_threads_of_loading_move_weights_but_not_tokens() -> None:
    result = run("threads")
    first, threaded, backwards = result["tokens"]
    assert first == threaded == backwards
    assert result["addresses"][0] != result["addresses"][2]


def test_failures_are_reported_and_survived() -> None:
    result = run("failures")
    assert result["same"]
    in_capture, free, launch = result["messages"]
    assert "in the middle of a capture" in in_capture
    assert free.startswith("cuMemFree_v2 failed with CUDA_ERROR_INVALID_VALUE (1): ")
    assert launch.startswith("cuLaunchKernel failed with CUDA_ERROR_INVALID_VALUE (1): ")


def test_closed_graphs_give_their_memory_back() -> None:
    result = run("release")
    assert result["pools"] == [[0, 1], [0]]
    assert result["words"] is False


def test_fresh_memory_has_no_say() -> None:
    """New memory full of ones must not change a token: nothing is read that was not written."""
    assert run("report", FOUNDRY_SIM_POISON="255")["greedy"] == run("report", FOUNDRY_SIM_POISON="0")["greedy"]


if __name__ == "__main__":
    child(sys.argv[1:])
