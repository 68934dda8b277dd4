"""Who may speak on which kernel file, and at which stage: the table, and what follows from it for one file.

Invariants: a strategy speaks at one stage and on the rows of its line only; at one stage of one file one strategy is
heard, and that is whoever was heard before, else the first in the strategies' order. Any other opinion is refused,
with a sentence, and changes nothing. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import msgspec

from koord.host.files import Target
from qosd.act.composition import Spoken
from qosd.decide.decision import Keep, Stage
from qosd.decide.frame import Turn


class Line(msgspec.Struct, frozen=True):
    """One strategy's line of the table."""

    stage: Stage
    rows: frozenset[str]


OWNERS: Mapping[str, Line] = MappingProxyType(
    {
        "hooks": Line(
            Stage.SPEC,
            frozenset(
                {
                    "cpu_quota",
                    "cpu_shares",
                    "cpuset_cpus",
                    "memory_limit_in_bytes",
                    "cpu.idle",
                    "cpu.bvt_warp_ns",
                    "memory.min",
                    "memory.low",
                    "memory.high",
                }
            ),
        ),
        "hostApplications": Line(Stage.SPEC, frozenset({"cpuset_cpus", "cpu.bvt_warp_ns"})),
        "cpuNormalization": Line(Stage.NORMALIZATION, frozenset({"cpu_quota"})),
    }
)

Heard = tuple[tuple[Stage, str], ...]
"""Who was heard at which stage."""


class Hearing(msgspec.Struct, frozen=True):
    """The opinions on one file, by stage, one a stage; ``refused``: (strategy, why)."""

    spoken: tuple[Spoken, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()

    @property
    def heard(self) -> Heard:
        return tuple((one.stage, one.who) for one in self.spoken)


def hear(
    target: Target, turns: Iterable[Turn], owners: Mapping[str, Line], before: Heard = (), unknown_keeps: bool = False
) -> Hearing:
    """The opinions on ``target``. ``before``: who was heard last time.

    ``unknown_keeps``: a strategy that has not decided since the start, and whose file it may be, counts as keeping it.
    """
    chosen: dict[Stage, Spoken] = {}
    unknown: dict[Stage, Spoken] = {}
    refused: list[tuple[str, str]] = []
    for turn in turns:
        opinion = turn.opinions.get(target)
        why = _not_its_own(turn, target, owners)
        if opinion is None:
            if unknown_keeps and not turn.decided and not why:
                unknown.setdefault(turn.stage, Spoken(turn.name, turn.stage, Keep(turn.sentence)))
        elif why:
            refused.append((turn.name, why))
        else:
            spoken = Spoken(turn.name, turn.stage, opinion)
            first = chosen.setdefault(turn.stage, spoken)
            if first is not spoken:
                owner, other = (spoken, first) if (turn.stage, turn.name) in before else (first, spoken)
                chosen[turn.stage] = owner
                refused.append((other.who, f"{turn.stage.name} of {_name(target)} is {owner.who}'s"))
    by_stage = unknown | chosen
    return Hearing(tuple(by_stage[stage] for stage in sorted(by_stage)), tuple(refused))


def _not_its_own(turn: Turn, target: Target, owners: Mapping[str, Line]) -> str:
    """Why ``turn`` may not speak of ``target``; "" if it may."""
    line = owners.get(turn.name)
    if line is None:
        return "it is not in the table of owners"
    if turn.stage is not line.stage:
        return f"it speaks at stage {line.stage.name}, not {turn.stage.name}"
    if target.name.partition("@")[0] not in line.rows:
        return f"{target.name} is not among its files"
    return ""


def _name(target: Target) -> str:
    return f"{target.group}/{target.name}"
