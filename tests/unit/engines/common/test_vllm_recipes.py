"""How the recipes talk to vLLM: its asynchronous class and its server, both stand-ins here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from foundry.recipes.engines import vllm_graphs, vllm_server
from foundry.recipes.engines.vllm_engines import Asynchronous

ROOT = Path(vllm_server.__file__).resolve().parents[3]
SERVER = """
import http.server, json, sys
print("(EngineCore) INFO Foundry: restoring from here", flush=True)
if "--max-model-len" in sys.argv and sys.argv[sys.argv.index("--max-model-len") + 1] == "7":
    sys.exit("no GPU")
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer({})
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        count = asked["sampling_params"]["max_tokens"]
        self.answer({"choices": [{"token_ids": [asked["token_ids"][0] + i for i in range(count)]}]})
    def answer(self, found):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(found).encode())
    def log_message(self, *args):
        pass
print("(EngineCore) INFO Foundry: restored 5 graphs from here; 9 tensors in place", flush=True)
print("arguments", json.dumps(sys.argv[1:]), flush=True)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
"""


def serve(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    package = folder / "vllm" / "entrypoints" / "cli"
    package.mkdir(parents=True, exist_ok=True)
    (package / "main.py").write_text(SERVER)
    return subprocess.run(
        [sys.executable, "-m", vllm_server.__name__, "--json", str(folder / "out.json"), "--model", "m", *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_server_is_started_asked_and_ended(tmp_path: Path) -> None:
    done = serve(tmp_path, "--tokens", "3", "--sizes", "1,2")
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "out.json").read_text())
    assert (found["outcome"], found["graphs"]) == ("restored", 5)
    assert found["said"][0] == "restoring from here"
    assert found["tokens"]["alone"][0] == [5, 6, 7] and len(found["tokens"]["alone"]) == 8
    assert found["seconds"]["ready"] > 0
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("arguments ")]
    arguments = json.loads(line.removeprefix("arguments "))
    assert arguments[:2] == ["serve", "m"] and "--tokens-only" in arguments
    sizes = json.loads(arguments[arguments.index("--compilation-config") + 1])["cudagraph_capture_sizes"]
    assert sizes == [1, 2]


def test_a_server_that_does_not_start_is_an_error(tmp_path: Path) -> None:
    done = serve(tmp_path, "--max-model-len", "7")
    assert done.returncode != 0 and "the server ended with code 1" in done.stderr
    assert not (tmp_path / "out.json").exists()


def test_arguments_of_the_class_are_flags_of_the_server() -> None:
    assert vllm_server.flags({"a_b": 3, "c": True, "d_e": False, "f": {"g": [1]}}) == [
        *("--a-b", "3"),
        "--c",
        "--no-d-e",
        *("--f", '{"g": [1]}'),
    ]


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["saving to a", "saved 67 graphs (9 nodes) to a"], ("saved", 67)),
        (["restoring from a", "restored 66 of 67 graphs from a"], ("restored", 66)),
        (["serving natively: tensor parallelism is not supported yet"], ("native", 0)),
        ([], ("none", 0)),
    ],
)
def test_what_came_of_a_session_by_its_lines(lines: list[str], found: tuple[str, int]) -> None:
    assert vllm_server.outcome(lines) == found


class AsyncLLM:
    """Each replica adds its number to what it is asked."""

    vllm_config = types.SimpleNamespace(use_v2_model_runner=True)

    def __init__(self, arguments: dict[str, Any]) -> None:
        self.arguments, self.core_engines, self.ended = arguments, [b"0", b"1"], False
        self.engine_core = self
        self.names: set[str] = set()

    @classmethod
    def from_engine_args(cls, arguments: Any) -> AsyncLLM:
        return cls(vars(arguments))

    async def generate(
        self, prompt: Any, sampling: Any, name: str, *, lora_request: Any = None, data_parallel_rank: int | None = None
    ) -> Any:
        assert name not in self.names, "a request's name is used twice"
        self.names.add(name)
        tokens = [prompt["prompt_token_ids"][0] + (data_parallel_rank or 0)] * sampling.max_tokens
        yield types.SimpleNamespace(outputs=[types.SimpleNamespace(token_ids=tokens)])

    async def _call_utility_async(self, method: str, *arguments: Any, engine: bytes) -> Any:
        assert method == "collective_rpc"
        function, _, given, _ = arguments
        return [(int(engine), function, given)]

    def shutdown(self) -> None:
        self.ended = True


def test_replicas_are_asked_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    modules = {
        "vllm": {"SamplingParams": types.SimpleNamespace},
        "vllm.sampling_params": {"RequestOutputKind": types.SimpleNamespace(FINAL_ONLY=2)},
        "vllm.engine": {},
        "vllm.engine.arg_utils": {"AsyncEngineArgs": types.SimpleNamespace},
        "vllm.v1": {},
        "vllm.v1.engine": {},
        "vllm.v1.engine.async_llm": {"AsyncLLM": AsyncLLM},
    }
    for name, content in modules.items():
        module = types.ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    engine = Asynchronous({"model": "m"}, 2)
    assert engine._engine.arguments == {"model": "m", "data_parallel_size": 2}
    assert engine.answer([[5], [9]], 2)[0] == [[5, 5], [9, 9]]
    assert engine.answer([[5], [9]], 2, replica=1)[0] == [[6, 6], [10, 10]]
    assert engine.in_workers("apply_model", 7) == [(0, "apply_model", (7,)), (1, "apply_model", (7,))]

    def of_the_program() -> None: ...

    of_the_program.__module__ = "__main__"
    for sent in ((of_the_program,), ("apply_model", of_the_program)):
        with pytest.raises(ValueError, match="of_the_program belongs to the program"):
            engine.in_workers(*sent)
    engine.close()
    assert engine._engine.ended


class Key:
    """A descriptor of a graph."""

    def __init__(self, num_tokens: int) -> None:
        self.num_tokens, self.cg_mode = num_tokens, "FULL"


class RunnerV2:
    """Captures what its manager is told to; `inputs`: the size that input buffers are laid out for."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self.keys = {size: Key(size) for size in sizes}
        self.cudagraph_manager: Any = types.SimpleNamespace(graphs={})
        self.captured, self.inputs = 0, 0
        for key in self.keys.values():
            self.cudagraph_manager.graphs[key] = self.graph(key.num_tokens)

    def graph(self, size: int) -> Any:
        def replay() -> None:
            assert self.inputs == size, "a graph runs with the inputs of another size"

        return types.SimpleNamespace(replay=replay)

    def capture_model(self) -> None:
        for keys in self.cudagraph_manager._capture_descs.values():
            for key in keys:
                assert key not in self.cudagraph_manager.graphs
                self.cudagraph_manager.graphs[key] = self.graph(key.num_tokens)
                self.captured, self.inputs = self.captured + 1, key.num_tokens


class RunnerV1(RunnerV2):
    """The first runner: the table is the wrapper's, and a dispatcher says what is captured."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        super().__init__(sizes)
        entries = {key: types.SimpleNamespace(cudagraph=g) for key, g in self.cudagraph_manager.graphs.items()}
        self.model: Any = types.SimpleNamespace(concrete_cudagraph_entries=entries, runtime_mode="FULL")
        self.cudagraph_dispatcher = types.SimpleNamespace(
            get_capture_descs=lambda: [("FULL", list(self.keys.values()))]
        )
        del self.cudagraph_manager

    def capture_model(self) -> None:
        for mode, keys in self.cudagraph_dispatcher.get_capture_descs():
            assert mode == "FULL"
            for key in keys:
                entry = types.SimpleNamespace(cudagraph=self.graph(key.num_tokens))
                self.model.concrete_cudagraph_entries[key] = entry
                self.captured, self.inputs = self.captured + 1, key.num_tokens


@pytest.mark.parametrize("kind", [RunnerV1, RunnerV2])
def test_graphs_are_compared_with_inputs_of_their_size(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = kind((1, 8, 24))
    first = dict(vllm_graphs._table(runner))
    seen = []

    def in_turns(*replays: Any) -> dict[str, float]:
        for replay in replays:
            replay()
        seen.append(len(set(replays)))
        return {"ratio": 1.0}

    monkeypatch.setattr(vllm_graphs, "in_turns", in_turns)
    rows = vllm_graphs.compare(types.SimpleNamespace(model_runner=runner))
    assert rows == [{"batch": 1, "ratio": 1.0}, {"batch": 8, "ratio": 1.0}]  # 24 is not among those asked for
    assert seen == [1 + vllm_graphs.NATIVE] * 2 and runner.captured == 2 * vllm_graphs.NATIVE
    assert dict(vllm_graphs._table(runner)) == first
