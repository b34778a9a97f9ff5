"""Reads an engine's source (a folder or a wheel) and says whether the plugin's seams are in it; nothing is imported."""

from __future__ import annotations

import ast
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from foundry.engines.common.seams import Seam, compare, lacking


class Source:
    """The modules of one release."""

    def __init__(self, read: Callable[[str], str | None]) -> None:
        self._read = read
        self._trees: dict[str, ast.Module | None] = {}
        self._known_attributes: dict[ast.ClassDef, set[str]] = {}

    @classmethod
    def of(cls, path: Path) -> Source:
        """A wheel, or a folder that a wheel was unpacked into."""
        if path.is_dir():
            return cls(lambda name: _text(path / name))
        archive = zipfile.ZipFile(path)
        names = set(archive.namelist())
        record = next((archive.read(name).decode() for name in names if name.endswith(".dist-info/RECORD")), "")
        listed = {line.split(",", 1)[0] for line in record.splitlines()}

        def read(name: str) -> str | None:
            if name in names:
                return archive.read(name).decode()
            if name in listed:
                raise LookupError(f"{name} is in the wheel, but not in {path.name}: add its folder to pins.py")
            return None

        return cls(read)

    def tree(self, module: str) -> ast.Module | None:
        """The parsed module, None if the release does not have it."""
        if module not in self._trees:
            base = module.replace(".", "/")
            text = self._read(f"{base}.py") or self._read(f"{base}/__init__.py")
            self._trees[module] = ast.parse(text) if text is not None else None
        return self._trees[module]

    def problem(self, seam: Seam) -> str:
        """Why the seam is not as the plugin needs it; "" if it is."""
        tree = self.tree(seam.module)
        if tree is None:
            return f"there is no module {seam.module}"
        found = self._find(seam.module, seam.name.split("."))
        if found is None:
            return f"{seam.module} has no {seam.name}"
        if seam.attributes:
            if not isinstance(found[1], ast.ClassDef):
                return f"{seam} is no class any more"
            problem = lacking(seam, self._attributes(*found))
            if problem:
                return problem
        if seam.parameters is None:
            return ""
        function = self._function(seam.module, found)
        if function is None:
            return f"{seam} is no function any more"
        arguments = function.args
        return compare(seam, [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)])

    def _find(self, module: str, parts: list[str]) -> tuple[str, ast.AST] | None:
        """(module where it stands, definition), names followed through imports and base classes."""
        tree = self.tree(module)
        found = _named(tree.body, parts[0]) if tree is not None else None
        if found is None:
            return None
        where: tuple[str, ast.AST] | None = (module, found)
        if isinstance(found, ast.ImportFrom):
            where = self._imported(module, found, parts[0])
        for part in parts[1:]:
            if where is None or not isinstance(where[1], ast.ClassDef):
                return None
            where = self._member(where[0], where[1], part)
        return where

    def _imported(self, module: str, statement: ast.ImportFrom, name: str) -> tuple[str, ast.AST] | None:
        original = next(alias.name for alias in statement.names if (alias.asname or alias.name) == name)
        target = statement.module or ""
        if statement.level:
            package = module.split(".")
            if self._read(module.replace(".", "/") + ".py") is not None:
                package = package[:-1]
            package = package[: len(package) - statement.level + 1]
            target = ".".join([*package, *([target] if target else [])])
        return self._find(target, [original])

    def _member(self, module: str, owner: ast.ClassDef, name: str) -> tuple[str, ast.AST] | None:
        found = _named(owner.body, name)
        if found is not None:
            return module, found
        for base in owner.bases:
            parts = ast.unparse(base).split("[")[0].split(".")
            inherited = self._find(module, parts)
            if inherited is not None and isinstance(inherited[1], ast.ClassDef):
                found_there = self._member(inherited[0], inherited[1], name)
                if found_there is not None:
                    return found_there
        return None

    def _attributes(self, module: str, owner: ast.ClassDef) -> set[str]:
        """Names in the class and its bases, and what their methods set on their first argument."""
        if owner in self._known_attributes:
            return self._known_attributes[owner]
        names = self._known_attributes[owner] = set()
        for node in ast.walk(owner):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.ctx, ast.Store)
                and ast.unparse(node.value) == "self"
            ):
                names.add(node.attr)
        names.update(_names(owner.body))
        for base in owner.bases:
            inherited = self._find(module, ast.unparse(base).split("[")[0].split("."))
            if inherited is not None and isinstance(inherited[1], ast.ClassDef):
                names |= self._attributes(inherited[0], inherited[1])
        return names

    def _function(self, module: str, found: tuple[str, ast.AST]) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        where, definition = found
        if isinstance(definition, ast.ClassDef):
            member = self._member(where, definition, "__init__")
            definition = member[1] if member else definition
        return definition if isinstance(definition, (ast.FunctionDef, ast.AsyncFunctionDef)) else None


def _named(body: Iterable[ast.stmt], name: str) -> ast.AST | None:
    """The last definition of a name in a body, conditional ones included."""
    found: ast.AST | None = None
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found = statement if statement.name == name else found
        elif isinstance(statement, ast.ImportFrom):
            if any((alias.asname or alias.name) == name for alias in statement.names):
                found = statement
        elif isinstance(statement, ast.Assign):
            if any(isinstance(target, ast.Name) and target.id == name for target in statement.targets):
                found = statement
        elif isinstance(statement, ast.AnnAssign):
            if isinstance(statement.target, ast.Name) and statement.target.id == name:
                found = statement
        elif isinstance(statement, (ast.If, ast.Try)):
            branches = [statement.body, statement.orelse]
            branches += [handler.body for handler in getattr(statement, "handlers", [])]
            for branch in branches:
                found = _named(branch, name) or found
    return found


def _names(body: Iterable[ast.stmt]) -> Iterator[str]:
    """Names that a class body defines."""
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield statement.name
        elif isinstance(statement, ast.Assign):
            yield from (target.id for target in statement.targets if isinstance(target, ast.Name))
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            yield statement.target.id
        elif isinstance(statement, ast.If):
            yield from _names([*statement.body, *statement.orelse])


def _text(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None
