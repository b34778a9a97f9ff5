"""The probe of the recipes: for what a kernel was compiled, and that recipes judge it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import mini_sglang
import pytest

from foundry.recipes.engines import sglang_probe, sglang_recipe

DECODES, EXTENDS = (SimpleNamespace(forward_mode=SimpleNamespace(is_decode=lambda d=d: d)) for d in (True, False))


class Scheduler:
    def run_batch(self, batch: Any, compiles: Any = None) -> str:
        if compiles:
            compiles()
        return "result"


class ScheduleBatch:
    def prepare_for_decode(self, compiles: Any) -> None:
        compiles()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """SGLang, Triton and tvm-ffi, as far as the probe looks at them, with its hooks in place."""

    class HookRegistry:
        @staticmethod
        def register(target: str, hook: Any, kind: Any) -> None:
            mini_sglang.put_around(target, hook)

    def put(name: str, **things: Any) -> Any:
        module = ModuleType(name)
        module.__dict__.update(things)
        module.__path__ = []
        monkeypatch.setitem(sys.modules, name, module)
        parent, _, leaf = name.rpartition(".")
        if parent in sys.modules:
            monkeypatch.setattr(sys.modules[parent], leaf, module, raising=False)
        return module

    for name, module in mini_sglang.modules("classic").items():
        monkeypatch.setitem(sys.modules, name, module)
    put("sglang.srt.plugins")
    put("sglang.srt.plugins.hook_registry", HookRegistry=HookRegistry, HookType=SimpleNamespace(AROUND=1))
    put("sglang.srt.managers")
    put("sglang.srt.managers.scheduler", Scheduler=type("Scheduler", (Scheduler,), {}))
    put("sglang.srt.managers.schedule_batch", ScheduleBatch=type("ScheduleBatch", (ScheduleBatch,), {}))
    knobs = SimpleNamespace(compilation=SimpleNamespace(listener=None))
    put("triton", knobs=knobs)
    put("triton.runtime")
    build = put("triton.runtime.build", _build=lambda name, *args: f"{name}.so")
    put("tvm_ffi")
    put("tvm_ffi.cpp")
    extension = put("tvm_ffi.cpp.extension", build_ninja=lambda build_dir: Path(build_dir, "m.so").touch())
    torch = sys.modules["torch"]
    monkeypatch.setattr(
        torch.cuda, "CUDAGraph", type("CUDAGraph", (), {"capture_end": lambda self: None}), raising=False
    )
    monkeypatch.setenv(sglang_probe.FILE_VARIABLE, str(tmp_path / "probe"))
    monkeypatch.setattr(sglang_probe, "_where", "serving")
    sglang_probe.register()
    return SimpleNamespace(knobs=knobs, build=build, extension=extension, path=tmp_path / "probe", folder=tmp_path)


def compiled(world: Any) -> list[tuple[str, str, str]]:
    return [(line["kind"], line["name"], line["during"]) for line in sglang_probe.read(str(world.path))]


def test_what_is_compiled_is_counted_for_the_kind_of_step(world: Any) -> None:
    def kernel(name: str, hit: bool = False) -> Any:
        return lambda: world.knobs.compilation.listener(cache_hit=hit, metadata={"name": name}, src=None)

    scheduler = sys.modules["sglang.srt.managers.scheduler"].Scheduler()
    batch = sys.modules["sglang.srt.managers.schedule_batch"].ScheduleBatch()
    assert scheduler.run_batch(EXTENDS, kernel("extend")) == "result"
    assert scheduler.run_batch(DECODES, kernel("splits")) == "result"
    scheduler.run_batch(DECODES, kernel("cached", hit=True))
    batch.prepare_for_decode(kernel("slots"))
    with pytest.raises(ZeroDivisionError):
        scheduler.run_batch(DECODES, lambda: 1 / 0)
    kernel("between")()
    assert compiled(world) == [
        ("triton", "extend", "serving"),
        ("triton", "splits", "decode"),
        ("triton", "slots", "decode"),
        ("triton", "between", "serving"),
    ]
    results = {"probe": sglang_probe.read(str(world.path))}
    assert sglang_recipe.compiled_for_decode(results) == ["splits", "slots"]
    assert sglang_recipe.count(results, "triton", "decode") == 2


def test_launchers_and_modules_are_counted_too(world: Any) -> None:
    scheduler = sys.modules["sglang.srt.managers.scheduler"].Scheduler()
    module = world.folder / "sgl_kernel_jit_clamp"
    module.mkdir()

    def both() -> None:
        assert world.build._build("launcher", "source") == "launcher.so"
        world.extension.build_ninja(str(module))
        world.extension.build_ninja(str(module))  # built already

    scheduler.run_batch(DECODES, both)
    assert compiled(world) == [("launcher", "launcher", "decode"), ("module", "sgl_kernel_jit_clamp", "decode")]
    results = {"probe": sglang_probe.read(str(world.path))}
    assert sglang_recipe.compiled_for_decode(results) == ["launcher", "sgl_kernel_jit_clamp"]


def test_restoring_counts_as_decode() -> None:
    probe = [{"kind": kind, "name": "x", "during": "init_device_graphs"} for kind in ("triton", "capture", "phase")]
    assert sglang_recipe.compiled_for_decode({"probe": probe}) == ["x"]
