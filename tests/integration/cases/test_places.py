"""Where and how a process runs: what may differ between SAVE and LOAD, and what may not."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.story.support import Done, Place, native, nothing_mapped, restored

DEVICE = "h100"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Place, Done]:
    place = Place(tmp_path_factory.mktemp("saved"), DEVICE)
    return place, place.save("--field=quantization=none")


def listing(folder: Path) -> list[tuple[str, int, int]]:
    """Every file with size and time of change."""
    return [(str(p.relative_to(folder)), p.stat().st_size, p.stat().st_mtime_ns) for p in sorted(folder.rglob("*"))]


def test_archive_that_was_moved(saved: tuple[Place, Done], tmp_path: Path) -> None:
    place, save = saved
    moved = tmp_path / "another place" / "renamed"
    shutil.copytree(place.archive, moved)
    restored(place.run("load", "--field=quantization=none", archive=moved), save)


@pytest.fixture
def read_only(saved: tuple[Place, Done], tmp_path: Path) -> Iterator[Path]:
    archive = tmp_path / "archive"
    shutil.copytree(saved[0].archive, archive)
    paths = [archive, *archive.rglob("*")]
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    tmp_path.chmod(0o555)
    yield archive
    tmp_path.chmod(0o755)
    for path in paths:
        path.chmod(0o755)


def test_archive_that_is_read_only(saved: tuple[Place, Done], read_only: Path) -> None:
    """LOAD writes nothing there and beside it, whoever runs it."""
    place, save = saved
    before = listing(read_only.parent)
    restored(place.run("load", "--field=quantization=none", archive=read_only), save)
    assert listing(read_only.parent) == before


def test_archive_behind_a_link(saved: tuple[Place, Done], tmp_path: Path) -> None:
    place, save = saved
    link = tmp_path / "link"
    link.symlink_to(place.archive)
    restored(place.run("load", "--field=quantization=none", archive=link), save)


def test_another_gpu_of_the_same_kind_is_index_0(saved: tuple[Place, Done]) -> None:
    place, save = saved
    env = {"FOUNDRY_SIM_DEVICE_COUNT": "2", "CUDA_VISIBLE_DEVICES": "1"}
    restored(
        place.run("load", "--field=quantization=none", kinds=(), archive=None, preload=None, device=None, **env), save
    )


def test_another_index(saved: tuple[Place, Done]) -> None:
    place, save = saved
    restored(place.run("load", "--field=quantization=none", "--ordinal=1", FOUNDRY_SIM_DEVICE_COUNT="2"), save)


def test_save_on_the_second_gpu(saved: tuple[Place, Done], tmp_path: Path) -> None:
    place = Place(tmp_path, DEVICE)
    save = place.save("--ordinal=1", FOUNDRY_SIM_DEVICE_COUNT="2")
    restored(place.run("load"), save)


@pytest.mark.parametrize(("on_save", "on_load"), [("LAZY", "EAGER"), ("EAGER", "LAZY"), ("EAGER", "EAGER")])
def test_module_loading(on_save: str, on_load: str, tmp_path: Path) -> None:
    """Lazy or eager loading of code makes no difference; the archive knows which it was."""
    place = Place(tmp_path, DEVICE)
    save = place.save(CUDA_MODULE_LOADING=on_save)
    restored(place.run("load", CUDA_MODULE_LOADING=on_load), save)
    assert f'"{on_save}"' in (place.archive / "foundry.json").read_text()


@pytest.mark.parametrize(
    ("options", "archive", "here"),
    [(("--field=quantization=fp8",), "none", "fp8"), ((), "none", None), (("--field=quantization=",), "none", "")],
    ids=["other", "absent", "empty"],
)
def test_setting_that_differs(
    saved: tuple[Place, Done], options: tuple[str, ...], archive: str, here: str | None
) -> None:
    place, save = saved
    done = place.run("load", *options)
    native(done, save)
    nothing_mapped(done)
    assert done.report["mismatches"] == [{"field": "quantization", "archive": archive, "here": here, "rule": "exact"}]
    assert done.results["text"].count("quantization") >= 2
    row = next(line for line in done.results["text"].splitlines() if line.strip().startswith("quantization "))
    assert archive in row and ("(absent)" if here is None else here) in row


def test_setting_that_only_this_process_has(tmp_path: Path) -> None:
    place = Place(tmp_path, DEVICE)
    save = place.save()
    done = place.run("load", "--field=lora=8")
    native(done, save)
    nothing_mapped(done)
    assert done.report["mismatches"] == [{"field": "lora", "archive": None, "here": "8", "rule": "exact"}]


def test_auto_saves_once_and_loads_from_then_on(tmp_path: Path) -> None:
    place = Place(tmp_path, DEVICE)
    env = {"FOUNDRY_MODE": "auto"}
    save = place.run("auto", kinds=(), preload=True, device=None, archive=None, **env)
    assert save.report["outcome"] == "saved", save.output
    restored(place.run("auto"), save)


def test_another_driver_version(saved: tuple[Place, Done]) -> None:
    place, save = saved
    done = place.run("load", "--field=quantization=none", FOUNDRY_SIM_DRIVER_VERSION="12080")
    native(done, save)
    nothing_mapped(done)
    assert [m["field"] for m in done.report["mismatches"]] == ["driver_version", "cuda_version"]


def test_archive_that_anybody_may_change(saved: tuple[Place, Done], tmp_path: Path) -> None:
    """An archive that anybody may change is used, and the report says so."""
    place, save = saved
    archive = tmp_path / "open"
    shutil.copytree(place.archive, archive)
    os.chmod(archive, 0o777)
    done = place.run("load", "--field=quantization=none", archive=archive)
    restored(done, save)
    assert any("can be written by everybody" in warning for warning in done.report["warnings"]), done.report["warnings"]
