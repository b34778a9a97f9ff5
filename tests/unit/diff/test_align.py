"""Alignment against the textbook's quadratic answer."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from foundry import align as subject
from foundry.align import align, gaps

KEYS = st.lists(st.integers(0, 3), max_size=24)


def longest(a: Sequence[int], b: Sequence[int]) -> int:
    row = [0] * (len(b) + 1)
    for x in a:
        new = [0]
        for j, y in enumerate(b):
            new.append(row[j] + 1 if x == y else max(row[j + 1], new[j]))
        row = new
    return row[-1]


def check(a: Sequence[int], b: Sequence[int], pairs: list[tuple[int, int]]) -> None:
    assert all(a[x] == b[y] for x, y in pairs)
    assert all(p[0] < q[0] and p[1] < q[1] for p, q in zip(pairs, pairs[1:], strict=False))


@given(KEYS, KEYS)
def test_pairs_are_equal_keys_in_order(a: list[int], b: list[int]) -> None:
    check(a, b, align(a, b))
    assert align(a, b) == align(list(a), list(b))


@given(KEYS, KEYS)
def test_edits_between_are_the_fewest(a: list[int], b: list[int]) -> None:
    pairs = subject._shortest_edit(a, 0, len(a), b, 0, len(b))
    assert pairs is not None
    check(a, b, pairs)
    assert len(pairs) == longest(a, b)


@given(KEYS, KEYS)
def test_greedy_match_is_a_match(a: list[int], b: list[int]) -> None:
    check(a, b, subject._greedy(a, 0, len(a), b, 0, len(b)))


@given(st.lists(st.integers(0, 5), max_size=40), st.data())
def test_one_insertion_leaves_one_gap(a: list[int], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(a)))
    b = [*a[:at], 99, *a[at:]]
    assert gaps(align(a, b), len(a), len(b)) == [(range(at, at), range(at, at + 1))]
    assert gaps(align(b, a), len(b), len(a)) == [(range(at, at + 1), range(at, at))]


@given(KEYS, KEYS)
def test_gaps_and_pairs_cover_everything_once(a: list[int], b: list[int]) -> None:
    pairs = align(a, b)
    between = gaps(pairs, len(a), len(b))
    assert sorted([x for x, _ in pairs] + [i for left, _ in between for i in left]) == list(range(len(a)))
    assert sorted([y for _, y in pairs] + [j for _, right in between for j in right]) == list(range(len(b)))


def test_many_thousands_with_a_few_edits_are_matched_but_for_the_edits() -> None:
    numbers = random.Random(7)
    a = [numbers.choice([2, 20, 64, 128]) for _ in range(40_000)]
    b = list(a)
    del b[30_000]
    b.insert(20_000, 77)
    b.insert(10, 78)
    begin = time.perf_counter()
    pairs = align(a, b)
    assert len(pairs) == len(a) - 1
    assert time.perf_counter() - begin < 30  # a quadratic algorithm takes minutes


def test_what_has_nothing_in_common_ends_soon_too() -> None:
    numbers = random.Random(8)
    a, b = ([numbers.choice([2, 20, 64, 128]) for _ in range(20_000)] for _ in range(2))
    begin = time.perf_counter()
    pairs = align(a, b)
    check(a, b, pairs)
    assert time.perf_counter() - begin < 30


def test_nested_unique_keys_do_not_exhaust_the_stack() -> None:
    # Between the only two unique keys lie two more that are unique there, and so on.
    a: list[int] = []
    b: list[int] = []
    for i in range(3000):
        a = [i, -1, *a, -2, i + 3000] if i % 500 == 0 else [i, *a]
        b = [i, -2, *b, -1, i + 3000] if i % 500 == 0 else [i, *b]
    check(a, b, align(a, b))
