"""Tells which feature gates switch strategies off, and which grants strategies lack."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from koord.model.grants import GRANTS, GrantInputs
from qosd.decide.decision import AnyStrategy
from qosd.model.policy import EffectivePolicy


def why_shut(strategy: AnyStrategy, policy: EffectivePolicy) -> str:
    """Returns why the strategy may not run; "" if it may."""
    if not strategy.gate:
        return ""
    is_on, source = policy.gate(strategy.gate)
    return "" if is_on else f"feature gate {strategy.gate} is off ({source})"


def what_lacks(strategy: AnyStrategy, policy: EffectivePolicy) -> str:
    """Returns what koord-qosd may not do of what the strategy needs; "" = it may do all of it."""
    in_force = GrantInputs(policy.slo, policy.pressure_policy is not None)
    used = [name for name in strategy.grants if GRANTS[name].is_used(in_force)]
    return ", ".join([each for name in used for each in policy.host.lacking.get(name, ())])


def gates_shown(strategies: Iterable[AnyStrategy], policy: EffectivePolicy) -> Iterator[tuple[str, bool, str]]:
    """Yields for people each gate of a strategy: its name, whether it is on, and who says so for which strategies."""
    behind: dict[str, list[str]] = {}
    for strategy in strategies:
        if strategy.gate:
            behind.setdefault(strategy.gate, []).append(strategy.name)
    for gate, names in sorted(behind.items()):
        is_on, source = policy.gate(gate)
        yield f"feature gate {gate}", is_on, f"{source}; strategy {', '.join(names)}"
