"""The newest tick's opinions, file by file."""

from __future__ import annotations

from koord.host.files import Target
from qosd.decide.runner import StrategyResult
from qosd.inspect.sources import Sources


class Decided:
    """The opinions of every strategy in ``sources.decisions()``, by file, each file's in the order of stages."""

    def __init__(self, sources: Sources) -> None:
        decisions = sources.decisions()
        self.results: tuple[StrategyResult, ...] = () if decisions is None else decisions.results
        self.owned = sources.files.owned
        self._speakers: dict[Target, list[StrategyResult]] = {}
        for result in sorted(self.results, key=lambda result: result.stage):
            for target in result.opinions:
                self._speakers.setdefault(target, []).append(result)

    @property
    def targets(self) -> list[Target]:
        """Every file that a strategy speaks of or that the actuator holds."""
        return sorted({*self._speakers, *self.owned}, key=lambda target: (target.group, target.name))

    def speakers(self, target: Target) -> list[StrategyResult]:
        return self._speakers.get(target, [])

    def pod_of(self, target: Target) -> str:
        """``namespace/name`` that the opinions name; "" = the node's file, or nobody says."""
        return next((pod for result in self.speakers(target) if (pod := result.opinions[target].pod)), "")
