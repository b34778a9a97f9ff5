"""Text files of the program's own in an archive: attached on SAVE, read again on LOAD."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from foundry.errors import corrupt, invalid

# What the reader of texts takes.
MAX_BYTES = 16 << 20
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}\Z")


class Attachments:
    """The texts of a session by name, each made when the archive is written."""

    def __init__(self) -> None:
        self._by_name: dict[str, Callable[[], str | None]] = {}

    def add(self, name: str, text: Callable[[], str | None]) -> None:
        """Declares. Raises FoundryError for a name that is not plain, or was used."""
        if not _NAME.match(name) or name.endswith(".fdry"):
            raise invalid(
                f"a file cannot be attached as {name!r}: a name has letters, digits, '_', '-' and '.', and no end .fdry"
            )
        if name in self._by_name:
            raise invalid(f"two files are attached as {name!r}: every one needs a name of its own")
        self._by_name[name] = text

    def texts(self, rank: int) -> Iterator[tuple[str, str]]:
        """Path in the archive and text, of those that have one. Raises FoundryError for a text that is too long."""
        for name, text in self._by_name.items():
            made = text()
            if made is None:
                continue
            if len(made.encode()) > MAX_BYTES:
                raise invalid(f"the file attached as {name!r} is longer than {MAX_BYTES >> 20} MiB")
            yield path(name, rank), made


def path(name: str, rank: int) -> str:
    """Where the file is in an archive."""
    return f"rank_{rank}/attached.{name}"


def read(archive: str, inventory: Iterable[tuple[str, int, str]], name: str, rank: int) -> str | None:
    """The text; None if the archive has no such file. Its length is checked, its hash is not.

    Raises FoundryError: corrupt or io.
    """
    from foundry import _core

    inside = path(name, rank)
    listed = next((nbytes for known, nbytes, _ in inventory if known == inside), None)
    if listed is None:
        return None
    try:
        text = _core.read_text(archive, inside)
    except UnicodeDecodeError as problem:
        raise corrupt(f"{archive}/{inside} is not UTF-8 text ({problem}); save the archive anew") from None
    found = len(text.encode())
    if found != listed:
        raise corrupt(f"{archive}/{inside} has {found} bytes, foundry.json lists {listed}; save the archive anew")
    return text
