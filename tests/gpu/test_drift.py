"""LOAD allocates differently from SAVE: repaired where that is possible, refused by name where it is not."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Done, Runner

SMALL = ["-m", "foundry.recipes.torch_decode", "--layers", "4", "--max-batch", "64", "--compare"]
GRAPHS = 11


@pytest.fixture(scope="module")
def plain(shared_runner: Runner) -> Runner:
    """An archive without drift on SAVE."""
    done = shared_runner.save(SMALL)
    assert done.code == 0, done.output
    return shared_runner


def restored(done: Done) -> None:
    assert done.code == 0, done.output
    assert done.results["outcome"] == "restored" and done.results["different"] == []
    assert done.results["report"]["restored"] == GRAPHS


@pytest.mark.parametrize("drift", ["extra", "generator", "empty_cache"])
def test_drift_on_load(plain: Runner, drift: str) -> None:
    done = plain.load(SMALL, "--drift", drift)
    restored(done)
    assert done.results["report"]["reseated"] == []


@pytest.mark.parametrize("drift", ["extra", "generator", "empty_cache"])
def test_drift_on_save(runner: Runner, drift: str) -> None:
    saved = runner.save(SMALL, "--drift", drift)
    assert saved.code == 0, saved.output
    assert saved.results["report"]["left_out"] == {}
    restored(runner.load(SMALL))


def test_reordered_weights_are_re_seated(plain: Runner) -> None:
    done = plain.load(SMALL, "--drift", "reorder")
    restored(done)
    reseated = done.results["report"]["reseated"]
    assert "model.layers.0.qkv" in reseated and "model.layers.3.qkv" in reseated
    assert all(name.startswith("model.") for name in reseated)


def test_reordered_and_extra_together(plain: Runner) -> None:
    restored(plain.load(SMALL, "--drift", "reorder", "--drift", "extra", "--drift", "empty_cache"))


def test_mutable_buffer_elsewhere_falls_back(plain: Runner) -> None:
    done = plain.load(SMALL, "--drift", "mutable")
    assert done.code == 1 and done.results["outcome"] == "native"
    assert "'ids' is mutable" in done.output and "'positions' is mutable" in done.output
    assert done.results["different"] == []  # captured natively, and right
    assert len(done.results["not_restored"]) == GRAPHS


def test_mutable_buffer_elsewhere_fails_on_demand(plain: Runner) -> None:
    done = plain.load(SMALL, "--drift", "mutable", "--on-mismatch", "fail")
    assert done.code == 1 and "'ids' is mutable" in done.output and done.results == {}


def test_random_numbers_are_those_of_native_replays(runner: Runner) -> None:
    """Dropout in every layer: torch.manual_seed means the same before restored and native replays."""
    saved = runner.save(SMALL, "--dropout", "0.1")
    assert saved.code == 0, saved.output
    assert saved.results["not_repeatable"] == []
    restored(runner.load(SMALL, "--dropout", "0.1"))


def test_other_model_is_refused(plain: Runner) -> None:
    done = plain.load(SMALL, "--cache-length", "128")
    assert done.code == 1 and done.results["outcome"] == "native"
    assert "cache_length" in done.output and "256" in done.output and "128" in done.output


def test_expandable_segments_are_refused(plain: Runner) -> None:
    env = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "PYTORCH_ALLOC_CONF": "expandable_segments:True"}
    done = plain.load(SMALL, env=env)
    assert done.results["outcome"] == "native" and "expandable segments" in done.output


def test_save_without_the_hook_names_the_launcher(runner: Runner) -> None:
    done = subprocess.run(
        [sys.executable, *SMALL, "--save", "--archive", str(runner.archive)],
        env={**os.environ, "LD_PRELOAD": ""},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1 and "foundry run --save -- python" in done.stderr
    assert not runner.archive.exists()
