"""The table of the strategies that may have opinions on each kernel file and stage, and their arbitration.

Invariants: a strategy has opinions at one stage and on the rows of its entry only; at one stage of one file one
strategy is followed: the one that was followed before, else the first in the strategies' order. Any other opinion is
refused, with a sentence, and changes nothing. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import msgspec

from koord.host.files import Target
from koord.host.reconcile.state import Speakers
from qosd.act.composition import StagedOpinion
from qosd.decide.decision import Opinion, Stage
from qosd.decide.runner import StrategyResult
from qosd.strategies import speakers


class Ownership(msgspec.Struct, frozen=True):
    """One strategy's entry in the table."""

    stage: Stage
    rows: frozenset[str]


OWNERS: Mapping[str, Ownership] = MappingProxyType({each.name: Ownership(each.stage, each.rows) for each in speakers()})


class Arbitration(msgspec.Struct, frozen=True):
    """The opinions on one file that are followed, one a stage; ``refused``: (strategy, why)."""

    accepted: tuple[StagedOpinion, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()

    @property
    def speakers(self) -> Speakers:
        return tuple((one.stage, one.strategy) for one in self.accepted)


def arbitrate(
    target: Target,
    results: Iterable[StrategyResult],
    owners: Mapping[str, Ownership],
    before: Speakers = (),
    unknown_keeps: bool = False,
) -> Arbitration:
    """Returns the opinions on ``target``. ``before``: the strategies that were followed last time.

    ``unknown_keeps``: a strategy that has not decided since the start, and whose file it may be, counts as keeping it.
    """
    chosen: dict[Stage, StagedOpinion] = {}
    unknown: dict[Stage, StagedOpinion] = {}
    refused: list[tuple[str, str]] = []
    for result in results:
        opinion = result.decision.opinions.get(target)
        why = _not_its_own(result, target, owners)
        if opinion is None:
            if unknown_keeps and not result.decided and not why:
                unknown.setdefault(
                    result.stage, StagedOpinion(result.name, result.stage, Opinion.keep(result.sentence))
                )
        elif why:
            refused.append((result.name, why))
        else:
            spoken = StagedOpinion(result.name, result.stage, opinion)
            first = chosen.setdefault(result.stage, spoken)
            if first is not spoken:
                owner, other = (spoken, first) if (result.stage, result.name) in before else (first, spoken)
                chosen[result.stage] = owner
                refused.append(
                    (other.strategy, f"{result.stage.name} of {target.cgroup}/{target.name} is {owner.strategy}'s")
                )
    by_stage = unknown | chosen
    return Arbitration(tuple(by_stage[stage] for stage in sorted(by_stage)), tuple(refused))


def _not_its_own(result: StrategyResult, target: Target, owners: Mapping[str, Ownership]) -> str:
    """Returns why ``result`` may have no opinion on ``target``; "" if it may."""
    line = owners.get(result.name)
    if line is None:
        return "it is not in the table of owners"
    if result.stage is not line.stage:
        return f"it speaks at stage {line.stage.name}, not {result.stage.name}"
    if target.name.partition("@")[0] not in line.rows:
        return f"{target.name} is not among its files"
    return ""
