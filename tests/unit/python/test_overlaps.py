"""Graphs whose outputs share memory are reported."""

from __future__ import annotations

import gc

import fake_core
import pytest
from fake_framework import Framework
from hypothesis import given
from hypothesis import strategies as st
from session_world import World

from foundry import overlaps


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        ([("a", 0, 64), ("b", 64, 64)], []),
        ([("a", 0, 65), ("b", 64, 64)], [["a", "b"]]),
        ([("b", 64, 64), ("a", 0, 65), ("c", 500, 1)], [["b", "a"]]),
        ([("a", 0, 64), ("a", 32, 64)], []),
        ([("a", 0, 1000), ("b", 10, 10), ("c", 900, 10)], [["a", "b", "c"]]),
        ([("a", 0, 0), ("b", 0, 64)], []),
        ([("a", 0, 10), ("b", 5, 10), ("c", 100, 10), ("d", 105, 10), ("c", 12, 2)], [["a", "b", "c", "d"]]),
    ],
)
def test_groups(outputs: list[tuple[str, int, int]], expected: list[list[str]]) -> None:
    assert overlaps.groups(outputs) == expected


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 60), st.integers(0, 20)), max_size=20))
def test_groups_are_what_pairs_say(outputs: list[tuple[str, int, int]]) -> None:
    graphs = {name: {name} for name, _, _ in outputs}
    for name, address, nbytes in outputs:
        for other, start, length in outputs:
            if nbytes and length and address < start + length and start < address + nbytes:
                union = graphs[name] | graphs[other]
                for member in union:
                    graphs[member] = union
    assert {frozenset(group) for group in overlaps.groups(outputs)} == {
        frozenset(group) for group in graphs.values() if len(group) > 1
    }


def test_outputs_that_the_program_lets_go(world: World) -> None:
    fake_core.new_process(hook=True)
    framework = Framework()
    with world.session(framework, "save") as s:
        with s.phase("inputs"):
            x = s.register("x", framework.tensor(bytes(32)), mutable=True)
        for name in ("a", "b"):
            made = framework.capture_into(s.graph_pool(), lambda: framework.add(x, x))
            outputs, made.outputs = made.outputs, None
            s.adopt(name, made, outputs)
            made.instantiate()
            del outputs
            gc.collect()
        held = [s.graph(name, lambda: framework.add(x, x)) for name in ("c", "d")]
        s.graph("e", lambda: framework.copy_(x, held[0].outputs))
        s.graph("f", lambda: framework.copy_(x, held[0].outputs))
    # x is what e and f return, and it is registered.
    # c took the place that a and b had left.
    assert s.report.sharing == [["a", "b", "c"]]
    assert "outputs in the same memory, each replay overwrites the others': a, b" in str(s.report)
