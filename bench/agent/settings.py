"""How the daemon is set when it is measured: without rules, and with those under which every strategy is on."""

from __future__ import annotations

from dataclasses import dataclass

EVERYTHING = """\
spec:
  resourceUsedThresholdWithBE:
    enable: true
    cpuSuppressPolicy: cfsQuota
    memoryEvictThresholdPercent: 90
    cpuEvictThresholdPercent: 95
    evictEnabledPriorityThreshold: 5999
    cpuEvictBESatisfactionLowerPercent: 30
    cpuEvictBESatisfactionUpperPercent: 50
    cpuAllocatableEvictThresholdPercent: 120
    cpuAllocatableEvictLowerPercent: 100
    memoryAllocatableEvictThresholdPercent: 120
    memoryAllocatableEvictLowerPercent: 100
    allocatableEvictPriorityThreshold: 5999
  cpuBurstStrategy: {policy: auto}
  resourceQOSStrategy:
    lsrClass: {memoryQOS: {enable: true, minLimitPercent: 20, lowLimitPercent: 50, oomKillGroup: 1}}
    lsClass: {memoryQOS: {enable: true, minLimitPercent: 20, lowLimitPercent: 50, oomKillGroup: 1}}
    beClass:
      cpuQOS: {enable: true, schedIdle: 1}
      memoryQOS: {enable: true, wmarkRatio: 95}
  systemStrategy: {watermarkScaleFactor: 150}
node:
  features: {AllAlpha: true, BECPUManager: false}
  cpuNormalizationRatio: 1.2
  allocatable: {kubernetes.io/batch-cpu: "2000", kubernetes.io/batch-memory: 20Gi}
  evictionDryRun: true
"""
"""Eviction decides as ever and evicts no pod: the pods have to run for the whole measurement."""

PRESSURE = EVERYTHING + "  cpuSuppress: {policy: pressure}\n"

BUSY = 20
SETTLE_S = 15.0
"""From the daemon's start until it is measured."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Under which ``rules``, with how many of the pods ``busy``, the daemon may take how much.

    Without rules it is not told of kubelet either: then all that it knows of pods is the runtime's.
    """

    name: str
    rules: str
    most_cores: float
    most_mib: float = 0.0
    busy: int = 0

    def flags(self, kubelet: str) -> tuple[str, ...]:
        """``kubelet``: its endpoint."""
        return ("--kubelet-endpoint", kubelet) if self.rules else ()


BY_DEFAULT = Setting("by default", "", 0.012, 55)
IN_CLUSTER = Setting("in a cluster", EVERYTHING, 0.02, 85)
ALL_STRATEGIES = Setting("all strategies", EVERYTHING, 0.016, 65)
SETTINGS = (
    BY_DEFAULT,
    ALL_STRATEGIES,
    Setting(f"all strategies, {BUSY} pods busy, cfsQuota", EVERYTHING, 0.03, busy=BUSY),
    Setting(f"all strategies, {BUSY} pods busy, pressure", PRESSURE, 0.03, busy=BUSY),
)
