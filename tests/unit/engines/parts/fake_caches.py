"""Stand-ins for programs that compile kernels into caches on disk: Triton and tvm-ffi, as far as their layouts go."""

from __future__ import annotations

import base64
import hashlib
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


def key(text: str) -> str:
    """As Triton names folders."""
    return base64.b32encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


class FakeTriton:
    """Compiles sources (any text), or finds them in the cache, as triton.compile does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cache: Path, version: str = "3.6.0") -> None:
        self.cache = cache
        self.compiled: list[str] = []
        module: Any = ModuleType("triton")
        module.__version__ = version
        module.knobs = self.knobs = SimpleNamespace(
            compilation=SimpleNamespace(listener=None), cache=SimpleNamespace(dir=str(cache), manager_class=None)
        )
        monkeypatch.setitem(sys.modules, "triton", module)

    def kernel(self, name: str, source: str) -> dict[str, bytes]:
        """The kernel's files, with the cache's help."""
        folder = self.cache / key(source)
        folder.mkdir(parents=True, exist_ok=True)
        group = folder / f"__grp__{name}.json"
        hit = group.exists()
        if not hit:
            self.compiled.append(name)
            metadata = json.dumps({"hash": hashlib.sha256(source.encode()).hexdigest(), "name": name})
            for end, content in (("ttir", source), ("cubin", source.upper()), ("json", metadata)):
                (folder / f"{name}.{end}").write_text(content)
            paths = {path.name: str(path) for path in sorted(folder.glob(f"{name}.*"))}
            group.write_text(json.dumps({"child_paths": paths}))
        files = json.loads(group.read_text())["child_paths"]
        if self.knobs.compilation.listener is not None:
            self.knobs.compilation.listener(metadata={"name": name}, metadata_group=files, cache_hit=hit)
        return {leaf: Path(path).read_bytes() for leaf, path in files.items()}

    def module(self, name: str, source: str) -> Path:
        """A host module, as compile_module_from_src leaves it."""
        path = self.cache / key(source) / f"{name}.cpython-312-x86_64-linux-gnu.so"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
        return path


class FakeTvm:
    """tvm-ffi's cpp extension: a folder by name, build.ninja in it, and ninja, which always builds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str = "0.1.15") -> None:
        self.cache = tmp_path / "tvm-cache"
        self.built: list[str] = []
        site = tmp_path / f"tvm-{version}"
        (site / "tvm_ffi" / "cpp").mkdir(parents=True)
        for package in ("", "cpp"):
            (site / "tvm_ffi" / package / "__init__.py").touch()
        (site / "tvm_ffi" / "cpp" / "extension.py").write_text("build_ninja = None\n")
        info = site / f"apache_tvm_ffi-{version}.dist-info"
        info.mkdir()
        info.joinpath("METADATA").write_text(f"Metadata-Version: 2.1\nName: apache-tvm-ffi\nVersion: {version}\n")
        for name in ("tvm_ffi", "tvm_ffi.cpp", "tvm_ffi.cpp.extension"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        monkeypatch.syspath_prepend(str(site))
        monkeypatch.setenv("TVM_FFI_CACHE_DIR", str(self.cache))
        import tvm_ffi.cpp.extension as extension

        self.extension: Any = extension
        extension.build_ninja = self._ninja
        for name in ("tvm_ffi", "tvm_ffi.cpp", "tvm_ffi.cpp.extension"):
            monkeypatch.setitem(sys.modules, name, sys.modules[name])

    def _ninja(self, build_dir: str) -> None:
        folder = Path(build_dir)
        self.built.append(folder.name)
        module = folder / f"{folder.name.rpartition('_')[0]}.so"
        module.write_bytes(b"built: " + (folder / "build.ninja").read_bytes().splitlines()[0])

    def load(self, name: str, recipe: str = "nvcc -O2", source: str = "int main;") -> Path:
        """As tvm_ffi.cpp.load_inline: the module."""
        folder = self.cache / f"{name}_0123abcd"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "main.cpp").write_text(source)
        steps = f"build main.o: compile {folder / 'main.cpp'}\nbuild {name}.so: link main.o\n"
        (folder / "build.ninja").write_text(f"command = {recipe}\n{steps}")
        self.extension.build_ninja(str(folder))
        return folder / f"{name}.so"


def mapped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *paths: Path) -> None:
    """From now on this process seems to have mapped these files."""
    maps = tmp_path / "maps"
    lines = [f"7f0000000000-7f0000001000 r-xp 00000000 08:01 42    {path}\n" for path in paths]
    maps.write_text("7ffc0000-7ffd0000 rw-p 00000000 00:00 0 [stack]\n" + "".join(lines))
    monkeypatch.setattr("foundry.engines.common.folders._MAPS", str(maps))
