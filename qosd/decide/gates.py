"""Feature gates and the strategies that stand behind them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from qosd.decide.decision import Strategy
from qosd.model.rules import Rules


def why_shut(strategy: Strategy, rules: Rules) -> str:
    """Why the strategy may not run; "" if it may."""
    if not strategy.gate:
        return ""
    is_on, source = rules.gate(strategy.gate)
    return "" if is_on else f"feature gate {strategy.gate} is off ({source})"


def gates_shown(strategies: Iterable[Strategy], rules: Rules) -> Iterator[tuple[str, bool, str]]:
    """Each gate that some strategy stands behind, for people: a name, is it on, and who says so for whom."""
    behind: dict[str, list[str]] = {}
    for strategy in strategies:
        if strategy.gate:
            behind.setdefault(strategy.gate, []).append(strategy.name)
    for gate, names in sorted(behind.items()):
        is_on, source = rules.gate(gate)
        yield f"feature gate {gate}", is_on, f"{source}; strategy {', '.join(names)}"
