"""Finds the sentences that ``kubectl explain`` shows: the docstrings of a struct and of its fields.

A field's docstring is the string below it, which Python throws away; so the source is read again. Without a docstring
the sentence is "".
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
from collections.abc import Mapping
from itertools import pairwise
from types import MappingProxyType

import msgspec


def of_class(cls: type[msgspec.Struct]) -> str:
    return _plain(ast.get_docstring(_class(cls)) or "")


def of_field(cls: type[msgspec.Struct], name: str) -> str:
    """Returns the sentence of a field that ``cls`` itself declares; ``name``: as Python spells it."""
    return _fields(cls).get(name, "")


@functools.cache
def _fields(cls: type) -> Mapping[str, str]:
    return MappingProxyType(
        {
            statement.target.id: _plain(below.value.value)
            for statement, below in pairwise(_class(cls).body)
            if isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
            and isinstance(below.value.value, str)
        }
    )


@functools.cache
def _class(cls: type) -> ast.ClassDef:
    (definition,) = ast.parse(inspect.getsource(cls)).body
    assert isinstance(definition, ast.ClassDef)
    return definition


def _plain(docstring: str) -> str:
    """Returns the docstring on one line, with Markdown's single quotes around code."""
    return re.sub(r"\s+", " ", docstring).strip().replace("``", "`")
