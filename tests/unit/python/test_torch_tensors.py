"""The parts of foundry.torch that need no GPU, on CPU tensors with the device checks replaced."""

from __future__ import annotations

import ctypes
import gc
import weakref
from collections.abc import Iterator
from typing import Any

import fake_core
import pytest
from session_world import World

import foundry

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from foundry.torch import settings, tensors  # noqa: E402


class Owner:
    """Stands for a loader."""


@pytest.fixture
def cpu(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """CPU memory in place of the device's."""

    def over_memory(address: int, nbytes: int, device: int, owner: object) -> Any:
        buffer = (ctypes.c_uint8 * nbytes).from_address(address)
        buffer.owner = owner  # type: ignore[attr-defined]
        return torch.frombuffer(buffer, dtype=torch.uint8).untyped_storage()

    monkeypatch.setattr(tensors, "_on_device", lambda tensor: True)
    monkeypatch.setattr(tensors, "over_memory", over_memory)
    yield


DTYPES = ["bfloat16", "float32", "float8_e4m3fn", "int64", "bool", "complex64", "float16"]


@pytest.mark.parametrize("name", DTYPES)
def test_describe_then_adopt_is_the_same_tensor(cpu: None, name: str) -> None:
    base = torch.arange(60).to(getattr(torch, name)).view(6, 10)
    view = base[1:, 2::3]
    described = tensors.describe(view)
    assert described.dtype == name and described.item_bytes == view.element_size()
    assert described.address == view.data_ptr() and described.storage_address == base.data_ptr()
    assert described.nbytes == (4 * 10 + 2 * 3 + 1) * view.element_size()
    back = tensors.adopt(described, 0, Owner())
    assert back.dtype == view.dtype and back.shape == view.shape and back.stride() == view.stride()
    assert back.data_ptr() == view.data_ptr()
    assert back.untyped_storage().nbytes() == base.untyped_storage().nbytes()


def test_alias_shares_the_storage(cpu: None) -> None:
    base = torch.zeros(8)
    described = tensors.describe(base[2:6])
    made = tensors.alias(described, tensors.adopt(tensors.describe(base), 0, Owner()))
    made.fill_(3)
    assert base.tolist() == [0, 0, 3, 3, 3, 3, 0, 0]
    with pytest.raises(foundry.FoundryError, match="does not lie in the memory"):
        tensors.alias(described, torch.zeros(8))


def test_owner_lives_as_long_as_any_view(cpu: None) -> None:
    memory, owner = torch.zeros(8), Owner()
    alive = weakref.ref(owner)
    made = tensors.adopt(tensors.describe(memory), 0, owner)
    view = made[2:]
    del made, owner
    gc.collect()
    assert alive() is not None
    del view
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("kind", ["parameter", "buffer", "view", "inference"])
def test_point_to_moves_the_object_itself(cpu: None, kind: str) -> None:
    module = torch.nn.Linear(4, 4)
    module.register_buffer("scale", torch.ones(4, 4))
    with torch.inference_mode():
        inference = torch.ones(4, 4)
    whole = torch.zeros(8, 4)
    tensor = {"parameter": module.weight, "buffer": module.scale, "view": whole[4:], "inference": inference}[kind]
    values = tensor.clone()
    target = torch.zeros(tensor.untyped_storage().nbytes(), dtype=torch.uint8)
    ctypes.memmove(target.data_ptr(), tensor.untyped_storage().data_ptr(), target.numel())
    offset = tensor.storage_offset()
    tensors.point_to(tensor, target.untyped_storage())
    assert tensor.data_ptr() == target.data_ptr() + offset * 4 and torch.equal(tensor, values)
    if kind == "parameter":
        assert dict(module.named_parameters())["weight"].data_ptr() == target.data_ptr()
        assert module.weight.requires_grad and isinstance(module.weight, torch.nn.Parameter)
        module(torch.ones(1, 4)).sum().backward()
        assert module.weight.grad is not None


def test_named_tensors_give_every_alias(cpu: None) -> None:
    module = torch.nn.Module()
    module.a = torch.nn.Linear(2, 2, bias=False)
    module.b = torch.nn.Linear(2, 2, bias=False)
    module.b.weight = module.a.weight
    module.register_buffer("table", torch.zeros(2))
    assert [name for name, _, constant in tensors.named_tensors(module) if constant] == [
        "a.weight",
        "b.weight",
        "table",
    ]
    with pytest.raises(foundry.FoundryError, match=r"no torch.nn.Module"):
        list(tensors.named_tensors(object()))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: torch.zeros(2, 2).to_sparse(), "layout torch.sparse"),
        (lambda: torch.zeros(2, dtype=torch.complex64).conj(), "conjugated"),
        (lambda: torch.quantize_per_tensor(torch.zeros(2), 1.0, 0, torch.qint8), "quantized"),
    ],
)
def test_what_is_no_plain_tensor(cpu: None, make: Any, words: str) -> None:
    with pytest.raises(foundry.FoundryError, match=words) as caught:
        tensors.describe(make())
    assert caught.value.kind == "unsupported"


def test_cpu_tensor_is_named(world: World) -> None:
    with pytest.raises(foundry.FoundryError, match=r"shape \[2, 3\] is on cpu"):
        tensors.describe(torch.zeros(2, 3))


def test_unknown_dtype(cpu: None) -> None:
    described = tensors.describe(torch.zeros(2))
    for name in ("float3", "nn", "a b"):
        described.change(dtype=name)
        with pytest.raises(foundry.FoundryError, match=f"no dtype '{name}'"):
            tensors.adopt(described, 0, Owner())


# ---- settings


@pytest.mark.parametrize(
    ("backend", "conf", "account", "words"),
    [
        ("native", "", {}, None),
        ("native", "max_split_size_mb:64", {"expandable_segments": False}, None),
        ("native", "expandable_segments:True", {}, "expandable segments"),
        ("native", "", {"expandable_segments": True}, "expandable segments"),
        ("cudaMallocAsync", "", {}, "cudaMallocAsync"),
        ("native", "backend:cudaMallocAsync", {}, "cudaMallocAsync"),
        ("pluggable", "", {}, "was replaced"),
    ],
)
def test_settings_that_bypass_segments(
    monkeypatch: pytest.MonkeyPatch, backend: str, conf: str, account: dict[str, Any], words: str | None
) -> None:
    for variable in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        monkeypatch.setenv(variable, conf)
        found = settings._allocator_problem(backend, settings.configured(), account)
        assert (found is None) if words is None else words in (found or "")


def test_uncached_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_NO_CUDA_MEMORY_CACHING", "1")
    assert "PYTORCH_NO_CUDA_MEMORY_CACHING" in (settings._allocator_problem("native", {}, {}) or "")


def test_settings_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "max_split_size_mb:64, roundup_power2_divisions:[256:1,>:4]")
    monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF", raising=False)
    assert settings.configured() == {"max_split_size_mb": "64", "roundup_power2_divisions": "[256:1,>:4]"}
    text = str(settings.fingerprint()["allocator_settings"])
    assert "max_split_size_mb:64" in text and "backend:" in text


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu() -> None:
    assert "sees no CUDA device" in (settings.problem() or "")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_session_without_a_gpu_says_so(world: World) -> None:
    fake_core.new_process()
    with foundry.session(world.archive, "load") as s:
        assert "sees no CUDA device" in s.report.reason


def test_tied_weights_are_re_seated_once(cpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """One Parameter registered under two names is one tensor to point elsewhere."""
    from foundry.torch import torch_runtime

    runtime = torch_runtime.TorchRuntime()
    monkeypatch.setattr(runtime, "_index", lambda: 0)
    weight = torch.nn.Parameter(torch.arange(4.0), requires_grad=False)
    copy = torch.arange(4.0)
    runtime.reseat([weight, weight], weight.data_ptr(), copy.data_ptr(), 16, object())
    assert weight.data_ptr() == copy.data_ptr() and torch.equal(weight, copy)


def test_aliases_are_found_and_counted(cpu: None) -> None:
    from foundry.torch import aliases

    weight, other = torch.arange(64.0), torch.ones(64)
    (found,) = aliases.find([[weight, weight]])
    assert found[1] == 0 and [id(tensor) for tensor in found[0]] == [id(weight)]
    view, unrelated = weight[8:].view(torch.int32), other[8:]
    parameter = torch.nn.Parameter(weight.view(8, 8), requires_grad=False)
    first, second = aliases.find([[weight], [other]])
    assert {id(tensor) for tensor in first[0]} == {id(weight), id(view), id(parameter)} and first[1] == 0
    assert {id(tensor) for tensor in second[0]} == {id(other), id(unrelated)} and second[1] == 0
    leaf = torch.ones(2, 8, requires_grad=True)
    kept = torch.nn.functional.linear(
        leaf, parameter
    )  # autograd keeps the transposed weight, without an object of Python
    assert aliases.find([[weight]])[0][1] == 1
    del kept
    assert aliases.find([[weight]])[0][1] == 0
