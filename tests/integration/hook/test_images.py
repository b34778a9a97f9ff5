"""Code images on the simulated driver: every way to load one ends in the registry with the right bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.hook.support import Compiler, environment, run_python

FATBIN, ELF, PTX = 1, 2, 3
MODULE, LIBRARY = 0, 1


def checksum(content: bytes) -> int:
    """FNV-1a, as probe.c computes it over the bytes of the registry."""
    total = 14695981039346656037
    for byte in content:
        total = (total ^ byte) * 1099511628211 & (2**64 - 1)
    return total


def images(
    script: str, preload: list[Path], sim: Path, *arguments: str | Path, mode: str = "save", device: str = "a100-40gb"
) -> Any:
    prelude = """
from client import *
probe, route = Probe(sys.argv[1]), sys.argv[2]
cuda = Driver(route)
cuda.start()
module, library = ctypes.c_void_p(), ctypes.c_void_p()
def contents(path):
    return ctypes.create_string_buffer(open(path, "rb").read())
"""
    env = environment(preload, sim, FOUNDRY_MODE=mode, FOUNDRY_SIM_DEVICE=device)
    return run_python(prelude + script, env, *arguments)


FROM_HEAP = """
for path in sys.argv[3:]:
    heap = contents(path)
    cuda.checked("cuModuleLoadData", ctypes.byref(module), heap)
    cuda.checked("cuLibraryLoadData", ctypes.byref(library), heap, None, None, 0, None, None, 0)
    ctypes.memset(heap, 0xee, len(heap))  # the application has its memory back
answer(probe.state())
"""


@pytest.mark.parametrize("route", ["dlsym", "getproc", "getproc1"])
def test_heap_memory_is_copied(route: str, hook: Path, probe: Path, sim: Path, fatbin: Path, elf_sm80: Path) -> None:
    state = images(FROM_HEAP, [hook], sim, probe, route, fatbin, elf_sm80)
    expected = []
    for path, form in ((fatbin, FATBIN), (elf_sm80, ELF)):
        content = path.read_bytes()
        for entry_point, kind in (("cuModuleLoadData", MODULE), ("cuLibraryLoadData", LIBRARY)):
            expected.append((form, kind, 1, entry_point, len(content), checksum(content), ""))
    keys = ("format", "is_library", "loaded", "entry_point", "bytes", "sum", "source")
    assert [tuple(image[key] for key in keys) for image in state["images"]] == expected
    assert state["diagnoses"] == ""
    loads = [event for event in state["events"] if event["kind"] == 7]
    assert [event["bytes"] for event in loads] == [image["bytes"] for image in state["images"]]


FROM_LIBRARY = """
path, image, entry = sys.argv[3:6]
carrier = ctypes.CDLL(path)
carrier.image_address.restype = ctypes.c_void_p
address = carrier.image_address()
for wrapper in ("wrapper_v1", "wrapper_v2"):
    where = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(carrier, wrapper)))
    cuda.checked(entry, ctypes.byref(module), where)
cuda.checked(entry, ctypes.byref(module), ctypes.c_void_p(address))
before = probe.state()
import _ctypes
_ctypes.dlclose(carrier._handle)
answer({"address": address, "before": before, "after": probe.state(), "maps": path in open("/proc/self/maps").read()})
"""


@pytest.mark.parametrize("entry", ["cuModuleLoadData", "cuModuleLoadFatBinary"])
def test_image_in_a_library_is_referenced_and_kept(
    entry: str, compiler: Compiler, hook: Path, probe: Path, sim: Path, fatbin: Path
) -> None:
    carrier = compiler.library("embedded.so", ["embedded.c"], f'-DIMAGE="{fatbin}"')
    got = images(FROM_LIBRARY, [hook], sim, probe, "dlsym", carrier, fatbin, entry)
    content = fatbin.read_bytes()
    for state in (got["before"], got["after"]):
        assert len(state["images"]) == 3
        for image in state["images"]:
            assert (image["data"], image["bytes"], image["format"]) == (got["address"], len(content), FATBIN)
            assert image["sum"] == checksum(content)
            assert image["source"] == str(carrier)
    assert got["maps"]  # dlclose by the application did not take the bytes away


FROM_FILE = """
path = ctypes.c_char_p(sys.argv[3].encode())
cuda.checked("cuModuleLoad", ctypes.byref(module), path)
cuda.checked("cuLibraryLoadFromFile", ctypes.byref(library), path, None, None, 0, None, None, 0)
missing = cuda.call("cuModuleLoad", ctypes.byref(module), b"/no/such/file")
answer({"missing": missing, "state": probe.state()})
"""


def test_files_are_read(hook: Path, probe: Path, sim: Path, elf_sm80: Path) -> None:
    got = images(FROM_FILE, [hook], sim, probe, "dlsym", elf_sm80)
    content = elf_sm80.read_bytes()
    assert got["missing"] != 0
    assert [
        (i["entry_point"], i["is_library"], i["format"], i["bytes"], i["sum"], i["source"])
        for i in got["state"]["images"]
    ] == [
        ("cuModuleLoad", MODULE, ELF, len(content), checksum(content), str(elf_sm80)),
        ("cuLibraryLoadFromFile", LIBRARY, ELF, len(content), checksum(content), str(elf_sm80)),
    ]


UNLOADS = """
heap = contents(sys.argv[3])
def loaded():
    return [image["loaded"] for image in probe.state()["images"]]
seen = []
cuda.checked("cuModuleLoadData", ctypes.byref(module), heap)
cuda.checked("cuLibraryLoadData", ctypes.byref(library), heap, None, None, 0, None, None, 0)
seen.append(loaded())
failed = cuda.call("cuModuleUnload", ctypes.c_void_p(12345))
seen.append(loaded())
cuda.checked("cuModuleUnload", module)
seen.append(loaded())
cuda.checked("cuLibraryUnload", library)
seen.append(loaded())
context = ctypes.c_void_p()
if cuda.route == "dlsym":
    cuda.checked("cuCtxCreate", ctypes.byref(context), None, 0, 0, symbol="cuCtxCreate_v4")
else:
    cuda.checked("cuCtxCreate", ctypes.byref(context), None, 0, 0)
cuda.checked("cuModuleLoadData", ctypes.byref(module), heap)
cuda.checked("cuLibraryLoadData", ctypes.byref(library), heap, None, None, 0, None, None, 0)
seen.append(loaded())
cuda.checked("cuCtxDestroy", context, symbol="cuCtxDestroy_v2")
seen.append(loaded())
answer({"failed": failed, "seen": seen, "state": probe.state()})
"""


@pytest.mark.parametrize("route", ["dlsym", "getproc"])
def test_unloads_and_ends_of_contexts(route: str, hook: Path, probe: Path, sim: Path, fatbin: Path) -> None:
    got = images(UNLOADS, [hook], sim, probe, route, fatbin)
    assert got["failed"] != 0
    assert got["seen"] == [[1, 1], [1, 1], [0, 1], [0, 0], [0, 0, 1, 1], [0, 0, 0, 1]]
    content = fatbin.read_bytes()
    assert {image["sum"] for image in got["state"]["images"]} == {checksum(content)}  # bytes outlive the unload


@pytest.mark.parametrize(("mode", "count"), [("save", 2), ("auto", 2), ("load", 0)])
def test_modes(mode: str, count: int, hook: Path, probe: Path, sim: Path, fatbin: Path) -> None:
    state = images(FROM_HEAP, [hook], sim, probe, "dlsym", fatbin, mode=mode)
    assert len(state["images"]) == count
    assert state["zones"] == []
    assert (state["events"] == []) == (mode == "load")


def test_build_that_does_not_fit_the_device(hook_sm90: Path, probe: Path, sim: Path, fatbin: Path) -> None:
    state = images(FROM_HEAP, [hook_sm90], sim, probe, "dlsym", fatbin, device="a100-40gb")
    assert state["images"] == [] and state["sm_target"] == 90
    assert "sm_90 build does not fit device 0" in state["diagnoses"] and "8.0" in state["diagnoses"]
    fits = images(FROM_HEAP, [hook_sm90], sim, probe, "dlsym", fatbin, device="h100")
    assert len(fits["images"]) == 2 and fits["diagnoses"] == ""


def test_sm80_build_runs_on_newer_devices(hook: Path, probe: Path, sim: Path, fatbin: Path) -> None:
    state = images(FROM_HEAP, [hook], sim, probe, "dlsym", fatbin, device="h100")
    assert len(state["images"]) == 2 and state["diagnoses"] == ""


def test_unknown_bytes_are_diagnosed_and_printed_on_request(hook: Path, probe: Path, fake: Path) -> None:
    script = """
from client import *
cuda, probe, module = Driver("dlsym"), Probe(sys.argv[1]), ctypes.c_void_p()
result = cuda.call("cuModuleLoadData", ctypes.byref(module), ctypes.create_string_buffer(b"\\x01\\x02\\x03\\x04"))
answer([result, probe.state()])
"""
    result, state = run_python(script, environment([hook], fake, FOUNDRY_MODE="save"), probe)
    assert result == 0 and state["images"] == []
    assert "neither a fatbin nor an ELF file nor PTX text" in state["diagnoses"]
    with pytest.raises(AssertionError, match="^foundry: the image that cuModuleLoadData loaded"):
        run_python(script, environment([hook], fake, FOUNDRY_MODE="save", FOUNDRY_LOG="1"), probe)


def test_an_exception_inside_switches_the_hook_off_and_nothing_else(hook: Path, probe: Path, fake: Path) -> None:
    """Host memory for the copy of an image (7 GiB, it says) cannot be had."""
    script = """
import resource, struct
from client import *
cuda, probe, module, address = Driver("dlsym"), Probe(sys.argv[1]), ctypes.c_void_p(), ctypes.c_uint64()
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
huge = ctypes.create_string_buffer(struct.pack("<IHHQ", 0xba55ed50, 1, 16, 7 << 30))
results = [cuda.call("cuModuleLoadData", ctypes.byref(module), huge) for _ in range(2)]
results.append(cuda.call("cuMemAlloc", ctypes.byref(address), ctypes.c_size_t(64), symbol="cuMemAlloc_v2"))
answer([results, cuda.library.fake_calls(b"cuModuleLoadData", 0), probe.state()])
"""
    results, calls, state = run_python(script, environment([hook], fake, FOUNDRY_MODE="save"), probe)
    assert results == [0, 0, 0] and calls == 2
    assert state["images"] == [] and state["events"] == []
    assert (
        state["diagnoses"]
        == "libcuda_hook.so switched itself off: an internal error in recording a code image (std::bad_alloc)"
    )
