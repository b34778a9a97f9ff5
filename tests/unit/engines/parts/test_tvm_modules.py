"""Modules of tvm-ffi from one process to another."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fake_caches import FakeTvm, mapped

from foundry import _core
from foundry.engines.common import tvm_modules
from foundry.engines.common.kernel_file import Folder, StoredCache, pack

SOURCES = hashlib.sha256(b"int main;").hexdigest().encode()
RECIPE = (
    b"command = nvcc -O2\nbuild main.o: compile $here/main.cpp\nbuild clamp.so: link main.o\n\n# sources %s\n" % SOURCES
)
VERSION = f"0.1.15 ({os.confstr('CS_GNU_LIBC_VERSION')})"


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
    assert folder.contents() == {"build.ninja": RECIPE, "clamp.so": b"built: command = nvcc -O2"}


def test_a_module_is_put_when_it_is_asked_for_and_ninja_left_out(stored: StoredCache, load: FakeTvm) -> None:
    provided = tvm_modules.provide(stored)
    assert (provided.ready, provided.put) == (1, 0) and not load.cache.exists()
    assert load.load("clamp").read_bytes() == b"built: command = nvcc -O2"
    load.load("another")
    assert load.built == ["another_0123abcd"]
    assert provided.put == 1
    load.load("clamp")
    assert load.built == ["another_0123abcd"] and provided.there == 1
    assert sorted(path.name for path in (load.cache / "clamp_0123abcd").iterdir()) == [
        "build.ninja",
        "clamp.so",
        "main.cpp",
    ]


def test_another_recipe_or_another_module_is_left_to_ninja(stored: StoredCache, load: FakeTvm) -> None:
    provided = tvm_modules.provide(stored)
    assert load.load("clamp", "nvcc -O3").read_bytes() == b"built: command = nvcc -O3"
    assert load.built == ["clamp_0123abcd"]
    load.load("clamp")  # the recipe is right again, the module is not
    assert load.built == ["clamp_0123abcd"] * 2
    assert (provided.put, provided.there, provided.refused) == (0, 0, [])


def test_a_source_that_was_edited_is_left_to_ninja(stored: StoredCache, load: FakeTvm) -> None:
    """Its path, which is all that the recipe has of it, is the same."""
    tvm_modules.provide(stored)
    load.load("clamp", source="int main2;")
    assert load.built == ["clamp_0123abcd"]


def test_what_ninja_has_built_is_ninjas_to_judge(stored: StoredCache, load: FakeTvm) -> None:
    """It knows the headers, too."""
    tvm_modules.provide(stored)
    (load.load("clamp").parent / ".ninja_log").touch()
    load.load("clamp")
    assert load.built == ["clamp_0123abcd"]


def test_a_module_for_another_c_library_is_refused(
    stored: StoredCache, load: FakeTvm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "confstr", lambda name: "glibc 2.28")
    with pytest.raises(_core.FoundryError, match=r"here it is 0\.1\.15 \(glibc 2\.28\)"):
        tvm_modules.provide(stored)


@pytest.mark.parametrize(
    "folder",
    [
        Folder("clamp_0123abcd", ()),
        Folder("clamp_0123abcd", (pack("build.ninja", RECIPE),)),
        Folder("clamp_0123abcd", (pack("build.ninja", RECIPE), pack("a.so", b""), pack("b.so", b""))),
    ],
)
def test_a_folder_without_one_module_is_compiled(folder: Folder, load: FakeTvm) -> None:
    provided = tvm_modules.provide(StoredCache(VERSION, (folder,)))
    load.load("clamp")
    assert load.built == ["clamp_0123abcd"]
    assert len(provided.refused) == 1 and "compiled anew" in provided.refused[0]


def test_another_tvm_is_refused(stored: StoredCache, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "load").mkdir()
    tvm = FakeTvm(monkeypatch, tmp_path / "load", version="0.2.0")
    with pytest.raises(_core.FoundryError, match=r"tvm-ffi 0\.1\.15 \(glibc .*\), here it is 0\.2\.0"):
        tvm_modules.provide(stored)
    del tvm.extension.build_ninja
    with pytest.raises(_core.FoundryError, match="not one that Foundry knows"):
        tvm_modules.provide(StoredCache(VERSION.replace("0.1.15", "0.2.0"), stored.folders))


def test_without_tvm_there_is_nothing(stored: StoredCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tvm_modules.importlib.util, "find_spec", lambda name: None)
    assert tvm_modules.Used().stored() is None
    with pytest.raises(_core.FoundryError, match="here is none"):
        tvm_modules.provide(stored)
    assert "tvm_ffi" in sys.modules


PROGRAM = """
import sys
sys.path[:0] = {path!r}
import fake_core
fake_core.install()
import tvm_ffi.cpp
from tvm_ffi.cpp import extension
from foundry.engines.common import tvm_modules
from foundry.engines.common.kernel_file import dumps, loads

ninja, built = extension.build_ninja, []
extension.build_ninja = lambda build_dir: (built.append(build_dir), ninja(build_dir))
used = tvm_modules.Used()
if sys.argv[1] == "load":
    provided = tvm_modules.provide(loads(open(sys.argv[2]).read(), "here")["tvm_ffi"])
source = "int add(int a, int b) {{ return a + b; }}"
module = tvm_ffi.cpp.load_inline("adder", cpp_sources=source, functions="add")
if sys.argv[1] == "save":
    open(sys.argv[2], "w").write(dumps({{"tvm_ffi": used.stored()}}))
else:
    print(provided.put, provided.there, provided.refused)
print(module.add(40, 2), "built", len(built))
"""


@pytest.mark.skipif(importlib.util.find_spec("tvm_ffi") is None, reason="tvm-ffi is not installed")
def test_with_tvm_itself(tmp_path: Path) -> None:
    """A module of C++ alone. Another process with an empty cache elsewhere builds nothing."""

    def run(mode: str, cache: str) -> list[str]:
        program = PROGRAM.format(path=[path for path in sys.path if path])
        command = [sys.executable, "-c", program, mode, str(tmp_path / "kernels.json")]
        env = {**os.environ, "TVM_FFI_CACHE_DIR": str(tmp_path / cache)}
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout.splitlines()

    assert run("save", "first") == ["42 built 1"]
    assert run("load", "second") == ["1 0 []", "42 built 0"]
    assert run("load", "second") == ["0 1 []", "42 built 0"]
