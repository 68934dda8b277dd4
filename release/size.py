"""Prints how large the product is and how finely it is cut: ``python -m release.size [DIRECTORY]``.

One row a package. The last four columns count what a reader pays for without a return: files that hold less than an
idea, functions that name one statement for one caller, Protocols that hide nothing, and class names with two meanings.

Invariant: the source is parsed, never imported, so that any commit's tree can be measured. Names are matched as text:
a use through ``getattr`` or a string is not seen, and a public function counts only where its name is defined once.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOTS = ("koord", "koord_manager", "koord_scheduler", "koord_descheduler", "koordctl", "qosd", "runtimeproxy")
SMALL = 25
HEAD = ("package", "files", f"<{SMALL}", "lines", "code", "docs", "blank", "once", "lone", "homonyms")
_PLAIN = {"property", "staticmethod", "classmethod", "cached_property", "override"}
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class Module:
    """One file: its tree, and the package that its row is counted under (`koord.model`, `qosd`)."""

    def __init__(self, path: Path, root: Path) -> None:
        parts = path.relative_to(root).parts
        self.package = ".".join(parts[:2]) if parts[0] == "koord" and len(parts) > 2 else parts[0]
        self.lines = path.read_text(encoding="utf-8").splitlines()
        self.tree = ast.parse("\n".join(self.lines))
        self.nodes = list(ast.walk(self.tree))
        self.functions = [each for each in self.nodes if isinstance(each, _Function)]
        self.classes = [each for each in self.nodes if isinstance(each, ast.ClassDef)]
        self.uses = Counter(filter(None, map(_used, self.nodes)))
        self.defined = Counter(each.name for each in self.functions)

    def docstring_lines(self) -> set[int]:
        bodies = [each.body for each in (self.tree, *self.functions, *self.classes)]
        found = [body[0] for body in bodies if body and _is_docstring(body[0])]
        return {line for each in found for line in range(each.lineno, (each.end_lineno or 0) + 1)}

    def blank(self) -> int:
        docstrings = self.docstring_lines()
        return sum(not line.strip() and number not in docstrings for number, line in enumerate(self.lines, 1))


def modules(root: Path) -> list[Module]:
    files = [file for each in ROOTS for file in sorted((root / each).rglob("*.py"))]
    return [Module(file, root) for file in files if "pb" not in file.relative_to(root).parts]


def used_once(modules: list[Module]) -> Iterator[tuple[Module, str]]:
    """Yields the functions of one statement that one place uses: in their module if private, else in the product."""
    uses: Counter[str] = sum((each.uses for each in modules), Counter())
    defined: Counter[str] = sum((each.defined for each in modules), Counter())
    for module in modules:
        for function in module.functions:
            name = function.name
            private = name.startswith("_")
            used, named = (module.uses, module.defined) if private else (uses, defined)
            body = [each for each in function.body if not _is_docstring(each)]
            plain = all(_used(each) in _PLAIN for each in function.decorator_list)
            if plain and len(body) == 1 and used[name] == 1 and named[name] == 1:
                yield module, name


def lone_protocols(modules: list[Module]) -> Iterator[tuple[Module, str]]:
    """Yields the Protocols that at most one class of the product names as a base or has all members of."""
    classes = [(module, each) for module in modules for each in module.classes]
    protocols = {id(each) for _, each in classes if "Protocol" in _bases(each)}
    others = [each for _, each in classes if id(each) not in protocols]
    bases: dict[str, set[str]] = defaultdict(set)
    members: dict[str, set[str]] = defaultdict(set)
    for each in others:
        bases[each.name] |= _bases(each) - {each.name}
        members[each.name] |= _members(each)

    def all_members(node: ast.ClassDef) -> set[str]:
        found, seen, names = _members(node), set[str](), _bases(node)
        while names := names - seen:
            found = found.union(*(members[name] for name in names))
            seen |= names
            names = set[str]().union(*(bases[name] for name in names))
        return found

    had = [(_bases(each), all_members(each)) for each in others]
    for module, each in classes:
        wanted = _members(each)
        if id(each) not in protocols or not wanted or "__call__" in wanted:
            continue
        if sum(each.name in named or wanted <= has for named, has in had) <= 1:
            yield module, each.name


def homonyms(modules: list[Module]) -> dict[str, list[Module]]:
    """Returns the public class names that more than one module defines, with those modules."""
    found: dict[str, list[Module]] = defaultdict(list)
    for module in modules:
        for name in {each.name for each in module.tree.body if isinstance(each, ast.ClassDef)}:
            found[name].append(module)
    return {name: found[name] for name in sorted(found) if len(found[name]) > 1 and not name.startswith("_")}


def rows(modules: list[Module]) -> Iterator[tuple[str | int, ...]]:
    once = Counter(module.package for module, _ in used_once(modules))
    lone = Counter(module.package for module, _ in lone_protocols(modules))
    same = Counter(package for found in homonyms(modules).values() for package in {each.package for each in found})
    packages = list(dict.fromkeys(each.package for each in modules))
    for name, inside in [*((each, [each]) for each in packages), ("all", packages)]:
        files = [each for each in modules if each.package in inside]
        lines = sum(len(each.lines) for each in files)
        docs, blank = sum(len(each.docstring_lines()) for each in files), sum(each.blank() for each in files)
        small = sum(len(each.lines) < SMALL for each in files)
        names = len(homonyms(modules)) if name == "all" else same[name]
        counts = (sum(once[each] for each in inside), sum(lone[each] for each in inside), names)
        yield name, len(files), small, lines, lines - docs - blank, docs, blank, *counts


def _used(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else None


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _bases(node: ast.ClassDef) -> set[str]:
    plain = [each.value if isinstance(each, ast.Subscript) else each for each in node.bases]
    return {name for name in map(_used, plain) if name}


def _members(node: ast.ClassDef) -> set[str]:
    stored = [each for each in ast.walk(node) if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store)]
    assigned = [each.targets[0] for each in node.body if isinstance(each, ast.Assign)]
    declared = [each.target for each in node.body if isinstance(each, ast.AnnAssign)]
    functions = [each.name for each in node.body if isinstance(each, _Function)]
    return {name for name in map(_used, [*stored, *assigned, *declared]) if name} | set(functions)


def main() -> int:
    found = modules(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1])
    for first, *rest in [HEAD, *rows(found)]:
        print(f"{first:20}", *(f"{each:>8}" for each in rest))
    print("\nonce: functions of one statement with one use; lone: Protocols with at most one implementer, which are\n")
    print(" ", ", ".join(f"{module.package}.{name}" for module, name in lone_protocols(found)))
    print("\nhomonyms: class names that several modules define\n")
    print(" ", ", ".join(f"{name} {len(each)}" for name, each in homonyms(found).items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
