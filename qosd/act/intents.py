"""A tick's decisions as the reconciler asks for them, and the files on which they differ from those applied last.

Invariant: another reason for the same opinion is no change; a strategy's first decision since the start is a change for
every file that an earlier run left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from koord.host.files import Target, Value
from koord.host.order import CPUS
from koord.host.reconcile.state import FileState, FileStates, Speakers
from koord.host.reconcile.wanted import Wanted
from qosd.act.composition import Composed, compose, with_lasting
from qosd.act.ownership import Arbitration, Ownership, arbitrate
from qosd.decide.decision import NO_OPINIONS, Op, Opinion, Opinions
from qosd.decide.runner import Decisions


class FileIntent:
    """The opinions on one file, followed and refused ones."""

    def __init__(self, name: str, arbitration: Arbitration) -> None:
        self._name, self._arbitration = name, arbitration

    @property
    def speakers(self) -> Speakers:
        return self._arbitration.speakers

    @property
    def by(self) -> tuple[str, ...]:
        return tuple(one.strategy for one in self._arbitration.accepted)

    @property
    def is_release(self) -> bool:
        return all(one.opinion.op is Op.RELEASE for one in self._arbitration.accepted)

    def wanted(self, base: Value | None) -> Composed:
        """Returns the wanted value. Without a base no opinion is refused for lacking one."""
        accepted = self._arbitration.accepted
        composed = with_lasting(self._name, compose(self._name, accepted, base), accepted, base)
        refused = (*self._arbitration.refused, *(() if base is None else composed.refused))
        return composed if refused == composed.refused else replace(composed, refused=refused)


class TickIntents:
    """The intents of one tick. ``owners``: which strategy may have opinions on which row."""

    def __init__(self, decisions: Decisions, owners: Mapping[str, Ownership]) -> None:
        self._results, self._owners = decisions.results, owners
        self.why_no_wider = decisions.cpus_unknown

    def of(self, target: Target, state: FileState) -> FileIntent:
        return FileIntent(target.name, arbitrate(target, self._results, self._owners, state.speakers, state.adopted))

    def why_released(self, state: FileState, wanted: Wanted) -> str:
        spoke = {name for _, name in state.speakers}
        off = [
            f"{result.name} is {result.sentence}" for result in self._results if result.name in spoke and result.is_off
        ]
        return "; ".join(off) or wanted.why


class Changes:
    """Remembers the decisions that were applied last."""

    def __init__(self) -> None:
        self._opinions: Mapping[str, Opinions] = {}
        self._undecided: frozenset[str] | None = None
        self._cpus_unknown = ""

    def since(self, decisions: Decisions, states: FileStates) -> list[Target]:
        """Returns the files on which ``decisions`` differ from those applied last."""
        opinions = _opinions(decisions)
        changed = [
            target
            for name in {**self._opinions, **opinions}
            for target in _differing(self._opinions.get(name, NO_OPINIONS), opinions.get(name, NO_OPINIONS))
        ]
        if decisions.undecided != self._undecided:
            changed += [target for target, state in states.items() if state.adopted]
        if decisions.cpus_unknown != self._cpus_unknown:
            named = (target for each in opinions.values() for target in each)
            changed += [target for target in (*states, *named) if target.name == CPUS]
        return changed

    def applied(self, decisions: Decisions) -> None:
        self._opinions, self._undecided = _opinions(decisions), decisions.undecided
        self._cpus_unknown = decisions.cpus_unknown


def _opinions(decisions: Decisions) -> dict[str, Opinions]:
    return {result.name: result.opinions for result in decisions.results}


def _essence(opinion: Opinion) -> tuple[object, ...]:
    return opinion.op, opinion.value, opinion.is_temporary


def _differing(old: Opinions, new: Opinions) -> Iterator[Target]:
    if old is new:
        return
    for target, opinion in new.items():
        before = old.get(target)
        if before is not opinion and (before is None or _essence(before) != _essence(opinion)):
            yield target
    for target in old:
        if target not in new:
            yield target
