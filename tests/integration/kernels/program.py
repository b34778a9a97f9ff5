"""An engine whose steps use a compiled kernel beside their graphs; the compiler is a stand-in with Triton's layout.

usage: program.py MODE ARCHIVE CACHE RESULTS
"""

from __future__ import annotations

import base64
import hashlib
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from foundry.engines.common import kernel_file
from foundry.engines.common.kernel_caches import KernelCaches
from foundry.recipes import simulated
from foundry.recipes.mini_decode import every_size
from foundry.recipes.mini_engine.engine import EngineConfig
from foundry.recipes.mini_engine.with_foundry import FoundryEngine

SOURCE = "splits of the KV cache"
compiled: list[str] = []


def install(cache: Path) -> Any:
    """Triton as far as its cache goes."""
    module: Any = ModuleType("triton")
    module.__version__ = "3.6.0"
    module.knobs = SimpleNamespace(
        compilation=SimpleNamespace(listener=None), cache=SimpleNamespace(dir=str(cache), manager_class=None)
    )
    sys.modules["triton"] = module
    return module.knobs


def compile_kernel(knobs: Any, name: str) -> bytes:
    """Found in the cache, or made."""
    digest = hashlib.sha256(SOURCE.encode())
    folder = Path(knobs.cache.dir, base64.b32encode(digest.digest()).decode().rstrip("="))
    group = folder / f"__grp__{name}.json"
    if not group.exists():
        compiled.append(name)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.cubin").write_bytes(bytes(range(256)) * 40)
        (folder / f"{name}.json").write_text(json.dumps({"hash": digest.hexdigest()}))
        files = {path.name: str(path) for path in folder.iterdir()}
        group.write_text(json.dumps({"child_paths": files}))
    files = json.loads(group.read_text())["child_paths"]
    if knobs.compilation.listener is not None:
        knobs.compilation.listener(metadata_group=files)
    return Path(files[f"{name}.cubin"]).read_bytes()


class Engine(FoundryEngine):
    """Its warm-up, which LOAD leaves out, needs the kernel."""

    def __init__(self, knobs: Any, mode: str, archive: str) -> None:
        super().__init__(simulated.folder(), EngineConfig(), archive, mode)
        self.knobs = knobs
        self.carried = KernelCaches(self.session.report, print)

    def create_cache(self) -> None:
        """The first thing that an engine does in a session."""
        super().create_cache()
        if self.restoring:
            self.carried.provide(self.session)
        else:
            self.carried.watch()
            self.session.attach(kernel_file.NAME, self.carried.text)

    def warm_up(self) -> None:
        """Not on LOAD."""
        super().warm_up()
        if not self.restoring:
            compile_kernel(self.knobs, "splits")


def main(mode: str, archive: str, cache: str, results: str) -> None:
    """Starts the engine, and takes a step."""
    knobs = install(Path(cache))
    engine = Engine(knobs, mode, archive)
    engine.start()
    report = engine.session.report
    at_start = list(compiled)
    kernel = compile_kernel(knobs, "splits")
    found = {
        "outcome": report.outcome,
        "restored": len(report.restored),
        "compiled_at_start": at_start,
        "compiled": compiled,
        "kernel": hashlib.sha256(kernel).hexdigest(),
        "outputs": every_size(engine),
        "kernel_caches": report.kernel_caches,
        "warnings": report.warnings,
    }
    Path(results).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
