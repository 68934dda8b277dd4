"""One key's text as what it states: the cluster's strategy and the node entries, each with what is wrong in it.

Reading decides nothing: ``loading`` does without what has problems, ``checks`` refuses it. So both mind the same.

Invariant: no text makes this raise. Every wrong leaf is a problem of its own, with its path from the key on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from koord.model import schema, selector
from koord.model.problem import Bad, Problem
from koord.model.schema import SchemaError, Unknown, json_name
from koord.model.selector import LabelSelector
from koord.sloconfig.rows import KeyLayout, KeyRow

T = TypeVar("T", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class EntryStatement(Generic[T]):
    """One node entry. ``selector``: None if absent or bad.

    ``strategy``: without the leaves that ``problems`` are about; None if a problem is about more than leaves.
    """

    path: str
    strategy: T | None
    name: str = ""
    selector: LabelSelector | None = None
    problems: tuple[Problem, ...] = ()
    selector_problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class Statement(Generic[T]):
    """``problems``: of the cluster's strategy and of the document; not of the entries.

    ``cluster``: the strategy without the leaves that they are about; None if one is about more than leaves.
    """

    cluster: T | None
    entries: tuple[EntryStatement[T], ...] = ()
    problems: tuple[Problem, ...] = ()
    is_json: bool = True
    unknown: tuple[str, ...] = ()
    """The paths of keys that no field has."""


class _Nested(msgspec.Struct, frozen=True, kw_only=True, rename=json_name):
    cluster_strategy: Any = None
    node_strategies: tuple[Any, ...] | None = None


class _Flat(msgspec.Struct, frozen=True, kw_only=True, rename=json_name):
    node_configs: tuple[Any, ...] | None = None


class _EntryHead(msgspec.Struct, frozen=True, kw_only=True, rename=json_name):
    name: str | None = None
    node_selector: Any = None


def read(row: KeyRow[T], text: str) -> Statement[T]:
    """Reads what ``text`` states; blank text and ``null`` state nothing."""
    try:
        document = schema.parse_json(text) if text.strip() else None
    except SchemaError as error:
        return Statement(None, problems=(Problem(row.key, str(error)),), is_json=False)
    problems: list[Problem] = []
    unknown: list[str] = []
    bad = problems.append
    try:
        cluster, items = _cluster(row, {} if document is None else document, unknown.append, bad)
    except SchemaError as error:
        bad(error.problem)
        return Statement(None, problems=tuple(problems), unknown=tuple(unknown))
    entries = [_entry(row, item, row.entry_path(index), unknown.append) for index, item in enumerate(items)]
    return Statement(cluster, tuple(entries), tuple(problems), unknown=tuple(unknown))


def _cluster(row: KeyRow[T], document: object, unknown: Unknown, bad: Bad) -> tuple[T, Sequence[object]]:
    """The cluster's strategy, and the node entries as they came."""
    if row.layout is KeyLayout.NESTED:
        nested = schema.read(_Nested, document, row.key, unknown)
        strategy = {} if nested.cluster_strategy is None else nested.cluster_strategy
        return row.read(strategy, row.cluster_path, unknown, bad), nested.node_strategies or ()
    flat = schema.read(_Flat, document, row.key)
    return row.read(document, row.cluster_path, _besides(unknown, row.key, _Flat), bad), flat.node_configs or ()


def _entry(row: KeyRow[T], item: object, path: str, unknown: Unknown) -> EntryStatement[T]:
    problems: list[Problem] = []
    bad = problems.append
    try:
        head = schema.read(_EntryHead, item, path, bad=bad)
    except SchemaError as error:
        return EntryStatement(path, None, selector_problems=(error.problem,))
    strategy: T | None = None
    try:
        strategy = row.read(item, path, _besides(unknown, path, _EntryHead), bad)
    except SchemaError as error:
        bad(error.problem)
    node_selector, selector_problems = _selector(head.node_selector, f"{path}.nodeSelector")
    return EntryStatement(path, strategy, head.name or "", node_selector, tuple(problems), selector_problems)


def _selector(document: object, path: str) -> tuple[LabelSelector | None, tuple[Problem, ...]]:
    if document is None:
        return None, ()
    try:
        parsed = schema.read(LabelSelector, document, path)
        selector.check(parsed, path)
    except SchemaError as error:
        return None, (error.problem,)
    return parsed, ()


def _besides(unknown: Unknown, path: str, head: type[msgspec.Struct]) -> Unknown:
    """``unknown`` for a struct that shares the object at ``path`` with ``head``, of whose fields it is not told."""
    names = {f"{path}.{name}".lower() for name in head.__struct_encode_fields__}

    def tell(key: str) -> None:
        if key.lower() not in names:
            unknown(key)

    return tell
