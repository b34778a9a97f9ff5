"""Unmodified cuda-bindings on the simulated driver: a small capture-and-launch program, in a process of its own.

Environment: SIM_LIBCUDA, the simulated libcuda.so.1; ASSORTED, an image with test kernels.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import ctypes
import os

from cuda.bindings import driver


def ok(answer):
    if answer[0] != driver.CUresult.CUDA_SUCCESS:
        raise SystemExit(f"{answer[0]!r}")
    return answer[1] if len(answer) == 2 else answer[1:]


ok(driver.cuInit(0))
device = ok(driver.cuDeviceGet(0))
print(ok(driver.cuDeviceGetName(64, device)).split(b"\\0")[0].decode())
print(ok(driver.cuDeviceGetAttribute(driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device)))
ok(driver.cuCtxSetCurrent(ok(driver.cuDevicePrimaryCtxRetain(device))))
reserved = ok(driver.cuMemAddressReserve(4 << 40, 0, 0x100000000000, 0))
print(hex(int(reserved)))

image = open(os.environ["ASSORTED"], "rb").read()
library = ok(driver.cuLibraryLoadData(image, [], [], 0, [], [], 0))
kernel = ok(driver.cuLibraryGetKernel(library, b"fill_words"))
function = ok(driver.cuKernelGetFunction(kernel))

words = ok(driver.cuMemAlloc(4096))
stream = ok(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))
ok(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
ok(driver.cuMemsetD32Async(words, 1, 8, stream))
arguments = ((int(words) + 16, 7, 2), (ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint64))
ok(driver.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, arguments, 0))
graph = ok(driver.cuStreamEndCapture(stream))

nodes, count = ok(driver.cuGraphGetNodes(graph, 2))
print(count, [ok(driver.cuGraphNodeGetType(node)).name for node in nodes])
params = ok(driver.cuGraphKernelNodeGetParams(nodes[1]))
print(int(params.kern) == int(kernel), int(params.func) == int(function), params.blockDimX)
edges = ok(driver.cuGraphGetEdges(graph, 1))
print(edges[3], int(edges[0][0]) == int(nodes[0]))

executable = ok(driver.cuGraphInstantiate(graph, 0))
content = bytearray(32)
for launch in range(2):
    ok(driver.cuMemsetD8(words, 0, 4096))
    ok(driver.cuGraphLaunch(executable, stream))
    ok(driver.cuStreamSynchronize(stream))
    ok(driver.cuMemcpyDtoH(content, words, 32))
    print([int.from_bytes(content[i : i + 4], "little") for i in range(0, 32, 4)])
print(driver.cuMemFree(int(words) + 1)[0].name)
ok(driver.cuGraphExecDestroy(executable))
ok(driver.cuGraphDestroy(graph))
ok(driver.cuLibraryUnload(library))
ok(driver.cuMemFree(words))
"""


def run(tmp_path: Path, **environment: str) -> list[str]:
    """Runs PROGRAM with the simulated driver as the process's libcuda.so.1 and returns the lines it prints."""
    driver = Path(os.environ["SIM_LIBCUDA"]).resolve()
    (tmp_path / "libcuda.so.1").symlink_to(driver)
    env = dict(os.environ, LD_LIBRARY_PATH=str(tmp_path), PYTHONPATH=os.pathsep.join(filter(None, sys.path)))
    env.update(environment, ASSORTED=str(Path(os.environ["ASSORTED"]).resolve()))
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("device", "name", "processors"),
    [("h100", "NVIDIA H100 80GB HBM3", "132"), ("a100-40gb", "NVIDIA A100-SXM4-40GB", "108")],
)
@pytest.mark.parametrize("per_thread_default_stream", ["0", "1"])
def test_capture_and_launch(
    tmp_path: Path, device: str, name: str, processors: str, per_thread_default_stream: str
) -> None:
    lines = run(
        tmp_path,
        FOUNDRY_SIM_DEVICE=device,
        CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM=per_thread_default_stream
        if per_thread_default_stream == "1"
        else "",
    )
    assert lines == [
        name,
        processors,
        "0x100000000000",
        "2 ['CU_GRAPH_NODE_TYPE_MEMSET', 'CU_GRAPH_NODE_TYPE_KERNEL']",
        "True True 32",
        "1 True",
        "[1, 1, 1, 1, 7, 7, 1, 1]",
        "[1, 1, 1, 1, 7, 7, 1, 1]",
        "CUDA_ERROR_INVALID_VALUE",
    ]


def test_calls_reach_the_simulated_driver_by_address(tmp_path: Path) -> None:
    log = tmp_path / "log"
    run(tmp_path, FOUNDRY_SIM_LOG=str(log))
    assert "cuMemFree_v2: CUDA_ERROR_INVALID_VALUE: 0x" in log.read_text()
