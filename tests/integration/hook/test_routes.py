"""Every route to a driver function leads through the hook, and to the function that the caller asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.hook.support import Compiler, environment, run, run_python

SCRIPT = """
from client import *
route, probe = sys.argv[1], Probe(sys.argv[2])
cuda = Driver(route, flags=int(sys.argv[3]))
text = ctypes.create_string_buffer(b"//\\n.version 8.0\\n.target sm_80\\n")
module = ctypes.c_void_p()
results = [cuda.call("cuInit", 0), cuda.call("cuModuleLoadData", ctypes.byref(module), text),
           cuda.call("cuModuleLoadData", ctypes.byref(module), None)]
address = ctypes.c_uint64()
results.append(cuda.call("cuMemAlloc", ctypes.byref(address), ctypes.c_size_t(4096), symbol="cuMemAlloc_v2"))
results.append(cuda.call("cuMemAllocAsync", ctypes.byref(address), ctypes.c_size_t(64), None))
results.append(cuda.call("cuMemFree", ctypes.c_uint64(1), symbol="cuMemFree_v2"))
names = ["cuModuleLoadData", "cuMemAlloc_v2", "cuMemAllocAsync", "cuMemAllocAsync_ptsz", "cuMemFree_v2"]
answer({"results": results, "calls": {n: [cuda.library.fake_calls(n.encode(), p) for p in (0, 1)] for n in names},
        "state": probe.state()})
"""

QUERIES = """
from client import *
cuda = Driver(sys.argv[1])
names = ["cuInit", "cuMemAlloc", "cuMemAllocAsync", "cuStreamBeginCapture", "cuGetProcAddress", "cuMemAlloc_v2", "cuNoSuch",
         "cuModuleLoadData", "cuLibraryLoadData"]
out = []
for name in names:
    for version in (2000, 3020, 10000, 10010, 11030, 12000, 13000):
        for flags in (0, 1, 2, 3):
            result, address, status = cuda.query(name, version, flags)
            out.append([name, version, flags, result, bool(address), status])
answer(out)
"""


def outcome(route: str, fake: Path, probe: Path, preload: list[Path], flags: int = 0, **variables: str) -> Any:
    return run_python(SCRIPT, environment(preload, fake, **variables), route, probe, str(flags))


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("route", ["dlsym", "getproc", "getproc1"])
def test_image_and_calls(route: str, private: bool, fake: Path, probe: Path, hook: Path) -> None:
    variables = {"FAKE_PRIVATE": "1"} if private else {}
    plain = outcome(route, fake, probe, [], **variables)
    off = outcome(route, fake, probe, [hook], **variables)
    save = outcome(route, fake, probe, [hook], FOUNDRY_MODE="save", **variables)
    assert plain["results"] == off["results"] == save["results"] == [0, 0, 1, 0, 0, 1]
    assert plain["calls"] == off["calls"] == save["calls"]
    hidden = 1 if private and route != "dlsym" else 0
    assert save["calls"]["cuModuleLoadData"] == [2 * (1 - hidden), 2 * hidden]
    assert plain["state"] is None and off["state"] is None
    state = save["state"]
    assert (state["owner"], state["sm_target"]) == ("hook", 80) and state["build"].endswith("sm_80")
    assert [(i["format"], i["is_library"], i["loaded"], i["entry_point"]) for i in state["images"]] == [
        (3, 0, 1, "cuModuleLoadData")
    ]
    assert state["images"][0]["bytes"] == len("//\n.version 8.0\n.target sm_80\n") + 1
    assert [e["entry_point"] for e in state["events"]] == ["cuModuleLoadData", "cuMemAlloc_v2", "cuMemAllocAsync"]


@pytest.mark.parametrize("private", [False, True])
def test_per_thread_spelling(private: bool, fake: Path, probe: Path, hook: Path) -> None:
    variables = {"FAKE_PRIVATE": "1"} if private else {}
    save = outcome("getproc", fake, probe, [hook], 2, FOUNDRY_MODE="save", **variables)
    hidden = 1 if private else 0
    assert save["calls"]["cuMemAllocAsync_ptsz"] == [1 - hidden, hidden]
    assert save["calls"]["cuMemAllocAsync"] == [0, 0]
    assert save["state"]["events"][-1]["entry_point"] == "cuMemAllocAsync_ptsz"


@pytest.mark.parametrize("route", ["getproc", "getproc1"])
@pytest.mark.parametrize("version", ["13000", "11000", "9000"])
def test_status_flags_and_versions_are_the_drivers(route: str, version: str, fake: Path, hook: Path) -> None:
    plain = run_python(QUERIES, environment([], fake, FAKE_VERSION=version), route)
    save = run_python(QUERIES, environment([hook], fake, FAKE_VERSION=version, FOUNDRY_MODE="save"), route)
    assert plain == save
    assert any(answer[3] != 0 or answer[5] not in (0, None) for answer in plain)


VERSIONS = """
from client import *
cuda = Driver("getproc")
def spelled(base, version, flags=0):
    address = cuda.query(base, version, flags)[1]
    before = [cuda.library.fake_calls(n.encode(), 0) + cuda.library.fake_calls(n.encode(), 1) for n in names]
    ctypes.CFUNCTYPE(ctypes.c_int)(address)(*arguments[base])
    after = [cuda.library.fake_calls(n.encode(), 0) + cuda.library.fake_calls(n.encode(), 1) for n in names]
    called = [n for n, b, a in zip(names, before, after) if a != b]
    return called + [address == ctypes.cast(cuda.library[called[0]], ctypes.c_void_p).value]
names = ["cuMemAlloc", "cuMemAlloc_v2", "cuStreamBeginCapture", "cuStreamBeginCapture_v2", "cuStreamBeginCapture_v2_ptsz",
         "cuGetProcAddress", "cuGetProcAddress_v2", "cuInit"]
space = (ctypes.c_uint64 * 4)()
arguments = {"cuMemAlloc": (space, ctypes.c_size_t(64)), "cuStreamBeginCapture": (None, 0), "cuInit": (0,),
             "cuGetProcAddress": (b"cuInit", space, 13000, ctypes.c_uint64(0), space)}
answer([spelled("cuMemAlloc", 2000), spelled("cuMemAlloc", 13000), spelled("cuStreamBeginCapture", 10000),
        spelled("cuStreamBeginCapture", 13000), spelled("cuStreamBeginCapture", 13000, 2),
        spelled("cuGetProcAddress", 11030), spelled("cuGetProcAddress", 12000), spelled("cuInit", 13000)])
"""


@pytest.mark.parametrize("private", [{}, {"FAKE_PRIVATE": "1"}])
def test_versioned_names(private: dict[str, str], fake: Path, hook: Path) -> None:
    got = run_python(VERSIONS, environment([hook], fake, FOUNDRY_MODE="save", **private))
    assert [one[0] for one in got] == [
        "cuMemAlloc",
        "cuMemAlloc_v2",
        "cuStreamBeginCapture",
        "cuStreamBeginCapture_v2",
        "cuStreamBeginCapture_v2_ptsz",
        "cuGetProcAddress",
        "cuGetProcAddress_v2",
        "cuInit",
    ]


@pytest.mark.parametrize("mode", ["off", "save"])
def test_linked_program(mode: str, compiler: Compiler, fake: Path, probe: Path, hook: Path) -> None:
    program = compiler.build("linked", ["linked.c"], f"-L{fake}", "-l:libcuda.so.1")
    plain = run([program], environment([], fake))
    under = run([program], environment([hook], fake, FOUNDRY_MODE=mode))
    assert plain.stdout == under.stdout == "0 0 0 0 1\n"
    assert under.stderr == ""


def test_log_prints_only_when_asked(compiler: Compiler, fake: Path, hook: Path) -> None:
    program = compiler.build("linked", ["linked.c"], f"-L{fake}", "-l:libcuda.so.1")
    quiet = run([program], environment([hook], fake, FOUNDRY_MODE="save", FOUNDRY_LOG="off"))
    assert quiet.stderr == ""


def test_a_second_driver_is_left_alone_and_said(compiler: Compiler, fake: Path, probe: Path, hook: Path) -> None:
    second = compiler.library("second/libcuda.so.1", ["fake_libcuda.c", "fake_libcuda_rest.c"])
    script = """
from client import *
cuda, probe, module = Driver("dlsym"), Probe(sys.argv[1]), ctypes.c_void_p()
text = ctypes.create_string_buffer(b"//\\n.version 8.0\\n")
second = ctypes.CDLL(sys.argv[2])
results = [library.cuModuleLoadData(ctypes.byref(module), text) for library in (cuda.library, second)]
calls = [library.fake_calls(b"cuModuleLoadData", 0) for library in (cuda.library, second)]
answer([results, calls, probe.state()])
"""
    # By path and not by soname: the loader takes equal sonames for one library.
    other = second.rename(second.with_name("libcuda.so.2")) if not second.with_name("libcuda.so.2").exists() else second
    results, calls, state = run_python(script, environment([hook], fake, FOUNDRY_MODE="save"), probe, other)
    assert results == [0, 0] and calls == [1, 1]
    assert len(state["images"]) == 1
    assert "the process has two drivers: one more cuModuleLoadData" in state["diagnoses"]
