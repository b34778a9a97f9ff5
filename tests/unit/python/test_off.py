"""What costs nothing must cost nothing: importing foundry, and mode "off"."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def python(code: str) -> str:
    path = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
    done = subprocess.run(
        [sys.executable, "-c", path + textwrap.dedent(code)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_loads_nothing_else() -> None:
    out = python(
        """
        before = set(sys.modules)
        import foundry
        print(sorted(set(sys.modules) - before - {"foundry", "typing", "__future__"}), "session" in dir(foundry))
        """
    )
    loaded, has = out.rsplit(" ", 1)
    assert has == "True\n"
    assert not [name for name in ("torch", "foundry.", "numpy", "rich", "typer") if name in loaded], loaded


def test_off_uses_neither_core_nor_torch() -> None:
    out = python(
        """
        import foundry
        class Runtime:
            def capture(self, function, warmup, slot):
                assert slot is None
                for _ in range(warmup + 1):
                    self.outputs = function()
                return self
            def instantiate(self): pass
            def replay(self): print("replay")
        calls = []
        with foundry.session("a", mode="off", runtime=Runtime()) as s:
            with s.phase("weights"):
                w = s.register("w", object())
                m = s.register_module("m", object())
            g = s.graph("g", lambda: calls.append(1) or len(calls), warmup=2)
        g.replay()
        print(g.outputs, g.source, s.report.outcome, s.wait() is s.report)
        print([name for name in sys.modules if name in ("torch", "foundry._core", "foundry.torch")])
        """
    )
    assert out == "replay\n3 native off True\n[]\n"


@pytest.mark.parametrize("name", ["foundry.api", "foundry.modes", "foundry.fingerprint", "foundry.outputs"])
def test_modules_import_without_the_core(name: str) -> None:
    assert python(f"import {name}; print([n for n in sys.modules if n in ('foundry._core', 'torch')])") == "[]\n"


def test_unknown_attribute() -> None:
    assert python("import foundry\nprint(hasattr(foundry, 'nonsense'))") == "False\n"
