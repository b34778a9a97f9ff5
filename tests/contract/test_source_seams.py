"""Reading seams from source: what is found through imports, base classes and conditions, and what is not."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from source_seams import Source  # noqa: E402

from foundry.engines.common.seams import Seam  # noqa: E402

FILES = {
    "engine/__init__.py": "from .config import Config as Config\nfrom engine.far.deep import moved\n",
    "engine/config.py": """
import dataclasses

@dataclasses.dataclass
class Config:
    size: int
    limit: int = 3

    @property
    def twice(self):
        return self.size * 2

    def key(self, salt, *, long=False): ...
""",
    "engine/base.py": """
from typing import Generic, TypeVar
import torch.nn as nn

class Base(nn.Module):
    shared = None

    def __init__(self, config, device):
        self.device = device
        self.table: dict = {}
        other.elsewhere = 1

    def start(self): ...
""",
    "engine/runner.py": """
from __future__ import annotations
from functools import wraps
from .base import Base
from . import base
from engine import Config

class Runner(Base):
    @wraps(print)
    async def step(self, batch, *, stream=None): ...

    @classmethod
    def make(cls, name): ...

class Indexed(base.Base): ...

class Parameterized(Base[int]):
    def __init__(self, only): ...

try:
    from engine.fast import launch
except ImportError:
    def launch(graph): ...

if True:
    def chosen(a, b): ...
else:
    chosen = None

LIMIT: int = 4
""",
    "engine/far/__init__.py": "",
    "engine/far/deep.py": "from ..config import Config as moved\nfrom .nowhere import lost\n",
}


@pytest.fixture(params=["folder", "wheel"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Source:
    if request.param == "wheel":
        path = tmp_path / "engine-1.0-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as wheel:
            for name, text in FILES.items():
                wheel.writestr(name, text)
        return Source.of(path)
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return Source.of(tmp_path)


@pytest.mark.parametrize(
    "seam",
    [
        Seam("engine.config", "Config", "", None),
        Seam("engine", "Config.key", "through a relative import", ("salt", "long")),
        Seam("engine", "moved.key", "through two imports", ("salt",)),
        Seam("engine.runner", "Config.key", "through the package", ("salt",)),
        Seam("engine.runner", "Runner", "the constructor of a base class", ("config", "device")),
        Seam("engine.runner", "Runner.start", "of a base class", ()),
        Seam("engine.runner", "Runner.shared", "", None),
        Seam("engine.runner", "Runner.step", "decorated", ("batch", "stream")),
        Seam("engine.runner", "Runner.make", "cls is left out", ("name",)),
        Seam("engine.runner", "Parameterized", "its own constructor", ("only",)),
        Seam("engine.runner", "Parameterized.start", "of a base class with parameters", ()),
        Seam("engine.runner", "launch", "the last of two", ("graph",)),
        Seam("engine.runner", "chosen", "in a condition", None),
        Seam("engine.runner", "LIMIT", "a constant", None),
        Seam("engine.config", "Config", "fields", None, "", ("size", "limit", "twice", "key")),
        Seam(
            "engine.runner", "Runner", "what constructors set", None, "", ("device", "table", "shared", "start", "step")
        ),
    ],
    ids=str,
)
def test_is_there(source: Source, seam: Seam) -> None:
    assert source.problem(seam) == ""


@pytest.mark.parametrize(
    ("seam", "sentence"),
    [
        (Seam("engine.gone", "x", ""), "there is no module engine.gone"),
        (Seam("engine.runner", "Walker", ""), "engine.runner has no Walker"),
        (Seam("engine.runner", "Runner.halt", ""), "engine.runner has no Runner.halt"),
        (Seam("engine.runner", "LIMIT.real", ""), "engine.runner has no LIMIT.real"),
        (Seam("engine.far.deep", "lost", ""), "engine.far.deep has no lost"),
        (Seam("engine.runner", "LIMIT", "", ()), "engine.runner:LIMIT is no function any more"),
        (
            Seam("engine.config", "Config.key", "", ("pepper",)),
            "engine.config:Config.key takes (salt, long), the plugin knows (pepper, ...)",
        ),
        (
            Seam("engine.config", "Config.key", "", ("salt", "long", "more")),
            "engine.config:Config.key takes (salt, long), the plugin knows (salt, long, more, ...)",
        ),
        (
            Seam("engine.config", "Config", "", None, "", ("size", "width", "depth")),
            "engine.config:Config has no width, depth",
        ),
        (Seam("engine.base", "Base", "", None, "", ("elsewhere",)), "engine.base:Base has no elsewhere"),
        (Seam("engine.config", "Config.key", "", None, "", ("size",)), "engine.config:Config.key is no class any more"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_is_not_as_needed(source: Source, seam: Seam, sentence: str) -> None:
    assert source.problem(seam) == sentence


def test_a_module_that_was_not_fetched_is_not_taken_for_one_that_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "engine-1.0.zip"
    with zipfile.ZipFile(path, "w") as kept:
        kept.writestr("engine-1.0.dist-info/RECORD", "engine/a.py,sha256=x,1\nengine/b.py,sha256=y,1\n")
        kept.writestr("engine/a.py", "def f(x): ...\n")
    source = Source.of(path)
    assert source.problem(Seam("engine.a", "f", "", ("x",))) == ""
    assert source.problem(Seam("engine.c", "f", "")) == "there is no module engine.c"
    with pytest.raises(LookupError, match=r"engine/b\.py is in the wheel, but not in engine-1\.0\.zip"):
        source.problem(Seam("engine.b", "f", ""))
