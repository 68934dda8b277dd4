"""Rows: what a collector measures of one object at one instant, as a class with a column per figure.

Each collector declares its rows beside itself, and the panel, the metrics that stand in the metric table, follows::

    class NodeRow(Row, source="node", scope=Scope.NODE, period_s=TICK_S):
        cpu_usage_cores: Column = Column("cores", "CPU in use.", Kind.RATE)

``NodeRow(cpu_usage_cores=1.5)`` is a sample (NaN = none), and ``NodeRow.cpu_usage_cores`` the metric
``node_cpu_usage_cores`` by which it is read: one that no row declares is an AttributeError where its reader is
imported. Rows take their figures by name only: type checkers hold to that, and to the names. Invariant: in a row the
columns with history come first, however they are declared: the rings keep the head of it.
"""

from __future__ import annotations

import math
from collections import namedtuple
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, ClassVar, ParamSpec, Self, TypeVar, cast, dataclass_transform, overload

from qosd.model.metric import Kind, Koordlet, Metric, Scope

P = ParamSpec("P")
R = TypeVar("R")
NO_SAMPLE = math.nan
TICK_S = 1.0
SLOW_S = 10.0
NODE_RETENTION_S = 1800.0
"""Of the node, its tiers and devices."""
POD_RETENTION_S = 300.0


@dataclass(frozen=True, eq=False)
class Panel:
    """The metrics that ``source`` fills for the objects of ``scope``, in the order of a row: one time axis."""

    source: str
    scope: Scope
    period_s: float
    retention_s: float
    metrics: tuple[Metric, ...]

    @cached_property
    def kept(self) -> int:
        """Metrics with history: the first ones."""
        return sum(metric.retention_s > 0 for metric in self.metrics)

    @property
    def capacity(self) -> int:
        """Samples per ring."""
        return max(1, math.ceil(self.retention_s / self.period_s))


@dataclass(eq=False)
class Column:
    """One figure of a row: a number of the row itself, the metric of its class.

    ``koordlet``: by scope where rows of several kinds of object share the column. ``history=False``: a figure that
    only dashboards want.
    """

    unit: str
    help: str
    kind: Kind = Kind.GAUGE
    koordlet: Koordlet | Mapping[Scope, Koordlet] | None = None
    history: bool = True
    stem: str = field(init=False)

    def __set_name__(self, owner: type[Row], name: str) -> None:
        self.stem = name

    @overload
    def __get__(self, row: None, owner: type[Row]) -> Metric: ...
    @overload
    def __get__(self, row: Row, owner: type[Row]) -> float: ...
    def __get__(self, row: Row | None, owner: type[Row]) -> Metric | float:
        place = owner.columns.index(self)
        return owner.panel.metrics[place] if row is None else row[place]

    def __set__(self, row: Row, value: float) -> None:
        raise AttributeError(f"{self.stem}: a row is never changed")

    def metric(self, source: str, scope: Scope, period_s: float, retention_s: float) -> Metric:
        """Named ``<scope>_<stem>``; the node's devices (disks, NUMA nodes …) likewise."""
        return Metric(
            name=f"{scope}_{self.stem}",
            unit=self.unit,
            help=self.help,
            scope=scope,
            kind=self.kind,
            source=source,
            period_s=period_s,
            retention_s=retention_s if self.history else 0.0,
            koordlet=self.koordlet.get(scope) if isinstance(self.koordlet, Mapping) else self.koordlet,
        )


class _Slotted(type):
    """Rows have no dict of their own: hundreds are made a second, and none is changed."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **declared: Any) -> _Slotted:
        return super().__new__(mcs, name, bases, {**namespace, "__slots__": ()}, **declared)


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(Column,))
class Row(tuple[float, ...], metaclass=_Slotted):
    """The figures of one object. A class without ``scope`` has columns but no panel: see ``by_scope``."""

    columns: ClassVar[tuple[Column, ...]]
    panel: ClassVar[Panel]

    def __init_subclass__(
        cls, *, source: str = "", scope: Scope | None = None, period_s: float = 0.0, retention_s: float | None = None
    ) -> None:
        declared = [each for base in reversed(cls.__mro__) for each in vars(base).values() if isinstance(each, Column)]
        cls.columns = tuple(sorted(declared, key=lambda column: not column.history))
        constructor: Any = namedtuple("Row", [column.stem for column in cls.columns]).__new__
        cls.__new__ = constructor  # type: ignore[method-assign]
        if scope is not None:
            kept_s = _retention_s(scope) if retention_s is None else retention_s
            metrics = tuple(column.metric(source, scope, period_s, kept_s) for column in cls.columns)
            cls.panel = Panel(source, scope, period_s, kept_s, metrics)

    @classmethod
    def in_order(cls, names: Sequence[str]) -> Callable[[Sequence[float]], Self]:
        """A constructor from figures in the order of ``names``. ValueError: these are not the columns."""
        stems = [column.stem for column in cls.columns]
        if sorted(names) != sorted(stems):
            raise ValueError(f"{cls.__name__} has the columns {stems}, not {names}")
        places = [names.index(stem) for stem in stems]
        return lambda figures: tuple.__new__(cls, [figures[place] for place in places])

    @classmethod
    def by_scope(
        cls, scopes: Collection[Scope], source: str, period_s: float | Mapping[Scope, float]
    ) -> Mapping[Scope, type[Self]]:
        """The same columns as a panel for each kind of object, of one period or of one for each kind."""
        periods_s = period_s if isinstance(period_s, Mapping) else dict.fromkeys(scopes, period_s)
        return {scope: cls._of_scope(scope, source, periods_s[scope]) for scope in scopes}

    @classmethod
    def _of_scope(cls, scope: Scope, source: str, period_s: float) -> type[Self]:
        name, body = f"{cls.__name__}[{scope}]", {"__module__": cls.__module__}
        return cast("type[Self]", _Slotted(name, (cls,), body, source=source, scope=scope, period_s=period_s))


def constructor(row: Callable[P, R]) -> Callable[P, R]:
    """The class ``row``, called at less than half the cost: for rows that are made for every cgroup every second."""
    new: Any = row.__new__
    return cast("Callable[P, R]", partial(new, row))


def _retention_s(scope: Scope) -> float:
    return POD_RETENTION_S if scope in (Scope.POD, Scope.CONTAINER, Scope.HOST_APP) else NODE_RETENTION_S
