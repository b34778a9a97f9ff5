"""Graphs of many kinds of kernels, saved or restored and compared with the native replays of SAVE; results as JSON."""

from __future__ import annotations

import argparse
import ctypes
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

# Triton's compiler looks names up among the module's globals.
import triton
import triton.language as tl
from torch.nn.attention import SDPBackend, sdpa_kernel

import foundry

BF16 = torch.bfloat16
SEED = 1234


def tensors() -> dict[str, torch.Tensor]:
    """Inputs and weights, the same in every process."""
    generator = torch.Generator("cuda").manual_seed(7)

    def normal(*shape: int, dtype: torch.dtype = BF16, scale: float = 1.0) -> torch.Tensor:
        return torch.empty(shape, device="cuda", dtype=dtype).normal_(0, scale, generator=generator)

    made = {
        "x": normal(512, 1024),
        "w": normal(1024, 4096, scale=0.02),
        "bias": normal(4096),
        "big": normal(1 << 20, dtype=torch.float32),
        "tall": normal(8, 16384),
        "deep": normal(16384, 256),
        "image": normal(8, 32, 56, 56),
        "filter": normal(64, 32, 3, 3, scale=0.1),
        "q": normal(4, 16, 128, 64),
        "one": torch.ones((), device="cuda"),
    }
    made["a8"] = made["x"][:64].to(torch.float8_e4m3fn)
    made["b8"] = normal(256, 1024).to(torch.float8_e4m3fn)
    return made


@triton.jit
def square_plus_sine(x, y, n, block: tl.constexpr):  # type: ignore[no-untyped-def]  # Triton reads annotations
    at = tl.program_id(0) * block + tl.arange(0, block)
    value = tl.load(x + at, mask=at < n)
    tl.store(y + at, value * value + tl.sin(value), mask=at < n)


def with_triton(x: torch.Tensor) -> torch.Tensor:
    """A kernel that is loaded with cuModuleLoadData, from bytes on the heap."""
    y = torch.empty_like(x)
    square_plus_sine[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), block=1024)
    return y


def through_async_scratch(x: torch.Tensor) -> torch.Tensor:
    """By way of memory that the capture itself allocates and frees in stream order."""
    cuda, stream = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    y, size, scratch = torch.empty_like(x), ctypes.c_size_t(x.nbytes), ctypes.c_uint64()

    def call(name: str, *arguments: object) -> None:
        code = getattr(cuda, name)(*arguments, stream)
        assert code == 0, f"{name}: {code}"

    call("cuMemAllocAsync", ctypes.byref(scratch), size)
    call("cuMemcpyDtoDAsync_v2", scratch, ctypes.c_uint64(x.data_ptr()), size)
    call("cuMemcpyDtoDAsync_v2", ctypes.c_uint64(y.data_ptr()), scratch, size)
    call("cuMemFreeAsync", scratch)
    return y * 2


def through_host_memory(x: torch.Tensor, staging: torch.Tensor) -> torch.Tensor:
    """By way of registered pinned memory, which lies elsewhere in every process."""
    cuda, stream = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    y, size = torch.empty_like(x), ctypes.c_size_t(x.nbytes)
    at = staging.data_ptr() + 4096
    code = cuda.cuMemcpyDtoHAsync_v2(ctypes.c_void_p(at), ctypes.c_uint64(x.data_ptr()), size, stream)
    assert code == 0, f"cuMemcpyDtoHAsync: {code}"
    code = cuda.cuMemcpyHtoDAsync_v2(ctypes.c_uint64(y.data_ptr()), ctypes.c_void_p(at), size, stream)
    assert code == 0, f"cuMemcpyHtoDAsync: {code}"
    return y * 3


def cases(t: dict[str, torch.Tensor], staging: torch.Tensor) -> dict[str, Callable[[], Any]]:
    """Functions by name; LOAD never calls them."""
    side = torch.cuda.Stream(priority=-1)
    compiled = torch.compile(lambda x, w: torch.softmax(F.layer_norm(x.float(), (1024,)) * w, -1).to(BF16))

    def attention(backend: SDPBackend) -> torch.Tensor:
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(t["q"], t["q"], t["q"])

    def two_streams() -> torch.Tensor:
        main = torch.cuda.current_stream()
        side.wait_stream(main)
        left = t["x"] @ t["w"]
        with torch.cuda.stream(side):
            right = (t["x"] @ t["w"]).relu()
        main.wait_stream(side)
        return left + right

    def memset() -> torch.Tensor:
        return torch.zeros(100_000, device="cuda") + t["one"]

    return {
        "triton": lambda: with_triton(t["big"]),
        "compiled": lambda: compiled(t["x"], t["one"]),
        "flash": lambda: attention(SDPBackend.FLASH_ATTENTION),
        "efficient": lambda: attention(SDPBackend.EFFICIENT_ATTENTION),
        "cudnn attention": lambda: attention(SDPBackend.CUDNN_ATTENTION),
        "math": lambda: attention(SDPBackend.MATH),
        "split-k": lambda: t["tall"] @ t["deep"],
        "epilogue": lambda: torch._addmm_activation(t["bias"], t["x"], t["w"], use_gelu=True),
        "fp8": lambda: torch._scaled_mm(t["a8"], t["b8"].t(), scale_a=t["one"], scale_b=t["one"], out_dtype=BF16),
        "convolution": lambda: F.conv2d(t["image"], t["filter"], padding=1).relu(),
        "dropout": lambda: F.dropout(t["big"], 0.3),
        "exponential": lambda: torch.empty_like(t["big"][:4096]).exponential_(),
        "sort": lambda: t["big"][: 1 << 18].sort()[0],
        "topk": lambda: tuple(torch.topk(t["big"][: 1 << 16], 50)),
        "scan": lambda: t["big"].cumsum(0),
        "reductions": lambda: (
            t["big"].sum(),
            t["big"].view(1024, -1).amax(0),
            t["big"].argmax(),
            t["big"][:1000].var(),
        ),
        "two streams": two_streams,
        "memset": memset,
        "host memory": lambda: through_host_memory(t["big"][: 1 << 16], staging),
        "async scratch": lambda: through_async_scratch(t["big"]),
    }


def replay(graph: foundry.Graph) -> list[torch.Tensor]:
    """Two replays from one seed; outputs on the host. What a replay does not write stays 0."""
    torch.manual_seed(SEED)
    outputs = graph.outputs if isinstance(graph.outputs, tuple) else (graph.outputs,)
    found = []
    for _ in range(2):
        for tensor in outputs:
            tensor.zero_()
        graph.replay()
        found += [tensor.cpu() for tensor in outputs]
    return found


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal in every bit."""
    return torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8))


def judge(name: str, found: list[torch.Tensor], golden: dict[str, Any]) -> str:
    """ "equal", "within native spread", or what differs."""
    pairs = list(zip(found, golden[name]["first"], strict=True))
    if all(same(a, b) for a, b in pairs):
        return "equal"
    most = max((a.double() - b.double()).abs().max().item() for a, b in pairs)
    spread = golden[name]["spread"]
    # A few replays do not show the whole spread: as for golden runs, twice as much is allowed.
    return "within native spread" if most <= 2 * spread else f"differs by {most:.4g}, native runs by {spread:.4g}"


def main() -> None:
    """Runs in the mode of the command line."""
    parser = argparse.ArgumentParser()
    mode = parser.add_mutually_exclusive_group(required=True)
    for name in ("save", "load"):
        mode.add_argument(f"--{name}", dest="mode", action="store_const", const=name)
    parser.add_argument("--archive", required=True)
    parser.add_argument("--json", required=True)
    options = parser.parse_args()

    session = foundry.session(options.archive, options.mode)
    with session as s:
        with s.phase("weights"):
            t = {name: s.register(name, tensor) for name, tensor in tensors().items()}
        others = [torch.empty(1 << 20, pin_memory=True) for _ in range(3 if options.mode == "load" else 0)]
        staging = s.register_host("staging", torch.zeros((4096 + (1 << 18)) // 4, pin_memory=True))
        functions = cases(t, staging)
        graphs = {name: s.graph(name, function, warmup=3) for name, function in functions.items()}
    session.wait()
    report = session.report
    file = Path(f"{options.archive}.golden.pt")
    results: dict[str, Any] = {"outcome": report.outcome, "left_out": report.left_out, "fell_back": report.fell_back}
    if options.mode == "save":
        golden = {}
        for name, graph in graphs.items():
            runs = [replay(graph) for _ in range(4)]
            spread = max(
                (a.double() - b.double()).abs().max().item()
                for run in runs[1:]
                for a, b in zip(run, runs[0], strict=True)
            )
            golden[name] = {"first": runs[0], "spread": spread}
        torch.save(golden, file)
        results["repeatable"] = [name for name in golden if golden[name]["spread"] == 0]
    else:
        golden = torch.load(file, weights_only=True)
        results["verdicts"] = {name: judge(name, replay(graph), golden) for name, graph in graphs.items()}
        results["sources"] = {name: graph.source for name, graph in graphs.items()}
    results["nodes"], results["warnings"] = report.nodes, report.warnings
    results["staging"], results["others"] = staging.data_ptr(), len(others)
    Path(options.json).write_text(json.dumps(results))


if __name__ == "__main__":
    with torch.no_grad():
        main()
