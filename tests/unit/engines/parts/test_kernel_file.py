"""The archive's file of compiled kernels: what it holds, and hand-made ones."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundry import _core
from foundry.engines.common import kernel_file
from foundry.engines.common.kernel_file import Folder, StoredCache, dumps, fitting, loads, pack

SAMPLE = {"triton": StoredCache("3.6.0", (Folder("A", (pack("k.cubin", b"code" * 100), pack("k.json", b"{}"))),))}


def document(caches: Any = None) -> Any:
    return json.loads(dumps(SAMPLE).partition("\n")[2]) if caches is None else {"format": 1, "caches": caches}


def text(value: Any) -> str:
    """Hand-made, with the right hash."""
    body = value if isinstance(value, str) else json.dumps(value)
    return f"{hashlib.sha256(body.encode()).hexdigest()}\n{body}\n"


def test_what_is_stored_comes_back() -> None:
    found = loads(dumps(SAMPLE), "here")
    assert found == SAMPLE
    assert found["triton"].folders[0].contents() == {"k.cubin": b"code" * 100, "k.json": b"{}"}
    assert found["triton"].nbytes == 402


@given(st.binary(max_size=5000))
def test_any_content_comes_back(content: bytes) -> None:
    cache = {"c": StoredCache("1", (Folder("F", (pack("f", content),)),))}
    assert loads(dumps(cache), "here")["c"].folders[0].contents() == {"f": content}


def folder(value: Any) -> Any:
    return value["caches"]["triton"]["folders"][0]


BAD: list[tuple[Callable[[Any], Any], str]] = [
    (lambda d: d.update(format="1"), "'format'"),
    (lambda d: d.pop("caches"), "'caches'"),
    (lambda d: d["caches"].update({f"c{i}": d["caches"]["triton"] for i in range(20)}), "more than 16"),
    (lambda d: d["caches"]["triton"].update(version=1), "'version'"),
    (lambda d: d["caches"]["triton"].update(folders=[folder(d)] * 2), "twice"),
    (lambda d: d["caches"]["triton"].update(folders=[folder(d)] * 5000), "more than 4096"),
    (lambda d: folder(d).update(files=folder(d)["files"] * 2), "twice"),
    (lambda d: folder(d).update(files=folder(d)["files"] * 40), "more than 64"),
    (lambda d: folder(d).update(files=None), "'files'"),
    (lambda d: folder(d)["files"][0].update(bytes=-1), "too much"),
    (lambda d: folder(d)["files"][0].update(bytes=1 << 40), "too much"),
    (lambda d: folder(d)["files"][0].update(bytes=True), "'bytes'"),
    (lambda d: folder(d)["files"][0].update(content=7), "'content'"),
    *(
        (lambda d, name=name: folder(d).update(name=name), "no name")
        for name in ("", ".", "..", ".hidden", "a/b", "/etc", "a\0b", "a\nb", "a\n", "-rf", "ä", "x" * 251)
    ),
    (lambda d: folder(d)["files"][0].update(name="../../k.cubin"), "no name"),
]


@pytest.mark.parametrize(("damage", "names"), BAD)
def test_what_is_not_in_the_format_is_refused(damage: Callable[[Any], Any], names: str) -> None:
    value = document()
    damage(value)
    with pytest.raises(_core.FoundryError, match=names) as problem:
        loads(text(value), "here")
    assert problem.value.kind == "corrupt"


@pytest.mark.parametrize("body", ["", "[]", "7", "nonsense", "[" * 100_000, '{"format": 1, "caches": []}'])
def test_other_texts_are_refused(body: str) -> None:
    with pytest.raises(_core.FoundryError) as problem:
        loads(text(body), "here")
    assert problem.value.kind == "corrupt"


def test_another_format_is_a_mismatch() -> None:
    with pytest.raises(_core.FoundryError, match="format 2") as problem:
        loads(text({**document(), "format": 2}), "here")
    assert problem.value.kind == "mismatch"


@pytest.mark.parametrize("at", [0, 40, 64, 65, 100, -2, -3])
def test_a_flipped_character_is_found(at: int) -> None:
    good = dumps(SAMPLE)
    with pytest.raises(_core.FoundryError, match="hash is wrong"):
        loads(good[:at] + ("x" if good[at] != "x" else "y") + good[len(good) + at + 1 if at < 0 else at + 1 :], "here")


def test_all_files_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_file, "MAX_BYTES", 401)
    with pytest.raises(_core.FoundryError, match="too much"):
        loads(dumps(SAMPLE), "here")


@pytest.mark.parametrize(
    ("nbytes", "packed"),
    [
        (4, base64.b64encode(zlib.compress(b"x" * 10_000_000)).decode()),
        (4, base64.b64encode(zlib.compress(b"abc")).decode()),
        (3, base64.b64encode(zlib.compress(b"abc")[:-1]).decode()),
        (3, base64.b64encode(b"abc").decode()),
        (3, "%%%%"),
        (0, ""),
    ],
)
def test_content_of_another_size_is_not_unpacked(nbytes: int, packed: str) -> None:
    with pytest.raises(_core.FoundryError, match="k.cubin"):
        kernel_file.StoredFile("k.cubin", nbytes, packed).content()


def test_what_does_not_fit_is_left_out() -> None:
    small, large = (Folder(name, (pack("f", content),)) for name, content in (("S", b"x"), ("L", bytes(range(256)))))
    taken = len(small.files[0].packed) + len("S" + "f") + 2 * 64  # names and punctuation count, too
    assert fitting([small, large, small], 300) == ([small, small], ["L"], 300 - 2 * taken)
    many = Folder("M", tuple(pack(f"f{i}", b"") for i in range(65)))
    assert fitting([many], 1 << 20)[1] == ["M"]
