"""The tree keeps its style: each check of tools/lint, with the pinned tools."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# The checkout itself: a check sees every file, not only those that a target names.
ROOT = Path(os.environ["MODULE"]).resolve().parent
SITE = str(Path(os.environ["LINT_SITE"]).resolve())


@pytest.mark.parametrize("check", ["clang-format", "ruff", "ruff-format", "mypy", "shellcheck", "buildifier", "hosts"])
def test_lint(check: str) -> None:
    env = {**os.environ, "FOUNDRY_LINT_SITE": SITE}
    done = subprocess.run([sys.executable, ROOT / "tools/lint", check], env=env, text=True, stdout=subprocess.PIPE)
    not_run = [line for line in done.stdout.splitlines() if line.startswith("not run:")]
    if not_run:
        pytest.skip(not_run[0])
    assert done.returncode == 0, done.stdout
