"""What ``make size`` counts, on a tree of three modules."""

from __future__ import annotations

from pathlib import Path

import pytest

from release.size import homonyms, lone_protocols, modules, rows, used_once

TREE = {
    "koord/model/amounts.py": '''"""Amounts."""


class Amount:
    """An amount.

    In bytes.
    """

    def half(self) -> int:
        return _half(self.bytes)


def _half(bytes: int) -> int:
    return bytes // 2
''',
    "qosd/amounts.py": """from typing import Protocol


class Amount(Protocol):
    def half(self) -> int: ...


class Named(Protocol):
    name: str


class First:
    name = "first"


class Second:
    def __init__(self) -> None:
        self.name = "second"
""",
    "koord/pb/generated.py": "class Amount: ...\n",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in TREE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_row_per_package_without_generated_code(tree: Path) -> None:
    assert list(rows(modules(tree))) == [
        ("koord.model", 1, 1, 15, 5, 5, 5, 1, 0, 1),
        ("qosd", 1, 1, 18, 10, 0, 8, 0, 1, 1),
        ("all", 2, 2, 33, 15, 5, 13, 1, 1, 1),
    ]


def test_a_helper_of_one_statement_with_one_use(tree: Path) -> None:
    assert [name for _, name in used_once(modules(tree))] == ["_half"]


def test_a_protocol_that_one_class_alone_implements(tree: Path) -> None:
    assert [name for _, name in lone_protocols(modules(tree))] == ["Amount"]


def test_a_class_name_in_two_modules(tree: Path) -> None:
    assert {name: len(found) for name, found in homonyms(modules(tree)).items()} == {"Amount": 2}
