"""Memory that is filled for real on cgroup v2: throttled by memory.high, frozen, evicted (``EXHAUSTIONS``, 50 of them).

kubelet does not run: static pods are never evicted, and without an API server kubelet knows no others. The pods are
made by CRI; koord-qosd reads their priorities from a list that the test serves.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable

import pytest

from integration.guest import koordnode, payload
from integration.guest.guest import Guest
from integration.guest.test_v2_pods import QOSD, start_qosd
from integration.node import exhaustion

pytestmark = pytest.mark.soak

PORT = 10299
RUNS = int(os.environ.get("EXHAUSTIONS") or 50)
SEED = int(os.environ.get("SEED") or 1)
RUN_S = 240.0
"""One exhaustion at most, on emulated CPUs."""
FIRST_STEP_S = 2.0
MAYBE = ("memory.reclaim", "cgroup.freeze")
"""Its program may be reclaimed, and it does not grow, and so is not frozen, where it gets no CPU."""
RELIEVED_S = 30.0
"""Five seconds until it is frozen, and what an emulated runtime takes to stop a container."""


def test_throttled_frozen_and_evicted_before_the_kernel_kills_anybody_else(
    guest: Guest, figure: Callable[[str], None]
) -> None:
    koordnode.set_up_for_load(guest)
    guest.put("/etc/koord/qosd-rules.yaml", exhaustion.RULES)
    start_qosd(guest, f"--kubelet-endpoint=http://127.0.0.1:{PORT}")
    argv = ("python3", "-m", "integration.guest.inside.exhaust", str(PORT), str(RUNS), str(SEED))
    found = json.loads(guest.do(*argv, timeout_s=RUN_S * (RUNS + 2), PYTHONPATH=payload.PYTHONPATH))
    figure(f"in the guest: {found['summary']}")
    print(f"  a slow filler: {found['busy']}")
    slow = list(dict.fromkeys(found["busy"]["steps"]))
    assert [step for step in slow if step not in MAYBE] == ["memory.high", "pod.eviction"]
    assert slow == [step for step in exhaustion.STEPS if step in slow], "the mildest first"
    assert max(course["first_s"] for course in found["courses"]) <= FIRST_STEP_S
    assert max(course["relieved_s"] for course in found["courses"]) <= RELIEVED_S
    assert guest.active(QOSD)
