"""Processes that start a miniature vLLM with the plugin, and the disk that stays."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fake_core
import pytest

# What is imported anew in every process: it holds on to classes of vLLM or PyTorch.
_OF_A_PROCESS = ("vllm", "torch", "foundry.engines.vllm", "foundry.engines.common.engine_graph", "foundry.torch")
SIZES = (8, 16, 32)
RUNNERS = pytest.mark.parametrize("v2", [False, True], ids=["v1", "v2"])
MODES = pytest.mark.parametrize("mode", ["FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"])
FULL = [f"capture FULL {n}" for n in reversed(SIZES)]


def parts_of(mode: str) -> list[str]:
    return ["FULL", "PIECEWISE"] if mode == "FULL_AND_PIECEWISE" else ["FULL"]


class Server:
    """vLLM after its start."""

    def __init__(self, worker: Any, kv_bytes: int) -> None:
        self.worker, self.kv_bytes = worker, kv_bytes
        self.vllm, self.framework = sys.modules["vllm"], sys.modules["torch"].framework  # type: ignore[attr-defined]

    @property
    def log(self) -> list[str]:
        """What ran."""
        return [line for line in self.vllm.log if not line.startswith("say ")]  # type: ignore[attr-defined]

    @property
    def said(self) -> list[str]:
        """Foundry's lines."""
        return [line.removeprefix("say Foundry: ") for line in self.vllm.log if line.startswith("say ")]  # type: ignore[attr-defined]

    @property
    def captured(self) -> list[str]:
        """What vLLM captured, in order."""
        return [line for line in self.log if line.startswith("capture")]

    def check(self, *modes: str) -> None:
        """Steps of every size compute what they should, without a capture."""
        from vllm.config import CUDAGraphMode
        from vllm.model import expected

        before = self.framework.captures
        for mode in modes or ("FULL",):
            for n in SIZES:
                for seed in (3, 77):
                    data = bytes((i * seed) & 255 for i in range(n))
                    found = self.worker.model_runner.decode(data, CUDAGraphMode[mode])
                    assert found == expected(data), f"{mode} {n}"
        assert self.framework.captures == before


class World:
    """The disk, and the environment of the next process."""

    def __init__(self, archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.archive, self._monkeypatch = archive, monkeypatch
        self.forget()

    def forget(self) -> None:
        """Modules of the process that was."""
        for name in list(sys.modules):
            if name != "foundry.torch" and (
                name in _OF_A_PROCESS or name.startswith(tuple(f"{kind}." for kind in _OF_A_PROCESS))
            ):
                del sys.modules[name]

    def process(self, hook: bool = False, release: str = "0.24.0", **environment: str) -> None:
        """A new one; `environment` without the prefix FOUNDRY_."""
        self.forget()
        fake_core.new_process(hook=hook)
        import foundry.api
        import foundry.torch

        self._monkeypatch.setattr(foundry.api, "_active", None)
        self._monkeypatch.setenv("MINI_VLLM", release)
        for name, value in ({"ARCHIVE": str(self.archive)} | environment).items():
            self._monkeypatch.setenv(f"FOUNDRY_{name}", value)
        torch = importlib.import_module("torch")
        self._monkeypatch.setattr(foundry.torch, "_runtime", torch.framework)

    def config(self, v2: bool = False, mode: str = "FULL_DECODE_ONLY", **parts: dict[str, Any]) -> Any:
        """vLLM's configuration, `parts` being fields by part."""
        from vllm import config

        made = config.VllmConfig(use_v2_model_runner=v2)
        made.compilation_config.cudagraph_mode = config.CUDAGraphMode[mode]
        for part, fields in parts.items():
            for name, value in fields.items():
                setattr(getattr(made, part), name, value)
        return made

    def start(self, config: Any, between: Callable[[Any], None] = lambda worker: None) -> Server:
        """As vLLM's engine does it. `between`: right before graphs are captured or restored."""
        from foundry.engines import vllm as entry

        entry.register()
        platforms = importlib.import_module("vllm.platforms")
        platforms.current_platform.check_and_update_config(config)
        module, name = config.parallel_config.worker_cls.rsplit(".", 1)
        worker = getattr(importlib.import_module(module), name)(config, 0, 0, "tcp://", True)
        worker.init_device()
        worker.load_model()
        kv_bytes = worker.determine_available_memory()
        worker.initialize_from_config({"bytes": kv_bytes})
        between(worker)
        assert worker.compile_or_warm_up_model() == 1.5
        return Server(worker, kv_bytes)

    def save(self, v2: bool, mode: str = "FULL_DECODE_ONLY", release: str = "0.24.0", **parts: Any) -> Server:
        """A SAVE in a process of its own."""
        self.process(hook=True, release=release, MODE="save")
        return self.start(self.config(v2, mode, **parts))

    def load(self, v2: bool, mode: str = "FULL_DECODE_ONLY", release: str = "0.24.0", **parts: Any) -> Server:
        """A LOAD in a process of its own."""
        self.process(release=release, MODE="load")
        return self.start(self.config(v2, mode, **parts))


def names_of(world: World) -> list[str]:
    return [graph["name"] for graph in json.loads((world.archive / "foundry.json").read_text())["graphs"]]
