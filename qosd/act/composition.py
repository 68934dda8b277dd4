"""From the opinions on one file to one value: stage after stage, with a trail of who made what of it.

    SET gives a value; without one the stages work on the base, what someone else wrote last
    SCALE, ADD, AT_MOST and AT_LEAST change what there is, as the row's lattice (``koord.model.lattice``) says

Pure. Invariants: a release takes part in nothing, so a file that every stage releases goes back to its base; a keep
that nobody could resolve stands for something unknown, so the whole file is left as it is. An opinion that makes no
sense for the file (a scaled CPU set, CPUs of which none is left) is refused, by name, and the other stages are composed
without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import msgspec
from msgspec.structs import replace

from koord.host import files
from koord.host.files import UnknownRow, Value
from koord.host.reconcile.wanted import Wanted
from koord.model.formulas import ADDED, AT_LEAST, AT_MOST, COMPOSED, FACTOR, FORMULA, NO_INPUTS, Inputs
from koord.model.lattice import Lattice, Numbers
from qosd.decide.decision import Op, Opinion, Stage

_BASE = "what someone else wrote last"
_UNWANTED = "no strategy wants a value any more"
_SUFFIXES = {Op.SCALE: FACTOR, Op.ADD: ADDED, Op.AT_MOST: AT_MOST, Op.AT_LEAST: AT_LEAST}


class StagedOpinion(msgspec.Struct, frozen=True):
    """One strategy's opinion at its stage."""

    strategy: str
    stage: Stage
    opinion: Opinion

    @property
    def is_temporary(self) -> bool:
        """Is it in force for a time only, and not beyond the end of koord-qosd?"""
        return self.opinion.is_temporary or self.stage is Stage.RELIEF


class TrailStep(msgspec.Struct, frozen=True):
    """What the file would hold after one stage; ``strategy`` "" is the base.

    ``operand``: what the stage did to the value before, by the name that the formula of all stages knows; of a stage
    that sets a value it is empty.
    """

    strategy: str
    value: Value
    why: str
    inputs: Inputs = NO_INPUTS
    operand: Inputs = NO_INPUTS


class Composed(Wanted, frozen=True):
    """What the opinions on one file come to, and how, stage by stage."""

    trail: tuple[TrailStep, ...] = ()


def compose(name: str, opinions: Sequence[StagedOpinion], base: Value | None) -> Composed:
    """The value of row ``name`` by ``opinions``, in the order of their stages; ``base`` None: it cannot be told."""
    keeping = [staged for staged in opinions if staged.opinion.op is Op.KEEP]
    if keeping:
        return _without_value(keeping, keep=True)
    trail: list[TrailStep] = []
    refused: list[tuple[str, str]] = []
    for staged in opinions:
        try:
            trail = _continued(name, trail, staged, base)
        except (ValueError, UnknownRow) as error:
            refused.append((staged.strategy, f"{staged.stage.name} of {name}: {error}"))
    speakers = [step.strategy for step in trail if step.strategy]
    if not speakers:
        return replace(_without_value(opinions, keep=False), refused=tuple(refused))
    return Composed(
        trail[-1].value,
        ", ".join(dict.fromkeys(speakers)),
        _why(trail),
        _inputs(name, trail),
        _pod(opinions),
        refused=tuple(refused),
        trail=tuple(trail),
    )


def with_lasting(name: str, composed: Composed, opinions: Sequence[StagedOpinion], base: Value | None) -> Composed:
    """``composed`` of ``opinions``, with what it would be without those that are temporary."""
    lasting = [staged for staged in opinions if not staged.is_temporary]
    if composed.value is None or base is None or len(lasting) == len(opinions):
        return composed
    value = compose(name, lasting, base).value
    value = base if value is None else value
    return composed if value == composed.value else replace(composed, lasting=value)


def _without_value(opinions: Sequence[StagedOpinion], keep: bool) -> Composed:
    why = "; ".join(dict.fromkeys(staged.opinion.why for staged in opinions if staged.opinion.why)) or _UNWANTED
    by = ", ".join(dict.fromkeys(staged.strategy for staged in opinions))
    return Composed(None, by, why, pod=_pod(opinions), keep=keep)


def _pod(opinions: Sequence[StagedOpinion]) -> str:
    return next((staged.opinion.pod for staged in opinions if staged.opinion.pod), "")


def _continued(name: str, trail: list[TrailStep], staged: StagedOpinion, base: Value | None) -> list[TrailStep]:
    """The trail with one more stage; raises ValueError if the opinion makes no sense for the file, UnknownRow."""
    opinion = staged.opinion
    operand = opinion.value
    if operand is None:
        return trail
    if opinion.op is Op.SET and not isinstance(operand, Fraction):
        return [*trail, TrailStep(staged.strategy, operand, opinion.why, opinion.inputs)]
    lattice = _lattice(name)
    if not trail:
        if base is None:
            raise ValueError("there is no value to work on")
        trail = [TrailStep("", base, _BASE)]
    value = _applied(lattice, opinion.op, trail[-1].value, operand)
    shown = str(operand) if isinstance(operand, Fraction) else operand
    step = TrailStep(
        staged.strategy,
        value,
        opinion.why,
        opinion.inputs,
        {f"{staged.stage.name.lower()}{_SUFFIXES[opinion.op]}": shown},
    )
    return [*trail, step]


def _lattice(name: str) -> Lattice:
    lattice = files.row(name).spelling.lattice
    if lattice is None:
        raise ValueError("its values have no order: they can only be set")
    return lattice


def _applied(lattice: Lattice, op: Op, value: Value, operand: Value | Fraction) -> Value:
    if op is Op.SCALE:
        return lattice.scale(value, Fraction(operand))
    if isinstance(operand, Fraction):
        raise ValueError(f"{operand} is a factor, not a value")
    if op is Op.ADD:
        return lattice.add(value, operand)
    return lattice.meet(value, operand) if op is Op.AT_MOST else lattice.join(value, operand)


def _why(trail: Sequence[TrailStep]) -> str:
    """The sentence of a single strategy as it stands; of several, each stage with its result."""
    if len(trail) == 1:
        return trail[0].why
    return " → ".join(f"{step.value} ({step.why}{f': {step.strategy}' if step.strategy else ''})" for step in trail)


def _inputs(name: str, trail: Sequence[TrailStep]) -> Inputs:
    """Those of the value itself, or what the stages after it were fed."""
    start = max(index for index, step in enumerate(trail) if not step.operand)
    if start == len(trail) - 1:
        return trail[start].inputs
    inputs: dict[str, Value | float | None] = {FORMULA: COMPOSED, "value": trail[start].value}
    lattice = _lattice(name)
    if isinstance(lattice, Numbers) and lattice.minimum:
        inputs["minimum"] = lattice.minimum
    for step in trail[start + 1 :]:
        inputs.update(step.operand)
    return inputs
