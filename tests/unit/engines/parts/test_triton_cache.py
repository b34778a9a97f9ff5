"""Folders of Triton's cache from one process to another."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fake_caches import FakeTriton, key, mapped

from foundry import _core
from foundry.engines.common import folders, triton_cache
from foundry.engines.common.kernel_file import Folder, StoredCache, pack


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> StoredCache:
    """Of a process that has used two kernels and a host module of its cache, which holds more."""
    triton = FakeTriton(monkeypatch, tmp_path / "save")
    triton.kernel("unused", "another process compiled it")
    triton.module("unused", "another process loaded it")
    before: list[str] = []
    triton.knobs.compilation.listener = lambda **about: before.append(about["metadata"]["name"])
    hears = triton.knobs.compilation.listener
    used = triton_cache.Used()
    triton.kernel("splits", "source of splits")
    triton.kernel("indices", "source of indices")
    triton.kernel("splits", "source of splits")
    launcher = triton.module("launcher", "source of a launcher")
    outside = tmp_path / "elsewhere" / key("x") / "other.so"
    mapped(monkeypatch, tmp_path, launcher, outside)
    assert before == ["splits", "indices", "splits"]
    used.stop()
    assert triton.knobs.compilation.listener is hears
    found = used.stored()
    assert found is not None
    return found


def test_what_a_process_used_is_found(stored: StoredCache) -> None:
    names = {folder.name: [file.name for file in folder.files] for folder in stored.folders}
    assert names == {
        key("source of splits"): ["splits.cubin", "splits.json", "splits.ttir"],
        key("source of indices"): ["indices.cubin", "indices.json", "indices.ttir"],
        key("source of a launcher"): ["launcher.cpython-312-x86_64-linux-gnu.so"],
    }
    assert stored.version == "3.6.0"


def test_an_empty_cache_gets_all_and_triton_compiles_nothing(
    stored: StoredCache, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    triton = FakeTriton(monkeypatch, tmp_path / "load" / "triton")
    provided = triton_cache.provide(stored)
    assert (provided.put, provided.there, provided.refused) == (3, 0, [])
    assert triton.kernel("splits", "source of splits")["splits.cubin"] == b"SOURCE OF SPLITS"
    assert triton.kernel("indices", "source of indices")["indices.ttir"] == b"source of indices"
    assert triton.compiled == []
    assert triton.kernel("new", "source of a new one") and triton.compiled == ["new"]
    assert sorted(path.name for path in triton.cache.iterdir() if path.name.startswith("tmp")) == []
    group = json.loads((triton.cache / key("source of splits") / "__grp__splits.json").read_text())
    assert all(Path(path).parent.parent == triton.cache for path in group["child_paths"].values())


def test_what_is_there_is_never_changed(stored: StoredCache, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cache = tmp_path / "load"
    kernel, module, third = (folder.name for folder in stored.folders)
    (cache / kernel).mkdir(parents=True)
    (cache / kernel / "tmp.pid_7_other").mkdir()  # somebody compiles it right now
    (cache / module).mkdir()  # Triton makes the folder before it looks
    (cache / third).symlink_to(tmp_path / "nowhere")
    FakeTriton(monkeypatch, cache)
    provided = triton_cache.provide(stored)
    assert (provided.put, provided.there, provided.refused) == (1, 2, [])
    assert os.listdir(cache / kernel) == ["tmp.pid_7_other"]
    assert len(os.listdir(cache / module)) > 0
    assert (cache / third).is_symlink() and not (tmp_path / "nowhere").exists()
    assert triton_cache.provide(stored).there == 3


def test_another_process_may_be_first(stored: StoredCache, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    FakeTriton(monkeypatch, tmp_path / "load")
    rename = os.rename

    def late(source: Any, target: Any) -> None:
        Path(target).mkdir()
        Path(target, "theirs").touch()
        rename(source, target)

    monkeypatch.setattr(folders.os, "rename", late)
    provided = triton_cache.provide(stored)
    assert (provided.put, provided.there, provided.refused) == (0, 3, [])
    assert all(os.listdir(path) == ["theirs"] for path in (tmp_path / "load").iterdir())


def test_a_cache_that_cannot_be_written_is_named(
    stored: StoredCache, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    FakeTriton(monkeypatch, tmp_path / "file")
    provided = triton_cache.provide(stored)
    assert provided.put == 0 and len(provided.refused) == 3
    assert all(str(tmp_path / "file") in sentence for sentence in provided.refused)


def kernel(source: str, **files: bytes) -> Folder:
    return Folder(key(source), tuple(pack(name.replace("__dot__", "."), content) for name, content in files.items()))


GOOD = b'{"hash": "%s"}'
HOSTILE = [
    (Folder("bin", (pack("x.so", b""),)), "key"),
    (Folder(key("a").lower(), (pack("x.so", b""),)), "key"),
    (Folder(key("a"), ()), "neither"),
    (kernel("a", k__dot__cubin=b"", k__dot__json=b'{"hash": "00"}'), "another key"),
    (kernel("a", k__dot__cubin=b"", k__dot__json=b'{"hash": "xyz"}'), "metadata"),
    (kernel("a", k__dot__cubin=b"", k__dot__json=b"[]"), "metadata"),
    (kernel("a", k__dot__cubin=b"", k__dot__json=b"{}"), "metadata"),
    (kernel("a", k__dot__cubin=b"", k__dot__json=b"\xff"), "metadata"),
    (kernel("a", k__dot__json=b"{}"), "neither"),
    (kernel("a", k__dot__cubin=b"", k__dot__json=b"{}", other__dot__py=b""), "neither"),
    (kernel("a", k__dot__cubin=b"", k__dot__json=b"{}", k__dot__so=b""), "neither"),
    (kernel("a", k__dot__so=b"", __grp__k=b""), "list of files"),
]


@pytest.mark.parametrize(("folder", "names"), HOSTILE)
def test_a_folder_that_triton_would_not_have_made_is_refused(
    folder: Folder, names: str, stored: StoredCache, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The others are put."""
    FakeTriton(monkeypatch, tmp_path / "load")
    provided = triton_cache.provide(StoredCache("3.6.0", (folder, *stored.folders)))
    assert provided.put == 3
    (sentence,) = provided.refused
    assert names in sentence and folder.name in sentence
    assert not (tmp_path / "load" / folder.name).exists()


def test_broken_content_is_refused(stored: StoredCache, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    FakeTriton(monkeypatch, tmp_path / "load")
    first = stored.folders[0]
    broken = Folder(first.name, (dataclasses.replace(first.files[0], nbytes=3), *first.files[1:]))
    assert "3 bytes" in triton_cache.provide(StoredCache("3.6.0", (broken,))).refused[0]


def test_kernels_of_another_triton_are_not_put(
    stored: StoredCache, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    FakeTriton(monkeypatch, tmp_path / "load", version="3.7.0")
    with pytest.raises(_core.FoundryError, match=r"Triton 3\.6\.0, here it is 3\.7\.0"):
        triton_cache.provide(stored)
    triton = FakeTriton(monkeypatch, tmp_path / "load")
    triton.knobs.cache.manager_class = object
    with pytest.raises(_core.FoundryError, match="another kind"):
        triton_cache.provide(stored)
    monkeypatch.delitem(sys.modules, "triton")
    with pytest.raises(_core.FoundryError, match="not used here"):
        triton_cache.provide(stored)
    assert not (tmp_path / "load").exists()


def test_without_triton_nothing_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "triton", raising=False)
    used = triton_cache.Used()
    assert used.stored() is None
    used.stop()


def test_a_later_listener_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    triton = FakeTriton(monkeypatch, tmp_path / "save")
    used = triton_cache.Used()
    ours = triton.knobs.compilation.listener
    triton.knobs.compilation.listener = theirs = lambda **about: ours(**about)
    used.stop()
    assert triton.knobs.compilation.listener is theirs
    triton.kernel("k", "source")


def test_a_kernel_that_was_cleaned_away_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    triton = FakeTriton(monkeypatch, tmp_path / "save")
    mapped(monkeypatch, tmp_path)
    used = triton_cache.Used()
    triton.kernel("k", "source")
    for path in (triton.cache / key("source")).iterdir():
        path.unlink()
    found = used.stored()
    assert found is not None and found.folders == ()


PROGRAM = """
import sys
from types import ModuleType
sys.path[:0] = {path!r}
import fake_core
fake_core.install()
import triton, triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from foundry.engines.common import triton_cache
from foundry.engines.common.kernel_file import dumps, loads

@triton.jit
def add_one(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)

hits = []
triton.knobs.compilation.listener = lambda **about: hits.append(about["cache_hit"])
used = triton_cache.Used()
if sys.argv[1] == "load":
    print(vars(triton_cache.provide(loads(open(sys.argv[2]).read(), "here")["triton"])))
for block in (128, 256):
    source = ASTSource(add_one, {{"x": "*fp32", "y": "*fp32", "n": "i32", "BLOCK": "constexpr"}}, {{"BLOCK": block}})
    kernel = triton.compile(source, target=GPUTarget("cuda", 90, 32))
    print(len(kernel.asm["cubin"]), sorted(kernel.asm))
if sys.argv[1] == "save":
    open(sys.argv[2], "w").write(dumps({{"triton": used.stored()}}))
print("hits", hits)
"""


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_with_triton_itself(tmp_path: Path) -> None:
    """Compiles for a GPU that need not be there. Another process with an empty cache compiles nothing."""
    program = tmp_path / "program.py"  # Triton reads its kernels' source
    program.write_text(PROGRAM.format(path=[path for path in sys.path if path]))

    def run(mode: str, cache: str) -> list[str]:
        command = [sys.executable, str(program), mode, str(tmp_path / "kernels.json")]
        env = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path / cache)}
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout.splitlines()

    saved = run("save", "first")
    assert saved[-1] == "hits [False, False]"
    loaded = run("load", "second")
    assert "'put': 2, 'there': 0" in loaded[0] and "'refused': []" in loaded[0]
    assert loaded[-1] == "hits [True, True]"
    assert loaded[1:-1] == saved[:-1]
    assert "'put': 0, 'there': 2" in run("load", "second")[0]
