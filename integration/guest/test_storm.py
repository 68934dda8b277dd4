"""The kill storm on a node with systemd: CYCLES=300 faults under kubelet's call mix."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable

import pytest

from integration.guest import koordnode, payload, programs
from integration.guest.guest import Guest
from integration.storm.mix import NOT_READY_S

pytestmark = pytest.mark.soak

CYCLES = int(os.environ.get("CYCLES") or 300)
CYCLE_S = 60.0  # at most, on a busy machine


def test_storm(guest: Guest, figure: Callable[[str], None]) -> None:
    koordnode.set_up_for_load(guest)
    programs.start(guest)
    seed = int(os.environ.get("SEED") or random.randrange(1 << 31))
    began_s = time.monotonic()
    done = guest.run(
        *("python3", "-m", "integration.guest.inside.storm"),
        timeout_s=CYCLES * CYCLE_S,
        PYTHONPATH=payload.PYTHONPATH,
        CYCLES=str(CYCLES),
        SEED=str(seed),
    )
    *said, last = done.stdout.splitlines() or [""]
    print("\n".join(said))
    assert last.startswith("{"), done.stderr
    found = json.loads(last)
    took_s = time.monotonic() - began_s
    figure(f"storm in the guest: seed {seed}: {CYCLES} cycles in {took_s:.0f} s: {found['summary']}")
    print(f"  the first pod, in peace, took {found['pod_s']:.1f} s")
    print(f"  SIGSTOP of the proxy to the next answer: {[round(each, 1) for each in found['frozen_s']]} s")
    print(f"  {found['faults']}, put right by the reconciler {found['tally']['late']}")
    assert not found["wrong"], "\n".join(found["wrong"])
    assert found["tally"]["pods"] > 1, "one before the faults, one after them"
    struck = sum(count for fault, count in found["faults"].items() if "containerd" in fault)
    assert found["tally"]["wrecks"] <= struck, "the runtime wrecks pods only when it is itself struck"
    assert max(found["frozen_s"], default=0) < NOT_READY_S
    for unit in (*programs.UNITS, "containerd.service"):
        assert guest.active(unit)
