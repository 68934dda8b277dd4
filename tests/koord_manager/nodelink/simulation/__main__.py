"""NodeLink's simulation at its full size: ``make soak-nodelink``.

Environment: NODES=10000, half of them units and half of them agents' pods with tokens. A row a chapter; the last line
says which share of the nodes' time was fresh.
"""

from __future__ import annotations

import os
import sys
import time

from tests.koord_manager.nodelink.simulation import story
from tests.koord_manager.nodelink.simulation.fleet import NODES, Budget
from tests.koord_manager.nodelink.simulation.story import LEAST_SHARE, Story
from tests.kube import virtualtime


def main() -> int:
    nodes, begun_s = int(os.environ.get("NODES") or NODES), time.monotonic()

    async def run() -> Story:
        told = Story(nodes, Budget())
        await told.tell(lambda row: print(row.text(), flush=True))
        return told

    with story.quiet():
        told = virtualtime.run(run())
    is_met = told.share >= LEAST_SHARE
    seconds = sum(row.seconds for row in told.rows)
    print(
        f"soak-nodelink: {nodes} nodes, {nodes // 2} of them with pods' tokens, {seconds / 3600:.0f} h in "
        f"{time.monotonic() - begun_s:.0f} s: fresh "
        f"{100 * told.share:.2f} % of the time (>= {100 * LEAST_SHARE:g} %: {'met' if is_met else 'MISSED'})"
    )
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
