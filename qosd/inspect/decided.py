"""The newest tick's opinions, file by file."""

from __future__ import annotations

from koord.host.files import Target
from qosd.act.composition import pod_of
from qosd.decide.frame import Turn
from qosd.inspect.sources import Sources


class Decided:
    """The opinions of every strategy's turn in ``sources.decisions()``, by file, each file's in the order of stages."""

    def __init__(self, sources: Sources) -> None:
        decisions = sources.decisions()
        self.turns: tuple[Turn, ...] = () if decisions is None else decisions.turns
        self.owned = sources.actuator.owned
        self._speakers: dict[Target, list[Turn]] = {}
        for turn in sorted(self.turns, key=lambda turn: turn.stage):
            for target in turn.opinions:
                self._speakers.setdefault(target, []).append(turn)

    @property
    def targets(self) -> list[Target]:
        """Every file that a strategy speaks of or that the actuator holds."""
        return sorted({*self._speakers, *self.owned}, key=lambda target: (target.group, target.name))

    def speakers(self, target: Target) -> list[Turn]:
        return self._speakers.get(target, [])

    def pod_of(self, target: Target) -> str:
        """``namespace/name`` that the opinions name; "" = the node's file, or nobody says."""
        return next((pod for turn in self.speakers(target) if (pod := pod_of(turn.opinions[target]))), "")
