"""From the opinions on one file to one value: stage after stage, with a trail of who made what of it.

    SPEC gives a value; without one the stages work on the base, what someone else wrote last
    NORMALIZATION and BURST scale it, SUPPRESSION caps it; unlimited stays unlimited unless capped
    cpu_quota = unlimited if bound to CPUs; else base / ratio × burst factor, at most the cap, at least 1000 us

Pure. Invariants: a release takes part in nothing, so a file that every stage releases goes back to its base; a keep
that nobody could resolve stands for something unknown, so the whole file is left as it is. A scale or cap of what is
no CFS quota is refused, by name, and the other stages are composed without it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from koord.host.files import Value
from koord.host.reconcile.wanted import Wanted
from koord.model import cfs
from koord.model.formulas import CAP_SUFFIX, FACTOR_SUFFIX, FORMULA, NO_INPUTS, Inputs
from qosd.decide.decision import Cap, Keep, Opinion, Scale, Set, Stage

QUOTA = "cpu_quota"
_COMPOSED = "composed_quota"
_UNWANTED = "no strategy wants a value any more"


class StagedOpinion(msgspec.Struct, frozen=True):
    """One strategy's opinion at its stage."""

    who: str
    stage: Stage
    opinion: Opinion


class Made(msgspec.Struct, frozen=True):
    """What the file would hold after one stage; ``who`` "" is the base.

    ``operand`` names what a scale or cap worked with, for the formula of all stages; of a value it is empty.
    """

    who: str
    stage: Stage | None
    value: Value
    why: str
    inputs: Inputs = NO_INPUTS
    operand: Inputs = NO_INPUTS


class Composed(Wanted, frozen=True):
    """What the opinions on one file come to, and how, stage by stage."""

    trail: tuple[Made, ...] = ()


def compose(name: str, spoken: Sequence[StagedOpinion], base: Value | None) -> Composed:
    """The value of row ``name`` by ``spoken``, in the order of their stages; ``base`` None: it cannot be told."""
    keeping = [one for one in spoken if isinstance(one.opinion, Keep)]
    if keeping:
        return _without_value(keeping, keep=True)
    made: list[Made] = []
    refused: list[tuple[str, str]] = []
    for one in spoken:
        try:
            made = _next(name, made, one, base)
        except ValueError as error:
            refused.append((one.who, f"{one.stage.name} of {name}: {error}"))
    speakers = [one for one in made if one.who]
    if not speakers:
        return msgspec.structs.replace(_without_value(spoken, keep=False), refused=tuple(refused))
    return Composed(
        made[-1].value,
        ", ".join(dict.fromkeys(one.who for one in speakers)),
        _why(made),
        _inputs(made),
        next((pod for one in spoken if (pod := pod_of(one.opinion))), ""),
        refused=tuple(refused),
        trail=tuple(made),
    )


def pod_of(opinion: Opinion) -> str:
    """``namespace/name`` whose file it is about; "" = the node's."""
    return "" if isinstance(opinion, Keep) else opinion.pod


def _without_value(spoken: Sequence[StagedOpinion], keep: bool) -> Composed:
    why = "; ".join(dict.fromkeys(one.opinion.why for one in spoken if one.opinion.why)) or _UNWANTED
    pod = next((pod for one in spoken if (pod := pod_of(one.opinion))), "")
    return Composed(None, ", ".join(dict.fromkeys(one.who for one in spoken)), why, pod=pod, keep=keep)


def _next(name: str, made: list[Made], one: StagedOpinion, base: Value | None) -> list[Made]:
    """The trail with one more stage; raises ValueError if the opinion makes no sense for the file."""
    opinion = one.opinion
    if isinstance(opinion, Set):
        value = _at_least_minimum(opinion.value) if name == QUOTA else opinion.value
        return [*made, Made(one.who, one.stage, value, opinion.why, opinion.inputs)]
    if not isinstance(opinion, Scale | Cap):
        return made
    if name != QUOTA:
        raise ValueError("only a CFS quota can be scaled or capped")
    if not made:
        if base is None:
            raise ValueError("there is no value to work on")
        made = [Made("", None, base, "what someone else wrote last")]
    before = int(made[-1].value)
    if isinstance(opinion, Scale):
        value = cfs.scale_quota_us(before, opinion.factor)
        operand: Inputs = {f"{one.stage.name.lower()}{FACTOR_SUFFIX}": opinion.factor}
    else:
        value = cfs.cap_quota_us(before, opinion.value)
        operand = {f"{one.stage.name.lower()}{CAP_SUFFIX}": opinion.value}
    return [*made, Made(one.who, one.stage, value, opinion.why, opinion.inputs, operand)]


def _at_least_minimum(value: Value) -> int:
    return cfs.cap_quota_us(int(value), cfs.UNLIMITED)


def _why(made: Sequence[Made]) -> str:
    """The sentence of a single strategy as it stands; of several, each stage with its result."""
    if len(made) == 1:
        return made[0].why
    return " → ".join(f"{one.value} ({one.why}{f': {one.who}' if one.who else ''})" for one in made)


def _inputs(made: Sequence[Made]) -> Inputs:
    """Those of the value itself, or what the stages after it were fed."""
    start = max(index for index, one in enumerate(made) if not one.operand)
    if start == len(made) - 1:
        return made[start].inputs
    fed: dict[str, Value | float | None] = {FORMULA: _COMPOSED, "value": made[start].value}
    for one in made[start + 1 :]:
        fed.update(one.operand)
    return fed
