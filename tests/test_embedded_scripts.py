"""Scripts that tests and benches give to ``python -c`` stand in strings, where no type checker looks: what they import
of ours has to be there.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_OURS = "koord", "runtimeproxy", "qosd", "koordctl", "koord_manager", "koord_scheduler", "tests", "integration", "bench"
_IMPORT = re.compile(rf"^\s*from ((?:{'|'.join(_OURS)})(?:\.\w+)*) import ([\w, ]+)$", re.MULTILINE)


def imports() -> Iterator[tuple[str, str, str]]:
    """Yields file, module and name of each import in a string that is not a docstring's example."""
    for path in sorted(ROOT.rglob("*.py")):
        name = str(path.relative_to(ROOT))
        if name.partition("/")[0] not in _OURS:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for module, names in _IMPORT.findall(node.value):
                    yield from ((name, module, each.partition(" as ")[0].strip()) for each in names.split(","))


@pytest.mark.parametrize(("file", "module", "name"), sorted(set(imports())))
def test_what_a_script_imports_is_there(file: str, module: str, name: str) -> None:
    found = importlib.import_module(module)
    is_module = hasattr(found, "__path__") and importlib.util.find_spec(f"{module}.{name}") is not None
    assert hasattr(found, name) or is_module, file
