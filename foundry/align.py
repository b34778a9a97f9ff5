"""Aligning two sequences of keys: which items of one are which of the other.

A longest common subsequence where that is affordable, robust to a few insertions among many thousands, and the same for
the same input always. Close to linear time: common ends, then keys that occur once in both (patience), then Myers'
algorithm for what lies between, and a greedy match where even that would take too long.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Sequence

Keys = Sequence[Hashable]
Pairs = list[tuple[int, int]]

# Myers' algorithm takes (length + edits) * edits steps.
_MOST_EDITS = 400
# The greedy match skips at most so many items of the second sequence for one of the first.
_WINDOW = 64
# Of blocks between unique keys within blocks between unique keys.
_DEEPEST = 50


def align(first: Keys, second: Keys) -> Pairs:
    """Pairs of positions with equal keys, both increasing."""
    pairs: Pairs = []
    _align(first, 0, len(first), second, 0, len(second), pairs, 0)
    return pairs


def gaps(pairs: Pairs, first: int, second: int) -> list[tuple[range, range]]:
    """What lies between matches of sequences of these lengths, where at least one side has something."""
    found = []
    i = j = 0
    for x, y in [*pairs, (first, second)]:
        if x > i or y > j:
            found.append((range(i, x), range(j, y)))
        i, j = x + 1, y + 1
    return found


def _align(a: Keys, a0: int, a1: int, b: Keys, b0: int, b1: int, out: Pairs, depth: int) -> None:
    while a0 < a1 and b0 < b1 and a[a0] == b[b0]:
        out.append((a0, b0))
        a0, b0 = a0 + 1, b0 + 1
    tail: Pairs = []
    while a0 < a1 and b0 < b1 and a[a1 - 1] == b[b1 - 1]:
        a1, b1 = a1 - 1, b1 - 1
        tail.append((a1, b1))
    if a0 < a1 and b0 < b1:
        anchors = _unique(a, a0, a1, b, b0, b1) if depth < _DEEPEST else []
        if anchors:
            for x, y in anchors:
                _align(a, a0, x, b, b0, y, out, depth + 1)
                out.append((x, y))
                a0, b0 = x + 1, y + 1
            _align(a, a0, a1, b, b0, b1, out, depth + 1)
        else:
            out += _shortest_edit(a, a0, a1, b, b0, b1) or _greedy(a, a0, a1, b, b0, b1)
    out += reversed(tail)


def _unique(a: Keys, a0: int, a1: int, b: Keys, b0: int, b1: int) -> Pairs:
    """The longest increasing run of keys that occur once on either side."""
    where_a, where_b = _single(a, a0, a1), _single(b, b0, b1)
    # In the order of `a`: keys keep the order in which they were met.
    both = [(x, where_b[key]) for key, x in where_a.items() if x >= 0 and where_b.get(key, -1) >= 0]
    ends: list[int] = []  # smallest end of an increasing run of each length
    last: list[int] = []  # its index in `both`
    before: list[int] = []
    for i, (_, y) in enumerate(both):
        at = bisect_left(ends, y)
        before.append(last[at - 1] if at else -1)
        ends[at : at + 1] = [y]
        last[at : at + 1] = [i]
    run: Pairs = []
    at = last[-1] if last else -1
    while at >= 0:
        run.append(both[at])
        at = before[at]
    return run[::-1]


def _single(keys: Keys, begin: int, end: int) -> dict[Hashable, int]:
    """Where each key is; -1 for one that occurs again."""
    where: dict[Hashable, int] = {}
    for i in range(begin, end):
        where[keys[i]] = -1 if keys[i] in where else i
    return where


def _shortest_edit(a: Keys, a0: int, a1: int, b: Keys, b0: int, b1: int) -> Pairs | None:
    """Myers' greedy algorithm; None if more than _MOST_EDITS items would have to go or come."""
    n, m = a1 - a0, b1 - b0
    furthest = {1: 0}  # diagonal (x - y) -> largest x
    history: list[dict[int, int]] = []
    for edits in range(min(n + m, _MOST_EDITS) + 1):
        history.append(dict(furthest))
        for k in range(-edits, edits + 1, 2):
            down = k == -edits or (k != edits and furthest[k - 1] < furthest[k + 1])
            x = furthest[k + 1] if down else furthest[k - 1] + 1
            y = x - k
            while x < n and y < m and a[a0 + x] == b[b0 + y]:
                x, y = x + 1, y + 1
            furthest[k] = x
            if x >= n and y >= m:
                return _walk_back(history, n, m, a0, b0)
    return None


def _walk_back(history: list[dict[int, int]], x: int, y: int, a0: int, b0: int) -> Pairs:
    pairs: Pairs = []
    for edits in range(len(history) - 1, -1, -1):
        furthest, k = history[edits], x - y
        down = k == -edits or (k != edits and furthest[k - 1] < furthest[k + 1])
        from_k = k + 1 if down else k - 1
        from_x = furthest[from_k]
        from_y = from_x - from_k
        while x > from_x and y > from_y and x > 0 and y > 0:
            x, y = x - 1, y - 1
            pairs.append((a0 + x, b0 + y))
        x, y = from_x, from_y
    return pairs[::-1]


def _greedy(a: Keys, a0: int, a1: int, b: Keys, b0: int, b1: int) -> Pairs:
    """Each item of `a` takes the next equal one of `b` that is not far away."""
    places: dict[Hashable, list[int]] = {}
    for j in range(b0, b1):
        places.setdefault(b[j], []).append(j)
    pairs: Pairs = []
    j = b0
    for i in range(a0, a1):
        at = places.get(a[i], [])
        next_ = bisect_left(at, j)
        if next_ < len(at) and at[next_] - j <= _WINDOW:
            pairs.append((i, at[next_]))
            j = at[next_] + 1
    return pairs
