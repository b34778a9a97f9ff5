"""An unmodified client, cuda-bindings from PyPI, under the hook on the simulated driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.integration.hook.support import environment, run_python

SCRIPT = """
from client import Probe, answer
import ctypes, struct
from cuda.bindings import driver

def checked(returned):
    assert returned[0] == driver.CUresult.CUDA_SUCCESS, returned[0]
    return returned[1] if len(returned) == 2 else returned[1:]

checked(driver.cuInit(0))
context = checked(driver.cuDevicePrimaryCtxRetain(checked(driver.cuDeviceGet(0))))
checked(driver.cuCtxSetCurrent(context))
image = open(sys.argv[2], "rb").read()
library = checked(driver.cuLibraryLoadData(image, None, None, 0, None, None, 0))
kernel = checked(driver.cuLibraryGetKernel(library, b"fill"))
words = 1000
memory = checked(driver.cuMemAlloc(4 * words))
stream = checked(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))
checked(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))
arguments = ((int(memory), 2.5, words), (ctypes.c_void_p, ctypes.c_float, ctypes.c_int))
checked(driver.cuLaunchKernel(driver.CUfunction(int(kernel)), 4, 1, 1, 256, 1, 1, 0, stream, arguments, 0))
graph = checked(driver.cuStreamEndCapture(stream))
instance = checked(driver.cuGraphInstantiate(graph, 0))
checked(driver.cuGraphLaunch(instance, stream))
checked(driver.cuStreamSynchronize(stream))
out = bytearray(4 * words)
checked(driver.cuMemcpyDtoH(out, memory, 4 * words))
result = struct.unpack(f"{words}f", out)
probe = Probe(sys.argv[1])
state = probe.state()
checked(driver.cuMemFree(memory))
answer({"result": [min(result), max(result)], "memory": int(memory), "state": state, "released": probe.library.probe_release() if state else 0})
"""


def outcome(preload: list[Path], probe: Path, sim: Path, elf_sm80: Path, mode: str) -> Any:
    return run_python(
        SCRIPT, environment(preload, sim, FOUNDRY_MODE=mode, FOUNDRY_SIM_DEVICE="a100-40gb"), probe, elf_sm80
    )


def test_capture_and_launch(hook: Path, probe: Path, sim: Path, elf_sm80: Path) -> None:
    plain = outcome([], probe, sim, elf_sm80, "save")
    off = outcome([hook], probe, sim, elf_sm80, "off")
    save = outcome([hook], probe, sim, elf_sm80, "save")
    assert plain["result"] == off["result"] == save["result"] == [2.5, 2.5]
    assert plain["state"] is None and off["state"] is None
    (zone,) = save["state"]["zones"]
    assert zone["name"] == "ambient"
    assert [(r["address"], r["bytes"]) for r in zone["ranges"]] == [(save["memory"], 4000)]
    (image,) = save["state"]["images"]
    assert (image["entry_point"], image["is_library"], image["bytes"]) == (
        "cuLibraryLoadData",
        1,
        elf_sm80.stat().st_size,
    )
    assert save["released"] == 0  # the capture is over
    assert save["state"]["diagnoses"] == ""
