"""koord-qosd with one strategy more: a toy that leaves best-effort pods the CPUs that a file names.

``python -m integration.node.holding``, with koord-qosd's own flags. The file is ``holds`` in the state directory; while
it is not there or empty, nothing is held.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from qosd import strategies
from qosd.decide.decision import Decision, Stage
from qosd.hooks.rules import BestEffortCPUs
from qosd.snapshot import NodeSnapshot, Window

FILE = "holds"
WHY = "the toy says so"


class HoldBestEffort:
    """The strategy ``toyHold``. Not pure: the file is the test's hand in it."""

    name: ClassVar[str] = "toyHold"
    stage: ClassVar[Stage] = Stage.SUPPRESSION
    rows: ClassVar[frozenset[str]] = frozenset()
    needs: ClassVar[Mapping[str, float]] = MappingProxyType({})
    windows: ClassVar[tuple[Window, ...]] = ()

    def __init__(self, file: Path) -> None:
        self._file = file

    def enabled(self, snapshot: NodeSnapshot) -> bool:
        return True

    def decide(self, snapshot: NodeSnapshot, memory: Any) -> tuple[Decision, Any]:
        cpus = self._file.read_text().strip() if self._file.exists() else ""
        if not cpus:
            return Decision("nothing is held"), None
        return Decision(f"best-effort pods are held to CPUs {cpus}", best_effort=BestEffortCPUs(cpus, WHY)), None


def main() -> None:
    """The tuple has to know the toy before whoever derives something from it is imported."""
    file = Path(sys.argv[sys.argv.index("--state-dir") + 1]) / FILE
    strategies.STRATEGIES = (*strategies.STRATEGIES, HoldBestEffort(file))
    from qosd import program  # noqa: PLC0415

    program.main()


if __name__ == "__main__":
    main()
