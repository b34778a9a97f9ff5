"""Modules of tvm-ffi from one process to another."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from fake_caches import FakeTvm, mapped

from foundry import _core
from foundry.engines.common import tvm_modules
from foundry.engines.common.kernel_file import Folder, StoredCache, pack


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> StoredCache:
    """Of a process that has loaded one module of its cache, which has another one, too."""
    save = tmp_path / "save"
    save.mkdir()
    tvm = FakeTvm(monkeypatch, save)
    tvm.load("unused")
    mapped(monkeypatch, tmp_path, tvm.load("clamp"), tmp_path / "save" / "other" / "clamp.so")
    found = tvm_modules.Used().stored()
    assert found is not None
    return found


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeTvm:
    """A process that starts with an empty cache."""
    (tmp_path / "load").mkdir()
    return FakeTvm(monkeypatch, tmp_path / "load")


def test_modules_that_were_loaded_are_found(stored: StoredCache) -> None:
    (folder,) = stored.folders
    assert folder.name == "clamp_0123abcd"
    assert folder.contents() == {"build.ninja": b"nvcc -O2", "clamp.so": b"built: nvcc -O2"}


def test_a_module_is_put_when_it_is_asked_for_and_ninja_left_out(stored: StoredCache, load: FakeTvm) -> None:
    provided = tvm_modules.provide(stored)
    assert (provided.ready, provided.put) == (1, 0) and not load.cache.exists()
    assert load.load("clamp").read_bytes() == b"built: nvcc -O2"
    load.load("another")
    assert load.built == ["another_0123abcd"]
    assert provided.put == 1
    load.load("clamp")
    assert load.built == ["another_0123abcd"] and provided.there == 1
    assert sorted(path.name for path in (load.cache / "clamp_0123abcd").iterdir()) == ["build.ninja", "clamp.so"]


def test_another_recipe_or_another_module_is_left_to_ninja(stored: StoredCache, load: FakeTvm) -> None:
    provided = tvm_modules.provide(stored)
    assert load.load("clamp", "nvcc -O3").read_bytes() == b"built: nvcc -O3"
    assert load.built == ["clamp_0123abcd"]
    load.load("clamp")  # the recipe is right again, the module is not
    assert load.built == ["clamp_0123abcd"] * 2
    assert (provided.put, provided.there, provided.refused) == (0, 0, [])


@pytest.mark.parametrize(
    "folder",
    [
        Folder("clamp_0123abcd", ()),
        Folder("clamp_0123abcd", (pack("build.ninja", b"nvcc -O2"),)),
        Folder("clamp_0123abcd", (pack("build.ninja", b"nvcc -O2"), pack("a.so", b""), pack("b.so", b""))),
    ],
)
def test_a_folder_without_one_module_is_compiled(folder: Folder, load: FakeTvm) -> None:
    provided = tvm_modules.provide(StoredCache("0.1.15", (folder,)))
    load.load("clamp")
    assert load.built == ["clamp_0123abcd"]
    assert len(provided.refused) == 1 and "compiled anew" in provided.refused[0]


def test_another_tvm_is_refused(stored: StoredCache, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "load").mkdir()
    tvm = FakeTvm(monkeypatch, tmp_path / "load", version="0.2.0")
    with pytest.raises(_core.FoundryError, match=r"tvm-ffi 0\.1\.15, here it is 0\.2\.0"):
        tvm_modules.provide(stored)
    del tvm.extension.build_ninja
    with pytest.raises(_core.FoundryError, match="not one that Foundry knows"):
        tvm_modules.provide(StoredCache("0.2.0", stored.folders))


def test_without_tvm_there_is_nothing(stored: StoredCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tvm_modules.importlib.util, "find_spec", lambda name: None)
    assert tvm_modules.Used().stored() is None
    with pytest.raises(_core.FoundryError, match="here is none"):
        tvm_modules.provide(stored)
    assert "tvm_ffi" in sys.modules
