"""What NodeInspect asks of the rest of qosd: a few small interfaces, so that it can be tested without the rest.

The daemon fills one ``Sources``. Invariant: nothing here is kept between calls; each answer is made of what the
sources return at that moment, and nothing is written but the switches of strategies.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from koord.host.cgroup import Tree
from koord.host.files import Target
from koord.host.originals import Original
from koord.host.reconcile.state import FileState
from koord.host.writer import Writer
from qosd.act.composition import Composed
from qosd.act.journal import Entry
from qosd.act.plan import Plan
from qosd.decide.decision import Strategy
from qosd.decide.runner import Decisions
from qosd.metric import Metric
from qosd.snapshot import NodeSnapshot


class Files(Protocol):
    """What qosd.act.fileactor.FileActor holds; asked from a thread while a tick may run."""

    @property
    def owned(self) -> Mapping[Target, FileState]: ...
    @property
    def contested(self) -> Mapping[Target, str]: ...
    @property
    def refused(self) -> Mapping[Target, tuple[tuple[str, str], ...]]:
        """(strategy, why) of opinions that are not followed."""

    def original(self, target: Target) -> Original | None:
        """The value kubelet requested and the value we gave the runtime for this file; None if we changed nothing."""

    def composed(self, target: Target) -> Composed | None:
        """What the newest decisions come to; None: nobody has an opinion."""


class Journal(Protocol):
    @property
    def dropped(self) -> int: ...
    @property
    def problem(self) -> str:
        """Why it cannot be written or read now; "" = it can."""

    def query(
        self, *, pod: str = "", file: str = "", strategy: str = "", since_ns: int = 0, limit: int = 100
    ) -> Sequence[Entry]:
        """Newest first; blocks on the disk, so it is called in a thread."""


class Series(Protocol):
    def series(self, metric: Metric, subject: str) -> Sequence[tuple[int, float]]:
        """(monotonic ns, value), oldest first."""


@dataclass(frozen=True, slots=True)
class LoopState:
    """A collector or source. ``age_s`` None: it has never succeeded. ``disabled``: why it does not run."""

    name: str
    age_s: float | None
    failures: int = 0
    last_error: str = ""
    disabled: str = ""
    duration_us: float = 0.0


@dataclass(frozen=True, slots=True)
class FrontEndState:
    name: str
    attached: bool
    acting: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Feature:
    """Something that this node supports or not; ``detail``: how that is known, or what is used instead."""

    name: str
    supported: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class PolicyState:
    """Where the policy in force comes from (``qosd.policy.provenance``); ``age_s`` None: no source ever said it."""

    origin: str
    source: str
    age_s: float | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class About:
    """The daemon's own figures."""

    version: str
    pid: int
    uptime_s: float
    rss_bytes: int
    open_files: int
    open_files_limit: int
    rules_file: str
    runtime_endpoint: str
    cgroup_root: str
    journal_file: str
    undo_file: str


@dataclass(frozen=True, slots=True)
class Sources:
    """What the daemon wires. Functions are asked at each call."""

    writer: Writer
    """Asked only how files are spelled; nothing is written."""
    metrics: Sequence[Metric]
    store: Series
    files: Files
    placed: Callable[[], Mapping[str, str]]
    """The resctrl group in which the tasks of each cgroup are kept now."""
    journal: Journal
    snapshot: Callable[[], NodeSnapshot | None]
    """The one that ``decisions`` were made from."""
    decisions: Callable[[], Decisions | None]
    """Those that the newest tick acted on; None before the first."""
    strategies: Sequence[Strategy]
    plan: Callable[[], Awaitable[Plan | None]]
    """The next tick's writes, by the same functions on the newest snapshot."""
    switch: Callable[[bool, Sequence[str]], Awaitable[None]]
    """Enable or disable strategies by name until the process ends; returns after the tick that does it."""
    loops: Callable[[], Sequence[LoopState]]
    front_ends: Callable[[], Sequence[FrontEndState]]
    features: Callable[[], Sequence[Feature]]
    about: Callable[[], About]
    policy: Callable[[], PolicyState]
    warnings: Callable[[], Sequence[str]]
    """What is wrong with rules, pools and pods' sources, one sentence each."""

    @property
    def tree(self) -> Tree:
        return self.writer.tree
