"""koord-qosd with two strategies more, which do what files of the test say.

``python -m integration.node.toys``, with koord-qosd's own flags. Both files are in the state directory, and what is not
there or empty says nothing: ``holds`` names the CPUs that are left to best-effort pods (``1``), or the CPU time of
their tier in thousandths (``1000m``), or says that they run with the lowest weight, idle and in long slices (``last``);
``lacks`` has lines such as ``cpu 500`` and ``memory 1048576``, in thousandths of a CPU and bytes.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

from koord.model.qos import KubeQoS, QoSClass
from qosd import strategies
from qosd.decide.decision import Decision, Stage, Strategy
from qosd.decide.shortage import OrderKey, Resource, Shortage, Victims
from qosd.model.besteffort import BestEffortScheduling
from qosd.model.snapshot import NodeSnapshot, PressureTrigger

HOLDS, LACKS, LAST = "holds", "lacks", "last"
SLICE_US = 100_000
WHY = "the toy says so"
BE = Victims(frozenset({QoSClass.BE}), "BEMemoryEvict", with_static=True)
"""With static pods, which are all that a kubelet without an API server runs."""


class Toy(Strategy[None]):
    """Not pure: the file is the test's hand in it."""

    name: ClassVar[str]
    stage: ClassVar[Stage] = Stage.SUPPRESSION
    rows: ClassVar[frozenset[str]] = frozenset()
    needs: ClassVar[Mapping[str, float]] = MappingProxyType({})

    def __init__(self, file: Path) -> None:
        self._file = file

    def enabled(self, snapshot: NodeSnapshot) -> bool:
        return True

    def text(self) -> str:
        return self._file.read_text().strip() if self._file.exists() else ""


class HoldBestEffort(Toy):
    name = "toyHold"
    limits_best_effort: ClassVar[bool] = True

    def decide(self, snapshot: NodeSnapshot, last: None) -> tuple[Decision, None]:
        cpus = self.text()
        if not cpus:
            return Decision("nothing is held"), None
        return Decision(f"best-effort pods are held to {cpus}", best_effort=_left(cpus)), None


def _left(text: str) -> BestEffortScheduling:
    if text == LAST:
        return BestEffortScheduling(WHY, has_lowest_weight=True, is_idle=True, slice_us=SLICE_US)
    is_time = text.endswith("m")
    return BestEffortScheduling(WHY, cpu_milli=int(text[:-1])) if is_time else BestEffortScheduling(WHY, text)


class Lack(Toy):
    name = "toyLack"
    triggers: ClassVar[tuple[PressureTrigger, ...]] = (
        PressureTrigger("memory", "some", 50_000, 1_000_000, KubeQoS.BEST_EFFORT),
    )

    def decide(self, snapshot: NodeSnapshot, last: None) -> tuple[Decision, None]:
        lacks = (line.split() for line in self.text().splitlines())
        shortages = tuple(
            Shortage(Resource(resource), int(amount), BE, (OrderKey.AMOUNT,), WHY) for resource, amount in lacks
        )
        return Decision(f"{len(shortages)} shortages", shortages=shortages), None


def main() -> None:
    """The tuple has to hold the toys before modules that derive something from it are imported."""
    state = Path(sys.argv[sys.argv.index("--state-dir") + 1] if "--state-dir" in sys.argv else "/var/lib/koord")
    strategies.STRATEGIES = (*strategies.STRATEGIES, HoldBestEffort(state / HOLDS), Lack(state / LACKS))
    from qosd import program  # noqa: PLC0415

    program.main()


if __name__ == "__main__":
    main()
