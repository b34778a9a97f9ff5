"""Driver calls that fail while an archive is saved or restored: nothing half-done, and the process goes on natively."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.story.support import EQUAL, GRAPHS, Done, Place, restored

DEVICE = "h100"
OUT_OF_MEMORY = "CUDA_ERROR_OUT_OF_MEMORY"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Place, Done]:
    place = Place(tmp_path_factory.mktemp("saved"), DEVICE)
    return place, place.save()


# Calls that a restore makes before the engine makes any of its own, or that the engine never makes.
BEFORE_ANYTHING = [
    "cuMemAddressReserve:1", "cuMemAddressReserve:5", "cuMemCreate:1", "cuMemCreate:2", "cuMemMap:1", "cuMemMap:2",
    "cuMemSetAccess:1", "cuMemSetAccess:2",
]  # fmt: skip
IN_THE_BACKGROUND = [
    "cuLibraryLoadData:1", "cuLibraryLoadData:2", "cuLibraryGetKernel:1", "cuGraphCreate:1", "cuGraphCreate:5",
    "cuGraphAddKernelNode:1", "cuGraphAddKernelNode:100", "cuGraphAddMemsetNode:1", "cuGraphAddMemcpyNode:3",
    "cuGraphAddDependencies:1", "cuGraphInstantiateWithFlags:1", "cuGraphInstantiateWithFlags:4",
]  # fmt: skip


@pytest.mark.parametrize("fault", BEFORE_ANYTHING)
def test_no_memory_for_the_restore(saved: tuple[Place, Done], fault: str) -> None:
    """Refused before the engine has begun; what had been mapped is given back."""
    place, save = saved
    done = place.run("load", FOUNDRY_SIM_FAULT=f"{fault}:{OUT_OF_MEMORY}")
    assert done.code == 0 and "error" not in done.results, done.output
    assert done.report["outcome"] == "native" and done.report["restored"] == [], done.results["text"]
    assert done.report["reason"] and "\n" not in done.report["reason"]
    for key in EQUAL:
        assert done.results[key] == save.results[key]
    begun, before = done.results["footprint"]["begun"], done.results["footprint"]["before"]
    assert begun == before


@pytest.mark.parametrize("fault", IN_THE_BACKGROUND)
def test_restore_that_fails_in_the_background(saved: tuple[Place, Done], fault: str) -> None:
    """The graphs that could not be restored are captured natively, the others are restored; all are right."""
    place, save = saved
    done = place.run("load", FOUNDRY_SIM_FAULT=f"{fault}:{OUT_OF_MEMORY}")
    assert done.code == 0 and "error" not in done.results, done.output
    report = done.report
    assert report["fell_back"], f"{fault} was not met"
    assert sorted([*report["restored"], *report["fell_back"]]) == sorted(GRAPHS)
    name = fault.split(":")[0]
    assert all(name in why for why in report["fell_back"].values()), report["fell_back"]
    for key in EQUAL:
        assert done.results[key] == save.results[key], key


@pytest.mark.parametrize("fault", ["cuMemCreate:2", "cuLibraryLoadData:1", "cuGraphInstantiateWithFlags:4"])
def test_fault_that_is_to_raise(saved: tuple[Place, Done], fault: str) -> None:
    place, save = saved
    done = place.run("load", "--on-mismatch=fail", FOUNDRY_SIM_FAULT=f"{fault}:{OUT_OF_MEMORY}")
    assert done.code == 0 and fault.split(":")[0] in done.error, done.output
    for key in EQUAL:
        assert done.results[key] == save.results[key]


@pytest.mark.parametrize("fault", ["cuMemcpyDtoH:1", "cuGraphGetNodes:3", "cuGraphKernelNodeGetParams:50"])
def test_fault_while_saving(tmp_path: Path, saved: tuple[Place, Done], fault: str) -> None:
    """Either the graph that met it is left out, or nothing is published; the process serves natively."""
    place = Place(tmp_path, DEVICE)
    done = place.run("save", FOUNDRY_SIM_FAULT=f"{fault}:CUDA_ERROR_UNKNOWN")
    assert done.code == 0, done.output
    for key in EQUAL:
        assert done.results[key] == saved[1].results[key]
    if "error" in done.results:
        assert done.report["outcome"] == "failed" and [p.name for p in tmp_path.iterdir()] == ["save.json"]
        assert fault.split(":")[0] in done.error
    else:
        assert done.report["left_out"], f"{fault} was not met"


def test_slow_driver(saved: tuple[Place, Done]) -> None:
    """A restore that takes its time is waited for, by whoever replays first."""
    place, save = saved
    done = place.run("load", FOUNDRY_SIM_FAULT="cuGraphInstantiateWithFlags:*:delay=40;cuLibraryLoadData:1:delay=200")
    restored(done, save)
