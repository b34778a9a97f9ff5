"""A stand-in for SGLang, a recording EngineStart, and as much of PyTorch as adapters ask for."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import mini_sglang  # noqa: E402
from fake_start import FakeStart  # noqa: E402


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    mini_sglang.log.clear()
    for name in ("FOUNDRY_MODE", "FOUNDRY_ON_MISMATCH", "SGLANG_USE_BREAKABLE_CUDA_GRAPH"):
        monkeypatch.delenv(name, raising=False)
    torch = types.ModuleType("torch")
    torch.int64 = "int64"  # type: ignore[attr-defined]
    torch.ones = lambda n, dtype, device: f"{n} {dtype} on {device}"  # type: ignore[attr-defined]
    torch.cuda = types.SimpleNamespace(  # type: ignore[attr-defined]
        current_stream=lambda: "current stream", mem_get_info=lambda: (5000, 9000)
    )
    monkeypatch.setitem(sys.modules, "torch", torch)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Any, Any, Any]]:
    """Makes (adapter, its start, modules): SGLang of a generation with the adapter's hooks around it."""

    def make(generation: str, start: FakeStart) -> tuple[Any, Any, Any]:
        found = mini_sglang.modules(generation)
        for name, module in found.items():
            monkeypatch.setitem(sys.modules, name, module)
        from foundry.engines.sglang import backends, plugin

        monkeypatch.setattr(
            backends,
            "_profile_target",
            lambda: "sglang.srt.model_executor.model_runner.ModelRunner._profile_available_bytes",
        )
        adapter = plugin.adapter_for(generation)
        monkeypatch.setattr(adapter, "_start", start)
        for target, hook in adapter.hooks():
            mini_sglang.put_around(target, hook)
        return adapter, start, found

    return make
