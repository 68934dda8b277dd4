"""The demo's last act: a best-effort hog beside a busy service, as it is, suppressed, and given back.

It fails where the kernel does not hold the hog while suppression is on, or holds anything else afterwards than before.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence

from integration.demo import pods
from integration.demo.stage import CGROUP_ROOT, Stage
from integration.harness import cgroups
from integration.harness.processes import wait_for

TIER = f"{CGROUP_ROOT}/besteffort"
SEEN_S = 4.0
"""Time in which `top` has seen a change."""
MEASURED_S = 2.0
PERIOD_US = 100_000
OVER_CPUS = 0.1
"""What the hog may use beyond its bound: the kernel hands a quota out to CPUs in slices of 5 ms."""
SOON_S = 15.0
TOP = ("top", "--once")


def play(played: Stage, koordctl: Callable[[Sequence[str]], None]) -> Sequence[str]:
    """What was wrong, in sentences."""
    played.start(pods.busy_service(CGROUP_ROOT))
    hog = played.start(pods.hog(CGROUP_ROOT))["worker"]
    time.sleep(SEEN_S)
    before, free = _held(), _cores(hog)
    print(
        f"\nA best-effort pod, hog, beside a service that is busy, web. It takes {free:.2f} of {os.cpu_count()} CPUs."
    )
    koordctl(TOP)

    played.set_rules(played.rules + pods.SUPPRESSION)
    wait_for(lambda: _quota_us() > 0, SOON_S, f"a quota of {TIER}")
    time.sleep(SEEN_S)
    first_us, suppressed = _quota_us(), _cores(hog)
    bound = max(first_us, _quota_us()) / PERIOD_US
    print(f"\nSuppression is switched on by the rules, as NodeSLO would: hog takes {suppressed:.2f}.")
    koordctl(TOP)
    koordctl(("explain", "pod", "hog"))

    played.set_rules(played.rules)
    wait_for(lambda: _quota_us() < 0, SOON_S, f"no quota of {TIER}")
    time.sleep(SEEN_S)
    after = _held()
    print(f"\nAnd off again: hog takes {_cores(hog):.2f}.")
    return [
        *(
            f"{name} holds {after.get(name)} and not {value}"
            for name, value in before.items()
            if after.get(name) != value
        ),
        *([f"hog took {suppressed:.2f} of {bound:.2f} CPUs"] if suppressed > bound + OVER_CPUS else []),
        *([f"hog took {free:.2f} CPUs before: nothing to suppress"] if free < bound else []),
    ]


def _quota_us() -> int:
    return cgroups.read(TIER).cfs_quota_us


def _held() -> Mapping[str, cgroups.Values]:
    """What the kernel holds for each cgroup of the demo."""
    mount = cgroups.hierarchies()["cpu"]
    below = sorted((mount / CGROUP_ROOT.strip("/")).rglob("cpu.shares"))
    paths = [f"/{file.parent.relative_to(mount)}" for file in below]
    return {path: cgroups.read(path) for path in paths}


def _cores(cgroup: str) -> float:
    """How many CPUs it uses."""
    usage = cgroups.hierarchies()["cpuacct"] / cgroup.strip("/") / "cpuacct.usage"
    before_ns, began = int(usage.read_text()), time.monotonic()
    time.sleep(MEASURED_S)
    return (int(usage.read_text()) - before_ns) / 1e9 / (time.monotonic() - began)
