"""Every bound and every choice of NodeSLO's fields, of each class alike: the edge is taken, what is beyond is not."""

from __future__ import annotations

import re
from typing import Any

import pytest
from msgspec import inspect

from koord.model import leaves, slo
from koord.model.quantity import MAX_INT64
from koord.model.schema import SchemaError

INT32 = (-(2**31), 2**31 - 1)
NATURAL, POSITIVE = (0, MAX_INT64), (1, MAX_INT64)
PERCENT, FLAG = (0, 100), (0, 1)
THRESHOLDS, CLASS, SYSTEM = "resourceUsedThresholdWithBE", "resourceQOSStrategy.*", "systemStrategy"
IO = f"{CLASS}.blkioQOS.blocks[].ioCfg"
NUMBERS = {
    f"{THRESHOLDS}.cpuSuppressThresholdPercent": PERCENT,
    f"{THRESHOLDS}.cpuSuppressMinPercent": PERCENT,
    f"{THRESHOLDS}.memoryEvictThresholdPercent": PERCENT,
    f"{THRESHOLDS}.memoryEvictLowerPercent": PERCENT,
    f"{THRESHOLDS}.memoryAllocatableEvictThresholdPercent": NATURAL,
    f"{THRESHOLDS}.memoryAllocatableEvictLowerPercent": NATURAL,
    f"{THRESHOLDS}.cpuEvictBESatisfactionLowerPercent": (1, 60),
    f"{THRESHOLDS}.cpuEvictBESatisfactionUpperPercent": (1, 99),
    f"{THRESHOLDS}.cpuEvictBEUsageThresholdPercent": PERCENT,
    f"{THRESHOLDS}.cpuEvictTimeWindowSeconds": POSITIVE,
    f"{THRESHOLDS}.cpuEvictThresholdPercent": PERCENT,
    f"{THRESHOLDS}.cpuEvictLowerPercent": PERCENT,
    f"{THRESHOLDS}.cpuAllocatableEvictThresholdPercent": NATURAL,
    f"{THRESHOLDS}.cpuAllocatableEvictLowerPercent": NATURAL,
    f"{THRESHOLDS}.evictEnabledPriorityThreshold": INT32,
    f"{THRESHOLDS}.allocatableEvictPriorityThreshold": (-(2**31), 7999),
    f"{CLASS}.cpuQOS.groupIdentity": (-1, 2),
    f"{CLASS}.cpuQOS.schedIdle": FLAG,
    f"{CLASS}.memoryQOS.minLimitPercent": PERCENT,
    f"{CLASS}.memoryQOS.lowLimitPercent": PERCENT,
    f"{CLASS}.memoryQOS.throttlingPercent": PERCENT,
    f"{CLASS}.memoryQOS.wmarkRatio": PERCENT,
    f"{CLASS}.memoryQOS.wmarkScalePermill": (1, 1000),
    f"{CLASS}.memoryQOS.wmarkMinAdj": (-25, 50),
    f"{CLASS}.memoryQOS.priorityEnable": FLAG,
    f"{CLASS}.memoryQOS.priority": (0, 12),
    f"{CLASS}.memoryQOS.oomKillGroup": FLAG,
    f"{CLASS}.memoryQOS.pageCacheLimitPercent": PERCENT,
    f"{CLASS}.memoryQOS.pageCacheLimitSize": NATURAL,
    f"{CLASS}.resctrlQOS.catRangeStartPercent": PERCENT,
    f"{CLASS}.resctrlQOS.catRangeEndPercent": PERCENT,
    f"{CLASS}.resctrlQOS.mbaPercent": PERCENT,
    f"{CLASS}.networkQOS.ingressRequest": PERCENT,
    f"{CLASS}.networkQOS.ingressLimit": PERCENT,
    f"{CLASS}.networkQOS.egressRequest": PERCENT,
    f"{CLASS}.networkQOS.egressLimit": PERCENT,
    **{f"{IO}.{key}": NATURAL for key in ("readIOPS", "writeIOPS", "readBPS", "writeBPS")},
    **{f"{IO}.{key}": NATURAL for key in ("readLatency", "writeLatency")},
    **{f"{IO}.{key}": PERCENT for key in ("readLatencyPercent", "writeLatencyPercent")},
    f"{IO}.ioWeightPercent": (1, 100),
    **{f"{IO}.model{way}BPS": POSITIVE for way in ("Read", "Write")},
    **{f"{IO}.model{way}{kind}IOPS": POSITIVE for way in ("Read", "Write") for kind in ("Seq", "Rand")},
    "cpuBurstStrategy.cpuBurstPercent": (1, 10000),
    "cpuBurstStrategy.cfsQuotaBurstPercent": (100, MAX_INT64),
    "cpuBurstStrategy.cfsQuotaBurstPeriodSeconds": (-1, MAX_INT64),
    "cpuBurstStrategy.sharePoolThresholdPercent": PERCENT,
    f"{SYSTEM}.minFreeKbytesFactor": POSITIVE,
    f"{SYSTEM}.watermarkScaleFactor": (10, 400),
    f"{SYSTEM}.memcgReapBackGround": FLAG,
    f"{SYSTEM}.schedGroupIdentityEnabled": FLAG,
    f"{SYSTEM}.schedIdleSaverWmark": NATURAL,
    f"{SYSTEM}.pageCacheLimitEnabled": FLAG,
    "extensions.koord.cpuSuppress.setPointMilliseconds": (1, 1000),
    "extensions.koord.cpuSuppress.ceilingPercent": (1, 100),
}
CHOICES = {
    f"{THRESHOLDS}.cpuSuppressPolicy": ["cpuset", "cfsQuota"],
    f"{THRESHOLDS}.cpuEvictPolicy": ["evictByRealLimit", "evictByAllocatable"],
    "resourceQOSStrategy.policies.cpuPolicy": ["groupIdentity", "coreSched"],
    "resourceQOSStrategy.policies.netQOSPolicy": ["tc", "terway-qos"],
    f"{CLASS}.blkioQOS.blocks[].type": ["device", "volumegroup", "podvolume"],
    "cpuBurstStrategy.policy": ["none", "cpuBurstOnly", "cfsQuotaBurstOnly", "auto"],
    "hostApplications[].cgroupPath.base": ["CgroupRoot", "Kubepods", "KubepodsBurstable", "KubepodsBesteffort"],
    "extensions.koord.cpuSuppress.policy": ["slo", "pressure"],
}
OTHERS = {
    f"{THRESHOLDS}.enable", f"{CLASS}.cpuQOS.coreExpeller", f"{CLASS}.memoryQOS.pageCacheEnable",
    f"{CLASS}.memoryQOS.pageCacheReclaimSync", f"{IO}.enableUserModel", f"{CLASS}.blkioQOS.blocks[].name",
    *(f"{CLASS}.{concern}QOS.enable" for concern in ("cpu", "memory", "blkio", "resctrl", "network")),
    f"{SYSTEM}.schedFeatures", f"{SYSTEM}.totalNetworkBandwidth",
    *(f"hostApplications[].{key}" for key in ("name", "priority", "qos", "strategy")),
    *(f"hostApplications[].cgroupPath.{key}" for key in ("parentDir", "relativePath")),
}  # fmt: skip
CLASSES = ("lsrClass", "lsClass", "beClass", "systemClass", "cgroupRoot")
ALL = {leaf.path: leaf.kind for leaf in slo.every_leaf()}


def of_any_class(path: str) -> str:
    return re.sub(f"({'|'.join(CLASSES)})", "*", path)


def paths(pattern: str) -> list[str]:
    """The field in each class that has it."""
    return [path for path in ALL if of_any_class(path) == pattern]


def document(path: str, value: object) -> Any:
    for key in reversed(path.split(".")):
        value = {key.removesuffix("[]"): [value] if key.endswith("[]") else value}
    return value


def said(path: str, value: object) -> list[leaves.LeafValue]:
    """What is set of that field, after reading."""
    found = leaves.of_value(slo.decode_spec(document(path, value)))
    return [each for each in found if each.path == path.replace("[]", "[0]")]


def test_every_field_is_in_one_of_the_tables() -> None:
    patterns = [of_any_class(path) for path in ALL]
    assert len({*NUMBERS, *CHOICES, *OTHERS}) == len(NUMBERS) + len(CHOICES) + len(OTHERS)
    assert {*NUMBERS, *CHOICES, *OTHERS} == set(patterns)
    assert {patterns.count(pattern) for pattern in NUMBERS if "*" in pattern} == {len(CLASSES)}


@pytest.mark.parametrize("pattern", NUMBERS)
def test_the_edges_are_taken_and_what_is_beyond_is_refused(pattern: str) -> None:
    lowest, highest = NUMBERS[pattern]
    for path in paths(pattern):
        for edge in (lowest, highest):
            assert len(said(path, edge)) == 1
        for beyond in (lowest - 1, highest + 1):
            with pytest.raises(SchemaError, match=rf"{re.escape(str(beyond))} is (not in|less than)") as caught:
                said(path, beyond)
            assert caught.value.path == f"spec.{path}".replace("[]", "[0]")


@pytest.mark.parametrize("pattern", CHOICES)
def test_the_choices(pattern: str) -> None:
    for path in paths(pattern):
        kind = ALL[path]
        assert isinstance(kind, inspect.EnumType)
        assert [each.value for each in kind.cls] == CHOICES[pattern]
        assert [said(path, choice)[0].value for choice in CHOICES[pattern]] == CHOICES[pattern]
        with pytest.raises(SchemaError, match=f"is not one of {', '.join(CHOICES[pattern])}"):
            said(path, "other")
