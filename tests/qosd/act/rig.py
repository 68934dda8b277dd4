"""An actuator over a tree of plain files, or over a model of the kernel, with every write counted from outside."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from koord.host.cgroup import Tree
from koord.host.files import Target, Value
from koord.host.systemd_units import Units
from koord.host.undo import UndoRecord
from koord.host.writer import Reading, WriteError, Writer
from qosd.act.actuator import Actuator
from qosd.act.journal import JournalEntry
from qosd.act.ownership import Ownership
from qosd.act.plan import TickPlan, TickResult
from qosd.decide.decision import Decision, Opinion, Opinions, Stage
from qosd.decide.runner import Decisions, StrategyResult, StrategyStatus
from tests.fakes.cgroups import Cgroups
from tests.fakes.clock import S
from tests.support.opened import opened

BOOT = "6f1d"
POD = "/kubepods/pod1"
QUOTA, SHARES, IDLE = (Target(POD, name) for name in ("cpu_quota", "cpu_shares", "cpu.idle"))
CPUS = Target(POD, "cpuset_cpus")
BURST = Target(POD, "cpu.max.burst")
NEW_GROUP_V1 = MappingProxyType(
    {
        "cpu_quota": "-1\n",
        "cpu_shares": "1024\n",
        "cpu.idle": "0\n",
        "cpuset_cpus": "0-3\n",
        "memory_limit_in_bytes": "9223372036854771712\n",
    }
)
_ROWS = frozenset(NEW_GROUP_V1) | {"cpu.max.burst"}
OWNERS: Mapping[str, Ownership] = MappingProxyType(
    {
        "hooks": Ownership(Stage.SPEC, _ROWS),
        "hosts": Ownership(Stage.SPEC, frozenset({"cpuset_cpus"})),
        "ratio": Ownership(Stage.NORMALIZATION, frozenset({"cpu_quota"})),
        "burst": Ownership(Stage.BURST, frozenset({"cpu_quota"})),
        "suppress": Ownership(Stage.SUPPRESSION, _ROWS),
    }
)


class CountingWriter(Writer):
    """``made``: the writes that took place, in order; ``tried`` those that the kernel refused as well.

    ``error``: the errno with which it refuses each; 0: as the files do.
    """

    error = 0

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree)
        self.made: list[tuple[Target, Value]] = []
        self.tried: list[tuple[Target, Value]] = []
        self.looks = 0

    def look(self, target: Target) -> Reading | None:
        self.looks += 1
        return super().look(target)

    def write(self, target: Target, value: Value) -> None:
        self.tried.append((target, value))
        if self.error:
            raise WriteError(self.error, str(self.path(target)), str(value))
        self.perform(target, value)
        self.made.append((target, value))

    def perform(self, target: Target, value: Value) -> None:
        super().write(target, value)


class Recorded:
    """A journal in memory."""

    def __init__(self) -> None:
        self.entries: list[JournalEntry] = []

    def record(self, entry: JournalEntry) -> None:
        self.entries.append(entry)

    def results(self) -> list[str]:
        return [entry.result for entry in self.entries]


class Rig:
    """``say`` what the strategies want, then ``tick``; ``results`` may be replaced by whatever else decides."""

    def __init__(
        self, root: Path, version: int = 1, units: Units | None = None, owners: Mapping[str, Ownership] = OWNERS
    ) -> None:
        self.root, self.units, self.owners = root, units, owners
        self.results: Callable[[], tuple[StrategyResult, ...]] = self._as_said
        self.writer = CountingWriter(Tree(version, root / "cgroup", {}))
        self.journal = Recorded()
        self.now_ns = 1000 * S
        self.ticks = 0
        self.opinions: dict[str, Opinions] = {}
        self.states: dict[str, StrategyStatus] = {}
        self.undecided: set[str] = set()
        self._start()

    def _start(self) -> None:
        self.undo = opened(UndoRecord(self.root / "undo", BOOT))
        self.actuator = Actuator(self.writer, self.undo, self.journal, self.owners, units=self.units)

    def crash(self) -> None:
        """SIGKILL and the next start: nothing is left but the kernel's files and the undo record."""
        self.undo.close()
        self._start()

    def make(self, cgroup: str = POD, **texts: str) -> None:
        """A cgroup as the runtime makes it."""
        for name, text in {**NEW_GROUP_V1, **texts}.items():
            self.put(Target(cgroup, name), text)

    def remove(self, cgroup: str = POD) -> None:
        tree = self.writer.tree
        Cgroups(tree.root, tree.version).remove(cgroup)

    def path(self, target: Target) -> Path:
        path = self.writer.path(target)
        assert path is not None
        return path

    def put(self, target: Target, text: str) -> None:
        """What someone else writes."""
        path = self.path(target)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def holds(self, target: Target) -> Value | None:
        return self.writer.read(target)

    def say(self, strategy: str, *opinions: tuple[Target, Opinion]) -> None:
        self.opinions[strategy] = dict(opinions)

    def decisions(self) -> Decisions:
        return Decisions(self.ticks, self.now_ns, self.now_ns, self.results())

    def _as_said(self) -> tuple[StrategyResult, ...]:
        return tuple(
            StrategyResult(
                name,
                line.stage,
                self.states.get(name, StrategyStatus.ACTIVE),
                Decision(
                    "disabled by the operator" if self.states.get(name) is StrategyStatus.DISABLED else "",
                    self.opinions.get(name, {}),
                ),
                decided=name not in self.undecided,
            )
            for name, line in self.owners.items()
        )

    def plan(self) -> TickPlan:
        return self.actuator.plan(self.decisions())

    def tick(self, seconds: float = 1.0) -> TickResult:
        """One tick; asserts that a dry run before it shows just that, and that writing changes nothing else."""
        self.ticks += 1
        self.now_ns += int(seconds * S)
        dry = self.plan()
        made, told = len(self.writer.tried), len(self.journal.entries)
        again = self.plan()
        assert again.writes == dry.writes
        assert (len(self.writer.tried), len(self.journal.entries)) == (made, told), "a plan writes nothing"
        result = self.actuator.execute(again)
        assert tuple(outcome.write for outcome in result.outcomes) == dry.writes
        return result

    def see(self, *targets: Target) -> None:
        """inotify tells of writes to these files."""
        for target in targets:
            self.actuator.files.touched(str(self.path(target)))

    def retried(self) -> list[Target]:
        """The files that could not be brought to their value."""
        return [target for target, state in self.actuator.files.report.states.items() if state.retry is not None]

    def written(self) -> list[tuple[str, Value]]:
        return [(target.name, value) for target, value in self.writer.made]


def wants(value: Value, why: str = "spec", pod: str = "default/a") -> Opinion:
    return Opinion.set(value, why, {"formula": "given", "value": value}, pod)


def journalled_writes(entries: Iterable[JournalEntry]) -> list[tuple[Target, Value | None]]:
    """What the journal says was written."""
    return [(Target(entry.cgroup, entry.name), entry.after) for entry in entries if entry.result == "done"]
