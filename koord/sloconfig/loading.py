"""From the ConfigMap's data to the configuration in force. Level-triggered: the data alone decide, but for bad keys.

    no ConfigMap             what was in force before, of every key; or it is not known, and nothing is changed
    a key absent or blank    its defaults
    a bad leaf               counts as absent, and the rest counts
    a key that is bad        as a whole: what was in force for it before, or its defaults; nothing of it counts
    a bad node entry         as a whole: the cluster's strategy, for the nodes that it selects
    a bad selector           the entry selects no node

That the ConfigMap is gone states nothing: a tool that replaces one deletes it first, and who wants to end something
says so (``enable: false``). Upstream reads what is out of bounds as it is; ``checks`` refuses it, so here it is what
was stored before there was a webhook, or while it was away.

Invariant: a key has no influence on another; nothing is replaced without a problem that says so; nothing raises.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

import msgspec

from koord.model.problem import Problem
from koord.model.readable import did_you_mean, shorten_list
from koord.sloconfig import reading
from koord.sloconfig.config import NodeEntry, Section, SLOConfig
from koord.sloconfig.merging import laid_over
from koord.sloconfig.reading import EntryStatement, Statement
from koord.sloconfig.rows import ROWS, EventReason, KeyRow, Override

T = TypeVar("T", bound=msgspec.Struct)
CONFIG_MAP_NAME = "slo-controller-config"
KEYS = tuple(row.key for row in ROWS)
"""Those of the ConfigMap that are read."""
_MOST_UNKNOWN = 5


class Consequence(StrEnum):
    """What holds instead of what is bad."""

    LEAF_ABSENT = "it counts as absent"
    KEY_KEPT = "what was in force for this key stays"
    ENTRY_AS_CLUSTER = "the nodes of this entry have the cluster's strategy"
    ENTRY_SKIPPED = "this entry selects no node"


@dataclass(frozen=True, slots=True)
class Rejected:
    """A value of ``key`` that does not count. ``event_reason``: of the Event that says so."""

    key: str
    event_reason: EventReason
    problem: Problem
    consequence: Consequence


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    config: SLOConfig
    rejected: tuple[Rejected, ...] = ()
    unknown: tuple[str, ...] = ()
    """The paths of keys that nothing here has: typing errors, or of another release. Of a key of the ConfigMap itself
    its name."""
    is_absent: bool = False
    """There is no ConfigMap."""

    @property
    def kept_keys(self) -> frozenset[str]:
        """The keys of which nothing counts."""
        if self.is_absent:
            return frozenset(KEYS)
        return frozenset(each.key for each in self.rejected if each.consequence is Consequence.KEY_KEPT)


def texts(data: object) -> dict[str, str]:
    """Returns a ConfigMap's ``data``, of an unchecked document: what is no text is left out."""
    return {key: text for key, text in data.items() if isinstance(text, str)} if isinstance(data, Mapping) else {}


def load(data: Mapping[str, str] | None, previous: SLOConfig | None = None) -> LoadedConfig:
    """The configuration that ``data`` is; None if there is no ConfigMap. ``previous``: what is in force."""
    before = SLOConfig.defaults() if previous is None else previous
    if data is None:
        return LoadedConfig(before, is_absent=True)
    sections: dict[str, Any] = {}
    rejected: list[Rejected] = []
    unknown = [key for key in data if key not in KEYS]
    for row in ROWS:
        statement = reading.read(row, data.get(row.key, ""))
        kept = statement.cluster is None
        sections[row.section] = getattr(before, row.section) if kept else section(row, statement)
        rejected.extend(_rejected(row, statement))
        unknown.extend(statement.unknown)
    return LoadedConfig(SLOConfig(**sections), tuple(rejected), tuple(unknown))


def unknown_message(path: str) -> str:
    """Returns the sentence about one of ``LoadedConfig.unknown``."""
    is_key = not any(path.startswith(f"{key}.") for key in KEYS)
    noun = f"key{did_you_mean(path, KEYS)}" if is_key else "field"
    return f"{path}: there is no such {noun}: it is ignored"


def unknown_messages(unknown: Sequence[str]) -> tuple[str, ...]:
    """Returns the sentences about the first few of ``LoadedConfig.unknown``, and how many more there are."""
    shown = [unknown_message(path) for path in unknown[:_MOST_UNKNOWN]]
    return (*shown, *shorten_list(unknown, _MOST_UNKNOWN, "more: koordctl lint lists them")[_MOST_UNKNOWN:])


def section(row: KeyRow[T], statement: Statement[T]) -> Section[T]:
    """Returns ``statement`` over the defaults, each entry over the cluster's strategy."""
    cluster = row.default if statement.cluster is None else laid_over(row.default, statement.cluster)
    return Section(cluster, tuple(_entry(row, entry, cluster) for entry in statement.entries))


def _entry(row: KeyRow[T], entry: EntryStatement[T], cluster: T) -> NodeEntry[T]:
    base = row.default if row.override is Override.REPLACE else cluster
    strategy = cluster if entry.strategy is None else laid_over(base, entry.strategy)
    return NodeEntry(entry.path, entry.name, entry.selector, strategy)


def _rejected(row: KeyRow[T], statement: Statement[T]) -> Iterator[Rejected]:
    def rejected(problem: Problem, consequence: Consequence) -> Rejected:
        kept = Consequence.KEY_KEPT if statement.cluster is None else consequence
        return Rejected(row.key, row.event_reason, problem, kept)

    yield from (rejected(problem, Consequence.LEAF_ABSENT) for problem in statement.problems)
    for entry in statement.entries:
        of_entry = Consequence.ENTRY_AS_CLUSTER if entry.strategy is None else Consequence.LEAF_ABSENT
        yield from (rejected(problem, of_entry) for problem in entry.problems)
        yield from (rejected(problem, Consequence.ENTRY_SKIPPED) for problem in entry.selector_problems)
