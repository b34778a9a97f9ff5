"""Allocations on SAVE, on the simulated driver: where they lie, what questions about them answer, when they go away."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.hook.support import environment, run_python

AMBIENT = 2
LIVE, QUARANTINED, RELEASED = 1, 2, 3
ALLOC, FREE = 1, 2
NO_ZONE = 0xFFFFFFFF
INVALID_VALUE, OUT_OF_MEMORY, NOT_FOUND, NOT_SUPPORTED = 1, 2, 500, 801
MIB = 1 << 20

PRELUDE = """
from client import *
probe, route = Probe(sys.argv[1]), sys.argv[2]
cuda = Driver(route)
cuda.start()
MIB = 1 << 20
def zone(name="ambient", device=0):
    return next((z for z in probe.state()["zones"] if z["name"] == name and z["device"] == device), None)
def inside(address):
    return any(z["base"] <= address < z["base"] + z["size"] for z in probe.state()["zones"])
def memory():
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    cuda.checked("cuMemGetInfo", ctypes.byref(free), ctypes.byref(total), symbol="cuMemGetInfo_v2")
    return free.value, total.value
"""


def ambient(
    script: str, hook: Path | None, probe: Path, sim: Path, route: str = "dlsym", mode: str = "save", **variables: str
) -> Any:
    variables = {"FOUNDRY_MODE": mode, "FOUNDRY_SIM_DEVICE": "a100-40gb"} | variables
    return run_python(PRELUDE + script, environment([hook] if hook else [], sim, **variables), probe, route)


@pytest.mark.parametrize("route", ["dlsym", "getproc", "getproc1"])
def test_allocations_lie_in_the_zone_and_frees_are_quarantined(route: str, hook: Path, probe: Path, sim: Path) -> None:
    got = ambient(
        """
before = memory()
small, other, large = cuda.alloc(8), cuda.alloc(1000), cuda.alloc(20 * MIB + 1)
live = zone()
cuda.checked("cuMemsetD8", ctypes.c_uint64(large), 7, ctypes.c_size_t(20 * MIB + 1), symbol="cuMemsetD8_v2")
out = (ctypes.c_ubyte * 4)()
cuda.checked("cuMemcpyDtoH", out, ctypes.c_uint64(large + 20 * MIB - 3), ctypes.c_size_t(4), symbol="cuMemcpyDtoH_v2")
frees = [cuda.free(large), cuda.free(large), cuda.free(small + 1), cuda.free(0)]
freed, after = zone(), memory()
again = cuda.alloc(20 * MIB + 1)
answer({"small": small, "other": other, "large": large, "again": again, "live": live, "out": list(out), "frees": frees,
        "freed": freed, "before": before, "after": after, "events": probe.state()["events"], "diagnoses": probe.state()["diagnoses"]})
""",
        hook,
        probe,
        sim,
        route,
    )
    zone = got["live"]
    assert zone["kind"] == AMBIENT and zone["device"] == 0
    assert [(r["address"], r["bytes"], r["state"]) for r in sorted(zone["ranges"], key=lambda r: r["bytes"])] == [
        (got["small"], 8, LIVE),
        (got["other"], 1000, LIVE),
        (got["large"], 20 * MIB + 1, LIVE),
    ]
    assert got["small"] % 512 == got["other"] % 512 == 0
    assert got["out"] == [7] * 4
    assert got["frees"] == [0, INVALID_VALUE, INVALID_VALUE, 0]
    states = {r["address"]: r["state"] for r in got["freed"]["ranges"]}
    assert states == {got["small"]: LIVE, got["other"]: LIVE, got["large"]: QUARANTINED}
    assert got["freed"]["quarantined"] == 20 * MIB + 1
    assert got["again"] not in (0, got["large"])  # addresses are not reused
    # What was freed counts as free for the application, but for the pages that small allocations share.
    assert got["after"][0] >= got["before"][0] - 6 * MIB
    allocations = [e for e in got["events"] if e["kind"] == ALLOC]
    assert {e["entry_point"] for e in allocations} == {"cuMemAlloc_v2"} and {e["slot"] for e in allocations} == {
        zone["slot"]
    }
    assert [e["entry_point"] for e in got["events"] if e["kind"] == FREE] == ["cuMemFree_v2"]
    assert got["diagnoses"] == ""


@pytest.mark.parametrize("mode", ["load", "auto", "off"])
def test_only_save_places_by_itself(mode: str, hook: Path, probe: Path, sim: Path) -> None:
    got = ambient(
        "address = cuda.alloc(64)\nanswer([address, probe.state(), cuda.free(address)])", hook, probe, sim, mode=mode
    )
    address, state, freed = got
    assert address < 0x100000000000 or address >= 0x550000000000
    assert freed == 0
    if mode == "off":
        assert state is None
    else:
        assert state["zones"] == []


def test_stream_ordered_allocations(hook: Path, probe: Path, sim: Path) -> None:
    got = ambient(
        """
stream, address, out = cuda.stream(), ctypes.c_uint64(), []
def make(base, *more):
    cuda.checked(base, ctypes.byref(address), ctypes.c_size_t(3 * MIB), *more)
    out.append([address.value, inside(address.value)])
    return address.value
pool, own = ctypes.c_void_p(), ctypes.c_void_p()
cuda.checked("cuDeviceGetDefaultMemPool", ctypes.byref(pool), 0)
props = (ctypes.c_int * 64)(1, 0, 1, 0)  # pinned, no handles, device 0
cuda.checked("cuMemPoolCreate", ctypes.byref(own), props)
shared = ctypes.c_void_p()
exported = (ctypes.c_int * 64)(1, 1, 1, 0)  # exportable as a file descriptor: another process sees it
exportable = cuda.call("cuMemPoolCreate", ctypes.byref(shared), exported)
plain, default, made = make("cuMemAllocAsync", stream), make("cuMemAllocFromPoolAsync", pool, stream), make("cuMemAllocFromPoolAsync", own, stream)
kept = make("cuMemAllocFromPoolAsync", shared, stream) if exportable == 0 else None
frees = [cuda.call("cuMemFreeAsync", ctypes.c_uint64(a), stream) for a in (plain, default, made)]
twice = cuda.call("cuMemFreeAsync", ctypes.c_uint64(plain), stream)
freed = kept is None or cuda.call("cuMemFreeAsync", ctypes.c_uint64(kept), stream)
answer({"out": out, "frees": frees, "twice": twice, "freed": freed, "exportable": exportable, "zone": zone(),
        "stream": stream.value, "events": probe.state()["events"]})
""",
        hook,
        probe,
        sim,
    )
    assert [inside for _, inside in got["out"]][:3] == [True] * 3
    if got["exportable"] == 0:
        assert got["out"][3][1] is False and got["freed"] == 0
        last = [e for e in got["events"] if e["kind"] == ALLOC][-1]
        assert last["slot"] == NO_ZONE and last["entry_point"] == "cuMemAllocFromPoolAsync"
    assert got["frees"] == [0, 0, 0] and got["twice"] == INVALID_VALUE
    assert {r["state"] for r in got["zone"]["ranges"]} == {QUARANTINED}
    assert {r["stream"] for r in got["zone"]["ranges"]} == {got["stream"]}


CAPTURE = """
stream, graph = cuda.stream(), ctypes.c_void_p()
def begin(mode=2):
    return cuda.call("cuStreamBeginCapture", stream, mode, symbol="cuStreamBeginCapture_v2")
def end():
    return cuda.call("cuStreamEndCapture", stream, ctypes.byref(graph))
def deferred():
    return probe.library.probe_release() != 0  # nothing may be unmapped now
address = cuda.alloc(4 * MIB)
"""


def test_frees_wait_for_captures(hook: Path, probe: Path, sim: Path) -> None:
    got = ambient(
        CAPTURE
        + """
assert begin() == 0
during = [cuda.free(address), deferred(), zone()["ranges"][0]["state"]]
new = cuda.alloc(4 * MIB)  # allowed: mapped in relaxed capture mode
pooled, slot = ctypes.c_uint64(), None
cuda.checked("cuMemAllocAsync", ctypes.byref(pooled), ctypes.c_size_t(4096), stream)
event = [e for e in probe.state()["events"] if e["kind"] == 1][-1]
ended = end()
after = [deferred(), zone()["ranges"][0]["state"]]
answer({"during": during, "new": inside(new), "pooled": inside(pooled.value), "event": event, "ended": ended, "after": after})
""",
        hook,
        probe,
        sim,
    )
    assert got["during"] == [0, True, QUARANTINED]
    assert got["new"] is True
    assert got["pooled"] is False  # a node of the graph
    assert (got["event"]["slot"], got["event"]["entry_point"]) == (NO_ZONE, "cuMemAllocAsync")
    assert got["ended"] == 0
    assert got["after"] == [False, RELEASED]


IN_CAPTURES = (
    CAPTURE
    + """
def pooled(size, base="cuMemAllocAsync", *more):
    out = ctypes.c_uint64()
    return cuda.call(base, ctypes.byref(out), ctypes.c_size_t(size), *more, stream), out.value
def free(address):
    return cuda.call("cuMemFreeAsync", ctypes.c_uint64(address), stream)
def types():
    count = ctypes.c_size_t()
    cuda.checked("cuGraphGetNodes", graph, None, ctypes.byref(count))
    nodes, kind = (ctypes.c_void_p * count.value)(), ctypes.c_int()
    cuda.checked("cuGraphGetNodes", graph, nodes, ctypes.byref(count))
    found = []
    for node in nodes:
        cuda.checked("cuGraphNodeGetType", ctypes.c_void_p(node), ctypes.byref(kind))
        found.append(kind.value)
    return found
"""
)


def test_memory_that_captures_allocate_lies_in_the_graphs_zone(hook: Path, probe: Path, sim: Path) -> None:
    """No nodes: the addresses are Foundry's, and stay the graph's whoever frees them, and however often."""
    got = ambient(
        IN_CAPTURES
        + """
slot = probe.library.probe_open(0, b"graphs", 3)
pool = ctypes.c_void_p()
cuda.checked("cuDeviceGetDefaultMemPool", ctypes.byref(pool), 0)
assert begin() == 0
made = [pooled(4096), pooled(100), pooled(3 * MIB, "cuMemAllocFromPoolAsync", pool)]
cuda.checked("cuMemsetD8Async", ctypes.c_uint64(made[0][1]), 7, ctypes.c_size_t(4096), stream)
frees = [free(made[0][1])]
assert end() == 0
kinds = types()
frees += [free(made[1][1]), cuda.free(made[2][1]), cuda.free(made[2][1] + 512)]
executable = ctypes.c_void_p()
cuda.checked("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, ctypes.c_uint64(0))
for _ in range(2):
    cuda.checked("cuGraphLaunch", executable, stream)
cuda.checked("cuStreamSynchronize", stream)
byte = (ctypes.c_ubyte * 2)()
cuda.checked("cuMemcpyDtoH", byte, ctypes.c_uint64(made[0][1] + 4094), ctypes.c_size_t(2), symbol="cuMemcpyDtoH_v2")
released = probe.library.probe_release()
answer({"made": made, "frees": frees, "kinds": kinds, "zone": zone("graphs"), "byte": list(byte), "released": released,
        "events": [e for e in probe.state()["events"] if e["slot"] == slot]})
""",
        hook,
        probe,
        sim,
    )
    (first, small), (second, tiny), (third, large) = got["made"]
    assert first == second == third == 0
    assert got["kinds"] == [2]  # a memset, and nothing that allocates or frees
    assert got["frees"] == [0, 0, 0, INVALID_VALUE]
    assert {(r["address"], r["bytes"], r["state"]) for r in got["zone"]["ranges"]} == {
        (small, 4096, LIVE), (tiny, 100, LIVE), (large, 3 * MIB, LIVE)
    }  # fmt: skip
    assert got["zone"]["mapped"] == 2 * MIB + 4 * MIB  # small ones share pages
    assert got["byte"] == [7, 7] and got["released"] == 0
    assert [e["entry_point"] for e in got["events"]] == [
        "cuMemAllocAsync",
        "cuMemAllocAsync",
        "cuMemAllocFromPoolAsync",
    ]


@pytest.mark.parametrize("what", ["no zone", "sealed", "not routed", "no memory"])
def test_captures_allocate_nodes_where_there_is_no_zone_for_them(what: str, hook: Path, probe: Path, sim: Path) -> None:
    """As without the hook; SAVE refuses such a graph by name."""
    got = ambient(
        IN_CAPTURES
        + f"""
what = {what!r}
if what != "no zone":
    probe.library.probe_open(0, b"graphs", 3)
if what == "sealed":
    probe.library.probe_seal(1)
if what == "not routed":
    probe.library.probe_set_ambient(0, 0xffffffff)
assert begin() == 0
result, made = pooled(3 << 30 if what == "no memory" else 4096)
freed = free(made)
assert end() == 0
answer([result, inside(made), freed, types()])
""",
        hook,
        probe,
        sim,
        FOUNDRY_SIM_MEMORY="2g",
    )
    assert got == [0, False, 0, [10, 11]]


def test_captures_that_do_not_begin_or_break_off(hook: Path, probe: Path, sim: Path) -> None:
    got = ambient(
        CAPTURE
        + """
cuda.free(address)
seen = {}
seen["refused"] = [begin(99) != 0, deferred()]
seen["not capturing"] = [end() != 0, deferred()]
seen["twice"] = [begin() == 0, begin() != 0, deferred(), end() == 0, deferred()]
assert begin() == 0
other = cuda.stream()
seen["of another stream"] = [cuda.call("cuStreamEndCapture", other, ctypes.byref(graph)) != 0, deferred()]
destroyed = cuda.call("cuStreamDestroy", stream, symbol="cuStreamDestroy_v2")
seen["destroyed"] = [destroyed, deferred()] if destroyed == 0 else [0, end() != 0 and deferred()]
answer(seen)
""",
        hook,
        probe,
        sim,
    )
    assert got == {
        "refused": [True, False],
        "not capturing": [True, False],
        "twice": [True, True, True, True, False],
        "of another stream": [True, True],
        "destroyed": [0, False],
    }


def test_questions_about_zone_memory(hook: Path, probe: Path, sim: Path) -> None:
    got = ambient(
        """
small, large, freed = cuda.alloc(100), cuda.alloc(3 * MIB), cuda.alloc(1000)
cuda.free(freed)
def span(address):
    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    result = cuda.call("cuMemGetAddressRange", ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(address),
                       symbol="cuMemGetAddressRange_v2")
    return [result, base.value, size.value] if result == 0 else [result]
def attribute(which, address):
    value = ctypes.c_uint64()
    result = cuda.call("cuPointerGetAttribute", ctypes.byref(value), which, ctypes.c_uint64(address))
    return [result, value.value] if result == 0 else [result]
def attributes(address):
    kind, start, size = ctypes.c_uint(), ctypes.c_uint64(), ctypes.c_size_t()
    pointers = (ctypes.c_void_p * 3)(*(ctypes.addressof(v) for v in (kind, start, size)))
    result = cuda.call("cuPointerGetAttributes", 3, (ctypes.c_int * 3)(2, 11, 12), pointers, ctypes.c_uint64(address))
    return [result, kind.value, start.value, size.value]
handle = (ctypes.c_char * 64)()
host = ctypes.c_void_p()
cuda.checked("cuMemHostAlloc", ctypes.byref(host), ctypes.c_size_t(4096), 0)
answer({"small": small, "large": large, "spans": [span(small + 99), span(large + MIB), span(freed), span(0x1234)],
        "attributes": [attribute(11, small + 5), attribute(12, small + 5), attribute(2, small), attribute(2, freed), attribute(12, freed)],
        "many": [attributes(small + 5), attributes(freed)], "ipc": cuda.call("cuIpcGetMemHandle", handle, ctypes.c_uint64(large)),
        "host": attributes(host.value)[:2]})
""",
        hook,
        probe,
        sim,
    )
    small, large = got["small"], got["large"]
    assert got["spans"][:3] == [[0, small, 100], [0, large, 3 * MIB], [NOT_FOUND]]
    assert got["spans"][3] != [0]
    assert got["attributes"] == [[0, small], [0, 100], [0, 2], [INVALID_VALUE], [INVALID_VALUE]]
    assert got["many"] == [[0, 2, small, 100], [0, 0, 0, 0]]
    assert got["ipc"] == NOT_SUPPORTED
    assert got["host"] == [0, 1]


def test_pitched_managed_and_host_memory(hook: Path, probe: Path, sim: Path) -> None:
    got = ambient(
        """
address, pitch, managed, host = ctypes.c_uint64(), ctypes.c_size_t(), ctypes.c_uint64(), ctypes.c_void_p()
def pitched(width, height, element):
    return cuda.call("cuMemAllocPitch", ctypes.byref(address), ctypes.byref(pitch), ctypes.c_size_t(width), ctypes.c_size_t(height),
                     element, symbol="cuMemAllocPitch_v2")
good = [pitched(1000, 3, 4), pitch.value, inside(address.value), cuda.free(address.value)]
bad = pitched(1000, 3, 5)
cuda.checked("cuMemAllocManaged", ctypes.byref(managed), ctypes.c_size_t(4096), 1)
cuda.checked("cuMemHostAlloc", ctypes.byref(host), ctypes.c_size_t(4096), 0)
cuda.checked("cuMemFreeHost", host)
answer({"good": good, "bad": bad, "managed": inside(managed.value), "freed": cuda.free(managed.value),
        "events": [[e["kind"], e["entry_point"]] for e in probe.state()["events"]]})
""",
        hook,
        probe,
        sim,
    )
    assert got["good"] == [0, 1024, True, 0]
    assert got["bad"] != 0
    assert got["managed"] is False and got["freed"] == 0
    assert [1, "cuMemAllocManaged"] in got["events"]
    assert [5, "cuMemHostAlloc"] in got["events"] and [6, "cuMemFreeHost"] in got["events"]


def test_routing_is_the_sessions_to_change(hook: Path, probe: Path, sim: Path) -> None:
    got = ambient(
        """
first = cuda.alloc(64)
slot = zone()["slot"]
stopped = probe.library.probe_set_ambient(0, 0xffffffff)
second = cuda.alloc(64)
again = probe.library.probe_set_ambient(0, slot)
third = cuda.alloc(64)
probe.library.probe_seal(1)
fourth = cuda.alloc(64)
answer({"where": [inside(a) for a in (first, second, third, fourth)], "results": [stopped, again],
        "frees": [cuda.free(a) for a in (first, second, third, fourth)]})
""",
        hook,
        probe,
        sim,
    )
    assert got == {"where": [True, False, True, False], "results": [0, 0], "frees": [0, 0, 0, 0]}


def test_no_ambient_zone_where_the_session_said_so_first(hook: Path, probe: Path, sim: Path) -> None:
    got = ambient(
        "said = probe.library.probe_set_ambient(0, 0xffffffff)\nanswer([said, inside(cuda.alloc(64)), zone()])",
        hook,
        probe,
        sim,
    )
    assert got == [0, False, None]


def test_one_zone_for_each_device(hook: Path, probe: Path, sim: Path) -> None:
    got = ambient(
        """
first = cuda.alloc(64)
cuda.start(1)
second = cuda.alloc(64)
zones = [zone(device=d) for d in (0, 1)]
answer([[r["address"] for r in z["ranges"]] for z in zones] + [[first], [second]])
""",
        hook,
        probe,
        sim,
        FOUNDRY_SIM_DEVICE_COUNT="2",
    )
    assert got[0] == got[2] and got[1] == got[3] and got[0] != got[1]


def test_out_of_memory_is_an_answer_and_freed_memory_comes_back(hook: Path, probe: Path, sim: Path) -> None:
    got = ambient(
        """
address = ctypes.c_uint64()
def alloc(size):
    return cuda.call("cuMemAlloc", ctypes.byref(address), ctypes.c_size_t(size), symbol="cuMemAlloc_v2")
first = cuda.alloc(700 * MIB)
full = alloc(700 * MIB)
cuda.free(first)
answer([full, alloc(700 * MIB), inside(address.value), alloc(0), alloc(1 << 50), probe.state()["diagnoses"]])
""",
        hook,
        probe,
        sim,
        FOUNDRY_SIM_MEMORY="1g",
    )
    assert got == [OUT_OF_MEMORY, 0, True, INVALID_VALUE, OUT_OF_MEMORY, ""]


@pytest.mark.parametrize("entry", ["cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxRelease"])
def test_the_primary_context_ends(entry: str, hook: Path, probe: Path, sim: Path) -> None:
    got = ambient(
        f"""
first = inside(cuda.alloc(64))
for _ in range(4):
    ended = cuda.call("{entry}", 0, symbol="{entry}_v2")
    active, flags = ctypes.c_int(), ctypes.c_uint()
    cuda.checked("cuDevicePrimaryCtxGetState", 0, ctypes.byref(flags), ctypes.byref(active))
    if not active.value: break
diagnoses = probe.state()["diagnoses"]
cuda.start()
address = ctypes.c_uint64()
result = cuda.call("cuMemAlloc", ctypes.byref(address), ctypes.c_size_t(64), symbol="cuMemAlloc_v2")
answer([first, active.value, diagnoses, result, inside(address.value)])
""",
        hook,
        probe,
        sim,
    )
    assert got[:2] == [True, 0]
    assert "the primary context of device 0 ended" in got[2]
    assert got[3:] == [0, False]


def test_child_of_a_fork_passes_through(hook: Path, probe: Path, sim: Path) -> None:
    got = ambient(
        """
import os
first = cuda.alloc(64)
events = len(probe.state()["events"])
pid = os.fork()
if pid == 0:
    address = ctypes.c_uint64()
    cuda.call("cuMemAlloc", ctypes.byref(address), ctypes.c_size_t(64), symbol="cuMemAlloc_v2")
    os._exit(10 if len(probe.state()["events"]) == events and not inside(address.value) else 11)
answer([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), cuda.free(first)])
""",
        hook,
        probe,
        sim,
    )
    assert got == [10, 0]


def test_child_that_is_forked_before_the_driver_is_called_works_as_any_process(
    hook: Path, probe: Path, sim: Path
) -> None:
    script = """
from client import *
import os
probe, cuda = Probe(sys.argv[1]), Driver(sys.argv[2])
pid = os.fork()
if pid == 0:
    cuda.start()
    address = cuda.alloc(64)
    zones = probe.state()["zones"]
    os._exit(10 if any(z["base"] <= address < z["base"] + z["size"] for z in zones) else 11)
answer(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    variables = {"FOUNDRY_MODE": "save", "FOUNDRY_SIM_DEVICE": "a100-40gb"}
    assert run_python(script, environment([hook], sim, **variables), probe, "dlsym") == 10


def test_journal_can_be_turned_off(hook: Path, probe: Path, sim: Path) -> None:
    script = "address = cuda.alloc(64)\nanswer([inside(address), len(probe.state()['events'])])"
    assert ambient(script, hook, probe, sim, FOUNDRY_JOURNAL="off") == [True, 0]
    assert ambient(script, hook, probe, sim, FOUNDRY_JOURNAL="sizes")[1] > 0


def test_window_that_cannot_be_had_is_diagnosed(hook: Path, probe: Path, sim: Path) -> None:
    got = ambient(
        "address = cuda.alloc(64)\nanswer([inside(address), cuda.free(address), probe.state()['diagnoses']])",
        hook,
        probe,
        sim,
        FOUNDRY_SIM_FAULT="cuMemAddressReserve:1+:2",
    )
    assert got[:2] == [False, 0]
    assert "allocations of device 0 outside phases stay where the driver puts them" in got[2]


def test_a_driver_that_is_too_old_switches_the_hook_off(hook: Path, probe: Path, fake: Path) -> None:
    script = """
from client import *
cuda, probe, address = Driver("dlsym"), Probe(sys.argv[1]), ctypes.c_uint64()
answer([cuda.call("cuMemAlloc", ctypes.byref(address), ctypes.c_size_t(64), symbol="cuMemAlloc_v2"), probe.state()["diagnoses"]])
"""
    result, diagnoses = run_python(script, environment([hook], fake, FOUNDRY_MODE="save"), probe)
    assert (result, diagnoses) == (0, "")  # no context: the driver's own answer
